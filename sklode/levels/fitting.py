"""Hyperparameters from data: the most probable ones of a form, and others around them.

Of which parts a level is made is chosen by how probable data and hyperparameters are
together. Forecasts average over such forms, and over hyperparameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

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
from sklode.levels.forms import BASE, VAGUE, Form, priors, state_space
from sklode.levels.tables import Table, power_of_two

__all__ = ["fit_components"]

Array = NDArray[np.floating]

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

_JUDGED = 2000, 40_000
"""Series of a panel, and rows, that tell whether large innovations are errors."""

_ALIKE, _BELIEVED = 0.01, 0.95
"""They are, unless errors of forecasts become smaller than that part of theirs."""

_MARGIN = 4.0
"""Forms so many natural logarithms less probable than the best one are left out."""

_LEAST_WEIGHT = 2e-3
_STEP = 0.1  # of the differences that the curvature is measured by


class _Candidate(NamedTuple):
    component: Component
    loss: float  # minus the logarithm of the posterior density, in y's units
    objective: Callable[..., float]
    free: NDArray[np.bool_]  # of the hyperparameters, those that were sought


def fit_components(
    table: Table,
    span: float,
    periods: dict[float, float],
    logarithm: str | bool = "auto",
) -> list[Component]:
    """Return what a channel's forecasts average over; at least one component.

    Times are in units of the usual gap. ``periods`` may be seasons; each has what it
    takes off the logarithm of the probability of a form that has it.
    """
    sample = _sample(table)
    pooled = len(table.bounds) > 2
    n_controls = table.controls.shape[1]
    is_positive = len(table.values) >= _LOGARITHMS and bool((table.values > 0).all())
    if is_positive and logarithm == "auto":
        is_positive = sample.values.max() > 1.5 * sample.values.min()
    found = []
    if logarithm is not True:
        found = _grown(sample, span, pooled, periods, n_controls, False)
    if is_positive and logarithm == "auto":
        best = min(found, key=lambda c: c.loss).component
        for form in sorted({best.form, Form(n_controls=best.form.n_controls)}):
            form = form._replace(logarithm=True)
            found.append(_most_probable(sample, span, pooled, periods, form))
    if logarithm is True:
        found = _grown(sample, span, pooled, periods, n_controls, True)
    least = min(c.loss for c in found)
    judged = _sample(table, *_JUDGED) if pooled else table.last(_JUDGED[0])
    near = [_finer(c, judged, span) for c in found if c.loss <= least + _MARGIN]
    best = min(near, key=lambda c: c.loss).component
    cut = _cut(best, judged, span)
    near = [c._replace(component=c.component._replace(cut=cut)) for c in near]
    n_draws = _DRAWS * min(
        _DRAWN_ROWS / max(len(sample.values), 1), _LONG / len(table.values), 1.0
    )
    if n_draws < 1:  # every pass takes long: the most probable one
        near = [min(near, key=lambda c: c.loss)]
    weighed = [w for c in near for w in _around(c, int(n_draws))]
    logs = np.array([weight for weight, _ in weighed])
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    kept = weights > _LEAST_WEIGHT
    weights /= weights[kept].sum()
    return [
        component._replace(weight=float(weight))
        for weight, (_, component), keep in zip(weights, weighed, kept, strict=True)
        if keep
    ]


def _sample(
    table: Table, most_series: int = _MOST_SERIES, most_rows: int = _MOST_POOLED
) -> Table:
    """Return the rows that hyperparameters are sought by."""
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
    return table.of_rows(np.concatenate(rows), np.array(bounds))


def _grown(
    sample: Table,
    span: float,
    pooled: bool,
    periods: dict[float, float],
    n_controls: int,
    logarithm: bool,
) -> list[_Candidate]:
    """Return candidates: the plain form, and parts added while one makes it better."""
    best = _most_probable(sample, span, pooled, periods, Form((), logarithm))
    found, left = [best], list(periods) + ([None] if n_controls else [])
    while left:
        tried = []
        for part in left:
            form = best.component.form
            if part is None:
                form = form._replace(n_controls=n_controls)
            else:
                form = form._replace(periods=(*form.periods, part))
            start = best.component.logs
            tried.append(_most_probable(sample, span, pooled, periods, form, start))
        found += tried
        better = min(tried, key=lambda c: c.loss)
        if better.loss >= best.loss:
            break
        left.pop(tried.index(better))
        best = better
    return found


def _most_probable(
    sample: Table,
    span: float,
    pooled: bool,
    periods: dict[float, float],
    form: Form,
    start: Array | None = None,
) -> _Candidate:
    """Return the most probable hyperparameters of a form."""
    values = np.log(sample.values) if form.logarithm else sample.values
    location, scale = _location_and_scale(values)
    scaled = (values - location) / scale
    medians, widths, logs = priors(form)
    if start is not None:
        logs[: len(start)] = start
    free = np.full(len(logs), True)
    if not pooled:
        logs[BASE.index("constant")] = math.log(VAGUE)
        free[BASE.index("constant")] = False
    component = Component(form, logs, 1.0, location, scale)
    filter_rows, n = kernel().filter_rows, len(sample.bounds) - 1

    def objective(x: Array, harmonics: int = FEWEST_HARMONICS) -> float:
        logs[free] = x
        space = state_space(form, logs, span, harmonics)
        given, first = component.read(space, sample), begun([space] * n)
        rows, none = (sample.bounds, scaled, np.zeros(n)), space.nothing
        misfit, *_ = filter_rows(*given, *rows, *first, CUT, none, none)
        distance = (x - medians[free]) / widths[free]
        total = misfit + 0.5 * float(distance @ distance)
        return total if math.isfinite(total) else 1e9

    def with_slope(x: Array) -> tuple[float, Array]:
        here, step = objective(x), 1e-6
        return here, np.array(
            [objective(x + step * e) - here for e in np.eye(len(x))]
        ) / step

    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused
        best = minimize(
            with_slope,
            logs[free],
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": _ITERATIONS},
        )
    found = logs.copy()
    found[free] = best.x
    in_units = len(values) * math.log(scale)
    in_units += sum(periods[period] for period in form.periods)
    if form.logarithm:
        in_units += float(values.sum())
    return _Candidate(
        component._replace(logs=found), best.fun + in_units, objective, free
    )


def _finer(candidate: _Candidate, table: Table, span: float) -> _Candidate:
    """Return a candidate with as many harmonics as its rows make most probable."""
    component = candidate.component
    if not component.form.periods:
        return candidate
    several = [component._replace(harmonics=n) for n in _HARMONICS]
    best = min(several, key=lambda one: _filtered(one, table, span, CUT).loss)
    few, many = (
        candidate.objective(component.logs[candidate.free], one.harmonics)
        for one in (component, best)
    )
    return candidate._replace(component=best, loss=candidate.loss + many - few)


def _cut(component: Component, table: Table, span: float) -> float:
    """Return beyond how many standard deviations innovations are not believed.

    Errors of the next row are measured, by absolute values. The first rows of series,
    of which nothing is known, do not count.
    """
    errors = []
    for cut in (CUT, math.inf):
        found = _filtered(component, table, span, cut)
        each = np.abs(found.scaled / found.precision)
        each[table.bounds[:-1]] = 0.0
        errors.append(each)
    gains = errors[0] - errors[1]
    # where nothing was disbelieved shortly before, both say the same
    differ = np.abs(gains) > _ALIKE * errors[0]
    is_proved = gains.sum() > 2 * math.sqrt(gains @ gains)  # by more than one row
    is_better = errors[1][differ].sum() < _BELIEVED * errors[0][differ].sum()
    return math.inf if is_proved and is_better else CUT


def _filtered(component: Component, table: Table, span: float, cut: float) -> Filtered:
    """Return what the filter finds in the rows of series."""
    space, component = component.space(span), component._replace(cut=cut)
    return run(component, space, table, space.nothing)


def _around(candidate: _Candidate, n_draws: int) -> list[tuple[float, Component]]:
    """Return hyperparameters around the most probable, and logarithms of weights.

    Draws from the normal distribution of the same curvature, weighed by the square root
    of their importance, which few draws estimate badly; the most probable among them.
    """
    component, loss, objective, free = candidate
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
