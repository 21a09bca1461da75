r"""How wide errors are at some times of the day and the week, over others.

.. math:: \log \sigma(t) = h(t), \quad h = x(t)^\top \beta, \quad \beta_j \sim N(0, 1)

with x few harmonics of day and week, and a mean: Harvey, "Estimating Regression Models
with Multiplicative Heteroscedasticity" (1976); Trimbur and Bell (2012) of seasons.

Tested in tests/structural/predictive/test_dispersion.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sklode.data.arrays import Array
from sklode.structural.components.noise import LEAST_NOISE
from sklode.structural.effects.modulation import harmonics_of
from sklode.structural.filter.system import THRESHOLD
from sklode.structural.rows import Rows

# harmonics, of the day and of the week
_OF_DAY, _OF_WEEK = 4, 2
# of a week: rows farther apart tell nothing of it
_MOST_GAP = 0.25
# by scoring
_STEPS = 8
# of a logarithm, in one step
_MOST_MOVED = 1.0


class Clock(NamedTuple):
    """Few harmonics of day and week at rows, and a mean."""

    columns: Array  # (row, coefficient)

    @classmethod
    def of(
        cls, passed: tuple[Array, Array], shown: tuple[Array, Array] | None = None
    ) -> Clock:
        """Return those of rows, of ``passed`` shares of days, and weeks, (row,) each.

        There are as many as rows that have ``shown`` these tell of; None: as these.
        """
        days, weeks = passed if shown is None else shown
        of_day = min(_n_stamps(days) // 2, _OF_DAY)
        gaps, of_week = np.diff(weeks), 0
        if (gaps > 0).any() and np.median(gaps[gaps > 0]) <= _MOST_GAP:
            of_week = min(_n_stamps(weeks % 1) // 2, _OF_WEEK)
        share, several = passed
        pairs = (share, of_day), (several % 1, of_week)
        shapes = [harmonics_of(share, n, size=1.0) for share, n in pairs if n]
        return cls(np.hstack([*shapes, np.ones((len(passed[0]), 1))]))

    def where(self, rows: Rows) -> Clock:
        """Return those of some rows."""
        return Clock(self.columns[rows])


class Dispersion(NamedTuple):
    """Factors of standard deviations by the clock; none: of all times alike."""

    coefficients: Array = np.zeros(0)

    @classmethod
    def measured(cls, v: Array, F: Array, clock: Clock) -> Dispersion:
        """Measure it by innovations v, of expected variance F, if they tell of it.

        They are in the units of the states.
        """
        X = clock.columns
        if len(v) <= X.shape[1] or X.shape[1] < 2:
            return cls()
        # noise that is always there is no error that could be smaller
        squares = (v**2 + LEAST_NOISE**2) / F
        found = np.zeros(X.shape[1])
        information = 2 * X.T @ X + np.eye(len(found))
        for _ in range(_STEPS):
            # the log density -h - e^2 exp(-2 h) / 2 has the slope e^2 exp(-2 h) - 1
            # in h, of variance 2; outliers count as in the filter
            left = np.minimum(squares * np.exp(-2 * X @ found), THRESHOLD**2)
            step = np.linalg.solve(information, X.T @ (left - 1) - found)
            largest = np.abs(X @ step).max(initial=_MOST_MOVED)
            found += step * (_MOST_MOVED / largest)
        h = X @ found
        # how much is gained over one width at all times; the evidence pays for
        # coefficients by Laplace's approximation of its integral
        level = 0.5 * np.log(np.exp(2 * h).mean())
        gain = (_loss(squares, level) - _loss(squares, h)).sum()
        _, log_determinant = np.linalg.slogdet(information)
        if gain <= 0.5 * (found @ found + log_determinant):
            return cls()
        # on the whole as wide as the model says
        found[-1] -= level
        return cls(found)

    def at(self, clock: Clock) -> Array:
        """Return factors at rows, (row,)."""
        if not len(self.coefficients):
            return np.ones(len(clock.columns))
        found: Array = np.exp(clock.columns @ self.coefficients)
        return found


def _loss(squares: Array, h: Array | float) -> Array:
    """Return what errors cost that have the deviation exp(h), see `filter_rows`."""
    left, cap = squares * np.exp(-2 * h), THRESHOLD**2
    over = 0.5 * cap * (1 + np.log(np.maximum(left / cap, 1.0)))
    found: Array = h + np.where(left <= cap, 0.5 * left, over)
    return found


def _n_stamps(shares: Array) -> int:
    """Return how many times of a day or a week there are."""
    return len(np.unique(shares.round(4)))
