"""What y is modelled on: itself, a logarithm, or a logit between bounds."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from sklode.data.arrays import Array

# of counts, square differences over sums: 1 of Poisson ones, 0.1 of glucose in mg/dL
_MOVED = 0.3
_LARGEST = 709.0  # of logarithms whose exponential a float holds
LEAST = 5e-324  # of positive floats
# Gauss and Hermite's nodes of a standard normal: a logit's moments to some 1e-4
_NODES, _SHARES = np.polynomial.hermite_e.hermegauss(24)
_SHARES = _SHARES / _SHARES.sum()


class Link(NamedTuple):
    r"""A function u of y that no value of u takes beyond y's bounds.

    .. math:: u = \log(y - a) - \log(b - y)

    of whose terms those of finite bounds count; without any, u = y. With ``past`` a
    and b are so far beyond the bounds, for values that lie at them.
    """

    low: float = -math.inf
    high: float = math.inf
    past: float = 0.0
    least: float = LEAST  # distance from a or b: smaller ones count as this

    @property
    def is_identity(self) -> bool:
        """Whether u is y."""
        return math.isinf(self.low) and math.isinf(self.high)

    @property
    def is_logarithm(self) -> bool:
        """Whether u is a logarithm of y, but for where this begins."""
        return math.isfinite(self.low) and math.isinf(self.high)

    @property
    def name(self) -> str:
        """What a reader would call it."""
        if math.isinf(self.high):
            return "identity" if math.isinf(self.low) else "logarithm"
        return "logarithm of what is left" if math.isinf(self.low) else "logit"

    def _distances(
        self, values: Array, least: Array | float | None
    ) -> list[Array | None]:
        """Return how far values are above a and below b; None where there is no end."""
        least = self.least if least is None else least
        low, high = self.low - self.past, self.high + self.past
        each = (values - low, self.low), (high - values, self.high)
        return [np.maximum(x, least) if math.isfinite(end) else None for x, end in each]

    def of(self, values: Array, least: Array | float | None = None) -> Array:
        """Return u of values of y."""
        above, below = self._distances(values, least)
        if above is None:
            return values if below is None else -np.log(below)
        return np.log(above) if below is None else np.log(above) - np.log(below)

    def inverse(self, u: Array) -> Array:
        """Return y of values of u."""
        low, high = self.low - self.past, self.high + self.past
        if self.is_identity:
            return u
        if self.is_logarithm:
            return np.exp(np.minimum(u, _LARGEST)) + low
        if math.isinf(self.low):
            return high - np.exp(np.minimum(-u, _LARGEST))
        found: Array = low + (high - low) * expit(u)
        return found

    def log_slope(self, values: Array) -> Array:
        """Return the logarithm of du / dy at values of y."""
        above, below = self._distances(values, None)
        if above is None:
            return np.zeros_like(values) if below is None else -np.log(below)
        if below is None:
            return -np.log(above)
        return np.logaddexp(-np.log(above), -np.log(below))

    def moments(self, means: Array, variances: Array) -> tuple[Array, Array]:
        """Return y's mean and variance, of a normal u."""
        if self.is_identity:
            return means, variances
        low, high = self.low - self.past, self.high + self.past
        if math.isfinite(low) and math.isfinite(high):
            deviation, centre = np.sqrt(variances), self.inverse(means)
            first, second = np.zeros((2, *np.shape(means)))
            for node, share in zip(_NODES, _SHARES, strict=True):
                apart = self.inverse(means + node * deviation) - centre
                first, second = first + share * apart, second + share * apart**2
            return centre + first, np.maximum(second - first**2, 0.0)
        sign = 1.0 if math.isfinite(low) else -1.0
        grown = np.exp(sign * means + variances / 2)
        own = grown + low if sign > 0 else high - grown
        return own, grown**2 * np.expm1(variances)

    def rise(self, means: Array, variances: Array) -> Array:
        """Return how far u of y's mean lies from the mean of u."""
        if self.is_identity:
            return np.zeros_like(means)
        if math.isfinite(self.low) and math.isfinite(self.high):
            return self.of(self.moments(means, variances)[0]) - means
        return variances / 2 if self.is_logarithm else -variances / 2


IDENTITY = Link()


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


def margins(values: Array, bounds: Array) -> Array:
    """Return how far values (row, channel) are from the nearest bound, (channel, 2).

    Of channels without bounds from zero, which is one where no value is below.
    """
    low, high = bounds.T
    low = np.where(np.isinf(low) & np.isinf(high), 0.0, low)
    return np.minimum(values - low, high - values)


def has_zeros(values: Array) -> bool:
    """Return whether some are zero, and none below."""
    return bool(len(values)) and float(values.min()) == 0.0


def link_of(values: Array, bounds: Array) -> Link:
    """Return what values (row,) between bounds (2,) may be modelled on.

    Some at a bound are, as zeros are before a logarithm, moved by the least step.
    """
    from_bound = margins(values[:, None], bounds[None])[:, 0]
    if not len(values) or from_bound.min() < 0:
        return IDENTITY
    past = 0.0
    if has_zeros(from_bound) and from_bound.any():
        is_lone = np.isinf(bounds).any()
        whole = is_lone and steps_of(from_bound[:, None])[0] == 1
        past = 1.0 if whole else float(from_bound[from_bound > 0].min())
    low, high = bounds.tolist()
    return Link(0.0 if np.isinf(bounds).all() else low, high, past)
