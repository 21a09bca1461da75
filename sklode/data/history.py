"""What a forecaster remembers of its series, and how it reads an index."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from sklode.data.arrays import Flags, Numbers
from sklode.data.checks import (
    check_controls,
    check_index,
    check_same_kind,
    check_times,
    finite_values,
)
from sklode.data.measurements import error_columns, measured
from sklode.data.observations import Observations
from sklode.data.sensors import cleaned
from sklode.data.ticks import (
    default_step,
    future_stamps,
    rows_before,
    stamps_of,
    ticks_of,
)


@dataclass(frozen=True)
class Asked:
    """Rows that forecasts are asked for, in any order."""

    index: pd.Index
    series: Numbers  # (row,): its number in the history
    ticks: Numbers  # (row,)
    known: Observations  # the history with all rows of X that were given


@dataclass(eq=False)
class History:
    """Series as a forecaster remembers them; a model sees ``observations``."""

    given: Observations  # all rows of y and X, observed or not
    steps: list[Any]  # of each series, see `default_step`
    levels: list[Hashable]  # names of the index' levels, time last
    channels: list[Hashable]  # names of the columns of y
    controls: list[Hashable]  # and of X; empty without X
    left_out: Flags | None = None  # (row, channel), by `cleaned`; None: it never is
    errors: dict[Hashable, Hashable] = field(default_factory=dict)
    """Columns of X that hold channels' errors of measurement; they are no controls."""

    def __post_init__(self) -> None:
        self.rows = self.given
        if self.left_out is not None and self.left_out.any():
            values = np.where(self.left_out, np.nan, self.given.values)
            self.rows = replace(self.given, values=values)
        self.observations = self.rows.observed()

    @classmethod
    def of(
        cls,
        y: pd.DataFrame,
        X: pd.DataFrame | None,
        freq: Any = None,
        channels: list[Hashable] | None = None,
        clean: bool = True,
        error: Any = None,
    ) -> History:
        """Read series; ``channels`` are names in place of y's own.

        ``error`` names the column of X, or of each channel one, that holds its errors.
        """
        channels = list(y.columns) if channels is None else channels
        errors = error_columns(error, channels)
        index, given, X = _read(y.set_axis(channels, axis=1), X, errors)
        left_out = None
        steps = _steps_of(given, index, freq)
        if clean:
            left_out = np.zeros(given.values.shape, dtype=bool)
            every = range(len(given.keys))
            given, left_out = cleaned(given, channels, every, left_out, 0)
        controls = [] if X is None else list(X.columns)
        levels = list(y.index.names)
        return cls(given, steps, levels, channels, controls, left_out, errors)

    def extended(self, y: pd.DataFrame, X: pd.DataFrame | None, freq: Any) -> History:
        """Return the history with more rows or series, of a step ``freq``."""
        if (X is None) != (not (self.controls or self.errors)):
            had, got = ("no X", "X") if X is not None else ("X", "no X")
            raise ValueError(
                f"update takes X where fit did; fit had {had}, update got {got}. Pass "
                "the same columns to both."
            )
        y = with_columns(y, self.channels)
        if X is not None:
            X = with_columns(
                X, [*self.controls, *dict.fromkeys(self.errors.values())], "X"
            )
        self._check_levels(y.index, "the rows of an update")
        (index, new, _), old = _read(y, X, self.errors), self.given
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
        steps, left_out = self.steps + _steps_of(rows, index, freq, n_known), None
        if self.left_out is not None:
            left_out = np.zeros(rows.values.shape, dtype=bool)
            row = rows_before(rows.bounds, rows.ticks, old.series, old.ticks)
            left_out[row] = self.left_out
            number = {key: k for k, key in enumerate(rows.keys)}
            judged = [number[key] for key in new.keys]
            rows, left_out = cleaned(rows, self.channels, judged, left_out, n_known)
        return replace(self, given=rows, steps=steps, left_out=left_out)

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
            first, places = stamps_of(ticks[:1], rows.like), pd.RangeIndex(len(ticks))
            reached = future_stamps(places, first, [step])
            if not np.array_equal(ticks_of(reached), ticks):
                return True
        return False

    def cutoff(self, block_end: pd.Index) -> pd.Index:
        """Return the latest last stamp, given that of the block read now."""
        latest = self.last[[int(np.argmax(ticks_of(self.last)))]]
        if isinstance(block_end, pd.DatetimeIndex) and block_end.tz is not None:
            block_end = block_end.tz_convert(latest.tz)
        return block_end if ticks_of(block_end) == ticks_of(latest) else latest

    def rows_ahead(self, steps: pd.Index) -> pd.Index:
        """Return the rows that steps ask for, from each series' own end."""
        return self._keyed(future_stamps(steps, self.last, self.steps), len(steps))

    def rows_at(self, stamps: pd.Index) -> pd.Index:
        """Return the rows of every series at the same stamps."""
        n_series = len(self.steps)
        each = stamps if n_series == 1 else stamps.append([stamps] * (n_series - 1))
        return self._keyed(each, len(stamps))

    def frame(self) -> pd.DataFrame:
        """Return the rows with an observed value."""
        rows = self.observations
        index = self._keyed(stamps_of(rows.ticks, rows.like), rows.lengths)
        return pd.DataFrame(rows.values, index, self.channels)

    def _keyed(self, stamps: pd.Index, n_each: Any) -> pd.Index:
        if len(self.levels) == 1:
            return stamps.rename(self.levels[0])
        levels = [
            pd.Index(labels, tupleize_cols=False).repeat(n_each)
            for labels in zip(*self.rows.keys, strict=True)
        ]
        return pd.MultiIndex.from_arrays([*levels, stamps], names=self.levels)

    def asked(self, index: pd.Index, X: Any) -> Asked:
        """Read the rows of an index, and X, which may lack known stamps."""
        self._check_levels(index, "the horizon")
        series, ticks = self.rows.locate(index)
        if (series < 0).any():
            row = index[int(np.argmax(series < 0))]
            raise ValueError(
                "forecasts are for the series that fit has seen; got "
                f"{row[:-1]}, seen were {list(self.rows.keys)[:3]}... Fit on a panel "
                "that holds it, or update with its observations."
            )
        return Asked(index, series, ticks, self._known(index, X))

    def _known(self, index: pd.Index, X: Any) -> Observations:
        """Return all rows of X; those at ``index`` are checked."""
        rows = self.rows
        if X is not None and self.errors:  # they are known of the past alone
            X = pd.DataFrame(X).drop(columns=[*self.errors.values()], errors="ignore")
            X = X if X.shape[1] else None
        if not self.controls:
            if X is not None:
                raise ValueError(
                    "X was not given to fit; got X with the columns "
                    f"{list(pd.DataFrame(X).columns)}. Fit with X, or leave X out."
                )
            return rows
        is_seen = rows.holds(index)
        if X is None:
            if not is_seen.all():
                raise ValueError(
                    "X was given to fit, so the forecast needs X at every stamp of the "
                    "horizon that is not one of y's; got None. Pass X with a row at "
                    f"{index[int(np.argmin(is_seen))]}."
                )
            return rows
        X = with_columns(X, self.controls, "X").sort_index()
        check_index(X.index, "X")
        check_controls(X, index[~is_seen])
        finite_values(X.loc[index[index.isin(X.index)]], "X")
        is_finite = np.isfinite(X.to_numpy(np.float64, na_value=np.nan)).all(axis=1)
        X = X[is_finite & (rows.locate(X.index)[0] >= 0)]
        if not len(X):
            return rows
        none = pd.DataFrame(np.nan, X.index, self.channels)
        return rows.merged(Observations.from_frame(none, X), warns=False)

    def _check_levels(self, index: pd.Index, name: str) -> None:
        check_times(index, name)
        check_same_kind(index.get_level_values(-1), self.rows.like, name)
        if index.nlevels != len(self.levels):
            raise ValueError(
                f"{name} must have the index levels of y in fit, "
                f"{len(self.levels)}; got {index.nlevels}. A row of a panel names its "
                "series, then its time."
            )


