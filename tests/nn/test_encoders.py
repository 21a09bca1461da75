import math

import pytest
import torch
import torchdiffeq
from torch import Tensor, nn

from sklode.nn import ODELSTM, ODERNN, RNN, Solver
from tests.networks import amplified, field
from tests.problems import (
    AddingCell,
    Clock,
    HoldingCell,
    LinearField,
    Recorder,
    Zero,
    decay,
)

pytestmark = pytest.mark.usefixtures("float64")

TIMES = torch.tensor(
    [[0.0, 0.4, 1.3, 1.5, 2.4], [1.0, 1.9, 2.0, 2.7, 3.1]], dtype=torch.float64
)
EVERYWHERE = torch.ones(2, 5, dtype=torch.bool)


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


def linear_filter(f: nn.Module, solver: Solver) -> ODERNN:
    """Return an encoder whose cell adds x to h."""
    encoder = ODERNN(1, 1, f, solver)
    encoder.cell = AddingCell(1, 1)
    return encoder


def test_encoder_visits_each_gap_once_and_backward() -> None:
    clock = Recorder(Clock())
    encoder = ODERNN(1, 1, clock, Solver("euler"))
    cell = HoldingCell(1, 1)
    encoder.cell = cell
    x = torch.tensor([[10.0, 11, 12, 13, 14], [20.0, 21, 22, 23, 24]]).unsqueeze(-1)
    h = encoder(TIMES, x, EVERYWHERE)
    # the hidden state shows the signed time since the last stamp
    at_start_of_gaps = torch.cat(clock.states, dim=1)
    expected = TIMES.flip(1) - TIMES[:, -1:]
    torch.testing.assert_close(at_start_of_gaps, expected[:, :-1])
    torch.testing.assert_close(h, expected[:, -1:])
    assert torch.equal(torch.cat(cell.read, dim=1), x.squeeze(-1).flip(1))


@pytest.mark.parametrize(
    "solver",
    [Solver("rk4", 0.05), Solver("dopri5", rtol=1e-9)],
    ids=["rk4", "dopri5"],
)
def test_encoder_reads_real_times(solver: Solver) -> None:
    x = torch.tensor([[1.0, -2.0, 0.5, 3.0, 4.0], [0.0, 0.0, 0.0, 0.0, 1.0]])
    # walking backward, dh/dt = +h makes the state decay by exp(-gap)
    encoder = linear_filter(decay(-1.0), solver)
    h = encoder(TIMES, x.unsqueeze(-1), EVERYWHERE)
    since_first = TIMES - TIMES[:, :1]
    expected = (x * torch.exp(-since_first)).sum(1, keepdim=True)
    torch.testing.assert_close(h, expected, atol=1e-6, rtol=0)
    # walking forward, dh/dt = -h does
    encoder = linear_filter(decay(1.0), solver)
    last = encoder.states(TIMES, x.unsqueeze(-1), EVERYWHERE)[:, -1]
    until_last = TIMES[:, -1:] - TIMES
    expected = (x * torch.exp(-until_last)).sum(1, keepdim=True)
    torch.testing.assert_close(last, expected, atol=1e-6, rtol=0)


def test_backward_state_decays_by_each_gap() -> None:
    encoder = linear_filter(decay(-1.0), Solver("rk4", 0.05))
    x = torch.zeros(2, 5, 1)
    x[:, -1] = 1.0
    h = encoder.states(TIMES, x, EVERYWHERE, direction="backward")[..., 0]
    torch.testing.assert_close(h, torch.exp(TIMES - TIMES[:, -1:]), atol=1e-6, rtol=0)


def test_zero_field_reduces_to_torch_lstm() -> None:
    lstm = nn.LSTM(3, 4, batch_first=True)
    encoder = ODELSTM(3, 4, Zero(), Solver())
    encoder.cell.load_state_dict(
        {name.removesuffix("_l0"): w for name, w in lstm.state_dict().items()}
    )
    x = torch.randn(2, 5, 3)
    outputs, (last, _) = lstm(x.flip(1))
    torch.testing.assert_close(encoder(TIMES, x, EVERYWHERE), last[0])
    backward = encoder.states(TIMES, x, EVERYWHERE, direction="backward")
    torch.testing.assert_close(backward, outputs.flip(1))
    torch.testing.assert_close(encoder.states(TIMES, x, EVERYWHERE), lstm(x)[0])


