"""Hyperparameters from data: the most probable ones of a form, and others.

Forms are chosen by how probable data and hyperparameters are together;
forecasts average over both.

Its settings, and those of effects, were chosen on the developers' windows of
competition series, hourly series, electricity load, rentals and weather, and on made-up
breaks: figures on those are figures of development.

Tested in tests/structural/test_decisions.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np

from sklode.data.arrays import Array
from sklode.data.links import Link, link_of
from sklode.structural.candidates import LEAST_WEIGHT, Candidate
from sklode.structural.components.space import (
    PLACE,
    Form,
    priors,
)
from sklode.structural.effects.effect import Effect
from sklode.structural.effects.inputs import Estimate
from sklode.structural.effects.lags import Impulse
from sklode.structural.search.estimate import (
    Estimator,
    Hypothesis,
    from_bound,
    most_probable_of,
)
from sklode.structural.search.mixing import mixture
from sklode.structural.search.periods import Seasons
from sklode.structural.search.posterior import REFUSED
from sklode.structural.search.rows import SearchRows, read_by_search

# of effects given hyperparameters, and these given effects
_TURNS = 2
# where these follow each other, while that helps
_MOST_TURNS = 8
# of the time of impulses, that are tried in turn
_SHARPER = 2**0.25, 2**0.125, 2**0.0625
# peaks that are tried in one step
_AT_ONCE = 2
# of more rows the last ones polish so many forms
_MANY, _POLISHED = 1000, 2
# up to so many rows; then fewer, but a lone one tells nothing
_DRAWS, _DRAWN_ROWS, _FEWEST_DRAWS = 24, 500, 2
# rows that all the draws filter
_LONG = 20_000
# values: of fewer its tails are too long
_LOGARITHMS = 8
# share of the values that a logarithm may have
MOST_ZEROS = 0.1
_VELOCITY = [PLACE[name] for name in ("velocity", "velocity memory")]
# unless errors without that rule are less than this part
_ALIKE, _BETTER = 0.01, 0.95
# standard deviations that gains in sum are beyond chance
_PROVED = 2.0
# logarithms less probable than the best form: left out
_MARGIN = 4.0
# that a return gains in log probability, by two hyperparameters: half of the 95 % point
# of chi squared (Wilks 1938)
_RETURN = 3.0
# rows in which what any slope counts falls to a third, and logs for each
# row by which others are more probable where they no longer count
_FEW, _SMOOTH = 100, 2.0
# times that a logarithm's slope differs, where it may be
_BENT = 1.5


Averaged: TypeAlias = list[tuple[Candidate, tuple[Effect, ...]]]
"""What forecasts average over, with effects; weights add up to one."""


class SearchResult(NamedTuple):
    """What a channel's forecasts average over, and its effects."""

    candidates: Averaged
    loss: float  # minus the log probability of the best form, of all rows


