"""The forecasters inside sktime's pipelines and compositions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import StandardScaler
from sktime.forecasting.base import ForecastingHorizon
from sktime.forecasting.compose import ForecastingPipeline
from sktime.transformations.adapt import TabularToSeriesAdaptor
from sktime.transformations.boxcox import LogTransformer

from tests.series import panel, tiny, uneven_stamps, waves

# sktime's compositions warn when they are built; ours are checked elsewhere.
pytestmark = pytest.mark.filterwarnings(
    "ignore:The default of config ``remember_data``:FutureWarning"
)

INDEXES = {
    "zone": uneven_stamps().tz_localize("Europe/Paris"),
    "months": pd.period_range("2020-01", periods=24, freq="M"),
}
EVERY_INDEX = pytest.mark.parametrize("index", INDEXES.values(), ids=INDEXES.keys())


def at(index: pd.Index) -> ForecastingHorizon:
    return ForecastingHorizon(index, is_relative=False)


def same(forecast: Any, expected: Any, **kwargs: Any) -> None:
    one, other = pd.DataFrame(forecast), pd.DataFrame(expected)
    pd.testing.assert_frame_equal(one, other, check_freq=False, **kwargs)


@EVERY_INDEX
def test_a_scaler_of_scikit_learn_is_inverted_afterwards(index: pd.Index) -> None:
    y, scaler = 5 * waves(index) + 40, StandardScaler()
    both = (scaler * tiny()).fit(y)
    scaled = pd.Series(scaler.fit_transform(y.to_frame())[:, 0], index, name="y")
    alone = tiny().fit(scaled)
    mean, scale = y.mean(), y.std(ddof=0)
    same(both.predict([1, 2, 5]), alone.predict([1, 2, 5]) * scale + mean)
    expected = alone.predict_interval([1, 2], coverage=0.8) * scale + mean
    same(both.predict_interval([1, 2], coverage=0.8), expected)


@EVERY_INDEX
def test_an_updated_pipeline_forecasts_from_the_new_values(index: pd.Index) -> None:
    y = np.exp(waves(index))
    pipeline = (LogTransformer() * tiny()).fit(y[:18])
    pipeline.update(y[18:], update_params=False)
    alone = tiny().fit(np.log(y[:18])).update(np.log(y[18:]), update_params=False)
    same(pipeline.predict([1, 2]), np.exp(alone.predict([1, 2])))
    same(pipeline.predict(at(index[-3:])), np.exp(alone.predict(at(index[-3:]))))


def test_a_scaled_panel_is_scaled_series_by_series() -> None:
    y = panel()
    y.loc["s1"] = 50 * y.loc["s1"].to_numpy() + 3
    scaled = TabularToSeriesAdaptor(StandardScaler()) * tiny()
    forecast = scaled.fit(y).predict([1, 2])
    of_series = y.groupby(level=0)
    mean, scale = of_series.mean(), of_series.std(ddof=0)
    expected = tiny().fit((y - mean) / scale).predict([1, 2]) * scale + mean
    same(forecast, expected)


@EVERY_INDEX
def test_the_controls_of_a_pipeline_are_transformed(index: pd.Index) -> None:
    inner, y = LogTransformer() * tiny(), np.exp(waves(index))
    X = pd.DataFrame({"x": 9 * np.cos(np.arange(24)), "z": np.arange(24.0)}, index)
    steps = [("scale", StandardScaler()), ("forecaster", inner)]
    pipeline = ForecastingPipeline(steps).fit(y[:20], X=X[:20])
    scaled = (X - X[:20].mean()) / X[:20].std(ddof=0)
    alone = inner.clone().fit(y[:20], X=scaled[:20])
    expected = alone.predict(at(index[20:]), X=scaled[20:])
    same(pipeline.predict(at(index[20:]), X=X[20:]), expected)
    assert not np.allclose(alone.predict(at(index[20:]), X=X[20:]), expected)
