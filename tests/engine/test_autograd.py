"""The engine's functions against loops of torch cells and torch steps."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from sklode.engine import autograd as engine
from sklode.engine.tableaus import TABLEAUS
from sklode.nn import Decoder, Solver
from tests.networks import amplified, assert_same, field

pytestmark = pytest.mark.usefixtures("float64")

METHODS = tuple(TABLEAUS)
EVERY_CELL = pytest.mark.parametrize("cell", [nn.RNNCell, nn.LSTMCell])


def torch_encode(
    f: Any, cell: Any, x: Tensor, dt: Tensor, visits: Tensor, method: str
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


def encoder_problem(cell: Any, n_series: int = 3, n_steps: int = 6) -> Any:
    """Return a cell, what it reads, signed steps with rests, and visits."""
    dt = torch.randn(n_series, n_steps)
    dt[:, 0] = 0.0
    dt[torch.rand(n_series, n_steps) < 0.2] = 0.0
    visits = torch.rand(n_series, n_steps) < 0.6
    visits[:, n_steps // 2] = True  # by every series, and by none
    visits[:, n_steps // 2 - 1] = False
    x = torch.randn(n_series, n_steps, 2)
    return amplified(cell(2, 4), 2.0), x, dt, visits


def assert_encodes_as_torch(
    f: Any, cell: Any, x: Tensor, dt: Tensor, visits: Tensor, method: str = "rk4"
) -> None:
    named = parts(f, cell)
    found = engine.encode(x, dt, visits, cell, list(f.parameters()), method)
    expected = torch_encode(f, cell, x, dt, visits, method)
    assert_same(with_gradients(found, named), with_gradients(expected, named), 1e-10)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize(("n_controls", "width"), [(0, 7), (2, 4), (2, 7)])
def test_decode_between_steps_equals_torch(
    method: str, depth: int, n_controls: int, width: int
) -> None:
    f: Any = field(3, control_size=n_controls, width=width, depth=depth)
    z0 = torch.randn(4, 3, requires_grad=True)
    dt = 0.7 * torch.randn(4, 5)
    dt[1, 3:] = 0.0  # at rest from there on, dz/dt is needed at the end all the same
    dt[:, 4] = 0.0
    left = torch.randint(0, 5, (4, 8))
    left[1] = torch.randint(0, 3, (8,))
    theta = torch.rand(4, 8)
    theta[:, 0], theta[:, 1] = 0.0, 1.0
    named, u = {"z0": z0} | parts(f), None
    if n_controls:
        named["u"] = u = torch.randn(4, 5, n_controls, requires_grad=True)
    found = engine.decode_at(z0, dt, u, left, theta, list(f.parameters()), method)
    expected = Decoder(f, Solver(method)).interpolated(z0, dt, u, left, theta)
    assert_same(with_gradients(found, named), with_gradients(expected, named), 1e-10)


def test_a_diverged_series_does_not_spoil_its_neighbours() -> None:
    f: Any = field(3)
    z0 = torch.randn(20, 3)
    dt = torch.full((20, 4), 0.5)
    dt[2:, 3] = 0.0
    left, theta = torch.arange(4).repeat(20, 1), torch.full((20, 4), 0.3)
    spoiled = z0.clone()
    spoiled[0] = torch.inf
    clean, other = (
        engine.decode_at(start, dt, None, left, theta, list(f.parameters()), "rk4")
        for start in (z0, spoiled)
    )
    assert not torch.isfinite(other[0]).all()
    torch.testing.assert_close(other[1:], clean[1:], rtol=0, atol=0)


@EVERY_CELL
@given(data=st.data())
def test_encode_equals_torch_for_any_schedule(cell: Any, data: st.DataObject) -> None:
    torch.manual_seed(data.draw(st.integers(0, 999)))
    n_series, n_steps = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 6))
    size = n_series * n_steps
    widths, depths = st.sampled_from([1, 4, 9]), st.sampled_from([1, 2])
    f = field(4, width=data.draw(widths), depth=data.draw(depths))
    made, x, _, _ = encoder_problem(cell, n_series, n_steps)
    flags = st.lists(st.booleans(), min_size=size, max_size=size)
    lengths = st.lists(
        st.sampled_from([0.0, -0.4, -1.0, 0.7]), min_size=size, max_size=size
    )
    visits = torch.tensor(data.draw(flags)).view(n_series, n_steps)
    dt = torch.tensor(data.draw(lengths)).view(n_series, n_steps)
    method = data.draw(st.sampled_from(METHODS))
    assert_encodes_as_torch(f, made, x, dt, visits, method)


@EVERY_CELL
def test_encode_without_any_flow_is_the_plain_cell(cell: Any) -> None:
    made, x, _, _ = encoder_problem(cell)
    kind = nn.RNN if cell is nn.RNNCell else nn.LSTM
    layer = kind(2, 4, batch_first=True)
    layer.load_state_dict({f"{k}_l0": w for k, w in made.state_dict().items()})
    steps, visits = torch.ones(3, 6), torch.ones(3, 6, dtype=torch.bool)
    h = engine.encode(x, steps, visits, made, [], "euler")
    torch.testing.assert_close(h, layer(x)[0][:, -1])


@EVERY_CELL
def test_saturated_gates_overflow_nothing(cell: Any) -> None:
    # warnings of numpy are errors here
    made, x, dt, visits = encoder_problem(cell)
    assert_encodes_as_torch(field(4), made, 1e4 * x, dt, visits)


def encoding(f: Any, made: Any, x: Tensor) -> Tensor:
    dt = torch.tensor([[0.0, -0.9, -0.3], [0.0, 0.0, -1.0], [0.2, 0.1, 0.0]])
    visits = torch.tensor([[1, 0, 1], [0, 1, 1], [1, 1, 1]]).bool()
    return engine.encode(x, dt, visits, made, list(f.parameters()), "rk4")


def decoding(f: Any, z0: Tensor) -> Tensor:
    left, theta = torch.tensor([[0, 1, 2], [2, 2, 0]]), torch.full((2, 3), 0.4)
    steps = torch.tensor([[0.5, 0.9, 0.0], [-0.4, 0.3, -1.0]])
    return engine.decode_at(z0, steps, None, left, theta, list(f.parameters()), "rk4")


def test_interleaved_calls_share_no_state_and_repeat() -> None:
    f, made = field(4), nn.LSTMCell(2, 4)
    calls: list[Any] = [
        (lambda x: encoding(f, made, x), (3, 3, 2), parts(f, made)),
        (lambda z0: decoding(f, z0), (2, 4), parts(f)),
    ]
    for call, shape, named in calls:
        one, two = torch.randn(shape), torch.randn(shape)
        alone = [with_gradients(call(a), named) for a in (one, two)]
        outputs = call(one), call(two)
        # backward passes in the order of the calls, not the reverse; each twice
        for left, output in zip(alone * 2, outputs * 2, strict=True):
            assert_same(with_gradients(output, named), left, 0.0)


def test_second_derivatives_are_refused_rather_than_wrong() -> None:
    z0 = torch.randn(2, 3, requires_grad=True)
    states = decoding(field(3), z0)
    (by_z0,) = torch.autograd.grad(states.square().sum(), z0, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        by_z0.sum().backward()