def test_zero_field_reduces_to_torch_rnn() -> None:
    rnn = nn.RNN(3, 4, batch_first=True)
    state = {name.removesuffix("_l0"): w for name, w in rnn.state_dict().items()}
    x = torch.randn(2, 5, 3)
    for encoder in (
        ODERNN(3, 4, Zero(), Solver()),
        ODERNN(3, 4),
        RNN(3, 4, gap_input=False),
    ):
        encoder.cell.load_state_dict(state)
        torch.testing.assert_close(encoder(TIMES, x, EVERYWHERE), rnn(x.flip(1))[1][0])


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


def test_gates_have_separate_weights() -> None:
    # read backward: first 0.8, then -0.3
    x = torch.tensor([[[-0.3], [0.8]]])
    times, seen = torch.tensor([[0.0, 1.0]]), torch.ones(1, 2, dtype=torch.bool)

    def encoded(**biases: float) -> float:
        return float(gated(**biases)(times, x, seen).detach())

    late, early = math.tanh(-0.3), math.tanh(0.8)
    shut = -50.0
    # open gates add up the candidates, which are tanh, not sigmoid
    assert encoded() == pytest.approx(math.tanh(late + early), abs=1e-12)
    assert encoded(forget=shut) == pytest.approx(math.tanh(late), abs=1e-12)
    assert encoded(input=shut) == pytest.approx(0.0, abs=1e-12)
    assert encoded(output=shut) == pytest.approx(0.0, abs=1e-12)
    half = 0.0  # a gate of 1/2
    assert encoded(output=half) == pytest.approx(math.tanh(late + early) / 2, abs=1e-12)
    assert encoded(forget=half) == pytest.approx(math.tanh(late + early / 2), abs=1e-12)
    assert encoded(input=half) == pytest.approx(
        math.tanh((late + early) / 2), abs=1e-12
    )


class HalfLSTMCell(nn.LSTMCell):
    """A cell of the user's own: half the h of an LSTM."""

    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        h, c = super().forward(input, hx)
        return 0.5 * h, c


@pytest.mark.parametrize(("kind", "bias"), [(HalfLSTMCell, True), (nn.LSTMCell, False)])
def test_another_lstm_cell_may_take_the_place_of_ours(
    kind: type[nn.LSTMCell], bias: bool
) -> None:
    encoder = ODELSTM(3, 4)
    encoder.cell = cell = kind(3, 4, bias)
    x = torch.randn(2, 5, 3)
    h = c = torch.zeros(2, 4)
    for k in range(5):
        h, c = cell(x[:, k], (h, c))
    last = encoder.states(TIMES, x, EVERYWHERE)[:, -1]
    torch.testing.assert_close(last, h, atol=1e-14, rtol=0)


