"""Where stamps lie among the rows of their series."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["rows_before"]


def rows_before(
    bounds: NDArray[np.int64],
    known: NDArray[Any],
    series: NDArray[np.int64],
    asked: NDArray[Any],
) -> NDArray[np.int64]:
    """Return the row of the last stamp at or before each one that is asked.

    Parameters
    ----------
    bounds : ndarray of shape (series + 1,)
        Series k has the rows ``bounds[k]`` to ``bounds[k + 1]``.
    known : ndarray of shape (row,)
        The stamps of the rows, increasing within each series.
    series : ndarray of shape (stamp,)
        Numbers of the series of those that are asked.
    asked : ndarray of shape (stamp,)
        Stamps of the same kind.

    Returns
    -------
    ndarray of shape (stamp,)
        A row of the series before where a stamp comes before all of its own, and -1
        where there is none.
    """
    n_rows = len(known)
    of_row = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    owner = np.concatenate([of_row, series])
    order = np.lexsort((np.concatenate([known, asked]), owner))  # stable: rows first
    row = np.empty(len(order), dtype=np.int64)
    row[order] = np.cumsum(order < n_rows) - 1
    return row[n_rows:]
