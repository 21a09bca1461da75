"""The guard: a training that does not forecast better than the level is not kept."""

from __future__ import annotations

import copy
import math

import numpy as np
import torch
from numpy.typing import NDArray

from sklode import nn
from sklode.data.errors import SolverError
from sklode.data.windows import SCORED_WINDOWS, WindowSet, spread
from sklode.training.batches import training_windows

__all__ = ["TRIAL_FRACTION", "gains", "is_proved", "silence"]

TRIAL_FRACTION = 0.2
"""Share of each series, at its end, that a guarded training is tried on."""

_FEWEST_BLOCKS = 4
"""Fewer blocks of a horizon's length say nothing about the next one."""

_QUANTILE = 1.96
"""Of the normal distribution at 97.5 %."""


def is_proved(gain: NDArray[np.floating]) -> bool:
    """Return whether gains over blocks are above zero at the level of 2.5 %.

    Of Student's distribution with n - 1 degrees of freedom, whose quantile is expanded
    in their inverse (Fisher and Cornish 1960): few blocks have to gain far more.
    """
    n = len(gain)
    if n < _FEWEST_BLOCKS:
        return False
    z, freedom = _QUANTILE, n - 1
    quantile = z + (z**3 + z) / (4 * freedom)
    quantile += (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return bool(gain.mean() > quantile * gain.std(ddof=1) / math.sqrt(n))


def gains(
    network: nn.LatentODE,
    trial: nn.LatentODE,
    windows: WindowSet,
    cut: NDArray[np.int64],
) -> NDArray[np.floating]:
    """Return by how much less a trial's squared errors are than those of the level.

    Of each window whose horizon is one of the blocks after the first held-out row.

    Parameters
    ----------
    network : LatentODE
        Untrained: its level is what the trial has to beat.
    trial : LatentODE
        Trained on the windows before the held-out rows.
    windows : WindowSet
    cut : ndarray of shape (series,)
        The first held-out row of each series.
    """
    begin = np.maximum(cut, windows.bounds[:-1] + windows.window_length)
    after_seen = windows.start + windows.window_length
    first = after_seen - begin[windows.series]
    is_block = (first >= 0) & (first % windows.horizon == 0)
    which = np.flatnonzero(is_block & (windows.end > after_seen))
    which = spread(which, 4 * SCORED_WINDOWS)
    if not len(which):
        return np.zeros(0)
    batch = nn.make_batch(windows, which, next(network.parameters()).device)
    silent = copy.deepcopy(network)
    silent.emission.start_silent()
    errors = []
    for one in (silent, trial):
        try:
            residual, known = _residuals(one, batch)
        except SolverError:
            return np.zeros(0)
        squares = (residual**2 * known).sum((1, 2)) / known.sum((1, 2)).clamp(min=1)
        errors.append(squares.double().cpu().numpy())
    gain: NDArray[np.floating] = errors[0] - errors[1]
    return gain if np.isfinite(gain).all() else np.zeros(0)


def silence(network: nn.LatentODE, windows: WindowSet, cut: NDArray[np.int64]) -> None:
    """Let a network forecast its level alone, with the noise of the level's errors."""
    network.emission.start_silent()
    network.emission.start_with_noise(_level_errors(network, windows, cut))


@torch.no_grad()
def _residuals(
    network: nn.LatentODE, batch: nn.Batch
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return errors after the seen part, (window, stamp, channel), and which count."""
    later = slice(batch.n_seen, None)
    path = None
    if batch.controls is not None:
        path = nn.ControlPath(batch.times, batch.controls)
    posterior = network.encode(batch)
    times = batch.times[:, later]
    mean = network.decode(posterior.q_z0.mean, posterior, times, path).mean
    known = batch.mask[:, later]
    return torch.where(known, mean - batch.values[:, later], 0.0), known


def _level_errors(
    network: nn.LatentODE, windows: WindowSet, cut: NDArray[np.int64]
) -> torch.Tensor:
    """Return the root mean square of each channel's errors of the level alone.

    One, the spread of normalised values, where a channel has none.
    """
    which = training_windows(windows, cut)
    which = which[windows.end[which] > windows.start[which] + windows.window_length]
    if not len(which):
        return torch.ones(network.emission.n_channels)
    which = spread(which, 4 * SCORED_WINDOWS)
    batch = nn.make_batch(windows, which, next(network.parameters()).device)
    residual, known = _residuals(network, batch)
    count = known.sum((0, 1))
    mean_square = (residual**2).sum((0, 1)) / count.clamp(min=1)
    return torch.where(count > 0, mean_square, 1.0).sqrt()
