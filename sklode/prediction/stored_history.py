"""The series of a fitted forecaster as plain data and arrays, and the way back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from sklode.data.history import History
from sklode.data.observations import Observations
from sklode.prediction.plain_data import plain, restored
from sklode.prediction.weights_file import Arrays, require

__all__ = ["history_from", "parts_of_history"]


def parts_of_history(history: History, arrays: Arrays) -> dict[str, Any]:
    """Return a history as plain data; its arrays go to ``arrays``.

    Raises
    ------
    WeightsFileError
        If a key, a name or a step is of a kind that is not stored.
    """
    rows = history.rows
    arrays["history.ticks"] = rows.ticks
    arrays["history.values"] = rows.values
    arrays["history.bounds"] = rows.bounds
    if rows.controls is not None:
        arrays["history.controls"] = rows.controls
    return {
        "keys": [[plain(k, "a series' key") for k in key] for key in rows.keys],
        "like": plain(rows.like, "the kind of the stamps"),
        "steps": plain(history.steps, "the length of a step"),
        "levels": plain(history.levels, "the name of an index level"),
        "channels": plain(history.channels, "the name of a column of y"),
        "controls": plain(history.controls, "the name of a column of X"),
        "of_array": history.of_array,
    }


def history_from(data: dict[str, Any], arrays: Arrays) -> History:
    """Return the history that `parts_of_history` described.

    Raises
    ------
    WeightsFileError
        If it is not what `Observations` and `History` promise.
    """
    controls = restored(data["controls"])
    rows = Observations(
        arrays.pop("history.ticks"),
        arrays.pop("history.values"),
        arrays.pop("history.controls") if controls else None,
        arrays.pop("history.bounds"),
        tuple(tuple(restored(key)) for key in data["keys"]),
        restored(data["like"]),
    )
    names = ("steps", "levels", "channels")
    steps, levels, channels = (restored(data[name]) for name in names)
    lists = [steps, levels, channels, controls]
    require(all(type(found) is list for found in lists), "no lists of names")
    _check_rows(rows, len(channels), len(controls))
    n_series, n_keys = len(rows.keys), len(levels) - 1
    require(len(steps) == n_series, "series without a step")
    require({len(key) for key in rows.keys} == {n_keys}, "keys without levels")
    require(len(set(rows.keys)) == n_series, "a series' key twice")
    require(isinstance(rows.like, pd.Index), "stamps of no kind")
    kinds = (int, pd.Timedelta, pd.tseries.offsets.BaseOffset)
    require(all(isinstance(step, kinds) for step in steps), "steps of no length")
    require(type(data["of_array"]) is bool, "of_array")
    return History(rows, steps, levels, channels, controls, data["of_array"])


def _check_rows(found: Observations, n_channels: int, n_controls: int) -> None:
    n_rows = len(found.values)
    whole, real = np.dtype(np.int64), np.dtype(np.float64)
    for array, shape, dtype in (
        (found.ticks, (n_rows,), whole),
        (found.values, (n_rows, n_channels), real),
        (found.bounds, (len(found.keys) + 1,), whole),
        (found.controls, (n_rows, n_controls), real),
    ):
        if array is not None:
            require(array.shape == shape and array.dtype == dtype, "other shapes")
    bounds = found.bounds
    ends = bounds[0] == 0 and bounds[-1] == n_rows and (np.diff(bounds) > 0).all()
    require(bool(ends), "rows of no series")
    within = np.delete(np.diff(found.ticks), bounds[1:-1] - 1)
    require(bool((within > 0).all()), "stamps that do not increase")
    require(not np.isinf(found.values).any(), "infinite values of y")
    finite = found.controls is None or np.isfinite(found.controls).all()
    require(bool(finite), "values of X that are not finite")
