r"""What a column of X does: nothing, a straight line or a smooth curve, soon or late.

.. math:: \mathrm{effect}(t) = \sum_j \beta_j r_j(t), \quad
    \dot r_j = (b_j(u(t)) - r_j) / \tau, \quad \beta_j \sim N(0, 1)

with u a column of X, linear between its rows; b the line and the curve's columns; and
r = b where there is no memory :math:`\tau`. A curve is a natural cubic spline, whose
second derivative is equally likely anywhere; beyond what was seen it is straight.

Green and Silverman, "Nonparametric Regression and Generalized Linear Models" (1994),
chapter 2. Which effects there are says `effect_selection`.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.interpolate import CubicSpline

from sklode.data.arrays import Array, Numbers
from sklode.structural.candidates import kalman
from sklode.structural.coupling.delays import N_DELAYS, earlier

# in usual gaps, where a search begins: the
# most probable one lies near one of them
MEMORIES = 2.0 ** np.arange(0.0, 10.0, 1.25)
# in natural logarithms, what a form must gain to pay
# for a part of an effect: one out of so many memories
# and delays costs the logarithm of their number
_ODDS_OF_CURVE = 1.0
_ODDS_OF_MEMORY = math.log(len(MEMORIES))
_ODDS_OF_DELAY = math.log(N_DELAYS)
# of some 130 options: days in a row, sizes, waves
_ODDS_OF_WAVES = 5.0
ALWAYS, MONTH, HOLIDAYS = -1, -2, -3
"""Columns of effects that no X has: what is always there, months, and named days."""
# of the size of named days, what part each name has of its own
_OWN = 0.3
# columns of a clock, see `Effect.along`;
# from `NAMED` on the kinds of three days
SHARE_OF_DAY, WEEKDAY, SHARE_OF_MONTH, NAMED = range(4)


class Effect(NamedTuple):
    """How a column of X acts, or the kind of day alone."""

    column: int  # of X, or `ALWAYS`
    knots: tuple[float, ...] = ()  # of the standardised column; none: a line
    memory: float = 0.0  # in usual gaps; 0: it acts at once
    days: tuple[int, ...] = ()  # of the week: it is of these alone; none: of all
    waves: int = 0  # of the day: its coefficients change along these
    size: float = 1.0  # standard deviation of what it adds, in spreads
    kinds: int = 0  # of named days, each of which adds to what all have in common
    sides: bool = False  # whether the days before and after named ones differ too
    levels: int = 0  # of a category, columns from this one on; 0: it is a number
    delay: float = 0.0  # in usual gaps, of a column of y; 0: it is one of X

    @property
    def log_odds(self) -> float:
        """What it takes off the log probability of a form that has it."""
        odds = _ODDS_OF_CURVE * bool(self.knots)
        odds += _ODDS_OF_MEMORY * (self.memory > 0)
        odds += _ODDS_OF_DELAY * (self.delay > 0)
        odds += _ODDS_OF_WAVES * bool(self.waves)
        return odds

    def name(
        self, controls: Sequence[Hashable], cycle: tuple[str, Sequence[str]]
    ) -> str:
        """Return what a reader would call it, by the names of X's columns.

        ``cycle`` names the day, or what stands for it, and the days of the week.
        """
        day, days_of_week = cycle
        if self.column == MONTH:
            return "month"
        if self.column == HOLIDAYS:
            return "holidays, days beside them" if self.sides else "holidays"
        if self.column == ALWAYS:
            which = ", ".join(days_of_week[k] for k in self.days)
            return f"{day} of {which}" if self.days else day
        if self.levels:
            # the columns of a category are named "category = level"
            category, *_ = str(controls[self.column]).partition(" = ")
            how = "levels, late" if self.memory else "levels"
            return f"{category} ({how})"
        how = "curve" if self.knots else "line"
        if self.waves:
            how += f" along the {day}"
        elif self.memory or self.delay:
            how += ", late"
        return f"{controls[self.column]} ({how})"

    @property
    def is_of_X(self) -> bool:
        """Whether it is of a column of X, not of y or of the calendar."""
        return self.column >= 0 and not self.delay

    @property
    def kind(self) -> Effect:
        """The same, but for how late it is."""
        is_remembered, is_delayed = self.memory > 0, self.delay > 0
        return self._replace(memory=float(is_remembered), delay=float(is_delayed))

    @property
    def n_columns(self) -> int:
        """Number of its coefficients."""
        if self.column == HOLIDAYS:
            n_days = 3 if self.sides else 1
            return (1 + self.kinds) * n_days
        # natural splines on n knots are a space of n
        # dimensions, of which the trend has the constant
        n = max(len(self.knots) - 1, self.levels, 1)
        if not self.waves:
            return n
        # a cosine and a sine of each wave;
        # where nothing else is, a constant too
        return n * (2 * self.waves + (self.column == ALWAYS))

    def at(self, values: Array) -> Array:
        """Return b, (row, coefficient), at values of its column or its levels'."""
        if self.levels:
            return self.size * values
        if not self.knots:
            return values[:, None]
        # a natural spline goes on beyond
        # its last knots by its slope there
        inside = np.clip(values, self.knots[0], self.knots[-1])
        beyond = (values - inside)[:, None]
        curve = _curve(self.knots)
        found = curve(inside) + beyond * curve(inside, 1)
        return np.column_stack([values, found])

    def along(self, columns: Array, clock: Array) -> Array:
        """Return columns b as they change with the clock, (row, coefficient).

        ``clock`` (row, 6) is the share of the day that has passed, the day of the week,
        the share of the month, and the kinds of three days, see `Calendar.at`.
        """
        if self.column == HOLIDAYS:
            return self._on_named_days(clock)
        if self.days:
            is_own = np.isin(clock[:, WEEKDAY], self.days)
            columns = columns * is_own[:, None]
        if self.waves:
            # each column times each of the shape's
            products = columns[:, :, None] * self._shape(clock)[:, None]
            columns = products.reshape(len(clock), -1)
        return columns

    def _on_named_days(self, clock: Array) -> Array:
        """Return a column of all named days, and one of each name.

        With ``sides`` the same of the day before and the day after.
        """
        names = np.arange(1, self.kinds + 1)
        columns = []
        for day in range(NAMED, NAMED + (3 if self.sides else 1)):
            kind = clock[:, [day]]
            columns += [kind > 0, _OWN * (kind == names)]
        return self.size * np.hstack(columns)

    def _shape(self, clock: Array) -> Array:
        """Return the waves of a day or a month, (row, coefficient).

        The shorter the wave, the less it is expected to add: its variance falls as
        1 / k, as that of a season's does.
        """
        k = np.arange(1, self.waves + 1)
        of_clock = SHARE_OF_MONTH if self.column == MONTH else SHARE_OF_DAY
        passed = clock[:, [of_clock]]
        angles = 2 * math.pi * passed * k
        share = np.sqrt(1 / k)
        waves = [share * np.cos(angles), share * np.sin(angles)]
        if self.column == ALWAYS:
            waves.append(np.ones((len(clock), 1)))
        # as cos^2 + sin^2 = 1, the waves have
        # the variance sum 1 / k at any time
        deviation = math.sqrt((1 / k).sum())
        return np.hstack(waves) * (self.size / deviation)


