"""Refuse what cannot be used, at the first offender and with a remedy.

A check raises TypeError where something is of another kind than it must be, ValueError
where it is of the right kind and wrong. Its message says the rule, what was received,
and what to do.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable
from datetime import datetime
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sklode.data.errors import TimesInValuesWarning
from sklode.data.ticks import clock_of, series_of, ticks_of

__all__ = [
    "check_choice",
    "check_columns",
    "check_controls",
    "check_dtypes",
    "check_index",
    "check_probabilities",
    "check_rows",
    "check_same_kind",
    "check_table",
    "check_times",
    "check_values",
    "controls_at",
    "did_you_mean",
    "warn_of_times_in_values",
]

_TIMES = (pd.DatetimeIndex, pd.TimedeltaIndex, pd.PeriodIndex)

_FEWEST_ROWS = 8
"""Fewer values may well increase by chance, each with a probability of one half."""


# --- tables of numbers ----------------------------------------------------------------


def check_table(data: Any, name: str = "y") -> None:
    """Check that y or X is a container of real numbers, its columns of different names.

    Containers that only sktime knows are left to it.
    """
    if isinstance(data, pd.Series | pd.DataFrame):
        frame = pd.DataFrame(data)
        check_columns(frame, name)
        check_dtypes(frame, name)
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


def check_columns(data: pd.DataFrame, name: str) -> None:
    """Check that columns can be told apart."""
    twice = data.columns.duplicated()
    if twice.any():
        raise ValueError(
            f"columns of {name} must have different names; got "
            f"{data.columns[int(np.argmax(twice))]!r} more than once. Rename or drop "
            "one of them."
        )


def check_dtypes(data: pd.DataFrame, name: str) -> None:
    """Check that every column holds real numbers, or booleans."""
    for place, dtype in enumerate(data.dtypes):
        is_complex = pd.api.types.is_complex_dtype(dtype)
        if pd.api.types.is_numeric_dtype(dtype) and not is_complex:
            continue
        column = data.iloc[:, place]
        if len(column) and isinstance(column.iloc[0], pd.Series | np.ndarray):
            continue  # a series in each cell, which sktime knows
        remedy = f"Convert it, for example by {name}.astype(float)"
        if is_complex:
            remedy = "Pass its real and its imaginary part as two columns"
        elif name == "X":
            remedy += ", categories by pd.get_dummies(X, dtype=float)"
        elif pd.api.types.is_timedelta64_dtype(dtype):
            remedy = "Count in a unit, for example by column.dt.total_seconds()"
        else:
            remedy += f"; times are an index: {name}.set_index({column.name!r})"
        such = f", such as {column.iloc[0]!r}" if len(column) else ""
        raise TypeError(
            f"{name} must be numeric, not categorical; got column {column.name!r} of "
            f"dtype {dtype}{such}. {remedy}."
        )


def check_values(y: pd.DataFrame, name: str = "y") -> None:
    """Check that no value is infinite."""
    infinite = np.isinf(y.to_numpy(dtype=np.float64, na_value=np.nan))
    if infinite.any():
        row, column = np.argwhere(infinite)[0]
        rule, remedy = "must be finite", "Replace it by a number."
        if name == "y":
            rule += " or NaN (missing)"
            remedy = "Replace it by NaN to treat it as missing."
        raise ValueError(
            f"values of {name} {rule}; got {y.iloc[row, column]} in column "
            f"{y.columns[column]!r} at row {row} ({y.index[row]}). {remedy}"
        )


def warn_of_times_in_values(y: Any) -> None:
    """Warn if the first column of an array, or of a frame without times, looks so.

    Rows without times are taken for equally spaced, and a column for a channel, so that
    a forecast would be made of times, at wrong times, in silence.

    Warns
    -----
    TimesInValuesWarning
        If its values increase strictly, and by unequal steps.
    """
    is_frame = isinstance(y, pd.DataFrame)
    if is_frame:
        is_bare = isinstance(y.index, pd.RangeIndex)
        is_bare = is_bare and y.index.equals(pd.RangeIndex(len(y)))
    else:
        is_bare = isinstance(y, np.ndarray) and y.ndim == 2
    if not is_bare or y.shape[1] < 2 or len(y) < _FEWEST_ROWS:
        return
    first = np.asarray(y.iloc[:, 0] if is_frame else y[:, 0])
    gaps = np.diff(first.astype(float)) if first.dtype.kind in "iuf" else np.zeros(1)
    if not (gaps.min() > 0 and gaps.max() > 1.001 * gaps.min()):
        return
    table = "y" if is_frame else "pd.DataFrame(y)"
    warnings.warn(
        "the first column of y increases strictly and by unequal steps, as times do; "
        "it is taken for a channel, and the rows for equally spaced. If it holds the "
        f"times, make them the index, in their unit: y = {table}; y.index = "
        "pd.to_timedelta(y.pop(y.columns[0]), unit='s'). If not, silence this: "
        "warnings.simplefilter('ignore', sklode.TimesInValuesWarning).",
        TimesInValuesWarning,
        stacklevel=5,  # where fit is called
    )


# --- exogenous X ----------------------------------------------------------------------


def check_controls(X: pd.DataFrame | pd.Series, index: pd.Index) -> None:
    """Check that X is numeric and has the rows of ``index``."""
    check_dtypes(pd.DataFrame(X), "X")
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
    """Return the rows of X at ``index``, of which none may be missing."""
    check_controls(X, index)
    rows = X.loc[index]
    check_values(rows, "X")
    values: NDArray[np.float64] = rows.to_numpy(dtype=np.float64, na_value=np.nan)
    if np.isnan(values).any():
        row, column = np.argwhere(np.isnan(values))[0]
        raise ValueError(
            "X must not have missing values; got NaN in column "
            f"{X.columns[column]!r} at {index[row]}. Fill it first."
        )
    return values


# --- time stamps ----------------------------------------------------------------------


def check_index(index: pd.Index, name: str = "y") -> None:
    """Check that stamps are times, finite and increasing within each series.

    Parameters
    ----------
    index : Index
        The last level is time.
    name : str, default="y"
        What the message calls the data.

    Raises
    ------
    ValueError
        Naming the first offending row.
    TypeError
        If the times are numbers with a fraction, or no times at all.
    """
    check_times(index, name)
    times = index.get_level_values(-1)
    if len(times) and not isinstance(times, _TIMES):
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
    owner = f"{name}.index" if name in ("y", "X") else "index"
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
    levels = [index.get_level_values(k) for k in range(index.nlevels - 1)]
    if any(isinstance(level, _TIMES) for level in levels):
        remedy = f"Time comes last: {name} = {name}.reorder_levels(...)."
    elif pd.api.types.is_float_dtype(times.dtype):
        remedy = (
            f"Say their unit: {owner} = pd.to_timedelta({owner}, unit='s'); whole "
            f"numbers may stay such: {owner} = {owner}.astype(int)."
        )
    else:
        remedy = (
            f"Convert dates: {owner} = pd.to_datetime({owner}). If the times stand in "
            f"a column, make it the index: {name} = {name}.set_index(column)."
        )
    raise TypeError(
        f"the time index of {name} must hold integers, periods, datetimes or "
        f"timedeltas; got {times.dtype}, such as {times[0]}. {remedy}"
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
    conversion = "index"
    if isinstance(known, pd.PeriodIndex):
        is_period = isinstance(times, pd.PeriodIndex)
        conversion += f".{'asfreq' if is_period else 'to_period'}({known.freqstr!r})"
    elif isinstance(known, pd.DatetimeIndex) and isinstance(times, pd.DatetimeIndex):
        conversion += ".tz_convert(zone).tz_localize(None)"
        if known.tz is not None:
            conversion = f"index.tz_localize({str(known.tz)!r})"
    elif isinstance(known, pd.DatetimeIndex):
        is_period = isinstance(times, pd.PeriodIndex)
        conversion = "index.to_timestamp()" if is_period else "pd.to_datetime(index)"
    else:
        conversion = "to the kind of y's"
    raise TypeError(
        f"{name} must be of the kind of y's index, {wanted}; got {got}. Convert it "
        f"first: {conversion}."
    )


def _kind(index: pd.Index) -> str:
    if isinstance(index, pd.DatetimeIndex):
        return f"datetimes {'without' if index.tz is None else 'with'} a time zone"
    if isinstance(index, pd.TimedeltaIndex):
        return "timedeltas"
    is_period = isinstance(index, pd.PeriodIndex)
    if is_period or pd.api.types.is_integer_dtype(index.dtype):
        return clock_of(index)
    return f"of type {index.dtype}"


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
