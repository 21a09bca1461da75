"""Lines of code that make of what was passed what can be used; messages show them.

Each is written for a caller whose data are called as in the message, and its test runs
it.
"""

from __future__ import annotations

import warnings
from datetime import date
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from sklode.data.errors import TimesInValuesWarning

__all__ = ["of_column", "of_container", "of_index", "warn_of_times_in_values"]

_EPOCH = {"s": (1e8, 1e10), "ms": (1e11, 1e13), "us": (1e14, 1e16), "ns": (1e17, 1e19)}
"""Numbers that count from 1970 in a unit, between 1973 and 2286."""

_FEWEST_ROWS = 8
"""Fewer values may well increase by chance, each with a probability of one half."""


def of_index(index: pd.Index, name: str) -> str:
    """Return how to make times of the last level of an index that holds none.

    Parameters
    ----------
    index : Index
        Of floats, words or other objects.
    name : str
        Of what has the index; "y" or "X", or what a message calls the index.
    """
    times = index.get_level_values(-1)
    owner = f"{name}.index" if name in ("y", "X") else "index"
    if pd.api.types.is_float_dtype(times.dtype):
        numbers = np.asarray(times, float)
        if _unit_since_1970(numbers) is None and (numbers % 1 == 0).all():
            return f"Convert it: {_converted(index, owner, '{}.astype(int)')}."
        what = "It may count from 1970" if _unit_since_1970(numbers) else "Say its unit"
        return f"{what}: {_converted(index, owner, _of_numbers(numbers))}."
    if _are_dates(times):
        return f"Convert it: {_converted(index, owner, 'pd.to_datetime({})')}."
    remedy = "Take times for the index"
    if index.nlevels == 1 and name in ("y", "X"):
        return (
            f"{remedy}; if they stand in a column: {name} = {name}.set_index(column)."
        )
    return f"{remedy}, as by pd.to_datetime(index)."


def of_column(values: pd.Series, name: str) -> str | None:
    """Return how to make an index of a column of times; None if it holds none."""
    column = values.name
    if pd.api.types.is_datetime64_any_dtype(values.dtype):
        return f"{name} = {name}.set_index({column!r})"
    if _are_dates(pd.Index(values)):
        stamps = f"pd.to_datetime({name}[{column!r}])"
        return f"{name} = {name}.drop(columns={column!r}).set_index({stamps})"
    return None


def of_container(data: Any, name: str) -> str:
    """Return how to make a series of a list, a tuple or alike."""
    if type(data).__module__ == "torch":
        return f"Pass {name}.numpy()."
    if isinstance(data, list | tuple) and all(isinstance(v, Real) for v in data):
        return (
            f"Pass pd.Series({name}), whose time stamps are 0, 1, 2..., or "
            f"pd.Series({name}, index=stamps)."
        )
    return "Pass a Series or DataFrame over its time stamps, or a numpy array."


def warn_of_times_in_values(y: Any) -> None:
    """Warn if the first column of an array, or of a frame without times, looks so.

    Rows without times are taken for equally spaced, and a column for a channel, so that
    a forecast would be made of times, at wrong times, in silence.

    Warns
    -----
    TimesInValuesWarning
        If its values increase strictly, and by unequal steps.
    """
    if isinstance(y, np.ndarray) and y.ndim == 2:
        first, others = y[:, 0], "pd.DataFrame(y[:, 1:])"
        column = "y[:, 0]"
    elif isinstance(y, pd.DataFrame) and _has_no_times(y):
        name = y.columns[0]
        first, others = y.iloc[:, 0].to_numpy(), f"y.drop(columns={name!r})"
        column = f"y[{name!r}]"
    else:
        return
    if y.shape[1] < 2 or not _look_like_times(first):
        return
    times = _of_numbers(np.asarray(first, float)).format(column)
    warnings.warn(
        f"the first column of y, {column}, increases strictly and by unequal steps, as "
        "times do; it is taken for a channel, and the rows for equally spaced. If it "
        f"holds the times, pass y = {others}.set_index({times}), with their unit. If "
        "not, silence this: warnings.simplefilter('ignore', TimesInValuesWarning), of "
        "sklode.data.errors.",
        TimesInValuesWarning,
        stacklevel=5,  # where fit is called
    )


def _has_no_times(y: pd.DataFrame) -> bool:
    """Return whether a frame has the index that it gets where none is given."""
    return isinstance(y.index, pd.RangeIndex) and y.index.equals(pd.RangeIndex(len(y)))


def _look_like_times(values: np.ndarray) -> bool:
    if values.dtype.kind not in "iuf" or len(values) < _FEWEST_ROWS:
        return False
    gaps = np.diff(values.astype(float))
    return bool(gaps.min() > 0 and gaps.max() > 1.001 * gaps.min())


def _converted(index: pd.Index, owner: str, conversion: str) -> str:
    """Return the line that converts the last level of an index."""
    if index.nlevels == 1:
        return f"{owner} = {conversion.format(owner)}"
    level = conversion.format(f"{owner}.levels[-1]")
    return f"{owner} = {owner}.set_levels({level}, level=-1)"


def _of_numbers(numbers: np.ndarray) -> str:
    """Return what makes times of numbers; seconds, unless they say otherwise."""
    unit = _unit_since_1970(numbers)
    if unit is not None:
        return f"pd.to_datetime({{}}, unit={unit!r})"
    return "pd.to_timedelta({}, unit='s')"


def _unit_since_1970(numbers: np.ndarray) -> str | None:
    for unit, (low, high) in _EPOCH.items():
        if low < numbers.min() and numbers.max() < high:
            return unit
    return None


def _are_dates(values: pd.Index) -> bool:
    """Return whether pandas makes datetimes of strings, or of other objects."""
    is_text = pd.api.types.is_string_dtype(values.dtype) or values.dtype == object
    if not (is_text and all(isinstance(v, str | date) for v in values)):
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of formats that have to be guessed
            stamps = pd.to_datetime(values)
    except (ValueError, TypeError):
        return False
    return isinstance(stamps, pd.DatetimeIndex) and not bool(stamps.hasnans)
