"""The level of a series: a structural model, solved exactly."""
