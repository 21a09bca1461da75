"""The seam between torch and the engine: tensors in, tensors out, with gradients."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from sklode.engine.tableaus import TABLEAUS

Layers: TypeAlias = Sequence[tuple[Tensor, Tensor]]
"""Weight and bias of a vector field's layers, with tanh after all but the last."""


def serves(method: str, layers: Layers, example: Tensor) -> bool:
    """Return whether the engine has this method and field for such tensors."""
    return (
        method in TABLEAUS
        and len(layers) <= 3
        and example.device.type == "cpu"
        and example.dtype in (torch.float32, torch.float64)
    )


def encode(
    x: Tensor, dt: Tensor, visits: Tensor, cell: Any, field: Layers, method: str
) -> Tensor:
    """Return the last h of a sequence of flows and cell updates.

    Parameters
    ----------
    x : Tensor of shape (batch, step, input)
        What the cell reads at the end of each step; it gets no gradient.
    dt : Tensor of shape (batch, step)
        Signed lengths of the flow of each step; 0: no flow.
    visits : Tensor of shape (batch, step), bool
        Whether the cell is updated at the end of the step.
    cell : torch.nn.LSTMCell or RNNCell
    field : Layers
        Of the flow's vector field; none: nothing flows.
    method : {"rk4", "midpoint", "euler"}
        The Runge-Kutta method.

    Returns
    -------
    Tensor of shape (batch, state)
    """
    from sklode.engine.runs import Encoding  # an import of sklode need not wait for it

    if not field:  # one that is never asked
        dt, one = torch.zeros_like(dt), x.new_zeros(1, cell.hidden_size)
        field = [(one, one[0, :1]), (one.T, one[0])]
    bias = (cell.bias_ih + cell.bias_hh).unsqueeze(1)
    weights = torch.cat([cell.weight_hh, cell.weight_ih, bias], 1)
    run = functools.partial(Encoding, method)
    layers = [part for layer in field for part in layer]
    tensors = dt, visits.to(x.dtype), x, weights, *layers
    return _Run.apply(torch.is_grad_enabled(), run, *tensors)


def decode_at(
    z0: Tensor,
    dt: Tensor,
    controls: Tensor | None,
    left: Tensor,
    theta: Tensor,
    field: Layers,
    method: str,
) -> Tensor:
    """Return states at any places within consecutive steps.

    Between the ends of a step the answer is the cubic Hermite interpolant of z and
    dz/dt; the control of the step holds at both.

    Parameters
    ----------
    z0 : Tensor of shape (batch, state)
        Initial states.
    dt : Tensor of shape (batch, step)
        Signed lengths of the steps.
    controls : Tensor of shape (batch, step, control) or None
        Held over each step; the first layer reads them after the state.
    left : Tensor of shape (batch, query), int64
        The step in which each query lies; 0 where there are no steps.
    theta : Tensor of shape (batch, query)
        Its place there: 0 at the step's start, 1 at its end.
    field, method
        As in `encode`.

    Returns
    -------
    Tensor of shape (batch, query, state)
    """
    from sklode.engine.runs import Decoding

    (weight, bias), *others = field
    by_state, by_control = weight.tensor_split([z0.shape[1]], dim=1)
    added = None if controls is None else functional.linear(controls, by_control)
    layers = [part for layer in others for part in layer]
    run = functools.partial(Decoding, method)
    tensors = dt, left, theta, z0, added, by_state, bias, *layers
    return _Run.apply(torch.is_grad_enabled(), run, *tensors)


class _Run(torch.autograd.Function):
    """One run of the engine: called with what makes it from arrays, and tensors."""

    @staticmethod
    def forward(ctx: Any, graded: bool, make: Any, *tensors: Tensor | None) -> Tensor:
        ctx.run = make(graded and any(ctx.needs_input_grad), *map(_array, tensors))
        return torch.from_numpy(ctx.run.result)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        found = ctx.run.backward(_array(grad))
        return None, None, *(None if g is None else torch.from_numpy(g) for g in found)


def _array(tensor: Tensor | None) -> np.ndarray | None:
    return None if tensor is None else np.ascontiguousarray(tensor.detach().numpy())
