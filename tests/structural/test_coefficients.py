"""Coefficients that series of a panel share, against dense algebra."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.stats import multivariate_normal

from sklode.structural.coefficients import (
    BETWEEN,
    Pooled,
    Pooling,
    RandomCoefficients,
)
from sklode.structural.components.space import Form
from sklode.structural.effects.basis import Line
from sklode.structural.effects.effect import Effect, pooled
from sklode.structural.effects.selection import random_coefficients
from sklode.structural.filtered_column import FilteredColumn
from tests.structural.processes import (
    SPAN,
    answer,
    asked,
    candidate,
    parts,
    table_of,
)

EFFECTS = [
    Effect(Line(0), pooling=Pooling(has_mean=True, spread=0.3)),
    Effect(Line(1), pooling=Pooling(has_mean=True, spread=0.0)),
    Effect(Line(2)),
]


def centred(inputs: Any, series: Any, table: Any) -> Any:
    """Return columns from their series' usual ones."""
    means = [table.inputs[table.series == k].mean(axis=0) for k in range(3)]
    return inputs - np.stack(means)[series]


def shared(u: Any, v: Any, one: Any, other: Any) -> Any:
    """Return the covariance of effects at rows of some series and of others."""
    how = pooled(EFFECTS)
    same = one[:, None] == other
    return (u * how.has_mean) @ v.T + same * ((u * how.spread**2) @ v.T)


def test_series_are_forecast_as_the_panel_tells() -> None:
    plain = candidate(Form((7.0,)))
    table = table_of((20, 15, 4), plain, n_controls=3)
    form = plain.model.form._replace(effects=((0,), (1,), (2,)))
    one = plain._replace(model=plain.model._replace(form=form))
    coefficients = random_coefficients(one, table, SPAN, EFFECTS)
    one = one._replace(coefficients=coefficients)
    column = FilteredColumn.filter([one], table, SPAN, members=np.arange(3))
    # ahead of each series' rows, and among them
    queries = asked(*([3.5, end + 2, end + 9] for end in table.ends), n_controls=3)
    mean, variance = answer(column, queries)

    t, q = table.times, queries.times
    clock, clock_q = table.inputs[:, :1], queries.inputs[:, :1]
    rows, places = table.series, queries.series
    u = centred(table.inputs, rows, table)[:, 1:]
    w = centred(queries.inputs, places, table)[:, 1:]

    def alone(s: Any, x: Any, one: Any, t: Any, z: Any, other: Any) -> Any:
        own: Any = sum(parts(plain, SPAN, s, t, x, z))
        return np.where(one[:, None] == other, own, 0.0)

    K = alone(t, clock, rows, t, clock, rows) + shared(u, u, rows, rows)
    K += plain.model.noise * np.eye(len(t))
    cross = alone(q, clock_q, places, t, clock, rows) + shared(w, u, places, rows)
    at = alone(q, clock_q, places, q, clock_q, places) + shared(w, w, places, places)
    expected = cross @ np.linalg.solve(K, table.values)
    spread = np.diag(at - cross @ np.linalg.solve(K, cross.T))
    assert mean == pytest.approx(expected, abs=1e-6)
    assert variance == pytest.approx(spread, rel=1e-6)


def test_the_evidence_is_that_of_the_rows() -> None:
    rng = np.random.default_rng(0)
    W = [rng.normal(size=(n, 3)) for n in (6, 1, 9)]
    v = [rng.normal(size=len(own)) for own in W]
    how = pooled(EFFECTS)
    _, found, evidence = RandomCoefficients.fit(
        how,
        grams=np.stack([own.T @ own for own in W]),
        moments=np.stack([own.T @ y for own, y in zip(W, v, strict=True)]),
    )
    C = np.kron(np.ones((3, 3)), np.diag(how.has_mean * 1.0))
    C += np.kron(np.eye(3), np.diag(how.spread**2))
    rows, y = block_diag(*W), np.concatenate(v)
    K = np.eye(len(y)) + rows @ C @ rows.T
    density = multivariate_normal(np.zeros(len(y)), K).logpdf(y)
    density -= multivariate_normal(np.zeros(len(y)), np.eye(len(y))).logpdf(y)
    assert evidence == pytest.approx(density)
    assert found.ravel() == pytest.approx(C @ rows.T @ np.linalg.solve(K, y))


def test_what_a_series_tells_is_not_counted_twice() -> None:
    rng = np.random.default_rng(0)
    W = [rng.normal(size=(8, 1)) for _ in range(3)]
    v = [own[:, 0] + rng.normal(size=8) for own in W]
    how = Pooled.of([Pooling(has_mean=True, spread=0.2)], [1], [True])

    def fitted(some: list[int]) -> RandomCoefficients:
        found, _, _ = RandomCoefficients.fit(
            how,
            grams=np.stack([W[k].T @ W[k] for k in some]),
            moments=np.stack([W[k].T @ v[k] for k in some]),
        )
        return found

    nothing, located = np.zeros((1, 1)), np.array([False])
    own = fitted([0, 1, 2]).prior(np.array([1]), np.ones(1), nothing, located)
    others = fitted([0, 2]).prior(np.array([-1]), np.ones(1), nothing, located)
    assert own.means == pytest.approx(others.means)
    assert own.covariances == pytest.approx(others.covariances)


def test_the_means_of_others_are_those_of_a_panel_without_a_series() -> None:
    rng = np.random.default_rng(0)
    columns, y = rng.normal(size=(4, 9, 3)), rng.normal(size=(4, 9))
    grams = np.einsum("sri,srj->sij", columns, columns)
    moments = np.einsum("sri,sr->si", columns, y)
    how = pooled(EFFECTS)
    found = RandomCoefficients.fit(how, grams, moments)[0].means_of_others()
    for k in range(4):
        others = np.arange(4) != k
        without = RandomCoefficients.fit(how, grams[others], moments[others])[0]
        np.testing.assert_allclose(found[k], without.means, rtol=1e-9)


def test_attributes_do_not_move_a_series_that_has_a_location_of_its_own() -> None:
    how = Pooled.of([BETWEEN], [1], [False])
    found, _, _ = RandomCoefficients.fit(
        how, grams=np.full((5, 1, 1), 4.0), moments=np.full((5, 1), 8.0)
    )
    found = found._replace(level=3.0, deviation=0.5)
    size = np.array([[1.5], [1.5]])
    located = np.array([False, True])
    prior = found.prior(np.array([-1, -1]), np.ones(2), size, located)
    means, covariances = np.zeros((2, 2)), np.zeros((2, 2, 2))
    covariances[:, 0, 0] = 1.0
    prior.write(means, covariances, level=0)
    # the signal is the level and what the attribute adds
    z = np.array([1.0, 1.5])
    mean, variance = means @ z, np.einsum("i,sij,j->s", z, covariances, z)
    assert mean == pytest.approx([3.0 + 1.5 * 40 / 21, 0.0])
    assert variance == pytest.approx([1.0 + 1.5**2 / 21, 1.0])
