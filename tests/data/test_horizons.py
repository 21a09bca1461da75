"""Every kind of index, the stamps that a horizon on it stands for, and what is none."""

from __future__ import annotations

import datetime
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler
from sktime.forecasting.base import ForecastingHorizon

from sklode import StructuralForecaster
from sklode.data.steps import default_step, future_stamps
from sklode.data.ticks import rows_before, stamps_of, ticks_between, ticks_of
from tests.controls import at
from tests.series import channels, panel, tiny, uneven_stamps, waves

N = 20
BERLIN = "Europe/Berlin"
INT64 = st.integers(-(2**63), 2**63 - 1)


def stamps(*texts: str, tz: str | None = None) -> pd.DatetimeIndex:
    return pd.DatetimeIndex(texts).tz_localize(tz)


def dates(start: str, freq: str, hole: int | None = None, **kwargs: Any) -> Any:
    index = pd.date_range(start, periods=N, freq=freq, **kwargs)
    return index if hole is None else index.delete(hole)


def periods(start: str, freq: str, n: int = N) -> pd.PeriodIndex:
    return pd.period_range(start, periods=n, freq=freq)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_ticks_of_stamps_are_nanoseconds_in_every_unit(unit: str) -> None:
    index = pd.DatetimeIndex(["1970-01-01 00:00:01", "1969-12-31 23:59"]).as_unit(unit)
    assert ticks_of(index).tolist() == [10**9, -60 * 10**9]
    assert ticks_of(index.tz_localize("UTC")).tolist() == [10**9, -60 * 10**9]
    assert ticks_of(index - index[1]).tolist() == [61 * 10**9, 0]
    for like in (index, index.tz_localize(BERLIN), index - index[1]):
        pd.testing.assert_index_equal(stamps_of(ticks_of(like), like[:1]), like)
    finer = stamps_of(np.array([10**9 + 1]), index)
    assert ticks_of(finer).tolist() == [10**9 + 1]


def test_ticks_of_periods_count_periods() -> None:
    index = pd.PeriodIndex(["2020-01", "2020-02", "2021-02"], freq="M")
    assert np.diff(ticks_of(index)).tolist() == [1, 12]
    pd.testing.assert_index_equal(stamps_of(ticks_of(index), index[:0]), index)


@given(start=INT64, stop=INT64)
@example(start=-(2**63), stop=2**63 - 1)
@example(start=3 * 2**61, stop=-(2**62))
def test_any_two_ticks_are_as_far_apart_as_they_are(start: int, stop: int) -> None:
    found = ticks_between(np.array([start]), np.array([stop]))
    assert found.tolist() == [float(stop - start)]


def test_the_row_before_is_the_last_one_of_the_series_up_to_a_stamp() -> None:
    # rows 0 to 2 of one series, 3 and 4 of another
    bounds, known = np.array([0, 3, 5]), np.array([10, 20, 30, 5, 15])
    series = np.array([0, 0, 1, 1, 0, 1])
    asked = np.array([20, 29, 100, 14, 9, 4])
    assert rows_before(bounds, known, series, asked).tolist() == [1, 1, 4, 3, -1, 2]
    first = series == 0  # a lone series
    lone = rows_before(bounds[:2], known[:3], series[first], asked[first])
    assert lone.tolist() == [1, 1, -1]


