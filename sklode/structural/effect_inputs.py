"""What effects may read at rows of series, and the forms that they may have.

Tested in tests/structural/test_effects.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sklode.data.arrays import Array, Flags, Numbers
from sklode.structural.effects import (
    ALWAYS,
    HOLIDAYS,
    MEMORIES,
    MONTH,
    Effect,
    Read,
    along_the_day,
    columns_of,
)

# of a curve, at quantiles of the column; of one that changes along the day
_KNOTS, _FEW_KNOTS = 8, 5
_FEWEST_VALUES = 6  # different ones, of a column that may have a curve
_SPANS = 10.0  # in the longest series, of the longest memory
# of a month: smooth; as sharp as two or three days at its turn
_MONTH_WAVES = 4, 12
# of a day's shape: those that rows of an hour show, and of a quarter of one
_WAVES = 12, 48
_FEW_WAVES = 3  # of the day, along which a curve changes
_MOST_KINDS = 3  # of days, beside the usual one
# standard deviations of a day's shape, in spreads: a factor of three tells little more
_SIZES = 1.0, 0.3, 0.1
_SIZES_OF_DAYS = 3.0, 1.0, 0.3  # the same of a named day
_SIZES_OF_LEVELS = 2.0, 0.7, 0.25, 0.08  # likewise, of what a category's level adds
_MOST_DAYS = 3  # in a row that are of one kind, as a long weekend
# of a kind: two weeks of it suffice, as the proof by stretches decides; that was
# chosen on the electricity load and a series of minutes
_FEWEST_DAYS = 2
_MOST_STRETCHES = 5  # of each series, see `effect_selection`


class Estimate(NamedTuple):
    """Effects, and their coefficients given a form's hyperparameters."""

    effects: tuple[Effect, ...] = ()
    coefficients: Array = np.zeros((0, 0))  # (series, coefficient)
    loss: float = 0.0  # what they add to minus the log probability
    response: Array = np.zeros(0)  # (row,), what they add to y, in states' units


