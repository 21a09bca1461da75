"""Gradient flow against autograd through the encoder itself, and closed forms."""

from __future__ import annotations

import copy
import importlib
import math
import sys
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from sklode import LatentODERNNForecaster
from sklode.nn import ODELSTM, ODERNN, RNN, Solver
from tests.networks import amplified, field
from tests.problems import AddingCell, LinearField, amplification
from tests.series import channels, panel, tiny, uneven_stamps, waves

# scripts of a folder outside of any package
sys.path.append(str(Path(__file__).parents[1] / "examples" / "paper"))
jacobians: Any = importlib.import_module("jacobians")
example: Any = importlib.import_module("gradients")
sys.path.pop()

EncoderInputs, encoder_inputs = jacobians.EncoderInputs, jacobians.encoder_inputs
gradient_flow, step_norms = jacobians.gradient_flow, jacobians.step_norms

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


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    "solver",
    [Solver("dopri5", rtol=1e-9, atol=1e-9), Solver("rk4", 0.05, adjoint=True)],
)
def test_gradient_flow_of_other_solvers_agrees_to_their_tolerance(solver: Any) -> None:
    encoder, inputs = encoder_of("ode-rnn", solver), series()
    found = gradient_flow(encoder, inputs)
    encoder.solver = Solver("rk4", 0.05)
    fine = gradient_flow(encoder, inputs)
    np.testing.assert_allclose(found["norm"], fine["norm"], rtol=1e-5)


@pytest.mark.parametrize("method", ["euler", "rk4"])
def test_gradient_decays_over_each_real_gap(method: str) -> None:
    # backward in time dh/dt = +h/2 lets h decay
    encoder = ODERNN(1, 1, LinearField([[0.5]]), Solver(method))
    encoder.cell = AddingCell(1, 1)
    times = torch.tensor([[0.0, 0.5, 2.0, 2.5, 3.5, 9.0]])
    observed = torch.tensor([[False, True, True, False, True, False]])
    values = torch.where(observed, 1.0, math.nan).unsqueeze(-1)
    inputs = EncoderInputs(times, values, observed)

    # from 3.5 by the unobserved 2.5 to 2.0: steps of 1 and 1/2; to 0.5 two of 3/4
    def factor(dt: float) -> float:
        return amplification(method, -0.5 * dt)

    later, sooner = factor(1.0) * factor(0.5), factor(0.75) ** 2
    flow = gradient_flow(encoder, inputs)
    np.testing.assert_allclose(flow["norm"], [1.0, sooner, sooner * later], rtol=1e-12)
    np.testing.assert_allclose(flow["time"], [0.0, 1.5, 3.0])
    steps = step_norms(encoder, inputs)
    np.testing.assert_allclose(steps["flow"], [sooner, later], rtol=1e-12)
    np.testing.assert_allclose(steps["norm"], [sooner, later], rtol=1e-12)
    assert steps[["cell", "visits", "time"]].to_numpy().tolist() == [
        [1.0, 0, 1.5],
        [1.0, 1, 1.5],
    ]


@pytest.mark.slow
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_logarithm_of_a_norm_beyond_floats_is_exact(sign: float) -> None:
    encoder = ODERNN(1, 2, LinearField([[sign, 0.0], [0.0, sign]]), Solver())
    encoder.cell = AddingCell(2, 2)
    times = 20 * torch.arange(60.0)[None]
    flow = gradient_flow(encoder, EncoderInputs(times, torch.zeros(1, 60, 2)))
    expected = math.log10(amplification("rk4", -sign)) * times[0].double().numpy()
    np.testing.assert_allclose(flow["log10_norm"], expected, rtol=1e-12, atol=1e-12)
    assert flow["norm"].iloc[-1] == (0.0 if sign > 0 else math.inf)


