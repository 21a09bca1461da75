"""Named days, the turn of the month and opening hours, by the clock of the index."""

from __future__ import annotations

import pickle
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import LatentODELSTMForecaster, StructuralForecaster
from sklode.data.calendars import (
    WINDOWS_OF_DAYS,
    Calendar,
    RowPeriod,
    opening_hours,
    share_of_month,
    shows_weeks,
    week_of_year,
)
from sklode.data.ticks import ticks_of
from tests.cases import mostly_slow, slow
from tests.remedies import mended

DAYS = pd.date_range("2023-01-02", periods=420)
FREE = pd.Series("free", DAYS[[20, 57, 101, 160, 203, 250, 301, 333, 360, 409]])


def structural(**given: Any) -> StructuralForecaster:
    return StructuralForecaster(random_state=0, n_samples=20, **given)


def sold(seed: int = 0) -> pd.Series:
    """Return days of which free ones are quiet, and the days after them busy."""
    rng = np.random.default_rng(seed)
    week = np.array([0, 1, 2, 2, 4, 8, 5])[DAYS.dayofweek]
    is_free = DAYS.isin(FREE.index)
    is_after = DAYS.isin(FREE.index + pd.Timedelta("1D"))
    of_days = -15.0 * is_free + 6 * is_after
    noise = rng.standard_normal(420)
    return pd.Series(60 + week + of_days + noise, DAYS, name="y")


def halves() -> pd.DataFrame:
    """Return `sold` as two series of a panel."""
    y = sold().to_frame()
    return pd.concat({"a": y[:200], "b": y[200:]}, names=["key", "when"])


@pytest.fixture(scope="module")
def told() -> StructuralForecaster:
    return structural(holidays=FREE).fit(sold()[:400])


def test_named_days_have_effects_of_their_own_and_so_have_days_beside_them(
    told: StructuralForecaster,
) -> None:
    y = sold()
    untold = structural().fit(y[:400])
    free = y.index[400:] == FREE.index[-1]
    after = y.index[400:] == FREE.index[-1] + pd.Timedelta("1D")
    ahead = y[400:]
    errors = told.predict(fh=ahead.index) - ahead
    errors_untold = untold.predict(fh=ahead.index) - ahead
    # the noise has a deviation of 1, the days effects of -15 and 6
    for chosen in (free, after):
        assert abs(errors[chosen].iloc[0]) < 3 < abs(errors_untold[chosen].iloc[0])
    parts = told.components_.index.get_level_values("part")
    assert "holidays, days beside them" in parts


def test_a_name_never_seen_is_as_others_are() -> None:
    y, names = sold(), FREE.copy()
    names.iloc[-1] = "new"
    forecaster = structural(holidays=names).fit(y[:400])
    error = forecaster.predict(fh=names.index[-1:]) - y[names.index[-1]]
    assert error.abs().iloc[0] < 4


def test_days_know_how_far_they_are_from_named_ones_up_to_a_week() -> None:
    days = pd.date_range("2024-03-01", periods=31)
    found = shares(days, {"2024-03-15": "feast"})
    far = np.arange(31) - 14
    assert (found[:, 0] == (far == 0)).all()
    for k, n in enumerate(WINDOWS_OF_DAYS):
        assert (found[:, 1 + 2 * k] == ((far < 0) & (far >= -n))).all()
        assert (found[:, 2 + 2 * k] == ((far > 0) & (far <= n))).all()
    hours = pd.date_range("2024-03-01", periods=31 * 24, freq="h")
    by_hour = shares(hours, {"2024-03-15": "feast"})
    assert (by_hour == np.repeat(found, 24, axis=0)).all()
    assert (shares(days.to_period("D"), {"2024-03-15": "feast"}) == found).all()


def rising(seed: int) -> tuple[pd.Series, pd.Series]:
    """Return days whose sales rise by 3 a day in the week before feasts; and these."""
    rng = np.random.default_rng(seed)
    days = pd.date_range("2021-01-01", periods=1100)
    dates = [f"{y}-{m}" for y in range(2021, 2024) for m in ("03-12", "08-19", "12-25")]
    feasts = pd.Series(["spring", "summer", "end"] * 3, pd.to_datetime(dates))
    ahead = (feasts.index.to_numpy()[:, None] - days.to_numpy()) / np.timedelta64(
        1, "D"
    )
    rise = (3 * (8 - ahead) * ((ahead > 0) & (ahead <= 7)) - 20 * (ahead == 0)).sum(0)
    week = np.array([0, 1, 2, 2, 4, 8, 5])[days.dayofweek]
    return pd.Series(60 + week + rise + 2 * rng.normal(size=1100), days), feasts