class Inputs(NamedTuple):
    """What effects may read at rows of series, all of which memories need."""

    read: Read
    n_controls: int  # columns of X
    clock: Array  # (row, 6), see `Effect.along`
    n_days: int  # of the week; 0: rows show no day's shape, or no week
    rows: Numbers  # those at which a channel was observed, sorted
    has_month: bool = False  # whether rows may show one
    n_kinds: int = 0  # of named days; 0: none are known
    blocks: tuple[tuple[int, int], ...] = ()  # of controls, see `Known`
    delays: tuple[tuple[int, Array], ...] = ()
    """Columns of y among controls that may act late, and after which delays."""

    def at(self, chosen: Numbers) -> Inputs:
        """Return those of some observed rows, from first ones on."""
        rows = self.rows[chosen]
        bounds, times, columns = self.read
        series = np.searchsorted(bounds, rows, side="right") - 1
        # all rows between the first and the end of a series feed its memories
        own, first = np.unique(series, return_index=True)
        pairs = zip(rows[first], bounds[own + 1], strict=True)
        kept = [np.arange(start, end) for start, end in pairs]
        ends = np.append(0, np.cumsum([len(part) for part in kept]))
        every = np.concatenate(kept)
        return Inputs(
            read=Read(bounds=ends, times=times[every], columns=columns[every]),
            n_controls=self.n_controls,
            clock=self.clock[every],
            n_days=self.n_days,
            rows=np.searchsorted(every, rows),
            has_month=self.has_month,
            n_kinds=self.n_kinds,
            blocks=self.blocks,
            delays=self.delays,
        )

    @property
    def _seen(self) -> Array:
        """Columns at observed rows."""
        return self.read.columns[self.rows]

    def columns(self, effects: Sequence[Effect]) -> Array:
        """Return the columns of effects at observed rows."""
        rows, read = self.rows, self.read
        series = np.searchsorted(read.bounds, rows, side="right") - 1
        found = columns_of(
            effects,
            known=read,
            place=rows,
            seen=read,
            series=series,
            times=read.times[rows],
        )
        return along_the_day(effects, found, self.clock[rows])

    def response(self, estimate: Estimate, lengths: Numbers) -> Array:
        """Return what effects add at the rows of series, (row,)."""
        each = np.repeat(estimate.coefficients, lengths, axis=0)
        response: Array = (self.columns(estimate.effects) * each).sum(1)
        return response

    def log_odds(self, effect: Effect) -> float:
        """Return what one takes off the log probability: of many columns, few act."""
        n_columns = 1
        if effect.delay:
            n_columns = len(self.delays)
        elif effect.column >= 0:  # a category is one
            n_columns = self.n_controls - sum(n - 1 for _, n in self.blocks)
        return effect.log_odds + math.log(n_columns)

    def candidates(self, span: float) -> list[list[Effect]]:
        """Return, of each effect that there may be, the forms it may have.

        A constant column has none; others may act at once and late. Where rows show a
        day's shape and a week's days, each column may act along the day, and some days
        may have a shape of their own.
        """
        memories = [0.0, *MEMORIES[MEMORIES <= span / _SPANS].tolist()]
        n_waves = self._waves
        found: list[list[Effect]] = []
        of_levels = {first + k for first, n in self.blocks for k in range(n)}
        for k, values in enumerate(self._seen[:, : self.n_controls].T):
            if k in of_levels:
                continue
            # a line has no knots, a curve some
            shapes: list[tuple[float, ...]] = [()] if np.ptp(values) > 0 else []
            if shapes and len(np.unique(values)) >= _FEWEST_VALUES:
                shapes.append(_knots(values, _KNOTS))
            # the first memory is none: a second effect of a column is late
            for some in (memories, memories[1:]):
                found.append(
                    [Effect(k, shape, memory=m) for shape in shapes for m in some]
                )
            if n_waves and shapes:
                found.append(self._along(k, shapes, n_waves))
        found += self._of_calendar()
        for k, delays in self.delays:
            seen = self.read.columns[:, k]
            shapes = [(), _knots(seen[~np.isnan(seen)], _KNOTS)]
            found.append(
                [Effect(k, shape, delay=d) for shape in shapes for d in delays]
            )
        for k, n in self.blocks:
            sizes = itertools.product(_SIZES_OF_LEVELS, memories)
            found.append([Effect(k, memory=m, size=s, levels=n) for s, m in sizes])
        if n_waves:
            found += self._shapes_of_days(n_waves)
        return found

    def _of_calendar(self) -> list[list[Effect]]:
        """Return the forms of the month's and of named days' effects."""
        found = []
        if self.has_month:
            found.append(
                [
                    Effect(MONTH, waves=waves, size=size)
                    for waves in _MONTH_WAVES
                    for size in _SIZES
                ]
            )
        if self.n_kinds:
            found.append(
                [
                    Effect(HOLIDAYS, size=size, kinds=self.n_kinds, sides=sides)
                    for sides in (False, True)
                    for size in _SIZES_OF_DAYS
                ]
            )
        return found

    def _shapes_of_days(self, n_waves: int) -> list[list[Effect]]:
        """Return the forms of the shape of all days, and of those of some kinds."""
        several = sorted({min(n_waves, most) for most in _WAVES})
        found = [
            [Effect(ALWAYS, waves=waves, size=size) for size in _SIZES]
            for waves in several
        ]
        kind = [
            Effect(ALWAYS, days=days, waves=waves, size=size)
            for waves in several
            for days in self._kinds()
            for size in _SIZES
        ]
        return found + [kind] * _MOST_KINDS

    def _kinds(self) -> list[tuple[int, ...]]:
        """Return days in a row that may be of one kind, if they were seen often."""
        days = self.clock[self.rows, 1][self._begins()].astype(np.int64)
        seen = np.bincount(days, minlength=self.n_days + 1)
        runs = {
            tuple(sorted((first + k) % self.n_days for k in range(n)))
            for n in range(1, min(_MOST_DAYS, self.n_days - 1) + 1)
            for first in range(self.n_days)
        }
        if self.n_kinds:  # named days are one more day, that may be of the same kind
            runs |= {(*run, self.n_days) for run in [*runs, ()]}
        return [run for run in sorted(runs) if seen[[*run]].sum() >= _FEWEST_DAYS]

    def stretches(self, bounds: Numbers) -> Numbers:
        """Return the bounds of a few stretches of whole weeks of each series."""
        if not self.n_days:
            if not (self.has_month or self.n_kinds or self.delays):
                return bounds
            pairs = itertools.pairwise(bounds.tolist())
            parts = [
                np.linspace(first, end, _MOST_STRETCHES + 1)[:-1].round()
                for first, end in pairs
            ]
            return np.append(np.unique(np.concatenate(parts)), bounds[-1]).astype(int)
        ends, begins = [0], self._begins()
        for first, end in itertools.pairwise(bounds.tolist()):
            week = (np.cumsum(begins[first:end]) - 1) // self.n_days
            # as many weeks in each stretch as can be
            n = min(int(week[-1]) + 1, _MOST_STRETCHES) if end > first else 1
            stretch = week * n // (int(week[-1]) + 1) if end > first else week
            ends += (first + np.searchsorted(stretch, np.arange(1, n))).tolist()
            ends.append(end)
        return np.array(ends)

    def _begins(self) -> Flags:
        """Return the rows at which a day begins, or the share of one falls."""
        share, day = self.clock[self.rows, :2].T
        return np.append(True, (np.diff(day) != 0) | (np.diff(share) < 0))

    @property
    def _waves(self) -> int:
        """Number of waves of a day that rows can show; 0: no shape."""
        if not self.n_days:
            return 0
        n_stamps = len(np.unique(self.clock[self.rows, 0].round(4)))
        # uneven stamps are all different: a usual day's rows tell how fine they are
        n_rows = max(len(self.rows) // self._begins().sum(), 2 * _WAVES[0])
        return int(min(n_stamps // 2, n_rows // 2, _WAVES[-1]))

    def _along(
        self, column: int, shapes: list[tuple[float, ...]], n_waves: int
    ) -> list[Effect]:
        """Return the forms of a column's effect that changes along the day."""
        values = self._seen[:, column]
        knots = [_knots(values, _FEW_KNOTS) if shape else () for shape in shapes]
        waves = min(n_waves, _WAVES[0] if len(shapes) == 1 else _FEW_WAVES)
        return [
            Effect(column, own, waves=waves, size=size)
            for own in knots
            for size in _SIZES
        ]


def _knots(values: Array, n: int) -> tuple[float, ...]:
    """Return knots at quantiles, but for those next to each other."""
    knots = np.unique(np.quantile(values, np.linspace(0, 1, n)))
    kept = np.diff(knots, prepend=-np.inf) > 1e-3 * np.ptp(knots)
    return tuple(knots[kept].tolist())
