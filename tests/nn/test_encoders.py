"""Algorithm 1: gaps and visits, the cells, masks and padding."""

import math
from typing import Any

import pytest
import torch
import torchdiffeq
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from sklode.nn import ODELSTM, ODERNN, RNN, Solver, VectorField
from sklode.nn.encoders import MAX_SUBSTEPS
from tests.networks import amplified, field
from tests.problems import (
    AddingCell,
    Clock,
    HoldingCell,
    LinearField,
    Recorder,
    Zero,
    amplification,
    decay,
)

pytestmark = pytest.mark.usefixtures("float64")

TIMES = torch.tensor(
    [[0.0, 0.4, 1.3, 1.5, 2.4], [1.0, 1.9, 2.0, 2.7, 3.1]], dtype=torch.float64
)
EVERYWHERE = torch.ones(2, 5, dtype=torch.bool)

EVERY_KIND = pytest.mark.parametrize("kind", ["rnn", "ode-rnn", "ode-lstm"])

Encoder = RNN | ODERNN | ODELSTM


def encoder_of(kind: str) -> Encoder:
    made: dict[str, Encoder] = {
        "rnn": RNN(2, 4),
        "ode-rnn": ODERNN(2, 4, field(4), Solver()),
        "ode-lstm": ODELSTM(2, 4, field(4), Solver()),
    }
    encoder: Encoder = amplified(made[kind], 2.0)
    return encoder


def linear_filter(f: nn.Module, solver: Solver) -> ODERNN:
    """Return an encoder whose cell adds x to h."""
    encoder = ODERNN(1, 1, f, solver)
    encoder.cell = AddingCell(1, 1)
    return encoder


def carried_over(gap: float, solver: Solver) -> float:
    """Return what is left of h = 1 after one gap of dh/dt = +h, walked backward."""
    encoder = linear_filter(decay(-1.0), solver)
    times, x = torch.tensor([[0.0, gap]]), torch.tensor([[[0.0], [1.0]]])
    return float(encoder(times, x, torch.ones(1, 2, dtype=torch.bool)).detach())


def test_encoder_visits_each_gap_once_and_backward() -> None:
    clock, cell = Recorder(Clock()), HoldingCell(1, 1)
    encoder = ODERNN(1, 1, clock, Solver("euler"))
    encoder.cell = cell
    x = torch.tensor([[10.0, 11, 12, 13, 14], [20.0, 21, 22, 23, 24]]).unsqueeze(-1)
    h = encoder(TIMES, x, EVERYWHERE)
    # the hidden state shows the signed time since the last stamp
    at_start_of_gaps = torch.cat(clock.states, dim=1)
    expected = TIMES.flip(1) - TIMES[:, -1:]
    torch.testing.assert_close(at_start_of_gaps, expected[:, :-1])
    torch.testing.assert_close(h, expected[:, -1:])
    assert torch.equal(torch.cat(cell.read, dim=1), x.squeeze(-1).flip(1))


@pytest.mark.parametrize("method", ["rk4", "dopri5"])
def test_encoder_reads_real_times(method: str) -> None:
    solver = Solver(method, 0.05)
    error = 2e-3 if solver.is_adaptive else 1e-6
    x = torch.tensor([[1.0, -2.0, 0.5, 3.0, 4.0], [0.0, 0.0, 0.0, 0.0, 1.0]])
    # walking backward, dh/dt = +h makes the state decay by exp(-gap)
    encoder = linear_filter(decay(-1.0), solver)
    h = encoder(TIMES, x.unsqueeze(-1), EVERYWHERE)
    since_first = TIMES - TIMES[:, :1]
    expected = (x * torch.exp(-since_first)).sum(1, keepdim=True)
    torch.testing.assert_close(h, expected, atol=error, rtol=0)
    # walking forward, dh/dt = -h does
    encoder = linear_filter(decay(1.0), solver)
    last = encoder.states(TIMES, x.unsqueeze(-1), EVERYWHERE)[:, -1]
    until_last = TIMES[:, -1:] - TIMES
    expected = (x * torch.exp(-until_last)).sum(1, keepdim=True)
    torch.testing.assert_close(last, expected, atol=error, rtol=0)


