"""Explicit Runge-Kutta methods, which both engines take their steps by."""

from __future__ import annotations

import math
from typing import NamedTuple


class Tableau(NamedTuple):
    """All that is known of a method: its weights, and what its steps are good for."""

    a: tuple[tuple[float, ...], ...]  # of the slopes before, for each stage
    b: tuple[float, ...]  # of all slopes, for the result; they add up to 1
    order: int  # a fixed time's error falls with this power of the step
    followed: float  # radians of a rotation per step, at about constant amplitude


TABLEAUS = {
    "rk4": Tableau(
        a=((), (1 / 3,), (-1 / 3, 1.0), (1.0, -1.0, 1.0)),
        b=(1 / 8, 3 / 8, 3 / 8, 1 / 8),
        order=4,
        followed=math.pi / 2,
    ),
    "midpoint": Tableau(a=((), (1 / 2,)), b=(0.0, 1.0), order=2, followed=0.5),
    "euler": Tableau(a=((),), b=(1.0,), order=1, followed=0.1),
}
"""By the names that the parameter ``method`` takes.

Kutta's 3/8 rule, the midpoint rule, and Euler's method (Butcher's a and b; Hairer,
Norsett, Wanner, Solving Ordinary Differential Equations I, table II.1.2).
"""
