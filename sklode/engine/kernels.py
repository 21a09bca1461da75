r"""Whole sequences of flows and cell updates, forward and backward, in one call each.

A block of series (see `sklode.engine.simd`) goes through all its steps before the next
block begins. What a step computes on its way is not kept: the backward pass starts each
step from the state before it and computes it again, which is cheaper than the memory.
The gradients by weights are outer products, summed over a few steps at a time.

One step of a Runge-Kutta method with weights a and b, from h over dt, is solved for y:

- in the state's own space y = h, and the field is f(y) = W_o v(y) + b_o;
- in the hidden space y = W_1 h + b_1, and it is f(y) = M v(y) + c with M = W_1 W_o and
  c = W_1 b_o. Runge-Kutta steps commute with linear maps, so this is the same step; it
  takes one product a stage in place of two, of (width, width).

v(y) are the activations of the last hidden layer. With y_i = y + dt sum_j a_ij k_j and
k_i = f(y_i), the step ends at h + dt sum_i b_i k_i, in the hidden space at
h + dt (W_o sum_i b_i v_i + b_o).

Backward, with g the gradient by the step's end and J_i the derivative of y_i's field:

- own space: dk_i = dt (b_i g + sum_{j>i} a_ji dy_j), dy_i = J_i^T dk_i, and the
  gradient by h is g + sum_i dy_i;
- hidden space: dv_i = b_i W_o^T dt g + M^T dk_i with dk_i = dt sum_{j>i} a_ji dy_j,
  dy_i = slope(y_i) dv_i (through the inner layer, if any), and the gradient by h is
  g + W_1^T sum_i dy_i.

Between grid points the decoder answers by the cubic Hermite interpolant of z and dz/dt
at both ends of a step. With a control held over each step dz/dt jumps at the grid
points, and a step's end has a derivative of its own; otherwise it is that of the next
start.

Kernels take arrays of (series, step, feature) and write into arrays that the caller
made. ``arena`` is working memory that belongs to the call.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sklode.engine.fused import CHUNK
from sklode.engine.products import (
    add_outer,
    add_product,
    allocate,
    collect,
    pack,
)
from sklode.engine.rows import (
    activate,
    add_rows,
    copy_rows,
    gather,
    scatter,
    set_rows,
    times_slope,
    zero_rows,
)
from sklode.engine.simd import (
    compiled,
    constant,
    lanes_of,
    load,
    pointer,
    store,
    tanh,
)

__all__ = ["decode", "decode_backward", "encode", "encode_backward"]


class Field(NamedTuple):
    """A vector field's weights, packed, and the method that solves it."""

    w1: Any
    b1: Any
    w2: Any
    b2: Any
    wo: Any
    bo: Any
    m: Any
    c: Any
    n_state: Any
    n_hidden: Any
    n_solved: Any  # rows of y
    deep: Any  # whether there is an inner layer
    in_hidden_space: Any
    activation: Any
    a: Any
    b: Any
    dense: Any  # whether dz/dt is an answer too


class Transposed(NamedTuple):
    """The transposes of a field's weights, packed."""

    w1: Any
    w2: Any
    wo: Any
    m: Any


class Stages(NamedTuple):
    """What the stages of a few steps compute on their way; rows of (step, stage)."""

    y: Any
    first: Any  # activations of the first hidden layer
    inner: Any  # and of the inner one
    slopes: Any  # k_i, of one step only
    mean: Any  # sum_i b_i v_i, a row block a step
    entry: Any  # v of the first stage, a row block a step


class Adjoints(NamedTuple):
    """Gradients by what stands in `Stages`, and by the weights (lane by lane)."""

    slopes: Any  # dk_i
    first: Any  # by what enters the first activation
    inner: Any
    y: Any  # dy_i, of one step only
    mean: Any
    first_sum: Any  # sum_i dy_i of the hidden space
    rise: Any  # dt g
    start: Any  # h before the step
    derivative: Any  # by dz/dt at the step's start
    w1: Any
    b1: Any
    w2: Any
    b2: Any
    wo: Any
    bo: Any
    m: Any
    c: Any


# One step of the flow -----------------------------------------------------------------


@compiled
def _slope(layout: Any, f: Any, v: Any, v0: Any, out: Any, out0: Any) -> Any:
    """Set rows to f from the activations of the last hidden layer."""
    if f.in_hidden_space:
        set_rows(layout, out, out0, f.c, f.n_hidden)
        add_product(layout, f.m, v, v0, out, out0, f.n_hidden, f.n_hidden)
    else:
        set_rows(layout, out, out0, f.bo, f.n_state)
        add_product(layout, f.wo, v, v0, out, out0, f.n_state, f.n_hidden)


