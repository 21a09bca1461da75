"""Rows of one channel, as arrays.

Tested in tests/structural/filter/test_forward.py.
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias

import numpy as np

from sklode.data.arrays import Array, Flags, Numbers

Rows: TypeAlias = Numbers | Flags | slice
"""Which rows of a table are meant."""


class ChannelRows(NamedTuple):
    """One channel of series, end to end; or what is asked of it."""

    times: Array  # (row,), in usual gaps since each series' first row
    values: Array  # (row,), NaN where missing
    inputs: Array  # (row, 1 + column), see `filter.forward`
    errors: Array  # (row,), standard deviations of measurement, in units of values
    bounds: Numbers  # (series + 1,)
    changes: Array | None = None
    """(path, row, column), of inputs, by X that is not known."""

    @classmethod
    def from_series(
        cls,
        series: Numbers,
        times: Array,
        values: Array | float,
        inputs: Array,
        n_series: int,
        errors: Array | float = 0.0,
        changes: Array | None = None,
    ) -> ChannelRows:
        """Return a table of rows that are sorted by series and time."""
        bounds = np.searchsorted(series, np.arange(n_series + 1))
        return cls(
            times=times,
            values=np.broadcast_to(values, times.shape).copy(),
            inputs=inputs,
            errors=np.broadcast_to(errors, times.shape).copy(),
            bounds=bounds,
            changes=changes,
        )

    @property
    def lengths(self) -> Numbers:
        """Number of rows of each series."""
        return np.diff(self.bounds)

    @property
    def series(self) -> Numbers:
        """Number of the series of each row."""
        return np.repeat(np.arange(len(self.bounds) - 1), self.lengths)

    @property
    def clock(self) -> Array:
        """Time on the wall, (row,); the first input is how far it is ahead."""
        return self.times + self.inputs[:, 0]

    @property
    def starts(self) -> Array:
        """Time of each series' first row; infinity of an empty one."""
        # an empty series at the end begins beyond all rows: it reads the infinity
        first = np.append(self.times, np.inf)[self.bounds[:-1]]
        return np.where(self.lengths > 0, first, np.inf)

    @property
    def ends(self) -> Array:
        """Time of each series' last row; minus infinity of an empty one."""
        # and one at the beginning has its last row at -1
        last = np.append(self.times, -np.inf)[self.bounds[1:] - 1]
        return np.where(self.lengths > 0, last, -np.inf)

    @property
    def spans(self) -> Array:
        """Time from first to last row of each series, or zero."""
        return np.maximum(self.ends - self.starts, 0.0)

    def means(self, columns: Array) -> Array:
        """Return the means of columns (row, column) in each series; zero of no rows."""
        n = len(self.lengths)
        sums = [np.bincount(self.series, column, n) for column in columns.T]
        means = np.stack(sums, axis=1) if sums else np.zeros((n, 0))
        return means / np.maximum(self.lengths, 1)[:, None]

    def where(self, rows: Rows) -> ChannelRows:
        """Return some rows; all series stay."""
        return ChannelRows.from_series(
            series=self.series[rows],
            times=self.times[rows],
            values=self.values[rows],
            inputs=self.inputs[rows],
            n_series=len(self.bounds) - 1,
            errors=self.errors[rows],
            changes=None if self.changes is None else self.changes[:, rows],
        )

    def without_empty(self) -> ChannelRows:
        """Return the series that have rows."""
        return self._replace(bounds=np.unique(self.bounds))

    def alone(self, series: int) -> ChannelRows:
        """Return one series."""
        return self.part(series, series + 1)

    def part(self, first: int, end: int) -> ChannelRows:
        """Return series from the first to before the end."""
        bounds = self.bounds[first : end + 1]
        own = slice(bounds[0], bounds[-1])
        return ChannelRows(
            times=self.times[own],
            values=self.values[own],
            inputs=self.inputs[own],
            errors=self.errors[own],
            bounds=bounds - bounds[0],
            changes=None if self.changes is None else self.changes[:, own],
        )

    def merged(self, other: ChannelRows) -> tuple[ChannelRows, Flags]:
        """Return the rows of both, own ones first, and which are the other's."""
        is_other = np.repeat([False, True], [len(self.times), len(other.times)])
        times = np.append(self.times, other.times)
        values = np.append(self.values, other.values)
        inputs = np.concatenate([self.inputs, other.inputs])
        errors = np.append(self.errors, other.errors)
        if len(self.bounds) == 2 and self.ends[0] <= other.starts[0]:
            # of one series, whose rows end where the other's begin: nothing to sort
            merged = ChannelRows(
                times=times,
                values=values,
                inputs=inputs,
                errors=errors,
                bounds=self.bounds + other.bounds,
            )
            return merged, is_other
        series = np.append(self.series, other.series)
        # by series, then by time; at equal stamps own rows come first
        order = np.lexsort((is_other, times, series))
        found = ChannelRows.from_series(
            series=series[order],
            times=times[order],
            values=values[order],
            inputs=inputs[order],
            n_series=len(self.bounds) - 1,
            errors=errors[order],
        )
        return found, is_other[order]


def power_of_two(values: Array) -> float:
    """Return one near the largest value: over it, squares are floats."""
    # x = m 2^e with m from 1/2 to 1; to divide by a power of two rounds nothing
    _, exponent = np.frexp(np.abs(values).max())
    return float(2.0 ** (exponent - 1))


def last_rows(tables: list[ChannelRows], most: int) -> list[ChannelRows]:
    """Return the last rows of a lone series, or some series of a panel."""
    longest = max(tables, key=lambda table: len(table.times))
    if len(longest.bounds) == 2:
        # all channels from the same stamp on; none of no rows
        first = longest.times[-most:][:1]
        return [table.where(table.times >= first) for table in tables]
    every = math.ceil(len(longest.times) / (2 * most))
    return [table.where(table.series % every == 0) for table in tables]
