r"""What columns tell of each other at the same time: in gaps, and where one ends.

Column k is forecast at a time t at which column j was seen. What j says there is new so
far as its rows at stamps of k do not say it, for what these say k's own rows know:

.. math::
    n_j(t) = s_j(t \mid \mathrm{all\ rows\ of\ } j)
        - s_j(t \mid \mathrm{those\ at\ stamps\ of\ } k)

with s the signal, smoothed by k's hyperparameters. A multiple of it moves the signal of
k, and takes from its variance what it explains. That is exact where one covariance of
columns and one of times make up all (Alvarez, Rosasco, Lawrence, "Kernels for
Vector-Valued Functions: a Review", 2012, section 4.2). The multiple is found on rows
of k that are hidden on purpose. The noise of j at a stamp of k is a second such input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sklode.data.arrays import Array, Flags, Numbers
from sklode.data.ticks import rows_before
from sklode.structural.coupling.proof import BLOCKS, clipped, prove
from sklode.structural.filtered_column import FilteredColumn
from sklode.structural.predictive.steps import Conditioned
from sklode.structural.rows import ChannelRows, last_rows
from sklode.structural.scaling import usual_deviation

_MOST_COLUMNS = 12  # pairs of them are smoothed
# last ones of a series, that it is found on
_MOST_ROWS, _LEAST_ROWS = 1500, 60
# rows that are hidden together: a lone one, gaps, lost weeks
_LENGTHS = 1, 5, 25
_FIRST = _LENGTHS[1:2]  # that a first look hides
_LEAST_VARIANCE = 1e-12  # in units of the states
# share of hidden rows' squares that must be explained: weaker links
# of the Denver air (0.01 to 0.03) harmed as often as they helped
_LEAST_SHARE = 0.05
# a noise beyond so many deviations is an outlier, and tells no more
_NOISE = 3.0
# of the explained variance; shrunk weights
# explain more than their squares say
_SHARES = np.append(np.linspace(0, 1, 11), [1.02, 1.04, 1.07, 1.1])
_LEFT = 1e-3  # of a variance is left at least


class SameTime(NamedTuple):
    """What columns tell of each other at the same time: contemporaneous coupling."""

    weights: Array  # (column, 2, of column): of signal and noise; zero: none
    likeness: Array  # (of column, feature, feature): correlations of what is new
    share: Array  # (of column,) of the variance that they explain in theory

    @classmethod
    def none(cls, n: int) -> SameTime:
        """Return what tells nothing."""
        likeness = np.zeros((n, 2 * n, 2 * n))
        return cls(np.zeros((n, 2, n)), likeness, np.zeros(n))

    @classmethod
    def fit(cls, columns: Sequence[FilteredColumn]) -> SameTime:
        """Find, on rows hidden on purpose, what other columns tell."""
        found = cls.none(len(columns))
        if 2 <= len(columns) <= _MOST_COLUMNS:
            for k in range(len(columns)):
                proved = _proved(columns, k)
                if proved is not None:
                    found.weights[:, :, k] = proved.weights
                    found.likeness[k] = proved.likeness
                    found.share[k] = proved.share
        return found

    def conditioned(
        self, columns: Sequence[FilteredColumn], k: int, queries: ChannelRows
    ) -> Conditioned | None:
        """Return how others move column ``k``; None: they say nothing new."""
        own = columns[k]
        others = np.flatnonzero(self.weights[:, :, k].any(1)).tolist()
        new, spread = np.zeros((2, len(queries.times), len(columns), 2))
        for j in others:
            rows = columns[j].in_units(_near(columns[j].table, queries))
            new[:, j], spread[:, j] = _new(own, rows, own.table, queries)
        if not spread.any():
            return None
        weights = self.weights[:, :, k].ravel()
        size = spread.reshape(len(new), -1) * weights
        explained = self.share[k] * _variance(size, self.likeness[k])
        signal, variance = own.smoothed(own.in_units(own.table), queries)
        share = explained / np.maximum(variance, 1e-12)
        left = 1 - np.clip(share, 0.0, 1 - _LEFT)
        shift = new.reshape(len(new), -1) @ weights
        return own.conditioned(queries, shift, middle=signal, factor=np.sqrt(left))


def _variance(size: Array, likeness: Array) -> Array:
    """Return the variance that others explain, (row,).

    Of what is new w' n, with deviations s and correlations R, it is (w s)' R (w s);
    ``size`` (row, feature) is w s.
    """
    variance: Array = ((size @ likeness) * size).sum(1)
    return variance


def _near(table: ChannelRows, queries: ChannelRows) -> ChannelRows:
    """Return a lone series' rows up to so many before those of queries, and after."""
    if len(table.bounds) > 2 or not len(queries.times):
        return table
    ends = queries.times[[0, -1]]
    first, end = np.searchsorted(table.times, ends).tolist()
    near = slice(max(first - _MOST_ROWS, 0), end + _MOST_ROWS)
    return table.where(near)


