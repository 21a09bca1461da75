r"""A structural model of each channel in continuous time, solved exactly.

.. math::
    y(t) = \mathrm{trend}(t) + \mathrm{deviation}(t) + \sum_P \mathrm{season}_P(t)
        + X(t) \beta + e

Harvey, "Forecasting, Structural Time Series Models and the Kalman Filter" (1989), in
continuous time: Jones, "Fitting a Continuous Time Autoregression to Discrete Data"
(1981); Hartikainen and Sarkka, "Kalman Filtering and Smoothing Solutions to Temporal
Gaussian Process Regression Models" (2010).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sklode.data.observations import Observations
from sklode.data.scaling import time_unit
from sklode.data.ticks import clock_ahead, ticks_between
from sklode.levels.channel import ChannelLevel
from sklode.levels.components import Component, heaviest
from sklode.levels.cross import Cross
from sklode.levels.effects import Effect, Inputs, columns_of, places
from sklode.levels.fitting import fit_components
from sklode.levels.floors import steps_of
from sklode.levels.mixture import Mixture, Move
from sklode.levels.seasons import clock_periods, peaks
from sklode.levels.tables import Queries, Table, power_of_two

__all__ = ["FilteredLevel", "StructuralLevel"]

Array = NDArray[np.floating]
Numbers = NDArray[np.int64]

_SHORT = 12.0  # usual gaps: seasons up to that length are no surprise


@dataclass(frozen=True)
class StructuralLevel:
    """The hyperparameters of all channels: no series' rows, nor states."""

    unit: float  # ticks of one unit of time: the usual gap
    channels: list[list[Component]]
    spans: list[float]  # of each channel: of a usual series, in units of time
    control_location: Array  # (control,)
    control_scale: Array
    effects: list[Effect]  # what columns of X may do
    steps: Array  # (channel,), see `floors.steps_of`
    cross: Cross  # what channels tell each other

    @classmethod
    def fit(
        cls,
        observations: Observations,
        seasons: str | tuple[float, ...] = "auto",
        logarithm: str | bool = "auto",
    ) -> StructuralLevel:
        """Find the hyperparameters of each channel, pooled over series.

        ``seasons`` are periods in ticks, each of which is taken where the data ask for
        it; "auto": those of the clock and of a periodogram.
        """
        unit = time_unit(observations.where(observations.is_observed))
        none = Cross.none(observations.values.shape[1])
        centre, scale = _standard(observations.controls)
        steps = steps_of(observations.values)
        level = cls(unit, [], [], centre, scale, [], steps, none)
        tables = level.tables(observations)
        longest = max(float(table.spans.max(initial=0)) for table in tables)
        if isinstance(seasons, str):
            clock = clock_periods(observations, unit, longest * unit)
        else:
            clock = list(seasons)
        found = []
        for table, values in zip(tables, observations.values.T, strict=True):
            spans = table.spans[table.spans > 0]
            span = float(np.median(spans)) if len(spans) else max(longest, 1.0)
            periods = {period / unit: _doubt(period / unit) for period in clock}
            if isinstance(seasons, str):
                periods |= _others(table, list(periods))
            X = None
            if observations.controls is not None:
                standard = level.standard(observations.controls)
                given = observations.bounds, level.times(observations), standard
                X = Inputs(*given, np.flatnonzero(~np.isnan(values)))
            found.append(fit_components(table, span, periods, logarithm, X))
            level.spans.append(span)
        every = [effect for each in found for _, effects in each for effect in effects]
        level.effects.extend(sorted(set(every)))
        columns = places(level.effects)
        for each in found:
            level.channels.append(
                [one.reading([columns[e] for e in effects]) for one, effects in each]
            )
        if every:
            tables = level.tables(observations)
        cross = Cross.fit(level.channels, level.spans, tables)
        return replace(level, cross=cross)

    def filtered(self, observations: Observations) -> FilteredLevel:
        """Return what it knows of series, of those it was fit on or others."""
        channels = [
            ChannelLevel.of(components, table, span)
            for components, table, span in zip(
                self.channels, self.tables(observations), self.spans, strict=True
            )
        ]
        return FilteredLevel(self, observations, channels)

    def inputs(self, rows: Observations) -> Array:
        """Return what `kernel` reads beside times, (row, 1 + column), at rows of X."""
        ahead = clock_ahead(rows.ticks, rows.like)[:, None] / self.unit
        if rows.controls is None:
            return ahead
        given = rows.bounds, self.times(rows), self.standard(rows.controls)
        return np.hstack([ahead, columns_of(self.effects, *given)])

    def standard(self, controls: Array) -> Array:
        """Return X in standard deviations from its mean."""
        return (controls - self.control_location) / self.control_scale

    def times(self, rows: Observations) -> Array:
        """Return time since each series' first row, in units of the usual gap."""
        first = rows.ticks[rows.bounds[:-1]]
        return ticks_between(first[rows.series], rows.ticks) / self.unit

    def tables(
        self,
        observations: Observations,
        chosen: NDArray[np.bool_] | None = None,
        every_row: bool = False,
    ) -> list[Table]:
        """Return the observed rows of each channel; of ``chosen`` rows, if given.

        Or every row, NaN where a channel was not observed.
        """
        series = observations.series
        times, inputs = self.times(observations), self.inputs(observations)
        tables = []
        for values in observations.values.T:
            known = ~np.isnan(values) | every_row
            if chosen is not None:
                known &= chosen
            counts = np.bincount(series[known], minlength=len(observations.keys))
            bounds = np.append(0, np.cumsum(counts))
            tables.append(Table(times[known], values[known], inputs[known], bounds))
        return tables


