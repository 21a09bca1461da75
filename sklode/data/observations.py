"""From pandas to arrays: times, values and controls of one or more series."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sklode.data.arrays import Array, Flags, Key, Numbers
from sklode.data.checks import finite_values
from sklode.data.errors import HistoryWarning
from sklode.data.measurements import combined
from sklode.data.ticks import (
    clock_of,
    rows_before,
    series_of,
    shown,
    stamps_of,
    ticks_between,
    ticks_of,
)


@dataclass(frozen=True)
class Observations:
    """One or more series, end to end, each with rows of its own.

    Ticks are whole: nanoseconds of datetimes and timedeltas,
    ordinals of periods, the integers themselves.
    Series k has the rows ``bounds[k]`` to ``bounds[k + 1]``.
    """

    ticks: Numbers  # (row,): time stamps
    values: Array  # (row, channel), float64; NaN where missing
    controls: Array  # (row, control), float64: X at the same stamps
    errors: Array  # (row, channel), deviations of measurement
    bounds: Numbers  # (series + 1,)
    keys: tuple[Key, ...]  # of each series; ((),) for a single one
    like: pd.Index  # of the stamps' kind, zone and unit

    @classmethod
    def from_frame(
        cls,
        y: pd.DataFrame,
        X: pd.DataFrame | None = None,
        errors: Array | float = 0.0,
    ) -> Observations:
        """Read all rows of ``y``, whose last index level is time, with their X."""
        X = y.iloc[:, :0] if X is None else X.loc[y.index]
        series, keys = series_of(y.index)
        times = y.index.get_level_values(-1)
        ticks = ticks_of(times)
        # the last key of a lexsort is the first to sort by
        order = np.lexsort((ticks, series))
        # one number more than series: the last one is where all end
        bounds = np.searchsorted(series[order], np.arange(len(keys) + 1))
        values = finite_values(y)
        as_given = cls(
            ticks=ticks,
            values=values,
            controls=finite_values(X, name="X"),
            errors=np.where(np.isnan(values), np.nan, errors),
            bounds=bounds,
            keys=keys,
            like=times[:1],
        )
        return as_given.rows(order, bounds, keys)

    @property
    def clock(self) -> str:
        """Kind of the index, see `sklode.data.ticks.clock_of`."""
        return clock_of(self.like)

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of columns of y and of X."""
        return self.values.shape[1], self.controls.shape[1]

    @property
    def lengths(self) -> Numbers:
        """Number of rows of each series."""
        return np.diff(self.bounds)

    @property
    def series(self) -> Numbers:
        """Number of the series of each row."""
        return np.repeat(np.arange(len(self.keys)), self.lengths)

    @property
    def gaps(self) -> NDArray[np.float64]:
        """Ticks from each row to the next one; 0 between series."""
        gaps = ticks_between(self.ticks[:-1], self.ticks[1:])
        # gap k is before row k + 1, with which another series may begin
        gaps[self.bounds[1:-1] - 1] = 0.0
        return gaps

    def rows(
        self, which: Numbers | Flags, bounds: Numbers, keys: tuple[Key, ...]
    ) -> Observations:
        """Return some rows, as series of these ``bounds`` and ``keys``."""
        return Observations(
            ticks=self.ticks[which],
            values=self.values[which],
            controls=self.controls[which],
            errors=self.errors[which],
            bounds=bounds,
            keys=keys,
            like=self.like,
        )

    def where(self, kept: Flags) -> Observations:
        """Return some rows, (row,); series without any are left out."""
        if kept.all():
            return self
        counts = np.bincount(self.series[kept], minlength=len(self.keys))
        keys = tuple(self.keys[k] for k in np.flatnonzero(counts))
        bounds = np.append(0, np.cumsum(counts[counts > 0]))
        return self.rows(kept, bounds, keys)

    def means(self, step: int) -> Observations:
        """Return the means of rows in each step of so many ticks."""
        number, series = self.ticks // step, self.series
        is_next = (np.diff(number) != 0) | (np.diff(series) != 0)
        starts = np.flatnonzero(np.append(True, is_next))

        def mean(columns: Array) -> Array:
            known = ~np.isnan(columns)
            sums = np.add.reduceat(np.where(known, columns, 0.0), starts)
            counts = np.add.reduceat(known.astype(np.float64), starts)
            means = sums / np.maximum(counts, 1.0)
            return np.where(counts > 0, means, np.nan)

        # since the step began: floats hold whole ticks up to 2**53 only
        passed = (self.ticks - number * step).astype(np.float64)
        mean_passed = mean(passed[:, None])[:, 0].astype(np.int64)
        is_known = ~np.isnan(self.values)
        counts = np.add.reduceat(is_known, starts, dtype=np.float64)
        # var(sum / n) = sum of variances / n^2: their mean over n
        variances = mean(self.errors**2) / np.maximum(counts, 1.0)
        return Observations(
            ticks=number[starts] * step + mean_passed,
            values=mean(self.values),
            controls=mean(self.controls),
            errors=np.sqrt(variances),
            bounds=np.searchsorted(starts, self.bounds),
            keys=self.keys,
            like=self.like,
        )

    def until(self, cut: Numbers) -> Observations:
        """Return each series' rows before the row ``cut``, (series,)."""
        row = np.arange(len(self.ticks))
        is_before = row < np.repeat(cut, self.lengths)
        return self.where(is_before)

    def opposite(self, rows: Numbers) -> Numbers:
        """Return the places of rows where each series runs the other way."""
        series = self.series[rows]
        return self.bounds[series] + self.bounds[series + 1] - 1 - rows

    def reversed(self) -> Observations:
        """Return the same rows in reversed time: ticks count backward."""
        order = self.opposite(np.arange(len(self.ticks)))
        found = self.rows(order, self.bounds, self.keys)
        return replace(found, ticks=-found.ticks)

    def observed(self) -> Observations:
        """Return the rows with an observed value, of the series that have any."""
        return self.where(np.any(~np.isnan(self.values), axis=1))

    def check_observed(self) -> None:
        """Check that every series has an observed value."""
        found = self.observed()
        if len(found.keys) < len(self.keys):
            key = next(key for key in self.keys if key not in found.keys)
            n_rows = self.lengths[self.keys.index(key)]
            raise ValueError(
                "y must hold at least one observed value in every series; "
                f"got {n_rows} rows{f' of series {shown(key)}' if key else ''} "
                "that are all missing. "
                "Drop that series or give it a value."
            )

    def check_channels(self, names: Sequence[Hashable]) -> None:
        """Check that every channel was observed at all."""
        is_empty = np.isnan(self.values).all(axis=0)
        for channel in np.flatnonzero(is_empty).tolist():
            raise ValueError(
                "y must hold at least one observed value in every column; "
                f"got none in column {names[channel]!r}. "
                "Drop that column."
            )

    def locate(self, index: pd.Index) -> tuple[Numbers, Numbers]:
        """Return each row's series, -1 for none of these, and ticks."""
        series, keys = series_of(index)
        numbers = {key: k for k, key in enumerate(self.keys)}
        found = [numbers.get(key, -1) for key in keys]
        of_key = np.array(found, dtype=np.int64)
        times = index.get_level_values(-1)
        return of_key[series], ticks_of(times)

    def at_or_before(self, series: Numbers, ticks: Numbers) -> Numbers:
        """Return the rows at or before stamps; before the first one, that."""
        row = self._before(series, ticks)
        return np.maximum(row, self.bounds[series])

    def _before(self, series: Numbers, ticks: Numbers) -> Numbers:
        """Return the rows at or before stamps, see `rows_before`."""
        return rows_before(
            bounds=self.bounds, known=self.ticks, series=series, asked=ticks
        )

    def holds(self, series: Numbers, ticks: Numbers) -> Flags:
        """Return which stamps of series, -1 for none, are among these rows."""
        row = self._before(series, ticks)
        # before the first of its own it is another series' row, or the last
        found = (self.ticks[row] == ticks) & (row >= self.bounds[series])
        return found & (series >= 0)

    def merged(
        self, new: Observations, warns: bool = True, is_measured: bool = False
    ) -> Observations:
        """Return these series with the rows of ``new``, matched by key and stamp.

        What is not NaN there replaces what was here;
        new series come last. Where errors of measurement are known,
        another value of a stamp is a second measurement.
        A HistoryWarning says where a value changes,
        or a series of ``new`` ends before its first row here.
        """
        keys = tuple(dict.fromkeys([*self.keys, *new.keys]))
        number = {key: k for k, key in enumerate(keys)}
        of_new = np.array([number[key] for key in new.keys])
        series = np.concatenate([self.series, of_new[new.series]])
        ticks = np.concatenate([self.ticks, new.ticks])
        # a stable order: of one stamp the new row comes second, and is kept
        order = np.lexsort((ticks, series))
        is_same_series = np.diff(series[order]) == 0
        is_again = is_same_series & (np.diff(ticks[order]) == 0)
        before, after = order[:-1][is_again], order[1:][is_again]
        kept = order[np.append(~is_again, True)]
        # one table of all columns: the same rules hold for y, X and errors
        table = np.block(
            [
                [self.values, self.controls, self.errors],
                [new.values, new.controls, new.errors],
            ]
        )
        old, now = table[before], table[after]
        table[after] = np.where(np.isnan(now), old, now)
        n_channels = self.values.shape[1]
        if is_measured:
            both = _measured_twice(old, now, n_channels)
            is_both = ~np.isnan(both)
            table[after] = np.where(is_both, both, table[after])
            # what is counted twice is no revision
            old = np.where(is_both, both, old)
        # errors stand last in the table, and are no news of their own
        n_known = n_channels + self.controls.shape[1]
        if warns:
            revised = (old != table[after]) & ~np.isnan(old)
            # rows of the table after those of these series are the new ones
            new_rows = after - len(self.ticks)
            new._warn_of_revisions(revised[:, :n_known], new_rows)
            self._warn_of_early(new, of_new)
        ends = [n_channels, n_known]
        values, controls, errors = np.split(table[kept], ends, axis=1)
        return Observations(
            ticks=ticks[kept],
            values=values,
            controls=controls,
            errors=errors,
            bounds=np.searchsorted(series[kept], np.arange(len(keys) + 1)),
            keys=keys,
            like=self.like,
        )

    def _warn_of_revisions(self, revised: Flags, rows: Numbers) -> None:
        """Warn of other values, (row, column of y, then X), at ``rows``."""
        if not revised.any():
            return
        first = rows[np.argmax(revised.any(axis=1))]
        n_channels = self.values.shape[1]
        parts = {"y": revised[:, :n_channels], "X": revised[:, n_channels:]}
        names = " and ".join(name for name, part in parts.items() if part.any())
        _warn(
            f"an update replaces values of {names} that were seen before: "
            f"{int(revised.sum())} of them, the first at {self.named(first)}. "
            "Where that is no revision, look for wrong time stamps."
        )

    def _warn_of_early(self, new: Observations, of_new: Numbers) -> None:
        """Warn of a series of ``new`` that ends before these rows of it begin.

        ``of_new`` is the number here of each of its series;
        those without rows have numbers above all others.
        """
        firsts, lasts = self.bounds[:-1], new.bounds[1:] - 1
        known = np.flatnonzero(of_new < len(firsts))
        own_firsts = firsts[of_new[known]]
        is_early = new.ticks[lasts[known]] < self.ticks[own_firsts]
        if not is_early.any():
            return
        place = int(np.argmax(is_early))
        _warn(
            "an update comes before the first stamp that was seen, "
            f"{self.named(own_firsts[place])}; "
            f"its last is {new.named(lasts[known[place]])}. "
            "The cutoff stays, and forecasts begin after it. "
            "Where that is not meant, look for wrong time stamps."
        )

    def named(self, row: int | np.integer) -> str:
        """Return a row as the user's index names it."""
        stamp = stamps_of(self.ticks[[int(row)]], self.like)[0]
        key = self.keys[self.series[row]]
        return f"{stamp} of series {shown(key)}" if key else f"{stamp}"


def _measured_twice(old: Array, now: Array, n_channels: int) -> Array:
    """Return what both say together where their values differ; else NaN."""
    found = np.full(old.shape, np.nan)
    # errors are the last columns, one a channel
    first_error = old.shape[1] - n_channels
    # of each row one code, which its two measurements share
    codes = np.tile(np.arange(len(old)), 2)
    for k in range(n_channels):
        values = np.append(old[:, k], now[:, k])
        errors = np.append(old[:, first_error + k], now[:, first_error + k])
        mean, error = combined(values, np.nan_to_num(errors), codes)
        # a sum is NaN where either is
        have_both = ~np.isnan(old[:, k] + now[:, k])
        differ = have_both & (old[:, k] != now[:, k])
        found[differ, k] = mean[differ]
        found[differ, first_error + k] = error[differ]
    return found


def _warn(text: str) -> None:
    # three calls from `merged`: the line that extends a history
    warnings.warn(text, HistoryWarning, stacklevel=5)
