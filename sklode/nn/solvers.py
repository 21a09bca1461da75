"""Solvers: states carried along a vector field, each series at its own pace.

Time is rescaled within a step, dz/ds = dt * f(z) for s in [0, 1], so that every
series of a batch takes its own signed step dt and nobody ever solves over the union
of all stamps. A step dt = 0 leaves a state exactly where it is.

This is the only module that imports torchdiffeq.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import torch
import torchdiffeq
from torch import Tensor, nn

from sklode.data.checks import check_choice
from sklode.data.errors import SolverError
from sklode.nn.shapes import State, States, Steps
from sklode.nn.vector_fields import ACTIVATIONS, Affine, VectorField

__all__ = ["FIXED_STEP_METHODS", "AdaptiveSolver", "FixedStepSolver", "Solver"]


Map: TypeAlias = Callable[[Tensor], Tensor]
Step: TypeAlias = Callable[[State, Tensor, Tensor | None], State]

# A method is given the field in two parts, f = slope(values(y)) with an affine slope,
# and returns the weighted mean of the stages' values: the step is dt * slope(mean).


def _euler(values: Map, slope: Map, y: Tensor, dt: Tensor) -> Tensor:
    """Euler's method, order 1: the cheapest; for rough searches."""
    return values(y)


def _midpoint(values: Map, slope: Map, y: Tensor, dt: Tensor) -> Tensor:
    """Explicit midpoint rule, order 2: half the price of rk4."""
    return values(torch.addcmul(y, dt, slope(values(y)), value=0.5))


def _rk4(values: Map, slope: Map, y: Tensor, dt: Tensor) -> Tensor:
    """Kutta's 3/8 rule, order 4: the paper's fixed-step method, the default.

    References: W. Kutta, Z. Math. Phys. 46 (1901) 435; Hairer, Norsett, Wanner,
    Solving Ordinary Differential Equations I, table II.1.2.
    """
    third = dt / 3
    v1 = values(y)
    k1 = slope(v1)
    v2 = values(torch.addcmul(y, third, k1))
    k2 = slope(v2)
    v3 = values(torch.addcmul(torch.addcmul(y, dt, k2), third, k1, value=-1))
    v4 = values(torch.addcmul(y, dt, k1 - k2 + slope(v3)))
    return (0.125 * (v1 + v4)).add(v2 + v3, alpha=0.375)


FIXED_STEP_METHODS: dict[str, Callable[[Map, Map, Tensor, Tensor], Tensor]] = {
    "euler": _euler,
    "midpoint": _midpoint,
    "rk4": _rk4,
}


class _Flow:
    r"""Steps along a `VectorField` whose weights are laid out once for all of them.

    With v(y) the activations of the last hidden layer, the field is

    .. math:: f(h) = W_o v(y) + b_o, \qquad y = W_1 h + b_1.

    Runge-Kutta steps commute with affine maps, so that the stages may stay in the space
    of y: dy/dt = M v(y) + c, with M = W_1 W_o and c = W_1 b_o. That is one product a
    stage in place of two, of (width, width).
    """

    def __init__(self, field: VectorField, method: str, n_series: int) -> None:
        self.first, *self.inner, self.out = (
            Affine.of(layer.weight, layer.bias, n_series)
            for layer in (*field.layers, field.output)
        )
        self.activation = ACTIVATIONS[field.activation]
        self.mean = FIXED_STEP_METHODS[method]
        width, state_size = self.out.weight_t.shape
        by_state, by_control = self.first.weight_t.tensor_split([state_size])
        self.by_state, self.by_control = by_state, by_control
        self.in_hidden_space = width < 1.5 * state_size
        if self.in_hidden_space:
            self.hidden_slope = Affine(
                self.out.bias @ by_state, self.out.weight_t @ by_state
            )

    def __call__(
        self, state: State, dt: Tensor, control: Tensor | None = None
    ) -> State:
        first = self.first
        if control is not None:
            bias = torch.addmm(first.bias, control, self.by_control)
            first = Affine(bias, self.by_state)
        if self.in_hidden_space:
            mean = self.mean(self.values, self.hidden_slope, first(state), dt)
        else:
            mean = self.mean(lambda h: self.values(first(h)), self.out, state, dt)
        return torch.addcmul(state, dt, self.out(mean))

    def values(self, y: Tensor) -> Tensor:
        """Return v(y)."""
        v = self.activation(y)
        for layer in self.inner:
            v = self.activation(layer(v))
        return v


