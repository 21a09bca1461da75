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
from typing import NamedTuple

import numpy as np

from sklode.data.arrays import Array, Flags, Numbers
from sklode.data.links import Link, has_zeros, link_of, margins
from sklode.structural.candidates import (
    FEWEST_HARMONICS,
    THRESHOLD,
    Candidate,
)
from sklode.structural.effect_inputs import Estimate
from sklode.structural.effect_selection import estimated, selected
from sklode.structural.effects import Effect
from sklode.structural.filter_pass import FilterPass
from sklode.structural.posterior import REFUSED, Posterior
from sklode.structural.search_rows import SearchRows, judged, read_by_search, sought
from sklode.structural.seasons import Seasons
from sklode.structural.state_space import (
    BASE,
    MEMORIES_OF_SEASONS,
    PLACE,
    VAGUE,
    Form,
    priors,
)
from sklode.structural.units import in_units, usual_error

_NONE = Estimate()
_TURNS = 2  # of effects given hyperparameters, and these given effects
_AT_ONCE = 2  # peaks that are tried in one step
# the fewest while hyperparameters are sought; 12 were chosen on competition series'
# pasts, 24 serve long series of fine rows
_HARMONICS = FEWEST_HARMONICS, 12, 24
# of more rows the last ones, of so many forms, polish what was sought
_MANY, _MOST_POLISHED, _POLISHED = 1000, 6000, 2
_DRAWS, _DRAWN_ROWS = 24, 500  # up to so many rows; then fewer
_LONG = 20_000  # rows that all the draws filter
_LOGARITHMS = 8  # values: of fewer its tails are too long
MOST_ZEROS = 0.1  # share of the values that a logarithm may have
_CHANGES = [PLACE[name] for name in ("slope", "random walk", "velocity", "OU")]
_MEMORIES = [PLACE[name] for name in ("velocity memory", "OU memory")]
_VELOCITY = [PLACE[name] for name in ("velocity", "velocity memory")]
_STILL = 1e-4  # of what does not change, in units of spread
# unless forecasts' errors without that rule are less than this part
_ALIKE, _BELIEVED = 0.01, 0.95
_PROVED = 2.0  # standard deviations that gains of rows in sum are beyond chance
_MARGIN = 4.0  # logarithms less probable than the best form: left out
_BENT = 1.5  # times that a logarithm's slope differs, where it may be
_LEAST_WEIGHT = 2e-3  # of a draw that forecasts average over


class _Hypothesis(NamedTuple):
    candidate: Candidate  # without effects of X
    estimate: Estimate  # of those
    loss: float  # minus the log posterior density, in y's units
    posterior: Posterior


class SearchResult(NamedTuple):
    """What a channel's forecasts average over, and its effects."""

    candidates: list[tuple[Candidate, tuple[Effect, ...]]]
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
    every = rows.table if fine is None else fine.table
    n_rows, link = len(every.values), link_of(every.values, bounds)
    may_link = _may_link(every.values, link, bounds)
    rows, fine = read_by_search(rows), None if fine is None else read_by_search(fine)
    search = _Search(rows, span, gap, seasons, link, bounds)
    found = search.hypotheses(logarithm, may_link)
    best = _best(found)
    near = [search.finer(c) for c in found if c.loss <= best.loss + _MARGIN]
    n_judged = len(search.judged.values)
    if len(rows.table.bounds) == 2 and n_judged > _MANY:
        near = sorted(near, key=lambda c: c.loss)[:_POLISHED]
        near = [search.polished(c) for c in near]
    if fine is not None:
        search = _Search(fine, span, gap, seasons, link, bounds)
        near = [search.settled(_best(near))]
    near = search.believing(found if fine is None else near, near) or near
    n_sought = max(len(search.sample.values), 1)
    if n_judged > _MANY:
        n_sought = n_rows  # so many leave little to average over
    n_draws = int(_DRAWS * min(_DRAWN_ROWS / n_sought, _LONG / n_rows, 1.0))
    if n_draws < 1:  # every pass takes long: the most probable one
        near = [_best(near)]
    # rows that did not judge are as those that did; Schwarz, "Estimating the Dimension
    # of a Model" (1978), has what each hyperparameter costs
    cost = 0.5 * len(best.candidate.logs) * math.log(max(n_rows, 1))
    return SearchResult(
        candidates=_averaged(near, n_draws),
        loss=best.loss * n_rows / max(n_judged, 1) + cost,
    )


