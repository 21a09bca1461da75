"""Recurrent encoders that live in continuous time: RNN, ODE-RNN, ODE-LSTM.

Paper, section "Method", Algorithm 1; ODE-RNN: Rubanova et al. (2019); ODE-LSTM:
Lechner and Hasani (2020).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sklode.data.checks import check_choice
from sklode.nn.shapes import State, States, Times
from sklode.nn.solvers import Solver

MAX_SUBSTEPS = 32
"""A gap is split into at most this many equal solver steps."""


class _Schedule(NamedTuple):
    """What the encoder does, step by step; a gap may take several steps.

    A series' surplus steps at the end have ``dt`` 0 and visit nothing.
    """

    inputs: Tensor  # (batch, step, channel): what is read at the end of each step
    dt: Tensor  # (batch, step): signed length of the flow of each step
    visits: Tensor  # (batch, step), bool: the step ends at an observed stamp
    last_step: Tensor  # (batch, time): the step that ends at each stamp


class _RecurrentEncoder(nn.Module):
    """A recurrent cell at the visits, a flow of h in between.

    Subclasses give the cell and what is carried beside h.
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
        if (vector_field is None) != (solver is None):
            raise ValueError(
                "vector_field and solver must be given together; got "
                f"vector_field={vector_field!r} and solver={solver!r}. Pass both for a "
                "flow between visits, neither for none."
            )
        self.hidden_size = hidden_size
        self.vector_field: Any = vector_field
        self.solver = solver
        self.cell: Any = self._cell(input_size, hidden_size)

    def forward(
        self,
        times: Times,
        inputs: Tensor,
        observed: Tensor,
        run: Callable[[Tensor, Tensor, Tensor], State] | None = None,
    ) -> State:
        r"""Run backward in time and return the state at the first observed stamp.

        .. math::
            h'_i = \mathrm{ODESolve}(f, h_{i+1}, t_{i+1} \to t_i), \qquad
            h_i = \mathrm{Cell}(h'_i, x_i)

        Parameters
        ----------
        times : Tensor of shape (batch, time)
            Increasing, in ``time_unit_``; padded by repeating the last stamp.
        inputs : Tensor of shape (batch, time, channel)
            What the cell reads at each stamp; ignored, but finite, where unobserved.
        observed : Tensor of shape (batch, time), bool
            False: nothing was observed at this stamp, no cell update happens.
        run : callable, optional
            An engine that takes all steps at once: called with what the cell reads
            at the end of each step, the steps' signed lengths, and whether the cell is
            updated, each (batch, step, ...); returns the last h. None: plain torch.

        Returns
        -------
        Tensor of shape (batch, state)
            h_1, after the visit of the earliest observed stamp; zeros for a series
            without any.
        """
        backward = times.flip(1), inputs.flip(1), observed.flip(1)
        schedule = self._schedule(*backward, to_last_visit=True)
        if run is not None:
            return run(schedule.inputs, schedule.dt, schedule.visits)
        (state,) = deque(self._states(schedule), maxlen=1)
        return state

    def states(
        self, times: Times, inputs: Tensor, observed: Tensor, direction: str = "forward"
    ) -> States:
        """Return every h_i of Algorithm 1, in either direction of time.

        Parameters
        ----------
        times, inputs, observed
            As in `forward`.
        direction : {"forward", "backward"}, default="forward"
            The direction of time in which the stamps are visited.

        Returns
        -------
        Tensor of shape (batch, time, state)
            h_i at each stamp, in the order of ``times``: after the cell's update where
            the stamp is observed, as the flow brought it where it is not.
        """
        check_choice("direction", direction, ("forward", "backward"))
        if direction == "backward":
            flipped = self.states(times.flip(1), inputs.flip(1), observed.flip(1))
            return flipped.flip(1)
        schedule = self._schedule(times, inputs, observed)
        states = torch.stack(list(self._states(schedule)), dim=1)
        index = schedule.last_step.unsqueeze(-1).expand(-1, -1, self.hidden_size)
        return torch.gather(states, 1, index)

    def _schedule(
        self,
        times: Times,
        inputs: Tensor,
        observed: Tensor,
        to_last_visit: bool = False,
    ) -> _Schedule:
        """Split each series' gaps, given in processing order, into solver steps.

        Nothing flows before the first visit, and after the last one where asked.
        """
        flows = (observed.cumsum(1) - observed.long()) > 0
        if to_last_visit:
            flows = flows & (observed.flip(1).cumsum(1).flip(1) > 0)
        gaps = torch.diff(times, dim=1, prepend=times[:, :1]) * flows
        longest_step = math.inf if self.solver is None else self.solver.longest_step
        # the tolerance keeps rounding from splitting a gap that equals the longest step
        parts = torch.ceil(gaps.abs() / longest_step - 1e-3)
        parts = parts.clamp(1, MAX_SUBSTEPS).long()
        ends = parts.cumsum(1)
        step = torch.arange(int(ends.max()), device=gaps.device).repeat(len(gaps), 1)
        stamp = torch.searchsorted(ends, step, right=True).clamp(max=gaps.shape[1] - 1)
        dt = torch.gather(gaps / parts, 1, stamp) * (step < ends[:, -1:])
        arrives = step == torch.gather(ends, 1, stamp) - 1
        visits = arrives & torch.gather(observed, 1, stamp)
        stamp = stamp.unsqueeze(-1).expand(-1, -1, inputs.shape[-1])
        return _Schedule(torch.gather(inputs, 1, stamp), dt, visits, ends - 1)

    def _states(self, schedule: _Schedule) -> Iterator[State]:
        """Yield h after each step of the schedule."""
        inputs, dt, visits, _ = schedule
        flows = (dt != 0).any(0).tolist()
        visited = visits.any(0).tolist()
        memory = self._initial(inputs)
        # unbound at once: the backward pass of each single column fills a whole table
        columns = inputs, dt.unsqueeze(-1), visits.unsqueeze(-1)
        steps = zip(*(column.unbind(1) for column in columns), strict=True)
        for k, (x, length, visit) in enumerate(steps):
            if self.solver is not None and flows[k]:
                h = self.solver.step(self.vector_field, memory[0], length)
                memory = (h, *memory[1:])
            if visited[k]:
                memory = tuple(
                    torch.where(visit, new, old)
                    for new, old in zip(self._visit(x, memory), memory, strict=True)
                )
            yield memory[0]

    def _initial(self, inputs: Tensor) -> tuple[State, ...]:
        return (inputs.new_zeros(len(inputs), self.hidden_size),)

    def _visit(self, x: Tensor, memory: tuple[State, ...]) -> tuple[State, ...]:
        """Return the memory after a visit: all that is carried, h first."""
        return (self.cell(x, memory[0]),)


