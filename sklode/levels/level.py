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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklode.data.observations import Observations
from sklode.data.scaling import location_and_scale, time_unit
from sklode.data.ticks import clock_ahead, ticks_between
from sklode.levels.channel import FilteredChannel
from sklode.levels.components import Component, heaviest
from sklode.levels.cross import Cross
from sklode.levels.effects import Effect, Inputs, columns_of, places
from sklode.levels.fitting import fit_components
from sklode.levels.floors import steps_of
from sklode.levels.mixture import Mixture, Move
from sklode.levels.periods import clock_periods, peaks
from sklode.levels.table import Table

__all__ = ["Filtered", "Level"]

Array = NDArray[np.floating]
Numbers = NDArray[np.int64]

_SHORT = 12.0  # usual gaps: seasons up to that length are no surprise


@dataclass(frozen=True)
class Level:
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
    ) -> Level:
        """Find the hyperparameters of each channel, pooled over series.

        ``seasons`` are periods in ticks, each of which is taken where the data ask for
        it; "auto": those of the clock and of a periodogram.
        """
        unit = time_unit(observations.where(observations.is_observed))
        steps, controls = steps_of(observations.values), observations.controls
        given = np.zeros((1, 0)) if controls is None else controls
        cross = Cross.none(len(steps))
        level = cls(unit, [], [], *location_and_scale(given), [], steps, cross)
        tables = level.tables(observations)
        longest = max(float(table.spans.max(initial=0)) for table in tables)
        if isinstance(seasons, str):
            clock = clock_periods(observations, unit, longest * unit)
        else:
            clock = list(seasons)
        found, spans = [], []
        channels: list[list[Component]] = []
        for table, values in zip(tables, observations.values.T, strict=True):
            some = table.spans[table.spans > 0]
            spans.append(float(np.median(some)) if len(some) else max(longest, 1.0))
            periods = {period / unit: _log_odds(period / unit) for period in clock}
            if isinstance(seasons, str):
                periods |= _other_periods(table, list(periods))
            X = None
            if controls is not None:
                known = np.flatnonzero(~np.isnan(values))
                X = Inputs(*level._controls(observations), known)
            found.append(fit_components(table, spans[-1], periods, logarithm, X))
        effects = sorted({e for each in found for _, own in each for e in own})
        columns = places(effects)
        for each in found:
            channels.append([])
            for one, own in each:
                reads = tuple(columns[effect] for effect in own)
                form = one.form._replace(effects=reads)
                channels[-1].append(one._replace(form=form))
        level = replace(level, channels=channels, spans=spans, effects=effects)
        if effects:
            tables = level.tables(observations)
        return replace(level, cross=Cross.fit(channels, spans, tables))

    def filtered(self, observations: Observations) -> Filtered:
        """Return what it knows of series, of those it was fit on or others."""
        tables = self.tables(observations)
        each = zip(self.channels, tables, self.spans, strict=True)
        return Filtered(self, observations, [FilteredChannel.of(*one) for one in each])

    def inputs(self, rows: Observations) -> Array:
        """Return what `kalman` reads beside times, (row, 1 + column), at rows of X."""
        ahead = clock_ahead(rows.ticks, rows.like)[:, None] / self.unit
        if rows.controls is None:
            return ahead
        return np.hstack([ahead, columns_of(self.effects, *self._controls(rows))])

    def _controls(self, rows: Observations) -> tuple[Numbers, Array, Array]:
        """Return bounds of series, times, and X in standard deviations."""
        controls: Any = rows.controls
        standard = (controls - self.control_location) / self.control_scale
        return rows.bounds, self.times(rows, rows.series, rows.ticks), standard

    def times(self, rows: Observations, series: Numbers, ticks: Numbers) -> Array:
        """Return time since each series' first row, in units of the usual gap."""
        return ticks_between(rows.ticks[rows.bounds[series]], ticks) / self.unit

    def tables(
        self, observations: Observations, chosen: NDArray[np.bool_] | None = None
    ) -> list[Table]:
        """Return the observed rows of each channel; of ``chosen`` rows, if given."""
        series, n_series = observations.series, len(observations.keys)
        times = self.times(observations, series, observations.ticks)
        inputs, tables = self.inputs(observations), []
        for values in observations.values.T:
            known = ~np.isnan(values)
            known &= True if chosen is None else chosen
            rows = series[known], times[known], values[known], inputs[known]
            tables.append(Table.of(*rows, n_series))
        return tables


