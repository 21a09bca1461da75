"""Recurrent encoders that live in continuous time: RNN, ODE-RNN, ODE-LSTM.

Paper, section "Method", Algorithm 1; ODE-RNN: Rubanova et al. (2019); ODE-LSTM:
Lechner and Hasani (2020).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple, TypeAlias

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

    flows: ClassVar[bool] = True  # between visits
    _cell: ClassVar[type[nn.RNNCell | nn.LSTMCell | nn.GRUCell]] = nn.RNNCell

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        vector_field: nn.Module | None = None,
        solver: Solver | None = None,
    ) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.vector_field = vector_field
        self.solver = Solver() if solver is None else solver
        # or, put in its place, any module that is called alike
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
        steps = self.steps(
            times.flip(1),
            inputs=inputs.flip(1),
            observed=observed.flip(1),
            to_last_visit=True,
        )
        # the engine has no gradient by its inputs
        field, size = self.vector_field, self.hidden_size
        if (
            not inputs.requires_grad
            and self.compiles(inputs)
            and steps.inputs.shape[-1] == self.cell.input_size
            and self.solver.fits(field, size, size, steps.inputs, steps.dt)
        ):
            return encode(
                steps.inputs,
                dt=steps.dt,
                visits=steps.visits,
                cell=self.cell,
                field=[] if field is None else list(field.parameters()),
                method=self.solver.method,
            )
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

        Nothing flows before the first visit or, with ``to_last_visit``
        after the last one.
        """
        n_series, n_stamps = times.shape
        # some stamp before this one is observed: a count of those without its own
        flows = (observed.cumsum(1) - observed.long()) > 0
        if to_last_visit:
            # and so is this one, or some after it: a count from the end
            flows = flows & (observed.flip(1).cumsum(1).flip(1) > 0)
        gaps = torch.diff(times, dim=1, prepend=times[:, :1]) * flows
        longest = math.inf if self.vector_field is None else self.solver.longest_step
        # rounding must not split a gap that equals the longest step
        parts = torch.ceil(gaps.abs() / longest - 1e-3)
        parts = parts.clamp(1, MAX_SUBSTEPS).long()
        # The steps of each stamp stand one after another and end before ``ends``. The
        # stamp of a step is thus the number of stamps whose steps are over by then.
        ends = parts.cumsum(1)
        step = torch.arange(int(ends.max()), device=gaps.device)
        step = step.repeat(n_series, 1)
        stamp = torch.searchsorted(ends, step, right=True)
        # surplus steps, of series with fewer, are the last stamp's, of no length
        stamp = stamp.clamp(max=n_stamps - 1)
        dt = torch.gather(gaps / parts, 1, stamp) * (step < ends[:, -1:])
        arrives = step == torch.gather(ends, 1, stamp) - 1
        of_inputs = stamp.unsqueeze(-1).expand(-1, -1, inputs.shape[-1])
        return Steps(
            inputs=torch.gather(inputs, 1, of_inputs),
            dt=dt,
            visits=arrives & torch.gather(observed, 1, stamp),
            last_step=ends - 1,
        )

    def _states(self, steps: Steps) -> Iterator[Tensor]:
        """Yield h after each step: Algorithm 1."""
        flows = (steps.dt != 0).any(0).tolist()
        visited = steps.visits.any(0).tolist()
        # h, and C beside it
        is_lstm = self._cell is nn.LSTMCell
        h = c = steps.inputs.new_zeros(len(steps.inputs), self.hidden_size)
        # unbound at once: single columns are slow backward
        inputs = steps.inputs.unbind(1)
        lengths = steps.dt.unsqueeze(-1).unbind(1)
        visits = steps.visits.unsqueeze(-1).unbind(1)
        for k, x in enumerate(inputs):
            if self.vector_field is not None and flows[k]:
                h = self.solver.step(self.vector_field, h, lengths[k])
            # series that have no visit here keep what they had
            if visited[k] and is_lstm:
                new_h, new_c = self.cell(x, (h, c))
                h = torch.where(visits[k], new_h, h)
                c = torch.where(visits[k], new_c, c)
            elif visited[k]:
                h = torch.where(visits[k], self.cell(x, h), h)
            yield h

    def compiles(self, example: Tensor) -> bool:
        """Return whether the compiled engine does this, for such tensors."""
        # a subclass, or a cell put in place of the own one, may do something else
        is_known = type(self) in (RNN, ODERNN, ODELSTM)
        has_own_cell = type(self.cell) is self._cell
        return (
            is_known
            and has_own_cell
            and self.solver.compiles(self.vector_field, example)
        )


