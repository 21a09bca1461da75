"""The steps in a row by which a mixture becomes a predictive distribution.

Each knows what it does to a distribution and to sample paths of it, so that quantiles
of many paths are the quantiles: points, quantiles, variances and paths use one list.

Tested in tests/structural/predictive/test_steps.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from sklode.data.arrays import Array
from sklode.data.links import LEAST, Link
from sklode.structural.predictive.bounds import Between, Floored
from sklode.structural.predictive.limits import BOUNDS, Limits
from sklode.structural.predictive.mixture import Distribution, Mixture, Paths
from sklode.structural.predictive.recalibration import Recalibration
from sklode.structural.rows import Rows

# of the middle 90 % of a normal distribution
TO_DEVIATION = 3.29


class Step(Protocol):
    """A step from a distribution to the next."""

    def on_mixture(self, mixture: Any) -> Any:
        """Return the distribution after it: a mixture, until bounds make another."""

    def on_paths(self, paths: Paths, mixture: Any) -> Paths:
        """Return paths after it, of a ``mixture`` before it."""


@dataclass(frozen=True)
class Conditioned:
    """Signals given what other columns say: moved, and nearer to each other."""

    shift: Array  # (component, query), in units of the component's link
    middle: Array  # (component, query), of which deviations shrink
    factor: Array | float  # (query,), of deviations

    def _moved(self, signal: Array, shift: Array, middle: Array) -> Array:
        moved: Array = middle + shift + self.factor * (signal - middle)
        return moved

    def on_mixture(self, mixture: Mixture) -> Mixture:
        """Return it with means moved, and narrower signals."""
        return replace(
            mixture,
            means=self._moved(mixture.means, self.shift, self.middle),
            spreads=self.factor * mixture.spreads,
            fading=self.factor**2 * mixture.fading,
        )

    def on_paths(self, paths: Paths, mixture: Mixture) -> Paths:
        """Return them moved likewise."""
        shift, middle = map(paths.of_component, (self.shift, self.middle))
        return replace(paths, signal=self._moved(paths.signal, shift, middle))


@dataclass(frozen=True)
class Inflated:
    """Stretched about medians, which stay, as much as errors were wider."""

    measure: Callable[[], Array]  # of `factor`, which forecasts do not ask for

    @cached_property
    def factor(self) -> Array:
        """That of standard deviations, (query,)."""
        return self.measure()

    def on_mixture(self, mixture: Mixture) -> Mixture:
        """Return it wider."""
        if (self.factor == 1).all():
            return mixture
        centre = mixture.linked(mixture.medians())
        return replace(
            mixture,
            means=centre + self.factor * (mixture.means - centre),
            spreads=self.factor * mixture.spreads,
            noises=self.factor * mixture.noises,
        )

    def on_paths(self, paths: Paths, mixture: Mixture) -> Paths:
        """Return them farther from the medians."""
        if (self.factor == 1).all():
            return paths
        centre = paths.of_component(mixture.linked(mixture.medians()))
        return replace(
            paths,
            signal=centre + self.factor * (paths.signal - centre),
            noise=self.factor * paths.noise,
        )


@dataclass(frozen=True)
class UncertainX:
    """Signals over what X may be, where it is not known."""

    added: Array  # (component, path, query), in units of the component's link

    def on_mixture(self, mixture: Mixture) -> Mixture:
        """Return it as wide as what X adds: means and variances add up."""
        return replace(
            mixture,
            means=mixture.means + self.added.mean(axis=1),
            spreads=np.hypot(mixture.spreads, self.added.std(axis=1)),
        )

    def on_paths(self, paths: Paths, mixture: Mixture) -> Paths:
        """Return each path with what its path of X adds."""
        own = np.arange(len(paths.signal))[:, None]
        queries = np.arange(paths.signal.shape[1])
        added = self.added[paths.component, own, queries]
        return replace(paths, signal=paths.signal + added)


@dataclass(frozen=True)
class MeansWithin:
    """Components' means within the moves seen.

    A logarithm may have run away, to where no network leads back from.
    """

    limits: Limits

    def on_mixture(self, mixture: Mixture) -> Mixture:
        """Return it with means that lie between two values of y."""
        low, high = self.limits.ends(BOUNDS)
        with np.errstate(invalid="ignore"):  # of limits that are infinite
            low, high = mixture.linked(low), mixture.linked(high)
            return replace(mixture, means=np.clip(mixture.means, low, high))

    def on_paths(self, paths: Paths, mixture: Mixture) -> Paths:
        """Return each path moved by as much as its component's mean."""
        moved = self.on_mixture(mixture).means - mixture.means
        return replace(paths, signal=paths.signal + paths.of_component(moved))


