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

from sklode.data.arrays import Array, Flags, Numbers
from sklode.data.observations import Observations
from sklode.data.scaling import location_and_scale, time_unit
from sklode.data.ticks import clock_ahead, ticks_between
from sklode.levels.components import Component, States, kalman
from sklode.levels.cross import MEMORIES, Cross
from sklode.levels.effects import Effect, Inputs, columns_of, places
from sklode.levels.fitting import fit_components
from sklode.levels.mixture import Mixture, Move, steps_of
from sklode.levels.periods import clock_periods, peaks
from sklode.levels.table import Table

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
    steps: Array  # (channel,), see `mixture.steps_of`
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
        unit = time_unit(observations.observed())
        steps, controls = steps_of(observations.values), observations.controls
        cross = Cross.none(len(steps))
        level = cls(unit, [], [], *location_and_scale(controls), [], steps, cross)
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
            if controls.shape[1]:
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
        return np.hstack([ahead, columns_of(self.effects, *self._controls(rows))])

    def _controls(self, rows: Observations) -> tuple[Numbers, Array, Array]:
        """Return bounds of series, times, and X in standard deviations."""
        times = self.times(rows, rows.series, rows.ticks)
        return rows.bounds, times, self.standard(rows.controls)

    def standard(self, controls: Array, columns: Any = ...) -> Array:
        """Return columns of X in standard deviations from their means."""
        scale = self.control_scale[columns]
        return (controls - self.control_location[columns]) / scale

    def times(self, rows: Observations, series: Numbers, ticks: Numbers) -> Array:
        """Return time since each series' first row, in units of the usual gap."""
        return ticks_between(rows.ticks[rows.bounds[series]], ticks) / self.unit

    def tables(
        self, observations: Observations, chosen: Flags | None = None
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
            component, _ = self.channels[channel].heaviest
            mixture = mixture.shifted(component.at(asked.series), shift)
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
        component = self.channels[channel].heaviest[0].at(asked.series[moved])
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


@dataclass(frozen=True)
class FilteredChannel:
    """One channel's components, its rows, and the states after them.

    What is asked of it is a `Table` of the same series.
    """

    components: list[Component]
    table: Table
    span: float
    states: list[States]
    sums: Array  # (series, memory), decayed, of the heaviest component's innovations

    @classmethod
    def of(
        cls, components: list[Component], table: Table, span: float
    ) -> FilteredChannel:
        """Filter the rows of a channel."""
        n = len(table.bounds) - 1
        own = [component.own(table, span) for component in components]
        states = [States.of([component.space(span)] * n) for component in own]
        sums = np.zeros((n, len(MEMORIES)))
        return cls(own, table.where(slice(0)), span, states, sums).continued(table)

    @property
    def heaviest(self) -> tuple[Component, States]:
        """The component of most weight, and its states."""
        pairs = zip(self.components, self.states, strict=True)
        return max(pairs, key=lambda pair: pair[0].weight)

    def continued(self, new: Table) -> FilteredChannel:
        """Return the level after more rows of its series, which follow those it has."""
        states = [states.copy() for states in self.states]
        # first rows have the states at the start
        since = np.where(self.table.lengths > 0, self._since(new), 0.0)
        for component, own in zip(self.components, states, strict=True):
            space, rows = component.space(self.span), component.in_units(new)
            found = component.filtered(space, rows, None, own, since)
            if component is self.heaviest[0]:
                innovations = found.innovations
        ends = np.maximum(self.table.ends, new.ends)
        sums = self.sums_at(ends)
        left = _faded(ends[new.series] - new.times)
        np.add.at(sums, new.series, innovations[:, None] * left)
        table = self.table.merged(new)[0] if len(self.table.times) else new
        return replace(self, table=table, states=states, sums=sums)

    def sums_at(self, times: Array) -> Array:
        """Return sums of innovations at times after each series' last row."""
        return self.sums * _faded(np.maximum(times - self._last, 0.0))

    def answered(self, asked: Table) -> Mixture:
        """Return the distribution of the noise-free signal."""
        means, variances = np.empty((2, len(self.components), len(asked.times)))
        inside = self._asked_inside(asked)[asked.series]
        ahead, past = asked.where(~inside), asked.where(inside)
        since = self._since(ahead)
        for k, component in enumerate(self.components):
            space, states = component.space(self.span), self.states[k].copy()
            if len(ahead.times):
                found = component.filtered(space, ahead, space.whole, states, since)
                means[k, ~inside] = found.signal[:, 0]
                variances[k, ~inside] = found.variance[:, 0]
            if len(past.times):
                signal, variance = self._smoothed(component, past, space.whole)
                means[k, inside], variances[k, inside] = signal[:, 0], variance[:, 0]
        each = [component.at(asked.series) for component in self.components]
        return Mixture.of(each, means, variances)

    def described(self, most: int) -> tuple[Component, Array]:
        """Return the parts at its last rows, given these alone, see `parts`."""
        last = self.table.where(slice(max(len(self.table.times) - most, 0), None))
        asked = last._replace(values=np.full(len(last.times), np.nan))
        return replace(self, table=last).parts(asked)

    def parts(self, asked: Table) -> tuple[Component, Array]:
        """Return the heaviest component and its parts, see `StateSpace.parts`.

        Parts are (row, part), in units of the states, given all rows.
        """
        component, _ = self.heaviest
        parts = component.space(self.span).parts
        signal, _ = self._smoothed(component, asked, parts)
        return component.at(asked.series), signal

    def drawn(self, asked: Table, n: int, seed: int, noise: bool) -> Array:
        """Return ``n`` joint draws of each series' values, (draw, row).

        Each comes from one component, as many from each as its weight says.
        """
        rng = np.random.default_rng(seed)
        weights = np.cumsum([component.weight for component in self.components])
        places = (rng.permutation(n) + 0.5) / n
        chosen = np.minimum(np.searchsorted(weights, places), len(weights) - 1)
        inside = self._asked_inside(asked)
        draws = np.empty((n, len(asked.times)))
        for k in np.unique(chosen):
            mine = np.flatnonzero(chosen == k)
            for series in np.flatnonzero(asked.lengths).tolist():
                component = self.components[k].at(series)._replace(apart=0.0)
                known, own = self.table.alone(series), asked.alone(series)
                alone = replace(self, components=[component], table=known)
                if inside[series]:
                    paths = alone._paths_inside(own, len(mine), rng)
                else:
                    a, P, _ = (each[series] for each in self.states[k])
                    start = _root(P) @ rng.standard_normal((len(a), len(mine)))
                    paths = alone._paths_ahead(own, a[:, None] + start, rng)
                if noise:
                    spread = component.noise**0.5
                    paths = paths + spread * rng.standard_normal(paths.shape)
                place = np.arange(*asked.bounds[series : series + 2])
                draws[np.ix_(mine, place)] = component.original(paths).T
        return draws

    def _paths_ahead(
        self, asked: Table, states: Array, rng: np.random.Generator
    ) -> Array:
        """Return draws of a lone series after its last row, (row, draw).

        ``states`` (state, draw) are those after the last row.
        """
        (component,), n = self.components, len(asked.times)
        given = component.given(component.space(self.span), asked)
        normals = rng.standard_normal((n, *states.shape))
        since, still = self._since(asked)[0], np.zeros(n)
        return kalman().simulate_rows(*given, since, states, still, normals)

    def _paths_inside(self, asked: Table, n: int, rng: np.random.Generator) -> Array:
        """Return draws of a lone series at any stamps, (row, draw).

        By simulation smoothing: Durbin and Koopman (2012), section 4.9.
        """
        (component,) = self.components
        rows, is_asked = component.in_units(self.table).merged(asked)
        space = component.space(self.span, self._leads(rows)[0])
        found = component.filtered(space, rows, space.whole)
        given = component.given(space, rows)
        states = _root(space.start) @ rng.standard_normal((len(space.start), n))
        normals = rng.standard_normal((len(rows.times), *states.shape))
        paths = kalman().simulate_rows(*given, 0.0, states, found.jumps, normals)
        known = found.inverse_F > 0
        spread = np.zeros(len(known))
        spread[known] = 1 / found.inverse_F[known] - found.variance[known, 0]
        spread = np.sqrt(np.maximum(spread, 0.0))[:, None]
        values = paths + spread * rng.standard_normal(paths.shape)
        # of what is linear, the difference tells the difference
        gains, left = np.ascontiguousarray(found.gains[:, 0]), rows.values[:, None]
        left = np.where(known[:, None], left - values, 0.0)
        expected = kalman().filter_columns(*given, found.inverse_F, gains, left)
        v_F = (left - expected) * found.inverse_F[:, None]
        more, _ = kalman().smooth_rows(*given, v_F, found.inverse_F, found.gains)
        paths += expected + more[:, 0]
        result: Array = paths[is_asked]
        return result

    def _smoothed(
        self, component: Component, asked: Table, parts: Array
    ) -> tuple[Array, Array]:
        """Return parts and their variances, (row, part), given all rows."""
        known = self.table.where((asked.lengths > 0)[self.table.series])
        rows, is_asked = component.in_units(known).merged(asked)
        leads = self._leads(rows)
        rows = rows.without_empty()
        spaces = {lead: component.space(self.span, lead) for lead in set(leads)}
        space, states = spaces[leads[0]], States.of([spaces[lead] for lead in leads])
        found = component.filtered(space, rows, parts, states)
        past = found.v_F[:, None], found.inverse_F, found.gains
        given = component.given(space, rows)
        more, less = kalman().smooth_rows(*given, *past)
        signal, variance = found.signal + more[..., 0], found.variance - less
        return signal[is_asked], variance[is_asked]

    def _leads(self, rows: Table) -> list[float]:
        """Return by how much rows begin before those of its series; of no empty one."""
        first = np.where(self.table.lengths > 0, self.table.starts, 0.0)
        return np.maximum(first - rows.starts, 0.0)[rows.lengths > 0].tolist()

    @property
    def _last(self) -> Array:
        """Time of each series' last row; 0 without one."""
        return np.maximum(self.table.ends, 0.0)

    def _since(self, new: Table) -> Array:
        """Return the time from each series' last row, or 0, to its first new one."""
        return np.where(new.lengths > 0, new.starts - self._last, 0.0)

    def _asked_inside(self, asked: Table) -> Flags:
        """Return which series are asked at, or before, their last row."""
        return asked.starts <= self._last


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


def _rows_after(seen: Observations, now: Observations) -> Flags | None:
    """Return which rows come after all that were seen; None if those have changed."""
    if seen.keys != now.keys:
        return None
    last = seen.ticks[seen.bounds[1:] - 1]
    fresh = now.ticks > last[now.series]
    before = now.where(~fresh)
    same = all(
        np.array_equal(getattr(before, name), getattr(seen, name), equal_nan=True)
        for name in ("ticks", "values", "controls")
    )
    return fresh if same else None


def _faded(passed: Array) -> Any:
    """Return what is left after some time, (time, memory)."""
    return np.exp(-passed[:, None] / np.array(MEMORIES))


def _root(covariance: Array) -> Any:
    """Return a square root of a covariance, which may be singular."""
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0))
