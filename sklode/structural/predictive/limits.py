"""How far values have moved in as long a time: what forecasts stay within.

The bounds that users give are others: see `bounds`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sklode.data.arrays import Array, Flags, Numbers
from sklode.data.ticks import rows_before
from sklode.structural.candidates import Candidate
from sklode.structural.filter.system import States
from sklode.structural.rows import ChannelRows, Rows
from sklode.structural.scaling import Scaling

POINTS, BOUNDS = 2.0, 20.0
"""Times the largest move: of forecasts, and of intervals' ends and paths.

A season's last value may lie in a trough and its next peak above all others: twice.
"""
# rows that tell how far a series moves; of fewer, others are asked too
_FEWEST = 10
# lags whose moves are measured; of more, the next shorter one's counts
_EXACT = 64
# of a panel, of whose series some tell
_MOST_ROWS = 20_000
# usual gaps that rounding may be off by
_SAME = 1e-6


class LargestMoves(NamedTuple):
    """How far all series of the search moved, and what they held."""

    lags: Array  # (lag,), in usual gaps, increasing
    sizes: Array  # (lag,), the largest moves, in units of y; they do not fall
    hull: Array = np.array([-np.inf, np.inf])  # the least and the largest value of all
    growth: Array = np.zeros(2)  # of the hull in a usual gap

    @classmethod
    def measured(cls, table: ChannelRows) -> LargestMoves:
        """Measure them, at lags up to the longest span."""
        # rounded up, as // rounds down
        every = -(-len(table.values) // _MOST_ROWS)
        if every > 1 and len(table.lengths) > 1:
            table = table.where(table.series % every == 0)
        longest = max(float(table.spans.max(initial=0)), 1.0)
        lags = np.geomspace(min(1.0, longest / 2), longest, _EXACT)
        sizes = _moved(table, lags).max(axis=1, initial=0.0)
        hull, growth = _hull(table)
        return cls(lags=lags, sizes=sizes, hull=hull, growth=growth)

    def within(self, lags: Array) -> Array:
        """Return the largest in so long; beyond all rows in proportion."""
        longest = self.lags[-1]
        place = _last_within(self.lags, lags)
        beyond = np.maximum(lags / longest, 1.0)
        return np.asarray(self.sizes[place] * beyond)

    def held(self, few: Flags, centre: Array, lags: Array) -> Array:
        """Return what series of few rows stay within, (2, query), see `Limits`.

        The few rows of a rise do not say where it ends: the panel's values do. A series
        that is beyond all of these already is not held by them.
        """
        grown = np.multiply.outer(lags, self.growth)
        low, high = (self.hull + POINTS * grown).T
        least, most = self.hull
        is_held = few & (least <= centre) & (centre <= most)
        return np.where(is_held, [low, high], [[-np.inf], [np.inf]])


class Limits(NamedTuple):
    """What queries' answers stay within, see `within`."""

    centre: Array  # (query,), the nearest row's value
    reach: Array  # (query,), the largest move in as long a time
    effect: Array  # (query,), of X since that row, in states' units
    scalings: list[tuple[Scaling, Rows]]  # of which queries
    held: Array  # (2, query), what points stay within beside, see `LargestMoves.held`

    @classmethod
    @np.errstate(over="ignore", invalid="ignore")
    def of(
        cls,
        table: ChannelRows,
        queries: ChannelRows,
        known: LargestMoves,
        heaviest: list[tuple[Candidate, States, Rows]],
        step: float,
        shared: Flags | None = None,
    ) -> Limits:
        """Return those of queries, by the rows of a column.

        ``heaviest`` are candidates with their states, and which queries they are for.
        Queries that are ``shared`` ask the moves of all series. Where nothing has
        moved, and in series without rows, there are none.
        """
        series = queries.series
        row, lags = _nearest(table, queries)
        reach = _own(table, series, lags)
        few = (table.lengths[series] < _FEWEST) | (reach == 0)
        asks_all = few if shared is None else few | shared
        reach = np.where(asks_all, np.maximum(reach, known.within(lags)), reach)
        # an absurd value may be left as fast as it was reached: the row before is the
        # series' own, or the row itself. Row -1, of none, reads the 0 at the end
        values = np.append(table.values, 0.0)
        before = np.maximum(row - 1, table.bounds[series])
        before = np.minimum(before, row)
        centre = values[row]
        reach = np.maximum(reach, np.abs(centre - values[before]))
        reach = np.where((reach > 0) & (row >= 0), reach, np.inf)
        if step == 1:
            # counts move by whole numbers
            reach = np.ceil(reach - _SAME)
        effect, scalings = np.zeros(len(row)), []
        for candidate, states, mine in heaviest:
            columns, own = candidate.model.form.columns, series[mine]
            scalings.append((candidate.scaling.at(own), mine))
            if columns and len(table.times):
                # the first input is the clock; coefficients are the last states
                at_row = table.inputs[row[mine], 1:][:, columns]
                changes = queries.inputs[mine, 1:][:, columns] - at_row
                coefficients = states.means[own, -len(columns) :]
                effect[mine] = (changes * coefficients).sum(1)
        return cls(
            centre=centre,
            reach=reach,
            effect=effect,
            scalings=scalings,
            held=known.held(few & (row >= 0), centre, lags),
        )

    def closed(self, queries: Flags) -> Limits:
        """Return limits that leave nothing but zero at some queries."""
        return self._replace(
            centre=np.where(queries, 0.0, self.centre),
            reach=np.where(queries, 0.0, self.reach),
            effect=np.where(queries, 0.0, self.effect),
        )

    def points(self, values: Array) -> Array:
        """Return points, (query,), within limits: their own, and those of a panel."""
        low, high = self.ends(POINTS)
        held_low, held_high = self.held
        least, most = self._with_effect(low=held_low, high=held_high)
        low, high = np.maximum(low, least), np.minimum(high, most)
        return np.clip(values, low, high)

    def within(self, values: Array) -> Array:
        """Return ends of intervals, or paths, (..., query), within limits."""
        low, high = self.ends(BOUNDS)
        return np.clip(values, low, high)

    @np.errstate(over="ignore", invalid="ignore")
    def ends(self, times: float) -> tuple[Array, Array]:
        """Return how low and how high so many moves lead, (query,) each.

        What X does is known ahead and may be more than ever before: limits go with it.
        """
        most = times * self.reach
        return self._with_effect(low=self.centre - most, high=self.centre + most)

    @np.errstate(over="ignore", invalid="ignore")
    def _with_effect(self, low: Array, high: Array) -> tuple[Array, Array]:
        """Return limits, (query,) each, that X moves outward."""
        if not self.effect.any():
            return low, high
        moved_low, moved_high = low.copy(), high.copy()
        for one, mine in self.scalings:
            effect = self.effect[mine]
            moved_low[mine] = one.original(one.scaled(low[mine]) + effect)
            moved_high[mine] = one.original(one.scaled(high[mine]) + effect)
        return np.minimum(low, moved_low), np.maximum(high, moved_high)


