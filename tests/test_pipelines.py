"""The forecasters inside sktime's pipelines and compositions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sktime.forecasting.base import ForecastingHorizon
from sktime.forecasting.compose import (
    EnsembleForecaster,
    ForecastByLevel,
    ForecastingPipeline,
    TransformedTargetForecaster,
)
from sktime.transformations.adapt import TabularToSeriesAdaptor
from sktime.transformations.boxcox import LogTransformer

from sklode import LatentODEForecaster, LatentODELSTMForecaster
from tests.series import panel, tiny, uneven_stamps, waves

# sktime's compositions warn when they are built; ours are checked elsewhere.
pytestmark = pytest.mark.filterwarnings(
    "ignore:The default of config ``remember_data``:FutureWarning"
)

MONTHS = pd.period_range("2020-01", periods=24, freq="M")
INDEXES = {
    "datetimes": uneven_stamps(),
    "zone": uneven_stamps().tz_localize("Europe/Paris"),
    "months": MONTHS,
    "range": pd.RangeIndex(24),
}
EVERY_INDEX = pytest.mark.parametrize("index", INDEXES.values(), ids=INDEXES.keys())
PAIR = [("plain", LatentODEForecaster), ("lstm", LatentODELSTMForecaster)]


def pair() -> list[tuple[str, Any]]:
    return [(name, tiny(kind)) for name, kind in PAIR]


def at(index: pd.Index) -> ForecastingHorizon:
    return ForecastingHorizon(index, is_relative=False)


def same(forecast: Any, expected: Any, **kwargs: Any) -> None:
    compare = (
        pd.testing.assert_series_equal
        if isinstance(expected, pd.Series)
        else pd.testing.assert_frame_equal
    )
    compare(forecast, expected, check_freq=False, **kwargs)


@pytest.mark.slow
@EVERY_INDEX
@pytest.mark.parametrize("scaler", [StandardScaler(), MinMaxScaler((2, 5))])
def test_a_scaler_of_scikit_learn_is_inverted_after_the_forecast(
    index: pd.Index, scaler: Any
) -> None:
    y = 5 * waves(index) + 40
    both = (scaler * tiny()).fit(y)
    assert isinstance(both, TransformedTargetForecaster)
    scaled = pd.Series(scaler.fit_transform(y.to_frame())[:, 0], index, name="y")
    alone = tiny().fit(scaled)
    forecast = alone.predict([1, 2, 5]).to_frame()
    expected = pd.Series(
        scaler.inverse_transform(forecast)[:, 0], forecast.index, name="y"
    )
    same(both.predict([1, 2, 5]), expected)
    low, high = alone.predict_interval([1, 2], coverage=0.8).to_numpy().T
    interval = both.predict_interval([1, 2], coverage=0.8).to_numpy()
    for column, bound in enumerate((low, high)):
        back = scaler.inverse_transform(pd.DataFrame({"y": bound}))[:, 0]
        np.testing.assert_allclose(interval[:, column], back)


@pytest.mark.slow
@EVERY_INDEX
def test_a_logarithm_is_inverted_after_the_forecast(index: pd.Index) -> None:
    y = np.exp(waves(index))
    pipeline = TransformedTargetForecaster(
        [("log", LogTransformer()), ("forecaster", tiny())]
    ).fit(y)
    alone = tiny().fit(np.log(y))
    same(pipeline.predict([1, 2, 5]), np.exp(alone.predict([1, 2, 5])))
    same(pipeline.predict(at(index[-3:])), np.exp(alone.predict(at(index[-3:]))))
    pipeline.set_params(forecaster__hidden_size=5).fit(y)
    same(pipeline.predict([1]), np.exp(tiny(hidden_size=5).fit(np.log(y)).predict([1])))


@EVERY_INDEX
def test_an_updated_pipeline_forecasts_from_the_new_values(index: pd.Index) -> None:
    y = np.exp(waves(index))
    pipeline = (LogTransformer() * tiny()).fit(y[:18])
    pipeline.update(y[18:], update_params=False)
    alone = tiny().fit(np.log(y[:18])).update(np.log(y[18:]), update_params=False)
    same(pipeline.predict([1, 2]), np.exp(alone.predict([1, 2])))


def test_a_scaled_panel_is_scaled_series_by_series() -> None:
    y = panel()
    y.loc["s1"] = 50 * y.loc["s1"].to_numpy() + 3
    forecast = (
        (TabularToSeriesAdaptor(StandardScaler()) * tiny()).fit(y).predict([1, 2])
    )
    of_series = y.groupby(level=0)
    mean, scale = of_series.mean(), of_series.std(ddof=0)
    expected = tiny().fit((y - mean) / scale).predict([1, 2]) * scale + mean
    same(forecast, expected)


@pytest.mark.slow
@EVERY_INDEX
def test_an_ensemble_is_the_mean_of_its_members(index: pd.Index) -> None:
    y = waves(index)
    ensemble = EnsembleForecaster(pair()).fit(y[:20])
    members = [tiny(kind).fit(y[:20]) for _, kind in PAIR]
    for fh in ([1, 2, 5], at(index[20:])):
        same(ensemble.predict(fh), sum(one.predict(fh) for one in members) / 2)
    ensemble.update(y[20:], update_params=False)
    for one in members:
        one.update(y[20:], update_params=False)
    same(ensemble.predict([1, 2]), sum(one.predict([1, 2]) for one in members) / 2)
    weighted = EnsembleForecaster(pair(), weights=[3, 1]).fit(y)
    plain, lstm = (tiny(kind).fit(y).predict([1, 2]) for _, kind in PAIR)
    same(weighted.predict([1, 2]), (3 * plain + lstm) / 4)


def test_each_series_of_a_panel_may_have_a_forecaster_of_its_own() -> None:
    y = panel()
    forecast = ForecastByLevel(tiny(), "local").fit(y).predict([1, 2])
    keys = y.index.unique(0)
    alone = {key: tiny().fit(y.loc[key]).predict([1, 2]) for key in keys}
    same(forecast, pd.concat(alone, names=["series"]), check_names=False)
    together = ForecastByLevel(tiny(), "global").fit(y).predict([1, 2])
    same(together, tiny().fit(y).predict([1, 2]))
    assert not np.allclose(together, forecast)


def test_an_update_without_new_stamps_changes_no_forecast() -> None:
    y = waves(uneven_stamps())
    forecaster = tiny().fit(y)
    before = forecaster.predict([1, 2])
    for _ in range(2):
        forecaster.update(y[-3:], update_params=False)
    same(forecaster.predict([1, 2]), before)


@pytest.mark.slow
@EVERY_INDEX
@pytest.mark.parametrize("logged", [False, True])
def test_the_controls_of_a_pipeline_are_transformed(
    index: pd.Index, logged: bool
) -> None:
    inner = LogTransformer() * tiny() if logged else tiny()
    y = np.exp(waves(index))
    X = pd.DataFrame({"x": 9 * np.cos(np.arange(24)), "z": np.arange(24.0)}, index)
    steps = [("scale", StandardScaler()), ("forecaster", inner)]
    pipeline = ForecastingPipeline(steps).fit(y[:20], X=X[:20])
    scaled = (X - X[:20].mean()) / X[:20].std(ddof=0)
    alone = inner.clone().fit(y[:20], X=scaled[:20])
    expected = alone.predict(at(index[20:]), X=scaled[20:])
    same(pipeline.predict(at(index[20:]), X=X[20:]), expected)
    assert not np.allclose(alone.predict(at(index[20:]), X=X[20:]), expected)