@pytest.mark.slow
def test_sales_that_rise_in_the_week_before_a_holiday_do_so_again() -> None:
    y, feasts = rising(0)
    past, week = y[:"2023-12-10"], y["2023-12-18":"2023-12-24"]
    told = structural(holidays=feasts).fit(past).predict(fh=week.index) - week
    untold = structural().fit(past).predict(fh=week.index) - week
    # by 12 on average; the noise has a deviation of 2. Weeks of the year tell a part
    assert told.abs().mean() < min(4, 0.7 * untold.abs().mean())


def test_two_kinds_differ_where_rows_show_it() -> None:
    y = sold()
    names = pd.Series(["a", "b"] * 5, FREE.index)
    y[FREE.index[1::2]] += 30
    forecaster = structural(holidays=names).fit(y[:405])
    assert forecaster.predict(fh=[FREE.index[-1]]).iloc[0] > 65


HOURS = pd.date_range("2023-01-02", periods=24 * 7 * 30, freq="h")


def hourly(tz: Any = None) -> tuple[pd.Series, pd.Series]:
    """Return hours with a peak on working mornings, none on free days; and these."""
    rng = np.random.default_rng(0)
    index = pd.date_range(HOURS[0], periods=len(HOURS), freq="h", tz=tz)
    every_17th = HOURS.normalize().unique()[10:200:17]
    free = pd.Series("free", pd.to_datetime(every_17th))
    free = free[free.index.dayofweek < 5]
    # a working day among the four that are forecast
    free[pd.Timestamp("2023-07-26")] = "free"
    on_the_wall = index.tz_localize(None).normalize()
    is_free = on_the_wall.isin(free.index) | (index.dayofweek > 4)
    peak = 40 * np.exp(-(((index.hour - 8) / 2) ** 2))
    day = 10 * np.exp(-(((index.hour - 14) / 4) ** 2))
    noise = rng.standard_normal(len(index))
    y = 20 + np.where(is_free, day, peak) + noise
    return pd.Series(y, index), free


@pytest.mark.parametrize("tz", [slow(None), "America/New_York"])
def test_hours_of_a_holiday_are_those_of_a_free_day_in_the_zone(tz: Any) -> None:
    y, free = hourly(tz)
    start = pd.Timestamp("2023-07-24", tz=tz)
    past, ahead = y[y.index < start][-24 * 7 * 12 :], y[y.index >= start][:96]
    found = structural(holidays=free).fit(past).predict(fh=ahead.index)
    errors = found - ahead
    assert errors.abs().mean() < 1.5
    # at the peak of a working day, which has 40 more
    at_peak = pd.Timestamp("2023-07-26 08:00", tz=tz)
    assert abs(errors[at_peak]) < 6


@pytest.mark.parametrize("length", ["D", slow("h")])
def test_the_turn_of_the_month_is_found_without_help(length: str) -> None:
    rng = np.random.default_rng(1)
    index = pd.date_range("2023-01-01", "2024-03-31 23:00", freq="D")
    if length == "h":
        index = pd.date_range("2023-01-01", "2023-07-31 23:00", freq="3h")
    turn = (index.day == index.days_in_month) | (index.day == 1)
    y = pd.Series(20 + 9 * turn + rng.standard_normal(len(index)), index)
    cut = index[-1] - pd.Timedelta("45D")
    forecaster = structural().fit(y[:cut])
    ahead = y[y.index > cut]
    error = (forecaster.predict(fh=ahead.index) - ahead).abs()
    assert error.mean() < 2.2
    assert error[turn[y.index > cut]].mean() < 5
    assert "month" in forecaster.components_.index.get_level_values("part")
    seasons = structural(seasons=None).fit(y[:cut]).components_
    assert "month" not in seasons.index.get_level_values("part")