def fit_candidates(
    rows: SearchRows,
    fine: SearchRows | None,
    span: float,
    gap: float,
    seasons: Seasons,
    logarithm: str | bool,
    bounds: Array,
) -> SearchResult:
    """Return what a channel's forecasts average over, and its effects.

    Where ``rows`` are means, ``fine`` are those behind them: what these have to do with
    each other is sought there. ``gap`` is the usual one of ``rows``.
    """
    values = rows.table.values if fine is None else fine.table.values
    n_rows, link = len(values), link_of(values, bounds)
    may_link = _may_link(values, link, bounds)
    estimator = Estimator(
        read_by_search(rows), span=span, seasons=seasons, link=link, bounds=bounds
    )
    search = _Search(estimator, gap=gap, seasons=seasons)
    found = search.hypotheses(logarithm, may_link)
    best = most_probable_of(found)
    if any(c.candidate.scaling.random_effects and c.estimate.is_shared for c in found):
        # of few rows what series have of effects looks like a scale of their own
        alike = replace(search, estimator=estimator.of_like_series)
        if alike.with_form_of(best).loss < best.loss:
            found += alike.hypotheses(logarithm, may_link)
    likeliest = most_probable_of(found).loss
    found = _in_good_units(estimator, found)
    best = most_probable_of(found)
    # series are told apart by how probable they are
    less_probable = best.loss - likeliest
    most = best.loss + _MARGIN
    found = [_returning(estimator, c) if c.loss <= most else c for c in found]
    best = most_probable_of(found)
    near = [estimator.finer(c) for c in found if c.loss <= best.loss + _MARGIN]
    if weeks := [c for one in near for c in search.with_weeks(one)]:
        most = most_probable_of(near + weeks).loss + _MARGIN
        near = [c for c in near + weeks if c.loss <= most]
    n_judged = len(estimator.judged.values)
    n_sought = max(len(estimator.sample.values), 1)
    if n_judged > _MANY:
        # so many leave little to average over
        n_sought = n_rows
    share = min(_DRAWN_ROWS / n_sought, _LONG / n_rows, 1.0)
    n_draws = int(_DRAWS * share)
    if n_draws < _FEWEST_DRAWS:
        # every pass takes long: the most probable one
        near, n_draws = [most_probable_of(near)], 0
    if not estimator.is_pooled and n_judged > _MANY:
        near = sorted(near, key=lambda c: c.loss)[:_POLISHED]
        near = [estimator.polished(c) for c in near]
    if fine is not None:
        estimator = Estimator(
            read_by_search(fine), span=span, seasons=seasons, link=link, bounds=bounds
        )
        near = [estimator.settled(most_probable_of(near))]
    near = (
        _non_robust_variants(estimator, found if fine is None else near, near) or near
    )
    # rows that did not judge are as those that did; Schwarz, "Estimating the Dimension
    # of a Model" (1978), has what each hyperparameter costs
    cost = 0.5 * len(best.candidate.model.theta) * math.log(max(n_rows, 1))
    loss = (best.loss - less_probable) * n_rows / max(n_judged, 1) + cost
    if estimator.is_pooled:
        drawn, gain = mixture(estimator, most_probable_of(near))
        if drawn:
            return SearchResult(drawn, loss - gain)
    first = most_probable_of(near)
    of_few: list[tuple[Averaged, float]] = []
    is_plain = not (estimator.at_bounds or first.estimate.effects)
    if is_plain and not estimator.is_pooled and _share(0.0, n_rows) >= LEAST_WEIGHT:
        # y itself drifts, as growth in per cent goes too far, unless that is told
        is_told = logarithm is True or bool(np.isfinite(bounds).all())
        others = _of_few_rows(estimator, first, is_told)
        for other in others:
            share = _share((other.loss - first.loss) / max(n_judged, 1), n_rows)
            share /= max(len(others), 2)
            # each draw counts enough to be asked
            drawn = _averaged([other], min(n_draws, int(share / LEAST_WEIGHT)))
            of_few.append((drawn, share))
    return SearchResult(_combined(_averaged(near, n_draws), of_few), loss)


def _of_few_rows(
    estimator: Estimator, first: Hypothesis, is_told: bool
) -> list[Hypothesis]:
    """Return what few rows are forecast by as well: nothing is known of the slope.

    Whether walks may have y's logarithm, ``is_told``.
    """
    form, found = first.candidate.model.form, [estimator.of_any_slope(first)]
    if not form.periods:
        linked = form.linked and is_told
        found += [estimator.drifting(first, linked, noise) for noise in (True, False)]
    return found


def _share(loss: float, n_rows: int) -> float:
    """Return how much what few rows are forecast by counts beside what is probable.

    Each of them as much: what few rows tell of anything else is as wrong as right, and
    combinations with equal weights are hard to beat (Smith and Wallis, "A Simple
    Explanation of the Forecast Combination Puzzle", 2009). ``loss`` is by how much it
    is the less probable, in logs for each row: of what runs smoothly a walk knows
    nothing.
    """
    few, smooth = n_rows / _FEW, max(loss, 0.0) / _SMOOTH
    return math.exp(-few - smooth**4)


def _combined(first: Averaged, others: list[tuple[Averaged, float]]) -> Averaged:
    """Return all candidates: others with their shares, the first with what is left."""
    others = [(own, share) for own, share in others if share >= LEAST_WEIGHT]
    left = 1 - sum(share for _, share in others)
    return [
        (candidate._replace(weight=candidate.weight * share), effects)
        for own, share in [(first, left), *others]
        for candidate, effects in own
    ]