def _is_known(seen: ChannelRows, rows: ChannelRows) -> Flags:
    """Return the rows that say what a column's own rows say: one to each of these."""
    found = np.full(len(rows.times), False)
    if not len(seen.times) or not len(rows.times):
        return found
    # stamps need not be the same: half a gap later is the same row
    latest = seen.times + 0.5 * min(_gap(seen), _gap(rows))
    series = seen.series
    place = rows_before(rows.bounds, rows.times, series, latest)
    is_own = place >= rows.bounds[series]
    found[place[is_own]] = True
    return found


def _gap(table: ChannelRows) -> float:
    """Return the usual gap of a table's rows."""
    gaps = np.diff(table.times)
    gaps = gaps[gaps > 0]
    return float(np.median(gaps)) if len(gaps) else 1.0


def _new(
    column: FilteredColumn, rows: ChannelRows, seen: ChannelRows, queries: ChannelRows
) -> tuple[Array, Array]:
    """Return what rows add to signal and noise beyond those ``seen``, and its spread.

    Both are (query, 2).
    ``rows`` of another column are smoothed as this column's own would be: by the same
    gaps what rows at common stamps say of a time is then the same of both columns,
    and cancels in the difference.
    """
    is_known = _is_known(seen, rows)
    if is_known.all():
        nothing = np.zeros((len(queries.times), 2))
        return nothing, nothing
    known = rows.where(is_known)
    signal, variance = column.smoothed(rows, queries)
    known_signal, known_variance = column.smoothed(known, queries)
    series = queries.series
    place = rows_before(rows.bounds, rows.times, series, queries.times)
    is_own = place >= rows.bounds[series]
    place = np.maximum(place, 0)
    is_same = is_own & (rows.times[place] == queries.times)
    is_new = is_same & ~is_known[place]
    noise, of_noise = np.zeros((2, len(queries.times)))
    # what a row's value is beyond its signal; that has the variance of
    # the noise, less what the row itself has pulled the signal to it
    noise[is_new] = rows.values[place[is_new]] - signal[is_new]
    of_noise[is_new] = column.noises(queries)[is_new] - variance[is_new]
    of_noise = np.sqrt(np.maximum(of_noise, 0.0))
    noise = np.clip(noise, -_NOISE * of_noise, _NOISE * of_noise)
    # what the variance loses is the variance
    # of where the mean goes (total variance)
    spread = np.sqrt(np.maximum(known_variance - variance, 0.0))
    moved = np.where(spread > 0, signal - known_signal, 0.0)
    new = np.stack([moved, noise], axis=1)
    return new, np.stack([spread, of_noise], axis=1)


class _Hidden(NamedTuple):
    """Rows hidden on purpose."""

    rest: Array  # (row,), of their values given the column's others
    new: Array  # (row, column, 2), what is new of others
    spread: Array
    signal: Array  # (row,), variance of the column's own signal
    noise: Array
    block: Numbers  # (row,), of time: from 0 to BLOCKS - 1
    length: Numbers  # (row,), of rows hidden together


def _hidden(
    columns: Sequence[FilteredColumn], k: int, lengths: tuple[int, ...]
) -> _Hidden | None:
    """Hide parts of a column's rows by turns, and look what others say there."""
    (own,) = last_rows([columns[k].table], _MOST_ROWS)
    if len(own.times) < _LEAST_ROWS:
        return None
    own = columns[k].in_units(own)
    found = [
        _hidden_by_turns(columns, k, own, length=length, turn=turn)
        for length in lengths
        if len(own.times) >= 8 * length
        for turn in (0, 1)
    ]
    # each field's arrays, of all lengths and turns, end to end
    fields = zip(*found, strict=True)
    return _Hidden(*(np.concatenate(arrays) for arrays in fields))


