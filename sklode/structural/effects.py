r"""What a column of X does: nothing, a straight line or a smooth curve, soon or late.

.. math:: \mathrm{effect}(t) = \sum_j \beta_j r_j(t), \quad
    \dot r_j = (b_j(u(t)) - r_j) / \tau, \quad \beta_j \sim N(0, 1)

with u a column of X, linear between its rows; b the line and the curve's columns; and
r = b where there is no memory :math:`\tau`. A curve is a natural cubic spline, whose
second derivative is equally likely anywhere; beyond what was seen it is straight.

Green and Silverman, "Nonparametric Regression and Generalized Linear Models" (1994),
chapter 2. Which there are is judged by the probability of the data: Durbin and Koopman
(2012), section 6.2.3, see `kalman`.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.interpolate import CubicSpline

from sklode.data.arrays import Array, Flags, Numbers
from sklode.structural.candidates import Candidate, kalman
from sklode.structural.channel_rows import ChannelRows
from sklode.structural.delays import N_DELAYS, earlier

_KNOTS = 8
_FEWEST_VALUES = 6  # different ones, of a column that may have a curve
# in usual gaps, to begin with: the most probable one lies near one
_MEMORIES = 2.0 ** np.arange(0.0, 10.0, 1.25)
_NEAR = 2.0 ** np.linspace(-1.0, 1.0, 17)
_SPANS = 10.0  # in the longest series, of the longest memory
_ODDS_OF_CURVE = 1.0
_ODDS_OF_MEMORY = math.log(len(_MEMORIES))
_ODDS_OF_DELAY = math.log(N_DELAYS)
# of some 130 options: days in a row, sizes, waves
_ODDS_OF_WAVES = 5.0
_WORTH = 0.1  # a change of effects, in natural logarithms
_SWEEPS = 4
ALWAYS, MONTH, HOLIDAYS = -1, -2, -3
"""Columns of effects that no X has: what is always there, months, and named days."""
_MONTH_WAVES = 4, 12  # smooth; as sharp as two or three days at its turn
_FEW_KNOTS, _FEW_WAVES = 5, 3  # of a curve that changes along the day
# waves of a day's shape: those that rows of an hour show, and of a quarter of one
_WAVES = 12, 48
_MOST_KINDS = 3  # of days, beside the usual one
# standard deviations of a day's shape, in spreads: a factor of three tells little more
_SIZES = 1.0, 0.3, 0.1
# the same of a named day, and what part of that names have of their own
_SIZES_OF_DAYS, _OWN = (3.0, 1.0, 0.3), 0.3
_SIZES_OF_LEVELS = 2.0, 0.7, 0.25, 0.08  # likewise, of what a category's level adds
_MOST_DAYS = 3  # in a row that are of one kind, as a long weekend
_FEWEST_DAYS = 2  # of a kind: two weeks
_MOST_STRETCHES = 5
# deviations of what stretches gain, in sum; of two, one gains a third of the other,
# of three a third may gain nothing
_PROVED, _PROVED_BY_FEW = 1.5, 1.2


class Effect(NamedTuple):
    """How a column of X acts, or the kind of day alone."""

    column: int  # of X, or `ALWAYS`
    knots: tuple[float, ...] = ()  # of the standardised column; none: a line
    memory: float = 0.0  # in usual gaps; 0: it acts at once
    days: tuple[int, ...] = ()  # of the week: it is of these alone; none: of all
    waves: int = 0  # of the day: its coefficients change along these
    size: float = 1.0  # standard deviation of what it adds, in spreads
    kinds: int = 0  # of named days, each of which adds to what all have in common
    sides: bool = False  # whether the days before and after named ones differ too
    levels: int = 0  # of a category, columns from this one on; 0: it is a number
    delay: float = 0.0  # in usual gaps, of a column of y; 0: it is one of X

    @property
    def log_odds(self) -> float:
        """What it takes off the log probability of a form that has it."""
        odds = _ODDS_OF_CURVE * bool(self.knots) + _ODDS_OF_MEMORY * (self.memory > 0)
        odds += _ODDS_OF_DELAY * (self.delay > 0)
        return odds + _ODDS_OF_WAVES * bool(self.waves)

    def name(self, controls: list[Any], cycle: tuple[str, Sequence[str]]) -> str:
        """Return what a reader would call it, by the names of X's columns.

        ``cycle`` names the day, or what stands for it, and the days of the week.
        """
        day, days = cycle
        if self.column == MONTH:
            return "month"
        if self.column == HOLIDAYS:
            return "holidays" + ", days beside them" * self.sides
        if self.column == ALWAYS:
            which = ", ".join(days[k] for k in self.days)
            return f"{day} of {which}" if self.days else f"{day}"
        if self.levels:
            name = controls[self.column].partition(" = ")[0]
            return f"{name} (levels{', late' * bool(self.memory)})"
        kind = "curve" if self.knots else "line"
        is_late = self.memory or self.delay
        how = f" along the {day}" if self.waves else ", late" if is_late else ""
        return f"{controls[self.column]} ({kind}{how})"

    @property
    def is_of_X(self) -> bool:
        """Whether it is of a column of X, not of y or of the calendar."""
        return self.column >= 0 and not self.delay

    @property
    def kind(self) -> Effect:
        """The same, but for how late it is."""
        return self._replace(memory=float(self.memory > 0), delay=float(self.delay > 0))

    @property
    def n_columns(self) -> int:
        """Number of its coefficients."""
        if self.column == HOLIDAYS:
            return (1 + self.kinds) * (3 if self.sides else 1)
        along = 2 * self.waves + (self.column == ALWAYS) if self.waves else 1
        return max(len(self.knots) - 1, self.levels, 1) * along

    def at(self, values: Array) -> Array:
        """Return b, (row, coefficient), at values of its column or its levels'."""
        if self.levels:
            return self.size * values
        if not self.knots:
            return values[:, None]
        inside = np.clip(values, self.knots[0], self.knots[-1])
        curve = _curve(self.knots)
        found = curve(inside) + (values - inside)[:, None] * curve(inside, 1)
        return np.column_stack([values, found])

    def along(self, columns: Array, clock: Array) -> Array:
        """Return columns b as they change with the clock, (row, coefficient).

        ``clock`` (row, 6) is the share of the day that has passed, the day of the week,
        the share of the month, and the kinds of three days, see `Calendar.at`. The
        shorter the wave, the less it is expected to add: its variance falls as 1 / k,
        as that of a season's does.
        """
        if self.column == HOLIDAYS:
            number = np.arange(1, self.kinds + 1)
            named = [
                part
                for kind in clock[:, 3 : 6 if self.sides else 4].T[:, :, None]
                for part in (kind > 0, _OWN * (kind == number))
            ]
            return self.size * np.hstack(named)
        if self.days:
            columns = columns * np.isin(clock[:, 1], self.days)[:, None]
        if self.waves:
            k = np.arange(1, self.waves + 1)
            place = clock[:, 2:3] if self.column == MONTH else clock[:, :1]
            angles = 2 * math.pi * place * k
            share = np.sqrt(1 / k)
            waves = [share * np.cos(angles), share * np.sin(angles)]
            if self.column == ALWAYS:
                waves.append(np.ones((len(clock), 1)))
            shape = np.hstack(waves) * (self.size / math.sqrt((1 / k).sum()))
            columns = (columns[:, :, None] * shape[:, None]).reshape(len(clock), -1)
        return columns


