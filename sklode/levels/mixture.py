"""Average forecasts: mixtures of normal and log-normal distributions.

Of channels without a value below zero (counts, rain, shares) it is made one of such
values by `Floored`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from sklode.data.arrays import Array, Flags

_HALVINGS, _FEW_HALVINGS = 60, 20
# of counts, square differences over sums: 1 of Poisson ones, 0.1 of glucose in mg/dL
_MOVED = 0.3
_LARGEST = 709.0  # of logarithms whose exponential a float holds
_LEAST = 5e-324  # of positive floats
# of mean and standard deviation, of a normal that is cut off at zero
_RATIOS = np.linspace(-2.5, 3.0, 300)
_FAR = 3.0  # deviations above zero: next to nothing is below
_COARSE = 6.0  # a standard deviation to which steps of one are small


class Move(NamedTuple):
    r"""Where another forecast moves distributions, and how wide it makes them.

    .. math:: u \to m + w (f - m) + c \, (u - m)

    with u the value or, where ``logarithm``, its logarithm, and m its
    `Mixture.middle`. All arrays are (query,).
    """

    logarithm: bool
    target: Array  # f, in units of u
    weight: Array  # w, from 0 to 1
    factor: Array  # c

    def at(self, queries: Any) -> Move:
        """Return it at some queries."""
        parts = self.target[queries], self.weight[queries], self.factor[queries]
        return Move(self.logarithm, *parts)

    def plain(self, values: Array) -> Array:
        """Return u of values."""
        return np.log(np.maximum(values, _LEAST)) if self.logarithm else values

    def centre(self, middle: Array) -> Array:
        """Return where medians go, in units of u."""
        return middle + self.weight * (self.target - middle)

    def of(self, values: Array, middle: Array) -> Array:
        """Return values, (..., query), moved."""
        moved = self.centre(middle) + self.factor * (self.plain(values) - middle)
        return np.exp(np.minimum(moved, _LARGEST)) if self.logarithm else moved


@dataclass(frozen=True)
class Mixture:
    """Of each query a mixture; log-normals where ``logarithm``, in y's units."""

    weights: Array  # (component,)
    means: Array  # (component, query); of logarithms of log-normals
    spreads: Array  # standard deviations of the signal
    noises: Array  # (component, query or 1): of the noise
    logarithm: Flags  # (component,)
    offset: float = 0.0  # of values, before the logarithm
    rises: Array | float = 0.0  # (component, query), from a median to a forecast

    @classmethod
    def of(
        cls, components: list[Any], means: Array, variances: Array, passing: Array
    ) -> Mixture:
        """Return it in y's units, from states' units.

        ``passing`` are variances of the part of the signal that fades.
        """
        n = means.shape[1]
        scale = np.stack([np.broadcast_to(c.scale, n) for c in components])
        location = np.stack([np.broadcast_to(c.location, n) for c in components])
        noises = np.array([c.noise for c in components])
        # no squares: a float that holds y need not hold them
        with np.errstate(over="ignore"):
            spreads = scale * np.sqrt(np.maximum(variances, 0.0))
            means = location + scale * means
        logarithm = np.array([c.form.logarithm for c in components])
        logs = np.where(logarithm[:, None], scale, 0.0)
        return cls(
            np.array([c.weight for c in components]),
            means,
            spreads,
            scale * np.sqrt(noises)[:, None],
            logarithm,
            max(c.offset for c in components),
            np.array([[c.rise] for c in components])
            * logs**2
            * (noises[:, None] + np.maximum(passing, 0.0))
            / 2,
        )

    def normal(self) -> tuple[Array, Array, Array]:
        """Return its normals' means, and deviations of signal and noise."""
        chosen = ~self.logarithm
        weights = self.weights[chosen, None] / self.weights[chosen].sum()
        mean, root = (weights * self.means[chosen]).sum(0), np.sqrt(weights)
        apart = root * (self.means[chosen] - mean)
        signal = np.hypot.reduce([*apart, *(root * self.spreads[chosen])])
        return mean, signal, np.hypot.reduce(root * self.noises[chosen])

    def middle(self, move: Move) -> Array:
        """Return what a move takes for the middle: the median, of y the forecast."""
        return move.plain(self.medians() if move.logarithm else self.points())

    def moved(self, move: Move) -> Mixture:
        """Return it after a move, of whose kind all components then are."""
        middle, log = self.middle(move), self.logarithm[:, None]
        size = np.maximum(self._original(self.means), _LEAST)
        if move.logarithm:
            means, stretch = np.where(log, self.means, np.log(size)), 1 / size
        else:
            means, stretch = np.where(log, size, self.means), size + self.offset
        factor = move.factor * np.where(log == move.logarithm, 1.0, stretch)
        return Mixture(
            self.weights,
            move.centre(middle) + move.factor * (means - middle),
            factor * self.spreads,
            factor * self.noises,
            np.full(len(self.weights), move.logarithm),
            rises=move.factor**2 * self.rises if move.logarithm else 0.0,
        )

    def widened(self, factor: Array) -> Mixture:
        """Return it stretched by a factor, (query,), about its median, which stays."""
        if (factor == 1).all():
            return self
        centre = self.medians()
        logs = np.log(np.maximum(centre + self.offset, _LEAST))
        centre = np.where(self.logarithm[:, None], logs, centre)
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
        spread = np.maximum(spread, np.maximum(1e-12 * np.abs(self.means), _LEAST))
        result = np.empty((self.means.shape[1], len(levels)))
        for k, level in enumerate(levels):
            each = self._original(self.means + ndtri(level) * spread)
            low, high = each.min(0), each.max(0)
            # between the least and the largest quantile of components
            for _ in range(_HALVINGS if len(self.weights) > 1 else 0):
                middle = low + (high - low) / 2
                below = ndtr((self._inverse(middle) - self.means) / spread)
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
        return replace(self, means=self.means + self.rises).medians()

    @np.errstate(over="ignore", invalid="ignore")
    def variance(self) -> Array:
        """Return the variance of each query, with noise, (query,)."""
        squares = np.hypot(self.spreads, self.noises) ** 2
        log = self.logarithm[:, None]
        grown = np.exp(self.means + squares / 2)
        mean = np.where(log, grown - self.offset, self.means)
        own = np.where(log, grown**2 * np.expm1(squares), squares)
        return self.weights @ (own + (mean - self.weights @ mean) ** 2)

    def _original(self, values: Array) -> Array:
        log = self.logarithm[:, None]
        grown = np.exp(np.minimum(values, _LARGEST)) - self.offset
        return np.where(log, grown, values)

    def _inverse(self, values: Array) -> Array:
        log = self.logarithm[:, None]
        logs = np.log(np.maximum(values + self.offset, _LEAST))
        return np.where(log, logs, values)


