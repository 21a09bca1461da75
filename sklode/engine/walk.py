"""Walks along steps, forward and backward: the compiled core of encoder and decoder.

A step is a flow, where any series flows, and an update of the cell, where any stamp is
seen; the decoder's also gives dz/dt where it starts, and then need not flow.

A matrix (series, feature) is a one-dimensional array, row after row, as in
`sklode.engine.steps`; what is kept of each step is a row of an array (step, ...).
"""

from __future__ import annotations

from sklode.engine.products import add_outer, apart, entry, inlined, inner, product
from sklode.engine.steps import (
    ONE,
    activate,
    add_weighted,
    copy,
    flush,
    step,
    step_back,
    tanh,
)

FLOWS, VISITS, DENSE = 1, 2, 4
"""Flags of a step: what it does."""


@entry
def walk(dt, flags, given, cell, field, kept, room):
    """Take all steps; keep the states before each, and what was computed on the way."""
    seen, x, bias = given
    h, c, read, gates, v1, v2, rates = kept
    moved = room[1][1]
    for k in range(flags.size):
        copy(h[k], moved)
        copy(c[k], c[k + 1])
        if flags[k] & (FLOWS | DENSE):
            here, flows = bias[k if bias.shape[0] > 1 else 0], flags[k] & FLOWS
            step(field, h[k], dt[k], here, flows, v1[k], v2[k], room, moved)
        if flags[k] & DENSE:
            last = v2[k, 0] if v2.size > 0 else v1[k, 0]
            product(last, field[1][3], h.shape[1] // dt.shape[1], field[2][3], rates[k])
        copy(moved, h[k + 1])
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
        line[(r + 1) * n_read - 1] = ONE
    product(line, cell[0], n_out, cell[0][:0], gates)
    scale = cell[1]
    for i in range(gates.size):  # tanh, or the sigmoid (1 + tanh(x / 2)) / 2
        gates[i] = scale[i] * tanh(scale[i] * gates[i]) + (ONE - scale[i])
    if n_out == n_state:
        copy(gates, moved)
    else:
        _write(gates, old_c, n_state, moved)
        for r in range(n):
            for i in range(r * n_state, (r + 1) * n_state):
                c[i] += seen[r] * (moved[i] - c[i])
        activate(moved)
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
    """Set the gradients by what enters the gates; leave what passes them by."""
    is_lstm = c.size > 0
    if is_lstm:
        _write(gates, c, n_state, t)
        activate(t)
    for r in range(seen.size):
        for j in range(n_state):
            i, at = r * n_state + j, 4 * r * n_state + j
            by_h = seen[r] * g[0, i]
            g[0, i] -= by_h
            if not is_lstm:
                by_gates[i] = by_h * (ONE - gates[i] * gates[i])
                continue
            write, keep = gates[at], gates[at + n_state]
            new, o = gates[at + 2 * n_state], gates[at + 3 * n_state]
            by_c = seen[r] * g[1, i]
            g[1, i] -= by_c
            by_c += by_h * o * (ONE - t[i] * t[i])
            g[1, i] += by_c * keep
            by_gates[at] = by_c * new * write * (ONE - write)
            by_gates[at + n_state] = by_c * c[i] * keep * (ONE - keep)
            by_gates[at + 2 * n_state] = by_c * write * (ONE - new * new)
            by_gates[at + 3 * n_state] = by_h * t[i] * o * (ONE - o)


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
            add_weighted(by_states[k + 1], ONE, g[0])
        if flags[k] & VISITS:
            _visit_back(g, c[k], gates[k], seen[k], n_state, t, by_gates)
            add_outer(by_gates, read[k], n_out, n_read, cell[1], none, cell[2])
            product(by_gates, cell[0], n_state, g[0], by_h)
            copy(by_h, g[0])
        if flags[k] & (FLOWS | DENSE):
            here, flows = by_bias[k if by_bias.shape[0] > 1 else 0], flags[k] & FLOWS
            at, rate, by = h[k], by_rates[k], g[0]
            step_back(
                field, by, at, dt[k], rate, flows, v1[k], v2[k], grads, room, here
            )
        is_left = flush(g[0])
        if not (flush(g[1]) or is_left or flags[k] & DENSE):
            break  # nothing comes back any more


@inner
def _hermite(length, place):
    """Return the weights of z and dz/dt at a step's start, then at its end."""
    rest = ONE - place
    end = place * place * (rest + rest + ONE)
    start, slope = ONE - end, length * place * rest * rest
    return start, slope, end, -length * place * place * rest


@entry
def answer(stride, dt, z, rates, left, theta, out):
    """Answer the queries of each series from the grid."""
    n_state = out.shape[2]
    for r in range(out.shape[0]):
        for q in range(out.shape[1]):
            k, at = stride * left[r, q], r * n_state
            if k >= dt.shape[0] or dt[k, r] == 0:  # at rest: no end, no derivatives
                for i in range(n_state):
                    out[r, q, i] = z[k, at + i]
                continue
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
            if k >= dt.shape[0] or dt[k, r] == 0:
                for i in range(n_state):
                    by_z[k, at + i] += grad[r, q, i]
                continue
            w0, w1, w2, w3 = _hermite(dt[k, r], theta[r, q])
            for i in range(n_state):
                by_z[k, at + i] += w0 * grad[r, q, i]
                by_z[k + stride, at + i] += w2 * grad[r, q, i]
                by_rates[k, at + i] += w1 * grad[r, q, i]
                by_rates[k + 1, at + i] += w3 * grad[r, q, i]