def _best(hypotheses: list[_Hypothesis]) -> _Hypothesis:
    """Return the most probable one."""
    return min(hypotheses, key=lambda c: c.loss)


def _may_link(values: Array, link: Link, bounds: Array) -> bool:
    """Return whether y may be linked: between bounds, or few values are at an end."""
    if np.isfinite(bounds).all():
        return True
    n_at_end = int((margins(values[:, None], bounds[None]) <= 0).sum())
    is_told = len(values) >= _LOGARITHMS and n_at_end <= MOST_ZEROS * len(values)
    return not link.is_identity and is_told


def _averaged(
    hypotheses: list[_Hypothesis], n_draws: int
) -> list[tuple[Candidate, tuple[Effect, ...]]]:
    """Return draws of hypotheses, with weights that add up to one, and effects."""
    weighed = [
        (log_weight, candidate, c.estimate.effects)
        for c in hypotheses
        for log_weight, candidate in c.posterior.draws(c.candidate, c.loss, n_draws)
    ]
    weights = np.array([log_weight for log_weight, _, _ in weighed])
    weights = np.exp(weights - weights.max())
    weights /= weights.sum()
    kept = weights > _LEAST_WEIGHT
    weights /= weights[kept].sum()
    return [
        (candidate._replace(weight=float(weights[k])), effects)
        for k, (_, candidate, effects) in enumerate(weighed)
        if kept[k]
    ]


