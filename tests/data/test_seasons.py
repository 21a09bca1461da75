"""Lengths of seasons become ticks of an index, and what is none is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode.data.clock import season_ticks
from sklode.data.history import History
from tests.series import panel, waves

DAY = 86_400e9
YEAR = 365.25 * DAY


def history(index: pd.Index, freq: Any = None) -> History:
    return History.of(waves(index).to_frame(), None, freq)


def ticks_of(seasons: list[Any], known: History) -> tuple[float, ...]:
    return season_ticks(seasons, known.rows.like, known.steps)


HOURS = pd.date_range("2020-01-01", periods=48, freq="h")


@pytest.mark.parametrize(
    "season",
    [
        "1D",
        "24h",
        "D",
        pd.Timedelta(days=1),
        timedelta(days=1),
        np.timedelta64(24, "h"),
        pd.offsets.Day(),
        pd.DateOffset(days=1),
        24,
        24.0,
        np.int64(24),
    ],
)
@pytest.mark.parametrize("index", [HOURS, HOURS - HOURS[0], HOURS.tz_localize("UTC")])
def test_a_day_has_many_names(index: pd.Index, season: Any) -> None:
    assert ticks_of([season], history(index)) == pytest.approx((DAY,))


@pytest.mark.parametrize("season", ["YE", "YS-JUL", pd.DateOffset(years=1), "365.25D"])
def test_a_calendar_year_has_its_mean_length(season: Any) -> None:
    (ticks,) = ticks_of([season], history(HOURS))
    assert ticks == pytest.approx(YEAR, rel=1e-4)


@pytest.mark.parametrize(("freq", "ticks"), [("M", 12), ("Q", 4), ("D", 365.25)])
def test_ticks_of_periods_are_periods(freq: str, ticks: float) -> None:
    index = pd.period_range("2020-01", periods=24, freq=freq)
    year = ticks_of([pd.DateOffset(years=1)], history(index))
    assert year == pytest.approx((ticks,), rel=1e-3)
    assert ticks_of([7], history(index)) == (7.0,)


def test_periods_of_a_multiple_count_single_ones() -> None:
    index = pd.period_range("2020-01", periods=24, freq="2M")
    known = history(index)
    assert ticks_of([6], known) == (12.0,)
    assert ticks_of(["YE"], known) == pytest.approx((12,), rel=1e-3)


def test_integers_have_steps_only() -> None:
    known = history(pd.Index([0, 3, 4, 9]))
    assert ticks_of([12, 3.5], known) == (12.0, 3.5)
    with pytest.raises(TypeError, match=r"integers must be numbers; got '1D'\. Use"):
        ticks_of(["1D"], known)


def test_steps_of_different_lengths_are_refused() -> None:
    known = History.of(panel(), None)
    with pytest.raises(
        ValueError, match=r"one length of a step; got \d lengths\. Pass"
    ):
        ticks_of([4], known)
    assert ticks_of(["1h"], known) == (3600e9,)
    assert ticks_of([4], History.of(panel(), None, "15min")) == (3600e9,)


def test_one_season_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"got '1D' and 24\. Leave one"):
        ticks_of(["1D", 24], history(HOURS))


@pytest.mark.parametrize(
    ("season", "error"),
    [
        (True, TypeError),
        (None, TypeError),
        ([7], TypeError),
        ("fortnightish", ValueError),
        ("12", ValueError),
        ("-1D", ValueError),
        (0, ValueError),
        (-12, ValueError),
        (float("nan"), ValueError),
        (float("inf"), ValueError),
        (pd.Timedelta(0), ValueError),
    ],
)
def test_what_is_no_length_is_refused(season: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"seasons must .*; got .*\. Use for example"):
        ticks_of(["1D", season], history(HOURS))
