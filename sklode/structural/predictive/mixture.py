"""Average forecasts: mixtures of normal distributions of y, or what it is linked to.

Tested in tests/structural/predictive/test_mixture.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from scipy.special import ndtr, ndtri

from sklode.data.arrays import Array, Numbers
from sklode.data.links import LEAST, Link
from sklode.structural.predictive.recalibration import NODES, WEIGHTS, Recalibration
from sklode.structural.rows import Rows

# of an interval, to the last bit of a float
_HALVINGS = 60


class Distribution(Protocol):
    """What is asked of forecasts' distributions, whether within bounds or not."""

    def quantiles(self, levels: Array) -> Array:
        """Return quantiles of y, (query, level)."""

    def points(self) -> Array:
        """Return forecasts, (query,)."""

    def variance(self) -> Array:
        """Return the variance of y, (query,)."""


@dataclass(frozen=True)
class Mixture:
    """Of each query a mixture of normals, each of y or of what its link makes of y.

    Components of which a query has none, of other series, have no weight there.
    """

    weights: Array  # (component, query), whose sums are one
    means: Array  # (component, query)
    spreads: Array  # standard deviations of the signal
    noises: Array  # of the noise
    links: tuple[Link, ...]  # (component,)
    fading: Array  # (component, query), variance of the part of the signal that fades
    smearing: Array  # (component, 1), see `points`
    recalibration: Recalibration | None = None

    @property
    def is_linked(self) -> Array:
        """Whether each component is of what y is linked to, (component, 1)."""
        return np.array([[not link.is_identity] for link in self.links])

    def at(self, queries: Rows) -> Mixture:
        """Return that of some queries."""
        own = self.recalibration
        return replace(
            self,
            weights=self.weights[:, queries],
            means=self.means[:, queries],
            spreads=self.spreads[:, queries],
            noises=self.noises[:, queries],
            fading=self.fading[:, queries],
            recalibration=None if own is None else own.at(queries),
        )

    def share_of_linked(self) -> Array:
        """Return how much of each query's weight linked components have."""
        share: Array = (self.weights * self.is_linked).sum(0)
        return share

    def normal(self) -> tuple[Array, Array, Array]:
        """Return the mean of unlinked components, and deviations of signal and noise.

        Of queries that have any.
        """
        weights = np.where(self.is_linked, 0.0, self.weights)
        weights = weights / np.maximum(weights.sum(0), LEAST)
        some = weights > 0
        means = np.where(some, self.means, 0.0)
        spreads, noises = self.spreads, self.noises
        if self.recalibration is not None:
            shift, factor = self.recalibration.moments()
            means = np.where(some, means + shift * np.hypot(spreads, noises), 0.0)
            spreads, noises = factor * spreads, factor * noises
        mean = (weights * means).sum(0)
        # the law of total variance: that between components adds to that within
        # them. Roots of sums of squares by hypot, as the squares may overflow
        root = np.sqrt(weights)
        between = root * np.where(some, means - mean, 0.0)
        within = root * np.where(some, spreads, 0.0)
        signal = np.hypot.reduce([*between, *within])
        noise = np.hypot.reduce(root * np.where(some, noises, 0.0))
        return mean, signal, noise

    @np.errstate(over="ignore", invalid="ignore")
    def quantiles(self, levels: Array) -> Array:
        """Return quantiles of the signal and its noise, (query, level)."""
        # a constant has no spread: the distribution function needs one
        least = np.maximum(1e-12 * np.abs(self.means), LEAST)
        spread = np.maximum(np.hypot(self.spreads, self.noises), least)
        some = self.weights > 0
        n_halvings = _HALVINGS if len(self.weights) > 1 else 0
        result = np.empty((self.means.shape[1], len(levels)))
        for k, level in enumerate(levels):
            # a mixture's distribution function is an average of its components':
            # its quantile lies between theirs, and is found by bisection;
            # low + (high - low) / 2 does not overflow, as their sum might
            own = np.full(self.means.shape[1], ndtri(level))
            if self.recalibration is not None:
                own = self.recalibration.moved(own)
            each = self.original(self.means + own * spread)
            low = np.where(some, each, np.inf).min(0)
            high = np.where(some, each, -np.inf).max(0)
            for _ in range(n_halvings):
                middle = low + (high - low) / 2
                errors: Array = (self.linked(middle) - self.means) / spread
                if self.recalibration is not None:
                    errors = self.recalibration.normal(errors)
                below = ndtr(errors)
                is_low = (self.weights * below).sum(0) < level
                low = np.where(is_low, middle, low)
                high = np.where(is_low, high, middle)
            result[:, k] = low + (high - low) / 2
        return result

    def medians(self) -> Array:
        """Return medians, (query,)."""
        return self.quantiles(np.array([0.5]))[:, 0]

    def points(self) -> Array:
        r"""Return forecasts, (query,): the mean over what passes, else the median.

        Of a logarithm :math:`\exp(m + c \sigma^2 / 2)`, with m the median,
        :math:`\sigma` the deviation of noise and of what fades, and c the smearing
        factor. A trend drifts without end: its mean far ahead is that of a few futures
        that nobody expects.
        """
        # plain deviations may overflow when squared; there nothing rises
        noises = np.where(self.is_linked, self.noises, 0.0)
        variances = self.smearing * (noises**2 + self.fading)
        rises = by_link(self.links, Link.rise, self.means, variances)
        rises = np.where(self.is_linked, rises, 0.0)
        return replace(self, means=self.means + rises).medians()

    @np.errstate(over="ignore", invalid="ignore")
    def variance(self) -> Array:
        """Return the variance of each query, with noise, (query,)."""
        means = self.means.copy()
        variances = np.hypot(self.spreads, self.noises) ** 2
        for k, link in enumerate(self.links):
            means[k], variances[k] = link.moments(means[k], variances[k])
        if self.recalibration is not None:
            mine = self.recalibration.is_moved
            found = self.at(mine)._recalibrated(self.recalibration.at(mine))
            means[:, mine], variances[:, mine] = found
        # the law of total variance: within components, and between them
        some = self.weights > 0
        means = np.where(some, means, 0.0)
        from_mean = means - (self.weights * means).sum(0)
        squares = np.where(some, variances + from_mean**2, 0.0)
        total: Array = (self.weights * squares).sum(0)
        return total

    def _recalibrated(self, errors: Recalibration) -> tuple[Array, Array]:
        """Return components' means and variances of y, (component, query)."""
        spreads, centre = np.hypot(self.spreads, self.noises), self.original(self.means)
        means, squares = np.zeros((2, *spreads.shape))
        for node, weight in zip(NODES, WEIGHTS, strict=True):
            own = errors.moved(np.full(len(errors.kind), node))
            moved = self.original(self.means + own * spreads) - centre
            means += weight * moved
            squares += weight * moved**2
        variances = np.maximum(squares - means**2, 0.0)
        # of y itself in closed form: a difference of large values cancels
        shift, factor = errors.moments()
        is_plain = np.logical_not(self.is_linked)
        means = np.where(is_plain, shift * spreads, means)
        return centre + means, np.where(is_plain, (factor * spreads) ** 2, variances)

    def original(self, values: Array) -> Array:
        """Return y of each component's values, (component, query)."""
        return by_link(self.links, Link.inverse, values)

    def linked(self, values: Array) -> Array:
        """Return what y, (query,), is to each component, (component, query)."""
        values = np.broadcast_to(values, self.means.shape)
        return by_link(self.links, Link.of, values)


