"""Rows of one channel, and what is asked of it, as arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Queries", "Table", "joined", "merged", "power_of_two", "table_of"]

Array = NDArray[np.floating]
Numbers = NDArray[np.int64]


class Table(NamedTuple):
    """One channel of one or more series, end to end."""

    times: Array  # (row,)
    values: Array  # (row,), NaN where missing
    inputs: Array  # (row, 1 + column), see `kernel`
    bounds: NDArray[np.int64]  # (series + 1,)

    @property
    def spans(self) -> Array:
        """Time from first to last row of each series; zero of an empty one."""
        first, end = self.bounds[:-1], self.bounds[1:]
        some = end > first
        spans = np.zeros(len(first))
        spans[some] = self.times[end[some] - 1] - self.times[first[some]]
        return spans

    @property
    def series(self) -> Numbers:
        """Number of the series of each row."""
        return np.repeat(np.arange(len(self.bounds) - 1), np.diff(self.bounds))

    @property
    def ends(self) -> Array:
        """Time of each series' last row; minus infinity of an empty one."""
        some = np.diff(self.bounds) > 0
        ends = np.full(len(some), -np.inf)
        ends[some] = self.times[self.bounds[1:][some] - 1]
        return ends

    def since(self, time: float) -> Table:
        """Return the rows of a lone series from a time on."""
        kept = slice(int(np.searchsorted(self.times, time)), None)
        return self.of_rows(kept, np.array([0, len(self.times[kept])]))

    def of_series(self, chosen: Numbers) -> Table:
        """Return the rows of some series."""
        kept = np.isin(self.series, chosen)
        lengths = np.diff(self.bounds)[chosen]
        return self.of_rows(kept, np.append(0, np.cumsum(lengths)))

    def last(self, most: int) -> Table:
        """Return the last rows of all."""
        first = max(len(self.times) - most, 0)
        return self.of_rows(slice(first, None), np.maximum(self.bounds - first, 0))

    def of_rows(self, rows: Any, bounds: Numbers) -> Table:
        """Return some rows, in their order; ``bounds`` are those of their series."""
        times, values, inputs = self.times[rows], self.values[rows], self.inputs
        return Table(times, values, inputs[rows], bounds)


class Queries(NamedTuple):
    """What is asked: rows of (series, time), sorted by both, and X there."""

    series: Numbers
    times: Array  # in units of the usual gap, since each series' first row
    inputs: Array  # (query, 1 + column), see `kernel`


def table_of(queries: Queries, chosen: NDArray[np.bool_], n_series: int) -> Table:
    """Return queries as rows where nothing is observed."""
    counts = np.bincount(queries.series[chosen], minlength=n_series)
    times = queries.times[chosen]
    bounds = np.append(0, np.cumsum(counts))
    return Table(times, np.full(len(times), np.nan), queries.inputs[chosen], bounds)


def joined(table: Table, new: Table) -> Table:
    """Return rows of the same series, those of ``new`` after the others."""
    both, _ = _sorted(table, new, np.full(len(table.bounds) - 1, True))
    return both


def merged(
    table: Table, queries: Queries, inside: NDArray[np.bool_]
) -> tuple[Table, Numbers]:
    """Return rows and queries of some series, and each row's query, or -1."""
    asked = np.flatnonzero(inside[queries.series])
    rows = table_of(queries, inside[queries.series], len(inside))
    both, place = _sorted(table, rows, inside)
    return both, np.where(place < 0, -1, asked[place])


def _sorted(
    table: Table, new: Table, chosen: NDArray[np.bool_]
) -> tuple[Table, Numbers]:
    """Return the rows of both of the ``chosen`` series, and their numbers in ``new``.

    The number is -1 of a row of the first, which come first where times are equal.
    """
    series = np.append(table.series, new.series)
    place = np.append(np.full(len(table.times), -1), np.arange(len(new.times)))
    times = np.append(table.times, new.times)
    values = np.append(table.values, new.values)
    inputs = np.concatenate([table.inputs, new.inputs])
    order = np.lexsort((place >= 0, times, series))
    order = order[chosen[series[order]]]
    counts = np.bincount(series[order], minlength=len(chosen))[chosen]
    bounds = np.append(0, np.cumsum(counts))
    return Table(times[order], values[order], inputs[order], bounds), place[order]


def power_of_two(values: Array) -> float:
    """Return one near the largest of values: over it, their squares are floats."""
    return float(2.0 ** (np.frexp(np.abs(values).max())[1] - 1))
