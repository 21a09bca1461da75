"""What columns of y tell of each other: makers of features, in turn.

Tested in tests/structural/coupling/test_same_time.py and coupling/test_next_rows.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sklode.structural.coupling.next_rows import NextRows
from sklode.structural.coupling.same_time import SameTime
from sklode.structural.filtered_column import FilteredColumn
from sklode.structural.predictive.steps import Conditioned
from sklode.structural.rows import ChannelRows


class Coupling(NamedTuple):
    """What columns tell of each other: the first that has something new counts."""

    same_time: SameTime
    next_rows: NextRows

    @classmethod
    def none(cls, n_columns: int) -> Coupling:
        """Return what couples nothing."""
        return cls(SameTime.none(n_columns), NextRows.none(n_columns))

    @classmethod
    def fit(cls, columns: Sequence[FilteredColumn]) -> Coupling:
        """Find what columns, of their heaviest candidates, tell of each other."""
        return cls(SameTime.fit(columns), NextRows.fit(columns))

    def moves(self, k: int) -> bool:
        """Return whether others move the forecasts of column ``k``."""
        return any(bool(maker.weights[:, :, k].any()) for maker in self)

    def conditioned(
        self, columns: Sequence[FilteredColumn], k: int, queries: ChannelRows
    ) -> Conditioned | None:
        """Return the step by which others move column ``k``; None: they do not."""
        for maker in self:
            found = maker.conditioned(columns, k, queries)
            if found is not None:
                return found
        return None
