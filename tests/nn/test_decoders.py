import math

import pytest
import torch
from torch import Tensor

from sklode.nn import ControlPath, Decoder, Solver, VectorField
from tests.networks import field
from tests.problems import (
    Driven,
    LinearField,
    Recorder,
    constant_acceleration,
    decay,
    oscillator,
)

pytestmark = pytest.mark.usefixtures("float64")


def test_decoder_starts_at_t0_not_at_first_query() -> None:
    z0, t0 = torch.tensor([[2.0], [3.0]]), torch.tensor([1.0, -4.0])
    times = torch.tensor([[3.5, 6.0, 1.0], [0.5, 2.0, -4.0]])
    z = Decoder(decay(0.5), Solver("rk4", 0.02))(z0, t0, times)[..., 0]
    elapsed = torch.tensor([[2.5, 5.0, 0.0], [4.5, 6.0, 0.0]])
    torch.testing.assert_close(z, z0 * torch.exp(-0.5 * elapsed), atol=1e-7, rtol=0)
    assert torch.equal(z[:, 2:], z0)


@pytest.mark.parametrize(("method", "error"), [("rk4", 2e-6), ("dopri5", 1e-2)])
def test_each_series_is_answered_at_its_own_times_on_either_side_of_t0(
    method: str, error: float
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
    z = Decoder(rotation, Solver(method, 0.02))(z0, t0, times)
    exact = rotation.solution(z0, times - t0.unsqueeze(-1))
    torch.testing.assert_close(z, exact, atol=error, rtol=0)


@pytest.mark.parametrize("spacing", [0.3, 1.0, 7.0])
def test_cubic_solutions_are_exact_between_grid_points(spacing: float) -> None:
    # z is a cubic in time, so that only rounding is left
    jerk = LinearField([[0.0, 1, 0, 0], [0.0, 0, 1, 0], [0.0, 0, 0, 1], [0.0] * 4])
    z0, t0 = torch.tensor([[1.0, -1.0, 0.5, 0.7]]), torch.tensor([0.4])
    times = torch.tensor([[-2.1, -0.35, 0.41, 1.0, 2.77]])
    z = Decoder(jerk, Solver("rk4", spacing))(z0, t0, times)
    t = times[0] - 0.4
    expected = 1 - t + 0.5 * t**2 / 2 + 0.7 * t**3 / 6
    torch.testing.assert_close(z[0, :, 0], expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("solver", [Solver("euler"), Solver(), Solver("midpoint", 2)])
@pytest.mark.parametrize("n_controls", [0, 1])
def test_an_answer_does_not_depend_on_others_or_on_their_order(
    solver: Solver, n_controls: int
) -> None:
    decoder = Decoder(field(3, control_size=n_controls), solver)
    z0, t0, path = torch.randn(4, 3), torch.randn(4), None
    if n_controls:
        stamps = torch.linspace(-9, 12, 8).repeat(4, 1)
        path = ControlPath(stamps, torch.randn(4, 8, 1))
    offsets = torch.tensor([-2.6, -1.0, 0.0, 0.2, 3.0, 3.9])
    times = t0.unsqueeze(-1) + offsets * torch.tensor([[1.0], [3.0], [0.1], [2.0]])
    before = decoder(z0, t0, times, path)
    for extra in (-7.7, 0.25, 1.0, 11.1):
        queries = torch.cat([t0.unsqueeze(-1) + extra, times.flip(1)], 1)
        after = decoder(z0, t0, queries, path)[:, 1:].flip(1)
        torch.testing.assert_close(after, before, atol=1e-12, rtol=0)
    for k in range(4):
        one = slice(k, k + 1)
        mine = None if path is None else ControlPath(path.times[one], path.values[one])
        alone = decoder(z0[one], t0[one], times[one, -1:], mine)
        torch.testing.assert_close(alone[0], before[k, -1:], atol=1e-12, rtol=0)


def test_work_grows_with_the_span_and_not_with_the_stamps() -> None:
    z0, t0 = torch.randn(3, 2), torch.zeros(3)

    def evaluations(times: Tensor) -> int:
        f = Recorder(field(2))
        Decoder(f, Solver("rk4", 0.5))(z0, t0, times)
        return len(f.states)

    # 4 stages for each of 10 steps, and the slopes at all grid points together
    assert evaluations(torch.full((3, 1), 5.0)) == 41
    assert evaluations(5 * torch.linspace(0.01, 1, 60).view(3, 20)) == 41


def test_spacing_of_the_grid_is_the_step_size_anchored_at_t0() -> None:
    f = Recorder(constant_acceleration())
    z0, t0 = torch.tensor([[0.0, 1.0, 0.0]]), torch.tensor([10.0])
    Decoder(f, Solver("euler", 0.25))(z0, t0, torch.tensor([[10.8]]))
    # position is time since t0: the grid's points, whatever the query
    positions = torch.cat(f.states[:4])[:, 0]
    torch.testing.assert_close(positions, torch.tensor([0.0, 0.25, 0.5, 0.75]))


def test_control_path_is_linear_between_its_stamps_and_held_outside() -> None:
    path = ControlPath(
        torch.tensor([[0.0, 2.0, 3.0, 3.0], [10.0, 11.0, 15.0, 15.0]]),  # padded
        torch.tensor([[1.0, 5.0, -1.0, -1.0], [0.0, 2.0, 10.0, 10.0]]).unsqueeze(-1),
    )
    queries = torch.tensor([[-9.0, 0.0, 0.5, 2.0, 2.75, 3.0, 8.0]])
    u = path.at(torch.cat([queries, queries + 10.0]))[..., 0]
    expected = torch.tensor(
        [[1.0, 1.0, 2.0, 5.0, 0.5, -1.0, -1.0], [0.0, 0.0, 1.0, 4.0, 5.5, 6.0, 10.0]]
    )
    torch.testing.assert_close(u, expected, atol=1e-14, rtol=0)
    single = ControlPath(torch.tensor([[2.0]]), torch.tensor([[[3.0, 4.0]]]))
    assert single.at(torch.tensor([[0.0, 2.0, 9.0]])).tolist() == [[[3.0, 4.0]] * 3]


def ramp(n: int) -> ControlPath:
    """u(t) = t."""
    times = torch.tensor([-200.0, 200.0]).repeat(n, 1)
    return ControlPath(times, times.unsqueeze(-1))


def test_control_is_read_in_the_middle_of_each_step_on_its_series_own_clock() -> None:
    f = Recorder(field(2, control_size=1))
    t0, times = torch.tensor([0.0, 100.0]), torch.tensor([[2.0], [101.0]])
    Decoder(f, Solver("euler", 0.5))(torch.randn(2, 2), t0, times, ramp(2))
    held = torch.cat([u for u in f.controls[:4] if u is not None], dim=1)
    expected = torch.tensor([[0.25, 0.75, 1.25, 1.75]]) + t0.unsqueeze(-1)
    torch.testing.assert_close(held, expected, atol=1e-12, rtol=0)


def test_changing_control_is_followed_to_second_order() -> None:
    driven = Driven(rate=1.0)
    z0, t0 = torch.tensor([[1.0], [0.5]]), torch.tensor([0.0, 2.0])
    times = torch.tensor([[4.0, -1.0], [1.0, 3.0]])
    exact = driven.under_ramp(z0, t0.unsqueeze(-1), times)
    errors = []
    for spacing in (0.1, 0.05):
        decoder = Decoder(driven, Solver(step_size=spacing))
        z = decoder(z0, t0, times, ramp(2))[..., 0]
        errors.append(float((z - exact).abs().max().detach()))
    assert errors[1] < 1e-3
    assert math.log2(errors[0] / errors[1]) == pytest.approx(2, abs=0.1)


def test_a_control_with_a_rate_fades_from_its_stamps_or_is_held() -> None:
    path = ControlPath(
        torch.tensor([[0.0, 2.0, 3.0]]),
        torch.tensor([[[1.0] * 3, [5.0] * 3, [-1.0] * 3]]),
        torch.tensor([torch.nan, 0.0, 0.5]),
    )
    u = path.at(torch.tensor([[1.0, 2.0, 2.5, 5.0]]))[0]
    expected = torch.tensor(
        [
            [3.0, 1.0, math.exp(-0.5)],
            [5.0, 5.0, 5.0],
            [2.0, 5.0, 5 * math.exp(-0.25)],
            [-1.0, -1.0, -math.exp(-1.0)],
        ]
    )
    torch.testing.assert_close(u, expected)
    # over a step a jump counts for the part of it that follows
    held = path.over(torch.tensor([[1.0, 1.5]]), 1.0)[0, :, 1]
    torch.testing.assert_close(held, torch.tensor([1.0, 3.0]))


@pytest.mark.parametrize(
    ("n_series", "size", "n_controls"),
    [(3, 4, 0), (2, 5, 0), (2, 4, 1)],
    ids=["series", "states", "controls"],
)
def test_sizes_that_do_not_fit_are_refused_and_not_read(
    n_series: int, size: int, n_controls: int
) -> None:
    field = VectorField(size, 3, control_size=n_controls)
    times = torch.arange(4.0).repeat(2, 1)
    with pytest.raises(RuntimeError, match=r"must match|shapes cannot"):
        Decoder(field, Solver())(torch.ones(n_series, 4), torch.zeros(2), times)
