"""Vector fields: the right-hand sides f of dh/dt = f(h) and dz/dt = f(z, u)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from sklode._shapes import State

__all__ = ["ACTIVATIONS", "Affine", "VectorField"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "elu": functional.elu,
    "softplus": functional.softplus,
}


_INITIAL_SPEED = 0.1
"""Size of the output layer's initial weights, relative to torch's default."""


@dataclass(frozen=True)
class Affine:
    """x to W x + b, laid out for many products with as many rows of x.

    Autograd then transposes W, and sums over the rows of b, once and not at every
    product.
    """

    bias: Tensor  # (row, output)
    weight_t: Tensor  # (input, output)

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor, n_rows: int) -> Affine:
        """Lay out W, (output, input), and b, (output,)."""
        return cls(bias.expand(n_rows, -1), weight.t().contiguous())

    def __call__(self, x: Tensor) -> Tensor:
        """Return W x + b, (row, output), for x of shape (row, input)."""
        return torch.addmm(self.bias, x, self.weight_t)


class VectorField(nn.Module):
    r"""Autonomous vector field, a perceptron with ``depth`` hidden layers.

    .. math:: f(z, u) = W_o \, a(W_d \dots a(W_1 [z, u] + b_1) \dots) + b_o

    This is :math:`f_\theta` of the paper's ODESolve (section "Method",
    Algorithm 1), without an explicit dependence on t.

    Parameters
    ----------
    state_size : int
        Size of the state that flows.
    width : int, default=32
        Neurons in each hidden layer.
    depth : int, default=1
        Number of hidden layers, at least 1.
    activation : {"tanh", "elu", "softplus"}, default="tanh"
        Activation a of the hidden layers. "tanh" bounds the speed of the flow;
        the other two can explode.
    control_size : int, default=0
        Number of controls u.
    """

    def __init__(
        self,
        state_size: int,
        width: int = 32,
        depth: int = 1,
        activation: str = "tanh",
        control_size: int = 0,
    ) -> None:
        super().__init__()
        sizes = [state_size + control_size, *[width] * depth]
        self.activation = activation
        self.hidden = nn.ModuleList(
            nn.Linear(inputs, outputs) for inputs, outputs in itertools.pairwise(sizes)
        )
        self.output = nn.Linear(width, state_size)
        # a slow start: over a long window a field of the usual size is chaotic
        with torch.no_grad():
            self.output.weight.mul_(_INITIAL_SPEED)
            self.output.bias.mul_(_INITIAL_SPEED)

    @property
    def layers(self) -> list[nn.Linear]:
        """The hidden layers, first to last."""
        return list(self.hidden)  # type: ignore[arg-type]

    def forward(self, state: State, control: Tensor | None = None) -> State:
        """Return the time derivative of ``state``.

        Parameters
        ----------
        state : Tensor of shape (..., state)
            Where the field is evaluated.
        control : Tensor of shape (..., control), optional
            Controls that act at that moment.

        Returns
        -------
        Tensor of shape (..., state)
            The derivative per ``time_unit_``.
        """
        activation = ACTIVATIONS[self.activation]
        if control is not None:
            state = torch.cat([state, control], dim=-1)
        for layer in self.layers:
            state = activation(functional.linear(state, layer.weight, layer.bias))
        return functional.linear(state, self.output.weight, self.output.bias)
