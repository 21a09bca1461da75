"""On a straight line an updated forecaster answers with the line, from its new end."""

from __future__ import annotations

import copy
import re

import numpy as np
import pandas as pd
import pytest
from sktime.split import ExpandingWindowSplitter

from sklode import AbsoluteHorizon
from sklode.data.errors import HistoryWarning
from tests.lines import (
    KINDS,
    SLOPE,
    TOLERANCE,
    assert_on_line,
    fitted_on,
    learned,
    learned_on,
    of_kinds,
    on_line,
)
from tests.series import FORECASTERS

ALL = of_kinds()


@ALL
def test_an_update_moves_the_end_that_steps_count_from(name: str) -> None:
    kind = KINDS[name]
    y = on_line(kind.index, kind.step)
    forecaster = learned_on(name).fit(y[:-9])
    forecaster.update(y[-9:-1], update_params=False)
    forecaster.update(y[-1:], update_params=True)
    assert forecaster.cutoff[0] == y.index[-1]
    assert_on_line(forecaster.predict([-1, 1, 3]), kind.steps(-1, 1, 3), kind.step)
    rows = kind.before.append(kind.index).append(kind.steps(6))
    assert_on_line(forecaster.predict_at(rows), rows, kind.step)
    residuals = forecaster.predict_residuals()
    pd.testing.assert_index_equal(residuals.index, kind.index, exact="equiv")
    np.testing.assert_allclose(residuals, 0, atol=TOLERANCE)


@pytest.mark.parametrize("kind_of_model", FORECASTERS)
def test_training_in_an_update_leaves_what_is_learned(kind_of_model: type) -> None:
    kind = KINDS["hours with gaps"]
    y = on_line(kind.index, kind.step)
    slow = {"finetune_epochs": 2, "lr": 1e-12}
    forecaster = learned(y, kind_of_model, **slow).fit(y[:-5])
    forecaster.update(y[-5:])
    assert forecaster.n_epochs_ == 2
    assert_on_line(forecaster.predict([-1, 1, 3]), kind.steps(-1, 1, 3), kind.step)


@ALL
def test_an_update_and_a_forecast_at_once_count_from_the_new_end(name: str) -> None:
    kind, forecaster = KINDS[name], fitted_on(name)
    new = on_line(kind.steps(1, 2), kind.step)
    forecast = forecaster.update_predict_single(new, fh=[1, 2], update_params=False)
    assert_on_line(forecast, kind.steps(3, 4), kind.step)
    newer = on_line(kind.steps(3), kind.step)
    assert_on_line(forecaster.update_predict_single(newer), kind.steps(4, 5), kind.step)


@ALL
def test_observations_without_a_value_move_the_end(name: str) -> None:
    kind, forecaster = KINDS[name], fitted_on(name)
    forecaster.update(on_line(kind.steps(1, 2), kind.step) * np.nan)
    assert_on_line(forecaster.predict([0, 1]), kind.steps(2, 3), kind.step)


@ALL
def test_late_observations_take_their_place(name: str) -> None:
    kind = KINDS[name]
    y = on_line(kind.index, kind.step)
    bent = y.copy()
    late = [2, 7, len(y) - 3]
    bent.iloc[late] += 4 * SLOPE
    on_time = learned_on(name).fit(bent)
    forecaster = learned_on(name).fit(bent.drop(bent.index[late]))
    rows = kind.before.append(kind.index).append(kind.steps(1, 2))
    assert_on_line(forecaster.predict_at(rows), rows, kind.step)
    forecaster.update(bent.iloc[late], update_params=False)
    expected = on_time.predict_at(rows)
    pd.testing.assert_frame_equal(forecaster.predict_at(rows), expected)
    assert (
        np.abs(expected["y"].iloc[-2:] - on_line(rows[-2:], kind.step)).min()
        > SLOPE / 4
    )
    pd.testing.assert_series_equal(forecaster.predict([1, 2]), on_time.predict([1, 2]))
    residuals = forecaster.predict_residuals()
    pd.testing.assert_index_equal(residuals.index, kind.index, exact="equiv")


