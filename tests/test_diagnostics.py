"""Gradient flow against autograd through the encoder itself, and closed forms."""

from __future__ import annotations

import copy
import importlib.util
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError
from torch import Tensor, nn

from sklode import LatentODEForecaster, LatentODELSTMForecaster, LatentODERNNForecaster
from sklode.diagnostics import (
    EncoderInputs,
    clipping_report,
    encoder_inputs,
    gradient_flow,
    step_norms,
)
from sklode.nn import ODELSTM, ODERNN, RNN, AdaptiveSolver, FixedStepSolver
from tests.networks import amplified, field
from tests.problems import (
    AddingCell,
    HoldingCell,
    LinearField,
    Zero,
    amplification,
    decay,
    oscillator,
)
from tests.series import FORECASTERS, channels, panel, tiny, uneven_stamps, waves

KINDS = ["rnn", "ode-rnn", "ode-lstm"]
HIDDEN = 4


class NudgedRNNCell(nn.RNNCell):
    """A cell that adds a nudge to h after one of its visits."""

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        h = super().forward(input, hx)
        self.n_calls: int
        self.n_calls += 1
        return h + self.nudge if self.n_calls == self.visit else h  # type: ignore[operator]


class NudgedLSTMCell(nn.LSTMCell):
    """A cell that adds a nudge to h and C after one of its visits."""

    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        h, c = super().forward(input, hx)
        self.n_calls: int
        self.n_calls += 1
        if self.n_calls != self.visit:
            return h, c
        by_h, by_c = self.nudge.chunk(2)  # type: ignore[operator]
        return h + by_h, c + by_c


def encoder_of(
    kind: str, solver: FixedStepSolver | AdaptiveSolver | None = None
) -> Any:
    """Return a random encoder that is far from linear."""
    if kind == "rnn":
        return amplified(RNN(3, HIDDEN), 2.0)
    make = {"ode-rnn": ODERNN, "ode-lstm": ODELSTM}[kind]
    solver = solver or FixedStepSolver()
    return amplified(make(3, HIDDEN, field(HIDDEN), solver), 1.5)


def series(n_series: int = 3, n_stamps: int = 7) -> EncoderInputs:
    """Return series, one whole, one with gaps and one padded, by gaps up to 2.5."""
    times = (0.1 + 2.4 * torch.rand(n_series, n_stamps)).cumsum(1)
    observed = torch.ones(n_series, n_stamps, dtype=torch.bool)
    observed[1, [0, 3, n_stamps - 1]] = False
    observed[2, 4:] = False
    times[2, 4:] = times[2, 3]
    return EncoderInputs(times, torch.randn(n_series, n_stamps, 3), observed)


def alone(inputs: EncoderInputs, k: int) -> EncoderInputs:
    times, values, observed = inputs
    assert observed is not None
    return EncoderInputs(times[k : k + 1], values[k : k + 1], observed[k : k + 1])


def nudged(encoder: Any, visit: int, inputs: EncoderInputs) -> Any:
    """Return the encoder as a function of what is added after a visit, from 1."""
    encoder = copy.deepcopy(encoder)
    weights = encoder.cell.state_dict()
    kind = NudgedLSTMCell if isinstance(encoder, ODELSTM) else NudgedRNNCell
    encoder.cell = kind(encoder.cell.input_size, HIDDEN)
    encoder.cell.load_state_dict(weights)

    def last_state(nudge: Tensor) -> Tensor:
        encoder.cell.n_calls, encoder.cell.visit = 0, visit
        encoder.cell.nudge = nudge
        h: Tensor = encoder(*inputs)
        return h.squeeze(0)

    return last_state


