"""From settings and observations to a fitted model."""
