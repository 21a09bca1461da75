"""Errors that sklode raises beside ValueError and TypeError."""

from __future__ import annotations

__all__ = ["SolverError", "WeightsFileError"]


class SolverError(RuntimeError):
    """A differential equation could not be solved to the tolerance asked for.

    The message names the method, its tolerances, the time and the remedy.
    """


class WeightsFileError(ValueError):
    """A forecaster cannot be stored in a weights file, or read from one.

    The message names what is wrong with the file, or what cannot be stored, and the
    remedy.
    """
