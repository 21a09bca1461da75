"""Errors that sklode raises beside ValueError and TypeError."""

from __future__ import annotations

__all__ = ["SolverError"]


class SolverError(RuntimeError):
    """A differential equation could not be solved, or its solution overflows.

    The message names the method, its step or tolerances, the time and the remedy.
    """
