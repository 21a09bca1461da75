"""The seam between torch and the engine: tensors in, tensors out, with gradients."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from sklode.engine import fused
from sklode.engine.flows import ACTIVATIONS, TABLEAUS, HiddenField
from sklode.engine.sequences import DecodePass, EncodePass, FlowMaps
from sklode.engine.threads import SharedLimit

__all__ = [
    "CellWeights",
    "FieldWeights",
    "decode",
    "decode_at",
    "emit",
    "encode",
    "supports",
]


_THREADS = ThreadpoolController()


# keeps BLAS from sharing out products that take microseconds
_ONE_BLAS_THREAD = SharedLimit(
    lambda: _THREADS.limit(limits=1, user_api="blas"),
    lambda limiter: limiter.restore_original_limits(),
)


def _overflowing() -> np.errstate:
    """Let values overflow as in torch, whose callers look at the result.

    numpy would warn of each, in a training that skips the step.
    """
    return np.errstate(over="ignore", invalid="ignore")


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


class CellWeights(NamedTuple):
    """A recurrent cell: (gates * state, input), (gates * state, state), both biases.

    4 gates (i, f, g, o) make an LSTM cell, 1 a tanh cell.
    """

    w_ih: Tensor
    w_hh: Tensor
    bias: Tensor


def supports(method: str, activation: str, example: Tensor) -> bool:
    """Return whether the engines have this method and activation for such tensors."""
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
    """Return the states before, between and after consecutive steps (unrolled engine).

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


def decode_at(
    z0: Tensor,
    dt: Tensor,
    control_bias: Tensor | None,
    left: Tensor,
    theta: Tensor,
    field: FieldWeights,
    method: str,
    layout: str,
) -> Tensor:
    """Return states at any places within consecutive steps (fused engine).

    Between the ends of a step the answer is the cubic Hermite interpolant of z and
    dz/dt; the control of the step holds at both.

    Parameters
    ----------
    z0, dt, control_bias, method
        As in `decode`.
    left : Tensor of shape (batch, query), int64
        The step in which each query lies.
    theta : Tensor of shape (batch, query)
        Its place there: 0 at the step's start, 1 at its end.
    field : FieldWeights
        The vector field, of at most one inner layer.
    layout : {"lanes", "single"}
        See `sklode.engine.simd`.

    Returns
    -------
    Tensor of shape (batch, query, state)
    """
    states: Tensor = _FusedDecode.apply(
        (method, field.activation, layout),
        dt,
        left,
        theta,
        z0,
        control_bias,
        *(field.w1, field.b1, field.wo, field.bo),
        *(tensor for layer in field.inner for tensor in layer),
    )
    return states


