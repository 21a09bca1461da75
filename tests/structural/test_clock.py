"""Day, week and year are those of the clock on the wall."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import StructuralForecaster
from tests.cases import slow

CHANGES = [
    ("Europe/Berlin", "2024-03-31"),
    slow("Europe/Berlin", "2024-10-27"),
    slow("America/New_York", "2024-03-10"),
    slow("America/New_York", "2024-11-03"),
    slow("Australia/Lord_Howe", "2024-04-07"),  # by half an hour
    slow("Australia/Lord_Howe", "2024-10-06"),
]
DAY = 24


def rush(index: Any) -> Any:
    """Return a day with two sharp edges."""
    hour = index.hour.to_numpy() + index.minute.to_numpy() / 60
    return 10 + 3 * np.sin(2 * np.pi * hour / 24) + 2.0 * ((hour >= 7) & (hour < 9))


def daily() -> StructuralForecaster:
    return StructuralForecaster(seasons=["1D"], logarithm=False)


def noisy(zone: str | None, start: Any, n: int, freq: str = "h") -> pd.Series:
    index = pd.date_range(start, periods=n, freq=freq, tz=zone)
    noise = np.random.default_rng(n).normal(size=n)
    return pd.Series(rush(index) + 0.1 * noise, index)


def error(found: Any, index: pd.Index) -> float:
    return float(np.abs(np.asarray(found).ravel() - rush(index)).mean())


@pytest.mark.parametrize(("zone", "change"), CHANGES)
def test_a_change_of_clocks_costs_nothing(zone: str, change: str) -> None:
    start = pd.Timestamp(change) - pd.Timedelta("12D")
    y = noisy(zone, start, 17 * DAY)
    ahead = y.index[11 * DAY :]
    forecaster = daily().fit(y[: 11 * DAY])
    assert error(forecaster.predict(fh=ahead), ahead) < 0.4
    relative = forecaster.predict(fh=range(1, 6 * DAY + 1))
    assert error(relative, relative.index) < 0.4
    seen = daily().fit(y).predict(fh=ahead)
    assert error(seen, ahead) < 0.3


def test_the_hour_that_comes_twice_is_the_same_hour_twice() -> None:
    y = noisy("Europe/Berlin", "2024-10-20", 12 * 96, "15min")
    ahead = y.index[6 * 96 :]
    found = daily().fit(y[: 6 * 96]).predict(fh=ahead)
    assert error(found, ahead) < 0.4
    twice = pd.date_range("2024-10-27", periods=5, freq="h", tz="Europe/Berlin")[2:4]
    assert twice[0].hour == twice[1].hour
    first, second = found[twice]
    assert abs(first - second) < 0.2
