"""The series of a fitted forecaster as plain data and arrays, and the way back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from sklode.data.history import History
from sklode.data.observations import Observations
from sklode.data.ticks import clock_of, ticks_of
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
    observations = history.observations
    arrays["history.ticks"] = observations.ticks
    arrays["history.values"] = observations.values
    arrays["history.bounds"] = observations.bounds
    rows = None
    if observations.controls is not None:
        arrays["history.controls"] = observations.controls
        table = history.unobserved.to_numpy(dtype=np.float64, na_value=np.nan)
        arrays["history.unobserved"] = table
        rows = plain(history.unobserved.index, "the index of X")
    return {
        "keys": [[plain(k, "a series' key") for k in key] for key in observations.keys],
        "last": plain(history.last, "the last stamps"),
        "steps": plain(history.steps, "the length of a step"),
        "levels": plain(history.levels, "the name of an index level"),
        "channels": plain(history.channels, "the name of a column of y"),
        "controls": plain(history.controls, "the name of a column of X"),
        "unobserved": rows,
        "of_array": history.of_array,
    }


def history_from(data: dict[str, Any], arrays: Arrays) -> History:
    """Return the history that `parts_of_history` described.

    Raises
    ------
    WeightsFileError
        If it is not what `Observations` and `History` promise.
    """
    last, controls = restored(data["last"]), restored(data["controls"])
    of_controls, unobserved = None, pd.DataFrame()
    if controls:
        of_controls, table = (
            arrays.pop("history.controls"),
            arrays.pop("history.unobserved"),
        )
        rows = restored(data["unobserved"])
        unobserved = pd.DataFrame(table, rows, controls)
    observations = Observations(
        arrays.pop("history.ticks"),
        arrays.pop("history.values"),
        of_controls,
        arrays.pop("history.bounds"),
        tuple(tuple(restored(key)) for key in data["keys"]),
        clock_of(last),
    )
    names = ("steps", "levels", "channels")
    steps, levels, channels = (restored(data[name]) for name in names)
    lists = [steps, levels, channels, controls]
    require(all(type(found) is list for found in lists), "no lists of names")
    history = History(
        observations,
        last,
        steps,
        levels,
        channels,
        controls,
        unobserved,
        data["of_array"],
    )
    _check_observations(observations, len(history.channels), len(controls))
    n_series, n_keys = len(observations.keys), len(history.levels) - 1
    require(len(last) == len(history.steps) == n_series, "series without an end")
    require({len(key) for key in observations.keys} == {n_keys}, "keys without levels")
    require(len(set(observations.keys)) == n_series, "a series' key twice")
    ends = observations.ticks[observations.bounds[1:] - 1]
    require(bool((ticks_of(last) >= ends).all()), "series that end before their rows")
    kinds = (int, pd.Timedelta, pd.tseries.offsets.BaseOffset)
    require(all(isinstance(step, kinds) for step in steps), "steps of no length")
    require(type(history.of_array) is bool, "of_array")
    return history


def _check_observations(found: Observations, n_channels: int, n_controls: int) -> None:
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
    require(not np.isnan(found.values).all(axis=1).any(), "rows without a value")
    finite = found.controls is None or np.isfinite(found.controls).all()
    require(bool(finite), "values of X that are not finite")
