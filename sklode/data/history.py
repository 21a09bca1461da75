"""What a forecaster remembers of its series, and how it reads an index."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from sklode.data.arrays import Array, Flags, Frame, Levels, Numbers
from sklode.data.categories import Columns
from sklode.data.checks import (
    check_index,
    check_kinds,
    check_same_kind,
    check_times,
    finite_values,
)
from sklode.data.measurements import error_columns, measured
from sklode.data.observations import Observations
from sklode.data.sensors import cleaned
from sklode.data.ticks import (
    Freq,
    Step,
    default_step,
    future_stamps,
    rows_before,
    stamps_of,
    ticks_of,
)

Unknown: TypeAlias = dict[Hashable, tuple[int, Hashable]]
"""Columns of X that are not known at all rows: at how many not, and the first."""


class Places(NamedTuple):
    """Rows of an index, in any order, by series and time."""

    index: pd.Index
    series: Numbers  # (row,): its number in the history
    ticks: Numbers  # (row,)

    def where(self, kept: Flags) -> Places:
        """Return some of them, (row,)."""
        return Places(self.index[kept], self.series[kept], self.ticks[kept])


@dataclass(frozen=True)
class Asked:
    """Rows that forecasts are asked for, see `Places`, and what is known of X."""

    index: pd.Index
    series: Numbers
    ticks: Numbers
    known: Observations  # the history with all rows of X that were given, or asked
    unknown: Unknown


@dataclass(eq=False)
class History:
    """Series as a forecaster remembers them; a model sees ``observations``."""

    given: Observations  # all rows of y and X, observed or not
    steps: list[Step]  # of each series, see `default_step`
    levels: list[Hashable]  # names of the index' levels, time last
    channels: list[Hashable]  # names of the columns of y
    controls: list[Hashable]  # and of X; empty without X
    left_out: Flags | None = None  # (row, channel), by `cleaned`; None: it never is
    errors: dict[Hashable, Hashable] = field(default_factory=dict)
    """Columns of X that hold channels' errors of measurement; they are no controls."""
    categories: dict[Hashable, Levels] = field(default_factory=dict)
    """Levels of those of X's columns that hold categories."""
    fills: Array | None = None  # (row, control), in place of what is NaN in X
    blurs: Array | None = None  # (row, channel), how uncertain y is by that

    def __post_init__(self) -> None:
        self.rows = self.given
        if self.fills is not None:
            self.rows = replace(self.rows, controls=self.fills)
        if self.blurs is not None:
            errors = np.hypot(self.rows.errors, self.blurs)
            self.rows = replace(self.rows, errors=errors)
        if self.left_out is not None and self.left_out.any():
            values = np.where(self.left_out, np.nan, self.given.values)
            self.rows = replace(self.rows, values=values)
        self.observations = self.rows.observed()

    @classmethod
    def of(
        cls,
        y: pd.DataFrame,
        X: pd.DataFrame | None,
        freq: Freq = None,
        channels: list[Hashable] | None = None,
        clean: bool = True,
        error: Hashable | dict[Hashable, Hashable] = None,
        categories: dict[Hashable, Levels] | None = None,
    ) -> History:
        """Read series; ``channels`` are names in place of y's own.

        ``error`` names the column of X, or of each channel one, that holds its errors;
        ``categories`` are levels in place of those that X has.
        """
        channels = list(y.columns) if channels is None else channels
        errors = error_columns(error, channels)
        y = y.set_axis(channels, axis=1)
        index, given, columns = _read(y, X, errors, categories)
        left_out = None
        steps = _steps_of(given, index, freq)
        if clean:
            left_out = np.zeros(given.values.shape, dtype=bool)
            given, left_out = cleaned(
                given,
                channels=channels,
                judged=range(len(given.keys)),
                left_out=left_out,
                n_seen=0,
            )
        return cls(
            given=given,
            steps=steps,
            levels=list(y.index.names),
            channels=channels,
            controls=columns.names,
            left_out=left_out,
            errors=errors,
            categories=columns.levels,
        )

    def extended(self, y: pd.DataFrame, X: pd.DataFrame | None, freq: Freq) -> History:
        """Return the history with more rows or series, of a step ``freq``."""
        if (X is None) != (not (self.controls or self.errors)):
            had, got = ("no X", "X") if X is not None else ("X", "no X")
            raise ValueError(
                f"update takes X where fit did; fit had {had}, update got {got}. Pass "
                "the same columns to both."
            )
        y = with_columns(y, self.channels)
        if X is not None:
            # two channels may share a column of errors, which X has once
            of_errors = dict.fromkeys(self.errors.values())
            X = with_columns(X, [*self.controls, *of_errors], "X")
        self._check_levels(y.index, "the rows of an update")
        old = self.given
        index, new, _ = _read(y, X, self.errors, self.categories)
        n_known = len(self.steps)
        rows = old.merged(new, is_measured=bool(self.errors))
        spelt = {tuple(map(str, key)): key for key in rows.keys[:n_known]}
        for key in rows.keys[n_known:]:
            if (alike := spelt.get(tuple(map(str, key)))) is not None:
                raise ValueError(
                    "a new series must not have the key of a known one in another "
                    f"type; got {key}, known is {alike}. Convert the keys, or choose "
                    "others."
                )
        steps = self.steps + _steps_of(rows, index, freq, first=n_known)
        left_out = None
        if self.left_out is not None:
            left_out = np.zeros(rows.values.shape, dtype=bool)
            row = rows_before(rows.bounds, rows.ticks, old.series, old.ticks)
            left_out[row] = self.left_out
            number = {key: k for k, key in enumerate(rows.keys)}
            rows, left_out = cleaned(
                rows,
                channels=self.channels,
                judged=[number[key] for key in new.keys],
                left_out=left_out,
                n_seen=n_known,
            )
        return replace(
            self, given=rows, steps=steps, left_out=left_out, fills=None, blurs=None
        )

    @property
    def columns(self) -> Columns:
        """Columns of X, as users know them."""
        return Columns(names=self.controls, levels=self.categories)

    @property
    def unknown(self) -> Unknown:
        """Columns of X that are not known at all rows: at how many not, and first."""
        missing = np.isnan(self.given.controls)
        found: Unknown = {}
        # the numbers of a category are NaN together: its first one tells of all
        for name, (k, n) in zip(self.columns.names, self.columns.blocks, strict=True):
            if n and missing[:, k].any():
                first = self.given.named(int(np.argmax(missing[:, k])))
                found[name] = int(missing[:, k].sum()), first
        return found

    @property
    def last(self) -> pd.Index:
        """Last stamp of each series, observed or not."""
        return stamps_of(self.rows.ticks[self.rows.bounds[1:] - 1], self.rows.like)

    @property
    def is_irregular(self) -> bool:
        """Whether steps from the first row of a series miss others of it."""
        rows = self.rows
        parts = np.split(rows.ticks, rows.bounds[1:-1])
        for ticks, step in zip(parts, self.steps, strict=True):
            first = stamps_of(ticks[:1], rows.like)
            _, reached = future_stamps(pd.RangeIndex(len(ticks)), first, [step])
            if not np.array_equal(reached, ticks):
                return True
        return False

    def cutoff(self, block_end: pd.Index) -> pd.Index:
        """Return the latest last stamp, given that of the block read now."""
        latest = self.last[[int(np.argmax(ticks_of(self.last)))]]
        if isinstance(block_end, pd.DatetimeIndex) and block_end.tz is not None:
            block_end = block_end.tz_convert(latest.tz)
        return block_end if ticks_of(block_end) == ticks_of(latest) else latest

    def rows_ahead(self, steps: pd.Index) -> Places:
        """Return the rows that steps ask for, from each series' own end."""
        stamps, ticks = future_stamps(steps, self.last, self.steps)
        return self._of_each(stamps, ticks)

    def rows_at(self, stamps: pd.Index) -> Places:
        """Return the rows of every series at the same stamps."""
        self._check_times(stamps)
        n_series = len(self.steps)
        each = stamps if n_series == 1 else stamps.append([stamps] * (n_series - 1))
        return self._of_each(each, np.tile(ticks_of(stamps), n_series))

    def rows_of(self, index: pd.Index) -> Places:
        """Return the rows of an index, which names their series; all must be known."""
        self._check_levels(index, "the horizon")
        series, ticks = self.rows.locate(index)
        if (series < 0).any():
            row = index[int(np.argmax(series < 0))]
            raise ValueError(
                "forecasts are for the series that fit has seen; got "
                f"{row[:-1]}, seen were {list(self.rows.keys)[:3]}... Fit on a panel "
                "that holds it, or update with its observations."
            )
        return Places(index=index, series=series, ticks=ticks)

    def _of_each(self, stamps: pd.Index, ticks: Numbers) -> Places:
        """Return rows at stamps, of which all series in turn have equally many."""
        n_series = len(self.steps)
        n_each = len(stamps) // n_series
        series = np.repeat(np.arange(n_series), n_each)
        return Places(self._keyed(stamps, n_each), series, ticks)

    def frame(self) -> pd.DataFrame:
        """Return the rows with an observed value."""
        rows = self.observations
        index = self._keyed(stamps_of(rows.ticks, rows.like), rows.lengths)
        return pd.DataFrame(rows.values, index=index, columns=self.channels)

    def _keyed(self, stamps: pd.Index, n_each: int | Numbers) -> pd.Index:
        """Return rows at stamps, of which each series in turn has so many."""
        if len(self.levels) == 1:
            return stamps.rename(self.levels[0])
        levels = [
            pd.Index(labels, tupleize_cols=False).repeat(n_each)
            for labels in zip(*self.rows.keys, strict=True)
        ]
        return pd.MultiIndex.from_arrays([*levels, stamps], names=self.levels)

    def asked(self, places: Places, X: Frame | None) -> Asked:
        """Read rows that are asked for, and X, which may lack known stamps."""
        known, unknown = self._known(places, X)
        return Asked(*places, known=known, unknown=unknown)

    def _known(self, places: Places, X: Frame | None) -> tuple[Observations, Unknown]:
        """Return all rows of X, and what is not known of those at ``places``."""
        rows, index = self.given, places.index
        if X is not None and self.errors:  # they are known of the past alone
            X = pd.DataFrame(X).drop(columns=[*self.errors.values()], errors="ignore")
            X = X if X.shape[1] else None
        if not self.controls:
            if X is not None:
                raise ValueError(
                    "X was not given to fit; got X with the columns "
                    f"{list(pd.DataFrame(X).columns)}. Fit with X, or leave X out."
                )
            return rows, {}
        need = index[~rows.holds(places.series, places.ticks)].unique()
        if X is None:
            # no rows, of the index' kind and levels, so that all of them are unknown
            X = pd.DataFrame(columns=self.controls, index=index[:0], dtype=float)
        X = with_columns(X, self.controls, "X").sort_index()
        check_index(X.index, "X")
        check_kinds(X, index)
        missing = X.reindex(need).isna()
        unknown = {
            name: (int(column.sum()), need[int(np.argmax(column))])
            for name, column in missing.items()
            if column.any()
        }
        X = self.columns.read(X)
        finite_values(X[X.index.isin(index)], "X")
        # only rows that are not asked for can still have these
        X = X.replace([np.inf, -np.inf], np.nan)
        X = X[X.notna().any(axis=1) & (rows.locate(X.index)[0] >= 0)]
        need = need[~need.isin(X.index)]
        nothing = pd.DataFrame(np.nan, index=need, columns=X.columns)
        for part in (X, nothing):
            if len(part):
                none = pd.DataFrame(np.nan, index=part.index, columns=self.channels)
                new = Observations.from_frame(none, part)
                rows = rows.merged(new, warns=False)
        return rows, unknown

    def _check_times(self, index: pd.Index, name: str = "the horizon") -> None:
        check_times(index, name)
        check_same_kind(index.get_level_values(-1), self.rows.like, name)

    def _check_levels(self, index: pd.Index, name: str) -> None:
        self._check_times(index, name)
        if index.nlevels != len(self.levels):
            raise ValueError(
                f"{name} must have the index levels of y in fit, "
                f"{len(self.levels)}; got {index.nlevels}. A row of a panel names its "
                "series, then its time."
            )


