"""The networks' units: times in time units, values in standard deviations.

How series of a panel differ to the structural model says `structural.scaling`.
"""

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
# of the largest spread: smaller ones count as those of constants
_LEAST_SPREAD = 1e-6
# Of absolute errors, and what they are of standard normal ones: half of
# these are below the quantile of 0.75, nine tenths below that of 0.95.
_QUANTILES, _NORMAL_QUANTILES = (0.5, 0.9), (0.6745, 1.6449)


def time_unit(observations: Observations, most: float = np.inf) -> float:
    """Return the ticks of one time unit: the median positive gap, of all series.

    More where gaps that are not split were else longer
    than ``most`` on average. Without any gap it is a day,
    or one tick where ticks are not time.
    """
    gaps = observations.gaps
    gaps = gaps[gaps > 0]
    if not len(gaps):
        return float(DAY if observations.clock == TIMELIKE else 1)
    unit = np.median(gaps)
    usual = gaps[gaps <= _LONGEST_GAP * unit].mean()
    # in a unit of usual / most, usual gaps are `most` units long
    return float(max(unit, usual / most))


def split_at_gaps(observations: Observations, unit: float) -> Observations:
    """Return the rows between gaps of more than 1000 units as series."""
    is_long = observations.gaps > _LONGEST_GAP * unit
    # gap k is before row k + 1, where the next piece begins
    bounds = np.union1d(observations.bounds, np.flatnonzero(is_long) + 1)
    of_piece = observations.series[bounds[:-1]]
    keys = tuple(observations.keys[k] for k in of_piece)
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
        location, scale = found.location.copy(), found.scale.copy()
        is_empty = np.isnan(values).all(axis=0)
        varies = np.isnan(constants_of(values)) & ~is_empty
        quantiles = [_TAIL, 0.5, 1 - _TAIL]
        for k in np.flatnonzero(varies):
            low, median, high = np.nanquantile(values[:, k], quantiles)
            # of a channel that is nearly always one value
            # mean and deviation stay
            if high > low:
                location[k] = median
                scale[k] = (high - low) / _NORMAL
        _, spreads, counts = _of_each(values, observations.bounds)
        # spreads of few values are not compared,
        # as those of constants are not
        spreads = np.where(counts >= _ENOUGH, spreads, 0.0)
        are_unequal = [_are_unequal(of_channel) for of_channel in spreads.T]
        return replace(
            found,
            location=location,
            scale=scale,
            links=links,
            of_series=any(are_unequal),
        )

    def of_all(self, observations: Observations) -> tuple[Array, Array]:
        """Return each series' location and scale, (series, channel)."""
        shape = (len(observations.keys), len(self.location))
        location = np.broadcast_to(self.location, shape)
        scale = np.broadcast_to(self.scale, shape)
        if not self.of_series:
            return location, scale
        values = plain(observations.values, self.links)
        means, spreads, counts = _of_each(values, observations.bounds)
        has_own = (counts >= _ENOUGH) & (spreads > 0)
        location = np.where(has_own, means, location)
        return location, np.where(has_own, spreads, scale)

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


def _are_unequal(spreads: Array) -> bool:
    """Return whether spreads (series,) ask for units of each series."""
    varied = spreads[spreads > _LEAST_SPREAD * spreads.max()]
    if not len(varied):
        return False
    # deciles: one odd series must not give all others units of their own
    low, high = np.quantile(varied, [0.1, 0.9], method="nearest")
    return bool(high > _UNEQUAL * low)


def _of_each(values: Array, bounds: Numbers) -> tuple[Array, Array, Array]:
    """Return mean, deviation and count of values, (series, channel)."""
    known = ~np.isnan(values)
    first, lengths = bounds[:-1], np.diff(bounds)

    def at_rows(of_series: Array) -> Array:
        return np.repeat(of_series, lengths, axis=0)

    counts = np.add.reduceat(known.astype(float), first)
    at_least_one = np.maximum(counts, 1)
    # divided first: sums of large floats overflow
    shares = np.where(known, values / at_rows(at_least_one), 0.0)
    means = np.add.reduceat(shares, first)
    away = np.where(known, values - at_rows(means), 0.0)
    # in the largest distance as the unit: squares of large floats overflow,
    # those of tiny ones vanish
    farthest = np.maximum.reduceat(np.abs(away), first)
    farthest = np.where(farthest > 0, farthest, 1.0)
    squares = (away / at_rows(farthest)) ** 2
    variances = np.add.reduceat(squares, first) / at_least_one
    return means, farthest * np.sqrt(variances), counts


def constants_of(values: Array) -> Array:
    """Return constants of (row, channel); NaN where one varies or is empty."""
    missing = np.isnan(values)
    # infinities stand for what is missing, and for the least of no values
    low = np.where(missing, np.inf, values).min(axis=0, initial=np.inf)
    high = np.where(missing, -np.inf, values).max(axis=0, initial=-np.inf)
    size = np.maximum(np.abs(low), np.abs(high))
    # what rounding leaves of equal numbers;
    # halved, as differences may overflow
    rounding = 4 * np.finfo(np.float64).eps * size
    are_equal = high / 2 - low / 2 <= rounding
    is_constant = ~missing.all(axis=0) & are_equal
    return np.where(is_constant, high, np.nan)


def location_and_scale(values: Array) -> tuple[Array, Array]:
    """Return mean and deviation of values, (channel,), or a size."""
    as_one_series = np.array([0, len(values)])
    (means,), (deviations,), _ = _of_each(values, as_one_series)
    constants = constants_of(values)
    varies = np.isnan(constants)
    location = np.where(varies, means, constants)
    scale = np.where(varies, deviations, np.abs(constants))
    # of what is zero everywhere, or never seen
    return location, np.where(scale == 0, 1.0, scale)


def normal_scale(sizes: Array) -> float:
    """Return the scale of normal errors with such absolute quantiles."""
    scales = np.quantile(sizes, _QUANTILES) / _NORMAL_QUANTILES
    return float(np.mean(scales))
