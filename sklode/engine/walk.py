"""Walks along steps, both ways: the compiled core of encoder and decoder.

A step is a flow, where any series flows, and a cell update, where a stamp is seen; the
decoder's also gives dz/dt where it starts, and then need not flow.

The flow is a step of a Runge-Kutta method with weights a and b, from h over dt, in the
space of the first hidden layer: with p = W_1 h + b_1 the field is v -> M v + c there,
where M = W_1 W_o, c = W_1 b_o, and v is what the last hidden layer gives.
Runge-Kutta steps commute with linear maps: this is the same step, of one product a
stage in place of two. docs/architecture.md has the recurrences.

A matrix (series, feature) is a one-dimensional array; what is kept of each step is a
part of an array (step, ...).

Tested in tests/engine/test_against_torch.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sklode.engine.compiling import apart, entry, inlined, inner
from sklode.engine.elementwise import (
    ONE,
    activate,
    add_weighted,
    combine,
    copy,
    flush,
    mean,
    replace,
    spread,
    tanh,
    times_slope,
)
from sklode.engine.products import add_outer, product

# Flags of a step, which add up: what it does.
FLOWS, VISITS, DENSE = 1, 2, 4

TERMS = 4  # stages that `combine` sums at once


class Steps(NamedTuple):
    """What all steps of a block are."""

    dt: np.ndarray  # (step, series)
    flags: np.ndarray  # (step,)
    seen: np.ndarray  # (step, series): 1 where the cell is updated, else 0


class Weights(NamedTuple):
    """A field's weights, or gradients by them; w2, b2 may be empty."""

    w1: np.ndarray
    w2: np.ndarray
    m: np.ndarray
    wo: np.ndarray
    b1: np.ndarray
    b2: np.ndarray
    c: np.ndarray
    bo: np.ndarray


class Field(NamedTuple):
    """A vector field and the method of its steps, for one way.

    `product` multiplies from the right: matrices are transposed for the way forward and
    as they are for the way back, where a is transposed instead. On the way forward
    biases are repeated for each series.
    """

    a: np.ndarray  # (stage, stage), filled up with 0 to a multiple of `TERMS`
    b: np.ndarray  # (stage,)
    weights: Weights
    n_state: int
    width: int


class Grads(NamedTuple):
    """Gradients to which a walk back adds."""

    weights: Weights
    bias: np.ndarray  # (1 or step, series * width): by what is added in each step
    cell: np.ndarray
    scratch: np.ndarray  # as much as the largest of them


class Cell(NamedTuple):
    """A cell, of whose gates one is a tanh and the others are sigmoids."""

    weights: np.ndarray
    scale: np.ndarray  # (series * gate * state,): 1 of the tanh, 1/2 of the others


class Kept(NamedTuple):
    """What is kept of each step for the way back, (step, series * feature)."""

    h: np.ndarray  # before each step and after the last, as c
    c: np.ndarray
    read: np.ndarray
    gates: np.ndarray
    v1: np.ndarray  # (step, stage, series * width): of both hidden layers
    v2: np.ndarray
    rates: np.ndarray  # dz/dt at the start


class Room(NamedTuple):
    """Arrays to work in, of one step."""

    zeros: np.ndarray  # (series * width,), as all up to total
    entered: np.ndarray
    mean: np.ndarray
    by_mean: np.ndarray
    lengths: np.ndarray
    second: np.ndarray
    total: np.ndarray
    slopes: np.ndarray  # (stage, series * width), of as many stages as a
    by_entered: np.ndarray  # (stage, series * width)
    rise: np.ndarray  # (series * state,), as the next two
    moved: np.ndarray
    cells: np.ndarray
    by_gates: np.ndarray  # (series * gate * state,)


@inner
def _combine(base, scale, slopes, weights, out):
    """Set out to base + scale * (a weighted sum of all stages' slopes)."""
    combine(base, scale, slopes, weights, out)
    for first in range(TERMS, weights.size, TERMS):
        combine(out, scale, slopes[first:], weights[first:], out)


