"""Lone values so far from all others that nothing of the others would be left.

A single 1e8 among values of order one makes their scale 1e7: to the network, which
computes in single precision, the others are one and the same number. Such a value is
taken for missing, with a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sklode.data.observations import Observations

__all__ = ["without_outliers"]

_FACTOR = 1e4
"""How many times farther from the median than any other value an outlier is."""


def without_outliers(
    rows: Observations, channels: list[Hashable], seen: Observations | None = None
) -> Observations:
    """Return rows with NaN where a value is an outlier in its own series.

    Rows ``seen`` before, of some of these series, show what is usual.
    """
    is_outlier = np.zeros(rows.values.shape, dtype=bool)
    earlier = {}
    if seen is not None:
        parts = np.split(seen.values, seen.bounds[1:-1])
        earlier = dict(zip(seen.keys, parts, strict=True))
    for k, key in enumerate(rows.keys):
        part = slice(rows.bounds[k], rows.bounds[k + 1])
        before = earlier.get(key, rows.values[:0])
        whole = np.concatenate([before, rows.values[part]])
        for channel in range(len(channels)):
            is_outlier[part, channel] = _outliers(whole[:, channel])[len(before) :]
    if not is_outlier.any():
        return rows
    row, channel = np.argwhere(is_outlier)[0]
    warnings.warn(
        f"y has {int(is_outlier.sum())} value(s) more than {_FACTOR:g} times farther "
        "from the median than all others of their series, next to which these could "
        f"not be told apart; the first is {rows.values[row, channel]:g} in column "
        f"{channels[channel]!r} at "
        f"{rows.named(rows.ticks[row], rows.keys[rows.series[row]])}. Taken for "
        "missing. If such values are true, transform y first, for example by a "
        "logarithm.",
        UserWarning,
        stacklevel=2,
    )
    return replace(rows, values=np.where(is_outlier, np.nan, rows.values))


def _outliers(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which values of one channel of one series are outliers, (row,)."""
    result = np.zeros(len(values), dtype=bool)
    known = np.flatnonzero(~np.isnan(values))
    n = len(known)
    if n < 8:  # too few to tell which of them are out of line
        return result
    half = values[known] / 2  # the distance of two large numbers is then one
    median = np.sort(half)[n // 2]
    distance = np.abs(half - median)
    n_most = max(n // 100, 1)
    farthest = np.sort(distance)[n - 1 - n_most :]
    usual, beyond = farthest[:-1], farthest[1:]
    # deviations of less than a billionth are no spread
    is_gap = (beyond / _FACTOR > usual) & (usual > 1e-9 * np.abs(median))
    if is_gap.any():  # all that is farther than the first gap
        result[known] = distance >= beyond[np.argmax(is_gap)]
    return result
