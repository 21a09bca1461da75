"""What y is linked to goes there and back, and never beyond y's bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sklode.data.links import IDENTITY, Link, link_of, margins

LINKS = {
    "identity": IDENTITY,
    "logarithm": Link(low=0.0),
    "logarithm above -5": Link(low=-5.0),
    "logarithm with zeros": Link(low=0.0, past=0.5),
    "logarithm of what is left": Link(high=12.0),
    "logit": Link(low=-2.0, high=12.0),
    "logit with values at its ends": Link(low=-2.0, high=12.0, past=0.25),
}
each = pytest.mark.parametrize("name", LINKS)
VALUES = np.array([0.01, 1.0, 6.5, 11.9])


@each
def test_a_link_goes_there_and_back(name: str) -> None:
    link = LINKS[name]
    np.testing.assert_allclose(link.inverse(link.of(VALUES)), VALUES, rtol=1e-10)
    assert (np.diff(link.of(VALUES)) > 0).all()


@each
def test_the_slope_is_that_of_the_link(name: str) -> None:
    link, step = LINKS[name], 1e-6
    rise = link.of(VALUES + step) - link.of(VALUES - step)
    slope = np.exp(link.log_slope(VALUES))
    np.testing.assert_allclose(slope, rise / (2 * step), rtol=1e-5)


@each
def test_moments_are_those_of_draws(name: str) -> None:
    link = LINKS[name]
    means, variances = np.array([-1.0, 0.4, 2.0]), np.array([0.01, 0.3, 1.2])
    normals = np.random.default_rng(0).standard_normal((200_000, 1))
    drawn = link.inverse(means + np.sqrt(variances) * normals)
    mean, variance = link.moments(means, variances)
    # 200,000 draws tell a normal variance to 0.3 %, sqrt(2 / 200,000);
    # tails that are heavier less well
    np.testing.assert_allclose(mean, drawn.mean(0), rtol=5e-3, atol=5e-3)
    np.testing.assert_allclose(variance, drawn.var(0), rtol=3e-2)
    raised = link.inverse(means + link.rise(means, variances))
    np.testing.assert_allclose(raised, mean, rtol=1e-9)


@each
def test_no_value_of_u_is_beyond_the_bounds(name: str) -> None:
    link = LINKS[name]
    found = link.inverse(np.array([-1e300, -800.0, 0.0, 800.0, 1e300]))
    assert (found >= link.low - link.past).all()
    assert (found <= link.high + link.past).all()


NONE, INF = [-np.inf, np.inf], np.inf


@pytest.mark.parametrize(
    ("values", "bounds", "expected"),
    [
        ([1.0, 3.0], NONE, Link(low=0.0)),
        ([0.0, 0.25, 7.5], NONE, Link(low=0.0, past=0.25)),
        ([0.0, 3.0], NONE, Link(low=0.0, past=1.0)),  # counts
        ([-1.0, 3.0], NONE, IDENTITY),
        ([-1.0, 3.0], [-4.0, INF], Link(low=-4.0)),
        ([-1.0, 3.5], [-INF, 4.0], Link(high=4.0)),
        ([20.0, 60.0], [0.0, 100.0], Link(low=0.0, high=100.0)),
        ([20.0, 98.5, 100.0], [0.0, 100.0], Link(low=0.0, high=100.0, past=1.5)),
    ],
)
def test_values_and_bounds_tell_the_link(
    values: list[float], bounds: Any, expected: Link
) -> None:
    assert link_of(np.array(values), np.array(bounds)) == expected


def test_margins_are_distances_from_the_nearest_bound() -> None:
    values = np.array([[3.0, 3.0, 3.0, 3.0]])
    bounds = np.array([NONE, [1.0, INF], [-INF, 10.0], [0.0, 4.0]])
    assert margins(values, bounds).tolist() == [[3.0, 2.0, 7.0, 1.0]]