def _read(
    y: pd.DataFrame, X: pd.DataFrame | None, errors: dict[Hashable, Hashable]
) -> tuple[pd.Index, Observations, pd.DataFrame | None]:
    """Return an index with a row each stamp, its rows, and the controls among X."""
    if errors and X is not None and not X.index.equals(y.index):
        if y.index.has_duplicates:
            raise ValueError(
                "where stamps are measured twice, X must have the rows of y in their "
                "order; got another index. Pass both from one table."
            )
        X = X.loc[y.index]
    y, X, found = measured(y, X, errors)
    return y.index, Observations.from_frame(y, X, found), X


def in_order(data: pd.DataFrame | None, names: Sequence[Hashable]) -> Any:
    """Return columns in an earlier order, unless all names are others."""
    if data is None or set(names).isdisjoint(data.columns):
        return data
    return with_columns(data, names, "data for further training")


def with_columns(data: Any, names: Sequence[Hashable], name: str = "y") -> pd.DataFrame:
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


def _steps_of(rows: Observations, index: pd.Index, freq: Any, first: int = 0) -> Any:
    if index.nlevels == 1:  # it may know its frequency
        return [default_step(index, freq)] if first == 0 else []
    parts = np.split(rows.ticks, rows.bounds[1:-1])[first:]
    longest = max(parts, key=len, default=rows.ticks)
    # fewer than three stamps have no step; series often share theirs
    parts = [longest if len(ticks) < 3 else ticks for ticks in parts]
    distinct = {x.tobytes(): stamps_of(x, rows.like) for x in parts}
    known = {key: default_step(stamps, freq) for key, stamps in distinct.items()}
    return [known[x.tobytes()] for x in parts]
