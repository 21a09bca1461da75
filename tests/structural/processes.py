"""The level as a Gaussian process: the covariance of each part, and dense algebra.

Each covariance is the solution of the part's stochastic differential equation, written
down without a state space. Times are since the first row, in units of the usual gap.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklode.data.links import IDENTITY, Link
from sklode.structural.candidates import Candidate, Model
from sklode.structural.components.space import Form
from sklode.structural.filter.system import Rule
from sklode.structural.filtered_column import FilteredColumn
from sklode.structural.rows import ChannelRows
from sklode.structural.scaling import Scaling

Array = NDArray[np.floating]

SPAN = 40.0

LEAST = 1e-3
"""Standard deviation of the noise that is always there."""


def candidate(
    form: Form | None = None,
    weight: float = 1.0,
    location: float = 0.0,
    scale: float = 1.0,
    harmonics: int = 6,
    **sizes: float,
) -> Candidate:
    """Return a component of these hyperparameters; the others are middling ones.

    ``sizes`` are named as in `sklode.structural.components.space.BASE`; ``season`` and
    ``kept`` are size and memory of every season.
    """
    usual = {"slope": 0.7, "walk": 0.8, "velocity": 0.9, "velocity_memory": 6.0}
    usual |= {"ou": 0.6, "ou_memory": 3.0, "noise": 0.3, "constant": 2.0}
    usual |= {"season": 0.8, "kept": 50.0} | sizes
    form = form or Form()
    logs = [usual[name] for name in list(usual)[:8]]
    for _ in form.periods:
        logs += [usual["season"], usual["kept"]]
    # every innovation counts as it is
    model = Model(
        form=form,
        theta=np.log(logs),
        harmonics=harmonics,
        rule=Rule(threshold=math.inf),
    )
    link = Link(low=0.0) if form.linked else IDENTITY
    scaling = Scaling(location=location, scale=scale, link=link)
    return Candidate(model=model, scaling=scaling, weight=weight)


def with_threshold(one: Candidate, threshold: float) -> Candidate:
    """Return a candidate to which innovations beyond a threshold weigh less."""
    rule = one.model.rule._replace(threshold=threshold)
    return one._replace(model=one.model._replace(rule=rule))


ABSENT: dict[str, Any] = dict.fromkeys(("slope", "walk", "velocity", "ou"), 1e-9)
"""Sizes of a model that has none of these."""


def _integrated(s: Array, t: Array, memory: float) -> Array:
    """Return the covariance of integrals, from zero on, of a unit OU process."""
    first = np.minimum(s, t)
    faded = np.exp(-s / memory) + np.exp(-t / memory) - np.exp(-abs(s - t) / memory)
    result: Array = 2 * memory * first - memory**2 * (1 - faded)
    return result


def parts(
    candidate: Candidate, span: float, s: Array, t: Array, u: Array, v: Array
) -> list[Array]:
    """Return the covariances of trend, OU process, seasons and effects of X.

    Of times ``s``, with inputs ``u``, and ``t``, with ``v``.
    """
    sizes = np.exp(candidate.model.theta)
    slope, walk, velocity, memory, ou, ou_memory, _, constant = sizes[:8]
    s, t = s[:, None], t[None, :]
    lag = np.abs(s - t)
    trend = constant**2 + (slope / span) ** 2 * (s - span) * (t - span)
    trend = trend + walk**2 / span * (np.minimum(s, t) + span)
    fading = ou**2 * np.exp(-lag / ou_memory)
    if (
        candidate.model.form.returning
    ):  # an autoregression of order two, in continuous time
        both = ou_memory * np.exp(-lag / ou_memory) - memory * np.exp(-lag / memory)
        fading += velocity**2 * both / (ou_memory - memory)
    else:
        trend = trend + (velocity / span) ** 2 * _integrated(s + span, t + span, memory)
    found = [trend, fading]
    for k, period in enumerate(candidate.model.form.periods):
        size, kept = sizes[8 + 2 * k : 10 + 2 * k]
        n = min(candidate.model.harmonics, max(math.floor(period / 2 + 0.25), 1))
        total = sum(1 / m for m in range(1, n + 1))
        turn = 2 * np.pi * (s + u[:, :1] - t - v[:, :1].T) / period
        waves = [np.cos(m * turn) / m for m in range(1, n + 1)]
        found.append(size**2 * np.exp(-lag / kept) * sum(waves) / total)
    for effect in candidate.model.form.effects:
        columns = [1 + column for column in effect]
        found.append(u[:, columns] @ v[:, columns].T)
    return found


class Posterior(NamedTuple):
    """What dense algebra says at queries of one series, in units of the states."""

    loss: float  # minus the logarithm of the density of the rows, but for a constant
    mean: Array  # (query,)
    covariance: Array  # (query, query), of the noise-free signal
    parts: Array  # (query, part): expected parts, and their sum


def posterior(
    candidate: Candidate,
    table: ChannelRows,
    times: Array,
    inputs: Array,
    noises: Array | None = None,
    jumps: Array | None = None,
) -> Posterior:
    """Return what the rows of a table of one series say of the signal at ``times``.

    ``noises`` are the rows' variances of the noise, ``jumps`` those of jumps of the
    level at the rows.
    """
    t, u = table.times, table.inputs
    y = candidate.scaling.scaled(table.values)
    if noises is None:
        noise = math.exp(2 * candidate.model.theta[6]) + LEAST**2
        noises = noise + candidate.scaling.rows(table).errors ** 2
    own: Any = sum(parts(candidate, SPAN, t, t, u, u))
    cross = parts(candidate, SPAN, times, t, inputs, u)
    asked = sum(parts(candidate, SPAN, times, times, inputs, inputs))
    if jumps is not None:
        before, seen = t[None] <= times[:, None], t[None] <= t[:, None]
        own = own + (seen * jumps) @ seen.T
        cross[0] = cross[0] + (before * jumps) @ seen.T
        asked = asked + (before * jumps) @ before.T
    own = own + np.diag(noises)
    root = np.linalg.cholesky(own)
    weights = np.linalg.solve(own, y)
    half = np.linalg.solve(root, np.sum(cross, axis=0).T)
    each = np.stack([part @ weights for part in cross], axis=1)
    return Posterior(
        float(np.log(np.diag(root)).sum() + 0.5 * y @ weights),
        each.sum(1),
        asked - half.T @ half,
        np.column_stack([each, each.sum(1)]),
    )


def inputs_at(times: Array, rng: np.random.Generator, n_controls: int) -> Array:
    """Return X, and beside it a clock that is put forward, and back."""
    ahead = np.where((times > 8) & (times < 20), 1.5, 0.0) * bool(n_controls)
    return np.column_stack([ahead, rng.standard_normal((len(times), n_controls))])


def table_of(
    lengths: tuple[int, ...] = (30,),
    candidate: Candidate | None = None,
    n_controls: int = 0,
    seed: int = 0,
    error: float = 0.0,
) -> ChannelRows:
    """Return rows at irregular stamps, of series drawn from a component.

    Up to ``error`` are their deviations of measurement.
    """
    rng = np.random.default_rng(seed)
    times, values, controls = [], [], []
    for n in lengths:
        t = np.cumsum(rng.exponential(1.0, n).round(3) + 0.001)
        t -= t[0] if n else 0.0
        u = inputs_at(t, rng, n_controls)
        y: Array = rng.standard_normal(n)
        if candidate is not None:
            space: Any = sum(parts(candidate, SPAN, t, t, u, u))
            noise = math.exp(2 * candidate.model.theta[6]) + LEAST**2
            own = (error_of(n, error) / candidate.scaling.scale) ** 2
            y = np.linalg.cholesky(space + np.diag(noise + own)) @ y
            y = candidate.scaling.original(y)
        times.append(t)
        values.append(y)
        controls.append(u)
    bounds = np.append(0, np.cumsum(lengths))
    return ChannelRows(
        times=np.concatenate(times),
        values=np.concatenate(values),
        inputs=np.concatenate(controls),
        errors=np.concatenate([error_of(n, error) for n in lengths]),
        bounds=bounds,
    )


def error_of(n: int, most: float) -> Array:
    """Return deviations of measurement of a series' rows."""
    return most * (np.arange(n) * 0.618 % 1)


def asked(*times: Any, n_controls: int = 0, seed: int = 1) -> ChannelRows:
    """Return queries: of each series its own times."""
    series = np.repeat(np.arange(len(times)), [len(own) for own in times])
    flat = np.concatenate([np.asarray(own, dtype=float) for own in times])
    inputs = inputs_at(flat, np.random.default_rng(seed), n_controls)
    return ChannelRows.from_series(series, flat, np.nan, inputs, len(times))


def level(table: ChannelRows, *candidates: Candidate) -> FilteredColumn:
    """Return the level of rows whose usual series spans `SPAN`."""
    return FilteredColumn.filter(list(candidates), table, SPAN)


def answer(channel: FilteredColumn, queries: ChannelRows) -> tuple[Array, Array]:
    """Return mean and variance of the signal where there is one component."""
    mixture = channel.mixture(queries)
    return mixture.means[0], mixture.spreads[0] ** 2
