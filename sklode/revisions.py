"""Warn where an update contradicts what was seen before, or comes before all of it."""

from __future__ import annotations

import warnings
from collections.abc import Hashable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sklode.exceptions import HistoryWarning
from sklode.observations import Observations
from sklode.stamps import stamps_of

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
    ticks, series = new.ticks, np.repeat(np.arange(len(new.keys)), new.lengths)

    def stamp(row: int) -> str:
        """Name a row of the update as the user's index does."""
        time = stamps_of(ticks[[row]], like)[0]
        return _named(new.keys[series[row]], time)

    row_of_y, n_y = _replaced(seen, new, seen.values, new.values)
    if n_y:
        warnings.warn(
            "an update replaces values of y that were observed before; it does so "
            f"{n_y} times, first at {stamp(row_of_y)}. Where that is no revision, look "
            "for wrong time stamps.",
            HistoryWarning,
            stacklevel=2,
        )
    if seen.controls is not None and new.controls is not None:
        row_of_X, n_X = _replaced(seen, new, seen.controls, new.controls)
        if n_X:
            warnings.warn(
                "an update replaces values of X that were given before; it does so "
                f"{n_X} times, first at {stamp(row_of_X)}. Where that is no revision, "
                "compute X for all stamps alike.",
                HistoryWarning,
                stacklevel=2,
            )
    numbers = {key: k for k, key in enumerate(seen.keys)}
    for k, key in enumerate(new.keys):
        last = new.bounds[k + 1] - 1
        if key in numbers and ticks[last] < seen.ticks[seen.bounds[numbers[key]]]:
            first = stamps_of(seen.ticks[seen.bounds[[numbers[key]]]], like)[0]
            warnings.warn(
                "an update comes before the first stamp that was seen, "
                f"{_named(key, first)}; its last is {stamp(last)}. The cutoff stays, "
                "and forecasts begin after it. Where that is not meant, look for wrong "
                "time stamps.",
                HistoryWarning,
                stacklevel=2,
            )
            break


def _named(key: tuple[Hashable, ...], time: object) -> str:
    return f"{time} of series {key}" if key else f"{time}"


def _replaced(
    seen: Observations, new: Observations, old_values: NDArray, new_values: NDArray
) -> tuple[int, int]:
    """Return the first row of ``new`` that replaces a value, and the number of values.

    NaN replaces nothing and is replaced by nothing.
    """
    numbers = {key: k for k, key in enumerate(seen.keys)}
    number = np.array([numbers.get(key, -1) for key in new.keys], dtype=np.int64)
    known = pd.MultiIndex.from_arrays(
        [np.repeat(np.arange(len(seen.keys)), seen.lengths), seen.ticks]
    )
    asked = pd.MultiIndex.from_arrays([np.repeat(number, new.lengths), new.ticks])
    place = known.get_indexer(asked)
    old = old_values[place]
    differ = (place >= 0)[:, None] & (old != new_values)
    differ &= ~(np.isnan(old) | np.isnan(new_values))
    return int(np.argmax(differ.any(axis=1))), int(differ.sum())