@functools.cache
def _curve(knots: tuple[float, ...]) -> Any:
    """Return a curve's columns; their squares add up to one, on average."""
    each = CubicSpline(knots, np.eye(len(knots)), bc_type="natural")
    bends, gaps = each(knots, 2), np.diff(knots)
    # second derivatives are straight between knots
    inner = np.diag(np.append(gaps, 0) + np.insert(gaps, 0, 0)) / 3
    inner += (np.diag(gaps, 1) + np.diag(gaps, -1)) / 6
    roughness, vectors = np.linalg.eigh(bends.T @ inner @ bends)
    weights = vectors[:, 2:] / np.sqrt(roughness[2:])  # the first two are straight
    weights /= math.sqrt((weights**2).sum(1).mean())
    return CubicSpline(knots, weights, bc_type="natural")


class Read(NamedTuple):
    """What effects may read, at rows of series: X, and y that may act late."""

    bounds: Numbers  # (series + 1,)
    times: Array  # (row,), in usual gaps since each series' first row
    columns: Array  # (row, control + channel), standardised; NaN where y is missing


def columns_of(
    effects: Sequence[Effect],
    known: Read,
    place: Numbers,
    seen: Read,
    series: Numbers,
    times: Array,
) -> list[Array]:
    """Return what each effect makes of columns at times of series, (row, column).

    X is that of the ``known`` rows at ``place``, a column of y what was ``seen``.
    """
    parts: list[Array] = []
    for effect in effects:
        k, n = effect.column, effect.levels
        if k < 0:
            parts.append(np.ones((len(times), 1)))
        elif effect.delay:
            given = seen.bounds, seen.times, seen.columns[:, k], series
            found = earlier(*given, times - effect.delay)
            parts.append(effect.at(np.nan_to_num(found)))
        else:
            own = known.columns
            found = effect.at(own[:, k : k + n] if n else own[:, k])
            if effect.memory:
                respond = kalman().respond
                found = respond(known.times, known.bounds, found, effect.memory)
            parts.append(found[place])
    return parts


