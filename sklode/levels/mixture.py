"""Mixtures of normal and log-normal distributions: what an average forecast is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

__all__ = ["Mixture", "Move"]

Array = NDArray[np.floating]

_HALVINGS = 60
_LARGEST = 709.0  # of logarithms whose exponential a float holds
_LEAST = 5e-324  # of positive floats


class Move(NamedTuple):
    r"""Where another forecast moves distributions to, and what it makes of their width.

    .. math:: u \to m + w (f - m) + c \, (u - m)

    with u the value or, where ``logarithm``, its logarithm, and m its median. All
    arrays are (query,).
    """

    logarithm: bool
    target: Array  # f, in units of u
    weight: Array  # w, from 0 to 1
    factor: Array  # c

    def plain(self, values: Array) -> Array:
        """Return u of values."""
        return np.log(np.maximum(values, _LEAST)) if self.logarithm else values

    def of(self, values: Array, medians: Array) -> Array:
        """Return values, (..., query), of distributions with such medians, moved."""
        middle = self.plain(medians)
        moved = self._centre(middle) + self.factor * (self.plain(values) - middle)
        return np.exp(np.minimum(moved, _LARGEST)) if self.logarithm else moved

    def _centre(self, middle: Array) -> Array:
        return middle + self.weight * (self.target - middle)


@dataclass(frozen=True)
class Mixture:
    """Of each query a mixture; of log-normals where ``logarithm``, in y's units."""

    weights: Array  # (component,)
    means: Array  # (component, query); of logarithms, where those are normal
    spreads: Array  # of the noise-free signal: standard deviations
    noises: Array  # (component, query or 1): those of the observation noise
    logarithm: NDArray[np.bool_]  # (component,)
    offset: float = 0.0  # of values, before the logarithm

    @classmethod
    def of(cls, components: list[Any], means: Array, variances: Array) -> Mixture:
        """Return it in y's units, from states' units."""
        n = means.shape[1]
        scale = np.stack([np.broadcast_to(c.scale, n) for c in components])
        location = np.stack([np.broadcast_to(c.location, n) for c in components])
        noises = np.array([c.noise for c in components])
        # no squares: a float that holds y need not hold them
        with np.errstate(over="ignore"):
            spreads = scale * np.sqrt(np.maximum(variances, 0.0))
            means = location + scale * means
        return cls(
            np.array([c.weight for c in components]),
            means,
            spreads,
            scale * np.sqrt(noises)[:, None],
            np.array([c.form.logarithm for c in components]),
            max(c.offset for c in components),
        )

    def normal(self) -> tuple[Array, Array, Array]:
        """Return means, deviations of the signal and of the noise, of its normals."""
        chosen = ~self.logarithm
        weights = self.weights[chosen, None] / self.weights[chosen].sum()
        mean, root = (weights * self.means[chosen]).sum(0), np.sqrt(weights)
        apart = root * (self.means[chosen] - mean)
        signal = np.hypot.reduce([*apart, *(root * self.spreads[chosen])])
        return mean, signal, np.hypot.reduce(root * self.noises[chosen])

    def shifted(self, component: Any, shift: Array) -> Mixture:
        """Return it once ``shift``, (query,), is added in the units of a component.

        The others are moved as far, in y's units, but for their spread.
        """
        log = self.logarithm[:, None]
        move = component.scale * shift
        if component.form.logarithm:
            means = np.where(log, self.means + move, self.means * np.exp(move))
        else:
            size = self._original(np.where(log, self.means, 1.0)) + self.offset
            relative = move / size
            least = np.log1p(np.maximum(relative, -0.9))
            means = self.means + np.where(log, least, move)
        return replace(self, means=means)

    def moved(self, move: Move) -> Mixture:
        """Return it after a move; all its components are then of the move's kind."""
        middle, log = move.plain(self.points()), self.logarithm[:, None]
        size = np.maximum(self._original(self.means), _LEAST)
        if move.logarithm:
            means, stretch = np.where(log, self.means, np.log(size)), 1 / size
        else:
            means, stretch = np.where(log, size, self.means), size + self.offset
        factor = move.factor * np.where(log == move.logarithm, 1.0, stretch)
        return Mixture(
            self.weights,
            move._centre(middle) + move.factor * (means - middle),
            factor * self.spreads,
            factor * self.noises,
            np.full(len(self.weights), move.logarithm),
        )

    def quantiles(self, levels: Array, noise: bool = True) -> Array:
        """Return quantiles of the signal, and the noise on it, (query, level)."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self._quantiles(levels, noise)

    def _quantiles(self, levels: Array, noise: bool) -> Array:
        spread = np.hypot(self.spreads, noise * self.noises)
        spread = np.maximum(spread, np.maximum(1e-12 * np.abs(self.means), _LEAST))
        result = np.empty((self.means.shape[1], len(levels)))
        for k, level in enumerate(levels):
            each = self._original(self.means + ndtri(level) * spread)
            low, high = each.min(0), each.max(0)
            # between the least and the largest quantile of its components
            for _ in range(_HALVINGS if len(self.weights) > 1 else 0):
                middle = low + (high - low) / 2
                below = ndtr((self._inverse(middle) - self.means) / spread)
                is_low = self.weights @ below < level
                low = np.where(is_low, middle, low)
                high = np.where(is_low, high, middle)
            result[:, k] = low + (high - low) / 2
        return result

    def medians(self) -> Array:
        """Return the median of each query, (query,)."""
        return self.quantiles(np.array([0.5]))[:, 0]

    def points(self) -> Array:
        """Return forecasts, (query,): medians, or of an offset those of the mean rate.

        That is what observations are on average, were the signal known: among zeros a
        median may be zero.
        """
        if not self.offset:
            return self.medians()
        rise = np.where(self.logarithm[:, None], self.noises**2 / 2, 0.0)
        rates = replace(self, means=self.means + rise)
        return rates.quantiles(np.array([0.5]), noise=False)[:, 0]

    def variance(self) -> Array:
        """Return the variance of each query, noise included, (query,)."""
        spread = np.hypot(self.spreads, self.noises)
        log = self.logarithm[:, None]
        with np.errstate(over="ignore", invalid="ignore"):
            squares = spread**2
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