def emit(z: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    """Return W_2 tanh(W_1 z + b_1) + b_2 of states z (..., feature) (fused engine).

    Returns
    -------
    Tensor of shape (..., channel)
    """
    x: Tensor = _FusedEmission.apply(z.reshape(-1, z.shape[-1]), w1, b1, w2, b2)
    return x.view(*z.shape[:-1], len(w2))


def encode(
    x: Tensor,
    dt: Tensor,
    visits: Tensor,
    cell: CellWeights,
    field: FieldWeights | None,
    method: str,
    layout: str | None = None,
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
        The vector field of the flow; None, which needs ``layout``: nothing flows.
    method : {"rk4", "midpoint", "euler"}
        The Runge-Kutta method.
    layout : {"lanes", "single"}, optional
        The fused engine runs it in this layout; it takes at most one inner layer. None:
        the unrolled engine.

    Returns
    -------
    Tensor of shape (batch, state)
    """
    if layout is not None:
        if field is None:
            field, dt = _at_rest(cell.w_hh), torch.zeros_like(dt)
        last: Tensor = _FusedEncode.apply(
            (method, field.activation, layout),
            dt,
            visits,
            x,
            *cell,
            *(field.w1, field.b1, field.wo, field.bo),
            *(tensor for layer in field.inner for tensor in layer),
        )
        return last
    if field is None:
        raise ValueError("the unrolled engine needs a vector field; got None.")
    projected = functional.linear(x, cell.w_ih, cell.bias)
    result: Tensor = _Encode.apply(
        method,
        field.activation,
        dt.t().contiguous(),
        visits.t().contiguous(),
        projected.transpose(0, 1).contiguous(),
        cell.w_hh,
        field.w1,
        field.b1,
        field.wo,
        field.bo,
        field.w1 @ field.wo,
        field.w1 @ field.bo,
        *(tensor for layer in field.inner for tensor in layer),
    )
    return result


def _at_rest(w_hh: Tensor) -> FieldWeights:
    """Return a field that nothing asks."""
    state_size = w_hh.shape[1]
    none = w_hh.new_zeros
    return FieldWeights(
        none(1, state_size), none(1), (), none(state_size, 1), none(state_size), "tanh"
    )


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
        with _ONE_BLAS_THREAD, _overflowing():
            means = ctx.run.forward(
                _array(p0), _array(dt), None if bias is None else _array(bias)
            )
        # the graph may outlive the engine's own buffer
        return torch.from_numpy(means.copy())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_means: Tensor) -> tuple[Tensor | None, ...]:
        with _ONE_BLAS_THREAD, _overflowing():
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
        with _ONE_BLAS_THREAD, _overflowing():
            h = ctx.run.forward(_array(x), _array(dt), _array(visits))
        return torch.from_numpy(h.copy())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_h: Tensor) -> tuple[Tensor | None, ...]:
        with _ONE_BLAS_THREAD, _overflowing():
            grads = ctx.run.backward(_array(grad_h))
        tensors = [torch.from_numpy(np.ascontiguousarray(grad)) for grad in grads]
        return (None, None, None, None, *tensors)


def _fused_field(how: tuple[str, str, str], layers: tuple[Tensor, ...]) -> fused.Field:
    w1, b1, wo, bo, *inner = (_array(tensor) for tensor in layers)
    return fused.Field(w1, b1, tuple(inner), wo, bo, *how)


class _FusedDecode(torch.autograd.Function):
    """Bridge to `fused.decode`."""

    @staticmethod
    def forward(
        ctx: Any,
        how: tuple[str, str, str],
        dt: Tensor,
        left: Tensor,
        theta: Tensor,
        z0: Tensor,
        bias: Tensor | None,
        *layers: Tensor,
    ) -> Tensor:
        ctx.field = _fused_field(how, layers)
        ctx.dt, ctx.has_bias = _array(dt), bias is not None
        ctx.added = (
            np.zeros((*dt.shape, 0), ctx.dt.dtype) if bias is None else _array(bias)
        )
        ctx.queries = _array(left), _array(theta)
        z, ctx.kept = fused.decode(
            ctx.field, _array(z0), ctx.dt, ctx.added, ctx.queries
        )
        return torch.from_numpy(z)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_z: Tensor) -> tuple[Tensor | None, ...]:
        z0, bias, *layers = (
            torch.from_numpy(grad)
            for grad in fused.decode_backward(
                *(ctx.field, ctx.dt, ctx.added, ctx.queries, ctx.kept, _array(grad_z))
            )
        )
        return (None, None, None, None, z0, bias if ctx.has_bias else None, *layers)


class _FusedEncode(torch.autograd.Function):
    """Bridge to `fused.encode`."""

    @staticmethod
    def forward(
        ctx: Any,
        how: tuple[str, str, str],
        dt: Tensor,
        visits: Tensor,
        x: Tensor,
        w_ih: Tensor,
        w_hh: Tensor,
        bias: Tensor,
        *layers: Tensor,
    ) -> Tensor:
        ctx.field = _fused_field(how, layers)
        w = np.concatenate([_array(w_hh), _array(w_ih)], axis=1)
        ctx.cell = w, _array(bias)
        ctx.walk = _array(x), _array(dt), _array(visits.to(x.dtype))
        h, ctx.kept = fused.encode(ctx.field, ctx.cell, *ctx.walk)
        return torch.from_numpy(h)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_h: Tensor) -> tuple[Tensor | None, ...]:
        wants_x = ctx.needs_input_grad[3]
        by_x, by_w, *others = fused.encode_backward(
            *(ctx.field, ctx.cell, *ctx.walk, ctx.kept, _array(grad_h), wants_x)
        )
        by_w = torch.from_numpy(by_w)
        n = ctx.field.n_state
        return (
            *(None, None, None, torch.from_numpy(by_x) if wants_x else None),
            *(by_w[:, n:], by_w[:, :n]),
            *(torch.from_numpy(grad) for grad in others),
        )


class _FusedEmission(torch.autograd.Function):
    """Bridge to `fused.emit`."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, *layers: Tensor) -> Tensor:
        ctx.z = _array(z)
        ctx.weights = tuple(_array(layer) for layer in layers)
        return torch.from_numpy(fused.emit(ctx.weights, ctx.z))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_x: Tensor) -> tuple[Tensor, ...]:
        grads = fused.emit_backward(ctx.weights, ctx.z, _array(grad_x))
        return tuple(torch.from_numpy(grad) for grad in grads)
