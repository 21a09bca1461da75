"""Origins: rows that a window ends at, what it shows there, and what comes after.

All that a network reads and learns ahead of the last seen row, in its own units.
Nothing here loops over series or windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklode.data.observations import Observations
from sklode.data.scaling import constants_of, location_and_scale
from sklode.data.ticks import ticks_between

Array = NDArray[np.floating]
Numbers = NDArray[np.int64]

_TAIL = 0.05
_NORMAL = 3.29
"""The middle 90 % of normal values lie within so many standard deviations."""

_ENOUGH = 8
"""Values of a channel that a series needs for units of its own."""

_UNEQUAL = 100.0
"""Series whose spreads differ by more than so many times have units of their own."""


@dataclass(frozen=True)
class Units:
    """How values become those that a network reads: pooled, or of each series.

    Robust: the median, and the width of the middle 90 % of values.
    """

    time: float  # ticks of one unit: the median positive gap
    location: Array  # (channel,)
    scale: Array
    least: Array  # (channel,): what a logarithm takes smaller values for; NaN: none
    of_series: bool  # whether every series has a location and scale of its own
    control_location: Array  # (control,)
    control_scale: Array

    @classmethod
    def of(cls, observations: Observations, time: float, least: Array) -> Units:
        """Measure series; ``least`` above zero where a channel's logarithm is read."""
        n = observations.values.shape[1]
        units = cls(
            time, np.zeros(n), np.ones(n), least, False, np.zeros(0), np.ones(0)
        )
        values = units.plain(observations.values)
        location, scale = _robust(values)
        _, own_scale, known = _of_each(values, observations)
        of_series = False
        for channel in range(n):
            spreads = own_scale[known[:, channel], channel]
            spreads = spreads[spreads > 1e-6 * spreads.max(initial=0.0)]
            if len(spreads) > 1:
                low, high = np.quantile(spreads, [0.1, 0.9], method="nearest")
                of_series |= bool(high > _UNEQUAL * low)
        control: tuple[Array, Array] = np.zeros(0), np.ones(0)
        if observations.controls is not None:
            control = location_and_scale(observations.controls)
        return cls(time, location, scale, least, of_series, *control)

    def plain(self, values: Array) -> Array:
        """Return values, or their logarithms where those are read."""
        is_log = ~np.isnan(self.least)
        logs = np.log(np.maximum(values, np.where(is_log, self.least, 1.0)))
        result: Array = np.where(is_log & ~np.isnan(values), logs, values)
        return result

    def of_all(self, observations: Observations) -> tuple[Array, Array]:
        """Return location and scale of each series' channels, (series, channel)."""
        shape = len(observations.keys), len(self.location)
        location = np.broadcast_to(self.location, shape)
        scale = np.broadcast_to(self.scale, shape)
        if not self.of_series:
            return location, scale
        own = _of_each(self.plain(observations.values), observations)
        known = own[2] & (own[1] > 0)
        return np.where(known, own[0], location), np.where(known, own[1], scale)


class Questions(NamedTuple):
    """Values that are asked for, sorted by window."""

    window: Numbers  # (answer,)
    channel: Numbers
    lead: Array  # in units of time
    row: Numbers  # where they stand, -1 where nowhere

    def part(self, which: Any) -> Questions:
        """Return some of them."""
        return Questions(*[x[which] for x in self])


