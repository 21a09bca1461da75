"""Lengths of seasons: what a user calls them, and how many ticks they have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from sklode.data.history import History
from sklode.data.ticks import clock_of

_TIMES = str | timedelta | np.timedelta64 | pd.DateOffset | pd.offsets.BaseOffset

_REMEDY = (
    "Use for example seasons=['1D', '7D'], seasons=[pd.DateOffset(years=1)] or, in "
    "steps of the index, seasons=[12]."
)


def check_seasons(seasons: Sequence[Any]) -> None:
    """Check that seasons are lengths of time or numbers of steps, above zero."""
    for season in seasons:
        is_number = _is_number(season)
        if isinstance(season, bool) or not (is_number or isinstance(season, _TIMES)):
            raise TypeError(
                "seasons must hold lengths of time or numbers of steps; got "
                f"{season!r} of type {type(season).__name__}. {_REMEDY}"
            )
        try:
            length = float(season) if is_number else _nanoseconds(season)
        except ValueError as error:
            raise ValueError(
                "seasons must hold lengths of time that pandas knows; got "
                f"{season!r}. {_REMEDY}"
            ) from error
        if not 0 < length < math.inf:
            raise ValueError(
                f"seasons must be longer than nothing; got {season!r}. {_REMEDY}"
            )


def season_ticks(seasons: Sequence[Any], history: History) -> tuple[float, ...]:
    """Return the lengths of checked seasons in ticks of the history's index.

    Those of the calendar have their mean length: a month has 365.25 / 12 days, or
    nearly so.
    """
    like = history.rows.like
    found = tuple(_ticks(season, like, history.steps) for season in seasons)
    for place, ticks in enumerate(found):
        if ticks in found[:place]:
            raise ValueError(
                "seasons must have different lengths; got "
                f"{seasons[found.index(ticks)]!r} and {seasons[place]!r}. Leave one of "
                "them out."
            )
    return found


def _ticks(season: Any, like: pd.Index, steps: list[Any]) -> float:
    is_timelike = isinstance(like, pd.DatetimeIndex | pd.TimedeltaIndex)
    if not _is_number(season):
        if is_timelike:
            return _nanoseconds(season)
        if isinstance(like, pd.PeriodIndex):
            # ordinals count the frequency without its multiple
            return _nanoseconds(season) / _nanoseconds(like.freq) * like.freq.n
        raise TypeError(
            f"seasons of an index of {clock_of(like)} must be numbers; got "
            f"{season!r}. {_REMEDY}"
        )
    lengths = {_nanoseconds(step) if is_timelike else float(step) for step in steps}
    if len(lengths) > 1:
        raise ValueError(
            "seasons in steps need series with one length of a step; got "
            f"{len(lengths)} lengths. Pass them as lengths of time, such as '1D', or "
            "set freq."
        )
    return float(season) * lengths.pop()


def _is_number(season: Any) -> bool:
    # numpy counts its durations among the integers
    return isinstance(season, Real) and not isinstance(season, np.timedelta64)


def _nanoseconds(length: Any) -> float:
    """Return how long something lasts, on average."""
    if isinstance(length, timedelta | np.timedelta64):
        return pd.Timedelta(length).total_seconds() * 1e9
    try:
        offset = pd.tseries.frequencies.to_offset(length)
    except ValueError:
        if not any(letter.isalpha() for letter in length):  # pandas says nanoseconds
            raise
        return _nanoseconds(pd.Timedelta(length))  # which knows fractions
    start = offset.rollforward(pd.Timestamp("1950-01-01"))
    return (start + 100 * offset - start).total_seconds() * 1e9 / 100
