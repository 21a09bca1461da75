"""Which windows are trained on and held out, and what training hides of them."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from sklode import nn
from sklode.data.windows import SCORED_WINDOWS, Layout, WindowSet, spread

_ENOUGH = 0.5
"""Share of the windows that are left to train on where the ends of series are not."""


def first_held_out_row(
    windows: Layout, fraction: float, rng: np.random.RandomState
) -> NDArray[np.int64]:
    """Return the row of each series from which on nothing is trained on.

    A fraction at the end of every series is held out. Of several series that are hardly
    longer than a window whole series are, where else less than half of the windows
    would be left to train on. Nothing is, where nothing would be left.
    """
    first, end = windows.bounds[:-1], windows.bounds[1:]
    if not fraction:
        return end
    n_rows = np.maximum(np.round(fraction * (end - first)), 1).astype(np.int64)
    cut = end - n_rows
    n_series = round(fraction * len(end))
    if n_series and len(training_windows(windows, cut)) < _ENOUGH * len(windows):
        cut = end.copy()
        held_out = rng.permutation(len(end))[:n_series]
        cut[held_out] = first[held_out]
    return cut if len(training_windows(windows, cut)) else end


def training_windows(windows: Layout, cut: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the windows that end before their series' first held-out row."""
    return np.flatnonzero(windows.end <= cut[windows.series])


def validation_batches(
    windows: WindowSet, cut: NDArray[np.int64], device: torch.device
) -> list[nn.Batch]:
    """Return held-out windows, scored at held-out rows after the seen part."""
    after_seen = windows.start + windows.window_length
    held_out = windows.end > cut[windows.series]
    reaching = np.flatnonzero(held_out & (windows.end > after_seen))
    found = reaching if len(reaching) else np.flatnonzero(held_out)
    if not len(found):
        return []
    which = spread(found, SCORED_WINDOWS)
    scored_from = cut[windows.series[which]] if len(reaching) else None
    batch = nn.make_batch(windows, which, device, scored_from)
    return [batch] if batch.n_scored else []  # not of channels that never vary


def hidden_rows(
    windows: Layout,
    which: NDArray[np.int64],
    thinning: float,
    generator: torch.Generator,
) -> torch.Tensor | None:
    """Return which rows of each window the encoder does not see, (batch, seen).

    Each with a probability of up to ``thinning``, drawn for the window; and of that
    share of the windows the first ones, as many as the horizon at most. One remains.
    """
    if not thinning:
        return None
    n_seen = min(windows.window_length, windows.span)
    n_rows = torch.from_numpy(windows.end[which] - windows.start[which])
    n_rows = n_rows.clamp(max=n_seen).unsqueeze(-1)
    row = torch.arange(n_seen)
    single = torch.float32  # the process' default dtype may be another
    shape = (4, len(which), 1)
    chosen, share, rate, left = torch.rand(shape, generator=generator, dtype=single)
    n_first = torch.ceil(share * (n_rows - 1).clamp(max=windows.horizon))
    n_first = torch.where(chosen < thinning, n_first, 0)
    thinned = torch.rand(len(which), n_seen, generator=generator, dtype=single)
    hidden = (row < n_first) | (thinned < thinning * rate)
    remains = n_first + (left * (n_rows - n_first)).floor()
    return hidden & (row != remains)
