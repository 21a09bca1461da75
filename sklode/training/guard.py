"""The guard: a training that does not forecast better than the level is not kept."""

from __future__ import annotations

import copy
import math

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import stdtrit

from sklode import nn
from sklode.data.errors import SolverError
from sklode.data.windows import SCORED_WINDOWS, WindowSet, spread
from sklode.training.batches import training_windows

__all__ = ["gains", "is_proved", "silence"]


def is_proved(gain: NDArray[np.floating]) -> bool:
    """Return whether gains over blocks are above zero at the level of 2.5 %."""
    n = len(gain)
    if n < 4:  # they say nothing about the next one
        return False
    needed = stdtrit(n - 1, 0.975) * gain.std(ddof=1) / math.sqrt(n)
    return bool(gain.mean() > needed)


def gains(
    network: nn.LatentODE,
    trial: nn.LatentODE,
    windows: WindowSet,
    cut: NDArray[np.int64],
) -> NDArray[np.floating]:
    """Return by how much less a trial's squared errors are than the network's level's.

    Of each window whose horizon is one of the blocks after the first held-out row.
    """
    begin = np.maximum(cut, windows.bounds[:-1] + windows.window_length)
    after_seen = windows.start + windows.window_length
    first = after_seen - begin[windows.series]
    is_block = (first >= 0) & (first % windows.horizon == 0)
    which = np.flatnonzero(is_block & (windows.end > after_seen))
    if not len(which):
        return np.zeros(0)
    silent = copy.deepcopy(network)
    silent.emission.start_silent()
    errors = []
    for one in (silent, trial):
        try:
            squares, known = _squared_errors(one, windows, which)
        except SolverError:
            return np.zeros(0)
        mean = squares.sum((1, 2)) / known.sum((1, 2)).clamp(min=1)
        errors.append(mean.double().cpu().numpy())
    gain: NDArray[np.floating] = errors[0] - errors[1]
    return gain if np.isfinite(gain).all() else np.zeros(0)


def silence(network: nn.LatentODE, windows: WindowSet, cut: NDArray[np.int64]) -> None:
    """Let a network forecast its level alone, with the noise of the level's errors."""
    network.emission.start_silent()
    # the spread of normalised values, for channels without errors
    noise = torch.ones(network.emission.n_channels)
    which = training_windows(windows, cut)
    which = which[windows.end[which] > windows.start[which] + windows.window_length]
    if len(which):
        squares, known = _squared_errors(network, windows, which)
        count = known.sum((0, 1))
        mean = squares.sum((0, 1)) / count.clamp(min=1)
        noise = torch.where(count > 0, mean, 1.0).sqrt()
    network.emission.start_with_noise(noise)


@torch.no_grad()
def _squared_errors(
    network: nn.LatentODE, windows: WindowSet, which: NDArray[np.int64]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return errors after the seen part, (window, stamp, channel), and which count."""
    which = spread(which, 4 * SCORED_WINDOWS)
    batch = nn.make_batch(windows, which, next(network.parameters()).device)
    later = slice(batch.n_seen, None)
    posterior = network.encode(batch)
    times = batch.times[:, later]
    mean = network.decode(posterior.q_z0.mean, posterior, times, batch.path).mean
    known = batch.mask[:, later]
    residual = torch.where(known, mean - batch.values[:, later], 0.0)
    return residual**2, known
