import math
from typing import Any

import pytest
import torch
from torch import Tensor

from sklode.nn import Decoder, Solver
from tests.networks import field
from tests.problems import (
    LinearField,
    Recorder,
    constant_acceleration,
    decay,
    oscillator,
)

pytestmark = pytest.mark.usefixtures("float64")

FINE = Solver("rk4", step_size=0.02)


def solution(f: LinearField, z0: Tensor, t0: Tensor, times: Tensor) -> Tensor:
    return f.solution(z0, times - t0.unsqueeze(-1))


class Exact(Solver):
    """Has the true states at the grid points."""

    def trajectory(self, field: Any, state: Tensor, dt: Tensor, *_: Any) -> Tensor:
        elapsed = torch.nn.functional.pad(dt.cumsum(1), (1, 0))
        return field.solution(state, elapsed)


def test_decoder_starts_at_t0_not_at_first_query() -> None:
    z0, t0 = torch.tensor([[2.0], [3.0]]), torch.tensor([1.0, -4.0])
    times = torch.tensor([[3.5, 6.0], [0.5, 2.0]])
    z = Decoder(decay(0.5), FINE)(z0, t0, times)[..., 0]
    expected = z0 * torch.exp(-0.5 * torch.tensor([[2.5, 5.0], [4.5, 6.0]]))
    torch.testing.assert_close(z, expected, atol=1e-7, rtol=0)


def test_answer_at_t0_is_z0() -> None:
    z0, t0 = torch.randn(2, 3), torch.tensor([1.3, -0.4])
    z = Decoder(field(3), Solver())(z0, t0, t0.unsqueeze(-1))
    assert torch.equal(z[:, 0], z0)


@pytest.mark.parametrize(
    "solver",
    [FINE, Solver("dopri5", rtol=1e-8)],
    ids=["rk4", "dopri5"],
)
def test_each_series_is_answered_at_its_own_times_on_either_side_of_t0(
    solver: Solver,
) -> None:
    rotation = oscillator(1.3)
    z0 = torch.tensor([[1.0, 0.0], [-0.5, 2.0], [0.3, 0.3]])
    t0 = torch.tensor([0.0, 2.5, -1.0])
    times = torch.tensor(
        [
            [-1.9, 0.7, 0.0, 2.03],  # both sides of t0, in any order
            [7.0, 3.1, 2.6, 2.5],  # after t0 only
            [-1.5, -2.2, -4.0, -1.01],  # before t0 only
        ]
    )
    z = Decoder(rotation, solver)(z0, t0, times)
    exact = solution(rotation, z0, t0, times)
    torch.testing.assert_close(z, exact, atol=2e-6, rtol=0)


@pytest.mark.parametrize("spacing", [0.3, 1.0, 7.0])
def test_cubic_solutions_are_exact_between_grid_points(spacing: float) -> None:
    # z is a cubic in time, so that only rounding is left
    jerk = LinearField([[0.0, 1, 0, 0], [0.0, 0, 1, 0], [0.0, 0, 0, 1], [0.0] * 4])
    z0, t0 = torch.tensor([[1.0, -1.0, 0.5, 0.7]]), torch.tensor([0.4])
    times = torch.tensor([[-2.1, -0.35, 0.41, 1.0, 2.77]])
    z = Decoder(jerk, Solver("rk4", spacing))(z0, t0, times)
    t = times[0] - 0.4
    torch.testing.assert_close(
        z[0, :, 0], 1 - t + 0.5 * t**2 / 2 + 0.7 * t**3 / 6, atol=1e-12, rtol=0
    )


def test_interpolation_is_of_order_four_with_the_error_of_hermite() -> None:
    wave = oscillator(1.0)
    z0, t0 = torch.tensor([[0.0, 1.0]]), torch.zeros(1)  # sin and cos
    errors = []
    for spacing in (0.4, 0.2):
        middles = spacing * (torch.arange(20) + 0.5).unsqueeze(0)
        z = Decoder(wave, Exact(step_size=spacing))(z0, t0, middles)
        error = float((z - solution(wave, z0, t0, middles)).abs().max().detach())
        # the largest derivative of sin and cos is 1
        assert error <= spacing**4 / 384
        errors.append(error)
    assert math.log2(errors[0] / errors[1]) == pytest.approx(4, abs=0.1)


@pytest.mark.parametrize(
    "solver",
    [Solver("euler"), Solver("rk4"), Solver("midpoint", 2)],
    ids=["euler", "rk4", "wide"],
)
def test_far_horizon_alone_equals_last_of_full_horizon(solver: Solver) -> None:
    decoder, z0, t0 = Decoder(field(3), solver), torch.randn(2, 3), torch.randn(2)
    full = t0.unsqueeze(-1) + torch.tensor([0.3, 1.0, 4.75, 9.0])
    for far in (full[:, -2:-1], full[:, -1:]):  # between grid points, and on one
        alone = decoder(z0, t0, far)[:, 0]
        among = decoder(z0, t0, full)[full == far].view(2, 3)
        torch.testing.assert_close(alone, among, atol=1e-13, rtol=0)


