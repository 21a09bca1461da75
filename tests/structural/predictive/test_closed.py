"""Nights of solar power and closed hours: always zero of late, and so ahead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import StructuralForecaster


def power(start: str, n_days: int, freq: str = "30min") -> pd.Series:
    """Return solar power at 52 degrees north, in per cent, under some clouds."""
    rng = np.random.default_rng(0)
    per_day = pd.Timedelta("1D") // pd.Timedelta(freq)
    stamps = pd.date_range(start, periods=n_days * per_day, freq=freq)
    day = stamps.dayofyear + stamps.hour / 24
    declination = np.radians(-23.44 * np.cos(2 * np.pi * (day + 10) / 365.25))
    hour = stamps.hour + stamps.minute / 60
    height = np.sin(np.radians(52)) * np.sin(declination) + np.cos(
        np.radians(52)
    ) * np.cos(declination) * np.cos(np.pi * (hour - 12) / 12)
    clouds = np.repeat(rng.uniform(0.4, 1, n_days), per_day)
    clouds = clouds * rng.uniform(0.8, 1, len(stamps))
    return pd.Series(100 * np.maximum(height, 0) * clouds, stamps)


def split(y: pd.Series, days: int) -> tuple[pd.Series, pd.Series]:
    cut = y.index[-1].normalize() - pd.Timedelta(days=days - 1)
    return y[y.index < cut], y[y.index >= cut]


def fitted(y: Any) -> StructuralForecaster:
    return StructuralForecaster(random_state=0).fit(y)


def test_nights_are_dark_in_all_answers() -> None:
    past, ahead = split(power("2024-06-01", 30), 2)
    forecaster = fitted(past)
    dark = (ahead == 0).to_numpy()
    fh = ahead.index
    assert (forecaster.predict(fh=fh)[dark] == 0).all()
    interval = forecaster.predict_interval(fh=fh, coverage=0.9)
    assert (interval[dark] == 0).all(axis=None)
    assert (interval[~dark].iloc[:, 1] > 0).mean() > 0.9
    assert (forecaster.predict_var(fh=fh)[dark] == 0).all(axis=None)
    paths = forecaster.sample(fh=fh, n_samples=20)
    assert (paths.to_numpy().reshape(20, -1)[:, dark] == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("days", [2, 10])
def test_dawn_comes_earlier_in_spring(days: int) -> None:
    past, ahead = split(power("2024-02-20", 30 + days, "15min"), days)
    interval = fitted(past).predict_interval(fh=ahead.index, coverage=0.9)
    is_dark = (interval.iloc[:, 1] == 0).to_numpy()
    # what is held to be night has next to no light, ten days later too
    assert ahead[is_dark].max() < 0.02 * past.max()
    assert is_dark.sum() > 0.7 * (ahead == 0).sum()


def test_shops_are_closed_on_sundays() -> None:
    rng = np.random.default_rng(1)
    days = pd.date_range("2023-01-02", periods=300)
    sold = rng.poisson(20, 300) * (days.dayofweek < 6)
    past, ahead = split(pd.Series(sold.astype(float), days), 14)
    interval = fitted(past).predict_interval(fh=ahead.index, coverage=0.9)
    is_sunday = ahead.index.dayofweek == 6
    assert (interval[is_sunday] == 0).all(axis=None)
    assert (interval[~is_sunday].iloc[:, 1] > 15).all()


def test_what_is_rare_is_not_closed_where_chance_left_it_out() -> None:
    rng = np.random.default_rng(2)
    days = pd.date_range("2023-01-02", periods=200)
    sold = pd.Series((rng.random(200) < 0.06).astype(float), days)
    assert (sold.groupby(days.dayofweek).sum() == 0).any()
    interval = fitted(sold).predict_interval(fh=range(1, 8), coverage=0.99)
    assert (interval.iloc[:, 1] > 0).all()


def test_a_shop_that_closed_for_good_stays_as_it_is_forecast() -> None:
    days = pd.date_range("2023-01-02", periods=260)
    sold = pd.Series(np.random.default_rng(3).poisson(20, 260).astype(float), days)
    sold.iloc[40:] = 0.0
    assert (fitted(sold).predict(fh=range(1, 8)) >= 0).all()


@pytest.mark.slow
def test_each_series_of_a_panel_has_its_own_hours() -> None:
    rng = np.random.default_rng(4)
    hours = pd.date_range("2023-01-02", periods=24 * 30, freq="h")
    early = (hours.hour >= 6) & (hours.hour < 14)
    series = {
        "early": pd.Series(rng.poisson(9, len(hours)) * early, hours),
        "late": pd.Series(rng.poisson(9, len(hours)) * ~early, hours),
    }
    y = pd.concat(series, names=["shop", "hour"]).astype(float).to_frame("y")
    upper = fitted(y).predict_interval(fh=range(1, 25), coverage=0.9).iloc[:, 1]
    for shop, is_own in (("early", early[:24]), ("late", ~early[:24])):
        assert ((upper.loc[shop] > 0).to_numpy() == is_own).all()
