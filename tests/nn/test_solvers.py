import pytest
import torch
import torchdiffeq
from torch import Tensor, nn

from sklode.data.errors import SolverError
from sklode.nn import Solver
from tests.networks import field
from tests.problems import (
    Driven,
    Logistic,
    Square,
    constant_acceleration,
    decay,
    oscillator,
)

pytestmark = pytest.mark.usefixtures("float64")

ORDERS = {"euler": 1, "midpoint": 2, "rk4": 4}
TIGHT = Solver("dopri5", rtol=1e-9)

EVERY_SOLVER = [
    *(pytest.param(Solver(method), id=method) for method in ORDERS),
    pytest.param(TIGHT, id="dopri5"),
]


@pytest.mark.parametrize(("method", "order"), ORDERS.items())
def test_method_converges_at_its_order(method: str, order: int) -> None:
    logistic, z0 = Logistic(), torch.tensor([[0.1], [0.4]])
    # one series forward, one backward
    span = torch.tensor([[2.0], [-1.5]])
    errors = []
    for n_steps in (16, 32):
        steps = (span / n_steps).expand(-1, n_steps)
        end = Solver(method).trajectory(logistic, z0, steps)[:, -1]
        errors.append((end - logistic.solution(z0, span)).abs())
    observed = torch.log2(errors[0] / errors[1])
    torch.testing.assert_close(
        observed, torch.full_like(observed, order), atol=0.15, rtol=0
    )


@pytest.mark.parametrize("method", ORDERS)
def test_step_is_that_of_torchdiffeq(method: str) -> None:
    # torchdiffeq's "rk4" is the 3/8 rule as well
    f, z0, dt = field(3), torch.randn(2, 3), 0.8
    steps = torch.full((2, 1), dt)
    theirs = torchdiffeq.odeint(
        lambda t, z: f(z), z0, torch.tensor([0.0, dt]), method=method
    )[-1]
    ours = Solver(method).step(f, z0, steps)
    torch.testing.assert_close(ours, theirs, atol=1e-14, rtol=0)


def test_adaptive_solution_meets_its_tolerance() -> None:
    rotation, z0 = oscillator(2.0), torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    steps = torch.tensor([[0.5, 3.0], [-2.0, 0.1]])
    exact = rotation.solution(z0, steps.cumsum(1))
    for tolerance in (1e-4, 1e-7):
        solver = Solver("dopri5", rtol=tolerance)
        states = solver.trajectory(rotation, z0, steps)[:, 1:]
        error = float((states - exact).abs().max().detach())
        assert error < 30 * tolerance
    assert error > 0  # a tolerance was used, not an exact solution


@pytest.mark.parametrize("solver", EVERY_SOLVER)
def test_trajectory_holds_the_state_after_every_step(solver: Solver) -> None:
    f, z0 = field(3), torch.randn(2, 3)
    steps = torch.tensor([[0.2, 0.3, 0.1], [-0.1, 0.4, -0.2]])
    states = solver.trajectory(f, z0, steps)
    z = z0
    torch.testing.assert_close(states[:, 0], z0)
    for k in range(3):
        z = solver.step(f, z, steps[:, k : k + 1])
        torch.testing.assert_close(states[:, k + 1], z, atol=1e-8, rtol=0)


@pytest.mark.parametrize("solver", EVERY_SOLVER)
def test_step_of_zero_leaves_a_state_exactly_where_it_is(solver: Solver) -> None:
    z0 = torch.randn(2, 3)
    steps = torch.tensor([[0.4, 0.0, 0.3], [0.0, 0.0, 0.0]])
    states = solver.trajectory(field(3), z0, steps)
    assert torch.equal(states[1], z0[1].expand(4, 3))
    if not solver.is_adaptive:
        assert torch.equal(states[0, 1], states[0, 2])
    else:
        torch.testing.assert_close(states[0, 1], states[0, 2], atol=1e-12, rtol=0)


@pytest.mark.parametrize("solver", EVERY_SOLVER)
def test_no_steps_return_the_initial_state(solver: Solver) -> None:
    z0 = torch.randn(2, 3)
    assert torch.equal(
        solver.trajectory(field(3), z0, torch.empty(2, 0)), z0.unsqueeze(1)
    )


@pytest.mark.parametrize("solver", EVERY_SOLVER)
def test_every_series_takes_its_own_steps(solver: Solver) -> None:
    f, z0 = field(3), torch.randn(3, 3)
    steps = torch.tensor([[0.5, -0.2], [-0.3, 0.9], [0.1, 0.0]])
    together = solver.trajectory(f, z0, steps)
    # the adaptive step control is shared by the batch
    tolerance = 1e-14 if not solver.is_adaptive else 1e-7
    for k in range(3):
        alone = solver.trajectory(f, z0[k : k + 1], steps[k : k + 1])
        torch.testing.assert_close(together[k], alone[0], atol=tolerance, rtol=0)


@pytest.mark.parametrize(
    ("solver", "tolerance"),
    [
        (Solver("midpoint"), 1e-4),
        (Solver("rk4"), 1e-9),
        (TIGHT, 1e-6),
    ],
    ids=["midpoint", "rk4", "dopri5"],
)
def test_backward_solve_inverts_forward_solve(solver: Solver, tolerance: float) -> None:
    f, z0 = field(3).requires_grad_(False), torch.randn(2, 3)
    steps = torch.tensor([[0.01], [0.03]]).repeat(1, 30)
    steps[:, ::2] *= 1.5
    end = solver.trajectory(f, z0, steps)[:, -1]
    back = solver.trajectory(f, end, -steps.flip(1))[:, -1]
    assert float((end - z0).abs().max()) > 100 * tolerance
    torch.testing.assert_close(back, z0, atol=tolerance, rtol=0)


