"""The encoder, by its name or as a module of the user's own."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

from sklode import (
    LatentODEForecaster,
    LatentODELSTMForecaster,
    LatentODERNNForecaster,
    SolverError,
    WeightsFileError,
)
from tests.series import tiny, waves

KINDS = LatentODEForecaster, LatentODERNNForecaster, LatentODELSTMForecaster


class GRU(nn.Module):
    """A GRU cell that reads the gap to the row before."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(input_size + 1, hidden_size)

    def forward(self, times: Tensor, inputs: Tensor, observed: Tensor) -> Tensor:
        gaps = torch.diff(times, dim=1, append=times[:, -1:]).unsqueeze(-1)
        h = inputs.new_zeros(len(inputs), self.cell.hidden_size)
        # the earliest row last, as the other encoders do
        for k in reversed(range(times.shape[1])):
            new = self.cell(torch.cat([inputs[:, k], gaps[:, k]], 1), h)
            h = torch.where(observed[:, k, None], new, h)
        return h


class Wide(GRU):
    """One that returns more than it was asked for."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size + 1)


class OfOneSize(nn.Module):
    """One that is made otherwise."""

    def __init__(self, size: int) -> None:
        super().__init__()


class OfOneTensor(OfOneSize):
    """One that reads the inputs alone."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size)

    def forward(self, x: Tensor) -> Tensor:
        return x


class NotFinite(GRU):
    """One that divides by zero from its n-th call on."""

    n_finite = 0

    def forward(self, times: Tensor, inputs: Tensor, observed: Tensor) -> Tensor:
        self.n_finite -= 1
        return super().forward(times, inputs, observed) / float(self.n_finite >= 0)


class NotFiniteLater(NotFinite):
    n_finite = 1


def with_gru(model: str = "hybrid", encoder: Any = GRU) -> Any:
    guard: Any = "auto" if model == "paper" else False
    return tiny(model=model, encoder=encoder, guard=guard, max_epochs=3)


@pytest.mark.parametrize("model", ["hybrid", "paper"])
def test_a_module_of_the_users_own_is_trained_cloned_and_pickled(model: str) -> None:
    y = waves()
    forecaster = clone(with_gru(model)).fit(y)
    network = forecaster.network_
    assert isinstance(network.encoder.module, GRU)
    assert network.engines()[0] == "eager"
    expected = forecaster.predict([1, 3])
    assert np.isfinite(expected).all()
    found = pickle.loads(pickle.dumps(forecaster)).predict([1, 3])
    pd.testing.assert_series_equal(found, expected)
    # what it returns is what the state is made of
    states = forecaster.encode()
    with torch.no_grad():
        network.encoder.module.cell.weight_ih.add_(1.0)
    assert ((forecaster.encode() - states).abs() > 1e-6).any(axis=None)


def test_a_module_of_the_users_own_is_not_stored(tmp_path: Path) -> None:
    forecaster = with_gru().fit(waves())
    with pytest.raises(WeightsFileError, match=r"GRU.* as parameters\.encoder\."):
        forecaster.save_weights(tmp_path / "gru")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        ("gru", r"one of 'rnn', 'ode-rnn', 'ode-lstm', a class .*; got 'gru'\."),
        (nn.GRU(1, 1), r"a class of torch\.nn\.Module, or None; got GRU\(1, 1\)"),
        (dict, r"a class of torch\.nn\.Module, or None; got <class 'dict'>"),
        (Wide, r"shape \(batch, hidden_size\), .* 3\); got \(\d+, 4\) from Wide\."),
        (nn.GRU, r"forward\(self, times, .*; got GRU\.forward\(self, input, hx=None\)"),
        (
            OfOneTensor,
            r"got OfOneTensor\.forward\(self, x: .*class Own\(OfOneTensor\) w",
        ),
        (
            NotFinite,
            r"finite numbers; got NaN .* for \d+ of \d+ windows from NotFinite,",
        ),
        (OfOneSize, r"two sizes, .*; got OfOneSize\(2, 3\): .* Give the rest"),
    ],
)
@pytest.mark.parametrize("model", ["hybrid", "paper"])
def test_what_is_no_encoder_is_refused(encoder: Any, message: str, model: str) -> None:
    with pytest.raises(ValueError, match=message):
        with_gru(model, encoder).fit(waves())


def test_an_encoder_that_is_not_finite_later_is_named() -> None:
    with pytest.warns(ConvergenceWarning, match="See that NotFiniteLater, the encoder"):
        forecaster = with_gru("paper", NotFiniteLater).fit(waves())
    # of the weights from before
    with pytest.raises(SolverError, match="See that NotFiniteLater, the encoder"):
        forecaster.predict([1])


def test_the_other_encoders_have_names() -> None:
    y = waves()
    for kind in KINDS:
        expected = tiny(kind, guard=False, max_epochs=2).fit(y).predict([1, 2])
        settings = {"encoder": kind.own_encoder, "guard": False, "max_epochs": 2}
        for other in KINDS:
            found = tiny(other, **settings).fit(y).predict([1, 2])
            pd.testing.assert_series_equal(found, expected)
