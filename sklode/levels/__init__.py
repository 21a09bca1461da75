"""The level of a series: a structural model in continuous time, solved exactly."""
