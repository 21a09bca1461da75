r"""How wide errors are at some times of the day and the week, over others.

.. math:: \log \sigma(t) = h(t), \quad h = x(t)^\top \beta, \quad \beta_j \sim N(0, 1)

with x few harmonics of day and week, and a mean: Harvey, "Estimating Regression Models
with Multiplicative Heteroscedasticity" (1976); Trimbur and Bell (2012) of seasons.

Tested in tests/structural/predictive/test_dispersion.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sklode.data.arrays import Array, Numbers
from sklode.structural.effects.modulation import harmonics_of
from sklode.structural.filter.system import THRESHOLD

# harmonics, of the day and of the week
_OF_DAY = 4
_OF_WEEK = 2  # a week's are smoother
# of a week: rows farther apart tell nothing of it
_MOST_GAP = 0.25
ALIKE = 4.0
"""Neighbouring rows that err as one."""
# by scoring
_STEPS = 8
# of a logarithm, in one step
_MOST_MOVED = 1.0


class Clock(NamedTuple):
    """How many harmonics of day and week rows show, (row, 2) of `Design.clock`."""

    of_day: int = 0
    of_week: int = 0

    @classmethod
    def shown(cls, passed: Array) -> Clock:
        """Return what rows of shares of days, and weeks, show."""
        days, weeks = passed.T
        of_day = min(_n_stamps(days) // 2, _OF_DAY)
        gaps, of_week = np.diff(weeks), 0
        if (gaps > 0).any() and np.median(gaps[gaps > 0]) <= _MOST_GAP:
            of_week = min(_n_stamps(weeks % 1) // 2, _OF_WEEK)
        return cls(of_day, of_week)

    def columns(self, passed: Array) -> Array:
        """Return harmonics at rows, and a mean, (row, coefficient)."""
        days, weeks = passed.T
        pairs = (days, self.of_day), (weeks % 1, self.of_week)
        shapes = [harmonics_of(share, n, size=1.0) for share, n in pairs if n]
        return np.hstack([*shapes, np.ones((len(passed), 1))])


class Dispersion(NamedTuple):
    """Factors of standard deviations by the clock; none: of all times alike."""

    clock: Clock = Clock()
    coefficients: Array = np.zeros(1)

    @classmethod
    def of(
        cls, errors: Array, rows: Numbers, clock: Clock, passed: Array
    ) -> Dispersion:
        """Measure it by errors of `calibration.errors_of`.

        ``passed`` (row, 2) is what `Design.clock` says.
        """
        if not len(rows):
            return cls()
        # each row was asked many times, and neighbours err alike
        worth = len(np.unique(rows)) / len(rows) / ALIKE
        return cls.fitted(errors, passed[rows], clock, worth)

    @classmethod
    def fitted(
        cls, errors: Array, passed: Array, clock: Clock, worth: float = 1.0
    ) -> Dispersion:
        """Fit it to errors, in deviations, if they tell of it.

        ``passed`` (error, 2) is as in `of`; each error counts as so many.
        """
        if not any(clock):
            return cls()
        X = clock.columns(passed)
        found, squares = np.zeros(X.shape[1]), errors**2
        information = 2 * worth * X.T @ X + np.eye(len(found))
        for _ in range(_STEPS):
            # the log density -h - e^2 exp(-2 h) / 2 has the slope e^2 exp(-2 h) - 1
            # in h, of variance 2; outliers count as in the filter
            left = np.minimum(squares * np.exp(-2 * X @ found), THRESHOLD**2)
            score = worth * X.T @ (left - 1) - found
            step = np.linalg.solve(information, score)
            largest = np.abs(X @ step).max(initial=_MOST_MOVED)
            found += step * (_MOST_MOVED / largest)
        logs = X @ found
        # how much is gained over one width at all times; the evidence pays for
        # coefficients by Laplace's approximation of its integral
        level = 0.5 * np.log(np.exp(2 * logs).mean())
        gain = worth * (_loss(squares, level) - _loss(squares, logs)).sum()
        _, log_determinant = np.linalg.slogdet(information)
        if gain <= 0.5 * (found @ found + log_determinant):
            return cls()
        # on the whole as wide as the model says
        found[-1] -= level
        return cls(clock, found)

    def at(self, passed: Array) -> Array:
        """Return factors at rows, (row,), of what `Design.clock` says there."""
        found: Array = np.exp(self.clock.columns(passed) @ self.coefficients)
        return found


def _loss(squares: Array, logs: Array | float) -> Array:
    """Return what errors cost, by ``logs`` of deviations, see `filter_rows`."""
    left, cap = squares * np.exp(-2 * logs), THRESHOLD**2
    over = 0.5 * cap * (1 + np.log(np.maximum(left / cap, 1.0)))
    found: Array = logs + np.where(left <= cap, 0.5 * left, over)
    return found


def _n_stamps(shares: Array) -> int:
    """Return how many times of a day or a week there are."""
    return len(np.unique(shares.round(4)))
