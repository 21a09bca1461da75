"""The noise of observations: no state, and the same at all rows.

Tested in tests/structural/components/test_components.py.
"""

from __future__ import annotations

import numpy as np

from sklode.data.arrays import Array

PRIORS = {"noise": (0.2, 1.0, 0.3)}  # standard deviation, in units of the spread
# the same that is always there: without noise F may be zero
LEAST_NOISE = 1e-3


def variance(size: float) -> float:
    """Return its variance, in units of the states."""
    # a product, which overflows to infinity where a power of Python would raise
    return float(size * size) + LEAST_NOISE**2


def slope(size: float, of_noise: Array) -> float:
    """Return the loss's slope in the logarithm of its size, of those by row."""
    return float(2 * size * size * np.sum(of_noise))