@inlined
def _step(field, kept, k, dt, bias, flows, room, out):
    """Set out to where step k ends; keep what the layers give."""
    h, v1, v2 = kept.h[k], kept.v1[k], kept.v2[k]
    n_state, width, lengths = field.n_state, field.width, room.lengths
    own, slopes = field.weights, room.slopes
    last = v2 if v2.size > 0 else v1
    # for dz/dt at h alone, the first stage suffices
    n_stages = field.b.size if flows else 1
    spread(dt, lengths)
    product(h, own.w1, width, bias, room.entered)
    # stage i enters at p + dt * sum over j < i of a_ij (M v_j + c): a is 0 from i on
    for i in range(n_stages):
        _combine(room.entered, lengths, slopes, field.a[i], v1[i])
        activate(v1[i])
        if v2.size > 0:
            product(v1[i], own.w2, width, own.b2, v2[i])
            activate(v2[i])
        if i + 1 < n_stages:
            product(last[i], own.m, width, own.c, slopes[i])
    copy(h, out)
    if flows:
        # W_o and b_o once: the weights b add up to 1
        mean(last, field.b, room.mean)
        product(room.mean, own.wo, n_state, own.bo, room.rise)
        for r in range(dt.size):
            for i in range(r * n_state, (r + 1) * n_state):
                out[i] += dt[r] * room.rise[i]


@inlined
def _step_back(field, kept, k, dt, flows, g, by_rate, grads, room):
    """Turn g, the gradient by the end of step k, into that by its start h.

    ``by_rate`` is that by dh/dt at h, or empty.
    """
    h, v1, v2 = kept.h[k], kept.v1[k], kept.v2[k]
    n_state, width, scratch = field.n_state, field.width, grads.scratch
    own, by = field.weights, grads.weights
    zeros, none, lengths = room.zeros, room.zeros[:0], room.lengths
    rise, by_mean, total = room.rise, room.by_mean, room.total
    last = v2 if v2.size > 0 else v1
    n_stages = field.b.size if flows else 1
    spread(dt, lengths)
    copy(zeros, by_mean)
    copy(zeros, total)
    if flows:
        # h' = h + dt (W_o mean + b_o): dt g is the gradient by what is in brackets
        for r in range(dt.size):
            for i in range(r * n_state, (r + 1) * n_state):
                rise[i] = dt[r] * g[i]
        product(rise, own.wo, width, none, by_mean)
        mean(last, field.b, room.mean)
        add_outer(rise, room.mean, n_state, width, by.wo, by.bo, scratch)
    for i in range(n_stages - 1, -1, -1):
        by_first, by_slope = room.by_entered[i], room.slopes[i]
        by_last = room.second if v2.size > 0 else by_first
        # M v_i + c enters the later stages j with a_ji dt; of later stages alone is
        # there a gradient yet that counts, as a_ji is 0 up to i
        _combine(zeros, lengths, room.by_entered, field.a[i], by_slope)
        if i + 1 < n_stages:
            product(by_slope, own.m, width, none, by_last)
            add_outer(by_slope, last[i], width, width, by.m, by.c, scratch)
        else:
            copy(zeros, by_last)
        add_weighted(by_mean, field.b[i], by_last)
        # dh/dt at h is W_o v + b_o of the first stage
        if i == 0 and by_rate.size > 0:
            product(by_rate, own.wo, width, by_last, room.mean)
            copy(room.mean, by_last)
            add_outer(by_rate, last[0], n_state, width, by.wo, by.bo, scratch)
        if v2.size > 0:
            times_slope(by_last, v2[i])
            add_outer(by_last, v1[i], width, width, by.w2, by.b2, scratch)
            product(by_last, own.w2, width, none, by_first)
        times_slope(by_first, v1[i])
        add_weighted(by_first, ONE, total)
    # p = W_1 h + b_1 enters every stage with factor one
    add_weighted(total, ONE, grads.bias[k if grads.bias.shape[0] > 1 else 0])
    add_outer(total, h, width, n_state, by.w1, by.b1, scratch)
    product(total, own.w1, n_state, g, room.moved)
    copy(room.moved, g)