def _in_good_units(estimator: Estimator, found: list[Hypothesis]) -> list[Hypothesis]:
    """Return hypotheses of y itself if these forecast it better than those linked.

    A logarithm may be more probable by small values alone, at night say.
    """
    linked = [c for c in found if c.candidate.model.form.linked]
    plain = [c for c in found if not c.candidate.model.form.linked]
    plain = [c for c in plain if c.loss < REFUSED]
    if not (linked and plain):
        return found
    better, other = most_probable_of(linked), most_probable_of(plain)
    if better.loss > other.loss + _MARGIN:
        return found
    scores = estimator.scores_ahead(better)
    return plain if _is_proved(scores - estimator.scores_ahead(other)) else found


def _is_proved(gains: Array) -> bool:
    """Return whether gains are in sum more than chance would give."""
    # of gains of chance, their squares add up to the variance
    return bool(gains.sum() > _PROVED * math.sqrt(gains @ gains))


def _returning(estimator: Estimator, hypothesis: Hypothesis) -> Hypothesis:
    """Return a hypothesis, or one without return if what returned did so by chance."""
    if not estimator.returns_late(hypothesis):
        return hypothesis
    wandering = estimator.wandering(hypothesis)
    is_proved = wandering.loss > hypothesis.loss + _RETURN
    return hypothesis if is_proved else wandering


def _may_link(values: Array, link: Link, bounds: Array) -> bool:
    """Return whether y may be linked: between bounds, or few values are at an end."""
    if np.isfinite(bounds).all():
        return True
    n = len(values)
    n_at_end = int((from_bound(values, bounds) <= 0).sum())
    has_enough = n >= _LOGARITHMS and n_at_end <= MOST_ZEROS * n
    return not link.is_identity and has_enough


def _averaged(hypotheses: list[Hypothesis], n_draws: int) -> Averaged:
    """Return draws of hypotheses, with weights that add up to one, and effects."""
    drawn = [
        (log_weight, c.candidate._replace(model=model), c.estimate.effects)
        for c in hypotheses
        for log_weight, model in c.posterior.draws(c.candidate.model, c.loss, n_draws)
    ]
    # densities of many rows are no floats: the largest is taken out first
    weights = np.array([log_weight for log_weight, _, _ in drawn])
    weights = np.exp(weights - weights.max())
    weights /= weights.sum()
    kept = weights > LEAST_WEIGHT
    weights /= weights[kept].sum()
    return [
        (candidate._replace(weight=weight), effects)
        for weight, is_kept, (_, candidate, effects) in zip(
            weights.tolist(), kept, drawn, strict=True
        )
        if is_kept
    ]


