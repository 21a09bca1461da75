"""The model's units: times in time units, values in standard deviations.

What happened before a gap of a thousand time units says little of what follows it, and
a solver that walked through ten years between two hours would take as many steps. Such
a gap passes faster: its two ends at the usual pace, so that what is near an observation
is as far from it as elsewhere, and its middle in a fifth of the time that it counts.
Before the first observation and after the last one time is never shortened.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sklode.data.observations import Observations
from sklode.data.ticks import DAY, TIMELIKE, rows_before, ticks_between

Array = NDArray[np.floating]

_LONGEST_GAP = 1000.0
"""In time units. Longer gaps hide the phase of any period that stamps can show."""

_LONGEST_MEAN_GAP = 10.0
"""The longest gap is shorter where else gaps were longer than this on average."""

_END = 0.4
"""Share of a shortened gap that passes at the usual pace, at each of its ends."""


@dataclass(frozen=True)
class Timeline:
    """From ticks to time units."""

    unit: float  # ticks of one time unit
    longest_gap: float  # in time units: as much a longer one counts

    @classmethod
    def of(cls, observations: Observations) -> Timeline:
        """Measure the gaps of ``observations``, pooled over series.

        The unit is the median positive gap; without any gap it is one day, or one tick
        where ticks are not time.
        """
        gaps = observations.gaps
        gaps = gaps[gaps > 0]
        if not len(gaps):
            lone = DAY if observations.clock == TIMELIKE else 1
            return cls(float(lone), _LONGEST_GAP)
        unit = float(np.median(gaps))
        gaps = np.sort(gaps / unit)
        if gaps[-1] <= _LONGEST_GAP:
            return cls(unit, _LONGEST_GAP)
        # the largest bound under which the mean is what it may be
        room = _LONGEST_MEAN_GAP * len(gaps) - np.cumsum(gaps)
        n_longer = len(gaps) - 1 - np.arange(len(gaps))
        bounds = room[:-1] / n_longer[:-1]
        fits = np.flatnonzero(bounds >= gaps[:-1])
        longest = bounds[fits[-1]] if len(fits) else _LONGEST_MEAN_GAP
        return cls(unit, float(min(longest, _LONGEST_GAP)))

    def of_rows(self, observations: Observations) -> NDArray[np.float64]:
        """Return the time of each row since its series' first stamp, (row,)."""
        ticks = observations.ticks
        row = np.arange(len(ticks))
        first = np.repeat(observations.bounds[:-1], observations.lengths)
        is_long = observations.gaps / self.unit > self.longest_gap
        # counted from the last long gap: what is added up is never large
        after_long = np.append(False, is_long)
        start = np.maximum.accumulate(np.where(after_long | (row == first), row, 0))
        within = ticks_between(ticks[start], ticks) / self.unit
        jumps = np.where(after_long, np.append(0.0, within[:-1]) + self.longest_gap, 0)
        total = np.cumsum(jumps)
        return total - total[first] + within

    def at(
        self,
        observations: Observations,
        series: NDArray[np.int64],
        ticks: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        """Return the times of any stamps since their series' first one, (stamp,).

        They increase with the stamps, and are negative before the series' first one.
        ``series`` are the numbers of the stamps' series.
        """
        known, bounds = observations.ticks, observations.bounds
        first = bounds[:-1][series]
        gaps = np.append(observations.gaps / self.unit, 0.0)
        if not (gaps > self.longest_gap).any():
            return ticks_between(known[first], ticks) / self.unit
        row = np.maximum(rows_before(bounds, known, series, ticks), first)
        since = ticks_between(known[row], ticks) / self.unit
        gap = gaps[row]  # 0 after a series' last row
        end = _END * self.longest_gap
        slow = np.maximum(gap - 2 * end, 1.0)  # how long its middle is
        passed = np.minimum(since, end)
        passed += np.clip(since - end, 0, slow) * (self.longest_gap - 2 * end) / slow
        passed += np.maximum(since - end - slow, 0)
        passed = np.where(gap > self.longest_gap, passed, since)
        return self.of_rows(observations)[row] + passed


@dataclass(frozen=True)
class Normalisation:
    """Location and scale of channels and controls, from the training rows.

    Mean and standard deviation over observed values; the scale of a constant is its
    size, 1 where it is zero.
    """

    location: Array  # (channel,)
    scale: Array
    control_location: Array  # (control,)
    control_scale: Array

    @classmethod
    def of(cls, observations: Observations) -> Normalisation:
        """Measure ``observations``."""
        location, scale = location_and_scale(observations.values)
        if observations.controls is None:
            return cls(location, scale, np.zeros(0), np.ones(0))
        return cls(location, scale, *location_and_scale(observations.controls))

    def values(self, values: Array) -> Array:
        """Return y's values in normalised units."""
        return (values - self.location) / self.scale

    def controls(self, controls: Array) -> Array:
        """Return X's values in normalised units."""
        return (controls - self.control_location) / self.control_scale

    def original(self, values: Array) -> Array:
        """Return normalised values of y in original units."""
        return values * self.scale + self.location


def constants_of(values: Array) -> Array:
    """Return the constants of (row, channel); NaN where one varies or has no value."""
    missing = np.isnan(values)
    low = np.where(missing, np.inf, values).min(0, initial=np.inf)
    high = np.where(missing, -np.inf, values).max(0, initial=-np.inf)
    size = np.maximum(np.abs(low), np.abs(high))
    # what rounding leaves of equal numbers; halved, the distance of large ones is one
    rounding = 4 * np.finfo(np.float64).eps * size
    constant = ~missing.all(0) & (high / 2 - low / 2 <= rounding)
    return np.where(constant, high, np.nan)


def location_and_scale(values: Array) -> tuple[Array, Array]:
    """Return mean and standard deviation of observed values, (channel,), or a size."""
    observed = ~np.isnan(values)
    count = np.maximum(observed.sum(0), 1)
    # divided first: the sum of values near the largest float must not overflow
    location = np.where(observed, values / count, 0.0).sum(0)
    constants = constants_of(values)
    constant = ~np.isnan(constants)
    location = np.where(constant, constants, location)
    deviation = np.where(observed, values - location, 0.0)
    largest = np.abs(deviation).max(0, initial=0.0)
    unit = np.where(largest > 0, largest, 1.0)
    scale = unit * np.sqrt(((deviation / unit) ** 2).sum(0) / count)
    scale = np.where(constant, np.abs(location), scale)
    return location, np.where(scale == 0, 1.0, scale)
