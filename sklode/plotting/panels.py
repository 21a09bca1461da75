"""The series and channels of tables: a picture has one axes for each pair."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from sklode.data.checks import check_columns, check_dtypes
from sklode.data.ticks import series_of
from sklode.plotting.time_axis import check_stamps

__all__ = ["Pair", "Panels", "as_frame"]

Pair = tuple[int, int]
"""Numbers of a series and of a channel."""


def as_frame(data: Any, name: str) -> pd.DataFrame:
    """Return a Series or DataFrame of numbers as a DataFrame.

    Raises
    ------
    TypeError
        If it is another container, or holds something else.
    ValueError
        If two columns share a name.
    """
    if isinstance(data, pd.Series):
        data = data.to_frame()
    if not isinstance(data, pd.DataFrame):
        raise TypeError(
            f"{name} must be a Series or DataFrame over its time stamps; got "
            f"{type(data).__name__}. Use pd.Series(values, index), a panel as a "
            "DataFrame with a MultiIndex (series, time)."
        )
    check_columns(data, name)
    check_dtypes(data, name)
    return data


@dataclass(frozen=True, eq=False)
class Panels:
    """What has an axes of its own.

    Attributes
    ----------
    series : tuple of tuple
        Keys; ``((),)`` of a single series.
    channels : list
        Names of columns.
    levels : list
        Names of the index' levels; the last one is time.
    times : Index
        Stamps of the kind that all must be of.
    """

    series: tuple[tuple[Hashable, ...], ...]
    channels: list[Hashable]
    levels: list[Hashable]
    times: pd.Index

    @classmethod
    def of(cls, frame: pd.DataFrame, name: str) -> Panels:
        """Read series and channels off a table.

        Raises
        ------
        TypeError, ValueError
            If its index holds no times.
        """
        check_stamps(frame.index, name)
        if not len(frame) or not frame.shape[1]:
            raise ValueError(
                f"{name} must have at least one row and one column; got the shape "
                f"{frame.shape}. Pass the values to draw."
            )
        _, keys = series_of(frame.index)
        index = frame.index
        times = index.get_level_values(-1)
        return cls(keys, list(frame.columns), list(index.names), times)

    def __len__(self) -> int:
        """Return the number of axes."""
        return len(self.series) * len(self.channels)

    def pairs(self) -> list[Pair]:
        """Return the numbers of series and channel of each axes."""
        n_series, n_channels = len(self.series), len(self.channels)
        return [(s, c) for s in range(n_series) for c in range(n_channels)]

    def curves(self, frame: pd.DataFrame, name: str) -> dict[Pair, pd.Series]:
        """Return the known values of each axes over their times, increasing.

        Parameters
        ----------
        frame : DataFrame
            With series and channels of these panels.
        name : str
            What a message calls it.

        Raises
        ------
        TypeError, ValueError
            If stamps, series or channels are others.
        """
        found = {}
        place = self._channels_of(list(frame.columns), name)
        for s, rows in self._rows(frame.index, name).items():
            times = frame.index.get_level_values(-1)[rows]
            for c, column in enumerate(place):
                values = frame.iloc[rows, column].to_numpy(dtype=float, na_value=np.nan)
                known = np.isfinite(values)
                curve = pd.Series(values[known], times[known])
                found[s, c] = curve.sort_index(kind="stable")
        return found

    def paths(self, samples: pd.DataFrame, name: str) -> dict[Pair, pd.DataFrame]:
        """Return the known parts of paths, as columns over their times, increasing.

        Parameters
        ----------
        samples : DataFrame
            With index (sample, *row).
        name : str
            What a message calls it.

        Raises
        ------
        TypeError, ValueError
            If stamps, series or channels are others.
        """
        place = self._channels_of(list(samples.columns), name)
        wide = samples.unstack(level=0)
        n = wide.shape[1] // samples.shape[1]
        values = wide.to_numpy(dtype=float, na_value=np.nan)
        values = np.where(np.isfinite(values), values, np.nan)
        values = values.reshape(len(wide), samples.shape[1], n)
        found = {}
        for s, rows in self._rows(wide.index, name).items():
            times = wide.index.get_level_values(-1)[rows]
            for c, column in enumerate(place):
                table = pd.DataFrame(values[rows, column], times)
                found[s, c] = table.dropna(how="all").sort_index(kind="stable")
        return found

    def bands(self, interval: Any, name: str) -> dict[Pair, dict[float, pd.DataFrame]]:
        """Return the lower and upper bounds of each axes, by coverage, widest first.

        Raises
        ------
        TypeError, ValueError
            If it is not what ``predict_interval`` returns, or of others.
        """
        _check_interval(interval, name)
        columns = interval.columns
        sides = {}
        for side in ("lower", "upper"):
            chosen = columns.get_level_values(-1) == side
            part = interval.loc[:, chosen].droplevel(-1, axis=1)
            for coverage in part.columns.unique(level=-1):
                one = part.loc[:, part.columns.get_level_values(-1) == coverage]
                curves = self.curves(one.droplevel(-1, axis=1), name)
                sides[side, float(coverage)] = curves
        coverages = sorted({coverage for _, coverage in sides}, reverse=True)
        found: dict[Pair, dict[float, pd.DataFrame]] = {}
        for coverage in coverages:
            lower, upper = (sides[side, coverage] for side in ("lower", "upper"))
            for pair in lower:
                both = {"lower": lower[pair], "upper": upper[pair]}
                table = pd.DataFrame(both).dropna()
                found.setdefault(pair, {})[coverage] = table
        return found

    def _rows(self, index: pd.Index, name: str) -> dict[int, Any]:
        """Return the rows of each series that an index holds."""
        if index.nlevels != len(self.levels):
            raise ValueError(
                f"{name} must have the index levels of y, {self.levels}; got "
                f"{list(index.names)}. Draw what was made from the same y."
            )
        check_stamps(index, name, self.times)
        codes, keys = series_of(index)
        number = {key: s for s, key in enumerate(self.series)}
        unknown = [key for key in keys if key not in number]
        if unknown and len(index):
            raise ValueError(
                f"series of {name} must be series of y; got {_text(unknown[0])}, which "
                f"is none of the {len(self.series)} of y. Draw {name} of y's series "
                "only."
            )
        return {number[key]: np.flatnonzero(codes == k) for k, key in enumerate(keys)}

    def _channels_of(self, columns: list[Hashable], name: str) -> list[int]:
        """Return the place of each channel in other columns."""
        if len(columns) == len(self.channels) == 1:  # a Series may have no name
            return [0]
        if set(columns) != set(self.channels) or len(columns) != len(self.channels):
            raise ValueError(
                f"{name} must have the channels of y, {self.channels}; got {columns}. "
                "Select the same columns of both."
            )
        return [columns.index(channel) for channel in self.channels]

    @property
    def is_nameless(self) -> bool:
        """Whether the only channel is that of a Series without a name."""
        return self.channels in ([0], [None])

    def title(self, s: int) -> str:
        """Return what an axes of a series is headed by; "" where there is but one."""
        return _text(self.series[s])


def _check_interval(interval: Any, name: str) -> None:
    got = f"a {type(interval).__name__}"
    if isinstance(interval, pd.DataFrame):
        columns = interval.columns
        if columns.nlevels >= 3 and _are_pairs(columns):
            return
        got += f" with the columns {list(interval.columns)[:4]}"
    raise TypeError(
        f"{name} must be what predict_interval returns, a DataFrame with the columns "
        f"(channel, coverage, lower or upper); got {got}. Pass "
        "forecaster.predict_interval(fh, coverage=0.9)."
    )


def _are_pairs(columns: pd.MultiIndex) -> bool:
    """Return whether each channel has both bounds of each coverage, a number."""
    ends, bounds = columns.get_level_values(-1), columns.droplevel(-1)
    lower, upper = (set(bounds[ends == side]) for side in ("lower", "upper"))
    is_numeric = all(isinstance(c, Real) for c in columns.get_level_values(-2))
    whole = len(columns) == len(lower) + len(upper)
    return is_numeric and whole and bool(lower) and lower == upper


def _text(key: tuple[Hashable, ...]) -> str:
    return ", ".join(str(part) for part in key)
