"""Windows, which the encoder sees and which follow, and origins, their ends.

Their rows are in a network's units; nothing loops over series or windows.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from sklode.data.arrays import Array, Flags, Numbers
from sklode.data.observations import Observations
from sklode.data.scaling import Units, plain
from sklode.data.ticks import rows_before, ticks_between

SCORED_WINDOWS = 64  # held out, after each epoch


class Questions(NamedTuple):
    """Values that are asked for, sorted by window."""

    window: Numbers  # (answer,)
    channel: Numbers
    lead: Array  # in units of time
    row: Numbers  # where they stand, -1 where nowhere

    def part(self, which: Any) -> Questions:
        """Return some of them."""
        return Questions(*[x[which] for x in self])


class Rows:
    """Rows of series in a network's units, and what stands around each."""

    def __init__(self, observations: Observations, units: Units) -> None:
        self.bounds, self.series = observations.bounds, observations.series
        first = observations.ticks[self.bounds[:-1]][self.series]
        # (row,), since each series' first row
        self.times = ticks_between(first, observations.ticks) / units.time
        self.location, self.scale = units.of_all(observations)  # (series, channel)
        values = plain(observations.values, units.links)
        values = (values - self.location[self.series]) / self.scale[self.series]
        self.mask = ~np.isnan(values)  # (row, channel)
        self.values = np.where(self.mask, values, 0.0).astype(np.float32)
        self.controls = None  # (row, control)
        if observations.controls.shape[1]:
            self.controls = units.controls(observations.controls).astype(np.float32)

    def usable(self, fewest: int) -> Numbers:
        """Return rows with so many up to them, and one after, in their series."""
        row = np.arange(len(self.times))
        seen = row - self.bounds[:-1][self.series] + 1
        return row[(seen >= fewest) & (row + 1 < self.bounds[1:][self.series])]

    def seen(
        self, origins: Numbers, n_rows: int
    ) -> tuple[Array, Array, Flags, Array | None]:
        """Return ages, values, mask and controls, (window, row, ...), latest first.

        Padding repeats a series' first row, masked.
        """
        first = self.bounds[:-1][self.series[origins], None]
        rows = origins[:, None] - np.arange(n_rows)
        inside = rows >= first
        rows = np.maximum(rows, first)
        ages = self.times[origins][:, None] - self.times[rows]
        controls = None if self.controls is None else self.controls[rows]
        mask = self.mask[rows] & inside[..., None]
        return ages.astype(np.float32), self.values[rows], mask, controls

    def n_after(self, origins: Numbers, reach: float) -> Numbers:
        """Return how many rows there are after origins, up to so long."""
        asked = self.series[origins], self.times[origins] + reach
        return rows_before(self.bounds, self.times, *asked) - origins

    def after(self, origins: Numbers, reach: float) -> Questions:
        """Return every value observed after origins, up to so long."""
        count = self.n_after(origins, reach)
        window = np.repeat(np.arange(len(origins)), count)
        row = origins[window] + 1 + count_up(count)
        entry, channel = np.nonzero(self.mask[row])
        window, row = window[entry], row[entry]
        lead = self.times[row] - self.times[origins[window]]
        return Questions(window, channel, lead, row)

    def path(self, origins: Numbers, reach: float) -> tuple[Array, Array] | None:
        """Return times since origins, and controls there, (window, row, ...)."""
        if self.controls is None:
            return None
        start = self.times[origins]
        known = KnownControls(self.bounds, self.times, self.controls)
        times, values = known.paths(self.series[origins], start, start + reach)
        return (times - start[:, None]).astype(np.float32), values


class KnownControls(NamedTuple):
    """Rows of controls, sorted by series and time, no two at one time."""

    bounds: Numbers  # (series + 1,)
    times: Array  # (row,), in time units
    values: Array  # (row, control), normalised

    def paths(self, series: Numbers, low: Array, high: Array) -> tuple[Array, Array]:
        """Return times, (path, row), and values around two times."""
        first = rows_before(self.bounds, self.times, series, low)
        last = rows_before(self.bounds, self.times, series, high) + 1
        ends = self.bounds[series], self.bounds[series + 1] - 1
        first, last = np.clip([first, last], *ends)
        # short paths repeat their last row
        rows = first[:, None] + np.arange(int((last - first).max()) + 1)
        rows = np.minimum(rows, last[:, None])
        return self.times[rows], self.values[rows]


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
        rows: Rows,
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

    def gather(self, which: Numbers, scored_from: Any = None) -> WindowArrays:
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


def spread(items: Numbers, most: int) -> Numbers:
    """Return at most that many items, evenly spaced, and the last one."""
    if len(items) <= most:
        return items
    return items[np.linspace(0, len(items) - 1, most).round().astype(np.int64)]


def count_up(counts: Numbers) -> Numbers:
    """Return 0, 1... up to each count, one after the other."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