# name: (the index of y, the steps, the stamps that they stand for)
INDEXES: dict[str, tuple[pd.Index, list[int], pd.Index]] = {
    "threes": (pd.RangeIndex(5, 65, 3), [1, 3], pd.Index([63, 65])),
    "three months at a time": (
        periods("2020-01", "3M", N + 3).delete([3, 9, 10]),
        [-1, 1, 2],
        pd.PeriodIndex(["2025-04", "2025-10", "2026-01"], freq="3M"),
    ),
    "month ends, one missing": (
        dates("2020-01-31", "ME", 7),
        [-1, 1, 6],
        stamps("2021-07-31", "2021-09-30", "2022-02-28"),
    ),
    "first working days of months, one missing": (
        dates("2020-01-01", "BMS", 7),
        [1, 2],
        stamps("2021-09-01", "2021-10-01"),
    ),
    "working days, a holiday missing": (
        dates("2021-03-01", "B", 7),
        [1, 2, 6],
        stamps("2021-03-29", "2021-03-30", "2021-04-05"),
    ),
    "days into summer time": (
        dates("2021-03-08 12:00", "D", tz=BERLIN),  # up to the day before
        [1, 2],
        stamps("2021-03-28 12:00", "2021-03-29 12:00", tz=BERLIN),
    ),
    "uneven days": (  # gaps of 1 2 3 1 5 1 3, in the middle: 2
        pd.Timestamp("2021-01-01")
        + pd.to_timedelta([0, 1, 3, 6, 7, 12, 13, 16], unit="D"),
        [1, 2],
        stamps("2021-01-19", "2021-01-21"),
    ),
    "timedeltas": (
        pd.to_timedelta(np.r_[np.arange(N - 1), 40], unit="h"),
        [1, 5],
        pd.to_timedelta([41, 45], unit="h"),
    ),
}


@pytest.mark.parametrize("name", INDEXES)
def test_relative_steps_stand_for_these_stamps(name: str) -> None:
    index, steps, expected = INDEXES[name]
    steps_of_index = [default_step(index, None)]
    found, ticks = future_stamps(pd.Index(steps), index[-1:], steps_of_index)
    assert ticks.tolist() == ticks_of(found).tolist()
    if isinstance(expected, pd.DatetimeIndex | pd.TimedeltaIndex):
        expected = expected.as_unit(index.unit)
    pd.testing.assert_index_equal(found, expected, exact="equiv", check_names=False)


@pytest.mark.parametrize("name", ["threes", "timedeltas", "uneven days"])
def test_stamps_have_one_forecast_however_they_are_asked(name: str) -> None:
    index, steps, expected = INDEXES[name]
    forecaster = tiny().fit(waves(index))
    forecast = forecaster.predict(fh=steps)
    pd.testing.assert_index_equal(forecast.index, expected, exact="equiv")
    pd.testing.assert_series_equal(forecaster.predict_at(expected), forecast)
    if not isinstance(index, pd.TimedeltaIndex):  # of which sktime holds no absolute
        np.testing.assert_array_equal(forecaster.predict(at(expected)), forecast)


@pytest.mark.parametrize(
    ("freq", "expected"),
    [
        ("36h", stamps("2021-02-02 12:00", "2021-02-04")),
        (pd.Timedelta("36h"), stamps("2021-02-02 12:00", "2021-02-04")),
        (pd.offsets.MonthEnd(), stamps("2021-02-28", "2021-03-31")),
        ("W-WED", stamps("2021-02-03", "2021-02-10")),
    ],
)
def test_freq_sets_the_relative_step(freq: Any, expected: pd.Index) -> None:
    days = [0, 1, 3, 6, 7, 12, 13, 31]
    index = pd.Timestamp("2021-01-01") + pd.to_timedelta(days, unit="D")
    forecast = tiny(freq=freq).fit(waves(index)).predict([0, 1, 2])
    # whatever the step, none is the last stamp
    expected = index[-1:].append(expected)
    pd.testing.assert_index_equal(forecast.index, expected, exact="equiv")


def test_a_freq_without_a_fixed_length_is_refused_over_timedeltas() -> None:
    y = waves(pd.to_timedelta(np.arange(N), unit="h"))
    with pytest.raises(ValueError, match=r"must have a fixed length .* got 'MS'\. Use"):
        tiny(freq="MS").fit(y)


@pytest.mark.parametrize("freq", ["D", "ME"])
@pytest.mark.parametrize(
    "fh", [10**9, range(1, 10**9), pd.RangeIndex(1, 10**9), [10**5], [10**12]]
)
def test_a_horizon_beyond_stamps_is_refused_before_it_takes_memory(
    fh: Any, freq: str
) -> None:
    forecaster = StructuralForecaster(seasons=None).fit(
        waves(dates("2021-01-01", freq))
    )
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"where stamps reach.*got step \d+ after"):
        forecaster.predict(fh)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 10**7


