"""From settings and observations to a fitted model."""

from sklode.training.clipping import ClippingReport, clipping_report

__all__ = ["ClippingReport", "clipping_report"]
