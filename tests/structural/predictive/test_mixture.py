"""Mixtures of normals and log-normals, against integrals by numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import lognorm, norm

from sklode.data.links import IDENTITY, Link, steps_of
from sklode.structural.predictive.mixture import Mixture, Paths
from sklode.structural.predictive.steps import Adjustment

LOGARITHM = Link(low=0.0)
LEVELS = np.array([0.001, 0.05, 0.5, 0.8, 0.999])


def mixture(*parts: tuple[float, float, float, float, bool]) -> Mixture:
    """Return one query's: of each part weight, mean, variance, noise, logarithm."""
    weights, means, variances, noises, logarithm = map(
        np.array, zip(*parts, strict=True)
    )
    spreads = np.sqrt(variances)[:, None]
    noises = np.sqrt(noises)[:, None]
    return Mixture(
        weights=weights[:, None],
        means=means[:, None],
        spreads=spreads,
        noises=noises,
        links=tuple(LOGARITHM if log else IDENTITY for log in logarithm),
        fading=np.zeros_like(noises),
        smearing=np.ones_like(noises),
    )


def distributions(of: Mixture, noise: bool) -> list[tuple[float, Any]]:
    found = []
    for weight, mean, spread, extra, log in zip(
        of.weights[:, 0],
        of.means[:, 0],
        of.spreads[:, 0],
        of.noises[:, 0],
        of.is_linked[:, 0],
        strict=True,
    ):
        spread = np.hypot(spread, noise * extra)
        one = lognorm(spread, scale=np.exp(mean)) if log else norm(mean, spread)
        found.append((weight, one))
    return found


MIXTURES = {
    "a normal": mixture((1.0, 3.0, 4.0, 0.5, False)),
    "a log-normal": mixture((1.0, 1.0, 0.3, 0.1, True)),
    "far apart": mixture((0.3, -50.0, 1.0, 0.2, False), (0.7, 80.0, 3.0, 2.0, False)),
    "both": mixture(
        (0.5, 3.0, 1.0, 0.2, False),
        (0.2, 2.5, 9.0, 0.1, False),
        (0.3, 1.2, 0.2, 0.1, True),
    ),
    "negative and positive": mixture(
        (0.6, -5.0, 4.0, 0.0, False), (0.4, 1.0, 0.5, 0.5, True)
    ),
    "narrow": mixture((0.5, 7.0, 1e-14, 0.0, False), (0.5, 7.5, 1e-2, 1e-9, False)),
}

each = pytest.mark.parametrize("name", MIXTURES)


@each
def test_quantiles_are_those_of_the_mixture(name: str) -> None:
    of = MIXTURES[name]
    found = of.quantiles(LEVELS)
    assert found.shape == (1, len(LEVELS))
    assert (np.diff(found[0]) >= 0).all()
    for x, level in zip(found[0], LEVELS, strict=True):
        step = 1e-9 * max(abs(x), 1.0)
        below, above = (
            sum(w * d.cdf(x + e) for w, d in distributions(of, True))
            for e in (-step, step)
        )
        assert below - 1e-7 <= level <= above + 1e-7


@each
def test_the_variance_is_that_of_observations(name: str) -> None:
    of = MIXTURES[name]
    moments = []
    for power in (1, 2):
        total = 0.0
        for weight, d in distributions(of, True):
            ends = d.mean() - 40 * d.std(), d.mean(), d.mean() + 400 * d.std()
            ends = (max(ends[0], d.support()[0]), *ends[1:])
            pieces = [
                quad(lambda x, d=d, p=power: x**p * d.pdf(x), *own, limit=500)[0]
                for own in (ends[:2], ends[1:])
            ]
            total += weight * sum(pieces)
        moments.append(total)
    expected = moments[1] - moments[0] ** 2
    assert of.variance()[0] == pytest.approx(expected, rel=1e-5, abs=1e-9)


