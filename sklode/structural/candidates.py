"""Candidates, the models of a channel that are averaged over; the filter's run of one.

They are compared in `sklode.structural.search.forms`; an outlier loses its weight in
`sklode.structural.filter.outliers`.

Tested in tests/structural/test_exactness.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from sklode.data.arrays import Array, Flags, Numbers
from sklode.data.links import IDENTITY, Link
from sklode.structural.coefficients import CoefficientPrior, RandomCoefficients
from sklode.structural.components import noise
from sklode.structural.components.space import (
    LEVEL,
    PLACE,
    Form,
    StateSpace,
    layout_of,
    state_space,
)
from sklode.structural.filter.system import (
    FilterPass,
    Rule,
    Schedule,
    States,
    System,
    Wanted,
    distinct,
)
from sklode.structural.rows import ChannelRows
from sklode.structural.scaling import LocationScale, Scaling

FEWEST_HARMONICS = 6  # of a season of longer periods; fitting may find more
LEAST_WEIGHT = 2e-3  # of what forecasts average over
# of the filter, that find the scale of each series
_PASSES = 2
# first rows, whose states are vague; rows that tell a skew
_BURNT, _FEWEST = 5, 10
# memories in a series, of deviations that pass
_FADED = 10.0
# of errors, over that of normal ones: few rows decide beyond
_MOST_SMEARING = 2.0


class Model(NamedTuple):
    """A state space model: a form, hyperparameters, and what is an outlier to it."""

    form: Form
    theta: Array  # (hyperparameter,), logarithms, see `space.BASE`
    harmonics: int = FEWEST_HARMONICS
    rule: Rule = Rule()  # infinite where large innovations are true

    def space(self, span: float, before: float = 0.0) -> StateSpace:
        """Return its state space, of rows so long before the first ones."""
        return state_space(self.form, self.theta, span, self.harmonics, before)

    @property
    def noise(self) -> float:
        """Variance of the observation noise, in units of the states."""
        return noise.variance(np.exp(self.theta[PLACE["noise"]]))

    @property
    def constant(self) -> float:
        """Deviation of a level at a first row, in units of the states."""
        return float(np.exp(self.theta[PLACE["constant"]]))

    def fades(self, span: float) -> bool:
        """Return whether deviations fade so often that they pass: no trend does."""
        memory = np.exp(self.theta[PLACE["OU memory"]])
        return bool(memory <= span / _FADED)

    def schedule(self, table: ChannelRows, since: Array | float = 0.0) -> Schedule:
        """Return what a system has of rows, that are not changed by ``theta``.

        States are those ``since`` (series,) before the first rows.
        """
        # the first input is how far the clock is ahead of time; X follows
        clock, X = table.clock, table.inputs[:, 1:]
        first, has_rows = table.bounds[:-1], table.lengths > 0
        before = np.empty(len(clock))
        before[1:] = table.times[1:] - table.times[:-1]
        before[first[has_rows]] = np.broadcast_to(since, first.shape)[has_rows]
        gaps, gap = distinct(before)
        layout = layout_of(self.form, self.harmonics)
        return Schedule(
            bounds=table.bounds,
            design=layout.design(clock, X[:, self.form.columns]),
            errors=table.errors**2,
            gaps=gaps,
            gap=gap,
        )

    def filtered(
        self,
        space: StateSpace,
        table: ChannelRows,
        parts: Array | None = None,
        states: States | None = None,
        since: Array | float = 0.0,
        after: Array | None = None,
    ) -> FilterPass:
        """Filter rows in the units of the states, see `forward.filter_rows`.

        No ``states``: series are filtered from their first rows on.
        """
        system = space.system(self.schedule(table, since))
        return self.run(system, space, table.values, parts, states=states, after=after)

    def run(
        self,
        system: System,
        space: StateSpace,
        values: Array,
        parts: Array | None = None,
        states: States | None = None,
        after: Array | None = None,
    ) -> FilterPass:
        """Filter the rows of a system."""
        if states is None:
            states = States.first(space.start, len(system.bounds) - 1)
        else:
            states = states.copy()
        found: FilterPass = forward().filter_rows(
            system,
            values=values,
            states=states,
            rule=self.rule,
            wanted=Wanted.of(len(space.start), parts, after),
        )
        return found


class MergedRows(NamedTuple):
    """Rows of series, in units of y, with those that are asked among them."""

    rows: ChannelRows
    is_asked: Flags  # (row,)
    leads: Array  # (series,), by how much what is asked begins before a first row
    schedule: Schedule  # of the series that have rows


class Candidate(NamedTuple):
    """One of the models that a forecast averages over: how, of what, how much."""

    model: Model
    scaling: Scaling
    weight: float = 1.0
    group: int = 0  # of the series that it is for, see `groups`
    is_drawn: bool = False  # by some series, as their rows tell: see `mixing`
    coefficients: RandomCoefficients | None = None  # None: of each series alone
    prior: CoefficientPrior | None = None  # of each series, see `Candidate.own`
    levels: Array | None = None
    """Deviations of first levels, (series,), where not the form's; else NaN."""

    @property
    def observed_noise(self) -> float:
        """Variance of noise and the usual error of measurement, as seen ahead."""
        return self.model.noise + self.scaling.error**2

    def alone(self, series: int) -> Candidate:
        """Return it with the location, scale and coefficients of one series."""
        return self._replace(scaling=self.scaling.alone(series)).of([series])

    def of(self, series: Numbers | list[int]) -> Candidate:
        """Return it with what is known before the first rows of some series."""
        return self._replace(
            prior=None if self.prior is None else self.prior.of(series),
            levels=None if self.levels is None else self.levels[series],
        )

    def own(
        self, table: ChannelRows, span: float, members: Numbers | None = None
    ) -> Candidate:
        """Return it with each series' location, scale, and prior of coefficients.

        ``members`` (series,) are their numbers in the panel of the fit, -1 of others;
        None: all are others.
        """
        found = self._with_own_scaling(table, span)
        found = found._replace(levels=self._levels(table))
        if self.coefficients is None:
            return found
        n, effects = len(table.lengths), self.scaling.random_effects
        has_own = effects is not None and np.isfinite(effects.distance)
        X = table.inputs[:, 1:][:, self.model.form.columns]
        prior = self.coefficients.prior(
            members=np.full(n, -1) if members is None else members,
            ratios=found.scaling.ratios(n),
            centres=table.means(X),
            is_located=(table.lengths > 0) & has_own,
        )
        return found._replace(prior=prior)

    def _levels(self, table: ChannelRows) -> Array | None:
        """Return how far series' levels are from what is known before their rows."""
        effects, coefficients = self.scaling.random_effects, self.coefficients
        deviation = np.nan if coefficients is None else coefficients.deviation
        is_empty = table.lengths == 0
        if effects is not None and np.isfinite(effects.distance):
            # those that have rows have locations of their own
            distance = deviation if np.isfinite(deviation) else effects.distance
            return np.where(is_empty, distance, np.nan) if is_empty.any() else None
        return np.full(len(is_empty), deviation) if np.isfinite(deviation) else None

    def first(self, space: StateSpace, n: int) -> States:
        """Return the states before the first rows of ``n`` series."""
        states = States.first(space.start, n)
        if self.levels is not None:
            # what is known of a series' level is how far those of others differ
            variances = states.covariances[:, LEVEL, LEVEL]
            usual = self.model.constant**2
            more = np.where(np.isnan(self.levels), usual, self.levels**2) - usual
            states.covariances[:, LEVEL, LEVEL] = variances + more
        if self.prior is not None:
            self.prior.write(states.means, states.covariances, LEVEL)
        return states

    def _with_own_scaling(self, table: ChannelRows, span: float) -> Candidate:
        """Return it with each series' location and scale, (series,)."""
        usual, effects = self.scaling, self.scaling.random_effects
        if effects is None:
            return self
        location, scale, blur = self.measured(table, span)
        # constants stay as narrow as they are
        blur = np.where(np.isinf(blur), 0.0, blur)
        # the less is told of it, the nearer to the usual one: the mean of a normal
        # logarithm of variance ``spread`` squared, seen with variance ``blur``
        prior = effects.spread**2
        weight = prior / (prior + blur)
        # the integral over scales: Laplace's approximation
        z = np.log(scale / usual.scale)
        known = blur > 0
        cost = np.log(1 + prior / np.where(known, blur, 1.0)) + z**2 / (prior + blur)
        cost = 0.5 * float(cost[known & (table.lengths > 0)].sum())
        scale = usual.scale * (scale / usual.scale) ** weight
        if effects.in_proportion:
            location = usual.location * scale / usual.scale
        of_series = LocationScale(location, scale)
        return self._replace(scaling=usual._replace(of_series=of_series, cost=cost))

    def measured(self, table: ChannelRows, span: float) -> tuple[Array, Array, Array]:
        """Return each series' location, scale, and variance of its logarithm.

        The last is (kurtosis - 1) / 4 rows, and infinite where all values are equal.
        """
        series, counts = table.series, table.lengths
        usual = self.scaling
        values, n = usual.scaled(table.values), np.maximum(counts, 1)
        middle, varies = _middles(values, table)

        def sums_of(values: Array) -> Array:
            sums = np.bincount(series, values, len(counts))
            return np.asarray(sums, np.float64)

        # a start: the mean deviation, or of n equal values an n-th; the more there are,
        # the narrower
        spread = sums_of(np.abs(values - middle[series])) / n
        equal = np.where(counts > 0, 1 / n, 1.0)
        scale = usual.scale * np.where(varies, spread, equal)
        # a constant is known; others are as far from what all share as they are
        effects = usual.random_effects
        has_location = effects is not None and effects.has_location
        own = (counts > 0) & (has_location | ~varies)
        location = usual.location + usual.scale * np.where(own, middle, 0.0)
        space = self.model.space(span)
        # innovations in deviations have the mean square one if the scale is right; one
        # square more, of one, keeps that of few rows near what it was
        for _ in range(_PASSES):
            own_units = usual._replace(of_series=LocationScale(location, scale))
            found = self.model.filtered(space, own_units.rows(table))
            # v^2 / F is (v / F)^2 over 1 / F, which is 0 where nothing is observed
            inverse_F = np.where(found.inverse_F > 0, found.inverse_F, 1)
            squares = found.v_F**2 / inverse_F
            sums = sums_of(squares)
            scale = scale * np.sqrt((sums + 1) / n)
        # the delta method: the variance of s^2 is (kurtosis - 1) s^4 / n, and that of
        # log s a quarter of it over s^4; normal rows have 1 / (2 n), and none less
        fourth, count = sums_of(squares**2), np.maximum(counts, 0.1)
        kurtosis = count * fourth / np.maximum(sums, 1e-9) ** 2
        blur = np.maximum(0.5, (kurtosis - 1) / 4) / count
        return location, scale, np.where(varies, blur, np.inf)

    def smearing_factor(self, table: ChannelRows, span: float) -> float:
        r"""Return how far sums lie from medians, over how far normal errors put them.

        .. math:: \log \frac{\sum e^{m + v}}{\sum e^{m}} \Big/
            \log \frac{\sum e^{m + F / 2}}{\sum e^{m}}

        with m, v and F a row's expected logarithm, error and variance, had nothing that
        fades been seen. After Duan, "Smearing Estimate" (1983), but rows count by what
        they add to a sum: those of large values often have less noise.
        """
        if not self.scaling.link.is_logarithm:
            return 1.0
        model, space = self.model, self.model.space(span)
        candidate = self.own(table, span)
        own = candidate.scaling
        rows = own.rows(table)
        first = candidate.first(space, len(table.lengths))
        found = model.filtered(space, rows, space.deviation_and_all, states=first)
        units = own.at(table.series).units
        scale = np.broadcast_to(units.scale, table.values.shape)
        known = np.arange(len(scale)) - table.bounds[table.series] >= _BURNT
        known &= found.inverse_F > 0
        if known.sum() < _FEWEST:
            return 1.0
        scale = scale[known]
        deviation, signal = found.signal[known].T
        # what fades was expected by rows before: it goes over to the error, v + fading
        fading = deviation * model.fades(span)
        middle = scale * (signal - fading)
        middle += np.broadcast_to(units.location, known.shape)[known]
        v = found.v_F[known] / found.inverse_F[known]
        errors = scale * (v + fading)
        # and then varies as it does in the long run
        more = model.fades(span) * (space.deviation - found.variance[known, 0])
        noises = model.noise + rows.errors[known] ** 2
        usual = scale**2 * (found.variance[known, 1] + more + noises) / 2
        # errors are centred, and the largest exponent is taken out, for a float's sake
        errors -= np.average(errors, weights=np.exp(middle - middle.max()))
        logs = middle + np.stack([errors, usual])
        sums = logsumexp(logs, axis=1) - logsumexp(middle)
        return float(np.clip(sums[0] / sums[1], 0.0, _MOST_SMEARING))


