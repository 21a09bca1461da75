"""Hyperparameters from data: the most probable ones of a form, and others around them.

Of which parts a level is made is chosen by how probable data and hyperparameters are
together. Forecasts average over such forms, and over hyperparameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import ndtri
from scipy.stats import qmc

from sklode.levels.components import (
    CUT,
    FEWEST_HARMONICS,
    Component,
    Filtered,
    begun,
    kernel,
    run,
)
from sklode.levels.effects import Effect, Estimate, Inputs, alike, estimated
from sklode.levels.floors import has_zeros, offset_of, skewness
from sklode.levels.forms import BASE, VAGUE, Form, priors, state_space
from sklode.levels.tables import Table, power_of_two

__all__ = ["fit_components"]

Array = NDArray[np.floating]
Numbers = NDArray[np.int64]

_NONE = Estimate()
_TURNS = 2

_HARMONICS = FEWEST_HARMONICS, 12, 24
"""Of seasons: while hyperparameters are sought the fewest, then the most probable."""

_MOST_ROWS, _LATE = 500, 0.8
"""That hyperparameters are sought by: this share the last ones, the others spread."""

_GOLDEN = (5**0.5 - 1) / 2

_MOST_SERIES, _MOST_POOLED = 120, 6000  # series of a panel, and rows of all of them
_ITERATIONS = 25
_DRAWS, _DRAWN_ROWS = 24, 500
"""So many draws of hyperparameters up to so many rows; then ever fewer."""

_LONG = 20_000
"""The same, of rows that all the draws have to filter."""

_LOGARITHMS = 8
"""Values that "auto" needs for one: where they are few its tails are too long."""

_MOST_ZEROS = 0.1
"""Where more of the values are zero there is none."""

_SKEWED = 4 / 3
"""By so many deviations the quantile at `CUT` moves with skewness: Cornish, Fisher."""

_CHANGES = [BASE.index(name) for name in ("slope", "walk", "drift", "deviation")]
_MEMORIES = [BASE.index(name) for name in ("memory", "fade")]
_KEPT = slice(len(BASE) + 1, None, 2)  # memories of seasons
_STILL = 1e-4  # of what does not change, in units of spread

_JUDGED = 2000, 40_000
"""Series of a panel, and rows, that tell whether large innovations are errors."""

_ALIKE, _BELIEVED = 0.01, 0.95
"""They are, unless errors of forecasts become smaller than that part of theirs."""

_MARGIN = 4.0
"""Forms so many natural logarithms less probable than the best one are left out."""

_TELLING = 4  # rows that tell how series of a panel differ
_FREE = 1e3  # of scales that may be anything
_APART, _FAR = 0.25, 3.0
"""Series differ whose scales are so far apart, in natural logarithms; and locations
then, in spreads."""

_LEAST_WEIGHT = 2e-3
_STEP = 0.1  # of the differences that the curvature is measured by


class _Candidate(NamedTuple):
    component: Component  # without effects of X
    estimate: Estimate  # of those
    loss: float  # minus the logarithm of the posterior density, in y's units
    objective: Callable[..., float]
    free: NDArray[np.bool_]  # of the hyperparameters, those that were sought


Found = list[tuple[Component, tuple[Effect, ...]]]


def fit_components(
    table: Table,
    span: float,
    periods: dict[float, float],
    logarithm: str | bool = "auto",
    inputs: Inputs | None = None,
) -> Found:
    """Return what a channel's forecasts average over, with the effects of X in each.

    At least one component. Times are in units of the usual gap. ``periods`` may be
    seasons; each has what it takes off the logarithm of the probability of a form that
    has it. ``inputs`` are X at the rows of the table.
    """
    n_rows = len(table.values)
    n_zeros = int((table.values <= 0).sum()) if (table.values >= 0).all() else n_rows
    is_positive = n_rows >= _LOGARITHMS and n_zeros <= _MOST_ZEROS * n_rows
    if inputs is not None and len(table.bounds) > 2:
        rows, bounds = _sample(table)
        table, inputs = table.of_rows(rows, bounds), inputs.at(rows)
    search = _Search(table, span, periods, inputs)
    if is_positive and logarithm == "auto":
        is_positive = search.sample.values.max() > 1.5 * search.sample.values.min()
    found = []
    if logarithm is not True:
        found = search.grown(False)
        if has_zeros(table.values):
            best = min(found, key=lambda c: c.loss)
            for form in sorted({best.component.form, Form()}):
                steady = search.most_probable(form, None, best.estimate, steady=True)
                found.append(steady)
    if is_positive and logarithm == "auto":
        best = min(found, key=lambda c: c.loss)
        for form in sorted({best.component.form, Form()}):
            found.append(search.most_probable(form._replace(logarithm=True)))
        found += search.with_effects(found[-1], best.estimate)
    if logarithm is True:
        found = search.grown(True)
    least = min(c.loss for c in found)
    near = [search.finer(c) for c in found if c.loss <= least + _MARGIN]
    cut = search.cut(min(near, key=lambda c: c.loss))
    near = [c._replace(component=c.component._replace(cut=cut)) for c in near]
    n_draws = _DRAWS * min(
        _DRAWN_ROWS / max(len(search.sample.values), 1), _LONG / n_rows, 1.0
    )
    if n_draws < 1:  # every pass takes long: the most probable one
        near = [min(near, key=lambda c: c.loss)]
    weighed = [(*w, c.estimate.effects) for c in near for w in _around(c, int(n_draws))]
    logs = np.array([weight for weight, _, _ in weighed])
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    kept = weights > _LEAST_WEIGHT
    weights /= weights[kept].sum()
    return [
        (component._replace(weight=float(weight)), effects)
        for weight, (_, component, effects), keep in zip(
            weights, weighed, kept, strict=True
        )
        if keep
    ]


def _sample(
    table: Table, most_series: int = _MOST_SERIES, most_rows: int = _MOST_POOLED
) -> tuple[Numbers, Numbers]:
    """Return the rows that hyperparameters are sought by, and bounds of series."""
    lengths = np.diff(table.bounds)
    series = np.flatnonzero(lengths)
    if len(series) > most_series:
        places = np.linspace(0, len(series) - 1, most_series).round().astype(int)
        series = series[places]
    rows, bounds = [], [0]
    most = _MOST_ROWS if len(series) == 1 else max(most_rows // len(series), 8)
    for k in series:
        first, end = table.bounds[k], table.bounds[k + 1]
        if end - first > most:
            middle = end - round(_LATE * most)
            # evenly, but at no one distance, which would hide seasons of a part of it
            share = (np.arange(1, most - (end - middle) + 1) * _GOLDEN) % 1
            early = np.unique(first + (share * (middle - first)).astype(int))
            rows.append(np.append(early, np.arange(middle, end)))
        else:
            rows.append(np.arange(first, end))
        bounds.append(bounds[-1] + len(rows[-1]))
    return np.concatenate(rows), np.array(bounds)


class _Search:
    """The search for the most probable form of a channel, and its hyperparameters.

    Effects of X are estimated given the hyperparameters, and these given the effects,
    in turn: the filter need not carry coefficients while it is run most often.
    """

    def __init__(
        self,
        table: Table,
        span: float,
        periods: dict[float, float],
        inputs: Inputs | None,
    ) -> None:
        self._table, self._span, self._periods = table, span, periods
        self._pooled = len(table.bounds) > 2
        self._inputs = inputs
        self._rows, bounds = _sample(table)
        self.sample = table.of_rows(self._rows, bounds)
        if self._pooled and inputs is not None:  # whose coefficients are known
            self._late, bounds = np.arange(len(table.values)), table.bounds
        elif self._pooled:
            self._late, bounds = _sample(table, *_JUDGED)
        else:
            first = max(len(table.values) - _JUDGED[0], 0)
            self._late = np.arange(first, len(table.values))
            bounds = np.array([0, len(self._late)])
        self._judged = table.of_rows(self._late, bounds)
        self._near = None if inputs is None else inputs.at(self._late)

    def _response(self, estimate: Estimate, rows: Numbers) -> Any:
        """Return what effects add at some rows, in units of the states."""
        return estimate.response[rows] if estimate.effects else 0.0

    def grown(self, logarithm: bool) -> list[_Candidate]:
        """Return candidates: the plain form, and parts added while one helps."""
        best = self.most_probable(Form((), logarithm))
        found, left = [best], list(self._periods)
        while True:
            form, start = best.component.form, best.component.logs
            forms = [form._replace(periods=(*form.periods, part)) for part in left]
            tried = [self.most_probable(form, start, best.estimate) for form in forms]
            tried += self.with_effects(best)
            found += tried
            better = min(tried, key=lambda c: c.loss, default=best)
            if better.loss >= best.loss:
                return found + self.with_effects(best, best.estimate)
            best = better
            left = [p for p in left if p not in best.component.form.periods]

    def with_effects(
        self, candidate: _Candidate, start: Estimate | None = None
    ) -> list[_Candidate]:
        """Return a candidate with the most probable effects of X, if it has any.

        Or with the effects of ``start``, whose coefficients are estimated.
        """
        inputs, near = self._inputs, self._near
        if inputs is None or near is None or not (start is None or start.effects):
            return []
        found: list[_Candidate] = []
        for turn in range(_TURNS):
            known = start if start is not None and not turn else candidate.estimate
            given = candidate.component, self._span, self._judged, near
            estimate = estimated(*given, known, start is None)
            if start is None and alike(estimate.effects, candidate.estimate.effects):
                break
            if estimate.effects:
                response = inputs.response(estimate, self._table.bounds)
                estimate = estimate._replace(response=response)
            form, logs = candidate.component.form, candidate.component.logs
            candidate = self.most_probable(form, logs, estimate)
            found = [candidate]
        return found

    def most_probable(
        self,
        form: Form,
        start: Array | None = None,
        estimate: Estimate = _NONE,
        steady: bool = False,
    ) -> _Candidate:
        """Return the most probable hyperparameters of a form, given effects of X.

        ``steady``: of those where nothing changes while the series lasts, but by noise.
        """
        sample, span, pooled = self.sample, self._span, self._pooled
        offset, cut = 0.0, CUT
        if form.logarithm:
            offset = offset_of(self._table.values)
        elif has_zeros(self._table.values):
            cut += _SKEWED * skewness(sample)
        units = _in_units(sample, span, form.logarithm, offset)
        own = units.own(sample, span).at(sample.series)
        values = np.log(sample.values + offset) if form.logarithm else sample.values
        scaled = (values - own.location) / own.scale
        scaled = scaled - self._response(estimate, self._rows)
        medians, widths, logs = priors(form)
        if start is not None:
            logs[: len(start)] = start
        free = np.full(len(logs), True)
        if not pooled or units.centred:
            logs[BASE.index("constant")] = math.log(VAGUE)
            free[BASE.index("constant")] = False
        if steady:
            logs[_CHANGES], logs[_KEPT] = math.log(_STILL), math.log(span / _STILL)
            free[[*_CHANGES, *_MEMORIES]] = free[_KEPT] = False
        component = units._replace(form=form, logs=logs, cut=cut)
        filter_rows, n = kernel().filter_rows, len(sample.bounds) - 1

        def objective(x: Array, harmonics: int = FEWEST_HARMONICS) -> float:
            logs[free] = x
            with np.errstate(all="ignore"):  # what is not finite is refused
                space = state_space(form, logs, span, harmonics)
                given, first = component.read(space, sample), begun([space] * n)
                rows, none = (sample.bounds, scaled, np.zeros(n)), space.nothing
                misfit, *_ = filter_rows(*given, *rows, *first, cut, none, none)
            distance = (x - medians[free]) / widths[free]
            total = misfit + 0.5 * float(distance @ distance)
            return total if math.isfinite(total) else 1e9

        def with_slope(x: Array) -> tuple[float, Array]:
            here, step = objective(x), 1e-6
            return here, np.array(
                [objective(x + step * e) - here for e in np.eye(len(x))]
            ) / step

        best = minimize(
            with_slope,
            logs[free],
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": _ITERATIONS},
        )
        found = logs.copy()
        found[free] = best.x
        in_units = len(values) * math.log(units.scale)
        in_units += float(np.log(own.scale / units.scale).sum())
        in_units += sum(self._periods[period] for period in form.periods)
        if form.logarithm:
            in_units += float(values.sum())
        loss = best.fun + in_units + estimate.loss
        component = component._replace(logs=found)
        return _Candidate(component, estimate, loss, objective, free)

    def finer(self, candidate: _Candidate) -> _Candidate:
        """Return a candidate with as many harmonics as rows make most probable."""
        component = candidate.component
        if not component.form.periods:
            return candidate
        several = [component._replace(harmonics=n) for n in _HARMONICS]
        each = [candidate._replace(component=one) for one in several]
        best = min(each, key=lambda one: self._filtered(one, component.cut).loss)
        few, many = (
            candidate.objective(component.logs[candidate.free], one.harmonics)
            for one in (component, best.component)
        )
        return best._replace(loss=candidate.loss + many - few)

    def cut(self, candidate: _Candidate) -> float:
        """Return beyond how many standard deviations innovations are not believed.

        Errors of the next row are measured, by absolute values. The first rows of
        series, of which nothing is known, do not count.
        """
        errors = []
        usual = candidate.component.cut
        for cut in (usual, math.inf):
            found = self._filtered(candidate, cut)
            each = np.abs(found.scaled / found.precision)
            each[self._judged.bounds[:-1]] = 0.0
            errors.append(each)
        gains = errors[0] - errors[1]
        # where nothing was disbelieved shortly before, both say the same
        differ = np.abs(gains) > _ALIKE * errors[0]
        is_proved = gains.sum() > 2 * math.sqrt(gains @ gains)  # by more than one row
        is_better = errors[1][differ].sum() < _BELIEVED * errors[0][differ].sum()
        return math.inf if is_proved and is_better else usual

    def _filtered(self, candidate: _Candidate, cut: float) -> Filtered:
        """Return what the filter finds in the late rows, of what X leaves."""
        component = candidate.component._replace(cut=cut)
        component = component.own(self._judged, self._span).at(self._judged.series)
        left = component.scaled(self._judged.values)
        left = left - self._response(candidate.estimate, self._late)
        table = self._judged._replace(values=component.original(left))
        space = component.space(self._span)
        return run(component, space, table, space.nothing)


def _around(candidate: _Candidate, n_draws: int) -> list[tuple[float, Component]]:
    """Return hyperparameters around the most probable, and logarithms of weights.

    Draws from the normal distribution of the same curvature, weighed by the square root
    of their importance, which few draws estimate badly; the most probable among them.
    """
    component, _, loss, objective, free = candidate
    if not n_draws:
        return [(-loss, component)]
    centre = component.logs[free]
    n = len(centre)
    values, vectors = np.linalg.eigh(_curvature(objective, centre))
    spread = 1 / np.sqrt(np.maximum(values, 0.05))
    uniform = qmc.Halton(n, seed=0).random(n_draws)
    white = np.vstack([np.zeros(n), ndtri(np.clip(uniform, 1e-3, 1 - 1e-3))])
    places = centre + (white * spread) @ vectors.T
    losses = np.array([objective(place) for place in places])
    importance = 0.5 * (white**2).sum(1) - losses
    importance = 0.5 * np.clip(importance - importance.max(), -30, 0)
    share = importance - math.log(np.exp(importance).sum())
    # a hyperparameter that the data say nothing about counts for nothing
    widths = priors(component.form)[1][free]
    evidence = -loss + np.log(spread / widths).sum()
    found = []
    for place, weight in zip(places, share, strict=True):
        logs = component.logs.copy()
        logs[free] = place
        found.append((evidence + weight, component._replace(logs=logs)))
    return found


def _curvature(objective: Callable[[Array], float], x: Array) -> Array:
    """Return second derivatives by differences, (n, n)."""
    n, steps = len(x), _STEP * np.eye(len(x))
    here = objective(x)
    up = np.array([objective(x + step) for step in steps])
    down = np.array([objective(x - step) for step in steps])
    result = np.diag(up + down - 2 * here)
    for i in range(n):
        for j in range(i):
            both = objective(x + steps[i] + steps[j])
            result[i, j] = result[j, i] = both - up[i] - up[j] + here
    return result / _STEP**2


def _in_units(table: Table, span: float, logarithm: bool, offset: float) -> Component:
    """Return the plain form with the location and scale that all forms share.

    Series of a panel have their own where these are clearly apart.
    """
    form = Form((), logarithm)
    values = np.log(table.values + offset) if logarithm else table.values
    found = _location_and_scale(values)
    units = Component(form, priors(form)[2], 1.0, *found, offset=offset)
    some = np.flatnonzero(np.diff(table.bounds) >= _TELLING)
    if len(some) < 2:
        return units
    own = units._replace(apart=_FREE, centred=True).own(table, span).at(some)
    logs, middle = np.log(own.scale), float(np.median(own.location))
    blur = (0.5 / np.diff(table.bounds)[some]).mean()
    apart = math.sqrt(max(logs.var(ddof=1) - blur, 1e-6))
    far = float(np.median(np.abs(own.location - middle) / own.scale))
    if apart < _APART:
        return units
    usual = middle, math.exp(np.median(logs))
    location, scale = usual
    return units._replace(
        location=location, scale=scale, apart=apart, centred=far > _FAR
    )


def _location_and_scale(values: Array) -> tuple[float, float]:
    """Return the median and the spread of values, of which a few may be absurd."""
    unit = power_of_two(values)
    values = values / unit
    location = float(np.median(values))
    width = 8 * 1.4826 * float(np.median(np.abs(values - location)))
    if width > 0:
        values = np.clip(values, location - width, location + width)
    scale = float(values.std()) or abs(location)
    return unit * location, unit * scale or 1.0
