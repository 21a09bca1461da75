"""Decoder: the latent trajectory z(t) through z0 at t0, at any times."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sklode.data.errors import SolverError
from sklode.engine.autograd import decode_at
from sklode.nn.solvers import Solver

MAX_STEPS = 1_000_000  # of its grid, that the decoder goes at most


class ControlPath(NamedTuple):
    """Controls u(t) of each series: linear between the stamps they are given at.

    Beyond the first and the last stamp the nearest value is held.
    """

    times: Tensor  # (batch, time), increasing
    values: Tensor  # (batch, time, control)

    def at(self, times: Tensor) -> Tensor:
        """Return u at ``times``, (batch, query); shape (batch, query, control)."""
        right = torch.searchsorted(self.times.contiguous(), times.contiguous())
        right = right.clamp(max=self.times.shape[1] - 1)
        left = (right - 1).clamp(min=0)
        start, end = self.times.gather(1, left), self.times.gather(1, right)
        width = torch.where(end > start, end - start, torch.ones_like(start))
        weight = ((times - start) / width).clamp(0, 1).unsqueeze(-1)
        return torch.lerp(_rows(self.values, left), _rows(self.values, right), weight)


class Decoder(nn.Module):
    r"""Solve dz/dt = f(z, u(t)), z(t0) = z0, on each series' own grid.

    .. math:: z(t) = \mathrm{ODESolve}(f_\theta, z_0, (t_0, t))

    (paper, Algorithm 2). The grid is anchored at t0, with the solver's
    ``grid_spacing``, and reaches to the farthest stamp asked for, after t0 and,
    where asked, before it. Between grid points the answer is the cubic Hermite
    interpolant of z and f(z) at both ends: it depends on no other stamp or series. A
    control is held over a grid step, at its value in the step's middle.

    The ``vector_field`` f is called as ``f(z, u)``, and not the encoder's.
    """

    def __init__(self, vector_field: nn.Module, solver: Solver) -> None:
        super().__init__()
        self.vector_field: Any = vector_field
        self.solver = solver

    def forward(
        self,
        z0: Tensor,
        t0: Tensor,
        times: Tensor,
        controls: ControlPath | None = None,
    ) -> Tensor:
        """Return z at ``times``, (batch, query, state), from ``z0``, (batch, state).

        These are any, in any order, before or after each series' own ``t0``, (batch,).
        A vector field that takes controls needs them.
        """
        elapsed = times - t0.unsqueeze(-1)
        forward = self._side(elapsed.clamp(min=0), +1, z0, t0, controls)
        is_before = elapsed < 0
        if not bool(is_before.any()):
            return forward
        backward = self._side(elapsed.clamp(max=0), -1, z0, t0, controls)
        return torch.where(is_before.unsqueeze(-1), backward, forward)

    def compiles(self, example: Tensor) -> bool:
        """Return whether the compiled engine does this, for such tensors."""
        known = type(self) is Decoder
        return known and self.solver.compiles(self.vector_field, example)

    def _side(
        self,
        elapsed: Tensor,
        sign: int,
        z0: Tensor,
        t0: Tensor,
        controls: ControlPath | None,
    ) -> Tensor:
        """Solve on one side of t0, of the sign of ``elapsed``."""
        spacing = sign * self.solver.grid_spacing
        place = elapsed / spacing
        n_steps = torch.ceil(place.amax(1, keepdim=True)).clamp(min=1)
        if n_steps.max() > MAX_STEPS:
            raise SolverError(
                f"the decoder takes at most {MAX_STEPS} steps of step_size="
                f"{abs(spacing):g}; got a time {float(elapsed.abs().max()):g} time "
                "units away from the window's start. Raise step_size, or ask for an "
                "earlier time."
            )
        step = torch.arange(int(n_steps.max()), dtype=z0.dtype, device=z0.device)
        # a series rests (dt = 0) after its own farthest stamp
        dt = spacing * (step < n_steps).to(z0.dtype)
        held = None
        if controls is not None:
            held = controls.at(t0.unsqueeze(-1) + spacing * (step + 0.5))
        left = torch.minimum(place.floor(), n_steps - 1)
        left, theta = left.long(), place - left
        if not self.compiles(z0):
            return self.interpolated(z0, dt, held, left, theta)
        layers = list(self.vector_field.parameters())
        return decode_at(z0, dt, held, left, theta, layers, self.solver.method)

    def interpolated(
        self,
        z0: Tensor,
        dt: Tensor,
        held: Tensor | None,
        left: Tensor,
        theta: Tensor,
    ) -> Tensor:
        """Return states at places in consecutive steps, (batch, query, state).

        Arguments are as of `sklode.engine.autograd.decode_at`; ``held`` are controls.
        """
        grid = self.solver.trajectory(self.vector_field, z0, dt, held)
        z_left, z_right = _rows(grid, left), _rows(grid, left + 1)
        if held is None:
            slopes = self.vector_field(grid, None)
            slope_left, slope_right = _rows(slopes, left), _rows(slopes, left + 1)
        else:  # both ends have the step's control
            u = _rows(held, left)
            slope_left = self.vector_field(z_left, u)
            slope_right = self.vector_field(z_right, u)
        # cubic Hermite interpolant on [0, 1], in Horner form
        length, theta = _rows(dt.unsqueeze(-1), left), theta.unsqueeze(-1)
        slope_left, slope_right = length * slope_left, length * slope_right
        rise = z_right - z_left
        bend = 3 * rise - 2 * slope_left - slope_right
        twist = slope_left + slope_right - 2 * rise
        return z_left + theta * (slope_left + theta * (bend + theta * twist))


def _rows(table: Tensor, index: Tensor) -> Tensor:
    """Take rows of each series, of (batch, row, k): (batch, query, k)."""
    # one flat look-up: backward far cheaper than ``gather``
    start = torch.arange(len(table), device=table.device).unsqueeze(-1) * table.shape[1]
    flat = table.reshape(-1, table.shape[-1]).index_select(0, (index + start).flatten())
    return flat.view(*index.shape, table.shape[-1])