@dataclass(frozen=True)
class Adjustment:
    r"""Where another forecast moves distributions, and how wide it makes them.

    .. math:: u \to m + w (f - m) + c \, (u - m)

    with u what y is linked to, and m the `middle`. All arrays are (query,).
    """

    link: Link
    target: Array  # f, in units of u
    weight: Array  # w, from 0 to 1
    factor: Array  # c
    most: Array  # of | f - m |, in deviations, see `limited`
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

    def middle(self, mixture: Mixture) -> Array:
        """Return what a move takes for the middle: the median, of y the forecast."""
        if self.link.is_identity:
            return self.link.of(mixture.points())
        return self.link.of(mixture.medians())

    def limited(self, mixture: Mixture) -> tuple[Adjustment, Array]:
        """Return a move that goes no farther than it may, and the middle it goes from.

        Its limit is in deviations, those of a normal distribution with the same middle
        90 %. The more a move counts, the less they tell of the width that is left: a
        network that knows a law may be sure where a structural model is not.
        """
        ends = mixture.quantiles(np.array([0.05, 0.95]))
        low, high = self.link.of(ends.T)
        deviation = np.maximum((high - low) / TO_DEVIATION, LEAST)
        middle = self.middle(mixture)
        most = self.most * deviation
        # between the own width (weight 0) and the usual one (weight 1) on a
        # logarithmic scale
        ratio = np.where(np.isnan(self.usual), 1.0, self.usual / deviation)
        limited = replace(
            self,
            target=np.clip(self.target, middle - most, middle + most),
            factor=self.factor * ratio**self.weight,
        )
        return limited, middle

    def on_mixture(self, mixture: Mixture) -> Mixture:
        """Return it after the move, of whose kind all components then are."""
        adjustment, middle = self.limited(mixture)
        link, is_linked = self.link, not self.link.is_identity
        values = mixture.original(mixture.means)
        # the delta method: to first order u(y) has |du / dy| times the deviation of y,
        # which is that of another link over its own slope
        slopes = [
            link.log_slope(y) - own.log_slope(y)
            for own, y in zip(mixture.links, values, strict=True)
        ]
        log_stretch = np.stack(slopes)
        if is_linked:
            # of a normal that reaches the link's end the slope there says nothing:
            # the deviation becomes one at most
            spread = np.maximum(np.hypot(mixture.spreads, mixture.noises), LEAST)
            log_stretch = np.minimum(log_stretch, np.log(1 / spread))
        # components that are of the move's link already keep their units
        is_same = np.array(
            [[own._replace(least=link.least) == link] for own in mixture.links]
        )
        means = np.where(is_same, mixture.means, link.of(values))
        stretch = np.where(is_same, 1.0, np.exp(log_stretch))
        factor = adjustment.factor * stretch
        from_middle = adjustment.factor * (means - middle)
        return replace(
            mixture,
            means=adjustment.centre(middle) + from_middle,
            spreads=factor * mixture.spreads,
            noises=factor * mixture.noises,
            links=(link,) * len(mixture.links),
            fading=factor**2 * mixture.fading,
            # of what was none of a link nothing says how far sums lie from medians
            smearing=mixture.smearing * np.where(is_linked, mixture.is_linked, 0.0),
        )

    def on_paths(self, paths: Paths, mixture: Mixture) -> Paths:
        """Return them after the move."""
        adjustment, middle = self.limited(mixture)
        from_middle = self.link.of(paths.values()) - middle
        moved = adjustment.centre(middle) + adjustment.factor * from_middle
        return paths.of_y(self.link.inverse(moved))


