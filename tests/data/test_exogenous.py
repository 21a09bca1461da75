"""Exogenous X: read with every observation and at every stamp that is asked."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

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
)
from tests.series import FORECASTERS, tiny, waves


@pytest.fixture(scope="module")
def trained() -> Any:
    return forecaster_with_controls()


@pytest.mark.parametrize("kind", FORECASTERS)
def test_a_control_acts_after_the_stamp_before_its_own(kind: type) -> None:
    y = waves(pd.RangeIndex(0, 240, 10))
    stamps = pd.Index(y.index[-1] + 30 * np.arange(1, 8))  # three time units apart
    X = controls(stamps)
    forecaster = tiny(kind, **TRAINED, level="series").fit(y, controls(y.index))
    forecast = forecaster.predict(at(stamps), X=X)
    other = forecaster.predict(at(stamps), X=moved(X, stamps[3]))
    difference = np.abs(other - forecast).to_numpy()
    np.testing.assert_array_equal(difference[:3], 0)
    assert (difference[3:] > 1e-5).all()


def test_residuals_and_score_are_those_of_the_forecast_under_x(trained: Any) -> None:
    y, X = waves(INDEX), controls(INDEX)
    forecast = trained.predict(at(INDEX), X=X)
    pd.testing.assert_series_equal(trained.predict_residuals(y, X), y - forecast)
    later = (y - forecast)[24:]
    assert trained.score(y[24:], X) == pytest.approx(-np.sqrt((later**2).mean()))
    assert trained.score(y[24:], X[24:]) != trained.score(y[24:], moved(X, LATER))


# Which rows and columns of X count


def test_rows_of_x_beside_those_of_y_change_no_fit(trained: Any) -> None:
    X = controls(INDEX)
    X.loc[LATER] = -7.0
    between = pd.DataFrame({"u": 9.0, "v": 9.0}, INDEX[:5] + pd.Timedelta("10s"))
    longer = pd.concat([X, between]).sort_index()
    forecast = tiny(**TRAINED).fit(waves(PAST), longer).predict(at(LATER), X=X)
    assert largest(forecast - trained.predict(at(LATER), X=X)) == 0


def test_rows_of_x_on_the_way_to_a_far_stamp_count() -> None:
    y = waves(pd.RangeIndex(24))
    forecaster = tiny(**TRAINED, level="series").fit(y, controls(y.index))
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
    for question in questions:
        answer = np.asarray(question(trained, X))
        np.testing.assert_array_equal(np.asarray(question(trained, swapped)), answer)
        exchanged = swapped.set_axis(["u", "v"], axis=1)
        assert largest(np.asarray(question(trained, exchanged)) - answer) > 1e-6


def test_rows_of_x_may_come_in_any_order_at_the_rows_of_an_index(trained: Any) -> None:
    X = controls(LATER)
    backward = LATER[::-1]
    forecast = trained.predict_at(LATER, X=X)
    answer = trained.predict_at(backward, X=X.loc[backward])
    pd.testing.assert_frame_equal(answer, forecast.loc[backward])
    with pytest.raises(ValueError, match=r"times of X .*X\.sort_index\(\)"):
        trained.predict(at(LATER), X=X.loc[backward])


@pytest.mark.parametrize("dtype", [None, int, "Int64", "float32", bool, "boolean"])
def test_one_control_is_read_in_any_form(dtype: Any) -> None:
    y, X = waves(INDEX), (controls(INDEX) > 0).astype(float)[["u"]]
    answers = []
    for given in (X, X["u"] if dtype is None else X.astype(bool).astype(dtype)):
        forecaster = tiny().fit(y[:24], given[:24])
        forecaster.update(y[24:25], given, update_params=False)
        answers.append(forecaster.predict_at(LATER, X=given))
    expected, found = answers
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_an_x_without_columns_is_no_x() -> None:
    y = waves(INDEX)
    nothing = pd.DataFrame(index=INDEX)
    forecaster = tiny().fit(y[:24], nothing[:24])
    forecast = tiny().fit(y[:24]).predict(at(LATER))
    pd.testing.assert_series_equal(forecaster.predict(at(LATER)), forecast)
    with_index = forecaster.predict(at(LATER), X=nothing)
    pd.testing.assert_series_equal(with_index, forecast)


def driven(seed: int = 0, n: int = 330) -> tuple[pd.Series, pd.DataFrame]:
    """Return 1.5 u + noise of 0.05 at exponential gaps, and u, held for ten stamps."""
    rng = np.random.default_rng(seed)
    hours = np.cumsum(np.maximum(rng.exponential(1.0, n), 1e-3))
    stamps = pd.Timestamp("2021-01-01") + pd.to_timedelta(hours, unit="h").round("s")
    u = np.repeat(rng.standard_normal(n // 10), 10)
    y = 1.5 * u + 0.05 * rng.standard_normal(n)
    return pd.Series(y, stamps, name="y"), pd.DataFrame({"u": u}, stamps)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORECASTERS)
def test_what_a_control_drives_is_forecast_with_it_and_not_without(kind: type) -> None:
    y, X = driven()
    train, test = y[:-30], y[-30:]
    settings: dict[str, Any] = {"max_epochs": 40, "random_state": 0}
    settings["level"] = "series"
    forecast = kind(**settings).fit(train, X[:-30]).predict(test.index, X=X[-30:])
    assert ((forecast - test) ** 2).mean() <= 0.05 * y.var()
    if kind is FORECASTERS[0]:
        withheld = kind(**settings).fit(train).predict(test.index)
        assert ((withheld - test) ** 2).mean() >= 0.6 * y.var()