def test_only_h_flows_and_not_the_cell_state() -> None:
    # a field that sends h to 0 over a gap, through a cell that never looks at h
    encoder = gated()
    encoder.vector_field = LinearField([[-1.0]])
    encoder.solver = Solver("dopri5", rtol=1e-9)
    times = torch.tensor([[0.0, 50.0, 51.0]])
    x = torch.tensor([[[-0.3], [0.8], [0.0]]])
    h = encoder.states(times, x, torch.ones(1, 3, dtype=torch.bool))
    # C is the plain sum of the candidates, over the longest gap as well
    expected = math.tanh(math.tanh(-0.3) + math.tanh(0.8))
    assert h[0, 1].item() == pytest.approx(expected, abs=1e-9)
    # and h alone decays where nothing is observed
    seen = torch.tensor([[True, True, False]])
    h = encoder.states(times, x, seen)
    assert h[0, 2].item() == pytest.approx(expected * math.exp(-1), abs=1e-7)


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("cell", [ODERNN, ODELSTM])
@pytest.mark.parametrize("width", [None, 3, 7], ids=["no-flow", "narrow", "wide"])
def test_states_are_those_of_algorithm_1(
    cell: type[ODERNN] | type[ODELSTM], direction: str, width: int | None
) -> None:
    flow = () if width is None else (field(4, width=width), Solver())
    encoder = amplified(cell(3, 4, *flow), 2.0)
    times = (2.5 * torch.rand(4, 7)).cumsum(1)
    observed = torch.rand(4, 7) < 0.6
    observed[0], observed[3] = True, False
    x = torch.randn(4, 7, 3)
    states = encoder.states(times, x, observed, direction)
    order = slice(None) if direction == "forward" else torch.arange(6, -1, -1)
    for k in range(4):
        expected = algorithm_1(encoder, *(a[k][order] for a in (times, x, observed)))
        torch.testing.assert_close(states[k][order], expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("cell", [ODERNN, ODELSTM])
def test_forward_is_the_state_at_the_first_observed_stamp(
    cell: type[ODERNN] | type[ODELSTM],
) -> None:
    encoder = amplified(cell(3, 4, field(4), Solver()), 2.0)
    observed = torch.tensor([[True] * 5, [False, False, True, False, True]])
    x = torch.randn(2, 5, 3)
    states = encoder.states(TIMES, x, observed, direction="backward")
    h = encoder(TIMES, x, observed)
    torch.testing.assert_close(h, torch.stack([states[0, 0], states[1, 2]]))


def test_unknown_direction_is_refused() -> None:
    with pytest.raises(ValueError, match=r'"forward", "backward"; got .up'):
        ODERNN(1, 1).states(TIMES, torch.zeros(2, 5, 1), EVERYWHERE, direction="up")


def test_field_without_solver_is_refused() -> None:
    with pytest.raises(ValueError, match="must be given together"):
        ODELSTM(1, 1, decay())
    with pytest.raises(ValueError, match="Pass both"):
        ODERNN(1, 1, solver=Solver())


def test_rnn_reads_the_time_since_the_stamp_visited_before() -> None:
    encoder = RNN(1, 1)
    cell = HoldingCell(2, 1)
    encoder.cell = cell
    observed = torch.tensor([[True, False, True, True, True], [True] * 5])
    encoder(TIMES, torch.zeros(2, 5, 1), observed)
    gaps = torch.stack(cell.read, dim=1)[..., 1]
    # backward from the last stamp; the gaps around a skipped one add up
    torch.testing.assert_close(
        gaps[0][torch.tensor([0, 1, 2, 4])], torch.tensor([0.0, 0.9, 0.2, 1.3])
    )
    torch.testing.assert_close(gaps[1], torch.tensor([0.0, 0.4, 0.7, 0.1, 0.9]))


def test_rnn_without_gap_input_is_blind_to_time() -> None:
    blind, aware = RNN(1, 3, gap_input=False), RNN(1, 3)
    x = torch.randn(2, 5, 1)
    for encoder, differs in ((blind, False), (aware, True)):
        h, slower = (encoder(t, x, EVERYWHERE) for t in (TIMES, 2 * TIMES))
        assert torch.equal(h, slower) is not differs


@pytest.mark.slow
@pytest.mark.parametrize("cell", [ODERNN, ODELSTM])
def test_gradcheck_through_encoder(cell: type[ODERNN] | type[ODELSTM]) -> None:
    encoder = cell(1, 2, field(2, width=2), Solver("rk4", 0.6))
    observed = torch.tensor([[True, False, True], [False, True, True]])
    names = [name for name, _ in encoder.named_parameters()]

    def last(times: Tensor, x: Tensor, *parameters: Tensor) -> Tensor:
        given = dict(zip(names, parameters, strict=True))
        h: Tensor = torch.func.functional_call(encoder, given, (times, x, observed))
        return h

    inputs = [TIMES[:, :3], torch.randn(2, 3, 1), *encoder.parameters()]
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    assert torch.autograd.gradcheck(last, leaves)
    assert torch.autograd.gradgradcheck(last, leaves, fast_mode=True)
