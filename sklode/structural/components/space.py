"""What a candidate may be made of, and its state space by hyperparameters.

Hyperparameters are logarithms, in units of a series' spread and span or, for memories,
of time. Their priors are normal and wide: they matter for short series.

Tested in tests/structural/test_exactness.py.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from sklode.data.arrays import Array, Numbers

# medians are of usual series in units of their spread; a width of 1.5 is a factor of
# 4.5 either way
BASE = {
    "slope": (0.2, 1.0, 1.0),  # standard deviation of a line's rise over the span
    "random walk": (0.5, 1.5, 0.5),  # of its rise over the span
    "velocity": (0.5, 1.5, 0.3),  # of its rise, were it constant over the span
    "velocity memory": (8.0, 1.0, 8.0),
    "OU": (0.2, 1.0, 0.3),  # of an Ornstein-Uhlenbeck process
    "OU memory": (4.0, 1.0, 5.0),
    "noise": (0.2, 1.0, 0.3),  # of the observations
    "constant": (1.0, 1.0, 1.0),  # of the series' levels at their first rows
}
"""Hyperparameters of every form: median, width of its prior, start of the search."""

PLACE = {name: k for k, name in enumerate(BASE)}
"""Where each of them stands among a form's logarithms; seasons' follow, in pairs."""
SIZES_OF_SEASONS = slice(len(BASE), None, 2)
MEMORIES_OF_SEASONS = slice(len(BASE) + 1, None, 2)

# of a form whose velocity moves the OU process: what it adds there, and its memory. Of
# six settings that were compared on the developers' windows all lay within 2 %
_RETURNING = {"velocity": (0.3, 1.5, 0.3), "velocity memory": (2.0, 1.0, 2.0)}
# the same of a season's size, and of how many periods it is remembered
_SEASON, _PERIODS_KEPT = (0.3, 1.5, 0.7), (15.0, 1.0, 100.0)
# of a lone series, of whose first level nothing else tells: in units of the spread, and
# so a prior that is all but flat (Durbin and Koopman 2012, chapter 5)
VAGUE = 10.0
# standard deviation, in units of the spread: without noise F may be zero
LEAST_NOISE = 1e-3


class Form(NamedTuple):
    """What a candidate is made of, beside what all are made of."""

    periods: tuple[float, ...] = ()
    linked: bool = False
    """Whether it is of what y is linked to, not of y itself."""
    effects: tuple[tuple[int, ...], ...] = ()
    """Columns of X that each effect reads, see `effects`."""
    gap: float = 1.0
    """Usual one of the channel's own rows, in units of time: priors count by it."""
    returning: bool = False
    """Whether the velocity moves the OU process, not the trend: what wanders smoothly
    comes back."""

    @property
    def columns(self) -> list[int]:
        """Columns of X that all effects read, in the order of their states."""
        return [column for effect in self.effects for column in effect]


class StateSpace(NamedTuple):
    """What `filter.forward` runs; ``start`` is the covariance at a first row."""

    rates: Array  # (7,), see `filter.forward.RATES`
    waves: Array  # (harmonic, 3)
    start: Array  # (state, state)
    season: Numbers  # (harmonic,)
    effect: Numbers  # (column,)

    @property
    def whole(self) -> Array:
        """The lone part that adds up all states, (1, state)."""
        return np.ones((1, len(self.start)))

    @property
    def deviation_and_all(self) -> Array:
        """The parts of the OU process, and of all states, (2, state)."""
        return self.parts[[1, -1]]

    @property
    def parts(self) -> Array:
        """States of trend, OU, each season, effect, and all, (part, state)."""
        # the states after the first four, in order, say which season (two a harmonic)
        # or, numbered on, which effect they are of
        n_seasons = len(set(self.season.tolist()))
        seasons = np.repeat(self.season, 2)
        owners = np.append(seasons, n_seasons + self.effect).astype(np.int64)
        n_owners = 1 + max(owners, default=-1)
        parts = np.zeros((2 + n_owners + 1, len(self.start)))
        parts[0, 0] = parts[1, 3] = 1
        parts[2 + owners, 4 + np.arange(len(owners))] = 1
        parts[-1] = 1
        return parts


def priors(form: Form) -> tuple[Array, Array, Array]:
    """Return medians, deviations and starting values of all logarithms."""
    base = BASE | _RETURNING if form.returning else BASE
    rows = [*base.values()]
    for period in form.periods:
        kept, width, start = _PERIODS_KEPT
        rows += [_SEASON, (kept * period, width, start * period)]
    medians, widths, starts = np.array(rows).T
    # memories are in usual gaps of the channel
    memories = [PLACE["velocity memory"], PLACE["OU memory"]]
    medians[memories] *= form.gap
    starts[memories] *= form.gap
    return np.log(medians), widths, np.log(starts)