@compiled
def _stage_point(
    layout: Any, f: Any, y: Any, y0: Any, slopes: Any, dt: Any, i: Any
) -> Any:
    """Set y_i = y + dt sum_j a_ij k_j, for a stage after the first."""
    n = f.n_solved
    a0 = dt * constant(y, f.a[i, 0])
    out = y0 + i * n
    if i == 1:
        for r in range(n):
            k = a0 * load(layout, slopes, r)
            store(layout, y, out + r, load(layout, y, y0 + r) + k)
        return
    a1 = dt * constant(y, f.a[i, 1])
    if i == 2:
        for r in range(n):
            k = a0 * load(layout, slopes, r) + a1 * load(layout, slopes, n + r)
            store(layout, y, out + r, load(layout, y, y0 + r) + k)
        return
    a2 = dt * constant(y, f.a[i, 2])
    for r in range(n):
        k = a0 * load(layout, slopes, r) + a1 * load(layout, slopes, n + r)
        k = k + a2 * load(layout, slopes, 2 * n + r)
        store(layout, y, out + r, load(layout, y, y0 + r) + k)


@compiled
def _mean(layout: Any, f: Any, rows: Any, first: Any, n: Any, r: Any) -> Any:
    """Return sum_i b_i of row r of the stages' rows."""
    total = load(layout, rows, first + r) * constant(rows, f.b[0])
    for i in range(1, len(f.b)):
        weight = constant(rows, f.b[i])
        total = total + load(layout, rows, first + i * n + r) * weight
    return total


@compiled
def _enter(layout: Any, f: Any, h: Any, h0: Any, bias: Any, s: Any, y0: Any) -> Any:
    """Set y of a first stage."""
    if f.in_hidden_space:
        copy_rows(layout, bias, 0, s.y, y0, f.n_hidden)
        add_product(layout, f.w1, h, h0, s.y, y0, f.n_hidden, f.n_state)
    else:
        copy_rows(layout, h, h0, s.y, y0, f.n_state)


@compiled
def _evaluate(layout: Any, f: Any, bias: Any, s: Any, yi: Any, vi: Any) -> Any:
    """Set a stage's activations from its y."""
    width = f.n_hidden
    if f.in_hidden_space:
        copy_rows(layout, s.y, yi, s.first, vi, width)
    else:
        copy_rows(layout, bias, 0, s.first, vi, width)
        add_product(layout, f.w1, s.y, yi, s.first, vi, width, f.n_state)
    activate(layout, f.activation, s.first, vi, width)
    if f.deep:
        set_rows(layout, s.inner, vi, f.b2, width)
        add_product(layout, f.w2, s.first, vi, s.inner, vi, width, width)
        activate(layout, f.activation, s.inner, vi, width)


@compiled
def _derivative(layout: Any, f: Any, s: Any, k: Any, out: Any) -> Any:
    """Set rows to f where place ``k`` of a chunk starts."""
    last = s.inner if f.deep else s.first
    v0 = k * len(f.b) * f.n_hidden
    set_rows(layout, out, 0, f.bo, f.n_state)
    add_product(layout, f.wo, last, v0, out, 0, f.n_state, f.n_hidden)


@compiled
def _derivative_backward(
    layout: Any, f: Any, ft: Any, by: Any, g: Any, s: Any, d: Any, k: Any
) -> Any:
    """Add to g what the gradient ``by`` dz/dt gives where place ``k`` starts.

    The place has one stage, and no step.
    """
    n_stages, n, width = len(f.b), f.n_solved, f.n_hidden
    k0, v0 = k * n_stages * n, k * n_stages * width
    by_last = d.inner if f.deep else d.first
    zero_rows(layout, d.slopes, k0, n_stages * n)
    zero_rows(layout, d.first, v0, n_stages * width)
    zero_rows(layout, d.inner, v0, n_stages * width)
    if f.in_hidden_space:
        zero_rows(layout, d.rise, k * f.n_state, f.n_state)
        _keep_derivative(layout, f, by, s, d, k)
    else:
        copy_rows(layout, by, 0, d.slopes, k0, n)
    add_product(layout, ft.wo, by, 0, by_last, v0, width, f.n_state)
    _through_layers(layout, f, ft, s, d, v0)
    copy_rows(layout, d.first, v0, d.first_sum, k * width, width)
    add_product(layout, ft.w1, d.first, v0, g, 0, f.n_state, width)


@compiled
def _keep_derivative(layout: Any, f: Any, by: Any, s: Any, d: Any, k: Any) -> Any:
    """Keep the terms of W_o's gradient by dz/dt, which M's does not hold."""
    last = s.inner if f.deep else s.first
    v0 = k * len(f.b) * f.n_hidden
    copy_rows(layout, by, 0, d.derivative, k * f.n_state, f.n_state)
    copy_rows(layout, last, v0, s.entry, k * f.n_hidden, f.n_hidden)


