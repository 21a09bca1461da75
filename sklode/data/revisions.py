"""Warn where an update contradicts what was seen before, or comes before all of it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sklode.data.errors import HistoryWarning
from sklode.data.observations import Observations
from sklode.data.places import rows_before
from sklode.data.ticks import stamps_of

__all__ = ["warn_of_revisions"]


def warn_of_revisions(seen: Observations, new: Observations, like: pd.Index) -> None:
    """Warn of values that replace others, and of rows before a series' first one.

    Parameters
    ----------
    seen, new : Observations
        The history, and an update's rows.
    like : Index
        Stamps of the history, for their kind.
    """
    place = _known_rows(seen, new)
    y = _replaced(place, seen.values, new.values)
    if y is not None:
        _warn(
            f"an update replaces values of y that were observed before: {y[1]} of "
            f"them, the first at {_stamp(new, y[0], like)}. Where that is no revision, "
            "look for wrong time stamps."
        )
    X = None
    if seen.controls is not None and new.controls is not None:
        X = _replaced(place, seen.controls, new.controls)
    if X is not None:
        _warn(
            f"an update replaces values of X that were given before: {X[1]} of them, "
            f"the first at {_stamp(new, X[0], like)}. Where that is no revision, "
            "compute X for all stamps alike."
        )
    early = _before_all(seen, new)
    if early is not None:
        last, first = early
        _warn(
            "an update comes before the first stamp that was seen, "
            f"{_stamp(seen, first, like)}; its last is {_stamp(new, last, like)}. The "
            "cutoff stays, and forecasts begin after it. Where that is not meant, look "
            "for wrong time stamps."
        )


def _warn(text: str) -> None:
    warnings.warn(text, HistoryWarning, stacklevel=3)


def _stamp(rows: Observations, row: int, like: pd.Index) -> str:
    """Name a row as the user's index does."""
    time = stamps_of(rows.ticks[[row]], like)[0]
    series = int(np.searchsorted(rows.bounds, row, side="right")) - 1
    key = rows.keys[series]
    return f"{time} of series {key}" if key else f"{time}"


def _before_all(seen: Observations, new: Observations) -> tuple[int, int] | None:
    """Return the last row of a series that ends before its first one seen, and that."""
    numbers = {key: k for k, key in enumerate(seen.keys)}
    for k, key in enumerate(new.keys):
        if key in numbers:
            last, first = new.bounds[k + 1] - 1, seen.bounds[numbers[key]]
            if new.ticks[last] < seen.ticks[first]:
                return int(last), int(first)
    return None


def _known_rows(seen: Observations, new: Observations) -> NDArray[np.int64]:
    """Return the row of ``seen`` at each row's stamp of ``new``; -1 for none."""
    numbers = {key: k for k, key in enumerate(seen.keys)}
    number = np.array([numbers.get(key, -1) for key in new.keys], dtype=np.int64)
    series = np.repeat(number, new.lengths)
    row = rows_before(seen.bounds, seen.ticks, series, new.ticks)
    is_known = (row >= seen.bounds[series]) & (seen.ticks[row] == new.ticks)
    return np.where(is_known & (series >= 0), row, -1)


def _replaced(
    place: NDArray[np.int64], old_values: NDArray[Any], new_values: NDArray[Any]
) -> tuple[int, int] | None:
    """Return the first new row that replaces a value, and how many do; or None.

    NaN replaces nothing and is replaced by nothing.
    """
    old = old_values[place]
    differ = (place >= 0)[:, None] & (old != new_values)
    differ &= ~(np.isnan(old) | np.isnan(new_values))
    if not differ.any():
        return None
    return int(np.argmax(differ.any(axis=1))), int(differ.sum())