class RNN(_RecurrentEncoder):
    """RNN encoder of the Latent ODE (Chen et al. 2018): no flow between visits.

    Parameters
    ----------
    input_size, hidden_size : int
        Sizes of what is read at each stamp, and of the state h.
    gap_input : bool, default=True
        Whether the cell also reads the time since the stamp that it visited before,
        in ``time_unit_``. Without it this encoder is blind to time.
    """

    def __init__(
        self, input_size: int, hidden_size: int, gap_input: bool = True
    ) -> None:
        super().__init__(input_size + int(gap_input), hidden_size)
        self.gap_input = gap_input

    def _schedule(self, *given: Any, **how: Any) -> _Schedule:
        schedule = super()._schedule(*given, **how)
        if not self.gap_input:
            return schedule
        # time since the last visit: the gaps of skipped stamps add up
        elapsed = schedule.dt.abs().cumsum(1)
        at_visit = torch.where(schedule.visits, elapsed, torch.zeros_like(elapsed))
        before = torch.cat([torch.zeros_like(elapsed[:, :1]), at_visit[:, :-1]], dim=1)
        gap = elapsed - before.cummax(1).values
        inputs = torch.cat([schedule.inputs, gap.unsqueeze(-1)], dim=-1)
        return schedule._replace(inputs=inputs)


class ODERNN(_RecurrentEncoder):
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
        Needed with ``vector_field``.
    """


class ODELSTM(_RecurrentEncoder):
    r"""ODE-LSTM (paper, Algorithm 1): h flows between visits, the cell state does not.

    .. math::
        h'_i = \mathrm{ODESolve}(f, h_{i+1}, t_{i+1} \to t_i), \qquad
        (C_i, h_i) = \mathrm{LSTMCell}(C_{i+1}, h'_i, x_i)

    Parameters
    ----------
    input_size, hidden_size, vector_field, solver
        As in `ODERNN`.

    Notes
    -----
    The authors' code uses one weight matrix for all four gates and a sigmoid
    candidate; here, as in the paper's equation, each gate has its own weights and the
    candidate is a tanh (``test_gates_have_separate_weights``).
    """

    _cell = nn.LSTMCell

    def _initial(self, inputs: Tensor) -> tuple[State, ...]:
        zeros = inputs.new_zeros(len(inputs), self.hidden_size)
        return (zeros, zeros)

    def _visit(self, x: Tensor, memory: tuple[State, ...]) -> tuple[State, ...]:
        h, c = self.cell(x, memory)
        return h, c
