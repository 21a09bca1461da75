"""Average forecasts: mixtures of normal and log-normal distributions.

Of channels without a value below zero (counts, rain, shares), or with one bound that a
user tells, it is made one of such values by `Floored`; of two bounds by `Between`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import ndtr, ndtri

from sklode.data.arrays import Array, Flags
from sklode.data.links import IDENTITY, LEAST, Link
from sklode.structural.candidates import Candidate
from sklode.structural.rows import Rows

# of an interval: to the last bit of a float, and to a millionth
_HALVINGS, _FEW_HALVINGS = 60, 20
# of mean and standard deviation, of a normal that is cut off at zero
_RATIOS = np.linspace(-2.5, 3.0, 300)
# deviations above zero: next to nothing is below
_FAR = 3.0
_NONE = np.array([-np.inf, np.inf])
# of the middle 90 % of a normal distribution
TO_DEVIATION = 3.29
# a standard deviation to which steps of one are small
_COARSE = 6.0


class Adjustment(NamedTuple):
    r"""Where another forecast moves distributions, and how wide it makes them.

    .. math:: u \to m + w (f - m) + c \, (u - m)

    with u what y is linked to, and m its `Mixture.middle`. All arrays are (query,).
    """

    link: Link
    target: Array  # f, in units of u
    weight: Array  # w, from 0 to 1
    factor: Array  # c
    most: Array  # of | f - m |, in deviations, see `Mixture.limited`
    usual: Array  # deviation, of which a whole move makes c; NaN: each one's own

    def at(self, queries: Rows) -> Adjustment:
        """Return it at some queries."""
        return Adjustment(
            link=self.link,
            target=self.target[queries],
            weight=self.weight[queries],
            factor=self.factor[queries],
            most=self.most[queries],
            usual=self.usual[queries],
        )

    def centre(self, middle: Array) -> Array:
        """Return where medians go, in units of u."""
        return middle + self.weight * (self.target - middle)

    def of(self, values: Array, middle: Array) -> Array:
        """Return values, (..., query), moved."""
        from_middle = self.link.of(values) - middle
        moved = self.centre(middle) + self.factor * from_middle
        return self.link.inverse(moved)


@dataclass(frozen=True)
class Mixture:
    """Of each query a mixture of normal distributions, of y or what it is linked to."""

    weights: Array  # (component,)
    means: Array  # (component, query)
    spreads: Array  # standard deviations of the signal
    noises: Array  # (component, query or 1): of the noise
    linked: Flags  # (component,)
    link: Link = IDENTITY
    passing: Array | float = 0.0  # (component, query), variance of what means are over

    @classmethod
    def of(
        cls, candidates: list[Candidate], means: Array, variances: Array, passing: Array
    ) -> Mixture:
        """Return it in y's units, from states' units.

        ``passing`` are variances of the part of the signal that fades.
        """
        n = means.shape[1]
        units = [c.units for c in candidates]
        scale = np.stack([np.broadcast_to(own.scale, n) for own in units])
        location = np.stack([np.broadcast_to(own.location, n) for own in units])
        noises = np.array([[c.observed_noise] for c in candidates])
        # no squares: a float that holds y need not hold them
        with np.errstate(over="ignore"):
            spreads = scale * np.sqrt(np.maximum(variances, 0.0))
            means = location + scale * means
        linked = np.array([c.form.linked for c in candidates])
        rises = np.array([[c.rise] for c in candidates])
        # plain scales may overflow when squared; there nothing rises
        squares = np.where(linked[:, None], scale, 0.0) ** 2
        return cls(
            weights=np.array([c.weight for c in candidates]),
            means=means,
            spreads=spreads,
            noises=scale * np.sqrt(noises),
            linked=linked,
            link=max((c.link for c in candidates), key=lambda link: link.past),
            passing=rises * squares * (noises + np.maximum(passing, 0.0)),
        )

    def normal(self) -> tuple[Array, Array, Array]:
        """Return its normals' means, and deviations of signal and noise."""
        plain = ~self.linked
        weights = self.weights[plain, None] / self.weights[plain].sum()
        means = self.means[plain]
        mean = (weights * means).sum(0)
        # the law of total variance: that between components adds to that within
        # them. Roots of sums of squares by hypot, as the squares may overflow
        root = np.sqrt(weights)
        between = root * (means - mean)
        within = root * self.spreads[plain]
        signal = np.hypot.reduce([*between, *within])
        noise = np.hypot.reduce(root * self.noises[plain])
        return mean, signal, noise

    def middle(self, adjustment: Adjustment) -> Array:
        """Return what a move takes for the middle: the median, of y the forecast."""
        if adjustment.link.is_identity:
            return adjustment.link.of(self.points())
        return adjustment.link.of(self.medians())

    def within(self, low: Array, high: Array) -> Mixture:
        """Return it with all components' means between two values of y, (query,)."""
        with np.errstate(invalid="ignore"):  # of limits that are infinite
            means = np.clip(self.means, self._linked(low), self._linked(high))
        return replace(self, means=means)

    def limited(self, adjustment: Adjustment) -> tuple[Adjustment, Array]:
        """Return a move that goes no farther than it may, and the middle it goes from.

        Its limit is in deviations, those of a normal distribution with the same middle
        90 %. The more a move counts, the less they tell of the width that is left: a
        network that knows a law may be sure where a structural model is not.
        """
        ends = self.quantiles(np.array([0.05, 0.95]))
        low, high = adjustment.link.of(ends.T)
        deviation = np.maximum((high - low) / TO_DEVIATION, LEAST)
        middle = self.middle(adjustment)
        most = adjustment.most * deviation
        # between the own width (weight 0) and the usual one (weight 1) on a
        # logarithmic scale
        usual, weight = adjustment.usual, adjustment.weight
        ratio = np.where(np.isnan(usual), 1.0, usual / deviation)
        limited = adjustment._replace(
            target=np.clip(adjustment.target, middle - most, middle + most),
            factor=adjustment.factor * ratio**weight,
        )
        return limited, middle

    def adjusted(self, adjustment: Adjustment) -> Mixture:
        """Return it after a move, `limited`, of whose kind all components then are."""
        adjustment, middle = self.limited(adjustment)
        link, linked = adjustment.link, self.linked[:, None]
        is_linked, values = not link.is_identity, self._original(self.means)
        # the delta method: to first order u(y) has |du / dy| times the deviation
        # of y, and y that of u over it; of a logarithm du / dy is 1 / y
        if is_linked:
            means = np.where(linked, self.means, link.of(values))
            # of a normal that reaches the link's end the slope there says nothing:
            # the deviation becomes one at most
            spread = np.maximum(np.hypot(self.spreads, self.noises), LEAST)
            log_slope = np.minimum(link.log_slope(values), np.log(1 / spread))
            stretch = np.exp(log_slope)
        else:
            means, stretch = values, np.exp(-self.link.log_slope(values))
        # components that are of the move's kind already keep their units
        stretch = np.where(linked == is_linked, 1.0, stretch)
        factor = adjustment.factor * stretch
        from_middle = adjustment.factor * (means - middle)
        return Mixture(
            weights=self.weights,
            means=adjustment.centre(middle) + from_middle,
            spreads=factor * self.spreads,
            noises=factor * self.noises,
            linked=np.full(len(self.weights), is_linked),
            link=link,
            passing=adjustment.factor**2 * self.passing if is_linked else 0.0,
        )

    def widened(self, factor: Array) -> Mixture:
        """Return it stretched by a factor, (query,), about its median, which stays."""
        if (factor == 1).all():
            return self
        centre = self._linked(self.medians())
        return replace(
            self,
            means=centre + factor * (self.means - centre),
            spreads=factor * self.spreads,
            noises=factor * self.noises,
        )

    @np.errstate(over="ignore", invalid="ignore")
    def quantiles(self, levels: Array) -> Array:
        """Return quantiles of the signal and its noise, (query, level)."""
        # a constant has no spread: the distribution function needs one
        least = np.maximum(1e-12 * np.abs(self.means), LEAST)
        spread = np.maximum(np.hypot(self.spreads, self.noises), least)
        n_halvings = _HALVINGS if len(self.weights) > 1 else 0
        result = np.empty((self.means.shape[1], len(levels)))
        for k, level in enumerate(levels):
            # a mixture's distribution function is an average of its components':
            # its quantile lies between theirs, and is found by bisection;
            # low + (high - low) / 2 does not overflow, as their sum might
            each = self._original(self.means + ndtri(level) * spread)
            low, high = each.min(0), each.max(0)
            for _ in range(n_halvings):
                middle = low + (high - low) / 2
                below = ndtr((self._linked(middle) - self.means) / spread)
                is_low = self.weights @ below < level
                low = np.where(is_low, middle, low)
                high = np.where(is_low, high, middle)
            result[:, k] = low + (high - low) / 2
        return result

    def medians(self) -> Array:
        """Return medians, (query,)."""
        return self.quantiles(np.array([0.5]))[:, 0]

    def points(self) -> Array:
        r"""Return forecasts, (query,): the mean over what passes, else the median.

        Of a logarithm :math:`\exp(m + \sigma^2 / 2)`, with m the median and
        :math:`\sigma` the deviation of noise and of what fades. A trend drifts without
        end: its mean far ahead is that of a few futures that nobody expects.
        """
        passing = self.passing * np.ones_like(self.means)
        rises = self.link.rise(self.means, passing)
        rises = np.where(self.linked[:, None], rises, 0.0)
        return replace(self, means=self.means + rises).medians()

    @np.errstate(over="ignore", invalid="ignore")
    def variance(self) -> Array:
        """Return the variance of each query, with noise, (query,)."""
        linked = self.linked[:, None]
        squares = np.hypot(self.spreads, self.noises) ** 2
        means, variances = self.link.moments(self.means, squares)
        means = np.where(linked, means, self.means)
        variances = np.where(linked, variances, squares)
        # the law of total variance: within components, and between them
        from_mean = means - self.weights @ means
        return self.weights @ (variances + from_mean**2)

    def _original(self, values: Array) -> Array:
        """Return y of each component's values, (component, query)."""
        original = self.link.inverse(values)
        return np.where(self.linked[:, None], original, values)

    def _linked(self, values: Array) -> Array:
        """Return what y is to each component, (component, query)."""
        linked = self.link.of(values)
        return np.where(self.linked[:, None], linked, values)