@dataclass(frozen=True)
class Recalibrated:
    """With errors of the quantiles that those ahead had; means stay."""

    measure: Callable[[], Recalibration]  # which forecasts do not ask for

    @cached_property
    def recalibration(self) -> Recalibration | None:
        """What it does to quantiles; None: nothing."""
        found = self.measure()
        return found if found.is_moved.any() else None

    def on_mixture(self, mixture: Mixture) -> Mixture:
        """Return it with errors of such quantiles."""
        return replace(mixture, recalibration=self.recalibration)

    def on_paths(self, paths: Paths, mixture: Mixture) -> Paths:
        """Return paths whose errors have such quantiles."""
        if self.recalibration is None:
            return paths
        noises = mixture.noises if paths.has_noise else np.zeros_like(mixture.noises)
        spreads = paths.of_component(np.hypot(mixture.spreads, noises))
        errors = paths.signal + paths.noise - paths.of_component(mixture.means)
        spreads = np.maximum(spreads, LEAST)
        moved = spreads * self.recalibration.moved(errors / spreads)
        return replace(paths, signal=paths.signal + moved - errors)


@dataclass(frozen=True)
class Bounded:
    """Counts, values that are not below zero, and values within a user's bounds."""

    quantum: float  # see `links.steps_of`
    bounds: Array  # (2,)

    def on_mixture(self, mixture: Mixture) -> Distribution:
        """Return a distribution within bounds."""
        if np.isfinite(self.bounds).all():
            return Between(mixture, self.bounds)
        if np.isnan(self.quantum):
            return mixture
        return Floored(mixture, self.quantum, self.bounds)

    def on_paths(self, paths: Paths, mixture: Mixture) -> Paths:
        """Return paths within bounds; without noise they are no counts."""
        found: Any = self.on_mixture(mixture)
        if isinstance(found, Mixture):
            return paths
        put = found.put if paths.has_noise else found.inside
        return paths.of_y(put(paths.values()))


@dataclass(frozen=True)
class WithinMoves:
    """No farther than the data have moved in as long a time."""

    limits: Limits

    def on_mixture(self, mixture: Distribution) -> Distribution:
        """Return a distribution that ends there."""
        return _Ended(mixture, self.limits)

    def on_paths(self, paths: Paths, mixture: Distribution) -> Paths:
        """Return paths that stay there."""
        return paths.of_y(self.limits.within(paths.values()))


@dataclass(frozen=True)
class _Ended:
    """A distribution whose values end at limits."""

    inside: Distribution
    limits: Limits

    def quantiles(self, levels: Array) -> Array:
        """Return quantiles of y, (query, level)."""
        return self.limits.within(self.inside.quantiles(levels).T).T

    def points(self) -> Array:
        """Return forecasts, (query,), which move less far than intervals' ends."""
        return self.limits.points(self.inside.points())

    def variance(self) -> Array:
        """Return the variance of y, (query,)."""
        with np.errstate(over="ignore"):
            most = (BOUNDS * self.limits.reach) ** 2
            return np.minimum(self.inside.variance(), most)


@dataclass(frozen=True)
class Prediction:
    """A column's predictive distribution: a mixture, and the steps it goes through."""

    mixture: Mixture
    steps: Sequence[Step]

    def distribution(self) -> Any:
        """Return the distribution after all steps."""
        found: Any = self.mixture
        for step in self.steps:
            found = step.on_mixture(found)
        return found

    def points(self) -> Array:
        """Return forecasts, (query,), which are the same however wide errors were."""
        as_it_is = self.without(Inflated, Recalibrated)
        found: Array = as_it_is.distribution().points()
        return found

    def without(self, *kinds: type) -> Prediction:
        """Return it without steps of some kinds."""
        steps = [step for step in self.steps if not isinstance(step, kinds)]
        return replace(self, steps=steps)

    def paths(self, paths: Paths) -> Array:
        """Return draws of y, (path, query), of draws of the mixture."""
        mixture: Any = self.mixture
        for step in self.steps:
            paths = step.on_paths(paths, mixture)
            mixture = step.on_mixture(mixture)
        return paths.values()
