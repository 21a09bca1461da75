"""On a straight line every question is answered with the line, at the right stamps."""

from __future__ import annotations

import copy
import re

import numpy as np
import pandas as pd
import pytest
from sktime.forecasting.base import ForecastingHorizon
from sktime.split import ExpandingWindowSplitter

from sklode import AbsoluteHorizon
from sklode.data.errors import HistoryWarning
from tests.lines import (
    KINDS,
    SLOPE,
    TOLERANCE,
    assert_on_line,
    fitted_on,
    of_kinds,
    on_line,
    straight,
)


def at(stamps: pd.Index) -> ForecastingHorizon:
    return ForecastingHorizon(stamps, is_relative=False)


@of_kinds
def test_steps_are_answered_at_the_stamps_they_stand_for(name: str) -> None:
    kind, forecaster = KINDS[name], fitted_on(name)
    for fh in ([1, 2, 5], np.array([5, 2, 1]), ForecastingHorizon([1, 2, 5])):
        assert_on_line(forecaster.predict(fh), kind.steps(1, 2, 5), kind.step)
    assert_on_line(forecaster.predict(3), kind.steps(1, 2, 3), kind.step)
    back = forecaster.predict([-4, -1, 0, 1])
    assert_on_line(back, kind.steps(-4, -1, 0, 1), kind.step)
    late = forecaster.predict([2, 3]).set_axis(kind.steps(1, 2))
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_on_line(late, kind.steps(1, 2), kind.step)


@of_kinds
def test_stamps_are_answered_there(name: str) -> None:
    kind, forecaster = KINDS[name], fitted_on(name)
    rows = kind.before.append(kind.index).append(kind.steps(2, 6))
    assert_on_line(forecaster.predict_at(rows), rows, kind.step)
    order = np.random.default_rng(0).permutation(len(rows))
    answer = forecaster.predict_at(rows[order])
    assert_on_line(answer, rows[order], kind.step)
    if not isinstance(rows, pd.TimedeltaIndex):  # which sktime's horizon takes as steps
        assert_on_line(forecaster.predict(at(rows)), rows, kind.step)
        fitted = straight().fit(on_line(kind.index, kind.step), fh=at(kind.steps(2)))
        assert_on_line(fitted.predict(), kind.steps(2), kind.step)


@of_kinds
def test_durations_are_elapsed_time_after_the_last_stamp(name: str) -> None:
    kind = KINDS[name]
    if not isinstance(kind.index, pd.DatetimeIndex | pd.TimedeltaIndex):
        return
    durations = pd.to_timedelta([5, 90, 400], unit="s")
    expected = kind.index[-1] + durations
    assert_on_line(fitted_on(name).predict(durations), expected, kind.step)


def test_a_step_of_zero_is_the_last_stamp_though_no_month_ends_there() -> None:
    kind = KINDS["working days, a holiday missing"]
    forecaster = straight(freq=pd.offsets.MonthEnd())
    expected = pd.DatetimeIndex(["2021-03-31", "2021-04-06", "2021-04-30"])
    assert kind.index[-1] == expected[1]
    forecast = forecaster.fit(on_line(kind.index, kind.step)).predict([-1, 0, 1])
    assert_on_line(forecast, expected, kind.step)


@of_kinds
def test_residuals_and_score_are_what_the_truth_is_off_by(name: str) -> None:
    kind, forecaster = KINDS[name], fitted_on(name)
    for stamps in (kind.index, kind.steps(1, 3), kind.before):
        truth = on_line(stamps, kind.step) + 5
        residuals = forecaster.predict_residuals(truth)
        pd.testing.assert_index_equal(residuals.index, stamps, exact="equiv")
        np.testing.assert_allclose(residuals, 5, atol=TOLERANCE)
        assert forecaster.score(truth) == pytest.approx(-5, abs=TOLERANCE)


@of_kinds
def test_an_update_moves_the_end_that_steps_count_from(name: str) -> None:
    kind = KINDS[name]
    y = on_line(kind.index, kind.step)
    forecaster = straight().fit(y[:-9])
    forecaster.update(y[-9:-1], update_params=False)
    forecaster.update(y[-1:], update_params=True)
    assert forecaster.cutoff[0] == y.index[-1]
    assert_on_line(forecaster.predict([-1, 1, 3]), kind.steps(-1, 1, 3), kind.step)
    new = on_line(kind.steps(1, 2), kind.step)
    forecast = forecaster.update_predict_single(new, fh=[1, 2], update_params=False)
    assert_on_line(forecast, kind.steps(3, 4), kind.step)
    forecaster.update(on_line(kind.steps(3), kind.step) * np.nan)  # moves the end
    assert_on_line(forecaster.predict([0, 1]), kind.steps(3, 4), kind.step)


@of_kinds
def test_late_and_revised_observations_take_their_place(name: str) -> None:
    kind = KINDS[name]
    y = on_line(kind.index, kind.step)
    wrong = y.copy()
    wrong.iloc[[-1, -4]] += 10 * SLOPE
    late = [2, 7, len(y) - 3]
    forecaster = straight().fit(wrong.drop(wrong.index[late]))
    message = f"values of y .*: 2 of them, the first at {re.escape(str(y.index[-4]))}"
    with pytest.warns(HistoryWarning, match=message):
        forecaster.update(y.iloc[[-4, -1]], update_params=False)
    forecaster.update(y.iloc[late], update_params=False)
    assert forecaster.cutoff[0] == y.index[-1]
    pd.testing.assert_frame_equal(
        forecaster._history.frame().set_axis(["y"], axis=1),
        y.to_frame("y"),
        check_freq=False,
        check_index_type=False,
    )


@of_kinds
def test_moving_forward_asks_after_each_fold(name: str) -> None:
    kind, forecaster = KINDS[name], fitted_on(name)
    new = on_line(kind.steps(1, 2, 3, 4, 5, 6), kind.step)
    cv = ExpandingWindowSplitter(fh=[1, 2], initial_window=2, step_length=2)
    for reset, end in ((True, 0), (False, 4)):
        forecasts = forecaster.update_predict(new, cv, None, False, reset)
        for k, seen in enumerate([2, 4]):
            forecast = forecasts.iloc[:, k].dropna()
            assert_on_line(forecast, kind.steps(seen + 1, seen + 2), kind.step)
            assert forecasts.columns.get_level_values(0)[k] == new.index[seen - 1]
        assert_on_line(forecaster.predict([1]), kind.steps(end + 1), kind.step)
    absolute = AbsoluteHorizon(ExpandingWindowSplitter(fh=[1, 2], initial_window=1))
    few = on_line(kind.steps(1, 2, 4, 6), kind.step)
    forecasts = fitted_on(name).update_predict(few, absolute, None, False)
    for k in (0, 1):
        queries = few.index[k + 1 : k + 3]
        assert_on_line(forecasts.iloc[:, k].dropna(), queries, kind.step)


@pytest.mark.parametrize("name", ["load", None])
def test_a_series_is_answered_by_series_of_its_name(name: str | None) -> None:
    kind = KINDS["uneven, unit us"]
    forecaster = straight().fit(on_line(kind.index, kind.step).rename(name))
    new = on_line(kind.steps(1, 2, 3), kind.step).rename(name)
    forecasts = forecaster.update_predict(new)
    single = copy.deepcopy(forecaster).update_predict_single(new, [1])
    later = forecaster.predict([1]), forecaster.predict_residuals()
    for answer in (forecasts, single, *later):
        assert isinstance(answer, pd.Series)
        assert answer.name == name
