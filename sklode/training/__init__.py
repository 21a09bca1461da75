"""From settings and observations to a fitted model."""

from sklode.training.parallel import data_parallel

__all__ = ["data_parallel"]