def _hull(table: ChannelRows) -> tuple[Array, Array]:
    """Return the least and largest value, and by how much they grew in a usual gap.

    They grew since half of the longest series. Few series tell nothing.
    """
    if (table.lengths > 0).sum() < _FEWEST:
        return np.array([-np.inf, np.inf]), np.zeros(2)
    half = table.spans.max() / 2
    early = table.values[table.times <= table.starts[table.series] + half]
    hull = np.array([table.values.min(), table.values.max()])
    before = np.array([early.min(), early.max()])
    growth = (hull - before) / half if half > 0 else np.zeros(2)
    return hull, growth


@np.errstate(over="ignore")
def _moved(table: ChannelRows, lags: Array) -> Array:
    """Return each series' largest move within lags, (lag, series)."""
    found = np.zeros((len(lags), len(table.lengths)))
    filled = np.flatnonzero(table.lengths)
    if not len(filled):
        return found
    rows, firsts = np.arange(len(table.values)), table.bounds[filled]
    lows, highs = [table.values], [table.values]
    # a sparse table: the least and the largest of 1, 2, 4, ... rows from each one on,
    # each from two of half as many
    while 2 ** len(lows) <= table.lengths.max():
        half = 2 ** (len(lows) - 1)
        later = np.minimum(rows + half, rows[-1])
        lows.append(np.minimum(lows[-1], lows[-1][later]))
        highs.append(np.maximum(highs[-1], highs[-1][later]))
    low, high = np.stack(lows), np.stack(highs)
    for k, lag in enumerate(lags):
        until = table.times + lag + _SAME
        last = rows_before(table.bounds, table.times, table.series, until)
        # n rows are two runs of the largest power of two up to n, the first and the
        # last, which overlap: the least of the lesser, the largest of the larger
        level = np.log2(last - rows + 1).astype(np.int64)
        second = last + 1 - 2**level
        highest = np.maximum(high[level, rows], high[level, second])
        lowest = np.minimum(low[level, rows], low[level, second])
        # of series side by side, each from its first row to the next one's
        found[k, filled] = np.maximum.reduceat(highest - lowest, firsts)
    return found


