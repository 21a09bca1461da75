"""A horizon, an index, a coverage or a number of samples that asks for nothing."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sktime.forecasting.base import ForecastingHorizon

from tests.series import panel, tiny, uneven_stamps, waves

STAMPS = uneven_stamps()
LATER = STAMPS[-1] + pd.to_timedelta([5, 9], unit="min")
MONTHS = pd.period_range("2020-01", periods=24, freq="M")


@pytest.fixture(scope="module")
def fitted() -> dict[str, Any]:
    return {
        "stamps": tiny().fit(waves(STAMPS)),
        "zone": tiny().fit(waves(STAMPS.tz_localize("UTC"))),
        "months": tiny().fit(waves(MONTHS)),
        "integers": tiny().fit(waves()),
        "panel": tiny().fit(panel()),
    }


ASKING: dict[str, Callable[[Any, Any], Any]] = {
    "predict": lambda forecaster, fh: forecaster.predict(fh),
    "predict_interval": lambda forecaster, fh: forecaster.predict_interval(fh),
    "predict_var": lambda forecaster, fh: forecaster.predict_var(fh),
    "sample": lambda forecaster, fh: forecaster.sample(fh),
    "update_predict_single": lambda forecaster, fh: forecaster.update_predict_single(
        waves(LATER), fh, update_params=False
    ),
}

BAD: dict[str, tuple[Any, str]] = {
    "nothing": ([], r"fh must hold at least one step or time stamp; got none"),
    "no stamps": (LATER[:0], r"fh must hold at least one step or time stamp"),
    "twice": ([1, 3, 2, 3], r"fh must not ask for anything twice; got 3 more"),
    "a stamp twice": (LATER[[0, 1, 1]], rf"twice; got .*{LATER[1]}.* more than once"),
    "half a step": ([1, 1.5], r"whole numbers .* got 1\.5\. Part of a step is a len"),
    "NaN": ([1, np.nan], r"whole numbers of steps.* got nan"),
    "NaT": (LATER.insert(1, pd.NaT), r"index of fh must hold finite times; got NaT at"),
    "NaT as a length": (pd.to_timedelta([None, "5min"]), r"finite times; got NaT"),
    "a missing length": ([np.timedelta64("NaT")], r"fh must hold .* got np\.timedelta"),
    "a word": ("tomorrow", r"got 'tomorrow'\. Pass stamps as an index: pd\.Datet"),
    "a date as a word": (["2021-04-01"], r"got '2021-04-01'\. Pass stamps as an ind"),
    "a stamp": (LATER[0], r"got Timestamp\('2021-.*Pass stamps as an index"),
    "a date": (datetime.date(2021, 4, 1), r"got datetime\.date.*Pass stamps as an"),
    "a list of stamps": (list(LATER), r"got Timestamp.*Pass stamps as an index"),
    "a dict": ({1: 2}, r"got \{1: 2\}\. Use for example fh=\[1, 2, 3\]"),
    "a set": ({1, 2}, r"got \{1, 2\}\. Use for example"),
    "a table": (np.array([[1, 2]]), r"got array\(\[1, 2\]\)\. Use for example"),
    "True": (True, r"got True\. Use for example"),
    "a decimal": ([Decimal(1)], r"got Decimal\('1'\)\. Use for example"),
    "beyond integers": ([2**70], r"got 1180591620717411303424\."),
    "beyond datetimes": ([10**12], r"horizon must end where stamps reach.*1000000000"),
    "rows of a panel": (
        panel().index[:2],
        r"same for all series; .* predict_at\(index",
    ),
    "integers": (
        ForecastingHorizon([30], is_relative=False),
        r"the horizon must be of the kind of y's index.*got integers\. Convert it",
    ),
    "periods": (MONTHS[:2], r"got periods of frequency M\. .*index\.to_timestamp\(\)"),
    "a zone": (
        LATER.tz_localize("UTC"),
        r"got datetimes with a time zone\. .*index\.tz_convert\(zone\)\.tz_localize\(N",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_horizon_that_asks_for_nothing_is_refused(
    fitted: dict[str, Any], case: str
) -> None:
    fh, message = BAD[case]
    with pytest.raises((TypeError, ValueError), match=f"(?s){message}"):
        fitted["stamps"].predict(fh)


@pytest.mark.parametrize("name", ASKING)
@pytest.mark.parametrize("case", ["half a step", "a zone", "a list of stamps"])
def test_every_question_refuses_it(
    fitted: dict[str, Any], name: str, case: str
) -> None:
    fh, message = BAD[case]
    with pytest.raises(TypeError, match=message):
        ASKING[name](fitted["stamps"], fh)


@pytest.mark.parametrize("case", ["half a step", "a word", "twice", "a zone"])
def test_fit_refuses_it_before_training(case: str) -> None:
    fh, message = BAD[case]
    with pytest.raises((TypeError, ValueError), match=message):
        tiny(callbacks=[Never()]).fit(waves(STAMPS), fh=fh)


class Never:
    def on_fit_begin(self, forecaster: Any) -> None:
        raise AssertionError("training began")


@pytest.mark.parametrize(
    "fh",
    [
        (1, 2),
        np.array([2, 1]),
        np.array([1, 2], dtype=object),
        pd.Index([1, 2]),
        range(1, 3),
        2,
        np.int64(2),
    ],
    ids=["tuple", "unsorted", "objects", "index", "range", "number", "numpy's"],
)
def test_the_same_steps_may_be_written_in_many_ways(
    fitted: dict[str, Any], fh: Any
) -> None:
    expected = fitted["stamps"].predict([1, 2])
    pd.testing.assert_series_equal(fitted["stamps"].predict(fh), expected)


@pytest.mark.parametrize("fh", [np.timedelta64(9, "m"), datetime.timedelta(minutes=9)])
def test_lengths_of_time_may_be_those_of_other_libraries(
    fitted: dict[str, Any], fh: Any
) -> None:
    forecast = fitted["stamps"].predict(fh)
    assert list(forecast.index) == [LATER[1]]


@pytest.mark.parametrize(
    ("asked", "remedy"),
    [
        (pd.period_range("2023Q1", periods=2, freq="Q"), r"index\.asfreq\('M'\)"),
        (pd.period_range("2023-01", periods=2, freq="2M"), r"index\.asfreq\('M'\)"),
        (STAMPS[:2], r"index\.to_period\('M'\)"),
    ],
    ids=["quarters", "pairs of months", "datetimes"],
)
def test_periods_of_another_frequency_are_refused(
    fitted: dict[str, Any], asked: pd.Index, remedy: str
) -> None:
    message = rf"kind of y's index, periods of frequency M; got .*{remedy}"
    with pytest.raises(TypeError, match=message):
        fitted["months"].predict(ForecastingHorizon(asked, is_relative=False))
    with pytest.raises(TypeError, match=message):
        fitted["months"].predict_at(asked)


def test_stamps_without_a_zone_are_told_which_zone_y_has(
    fitted: dict[str, Any],
) -> None:
    message = r"got datetimes without a time zone\. Say which .*tz_localize\('UTC'\)"
    with pytest.raises(TypeError, match=message):
        fitted["zone"].predict(LATER)
    with pytest.raises(TypeError, match=message):
        fitted["zone"].predict_at(LATER)


def test_another_zone_asks_for_the_same_instants(fitted: dict[str, Any]) -> None:
    utc = LATER.tz_localize("UTC")
    berlin = utc.tz_convert("Europe/Berlin")
    forecaster = fitted["zone"]
    expected = forecaster.predict(utc)
    for forecast in (forecaster.predict(berlin), forecaster.predict_at(berlin)["y"]):
        np.testing.assert_array_equal(forecast, expected)
        assert list(forecast.index) == list(berlin)
        assert str(forecast.index.tz) == "Europe/Berlin"


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (None, r"index must be a pandas Index of time stamps; got None"),
        (list(LATER), r"index must be a pandas Index .*pd\.DatetimeIndex"),
        (LATER.insert(1, pd.NaT), r"finite times; got NaT at row 1"),
        (pd.Index(["2021-04-01"]), r"got of type str\. Convert it first.*to_datetime"),
        (panel().index[:2], r"index levels of y in fit, 1; got 2"),
    ],
    ids=["None", "list", "NaT", "words", "panel"],
)
def test_predict_at_refuses_rows_that_are_no_stamps(
    fitted: dict[str, Any], index: Any, message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=f"(?s){message}"):
        fitted["stamps"].predict_at(index)


def test_a_row_of_a_panel_without_a_key_is_refused(fitted: dict[str, Any]) -> None:
    rows = pd.MultiIndex.from_tuples([("s0", LATER[0]), (None, LATER[0])])
    with pytest.raises(ValueError, match=r"series of the horizon must have keys; .* 1"):
        fitted["panel"].predict_at(rows)


PROBABILITIES: list[tuple[Any, str]] = [
    (0, r"must lie between 0 and 1, both left out; got 0\."),
    (1.0, r"must lie between 0 and 1, both left out; got 1\.0"),
    (-0.1, r"got -0\.1"),
    ([0.5, 1.5], r"got 1\.5\. Use for example {}=0\.9"),
    ([0.5, np.nan], r"got nan"),
    ("0.9", r"{} must be a number between 0 and 1, .* got '0\.9'"),
    (True, r"got True"),
    ([[0.5]], r"got \[0\.5\]"),
    ([], r"{} must hold at least one number; got none"),
    ([0.5, 0.9, 0.5], r"{} must not hold a number twice; got 0\.5 2 times"),
]


@pytest.mark.parametrize(("value", "message"), PROBABILITIES)
def test_probabilities_are_numbers_between_0_and_1(
    fitted: dict[str, Any], value: Any, message: str
) -> None:
    forecaster = fitted["stamps"]
    with pytest.raises((TypeError, ValueError), match=message.format("coverage")):
        forecaster.predict_interval([1], coverage=value)
    with pytest.raises((TypeError, ValueError), match=message.format("alpha")):
        forecaster.predict_quantiles([1], alpha=value)


def test_probabilities_may_come_in_any_container(fitted: dict[str, Any]) -> None:
    forecaster = fitted["stamps"]
    expected = forecaster.predict_quantiles([1], alpha=[0.9, 0.1])
    for alpha in (np.array([0.9, 0.1]), (0.9, 0.1), pd.Series([0.9, 0.1])):
        table = forecaster.predict_quantiles([1], alpha=alpha)
        np.testing.assert_array_equal(table, expected)
    assert expected["y"][0.9].iloc[0] > expected["y"][0.1].iloc[0]
    default = forecaster.predict_quantiles([1])
    assert list(default["y"].columns) == [0.05, 0.95]


def test_x_of_new_series_is_a_table_over_their_stamps() -> None:
    y = waves(STAMPS)
    X = pd.DataFrame({"u": np.arange(24.0)}, STAMPS)
    forecaster = tiny().fit(y, X)
    expected = forecaster.sample_prior(STAMPS, X=X)
    pd.testing.assert_frame_equal(forecaster.sample_prior(STAMPS, X=X["u"]), expected)
    for given in (X.to_numpy(), [1.0]):
        message = rf"X must be a DataFrame over index; got {type(given).__name__}\."
        with pytest.raises(TypeError, match=message):
            forecaster.sample_prior(STAMPS, X=given)


def test_a_number_of_samples_is_a_number(
    fitted: dict[str, Any],
) -> None:
    for n in ("3", np.nan):
        with pytest.raises(
            ValueError, match=rf"n_samples .*; got {re.escape(repr(n))}"
        ):
            fitted["stamps"].sample([1], n_samples=n)
