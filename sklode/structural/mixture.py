"""Average forecasts: mixtures of normal and log-normal distributions.

Of channels without a value below zero (counts, rain, shares) it is made one of such
values by `Floored`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import ndtr, ndtri

from sklode.data.arrays import Array, Flags
from sklode.data.links import IDENTITY, LEAST, Link
from sklode.structural.candidates import Candidate
from sklode.structural.channel_rows import Rows

# of an interval: to the last bit of a float, and to a millionth
_HALVINGS, _FEW_HALVINGS = 60, 20
# of mean and standard deviation, of a normal that is cut off at zero
_RATIOS = np.linspace(-2.5, 3.0, 300)
_FAR = 3.0  # deviations above zero: next to nothing is below
_NONE = np.array([-np.inf, np.inf])
TO_DEVIATION = 3.29  # of the middle 90 % of a normal distribution
_COARSE = 6.0  # a standard deviation to which steps of one are small


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
        return self.link.inverse(self.centre(middle) + self.factor * from_middle)


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
        noises = np.array([c.observed_noise for c in candidates])
        # no squares: a float that holds y need not hold them
        with np.errstate(over="ignore"):
            spreads = scale * np.sqrt(np.maximum(variances, 0.0))
            means = location + scale * means
        linked = np.array([c.form.linked for c in candidates])
        rises = np.array([[c.rise] for c in candidates])
        return cls(
            weights=np.array([c.weight for c in candidates]),
            means=means,
            spreads=spreads,
            noises=scale * np.sqrt(noises)[:, None],
            linked=linked,
            link=max((c.link for c in candidates), key=lambda link: link.past),
            passing=rises
            * np.where(linked[:, None], scale, 0.0) ** 2
            * (noises[:, None] + np.maximum(passing, 0.0)),
        )

    def normal(self) -> tuple[Array, Array, Array]:
        """Return its normals' means, and deviations of signal and noise."""
        chosen = ~self.linked
        weights = self.weights[chosen, None] / self.weights[chosen].sum()
        mean, root = (weights * self.means[chosen]).sum(0), np.sqrt(weights)
        # the variance between components adds to that within them
        between = root * (self.means[chosen] - mean)
        signal = np.hypot.reduce([*between, *(root * self.spreads[chosen])])
        return mean, signal, np.hypot.reduce(root * self.noises[chosen])

    def middle(self, adjustment: Adjustment) -> Array:
        """Return what a move takes for the middle: the median, of y the forecast."""
        values = self.points() if adjustment.link.is_identity else self.medians()
        return adjustment.link.of(values)

    def within(self, low: Array, high: Array) -> Mixture:
        """Return it with all components' means between two values of y, (query,)."""
        with np.errstate(invalid="ignore"):  # of limits that are infinite
            ends = self._linked(low), self._linked(high)
        return replace(self, means=np.clip(self.means, *ends))

    def limited(self, adjustment: Adjustment) -> tuple[Adjustment, Array]:
        """Return a move that goes no farther than it may, and the middle it goes from.

        Its limit is in deviations, those of a normal distribution with the same middle
        90 %. The more a move counts, the less they tell of the width that is left: a
        network that knows a law may be sure where a structural model is not.
        """
        ends = adjustment.link.of(self.quantiles(np.array([0.05, 0.95])).T)
        deviation = np.maximum((ends[1] - ends[0]) / TO_DEVIATION, LEAST)
        middle, most = self.middle(adjustment), adjustment.most * deviation
        ratio = np.where(np.isnan(adjustment.usual), 1.0, adjustment.usual / deviation)
        limited = adjustment._replace(
            target=np.clip(adjustment.target, middle - most, middle + most),
            factor=adjustment.factor * ratio**adjustment.weight,
        )
        return limited, middle

    def adjusted(self, adjustment: Adjustment) -> Mixture:
        """Return it after a move, `limited`, of whose kind all components then are."""
        adjustment, middle = self.limited(adjustment)
        linked = self.linked[:, None]
        is_linked, values = not adjustment.link.is_identity, self._original(self.means)
        if is_linked:
            means = np.where(linked, self.means, adjustment.link.of(values))
            # the delta method: to first order u(y) has |du / dy| times the deviation
            # of y; of a logarithm that is 1 / y. Of a normal that reaches the link's
            # end the slope there says nothing: the deviation becomes one at most
            widest = 1 / np.maximum(np.hypot(self.spreads, self.noises), LEAST)
            stretch = np.exp(
                np.minimum(adjustment.link.log_slope(values), np.log(widest))
            )
        else:  # the delta method, the other way round
            means, stretch = values, np.exp(-self.link.log_slope(values))
        factor = adjustment.factor * np.where(linked == is_linked, 1.0, stretch)
        return Mixture(
            weights=self.weights,
            means=adjustment.centre(middle) + adjustment.factor * (means - middle),
            spreads=factor * self.spreads,
            noises=factor * self.noises,
            linked=np.full(len(self.weights), is_linked),
            link=adjustment.link,
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
        spread = np.hypot(self.spreads, self.noises)
        spread = np.maximum(spread, np.maximum(1e-12 * np.abs(self.means), LEAST))
        result = np.empty((self.means.shape[1], len(levels)))
        for k, level in enumerate(levels):
            each = self._original(self.means + ndtri(level) * spread)
            low, high = each.min(0), each.max(0)
            # between the least and the largest quantile of components
            for _ in range(_HALVINGS if len(self.weights) > 1 else 0):
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
        rises = self.link.rise(self.means, self.passing * np.ones_like(self.means))
        means = self.means + np.where(self.linked[:, None], rises, 0.0)
        return replace(self, means=means).medians()

    @np.errstate(over="ignore", invalid="ignore")
    def variance(self) -> Array:
        """Return the variance of each query, with noise, (query,)."""
        squares = np.hypot(self.spreads, self.noises) ** 2
        mean, own = self.link.moments(self.means, squares)
        mean = np.where(self.linked[:, None], mean, self.means)
        own = np.where(self.linked[:, None], own, squares)
        return self.weights @ (own + (mean - self.weights @ mean) ** 2)

    def _original(self, values: Array) -> Array:
        return np.where(self.linked[:, None], self.link.inverse(values), values)

    def _linked(self, values: Array) -> Array:
        return np.where(self.linked[:, None], self.link.of(values), values)


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
        self._bound = high if high < np.inf else low if low > -np.inf else 0.0
        self._sign = -1.0 if high < np.inf else 1.0
        self._shift, self._stretch = np.zeros(1), np.ones(1)
        self._variance = mixture.variance() + step / 12
        if mixture.weights @ mixture.linked < 0.5:
            with np.errstate(over="ignore"):
                middle, signal, noise = mixture.normal()
                self._fit(self._sign * (middle - self._bound), signal, noise)

    def _fit(self, middle: Array, signal: Array, noise: Array) -> None:
        """Find a and b, of means, and deviations of signal and noise."""
        least = np.maximum(1e-12 * np.abs(middle), LEAST)
        spread = np.maximum(np.hypot(signal, noise), least)
        signal, near = np.maximum(signal, least), middle < _FAR * spread
        mean, own = (signal * x for x in _cut_off(middle / signal))
        mean, own = np.where(near, mean, middle), np.where(near, own, signal)
        wide = np.maximum(np.hypot(own, noise), least)
        if self._step:  # rounding adds to a variance
            wide *= np.sqrt(np.maximum(1 - 1 / (12 * wide**2), 0.5))
        means, spreads = _cut_off(_RATIOS)
        ratio = np.interp(mean / wide, means / spreads, _RATIOS)
        kept = (wide / _cut_off(ratio)[1])[near]
        centre = np.where(near, 0.0, middle)
        self._variance[near] = wide[near] ** 2
        wide[near], centre[near] = kept, ratio[near] * kept
        fine = np.flatnonzero(self._step * (wide < _COARSE))
        if len(fine):
            found = _rounded(centre[fine], wide[fine], mean[fine])
            centre[fine], self._variance[fine] = found
        self._stretch = wide / spread
        self._shift = centre - self._stretch * middle

    def put(self, values: Array) -> Array:
        """Return y of values u, (..., query)."""
        values = self._shift + self._stretch * (self._sign * (values - self._bound))
        values = np.maximum(values, 0.0)
        values = np.round(values) if self._step else values
        return self._bound + self._sign * values

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
        width = self._bounds[1] - self._bounds[0]
        # y - low = max(0, x) - max(0, x - width), of a normal x
        ratio = (mean - self._bounds[0]) / spread
        above, beyond = _cut_off(ratio), _cut_off(ratio - width / spread)
        # where the second part counts, the first is the second and the width
        both = beyond[1] ** 2 + beyond[0] ** 2 + width / spread * beyond[0]
        covariance = both - above[0] * beyond[0]
        variance = above[1] ** 2 + beyond[1] ** 2 - 2 * covariance
        return np.asarray(spread**2 * np.clip(variance, 0.0, None))


def _cut_off(ratio: Array) -> tuple[Array, Array]:
    """Return mean and deviation of max(0, u), u from N(``ratio``, 1).

    With r the ratio, E max(0, u) = r Phi(r) + phi(r), and E max(0, u)^2 = Phi(r) +
    r E max(0, u): Tobin, "Estimation of Relationships for Limited Dependent Variables"
    (1958).
    """
    above = ndtr(ratio)
    mean = ratio * above + np.exp(-0.5 * ratio**2) / np.sqrt(2 * np.pi)
    mean = np.maximum(mean, 0.0)
    variance = above + (ratio - mean) * mean
    return mean, np.sqrt(np.maximum(variance, 0.0))


def _rounded(centre: Array, spread: Array, mean: Array) -> tuple[Array, Array]:
    """Return where normals lie whose rounded y have a mean; and variances."""
    base = np.maximum(np.floor(centre - 7 * spread), 0.0)
    most = int(np.max(centre + 7 * spread - base)) + 2

    def moments(shift: Array) -> tuple[Array, Array]:
        # of counts n, E n = sum of P(n >= k), and E n^2 = sum of (2 k - 1) P(n >= k)
        first, second = base.copy(), np.zeros_like(base)
        for k in range(1, most + 1):
            reached = ndtr((centre + shift - base - k + 0.5) / spread)
            first += reached
            second += (2 * k - 1) * reached
        return first, second - (first - base) ** 2

    low, high = np.full_like(centre, -0.5), np.full_like(centre, 0.5)
    for _ in range(_FEW_HALVINGS):
        middle = 0.5 * (low + high)
        is_low = moments(middle)[0] < mean
        low, high = np.where(is_low, middle, low), np.where(is_low, high, middle)
    return centre + high, np.maximum(moments(high)[1], 0.0)
