"""Why training is hard: gradients through the encoder, and what clipping did.

The encoder walks backward in time; the error that reaches its parameters from the k-th
visit has passed through dh_1/dh_k, a product of one Jacobian per visit (paper, eqs.
rnn3, odernn5 and 11a). These functions measure that product and its factors exactly,
in float64, for any encoder of `sklode.nn` and for fitted forecasters.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from sklearn.exceptions import NotFittedError
from torch import Tensor, nn

from sklode.data.observations import Observations
from sklode.forecasters import _LatentODEForecaster
from sklode.nn import ODELSTM, ODERNN, RNN
from sklode.nn.batches import make_batch
from sklode.nn.shapes import State, Steps, Times

__all__ = [
    "ClippingReport",
    "EncoderInputs",
    "check_forecaster",
    "clipping_report",
    "encoder_inputs",
    "gradient_flow",
    "step_norms",
]

_ROWS_AT_ONCE = 512
"""Steps times series whose Jacobians are held at once."""


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

    times: Times
    inputs: Tensor
    observed: Tensor | None = None


def encoder_inputs(
    forecaster: Any, y: Any = None, X: Any = None, n_windows: int = 16
) -> EncoderInputs:
    """Return what the encoder of a fitted forecaster reads in its windows.

    Parameters
    ----------
    forecaster : LatentODEForecaster, LatentODERNNForecaster or LatentODELSTMForecaster
        Fitted.
    y : Series, DataFrame or other sktime container, optional
        Series with the channels that fit had; None: those that fit and update have
        seen. Cut into windows of ``window_length`` observed stamps.
    X : DataFrame, optional
        Controls at ``y``'s stamps, where the model has any.
    n_windows : int, default=16
        At most that many windows, evenly spread over all; the last is among them.

    Returns
    -------
    EncoderInputs

    Raises
    ------
    TypeError
        If ``forecaster`` is none of the three.
    NotFittedError
        If it is not fitted.
    ValueError
        If ``y`` or ``X`` is not like those that fit had, X comes without y, or
        ``n_windows`` is not positive.
    """
    check_forecaster(forecaster, "encoder_inputs")
    if n_windows < 1:
        raise ValueError(f"n_windows must be at least 1; got {n_windows!r}.")
    model, observations = forecaster._model, forecaster._history.observations
    if y is not None:
        frame, controls = forecaster._truth(y, X)
        observations = Observations.from_frame(frame, controls)
        model.check_accepts(observations, forecaster)
    elif X is not None:
        raise ValueError(
            "X belongs to the rows of y; got X without y. Pass both, or neither for "
            "the series that fit has seen."
        )
    windows = model.windows(observations)
    spread = np.linspace(len(windows) - 1, 0, min(n_windows, len(windows)))
    which = spread.round().astype(np.int64)[::-1]
    network = copy.deepcopy(model.network).cpu()
    read = _Reader(network.encoder.hidden_size)
    network.encoder = read
    with torch.no_grad():
        network.encode(make_batch(windows, which, torch.device("cpu")))
    return read.inputs


class _Reader(nn.Module):
    """Stands in for an encoder, and keeps what it is called with."""

    inputs: EncoderInputs

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size

    def forward(
        self, times: Times, inputs: Tensor, observed: Tensor, run: object = None
    ) -> State:
        self.inputs = EncoderInputs(times, inputs, observed)
        return inputs.new_zeros(len(inputs), self.hidden_size)


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
        A fitted forecaster of this package, or `sklode.nn.RNN`, `ODERNN` or `ODELSTM`.
    inputs : EncoderInputs, optional
        What the encoder reads; needed for an encoder. None: the windows of
        `encoder_inputs`, of the series that the forecaster has seen.
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

    Raises
    ------
    TypeError
        If ``model`` is neither, or an encoder comes without ``inputs``.
    NotFittedError
        If a forecaster is not fitted.
    ValueError
        If ``inputs`` do not fit the encoder, or ``hold_cell`` is asked of one without
        C.

    Notes
    -----
    All is computed on the CPU in a float64 copy of the encoder. The adaptive solver
    shares its step control over a batch, here of steps: to its tolerance. With
    ``adjoint`` a flow's derivative is the adjoint's, as in training.

    References
    ----------
    R. Pascanu, T. Mikolov, Y. Bengio, "On the difficulty of training recurrent neural
    networks", ICML 2013.

    Examples
    --------
    >>> import torch
    >>> from sklode import nn
    >>> from sklode.diagnostics import EncoderInputs, gradient_flow
    >>> encoder = nn.RNN(1, 4)
    >>> times = torch.arange(20.0).unsqueeze(0)
    >>> flow = gradient_flow(encoder, EncoderInputs(times, torch.sin(times)[..., None]))
    >>> float(flow.loc[flow["visits"] == 0, "norm"].iloc[0])
    1.0
    """
    walk = _walk(model, inputs)
    size = walk.hidden_size
    if hold_cell and not walk.has_cell_state:
        raise ValueError(
            "hold_cell treats the cell state of an ODELSTM as a constant; got "
            f"hold_cell=True for a {walk.kind}, which has none. Leave it out."
        )
    parts = walk.parts[:1] if hold_cell else walk.parts
    n_series, n_steps = walk.visits.shape
    norms = torch.full((len(parts), n_series, n_steps), math.nan, dtype=torch.float64)
    product = torch.eye(size, size * len(parts), dtype=torch.float64)
    product = product.repeat(n_series, 1, 1)
    exponent = torch.zeros(n_series, dtype=torch.float64)  # of 2, taken out of product
    for k, flow, cell in walk.backward():
        for p in range(len(parts)):
            block = product[..., p * size : (p + 1) * size]
            norms[p, :, k] = _spectral(block).log10() + exponent * math.log10(2)
        if cell is not None:
            product = product @ cell[:, : size * len(parts), : size * len(parts)]
        if flow is not None:
            by_h = product[..., :size] @ flow
            product = torch.cat([by_h, product[..., size:]], dim=-1)
        _, shift = torch.frexp(product.abs().amax((1, 2)))
        product = torch.ldexp(product, -shift[:, None, None])
        exponent += shift
    frames = []
    for part, norm in zip(parts, norms, strict=True):
        frame = walk.table(walk.visits)
        frame["by"] = part
        log = norm[walk.visits].numpy()
        with np.errstate(over="ignore", under="ignore"):
            frame["norm"] = 10.0**log
        frame["log10_norm"] = log
        frames.append(frame)
    return _in_order(frames, ["series", "by", "visits"])


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

    Raises
    ------
    TypeError, NotFittedError, ValueError
        As in `gradient_flow`.

    Notes
    -----
    As in `gradient_flow`.
    """
    walk = _walk(model, inputs)
    size, parts = walk.hidden_size, walk.parts
    blocks = [(of, by) for of in range(len(parts)) for by in range(len(parts))]
    n_series, n_steps = walk.visits.shape
    found = torch.full((len(blocks), n_series, n_steps, 3), math.nan).double()
    identity = torch.eye(size, dtype=torch.float64).expand(n_series, -1, -1)
    flowed = identity
    arrival = torch.zeros(n_series, *[size * len(parts)] * 2, dtype=torch.float64)
    for k, flow, cell in walk.backward():
        # arrival is the cell's Jacobian at the visit after step k, flowed that between
        for b, (of, by) in enumerate(blocks):
            block = arrival[:, of * size :, by * size :][:, :size, :size]
            between = flowed if by == 0 else identity
            values = (block @ between, between, block)
            found[b, :, k] = torch.stack([_spectral(m) for m in values], dim=-1)
        visited = walk.visits[:, k, None, None]
        if cell is not None:
            arrival = torch.where(visited, cell, arrival)
        flowed = torch.where(visited, identity, flowed)
        if flow is not None:
            flowed = flowed @ flow
    starts = walk.visits & (walk.visits_after > 0)
    frames = []
    for (of, by), values in zip(blocks, found, strict=True):
        frame = walk.table(starts)
        frame["time"] = walk.gap_after[starts].numpy()
        frame["visits"] -= 1
        frame["of"], frame["by"] = parts[of], parts[by]
        frame[["norm", "flow", "cell"]] = values[starts].numpy()
        frames.append(frame)
    return _in_order(frames, ["series", "of", "by", "visits"])


def _spectral(matrices: Tensor) -> Tensor:
    """Return the largest singular values, NaN where an entry is not finite."""
    finite = torch.isfinite(matrices).all(-1).all(-1)
    norms = torch.linalg.matrix_norm(
        torch.where(finite[:, None, None], matrices, 0.0), ord=2
    )
    return torch.where(finite, norms, math.nan)


def _in_order(frames: list[pd.DataFrame], columns: list[str]) -> pd.DataFrame:
    return pd.concat(frames).sort_values(columns, ignore_index=True)


@dataclass(frozen=True, eq=False)
class _Walk:
    """An encoder's pass over series, step by step, backward in time."""

    kind: str
    hidden_size: int
    has_cell_state: bool
    dt: Steps  # (batch, step)
    visits: Tensor  # (batch, step), bool: the cell is updated at the end of the step
    read: Tensor  # (batch, step, input): what it then reads
    memory: Tensor  # (batch, step, memory): h, and C, before each step
    flow: Callable[[State, Tensor], State] | None
    cell: Callable[[Tensor, Tensor], Tensor]

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of the memory."""
        return ("h", "c") if self.has_cell_state else ("h",)

    @property
    def visits_after(self) -> Tensor:
        """How many visits follow each step, (batch, step)."""
        return _sum_after(self.visits.long())

    @property
    def gap_after(self) -> Tensor:
        """Time from the end of each step to the next visit, (batch, step)."""
        left = _sum_after(self.dt.abs())
        at_visit = torch.where(self.visits, left, -math.inf)
        later = at_visit.flip(1).cummax(1).values.flip(1)[:, 1:]
        return left - torch.nn.functional.pad(later, (0, 1))

    def table(self, chosen: Tensor) -> pd.DataFrame:
        """Return what is known of chosen steps, (batch, step), and of their place."""
        return pd.DataFrame(
            {
                "series": torch.nonzero(chosen)[:, 0].numpy(),
                "visits": self.visits_after[chosen].numpy(),
                "time": _sum_after(self.dt.abs())[chosen].numpy(),
            }
        )

    def backward(self) -> Iterator[tuple[int, Tensor | None, Tensor | None]]:
        """Yield, from the last step to the first, its number and its Jacobians.

        The flow's is (batch, state, state), the cell's (batch, memory, memory), the
        identity where a series has no visit; None where no series flows or visits.
        """
        n_series, n_steps = self.visits.shape
        at_once = max(_ROWS_AT_ONCE // n_series, 1)
        for end in range(n_steps, 0, -at_once):
            part = slice(max(end - at_once, 0), end)
            flows, cells = self._jacobians(part)
            for k in range(part.stop - 1, part.start - 1, -1):
                flow = cell = None
                if flows is not None and bool((self.dt[:, k] != 0).any()):
                    flow = flows[:, k - part.start]
                if bool(self.visits[:, k].any()):
                    cell = cells[:, k - part.start]
                yield k, flow, cell

    def _jacobians(self, part: slice) -> tuple[Tensor | None, Tensor]:
        """Return the Jacobians of steps, (batch, step, ...)."""
        shape = self.visits[:, part].shape
        memory, dt, read, visits = (
            x[:, part].flatten(0, 1)
            for x in (self.memory, self.dt.unsqueeze(-1), self.read, self.visits)
        )
        h, rest = memory[:, : self.hidden_size], memory[:, self.hidden_size :]
        flows = None
        if self.flow is not None:
            flow = self.flow
            h, flows = _with_jacobian(lambda h: flow(h, dt), h)
            flows = flows.unflatten(0, shape)
        _, cells = _with_jacobian(
            lambda m: self.cell(read, m), torch.cat([h, rest], dim=1)
        )
        identity = torch.eye(cells.shape[-1], dtype=cells.dtype)
        cells = torch.where(visits[:, None, None], cells, identity)
        return flows, cells.unflatten(0, shape)


def _sum_after(x: Tensor) -> Tensor:
    """Return the sum of what follows each entry of a row."""
    return x.flip(1).cumsum(1).flip(1) - x


def _with_jacobian(f: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """Return f(x) and its Jacobian, (row, output, input), for f of rows of their own.

    One backward pass per output: what it costs over all rows at once is little, and it
    goes through every autograd function, the adjoint's among them.
    """
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        y = f(x)
        if not y.requires_grad:
            return y, x.new_zeros(len(x), y.shape[1], x.shape[1])
        rows = [
            torch.autograd.grad(
                column.sum(),
                x,
                retain_graph=True,
                allow_unused=True,
                materialize_grads=True,
            )[0]
            for column in y.unbind(1)
        ]
    return y.detach(), torch.stack(rows, dim=1)


def _walk(model: Any, inputs: EncoderInputs | None) -> _Walk:
    """Run the encoder of a model, and keep what it passes through."""
    encoder = model
    if isinstance(model, _LatentODEForecaster):
        check_forecaster(model, "the gradient flow")
        encoder = model.network_.encoder
        if inputs is None:
            inputs = encoder_inputs(model)
    if not isinstance(encoder, RNN | ODERNN | ODELSTM):
        raise TypeError(
            "the gradient flow is that of a fitted forecaster of this package or of an "
            f"encoder, RNN, ODERNN or ODELSTM; got a {type(encoder).__name__}. Pass "
            "the encoder of a network (network.encoder), or the forecaster of a "
            "pipeline or search itself."
        )
    if inputs is None:
        raise TypeError(
            f"an encoder needs inputs to run on; got a {type(encoder).__name__} alone. "
            "Pass EncoderInputs(times, inputs, observed), or a fitted forecaster."
        )
    encoder = copy.deepcopy(encoder).to("cpu", torch.float64)
    with torch.no_grad():
        return _run(encoder, *_checked(encoder, inputs))


def _run(encoder: Any, times: Times, inputs: Tensor, observed: Tensor) -> _Walk:
    steps: list[tuple[Tensor, Tensor, Tensor]] = []

    def keep(read: Tensor, dt: Tensor, visits: Tensor) -> State:
        steps.append((read, dt, visits))
        return read.new_zeros(len(read), encoder.hidden_size)

    encoder(times, inputs, observed, keep)  # its own schedule of steps
    ((read, dt, visits),) = steps
    has_cell_state = isinstance(encoder, ODELSTM)

    def cell(x: Tensor, memory: Tensor) -> Tensor:
        if has_cell_state:
            return torch.cat(encoder.cell(x, memory.chunk(2, dim=1)), dim=1)
        result: Tensor = encoder.cell(x, memory)
        return result

    def flow(h: State, dt: Tensor) -> State:
        result: Tensor = encoder.solver.step(encoder.vector_field, h, dt)
        return result

    flows = encoder.vector_field is not None
    size = encoder.hidden_size
    memory = inputs.new_zeros(len(times), size * (2 if has_cell_state else 1))
    before = []
    for k in range(dt.shape[1]):
        before.append(memory)
        if flows and bool((dt[:, k] != 0).any()):
            h = flow(memory[:, :size], dt[:, k : k + 1])
            memory = torch.cat([h, memory[:, size:]], dim=1)
        if bool(visits[:, k].any()):
            visited = visits[:, k : k + 1]
            memory = torch.where(visited, cell(read[:, k], memory), memory)
    return _Walk(
        type(encoder).__name__,
        size,
        has_cell_state,
        dt,
        visits,
        read,
        torch.stack(before, dim=1),
        flow if flows else None,
        cell,
    )


def _checked(encoder: Any, given: EncoderInputs) -> tuple[Times, Tensor, Tensor]:
    """Return inputs in float64 on the CPU, finite wherever they are looked at."""
    times, inputs, observed = given
    if observed is None:
        observed = torch.ones(times.shape, dtype=torch.bool)
    size = encoder.cell.input_size - int(getattr(encoder, "gap_input", False))
    expected = (*times.shape, size)
    if times.ndim != 2 or inputs.shape != expected or observed.shape != times.shape:
        raise ValueError(
            "times and observed must be of shape (batch, time), inputs of shape "
            f"(batch, time, {size}) for this encoder; got {tuple(times.shape)}, "
            f"{tuple(observed.shape)} and {tuple(inputs.shape)}. One series is a batch "
            "of 1: times.unsqueeze(0)."
        )
    if observed.dtype != torch.bool:
        raise TypeError(
            "observed must be of bool, True where a stamp is visited; got "
            f"{observed.dtype}. Pass for example observed > 0."
        )
    if not bool(observed.any()):
        raise ValueError(
            "at least one stamp must be observed; got none, so that there is no visit. "
            "Pass a mask with a True."
        )
    times, inputs = (x.detach().to("cpu", torch.float64) for x in (times, inputs))
    observed = observed.cpu()
    steps = torch.diff(times, dim=1)
    if not bool((steps >= 0).all()):  # NaN included
        series, stamp = torch.nonzero(~(steps >= 0))[0].tolist()
        raise ValueError(
            "times must be increasing, or padded by repeating the last stamp; got "
            f"{times[series, stamp + 1]:g} after {times[series, stamp]:g} at stamp "
            f"{stamp + 1} of series {series}. Sort the stamps first."
        )
    inputs = torch.where(observed.unsqueeze(-1), inputs, 0.0)
    if not bool(torch.isfinite(inputs).all()):
        series, stamp, _ = torch.nonzero(~torch.isfinite(inputs))[0].tolist()
        raise ValueError(
            "inputs must be finite where observed; got "
            f"{inputs[series, stamp].tolist()} at stamp {stamp} of series {series}. "
            "Set observed to False there, or fill in a value and a mask channel."
        )
    return times, inputs, observed


class ClippingReport(NamedTuple):
    """What norm gradient clipping did in a fit.

    Attributes
    ----------
    clip_norm : float, "auto" or None
        The forecaster's parameter: the threshold. That of "auto", a median over the
        first epochs' steps, is not recorded.
    clipped_fraction : float
        Share of the steps whose gradient was clipped, the mean over epochs; 0 without
        clipping.
    median_norm, max_norm : float
        Of the epochs' mean gradient norms before clipping.
    skipped_steps : int
        Steps that were left out because loss or gradient was not finite.
    exploded : DataFrame
        Rows of ``history_`` of the epochs in which gradients exploded.
    """

    clip_norm: float | str | None
    clipped_fraction: float
    median_norm: float
    max_norm: float
    skipped_steps: int
    exploded: pd.DataFrame


def clipping_report(forecaster: Any, factor: float = 10.0) -> ClippingReport:
    """Report on the gradient norms of the last fit or update, and their clipping.

    Paper, section "Norm Gradient Clipping": the threshold "can be tuned by looking at
    the average norm of the gradients during training".

    Parameters
    ----------
    forecaster : LatentODEForecaster, LatentODERNNForecaster or LatentODELSTMForecaster
        Fitted.
    factor : float, default=10.0
        Gradients exploded in an epoch whose mean norm is more than this many times the
        median epoch's, or that skipped a step.

    Returns
    -------
    ClippingReport

    Raises
    ------
    TypeError
        If ``forecaster`` is none of the three.
    NotFittedError
        If it is not fitted.
    ValueError
        If its last fit trained for no epoch, or ``factor`` is not above 1.

    Notes
    -----
    ``history_`` has a row per epoch: a single large step shows by its share in the mean
    over the epoch's steps.
    """
    check_forecaster(forecaster, "clipping_report")
    if not factor > 1:
        raise ValueError(f"factor must be above 1; got {factor!r}.")
    history = forecaster.history_
    if not len(history):
        raise ValueError(
            "clipping_report needs the history of a training; got one without an epoch "
            "(finetune_epochs=0 trains for none). Pass a forecaster that was trained."
        )
    norms = history["grad_norm"]
    exploded = (norms > factor * norms.median()) | (history["skipped_steps"] > 0)
    return ClippingReport(
        forecaster.clip_norm,
        float(history["clipped_fraction"].mean()),
        float(norms.median()),
        float(norms.max()),
        int(history["skipped_steps"].sum()),
        history[exploded],
    )


def check_forecaster(forecaster: Any, asked: str) -> None:
    """Check that something is a fitted forecaster of this package.

    Raises
    ------
    TypeError
        If it is another object.
    NotFittedError
        If it is not fitted.
    """
    if not isinstance(forecaster, _LatentODEForecaster):
        raise TypeError(
            f"{asked} is of a forecaster of this package; got a "
            f"{type(forecaster).__name__}. Pass the fitted forecaster of a pipeline or "
            "search itself."
        )
    if not forecaster.is_fitted:
        raise NotFittedError(
            f"{asked} needs a fitted forecaster; got a {type(forecaster).__name__} "
            "that is not. Call fit(y) first."
        )
