"""The calendar's waves have known values at known stamps."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sklode import LatentODELSTMForecaster, calendar_features
from sklode.data.datasets import load_climate
from tests.test_datasets import SHARED, needs_data

NEW_YORK = "America/New_York"


def shares(stamps: Any, period: Any, **kwargs: Any) -> list[float]:
    """Return the share of the period that is over, in [0, 1), of each stamp."""
    index = stamps if isinstance(stamps, pd.Index) else pd.DatetimeIndex(stamps)
    waves = calendar_features(index, period, harmonics=1, **kwargs).to_numpy()
    return (np.arctan2(waves[:, 0], waves[:, 1]) / (2 * np.pi) % 1).tolist()


def close(values: Any) -> Any:
    return pytest.approx(values, abs=1e-12)


def test_a_year_is_as_long_as_that_year() -> None:
    # a quarter of 365 days is 91.25 days, of 366 it is 91.5
    quarters = ["2026-01-01", "2026-04-02 06:00", "2026-07-02 12:00"]
    assert shares(quarters, "year") == close([0, 0.25, 0.5])
    assert shares(["2024-04-01 12:00", "2024-07-02"], "year") == close([0.25, 0.5])
    assert shares(["1900-07-02 12:00", "2000-07-02"], "year") == close([0.5, 0.5])
    (end,) = shares(["2024-12-31"], "year")
    assert end == close(365 / 366)


def test_sines_and_cosines_stand_under_their_names() -> None:
    X = calendar_features(pd.DatetimeIndex(["2026-04-02 06:00"]), "year", harmonics=3)
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


def test_a_week_begins_on_monday() -> None:
    days = pd.date_range("2026-11-16", periods=8)  # a Monday
    assert days[0].day_name() == "Monday"
    assert shares(days, "week") == close([*(np.arange(7) / 7), 0.0])
    before = pd.date_range("1969-12-22", periods=7, freq="D")
    assert before[0].day_name() == "Monday"
    assert shares(before, "week") == close(np.arange(7) / 7)


def test_a_day_is_over_at_midnight() -> None:
    clock = ["2026-03-03", "2026-03-03 06:00", "2026-03-03 12:00", "2026-03-03 21:00"]
    assert shares(clock, "day") == close([0, 0.25, 0.5, 0.875])
    assert shares(["1960-03-03 06:00"], "day") == close([0.25])


def test_a_month_is_as_long_as_that_month() -> None:
    stamps = ["2026-02-15", "2024-02-15 12:00", "2026-12-16 12:00", "1969-11-16"]
    assert shares(stamps, "month") == close([0.5, 0.5, 0.5, 0.5])


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_every_unit_of_an_index_gives_the_same(unit: str) -> None:
    stamps = pd.DatetimeIndex(["2026-04-02 06:00", "1955-08-03 18:00"])
    expected = calendar_features(stamps.as_unit("ns"), ["year", "week", "day"])
    found = calendar_features(stamps.as_unit(unit), ["year", "week", "day"])
    np.testing.assert_array_equal(found, expected)
    fixed = shares(stamps.as_unit(unit), pd.Timedelta("8h"))
    assert fixed == close([0.75, 0.25])


def test_a_nanosecond_is_seen() -> None:
    start = pd.Timestamp("2026-03-03 12:00").as_unit("ns")
    stamps = pd.DatetimeIndex([start, start + pd.Timedelta(1, unit="ns")])
    length = pd.Timedelta(4, unit="ns")
    assert shares(stamps, length) == close([0.0, 0.25])


def test_stamps_beyond_the_reach_of_nanoseconds_are_read() -> None:
    stamps = pd.DatetimeIndex(["0004-07-02", "4000-07-02"]).as_unit("s")
    assert shares(stamps, "year") == close([0.5, 0.5])
    far = pd.DatetimeIndex(["4000-07-02 12:00"]).as_unit("s")
    days = date(4000, 7, 2).toordinal() - date(1970, 1, 1).toordinal()
    assert shares(far, pd.Timedelta("7D")) == close([(days % 7 + 0.5) / 7])


@pytest.mark.parametrize("day", ["2026-03-08", "2026-11-01", "2026-06-01"])
def test_day_and_week_follow_the_clock_where_it_is_changed(day: str) -> None:
    # 23 hours, 25 hours and 24 hours long, all three from midnight to midnight
    hours = ["00:00", "06:00", "12:00", "18:00"]
    stamps = pd.DatetimeIndex([f"{day} {hour}" for hour in hours])
    local = stamps.tz_localize(NEW_YORK)
    assert shares(local, "day") == close([0, 0.25, 0.5, 0.75])
    assert shares(local, "week") == close(shares(stamps, "week"))
    assert shares(local, "year") == close(shares(stamps, "year"))
    elsewhere = local.tz_convert("UTC")
    assert shares(elsewhere, "day") != close([0, 0.25, 0.5, 0.75])


def test_a_fixed_length_counts_time_that_has_passed() -> None:
    # between the noons around the change of the clock lie 23 hours
    noons = pd.DatetimeIndex(["2026-03-07 12:00", "2026-03-08 12:00"])
    local = noons.tz_localize(NEW_YORK)
    one, other = shares(local, pd.Timedelta("24h"))
    assert (other - one) % 1 == close(23 / 24)
    assert shares(local, pd.Timedelta("24h")) == close(
        shares(local.tz_convert("UTC"), pd.Timedelta("24h"))
    )
    assert shares(noons, pd.Timedelta("24h")) == close([0.5, 0.5])
    assert shares(["1970-01-01 00:00", "1969-12-31 23:00"], pd.Timedelta("4h")) == (
        close([0.0, 0.75])
    )


@pytest.mark.parametrize(
    ("length", "name"),
    [
        (pd.Timedelta("12h"), "12h"),
        (timedelta(hours=12), "12h"),
        (np.timedelta64(12, "h"), "12h"),
        (pd.offsets.Hour(12), "12h"),
        (pd.Timedelta("12h25min"), "745min"),
        (pd.Timedelta("96h"), "4D"),
        (pd.Timedelta("1.5s"), "1500ms"),
        (pd.Timedelta(7, unit="ns"), "7ns"),
    ],
)
def test_any_length_of_time_is_a_period(length: Any, name: str) -> None:
    X = calendar_features(pd.DatetimeIndex(["2026-03-03 15:00"]), length, harmonics=1)
    assert list(X.columns) == [f"{name} sin 1", f"{name} cos 1"]
    if name == "12h":
        assert X.to_numpy()[0].tolist() == close([1.0, 0.0])


def test_periods_of_an_index_count_from_their_start() -> None:
    months = pd.period_range("2026-01", periods=12, freq="M")
    pd.testing.assert_frame_equal(
        calendar_features(months),
        calendar_features(months.to_timestamp()).set_axis(months),
    )
    far = pd.PeriodIndex(["4000-07-02", "0004-07-02"], freq="D")
    assert shares(far, "year") == close([0.5, 0.5])
    weeks = pd.period_range("2026-11-16", periods=3, freq="W-SUN")
    assert shares(weeks, "week") == close([0.0, 0.0, 0.0])


def test_a_panel_is_read_at_the_times_of_its_last_level() -> None:
    days = pd.DatetimeIndex(["2026-04-02 06:00", "2026-01-01"])
    index = pd.MultiIndex.from_product([["a", "b"], days], names=["series", "when"])
    X = calendar_features(index, "year", harmonics=1)
    pd.testing.assert_index_equal(X.index, index)
    np.testing.assert_allclose(X["year sin 1"], [1, 0, 1, 0], atol=1e-12)


def test_the_index_is_that_which_was_given_in_its_order() -> None:
    index = pd.DatetimeIndex(
        ["2026-04-02 06:00", "2026-01-01", "2026-04-02 06:00"], name="when"
    )
    X = calendar_features(index, ["year", "week"])
    pd.testing.assert_index_equal(X.index, index)
    assert (X.dtypes == np.float64).all()
    np.testing.assert_array_equal(X.iloc[0], X.iloc[2])


def test_no_stamps_give_no_rows_under_the_same_columns() -> None:
    some = calendar_features(pd.DatetimeIndex(["2026-01-01"]))
    none = calendar_features(pd.DatetimeIndex([]))
    assert none.shape == (0, 12)
    assert (none.dtypes == np.float64).all()
    pd.testing.assert_index_equal(none.columns, some.columns)


def test_harmonics_may_differ_by_period() -> None:
    index = pd.DatetimeIndex(["2026-01-01"])
    tide = pd.Timedelta("12h")
    counts: dict[Any, Any] = {tide: 1, "year": np.int64(2)}
    X = calendar_features(index, ["year", tide], counts)
    assert list(X.columns) == [
        *["year sin 1", "year cos 1", "year sin 2", "year cos 2"],
        *["12h sin 1", "12h cos 1"],
    ]


@given(
    st.datetimes(min_value=pd.Timestamp("1700-01-01").to_pydatetime()),
    st.sampled_from(["year", "month", "week", "day", pd.Timedelta("7h")]),
    st.integers(1, 50),
)
def test_harmonics_are_those_of_one_angle(when: Any, period: Any, k: int) -> None:
    X = calendar_features(pd.DatetimeIndex([when]), period, harmonics=k)
    row = X.iloc[0].to_numpy()
    first = complex(row[1], row[0])
    assert complex(row[-1], row[-2]) == pytest.approx(first**k, abs=1e-12)


DATES = pd.date_range("2026-01-01", periods=4)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (pd.RangeIndex(3), r"got RangeIndex of int64\. Numbers have no calendar"),
        (pd.Index([1, 4, 6]), r"got Index of int64\. Numbers have no calendar"),
        (pd.to_timedelta([1, 2], unit="h"), r"got TimedeltaIndex .* Add the date"),
        (pd.Index(["2026-01-01"]), r"got Index .* Pass the dates.*to_datetime"),
        (pd.Series(1.0, DATES), r"got Series\. Pass its index, data\.index"),
        (pd.DataFrame({"y": 1.0}, DATES), r"got DataFrame\. Pass its index"),
        (list(DATES), r"got list\. Pass the dates"),
        (
            pd.MultiIndex.from_product([DATES, [0, 1]]),
            r"last level; got Index of int64\. Numbers have no calendar",
        ),
    ],
)
def test_an_index_without_dates_is_refused(index: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        calendar_features(index)


@pytest.mark.parametrize("of_periods", [False, True])
def test_a_stamp_that_is_missing_is_refused(of_periods: bool) -> None:
    index = pd.DatetimeIndex([*DATES[:2], pd.NaT])
    given = index.to_period("D") if of_periods else index
    with pytest.raises(ValueError, match="must hold finite times; got NaT at row 2"):
        calendar_features(given)


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"periods": "hour"}, ValueError, r"'day', or a length.* got 'hour'\. Write"),
        ({"periods": ["year", "12h"]}, ValueError, r"got '12h'\. Write a length as"),
        ({"periods": [12]}, TypeError, r"fixed length of time; got 12\. Write"),
        ({"periods": 12}, TypeError, r"fixed length of time; got 12\. Write"),
        (
            {"periods": pd.offsets.MonthEnd()},
            TypeError,
            r"fixed length of time; got <MonthEnd>",
        ),
        ({"periods": pd.NaT}, TypeError, r"fixed length of time; got NaT"),
        ({"periods": pd.Timedelta(0)}, ValueError, r"longer than no time; got Timed"),
        ({"periods": []}, ValueError, r"name at least one; got none\. Use"),
        ({"periods": ["year", "year"]}, ValueError, r"must differ; got 'year' twice"),
        (
            {"periods": [pd.Timedelta("1D"), pd.Timedelta("24h")]},
            ValueError,
            r"must differ; got '1D' twice",
        ),
        ({"harmonics": 0}, ValueError, r"at least 1; got 0 for 'year'\. Leave"),
        ({"harmonics": 1.5}, TypeError, r"whole number; got 1\.5 for 'year'\. Use"),
        ({"harmonics": True}, TypeError, r"whole number; got True for 'year'"),
        (
            {"harmonics": {"year": 2}},
            ValueError,
            r"every period and for no other; got \['year'\] for \['year', 'week', 'da",
        ),
        (
            {"periods": "year", "harmonics": {"year": 2, "day": 1}},
            ValueError,
            r"got \['year', 'day'\] for \['year'\]\. Make them agree",
        ),
        (
            {"periods": "year", "harmonics": {"year": -1}},
            ValueError,
            r"at least 1; got -1 for 'year'",
        ),
    ],
)
def test_periods_and_harmonics_are_checked(
    kwargs: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        calendar_features(DATES, **kwargs)


WINDOW: dict[str, Any] = {
    "window_length": 30,
    "horizon": 30,
    "normalize": "series",
    "max_epochs": 10,
}


def yearly_waves() -> tuple[pd.Series, pd.Series]:
    """Return half the days of four years of a noisy season, and the season."""
    rng = np.random.default_rng(0)
    days = pd.date_range("2018-01-01", "2021-12-31")
    stamps = days[rng.random(len(days)) < 0.5]
    phase = 2 * np.pi * (stamps.dayofyear.to_numpy() - 1) / 365.25
    season = np.sin(phase) + 0.4 * np.cos(2 * phase)
    noise = 0.3 * rng.standard_normal(len(stamps))
    return pd.Series(season + noise, stamps), pd.Series(season, stamps)


def far_forecast(
    train: Any, stamps: pd.DatetimeIndex, with_calendar: bool, seed: int = 0
) -> Any:
    """Forecast a year from a window of 30 observations."""
    forecaster = LatentODELSTMForecaster(**WINDOW, random_state=seed)
    if not with_calendar:
        return forecaster.fit(train).predict(stamps)
    forecaster.fit(train, X=calendar_features(train.index, "year"))
    return forecaster.predict(stamps, X=calendar_features(stamps, "year"))


@pytest.mark.slow
def test_a_season_longer_than_the_window_is_learned_from_the_calendar() -> None:
    y, season = yearly_waves()
    train, test = y[:"2020"], y["2021":]
    with_calendar = far_forecast(train, test.index, with_calendar=True)
    without = far_forecast(train, test.index, with_calendar=False)
    error, blind = (((f - test) ** 2).mean() for f in (with_calendar, without))
    assert error < 0.5 * blind
    assert ((with_calendar - season[test.index]) ** 2).mean() < 0.02


@pytest.mark.slow
@needs_data
def test_the_year_of_the_climate_is_learned_from_a_window_of_a_month() -> None:
    data, _ = load_climate(SHARED / "delhi")  # the test part is for the paper's table
    train, year = data[:"2015"], data["2016":]

    def error(forecast: pd.DataFrame) -> float:
        return float(np.nanmean(((forecast - year) / train.std()) ** 2))

    def errors(with_calendar: bool) -> list[float]:
        forecasts = (
            far_forecast(train, year.index, with_calendar, seed) for seed in range(4)
        )
        return [error(forecast) for forecast in forecasts]

    waves = calendar_features(data.index, "year").assign(level=1.0)
    regression = {}
    for name in train:
        seen = train[name].dropna()
        design = waves.loc[seen.index].to_numpy()
        weights, *_ = np.linalg.lstsq(design, seen.to_numpy(), rcond=None)
        regression[name] = waves.loc[year.index] @ weights
    with_calendar, without = errors(with_calendar=True), errors(with_calendar=False)
    assert np.mean(with_calendar) < 0.75 * np.mean(without), (with_calendar, without)
    assert max(with_calendar) < 1.1 * error(pd.DataFrame(regression)), with_calendar