@dataclass(frozen=True)
class FilteredLevel:
    """A level with the states of series after their rows."""

    level: StructuralLevel
    observations: Observations
    channels: list[ChannelLevel]

    def updated(self, observations: Observations) -> FilteredLevel:
        """Return the same once more rows were seen: only those are filtered.

        All are, where an earlier one is another now, or a series is new.
        """
        fresh = _rows_after(self.observations, observations)
        # more rows change what is known of the scale of a series
        apart = any(one.apart for each in self.level.channels for one in each)
        if fresh is None or apart:
            return self.level.filtered(observations)
        tables = self.level.tables(observations, fresh)
        channels = [
            channel.continued(table)
            for channel, table in zip(self.channels, tables, strict=True)
        ]
        return FilteredLevel(self.level, observations, channels)

    def answered(
        self, channel: int, queries: Queries, move: Move | None = None
    ) -> Mixture:
        """Return the distribution of a channel's noise-free signal at queries.

        Moved, where a network says so.
        """
        mixture = self.channels[channel].answered(queries)
        shift = self._shift(channel, queries)
        if shift.any():
            one = heaviest(self.channels[channel].components).at(queries.series)
            mixture = mixture.shifted(one, shift)
        return mixture if move is None else mixture.moved(move)

    def drawn(
        self,
        channel: int,
        queries: Queries,
        n: int,
        seed: int,
        noise: bool,
        move: Move | None = None,
    ) -> Array:
        """Return draws of a channel, see `ChannelLevel.drawn`."""
        draws = self.channels[channel].drawn(queries, n, seed, noise)
        shift = self._shift(channel, queries)
        if shift.any():
            moved = shift != 0
            component = heaviest(self.channels[channel].components)
            component = component.at(queries.series[moved])
            scaled = component.scaled(draws[:, moved]) + shift[moved]
            draws[:, moved] = component.original(scaled)
        if move is None:
            return draws
        return move.of(draws, self.answered(channel, queries).points())

    def _shift(self, channel: int, queries: Queries) -> Array:
        """Return what all channels say about one's forecasts, (query,)."""
        if not self.level.cross.weights[:, :, channel].any():
            return np.zeros(len(queries.times))
        ends = np.max([one.table.ends for one in self.channels], axis=0)
        ends = np.maximum(ends, 0.0)
        sums = np.stack([one.sums_at(ends) for one in self.channels], axis=1)
        ahead = queries.times - ends[queries.series]
        return self.level.cross.shift(channel, sums[queries.series], ahead)

    def times(self, series: Numbers, ticks: Numbers) -> Array:
        """Return time since each series' first row, in units of the usual gap."""
        first = self.observations.ticks[self.observations.bounds[:-1]]
        return ticks_between(first[series], ticks) / self.level.unit


def _standard(controls: Array | None) -> tuple[Array, Array]:
    """Return means and standard deviations; 1 of what does not vary."""
    if controls is None:
        return np.zeros(0), np.ones(0)
    unit = np.array([power_of_two(column) for column in controls.T])
    scale = unit * (controls / unit).std(0)
    location = unit * (controls / unit).mean(0)
    constant = scale <= 1e-9 * np.abs(location)
    return location, np.where(constant, 1.0, scale)


def _doubt(period: float) -> float:
    """Return what a season takes off the logarithm of the probability of a form.

    Long ones, of many free harmonics, ask for more; those of a few stamps for nothing.
    """
    return math.log(max(period / _SHORT, 1.0))


def _others(table: Table, clock: list[float]) -> dict[float, float]:
    """Return periods of the longest series that cannot be told to be a clock's.

    Each was picked out of about as many frequencies as there are pairs of rows.
    """
    k = int(np.diff(table.bounds).argmax())
    own = slice(table.bounds[k], table.bounds[k + 1])
    found = peaks(table.times[own], table.values[own], 1.0)
    near = 1 / max(float(np.ptp(table.times[own])), 1.0)  # what a span can tell apart
    doubt = math.log(max(own.stop - own.start, 2) / 2)
    return {
        period: doubt
        for period in found
        if not any(abs(1 / period - 1 / whole) < near for whole in clock)
    }


def _rows_after(seen: Observations, now: Observations) -> NDArray[np.bool_] | None:
    """Return which rows come after all that were seen; None if those have changed."""
    if seen.keys != now.keys:
        return None
    last = seen.ticks[seen.bounds[1:] - 1]
    fresh = now.ticks > last[now.series]
    before = now.where(~fresh)
    same = (
        np.array_equal(before.ticks, seen.ticks)
        and np.array_equal(before.values, seen.values, equal_nan=True)
        and (
            seen.controls is None
            or (
                before.controls is not None
                and np.array_equal(before.controls, seen.controls, equal_nan=True)
            )
        )
    )
    return fresh if same else None
