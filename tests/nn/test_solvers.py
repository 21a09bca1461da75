import math

import pytest
import torch
import torchdiffeq
from torch import Tensor, nn

from sklode.data.errors import SolverError
from sklode.engine.tableaus import TABLEAUS
from sklode.nn import ControlPath, Decoder, Solver
from sklode.nn.solvers import methods
from sklode.training.parameters import check_parameters
from tests.networks import field
from tests.problems import Driven, Square, decay, oscillator
from tests.series import tiny

pytestmark = pytest.mark.usefixtures("float64")

EVERY_SOLVER = pytest.mark.parametrize(
    "solver",
    [Solver(method) for method in methods()],
    ids=methods(),
)
ADJOINT_FIRST = "dopri5_adjoint", "dopri5"
ADAPTIVE = pytest.mark.parametrize("method", ADJOINT_FIRST)


def tolerance(solver: Solver, exact: float = 1e-14) -> float:
    return 2e-3 if solver.is_adaptive else exact


@pytest.mark.parametrize("method", TABLEAUS)
def test_step_is_that_of_torchdiffeq(method: str) -> None:
    # torchdiffeq's "rk4" is the 3/8 rule as well
    f, z0 = field(3), torch.randn(2, 3)
    ends = torch.tensor([0.0, 0.8])
    theirs = torchdiffeq.odeint(lambda t, z: f(z), z0, ends, method=method)[-1]
    ours = Solver(method).step(f, z0, torch.full((2, 1), 0.8))
    torch.testing.assert_close(ours, theirs, atol=1e-14, rtol=0)


@pytest.mark.usefixtures("merson")
@pytest.mark.parametrize("method", [*TABLEAUS, "merson"])
def test_error_falls_with_the_step_to_the_power_of_the_order(method: str) -> None:
    # z' = z^2 from 1/2 is 1 / (2 - t): not linear, where stages are easily mistaken
    solver, errors = Solver(method), []
    for n in (32, 64):
        steps = torch.full((1, n), 1 / n)
        found = solver.trajectory(Square(), torch.tensor([[0.5]]), steps)[0, -1, 0]
        errors.append(abs(float(found) - 1.0))
    order = math.log2(errors[0] / errors[1])
    assert order == pytest.approx(TABLEAUS[method].order, abs=0.1)
    assert sum(TABLEAUS[method].b) == pytest.approx(1.0, abs=1e-15)


def test_methods_are_named_where_one_is_not_known(merson: str) -> None:
    with pytest.raises(ValueError, match=r"'euler', 'merson', 'dopri5'.*'rk5'"):
        Solver("rk5")
    with pytest.raises(ValueError, match=rf"'{merson}'.*'rk5'"):
        check_parameters(tiny(method="rk5"))
    check_parameters(tiny(method=merson))


def test_adaptive_solution_meets_its_tolerance() -> None:
    rotation, z0 = oscillator(2.0), torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    steps = torch.tensor([[0.5, 3.0], [-2.0, 0.1]])
    exact = rotation.solution(z0, steps.cumsum(1))
    states = Solver("dopri5").trajectory(rotation, z0, steps)[:, 1:]
    # not an exact solution
    assert 1e-6 < float((states - exact).abs().max().detach()) < 1e-2


@EVERY_SOLVER
def test_trajectory_is_its_steps_and_no_step_stays(solver: Solver) -> None:
    f, z = field(3), torch.randn(2, 3)
    steps = torch.tensor([[0.2, 0.0, 0.3, 0.1], [-0.1, 0.0, 0.4, -0.2]])
    states = solver.trajectory(f, z, steps)
    assert torch.equal(solver.trajectory(f, z, steps[:, :0]), z.unsqueeze(1))
    assert torch.equal(states[:, 0], z)
    for k in range(4):
        z = solver.step(f, z, steps[:, k : k + 1])
        found = states[:, k + 1]
        torch.testing.assert_close(found, z, atol=tolerance(solver), rtol=0)
    if not solver.is_adaptive:
        assert torch.equal(states[:, 1], states[:, 2])


@EVERY_SOLVER
def test_every_series_takes_its_own_steps(solver: Solver) -> None:
    f, z0 = field(3), torch.randn(3, 3)
    steps = torch.tensor([[0.5, -0.2], [-0.3, 0.9], [0.0, 0.0]])
    together = solver.trajectory(f, z0, steps)
    assert torch.equal(together[2], z0[2].expand(3, 3))
    for k in range(3):
        alone = solver.trajectory(f, z0[k : k + 1], steps[k : k + 1])[0]
        # the adaptive step control is shared by the batch
        torch.testing.assert_close(together[k], alone, atol=tolerance(solver), rtol=0)