@pytest.mark.parametrize("step", [213_504, -200_000, 10**12])
def test_steps_beyond_what_an_index_reaches_are_refused(step: int) -> None:
    last = dates("2021-01-01", "D")[-1:]
    with pytest.raises(ValueError, match=f"where stamps reach.*got step {step} after"):
        future_stamps(pd.Index([1, step]), last, [pd.Timedelta("1D")])


STAMPS = uneven_stamps()
LATER = STAMPS[-1] + pd.to_timedelta([5, 9], unit="min")
MONTHS = periods("2020-01", "M")


@pytest.fixture(scope="module")
def fitted() -> Any:
    return tiny().fit(waves(STAMPS))


STEPS = r"whole numbers of steps, lengths of time, or be an index of time stamps; got "
BAD: dict[str, tuple[Any, str]] = {
    "nothing": ([], r"fh must hold at least one step or .*; got none"),
    "twice": ([1, 3, 2, 3], r"and none twice; got 3 more than once"),
    "half a step": ([1, 1.5], STEPS + r"1\.5\. Use .* pd\.Timedelta\('90min'\)"),
    "NaT": (LATER.insert(1, pd.NaT), r"index of fh must hold finite times; got NaT at"),
    "stamps and steps": ([LATER[0], 3], STEPS + r"Timestamp.* pd\.DatetimeIndex"),
    "a series": (waves(LATER), r"got a Series\. .* predict_at\(table\.index\)"),
    "dates": (pd.Series(LATER), r"a Series\. .* predict_at\(pd\.DatetimeIndex\(table"),
    "an offset": ([pd.offsets.MonthEnd()], STEPS + r"<MonthEnd>"),
    "another freq": (
        ForecastingHorizon([5, 9], freq="min"),
        r"as long as one of the forecaster; got a horizon with freq='min'.*Pass freq",
    ),
    "beyond datetimes": ([10**12], r"horizon must end where stamps reach.*1000000000"),
    "rows of a panel": (panel().index[:2], r"same for all series; .*get_level_values"),
    "a zone": (LATER.tz_localize("UTC"), r"got datetimes with a time zone\. .*tz_conv"),
}
ASKING: dict[str, Callable[[Any, Any], Any]] = {
    "predict": lambda f, fh: f.predict(fh),
    "interval": lambda f, fh: f.predict_interval(fh),
    "quantiles": lambda f, fh: f.predict_quantiles(fh),
    "variance": lambda f, fh: f.predict_var(fh),
    "paths": lambda f, fh: f.sample(fh),
    "update": lambda f, fh: f.update_predict_single(waves(LATER), fh, None, False),
    "fit": lambda f, fh: tiny(hidden_size=0).fit(waves(STAMPS), fh=fh),
}


@pytest.mark.parametrize("case", BAD)
def test_a_horizon_that_asks_for_nothing_is_refused(fitted: Any, case: str) -> None:
    fh, message = BAD[case]
    with pytest.raises((TypeError, ValueError), match=f"(?s){message}"):
        fitted.predict(fh)


def test_steps_that_look_like_stamps_are_told() -> None:
    y = pd.Series(np.arange(60.0), range(1960, 2020))
    with pytest.warns(UserWarning, match="after the last of y, 2019; got 2020 steps"):
        assert tiny().fit(y).predict([2020]).index[0] == 4039


@pytest.mark.parametrize("question", ASKING)
def test_every_question_refuses_it(fitted: Any, question: str) -> None:
    fh, message = BAD["half a step"]
    with pytest.raises(TypeError, match=message):
        ASKING[question](fitted, fh)


SAME: dict[str, tuple[Any, Any]] = {
    "timedelta": (datetime.timedelta(minutes=9), LATER[1:]),
    "timedeltas": (pd.to_timedelta([5, 9], unit="min"), LATER),
    "sktime's own": (ForecastingHorizon([1, 2]), [1, 2]),
}


