"""What channels tell of each other's next rows: a shift after the last ones.

Channels are filtered alone. What all innovations tell about one's residuals is found by
ridge regression, and stays out where it is not proved.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sklode.data.arrays import Array, Flags, Numbers
from sklode.structural.candidates import Candidate, heaviest_of_each
from sklode.structural.coupling.proof import (
    BLOCKS,
    clipped,
    held_out,
    is_beyond_chance,
    ridge,
)
from sklode.structural.filter.system import States
from sklode.structural.rows import ChannelRows, last_rows
from sklode.structural.search.groups import weights_of

# how long innovations last, in usual gaps; the first: the last row alone
MEMORIES = 1e-6, 2.0, 10.0
_MOST_CHANNELS = 8
_MOST_ROWS, _LEAST_ROWS = 3000, 100  # last ones, that it is found on
_BURNT = 30  # first rows of a lone series: its states are still vague
_NEAR = 7  # rows, whose mean residual the regression is of
# rows after an origin; the last ones tell whether the shift fades
_LEADS = np.array([*range(_NEAR), 8, 10, 12, 15, 19, 24, 29])
# rows later than so many usual gaps, each, do not count
_REACH = 2.0
_PENALTIES = 10.0 ** np.arange(1, 5.5, 0.5)  # of unit features
# rates that are tried, by usual gap
_FADING = 0.0, 1 / 128, 1 / 32, 1 / 8, 1.0


class CrossChannel(NamedTuple):
    """What is added to forecasts, in states' units of heaviest candidates."""

    weights: Array  # (channel, memory, of channel), of innovations; zero: none
    fading: Array  # (of channel,): rate at which a shift fades

    @classmethod
    def none(cls, n_channels: int) -> CrossChannel:
        """Return what adds nothing."""
        shape = n_channels, len(MEMORIES), n_channels
        return cls(np.zeros(shape), np.zeros(n_channels))

    @classmethod
    def fit(
        cls,
        channels: list[list[Candidate]],
        spans: list[float],
        tables: list[ChannelRows],
    ) -> CrossChannel:
        """Find what all innovations tell about each channel's forecasts."""
        n = len(tables)
        if not 2 <= n <= _MOST_CHANNELS:
            return cls.none(n)
        tables = last_rows(tables, _MOST_ROWS)
        stamps = _Stamps.of(tables)
        if len(stamps.times) < _LEAST_ROWS:
            return cls.none(n)
        ahead = [
            _look_ahead(heaviest_of_each(candidates), span, table)
            for candidates, span, table in zip(channels, spans, tables, strict=True)
        ]
        sums = stamps.sums([looked.innovations for looked in ahead])
        features = sums.reshape(len(sums), -1)
        usable = np.full(len(sums), True)
        if len(tables[0].bounds) == 2:
            usable[:_BURNT] = False
        weights, fading = np.zeros((n, len(MEMORIES), n)), np.zeros(n)
        for k, (table, looked) in enumerate(zip(tables, ahead, strict=True)):
            last = stamps.last_rows_of(k)
            # a row before the first one of the series is another series'
            has_row = last >= table.bounds[stamps.series]
            origins = np.flatnonzero(has_row & usable)
            rows = last[origins]
            late = stamps.times[origins] - table.times[rows]
            told, fading[k] = _regressed(
                features[origins],
                is_own=np.repeat(np.arange(n) == k, len(MEMORIES)),
                residuals=looked.residuals[rows],
                gaps=looked.gaps[rows] - late[:, None],
            )
            weights[:, :, k] = told.reshape(n, -1)
        return cls(weights, fading)

    def shift(self, channel: int, sums: Array, ahead: Array) -> Array:
        """Return what ``sums``, (query, channel, memory), add past the end."""
        told = np.einsum("qcm,cm->q", sums, self.weights[:, :, channel])
        # it is the mean of the first rows ahead, which do not fade
        past = np.maximum(ahead - _NEAR, 0.0)
        left = np.exp(-self.fading[channel] * past)
        shift: Array = np.where(ahead > 0, told * left, 0.0)
        return shift


class _Stamps(NamedTuple):
    """All channels' stamps, sorted by series and time."""

    series: Numbers
    times: Array
    places: list[Numbers]  # of each channel: where its rows are

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
        """Return decayed sums of innovations, (stamp, channel, memory)."""
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

    def last_rows_of(self, channel: int) -> Numbers:
        """Return a channel's row at each stamp or before it; -1: there is none."""
        place = self.places[channel]
        last = np.full(len(self.times), -1)
        last[place] = np.arange(len(place))
        return np.maximum.accumulate(last)