def expected_norms(
    encoder: Any, inputs: EncoderInputs, differences: bool = False
) -> dict[tuple[str, int], float]:
    """Return ||dh_1/d(h_k, C_k)|| by part and visits between, for one series.

    By autograd through the encoder's own pass, or by central differences of it.
    """
    assert inputs.observed is not None
    n_visits = int(inputs.observed.sum())
    size = 2 * HIDDEN if isinstance(encoder, ODELSTM) else HIDDEN
    norms = {}
    for visit in range(1, n_visits + 1):
        f = nudged(encoder, visit, inputs)
        if differences:
            step = 1e-6 * torch.eye(size)
            columns = [(f(e) - f(-e)).detach() / 2e-6 for e in step]
            jacobian = torch.stack(columns, dim=1)
        else:
            jacobian = torch.autograd.functional.jacobian(f, torch.zeros(size))
        for part, block in zip("hc", jacobian.split(HIDDEN, dim=1), strict=False):
            norm = torch.linalg.matrix_norm(block, 2)
            norms[part, n_visits - visit] = float(norm)
    return norms


def norms_of(flow: pd.DataFrame) -> dict[tuple[str, int], float]:
    """Return the norms of one series by part and visits between."""
    assert flow["series"].nunique() == 1
    rows = zip(flow["by"], flow["visits"], strict=True)
    return dict(zip(rows, flow["norm"], strict=True))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("kind", KINDS)
def test_gradient_flow_is_autograds_through_the_encoder(kind: str) -> None:
    encoder, inputs = encoder_of(kind), series()
    flow = gradient_flow(encoder, inputs)
    assert not flow.isna().any(axis=None)
    for k in range(3):
        found = norms_of(flow[flow["series"] == k])
        expected = expected_norms(encoder, alone(inputs, k))
        assert found == pytest.approx(expected, rel=1e-10, abs=1e-14)
        assert len(found) == [7, 4, 4][k] * (2 if kind == "ode-lstm" else 1)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("kind", KINDS)
def test_gradient_flow_is_what_differences_show(kind: str) -> None:
    encoder, inputs = encoder_of(kind), alone(series(), 1)
    expected = expected_norms(encoder, inputs, differences=True)
    found = norms_of(gradient_flow(encoder, inputs))
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.usefixtures("float64")
def test_gradient_flow_of_many_steps_is_put_together_from_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoder, inputs = encoder_of("ode-lstm"), series()
    whole = gradient_flow(encoder, inputs), step_norms(encoder, inputs)
    monkeypatch.setattr("sklode.diagnostics._ROWS_AT_ONCE", 7)  # two steps of three
    parts = gradient_flow(encoder, inputs), step_norms(encoder, inputs)
    for left, right in zip(whole, parts, strict=True):
        pd.testing.assert_frame_equal(left, right, rtol=1e-12)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    "solver",
    [
        AdaptiveSolver(1e-9, 1e-9),
        AdaptiveSolver(1e-9, 1e-9, adjoint=True),
        FixedStepSolver("rk4", 0.05, adjoint=True),
    ],
    ids=["dopri5", "dopri5-adjoint", "rk4-adjoint"],
)
def test_gradient_flow_of_other_solvers_agrees_to_their_tolerance(
    solver: FixedStepSolver | AdaptiveSolver,
) -> None:
    encoder, inputs = encoder_of("ode-rnn", solver), series(n_stamps=5)
    found = gradient_flow(encoder, inputs)
    encoder.solver = FixedStepSolver("rk4", 0.05)
    fine = gradient_flow(encoder, inputs)
    np.testing.assert_allclose(found["norm"], fine["norm"], rtol=1e-5)


def test_states_that_nothing_touches_keep_the_whole_gradient() -> None:
    encoder = ODERNN(1, 3, Zero(), FixedStepSolver())
    encoder.cell = HoldingCell(1, 3)
    times = torch.tensor([[0.0, 0.4, 3.0, 3.2]])
    inputs = EncoderInputs(times, torch.zeros(1, 4, 1))
    flow = gradient_flow(encoder, inputs)
    assert flow["norm"].tolist() == [1.0] * 4
    assert flow["visits"].tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(flow["time"], [0.0, 0.4, 3.0, 3.2], atol=1e-6)
    steps = step_norms(encoder, inputs)
    assert steps[["norm", "flow", "cell"]].to_numpy().tolist() == [[1.0] * 3] * 3


