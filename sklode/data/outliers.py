"""Lone values so far from all others that nothing of the others would be left.

A single 1e8 among values of order one makes their scale 1e7: to the network, which
computes in single precision, the others are one and the same number. Such a value is
taken for missing, with a warning.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["FACTOR", "outliers_of"]

FACTOR = 1e4
"""How many times farther from the median than any other value an outlier is."""

_SHARE = 0.01
"""No more than this share of a series' values, but one at least, are outliers."""

_FEWEST = 8
"""Fewer values do not tell which of them are out of line."""

_ROUNDING = 1e-9
"""Deviations from the median of less than this part of it are no spread."""


def outliers_of(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which values of one channel of one series are outliers, (row,)."""
    result = np.zeros(len(values), dtype=bool)
    known = np.flatnonzero(~np.isnan(values))
    n = len(known)
    if n < _FEWEST:
        return result
    half = values[known] / 2  # the distance of two large numbers is then one
    median = np.sort(half)[n // 2]
    distance = np.abs(half - median)
    n_most = max(int(_SHARE * n), 1)
    farthest = np.sort(distance)[n - 1 - n_most :]
    usual, beyond = farthest[:-1], farthest[1:]
    is_gap = (beyond / FACTOR > usual) & (usual > _ROUNDING * np.abs(median))
    if is_gap.any():  # all that is farther than the first gap
        result[known] = distance >= beyond[np.argmax(is_gap)]
    return result
