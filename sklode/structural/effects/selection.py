"""Which effects there are, by how probable they make the rows.

Effects and their coefficients are found given a form's hyperparameters. As a filter is
linear, it makes of each column of an effect what it makes of y: coefficients are those
of an ordinary regression of innovations on innovations. Durbin and Koopman (2012),
section 6.2.3, see `filter.forward.filter_columns`.

Tested in tests/structural/effects/test_effect.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from sklode.data.arrays import Array, Numbers
from sklode.data.links import LEAST
from sklode.structural.candidates import Candidate, Model, forward
from sklode.structural.coefficients import ALONE, Pooled, RandomCoefficients
from sklode.structural.effects.basis import Spline
from sklode.structural.effects.effect import Effect, pooled
from sklode.structural.effects.inputs import Estimate, Inputs
from sklode.structural.effects.lags import NOW, Age, Impulse
from sklode.structural.rows import ChannelRows
from sklode.structural.scaling import Scaling

_WORTH = 0.1  # a change of effects, in natural logarithms
_SWEEPS = 4  # over all places, if effects go on to change
_NEAR_SIZES = 0.25, 0.5, 2.0, 4.0, 8.0  # of coefficients that series share
_UNLIKE_CLOCK = 1.0  # in natural logarithms, what tells a curve of age from the clock's
# shares of the oldest age, from which on a curve is asked how it goes on
_AGES = np.array([4, 5, 6, 7]) / 8
_PASSES = 3  # that find what is no outlier, given effects
MOST_ASKED = 60  # series of a panel, which effects there are
# An effect is proved where what folds gain is in sum so many times the
# root of the sum of their squares. Of n equal gains that is the root of n:
# three of many folds must gain alike. Of two folds the lesser must
# gain a quarter of the other, of three one may gain nothing.
_PROVED, _PROVED_BY_FEW = 1.5, 1.2


# effects by place: what may act at once
# and late, or along the day, has several
_Held: TypeAlias = dict[int, Effect]


class Innovations:
    """What a model's filter does not expect of columns, as it does of y."""

    def __init__(self, model: Model, rows: ChannelRows, span: float) -> None:
        space = model.space(span)
        found = model.filtered(space, rows, space.whole)
        self._system = space.system(model.schedule(rows))
        self._inverse_F = found.inverse_F
        self._root = np.sqrt(found.inverse_F)[:, None]
        self._gains = np.ascontiguousarray(found.gains[:, 0])

    def of(self, columns: Array) -> Array:
        """Return those of columns, (row, column), in standard deviations."""
        columns = np.ascontiguousarray(columns)
        expected = forward().filter_columns(
            self._system,
            inverse_F=self._inverse_F,
            gains=self._gains,
            values=columns,
        )
        # in place: these are most of the memory that a selection goes through
        innovations: Array = np.subtract(columns, expected, out=expected)
        innovations *= self._root
        return innovations


class Products:
    """Products of effects' innovations, summed over parts of the rows.

    Each is worked out once.
    """

    def __init__(
        self, innovations: Callable[[Effect | None], Array], parts: list[slice]
    ) -> None:
        self._innovations, self._parts = innovations, parts
        self._known: dict[tuple[Effect, Effect | None], Array] = {}

    def __call__(self, one: Effect, other: Effect | None) -> Array:
        """Return (part, own, other); without another, with y."""
        size, pair = _plain(one, other)
        found = self.of_size_one(*pair)
        return found if size == 1 else size * found

    def of_size_one(self, one: Effect, other: Effect | None) -> Array:
        """Return the same, of effects of size one, of each series alone."""
        found = self._known.get((one, other))
        if found is None:
            self._known[one, other] = found = self._multiplied(one, other)
        return found

    def _multiplied(self, one: Effect, other: Effect | None) -> Array:
        """Work out a product."""
        if len(one.parts) > 1:
            # what several days have in common is the sum of what each has
            days = [self.of_size_one(day, other) for day in one.parts]
            return np.sum(days, axis=0)
        if other is not None and ((other, one) in self._known or len(other.parts) > 1):
            # A' B is (B' A)'
            return np.swapaxes(self.of_size_one(other, one), 1, 2)
        own, columns = self._innovations(one), self._innovations(other)
        return np.stack([own[part].T @ columns[part] for part in self._parts])

    def assembled(self, effects: list[Effect]) -> tuple[Array, Array]:
        """Return the Gram matrix and the moments of effects, of each part.

        These are W' W and W' v, of innovations W of the columns, and v of y.
        """
        n, size = len(self._parts), sum(effect.n_columns for effect in effects)
        # of no effects both are empty
        grams: list[Array] = [np.zeros((n, 0, size))]
        moments: list[Array] = [np.zeros((n, 0, 1))]
        for own in effects:
            row = [self(own, other) for other in effects]
            grams.append(np.concatenate(row, axis=2))
            moments.append(self(own, None))
        return np.concatenate(grams, axis=1), np.concatenate(moments, axis=1)


