"""Whether windows are better described relative to a level, and in which units."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["deviation_scale", "spread_of"]

Array = NDArray[np.floating]
Mask = NDArray[np.bool_]


def spread_of(values: Array, mask: Mask) -> Array:
    """Return the root mean square of observed values, (channel,); 1 of zeros."""
    squares = np.where(mask, values, 0.0) ** 2
    scale = np.sqrt(squares.sum((0, 1)) / np.maximum(mask.sum((0, 1)), 1))
    return np.where(scale > 1e-6, scale, 1.0).astype(np.float64)


def deviation_scale(values: Array, mask: Mask, n_seen: int) -> Array:
    """Return the root mean square, (channel,), of deviations from windows' means.

    Relative to its level a series that drifts moves far less than its overall spread
    says; 1 where a channel does not move at all. A window that has not seen a channel
    has no level of it and does not count for it.
    """
    seen = mask[:, :n_seen]
    mask = mask & np.any(seen, axis=1, keepdims=True)
    return spread_of(values - _means(values, mask, n_seen)[:, None], mask)


def _means(values: Array, mask: Mask, n_seen: int) -> Array:
    """Return each window's mean of what was seen, (window, channel), 0 of nothing."""
    seen = mask[:, :n_seen]
    total = np.where(seen, values[:, :n_seen], 0.0).sum(1)
    means: Array = total / np.maximum(seen.sum(1), 1)
    return means
