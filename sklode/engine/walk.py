"""Walks along steps, both ways: the compiled core of encoder and decoder.

A step is a flow, where any series flows, and a cell update, where a stamp is seen; the
decoder's also gives dz/dt where it starts, and then need not flow.

The flow is a step of a Runge-Kutta method with weights a and b, from h over dt, in the
space of the first hidden layer: with p = W_1 h + b_1 the field is v -> M v + c there,
where M = W_1 W_o, c = W_1 b_o, and v is what the last hidden layer gives.
Runge-Kutta steps commute with linear maps: this is the same step, of one product a
stage in place of two. docs/architecture.md has the recurrences.

A matrix (series, feature) is a one-dimensional array; what is kept of each step is a
row of an array (step, ...). ``v1`` and ``v2`` are what both hidden layers give, (stage,
series * width); v2 is empty where there is one. A field is its method (a, a^T, b), its
weights W_1, W_2, M, W_o, its biases b_1, b_2, c, b_o, and its sizes.

Tested in tests/engine/test_against_torch.py.
"""

from __future__ import annotations

import math

import numpy as np
from numba.extending import overload

from sklode.engine.products import add_outer, apart, entry, inlined, inner, product

FLOWS, VISITS, DENSE = 1, 2, 4
"""Flags of a step: what it does."""

_f = np.float32
_ZERO, _ONE, _FADED = _f(0), _f(1), _f(1e-28)

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


# Loops that change one array become vector instructions.


@inner
def _activate(x):
    """Apply tanh."""
    apart()
    for i in range(x.size):
        x[i] = tanh(x[i])


@inner
def _times_slope(grads, values):
    """Multiply gradients by 1 - values^2, the derivative of tanh."""
    apart()
    for i in range(grads.size):
        grads[i] *= _ONE - values[i] * values[i]


@inner
def _copy(x, out):
    """Copy an array."""
    apart()
    for i in range(out.size):
        out[i] = x[i]


@inner
def _add_weighted(x, weight, out):
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
        _add_weighted(values[k], b[k], out)


@inner
def _flush(x):
    """Set what would soon be subnormal, and slow, to 0; tell if any is left."""
    apart()
    left = False
    for i in range(x.size):
        x[i] = x[i] if not abs(x[i]) < _FADED else _ZERO
        left |= x[i] != _ZERO
    return left


@inlined
def _step(field, h, dt, bias, flows, v1, v2, room, out):
    """Set out to where a step from h ends; keep what the layers give."""
    (a, _, b), weights, biases, (n_state, width) = field
    wide, rise = room[0], room[1][0]
    entered, mean, lengths, slopes = wide[1], wide[2], wide[3], wide[4:8]
    last, n = v2 if v2.size > 0 else v1, b.size if flows else 1
    _spread(dt, lengths)
    product(h, weights[0], width, bias, entered)
    for i in range(n):
        _combine(entered, lengths, slopes, a[i], v1[i])
        _activate(v1[i])
        if v2.size > 0:
            product(v1[i], weights[1], width, biases[1], v2[i])
            _activate(v2[i])
        if i + 1 < n:
            product(last[i], weights[2], width, biases[2], slopes[i])
    _copy(h, out)
    if flows:
        _mean(last, b, mean)
        product(mean, weights[3], n_state, biases[3], rise)
        for r in range(dt.size):
            for i in range(r * n_state, (r + 1) * n_state):
                out[i] += dt[r] * rise[i]


