"""Spreads are as wide as errors are, and say so alike by every way of asking."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from sklode import LatentODELSTMForecaster
from sklode.data.errors import HistoryWarning
from sklode.latent_ode.calibration import Residuals, calibrate, scales_at
from sklode.latent_ode.randomness import normals
from tests.series import channels, panel, tiny, two_sines, uneven_stamps, waves

LONG = {"window_length": 6, "horizon": 3, "max_epochs": 3}


def with_scale(forecaster: Any, scale: float) -> Any:
    """Return a copy whose spread is ``scale`` times the model's own."""
    other = copy.deepcopy(forecaster)
    table = np.array([[0.0, *[scale] * len(other.scale_)]])
    other._set_model(replace(other._model, calibration=table))
    return other


def without_latent_spread(forecaster: Any) -> Any:
    """Return a copy whose q(z0) is all but a point, with the model's own noise."""
    other = with_scale(forecaster, 1.0)
    bias = other._model.network.posterior_head[-1].bias
    bias.data[len(bias) // 2 :] = -80.0
    return other


def residuals(scale: Any, n: int = 400, seed: int = 0) -> Residuals:
    """Return normal errors of 10 stamps seen and 30 after them."""
    lags = np.tile(np.arange(-9.0, 31.0), (n, 1))
    white = np.random.default_rng(seed).standard_normal((*lags.shape, 1))
    deviation = np.where(lags > 0, scale(lags), 1.5)
    return Residuals(errors=white * deviation[..., None], lags=lags)


def test_numbers_of_a_place_are_normal_and_stratified() -> None:
    series, times = np.repeat(np.arange(20), 50), np.tile(np.arange(50) / 7, 20)
    drawn = normals(3, 1, series, times, 100, 2)
    assert drawn.shape == (100, 1000, 2)
    in_order = np.sort(norm.cdf(drawn), axis=0) * 100
    assert (np.floor(in_order) == np.arange(100)[:, None, None]).all()
    within = (in_order % 1).ravel()
    expected = [0.1, 0.5, 0.9]
    found = np.quantile(within, expected, axis=0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=0.01)
    first = drawn[:1]  # one draw, over places
    assert first.mean() == pytest.approx(0, abs=0.1)
    assert first.std() == pytest.approx(1, abs=0.1)


def test_numbers_depend_on_the_place_and_on_nothing_else() -> None:
    series, times = np.array([0, 0, 1, 2**40]), np.array([0.0, -1.5, 0.0, 1e300])
    drawn = normals(5, 0, series, times, 7, 2)
    for k in range(4):
        alone = normals(5, 0, series[k : k + 1], times[k : k + 1], 7, 2)
        np.testing.assert_array_equal(alone[:, 0], drawn[:, k])
    assert len(np.unique(drawn)) == drawn.size
    np.testing.assert_array_equal(
        normals(5, 0, series, -0.0 * times, 7, 2)[:, 0], drawn[:, 0]
    )
    for other in (
        normals(6, 0, series, times, 7, 2),
        normals(5, 1, series, times, 7, 2),
    ):
        assert not (other == drawn).any()


def test_the_scale_of_normal_errors_is_found() -> None:
    found = calibrate(residuals(lambda lag: 2.0), 100_000, 1.0)
    np.testing.assert_allclose(found[1:, 1:], 2.0, rtol=0.06)
    np.testing.assert_allclose(found[0, 1:], 1.5, rtol=0.06)
    wider = calibrate(residuals(lambda lag: 2.0), 100_000, 1.3)
    np.testing.assert_allclose(wider[1:, 1:], 1.3 * found[1:, 1:])
    np.testing.assert_allclose(wider[0, 1:], found[0, 1:])
    few = calibrate(residuals(lambda lag: 2.0), 50, 1.0)
    np.testing.assert_allclose(few[1:, 1:], 1.1 * found[1:, 1:], rtol=1e-3)


def test_the_scale_rises_with_the_time_since_the_last_observation() -> None:
    found = calibrate(residuals(lambda lag: 1 + lag / 10), 100_000, 1.0)
    near, far = scales_at(found, np.array([3.0, 27.0]))[:, 0]
    assert near < 1.75
    assert 3.0 < far < 3.8
    assert scales_at(found, np.array([1e9])) == found[-1, 1:]
    falling = calibrate(residuals(lambda lag: 4 - lag / 10), 100_000, 1.0)
    assert (np.diff(falling[1:, 1:], axis=0) >= 0).all()


def test_small_errors_leave_the_models_own_spread() -> None:
    found = calibrate(residuals(lambda lag: 0.1), 100_000, 1.0)
    np.testing.assert_array_equal(found[1:, 1:], 1.0)
    lower = calibrate(residuals(lambda lag: 0.8), 100_000, 1.0, least=0.5)
    np.testing.assert_allclose(lower[1:, 1:], 0.8, rtol=0.06)


def test_too_few_errors_leave_the_models_own_spread() -> None:
    errors, lags = residuals(lambda lag: 9.0, n=1)
    errors = np.where(lags[..., None] > 5, np.nan, errors)
    few = Residuals(errors=errors[:, 8:], lags=lags[:, 8:])
    found = calibrate(few, n_rows=5, optimism=1.0)
    np.testing.assert_array_equal(scales_at(found, np.arange(-3.0, 40.0)), 1.0)


def test_quantiles_of_known_noise_are_those_of_the_normal_distribution() -> None:
    forecaster = without_latent_spread(tiny(n_samples=2000).fit(channels()))
    noise = forecaster.network_.noise_scale.detach().numpy()
    alpha = [0.05, 0.25, 0.5, 0.75, 0.95]
    for steps in ([1, 9], [-30, -5, 0]):
        point = forecaster.predict(steps)
        quantiles = forecaster.predict_quantiles(steps, alpha=alpha)
        variance = forecaster.predict_var(steps)
        for k, name in enumerate("ab"):
            deviation = noise[k] * forecaster.scale_[k]
            expected = point[[name]].to_numpy() + deviation * norm.ppf(alpha)
            np.testing.assert_allclose(
                quantiles[name], expected, rtol=0, atol=0.01 * deviation
            )
            np.testing.assert_allclose(variance[name], deviation**2, rtol=1e-3)


def test_the_scale_widens_quantiles_variances_and_paths_alike() -> None:
    plain = with_scale(tiny(n_samples=60).fit(channels()), 1.0)
    wide = with_scale(plain, 3.0)
    steps = [-9, 1, 9]
    np.testing.assert_array_equal(wide.predict(steps), plain.predict(steps))
    np.testing.assert_allclose(wide.predict_var(steps), 9 * plain.predict_var(steps))
    widths = [
        np.diff(f.predict_quantiles(steps, alpha=[0.2, 0.7])["b"])
        for f in (plain, wide)
    ]
    np.testing.assert_allclose(widths[1], 3 * widths[0])
    for noise in (False, True):
        spreads = [
            f.sample(steps, noise=noise).groupby(level=1).std() for f in (plain, wide)
        ]
        rtol = 1e-9 if not noise else 1e-6
        np.testing.assert_allclose(spreads[1], 3 * spreads[0], rtol=rtol)


def test_the_scale_is_that_of_the_column_and_the_time_outside_the_history() -> None:
    y = channels()
    plain = with_scale(tiny(n_samples=20).fit(y), 1.0)
    scaled = copy.deepcopy(plain)
    scales = np.array([[1.0, 2.0], [3.0, 5.0], [7.0, 6.0]])
    table = np.column_stack([[0.0, 2.0, 4.0], scales])
    scaled._set_model(replace(scaled._model, calibration=table))
    unit, first, last = plain.time_unit_, y.index[0], y.index[-1]
    lags = np.array([-9, -4, -2, 0, 0, 2, 3, 4, 9])
    expected = scales[[2, 2, 1, 0, 0, 1, 1, 2, 2]]
    expected[6] = [5.0, 5.5]
    queries = np.where(lags < 0, first, last) + lags * int(unit)
    queries[3] = y.index[5]
    ratio = scaled.predict_var(pd.Index(queries) - last) / plain.predict_var(
        pd.Index(queries) - last
    )
    np.testing.assert_allclose(ratio, expected**2)


@pytest.mark.parametrize("data", [channels(), panel()], ids=["columns", "panel"])
def test_quantiles_are_those_of_sample_paths(data: pd.DataFrame) -> None:
    forecaster = tiny(n_samples=40, **LONG).fit(data)
    steps, alpha = [-4, 1, 5], [0.05, 0.4, 0.95]
    quantiles = forecaster.predict_quantiles(steps, alpha=alpha)
    paths = forecaster.sample(steps)
    for name in data.columns:
        table = paths[name].to_numpy().reshape(40, -1)
        np.testing.assert_allclose(quantiles[name], np.quantile(table, alpha, 0).T)
    variance = forecaster.predict_var(steps)
    of_paths = paths.to_numpy().reshape(40, *variance.shape).var(0)
    np.testing.assert_allclose(variance, of_paths, rtol=0.6)
    assert (variance / of_paths).to_numpy().mean() == pytest.approx(1, abs=0.2)
    pd.testing.assert_frame_equal(
        forecaster.predict_quantiles(steps, alpha=alpha), quantiles, check_exact=True
    )


def test_the_distribution_is_that_of_sample_paths_row_by_row() -> None:
    skpro = pytest.importorskip("skpro.distributions")
    for data in (waves(), channels(uneven_stamps())):
        forecaster = tiny(n_samples=30, **LONG).fit(data)
        steps = [-4, 1, 5]
        distribution = forecaster.predict_proba(steps)
        assert isinstance(distribution, skpro.Empirical)
        point, paths = forecaster.predict(steps), forecaster.sample(steps)
        point = point.to_frame() if isinstance(point, pd.Series) else point
        pd.testing.assert_index_equal(distribution.index, point.index)
        of_paths = paths.to_numpy().reshape(30, *point.shape)
        np.testing.assert_allclose(distribution.mean(), of_paths.mean(0))
        np.testing.assert_allclose(distribution.var(), of_paths.var(0))
        pd.testing.assert_index_equal(distribution.mean().index, point.index)
        np.testing.assert_allclose(distribution.iloc[[1]].mean(), of_paths.mean(0)[[1]])


def test_an_update_of_the_history_alone_keeps_the_scale() -> None:
    y = waves(uneven_stamps(40))
    forecaster = tiny(**LONG).fit(y[:30])
    before = forecaster.interval_scale_
    forecaster.update(y[30:], update_params=False)
    pd.testing.assert_frame_equal(forecaster.interval_scale_, before)
    with pytest.warns(HistoryWarning):
        forecaster.update(y[30:] + 5, update_params=True)
    assert not forecaster.interval_scale_.equals(before)


@pytest.mark.parametrize("epochs", [0, 1])
def test_a_short_series_keeps_the_pretrained_scale(epochs: int) -> None:
    forecaster = tiny(**LONG, finetune_epochs=epochs).pretrain(panel())
    kept = forecaster.pretrained_.calibration
    short = forecaster.clone().fit(waves(uneven_stamps(9)))
    np.testing.assert_array_equal(short.interval_scale_, kept[:, 1:])
    longer = forecaster.clone().fit(waves(uneven_stamps(60)))
    assert not np.array_equal(longer.interval_scale_, kept[:, 1:])


@pytest.mark.slow
def test_intervals_cover_what_they_say() -> None:
    covered, widths = [], []
    for seed in range(8):
        y, _ = two_sines(seed, 430)
        forecaster = LatentODELSTMForecaster(
            random_state=0, early_stopping=seed >= 5
        ).fit(y[:400])
        test = y[400:]
        table = forecaster.predict_interval(test.index, coverage=[0.5, 0.9])
        table = table.droplevel(0, axis=1)
        inside = [
            float(test.between(table[c]["lower"], table[c]["upper"]).mean())
            for c in (0.5, 0.9)
        ]
        covered.append(inside)
        width = (table[0.9]["upper"] - table[0.9]["lower"]).mean()
        widths.append(width / (2 * 1.645 * y[:400].std()))
    half, most = np.array(covered).T
    # Thirty neighbouring errors are alike, and what a fit ends in moves with rounding,
    # hence with the machine.
    usual = (half >= 0.25) & (half <= 0.85) & (most >= 0.72)
    assert usual.mean() >= 0.8, covered
    assert abs(half.mean() - 0.5) <= 0.12, covered
    assert abs(most.mean() - 0.9) <= 0.09, covered
    assert max(widths) < 1, widths
