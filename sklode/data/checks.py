"""Refuse what cannot be used, at the first offender and with a remedy.

A check raises TypeError where something is of another kind than it must be, ValueError
where it is of the right kind and wrong. Its message says the rule, what was received,
and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from datetime import datetime
from numbers import Integral, Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from sklode.data.ticks import clock_of, series_of, ticks_of

# --- tables of numbers ----------------------------------------------------------------


def check_table(data: Any, name: str = "y") -> None:
    """Check that y or X is a container of real numbers, its columns of different names.

    Containers that only sktime knows are left to it.
    """
    if isinstance(data, pd.Series | pd.DataFrame):
        _check_columns(pd.DataFrame(data), name)
    elif isinstance(data, np.ndarray):
        if data.dtype.kind not in "biuf":
            raise TypeError(
                f"{name} must be numeric; got an array of dtype {data.dtype}. "
                "Convert it, for example by array.astype(float)."
            )
        if not 1 <= data.ndim <= 3:
            raise TypeError(
                f"{name} as an array must have the shape (time,), (time, channel) or "
                f"(series, channel, time); got {data.shape}. Reshape it."
            )
    elif isinstance(data, list) and data:
        for place, part in enumerate(data):
            if not isinstance(part, pd.DataFrame):
                raise TypeError(
                    f"{name} of type list must hold a DataFrame for each series of a "
                    f"panel; got {type(part).__name__} at place {place}. Pass a list "
                    f"of numbers as pd.Series({name}, index=stamps)."
                )
            check_table(part, f"{name}[{place}]")
    elif type(data).__module__ in ("builtins", "torch"):
        raise TypeError(
            f"{name} must be of type Series, DataFrame or array; got "
            f"{type(data).__name__}. Pass numbers as pd.Series({name}, index=stamps), "
            f"a tensor as {name}.numpy()."
        )


def check_rows(y: Any) -> None:
    """Check that y has rows and columns, and that a panel is a DataFrame."""
    if isinstance(y, pd.Series) and y.index.nlevels > 1:
        raise TypeError(
            "a panel must be a DataFrame; got a Series with the index levels "
            f"{list(y.index.names)}. Pass y.to_frame()."
        )
    if isinstance(y, pd.DataFrame) and not y.shape[1]:
        raise ValueError(
            "y must have at least one column; got an index alone. Pass the values too."
        )
    if hasattr(y, "__len__") and not len(y):
        raise ValueError("y must hold at least one row; got none. Pass a series.")


def _check_columns(data: pd.DataFrame, name: str) -> None:
    """Check that columns can be told apart, and hold real numbers or booleans."""
    twice = data.columns.duplicated()
    if twice.any():
        raise ValueError(
            f"columns of {name} must have different names; got "
            f"{data.columns[int(np.argmax(twice))]!r} more than once. Rename or drop "
            "one of them."
        )
    for place, dtype in enumerate(data.dtypes):
        is_complex = pd.api.types.is_complex_dtype(dtype)
        if pd.api.types.is_numeric_dtype(dtype) and not is_complex:
            continue
        column = data.iloc[:, place]
        if len(column) and isinstance(column.iloc[0], pd.Series | np.ndarray):
            continue  # a series in each cell, which sktime knows
        such = f", such as {column.iloc[0]!r}" if len(column) else ""
        raise TypeError(
            f"{name} must be numeric, not categorical; got column {column.name!r} of "
            f"dtype {dtype}{such}. Convert it, for example by {name}.astype(float), "
            f"categories by pd.get_dummies({name}, dtype=float), complex to two "
            f"columns; times are an index: {name}.set_index({column.name!r})."
        )


def check_values(y: pd.DataFrame) -> None:
    """Check that no value is infinite."""
    infinite = np.isinf(y.to_numpy(dtype=np.float64, na_value=np.nan))
    if infinite.any():
        row, column = np.argwhere(infinite)[0]
        raise ValueError(
            "values of y must be finite or NaN (missing); got "
            f"{y.iloc[row, column]} in column {y.columns[column]!r} at row {row} "
            f"({y.index[row]}). Replace it by NaN to treat it as missing."
        )


# --- exogenous X ----------------------------------------------------------------------


def check_controls(X: pd.DataFrame | pd.Series, index: pd.Index) -> None:
    """Check that X is numeric and has the rows of ``index``."""
    check_table(X, "X")
    if X.index.nlevels != index.nlevels:
        raise ValueError(
            f"X must have the index levels of y, {list(index.names)}; got "
            f"{list(X.index.names)}. Give every series its own rows, for example "
            "pd.concat({key: X for key in keys})."
        )
    check_same_kind(X.index.get_level_values(-1), index.get_level_values(-1), "X")
    absent = ~index.isin(X.index)
    if absent.any():
        raise ValueError(
            "X must have a row at every stamp of y and of the horizon; got none at "
            f"{index[int(np.argmax(absent))]}. Extend X to cover it, or ask for the "
            "stamps that X has."
        )


def controls_at(X: pd.DataFrame, index: pd.Index) -> NDArray[np.float64]:
    """Return the rows of X at ``index``, of which none may be missing or infinite."""
    check_controls(X, index)
    values = X.loc[index].to_numpy(dtype=np.float64, na_value=np.nan)
    unusable = ~np.isfinite(values)
    if unusable.any():
        row, column = np.argwhere(unusable)[0]
        raise ValueError(
            f"values of X must be finite, none missing; got {values[row, column]} in "
            f"column {X.columns[column]!r} at {index[row]}. Fill it first."
        )
    return values


# --- time stamps ----------------------------------------------------------------------


def check_index(index: pd.Index, name: str = "y") -> None:
    """Check that stamps are times, finite and increasing within each series."""
    check_times(index, name)
    times = index.get_level_values(-1)
    is_time = isinstance(times, pd.DatetimeIndex | pd.TimedeltaIndex | pd.PeriodIndex)
    if len(times) and not is_time:
        if not pd.api.types.is_integer_dtype(times.dtype):
            _refuse_kind(index, name)
        if times.max() > np.iinfo(np.int64).max:
            raise ValueError(
                f"integers of the time index of {name} must lie below 2**63; got "
                f"{times.max()}. Subtract the first one from all."
            )
    ticks = ticks_of(times)
    series, _ = series_of(index)
    order = np.argsort(series, kind="stable")
    same = series[order][1:] == series[order][:-1]
    ordered = ticks[order]
    offenders = np.flatnonzero(same & (ordered[1:] <= ordered[:-1]))
    if not len(offenders):
        return
    before, row = order[offenders[0]], order[offenders[0] + 1]
    if ticks[row] == ticks[before]:
        remedy = f"Keep one row per stamp: {name}[~{name}.index.duplicated()]."
    else:
        remedy = f"Sort {name} by its index first: {name}.sort_index()."
    raise ValueError(
        f"times of {name} must be strictly increasing; got {times[row]} after "
        f"{times[before]} at row {row}. {remedy}"
    )


def check_times(index: pd.Index, name: str) -> None:
    """Check that every row has a time, and in a panel the key of its series."""
    for level in range(index.nlevels - 1):
        nameless = np.asarray(index.get_level_values(level).isna())
        if nameless.any():
            raise ValueError(
                f"the series of {name} must have keys; got none at row "
                f"{int(np.argmax(nameless))}. Drop that row or name its series."
            )
    times = index.get_level_values(-1)
    missing = np.asarray(times.isna())
    if pd.api.types.is_float_dtype(times.dtype):
        missing = ~np.isfinite(np.asarray(times, dtype=float))
    if missing.any():
        row = int(np.argmax(missing))
        raise ValueError(
            f"the time index of {name} must hold finite times; got {times[row]} at row "
            f"{row}. Drop that row or give it a time."
        )


def _refuse_kind(index: pd.Index, name: str) -> None:
    """Raise TypeError for times that are none."""
    times = index.get_level_values(-1)
    if times.dtype == object and all(isinstance(time, datetime) for time in times):
        zones = [str(time.tzinfo) for time in times]
        row = int(np.argmax([zone != zones[0] for zone in zones]))
        if row:
            raise TypeError(
                f"the times of {name} must share one time zone, or have none; got "
                f"{times[row]} (zone {zones[row]}) at row {row} after {times[0]} (zone "
                f"{zones[0]}). Give those without a zone theirs, by tz_localize; then "
                "convert all: pd.to_datetime(index, utc=True)."
            )
    raise TypeError(
        f"the time index of {name} must hold integers, periods, datetimes or "
        f"timedeltas; got {times.dtype}, such as {times[0]}. Convert it: dates by "
        "pd.to_datetime(index), numbers by pd.to_timedelta(index, unit='s') or "
        "index.astype(int). A column becomes the index by set_index(column); time is "
        "the last level of a panel's, see reorder_levels."
    )


def check_same_kind(
    times: pd.Index, known: pd.Index, name: str = "the horizon"
) -> None:
    """Check that stamps are of the kind of those seen in fit, time zone included.

    Two zones are no two kinds: a stamp is the same instant in both.
    """
    got, wanted = _kind(times), _kind(known)
    if got == wanted:
        return
    raise TypeError(
        f"{name} must be of the kind of y's index, {wanted}; got {got}. Convert it "
        "first, for example by pd.to_datetime, tz_localize, tz_convert, to_period or "
        "to_timestamp."
    )


def _kind(index: pd.Index) -> str:
    if isinstance(index, pd.DatetimeIndex):
        return f"datetimes {'without' if index.tz is None else 'with'} a time zone"
    return "timedeltas" if isinstance(index, pd.TimedeltaIndex) else clock_of(index)


# --- arguments ------------------------------------------------------------------------


def check_probabilities(name: str, given: Any) -> None:
    """Check probabilities of quantiles or intervals: numbers between 0 and 1."""
    several = isinstance(given, list | tuple | set | np.ndarray | pd.Series | pd.Index)
    values = list(given) if several else [given]
    remedy = f"Use for example {name}=0.9 or {name}=[0.5, 0.9]."
    if not values:
        raise ValueError(f"{name} must hold at least one number; got none. {remedy}")
    for value in values:
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        if not (is_number and 0 < float(value) < 1):
            raise ValueError(
                f"{name} must be a number between 0 and 1, both left out, or a list of "
                f"them; got {value!r}. {remedy}"
            )
        if values.count(value) > 1:
            raise ValueError(
                f"{name} must not hold a number twice; got {value!r} "
                f"{values.count(value)} times. Leave the others out."
            )


def check_count(name: str, value: object, least: int) -> None:
    """Check that an argument is a whole number, and not too small."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(
            f"{name} must be a whole number of at least {least}; got {value!r}."
        )


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Check that an argument is one of its choices."""
    choices = list(choices)
    if not (isinstance(value, str) and value in choices):
        allowed = ", ".join(f'"{choice}"' for choice in choices)
        raise ValueError(
            f"{name} must be one of {allowed}; got {value!r}."
            + did_you_mean(value, choices)
        )


def did_you_mean(value: object, choices: Iterable[str]) -> str:
    """Return the question whether a choice near to ``value`` was meant; "" if none is.

    Capitals do not count.
    """
    if not isinstance(value, str):
        return ""
    lower = {choice.lower(): choice for choice in sorted(choices)}
    near = difflib.get_close_matches(value.lower(), lower, n=1)
    return f' Did you mean "{lower[near[0]]}"?' if near else ""


# --- fitted networks ------------------------------------------------------------------


def check_fitted(
    forecaster: Any,
    asked: str,
    has: str = "clip_norm",
    kind: str = "that trains a network",
) -> None:
    """Check that something is a fitted forecaster of a kind, which has an attribute."""
    if not (hasattr(forecaster, has) and hasattr(forecaster, "is_fitted")):
        raise TypeError(
            f"{asked} is of a forecaster {kind}; got a {type(forecaster).__name__}. "
            "Pass the fitted forecaster of a pipeline or search itself."
        )
    if not forecaster.is_fitted:
        raise NotFittedError(
            f"{asked} needs a fitted forecaster; got a {type(forecaster).__name__} "
            "that is not. Call fit(y) first."
        )