@EVERY_SOLVER
def test_control_is_held_over_its_own_step(solver: Solver) -> None:
    # a pure integral of the control, exact for every method: z = sum dt u
    steps = torch.tensor([[0.5, 2.0, 0.0, 1.0], [-1.0, 0.5, 0.25, -2.0]])
    control = torch.tensor([[1.0, -3.0, 7.0, 2.0], [4.0, 0.0, 8.0, 1.0]])
    start = torch.zeros(2, 1)
    states = solver.trajectory(Driven(0.0), start, steps, control.unsqueeze(-1))
    expected = torch.tensor([[0, 0.5, -5.5, -5.5, -3.5], [0, -4.0, -4.0, -2.0, -4.0]])
    torch.testing.assert_close(states[..., 0], expected, atol=1e-6, rtol=0)


def test_adaptive_grid_is_fine_enough_for_its_tolerance() -> None:
    # the interpolation's error on a wave of unit frequency: spacing^4 / 384
    assert Solver("dopri5").grid_spacing ** 4 / 384 == pytest.approx(1e-3)
    assert Solver("dopri5", step_size=0.25).grid_spacing == 0.25


@ADAPTIVE
def test_failed_step_control_names_method_and_remedy(method: str) -> None:
    says = rf"method='{method}' could not.*tolerance.*clip_norm.*rk4"
    with pytest.raises(SolverError, match=says):
        Solver(method).trajectory(Square(), torch.ones(1, 1), torch.ones(1, 2))


def gradients(method: str) -> list[Tensor]:
    """Return gradients by z0 and weights, of a trajectory at stamps."""
    torch.manual_seed(0)
    f, z0 = field(3, control_size=1), torch.randn(2, 3, requires_grad=True)
    with torch.no_grad():
        f.output.weight.mul_(10)  # it moves
    times = torch.tensor(
        [[0.3, 2.0, 3.5], [-0.6, 0.7, 1.1]]
    )  # one rests, one goes back
    path = ControlPath(torch.arange(4.0).repeat(2, 1), torch.randn(2, 4, 1))
    states = Decoder(f, Solver(method))(z0, torch.zeros(2), times, path)
    (states**2).sum().backward()
    found = [x.grad for x in (z0, *f.parameters())]
    return [grad for grad in found if grad is not None]


def test_adjoint_gradients_are_those_through_the_steps() -> None:
    for adjoint, through in zip(*map(gradients, ADJOINT_FIRST), strict=True):
        size = float(through.abs().max())
        torch.testing.assert_close(adjoint, through, atol=5e-3 * size, rtol=0)


def saved_bytes(method: str, rate: float) -> int:
    """Return what autograd keeps of a solution whose field turns at a rate."""
    sizes: dict[int, int] = {}

    def pack(x: Tensor) -> Tensor:
        sizes[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    rotation = oscillator(rate)
    for parameter in rotation.parameters():
        parameter.requires_grad_()
    z0 = torch.ones(8, 2, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        solved = Solver(method).trajectory(rotation, z0, torch.ones(8, 4))
    assert solved.requires_grad
    return sum(sizes.values())


def test_memory_of_the_adjoint_does_not_grow_with_the_steps() -> None:
    slow, fast = (saved_bytes("dopri5_adjoint", rate) for rate in (0.5, 20.0))
    assert fast == slow
    assert saved_bytes("dopri5", 20.0) > 5 * saved_bytes("dopri5", 0.5) > 5 * slow


@pytest.mark.parametrize("fail", [torch.nan, torch.inf])
def test_state_that_is_not_finite_is_a_solver_error(fail: float) -> None:
    with pytest.raises(SolverError):
        Solver("dopri5").step(decay(), torch.full((1, 1), fail), torch.ones(1, 1))


class Stiff(nn.Module):
    """A field that pulls any state to a wave, ever so fast."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate, self.n_evaluations = rate, 0

    def forward(self, z: Tensor, u: Tensor | None = None) -> Tensor:
        self.n_evaluations += 1
        return self.rate * (torch.stack([z[..., 1], -z[..., 0]], -1) - z)


def test_adaptive_solve_that_would_not_end_is_given_up() -> None:
    stiff, moderate = Stiff(1e5), Stiff(5.0)
    with pytest.raises(SolverError, match=r"too many steps.* stiff"):
        Solver("dopri5").trajectory(stiff, torch.ones(1, 2), torch.ones(1, 50))
    assert 300 < stiff.n_evaluations < 2000
    Solver("dopri5").trajectory(moderate, torch.ones(1, 2), torch.ones(1, 10))
    assert moderate.n_evaluations < 0.25 * 10 * 6 * 32 * 2
