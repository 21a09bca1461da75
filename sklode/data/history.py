"""What a forecaster remembers of its series, and how it reads an index."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from sklode.data.arrays import Array, Flags, Frame, Key, Levels, Numbers
from sklode.data.categories import ControlColumns
from sklode.data.checks import (
    check_index,
    check_kinds,
    check_last,
    check_same_kind,
    check_times,
    finite_values,
)
from sklode.data.measurements import error_columns, measured
from sklode.data.observations import Observations
from sklode.data.remedies import spelt
from sklode.data.sensors import cleaned
from sklode.data.steps import Freq, Step, default_step, future_stamps
from sklode.data.ticks import series_of, shown, stamps_of, ticks_of

Unknown: TypeAlias = dict[Hashable, tuple[int, Hashable]]
"""Columns of X that are not known at all rows: at how many not, and the first."""


class Places(NamedTuple):
    """Rows of an index, in any order, by series and time."""

    index: pd.Index
    series: Numbers  # (row,): its number in the history
    ticks: Numbers  # (row,)

    def where(self, kept: Flags) -> Places:
        """Return some of them, (row,)."""
        return Places(
            index=self.index[kept],
            series=self.series[kept],
            ticks=self.ticks[kept],
        )


@dataclass(frozen=True)
class QueryRows:
    """Rows to forecast, see `Places`, and what is known of X."""

    index: pd.Index
    series: Numbers
    ticks: Numbers
    known: Observations
    """The history, with all rows of X that were given or are queried."""
    unknown: Unknown


@dataclass(frozen=True, eq=False)
class History:
    """Series as a forecaster remembers them; a model sees ``observations``."""

    given: Observations  # all rows of y and X, observed or not
    steps: list[Step]  # of each series, see `default_step`
    levels: list[Hashable]  # names of the index' levels, time last
    channels: list[Hashable]  # names of the columns of y
    controls: list[Hashable]  # and of X; empty without X
    left_out: Flags | None = None
    """What `cleaned` leaves out, (row, channel); None where nothing ever is."""
    errors: dict[Hashable, Hashable] = field(default_factory=dict)
    """Columns of X with errors of measurement, by channel; no controls."""
    categories: dict[Hashable, Levels] = field(default_factory=dict)
    """Levels of those of X's columns that hold categories."""
    imputations: Array | None = None
    """X with values in place of what is NaN, (row, control)."""
    input_deviations: Array | None = None
    """How uncertain y is by that, (row, channel)."""
    waiting: Observations | None = None
    """Rows of X of a panel's series of which no y was seen; None: there are none."""

    @cached_property
    def rows(self) -> Observations:
        """All rows, as a model reads them."""
        rows = self.given
        if self.imputations is not None:
            rows = replace(rows, controls=self.imputations)
        if self.input_deviations is not None:
            # variances of independent errors add up
            rows = replace(rows, errors=np.hypot(rows.errors, self.input_deviations))
        if self.left_out is not None and self.left_out.any():
            values = np.where(self.left_out, np.nan, rows.values)
            rows = replace(rows, values=values)
        return rows

    @cached_property
    def observations(self) -> Observations:
        """Rows with an observed value."""
        return self.rows.observed()

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

        ``error`` names the column of X,
        or of each channel one, that holds its errors;
        ``categories`` are levels in place of those that X has.
        """
        channels = list(y.columns) if channels is None else channels
        errors = error_columns(error, channels)
        y = y.set_axis(channels, axis=1)
        index, given, columns = _read(y, X, errors=errors, categories=categories)
        given, waiting = _without_waiting(given)
        steps = _step_of_each(given, index, freq)
        left_out = None
        if clean:
            given, left_out = cleaned(
                given,
                channels=channels,
                judged=range(len(given.keys)),
                left_out=np.zeros(given.values.shape, dtype=bool),
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
            waiting=waiting,
        )

    def extended(
        self,
        y: pd.DataFrame,
        X: pd.DataFrame | None,
        freq: Freq,
    ) -> History:
        """Return the history with more rows or series, of a step ``freq``."""
        had_X = bool(self.controls or self.errors)
        if had_X != (X is not None):
            had, got = ("no X", "X") if X is not None else ("X", "no X")
            raise ValueError(
                f"update takes X where fit did; fit had {had}, "
                f"update got {got}. Pass the same columns to both."
            )
        y = with_columns(y, self.channels)
        if X is not None:
            # two channels may share a column of errors, which X has once
            of_errors = dict.fromkeys(self.errors.values())
            X = with_columns(X, [*self.controls, *of_errors], name="X")
        self._check_levels(y.index, "the rows of an update")
        index, new, _ = _read(y, X, errors=self.errors, categories=self.categories)
        rows, n_known = self.given, len(self.steps)
        if self.waiting is not None:
            rows = rows.merged(self.waiting, warns=False)
        rows = rows.merged(new, is_measured=bool(self.errors))
        rows, waiting = _without_waiting(rows)
        _check_new_keys(rows.keys[n_known:], known=rows.keys[:n_known])
        steps = self.steps + _step_of_each(rows, index, freq, first=n_known)
        left_out = None
        if self.left_out is not None:
            left_out = np.zeros(rows.values.shape, dtype=bool)
            # all rows of the history are among those that were merged
            row = rows.at_or_before(self.given.series, self.given.ticks)
            left_out[row] = self.left_out
            number = {key: k for k, key in enumerate(rows.keys)}
            rows, left_out = cleaned(
                rows,
                channels=self.channels,
                judged=[number[key] for key in new.keys if key in number],
                left_out=left_out,
                n_seen=n_known,
            )
        # what X may be is of the rows before: a model finds it anew
        return replace(
            self,
            given=rows,
            steps=steps,
            left_out=left_out,
            imputations=None,
            input_deviations=None,
            waiting=waiting,
        )

    def check_all_seen(self) -> None:
        """Check that every series has an observed value."""
        if self.waiting is not None:
            self.given.merged(self.waiting, warns=False).check_observed()

    def with_series(self, index: pd.Index | None, X: Frame | None) -> History:
        """Return it with the series of an index, or of X, of which no y was seen.

        Their rows are those of X, or where there are none, the first one asked.
        """
        n_levels = len(self.levels)
        if n_levels == 1:
            return self
        if index is not None:
            self._check_levels(index, "the horizon")
        found = self.waiting
        if found is not None and not np.isfinite(found.controls).any():
            # without X nothing is known of them but that they have not begun
            lasts = found.bounds[found.series + 1] - 1
            found = found.where(np.arange(len(found.ticks)) == lasts)
        X = None if X is None else pd.DataFrame(X)
        if X is not None and X.index.nlevels == n_levels:
            check_index(X.index, name="X")
            columns = with_columns(
                X.drop(columns=[*self.errors.values()], errors="ignore"),
                self.controls,
                name="X",
            )
            found = self._met(found, columns)
        if index is not None:
            found = self._met(found, pd.DataFrame(np.nan, index, self.controls))
        if found is None:
            return self
        _check_new_keys(found.keys, known=self.given.keys)
        rows = self.given.merged(found, warns=False)
        longest = self.steps[int(np.argmax(self.given.lengths))]
        n_new = len(rows.keys) - len(self.steps)
        new = rows.where(rows.series >= len(self.steps))

        def longer(table: Array | None, more: Array) -> Array | None:
            return None if table is None else np.concatenate([table, more])

        nothing, left_out = np.zeros(new.values.shape), self.left_out
        if left_out is not None:
            left_out = np.concatenate([left_out, nothing.astype(bool)])
        return replace(
            self,
            given=rows,
            steps=self.steps + [longest] * n_new,
            left_out=left_out,
            imputations=longer(self.imputations, new.controls),
            input_deviations=longer(self.input_deviations, nothing),
            waiting=None,
        )

    def _met(self, known: Observations | None, X: pd.DataFrame) -> Observations | None:
        """Return the rows of X of series that are not in the history, with those known.

        Of series that X has no value of, the first row.
        """
        keys = set(self.given.keys)
        series, found = series_of(X.index)
        is_new = np.array([key not in keys for key in found])[series]
        X = X[is_new]
        if not len(X):
            return known
        check_same_kind(X.index.get_level_values(-1), self.given.like, "X")
        y = pd.DataFrame(np.nan, index=X.index, columns=self.channels)
        new = Observations.from_frame(y, self.columns.read(X))
        if not np.isfinite(new.controls).any():
            is_first = np.arange(len(new.ticks)) == new.bounds[new.series]
            new = new.where(is_first)
        return new if known is None else known.merged(new, warns=False)

    @property
    def columns(self) -> ControlColumns:
        """Columns of X, as users know them."""
        return ControlColumns(names=self.controls, levels=self.categories)

    @property
    def unknown(self) -> Unknown:
        """Columns of X that are not known at all rows of the history."""
        missing = np.isnan(self.given.controls)
        found: Unknown = {}
        # the numbers of a category are NaN together:
        # its first one tells of all
        columns = self.columns
        for name, (start, n) in zip(columns.names, columns.blocks, strict=True):
            # a category of one level,
            # which is always that one, has no numbers
            if n == 0:
                continue
            is_missing = missing[:, start]
            if is_missing.any():
                first = self.given.named(int(np.argmax(is_missing)))
                found[name] = int(is_missing.sum()), first
        return found

    @property
    def last(self) -> pd.Index:
        """Last stamp of each series, observed or not; of one without y the panel's."""
        rows = self.rows
        ends, is_seen = rows.ticks[rows.bounds[1:] - 1], self.is_seen
        ends = np.where(is_seen, ends, ends[is_seen].max())
        return stamps_of(ends, rows.like)

    @cached_property
    def is_seen(self) -> Flags:
        """Whether a series has an observed value, (series,)."""
        seen = {*self.observations.keys}
        return np.array([key in seen for key in self.rows.keys])

    @property
    def is_irregular(self) -> bool:
        """Whether steps from the first row of a series miss others of it."""
        rows = self.rows
        parts = np.split(rows.ticks, rows.bounds[1:-1])
        for ticks, step in zip(parts, self.steps, strict=True):
            first = stamps_of(ticks[:1], rows.like)
            counts = pd.RangeIndex(len(ticks))
            _, reached = future_stamps(counts, first, [step])
            if not np.array_equal(reached, ticks):
                return True
        return False

    def cutoff(self, block_end: pd.Index) -> pd.Index:
        """Return the latest last stamp, given that of the block read now."""
        last = self.last
        place = int(np.argmax(ticks_of(last)))
        latest = last[[place]]
        if isinstance(block_end, pd.DatetimeIndex) and block_end.tz is not None:
            block_end = block_end.tz_convert(latest.tz)
        # the block's own end may know its frequency, which ticks do not
        is_same = ticks_of(block_end) == ticks_of(latest)
        return block_end if is_same else latest

    def rows_ahead(self, steps: pd.Index) -> Places:
        """Return the rows that steps ask for, from each series' own end."""
        stamps, ticks = future_stamps(steps, self.last, self.steps)
        return self._of_each(stamps, ticks)

    def rows_at(self, stamps: pd.Index) -> Places:
        """Return the rows of every series at the same stamps."""
        self._check_times(stamps)
        n_series = len(self.steps)
        each = stamps
        if n_series > 1:
            each = stamps.append([stamps] * (n_series - 1))
        ticks = np.tile(ticks_of(stamps), n_series)
        return self._of_each(each, ticks)

    def rows_of(self, index: pd.Index) -> Places:
        """Return the rows of an index, all of known series, which it names."""
        self._check_levels(index, "the horizon")
        series, ticks = self.rows.locate(index)
        is_new = series < 0
        if is_new.any():
            row = index[int(np.argmax(is_new))]
            seen = ", ".join(map(shown, self.rows.keys[:3]))
            raise ValueError(
                "forecasts are for the series that fit has seen; "
                f"got {shown(row[:-1])}, seen were {seen}... "
                "Fit on a panel that holds it, "
                "or update with its observations."
            )
        return Places(index=index, series=series, ticks=ticks)

    def _of_each(self, stamps: pd.Index, ticks: Numbers) -> Places:
        """Return rows at stamps, equally many of each series in turn."""
        n_series = len(self.steps)
        n_each = len(stamps) // n_series
        return Places(
            index=self.keyed(stamps, n_each),
            series=np.repeat(np.arange(n_series), n_each),
            ticks=ticks,
        )

    def frame(self) -> pd.DataFrame:
        """Return the rows with an observed value."""
        rows = self.observations
        index = self.keyed(stamps_of(rows.ticks, rows.like), rows.lengths)
        return pd.DataFrame(rows.values, index=index, columns=self.channels)

    def keyed(self, stamps: pd.Index, n_each: int | Numbers) -> pd.Index:
        """Return rows at stamps, of which each series in turn has so many."""
        if len(self.levels) == 1:
            return stamps.rename(self.levels[0])
        # keys hold a label of each level;
        # here each level holds one of each key
        levels = [
            pd.Index(labels, tupleize_cols=False).repeat(n_each)
            for labels in zip(*self.rows.keys, strict=True)
        ]
        return pd.MultiIndex.from_arrays([*levels, stamps], names=self.levels)

    def queries(self, places: Places, X: Frame | None) -> QueryRows:
        """Read rows that are asked for, and X, which may lack known stamps."""
        known, unknown = self._known(places, self._controls_of(X))
        return QueryRows(
            index=places.index,
            series=places.series,
            ticks=places.ticks,
            known=known,
            unknown=unknown,
        )

    def _controls_of(self, X: Frame | None) -> Frame | None:
        """Return X without errors of measurement, which are of the past alone."""
        if X is not None and self.errors:
            of_errors = [*self.errors.values()]
            X = pd.DataFrame(X).drop(columns=of_errors, errors="ignore")
            X = X if X.shape[1] else None
        if X is not None and not self.controls:
            raise ValueError(
                "X was not given to fit; "
                f"got X with the columns {list(pd.DataFrame(X).columns)}. "
                "Fit with X, or leave X out."
            )
        return X

    def _known(self, places: Places, X: Frame | None) -> tuple[Observations, Unknown]:
        """Return all rows of X, and what is not known of those at ``places``."""
        rows, index = self.given, places.index
        if not self.controls:
            return rows, {}
        if X is None:
            # no rows, of the index' kind and levels,
            # so that all of them are unknown
            X = pd.DataFrame(columns=self.controls, index=index[:0], dtype=float)
        X = with_columns(X, self.controls, name="X").sort_index()
        check_index(X.index, name="X")
        check_kinds(X, index, asked=index)
        is_known = rows.holds(places.series, places.ticks)
        is_known &= self.is_seen[places.series]
        needed = index[~is_known].unique()
        unknown = _unknown_of(X, needed)
        X = self.columns.read(X)
        finite_values(X[X.index.isin(index)], name="X")
        # only rows that are not asked for can still have these
        X = X.replace([np.inf, -np.inf], np.nan)
        series, _ = rows.locate(X.index)
        X = X[X.notna().any(axis=1) & (series >= 0)]
        # rows that X lacks are asked all the same: nothing is known of them
        lacking = needed[~needed.isin(X.index)]
        nothing = pd.DataFrame(np.nan, index=lacking, columns=X.columns)
        for part in (X, nothing):
            if len(part):
                y = pd.DataFrame(np.nan, index=part.index, columns=self.channels)
                new = Observations.from_frame(y, part)
                rows = rows.merged(new, warns=False)
        return rows, unknown

    def _check_times(self, index: pd.Index, name: str = "the horizon") -> None:
        check_times(index, name)
        check_same_kind(index.get_level_values(-1), self.rows.like, name)

    def _check_levels(self, index: pd.Index, name: str) -> None:
        n_levels = len(self.levels)
        if index.nlevels != n_levels:
            remedy = "Take one series of a panel, y.xs(key), or its index"
            if n_levels > 1:
                key = self.rows.keys[0] if n_levels > 2 else self.rows.keys[0][0]
                remedy = "Name the series before the times: "
                remedy += f"pd.concat({{{key!r}: pd.DataFrame(y)}}), or of an index "
                remedy += f"pd.MultiIndex.from_product([[{key!r}], index])"
            raise ValueError(
                f"{name} must have the index levels of y in fit, "
                f"{n_levels}; "
                f"got {index.nlevels}. "
                f"{remedy}."
            )
        check_last(index, name)
        self._check_times(index, name)


