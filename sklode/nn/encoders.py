"""Recurrent encoders that live in continuous time: RNN, ODE-RNN, ODE-LSTM.

Paper, section "Method", Algorithm 1; ODE-RNN: Rubanova et al. (2019); ODE-LSTM:
Lechner and Hasani (2020).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from sklode.engine.autograd import encode
from sklode.nn.settings import NetworkSettings
from sklode.nn.solvers import Solver
from sklode.nn.vector_fields import VectorField

MAX_SUBSTEPS = 32  # that a gap is split into, at most


class Steps(NamedTuple):
    """What the encoder does; surplus steps have ``dt`` 0 and no visit."""

    inputs: Tensor  # (batch, step, channel): read at each step's end
    dt: Tensor  # (batch, step): signed length of the flow
    visits: Tensor  # (batch, step), bool: it ends at an observed stamp
    last_step: Tensor  # (batch, time): the step that ends at each stamp


class ODERNN(nn.Module):
    r"""ODE-RNN (Rubanova et al. 2019): h flows between visits.

    .. math::
        h'_i = \mathrm{ODESolve}(f, h_{i+1}, t_{i+1} \to t_i), \qquad
        h_i = \mathrm{RNNCell}(h'_i, x_i)

    Parameters
    ----------
    input_size, hidden_size : int
        Sizes of what is read at each stamp, and of the state h.
    vector_field : nn.Module, optional
        f, from states to their time derivatives. Without one nothing flows.
    solver : Solver, optional
        How h flows; the default of `Solver`.
    """

    _cell: Any = nn.RNNCell

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        vector_field: nn.Module | None = None,
        solver: Solver | None = None,
    ) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.vector_field: Any = vector_field
        self.solver = Solver() if solver is None else solver
        self.cell: Any = self._cell(input_size, hidden_size)

    def forward(self, times: Tensor, inputs: Tensor, observed: Tensor) -> Tensor:
        """Run backward in time; return h after the earliest observed stamp's visit.

        That is h_1, (batch, state): zeros where no stamp was observed.

        Parameters
        ----------
        times : Tensor of shape (batch, time)
            Increasing, in ``time_unit_``; padded by repeating the last stamp.
        inputs : Tensor of shape (batch, time, channel)
            What the cell reads at each stamp; finite, also where unobserved.
        observed : Tensor of shape (batch, time), bool
            False: nothing was observed at this stamp, no cell update happens.
        """
        backward = times.flip(1), inputs.flip(1), observed.flip(1)
        steps = self.steps(*backward, to_last_visit=True)
        # the engine has no gradient by its inputs
        if not inputs.requires_grad and self.compiles(inputs):
            field = self.vector_field
            layers = [] if field is None else list(field.parameters())
            return encode(*steps[:3], self.cell, layers, self.solver.method)
        *_, h = self._states(steps)
        return h

    def states(self, times: Tensor, inputs: Tensor, observed: Tensor) -> Tensor:
        """Return every h_i of Algorithm 1, (batch, time, state).

        Arguments are as in `forward`, but the stamps are visited as they come. h_i is
        that after the cell's update or, at a stamp that is not observed, the flow.
        """
        steps = self.steps(times, inputs, observed)
        states = torch.stack(list(self._states(steps)), dim=1)
        index = steps.last_step.unsqueeze(-1).expand(-1, -1, self.hidden_size)
        return torch.gather(states, 1, index)

    def steps(
        self,
        times: Tensor,
        inputs: Tensor,
        observed: Tensor,
        to_last_visit: bool = False,
    ) -> Steps:
        """Split each series' gaps, given in processing order, into solver steps.

        Nothing flows before the first visit, and after the last one where asked.
        """
        flows = (observed.cumsum(1) - observed.long()) > 0
        if to_last_visit:
            flows = flows & (observed.flip(1).cumsum(1).flip(1) > 0)
        gaps = torch.diff(times, dim=1, prepend=times[:, :1]) * flows
        longest = math.inf if self.vector_field is None else self.solver.longest_step
        # rounding must not split a gap that equals the longest step
        parts = torch.ceil(gaps.abs() / longest - 1e-3).clamp(1, MAX_SUBSTEPS).long()
        ends = parts.cumsum(1)
        step = torch.arange(int(ends.max()), device=gaps.device).repeat(len(gaps), 1)
        stamp = torch.searchsorted(ends, step, right=True).clamp(max=gaps.shape[1] - 1)
        dt = torch.gather(gaps / parts, 1, stamp) * (step < ends[:, -1:])
        arrives = step == torch.gather(ends, 1, stamp) - 1
        visits = arrives & torch.gather(observed, 1, stamp)
        stamp = stamp.unsqueeze(-1).expand(-1, -1, inputs.shape[-1])
        return Steps(torch.gather(inputs, 1, stamp), dt, visits, ends - 1)

    def _states(self, steps: Steps) -> Iterator[Tensor]:
        """Yield h after each step: Algorithm 1."""
        inputs, dt, visits, _ = steps
        flows = (dt != 0).any(0).tolist()
        visited = visits.any(0).tolist()
        is_lstm = isinstance(self, ODELSTM)  # which carries C beside h
        memory = (inputs.new_zeros(len(inputs), self.hidden_size),) * (1 + is_lstm)
        # unbound at once: single columns are slow backward
        columns = inputs, dt.unsqueeze(-1), visits.unsqueeze(-1)
        each = zip(*(column.unbind(1) for column in columns), strict=True)
        for k, (x, length, visit) in enumerate(each):
            if self.vector_field is not None and flows[k]:
                h = self.solver.step(self.vector_field, memory[0], length)
                memory = (h, *memory[1:])
            if visited[k]:
                found = self.cell(x, memory if is_lstm else memory[0])
                pairs = zip(found if is_lstm else (found,), memory, strict=True)
                memory = tuple(torch.where(visit, new, old) for new, old in pairs)
            yield memory[0]

    def compiles(self, example: Tensor) -> bool:
        """Return whether the compiled engine does this, for such tensors."""
        known = type(self) in (RNN, ODERNN, ODELSTM) and type(self.cell) is self._cell
        return known and self.solver.compiles(self.vector_field, example)


class RNN(ODERNN):
    """RNN encoder of the Latent ODE (Chen et al. 2018): no flow between visits.

    The cell also reads the time since its last visit.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size + 1, hidden_size)

    def steps(self, *given: Any, **how: Any) -> Steps:
        """Return the encoder's steps, one a stamp, with gaps in the inputs."""
        steps = super().steps(*given, **how)
        # since the last visit: the gaps of skipped stamps add up
        elapsed = steps.dt.abs().cumsum(1)
        before = functional.pad(elapsed * steps.visits, (1, -1)).cummax(1).values
        gap = elapsed - before
        inputs = torch.cat([steps.inputs, gap.unsqueeze(-1)], dim=-1)
        return steps._replace(inputs=inputs)


class ODELSTM(ODERNN):
    r"""ODE-LSTM (paper, Algorithm 1): h flows between visits, the cell state does not.

    .. math::
        h'_i = \mathrm{ODESolve}(f, h_{i+1}, t_{i+1} \to t_i), \qquad
        (C_i, h_i) = \mathrm{LSTMCell}(C_{i+1}, h'_i, x_i)

    Parameters are those of `ODERNN`. The authors' code has one weight matrix for all
    gates and a sigmoid candidate; here, as in the paper, each gate has its own and the
    candidate is a tanh.
    """

    _cell = nn.LSTMCell


def build_encoder(
    settings: NetworkSettings, input_size: int, solver: Solver
) -> RNN | ODERNN:
    """Return the encoder that a forecaster's ``settings`` name, untrained."""
    if settings.encoder == "rnn":
        return RNN(input_size, settings.hidden_size)
    kind = {"ode-rnn": ODERNN, "ode-lstm": ODELSTM}[settings.encoder]
    field = VectorField(
        settings.hidden_size, settings.field_width, settings.field_depth
    )
    return kind(input_size, settings.hidden_size, field, solver)