@pytest.mark.parametrize("method", ["euler", "midpoint", "rk4"])
def test_gradient_decays_over_each_real_gap(method: str) -> None:
    # backward in time dh/dt = +h/2 lets h decay
    encoder = ODERNN(1, 1, LinearField([[0.5]]), FixedStepSolver(method))
    encoder.cell = AddingCell(1, 1)
    times = torch.tensor([[0.0, 0.5, 2.0, 2.5, 3.5, 9.0]])
    observed = torch.tensor([[False, True, True, False, True, False]])
    inputs = EncoderInputs(times, torch.full((1, 6, 1), math.nan), observed)
    values = torch.where(observed, 1.0, math.nan).unsqueeze(-1)
    inputs = inputs._replace(inputs=values)

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
    assert steps["cell"].tolist() == [1.0, 1.0]
    assert steps["visits"].tolist() == [0, 1]
    np.testing.assert_allclose(steps["time"], [1.5, 1.5])


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_logarithm_of_a_norm_beyond_floats_is_exact(sign: float) -> None:
    encoder = ODERNN(1, 2, LinearField([[sign, 0.0], [0.0, sign]]), FixedStepSolver())
    encoder.cell = AddingCell(2, 2)
    gaps = torch.tensor([[20.0], [1.0]])
    times = gaps * torch.arange(60.0)
    flow = gradient_flow(encoder, EncoderInputs(times, torch.zeros(2, 60, 2)))
    factor = math.log10(amplification("rk4", -sign))
    expected = factor * gaps.double().numpy() * np.arange(60)
    found = flow["log10_norm"].to_numpy().reshape(2, 60)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert abs(expected[0, -1]) > 400
    norms = flow["norm"].to_numpy().reshape(2, 60)
    assert norms[0, -1] == (0.0 if sign > 0 else math.inf)
    np.testing.assert_allclose(norms[1], 10 ** expected[1], rtol=1e-12)


def test_rotation_keeps_the_norm_and_its_directions_are_told_apart() -> None:
    encoder = ODERNN(2, 2, oscillator(), FixedStepSolver("rk4", 0.1))
    encoder.cell = nn.RNNCell(2, 2)
    with torch.no_grad():
        for parameter in encoder.cell.parameters():
            parameter.zero_()
        encoder.cell.weight_hh.copy_(torch.diag(torch.tensor([1.0, 0.25])))
    quarter = math.pi / 2
    times = quarter * torch.arange(4.0).unsqueeze(0)
    inputs = EncoderInputs(times, torch.zeros(1, 4, 2))
    # h stays 0: each step turns by a quarter, then scales the axes by 1 and 1/4
    flow = gradient_flow(encoder, inputs)
    np.testing.assert_allclose(flow["norm"], [1.0, 1.0, 0.25, 0.25], rtol=1e-5)
    steps = step_norms(encoder, inputs)
    np.testing.assert_allclose(steps[["norm", "flow", "cell"]], 1.0, rtol=1e-5)


def gated(forget: float, out: float, recurrent: float = 0.0) -> ODELSTM:
    """Return an ODE-LSTM of size 1 without flow: open input gate, candidate tanh(x)."""
    encoder = ODELSTM(1, 1)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.zero_()
        encoder.cell.weight_ih[2] = 1.0
        encoder.cell.weight_hh[2] = recurrent
        encoder.cell.bias_ih[:2] = torch.tensor([50.0, math.log(forget / (1 - forget))])
        encoder.cell.bias_ih[3] = math.log(out / (1 - out))
    return encoder


@pytest.mark.usefixtures("float64")
def test_cell_state_carries_the_error_by_the_forget_gates() -> None:
    encoder = gated(forget=0.9, out=0.25)
    x = torch.tensor([0.3, -0.8, 0.1, 0.5])
    inputs = EncoderInputs(torch.arange(4.0)[None], x[None, :, None])
    c = 0.0
    for value in (0.5, 0.1, -0.8, 0.3):
        c = 0.9 * c + math.tanh(value)
    flow = gradient_flow(encoder, inputs)
    by_c = flow.loc[flow["by"] == "c", "norm"].to_numpy()
    leak = 0.25 * (1 - math.tanh(c) ** 2)
    np.testing.assert_allclose(by_c, [0.0, *(leak * 0.9 ** np.arange(1, 4))])
    # no gate looks at h, so that the error of h is lost at once
    assert flow.loc[flow["by"] == "h", "norm"].tolist() == [1.0, 0.0, 0.0, 0.0]
    zero = flow[flow["norm"] == 0]
    assert (zero["log10_norm"] == -math.inf).all()
    steps = step_norms(encoder, inputs).set_index(["of", "by"]).sort_index()
    np.testing.assert_allclose(steps.loc[("c", "c"), "norm"], 0.9)
    np.testing.assert_allclose(steps.loc[("h", "c"), "norm"].iloc[0], leak * 0.9)
    assert (steps.loc[("h", "h"), "norm"] == 0).all()


