"""From pandas to observations: times, values and masks.

A missing value is NaN at this border and False in the mask behind it; zero is an
observation.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sklode.data.index_checks import check_same_kind
from sklode.data.tables import check_dtypes
from sklode.data.ticks import clock_of, lone_gap, series_of, ticks_between, ticks_of

__all__ = [
    "Observations",
    "check_controls",
    "check_values",
    "controls_at",
    "gaps_of",
    "median_gap",
]

Array = NDArray[np.floating]


@dataclass(frozen=True)
class Observations:
    """One or more series, end to end; every row has at least one observed value.

    Attributes
    ----------
    ticks : ndarray of shape (row,), int64
        Time stamps as whole ticks of the index: ns of datetimes and timedeltas,
        ordinals of periods, the integers themselves.
    values : ndarray of shape (row, channel), float64
        NaN where missing.
    controls : ndarray of shape (row, control), float64, or None
        Exogenous values at the same stamps.
    bounds : ndarray of shape (series + 1,), int64
        Series k holds the rows ``bounds[k]`` to ``bounds[k + 1]``.
    keys : tuple of tuple
        The instance levels of each series' index; ``((),)`` for a single series.
    clock : str
        Kind of the index, see `sklode.data.ticks.clock_of`.
    """

    ticks: NDArray[np.int64]
    values: Array
    controls: Array | None
    bounds: NDArray[np.int64]
    keys: tuple[tuple[Hashable, ...], ...]
    clock: str

    @classmethod
    def from_frame(cls, y: pd.DataFrame, X: pd.DataFrame | None) -> Observations:
        """Read series from ``y``, whose last index level is time.

        Rows without any observed value are dropped.

        Parameters
        ----------
        y : DataFrame
            One series, or more under a MultiIndex (instance levels..., time).
        X : DataFrame, optional
            Controls, with a row at every row of ``y``.

        Raises
        ------
        ValueError
            If a value is infinite, a control is missing, or a series has no observed
            value at all.
        """
        if not len(y):
            raise ValueError("y must hold at least one row; got none. Pass a series.")
        check_values(y)
        series, keys = series_of(y.index)
        values = y.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
        controls = None if X is None else controls_at(X, y.index)
        ticks = ticks_of(y.index.get_level_values(-1))
        kept = np.flatnonzero(~np.isnan(values).all(axis=1))
        order = kept[np.lexsort((ticks[kept], series[kept]))]
        counts = np.bincount(series[order], minlength=len(keys))
        if not counts.all():
            which = keys[int(np.argmin(counts))]
            name = f" of series {which}" if which else ""
            raise ValueError(
                "y must hold at least one observed value in every series; got "
                f"{int((series == np.argmin(counts)).sum())} rows{name} that are all "
                "missing. Drop that series or give it a value."
            )
        bounds = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return cls(
            ticks[order],
            values[order],
            None if controls is None else controls[order],
            bounds,
            keys,
            clock_of(y.index.get_level_values(-1)),
        )

    def check_channels(self, names: Sequence[Hashable]) -> None:
        """Check that every channel was observed at all.

        Raises
        ------
        ValueError
            Naming the first column without an observed value.
        """
        empty = np.isnan(self.values).all(axis=0)
        if empty.any():
            raise ValueError(
                "y must hold at least one observed value in every column; got none in "
                f"column {names[int(np.argmax(empty))]!r}. Drop that column."
            )

    def locate(self, index: pd.Index) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the series of each row of an index, and its ticks.

        The series is -1 where it is not among these.
        """
        series, keys = series_of(index)
        numbers = {key: k for k, key in enumerate(self.keys)}
        number = np.array([numbers.get(key, -1) for key in keys], dtype=np.int64)
        return number[series], ticks_of(index.get_level_values(-1))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of rows of each series."""
        return np.diff(self.bounds)

    def until(self, cut: NDArray[np.int64]) -> Observations:
        """Return the rows of each series before the row ``cut`` says, (series,).

        Series of which nothing is left are left out.
        """
        if np.array_equal(cut, self.bounds[1:]):
            return self
        kept = np.arange(len(self.ticks)) < np.repeat(cut, self.lengths)
        lengths = cut - self.bounds[:-1]
        keys = tuple(k for k, n in zip(self.keys, lengths, strict=True) if n)
        return replace(
            self,
            ticks=self.ticks[kept],
            values=self.values[kept],
            controls=None if self.controls is None else self.controls[kept],
            bounds=np.append(0, np.cumsum(lengths[lengths > 0])),
            keys=keys,
        )

    def merged(self, new: Observations) -> Observations:
        """Return these series with the rows of ``new``, matched by key and stamp.

        Late rows take their place in time, and what ``new`` observed at a stamp that
        was there before replaces it. Series that are only in ``new`` come last.
        """
        keys = tuple(dict.fromkeys([*self.keys, *new.keys]))
        numbers = {key: k for k, key in enumerate(keys)}
        series = np.concatenate(
            [
                np.repeat([numbers[key] for key in source.keys], source.lengths)
                for source in (self, new)
            ]
        )
        ticks = np.concatenate([self.ticks, new.ticks])
        values = np.concatenate([self.values, new.values])
        controls = None
        if self.controls is not None and new.controls is not None:
            controls = np.concatenate([self.controls, new.controls])
        is_new = np.arange(len(ticks)) >= len(self.ticks)
        order = np.lexsort((is_new, ticks, series))
        again = (np.diff(series[order]) == 0) & (np.diff(ticks[order]) == 0)
        before, after = order[:-1][again], order[1:][again]
        values[after] = np.where(np.isnan(values[after]), values[before], values[after])
        kept = order[np.append(~again, True)]
        counts = np.bincount(series[kept], minlength=len(keys))
        return replace(
            self,
            ticks=ticks[kept],
            values=values[kept],
            controls=None if controls is None else controls[kept],
            bounds=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            keys=keys,
        )


def check_values(y: pd.DataFrame, name: str = "y") -> None:
    """Check that no value is infinite.

    Raises
    ------
    ValueError
        Naming the first offending row and column.
    """
    infinite = np.isinf(y.to_numpy(dtype=np.float64, na_value=np.nan))
    if infinite.any():
        row, column = np.argwhere(infinite)[0]
        rule, remedy = "must be finite", "Replace it by a number."
        if name == "y":
            rule += " or NaN (missing)"
            remedy = "Replace it by NaN to treat it as missing."
        raise ValueError(
            f"values of {name} {rule}; got {y.iloc[row, column]} in column "
            f"{y.columns[column]!r} at row {row} ({y.index[row]}). {remedy}"
        )


def check_controls(X: pd.DataFrame | pd.Series, index: pd.Index | None = None) -> None:
    """Check that X is numeric and, where ``index`` is given, has its rows.

    Raises
    ------
    TypeError
        If a column is not numeric.
    ValueError
        If a stamp is missing, or the levels of the two indexes differ.
    """
    for name, dtype in X.to_frame().dtypes.items() if X.ndim == 1 else X.dtypes.items():
        if not pd.api.types.is_numeric_dtype(dtype):
            raise TypeError(
                f"X must be numeric, not categorical; got column {name!r} of dtype "
                f"{dtype}. Encode it first: a category one-hot, a column for each of "
                "its values, by pd.get_dummies(X, dtype=float) or scikit-learn's "
                "OneHotEncoder; numbers by X.astype(float)."
            )
    check_dtypes(pd.DataFrame(X), "X")
    if index is None:
        return
    if X.index.nlevels != index.nlevels:
        raise ValueError(
            f"X must have the index levels of y, {list(index.names)}; got "
            f"{list(X.index.names)}. Give every series its own rows, for example "
            "pd.concat({key: X for key in keys})."
        )
    check_same_kind(X.index.get_level_values(-1), index.get_level_values(-1), "X")
    absent = ~index.isin(X.index)
    if absent.any():
        raise ValueError(
            "X must have a row at every stamp of y and of the horizon; got none at "
            f"{index[int(np.argmax(absent))]}. Extend X to cover it, or ask for the "
            "stamps that X has."
        )


def controls_at(X: pd.DataFrame, index: pd.Index) -> Array:
    """Return the rows of X at ``index``.

    Raises
    ------
    ValueError
        If a stamp or a value is missing.
    """
    check_controls(X, index)
    rows = X.loc[index]
    check_values(rows, "X")
    values = rows.to_numpy(dtype=np.float64, na_value=np.nan)
    if np.isnan(values).any():
        row, column = np.argwhere(np.isnan(values))[0]
        raise ValueError(
            "X must not have missing values; got NaN in column "
            f"{X.columns[column]!r} at {index[row]}. Fill it first."
        )
    return values


def gaps_of(observations: Observations) -> NDArray[np.float64]:
    """Return the ticks from each row to the next one; 0 from one series to another."""
    gaps = ticks_between(observations.ticks[:-1], observations.ticks[1:])
    gaps[observations.bounds[1:-1] - 1] = 0.0
    return gaps


def median_gap(observations: Observations) -> float:
    """Return the median positive gap in ticks, pooled over series.

    Without any gap it is one day, or one tick where ticks are not time.
    """
    gaps = gaps_of(observations)
    gaps = gaps[gaps > 0]
    return float(np.median(gaps)) if len(gaps) else float(lone_gap(observations.clock))
