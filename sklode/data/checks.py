"""Refuse what cannot be used: the rule, the first offender, and a remedy.

A TypeError where it is of another kind than it must be,
else a ValueError.
"""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Iterable
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, validate_parameter_constraints

from sklode.data.arrays import Array, Frame
from sklode.data.categories import is_category
from sklode.data.ticks import (
    clock_of,
    nanoseconds,
    series_of,
    ticks_of,
)

if TYPE_CHECKING:
    from sktime.forecasting.base import BaseForecaster

_TIMES = pd.DatetimeIndex | pd.PeriodIndex | pd.TimedeltaIndex


def check_table(data: object, name: str = "y") -> None:
    """Check a container of real numbers; others are left to sktime."""
    if isinstance(data, pd.Series | pd.DataFrame):
        _check_columns(pd.DataFrame(data), name)
    elif isinstance(data, np.ndarray):
        if data.dtype.kind not in "biuf" or not 1 <= data.ndim <= 3:
            raise TypeError(
                f"{name} as an array must hold numbers in the shape (time,), "
                "(time, channel) or (series, channel, time); "
                f"got {data.dtype} in the shape {data.shape}. "
                "Convert it, for example by array.astype(float)."
            )
    elif isinstance(data, list) and data and isinstance(data[0], pd.DataFrame):
        for place, part in enumerate(data):
            _check_columns(part, f"{name}[{place}]")
    elif type(data).__module__ in ("builtins", "torch"):
        raise TypeError(
            f"{name} must be of type Series, DataFrame, "
            "array or list of a DataFrame for each series; "
            f"got {type(data).__name__}. "
            f"Pass numbers as pd.Series({name}, index=stamps), "
            f"a tensor as {name}.numpy()."
        )


def check_rows(y: Any, X: object = None) -> None:
    """Check that y has rows and columns, is a DataFrame if a panel, and not X."""
    several = getattr(y, "ndim", 1) == 2 and y.shape[1] > 1
    if several and getattr(X, "ndim", 2) == 1:
        raise TypeError(
            "y comes first, then X; "
            f"got {y.shape[1]} columns, then one, "
            "as in scikit-learn's fit(X, y). "
            "Swap them; or, if it is X, pass a DataFrame."
        )
    if isinstance(X, np.ndarray) and isinstance(y, pd.Series | pd.DataFrame):
        raise TypeError(
            "X must have the stamps of y; got an array. Pass pd.DataFrame(X, y.index)."
        )
    if isinstance(y, pd.Series) and y.index.nlevels > 1:
        raise TypeError(
            "a panel must be a DataFrame; "
            f"got a Series with the index levels {list(y.index.names)}. "
            "Pass y.to_frame()."
        )
    if isinstance(y, pd.DataFrame) and not y.shape[1]:
        raise ValueError(
            "y must have at least one column; got an index alone. Pass the values too."
        )
    if hasattr(y, "__len__") and not len(y):
        raise ValueError("y must hold at least one row; got none. Pass a series.")


def _check_columns(data: pd.DataFrame, name: str) -> None:
    names = {*data.columns}
    # Prophet's names of columns, and Nixtla's
    if {"ds", "y"} <= names or "unique_id" in names:
        keys = ["unique_id", "ds"] if "unique_id" in names else ["ds"]
        before = "" if "ds" in names else "df = df.reset_index(names='ds'); "
        raise TypeError(
            f"series and times of {name} are its index; "
            f"got columns, {list(data.columns)}. "
            f"These two lines make it: {before}"
            "df['ds'] = pd.to_datetime(df['ds']); "
            f"y = df.set_index({keys})[['y']]"
        )
    twice = data.columns[data.columns.duplicated()]
    if len(twice):
        raise ValueError(
            f"columns of {name} must have different names; "
            f"got {twice[0]!r} more than once. "
            "Rename or drop one of them."
        )
    for column, dtype in data.dtypes.items():
        is_complex = pd.api.types.is_complex_dtype(dtype)
        if pd.api.types.is_numeric_dtype(dtype) and not is_complex:
            continue
        if name.startswith("X") and is_category(data[column]):
            continue
        # the first that is no number,
        # or the first of all where the dtype is at fault
        odd = (x for x in data[column] if not isinstance(x, Real | None))
        first = next(odd, next(iter(data[column]), None))
        # a series in each cell, which sktime knows
        if isinstance(first, pd.Series | np.ndarray):
            continue
        raise TypeError(
            f"{name} must be numeric, "
            f"{'not' if name == 'y' else 'or'} categorical; "
            f"got column {column!r} of dtype {dtype}, such as {first!r}. "
            f"Convert it, for example by {name}.astype(float), "
            "complex to two columns; times are an index: "
            f"{name}.set_index({column!r}). Categories are for X."
        )