def _last_within(lags: Array, asked: Array) -> Numbers:
    """Return the place of the longest of some lags up to each asked; else the first."""
    place = np.searchsorted(lags, asked + _SAME, side="right") - 1
    return np.maximum(place, 0)


def _own(table: ChannelRows, series: Numbers, lags: Array) -> Array:
    """Return how far queries' own series moved, see `LargestMoves.within`."""
    spans = np.where(table.spans > 0, table.spans, 1.0)[series]
    within = np.minimum(lags, spans)
    asked = np.unique(within)
    if len(asked) > _EXACT:
        asked = np.geomspace(asked[0], asked[-1], _EXACT)
    sizes = _moved(table, asked)[_last_within(asked, within), series]
    # a move over the span, in proportion to what is beyond it
    return np.asarray(sizes * lags / within)


def _nearest(table: ChannelRows, queries: ChannelRows) -> tuple[Numbers, Array]:
    """Return each query's nearest row, -1 of none, and the time to it.

    It is a series' usual gap at least: of less, no rows tell.
    """
    series, times = queries.series, queries.times
    first, end = table.bounds[:-1][series], table.bounds[1:][series]
    last = np.maximum(end - 1, first)
    before = rows_before(table.bounds, table.times, series, times + _SAME)
    # before a first row and after a last one there is one neighbour alone
    before, after = np.clip([before, before + 1], first, last)
    # an empty series at the end has its first row beyond all: it reads the 0
    known = np.append(table.times, 0.0)
    to_before = np.abs(times - known[before])
    to_after = np.abs(times - known[after])
    row = np.where(to_before <= to_after, before, after)
    to_nearest = np.minimum(to_before, to_after)
    lags = np.maximum(to_nearest, usual_gaps(table)[series])
    return np.where(end > first, row, -1), lags


def usual_gaps(table: ChannelRows) -> Array:
    """Return the median gap of each series; 1 of a lone row."""
    # from one series to the next there is no gap
    inside = np.diff(table.series) == 0
    gaps, series = np.diff(table.times)[inside], table.series[1:][inside]
    # sorted within each series: the median is in the middle
    ordered = np.append(gaps[np.lexsort((gaps, series))], 1.0)
    starts = np.searchsorted(series, np.arange(len(table.bounds)))
    middle = (starts[:-1] + starts[1:]) // 2
    found = ordered[np.minimum(middle, len(gaps))]
    return np.where(np.diff(starts) > 0, found, 1.0)
