"""The engine's functions against loops of torch cells and torch steps."""

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from sklode.engine import autograd as engine
from sklode.nn import Decoder, Solver, VectorField
from tests.networks import amplified, assert_same, field

pytestmark = pytest.mark.usefixtures("float64")

METHODS = ("euler", "midpoint", "rk4")
EVERY_FIELD = pytest.mark.parametrize(
    ("method", "depth"),
    list(itertools.product(METHODS, (1, 2))),
)
EVERY_CELL = pytest.mark.parametrize("cell", [nn.RNNCell, nn.LSTMCell])

Cell = nn.RNNCell | nn.LSTMCell


def weights(f: Any, state_size: int) -> engine.FieldWeights:
    """Return the layers of a field, without what reads the controls."""
    first, *inner = f.hidden
    return engine.FieldWeights(
        first.weight[:, :state_size],
        first.bias,
        tuple((layer.weight, layer.bias) for layer in inner),
        f.output.weight,
        f.output.bias,
    )


def engine_decode(
    f: Any, z0: Tensor, dt: Tensor, u: Tensor | None, method: str
) -> Tensor:
    state_size = z0.shape[-1]
    bias = None if u is None else u @ f.hidden[0].weight[:, state_size:].T
    where, layers = grid_points(*dt.shape), weights(f, state_size)
    return engine.decode_at(z0, dt, bias, *where, layers, method)


def grid_points(n_series: int, n_steps: int) -> tuple[Tensor, Tensor]:
    """Return the queries that are the steps' ends, and the first step's start."""
    left = torch.arange(-1, n_steps).clamp(min=0)
    theta = torch.ones(n_steps + 1)
    theta[0] = 0.0
    return left.repeat(n_series, 1), theta.repeat(n_series, 1)


def torch_decode(
    f: VectorField, z0: Tensor, dt: Tensor, u: Tensor | None, method: str
) -> Tensor:
    return Solver(method).trajectory(f, z0, dt, u)


def engine_encode(
    f: VectorField, cell: Cell, x: Tensor, dt: Tensor, visits: Tensor, method: str
) -> Tensor:
    bias = cell.bias_ih + cell.bias_hh
    gates = engine.CellWeights(cell.weight_ih, cell.weight_hh, bias)
    field = weights(f, cell.hidden_size)
    return engine.encode(x, dt, visits, gates, field, method)


def torch_encode(
    f: VectorField, cell: Cell, x: Tensor, dt: Tensor, visits: Tensor, method: str
) -> Tensor:
    solver = Solver(method)
    h = c = torch.zeros(len(x), cell.hidden_size, dtype=x.dtype)
    for k in range(x.shape[1]):
        h = solver.step(f, h, dt[:, k : k + 1])
        seen = visits[:, k : k + 1]
        if isinstance(cell, nn.LSTMCell):
            new_h, new_c = cell(x[:, k], (h, c))
            c = torch.where(seen, new_c, c)
        else:
            new_h = cell(x[:, k], h)
        h = torch.where(seen, new_h, h)
    return h


