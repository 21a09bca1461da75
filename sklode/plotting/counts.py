"""Whole numbers that a caller passes: how many paths, samples or arrows."""

from __future__ import annotations

from numbers import Integral
from typing import Any

__all__ = ["check_count", "is_whole"]


def is_whole(value: Any) -> bool:
    """Return whether a value is an integer, Python's or numpy's, and no truth value."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_count(name: str, value: Any, least: int) -> None:
    """Check that an argument is a whole number, and not too small.

    Raises
    ------
    ValueError
        Naming the argument, what it must be and what was received.
    """
    if not is_whole(value) or int(value) < least:
        raise ValueError(
            f"{name} must be a whole number of at least {least}; got {value!r}."
        )
