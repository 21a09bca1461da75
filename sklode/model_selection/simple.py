"""Simple forecasts that others are compared with.

Tested in tests/test_model_selection.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from sklode.data.arrays import Array, Numbers
from sklode.data.observations import Observations
from sklode.data.ticks import (
    DAY,
    WEEK,
    YEAR,
    clock_ahead,
    length_of_time,
    rows_before,
    stamps_of,
    tick_length,
    ticks_between,
)
from sklode.structural.search.periods import peaks, rounded

_SAME_WEEKDAYS = 4  # whose mean is taken
_ROWS_A_PERIOD = 2  # that a season shows in, at least


class _Known(NamedTuple):
    """A channel's observed values, by series and time on the wall."""

    bounds: Numbers  # (series + 1,)
    ticks: Numbers  # (row,), on the wall
    times: Array  # (row,), the same since each series' first row
    values: Array  # (row,)

    @classmethod
    def of(cls, walls: Observations, channel: int) -> _Known:
        """Return the values of a channel."""
        is_known = ~np.isnan(walls.values[:, channel])
        series = walls.series[is_known]
        n_rows = np.bincount(series, minlength=len(walls.keys))
        starts = walls.ticks[walls.bounds[series]]
        return cls(
            bounds=np.append(0, np.cumsum(n_rows)),
            ticks=walls.ticks[is_known],
            times=ticks_between(starts, walls.ticks[is_known]),
            values=walls.values[is_known, channel],
        )

    def part(self, k: int) -> tuple[Array, Array]:
        """Return times and values of one series."""
        own = slice(*self.bounds[k : k + 2])
        return self.times[own], self.values[own]

    def spreads(self) -> Array:
        """Return the standard deviation of each series; 1 of constant ones."""
        n_rows = np.diff(self.bounds)
        series = np.repeat(np.arange(len(n_rows)), n_rows)
        n = np.maximum(n_rows, 1)
        means = np.bincount(series, self.values, len(n_rows)) / n
        squares = (self.values - means[series]) ** 2
        spreads = np.sqrt(np.bincount(series, squares, len(n_rows)) / n)
        spreads = np.where(spreads > 0, spreads, 1.0)
        found: Array = np.where(n_rows > 0, spreads, np.nan)
        return found

    def at(self, series: Numbers, times: Array) -> Array:
        """Return values at times, between neighbours on a line; beyond all, the last.

        Each of the ``series`` has some.
        """
        first, last = self.bounds[series], self.bounds[series + 1] - 1
        row = rows_before(self.bounds, self.times, series, times)
        row = np.clip(row, first, last)
        after = np.minimum(row + 1, last)
        gap = np.maximum(self.times[after] - self.times[row], 1.0)
        share = np.clip((times - self.times[row]) / gap, 0.0, 1.0)
        values: Array = (1 - share) * self.values[row] + share * self.values[after]
        return values


class _Asked(NamedTuple):
    """Rows that are asked for, of series with values."""

    series: Numbers
    times: Array  # as those known
    ticks: Numbers

    def last_known(self, known: _Known) -> Numbers:
        """Return the last row of each one's series."""
        return known.bounds[self.series + 1] - 1


def _last_value(known: _Known, asked: _Asked) -> Array:
    last: Array = known.values[asked.last_known(known)]
    return last


def _drift(known: _Known, asked: _Asked) -> Array:
    """Return the last value, moved on as on average between first and last value."""
    first, last = known.bounds[asked.series], asked.last_known(known)
    times, values = known.times, known.values
    span = times[last] - times[first]
    slope = np.where(span > 0, (values[last] - values[first]) / np.maximum(span, 1), 0)
    moved: Array = values[last] + slope * (asked.times - times[last])
    return moved


def _periods_before(
    known: _Known, asked: _Asked, period: float, n_last: int = 1
) -> Array:
    """Return the mean of the last values as many whole periods before."""
    behind = asked.times - known.times[asked.last_known(known)]
    n_periods = np.ceil(behind / period)
    each = [
        known.at(asked.series, asked.times - (n_periods + n) * period)
        for n in range(n_last)
    ]
    mean: Array = np.mean(each, axis=0)
    return mean


_Method = Callable[[_Known, _Asked], Array]


