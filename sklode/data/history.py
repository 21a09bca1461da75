"""What a fitted forecaster remembers of its series, and how it reads an index.

The history holds all rows of y, with X, how long a relative step of each series is,
and the names of levels and columns.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sklode.data.checks import (
    check_index,
    check_same_kind,
    check_times,
    controls_at,
)
from sklode.data.observations import Observations
from sklode.data.ticks import (
    default_step,
    future_stamps,
    stamps_of,
    ticks_between,
    ticks_of,
)

__all__ = ["GivenControls", "History", "as_channels", "in_order"]

Array = NDArray[np.floating]

_SHORT = 3
"""A series of fewer stamps has no step of its own."""


class GivenControls(NamedTuple):
    """Rows of X that belong to series of the history, in original units."""

    series: NDArray[np.int64]  # (row,): numbers of the series
    ticks: NDArray[np.int64]  # (row,)
    values: Array  # (row, control), finite


@dataclass(eq=False)
class History:
    """Series as a forecaster remembers them.

    Parameters
    ----------
    rows : Observations
        All rows of y and X, also those where nothing was observed.
    steps : list of {int, offset, Timedelta}
        Length of one relative step of each series.
    levels : list
        Names of the index' levels; the last one is time.
    channels, controls : list
        Names of the columns of y, and of X (empty without X).
    of_array : bool
        Whether y was an array, whose rows are its stamps.

    Attributes
    ----------
    observations : Observations
        The rows with an observed value: what a model is trained on and forecasts from.
    """

    rows: Observations
    steps: list[Any]
    levels: list[Hashable]
    channels: list[Hashable]
    controls: list[Hashable]
    of_array: bool = False

    def __post_init__(self) -> None:
        self.observations = self.rows.observed()

    @classmethod
    def of(
        cls,
        y: pd.DataFrame,
        X: pd.DataFrame | None,
        freq: str | pd.DateOffset | pd.Timedelta | None = None,
        channels: list[Hashable] | None = None,
        of_array: bool = False,
    ) -> History:
        """Read series, for `fit` and `pretrain` alike.

        Parameters
        ----------
        y : DataFrame
            One series, or more under a MultiIndex (instance levels..., time).
        X : DataFrame or None
            Controls, with a row at every row of ``y``.
        freq : optional
            Of a relative step, see `default_step`.
        channels : list, optional
            Names of y's columns where they are others.
        of_array : bool, default=False

        Raises
        ------
        ValueError, TypeError
            If a value or control cannot be used, see `Observations.from_frame`; if a
            series has no observed value; if ``freq`` does not fit the stamps.
        """
        rows = Observations.from_frame(y, X)
        return cls(
            rows,
            _steps_of(rows, range(len(rows.keys)), y.index, freq),
            list(y.index.names),
            list(y.columns) if channels is None else channels,
            [] if X is None else list(X.columns),
            of_array,
        )

    def extended(
        self,
        y: pd.DataFrame,
        X: pd.DataFrame | None,
        freq: str | pd.DateOffset | pd.Timedelta | None,
    ) -> History:
        """Return the history with more rows of its series, or with more series.

        Parameters
        ----------
        y : DataFrame
            Rows after the last one or in the past; what they observed at a stamp seen
            before replaces what was observed there.
        X : DataFrame, optional
            Controls at ``y``'s rows; needed where the history has any.
        freq : optional
            Of the steps of new series; others keep theirs.

        Raises
        ------
        ValueError
            If columns or levels are not those of the history, or a new series has no
            observed value.
        TypeError
            If the stamps are of another kind.
        """
        if (X is None) != (not self.controls):
            had, got = ("no X", "X") if X is not None else ("X", "no X")
            raise ValueError(
                f"update takes X where fit did; fit had {had}, update got {got}. Pass "
                "the same columns to both."
            )
        y = as_channels(y, self.channels)
        if X is not None:
            X = _with_columns(X, self.controls, "X")
        self._check_levels(y.index, "the rows of an update")
        new = Observations.from_frame(y, X, self.rows)
        spelt = {tuple(map(str, key)): key for key in self.rows.keys}
        for key in new.keys:
            known = spelt.get(tuple(map(str, key)), key)
            if known not in new.keys and key not in self.rows.keys:
                raise ValueError(
                    "a new series must not have the key of a known one in another "
                    f"type; got {key}, known is {known}. Convert the keys, or choose "
                    "others."
                )
        rows = self.rows.merged(new)
        added = range(len(self.steps), len(rows.keys))
        steps = self.steps + _steps_of(rows, added, y.index, freq)
        return replace(self, rows=rows, steps=steps)

    @property
    def last(self) -> pd.Index:
        """Last stamp of each series, observed or not."""
        return stamps_of(self.rows.ticks[self.rows.bounds[1:] - 1], self.rows.like)

    def cutoff(self, block_end: pd.Index) -> pd.Index:
        """Return the latest last stamp, given the one of the block read just now."""
        latest = self.last[[int(np.argmax(ticks_of(self.last)))]]
        if isinstance(block_end, pd.DatetimeIndex) and block_end.tz is not None:
            block_end = block_end.tz_convert(latest.tz)
        return block_end if ticks_of(block_end) == ticks_of(latest) else latest

    def rows_ahead(self, steps: pd.Index) -> pd.Index:
        """Return the rows that relative steps ask for, from each series' own end."""
        return self._rows(future_stamps(steps, self.last, self.steps), len(steps))

    def rows_at(self, stamps: pd.Index) -> pd.Index:
        """Return the rows of every series at the same stamps."""
        n_series = len(self.steps)
        each = stamps if n_series == 1 else stamps.append([stamps] * (n_series - 1))
        return self._rows(each, len(stamps))

    def _rows(self, stamps: pd.Index, n_each: Any) -> pd.Index:
        """Return stamps under the keys of their series, ``n_each`` of each."""
        if len(self.levels) == 1:
            return stamps.rename(self.levels[0])
        keys = self.rows.keys
        levels = [
            pd.Index([key[k] for key in keys], tupleize_cols=False).repeat(n_each)
            for k in range(len(self.levels) - 1)
        ]
        return pd.MultiIndex.from_arrays([*levels, stamps], names=self.levels)

    def index(self) -> pd.Index:
        """Return the rows that have an observed value, by series and time."""
        observations = self.observations
        stamps = stamps_of(observations.ticks, observations.like)
        return self._rows(stamps, observations.lengths)

    def frame(self) -> pd.DataFrame:
        """Return the observed rows as they are remembered."""
        return pd.DataFrame(self.observations.values, self.index(), self.channels)

    def rows_of(self, values: Array) -> pd.Index:
        """Return the rows that an array without stamps speaks of: the next steps.

        Parameters
        ----------
        values : ndarray of shape (row,) or (row, channel)

        Raises
        ------
        ValueError
            If the shape is not that of a series with these channels, or the values are
            those of the history, whose own rows may be meant.
        """
        n_channels = len(self.channels)
        fits = values.ndim == 1 and n_channels == 1
        fits = fits or (values.ndim == 2 and values.shape[1] == n_channels)
        if len(self.levels) > 1 or not fits:
            raise ValueError(
                "an array must be one series with the channels that fit had, "
                f"{list(self.channels)}; got the shape {values.shape}. Pass a Series "
                "or DataFrame with its stamps."
            )
        table = values.reshape(len(values), -1)
        observed = table[~np.isnan(table).all(axis=1)]
        if np.array_equal(observed, self.observations.values, equal_nan=True):
            raise ValueError(
                "an array stands for the steps after the last stamp; got the very "
                f"values that were seen, {len(values)} rows. If their own stamps are "
                "meant, pass a Series or DataFrame with them, or call "
                "predict_residuals() without y."
            )
        return self.rows_ahead(pd.RangeIndex(1, len(values) + 1))

    def is_known(self, index: pd.Index) -> NDArray[np.bool_]:
        """Return at which rows X was given to fit or an update."""
        return self.rows.holds(index)

    def located(self, index: pd.Index) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the series of each row of an index, and its ticks.

        Raises
        ------
        TypeError
            If the stamps are of another kind than those of the history.
        ValueError
            If a row belongs to no series of the history.
        """
        self._check_levels(index, "the horizon")
        series, ticks = self.rows.locate(index)
        if (series < 0).any():
            row = index[int(np.argmax(series < 0))]
            raise ValueError(
                "forecasts are for the series that fit has seen; got "
                f"{row[:-1]}, seen were {list(self.rows.keys)[:3]}... Fit on a panel "
                "that holds it, or update with its observations."
            )
        return series, ticks

    def controls_for(
        self, index: pd.Index, X: pd.DataFrame | None
    ) -> GivenControls | None:
        """Return all rows of X for a forecast at ``index``.

        At stamps of the history itself X need not be given once more. Those of its
        stamps where nothing was observed come last: what is given replaces them.

        Raises
        ------
        ValueError
            If X lacks a row, a value or a column that is needed, or is not expected.
        """
        known = self.is_known(index) if self.controls else np.full(len(index), True)
        X = self._checked_controls(index, X, known)
        rows, kept = self.rows, ~self.rows.is_observed
        if rows.controls is None:
            return None
        empty = GivenControls(rows.series[kept], rows.ticks[kept], rows.controls[kept])
        if X is None:
            return empty
        given = X.to_numpy(dtype=np.float64, na_value=np.nan)
        series, ticks = rows.locate(X.index)
        usable = (series >= 0) & np.isfinite(given).all(axis=1)
        return GivenControls(
            np.concatenate([series[usable], empty.series]),
            np.concatenate([ticks[usable], empty.ticks]),
            np.concatenate([given[usable], empty.values]),
        )

    def elapsed(self, index: pd.Index) -> Array:
        """Return the ticks of a new series' stamps since its first one.

        Raises
        ------
        TypeError
            If the stamps are no index, or of another kind than those of the history.
        ValueError
            If they are none, or not increasing, or of more than one series.
        """
        remedy = "Pass the stamps of one series, for example y.index[:100]."
        if not isinstance(index, pd.Index):
            raise TypeError(
                f"index must be a pandas Index of time stamps; got {index!r}. {remedy}"
            )
        if not len(index) or index.nlevels > 1:
            raise ValueError(
                "index must hold the stamps of a new series, without keys; got "
                f"{len(index)} rows of {index.nlevels} levels. {remedy}"
            )
        check_index(index, "index")
        check_same_kind(index, self.rows.like, "index")
        ticks = ticks_of(index)
        return ticks_between(ticks[:1], ticks)

    def controls_of_new(
        self, index: pd.Index, X: pd.DataFrame | pd.Series | None
    ) -> GivenControls | None:
        """Return all rows of X for a new series at ``index``.

        Raises
        ------
        TypeError
            If X is no table.
        ValueError
            If X lacks a row, a value or a column that is needed, or is not expected.
        """
        if X is not None and not isinstance(X, pd.Series | pd.DataFrame):
            raise TypeError(
                f"X must be a DataFrame over index; got {type(X).__name__}. Use "
                "pd.DataFrame(X, index)."
            )
        given = None if X is None else pd.DataFrame(X)
        given = self._checked_controls(index, given, np.full(len(index), False))
        if given is None:
            return None
        values = controls_at(given, given.index)
        series = np.zeros(len(given), np.int64)
        return GivenControls(series, ticks_of(given.index), values)

    def _checked_controls(
        self, index: pd.Index, X: pd.DataFrame | None, known: NDArray[np.bool_]
    ) -> pd.DataFrame | None:
        """Return X with fit's columns and its rows in order, checked at ``index``."""
        if X is None and self.controls and not known.all():
            raise ValueError(
                "X was given to fit, so the forecast needs X at every stamp of the "
                "horizon that is not one of y's; got None. Pass X with a row at "
                f"{index[int(np.argmin(known))]}."
            )
        if X is None:
            return None
        if not self.controls:
            raise ValueError(
                f"X was not given to fit; got X with the columns {list(X.columns)}. "
                "Fit with X, or leave X out."
            )
        X = _with_columns(X, self.controls, "X").sort_index()
        check_index(X.index, "X")
        controls_at(X, index[~known | index.isin(X.index)])
        return X

    def _check_levels(self, index: pd.Index, name: str) -> None:
        check_times(index, name)
        check_same_kind(index.get_level_values(-1), self.rows.like, name)
        if index.nlevels != len(self.levels):
            raise ValueError(
                f"{name} must have the index levels of y in fit, "
                f"{len(self.levels)}; got {index.nlevels}. A row of a panel names its "
                "series, then its time."
            )


