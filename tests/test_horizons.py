"""Every kind of index, and the stamps that a horizon on it stands for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sktime.forecasting.base import ForecastingHorizon

from tests.series import channels, panel, tiny, uneven_stamps, uneven_ticks, waves

N = 20
BERLIN = "Europe/Berlin"


def at(stamps: Any) -> ForecastingHorizon:
    return ForecastingHorizon(stamps, is_relative=False)


def hourly(**options: Any) -> pd.DatetimeIndex:
    return pd.date_range("2021-03-01", periods=N, freq="h", **options)


def stamps(*texts: str, **options: Any) -> pd.DatetimeIndex:
    return pd.DatetimeIndex(texts, **options)


# A change to summer time lies before the last stamp, or after it.
BEFORE_SUMMER = pd.date_range("2021-03-09 12:00", periods=N, freq="D", tz=BERLIN)

# name: (the index of y, the steps, the stamps that they stand for)
INDEXES: dict[str, tuple[pd.Index, list[int], pd.Index]] = {
    "range": (pd.RangeIndex(N), [1, 3], pd.Index([20, 22])),
    "range in threes": (pd.RangeIndex(5, 65, 3), [1, 3], pd.Index([63, 65])),
    "negative integers": (pd.RangeIndex(-40, -20), [1, 30], pd.Index([-20, 9])),
    "uneven integers": (
        pd.Index(2 ** np.arange(N)),
        [1, 3],
        pd.Index([2**19 + 1, 2**19 + 3]),
    ),
    "months": (
        pd.period_range("2020-01", periods=N, freq="M"),
        [1, 5],
        pd.PeriodIndex(["2021-09", "2022-01"], freq="M"),
    ),
    "months with gaps": (
        pd.period_range("2020-01", periods=N + 3, freq="M").delete([3, 9, 10]),
        [1, 5],
        pd.PeriodIndex(["2021-12", "2022-04"], freq="M"),
    ),
    "quarters of an hour": (
        pd.period_range("2021-01-01", periods=N, freq="15min"),
        [1, 5],
        pd.PeriodIndex(["2021-01-01 05:00", "2021-01-01 06:00"], freq="15min"),
    ),
    "three months at a time": (
        pd.period_range("2020-01", periods=N + 3, freq="3M").delete([3, 9, 10]),
        [1, 2],
        pd.PeriodIndex(["2025-10", "2026-01"], freq="3M"),
    ),
    "hours": (
        hourly(),
        [1, 30],
        stamps("2021-03-01 20:00", "2021-03-03 01:00"),
    ),
    "hours without freq": (
        pd.DatetimeIndex(hourly().to_numpy()),
        [1, 30],
        stamps("2021-03-01 20:00", "2021-03-03 01:00"),
    ),
    "an hour missing": (
        hourly().delete(4),
        [1, 30],
        stamps("2021-03-01 20:00", "2021-03-03 01:00"),
    ),
    "month starts, one missing": (
        pd.date_range("2020-01-01", periods=N, freq="MS").delete(7),
        [1, 2, 3],
        stamps("2021-09-01", "2021-10-01", "2021-11-01"),
    ),
    "month ends, one missing": (
        pd.date_range("2020-01-31", periods=N, freq="ME").delete(7),
        [1, 6],
        stamps("2021-09-30", "2022-02-28"),
    ),
    "quarters, one missing": (
        pd.date_range("2016-01-01", periods=N, freq="QS").delete(7),
        [1, 2],
        stamps("2021-01-01", "2021-04-01"),
    ),
    "working days, a holiday missing": (
        pd.bdate_range("2021-03-01", periods=N).delete(7),
        [1, 2, 6],
        stamps("2021-03-29", "2021-03-30", "2021-04-05"),
    ),
    "weeks, one missing": (
        pd.date_range("2021-01-02", periods=N, freq="7D").delete(7),
        [1, 2],
        stamps("2021-05-22", "2021-05-29"),
    ),
    "days into summer time": (
        BEFORE_SUMMER,
        [1],
        stamps("2021-03-29 12:00").tz_localize(BERLIN),
    ),
    "hours over the change to summer time": (
        pd.date_range("2021-03-27 06:00", periods=N, freq="h", tz=BERLIN),
        [1, 2],
        stamps("2021-03-28 03:00", "2021-03-28 04:00").tz_localize(BERLIN),
    ),
    "seconds as unit": (hourly(unit="s"), [1], stamps("2021-03-01 20:00").as_unit("s")),
    "ms as unit": (hourly(unit="ms"), [1], stamps("2021-03-01 20:00").as_unit("ms")),
    "us as unit": (hourly(unit="us"), [1], stamps("2021-03-01 20:00").as_unit("us")),
    "ns as unit": (hourly(unit="ns"), [1], stamps("2021-03-01 20:00").as_unit("ns")),
    "timedeltas": (
        pd.to_timedelta(np.arange(N), unit="h"),
        [1, 5],
        pd.to_timedelta([20, 24], unit="h"),
    ),
    "uneven timedeltas": (
        pd.to_timedelta(np.r_[np.arange(N - 1), 40], unit="h"),
        [1, 5],
        pd.to_timedelta([41, 45], unit="h"),
    ),
}

KINDS = pytest.mark.parametrize("name", INDEXES)
WITH_ABSOLUTE_HORIZONS = pytest.mark.parametrize(
    "name", [k for k, v in INDEXES.items() if not isinstance(v[0], pd.TimedeltaIndex)]
)
"""sktime's horizon holds no absolute timedeltas; `predict_at` takes them."""