def finite_values(data: pd.DataFrame, name: str = "y") -> NDArray[np.float64]:
    """Return the values of y or X, finite or NaN."""
    values = data.to_numpy(dtype=np.float64, na_value=np.nan)
    for row, column in np.argwhere(np.isinf(values)):
        raise ValueError(
            f"values of {name} must be finite, or NaN (missing); "
            f"got {values[row, column]} "
            f"in column {data.columns[column]!r} at {data.index[row]}. "
            "Replace it by NaN to treat it as missing."
        )
    return values


def check_controls(X: Frame, index: pd.Index) -> None:
    """Check that X can be read, and has the rows of ``index``."""
    check_kinds(X, index)
    is_missing = ~index.isin(X.index)
    for row in np.flatnonzero(is_missing):
        raise ValueError(
            "X must have a row at every stamp of y; "
            f"got none at {index[row]}. "
            "Extend X to cover it: NaN where it is not known."
        )


def check_kinds(X: Frame, index: pd.Index) -> None:
    """Check that X can be read, and is indexed as y is."""
    check_table(X, name="X")
    if X.index.nlevels != index.nlevels:
        raise ValueError(
            f"X must have the index levels of y, {list(index.names)}; got "
            f"{list(X.index.names)}. Give every series its own rows, for example "
            "pd.concat({key: X for key in keys})."
        )
    times, known = X.index.get_level_values(-1), index.get_level_values(-1)
    check_same_kind(times, known, name="X")


def check_index(
    index: pd.Index,
    name: str = "y",
    may_repeat: bool = False,
) -> None:
    """Check that stamps are times, finite and increasing within each series.

    A stamp ``may_repeat`` where errors of measurement are known.
    """
    check_times(index, name)
    times = index.get_level_values(-1)
    if len(times):
        _check_last(index, name)
        _check_kind(times, name)
    ticks = ticks_of(times)
    series, _ = series_of(index)
    # a stable order keeps each series' rows as they come,
    # also of a mixed panel
    order = np.argsort(series, kind="stable")
    same, ordered = np.diff(series[order]) == 0, ticks[order]
    # compared, not subtracted: three centuries of nanoseconds overflow
    wrong = ordered[1:] < ordered[:-1]
    if not may_repeat:
        wrong |= ordered[1:] == ordered[:-1]
    for place in np.flatnonzero(same & wrong):
        before, row = order[place], order[place + 1]
        remedy = f"Sort {name} by its index first: {name}.sort_index()."
        if ticks[row] == ticks[before]:
            remedy = (
                f"Keep one row per stamp: {name}[~{name}.index.duplicated()]; "
                "or name the column of X "
                "with the errors of measurement by error=..."
            )
        owner = f" of series {index[row][:-1]}" if index.nlevels > 1 else ""
        raise ValueError(
            f"times of {name} must be strictly increasing; "
            f"got {times[row]} after {times[before]} at row {row}{owner}. "
            f"{remedy}"
        )


def check_times(index: pd.Index, name: str) -> None:
    """Check that every row has a time, and in a panel the key of its series."""
    for level in range(index.nlevels - 1):
        for row in np.flatnonzero(index.get_level_values(level).isna()):
            raise ValueError(
                f"the series of {name} must have keys; "
                f"got none at row {row}. "
                "Drop that row or name its series."
            )
    times = index.get_level_values(-1)
    missing = np.asarray(times.isna())
    if pd.api.types.is_float_dtype(times.dtype):
        missing = ~np.isfinite(np.asarray(times, dtype=float))
    for row in np.flatnonzero(missing):
        raise ValueError(
            f"the time index of {name} must hold finite times; "
            f"got {times[row]} at row {row}. "
            "Drop that row or give it a time."
        )


def _check_last(index: pd.Index, name: str) -> None:
    """Check that no level before integers holds the times: those would be keys."""
    # an index of one level is its own last one
    *earlier, last = getattr(index, "levels", [index])
    of_time = [k for k, level in enumerate(earlier) if isinstance(level, _TIMES)]
    if not of_time or not pd.api.types.is_integer_dtype(last.dtype):
        return
    level = of_time[-1]
    others = [k for k in range(index.nlevels) if k != level]
    order = [*others, level]
    raise ValueError(
        f"time must be the last index level of {name}; "
        f"got {index[0]}: {type(earlier[level]).__name__} "
        f"in level {level}, integers in the last. "
        f"Put it there: {name} = {name}.reorder_levels({order}).sort_index(); "
        "if its stamps are keys, convert them to strings."
    )


def _check_kind(times: pd.Index, name: str) -> None:
    """Check that stamps are of a kind that tells time."""
    if isinstance(times, _TIMES):
        return
    if pd.api.types.is_integer_dtype(times.dtype):
        # unsigned ones may be
        if times.max() > np.iinfo(np.int64).max:
            raise ValueError(
                f"integers of the time index of {name} must lie below 2**63; "
                f"got {times.max()}. "
                "Subtract the first one from all."
            )
        return
    # the first stamp, and the first of another kind or zone if there
    # is one: of no differences argmax is zero, the first stamp again
    kinds = [f"{type(time)}{getattr(time, 'tzinfo', None)}" for time in times]
    differs = [kind != kinds[0] for kind in kinds]
    other = times[int(np.argmax(differs))]
    shown = " and ".join(dict.fromkeys([str(times[0]), str(other)]))
    raise TypeError(
        f"the time index of {name} must hold integers, periods, "
        "timedeltas, or datetimes of one time zone or none; "
        f"got {times.dtype}, such as {shown}. "
        "Convert it: dates by pd.to_datetime(index), of several zones with "
        "utc=True; numbers by pd.to_timedelta(index, unit='s'), which keeps "
        "fractions apart. A column becomes the index by set_index(column); "
        "time is the last level of a panel's, see reorder_levels."
    )


