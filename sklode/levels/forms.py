"""What a level may be made of, and how hyperparameters become its state space.

The hyperparameters are logarithms, in units of the series' spread and of its span or,
for memories, of time. `PRIORS` gives the medians and the standard deviations of their
normal priors: wide ones, that matter for short series.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["BASE", "Form", "StateSpace", "priors", "state_space"]

Array = NDArray[np.floating]

BASE = (
    "slope",  # standard deviation of a straight line's rise over the span
    "walk",  # of a random walk's, over the span
    "drift",  # of an integrated velocity's, were it constant over the span
    "memory",  # of that velocity
    "deviation",  # of an Ornstein-Uhlenbeck process
    "fade",  # its memory
    "noise",  # of the observations
    "constant",  # of the series' levels at their first rows
)
"""Hyperparameters of every form; a season has two more, its size and its memory."""

_MEDIANS = (0.2, 0.5, 0.5, 8.0, 0.2, 4.0, 0.2, 1.0)
_WIDTHS = (1.0, 1.5, 1.5, 1.0, 1.0, 1.0, 1.0, 1.0)
_STARTS = (1.0, 0.5, 0.3, 8.0, 0.3, 5.0, 0.3, 1.0)
_SEASON = (0.3, 1.5), (15.0, 1.0)  # median and width: of its size, of periods it keeps
_SEASON_START = 0.7, 10.0

VAGUE = 10.0
"""Of a lone series the first level may be anything: nothing else tells of it."""

LEAST_NOISE = 1e-3  # standard deviation, in units of the spread


class Form(NamedTuple):
    """What a candidate is made of, beside what all are made of."""

    periods: tuple[float, ...] = ()
    logarithm: bool = False
    effects: tuple[tuple[int, ...], ...] = ()
    """Columns of X that each effect reads, see `sklode.levels.effects`."""


class StateSpace(NamedTuple):
    """What `sklode.levels.kernel` runs; ``start`` is the covariance at a first row."""

    rates: Array  # (6,), see `kernel.RATES`
    waves: Array  # (harmonic, 3)
    start: Array  # (state, state)
    season: NDArray[np.int64]  # (harmonic,)
    effect: NDArray[np.int64]  # (column,)

    @property
    def nothing(self) -> Array:
        """No part at all, (0, state)."""
        return np.zeros((0, len(self.start)))

    @property
    def whole(self) -> Array:
        """The lone part that adds up all states, (1, state)."""
        return np.ones((1, len(self.start)))

    @property
    def parts(self) -> Array:
        """The states that each part adds up, (part, state).

        They are trend, deviation, one of each season, one of each effect of X, and the
        sum of all.
        """
        n_seasons = len(set(self.season.tolist()))
        others = np.append(np.repeat(self.season, 2), n_seasons + self.effect)
        parts = np.zeros((2 + max(others, default=-1) + 2, len(self.start)))
        parts[0, 0] = parts[1, 3] = 1
        parts[2 + others.astype(np.int64), 4 + np.arange(len(others))] = 1
        parts[-1] = 1
        return parts


def priors(form: Form) -> tuple[Array, Array, Array]:
    """Return medians, standard deviations and starting values of all logarithms."""
    medians, widths, starts = map(np.array, (_MEDIANS, _WIDTHS, _STARTS))
    for period in form.periods:
        units = np.array([1.0, period])
        medians = np.append(medians, [p[0] for p in _SEASON] * units)
        widths = np.append(widths, [p[1] for p in _SEASON])
        starts = np.append(starts, _SEASON_START * units)
    return np.log(medians), widths, np.log(starts)


def state_space(
    form: Form, logs: Array, span: float, harmonics: int, before: float = 0.0
) -> StateSpace:
    """Return the state space of hyperparameters, times in units of the usual gap.

    The slope counts from the last stamp; walk and velocity began two spans before it.
    The start is that of a row so long ``before`` the first one.
    """
    slope, walk, drift, memory, deviation, fade, noise, constant = np.exp(logs[:8])
    velocity = (drift / span) ** 2
    seen = noise * noise + LEAST_NOISE**2
    rates = np.array([walk * walk / span, velocity, memory, deviation**2, fade, seen])
    frequency, share, season = _waves(form.periods, harmonics)
    size, kept = np.exp(logs[8:]).reshape(-1, 2).T
    table = np.column_stack([frequency, kept[season], size[season] ** 2 * share])
    effect = np.repeat(np.arange(len(form.effects)), [len(c) for c in form.effects])
    others = np.append(np.repeat(table[:, 2], 2), np.ones(len(effect)))
    start = np.zeros((4 + len(others), 4 + len(others)))
    passed = max(span - before, 0.0)
    x, back = passed / memory, (span + before) / span
    risen = velocity * memory**2 * (2 * x + 2 * math.exp(-x) - 2)
    start[0, 0] = constant**2 + (slope * back) ** 2 + rates[0] * passed + risen
    start[0, 1] = start[1, 0] = -back * slope**2 / span
    start[1, 1] = (slope / span) ** 2
    start[0, 2] = start[2, 0] = velocity * memory * (1 - math.exp(-x))
    start[2, 2] = velocity
    start[3, 3] = deviation**2
    np.fill_diagonal(start[4:, 4:], others)
    return StateSpace(rates, table, start, season, effect.astype(np.int64))


@functools.cache
def _waves(
    periods: tuple[float, ...], harmonics: int
) -> tuple[Array, Array, NDArray[np.int64]]:
    """Return each harmonic's angular frequency, share of its season, and season."""
    frequencies: list[Array] = [np.zeros(0)]
    shares: list[Array] = [np.zeros(0)]
    seasons: list[int] = []
    for number, period in enumerate(periods):
        # stamps one unit apart show no shorter wave than two units
        n = max(1, min(int(period / 2 + 0.25), harmonics))
        order = np.arange(1, n + 1)
        frequencies.append(2 * math.pi * order / period)
        shares.append(1 / order / (1 / order).sum())
        seasons += [number] * n
    season = np.array(seasons, np.int64)
    return np.concatenate(frequencies), np.concatenate(shares), season
