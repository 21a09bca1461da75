"""How far gradients reach through an encoder: the Jacobians of its backward pass.

The encoder walks backward in time; the error that reaches its parameters from the k-th
visit has passed through dh_1/dh_k, a product of one Jacobian per visit (paper, eqs.
rnn3, odernn5 and 11a). That product and its factors are measured exactly, on the CPU in
float64, for the encoders of `sklode.nn` and for fitted forecasters.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from itertools import cycle
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from torch import Tensor

from sklode.nn import ODELSTM


class EncoderInputs(NamedTuple):
    """What an encoder of `sklode.nn` is called with.

    Attributes
    ----------
    times : Tensor of shape (batch, time)
        Increasing, in ``time_unit_``; padded by repeating the last stamp.
    inputs : Tensor of shape (batch, time, input)
        What the cell reads at each stamp; anything, NaN included, where unobserved.
    observed : Tensor of shape (batch, time), bool, optional
        Where the cell is updated; None: everywhere.
    """

    times: Tensor
    inputs: Tensor
    observed: Tensor | None = None


def encoder_inputs(forecaster: Any, n_windows: int = 16) -> EncoderInputs:
    """Return what the encoder of a fitted forecaster reads in windows of its series.

    At most ``n_windows`` of them, evenly spread over all; the last is among them.
    """
    windows = forecaster._model.windows(forecaster._history.observations)
    spread = np.linspace(len(windows) - 1, 0, min(n_windows, len(windows)))
    which = spread.round().astype(np.int64)[::-1]
    network = copy.deepcopy(forecaster.network_).cpu()
    read: list[EncoderInputs] = []

    class Reader(torch.nn.Module):
        hidden_size = network.encoder.hidden_size

        def forward(self, times: Tensor, inputs: Tensor, observed: Tensor) -> Tensor:
            read.append(EncoderInputs(times, inputs, observed))
            return inputs.new_zeros(len(inputs), self.hidden_size)

    network.encoder = Reader()
    with torch.no_grad():
        network.encode(windows.gather(which))
    return read[0]


def gradient_flow(
    model: Any, inputs: EncoderInputs | None = None, hold_cell: bool = False
) -> pd.DataFrame:
    r"""Measure how much of the error at the end of the backward pass each visit feels.

    The spectral norm of the state at the end with respect to the memory after an
    earlier visit, the product of all Jacobians in between:

    .. math::
        \frac{\partial h_1}{\partial h_k} = \prod_{1 \le j < k}
        \frac{\partial h_j}{\partial h'_j} \frac{\partial h'_j}{\partial h_{j+1}}

    (paper, eq. rnn3 for an RNN, odernn5 for an ODE-RNN, 11a for an ODE-LSTM; they count
    visits in the other direction). The memory of an LSTM is (h, C), and the product is
    that of its whole Jacobians: the error also reaches h_k by way of later C.

    Parameters
    ----------
    model : forecaster or encoder
        A fitted forecaster, or `sklode.nn.RNN`, `ODERNN` or `ODELSTM`.
    inputs : EncoderInputs, optional
        What the encoder reads; needed for an encoder. None: `encoder_inputs`.
    hold_cell : bool, default=False
        Of an ODE-LSTM: treat C as a constant, so that each factor is
        :math:`\partial h_j / \partial h_{j+1}` alone, as in the paper's eq. 11a with
        :math:`\partial C_{j-1} / \partial h'_j = 0`.

    Returns
    -------
    DataFrame
        A row per series, visit and part of the memory, with the columns

        - ``series``: number of the series in ``inputs``, from 0;
        - ``visits``: visits between, 0 for the last one, that of the earliest stamp;
        - ``time``: time between, in ``time_unit_``;
        - ``by``: "h" for the derivative with respect to h, "c" with respect to C;
        - ``norm``: the spectral norm, dimensionless;
        - ``log10_norm``: its logarithm, also where the norm itself underflows or
          overflows; -inf where it is zero, as h_1 by C_1 is.
    """
    walk = _walk(model, inputs)
    size, parts = walk.size, ["h"] if hold_cell else walk.parts
    n_series, n_steps = walk.visits.shape
    product = torch.eye(size, size * len(parts), dtype=torch.float64)
    product = product.repeat(n_series, 1, 1)
    exponent = torch.zeros(n_series, dtype=torch.float64)  # of 2, taken out of product
    logs = torch.zeros(len(parts), n_series, n_steps, dtype=torch.float64)
    for k in range(n_steps - 1, -1, -1):
        for p in range(len(parts)):
            block = product[..., p * size : (p + 1) * size]
            logs[p, :, k] = _spectral(block).log10() + exponent * math.log10(2)
        product = product @ walk.cells[:, k, : product.shape[-1], : product.shape[-1]]
        product[..., :size] = product[..., :size] @ walk.flows[:, k]
        _, shift = torch.frexp(product.abs().amax((1, 2)))
        product = torch.ldexp(product, -shift[:, None, None])
        exponent += shift
    frames = []
    for part, log in zip(parts, logs, strict=True):
        frame = walk.table(walk.visits).assign(by=part)
        with np.errstate(over="ignore", under="ignore"):
            frame["norm"] = 10.0 ** log[walk.visits].numpy()
        frame["log10_norm"] = log[walk.visits].numpy()
        frames.append(frame)
    order = ["series", "by", "visits"]
    return pd.concat(frames).sort_values(order, ignore_index=True)


def step_norms(model: Any, inputs: EncoderInputs | None = None) -> pd.DataFrame:
    r"""Measure the Jacobian of each single step, from one visit to the next.

    These are the factors of `gradient_flow`, which the paper bounds (eqs. rnn6.0,
    odernn6.1 and 12):

    .. math::
        \Big\| \frac{\partial h_j}{\partial h_{j+1}} \Big\| \le
        \Big\| \frac{\partial h_j}{\partial h'_j} \Big\| \,
        \Big\| \frac{\partial h'_j}{\partial h_{j+1}} \Big\|

    Parameters
    ----------
    model, inputs
        As in `gradient_flow`.

    Returns
    -------
    DataFrame
        A row per series, step and block of the Jacobian, with the columns

        - ``series``: number of the series in ``inputs``, from 0;
        - ``visits``: visits between the step's end and the last visit;
        - ``time``: the gap that the step crosses, in ``time_unit_``;
        - ``of``, ``by``: the block, "h" or "c" after the step by "h" or "c" before it;
        - ``norm``: the block's spectral norm, dimensionless;
        - ``flow``: that of :math:`\partial h'_j / \partial h_{j+1}`; 1 by C, which does
          not flow;
        - ``cell``: that of the cell's derivative by :math:`h'_j`, or by C.
    """
    walk = _walk(model, inputs)
    size, parts, visits = walk.size, walk.parts, walk.visits
    n_series, n_steps = visits.shape
    identity = torch.eye(size, dtype=torch.float64).expand(n_series, -1, -1)
    flowed, arrival = identity, torch.zeros_like(walk.cells[:, 0])
    gap, time = torch.zeros(n_series, dtype=torch.float64), walk.dt.clone()
    found: dict[tuple[str, str], list[Tensor]] = {}
    for k in range(n_steps - 1, -1, -1):
        # arrival is the cell's Jacobian at the next visit, flowed that of the way there
        time[:, k] = gap
        for i, of in enumerate(parts):
            for j, by in enumerate(parts):
                block = arrival[:, i * size :, j * size :][:, :size, :size]
                between = flowed if by == "h" else identity
                norms = [_spectral(m) for m in (block @ between, between, block)]
                found.setdefault((of, by), []).append(torch.stack(norms, dim=-1))
        visited = visits[:, k, None, None]
        arrival = torch.where(visited, walk.cells[:, k], arrival)
        flowed = torch.where(visited, identity, flowed) @ walk.flows[:, k]
        gap = torch.where(visits[:, k], 0.0, gap) + walk.dt[:, k].abs()
    starts = visits & (_sum_after(visits.long()) > 0)
    frames = []
    for (of, by), norms in found.items():
        frame = walk.table(starts).assign(time=time[starts].numpy(), of=of, by=by)
        frame["visits"] -= 1
        frame[["norm", "flow", "cell"]] = torch.stack(norms[::-1], 1)[starts].numpy()
        frames.append(frame)
    order = ["series", "of", "by", "visits"]
    return pd.concat(frames).sort_values(order, ignore_index=True)


class _Walk(NamedTuple):
    """An encoder's pass over series, step by step, backward in time."""

    size: int  # of the state
    parts: list[str]  # of the memory
    dt: Tensor  # (batch, step)
    visits: Tensor  # (batch, step), bool: the cell is updated at the end of the step
    flows: Tensor  # (batch, step, state, state): Jacobians of the flow of h
    cells: Tensor  # (batch, step, memory, memory): of the visits; else the identity

    def table(self, chosen: Tensor) -> pd.DataFrame:
        """Return where chosen steps, (batch, step), are."""
        return pd.DataFrame(
            {
                "series": torch.nonzero(chosen)[:, 0].numpy(),
                "visits": _sum_after(self.visits.long())[chosen].numpy(),
                "time": _sum_after(self.dt.abs())[chosen].numpy(),
            }
        )


def _walk(model: Any, inputs: EncoderInputs | None) -> _Walk:
    """Run the encoder of a model, and differentiate each of its steps."""
    if inputs is None:
        inputs = encoder_inputs(model)
    encoder = getattr(model, "network_", model)
    encoder = copy.deepcopy(getattr(encoder, "encoder", encoder)).to("cpu").double()
    times, values, observed = inputs
    if observed is None:
        observed = torch.ones(times.shape, dtype=torch.bool)
    values = torch.where(observed.unsqueeze(-1), values.double(), 0.0)
    backward = times.double().flip(1), values.flip(1), observed.flip(1)
    read, dt, visits, _ = encoder.steps(*backward, to_last_visit=True)
    size, is_lstm = encoder.hidden_size, isinstance(encoder, ODELSTM)

    def flow(h: Tensor, dt: Tensor) -> Tensor:
        if encoder.vector_field is None:
            return h
        return encoder.solver.step(encoder.vector_field, h, dt)

    def visit(memory: Tensor, read: Tensor) -> Tensor:
        if not is_lstm:
            return encoder.cell(read, memory)
        return torch.cat(encoder.cell(read, memory.chunk(2, dim=1)), dim=1)

    memory = values.new_zeros(len(times), size * (2 if is_lstm else 1))
    before = []
    with torch.no_grad():
        for k in range(dt.shape[1]):
            before.append(memory)
            h = flow(memory[:, :size], dt[:, k : k + 1])
            memory = torch.cat([h, memory[:, size:]], dim=1)
            visited = visits[:, k : k + 1]
            memory = torch.where(visited, visit(memory, read[:, k]), memory)
    # all steps of all series at once
    rows = torch.stack(before, dim=1).flatten(0, 1)
    h, flows = _with_jacobian(lambda h: flow(h, dt.reshape(-1, 1)), rows[:, :size])
    flowed = torch.cat([h, rows[:, size:]], dim=1)
    _, cells = _with_jacobian(lambda m: visit(m, read.flatten(0, 1)), flowed)
    identity = torch.eye(rows.shape[1], dtype=rows.dtype)
    cells = torch.where(visits.reshape(-1, 1, 1), cells, identity)
    parts = ["h", "c"] if is_lstm else ["h"]
    shape = dt.shape
    return _Walk(
        size, parts, dt, visits, flows.unflatten(0, shape), cells.unflatten(0, shape)
    )


def draw_flow(flows: dict[str, pd.DataFrame], axes: Any = None) -> Any:
    """Draw how much of the error each visit feels, and return the axes.

    Of each `gradient_flow`, by name, the larger of the norms by h and by C, as powers
    of ten: a straight line is a gradient that vanishes, or explodes, exponentially.
    Thick lines are geometric means over series, whose own lines are thin.
    """
    if axes is None:
        _, axes = plt.subplots(layout="constrained")
    for (name, flow), style in zip(flows.items(), cycle(["-", "--", ":"])):
        known = flow[np.isfinite(flow["log10_norm"])]  # not h_1 by C_1, which is 0
        table = known.pivot_table("log10_norm", "visits", "series", aggfunc="max")
        (line,) = axes.plot(table.mean(axis=1), linestyle=style, label=name)
        thin = {"color": line.get_color(), "linewidth": 0.6, "alpha": 0.3}
        axes.plot(table, zorder=1.5, **thin)
    axes.set(xlabel="visits between", ylabel=r"$\log_{10}$ of the norm")
    axes.legend(frameon=False)
    return axes


def _with_jacobian(f: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """Return f(x) and its Jacobian, (row, output, input), for f of rows of their own.

    One backward pass per output goes through every autograd function.
    """
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        y = f(x)
        if not y.requires_grad:
            return y, x.new_zeros(len(x), y.shape[1], x.shape[1])
        keep = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
        columns = [torch.autograd.grad(c.sum(), x, **keep)[0] for c in y.unbind(1)]
    return y.detach(), torch.stack(columns, dim=1)


def _spectral(matrices: Tensor) -> Tensor:
    """Return the largest singular values, NaN where an entry is not finite."""
    finite = torch.isfinite(matrices).all(-1).all(-1)
    known = torch.where(finite[:, None, None], matrices, 0.0)
    norms = torch.linalg.matrix_norm(known, ord=2)
    return torch.where(finite, norms, math.nan)


def _sum_after(x: Tensor) -> Tensor:
    """Return the sum of what follows each entry of a row."""
    return x.flip(1).cumsum(1).flip(1) - x
