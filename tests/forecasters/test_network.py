"""Earlier names warn until they go; a solver or an encoder has one place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from packaging.version import Version
from sklearn.base import clone

import sklode
from sklode import LatentODELSTMForecaster, StructuralForecaster
from sklode.forecasters.network import NetworkForecaster
from sklode.nn.encoders import ENCODERS, ODERNN
from tests.cases import mostly_slow
from tests.series import TINY, uneven_stamps, waves

SMALL = {name: value for name, value in TINY.items() if name != "model"}
Y = waves(uneven_stamps())
NAMES = [("series", "paper"), ("auto", "hybrid")]


@pytest.mark.parametrize(("earlier", "name"), NAMES)
@pytest.mark.parametrize(
    "way", mostly_slow(["constructor", "set_params", "clone"], "clone")
)
def test_the_earlier_name_of_the_model_means_the_same(
    earlier: str, name: str, way: str
) -> None:
    forecaster = LatentODELSTMForecaster(**SMALL, level=earlier)
    if way == "set_params":
        forecaster = LatentODELSTMForecaster(**SMALL).set_params(level=earlier)
    elif way == "clone":
        forecaster = clone(forecaster)
    message = rf"use model='{name}' in place of level='{earlier}', which goes in 0\.5"
    with pytest.warns(FutureWarning, match=message):
        forecaster.fit(Y)
    expected = LatentODELSTMForecaster(**SMALL, model=name).fit(Y).predict([1, 5])
    pd.testing.assert_series_equal(forecaster.predict([1, 5]), expected)


def test_what_goes_in_a_release_is_gone_there() -> None:
    assert Version(sklode.__version__) < Version("0.5"), "take level and level_ out"


def test_both_names_are_refused() -> None:
    both = LatentODELSTMForecaster(**SMALL, model="paper", level="auto")
    message = "model='paper' and level='auto'. Leave level out"
    with pytest.raises(ValueError, match=message):
        both.fit(Y)


def test_the_earlier_name_of_the_components_answers_and_warns() -> None:
    forecaster = StructuralForecaster().fit(Y)
    with pytest.warns(FutureWarning, match=r"called components_: .* goes in 0\.5"):
        found = forecaster.level_
    pd.testing.assert_frame_equal(found, forecaster.components_)
    with pytest.raises(AttributeError, match="no attribute 'levels_'"):
        _ = forecaster.levels_


class ODEGRU(ODERNN):
    """h flows between visits to a GRU."""

    _cell = torch.nn.GRUCell


class LatentODEGRUForecaster(NetworkForecaster):
    """A forecaster with that encoder."""

    own_encoder = "ode-gru"


@pytest.mark.parametrize("model", ["paper", "hybrid"])
def test_an_encoder_is_added_by_its_class_and_that_of_its_forecaster(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENCODERS, "ode-gru", ODEGRU)
    settings = {**TINY, "model": model, "guard": False}
    forecaster: Any = LatentODEGRUForecaster(**settings).fit(Y)
    assert type(forecaster.network_.encoder.cell) is torch.nn.GRUCell
    # the compiled engine knows torch's other cells alone
    assert forecaster.network_.engines() == ("eager", "fused")
    forecast = forecaster.predict([1, 5])
    forecaster.save_weights(tmp_path / "gru")
    again = LatentODEGRUForecaster.load_weights(tmp_path / "gru")
    pd.testing.assert_series_equal(again.predict([1, 5]), forecast)
    others = LatentODELSTMForecaster(**settings).fit(Y).predict([1, 5])
    assert (forecast != others).all()


@pytest.mark.parametrize("model", ["paper", "hybrid"])
def test_a_solver_is_added_by_its_record_alone(model: str, merson: str) -> None:
    # with the same weights at first, and short steps, both methods learn the same
    settings = {**TINY, "model": model, "step_size": 0.5, "guard": False}
    found, expected = (
        LatentODELSTMForecaster(**settings, method=method).fit(Y)
        for method in (merson, "rk4")
    )
    assert found.network_.engines() == ("fused", "fused")
    assert found.network_.encoder.solver.method == merson
    np.testing.assert_allclose(
        found.predict([1, 5]), expected.predict([1, 5]), rtol=0, atol=1e-3 * np.std(Y)
    )
