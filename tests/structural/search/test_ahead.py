"""Whether y's logarithm is taken is judged some rows ahead too, in y's units."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtri

from sklode import StructuralForecaster
from sklode.data.scores import quantile_crps
from sklode.structural.predictive.calibration import spread_ahead
from sklode.structural.search import ahead, estimate
from tests.cases import slow

N = 24 * 42


def riders(seed: int, memory: float) -> pd.Series:
    """Return busy days with weather of a size, and nights of few riders.

    Small values of nights alone make the logarithm of y more probable than y.
    """
    rng, n = np.random.default_rng(seed), N + 48
    index = pd.date_range("2026-01-05", periods=n, freq="h")
    kept = math.exp(-1 / memory)
    weather = np.zeros(n)
    for i in range(1, n):
        weather[i] = kept * weather[i - 1] + math.sqrt(1 - kept**2) * rng.normal()
    wave = np.sin(np.pi * (index.hour - 8) / 15)
    by_day = 60 + 340 * wave + 100 * weather
    by_night = 0.1 * np.exp(0.5 * rng.normal(size=n))
    return pd.Series(
        np.maximum(np.where(index.hour >= 8, by_day, by_night), 0.01), index
    )


def of_logarithm(forecaster: StructuralForecaster) -> bool:
    return "of the logarithm" in forecaster.summary(origins=0)["structure"]


@pytest.mark.parametrize("seed", [0, slow(1)])
@pytest.mark.parametrize("memory", [6.0, slow(36.0)])
def test_nights_alone_take_no_logarithm(seed: int, memory: float) -> None:
    y = riders(seed, memory)
    past, coming = y[:N], y[N:]
    forecaster = StructuralForecaster(random_state=0).fit(past)
    assert not of_logarithm(forecaster)
    highest = forecaster.predict_interval(fh=coming.index, coverage=0.9).max().max()
    assert highest < 1.2 * past.max()


def test_what_multiplies_keeps_its_logarithm() -> None:
    rng = np.random.default_rng(0)
    index = pd.date_range("2026-01-05", periods=N, freq="h")
    wave = np.sin(2 * np.pi * index.hour / 24)
    walk = np.cumsum(0.02 * rng.normal(size=N))
    y = pd.Series(np.exp(3 + 1.5 * wave + walk + 0.1 * rng.normal(size=N)), index)
    assert of_logarithm(StructuralForecaster(random_state=0).fit(y))


def test_series_of_a_few_rows_look_nowhere_ahead() -> None:
    rng = np.random.default_rng(0)
    stamps = pd.date_range("2026-01-05", periods=8, freq="D")
    index = pd.MultiIndex.from_product([range(20), stamps], names=["plant", "day"])
    rows = np.exp(0.5 * np.tile(np.arange(8), 20) + 0.1 * rng.normal(size=160))
    y = pd.DataFrame({"height": rows}, index)
    assert of_logarithm(StructuralForecaster(random_state=0).fit(y))


def test_of_what_has_no_likelihood_nothing_is_forecast_better() -> None:
    rng = np.random.default_rng(0)
    height = np.where(rng.uniform(size=600) < 0.3, 170, -170)
    y = pd.Series(np.exp(height + 0.5 * rng.normal(size=600)))
    assert of_logarithm(StructuralForecaster(random_state=0).fit(y))


def test_scores_are_sums_of_those_of_each_forecast(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two plants with an effect: widths, what effects add and blocks, by hand."""
    seen: list[Any] = []
    usual = ahead.scores_ahead

    def scored(*args: Any) -> Any:
        seen.append((args, usual(*args)))
        return seen[-1][1]

    monkeypatch.setattr(estimate, "scores_ahead", scored)
    rng, n = np.random.default_rng(0), 120
    stamps = pd.date_range("2026-01-01", periods=n, freq="D")
    index = pd.MultiIndex.from_product([["a", "b"], stamps], names=["plant", "day"])
    heat = rng.normal(size=2 * n)
    level = np.repeat([3.0, 5.0], n)
    y = pd.DataFrame(
        {"y": np.exp(level + 0.5 * heat + 0.1 * rng.normal(size=2 * n))}, index
    )
    StructuralForecaster().fit(y, X=pd.DataFrame({"heat": heat}, index))
    (candidate, table, left, span, _), found = seen[0]
    assert not np.allclose(candidate.scaling.rows(table).values, left.values)
    expected = np.zeros(len(found))
    for k, forecasts in spread_ahead(candidate, left, span):
        own = table.alone(k)
        units = candidate.scaling.alone(k)
        added = units.scaled(own.values) - left.alone(k).values
        size = np.abs(own.values - np.median(own.values)).mean()
        for i, j in np.argwhere(np.isfinite(forecasts.leads)):
            row = forecasts.rows[i, j]
            middle = forecasts.signals[i, j] + added[row]
            levels = np.arange(0.05, 1, 0.1)
            quantiles = units.original(
                middle + forecasts.deviations[i, j] * ndtri(levels)
            )
            score = quantile_crps(own.values[[row]], quantiles[None], levels)[0]
            expected[(n - 1 - row) // 24] += min(score / size, 10.0)
    assert found == pytest.approx(expected, rel=1e-6)
