"""Intervals are as wide as errors ahead have been of late."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import StructuralForecaster
from sklode.structural.predictive.scale_by_lead import VarianceInflation

N, AHEAD = 160, range(1, 13)


def series(seed: int = 0, since: int = 0, kink: float = 0.0) -> pd.Series:
    """Return a walk with noise, whose slope changed so many rows before its end."""
    rng = np.random.default_rng(seed)
    y = 100 + np.cumsum(0.3 * rng.normal(size=N)) + rng.normal(size=N)
    y += kink * np.maximum(np.arange(N) - (N - since), 0.0)
    return pd.Series(y, pd.date_range("2024-01-01", periods=N), name="y")


def fitted(y: Any) -> Any:
    return StructuralForecaster(seasons=None, random_state=0).fit(y)


def widening(forecaster: Any) -> VarianceInflation:
    (column,) = forecaster._answers.states.columns
    (found,) = column.inflations.values()
    return found


def test_what_went_as_expected_is_hardly_widened() -> None:
    factors = [widening(fitted(series(seed))).factors for seed in range(4)]
    assert np.min(factors) >= 1
    assert np.mean(factors) < 1.2


def test_rows_after_a_break_widen_what_was_fitted_before() -> None:
    y = series(since=15, kink=1.0)
    before = fitted(y[:-15])
    calm = widening(before).factors.max()
    after = copy.deepcopy(before).update(y[-15:], update_params=False)
    factors = widening(after).factors
    assert factors.max() > 1.5 * calm
    # errors far ahead are from origins before the break
    assert factors[7] > factors[0]


@pytest.mark.usefixtures("as_a_normal")
def test_quantiles_paths_and_variances_are_as_wide_and_forecasts_stay() -> None:
    forecaster = fitted(series(since=12, kink=1.5))
    found = widening(forecaster)
    levels = [0.05, 0.5, 0.95]
    quantiles = forecaster.predict_quantiles(AHEAD, alpha=levels).to_numpy()
    paths = forecaster.sample(AHEAD, n_samples=4000)["y"].to_numpy().reshape(4000, -1)
    width = quantiles[:, 2] - quantiles[:, 0]
    drawn = np.quantile(paths, levels, axis=0).T
    np.testing.assert_allclose(drawn[:, 2] - drawn[:, 0], width, rtol=0.1)
    variance = forecaster.predict_var(AHEAD).to_numpy().ravel()
    np.testing.assert_allclose(paths.var(0), variance, rtol=0.15)
    points = forecaster.predict(AHEAD)
    # the same, were nothing widened
    (column,) = forecaster._answers.states.columns
    (heaviest,) = column.inflations
    nothing = VarianceInflation(found.leads, np.ones(len(found.leads)))
    column.inflations[heaviest] = nothing
    pd.testing.assert_series_equal(points, forecaster.predict(AHEAD))
    plain = forecaster.predict_quantiles(AHEAD, alpha=levels).to_numpy()
    np.testing.assert_allclose(plain[:, 1], quantiles[:, 1], rtol=1e-6)
    factor = np.interp(AHEAD, found.leads, found.factors)
    assert factor.max() > 1.2
    np.testing.assert_allclose(width / (plain[:, 2] - plain[:, 0]), factor, rtol=0.02)


@pytest.mark.parametrize("n", [1, 2, 11, 14])
def test_few_rows_widen_nothing_much(n: int) -> None:
    found = widening(fitted(series()[:n]))
    assert (found.factors >= 1).all()
    assert found.factors.max() < 1.5
    assert (np.diff(found.leads) >= 0).all()
    np.testing.assert_array_equal(found.at(np.array([-3.0, 0.0])), 1.0)


def test_short_series_tell_what_effects_of_a_panel_leave() -> None:
    rng = np.random.default_rng(0)
    n, names = 9, [f"s{k:02d}" for k in range(20)]
    promo = (rng.uniform(size=(len(names), n)) < 0.4) * 1.0
    # noise of late is three times what it was
    noise = rng.normal(size=promo.shape) * np.where(np.arange(n) < n - 3, 1.0, 3.0)
    days = pd.date_range("2026-01-05", periods=n)
    index = pd.MultiIndex.from_product([names, days], names=["shop", "day"])
    data = pd.DataFrame(
        {"y": (20 + 8 * promo + noise).ravel(), "promo": promo.ravel()}, index
    )
    calm = data.index.get_level_values(1) < days[n - 3]
    forecaster = StructuralForecaster(random_state=0)
    forecaster.fit(data[calm][["y"]], X=data[calm][["promo"]])
    before = widening(forecaster).factors.max()
    new = data[~calm]
    forecaster.update(new[["y"]], X=new[["promo"]], update_params=False)
    assert before < 1.3
    assert widening(forecaster).factors.max() > 1.5


@pytest.mark.slow
def test_more_intervals_hold_after_a_kink() -> None:
    shares = []
    for seed in range(10):
        y = series(seed, since=24, kink=0.4)
        forecaster, truth = fitted(y[:-12]), y[-12:]
        (column,) = forecaster._answers.states.columns
        ((heaviest, usual),) = column.inflations.items()
        for found in (usual, VarianceInflation(usual.leads, np.ones(len(usual.leads)))):
            column.inflations[heaviest] = found
            low, high = forecaster.predict_interval(AHEAD).to_numpy().T
            shares.append(((truth >= low) & (truth <= high)).mean())
    widened, plain = np.reshape(shares, (10, 2)).mean(0)
    assert widened > max(plain + 0.1, 0.65)
