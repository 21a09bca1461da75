"""The model's units: times in time units, values in standard deviations."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sklode.data.arrays import Array, Numbers
from sklode.data.links import IDENTITY, Link
from sklode.data.observations import Observations
from sklode.data.ticks import DAY, TIMELIKE

_LONGEST_GAP = 1000.0  # time units; longer ones hide any phase
# the middle 90 % of normal values are twice 1.645 deviations wide
_TAIL, _NORMAL = 0.05, 3.29
# series have own units where spreads of so many values differ so many times
_ENOUGH, _UNEQUAL = 8, 100.0
_LEAST_SPREAD = 1e-6  # of the largest one: smaller ones count as those of constants
# of absolute errors, and what they are of standard normal ones: those of 0.75 and 0.95
_QUANTILES, _NORMAL_QUANTILES = (0.5, 0.9), (0.6745, 1.6449)


def time_unit(observations: Observations, most: float = np.inf) -> float:
    """Return the ticks of one time unit: the median positive gap, of all series.

    More where gaps that are not split were else longer than ``most`` on average.
    Without any gap it is a day, or one tick where ticks are not time.
    """
    gaps = observations.gaps
    gaps = gaps[gaps > 0]
    if not len(gaps):
        return float(DAY if observations.clock == TIMELIKE else 1)
    unit = np.median(gaps)
    usual = gaps[gaps <= _LONGEST_GAP * unit].mean()
    return float(max(unit, usual / most))


def split_at_gaps(observations: Observations, unit: float) -> Observations:
    """Return the rows between gaps of more than 1000 units as series."""
    is_long = observations.gaps > _LONGEST_GAP * unit
    bounds = np.union1d(observations.bounds, np.flatnonzero(is_long) + 1)
    keys = tuple(observations.keys[k] for k in observations.series[bounds[:-1]])
    return replace(observations, bounds=bounds, keys=keys)


@dataclass(frozen=True)
class Units:
    """How times, values and controls become a network's."""

    time: float  # ticks of one unit
    location: Array  # (channel,), of all series
    scale: Array
    control_location: Array  # (control,)
    control_scale: Array
    links: tuple[Link, ...]  # (channel,): what values are read as
    of_series: bool = False  # whether each series has units of its own

    @classmethod
    def of(cls, observations: Observations, time: float) -> Units:
        """Measure mean and deviation; of a constant its size, of zeros 1."""
        location, scale = location_and_scale(observations.values)
        control_location, control_scale = location_and_scale(observations.controls)
        return cls(
            time=time,
            location=location,
            scale=scale,
            control_location=control_location,
            control_scale=control_scale,
            links=(IDENTITY,) * len(location),
        )

    @classmethod
    def robust(
        cls, observations: Observations, time: float, links: tuple[Link, ...]
    ) -> Units:
        """Measure the median, and the width of the middle 90 %."""
        values = plain(observations.values, links)
        found = cls.of(replace(observations, values=values), time)
        location, scale = found.location, found.scale
        varies = np.isnan(constants_of(values)) & ~np.isnan(values).all(0)
        for k in np.flatnonzero(varies):
            low, median, high = np.nanquantile(values[:, k], [_TAIL, 0.5, 1 - _TAIL])
            if high > low:
                location[k], scale[k] = median, (high - low) / _NORMAL
        _, scales, count = _of_each(values, observations.bounds)
        of_series = False
        for spreads in np.where(count >= _ENOUGH, scales, 0.0).T:
            varied = spreads[spreads > _LEAST_SPREAD * spreads.max()]
            if len(varied):
                # deciles: one odd series must not give all others units of their own
                low, high = np.quantile(varied, [0.1, 0.9], method="nearest")
                of_series |= bool(high > _UNEQUAL * low)
        return replace(found, links=links, of_series=of_series)

    def of_all(self, observations: Observations) -> tuple[Array, Array]:
        """Return each series' location and scale, (series, channel)."""
        shape = len(observations.keys), len(self.location)
        location = np.broadcast_to(self.location, shape)
        scale = np.broadcast_to(self.scale, shape)
        if not self.of_series:
            return location, scale
        values = plain(observations.values, self.links)
        mean, spreads, count = _of_each(values, observations.bounds)
        known = (count >= _ENOUGH) & (spreads > 0)
        return np.where(known, mean, location), np.where(known, spreads, scale)

    def controls(self, controls: Array) -> Array:
        """Return X's values in these units."""
        return (controls - self.control_location) / self.control_scale

    def original(self, values: Array) -> Array:
        """Return values of y in original units, which all series share."""
        return values * self.scale + self.location


def plain(values: Array, links: tuple[Link, ...]) -> Array:
    """Return what values (row, channel) are linked to."""
    pairs = zip(links, values.T, strict=True)
    return np.stack([link.of(column) for link, column in pairs], axis=1)


def _of_each(values: Array, bounds: Numbers) -> tuple[Array, Array, Array]:
    """Return mean, deviation and count of values, (series, channel)."""
    known = ~np.isnan(values)
    first, lengths = bounds[:-1], np.diff(bounds)
    count = np.add.reduceat(known.astype(float), first)
    some = np.maximum(count, 1)
    # divided first: sums of large floats overflow
    share = np.where(known, values / np.repeat(some, lengths, 0), 0.0)
    mean = np.add.reduceat(share, first)
    away = np.where(known, values - np.repeat(mean, lengths, 0), 0.0)
    most = np.maximum.reduceat(np.abs(away), first)  # squares may overflow
    most = np.where(most > 0, most, 1.0)
    squares = (away / np.repeat(most, lengths, 0)) ** 2
    return mean, most * np.sqrt(np.add.reduceat(squares, first) / some), count


def constants_of(values: Array) -> Array:
    """Return constants of (row, channel); NaN where one varies or is empty."""
    missing = np.isnan(values)
    low = np.where(missing, np.inf, values).min(0, initial=np.inf)
    high = np.where(missing, -np.inf, values).max(0, initial=-np.inf)
    size = np.maximum(np.abs(low), np.abs(high))
    # what rounding leaves of equal numbers; halved, as differences may overflow
    rounding = 4 * np.finfo(np.float64).eps * size
    constant = ~missing.all(0) & (high / 2 - low / 2 <= rounding)
    return np.where(constant, high, np.nan)


def location_and_scale(values: Array) -> tuple[Array, Array]:
    """Return mean and deviation of values, (channel,), or a size."""
    (location,), (scale,), _ = _of_each(values, np.array([0, len(values)]))
    constants = constants_of(values)
    varies = np.isnan(constants)
    scale = np.where(varies, scale, np.abs(constants))
    return np.where(varies, location, constants), np.where(scale == 0, 1.0, scale)


def normal_scale(sizes: Array) -> float:
    """Return the scale of normal errors with such absolute quantiles."""
    return float(np.mean(np.quantile(sizes, _QUANTILES) / _NORMAL_QUANTILES))