def _without_waiting(
    given: Observations,
) -> tuple[Observations, Observations | None]:
    """Return the series of which y was seen, and the others; None: there are none."""
    seen = given.observed().keys
    if len(seen) == len(given.keys) or not seen:
        given.check_observed()
        return given, None
    is_seen = np.array([key in {*seen} for key in given.keys])[given.series]
    return given.where(is_seen), given.where(~is_seen)


def _check_new_keys(new: Sequence[Key], known: Sequence[Key]) -> None:
    """Check that no new key is spelt as a known one, such as "2" beside 2.

    Where only capitals or spaces around differ, both may be meant: a warning says so.
    """
    if not new:
        return
    spelt = {tuple(map(str, key)): key for key in known}
    loosely = {_without_capitals(key): key for key in known}
    for key in new:
        alike = spelt.get(tuple(map(str, key)))
        if alike is not None:
            raise ValueError(
                "a new series must not have the key "
                "of a known one in another type; "
                f"got {shown(key)}, known is {shown(alike)}. "
                "Convert the keys, or choose others."
            )
        alike = loosely.get(_without_capitals(key))
        if alike is not None:
            warnings.warn(
                "keys that differ in capitals or spaces are different series; got "
                f"{shown(key)}, which is new, known is {shown(alike)}. If both are "
                "one, rename it in the index.",
                UserWarning,
                stacklevel=2,
            )


