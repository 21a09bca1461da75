"""Many steps along one field: the same steps as along any module, but cheaper."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from sklode.nn import AdaptiveSolver, FixedStepSolver, VectorField
from sklode.nn.solvers import Solver
from tests.networks import field
from tests.problems import Recorder

pytestmark = pytest.mark.usefixtures("float64")

STATE, NARROW, WIDE = 4, 5, 6  # hidden layers up to 1.5 states wide are narrow
METHODS = ("euler", "midpoint", "rk4")
STEPS = torch.tensor(
    [[0.6, 0.4, 0.5], [0.3, 0.0, 0.0], [-0.5, 0.4, -0.6]], dtype=torch.float64
)


def plain(f: VectorField) -> nn.Module:
    """Return the field as a module that solvers know nothing about."""
    return Recorder(f)


def controls(n: int) -> Tensor | None:
    return torch.randn(3, 3, n) if n else None


@pytest.mark.parametrize("n_controls", [0, 2])
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("width", [NARROW, WIDE])
@pytest.mark.parametrize("method", METHODS)
def test_our_field_is_solved_like_any_module(
    method: str, width: int, depth: int, n_controls: int
) -> None:
    f = field(STATE, width=width, depth=depth, control_size=n_controls)
    u = controls(n_controls)
    results = []
    z0 = torch.randn(3, STATE, requires_grad=True)
    dt = STEPS.clone().requires_grad_()
    for same in (f, plain(f)):
        states = FixedStepSolver(method).trajectory(same, z0, dt, u)
        grads = torch.autograd.grad(states.square().sum(), [z0, dt, *f.parameters()])
        results.append((states, *grads))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("activation", ["tanh", "elu", "softplus"])
@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_our_field_is_solved_with_its_own_activation(
    activation: str, width: int
) -> None:
    f = field(STATE, width=width, depth=2, activation=activation)
    z0 = torch.randn(3, STATE)
    ours, theirs = (
        FixedStepSolver().trajectory(same, z0, STEPS) for same in (f, plain(f))
    )
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize(
    "solver",
    [
        FixedStepSolver(),
        FixedStepSolver(adjoint=True),
        AdaptiveSolver(1e-8, 1e-8),
        AdaptiveSolver(1e-8, 1e-8, adjoint=True),
    ],
    ids=["rk4", "rk4-adjoint", "dopri5", "dopri5-adjoint"],
)
@pytest.mark.parametrize("n_controls", [0, 2])
def test_stepper_takes_the_solvers_steps(solver: Solver, n_controls: int) -> None:
    f = field(STATE, width=NARROW, control_size=n_controls)
    u, z = controls(n_controls), torch.randn(3, STATE)
    advance = solver.stepper(f, len(z))
    for k in range(3):
        held = None if u is None else u[:, k]
        ahead = advance(z, STEPS[:, k : k + 1], held)
        expected = solver.step(f, z, STEPS[:, k : k + 1], held)
        torch.testing.assert_close(ahead, expected, atol=1e-14, rtol=0)
        z = ahead


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_gradients_of_gradients_pass_through_our_field(width: int) -> None:
    class Solve(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.field = field(STATE, width=width, depth=2, control_size=1)

        def forward(self, z: Tensor, dt: Tensor, u: Tensor) -> Tensor:
            return FixedStepSolver("midpoint").trajectory(self.field, z, dt, u)

    solve = Solve()
    names = [name for name, _ in solve.named_parameters()]

    def end(z: Tensor, dt: Tensor, u: Tensor, *parameters: Tensor) -> Tensor:
        given = dict(zip(names, parameters, strict=True))
        states: Tensor = torch.func.functional_call(solve, given, (z, dt, u))
        return states[:, -1].sum(0)

    inputs = [torch.randn(2, STATE), STEPS[1:, :2], torch.randn(2, 2, 1)]
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    weights = [p.detach().clone().requires_grad_() for p in solve.parameters()]
    assert torch.autograd.gradgradcheck(end, (*leaves, *weights))


def test_a_field_of_the_users_own_is_called_even_if_it_derives_from_ours() -> None:
    class Halved(VectorField):
        def forward(self, state: Tensor, control: Tensor | None = None) -> Tensor:
            return 0.5 * super().forward(state, control)

    f = field(STATE, width=NARROW)
    halved = Halved(STATE, NARROW)
    halved.load_state_dict(f.state_dict())
    z0, solver = torch.randn(3, STATE), FixedStepSolver()
    # half the speed over twice the time
    torch.testing.assert_close(
        solver.trajectory(halved, z0, 2 * STEPS), solver.trajectory(f, z0, STEPS)
    )


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_controls_that_do_not_fit_the_field_are_an_error(width: int) -> None:
    z0, solver = torch.randn(3, STATE), FixedStepSolver()
    with pytest.raises(RuntimeError, match="shape"):
        solver.trajectory(field(STATE, width=width, control_size=2), z0, STEPS)
    with pytest.raises(RuntimeError, match="shape"):
        solver.trajectory(field(STATE, width=width), z0, STEPS, torch.randn(3, 3, 2))


@pytest.mark.parametrize("method", ["midpoint", "rk4"])
def test_narrow_field_takes_fewer_multiplications(method: str) -> None:
    def flops(f: nn.Module) -> int:
        with FlopCounterMode(display=False) as counter:
            solver = FixedStepSolver(method)
            solver.trajectory(f, torch.randn(16, 20), torch.full((16, 12), 0.5))
        return int(counter.get_total_flops())

    for width in (10, 29):
        narrow = field(20, width=width)
        assert flops(narrow) < 0.95 * flops(plain(narrow))
    # where the hidden space is the larger one, the steps stay in the state's
    for width in (30, 80):
        wide = field(20, width=width)
        assert flops(wide) == flops(plain(wide))


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_weights_are_laid_out_once_however_many_steps(width: int) -> None:
    class Operations(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.count: Counter[str] = Counter()

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            self.count[func.overloadpacket.__name__] += 1
            return func(*args, **(kwargs or {}))

    counts = []
    for n_steps in (2, 20):
        f = field(STATE, width=width, depth=2)
        with Operations() as forward:
            states = FixedStepSolver().trajectory(
                f, torch.randn(3, STATE), torch.full((3, n_steps), 0.2)
            )
        with Operations() as backward:
            states.sum().backward()
        assert forward.count["addmm"] >= 9 * n_steps
        counts.append((forward.count["t"], backward.count["sum"]))
    assert counts[0] == counts[1]


def test_stepper_of_the_adjoint_keeps_no_graph_of_its_steps() -> None:
    f, z = Recorder(field(STATE)), torch.randn(1, STATE)
    for solver in (FixedStepSolver(adjoint=True), AdaptiveSolver(adjoint=True)):
        solver.stepper(f, 1)(z, torch.full((1, 1), 0.2), None)
    assert set(f.graph_was_kept) == {False}