@ALL
def test_a_revised_value_replaces_the_one_before(name: str) -> None:
    kind = KINDS[name]
    y = on_line(kind.index, kind.step)
    wrong = y.copy()
    wrong.iloc[[-1, -4]] += 10 * SLOPE
    forecaster = learned_on(name).fit(wrong)
    first = forecaster.predict([1])
    assert np.abs(first - on_line(first.index, kind.step)).min() > SLOPE
    message = f"values of y .* 2 of them, the first at {re.escape(str(y.index[-4]))}"
    with pytest.warns(HistoryWarning, match=message):
        forecaster.update(y.iloc[[-4, -1]], update_params=False)
    assert_on_line(forecaster.predict([1, 2]), kind.steps(1, 2), kind.step)
    np.testing.assert_allclose(forecaster.predict_residuals(), 0, atol=TOLERANCE)


@pytest.mark.slow
@ALL
def test_moving_forward_row_by_row_asks_the_next_step(name: str) -> None:
    kind, forecaster = KINDS[name], fitted_on(name)
    new = on_line(kind.steps(1, 2, 3, 4), kind.step)
    for reset, end in ((True, 0), (False, 3)):
        forecasts = forecaster.update_predict(new, reset_forecaster=reset)
        assert_on_line(forecasts, kind.steps(2, 3, 4), kind.step)
        assert_on_line(forecaster.predict([1]), kind.steps(end + 1), kind.step)


@pytest.mark.slow
@ALL
def test_moving_forward_asks_the_steps_of_a_splitter(name: str) -> None:
    kind, forecaster = KINDS[name], fitted_on(name)
    new = on_line(kind.steps(1, 2, 3, 4, 5, 6), kind.step)
    cv = ExpandingWindowSplitter(fh=[1, 2], initial_window=2, step_length=2)
    for reset, end in ((True, 0), (False, 4)):
        forecasts = forecaster.update_predict(new, cv, None, False, reset)
        assert len(forecasts.columns) == 2
        for k, seen in enumerate([2, 4]):
            forecast = forecasts.iloc[:, k].dropna()
            assert_on_line(forecast, kind.steps(seen + 1, seen + 2), kind.step)
            assert forecasts.columns.get_level_values(0)[k] == new.index[seen - 1]
        assert_on_line(forecaster.predict([1]), kind.steps(end + 1), kind.step)


@pytest.mark.slow
@ALL
def test_moving_forward_asks_the_stamps_of_the_folds(name: str) -> None:
    kind, forecaster = KINDS[name], fitted_on(name)
    new = on_line(kind.steps(1, 2, 4, 6), kind.step)
    cv = AbsoluteHorizon(ExpandingWindowSplitter(fh=[1, 2], initial_window=1))
    for reset, end in ((True, 0), (False, 2)):
        forecasts = forecaster.update_predict(new, cv, None, False, reset)
        assert len(forecasts.columns) == 2
        for k in (0, 1):
            asked = new.index[k + 1 : k + 3]
            assert_on_line(forecasts.iloc[:, k].dropna(), asked, kind.step)
        assert_on_line(forecaster.predict([1]), kind.steps(end + 1), kind.step)


@pytest.mark.parametrize("reset", [True, False])
@pytest.mark.parametrize("name", ["load", None])
def test_a_series_is_answered_by_series_of_its_name(
    name: str | None, reset: bool
) -> None:
    kind = KINDS["uneven, unit us"]
    forecaster = learned_on("uneven, unit us").fit(
        on_line(kind.index, kind.step).rename(name)
    )
    new = on_line(kind.steps(1, 2, 3), kind.step).rename(name)
    forecasts = forecaster.update_predict(new, reset_forecaster=reset)
    single = copy.deepcopy(forecaster).update_predict_single(new, [1])
    later = forecaster.predict([1]), forecaster.predict_residuals()
    for answer in (forecasts, single, *later):
        assert isinstance(answer, pd.Series)
        assert answer.name == name