@pytest.mark.parametrize("n_seeds", [1, slow(4)])
def test_no_month_is_found_in_noise(n_seeds: int) -> None:
    for seed in range(n_seeds):
        y = pd.Series(np.random.default_rng(seed).standard_normal(400), DAYS[:400])
        parts = structural().fit(y).components_.index.get_level_values("part")
        assert "month" not in parts


def test_the_last_day_is_the_last_of_every_month() -> None:
    for index in (
        pd.DatetimeIndex(["2024-01-31", "2024-02-29", "2023-02-28", "2024-04-30"]),
        pd.PeriodIndex(["2024-01-31", "2024-02-29", "2023-02-28"], freq="D"),
    ):
        found = share_of_month(ticks_of(index), index)
        expected = 1 - 1 / index.days_in_month.to_numpy()
        np.testing.assert_allclose(found, expected)
    local = pd.DatetimeIndex(["2024-01-31 23:30"], tz="UTC").tz_convert("Asia/Tokyo")
    assert share_of_month(ticks_of(local), local)[0] < 0.02


def test_weeks_are_those_of_iso_8601_on_the_wall() -> None:
    days = pd.date_range("1965-01-01", "2040-12-31")
    weeks = days.isocalendar().week.to_numpy()
    for index in (days, days.to_period("D")):
        np.testing.assert_array_equal(week_of_year(ticks_of(index), index), weeks)
    # where nanoseconds do not reach
    far = pd.period_range("2970-01-01", "2979-12-31", freq="D")
    np.testing.assert_array_equal(week_of_year(ticks_of(far), far), far.week)
    local = pd.DatetimeIndex(["2024-01-07 23:30"], tz="UTC").tz_convert("Asia/Tokyo")
    assert week_of_year(ticks_of(local), local)[0] == 2


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (pd.date_range("2020-01-06", periods=460), True),
        (pd.date_range("2020-01-06", periods=450), False),
        (pd.period_range("2020-01-06", periods=66, freq="W-SUN"), True),
        (pd.date_range("2000-01-31", periods=200, freq="ME"), False),
        (pd.RangeIndex(900), False),
    ],
)
def test_weeks_show_where_a_quarter_of_a_year_is_seen_twice(
    index: Any, expected: bool
) -> None:
    ticks = ticks_of(index)
    assert shows_weeks(ticks, np.array([0, len(ticks)]), index) == expected


TABLES = {
    "series": FREE,
    "table": pd.DataFrame({"ds": FREE.index, "holiday": FREE.to_numpy()}),
    "dict": {day.date(): "free" for day in FREE.index},
}


@pytest.mark.parametrize("kind", ["table", "dict"])
def test_tables_are_read_alike(kind: str, told: StructuralForecaster) -> None:
    y = sold()
    found = structural(holidays=TABLES[kind]).fit(y[:400]).predict(fh=y.index[400:])
    pd.testing.assert_series_equal(found, told.predict(fh=y.index[400:]))


def test_a_table_is_saved(tmp_path: Path) -> None:
    y = sold()
    forecaster = structural(holidays=TABLES["table"]).fit(y[:400])
    found = forecaster.predict(fh=y.index[400:])
    forecaster.save_weights(tmp_path / "saved")
    loaded = StructuralForecaster.load_weights(tmp_path / "saved")
    copies = loaded, pickle.loads(pickle.dumps(forecaster)), forecaster.clone()
    for other in copies:
        if other.state != "fitted":
            other.fit(y[:400])
        pd.testing.assert_series_equal(other.predict(fh=y.index[400:]), found)


def test_countries_are_looked_up_and_known_for_years() -> None:
    pytest.importorskip("holidays")
    ticks = ticks_of(DAYS)
    found = Calendar.of(("DE", "US-CA"), ticks, DAYS)
    assert any("Christmas" in name or "Weihnacht" in name for name in found.names)
    asked = pd.DatetimeIndex(["2023-12-25", "2040-12-25", "2023-12-24", "2023-10-10"])
    kinds = found.at(ticks_of(asked), asked)
    assert kinds[:2, 0].any(axis=1).all()
    assert (kinds[2, 1] == kinds[0, 0]).all()  # the day after it
    assert not kinds[3, 0].any()
    y = sold()
    saved = structural(holidays="DE").fit(y)
    assert saved.predict(fh=[1]).notna().all()


