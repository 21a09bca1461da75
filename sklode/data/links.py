"""What y is modelled on: itself, a logarithm, or a logit between bounds."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from sklode.data.arrays import Array

# of counts, square differences over sums: 1 of Poisson ones, 0.1 of glucose in mg/dL
_MOVED = 0.3
_MOST_MOVED = 4.0  # that one pair counts as at most, for a jump alone makes no counts
_LARGEST = 709.0  # of logarithms whose exponential a float64 holds: log(1.8e308)
LEAST = 5e-324  # of positive floats, denormal ones included
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
    ) -> tuple[Array | None, Array | None]:
        """Return how far values are above a and below b; None where there is no end."""
        least = self.least if least is None else least
        above = below = None
        if math.isfinite(self.low):
            above = np.maximum(values - (self.low - self.past), least)
        if math.isfinite(self.high):
            below = np.maximum((self.high + self.past) - values, least)
        return above, below

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
        """Return the logarithm of du / dy at values of y.

        .. math:: du / dy = 1 / (y - a) + 1 / (b - y)
        """
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
            deviation = np.sqrt(variances)
            # from the centre: E x^2 - (E x)^2 of nearly equal numbers has no digits
            centre = self.inverse(means)
            first = np.zeros(np.shape(means))
            second = np.zeros(np.shape(means))
            for node, share in zip(_NODES, _SHARES, strict=True):
                apart = self.inverse(means + node * deviation) - centre
                first = first + share * apart
                second = second + share * apart**2
            return centre + first, np.maximum(second - first**2, 0.0)
        # exp of a normal: mean exp(m + v / 2), its square times exp(v) - 1 as variance
        sign = 1.0 if math.isfinite(low) else -1.0
        grown = np.exp(sign * means + variances / 2)
        own = grown + low if sign > 0 else high - grown
        return own, grown**2 * np.expm1(variances)

    def rise(self, means: Array, variances: Array) -> Array:
        """Return how far u of y's mean lies from the mean of u."""
        if self.is_identity:
            return np.zeros_like(means)
        if math.isfinite(self.low) and math.isfinite(self.high):
            mean, _ = self.moments(means, variances)
            return self.of(mean) - means
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
            usual = np.minimum(moved, _MOST_MOVED).mean() if len(moved) else np.inf
            found[k] = usual > _MOVED
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
        are_counts = is_lone and steps_of(from_bound[:, None])[0] == 1
        past = 1.0 if are_counts else float(from_bound[from_bound > 0].min())
    low, high = bounds.tolist()
    # without a bound, values that are never below zero are read from there
    return Link(low=0.0 if np.isinf(bounds).all() else low, high=high, past=past)
