"""Explicit Runge-Kutta methods, which both engines take their steps by."""

from __future__ import annotations

from typing import NamedTuple


class Tableau(NamedTuple):
    """Butcher tableau of an explicit method: stage weights and final weights."""

    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]


TABLEAUS = {
    "rk4": Tableau(
        ((), (1 / 3,), (-1 / 3, 1.0), (1.0, -1.0, 1.0)),
        (1 / 8, 3 / 8, 3 / 8, 1 / 8),
    ),
    "midpoint": Tableau(((), (1 / 2,)), (0.0, 1.0)),
    "euler": Tableau(((),), (1.0,)),
}
"""Kutta's 3/8 rule, of order 4; the midpoint rule, 2; Euler's method, 1 (Hairer,
Norsett, Wanner, Solving Ordinary Differential Equations I, table II.1.2).
"""
