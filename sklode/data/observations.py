"""From pandas to arrays: times, values and controls of one or more series."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

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
    stamps_of,
    ticks_between,
    ticks_of,
)


@dataclass(frozen=True)
class Observations:
    """One or more series, end to end, each with rows of its own.

    Ticks are whole: nanoseconds of datetimes and timedeltas, ordinals of periods, the
    integers themselves. Series k has the rows ``bounds[k]`` to ``bounds[k + 1]``.
    """

    ticks: Numbers  # (row,): time stamps
    values: Array  # (row, channel), float64; NaN where missing
    controls: Array  # (row, control), float64: X at the same stamps
    errors: Array  # (row, channel), standard deviations of measurement, as values
    bounds: Numbers  # (series + 1,)
    keys: tuple[Key, ...]  # index levels of each series; ((),) for a single one
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
        order = np.lexsort((ticks, series))
        bounds = np.searchsorted(series[order], np.arange(len(keys) + 1))
        values = finite_values(y)
        in_turn = cls(
            ticks=ticks,
            values=values,
            controls=finite_values(X, "X"),
            errors=np.where(np.isnan(values), np.nan, errors),
            bounds=bounds,
            keys=keys,
            like=times[:1],
        )
        return in_turn.rows(order, bounds, keys)

    @property
    def clock(self) -> str:
        """Kind of the index, see `sklode.data.ticks.clock_of`."""
        return clock_of(self.like)

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
        keys = tuple(k for k, n in zip(self.keys, counts, strict=True) if n)
        return self.rows(kept, np.append(0, np.cumsum(counts[counts > 0])), keys)

    def means(self, step: int) -> Observations:
        """Return the means of rows in each step of so many ticks."""
        number, series = self.ticks // step, self.series
        first = np.append(True, (np.diff(number) != 0) | (np.diff(series) != 0))
        starts = np.flatnonzero(first)

        def mean(columns: Array) -> Array:
            known = ~np.isnan(columns)
            sums = np.add.reduceat(np.where(known, columns, 0.0), starts)
            counts = np.add.reduceat(known.astype(np.float64), starts)
            return np.where(counts > 0, sums / np.maximum(counts, 1.0), np.nan)

        passed = (self.ticks - number * step).astype(np.float64)[:, None]
        lengths = np.add.reduceat(~np.isnan(self.values), starts, dtype=np.float64)
        # the variance of a mean of n is the mean of their variances, over n
        variances = mean(self.errors**2) / np.maximum(lengths, 1.0)
        return Observations(
            ticks=number[starts] * step + mean(passed)[:, 0].astype(np.int64),
            values=mean(self.values),
            controls=mean(self.controls),
            errors=np.sqrt(variances),
            bounds=np.searchsorted(starts, self.bounds),
            keys=self.keys,
            like=self.like,
        )

    def latest(self, n_rows: int) -> Observations:
        """Return the last rows of each series, so many at most."""
        first = np.maximum(self.bounds[1:] - n_rows, self.bounds[:-1])
        row = np.arange(len(self.ticks))
        return self.where(row >= np.repeat(first, self.lengths))

    def until(self, cut: Numbers) -> Observations:
        """Return each series' rows before the row ``cut``, (series,)."""
        return self.where(np.arange(len(self.ticks)) < np.repeat(cut, self.lengths))

    def observed(self) -> Observations:
        """Return the rows with an observed value; each series must have one."""
        found = self.where(np.any(~np.isnan(self.values), axis=1))
        if len(found.keys) < len(self.keys):
            key = next(key for key in self.keys if key not in found.keys)
            n_rows = self.lengths[self.keys.index(key)]
            raise ValueError(
                "y must hold at least one observed value in every series; got "
                f"{n_rows} rows{f' of series {key}' if key else ''} that are all "
                "missing. Drop that series or give it a value."
            )
        return found

    def check_channels(self, names: Sequence[Hashable]) -> None:
        """Check that every channel was observed at all."""
        for channel in np.flatnonzero(np.isnan(self.values).all(axis=0)).tolist():
            raise ValueError(
                "y must hold at least one observed value in every column; got none in "
                f"column {names[channel]!r}. Drop that column."
            )

    def locate(self, index: pd.Index) -> tuple[Numbers, Numbers]:
        """Return each row's series, -1 for none of these, and ticks."""
        series, keys = series_of(index)
        numbers = {key: k for k, key in enumerate(self.keys)}
        number = np.array([numbers.get(key, -1) for key in keys], dtype=np.int64)
        return number[series], ticks_of(index.get_level_values(-1))

    def at_or_before(self, series: Numbers, ticks: Numbers) -> Numbers:
        """Return the rows at or before stamps of series; before the first, that one."""
        row = rows_before(self.bounds, self.ticks, series, ticks)
        return np.maximum(row, self.bounds[series])

    def holds(self, series: Numbers, ticks: Numbers) -> Flags:
        """Return which stamps of series, -1 for none, are among these rows."""
        row = rows_before(self.bounds, self.ticks, series, ticks)
        found = (self.ticks[row] == ticks) & (row >= self.bounds[series])
        return found & (series >= 0)

    def merged(
        self, new: Observations, warns: bool = True, is_measured: bool = False
    ) -> Observations:
        """Return these series with the rows of ``new``, matched by key and stamp.

        What is not NaN there replaces what was here; new series come last. Where errors
        of measurement are known, another value of a stamp is a second measurement. A
        HistoryWarning says where a value changes, or a series of ``new`` ends before
        its first row here.
        """
        keys = tuple(dict.fromkeys([*self.keys, *new.keys]))
        number = {key: k for k, key in enumerate(keys)}
        of_new = np.array([number[key] for key in new.keys])
        series = np.concatenate([self.series, of_new[new.series]])
        ticks = np.concatenate([self.ticks, new.ticks])
        order = np.lexsort((ticks, series))  # stable: new rows come second
        again = (np.diff(series[order]) == 0) & (np.diff(ticks[order]) == 0)
        before, after = order[:-1][again], order[1:][again]  # rows of one stamp
        kept = order[np.append(~again, True)]
        n_channels = self.values.shape[1]
        # one table of all columns: the same rules hold for y, X and errors
        table = np.block([[x.values, x.controls, x.errors] for x in (self, new)])
        old, now = table[before], table[after]
        table[after] = np.where(np.isnan(now), old, now)
        if is_measured:
            both = _measured_twice(old, now, n_channels)
            table[after] = np.where(np.isnan(both), table[after], both)
            old = np.where(np.isnan(both), old, table[after])
        n_told = n_channels + self.controls.shape[1]  # errors are no news of their own
        revised = ((old != table[after]) & ~np.isnan(old))[:, :n_told]
        if warns and revised.any():
            row = after[np.argmax(revised.any(axis=1))]
            parts = {"y": revised[:, :n_channels], "X": revised[:, n_channels:]}
            names = " and ".join(name for name, part in parts.items() if part.any())
            _warn(
                f"an update replaces values of {names} that were seen before: "
                f"{int(revised.sum())} of them, the first at "
                f"{new.named(row - len(self.ticks))}. Where that is no revision, look "
                "for wrong time stamps."
            )
        firsts, lasts = self.bounds[:-1], new.bounds[1:] - 1
        known = np.flatnonzero(of_new < len(firsts))
        early = new.ticks[lasts[known]] < self.ticks[firsts[of_new[known]]]
        if warns and early.any():
            k = known[early][0]
            _warn(
                "an update comes before the first stamp that was seen, "
                f"{self.named(firsts[of_new[k]])}; its last is {new.named(lasts[k])}. "
                "The cutoff stays, and forecasts begin after it. Where that is not "
                "meant, look for wrong time stamps."
            )
        bounds = np.searchsorted(series[kept], np.arange(len(keys) + 1))
        values, controls, errors = np.split(table[kept], [n_channels, n_told], axis=1)
        return Observations(
            ticks=ticks[kept],
            values=values,
            controls=controls,
            errors=errors,
            bounds=bounds,
            keys=keys,
            like=self.like,
        )

    def named(self, row: int | np.integer) -> str:
        """Return a row as the user's index names it."""
        stamp = stamps_of(self.ticks[[int(row)]], self.like)[0]
        key = self.keys[self.series[row]]
        return f"{stamp} of series {key}" if key else f"{stamp}"


def _measured_twice(old: Array, now: Array, n_channels: int) -> Array:
    """Return what rows say together where both have values, which differ; else NaN."""
    found = np.full(old.shape, np.nan)
    n_errors = old.shape[1] - n_channels  # the first column of errors
    codes = np.tile(np.arange(len(old)), 2)
    for k in range(n_channels):
        values = np.append(old[:, k], now[:, k])
        errors = np.append(old[:, n_errors + k], now[:, n_errors + k])
        mean, error = combined(values, np.nan_to_num(errors), codes)
        differ = ~np.isnan(old[:, k] + now[:, k]) & (old[:, k] != now[:, k])
        found[differ, k], found[differ, n_errors + k] = mean[differ], error[differ]
    return found


def _warn(text: str) -> None:
    warnings.warn(text, HistoryWarning, stacklevel=4)
