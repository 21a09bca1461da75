"""Hyperparameters from data: the most probable ones of a form, and others.

Forms are chosen by how probable data and hyperparameters are together;
forecasts average over both.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from sklode.data.arrays import Array, Numbers
from sklode.data.links import Link, has_zeros, link_of, margins
from sklode.structural.candidates import (
    FEWEST_HARMONICS,
    THRESHOLD,
    Candidate,
    FilterPass,
)
from sklode.structural.channel_rows import ChannelRows, power_of_two
from sklode.structural.effects import Effect, Estimate, Inputs, estimated
from sklode.structural.posterior import Posterior
from sklode.structural.state_space import BASE, PLACE, VAGUE, Form, priors

_NONE = Estimate()
_TURNS = 2
_PANEL_ROWS = 6000  # of the series that are read
_AT_ONCE = 2  # peaks that are tried in one step
_HARMONICS = FEWEST_HARMONICS, 12, 24  # the fewest while hyperparameters are sought
# rows to seek hyperparameters by: this share the last, others spread
MOST_ROWS, _LATE = 500, 0.8
# of more rows the last ones, of so many forms, polish what was sought
_MANY, _MOST_POLISHED, _POLISHED = 1000, 6000, 2
_GOLDEN = (5**0.5 - 1) / 2
_DRAWS, _DRAWN_ROWS = 24, 500  # up to so many rows; then fewer
_LONG = 20_000  # rows that all the draws filter
_LOGARITHMS = 8  # values: of fewer its tails are too long
MOST_ZEROS = 0.1  # share of the values that a logarithm may have
_CHANGES = [PLACE[name] for name in ("slope", "random walk", "velocity", "OU")]
_MEMORIES = [PLACE[name] for name in ("velocity memory", "OU memory")]
_VELOCITY = [PLACE[name] for name in ("velocity", "velocity memory")]
_KEPT = slice(len(BASE) + 1, None, 2)  # memories of seasons
_STILL = 1e-4  # of what does not change, in units of spread
_JUDGED = 2000, 40_000  # series and rows of a panel that tell what is chosen
_MOST_JUDGED = 20_000  # last rows of a lone series that do
# unless forecasts' errors without that rule are less than this part
_ALIKE, _BELIEVED = 0.01, 0.95
_MARGIN = 4.0  # logarithms less probable than the best form: left out
_TELLING = 4  # rows that tell how series of a panel differ
_FREE = 1e3  # of scales that may be anything
# series differ whose scales are so far apart, in natural logarithms; and locations
# then, in spreads
_APART, _FAR = 0.25, 3.0
_BENT = 1.5  # times that a logarithm's slope differs, where it may be
_CLIPPED = 5.0  # times the median: larger errors of measurement count as these
_LEAST_WEIGHT = 2e-3


class _Hypothesis(NamedTuple):
    candidate: Candidate  # without effects of X
    estimate: Estimate  # of those
    loss: float  # minus the log posterior density, in y's units
    posterior: Posterior


class SearchRows(NamedTuple):
    """A channel's observed rows, and what effects may read there."""

    table: ChannelRows
    inputs: Inputs | None

    def at(self, chosen: Numbers) -> SearchRows:
        """Return some rows, of the series that have any."""
        inputs = None if self.inputs is None else self.inputs.at(chosen)
        return SearchRows(self.table.where(chosen).without_empty(), inputs)


class SearchResult(NamedTuple):
    """What a channel's forecasts average over, and its effects."""

    candidates: list[tuple[Candidate, tuple[Effect, ...]]]
    loss: float  # minus the log probability of the best form, of all rows