def along_the_day(
    effects: Sequence[Effect], columns: list[Array], clock: Array
) -> Array:
    """Return the columns of effects as the clock changes them, (row, coefficient)."""
    pairs = zip(effects, columns, strict=True)
    found = [effect.along(own, clock) for effect, own in pairs]
    return np.hstack([np.zeros((len(clock), 0)), *found])


def places(effects: list[Effect]) -> dict[Effect, tuple[int, ...]]:
    """Return the columns of each effect among those of all."""
    ends = np.cumsum([0, *(effect.n_columns for effect in effects)]).tolist()
    pairs = zip(effects, itertools.pairwise(ends), strict=True)
    return {effect: tuple(range(*pair)) for effect, pair in pairs}


class Estimate(NamedTuple):
    """Effects, and their coefficients given a form's hyperparameters."""

    effects: tuple[Effect, ...] = ()
    coefficients: Any = None  # (series, coefficient)
    loss: float = 0.0  # what they add to minus the log probability
    response: Any = None  # (row,), what they add to y, in units of the states


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
        own, first = np.unique(series, return_index=True)
        pairs = zip(rows[first], bounds[own + 1], strict=True)
        kept = [np.arange(*pair) for pair in pairs]
        ends = np.append(0, np.cumsum([len(part) for part in kept]))
        every = np.concatenate(kept)
        return Inputs(
            read=Read(ends, times[every], columns[every]),
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
        found = columns_of(effects, read, rows, read, series, read.times[rows])
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
        memories = [0.0, *_MEMORIES[_MEMORIES <= span / _SPANS].tolist()]
        found, n_waves = [], self._waves
        of_levels = {first + k for first, n in self.blocks for k in range(n)}
        for k, values in enumerate(self._seen[:, : self.n_controls].T):
            if k in of_levels:
                continue
            kinds: list[tuple[float, ...]] = [()] if np.ptp(values) > 0 else []
            if kinds and len(np.unique(values)) >= _FEWEST_VALUES:
                kinds.append(_knots(values, _KNOTS))
            found.append([Effect(k, kind, m) for kind in kinds for m in memories])
            found.append([Effect(k, kind, m) for kind in kinds for m in memories[1:]])
            if n_waves and kinds:
                found.append(self._along(k, kinds, n_waves))
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
        for k, delays in self.delays:
            seen = self.read.columns[:, k]
            kinds = [(), _knots(seen[~np.isnan(seen)], _KNOTS)]
            found.append([Effect(k, kind, delay=d) for kind in kinds for d in delays])
        for k, n in self.blocks:
            sizes = itertools.product(_SIZES_OF_LEVELS, memories)
            found.append([Effect(k, (), m, size=s, levels=n) for s, m in sizes])
        if n_waves:
            several = sorted({min(n_waves, most) for most in _WAVES})
            for waves in several:
                found.append([Effect(ALWAYS, waves=waves, size=s) for s in _SIZES])
            kind = [
                Effect(ALWAYS, days=days, waves=waves, size=size)
                for waves in several
                for days in self._kinds()
                for size in _SIZES
            ]
            found += [kind] * _MOST_KINDS
        return found

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
                np.linspace(*pair, _MOST_STRETCHES + 1)[:-1].round() for pair in pairs
            ]
            return np.append(np.unique(np.concatenate(parts)), bounds[-1]).astype(int)
        ends, begins = [0], self._begins()
        for first, end in itertools.pairwise(bounds.tolist()):
            week = (np.cumsum(begins[first:end]) - 1) // self.n_days
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
        self, column: int, kinds: list[tuple[float, ...]], n_waves: int
    ) -> list[Effect]:
        values = self._seen[:, column]
        knots = [_knots(values, _FEW_KNOTS) if kind else () for kind in kinds]
        waves = min(n_waves, _WAVES[0] if len(kinds) == 1 else _FEW_WAVES)
        return [
            Effect(column, own, waves=waves, size=size)
            for own in knots
            for size in _SIZES
        ]


