"""The rows that a search reads, of a channel that may have many.

Tested in tests/structural/test_decisions.py.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from sklode.data.arrays import Array, Numbers
from sklode.structural.effects.inputs import Inputs
from sklode.structural.rows import ChannelRows

# of a panel, to seek hyperparameters by, and to judge by what is chosen
_SOUGHT_SERIES, _SOUGHT_ROWS = 120, 6000
_JUDGED_SERIES, _JUDGED_ROWS = 2000, 40_000
# last rows of a lone series, to judge by
_MOST_JUDGED = 20_000
# of each series, to seek by: this share the last rows, the others spread
MOST_ROWS, _LATE = 500, 0.8
# of each series of a large panel
_FEWEST_ROWS = 8
# its multiples, less whole numbers, are spread evenly
_GOLDEN = (5**0.5 - 1) / 2


class SearchRows(NamedTuple):
    """A channel's observed rows, and what effects may read there."""

    table: ChannelRows
    inputs: Inputs | None
    passed: Array  # (row, 2), what `Design.clock` says there

    def at(self, chosen: Numbers) -> SearchRows:
        """Return some rows, of the series that have any."""
        inputs = None if self.inputs is None else self.inputs.at(chosen)
        table = self.table.where(chosen).without_empty()
        return SearchRows(table, inputs, self.passed[chosen])


def read_by_search(rows: SearchRows) -> SearchRows:
    """Return the rows that a search reads: of others no effect need be worked out."""
    table, few = rows.table, sought(rows.table)
    if len(table.bounds) == 2:
        few = np.union1d(few, _last_rows(table))
    elif rows.inputs is None:
        return rows
    return rows.at(few) if len(few) < len(table.values) else rows


def sought(table: ChannelRows) -> Numbers:
    """Return the rows that hyperparameters are sought by."""
    return _sample(table, _SOUGHT_SERIES, _SOUGHT_ROWS, most_of_each=MOST_ROWS)


def judged(rows: SearchRows) -> Numbers:
    """Return the rows that judge what was found."""
    table = rows.table
    if len(table.bounds) == 2:
        return _last_rows(table)
    if rows.inputs is None:
        return _sample(table, _JUDGED_SERIES, _JUDGED_ROWS)
    # of a panel with effects all, as the coefficients of each series are known
    return np.arange(len(table.values))


def _last_rows(table: ChannelRows) -> Numbers:
    """Return the last rows of a lone series."""
    n = len(table.values)
    return np.arange(max(n - _MOST_JUDGED, 0), n)


def _sample(
    table: ChannelRows, most_series: int, most_rows: int, most_of_each: float = math.inf
) -> Numbers:
    """Return some rows of some series, of each the last ones and others."""
    series = np.flatnonzero(table.lengths)
    if len(series) > most_series:
        places = np.linspace(0, len(series) - 1, most_series).round()
        series = series[places.astype(int)]
    rows = []
    share_of_rows = max(most_rows // len(series), _FEWEST_ROWS)
    most = int(min(share_of_rows, most_of_each))
    for k in series:
        first, end = table.bounds[k], table.bounds[k + 1]
        if end - first <= most:
            rows.append(np.arange(first, end))
            continue
        n_late = round(_LATE * most)
        middle = end - n_late
        # not at one distance, which would hide seasons of a part of it
        share = (np.arange(1, most - n_late + 1) * _GOLDEN) % 1
        early = np.unique(first + (share * (middle - first)).astype(int))
        rows.append(np.append(early, np.arange(middle, end)))
    return np.concatenate(rows)