def _middles(values: Array, table: ChannelRows) -> tuple[Array, Flags]:
    """Return each series' median, 0 without rows, and whether its values differ."""
    # sorted within each series; at the end a 0 that series without rows read
    ordered = np.append(values[np.lexsort((values, table.series))], 0.0)
    first, end = table.bounds[:-1], table.bounds[1:]

    def at(place: Numbers) -> Array:
        found: Array = ordered[np.where(end > first, place, -1)]
        return found

    # the mean of the two values in the middle, which are one of an odd number; halves
    # are added, as a sum may overflow
    below, above = at((first + end - 1) // 2), at((first + end) // 2)
    return below / 2 + above / 2, at(end - 1) > at(first)


def heaviest(candidates: Sequence[Candidate]) -> Candidate:
    """Return the candidate of most weight."""
    return max(candidates, key=lambda candidate: candidate.weight)


def heaviest_of_each(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidate of most weight of each group, in their order."""
    groups = dict.fromkeys(candidate.group for candidate in candidates)
    return [heaviest([c for c in candidates if c.group == g]) for g in groups]


def links_of(channels: Sequence[Sequence[Candidate]]) -> tuple[Link, ...]:
    """Return what each channel's forecasts are linked to, for others to share.

    Of groups of series the first, which is the largest, tells.
    """
    links = []
    for candidates in channels:
        scaling = heaviest_of_each(candidates)[0].scaling
        link = scaling.link
        # where values lie at a bound they are read as they are
        is_open = not (link.is_identity or link.past)
        least = float(scaling.least[0])
        links.append(link._replace(least=least) if is_open else IDENTITY)
    return tuple(links)


def forward() -> ModuleType:
    """Return what runs the filter; imports need not wait for numba."""
    from sklode.structural.filter import forward as compiled

    return compiled


def backward() -> ModuleType:
    """Return what runs the smoother, likewise."""
    from sklode.structural.filter import backward as compiled

    return compiled