@pytest.mark.usefixtures("float64")
def test_cell_state_carries_the_error_unless_it_is_held() -> None:
    encoder = ODELSTM(1, 1)  # open input gate, candidate tanh(x + 0.7 h), no flow
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.zero_()
        encoder.cell.weight_ih[2], encoder.cell.weight_hh[2] = 1.0, 0.7
        encoder.cell.bias_ih[:2] = torch.tensor([50.0, math.log(9.0)])  # forget 0.9
        encoder.cell.bias_ih[3] = -math.log(3.0)  # out 0.25
    x = torch.tensor([0.3, -0.8, 0.1, 0.5])
    inputs = EncoderInputs(torch.arange(4.0)[None], x[None, :, None])
    h = c = 0.0
    jacobians = []  # of (h, C) by those of the visit before
    for value in x.flip(0).tolist():
        candidate = math.tanh(value + 0.7 * h)
        c = 0.9 * c + candidate
        h = 0.25 * math.tanh(c)
        by_h, leak = 0.7 * (1 - candidate**2), 0.25 * (1 - math.tanh(c) ** 2)
        jacobians.append(np.array([[leak * by_h, leak * 0.9], [by_h, 0.9]]))
    rows = [np.array([1.0, 0.0])]
    for jacobian in jacobians[:0:-1]:
        rows.append(rows[-1] @ jacobian)
    flow = gradient_flow(encoder, inputs)
    for by, expected in zip("hc", np.transpose(rows), strict=True):
        found = flow.loc[flow["by"] == by, "norm"]
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert flow.loc[flow["norm"] == 0, "log10_norm"].tolist() == [-math.inf]
    held = gradient_flow(encoder, inputs, hold_cell=True)
    assert (held["by"] == "h").all()
    expected = np.cumprod([1.0, *(one[0, 0] for one in jacobians[:0:-1])])
    np.testing.assert_allclose(held["norm"], expected, rtol=1e-12)
    steps = step_norms(encoder, inputs)
    for i, j in np.ndindex(2, 2):
        block = steps[(steps["of"] == "hc"[i]) & (steps["by"] == "hc"[j])]
        expected = [one[i, j] for one in jacobians[:0:-1]]
        np.testing.assert_allclose(block["norm"], expected, rtol=1e-12)


@pytest.mark.usefixtures("float64")
def test_steps_are_those_of_the_papers_bound() -> None:
    encoder, inputs = encoder_of("ode-rnn"), alone(series(), 0)
    times, values, observed = inputs
    states = encoder.states(times, values, observed, direction="backward")[0].detach()
    steps = step_norms(encoder, inputs)
    weight = encoder.cell.weight_hh.detach()
    for k, row in steps.iterrows():
        # eq. odernn6.1: diag(tanh') W times the flow's derivative
        cell = (1 - states[k] ** 2)[:, None] * weight
        gap = times[0, k] - times[0, k + 1]
        n = math.ceil(-float(gap))

        dt = (gap / n).reshape(1, 1)

        def flow(h: Tensor, dt: Tensor = dt, n: int = n) -> Tensor:
            for _ in range(n):
                h = encoder.solver.step(encoder.vector_field, h[None], dt)[0]
            return h

        between = torch.autograd.functional.jacobian(flow, states[k + 1])
        matrices = {"norm": cell @ between, "flow": between, "cell": cell}
        for name, matrix in matrices.items():
            expected = float(torch.linalg.matrix_norm(matrix, 2))
            assert row[name] == pytest.approx(expected, rel=1e-10)
        assert row["time"] == pytest.approx(-float(gap))
        assert row["visits"] == k


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("kind", KINDS)
def test_neighbours_and_padding_change_no_step(kind: str) -> None:
    encoder, inputs = encoder_of(kind), series()
    steps = step_norms(encoder, inputs)
    for k, n_visits in enumerate([7, 4, 4]):
        single = step_norms(encoder, alone(inputs, k)).drop(columns="series")
        mine = steps[steps["series"] == k].drop(columns="series")
        assert len(single) == (n_visits - 1) * (4 if kind == "ode-lstm" else 1)
        pd.testing.assert_frame_equal(mine.reset_index(drop=True), single, rtol=1e-12)
    bare = EncoderInputs(*(x[2:3, :4] for x in inputs))
    padded = step_norms(encoder, alone(inputs, 2))
    pd.testing.assert_frame_equal(padded, step_norms(encoder, bare), rtol=1e-12)


