"""Explicit Runge-Kutta methods, which both engines take their steps by."""

TABLEAUS = {
    "rk4": (
        ((), (1 / 3,), (-1 / 3, 1.0), (1.0, -1.0, 1.0)),
        (1 / 8, 3 / 8, 3 / 8, 1 / 8),
    ),
    "midpoint": (((), (1 / 2,)), (0.0, 1.0)),
    "euler": (((),), (1.0,)),
}
"""Weights of the stages, and of the result (Butcher's a and b).

Kutta's 3/8 rule, of order 4; the midpoint rule, 2; Euler's method, 1 (Hairer, Norsett,
Wanner, Solving Ordinary Differential Equations I, table II.1.2).
"""