@pytest.mark.parametrize(
    ("holidays", "error", "message"),
    [
        (pd.Series(["2023-05-01"]), TypeError, "must be at dates; got 0"),
        (pd.Series("x", ["2023-05-01"]), TypeError, "dates; got '2023-05-01' for 'x'"),
        (pd.DataFrame({"day": [1]}), ValueError, r"columns 'ds' and 'holiday'; got"),
        ({}, ValueError, "must hold a day"),
        (pd.Series(1, FREE.index), TypeError, "texts; got 1 at 2"),
        ({"sale": ["2023-05-01"]}, TypeError, "Dates are the keys: holidays = {pd"),
        ("GERMANY", ValueError, r"'DE' or 'US-CA'.*got 'GERMANY'.*one of \['DE'\]"),
        ("United States", ValueError, r"Did you mean one of \['US'\]"),
        (["2024-05-01"], ValueError, r"pd\.Series\('closed', index=dates\)"),
        ("DEU1", ValueError, r"Did you mean one of .*'DE"),
        ("DE-XX", ValueError, "parts of countries; got 'DE-XX'"),
        (("AU", "VIC"), ValueError, r"got 'VIC'\. Did you mean 'AU-VIC'\?"),
        ("au-vic", ValueError, r"got 'au-vic'\. Did you mean 'AU-VIC'\?"),
        ("AU, VIC", ValueError, r"got 'AU, VIC'\. Did you mean 'AU-VIC'\?"),
        ("AU-vic", ValueError, r"got 'AU-vic'\. Did you mean 'AU-VIC'\?"),
        ("de bw", ValueError, "mean 'DE-BW'"),
        ("au", ValueError, r"got 'au'\. Did you mean 'AU'\?"),
    ],
)
def test_holidays_that_cannot_be_are_refused(
    holidays: Any, error: type[Exception], message: str
) -> None:
    if isinstance(holidays, str | list | tuple):
        pytest.importorskip("holidays")
    with pytest.raises(error, match=f"(?s){message}"):
        structural(holidays=holidays).fit(sold())


@pytest.mark.parametrize(
    ("holidays", "told"),
    [
        (pd.Series("x", FREE.index - pd.Timedelta("9000D")), "of which none is"),
        (
            pd.DataFrame({"ds": FREE.index, "holiday": "x", "lower_window": -1}),
            "got lower_window as well",
        ),
    ],
)
def test_what_does_nothing_in_a_table_is_told(holidays: Any, told: str) -> None:
    with pytest.warns(UserWarning, match=told):
        structural(holidays=holidays).fit(sold())


@pytest.mark.parametrize(
    "holidays",
    [
        pd.Series(FREE.index),
        pd.Series(FREE.index.date, [f"day {k}" for k in range(len(FREE))]),
        pd.Series(FREE.index.strftime("%Y-%m-%d")),
        {f"day {k}": date for k, date in enumerate(FREE.index)},
        pd.DataFrame({"ds": "closed", "holiday": FREE.index}),
    ],
)
def test_dates_in_the_place_of_names_become_the_index(holidays: Any) -> None:
    with pytest.raises(TypeError, match="Dates are the index") as info:
        structural(holidays=holidays).fit(sold())
    found = mended(info.value, holidays=holidays)["holidays"]
    ticks = ticks_of(DAYS)
    days = Calendar.of(found, ticks, DAYS).days
    np.testing.assert_array_equal(days, Calendar.of(FREE, ticks, DAYS).days)


def test_without_the_package_a_country_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "holidays", None)  # as if it were not there
    message = "which is not installed. Run pip install holidays, or pass a table"
    with pytest.raises(ImportError, match=message):
        structural(holidays="DE").fit(sold())


def test_holidays_need_dates_and_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match="index with dates; got RangeIndex"):
        structural(holidays=FREE).fit(sold().reset_index(drop=True))
    monkeypatch.setitem(sys.modules, "holidays", None)  # as if it were not there
    with pytest.raises(ImportError, match="pip install holidays"):
        structural(holidays="DE").fit(sold())


def test_a_fit_after_pretrain_keeps_its_holidays() -> None:
    forecaster = structural(holidays=FREE).pretrain(halves())
    forecaster.fit(sold()[:100])
    with pytest.raises(ValueError, match="the same holidays"):
        forecaster.set_params(holidays=FREE[:3]).fit(sold()[:100])


