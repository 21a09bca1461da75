"""The model's units: times in time units, values in standard deviations."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sklode.data.observations import Observations
from sklode.data.ticks import DAY, TIMELIKE

Array = NDArray[np.floating]

LONGEST_GAP = 1000.0
"""In time units. Longer gaps hide the phase of any period that stamps can show."""


def time_unit(observations: Observations, most: float = np.inf) -> float:
    """Return the ticks of one time unit: the median positive gap, of all series.

    It is larger where gaps, those that `split_at_gaps` leaves, were else longer than
    ``most`` units on average. Without any gap it is one day, or one tick where ticks
    are not time.
    """
    gaps = observations.gaps
    gaps = gaps[gaps > 0]
    if not len(gaps):
        return float(DAY if observations.clock == TIMELIKE else 1)
    unit = np.median(gaps)
    return float(max(unit, gaps[gaps <= LONGEST_GAP * unit].mean() / most))


def split_at_gaps(observations: Observations, unit: float) -> Observations:
    """Return the rows between gaps of more than `LONGEST_GAP` as series of their own.

    What was observed before such a gap says little of what follows it, and a solver
    that walked through ten years between two hours would take as many steps.
    """
    is_long = observations.gaps > LONGEST_GAP * unit
    bounds = np.union1d(observations.bounds, np.flatnonzero(is_long) + 1)
    keys = tuple(observations.keys[k] for k in observations.series[bounds[:-1]])
    return replace(observations, bounds=bounds, keys=keys)


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
        values, controls = observations.values, observations.controls
        controls = np.zeros((0, 0)) if controls is None else controls
        return cls(*location_and_scale(values), *location_and_scale(controls))

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
