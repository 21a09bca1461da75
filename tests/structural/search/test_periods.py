"""Which seasons are looked for: the clock's, and waves that stand out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import StructuralForecaster
from sklode.data.observations import Observations
from sklode.data.ticks import DAY
from sklode.structural.search.periods import calendar_periods, peaks
from tests.cases import mostly_slow
from tests.series import uneven_ticks, waves

YEAR = 365.2425
HOUR = DAY / 24


def clock(index: pd.Index) -> list[float]:
    rows = Observations.from_frame(waves(index).to_frame())
    gaps = np.diff(rows.ticks)
    unit = float(np.median(gaps))
    return calendar_periods(rows, unit, float(rows.ticks[-1] - rows.ticks[0]))


@pytest.mark.parametrize(
    ("index", "days"),
    [
        (pd.date_range("2020", periods=24 * 3, freq="h"), [1]),
        (pd.date_range("2020", periods=24 * 9, freq="h"), [1, 7]),
        (pd.date_range("2020", periods=24 * 500, freq="h"), [1, 7, YEAR]),
        (pd.date_range("2020", periods=24, freq="h"), []),
        (pd.date_range("2020", periods=27, freq="h"), []),
        (pd.date_range("2020", periods=28, freq="h"), [1]),  # 1.1 days
        (pd.date_range("2020", periods=32, freq="6h"), [1, 7]),
        (pd.date_range("2020", periods=30, freq="8h"), [7]),  # three stamps a day
        (pd.date_range("2020", periods=500), [7, YEAR]),
        (pd.date_range("2020", periods=60), [7]),
        (pd.date_range("2020", periods=40, freq="MS"), [YEAR]),
        (pd.date_range("2020", periods=40, freq="QS"), [YEAR]),
        (pd.date_range("2000", periods=40, freq="YS"), []),
        (pd.date_range("2020", periods=500, tz="Europe/Berlin"), [7, YEAR]),
        (pd.date_range("2020", periods=60).as_unit("s"), [7]),
    ],
    ids=lambda x: f"{len(x)} {x.freqstr}" if isinstance(x, pd.Index) else "",
)
def test_datetimes_have_the_seasons_of_the_clock(
    index: pd.Index, days: list[float]
) -> None:
    np.testing.assert_allclose(clock(index), np.array(days) * DAY)


@pytest.mark.parametrize(
    ("freq", "n", "steps"),
    [
        ("h", 24 * 9, [24, 168]),
        ("D", 500, [7, YEAR]),
        ("M", 40, [12]),
        ("Q", 40, [4]),
        ("W", 200, [YEAR / 7]),
        ("Y", 40, []),
    ],
)
def test_periods_have_whole_numbers_of_steps(
    freq: str, n: int, steps: list[float]
) -> None:
    found = clock(pd.period_range("2001-01", periods=n, freq=freq))
    np.testing.assert_allclose(found, steps, rtol=1e-4)
    assert [p == round(p) for p in found] == [s == round(s) for s in steps]


@pytest.mark.parametrize(
    "index", [pd.RangeIndex(2000), pd.to_timedelta(np.arange(500), unit="h")], ids=type
)
def test_what_is_no_calendar_has_no_clock(index: pd.Index) -> None:
    assert clock(index) == []


# Waves that stand out


def stamps(n: int, seed: int) -> Any:
    ticks = uneven_ticks(n, seed, unit=1) / 4.5
    return ticks - ticks[0]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("shape", ["sine", "teeth", "trend", "spikes"])
def test_a_wave_is_found_at_irregular_stamps(shape: str, seed: int) -> None:
    times, period = stamps(300, seed), 13.37
    values = np.sin(2 * np.pi * times / period)
    rng = np.random.default_rng(seed)
    if shape == "teeth":
        values = times % period / period
    elif shape == "trend":
        values = values + 0.1 * times
    elif shape == "spikes":
        values[rng.integers(0, 300, 4)] = -999
    values = values + 0.2 * rng.standard_normal(300)
    found = peaks(times, values, np.zeros(len(times)), 1.0)
    assert found[0] == pytest.approx(period, rel=5e-3)


def test_no_wave_is_found_in_noise() -> None:
    n_found, rng = {"noise": 0, "line": 0}, np.random.default_rng(0)
    for seed in range(40):
        n = (30, 60, 100, 200)[seed % 4]
        times = stamps(n, seed) if seed % 2 else np.arange(1.0 * n)
        white = rng.standard_normal(n)
        series = {"noise": white, "line": times + white}
        for name, values in series.items():
            n_found[name] += len(peaks(times, values, np.zeros(len(times)), 1.0))
    assert max(n_found.values()) <= 1, n_found


@pytest.mark.parametrize(("hours", "named"), [(24.84, "1.035 d"), (24.0, "1 d")])
def test_many_cycles_tell_a_tide_from_a_day(hours: float, named: str) -> None:
    t = np.arange(300)
    values = np.sin(2 * np.pi * t / hours)
    values += 0.1 * np.random.default_rng(0).normal(size=300)
    y = pd.Series(values, pd.date_range("2024-01-01", periods=300, freq="h"))
    forecaster = StructuralForecaster().fit(y)
    assert f"season of {named}" in forecaster.components_.index.get_level_values("part")
    ahead = np.arange(300, 372)
    truth = np.sin(2 * np.pi * ahead / hours)
    assert np.abs(forecaster.predict(list(range(1, 73))) - truth).mean() < 0.08


@pytest.mark.parametrize(
    "lengths", mostly_slow([(56.55,), (56.55, 25.76), (144.5, 18.8)])
)
def test_clean_waves_are_found_near_a_clocks_and_near_each_other(
    lengths: tuple[float, ...],
) -> None:
    # a third of a week has 56 hours, a day 24
    hours = np.arange(648)
    waves = [np.sin(2 * np.pi * hours / p) / (k + 1) for k, p in enumerate(lengths)]
    y = pd.Series(sum(waves), pd.date_range("2025-01-01", periods=648, freq="h"))
    forecaster = StructuralForecaster().fit(y[:600])
    missed = (forecaster.predict(y.index[600:]) - y[600:]).abs()
    assert missed.mean() < 0.01
    low, high = forecaster.predict_interval(y.index[600:], coverage=0.9).to_numpy().T
    assert ((low <= y[600:]) & (y[600:] <= high)).mean() > 0.8