def _hidden_by_turns(
    columns: Sequence[FilteredColumn], k: int, own: ChannelRows, length: int, turn: int
) -> _Hidden:
    """Hide every other part, of so many rows, and look what others say there."""
    n = len(own.times)
    part = np.arange(n) // length
    is_hidden = part % 2 == turn
    seen, hidden = own.where(~is_hidden), own.where(is_hidden)
    queries = hidden._replace(values=np.full(len(hidden.times), np.nan))
    signal, variance = columns[k].smoothed(seen, queries)
    new, spread = np.zeros((2, len(signal), len(columns), 2))
    for j, other in enumerate(columns):
        if j != k:
            new[:, j], spread[:, j] = _look(columns[k], other, seen, queries)
    return _Hidden(
        rest=hidden.values - signal,
        new=new,
        spread=spread,
        signal=variance,
        noise=columns[k].noises(hidden),
        # rows that are hidden together are of
        # one block: that of their first row
        block=(part[is_hidden] * length * BLOCKS) // n,
        length=np.full(len(signal), length),
    )


def _look(
    column: FilteredColumn,
    other: FilteredColumn,
    seen: ChannelRows,
    queries: ChannelRows,
) -> tuple[Array, Array]:
    """Return what another column adds where rows are hidden, see `_new`."""
    rows = other.in_units(other.table)
    if len(rows.bounds) == 2:
        # own rows are the last ones: others from before them tell nothing
        first = min(seen.times[0], queries.times[0])
        rows = rows.where(rows.times >= first)
    if len(rows.times) < _LEAST_ROWS // 2:
        rows = rows.where(slice(0, 0))
    return _new(column, rows, seen, queries)


class _Proved(NamedTuple):
    """What others tell of one column, see `SameTime`."""

    weights: Array  # (column, 2)
    likeness: Array  # (feature, feature)
    share: float


def _proved(columns: Sequence[FilteredColumn], k: int) -> _Proved | None:
    """Return what others tell of column ``k``; None: nothing that is proved."""
    found = None
    # most tell nothing, which the first lengths show at less cost
    for lengths in (_FIRST, _LENGTHS):
        hidden = _hidden(columns, k, lengths)
        found = None if hidden is None else _regressed(hidden)
        if found is None:
            break
    return found


def _regressed(hidden: _Hidden) -> _Proved | None:
    """Return what others tell where rows are hidden; None: nothing that is proved."""
    n = len(hidden.rest)
    # where nothing varies rounding may leave less than nothing
    variance = hidden.signal + hidden.noise
    spread = np.sqrt(np.maximum(variance, _LEAST_VARIANCE))
    rest: Array = hidden.rest / spread
    new = hidden.new.reshape(n, -1) / spread[:, None]
    # of rows that are mostly as expected to all digits, nothing is left to tell
    if not usual_deviation(rest) > 0:
        return None
    rest = clipped(rest)
    block = hidden.block
    blocks = [block == b for b in range(BLOCKS)]
    found = prove(new, rest, blocks=blocks, others=[~mine for mine in blocks])
    if found is None:
        return None
    gains = rest**2 - (rest - found.expected) ** 2
    lengths = np.unique(hidden.length)
    by_length = [gains[hidden.length == n].sum() for n in lengths]
    # neither lone rows nor gaps may lose
    is_strong = gains.sum() > _LEAST_SHARE * (rest @ rest)
    if not (is_strong and min(by_length) > 0):
        return None
    weights = found.weights
    # correlations of what is new: its moments over their roots
    moments = new.T @ new
    root = np.sqrt(np.diag(moments))
    likeness = moments / np.maximum(np.outer(root, root), 1e-12)
    size = hidden.spread.reshape(n, -1) / spread[:, None] * weights
    explained = np.maximum(_variance(size, likeness), 0.0)
    share = _share(rest - found.expected, explained, hidden.signal / spread**2)
    return _Proved(weights.reshape(-1, 2), likeness, share)


def _share(rest: Array, explained: Array, signal: Array) -> float:
    """Return which part of the explained variance makes hidden rows most probable."""
    losses = []
    for share in _SHARES:
        left = 1 - np.minimum(share * explained, (1 - _LEFT) * signal)
        # twice minus the log likelihood of a normal of that variance
        losses.append(float((np.log(left) + rest**2 / left).sum()))
    return float(_SHARES[int(np.argmin(losses))])