@KINDS
def test_relative_steps_stand_for_these_stamps(name: str) -> None:
    index, steps, expected = INDEXES[name]
    forecast = tiny().fit(waves(index)).predict(fh=steps)
    if isinstance(expected, pd.DatetimeIndex | pd.TimedeltaIndex):
        expected = expected.as_unit(index.unit)
    pd.testing.assert_index_equal(forecast.index, expected, exact="equiv")
    assert np.isfinite(forecast).all()


@WITH_ABSOLUTE_HORIZONS
def test_relative_steps_and_their_stamps_have_one_forecast(name: str) -> None:
    index, steps, expected = INDEXES[name]
    forecaster = tiny().fit(waves(index))
    np.testing.assert_array_equal(
        forecaster.predict(at(expected)), forecaster.predict(steps)
    )


@KINDS
def test_steps_of_zero_and_less_lie_in_the_series(name: str) -> None:
    index, _, _ = INDEXES[name]
    forecaster = tiny().fit(waves(index))
    forecast = forecaster.predict([-2, 0, 1])
    assert forecast.index[1] == index[-1]
    assert forecast.index.is_monotonic_increasing
    asked = forecaster.predict_at(forecast.index[:2])
    np.testing.assert_allclose(forecast.iloc[:2], asked["y"], atol=1e-6)


@KINDS
def test_stamps_of_the_series_itself_can_be_asked(name: str) -> None:
    index, _, expected = INDEXES[name]
    forecaster = tiny().fit(waves(index))
    asked = index[[0, 3, N - 4]].append(expected)
    forecast = forecaster.predict_at(asked)
    pd.testing.assert_index_equal(forecast.index, asked, exact="equiv")
    if not isinstance(index, pd.TimedeltaIndex):
        absolute = forecaster.predict(at(asked))
        np.testing.assert_array_equal(absolute, forecast["y"])