@compiled
def _flow(
    layout: Any,
    f: Any,
    h: Any,
    h0: Any,
    dt: Any,
    bias: Any,
    s: Any,
    k: Any,
    out: Any,
    out0: Any,
) -> Any:
    """Take one step from h; keep its stages in place ``k`` of a chunk."""
    n_stages, n, width = len(f.b), f.n_solved, f.n_hidden
    y0, v0 = k * n_stages * n, k * n_stages * width
    last = s.inner if f.deep else s.first
    _enter(layout, f, h, h0, bias, s, y0)
    for i in range(n_stages):
        yi, vi = y0 + i * n, v0 + i * width
        if i > 0:
            _stage_point(layout, f, s.y, y0, s.slopes, dt, i)
        _evaluate(layout, f, bias, s, yi, vi)
        if i + 1 < n_stages or not f.in_hidden_space:
            _slope(layout, f, last, vi, s.slopes, i * n)
    if f.in_hidden_space:
        for r in range(width):
            store(layout, s.mean, k * width + r, _mean(layout, f, last, v0, width, r))
        set_rows(layout, s.slopes, 0, f.bo, f.n_state)
        add_product(layout, f.wo, s.mean, k * width, s.slopes, 0, f.n_state, width)
        for r in range(f.n_state):
            rise = dt * load(layout, s.slopes, r)
            store(layout, out, out0 + r, load(layout, h, h0 + r) + rise)
    else:
        for r in range(n):
            rise = dt * _mean(layout, f, s.slopes, 0, n, r)
            store(layout, out, out0 + r, load(layout, h, h0 + r) + rise)


@compiled
def _later(layout: Any, f: Any, rows: Any, first: Any, n: Any, i: Any, r: Any) -> Any:
    """Return sum over j > i of a_ji times row r of stage j."""
    j = i + 1
    total = load(layout, rows, first + j * n + r) * constant(rows, f.a[j, i])
    for j in range(i + 2, len(f.b)):
        weight = constant(rows, f.a[j, i])
        total = total + load(layout, rows, first + j * n + r) * weight
    return total


@compiled
def _through_layers(layout: Any, f: Any, ft: Any, s: Any, d: Any, v0: Any) -> Any:
    """Turn the gradient by a stage's v into those by what enters its activations."""
    width = f.n_hidden
    if f.deep:
        times_slope(layout, f.activation, d.inner, s.inner, v0, width)
        zero_rows(layout, d.first, v0, width)
        add_product(layout, ft.w2, d.inner, v0, d.first, v0, width, width)
    times_slope(layout, f.activation, d.first, s.first, v0, width)


@compiled
def _flow_backward(
    layout: Any, f: Any, ft: Any, g: Any, by: Any, dt: Any, s: Any, d: Any, k: Any
) -> Any:
    """Turn g, the gradient by the step's end, into that by its start.

    ``by`` is the gradient by dz/dt at the start, where that is an answer too.
    """
    n_stages, n, width = len(f.b), f.n_solved, f.n_hidden
    k0, v0 = k * n_stages * n, k * n_stages * width
    by_last = d.inner if f.deep else d.first
    if f.in_hidden_space:
        for r in range(f.n_state):
            store(layout, d.rise, k * f.n_state + r, dt * load(layout, g, r))
        zero_rows(layout, d.mean, 0, width)
        add_product(layout, ft.wo, d.rise, k * f.n_state, d.mean, 0, width, f.n_state)
    for i in range(n_stages - 1, -1, -1):
        ki, vi = k0 + i * n, v0 + i * width
        weight = constant(g, f.b[i])
        if f.in_hidden_space:
            for r in range(width):
                store(layout, by_last, vi + r, load(layout, d.mean, r) * weight)
            if i + 1 == n_stages:
                zero_rows(layout, d.slopes, ki, width)
            else:
                for r in range(width):
                    later = _later(layout, f, d.first, v0, width, i, r)
                    store(layout, d.slopes, ki + r, dt * later)
                add_product(layout, ft.m, d.slopes, ki, by_last, vi, width, width)
            if i == 0 and f.dense:
                add_product(layout, ft.wo, by, 0, by_last, vi, width, f.n_state)
                _keep_derivative(layout, f, by, s, d, k)
        else:
            for r in range(n):
                by_slope = load(layout, g, r) * weight
                if i + 1 < n_stages:
                    by_slope = by_slope + _later(layout, f, d.y, 0, n, i, r)
                store(layout, d.slopes, ki + r, dt * by_slope)
            if i == 0 and f.dense:
                add_rows(layout, by, 0, d.slopes, ki, n)
            zero_rows(layout, by_last, vi, width)
            add_product(layout, ft.wo, d.slopes, ki, by_last, vi, width, n)
        _through_layers(layout, f, ft, s, d, vi)
        if not f.in_hidden_space:
            zero_rows(layout, d.y, i * n, n)
            add_product(layout, ft.w1, d.first, vi, d.y, i * n, n, width)
    for r in range(width):  # by the first layer's bias, and in hidden space by y
        total = load(layout, d.first, v0 + r)
        for i in range(1, n_stages):
            total = total + load(layout, d.first, v0 + i * width + r)
        store(layout, d.first_sum, k * width + r, total)
    if f.in_hidden_space:
        add_product(layout, ft.w1, d.first_sum, k * width, g, 0, f.n_state, width)
    else:
        for r in range(n):
            total = load(layout, g, r)
            for i in range(n_stages):
                total = total + load(layout, d.y, i * n + r)
            store(layout, g, r, total)


