"""Exogenous X of panels, in pretraining and updates, searches and pipelines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

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
    with pytest.raises(ValueError, match=r"y and X, \(2, 2\); got \(2, 1\)"):
        fitted_again(y, X[["u"]])