def test_a_logarithm_beyond_all_floats_is_the_largest_and_no_infinity() -> None:
    of = mixture((1.0, 700.0, 900.0, 1.0, True))
    assert np.isfinite(of.quantiles(LEVELS)).all()
    assert not np.isfinite(of.variance()).all()  # which answers refuse


def paths_of(values: Any) -> Paths:
    """Return paths of y, (path, query)."""
    nothing = np.zeros_like(values)
    number = np.zeros(values.shape, np.int64)
    return Paths(component=number, signal=values, noise=nothing, links=(IDENTITY,))


def adjusted(
    of: Mixture, target: float, weight: float, factor: float, log: bool
) -> Any:
    link = LOGARITHM if log else IDENTITY
    adjustment = Adjustment(
        link, *(np.array([x]) for x in (target, weight, factor, np.inf, np.nan))
    )
    return adjustment.on_mixture(of), adjustment


@pytest.mark.parametrize(
    ("name", "log"), [("far apart", False), ("a log-normal", True)]
)
def test_a_move_shifts_the_median_and_stretches_all_quantiles(
    name: str, log: bool
) -> None:
    of = MIXTURES[name]
    found, adjustment = adjusted(of, 1.7, 0.3, 0.6, log)
    plain = np.log if log else np.asarray
    middle = plain(of.medians())
    centre = 0.7 * middle + 0.3 * 1.7
    expected = centre + 0.6 * (plain(of.quantiles(LEVELS)) - middle)
    np.testing.assert_allclose(plain(found.quantiles(LEVELS)), expected, rtol=1e-6)
    np.testing.assert_allclose(plain(found.medians()), centre, rtol=1e-6)
    # draws move with the quantiles
    drawn = adjustment.on_paths(paths_of(of.quantiles(LEVELS).T), of).values()[:, 0]
    np.testing.assert_allclose(drawn, found.quantiles(LEVELS)[0], rtol=1e-6)


def test_a_component_of_another_kind_moves_with_the_others() -> None:
    of = mixture((0.8, 1.0, 0.3, 0.1, True), (0.2, 2.8, 0.4, 0.1, False))
    found, _ = adjusted(of, 3.0, 1.0, 0.5, True)
    assert found.is_linked[:, 0].tolist() == [True, True]
    assert (found.quantiles(LEVELS) > 0).all()
    assert found.medians()[0] == pytest.approx(np.exp(3.0), rel=0.05)


@each
def test_a_forecast_is_the_mean_over_noise_at_the_median_signal(name: str) -> None:
    of = MIXTURES[name]
    if len(of.weights) == 1 and of.is_linked[0]:
        expected = lognorm(of.noises[0, 0], scale=np.exp(of.means[0, 0])).mean()
        assert of.points()[0] == pytest.approx(expected)
    elif not of.is_linked.any():  # symmetric: the median is both
        np.testing.assert_array_equal(of.points(), of.medians())
    else:
        assert of.points()[0] >= of.medians()[0]


def test_a_moved_forecast_has_the_mean_of_its_own_noise() -> None:
    found, _ = adjusted(MIXTURES["a log-normal"], 1.7, 1.0, 0.5, True)
    assert np.log(found.points())[0] == pytest.approx(1.7 + 0.5**2 * 0.1 / 2)


@pytest.mark.parametrize(
    ("mean", "spread", "is_counts"),
    [
        (0.05, None, 1),
        (5.0, None, 1),
        (500.0, None, 1),
        (140.0, 4.0, 0),
        (60.0, 2.0, 0),
    ],
)
def test_whole_numbers_are_counts_if_they_move_as_counts_do(
    mean: float, spread: float | None, is_counts: int
) -> None:
    rng = np.random.default_rng(0)
    counts = rng.poisson(mean, 300).astype(float)
    if spread is not None:  # a measurement that wanders, rounded
        counts = np.round(mean + np.cumsum(rng.normal(0, spread, 300)) / 4)
    counts[7] = np.nan
    assert steps_of(counts[:, None])[0] == is_counts
    assert steps_of(counts[:, None] + 0.5)[0] == 0
    assert np.isnan(steps_of(counts[:, None] - 1e6)[0])
