"""What channels tell of each other's next rows: a shift after the last ones.

Channels are filtered alone. What all innovations tell about one's residuals is found by
ridge regression, and stays out where it is not proved.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from sklode.data.arrays import Array, Flags, Numbers
from sklode.structural.candidates import Candidate, heaviest_of_each
from sklode.structural.channel_rows import ChannelRows, last_rows
from sklode.structural.filter_pass import States
from sklode.structural.groups import groups_of

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
_PENALTIES = 10.0 ** np.arange(1, 5.5, 0.5)  # of ridge regression, of unit features
_FADING = 0.0, 1 / 128, 1 / 32, 1 / 8, 1.0  # rates that are tried, by usual gap
_BLOCKS = 5  # of time, each told by the weights of the others: cross-validation
_CONFIDENCE = 0.95  # by convention; choosing a penalty gains by chance
# residuals beyond so many standard deviations, told by the median, count as these
_CLIPPED = 4.0


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
        found = cls.none(n)
        if not 2 <= n <= _MOST_CHANNELS:
            return found
        tables = last_rows(tables, _MOST_ROWS)
        series, times, places = _stamps(tables)
        if len(times) < _LEAST_ROWS:
            return found
        usable = np.full(len(times), True)
        if len(tables[0].bounds) == 2:
            usable[:_BURNT] = False
        sums = np.zeros((len(times), n, len(MEMORIES)))
        ahead: list[_Ahead] = []
        for k, place in enumerate(places):
            looked = _look_ahead(heaviest_of_each(channels[k]), spans[k], tables[k])
            sums[place, k] = looked.innovations[:, None]
            ahead.append(looked)
        gaps = np.where(np.diff(series) == 0, np.diff(times), np.inf)
        left = np.exp(-gaps[:, None] / np.array(MEMORIES))
        # sums of past innovations fade as exp(-t / memory), so one step brings all on
        for i in range(1, len(times)):
            sums[i] += sums[i - 1] * left[i - 1]
        features = sums.reshape(len(times), -1)
        for k, (table, place) in enumerate(zip(tables, places, strict=True)):
            # of each stamp the channel's row at it or before it
            last = np.full(len(times), -1)
            last[place] = np.arange(len(place))
            last = np.maximum.accumulate(last)
            origins = np.flatnonzero((last >= table.bounds[series]) & usable)
            rows = last[origins]
            residuals = ahead[k].residuals[rows]
            gaps = ahead[k].gaps[rows]
            gaps = gaps - (times[origins] - table.times[rows])[:, None]
            own = np.repeat(np.arange(n) == k, len(MEMORIES))
            weights, found.fading[k] = _regressed(
                features[origins], own, residuals, gaps
            )
            found.weights[:, :, k] = weights.reshape(n, -1)
        return found

    def shift(self, channel: int, sums: Array, ahead: Array) -> Array:
        """Return what ``sums``, (query, channel, memory), add past the end."""
        told = np.einsum("qcm,cm->q", sums, self.weights[:, :, channel])
        left = np.exp(-self.fading[channel] * np.maximum(ahead - _NEAR, 0.0))
        shift: Array = np.where(ahead > 0, told * left, 0.0)
        return shift


def _stamps(tables: list[ChannelRows]) -> tuple[Numbers, Array, list[Numbers]]:
    """Return all channels' rows, sorted, and where each table's are."""
    both = np.concatenate([np.stack([t.series, t.times], axis=1) for t in tables])
    rows, place = np.unique(both, axis=0, return_inverse=True)
    ends = np.cumsum([len(table.times) for table in tables])
    # numpy 2.0 gives it a column's shape
    places = np.split(place.ravel(), ends[:-1])
    return rows[:, 0].astype(np.int64), rows[:, 1], places


class _Ahead(NamedTuple):
    """What a channel's rows are beyond what was expected of them at earlier ones."""

    innovations: Array  # (row,)
    residuals: Array  # (row, lead), NaN where there is no row ahead
    gaps: Array  # (row, lead), times from the row to those ahead


def _look_ahead(groups: list[Candidate], span: float, table: ChannelRows) -> _Ahead:
    """Look ahead from each row; each series by its group's candidate."""
    own, n = groups_of(groups, table)[table.series], len(table.times)
    innovations = np.empty(n)
    residuals, gaps = np.empty((2, n, len(_LEADS)))
    for candidate in groups:
        mine = own == candidate.group if len(groups) > 1 else np.full(n, True)
        if mine.any():
            found = _look_ahead_by(candidate, span, table.where(mine))
            innovations[mine] = found.innovations
            residuals[mine], gaps[mine] = found.residuals, found.gaps
    return _Ahead(innovations, residuals, gaps)


