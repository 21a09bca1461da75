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

from sklode.data.arrays import Array, Numbers
from sklode.levels.components import Component, kalman
from sklode.levels.table import Table

_KNOTS = 8
_FEWEST_VALUES = 6  # different ones, of a column that may have a curve
# in usual gaps, to begin with: the most probable one lies near one
_MEMORIES = 2.0 ** np.arange(0.0, 10.0, 1.25)
_NEAR = 2.0 ** np.linspace(-1.0, 1.0, 17)
_SPANS = 10.0  # in the longest series, of the longest memory
_ODDS_OF_CURVE = 1.0
_ODDS_OF_MEMORY = math.log(len(_MEMORIES))
_WORTH = 0.1  # a change of effects, in natural logarithms
_SWEEPS = 4


class Effect(NamedTuple):
    """How a column of X acts."""

    column: int
    knots: tuple[float, ...] = ()  # of the standardised column; none: a line
    memory: float = 0.0  # in usual gaps; 0: it acts at once

    @property
    def log_odds(self) -> float:
        """What it takes off the log probability of a form that has it."""
        return _ODDS_OF_CURVE * bool(self.knots) + _ODDS_OF_MEMORY * (self.memory > 0)

    def name(self, controls: list[Any]) -> str:
        """Return what a reader would call it, by the names of X's columns."""
        return f"{controls[self.column]} ({'curve' if self.knots else 'line'})"

    @property
    def kind(self) -> Effect:
        """The same, but for how long its memory is."""
        return self._replace(memory=float(self.memory > 0))

    @property
    def n_columns(self) -> int:
        """Number of its coefficients."""
        return max(len(self.knots) - 1, 1)

    def at(self, values: Array) -> Array:
        """Return b, (row, coefficient), at values of its column."""
        if not self.knots:
            return values[:, None]
        inside = np.clip(values, self.knots[0], self.knots[-1])
        curve = _curve(self.knots)
        found = curve(inside) + (values - inside)[:, None] * curve(inside, 1)
        return np.column_stack([values, found])


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


def columns_of(
    effects: Sequence[Effect], bounds: Numbers, times: Array, controls: Array
) -> Array:
    """Return the columns of effects at all rows, (row, coefficient)."""
    parts: list[Array] = [np.zeros((len(times), 0))]
    for effect in effects:
        found = effect.at(controls[:, effect.column])
        if effect.memory:
            found = kalman().respond(times, bounds, found, effect.memory)
        parts.append(found)
    return np.hstack(parts)


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
    """X at rows of series, all of which memories need."""

    bounds: Numbers  # (series + 1,)
    times: Array  # (row,)
    controls: Array  # (row, control)
    rows: Numbers  # those at which a channel was observed, sorted

    def at(self, chosen: Numbers) -> Inputs:
        """Return those of some observed rows, from first ones on."""
        rows = self.rows[chosen]
        series = np.searchsorted(self.bounds, rows, side="right") - 1
        own, first = np.unique(series, return_index=True)
        pairs = zip(rows[first], self.bounds[own + 1], strict=True)
        kept = [np.arange(*pair) for pair in pairs]
        ends = np.append(0, np.cumsum([len(part) for part in kept]))
        every = np.concatenate(kept)
        place = np.searchsorted(every, rows)
        return Inputs(ends, self.times[every], self.controls[every], place)

    def columns(self, effects: Sequence[Effect]) -> Array:
        """Return the columns of effects at observed rows."""
        return columns_of(effects, *self[:3])[self.rows]

    def response(self, estimate: Estimate, lengths: Numbers) -> Array:
        """Return what effects add at the rows of series, (row,)."""
        each = np.repeat(estimate.coefficients, lengths, axis=0)
        response: Array = (self.columns(estimate.effects) * each).sum(1)
        return response

    def candidates(self, span: float) -> list[list[Effect]]:
        """Return the effects that columns may have; of a constant none."""
        memories = [0.0, *_MEMORIES[_MEMORIES <= span / _SPANS].tolist()]
        found = []
        for k, values in enumerate(self.controls[self.rows].T):
            kinds: list[tuple[float, ...]] = [()] if np.ptp(values) > 0 else []
            if kinds and len(np.unique(values)) >= _FEWEST_VALUES:
                kinds.append(_knots(values))
            found.append([Effect(k, kind, m) for kind in kinds for m in memories])
        return found


def _knots(values: Array) -> tuple[float, ...]:
    knots = np.unique(np.quantile(values, np.linspace(0, 1, _KNOTS)))
    kept = np.diff(knots, prepend=-np.inf) > 1e-3 * np.ptp(knots)
    return tuple(knots[kept].tolist())


