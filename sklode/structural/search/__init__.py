"""The search for a column's most probable forms and hyperparameters."""
