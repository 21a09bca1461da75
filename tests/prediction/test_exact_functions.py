"""On a straight line every question is answered with the line, at the right stamps.

The line is one of true elapsed time, so that a step, an hour of a change of clocks, or
a day of a month too many or too few is a wrong value; see `tests.lines` for the kinds
of index and for forecasters that have learned the line.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sktime.forecasting.base import ForecastingHorizon

from tests.lines import (
    KINDS,
    TOLERANCE,
    assert_on_line,
    fitted_on,
    learned,
    learned_on,
    of_kinds,
    on_line,
    two_columns,
)
from tests.series import FORECASTERS

TIMELIKE = (pd.DatetimeIndex, pd.TimedeltaIndex)

ALL = of_kinds()
WITH_ABSOLUTE_HORIZONS = of_kinds(
    lambda kind: not isinstance(kind.index, pd.TimedeltaIndex)
)
"""sktime's horizon holds no absolute timedeltas; `predict_at` takes them."""
WITH_DURATIONS = of_kinds(lambda kind: isinstance(kind.index, TIMELIKE))


def at(stamps: pd.Index) -> ForecastingHorizon:
    return ForecastingHorizon(stamps, is_relative=False)


@ALL
def test_the_time_unit_is_the_median_gap(name: str) -> None:
    assert fitted_on(name).time_unit_ == KINDS[name].step


@ALL
def test_an_answer_shifted_by_one_step_is_noticed(name: str) -> None:
    kind, forecaster = KINDS[name], fitted_on(name)
    late = forecaster.predict([2, 3]).set_axis(kind.steps(1, 2))
    early = forecaster.predict([1, 2]).set_axis(kind.steps(2, 3))
    for shifted in (late, early):
        with pytest.raises(AssertionError, match="Not equal to tolerance"):
            assert_on_line(shifted, shifted.index, kind.step)
    with pytest.raises(AssertionError, match="Index"):
        assert_on_line(forecaster.predict([1, 2]), kind.steps(2, 3), kind.step)


@pytest.mark.parametrize("name", [k for k, v in KINDS.items() if "days" in k])
def test_an_answer_shifted_by_an_hour_is_noticed(name: str) -> None:
    kind = KINDS[name]
    later = kind.steps(1, 2) + pd.Timedelta("1h")
    shifted = fitted_on(name).predict_at(later).set_axis(kind.steps(1, 2))
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_on_line(shifted, kind.steps(1, 2), kind.step)


@ALL
def test_steps_are_answered_at_the_stamps_they_stand_for(name: str) -> None:
    kind, forecaster = KINDS[name], fitted_on(name)
    for fh in ([1, 2, 5], np.array([5, 2, 1]), ForecastingHorizon([1, 2, 5])):
        assert_on_line(forecaster.predict(fh), kind.steps(1, 2, 5), kind.step)
    assert_on_line(forecaster.predict(range(3, 7)), kind.steps(3, 4, 5, 6), kind.step)
    assert_on_line(forecaster.predict(3), kind.steps(1, 2, 3), kind.step)
    assert_on_line(forecaster.predict([4]), kind.steps(4), kind.step)


@ALL
def test_steps_of_zero_and_less_count_back_from_the_last_stamp(name: str) -> None:
    kind = KINDS[name]
    forecast = fitted_on(name).predict([-4, -1, 0, 1])
    assert_on_line(forecast, kind.steps(-4, -1, 0, 1), kind.step)


@WITH_DURATIONS
def test_durations_are_elapsed_time_after_the_last_stamp(name: str) -> None:
    kind, forecaster = KINDS[name], fitted_on(name)
    durations = pd.to_timedelta([90, 7200, 14_400], unit="s")
    expected = kind.index[-1] + durations
    assert_on_line(forecaster.predict(durations), expected, kind.step)
    one = forecaster.predict(durations[:1])
    assert_on_line(one, expected[:1], kind.step)
    assert_on_line(forecaster.predict(durations[1]), expected[1:2], kind.step)
    assert_on_line(forecaster.predict(list(durations)), expected, kind.step)


def test_a_step_of_zero_is_the_last_stamp_though_no_month_ends_there() -> None:
    kind = KINDS["working days, a holiday missing"]
    y = on_line(kind.index, kind.step)
    forecaster = learned(y, freq=pd.offsets.MonthEnd())
    expected = pd.DatetimeIndex(["2021-03-31", "2021-04-06", "2021-04-30"])
    assert kind.index[-1] == expected[1]
    assert_on_line(forecaster.fit(y).predict([-1, 0, 1]), expected, kind.step)


@WITH_ABSOLUTE_HORIZONS
def test_stamps_after_the_last_are_answered_there(name: str) -> None:
    kind, forecaster = KINDS[name], fitted_on(name)
    asked = kind.steps(2, 6)
    assert_on_line(forecaster.predict(at(asked)), asked, kind.step)
    if not pd.api.types.is_integer_dtype(asked.dtype):  # bare integers are steps
        assert_on_line(forecaster.predict(asked), asked, kind.step)


@WITH_ABSOLUTE_HORIZONS
def test_stamps_of_the_series_itself_are_answered_there(name: str) -> None:
    kind = KINDS[name]
    assert_on_line(fitted_on(name).predict(at(kind.index)), kind.index, kind.step)


