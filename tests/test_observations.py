"""From pandas to observations: rows, units, steps and normalisation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sklode.data.checks import check_index, controls_at
from sklode.data.observations import Observations
from sklode.data.ticks import default_step, future_stamps, ticks_of
from sklode.data.scaling import Timeline
from sklode.data.scaling import Normalisation
from tests.series import TINY, channels, panel, tiny, uneven_stamps, waves

NAN = float("nan")


def read(y: pd.Series | pd.DataFrame, X: pd.DataFrame | None = None) -> Observations:
    return Observations.from_frame(pd.DataFrame(y), X)


def test_rows_of_a_panel_are_gathered_by_series_and_time() -> None:
    rows = [("b", 3), ("a", 10), ("b", 5), ("a", 14), ("b", 9)]
    index = pd.MultiIndex.from_tuples(rows)
    y = pd.DataFrame({"y": [1.0, 2.0, NAN, 4.0, 5.0]}, index)
    seen = read(y)
    assert seen.keys == (("b",), ("a",))
    assert seen.ticks.tolist() == [3, 9, 10, 14]
    assert seen.values[:, 0].tolist() == [1.0, 5.0, 2.0, 4.0]
    assert seen.bounds.tolist() == [0, 2, 4]
    assert seen.lengths.tolist() == [2, 2]
    assert Timeline(2, 1000).of_rows(seen).tolist() == [0, 3, 0, 2]


def test_a_row_is_dropped_only_if_every_channel_is_missing() -> None:
    y = pd.DataFrame({"a": [0.0, NAN, NAN, 4.0], "b": [1.0, 2.0, NAN, NAN]})
    seen = read(y)
    assert seen.ticks.tolist() == [0, 1, 3]
    np.testing.assert_array_equal(seen.values, [[0, 1], [NAN, 2], [4, NAN]])


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "Float64", "Int8"])
def test_numbers_of_every_type_are_read(dtype: str) -> None:
    y = pd.Series([1, 0, 1, 1]).astype(dtype)
    assert read(y).values[:, 0].tolist() == [1.0, 0.0, 1.0, 1.0]


def test_missing_values_of_a_nullable_type_are_missing() -> None:
    y = pd.DataFrame({"a": pd.array([1, None, 0], dtype="Int64"), "b": [1.0, 2, 3]})
    np.testing.assert_array_equal(read(y).values, [[1, 1], [NAN, 2], [0, 3]])


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_ticks_of_stamps_are_nanoseconds_in_every_unit(unit: str) -> None:
    index = pd.DatetimeIndex(["1970-01-01 00:00:01", "1969-12-31 23:59"]).as_unit(unit)
    assert ticks_of(index).tolist() == [10**9, -60 * 10**9]
    assert ticks_of(index.tz_localize("UTC")).tolist() == [10**9, -60 * 10**9]
    assert ticks_of(index - index[1]).tolist() == [61 * 10**9, 0]


def test_ticks_of_periods_count_periods() -> None:
    index = pd.PeriodIndex(["2020-01", "2020-02", "2021-02"], freq="M")
    assert np.diff(ticks_of(index)).tolist() == [1, 12]


def test_later_rows_are_appended_to_the_series_of_the_same_key() -> None:
    y = panel((4, 3))
    new = read(pd.concat({"s1": y.loc["s1"] + 1}, names=["series"]))
    shifted = replace(new, ticks=new.ticks + 10**15)
    both = read(y).merged(shifted)
    assert both.keys == (("s0",), ("s1",))
    assert both.bounds.tolist() == [0, 4, 10]
    expected = [*y["y"], *(y.loc["s1"]["y"] + 1)]
    np.testing.assert_allclose(both.values[:, 0], expected)


def test_the_time_unit_is_the_median_gap_pooled_over_series() -> None:
    # gaps of 1, 2, 2 and of 9, 9: the gap between the series is none
    rows = [("a", t) for t in (0, 1, 3, 5)] + [("b", t) for t in (100, 109, 118)]
    y = pd.DataFrame({"y": 1.0}, pd.MultiIndex.from_tuples(rows))
    assert median_gap(read(y)) == 2
    assert tiny().fit(y).time_unit_ == 2


def test_the_time_unit_counts_only_stamps_with_an_observation() -> None:
    y = pd.Series(np.arange(8.0))
    y[y.index % 2 == 1] = NAN
    assert tiny().fit(y).time_unit_ == 2


def test_the_time_unit_of_stamps_is_a_length_of_time() -> None:
    y = waves(pd.date_range("2021", periods=20, freq="90s"))
    assert tiny().fit(y).time_unit_ == pd.Timedelta("90s")


DAYS = pd.DatetimeIndex(["2021-01-01", "2021-01-02", "2021-01-04", "2021-01-09"])


@pytest.mark.parametrize(
    ("index", "freq", "expected"),
    [
        (pd.RangeIndex(0, 20, 5), None, 1),
        (pd.Index([1, 5, 20]), "h", 1),
        (pd.period_range("2020", periods=5, freq="Q"), None, 1),
        (DAYS, "90min", pd.Timedelta("90min")),
        (pd.date_range("2021", periods=9, freq="MS"), None, pd.offsets.MonthBegin()),
        (pd.date_range("2021", periods=9, freq="h")._with_freq(None), None, "1h"),
        (pd.date_range("2021", periods=9, freq="YS").delete(3), None, "YS"),
        (pd.date_range("2021", periods=9, freq="B").delete(3), None, "B"),
        (DAYS, None, pd.Timedelta(days=2)),
        (DAYS[:2], None, pd.Timedelta(days=1)),
        (DAYS[:1], None, pd.Timedelta(days=1)),
        (pd.to_timedelta([0, 3, 4, 9], unit="min"), None, pd.Timedelta("3min")),
    ],
    ids=str,
)
def test_a_relative_step_is_freq_or_inferred_or_calendar_or_the_median_gap(
    index: pd.Index, freq: str | None, expected: object
) -> None:
    step = default_step(index, freq)
    if isinstance(expected, int):
        assert step == expected
        return
    if isinstance(expected, str):
        expected = pd.tseries.frequencies.to_offset(expected)
    assert index[-1] + step == index[-1] + expected


def test_stamps_at_noon_of_month_starts_step_to_noon_of_month_starts() -> None:
    index = pd.date_range("2021-01-01 12:00", periods=9, freq="MS").delete(4)
    step = default_step(index, None)
    assert future_stamps(pd.Index([1]), index[-1:], [step])[0] == pd.Timestamp(
        "2021-10-01 12:00"
    )


def test_steps_of_zero_and_less_go_back_from_the_last_stamp() -> None:
    last = pd.DatetimeIndex(["2021-03-31"])
    stamps = future_stamps(pd.Index([-1, 0, 1]), last, [pd.offsets.MonthEnd()])
    assert stamps.strftime("%m-%d").tolist() == ["02-28", "03-31", "04-30"]


def test_increasing_stamps_of_interleaved_series_are_accepted() -> None:
    rows = [("a", 5), ("b", 1), ("a", 6), ("b", 2)]
    check_index(pd.MultiIndex.from_tuples(rows))
    with pytest.raises(ValueError, match="got 5 after 6 at row 3"):
        check_index(pd.MultiIndex.from_tuples([*rows[:3], ("a", 5)]))


def test_location_and_scale_are_the_mean_and_deviation_of_what_was_observed() -> None:
    y = pd.DataFrame({"a": [1.0, 3.0, NAN, 0.0], "b": [NAN, 7.0, 7.0, 7.0]})
    measured = Normalisation.of(read(y))
    np.testing.assert_allclose(measured.location, [4 / 3, 7])
    np.testing.assert_allclose(measured.scale, [np.sqrt(14) / 3, 7])
    normalised = measured.values(read(y).values)
    np.testing.assert_allclose(np.nanmean(normalised, axis=0), 0, atol=1e-15)
    np.testing.assert_allclose(measured.original(normalised), read(y).values)


def test_location_and_scale_are_pooled_over_the_series_of_a_panel() -> None:
    y = panel()
    forecaster = tiny(normalize="series").fit(y)
    np.testing.assert_allclose(forecaster.location_, y.mean())
    np.testing.assert_allclose(forecaster.scale_, y.std(ddof=0))


def test_without_normalisation_y_is_left_as_it_is() -> None:
    forecaster = tiny(normalize=None).fit(channels())
    assert forecaster.location_.tolist() == [0, 0]
    assert forecaster.scale_.tolist() == [1, 1]


@given(exponent=st.integers(-290, 300), seed=st.integers(0, 99))
def test_values_of_any_size_are_normalised_alike(exponent: int, seed: int) -> None:
    y = waves(seed=seed)
    scaled = y * 10.0**exponent
    expected = Normalisation.of(read(y)).values(read(y).values)
    measured = Normalisation.of(read(scaled))
    np.testing.assert_allclose(measured.values(read(scaled).values), expected, 1e-9)


@pytest.mark.parametrize("level", [0.1, -1e30, 1e-30, 123456.789])
def test_the_scale_of_a_constant_channel_is_its_size(level: float) -> None:
    y = pd.Series(np.full(1000, level))
    measured = Normalisation.of(read(y))
    assert measured.location == pytest.approx(level, rel=1e-12)
    assert measured.scale == pytest.approx(abs(level), rel=1e-12)
    assert Normalisation.of(read(0 * y)).scale.tolist() == [1]


@pytest.mark.parametrize("factor", [1e-200, 1e200])
def test_huge_and_tiny_values_are_forecast_at_their_size(factor: float) -> None:
    y = waves()
    forecast = tiny().fit(factor * y).predict([1, 4])
    np.testing.assert_allclose(forecast / factor, tiny().fit(y).predict([1, 4]), 1e-5)


def test_controls_are_normalised_on_their_own() -> None:
    y = waves(uneven_stamps())
    X = pd.DataFrame({"u": np.arange(24.0), "v": 5.0}, y.index)
    measured = Normalisation.of(read(y, X))
    np.testing.assert_allclose(measured.control_location, [11.5, 5])
    np.testing.assert_allclose(measured.control_scale, [np.sqrt(575 / 12), 5])


def test_controls_are_taken_at_the_stamps_asked() -> None:
    X = pd.DataFrame({"u": [1.0, 2.0, 3.0]}, pd.Index([10, 20, 30]))
    assert controls_at(X, pd.Index([30, 10])).tolist() == [[3.0], [1.0]]
    with pytest.raises(ValueError, match="none at 25"):
        controls_at(X, pd.Index([10, 25]))


def test_settings_of_these_tests_are_not_the_defaults() -> None:
    defaults = tiny().__class__().get_params()
    assert all(defaults[name] != value for name, value in TINY.items())
