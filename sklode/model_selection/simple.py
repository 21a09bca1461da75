"""Simple forecasts that others are compared with.

Tested in tests/test_model_selection.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from sklode.data.arrays import Array, Numbers
from sklode.data.observations import Observations
from sklode.data.ticks import (
    DAY,
    clock_ahead,
    length_of_time,
    nanoseconds,
    stamps_of,
    ticks_between,
)
from sklode.structural.seasons import clock_periods, peaks

_DAILY = 0.5  # days, the least gap of rows of which a day has one


def simple_forecasts(
    rows: Observations, index: pd.Index, seasons: dict[str, float], of_week: str
) -> tuple[dict[str, Array], Array]:
    """Return what simple methods forecast, and the unit of errors, (row, channel)."""
    n_series, n_channels = len(rows.keys), rows.values.shape[1]
    series, ticks = rows.locate(index)
    hours, asked = (
        _hours(x, rows.like) if of_week else np.zeros(0) for x in (rows.ticks, ticks)
    )
    rows, ticks = (
        replace(rows, ticks=_wall(rows.ticks, rows.like)),
        _wall(ticks, rows.like),
    )
    ahead = ticks_between(rows.ticks[rows.bounds[series]], ticks)
    order = np.argsort(series, kind="stable")
    ends = np.searchsorted(series[order], np.arange(n_series + 1))
    names = ["last value", *seasons, *([of_week] if of_week else [])]
    simple = {name: np.full((len(index), n_channels), np.nan) for name in names}
    scale = np.full((len(index), n_channels), np.nan)
    for k, j in np.ndindex(n_series, n_channels):
        mine, (times, values) = order[ends[k] : ends[k + 1]], _channel(rows, k, j)
        if not len(values):
            continue
        simple["last value"][mine, j] = values[-1]
        scale[mine, j] = values.std() or 1.0
        for name, period in seasons.items():
            shift = period * np.ceil((ahead[mine] - times[-1]) / period)
            simple[name][mine, j] = np.interp(ahead[mine] - shift, times, values)
        if of_week:
            own = slice(*rows.bounds[k : k + 2])
            known = ~np.isnan(rows.values[own, j])
            slots, slot = np.unique(hours[own][known], return_inverse=True)
            means = np.bincount(slot, values) / np.bincount(slot)
            simple[of_week][mine, j] = np.interp(asked[mine], slots, means, period=168)
    if n_series == n_channels == 1:
        scale[:] = 1.0
    return simple, scale


def _channel(rows: Observations, k: int, j: int) -> tuple[Array, Array]:
    """Return a channel's observed values in a series, and ticks since it began."""
    own = slice(*rows.bounds[k : k + 2])
    known, ticks = ~np.isnan(rows.values[own, j]), rows.ticks[own]
    return ticks_between(ticks[:1], ticks[known]), rows.values[own, j][known]


def _wall(ticks: Numbers, like: pd.Index) -> Numbers:
    """Return ticks of the clock on the wall."""
    return ticks + clock_ahead(ticks, like).astype(np.int64)


def _hours(ticks: Numbers, like: pd.Index) -> Array:
    """Return the hour of the week, from Monday."""
    stamps: Any = stamps_of(ticks, like)
    return np.asarray(24 * stamps.dayofweek + stamps.hour, np.float64)


def hours_of_week(rows: Observations) -> str:
    """Return of what in a week two weeks of rows or more have a mean; "": nothing."""
    if not isinstance(rows.like, pd.DatetimeIndex | pd.PeriodIndex):
        return ""
    is_period = isinstance(rows.like, pd.PeriodIndex)
    tick = nanoseconds(rows.like.freq) / rows.like.freq.n if is_period else 1.0
    times, _ = _channel(rows, int(rows.lengths.argmax()), 0)
    if len(times) < 2 or times[-1] * tick < 14 * DAY:
        return ""
    gap = float(np.median(np.diff(times))) * tick / DAY
    return "" if gap > 1 else f"{'hour' if gap < _DAILY else 'day'} of the week"


def seasons_of(rows: Observations) -> dict[str, float]:
    """Return ticks of the season that the longest series shows best, and the clock's.

    By name; those that rows are too few or too far apart for are left out.
    """
    times, values = _channel(rows, int(rows.lengths.argmax()), 0)
    if len(times) < 2:
        return {}
    unit = float(np.median(np.diff(times)))
    clock, exact = clock_periods(rows, unit, times[-1]), np.zeros(len(times))
    periods = clock or [p * unit for p in peaks(times / unit, values, exact, 1.0)]
    misses = {}
    for period in periods:
        later = times >= period
        before = np.interp(times[later] - period, times, values)
        misses[period] = np.abs(values[later] - before).mean()
    if not misses:
        return {}
    best = min(misses, key=misses.__getitem__)
    others = [period for period in clock if period != best]
    named = {f"{length_of_time(p, rows.like)} before": p for p in others}
    return {"seasonal naive": best} | named
