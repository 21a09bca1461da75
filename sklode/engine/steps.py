"""One step of a flow, forward and backward, for a batch side by side.

One step of a Runge-Kutta method with weights a and b, from h over dt, is solved in the
space of the first hidden layer: with p = W_1 h + b_1 the field is v -> M v + c there,
where M = W_1 W_o, c = W_1 b_o, and v is what the last hidden layer gives.
Runge-Kutta steps commute with linear maps, so this is the same step; it takes one
product a stage in place of two. docs/engine.md has the recurrences.

A matrix (series, feature) is a one-dimensional array, row after row. ``v1`` and ``v2``
hold what both hidden layers give, (stage, series * width); v2 is empty where there is
one layer. A field is its method (a, a^T, b), its weights W_1, W_2, M, W_o, its biases
b_1, b_2, c, b_o, and its sizes.
"""

from __future__ import annotations

import math

import numpy as np
from numba.extending import overload

from sklode.engine.products import add_outer, apart, inlined, inner, product

_f = np.float32
_ZERO, ONE, _FADED = _f(0), _f(1), _f(1e-28)

_SATURATED = _f(7.90531110763549805)
"""From here on tanh is 1 in float32."""

# the minimax approximation that Eigen and XLA use
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
        x = _SATURATED if x > _SATURATED else x
        x = -_SATURATED if x < -_SATURATED else x
        s = x * x
        p = ((_P[0] * s + _P[1]) * s + _P[2]) * s + _P[3]
        p = ((p * s + _P[4]) * s + _P[5]) * s + _P[6]
        q = ((_Q[0] * s + _Q[1]) * s + _Q[2]) * s + _Q[3]
        return x * p / q

    return of_single


# Loops that change one array are what LLVM turns into vector instructions.


@inner
def activate(x):
    """Apply tanh."""
    apart()
    for i in range(x.size):
        x[i] = tanh(x[i])


@inner
def _times_slope(grads, values):
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
def _spread(vector, out):
    """Repeat the number of each series along its row."""
    apart()
    n = out.size // vector.size
    for r in range(vector.size):
        for j in range(n):
            out[r * n + j] = vector[r]


@inner
def _combine(base, scale, terms, weights, out):
    """Set out to base + scale * (a weighted sum of four terms)."""
    apart()
    x0, x1, x2, x3 = terms[0], terms[1], terms[2], terms[3]
    w0, w1, w2, w3 = weights[0], weights[1], weights[2], weights[3]
    for i in range(out.size):
        total = w0 * x0[i] + w1 * x1[i] + w2 * x2[i] + w3 * x3[i]
        out[i] = base[i] + scale[i] * total


@inner
def _mean(values, b, out):
    """Set out to the weighted sum of the stages' values."""
    apart()
    for i in range(out.size):
        out[i] = _ZERO
    for k in range(b.size):
        add_weighted(values[k], b[k], out)


@inner
def flush(x):
    """Set what would soon be subnormal to 0; return whether anything is left.

    Many processors take a hundred times as long for subnormal numbers.
    """
    apart()
    left = False
    for i in range(x.size):
        x[i] = x[i] if not abs(x[i]) < _FADED else _ZERO
        left |= x[i] != _ZERO
    return left


@inlined
def step(field, h, dt, bias, flows, v1, v2, room, out):
    """Set out to where a step ends that starts at h; keep what the layers give.

    Where it does not flow, that is what they give at h only.
    """
    (a, _, b), weights, biases, (n_state, width) = field
    wide, rise = room[0], room[1][0]
    entered, mean, lengths, slopes = wide[1], wide[2], wide[3], wide[4:8]
    last, n = v2 if v2.size > 0 else v1, b.size if flows else 1
    _spread(dt, lengths)
    product(h, weights[0], width, bias, entered)
    for i in range(n):
        _combine(entered, lengths, slopes, a[i], v1[i])
        activate(v1[i])
        if v2.size > 0:
            product(v1[i], weights[1], width, biases[1], v2[i])
            activate(v2[i])
        if i + 1 < n:
            product(last[i], weights[2], width, biases[2], slopes[i])
    copy(h, out)
    if flows:
        _mean(last, b, mean)
        product(mean, weights[3], n_state, biases[3], rise)
        for r in range(dt.size):
            for i in range(r * n_state, (r + 1) * n_state):
                out[i] += dt[r] * rise[i]


@inlined
def step_back(field, g, h, dt, by_rate, flows, v1, v2, grads, room, by_bias):
    """Turn g, the gradient by the step's end, into that by its start h.

    ``by_rate`` is the gradient by dh/dt at the start, where that is an answer too. The
    gradient by what is added to the first layer is added to ``by_bias``.
    """
    (_, columns, b), weights, _, (n_state, width) = field
    by_w1, by_w2, by_m, by_wo, by_b1, by_b2, by_c, by_bo, scratch = grads
    wide, rise, by_h = room[0], room[1][0], room[1][1]
    zeros, by_mean, mean, lengths, total = wide[0], wide[1], wide[2], wide[3], wide[13]
    slopes, entered, second = wide[4:8], wide[8:12], wide[12]
    last, n = v2 if v2.size > 0 else v1, b.size if flows else 1
    none = zeros[:0]
    _spread(dt, lengths)
    copy(zeros, by_mean)
    copy(zeros, total)
    if flows:
        for r in range(dt.size):
            for i in range(r * n_state, (r + 1) * n_state):
                rise[i] = dt[r] * g[i]
        product(rise, weights[3], width, none, by_mean)
        _mean(last, b, mean)
        add_outer(rise, mean, n_state, width, by_wo, by_bo, scratch)
    for i in range(n - 1, -1, -1):
        by_last = second if v2.size > 0 else entered[i]
        _combine(zeros, lengths, entered, columns[i], slopes[i])
        if i + 1 < n:
            product(slopes[i], weights[2], width, none, by_last)
            add_outer(slopes[i], last[i], width, width, by_m, by_c, scratch)
        else:
            copy(zeros, by_last)
        add_weighted(by_mean, b[i], by_last)
        if i == 0 and by_rate.size > 0:
            product(by_rate, weights[3], width, by_last, mean)
            copy(mean, by_last)
            add_outer(by_rate, last[0], n_state, width, by_wo, by_bo, scratch)
        if v2.size > 0:
            _times_slope(by_last, v2[i])
            add_outer(by_last, v1[i], width, width, by_w2, by_b2, scratch)
            product(by_last, weights[1], width, none, entered[i])
        _times_slope(entered[i], v1[i])
        add_weighted(entered[i], ONE, total)
    add_weighted(total, ONE, by_bias)
    add_outer(total, h, width, n_state, by_w1, by_b1, scratch)
    product(total, weights[0], n_state, g, by_h)
    copy(by_h, g)