@pytest.mark.parametrize("case", SAME)
def test_one_horizon_may_be_written_in_many_ways(fitted: Any, case: str) -> None:
    fh, other = SAME[case]
    pd.testing.assert_series_equal(fitted.predict(fh), fitted.predict(other))


def test_a_horizon_serves_series_of_different_steps() -> None:
    fh = ForecastingHorizon([1, 2])
    for freq in ("h", "D"):
        y = waves(pd.date_range("2021-01-01", periods=24, freq=freq))
        forecaster = tiny().fit(y)
        pd.testing.assert_series_equal(
            forecaster.predict(fh), forecaster.predict([1, 2])
        )
        assert fh.freq is None


@pytest.mark.filterwarnings("ignore:The default of config:FutureWarning")
def test_a_pipeline_updated_by_a_lone_row_keeps_its_horizon() -> None:
    y = waves(pd.date_range("2021-01-01", periods=24, freq="D", tz=BERLIN))
    pipeline = StandardScaler() * tiny()
    pipeline.fit(y[:23], fh=[1, 2]).update(y.iloc[[23]], update_params=False)
    expected = pd.date_range("2021-01-25", periods=2, tz=BERLIN)
    assert list(pipeline.predict().index) == list(expected)


def test_another_zone_asks_for_the_same_instants() -> None:
    utc = LATER.tz_localize("UTC")
    forecaster = tiny().fit(waves(STAMPS.tz_localize("UTC")))
    expected = forecaster.predict(utc)
    berlin = utc.tz_convert(BERLIN)
    for forecast in (forecaster.predict(berlin), forecaster.predict_at(berlin)):
        np.testing.assert_array_equal(forecast, expected)
        pd.testing.assert_index_equal(forecast.index, berlin)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (list(LATER), r"index must be a pandas Index .*pd\.DatetimeIndex"),
        (LATER.insert(1, pd.NaT), r"finite times; got NaT at row 1"),
        (panel().index[:2], r"index levels of y in fit, 1; got 2"),
    ],
    ids=["list", "NaT", "panel"],
)
def test_predict_at_refuses_rows_that_are_no_stamps(
    fitted: Any, index: Any, message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=f"(?s){message}"):
        fitted.predict_at(index)
    if isinstance(index, pd.DatetimeIndex):
        with pytest.raises(ValueError, match=message):
            fitted.score(pd.Series(1.0, index))


def test_predict_at_keeps_the_order_asked_and_repeats() -> None:
    forecaster = tiny().fit(channels(STAMPS))
    asked = stamps("2021-03-05", "2021-03-01 00:30", "2021-03-05", "2021-02-27")
    forecast = forecaster.predict_at(asked)
    pd.testing.assert_index_equal(forecast.index, asked)
    ordered = forecaster.predict(asked.unique().sort_values())
    np.testing.assert_allclose(forecast, ordered.loc[asked], rtol=1e-6)
    assert forecaster.predict_at(asked[:0]).shape == (0, 2)


def test_each_series_of_a_panel_has_its_own_default_step() -> None:
    freqs = {"quick": "min", "slow": "D", "months": "MS"}
    parts = {
        key: waves(pd.date_range("2021-01-01", periods=12, freq=freq)).to_frame()
        for key, freq in freqs.items()
    }
    # of few stamps: the step of the longest series, which is the quick one
    parts["lone"] = parts["slow"][-1:]
    parts["quick"] = waves(pd.date_range("2021-01-01", periods=13, freq="min"))
    y = pd.concat({key: pd.DataFrame(part) for key, part in parts.items()})
    forecaster = tiny().fit(y.drop("months"))
    forecaster.update(y.loc[["months"]], update_params=False)
    assert dict(forecaster.predict([2]).index.tolist()) == {
        "quick": pd.Timestamp("2021-01-01 00:14"),
        "slow": pd.Timestamp("2021-01-14"),
        "months": pd.Timestamp("2022-02-01"),
        "lone": pd.Timestamp("2021-01-12 00:02"),
    }
