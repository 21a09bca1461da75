"""Gradient flow against autograd through the encoder itself."""

from __future__ import annotations

import copy
import importlib
import sys
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from sklode.nn import ODELSTM, ODERNN, RNN, Solver
from tests.networks import amplified, field
from tests.series import tiny, uneven_stamps, waves

# scripts of a folder outside of any package
sys.path.append(str(Path(__file__).parents[1] / "examples" / "paper"))
jacobians: Any = importlib.import_module("jacobians")
example: Any = importlib.import_module("gradients")
sys.path.pop()

EncoderInputs, encoder_inputs = jacobians.EncoderInputs, jacobians.encoder_inputs
gradient_flow = jacobians.gradient_flow

KINDS = ["rnn", "ode-rnn", "ode-lstm"]
HIDDEN = 4


def encoder_of(kind: str, solver: Any = None) -> Any:
    """Return a random encoder that is far from linear."""
    if kind == "rnn":
        return amplified(RNN(3, HIDDEN), 2.0)
    make = {"ode-rnn": ODERNN, "ode-lstm": ODELSTM}[kind]
    return amplified(make(3, HIDDEN, field(HIDDEN), solver or Solver()), 1.5)


def series() -> Any:
    """Return series, one whole, one with gaps and one padded, by gaps up to 2.5."""
    times = (0.1 + 2.4 * torch.rand(3, 7)).cumsum(1)
    observed = torch.ones(3, 7, dtype=torch.bool)
    observed[1, [0, 3, 6]] = False
    observed[2, 4:] = False
    times[2, 4:] = times[2, 3]
    return EncoderInputs(times, torch.randn(3, 7, 3), observed)


def alone(inputs: Any, k: int) -> Any:
    return EncoderInputs(*(x[k : k + 1] for x in inputs))


class Nudged(nn.Module):
    """A cell that adds a nudge to h, and C, after one of its visits."""

    def __init__(self, cell: Any, visit: int) -> None:
        super().__init__()
        self.cell, self.left = cell, visit
        self.nudge = torch.zeros(0)

    def forward(self, x: Tensor, memory: Any) -> Any:
        after = self.cell(x, memory)
        self.left -= 1
        if self.left:
            return after
        if isinstance(after, tuple):
            return tuple(a + b for a, b in zip(after, self.nudge.chunk(2), strict=True))
        return after + self.nudge


def norms_by_autograd(encoder: Any, inputs: Any) -> dict[tuple[str, int], float]:
    """Return ||dh_1/d(h_k, C_k)|| of one series by part and visits between."""
    n_visits = int(inputs.observed.sum())
    size = 2 * HIDDEN if isinstance(encoder, ODELSTM) else HIDDEN
    norms = {}
    for visit in range(1, n_visits + 1):

        def last_state(nudge: Tensor, visit: int = visit) -> Tensor:
            other = copy.deepcopy(encoder)
            other.cell = Nudged(other.cell, visit)
            other.cell.nudge = nudge
            h: Tensor = other(*inputs)
            return h.squeeze(0)

        jacobian = torch.autograd.functional.jacobian(last_state, torch.zeros(size))
        for part, block in zip("hc", jacobian.split(HIDDEN, dim=1), strict=False):
            norms[part, n_visits - visit] = float(torch.linalg.matrix_norm(block, 2))
    return norms


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("kind", KINDS)
def test_gradient_flow_is_autograds_through_the_encoder(kind: str) -> None:
    encoder, inputs = encoder_of(kind), series()
    before = {name: p.clone() for name, p in encoder.named_parameters()}
    flow = gradient_flow(encoder, inputs)
    assert not flow.isna().any(axis=None)
    for k, one in flow.groupby("series"):
        found = one.set_index(["by", "visits"])["norm"].to_dict()
        expected = norms_by_autograd(encoder, alone(inputs, k))
        assert found == pytest.approx(expected, rel=1e-10, abs=1e-14)
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is None
        assert torch.equal(parameter, before[name])


def test_windows_are_read_as_the_forecaster_reads_them() -> None:
    y = waves(uneven_stamps())
    forecaster = tiny(model="paper").fit(y)
    times, inputs, observed = encoder_inputs(forecaster, n_windows=100)
    starts = np.arange(24 - 6 - 2 + 1)  # six rows that are seen, two that follow
    rows = starts[:, None] + np.arange(6)
    elapsed = np.asarray((y.index - y.index[0]) / forecaster.time_unit_)
    elapsed = elapsed[rows] - elapsed[starts][:, None]
    np.testing.assert_allclose(times, elapsed, rtol=1e-5)
    values = ((y - forecaster.location_[0]) / forecaster.scale_[0]).to_numpy()
    np.testing.assert_allclose(inputs[..., 0], values[rows], rtol=1e-4, atol=1e-6)
    assert bool((inputs[..., 1] == 1).all())
    assert bool(observed.all())
    before = forecaster.predict([1, 2])
    assert gradient_flow(forecaster)["series"].nunique() == 16
    pd.testing.assert_series_equal(forecaster.predict([1, 2]), before)


@pytest.mark.slow
def test_example_prints_its_findings_and_saves_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(example, "WINDOW", 30)
    monkeypatch.setattr(example, "HORIZON", 10)
    path = tmp_path / "picture.png"
    quick = ["--stamps", "30", "60", "--seeds", "1", "--epochs", "1"]
    findings = example.main([*quick, "--output", str(path)])
    captured = capsys.readouterr()
    assert captured.err == ""
    assert len(findings) == 12
    assert all(claim in captured.out for claim in findings["claim"])
    assert matplotlib.image.imread(path).std() > 0.05
