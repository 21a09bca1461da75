"""Scalings: what a column's states are in units of, and how series differ by it.

Tested in tests/structural/test_panels.py and search/test_groups.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sklode.data.arrays import Array, Numbers
from sklode.data.links import IDENTITY, LEAST, Link
from sklode.structural.rows import ChannelRows

# of the usual value: what logarithms take zero and less for
_LOWEST = 1e-9
# what makes the median deviation of normal values a standard deviation: 1 over their
# upper quartile (Huber 1981, section 5.1)
_TO_DEVIATION = 1.4826


class LocationScale(NamedTuple):
    """Location and scale of y, or of what it is linked to: units of the states."""

    location: Array  # (1,) of all series, or (series,), or (row,)
    scale: Array

    def at(self, series: Numbers) -> LocationScale:
        """Return those of rows of some series, (row,)."""
        return LocationScale(self.location[series], self.scale[series])


class RandomEffects(NamedTuple):
    """How series of a panel differ: by location and scale, drawn for each of them."""

    spread: float  # standard deviation of logarithms of scales
    has_location: bool = False  # each series has a location of its own
    in_proportion: bool = False  # locations of series are, to their scales
    distance: float = np.nan  # usual one of locations, in scales; NaN: the form's


class Scaling(NamedTuple):
    """From y to the units of the states: (link of y - location) / scale."""

    location: float = 0.0  # of a usual series; see `units`
    scale: float = 1.0
    link: Link = IDENTITY
    random_effects: RandomEffects | None = None  # None: all series share one
    of_series: LocationScale | None = None  # each one's own, see `Candidate.own`
    cost: float = 0.0  # what these add to a loss
    smearing: float = 1.0  # from medians to what can be summed, see `smearing_factor`
    error: float = 0.0  # the usual one of measurement, in units of the states

    @property
    def units(self) -> LocationScale:
        """Location and scale of each series, or of all."""
        if self.of_series is not None:
            return self.of_series
        return LocationScale(np.array([self.location]), np.array([self.scale]))

    def times(self, factor: float) -> Scaling:
        """Return it with units so many times as large."""
        if factor == 1:
            return self
        found = self._replace(scale=factor * self.scale)
        if self.of_series is None:
            return found
        location, scale = self.of_series
        return found._replace(of_series=LocationScale(location, factor * scale))

    def ratios(self, n_series: int) -> Array:
        """Return how many of each series' units the usual one is, (series,)."""
        return np.broadcast_to(self.scale / self.units.scale, n_series)

    def at(self, series: Numbers) -> Scaling:
        """Return it with the location and scale of each row, of some series."""
        if self.of_series is None:
            return self
        return self._replace(of_series=self.of_series.at(series))

    def alone(self, series: int) -> Scaling:
        """Return it with the location and scale of one series."""
        one = self._replace(random_effects=None, of_series=None)
        if self.of_series is None:
            return one
        location, scale = self.of_series
        return one._replace(
            location=float(location[series]), scale=float(scale[series])
        )

    def scaled(self, values: Array) -> Array:
        """Return values in the units of the states."""
        linked = self.link.of(values, self.least)
        return (linked - self.units.location) / self.units.scale

    @property
    def least(self) -> Array:
        """Distance from a logarithm's end that counts at least, as `units` are."""
        if not self.link.is_logarithm:
            return np.array([LEAST])
        return np.exp(self.units.location) * _LOWEST

    def original(self, values: Array) -> Array:
        """Return the inverse of `scaled`."""
        return self.link.inverse(self.units.location + self.units.scale * values)

    def rows(self, table: ChannelRows) -> ChannelRows:
        """Return rows of all series in the units of the states."""
        one, errors = self.at(table.series), table.errors
        if errors.any():
            # the delta method: u moves du / dy times as far as y
            errors = errors * np.exp(one.link.log_slope(table.values))
            errors = errors / one.units.scale
        return table._replace(values=one.scaled(table.values), errors=errors)

    def log_jacobian(self, table: ChannelRows) -> float:
        """Return what a loss in the units of the states lacks of one in y's."""
        return self.cost + float(self.log_jacobians(table).sum())

    def log_jacobians(self, table: ChannelRows) -> Array:
        """Return the same of each series, (series,), but for what differences cost."""
        known = ~np.isnan(table.values)
        units = self.at(table.series).units
        scale = np.broadcast_to(units.scale, known.shape)
        # the density of y is that of z times dz / dy = (du / dy) / scale
        lacks = np.log(scale[known]) - self.link.log_slope(table.values[known])
        sums = np.bincount(table.series[known], lacks, len(table.lengths))
        return np.asarray(sums, np.float64)


def usual_deviation(values: Array) -> Array:
    """Return the standard deviation from zero that the median tells, of each column.

    Up to half of the values may be absurd; NaN is none.
    """
    deviation: Array = _TO_DEVIATION * np.nanmedian(np.abs(values), axis=0)
    return deviation