def _without_capitals(key: Key) -> tuple[str, ...]:
    """Return a key without capitals, and spaces around."""
    return tuple(str(level).strip().casefold() for level in key)


def _unknown_of(X: pd.DataFrame, needed: pd.Index) -> Unknown:
    """Return which columns are not known at all rows that are needed."""
    # rows that X lacks are NaN after this
    missing = X.reindex(needed).isna()
    return {
        name: (int(column.sum()), needed[int(np.argmax(column))])
        for name, column in missing.items()
        if column.any()
    }


def _read(
    y: pd.DataFrame,
    X: pd.DataFrame | None,
    errors: dict[Hashable, Hashable],
    categories: dict[Hashable, Levels] | None,
) -> tuple[pd.Index, Observations, ControlColumns]:
    """Return an index with a row each stamp, its rows, and X's controls.

    Levels are those of ``categories``; None: those that X has.
    """
    if errors and X is not None and not X.index.equals(y.index):
        if y.index.has_duplicates:
            raise ValueError(
                "where stamps are measured twice, "
                "X must have the rows of y in their order; "
                "got another index. "
                "Pass both from one table."
            )
        X = X.loc[y.index]
    y, X, found = measured(y, X, errors)
    if X is None:
        columns = ControlColumns(names=[], levels={})
        return y.index, Observations.from_frame(y, errors=found), columns
    if categories is None:
        columns = ControlColumns.of(X)
    else:
        columns = ControlColumns(names=[*X], levels=categories)
    rows = Observations.from_frame(y, columns.read(X), found)
    return y.index, rows, columns


