"""A season: harmonics whose size and phase wander, and are remembered for a while.

A harmonic's noise is the same in all directions: seen from a frame that turns with it,
its two states are Ornstein-Uhlenbeck processes, and the design row has the cosine and
the sine (Harvey 1989, section 2.3.4; Solin and Sarkka 2014). Tested in
tests/structural/components/test_components.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sklode.data.arrays import Array
from sklode.structural.components.block import (
    Block,
    BlockSlopes,
    fade,
    slopes_of_fading,
)

# of a season's size, in units of the spread, and of how many periods it is remembered:
# median, width of its prior, start of the search
SIZE, PERIODS_KEPT = (0.3, 1.5, 0.7), (15.0, 1.0, 100.0)


@dataclass(frozen=True)
class Season:
    """A season of a period, in units of time."""

    period: float
    gap: float  # the usual one of the column's own rows
    most: int  # harmonics

    names = "size", "memory"
    links = ()
    pairs = ()

    @cached_property
    def numbers(self) -> Array:
        """Numbers of its harmonics, (harmonic,)."""
        # stamps show no shorter wave than two of their gaps (Nyquist), but for rounding
        most_shown = max(1, int(self.period / (2 * self.gap) + 0.25))
        return np.arange(1.0, min(most_shown, self.most) + 1)

    @property
    def n_states(self) -> int:
        """Number of its states, two a harmonic."""
        return 2 * len(self.numbers)

    @property
    def frequencies(self) -> Array:
        """Angular frequencies of its harmonics."""
        return 2 * math.pi * self.numbers / self.period

    @cached_property
    def _shares(self) -> Array:
        """The share of the season's variance that each state has."""
        # the faster a wave, the less
        shares = 1 / self.numbers / (1 / self.numbers).sum()
        return np.repeat(shares, 2)

    def transition(self, sizes: Array, span: float, gaps: Array, block: Block) -> None:
        """Write T and Q: each state is an OU process, see `fade`."""
        fade(gaps, sizes[1], sizes[0] ** 2 * self._shares, block)

    def start(self, sizes: Array, span: float, before: float) -> Array:
        """Return its covariance in the long run."""
        return np.diag(sizes[0] ** 2 * self._shares)

    def slopes(
        self, sizes: Array, span: float, gaps: Array, block: Block, of: BlockSlopes
    ) -> Array:
        """Return the loss's slopes in the logarithms of size and memory."""
        variances = sizes[0] ** 2 * self._shares
        found = slopes_of_fading(gaps, sizes[1], variances, of.block, of.start)
        return np.array(found)

    def design(self, clock: Array, columns: Array, design: Array) -> None:
        """Write how its states add up to observations, (row, state)."""
        # imports need not wait for numba
        from sklode.structural.filter.forward import turned

        design[:] = turned(clock, self.frequencies)