def _knots(values: Array, n: int) -> tuple[float, ...]:
    knots = np.unique(np.quantile(values, np.linspace(0, 1, n)))
    kept = np.diff(knots, prepend=-np.inf) > 1e-3 * np.ptp(knots)
    return tuple(knots[kept].tolist())


class _Judge:
    """How probable effects are, by what the filter makes of them.

    ``left`` is what known effects leave of y, by which errors are told.
    """

    def __init__(
        self,
        candidate: Candidate,
        span: float,
        table: ChannelRows,
        inputs: Inputs,
        left: Any,
    ) -> None:
        self._inputs, self._bounds = inputs, table.bounds
        # stretches of whole weeks, that tell by turns what others do
        self._stretches = inputs.stretches(table.bounds)
        self._first = np.searchsorted(self._stretches[:-1], table.bounds[:-1])
        space = candidate.space(span)
        found = candidate.filtered(space, table._replace(values=left), space.whole)
        gains = np.ascontiguousarray(found.gains[:, 0])
        self._given = *candidate.given(space, table), found.inverse_F, gains
        self._root = np.sqrt(found.inverse_F)[:, None]
        self._y = self._surprise(table.values[:, None])
        self._columns: dict[Effect, list[Array]] = {}
        self._products: dict[tuple[Effect, Effect | None], Array] = {}

    def _surprise(self, columns: Array) -> list[Array]:
        """Return what is not expected of columns, in deviations."""
        columns = np.ascontiguousarray(columns)
        expected = kalman().filter_columns(*self._given, columns)
        return np.split((columns - expected) * self._root, self._stretches[1:-1])

    def _of(self, effect: Effect) -> list[Array]:
        if effect not in self._columns:
            self._columns[effect] = self._surprise(self._inputs.columns([effect]))
        return self._columns[effect]

    def _product(self, one: Effect, other: Effect | None) -> Array:
        """Return (stretch, own, other); without another, with y."""
        # what several days have in common is the sum of what each has
        size = one.size * (1.0 if other is None else other.size)
        one = one._replace(size=1.0)
        other = None if other is None else other._replace(size=1.0)
        if (one, other) not in self._products:
            if len(one.days) > 1:
                days = [one._replace(days=(day,)) for day in one.days]
                found = np.sum([self._product(day, other) for day in days], axis=0)
            elif other is not None and len(other.days) > 1:
                found = np.swapaxes(self._product(other, one), 1, 2)
            else:
                columns = self._y if other is None else self._of(other)
                pairs = zip(self._of(one), columns, strict=True)
                found = np.stack([a.T @ b for a, b in pairs])
            self._products[one, other] = found
        return size * self._products[one, other]

    def products(self, one: Effect, others: list[Effect]) -> tuple[Array, Array]:
        """Return an effect's (series, own, other), and y's (series, own, 1)."""
        target, *found = (
            np.add.reduceat(self._product(one, other), self._first)
            for other in (None, *others)
        )
        return np.concatenate([target[..., :0], *found], axis=2), target

    def system(self, effects: list[Effect]) -> tuple[Array, Array]:
        """Return coefficients' inverse covariance, and their mean times it."""
        parts = [part for effect in effects for part in self.products(effect, effects)]
        n, size = len(self._bounds) - 1, sum(effect.n_columns for effect in effects)
        inner = np.concatenate([np.zeros((n, 0, size)), *parts[::2]], axis=1)
        told = np.concatenate([np.zeros((n, 0, 1)), *parts[1::2]], axis=1)
        return inner + np.eye(size), told

    def held_out(self, effects: list[Effect]) -> Array:
        """Return how much more probable effects make stretches, (stretch,), in logs.

        Coefficients are those of the other stretches of a series.
        """
        parts = [[self._product(a, b) for b in (None, *effects)] for a in effects]
        told = np.concatenate([part[0] for part in parts], axis=1)
        inner = np.concatenate(
            [np.concatenate(part[1:], axis=2) for part in parts], axis=1
        )
        series = np.repeat(
            np.arange(len(self._first)), np.diff([*self._first, len(inner)])
        )
        every = np.add.reduceat(inner, self._first)[series] + np.eye(inner.shape[1])
        others = np.add.reduceat(told, self._first)[series] - told
        found = np.linalg.solve(every - inner, others)
        gains: Array = (found * (told - 0.5 * inner @ found)).sum((1, 2))
        return gains

    def proves(self, effect: Effect, others: list[Effect]) -> bool:
        """Return whether more than one stretch tells of an effect beside others."""
        gains = self.held_out([effect, *others])
        if others:
            gains = gains - self.held_out(others)
        least = _PROVED if len(gains) > 3 else _PROVED_BY_FEW
        return bool(gains.sum() > least * math.sqrt(gains @ gains))

    def best(
        self, options: list[Effect], others: list[Effect]
    ) -> tuple[float, Effect | None]:
        """Return the most probable option beside others, and its gain."""
        inner, told = self.system(others)
        best: tuple[float, Effect | None] = 0.0, None
        for option in options:
            n = option.n_columns
            own, target = self.products(option, [option, *others])
            cross, own = own[..., n:], own[..., :n] + np.eye(n)
            solved = np.linalg.solve(
                inner, np.concatenate([np.swapaxes(cross, 1, 2), told], axis=2)
            )
            rest = cross @ solved
            gain = _evidence(own - rest[..., :-1], target - rest[..., -1:])
            gain -= self._inputs.log_odds(option)
            if gain > best[0] + _WORTH:
                best = gain, option
        return best