class Floored:
    r"""A mixture of values y = max(0, a + b u), rounded if ``step`` is one.

    Where u may well be below zero, a and b keep the mean of the signal, itself not
    below zero, and the variance of u.
    """

    def __init__(self, mixture: Mixture, step: float) -> None:
        self._mixture, self._step = mixture, step
        self._shift, self._stretch = np.zeros(1), np.ones(1)
        self._variance = mixture.variance() + step / 12
        if mixture.weights @ mixture.logarithm < 0.5:
            with np.errstate(over="ignore"):
                self._fit(*mixture.normal())

    def _fit(self, middle: Array, signal: Array, noise: Array) -> None:
        """Find a and b, of means, and deviations of signal and noise."""
        least = np.maximum(1e-12 * np.abs(middle), _LEAST)
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
        values = np.maximum(self._shift + self._stretch * values, 0.0)
        return np.round(values) if self._step else values

    def quantiles(self, levels: Array) -> Array:
        """Return quantiles of y, (query, level)."""
        return self.put(self._mixture.quantiles(levels).T).T

    def points(self) -> Array:
        """Return forecasts of u, not below zero nor rounded, (query,)."""
        return np.maximum(self._mixture.points(), 0.0)

    def variance(self) -> Array:
        """Return the variance of y, (query,)."""
        return self._variance


def _cut_off(ratio: Array) -> tuple[Array, Array]:
    """Return mean and deviation of max(0, u), u from N(``ratio``, 1)."""
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


@np.errstate(over="ignore")  # of what no float holds
def steps_of(values: Array) -> Array:
    """Return 1 of channels of counts, 0 of others, NaN of some below zero.

    Whole numbers are counts if they move as counts do, whose square differences are
    their sum on average (Poisson); measurements that were rounded move less.
    """
    found = np.zeros(values.shape[1])
    for k, column in enumerate(values.T):
        known = column[~np.isnan(column)]
        if (known < 0).any():
            found[k] = np.nan
        elif (known == np.round(known)).all():
            sums = known[1:] + known[:-1]
            moved = np.diff(known)[sums > 0] ** 2 / sums[sums > 0]
            found[k] = not len(moved) or np.minimum(moved, 4.0).mean() > _MOVED
    return found


def has_zeros(values: Array) -> bool:
    """Return whether some are zero, and none below."""
    return bool(len(values)) and float(values.min()) == 0.0


def offset_of(values: Array) -> float:
    """Return what is added before a logarithm: among zeros, the least step."""
    if not has_zeros(values) or not values.any():
        return 0.0
    whole = steps_of(values[:, None])[0] == 1
    return 1.0 if whole else float(values[values > 0].min())