@pytest.mark.usefixtures("float64")
def test_held_cell_state_lets_the_error_pass_by_h_alone() -> None:
    encoder = gated(forget=0.9, out=0.25, recurrent=0.7)
    x = torch.tensor([0.3, -0.8, 0.1, 0.5])
    inputs = EncoderInputs(torch.arange(4.0)[None], x[None, :, None])
    h = c = 0.0
    by_h = []
    for value in (0.5, 0.1, -0.8, 0.3):
        candidate = math.tanh(value + 0.7 * h)
        c = 0.9 * c + candidate
        h = 0.25 * math.tanh(c)
        slope = 0.25 * (1 - math.tanh(c) ** 2)
        by_h.append(slope * (1 - candidate**2) * 0.7)
    held = gradient_flow(encoder, inputs, hold_cell=True)
    assert (held["by"] == "h").all()
    expected = np.cumprod([1.0, *by_h[:0:-1]])
    np.testing.assert_allclose(held["norm"], expected, rtol=1e-12)
    whole = gradient_flow(encoder, inputs)
    whole = whole.loc[whole["by"] == "h", "norm"].to_numpy()
    assert whole[1] == pytest.approx(held["norm"].iloc[1], rel=1e-12)
    assert (whole[2:] > 1.5 * held["norm"].to_numpy()[2:]).all()
    steps = step_norms(encoder, inputs)
    blocks = steps[(steps["of"] == "h") & (steps["by"] == "h")]
    np.testing.assert_allclose(blocks["norm"], by_h[:0:-1], rtol=1e-12)


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
        for name, matrix in (
            ("norm", cell @ between),
            ("flow", between),
            ("cell", cell),
        ):
            expected = float(torch.linalg.matrix_norm(matrix, 2))
            assert row[name] == pytest.approx(expected, rel=1e-10)
        assert row["time"] == pytest.approx(-float(gap))
        assert row["visits"] == k
    assert (steps["norm"] <= steps["flow"] * steps["cell"] * (1 + 1e-12)).all()


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("kind", KINDS)
def test_neighbours_and_padding_change_no_step(kind: str) -> None:
    encoder, inputs = encoder_of(kind), series()
    steps = step_norms(encoder, inputs)
    for k in range(3):
        single = step_norms(encoder, alone(inputs, k)).drop(columns="series")
        mine = steps[steps["series"] == k].drop(columns="series")
        assert len(single) == [6, 3, 3][k] * (4 if kind == "ode-lstm" else 1)
        pd.testing.assert_frame_equal(mine.reset_index(drop=True), single, rtol=1e-12)
    shortened = EncoderInputs(
        *(x[2:3, :4] for x in inputs)  # type: ignore[index]
    )
    bare = step_norms(encoder, shortened)
    padded = step_norms(encoder, alone(inputs, 2))
    pd.testing.assert_frame_equal(padded, bare, rtol=1e-12)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("kind", KINDS)
def test_product_of_steps_bounds_the_gradient_flow(kind: str) -> None:
    encoder, inputs = encoder_of(kind), alone(series(), 0)
    flow = gradient_flow(encoder, inputs, hold_cell=kind == "ode-lstm")
    steps = step_norms(encoder, inputs)
    steps = steps[(steps["of"] == "h") & (steps["by"] == "h")]
    bound = np.cumprod([1.0, *steps["norm"]])
    assert (flow["norm"] <= bound * (1 + 1e-12)).all()
    np.testing.assert_allclose(flow["norm"].iloc[1], bound[1])


