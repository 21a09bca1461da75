"""Windows of rows: those that the encoder sees, and those that follow."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from sklode.data.arrays import Array, Flags, Numbers
from sklode.data.scaled_rows import ScaledRows, count_up

SCORED_WINDOWS = 64  # held out, after each epoch


class WindowArrays(NamedTuple):
    """Windows, (batch, time, ...); times count from each first row."""

    times: Array
    values: Array
    mask: Flags
    controls: Array | None
    scored: Flags


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
        self.counted, bounds = counted, rows.bounds
        least = horizon if least is None else least
        counts = np.maximum(np.diff(bounds) - window_length - least + 1, 1)
        self.series = np.repeat(np.arange(len(counts)), counts)
        self.start = bounds[self.series] + count_up(counts)
        end = self.start + window_length + horizon
        self.end = np.minimum(end, bounds[1:][self.series])
        self.span = int((self.end - self.start).max())

    def __len__(self) -> int:
        """Return the number of windows."""
        return len(self.start)

    def shortened(self, share: float) -> WindowSet:
        """Return windows of a share of these lengths."""
        seen = max(math.ceil(share * self.window_length), 1)
        return WindowSet(self.rows, seen, math.ceil(share * self.horizon), self.counted)

    def reaching(self, horizon: int) -> WindowSet:
        """Return windows that end ``horizon`` rows later or with their series."""
        given = self.rows, self.window_length, horizon, self.counted
        return WindowSet(*given, least=min(horizon, 1))

    def gather(
        self, which: Numbers, scored_from: Numbers | None = None
    ) -> WindowArrays:
        """Return windows as arrays of shape (batch, time, ...).

        Padding repeats the last row, masked. With ``scored_from`` only entries after
        what is seen are scored, from that row on.
        """
        place, start, end = np.arange(self.span), self.start[which], self.end[which]
        rows = np.minimum(start[:, None] + place, end[:, None] - 1)
        inside = place < (end - start)[:, None]
        times, given = self.times[rows], self.rows
        mask = given.mask[rows] & inside[..., None]
        scored = mask & self.counted
        if scored_from is not None:
            later = (place >= self.window_length) & (rows >= scored_from[:, None])
            scored &= later[..., None]
        return WindowArrays(
            (times - times[:, :1]).astype(np.float32),
            given.values[rows],
            mask,
            None if given.controls is None else given.controls[rows],
            scored,
        )