class Origins:
    """Rows of series in a network's units, and what stands before and after each."""

    def __init__(self, observations: Observations, units: Units) -> None:
        self.bounds, self.series = observations.bounds, observations.series
        first = observations.ticks[self.bounds[:-1]][self.series]
        self.times = ticks_between(first, observations.ticks) / units.time
        self.location, self.scale = units.of_all(observations)
        values = units.plain(observations.values)
        values = (values - self.location[self.series]) / self.scale[self.series]
        self.mask = ~np.isnan(values)
        self.values = np.where(self.mask, values, 0.0).astype(np.float32)
        self.controls = None
        if observations.controls is not None:
            shifted = observations.controls - units.control_location
            self.controls = (shifted / units.control_scale).astype(np.float32)

    def usable(self, fewest: int) -> Numbers:
        """Return the rows with so many up to them, and one after, in their series."""
        row = np.arange(len(self.times))
        seen = row - self.bounds[:-1][self.series] + 1
        return row[(seen >= fewest) & (row + 1 < self.bounds[1:][self.series])]

    def seen(
        self, origins: Numbers, n_rows: int
    ) -> tuple[Array, Array, NDArray[np.bool_], Array | None]:
        """Return windows' ages, values, mask and controls, (window, row, ...).

        The latest row comes first; those before a series' first one repeat it, masked.
        """
        first = self.bounds[:-1][self.series[origins], None]
        rows = origins[:, None] - np.arange(n_rows)
        inside = rows >= first
        rows = np.maximum(rows, first)
        ages = self.times[origins][:, None] - self.times[rows]
        controls = None if self.controls is None else self.controls[rows]
        mask = self.mask[rows] & inside[..., None]
        return ages.astype(np.float32), self.values[rows], mask, controls

    def after(self, origins: Numbers, reach: float) -> Questions:
        """Return every value observed after origins, up to so long."""
        stop = self.rows_until(origins, reach)
        count = stop - origins - 1
        window = np.repeat(np.arange(len(origins)), count)
        place = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        row = origins[window] + 1 + place
        entry, channel = np.nonzero(self.mask[row])
        window, row = window[entry], row[entry]
        lead = self.times[row] - self.times[origins[window]]
        return Questions(window, channel, lead, row)

    def rows_until(self, origins: Numbers, reach: float) -> Numbers:
        """Return the first row of each origin's series that comes later than that."""
        # series side by side on one axis, so that one search serves all
        width = float(self.times.max(initial=0.0)) + reach + 1.0
        axis = self.series * width + self.times
        asked = self.series[origins] * width + self.times[origins] + reach
        return np.searchsorted(axis, asked, side="right")

    def path(self, origins: Numbers, reach: float) -> tuple[Array, Array] | None:
        """Return times since the origins, and controls there, (window, row, ...)."""
        if self.controls is None:
            return None
        stop = np.minimum(
            self.rows_until(origins, reach) + 1, self.bounds[1:][self.series[origins]]
        )
        rows = origins[:, None] + np.arange(int((stop - origins).max()))
        rows = np.minimum(rows, stop[:, None] - 1)
        times = self.times[rows] - self.times[origins][:, None]
        return times.astype(np.float32), self.controls[rows]


def _robust(values: Array) -> tuple[Array, Array]:
    """Return medians and spreads of observed values, (channel,)."""
    location, scale = location_and_scale(values)
    known = ~np.isnan(values).all(0)
    if known.any():
        low, middle, high = np.nanquantile(
            values[:, known], [_TAIL, 0.5, 1 - _TAIL], axis=0
        )
        width = (high - low) / _NORMAL
        varies = np.isnan(constants_of(values[:, known])) & (width > 0)
        location[known] = np.where(varies, middle, location[known])
        scale[known] = np.where(varies, width, scale[known])
    return location, scale


def _of_each(
    values: Array, observations: Observations
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Return mean and spread of each series' channels, and where enough is known."""
    known = ~np.isnan(values)
    filled = np.where(known, values, 0.0)
    first = observations.bounds[:-1]
    count = np.add.reduceat(known.astype(float), first)
    mean = np.add.reduceat(filled, first) / np.maximum(count, 1)
    away = np.where(known, values - mean[observations.series], 0.0)
    most = np.maximum.reduceat(np.abs(away), first)  # a float need not hold squares
    away = away / np.where(most > 0, most, 1.0)[observations.series]
    spread = most * np.sqrt(np.add.reduceat(away**2, first) / np.maximum(count, 1))
    return mean, spread, count >= _ENOUGH