@pytest.mark.usefixtures("float64")
def test_cell_state_does_not_flow() -> None:
    steps = step_norms(encoder_of("ode-lstm"), series())
    by_c, by_h = steps[steps["by"] == "c"], steps[steps["by"] == "h"]
    assert (by_c["flow"] == 1).all()
    assert (by_c["norm"] == by_c["cell"]).all()
    assert (by_h["flow"] - 1).abs().min() > 1e-3
    through_c = by_c[by_c["of"] == "c"]
    assert through_c["norm"].between(0.01, 1).all()  # the largest of forget gates


def test_cell_that_does_not_look_at_the_state_stops_the_error() -> None:
    class Forgetful(nn.RNNCell):
        def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
            return input

    encoder = ODERNN(1, 1, decay(), FixedStepSolver())
    encoder.cell = Forgetful(1, 1)
    inputs = EncoderInputs(torch.arange(3.0)[None], torch.ones(1, 3, 1))
    assert gradient_flow(encoder, inputs)["norm"].tolist() == [1.0, 0.0, 0.0]
    assert step_norms(encoder, inputs)["cell"].tolist() == [0.0, 0.0]


def test_repeated_stamp_is_a_visit_without_a_flow() -> None:
    encoder = ODERNN(1, 1, LinearField([[0.5]]), FixedStepSolver())
    encoder.cell = AddingCell(1, 1)
    times = torch.tensor([[0.0, 1.0, 1.0]])
    steps = step_norms(encoder, EncoderInputs(times, torch.zeros(1, 3, 1)))
    assert steps["time"].tolist() == [1.0, 0.0]
    assert steps["flow"].tolist() == [
        pytest.approx(amplification("rk4", -0.5), rel=1e-12),
        1.0,
    ]


def test_single_visit_has_no_step() -> None:
    encoder = RNN(1, 2)
    observed = torch.tensor([[False, True, False]])
    inputs = EncoderInputs(torch.arange(3.0)[None], torch.zeros(1, 3, 1), observed)
    assert step_norms(encoder, inputs).empty
    assert gradient_flow(encoder, inputs)["norm"].tolist() == [1.0]


def test_state_that_is_not_finite_gives_nan() -> None:
    encoder = ODERNN(1, 1, LinearField([[-1.0]]), FixedStepSolver())
    encoder.cell = AddingCell(1, 1)
    values = torch.tensor([[[1.0], [torch.finfo(torch.float64).max], [0.0]]])
    values = values.double()
    values[0, 1] = values[0, 2] = torch.finfo(torch.float64).max
    times = torch.arange(3.0)[None]

    class Quadratic(nn.Module):
        def forward(self, state: Tensor, control: Tensor | None = None) -> Tensor:
            return state**2

    encoder.vector_field = Quadratic()
    flow = gradient_flow(encoder, EncoderInputs(times, values))
    assert flow["norm"].iloc[0] == 1.0
    assert flow["norm"].iloc[1:].isna().all()


def test_measuring_changes_neither_the_encoder_nor_needs_its_gradients() -> None:
    encoder = encoder_of("ode-lstm")
    before = {name: p.clone() for name, p in encoder.named_parameters()}
    inputs = series()
    with torch.no_grad():
        without = gradient_flow(encoder, inputs)
    pd.testing.assert_frame_equal(without, gradient_flow(encoder, inputs))
    for name, parameter in encoder.named_parameters():
        assert parameter.dtype == torch.float32
        assert parameter.grad is None
        assert torch.equal(parameter, before[name])


@pytest.fixture(scope="module")
def fitted() -> Any:
    return tiny(normalize="series").fit(waves(uneven_stamps()))


