"""Lone values so far from all others that nothing of the others would be left.

A single 1e8 among values of order one makes their scale 1e7: to the network, which
computes in single precision, the others are one and the same number. Such a value is
taken for missing, with a warning.
"""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sklode.stamps import series_of

__all__ = ["without_outliers"]

_FACTOR = 1e4
"""How many times farther from the median than any other value an outlier is."""

_SHARE = 0.01
"""No more than this share of a series' values, but one at least, are outliers."""

_FEWEST = 8
"""Fewer values do not tell which of them are out of line."""

_ROUNDING = 1e-9
"""Deviations from the median of less than this part of it are no spread."""


def without_outliers(
    y: pd.DataFrame, before: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Return y with NaN where a value is an outlier in its own series.

    Parameters
    ----------
    y : DataFrame
        One series, or more under a MultiIndex (instance levels..., time).
    before : DataFrame, optional
        Earlier rows of the same series, which show what is usual.

    Warns
    -----
    UserWarning
        Naming the first outlier.
    """
    rows = y if before is None else pd.concat([before, y])
    series, _ = series_of(rows.index)
    values = rows.to_numpy(dtype=np.float64, na_value=np.nan)
    columns = [_outliers(column, series) for column in values.T]
    is_outlier = np.stack(columns, axis=1)[len(rows) - len(y) :]
    if not is_outlier.any():
        return y
    row, column = np.argwhere(is_outlier)[0]
    warnings.warn(
        f"y has {int(is_outlier.sum())} value(s) more than {_FACTOR:g} times farther "
        "from the median than all others of their series, next to which these could "
        f"not be told apart; the first is {y.iloc[row, column]:g} in column "
        f"{y.columns[column]!r} at row {row} ({y.index[row]}). Taken for missing. If "
        "such values are true, transform y first, for example by a logarithm.",
        UserWarning,
        stacklevel=2,
    )
    return y.mask(is_outlier)


def _outliers(
    values: NDArray[np.float64], series: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which values of one channel are outliers, (row,)."""
    result = np.zeros(len(values), dtype=bool)
    known = np.flatnonzero(~np.isnan(values))
    if len(known) < _FEWEST:
        return result
    values, series = values[known], series[known]
    order = np.lexsort((values, series))
    count = np.bincount(series)
    first = np.cumsum(count) - count
    # halved, so that the distance of two large numbers is one
    half = values / 2
    median = half[order[np.minimum(first + count // 2, len(order) - 1)]][series]
    distance = np.abs(half - median)
    order = np.lexsort((distance, series))
    distance, series, median = distance[order], series[order], np.abs(median[order])
    rank = np.arange(len(order)) - first[series]  # by distance, within the series
    most = np.maximum(_SHARE * count, 1)[series]
    last_usual = np.append(distance[1:] / _FACTOR > distance[:-1], False)
    last_usual &= distance > _ROUNDING * median
    last_usual &= (count[series] >= _FEWEST) & (rank < count[series] - 1)
    last_usual &= count[series] - 1 - rank <= most
    # all that is farther than the first such gap
    begins = np.full(len(count), len(order))
    np.minimum.at(begins, series[last_usual], rank[last_usual] + 1)
    result[known[order]] = rank >= begins[series]
    return result