class EffectJudge:
    """How probable effects are, by what a candidate's filter makes of them.

    Both tables are in the units of the states; ``left`` are the rows without what
    effects that are known, those of ``start``, add: errors are judged there.
    """

    def __init__(
        self,
        candidate: Candidate,
        span: float,
        table: ChannelRows,
        left: ChannelRows,
        inputs: Inputs,
        start: Estimate,
        scaling: Scaling,
        by_year: bool = False,
    ) -> None:
        self._start, self._inputs, self._span = start, inputs, span
        self.scaling, self._table = scaling, table
        self._ratios = scaling.ratios(len(table.lengths))
        # folds of whole weeks, or of years, that tell by turns what others do
        folds = inputs.folds_of_years if by_year else inputs.folds
        self._folds = folds(table.bounds)
        # of each series the first fold, for sums over these
        starts = self._folds[:-1]
        self._first = np.searchsorted(starts, table.bounds[:-1])
        self._innovations = Innovations(candidate.model, left, span)
        # of many series some are asked which effects there are
        n = len(table.lengths)
        self._asked = np.unique(np.linspace(0, n - 1, MOST_ASKED).round().astype(int))
        self._columns: dict[Effect | None, Array] = {}
        series = _slices(table.bounds)
        self._by_fold = Products(self._of, _slices(self._folds))
        self._by_series = Products(self._of, series)
        self._by_asked = self._by_series
        if len(self._asked) < n:
            self._by_asked = Products(self._of, [series[k] for k in self._asked])

    def _of(self, effect: Effect | None) -> Array:
        """Return an effect's innovations, which many pairs ask for; or those of y."""
        if effect is None and None not in self._columns:
            self._columns[None] = self._innovations.of(self._table.values[:, None])
        elif effect is not None and effect not in self._columns:
            self._know([effect])
        return self._columns[effect]

    def _know(self, effects: Sequence[Effect]) -> None:
        """Work out innovations of effects of size one: at once takes least time."""
        parts = [part for one in effects for part in one.parts]
        new = [one for one in dict.fromkeys(parts) if one not in self._columns]
        if not new:
            return
        columns = self._inputs.columns(new)
        if self._is_panel:
            columns = centred(columns, self._table, pooled(new))
        ends = np.cumsum([one.n_columns for one in new])[:-1]
        found = np.split(self._innovations.of(columns), ends, axis=1)
        self._columns |= zip(new, map(np.ascontiguousarray, found), strict=True)

    def _summed(self, folds: Array) -> Array:
        """Return the sum of each series' folds."""
        return np.add.reduceat(folds, self._first)

    def _held_out(self, effects: list[Effect]) -> Array:
        """Return how much more probable effects make folds, (fold,), in logs.

        Coefficients are those of the other folds of a series.
        """
        gram, moments = self._by_fold.assembled(effects)
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

    def _proves(
        self, effect: Effect, plain: list[Effect], others: list[Effect]
    ) -> bool:
        """Return whether more than one fold tells of an effect, not a plain one."""
        gains = self._held_out([effect, *others])
        if without := [*plain, *others]:
            gains = gains - self._held_out(without)
        return _are_proof(gains)

    def best(
        self, options: list[Effect], others: list[Effect]
    ) -> tuple[float, Effect | None]:
        """Return the most probable option beside others, and its gain."""
        if self._is_panel:
            return self._best_of_panel(options, others)
        plain = [*map(_of_size_one, options)]
        spectra = self._spectra([*dict.fromkeys(plain)], others)
        best: tuple[float, Effect | None] = 0.0, None
        for option, own in zip(options, plain, strict=True):
            gain = _evidence(*spectra[own], size=option.size)
            gain -= self._inputs.log_odds(option)
            if gain > best[0] + _WORTH:
                best = gain, option
        return best

    def _spectra(
        self, options: list[Effect], others: list[Effect]
    ) -> dict[Effect, tuple[Array, Array]]:
        """Return what others leave of options of size one, and of y beside them.

        That is the Schur complement of their block, which is inverted once for all.
        """
        self._know(options)
        inner, moments = self._by_series.assembled(others)
        # coefficients of variance one add the identity, as a ridge does
        precision = inner[0] + np.eye(inner.shape[1])
        product = self._by_series
        crosses = [
            # of no others it is empty
            np.hstack(
                [
                    np.zeros((own.n_columns, 0)),
                    *(product(own, one)[0] for one in others),
                ]
            )
            for own in options
        ]
        goals = np.hstack([moments[0], *(cross.T for cross in crosses)])
        solved = np.linalg.solve(precision, goals)
        ends = np.cumsum([1, *(own.n_columns for own in options)])[:-1]
        target, *each = np.split(solved, ends, axis=1)
        return {
            own: _spectrum(
                product(own, own)[0] - cross @ rest,
                product(own, None)[0] - cross @ target,
            )
            for own, cross, rest in zip(options, crosses, each, strict=True)
        }

    @property
    def _is_panel(self) -> bool:
        """Whether there are series that may share coefficients."""
        return len(self._first) > 1

    def _best_of_panel(
        self, options: list[Effect], others: list[Effect]
    ) -> tuple[float, Effect | None]:
        """Return the same, of coefficients that series may share."""
        gram, moments = self._by_asked.assembled(others)
        base = self._evidence_of(others, gram, moments) if others else 0.0
        # what some series tell stands for all
        share = len(self._first) / len(self._asked)
        best: tuple[float, Effect | None] = 0.0, None
        for option in options:
            # only the option's own rows and columns are new
            parts = [self._by_asked(option, one) for one in [option, *others]]
            row = np.concatenate(parts, axis=2)
            below = np.swapaxes(row[..., option.n_columns :], 1, 2)
            every = np.concatenate([row, np.concatenate([below, gram], axis=2)], axis=1)
            goals = np.concatenate([self._by_asked(option, None), moments], axis=1)
            evidence = self._evidence_of([option, *others], every, goals)
            gain = share * (evidence - base) - self._inputs.log_odds(option)
            if gain > best[0] + _WORTH:
                best = gain, option
        return best

    def _evidence_of(
        self, effects: list[Effect], grams: Array, moments: Array
    ) -> float:
        """Return the evidence of effects, by what some series tell."""
        how, ratios = pooled(effects), self._ratios[self._asked]
        common = how.in_common_units(grams, moments[..., 0], ratios)
        return RandomCoefficients.fit(how, *common)[2]

    def selected(self) -> Estimate:
        """Return the most probable effects, sought from those of ``start`` on."""
        places = self._inputs.options(self._span)
        if self._is_panel:
            places = [[option.shared for option in options] for options in places]
        held = self._searched(places)
        effects = [held[k] for k in sorted(held)]
        return self._with_coefficients(effects) if effects else Estimate()

    def with_weeks(self) -> Estimate:
        """Return the effects of ``start`` and weeks of the year, if years prove these.

        Others are as they were. By years their size is chosen as well: errors that
        series have in common are no evidence, however many series have them. Nor do
        weeks act that would gain as much in other places of the year, a placebo.
        """
        others, options = list(self._start.effects), self._inputs.weeks
        base = self._by_year(others) if others else 0.0

        def gains(effect: Effect, shifts: Sequence[int] = (0,)) -> Array:
            return self._by_year([*others, effect], shifts) - base

        if self._is_panel:
            options = [option.shared for option in options]
        best = max(options, key=lambda option: gains(option).sum())
        if self._is_panel:
            options = [replace(best, pooling=own) for own in best.pooling.near]
            best = max(options, key=lambda option: gains(option).sum())
        true, *placebo = gains(best, range(best.n_columns))
        if not _are_proof(true) or true.sum() <= np.sum(placebo, axis=1).max():
            return self._start
        return self._with_coefficients([*others, best])

    def _by_year(self, effects: list[Effect], shifts: Sequence[int] = (0,)) -> Array:
        """Return how much more probable effects make years, (shift, year), in logs.

        Coefficients are those of the other years, as some series of a panel tell;
        those of the last effect are of columns so many places before.
        """
        gram, moments = self._by_fold.assembled(effects)
        series = np.searchsorted(self._first, np.arange(len(gram)), side="right") - 1
        is_asked = np.isin(series, self._asked)
        gram, moments = gram[is_asked], moments[is_asked]
        place = np.searchsorted(self._asked, series[is_asked])
        first = np.searchsorted(place, np.arange(len(self._asked)))
        starts = self._inputs.rows[self._folds[:-1][is_asked]]
        years = self._inputs.years[starts]
        how, ratios = pooled(effects), self._ratios[self._asked]
        gains = []
        for year in np.unique(years):
            is_own = years == year
            is_other = ~is_own[:, None, None]
            grams = np.add.reduceat(gram * is_other, first)
            goals = np.add.reduceat(moments * is_other, first)[..., 0]
            common = how.in_common_units(grams, goals, ratios)
            found = RandomCoefficients.fit(how, *common)[1] * how.factors(ratios)
            # of each fold of the year those of its series
            found = found[place[is_own]]
            rest, last = np.split(found, [-effects[-1].n_columns], axis=1)
            own = np.stack([np.hstack([rest, np.roll(last, k, 1)]) for k in shifts], -1)
            slope = moments[is_own] - 0.5 * gram[is_own] @ own
            gains.append((own * slope).sum((0, 1)))
        return np.transpose(gains)

    def estimated(self) -> Estimate:
        """Return the effects of ``start`` with their most probable coefficients."""
        effects = list(self._start.effects)
        for place, effect in enumerate(effects):
            # how far series differ depends on what they are in units of
            others = effects[:place] + effects[place + 1 :]
            effects[place] = self._shared_best(effect, others)
        return self._with_coefficients(effects)

    def _shared_best(self, effect: Effect, others: list[Effect]) -> Effect:
        """Return an effect as far as series share it, and as large as they show."""
        if not effect.pooling.has_mean:
            return effect
        several = [*effect.pooling.near, ALONE]
        if effect.is_of_age:
            # how noisy a series is tells nothing of its curve, and a curve that is as
            # much its own as shared is its trend
            several = [own for own in several if own.in_y and own.spread < 1]
        near = [replace(effect, pooling=own) for own in several]
        effect = self.best([effect, *near], others)[1] or effect
        near = [replace(effect, size=effect.size * n) for n in _NEAR_SIZES]
        return self.best([effect, *near], others)[1] or effect

    def _with_coefficients(self, effects: list[Effect]) -> Estimate:
        """Return effects with coefficients, and what they add to the loss."""
        grams, goals = self._by_series.assembled(effects)
        how, ratios = pooled(effects), self._ratios
        grams, goals = how.in_common_units(grams, goals[..., 0], ratios)
        of_panel, found, evidence = RandomCoefficients.fit(how, grams, goals)
        # the filter's loss, given the coefficients, has what these gain there
        slope = goals - 0.5 * np.einsum("sij,sj->si", grams, found)
        loss = float((found * slope).sum()) - evidence
        loss += sum(map(self._inputs.log_odds, effects))
        # in the units of each series' states
        r = how.factors(ratios)
        return Estimate(
            effects=tuple(effects),
            coefficients=r * found,
            means=r * of_panel.means_of_others(),
            loss=loss,
        )

    def _searched(self, places: list[list[Effect]]) -> _Held:
        """Return the most probable effects, of each place one option or none.

        Coordinate ascent: each place in turn, given what the others hold, until
        none changes. Those that gain most alone come first.
        """
        held = _placed(self._start.effects, places)
        gains: list[float] = []
        for k, options in enumerate(places):
            # several places have the same forms to choose from
            is_known = k > 0 and options == places[k - 1]
            gains.append(gains[-1] if is_known else self.best(options, [])[0])
        order = sorted(range(len(places)), key=lambda k: -gains[k])
        n_same = 0  # last places that kept what they held
        for k in order * _SWEEPS:
            if n_same == len(places):
                break
            before = held.pop(k, None)
            others = _without(held, k)
            own = [] if before is None else [before]
            _, best = self.best([*own, *places[k]], others)
            if best is not None and best.lag.near:
                # those of a search stand 2.4 times apart
                near = [replace(best, lag=lag) for lag in best.lag.near]
                _, best = self.best([best, *near], others)
            if best is not None:
                best = held[k] = self._shared_best(best, others)
            n_same = n_same + 1 if best == before else 0
        return self._with_ages(self._proved(held, order, places))

    def _with_ages(self, held: _Held) -> _Held:
        """Return effects, without a curve of age that may be one of the clock.

        What all series do at one time tells nothing of what is ahead of the oldest.
        """
        told = dict(held)
        for k, effect in held.items():
            if not effect.is_of_age:
                continue
            others = _without(held, k)
            gain, best = self.best([effect], others)
            of_clock, clock = self.best(self._inputs.of_clock(effect), others)
            if abs(gain - of_clock) < _UNLIKE_CLOCK:
                is_told = effect.basis.first >= 0 or self._inputs.may_be_of_age
            else:
                if clock is not None and gain < of_clock:
                    _, best = self.best([effect], [*others, clock])
                is_told = best is not None
            if is_told and isinstance(effect.basis, Spline):
                basis = replace(effect.basis, beyond=self._beyond(effect, others))
                told[k] = replace(effect, basis=basis)
            else:
                del told[k]
        return told

    def _beyond(self, effect: Effect, others: list[Effect]) -> float:
        """Return which part of a curve's slope at an age older series showed to go on.

        By the slope of innovations after an age on those that coefficients of the rows
        up to it tell, less its standard error over several ages.
        """
        n_series, n = len(self._table.lengths), len(_AGES) + 1
        ages = self._inputs.columns([effect])[:, 0]
        part = np.searchsorted(ages.min() + np.ptp(ages) * _AGES, ages)
        # a series' rows are in order of its age
        place = self._table.series * n + part
        starts = np.searchsorted(place, np.arange(n_series * n + 1))
        gram, moments = Products(self._of, _slices(starts)).assembled([effect, *others])
        gram = gram.reshape(n_series, n, *gram.shape[1:])
        moments = moments.reshape(n_series, n, -1)
        how, own = pooled([effect, *others]), slice(effect.n_columns)
        found = []
        for k in np.unique(part[part > 0]):
            before, after = slice(k), slice(k, None)
            common = how.in_common_units(
                gram[:, before].sum(1), moments[:, before].sum(1), self._ratios
            )
            b = RandomCoefficients.fit(how, *common)[1] * how.factors(self._ratios)
            rest = b.copy()
            rest[:, own] = 0
            curve, later = b - rest, gram[:, after].sum(1)
            left = moments[:, after].sum(1) - np.einsum("sij,sj->si", later, rest)
            told = np.einsum("si,sij,sj->", curve, later, curve)
            found.append((float((curve * left).sum()), float(told)))
        if len(found) < 2:
            return 0.0
        shown, told = np.transpose(found)
        size = max(told.sum(), LEAST)
        slope = shown.sum() / size
        error = math.sqrt(((shown - slope * told) ** 2).sum()) / size
        return float(np.clip(slope - error, 0, 1))

    def _proved(
        self, held: _Held, order: list[int], places: list[list[Effect]]
    ) -> _Held:
        """Return effects but those of many columns that folds do not prove.

        The last in order, which gain least alone, are doubted first; in their place is
        the best that needs no proof, if any.
        """
        proved = dict(held)
        for k in reversed(order):
            effect = proved.get(k)
            if effect is None or not effect.must_be_proved:
                continue
            others = _without(proved, k)
            plain = [one for one in places[k] if not one.must_be_proved]
            _, best = self.best(plain, others)
            if self._proves(effect, [best] if best else [], others):
                continue
            del proved[k]
            if best is not None:
                proved[k] = self._shared_best(best, others)
        return proved


