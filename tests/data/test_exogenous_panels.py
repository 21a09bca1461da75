"""Exogenous X of panels, in pretraining and updates, searches and pipelines."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sktime.split import ExpandingWindowSplitter

from tests.controls import (
    INDEX,
    LATER,
    TRAINED,
    at,
    controls,
    largest,
    moved,
    pretrained_with_controls,
)
from tests.series import panel, tiny, waves


@pytest.fixture(scope="module")
def taught() -> Any:
    return pretrained_with_controls()


@pytest.mark.parametrize("one", [("s1",), ("north", "s1")])
def test_a_series_of_a_panel_is_forecast_from_its_own_rows_of_x(
    taught: Any, one: tuple[str, ...]
) -> None:
    y = panel()
    X = controls(y.index)
    ends = y.groupby(level=0).tail(1).index
    rows = [(key, end + pd.Timedelta(f"{m}min")) for key, end in ends for m in (4, 9)]
    future = controls(pd.MultiIndex.from_tuples(rows, names=y.index.names), shift=0.5)
    alone = taught.clone().fit(y.loc["s1"], X.loc["s1"])
    expected = alone.predict_at(future.loc["s1"].index, X=future.loc["s1"])
    if len(one) == 2:
        parts = [{"north": data, "south": data * 0} for data in (y, X, future)]
        y, X, future = (pd.concat(part, names=["region"]) for part in parts)
    mine = np.array([row[:-1] == one for row in future.index])
    forecaster = taught.clone().fit(y, X)
    forecast = forecaster.predict_at(future.index, X=future)
    np.testing.assert_allclose(forecast[mine], expected, rtol=0, atol=1e-6)
    other = forecaster.predict_at(future.index, X=moved(future, mine))
    difference = (other - forecast)["y"].abs()
    assert (difference[mine] > 1e-4).all()
    assert (difference[~mine] == 0).all()


def test_a_relative_horizon_asks_each_series_at_stamps_of_its_own() -> None:
    y = panel()
    X = controls(y.index)
    ends = {key: part.index.get_level_values(-1) for key, part in y.groupby(level=0)}
    rows = pd.MultiIndex.from_tuples(
        [
            (key, stamps[-1] + k * stamps.to_series().diff().median())
            for key, stamps in ends.items()
            for k in (1, 3)
        ],
        names=y.index.names,
    )
    forecaster = tiny(**TRAINED).fit(y, X)
    future = controls(rows)
    forecast = forecaster.predict([1, 3], X=future)
    pd.testing.assert_frame_equal(forecast, forecaster.predict_at(rows, X=future))
    with pytest.raises(ValueError, match=re.escape(f"got none at {rows[2]}")):
        forecaster.predict([1, 3], X=future.drop(rows[2]))


def test_a_panel_reads_x_whose_series_come_in_another_order() -> None:
    y = panel()
    X = controls(y.index)
    asked = tiny().fit(y).predict([1, 3]).index
    future = controls(asked)

    def reordered(data: pd.DataFrame) -> pd.DataFrame:
        return pd.concat([data.loc[[key]] for key in ("s2", "s0", "s1")])

    forecaster = tiny(**TRAINED).fit(y, X)
    forecast = forecaster.predict([1, 3], X=future)
    answer = forecaster.predict([1, 3], X=reordered(future))
    pd.testing.assert_frame_equal(answer, forecast)
    refitted = tiny(**TRAINED).fit(y, reordered(X))
    pd.testing.assert_frame_equal(refitted.predict([1, 3], X=future), forecast)


def test_update_without_training_only_appends_controls(taught: Any) -> None:
    y, X = waves(INDEX), controls(INDEX)
    expected = taught.clone().fit(y[:28], X[:28]).predict(at(INDEX[26:]), X=X)
    updated = taught.clone().fit(y[:20], X[:20])
    updated.update(y[20:24], X[20:24], update_params=False)
    updated.update(y[22:28], X, update_params=False)  # sktime repeats rows seen
    forecast = updated.predict(at(INDEX[26:]), X=X)
    pd.testing.assert_series_equal(forecast, expected)
    other = taught.clone().fit(y[:20], X[:20])
    other.update(y[20:28], moved(X, INDEX[20:28]), update_params=False)
    assert largest(other.predict(at(INDEX[28:]), X=X) - expected[2:]) > 1e-4


def test_update_trains_on_the_new_controls() -> None:
    y, X = waves(INDEX), controls(INDEX)
    forecasts = []
    for given in (X, moved(X, INDEX[18:], by=-5)):
        forecaster = tiny(lr=0.05, finetune_epochs=3).fit(y[:18], X[:18])
        forecaster.update(y[18:], given[18:])
        forecasts.append(forecaster.predict(at(INDEX[:5]), X=X[:5]))
    assert largest(forecasts[1] - forecasts[0]) > 1e-4


@pytest.mark.slow
def test_later_fits_read_columns_by_the_names_of_the_first() -> None:
    y = pd.DataFrame({"a": waves(INDEX), "b": 9 * waves(INDEX, 1)})
    X = controls(INDEX)

    def fitted_again(y: pd.DataFrame, X: pd.DataFrame) -> Any:
        family = pd.concat({"s": first_y, "t": -first_y}, names=["k", "t"])
        given = pd.concat({"s": first_X, "t": first_X}, names=["k", "t"])
        forecaster = tiny(**TRAINED, finetune_epochs=0).pretrain(family, given)
        return forecaster.fit(y[:24], X[:24])

    first_y, first_X = y[:20], X[:20]
    forecast = fitted_again(y, X).predict(at(LATER), X=X)
    swapped = fitted_again(y[["b", "a"]], X[["v", "u"]]).predict(at(LATER), X=X)
    pd.testing.assert_frame_equal(swapped[["a", "b"]], forecast)
    renamed = X.set_axis(["one", "two"], axis=1)
    by_place = fitted_again(y, renamed).predict(at(LATER), X=renamed)
    pd.testing.assert_frame_equal(by_place, forecast)
    with pytest.raises(ValueError, match=r"\['u', 'v'\]; got \['u', 'w'\]"):
        fitted_again(y, X.rename(columns={"v": "w"}))
    with pytest.raises(ValueError, match=r"as many columns as before, 2 and 2; got 2"):
        fitted_again(y, X[["u"]])


def test_update_predict_reads_x_at_every_step() -> None:
    y = waves(pd.RangeIndex(30))
    X = controls(y.index)
    cv = ExpandingWindowSplitter(fh=[1, 2], initial_window=2, step_length=4)
    forecaster = tiny(**TRAINED).fit(y[:20], X[:20])
    forecasts = forecaster.update_predict(y[20:], cv=cv, X=X, update_params=False)
    forecaster.update(y[20:22], X[20:22], update_params=False)
    expected = forecaster.predict([1, 2], X=X[22:24])
    np.testing.assert_allclose(
        np.ravel(forecasts.loc[22:23, 21]), expected, rtol=0, atol=1e-6
    )
    forecaster.update(y[22:26], X[22:26], update_params=False)
    expected = forecaster.predict([1, 2], X=X[26:28])
    np.testing.assert_allclose(
        np.ravel(forecasts.loc[26:27, 25]), expected, rtol=0, atol=1e-6
    )
