"""What a user of any of the three forecasters can rely on."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sktime.forecasting.base import ForecastingHorizon

from sklode import LatentODELSTMForecaster, StructuralForecaster
from sklode.forecasters.base import ContinuousForecaster
from tests.series import (
    FORECASTERS,
    MOSTLY_ONE,
    channels,
    panel,
    tiny,
    uneven_stamps,
    uneven_ticks,
    waves,
    with_rows,
)

STEPS = [1, 2, 5, 9]


def at(stamps: Any) -> ForecastingHorizon:
    return ForecastingHorizon(pd.Index(stamps), is_relative=False)


def ahead(y: pd.Series, distances: Any = (10, 25, 70)) -> pd.Index:
    return y.index[-1] + pd.Index(distances)


@pytest.mark.parametrize("kind", FORECASTERS)
def test_refit_with_same_random_state_is_identical(kind: type) -> None:
    y = waves()
    forecaster = tiny(kind, max_epochs=2)
    first = forecaster.fit(y).predict(STEPS)
    pd.testing.assert_series_equal(
        forecaster.fit(y).predict(STEPS), first, check_exact=True
    )
    pd.testing.assert_series_equal(
        forecaster.clone().fit(y).predict(STEPS), first, check_exact=True
    )
    other = tiny(kind, max_epochs=2, random_state=1).fit(y).predict(STEPS)
    assert np.abs(other - first).min() > 1e-6


@pytest.mark.parametrize("kind", MOSTLY_ONE)
def test_fit_leaves_global_generators_untouched(kind: type) -> None:
    before = (random.getstate(), np.random.get_state(), torch.get_rng_state())  # noqa: NPY002
    forecaster = tiny(kind, early_stopping=True).fit(waves())
    forecaster.predict(STEPS)
    forecaster.predict_quantiles(STEPS, alpha=[0.1])
    forecaster.sample(STEPS)
    after = (random.getstate(), np.random.get_state(), torch.get_rng_state())  # noqa: NPY002
    assert after[0] == before[0]
    np.testing.assert_equal(after[1], before[1])
    assert torch.equal(after[2], before[2])


@pytest.mark.parametrize("kind", MOSTLY_ONE)
@pytest.mark.parametrize("factor", [7, 1000])
def test_rescaling_the_time_axis_changes_no_forecast(kind: type, factor: int) -> None:
    ticks = uneven_ticks()
    y, slower = waves(pd.Index(ticks)), waves(pd.Index(factor * ticks))
    stamps = np.array([ticks[5] + 3, ticks[-1], ticks[-1] + 10, ticks[-1] + 75])
    expected = tiny(kind).fit(y).predict(at(stamps))
    forecast = tiny(kind).fit(slower).predict(at(factor * stamps))
    np.testing.assert_allclose(forecast, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", MOSTLY_ONE)
def test_shifting_the_calendar_changes_no_forecast(kind: type) -> None:
    index = uneven_stamps()
    shift = pd.Timedelta(days=20_000, hours=5)
    asked = index[-1] + pd.to_timedelta([2, 31], unit="min")
    expected = tiny(kind).fit(waves(index)).predict(asked)
    forecast = tiny(kind).fit(waves(index + shift)).predict(asked + shift)
    np.testing.assert_array_equal(forecast, expected)


@pytest.mark.parametrize("kind", MOSTLY_ONE)
def test_the_same_values_at_other_gaps_give_another_forecast(kind: type) -> None:
    ticks = uneven_ticks()
    other = ticks.copy()
    other[8:16] += 5  # two gaps change, the first and the last stamp stay
    asked = at(ticks[-1] + np.array([10, 40]))
    forecasts = [
        tiny(kind, max_epochs=20, lr=0.03).fit(waves(pd.Index(t))).predict(asked)
        for t in (ticks, other)
    ]
    assert np.abs(forecasts[0] - forecasts[1]).min() > 1e-5


@pytest.mark.parametrize("kind", MOSTLY_ONE)
def test_a_row_without_any_value_changes_no_forecast(kind: type) -> None:
    y = waves()
    with_gap = with_rows(y, {y.index[2] + 5: np.nan, y.index[11] + 5: np.nan})
    asked = at([y.index[4] + 1, *ahead(y)])
    expected = tiny(kind).fit(y).predict(asked)
    forecast = tiny(kind).fit(with_gap).predict(asked)
    pd.testing.assert_series_equal(forecast, expected, check_exact=True)


def test_an_observed_zero_is_an_observation() -> None:
    y = waves()
    y.iloc[[4, 10, 20]] = 0.0
    missing = y.replace(0.0, np.nan)
    zeros, dropped = tiny().fit(y), tiny().fit(missing)
    assert zeros.location_ == pytest.approx(y.mean())
    assert dropped.location_ == pytest.approx(y.drop(y.index[[4, 10, 20]]).mean())
    asked = at(ahead(y))
    assert np.abs(zeros.predict(asked) - dropped.predict(asked)).min() > 1e-6


def test_rescaling_y_rescales_the_forecast() -> None:
    y = waves()
    settings = {"model": "paper", "max_epochs": 3}
    forecaster = tiny(**settings).fit(y)
    rescaled = tiny(**settings).fit(256 * y + 1000)
    np.testing.assert_allclose(rescaled.scale_, 256 * forecaster.scale_, rtol=1e-6)
    expected = 256 * forecaster.predict(STEPS) + 1000
    np.testing.assert_allclose(rescaled.predict(STEPS), expected, rtol=1e-5)


def test_a_channel_missing_at_a_stamp_leaves_the_other_channel_observed() -> None:
    y = channels()
    y.iloc[::2, 0] = np.nan
    y.iloc[1::2, 1] = np.nan
    forecaster = tiny(model="paper").fit(y)
    np.testing.assert_allclose(forecaster.location_, y.mean())
    changed = y.copy()
    changed.iloc[-1, 0] += 1
    forecast, other = (tiny().fit(data).predict([1]) for data in (y, changed))
    assert np.abs(forecast - other).to_numpy().max() > 1e-5


def test_names_and_columns_are_kept() -> None:
    y = waves(name="level")
    y.index.name = "when"
    forecast = tiny().fit(y).predict([1, 2])
    assert forecast.name == "level"
    assert forecast.index.name == "when"
    assert list(tiny().fit(channels()).predict([1]).columns) == ["a", "b"]
    frame = tiny().fit(y.to_frame()).predict([1, 2])
    np.testing.assert_array_equal(frame["level"], forecast)


def test_parameters_round_trip_through_clone_and_set_params() -> None:
    forecaster = LatentODELSTMForecaster(hidden_size=5, clip_norm=None, freq="D")
    parameters = forecaster.get_params()
    assert parameters["hidden_size"] == 5
    assert forecaster.clone().get_params() == parameters
    assert LatentODELSTMForecaster().set_params(**parameters).get_params() == parameters


class WithAParameter(LatentODELSTMForecaster):
    def __init__(self, damping: float = 0.5, hidden_size: int = 4) -> None:
        self.damping = damping
        super().__init__(hidden_size=hidden_size)


def test_a_subclass_may_have_parameters_of_its_own() -> None:
    forecaster = WithAParameter(0.25).set_params(hidden_size=5).clone()
    assert forecaster.get_params() == {"damping": 0.25, "hidden_size": 5}
    assert forecaster.latent_size == LatentODELSTMForecaster().latent_size


def test_no_base_class_has_one_child() -> None:
    kinds: list[type] = [ContinuousForecaster]
    for kind in kinds:  # which grows
        children: list[type] = kind.__subclasses__()
        own = [child for child in children if child.__module__.startswith("sklode.")]
        assert len(own) != 1, kind
        kinds += own
    assert {*FORECASTERS} < {*kinds}


@pytest.mark.parametrize("kind", MOSTLY_ONE)
def test_predict_repeats_itself_without_a_random_state(kind: type) -> None:
    forecaster = tiny(kind, random_state=None).fit(waves())
    for answer in ("predict_quantiles", "predict_var", "sample"):
        first = getattr(forecaster, answer)(STEPS)
        forecaster.predict([3])
        again = getattr(forecaster, answer)(STEPS)
        pd.testing.assert_frame_equal(again, first, check_exact=True)


def test_a_refit_forgets_the_series_before() -> None:
    y = waves()
    forecaster = tiny().fit(channels(uneven_stamps())).fit(y)
    expected = tiny().fit(y).predict(STEPS)
    pd.testing.assert_series_equal(forecaster.predict(STEPS), expected)


def test_score_is_minus_the_root_mean_squared_error() -> None:
    y = waves()
    forecaster = tiny().fit(y[:18])
    test = y[18:]
    error = forecaster.predict(at(test.index)) - test
    expected = -np.sqrt((error**2).mean())
    assert forecaster.score(test) == pytest.approx(expected)
    missing = with_rows(test, {test.index[-1] + 5: np.nan})
    assert forecaster.score(missing) == pytest.approx(expected)
    exact = forecaster.predict(at(test.index))
    assert forecaster.score(exact) == pytest.approx(0, abs=1e-9)
    assert forecaster.score(exact + 1) > forecaster.score(exact + 2)


@pytest.mark.parametrize("question", ["score", "predict_residuals"])
def test_an_infinite_truth_is_refused(question: str) -> None:
    y = waves()
    forecaster = tiny().fit(y[:18])
    y.iloc[20] = np.inf
    with pytest.raises(ValueError, match=r"must be finite.*; got inf"):
        getattr(forecaster, question)(y[18:])


def test_score_with_a_horizon_is_sktimes_percentage_error() -> None:
    y = waves(pd.RangeIndex(24))
    forecaster = tiny().fit(y[:18])
    forecast = forecaster.predict([1, 2, 3])
    truth = y[18:21]
    expected = float((np.abs(truth - forecast) / np.abs(truth)).mean())
    with pytest.warns(UserWarning, match=r"smaller is better\. Without fh greater is"):
        assert forecaster.score(truth, fh=[1, 2, 3]) == pytest.approx(expected)


def test_score_of_a_panel_asks_each_series_at_its_own_stamps() -> None:
    y = panel()
    train = y.groupby(level=0, group_keys=False).head(10)
    test = y.drop(train.index)
    forecaster = tiny().fit(train)
    error = forecaster.predict_at(test.index) - test
    expected = -np.sqrt((error**2).to_numpy().mean())
    assert forecaster.score(test) == pytest.approx(expected)


@pytest.mark.parametrize("kind", [LatentODELSTMForecaster, StructuralForecaster])
@pytest.mark.parametrize("y", [channels(), panel()], ids=["channels", "panel"])
def test_fitted_parameters_are_told_to_sktime(kind: Any, y: Any) -> None:
    settings = {"max_epochs": 1} if kind is LatentODELSTMForecaster else {}
    told = kind(**settings).fit(y).get_fitted_params()
    assert "components" in told
