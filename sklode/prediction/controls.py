"""Paths of controls between two times of a series."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklode.data.ticks import rows_before

Array = NDArray[np.floating]
Numbers = NDArray[np.int64]


class KnownControls(NamedTuple):
    """Rows of controls, sorted by series and time, no two of them at one time."""

    series: Numbers  # (row,)
    times: Array  # (row,), in time units
    values: Array  # (row, control), normalised

    def paths(self, series: Numbers, low: Array, high: Array) -> tuple[Array, Array]:
        """Return times (path, row) and values (path, row, control) between two times.

        With the rows before and after; the last one is repeated where a path is short.
        """
        bounds = np.searchsorted(self.series, np.arange(self.series[-1] + 2))
        first = rows_before(bounds, self.times, series, low)
        last = rows_before(bounds, self.times, series, high) + 1
        first, last = np.clip([first, last], bounds[series], bounds[series + 1] - 1)
        rows = first[:, None] + np.arange(int((last - first).max()) + 1)
        rows = np.minimum(rows, last[:, None])
        return self.times[rows], self.values[rows]