def _evidence(inner: Array, told: Array) -> float:
    """Return by how much coefficients make data more probable, in logs."""
    explained = (told * np.linalg.solve(inner, told)).sum()
    return 0.5 * float(explained - np.linalg.slogdet(inner)[1].sum())


def estimated(
    candidate: Candidate,
    span: float,
    table: ChannelRows,
    inputs: Inputs,
    start: Estimate,
    search: bool = True,
) -> Estimate:
    """Return the most probable effects; or of ``start``, coefficients."""
    table = candidate.own(table, span).in_units(table)
    known = inputs.response(start, table.lengths) if start.effects else 0.0
    judge = _Judge(candidate, span, table, inputs, table.values - known)
    effects = list(start.effects)
    if search:
        effects = _searched(judge, inputs.candidates(span), effects)
    if not effects:
        return Estimate()
    inner, told = judge.system(effects)
    found = np.linalg.solve(inner, told)[..., 0]
    loss = 0.5 * float((found**2).sum() + np.linalg.slogdet(inner)[1].sum())
    loss += sum(inputs.log_odds(effect) for effect in effects)
    return Estimate(tuple(effects), found, loss)


def _searched(
    judge: _Judge, candidates: list[list[Effect]], start: list[Effect]
) -> list[Effect]:
    chosen: dict[int, Effect] = {}
    kinds = [{_soon(effect) for effect in each} for each in candidates]
    for effect in start:  # each takes the first place that may hold it
        kind = _soon(effect)
        free = (k for k, own in enumerate(kinds) if k not in chosen and kind in own)
        chosen[next(free)] = effect
    first = {k: judge.best(each, [])[0] for k, each in enumerate(candidates)}
    order = sorted(first, key=lambda k: -first[k])
    for _ in range(_SWEEPS):
        before = dict(chosen)
        for k in order:
            others = [chosen[j] for j in sorted(chosen) if j != k]
            own = [chosen.pop(k)] if k in chosen else []
            _, best = judge.best([*own, *candidates[k]], others)
            if best is not None and best.memory:
                several = np.maximum(best.memory * _NEAR, _NEAR[0]).tolist()
                near = [best._replace(memory=memory) for memory in several]
                best = judge.best([best, *near], others)[1] or best
            if best is not None:
                chosen[k] = best
        if chosen == before:
            break
    for k in reversed(order):
        others = [chosen[j] for j in sorted(chosen) if j != k]
        needs_proof = k in chosen and (chosen[k].waves or chosen[k].delay)
        if needs_proof and not judge.proves(chosen[k], others):
            del chosen[k]
    return [chosen[k] for k in sorted(chosen)]


def _soon(effect: Effect) -> Effect:
    """Return an effect as one without memory or delay."""
    return effect._replace(memory=0.0, delay=0.0)
