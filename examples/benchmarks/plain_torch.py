"""The model as one writes it from the paper: a loop in torch, or torchdiffeq.

All of these, and those of ``plain_jax``, compute the same loss of the same weights:

    backward over the stamps:  h' = RK4(f_e, h, -gap),  (h, c) = LSTM(x, h', c)
    z0 ~ N(mu, sigma^2) by a linear layer of h
    forward over the stamps:   z' = RK4(f_d, z, gap)
    loss = E[-log N(x | emission(z), 0.3^2)] + KL
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import TypeAlias

import torch
import torchdiffeq
from torch import Tensor
from torch.nn import functional
from workloads import EMISSION_WIDTH, Windows, Workload, draw

__all__ = ["Layers", "Weights", "compiled", "draw_weights", "loop", "with_torchdiffeq"]

Layers: TypeAlias = list[tuple[Tensor, Tensor]]
Weights: TypeAlias = dict[str, Layers]
Step: TypeAlias = Callable[[], float]

NOISE = 0.3
"""Standard deviation of an observation."""


def draw_weights(load: Workload) -> Weights:
    """Draw each part's layers, (weight, bias), as torch does for linear layers.

    Fields start slow, as in sklode: the output layer is a tenth.
    """
    torch.manual_seed(0)
    hidden, latent, channels = load.hidden_size, load.latent_size, load.n_channels
    inside = [load.field_width] * load.field_depth
    sizes = {
        "flow": [hidden, *inside, hidden],
        "dynamics": [latent, *inside, latent],
        "cell": [hidden + channels, 4 * hidden],
        "translator": [hidden, 2 * latent],
        "emission": [latent, EMISSION_WIDTH, channels],
    }
    weights: Weights = {}
    for part, widths in sizes.items():
        linear = [torch.nn.Linear(*pair) for pair in pairwise(widths)]
        weights[part] = [(layer.weight, layer.bias) for layer in linear]
    with torch.no_grad():
        for tensor in (*weights["flow"][-1], *weights["dynamics"][-1]):
            tensor.mul_(0.1)
    return weights


def field(layers: Layers, y: Tensor) -> Tensor:
    """Return dy/dt."""
    *inside, (weight, bias) = layers
    for w, b in inside:
        y = torch.tanh(functional.linear(y, w, b))
    return functional.linear(y, weight, bias)


def rk4(layers: Layers, y: Tensor, dt: Tensor) -> Tensor:
    """Take a step of Kutta's 3/8 rule."""
    k1 = field(layers, y)
    k2 = field(layers, y + dt * k1 / 3)
    k3 = field(layers, y + dt * (k2 - k1 / 3))
    k4 = field(layers, y + dt * (k1 - k2 + k3))
    return y + dt * (k1 + 3 * (k2 + k3) + k4) * 0.125


def visit(
    layers: Layers, h: Tensor, c: Tensor, x: Tensor, observed: Tensor
) -> tuple[Tensor, Tensor]:
    """Update the LSTM's state where something was observed."""
    ((weight, bias),) = layers
    gates = functional.linear(torch.cat([h, x], 1), weight, bias)
    i, f, g, o = gates.chunk(4, 1)
    c_new = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h_new = torch.sigmoid(o) * torch.tanh(c_new)
    return h + observed * (h_new - h), c + observed * (c_new - c)


def flow_and_visit(
    flow: Layers,
    cell: Layers,
    h: Tensor,
    c: Tensor,
    x: Tensor,
    gap: Tensor,
    observed: Tensor,
) -> tuple[Tensor, Tensor]:
    """Take the encoder from one stamp to the one before it."""
    return visit(cell, rk4(flow, h, gap), c, x, observed)


def encode(
    weights: Weights,
    windows: Windows,
    step: Callable[..., tuple[Tensor, Tensor]] = flow_and_visit,
) -> Tensor:
    """Return h at the first stamp."""
    values, gaps, observed = backward_in_time(windows)
    h = c = values.new_zeros(len(values), len(weights["flow"][-1][1]))
    flow, cell = weights["flow"], weights["cell"]
    for k in range(values.shape[1]):
        gap, seen = gaps[:, k, None], observed[:, k, None]
        h, c = step(flow, cell, h, c, values[:, k], gap, seen)
    return h


def backward_in_time(windows: Windows) -> tuple[Tensor, Tensor, Tensor]:
    """Return values, signed gaps and mask in the order of the encoder's visits."""
    gaps = -windows.gaps.roll(-1, 1).flip(1)  # the first gap, 0, comes first again
    return windows.values.flip(1), gaps, windows.observed.flip(1).float()