@compiled
def _sum_flow_gradients(layout: Any, f: Any, s: Any, d: Any, n_steps: Any) -> Any:
    """Add the outer products of a chunk of steps to the weights' gradients."""
    n_stages, width, n_state = len(f.b), f.n_hidden, f.n_state
    n_points = n_steps * n_stages
    last = s.inner if f.deep else s.first
    if f.deep:
        add_outer(layout, d.inner, s.first, d.w2, d.b2, n_points, width, width)
    if f.in_hidden_space:
        add_outer(layout, d.slopes, last, d.m, d.c, n_points, width, width)
        add_outer(layout, d.first_sum, d.start, d.w1, d.b1, n_steps, width, n_state)
        add_outer(layout, d.rise, s.mean, d.wo, d.bo, n_steps, n_state, width)
        if f.dense:
            by, entry = d.derivative, s.entry
            add_outer(layout, by, entry, d.wo, d.bo, n_steps, n_state, width)
    else:
        add_outer(layout, d.first, s.y, d.w1, d.b1, n_points, width, n_state)
        add_outer(layout, d.slopes, last, d.wo, d.bo, n_points, n_state, width)


@compiled
def _next_place(layout: Any, f: Any, s: Any, d: Any, used: Any) -> Any:
    """Return the chunk's next place; a full one is summed, and begins anew."""
    if used + 1 < CHUNK:
        return used + 1
    _sum_flow_gradients(layout, f, s, d, CHUNK)
    return 0


# Setting up ---------------------------------------------------------------------------


@compiled
def _field(
    layout: Any, weights: Any, how: Any, dense: Any, arena: Any, top: Any
) -> Any:
    w1, b1, w2, b2, wo, bo, m, c = weights
    deep, in_hidden_space, activation, a, b = how
    width, n_state = w1.shape
    return Field(
        pack(layout, w1, False, arena, top),
        pointer(b1),
        pack(layout, w2, False, arena, top),
        pointer(b2),
        pack(layout, wo, False, arena, top),
        pointer(bo),
        pack(layout, m, False, arena, top),
        pointer(c),
        n_state,
        width,
        width if in_hidden_space else n_state,
        deep,
        in_hidden_space,
        activation,
        a,
        b,
        dense,
    )


@compiled
def _transposed(layout: Any, weights: Any, arena: Any, top: Any) -> Any:
    w1, _, w2, _, wo, _, m, _ = weights
    return Transposed(
        pack(layout, w1, True, arena, top),
        pack(layout, w2, True, arena, top),
        pack(layout, wo, True, arena, top),
        pack(layout, m, True, arena, top),
    )


@compiled
def _stages(layout: Any, f: Any, n_steps: Any, arena: Any, top: Any) -> Any:
    n_lanes, n_stages = lanes_of(layout, arena), len(f.b)
    n_points = n_steps * n_stages * n_lanes
    return Stages(
        allocate(arena, top, n_points * f.n_solved),
        allocate(arena, top, n_points * f.n_hidden),
        allocate(arena, top, n_points * f.n_hidden),
        allocate(arena, top, (n_stages * f.n_solved + f.n_state) * n_lanes),
        allocate(arena, top, n_steps * f.n_hidden * n_lanes),
        allocate(arena, top, n_steps * f.n_hidden * n_lanes),
    )


@compiled
def _adjoints(layout: Any, f: Any, arena: Any, top: Any) -> Any:
    n_lanes, n_stages = lanes_of(layout, arena), len(f.b)
    width, n_state = f.n_hidden, f.n_state
    n_points = CHUNK * n_stages * n_lanes
    return Adjoints(
        allocate(arena, top, n_points * f.n_solved),
        allocate(arena, top, n_points * width),
        allocate(arena, top, n_points * width),
        allocate(arena, top, n_stages * f.n_solved * n_lanes),
        allocate(arena, top, width * n_lanes),
        allocate(arena, top, CHUNK * width * n_lanes),
        allocate(arena, top, CHUNK * n_state * n_lanes),
        allocate(arena, top, CHUNK * n_state * n_lanes),
        allocate(arena, top, CHUNK * n_state * n_lanes),
        allocate(arena, top, width * n_state * n_lanes),
        allocate(arena, top, width * n_lanes),
        allocate(arena, top, width * width * n_lanes),
        allocate(arena, top, width * n_lanes),
        allocate(arena, top, n_state * width * n_lanes),
        allocate(arena, top, n_state * n_lanes),
        allocate(arena, top, width * width * n_lanes),
        allocate(arena, top, width * n_lanes),
    )


@compiled
def _write_flow_gradients(f: Any, d: Any, n_lanes: Any, grads: Any) -> Any:
    w1, b1, w2, b2, wo, bo, m, c = grads
    collect(d.w1, n_lanes, w1)
    collect(d.b1, n_lanes, b1)
    collect(d.wo, n_lanes, wo)
    collect(d.bo, n_lanes, bo)
    if f.deep:
        collect(d.w2, n_lanes, w2)
        collect(d.b2, n_lanes, b2)
    if f.in_hidden_space:
        collect(d.m, n_lanes, m)
        collect(d.c, n_lanes, c)


