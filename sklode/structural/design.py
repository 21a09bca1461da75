"""The design map: from stamps, X and the calendar to what a column's filter reads.

Tested in tests/structural/effects/test_effect.py and test_clock.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from sklode.data.arrays import Array, Flags, Numbers
from sklode.data.calendars import (
    OWN_DAY,
    Calendar,
    RowPeriod,
    has_dates,
    share_of_month,
    week_of_year,
    weeks_passed,
)
from sklode.data.observations import Observations
from sklode.data.ticks import clock_ahead, place_in, ticks_between
from sklode.structural.effects.effect import Effect, modulated
from sklode.structural.effects.lags import Impulse, Queries, Read
from sklode.structural.effects.modulation import CalendarFeatures
from sklode.structural.rows import ChannelRows

_ALL = slice(None)


@dataclass(frozen=True)
class Design:
    """What stamps, columns of X and named days become: inputs of the filter."""

    unit: float  # ticks of one unit of time: the usual gap
    location: Array  # (control + channel,), of few channels: see `read`
    scale: Array
    cycle: tuple[float, float] | None = (
        None  # ticks of a day and a week, see `place_in`
    )
    calendar: Calendar | None = None  # named days
    effects: tuple[Effect, ...] = ()  # what columns of X and kinds of days may do
    period: RowPeriod = OWN_DAY  # which days a row stands for
    periods: dict[str, float] = field(default_factory=dict)
    """Units of time by name, longest first: values so long before may count."""

    def inputs(self, rows: Observations) -> Array:
        """Return what `filter.forward` reads beside times, (row, 1 + column)."""
        return self.inputs_of(rows.ticks, rows, np.arange(len(rows.ticks)))

    def inputs_at(self, ticks: Numbers, like: pd.Index, columns: list[Array]) -> Array:
        """Return `inputs` at stamps, of what effects make of X there."""
        ahead = clock_ahead(ticks, like)[:, None] / self.unit
        if not self.effects:
            return ahead
        along = modulated(self.effects, columns, self.features(ticks, like))
        return np.hstack([ahead, along])

    @property
    def is_delayed(self) -> bool:
        """Whether a column of y follows another after a delay."""
        return any(effect.is_delayed for effect in self.effects)

    def inputs_of(
        self,
        ticks: Numbers,
        known: Observations,
        place: Numbers,
        seen: Observations | None = None,
        series: Numbers | None = None,
    ) -> Array:
        """Return `inputs` at stamps, of X at the rows before, at ``place``.

        Columns of y that act late are those ``seen`` of ``series``; None: ``known``.
        """
        if not self.effects:
            return self.inputs_at(ticks, known.like, [])
        read = self.read(known)
        seen = known if seen is None else seen
        series = known.series[place] if series is None else series
        # only what acts late looks at y, and so at other rows than X
        is_other = self.is_delayed and seen is not known
        before = self.read(seen) if is_other else read
        times = self.times(seen, series, ticks)
        queries = Queries(
            known=read, place=place, seen=before, series=series, times=times
        )
        found = [effect.lagged(queries) for effect in self.effects]
        return self.inputs_at(ticks, known.like, found)

    def features(self, ticks: Numbers, like: pd.Index) -> CalendarFeatures:
        """Return where in day, week and month stamps lie, and which days are near."""
        n = len(ticks)
        day: Array = np.zeros((n, 2))
        months: Array = np.zeros(n)
        weeks: Array = np.zeros(n)
        named: Array | Flags = np.zeros((n, 0, 0))
        if self.cycle is not None:
            day = place_in(self.cycle, ticks, like)
        if has_dates(like):
            months = share_of_month(ticks, like)
            weeks = week_of_year(ticks, like).astype(np.float64)
        share_of_day, day_of_week = day.T
        if self.calendar is not None:
            named = self.calendar.at(ticks, like)
            if self.cycle is not None and not self.calendar.period.is_long:
                # a named day is one more day of the week, numbered after the others
                one, week = self.cycle
                number = round(week / one)
                day_of_week = np.where(named[:, 0].any(axis=1), number, day_of_week)
        return CalendarFeatures(
            share_of_day=share_of_day,
            day_of_week=day_of_week,
            share_of_month=months,
            week_of_year=weeks,
            named=named,
            weekdays=self.period.weekdays(ticks, like),
        )

    def clock(self, ticks: Numbers, like: pd.Index) -> Array:
        """Return the share of the day that has passed, and how many weeks have.

        Or of what stands for them; (row, 2).
        """
        share_of_day: Array = np.zeros(len(ticks))
        weeks: Array = share_of_day
        if self.cycle is not None:
            _, week = self.cycle
            share_of_day, _ = place_in(self.cycle, ticks, like).T
            weeks = ticks / week
        if has_dates(like):
            weeks = weeks_passed(ticks, like)
        return np.column_stack([share_of_day, weeks])

    @property
    def impulses(self) -> frozenset[int]:
        """Columns of X that act as impulses."""
        return frozenset(
            effect.basis.first
            for effect in self.effects
            if isinstance(effect.lag, Impulse)
        )

    def read(self, rows: Observations) -> Read:
        """Return what effects may read at rows."""
        times, columns = self.times(rows, rows.series, rows.ticks), rows.controls
        if len(self.scale) > columns.shape[1]:
            columns = np.hstack([columns, rows.values])
        return Read(
            bounds=rows.bounds,
            times=times,
            columns=self.standard(columns),
            begins=self._begins(rows, times),
            starts=self._starts(rows),
        )

    def _starts(self, rows: Observations) -> Array:
        """Return the time of each series' first row since the first of all."""
        firsts = rows.ticks[np.minimum(rows.bounds[:-1], len(rows.ticks) - 1)]
        return ticks_between(firsts.min(), firsts) / self.unit

    def _begins(self, rows: Observations, times: Array) -> Array:
        """Return the time of each series' first value, (series,); or first row."""
        begins = np.zeros(len(rows.keys))
        seen = np.flatnonzero(~np.isnan(rows.values).all(axis=1))
        own, first = np.unique(rows.series[seen], return_index=True)
        begins[own] = times[seen[first]]
        return begins

    def standard(self, controls: Array, columns: slice = _ALL) -> Array:
        """Return columns of X in standard deviations from their means."""
        scale = self.scale[columns]
        return (controls - self.location[columns]) / scale

    def times(self, rows: Observations, series: Numbers, ticks: Numbers) -> Array:
        """Return time since each series' first row, in usual gaps."""
        return ticks_between(rows.ticks[rows.bounds[series]], ticks) / self.unit

    def tables(
        self, observations: Observations, chosen: Flags | None = None
    ) -> list[ChannelRows]:
        """Return each column's observed rows, of those ``chosen``."""
        rows, series = observations, observations.series
        if chosen is not None:
            rows, series = rows.where(chosen), series[chosen]
        times = self.times(observations, series, rows.ticks)
        has_memory = any(effect.lag.remembers for effect in self.effects)
        is_late = self.is_delayed or has_memory
        if chosen is not None and is_late:
            # all rows before feed what these remember
            place = np.flatnonzero(chosen)
            inputs = self.inputs_of(rows.ticks, observations, place)
        else:
            inputs = self.inputs(rows)
        n_series, tables = len(observations.keys), []
        for values, errors in zip(rows.values.T, rows.errors.T, strict=True):
            known = ~np.isnan(values)
            table = ChannelRows.from_series(
                series=series[known],
                times=times[known],
                values=values[known],
                inputs=inputs[known],
                n_series=n_series,
                errors=errors[known],
            )
            tables.append(table)
        return tables
