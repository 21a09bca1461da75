"""Vector fields: the right-hand sides f of dh/dt = f(h) and dz/dt = f(z, u)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

# Size of what neurons take from states of size 1, as a field starts rotating:
# so small that they respond in proportion, so large that they can learn not to.
_ROTATION_GAIN = 0.5


class VectorField(nn.Module):
    r"""Autonomous vector field, a perceptron with ``depth`` hidden layers.

    .. math:: f(z, u) = W_o \tanh(W_d \dots \tanh(W_1 [z, u] + b_1) \dots) + b_o

    This is :math:`f_\theta` of the paper's ODESolve (section "Method",
    Algorithm 1), without an explicit dependence on t.

    Parameters
    ----------
    state_size : int
        Size of the state that flows.
    width, depth : int, default=32 and 1
        Neurons in each hidden layer, and number of these.
    control_size : int, default=0
        Number of controls u.
    """

    def __init__(
        self, state_size: int, width: int = 32, depth: int = 1, control_size: int = 0
    ) -> None:
        super().__init__()
        # the first layer reads [z, u], each other one the layer before it
        sizes = [state_size + control_size, *[width] * depth]
        self.hidden: Any = nn.ModuleList(
            nn.Linear(inputs, outputs) for inputs, outputs in itertools.pairwise(sizes)
        )
        self.output = nn.Linear(width, state_size)
        # a slow start: over long windows fields of usual size are chaotic
        with torch.no_grad():
            for parameter in self.output.parameters():
                parameter.mul_(0.1)

    @torch.no_grad()
    def start_rotating(self, periods: Sequence[float]) -> None:
        r"""Set the weights so that the state circles, as seasons do.

        Near the origin the field becomes :math:`f(z) = A z` with A block diagonal:
        pairs of components turn once per period, in ``time_unit_``; others stay at
        rest. No state then vanishes or explodes, and the gradient has but to correct
        how fast what turns, not to find out that something does.
        """
        size = self.output.out_features
        speeds = torch.zeros(size // 2)
        speeds[: len(periods)] = 2 * math.pi / torch.as_tensor(periods)
        # blocks [[0, -w], [w, 0]]: dz/dt = A z turns a pair by w radians in a unit
        rotation = torch.zeros(size, size)
        even = torch.arange(size // 2) * 2
        rotation[even, even + 1] = -speeds
        rotation[even + 1, even] = speeds
        first, *inner = self.hidden
        # of states of size 1 a sum of ``size`` terms is sqrt(size) large
        weight = torch.randn(first.out_features, size)
        first.weight[:, :size] = weight * _ROTATION_GAIN / size**0.5
        first.bias.mul_(_ROTATION_GAIN)
        # orthogonal ones keep sizes; the output makes up for what tanh takes
        for layer in inner:
            nn.init.orthogonal_(layer.weight)
            layer.bias.mul_(_ROTATION_GAIN)
        # Neurons n and their slopes J at z = 0, u = 0, by the chain rule, with
        # tanh' = 1 - tanh^2. In double precision, so that the weights are the same on
        # any number of threads.
        neurons = torch.zeros(first.in_features, dtype=torch.float64)
        slopes = torch.eye(first.in_features, size, dtype=torch.float64)
        for layer in self.hidden:
            weight = layer.weight.double()
            neurons = torch.tanh(weight @ neurons + layer.bias.double())
            slopes = (1 - neurons**2).unsqueeze(1) * (weight @ slopes)
        # W_o J = A has the least solution A J^+; b_o = -W_o n lets f be 0 at 0
        weight = rotation.double() @ torch.linalg.pinv(slopes)
        self.output.weight.copy_(weight)
        self.output.bias.copy_(-weight @ neurons)

    def forward(self, state: Tensor, control: Tensor | None = None) -> Tensor:
        """Return the derivative per ``time_unit_`` at a state, (..., state).

        ``control``, (..., control), acts at that moment.
        """
        neurons = state if control is None else torch.cat([state, control], dim=-1)
        for layer in self.hidden:
            neurons = torch.tanh(layer(neurons))
        slope: Tensor = self.output(neurons)
        return slope
