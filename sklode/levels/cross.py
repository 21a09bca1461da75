"""What channels tell each other: a shift of forecasts after the last rows.

Each channel is filtered alone. What the innovations of all tell about the residuals of
one's forecasts is found by ridge regression, and stays out where it is not proved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from sklode.levels.channel import MEMORIES, filtered_rows
from sklode.levels.components import Component, States, heaviest, run
from sklode.levels.tables import Table

__all__ = ["Cross"]

Array = NDArray[np.floating]

_MOST_CHANNELS = 8
_MOST_ROWS, _LEAST_ROWS = 2000, 100
"""Last rows that it is found on; of a panel, three times as many of all series."""

_BURNT = 30
"""First rows of a lone series: its states are still vague."""

_NEAR = 7
"""The regression is of the mean residual of so many rows."""

_LEADS = np.array([*range(_NEAR), 8, 10, 12, 15, 19, 24, 29])
"""Rows after an origin whose residuals are looked at; the last ones fade the shift."""

_REACH = 2.0
"""Rows that come later than so many times the usual gap, each, do not count."""

_PENALTIES = 10.0 ** np.arange(1, 5.5, 0.5)
_FADES = 0.0, 1 / 128, 1 / 32, 1 / 8, 1.0
_BLOCKS = 5
_CONFIDENCE = 0.95  # one of several penalties was chosen: that gains by chance
_CLIPPED = 4.0
"""Residuals beyond so many median deviations count as these."""


class Cross(NamedTuple):
    """What is added to forecasts, in units of the states of heaviest components."""

    weights: Array  # (channel, memory, of channel), of sums of innovations; zero: none
    fades: Array  # (of channel,): rate at which a shift fades, after the near rows

    @classmethod
    def none(cls, n_channels: int) -> Cross:
        """Return what adds nothing."""
        shape = n_channels, len(MEMORIES), n_channels
        return cls(np.zeros(shape), np.zeros(n_channels))

    @classmethod
    def fit(
        cls,
        channels: Sequence[Sequence[Component]],
        spans: Sequence[float],
        tables: Sequence[Table],
    ) -> Cross:
        """Find what innovations of all channels tell about each one's forecasts.

        Blocks of rows that are left out in turn choose the penalty. One channel's shift
        stays out unless it makes their errors smaller beyond doubt.
        """
        found = cls.none(len(tables))
        if not 2 <= len(tables) <= _MOST_CHANNELS:
            return found
        tables = _last_rows(tables)
        series, times, places = _stamps(tables)
        if len(times) < _LEAST_ROWS:
            return found
        begins = np.searchsorted(series, np.arange(len(tables[0].bounds)))
        usable = np.full(len(times), True)
        if len(begins) == 2:
            usable[:_BURNT] = False
        told = np.zeros((len(times), len(tables), len(MEMORIES)))
        origins, residuals, gaps = [], [], []
        for k, (components, span, table, place) in enumerate(
            zip(channels, spans, tables, places, strict=True)
        ):
            innovations, errors, ahead = _looked_ahead(components, span, table)
            told[place, k, 0] = innovations
            last = np.full(len(times), -1)
            last[place] = np.arange(len(place))
            last = np.maximum.accumulate(last)
            own = last >= table.bounds[series]
            late = times - table.times[np.maximum(last, 0)]
            origins.append(np.flatnonzero(own & usable))
            rows = last[origins[-1]]
            residuals.append(errors[rows])
            gaps.append(ahead[rows] - late[origins[-1], None])
        _accumulate(told, times, begins)
        flat = told.reshape(len(times), -1)
        for k in range(len(tables)):
            weights, fade = _told(flat[origins[k]], residuals[k], gaps[k])
            found.weights[:, :, k] = weights.reshape(len(tables), -1)
            found.fades[k] = fade
        return found

    def shift(self, channel: int, sums: Array, ahead: Array) -> Array:
        """Return what is added, (query,); none up to the last row.

        ``sums`` (query, channel, memory) of innovations at last rows, ``ahead`` the
        time since them, in usual gaps.
        """
        told = np.einsum("qcm,cm->q", sums, self.weights[:, :, channel])
        faded = np.exp(-self.fades[channel] * np.maximum(ahead - _NEAR, 0.0))
        shift: Array = np.where(ahead > 0, told * faded, 0.0)
        return shift


def _last_rows(tables: Sequence[Table]) -> list[Table]:
    """Return the last rows of all series, or of some that are spread evenly."""
    n_series = len(tables[0].bounds) - 1
    if n_series == 1:
        last = max(table.times[-1] for table in tables if len(table.times))
        long = max(tables, key=lambda table: len(table.times)).times
        first = long[max(len(long) - _MOST_ROWS, 0)]
        return [table.since(min(first, last)) for table in tables]
    usual = max(len(table.times) for table in tables) / n_series
    n_kept = min(n_series, max(int(3 * _MOST_ROWS / max(usual, 1.0)), 1))
    chosen = np.unique(np.linspace(0, n_series - 1, n_kept).round().astype(int))
    return [table.of_series(chosen) for table in tables]


def _stamps(
    tables: Sequence[Table],
) -> tuple[NDArray[np.int64], Array, list[NDArray[np.int64]]]:
    """Return the rows of all channels, (series, time), each once and sorted.

    And where the rows of each table are among them.
    """
    both = np.concatenate([np.stack([t.series, t.times], axis=1) for t in tables])
    rows, place = np.unique(both, axis=0, return_inverse=True)
    ends = np.cumsum([len(table.times) for table in tables])
    # numpy 2.0 gives it a column's shape
    places = np.split(place.ravel(), ends[:-1])
    return rows[:, 0].astype(np.int64), rows[:, 1], places


def _looked_ahead(
    components: Sequence[Component], span: float, table: Table
) -> tuple[Array, Array, Array]:
    """Return each row's innovation, and residuals of forecasts made there.

    Residuals are (row, lead), NaN where there are none, and the gaps up to them.
    """
    component = heaviest(components)
    space, usual = component.space(span), component._replace(apart=0.0)
    component = component.own(table, span).at(table.series)
    innovations, states = filtered_rows(component, space, table)
    n, d = states.shape
    ends = np.repeat(table.bounds[1:], np.diff(table.bounds))
    rows = np.arange(n)[:, None] + 1 + _LEADS
    there = rows < ends[:, None]
    rows = np.minimum(rows, n - 1)
    gaps = np.where(there, table.times[rows] - table.times[:, None], np.inf)
    ahead = rows[:, 0] < ends
    asked = rows[ahead].ravel()
    n_asked = len(asked) // len(_LEADS)
    # a lead that is not there stands at the one before it
    times = np.maximum.accumulate(
        np.where(there, table.times[rows], -np.inf)[ahead], axis=1
    ).ravel()
    values = component.scaled(table.values)
    later = Table(
        times,
        np.full(len(times), np.nan),
        table.inputs[asked],
        np.arange(0, len(times) + 1, len(_LEADS)),
    )
    since = times[:: len(_LEADS)] - table.times[ahead]
    # expectations need no covariances
    known = States(states[ahead], np.zeros((n_asked, d, d)), np.zeros((n_asked, 2)))
    signal = run(usual, space, later, space.whole, known, since).signal
    residuals = np.full(rows.shape, np.nan)
    residuals[ahead] = values[asked].reshape(-1, len(_LEADS)) - signal.reshape(
        -1, len(_LEADS)
    )
    residuals[gaps > _REACH * (_LEADS + 2)] = np.nan
    return innovations, residuals, gaps


def _accumulate(told: Array, times: Array, begins: NDArray[np.int64]) -> None:
    """Write the decayed sums of innovations, which lie at the first memory."""
    memories = np.array(MEMORIES)
    innovations = told[:, :, :1].copy()
    told[:] = innovations
    firsts = set(begins.tolist())
    for i in range(1, len(times)):
        if i not in firsts:
            told[i] += told[i - 1] * np.exp((times[i - 1] - times[i]) / memories)


def _told(told: Array, residuals: Array, gaps: Array) -> tuple[Array, float]:
    """Return weights, (feature,), and the rate at which the shift fades."""
    none = np.zeros(told.shape[1]), 0.0
    near = residuals[:, :_NEAR]
    usable = (~np.isnan(near)).sum(1) > _NEAR // 2
    if usable.sum() < _LEAST_ROWS:
        return none
    told, residuals, gaps = told[usable], residuals[usable], gaps[usable]
    goal = _clipped(np.nanmean(residuals[:, :_NEAR], axis=1))
    scale = told.std(0)
    scale[scale == 0] = 1.0
    features = told / scale
    block = np.arange(len(goal)) * _BLOCKS // len(goal)
    apart = [_apart(block == b) for b in range(_BLOCKS)]
    tried = []
    for penalty in _PENALTIES:
        held_out = np.empty_like(goal)
        for b, kept in enumerate(apart):
            weights = _ridge(features[kept], goal[kept], penalty)
            held_out[block == b] = features[block == b] @ weights
        tried.append(held_out)
    errors = [((goal - each) ** 2).sum() for each in tried]
    best = int(np.argmin(errors))
    gains = goal**2 - (goal - tried[best]) ** 2
    by_block = np.array([gains[block == b].mean() for b in range(_BLOCKS)])
    doubt = by_block.std(ddof=1) / math.sqrt(_BLOCKS)
    if not by_block.mean() > stdtrit(_BLOCKS - 1, _CONFIDENCE) * doubt:
        return none
    weights = _ridge(features, goal, float(_PENALTIES[best])) / scale
    return weights, _fade(tried[best], residuals, gaps)


def _apart(block: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the rows that share no residual with those of a block."""
    own = np.flatnonzero(block)
    rows = np.arange(len(block))
    return (rows < own[0] - _NEAR) | (rows > own[-1] + _NEAR)