def decode(
    weights: Weights, z: Tensor, windows: Windows, step: Callable[..., Tensor] = rk4
) -> Tensor:
    """Return z at every stamp."""
    states = []
    for k in range(windows.gaps.shape[1]):
        z = step(weights["dynamics"], z, windows.gaps[:, k, None])
        states.append(z)
    return torch.stack(states, 1)


def loss_of(
    weights: Weights,
    windows: Windows,
    encoder: Callable[[Weights, Windows], Tensor] = encode,
    decoder: Callable[[Weights, Tensor, Windows], Tensor] = decode,
) -> Tensor:
    """Return the negative evidence lower bound, averaged over the series."""
    h = encoder(weights, windows)
    mean, log_variance = functional.linear(h, *weights["translator"][0]).chunk(2, 1)
    z0 = mean + torch.exp(0.5 * log_variance) * windows.noise
    inside, outside = weights["emission"]
    z = decoder(weights, z0, windows)
    x = functional.linear(functional.relu(functional.linear(z, *inside)), *outside)
    squares = ((x - windows.values) / NOISE) ** 2
    entries = 0.5 * squares + math.log(NOISE) + 0.5 * math.log(2 * math.pi)
    surprise = (entries.sum(-1) * windows.observed).sum(1)
    kl = 0.5 * (log_variance.exp() + mean**2 - 1 - log_variance).sum(1)
    return (surprise + kl).mean()


def training(load: Workload, loss: Callable[[Weights, Windows], Tensor]) -> Step:
    """Return a function that trains one step by Adam and returns its loss."""
    weights, windows = draw_weights(load), draw(load)
    tensors = [tensor for part in weights.values() for pair in part for tensor in pair]
    optimizer = torch.optim.Adam(tensors)

    def step() -> float:
        optimizer.zero_grad()
        value = loss(weights, windows)
        value.backward()
        optimizer.step()
        return value.item()

    return step


def loop(load: Workload) -> Step:
    """Return a step of the straightforward loop: all that others are compared with."""
    return training(load, loss_of)


def compiled(load: Workload) -> Step:
    """Return the same with each stamp's step compiled by ``torch.compile``.

    Compiling the whole loop takes minutes.
    """
    torch._dynamo.reset()  # what was compiled for other sizes
    make = partial(torch.compile, dynamic=False)
    encoder = partial(encode, step=make(flow_and_visit))
    decoder = partial(decode, step=make(rk4))
    return training(load, partial(loss_of, encoder=encoder, decoder=decoder))


def with_torchdiffeq(load: Workload) -> Step:
    """Return the same by ``torchdiffeq.odeint``, whose "rk4" is the 3/8 rule.

    Time is rescaled, one unit per gap, so that each series has its own gaps; the union
    of all stamps, the usual way, has as many steps as the batch has stamps.
    """
    return training(
        load, partial(loss_of, encoder=_encode_by_odeint, decoder=_decode_by_odeint)
    )


class _Rescaled:
    """dy/ds = gap * f(y), with the gap that the solver's step crosses."""

    def __init__(self, layers: Layers, gaps: Tensor) -> None:
        self.layers = layers
        self.gaps = gaps
        self.gap = gaps[:, 0, None]

    def __call__(self, _: Tensor, y: Tensor) -> Tensor:
        return self.gap * field(self.layers, y)

    def callback_step(self, s: Tensor, y: Tensor, ds: Tensor) -> None:
        """Be told where a step starts; odeint calls this before each one."""
        self.gap = self.gaps[:, int(s), None]


def _encode_by_odeint(weights: Weights, windows: Windows) -> Tensor:
    values, gaps, observed = backward_in_time(windows)
    h = c = values.new_zeros(len(values), len(weights["flow"][-1][1]))
    ends = torch.tensor([0.0, 1.0])
    for k in range(values.shape[1]):
        rescaled = _Rescaled(weights["flow"], gaps[:, k, None])
        h = torchdiffeq.odeint(rescaled, h, ends, method="rk4")[-1]
        h, c = visit(weights["cell"], h, c, values[:, k], observed[:, k, None])
    return h


def _decode_by_odeint(weights: Weights, z0: Tensor, windows: Windows) -> Tensor:
    stamps = torch.arange(windows.gaps.shape[1] + 1.0)
    rescaled = _Rescaled(weights["dynamics"], windows.gaps)
    return torchdiffeq.odeint(rescaled, z0, stamps, method="rk4")[1:].transpose(0, 1)