def in_order(
    data: pd.DataFrame | None, names: Sequence[Hashable], name: str
) -> pd.DataFrame | None:
    """Return columns in an earlier order, unless all names are others."""
    if data is None or set(names).isdisjoint(data.columns):
        return data
    return with_columns(data, names, name)


def with_columns(
    data: Frame, names: Sequence[Hashable], name: str = "y"
) -> pd.DataFrame:
    """Return the columns that fit had, in order; a lone y by any name."""
    frame = pd.DataFrame(data)
    if name == "y" and len(names) == frame.shape[1] == 1:
        return frame.set_axis(names, axis=1)
    wanted, given = list(names), list(frame.columns)
    more = [column for column in given if column not in wanted]
    fewer = [column for column in wanted if column not in given]
    if not more and not fewer:
        return frame[wanted]
    table = f"{name} = pd.DataFrame({name})"
    alike = _alike(more, fewer)
    alone = f"[{wanted}]" if len(given) > len(wanted) else ""
    if not fewer:
        remedy = f"Leave out {more}: {name} = {name}[{wanted}]"
    elif len(alike) == len(fewer):
        remedy = f"Name them as in fit: {table}.rename(columns={alike}){alone}"
    elif len(fewer) == len(more) == len(wanted):
        remedy = (
            f"If they are the same, name them so: {table}.set_axis({wanted}, axis=1)"
        )
    elif len(fewer) == len(more) == 1:
        remedy = (
            "If they are the same, name it so: "
            f"{table}.rename(columns={{{more[0]!r}: {fewer[0]!r}}}); where it is not "
            f"known, it is NaN: {table}.reindex(columns={wanted})"
        )
    elif more and fewer == wanted:
        # without one column all would be NaN
        own = dict(zip(more, wanted, strict=False))
        remedy = f"Name those that are the same: {table}.rename(columns={own}){alone}"
    else:
        remedy = f"It lacks {fewer}; where these are not known, they are NaN: "
        remedy += f"{table}.reindex(columns={wanted})"
    raise ValueError(
        f"{name} must have the columns that fit or pretrain had, {wanted}; "
        f"got {given}. {remedy}."
    )