@pytest.mark.parametrize(
    ("index", "earlier"),
    [
        (pd.RangeIndex(10, 30), pd.Index([-50, 3])),
        (
            pd.period_range("2020-01", periods=N, freq="M"),
            pd.PeriodIndex(["2011-01", "2019-12"], freq="M"),
        ),
        (uneven_stamps(), stamps("2021-02-27", "2021-03-01 00:00:30")),
        (
            uneven_stamps().tz_localize(BERLIN),
            stamps("2021-02-27", "2021-02-28").tz_localize(BERLIN),
        ),
    ],
    ids=["integers", "periods", "datetimes", "with time zone"],
)
def test_stamps_before_the_first_are_forecast_backward(
    index: pd.Index, earlier: pd.Index
) -> None:
    forecaster = tiny(max_epochs=20, lr=0.05).fit(waves(index))
    forecast = forecaster.predict(at(earlier))
    pd.testing.assert_index_equal(forecast.index, earlier)
    assert np.isfinite(forecast).all()
    first = forecaster.predict(at(index[:1]))
    assert np.abs(forecast.to_numpy() - first.to_numpy()).min() > 1e-6


def test_the_local_hour_that_occurs_twice_is_two_stamps() -> None:
    index = pd.date_range("2021-10-30 06:00", periods=30, freq="h", tz=BERLIN)
    in_utc = index.tz_convert("UTC")
    local = tiny().fit(waves(index)).predict(range(1, 4))
    expected = tiny().fit(waves(in_utc)).predict(range(1, 4))
    np.testing.assert_array_equal(local, expected)
    pd.testing.assert_index_equal(local.index.tz_convert("UTC"), expected.index)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_the_unit_of_the_stamps_changes_no_forecast(unit: str) -> None:
    y = waves(uneven_stamps().as_unit(unit))
    forecaster = tiny().fit(y)
    asked = stamps("2021-03-02", "2021-03-01 01:30").sort_values()
    forecast = forecaster.predict(asked)
    in_ns = tiny().fit(waves(uneven_stamps().as_unit("ns"))).predict(asked)
    np.testing.assert_array_equal(forecast, in_ns)
    assert forecaster.predict([1]).index.unit == unit


def test_a_relative_step_on_uneven_stamps_is_the_median_gap() -> None:
    days = [0, 1, 3, 6, 7, 12, 13, 16]  # gaps of 1 2 3 1 5 1 3 days, in the middle: 2
    index = pd.Timestamp("2021-01-01") + pd.to_timedelta(days, unit="D")
    forecast = tiny().fit(waves(index)).predict([1, 2])
    pd.testing.assert_index_equal(
        forecast.index, stamps("2021-01-19", "2021-01-21"), exact="equiv"
    )


@pytest.mark.parametrize(
    ("freq", "expected"),
    [
        ("36h", stamps("2021-02-02 12:00", "2021-02-04")),
        (pd.Timedelta("36h"), stamps("2021-02-02 12:00", "2021-02-04")),
        (pd.offsets.MonthEnd(), stamps("2021-02-28", "2021-03-31")),
        ("W-MON", stamps("2021-02-08", "2021-02-15")),
    ],
)
def test_freq_sets_the_relative_step(freq: Any, expected: pd.Index) -> None:
    days = [0, 1, 3, 6, 7, 12, 13, 31]
    index = pd.Timestamp("2021-01-01") + pd.to_timedelta(days, unit="D")
    forecast = tiny(freq=freq).fit(waves(index)).predict([1, 2])
    pd.testing.assert_index_equal(forecast.index, expected, exact="equiv")


def test_timedelta_steps_are_added_to_the_last_stamp() -> None:
    y = waves(uneven_stamps())
    offsets = pd.to_timedelta([90, 3600], unit="s")
    forecast = tiny().fit(y).predict(offsets)
    pd.testing.assert_index_equal(forecast.index, y.index[-1] + offsets)


@pytest.mark.parametrize("step", [213_504, -200_000, 10**12])
def test_steps_beyond_what_an_index_reaches_are_refused(step: int) -> None:
    forecaster = tiny().fit(waves(pd.date_range("2021-01-01", periods=N, freq="D")))
    with pytest.raises(ValueError, match=f"where stamps reach.*got step {step} after"):
        forecaster.predict([step])


