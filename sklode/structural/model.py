r"""A structural model of each channel in continuous time, solved exactly.

.. math::
    y(t) = \mathrm{trend}(t) + \mathrm{deviation}(t) + \sum_P \mathrm{season}_P(t)
        + X(t) \beta + e

Harvey, "Forecasting, Structural Time Series Models and the Kalman Filter" (1989);
Jones, "Fitting a Continuous Time Autoregression to Discrete Data" (1981); Hartikainen
and Sarkka, "Kalman Filtering and Smoothing Solutions to Temporal Gaussian Process
Regression Models" (2010).

Tested in tests/structural/test_decisions.py and test_more.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd

from sklode.data.arrays import Array, Flags, Numbers
from sklode.data.calendars import Calendar, has_dates, share_of_month, shows_months
from sklode.data.known import Known
from sklode.data.links import margins, steps_of
from sklode.data.observations import Observations
from sklode.data.scaling import location_and_scale, time_unit
from sklode.data.ticks import (
    clock_ahead,
    day_and_week,
    place_in,
    ticks_between,
)
from sklode.structural.candidates import Candidate, heaviest_of_each
from sklode.structural.coupling.contemporaneous import Concurrent
from sklode.structural.coupling.delays import MOST_CHANNELS, likely_delays
from sklode.structural.coupling.next_rows import CrossChannel
from sklode.structural.effects.effect import (
    Effect,
    Read,
    along_the_day,
    columns_of,
    places,
)
from sklode.structural.effects.inputs import Inputs
from sklode.structural.filtering import GroupedChannel
from sklode.structural.predictive.limits import LargestMoves
from sklode.structural.rows import ChannelRows
from sklode.structural.search.forms import SearchResult, fit_candidates
from sklode.structural.search.groups import fit_groups, groups_of
from sklode.structural.search.periods import (
    Seasons,
    clock_periods,
    cycle_of,
    seasons_of,
)
from sklode.structural.search.rows import SearchRows

# of a day, where its observations are more than a search reads: a quarter of an hour
_MEANS = 96
_ALL = slice(None)


@dataclass(frozen=True)
class StructuralModel:
    """The hyperparameters of all channels: no series' rows, nor states."""

    unit: float  # ticks of one unit of time: the usual gap
    channels: list[list[Candidate]]
    spans: list[float]  # of each channel: of a usual series, in units of time
    control_location: Array  # (control + channel,), of few channels: see `read`
    control_scale: Array
    effects: list[Effect]  # what columns of X and kinds of days may do
    cycle: tuple[float, float] | None  # ticks of a day and a week, see `place_in`
    calendar: Calendar | None  # named days
    bounds: Array  # (channel, 2), of values; infinite: none
    steps: Array  # (channel,), see `links.steps_of`
    cross: CrossChannel  # what channels tell of each other's next rows
    concurrent: Concurrent  # what they tell of each other at the same time
    moves: list[LargestMoves]  # of each channel

    @classmethod
    def fit(
        cls,
        observations: Observations,
        seasons: str | tuple[float, ...] = "auto",
        logarithm: str | bool = "auto",
        known: Known | None = None,
    ) -> StructuralModel:
        """Find each channel's hyperparameters; ``seasons`` are in ticks."""
        n = observations.values.shape[1]
        known = Known.nothing(n) if known is None else known
        model = cls._begun(observations, known)
        tables = model.tables(observations)
        longest = max(float(table.spans.max(initial=0)) for table in tables)
        told = None if isinstance(seasons, str) else seasons
        lengths = told
        if lengths is None:
            longest_in_ticks = longest * model.unit
            periods = clock_periods(observations, model.unit, longest_in_ticks)
            lengths = tuple(periods)
        cycle = cycle_of(lengths, day_and_week(observations.like))
        spans = [_usual_span(table, longest) for table in tables]
        # a search reads both
        model = replace(model, cycle=cycle, spans=spans)
        # a channel may be seen more rarely than others: its own usual gap, in ticks
        gaps = [time_unit(_alone(observations, channel)) for channel in range(n)]
        delays = likely_delays(tables, [gap / model.unit for gap in gaps])
        found = [
            model._fit_channel(
                channel,
                observations,
                table=table,
                gap=gaps[channel],
                told=told,
                logarithm=logarithm,
                known=known,
                delays=delays[channel],
            )
            for channel, table in enumerate(tables)
        ]
        effects = sorted({e for each in found for _, own in each for e in own})
        channels = [_with_effects(each, places(effects), known) for each in found]
        moves = [LargestMoves.of(table) for table in tables]
        model = replace(model, channels=channels, effects=effects, moves=moves)
        if effects:
            # which the tables then have columns for
            tables = model.tables(observations)
        channels = [
            _skewed(own, table, span)
            for own, table, span in zip(channels, tables, spans, strict=True)
        ]
        # what channels tell of each other is asked of the heaviest candidates alone
        likely = [
            GroupedChannel.of(heaviest_of_each(one), table, span)
            for one, table, span in zip(channels, tables, spans, strict=True)
        ]
        return replace(
            model,
            channels=channels,
            cross=CrossChannel.fit(channels, spans, tables),
            concurrent=Concurrent.fit(likely),
        )

    @classmethod
    def _begun(cls, observations: Observations, known: Known) -> StructuralModel:
        """Return a model with all that needs no search, and no candidates."""
        n, controls = observations.values.shape[1], observations.controls
        if 2 <= n <= MOST_CHANNELS:
            # each column of y may follow another: all are read as those of X are
            controls = np.hstack([controls, observations.values])
        location, scale = location_and_scale(controls)
        for first, size in known.blocks:
            # indicators of one category: their effects are of one size, be it rare
            # or common
            scale[first : first + size] = 1.0
        return cls(
            unit=time_unit(observations.observed()),
            channels=[],
            spans=[],
            control_location=location,
            control_scale=scale,
            effects=[],
            cycle=None,
            calendar=known.calendar,
            bounds=known.bounds,
            steps=steps_of(margins(observations.values, known.bounds)),
            cross=CrossChannel.none(n),
            concurrent=Concurrent.none(n),
            moves=[],
        )

    def _fit_channel(
        self,
        channel: int,
        observations: Observations,
        table: ChannelRows,
        gap: float,
        told: tuple[float, ...] | None,
        logarithm: str | bool,
        known: Known,
        delays: list[tuple[int, Array]],
    ) -> list[tuple[Candidate, tuple[Effect, ...]]]:
        """Return what a channel's forecasts average over.

        ``gap`` is its usual one, ``told`` are the seasons that a user names; in ticks.
        """
        lengths = told
        if lengths is None:
            most = float(table.spans.max(initial=0)) * self.unit
            lengths = tuple(clock_periods(observations, gap, most))
        read = partial(
            self._search_rows,
            channel=channel,
            seasons=lengths,
            is_told=told is not None,
            blocks=known.blocks,
            delays=delays,
        )
        is_lone, fine = len(observations.keys) == 1, None
        if is_lone and min(lengths, default=0.0) > 2 * _MEANS * gap:
            # the last observations, which a search reads, show too little of a day
            gap = min(lengths) / _MEANS
            coarse, fine = read(observations.means(round(gap))), read(observations)
        else:
            coarse = read(observations)
        periods = [period / self.unit for period in lengths]

        def fit(rows: SearchRows) -> SearchResult:
            gap_in_units = gap / self.unit
            if told is None:
                seasons = seasons_of(rows.table, periods, gap_in_units)
            else:
                seasons = Seasons(told=tuple(periods), clock={}, others={})
            return fit_candidates(
                rows,
                fine,
                span=self.spans[channel],
                gap=gap_in_units,
                seasons=seasons,
                logarithm=logarithm,
                bounds=known.bounds[channel],
            )

        return fit_groups(coarse, fit)

    def _search_rows(
        self,
        rows: Observations,
        channel: int,
        seasons: tuple[float, ...],
        is_told: bool,
        blocks: tuple[tuple[int, int], ...],
        delays: list[tuple[int, Array]],
    ) -> SearchRows:
        """Return a channel's rows, and what effects may read there."""
        table, cycle = self.tables(rows)[channel], self.cycle
        days = cycle if cycle and {*cycle} <= {*seasons} else None
        has_month = not is_told and shows_months(rows.ticks, rows.bounds, rows.like)
        n_controls = rows.controls.shape[1]
        if not (n_controls or days or has_month or self.calendar or delays):
            return SearchRows(table, None)
        inputs = Inputs(
            read=self.read(rows),
            n_controls=n_controls,
            clock=self.clock(rows.ticks, rows.like),
            n_days=round(days[1] / days[0]) if days else 0,
            rows=np.flatnonzero(~np.isnan(rows.values[:, channel])),
            has_month=has_month,
            n_kinds=len(self.calendar.names) + 1 if self.calendar else 0,
            blocks=blocks,
            delays=tuple((n_controls + j, own) for j, own in delays),
        )
        return SearchRows(table, inputs)

    def inputs(self, rows: Observations) -> Array:
        """Return what `filter.forward` reads beside times, (row, 1 + column)."""
        return self.inputs_of(rows.ticks, rows, np.arange(len(rows.ticks)))

    def inputs_at(self, ticks: Numbers, like: pd.Index, columns: list[Array]) -> Array:
        """Return `inputs` at stamps, of what effects make of X there."""
        ahead = clock_ahead(ticks, like)[:, None] / self.unit
        if not self.effects:
            return ahead
        along = along_the_day(self.effects, columns, self.clock(ticks, like))
        return np.hstack([ahead, along])

    @property
    def is_delayed(self) -> bool:
        """Whether a column of y follows another after a delay."""
        return any(effect.delay for effect in self.effects)

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
        found = columns_of(
            self.effects, read, place, seen=before, series=series, times=times
        )
        return self.inputs_at(ticks, known.like, found)

    def clock(self, ticks: Numbers, like: pd.Index) -> Array:
        """Return the share of day and month, the day of the week and named days.

        See `Effect.along`; (row, 6), in this order: share of the day, day of the week,
        share of the month, and kinds of three days.
        """
        found = np.zeros((len(ticks), 6))
        if self.cycle is not None:
            found[:, :2] = place_in(self.cycle, ticks, like)
        if has_dates(like):
            found[:, 2] = share_of_month(ticks, like)
        if self.calendar is None:
            return found
        found[:, 3:] = self.calendar.at(ticks, like)
        if self.cycle is not None:
            # a named day is one more day of the week, numbered after the others
            day, week = self.cycle
            is_named = found[:, 3] > 0
            found[is_named, 1] = round(week / day)
        return found

    def read(self, rows: Observations) -> Read:
        """Return what effects may read at rows."""
        times, columns = self.times(rows, rows.series, rows.ticks), rows.controls
        if len(self.control_scale) > columns.shape[1]:
            columns = np.hstack([columns, rows.values])
        return Read(bounds=rows.bounds, times=times, columns=self.standard(columns))

    def standard(self, controls: Array, columns: int | slice = _ALL) -> Array:
        """Return columns of X in standard deviations from their means."""
        scale = self.control_scale[columns]
        return (controls - self.control_location[columns]) / scale

    def times(self, rows: Observations, series: Numbers, ticks: Numbers) -> Array:
        """Return time since each series' first row, in usual gaps."""
        return ticks_between(rows.ticks[rows.bounds[series]], ticks) / self.unit

    def tables(
        self, observations: Observations, chosen: Flags | None = None
    ) -> list[ChannelRows]:
        """Return each channel's observed rows, of those ``chosen``."""
        rows, series = observations, observations.series
        if chosen is not None:
            rows, series = rows.where(chosen), series[chosen]
        times = self.times(observations, series, rows.ticks)
        is_late = self.is_delayed or any(effect.memory for effect in self.effects)
        if chosen is not None and is_late:
            # all rows before feed what these remember
            place = np.flatnonzero(chosen)
            inputs = self.inputs_of(rows.ticks, observations, place)
        else:
            inputs = self.inputs(rows)
        n_series, tables = len(observations.keys), []
        for values, errors in zip(rows.values.T, rows.errors.T, strict=True):
            known = ~np.isnan(values)
            table = ChannelRows.of(
                series=series[known],
                times=times[known],
                values=values[known],
                inputs=inputs[known],
                n_series=n_series,
                errors=errors[known],
            )
            tables.append(table)
        return tables