def check_same_kind(
    times: pd.Index,
    known: pd.Index,
    name: str = "fh",
) -> None:
    """Check that stamps are of the kind seen in fit; any zone is as good."""
    got, wanted = _kind(times), _kind(known)
    if got != wanted:
        raise TypeError(
            f"{name} must be of the kind of y's index, {wanted}; "
            f"got {got}. "
            "Convert it first, for example by pd.to_datetime, "
            "tz_localize, tz_convert, to_period or to_timestamp."
        )


def _kind(index: pd.Index) -> str:
    if isinstance(index, pd.DatetimeIndex):
        has_zone = "without" if index.tz is None else "with"
        return f"datetimes {has_zone} a time zone"
    if isinstance(index, pd.TimedeltaIndex):
        return "timedeltas"
    return clock_of(index)


SIZE = Interval(Integral, 1, None, closed="left")  # at least one
_SHARED: dict[str, list[object]] = {
    "n_samples": [SIZE],
    "freq": [str, pd.DateOffset, pd.Timedelta, None],
    "clean": ["boolean"],
    "bounds": [tuple, list, dict, None],
    "error": [Hashable, dict, None],
    "holidays": [str, list, tuple, dict, pd.Series, pd.DataFrame, None],
    "random_state": ["random_state"],
}


def check_constraints(
    constraints: dict[str, list[object]], forecaster: BaseForecaster
) -> None:
    """Check parameters of a constructor: shared ones, and others."""
    validate_parameter_constraints(
        {**_SHARED, **constraints},
        params=forecaster.get_params(deep=False),
        caller_name=type(forecaster).__name__,
    )
    # of what is no length nanoseconds are NaN, which is not above zero
    if forecaster.freq is not None and not nanoseconds(forecaster.freq) > 0:
        raise ValueError(
            "freq must be a frequency that pandas knows "
            "and that goes forward, such as '1h' or 'MS'; "
            f"got {forecaster.freq!r}."
        )


def check_names(owner: str, given: Iterable[str], known: list[str]) -> None:
    """Check that there are parameters of these names."""
    for name in given:
        if name not in known:
            remedy = f"It has {known}."
            near = difflib.get_close_matches(name, known, n=1)
            if near:
                remedy = f"Did you mean {near[0]!r}?"
            raise TypeError(f"{owner} has no parameter {name!r}. {remedy}")


def check_probabilities(name: str, given: object) -> None:
    """Check probabilities of quantiles or intervals: numbers between 0 and 1."""
    several = list | tuple | set | np.ndarray | pd.Series | pd.Index
    values = list(given) if isinstance(given, several) else [given]
    wrong = [x for x in values if not (isinstance(x, Real) and 0 < float(x) < 1)]
    # sought among numbers only: of arrays == has no single truth
    wrong = wrong or [value for value in values if values.count(value) > 1]
    if wrong or not values:
        raise ValueError(
            f"{name} must be a number between 0 and 1, "
            "both left out, or a list of different ones; "
            f"got {repr(wrong[0]) if wrong else 'none'}. "
            f"Use for example {name}=0.9 or {name}=[0.5, 0.9]."
        )


def check_count(name: str, value: object) -> None:
    """Check that an argument is a whole number above zero."""
    # a bool is one of Python's integers
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1; got {value!r}.")


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Check that an argument is one of its choices."""
    choices = list(choices)
    # lists have no hash, arrays no single truth: only texts are compared
    if not (isinstance(value, str) and value in choices):
        raise ValueError(f"{name} must be one of {choices}; got {value!r}.")


def check_fitted(forecaster: object, method: str, has: str, kind: str) -> None:
    """Check that this is a fitted forecaster with an attribute of its kind."""
    if not (hasattr(forecaster, has) and hasattr(forecaster, "check_is_fitted")):
        raise TypeError(
            f"{method} is of a forecaster {kind}; "
            f"got a {type(forecaster).__name__}. "
            "Pass the fitted forecaster of a pipeline or search itself."
        )
    forecaster.check_is_fitted(method)


def finite(table: Array) -> Array:
    """Return an answer that floats can hold."""
    if not np.isfinite(table).all():
        raise ValueError(
            "an answer must be a finite number; "
            "got forecasts, or squares of them, that no float holds. "
            "Fit on y in larger units, or ask for less far ahead; "
            "for spreads, predict_interval takes no squares."
        )
    return table
