"""Data at the ends of their ranges: an answer in finite numbers, or a refusal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import StructuralForecaster
from tests.cases import mostly_slow
from tests.series import channels, panel, uneven_stamps, waves

STEPS = [1, 2, 30]
Y = waves(uneven_stamps(60))
ROWS = np.arange(60)


def structural(**settings: Any) -> Any:
    return StructuralForecaster(**{"n_samples": 5, "random_state": 0, **settings})


def integers(*values: int) -> pd.Series:
    return waves(pd.Index(np.array(values, dtype=np.int64)))


def check_finite(forecaster: Any, y: Any, variance: bool = True) -> None:
    answers = {
        "predict": forecaster.predict(STEPS),
        "interval": forecaster.predict_interval(STEPS, coverage=[0.5, 0.9]),
        "sample": forecaster.sample(STEPS),
        "past": forecaster.predict_at(y.index),
        "level": forecaster.components_[["share", "size", "probability"]],
    }
    if variance:
        answers["var"] = forecaster.predict_var(STEPS)
    for name, answer in answers.items():
        assert np.isfinite(answer.to_numpy(dtype=float)).all(), name
    bounds = answers["interval"].to_numpy().reshape(-1, 2, 2)
    is_count = (y.dropna() >= 0).all(axis=None) and (y % 1 == 0).all(axis=None)
    assert (bounds[..., 0] - bounds[..., 1] <= (0 if is_count else -5e-324)).all()
    assert (bounds[:, 1, 0] <= bounds[:, 0, 0]).all()
    assert (bounds[:, 1, 1] >= bounds[:, 0, 1]).all()


FINITE: dict[str, tuple[Any, dict[str, Any]]] = {
    "the smallest floats": (1e-320 * Y, {}),
    "logarithms of the smallest floats": (1e-320 * np.exp(Y), {"logarithm": True}),
    "one row": (Y[:1], {}),
    "two rows": (Y[:2], {}),
    "the logarithm of one row": (np.exp(Y[:1]), {"logarithm": True}),
    "the logarithm of a constant": (0 * Y + 3, {"logarithm": True}),
    "whole numbers": ((10 * Y).round().astype("Int64").mask(ROWS == 3), {}),
    "yes and no": (Y > 0, {}),
    "all but one alike": (pd.Series(1.0 * (ROWS == 59), Y.index), {}),
    "a step": (pd.Series(5.0 * (ROWS > 29), Y.index), {}),
    "integers as far apart as can be": (integers(-(2**63), -5, 0, 7, 2**62), {}),
    "one stamp a billion gaps later": (integers(*range(50), 10**9), {}),
    "ever longer gaps": (integers(*range(40), *(2**k for k in range(6, 60))), {}),
    "years beyond the calendar": (
        waves(pd.PeriodIndex.from_ordinals(np.arange(1000, 1040), freq="Y")),
        {},
    ),
    "a single value of a channel": (
        channels().assign(b=lambda y: y["b"].where(ROWS[:24] == 9)),
        {},
    ),
    "a channel that begins late": (
        channels().assign(b=lambda y: y["b"].mask(ROWS[:24] < 9)),
        {},
    ),
}


FAST = (
    "the smallest floats",
    "one row",
    "one stamp a billion gaps later",
    "a channel that begins late",
)


@pytest.mark.parametrize("name", mostly_slow(FINITE, *FAST))
def test_every_answer_is_a_finite_number(name: str) -> None:
    y, settings = FINITE[name]
    check_finite(structural(**settings).fit(y), y)


@pytest.mark.parametrize("factor", mostly_slow([1e-300, 1e-160, 1e160, 1e300], 1e300))
@pytest.mark.parametrize("logarithm", mostly_slow([False, True]))
def test_y_of_any_size_is_forecast_alike(factor: float, logarithm: bool) -> None:
    y = np.exp(Y) if logarithm else Y
    factor = float(2.0 ** np.round(np.log2(factor)))
    usual, scaled = (
        structural(logarithm=logarithm, seasons=None).fit(data)
        for data in (y, factor * y)
    )
    check_finite(scaled, y, variance=factor < 1e100)
    places = 1e-3 if logarithm else 1e-9
    for ask in ("predict", "predict_interval", "sample"):
        expected = factor * getattr(usual, ask)(STEPS)
        size = float(np.abs(expected).to_numpy().max())
        np.testing.assert_allclose(
            getattr(scaled, ask)(STEPS), expected, rtol=places, atol=places * size
        )
    if factor > 1e200:
        with pytest.raises(ValueError, match=r"must be a finite number; got .*squares"):
            scaled.predict_var(STEPS)


@pytest.mark.parametrize(
    "constant", mostly_slow([0.0, 0.1, -1e300, 7.5, 1e-300], 0.0, 0.1)
)
def test_a_constant_is_forecast_to_the_last_bit(constant: float) -> None:
    forecaster = structural().fit(0 * Y + constant)
    np.testing.assert_array_equal(forecaster.predict([1, 1000]), constant)
    low, high = forecaster.predict_interval([1, 10]).to_numpy().T
    is_count = constant == 0
    assert (low <= constant).all() if is_count else (low < constant).all()
    assert (high >= constant).all() if is_count else (high > constant).all()
    assert (high - low < 0.1 * (abs(constant) or 1)).all()


def test_answers_that_no_float_holds_are_refused() -> None:
    forecaster = structural().fit(1.7e308 * (Y / Y.abs().max()))
    with pytest.raises(ValueError, match=r"must be a finite number; got .* no float"):
        forecaster.predict_interval([1, 10_000])


U = np.cos(1.0 * ROWS)
CONTROLS: dict[str, Any] = {
    "constant": {"a": 1.0, "b": 0.0},
    "collinear": {"a": U, "b": 2 * U, "c": 1 - U},
    "of any size": {"a": 1e300 * U, "b": 1e-300 * U},
    "of the largest floats": {"a": 1.7e308 * U},
    "on a large number": {"a": 1e9 + 1e-3 * U},
    "more than rows": dict(enumerate(np.random.default_rng(0).normal(size=(70, 60)))),
}


@pytest.mark.parametrize("name", mostly_slow(CONTROLS, "of any size"))
def test_x_that_says_nothing_more_changes_little(name: str) -> None:
    X = pd.DataFrame(CONTROLS[name], Y.index)
    test = Y.index[50:]
    plain = structural(seasons=None).fit(Y[:50])
    forecaster = structural(seasons=None).fit(Y[:50], X=X[:50])
    found = forecaster.predict_interval(test, X=X[50:])
    expected = plain.predict_interval(test)
    np.testing.assert_allclose(found, expected, atol=0.2)


@pytest.mark.parametrize("low", [0.0, -2.5])
@pytest.mark.parametrize("call", ["fit", "pretrain"])
def test_the_logarithm_of_what_has_none_is_refused(call: str, low: float) -> None:
    y = panel().abs() + 0.1
    y.iloc[25, 0] = low
    forecaster = structural(logarithm=True)
    message = rf"logarithm=True .* above zero; got {low:g} in column 'y' at 2021.* .*s1"
    with pytest.raises(ValueError, match=message):
        getattr(forecaster, call)(y)
    assert forecaster.state == "new"
    structural().fit(y)


def test_zero_in_an_update_of_logarithms_is_the_least_of_values() -> None:
    y = np.exp(Y)
    forecaster = structural(logarithm=True).fit(y[:50])
    with pytest.warns(UserWarning, match="on its logarithm, as before; 0 in column"):
        forecaster.update(0 * y[50:52], update_params=False)
    check_finite(forecaster, y)
    assert (forecaster.predict_interval([1], coverage=0.9) > 0).all(axis=None)
