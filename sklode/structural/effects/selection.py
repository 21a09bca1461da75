"""Which effects there are, by how probable they make the rows.

Effects and their coefficients are found given a form's hyperparameters. As a filter is
linear, it makes of each column of an effect what it makes of y: coefficients are those
of an ordinary regression of innovations on innovations. Durbin and Koopman (2012),
section 6.2.3, see `filter.forward.filter_columns`.

Tested in tests/structural/effects/test_effect.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from sklode.data.arrays import Array
from sklode.structural.candidates import Candidate, forward
from sklode.structural.effects.effect import Effect
from sklode.structural.effects.inputs import Estimate, Inputs
from sklode.structural.effects.lags import NOW, Memory
from sklode.structural.rows import ChannelRows

_WORTH = 0.1  # a change of effects, in natural logarithms
_SWEEPS = 4  # over all places, if effects go on to change
# An effect is proved where what folds gain is in sum so many times the
# root of the sum of their squares. Of n equal gains that is the root of n:
# three of many folds must gain alike. Of two folds the lesser must
# gain a quarter of the other, of three one may gain nothing.
_PROVED, _PROVED_BY_FEW = 1.5, 1.2


# effects by place: what may act at once
# and late, or along the day, has several
_Held: TypeAlias = dict[int, Effect]


class EffectJudge:
    """How probable effects are, by what a candidate's filter makes of them.

    Errors are moments by what effects that are known, those of ``start``, leave of y.
    """

    def __init__(
        self,
        candidate: Candidate,
        span: float,
        table: ChannelRows,
        inputs: Inputs,
        start: Estimate,
    ) -> None:
        self._start, self._inputs, self._span = start, inputs, span
        table = candidate.own(table, span).scaling.rows(table)
        left = table
        if start.effects:
            response = inputs.response(start, table.lengths)
            left = table._replace(values=table.values - response)
        # folds of whole weeks, that tell by turns what others do
        self._folds = inputs.folds(table.bounds)
        # of each series the first fold, for sums over these
        starts = self._folds[:-1]
        self._first = np.searchsorted(starts, table.bounds[:-1])
        model, space = candidate.model, candidate.model.space(span)
        found = model.filtered(space, left, space.whole)
        self._system = space.system(model.schedule(table))
        self._inverse_F = found.inverse_F
        self._root = np.sqrt(found.inverse_F)[:, None]
        self._gains = np.ascontiguousarray(found.gains[:, 0])
        self._y = self._surprise(table.values[:, None])
        self._columns: dict[Effect, list[Array]] = {}
        self._products: dict[tuple[Effect, Effect | None], Array] = {}

    def _surprise(self, columns: Array) -> list[Array]:
        """Return what is not expected of columns, in deviations, by fold."""
        columns = np.ascontiguousarray(columns)
        expected = forward().filter_columns(
            self._system,
            inverse_F=self._inverse_F,
            gains=self._gains,
            values=columns,
        )
        # in place: these are most of the memory that a selection goes through
        innovations = np.subtract(columns, expected, out=expected)
        innovations *= self._root
        return np.split(innovations, self._folds[1:-1])

    def _of(self, effect: Effect) -> list[Array]:
        """Return an effect's innovations, which many pairs ask for."""
        if effect not in self._columns:
            columns = self._inputs.columns([effect])
            self._columns[effect] = self._surprise(columns)
        return self._columns[effect]

    def _product(self, one: Effect, other: Effect | None) -> Array:
        """Return (fold, own, other); without another, with y."""
        # columns are in proportion to the size: products of size one
        # serve all sizes
        size = one.size
        one = replace(one, size=1.0)
        if other is not None:
            size *= other.size
            other = replace(other, size=1.0)
        pair = one, other
        if pair not in self._products:
            self._products[pair] = self._multiplied(one, other)
        return size * self._products[pair]

    def _multiplied(self, one: Effect, other: Effect | None) -> Array:
        """Work out a product."""
        if len(one.parts) > 1:
            # what several days have in common is the sum of what each has
            parts = [self._product(day, other) for day in one.parts]
            return np.sum(parts, axis=0)
        if other is not None and len(other.parts) > 1:
            # A' B is (B' A)'
            return np.swapaxes(self._product(other, one), 1, 2)
        columns = self._y if other is None else self._of(other)
        pairs = zip(self._of(one), columns, strict=True)
        return np.stack([own.T @ column for own, column in pairs])

    def _by_fold(self, effects: list[Effect]) -> tuple[Array, Array]:
        """Return the Gram matrix and the moments of effects, of each fold.

        These are W' W and W' v, of innovations W of the columns, and v of y.
        """
        n = len(self._folds) - 1
        size = sum(effect.n_columns for effect in effects)
        # of no effects both are empty
        grams: list[Array] = [np.zeros((n, 0, size))]
        moments: list[Array] = [np.zeros((n, 0, 1))]
        for own in effects:
            row = [self._product(own, other) for other in effects]
            grams.append(np.concatenate(row, axis=2))
            moments.append(self._product(own, None))
        gram = np.concatenate(grams, axis=1)
        return gram, np.concatenate(moments, axis=1)

    def _summed(self, folds: Array) -> Array:
        """Return the sum of each series' folds."""
        return np.add.reduceat(folds, self._first)

    def _system_of(self, effects: list[Effect]) -> tuple[Array, Array]:
        """Return coefficients' inverse covariance, and their mean times it."""
        gram, moments = self._by_fold(effects)
        # coefficients of variance one add the identity, as a ridge does
        precision = self._summed(gram) + np.eye(gram.shape[1])
        return precision, self._summed(moments)

    def _held_out(self, effects: list[Effect]) -> Array:
        """Return how much more probable effects make folds, (fold,), in logs.

        Coefficients are those of the other folds of a series.
        """
        gram, moments = self._by_fold(effects)
        n_folds = np.diff([*self._first, len(gram)])
        series = np.repeat(np.arange(len(n_folds)), n_folds)
        # sums of a series less those of a fold are those of the others
        every = self._summed(gram)[series] + np.eye(gram.shape[1])
        others = self._summed(moments)[series] - moments
        found = np.linalg.solve(every - gram, others)
        # coefficients b add b' W' v - b' W' W b / 2 to a log likelihood
        slope = moments - 0.5 * gram @ found
        gains: Array = (found * slope).sum((1, 2))
        return gains

    def _proves(self, effect: Effect, others: list[Effect]) -> bool:
        """Return whether more than one fold tells of an effect beside others."""
        gains = self._held_out([effect, *others])
        if others:
            gains = gains - self._held_out(others)
        least = _PROVED if len(gains) > 3 else _PROVED_BY_FEW
        # gains of chance, of mean zero, have a sum whose variance is the
        # sum of their squares
        return bool(gains.sum() > least * math.sqrt(gains @ gains))

    def best(
        self, options: list[Effect], others: list[Effect]
    ) -> tuple[float, Effect | None]:
        """Return the most probable option beside others, and its gain."""
        inner, moments = self._system_of(others)
        best: tuple[float, Effect | None] = 0.0, None
        for option in options:
            n = option.n_columns
            several = [option, *others, None]
            parts = [self._product(option, one) for one in several]
            row = self._summed(np.concatenate(parts, axis=2))
            own, target = row[..., :n] + np.eye(n), row[..., -1:]
            cross = row[..., n:-1]
            # what the others leave of an option, and of y
            # beside them: the Schur complement of their block,
            # which need not be built anew for each option
            across = np.swapaxes(cross, 1, 2)
            goals = np.concatenate([across, moments], axis=2)
            rest = cross @ np.linalg.solve(inner, goals)
            inner_left = own - rest[..., :-1]
            gain = _evidence(inner_left, target - rest[..., -1:])
            gain -= self._inputs.log_odds(option)
            if gain > best[0] + _WORTH:
                best = gain, option
        return best

    def selected(self) -> Estimate:
        """Return the most probable effects, sought from those of ``start`` on."""
        places = self._inputs.options(self._span)
        held = self._searched(places)
        effects = [held[k] for k in sorted(held)]
        return self._with_coefficients(effects) if effects else Estimate()

    def estimated(self) -> Estimate:
        """Return the effects of ``start`` with their most probable coefficients."""
        return self._with_coefficients(list(self._start.effects))

    def _with_coefficients(self, effects: list[Effect]) -> Estimate:
        """Return effects with coefficients, and what they add to the loss."""
        inner, moments = self._system_of(effects)
        found = np.linalg.solve(inner, moments)[..., 0]
        # the filter's loss, given the coefficients, has
        # the likelihood; beside it stand the prior of
        # these and, after Laplace, the curvature there
        _, log_det = np.linalg.slogdet(inner)
        loss = 0.5 * float((found**2).sum() + log_det.sum())
        loss += sum(map(self._inputs.log_odds, effects))
        return Estimate(tuple(effects), coefficients=found, loss=loss)

    def _searched(self, places: list[list[Effect]]) -> _Held:
        """Return the most probable effects, of each place one option or none.

        Coordinate ascent: each place in turn, given what the others hold, until
        none changes. Those that gain most alone come first.
        """
        held = _placed(self._start.effects, places)
        gains = [self.best(options, [])[0] for options in places]
        order = sorted(range(len(places)), key=lambda k: -gains[k])
        for _ in range(_SWEEPS):
            before = dict(held)
            for k in order:
                others = _without(held, k)
                own = [held.pop(k)] if k in held else []
                _, best = self.best([*own, *places[k]], others)
                if best is not None and isinstance(best.lag, Memory):
                    # those of a search stand 2.4 times apart
                    near = [replace(best, lag=lag) for lag in best.lag.near]
                    _, best = self.best([best, *near], others)
                if best is not None:
                    held[k] = best
            if held == before:
                break
        return self._proved(held, order)

    def _proved(self, held: _Held, order: list[int]) -> _Held:
        """Return effects but those of many columns that folds do not prove.

        The last in order, which gain least alone, are doubted first.
        """
        proved = dict(held)
        for k in reversed(order):
            effect = proved.get(k)
            if effect is None or not effect.must_be_proved:
                continue
            if not self._proves(effect, _without(proved, k)):
                del proved[k]
        return proved


def _placed(effects: Sequence[Effect], places: list[list[Effect]]) -> _Held:
    """Return effects, each at the first place that may hold it, soon or late."""
    kinds = [{*map(_soon, options)} for options in places]
    held: _Held = {}
    for effect in effects:
        own = _soon(effect)
        free = (k for k in range(len(places)) if k not in held)
        held[next(k for k in free if own in kinds[k])] = effect
    return held


def _soon(effect: Effect) -> Effect:
    """Return an effect as one without memory or delay."""
    return replace(effect, lag=NOW)


def _without(held: _Held, place: int) -> list[Effect]:
    """Return what the other places hold."""
    return [held[k] for k in sorted(held) if k != place]


def _evidence(inner: Array, moments: Array) -> float:
    """Return by how much coefficients make data more probable, in logs.

    Integrated over, coefficients of precision A and moments m make a Gaussian density
    exp(m' A^-1 m / 2) / sqrt(det A) times as large: Bishop, "Pattern Recognition and
    Machine Learning" (2006), equation 3.86.
    """
    explained = (moments * np.linalg.solve(inner, moments)).sum()
    _, log_det = np.linalg.slogdet(inner)
    return 0.5 * float(explained - log_det.sum())