@dataclass(frozen=True)
class _Search:
    """The search for a channel's most probable form.

    Hyperparameters are estimated given effects of X, and those given these, in turn.
    """

    estimator: Estimator
    gap: float
    seasons: Seasons

    def hypotheses(self, logarithm: str | bool, may_link: bool) -> list[Hypothesis]:
        """Return forms with their most probable hyperparameters."""
        plain = Form(self.seasons.named, logarithm is True, gap=self.gap)
        found = self.grown(self.estimator.most_probable(plain))
        if logarithm is True:
            return found
        best = most_probable_of(found)
        forms = sorted({best.candidate.model.form, plain})
        # what is measured may not change at all, and rare counts
        if self.estimator.at_bounds or self.estimator.sample.errors.any():
            found += [self.estimator.steady(form, best.estimate) for form in forms]
        if logarithm == "auto" and may_link and self._is_bent():
            linked = [form._replace(linked=True) for form in forms]
            tried = [self.estimator.most_probable(form) for form in linked]
            tried += self.with_effects_of(best.estimate, tried[-1])
            found += tried
            better = most_probable_of(tried)
            if better.loss < best.loss:
                found += self.grown(better)[1:]
        return found

    def _is_bent(self) -> bool:
        """Return whether the link differs from a line where the values are.

        One that is all but straight there tells nothing.
        """
        values = self.estimator.sample.values
        ends = np.array([values.min(), values.max()])
        low, high = self.estimator.link.log_slope(ends)
        is_steeper = abs(high - low) > math.log(_BENT)
        return bool(is_steeper) or not self.estimator.link.is_logarithm

    def with_form_of(self, other: Hypothesis) -> Hypothesis:
        """Return the hypothesis of another's form, with effects of its own."""
        model = other.candidate.model
        plain = self.estimator.most_probable(model.form, model.theta)
        more, _ = self.with_effects(plain)
        return most_probable_of([plain, *more])

    def grown(self, best: Hypothesis) -> list[Hypothesis]:
        """Return a hypothesis, and parts added while one helps.

        Effects of a lone series take long, and change with all else: those of a
        hypothesis that has some are sought again once no other part helps.
        """
        found, settled = [best], None
        while True:
            tried = self.with_more_seasons(best)
            form = best.candidate.model.form
            other = form._replace(returning=not form.returning)
            if all(c.candidate.model.form != other for c in found):
                # what the velocity was to the one form says nothing to the other
                turned, (_, _, usual) = best.candidate.model.theta.copy(), priors(other)
                turned[_VELOCITY] = usual[_VELOCITY]
                tried.append(self.estimator.most_probable(other, turned, best.estimate))
            helps = any(c.loss < best.loss for c in tried)
            is_later = helps and best.estimate.effects and not self.estimator.is_pooled
            if best is not settled and not is_later:
                more, settled = self.with_effects(best)
                tried += more
            found += tried
            better = min(tried, key=lambda c: c.loss, default=best)
            if better.loss >= best.loss:
                return found + self.with_effects_of(best.estimate, best)
            best = better

    def with_more_seasons(self, hypothesis: Hypothesis) -> list[Hypothesis]:
        """Return a hypothesis with each of the next seasons, and with all peaks."""
        form, start = hypothesis.candidate.model.form, hypothesis.candidate.model.theta
        calendar = [p for p in self.seasons.calendar if p not in form.periods]
        others = [p for p in self.seasons.others if p not in form.periods]
        parts: list[tuple[float, ...]] = [(p,) for p in calendar + others[:_AT_ONCE]]
        if len(others) > 1:
            # of near ones, no single one may help
            parts.append(tuple(others))
        # what other seasons had to follow may be the new one: they start steady
        steady, (_, _, usual) = start.copy(), priors(form)
        kept = form.memories
        steady[kept] = np.maximum(start[kept], usual[kept])
        forms = [form._replace(periods=form.periods + part) for part in parts]
        return [
            self.estimator.most_probable(one, steady, hypothesis.estimate)
            for one in forms
        ]

    def with_effects(
        self, hypothesis: Hypothesis
    ) -> tuple[list[Hypothesis], Hypothesis | None]:
        """Return a hypothesis with the most probable effects; none: as it is.

        And the one, if any, whose effects are as they would be found once more.
        """
        found: list[Hypothesis] = []
        is_same = False
        for turn in range(_MOST_TURNS if self.estimator.has_inputs else 0):
            candidate, before = hypothesis.candidate, hypothesis.estimate
            if turn >= _TURNS and not _follow(before):
                break
            estimate = self.estimator.selected_effects(candidate, before)
            follow = _follow(estimate)
            kinds = [effect.kind for effect in estimate.effects]
            is_same = kinds == [effect.kind for effect in before.effects]
            if (is_same or turn >= _TURNS) and not follow:
                break
            form, theta = candidate.model.form, candidate.model.theta
            tried = self.estimator.most_probable(form, theta, estimate)
            if follow and (found or is_same) and tried.loss >= hypothesis.loss:
                break
            hypothesis = tried
            found = [hypothesis]
        sharp = [self._sharpened(one) for one in found]
        same = (one for one, before in zip(sharp, found, strict=True) if one is before)
        return sharp, next(same, None) if is_same else None

    def with_weeks(self, hypothesis: Hypothesis) -> list[Hypothesis]:
        """Return a hypothesis with weeks of the year, with all harmonics; none: as is.

        What fewer harmonics of the year leave recurs as well, and would pass for weeks.
        """
        before = hypothesis.estimate
        estimate = self.estimator.with_weeks(hypothesis.candidate, before)
        if len(estimate.effects) == len(before.effects):
            return []
        found = self.with_effects_of(estimate, hypothesis)
        return [self.estimator.finer(one) for one in found]

    def _sharpened(self, hypothesis: Hypothesis) -> Hypothesis:
        """Return a hypothesis with the time in which impulses fade, found once more.

        At a wrong time hyperparameters are those of what is left, so that both change
        together.
        """
        for place, effect in enumerate(hypothesis.estimate.effects):
            if not isinstance(effect.lag, Impulse):
                continue
            for factor in _SHARPER:
                for step in (factor, 1 / factor):
                    tried = self._with_time(hypothesis, place, step)
                    while tried.loss < hypothesis.loss:
                        hypothesis = tried
                        tried = self._with_time(hypothesis, place, step)
        return hypothesis

    def _with_time(
        self, hypothesis: Hypothesis, place: int, factor: float
    ) -> Hypothesis:
        """Return a hypothesis one of whose effects lasts so many times as long."""
        candidate, estimate = hypothesis.candidate, hypothesis.estimate
        effects = [*estimate.effects]
        lag = effects[place].lag
        if isinstance(lag, Impulse):
            lag = replace(lag, time=factor * lag.time)
        effects[place] = replace(effects[place], lag=lag)
        estimate = estimate._replace(effects=tuple(effects))
        estimate = self.estimator.estimated_effects(candidate, estimate)
        form, theta = candidate.model.form, candidate.model.theta
        return self.estimator.most_probable(form, theta, estimate)

    def with_effects_of(
        self, estimate: Estimate, hypothesis: Hypothesis
    ) -> list[Hypothesis]:
        """Return a hypothesis with known effects, estimated again; none: as it is."""
        if not (self.estimator.has_inputs and estimate.effects):
            return []
        found: list[Hypothesis] = []
        for _ in range(_TURNS):
            candidate = hypothesis.candidate
            estimate = self.estimator.estimated_effects(candidate, estimate)
            hypothesis = self.estimator.most_probable(
                candidate.model.form, candidate.model.theta, estimate
            )
            if found and self.estimator.is_pooled and hypothesis.loss >= found[0].loss:
                break
            found = [hypothesis]
        return found