@entry
def walk(steps, x, bias, cell, field, kept, room):
    """Take all steps; keep the states before each, and what they gave.

    ``bias``, (1 or step, series * width), is that of the first layer in each step.
    """
    dt, flags, seen = steps.dt, steps.flags, steps.seen
    h, c, moved, own = kept.h, kept.c, room.moved, field.weights
    for k in range(flags.size):
        copy(h[k], moved)
        copy(c[k], c[k + 1])
        if flags[k] & (FLOWS | DENSE):
            here, flows = bias[k if bias.shape[0] > 1 else 0], flags[k] & FLOWS
            _step(field, kept, k, dt[k], here, flows, room, moved)
        if flags[k] & DENSE:
            last = kept.v2[k, 0] if kept.v2.size > 0 else kept.v1[k, 0]
            product(last, own.wo, field.n_state, own.bo, kept.rates[k])
        copy(moved, h[k + 1])
        if flags[k] & VISITS:
            _visit(cell, kept, k, x[k], seen[k], moved)


@inlined
def _visit(cell, kept, k, x, seen, moved):
    """Update h, and C of an LSTM cell, of the series that are seen."""
    line, gates, h = kept.read[k], kept.gates[k], kept.h[k + 1]
    n = seen.size
    n_state, n_out, n_read = h.size // n, gates.size // n, line.size // n
    n_inputs = n_read - n_state - 1
    # [h, x, 1] of each series: its product with [W_h, W_x, b] is W_h h + W_x x + b
    for r in range(n):
        for j in range(n_state):
            line[r * n_read + j] = moved[r * n_state + j]
        for j in range(n_inputs):
            line[r * n_read + n_state + j] = x[r * n_inputs + j]
        line[(r + 1) * n_read - 1] = ONE
    product(line, cell.weights, n_out, cell.weights[:0], gates)
    # the sigmoid of x is (1 + tanh(x / 2)) / 2, so that s tanh(s x) + 1 - s is either
    scale = cell.scale
    for i in range(gates.size):
        gates[i] = scale[i] * tanh(scale[i] * gates[i]) + (ONE - scale[i])
    if n_out == n_state:
        copy(gates, moved)
    else:
        # h = o tanh(C)
        _write(gates, kept.c[k], n_state, moved)
        replace(kept.c[k + 1], moved, seen)
        activate(moved)
        for r in range(n):
            for j in range(n_state):
                moved[r * n_state + j] *= gates[r * n_out + 3 * n_state + j]
    replace(h, moved, seen)


@inner
def _write(gates, c, n_state, out):
    """Set out to an LSTM cell's new C, f * C + i * g; torch's order is i, f, g, o."""
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
        activate(t)
    for r in range(seen.size):
        for j in range(n_state):
            i, at = r * n_state + j, 4 * r * n_state + j
            by_h = seen[r] * g[0, i]
            g[0, i] -= by_h
            # a sigmoid s has the slope s (1 - s), a tanh 1 - s^2
            if not is_lstm:
                by_gates[i] = by_h * (ONE - gates[i] * gates[i])
                continue
            write, keep = gates[at], gates[at + n_state]
            new, o = gates[at + 2 * n_state], gates[at + 3 * n_state]
            # by the new C, as it is and through h = o tanh(C), of which t is the tanh
            by_c = seen[r] * g[1, i]
            g[1, i] -= by_c
            by_c += by_h * o * (ONE - t[i] * t[i])
            g[1, i] += by_c * keep
            by_gates[at] = by_c * new * write * (ONE - write)
            by_gates[at + n_state] = by_c * c[i] * keep * (ONE - keep)
            by_gates[at + 2 * n_state] = by_c * write * (ONE - new * new)
            by_gates[at + 3 * n_state] = by_h * t[i] * o * (ONE - o)


