"""Origins, the rows that a network looks ahead from."""

from __future__ import annotations

import numpy as np

from sklode.data.arrays import Array, Numbers
from sklode.data.observations import Observations
from sklode.data.scaled_rows import KnownControls, ScaledRows, count_up
from sklode.data.scaling import Units
from sklode.data.ticks import rows_before
from sklode.hybrid.windows import Queries, Windows


class Origins(ScaledRows):
    """Rows in a network's units, of which any may be looked ahead from.

    ``known`` has X at any time, also between them.
    """

    def __init__(
        self,
        observations: Observations,
        units: Units,
        whole: Observations | None = None,
        known: KnownControls | None = None,
    ) -> None:
        super().__init__(observations, units, whole)
        self.known = known

    def usable(self, fewest: int) -> Numbers:
        """Return rows with so many up to them, and one after, in their series."""
        row = np.arange(len(self.times))
        first = self.bounds[:-1][self.series]
        end = self.bounds[1:][self.series]
        n_seen = row - first + 1
        return row[(n_seen >= fewest) & (row + 1 < end)]

    def seen(self, origins: Numbers, n_rows: int) -> Windows:
        """Return so many rows up to origins. Padding repeats a first row, masked."""
        # (window, row): each origin, the row before it, the one before that
        rows = origins[:, None] - np.arange(n_rows)
        first = self.bounds[:-1][self.series[origins], None]
        inside = rows >= first
        rows = np.maximum(rows, first)
        # a difference of times, taken before single precision cuts digits off
        ages = self.times[origins][:, None] - self.times[rows]
        controls = None if self.controls is None else self.controls[rows]
        mask = self.mask[rows] & inside[..., None]
        return Windows(ages.astype(np.float32), self.values[rows], mask, controls)

    def n_after(self, origins: Numbers, reach: float | Array) -> Numbers:
        """Return how many rows there are after origins, up to so long."""
        # the last row within reach, counted from the origin's own
        last = rows_before(
            bounds=self.bounds,
            known=self.times,
            series=self.series[origins],
            asked=self.times[origins] + reach,
        )
        return last - origins

    def after(self, origins: Numbers, reach: float) -> Queries:
        """Return every value observed after origins, up to so long."""
        n_after = self.n_after(origins, reach)
        window = np.repeat(np.arange(len(origins)), n_after)
        row = origins[window] + 1 + count_up(n_after)
        # a row is a query as often as it has values, which may be never
        entry, channel = np.nonzero(self.mask[row])
        window, row = window[entry], row[entry]
        lead = self.times[row] - self.times[origins[window]]
        return Queries(window=window, channel=channel, lead=lead, row=row)