class FixedStepSolver:
    """Explicit Runge-Kutta steps of a fixed length.

    Parameters
    ----------
    method : {"rk4", "midpoint", "euler"}, default="rk4"
        "rk4" is the 3/8 rule.
    step_size : float, default=1.0
        Longest step, in ``time_unit_``. The encoder splits longer gaps; the decoder
        steps on a grid of this spacing.
    adjoint : bool, default=False
        Gradients by the adjoint sensitivity method (Chen et al. 2018) in place of
        backpropagation through the steps. They agree to the order of the method.
    """

    def __init__(
        self, method: str = "rk4", step_size: float = 1.0, adjoint: bool = False
    ) -> None:
        check_choice("method", method, FIXED_STEP_METHODS)
        self.method = method
        self.step_size = step_size
        self.adjoint = adjoint

    @property
    def longest_step(self) -> float:
        """Length above which a gap must be split before `step`."""
        return self.step_size

    @property
    def grid_spacing(self) -> float:
        """Spacing of the decoder's grid."""
        return self.step_size

    def step(
        self, field: nn.Module, state: State, dt: Tensor, control: Tensor | None = None
    ) -> State:
        """Carry ``state`` along ``field`` over one step.

        Parameters
        ----------
        field : nn.Module
            Called as ``field(state, control)``.
        state : Tensor of shape (batch, state)
            Where the step starts.
        dt : Tensor of shape (batch, 1)
            Signed length of each series' step, in ``time_unit_``.
        control : Tensor of shape (batch, control), optional
            Held over the step.

        Returns
        -------
        Tensor of shape (batch, state)
            Where the step ends.
        """
        if self.adjoint:
            held = None if control is None else control.unsqueeze(1)
            return self.trajectory(field, state, dt, held)[:, -1]
        return self.stepper(field, len(state))(state, dt, control)

    def stepper(self, field: nn.Module, n_series: int) -> Step:
        """Return `step` along ``field``, prepared for many steps.

        Parameters
        ----------
        field : nn.Module
            Called as ``field(state, control)``; a `VectorField` is not called, its
            weights are laid out once.
        n_series : int
            The batch of all states.

        Returns
        -------
        callable
            Takes ``state, dt, control`` as in `step`, and returns where a step ends.
        """
        if self.adjoint:
            return partial(self.step, field)
        if type(field) is VectorField:
            return _Flow(field, self.method, n_series)
        mean = FIXED_STEP_METHODS[self.method]

        def advance(state: State, dt: Tensor, control: Tensor | None = None) -> State:
            slope = mean(lambda y: field(y, control), lambda k: k, state, dt)
            return torch.addcmul(state, dt, slope)

        return advance

    def trajectory(
        self, field: nn.Module, state: State, dt: Steps, control: Tensor | None = None
    ) -> States:
        """Return the state before, between and after consecutive steps.

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

        Returns
        -------
        Tensor of shape (batch, step + 1, state)
            The first entry is ``state`` itself.
        """
        if self.adjoint and dt.shape[1]:
            # perturb: a stage at the end of a step belongs to that step, not the next
            return _torchdiffeq(
                _Piecewise(field, dt, control),
                state,
                adjoint=True,
                method=self.method,
                options={"perturb": True},
            )
        advance = self.stepper(field, len(state))
        lengths = dt.unsqueeze(-1).unbind(1)
        held = [None] * len(lengths) if control is None else control.unbind(1)
        states = [state]
        for length, value in zip(lengths, held, strict=True):
            states.append(advance(states[-1], length, value))
        return torch.stack(states, dim=1)


