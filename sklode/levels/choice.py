"""Whether windows are better described relative to a level, and in which units."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["deviation_scale", "forecasts_better", "spread_of"]

Array = NDArray[np.floating]
Mask = NDArray[np.bool_]


def forecasts_better(levels: Array, values: Array, mask: Mask, n_seen: int) -> bool:
    """Return whether levels forecast what follows windows better than their mean does.

    By more than a standard error over the windows. All are (window, time, channel), the
    series' mean at zero.
    """
    later = mask[:, n_seen:]
    usable = later.any((1, 2))
    if usable.sum() < 4:
        return True
    count = later.sum((1, 2))[usable]
    values, levels = (x[usable, n_seen:] for x in (values, levels))
    by_mean, by_level = (
        np.where(later[usable], error**2, 0.0).sum((1, 2)) / count
        for error in (values, values - levels)
    )
    margin = by_level.std() / np.sqrt(len(by_level))
    return bool(by_level.mean() + margin < by_mean.mean())


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
    total = np.where(seen, values[:, :n_seen], 0).sum(1)
    mean = total / np.maximum(seen.sum(1), 1)
    return spread_of(values - mean[:, None], mask)
