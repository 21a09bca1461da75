r"""What columns tell of each other at the same time: in gaps, and where one ends.

What a column's rows say beyond what is known where another column is seen,

.. math::
    n_j(t) = s_j(t \mid \mathrm{all\ rows})
        - s_j(t \mid \mathrm{those\ at\ rows\ of\ } k)

with s the signal, smoothed as that of k is, moves the other's signal by a multiple,
and takes from its variance what it explains. That is exact where one covariance of
columns and one of times make up all (Alvarez, Rosasco, Lawrence, "Kernels for
Vector-Valued Functions: a Review", 2012, section 4.2). The multiple is found on rows
that are hidden on purpose. A row's noise, where both have the same stamp, is a second
such column.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import stdtrit

from sklode.data.arrays import Array, Flags, Numbers
from sklode.structural.channel_rows import ChannelRows

_MOST_CHANNELS = 12  # pairs of them are smoothed
_MOST_ROWS, _LEAST_ROWS = 1500, 60  # last ones of a series, that it is found on
_LENGTHS = 1, 5, 25  # rows that are hidden together: a lone one, gaps, lost weeks
_FIRST = _LENGTHS[1:2]
_LEAST_VARIANCE = 1e-12  # in units of the states
_BLOCKS = 5  # of time, each told by the weights of the others: cross-validation
_PENALTIES = 10.0 ** np.arange(-1, 4.5, 0.5)  # of ridge regression, of unit features
_CONFIDENCE = 0.95  # that what others tell is no chance, by convention
# share of hidden rows' squares that must be explained: weaker links of the Denver air
# (0.01 to 0.03) harmed as often as they helped
_LEAST_SHARE = 0.05
_CLIPPED = 4.0  # residuals beyond so many median deviations count as these
_NOISE = 3.0  # a noise beyond so many deviations is an outlier, and tells no more
# of the explained variance; shrunk weights explain more than their squares say
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
        moved: Array = (
            self.middle + self.shift + self.narrower * (signals - self.middle)
        )
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
        found = cls.none(len(channels))
        if not 2 <= len(channels) <= _MOST_CHANNELS:
            return found
        for k in range(len(channels)):
            for lengths in (_FIRST, _LENGTHS):  # most tell nothing, and cost less
                hidden = _hidden(channels, k, lengths)
                if hidden is None or not _regress(found, k, hidden):
                    break
        return found

    def told(
        self, channels: Sequence[Channel], k: int, asked: ChannelRows
    ) -> Told | None:
        """Return what others tell of channel ``k``; None: nothing is new."""
        others = np.flatnonzero(self.weights[:, :, k].any(1)).tolist()
        seen = channels[k].table
        new, spread = np.zeros((2, len(asked.times), len(channels), 2))
        for j in others:
            rows = _near(channels[j].table, asked)
            is_known = _is_known(seen, rows)
            if not is_known.all():
                rows = channels[j].in_units(rows)
                new[:, j], spread[:, j] = _new(channels[k], rows, is_known, asked)
        if not spread.any():
            return None
        weights = self.weights[:, :, k].ravel()
        # of what is new w' n, with deviations s and correlations R, the variance is
        # (w s)' R (w s)
        size = spread.reshape(len(new), -1) * weights
        explained = self.share[k] * ((size @ self.likeness[k]) * size).sum(1)
        signal, variance = channels[k].smoothed(channels[k].in_units(seen), asked)
        left = 1 - np.clip(explained / np.maximum(variance, 1e-12), 0.0, 1 - _LEFT)
        return Told(
            shift=new.reshape(len(new), -1) @ weights,
            middle=signal,
            narrower=np.sqrt(left),
        )


def _near(table: ChannelRows, asked: ChannelRows) -> ChannelRows:
    """Return a lone series' rows up to so many before those asked, and after."""
    if len(table.bounds) > 2 or not len(asked.times):
        return table
    first, end = np.searchsorted(table.times, asked.times[[0, -1]])
    return table.where(slice(max(int(first) - _MOST_ROWS, 0), int(end) + _MOST_ROWS))


