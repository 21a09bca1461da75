"""What a fitted forecaster remembers of its series, and how it reads an index.

The history holds the observations themselves, where each series ends, how long a
relative step is there, and the names of levels and columns.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sklode.data.index_checks import (
    check_index,
    check_keys,
    check_same_kind,
    check_times,
)
from sklode.data.observations import Observations, check_values, controls_at
from sklode.data.outliers import without_outliers
from sklode.data.revisions import warn_of_revisions
from sklode.data.ticks import (
    default_step,
    future_stamps,
    series_of,
    stamps_of,
    ticks_between,
    ticks_of,
)

__all__ = ["GivenControls", "History", "as_channels", "in_order"]

Array = NDArray[np.floating]

_SHORT = 3
"""A series of fewer stamps has no step of its own."""


@dataclass(frozen=True)
class GivenControls:
    """Rows of X that belong to series of the history, in original units.

    Attributes
    ----------
    series : ndarray of shape (row,)
        Numbers of the series.
    ticks : ndarray of shape (row,)
        Their stamps.
    values : ndarray of shape (row, control)
        NaN-free.
    """

    series: NDArray[np.int64]
    ticks: NDArray[np.int64]
    values: Array


@dataclass(frozen=True, eq=False)
class History:
    """Series as a forecaster remembers them.

    Attributes
    ----------
    observations : Observations
        The series.
    last : Index
        Last stamp of each series, observed or not.
    steps : list of {int, offset, Timedelta}
        Length of one relative step of each series.
    levels : list
        Names of the index' levels; the last one is time.
    channels, controls : list
        Names of the columns of y, and of X (empty without X).
    unobserved : DataFrame
        Rows of X at rows of y where nothing was observed.
    of_array : bool
        Whether y was an array, whose rows are its stamps.
    """

    observations: Observations
    last: pd.Index
    steps: list[Any]
    levels: list[Hashable]
    channels: list[Hashable]
    controls: list[Hashable]
    unobserved: pd.DataFrame
    of_array: bool

    @classmethod
    def of(
        cls,
        y: pd.DataFrame,
        X: pd.DataFrame | None,
        channels: list[Hashable],
        freq: str | pd.DateOffset | pd.Timedelta | None,
        of_array: bool = False,
    ) -> History:
        """Read series, see `Observations.from_frame`; outliers are missing."""
        check_values(y)
        y = without_outliers(y)
        observations = Observations.from_frame(y, X)
        parts = _parts(y.index)
        return cls(
            observations,
            _last_of(parts),
            _steps_of(parts, freq),
            list(y.index.names),
            channels,
            [] if X is None else list(X.columns),
            pd.DataFrame() if X is None else X.loc[y.index[y.isna().all(axis=1)]],
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
            If columns or levels are not those of the history.
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
            X = with_columns(X, self.controls, "X")
        self._check_levels(y.index, "the rows of an update")
        check_values(y)
        y = without_outliers(y, self.observations)
        is_observed = y.notna().any(axis=1)
        observed = y[is_observed]
        observations, unobserved = self.observations, self.unobserved
        if X is not None:
            controls_at(X, y.index)
            unobserved = _newest(X.loc[y.index[~is_observed]], unobserved)
        update = None
        if len(observed):
            update = Observations.from_frame(observed, X)
            observations = observations.merged(update)
        parts = _parts(y.index)
        numbers = {key: k for k, key in enumerate(observations.keys)}
        empty = [key for key in parts if key not in numbers]
        if empty:
            raise ValueError(
                "a new series of an update must have an observed value; got none for "
                f"{empty[0]}. Leave it out until it has one."
            )
        new = observations.keys[len(self.observations.keys) :]
        _check_spelling(new, self.observations.keys)
        last = ticks_of(self.last).copy()
        seen = [key for key in parts if numbers[key] < len(last)]
        if seen:
            places = [numbers[key] for key in seen]
            ends = ticks_of(_last_of({key: parts[key] for key in seen}))
            last[places] = np.maximum(last[places], ends)
        ends = stamps_of(last, self.last)
        steps = self.steps
        if new:
            added = {key: parts[key] for key in new}
            theirs = stamps_of(ticks_of(_last_of(added)), self.last)  # in our zone
            ends = ends.append(theirs)
            steps = steps + _steps_of(added, freq)
        if update is not None:
            warn_of_revisions(self.observations, update, self.last)
        return replace(
            self,
            observations=observations,
            last=ends,
            steps=steps,
            unobserved=unobserved,
        )

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
        n_series = len(self.last)
        each = stamps if n_series == 1 else stamps.append([stamps] * (n_series - 1))
        return self._rows(each, len(stamps))

    def _rows(self, stamps: pd.Index, n_each: Any) -> pd.Index:
        """Return stamps under the keys of their series, ``n_each`` of each."""
        if len(self.levels) == 1:
            return stamps.rename(self.levels[0])
        keys = self.observations.keys
        levels = [
            pd.Index([key[k] for key in keys], tupleize_cols=False).repeat(n_each)
            for k in range(len(self.levels) - 1)
        ]
        return pd.MultiIndex.from_arrays([*levels, stamps], names=self.levels)

    def index(self) -> pd.Index:
        """Return the rows that have an observed value, by series and time."""
        observations = self.observations
        stamps = stamps_of(observations.ticks, self.last)
        return self._rows(stamps, observations.lengths)

    def frame(self) -> pd.DataFrame:
        """Return the observed rows as they are remembered."""
        return pd.DataFrame(self.observations.values, self.index(), self.channels)

    def rows_of(self, values: Array) -> pd.Index:
        """Return the rows that an array without stamps speaks of.

        Parameters
        ----------
        values : ndarray of shape (row,) or (row, channel)
            The history's own values speak of the history's rows; any others of the
            steps after the last stamp.

        Raises
        ------
        ValueError
            If the shape is not that of a series with these channels, or rows of the
            history's own array cannot be told apart.
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
        n_rows, observations = len(values), self.observations
        table = values.reshape(n_rows, -1)
        observed = np.flatnonzero(~np.isnan(table).all(axis=1))
        if not np.array_equal(table[observed], observations.values, equal_nan=True):
            return self.rows_ahead(pd.RangeIndex(1, n_rows + 1))
        ticks = observations.ticks[0] - observed[0] + np.arange(n_rows)
        if np.array_equal(ticks[observed], observations.ticks):
            return stamps_of(ticks, self.last)  # each row is one tick
        if len(observed) == n_rows:
            return self.index()
        raise ValueError(
            "an array with missing rows does not tell their stamps; got "
            f"{n_rows - len(observed)} of {n_rows} rows missing. Pass the Series or "
            "DataFrame that fit was given."
        )

    def is_known(self, index: pd.Index) -> NDArray[np.bool_]:
        """Return at which rows X was given to fit or an update."""
        return index.isin(self.index()) | index.isin(self.unobserved.index)

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
        series, ticks = self.observations.locate(index)
        if (series < 0).any():
            row = index[int(np.argmax(series < 0))]
            raise ValueError(
                "forecasts are for the series that fit has seen; got "
                f"{row[:-1]}, seen were {list(self.observations.keys)[:3]}... Fit on a "
                "panel that holds it, or update with its observations."
            )
        return series, ticks

    def controls_for(
        self, index: pd.Index, X: pd.DataFrame | None
    ) -> GivenControls | None:
        """Return all rows of X for a forecast at ``index``.

        At stamps of the history itself X need not be given once more.

        Raises
        ------
        ValueError
            If X lacks a row, a value or a column that is needed, or is not expected.
        """
        if not self.controls:
            if X is not None:
                raise ValueError(
                    f"X was not given to fit; got X with the columns {list(X.columns)}."
                    " Fit with X, or forecast without."
                )
            return None
        known = self.is_known(index)
        if X is None:
            if not known.all():
                raise ValueError(
                    "X was given to fit, so the forecast needs X at every stamp of the "
                    "horizon that is not one of y's; got None. Pass X with a row at "
                    f"{index[int(np.argmin(known))]}."
                )
            X = self.unobserved
        else:
            X = with_columns(X, self.controls, "X").sort_index()
            check_index(X.index, "X")
            self._check_levels(X.index, "X")
            controls_at(X, index[~known | index.isin(X.index)])
            X = _newest(X, self.unobserved)
        series, ticks = self.observations.locate(X.index)
        values = X.to_numpy(dtype=np.float64, na_value=np.nan)
        rows = (series >= 0) & np.isfinite(values).all(axis=1)
        return GivenControls(series[rows], ticks[rows], values[rows])

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
        check_same_kind(index, self.last, "index")
        ticks = ticks_of(index)
        return ticks_between(ticks[:1], ticks)

    def controls_of_new(
        self, index: pd.Index, X: pd.DataFrame | None
    ) -> GivenControls | None:
        """Return all rows of X for a new series.

        Raises
        ------
        ValueError
            If X lacks a row, a value or a column that is needed, or is not expected.
        """
        if isinstance(X, pd.Series):
            X = X.to_frame()
        if X is not None and not isinstance(X, pd.DataFrame):
            raise TypeError(
                f"X must be a DataFrame over index; got {type(X).__name__}. Use "
                "pd.DataFrame(X, index)."
            )
        if X is None and self.controls:
            raise ValueError(
                "X was given to fit, so a new series needs X as well; got None. Pass X "
                f"with the columns {self.controls} and a row at every stamp."
            )
        if X is None:
            return None
        if not self.controls:
            raise ValueError(
                f"X was not given to fit; got X with the columns {list(X.columns)}. "
                "Leave X out."
            )
        X = with_columns(X, self.controls, "X").sort_index()
        check_index(X.index, "X")
        controls_at(X, index)
        values = controls_at(X, X.index)
        return GivenControls(np.zeros(len(X), np.int64), ticks_of(X.index), values)

    def _check_levels(self, index: pd.Index, name: str) -> None:
        check_times(index, name)
        check_same_kind(index.get_level_values(-1), self.last, name)
        if index.nlevels != len(self.levels):
            raise ValueError(
                f"{name} must have the index levels of y in fit, "
                f"{len(self.levels)}; got {index.nlevels}. A row of a panel names its "
                "series, then its time."
            )
        check_keys(index, name)


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
    return with_columns(frame, names, "y")


