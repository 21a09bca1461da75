"""tanh and its slope, over whole arrays, in place.

Loops that change one array are what LLVM turns into vector instructions; it has no
vector functions of its own.
"""

from __future__ import annotations

import math

import numpy as np
from numba.extending import overload

from sklode.engine.products import apart, inner

_f = np.float32
_ONE = _f(1)

_SATURATED = _f(7.90531110763549805)
"""From here on tanh is 1 in float32."""

# the minimax approximation that Eigen and XLA use
_P = tuple(
    map(
        _f,
        (
            -2.76076847742355e-16,
            2.00018790482477e-13,
            -8.60467152213735e-11,
            5.12229709037114e-08,
            1.48572235717979e-05,
            6.37261928875436e-04,
            4.89352455891786e-03,
        ),
    )
)
_Q = tuple(
    map(
        _f,
        (
            1.19825839466702e-06,
            1.18534705686654e-04,
            2.26843463243900e-03,
            4.89352518554385e-03,
        ),
    )
)


def tanh(x):
    """tanh; of float32 to 4 units in the last place."""


@overload(tanh)
def _tanh(x):
    if x.bitwidth == 64:
        return lambda x: math.tanh(x)

    def of_single(x):
        x = _SATURATED if x > _SATURATED else x
        x = -_SATURATED if x < -_SATURATED else x
        s = x * x
        p = s * _P[0] + _P[1]
        p = p * s + _P[2]
        p = p * s + _P[3]
        p = p * s + _P[4]
        p = p * s + _P[5]
        p = p * s + _P[6]
        q = s * _Q[0] + _Q[1]
        q = q * s + _Q[2]
        q = q * s + _Q[3]
        return x * p / q

    return of_single


@inner
def activate(x):
    """Apply tanh."""
    apart()
    for i in range(x.size):
        x[i] = tanh(x[i])


@inner
def times_slope(grads, values):
    """Multiply gradients by the slope of tanh, where it takes its values."""
    apart()
    for i in range(grads.size):
        grads[i] *= _ONE - values[i] * values[i]
