"""Answers of channels without a value below zero: counts, rain, shares."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from sklode.levels.mixture import Mixture
from sklode.levels.table import Table

__all__ = ["Floored", "has_zeros", "offset_of", "skewness", "steps_of"]

Array = NDArray[np.floating]

_RATIOS = np.linspace(-2.5, 3.0, 300)
"""Of mean and standard deviation, of a normal that is cut off at zero."""

_FAR = 3.0  # standard deviations above zero: next to nothing is below it
_COARSE = 6.0  # a standard deviation to which steps of one are small
_HALVINGS = 20
_LEAST = 5e-324  # of positive floats


def steps_of(values: Array) -> Array:
    """Return how far apart values of channels are, (channel,).

    1: whole numbers; 0: others; NaN: some are below zero. ``values`` (row, channel).
    """
    known = np.where(np.isnan(values), 0.0, values)
    whole = (known == np.round(known)).all(axis=0)
    return np.where((known < 0).any(axis=0), np.nan, np.where(whole, 1.0, 0.0))


def has_zeros(values: Array) -> bool:
    """Return whether some are zero, and none below."""
    return bool(len(values)) and float(values.min()) == 0.0


def offset_of(values: Array) -> float:
    """Return what is added to values before a logarithm: where some are zero, a step.

    The step is one of whole numbers, and the smallest value above zero of others.
    """
    if not has_zeros(values) or not values.any():
        return 0.0
    whole = steps_of(values[:, None])[0] == 1
    return 1.0 if whole else float(values[values > 0].min())


def skewness(table: Table) -> float:
    """Return that of gamma or, for whole numbers, negative binomial distributions.

    Those of the means and variances of series; of many the median.
    """
    whole, found = steps_of(table.values[:, None])[0], [0.0]
    for first, end in zip(table.bounds[:-1], table.bounds[1:], strict=True):
        own = table.values[first:end]
        spread = own.std() if len(own) else 0.0
        if spread > 0:
            found.append(2 * spread / own.mean() - whole / spread)
    return max(float(np.median(found[1:] or found)), 0.0)


class Floored:
    r"""A mixture made one of values that are not below zero.

    .. math:: y = \max(0, a + b u)

    rounded where ``step`` is one. Where u may well be below zero, a and b keep the mean
    of the signal, itself not below zero, and the variance of u.
    """

    def __init__(self, mixture: Mixture, step: float) -> None:
        self._mixture, self._step = mixture, step
        self._shift, self._stretch = np.zeros(1), np.ones(1)
        self._variance = mixture.variance() + step / 12
        if mixture.weights @ mixture.logarithm < 0.5:
            with np.errstate(over="ignore"):
                self._fit(*mixture.normal())

    def _fit(self, middle: Array, signal: Array, noise: Array) -> None:
        """Find a and b, of means, deviations of the signal and of the noise."""
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
        """Return forecasts of u that are not below zero, (query,): not rounded."""
        return np.maximum(self._mixture.points(), 0.0)

    def variance(self) -> Array:
        """Return the variance of y, (query,)."""
        return self._variance


def _cut_off(ratio: Array) -> tuple[Array, Array]:
    """Return mean and standard deviation of max(0, u), u normal around ``ratio``.

    In standard deviations of u.
    """
    above = ndtr(ratio)
    mean = ratio * above + np.exp(-0.5 * ratio**2) / np.sqrt(2 * np.pi)
    mean = np.maximum(mean, 0.0)
    variance = above + (ratio - mean) * mean
    return mean, np.sqrt(np.maximum(variance, 0.0))


def _rounded(centre: Array, spread: Array, mean: Array) -> tuple[Array, Array]:
    """Return where normals lie whose y, whole numbers, have a mean; and variances."""
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
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        is_low = moments(middle)[0] < mean
        low, high = np.where(is_low, middle, low), np.where(is_low, high, middle)
    return centre + high, np.maximum(moments(high)[1], 0.0)
