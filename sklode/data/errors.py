"""Errors and warnings of sklode; `sklode` exports them."""

from __future__ import annotations


class HistoryWarning(UserWarning):
    """An update contradicts what was seen before, or comes before all of it.

    Such updates are refused after
    ``warnings.simplefilter("error", HistoryWarning)``.
    """


class SolverError(RuntimeError):
    """A differential equation could not be solved, or its solution overflows.

    The message names the method, its step, the time and the remedy.
    """


class WeightsFileError(ValueError):
    """A forecaster cannot be stored in a weights file, or read from one."""