def test_windows_are_read_as_the_forecaster_reads_them(fitted: Any) -> None:
    y = waves(uneven_stamps())
    times, inputs, observed = encoder_inputs(fitted, n_windows=100)
    starts = np.arange(24 - 6 - 2 + 1)  # six rows that are seen, two that follow
    assert times.shape == (len(starts), 6)
    rows = starts[:, None] + np.arange(6)
    elapsed = np.asarray((y.index - y.index[0]) / fitted.time_unit_)
    elapsed = elapsed[rows] - elapsed[starts][:, None]
    np.testing.assert_allclose(times, elapsed, rtol=1e-5)
    values = ((y - fitted.location_[0]) / fitted.scale_[0]).to_numpy()
    np.testing.assert_allclose(inputs[..., 0], values[rows], rtol=1e-4, atol=1e-6)
    assert bool((inputs[..., 1] == 1).all())
    assert observed is not None
    assert bool(observed.all())
    few = encoder_inputs(fitted, n_windows=3)
    for all_of_them, chosen in zip((times, inputs), few[:2], strict=True):
        assert torch.equal(all_of_them[[0, 8, 16]], chosen)
    (one,) = encoder_inputs(fitted, n_windows=1).times
    assert torch.equal(one, times[-1])


@pytest.mark.parametrize("kind", FORECASTERS)
def test_flow_of_a_forecaster_is_that_of_its_encoder(kind: Any) -> None:
    forecaster = tiny(kind).fit(waves(uneven_stamps()))
    before = forecaster.predict([1, 2])
    flow = gradient_flow(forecaster)
    encoder = forecaster.network_.encoder
    own = gradient_flow(encoder, encoder_inputs(forecaster))
    pd.testing.assert_frame_equal(flow, own)
    pd.testing.assert_frame_equal(
        step_norms(forecaster), step_norms(encoder, encoder_inputs(forecaster))
    )
    pd.testing.assert_series_equal(forecaster.predict([1, 2]), before)
    parts = ["c", "h"] if kind is LatentODELSTMForecaster else ["h"]
    assert sorted(flow["by"].unique()) == parts
    assert flow["series"].nunique() == 16
    assert flow["visits"].max() == 5


def test_inputs_of_a_forecaster_may_be_others(fitted: Any) -> None:
    other = encoder_inputs(fitted, waves(uneven_stamps(9, seed=3), seed=5))
    assert other.times.shape == (2, 6)
    flow = gradient_flow(fitted, other)
    pd.testing.assert_frame_equal(flow, gradient_flow(fitted.network_.encoder, other))
    assert flow["series"].nunique() == 2


def test_short_series_of_a_panel_is_padded_and_missing_channels_are_masked() -> None:
    y = panel((20, 4))
    forecaster = tiny().fit(y)
    last = encoder_inputs(forecaster, n_windows=1)
    assert last.observed is not None
    assert last.observed.tolist() == [[True] * 4 + [False] * 2]
    assert len(gradient_flow(forecaster, last)) == 2 * 4
    both = channels(uneven_stamps())
    both.iloc[::2, 0] = np.nan
    read = encoder_inputs(tiny().fit(both), n_windows=1)
    assert read.inputs.shape == (1, 6, 4)
    assert read.inputs[0, :, 2].tolist() == [0.0, 1.0] * 3
    assert read.inputs[0, :, 3].tolist() == [1.0] * 6


def test_controls_are_read_too() -> None:
    y = waves(uneven_stamps())
    X = pd.DataFrame({"u": np.arange(24.0)}, y.index)
    forecaster = tiny(LatentODERNNForecaster).fit(y, X=X)
    seen = encoder_inputs(forecaster, n_windows=1)
    scaled = (np.arange(16, 22) - X["u"].mean()) / X["u"].std(ddof=0)
    np.testing.assert_allclose(seen.inputs[0, :, 2], scaled, rtol=1e-5)
    again = encoder_inputs(forecaster, y, X, n_windows=1)
    assert all(torch.equal(a, b) for a, b in zip(seen, again, strict=True))  # type: ignore[arg-type]


def test_forecaster_that_is_not_fitted_is_refused() -> None:
    for function in (gradient_flow, step_norms, encoder_inputs, clipping_report):
        with pytest.raises(
            NotFittedError, match=r"fitted forecaster; got a Latent.*fit"
        ):
            function(LatentODEForecaster())


def test_what_is_no_encoder_is_refused(fitted: Any) -> None:
    for function in (gradient_flow, step_norms):
        with pytest.raises(TypeError, match=r"RNN, ODERNN or ODELSTM; got a Linear"):
            function(nn.Linear(1, 1), series())
        with pytest.raises(TypeError, match=r"got a LatentODE\. Pass the encoder of a"):
            function(fitted.network_)
        with pytest.raises(TypeError, match=r"needs inputs to run on; got a RNN alone"):
            function(RNN(1, 1))
    for report in (encoder_inputs, clipping_report):
        with pytest.raises(TypeError, match=r"got a RNN\. Pass the fitted forecaster"):
            report(RNN(1, 1))