class AdaptiveSolver:
    """Dormand and Prince's method of order 5 with a controlled error (torchdiffeq).

    The step control is shared by the batch: a series is solved alike alone and among
    others to the tolerance, not to rounding.

    Parameters
    ----------
    rtol, atol : float, default=1e-3, 1e-4
        Relative and absolute tolerance of a step's error.
    step_size : float, default=1.0
        Upper bound of the spacing of the decoder's grid, in ``time_unit_``.
    adjoint : bool, default=False
        Gradients by the adjoint sensitivity method (Chen et al. 2018) in place of
        backpropagation through the solver.
    """

    method = "dopri5"
    longest_step = math.inf

    def __init__(
        self,
        rtol: float = 1e-3,
        atol: float = 1e-4,
        step_size: float = 1.0,
        adjoint: bool = False,
    ) -> None:
        self.rtol = rtol
        self.atol = atol
        self.step_size = step_size
        self.adjoint = adjoint

    @property
    def grid_spacing(self) -> float:
        """Spacing of the decoder's grid: the interpolation must not spoil ``rtol``.

        Cubic Hermite interpolation errs by spacing**4 / 384 times the fourth
        derivative, which is of order one in ``time_unit_``.
        """
        return min(self.step_size, (384 * self.rtol) ** 0.25)

    def step(
        self, field: nn.Module, state: State, dt: Tensor, control: Tensor | None = None
    ) -> State:
        """Carry ``state`` over one step; see `FixedStepSolver.step`.

        Raises
        ------
        SolverError
            If the step control fails.
        """
        held = None if control is None else control.unsqueeze(1)
        return self.trajectory(field, state, dt, held)[:, -1]

    def stepper(self, field: nn.Module, n_series: int) -> Step:
        """Return `step` along ``field``; see `FixedStepSolver.stepper`."""
        return partial(self.step, field)

    def trajectory(
        self, field: nn.Module, state: State, dt: Steps, control: Tensor | None = None
    ) -> States:
        """Return the states between steps; see `FixedStepSolver.trajectory`.

        Raises
        ------
        SolverError
            If the step control fails.
        """
        if not dt.shape[1]:
            return state.unsqueeze(1)
        # The derivative jumps where a series comes to rest or a control changes.
        jumps = (dt[:, 1:] != dt[:, :-1]).any(0)
        if control is not None:
            jumps |= (control[:, 1:] != control[:, :-1]).any(-1).any(0)
        jump_t = (torch.nonzero(jumps).squeeze(-1) + 1).to(state.dtype)
        # an error of order 5: each digit more takes 1.6 times as many steps
        digits = max(1e-3 / self.rtol, 1.0) ** 0.2
        most = math.ceil(_MOST_STEPS * digits * (1 + float(dt.abs().max())))
        options = {"max_num_steps": most}
        if len(jump_t):
            options["jump_t"] = jump_t
        try:
            return _torchdiffeq(
                _Piecewise(field, dt, control),
                state,
                adjoint=self.adjoint,
                method=self.method,
                options=options,
                rtol=self.rtol,
                atol=self.atol,
            )
        except AssertionError as error:  # torchdiffeq's only word on a failed step
            raise self.failure(error) from error

    def failure(self, error: AssertionError) -> SolverError:
        """Return what torchdiffeq's error means, with a remedy.

        A backward pass by the adjoint raises torchdiffeq's own.
        """
        why = "the length of its steps shrank to nothing, or the state overflowed"
        if "max_num_steps" in str(error):
            why = "it takes too many steps, so that the equation is stiff"
        return SolverError(
            f"method={self.method!r} could not reach its tolerance (rtol={self.rtol:g},"
            f" atol={self.atol:g}): {why}. Raise rtol and atol, clip the gradients "
            '(clip_norm), lower lr, or use activation="tanh" or the fixed-step '
            'method="rk4".'
        )


Solver: TypeAlias = FixedStepSolver | AdaptiveSolver


_MOST_STEPS = 32
"""Of Dormand and Prince's method, in one of our steps, and in each of its time units.

Fields that need more are too stiff for it, and would keep a fit busy for hours.
"""


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


def _torchdiffeq(
    rhs: _Piecewise, state: State, *, adjoint: bool, **options: object
) -> States:
    s = torch.arange(rhs.dt.shape[1] + 1, dtype=state.dtype, device=state.device)
    if adjoint:
        parameters = tuple(p for p in rhs.field.parameters() if p.requires_grad)
        solution = torchdiffeq.odeint_adjoint(
            rhs, state, s, adjoint_params=parameters, **options
        )
    else:
        solution = torchdiffeq.odeint(rhs, state, s, **options)
    return solution.transpose(0, 1)