def _alike(given: list[Hashable], wanted: list[Hashable]) -> dict[Hashable, Hashable]:
    """Return which names are others but for capitals, spaces and marks."""
    by_spelling = {spelt(name): name for name in wanted}
    pairs = {name: by_spelling.get(spelt(name)) for name in given}
    found = {name: other for name, other in pairs.items() if other is not None}
    # where two are spelt alike neither is known to be it
    return found if len({*found.values()}) == len(found) else {}


def _step_of_each(
    rows: Observations, index: pd.Index, freq: Freq, first: int = 0
) -> list[Step]:
    """Return the step of each series, from the series ``first`` on."""
    if index.nlevels == 1:
        # a lone series has its step from the start;
        # its index may know a frequency
        return [default_step(index, freq)] if first == 0 else []
    parts = np.split(rows.ticks, rows.bounds[1:-1])[first:]
    longest = max(parts, key=len, default=rows.ticks)
    # fewer than three stamps have no step
    parts = [longest if len(ticks) < 3 else ticks for ticks in parts]
    # series often share their stamps, of which a step is inferred once
    found: dict[bytes, Step] = {}
    for ticks in parts:
        key = ticks.tobytes()
        if key not in found:
            found[key] = default_step(stamps_of(ticks, rows.like), freq)
    return [found[ticks.tobytes()] for ticks in parts]