def state_space(
    form: Form, logs: Array, span: float, harmonics: int, before: float = 0.0
) -> StateSpace:
    """Return the state space, started so long ``before`` the first row.

    The slope counts from the last stamp; walk and velocity began two spans before it.
    """
    # numbers of numpy: hyperparameters far off overflow to infinity, which is refused,
    # where Python's own would raise
    sizes = dict(zip(BASE, np.exp(logs[: len(BASE)]), strict=True))
    walk, rise, noise = sizes["random walk"], sizes["velocity"], sizes["noise"]
    # a rise over the span is a velocity times the span, a walk's variance is in
    # proportion to time; what moves the OU process counts by what it makes of it
    velocity, smooth = (rise / span) ** 2, 0.0
    if form.returning:
        velocity, smooth = 0.0, rise * rise
    rates = [
        walk * walk / span,
        velocity,
        sizes["velocity memory"],
        sizes["OU"] ** 2,
        sizes["OU memory"],
        noise * noise + LEAST_NOISE**2,
        smooth,
    ]
    frequency, share, season = _harmonics(form, harmonics)
    size = np.exp(logs[SIZES_OF_SEASONS])
    kept = np.exp(logs[MEMORIES_OF_SEASONS])
    variances = size[season] ** 2 * share
    n_columns = np.array([len(c) for c in form.effects], np.int64)
    effect = np.repeat(np.arange(len(n_columns), dtype=np.int64), n_columns)
    # a harmonic begins as it is in the long run; X is so scaled that its coefficients
    # are of size one
    others = np.append(np.repeat(variances, 2), np.ones(len(effect)))
    start = np.zeros((4 + len(others), 4 + len(others)))
    start[:4, :4] = _start(sizes, rates, span, before)
    np.fill_diagonal(start[4:, 4:], others)
    return StateSpace(
        rates=np.array(rates),
        waves=np.column_stack([frequency, kept[season], variances]),
        start=start,
        season=season,
        effect=effect,
    )


def _start(
    sizes: dict[str, float], rates: list[float], span: float, before: float
) -> Array:
    """Return the covariance of trend, slope, velocity and OU process, (4, 4)."""
    slope, constant = sizes["slope"], sizes["constant"]
    walk, velocity, memory, ou, ou_memory, _, smooth = rates
    # two spans before the last stamp is one before the first row, if ``before`` is 0
    passed = max(span - before, 0.0)
    x, back = passed / memory, (span + before) / span
    left = math.exp(-x)
    start = np.zeros((4, 4))
    # an OU process of variance v and memory m, integrated over a time m x, has the
    # variance v m^2 (2 x + 2 exp(-x) - 2) and the covariance v m (1 - exp(-x)) with its
    # last value: integrals of v exp(-|s - t| / m)
    risen = velocity * memory**2 * (2 * x + 2 * left - 2)
    # a slope s is a line through zero at the last stamp, ``back`` spans ahead: the
    # trend is -back span s there
    start[0, 0] = constant**2 + (slope * back) ** 2 + walk * passed + risen
    start[0, 1] = start[1, 0] = -back * slope**2 / span
    start[1, 1] = (slope / span) ** 2
    start[0, 2] = start[2, 0] = velocity * memory * (1 - left)
    # in the long run x' = v - b x of a process x of variance one, with rates a and b,
    # has the variance a b, and no covariance with x: v has b (a + b), and b with x
    a, b = 1 / memory, 1 / ou_memory
    start[2, 2] = velocity + smooth / ou_memory * (a + b)
    start[2, 3] = start[3, 2] = smooth / ou_memory
    start[3, 3] = ou + smooth
    return start


@functools.cache
def _harmonics(form: Form, most: int) -> tuple[Array, Array, Numbers]:
    """Return each one's angular frequency, share and season."""
    # an empty array first: without a season there is nothing else to join
    frequencies: list[Array] = [np.zeros(0)]
    shares: list[Array] = [np.zeros(0)]
    counts: list[int] = []
    for period in form.periods:
        # stamps show no shorter wave than two of their gaps (Nyquist), but for rounding
        most_shown = max(1, int(period / (2 * form.gap) + 0.25))
        number = np.arange(1, min(most_shown, most) + 1)
        frequencies.append(2 * math.pi * number / period)
        # of the season's variance: the faster a wave, the less
        shares.append(1 / number / (1 / number).sum())
        counts.append(len(number))
    season = np.repeat(np.arange(len(counts)), np.array(counts, np.int64))
    return np.concatenate(frequencies), np.concatenate(shares), season
