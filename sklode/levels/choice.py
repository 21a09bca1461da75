"""Which level describes the windows of a series best, and what it leaves of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["choose_anchor", "deviation_scale"]

Array = NDArray[np.floating]


def choose_anchor(values: Array, mask: NDArray[np.bool_], n_seen: int) -> str:
    """Choose one of `ANCHORS` that windows are best described relative to.

    The level alone, without any model, forecasts what follows the seen part: the
    series' mean, the window's mean, its last value, or the best blend of these two
    (fitted on every other window). The first in that order whose error over the
    remaining windows is within one standard error of the least is chosen.

    Values and mask are (window, time, channel), the series' mean at zero.
    """
    seen, later = mask[:, :n_seen], mask[:, n_seen:]
    # of a channel that it has not seen a window has no level
    later = later & np.any(seen, axis=1, keepdims=True)
    usable = later.any((1, 2))
    if usable.sum() < 4:
        return "series"
    values, seen, later = values[usable], seen[usable], later[usable]
    truth = values[:, n_seen:]
    mean = _means(values[:, :n_seen], seen)
    latest = np.where(seen, np.arange(n_seen)[:, None], 0).max(1)
    last = np.take_along_axis(values, latest[:, None], 1)[:, 0]
    weight = np.sqrt(later[::2].sum(1))  # (window, channel)
    goal = weight * _means(truth[::2], later[::2])
    blend = np.zeros_like(mean)
    for channel in range(values.shape[2]):
        design = np.stack([last[:, channel], mean[:, channel]], axis=1)
        rows = design[::2] * weight[:, channel, None]
        weights, *_ = np.linalg.lstsq(rows, goal[:, channel], rcond=None)
        blend[:, channel] = design @ weights
    levels = {"series": np.zeros_like(mean), "window": mean, "last": last}
    levels["blend"] = blend
    errors = {}
    for name, level in levels.items():
        squares = np.where(later, (truth - level[:, None]) ** 2, 0)[1::2]
        errors[name] = squares.sum((1, 2)) / np.maximum(later[1::2].sum((1, 2)), 1)
    best = min(errors, key=lambda name: errors[name].mean())
    margin = errors[best].std() / np.sqrt(len(errors[best]))
    return next(n for n in levels if errors[n].mean() <= errors[best].mean() + margin)


def deviation_scale(values: Array, mask: NDArray[np.bool_], n_seen: int) -> Array:
    """Return the root mean square, (channel,), of deviations from windows' means.

    Relative to its level a series that drifts moves far less than its overall spread
    says; 1 where a channel does not move at all. A window that has not seen a channel
    has no level of it and does not count for it.
    """
    seen = mask[:, :n_seen]
    mask = mask & np.any(seen, axis=1, keepdims=True)
    mean = _means(values[:, :n_seen], seen)
    squares = np.where(mask, values - mean[:, None], 0) ** 2
    scale = np.sqrt(squares.sum((0, 1)) / np.maximum(mask.sum((0, 1)), 1))
    return np.where(scale > 1e-6, scale, 1.0).astype(np.float64)


def _means(values: Array, mask: NDArray[np.bool_]) -> Array:
    """Return each window's mean over time of what was observed, zero of nothing."""
    total: Array = np.where(mask, values, 0).sum(1) / np.maximum(mask.sum(1), 1)
    return total
