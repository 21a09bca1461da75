import math

import pytest
import torch
from torch import Tensor

from sklode.nn import ControlPath, Decoder, Solver
from tests.networks import field
from tests.problems import Driven, Recorder

pytestmark = pytest.mark.usefixtures("float64")


def ramp(*spans: tuple[float, float]) -> ControlPath:
    """u(t) = t, given at both ends of each series' span."""
    times = torch.tensor(spans)
    return ControlPath(times, times.unsqueeze(-1))


def test_control_path_is_linear_between_its_stamps_and_held_outside() -> None:
    path = ControlPath(
        torch.tensor([[0.0, 2.0, 3.0], [10.0, 11.0, 15.0]]),
        torch.tensor([[[1.0], [5.0], [-1.0]], [[0.0], [2.0], [10.0]]]),
    )
    asked = torch.tensor([[-9.0, 0.0, 0.5, 2.0, 2.75, 3.0, 8.0]])
    u = path.at(torch.cat([asked, asked + 10.0]))[..., 0]
    expected = torch.tensor(
        [[1.0, 1.0, 2.0, 5.0, 0.5, -1.0, -1.0], [0.0, 0.0, 1.0, 4.0, 5.5, 6.0, 10.0]]
    )
    torch.testing.assert_close(u, expected, atol=1e-14, rtol=0)


def test_controls_of_one_path_are_interpolated_each_on_their_own() -> None:
    path = ControlPath(torch.tensor([[0.0, 4.0]]), torch.tensor([[[0.0, 8], [1, 0]]]))
    u = path.at(torch.tensor([[1.0]]))
    torch.testing.assert_close(u, torch.tensor([[[0.25, 6.0]]]))


def test_repeated_last_stamps_change_no_control() -> None:
    whole = ControlPath(torch.tensor([[0.0, 1.0]]), torch.tensor([[[3.0], [7.0]]]))
    padded = ControlPath(
        torch.tensor([[0.0, 1.0, 1.0, 1.0]]), torch.tensor([[[3.0], [7], [7], [7]]])
    )
    asked = torch.tensor([[-1.0, 0.0, 0.4, 1.0, 2.0]])
    assert torch.equal(padded.at(asked), whole.at(asked))


def test_single_stamp_is_held_everywhere() -> None:
    path = ControlPath(torch.tensor([[2.0]]), torch.tensor([[[3.0]]]))
    assert path.at(torch.tensor([[0.0, 2.0, 9.0]])).flatten().tolist() == [3.0] * 3


def test_control_is_read_in_the_middle_of_each_step_on_its_series_own_clock() -> None:
    f = Recorder(field(2, control_size=1))
    t0 = torch.tensor([0.0, 100.0])
    times = torch.tensor([[2.0], [101.0]])
    Decoder(f, Solver("euler", 0.5))(
        torch.randn(2, 2), t0, times, ramp((-50.0, 50.0), (50.0, 150.0))
    )
    held = torch.cat([u for u in f.controls[:4] if u is not None], dim=1)
    expected = torch.tensor([[0.25, 0.75, 1.25, 1.75]]) + t0.unsqueeze(-1)
    torch.testing.assert_close(held, expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    "solver",
    [Solver(step_size=0.05), Solver("dopri5", rtol=1e-8)],
    ids=["rk4", "dopri5"],
)
def test_constant_control_gives_the_closed_form(
    solver: Solver,
) -> None:
    driven = Driven(rate=0.6)
    z0, t0 = torch.tensor([[1.0], [-2.0]]), torch.tensor([0.0, 5.0])
    times = torch.tensor([[-1.03, 0.52, 3.1], [4.0, 5.7, 6.66]])
    level = torch.tensor([[2.0], [-1.0]])
    path = ControlPath(times, level.unsqueeze(1).expand(-1, 3, -1))
    z = Decoder(driven, solver)(z0, t0, times, path)[..., 0]
    exact = driven.under_constant(z0, times - t0.unsqueeze(-1), level)
    torch.testing.assert_close(z, exact, atol=1e-6, rtol=0)


def test_changing_control_is_followed_to_second_order() -> None:
    driven = Driven(rate=1.0)
    z0, t0 = torch.tensor([[1.0], [0.5]]), torch.tensor([0.0, 2.0])
    times = torch.tensor([[4.0, -1.0], [1.0, 3.0]])
    path = ramp((-9.0, 9.0), (-9.0, 9.0))
    exact = driven.under_ramp(z0, t0.unsqueeze(-1), times)
    errors = []
    for spacing in (0.1, 0.05):
        decoder = Decoder(driven, Solver(step_size=spacing))
        z = decoder(z0, t0, times, path)[..., 0]
        errors.append(float((z - exact).abs().max().detach()))
    assert errors[1] < 1e-3
    assert math.log2(errors[0] / errors[1]) == pytest.approx(2, abs=0.1)


def test_an_extra_query_changes_no_other_answer_under_controls() -> None:
    decoder = Decoder(field(3, control_size=1), Solver())
    z0, t0 = torch.randn(1, 3), torch.tensor([0.5])
    path = ControlPath(torch.linspace(-5, 9, 8).unsqueeze(0), torch.randn(1, 8, 1))
    times = torch.tensor([[-1.5, 0.9, 3.5, 4.2]])

    def asked(times: Tensor) -> Tensor:
        z: Tensor = decoder(z0, t0, times, path)
        return z

    for extra in (-4.0, 2.5, 8.8):
        more = torch.cat([times, torch.tensor([[extra]])], 1)
        torch.testing.assert_close(asked(more)[:, :4], asked(times), atol=1e-13, rtol=0)
