"""What columns tell of each other's next rows: a shift after the last ones.

Channels are filtered alone. What all innovations tell about one's residuals is found by
ridge regression, and stays out where it is not proved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sklode.data.arrays import Array, Flags, Numbers
from sklode.structural.candidates import Candidate
from sklode.structural.coupling.proof import BLOCKS, clipped, prove
from sklode.structural.filter.system import States
from sklode.structural.filtered_column import MEMORIES, FilteredColumn
from sklode.structural.predictive.steps import Conditioned
from sklode.structural.rows import ChannelRows, last_rows

_MOST_COLUMNS = 8
_MOST_ROWS, _LEAST_ROWS = 3000, 100  # last ones, that it is found on
_BURNT = 30  # first rows of a lone series: its states are still vague
_NEAR = 7  # rows, whose mean residual the regression is of
# rows after an origin; the last ones tell whether the shift fades
_LEADS = np.array([*range(_NEAR), 8, 10, 12, 15, 19, 24, 29])
# rows later than so many usual gaps, each, do not count
_REACH = 2.0
# rates that are tried, by usual gap
_FADING = 0.0, 1 / 128, 1 / 32, 1 / 8, 1.0


class NextRows(NamedTuple):
    """What is added to forecasts, in states' units of heaviest candidates."""

    weights: Array  # (column, memory, of column), of innovations; zero: none
    fading: Array  # (of column,): rate at which a shift fades

    @classmethod
    def none(cls, n_columns: int) -> NextRows:
        """Return what adds nothing."""
        shape = n_columns, len(MEMORIES), n_columns
        return cls(np.zeros(shape), np.zeros(n_columns))

    @classmethod
    def fit(cls, columns: Sequence[FilteredColumn]) -> NextRows:
        """Find what all innovations tell about each column's forecasts."""
        n = len(columns)
        found = cls.none(n)
        if not 2 <= n <= _MOST_COLUMNS:
            return found
        tables = last_rows([column.table for column in columns], _MOST_ROWS)
        stamps = _Stamps.of(tables)
        if len(stamps.times) < _LEAST_ROWS:
            return found
        pairs = zip(columns, tables, strict=True)
        ahead = [_look_ahead(column, table) for column, table in pairs]
        sums = stamps.sums([looked.innovations for looked in ahead])
        features = sums.reshape(len(sums), -1)
        usable = np.full(len(sums), True)
        if len(tables[0].bounds) == 2:
            usable[:_BURNT] = False
        for k, (table, looked) in enumerate(zip(tables, ahead, strict=True)):
            last = stamps.last_rows_of(k)
            # a row before the first one of the series is another series'
            has_row = last >= table.bounds[stamps.series]
            origins = np.flatnonzero(has_row & usable)
            rows = last[origins]
            late = stamps.times[origins] - table.times[rows]
            weights, found.fading[k] = _regressed(
                features[origins],
                is_own=np.repeat(np.arange(n) == k, len(MEMORIES)),
                residuals=looked.residuals[rows],
                gaps=looked.gaps[rows] - late[:, None],
            )
            found.weights[:, :, k] = weights.reshape(n, -1)
        return found

    def conditioned(
        self, columns: Sequence[FilteredColumn], k: int, queries: ChannelRows
    ) -> Conditioned | None:
        """Return how last innovations move column ``k`` past all ends; None: not."""
        if not self.weights[:, :, k].any():
            return None
        # next rows come after the last row of any column
        ends = np.max([column.table.ends for column in columns], axis=0)
        ends, series = np.maximum(ends, 0.0), queries.series
        sums = np.stack([column.sums_at(ends) for column in columns], axis=1)
        expected = np.einsum("qcm,cm->q", sums[series], self.weights[:, :, k])
        ahead = queries.times - ends[series]
        # it is the mean of the first rows ahead, which do not fade
        past = np.maximum(ahead - _NEAR, 0.0)
        shift = np.where(ahead > 0, expected * np.exp(-self.fading[k] * past), 0.0)
        # it moves what a column expects, and narrows nothing
        return columns[k].conditioned(queries, shift)


class _Stamps(NamedTuple):
    """All columns' stamps, sorted by series and time."""

    series: Numbers
    times: Array
    places: list[Numbers]  # of each column: where its rows are

    @classmethod
    def of(cls, tables: list[ChannelRows]) -> _Stamps:
        """Return the stamps of tables, each once."""
        pairs = np.concatenate([np.stack([t.series, t.times], axis=1) for t in tables])
        stamps, place = np.unique(pairs, axis=0, return_inverse=True)
        ends = np.cumsum([len(table.times) for table in tables])
        # numpy 2.0 gives it a column's shape
        places = np.split(place.ravel(), ends[:-1])
        return cls(stamps[:, 0].astype(np.int64), stamps[:, 1], places)

    def sums(self, innovations: list[Array]) -> Array:
        """Return decayed sums of innovations, (stamp, column, memory)."""
        sums = np.zeros((len(self.times), len(innovations), len(MEMORIES)))
        for k, own in enumerate(innovations):
            sums[self.places[k], k] = own[:, None]
        # from one series to the next nothing is left
        is_same = np.diff(self.series) == 0
        gaps = np.where(is_same, np.diff(self.times), np.inf)
        left = np.exp(-gaps[:, None] / np.array(MEMORIES))
        # what is past fades as exp(-t / memory),
        # so one step brings all of it on
        for i in range(1, len(sums)):
            sums[i] += sums[i - 1] * left[i - 1]
        return sums

    def last_rows_of(self, column: int) -> Numbers:
        """Return a column's row at each stamp or before it; -1: there is none."""
        place = self.places[column]
        last = np.full(len(self.times), -1)
        last[place] = np.arange(len(place))
        return np.maximum.accumulate(last)