class Distribution(Protocol):
    """What is asked of forecasts' distributions, whether within bounds or not."""

    def quantiles(self, levels: Array) -> Array:
        """Return quantiles of y, (query, level)."""

    def points(self) -> Array:
        """Return forecasts, (query,)."""

    def variance(self) -> Array:
        """Return the variance of y, (query,)."""


class Floored:
    r"""A mixture of values y = max(0, a + b u), rounded if ``step`` is one.

    Where u may well be below zero, a and b keep the mean of the signal, itself not
    below zero, and the variance of u. With one of two ``bounds`` finite, y and u are
    distances from it.
    """

    def __init__(self, mixture: Mixture, step: float, bounds: Array = _NONE) -> None:
        self._mixture, self._step = mixture, step
        low, high = bounds.tolist()
        # y and u are ``sign`` times their distances from the bound
        self._bound, self._sign = 0.0, 1.0
        if high < np.inf:
            self._bound, self._sign = high, -1.0
        elif low > -np.inf:
            self._bound = low
        self._shift, self._stretch = np.zeros(1), np.ones(1)
        # an error of rounding is uniform on (-1/2, 1/2): a variance of 1/12
        self._variance = mixture.variance() + step / 12
        # what a link leads back from lies above the bound by itself
        if mixture.weights @ mixture.linked < 0.5:
            with np.errstate(over="ignore"):
                middle, signal, noise = mixture.normal()
                middle = self._sign * (middle - self._bound)
                self._fit(middle, signal, noise)

    def _fit(self, middle: Array, signal: Array, noise: Array) -> None:
        """Find a and b, of means, and deviations of signal and noise."""
        least = np.maximum(1e-12 * np.abs(middle), LEAST)
        spread = np.maximum(np.hypot(signal, noise), least)
        signal, near = np.maximum(signal, least), middle < _FAR * spread
        # N(m, s^2) cut off at zero is s times one of deviation 1, cut off likewise
        mean, own = (signal * x for x in _cut_off(middle / signal))
        mean = np.where(near, mean, middle)
        own = np.where(near, own, signal)
        wide = np.maximum(np.hypot(own, noise), least)
        if self._step:
            # rounding will add 1/12 to the variance: that is taken off before, but
            # never more than half of it
            share = 1 - 1 / (12 * wide**2)
            wide *= np.sqrt(np.maximum(share, 0.5))
        # the ratio of mean and deviation after the cut grows with that before it:
        # its inverse by a table
        means, spreads = _cut_off(_RATIOS)
        ratio = np.interp(mean / wide, means / spreads, _RATIOS)
        deviation = wide / _cut_off(ratio)[1]
        self._variance[near] = wide[near] ** 2
        centre = np.where(near, ratio * deviation, middle)
        wide = np.where(near, deviation, wide)
        fine = np.flatnonzero(self._step * (wide < _COARSE))
        if len(fine):
            found = _rounded(centre[fine], wide[fine], mean[fine])
            centre[fine], self._variance[fine] = found
        # a + b u has the centre and the deviation ``wide`` that were found
        self._stretch = wide / spread
        self._shift = centre - self._stretch * middle

    def put(self, values: Array) -> Array:
        """Return y of values u, (..., query)."""
        distances = self._sign * (values - self._bound)
        distances = self._shift + self._stretch * distances
        distances = np.maximum(distances, 0.0)
        if self._step:
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
        if self._mixture.weights @ self._mixture.linked >= 0.5:
            return self._mixture.variance()
        mean, signal, noise = self._mixture.normal()
        spread = np.maximum(np.hypot(signal, noise), LEAST)
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
        return np.asarray(spread**2 * variance)


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
    for _ in range(_FEW_HALVINGS):
        middle = 0.5 * (low + high)
        is_low = moments(middle)[0] < mean
        low = np.where(is_low, middle, low)
        high = np.where(is_low, high, middle)
    return centre + high, np.maximum(moments(high)[1], 0.0)
