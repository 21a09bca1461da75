r"""One step of a flow, forward and backward, for a block of series at once.

What a step computes on its way is not kept: the backward pass starts each step from the
state before it and computes it again, which is cheaper than the memory. The gradients
by weights are outer products, summed over a few steps at a time.

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
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sklode.engine.fused import CHUNK
from sklode.engine.products import (
    add_outer,
    add_product,
    allocate,
    collect,
    pack,
    set_product,
)
from sklode.engine.rows import (
    activate,
    add_rows,
    copy_rows,
    set_rows,
    times_slope,
    zero_rows,
)
from sklode.engine.simd import compiled, constant, lanes_of, load, pointer, splat, store

__all__ = [
    "derivative",
    "derivative_backward",
    "enter",
    "evaluate",
    "flow",
    "flow_backward",
    "next_place",
    "packed_field",
    "room_for_adjoints",
    "room_for_stages",
    "set_bias",
    "sum_flow_gradients",
    "transposed",
    "write_flow_gradients",
]


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
    zeros: Any  # what products start from


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
        set_product(layout, f.m, f.c, v, v0, out, out0, f.n_hidden, f.n_hidden)
    else:
        set_product(layout, f.wo, f.bo, v, v0, out, out0, f.n_state, f.n_hidden)


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
def _combine(
    layout: Any,
    weights: Any,
    rows: Any,
    first: Any,
    n: Any,
    n_terms: Any,
    out: Any,
    out0: Any,
) -> Any:
    """Set n rows to a weighted sum of the n rows of up to four stages.

    The weights are read once, not for each row: they could be what is written to.
    """
    w0, w1, w2, w3 = weights
    if n_terms == 1:
        for r in range(n):
            store(layout, out, out0 + r, w0 * load(layout, rows, first + r))
        return
    second, third, fourth = first + n, first + 2 * n, first + 3 * n
    if n_terms == 2:
        for r in range(n):
            total = w0 * load(layout, rows, first + r)
            total = total + w1 * load(layout, rows, second + r)
            store(layout, out, out0 + r, total)
        return
    if n_terms == 3:
        for r in range(n):
            total = w0 * load(layout, rows, first + r)
            total = total + w1 * load(layout, rows, second + r)
            total = total + w2 * load(layout, rows, third + r)
            store(layout, out, out0 + r, total)
        return
    for r in range(n):
        total = w0 * load(layout, rows, first + r) + w1 * load(layout, rows, second + r)
        total = total + w2 * load(layout, rows, third + r)
        total = total + w3 * load(layout, rows, fourth + r)
        store(layout, out, out0 + r, total)


@compiled
def _later(f: Any, i: Any, dt: Any, like: Any) -> Any:
    """Return dt a_ji of the stages j > i, behind them zeros."""
    n_stages, none = len(f.b), dt * constant(like, 0.0)
    w0 = dt * constant(like, f.a[i + 1, i]) if i + 1 < n_stages else none
    w1 = dt * constant(like, f.a[i + 2, i]) if i + 2 < n_stages else none
    w2 = dt * constant(like, f.a[i + 3, i]) if i + 3 < n_stages else none
    return w0, w1, w2, none


@compiled
def _b(f: Any, scale: Any, like: Any) -> Any:
    """Return the weights b_i of all stages times a number, behind them zeros."""
    n_stages, none = len(f.b), scale * constant(like, 0.0)
    w0 = scale * constant(like, f.b[0])
    w1 = scale * constant(like, f.b[1]) if n_stages > 1 else none
    w2 = scale * constant(like, f.b[2]) if n_stages > 2 else none
    w3 = scale * constant(like, f.b[3]) if n_stages > 3 else none
    return w0, w1, w2, w3


@compiled
def enter(layout: Any, f: Any, h: Any, h0: Any, bias: Any, s: Any, y0: Any) -> Any:
    """Set y of a first stage."""
    if f.in_hidden_space:
        copy_rows(layout, bias, 0, s.y, y0, f.n_hidden)
        add_product(layout, f.w1, h, h0, s.y, y0, f.n_hidden, f.n_state)
    else:
        copy_rows(layout, h, h0, s.y, y0, f.n_state)


@compiled
def evaluate(layout: Any, f: Any, bias: Any, s: Any, yi: Any, vi: Any) -> Any:
    """Set a stage's activations from its y."""
    width = f.n_hidden
    if f.in_hidden_space:
        copy_rows(layout, s.y, yi, s.first, vi, width)
    else:
        copy_rows(layout, bias, 0, s.first, vi, width)
        add_product(layout, f.w1, s.y, yi, s.first, vi, width, f.n_state)
    activate(layout, f.activation, s.first, vi, width)
    if f.deep:
        set_product(layout, f.w2, f.b2, s.first, vi, s.inner, vi, width, width)
        activate(layout, f.activation, s.inner, vi, width)


@compiled
def derivative(layout: Any, f: Any, s: Any, k: Any, out: Any) -> Any:
    """Set rows to f where place ``k`` of a chunk starts."""
    last = s.inner if f.deep else s.first
    v0 = k * len(f.b) * f.n_hidden
    set_product(layout, f.wo, f.bo, last, v0, out, 0, f.n_state, f.n_hidden)