@pytest.mark.parametrize("kind", [RNN, ODERNN])
def test_cell_state_cannot_be_held_where_there_is_none(kind: Any) -> None:
    with pytest.raises(ValueError, match=rf"for a {kind.__name__}, which has none"):
        gradient_flow(kind(3, 2), series(), hold_cell=True)


def test_inputs_of_the_wrong_shape_or_order_are_refused() -> None:
    encoder = RNN(3, 2)  # reads the gap besides
    times, inputs, observed = series()
    assert observed is not None
    with pytest.raises(ValueError, match=r"time, 3\) for this.*\(3, 7, 2\)\. One"):
        gradient_flow(encoder, EncoderInputs(times, inputs[..., :2]))
    with pytest.raises(ValueError, match=r"got \(7,\), \(7,\) and .*unsqueeze\(0\)"):
        gradient_flow(encoder, EncoderInputs(times[0], inputs[0]))
    with pytest.raises(ValueError, match=r"\(3, 7\), \(3, 1\) and"):
        gradient_flow(encoder, EncoderInputs(times, inputs, observed[:, :1]))
    with pytest.raises(TypeError, match=r"must be of bool.*; got torch.float32"):
        gradient_flow(encoder, EncoderInputs(times, inputs, observed.float()))
    with pytest.raises(ValueError, match=r"got none, so that there is no visit"):
        gradient_flow(encoder, EncoderInputs(times, inputs, observed & False))
    late = times.clone()
    late[1, 3] = -2.0
    with pytest.raises(ValueError, match=r"got -2 after .* at stamp 3 of series 1"):
        gradient_flow(encoder, EncoderInputs(late, inputs, observed))
    late[1, 3] = math.nan
    with pytest.raises(ValueError, match=r"got nan after .* at stamp 3 of series 1"):
        gradient_flow(encoder, EncoderInputs(late, inputs, observed))
    inputs[1, 2, 0] = math.inf
    with pytest.raises(ValueError, match=r"got \[inf, .* at stamp 2 of series 1"):
        gradient_flow(encoder, EncoderInputs(times, inputs, observed))
    inputs[1, 2, 0], inputs[1, 3] = 0.0, math.nan  # unobserved there
    gradient_flow(encoder, EncoderInputs(times, inputs, observed))


def test_windows_are_refused_that_cannot_be_cut(fitted: Any) -> None:
    with pytest.raises(ValueError, match=r"n_windows must be at least 1; got 0"):
        encoder_inputs(fitted, n_windows=0)
    with pytest.raises(ValueError, match=r"X belongs to the rows of y; got X without"):
        encoder_inputs(fitted, X=pd.DataFrame())
    with pytest.raises(ValueError, match=r"columns"):
        encoder_inputs(fitted, channels(uneven_stamps()))
    with pytest.raises(ValueError, match=r"needs an index of .*; got one of"):
        encoder_inputs(fitted, waves())


def with_history(forecaster: Any, **columns: list[float]) -> Any:
    """Return a copy of a fitted forecaster with another history."""
    forecaster = copy.copy(forecaster)
    epochs = pd.RangeIndex(1, len(columns["grad_norm"]) + 1, name="epoch")
    forecaster.history_ = pd.DataFrame(columns, epochs)
    return forecaster


def test_report_tells_when_gradients_exploded(fitted: Any) -> None:
    forecaster = with_history(
        fitted,
        grad_norm=[1.0, 3.0, 31.0, 2.0, math.nan, 29.0, 4.0],
        clipped_fraction=[0.25, 1.0, 1.0, 0.5, math.nan, 1.0, 0.75],
        skipped_steps=[0, 0, 0, 2, 5, 0, 0],
    )
    report = clipping_report(forecaster)
    assert report.clip_norm == 1.0
    assert report.clipped_fraction == pytest.approx(0.75)
    assert report.median_norm == 3.5
    assert report.max_norm == 31.0
    assert report.skipped_steps == 7
    assert report.exploded.index.tolist() == [4, 5]
    report = clipping_report(forecaster, factor=8)
    assert report.exploded.index.tolist() == [3, 4, 5, 6]
    pd.testing.assert_frame_equal(
        report.exploded, forecaster.history_.loc[[3, 4, 5, 6]]
    )


