"""What a component is to the filter: a block of T, Q and the covariance at a start.

Over a gap the states x of a block become D E x + noise: E is one on its diagonal, and
where a state moves another; D multiplies. A state is read before it is moved. Tested in
tests/structural/components/test_components.py.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

from sklode.data.arrays import Array
from sklode.engine.lazily import lazily_compiled

# what an Ornstein-Uhlenbeck process keeps at least: a smaller one would divide by zero
LEAST_KEPT = 1e-130


class Block(NamedTuple):
    """T and Q of a component, by gap: views, of a T of one and a Q of zero at first."""

    decay: Array  # (gap, state), D
    moves: Array  # (gap, link), of E, what one of a state adds to another
    added: Array  # (gap, state), of Q, the variances of the process noise
    both: Array  # (gap, pair), of Q, covariances of two states


class BlockSlopes(NamedTuple):
    """The loss's slopes in a block, of decays in logarithms, and at first rows."""

    block: Block
    start: Array  # (state, state), in the covariance there


class Component(Protocol):
    """A part of a structural model: its states, equations and derivatives."""

    @property
    def names(self) -> tuple[str, ...]:
        """Its hyperparameters, in the order of ``sizes``, which are positive."""

    @property
    def n_states(self) -> int:
        """Number of its states."""

    @property
    def links(self) -> tuple[tuple[int, int, bool], ...]:
        """Which states, by own number, are moved by which; whether by ``sizes``."""

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """States whose process noises have a covariance."""

    def transition(self, sizes: Array, span: float, gaps: Array, block: Block) -> None:
        """Write T and Q of gaps to a block."""

    def start(self, sizes: Array, span: float, before: float) -> Array:
        """Return the covariance so long ``before`` a first row, (state, state)."""

    def slopes(
        self, sizes: Array, span: float, gaps: Array, block: Block, of: BlockSlopes
    ) -> Array:
        """Return the loss's slopes in logarithms of ``sizes``, of starts at a row."""

    def design(self, clock: Array, columns: Array, design: Array) -> None:
        """Write how its states add up to observations, (row, state): zeros at first.

        ``clock`` (row,) are times on the local clock; ``columns`` those of effects.
        """


@lazily_compiled
def fade(gaps: Array, memory: float, variances: Array, block: Block) -> None:
    """Write T and Q of Ornstein-Uhlenbeck processes that share a memory.

    Of one of variance s^2 a gap keeps k = exp(-gap / memory) and adds s^2 (1 - k^2).
    """
    for g in range(len(gaps)):
        kept = max(math.exp(-gaps[g] / memory), LEAST_KEPT)
        for k in range(len(variances)):
            block.decay[g, k] = kept
            block.added[g, k] = variances[k] * (1 - kept * kept)


@lazily_compiled
def slopes_of_fading(
    gaps: Array, memory: float, variances: Array, of: Block, of_start: Array
) -> list[float]:
    """Return the loss's slopes in logarithms of their size and memory.

    As d x / d log x = x, a standard deviation s enters by 2 s^2 times the slope in its
    variance. They begin as they are in the long run.
    """
    size, slope = 0.0, 0.0
    for k in range(len(variances)):
        size += variances[k] * of_start[k, k]
    for g in range(len(gaps)):
        x = gaps[g] / memory
        kept = max(math.exp(-x), LEAST_KEPT)
        for k in range(len(variances)):
            of_variance = of.added[g, k] * variances[k]
            size += of_variance * (1 - kept * kept)
            slope += (of.decay[g, k] - 2 * of_variance * kept * kept) * x
    return [2 * size, slope]
