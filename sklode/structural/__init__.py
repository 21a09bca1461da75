"""The structural time series model in continuous time, solved in closed form."""