@dataclass(frozen=True)
class Filtered:
    """A level with the states of series after their rows."""

    level: Level
    observations: Observations
    channels: list[FilteredChannel]

    def updated(self, observations: Observations) -> Filtered:
        """Return the same once more rows were seen: only those are filtered.

        All are, where an earlier one is another now, or a series is new.
        """
        fresh = _rows_after(self.observations, observations)
        # more rows change what is known of the scale of a series
        apart = any(one.apart for each in self.level.channels for one in each)
        if fresh is None or apart:
            return self.level.filtered(observations)
        tables = self.level.tables(observations, fresh)
        pairs = zip(self.channels, tables, strict=True)
        channels = [channel.continued(table) for channel, table in pairs]
        return Filtered(self.level, observations, channels)

    def answered(self, channel: int, asked: Table, move: Move | None = None) -> Mixture:
        """Return the distribution of a channel's noise-free signal.

        Moved, where a network says so.
        """
        mixture = self.channels[channel].answered(asked)
        shift = self._shift(channel, asked)
        if shift.any():
            one = heaviest(self.channels[channel].components).at(asked.series)
            mixture = mixture.shifted(one, shift)
        return mixture if move is None else mixture.moved(move)

    def drawn(
        self,
        channel: int,
        asked: Table,
        n: int,
        seed: int,
        noise: bool,
        move: Move | None = None,
    ) -> Array:
        """Return draws of a channel, see `FilteredChannel.drawn`."""
        draws = self.channels[channel].drawn(asked, n, seed, noise)
        shift = self._shift(channel, asked)
        moved = shift != 0
        component = heaviest(self.channels[channel].components)
        component = component.at(asked.series[moved])
        scaled = component.scaled(draws[:, moved]) + shift[moved]
        draws[:, moved] = component.original(scaled)
        if move is None:
            return draws
        return move.of(draws, self.answered(channel, asked).points())

    def _shift(self, channel: int, asked: Table) -> Array:
        """Return what all channels say about one's forecasts, (row,)."""
        if not self.level.cross.weights[:, :, channel].any():
            return np.zeros(len(asked.times))
        ends = np.max([one.table.ends for one in self.channels], axis=0)
        ends = np.maximum(ends, 0.0)
        sums = np.stack([one.sums_at(ends) for one in self.channels], axis=1)
        ahead = asked.times - ends[asked.series]
        return self.level.cross.shift(channel, sums[asked.series], ahead)


def _log_odds(period: float) -> float:
    """Return what a season takes off the logarithm of the probability of a form.

    Long ones, of many free harmonics, ask for more; those of a few stamps for nothing.
    """
    return math.log(max(period / _SHORT, 1.0))


def _other_periods(table: Table, clock: list[float]) -> dict[float, float]:
    """Return periods of the longest series that cannot be told to be a clock's.

    Each with its log odds: it was picked out of about as many frequencies as there are
    pairs of rows.
    """
    longest = table.alone(int(table.lengths.argmax()))
    found = peaks(longest.times, longest.values, 1.0)
    near = 1 / max(float(np.ptp(longest.times)), 1.0)  # what a span can tell apart
    log_odds = math.log(max(len(longest.times), 2) / 2)
    return {
        period: log_odds
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
    pairs = [(before.ticks, seen.ticks), (before.values, seen.values)]
    if seen.controls is not None and before.controls is not None:
        pairs.append((before.controls, seen.controls))
    same = all(np.array_equal(*pair, equal_nan=True) for pair in pairs)
    return fresh if same else None
