"""Bases: what a column of X, or the calendar alone, is made of before it acts.

A basis turns standardised values of the columns that it reads into columns b, one for
each coefficient. Tested in tests/structural/effects/test_effect.py.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy.interpolate import CubicSpline

from sklode.data.arrays import Array
from sklode.data.links import LEAST

# in natural logarithms, what a form must gain to pay for a curve
_ODDS_OF_CURVE = 1.0
# of a drawn curve
_PLACES = 200


@dataclass(frozen=True)
class Constant:
    """What is always there: an effect of the calendar alone."""

    first = -1
    n_read = 0
    n_columns = 1
    log_odds = 0.0
    is_curved = False

    def columns(self, values: Array) -> Array:
        """Return a one at each row of values."""
        return np.ones((len(values), 1))


@dataclass(frozen=True)
class _OfNumber:
    """What bases of a column of numbers have in common."""

    first: int  # the number of the column that it reads
    n_read = 1
    word = ""

    def name(self, names: Sequence[Hashable]) -> tuple[str, str]:
        """Return the column that it reads, and what it is, as a reader calls them."""
        return str(names[self.first]), self.word

    def grid(self, seen: Array) -> tuple[Array, Array]:
        """Return even values over all that was seen, as x and to be read."""
        values = np.linspace(np.nanmin(seen), np.nanmax(seen), _PLACES)
        return values, values[:, None]


@dataclass(frozen=True)
class Line(_OfNumber):
    """A straight line in a column."""

    n_columns = 1
    log_odds = 0.0
    is_curved = False
    word = "line"

    def columns(self, values: Array) -> Array:
        """Return b at values of the column, (row, 1) each."""
        return values


@dataclass(frozen=True)
class Logarithm(_OfNumber):
    """A straight line in the logarithm of a positive column: an elasticity."""

    centre: float  # what standardised values count from, in units of the column
    unit: float  # of standardised values, likewise
    location: float  # of the column's logarithms
    scale: float
    n_columns = 1
    log_odds = _ODDS_OF_CURVE
    is_curved = True
    word = "logarithm"

    @classmethod
    def of(cls, first: int, column: Array, centre: float, unit: float) -> Logarithm:
        """Return that of a column, in its own units, whose values are positive."""
        logs = np.log(column)
        scale = float(logs.std()) or 1.0
        return cls(first, centre, unit, location=float(logs.mean()), scale=scale)

    def columns(self, values: Array) -> Array:
        """Return b at standardised values of the column, (row, 1) each."""
        original = np.maximum(self.centre + self.unit * values, LEAST)
        found: Array = (np.log(original) - self.location) / self.scale
        return found


@dataclass(frozen=True)
class Spline(_OfNumber):
    """A natural cubic spline of a column, whose bends are equally likely anywhere.

    Beyond what was seen it is straight, with a part of its last slope. Green and
    Silverman, "Nonparametric Regression and Generalized Linear Models" (1994), chapter
    2.
    """

    knots: tuple[float, ...]  # of the standardised column
    beyond: float = 1.0  # part of its last slope, beyond the last knot
    log_odds = _ODDS_OF_CURVE
    is_curved = True
    word = "curve"

    @property
    def n_columns(self) -> int:
        """Number of its coefficients."""
        # natural splines on n knots are a space of n dimensions, of which the trend has
        # the constant
        return len(self.knots) - 1

    def columns(self, values: Array) -> Array:
        """Return b, (row, coefficient), at values of the column, (row, 1)."""
        values = values - (1 - self.beyond) * np.maximum(values - self.knots[-1], 0)
        # a natural spline goes on beyond its last knots by its slope there
        inside = np.clip(values[:, 0], self.knots[0], self.knots[-1])
        beyond = values - inside[:, None]
        curve = _bends(self.knots)
        return np.hstack([values, curve(inside) + beyond * curve(inside, 1)])


@dataclass(frozen=True)
class Levels:
    """The levels of a category, each with a size of its own."""

    first: int
    n_read: int  # indicators, from the first one on
    log_odds = 0.0
    is_curved = False

    @property
    def n_columns(self) -> int:
        """Number of its coefficients."""
        return self.n_read

    def columns(self, values: Array) -> Array:
        """Return b at the levels' indicators, (row, level) each."""
        return values

    def name(self, names: Sequence[Hashable]) -> tuple[str, str]:
        """Return the category that it reads, and what it is, as a reader calls them."""
        # the columns of a category are named "category = level"
        category, *_ = str(names[self.first]).partition(" = ")
        return category, "levels"

    def grid(self, seen: Array) -> tuple[Array, Array]:
        """Return places of levels, as a curve's x, and their indicators."""
        # levels stand at every second place, and NaN between them: a line that is drawn
        # through all breaks there
        n = self.n_read
        each = np.full((2 * n - 1, n), np.nan)
        each[::2] = np.eye(n)
        return np.arange(2 * n - 1) / 2, each


OfColumn: TypeAlias = Line | Logarithm | Spline | Levels
"""Bases that read a column, or the columns of a category."""
Basis: TypeAlias = Constant | OfColumn


@functools.cache
def _bends(knots: tuple[float, ...]) -> CubicSpline:
    """Return a curve's columns; their squares add up to one, on average.

    Of values g at the knots the roughness, the integral of the squared second
    derivative, is g' K g. As a prior, -g' K g / 2 is a normal log density: with K =
    V diag(k) V', the columns V / sqrt(k) have independent coefficients of one size.
    """
    # a spline of each knot's unit vector: all others are their sums
    hats = CubicSpline(knots, np.eye(len(knots)), bc_type="natural")
    bends, gaps = hats(knots, 2), np.diff(knots)
    # second derivatives are straight between knots, so that the integral of two hat
    # functions is a third of the gaps on the diagonal, and a sixth beside it: R of
    # Green and Silverman, section 2.1
    before, after = np.insert(gaps, 0, 0), np.append(gaps, 0)
    inner = np.diag(after + before) / 3
    inner += (np.diag(gaps, 1) + np.diag(gaps, -1)) / 6
    roughness, vectors = np.linalg.eigh(bends.T @ inner @ bends)
    # the two smallest eigenvalues are zero, those of constants and straight lines
    weights = vectors[:, 2:] / np.sqrt(roughness[2:])
    weights /= math.sqrt((weights**2).sum(1).mean())
    return CubicSpline(knots, weights, bc_type="natural")
