"""The seam between torch and the engine: tensors in, tensors out, with gradients."""

from __future__ import annotations

import functools
import importlib
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sklode.engine.tableaus import TABLEAUS


class FieldWeights(NamedTuple):
    """A vector field's layers: the first, those between, the output layer.

    ``w1`` is (width, state), ``inner`` holds (weight, bias) pairs, ``wo`` is (state,
    width).
    """

    w1: Tensor
    b1: Tensor
    inner: tuple[tuple[Tensor, Tensor], ...]
    wo: Tensor
    bo: Tensor

    @property
    def layers(self) -> list[Tensor]:
        """W_1, b_1, W_o, b_o and the inner layers."""
        inner = [tensor for layer in self.inner for tensor in layer]
        return [self.w1, self.b1, self.wo, self.bo, *inner]


class CellWeights(NamedTuple):
    """A recurrent cell: (gates * state, input), (gates * state, state), both biases.

    4 gates (i, f, g, o) make an LSTM cell, 1 a tanh cell.
    """

    w_ih: Tensor
    w_hh: Tensor
    bias: Tensor


def supports(method: str, example: Tensor) -> bool:
    """Return whether the engine has this method for such tensors."""
    return (
        method in TABLEAUS
        and example.device.type == "cpu"
        and example.dtype in (torch.float32, torch.float64)
    )


def encode(
    x: Tensor,
    dt: Tensor,
    visits: Tensor,
    cell: CellWeights,
    field: FieldWeights | None,
    method: str,
) -> Tensor:
    """Return the last h of a sequence of flows and cell updates.

    Parameters
    ----------
    x : Tensor of shape (batch, step, input)
        What the cell reads at the end of each step.
    dt : Tensor of shape (batch, step)
        Signed lengths of the flow of each step; 0: no flow.
    visits : Tensor of shape (batch, step), bool
        Whether the cell is updated at the end of the step.
    cell, field
        Weights of the cell and of the flow's vector field; None: nothing flows.
    method : {"rk4", "midpoint", "euler"}
        The Runge-Kutta method.

    Returns
    -------
    Tensor of shape (batch, state)
    """
    how = method if field else None
    weights = [cell.w_hh, cell.bias, cell.w_ih, *(field.layers if field else [])]
    run = functools.partial(_compiled("encode").Encoding, how)
    return _run(run, dt, visits.to(x.dtype), x, *weights)


def decode_at(
    z0: Tensor,
    dt: Tensor,
    control_bias: Tensor | None,
    left: Tensor,
    theta: Tensor,
    field: FieldWeights,
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
    control_bias : Tensor of shape (batch, step, width) or None
        What controls, held over a step, add to the field's first layer.
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
    run = functools.partial(_compiled("decode").Decoding, method)
    return _run(run, dt, left, theta, z0, control_bias, *field.layers)


@functools.cache
def _compiled(name: str) -> Any:
    """Return a module of compiled functions; an import of sklode need not wait."""
    return importlib.import_module(f"sklode.engine.{name}")


def _run(*arguments: Any) -> Tensor:
    result: Tensor = _Run.apply(torch.is_grad_enabled(), *arguments)
    return result


class _Run(torch.autograd.Function):
    """One run of the engine: called with what makes it from arrays, and tensors."""

    @staticmethod
    def forward(ctx: Any, graded: bool, make: Any, *tensors: Tensor | None) -> Tensor:
        ctx.run = make(graded and any(ctx.needs_input_grad), *map(_array, tensors))
        return torch.from_numpy(ctx.run.result)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        found = ctx.run.backward(_array(grad), ctx.needs_input_grad[2:])
        return None, None, *(None if g is None else torch.from_numpy(g) for g in found)


def _array(tensor: Tensor | None) -> np.ndarray | None:
    return None if tensor is None else np.ascontiguousarray(tensor.detach().numpy())
