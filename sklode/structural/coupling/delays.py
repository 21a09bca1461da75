"""Where columns of y may tell of each other later, after a delay.

A column is thought of as a smooth function of another one some time before. How much
such a function would explain is asked at many delays; those that stand out are
candidates of `effects`, which are judged there.
"""

from __future__ import annotations

import numpy as np

from sklode.data.arrays import Array
from sklode.structural.effects.lags import N_DELAYS, earlier
from sklode.structural.rows import ChannelRows, last_rows

MOST_COLUMNS = 8
"""Of so many columns each pair is looked at; of more none."""

_MOST_ROWS, _LEAST_ROWS = 3000, 100  # last ones, or of some series
# of the earlier column's values, each with a mean of its own
_N_BINS = 12
_LEAST_SHARE = 0.1  # of the squares must be explained
_MOST_PEAKS = 2  # delays of a pair that are judged
_ONE_WAY = 2.0  # times as much as the other way round must be explained


def likely_delays(
    tables: list[ChannelRows], gaps: list[float]
) -> list[list[tuple[int, Array]]]:
    """Return, of each column, the delays of others that may explain it.

    ``gaps`` are the columns' usual ones; all are in units of time. Of two that follow
    each other none does: what swings to and fro would have to be forecast step by step.
    """
    found: list[list[tuple[int, Array]]] = [[] for _ in tables]
    if not 2 <= len(tables) <= MOST_COLUMNS:
        return found
    few = last_rows(tables, _MOST_ROWS)
    numbers = [k for k, table in enumerate(few) if len(table.times) >= _LEAST_ROWS]
    explained = {
        (k, j): _standing_out(few[k], few[j], spacing=gaps[j] / 2)
        for k in numbers
        for j in numbers
        if j != k
    }
    for (k, j), (share, delays) in explained.items():
        other_way, _ = explained[j, k]
        if share > _ONE_WAY * other_way:
            found[k].append((j, delays))
    return found


def _standing_out(
    own: ChannelRows, other: ChannelRows, spacing: float
) -> tuple[float, Array]:
    """Return the share of squares that another column explains most, and delays.

    These are where that stands out; zero and none where nowhere.
    """
    # a delay more at both ends, to tell peaks by
    delays = spacing * np.arange(N_DELAYS + 2)
    shares = _explained(own, other, delays)
    inner = np.arange(2, len(delays) - 1)
    before, at, after = shares[inner - 1], shares[inner], shares[inner + 1]
    is_peak = (at > before) & (at >= after) & (at > max(shares[0], _LEAST_SHARE))
    peaks = inner[is_peak]
    if not len(peaks):
        return 0.0, delays[:0]
    peaks = peaks[np.argsort(-shares[peaks])[:_MOST_PEAKS]]
    # and the vertex of a parabola through each peak and its neighbours:
    # of values a, b, c at -1, 0, 1 that is (a - c) / (2 (a - 2 b + c))
    before, at, after = shares[peaks - 1], shares[peaks], shares[peaks + 1]
    vertex = 0.5 * (before - after) / (before - 2 * at + after)
    vertices = delays[peaks] + spacing * vertex
    return float(shares[peaks[0]]), np.concatenate([delays[peaks], vertices])


def _explained(own: ChannelRows, other: ChannelRows, delays: Array) -> Array:
    """Return the share of squares that another column explains after each delay."""
    shares = np.zeros(len(delays))
    values, series = own.values - own.values.mean(), own.series
    total = values @ values
    if not total > 0:
        return shares
    inner = np.arange(1, _N_BINS) / _N_BINS
    edges = np.unique(np.quantile(other.values, inner))
    start = other.starts[series]  # infinite where it has no value
    for number, delay in enumerate(delays):
        asked = own.times - delay
        is_known = asked >= start
        before = earlier(
            bounds=other.bounds,
            times=other.times,
            column=other.values,
            series=series,
            asked=asked,
        )
        bins = np.searchsorted(edges, before[is_known])
        counts = np.bincount(bins, minlength=len(edges) + 1)
        sums = np.bincount(bins, values[is_known], len(edges) + 1)
        # a bin's mean explains the squared sum of the bin over its number
        squares = sums**2 / np.maximum(counts, 1)
        shares[number] = squares.sum() / total
    return shares