class _Judge:
    """How probable effects are, by what the filter makes of them.

    ``left`` is what known effects leave of y, by which errors are told.
    """

    def __init__(
        self, component: Component, span: float, table: Table, inputs: Inputs, left: Any
    ) -> None:
        self._inputs, self._bounds = inputs, table.bounds
        space = component.space(span)
        found = component.filtered(space, table._replace(values=left), space.whole)
        gains = np.ascontiguousarray(found.gains[:, 0])
        self._given = *component.given(space, table), found.inverse_F, gains
        self._root = np.sqrt(found.inverse_F)[:, None]
        self._y = self._surprise(table.values[:, None])
        self._columns: dict[Effect, list[Array]] = {}

    def _surprise(self, columns: Array) -> list[Array]:
        """Return what is not expected of columns, in deviations."""
        columns = np.ascontiguousarray(columns)
        expected = kalman().filter_columns(*self._given, columns)
        return np.split((columns - expected) * self._root, self._bounds[1:-1])

    def _of(self, effect: Effect) -> list[Array]:
        if effect not in self._columns:
            self._columns[effect] = self._surprise(self._inputs.columns([effect]))
        return self._columns[effect]

    def products(self, one: Effect, others: list[Effect]) -> tuple[Array, Array]:
        """Return an effect's (series, own, other), and y's (series, own, 1)."""
        several = [self._y, *map(self._of, others)]
        target, *found = (
            np.stack([a.T @ b for a, b in zip(self._of(one), other, strict=True)])
            for other in several
        )
        return np.concatenate([target[..., :0], *found], axis=2), target

    def system(self, effects: list[Effect]) -> tuple[Array, Array]:
        """Return coefficients' inverse covariance, and their mean times it."""
        parts = [part for effect in effects for part in self.products(effect, effects)]
        n, size = len(self._bounds) - 1, sum(effect.n_columns for effect in effects)
        inner = np.concatenate([np.zeros((n, 0, size)), *parts[::2]], axis=1)
        told = np.concatenate([np.zeros((n, 0, 1)), *parts[1::2]], axis=1)
        return inner + np.eye(size), told

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
            solved = np.linalg.solve(inner, np.concatenate([cross.mT, told], axis=2))
            rest = cross @ solved
            gain = _evidence(own - rest[..., :-1], target - rest[..., -1:])
            gain -= option.log_odds
            if gain > best[0] + _WORTH:
                best = gain, option
        return best


def _evidence(inner: Array, told: Array) -> float:
    """Return by how much coefficients make data more probable, in logs."""
    explained = (told * np.linalg.solve(inner, told)).sum()
    return 0.5 * float(explained - np.linalg.slogdet(inner)[1].sum())


def estimated(
    component: Component,
    span: float,
    table: Table,
    inputs: Inputs,
    start: Estimate,
    search: bool = True,
) -> Estimate:
    """Return the most probable effects; or of ``start``, coefficients."""
    table = component.own(table, span).in_units(table)
    known = inputs.response(start, table.lengths) if start.effects else 0.0
    judge = _Judge(component, span, table, inputs, table.values - known)
    chosen: dict[int, Effect] = {effect.column: effect for effect in start.effects}
    if search:
        chosen = _searched(judge, inputs.candidates(span), chosen)
    effects = [chosen[k] for k in sorted(chosen)]
    if not effects:
        return Estimate()
    inner, told = judge.system(effects)
    found = np.linalg.solve(inner, told)[..., 0]
    loss = 0.5 * float((found**2).sum() + np.linalg.slogdet(inner)[1].sum())
    loss += sum(effect.log_odds for effect in effects)
    return Estimate(tuple(effects), found, loss)


def _searched(
    judge: _Judge, candidates: list[list[Effect]], chosen: dict[int, Effect]
) -> dict[int, Effect]:
    first = {k: judge.best(each, [])[0] for k, each in enumerate(candidates)}
    order = sorted(first, key=lambda k: -first[k])
    for _ in range(_SWEEPS):
        before = dict(chosen)
        for k in order:
            others = [chosen[j] for j in sorted(chosen) if j != k]
            own = [chosen.pop(k)] if k in chosen else []
            _, best = judge.best([*own, *candidates[k]], others)
            if best is not None:
                near = (best._replace(memory=best.memory * by) for by in _NEAR)
                _, finer = judge.best([best, *near] if best.memory else [], others)
                chosen[k] = finer or best
        if chosen == before:
            break
    return chosen