@compiled
def _set_bias(layout: Any, f: Any, added: Any, n_added: Any, bias: Any) -> Any:
    """Set the first layer's bias, with what the controls add to it."""
    set_rows(layout, bias, 0, f.b1, f.n_hidden)
    for i in range(n_added):
        total = load(layout, bias, i) + load(layout, added, i)
        store(layout, bias, i, total)


# The decoder --------------------------------------------------------------------------


@compiled
def _interpolate(
    points: Any,
    starts: Any,
    ends: Any,
    dt: Any,
    left: Any,
    theta: Any,
    z: Any,
    first: Any,
    n: Any,
) -> Any:
    """Answer at step ``left`` + ``theta`` of ``n`` series, see `decode`."""
    one = constant(theta, 1.0)
    for lane in range(n):
        series = first + lane
        for q in range(left.shape[1]):
            k, x = left[series, q], theta[series, q]
            length, rest = dt[series, k, 0], one - x
            end = x * x * (rest + rest + one)
            by_start, by_end = length * x * rest * rest, -length * x * x * rest
            for r in range(z.shape[2]):
                level = points[lane, k, r]
                value = level + end * (points[lane, k + 1, r] - level)
                if length != 0:  # a step at rest has no derivatives
                    value += by_start * starts[lane, k, r] + by_end * ends[lane, k, r]
                z[series, q, r] = value


@compiled
def _interpolate_backward(
    points: Any,
    starts: Any,
    ends: Any,
    dt: Any,
    left: Any,
    theta: Any,
    grad_z: Any,
    first: Any,
    n: Any,
) -> Any:
    """Set the gradients by ``points``, ``starts`` and ``ends``, see `_interpolate`."""
    one = constant(theta, 1.0)
    for lane in range(n):
        points[lane, :, :] = 0
        starts[lane, :, :] = 0
        ends[lane, :, :] = 0
        series = first + lane
        for q in range(left.shape[1]):
            k, x = left[series, q], theta[series, q]
            length, rest = dt[series, k, 0], one - x
            end = x * x * (rest + rest + one)
            by_start, by_end = length * x * rest * rest, -length * x * x * rest
            for r in range(grad_z.shape[2]):
                g = grad_z[series, q, r]
                points[lane, k, r] += (one - end) * g
                points[lane, k + 1, r] += end * g
                starts[lane, k, r] += by_start * g
                ends[lane, k, r] += by_end * g


@compiled
def _flows(dt: Any, first: Any, n: Any, step: Any) -> Any:
    """Return whether any of ``n`` series flows over a step."""
    if step < dt.shape[1]:
        for lane in range(n):
            if dt[first + lane, step, 0] != 0:
                return True
    return False


@compiled
def decode(
    layout: Any,
    low: Any,
    high: Any,
    weights: Any,
    how: Any,
    z0: Any,
    dt: Any,
    added: Any,
    queries: Any,
    z: Any,
    kept: Any,
    grid: Any,
    arena_array: Any,
) -> Any:
    """Fill ``z`` (series, query, state) of the series from ``low`` to ``high``.

    ``z0`` is (series, 1, state), ``dt`` (series, step, 1), ``added`` what controls add
    to the first layer, (series, step, width), or of width 0. ``queries`` are the step
    of each query, and where in it from 0 to 1, both (series, query). ``kept`` receives
    the states in the order of the blocks, for `decode_backward`. ``grid`` is room for a
    block's states, and for dz/dt at the start and at the end of each step: three arrays
    of (lane, step + 1, state), whose last two overlap where nothing is added.
    """
    arena, top = pointer(arena_array), np.zeros(1, np.int64)
    n_lanes = lanes_of(layout, arena)
    f = _field(layout, weights, how, True, arena, top)
    s = _stages(layout, f, 1, arena, top)
    bias = allocate(arena, top, f.n_hidden * n_lanes)
    control = allocate(arena, top, f.n_hidden * n_lanes)
    step = allocate(arena, top, n_lanes)
    rate = allocate(arena, top, f.n_state * n_lanes)
    states = pointer(kept)
    points, starts, ends = grid
    n_steps, n = dt.shape[1], f.n_state
    controlled = added.shape[2] > 0
    _set_bias(layout, f, control, 0, bias)
    for first in range(low, high, n_lanes):
        count = min(n_lanes, high - first)
        at = first // n_lanes * (n_steps + 1) * n
        gather(z0, first, count, 0, n_lanes, states, at)
        scatter(states, at, points, 0, count, 0, n_lanes)
        for k in range(n_steps):
            if gather(dt, first, count, k, n_lanes, step, 0):
                if controlled:
                    gather(added, first, count, k, n_lanes, control, 0)
                    _set_bias(layout, f, control, f.n_hidden, bias)
                length = load(layout, step, 0)
                _flow(layout, f, states, at, length, bias, s, 0, states, at + n)
                _derivative(layout, f, s, 0, rate)
                scatter(rate, 0, starts, 0, count, k, n_lanes)
                if controlled or not _flows(dt, first, count, k + 1):
                    _enter(layout, f, states, at + n, bias, s, 0)
                    _evaluate(layout, f, bias, s, 0, 0)
                    _derivative(layout, f, s, 0, rate)
                    scatter(rate, 0, ends, 0, count, k, n_lanes)
            else:
                copy_rows(layout, states, at, states, at + n, n)
            at += n
            scatter(states, at, points, 0, count, k + 1, n_lanes)
        left, theta = queries
        _interpolate(points, starts, ends, dt, left, theta, z, first, count)


