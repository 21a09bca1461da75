"""Filter, smoother and draws against dense algebra of the same Gaussian process."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from sklode.structural.candidates import Candidate
from sklode.structural.components.space import Form
from sklode.structural.filter import forward as kalman
from sklode.structural.rows import ChannelRows
from tests.cases import mostly_slow
from tests.structural.processes import (
    ABSENT,
    SPAN,
    answer,
    asked,
    candidate,
    level,
    posterior,
    table_of,
    with_threshold,
)

CASES: dict[str, Candidate] = {
    "all parts": candidate(Form((7.0, 19.5), effects=((0,), (1,)))),
    "level": candidate(**{**ABSENT, "walk": 1.0}),
    "line": candidate(**{**ABSENT, "slope": 3.0}),
    "velocity that lasts": candidate(velocity_memory=2000.0, velocity=4.0, noise=0.01),
    "velocity that fades at once": candidate(velocity_memory=1e-3, velocity=30.0),
    "OU process": candidate(**{**ABSENT, "ou": 1.0, "ou_memory": 0.3}),
    "velocity that returns": candidate(Form((7.0,), returning=True)),
    "velocity that returns at once": candidate(
        Form(returning=True), velocity_memory=0.02, ou_memory=0.5
    ),
    "velocity and OU process alike": candidate(
        Form(returning=True), velocity_memory=3.0, ou_memory=3.0 + 1e-6
    ),
    "velocity that outlasts what it moves": candidate(
        Form(returning=True), velocity_memory=40.0, ou_memory=0.05
    ),
    "short season": candidate(Form((3.8,)), harmonics=12),
    "long season": candidate(Form((90.0,)), harmonics=24, kept=3000.0),
    "anything at first": candidate(constant=10.0),
    "hardly any noise": candidate(noise=1e-9),
    "errors of measurement": candidate(Form((7.0,)), location=5.0, scale=8.0),
    "other units": candidate(Form((7.0,)), location=-30.0, scale=250.0),
    "logarithm": candidate(Form((7.0,), True), location=2.0, scale=0.4),
}
TIMES = np.concatenate([[-35.5, -3.0, 0.0, 0.0], np.arange(0.33, 90, 2.9)])

each_case = pytest.mark.parametrize("name", CASES)


def drawn_from(
    name: str, lengths: tuple[int, ...] = (30,)
) -> tuple[Candidate, ChannelRows]:
    one = CASES[name]
    error = 2 * one.scaling.scale if "measurement" in name else 0.0
    return one, table_of(lengths, one, 2 if name == "all parts" else 0, error=error)


def controls_of(one: Candidate) -> int:
    return 2 if one.model.form.effects else 0


@each_case
def test_the_likelihood_is_that_of_the_process(name: str) -> None:
    one, table = drawn_from(name, (30, 1, 17))
    loss = one.model.filtered(one.model.space(SPAN), one.scaling.rows(table)).loss
    losses = [
        posterior(one, rows, rows.times, rows.inputs).loss
        for rows in map(table.alone, range(3))
    ]
    assert loss == pytest.approx(sum(losses), rel=1e-9, abs=1e-8)


@each_case
@pytest.mark.parametrize("where", ["ahead", "anywhere"])
def test_answers_are_the_processs_given_all_rows(name: str, where: str) -> None:
    one, table = drawn_from(name)
    times = np.append(TIMES, table.times[[3, 8, -1]])
    times = np.sort(times[times > table.times[-1]] if where == "ahead" else times)
    queries = asked(times, n_controls=controls_of(one))
    mean, variance = answer(level(table, one), queries)
    exact = posterior(one, table, times, queries.inputs)
    location, scale = one.scaling.location, one.scaling.scale
    size = scale * np.sqrt(np.diag(exact.covariance)).max()
    expected = location + scale * exact.mean
    np.testing.assert_allclose(mean, expected, rtol=1e-8, atol=1e-8 * size)
    expected = scale**2 * np.diag(exact.covariance)
    np.testing.assert_allclose(variance, expected, rtol=1e-6, atol=1e-8 * size**2)


@each_case
def test_parts_are_the_processs_parts(name: str) -> None:
    one, table = drawn_from(name)
    queries = asked(TIMES, n_controls=controls_of(one))
    ((_, _, parts),) = level(table, one).parts(queries)
    exact = posterior(one, table, TIMES, queries.inputs)
    np.testing.assert_allclose(parts, exact.parts, rtol=1e-7, atol=1e-8)


def test_each_series_of_a_panel_is_answered_by_its_own_rows() -> None:
    one, table = drawn_from("all parts", (20, 0, 1, 9))
    times = [np.array([-2.0, 3.3, 60.0]), np.array([5.0]), TIMES, np.array([70.0])]
    queries = asked(*times, n_controls=2)
    found = answer(level(table, one), queries)
    for k in range(4):
        own = queries.series == k
        exact = posterior(one, table.alone(k), times[k], queries.inputs[own])
        np.testing.assert_allclose(found[0][own], exact.mean, atol=1e-8)
        np.testing.assert_allclose(found[1][own], np.diag(exact.covariance), rtol=1e-7)


@pytest.mark.parametrize("times", [[4.0, 30.0], [-9.0, 30.0]])
def test_a_series_of_no_rows_is_answered_alike_in_company(times: list[float]) -> None:
    one, table = drawn_from("velocity that lasts", (20, 0))
    channel = level(table, one)
    together = answer(channel, asked([], times))
    for k, time in enumerate(times):
        alone = answer(channel, asked([], [time]))
        np.testing.assert_allclose(alone[1], together[1][k], rtol=1e-12)
    exact = posterior(one, table.alone(1), np.array(times), np.zeros((2, 1)))
    np.testing.assert_allclose(together[1], np.diag(exact.covariance), rtol=1e-8)
    draws = channel.drawn(asked([], times), 20_000, seed=0, has_noise=False).values()
    np.testing.assert_allclose(np.cov(draws.T), exact.covariance, rtol=0.05)


@pytest.mark.parametrize("name", ["all parts", "level", "logarithm"])
def test_an_update_is_as_if_all_rows_had_been_there(name: str) -> None:
    one, table = drawn_from(name, (25, 12))
    table.times[25:] += 2.2  # nothing was seen of the second at first
    queries = asked(TIMES, TIMES, n_controls=controls_of(one))
    expected = answer(level(table, one), queries)
    pieces = [0.0, 2.0, 2.5, 9.0, np.inf]
    channel = level(_between(table, -1.0, 0.0), one)
    for start, end in pairwise(pieces):
        channel = channel.continued(_between(table, start, end))
    for found, whole in zip(answer(channel, queries), expected, strict=True):
        np.testing.assert_allclose(found, whole, rtol=1e-12)


@pytest.mark.parametrize("name", ["all parts", "line"])
def test_a_channel_that_begins_late_begins_as_others_do(name: str) -> None:
    one, table = drawn_from(name)
    ahead = table.times[-1] + np.array([0.5, 9.0])
    queries = asked(ahead, n_controls=controls_of(one))
    expected = answer(level(table, one), queries)
    late = level(table._replace(times=table.times + 2.2), one)
    found = answer(late, queries._replace(times=queries.times + 2.2))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_an_answer_at_a_jump_of_the_level_knows_of_it() -> None:
    one = with_threshold(candidate(**{**ABSENT, "walk": 0.1}, noise=0.3), 3.0)
    table = table_of((40,))
    table.values[:] = 40.0 * (np.arange(40) >= 20) + 0.1 * table.values
    at = table.times[[22]]  # after three rows far above
    found, later = (answer(level(table, one), asked(t))[0] for t in (at, at + 1e-9))
    np.testing.assert_allclose(found, later, atol=1e-3)


def _between(table: ChannelRows, after: float, until: float) -> ChannelRows:
    return table.where((table.times > after) & (table.times <= until))


# Draws


@pytest.mark.parametrize("name", ["all parts", "velocity that lasts", "line"])
def test_simulated_paths_have_the_processs_covariance(name: str) -> None:
    one, times = CASES[name], np.array([0.0, 0.0, 0.4, 3.0, 3.001, 40.0, 90.0])
    n, space = len(times), one.model.space(SPAN, 5.0)
    d, queries = len(space.start), asked(times - 5.0, n_controls=controls_of(one))
    jumps = np.array([0, 0, 0, 2.0, 0, 0, 0])
    n_draws = d + n * d
    values, vectors = np.linalg.eigh(space.start)
    states = np.zeros((d, n_draws))
    states[:, :d] = vectors * np.sqrt(np.maximum(values, 0))
    normals = np.zeros((n, d, n_draws))
    normals[:, :, d:] = np.eye(n * d).reshape(n, d, n * d)
    paths = kalman.simulate_rows(
        space.system(one.model.schedule(queries._replace(times=times))),
        states=states,
        jumps=jumps,
        normals=normals,
        mixed=space.mixed,
    )
    inputs = queries.inputs
    none = ChannelRows.from_series(
        np.zeros(0, int), np.zeros(0), 0.0, np.zeros((0, 3)), 1
    )
    exact = posterior(one, none, times - 5.0, inputs).covariance
    exact[3:, 3:] += 2.0
    np.testing.assert_allclose(paths @ paths.T, exact, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("where", ["ahead", "anywhere"])
@pytest.mark.parametrize(
    "name",
    mostly_slow(["all parts", "other units", "velocity that lasts"], "other units"),
)
def test_draws_have_the_posteriors_mean_and_covariance(name: str, where: str) -> None:
    one, table = drawn_from(name, (4, 25))
    last = table.times[-1]
    times = np.array([-6.0, 0.0, 0.9, 1.1, 12.0, last + 0.5, last + 1.5, last + 20])
    times = times[times > last] if where == "ahead" else times
    queries, n = asked([], times, n_controls=controls_of(one)), 20_000
    exact = posterior(one, table.alone(1), times, queries.inputs)
    channel = level(table, one)
    for noise in (False, True):
        draws = channel.drawn(queries, n, seed=3, has_noise=noise).values()
        covariance = exact.covariance + noise * one.model.noise * np.eye(len(times))
        draws = (draws - one.scaling.location) / one.scaling.scale
        sizes = np.sqrt(np.diag(covariance))
        error = (draws.mean(0) - exact.mean) / sizes
        assert np.abs(error).max() < 5 / np.sqrt(n)
        error = (np.cov(draws.T) - covariance) / np.outer(sizes, sizes)
        assert np.abs(error).max() < 8 / np.sqrt(n)


def test_components_give_as_many_draws_as_they_weigh() -> None:
    pair = candidate(weight=0.3, noise=0.1), candidate(weight=0.7, noise=3.0)
    channel, queries = level(table_of((20,)), *pair), asked([25.0])
    levels = np.array([0.05, 0.2, 0.5, 0.8, 0.95])
    draws = channel.drawn(queries, 10_000, seed=0, has_noise=True).values()
    found = np.quantile(draws, levels)
    expected = channel.mixture(queries).quantiles(levels)[0]
    np.testing.assert_allclose(found, expected, atol=0.2)
