"""More is never worse: rows, columns, effects of X and named seasons."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from sklode import StructuralForecaster

AHEAD = 24


def hourly(n: int, rng: np.random.Generator) -> pd.Series:
    """Return hours of a busy place: a day's shape, quieter weekends, a slow wander."""
    stamps = pd.date_range(end="2024-06-02 23:00", periods=n + AHEAD, freq="h")
    hour, is_weekend = stamps.hour.to_numpy(), stamps.dayofweek.to_numpy() >= 5
    day = np.exp(-(((hour - 9) / 2) ** 2)) + np.exp(-(((hour - 18) / 3) ** 2))
    slow = np.cumsum(rng.standard_normal(n + AHEAD)) * 0.3
    values = 50 + 40 * day * np.where(is_weekend, 0.4, 1.0) + slow
    return pd.Series(values + 3 * rng.standard_normal(n + AHEAD), stamps, name="y")


def daily(n: int, rng: np.random.Generator) -> pd.Series:
    """Return days of a shop: a week's shape, a slow wander."""
    stamps = pd.date_range(end="2024-06-02", periods=n + AHEAD)
    week = np.array([0, 1, 2, 3, 8, 12, 4.0])[stamps.dayofweek]
    slow = np.cumsum(rng.standard_normal(n + AHEAD)) * 0.3
    return pd.Series(
        60 + week + slow + 2 * rng.standard_normal(n + AHEAD), stamps, name="y"
    )


Made = Callable[[int, np.random.Generator], pd.Series]


def error(y: pd.DataFrame, truth: pd.Series, **settings: list[str]) -> float:
    seasons = settings.get("seasons", "auto")
    found = StructuralForecaster(seasons=seasons).fit(y).predict(fh=truth.index)
    return float((found["y"] - truth).abs().mean())


def rows(y: pd.Series, rng: np.random.Generator) -> tuple[float, float]:
    past, future = y[:-AHEAD].to_frame(), y[-AHEAD:]
    return error(past, future), error(past[len(past) // 2 :], future)


def a_column(y: pd.Series, rng: np.random.Generator) -> tuple[float, float]:
    past, future = y[:-AHEAD].to_frame(), y[-AHEAD:]
    noise = past.assign(noise=rng.standard_normal(len(past)))
    return error(noise, future), error(past, future)


def a_season(y: pd.Series, rng: np.random.Generator) -> tuple[float, float]:
    past, future = y[:-AHEAD].to_frame(), y[-AHEAD:]
    is_hourly = y.index[1] - y.index[0] < pd.Timedelta("1D")
    named = ["1D", "7D"] if is_hourly else ["7D"]
    return error(past, future, seasons=named), error(past, future)


@pytest.mark.slow
@pytest.mark.parametrize("more", [rows, a_column, a_season])
@pytest.mark.parametrize(("make", "n"), [(hourly, 1344), (daily, 400)])
def test_more_is_never_worse(
    make: Made,
    n: int,
    more: Callable[[pd.Series, np.random.Generator], tuple[float, float]],
) -> None:
    ratios = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        with_more, with_less = more(make(n, rng), rng)
        ratios.append(with_more / with_less)
    assert np.exp(np.log(ratios).mean()) < 1.03, ratios
    assert max(ratios) < 1.2, ratios
