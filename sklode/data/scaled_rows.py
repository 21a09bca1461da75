"""Rows of series in a network's units, and controls known at any time.

Tested in tests/latent_ode/test_windows.py
and tests/hybrid/test_origins.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sklode.data.arrays import Array, Numbers
from sklode.data.observations import Observations
from sklode.data.scaling import Units, plain
from sklode.data.ticks import rows_before, ticks_between


class ScaledRows:
    """Rows of series in a network's units: times, values and controls."""

    def __init__(
        self,
        observations: Observations,
        units: Units,
        whole: Observations | None = None,
    ) -> None:
        # where these are the last rows of whole series,
        # those have time zero and scales
        whole = observations if whole is None else whole
        self.bounds, self.series = observations.bounds, observations.series
        first = whole.ticks[whole.bounds[:-1]]
        passed = ticks_between(first[self.series], observations.ticks)
        # (row,), since each series' first row
        self.times = passed / units.time
        # (series, channel)
        self.location, self.scale = units.of_all(whole)
        values = plain(observations.values, units.links)
        values = values - self.location[self.series]
        values = values / self.scale[self.series]
        self.mask = ~np.isnan(values)  # (row, channel)
        self.values = np.where(self.mask, values, 0.0).astype(np.float32)
        self.controls = None  # (row, control)
        if observations.controls.shape[1]:
            controls = units.controls(observations.controls)
            self.controls = controls.astype(np.float32)


class KnownControls(NamedTuple):
    """Rows of controls, sorted by series and time, no two at one time."""

    bounds: Numbers  # (series + 1,)
    times: Array  # (row,), in time units
    values: Array  # (row, control), normalised
    rates: Array | None = None  # (control,), see `ControlPath`
    runs_back: bool = False  # likewise

    def paths(
        self,
        series: Numbers,
        low: Array,
        high: Array,
    ) -> tuple[Array, Array]:
        """Return times, (path, row), and values around two times."""
        first_own, last_own = self.bounds[series], self.bounds[series + 1] - 1
        # from the row at or before the lower time to the one after
        # the upper time, both of the same series
        first = self._before(series, low)
        first = np.clip(first, first_own, last_own)
        last = self._before(series, high) + 1
        last = np.clip(last, first_own, last_own)
        # (path, row), as long as the longest path:
        # short ones repeat their last row
        longest = int((last - first).max()) + 1
        rows = first[:, None] + np.arange(longest)
        rows = np.minimum(rows, last[:, None])
        return self.times[rows], self.values[rows]

    def _before(self, series: Numbers, times: Array) -> Numbers:
        return rows_before(
            bounds=self.bounds,
            known=self.times,
            series=series,
            asked=times,
        )


def spread(items: Numbers, most: int) -> Numbers:
    """Return at most that many items, evenly spaced, and the last one."""
    if len(items) <= most:
        return items
    # places are at least one apart before rounding, so none comes twice
    places = np.linspace(0, len(items) - 1, most).round()
    return items[places.astype(np.int64)]


def count_up(counts: Numbers) -> Numbers:
    """Return 0, 1... up to each count, one after the other."""
    # a place among all of them, less the place where its count starts
    starts = np.cumsum(counts) - counts
    return np.arange(counts.sum()) - np.repeat(starts, counts)
