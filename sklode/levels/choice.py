"""Which level describes the windows of a series best, and what it leaves of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["choose_anchor", "deviation_scale"]

Array = NDArray[np.floating]


def choose_anchor(values: Array, mask: NDArray[np.bool_], n_seen: int) -> str:
    """Choose the level that windows are best described relative to.

    The level alone, without any model, forecasts what follows the seen part: the
    series' mean, the window's mean, its last value, or the best blend of these two
    (fitted on every other window). The first in that order whose error over the
    remaining windows is within one standard error of the least is chosen.

    Parameters
    ----------
    values : ndarray of shape (batch, time, channel)
        Windows in normalised units, the series' mean at zero.
    mask : ndarray of shape (batch, time, channel), bool
        True where observed.
    n_seen : int
        Stamps of the seen part.

    Returns
    -------
    {"series", "window", "last", "blend"}
    """
    seen, later = mask[:, :n_seen], mask[:, n_seen:]
    # of a channel that it has not seen a window has no level
    later = later & np.any(seen, axis=1, keepdims=True)
    usable = later.any((1, 2))
    if usable.sum() < 4:
        return "series"
    values, seen, later = values[usable], seen[usable], later[usable]
    truth = values[:, n_seen:]
    mean = np.where(seen, values[:, :n_seen], 0).sum(1) / np.maximum(seen.sum(1), 1)
    latest = np.where(seen, np.arange(n_seen)[:, None], 0).max(1)
    last = np.take_along_axis(values, latest[:, None], 1)[:, 0]
    blend = np.zeros_like(mean)
    for channel in range(values.shape[2]):
        design = np.stack([last[:, channel], mean[:, channel]], axis=1)
        count = later[::2, :, channel].sum(1)
        goal = np.where(later[::2, :, channel], truth[::2, :, channel], 0).sum(1)
        weight = np.sqrt(count)[:, None]
        solution, *_ = np.linalg.lstsq(
            design[::2] * weight, goal / np.maximum(weight[:, 0], 1), rcond=None
        )
        blend[:, channel] = design @ solution
    levels = {
        "series": np.zeros_like(mean),
        "window": mean,
        "last": last,
        "blend": blend,
    }
    errors = {}
    for name, level in levels.items():
        squares = np.where(later, (truth - level[:, None]) ** 2, 0)[1::2]
        errors[name] = squares.sum((1, 2)) / np.maximum(later[1::2].sum((1, 2)), 1)
    best = min(errors, key=lambda name: errors[name].mean())
    margin = errors[best].std() / np.sqrt(len(errors[best]))
    return next(n for n in levels if errors[n].mean() <= errors[best].mean() + margin)


def deviation_scale(values: Array, mask: NDArray[np.bool_], n_seen: int) -> Array:
    """Return the root mean square of windows' deviations from their own means.

    Relative to its level a series that drifts moves far less than its overall spread
    says; 1 where a channel does not move at all. A window that has not seen a channel
    has no level of it and does not count for it.

    Parameters
    ----------
    values, mask, n_seen
        As in `choose_anchor`.

    Returns
    -------
    ndarray of shape (channel,)
    """
    seen = mask[:, :n_seen]
    mean = np.where(seen, values[:, :n_seen], 0).sum(1) / np.maximum(seen.sum(1), 1)
    mask = mask & np.any(seen, axis=1, keepdims=True)
    deviation = np.where(mask, values - mean[:, None], 0)
    scale = np.sqrt((deviation**2).sum((0, 1)) / np.maximum(mask.sum((0, 1)), 1))
    return np.where(scale > 1e-6, scale, 1.0).astype(np.float64)