@functools.cache
def _curve(knots: tuple[float, ...]) -> CubicSpline:
    """Return a curve's columns; their squares add up to one, on average.

    Of values g at the knots the roughness, the integral of the squared second
    derivative, is g' K g. As a prior, -g' K g / 2 is a normal log density: with K =
    V diag(k) V', the columns V / sqrt(k) have independent coefficients of one size.
    """
    # a spline of each knot's unit vector: all others are their sums
    hats = CubicSpline(knots, np.eye(len(knots)), bc_type="natural")
    bends, gaps = hats(knots, 2), np.diff(knots)
    # second derivatives are straight between knots, so that the integral
    # of two hat functions is a third of the gaps on the diagonal, and a
    # sixth beside it: R of Green and Silverman, section 2.1
    before, after = np.insert(gaps, 0, 0), np.append(gaps, 0)
    inner = np.diag(after + before) / 3
    inner += (np.diag(gaps, 1) + np.diag(gaps, -1)) / 6
    roughness, vectors = np.linalg.eigh(bends.T @ inner @ bends)
    # the two smallest eigenvalues are zero,
    # those of constants and straight lines
    weights = vectors[:, 2:] / np.sqrt(roughness[2:])
    weights /= math.sqrt((weights**2).sum(1).mean())
    return CubicSpline(knots, weights, bc_type="natural")


class Read(NamedTuple):
    """What effects may read, at observations of series: X, and y that may act late."""

    bounds: Numbers  # (series + 1,)
    times: Array  # (row,), in usual gaps since each series' first row
    columns: Array  # (row, control + channel), standardised; NaN where y is missing


def columns_of(
    effects: Sequence[Effect],
    known: Read,
    place: Numbers,
    seen: Read,
    series: Numbers,
    times: Array,
) -> list[Array]:
    """Return what each effect makes of columns at times of series, (row, column).

    X is that of the ``known`` rows at ``place``, a column of y what was ``seen``.
    """
    parts: list[Array] = []
    for effect in effects:
        k = effect.column
        if k < 0:
            parts.append(np.ones((len(times), 1)))
        elif effect.delay:
            found = earlier(
                bounds=seen.bounds,
                times=seen.times,
                column=seen.columns[:, k],
                series=series,
                asked=times - effect.delay,
            )
            # columns are standardised: what was
            # never seen is taken for the mean
            parts.append(effect.at(np.nan_to_num(found)))
        else:
            own = slice(k, k + effect.levels) if effect.levels else k
            found = effect.at(known.columns[:, own])
            if effect.memory:
                found = kalman().respond(
                    times=known.times,
                    bounds=known.bounds,
                    columns=found,
                    memory=effect.memory,
                )
            parts.append(found[place])
    return parts


def along_the_day(
    effects: Sequence[Effect], columns: list[Array], clock: Array
) -> Array:
    """Return the columns of effects as the clock changes them, (row, coefficient)."""
    pairs = zip(effects, columns, strict=True)
    found = [effect.along(own, clock) for effect, own in pairs]
    # of no effects there is no column
    nothing = np.zeros((len(clock), 0))
    return np.hstack([nothing, *found])


def places(effects: Sequence[Effect]) -> dict[Effect, tuple[int, ...]]:
    """Return the columns of each effect among those of all."""
    numbers = [effect.n_columns for effect in effects]
    ends = itertools.accumulate(numbers, initial=0)
    pairs = zip(effects, itertools.pairwise(ends), strict=True)
    return {effect: tuple(range(first, end)) for effect, (first, end) in pairs}