def with_columns(data: pd.DataFrame, names: list[Hashable], name: str) -> pd.DataFrame:
    """Return the columns that fit had, in that order.

    Raises
    ------
    ValueError
        If they are others.
    """
    if len(data.columns) != len(names) or set(data.columns) != set(names):
        raise ValueError(
            f"{name} must have the columns that fit had, {list(names)}; got "
            f"{list(data.columns)}. Pass the same columns."
        )
    return data[list(names)]


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
    return with_columns(data, list(names), "data for further training")


def _check_spelling(
    new: Sequence[tuple[Hashable, ...]], known: Sequence[tuple[Hashable, ...]]
) -> None:
    """Check that no new series has a known one's key but for its type, as 1 and "1"."""
    spelt = {tuple(str(part) for part in key): key for key in known}
    for key in new:
        alike = spelt.get(tuple(str(part) for part in key))
        if alike is not None:
            raise ValueError(
                "a new series must not have the key of a known one in another type; "
                f"got {key}, known is {alike}. Convert the keys, or choose others."
            )


def _newest(new: pd.DataFrame, old: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of both; at a stamp of both, the new one."""
    others = old[~old.index.isin(new.index)]
    return pd.concat([new, others]) if len(others) else new


def _parts(index: pd.Index) -> dict[tuple[Hashable, ...], pd.Index]:
    """Return the stamps of each series, in the order of their first rows."""
    if index.nlevels == 1:
        return {(): index}
    series, keys = series_of(index)
    times = index.get_level_values(-1)
    order = np.argsort(series, kind="stable")
    bounds = np.searchsorted(series[order], np.arange(len(keys) + 1))
    times = times[order]
    return {key: times[bounds[k] : bounds[k + 1]] for k, key in enumerate(keys)}


def _last_of(parts: dict[tuple[Hashable, ...], pd.Index]) -> pd.Index:
    first, *others = (times[-1:] for times in parts.values())
    return first.append(others) if others else first


def _steps_of(
    parts: dict[tuple[Hashable, ...], pd.Index],
    freq: str | pd.DateOffset | pd.Timedelta | None,
) -> list[Any]:
    """Return the step of each series; one of a few stamps takes the longest one's."""
    longest = max(parts.values(), key=len)
    known: dict[bytes, Any] = {}  # series often share their stamps
    steps = []
    for times in parts.values():
        times = longest if len(times) < _SHORT else times
        stamps = ticks_of(times).tobytes()
        if stamps not in known:
            known[stamps] = default_step(times, freq)
        steps.append(known[stamps])
    return steps
