"""The seam between torch and the engine: tensors in and out, with gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

if TYPE_CHECKING:
    from sklode.engine.runs import Decoding, Encoding


def encode(
    x: Tensor,
    dt: Tensor,
    visits: Tensor,
    cell: nn.LSTMCell | nn.RNNCell,
    field: list[Tensor],
    method: str,
) -> Tensor:
    """Return the last h, (batch, state), of a sequence of flows and cell updates.

    Each step, of signed length ``dt``, (batch, step), flows by a ``field``, weight and
    bias of each layer in turn; by none it rests. Where it ``visits``, (batch, step),
    bool, an LSTMCell or RNNCell then reads ``x``, (batch, step, input), which gets no
    gradient. ``method`` is one of the `TABLEAUS`.
    """
    from sklode.engine.runs import Encoding  # imports need not wait for it

    if not field:
        # where all steps rest no field is needed: any of one hidden neuron will do
        dt, one = torch.zeros_like(dt), x.new_zeros(1, cell.hidden_size)
        field = [one, one[0, :1], one.T, one[0]]
    # torch's cells have two biases, of which only the sum matters
    bias = (cell.bias_ih + cell.bias_hh).unsqueeze(1)
    weights = torch.cat([cell.weight_hh, cell.weight_ih, bias], dim=1)
    return _run(Encoding, method, dt, visits.to(x.dtype), x, weights, *field)


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
    # W_1 [z, u] = W_z z + W_u u: of a control that is held, the second is a bias
    added = None if controls is None else functional.linear(controls, by_control)
    return _run(Decoding, method, dt, left, theta, z0, added, by_state, *others)


def _run(
    kind: type[Encoding] | type[Decoding], method: str, *tensors: Tensor | None
) -> Tensor:
    """Return the result of a run, through which gradients go back to the tensors."""
    make = functools.partial(kind, method)
    # looked up here, for within a function of its own torch records nothing
    found: Tensor = _Run.apply(torch.is_grad_enabled(), make, *tensors)
    return found


class _Run(torch.autograd.Function):
    """One run of the engine: what makes it from arrays, and tensors."""

    @staticmethod
    def forward(
        ctx: Any,
        is_recorded: bool,
        make: Callable[..., Encoding | Decoding],
        *tensors: Tensor | None,
    ) -> Tensor:
        keeps = is_recorded and any(ctx.needs_input_grad)
        ctx.run = make(keeps, *map(_array, tensors))
        return torch.from_numpy(ctx.run.result)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        # in the order of forward's arguments, of which the first two are no tensors
        found = ctx.run.backward(_array(grad))
        return None, None, *(None if g is None else torch.from_numpy(g) for g in found)


def _array(tensor: Tensor | None) -> np.ndarray | None:
    return None if tensor is None else np.ascontiguousarray(tensor.detach().numpy())
