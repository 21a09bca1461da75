"""What a component is to the filter: a block of T, Q and the covariance at a start.

Over a gap the states x of a block become D E x + noise: E is one on its diagonal, and
where a state moves another; D multiplies. A state is read before it is moved.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from sklode.data.arrays import Array


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
