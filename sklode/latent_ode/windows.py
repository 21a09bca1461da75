"""Windows of the paper's model: rows that its encoder sees, and those that follow.

The hybrid model's are `sklode.hybrid.origins.Origins.seen`.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import pandas as pd
import torch

from sklode.data.arrays import Flags, Numbers
from sklode.data.scaled_rows import ScaledRows, count_up
from sklode.latent_ode.network import Batch

SCORED_WINDOWS = 64  # held out, after each epoch


class WindowSet:
    """Every training window of one or more series.

    ``window_length`` rows that the encoder sees and ``horizon`` rows after them, or at
    least ``least``, by default all; a shorter series is one window of all its rows.
    Channels that are not ``counted`` are never scored.
    """

    def __init__(
        self,
        rows: ScaledRows,
        window_length: int,
        horizon: int,
        counted: Flags,
        least: int | None = None,
    ) -> None:
        self.rows, self.times, self.bounds = rows, rows.times, rows.bounds
        self.window_length, self.horizon = window_length, horizon
        self.counted = counted
        # n rows hold n - k + 1 windows of k
        shortest = window_length + (horizon if least is None else least)
        n_windows = np.maximum(np.diff(self.bounds) - shortest + 1, 1)
        self.series = np.repeat(np.arange(len(n_windows)), n_windows)
        self.start = self.bounds[self.series] + count_up(n_windows)
        end = self.start + window_length + horizon
        self.end = np.minimum(end, self.bounds[1:][self.series])
        self.span = int((self.end - self.start).max())

    def __len__(self) -> int:
        """Return the number of windows."""
        return len(self.start)

    def shortened(self, share: float) -> WindowSet:
        """Return windows of a share of these lengths."""
        seen = max(math.ceil(share * self.window_length), 1)
        ahead = math.ceil(share * self.horizon)
        return WindowSet(self.rows, seen, horizon=ahead, counted=self.counted)

    def reaching(self, horizon: int) -> WindowSet:
        """Return windows that end ``horizon`` rows later or with their series."""
        # one row after those seen, if any is forecast, makes a window
        return WindowSet(
            self.rows,
            window_length=self.window_length,
            horizon=horizon,
            counted=self.counted,
            least=min(horizon, 1),
        )

    def reach(self, which: Numbers) -> tuple[float, float]:
        """Return how long the rows after those seen take, and as many first rows.

        Of a series' windows the median counts, which one long hole does not stretch;
        of series the longest.
        """
        start, end = self.start[which], self.end[which]
        last_seen = np.minimum(start + self.window_length, end) - 1
        # the row before which training hides most, see `hidden_rows`
        shown = np.minimum(start + self.horizon, last_seen)
        ahead = self.times[end - 1] - self.times[last_seen]
        back = self.times[shown] - self.times[start]
        windows = pd.DataFrame({"ahead": ahead, "back": back})
        longest = windows.groupby(self.series[which]).median().max()
        return float(longest["ahead"]), float(longest["back"])

    def gather(
        self,
        which: Numbers,
        scored_from: Numbers | None = None,
        hidden: torch.Tensor | None = None,
        device: torch.device | None = None,
    ) -> Batch:
        """Return windows as a batch, of which the encoder does not see ``hidden`` rows.

        Padding repeats the last row, masked. With ``scored_from`` only entries after
        what is seen are scored, from that row on.
        """
        place = np.arange(self.span)
        start, end = self.start[which, None], self.end[which, None]
        # (batch, time); beyond a shorter window's end its last row, which is masked
        rows = np.minimum(start + place, end - 1)
        inside = place < end - start
        times, controls = self.times[rows], self.rows.controls
        mask = self.rows.mask[rows] & inside[..., None]
        scored = mask & self.counted
        if scored_from is not None:
            is_after = place >= self.window_length
            later = is_after & (rows >= scored_from[:, None])
            scored &= later[..., None]
        # a difference, before single precision cuts digits off
        since = (times - times[:, :1]).astype(np.float32)
        tensor = functools.partial(torch.as_tensor, device=device)
        return Batch(
            times=tensor(since),
            values=tensor(self.rows.values[rows]),
            mask=tensor(mask),
            n_seen=self.window_length,
            controls=None if controls is None else tensor(controls[rows]),
            scored=tensor(scored),
            hidden=None if hidden is None else hidden.to(device),
        )
