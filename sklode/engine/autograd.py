"""The seam between torch and the engine: tensors in and out, with gradients."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional


def encode(
    x: Tensor, dt: Tensor, visits: Tensor, cell: Any, field: list[Tensor], method: str
) -> Tensor:
    """Return the last h, (batch, state), of a sequence of flows and cell updates.

    Each step, of signed length ``dt``, (batch, step), flows by a ``field``, weight and
    bias of each layer in turn; by none it rests. Where it ``visits``, (batch, step),
    bool, an LSTMCell or RNNCell then reads ``x``, (batch, step, input), which gets no
    gradient. ``method`` is one of the `TABLEAUS`.
    """
    from sklode.engine.runs import Encoding  # imports need not wait for it

    if not field:  # one that is never asked
        dt, one = torch.zeros_like(dt), x.new_zeros(1, cell.hidden_size)
        field = [one, one[0, :1], one.T, one[0]]
    bias = (cell.bias_ih + cell.bias_hh).unsqueeze(1)
    weights = torch.cat([cell.weight_hh, cell.weight_ih, bias], 1)
    run = functools.partial(Encoding, method)
    tensors = dt, visits.to(x.dtype), x, weights, *field
    return _Run.apply(torch.is_grad_enabled(), run, *tensors)


def decode_at(
    z0: Tensor,
    dt: Tensor,
    controls: Tensor | None,
    left: Tensor,
    theta: Tensor,
    field: list[Tensor],
    method: str,
) -> Tensor:
    """Return states at any places within consecutive steps, (batch, query, state).

    From ``z0``, (batch, state), steps ``dt``, (batch, step), are taken; ``controls``,
    (batch, step, control), hold over one each. A query, (batch, query), is ``theta`` in
    [0, 1] of the way through the step ``left``, int64, on the cubic Hermite interpolant
    of z and dz/dt at both ends.
    """
    from sklode.engine.runs import Decoding

    weight, *others = field
    by_state, by_control = weight.tensor_split([z0.shape[1]], dim=1)
    added = None if controls is None else functional.linear(controls, by_control)
    run = functools.partial(Decoding, method)
    tensors = dt, left, theta, z0, added, by_state, *others
    return _Run.apply(torch.is_grad_enabled(), run, *tensors)


class _Run(torch.autograd.Function):
    """One run of the engine: what makes it from arrays, and tensors."""

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