def by_link(links: tuple[Link, ...], of: Callable[..., Array], *arrays: Array) -> Array:
    """Return ``of(link, rows of arrays)``, (link, ...), of rows with a link each.

    Where nothing is linked the first array stays.
    """
    found = arrays[0].copy()
    # components of one search share their link
    for link in dict.fromkeys(links):
        if not link.is_identity:
            mine = [own == link for own in links]
            found[mine] = of(link, *(array[mine] for array in arrays))
    return found


@dataclass(frozen=True)
class Paths:
    """Draws of a mixture: of each path and query a component, its signal and noise."""

    component: Numbers  # (path, query)
    signal: Array  # (path, query), in units of the component's link
    noise: Array  # the same
    links: tuple[Link, ...]  # (component,)
    has_noise: bool = True

    def of_component(self, table: Array) -> Array:
        """Return a table's (component, query) entries of the drawn, (path, query)."""
        return np.take_along_axis(table, self.component, axis=0)

    def values(self) -> Array:
        """Return the paths of y, (path, query)."""
        found = self.signal + self.noise
        for k, link in enumerate(self.links):
            if not link.is_identity:
                mine = self.component == k
                found[mine] = link.inverse(found[mine])
        return found

    def of_y(self, values: Array) -> Paths:
        """Return paths of y itself, of one component."""
        return replace(
            self,
            component=np.zeros(values.shape, np.int64),
            signal=values,
            noise=np.zeros_like(values),
            links=(Link(),),
        )
