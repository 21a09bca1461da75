"""Weeks of the year: sharp weeks, such as school holidays, recur on the same weekdays.

Docs: docs/known.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import StructuralForecaster
from sklode.structural.effects.modulation import CalendarFeatures, Weeks
from tests.cases import mostly_slow

PART = "weeks of the year"
HOLIDAYS = 7, 8, 22, 44, 52
DAYS = pd.date_range("2019-01-07", "2022-04-30", tz="Europe/Paris")
CUT = 1120  # of days: the holidays of February follow
ASKED = slice(CUT, CUT + 28)


def is_holiday(index: Any) -> Any:
    stamps = index.start_time if isinstance(index, pd.PeriodIndex) else index
    return np.isin(stamps.isocalendar().week, HOLIDAYS)


def park(index: Any, seed: int, rise: float = 30.0) -> pd.Series:
    """Return visitors with a smooth year, a week, and holidays that are sharp."""
    rng, n = np.random.default_rng(seed), len(index)
    year = 20 * np.sin(2 * np.pi * np.arange(n) / 365.25)
    weekend = 10 * (index.dayofweek >= 5)
    noise = 4 * rng.normal(size=n)
    return pd.Series(200 + year + weekend + rise * is_holiday(index) + noise, index)


def parts(forecaster: Any) -> list[str]:
    return list(forecaster.components_.index.get_level_values("part").unique())


def test_each_week_has_a_value_and_a_last_one_lies_between_its_neighbours() -> None:
    week = np.array([1, 30, 52, 53, 0])
    nothing = np.zeros(5)
    named = np.zeros((5, 0, 0))
    rows = CalendarFeatures(nothing, nothing, nothing, week, named, np.zeros((5, 7)))
    expected = np.zeros((5, 52))
    expected[0, 0] = expected[1, 29] = expected[2, 51] = 3.0
    expected[3, [0, 51]] = 1.5
    found = Weeks().times(np.ones((5, 1)), rows, size=3.0)
    np.testing.assert_array_equal(found, expected)
    assert Weeks().n_columns == 52


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["zone", "periods", "gaps"])
def test_sharp_weeks_of_years_before_are_forecast(kind: str) -> None:
    index: Any = DAYS
    if kind == "periods":
        index = DAYS.tz_localize(None).to_period("D")
    y = park(index, seed=0)
    past = y[:CUT].copy()
    if kind == "gaps":
        past[np.random.default_rng(1).uniform(size=CUT) < 0.2] = np.nan
    forecaster = StructuralForecaster(random_state=0).fit(past)
    found = forecaster.predict(fh=index[ASKED])
    assert is_holiday(index[ASKED]).sum() == 14
    # noise alone has 3.2; a smooth year misses the two weeks by most of 30
    assert np.abs(found - y[ASKED]).mean() < 5.5
    assert PART in parts(forecaster)
    plain = StructuralForecaster(seasons=["7D", "365.25D"], random_state=0).fit(past)
    assert PART not in parts(plain)


@pytest.mark.slow
def test_weeks_go_on_after_an_update_and_in_a_file(tmp_path: Path) -> None:
    y = park(DAYS, seed=2)
    forecaster = StructuralForecaster(random_state=0).fit(y[: CUT - 20])
    assert PART in parts(forecaster)
    forecaster.update(y[CUT - 20 : CUT], update_params=False)
    found = forecaster.predict(fh=DAYS[ASKED])
    assert np.abs(found - y[ASKED]).mean() < 5.5
    forecaster.save(tmp_path / "park")
    again = StructuralForecaster.load_from_path(tmp_path / "park.zip")
    pd.testing.assert_series_equal(again.predict(fh=DAYS[ASKED]), found)


NOTHING = {
    "a smooth year": park(DAYS[:CUT], seed=3, rise=0.0),
    "noise": pd.Series(np.random.default_rng(4).normal(size=CUT), DAYS[:CUT]),
    "one year": park(DAYS[:390], seed=5),
    "a year and a half": pd.Series(
        np.cumsum(np.random.default_rng(6).normal(size=550)), DAYS[:550]
    ),
    "no dates": park(DAYS[:CUT], seed=0).reset_index(drop=True),
}


@pytest.mark.parametrize("kind", mostly_slow(NOTHING, "a smooth year", "noise"))
def test_weeks_that_do_not_recur_are_none(kind: str) -> None:
    forecaster = StructuralForecaster(random_state=0).fit(NOTHING[kind])
    assert PART not in parts(forecaster)


def test_errors_that_series_have_in_common_are_no_weeks() -> None:
    weeks = pd.date_range("2020-01-06", periods=104, freq="W-MON")
    rng = np.random.default_rng(8)
    common = 5 * rng.normal(size=len(weeks))
    series = [100 + common + rng.normal(size=len(weeks)) for _ in range(8)]
    y = (
        pd.DataFrame(np.transpose(series), weeks)
        .T.stack()
        .rename_axis(["shop", "week"])
    )
    forecaster = StructuralForecaster(random_state=0).fit(y.to_frame("y"))
    assert PART not in parts(forecaster)


def test_a_lone_weekly_series_is_not_told_what_finer_harmonics_tell() -> None:
    weeks = pd.date_range("2010-01-04", periods=520, freq="W-MON")
    year = 2 * np.pi * np.arange(520) / (365.25 / 7)
    wave = sum(10 * np.cos(k * (year - 1.0)) for k in range(1, 13))
    noise = np.random.default_rng(9).normal(size=520)
    forecaster = StructuralForecaster(random_state=0)
    forecaster.fit(pd.Series(500 + wave + noise, weeks))
    assert PART not in parts(forecaster)


@pytest.mark.slow
def test_series_of_a_panel_share_weeks() -> None:
    weeks = pd.date_range("2020-01-06", periods=130, freq="W-MON")
    rng, pieces = np.random.default_rng(7), []
    for _ in range(5):
        noise = 8 * rng.normal(size=len(weeks))
        level = rng.uniform(80, 120)
        pieces.append(pd.Series(level + 24 * is_holiday(weeks) + noise, weeks))
    y = pd.concat(pieces, keys=[*"abcde"], names=["shop", "week"]).to_frame("y")
    stamps = y.index.get_level_values("week")
    past, ahead = y[stamps < weeks[104]], y[stamps >= weeks[104]]
    forecaster = StructuralForecaster(random_state=0).fit(past)
    assert PART in parts(forecaster)
    found = forecaster.predict_at(ahead.index)
    own = is_holiday(ahead.index.get_level_values("week"))
    rise = found[own].mean() - found[~own].mean()
    assert rise["y"] == pytest.approx(24, abs=6)
