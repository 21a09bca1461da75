import math
from typing import Any

import pytest
import torch

from sklode.nn import VectorField
from tests.networks import field

pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.parametrize("state", [-0.8, 0.3])
def test_field_is_the_perceptron_of_its_equation(state: float) -> None:
    f = VectorField(1, width=1, depth=2)
    values = 2.0, -0.1, 0.7, 0.2, 3.0, -0.5
    with torch.no_grad():
        for parameter, value in zip(f.parameters(), values, strict=True):
            parameter.fill_(value)
    a = math.tanh
    expected = 3.0 * a(0.7 * a(2.0 * state - 0.1) + 0.2) - 0.5
    assert f(torch.tensor([state])).item() == pytest.approx(expected, abs=1e-12)


def test_control_adds_to_the_first_layer() -> None:
    f: Any = VectorField(1, width=1, control_size=1)
    with torch.no_grad():
        f.hidden[0].weight.copy_(torch.tensor([[0.5, -2.0]]))
        f.hidden[0].bias.fill_(0.1)
        f.output.weight.fill_(1.0)
        f.output.bias.fill_(0.0)
    slope = f(torch.tensor([[0.4]]), torch.tensor([[0.3]]))
    assert slope.item() == pytest.approx(math.tanh(0.2 - 0.6 + 0.1), abs=1e-12)


def test_states_do_not_mix() -> None:
    f = field(3, control_size=2)
    states, controls = torch.randn(2, 4, 3), torch.randn(2, 4, 2)
    together = f(states, controls)
    alone = f(states[1, 2], controls[1, 2])
    torch.testing.assert_close(together[1, 2], alone)


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("control_size", [0, 2])
def test_a_field_can_start_rotating(depth: int, control_size: int) -> None:
    f = VectorField(5, 9, depth, control_size)
    f.start_rotating([4.0, 10.0])
    control = torch.zeros(control_size) if control_size else None
    rest = torch.zeros(5)
    torch.testing.assert_close(f(rest, control), rest)
    slopes: Any = torch.autograd.functional.jacobian(lambda z: f(z, control), rest)
    expected = torch.zeros(5, 5)
    for first, period in ((0, 4.0), (2, 10.0)):
        expected[first, first + 1] = -2 * math.pi / period
        expected[first + 1, first] = 2 * math.pi / period
    torch.testing.assert_close(slopes, expected)


def test_neurons_of_a_rotating_field_respond_in_proportion_but_can_saturate() -> None:
    torch.manual_seed(0)
    f = VectorField(8, 500)
    f.start_rotating([4.0] * 4)
    inputs = f.hidden[0].weight.detach() @ torch.randn(8, 100)
    assert 0.4 < inputs.std() < 0.6
