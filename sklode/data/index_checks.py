"""Refuse time stamps that cannot be used, at the first offender and with a remedy."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pandas as pd

from sklode.data import remedies
from sklode.data.ticks import clock_of, series_of, ticks_of

__all__ = [
    "check_increasing",
    "check_index",
    "check_keys",
    "check_same_kind",
    "check_times",
]

_TIMES = (pd.DatetimeIndex, pd.TimedeltaIndex, pd.PeriodIndex)


def check_times(index: pd.Index, name: str) -> None:
    """Check that every row of an index has a time.

    Raises
    ------
    ValueError
        Naming the first row without.
    """
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


def check_keys(index: pd.Index, name: str) -> None:
    """Check that every row of a panel names its series.

    Raises
    ------
    ValueError
        Naming the first row that does not.
    """
    for level in range(index.nlevels - 1):
        nameless = np.asarray(index.get_level_values(level).isna())
        if nameless.any():
            raise ValueError(
                f"the series of {name} must have keys; got none at row "
                f"{int(np.argmax(nameless))}. Drop that row or name its series."
            )


def check_index(index: pd.Index, name: str = "y") -> None:
    """Check that stamps are finite and strictly increasing within each series.

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
    _check_kind(index, name)
    check_increasing(index, name)


def check_increasing(index: pd.Index, name: str) -> None:
    """Check that stamps, or numbers with a fraction, increase within each series.

    Raises
    ------
    ValueError
        Naming the first offending row.
    """
    check_keys(index, name)
    times = index.get_level_values(-1)
    is_fraction = pd.api.types.is_float_dtype(times.dtype)
    ticks = times.to_numpy(dtype=float) if is_fraction else ticks_of(times)
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


def _check_kind(index: pd.Index, name: str) -> None:
    """Check that times are integers, periods, datetimes or timedeltas."""
    times = index.get_level_values(-1)
    if not len(times) or isinstance(times, _TIMES):
        return
    if pd.api.types.is_integer_dtype(times.dtype):
        if times.max() > np.iinfo(np.int64).max:
            raise ValueError(
                f"integers of the time index of {name} must lie below 2**63; got "
                f"{times.max()}. Subtract the first one from all."
            )
        return
    _check_one_zone(times, name)
    raise TypeError(
        f"the time index of {name} must hold integers, periods, datetimes or "
        f"timedeltas; got {times.dtype}, such as {times[0]}. {_as_times(index, name)}"
    )


def _check_one_zone(times: pd.Index, name: str) -> None:
    """Check that datetimes in an index of objects share one zone, as pandas asks."""
    if times.dtype != object or not all(isinstance(t, datetime) for t in times):
        return
    zones = [str(time.tzinfo) for time in times]
    others = np.flatnonzero([zone != zones[0] for zone in zones])
    if not len(others):
        return
    row = int(others[0])
    remedy = "Convert all: pd.to_datetime(index, utc=True)."
    if "None" in zones:
        remedy = "Give those without a zone theirs, by tz_localize; then " + (
            remedy[0].lower() + remedy[1:]
        )
    raise TypeError(
        f"the times of {name} must share one time zone, or have none; got {times[row]} "
        f"(zone {zones[row]}) at row {row} after {times[0]} (zone {zones[0]}). {remedy}"
    )


def _as_times(index: pd.Index, name: str) -> str:
    """Return how to make times of the last level of an index that holds none."""
    others = [index.get_level_values(k) for k in range(index.nlevels - 1)]
    for level, values in enumerate(others):
        if isinstance(values, _TIMES):
            return f"Time comes last; level {level} holds it: reorder_levels."
    return remedies.of_index(index, name)


def check_same_kind(
    times: pd.Index, known: pd.Index, name: str = "the horizon"
) -> None:
    """Check that stamps are of the kind of those seen in fit, time zone included.

    Two zones are no two kinds: a stamp is the same instant in both.

    Raises
    ------
    TypeError
        If the two kinds differ.
    """
    got, wanted = _kind(times), _kind(known)
    if got != wanted:
        raise TypeError(
            f"{name} must be of the kind of y's index, {wanted}; got {got}. "
            f"{_conversion(times, known)}"
        )


def _kind(index: pd.Index) -> str:
    if isinstance(index, pd.DatetimeIndex):
        return f"datetimes {'without' if index.tz is None else 'with'} a time zone"
    if isinstance(index, pd.TimedeltaIndex):
        return "timedeltas"
    periods = isinstance(index, pd.PeriodIndex)
    if periods or pd.api.types.is_integer_dtype(index.dtype):
        return clock_of(index)
    return f"of type {index.dtype}"


def _conversion(times: pd.Index, known: pd.Index) -> str:
    """Return how to convert times to the kind of those known."""
    if isinstance(known, pd.PeriodIndex):
        if isinstance(times, pd.PeriodIndex):
            return f"Convert it first: index.asfreq({known.freqstr!r})."
        return f"Convert it first: index.to_period({known.freqstr!r})."
    if isinstance(known, pd.DatetimeIndex):
        if isinstance(times, pd.PeriodIndex):
            return "Convert it first: index.to_timestamp()."
        if not isinstance(times, pd.DatetimeIndex):
            return "Convert it first, for example by pd.to_datetime(index)."
        if known.tz is not None:
            return f"Say which zone it is in: index.tz_localize({str(known.tz)!r})."
        return (
            "Convert it to the zone that y is in, and drop it: "
            "index.tz_convert(zone).tz_localize(None)."
        )
    return "Convert it first."
