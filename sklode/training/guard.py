"""The guard: how much a training adds to forecasts of the level, on held-out rows."""

from __future__ import annotations

import copy

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import stdtrit

from sklode import nn
from sklode.data.errors import SolverError
from sklode.data.windows import SCORED_WINDOWS, WindowSet, spread
from sklode.training.batches import training_windows

__all__ = ["held_out_blocks", "proved_share", "share_of", "silence"]

Array = NDArray[np.floating]

_FEWEST_BLOCKS = 4
"""Fewer say nothing about the next one."""

_CONFIDENCE = 0.9
_WHOLE = 0.5
"""A share that may well be one, and is more than this for sure, is one."""


def proved_share(needed: Array, offered: Array) -> float:
    r"""Return how much of a correction is proved to be right, from 0 to 1.

    Errors of the level that blocks show, ``needed``, and what the network adds to it,
    ``offered``, both (block, entry). The share that would have been best is

    .. math:: a = \sum_b p_b / \sum_b q_b, \quad
        p_b = \mathrm{needed}_b \cdot \mathrm{offered}_b, \quad
        q_b = \mathrm{offered}_b \cdot \mathrm{offered}_b

    and the lower end of its interval counts, of 90 % on that side.
    """
    products, squares = (needed * offered).sum(1), (offered**2).sum(1)
    total, n = squares.sum(), len(squares)
    if n < _FEWEST_BLOCKS or not (np.isfinite(products).all() and 0 < total < np.inf):
        return 0.0
    best = products.sum() / total
    error = np.sqrt(n / (n - 1) * ((products - best * squares) ** 2).sum()) / total
    doubt = stdtrit(n - 1, _CONFIDENCE) * error
    if best - doubt > _WHOLE and best + doubt >= 1:
        return 1.0
    return float(np.clip(best - doubt, 0.0, 1.0))


def held_out_blocks(windows: WindowSet, cut: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the windows whose horizon is one of the blocks after held-out rows begin.

    ``cut`` (series,) are the first of those.
    """
    begin = np.maximum(cut, windows.bounds[:-1] + windows.window_length)
    after_seen = windows.start + windows.window_length
    first = after_seen - begin[windows.series]
    is_block = (first >= 0) & (first % max(windows.horizon, 1) == 0)
    found = np.flatnonzero(is_block & (windows.end > after_seen))
    return spread(found, 4 * SCORED_WINDOWS)


def share_of(
    network: nn.LatentODE, windows: WindowSet, which: NDArray[np.int64]
) -> float:
    """Return the `proved_share` of a network on held-out blocks.

    The level is what the network says without its emission.
    """
    if len(which) < _FEWEST_BLOCKS:
        return 0.0
    try:
        forecast, truth, known = _forecasts(network, windows, which)
        silent = copy.deepcopy(network)
        silent.emission.start_silent()
        level, _, _ = _forecasts(silent, windows, which)
    except SolverError:
        return 0.0
    needed, offered = (np.where(known, x - level, 0.0) for x in (truth, forecast))
    n = len(which)
    return proved_share(needed.reshape(n, -1), offered.reshape(n, -1))


def silence(network: nn.LatentODE, windows: WindowSet, cut: NDArray[np.int64]) -> None:
    """Let a network forecast its level alone, with the noise of the level's errors."""
    network.emission.start_silent()
    # the spread of normalised values, for channels without errors
    noise = torch.ones(network.emission.n_channels)
    which = training_windows(windows, cut)
    which = which[windows.end[which] > windows.start[which] + windows.window_length]
    if len(which):
        which = spread(which, 4 * SCORED_WINDOWS)
        forecast, truth, known = _forecasts(network, windows, which)
        squares = torch.from_numpy(np.where(known, truth - forecast, 0.0) ** 2)
        count = torch.from_numpy(known).sum((0, 1))
        mean = squares.sum((0, 1)) / count.clamp(min=1)
        noise = torch.where(count > 0, mean, 1.0).sqrt()
    network.emission.start_with_noise(noise)


@torch.no_grad()
def _forecasts(
    network: nn.LatentODE, windows: WindowSet, which: NDArray[np.int64]
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Return forecasts after the seen part, the truth, and which of it is known.

    All are (window, stamp, channel), normalised.
    """
    batch = nn.make_batch(windows, which, next(network.parameters()).device)
    later = slice(batch.n_seen, None)
    posterior = network.encode(batch)
    times = batch.times[:, later]
    mean = network.decode(posterior.q_z0.mean, posterior, times, batch.path).mean
    scored = batch.mask if batch.scored is None else batch.scored
    parts = mean, batch.values[:, later], scored[:, later]
    forecast, truth, known = (x.double().cpu().numpy() for x in parts)
    return forecast, truth, known > 0
