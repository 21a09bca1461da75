"""The seam between torch and the engine: tensors in, tensors out, with gradients."""

from __future__ import annotations

import functools
import importlib
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = [
    "CellWeights",
    "FieldWeights",
    "compile_kernel",
    "decode_at",
    "emit",
    "encode",
    "is_compiled",
    "supports",
]

METHODS = ("euler", "midpoint", "rk4")
ACTIVATIONS = ("tanh", "elu", "softplus")


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
    activation: str

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


def supports(method: str, activation: str, example: Tensor) -> bool:
    """Return whether the engine has this method and activation for such tensors."""
    return (
        method in METHODS
        and activation in ACTIVATIONS
        and example.device.type == "cpu"
        and example.dtype in (torch.float32, torch.float64)
    )


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
    field : FieldWeights
        The vector field.
    method : {"rk4", "midpoint", "euler"}
        The Runge-Kutta method.

    Returns
    -------
    Tensor of shape (batch, query, state)
    """
    how = method, field.activation
    states: Tensor = _Decode.apply(
        how, dt, left, theta, z0, control_bias, *field.layers
    )
    return states


def emit(z: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    """Return W_2 tanh(W_1 z + b_1) + b_2 of states z (..., feature).

    Returns
    -------
    Tensor of shape (..., channel)
    """
    x: Tensor = _Emission.apply(z.reshape(-1, z.shape[-1]), w1, b1, w2, b2)
    return x.view(*z.shape[:-1], len(w2))


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
    cell : CellWeights
        The cell.
    field : FieldWeights or None
        The vector field of the flow; None: nothing flows.
    method : {"rk4", "midpoint", "euler"}
        The Runge-Kutta method.

    Returns
    -------
    Tensor of shape (batch, state)
    """
    how = (method, field.activation) if field else None
    layers = field.layers if field else []
    weights = cell.w_hh, cell.bias, cell.w_ih
    last: Tensor = _Encode.apply(how, dt, visits, x, *weights, *layers)
    return last


@functools.cache
def _fused() -> Any:
    """Return the engine's own side, which needs numba."""
    return importlib.import_module("sklode.engine.fused")


def is_compiled() -> bool:
    """Return whether the fused engine need not be compiled any more, as of now."""
    return bool(_fused().is_compiled())


def compile_kernel() -> None:
    """Have the fused engine ready for float32: from disk, or compile it."""
    _fused().compile_kernel()


def _array(tensor: Tensor) -> np.ndarray:
    return np.ascontiguousarray(tensor.detach().numpy())


def _field(how: tuple[str, str], layers: tuple[Tensor, ...]) -> Any:
    w1, b1, wo, bo, *inner = map(_array, layers)
    return _fused().Field(w1, b1, tuple(inner), wo, bo, *how)


class _Decode(torch.autograd.Function):
    """Bridge to `fused.decode`."""

    @staticmethod
    def forward(
        ctx: Any,
        how: tuple[str, str],
        dt: Tensor,
        left: Tensor,
        theta: Tensor,
        z0: Tensor,
        bias: Tensor | None,
        *layers: Tensor,
    ) -> Tensor:
        steps = _array(dt), None if bias is None else _array(bias)
        queries = _array(left), _array(theta)
        z, ctx.saved = _fused().decode(
            _field(how, layers), _array(z0), *steps, *queries
        )
        return torch.from_numpy(z)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_z: Tensor) -> tuple[Tensor | None, ...]:
        by_z0, by_bias, layers = _fused().decode_backward(ctx.saved, _array(grad_z))
        bias = None if by_bias is None else torch.from_numpy(by_bias)
        z0, *rest = map(torch.from_numpy, (by_z0, *layers))
        return (None, None, None, None, z0, bias, *rest)


class _Encode(torch.autograd.Function):
    """Bridge to `fused.encode`."""

    @staticmethod
    def forward(
        ctx: Any,
        how: tuple[str, str] | None,
        dt: Tensor,
        visits: Tensor,
        x: Tensor,
        *weights: Tensor,
    ) -> Tensor:
        cell = tuple(map(_array, weights[:3]))
        field = None if how is None else _field(how, weights[3:])
        walk = map(_array, (x, dt, visits.to(x.dtype)))
        h, ctx.saved = _fused().encode(cell, field, *walk)
        return torch.from_numpy(h)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_h: Tensor) -> tuple[Tensor | None, ...]:
        wants_x = ctx.needs_input_grad[3]
        by_x, grads = _fused().encode_backward(ctx.saved, _array(grad_h), wants_x)
        x = None if by_x is None else torch.from_numpy(by_x)
        return (None, None, None, x, *map(torch.from_numpy, grads))


class _Emission(torch.autograd.Function):
    """Bridge to `fused.emit`."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, *layers: Tensor) -> Tensor:
        ctx.saved = tuple(map(_array, layers)), _array(z)
        return torch.from_numpy(_fused().emit(*ctx.saved))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_x: Tensor) -> tuple[Tensor, ...]:
        by_z, grads = _fused().emit_backward(*ctx.saved, _array(grad_x))
        return tuple(map(torch.from_numpy, (by_z, *grads)))
