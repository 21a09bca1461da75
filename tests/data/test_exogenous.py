"""Exogenous X: read with every observation and at every stamp that is asked."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.cases import mostly_slow
from tests.controls import (
    INDEX,
    LATER,
    PAST,
    TRAINED,
    at,
    controls,
    forecaster_with_controls,
    largest,
    moved,
    pretrained_with_controls,
)
from tests.series import MOSTLY_ONE, panel, tiny, waves


@pytest.fixture(scope="module")
def trained() -> Any:
    return forecaster_with_controls()


@pytest.mark.parametrize("kind", MOSTLY_ONE)
def test_a_control_acts_after_the_stamp_before_its_own(kind: type) -> None:
    y = waves(pd.RangeIndex(0, 240, 10))
    stamps = pd.Index(y.index[-1] + 30 * np.arange(1, 8))  # three time units apart
    X = controls(stamps)
    forecaster = tiny(kind, **TRAINED, model="paper").fit(y, controls(y.index))
    forecast = forecaster.predict(at(stamps), X=X)
    other = forecaster.predict(at(stamps), X=moved(X, stamps[3]))
    difference = np.abs(other - forecast).to_numpy()
    np.testing.assert_array_equal(difference[:3], 0)
    assert (difference[3:] > 1e-5).all()


def test_rows_of_x_on_the_way_to_a_far_stamp_count() -> None:
    y = waves(pd.RangeIndex(24))
    forecaster = tiny(**TRAINED, model="paper").fit(y, controls(y.index))
    X = controls(pd.RangeIndex(24, 64))
    far = forecaster.predict([40], X=X)
    full = forecaster.predict(range(1, 41), X=X)
    assert abs(far[63] - full[63]) < 1e-6
    for on_the_way in (24, 30, 45, 62, 63):
        other = forecaster.predict([40], X=moved(X, on_the_way, by=20.0))
        assert abs(other[63] - far[63]) > 1e-5


def test_a_past_control_given_anew_replaces_the_one_that_fit_had(trained: Any) -> None:
    stamp = INDEX[10]
    soon = stamp + pd.Timedelta("1ms")
    X = moved(controls(PAST), stamp)
    X.loc[soon] = X.loc[stamp]
    X = X.sort_index()
    here, there = trained.predict(at([stamp, soon]), X=X)
    assert abs(here - there) < 1e-4
    before = trained.predict(at([stamp]), X=controls(PAST)).iloc[0]
    assert abs(here - before) > 1e-2


def test_columns_of_x_are_read_by_name_everywhere(trained: Any) -> None:
    y, X = waves(INDEX), controls(INDEX)
    swapped = X[["v", "u"]]
    questions: list[Callable[[Any, pd.DataFrame], Any]] = [
        lambda f, X: f.predict(at(LATER), X=X),
        lambda f, X: f.predict_at(LATER, X=X),
        lambda f, X: f.sample(at(LATER), X=X),
        lambda f, X: f.predict_var(at(LATER), X=X),
        lambda f, X: f.predict_quantiles(at(LATER), X=X),
        lambda f, X: f.predict_residuals(y, X),
        lambda f, X: f.score(y, X),
        lambda f, X: copy.deepcopy(f).update(y[24:27], X).predict_at(LATER, X=X),
    ]
    # the same numbers under each other's names
    exchanged = swapped.set_axis(["u", "v"], axis=1)
    for question in questions:
        answer = np.asarray(question(trained, X))
        again = np.asarray(question(trained, swapped))
        np.testing.assert_array_equal(again, answer)
        other = np.asarray(question(trained, exchanged))
        assert largest(other - answer) > 1e-6


def test_rows_of_x_may_come_in_any_order_at_the_rows_of_an_index(trained: Any) -> None:
    X = controls(LATER)
    backward = LATER[::-1]
    forecast = trained.predict_at(LATER, X=X)
    answer = trained.predict_at(backward, X=X.loc[backward])
    pd.testing.assert_series_equal(answer, forecast.loc[backward])
    with pytest.raises(ValueError, match=r"times of X .*X\.sort_index\(\)"):
        trained.predict(at(LATER), X=X.loc[backward])


@pytest.mark.parametrize(
    "dtype", mostly_slow([None, int, "Int64", "float32", bool, "boolean"], None, bool)
)
def test_one_control_is_read_in_any_form(dtype: Any) -> None:
    y, X = waves(INDEX), (controls(INDEX) > 0).astype(float)[["u"]]
    answers = []
    for given in (X, X["u"] if dtype is None else X.astype(bool).astype(dtype)):
        forecaster = tiny().fit(y[:24], given[:24])
        forecaster.update(y[24:25], given, update_params=False)
        answers.append(forecaster.predict_at(LATER, X=given))
    expected, found = answers
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


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
    ahead = pd.MultiIndex.from_tuples(rows, names=y.index.names)
    future = controls(ahead, shift=0.5)
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
