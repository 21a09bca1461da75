"""The seam between torch and the engine: tensors in, tensors out, with gradients."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from sklode._threads import SharedLimit
from sklode.engine.flows import ACTIVATIONS, TABLEAUS, HiddenField
from sklode.engine.sequences import DecodePass, EncodePass, FlowMaps

__all__ = ["FieldWeights", "decode", "encode", "supports"]


_THREADS = ThreadpoolController()


# keeps BLAS from sharing out products that take microseconds
_ONE_BLAS_THREAD = SharedLimit(
    lambda: _THREADS.limit(limits=1, user_api="blas"),
    lambda limiter: limiter.restore_original_limits(),
)


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


def supports(method: str, activation: str, example: Tensor) -> bool:
    """Return whether the engine has this method and activation for such tensors."""
    return (
        method in TABLEAUS
        and activation in ACTIVATIONS
        and example.device.type == "cpu"
        and example.dtype in (torch.float32, torch.float64)
    )


def decode(
    z0: Tensor,
    dt: Tensor,
    control_bias: Tensor | None,
    field: FieldWeights,
    method: str,
) -> Tensor:
    """Return the states before, between and after consecutive steps.

    Parameters
    ----------
    z0 : Tensor of shape (batch, state)
        Initial states.
    dt : Tensor of shape (batch, step)
        Signed lengths of the steps.
    control_bias : Tensor of shape (batch, step, width) or None
        What controls, held over a step, add to the field's first layer.
    field : FieldWeights
        The vector field.
    method : {"rk4", "midpoint", "euler"}
        The Runge-Kutta method.

    Returns
    -------
    Tensor of shape (batch, step + 1, state)
    """
    steps = dt.t().contiguous()
    bias = None if control_bias is None else control_bias.transpose(0, 1).contiguous()
    means: Tensor = _Decode.apply(
        method,
        field.activation,
        steps,
        functional.linear(z0, field.w1, field.b1),
        bias,
        field.w1 @ field.wo,
        field.w1 @ field.bo,
        *(tensor for layer in field.inner for tensor in layer),
    )
    rise = steps.unsqueeze(-1) * functional.linear(means, field.wo, field.bo)
    return torch.cat([z0.unsqueeze(0), z0 + rise.cumsum(0)]).transpose(0, 1)


def encode(
    x: Tensor,
    dt: Tensor,
    visits: Tensor,
    w_hh: Tensor,
    field: FieldWeights,
    method: str,
) -> Tensor:
    """Return the last h of a sequence of flows and cell updates.

    Parameters
    ----------
    x : Tensor of shape (batch, step, gates * state)
        The cell's projected inputs, with both of its biases.
    dt : Tensor of shape (batch, step)
        Signed lengths of the flow of each step; 0: no flow.
    visits : Tensor of shape (batch, step), bool
        Whether the cell is updated at the end of the step.
    w_hh : Tensor of shape (gates * state, state)
        The cell's recurrent weights: 4 gates for an LSTM, 1 for a tanh cell.
    field : FieldWeights
        The vector field of the flow.
    method : {"rk4", "midpoint", "euler"}
        The Runge-Kutta method.

    Returns
    -------
    Tensor of shape (batch, state)
    """
    result: Tensor = _Encode.apply(
        method,
        field.activation,
        dt.t().contiguous(),
        visits.t().contiguous(),
        x.transpose(0, 1).contiguous(),
        w_hh,
        field.w1,
        field.b1,
        field.wo,
        field.bo,
        field.w1 @ field.wo,
        field.w1 @ field.bo,
        *(tensor for layer in field.inner for tensor in layer),
    )
    return result


def _array(tensor: Tensor) -> np.ndarray:
    return np.ascontiguousarray(tensor.detach().numpy())


def _hidden_field(
    method: str, activation: str, m: Tensor, c: Tensor, inner: tuple[Tensor, ...]
) -> HiddenField:
    arrays = [_array(tensor) for tensor in inner]
    pairs = tuple(zip(arrays[::2], arrays[1::2], strict=True))
    return HiddenField(_array(m), _array(c), pairs, method, activation)


class _Decode(torch.autograd.Function):
    """Bridge to `DecodePass`."""

    @staticmethod
    def forward(
        ctx: Any,
        method: str,
        activation: str,
        dt: Tensor,
        p0: Tensor,
        bias: Tensor | None,
        m: Tensor,
        c: Tensor,
        *inner: Tensor,
    ) -> Tensor:
        ctx.run = DecodePass(_hidden_field(method, activation, m, c, inner))
        ctx.has_bias = bias is not None
        with _ONE_BLAS_THREAD:
            means = ctx.run.forward(
                _array(p0), _array(dt), None if bias is None else _array(bias)
            )
        # the graph may outlive the engine's own buffer
        return torch.from_numpy(means.copy())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_means: Tensor) -> tuple[Tensor | None, ...]:
        with _ONE_BLAS_THREAD:
            p0, bias, m, c, inner = ctx.run.backward(_array(grad_means))
        flat = [array for layer in inner for array in layer]
        by_p0, by_bias, *others = (
            torch.from_numpy(np.ascontiguousarray(g)) for g in (p0, bias, m, c, *flat)
        )
        return (None, None, None, by_p0, by_bias if ctx.has_bias else None, *others)


class _Encode(torch.autograd.Function):
    """Bridge to `EncodePass`."""

    @staticmethod
    def forward(
        ctx: Any,
        method: str,
        activation: str,
        dt: Tensor,
        visits: Tensor,
        x: Tensor,
        w_hh: Tensor,
        w1: Tensor,
        b1: Tensor,
        wo: Tensor,
        bo: Tensor,
        m: Tensor,
        c: Tensor,
        *inner: Tensor,
    ) -> Tensor:
        ctx.run = EncodePass(
            _hidden_field(method, activation, m, c, inner),
            FlowMaps(*(_array(tensor) for tensor in (w1, b1, wo, bo))),
            _array(w_hh),
        )
        with _ONE_BLAS_THREAD:
            h = ctx.run.forward(_array(x), _array(dt), _array(visits))
        return torch.from_numpy(h.copy())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_h: Tensor) -> tuple[Tensor | None, ...]:
        with _ONE_BLAS_THREAD:
            grads = ctx.run.backward(_array(grad_h))
        tensors = [torch.from_numpy(np.ascontiguousarray(grad)) for grad in grads]
        return (None, None, None, None, *tensors)
