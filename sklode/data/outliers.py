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

from sklode.data.observations import Observations
from sklode.data.ticks import series_of

__all__ = ["without_outliers"]

_FACTOR = 1e4
"""How many times farther from the median than any other value an outlier is."""

_SHARE = 0.01
"""No more than this share of a series' values, but one at least, are outliers."""

_FEWEST = 8
"""Fewer values do not tell which of them are out of line."""

_ROUNDING = 1e-9
"""Deviations from the median of less than this part of it are no spread."""


def without_outliers(y: pd.DataFrame, seen: Observations | None = None) -> pd.DataFrame:
    """Return y with NaN where a value is an outlier in its own series.

    Parameters
    ----------
    y : DataFrame
        One series, or more under a MultiIndex (instance levels..., time).
    seen : Observations, optional
        Earlier rows of some of these series, which show what is usual.

    Warns
    -----
    UserWarning
        Naming the first outlier.
    """
    if not len(y):
        return y
    series, keys = series_of(y.index)
    values = y.to_numpy(dtype=np.float64, na_value=np.nan)
    is_outlier = np.zeros(values.shape, dtype=bool)
    before = {} if seen is None else {key: k for k, key in enumerate(seen.keys)}
    order = np.argsort(series, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(series))[:-1])
    for key, rows in zip(keys, parts, strict=True):
        part = values[rows]
        if seen is not None and key in before:
            k = before[key]
            part = np.concatenate([seen.values[slice(*seen.bounds[k : k + 2])], part])
        for channel in range(values.shape[1]):
            is_outlier[rows, channel] = _outliers(part[:, channel])[-len(rows) :]
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


def _outliers(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which values of one channel of one series are outliers, (row,)."""
    result = np.zeros(len(values), dtype=bool)
    known = np.flatnonzero(~np.isnan(values))
    n = len(known)
    if n < _FEWEST:
        return result
    half = values[known] / 2  # the distance of two large numbers is then one
    median = np.partition(half, n // 2)[n // 2]
    distance = np.abs(half - median)
    n_most = max(int(_SHARE * n), 1)
    last = n - 1 - n_most
    farthest = np.sort(np.partition(distance, last)[last:])
    usual, beyond = farthest[:-1], farthest[1:]
    is_gap = (beyond / _FACTOR > usual) & (usual > _ROUNDING * np.abs(median))
    if is_gap.any():  # all that is farther than the first gap
        result[known] = distance >= beyond[np.argmax(is_gap)]
    return result
