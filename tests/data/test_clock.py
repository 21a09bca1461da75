"""The user's clock: waves of the calendar, and lengths of seasons as ticks."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import StructuralForecaster, calendar_features
from sklode.data.clock import season_ticks, seasons_shown
from sklode.data.history import History
from tests.series import panel
from tests.series import waves as wave_over

NEW_YORK = "America/New_York"
HAS_FAR_STAMPS = int(pd.__version__.split(".")[0]) >= 3  # others count nanoseconds
MID_YEAR = "4000-07-02" if HAS_FAR_STAMPS else "2096-07-02"


def shares(stamps: Any, period: str) -> list[float]:
    """Return the share of the period that is over, in [0, 1), of each stamp."""
    index = stamps if isinstance(stamps, pd.Index) else pd.DatetimeIndex(stamps)
    waves = calendar_features(index, period, harmonics=1).to_numpy()
    return (np.arctan2(waves[:, 0], waves[:, 1]) / (2 * np.pi) % 1).tolist()


def close(values: Any) -> Any:
    return pytest.approx(values, abs=1e-12)


MONDAYS_ON = pd.date_range("2026-11-16", periods=7)
KNOWN: dict[str, tuple[str, Any, Any]] = {
    # a quarter of 365 days is 91.25 days, of 366 it is 91.5
    "a year": ("year", ["2026-01-01", "2026-04-02 06:00"], [0, 0.25]),
    "a leap year": ("year", ["2024-04-01 12:00", "2024-12-31"], [0.25, 365 / 366]),
    "months": ("month", ["2026-02-15", "2024-02-15 12:00", "1969-11-16"], [0.5] * 3),
    "a week from Monday": ("week", MONDAYS_ON, np.arange(7) / 7),
    "a day": ("day", ["2026-03-03 06:00", "2026-03-03 21:00"], [0.25, 0.875]),
    "far from 1970": (
        "year",
        pd.DatetimeIndex(np.array(["0004-07-02", "4000-07-02"], "datetime64[s]")),
        [0.5, 0.5],
    ),
    "a period": ("year", pd.PeriodIndex([MID_YEAR], freq="D"), [0.5]),
}


@pytest.mark.parametrize("case", KNOWN)
def test_the_share_of_a_period_that_is_over_is_known(case: str) -> None:
    period, stamps, expected = KNOWN[case]
    assert shares(stamps, period) == close(list(expected))


def test_sines_and_cosines_stand_under_their_names() -> None:
    index = pd.DatetimeIndex(["2026-04-02 06:00"])
    X = calendar_features(index, ["year"], harmonics=3)
    assert X.iloc[0].to_dict() == close(
        {
            "year sin 1": 1.0,
            "year cos 1": 0.0,
            "year sin 2": 0.0,
            "year cos 2": -1.0,
            "year sin 3": -1.0,
            "year cos 3": 0.0,
        }
    )


@pytest.mark.parametrize("day", ["2026-03-08", "2026-11-01", "2026-06-01"])
def test_day_and_week_follow_the_clock_where_it_is_changed(day: str) -> None:
    # 23 hours, 25 hours and 24 hours long, all three from midnight to midnight
    hours = ["00:00", "06:00", "12:00", "18:00"]
    stamps = pd.DatetimeIndex([f"{day} {hour}" for hour in hours])
    local = stamps.tz_localize(NEW_YORK)
    assert shares(local, "day") == close([0, 0.25, 0.5, 0.75])
    assert shares(local, "week") == close(shares(stamps, "week"))
    assert shares(local, "year") == close(shares(stamps, "year"))
    assert shares(local.tz_convert("UTC"), "day") != close([0, 0.25, 0.5, 0.75])


def test_the_index_is_that_which_was_given_in_its_order() -> None:
    days = pd.DatetimeIndex(["2026-04-02 06:00", "2026-01-01", "2026-04-02 06:00"])
    index = pd.MultiIndex.from_product([["a", "b"], days], names=["series", "when"])
    X = calendar_features(index, "year", harmonics=1)
    pd.testing.assert_index_equal(X.index, index)
    np.testing.assert_allclose(X["year sin 1"], [1, 0, 1, 1, 0, 1], atol=1e-12)
    none = calendar_features(days[:0])
    assert none.shape == (0, 12)
    assert (none.dtypes == np.float64).all()


DATES = pd.date_range("2026-01-01", periods=4)
BAD: dict[str, tuple[Any, dict[str, Any], str]] = {
    "integers": (pd.Index([1, 4]), {}, r"got Index of int64\. Pass data\.index"),
    "a first level": (
        pd.MultiIndex.from_product([DATES, [0, 1]]),
        {},
        r"in its last level; got Index of int64",
    ),
    "NaT": (DATES.insert(2, pd.NaT), {}, r"finite times; got NaT at row 2"),
    "a number": (DATES, {"periods": 12}, r"must be one of \['year', .*; got 12\."),
    "none": (DATES, {"periods": []}, r"at least one, and none twice; got \[\]\. Use"),
    "twice": (DATES, {"periods": ["day"] * 2}, r"none twice; got \['day', 'day'\]"),
    "no harmonics": (DATES, {"harmonics": 0}, r"harmonics must be .* got 0"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_calendar_is_refused(case: str) -> None:
    index, settings, message = BAD[case]
    with pytest.raises((TypeError, ValueError), match=message):
        calendar_features(index, **settings)


DAY = 86_400e9
YEAR = 365.25 * DAY


def history(index: pd.Index, freq: Any = None) -> History:
    return History.of(wave_over(index).to_frame(), None, freq)


def ticks_of(seasons: list[Any], known: History) -> tuple[float, ...]:
    return season_ticks(seasons, known.rows.like, known.steps)


HOURS = pd.date_range("2020-01-01", periods=48, freq="h")


A_DAY = ["1D", "24h", pd.Timedelta(days=1), timedelta(days=1), np.timedelta64(24, "h")]
A_DAY += [pd.offsets.Day(), pd.DateOffset(days=1), 24, 24.0, np.int64(24)]


@pytest.mark.parametrize("index", [HOURS, HOURS - HOURS[0], HOURS.tz_localize("UTC")])
def test_a_day_has_many_names(index: pd.Index) -> None:
    for season in A_DAY:
        assert ticks_of([season], history(index)) == pytest.approx((DAY,))


@pytest.mark.parametrize("season", ["YE", "YS-JUL", pd.DateOffset(years=1), "365.25D"])
def test_a_calendar_year_has_its_mean_length(season: Any) -> None:
    (ticks,) = ticks_of([season], history(HOURS))
    assert ticks == pytest.approx(YEAR, rel=1e-4)


@pytest.mark.parametrize("season", ["ME", "MS", pd.DateOffset(months=1)])
def test_a_month_has_its_mean_length(season: Any) -> None:
    (ticks,) = ticks_of([season], history(HOURS))
    assert ticks == pytest.approx(YEAR / 12)


@pytest.mark.parametrize(("freq", "ticks"), [("M", 12), ("2M", 12), ("D", 365.25)])
def test_ticks_of_periods_are_periods(freq: str, ticks: float) -> None:
    index = pd.period_range("2020-01", periods=24, freq=freq)
    year = ticks_of([pd.DateOffset(years=1)], history(index))
    assert year == pytest.approx((ticks,), rel=1e-3)
    assert ticks_of([7], history(index)) == (14.0 if freq == "2M" else 7.0,)


def test_integers_have_steps_only() -> None:
    known = history(pd.Index([0, 3, 4, 9]))
    assert ticks_of([12, 3.5], known) == (12.0, 3.5)
    with pytest.raises(ValueError, match=r"on an index of integers; got '1D' in"):
        ticks_of(["1D"], known)


def test_steps_of_different_lengths_are_refused() -> None:
    known = History.of(panel(), None)
    with pytest.raises(
        ValueError, match=r"one length of a step; got 4 for \d lengths\. Pass"
    ):
        ticks_of([4], known)
    assert ticks_of(["1h"], known) == (3600e9,)
    assert ticks_of([4], History.of(panel(), None, "15min")) == (3600e9,)


def test_one_season_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"different .*; got 24 in \['1D', 24\]\. Use"):
        ticks_of(["1D", 24], history(HOURS))


NO_LENGTHS = [True, None, [7], "fortnightish", "12", "-1D", 0, float("nan"), np.inf]


@pytest.mark.parametrize("season", NO_LENGTHS, ids=str)
def test_what_is_no_length_is_refused(season: Any) -> None:
    with pytest.raises(
        ValueError, match=r"seasons .* above zero, on .*; got .*\. Use for ex"
    ):
        ticks_of(["1D", season], history(HOURS))


def shown(seasons: list[Any], index: pd.Index) -> tuple[float, ...]:
    known = history(index)
    return seasons_shown(seasons, ticks_of(seasons, known), known.observations)


YEARS = pd.date_range("2020", periods=800)
UNEVEN = pd.Timestamp("2020") + pd.to_timedelta(np.cumsum(1 + np.arange(50) % 7), "h")


@pytest.mark.parametrize(
    ("seasons", "index"),
    [
        (["2D", "7D", "YE"], YEARS),
        ([12, "2ME", "QE"], pd.period_range("2020-01", periods=24, freq="M")),
        ([12, "QE"], pd.date_range("2020-01-31", periods=24, freq="ME")),
        (["ME"], pd.date_range("2020", periods=60, freq="W")),
        (["1D"], HOURS.tz_localize(NEW_YORK)[:24]),
        (["2h"], UNEVEN),  # one gap in seven is of an hour
    ],
)
def test_seasons_that_rows_can_show_are_kept(seasons: Any, index: pd.Index) -> None:
    assert shown(seasons, index) == ticks_of(seasons, history(index))


@pytest.mark.parametrize(
    ("season", "index", "got"),
    [
        ("1D", YEARS, "1 d apart; got '1D', 1 d"),
        ("36h", YEARS, "1 d apart; got '36h', 1.5 d"),
        ("ME", pd.period_range("2020-01", periods=24, freq="M"), "got 'ME', 1 periods"),
        (1, pd.RangeIndex(50), "1 apart; got 1, 1"),
    ],
)
def test_a_season_finer_than_two_rows_is_refused(
    season: Any, index: pd.Index, got: str
) -> None:
    y = wave_over(index)
    with pytest.raises(ValueError, match=rf"at least two rows.* {got}\. Leave it out"):
        StructuralForecaster(seasons=[season]).fit(y)


def test_a_season_longer_than_the_rows_is_left_out_with_a_warning() -> None:
    told = r"at least its own length; got '7D', 7 d, and rows over 2 d\. It is left out"
    with pytest.warns(UserWarning, match=told):
        assert shown(["1D", "7D"], HOURS) == (DAY,)
    with pytest.warns(UserWarning, match=told):
        fitted = StructuralForecaster(seasons=["7D"]).fit(wave_over(HOURS))
    assert (
        not fitted.components_.index.get_level_values("part")
        .str.contains("season")
        .any()
    )


@pytest.mark.parametrize(("season", "length"), [("ME", "30.44 d"), ("QE", "91.31 d")])
def test_a_season_whose_length_differs_is_kept_with_a_warning(
    season: str, length: str
) -> None:
    told = rf"those of '{season}' differ. It repeats after their mean, {length}, from"
    with pytest.warns(UserWarning, match=told):
        assert len(shown([season], YEARS)) == 1
