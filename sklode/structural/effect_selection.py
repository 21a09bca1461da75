"""Which effects there are, by how probable they make the rows.

Effects and their coefficients are found given a form's hyperparameters. As a filter is
linear, it makes of each column of an effect what it makes of y: coefficients are those
of an ordinary regression of innovations on innovations. Durbin and Koopman (2012),
section 6.2.3, see `kalman.filter_columns`.

Tested in tests/structural/test_effects.py.
"""

from __future__ import annotations

import math

import numpy as np

from sklode.data.arrays import Array
from sklode.structural.candidates import Candidate, kalman
from sklode.structural.channel_rows import ChannelRows
from sklode.structural.effect_inputs import Estimate, Inputs
from sklode.structural.effects import Effect

# factors of a memory, from a half to twice, that are tried once it is chosen
_NEAR = 2.0 ** np.linspace(-1.0, 1.0, 17)
_WORTH = 0.1  # a change of effects, in natural logarithms
_SWEEPS = 4  # over all places, if effects go on to change
# deviations of what stretches gain, in sum; of two, one gains a third of the other,
# of three a third may gain nothing
_PROVED, _PROVED_BY_FEW = 1.5, 1.2


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
        left: Array,
    ) -> None:
        self._inputs, self._bounds = inputs, table.bounds
        # stretches of whole weeks, that tell by turns what others do
        self._stretches = inputs.stretches(table.bounds)
        self._first = np.searchsorted(self._stretches[:-1], table.bounds[:-1])
        space = candidate.space(span)
        found = candidate.filtered(space, table._replace(values=left), space.whole)
        gains = np.ascontiguousarray(found.gains[:, 0])
        self._system = candidate.system(space, table)
        self._inverse_F, self._gains = found.inverse_F, gains
        self._root = np.sqrt(found.inverse_F)[:, None]
        self._y = self._surprise(table.values[:, None])
        self._columns: dict[Effect, list[Array]] = {}
        self._products: dict[tuple[Effect, Effect | None], Array] = {}

    def _surprise(self, columns: Array) -> list[Array]:
        """Return what is not expected of columns, in deviations."""
        columns = np.ascontiguousarray(columns)
        expected = kalman().filter_columns(
            self._system,
            inverse_F=self._inverse_F,
            gains=self._gains,
            values=columns,
        )
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
        # stretches of a series add up
        target = np.add.reduceat(self._product(one, None), self._first)
        found = [
            np.add.reduceat(self._product(one, other), self._first) for other in others
        ]
        return np.concatenate([target[..., :0], *found], axis=2), target

    def system(self, effects: list[Effect]) -> tuple[Array, Array]:
        """Return coefficients' inverse covariance, and their mean times it."""
        # of innovations W of the columns, and v of y: the Gram matrix W' W and the
        # moments W' v; coefficients of variance one add the identity, as a ridge does
        pairs = [self.products(effect, effects) for effect in effects]
        grams, moments = [gram for gram, _ in pairs], [moment for _, moment in pairs]
        n, size = len(self._bounds) - 1, sum(effect.n_columns for effect in effects)
        inner = np.concatenate([np.zeros((n, 0, size)), *grams], axis=1)
        told = np.concatenate([np.zeros((n, 0, 1)), *moments], axis=1)
        return inner + np.eye(size), told

    def held_out(self, effects: list[Effect]) -> Array:
        """Return how much more probable effects make stretches, (stretch,), in logs.

        Coefficients are those of the other stretches of a series.
        """
        told = np.concatenate([self._product(own, None) for own in effects], axis=1)
        inner = np.concatenate(
            [
                np.concatenate([self._product(own, other) for other in effects], axis=2)
                for own in effects
            ],
            axis=1,
        )
        series = np.repeat(
            np.arange(len(self._first)), np.diff([*self._first, len(inner)])
        )
        # sums of a series less those of a stretch are those of the others; the log
        # likelihood of a stretch gains b' W' v - b' W' W b / 2 by coefficients b
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
            # what the others leave of an option, and of y beside them: the Schur
            # complement of their block, so that these are solved for once a place
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
    """Return by how much coefficients make data more probable, in logs.

    Integrated over, coefficients of precision A and moments m make a Gaussian density
    exp(m' A^-1 m / 2) / sqrt(det A) times as large: Bishop, "Pattern Recognition and
    Machine Learning" (2006), equation 3.86.
    """
    explained = (told * np.linalg.solve(inner, told)).sum()
    return 0.5 * float(explained - np.linalg.slogdet(inner)[1].sum())


def selected(
    candidate: Candidate,
    span: float,
    table: ChannelRows,
    inputs: Inputs,
    start: Estimate,
) -> Estimate:
    """Return the most probable effects, sought from those of ``start`` on."""
    judge = _judge(candidate, span, table, inputs, start)
    effects = _searched(judge, inputs.candidates(span), list(start.effects))
    return _estimated(judge, inputs, effects) if effects else Estimate()


def estimated(
    candidate: Candidate,
    span: float,
    table: ChannelRows,
    inputs: Inputs,
    start: Estimate,
) -> Estimate:
    """Return the effects of ``start`` with their most probable coefficients."""
    judge = _judge(candidate, span, table, inputs, start)
    return _estimated(judge, inputs, list(start.effects))


def _judge(
    candidate: Candidate,
    span: float,
    table: ChannelRows,
    inputs: Inputs,
    start: Estimate,
) -> _Judge:
    """Return what judges effects, of rows in units of y."""
    table = candidate.own(table, span).in_units(table)
    left = table.values
    if start.effects:
        left = left - inputs.response(start, table.lengths)
    return _Judge(candidate, span, table, inputs, left)


def _estimated(judge: _Judge, inputs: Inputs, effects: list[Effect]) -> Estimate:
    """Return effects with their coefficients and what they add to the loss."""
    inner, told = judge.system(effects)
    found = np.linalg.solve(inner, told)[..., 0]
    # the filter's loss, given the coefficients, has the likelihood; beside it stand
    # the prior of these and, after Laplace, the curvature there
    loss = 0.5 * float((found**2).sum() + np.linalg.slogdet(inner)[1].sum())
    loss += sum(inputs.log_odds(effect) for effect in effects)
    return Estimate(effects=tuple(effects), coefficients=found, loss=loss)


def _searched(
    judge: _Judge, candidates: list[list[Effect]], start: list[Effect]
) -> list[Effect]:
    """Return the most probable effects, of each place one of its candidates or none.

    Coordinate ascent: each place in turn, given what the others hold, until none
    changes. Those of many columns then have to be proved by several stretches.
    """
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
                # memories stand 2.4 times apart at first
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