class Seasons(NamedTuple):
    """Periods that a channel may have, in units of time."""

    told: tuple[float, ...]  # which it has
    clock: dict[float, float]  # the clock's, with log odds against them
    others: dict[float, float]  # those that stand out, likewise

    @property
    def log_odds(self) -> dict[float, float]:
        """What each one takes off the log probability of a form."""
        return dict.fromkeys(self.told, 0.0) | self.clock | self.others


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
    table, inputs = rows
    every = table if fine is None else fine.table
    n_rows, link = len(every.values), link_of(every.values, bounds)
    from_bound = margins(every.values[:, None], bounds[None])
    may_link = bool(np.isfinite(bounds).all()) or (
        not link.is_identity
        and n_rows >= _LOGARITHMS
        and int((from_bound <= 0).sum()) <= MOST_ZEROS * n_rows
    )
    rows, fine = _read(rows), None if fine is None else _read(fine)
    table, inputs = rows
    search = _Search(SearchRows(table, inputs), span, gap, seasons, link, bounds)
    found = search.hypotheses(logarithm, may_link)
    least = min(c.loss for c in found)
    near = [search.finer(c) for c in found if c.loss <= least + _MARGIN]
    n_judged = len(search.judged.values)
    if len(table.bounds) == 2 and n_judged > _MANY:
        near = sorted(near, key=lambda c: c.loss)[:_POLISHED]
        near = [search.polished(c) for c in near]
    if fine is not None:
        search = _Search(fine, span, gap, seasons, link, bounds)
        near = [search.settled(min(near, key=lambda c: c.loss))]
    near = search.believing(found if fine is None else near, near) or near
    n_sought = max(len(search.sample.values), 1)
    if n_judged > _MANY:
        n_sought = n_rows  # so many leave little to average over
    n_draws = int(_DRAWS * min(_DRAWN_ROWS / n_sought, _LONG / n_rows, 1.0))
    if n_draws < 1:  # every pass takes long: the most probable one
        near = [min(near, key=lambda c: c.loss)]
    weighed = [
        (weight, candidate, c.estimate.effects)
        for c in near
        for weight, candidate in c.posterior.draws(c.candidate, c.loss, n_draws)
    ]
    weights = np.array([weight for weight, _, _ in weighed])
    weights = np.exp(weights - weights.max())
    weights /= weights.sum()
    kept = weights > _LEAST_WEIGHT
    weights /= weights[kept].sum()
    candidates = [
        (candidate._replace(weight=float(weights[k])), effects)
        for k, (_, candidate, effects) in enumerate(weighed)
        if kept[k]
    ]
    # rows that did not judge are as those that did; Schwarz, "Estimating the Dimension
    # of a Model" (1978), has what each hyperparameter costs
    n_logs = len(min(found, key=lambda c: c.loss).candidate.logs)
    cost = 0.5 * n_logs * math.log(max(n_rows, 1))
    return SearchResult(candidates, least * n_rows / max(n_judged, 1) + cost)


def _read(rows: SearchRows) -> SearchRows:
    """Return the rows that a search reads: of others no effect need be worked out."""
    table, few = rows.table, _sample(rows.table)
    if len(table.bounds) == 2:
        n = len(table.values)
        few = np.union1d(few, np.arange(max(n - _MOST_JUDGED, 0), n))
    elif rows.inputs is None:
        return rows
    return rows.at(few) if len(few) < len(table.values) else rows