@WITH_ABSOLUTE_HORIZONS
def test_stamps_before_the_first_are_answered_there(name: str) -> None:
    kind, forecaster = KINDS[name], fitted_on(name)
    assert_on_line(forecaster.predict(at(kind.before)), kind.before, kind.step)
    around = kind.before.append(kind.index[:2]).append(kind.steps(1, 2))
    assert_on_line(forecaster.predict(at(around)), around, kind.step)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("name", [k for k in KINDS if k.startswith("uneven, unit")])
def test_stamps_may_be_asked_in_another_unit(name: str, unit: str) -> None:
    kind = KINDS[name]
    asked = kind.before.append(kind.index[[3, -1]]).append(kind.steps(1, 4))
    forecast = fitted_on(name).predict(asked.as_unit(unit))
    assert_on_line(forecast, asked.as_unit(unit), kind.step)
    assert fitted_on(name).predict([1]).index.unit == kind.index.unit


@pytest.mark.slow
@pytest.mark.parametrize("kind_of_model", FORECASTERS)
@ALL
def test_any_rows_in_any_order_are_answered_by_every_forecaster(
    name: str, kind_of_model: type
) -> None:
    kind, forecaster = KINDS[name], fitted_on(name, kind_of_model)
    rows = kind.steps(6, 1).append(kind.index[[-1, 0, 9]]).append(kind.before)
    assert_on_line(forecaster.predict_at(rows), rows, kind.step)


@ALL
def test_a_horizon_may_be_given_to_fit(name: str) -> None:
    kind = KINDS[name]
    y = on_line(kind.index, kind.step)
    forecaster = learned_on(name).fit(y, fh=[1, 4])
    assert_on_line(forecaster.predict(), kind.steps(1, 4), kind.step)
    forecast = learned_on(name).fit_predict(y, fh=[2, 3])
    assert_on_line(forecast, kind.steps(2, 3), kind.step)


@WITH_ABSOLUTE_HORIZONS
def test_an_absolute_horizon_may_be_given_to_fit(name: str) -> None:
    kind = KINDS[name]
    y = on_line(kind.index, kind.step)
    asked = kind.index[-2:].append(kind.steps(3))
    forecaster = learned_on(name).fit(y, fh=at(asked))
    assert_on_line(forecaster.predict(), asked, kind.step)
    assert_on_line(learned_on(name).fit_predict(y, fh=at(asked)), asked, kind.step)


@ALL
def test_stamps_without_a_value_count_as_the_last_ones(name: str) -> None:
    kind = KINDS[name]
    y = on_line(kind.index, kind.step)
    y.iloc[-3:] = np.nan
    forecaster = learned_on(name).fit(y)
    assert_on_line(forecaster.predict([-1, 0, 2]), kind.steps(-1, 0, 2), kind.step)


@ALL
def test_the_score_is_what_the_truth_is_off_by(name: str) -> None:
    kind, forecaster = KINDS[name], fitted_on(name)
    for stamps in (kind.steps(1, 2, 5), kind.index, kind.before):
        truth = on_line(stamps, kind.step)
        assert forecaster.score(truth) == pytest.approx(0, abs=TOLERANCE)
        assert forecaster.score(truth + 2) == pytest.approx(-2, abs=TOLERANCE)
    truth = on_line(kind.steps(1, 2), kind.step)
    with pytest.warns(UserWarning, match="score with fh is sktime's") as record:
        percentage = forecaster.score(1.25 * truth, fh=[1, 2])
    assert record[0].filename == __file__
    assert percentage == pytest.approx(0.2, abs=TOLERANCE / np.abs(truth).min())


@ALL
def test_residuals_are_what_the_observations_are_off_by(name: str) -> None:
    kind, forecaster = KINDS[name], fitted_on(name)
    for stamps in (kind.index, kind.steps(1, 2, 5), kind.before):
        y = on_line(stamps, kind.step, "load") + 5
        residuals = forecaster.predict_residuals(y)
        pd.testing.assert_index_equal(residuals.index, stamps, exact="equiv")
        np.testing.assert_allclose(residuals, 5, atol=TOLERANCE)
        assert residuals.name == "load"
    residuals = forecaster.predict_residuals()
    pd.testing.assert_index_equal(residuals.index, kind.index, exact="equiv")
    np.testing.assert_allclose(residuals, 0, atol=TOLERANCE)


def test_residuals_of_columns_are_their_own() -> None:
    kind = KINDS["uneven, unit us"]
    y = two_columns(kind.index, kind.step)
    forecaster = learned(y).fit(y)
    residuals = forecaster.predict_residuals(y[["high", "low"]] + [7, 5])
    np.testing.assert_allclose(residuals["high"], 7, atol=TOLERANCE)
    np.testing.assert_allclose(residuals["low"], 5, atol=TOLERANCE)


@pytest.mark.parametrize("fh", [[1, 2], at(pd.RangeIndex(40, 42)), None])
def test_residuals_are_the_same_whatever_horizon_was_given_to_fit(fh: Any) -> None:
    kind = KINDS["range"]
    y = on_line(kind.index, kind.step)
    forecaster = learned_on("range").fit(y, fh=fh)
    np.testing.assert_allclose(forecaster.predict_residuals(y + 5), 5, atol=TOLERANCE)
    residuals = forecaster.predict_residuals(on_line(kind.steps(1, 4), kind.step) - 2)
    np.testing.assert_allclose(residuals, -2, atol=TOLERANCE)
    np.testing.assert_allclose(forecaster.predict_residuals(), 0, atol=TOLERANCE)
