"""ODESolve: states carried along a vector field, each series at its own pace.

Within a step dz/ds = dt * f(z) for s in [0, 1]: every series of a batch takes its own
signed step dt, which leaves a state where it is if it is 0.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import torch
import torchdiffeq
from torch import Tensor, nn

from sklode.data.checks import check_choice
from sklode.data.errors import SolverError
from sklode.engine.tableaus import TABLEAUS
from sklode.nn.vector_fields import VectorField

_ADAPTIVE = "dopri5", "dopri5_adjoint"
_FOLLOWED = math.pi / 2  # by these, see `Tableau`

# tolerances of a step's error, where it is controlled
_RTOL, _ATOL = 1e-3, 1e-4

# Of Dormand and Prince's method, in one of our steps, and in each of its
# time units: fields that need more are stiff, and would take hours.
_MOST_STEPS = 32


def methods() -> tuple[str, ...]:
    """Return the names of all methods."""
    return (*TABLEAUS, *_ADAPTIVE)


class Solver:
    """Solve dz/dt = f(z, u), with steps of a fixed length or adaptive ones.

    Parameters
    ----------
    method : {"rk4", "midpoint", "euler", "dopri5", "dopri5_adjoint"}, default="rk4"
        "rk4" is the 3/8 rule. "dopri5" is Dormand and Prince's of order 5 with a
        controlled error, by torchdiffeq. The batch shares its step control: series
        are solved alike alone and among others to the tolerance, not to rounding.
        "dopri5_adjoint" solves the same, and a second equation backward in time for
        the gradients (the paper's section on Neural ODEs; Chen et al. 2018): memory
        does not grow with the steps that it takes, and gradients are right to the
        tolerance.
    step_size : float, default=1.0
        Longest fixed step, in ``time_unit_``: the encoder splits longer gaps; the
        decoder steps on a grid of this spacing.
    """

    engine = "fused"
    """The compiled one, where it `compiles`; "eager": plain torch."""

    def __init__(self, method: str = "rk4", step_size: float = 1.0) -> None:
        check_choice("method", method, methods())
        self.method, self.step_size = method, step_size
        self._tableau = TABLEAUS.get(method)
        self.is_adaptive = self._tableau is None
        # cubic Hermite interpolation errs by spacing**4 / 384 times the fourth
        # derivative, of order one in time_unit_: no more than the tolerance
        finest = (384 * _RTOL) ** 0.25 if self.is_adaptive else math.inf
        self.grid_spacing = min(step_size, finest)
        self.longest_step = math.inf if self.is_adaptive else step_size

    @property
    def shortest_period(self) -> float:
        """Period of the fastest rotation that its steps follow, in ``time_unit_``."""
        followed = _FOLLOWED if self._tableau is None else self._tableau.followed
        return 2 * math.pi * self.step_size / followed

    def compiles(self, field: object, example: Tensor) -> bool:
        """Return whether the compiled engine does this, for such tensors."""
        # subclasses, and fields of others, may do something else
        is_field = type(field) is VectorField and len(field.hidden) <= 2
        is_known = type(self) is Solver and (is_field or field is None)
        is_chosen = self.engine == "fused" and not self.is_adaptive
        is_double = example.dtype == torch.float64
        has_type = is_double or example.dtype == torch.float32
        return is_known and is_chosen and has_type and example.device.type == "cpu"

    @staticmethod
    def fits(field: Any, n_inputs: int, size: int, *tensors: Tensor) -> bool:
        """Return whether a field of ``n_inputs`` and ``size`` states fits tensors.

        These are of one type, and of one length where they have a batch. What does not
        fit must not reach the engine, which checks nothing: torch says what is wrong.
        """
        types = {one.dtype for one in tensors}
        if field is not None:
            types |= {one.dtype for one in field.parameters()}
            reads, moves = field.hidden[0].in_features, field.output.out_features
            if (reads, moves) != (n_inputs, size):
                return False
        return len(types) == 1 and len({len(one) for one in tensors}) == 1

    def step(self, field: nn.Module, state: Tensor, dt: Tensor) -> Tensor:
        """Return where one step of `trajectory` ends; ``dt`` is (batch, 1)."""
        return self.trajectory(field, state, dt)[:, -1]

    def trajectory(
        self, field: nn.Module, state: Tensor, dt: Tensor, control: Tensor | None = None
    ) -> Tensor:
        """Return the states (batch, step + 1, state) from ``state`` on.

        Steps ``dt``, (batch, step), are signed, in ``time_unit_``; a ``control``,
        (batch, step, control), is held over each. The field is called as
        ``field(state, control)``.

        Raises
        ------
        sklode.SolverError
            If the step control of an adaptive method fails.
        """
        if not dt.shape[1]:
            return state.unsqueeze(1)
        if self._tableau is None:
            return self._dormand_prince(field, state=state, dt=dt, control=control)
        # an explicit Runge-Kutta method: slope i is that of a stage that adds a[i][j]
        # of each slope j before it; the step adds b[i] of all
        held = [None] * dt.shape[1] if control is None else control.unbind(1)
        states = [state]
        for length, u in zip(dt.unsqueeze(-1).unbind(1), held, strict=True):
            slopes: list[Tensor] = []
            for weights in self._tableau.a:
                stage = _sum(states[-1], weights, slopes)
                slopes.append(length * field(stage, u))
            states.append(_sum(states[-1], self._tableau.b, slopes))
        return torch.stack(states, dim=1)

    def _dormand_prince(
        self, field: nn.Module, state: Tensor, dt: Tensor, control: Tensor | None
    ) -> Tensor:
        """Solve dz/ds = dt_k * f(z, u_k) for s in [k, k + 1), of every k in turn.

        Steps without a change of ``dt`` and ``u`` are solved at once: the derivative
        does not jump there.
        """
        odeint: Any = torchdiffeq.odeint
        if self.method == "dopri5_adjoint":
            # torchdiffeq looks for weights in a module, but is given a function
            weights = tuple(p for p in field.parameters() if p.requires_grad)
            odeint = functools.partial(
                torchdiffeq.odeint_adjoint, adjoint_params=weights
            )
        # steps from which on some series has another length or control
        jumps = (dt[:, 1:] != dt[:, :-1]).any(0)
        if control is not None:
            jumps |= (control[:, 1:] != control[:, :-1]).any(-1).any(0)
        starts = torch.nonzero(jumps).squeeze(-1) + 1
        bounds = [0, *starts.tolist(), dt.shape[1]]
        most = math.ceil(_MOST_STEPS * (1 + float(dt.abs().max())))
        states = [state.unsqueeze(0)]
        for first, end in itertools.pairwise(bounds):
            held = None if control is None else control[:, first]
            length = dt[:, first : first + 1]
            slope = functools.partial(_slope, field, length, held)
            s = torch.arange(end - first + 1, dtype=state.dtype, device=state.device)
            try:
                solution = odeint(
                    slope,
                    y0=states[-1][-1],
                    t=s,
                    rtol=_RTOL,
                    atol=_ATOL,
                    method="dopri5",
                    options={"max_num_steps": most},
                )
            # torchdiffeq's only word on a failed step
            except AssertionError as error:
                why = "its steps shrank to nothing, or the state overflowed"
                if "max_num_steps" in str(error):
                    why = "it takes too many steps, so that the equation is stiff"
                raise SolverError(
                    f"method={self.method!r} could not reach its tolerance: {why}. "
                    "Clip the gradients (clip_norm), lower lr, or use the fixed-step "
                    'method="rk4".'
                ) from error
            # the first is the last of the part before
            states.append(solution[1:])
        return torch.cat(states).transpose(0, 1)


def _slope(
    field: nn.Module, dt: Tensor, control: Tensor | None, s: Tensor, state: Tensor
) -> Tensor:
    """Return dz/ds, the same at every s."""
    slope: Tensor = dt * field(state, control)
    return slope


def _sum(state: Tensor, weights: tuple[float, ...], slopes: list[Tensor]) -> Tensor:
    for weight, slope in zip(weights, slopes, strict=True):
        state = torch.add(state, slope, alpha=weight)
    return state
