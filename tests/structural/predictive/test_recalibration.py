"""Below each quantile lie as many values as it says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from sklode import StructuralForecaster
from sklode.data.links import IDENTITY, Link
from sklode.structural.filtered_model import FilteredModel
from sklode.structural.predictive import recalibration
from sklode.structural.predictive.bounds import Between
from sklode.structural.predictive.mixture import Mixture
from sklode.structural.predictive.recalibration import (
    NORMAL,
    Recalibration,
    quantiles_of,
)
from sklode.structural.predictive.steps import Prediction, Recalibrated
from tests.cases import slow

# the levels of `NORMAL`
LEVELS = np.arange(1, 20) / 20
NARROW = 0.5 * NORMAL


def errors(factor: float, shift: float = 0.0, n: int = 100_000) -> np.ndarray:
    """Return what is N(shift, factor^2), evenly spread."""
    return shift + factor * np.asarray(norm.ppf((np.arange(n) + 0.5) / n))


def test_quantiles_are_those_of_errors_from_their_mean() -> None:
    np.testing.assert_allclose(quantiles_of(errors(0.5, 0.2), 1e9), NARROW, atol=1e-4)
    # of an exponential distribution the median is log 2, the mean 1
    found = quantiles_of(-np.log(norm.sf(errors(1.0))), 1e9)
    np.testing.assert_allclose(found, -np.log(1 - LEVELS) - 1, atol=0.05)
    np.testing.assert_allclose(NORMAL, norm.ppf(LEVELS))


@pytest.mark.parametrize(("n", "share"), [(0.0, 0.0), (30.0, 0.5), (90.0, 0.75)])
def test_few_errors_move_quantiles_little(n: float, share: float) -> None:
    expected = NORMAL + share * (NARROW - NORMAL)
    np.testing.assert_allclose(quantiles_of(errors(0.5, 0.2), n), expected, atol=1e-4)


def test_quantiles_are_linear_in_those_of_a_normal_and_so_are_tails() -> None:
    kinds = Recalibration(np.stack([NORMAL, NARROW, NORMAL**3]), np.array([1, 0, 2, 1]))
    levels = np.array([1e-6, 0.01, 0.05, 0.33, 0.5, 0.99])
    normal = np.tile(norm.ppf(levels)[:, None], 4)
    found = kinds.moved(normal)
    # beyond the last quantile as wide as a normal
    beyond = norm.ppf(levels) - np.clip(norm.ppf(levels), NORMAL[0], NORMAL[-1])
    expected = 0.5 * (norm.ppf(levels) - beyond) + beyond
    np.testing.assert_allclose(found[:, 0], expected, atol=1e-12)
    np.testing.assert_array_equal(found[:, 1], norm.ppf(levels))
    np.testing.assert_array_equal(found[:, 3], found[:, 0])
    np.testing.assert_allclose(kinds.normal(found), normal, atol=1e-12)
    middle = np.mean([NORMAL[11] ** 3, NORMAL[12] ** 3])
    asked = np.array([NORMAL[11:13].mean(), 2 * NORMAL[-1]])
    own = kinds.moved(np.tile(asked[:, None], 4))[:, 2]
    np.testing.assert_allclose(own, [middle, 2 * NORMAL[-1] ** 3])


def test_moments_are_those_of_the_quantiles() -> None:
    skewed = NORMAL + 0.15 * NORMAL**2
    kinds = Recalibration(
        np.stack([NORMAL, NARROW, skewed, np.zeros(19)]), np.array([0, 1, 2, 3])
    )
    values = kinds.moved(np.tile(errors(1.0, n=200_000)[:, None], 4))
    mean, deviation = kinds.moments()
    np.testing.assert_allclose(mean, values.mean(axis=0), atol=2e-3)
    np.testing.assert_allclose(deviation, values.std(axis=0), atol=2e-3)
    np.testing.assert_allclose(mean[:2], 0.0, atol=1e-12)
    assert deviation[0] == pytest.approx(1.0)


def test_each_query_has_quantiles_of_its_own_and_points_stay() -> None:
    shape = 1, 2
    mixture = Mixture(
        weights=np.ones(shape),
        means=np.array([[3.0, 5.0]]),
        spreads=np.full(shape, 0.6),
        noises=np.full(shape, 0.8),
        links=(IDENTITY,),
        fading=np.zeros(shape),
        smearing=np.ones((1, 1)),
    )
    kinds = Recalibration(np.stack([NORMAL, NARROW]), np.array([1, 0]))
    steps = [Recalibrated(lambda: kinds)]
    prediction = Prediction(mixture, steps)
    found = prediction.distribution()
    levels = np.array([0.05, 0.25, 0.5, 0.95])
    expected = np.stack([norm.ppf(levels, 3.0, 0.5), norm.ppf(levels, 5.0, 1.0)])
    np.testing.assert_allclose(found.quantiles(levels), expected)
    _, deviation = kinds.moments()
    np.testing.assert_allclose(found.variance(), deviation**2)
    np.testing.assert_allclose(prediction.points(), [3.0, 5.0])
    # that of one query, as bounds ask
    own = found.at(np.array([0]))
    np.testing.assert_allclose(own.quantiles(levels), expected[:1])
    mean, signal, noise = found.normal()
    np.testing.assert_allclose(mean, [3.0, 5.0])
    np.testing.assert_allclose([signal, noise], np.outer([0.6, 0.8], deviation))


@pytest.mark.slow
@pytest.mark.parametrize("link", [IDENTITY, Link(low=0.0)], ids=["plain", "logarithm"])
def test_variances_are_those_of_the_quantiles(link: Link) -> None:
    skewed = NORMAL + 0.15 * NORMAL**2
    shape = 2, 2
    mixture = Mixture(
        weights=np.array([[0.5, 0.3], [0.5, 0.7]]),
        means=np.array([[1.0, 1.0], [2.5, 1.4]]),
        spreads=np.full(shape, 0.3),
        noises=np.full(shape, 0.2),
        links=(link, link),
        fading=np.zeros(shape),
        smearing=np.ones((2, 1)),
        recalibration=Recalibration(
            np.stack([NORMAL, 0.6 * NORMAL, skewed]), np.array([1, 2])
        ),
    )
    drawn = mixture.quantiles((np.arange(600) + 0.5) / 600)
    np.testing.assert_allclose(mixture.variance(), drawn.var(axis=1), rtol=0.03)
    if link.is_identity:
        within = Between(mixture, np.array([-50.0, 50.0]))
        np.testing.assert_allclose(within.variance(), drawn.var(axis=1), rtol=0.03)
        mean, *_ = mixture.normal()
        np.testing.assert_allclose(mean, drawn.mean(axis=1), rtol=0.002)


def series(seed: int, n: int = 600) -> pd.Series:
    """Return a level of noise that is small at most times, and large at some."""
    rng = np.random.default_rng(seed)
    y = 50 + 0.02 * np.cumsum(rng.normal(size=n)) + rng.standard_t(2, size=n)
    return pd.Series(y, pd.date_range("2024-01-01", periods=n), name="y")


def cover(forecaster: Any, truth: pd.Series, share: float) -> float:
    found = forecaster.predict_interval(fh=truth.index, coverage=share).to_numpy()
    return float(((found[:, 0] <= truth) & (truth <= found[:, 1])).mean())


@pytest.mark.parametrize("n_seeds", [3, slow(6)])
def test_intervals_hold_what_they_say_where_noise_is_no_normal(
    n_seeds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, found = [], []
    for seed in range(n_seeds):
        y = series(seed)
        forecaster = StructuralForecaster(seasons=None, random_state=0).fit(y[:560])
        found.append([cover(forecaster, y[560:], share) for share in (0.5, 0.9)])
        with monkeypatch.context() as patch:
            patch.setattr(recalibration, "_DOUBT", 1e12)
            forecaster._answers.states.__dict__.pop("_calibrations")
            plain.append([cover(forecaster, y[560:], share) for share in (0.5, 0.9)])
    before, after = np.mean(plain, axis=0), np.mean(found, axis=0)
    assert before[0] > 0.57
    assert abs(after[0] - 0.5) < 0.5 * abs(before[0] - 0.5)
    assert 0.85 <= after[1] <= 0.95


@pytest.mark.slow
def test_skewed_noise_leaves_means_and_moves_both_ends() -> None:
    rng = np.random.default_rng(0)
    days = pd.date_range("2015-01-01", periods=1800)
    y = pd.Series(rng.exponential(size=1800) - 3, days, name="y")
    forecaster = StructuralForecaster(seasons=None, random_state=0).fit(y[:1500])
    truth = y[1500:]
    low, high = forecaster.predict_interval(truth.index, coverage=0.8).to_numpy().T
    below, above = (truth < low).mean(), (truth > high).mean()
    assert 0.05 < below < 0.16
    assert 0.05 < above < 0.16
    drawn = forecaster.sample(truth.index[:20], n_samples=2000)["y"]
    drawn = drawn.groupby(level=1).mean()
    np.testing.assert_allclose(drawn, forecaster.predict(truth.index[:20]), atol=0.08)


def test_rows_that_are_known_and_series_of_few_rows_are_asked_as_they_are() -> None:
    y = series(0)[:200]
    forecaster = StructuralForecaster(seasons=None, random_state=0).fit(y)
    states = forecaster._answers.states
    asked = states.columns[0].table
    between = asked._replace(times=asked.times - 0.5)
    assert (states._recalibration(0, between, None).kind == 0).all()
    later = asked._replace(times=asked.times + len(y))
    found = states._recalibration(0, later, None)
    assert (found.kind == 1).all()
    assert np.ptp(found.quantiles[1] - found.quantiles[0]) > 0.05
    few = StructuralForecaster(random_state=0).fit(y[:3])
    (none,) = few._answers.states._calibrations
    np.testing.assert_array_equal([one.quantiles for one in none.values()], [NORMAL])


def test_a_closed_night_does_not_tell_how_wide_the_day_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    hours = np.arange(24 * 40)
    sun = np.maximum(np.sin(np.pi * (hours % 24 - 6) / 12), 0.0)
    clouds = np.repeat(rng.beta(2, 1.5, size=len(hours) // 4), 4)
    index = pd.date_range("2025-05-01", periods=len(hours), freq="h")
    y = pd.Series(np.round(sun * clouds, 4), index)
    forecaster = StructuralForecaster(random_state=0).fit(y[: 24 * 33])
    table = forecaster._answers.states.columns[0].table
    is_night = forecaster._answers.states._closed(0, table)
    np.testing.assert_array_equal(is_night, sun[: 24 * 33] < 1e-9)
    (column,) = forecaster._answers.states._calibrations
    (found,) = column.values()
    monkeypatch.setattr(
        FilteredModel, "_closed", lambda self, k, rows: np.full(len(rows.times), False)
    )
    forecaster._answers.states.__dict__.pop("_calibrations")
    (column,) = forecaster._answers.states._calibrations
    (with_nights,) = column.values()
    # errors of nights are next to nothing
    assert np.ptp(found.quantiles[4:15]) > 1.1 * np.ptp(with_nights.quantiles[4:15])
