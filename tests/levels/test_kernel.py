"""The loops and the matrices do the same, and rows in pieces are the rows at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from sklode.levels import kernel
from sklode.levels.components import CUT
from sklode.levels.forms import Form, StateSpace
from sklode.levels.kernel import CLEAR, RUN
from sklode.levels.tables import Table
from tests.levels import matrices
from tests.levels.processes import (
    SPAN,
    component,
    posterior,
    table_of,
)

ENGINES: list[Any] = [kernel, matrices]

ONE = component(Form((5.0, 11.0), effects=((0,),)), noise=0.4)
SPACE = ONE.space(SPAN)


@pytest.fixture(params=ENGINES, ids=["kernel", "matrices"])
def engine(request: pytest.FixtureRequest) -> Any:
    return request.param


class Filtered(NamedTuple):
    loss: float
    scaled: Any
    precision: Any
    jumps: Any
    signal: Any
    variance: Any
    kept: Any
    states: Any  # after the last rows
    after: Any  # expected states after each row


def filtered(
    engine: Any,
    table: Table,
    parts: Any = None,
    states: Any = None,
    since: float = 0.0,
    space: StateSpace = SPACE,
    cut: float = CUT,
) -> Filtered:
    n, d = len(table.bounds) - 1, len(space.start)
    if states is None:
        start = np.repeat(space.start[None], n, axis=0)
        states = np.zeros((n, d)), start, np.zeros((n, 2))
    states = tuple(np.array(x) for x in states)
    parts = space.whole if parts is None else parts
    given = table.times, table.inputs, space.rates, space.waves
    rows = table.bounds, table.values, np.full(n, since)
    after = np.empty((len(table.times), d))
    result = engine.filter_rows(*given, *rows, *states, cut, parts, after)
    return Filtered._make((*result, states, after))


SHAPES = ("clean", "spike", "run", "shift", "missing", "equal stamps", "many")


def rows(shape: str, seed: int = 0) -> Table:
    """Return series with something in the middle of the first."""
    table = table_of((40, 1, 0, 12), ONE, 1, seed)
    values, times = table.values.copy(), table.times.copy()
    if shape == "spike":
        values[[20, 30]] += [100, -9]
    elif shape == "run":
        values[20:22] -= 40
    elif shape == "shift":
        values[20:40] += 40
    elif shape == "missing":
        values[[0, 7, 20, 21, 39, 40]] = np.nan
    elif shape == "equal stamps":
        times[10:14] = times[10]
    elif shape == "many":
        values[::3] *= 30
    return table._replace(values=values, times=times)


def assert_near(found: Any, expected: Any) -> None:
    size = max(float(np.abs(expected).max(initial=0)), 1e-300)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10 * size)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", SHAPES)
def test_loops_and_matrices_filter_and_smooth_alike(shape: str, seed: int) -> None:
    table = rows(shape, seed)
    for parts in (SPACE.nothing, SPACE.whole, SPACE.parts):
        both = [filtered(engine, table, parts) for engine in ENGINES]
        for found, expected in zip(*both, strict=True):
            if isinstance(found, tuple):
                for state, other in zip(found, expected, strict=True):
                    assert_near(state, other)
            else:
                assert_near(found, expected)
        if len(parts):
            smoothed = [
                engine.smooth_rows(
                    table.times,
                    table.inputs,
                    SPACE.rates,
                    SPACE.waves,
                    table.bounds,
                    of.scaled,
                    of.precision,
                    of.kept,
                )
                for engine, of in zip(ENGINES, both, strict=True)
            ]
            for found, expected in zip(*smoothed, strict=True):
                assert_near(found, expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_states_after_each_row_are_those_of_a_filter_that_stops_there(
    shape: str, engine: Any
) -> None:
    table = rows(shape)
    found = filtered(engine, table)
    states = found.after
    ends = table.bounds[1:][np.diff(table.bounds) > 0] - 1
    after = found.states[0][np.diff(table.bounds) > 0]
    np.testing.assert_allclose(states[ends], after, rtol=1e-9, atol=1e-9)
    half = filtered(engine, _piece(table, 0, 22))
    np.testing.assert_allclose(states[21], half.states[0][0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
def test_loops_and_matrices_draw_alike(shape: str) -> None:
    whole = rows(shape)
    n = 40
    table = _piece(whole, 0, n)
    found = filtered(kernel, table)
    rng, d = np.random.default_rng(0), len(SPACE.start)
    states, white = rng.standard_normal((d, 4)), rng.standard_normal((n, d, 4))
    paths = [
        engine.simulate_rows(
            table.times,
            table.inputs,
            SPACE.rates,
            SPACE.waves,
            0.7,
            states.copy(),
            found.jumps,
            white,
        )
        for engine in ENGINES
    ]
    assert_near(*paths)
    kept = np.ascontiguousarray(found.kept[:, 0])
    conditioned = [
        engine.condition_rows(
            table.times,
            table.inputs,
            SPACE.rates,
            SPACE.waves,
            found.precision,
            kept,
            paths[0],
        )
        for engine in ENGINES
    ]
    assert_near(*conditioned)


def test_loops_and_matrices_agree_after_many_rows() -> None:
    n = 3_000
    table = table_of((n,), None, 1)
    table.values[::97] += 50
    found, expected = (filtered(engine, table) for engine in ENGINES)
    np.testing.assert_allclose(found.signal, expected.signal, atol=1e-6)
    np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-6)
    assert found.loss == pytest.approx(expected.loss, rel=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [1, 2, 7])
def test_rows_in_pieces_are_the_rows_at_once(
    shape: str, size: int, engine: Any
) -> None:
    whole = rows(shape)
    n = 40
    found = filtered(engine, _piece(whole, 0, n))
    states, since, loss, signal = None, 0.0, 0.0, []
    for start in range(0, n, size):
        piece = _piece(whole, start, min(start + size, n))
        if start:
            since = piece.times[0] - whole.times[start - 1]
        part = filtered(engine, piece, None, states, since)
        states, loss = part.states, loss + part.loss
        signal.append(part.signal)
    assert states is not None
    for one, other in zip(states, found.states, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(np.concatenate(signal), found.signal)
    assert loss == pytest.approx(found.loss, rel=1e-12)


def _piece(table: Table, start: int, end: int) -> Table:
    times, values, controls = (x[start:end] for x in table[:3])
    return Table(times, values, controls, np.array([0, end - start]))


# What is too large to be true


def with_innovations(*sizes: float, before: int = 20) -> Table:
    """Return a series whose innovations after some rows have these sizes."""
    table = _piece(rows("clean"), 0, before + len(sizes))
    for k, size in enumerate(sizes):
        place = before + k
        table.values[place] = 0.0
        found = filtered(matrices, _piece(table, 0, place + 1))
        spread = np.sqrt(found.variance[place, 0] + SPACE.rates[5])
        table.values[place] = found.signal[place, 0] + size * spread
    return table


def noises(found: Filtered) -> Any:
    """Return the variances of noise that the filter took its rows to have."""
    return 1 / found.precision - found.variance[:, 0]


@pytest.mark.parametrize("size", [0.0, 1.0, -2.9, CUT - 1e-6])
def test_an_innovation_within_the_cut_counts_as_it_is(size: float, engine: Any) -> None:
    table = with_innovations(size)
    found, plain = filtered(engine, table), filtered(engine, table, cut=np.inf)
    assert found.loss == plain.loss
    for one, other in zip(found.states[:2], plain.states[:2], strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(noises(found), SPACE.rates[5])


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("size", [CUT + 1e-6, 5.0, CUT * CLEAR, 20.0, 1e6])
def test_an_innovation_beyond_the_cut_has_so_much_more_variance(
    size: float, sign: int, engine: Any
) -> None:
    table = with_innovations(sign * size)
    found, before = filtered(engine, table), filtered(engine, _piece(table, 0, 20))
    usual = found.variance[20, 0] + SPACE.rates[5]
    expected = usual * size / CUT * max(size / (CLEAR * CUT), 1) ** 2
    assert 1 / found.precision[20] == pytest.approx(expected, rel=1e-9)
    # continuous at the cut, and grows with a power of the innovation only
    cost = found.loss - before.loss - 0.5 * np.log(usual)
    assert cost == pytest.approx(CUT**2 * (0.5 + np.log(size / CUT)), rel=1e-6)


def test_how_far_an_innovation_moves_the_level_is_bounded(engine: Any) -> None:
    moves = []
    for size in (2.0, CUT, 5.0, 7.0, 20.0, 100.0, 1e9):
        table = with_innovations(size)
        found, before = filtered(engine, table), filtered(engine, _piece(table, 0, 20))
        moves.append(abs(found.states[0][0, 0] - before.states[0][0, 0]))
    assert max(moves) < 1.2 * moves[1]
    assert moves[-1] < moves[-2] < moves[-3] < 0.2 * moves[1]


@pytest.mark.parametrize(
    ("sizes", "jump"),
    [
        ([20.0] * RUN, RUN - 1),
        ([-20.0, -4.0, -9.0], RUN - 1),
        ([20.0, -20.0, 20.0], None),
        ([20.0, 20.0, 1.0, 20.0], None),
        ([20.0, -20.0, -20.0, -20.0], 3),
        ([20.0] * (RUN - 1), None),
    ],
    ids=str,
)
def test_so_many_beyond_the_cut_on_one_side_are_a_jump_of_the_level(
    sizes: list[float], jump: int | None, engine: Any
) -> None:
    found = filtered(engine, with_innovations(*sizes))
    jumps = np.flatnonzero(found.jumps)
    assert jumps.tolist() == ([] if jump is None else [20 + jump])
    if jump is not None:
        error = found.scaled[-1] / found.precision[-1]
        assert found.jumps[-1] == pytest.approx(error**2)
        expected = found.variance[-1, 0] + SPACE.rates[5]
        assert 1 / found.precision[-1] == pytest.approx(expected)
        assert noises(found)[-1] == pytest.approx(SPACE.rates[5])
        assert found.states[2][0, 0] == 0  # the next run begins anew


@pytest.mark.parametrize("shape", ["spike", "run", "shift", "many"])
def test_robust_answers_are_the_processs_with_the_noise_taken(
    shape: str, engine: Any
) -> None:
    table = _piece(rows(shape), 0, 40)
    found = filtered(engine, table)
    smoothed = engine.smooth_rows(
        table.times,
        table.inputs,
        SPACE.rates,
        SPACE.waves,
        table.bounds,
        found.scaled,
        found.precision,
        found.kept,
    )
    mean = (found.signal + smoothed[0])[:, 0]
    variance = (found.variance - smoothed[1])[:, 0]
    rules = noises(found), found.jumps
    exact = posterior(ONE, table, table.times, table.inputs, *rules)
    assert (rules[0] > 1.01 * SPACE.rates[5]).any()
    np.testing.assert_allclose(mean, exact.mean, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(variance, np.diag(exact.covariance), rtol=1e-5)