@pytest.mark.parametrize(("clip_norm", "fraction"), [(None, 0.0), (1e-6, 1.0)])
def test_report_of_a_fit_has_its_threshold(
    clip_norm: float | None, fraction: float
) -> None:
    y = waves(uneven_stamps())
    forecaster = tiny(clip_norm=clip_norm, max_epochs=3).fit(y)
    report = clipping_report(forecaster)
    assert report.clip_norm == clip_norm
    assert report.clipped_fraction == fraction
    norms = forecaster.history_["grad_norm"]
    assert (report.median_norm, report.max_norm) == (norms.median(), norms.max())
    assert report.skipped_steps == 0
    assert report.exploded.empty


def test_report_without_an_epoch_or_with_a_wrong_factor_is_refused(fitted: Any) -> None:
    empty = copy.copy(fitted)
    empty.history_ = fitted.history_.iloc[:0]
    with pytest.raises(ValueError, match=r"got one without an epoch .*was trained"):
        clipping_report(empty)
    for factor in (1.0, math.nan):
        with pytest.raises(ValueError, match=rf"factor must be above 1; got {factor}"):
            clipping_report(fitted, factor=factor)


@pytest.fixture(scope="module")
def example() -> ModuleType:
    """Return the example, which lies outside of any package."""
    path = Path(__file__).parents[1] / "examples" / "paper" / "gradients.py"
    spec = importlib.util.spec_from_file_location("gradients", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_example_tells_a_geometric_law_from_another(example: ModuleType) -> None:
    visits = np.arange(200.0)
    factor, explained = example.factor_per_visit(-0.25 * visits - 1)
    assert factor == pytest.approx(10**-0.25)
    assert explained == pytest.approx(1.0)
    factor, explained = example.factor_per_visit(np.where(visits < 100, 0.0, -9.0))
    assert explained < 0.9


def test_examples_counterexample_and_bounds_hold(example: ModuleType) -> None:
    inputs = example.inputs_of(0, 60)
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


def test_example_reads_verdicts_from_what_was_measured(example: ModuleType) -> None:
    gains = pd.DataFrame(
        {"RNN": [-9.0, 5.0, 30.0], "ODE-RNN": [-8.0, 0.5, 20.0], "ODE-LSTM": 3 * [0.0]},
        index=[1.0, 2.0, 3.0],
    )
    index = pd.MultiIndex.from_tuples(
        [("RNN", "1"), ("RNN", "none")], names=["encoder", "clip_norm"]
    )
    columns = {
        "median norm": [1.0, 2.0],
        "max norm": [50.0, 3.0],
        "skipped": [0.0, 0.0],
    }
    clipping = pd.DataFrame(columns, index)
    evidence = example.Evidence({}, gains, clipping, 0.0, (1e9, 1.0))
    every, later, clipped, bare = example.exploding(evidence)
    assert every.verdict == "not seen"  # of the ODE-LSTM
    assert "2 (RNN), 3 (ODE-RNN), nan (ODE-LSTM)" in every.measured
    assert later.verdict == "refuted: later and slower"
    assert clipped.verdict == "supported"
    assert bare.verdict == "not seen here"
    clipping.loc[("RNN", "none"), "skipped"] = 1.0
    *_, bare = example.exploding(evidence)
    assert bare.verdict == "seen"


@pytest.mark.slow
def test_example_prints_its_findings_and_saves_a_picture(
    example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "picture.png"
    quick = ["--stamps", "30", "60", "--seeds", "1", "--epochs", "1"]
    findings = example.main([*quick, "--output", str(path)])
    captured = capsys.readouterr()
    assert captured.err == ""
    assert len(findings) == 12
    assert all(claim in captured.out for claim in findings["claim"])
    assert matplotlib.image.imread(path).std() > 0.05
