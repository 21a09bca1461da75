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
from typing import NamedTuple, Protocol

import numpy as np

from sklode.data.arrays import Array, Flags, Numbers
from sklode.data.ticks import rows_before
from sklode.structural.coupling.proof import (
    BLOCKS,
    clipped,
    held_out,
    is_beyond_chance,
    ridge,
)
from sklode.structural.rows import ChannelRows, last_rows
from sklode.structural.scaling import usual_deviation

_MOST_CHANNELS = 12  # pairs of them are smoothed
# last ones of a series, that it is found on
_MOST_ROWS, _LEAST_ROWS = 1500, 60
# rows that are hidden together: a lone one, gaps, lost weeks
_LENGTHS = 1, 5, 25
_FIRST = _LENGTHS[1:2]
_LEAST_VARIANCE = 1e-12  # in units of the states
_PENALTIES = 10.0 ** np.arange(-1, 4.5, 0.5)  # of unit features
# share of hidden rows' squares that must be explained: weaker links
# of the Denver air (0.01 to 0.03) harmed as often as they helped
_LEAST_SHARE = 0.05
# a noise beyond so many deviations is an outlier, and tells no more
_NOISE = 3.0
# of the explained variance; shrunk weights
# explain more than their squares say
_SHARES = np.append(np.linspace(0, 1, 11), [1.02, 1.04, 1.07, 1.1])
_LEFT = 1e-3  # of a variance is left at least


class Channel(Protocol):
    """What is asked of a filtered channel."""

    @property
    def table(self) -> ChannelRows:
        """Its rows."""

    def in_units(self, rows: ChannelRows) -> ChannelRows:
        """Return rows in the units of the states of their series."""

    def noises(self, rows: ChannelRows) -> Array:
        """Return variances of the noise at rows, in those units."""

    def smoothed(self, rows: ChannelRows, asked: ChannelRows) -> tuple[Array, Array]:
        """Return its signal and variance, had it these rows, in states' units."""


class Told(NamedTuple):
    """What others add to a channel's signal, in states' units, (row,)."""

    shift: Array
    middle: Array  # the heaviest candidate's signal
    narrower: Array  # factor of deviations from it

    def at(self, rows: Numbers) -> Told:
        """Return it at some rows."""
        return Told(*(column[rows] for column in self))

    def moved(self, signals: Array) -> Array:
        """Return where signals go, (..., row): they differ less."""
        around = self.narrower * (signals - self.middle)
        moved: Array = self.middle + self.shift + around
        return moved


class Concurrent(NamedTuple):
    """What channels tell of each other at the same time."""

    weights: Array  # (channel, 2, of channel): of signal and noise; zero: none
    likeness: Array  # (of channel, feature, feature): correlations of what is new
    share: Array  # (of channel,) of the variance that they explain in theory

    @classmethod
    def none(cls, n: int) -> Concurrent:
        """Return what tells nothing."""
        likeness = np.zeros((n, 2 * n, 2 * n))
        return cls(np.zeros((n, 2, n)), likeness, np.zeros(n))

    @classmethod
    def fit(cls, channels: Sequence[Channel]) -> Concurrent:
        """Find, on rows hidden on purpose, what other channels tell."""
        n = len(channels)
        if not 2 <= n <= _MOST_CHANNELS:
            return cls.none(n)
        weights, share = np.zeros((n, 2, n)), np.zeros(n)
        likeness = np.zeros((n, 2 * n, 2 * n))
        for k in range(n):
            told = _proved(channels, k)
            if told is not None:
                weights[:, :, k] = told.weights
                likeness[k], share[k] = told.likeness, told.share
        return cls(weights, likeness, share)

    def told(
        self, channels: Sequence[Channel], k: int, asked: ChannelRows
    ) -> Told | None:
        """Return what others tell of channel ``k``; None: nothing is new."""
        own = channels[k]
        others = np.flatnonzero(self.weights[:, :, k].any(1)).tolist()
        new, spread = np.zeros((2, len(asked.times), len(channels), 2))
        for j in others:
            rows = _near(channels[j].table, asked)
            is_known = _is_known(own.table, rows)
            if not is_known.all():
                rows = channels[j].in_units(rows)
                new[:, j], spread[:, j] = _new(own, rows, is_known, asked)
        if not spread.any():
            return None
        weights = self.weights[:, :, k].ravel()
        size = spread.reshape(len(new), -1) * weights
        explained = self.share[k] * _variance(size, self.likeness[k])
        signal, variance = own.smoothed(own.in_units(own.table), asked)
        share = explained / np.maximum(variance, 1e-12)
        left = 1 - np.clip(share, 0.0, 1 - _LEFT)
        return Told(
            shift=new.reshape(len(new), -1) @ weights,
            middle=signal,
            narrower=np.sqrt(left),
        )


