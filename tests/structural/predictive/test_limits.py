"""Answers stay within what values have moved in as long a time."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import StructuralForecaster
from sklode.structural.predictive.limits import BOUNDS, POINTS
from tests.cases import mostly_slow

DAYS = pd.date_range("2024-01-01", periods=260)
AHEAD = (1, 2, 7, 30, 90, 1000)


def largest_move(y: pd.Series, lag: float) -> float:
    """Return it of all pairs of rows; beyond the rows in proportion."""
    days = (y.index - y.index[0]) / pd.Timedelta("1D")
    pairs = itertools.combinations(zip(days, y, strict=True), 2)
    moves = [abs(a - b) for (s, a), (t, b) in pairs if t - s <= lag + 1e-9]
    return max(moves) * max(lag / days[-1], 1.0)


def walk(n: int, seed: int = 0) -> np.ndarray:
    return np.cumsum(np.random.default_rng(seed).normal(size=n))


def fitted(y: Any, **settings: Any) -> StructuralForecaster:
    return StructuralForecaster(random_state=0, **settings).fit(y)


SERIES = {
    "falls at last": pd.Series(np.r_[walk(60), -np.geomspace(1, 300, 9)], DAYS[:69]),
    "grows ever faster": pd.Series(np.exp(0.15 * np.arange(50)), DAYS[:50]),
    "jumps of a logarithm": pd.Series(
        np.r_[np.exp(walk(40) / 5), 1e-6, 1e-6, 1.0, 1.0, 80.0], DAYS[:45]
    ),
    "three rows": pd.Series([5.0, 5.1, 7.0], DAYS[:3]),
    "irregular": pd.Series(
        np.exp(walk(40)), DAYS[np.sort(np.random.default_rng(1).permutation(200)[:40])]
    ),
    "counts": pd.Series(np.r_[np.zeros(30), 1, 3, 9, 27.0, 81], DAYS[:35]),
}


@pytest.mark.parametrize(
    "name", mostly_slow(SERIES, "falls at last", "jumps of a logarithm", "irregular")
)
@pytest.mark.parametrize("logarithm", mostly_slow(["auto", False]))
def test_nothing_runs_away(name: str, logarithm: Any) -> None:
    y = SERIES[name]
    forecaster = fitted(y, logarithm=logarithm)
    points = forecaster.predict(AHEAD).to_numpy().ravel()
    bounds = forecaster.predict_interval(AHEAD, coverage=0.999).to_numpy()
    paths = forecaster.sample(AHEAD, n_samples=200)["y" if y.name else 0].to_numpy()
    paths = paths.reshape(200, -1)
    usual = float(np.median(np.diff(y.index) / pd.Timedelta("1D")))
    step = forecaster.predict(AHEAD).index - y.index[-1]
    for k, lead in enumerate(step / pd.Timedelta("1D")):
        move = largest_move(y, max(lead, usual))
        whole = 1.0 if name == "counts" else 1e-6 * move  # counts move by whole numbers
        assert abs(points[k] - y.iloc[-1]) <= POINTS * (move + whole)
        assert np.abs(bounds[k] - y.iloc[-1]).max() <= BOUNDS * (move + whole)
        assert np.abs(paths[:, k] - y.iloc[-1]).max() <= BOUNDS * (move + whole)


def test_a_series_of_few_rows_may_move_as_others_of_its_panel_did() -> None:
    r = np.random.default_rng(0)
    each = {k: pd.Series(10 + 3 * r.normal(size=60), DAYS[:60]) for k in range(6)}
    each[6] = pd.Series([16.0, 16.001], DAYS[:2])
    panel = pd.concat(each, names=["series", "day"]).to_frame("y")
    forecast = fitted(panel).predict([5])["y"][6].iloc[0]
    # it returns to what is usual, where its own rows show next to no move
    assert forecast < 14


def risen(n: int, seed: int) -> pd.Series:
    """Return days that rise within a week to a height below one, and fall again."""
    r, day = np.random.default_rng(seed), np.arange(n)
    rise = np.exp(-(((day - r.uniform(4, 7)) / 2.5) ** 2))
    return pd.Series(r.uniform(0.1, 1) * rise * np.exp(r.normal(0, 0.05, n)), DAYS[:n])


def test_a_rise_of_few_rows_does_not_leave_what_its_panel_held() -> None:
    panel = {k: risen(14, k) for k in range(30)}
    most = max(x.max() for x in panel.values())
    panel[30] = pd.Series([0.02, 0.08, 0.3, 0.9], DAYS[:4])
    forecast = fitted(pd.concat(panel, names=["series", "day"]).to_frame("y"))
    ahead = forecast.predict([1, 3, 6])["y"][30].to_numpy()
    # its own moves alone would let it reach more than twice as much
    assert (ahead <= most + 1e-9).all()
    assert (ahead > 0).all()


def test_what_grows_in_all_the_panel_grows_on_in_few_rows() -> None:
    r = np.random.default_rng(0)
    slopes = np.linspace(1, 3, 12)
    lines = {
        k: pd.Series(20 + slope * np.arange(8) + 0.05 * r.normal(size=8), DAYS[:8])
        for k, slope in enumerate(slopes)
    }
    forecast = fitted(pd.concat(lines, names=["series", "day"]).to_frame("y"))
    highest = forecast.predict([6])["y"][11].iloc[0]
    assert highest == pytest.approx(20 + 3 * 13, abs=1.0)


def test_an_effect_of_X_is_not_held_back() -> None:
    r = np.random.default_rng(0)
    X = pd.DataFrame({"x": r.normal(size=210)}, DAYS[:210])
    X.iloc[205, 0] = 40.0  # ten times as far as ever
    y = pd.Series(3 * X["x"] + 0.1 * r.normal(size=210), name="y")
    forecaster = StructuralForecaster(seasons=None).fit(y[:200], X=X[:200])
    with pytest.warns(UserWarning, match="may be far off"):
        found = forecaster.predict(DAYS[200:210], X=X[200:])
    assert found.iloc[5] == pytest.approx(120, rel=0.1)


@pytest.mark.parametrize(
    "y",
    [
        pd.Series(20 + 8 * np.sin(2 * np.pi * np.arange(260) / 7), DAYS) + walk(260),
        pd.Series(np.exp(0.01 * np.arange(260)), DAYS),
        pd.Series(3.0 * np.arange(260), DAYS),
    ],
    ids=["season", "growth", "line"],
)
def test_ordinary_forecasts_are_left_alone(
    y: pd.Series, monkeypatch: pytest.MonkeyPatch
) -> None:
    forecaster = fitted(y[:200])
    found = forecaster.predict(range(1, 61))
    limits = "sklode.structural.predictive.limits.Limits.within"
    monkeypatch.setattr(limits, lambda limits, values, times: values)
    pd.testing.assert_series_equal(found, forecaster.predict(range(1, 61)))
