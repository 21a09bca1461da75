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
from sklode.structural.search.periods import calendar_periods, peaks

_DAILY = 0.5  # days, the least gap of rows of which a day has one


def simple_forecasts(
    rows: Observations,
    index: pd.Index,
    seasons: dict[str, float],
    of_week: str,
) -> tuple[dict[str, Array], Array]:
    """Return what simple methods forecast, and the unit of errors, (row, channel)."""
    n_series, n_channels = len(rows.keys), rows.values.shape[1]
    series, ticks = rows.locate(index)
    # hours repeat on the clock, and so do seasons: a day with a change to summer time
    # counts as 24 hours
    walls = replace(rows, ticks=_wall(rows.ticks, rows.like))
    starts = walls.ticks[walls.bounds[series]]
    ahead = ticks_between(starts, _wall(ticks, rows.like))
    names = ["last value", *seasons, *([of_week] if of_week else [])]
    shape = len(index), n_channels
    simple = {name: np.full(shape, np.nan) for name in names}
    scale = np.full(shape, np.nan)
    # what is asked of a series stands side by side after a stable sort
    order = np.argsort(series, kind="stable")
    ends = np.searchsorted(series[order], np.arange(n_series + 1))
    for k, j in np.ndindex(n_series, n_channels):
        own = order[ends[k] : ends[k + 1]]
        times, values = _channel(walls, k, j)
        if not len(values):
            continue
        simple["last value"][own, j] = values[-1]
        scale[own, j] = values.std() or 1.0
        for name, period in seasons.items():
            # back by as many periods as lead to the last one that is known
            n_periods = np.ceil((ahead[own] - times[-1]) / period)
            before = ahead[own] - period * n_periods
            simple[name][own, j] = np.interp(before, times, values)
        if of_week:
            found = _means_of_week(rows, k, j, ticks[own])
            simple[of_week][own, j] = found
    # of a single one there is nothing to compare the unit with
    if n_series == n_channels == 1:
        scale[:] = 1.0
    return simple, scale


def _means_of_week(rows: Observations, k: int, j: int, asked: Numbers) -> Array:
    """Return a channel's means of the same hour of the week, in a series."""
    own = slice(*rows.bounds[k : k + 2])
    known = ~np.isnan(rows.values[own, j])
    hours = _hours(rows.ticks[own][known], rows.like)
    hours, number = np.unique(hours, return_inverse=True)
    sums = np.bincount(number, rows.values[own, j][known])
    means = sums / np.bincount(number)
    # of an hour that no row has, between its neighbours: Sunday's last and Monday's
    # first are some, as a week has 168
    return np.interp(_hours(asked, rows.like), hours, means, period=168)


def _channel(rows: Observations, k: int, j: int) -> tuple[Array, Array]:
    """Return a channel's observed values in a series, and ticks since it began."""
    own = slice(*rows.bounds[k : k + 2])
    ticks, values = rows.ticks[own], rows.values[own, j]
    known = ~np.isnan(values)
    return ticks_between(ticks[:1], ticks[known]), values[known]


def _wall(ticks: Numbers, like: pd.Index) -> Numbers:
    """Return ticks of the clock on the wall."""
    return ticks + clock_ahead(ticks, like).astype(np.int64)


def _hours(ticks: Numbers, like: pd.Index) -> Array:
    """Return the hour of the week, from Monday."""
    stamps: Any = stamps_of(ticks, like)
    hours = 24 * stamps.dayofweek + stamps.hour
    return np.asarray(hours, np.float64)


def hours_of_week(rows: Observations) -> str:
    """Return of what in a week two weeks of rows or more have a mean; "": nothing."""
    if not isinstance(rows.like, pd.DatetimeIndex | pd.PeriodIndex):
        return ""
    # a tick is a nanosecond or, of periods, one of their unit: of "2h" an hour
    tick = 1.0
    if isinstance(rows.like, pd.PeriodIndex):
        freq = rows.like.freq
        tick = nanoseconds(freq) / freq.n
    # the longest series stands for all
    times, _ = _channel(rows, int(rows.lengths.argmax()), 0)
    if len(times) < 2 or times[-1] * tick < 14 * DAY:
        return ""
    gap = float(np.median(np.diff(times))) * tick / DAY
    if gap > 1:
        return ""
    return "hour of the week" if gap < _DAILY else "day of the week"


def seasons_of(rows: Observations) -> dict[str, float]:
    """Return ticks of the season that the longest series shows best, and the clock's.

    By name; those that rows are too few or too far apart for are left out.
    """
    times, values = _channel(rows, int(rows.lengths.argmax()), 0)
    if len(times) < 2:
        return {}
    unit = float(np.median(np.diff(times)))
    clock = calendar_periods(rows, unit, times[-1])
    periods = clock
    # where no clock's period fits, those of a periodogram, of values without errors
    if not clock:
        exact = np.zeros(len(times))
        waves = peaks(times / unit, values, exact, 1.0)
        periods = [wave * unit for wave in waves]
    # the error of the seasonal naive itself, from a period after the first row on
    misses = {}
    for period in periods:
        later = times >= period
        before = np.interp(times[later] - period, times, values)
        misses[period] = np.abs(values[later] - before).mean()
    if not misses:
        return {}
    best = min(misses, key=misses.__getitem__)
    others = [period for period in clock if period != best]
    named = {length_of_time(period, rows.like): period for period in others}
    before = {f"{length} before": period for length, period in named.items()}
    return {"seasonal naive": best} | before