def _variance(size: Array, likeness: Array) -> Array:
    """Return the variance of what is told, (row,).

    Of what is new w' n, with deviations s and correlations R, it is (w s)' R (w s);
    ``size`` (row, feature) is w s.
    """
    variance: Array = ((size @ likeness) * size).sum(1)
    return variance


def _near(table: ChannelRows, asked: ChannelRows) -> ChannelRows:
    """Return a lone series' rows up to so many before those asked, and after."""
    if len(table.bounds) > 2 or not len(asked.times):
        return table
    ends = asked.times[[0, -1]]
    first, end = np.searchsorted(table.times, ends).tolist()
    near = slice(max(first - _MOST_ROWS, 0), end + _MOST_ROWS)
    return table.where(near)


def _is_known(seen: ChannelRows, rows: ChannelRows) -> Flags:
    """Return the rows that say what a channel's own rows say: one to each of these."""
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
    channel: Channel, rows: ChannelRows, is_known: Flags, asked: ChannelRows
) -> tuple[Array, Array]:
    """Return what rows add to signal and noise, and its spread, (row asked, 2).

    ``rows`` of another channel are smoothed as this channel's own would be: by the same
    gaps what rows at common stamps say of a time is then the same of both channels,
    and cancels in the difference.
    """
    known = rows.where(is_known)
    signal, variance = channel.smoothed(rows, asked)
    known_signal, known_variance = channel.smoothed(known, asked)
    series = asked.series
    place = rows_before(rows.bounds, rows.times, series, asked.times)
    is_own = place >= rows.bounds[series]
    place = np.maximum(place, 0)
    is_same = is_own & (rows.times[place] == asked.times)
    is_new = is_same & ~is_known[place]
    noise, of_noise = np.zeros((2, len(asked.times)))
    # what a row's value is beyond its signal; that has the variance of
    # the noise, less what the row itself has pulled the signal to it
    noise[is_new] = rows.values[place[is_new]] - signal[is_new]
    of_noise[is_new] = channel.noises(asked)[is_new] - variance[is_new]
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

    rest: Array  # (row,), of their values given the channel's others
    new: Array  # (row, channel, 2), what is new of others
    spread: Array
    signal: Array  # (row,), variance of the channel's own signal
    noise: Array
    block: Numbers  # (row,), of time: from 0 to BLOCKS - 1
    length: Numbers  # (row,), of rows hidden together


def _hidden(
    channels: Sequence[Channel], k: int, lengths: tuple[int, ...]
) -> _Hidden | None:
    """Hide parts of a channel's rows by turns, and look what others say there."""
    (own,) = last_rows([channels[k].table], _MOST_ROWS)
    if len(own.times) < _LEAST_ROWS:
        return None
    own = channels[k].in_units(own)
    found = [
        _hidden_by_turns(channels, k, own, length=length, turn=turn)
        for length in lengths
        if len(own.times) >= 8 * length
        for turn in (0, 1)
    ]
    # each field's arrays, of all lengths and turns, end to end
    fields = zip(*found, strict=True)
    return _Hidden(*(np.concatenate(arrays) for arrays in fields))


