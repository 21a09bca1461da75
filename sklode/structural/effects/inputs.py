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
from sklode.structural.effects.effect import (
    ALWAYS,
    HOLIDAYS,
    MEMORIES,
    MONTH,
    SHARE_OF_DAY,
    WEEKDAY,
    Effect,
    Read,
    along_the_day,
    columns_of,
)

# of a curve, at quantiles of the column;
# of one that changes along the day
_KNOTS, _FEW_KNOTS = 8, 5
_FEWEST_VALUES = 6  # different ones, of a column that may have a curve
_SPANS = 10.0  # in the longest series, of the longest memory
# of a month: smooth; as sharp as two or three days at its turn
_MONTH_WAVES = 4, 12
# of a day's shape: those that rows of
# an hour show, and of a quarter of one
_WAVES = 12, 48
_FEW_WAVES = 3  # of the day, along which a curve changes
_MOST_KINDS = 3  # of days, beside the usual one
# standard deviations, in spreads, of a day's shape: a factor of three
# tells little more; of a named day; of what a category's level adds
_SIZES = 1.0, 0.3, 0.1
_SIZES_OF_DAYS = 3.0, 1.0, 0.3
_SIZES_OF_LEVELS = 2.0, 0.7, 0.25, 0.08
_MOST_DAYS = 3  # in a row that are of one kind, as a long weekend
# of a kind: two weeks of it suffice, as the proof by stretches decides;
# that was chosen on the electricity load and a series of minutes
_FEWEST_DAYS = 2
_MOST_STRETCHES = 5  # of each series, see `effect_selection`
_LINE: tuple[float, ...] = ()  # its knots, beside those of a curve


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
        rows, bounds = self.rows[chosen], self.read.bounds
        series = self._series_of(rows)
        # all rows between the first and the
        # end of a series feed its memories
        own, first = np.unique(series, return_index=True)
        pairs = zip(rows[first], bounds[own + 1], strict=True)
        kept = [np.arange(start, end) for start, end in pairs]
        lengths = [len(part) for part in kept]
        every = np.concatenate(kept)
        read = Read(
            bounds=np.append(0, np.cumsum(lengths)),
            times=self.read.times[every],
            columns=self.read.columns[every],
        )
        # both are sorted, so that a row's place
        # among those kept is its number there
        new_rows = np.searchsorted(every, rows)
        clock = self.clock[every]
        return self._replace(read=read, clock=clock, rows=new_rows)

    def _series_of(self, rows: Numbers) -> Numbers:
        """Return the series of rows."""
        return np.searchsorted(self.read.bounds, rows, side="right") - 1

    def columns(self, effects: Sequence[Effect]) -> Array:
        """Return the columns of effects at observed rows."""
        found = columns_of(
            effects,
            known=self.read,
            place=self.rows,
            seen=self.read,
            series=self._series_of(self.rows),
            times=self.read.times[self.rows],
        )
        return along_the_day(effects, found, self.clock[self.rows])

    def response(self, estimate: Estimate, lengths: Numbers) -> Array:
        """Return what effects add at the rows of series, (row,)."""
        columns = self.columns(estimate.effects)
        each = np.repeat(estimate.coefficients, lengths, axis=0)
        response: Array = (columns * each).sum(1)
        return response

    def log_odds(self, effect: Effect) -> float:
        """Return what one takes off the log probability: of many columns, few act."""
        n_columns = 1
        if effect.delay:
            n_columns = len(self.delays)
        elif effect.column >= 0:
            # a category is one column, not as many as it has levels
            n_columns = self.n_controls - sum(n - 1 for _, n in self.blocks)
        return effect.log_odds + math.log(n_columns)

    def candidates(self, span: float) -> list[list[Effect]]:
        """Return, of each effect that there may be, the forms it may have.

        A constant column has none; others may act at once and late. Where rows show a
        day's shape and a week's days, each column may act along the day, and some days
        may have a shape of their own.
        """
        late = MEMORIES[MEMORIES <= span / _SPANS].tolist()
        n_waves = self._waves
        found: list[list[Effect]] = []
        in_blocks = {first + k for first, n in self.blocks for k in range(n)}
        for column in range(self.n_controls):
            if column not in in_blocks:
                found += self._of_number(column, late, n_waves)
        found += self._of_calendar()
        for column, delays in self.delays:
            found.append(self._of_delayed(column, delays))
        for first, n in self.blocks:
            of_category = [
                Effect(first, memory=memory, size=size, levels=n)
                for size in _SIZES_OF_LEVELS
                for memory in [0.0, *late]
            ]
            found.append(of_category)
        if n_waves:
            found += self._shapes_of_days(n_waves)
        return found

    def _of_number(
        self, column: int, late: list[float], n_waves: int
    ) -> list[list[Effect]]:
        """Return the forms of effects of a column that is a number."""
        values = self.read.columns[self.rows, column]
        if not np.ptp(values) > 0:
            shapes = []
        elif len(np.unique(values)) < _FEWEST_VALUES:
            shapes = [_LINE]
        else:
            shapes = [_LINE, _knots(values, _KNOTS)]
        # a column may have two effects, of which the second is late
        found = [
            [
                Effect(column, shape, memory=memory)
                for shape in shapes
                for memory in memories
            ]
            for memories in ([0.0, *late], late)
        ]
        if not (n_waves and shapes):
            return found
        # a curve takes more coefficients than a
        # line, so it has fewer knots and waves
        most_waves = _WAVES[0]
        if len(shapes) > 1:
            shapes = [_LINE, _knots(values, _FEW_KNOTS)]
            most_waves = _FEW_WAVES
        waves = min(n_waves, most_waves)
        along = [
            Effect(column, shape, waves=waves, size=size)
            for shape in shapes
            for size in _SIZES
        ]
        return [*found, along]

    def _of_delayed(self, column: int, delays: Array) -> list[Effect]:
        """Return the forms of the effect of a column of y, after delays."""
        values = self.read.columns[:, column]
        shapes = [_LINE, _knots(values[~np.isnan(values)], _KNOTS)]
        return [Effect(column, shape, delay=d) for shape in shapes for d in delays]

    def _of_calendar(self) -> list[list[Effect]]:
        """Return the forms of the month's and of named days' effects."""
        found = []
        if self.has_month:
            of_month = [
                Effect(MONTH, waves=waves, size=size)
                for waves in _MONTH_WAVES
                for size in _SIZES
            ]
            found.append(of_month)
        if self.n_kinds:
            of_days = [
                Effect(HOLIDAYS, size=size, kinds=self.n_kinds, sides=sides)
                for sides in (False, True)
                for size in _SIZES_OF_DAYS
            ]
            found.append(of_days)
        return found

    def _shapes_of_days(self, n_waves: int) -> list[list[Effect]]:
        """Return the forms of the shape of all days, and of those of some kinds."""
        several = sorted({min(n_waves, most) for most in _WAVES})
        of_all = [
            [Effect(ALWAYS, waves=waves, size=size) for size in _SIZES]
            for waves in several
        ]
        of_kind = [
            Effect(ALWAYS, days=days, waves=waves, size=size)
            for waves in several
            for days in self._kinds()
            for size in _SIZES
        ]
        # each kind has the same forms to choose from
        return of_all + [of_kind] * _MOST_KINDS

    def _kinds(self) -> list[tuple[int, ...]]:
        """Return days in a row that may be of one kind, if they were seen often."""
        days = self.clock[self.rows, WEEKDAY].astype(np.int64)
        seen = np.bincount(days[self._begins()], minlength=self.n_days + 1)
        # all days of the week are no kind; what
        # begins on Sunday goes on on Monday
        longest = min(_MOST_DAYS, self.n_days - 1)
        runs = {
            tuple(sorted((first + k) % self.n_days for k in range(n)))
            for n in range(1, longest + 1)
            for first in range(self.n_days)
        }
        if self.n_kinds:
            # named days are one more day, that may be of the same kind
            runs |= {(*run, self.n_days) for run in [*runs, ()]}
        return [run for run in sorted(runs) if seen[[*run]].sum() >= _FEWEST_DAYS]

    def stretches(self, bounds: Numbers) -> Numbers:
        """Return the bounds of a few stretches of each series.

        They are of whole weeks where rows have these. Where nothing has to be proved,
        each series is one.
        """
        pairs = itertools.pairwise(bounds.tolist())
        if self.n_days:
            begins = self._begins()
            n_days = self.n_days
            parts = [_weeks(first, end, begins, n_days) for first, end in pairs]
        elif self.has_month or self.n_kinds or self.delays:
            # equal ones; a short series has
            # fewer, as some begin at one row
            starts = [
                np.linspace(first, end, _MOST_STRETCHES + 1)[:-1].round()
                for first, end in pairs
            ]
            parts = [np.unique(np.concatenate(starts))]
        else:
            return bounds
        return np.append(np.concatenate(parts), bounds[-1]).astype(int)

    def _begins(self) -> Flags:
        """Return the rows at which a day begins, or the share of one falls."""
        share = self.clock[self.rows, SHARE_OF_DAY]
        day = self.clock[self.rows, WEEKDAY]
        return np.append(True, (np.diff(day) != 0) | (np.diff(share) < 0))

    @property
    def _waves(self) -> int:
        """Number of waves of a day that rows can show; 0: no shape."""
        if not self.n_days:
            return 0
        shares = self.clock[self.rows, SHARE_OF_DAY]
        n_stamps = len(np.unique(shares.round(4)))
        # uneven stamps are all different: a
        # usual day's rows tell how fine they are
        a_day = len(shares) // self._begins().sum()
        n_rows = max(a_day, 2 * _WAVES[0])
        # a wave takes two stamps (Nyquist)
        return int(min(n_stamps // 2, n_rows // 2, _WAVES[-1]))


def _weeks(first: int, end: int, begins: Flags, n_days: int) -> Numbers:
    """Return the first rows of a series' stretches of whole weeks."""
    if end == first:
        return np.array([first])
    # the number of days that began, in whole weeks
    week = (np.cumsum(begins[first:end]) - 1) // n_days
    n_weeks = int(week[-1]) + 1
    n = min(n_weeks, _MOST_STRETCHES)
    # as many weeks in each stretch as can be
    stretch = week * n // n_weeks
    return first + np.searchsorted(stretch, np.arange(n))


def _knots(values: Array, n: int) -> tuple[float, ...]:
    """Return knots at quantiles, but for those next to each other."""
    knots = np.unique(np.quantile(values, np.linspace(0, 1, n)))
    # from infinity on, so that the first one stays
    kept = np.diff(knots, prepend=-np.inf) > 1e-3 * np.ptp(knots)
    return tuple(knots[kept].tolist())