@pytest.mark.slow
def test_long_tables_that_differ_in_the_middle_are_others() -> None:
    table = pd.Series("free", DAYS[::3])
    forecaster = structural(holidays=table).pretrain(halves())
    # pandas prints the first and the last rows of 60 or more only
    other = table.copy()
    other.iloc[70] = "open"
    with pytest.raises(ValueError, match="the same holidays"):
        forecaster.set_params(holidays=other).fit(sold()[:100])


def test_a_network_beside_a_level_takes_holidays_and_the_papers_does_not() -> None:
    y = sold()[:200]
    given = {"holidays": FREE, "max_epochs": 1, "random_state": 0}
    found = LatentODELSTMForecaster(**given).fit(y).predict(fh=[1, 2])
    expected = structural(holidays=FREE).fit(y).predict(fh=[1, 2])
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    with pytest.raises(ValueError, match=r"holidays belongs to model=.hybrid"):
        LatentODELSTMForecaster(**given, model="paper").fit(y)


OPEN = pd.offsets.CustomBusinessHour(
    start="09:00", end="17:00", holidays=["2024-03-26"]
)


def test_steps_go_from_open_row_to_open_row_without_warnings() -> None:
    index = pd.date_range("2024-02-01 09:00", periods=290, freq=OPEN)
    noise = np.random.default_rng(0).standard_normal(290)
    y = pd.Series(50 + index.hour + noise, pd.DatetimeIndex(index.to_numpy()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        forecaster = structural(freq=OPEN).fit(y)
        asked = forecaster.predict(fh=range(1, 12)).index
    assert list(asked) == list(pd.date_range(index[-1], periods=12, freq=OPEN)[1:])
    assert "by night too" not in repr(forecaster.summary(origins=0))


SHOP = pd.date_range("2024-02-01", "2024-03-20", freq="h")
CAFE = pd.date_range("2024-02-01", "2024-04-10", freq="30min", tz="Europe/Berlin")


@pytest.mark.parametrize(
    ("index", "told"),
    [
        (
            pd.date_range("2024-02-01 09:00", periods=290, freq=OPEN).delete(40),
            "freq=pd.offsets.CustomBusinessHour(start='09:00', end='17:00')",
        ),
        (
            SHOP[(SHOP.hour >= 10) & (SHOP.hour < 18) & (SHOP.dayofweek > 0)],
            "freq=pd.offsets.CustomBusinessHour(start='10:00', end='18:00', "
            "weekmask='Tue Wed Thu Fri Sat Sun')",
        ),
        (
            CAFE[(CAFE.hour >= 8) & (CAFE.hour < 20)],
            "fh=y.index[y.index > y.index[-1] - pd.DateOffset(days=7)] + "
            "pd.DateOffset(days=7)",
        ),
    ],
    ids=["working days", "closed on Mondays", "half hours"],
)
def test_the_summary_says_how_to_leave_out_closed_nights(
    index: pd.DatetimeIndex, told: str
) -> None:
    index = pd.DatetimeIndex(index, freq=None)
    y = pd.Series(np.random.default_rng(0).standard_normal(len(index)), index)
    step = pd.Timedelta(np.median(np.diff(index)))
    forecaster = structural(seasons=None, freq=step).fit(y)
    text = repr(forecaster.summary(origins=0))
    assert f"a step of fh is {step}, by night too" in text
    assert f"use\n          {told}\n" in text
    # and it does what it says: no forecast lies in the night
    given = eval(f"dict({told})", {"pd": pd, "y": y})
    fh = given.pop("fh", range(1, 30))
    asked = forecaster.set_params(**given).fit(y).predict(fh=fh).index
    assert {*asked.hour} <= {*index.hour}
    assert {*asked.dayofweek} <= {*index.dayofweek}
    assert asked[0] > index[-1]


def test_days_that_never_close_have_no_hours() -> None:
    assert opening_hours(ticks_of(HOURS), HOURS) is None
    assert opening_hours(ticks_of(DAYS), DAYS) is None
    assert opening_hours(np.arange(50), pd.RangeIndex(50)) is None


# Rows that stand for periods

WEEKS = pd.date_range("2018-01-07", periods=290, freq="W-SUN")


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (DAYS, RowPeriod()),
        (DAYS[[0, 1, 4, 9, 10]], RowPeriod()),
        (HOURS, RowPeriod()),
        (WEEKS, RowPeriod(weeks=1)),
        (WEEKS[[0, 1, 2, 5, 6]], RowPeriod(weeks=1)),
        (WEEKS[::2], RowPeriod(weeks=2)),
        (pd.date_range("2018-01-01", periods=30, freq="MS"), RowPeriod(months=1)),
        (pd.date_range("2018-01-01", periods=30, freq="QS"), RowPeriod(months=3)),
        (
            pd.date_range("2018-01-31", periods=30, freq="ME"),
            RowPeriod(0, 1, True),
        ),
        (
            pd.date_range("2018-12-31", periods=9, freq="YE"),
            RowPeriod(0, 12, True),
        ),
        # the first day of work of a month, and the last one
        (pd.date_range("2018-01-01", periods=30, freq="BMS"), RowPeriod(months=1)),
        (
            pd.date_range("2018-01-31", periods=30, freq="BME"),
            RowPeriod(0, 1, True),
        ),
        # weeks from Sundays, later from Tuesdays
        (WEEKS[:20].append(WEEKS[20:40] + pd.Timedelta("2D")), RowPeriod(weeks=1)),
        (pd.period_range("2018-01", periods=9, freq="M"), RowPeriod(months=1)),
        (pd.period_range("2018Q1", periods=9, freq="Q"), RowPeriod(months=3)),
        (pd.period_range("2018", periods=9, freq="Y"), RowPeriod(months=12)),
        (pd.period_range("2018-01-01", periods=9, freq="W"), RowPeriod(weeks=1)),
        (pd.period_range("2018-01-01", periods=9, freq="D"), RowPeriod()),
        (pd.period_range("2018-01-01", periods=9, freq="h"), RowPeriod()),
        (pd.date_range("2018-01-15", periods=30, freq="30D"), RowPeriod()),
        (pd.date_range("2018-01-07", periods=1), RowPeriod()),
    ],
)
def test_which_days_rows_stand_for_follows_from_their_step(
    index: Any, expected: RowPeriod
) -> None:
    assert RowPeriod.at(ticks_of(index), index) == expected