def with_gradients(output: Tensor, named: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return an output and the gradients of an uneven loss over all of it."""
    ramp = torch.linspace(0.5, 2.0, output.numel(), dtype=output.dtype)
    loss = (output.square() * ramp.view(output.shape)).sum()
    grads = torch.autograd.grad(loss, list(named.values()), retain_graph=True)
    return {"output": output.detach()} | dict(zip(named, grads, strict=True))


def parts(*modules: nn.Module) -> dict[str, Tensor]:
    return {
        f"{k}.{name}": parameter
        for k, module in enumerate(modules)
        for name, parameter in module.named_parameters()
    }


def encoder_problem(
    cell: type[nn.RNNCell] | type[nn.LSTMCell], n_series: int = 3, n_steps: int = 6
) -> tuple[Cell, Tensor, Tensor, Tensor]:
    """Return a cell, what it reads, signed steps with rests, and visits."""
    dt = torch.randn(n_series, n_steps)
    dt[:, 0] = 0.0
    dt[torch.rand(n_series, n_steps) < 0.2] = 0.0
    visits = torch.rand(n_series, n_steps) < 0.6
    visits[:, n_steps // 2] = True  # by every series, and by none
    visits[:, n_steps // 2 - 1] = False
    x = torch.randn(n_series, n_steps, 2, requires_grad=True)
    return amplified(cell(2, 4), 2.0), x, dt, visits


@EVERY_FIELD
@pytest.mark.parametrize("n_controls", [0, 2])
@pytest.mark.parametrize("width", [4, 7])  # solved in the hidden space, in its own
def test_decode_between_steps_equals_torch(
    method: str, depth: int, n_controls: int, width: int
) -> None:
    shape: Any = {"width": width, "depth": depth}
    f: Any = field(3, control_size=n_controls, **shape)
    z0 = torch.randn(4, 3, requires_grad=True)
    dt = 0.7 * torch.randn(4, 5)
    dt[1, 3:] = 0.0  # at rest from there on, dz/dt is asked at the end all the same
    dt[:, 4] = 0.0
    left = torch.randint(0, 5, (4, 8))
    left[1] = torch.randint(0, 3, (8,))
    theta = torch.rand(4, 8)
    theta[:, 0], theta[:, 1] = 0.0, 1.0
    named = {"z0": z0} | parts(f)
    u = bias = None
    if n_controls:
        u = torch.randn(4, 5, n_controls, requires_grad=True)
        bias = u @ f.hidden[0].weight[:, 3:].T
        named["u"] = u
    decoder = Decoder(f, Solver(method))
    assert_same(
        with_gradients(
            engine.decode_at(z0, dt, bias, left, theta, weights(f, 3), method),
            named,
        ),
        with_gradients(decoder.interpolated(z0, dt, u, left, theta), named),
        1e-10,
    )


def test_a_diverged_series_does_not_spoil_its_neighbours() -> None:
    f = field(3)
    z0 = torch.randn(20, 3)
    dt = torch.full((20, 4), 0.5)
    dt[2:, 3] = 0.0
    left, theta = torch.arange(4).repeat(20, 1), torch.full((20, 4), 0.3)
    spoiled = z0.clone()
    spoiled[0] = torch.inf
    clean, other = (
        engine.decode_at(start, dt, None, left, theta, weights(f, 3), "rk4")
        for start in (z0, spoiled)
    )
    assert not torch.isfinite(other[0]).all()
    torch.testing.assert_close(other[1:], clean[1:], rtol=0, atol=0)


@EVERY_FIELD
@EVERY_CELL
def test_encode_equals_torch(
    cell: type[nn.RNNCell] | type[nn.LSTMCell], method: str, depth: int
) -> None:
    f = field(4, width=5, depth=depth)
    made, x, dt, visits = encoder_problem(cell)
    named = {"x": x} | parts(f, made)
    assert_same(
        with_gradients(engine_encode(f, made, x, dt, visits, method), named),
        with_gradients(torch_encode(f, made, x, dt, visits, method), named),
        1e-10,
    )


@EVERY_CELL
@given(data=st.data())
def test_encode_equals_torch_for_any_schedule(
    cell: type[nn.RNNCell] | type[nn.LSTMCell], data: st.DataObject
) -> None:
    torch.manual_seed(data.draw(st.integers(0, 999)))
    n_series, n_steps = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 6))
    size = n_series * n_steps
    f = field(4, width=data.draw(st.sampled_from([1, 4, 9])))
    made, x, _, _ = encoder_problem(cell, n_series, n_steps)
    flags = st.lists(st.booleans(), min_size=size, max_size=size)
    lengths = st.lists(
        st.sampled_from([0.0, -0.4, -1.0, 0.7]), min_size=size, max_size=size
    )
    visits = torch.tensor(data.draw(flags)).view(n_series, n_steps)
    dt = torch.tensor(data.draw(lengths)).view(n_series, n_steps)
    named = {"x": x} | parts(f, made)
    assert_same(
        with_gradients(engine_encode(f, made, x, dt, visits, "rk4"), named),
        with_gradients(torch_encode(f, made, x, dt, visits, "rk4"), named),
        1e-10,
    )


@EVERY_CELL
def test_encode_without_any_flow_is_the_plain_cell(
    cell: type[nn.RNNCell] | type[nn.LSTMCell],
) -> None:
    made, x, _, _ = encoder_problem(cell)
    rest, all_visits = torch.zeros(3, 6), torch.ones(3, 6, dtype=torch.bool)
    kind = nn.RNN if cell is nn.RNNCell else nn.LSTM
    layer = kind(2, 4, batch_first=True)
    layer.load_state_dict({f"{k}_l0": w for k, w in made.state_dict().items()})
    h = engine_encode(field(4), made, x, rest, all_visits, "rk4")
    torch.testing.assert_close(h, layer(x)[0][:, -1])


def test_decode_of_no_steps_is_the_start() -> None:
    z0 = torch.randn(2, 3, requires_grad=True)
    states = engine_decode(field(3), z0, torch.empty(2, 0), None, "rk4")
    assert torch.equal(states, z0.unsqueeze(1))
    (by_z0,) = torch.autograd.grad(states.sum(), z0)
    assert torch.equal(by_z0, torch.ones(2, 3))


def test_far_out_states_overflow_no_activation() -> None:
    # warnings of numpy are errors here
    f = field(2, gain=0.5)
    z0 = torch.tensor([[3e4, -3e4]], requires_grad=True)
    dt = torch.full((1, 3), 1e-3)
    named = {"z0": z0} | parts(f)
    assert_same(
        with_gradients(engine_decode(f, z0, dt, None, "rk4"), named),
        with_gradients(torch_decode(f, z0, dt, None, "rk4"), named),
        1e-10,
    )


@EVERY_CELL
def test_saturated_gates_overflow_nothing(
    cell: type[nn.RNNCell] | type[nn.LSTMCell],
) -> None:
    made, x, dt, visits = encoder_problem(cell)
    x = (1e4 * x).detach().requires_grad_()
    f = field(4)
    named = {"x": x} | parts(f, made)
    assert_same(
        with_gradients(engine_encode(f, made, x, dt, visits, "rk4"), named),
        with_gradients(torch_encode(f, made, x, dt, visits, "rk4"), named),
        1e-10,
    )


@pytest.mark.parametrize("method", METHODS)
def test_gradcheck_through_decode(method: str) -> None:
    f = field(2, width=3, depth=2, control_size=1)
    dt = torch.tensor([[0.5, 0.9, 0.0], [-0.4, 0.3, -1.0]])
    left, theta = torch.tensor([[0, 1, 2], [2, 2, 0]]), torch.rand(2, 3)

    def states(z0: Tensor, bias: Tensor, *flat: Tensor) -> Tensor:
        w1, b1, w2, b2, wo, bo = flat
        given = engine.FieldWeights(w1, b1, ((w2, b2),), wo, bo)
        return engine.decode_at(z0, dt, bias, left, theta, given, method)

    w = weights(f, 2)
    flat = [w.w1, w.b1, *w.inner[0], w.wo, w.bo]
    inputs = [torch.randn(2, 2), torch.randn(2, 3, 3), *flat]
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    assert torch.autograd.gradcheck(states, leaves)


@EVERY_CELL
def test_gradcheck_through_encode(cell: type[nn.RNNCell] | type[nn.LSTMCell]) -> None:
    f = field(2, width=3, depth=2)
    dt = torch.tensor([[0.0, -0.9, -0.3], [0.0, 0.0, -1.0]])
    visits = torch.tensor([[True, False, True], [False, True, True]])
    made = cell(1, 2)

    def last(x: Tensor, *flat: Tensor) -> Tensor:
        w1, b1, w2, b2, wo, bo, *gates = flat
        given = engine.FieldWeights(w1, b1, ((w2, b2),), wo, bo)
        weights = engine.CellWeights(*gates)
        return engine.encode(x, dt, visits, weights, given, "rk4")

    w = weights(f, 2)
    flat = [w.w1, w.b1, *w.inner[0], w.wo, w.bo]
    gates = [made.weight_ih, made.weight_hh, made.bias_ih]
    inputs = [torch.randn(2, 3, 1), *flat, *gates]
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    assert torch.autograd.gradcheck(last, leaves)


def test_interleaved_calls_share_no_state() -> None:
    f = field(4)
    made, x, dt, visits = encoder_problem(nn.LSTMCell)
    other_x = torch.randn_like(x, requires_grad=True)
    z0, other_z0 = (torch.randn(2, 4, requires_grad=True) for _ in range(2))
    steps = torch.full((2, 4), 0.6)

    def encoded(x: Tensor) -> Tensor:
        return engine_encode(f, made, x, dt, visits, "rk4")

    def decoded(z0: Tensor) -> Tensor:
        return engine_decode(f, z0, steps, None, "rk4")

    for call, one, two in ((encoded, x, other_x), (decoded, z0, other_z0)):
        alone = [with_gradients(call(a), {"in": a} | parts(f)) for a in (one, two)]
        first, second = call(one), call(two)
        # backward passes in the order of the calls, not the reverse
        together = [
            with_gradients(out, {"in": a} | parts(f))
            for out, a in ((first, one), (second, two))
        ]
        for left, right in zip(alone, together, strict=True):
            assert_same(left, right, 0.0)


def test_backward_can_be_repeated() -> None:
    f = field(4)
    made, x, dt, visits = encoder_problem(nn.LSTMCell)
    z0 = torch.randn(2, 4, requires_grad=True)
    for output, named in (
        (engine_encode(f, made, x, dt, visits, "rk4"), {"x": x} | parts(f, made)),
        (engine_decode(f, z0, torch.ones(2, 3), None, "rk4"), {"z0": z0} | parts(f)),
    ):
        assert_same(with_gradients(output, named), with_gradients(output, named), 0.0)


@EVERY_CELL
def test_writing_into_an_output_changes_no_gradient(
    cell: type[nn.RNNCell] | type[nn.LSTMCell],
) -> None:
    f, z0 = field(4), torch.randn(2, 4, requires_grad=True)
    made, x, dt, visits = encoder_problem(cell)
    visits[:, -1] = True
    for call, leaf in (
        (lambda: engine_encode(f, made, x, dt, visits, "rk4"), x),
        (lambda: engine_decode(f, z0, torch.ones(2, 3), None, "rk4"), z0),
    ):
        (expected,) = torch.autograd.grad(call().sum(), leaf)
        output = call()
        output.detach().fill_(9.0)
        (grad,) = torch.autograd.grad(output.sum(), leaf)
        assert torch.equal(grad, expected)


def test_second_derivatives_are_refused_rather_than_wrong() -> None:
    z0 = torch.randn(2, 3, requires_grad=True)
    states = engine_decode(field(3), z0, torch.ones(2, 3), None, "rk4")
    (by_z0,) = torch.autograd.grad(states.square().sum(), z0, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        by_z0.sum().backward()


def test_engine_supports_floating_cpu_tensors_of_known_methods_only() -> None:
    example = torch.zeros(1)
    for method in METHODS:
        assert engine.supports(method, example)
    assert engine.supports("rk4", example.float())
    assert not engine.supports("dopri5", example)
    assert not engine.supports("rk4", example.half())
    assert not engine.supports("rk4", torch.empty(1, device="meta"))
