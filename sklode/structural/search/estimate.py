"""Hypotheses: forms with their most probable hyperparameters, given rows.

Tested in tests/structural/test_decisions.py.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from sklode.data.arrays import Array, Flags, Numbers
from sklode.data.links import Link, has_zeros, margins
from sklode.structural.candidates import (
    FEWEST_HARMONICS,
    THRESHOLD,
    Candidate,
)
from sklode.structural.components.space import (
    BASE,
    MEMORIES_OF_SEASONS,
    PLACE,
    VAGUE,
    Form,
    priors,
)
from sklode.structural.effects.inputs import Estimate, Inputs
from sklode.structural.effects.selection import EffectJudge
from sklode.structural.filter.system import FilterPass
from sklode.structural.rows import ChannelRows
from sklode.structural.scaling import in_units, usual_error
from sklode.structural.search.periods import Seasons
from sklode.structural.search.posterior import REFUSED, Posterior
from sklode.structural.search.rows import SearchRows, judged, sought

NO_EFFECTS = Estimate()
# the fewest while hyperparameters are sought; 12 were chosen on competition series'
# pasts, 24 serve long series of fine rows
_HARMONICS = FEWEST_HARMONICS, 12, 24
# last rows that polish what was sought
_MOST_POLISHED = 6000
_CHANGES = [PLACE[name] for name in ("slope", "random walk", "velocity", "OU")]
_MEMORIES = [PLACE[name] for name in ("velocity memory", "OU memory")]
# of what does not change, in units of spread
_STILL = 1e-4


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
        self._table, self._inputs = table, inputs
        self._span, self.link = span, link
        self.at_bounds = has_zeros(from_bound(table.values, bounds))
        self._log_odds = seasons.log_odds
        self.is_pooled = len(table.lengths) > 1
        # places of the rows that seek hyperparameters, and of those that judge forms
        self._sought, self._judging = sought(table), judged(rows)
        self.sample = table.where(self._sought).without_empty()
        self.judged = table.where(self._judging).without_empty()
        self.has_inputs, self._inputs_judged = inputs is not None, None
        if inputs is not None:
            self._inputs_judged = inputs.at(self._judging)

    def _response(self, estimate: Estimate, rows: Numbers) -> Array | float:
        """Return what effects add at some rows, in states' units."""
        return estimate.response[rows] if estimate.effects else 0.0

    def _left(
        self, table: ChannelRows, estimate: Estimate, rows: Numbers
    ) -> ChannelRows:
        """Return rows in states' units without what effects add at these places."""
        left = table.values - self._response(estimate, rows)
        return table._replace(values=left)

    def most_probable(
        self, form: Form, start: Array | None = None, estimate: Estimate = NO_EFFECTS
    ) -> Hypothesis:
        """Return a form's best hyperparameters, sought from some logarithms on."""
        _, _, logs = priors(form)
        # those of a form with fewer seasons, which come last
        if start is not None:
            logs[: len(start)] = start
        free = np.full(len(logs), True)
        return self._sought_from(form, logs, free, estimate)

    def steady(self, form: Form, estimate: Estimate) -> Hypothesis:
        """Return a form's best hyperparameters if nothing changes."""
        _, _, logs = priors(form)
        logs[_CHANGES] = math.log(_STILL)
        logs[MEMORIES_OF_SEASONS] = math.log(self._span / _STILL)
        free = np.full(len(logs), True)
        free[[*_CHANGES, *_MEMORIES]] = False
        free[MEMORIES_OF_SEASONS] = False
        return self._sought_from(form, logs, free, estimate)

    def _units(self, form: Form) -> Candidate:
        """Return the plain candidate with the units of a form's rows."""
        values, threshold = self.sample.values, THRESHOLD
        if form.linked:
            values = self.link.of(values)
        elif self.at_bounds:
            threshold = math.inf  # large counts are rare, and true
        return in_units(
            self.sample,
            values,
            self._span,
            linked=form.linked,
            link=self.link,
            threshold=threshold,
        )

    def _sought_from(
        self, form: Form, logs: Array, free: Flags, estimate: Estimate
    ) -> Hypothesis:
        """Return the best hyperparameters, of those that are free."""
        sample, span, units = self.sample, self._span, self._units(form)
        if not self.is_pooled or units.centred:
            # nothing tells of the level at first rows
            logs[PLACE["constant"]] = math.log(VAGUE)
            free[PLACE["constant"]] = False
        own = units.own(sample, span)
        errors = own.in_units(sample).errors
        values = self.link.of(sample.values) if form.linked else sample.values
        each = own.at(sample.series).units
        scaled = (values - each.location) / each.scale
        table = sample._replace(values=scaled, errors=errors)
        table = self._left(table, estimate, self._sought)
        candidate = units._replace(form=form, logs=logs, error=usual_error(errors))
        posterior = Posterior(candidate, free, table, span)
        candidate, _ = posterior.fit()
        candidate, loss = self._judged(candidate, estimate)
        # minus the log posterior: likelihood, prior of hyperparameters, of seasons and
        # of effects
        loss += posterior.prior(candidate.logs[free])
        loss += sum(self._log_odds[period] for period in candidate.form.periods)
        return Hypothesis(candidate, estimate, loss + estimate.loss, posterior)

    def _judged(
        self, candidate: Candidate, estimate: Estimate
    ) -> tuple[Candidate, float]:
        """Return what all judged rows lose, in y's units: the sample misleads.

        The trend of the candidate that is returned steps if that is more probable.
        """
        judged = self.judged
        own = candidate.own(judged, self._span)
        units = own.log_units(judged)
        table = self._left(own.in_units(judged), estimate, self._judging)
        space = candidate.space(self._span)
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

    def polished(self, hypothesis: Hypothesis) -> Hypothesis:
        """Return a hypothesis with what many rows tell, if that is more probable.

        The few that a search reads do not show how a season changes in a year.
        """
        candidate, estimate = hypothesis.candidate, hypothesis.estimate
        own = candidate.own(self.judged, self._span).in_units(self.judged)
        left = self._left(own, estimate, self._judging)
        left = left.where(slice(-_MOST_POLISHED, None))
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
        estimate = self.estimated_effects(better, estimate)
        better, likelihood = self._judged(better, estimate)
        loss += likelihood + estimate.loss
        if loss >= hypothesis.loss:
            return hypothesis
        return Hypothesis(better, estimate, loss, posterior)

    def settled(self, hypothesis: Hypothesis) -> Hypothesis:
        """Return a hypothesis of means with what rows tell: all but its seasons."""
        candidate, sample = hypothesis.candidate, self.sample
        estimate = self.estimated_effects(candidate, hypothesis.estimate)
        free = hypothesis.posterior.free.copy()
        free[len(BASE) :] = False
        own = candidate.own(sample, self._span).in_units(sample)
        left = self._left(own, estimate, self._sought)
        posterior = Posterior(candidate, free, left, self._span)
        candidate, _ = posterior.fit()
        estimate = self.estimated_effects(candidate, estimate)
        candidate, loss = self._judged(candidate, estimate)
        return Hypothesis(candidate, estimate, loss, posterior)

    def finer(self, hypothesis: Hypothesis) -> Hypothesis:
        """Return a hypothesis with the most probable number of harmonics."""
        candidate = hypothesis.candidate
        if not candidate.form.periods:
            return hypothesis
        several = [candidate._replace(harmonics=n) for n in _HARMONICS]
        losses = [self._filtered(c, hypothesis.estimate).loss for c in several]
        k = int(np.argmin(losses))
        # the hypothesis was found with the first number
        loss = hypothesis.loss + losses[k] - losses[0]
        return hypothesis._replace(candidate=several[k], loss=loss)

    def selected_effects(self, candidate: Candidate, start: Estimate) -> Estimate:
        """Return the most probable effects, sought from those of ``start`` on."""
        if self._inputs_judged is None:
            return NO_EFFECTS
        judge = self._judge(candidate, self._inputs_judged, start)
        return self._everywhere(judge.selected())

    def estimated_effects(self, candidate: Candidate, start: Estimate) -> Estimate:
        """Return the effects of ``start``, their coefficients estimated again."""
        if self._inputs_judged is None or not start.effects:
            return NO_EFFECTS
        judge = self._judge(candidate, self._inputs_judged, start)
        return self._everywhere(judge.estimated())

    def _judge(
        self, candidate: Candidate, inputs: Inputs, start: Estimate
    ) -> EffectJudge:
        """Return what judges effects by the judged rows."""
        return EffectJudge(
            candidate=candidate,
            span=self._span,
            table=self.judged,
            inputs=inputs,
            start=start,
        )

    def _everywhere(self, found: Estimate) -> Estimate:
        """Return an estimate with what it adds at all rows, not those judged alone."""
        if self._inputs is None or not found.effects:
            return found
        response = self._inputs.response(found, self._table.lengths)
        return found._replace(response=response)

    def errors(self, candidate: Candidate, estimate: Estimate) -> Array:
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
        left = self._left(table, estimate, self._judging)
        return candidate.filtered(candidate.space(self._span), left)