def algorithm_1(
    encoder: ODERNN | ODELSTM, times: Tensor, inputs: Tensor, observed: Tensor
) -> Tensor:
    """Algorithm 1 of the paper, line by line, for one series in visiting order."""
    field = encoder.vector_field
    h = c = torch.zeros(1, encoder.hidden_size)
    states, started = [], False
    for i in range(len(times)):
        if field is not None and started and times[i] != times[i - 1]:
            n = math.ceil(abs(float(times[i] - times[i - 1])))
            pieces = torch.linspace(float(times[i - 1]), float(times[i]), n + 1)
            h = torchdiffeq.odeint(lambda t, h: field(h), h, pieces, method="rk4")[-1]
        if observed[i]:
            x = inputs[i : i + 1]
            if isinstance(encoder, ODELSTM):
                h, c = encoder.cell(x, (h, c))
            else:
                h = encoder.cell(x, h)
            started = True
        states.append(h)
    return torch.cat(states)


@pytest.mark.parametrize("cell", [ODERNN, ODELSTM])
@pytest.mark.parametrize("flows", [False, True])
def test_states_are_those_of_algorithm_1(
    cell: type[ODERNN] | type[ODELSTM], flows: bool
) -> None:
    encoder = amplified(cell(3, 4, field(4) if flows else None), 2.0)
    times, x = (2.5 * torch.rand(4, 7)).cumsum(1), torch.randn(4, 7, 3)
    observed = torch.rand(4, 7) < 0.6
    observed[0], observed[3] = True, False
    forward = times, x, observed
    backward = times.flip(1), x.flip(1), observed.flip(1)
    for visited in (forward, backward):
        states = encoder.states(*visited)
        for k in range(4):
            expected = algorithm_1(encoder, *(part[k] for part in visited))
            torch.testing.assert_close(states[k], expected, atol=1e-12, rtol=0)
    # what it returns is h at the first observed stamp
    first = 6 - observed.to(torch.uint8).argmax(1)
    h = encoder(*forward)
    torch.testing.assert_close(h, states[torch.arange(4), first])


def test_zero_field_reduces_to_torchs_cells() -> None:
    x = torch.randn(2, 5, 3)
    for encoder, whole in (
        (ODELSTM(3, 4, Zero(), Solver()), nn.LSTM(3, 4, batch_first=True)),
        (ODERNN(3, 4, Zero(), Solver()), nn.RNN(3, 4, batch_first=True)),
        (ODERNN(3, 4), nn.RNN(3, 4, batch_first=True)),
    ):
        weights = whole.state_dict().items()
        encoder.cell.load_state_dict({k.removesuffix("_l0"): w for k, w in weights})
        torch.testing.assert_close(encoder.states(TIMES, x, EVERYWHERE), whole(x)[0])
        last = whole(x.flip(1))[0][:, -1]
        torch.testing.assert_close(encoder(TIMES, x, EVERYWHERE), last)


def gated(**biases: float) -> ODELSTM:
    """Return an ODE-LSTM of size 1 whose candidate is tanh(x): gates by biases."""
    encoder = ODELSTM(1, 1)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.zero_()
        encoder.cell.weight_ih[2] = 1.0
        for k, gate in enumerate(("input", "forget", "candidate", "output")):
            encoder.cell.bias_ih[k] = biases.get(gate, 0.0 if k == 2 else 50.0)
    return encoder


def test_only_h_flows_and_not_the_cell_state() -> None:
    # a field that sends h to 0 over a gap, through a cell that never looks at h
    encoder = gated()
    encoder.vector_field = LinearField([[-1.0]])
    encoder.solver = Solver("rk4", 0.05)
    times = torch.tensor([[0.0, 50.0, 51.0]])
    x = torch.tensor([[[-0.3], [0.8], [0.0]]])
    h = encoder.states(times, x, torch.tensor([[True, True, False]]))
    # C is the plain sum of the candidates, over the longest gap as well
    expected = math.tanh(math.tanh(-0.3) + math.tanh(0.8))
    assert h[0, 1].item() == pytest.approx(expected, abs=1e-9)
    # and h alone decays where nothing is observed
    assert h[0, 2].item() == pytest.approx(expected * math.exp(-1), abs=1e-7)