def _is_known(seen: ChannelRows, rows: ChannelRows) -> Flags:
    """Return the rows that say what a channel's own rows say: one to each of these."""
    found = np.full(len(rows.times), False)
    if not len(seen.times) or not len(rows.times):
        return found
    near = 0.5 * min(_gap(seen), _gap(rows))  # stamps need not be the same
    ends = np.concatenate([seen.times, rows.times])
    # so far from each other stand series on one axis that one search serves all
    far = 4 * (ends.max() - ends.min() + near + 1)
    last = np.searchsorted(
        rows.times + far * rows.series,
        seen.times + near + far * seen.series,
        side="right",
    )
    before = last - 1
    same = (before >= 0) & (rows.series[before] == seen.series)
    found[before[same]] = True
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

    They are smoothed as the channel's own rows would be: what is forecast there from
    either's known rows is then the same, and cancels.
    """
    signal_of_all, variance_of_all = channel.smoothed(rows, asked)
    signal_of_known, variance_of_known = channel.smoothed(rows.where(is_known), asked)
    noise, of_noise = np.zeros((2, len(asked.times)))
    every = np.append(rows.times, asked.times)
    far = 4 * (np.ptp(every) + 1)
    at, where = rows.times + far * rows.series, asked.times + far * asked.series
    place = np.minimum(np.searchsorted(at, where), len(at) - 1)
    same = (at[place] == where) & ~is_known[place]
    # what a row's value is beyond its signal; that has the variance of the noise, less
    # what the row itself has pulled the signal to it
    noise[same] = rows.values[place[same]] - signal_of_all[same]
    of_noise[same] = channel.noises(asked)[same] - variance_of_all[same]
    of_noise = np.sqrt(np.maximum(of_noise, 0.0))
    noise = np.clip(noise, -_NOISE * of_noise, _NOISE * of_noise)
    # what the variance loses is the variance of where the mean goes (total variance)
    spread = np.sqrt(np.maximum(variance_of_known - variance_of_all, 0.0))
    signal = np.where(spread > 0, signal_of_all - signal_of_known, 0.0)
    return np.stack([signal, noise], 1), np.stack([spread, of_noise], 1)


class _Hidden(NamedTuple):
    """Rows hidden on purpose."""

    rest: Array  # (row,), of their values given the channel's others
    new: Array  # (row, channel, 2), what is new of others
    spread: Array
    signal: Array  # (row,), variance of the channel's own signal
    noise: Array
    place: Numbers  # (row,), from 0 to _BLOCKS - 1
    length: Numbers  # (row,), of rows hidden together


def _last(table: ChannelRows) -> ChannelRows:
    """Return the last rows of a lone series, or some series of a panel."""
    if len(table.bounds) == 2:
        return table.where(slice(-_MOST_ROWS, None))
    every = math.ceil(len(table.times) / (2 * _MOST_ROWS))
    return table.where(table.series % every == 0)


def _hidden(
    channels: Sequence[Channel], k: int, lengths: tuple[int, ...]
) -> _Hidden | None:
    """Hide blocks of a channel's rows by turns, and look what others say there."""
    own = _last(channels[k].table)
    n = len(own.times)
    if n < _LEAST_ROWS:
        return None
    own, rows = channels[k].in_units(own), np.arange(n)
    found: list[_Hidden] = []
    for length in lengths:
        for turn in range(2) if n >= 8 * length else ():
            is_hidden = rows // length % 2 == turn
            seen, hidden = own.where(~is_hidden), own.where(is_hidden)
            asked = hidden._replace(values=np.full(len(hidden.times), np.nan))
            signal, variance = channels[k].smoothed(seen, asked)
            new, spread = np.zeros((2, len(signal), len(channels), 2))
            for j, other in enumerate(channels):
                if j != k:
                    new[:, j], spread[:, j] = _look(channels[k], other, seen, asked)
            some = _Hidden(
                rest=hidden.values - signal,
                new=new,
                spread=spread,
                signal=variance,
                noise=channels[k].noises(hidden),
                # rows that are hidden together are of one block
                place=(rows[is_hidden] // length * length * _BLOCKS) // n,
                length=np.full(len(signal), length),
            )
            found.append(some)
    # each field's arrays, of all lengths and turns, end to end
    return _Hidden(*(np.concatenate(arrays) for arrays in zip(*found, strict=True)))


def _look(
    channel: Channel, other: Channel, seen: ChannelRows, asked: ChannelRows
) -> tuple[Array, Array]:
    """Return what another channel adds where rows are hidden, see `_new`."""
    table = other.in_units(other.table)
    if len(table.bounds) == 2:
        table = table.where(table.times >= min(seen.times[0], asked.times[0]))
    if len(table.times) < _LEAST_ROWS // 2:
        nothing = np.zeros((len(asked.times), 2))
        return nothing, nothing
    return _new(channel, table, _is_known(seen, table), asked)


def _regress(found: Concurrent, k: int, given: _Hidden) -> bool:
    """Write what others tell of channel ``k``; return whether it is proved."""
    found.weights[:, :, k] = 0.0
    # where nothing varies rounding may leave less than nothing
    spread = np.sqrt(np.maximum(given.signal + given.noise, _LEAST_VARIANCE))
    rest = given.rest / spread
    # 1.4826 median deviations are the standard deviation of a normal distribution
    width = _CLIPPED * 1.4826 * np.median(np.abs(rest))
    rest = np.clip(rest, -width, width)
    features = given.new.reshape(len(rest), -1) / spread[:, None]
    scale = np.sqrt((features**2).mean(0))
    used = scale > 1e-6
    if not used.any():
        return False
    features = features[:, used] / scale[used]
    held_out = np.zeros((len(_PENALTIES), len(rest)))
    for block in range(_BLOCKS):
        mine = given.place == block
        weights = _ridge(features[~mine], rest[~mine])
        held_out[:, mine] = weights @ features[mine].T
    best = int(np.argmin(((rest - held_out) ** 2).sum(1)))
    told = held_out[best]
    # proved if the mean gain of blocks is beyond chance (Student's t, one-sided), if it
    # is worth it, and if neither lone rows nor gaps lose
    gains = rest**2 - (rest - told) ** 2
    by_block = np.bincount(given.place, gains, _BLOCKS)
    error = by_block.std(ddof=1) / math.sqrt(_BLOCKS)
    is_proved = by_block.mean() > stdtrit(_BLOCKS - 1, _CONFIDENCE) * error
    by_length = [gains[given.length == n].sum() for n in set(given.length.tolist())]
    is_strong = gains.sum() > _LEAST_SHARE * (rest @ rest)
    if not (is_proved and is_strong and min(by_length) > 0):
        return False
    weights = np.zeros(len(used))
    weights[used] = _ridge(features, rest)[best] / scale[used]
    found.weights[:, :, k] = weights.reshape(-1, 2)
    new, size = (
        x.reshape(len(rest), -1) / spread[:, None] for x in (given.new, given.spread)
    )
    both = new.T @ new
    size_of = np.sqrt(np.diag(both))
    found.likeness[k] = both / np.maximum(np.outer(size_of, size_of), 1e-12)
    size = size * weights
    explained = np.maximum(((size @ found.likeness[k]) * size).sum(1), 0.0)
    found.share[k] = _share(rest - told, explained, given.signal / spread**2)
    return True


def _share(rest: Array, explained: Array, signal: Array) -> float:
    """Return which part of the explained variance makes hidden rows most probable."""
    losses = []
    for share in _SHARES:
        left = 1 - np.minimum(share * explained, (1 - _LEFT) * signal)
        # twice minus the log likelihood of a normal of that variance
        losses.append(float((np.log(left) + rest**2 / left).sum()))
    return float(_SHARES[int(np.argmin(losses))])


def _ridge(features: Array, goal: Array) -> Array:
    """Return weights by penalty, (penalty, feature)."""
    normal = features.T @ features
    each = normal + _PENALTIES[:, None, None] * np.eye(len(normal))
    found: Array = np.linalg.solve(each, (features.T @ goal)[:, None])[..., 0]
    return found
