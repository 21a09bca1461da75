"""Activations and their slopes, over whole arrays, in place.

Loops that change one array are what LLVM turns into vector instructions; it has no
vector functions of its own. In single precision all are made of a rational tanh.
"""

from __future__ import annotations

import math

import numpy as np
from numba.extending import overload

from sklode.engine.products import apart, inner

TANH, ELU, SOFTPLUS = map(np.int64, range(3))

ACTIVATIONS = {"tanh": TANH, "elu": ELU, "softplus": SOFTPLUS}

_f = np.float32
_ZERO, _ONE, _TWO, _HALF = map(_f, (0, 1, 2, 0.5))

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
_ODD = tuple(_f(1 / n) for n in (13, 11, 9, 7, 5, 3))


def tanh(x):
    """tanh; of float32 to 4 units in the last place."""


def _decay(x):
    """exp(x) of what is not positive; of float32 to 1e-7 absolute."""


def _log_one_plus(x):
    """log(1 + x) of what lies in [0, 1]; of float32 to 1e-7 absolute."""


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


@overload(_decay)
def _decay_of(x):
    if x.bitwidth == 64:
        return lambda x: math.exp(x)

    def of_single(x):
        t = tanh(x * _HALF)
        return (t + _ONE) / (_ONE - t)

    return of_single


@overload(_log_one_plus)
def _log_one_plus_of(x):
    if x.bitwidth == 64:
        return lambda x: math.log(1.0 + x)

    def of_single(x):
        z = x / (x + _TWO)  # 2 artanh(x / (2 + x))
        s = z * z
        total = s * _ODD[0] + _ODD[1]
        total = total * s + _ODD[2]
        total = total * s + _ODD[3]
        total = total * s + _ODD[4]
        total = total * s + _ODD[5]
        total = total * s + _ONE
        return z * total * _TWO

    return of_single


@inner
def activate(kind, x):
    """Apply an activation."""
    apart()
    if kind == TANH:
        for i in range(x.size):
            x[i] = tanh(x[i])
    elif kind == ELU:
        for i in range(x.size):
            low = x[i] if x[i] < _ZERO else _ZERO
            high = _ZERO if x[i] < _ZERO else x[i]
            x[i] = high + (_decay(low) - _ONE)
    else:
        for i in range(x.size):
            high = _ZERO if x[i] < _ZERO else x[i]
            x[i] = high + _log_one_plus(_decay(-abs(x[i])))


@inner
def times_slope(kind, grads, values):
    """Multiply gradients by the activation's slope, where it takes its values."""
    apart()
    if kind == TANH:
        for i in range(grads.size):
            grads[i] *= _ONE - values[i] * values[i]
    elif kind == ELU:
        for i in range(grads.size):
            grads[i] *= _ONE + (_ZERO if values[i] > _ZERO else values[i])
    else:
        for i in range(grads.size):
            grads[i] *= _ONE - _decay(-values[i])
