"""Distributions within bounds: counts, what is not below zero, what a user bounds.

Tested in tests/structural/predictive/test_bounds.py and structural/test_bounds.py.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from sklode.data.arrays import Array, Flags
from sklode.data.links import LEAST
from sklode.structural.predictive.mixture import Mixture

# of a normal that is cut off at zero: mean and standard deviation, by their ratio
_RATIOS = np.linspace(-2.5, 3.0, 300)
# deviations above zero: next to nothing is below
_FAR = 3.0
# a standard deviation to which steps of one are small
_COARSE = 6.0
# of a shift of counts: to a millionth
_HALVINGS = 20


class Floored:
    r"""A mixture of values y = max(0, a + b u), rounded if ``quantum`` is one.

    Where u may well be below zero, a and b keep the mean of the signal, itself not
    below zero, and the variance of u. With one of two ``bounds`` finite, y and u are
    distances from it.
    """

    def __init__(self, mixture: Mixture, quantum: float, bounds: Array) -> None:
        self._mixture, self._quantum = mixture, quantum
        low, high = bounds.tolist()
        # y and u are ``sign`` times their distances from the bound
        self._bound, self._sign = 0.0, 1.0
        if high < np.inf:
            self._bound, self._sign = high, -1.0
        elif low > -np.inf:
            self._bound = low
        # an error of rounding is uniform on (-1/2, 1/2): a variance of 1/12
        self._variance = mixture.variance() + quantum / 12
        self._shift, self._stretch = np.zeros((2, len(self._variance)))
        self._stretch += 1.0
        # what a link leads back from lies above the bound by itself
        plain = mixture.share_of_linked() < 0.5
        if plain.any():
            with np.errstate(over="ignore"):
                self._fit(mixture.at(plain), plain)

    def _fit(self, mixture: Mixture, queries: Flags) -> None:
        """Find a and b of some queries, whose ``mixture`` this is."""
        middle, signal, noise = mixture.normal()
        middle = self._sign * (middle - self._bound)
        least = np.maximum(1e-12 * np.abs(middle), LEAST)
        spread = np.maximum(np.hypot(signal, noise), least)
        signal, near = np.maximum(signal, least), middle < _FAR * spread
        # N(m, s^2) cut off at zero is s times one of deviation 1, cut off likewise
        mean, own = (signal * x for x in _cut_off(middle / signal))
        mean = np.where(near, mean, middle)
        own = np.where(near, own, signal)
        wide = np.maximum(np.hypot(own, noise), least)
        if self._quantum:
            # rounding will add 1/12 to the variance: that is taken off before, but
            # never more than half of it
            share = 1 - 1 / (12 * wide**2)
            wide *= np.sqrt(np.maximum(share, 0.5))
        # the ratio of mean and deviation after the cut grows with that before it:
        # its inverse by a table
        means, spreads = _cut_off(_RATIOS)
        ratio = np.interp(mean / wide, means / spreads, _RATIOS)
        deviation = wide / _cut_off(ratio)[1]
        variance = np.where(near, wide**2, self._variance[queries])
        centre = np.where(near, ratio * deviation, middle)
        wide = np.where(near, deviation, wide)
        fine = np.flatnonzero(self._quantum * (wide < _COARSE))
        if len(fine):
            found = _rounded(centre[fine], wide[fine], mean[fine])
            centre[fine], variance[fine] = found
        self._variance[queries] = variance
        # a + b u has the centre and the deviation ``wide`` that were found
        self._stretch[queries] = wide / spread
        self._shift[queries] = centre - wide / spread * middle

    def put(self, values: Array) -> Array:
        """Return y of values u, (..., query)."""
        distances = self._sign * (values - self._bound)
        distances = self._shift + self._stretch * distances
        distances = np.maximum(distances, 0.0)
        if self._quantum:
            distances = np.round(distances)
        return self._bound + self._sign * distances

    def inside(self, values: Array) -> Array:
        """Return values not beyond the bound."""
        distances = np.maximum(self._sign * (values - self._bound), 0.0)
        return self._bound + self._sign * distances

    def quantiles(self, levels: Array) -> Array:
        """Return quantiles of y, (query, level)."""
        return self.put(self._mixture.quantiles(levels).T).T

    def points(self) -> Array:
        """Return forecasts of u, not beyond the bound nor rounded, (query,)."""
        return self.inside(self._mixture.points())

    def variance(self) -> Array:
        """Return the variance of y, (query,)."""
        return self._variance


class Between:
    """A mixture of values that lie between two bounds."""

    def __init__(self, mixture: Mixture, bounds: Array) -> None:
        self._mixture, self._bounds = mixture, bounds

    def put(self, values: Array) -> Array:
        """Return y of values u, (..., query)."""
        return np.clip(values, *self._bounds)

    inside = put

    def quantiles(self, levels: Array) -> Array:
        """Return quantiles of y, (query, level)."""
        return self.put(self._mixture.quantiles(levels))

    def points(self) -> Array:
        """Return forecasts, (query,)."""
        return self.put(self._mixture.points())

    def variance(self) -> Array:
        """Return the variance of y, (query,): plain values lie at a bound beyond it."""
        mean, signal, noise = self._mixture.normal()
        is_linked = self._mixture.share_of_linked() >= 0.5
        spread = np.maximum(np.hypot(signal, noise), LEAST)
        spread = np.where(is_linked, 1.0, spread)
        low, high = self._bounds
        # in deviations, y - low = A - B of a normal x = y - low: A = max(0, x), what
        # is above the lower bound, and B = max(0, x - width), what is beyond the upper
        ratio, width = (mean - low) / spread, (high - low) / spread
        above, above_deviation = _cut_off(ratio)
        beyond, beyond_deviation = _cut_off(ratio - width)
        # where B is not zero, A = B + width: E A B = E B^2 + width E B
        product = beyond_deviation**2 + beyond**2 + width * beyond
        covariance = product - above * beyond
        squares = above_deviation**2 + beyond_deviation**2
        variance = np.clip(squares - 2 * covariance, 0.0, None)
        return np.where(is_linked, self._mixture.variance(), spread**2 * variance)


def _cut_off(ratio: Array) -> tuple[Array, Array]:
    """Return mean and deviation of max(0, u), u from N(``ratio``, 1).

    With r the ratio, E max(0, u) = r Phi(r) + phi(r), and E max(0, u)^2 = Phi(r) +
    r E max(0, u): Tobin, "Estimation of Relationships for Limited Dependent Variables"
    (1958).
    """
    above = ndtr(ratio)
    density = np.exp(-0.5 * ratio**2) / np.sqrt(2 * np.pi)
    mean = np.maximum(ratio * above + density, 0.0)
    # Phi + r E - E^2, in a form that cancels less
    variance = above + (ratio - mean) * mean
    return mean, np.sqrt(np.maximum(variance, 0.0))


def _rounded(centre: Array, spread: Array, mean: Array) -> tuple[Array, Array]:
    """Return where normals lie whose rounded y have a mean; and variances."""
    # no count is farther than seven deviations, a chance of 1e-12: those below
    # ``base`` are reached for certain
    base = np.maximum(np.floor(centre - 7 * spread), 0.0)
    most = int(np.max(centre + 7 * spread - base)) + 2

    def moments(shift: Array) -> tuple[Array, Array]:
        # of counts n, E n = sum of P(n >= k), and E n^2 = sum of (2 k - 1) P(n >= k):
        # k^2 = 1 + 3 + ... + (2 k - 1). A normal is rounded to k or more from k - 1/2
        # on; counts here are beyond ``base``, which moves the mean alone
        first, second = base.copy(), np.zeros_like(base)
        for k in range(1, most + 1):
            reached = ndtr((centre + shift - base - k + 0.5) / spread)
            first += reached
            second += (2 * k - 1) * reached
        return first, second - (first - base) ** 2

    # the mean grows with the shift: bisection
    low, high = np.full_like(centre, -0.5), np.full_like(centre, 0.5)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        is_low = moments(middle)[0] < mean
        low = np.where(is_low, middle, low)
        high = np.where(is_low, high, middle)
    return centre + high, np.maximum(moments(high)[1], 0.0)