def test_a_row_without_a_time_has_no_forecast() -> None:
    forecaster = tiny().fit(waves(hourly()))
    asked = pd.DatetimeIndex(["2021-03-02", "NaT"])
    with pytest.raises(ValueError, match="must hold finite times; got NaT at row 1"):
        forecaster.predict_at(asked)
    with pytest.raises(ValueError, match="must hold finite times; got NaT at row 1"):
        forecaster.score(pd.Series([1.0, 2.0], asked))
    assert forecaster.predict_at(asked[:0]).shape == (0, 1)


def test_offsets_that_lead_to_one_stamp_are_refused() -> None:
    forecaster = tiny().fit(waves(uneven_stamps()))
    with pytest.raises(ValueError, match="must lead to different stamps; got"):
        forecaster.predict([pd.offsets.Hour(1), pd.offsets.Minute(60)])


def test_predict_at_keeps_the_order_asked_and_repeats() -> None:
    y = channels(uneven_stamps())
    forecaster = tiny().fit(y)
    asked = stamps("2021-03-05", "2021-03-01 00:30", "2021-03-05", "2021-02-27")
    forecast = forecaster.predict_at(asked)
    pd.testing.assert_index_equal(forecast.index, asked)
    ordered = forecaster.predict(asked.unique().sort_values())
    np.testing.assert_allclose(forecast, ordered.loc[asked], rtol=1e-6)


def test_each_series_of_a_panel_steps_from_its_own_end() -> None:
    y = panel()
    forecast = tiny(freq="1h").fit(y).predict([1, 2])
    last = y.reset_index("when").groupby("series")["when"].last()
    rows = [(key, t + pd.Timedelta(hours=k)) for key, t in last.items() for k in (1, 2)]
    expected = pd.MultiIndex.from_tuples(rows, names=["series", "when"])
    pd.testing.assert_index_equal(forecast.index, expected)
    assert list(forecast.columns) == ["y"]


def test_each_series_of_a_panel_has_its_own_default_step() -> None:
    quick = waves(pd.date_range("2021-01-01", periods=12, freq="min")).to_frame()
    slow = waves(pd.date_range("2021-01-01", periods=12, freq="D")).to_frame()
    y = pd.concat({"quick": quick, "slow": slow}, names=["series", "when"])
    forecast = tiny().fit(y).predict([2])
    assert forecast.index.tolist() == [
        ("quick", pd.Timestamp("2021-01-01 00:13")),
        ("slow", pd.Timestamp("2021-01-14")),
    ]


def test_an_absolute_horizon_asks_every_series_of_a_panel() -> None:
    y = panel()
    asked = stamps("2021-02-01 01:00", "2021-02-20")
    forecaster = tiny().fit(y)
    forecast = forecaster.predict(asked)
    expected = pd.MultiIndex.from_product(
        [["s0", "s1", "s2"], asked], names=["series", "when"]
    )
    pd.testing.assert_index_equal(forecast.index, expected, exact="equiv")
    backward = expected[::-1]
    np.testing.assert_allclose(
        forecaster.predict_at(backward), forecast.loc[backward], rtol=1e-6
    )


def test_hierarchical_series_are_forecast_like_a_panel() -> None:
    y = panel()
    keys = {"s0": ("north", 1), "s1": ("north", 2), "s2": ("south", 1)}
    rows = [(*keys[series], when) for series, when in y.index]
    names = ["region", "site", "when"]
    tree = y.set_axis(pd.MultiIndex.from_tuples(rows, names=names))
    forecast = tiny().fit(tree).predict([1, 4])
    expected = tiny().fit(y).predict([1, 4])
    np.testing.assert_array_equal(forecast, expected)
    assert list(forecast.index.names) == names
    assert forecast.index[-1] == ("south", 1, expected.index[-1][1])


def test_integer_keys_and_times_of_a_panel_are_told_apart() -> None:
    parts = {k: waves(pd.Index(uneven_ticks(9 + k, k))).to_frame() for k in (3, 1)}
    y = pd.concat(parts, names=["site", "t"]).sort_index()
    forecast = tiny().fit(y).predict([2])
    ends = [(k, uneven_ticks(9 + k, k)[-1] + 2) for k in (1, 3)]
    assert forecast.index.tolist() == ends