class RNN(ODERNN):
    """RNN encoder of the Latent ODE (Chen et al. 2018): no flow between visits.

    The cell also reads the time since its last visit.
    """

    flows = False

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size + 1, hidden_size)

    def steps(
        self,
        times: Tensor,
        inputs: Tensor,
        observed: Tensor,
        to_last_visit: bool = False,
    ) -> Steps:
        """Return the encoder's steps, one a stamp, with gaps in the inputs."""
        steps = super().steps(
            times, inputs=inputs, observed=observed, to_last_visit=to_last_visit
        )
        # Since the last visit, as the gaps of skipped stamps add up: time elapsed
        # never falls, so that its largest value at a visit, of the steps before this
        # one, is that of the last visit.
        elapsed = steps.dt.abs().cumsum(1)
        at_visits = functional.pad(elapsed * steps.visits, (1, -1))
        gap = elapsed - at_visits.cummax(1).values
        with_gaps = torch.cat([steps.inputs, gap.unsqueeze(-1)], dim=-1)
        return steps._replace(inputs=with_gaps)


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


class CustomEncoder(nn.Module):
    """An encoder that is a module of the user's own, run as torch runs it.

    Parameters
    ----------
    kind : type of nn.Module
        Made as ``kind(input_size, hidden_size)``; its ``forward`` has the arguments of
        `ODERNN.forward` and returns h, (batch, hidden_size).
    input_size, hidden_size : int
    """

    _is_tried = False  # whether it has given finite numbers once

    def __init__(
        self, kind: type[nn.Module], input_size: int, hidden_size: int
    ) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        try:
            self.module = kind(input_size, hidden_size)
        except TypeError as error:
            raise ValueError(
                "an encoder must be made of two sizes, those of its inputs and of h; "
                f"got {kind.__name__}({input_size}, {hidden_size}): {error}. Give the "
                "rest in a subclass."
            ) from error

    def forward(self, times: Tensor, inputs: Tensor, observed: Tensor) -> Tensor:
        """Return h of windows, (batch, state), see `ODERNN.forward`."""
        h: Tensor = self.module(times, inputs, observed)
        expected = len(times), self.hidden_size
        shape = tuple(h.shape) if isinstance(h, Tensor) else type(h).__name__
        if shape != expected:
            raise ValueError(
                "an encoder must return h, a tensor of shape (batch, hidden_size), "
                f"{expected}; got {shape} from {type(self.module).__name__}. Return "
                "the last state alone, of the size that it was made with."
            )
        # later ones are what a training that diverges is known by, and undone
        if not self._is_tried:
            _check_finite(h, type(self.module).__name__)
            self._is_tried = True
        return h

    def compiles(self, example: Tensor) -> bool:
        """Return that the compiled engine does not do this."""
        return False


def _check_finite(h: Tensor, name: str) -> None:
    """Check what an encoder of that name returns at first."""
    bad = int((~torch.isfinite(h)).any(dim=1).sum())
    if bad:
        raise ValueError(
            f"an encoder must return finite numbers; got NaN or infinity for {bad} of "
            f"{len(h)} windows from {name}, before it has learned anything. Look there "
            "for a division by zero, or a root or logarithm of what is not positive."
        )


def advice_on(network: nn.Module) -> str:
    """Return what to look at, in an encoder of the user's own, where NaN came out."""
    found = (one for one in network.modules() if isinstance(one, CustomEncoder))
    names = [type(one.module).__name__ for one in found]
    return f" See that {names[0]}, the encoder, returns no NaN." if names else ""


Encoder: TypeAlias = ODERNN | CustomEncoder

ENCODERS: dict[str, type[ODERNN]] = {
    "rnn": RNN,
    "ode-rnn": ODERNN,
    "ode-lstm": ODELSTM,
}
"""By the names that forecasters have for them, and their files."""


def check_encoder(encoder: object) -> None:
    """Check that an encoder is a name, or a class of modules."""
    if isinstance(encoder, str) and encoder in ENCODERS:
        return
    if not (isinstance(encoder, type) and issubclass(encoder, nn.Module)):
        raise ValueError(
            f"encoder must be one of {', '.join(map(repr, ENCODERS))}, a class of "
            f"torch.nn.Module, or None; got {encoder!r}. Its forward takes times, "
            "inputs and observed, and returns (batch, hidden_size)."
        )
    signature = inspect.signature(encoder.forward)
    try:
        signature.bind(None, None, None, None)  # itself, and three tensors
    except TypeError as error:
        name = encoder.__name__
        raise ValueError(
            "an encoder's forward must take three tensors, forward(self, times, "
            f"inputs, observed); got {name}.forward{signature}. Write class "
            f"Own({name}) with such a forward, which returns h, (batch, hidden_size), "
            "and pass encoder=Own. inputs are (batch, row, input), times and observed "
            "(batch, row)."
        ) from error


def build_encoder(
    settings: NetworkSettings, input_size: int, solver: Solver
) -> Encoder:
    """Return the encoder that a forecaster's ``settings`` name, untrained."""
    size = settings.hidden_size
    if not isinstance(settings.encoder, str):
        return CustomEncoder(settings.encoder, input_size, size)
    kind = ENCODERS[settings.encoder]
    if not kind.flows:
        return kind(input_size, size)
    # the field is made before the cell: random weights are drawn in this order
    field = VectorField(size, settings.field_width, settings.field_depth)
    return kind(input_size, hidden_size=size, vector_field=field, solver=solver)
