"""Hypotheses: forms with their most probable hyperparameters, given rows.

Tested in tests/structural/test_decisions.py.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sklode.data.arrays import Array, Flags, Numbers
from sklode.data.links import IDENTITY, Link, has_zeros, margins
from sklode.structural.candidates import (
    FEWEST_HARMONICS,
    Candidate,
)
from sklode.structural.components.space import (
    BASE,
    PLACE,
    VAGUE,
    Form,
    priors,
)
from sklode.structural.effects.effect import pooled
from sklode.structural.effects.inputs import Estimate, Inputs
from sklode.structural.effects.selection import EffectJudge, centred
from sklode.structural.filter.system import STEP, Rule
from sklode.structural.rows import ChannelRows
from sklode.structural.scaling import Scaling
from sklode.structural.search.ahead import scores_ahead
from sklode.structural.search.periods import Seasons
from sklode.structural.search.posterior import REFUSED, Posterior
from sklode.structural.search.rows import MOST_ROWS, SearchRows, judged, sought
from sklode.structural.search.scaling import (
    plain_candidate,
    told_apart,
    usual_error,
)

NO_EFFECTS = Estimate()
# the fewest while hyperparameters are sought; 12 were chosen on competition series'
# pasts, 24 serve long series of fine rows
_HARMONICS = FEWEST_HARMONICS, 12, 24
# last rows that polish what was sought, and places that are tried in one step
_MOST_POLISHED, _MOST_TRIED = 6000, 5
_CHANGES = [PLACE[name] for name in ("slope", "random walk", "velocity", "OU")]
_MEMORIES = [PLACE[name] for name in ("velocity memory", "OU memory")]
_WALK, _OU, _NOISE = PLACE["random walk"], PLACE["OU"], PLACE["noise"]
# of what does not change, in units of spread
_STILL = 1e-4
# of a slope of which nothing is known beforehand, likewise; and of one that may make
# all of y's spread, as a line over the span does
_ANY_SLOPE, _LINE = 10.0, math.sqrt(12)


class Hypothesis(NamedTuple):
    """A form with its most probable hyperparameters."""

    candidate: Candidate  # without effects of X
    estimate: Estimate  # of those
    loss: float  # minus the log posterior density, in y's units
    posterior: Posterior


def most_probable_of(hypotheses: list[Hypothesis]) -> Hypothesis:
    """Return the most probable one."""
    return min(hypotheses, key=lambda c: c.loss)


def from_bound(values: Array, bounds: Array) -> Array:
    """Return how far values of one channel are from the nearer bound."""
    return margins(values[:, None], bounds[None])[:, 0]


class Estimator:
    """What a channel's rows say of the hyperparameters of any form.

    These are estimated given effects of X, and those given these: the filter need not
    carry coefficients while it is run most often.
    """

    def __init__(
        self,
        rows: SearchRows,
        span: float,
        seasons: Seasons,
        link: Link,
        bounds: Array,
    ) -> None:
        table, inputs = rows.table, rows.inputs
        # a series may lack the column
        self._table, self._inputs = table.without_empty(), inputs
        self._span, self.link = span, link
        self.at_bounds = has_zeros(from_bound(table.values, bounds))
        self._log_odds = seasons.log_odds
        self.is_pooled = len(table.lengths) > 1
        self._may_differ = self.is_pooled  # whether series may have scales of their own
        # places of the rows that seek hyperparameters, and of those that judge forms
        self._sought, self._judging = sought(table), judged(rows)
        self.sample = table.where(self._sought).without_empty()
        self.judged = table.where(self._judging).without_empty()
        self._passed = rows.passed[self._judging]
        self.has_inputs, self._inputs_judged = inputs is not None, None
        if inputs is not None:
            self._inputs_judged = inputs.at(self._judging)

    @property
    def of_like_series(self) -> Estimator:
        """The same, of series that share one scale, be they more or less affected."""
        found = copy.copy(self)
        found._may_differ = False
        return found

    def _own(
        self, candidate: Candidate, estimate: Estimate, table: ChannelRows
    ) -> Scaling:
        """Return each series' location and scale, as effects leave its rows.

        What the panel knows of effects is left out, not what a series has of its own:
        of few rows that leaves nothing. ``table`` is the sample or the judged rows.
        """
        left = self._without(estimate, table, estimate.usual)
        return candidate.own(left, self._span).scaling

    def _places(self, table: ChannelRows) -> Numbers:
        """Return where the rows of the sample, or those that judge, stand."""
        return self._sought if table is self.sample else self._judging

    def _without(
        self, estimate: Estimate, table: ChannelRows, response: Array
    ) -> ChannelRows:
        """Return the rows of a panel, in y's units, without a response to effects."""
        if not self.is_pooled or estimate.scaling is None:
            return table
        rows, link = self._places(table), estimate.scaling.link
        scale = estimate.scaling.at(self._table.series[rows]).units.scale
        added = scale * response[rows]
        return table._replace(values=link.inverse(link.of(table.values) - added))

    def _left(
        self, scaling: Scaling, estimate: Estimate, table: ChannelRows
    ) -> ChannelRows:
        """Return rows in states' units without what effects add there."""
        rows = scaling.rows(table)
        if not estimate.effects:
            return rows
        if not self.is_pooled:
            response = estimate.response[self._places(table)]
            return rows._replace(values=rows.values - response)
        # effects may have been found in other units
        left = self._without(estimate, table, estimate.response)
        return rows._replace(values=scaling.rows(left).values)

    def _rows(
        self, candidate: Candidate, estimate: Estimate, table: ChannelRows
    ) -> ChannelRows:
        """Return the same in each series' own units, as effects leave them."""
        return self._left(self._own(candidate, estimate, table), estimate, table)

    def most_probable(
        self, form: Form, start: Array | None = None, estimate: Estimate = NO_EFFECTS
    ) -> Hypothesis:
        """Return a form's best hyperparameters, sought from some logarithms on."""
        _, _, theta = priors(form)
        # those of a form with fewer seasons, which come last
        if start is not None:
            theta[: len(start)] = start
        free = np.full(len(theta), True)
        return self._sought_from(form, theta, free, estimate)

    def steady(self, form: Form, estimate: Estimate) -> Hypothesis:
        """Return a form's best hyperparameters if nothing changes."""
        _, _, theta = priors(form)
        theta[_CHANGES] = math.log(_STILL)
        theta[form.memories] = math.log(self._span / _STILL)
        free = np.full(len(theta), True)
        free[[*_CHANGES, *_MEMORIES]] = False
        free[form.memories] = False
        return self._sought_from(form, theta, free, estimate)

    def of_any_slope(self, other: Hypothesis) -> Hypothesis:
        """Return a hypothesis whose slope may be as large as that of a line."""
        model, free = other.candidate.model, other.posterior.free.copy()
        return self._with_slope(_LINE, other, model.form, model.theta.copy(), free)

    def drifting(self, other: Hypothesis, linked: bool, has_noise: bool) -> Hypothesis:
        """Return a random walk with drift, and noise or none; and nothing else.

        With noise it is what the Theta method forecasts by: Hyndman and Billah,
        "Unmasking the Theta Method" (2003).
        """
        form = Form(linked=linked, gap=other.candidate.model.form.gap)
        _, _, theta = priors(form)
        free = np.full(len(theta), False)
        free[_WALK], free[_NOISE] = True, has_noise
        theta[[k for k in _CHANGES if k != _WALK]] = math.log(_STILL)
        if not has_noise:
            theta[_NOISE] = math.log(_STILL)
        return self._with_slope(_ANY_SLOPE, other, form, theta, free)

    def _with_slope(
        self, size: float, other: Hypothesis, form: Form, theta: Array, free: Flags
    ) -> Hypothesis:
        """Return a form with a slope of a size.

        What is an outlier to another hypothesis is one to it.
        """
        theta[PLACE["slope"]], free[PLACE["slope"]] = math.log(size), False
        found = self._sought_from(form, theta, free, NO_EFFECTS)
        model = other.candidate.model
        model = found.candidate.model._replace(
            rule=model.rule, harmonics=model.harmonics
        )
        return found._replace(candidate=found.candidate._replace(model=model))

    def returns_late(self, hypothesis: Hypothesis) -> bool:
        """Return whether a smooth deviation is long in coming back, and rarely did."""
        model = hypothesis.candidate.model
        medians, widths, _ = priors(model.form)
        k = PLACE["OU memory"]
        # few rows tell nothing of a memory, and leave it where its prior has it
        is_told = bool(model.theta[k] > medians[k] + widths[k])
        return model.form.returning and is_told and not model.fades(self._span)

    def wandering(self, hypothesis: Hypothesis) -> Hypothesis:
        """Return a hypothesis whose trend moves as its deviation did, and for good."""
        model, free = hypothesis.candidate.model, hypothesis.posterior.free.copy()
        form, theta = model.form._replace(returning=False), model.theta.copy()
        prior = hypothesis.posterior.prior(theta[free])
        sizes = np.exp(theta)
        # an OU process of rate b and variance s^2 moves by 2 b s^2 in a unit of time;
        # the velocity of rate a that moves one has the variance b (a + b) s^2
        a, b = 1 / sizes[_MEMORIES]
        walks = sizes[_WALK], sizes[_OU] * math.sqrt(2 * b * self._span)
        theta[_WALK], theta[_OU] = math.log(math.hypot(*walks)), math.log(_STILL)
        theta[PLACE["velocity"]] += math.log(self._span * math.sqrt(b * (a + b)))
        free[[_OU, PLACE["OU memory"]]] = False
        found = self._sought_from(form, theta, free, hypothesis.estimate)
        # in other units the prior is another: it is as probable as what it is made of
        prior -= found.posterior.prior(found.candidate.model.theta[free])
        return found._replace(loss=found.loss + prior)

    def _units(self, form: Form, estimate: Estimate) -> tuple[Candidate, float]:
        """Return the plain candidate with the units of a form's rows, and a factor.

        How series differ is judged by what effects leave. Their scales so many times as
        large are in the units that effects are of: those of rows with all that acts.
        """
        link, rule = IDENTITY, Rule()
        if form.linked:
            link = self.link
        elif self.at_bounds:
            rule = Rule(threshold=math.inf)  # large counts are rare, and true
        left = self._without(estimate, self.sample, estimate.usual)
        found = self._plain(left, link, rule)
        if left is self.sample:
            return found, 1.0
        usual = self._plain(self.sample, link, rule)
        return found, usual.scaling.scale / found.scaling.scale

    def _plain(self, rows: ChannelRows, link: Link, rule: Rule) -> Candidate:
        """Return the plain candidate of some rows."""
        values = link.of(rows.values)
        found = plain_candidate(values, link=link, rule=rule)
        if self._may_differ:
            found = told_apart(found, rows, values, self._span)
        return found

    def _sought_from(
        self, form: Form, theta: Array, free: Flags, estimate: Estimate
    ) -> Hypothesis:
        """Return the best hyperparameters, of those that are free."""
        span = self._span
        units, factor = self._units(form, estimate)
        effects = units.scaling.random_effects
        if not self.is_pooled or (effects and effects.has_location):
            # nothing tells of the level at first rows
            theta[PLACE["constant"]] = math.log(VAGUE)
            free[PLACE["constant"]] = False
        own = self._own(units, estimate, self.sample).times(factor)
        left = self._left(own, estimate, self.sample)
        model = units.model._replace(form=form, theta=theta)
        posterior = Posterior(model, free, left, span)
        model, _ = posterior.fit()
        scaling = units.scaling.times(factor)._replace(error=usual_error(left.errors))
        candidate = units._replace(model=model, scaling=scaling)
        candidate, loss = self._judged(candidate, estimate)
        # minus the log posterior: likelihood, prior of hyperparameters, of seasons and
        # of effects
        loss += posterior.prior(candidate.model.theta[free])
        loss += sum(self._log_odds[period] for period in form.periods)
        return Hypothesis(candidate, estimate, loss + estimate.loss, posterior)

    def _judged(
        self, candidate: Candidate, estimate: Estimate
    ) -> tuple[Candidate, float]:
        """Return what all judged rows lose, in y's units: the sample misleads.

        The trend of the candidate that is returned steps if that is more probable.
        """
        judged = self.judged
        own = self._own(candidate, estimate, judged)
        jacobian = own.log_jacobian(judged)
        table = self._left(own, estimate, judged)
        model = candidate.model
        space = model.space(self._span)
        model = model._replace(rule=model.rule._replace(step=STEP))
        with np.errstate(all="ignore"):
            found = model.filtered(space, table)
            loss = found.loss
            if found.jumps.any():
                steady = model._replace(rule=model.rule._replace(step=math.inf))
                other = steady.filtered(space, table).loss
                if other < loss:
                    model, loss = steady, other
        found_loss = jacobian + loss if math.isfinite(loss) else REFUSED
        return candidate._replace(model=model), found_loss

    def polished(self, hypothesis: Hypothesis) -> Hypothesis:
        """Return a hypothesis with what many rows tell, if that is more probable.

        The few that a search reads do not show how a season changes in a year.
        """
        candidate, estimate = hypothesis.candidate, hypothesis.estimate
        left = self._rows(candidate, estimate, self.judged)
        left = left.where(slice(-_MOST_POLISHED, None))
        free, theta = hypothesis.posterior.free, candidate.model.theta.copy()
        # from what does not change nothing leads away
        form = candidate.model.form
        kept, (_, _, usual) = form.memories, priors(form)
        theta[kept] = np.minimum(theta[kept], usual[kept])
        theta[~free] = candidate.model.theta[~free]
        started = candidate.model._replace(theta=theta)
        posterior = Posterior(started, free, left, self._span)
        model, _ = posterior.fit(_MOST_TRIED)
        better = candidate._replace(model=model)
        # of the loss, what changed: effects, prior and likelihood
        loss = hypothesis.loss - estimate.loss + posterior.prior(model.theta[free])
        loss -= posterior.prior(candidate.model.theta[free])
        loss -= self._judged(candidate, estimate)[1]
        estimate = self.estimated_effects(better, estimate)
        better, likelihood = self._judged(better, estimate)
        loss += likelihood + estimate.loss
        if loss >= hypothesis.loss:
            return hypothesis
        return Hypothesis(better, estimate, loss, posterior)

    def settled(self, hypothesis: Hypothesis) -> Hypothesis:
        """Return a hypothesis of means with what rows tell: all but its seasons."""
        candidate = hypothesis.candidate
        # what effects add is known at the rows of means alone
        estimate = self._everywhere(hypothesis.estimate, candidate.scaling)
        estimate = self.estimated_effects(candidate, estimate)
        free = hypothesis.posterior.free.copy()
        free[len(BASE) :] = False
        left = self._rows(candidate, estimate, self.sample)
        posterior = Posterior(candidate.model, free, left, self._span)
        model, _ = posterior.fit()
        candidate = candidate._replace(model=model)
        estimate = self.estimated_effects(candidate, estimate)
        candidate, loss = self._judged(candidate, estimate)
        return Hypothesis(candidate, estimate, loss, posterior)

    def of_each(self, hypothesis: Hypothesis, series: Numbers) -> list[Candidate]:
        """Return candidates with the hyperparameters of some judged series alone."""
        candidate, free = hypothesis.candidate, hypothesis.posterior.free
        rows = self._rows(candidate, hypothesis.estimate, self.judged)
        # what does not change in most may change in these
        model, place = candidate.model, PLACE["constant"]
        _, _, start = priors(model.form)
        theta = np.where(free, model.theta, start)
        theta[place], free = model.theta[place], np.arange(len(free)) != place
        started, found = model._replace(theta=theta), []
        for k in series.tolist():
            own = rows.alone(k).where(slice(-MOST_ROWS, None))
            model, _ = Posterior(started, free, own, self._span).fit()
            found.append(candidate._replace(model=model))
        return found

    def losses_by_series(
        self, candidates: Sequence[Candidate], estimate: Estimate, series: Numbers
    ) -> Array:
        """Return what judged series lose, (candidate, series), in y's units."""
        left = self._without(estimate, self.judged, estimate.response)
        table = left.where(np.isin(left.series, series)).without_empty()
        losses = []
        for candidate in candidates:
            scaling, model = candidate.own(table, self._span).scaling, candidate.model
            with np.errstate(all="ignore"):
                found = model.filtered(model.space(self._span), scaling.rows(table))
            own = found.losses + scaling.log_jacobians(table)
            losses.append(np.where(np.isfinite(own), own, REFUSED))
        return np.array(losses)

    def finer(self, hypothesis: Hypothesis) -> Hypothesis:
        """Return a hypothesis with the most probable number of harmonics."""
        candidate, estimate = hypothesis.candidate, hypothesis.estimate
        model = candidate.model
        if not model.form.periods:
            return hypothesis
        several = [
            candidate._replace(model=model._replace(harmonics=n)) for n in _HARMONICS
        ]
        losses = [self._judged(one, estimate)[1] for one in several]
        k = int(np.argmin(losses))
        # the hypothesis was found with the first number
        loss = hypothesis.loss + losses[k] - losses[0]
        return hypothesis._replace(candidate=several[k], loss=loss)

    def selected_effects(self, candidate: Candidate, start: Estimate) -> Estimate:
        """Return the most probable effects, sought from those of ``start`` on."""
        if self._inputs_judged is None:
            return NO_EFFECTS
        judge = self._judge(candidate, self._inputs_judged, start)
        return self._everywhere(judge.selected(), judge.scaling)

    def with_weeks(self, candidate: Candidate, start: Estimate) -> Estimate:
        """Return the effects of ``start``, and weeks of the year if years prove these.

        These are chosen beside all harmonics that a candidate has: what fewer leave
        recurs as well.
        """
        inputs = self._inputs_judged
        if inputs is None or not inputs.has_weeks:
            return start
        judge = self._judge(candidate, inputs, start, by_year=True)
        return self._everywhere(judge.with_weeks(), judge.scaling)

    def estimated_effects(self, candidate: Candidate, start: Estimate) -> Estimate:
        """Return the effects of ``start``, their coefficients estimated again."""
        if self._inputs_judged is None or not start.effects:
            return NO_EFFECTS
        judge = self._judge(candidate, self._inputs_judged, start)
        return self._everywhere(judge.estimated(), judge.scaling)

    def _judge(
        self,
        candidate: Candidate,
        inputs: Inputs,
        start: Estimate,
        by_year: bool = False,
    ) -> EffectJudge:
        """Return what judges effects by the judged rows."""
        known = start
        if start.scaling is not None and start.scaling.link != candidate.scaling.link:
            # what effects add to y tells little of what they add to its logarithm
            known = NO_EFFECTS
        scaling = self._own(candidate, known, self.judged)
        return EffectJudge(
            candidate=candidate,
            span=self._span,
            table=scaling.rows(self.judged),
            left=self._left(scaling, known, self.judged),
            inputs=inputs,
            start=start,
            scaling=scaling,
            by_year=by_year,
        )

    def _everywhere(self, found: Estimate, scaling: Scaling) -> Estimate:
        """Return an estimate with what it adds at all rows, not those judged alone."""
        if self._inputs is None or not found.effects:
            return found
        table, columns = self._table, self._inputs.columns(found.effects)
        if self.is_pooled:
            columns = centred(columns, table, pooled(found.effects))
            found = found._replace(scaling=scaling)

        def added(coefficients: Array) -> Array:
            of_rows = np.repeat(coefficients, table.lengths, axis=0)
            sums: Array = (columns * of_rows).sum(1)
            return sums

        response, usual = added(found.coefficients), added(found.means)
        return found._replace(response=response, usual=usual)

    def errors(self, candidate: Candidate, estimate: Estimate) -> Array:
        """Return the size of each judged row's innovation, but of first ones.

        They are in units of what is linked: each series' scale follows the candidate.
        """
        own = self._own(candidate, estimate, self.judged)
        left = self._left(own, estimate, self.judged)
        found = candidate.model.filtered(candidate.model.space(self._span), left)
        # v is v / F over 1 / F, which are 0 where nothing is observed
        inverse_F = np.where(found.inverse_F > 0, found.inverse_F, 1.0)
        errors = np.abs(found.v_F / inverse_F) * own.at(self.judged.series).units.scale
        errors[self.judged.bounds[:-1]] = 0.0
        return errors

    def scores_ahead(self, hypothesis: Hypothesis) -> Array:
        """Return how bad forecasts of the judged rows are, see `ahead.scores_ahead`."""
        candidate, estimate = hypothesis.candidate, hypothesis.estimate
        own = self._own(candidate, estimate, self.judged)
        return scores_ahead(
            candidate._replace(scaling=own),
            self.judged,
            self._left(own, estimate, self.judged),
            self._span,
            self._passed,
        )