def shares(index: Any, named: dict[str, str]) -> Any:
    """Return shares of days that have the only name, (row, place)."""
    table = {pd.Timestamp(day): name for day, name in named.items()}
    ticks = ticks_of(index)
    return Calendar.of(table, ticks, index).at(ticks, index)[..., 0]


def test_a_row_has_the_share_of_its_days_that_are_named() -> None:
    months = pd.date_range("2023-01-01", periods=6, freq="MS")
    named = {f"2023-02-{day:02}": "feast" for day in range(8, 15)}
    found = shares(months, named)
    # over the largest share, which is a quarter of February
    np.testing.assert_allclose(found[:, 0], [0, 1, 0, 0, 0, 0])
    # of the seven days before the first one, and 21, which January has 14 of
    np.testing.assert_allclose(found[:2, 1], [0, 4 * 13 / 28])
    np.testing.assert_allclose(found[0, 5], 4 * 14 / 31)
    ends = months + pd.offsets.MonthEnd(0)
    np.testing.assert_allclose(shares(ends, named), found)
    periods = months.to_period("M")
    np.testing.assert_allclose(shares(periods, named), found)


def test_a_week_ends_on_its_stamp_or_begins_there() -> None:
    index = pd.date_range("2023-01-01", periods=6, freq="W-SUN")
    found = shares(index, {"2023-01-18": "event"})
    assert found[:, 0].tolist() == [0, 0, 0, 1, 0, 0]
    assert found[:, 7].tolist() == [0, 0, 1, 0, 0, 0]
    periods = index.to_period("W-SUN")
    assert shares(periods, {"2023-01-18": "event"})[:, 0].tolist() == [0, 0, 0, 1, 0, 0]


@pytest.mark.parametrize(
    ("freq", "first"), [("MS", "2023-01"), ("ME", "2023-01"), ("QS", "2023-01")]
)
def test_months_have_numbers_of_each_day_of_the_week(freq: str, first: str) -> None:
    index = pd.date_range(first, periods=5, freq=freq)
    months = 3 if freq == "QS" else 1
    found = RowPeriod.at(ticks_of(index), index).weekdays(ticks_of(index), index)
    for row, stamp in zip(found, index, strict=True):
        begin = stamp.replace(day=1)
        end = begin + pd.DateOffset(months=months, days=-1)
        days = pd.date_range(begin, end).dayofweek
        expected = np.bincount(days, minlength=7) - months * 30.44 / 7
        np.testing.assert_allclose(row, expected)


