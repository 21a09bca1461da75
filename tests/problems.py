"""Problems whose solutions are known in closed form, and stand-ins that record."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from sklode.engine.tableaus import TABLEAUS, Tableau

MERSON = Tableau(
    a=((), (1 / 3,), (1 / 6, 1 / 6), (1 / 8, 0.0, 3 / 8), (1 / 2, 0.0, -3 / 2, 2.0)),
    b=(1 / 6, 0.0, 0.0, 2 / 3, 1 / 6),
    order=4,
    followed=math.pi / 2,
)
"""A method of five stages that no engine has by itself (Merson 1957)."""


def twice(one: Tableau) -> Tableau:
    """Return two steps of half the length as one step, of twice the stages."""
    half = tuple(weight / 2 for weight in one.b)
    rows = [tuple(weight / 2 for weight in row) for row in one.a]
    return Tableau(
        a=(*rows, *((*half, *row) for row in rows)),
        b=(*half, *half),
        order=one.order,
        followed=2 * one.followed,
    )


class LinearField(nn.Module):
    """dz/dt = A z + B u."""

    def __init__(self, a: list[list[float]], b: list[list[float]] | None = None):
        super().__init__()
        self.a = nn.Parameter(torch.tensor(a))
        self.b = None if b is None else nn.Parameter(torch.tensor(b))

    def forward(self, state: Tensor, control: Tensor | None = None) -> Tensor:
        slope = state @ self.a.T
        if self.b is not None and control is not None:
            slope = slope + control @ self.b.T
        return slope

    def solution(self, z0: Tensor, elapsed: Tensor) -> Tensor:
        """Return exp(A t) z0, (batch, query, state), for elapsed (batch, query)."""
        flow = torch.linalg.matrix_exp(elapsed[..., None, None] * self.a.detach())
        return torch.einsum("bqij,bj->bqi", flow, z0)


def decay(rate: float = 1.0) -> LinearField:
    """dz/dt = -rate z; z(t) = exp(-rate t) z0."""
    return LinearField([[-rate]])


def oscillator(frequency: float = 1.0) -> LinearField:
    """Return a rotation: position, and velocity / frequency."""
    return LinearField([[0.0, frequency], [-frequency, 0.0]])


def constant_acceleration() -> LinearField:
    """z' = v, v' = a, a' = 0: quadratic in time, exact for orders above 1."""
    return LinearField([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])


class Driven(LinearField):
    """dz/dt = -rate z + u(t), by a control that is constant or rises with t."""

    def __init__(self, rate: float = 1.0):
        super().__init__([[-rate]], [[1.0]])
        self.rate = rate

    def under_ramp(self, z0: Tensor, t0: Tensor, times: Tensor) -> Tensor:
        """Return z(t) for u(t) = t and z(t0) = z0."""
        particular = (self.rate * times - 1) / self.rate**2
        start = (self.rate * t0 - 1) / self.rate**2
        return particular + (z0 - start) * torch.exp(-self.rate * (times - t0))


class Square(nn.Module):
    """dz/dt = z^2: from z0 = 1 it leaves every bound at t = 1."""

    def forward(self, state: Tensor, control: Tensor | None = None) -> Tensor:
        return state**2


class Zero(nn.Module):
    """dz/dt = 0."""

    def forward(self, state: Tensor, control: Tensor | None = None) -> Tensor:
        return torch.zeros_like(state)


class Recorder(nn.Module):
    """A field that keeps every state and control it is asked about."""

    def __init__(self, field: nn.Module):
        super().__init__()
        self.field = field
        self.states: list[Tensor] = []
        self.controls: list[Tensor | None] = []

    def forward(self, state: Tensor, control: Tensor | None = None) -> Tensor:
        self.states.append(state.detach().clone())
        self.controls.append(control)
        slope: Tensor = self.field(state, control)
        return slope


class Clock(nn.Module):
    """dh/dt = 1: a state that starts at zero shows the time that it has flowed."""

    def forward(self, state: Tensor, control: Tensor | None = None) -> Tensor:
        return torch.ones_like(state)


class HoldingCell(nn.RNNCell):
    """A cell that leaves h alone and keeps what it reads."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.read: list[Tensor] = []

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        assert hx is not None
        self.read.append(input.detach().clone())
        return hx


class AddingCell(nn.RNNCell):
    """A cell that adds what it reads to h: the encoder becomes a linear filter."""

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        assert hx is not None
        return hx + input


def amplification(method: str, x: float) -> float:
    """Return the factor of one step on dz/dt = a z, for x = a dt: exp(x), truncated."""
    order = TABLEAUS[method].order
    return sum(x**k / math.factorial(k) for k in range(order + 1))
