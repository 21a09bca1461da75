"""Loops over one array, for compiled functions: each becomes vector instructions.

An array (series * feature,) holds the features of a series side by side.

Tested in tests/engine/test_against_torch.py.
"""

from __future__ import annotations

import math

import numpy as np
from numba.extending import overload

from sklode.engine.compiling import apart, inner

_f = np.float32
ONE, _ZERO = _f(1), _f(0)

# Times a slope of 1e-10 this is subnormal in float32, which begins at 1e-38.
_FADED = _f(1e-28)

# From here on tanh is 1 in float32.
_SATURATED = _f(7.90531110763549805)

# tanh is x P(x^2) / Q(x^2): the minimax approximation that Eigen and XLA use.
_P = (
    _f(-2.76076847742355e-16),
    _f(2.00018790482477e-13),
    _f(-8.60467152213735e-11),
    _f(5.12229709037114e-08),
    _f(1.48572235717979e-05),
    _f(6.37261928875436e-04),
    _f(4.89352455891786e-03),
)
_Q = (
    _f(1.19825839466702e-06),
    _f(1.18534705686654e-04),
    _f(2.26843463243900e-03),
    _f(4.89352518554385e-03),
)


def tanh(x):
    """tanh; of float32 to 4 units in the last place."""


@overload(tanh)
def _tanh(x):
    if x.bitwidth == 64:
        return lambda x: math.tanh(x)

    def of_single(x):  # LLVM has no vector function of its own
        # beyond, P / Q leaves 1 again
        x = _SATURATED if x > _SATURATED else x
        x = -_SATURATED if x < -_SATURATED else x
        s = x * x
        p = ((_P[0] * s + _P[1]) * s + _P[2]) * s + _P[3]
        p = ((p * s + _P[4]) * s + _P[5]) * s + _P[6]
        q = ((_Q[0] * s + _Q[1]) * s + _Q[2]) * s + _Q[3]
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
    """Multiply gradients by 1 - values^2, the derivative of tanh."""
    apart()
    for i in range(grads.size):
        grads[i] *= ONE - values[i] * values[i]


@inner
def copy(x, out):
    """Copy an array."""
    apart()
    for i in range(out.size):
        out[i] = x[i]


@inner
def add_weighted(x, weight, out):
    """Add a multiple of an array."""
    apart()
    for i in range(out.size):
        out[i] += weight * x[i]


@inner
def spread(vector, out):
    """Repeat the number of each series for each of its features."""
    apart()
    n = out.size // vector.size
    for r in range(vector.size):
        for j in range(n):
            out[r * n + j] = vector[r]


@inner
def combine(base, scale, terms, weights, out):
    """Set out to base + scale * (a weighted sum of four terms)."""
    apart()
    x0, x1, x2, x3 = terms[0], terms[1], terms[2], terms[3]
    w0, w1, w2, w3 = weights[0], weights[1], weights[2], weights[3]
    for i in range(out.size):
        total = w0 * x0[i] + w1 * x1[i] + w2 * x2[i] + w3 * x3[i]
        out[i] = base[i] + scale[i] * total


@inner
def mean(values, b, out):
    """Set out to the weighted sum of the stages' values."""
    apart()
    for i in range(out.size):
        out[i] = _ZERO
    for k in range(b.size):
        add_weighted(values[k], b[k], out)


@inner
def replace(old, new, seen):
    """Set old to new in the series that are seen."""
    apart()
    n = old.size // seen.size
    for r in range(seen.size):
        # seen is 0 or 1: a product where a condition would keep LLVM from vectors
        for i in range(r * n, (r + 1) * n):
            old[i] += seen[r] * (new[i] - old[i])


@inner
def flush(x):
    """Set what would soon be subnormal, and slow, to 0; tell if any is left."""
    apart()
    left = False
    for i in range(x.size):
        # not less than, instead of greater: NaN stays
        x[i] = x[i] if not abs(x[i]) < _FADED else _ZERO
        left |= x[i] != _ZERO
    return left