def weekly(begins: bool) -> tuple[pd.Series, pd.Series]:
    """Return weeks of an event a year, whose date moves, and the event's days."""
    rng = np.random.default_rng(0)
    days = [f"{2018 + k}-11-{17 + 2 * k}" for k in range(6)]
    event = pd.Series("event", pd.to_datetime(days))
    stamps = event.index - pd.Timedelta(days=6 * int(begins))
    nearest = [WEEKS[WEEKS >= stamp][0] for stamp in stamps if stamp <= WEEKS[-1]]
    lift = 60 * WEEKS.isin(nearest)
    return pd.Series(100 + lift + 3 * rng.normal(size=len(WEEKS)), WEEKS), event


@pytest.mark.parametrize("begins", [slow(False), True])
def test_weeks_of_events_are_known_whichever_day_they_are_named_by(
    begins: bool,
) -> None:
    y, event = weekly(begins)
    past, ahead = y[:"2022-06"], y["2022-07":"2023-06"]
    forecaster = structural(holidays=event).fit(past)
    parts = forecaster.components_.index.get_level_values("part")
    assert ("holidays, weeks begin on their stamps" in parts) == begins
    told = forecaster.predict(fh=ahead.index) - ahead
    untold = structural().fit(past).predict(fh=ahead.index) - ahead
    of_event = ahead > 130
    assert of_event.sum() == 1
    assert told[of_event].abs().iloc[0] < 12 < untold[of_event].abs().iloc[0]
    assert told[~of_event].abs().mean() < 4


@pytest.mark.slow
def test_months_know_how_many_of_their_days_are_named() -> None:
    rng = np.random.default_rng(1)
    begins = [f"{2008 + k}-0{1 + k % 2}-{12 + 5 * k % 17}" for k in range(16)]
    named = [pd.date_range(day, periods=16) for day in begins]
    feast = pd.Series("feast", np.concatenate(named))
    days = pd.Series(1.0, pd.date_range("2008-01-01", "2023-12-31"))
    days[days.index.isin(feast.index)] = 0.3
    y = days.resample("MS").sum() * (1 + 0.01 * rng.normal(size=192))
    told = structural(holidays=feast).fit(y[:168]).predict(fh=y.index[168:]) - y[168:]
    plain = structural().fit(y[:168]).predict(fh=y.index[168:]) - y[168:]
    early = y.index[168:].month < 4
    assert told[early].abs().mean() < 1.0 < plain[early].abs().mean() / 2


@pytest.mark.slow
@pytest.mark.parametrize("begins", [False, True])
def test_rows_that_show_where_weeks_begin_need_no_warning(begins: bool) -> None:
    y, event = weekly(begins)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        forecaster = structural(holidays=event).fit(y[:"2022-06"])
    assert "a PeriodIndex tells" not in repr(forecaster.summary(origins=0))