def as_channels(y: pd.Series | pd.DataFrame, names: list[Hashable]) -> pd.DataFrame:
    """Return the channels that fit had, in that order; a lone one by any name.

    Raises
    ------
    ValueError
        If y has others.
    """
    frame = pd.DataFrame(y)
    if len(names) == frame.shape[1] == 1:
        return frame.set_axis(names, axis=1)
    return _with_columns(frame, names, "y")


def in_order(data: pd.DataFrame | None, names: Sequence[Hashable]) -> Any:
    """Return columns in an earlier order; columns with other names stand for those.

    Raises
    ------
    ValueError
        If only some of the names are the same.
    """
    if data is None or len(names) != data.shape[1]:
        return data
    if set(names).isdisjoint(data.columns):
        return data
    return _with_columns(data, names, "data for further training")


def _with_columns(
    data: pd.DataFrame, names: Sequence[Hashable], name: str
) -> pd.DataFrame:
    """Return the columns that fit had, in that order."""
    if len(data.columns) != len(names) or set(data.columns) != set(names):
        raise ValueError(
            f"{name} must have the columns that fit had, {list(names)}; got "
            f"{list(data.columns)}. Pass the same columns."
        )
    return data[list(names)]


def _steps_of(
    rows: Observations,
    which: range,
    index: pd.Index,
    freq: str | pd.DateOffset | pd.Timedelta | None,
) -> list[Any]:
    """Return the step of each series; one of a few stamps takes the longest one's.

    Parameters
    ----------
    rows : Observations
    which : range
        Numbers of the series.
    index : Index
        That was read: of a lone series it may know its frequency.
    freq : optional
        See `default_step`.
    """
    if index.nlevels == 1:
        return [default_step(index, freq) for _ in which]
    parts = [rows.ticks[slice(*rows.bounds[k : k + 2])] for k in which]
    longest = max(parts, key=len, default=rows.ticks)
    known: dict[bytes, Any] = {}  # series often share their stamps
    steps = []
    for ticks in parts:
        ticks = longest if len(ticks) < _SHORT else ticks
        if ticks.tobytes() not in known:
            stamps = stamps_of(ticks, rows.like)
            known[ticks.tobytes()] = default_step(stamps, freq)
        steps.append(known[ticks.tobytes()])
    return steps
