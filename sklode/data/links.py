"""What y is modelled on: itself, a logarithm, or a logit between bounds."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from sklode.data.arrays import Array, Flags

# of counts, square differences over sums:
# 1 of Poisson ones, 0.1 of glucose in mg/dL
_MOVED = 0.3
# that one pair counts as at most, for a jump alone makes no counts
_MOST_MOVED = 4.0
# of logarithms whose exponential a float64 holds: log(1.8e308)
_LARGEST = 709.0
LEAST = 5e-324  # of positive floats, denormal ones included
# Gauss and Hermite's nodes of a standard normal: a logit's moments
# to some 1e-4. Their weights sum to the root of 2 pi, shares to one.
_NODES, _SHARES = np.polynomial.hermite_e.hermegauss(24)
_SHARES = _SHARES / _SHARES.sum()


class Link(NamedTuple):
    r"""A function u of y that no value of u takes beyond y's bounds.

    .. math:: u = \log(y - a) - \log(b - y)

    of whose terms those of finite bounds count;
    without any, u = y. With ``past`` a and b are so
    far beyond the bounds, for values that lie at them.
    """

    low: float = -math.inf
    high: float = math.inf
    past: float = 0.0
    # distance from a or b: smaller ones count as this
    least: float = LEAST

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
        if self.is_identity:
            return "identity"
        if self.is_logarithm:
            return "logarithm"
        return "logarithm of what is left" if math.isinf(self.low) else "logit"

    @property
    def _ends(self) -> tuple[float, float]:
        """The ends a and b."""
        return self.low - self.past, self.high + self.past

    def has(self, values: Array) -> Flags:
        """Return which values of y have a u; those that are missing do."""
        low, high = self._ends
        return np.isnan(values) | ((low < values) & (values < high))

    def _distances(
        self, values: Array, least: Array | float | None
    ) -> tuple[Array | None, Array | None]:
        """Return how far values are above a and below b; None without an end."""
        least = self.least if least is None else least
        low, high = self._ends
        above = below = None
        if math.isfinite(low):
            above = np.maximum(values - low, least)
        if math.isfinite(high):
            below = np.maximum(high - values, least)
        return above, below

    def of(self, values: Array, least: Array | float | None = None) -> Array:
        """Return u of values of y."""
        above, below = self._distances(values, least)
        if above is None:
            return values if below is None else -np.log(below)
        if below is None:
            return np.log(above)
        return np.log(above) - np.log(below)

    def inverse(self, u: Array) -> Array:
        """Return y of values of u."""
        if self.is_identity:
            return u
        low, high = self._ends
        if self.is_logarithm:
            return np.exp(np.minimum(u, _LARGEST)) + low
        if math.isinf(self.low):
            return high - np.exp(np.minimum(-u, _LARGEST))
        # u = log(p / (1 - p)) of the share p of the way from a to b
        share: Array = expit(u)
        return low + (high - low) * share

    def log_slope(self, values: Array) -> Array:
        """Return the logarithm of du / dy at values of y.

        .. math:: du / dy = 1 / (y - a) + 1 / (b - y)
        """
        above, below = self._distances(values, None)
        if above is None:
            return np.zeros_like(values) if below is None else -np.log(below)
        if below is None:
            return -np.log(above)
        # log(1 / d) = -log(d), of which the exponentials are summed
        return np.logaddexp(-np.log(above), -np.log(below))

    def moments(self, means: Array, variances: Array) -> tuple[Array, Array]:
        """Return y's mean and variance, of a normal u."""
        if self.is_identity:
            return means, variances
        low, high = self._ends
        if math.isfinite(low) and math.isfinite(high):
            return self._moments_of_logit(means, variances)
        # Of exp(u) the mean is exp(m + v / 2),
        # the variance its square times exp(v) - 1.
        # Below an upper end y = b - exp(-u), and -u has the mean -m.
        sign = 1.0 if math.isfinite(low) else -1.0
        grown = np.exp(sign * means + variances / 2)
        mean = grown + low if sign > 0 else high - grown
        return mean, grown**2 * np.expm1(variances)

    def _moments_of_logit(
        self,
        means: Array,
        variances: Array,
    ) -> tuple[Array, Array]:
        """Return y's mean and variance by Gauss and Hermite's quadrature."""
        deviations = np.sqrt(variances)
        # from the centre: E x^2 - (E x)^2
        # of nearly equal numbers has no digits
        centre = self.inverse(means)
        first = np.zeros(np.shape(means))
        second = np.zeros(np.shape(means))
        for node, share in zip(_NODES, _SHARES, strict=True):
            from_centre = self.inverse(means + node * deviations) - centre
            first = first + share * from_centre
            second = second + share * from_centre**2
        return centre + first, np.maximum(second - first**2, 0.0)

    def rise(self, means: Array, variances: Array) -> Array:
        """Return how far u of y's mean lies from the mean of u."""
        if self.is_identity:
            return np.zeros_like(means)
        if math.isfinite(self.low) and math.isfinite(self.high):
            mean, _ = self.moments(means, variances)
            return self.of(mean) - means
        # log E exp(u) = m + v / 2, see `moments`;
        # with -u in place of u its negative
        return variances / 2 if self.is_logarithm else -variances / 2


IDENTITY = Link()


@np.errstate(over="ignore")  # of what no float holds
def steps_of(values: Array) -> Array:
    """Return 1 of channels of counts, 0 of others, NaN of some below zero.

    Whole numbers are counts if they move as counts do,
    whose square differences are their sum on average (Poisson);
    measurements that were rounded move less.
    """
    found = np.zeros(values.shape[1])
    for k, column in enumerate(values.T):
        known = column[~np.isnan(column)]
        if (known < 0).any():
            found[k] = np.nan
        elif (known == np.round(known)).all():
            # Of two independent Poisson counts of one rate r,
            # E (x - y)^2 = 2 r = E (x + y): this share is near 1.
            sums = known[1:] + known[:-1]
            squares = np.diff(known) ** 2
            moved = squares[sums > 0] / sums[sums > 0]
            # of zeros alone: they are counts
            usual = np.inf
            if len(moved):
                usual = np.minimum(moved, _MOST_MOVED).mean()
            found[k] = usual > _MOVED
    return found


def margins(values: Array, bounds: Array) -> Array:
    """Return how far values (row, channel) are from bounds (channel, 2).

    Of channels without bounds from zero,
    which is one where no value is below.
    """
    low, high = bounds.T
    has_none = np.isinf(low) & np.isinf(high)
    low = np.where(has_none, 0.0, low)
    return np.minimum(values - low, high - values)


def has_zeros(values: Array) -> bool:
    """Return whether some are zero, and none below."""
    return bool(len(values)) and float(values.min()) == 0.0


def link_of(values: Array, bounds: Array) -> Link:
    """Return what values (row,) between bounds (2,) may be modelled on.

    Some at a bound are, as zeros are before a logarithm,
    moved by the least step.
    """
    from_bound = margins(values[:, None], bounds[None])[:, 0]
    if not len(values) or from_bound.min() < 0:
        return IDENTITY
    past = 0.0
    if has_zeros(from_bound) and from_bound.any():
        # between two bounds there are no counts, which go on for ever
        has_open_end = np.isinf(bounds).any()
        are_counts = has_open_end and steps_of(from_bound[:, None])[0] == 1
        past = 1.0 if are_counts else float(from_bound[from_bound > 0].min())
    low, high = bounds.tolist()
    # without a bound, values that are never below zero are read from there
    if np.isinf(bounds).all():
        low = 0.0
    return Link(low=low, high=high, past=past)