class _Ahead(NamedTuple):
    """What a channel's rows are beyond what was expected of them at earlier ones."""

    innovations: Array  # (row,)
    residuals: Array  # (row, lead), NaN where there is no row ahead
    gaps: Array  # (row, lead), times from the row to those ahead


def _look_ahead(groups: list[Candidate], span: float, table: ChannelRows) -> _Ahead:
    """Look ahead from each row; each series by its group's candidate."""
    n = len(table.times)
    weights = weights_of(groups, table)
    innovations = np.empty(n)
    residuals, gaps = np.empty((2, n, len(_LEADS)))
    for k, candidate in enumerate(groups):
        mine = (weights[k] > 0)[table.series]
        if mine.any():
            found = _look_ahead_by(candidate, span, table.where(mine))
            innovations[mine] = found.innovations
            residuals[mine], gaps[mine] = found.residuals, found.gaps
    return _Ahead(innovations, residuals, gaps)


def _look_ahead_by(candidate: Candidate, span: float, table: ChannelRows) -> _Ahead:
    """Look ahead from each row by one candidate."""
    model = candidate.model
    space = model.space(span)
    n, d = len(table.times), len(space.start)
    table = candidate.own(table, span).scaling.rows(table)
    states = np.empty((n, d))
    passed = model.filtered(space, table, after=states)
    later = np.arange(n)[:, None] + 1 + _LEADS
    is_there = later < table.bounds[1:][table.series][:, None]
    later = np.minimum(later, n - 1)
    gaps = table.times[later] - table.times[:, None]
    gaps = np.where(is_there, gaps, np.inf)
    # leads increase: a row that has the first one has some
    origins = is_there[:, 0]
    asked, n_origins = later[origins].ravel(), int(origins.sum())
    # a lead that is not there stands at the
    # one before it, as times must not fall
    times = np.where(is_there, table.times[later], -np.inf)[origins]
    times = np.maximum.accumulate(times, axis=1)
    # each origin is a series of its own,
    # which begins with the states there
    queries = ChannelRows(
        times=times.ravel(),
        values=np.full(len(asked), np.nan),
        inputs=table.inputs[asked],
        errors=np.zeros(len(asked)),
        bounds=np.arange(0, len(asked) + 1, len(_LEADS)),
    )
    known = States(
        means=states[origins],
        # expectations need no covariances
        covariances=np.zeros((n_origins, d, d)),
        runs=np.zeros((n_origins, 2)),
    )
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

    Others must tell more than the channel's own innovations, which may show that its
    model does not fit: that is no news of others.
    """
    nothing = np.zeros(features.shape[1]), 0.0
    n_near = (~np.isnan(residuals[:, :_NEAR])).sum(1)
    usable = n_near > _NEAR // 2
    if usable.sum() < _LEAST_ROWS:
        return nothing
    features, residuals, gaps = features[usable], residuals[usable], gaps[usable]
    goal = clipped(np.nanmean(residuals[:, :_NEAR], axis=1))
    scale = features.std(0)
    scale[scale == 0] = 1.0
    features = features / scale
    blocks = _blocks(len(goal))
    shift, best = held_out(features, goal, _PENALTIES, blocks)
    alone, _ = held_out(features[:, is_own], goal, _PENALTIES, blocks)
    # better than nothing, and than the channel's own innovations alone
    for before in (np.zeros_like(goal), alone):
        gains = (goal - before) ** 2 - (goal - shift) ** 2
        by_block = [block.mean() for block in np.array_split(gains, BLOCKS)]
        if not is_beyond_chance(np.array(by_block)):
            return nothing
    weights = ridge(features, goal, _PENALTIES)[best] / scale
    return weights, _fading(shift, residuals, gaps)


def _blocks(n: int) -> list[tuple[Flags, Flags]]:
    """Return each block's rows, and those that share no residual with them."""
    rows = np.arange(n)
    parts = [(part[0], part[-1]) for part in np.array_split(rows, BLOCKS)]
    return [
        (
            (rows >= first) & (rows <= last),
            (rows < first - _NEAR) | (rows > last + _NEAR),
        )
        for first, last in parts
    ]


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
