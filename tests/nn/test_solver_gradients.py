"""Gradients through the solvers: backpropagation."""

import math

import pytest
import torch
from torch import Tensor, nn

from sklode.nn import Solver
from tests.networks import assert_same, field
from tests.problems import decay

pytestmark = pytest.mark.usefixtures("float64")

ORDERS = {"euler": 1, "midpoint": 2, "rk4": 4}


def solved(
    solver: Solver, f: nn.Module, z0: Tensor, steps: Tensor, u: Tensor | None
) -> dict[str, Tensor]:
    """Return the trajectory and the gradients of a loss over all of it."""
    z0 = z0.clone().requires_grad_()
    states = solver.trajectory(f, z0, steps, u)
    loss = (states.square() * torch.arange(1, states.shape[1] + 1)[:, None]).sum()
    named = dict(f.named_parameters())
    grads = torch.autograd.grad(loss, [z0, *named.values()])
    return dict(zip(["z0", *named], grads, strict=True)) | {"states": states.detach()}


def mixed_problem(n_controls: int) -> tuple[nn.Module, Tensor, Tensor, Tensor | None]:
    """Return a field with steps of either sign, and a series that comes to rest."""
    f = field(3, control_size=n_controls)
    steps = torch.tensor(
        [[0.6, 0.4, 0.5, 0.2], [0.3, 0.7, 0.0, 0.0], [-0.5, -0.2, 0.4, -0.6]]
    )
    u = torch.randn(3, 4, n_controls) if n_controls else None
    return f, torch.randn(3, 3), steps, u


class Pieces(Solver):
    """A solver that takes every step in ``n`` equal pieces."""

    def __init__(self, n: int, method: str = "rk4") -> None:
        super().__init__(method)
        self.n = n

    def trajectory(
        self, field: nn.Module, state: Tensor, dt: Tensor, control: Tensor | None = None
    ) -> Tensor:
        pieces = (dt / self.n).repeat_interleave(self.n, 1)
        held = None if control is None else control.repeat_interleave(self.n, 1)
        return super().trajectory(field, state, pieces, held)[:, :: self.n]


@pytest.mark.parametrize(
    ("solver", "tolerance"),
    [
        (Solver("rk4"), 1e-6),
        (Solver("dopri5", rtol=1e-8), 1e-5),
    ],
    ids=["rk4", "dopri5"],
)
def test_gradients_of_decay_are_those_of_its_closed_form(
    solver: Solver, tolerance: float
) -> None:
    rate, start = 0.7, torch.tensor([[2.0], [-1.0]])
    z0, f = start.clone().requires_grad_(), decay(rate)
    steps = torch.tensor([[0.1], [-0.05]]).expand(-1, 20)
    end = solver.trajectory(f, z0, steps)[:, -1, 0]
    by_z0, by_a = torch.autograd.grad(end.sum(), [z0, f.a])
    growth = torch.tensor([math.exp(-rate * 2), math.exp(rate * 1)])
    torch.testing.assert_close(by_z0[:, 0], growth, atol=tolerance, rtol=0)
    # d/da of z0 exp(a t), with t = 2 and -1
    expected = (torch.tensor([2.0, -1.0]) * start[:, 0] * growth).sum()
    torch.testing.assert_close(by_a[0, 0], expected, atol=tolerance, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("n_controls", [0, 2])
def test_adaptive_method_agrees_with_fine_fixed_steps(
    n_controls: int,
) -> None:
    f, z0, steps, u = mixed_problem(n_controls)
    reference = solved(Pieces(20), f, z0, steps, u)
    adaptive = solved(Solver("dopri5", rtol=1e-8), f, z0, steps, u)
    assert_same(adaptive, reference, 1e-5)


@pytest.mark.parametrize("method", ["rk4", "dopri5"])
def test_backward_can_be_repeated(method: str) -> None:
    f, z0, steps, _ = mixed_problem(0)
    end = Solver(method).trajectory(f, z0.requires_grad_(), steps)[:, -1]
    # as a look at the gradient of one state after another does
    first, again = (
        torch.autograd.grad(end[0, 0], z0, retain_graph=True)[0] for _ in range(2)
    )
    assert torch.equal(first, again)
    assert float(first[0].abs().min()) > 0
    # through the shared step control a little comes back to the other series
    assert float(first[1:].abs().max()) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("method", ORDERS)
def test_gradcheck_through_fixed_steps(method: str) -> None:
    f, z0, steps, u = mixed_problem(2)
    assert u is not None
    names = [name for name, _ in f.named_parameters()]

    class Bound(nn.Module):
        """The field with parameters that are given as tensors."""

        def __init__(self, parameters: tuple[Tensor, ...]) -> None:
            super().__init__()
            self.given = dict(zip(names, parameters, strict=True))

        def forward(self, z: Tensor, control: Tensor | None = None) -> Tensor:
            slope: Tensor = torch.func.functional_call(f, self.given, (z, control))
            return slope

    def end(z: Tensor, dt: Tensor, control: Tensor, *parameters: Tensor) -> Tensor:
        solver = Solver(method)
        return solver.trajectory(Bound(parameters), z, dt, control)

    given = [x.detach().clone().requires_grad_() for x in (z0, steps, u)]
    weights = [p.detach().clone().requires_grad_() for p in f.parameters()]
    assert torch.autograd.gradcheck(end, (*given, *weights))