def _usual_span(table: ChannelRows, longest: float) -> float:
    """Return the median time from first to last observation, of those that have one."""
    some = table.spans[table.spans > 0]
    return float(np.median(some)) if len(some) else max(longest, 1.0)


def _with_effects(
    found: list[tuple[Candidate, tuple[Effect, ...]]],
    columns: dict[Effect, tuple[int, ...]],
    known: Known,
) -> list[Candidate]:
    """Return candidates whose forms say which columns their effects read."""
    candidates = []
    for one, effects in found:
        form = one.form._replace(effects=tuple(columns[e] for e in effects))
        # errors of measurement come ahead too, other errors of the rows do not
        error = one.error if known.is_measured else 0.0
        candidates.append(one._replace(form=form, error=error))
    return candidates


def _alone(rows: Observations, channel: int) -> Observations:
    """Return the rows of a channel: it is found as it is alone."""
    seen = ~np.isnan(rows.values[:, channel])
    return rows.where(seen) if seen.any() else rows


def _skewed(
    candidates: list[Candidate], table: ChannelRows, span: float
) -> list[Candidate]:
    """Return candidates that know how far sums lie from medians, by group."""
    own, rises = groups_of(candidates, table)[table.series], {}
    for one in heaviest_of_each(candidates):
        rises[one.group] = one.skew(table.where(own == one.group), span)
    return [one._replace(rise=rises[one.group]) for one in candidates]
