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
from sklode.data.scaling import Timeline
from sklode.data.ticks import ticks_between
from sklode.levels.channel import ChannelLevel
from sklode.levels.components import Component, heaviest
from sklode.levels.cross import Cross
from sklode.levels.fitting import fit_components
from sklode.levels.forms import BASE, Form
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
        unit = Timeline.of(observations).unit
        none = Cross.none(observations.values.shape[1])
        level = cls(unit, [], [], *_standard(observations.controls), none)
        tables = level.tables(observations)
        longest = max(float(table.spans.max(initial=0)) for table in tables)
        if isinstance(seasons, str):
            clock = clock_periods(observations, unit, longest * unit)
        else:
            clock = list(seasons)
        for table in tables:
            spans = table.spans[table.spans > 0]
            span = float(np.median(spans)) if len(spans) else max(longest, 1.0)
            periods = {period / unit: _doubt(period / unit) for period in clock}
            if isinstance(seasons, str):
                periods |= _others(table, list(periods))
            level.channels.append(fit_components(table, span, periods, logarithm))
            level.spans.append(span)
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

    def parts(self) -> dict[str, Any]:
        """Return what it is made of, as numbers, texts, lists and arrays."""
        channels = [
            [{**one._asdict(), "form": [*one.form]} for one in components]
            for components in self.channels
        ]
        for component in (one for components in channels for one in components):
            periods, logarithm, n_controls = component["form"]
            component["form"] = [list(periods), logarithm, n_controls]
        return {**vars(self), "channels": channels, "cross": self.cross._asdict()}

    @classmethod
    def of_parts(
        cls, channels: list[Any], cross: dict[str, Any], **others: Any
    ) -> StructuralLevel:
        """Return the level of `parts`; a ValueError where there can be none."""
        made = []
        for components in channels:
            made.append([_component(**parts) for parts in components])
            weights = [component.weight for component in made[-1]]
            if not weights or not math.isclose(sum(weights), 1.0, rel_tol=1e-6):
                raise ValueError(f"weights must add up to one; got {weights}")
        level = cls(channels=made, cross=Cross.of_parts(**cross), **others)
        scales = level.unit, *level.spans, *level.control_scale
        if not all(0 < scale < math.inf for scale in scales):
            raise ValueError(f"units and spans must be above zero; got {scales}")
        if not len(level.spans) == len(level.cross.fades) == len(made):
            raise ValueError(f"{len(made)} channels have {len(level.spans)} spans")
        return level

    def controls(self, values: Array) -> Array:
        """Return controls as the coefficients read them."""
        return (values - self.control_location) / self.control_scale

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
        first = observations.ticks[observations.bounds[:-1]]
        times = ticks_between(first[series], observations.ticks) / self.unit
        controls: Array = np.zeros((len(times), 0))
        if observations.controls is not None:
            controls = self.controls(observations.controls)
        tables = []
        for values in observations.values.T:
            known = ~np.isnan(values) | every_row
            if chosen is not None:
                known &= chosen
            counts = np.bincount(series[known], minlength=len(observations.keys))
            bounds = np.append(0, np.cumsum(counts))
            tables.append(Table(times[known], values[known], controls[known], bounds))
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
        if fresh is None:
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
            mixture = mixture.shifted(heaviest(self.level.channels[channel]), shift)
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
            component, moved = heaviest(self.level.channels[channel]), shift != 0
            scaled = component.scaled(draws[:, moved]) + shift[moved]
            draws[:, moved] = component.original(scaled)
        if move is None:
            return draws
        return move.of(draws, self.answered(channel, queries).medians())

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


def _component(form: Any, **others: Any) -> Component:
    """Return a component whose hyperparameters fit its form, and are finite."""
    periods, logarithm, n_controls = form
    component = Component(Form(tuple(periods), logarithm, n_controls), **others)
    n = len(BASE) + 2 * len(periods)
    if component.logs.shape != (n,) or not np.isfinite(component.logs).all():
        raise ValueError(f"{n} finite hyperparameters are needed; got {component.logs}")
    sizes = component.weight, component.scale, *periods
    if not (all(size > 0 for size in sizes) and math.isfinite(component.location)):
        raise ValueError(f"weight, scale and periods must be above zero; got {sizes}")
    return component


def _standard(controls: Array | None) -> tuple[Array, Array]:
    """Return means and standard deviations; 1 of what does not vary."""
    if controls is None:
        return np.zeros(0), np.ones(0)
    unit = power_of_two(controls)
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