def _sample(
    table: ChannelRows, most_series: int = 120, most_rows: int = _PANEL_ROWS
) -> Numbers:
    """Return the rows that hyperparameters are sought by."""
    series = np.flatnonzero(table.lengths)
    if len(series) > most_series:
        places = np.linspace(0, len(series) - 1, most_series).round().astype(int)
        series = series[places]
    rows = []
    most = max(most_rows // len(series), 8)
    if most_rows == _PANEL_ROWS:
        most = min(most, MOST_ROWS)
    for k in series:
        first, end = table.bounds[k], table.bounds[k + 1]
        if end - first <= most:
            rows.append(np.arange(first, end))
            continue
        middle = end - round(_LATE * most)
        # not at one distance, which would hide seasons of a part of it
        share = (np.arange(1, most - (end - middle) + 1) * _GOLDEN) % 1
        early = np.unique(first + (share * (middle - first)).astype(int))
        rows.append(np.append(early, np.arange(middle, end)))
    return np.concatenate(rows)


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
        self._table, self._inputs = table, inputs = rows
        self._span, self._gap, self._link = span, gap, link
        from_bound = margins(table.values[:, None], bounds[None])[:, 0]
        self._at_bounds = has_zeros(from_bound)
        self._seasons, self._log_odds = seasons, seasons.log_odds
        self._pooled = len(table.bounds) > 2
        self._rows = _sample(table)
        self.sample = table.where(self._rows).without_empty()
        if self._pooled and inputs is None:
            self._late = _sample(table, *_JUDGED)
        else:  # of a panel all, as their coefficients are known
            n = len(table.values)
            self._late = np.arange(0 if self._pooled else max(n - _MOST_JUDGED, 0), n)
        self.judged = table.where(self._late).without_empty()
        self._near = None if inputs is None else inputs.at(self._late)

    def hypotheses(self, logarithm: str | bool, may_link: bool) -> list[_Hypothesis]:
        """Return forms with their most probable hyperparameters."""
        plain = Form(self._seasons.told, logarithm is True, gap=self._gap)
        found = self.grown(self.most_probable(plain))
        if logarithm is True:
            return found
        best = min(found, key=lambda c: c.loss)
        forms = sorted({best.candidate.form, plain})
        # what is measured may not change at all, and rare counts
        for form in forms if self._at_bounds or self.sample.errors.any() else []:
            steady = self.most_probable(
                form, start=None, estimate=best.estimate, steady=True
            )
            found.append(steady)
        # a function that is all but straight there tells nothing
        ends = np.array([self.sample.values.min(), self.sample.values.max()])
        is_bent = abs(np.diff(self._link.log_slope(ends))[0]) > math.log(_BENT)
        is_bent |= not self._link.is_logarithm
        if logarithm == "auto" and may_link and is_bent:
            linked = [form._replace(linked=True) for form in forms]
            tried = [self.most_probable(form) for form in linked]
            tried += self.with_effects(tried[-1], best.estimate)
            found += tried
            better = min(tried, key=lambda c: c.loss)
            if better.loss < best.loss:
                found += self.grown(better)[1:]
        return found

    def _response(self, estimate: Estimate, rows: Numbers) -> Any:
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
            steady = start.copy()
            steady[_KEPT] = np.maximum(start[_KEPT], priors(form)[2][_KEPT])
            tried = [self.most_probable(one, steady, best.estimate) for one in forms]
            other = form._replace(returning=not form.returning)
            if all(c.candidate.form != other for c in found):
                turned = start.copy()
                turned[_VELOCITY] = priors(other)[2][_VELOCITY]
                tried.append(self.most_probable(other, turned, best.estimate))
            tried += self.with_effects(best)
            found += tried
            better = min(tried, key=lambda c: c.loss, default=best)
            if better.loss >= best.loss:
                return found + self.with_effects(best, best.estimate)
            best = better

    def with_effects(
        self, hypothesis: _Hypothesis, start: Estimate | None = None
    ) -> list[_Hypothesis]:
        """Return a hypothesis with the most probable effects, or ``start``."""
        if self._inputs is None or not (start is None or start.effects):
            return []
        found: list[_Hypothesis] = []
        for turn in range(_TURNS):
            known = start if start is not None and not turn else hypothesis.estimate
            estimate = self._estimate(hypothesis.candidate, known, start is None)
            pair = estimate.effects, hypothesis.estimate.effects
            kinds = [[effect.kind for effect in effects] for effects in pair]
            if start is None and kinds[0] == kinds[1]:
                break
            form, logs = hypothesis.candidate.form, hypothesis.candidate.logs
            hypothesis = self.most_probable(form, logs, estimate)
            found = [hypothesis]
        return found

    def most_probable(
        self,
        form: Form,
        start: Array | None = None,
        estimate: Estimate = _NONE,
        steady: bool = False,
    ) -> _Hypothesis:
        """Return a form's best hyperparameters; ``steady``: nothing changes."""
        sample, span, values = self.sample, self._span, self.sample.values
        threshold = THRESHOLD
        if form.linked:
            values = self._link.of(values)
        elif self._at_bounds:
            threshold = math.inf  # large counts are rare, and true
        units = _in_units(sample, values, span, form.linked, self._link, threshold)
        own = units.own(sample, span)
        logs = priors(form)[2]
        if start is not None:
            logs[: len(start)] = start
        free = np.full(len(logs), True)
        if not self._pooled or units.centred:
            logs[PLACE["constant"]] = math.log(VAGUE)
            free[PLACE["constant"]] = False
        if steady:
            logs[_CHANGES], logs[_KEPT] = math.log(_STILL), math.log(span / _STILL)
            free[[*_CHANGES, *_MEMORIES]] = free[_KEPT] = False
        candidate = units._replace(form=form, logs=logs)
        each, errors = own.at(sample.series), own.in_units(sample).errors
        candidate = candidate._replace(error=_usual(errors))
        left = (values - each.location) / each.scale
        left = left - self._response(estimate, self._rows)
        left = sample._replace(values=left, errors=errors)
        posterior = Posterior(candidate, free, left, span)
        candidate, _ = posterior.fit()
        candidate, loss = self._judged(candidate, estimate)
        loss += posterior.prior(candidate.logs[free])
        loss += sum(self._log_odds[period] for period in form.periods)
        return _Hypothesis(candidate, estimate, loss + estimate.loss, posterior)

    def _judged(
        self, candidate: Candidate, estimate: Estimate
    ) -> tuple[Candidate, float]:
        """Return what all judged rows lose, in y's units: the sample misleads.

        The trend of the component that is returned steps if that is more probable.
        """
        judged = self.judged
        own = candidate.own(judged, self._span)
        table, units = own.in_units(judged), own.log_units(judged)
        left = table.values - self._response(estimate, self._late)
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
        return candidate, units + loss if math.isfinite(loss) else 1e9

    def polished(self, hypothesis: _Hypothesis) -> _Hypothesis:
        """Return a hypothesis with what many rows tell, if that is more probable.

        The few that a search reads do not show how a season changes in a year.
        """
        candidate, estimate = hypothesis.candidate, hypothesis.estimate
        late = slice(-_MOST_POLISHED, None)
        own = candidate.own(self.judged, self._span).in_units(self.judged)
        left = own.values - self._response(estimate, self._late)
        left = own._replace(values=left).where(late)
        free, logs = hypothesis.posterior.free, candidate.logs.copy()
        # from what does not change nothing leads away
        logs[_KEPT] = np.minimum(logs[_KEPT], priors(candidate.form)[2][_KEPT])
        logs[~free] = candidate.logs[~free]
        started = candidate._replace(logs=logs)
        posterior = Posterior(started, free, left, self._span)
        better, _ = posterior.fit()
        loss = hypothesis.loss - estimate.loss + posterior.prior(better.logs[free])
        loss -= posterior.prior(candidate.logs[free])
        loss -= self._judged(candidate, estimate)[1]
        estimate = self._estimate(better, estimate, search=False)
        better, judged = self._judged(better, estimate)
        loss += judged + estimate.loss
        if loss >= hypothesis.loss:
            return hypothesis
        return _Hypothesis(better, estimate, loss, posterior)

    def settled(self, hypothesis: _Hypothesis) -> _Hypothesis:
        """Return a hypothesis of means with what rows tell: all but its seasons."""
        candidate, sample = hypothesis.candidate, self.sample
        estimate = self._estimate(candidate, hypothesis.estimate, search=False)
        free = hypothesis.posterior.free.copy()
        free[len(BASE) :] = False
        own = candidate.own(sample, self._span).in_units(sample)
        left = own.values - self._response(estimate, self._rows)
        left = own._replace(values=left)
        posterior = Posterior(candidate, free, left, self._span)
        candidate, _ = posterior.fit()
        estimate = self._estimate(candidate, estimate, search=False)
        candidate, loss = self._judged(candidate, estimate)
        return _Hypothesis(candidate, estimate, loss, posterior)

    def _estimate(
        self, candidate: Candidate, start: Estimate, search: bool
    ) -> Estimate:
        """Return effects, or of those of ``start`` the coefficients."""
        inputs, near = self._inputs, self._near
        if inputs is None or near is None or not (search or start.effects):
            return _NONE
        found = estimated(candidate, self._span, self.judged, near, start, search)
        if not found.effects:
            return found
        response = inputs.response(found, self._table.lengths)
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
            plain = [self.finer(min(plain, key=lambda c: c.loss))]
        else:
            plain = near
        best = min(plain, key=lambda c: c.loss)
        believing = best.candidate._replace(threshold=math.inf)
        usual = self._errors(best.candidate, best.estimate)
        errors = self._errors(believing, best.estimate)
        gains = usual - errors
        # where nothing was disbelieved shortly before, both agree
        differ = np.abs(gains) > _ALIKE * usual
        is_proved = gains.sum() > 2 * math.sqrt(gains @ gains)  # by more than one row
        is_better = errors[differ].sum() < _BELIEVED * usual[differ].sum()
        if not (is_proved and is_better):
            return []
        if all(best is not c for c in near):
            first = min(near, key=lambda c: c.loss)
            if errors.sum() >= self._errors(first.candidate, first.estimate).sum():
                return []
        return [
            c._replace(candidate=c.candidate._replace(threshold=math.inf))
            for c in plain
        ]

    def _errors(self, candidate: Candidate, estimate: Estimate) -> Array:
        """Return the size of each judged row's innovation, but of first ones."""
        found = self._filtered(candidate, estimate)
        told = np.where(found.inverse_F > 0, found.inverse_F, 1.0)
        errors = np.abs(found.v_F / told)
        errors[self.judged.bounds[:-1]] = 0.0
        return errors

    def _filtered(self, candidate: Candidate, estimate: Estimate) -> FilterPass:
        table = candidate.own(self.judged, self._span).in_units(self.judged)
        left = table.values - self._response(estimate, self._late)
        space = candidate.space(self._span)
        return candidate.filtered(space, table._replace(values=left))


def _in_units(
    table: ChannelRows,
    values: Array,
    span: float,
    linked: bool,
    link: Link,
    threshold: float,
) -> Candidate:
    """Return the plain form with location and scale, which all share."""
    form = Form((), linked)
    location, scale = _location_and_scale(values)
    if not linked and has_zeros(values):
        # of rare ones the median is zero, and what is expected is not
        location = float(values.mean())
    given = 1.0, location, scale
    units = Candidate(form, priors(form)[2], *given, threshold=threshold, link=link)
    some = np.flatnonzero(table.lengths >= _TELLING)
    if len(some) < 2:
        return units
    free = units._replace(apart=_FREE, centred=True)
    locations, scales, blur = (x[some] for x in free.measured(table, span))
    told = np.isfinite(blur)
    if told.sum() < 2:
        return units
    logs, middle = np.log(scales[told]), float(np.median(locations))
    apart = math.sqrt(max(logs.var(ddof=1) - blur[told].mean(), 1e-6))
    if apart < _APART and told.all():
        return units
    far = float(np.median(np.abs(locations - middle)[told] / scales[told]))
    scale = math.exp(np.median(logs))
    units = units._replace(apart=apart, location=middle, scale=scale)
    if not linked and has_zeros(table.values):
        sums = np.bincount(table.series, values, len(table.lengths))[some][told]
        share = float(np.mean(sums / table.lengths[some][told] / scales[told]))
        return units._replace(location=share * scale, in_proportion=True)
    return units._replace(centred=far > _FAR)


def _usual(errors: Array) -> float:
    """Return the error of measurement whose square is usual, but for absurd ones."""
    most = _CLIPPED * float(np.median(errors))
    return math.sqrt(float(np.mean(np.minimum(errors, most) ** 2)))


def _location_and_scale(values: Array) -> tuple[float, float]:
    unit = power_of_two(values)
    values = values / unit
    location = float(np.median(values))
    width = 8 * 1.4826 * float(np.median(np.abs(values - location)))
    if width > 0:
        values = np.clip(values, location - width, location + width)
    scale = float(values.std()) or abs(location)
    return unit * location, unit * scale or 1.0