def _hidden_by_turns(
    channels: Sequence[Channel], k: int, own: ChannelRows, length: int, turn: int
) -> _Hidden:
    """Hide every other part, of so many rows, and look what others say there."""
    n = len(own.times)
    part = np.arange(n) // length
    is_hidden = part % 2 == turn
    seen, hidden = own.where(~is_hidden), own.where(is_hidden)
    asked = hidden._replace(values=np.full(len(hidden.times), np.nan))
    signal, variance = channels[k].smoothed(seen, asked)
    new, spread = np.zeros((2, len(signal), len(channels), 2))
    for j, other in enumerate(channels):
        if j != k:
            new[:, j], spread[:, j] = _look(channels[k], other, seen, asked)
    return _Hidden(
        rest=hidden.values - signal,
        new=new,
        spread=spread,
        signal=variance,
        noise=channels[k].noises(hidden),
        # rows that are hidden together are of
        # one block: that of their first row
        block=(part[is_hidden] * length * BLOCKS) // n,
        length=np.full(len(signal), length),
    )


def _look(
    channel: Channel, other: Channel, seen: ChannelRows, asked: ChannelRows
) -> tuple[Array, Array]:
    """Return what another channel adds where rows are hidden, see `_new`."""
    table = other.in_units(other.table)
    if len(table.bounds) == 2:
        # own rows are the last ones: others from before them tell nothing
        first = min(seen.times[0], asked.times[0])
        table = table.where(table.times >= first)
    if len(table.times) < _LEAST_ROWS // 2:
        nothing = np.zeros((len(asked.times), 2))
        return nothing, nothing
    return _new(channel, table, _is_known(seen, table), asked)


class _Proved(NamedTuple):
    """What others tell of one channel, see `Concurrent`."""

    weights: Array  # (channel, 2)
    likeness: Array  # (feature, feature)
    share: float


def _proved(channels: Sequence[Channel], k: int) -> _Proved | None:
    """Return what others tell of channel ``k``; None: nothing that is proved."""
    told = None
    # most tell nothing, which the first lengths show at less cost
    for lengths in (_FIRST, _LENGTHS):
        hidden = _hidden(channels, k, lengths)
        told = None if hidden is None else _regressed(hidden)
        if told is None:
            break
    return told


def _regressed(hidden: _Hidden) -> _Proved | None:
    """Return what others tell where rows are hidden; None: nothing that is proved."""
    n = len(hidden.rest)
    # where nothing varies rounding may leave less than nothing
    variance = hidden.signal + hidden.noise
    spread = np.sqrt(np.maximum(variance, _LEAST_VARIANCE))
    rest: Array = hidden.rest / spread
    new = hidden.new.reshape(n, -1) / spread[:, None]
    scale = np.sqrt((new**2).mean(0))
    used = scale > 1e-6
    # of rows that are mostly as expected to
    # all digits, nothing is left to tell
    if not used.any() or not usual_deviation(rest) > 0:
        return None
    rest = clipped(rest)
    features = new[:, used] / scale[used]
    block = hidden.block
    blocks = [(block == b, block != b) for b in range(BLOCKS)]
    told, best = held_out(features, rest, _PENALTIES, blocks)
    gains = rest**2 - (rest - told) ** 2
    by_block = np.asarray(np.bincount(block, gains, BLOCKS), float)
    lengths = np.unique(hidden.length)
    by_length = [gains[hidden.length == n].sum() for n in lengths]
    # neither lone rows nor gaps may lose
    is_proved = is_beyond_chance(by_block) and min(by_length) > 0
    is_strong = gains.sum() > _LEAST_SHARE * (rest @ rest)
    if not (is_proved and is_strong):
        return None
    weights = np.zeros(len(used))
    found = ridge(features, rest, _PENALTIES)[best]
    weights[used] = found / scale[used]
    # correlations of what is new: its moments over their roots
    moments = new.T @ new
    root = np.sqrt(np.diag(moments))
    likeness = moments / np.maximum(np.outer(root, root), 1e-12)
    size = hidden.spread.reshape(n, -1) / spread[:, None] * weights
    explained = np.maximum(_variance(size, likeness), 0.0)
    share = _share(rest - told, explained, hidden.signal / spread**2)
    return _Proved(weights.reshape(-1, 2), likeness, share)


def _share(rest: Array, explained: Array, signal: Array) -> float:
    """Return which part of the explained variance makes hidden rows most probable."""
    losses = []
    for share in _SHARES:
        left = 1 - np.minimum(share * explained, (1 - _LEFT) * signal)
        # twice minus the log likelihood of a normal of that variance
        losses.append(float((np.log(left) + rest**2 / left).sum()))
    return float(_SHARES[int(np.argmin(losses))])