class SimpleMethods(NamedTuple):
    """Simple methods that rows allow, each for a channel of all series at once."""

    methods: dict[str, _Method]
    seasons: dict[str, float]  # ticks after which some of them repeat

    @classmethod
    def of(cls, rows: Observations) -> SimpleMethods:
        """Return those that the longest series allows, which stands for all."""
        methods: dict[str, _Method] = {"last value": _last_value, "drift": _drift}
        known = _Known.of(replace(rows, ticks=_wall(rows.ticks, rows.like)), 0)
        times, values = known.part(int(np.diff(known.bounds).argmax()))
        if len(times) < 2:
            return cls(methods, {})
        like, gap, span = rows.like, float(np.median(np.diff(times))), times[-1]
        clock = _clock_periods(like, gap, span)
        candidates = clock
        # where no clock's period fits, those of a periodogram, of values without errors
        if not clock:
            waves = peaks(times / gap, values, np.zeros(len(times)), 1.0)
            candidates = [wave * gap for wave in waves]
        seasons = {}
        if candidates:
            misses = [_misses(times, values, period) for period in candidates]
            best = candidates[int(np.argmin(misses))]
            seasons["seasonal naive"] = best
            others = [period for period in clock if period != best]
            seasons |= {f"{length_of_time(each, like)} before": each for each in others}
        methods |= {
            name: partial(_periods_before, period=period)
            for name, period in seasons.items()
        }
        tick = tick_length(like) or np.inf
        week, n = WEEK / tick, _SAME_WEEKDAYS
        if week in clock and n * week <= span:
            four = f"{length_of_time(n * week, like)} before"
            methods[four] = partial(_periods_before, period=n * week)
            mean = partial(_periods_before, period=week, n_last=n)
            methods[f"mean of {n} weeks"] = mean
            seasons |= {four: n * week, f"mean of {n} weeks": week}
        if 2 * week <= span and gap <= week / 7:
            is_by_hour = _ROWS_A_PERIOD * gap <= week / 7
            name = f"{'hour' if is_by_hour else 'day'} of the week"
            methods[name] = partial(_means_of_week, like=like)
            seasons[name] = week
        return cls(methods, seasons)

    def forecasts(
        self, rows: Observations, index: pd.Index
    ) -> tuple[dict[str, Array], Array]:
        """Return what each forecasts, and the unit of errors, (row, channel).

        Hours repeat on the clock, and so do seasons: a day with a change to summer time
        counts as 24 hours.
        """
        n_series, n_channels = len(rows.keys), rows.values.shape[1]
        walls = replace(rows, ticks=_wall(rows.ticks, rows.like))
        series, ticks = rows.locate(index)
        ticks = _wall(ticks, rows.like)
        times = ticks_between(walls.ticks[walls.bounds[series]], ticks)
        shape = len(index), n_channels
        simple = {name: np.full(shape, np.nan) for name in self.methods}
        scale = np.full(shape, np.nan)
        for j in range(n_channels):
            known = _Known.of(walls, j)
            has_values = np.diff(known.bounds)[series] > 0
            asked = _Asked(series[has_values], times[has_values], ticks[has_values])
            for name, method in self.methods.items():
                simple[name][has_values, j] = method(known, asked)
            scale[:, j] = known.spreads()[series]
        # of a single one there is nothing to compare the unit with
        if n_series == n_channels == 1:
            scale[:] = 1.0
        return simple, scale


def _clock_periods(like: pd.Index, gap: float, span: float) -> list[float]:
    """Return day, week and year in ticks, as far as rows lie near and the span holds.

    Of rows a week apart or nearer a year has 52 whole weeks.
    """
    tick = tick_length(like)
    if tick is None:
        return []
    year = 52 * WEEK if gap * tick <= WEEK else YEAR
    periods = [rounded(period / tick) for period in (DAY, WEEK, year)]
    return [p for p in periods if _ROWS_A_PERIOD * gap <= p <= span]


def _misses(times: Array, values: Array, period: float) -> float:
    """Return the mean error of the value a period before, from there on."""
    later = times >= period
    before = np.interp(times[later] - period, times, values)
    return float(np.abs(values[later] - before).mean())


def _means_of_week(known: _Known, asked: _Asked, like: pd.Index) -> Array:
    """Return means of the same hour of the week, or of the day."""
    means = np.empty(len(asked.ticks))
    hours_asked = _hours(asked.ticks, like)
    order = np.argsort(asked.series, kind="stable")
    ends = np.searchsorted(asked.series[order], np.arange(len(known.bounds)))
    hours_known = _hours(known.ticks, like)
    for k in np.unique(asked.series):
        own, seen = order[slice(*ends[k : k + 2])], slice(*known.bounds[k : k + 2])
        hours, number = np.unique(hours_known[seen], return_inverse=True)
        mean = np.bincount(number, known.values[seen]) / np.bincount(number)
        # of an hour that no row has, between its neighbours: Sunday's last and
        # Monday's first are some, as a week has 168
        means[own] = np.interp(hours_asked[own], hours, mean, period=168)
    return means


def _wall(ticks: Numbers, like: pd.Index) -> Numbers:
    """Return ticks of the clock on the wall."""
    return ticks + clock_ahead(ticks, like).astype(np.int64)


def _hours(walls: Numbers, like: pd.Index) -> Array:
    """Return the hour of the week, from Monday, on the wall."""
    bare = like.tz_localize(None) if isinstance(like, pd.DatetimeIndex) else like
    stamps: Any = stamps_of(walls, bare)
    hours = 24 * stamps.dayofweek + stamps.hour
    return np.asarray(hours, np.float64)
