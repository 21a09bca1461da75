"""What the compiled filter reads and writes, by name: without waiting for numba.

Tested in tests/structural/filter/test_forward.py and search/test_gradient.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sklode.data.arrays import Array, Flags, Numbers

# innovations beyond so many deviations weigh less, see `outliers`: normal ones are
# larger once in 370
THRESHOLD = 3.0
# deviations on one side that are a step of the trend in sum: three large ones, or more
# small ones
STEP = 6.0


class Transition(NamedTuple):
    """T and Q by gap: T multiplies what moves have added, see `components.block`."""

    decay: Array  # (gap, state)
    moves: Array  # (gap, link)
    added: Array  # (gap, state), variances of the process noise
    both: Array  # (gap, pair), its covariances
    links: Numbers  # (link, 2): the state that is moved, and the one that moves it
    is_free: Flags  # (link,), whether that depends on hyperparameters
    pairs: Numbers  # (pair, 2)


class System(NamedTuple):
    """T, Q and Z of each row: the former by the gap before it, see `components`."""

    bounds: Numbers  # series k has the rows bounds[k] to bounds[k + 1]
    design: Array  # (row, state)
    noise: Array  # (row,), variance of the noise, errors of measurement included
    gap: Numbers  # (row,), the number of the gap before each
    transition: Transition
    level: int  # the state that steps of the trend move

    def part(self, rows: slice) -> System:
        """Return some rows of a lone series."""
        design, noise, gap = self.design[rows], self.noise[rows], self.gap[rows]
        return self._replace(
            bounds=np.array([0, len(gap)]), design=design, noise=noise, gap=gap
        )


class States(NamedTuple):
    """Of one candidate: each series' states before or after a row."""

    means: Array  # (series, state)
    covariances: Array  # (series, state, state)
    runs: Array  # (series, 2), innovations added up to a step, up and down

    @classmethod
    def of(cls, covariances: Array) -> States:
        """Return the states at the first rows of series, of which nothing is known."""
        n, d = covariances.shape[:2]
        return cls(np.zeros((n, d)), covariances, np.zeros((n, 2)))

    @classmethod
    def first(cls, start: Array, n: int) -> States:
        """Return those of ``n`` series that begin with a covariance, (state, state)."""
        return cls.of(np.repeat(start[None], n, axis=0))

    def copy(self) -> States:
        """Return states of their own, which the filter may write to."""
        return States(*(array.copy() for array in self))


class Rule(NamedTuple):
    """What the filter does with innovations that are large."""

    threshold: float = THRESHOLD  # deviations beyond which they count less
    step: float = STEP  # sum of them, on one side, that is a step of the trend


class Wanted(NamedTuple):
    """What the filter writes beside: of no parts, and where arrays are empty, none."""

    parts: Array  # (part, state), ones of states that each adds up; the last is all
    after: Array  # (row, state), means after each row
    predicted: Array  # (row, state, state), covariances before each row

    @classmethod
    def of(
        cls,
        d: int,
        parts: Array | None = None,
        after: Array | None = None,
    ) -> Wanted:
        """Return what is wanted of ``d`` states, with empty arrays of nothing."""
        return cls(
            parts=np.zeros((0, d)) if parts is None else parts,
            after=np.zeros((0, d)) if after is None else after,
            predicted=np.zeros((0, d, d)),
        )


class FilterPass(NamedTuple):
    """What the filter finds, and leaves of the states."""

    losses: Array  # (series,), see `filter.forward.filter_rows`
    v_F: Array  # (row,), v / F, 0 where nothing is observed
    inverse_F: Array  # (row,), 1 / F, smaller of outliers, likewise
    jumps: Array  # (row,), the variance of a trend's step
    signal: Array  # (row, part), as predicted
    variance: Array  # (row, part), of that
    gains: (
        Array  # (row, part, state), covariances with the states: the last part's is M
    )
    states: States  # after the last rows

    @property
    def loss(self) -> float:
        """That of all series."""
        return float(self.losses.sum())

    @property
    def innovations(self) -> Array:
        """Each row's, in standard deviations; smaller of errors."""
        return self.v_F / np.sqrt(np.where(self.inverse_F > 0, self.inverse_F, 1.0))


class LossSlopes(NamedTuple):
    """The loss's slopes in what the filter reads, which `slope_back` adds to."""

    decay: Array  # (gap, state), in logarithms
    moves: Array  # (gap, link), of those that are free
    added: Array  # (gap, state)
    both: Array  # (gap, pair)
    start: Array  # (state, state), in the covariance at first rows
    noise: Array  # (row,)

    @classmethod
    def zero(cls, transition: Transition, n_rows: int) -> LossSlopes:
        """Return those of nothing yet."""
        n_states = transition.decay.shape[1]
        return cls(
            decay=np.zeros_like(transition.decay),
            moves=np.zeros_like(transition.moves),
            added=np.zeros_like(transition.added),
            both=np.zeros_like(transition.both),
            start=np.zeros((n_states, n_states)),
            noise=np.zeros(n_rows),
        )


class Schedule(NamedTuple):
    """What a system has of rows, whatever the hyperparameters."""

    bounds: Numbers
    design: Array  # (row, state)
    errors: Array  # (row,), variances of measurement
    gaps: Array  # all that there are before rows, once
    gap: Numbers  # (row,), which one each has


def distinct(gaps: Array) -> tuple[Array, Numbers]:
    """Return all gaps once, and which one each row has, (row,)."""
    # mostly there is one gap, and one before first rows
    last = gaps[-1:]
    others = gaps[gaps != last] if len(gaps) else gaps
    if len(others) and (others == others[0]).all():
        number = (gaps == last).astype(np.int64)
        return np.append(others[:1], last), number
    found, number = np.unique(gaps, return_inverse=True)
    return found, number.astype(np.int64)