def _are_proof(gains: Array) -> bool:
    """Return whether more than one fold gains, and all in sum."""
    least = _PROVED if len(gains) > 3 else _PROVED_BY_FEW
    # gains of chance, of mean zero, have a sum whose variance is the
    # sum of their squares
    return bool(gains.sum() > least * math.sqrt(gains @ gains))


def centred(columns: Array, table: ChannelRows, how: Pooled) -> Array:
    """Return columns (row, column) less the mean of each series, where they are.

    How columns and levels differ between series is no effect within any of them:
    Mundlak, "On the Pooling of Time Series and Cross Section Data" (1978).
    """
    means = np.where(how.is_centred, table.means(columns), 0.0)
    return columns - means[table.series]


def random_coefficients(
    candidate: Candidate,
    table: ChannelRows,
    span: float,
    effects: Sequence[Effect],
    levels: Array | None = None,
    deviation: float = math.nan,
) -> RandomCoefficients:
    """Return what all rows of a panel tell of the coefficients of effects.

    Of attributes that is what ``levels`` (series,) tell, which are so far from them.
    """
    scaling = candidate.own(table, span).scaling
    rows, model = scaling.rows(table), candidate.model
    how = pooled(effects)
    columns = centred(rows.inputs[:, 1:][:, model.form.columns], rows, how)
    ratios = scaling.ratios(len(rows.lengths))
    plain = model._replace(form=model.form._replace(effects=()))
    response, added = np.zeros((2, len(rows.values)))
    for _ in range(_PASSES):
        # what is an outlier is judged by what effects leave
        left = rows._replace(values=rows.values - response)
        innovations = Innovations(plain, left, span)
        W, v = innovations.of(columns), innovations.of(rows.values[:, None])
        both, inner = np.hstack([W, v]), rows.bounds[1:-1]
        parts = zip(np.split(W, inner), np.split(both, inner), strict=True)
        products = np.stack([own.T @ every for own, every in parts])
        grams, goals = how.in_common_units(
            products[..., :-1], products[..., -1], ratios
        )
        level = 0.0
        if levels is not None:
            # but for what is not centred, such as a curve of age
            own = levels - rows.means(added[:, None])[:, 0] / ratios
            z, known = rows.means(columns), np.isfinite(own)
            middle, mean = z[known].mean(0), own[known].mean()
            grams, goals = how.with_levels(
                grams, goals, (z - middle) / deviation, (own - mean) / deviation
            )
        found, each, _ = RandomCoefficients.fit(how, grams, goals)
        if levels is not None:
            level = float(mean - middle[how.is_between] @ found.means[how.is_between])
        each = each * how.factors(ratios)
        each = columns * each[rows.series]
        response = each.sum(1)
        added = each[:, ~(how.is_centred | how.is_between)].sum(1)
    return found._replace(deviation=deviation, level=level)


