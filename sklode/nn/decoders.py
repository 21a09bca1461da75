"""Decoder: the latent trajectory z(t) through z0 at t0, at any times."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sklode.data.errors import SolverError
from sklode.engine.autograd import decode_at
from sklode.nn.solvers import Solver

MAX_STEPS = 1_000_000  # of its grid, that the decoder goes at most
_PARTS = 4  # of a step, over which a control that jumps is averaged
_ROUNDING = 1e-4  # of times, in time units


class ControlPath(NamedTuple):
    """Controls u(t) of each series: linear between the stamps they are given at.

    Beyond the first and the last stamp the nearest value is held. A control with a rate
    is not linear: from each stamp on it fades at it, to zero; at a rate of 0 it is held
    until the next one. In reversed time it acts up to each stamp, from the one that
    comes after it there; beyond the last one what fades is zero.
    """

    times: Tensor  # (batch, time), increasing
    values: Tensor  # (batch, time, control)
    rates: Tensor | None = None  # (control,); NaN, or None: it is linear
    runs_back: bool = False  # whether times are those of reversed time

    def at(self, times: Tensor) -> Tensor:
        """Return u at ``times``, (batch, query); shape (batch, query, control)."""
        stamps, times = self.times.contiguous(), times.contiguous()
        # the first stamp not before the query; past the last one, the last
        right = torch.searchsorted(stamps, times)
        right = right.clamp(max=stamps.shape[1] - 1)
        left = (right - 1).clamp(min=0)
        start = stamps.gather(1, left)
        end = stamps.gather(1, right)
        # where both are the first stamp, or repeat one, any width will do
        width = torch.where(end > start, end - start, torch.ones_like(start))
        # a weight outside [0, 1] is that of a time beyond the path's ends
        weight = ((times - start) / width).clamp(0, 1).unsqueeze(-1)
        before = _taken(self.values, left)
        after = _taken(self.values, right)
        linear = torch.lerp(before, after, weight)
        if self.rates is None:
            return linear
        # the last stamp that is not after the query, but for rounding
        place = torch.searchsorted(stamps, times + _ROUNDING, right=True) - 1
        if self.runs_back:
            place = place + 1
        n = stamps.shape[1]
        given = place.clamp(min=0, max=n - 1)
        passed = times - stamps.gather(1, given)
        passed = (-passed if self.runs_back else passed).clamp(min=0).unsqueeze(-1)
        acting = _taken(self.values, given) * torch.exp(-self.rates * passed)
        is_past = (place == n).unsqueeze(-1) & (self.rates > 0)
        acting = torch.where(is_past, 0.0, acting)
        return torch.where(torch.isnan(self.rates), linear, acting)

    def over(self, start: Tensor, length: float) -> Tensor:
        """Return u as it is held over steps from ``start``, (batch, step, control).

        That is its value in their middle, or its mean where it jumps.
        """
        if self.rates is None:
            return self.at(start + length / 2)
        shares = (torch.arange(_PARTS) + 0.5) / _PARTS
        parts = [self.at(start + length * share) for share in shares.tolist()]
        return torch.stack(parts).mean(0)


class Decoder(nn.Module):
    r"""Solve dz/dt = f(z, u(t)), z(t0) = z0, on each series' own grid.

    .. math:: z(t) = \mathrm{ODESolve}(f_\theta, z_0, (t_0, t))

    (paper, Algorithm 2). The grid is anchored at t0, with the solver's
    ``grid_spacing``, and reaches to the farthest query, after t0 and,
    if there is one, before it. Between grid points the answer is the cubic Hermite
    interpolant of z and f(z) at both ends: it depends on no other stamp or series. A
    control is held over a grid step, see `ControlPath.over`.

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
        # each side answers every stamp; those of the other count as t0 there,
        # so that they make its grid no longer
        elapsed = times - t0.unsqueeze(-1)
        later, earlier = elapsed.clamp(min=0), elapsed.clamp(max=0)
        forward = self._side(later, sign=+1, z0=z0, t0=t0, controls=controls)
        is_before = elapsed < 0
        if not bool(is_before.any()):
            return forward
        backward = self._side(earlier, sign=-1, z0=z0, t0=t0, controls=controls)
        return torch.where(is_before.unsqueeze(-1), backward, forward)

    def compiles(self, example: Tensor) -> bool:
        """Return whether the compiled engine does this, for such tensors."""
        # a subclass may do something else
        is_known = type(self) is Decoder
        return is_known and self.solver.compiles(self.vector_field, example)

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
        # both have the same sign: a place is how many steps away a stamp lies
        place = elapsed / spacing
        n_steps = torch.ceil(place.amax(1, keepdim=True)).clamp(min=1)
        if n_steps.max() > MAX_STEPS:
            raise SolverError(
                f"the decoder takes at most {MAX_STEPS} steps of step_size="
                f"{abs(spacing):g}; got a time {float(elapsed.abs().max()):g} time "
                "units away from the window's start. Raise step_size, or ask for an "
                "earlier time."
            )
        most = int(n_steps.max())
        step = torch.arange(most, dtype=z0.dtype, device=z0.device)
        # a series rests (dt = 0) after its own farthest stamp
        dt = spacing * (step < n_steps).to(z0.dtype)
        held = None
        if controls is not None:
            held = controls.over(t0.unsqueeze(-1) + spacing * step, spacing)
        # a farthest stamp on the grid ends the last step: none begins there
        start = torch.minimum(place.floor(), n_steps - 1)
        left, theta = start.long(), place - start
        given = [z0, dt, theta] if held is None else [z0, dt, theta, held]
        n_inputs = z0.shape[1] + (0 if held is None else held.shape[-1])
        is_compiled = self.compiles(z0) and self.solver.fits(
            self.vector_field, n_inputs, z0.shape[1], *given
        )
        if not is_compiled:
            return self.interpolated(z0, dt=dt, held=held, left=left, theta=theta)
        return decode_at(
            z0,
            dt=dt,
            controls=held,
            left=left,
            theta=theta,
            field=list(self.vector_field.parameters()),
            method=self.solver.method,
        )

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
        grid = self.solver.trajectory(self.vector_field, state=z0, dt=dt, control=held)
        z_left, z_right = _taken(grid, left), _taken(grid, left + 1)
        if held is None:
            # of an autonomous field one step's end has the slope of the next one's
            # start: each grid point is evaluated once
            slopes = self.vector_field(grid, None)
            slope_left = _taken(slopes, left)
            slope_right = _taken(slopes, left + 1)
        else:
            # u jumps between steps: both ends have the control of their own step
            u = _taken(held, left)
            slope_left = self.vector_field(z_left, u)
            slope_right = self.vector_field(z_right, u)
        # dz/dtheta = dt * dz/dt, since theta goes from 0 to 1 in a step
        length, theta = _taken(dt.unsqueeze(-1), left), theta.unsqueeze(-1)
        slope_left, slope_right = length * slope_left, length * slope_right
        # Cubic Hermite interpolant, by Horner: with slope_left + bend + twist = rise
        # it ends in z_right, and with slope_left + 2 bend + 3 twist = slope_right at
        # that end's slope. Both solved for bend and twist:
        rise = z_right - z_left
        bend = 3 * rise - 2 * slope_left - slope_right
        twist = slope_left + slope_right - 2 * rise
        return z_left + theta * (slope_left + theta * (bend + theta * twist))


def _taken(table: Tensor, index: Tensor) -> Tensor:
    """Take places of each series, of (batch, place, k): (batch, query, k)."""
    n_series, n_places, width = table.shape
    # one flat look-up, of series end to end: backward far cheaper than ``gather``
    start = n_places * torch.arange(n_series, device=table.device)
    place = (index + start.unsqueeze(-1)).flatten()
    found = table.reshape(-1, width).index_select(0, place)
    return found.view(*index.shape, width)