@inlined
def _step_back(field, g, h, dt, by_rate, flows, v1, v2, grads, room, by_bias):
    """Turn g, the gradient by the step's end, into that by h.

    ``by_rate`` is that by dh/dt at h, or empty; that by the bias adds to ``by_bias``.
    """
    (_, columns, b), weights, _, (n_state, width) = field
    by_w1, by_w2, by_m, by_wo, by_b1, by_b2, by_c, by_bo, scratch = grads
    wide, rise, by_h = room[0], room[1][0], room[1][1]
    zeros, by_mean, mean, lengths, total = wide[0], wide[1], wide[2], wide[3], wide[13]
    slopes, entered, second = wide[4:8], wide[8:12], wide[12]
    last, n = v2 if v2.size > 0 else v1, b.size if flows else 1
    none = zeros[:0]
    _spread(dt, lengths)
    _copy(zeros, by_mean)
    _copy(zeros, total)
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
            _copy(zeros, by_last)
        _add_weighted(by_mean, b[i], by_last)
        if i == 0 and by_rate.size > 0:
            product(by_rate, weights[3], width, by_last, mean)
            _copy(mean, by_last)
            add_outer(by_rate, last[0], n_state, width, by_wo, by_bo, scratch)
        if v2.size > 0:
            _times_slope(by_last, v2[i])
            add_outer(by_last, v1[i], width, width, by_w2, by_b2, scratch)
            product(by_last, weights[1], width, none, entered[i])
        _times_slope(entered[i], v1[i])
        _add_weighted(entered[i], _ONE, total)
    _add_weighted(total, _ONE, by_bias)
    add_outer(total, h, width, n_state, by_w1, by_b1, scratch)
    product(total, weights[0], n_state, g, by_h)
    _copy(by_h, g)