def _read(
    y: pd.DataFrame,
    X: pd.DataFrame | None,
    errors: dict[Hashable, Hashable],
    categories: dict[Hashable, Levels] | None,
) -> tuple[pd.Index, Observations, Columns]:
    """Return an index with a row each stamp, its rows, and the controls among X.

    Levels are those of ``categories``; None: those that X has.
    """
    if errors and X is not None and not X.index.equals(y.index):
        if y.index.has_duplicates:
            raise ValueError(
                "where stamps are measured twice, X must have the rows of y in their "
                "order; got another index. Pass both from one table."
            )
        X = X.loc[y.index]
    y, X, found = measured(y, X, errors)
    if X is None:
        columns = Columns(names=[], levels={})
        return y.index, Observations.from_frame(y, X, found), columns
    if categories is None:
        columns = Columns.of(X)
    else:
        columns = Columns(names=[*X], levels=categories)
    return y.index, Observations.from_frame(y, columns.read(X), found), columns


def in_order(
    data: pd.DataFrame | None, names: Sequence[Hashable]
) -> pd.DataFrame | None:
    """Return columns in an earlier order, unless all names are others."""
    if data is None or set(names).isdisjoint(data.columns):
        return data
    return with_columns(data, names, "data for further training")


def with_columns(
    data: Frame, names: Sequence[Hashable], name: str = "y"
) -> pd.DataFrame:
    """Return the columns that fit had, in order; a lone y by any name."""
    frame = pd.DataFrame(data)
    if name == "y" and len(names) == frame.shape[1] == 1:
        return frame.set_axis(names, axis=1)
    if len(frame.columns) != len(names) or set(frame.columns) != set(names):
        raise ValueError(
            f"{name} must have the columns that fit had, {list(names)}; got "
            f"{list(frame.columns)}. Pass the same columns."
        )
    return frame[list(names)]


def _steps_of(
    rows: Observations, index: pd.Index, freq: Freq, first: int = 0
) -> list[Step]:
    """Return the step of each series, from the series ``first`` on."""
    if index.nlevels == 1:  # it may know its frequency
        return [default_step(index, freq)] if first == 0 else []
    parts = np.split(rows.ticks, rows.bounds[1:-1])[first:]
    longest = max(parts, key=len, default=rows.ticks)
    # fewer than three stamps have no step; series often share theirs
    parts = [longest if len(ticks) < 3 else ticks for ticks in parts]
    distinct = {x.tobytes(): stamps_of(x, rows.like) for x in parts}
    known = {key: default_step(stamps, freq) for key, stamps in distinct.items()}
    return [known[x.tobytes()] for x in parts]
