"""Numbers and times at the ends of their ranges: finite and sane forecasts."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.series import FORECASTERS, channels, tiny, uneven_stamps, waves

MODELS = ["hybrid", "paper"]
NAN = float("nan")


def check_sane(forecaster: Any, y: pd.Series) -> None:
    """Check that forecasts and intervals keep near what was observed."""
    values = y.astype(float)
    middle = values.median()
    reach = 2 * (values.max() - values.min())
    forecast = forecaster.predict([-3, 1, 2, 10])
    assert (np.abs(forecast.astype(float) - middle) <= reach).all()
    interval = forecaster.predict_interval([1, 10], coverage=0.9)
    low, high = interval.to_numpy(dtype=float).T
    assert (high > low).all()
    assert (high - low <= 2 * reach).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "size"),
    [
        *product(MODELS, [(1e30, 0), (1e-3, 1e9)]),
        *product(["hybrid"], [(1e-30, 0), (1.0, 1e9), (1e300, 0), (1e-300, 0)]),
    ],
)
def test_very_large_and_very_small_values_are_forecast(
    model: str, size: tuple[float, float]
) -> None:
    factor, offset = size
    y = factor * waves(uneven_stamps(40)) + offset
    check_sane(tiny(model=model, max_epochs=3).fit(y), y)


def test_variances_that_no_float_holds_are_refused_and_errors_are_scored() -> None:
    y = waves(uneven_stamps())
    forecaster, other = tiny().fit(y), tiny().fit(2.0**1000 * y)
    with pytest.raises(ValueError, match=r"no float holds"):
        other.predict_var([1])
    expected = 2.0**600 * forecaster.predict_var([1])
    found = tiny().fit(2.0**300 * y).predict_var([1])
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    asked = 2.0**1000 * y[-4:]
    assert other.score(asked) == pytest.approx(2.0**1000 * forecaster.score(y[-4:]))
    tinier = tiny().fit(2.0**-1000 * y)
    assert tinier.score(2.0**-1000 * y[-4:]) == pytest.approx(
        2.0**-1000 * forecaster.score(y[-4:])
    )


TYPES = ["float16", "Float32", "int8", "Int64", "bool", "boolean", "Sparse[int]"]


@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_gives_the_forecast_of_its_numbers(dtype: str) -> None:
    y = (waves(uneven_stamps()) > 0).astype(dtype)
    if dtype[0] in "fFI":
        y.iloc[[3, 9]] = NAN if dtype.startswith("f") else pd.NA
    wide = pd.Series(y.to_numpy(dtype=float, na_value=NAN), y.index, name=y.name)
    expected = tiny().fit(wide[:20]).update(wide[20:], update_params=False)
    found = tiny().fit(y[:20]).update(y[20:], update_params=False)
    np.testing.assert_array_equal(found.predict([1, 5]), expected.predict([1, 5]))


CONSTANTS = list(product(MODELS, [0.0, 7.5, -1e30, 0.1]))


@pytest.mark.parametrize(
    ("kind", "model", "constant"),
    [(FORECASTERS[k % 3], *case) for k, case in enumerate(CONSTANTS)],
)
def test_a_constant_series_is_forecast_by_its_constant(
    kind: type, model: str, constant: float
) -> None:
    y = waves() * 0 + constant
    forecaster = tiny(kind, model=model, max_epochs=3, lr=0.03).fit(y)
    forecast = forecaster.predict([-40, -3, 1, 10, 1000])
    np.testing.assert_array_equal(forecast, constant)
    low, high = forecaster.predict_interval([1, 10]).to_numpy().T
    width = 0.05 * (abs(constant) if constant else 1)
    assert (low <= constant).all()
    assert (high >= constant).all()
    assert (high - low < width).all()


@pytest.mark.slow
def test_a_constant_channel_is_held_and_leaves_the_others_to_be_learned() -> None:
    both = channels().assign(b=0.3)
    settings = {"early_stopping": True, "max_epochs": 30}
    forecaster = tiny(model="paper", **settings).fit(both)
    forecast = forecaster.predict([-3, 1, 10])
    np.testing.assert_array_equal(forecast["b"], 0.3)
    assert forecast["a"].nunique() == 3
    # the likelihood is that of the other channel, not the mean of both
    history = tiny(model="paper", **settings).fit(both[["a"]]).history_
    last = forecaster.history_["log_likelihood"].iloc[-1]
    assert last == pytest.approx(history["log_likelihood"].iloc[-1], rel=0.3)


def test_an_update_that_varies_frees_a_constant_channel() -> None:
    y = waves(uneven_stamps(40))
    first = y[:20] * 0 + 2.0
    forecaster = tiny(model="paper", finetune_epochs=5).fit(first)
    assert (forecaster.predict([1, 5]) == 2.0).all()
    forecaster.update(first.set_axis(y.index[20:]))
    assert (forecaster.predict([1, 5]) == 2.0).all()
    later = pd.Series(y[-5:].to_numpy(), uneven_stamps(5, start="2021-05-01"), name="y")
    forecaster.update(later)
    assert (forecaster.predict([1, 5]) != 2.0).all()
