"""From settings and observations to a fitted model."""

from sklode.training.clipping import ClippingReport, clipping_report
from sklode.training.parallel import data_parallel

__all__ = ["ClippingReport", "clipping_report", "data_parallel"]