def test_an_extra_query_changes_no_other_answer() -> None:
    decoder, z0, t0 = (
        Decoder(field(3), Solver()),
        torch.randn(2, 3),
        torch.randn(2),
    )
    times = t0.unsqueeze(-1) + torch.tensor([-2.6, -1.0, 0.0, 0.2, 3.0, 3.9])
    before = decoder(z0, t0, times)
    for extra in (-7.7, -2.5, 0.25, 1.0, 2.0, 3.95, 11.1):
        asked = torch.cat([t0.unsqueeze(-1) + extra, times], 1)
        after = decoder(z0, t0, asked)[:, 1:]
        torch.testing.assert_close(after, before, atol=1e-13, rtol=0)


def test_answers_do_not_depend_on_the_order_of_the_queries() -> None:
    decoder, z0, t0 = (
        Decoder(field(3), Solver()),
        torch.randn(2, 3),
        torch.randn(2),
    )
    times = 4 * torch.randn(2, 7)
    order = torch.randperm(7)
    shuffled = decoder(z0, t0, times[:, order])
    assert torch.equal(shuffled, decoder(z0, t0, times)[:, order])


def test_series_is_decoded_alike_alone_and_in_a_batch() -> None:
    decoder = Decoder(field(3), Solver(step_size=0.7))
    z0, t0 = torch.randn(4, 3), torch.randn(4)
    times = t0.unsqueeze(-1) + torch.randn(4, 5) * torch.tensor(
        [[9.0], [1], [4], [0.1]]
    )
    together = decoder(z0, t0, times)
    for k in range(4):
        alone = decoder(z0[k : k + 1], t0[k : k + 1], times[k : k + 1])
        torch.testing.assert_close(alone[0], together[k], atol=1e-13, rtol=0)


def test_moving_t0_and_all_times_changes_nothing() -> None:
    decoder, z0 = Decoder(field(3), Solver()), torch.randn(2, 3)
    times, t0 = 3 * torch.randn(2, 4), torch.randn(2)
    torch.testing.assert_close(
        decoder(z0, t0 + 64, times + 64), decoder(z0, t0, times), atol=1e-11, rtol=0
    )


def test_backward_answer_inverts_the_forward_one() -> None:
    decoder, z0 = Decoder(field(3), FINE), torch.randn(2, 3)
    t0, t1 = torch.tensor([0.0, 1.0]), torch.tensor([2.5, 0.2])
    z1 = decoder(z0, t0, t1.unsqueeze(-1))[:, 0]
    back = decoder(z1, t1, t0.unsqueeze(-1))[:, 0]
    torch.testing.assert_close(back, z0, atol=1e-7, rtol=0)


def test_work_grows_with_the_span_and_not_with_the_stamps() -> None:
    z0, t0 = torch.randn(3, 2), torch.zeros(3)

    def evaluations(times: Tensor) -> int:
        f = Recorder(field(2))
        Decoder(f, Solver("rk4", 0.5))(z0, t0, times)
        return len(f.states)

    # 4 stages for each of 10 steps, and the slopes at all grid points together
    assert evaluations(torch.full((3, 1), 5.0)) == 41
    assert evaluations(5 * torch.linspace(0.01, 1, 60).view(3, 20)) == 41
    # nothing is solved on a side that nobody asks about
    assert evaluations(-torch.full((3, 1), 5.0)) > 41


def test_spacing_of_the_grid_is_the_step_size_anchored_at_t0() -> None:
    f = Recorder(constant_acceleration())
    z0, t0 = torch.tensor([[0.0, 1.0, 0.0]]), torch.tensor([10.0])
    Decoder(f, Solver("euler", 0.25))(z0, t0, torch.tensor([[10.8]]))
    # position is time since t0: the grid's points, whatever the query
    positions = torch.cat(f.states[:4])[:, 0]
    torch.testing.assert_close(positions, torch.tensor([0.0, 0.25, 0.5, 0.75]))


def test_gradcheck_through_decoder() -> None:
    f = field(2, control_size=0)
    decoder = Decoder(f, Solver(step_size=0.8))
    t0 = torch.tensor([0.2, -1.0])
    times = torch.tensor([[1.1, -1.3, 2.9], [0.3, -1.2, -0.9]])
    names = [f"vector_field.{name}" for name, _ in f.named_parameters()]

    def answers(z0: Tensor, asked: Tensor, *parameters: Tensor) -> Tensor:
        given = dict(zip(names, parameters, strict=True))
        z: Tensor = torch.func.functional_call(decoder, given, (z0, t0, asked))
        return z

    inputs = [torch.randn(2, 2), times, *f.parameters()]
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    assert torch.autograd.gradcheck(answers, leaves)