def test_rnn_reads_the_time_since_the_stamp_visited_before() -> None:
    encoder, cell = RNN(1, 1), HoldingCell(2, 1)
    encoder.cell = cell
    observed = torch.tensor([[True, False, True, True, True], [True] * 5])
    encoder(TIMES, torch.zeros(2, 5, 1), observed)
    gaps = torch.stack(cell.read, dim=1)[..., 1]
    # backward from the last stamp; the gaps around a skipped one add up
    visited = gaps[0][torch.tensor([0, 1, 2, 4])]
    torch.testing.assert_close(visited, torch.tensor([0.0, 0.9, 0.2, 1.3]))
    torch.testing.assert_close(gaps[1], torch.tensor([0.0, 0.4, 0.7, 0.1, 0.9]))


@pytest.mark.parametrize("method", ["euler", "rk4"])
@pytest.mark.parametrize(
    ("gap", "step_size", "n_steps"),
    [
        (0.3, 1.0, 1),
        (1.0, 1.0, 1),  # a gap as long as the step is one step
        (2.5, 1.0, 3),
        (0.7, 0.2, 4),
        (6.0, 0.2, 30),
        (100.0, 1.0, MAX_SUBSTEPS),
    ],
)
def test_gap_longer_than_step_size_is_split_into_equal_steps(
    method: str, gap: float, step_size: float, n_steps: int
) -> None:
    expected = amplification(method, -gap / n_steps) ** n_steps
    solver = Solver(method, step_size)
    assert carried_over(gap, solver) == pytest.approx(expected, rel=1e-10)


@EVERY_KIND
@given(data=st.data())
def test_series_is_encoded_alike_alone_and_padded_in_a_batch(
    kind: str, data: st.DataObject
) -> None:
    torch.manual_seed(data.draw(st.integers(0, 999)))
    encoder = encoder_of(kind)
    lengths = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=5))
    longest_gap = data.draw(st.sampled_from([0.5, 2.0, 9.0]))
    alone = []
    times = torch.zeros(len(lengths), max(lengths))
    inputs = torch.randn(len(lengths), max(lengths), 2)
    observed = torch.zeros(times.shape, dtype=torch.bool)
    for k, n in enumerate(lengths):
        t = (0.05 + longest_gap * torch.rand(n)).cumsum(0)
        seen = torch.tensor(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
        # padded by repeating the last stamp
        times[k], times[k, :n], observed[k, :n] = t[-1], t, seen
        alone.append(encoder(t[None], inputs[k : k + 1, :n], seen[None]))
    together = encoder(times, inputs, observed)
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-12, rtol=0)


@EVERY_KIND
@pytest.mark.parametrize(
    "inserted", [[-5.3], [2.0], [4.5, 9.0], [-2.2, -0.1, 2.0, 3.7]]
)
def test_fully_masked_stamp_changes_nothing(kind: str, inserted: list[float]) -> None:
    # between two stamps it falls on the end of a solver step
    encoder = encoder_of(kind)
    times, x = torch.tensor([[0.0, 1.0, 3.0, 3.5]]), torch.randn(1, 4, 2)
    seen = torch.ones(1, 4, dtype=torch.bool)
    order = torch.argsort(torch.cat([times[0], torch.tensor(inserted)]))
    more_times = torch.cat([times[0], torch.tensor(inserted)])[order][None]
    more_x = torch.cat([x[0], 1e3 * torch.ones(len(inserted), 2)])[order][None]
    more_seen = torch.cat([seen[0], torch.zeros(len(inserted), dtype=torch.bool)])
    h = encoder(more_times, more_x, more_seen[order][None])
    torch.testing.assert_close(h, encoder(times, x, seen), atol=1e-13, rtol=0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: RNN(2, 4),
        lambda: ODELSTM(2, 4),
        lambda: ODELSTM(3, 4, VectorField(5, 3)),
    ],
    ids=["inputs of an RNN", "inputs", "states of the field"],
)
def test_sizes_that_do_not_fit_are_refused_and_not_read(make: Any) -> None:
    times, observed = torch.arange(4.0).repeat(2, 1), torch.ones(2, 4).bool()
    with pytest.raises(RuntimeError, match=r"inconsistent input_size|shapes cannot"):
        make()(times, torch.ones(2, 4, 3), observed)