@compiled
def decode_backward(
    layout: Any,
    low: Any,
    high: Any,
    weights: Any,
    how: Any,
    dt: Any,
    added: Any,
    queries: Any,
    kept: Any,
    grad_z: Any,
    grad_z0: Any,
    grad_added: Any,
    grads: Any,
    grid: Any,
    arena_array: Any,
) -> Any:
    """Fill the gradients by z0, by ``added`` and by the weights."""
    arena, top = pointer(arena_array), np.zeros(1, np.int64)
    n_lanes = lanes_of(layout, arena)
    f = _field(layout, weights, how, True, arena, top)
    ft = _transposed(layout, weights, arena, top)
    s = _stages(layout, f, CHUNK, arena, top)
    d = _adjoints(layout, f, arena, top)
    bias = allocate(arena, top, f.n_hidden * n_lanes)
    control = allocate(arena, top, f.n_hidden * n_lanes)
    step = allocate(arena, top, n_lanes)
    rate = allocate(arena, top, f.n_state * n_lanes)
    g = allocate(arena, top, f.n_state * n_lanes)
    end = allocate(arena, top, f.n_state * n_lanes)
    states = pointer(kept)
    points, starts, ends = grid
    n_steps, n, width = dt.shape[1], f.n_state, f.n_hidden
    controlled = added.shape[2] > 0
    _set_bias(layout, f, control, 0, bias)
    for first in range(low, high, n_lanes):
        count = min(n_lanes, high - first)
        left, theta = queries
        _interpolate_backward(
            points, starts, ends, dt, left, theta, grad_z, first, count
        )
        at = (first // n_lanes * (n_steps + 1) + n_steps) * n
        gather(points, 0, count, n_steps, n_lanes, g, 0)
        used = 0  # places of the chunk
        for k in range(n_steps - 1, -1, -1):
            at -= n
            if gather(dt, first, count, k, n_lanes, step, 0):
                if controlled:
                    gather(added, first, count, k, n_lanes, control, 0)
                    _set_bias(layout, f, control, width, bias)
                    zero_rows(layout, control, 0, width)
                if controlled or not _flows(dt, first, count, k + 1):
                    points_per_place = len(f.b)
                    y0 = used * points_per_place * f.n_solved
                    _enter(layout, f, states, at + n, bias, s, y0)
                    _evaluate(layout, f, bias, s, y0, used * points_per_place * width)
                    copy_rows(layout, states, at + n, d.start, used * n, n)
                    gather(ends, 0, count, k, n_lanes, rate, 0)
                    _derivative_backward(layout, f, ft, rate, g, s, d, used)
                    add_rows(layout, d.first_sum, used * width, control, 0, width)
                    used = _next_place(layout, f, s, d, used)
                length = load(layout, step, 0)
                _flow(layout, f, states, at, length, bias, s, used, end, 0)
                copy_rows(layout, states, at, d.start, used * n, n)
                gather(starts, 0, count, k, n_lanes, rate, 0)
                _flow_backward(layout, f, ft, g, rate, length, s, d, used)
                if controlled:
                    add_rows(layout, d.first_sum, used * width, control, 0, width)
                    scatter(control, 0, grad_added, first, count, k, n_lanes)
                used = _next_place(layout, f, s, d, used)
            gather(points, 0, count, k, n_lanes, rate, 0)
            add_rows(layout, rate, 0, g, 0, n)
        _sum_flow_gradients(layout, f, s, d, used)
        scatter(g, 0, grad_z0, first, count, 0, n_lanes)
    _write_flow_gradients(f, d, n_lanes, grads)


# The encoder --------------------------------------------------------------------------


@compiled
def _gates(layout: Any, cell: Any, hx: Any, hx0: Any, gates: Any) -> Any:
    """Set the gates of a visit: i, f, g, o of an LSTM cell, or a tanh cell's one."""
    w, bias, n, n_in, n_gates = cell
    set_rows(layout, gates, 0, bias, n_gates * n)
    add_product(layout, w, hx, hx0, gates, 0, n_gates * n, n_in)
    if n_gates == 1:
        activate(layout, 0, gates, 0, n)
        return
    half = constant(gates, 0.5)  # sigmoid(x) = (1 + tanh(x / 2)) / 2
    for r in range(2 * n):
        opened = tanh(load(layout, gates, r) * half) * half + half
        store(layout, gates, r, opened)
    activate(layout, 0, gates, 2 * n, n)
    for r in range(3 * n, 4 * n):
        opened = tanh(load(layout, gates, r) * half) * half + half
        store(layout, gates, r, opened)


@compiled
def _visit(
    layout: Any,
    cell: Any,
    hx: Any,
    hx0: Any,
    before: Any,
    before0: Any,
    seen: Any,
    gates: Any,
    squashed: Any,
    after: Any,
    after0: Any,
) -> Any:
    """Update h, and C of an LSTM, where ``seen`` is 1; elsewhere they stay."""
    _, _, n, _, n_gates = cell
    _gates(layout, cell, hx, hx0, gates)
    seen_here = load(layout, seen, 0)
    if n_gates == 1:
        for r in range(n):
            h = load(layout, hx, hx0 + r)
            new = h + seen_here * (load(layout, gates, r) - h)
            store(layout, after, after0 + r, new)
        return
    for r in range(n):
        c = load(layout, before, before0 + n + r)
        h = load(layout, hx, hx0 + r)
        written = load(layout, gates, r) * load(layout, gates, 2 * n + r)
        new_c = load(layout, gates, n + r) * c + written
        t = tanh(new_c)
        store(layout, squashed, r, t)
        store(layout, after, after0 + n + r, c + seen_here * (new_c - c))
        new_h = load(layout, gates, 3 * n + r) * t
        store(layout, after, after0 + r, h + seen_here * (new_h - h))


@compiled
def _visit_backward(
    layout: Any,
    cell: Any,
    before: Any,
    before0: Any,
    seen: Any,
    gates: Any,
    squashed: Any,
    g: Any,
    grad_gates: Any,
    at: Any,
) -> Any:
    """Fill the gradient by what enters the gates; leave in g what passes them by."""
    _, _, n, _, n_gates = cell
    one = constant(g, 1.0)
    seen_here = load(layout, seen, 0)
    if n_gates == 1:
        for r in range(n):
            by_h = load(layout, g, r)
            new = load(layout, gates, r)
            by_new = seen_here * by_h
            store(layout, grad_gates, at + r, by_new * (one - new * new))
            store(layout, g, r, by_h - by_new)
        return
    for r in range(n):
        by_h, by_c = load(layout, g, r), load(layout, g, n + r)
        i, f = load(layout, gates, r), load(layout, gates, n + r)
        new, o = load(layout, gates, 2 * n + r), load(layout, gates, 3 * n + r)
        t = load(layout, squashed, r)
        by_new_h, by_new_c = seen_here * by_h, seen_here * by_c
        store(layout, grad_gates, at + 3 * n + r, by_new_h * t * o * (one - o))
        by_new_c = by_new_c + by_new_h * o * (one - t * t)
        c = load(layout, before, before0 + n + r)
        store(layout, grad_gates, at + r, by_new_c * new * i * (one - i))
        store(layout, grad_gates, at + n + r, by_new_c * c * f * (one - f))
        store(layout, grad_gates, at + 2 * n + r, by_new_c * i * (one - new * new))
        store(layout, g, n + r, by_c - seen_here * by_c + by_new_c * f)
        store(layout, g, r, by_h - by_new_h)


@compiled
def encode(
    layout: Any,
    low: Any,
    high: Any,
    weights: Any,
    how: Any,
    cell_weights: Any,
    x: Any,
    dt: Any,
    seen: Any,
    h: Any,
    kept: Any,
    arena_array: Any,
) -> Any:
    """Fill ``h`` (series, 1, state), the last state of the encoder's walk.

    ``x`` is (series, step, input), ``dt`` and ``seen`` are (series, step, 1);
    ``cell_weights`` are [W_hh, W_ih] and the bias. ``kept`` receives the states after
    each step (C behind h), in the order of the blocks.
    """
    arena, top = pointer(arena_array), np.zeros(1, np.int64)
    n_lanes = lanes_of(layout, arena)
    f = _field(layout, weights, how, False, arena, top)
    s = _stages(layout, f, 1, arena, top)
    w, cell_bias = cell_weights
    n, n_x, n_steps = f.n_state, x.shape[2], dt.shape[1]
    n_gates = w.shape[0] // n
    n_kept = 2 * n if n_gates == 4 else n
    packed = pack(layout, w, False, arena, top)
    cell = (packed, pointer(cell_bias), n, n + n_x, n_gates)
    bias = allocate(arena, top, f.n_hidden * n_lanes)
    step = allocate(arena, top, n_lanes)
    visited = allocate(arena, top, n_lanes)
    hx = allocate(arena, top, (n + n_x) * n_lanes)
    gates = allocate(arena, top, n_gates * n * n_lanes)
    squashed = allocate(arena, top, n * n_lanes)
    states = pointer(kept)
    _set_bias(layout, f, bias, 0, bias)
    for first in range(low, high, n_lanes):
        count = min(n_lanes, high - first)
        at = first // n_lanes * (n_steps + 1) * n_kept
        zero_rows(layout, states, at, n_kept)
        for k in range(n_steps):
            after = at + n_kept
            if gather(dt, first, count, k, n_lanes, step, 0):
                length = load(layout, step, 0)
                _flow(layout, f, states, at, length, bias, s, 0, hx, 0)
            else:
                copy_rows(layout, states, at, hx, 0, n)
            if gather(seen, first, count, k, n_lanes, visited, 0):
                gather(x, first, count, k, n_lanes, hx, n)
                _visit(
                    *(layout, cell, hx, 0, states, at, visited),
                    *(gates, squashed, states, after),
                )
            else:
                copy_rows(layout, hx, 0, states, after, n)
                copy_rows(layout, states, at + n, states, after + n, n_kept - n)
            at = after
        scatter(states, at, h, first, count, 0, n_lanes)


@compiled
def encode_backward(
    layout: Any,
    low: Any,
    high: Any,
    weights: Any,
    how: Any,
    cell_weights: Any,
    x: Any,
    dt: Any,
    seen: Any,
    kept: Any,
    grad_h: Any,
    grad_x: Any,
    grads: Any,
    grad_cell: Any,
    arena_array: Any,
) -> Any:
    """Fill the gradients by x (unless of no step), by the weights and the cell's."""
    arena, top = pointer(arena_array), np.zeros(1, np.int64)
    n_lanes = lanes_of(layout, arena)
    f = _field(layout, weights, how, False, arena, top)
    ft = _transposed(layout, weights, arena, top)
    s = _stages(layout, f, CHUNK, arena, top)
    d = _adjoints(layout, f, arena, top)
    w, cell_bias = cell_weights
    n, n_x, n_steps = f.n_state, x.shape[2], dt.shape[1]
    n_gates = w.shape[0] // n
    n_kept = 2 * n if n_gates == 4 else n
    n_in, n_out = n + n_x, n_gates * n
    cell = (pack(layout, w, False, arena, top), pointer(cell_bias), n, n_in, n_gates)
    by_h = pack(layout, w[:, :n], True, arena, top)
    by_x = pack(layout, w[:, n:], True, arena, top)
    bias = allocate(arena, top, f.n_hidden * n_lanes)
    step = allocate(arena, top, n_lanes)
    visited = allocate(arena, top, n_lanes)
    hx = allocate(arena, top, CHUNK * n_in * n_lanes)
    gates = allocate(arena, top, n_out * n_lanes)
    squashed = allocate(arena, top, n * n_lanes)
    after = allocate(arena, top, n_kept * n_lanes)
    grad_gates = allocate(arena, top, CHUNK * n_out * n_lanes)
    g = allocate(arena, top, n_kept * n_lanes)
    g_x = allocate(arena, top, n_x * n_lanes)
    total_w = allocate(arena, top, n_out * n_in * n_lanes)
    total_bias = allocate(arena, top, n_out * n_lanes)
    states = pointer(kept)
    _set_bias(layout, f, bias, 0, bias)
    for first in range(low, high, n_lanes):
        count = min(n_lanes, high - first)
        at = (first // n_lanes * (n_steps + 1) + n_steps) * n_kept
        zero_rows(layout, g, 0, n_kept)
        gather(grad_h, first, count, 0, n_lanes, g, 0)
        n_flows = n_visits = 0
        for k in range(n_steps - 1, -1, -1):
            at -= n_kept
            flows = gather(dt, first, count, k, n_lanes, step, 0)
            length = load(layout, step, 0)
            hx0 = n_visits * n_in
            if flows:
                _flow(layout, f, states, at, length, bias, s, n_flows, hx, hx0)
            else:
                copy_rows(layout, states, at, hx, hx0, n)
            if gather(seen, first, count, k, n_lanes, visited, 0):
                gather(x, first, count, k, n_lanes, hx, hx0 + n)
                _visit(
                    *(layout, cell, hx, hx0, states, at, visited),
                    *(gates, squashed, after, 0),
                )
                row = n_visits * n_out
                _visit_backward(
                    *(layout, cell, states, at, visited, gates, squashed),
                    *(g, grad_gates, row),
                )
                add_product(layout, by_h, grad_gates, row, g, 0, n, n_out)
                if grad_x.shape[1] > 0:
                    zero_rows(layout, g_x, 0, n_x)
                    add_product(layout, by_x, grad_gates, row, g_x, 0, n_x, n_out)
                    scatter(g_x, 0, grad_x, first, count, k, n_lanes)
                n_visits += 1
            if flows:
                copy_rows(layout, states, at, d.start, n_flows * n, n)
                _flow_backward(layout, f, ft, g, g, length, s, d, n_flows)
                n_flows = _next_place(layout, f, s, d, n_flows)
            if n_visits == CHUNK:
                add_outer(
                    layout, grad_gates, hx, total_w, total_bias, n_visits, n_out, n_in
                )
                n_visits = 0
        _sum_flow_gradients(layout, f, s, d, n_flows)
        add_outer(layout, grad_gates, hx, total_w, total_bias, n_visits, n_out, n_in)
    _write_flow_gradients(f, d, n_lanes, grads)
    grad_w, grad_bias = grad_cell
    collect(total_w, n_lanes, grad_w)
    collect(total_bias, n_lanes, grad_bias)