def test_windows_are_read_as_the_forecaster_reads_them() -> None:
    y = waves(uneven_stamps())
    forecaster = tiny(level="series").fit(y)
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
    few = encoder_inputs(forecaster, n_windows=3)
    assert torch.equal(times[[0, 8, 16]], few.times)
    before = forecaster.predict([1, 2])
    flow = gradient_flow(forecaster)
    encoder, default = forecaster.network_.encoder, encoder_inputs(forecaster)
    pd.testing.assert_frame_equal(flow, gradient_flow(encoder, default))
    pd.testing.assert_series_equal(forecaster.predict([1, 2]), before)
    assert flow["series"].nunique() == 16


def test_short_series_are_padded_and_controls_and_missing_channels_are_read() -> None:
    last = encoder_inputs(tiny().fit(panel((20, 4))), n_windows=1)
    assert last.observed.tolist() == [[True] * 4 + [False] * 2]
    both = channels(uneven_stamps())
    both.iloc[::2, 0] = np.nan
    read = encoder_inputs(tiny().fit(both), n_windows=1)
    assert read.inputs[0, :, 2].tolist() == [0.0, 1.0] * 3
    y = waves(uneven_stamps())
    X = pd.DataFrame({"u": np.arange(24.0)}, y.index)
    seen = encoder_inputs(tiny(LatentODERNNForecaster).fit(y, X=X), n_windows=1)
    scaled = (np.arange(16, 22) - X["u"].mean()) / X["u"].std(ddof=0)
    np.testing.assert_allclose(seen.inputs[0, :, 2], scaled, rtol=1e-5)


def test_example_tells_a_geometric_law_from_another() -> None:
    visits = np.arange(200.0)
    factor, explained = example.factor_per_visit(-0.25 * visits - 1)
    assert factor == pytest.approx(10**-0.25)
    assert explained == pytest.approx(1.0)
    factor, explained = example.factor_per_visit(np.where(visits < 100, 0.0, -9.0))
    assert explained < 0.9


@pytest.mark.slow
def test_examples_counterexample_and_bounds_hold() -> None:
    inputs = example.inputs_of(0, 40)
    flows = {
        (when, kind): [example.measured(example.fresh(kind, 0), inputs)]
        for when in example.WHEN
        for kind in example.FORECASTERS
    }
    evidence = example.Evidence(flows, pd.DataFrame(), pd.DataFrame(), 0.5, (2.0, 1.0))
    eigenvalue, product, diagonal = example.appendix(evidence)
    assert eigenvalue.verdict == "refuted; true of singular values"
    assert eigenvalue.measured.endswith("singular value in 0%")
    assert product.verdict == diagonal.verdict == "refuted"
    geometric, mitigated, constant, product, _ = example.vanishing(evidence)
    assert geometric.verdict == "supported"
    assert mitigated.verdict.startswith("fresh: slower, but exponential")
    assert constant.verdict == product.verdict == "refuted"


@pytest.mark.slow
def test_example_prints_its_findings_and_saves_a_picture(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
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


def test_the_flow_is_drawn_as_the_geometric_mean_over_series() -> None:
    index = pd.MultiIndex.from_product(
        [range(3), range(5), ["h", "c"]], names=["series", "visits", "by"]
    )
    flow = index.to_frame(index=False)
    rng = np.random.default_rng(0)
    flow["log10_norm"] = -flow["visits"] + rng.standard_normal(len(flow))
    flow.loc[(flow["visits"] == 0) & (flow["by"] == "c"), "log10_norm"] = -np.inf
    axes = jacobians.draw_flow({"LSTM": flow, "half": flow[flow["by"] == "h"]})
    larger = flow.groupby(["series", "visits"])["log10_norm"].max().unstack(0)
    thick, *thin = axes.lines[:4]
    assert thick.get_label() == "LSTM"
    np.testing.assert_allclose(thick.get_ydata(), larger.mean(axis=1))
    for line, (_, series) in zip(thin, larger.items(), strict=True):
        np.testing.assert_allclose(line.get_ydata(), series)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "LSTM",
        "half",
    ]
