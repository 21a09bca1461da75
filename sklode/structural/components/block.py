"""What a component is to the filter: a block of T, Q and the covariance at a start.

Over a gap the states x of a block become D E x + noise: E is one on its diagonal, and
where a state moves another; D multiplies. A state is read before it is moved.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from sklode.data.arrays import Array


class Block(NamedTuple):
    """T and Q of a component, by gap."""

    decay: Array  # (gap, state), D
    moves: Array  # (gap, link), of E, what one of a state adds to another
    added: Array  # (gap, state), of Q, the variances of the process noise
    both: Array  # (gap, pair), of Q, covariances of two states

    @classmethod
    def of(cls, component: Component, gaps: Array) -> Block:
        """Return one in which nothing changes."""
        n = len(gaps)
        return cls(
            decay=np.ones((n, component.n_states)),
            moves=np.zeros((n, len(component.links))),
            added=np.zeros((n, component.n_states)),
            both=np.zeros((n, len(component.pairs))),
        )


class BlockSlopes(NamedTuple):
    """The loss's slopes in a block, and in the covariance at first rows."""

    decay: Array  # (gap, state), in logarithms of the decay
    moves: Array  # (gap, link)
    added: Array  # (gap, state)
    both: Array  # (gap, pair), which Q has twice
    start: Array  # (state, state)


class Component(Protocol):
    """A part of a structural model: its states, equations, prior and derivatives."""

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

    def transition(self, sizes: Array, span: float, gaps: Array) -> Block:
        """Return T and Q of gaps."""

    def start(self, sizes: Array, span: float, before: float) -> Array:
        """Return the covariance so long ``before`` a first row, (state, state)."""

    def slopes(
        self, sizes: Array, span: float, gaps: Array, block: Block, of: BlockSlopes
    ) -> Array:
        """Return the loss's slopes in logarithms of ``sizes``, of starts at a row."""
