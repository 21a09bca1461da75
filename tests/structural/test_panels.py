"""Panels whose series differ in scale: each is forecast in its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import StructuralForecaster
from sklode.structural.search import forms
from tests.cases import slow

DAYS = pd.date_range("2024-01-01", periods=130, freq="D")
SCALES = {"a": 1.0, "b": 30.0, "c": 1000.0}


def fading(seed: int, n: int = 130) -> Any:
    """Return an autoregression of order one with innovations of size one."""
    e = np.random.default_rng(seed).standard_normal(n)
    for k in range(1, n):
        e[k] += 0.7 * e[k - 1]
    return e


def panel(logarithm: bool = False) -> pd.DataFrame:
    series = {}
    for seed, (key, scale) in enumerate(SCALES.items()):
        values = scale * (3 + fading(seed))
        if logarithm:
            values = scale * np.exp(0.2 * scale**0.2 * fading(seed))
        series[key] = pd.Series(values, DAYS)
    return pd.concat(series, names=["key", "day"]).to_frame("y")


def widths(forecaster: StructuralForecaster, log: bool = False) -> pd.Series:
    found = forecaster.predict_interval(fh=range(1, 8), coverage=0.9)
    found = np.log(found) if log else found
    return (found.iloc[:, 1] - found.iloc[:, 0]).groupby("key").mean()


@pytest.mark.slow
@pytest.mark.parametrize("logarithm", [False, True])
def test_each_series_has_intervals_of_its_own_width(
    logarithm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forms, "_FEW", 0.01)  # a lone series drifts as little
    y = panel(logarithm)
    together = widths(StructuralForecaster(logarithm=logarithm).fit(y), logarithm)
    for key, width in together.items():
        lone = StructuralForecaster(logarithm=logarithm).fit(y.loc[key])
        found = lone.predict_interval(fh=range(1, 8), coverage=0.9)
        found = np.log(found) if logarithm else found
        expected = (found.iloc[:, 1] - found.iloc[:, 0]).mean()
        assert 0.7 < width / expected < 1.4


@pytest.mark.slow
def test_a_constant_series_keeps_its_level_and_widens_no_other() -> None:
    y = panel()
    flat = pd.concat({"flat": pd.Series(7.0, DAYS)}, names=["key", "day"])
    both = pd.concat([y, flat.to_frame("y")])
    found = widths(StructuralForecaster().fit(both))
    expected = widths(StructuralForecaster().fit(y))
    assert found["flat"] < 0.2
    np.testing.assert_allclose(found[expected.index], expected, rtol=0.3)


@pytest.mark.parametrize("scale", [0.01, slow(100.0)])
@pytest.mark.parametrize("n", [slow(4), 40])
def test_a_short_series_after_a_panel_has_its_own_scale(scale: float, n: int) -> None:
    pretrained = StructuralForecaster().pretrain(panel())
    new = pd.DataFrame({"y": scale * (3 + fading(9)[:n])}, DAYS[:n])
    found = pretrained.fit(new).predict_interval(fh=range(1, 8), coverage=0.9)
    width = (found.iloc[:, 1] - found.iloc[:, 0]).mean() / scale
    assert 2 < width < 8


def test_paths_and_parts_are_in_the_units_of_their_series() -> None:
    y = panel()
    forecaster = StructuralForecaster(random_state=0).fit(y)
    paths = forecaster.sample(fh=[1, 2, 3], n_samples=400)
    expected = forecaster.predict_var(fh=[1, 2, 3])["y"] ** 0.5
    spread = paths.groupby(level=[-2, -1]).std().iloc[:, 0]
    assert (spread / expected).between(0.8, 1.25).all()
    inside = forecaster.predict_at(y.index)["y"]
    signal = forecaster._parts(y.index, None)["y", "signal"]
    each = y.index.get_level_values("key").map(SCALES).to_numpy()
    np.testing.assert_allclose(signal / each, inside / each, atol=0.3)


@pytest.mark.parametrize("has_X", [slow(False), True])
def test_a_series_may_lack_a_column(has_X: bool) -> None:
    rng = np.random.default_rng(0)
    days = pd.date_range("2026-01-05", periods=40)
    index = pd.MultiIndex.from_product([list("abc"), days], names=["shop", "day"])
    y = pd.DataFrame({"sold": rng.normal(20, 1, 120), "back": 5.0}, index)
    y["back"] += rng.normal(size=120)
    X = pd.DataFrame({"promo": (rng.random(120) < 0.3) * 1.0}, index) if has_X else None
    y["sold"] += 0.0 if X is None else 4 * X["promo"]
    y.loc["a", "sold"] = np.nan
    forecaster = StructuralForecaster(random_state=0).fit(y, X=X)
    ahead = pd.date_range("2026-02-14", periods=2)
    rows = pd.MultiIndex.from_product([list("abc"), ahead], names=["shop", "day"])
    X = pd.DataFrame({"promo": 0.0}, rows) if has_X else None
    found = forecaster.predict_at(rows, X=X)
    assert found["sold"].between(18, 22).all()
    assert found["back"].between(3, 7).all()


@pytest.mark.slow
@pytest.mark.parametrize("differ", [0, 1])
def test_series_that_are_on_and_off_by_the_clock_share_steps_of_the_day(
    differ: int,
) -> None:
    rng, series = np.random.default_rng(0), {}
    stamps = pd.date_range("2026-01-05", periods=96 * 6, freq="15min")
    for k in range(4):
        # every second one may begin an hour later
        is_on = (stamps.hour >= 9 + differ * (k % 2)) & (stamps.hour < 18)
        noise = rng.standard_normal(len(stamps))
        series[f"s{k}"] = pd.Series(20 + (40 + 10 * k) * is_on + noise, stamps)
    y = pd.concat(series, names=["key", "when"]).to_frame("y")
    past = y.index.get_level_values(1) < stamps[96 * 5]
    forecaster = StructuralForecaster().fit(y[past])
    errors = forecaster.predict_at(y[~past].index) - y[~past]
    # noise of deviation one is 0.8 off on average
    assert errors["y"].abs().mean() < 1.0
