"""Effects of X and of the calendar: coefficients that do not change.

Tested in tests/structural/components/test_components.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sklode.data.arrays import Array
from sklode.structural.components.block import Block, BlockSlopes


@dataclass(frozen=True)
class Regression:
    """Coefficients of columns, which are so scaled that these are of size one."""

    n_states: int

    names = ()
    links = ()
    pairs = ()

    def transition(self, sizes: Array, span: float, gaps: Array, block: Block) -> None:
        """Leave T and Q: nothing changes."""

    def start(self, sizes: Array, span: float, before: float) -> Array:
        """Return the prior covariance of coefficients."""
        return np.eye(self.n_states)

    def slopes(
        self, sizes: Array, span: float, gaps: Array, block: Block, of: BlockSlopes
    ) -> Array:
        """Return no slopes: there are no hyperparameters."""
        return np.zeros(0)

    def design(self, clock: Array, columns: Array, design: Array) -> None:
        """Write how its states add up to observations, (row, state)."""
        design[:] = columns