@pytest.mark.parametrize("case", ["noise", slow("on the stamp")])
def test_weeks_that_may_begin_or_end_on_their_stamps_are_said_once(case: str) -> None:
    y, event = weekly(begins=False)
    if case == "noise":
        y = pd.Series(np.random.default_rng(0).standard_normal(len(y)), WEEKS)
    else:
        event = event.set_axis(event.index + pd.offsets.Week(weekday=6, n=0))
    with pytest.warns(UserWarning, match=r"Use a PeriodIndex: y\.index") as found:
        forecaster = structural(holidays=event).fit(y)
    assert len(found) == 1
    assert "a PeriodIndex tells" in repr(forecaster.summary(origins=0))
    periods = y.set_axis(WEEKS.to_period("W-SUN"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        told = structural(holidays=event).fit(periods)
    assert "a PeriodIndex tells" not in repr(told.summary(origins=0))


def monthly(seed: int, freq: str = "MS", n: int = 140, shut: float = 0.3) -> pd.Series:
    """Return totals of days that sell more on Saturdays, and on Sundays less."""
    rng = np.random.default_rng(seed)
    days = pd.date_range("2005-01-01", "2040-01-01")
    week = np.array([1, 1, 1, 1.05, 1.2, 1.5, shut])[days.dayofweek]
    year = 1 + 0.2 * np.sin(2 * np.pi * days.dayofyear / 365.25)
    totals = pd.Series(week * year, days).resample(freq).sum()[:n]
    wanders = np.cumsum(0.001 * rng.normal(size=n)) + 0.003 * rng.normal(size=n)
    return totals * np.exp(0.003 * np.arange(n) + wanders)


def are_trading_days(forecaster: Any) -> bool:
    return "trading days" in forecaster.components_.index.get_level_values("part")


@pytest.mark.parametrize("freq", ["MS", slow("ME"), slow("BME")])
def test_totals_of_months_have_trading_days(freq: str) -> None:
    y = monthly(0, "MS")
    if freq != "MS":
        y = y.set_axis(pd.date_range(y.index[0], periods=len(y), freq=freq))
    forecaster = structural().fit(y[:-12])
    assert are_trading_days(forecaster)
    error = (forecaster.predict(fh=y.index[-12:]) / y[-12:] - 1).abs().mean()
    plain = structural(seasons=["365.2425D"]).fit(y[:-12])
    assert not are_trading_days(plain)
    untold = (plain.predict(fh=y.index[-12:]) / y[-12:] - 1).abs().mean()
    assert error < 0.006 < 0.009 < untold


@pytest.mark.parametrize("freq", mostly_slow(["MS", "W-SUN", "YS", "D"]))
def test_noise_has_no_trading_days(freq: str) -> None:
    for seed in range(3):
        index = pd.date_range("2001-01-01", periods=90, freq=freq)
        y = pd.Series(np.random.default_rng(seed).standard_normal(90), index)
        assert not are_trading_days(structural().fit(y))


@pytest.mark.slow
def test_series_of_a_panel_share_trading_days_and_are_saved(tmp_path: Path) -> None:
    # of 40 months each
    each = {str(k): monthly(k, n=52) for k in range(5)}
    y = pd.concat(each, names=["key", "when"]).to_frame("y")
    past = y.index.get_level_values(1) < each["0"].index[40]
    forecaster = structural().fit(y[past])
    assert are_trading_days(forecaster)
    found = forecaster.predict_at(y[~past].index)
    forecaster.save_weights(tmp_path / "saved")
    loaded = StructuralForecaster.load_weights(tmp_path / "saved")
    pd.testing.assert_frame_equal(loaded.predict_at(y[~past].index), found)


SPARSE = {
    "no day in most periods": {"2019-05-14": "feast", "2020-06-02": "feast"},
    "no day in any": {"1999-05-14": "feast"},
    "days ahead alone": {"2041-05-14": "feast"},
}
PERIODS = {
    "weeks whose day changes": WEEKS[:80].append(WEEKS[80:120] + pd.Timedelta("2D")),
    "quarters": pd.date_range("2001-01-01", periods=90, freq="QS"),
    "quarters, as periods": pd.period_range("2001Q1", periods=90, freq="Q"),
    "months with gaps": pd.date_range("2012-01-01", periods=120, freq="MS").delete(
        [3, 9, 10, 40, 77, 78, 79]
    ),
    "uneven days of months": pd.date_range("2012-01-01", periods=120, freq="MS")
    + pd.to_timedelta(np.random.default_rng(0).integers(0, 25, 120), "D"),
}


@pytest.mark.parametrize("days", mostly_slow(SPARSE))
@pytest.mark.parametrize("kind", mostly_slow(PERIODS, "quarters", "months with gaps"))
# noise cannot show where weeks begin: of weekly stamps that is said
@pytest.mark.filterwarnings("ignore:holidays of weeks should tell")
@pytest.mark.filterwarnings("ignore:effects of holidays are learned:UserWarning")
def test_few_named_days_move_no_forecast_of_periods_far(kind: str, days: str) -> None:
    index = PERIODS[kind]
    y = pd.Series(50 + np.random.default_rng(1).standard_normal(len(index)), index)
    table = {pd.Timestamp(day): name for day, name in SPARSE[days].items()}
    told = structural(holidays=table).fit(y[:-5]).predict(fh=index[-5:])
    np.testing.assert_allclose(told, 50, atol=1.5)
