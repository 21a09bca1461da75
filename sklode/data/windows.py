"""Training windows: rows of one or more series side by side, in normalised units.

A window is what the encoder sees and what follows it. Nothing here loops over series
or windows.
"""

from __future__ import annotations

import copy
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]

SCORED_WINDOWS = 64
"""Held-out windows that are scored after each epoch."""


class WindowArrays(NamedTuple):
    """Windows side by side, (batch, time, ...); times count from each first row."""

    times: Array
    values: Array
    mask: NDArray[np.bool_]
    controls: Array | None
    scored: NDArray[np.bool_] | None


class WindowSet:
    """Every training window of one or more series, gathered without a loop.

    A window is ``window_length`` rows that the encoder sees and ``horizon`` rows after
    them; a series shorter than that is one window of all its rows. Every row has an
    observed value, of some channel: so no window has an empty seen part, nor one that
    reaches beyond it nothing to score there, however much of any one channel is
    missing.

    All rows come normalised: times (row,) in time units since each series' start,
    values (row, channel) with NaN where missing, controls (row, control) or None.
    ``bounds``, (series + 1,), are those of `Observations`.
    """

    def __init__(
        self,
        times: Array,
        values: Array,
        controls: Array | None,
        bounds: NDArray[np.int64],
        window_length: int,
        horizon: int,
    ) -> None:
        self.times = times
        self._mask = ~np.isnan(values)
        self._values = np.where(self._mask, values, 0.0).astype(np.float32)
        self._controls = None if controls is None else controls.astype(np.float32)
        self._counts = np.full(values.shape[1], True)
        self.bounds = bounds
        self._lay_out(window_length, horizon, horizon)

    def without(self, channels: NDArray[np.bool_]) -> WindowSet:
        """Return the same windows, in which some channels are never scored."""
        windows = copy.copy(self)
        windows._counts = ~channels
        return windows

    def shortened(self, share: float) -> WindowSet:
        """Return windows of a share of these lengths over the same rows."""
        windows = copy.copy(self)
        horizon = math.ceil(share * self.horizon)
        seen = max(math.ceil(share * self.window_length), 1)
        windows._lay_out(seen, horizon, horizon)
        return windows

    def reaching(self, horizon: int) -> WindowSet:
        """Return windows from every row that another follows what is seen.

        They end after ``horizon`` more rows, or where their series does.
        """
        windows = copy.copy(self)
        windows._lay_out(self.window_length, horizon, min(horizon, 1))
        return windows

    def _lay_out(self, window_length: int, horizon: int, least: int) -> None:
        """Start a window at each row that ``least`` rows follow after what is seen."""
        self.window_length = window_length
        self.horizon = horizon
        bounds = self.bounds
        lengths = np.diff(bounds)
        counts = np.maximum(lengths - window_length - least + 1, 1)
        series = np.repeat(np.arange(len(lengths)), counts)
        within = np.arange(len(series)) - np.repeat(np.cumsum(counts) - counts, counts)
        self.series = series
        self.start = bounds[series] + within
        self.end = np.minimum(self.start + window_length + horizon, bounds[1:][series])
        self.span = int((self.end - self.start).max())

    def _rows(self, which: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of windows, (window, stamp), padded by the last one."""
        rows = self.start[which, None] + np.arange(self.span)
        return np.minimum(rows, self.end[which, None] - 1)

    def rows(self) -> tuple[Array, NDArray[np.bool_], Array | None]:
        """Return all rows' values (zero where missing), mask and controls."""
        return self._values, self._mask, self._controls

    def __len__(self) -> int:
        """Return the number of windows."""
        return len(self.start)

    def gather(
        self, which: NDArray[np.int64], scored_from: NDArray[np.int64] | None = None
    ) -> WindowArrays:
        """Return windows as arrays of shape (batch, time, ...).

        Padded stamps repeat the window's last row with a mask of False. ``scored``
        marks the observed entries after the seen part, from the row ``scored_from`` of
        each window on; without that, and where every channel counts, it is None.
        """
        span, rows = np.arange(self.span), self._rows(which)
        inside = self.start[which, None] + span < self.end[which, None]
        times, values = self.times[rows], self._values[rows]
        mask = self._mask[rows] & inside[..., None]
        scored = None
        if not self._counts.all():
            scored = mask & self._counts
        if scored_from is not None:
            later = (span >= self.window_length) & (rows >= scored_from[:, None])
            scored = mask & later[..., None] & self._counts
        return WindowArrays(
            (times - times[:, :1]).astype(np.float32),
            values,
            mask,
            None if self._controls is None else self._controls[rows],
            scored,
        )


def spread(items: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return at most that many items, evenly spaced, the last one among them."""
    if len(items) <= most:
        return items
    return items[np.linspace(0, len(items) - 1, most).round().astype(np.int64)]
