r"""An effect: a basis times a lag times a modulation, with coefficients of one size.

.. math:: \mathrm{effect}(t) = \sum_j \beta_j \, r_j(t) \, m_j(t), \quad
    \beta_j \sim N(0, \mathrm{size}^2)

with r what the `basis` makes of a column of X, at once or by a `lag`, and m the
`modulation` by the calendar. Which effects there are says `selection`.

Tested in tests/structural/effects/test_effect.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np

from sklode.data.arrays import Array
from sklode.structural.coefficients import ALONE, SAME, SHARED, Pooled, Pooling
from sklode.structural.effects.basis import Basis, Constant, Spline
from sklode.structural.effects.lags import (
    NOW,
    Age,
    Delay,
    Impulse,
    Lag,
    Memory,
    Queries,
)
from sklode.structural.effects.modulation import (
    ALWAYS,
    CalendarFeatures,
    Cycle,
    Day,
    Modulation,
)


@dataclass(frozen=True)
class Effect:
    """How a column of X acts, or the calendar alone."""

    basis: Basis
    lag: Lag = NOW
    modulation: Modulation = ALWAYS
    size: float = 1.0  # standard deviation of what it adds, in spreads
    pooling: Pooling = ALONE  # how series of a panel share its coefficients

    @property
    def order(self) -> tuple[object, ...]:
        """What effects are sorted by: the column, then what it makes of it."""
        basis, modulation = self.basis, self.modulation
        return (
            *(basis.first, basis.n_columns, type(basis).__name__, self.lag.time),
            *(modulation.rank, astuple(modulation), self.size),
            astuple(self.pooling),
        )

    @property
    def n_columns(self) -> int:
        """Number of its coefficients."""
        return self.basis.n_columns * self.modulation.n_columns

    @property
    def log_odds(self) -> float:
        """What it takes off the log probability of a form that has it."""
        parts = self.basis, self.lag, self.modulation, self.pooling
        return sum(part.log_odds for part in parts)

    def name(self, names: Sequence[Hashable], cycle: Cycle) -> str:
        """Return what a reader would call it, by the names of columns."""
        if isinstance(self.basis, Constant):
            return self.modulation.name(cycle)
        if self.is_of_age and self.basis.first < 0:
            # a column of X may have that name
            return "own age (curve)" if "age" in names else "age (curve)"
        column, how = self.basis.name(names)
        suffix = self.modulation.suffix(cycle) + self.lag.suffix
        return f"{column} ({how}{suffix})"

    @property
    def is_delayed(self) -> bool:
        """Whether it is of a column of y, after a delay."""
        return isinstance(self.lag, Delay)

    @property
    def is_of_X(self) -> bool:
        """Whether it is of a column of X, not of y or of the calendar."""
        return self.basis.first >= 0 and not self.is_delayed

    @property
    def is_of_age(self) -> bool:
        """Whether it is of the age that series share a curve of."""
        return isinstance(self.lag, Age)

    @property
    def shared(self) -> Effect:
        """The same, as series of a panel may share it, for a search to begin with."""
        # what is of another column of y is as good as its forecast, far ahead
        if self.is_delayed:
            return self
        # what each series has of its own by age is its trend
        of_age = replace(SAME, in_y=True)
        return replace(self, pooling=of_age if self.is_of_age else SHARED)

    @property
    def is_centred(self) -> bool:
        """Whether what differs between series of a panel is none of it.

        Where nothing is given nothing is added, and age is the same, of all series.
        """
        is_free = isinstance(self.lag, Impulse | Age)
        return not (is_free or self.pooling.is_between)

    @property
    def must_be_proved(self) -> bool:
        """Whether it has so many forms that folds of time must prove it."""
        return self.modulation.is_shape or self.is_delayed

    @property
    def kind(self) -> Effect:
        """The same, but for how late it is, how far it goes, and how series differ."""
        pooling = Pooling(has_mean=self.pooling.has_mean)
        lag, basis = self.lag, self.basis
        if isinstance(basis, Spline):
            basis = replace(basis, beyond=1.0)
        if isinstance(lag, Memory | Impulse | Delay):
            lag = replace(lag, time=1.0)
        size = 1.0 if pooling.has_mean else self.size
        return replace(self, basis=basis, lag=lag, pooling=pooling, size=size)

    @property
    def parts(self) -> list[Effect]:
        """Effects whose columns add up to its own: of each day of several."""
        one = self.modulation
        if not isinstance(one, Day) or len(one.days) < 2:
            return [self]
        days = [replace(one, days=(day,)) for day in one.days]
        return [replace(self, modulation=day) for day in days]

    def lagged(self, queries: Queries) -> Array:
        """Return what basis and lag make at queries, (query, coefficient)."""
        if isinstance(self.basis, Constant):
            return np.ones((len(queries.times), 1))
        return self.lag.columns(self.basis, queries)

    def modulated(self, columns: Array, features: CalendarFeatures) -> Array:
        """Return columns (row, coefficient) as the calendar changes them."""
        return self.modulation.times(columns, features, self.size)

    def at(self, values: Array) -> Array:
        """Return its columns at standardised values, (row, read), which act now."""
        return self.size * self.basis.columns(values)


def modulated(
    effects: Sequence[Effect], columns: Sequence[Array], features: CalendarFeatures
) -> Array:
    """Return the columns of effects as the calendar changes them, side by side."""
    pairs = zip(effects, columns, strict=True)
    found = [effect.modulated(own, features) for effect, own in pairs]
    # of no effects there is no column
    nothing = np.zeros((len(features.share_of_day), 0))
    return np.hstack([nothing, *found])


def pooled(effects: Sequence[Effect]) -> Pooled:
    """Return how each coefficient of effects is pooled, in their order."""
    return Pooled.of(
        poolings=[effect.pooling for effect in effects],
        n_columns=[effect.n_columns for effect in effects],
        is_centred=[effect.is_centred for effect in effects],
    )


def places(effects: Sequence[Effect]) -> dict[Effect, tuple[int, ...]]:
    """Return the columns of each effect among those of all."""
    numbers = [effect.n_columns for effect in effects]
    ends = itertools.accumulate(numbers, initial=0)
    pairs = zip(effects, itertools.pairwise(ends), strict=True)
    return {effect: tuple(range(first, end)) for effect, (first, end) in pairs}
