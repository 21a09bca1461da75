"""Rows in pieces are the rows at once, and what is too large to be true weighs less."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sklode.structural.components.space import Form
from sklode.structural.filter import backward as kalman_back
from sklode.structural.filter import forward as kalman
from sklode.structural.filter.outliers import CLEAR
from sklode.structural.filter.system import THRESHOLD, FilterPass, States
from sklode.structural.filtered_column import NO_SHOCKS, NO_STATES
from sklode.structural.rows import ChannelRows
from tests.structural.processes import (
    SPAN,
    candidate,
    posterior,
    table_of,
    with_threshold,
)

ONE = candidate(Form((5.0, 11.0), effects=((0,),)), noise=0.4)
ONE = with_threshold(ONE, THRESHOLD)
SPACE = ONE.model.space(SPAN)
NOISE = SPACE.noise


def filtered(
    table: ChannelRows, states: Any = None, since: float = 0.0, one: Any = ONE
) -> tuple[FilterPass, States, Any]:
    """Return what the filter finds, and the states after all, and after each row."""
    n = len(table.bounds) - 1
    after = np.empty((len(table.times), len(SPACE.start)))
    found = one.model.filtered(
        SPACE, table, SPACE.whole, states, np.full(n, since), after
    )
    return found, found.states, after


def smoothed(table: ChannelRows, found: FilterPass) -> tuple[Any, Any]:
    more, less = kalman_back.smooth_rows(
        SPACE.system(ONE.model.schedule(table)),
        v_F=found.v_F[:, None],
        inverse_F=found.inverse_F,
        gains=found.gains,
        shocks=NO_SHOCKS,
        shocked=NO_STATES,
    )
    return found.signal + more[..., 0], found.variance - less


SHAPES = ("clean", "spike", "run", "shift", "missing", "equal stamps", "many")
each_shape = pytest.mark.parametrize("shape", SHAPES)


def rows(shape: str) -> ChannelRows:
    """Return series with something in the middle of the first."""
    table = table_of((40, 1, 0, 12), ONE, 1)
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


@each_shape
def test_the_states_after_each_row_are_those_of_a_filter_that_stops_there(
    shape: str,
) -> None:
    table = rows(shape)
    _, states, after = filtered(table)
    ends = table.bounds[1:][table.lengths > 0] - 1
    np.testing.assert_allclose(after[ends], states.means[table.lengths > 0])
    _, half, _ = filtered(table.alone(0).where(slice(22)))
    np.testing.assert_allclose(after[21], half.means[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "numbers",
    [[], [1, 2, 3, 7], [1, 2, 3, 1 / 7, 2 / 7, 5 / 7, 0.3], [2, 1, 1]],
    ids=str,
)
def test_waves_turn_with_the_clock(numbers: list[float]) -> None:
    clock = np.linspace(-9, 400, 23)
    frequencies = 2 * np.pi * np.array(numbers, dtype=float) / 5
    found = kalman.turned(clock, frequencies)
    angles = clock[:, None] * frequencies
    expected = np.stack([np.cos(angles), np.sin(angles)], axis=2).reshape(23, -1)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@each_shape
def test_the_filter_of_columns_makes_of_y_what_the_filter_made(shape: str) -> None:
    table = rows(shape)
    found, _, _ = filtered(table)
    gains = np.ascontiguousarray(found.gains[:, 0])
    columns = np.column_stack([table.values, -2 * table.values])
    both = kalman.filter_columns(
        SPACE.system(ONE.model.schedule(table)),
        inverse_F=found.inverse_F,
        gains=gains,
        values=columns,
    )
    size = np.abs(found.signal).max()
    np.testing.assert_allclose(both, found.signal * [1, -2], atol=1e-9 * size)


@each_shape
@pytest.mark.parametrize("size", [1, 7])
def test_rows_in_pieces_are_the_rows_at_once(shape: str, size: int) -> None:
    table = rows(shape).alone(0)
    found, expected, _ = filtered(table)
    states, since, loss, signal = None, 0.0, 0.0, []
    for start in range(0, 40, size):
        piece = table.where(slice(start, start + size))
        if start:
            since = piece.times[0] - table.times[start - 1]
        part, states, _ = filtered(piece, states, since)
        loss += part.loss
        signal.append(part.signal)
    assert states is not None
    # where arrays lie in memory decides how a processor rounds
    for one, other in zip(states, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    pieces = np.concatenate(signal)
    np.testing.assert_allclose(pieces, found.signal, rtol=1e-9, atol=1e-12)
    assert loss == pytest.approx(found.loss, rel=1e-12)


# What is too large to be true


def with_innovations(*sizes: float, before: int = 20) -> ChannelRows:
    """Return a series whose innovations after some rows have these sizes."""
    table = rows("clean").alone(0).where(slice(before + len(sizes)))
    for place, size in enumerate(sizes, before):
        table.values[place:] = np.nan
        found, _, _ = filtered(table)
        spread = np.sqrt(found.variance[place, 0] + NOISE)
        table.values[place] = found.signal[place, 0] + size * spread
    return table


def noises(found: FilterPass) -> Any:
    """Return the variances of noise that the filter took its rows to have."""
    return 1 / found.inverse_F - found.variance[:, 0]


@pytest.mark.parametrize("size", [0.0, -2.9, THRESHOLD - 1e-6])
def test_an_innovation_within_the_threshold_counts_as_it_is(size: float) -> None:
    table = with_innovations(size)
    found, states, _ = filtered(table)
    plain, others, _ = filtered(table, one=with_threshold(ONE, np.inf))
    assert found.loss == plain.loss
    np.testing.assert_array_equal(states.means, others.means)
    np.testing.assert_array_equal(states.covariances, others.covariances)
    np.testing.assert_allclose(noises(found), NOISE)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("size", [THRESHOLD + 1e-6, 5.0, THRESHOLD * CLEAR, 20.0, 1e6])
def test_an_innovation_beyond_the_threshold_has_so_much_more_variance(
    size: float, sign: int
) -> None:
    table = with_innovations(sign * size)
    found, before = (filtered(table.where(slice(n)))[0] for n in (21, 20))
    usual, times = found.variance[20, 0] + NOISE, size / THRESHOLD
    expected = usual * times * max(times / CLEAR, 1) ** 2
    assert 1 / found.inverse_F[20] == pytest.approx(expected, rel=1e-9)
    # continuous at the threshold, and grows with a power of the innovation only
    cost = found.loss - before.loss - 0.5 * np.log(usual)
    assert cost == pytest.approx(THRESHOLD**2 * (0.5 + np.log(times)), rel=1e-6)


@pytest.mark.parametrize(
    ("sizes", "jump"),
    [
        ([20.0] * 3, 2),
        ([-20.0, -4.0, -9.0], 2),
        ([20.0, -20.0, 20.0], None),
        ([20.0, 20.0, 0.0, 20.0], None),
        ([20.0, -20.0, -20.0, -20.0], 3),
        ([20.0] * 2, None),
        ([-2.3] * 6, 5),
        ([0.0] * 3 + [1.95] * 9, 11),
        ([1.25] * 20, None),
    ],
    ids=str,
)
def test_innovations_that_add_up_on_one_side_are_a_jump_of_the_level(
    sizes: list[float], jump: int | None
) -> None:
    found, states, _ = filtered(with_innovations(*sizes))
    jumps = np.flatnonzero(found.jumps)
    assert jumps.tolist() == ([] if jump is None else [20 + jump])
    if jump is not None:
        error = found.v_F[-1] / found.inverse_F[-1]
        assert found.jumps[-1] == pytest.approx(error**2)
        assert noises(found)[-1] == pytest.approx(NOISE)
        assert not states.runs.any()  # the next step begins anew


@pytest.mark.parametrize("shape", ["spike", "run", "shift", "many"])
def test_robust_answers_are_the_processs_with_the_noise_taken(shape: str) -> None:
    table = rows(shape).alone(0)
    found, _, _ = filtered(table)
    mean, variance = smoothed(table, found)
    rules = noises(found), found.jumps
    exact = posterior(ONE, table, table.times, table.inputs, *rules)
    assert (rules[0] > 1.01 * NOISE).any()
    np.testing.assert_allclose(mean[:, 0], exact.mean, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(variance[:, 0], np.diag(exact.covariance), rtol=1e-5)