def test_backward_solve_inverts_an_exactly_solved_one_to_rounding() -> None:
    z0 = torch.tensor([[1.0, -2.0, 0.5]])
    for method in ("midpoint", "rk4"):
        solver = Solver(method)
        there = solver.step(constant_acceleration(), z0, torch.tensor([[3.0]]))
        expected = torch.tensor([[1.0 - 6.0 + 0.25 * 9, -0.5, 0.5]])
        torch.testing.assert_close(there, expected, atol=1e-13, rtol=0)
        back = solver.step(constant_acceleration(), there, torch.tensor([[-3.0]]))
        torch.testing.assert_close(back, z0, atol=1e-13, rtol=0)


@pytest.mark.parametrize("solver", EVERY_SOLVER)
def test_control_is_held_over_its_own_step(solver: Solver) -> None:
    # a pure integral of the control, exact for every method: z = sum dt u
    integral = Driven(rate=0.0)
    steps = torch.tensor([[0.5, 2.0, 0.0, 1.0], [-1.0, 0.5, 0.25, -2.0]])
    control = torch.tensor(
        [[[1.0], [-3.0], [7.0], [2.0]], [[4.0], [0.0], [8.0], [1.0]]]
    )
    states = solver.trajectory(integral, torch.zeros(2, 1), steps, control)
    expected = torch.tensor([[0, 0.5, -5.5, -5.5, -3.5], [0, -4.0, -4.0, -2.0, -4.0]])
    torch.testing.assert_close(states[..., 0], expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("solver", "tolerance"),
    [
        (Solver("euler"), 2e-2),
        (Solver("midpoint"), 1e-3),
        (Solver("rk4"), 1e-7),
        (TIGHT, 1e-7),
    ],
    ids=["euler", "midpoint", "rk4", "dopri5"],
)
def test_controlled_solution_is_the_closed_form(
    solver: Solver, tolerance: float
) -> None:
    driven, z0 = Driven(rate=0.8), torch.tensor([[1.0], [-0.5]])
    steps = torch.tensor([[0.05], [-0.02]]).expand(-1, 20)
    control = torch.tensor([[[2.0]], [[-1.0]]]).expand(-1, 20, -1)
    states = solver.trajectory(driven, z0, steps, control)[:, 1:, 0]
    exact = driven.under_constant(z0, steps.cumsum(1), control[..., 0])
    torch.testing.assert_close(states, exact, atol=tolerance, rtol=0)


def test_adaptive_grid_is_fine_enough_for_its_tolerance() -> None:
    # the interpolation's error on a wave of unit frequency: spacing^4 / 384
    for rtol in (1e-3, 1e-5):
        assert Solver("dopri5", rtol=rtol).grid_spacing ** 4 / 384 <= rtol * 1.0001
    assert Solver("dopri5", rtol=1e-3, step_size=0.25).grid_spacing == 0.25


def test_failed_step_control_names_method_and_remedy() -> None:
    with pytest.raises(SolverError, match=r"dopri5.*tolerance.*clip_norm.*rk4"):
        Solver("dopri5").trajectory(Square(), torch.ones(1, 1), torch.ones(1, 2))


@pytest.mark.parametrize("fail", [torch.nan, torch.inf])
def test_state_that_is_not_finite_is_a_solver_error(fail: float) -> None:
    with pytest.raises(SolverError):
        TIGHT.step(decay(), torch.full((1, 1), fail), torch.ones(1, 1))


def test_gradients_of_gradients_pass_through_our_field() -> None:
    class Solve(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.field = field(3, depth=2, control_size=1)

        def forward(self, z: Tensor, dt: Tensor, u: Tensor) -> Tensor:
            return Solver("midpoint").trajectory(self.field, z, dt, u)

    solve = Solve()
    names = [name for name, _ in solve.named_parameters()]

    def end(z: Tensor, dt: Tensor, u: Tensor, *parameters: Tensor) -> Tensor:
        given = dict(zip(names, parameters, strict=True))
        states: Tensor = torch.func.functional_call(solve, given, (z, dt, u))
        return states[:, -1].sum(0)

    inputs = [
        torch.randn(2, 3),
        torch.tensor([[0.3, 0.0], [-0.5, 0.4]]),
        torch.randn(2, 2, 1),
    ]
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    weights = [p.detach().clone().requires_grad_() for p in solve.parameters()]
    assert torch.autograd.gradgradcheck(end, (*leaves, *weights), fast_mode=True)


class Stiff(nn.Module):
    """A field of one weight that pulls any state to a wave, ever so fast."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.tensor(rate))
        self.n_evaluations = 0

    def forward(self, z: Tensor, u: Tensor | None = None) -> Tensor:
        self.n_evaluations += 1
        return self.rate * (torch.stack([z[..., 1], -z[..., 0]], -1) - z)


def test_adaptive_solve_that_would_not_end_is_given_up() -> None:
    stiff = Stiff(1e5)
    with pytest.raises(SolverError, match=r"too many steps.* stiff"):
        Solver("dopri5").trajectory(stiff, torch.ones(1, 2), torch.ones(1, 50))
    assert 300 < stiff.n_evaluations < 2000


@pytest.mark.parametrize("rtol", [1e-3, 1e-6])
def test_adaptive_solve_of_an_ordinary_field_is_far_from_being_given_up(
    rtol: float,
) -> None:
    moderate = Stiff(5.0)
    Solver("dopri5", rtol=rtol / 10).trajectory(
        moderate, torch.ones(1, 2), torch.ones(1, 10)
    )
    most = 10 * 6 * 32 * 2 * (1e-3 / rtol) ** 0.2
    assert moderate.n_evaluations < 0.25 * most
