"""Steps from a mixture to an answer do to sample paths what they do to quantiles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sklode.data.links import IDENTITY, Link
from sklode.structural.predictive.limits import Limits
from sklode.structural.predictive.mixture import Mixture, Paths
from sklode.structural.predictive.recalibration import NORMAL, Recalibration
from sklode.structural.predictive.steps import (
    Adjustment,
    Bounded,
    Conditioned,
    Inflated,
    MeansWithin,
    Prediction,
    Recalibrated,
    Step,
    UncertainX,
    WithinMoves,
)

LOGARITHM = Link(low=0.0)
LEVELS = np.array([0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98])
N = 40_000
# of two components and three queries
MEANS = np.array([[1.0, 2.0, 6.0], [1.4, 2.9, 2.0]])
WEIGHTS = np.array([[0.4, 0.4, 1.0], [0.6, 0.6, 0.0]])


def mixture(link: Link) -> Mixture:
    """Return two components of three queries; the second has no weight in the last."""
    return Mixture(
        weights=WEIGHTS,
        means=MEANS,
        spreads=np.full(MEANS.shape, 0.3),
        noises=np.full(MEANS.shape, 0.2),
        links=(link, link),
        fading=np.full(MEANS.shape, 0.01),
        smearing=np.ones((2, 1)),
    )


def drawn(of: Mixture) -> Paths:
    """Return paths of a mixture: stratified components, independent queries."""
    rng = np.random.default_rng(0)
    component = (rng.random((N, 3)) > WEIGHTS[0]).astype(np.int64)
    normals = rng.standard_normal((2, N, 3))
    signal = np.take_along_axis(MEANS, component, axis=0) + 0.3 * normals[0]
    return Paths(
        component=component, signal=signal, noise=0.2 * normals[1], links=of.links
    )


def limits(reach: float) -> Limits:
    """Return those of queries whose last value was 3."""
    return Limits(
        centre=np.full(3, 3.0),
        reach=np.full(3, reach),
        effect=np.zeros(3),
        scalings=[],
        held=np.array([[-np.inf] * 3, [np.inf] * 3]),
    )


def adjustment(link: Link) -> Adjustment:
    """Return a network's move of the first two queries."""
    return Adjustment(
        link=link,
        target=np.array([1.8, 0.5, 0.0]),
        weight=np.array([0.7, 1.0, 0.0]),
        factor=np.array([0.8, 1.3, 1.0]),
        most=np.full(3, 1.5),
        usual=np.full(3, np.nan),
    )


# of errors half as large, too large, and as they should be
KINDS = Recalibration(
    np.stack([NORMAL, 0.5 * NORMAL, 1.3 * NORMAL + 0.1 * NORMAL**2]),
    np.array([1, 2, 0]),
)


STEPS: dict[str, Any] = {
    "conditioned": lambda link: [
        Conditioned(
            shift=np.array([[0.5], [0.4]]) * np.ones(3),
            middle=np.full((2, 3), 1.2),
            factor=np.array([0.5, 0.8, 1.0]),
        )
    ],
    "inflated": lambda link: [Inflated(lambda: np.array([1.0, 1.5, 2.5]))],
    "unknown X": lambda link: [
        UncertainX(np.random.default_rng(1).normal(0.3, 0.4, (2, N, 3)))
    ],
    # reached by the BOUNDS = 20 times this
    "means within": lambda link: [MeansWithin(limits(0.05))],
    "adjusted": lambda link: [adjustment(link)],
    "recalibrated": lambda link: [Recalibrated(lambda: KINDS)],
    "within moves": lambda link: [WithinMoves(limits(0.04))],
    "counts": lambda link: [Bounded(1.0, np.array([-np.inf, np.inf]))],
    "not below zero": lambda link: [Bounded(0.0, np.array([-np.inf, np.inf]))],
    "between": lambda link: [Bounded(0.0, np.array([1.1, 2.7]))],
}
STEPS["all"] = lambda link: (
    [
        step
        for name in (
            "conditioned",
            "inflated",
            "recalibrated",
            "means within",
            "adjusted",
        )
        for step in STEPS[name](link)
    ]
    + [Bounded(0.0, np.array([-np.inf, np.inf])), WithinMoves(limits(0.04))]
)