def _follow(estimate: Estimate) -> bool:
    """Return whether effects follow hyperparameters: what series share, or fades."""
    fades = (isinstance(effect.lag, Impulse) for effect in estimate.effects)
    return estimate.is_shared or any(fades)


def _non_robust_variants(
    estimator: Estimator, found: list[Hypothesis], near: list[Hypothesis]
) -> list[Hypothesis]:
    """Return candidates to which no innovation is an error, if that is better.

    A velocity that returns would go on as a jump began: they have none.
    """
    plain = [c for c in found if not c.candidate.model.form.returning]
    if plain and any(c.candidate.model.form.returning for c in near):
        plain = [estimator.finer(most_probable_of(plain))]
    else:
        plain = near
    best = most_probable_of(plain)
    non_robust = _non_robust(best.candidate)
    usual = estimator.errors(best.candidate, best.estimate)
    errors = estimator.errors(non_robust, best.estimate)
    # squares of y's units may be no floats
    unit = usual.max() or 1.0
    usual, errors = usual / unit, errors / unit
    gains = usual - errors
    # where nothing was disbelieved shortly before, both agree
    differ = np.abs(gains) > _ALIKE * usual
    is_better = errors[differ].sum() < _BETTER * usual[differ].sum()
    # by more than one row
    if not (_is_proved(gains) and is_better):
        return []
    if all(best is not c for c in near):
        first = most_probable_of(near)
        others = estimator.errors(first.candidate, first.estimate) / unit
        if errors.sum() >= others.sum():
            return []
    return [c._replace(candidate=_non_robust(c.candidate)) for c in plain]


def _non_robust(candidate: Candidate) -> Candidate:
    """Return a candidate to which no innovation is an error."""
    model = candidate.model
    rule = model.rule._replace(threshold=math.inf)
    return candidate._replace(model=model._replace(rule=rule))
