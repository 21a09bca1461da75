"""Errors that are wider at some times of the day or the week than at others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sktime.forecasting.base import ForecastingHorizon

from sklode import StructuralForecaster
from sklode.structural.filter.system import THRESHOLD
from sklode.structural.predictive.dispersion import Clock, Dispersion
from tests.cases import mostly_slow


def hourly(index: pd.Index, seed: int = 0, ratio: float = 8.0) -> pd.Series:
    """Return a wave of days whose noise is wider by day than by night."""
    hour = np.arange(len(index)) % 24
    rng = np.random.default_rng(seed)
    width = np.where((hour >= 8) & (hour < 20), ratio, 1.0)
    return pd.Series(
        50 + 10 * np.sin(2 * np.pi * hour / 24) + width * rng.normal(size=len(index)),
        index,
    )


def widths(forecaster: StructuralForecaster, fh: Any) -> np.ndarray:
    found = forecaster.predict_interval(fh=fh, coverage=0.9).to_numpy()
    return found[:, 1] - found[:, 0]


N = 24 * 35
INDICES: dict[str, tuple[pd.Index, dict[str, Any]]] = {
    "stamps": (pd.date_range("2026-01-05", periods=N + 48, freq="h"), {}),
    "zone": (
        pd.date_range("2026-01-05", periods=N + 48, freq="h", tz="Asia/Tokyo"),
        {},
    ),
    "periods": (pd.period_range("2026-01-05", periods=N + 48, freq="h"), {}),
    "numbers": (pd.RangeIndex(N + 48), {"seasons": [24, 168]}),
}


@pytest.mark.parametrize("kind", mostly_slow(INDICES))
def test_intervals_are_wide_when_errors_are(kind: str) -> None:
    index, parameters = INDICES[kind]
    y = hourly(index)
    forecaster = StructuralForecaster(random_state=0, **parameters).fit(y[:N])
    fh = ForecastingHorizon(index[N:], is_relative=False)
    found = widths(forecaster, fh)
    hour = np.arange(N, N + 48) % 24
    by_day, by_night = (hour >= 10) & (hour < 18), (hour >= 22) | (hour < 6)
    ratio = found[by_day].mean() / found[by_night].mean()
    assert 5 < ratio < 12
    # of normal errors nine of ten are within 1.645 deviations
    assert found[by_day].mean() == pytest.approx(2 * 1.645 * 8, rel=0.3)
    assert found[by_night].mean() == pytest.approx(2 * 1.645, rel=0.5)
    paths = forecaster.sample(fh=fh, n_samples=400).to_numpy().reshape(400, -1)
    spread = paths.std(axis=0)
    of_paths = spread[by_day].mean() / spread[by_night].mean()
    assert of_paths == pytest.approx(ratio, rel=0.2)
    assert (forecaster.components_["dispersion"] > 4).all()
    assert "times as wide at some hours" in forecaster.summary(origins=0)["structure"]


def test_it_is_so_inside_gaps_too() -> None:
    index, _ = INDICES["stamps"]
    y = hourly(index)
    gap = index[24 * 20 : 24 * 21]
    forecaster = StructuralForecaster(random_state=0).fit(y.drop(gap))
    found = widths(forecaster, gap)
    hour = gap.hour
    by_day, by_night = (hour >= 10) & (hour < 18), (hour >= 22) | (hour < 6)
    assert found[by_day].mean() > 4 * found[by_night].mean()


def test_days_of_the_week_differ() -> None:
    index = pd.date_range("2024-01-01", periods=7 * 60, freq="D")
    rng = np.random.default_rng(0)
    wide = index.dayofweek >= 5
    y = pd.Series(20 + np.where(wide, 6.0, 1.0) * rng.normal(size=len(index)), index)
    forecaster = StructuralForecaster(random_state=0).fit(y[:-14])
    found = widths(forecaster, index[-14:])
    assert found[wide[-14:]].mean() > 2.5 * found[~wide[-14:]].mean()


@pytest.mark.slow
def test_a_panel_follows_the_clock_on_the_wall() -> None:
    # series that begin at different hours
    each = {}
    for k, first in enumerate((0, 5, 11, 17)):
        index = pd.date_range("2026-01-05", periods=N, freq="h")
        each[f"s{k}"] = hourly(index, seed=k).iloc[first:]
    y = pd.concat(each, names=["series", "hour"]).to_frame("y")
    forecaster = StructuralForecaster(random_state=0).fit(y)
    found = forecaster.predict_interval(fh=range(1, 25), coverage=0.9)
    width = found.iloc[:, 1] - found.iloc[:, 0]
    hour = width.index.get_level_values(1).hour
    by_hour = width.groupby([width.index.get_level_values(0), hour]).mean().unstack(0)
    assert (by_hour.loc[10:17].mean() > 4 * by_hour.loc[0:5].mean()).all()


@pytest.mark.parametrize("seed", mostly_slow(range(3)))
def test_equal_noise_is_left_alone(seed: int) -> None:
    index, _ = INDICES["stamps"]
    forecaster = StructuralForecaster(random_state=0).fit(hourly(index, seed, ratio=1))
    assert (forecaster.components_["dispersion"] == 1).all()
    assert "times as wide" not in forecaster.summary(origins=0)["structure"]
    found = widths(forecaster, range(1, 25))
    assert found.max() < 1.1 * found.min()


def shares(n: int) -> np.ndarray:
    hours = np.arange(n)
    return np.column_stack([hours % 24 / 24, hours / 168])


def test_few_harmonics_are_found_and_outliers_hardly_count() -> None:
    rng = np.random.default_rng(0)
    passed = shares(24 * 100)
    day, week = (2 * np.pi * share for share in passed.T)
    true = np.exp(0.8 * np.cos(day) + 0.4 * np.sin(week))
    expected = true / np.sqrt((true**2).mean())
    errors = expected * rng.normal(size=len(true))
    clock = Clock.shown(passed)
    found = Dispersion.fitted(errors, passed, clock).at(passed)
    assert (found**2).mean() == pytest.approx(1)
    np.testing.assert_allclose(found, expected, rtol=0.25)
    # one absurd value at noon
    errors[24 * 50 + 12] = 1e6 * THRESHOLD
    absurd = Dispersion.fitted(errors, passed, clock).at(passed)
    np.testing.assert_allclose(absurd, found, rtol=0.1)


@pytest.mark.parametrize("freq", mostly_slow(["W", "MS", "QS", "YS"]))
def test_rows_far_apart_tell_of_no_day_or_week(freq: str) -> None:
    index = pd.date_range("1990-01-31", periods=100, freq=freq)
    wide = index.dayofweek < 3
    rng = np.random.default_rng(0)
    y = pd.Series(20 + np.where(wide, 6.0, 1.0) * rng.normal(size=len(index)), index)
    forecaster = StructuralForecaster(random_state=0).fit(y)
    assert (forecaster.components_["dispersion"] == 1).all()


@pytest.mark.parametrize("n", [0, 1, 5, 24])
def test_of_few_rows_nothing_is_told(n: int) -> None:
    passed = shares(n)
    clock = Clock.shown(passed)
    found = Dispersion.fitted(np.full(n, 5.0), passed, clock)
    assert (found.at(passed) == 1).all()


def test_what_all_hours_share_hides_how_they_differ() -> None:
    """Temperatures: the next row's error is wide by day, tomorrow's at all hours."""
    index, _ = INDICES["stamps"]
    rng = np.random.default_rng(0)
    level = np.cumsum(rng.normal(size=len(index)))
    y = hourly(index, ratio=3.0) * 0.2 + 2 * level
    forecaster = StructuralForecaster(random_state=0).fit(y[:N])
    found = widths(forecaster, index[N + 24 :])
    assert found.max() < 1.6 * found.min()