class _Ahead(NamedTuple):
    """What a column's rows are beyond what was expected of them at earlier ones."""

    innovations: Array  # (row,)
    residuals: Array  # (row, lead), NaN where there is no row ahead
    gaps: Array  # (row, lead), times from the row to those ahead


def _look_ahead(column: FilteredColumn, table: ChannelRows) -> _Ahead:
    """Look ahead from each row; each series by its heaviest candidate."""
    n = len(table.times)
    innovations = np.empty(n)
    residuals, gaps = np.empty((2, n, len(_LEADS)))
    for k, mine in column.by_heaviest(table):
        candidate, own = column.usual[k], table.where(mine)
        found = _look_ahead_by(candidate, column.span, own)
        innovations[mine] = found.innovations
        residuals[mine], gaps[mine] = found.residuals, found.gaps
    return _Ahead(innovations, residuals, gaps)


def _look_ahead_by(candidate: Candidate, span: float, table: ChannelRows) -> _Ahead:
    """Look ahead from each row by one candidate."""
    model = candidate.model
    space = model.space(span)
    n, d = len(table.times), len(space.start)
    own = candidate.own(table, span)
    first = own.first(space, len(table.lengths))
    table = own.scaling.rows(table)
    states = np.empty((n, d))
    passed = model.filtered(space, table, states=first, after=states)
    later = np.arange(n)[:, None] + 1 + _LEADS
    is_there = later < table.bounds[1:][table.series][:, None]
    later = np.minimum(later, n - 1)
    gaps = table.times[later] - table.times[:, None]
    gaps = np.where(is_there, gaps, np.inf)
    # leads increase: a row that has the first one has some
    origins = is_there[:, 0]
    asked = later[origins].ravel()
    # a lead that is not there stands at the
    # one before it, as times must not fall
    times = np.where(is_there, table.times[later], -np.inf)[origins]
    times = np.maximum.accumulate(times, axis=1)
    # each origin is a series of its own,
    # which begins with the states there
    queries = table.where(asked)._replace(
        times=times.ravel(),
        values=np.full(len(asked), np.nan),
        bounds=np.arange(0, len(asked) + 1, len(_LEADS)),
    )
    # expectations need no covariances
    known = States.of(np.zeros((origins.sum(), d, d)))._replace(means=states[origins])
    expected = model.filtered(
        space,
        queries,
        parts=space.whole,
        states=known,
        since=times[:, 0] - table.times[origins],
    ).signal
    residuals = np.full(later.shape, np.nan)
    errors = table.values[asked] - expected[:, 0]
    residuals[origins] = errors.reshape(times.shape)
    residuals[gaps > _REACH * (_LEADS + 2)] = np.nan
    return _Ahead(passed.innovations, residuals, gaps)


def _regressed(
    features: Array, is_own: Flags, residuals: Array, gaps: Array
) -> tuple[Array, float]:
    """Return weights, (feature,), and the rate of fading.

    Others must tell more than the column's own innovations, which may show that its
    model does not fit: that is no news of others.
    """
    nothing = np.zeros(features.shape[1]), 0.0
    n_near = (~np.isnan(residuals[:, :_NEAR])).sum(1)
    usable = n_near > _NEAR // 2
    if usable.sum() < _LEAST_ROWS:
        return nothing
    features, residuals, gaps = features[usable], residuals[usable], gaps[usable]
    goal = clipped(np.nanmean(residuals[:, :_NEAR], axis=1))
    blocks, others = _blocks(len(goal))
    found = prove(features, goal, blocks=blocks, others=others, own=is_own)
    if found is None:
        return nothing
    return found.weights, _fading(found.expected, residuals, gaps)


def _blocks(n: int) -> tuple[list[Flags], list[Flags]]:
    """Return each block's rows, and those that share no residual with them."""
    rows = np.arange(n)
    ends = [(part[0], part[-1]) for part in np.array_split(rows, BLOCKS)]
    blocks = [(rows >= first) & (rows <= last) for first, last in ends]
    others = [(rows < first - _NEAR) | (rows > last + _NEAR) for first, last in ends]
    return blocks, others


def _fading(shift: Array, residuals: Array, gaps: Array) -> float:
    """Return the rate at which a shift fades that leaves the least squares later on."""
    known = ~np.isnan(residuals)
    later = np.where(known, residuals, 0.0)
    # the farther ahead, the larger errors are: each lead counts alike
    squares = (later**2).sum(0) / np.maximum(known.sum(0), 1)
    weights = known / np.where(squares > 0, squares, 1.0)
    later = clipped(later)
    past = np.where(known, np.maximum(gaps - _NEAR, 0.0), 0.0)
    losses = []
    for rate in _FADING:
        expected = shift[:, None] * np.exp(-rate * past)
        loss = weights * (later - expected) ** 2
        losses.append(loss[:, _NEAR:].sum())
    return _FADING[int(np.argmin(losses))]