class _Search:
    """The search for a channel's most probable form and hyperparameters.

    These are estimated given effects of X, and those given these, in turn: the filter
    need not carry coefficients while it is run most often.
    """

    def __init__(
        self,
        rows: SearchRows,
        span: float,
        gap: float,
        seasons: Seasons,
        link: Link,
        bounds: Array,
    ) -> None:
        self._table, self._inputs = table, inputs = rows.table, rows.inputs
        self._span, self._gap, self._link = span, gap, link
        from_bound = margins(table.values[:, None], bounds[None])[:, 0]
        self._at_bounds = has_zeros(from_bound)
        self._seasons, self._log_odds = seasons, seasons.log_odds
        self._pooled = len(table.bounds) > 2
        self._sought, self._judging = sought(table), judged(rows)
        self.sample = table.where(self._sought).without_empty()
        self.judged = table.where(self._judging).without_empty()
        self._inputs_judged = None if inputs is None else inputs.at(self._judging)

    def hypotheses(self, logarithm: str | bool, may_link: bool) -> list[_Hypothesis]:
        """Return forms with their most probable hyperparameters."""
        plain = Form(self._seasons.told, logarithm is True, gap=self._gap)
        found = self.grown(self.most_probable(plain))
        if logarithm is True:
            return found
        best = _best(found)
        forms = sorted({best.candidate.form, plain})
        # what is measured may not change at all, and rare counts
        for form in forms if self._at_bounds or self.sample.errors.any() else []:
            found.append(self.steady(form, best.estimate))
        # a function that is all but straight there tells nothing
        ends = np.array([self.sample.values.min(), self.sample.values.max()])
        is_bent = abs(np.diff(self._link.log_slope(ends))[0]) > math.log(_BENT)
        is_bent |= not self._link.is_logarithm
        if logarithm == "auto" and may_link and is_bent:
            linked = [form._replace(linked=True) for form in forms]
            tried = [self.most_probable(form) for form in linked]
            tried += self.with_effects_of(best.estimate, tried[-1])
            found += tried
            better = _best(tried)
            if better.loss < best.loss:
                found += self.grown(better)[1:]
        return found

    def _response(self, estimate: Estimate, rows: Numbers) -> Array | float:
        """Return what effects add at some rows, in states' units."""
        return estimate.response[rows] if estimate.effects else 0.0

    def grown(self, best: _Hypothesis) -> list[_Hypothesis]:
        """Return a hypothesis, and parts added while one helps."""
        found = [best]
        while True:
            form, start = best.candidate.form, best.candidate.logs
            clock, others = (
                [period for period in some if period not in form.periods]
                for some in (self._seasons.clock, self._seasons.others)
            )
            single = clock + others[:_AT_ONCE]
            parts: list[tuple[float, ...]] = [(period,) for period in single]
            if len(others) > 1:  # of near ones, no single one may help
                parts.append(tuple(others))
            forms = [form._replace(periods=form.periods + part) for part in parts]
            # what other seasons had to follow may be the new one: they start steady
            steady, (_, _, usual) = start.copy(), priors(form)
            kept = MEMORIES_OF_SEASONS
            steady[kept] = np.maximum(start[kept], usual[kept])
            tried = [self.most_probable(one, steady, best.estimate) for one in forms]
            other = form._replace(returning=not form.returning)
            if all(c.candidate.form != other for c in found):
                turned, (_, _, usual) = start.copy(), priors(other)
                turned[_VELOCITY] = usual[_VELOCITY]
                tried.append(self.most_probable(other, turned, best.estimate))
            tried += self.with_effects(best)
            found += tried
            better = min(tried, key=lambda c: c.loss, default=best)
            if better.loss >= best.loss:
                return found + self.with_effects_of(best.estimate, best)
            best = better

    def with_effects(self, hypothesis: _Hypothesis) -> list[_Hypothesis]:
        """Return a hypothesis with the most probable effects; none: as it is."""
        found: list[_Hypothesis] = []
        for _ in range(_TURNS if self._inputs is not None else 0):
            candidate, before = hypothesis.candidate, hypothesis.estimate
            estimate = self._selected(candidate, before)
            kinds = [effect.kind for effect in estimate.effects]
            if kinds == [effect.kind for effect in before.effects]:
                break
            hypothesis = self.most_probable(candidate.form, candidate.logs, estimate)
            found = [hypothesis]
        return found

    def with_effects_of(
        self, estimate: Estimate, hypothesis: _Hypothesis
    ) -> list[_Hypothesis]:
        """Return a hypothesis with known effects, estimated again; none: as it is."""
        if self._inputs is None or not estimate.effects:
            return []
        for _ in range(_TURNS):
            candidate = hypothesis.candidate
            estimate = self._estimated(candidate, estimate)
            hypothesis = self.most_probable(candidate.form, candidate.logs, estimate)
        return [hypothesis]

    def most_probable(
        self, form: Form, start: Array | None = None, estimate: Estimate = _NONE
    ) -> _Hypothesis:
        """Return a form's best hyperparameters, sought from some logarithms on."""
        units = self._units(form)
        _, _, logs = priors(form)
        if start is not None:
            logs[: len(start)] = start
        free = np.full(len(logs), True)
        return self._sought_from(units, form, logs, free, estimate)

    def steady(self, form: Form, estimate: Estimate) -> _Hypothesis:
        """Return a form's best hyperparameters if nothing changes."""
        units, kept = self._units(form), MEMORIES_OF_SEASONS
        _, _, logs = priors(form)
        logs[_CHANGES], logs[kept] = math.log(_STILL), math.log(self._span / _STILL)
        free = np.full(len(logs), True)
        free[[*_CHANGES, *_MEMORIES]] = free[kept] = False
        return self._sought_from(units, form, logs, free, estimate)

    def _units(self, form: Form) -> Candidate:
        """Return the plain candidate with the units of a form's rows."""
        values, threshold = self.sample.values, THRESHOLD
        if form.linked:
            values = self._link.of(values)
        elif self._at_bounds:
            threshold = math.inf  # large counts are rare, and true
        return in_units(
            self.sample,
            values,
            self._span,
            linked=form.linked,
            link=self._link,
            threshold=threshold,
        )

    def _sought_from(
        self,
        units: Candidate,
        form: Form,
        logs: Array,
        free: Flags,
        estimate: Estimate,
    ) -> _Hypothesis:
        """Return the best hyperparameters, of those that are free."""
        sample, span = self.sample, self._span
        if not self._pooled or units.centred:
            # nothing tells of the level at first rows
            logs[PLACE["constant"]] = math.log(VAGUE)
            free[PLACE["constant"]] = False
        own = units.own(sample, span)
        errors = own.in_units(sample).errors
        values = self._link.of(sample.values) if form.linked else sample.values
        each = own.at(sample.series).units
        left = (values - each.location) / each.scale
        left = left - self._response(estimate, self._sought)
        candidate = units._replace(form=form, logs=logs, error=usual_error(errors))
        table = sample._replace(values=left, errors=errors)
        posterior = Posterior(candidate, free, table, span)
        candidate, _ = posterior.fit()
        candidate, loss = self._judged(candidate, estimate)
        loss += posterior.prior(candidate.logs[free])
        loss += sum(self._log_odds[period] for period in candidate.form.periods)
        return _Hypothesis(candidate, estimate, loss + estimate.loss, posterior)

    def _judged(
        self, candidate: Candidate, estimate: Estimate
    ) -> tuple[Candidate, float]:
        """Return what all judged rows lose, in y's units: the sample misleads.

        The trend of the candidate that is returned steps if that is more probable.
        """
        judged = self.judged
        own = candidate.own(judged, self._span)
        table, units = own.in_units(judged), own.log_units(judged)
        left = table.values - self._response(estimate, self._judging)
        table, space = table._replace(values=left), candidate.space(self._span)
        candidate = candidate._replace(steps=True)
        with np.errstate(all="ignore"):
            found = candidate.filtered(space, table)
            loss = found.loss
            if found.jumps.any():
                steady = candidate._replace(steps=False)
                other = steady.filtered(space, table).loss
                if other < loss:
                    candidate, loss = steady, other
        return candidate, units + loss if math.isfinite(loss) else REFUSED

    def polished(self, hypothesis: _Hypothesis) -> _Hypothesis:
        """Return a hypothesis with what many rows tell, if that is more probable.

        The few that a search reads do not show how a season changes in a year.
        """
        candidate, estimate = hypothesis.candidate, hypothesis.estimate
        late = slice(-_MOST_POLISHED, None)
        own = candidate.own(self.judged, self._span).in_units(self.judged)
        values = own.values - self._response(estimate, self._judging)
        left = own._replace(values=values).where(late)
        free, logs = hypothesis.posterior.free, candidate.logs.copy()
        # from what does not change nothing leads away
        kept, (_, _, usual) = MEMORIES_OF_SEASONS, priors(candidate.form)
        logs[kept] = np.minimum(logs[kept], usual[kept])
        logs[~free] = candidate.logs[~free]
        started = candidate._replace(logs=logs)
        posterior = Posterior(started, free, left, self._span)
        better, _ = posterior.fit()
        # of the loss, what changed: effects, prior and likelihood
        loss = hypothesis.loss - estimate.loss + posterior.prior(better.logs[free])
        loss -= posterior.prior(candidate.logs[free])
        loss -= self._judged(candidate, estimate)[1]
        estimate = self._estimated(better, estimate)
        better, likelihood = self._judged(better, estimate)
        loss += likelihood + estimate.loss
        if loss >= hypothesis.loss:
            return hypothesis
        return _Hypothesis(better, estimate, loss, posterior)

    def settled(self, hypothesis: _Hypothesis) -> _Hypothesis:
        """Return a hypothesis of means with what rows tell: all but its seasons."""
        candidate, sample = hypothesis.candidate, self.sample
        estimate = self._estimated(candidate, hypothesis.estimate)
        free = hypothesis.posterior.free.copy()
        free[len(BASE) :] = False
        own = candidate.own(sample, self._span).in_units(sample)
        values = own.values - self._response(estimate, self._sought)
        left = own._replace(values=values)
        posterior = Posterior(candidate, free, left, self._span)
        candidate, _ = posterior.fit()
        estimate = self._estimated(candidate, estimate)
        candidate, loss = self._judged(candidate, estimate)
        return _Hypothesis(candidate, estimate, loss, posterior)

    def _selected(self, candidate: Candidate, start: Estimate) -> Estimate:
        """Return the most probable effects, sought from those of ``start`` on."""
        if self._inputs_judged is None:
            return _NONE
        found = selected(candidate, self._span, self.judged, self._inputs_judged, start)
        return self._everywhere(found)

    def _estimated(self, candidate: Candidate, start: Estimate) -> Estimate:
        """Return the effects of ``start``, their coefficients estimated again."""
        if self._inputs_judged is None or not start.effects:
            return _NONE
        found = estimated(
            candidate, self._span, self.judged, self._inputs_judged, start
        )
        return self._everywhere(found)

    def _everywhere(self, found: Estimate) -> Estimate:
        """Return an estimate with what it adds at all rows, not those judged alone."""
        if self._inputs is None or not found.effects:
            return found
        response = self._inputs.response(found, self._table.lengths)
        return found._replace(response=response)

    def finer(self, hypothesis: _Hypothesis) -> _Hypothesis:
        """Return a hypothesis with the most probable number of harmonics."""
        candidate = hypothesis.candidate
        if not candidate.form.periods:
            return hypothesis
        several = [candidate._replace(harmonics=n) for n in _HARMONICS]
        losses = [self._filtered(c, hypothesis.estimate).loss for c in several]
        k = int(np.argmin(losses))
        loss = hypothesis.loss + losses[k] - losses[0]
        return hypothesis._replace(candidate=several[k], loss=loss)

    def believing(
        self, found: list[_Hypothesis], near: list[_Hypothesis]
    ) -> list[_Hypothesis]:
        """Return candidates to which no innovation is an error, if that is better.

        A velocity that returns would go on as a jump began: they have none.
        """
        plain = [c for c in found if not c.candidate.form.returning]
        if plain and any(c.candidate.form.returning for c in near):
            plain = [self.finer(_best(plain))]
        else:
            plain = near
        best = _best(plain)
        believing = best.candidate._replace(threshold=math.inf)
        usual = self._errors(best.candidate, best.estimate)
        errors = self._errors(believing, best.estimate)
        gains = usual - errors
        # where nothing was disbelieved shortly before, both agree
        differ = np.abs(gains) > _ALIKE * usual
        # by more than one row: of gains of chance, their squares add up to the variance
        is_proved = gains.sum() > _PROVED * math.sqrt(gains @ gains)
        is_better = errors[differ].sum() < _BELIEVED * usual[differ].sum()
        if not (is_proved and is_better):
            return []
        if all(best is not c for c in near):
            first = _best(near)
            if errors.sum() >= self._errors(first.candidate, first.estimate).sum():
                return []
        return [
            c._replace(candidate=c.candidate._replace(threshold=math.inf))
            for c in plain
        ]

    def _errors(self, candidate: Candidate, estimate: Estimate) -> Array:
        """Return the size of each judged row's innovation, but of first ones."""
        found = self._filtered(candidate, estimate)
        # v is v / F over 1 / F, which are 0 where nothing is observed
        told = np.where(found.inverse_F > 0, found.inverse_F, 1.0)
        errors = np.abs(found.v_F / told)
        errors[self.judged.bounds[:-1]] = 0.0
        return errors

    def _filtered(self, candidate: Candidate, estimate: Estimate) -> FilterPass:
        """Return the filter's pass of judged rows, without effects."""
        table = candidate.own(self.judged, self._span).in_units(self.judged)
        left = table.values - self._response(estimate, self._judging)
        space = candidate.space(self._span)
        return candidate.filtered(space, table._replace(values=left))