def _plain(
    one: Effect, other: Effect | None
) -> tuple[float, tuple[Effect, Effect | None]]:
    """Return two effects of size one, and how large their product is.

    Columns are in proportion to the size: products of size one serve all sizes, and
    however series share coefficients.
    """
    if other is None:
        return one.size, (_of_size_one(one), None)
    return one.size * other.size, (_of_size_one(one), _of_size_one(other))


def _of_size_one(effect: Effect) -> Effect:
    """Return an effect of size one, of each series alone."""
    if effect.size == 1 and effect.pooling == ALONE:
        return effect
    return replace(effect, size=1.0, pooling=ALONE)


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
    """Return an effect as one that acts at once, if it may; of each series alone."""
    plain = effect.kind
    lag = plain.lag if isinstance(effect.lag, Impulse | Age) else NOW
    return replace(plain, lag=lag, pooling=ALONE, size=1.0)


def _without(held: _Held, place: int) -> list[Effect]:
    """Return what the other places hold."""
    return [held[k] for k in sorted(held) if k != place]


def _spectrum(gram: Array, moments: Array) -> tuple[Array, Array]:
    """Return eigenvalues, and squares of moments along their vectors.

    What is not finite tells nothing.
    """
    if not (np.isfinite(gram).all() and np.isfinite(moments).all()):
        return np.zeros(len(gram)), np.zeros(len(gram))
    values, vectors = np.linalg.eigh(gram)
    return np.maximum(values, 0.0), (vectors.T @ moments)[:, 0] ** 2


def _evidence(values: Array, squares: Array, size: float) -> float:
    """Return by how much coefficients make data more probable, in logs.

    Integrated over, coefficients of precision A and moments m make a Gaussian density
    exp(m' A^-1 m / 2) / sqrt(det A) times as large: Bishop, "Pattern Recognition and
    Machine Learning" (2006), equation 3.86. Here A is the identity and the Gram matrix
    of columns so many times as large as those of which these are the eigenvalues, and
    the squares of moments along their vectors.
    """
    precision = 1 + size**2 * values
    return 0.5 * float((size**2 * squares / precision - np.log(precision)).sum())


def _slices(bounds: Numbers) -> list[slice]:
    """Return the parts of rows between bounds."""
    return [slice(*pair) for pair in itertools.pairwise(bounds.tolist())]