@pytest.mark.parametrize("link", [IDENTITY, LOGARITHM], ids=["plain", "logarithm"])
@pytest.mark.parametrize("name", STEPS)
def test_quantiles_of_many_paths_are_the_quantiles(name: str, link: Link) -> None:
    steps: list[Step] = STEPS[name](link)
    of = mixture(link)
    prediction = Prediction(of, steps)
    paths = prediction.paths(drawn(of))
    quantiles = prediction.distribution().quantiles(LEVELS)
    for query in range(3):
        for level, quantile in zip(LEVELS, quantiles[query], strict=True):
            room = 1e-9 * abs(quantile)
            # of what ends at a limit many values are the quantile
            assert (paths[:, query] <= quantile + room).mean() > level - 0.012
            assert (paths[:, query] < quantile - room).mean() < level + 0.012


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_a_move_is_of_components_whose_logarithms_begin_elsewhere(
    weight: float,
) -> None:
    """A series that has zeros is a logarithm of y and a little more."""
    of = mixture(Link(low=0.0, past=0.5))
    of = replace(of, means=0.5 * of.means, spreads=0.2 * of.spreads)
    every = np.ones(3)
    target = np.log([2.0, 5.0, 9.0])
    move = Adjustment(
        link=LOGARITHM,
        target=target,
        weight=weight * every,
        factor=every,
        most=np.inf * every,
        usual=np.nan * every,
    )
    middle = np.log(of.medians())
    found = move.on_mixture(of)
    expected = np.exp(middle + weight * (target - middle))
    np.testing.assert_allclose(found.medians(), expected, rtol=0.02)
    # the last query has one component: its deviation is that of the other logarithm
    ends = found.quantiles(np.array([0.16, 0.84]))[2]
    before = np.log(of.quantiles(np.array([0.16, 0.84]))[2])
    np.testing.assert_allclose(np.diff(np.log(ends)), np.diff(before), rtol=0.1)
    assert set(found.links) == {LOGARITHM}


def test_a_component_without_weight_tells_nothing() -> None:
    of = mixture(IDENTITY)
    alone = Mixture(
        weights=np.ones((1, 1)),
        means=of.means[:1, 2:],
        spreads=of.spreads[:1, 2:],
        noises=of.noises[:1, 2:],
        links=of.links[:1],
        fading=of.fading[:1, 2:],
        smearing=of.smearing[:1],
    )
    last = of.at(np.array([2]))
    np.testing.assert_allclose(last.quantiles(LEVELS), alone.quantiles(LEVELS))
    np.testing.assert_allclose(last.points(), alone.points())
    np.testing.assert_allclose(last.variance(), alone.variance())


def test_components_may_have_links_of_their_own() -> None:
    of = Mixture(
        weights=np.array([[0.5], [0.5]]),
        means=np.log([[3.0], [5.0]]),
        spreads=np.full((2, 1), 1e-6),
        noises=np.full((2, 1), 1e-6),
        links=(LOGARITHM, Link(low=0.0, past=1.0)),
        fading=np.zeros((2, 1)),
        smearing=np.ones((2, 1)),
    )
    # exp(u) of the first, exp(u) - 1 of the second
    low, high = of.quantiles(np.array([0.25, 0.75]))[0]
    assert (low, high) == pytest.approx((3.0, 4.0), rel=1e-4)
    assert of.variance()[0] == pytest.approx(0.25, rel=1e-3)


def test_forecasts_are_the_same_however_wide_errors_were() -> None:
    of = mixture(LOGARITHM)
    wide = Prediction(of, [Inflated(lambda: np.full(3, 3.0)), WithinMoves(limits(1e4))])
    np.testing.assert_array_equal(wide.points(), of.points())
    assert (wide.distribution().variance() > of.variance()).all()