@compiled
def derivative_backward(
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
def flow(
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
    enter(layout, f, h, h0, bias, s, y0)
    for i in range(n_stages):
        yi, vi = y0 + i * n, v0 + i * width
        if i > 0:
            _stage_point(layout, f, s.y, y0, s.slopes, dt, i)
        evaluate(layout, f, bias, s, yi, vi)
        if i + 1 < n_stages or not f.in_hidden_space:
            _slope(layout, f, last, vi, s.slopes, i * n)
    if f.in_hidden_space:
        one = splat(layout, h, constant(h, 1.0))
        weights = _b(f, one, h)
        _combine(layout, weights, last, v0, width, n_stages, s.mean, k * width)
        set_product(
            layout, f.wo, f.bo, s.mean, k * width, s.slopes, 0, f.n_state, width
        )
        for r in range(f.n_state):
            rise = dt * load(layout, s.slopes, r)
            store(layout, out, out0 + r, load(layout, h, h0 + r) + rise)
    else:
        weights = _b(f, dt, h)
        _combine(layout, weights, s.slopes, 0, n, n_stages, out, out0)
        add_rows(layout, h, h0, out, out0, n)


@compiled
def _through_layers(layout: Any, f: Any, ft: Any, s: Any, d: Any, v0: Any) -> Any:
    """Turn the gradient by a stage's v into those by what enters its activations."""
    width = f.n_hidden
    if f.deep:
        times_slope(layout, f.activation, d.inner, s.inner, v0, width)
        set_product(layout, ft.w2, ft.zeros, d.inner, v0, d.first, v0, width, width)
    times_slope(layout, f.activation, d.first, s.first, v0, width)


@compiled
def flow_backward(
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
        set_product(
            layout, ft.wo, ft.zeros, d.rise, k * f.n_state, d.mean, 0, width, f.n_state
        )
    for i in range(n_stages - 1, -1, -1):
        ki, vi = k0 + i * n, v0 + i * width
        weight = constant(g, f.b[i])
        if f.in_hidden_space:
            for r in range(width):
                store(layout, by_last, vi + r, load(layout, d.mean, r) * weight)
            if i + 1 == n_stages:
                zero_rows(layout, d.slopes, ki, width)
            else:
                later, n_later = _later(f, i, dt, g), n_stages - i - 1
                above = vi + width
                _combine(layout, later, d.first, above, width, n_later, d.slopes, ki)
                add_product(layout, ft.m, d.slopes, ki, by_last, vi, width, width)
            if i == 0 and f.dense:
                add_product(layout, ft.wo, by, 0, by_last, vi, width, f.n_state)
                _keep_derivative(layout, f, by, s, d, k)
        else:
            if i + 1 < n_stages:
                later, n_later = _later(f, i, dt, g), n_stages - i - 1
                above = (i + 1) * n
                _combine(layout, later, d.y, above, n, n_later, d.slopes, ki)
            else:
                zero_rows(layout, d.slopes, ki, n)
            for r in range(n):
                by_slope = load(layout, d.slopes, ki + r)
                by_end = weight * dt * load(layout, g, r)
                store(layout, d.slopes, ki + r, by_slope + by_end)
            if i == 0 and f.dense:
                add_rows(layout, by, 0, d.slopes, ki, n)
            set_product(layout, ft.wo, ft.zeros, d.slopes, ki, by_last, vi, width, n)
        _through_layers(layout, f, ft, s, d, vi)
        if not f.in_hidden_space:
            set_product(layout, ft.w1, ft.zeros, d.first, vi, d.y, i * n, n, width)
    one = splat(layout, g, constant(g, 1.0))
    ones = one, one, one, one
    # by the first layer's bias, and in hidden space by y
    _combine(layout, ones, d.first, v0, width, n_stages, d.first_sum, k * width)
    if f.in_hidden_space:
        add_product(layout, ft.w1, d.first_sum, k * width, g, 0, f.n_state, width)
    else:
        _combine(layout, ones, d.y, 0, n, n_stages, d.y, 0)
        add_rows(layout, d.y, 0, g, 0, n)


@compiled
def sum_flow_gradients(layout: Any, f: Any, s: Any, d: Any, n_steps: Any) -> Any:
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
def next_place(layout: Any, f: Any, s: Any, d: Any, used: Any) -> Any:
    """Return the chunk's next place; a full one is summed, and begins anew."""
    if used + 1 < CHUNK:
        return used + 1
    sum_flow_gradients(layout, f, s, d, CHUNK)
    return 0


# Setting up ---------------------------------------------------------------------------


@compiled
def packed_field(
    layout: Any, weights: Any, how: Any, dense: Any, arena: Any, top: Any
) -> Any:
    """Return a field as kernels read it."""
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
def transposed(layout: Any, weights: Any, n_zeros: Any, arena: Any, top: Any) -> Any:
    """Return the transposes of its weights."""
    w1, _, w2, _, wo, _, m, _ = weights
    return Transposed(
        pack(layout, w1, True, arena, top),
        pack(layout, w2, True, arena, top),
        pack(layout, wo, True, arena, top),
        pack(layout, m, True, arena, top),
        allocate(arena, top, max(w1.shape[0], w1.shape[1], n_zeros)),
    )


@compiled
def room_for_stages(layout: Any, f: Any, n_steps: Any, arena: Any, top: Any) -> Any:
    """Return room for the stages of so many steps."""
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
def room_for_adjoints(layout: Any, f: Any, arena: Any, top: Any) -> Any:
    """Return room for the gradients of a chunk of steps."""
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
def write_flow_gradients(f: Any, d: Any, n_lanes: Any, grads: Any) -> Any:
    """Write the weights' gradients into arrays."""
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
def set_bias(layout: Any, f: Any, added: Any, n_added: Any, bias: Any) -> Any:
    """Set the first layer's bias, with what the controls add to it."""
    set_rows(layout, bias, 0, f.b1, f.n_hidden)
    for i in range(n_added):
        total = load(layout, bias, i) + load(layout, added, i)
        store(layout, bias, i, total)
