"""The solver: states carried along a vector field, each series at its own pace.

Time is rescaled within a step, dz/ds = dt * f(z) for s in [0, 1], so that every
series of a batch takes its own signed step dt and nobody ever solves over the union
of all stamps. A step dt = 0 leaves a state exactly where it is.

This is the only module that imports torchdiffeq.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torchdiffeq
from torch import Tensor, nn

from sklode.data.checks import check_choice
from sklode.data.errors import SolverError
from sklode.engine.tableaus import TABLEAUS
from sklode.nn.shapes import State, States, Steps

METHODS = (*TABLEAUS, "dopri5")

FOLLOWED = {"rk4": math.pi / 2, "midpoint": 0.5, "euler": 0.1, "dopri5": math.pi / 2}
"""Radians per step that a method follows without changing the amplitude much."""

_MOST_STEPS = 32
"""Of Dormand and Prince's method, in one of our steps, and in each of its time units.

Fields that need more are too stiff for it, and would keep a fit busy for hours.
"""


class Solver:
    """Solve dz/dt = f(z, u), with steps of a fixed length or adaptive ones.

    Parameters
    ----------
    method : {"rk4", "midpoint", "euler", "dopri5"}, default="rk4"
        "rk4" is the 3/8 rule. "dopri5" is Dormand and Prince's of order 5 with a
        controlled error, by torchdiffeq. The batch shares its step control: a series is
        solved alike alone and among others to the tolerance, not to rounding.
    step_size : float, default=1.0
        Longest fixed step, in ``time_unit_``: the encoder splits longer gaps; the
        decoder steps on a grid of this spacing.
    rtol : float, default=1e-3
        Relative tolerance of a step's error, of "dopri5"; the absolute one is a tenth.
    """

    def __init__(
        self,
        method: str = "rk4",
        step_size: float = 1.0,
        rtol: float = 1e-3,
    ) -> None:
        check_choice("method", method, METHODS)
        self.method = method
        self.step_size = step_size
        self.rtol = rtol

    @property
    def is_adaptive(self) -> bool:
        """Whether the method chooses its own steps."""
        return self.method == "dopri5"

    @property
    def longest_step(self) -> float:
        """Length above which a gap must be split before `step`."""
        return math.inf if self.is_adaptive else self.step_size

    @property
    def grid_spacing(self) -> float:
        """Spacing of the decoder's grid: the interpolation must not spoil ``rtol``.

        Cubic Hermite interpolation errs by spacing**4 / 384 times the fourth
        derivative, which is of order one in ``time_unit_``.
        """
        finest = (384 * self.rtol) ** 0.25 if self.is_adaptive else math.inf
        return min(self.step_size, finest)

    def step(self, field: nn.Module, state: State, dt: Tensor) -> State:
        """Return where one step of `trajectory` ends; ``dt`` is (batch, 1)."""
        return self.trajectory(field, state, dt)[:, -1]

    def trajectory(
        self, field: nn.Module, state: State, dt: Steps, control: Tensor | None = None
    ) -> States:
        """Return the states (batch, step + 1, state) from ``state`` on, step by step.

        Parameters
        ----------
        field : nn.Module
            Called as ``field(state, control)``.
        state : Tensor of shape (batch, state)
            Where the first step starts.
        dt : Tensor of shape (batch, step)
            Signed lengths of the steps, in ``time_unit_``.
        control : Tensor of shape (batch, step, control), optional
            Each held over its step.

        Raises
        ------
        sklode.SolverError
            If the step control fails.
        """
        if not dt.shape[1]:
            return state.unsqueeze(1)
        if not self.is_adaptive:
            held = [None] * dt.shape[1] if control is None else control.unbind(1)
            states = [state]
            for length, u in zip(dt.unsqueeze(-1).unbind(1), held, strict=True):
                states.append(self._runge_kutta(field, states[-1], length, u))
            return torch.stack(states, dim=1)
        rhs = _Piecewise(field, dt, control)
        s = torch.arange(dt.shape[1] + 1, dtype=state.dtype, device=state.device)
        try:
            solution: States = torchdiffeq.odeint(
                rhs,
                state,
                s,
                method=self.method,
                rtol=self.rtol,
                atol=self.rtol / 10,
                options=self._options(dt, control),
            )
        except AssertionError as error:  # torchdiffeq's only word on a failed step
            raise self._failure(error) from error
        return solution.transpose(0, 1)

    def _runge_kutta(
        self, field: nn.Module, state: State, dt: Tensor, control: Tensor | None
    ) -> State:
        """Take one explicit step."""
        tableau = TABLEAUS[self.method]
        slopes: list[Tensor] = []
        for place in tableau.a:
            stage = state
            for weight, slope in zip(place, slopes, strict=True):
                stage = torch.add(stage, slope, alpha=weight)
            slopes.append(dt * field(stage, control))
        for weight, slope in zip(tableau.b, slopes, strict=True):
            state = torch.add(state, slope, alpha=weight)
        return state

    def _options(self, dt: Steps, control: Tensor | None) -> dict[str, Any]:
        """Return torchdiffeq's options."""
        # the derivative jumps where a series comes to rest or a control changes
        jumps = (dt[:, 1:] != dt[:, :-1]).any(0)
        if control is not None:
            jumps |= (control[:, 1:] != control[:, :-1]).any(-1).any(0)
        jump_t = (torch.nonzero(jumps).squeeze(-1) + 1).to(dt.dtype)
        # an error of order 5: each digit more takes 1.6 times as many steps
        digits = max(1e-3 / self.rtol, 1.0) ** 0.2
        most = math.ceil(_MOST_STEPS * digits * (1 + float(dt.abs().max())))
        return {"max_num_steps": most} | ({"jump_t": jump_t} if len(jump_t) else {})

    def _failure(self, error: AssertionError) -> SolverError:
        """Return what torchdiffeq's error means, with a remedy."""
        why = "the length of its steps shrank to nothing, or the state overflowed"
        if "max_num_steps" in str(error):
            why = "it takes too many steps, so that the equation is stiff"
        return SolverError(
            f"method={self.method!r} could not reach its tolerance: {why}. Clip the "
            'gradients (clip_norm), lower lr, or use the fixed-step method="rk4".'
        )


class _Piecewise(nn.Module):
    """dz/ds = dt_k * f(z, u_k) for s in [k, k + 1): all steps on one axis s."""

    def __init__(self, field: nn.Module, dt: Steps, control: Tensor | None) -> None:
        super().__init__()
        self.field = field
        self.dt = dt
        self.control = control

    def forward(self, s: Tensor, state: State) -> State:
        if not bool(torch.isfinite(s)):
            raise AssertionError("the state overflowed")  # as torchdiffeq says it
        k = min(max(int(s), 0), self.dt.shape[1] - 1)
        control = None if self.control is None else self.control[:, k]
        return self.dt[:, k : k + 1] * self.field(state, control)