@entry
def walk(dt, flags, given, cell, field, kept, room):
    """Take all steps; keep the states before each, and what they gave."""
    seen, x, bias = given
    h, c, read, gates, v1, v2, rates = kept
    moved = room[1][1]
    for k in range(flags.size):
        _copy(h[k], moved)
        _copy(c[k], c[k + 1])
        if flags[k] & (FLOWS | DENSE):
            here, flows = bias[k if bias.shape[0] > 1 else 0], flags[k] & FLOWS
            _step(field, h[k], dt[k], here, flows, v1[k], v2[k], room, moved)
        if flags[k] & DENSE:
            last = v2[k, 0] if v2.size > 0 else v1[k, 0]
            product(last, field[1][3], h.shape[1] // dt.shape[1], field[2][3], rates[k])
        _copy(moved, h[k + 1])
        if flags[k] & VISITS:
            now, after = (read[k], gates[k], c[k]), (c[k + 1], h[k + 1])
            _visit(cell, x[k], seen[k], moved, now, after)


@inlined
def _visit(cell, x, seen, moved, now, after):
    """Update h, and C of an LSTM cell, of the series that are seen."""
    n, (line, gates, old_c), (c, h) = seen.size, now, after
    n_state, n_out, n_read = h.size // n, gates.size // n, line.size // n
    for r in range(n):
        for j in range(n_state):
            line[r * n_read + j] = moved[r * n_state + j]
        for j in range(n_read - n_state - 1):
            line[r * n_read + n_state + j] = x[r * (n_read - n_state - 1) + j]
        line[(r + 1) * n_read - 1] = _ONE
    product(line, cell[0], n_out, cell[0][:0], gates)
    scale = cell[1]
    for i in range(gates.size):  # tanh, or the sigmoid (1 + tanh(x / 2)) / 2
        gates[i] = scale[i] * tanh(scale[i] * gates[i]) + (_ONE - scale[i])
    if n_out == n_state:
        _copy(gates, moved)
    else:
        _write(gates, old_c, n_state, moved)
        for r in range(n):
            for i in range(r * n_state, (r + 1) * n_state):
                c[i] += seen[r] * (moved[i] - c[i])
        _activate(moved)
        for r in range(n):
            for j in range(n_state):
                moved[r * n_state + j] *= gates[r * n_out + 3 * n_state + j]
    for r in range(n):
        for i in range(r * n_state, (r + 1) * n_state):
            h[i] += seen[r] * (moved[i] - h[i])


@inner
def _write(gates, c, n_state, out):
    """Set out to an LSTM cell's new C, f * C + i * g."""
    apart()
    for r in range(out.size // n_state):
        for j in range(n_state):
            i, at = r * n_state + j, 4 * r * n_state + j
            out[i] = gates[at + n_state] * c[i] + gates[at] * gates[at + 2 * n_state]


@inlined
def _visit_back(g, c, gates, seen, n_state, t, by_gates):
    """Set gradients by what enters the gates; leave what passes them by."""
    is_lstm = c.size > 0
    if is_lstm:
        _write(gates, c, n_state, t)
        _activate(t)
    for r in range(seen.size):
        for j in range(n_state):
            i, at = r * n_state + j, 4 * r * n_state + j
            by_h = seen[r] * g[0, i]
            g[0, i] -= by_h
            if not is_lstm:
                by_gates[i] = by_h * (_ONE - gates[i] * gates[i])
                continue
            write, keep = gates[at], gates[at + n_state]
            new, o = gates[at + 2 * n_state], gates[at + 3 * n_state]
            by_c = seen[r] * g[1, i]
            g[1, i] -= by_c
            by_c += by_h * o * (_ONE - t[i] * t[i])
            g[1, i] += by_c * keep
            by_gates[at] = by_c * new * write * (_ONE - write)
            by_gates[at + n_state] = by_c * c[i] * keep * (_ONE - keep)
            by_gates[at + 2 * n_state] = by_c * write * (_ONE - new * new)
            by_gates[at + 3 * n_state] = by_h * t[i] * o * (_ONE - o)


@entry
def walk_back(g, dt, flags, given, cell, field, kept, grads, room):
    """Turn g, the gradients by the last h and C, into those by the first.

    ``given`` are what is seen, the gradients by the states and by dz/dt at the steps'
    starts, and room for those by the bias. Gradients by weights are added to ``grads``,
    those by the cell's to ``cell[1]``.
    """
    seen, by_states, by_rates, by_bias = given
    h, c, read, gates, v1, v2, _ = kept
    n, n_state = dt.shape[1], g.shape[1] // dt.shape[1]
    n_out, n_read = gates.shape[1] // n, read.shape[1] // n
    by_h, t, by_gates, none = room[1][1], room[1][2], room[2], room[2][:0]
    for k in range(flags.size - 1, -1, -1):
        if flags[k] & DENSE:
            _add_weighted(by_states[k + 1], _ONE, g[0])
        if flags[k] & VISITS:
            _visit_back(g, c[k], gates[k], seen[k], n_state, t, by_gates)
            add_outer(by_gates, read[k], n_out, n_read, cell[1], none, cell[2])
            product(by_gates, cell[0], n_state, g[0], by_h)
            _copy(by_h, g[0])
        if flags[k] & (FLOWS | DENSE):
            here, flows = by_bias[k if by_bias.shape[0] > 1 else 0], flags[k] & FLOWS
            at, rate, by = h[k], by_rates[k], g[0]
            _step_back(
                field, by, at, dt[k], rate, flows, v1[k], v2[k], grads, room, here
            )
        is_left = _flush(g[0])
        if not (_flush(g[1]) or is_left or flags[k] & DENSE):
            break  # nothing comes back any more


@inner
def _hermite(length, place):
    """Return weights of z and dz/dt at a step's start, then at its end."""
    rest = _ONE - place
    end = place * place * (rest + rest + _ONE)
    start, slope = _ONE - end, length * place * rest * rest
    return start, slope, end, -length * place * place * rest


@entry
def answer(stride, dt, z, rates, left, theta, out):
    """Answer the queries of each series from the grid."""
    n_state = out.shape[2]
    for r in range(out.shape[0]):
        for q in range(out.shape[1]):
            k, at = stride * left[r, q], r * n_state
            w0, w1, w2, w3 = _hermite(dt[k, r], theta[r, q])
            for i in range(n_state):
                value = w0 * z[k, at + i] + w2 * z[k + stride, at + i]
                bend = w1 * rates[k, at + i] + w3 * rates[k + 1, at + i]
                out[r, q, i] = value + bend


@entry
def answer_back(stride, dt, by_z, by_rates, left, theta, grad):
    """Add the gradients by answers to those by the grid."""
    n_state = grad.shape[2]
    for r in range(grad.shape[0]):
        for q in range(grad.shape[1]):
            k, at = stride * left[r, q], r * n_state
            w0, w1, w2, w3 = _hermite(dt[k, r], theta[r, q])
            for i in range(n_state):
                by_z[k, at + i] += w0 * grad[r, q, i]
                by_z[k + stride, at + i] += w2 * grad[r, q, i]
                by_rates[k, at + i] += w1 * grad[r, q, i]
                by_rates[k + 1, at + i] += w3 * grad[r, q, i]