@entry
def walk_back(g, steps, by_states, by_rates, by_h, field, kept, grads, room):
    """Turn g, the gradients by the last h and C, into those by the first.

    ``by_states`` and ``by_rates`` are the gradients by the states and by dz/dt at the
    steps' starts, ``by_h`` the cell's weights of h. Those by weights add to ``grads``.
    """
    dt, flags, seen, by_gates = steps.dt, steps.flags, steps.seen, room.by_gates
    read, gates = kept.read, kept.gates
    n_series, n_state = dt.shape[1], field.n_state
    n_out, n_read = gates.shape[1] // n_series, read.shape[1] // n_series
    for k in range(flags.size - 1, -1, -1):
        if flags[k] & DENSE:
            add_weighted(by_states[k + 1], ONE, g[0])
        if flags[k] & VISITS:
            t, none = room.cells, by_gates[:0]
            _visit_back(g, kept.c[k], gates[k], seen[k], n_state, t, by_gates)
            add_outer(by_gates, read[k], n_out, n_read, grads.cell, none, grads.scratch)
            product(by_gates, by_h, n_state, g[0], room.moved)
            copy(room.moved, g[0])
        if flags[k] & (FLOWS | DENSE):
            flows, by_rate = flags[k] & FLOWS, by_rates[k]
            _step_back(field, kept, k, dt[k], flows, g[0], by_rate, grads, room)
        is_left = flush(g[0])
        if not (flush(g[1]) or is_left or flags[k] & DENSE):
            break  # nothing comes back any more


@inner
def _hermite(length, place):
    """Return weights of z and dz/dt at a step's start, then at its end.

    The cubic Hermite interpolant at a share u of a step of length s has the weights
    (1 - u)^2 (1 + 2 u) and u^2 (3 - 2 u) of the values, whose sum is one; of the slopes
    s u (1 - u)^2 and -s u^2 (1 - u).
    """
    rest = ONE - place
    end = place * place * (rest + rest + ONE)
    start, slope = ONE - end, length * place * rest * rest
    return start, slope, end, -length * place * place * rest


@inner
def _place(stride, dt, left, theta, r, q):
    """Return in which step of the walk a query lies, and the weights of its ends."""
    k = stride * left[r, q]
    return k, _hermite(dt[k, r], theta[r, q])


@entry
def answer(stride, dt, z, rates, left, theta, out):
    """Answer the queries of each series from the grid."""
    n_state = out.shape[2]
    for r in range(out.shape[0]):
        for q in range(out.shape[1]):
            k, (w0, w1, w2, w3) = _place(stride, dt, left, theta, r, q)
            at = r * n_state
            for i in range(n_state):
                value = w0 * z[k, at + i] + w2 * z[k + stride, at + i]
                # the next step of the walk starts where this one ends
                bend = w1 * rates[k, at + i] + w3 * rates[k + 1, at + i]
                out[r, q, i] = value + bend


@entry
def answer_back(stride, dt, by_z, by_rates, left, theta, grad):
    """Add the gradients by answers to those by the grid: `answer`, transposed."""
    n_state = grad.shape[2]
    for r in range(grad.shape[0]):
        for q in range(grad.shape[1]):
            k, (w0, w1, w2, w3) = _place(stride, dt, left, theta, r, q)
            at = r * n_state
            for i in range(n_state):
                by_z[k, at + i] += w0 * grad[r, q, i]
                by_z[k + stride, at + i] += w2 * grad[r, q, i]
                by_rates[k, at + i] += w1 * grad[r, q, i]
                by_rates[k + 1, at + i] += w3 * grad[r, q, i]
