"""Distributions without a value below zero, against draws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sklode.data.links import IDENTITY, Link, has_zeros, link_of, steps_of
from sklode.structural.predictive.bounds import Floored
from sklode.structural.predictive.mixture import Mixture

N = 400_000
NONE = np.array([-np.inf, np.inf])


def normal(mean: float, spread: float, noise: float, log: bool = False) -> Mixture:
    """Return two normals that are alike, of one query."""
    means = np.array([[mean - 0.1 * spread], [mean + 0.1 * spread]])
    spreads, noises = np.full((2, 1), spread), np.full((2, 1), noise)
    return Mixture(
        weights=np.full((2, 1), 0.5),
        means=means,
        spreads=spreads,
        noises=noises,
        links=(Link(low=0.0) if log else IDENTITY,) * 2,
        fading=np.zeros((2, 1)),
        smearing=np.ones((2, 1)),
    )


def draws(mixture: Mixture) -> np.ndarray:
    rng = np.random.default_rng(0)
    chosen = rng.integers(0, 2, N)
    spread = np.hypot(mixture.spreads, mixture.noises)[chosen, 0]
    found = mixture.means[chosen, 0] + spread * rng.standard_normal(N)
    return np.exp(found)[:, None] if mixture.is_linked[0] else found[:, None]


CASES = {
    "far from zero": (30.0, 1.0, 2.0),
    "near zero": (2.0, 0.3, 1.5),
    "rare": (0.05, 0.01, 0.23),
    "bursts": (1.0, 0.2, 4.0),
    "fallen below zero": (-1.0, 1.5, 1.0),
    "large": (400.0, 30.0, 900.0),
    "hardly any noise": (3.0, 1e-9, 1e-9),
}
each = pytest.mark.parametrize("case", CASES)
steps = pytest.mark.parametrize("step", [0.0, 1.0])


@each
@steps
def test_quantiles_variance_and_draws_agree(case: str, step: float) -> None:
    mixture = normal(*CASES[case])
    floored, found = Floored(mixture, step, NONE), draws(mixture)
    values = floored.put(found)[:, 0]
    assert values.min() >= 0
    if step:
        np.testing.assert_array_equal(values % 1, 0)
    expected = np.sqrt(floored.variance()[0])
    assert values.std() == pytest.approx(expected, rel=0.02, abs=1e-6)
    if case == "far from zero":  # rounding makes nothing wider
        assert floored.variance() == pytest.approx(mixture.variance(), rel=5e-3)
    levels = np.array([0.05, 0.3, 0.5, 0.95, 0.99])
    quantiles = floored.quantiles(levels)[0]
    for level, quantile in zip(levels, quantiles, strict=True):
        assert (values <= quantile + 1e-9).mean() > level - 0.005
        assert (values < quantile - 1e-9).mean() < level + 0.005


@each
@steps
def test_the_mean_of_draws_is_that_of_a_signal_not_below_zero(
    case: str, step: float
) -> None:
    mean, spread, noise = CASES[case]
    signal = mean + spread * np.random.default_rng(1).standard_normal(N)
    mixture = normal(mean, spread, noise)
    found = Floored(mixture, step, NONE).put(draws(mixture)).mean()
    assert found == pytest.approx(np.maximum(signal, 0).mean(), rel=0.03)


def test_log_normals_are_only_rounded() -> None:
    mixture = normal(1.0, 0.3, 0.9, log=True)
    found, values = Floored(mixture, 0.0, NONE), draws(mixture)
    np.testing.assert_array_equal(found.put(values), values)
    np.testing.assert_array_equal(
        Floored(mixture, 1.0, NONE).put(values), np.round(values)
    )


def test_a_logarithm_with_an_offset_is_taken_back() -> None:
    plain = normal(1.0, 0.3, 0.2, log=True)
    offset = replace(plain, links=(Link(low=0.0, past=2.0),) * 2)
    levels = np.array([0.05, 0.5, 0.95])
    expected = plain.quantiles(levels) - 2
    np.testing.assert_allclose(offset.quantiles(levels), expected, rtol=1e-9)
    np.testing.assert_allclose(offset.variance(), plain.variance())
    rate = np.exp(1.0 + 0.2**2 / 2)  # of what is seen on average
    np.testing.assert_allclose(offset.points(), rate - 2, rtol=1e-2)
    np.testing.assert_allclose(plain.points(), rate, rtol=1e-2)


NAN = float("nan")
KINDS = [
    ([0.0, 3.0, NAN], 1.0, 1.0),
    ([1.0, 3.0], 1.0, 0.0),
    ([0.0, 0.25, 7.5], 0.0, 0.25),
    ([0.0, 1.0, -1.0], NAN, 0.0),
    ([0.0, 0.0], 1.0, 0.0),
]


@pytest.mark.parametrize(("values", "step", "offset"), KINDS)
def test_value_kinds_are_told(values: list[float], step: float, offset: float) -> None:
    np.testing.assert_array_equal(steps_of(np.array(values)[:, None]), [step])
    known = np.array(values)[~np.isnan(values)]
    assert link_of(known, np.array([-np.inf, np.inf])).past == offset
    assert has_zeros(known) is bool((known == 0).any() and (known >= 0).all())
