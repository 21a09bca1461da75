"""What a user knows of series beside their rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sklode.data.arrays import Array
from sklode.data.history import History

KNOWN = ("bounds",)
"""Parameters that tell it; the paper's model has no place for them."""


class Known(NamedTuple):
    """What is known of y's columns: bounds."""

    bounds: Array  # (channel, 2), least and greatest value; infinite: none

    @classmethod
    def nothing(cls, n_channels: int) -> Known:
        """Return what is known where nothing is told."""
        return cls(np.tile([-np.inf, np.inf], (n_channels, 1)))

    @classmethod
    def of(cls, settings: Any, history: History) -> Known:
        """Read a forecaster's parameters, and check them on its series."""
        return cls.nothing(len(history.channels))
