"""Whether y's logarithm is taken is judged some rows ahead too, in y's units."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from sklode import StructuralForecaster

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


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("memory", [6.0, 36.0])
def test_nights_alone_take_no_logarithm(seed: int, memory: float) -> None:
    y = riders(seed, memory)
    past, ahead = y[:N], y[N:]
    forecaster = StructuralForecaster(random_state=0).fit(past)
    assert not of_logarithm(forecaster)
    highest = forecaster.predict_interval(fh=ahead.index, coverage=0.9).max().max()
    assert highest < 1.2 * past.max()
    named = StructuralForecaster(logarithm=True, random_state=0).fit(past)
    of_named = named.predict_interval(fh=ahead.index, coverage=0.9).max().max()
    assert of_named > 4 * past.max()


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