def _ridge(features: Array, goal: Array, penalty: float) -> Array:
    """Return the coefficients of a ridge regression."""
    normal = features.T @ features + penalty * np.eye(features.shape[1])
    found: Array = np.linalg.solve(normal, features.T @ goal)
    return found


def _fade(shift: Array, residuals: Array, gaps: Array) -> float:
    """Return the rate of fading that fits the later residuals best, (row, lead)."""
    known = ~np.isnan(residuals)
    later = np.where(known, residuals, 0.0)
    squares = (later**2).sum(0) / np.maximum(known.sum(0), 1)
    weights = known / np.where(squares > 0, squares, 1.0)
    later = _clipped(later)
    past = np.where(known, np.maximum(gaps - _NEAR, 0.0), 0.0)
    errors = []
    for rate in _FADES:
        squares = weights * (later - shift[:, None] * np.exp(-rate * past)) ** 2
        errors.append(squares[:, _NEAR:].sum())
    return _FADES[int(np.argmin(errors))]


def _clipped(values: Array) -> Array:
    """Return values of which a few may be absurd."""
    width = _CLIPPED * 1.4826 * np.nanmedian(np.abs(values), axis=0)
    width = np.where(width > 0, width, np.inf)
    clipped: Array = np.clip(values, -width, width)
    return clipped
