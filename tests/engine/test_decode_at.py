"""What only the fused engine has: answers between steps, and the emission."""

from typing import Any

import pytest
import torch
from torch import nn

pytest.importorskip("numba", reason="the fused engine needs numba")

from sklode import engine
from sklode.nn import Decoder, Solver
from tests.engine.test_functions import (
    ACTIVATIONS,
    METHODS,
    parts,
    weights,
    with_gradients,
)
from tests.networks import assert_same, field

pytestmark = pytest.mark.usefixtures("float64")

BOTH_LAYOUTS = pytest.mark.parametrize("layout", ["lanes", "single"])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("depth", [1, 2])
@BOTH_LAYOUTS
@pytest.mark.parametrize("n_controls", [0, 2])
def test_decode_between_steps_equals_torch(
    method: str, activation: str, depth: int, n_controls: int, layout: str
) -> None:
    f: Any = field(3, depth=depth, activation=activation, control_size=n_controls)
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
            engine.decode_at(z0, dt, bias, left, theta, weights(f, 3), method, layout),
            named,
        ),
        with_gradients(decoder.interpolated(z0, dt, u, left, theta), named),
        1e-10,
    )


@BOTH_LAYOUTS
def test_a_diverged_series_does_not_spoil_its_neighbours(layout: str) -> None:
    f = field(3)
    z0 = torch.randn(20, 3)
    dt = torch.full((20, 4), 0.5)
    dt[2:, 3] = 0.0
    left, theta = torch.arange(4).repeat(20, 1), torch.full((20, 4), 0.3)
    spoiled = z0.clone()
    spoiled[0] = torch.inf
    clean, other = (
        engine.decode_at(start, dt, None, left, theta, weights(f, 3), "rk4", layout)
        for start in (z0, spoiled)
    )
    assert not torch.isfinite(other[0]).all()
    torch.testing.assert_close(other[1:], clean[1:], rtol=0, atol=0)


@pytest.mark.parametrize("n_states", [1, 7, 16, 333])
def test_emission_equals_torch(n_states: int) -> None:
    first, output = nn.Linear(5, 11), nn.Linear(11, 3)
    z = torch.randn(n_states, 2, 5, requires_grad=True)
    named = {"z": z} | parts(first, output)
    layers = first.weight, first.bias, output.weight, output.bias
    assert_same(
        with_gradients(engine.emit(z, *layers), named),
        with_gradients(output(first(z).tanh()), named),
        1e-12,
    )
