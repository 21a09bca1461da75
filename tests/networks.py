"""Small networks and windows for the tests."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from sklode import nn
from sklode.latent_ode.network import Batch, LatentODE


def field(
    state_size: int,
    *,
    width: int = 7,
    depth: int = 1,
    control_size: int = 0,
    gain: float = 1.5,
) -> nn.VectorField:
    """Return a random vector field, far enough from zero to be nonlinear."""
    random = nn.VectorField(state_size, width, depth, control_size)
    for layer in (*random.hidden, random.output):
        torch.nn.Linear.reset_parameters(layer)
    return amplified(random, gain)


def amplified(module: Any, gain: float) -> Any:
    """Multiply a module's parameters by ``gain``, in place, and return it."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(gain)
    return module


def latent_ode(
    kind: str = "ode-lstm",
    *,
    method: str = "rk4",
    solver: nn.Solver | None = None,
    sizes: tuple[int, int] = (5, 3),
    n_channels: int = 2,
    n_controls: int = 0,
    engine: str = "eager",
    gain: float = 1.5,
    **shape: int,
) -> LatentODE:
    """Return a random network with such hidden and latent sizes."""
    hidden, latent = sizes
    solver = nn.Solver(method) if solver is None else copy.copy(solver)
    solver.engine = engine
    n_inputs = 2 * n_channels + n_controls
    encoder: Any
    if kind == "rnn":
        encoder = nn.RNN(n_inputs, hidden)
        encoder.solver = solver
    else:
        make = {"ode-rnn": nn.ODERNN, "ode-lstm": nn.ODELSTM}[kind]
        encoder = make(n_inputs, hidden, field(hidden, gain=gain, **shape), solver)
    flow = field(latent, control_size=n_controls, gain=gain, **shape)
    return LatentODE(
        amplified(encoder, gain),
        nn.perceptron(hidden, hidden, 2 * latent),
        nn.Decoder(flow, solver),
        nn.perceptron(latent + n_controls, 6, n_channels),
    )


def windows(
    n_series: int = 4,
    n_stamps: int = 9,
    n_seen: int = 6,
    *,
    n_channels: int = 2,
    n_controls: int = 0,
    longest_gap: float = 1.7,
) -> Batch:
    """Return irregular windows with missing values, a padded one among them.

    The first series is whole; the second is padded from its fifth stamp on; of the
    third the first stamp and one in the middle were not observed at all.
    """
    gaps = 0.1 + (longest_gap - 0.1) * torch.rand(n_series, n_stamps)
    times = gaps.cumsum(1)
    values = torch.randn(n_series, n_stamps, n_channels)
    mask = torch.rand(n_series, n_stamps, n_channels) < 0.7
    mask[0] = True
    mask[1:, 1] = True
    if n_series > 1:
        times[1, 4:] = times[1, 3]
        mask[1, 4:] = False
    if n_series > 2:
        mask[2, [0, 3]] = False
    values[~mask] = torch.nan
    controls = torch.randn(n_series, n_stamps, n_controls) if n_controls else None
    if controls is not None and n_series > 1:
        controls[1, 4:] = controls[1, 3]
    return Batch(times, values, mask, n_seen, controls)


def one_series(batch: Batch, k: int) -> Batch:
    """Return the window of series k alone, without its padding."""
    length = 1 + int((torch.diff(batch.times[k]) > 0).sum())
    alone: dict[str, Any] = {
        name: part[k : k + 1, :length]
        for name, part in batch._asdict().items()
        if isinstance(part, Tensor)
    }
    return batch._replace(**alone, n_seen=min(batch.n_seen, length))


def gradients(module: torch.nn.Module, loss: Tensor) -> dict[str, Tensor]:
    """Return the gradient of ``loss`` by every parameter, by its name."""
    named = dict(module.named_parameters())
    grads = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    return {
        name: torch.zeros_like(parameter) if grad is None else grad
        for (name, parameter), grad in zip(named.items(), grads, strict=True)
    }


def assert_same(
    left: dict[str, Tensor], right: dict[str, Tensor], tolerance: float
) -> None:
    """Assert that two sets of named tensors agree, relative to their size."""
    assert left.keys() == right.keys()
    for name in left:
        scale = float(right[name].abs().max().clamp(min=1))
        difference = float((left[name] - right[name]).abs().max())
        assert difference <= tolerance * scale, name