def _look_ahead_by(candidate: Candidate, span: float, table: ChannelRows) -> _Ahead:
    """Look ahead from each row by one candidate."""
    space = candidate.space(span)
    n, d = len(table.times), len(space.start)
    table = candidate.own(table, span).in_units(table)
    states = np.empty((n, d))
    innovations = candidate.filtered(space, table, after=states).innovations
    rows = np.arange(n)[:, None] + 1 + _LEADS
    there = rows < table.bounds[1:][table.series][:, None]
    rows = np.minimum(rows, n - 1)
    gaps = np.where(there, table.times[rows] - table.times[:, None], np.inf)
    ahead = there[:, 0]
    asked, n_asked = rows[ahead].ravel(), int(ahead.sum())
    # a lead that is not there stands at the one before it
    times = np.where(there, table.times[rows], -np.inf)[ahead]
    times = np.maximum.accumulate(times, axis=1)
    bounds = np.arange(0, len(asked) + 1, len(_LEADS))
    unknown = np.full(len(asked), np.nan)
    later = ChannelRows(
        times=times.ravel(),
        values=unknown,
        inputs=table.inputs[asked],
        errors=np.zeros(len(asked)),
        bounds=bounds,
    )
    # expectations need no covariances
    known = States(
        means=states[ahead],
        covariances=np.zeros((n_asked, d, d)),
        runs=np.zeros((n_asked, 2)),
    )
    since = times[:, 0] - table.times[ahead]
    signal = candidate.filtered(
        space, later, space.whole, states=known, since=since
    ).signal
    residuals = np.full(rows.shape, np.nan)
    residuals[ahead] = (table.values[asked] - signal[:, 0]).reshape(times.shape)
    residuals[gaps > _REACH * (_LEADS + 2)] = np.nan
    return _Ahead(innovations, residuals, gaps)


def _regressed(
    features: Array, own: Flags, residuals: Array, gaps: Array
) -> tuple[Array, float]:
    """Return weights, (feature,), and the rate of fading.

    Others must tell more than the channel's ``own`` innovations, which may show that
    its model does not fit: that is no news of others.
    """
    nothing = np.zeros(features.shape[1]), 0.0
    usable = (~np.isnan(residuals[:, :_NEAR])).sum(1) > _NEAR // 2
    if usable.sum() < _LEAST_ROWS:
        return nothing
    features, residuals, gaps = features[usable], residuals[usable], gaps[usable]
    goal = _clipped(np.nanmean(residuals[:, :_NEAR], axis=1))
    scale = features.std(0)
    scale[scale == 0] = 1.0
    features = features / scale
    shift, best = _held_out(features, goal)
    alone, _ = _held_out(features[:, own], goal)
    # better than nothing, and than the channel's own innovations alone: blocks' mean
    # gain is beyond chance, by Student's t, one-sided
    for before in (np.zeros_like(goal), alone):
        gains = (goal - before) ** 2 - (goal - shift) ** 2
        by_block = np.array([b.mean() for b in np.array_split(gains, _BLOCKS)])
        error = by_block.std(ddof=1) / math.sqrt(_BLOCKS)
        if not by_block.mean() > stdtrit(_BLOCKS - 1, _CONFIDENCE) * error:
            return nothing
    weights = _ridge(features, goal)[best] / scale
    return weights, _fading(shift, residuals, gaps)


def _held_out(features: Array, goal: Array) -> tuple[Array, int]:
    """Return what each block is told by the others, and the best penalty."""
    found = np.empty((len(_PENALTIES), len(goal)))
    rows = np.arange(len(goal))
    for block in np.array_split(rows, _BLOCKS):
        # the others share no residual with these
        others = (rows < block[0] - _NEAR) | (rows > block[-1] + _NEAR)
        found[:, block] = _ridge(features[others], goal[others]) @ features[block].T
    best = int(np.argmin(((goal - found) ** 2).sum(1)))
    return found[best], best


def _ridge(features: Array, goal: Array) -> Array:
    """Return weights by penalty, (penalty, feature)."""
    normal = features.T @ features
    each = normal + _PENALTIES[:, None, None] * np.eye(len(normal))
    found: Array = np.linalg.solve(each, (features.T @ goal)[:, None])[..., 0]
    return found


def _fading(shift: Array, residuals: Array, gaps: Array) -> float:
    """Return the rate at which a shift fades that leaves the least squares later on."""
    known = ~np.isnan(residuals)
    later = np.where(known, residuals, 0.0)
    squares = (later**2).sum(0) / np.maximum(known.sum(0), 1)
    weights = known / np.where(squares > 0, squares, 1.0)
    later = _clipped(later)
    past = np.where(known, np.maximum(gaps - _NEAR, 0.0), 0.0)
    errors = []
    for rate in _FADING:
        squares = weights * (later - shift[:, None] * np.exp(-rate * past)) ** 2
        errors.append(squares[:, _NEAR:].sum())
    return _FADING[int(np.argmin(errors))]


def _clipped(values: Array) -> Array:
    """Return values of which a few may be absurd."""
    # 1.4826 median deviations are the standard deviation of a normal distribution
    width = _CLIPPED * 1.4826 * np.nanmedian(np.abs(values), axis=0)
    width = np.where(width > 0, width, np.inf)
    clipped: Array = np.clip(values, -width, width)
    return clipped
