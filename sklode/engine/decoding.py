"""The decoder of a batch: all steps of its grid, and answers between them.

A block of series goes through all its steps before the next block begins. Between grid
points the answer is the cubic Hermite interpolant of z and dz/dt at both ends of a
step. With a control held over each step dz/dt jumps at the grid points, and a step's
end has a derivative of its own; otherwise it is that of the next start.

Kernels take arrays of (series, step, feature) and write into arrays that the caller
made. ``arena`` is working memory that belongs to the call.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sklode.engine.fused import CHUNK
from sklode.engine.products import allocate
from sklode.engine.rows import (
    add_rows,
    copy_rows,
    gather,
    gather_one,
    scatter,
    zero_rows,
)
from sklode.engine.simd import compiled, constant, lanes_of, load, pointer
from sklode.engine.steps import (
    derivative,
    derivative_backward,
    enter,
    evaluate,
    flow,
    flow_backward,
    next_place,
    packed_field,
    room_for_adjoints,
    room_for_stages,
    set_bias,
    sum_flow_gradients,
    transposed,
    write_flow_gradients,
)

__all__ = ["decode", "decode_backward"]


@compiled
def _weights(theta: Any, length: Any, like: Any) -> Any:
    """Return the weights of z and of dz/dt at a step's start, then at its end."""
    one = constant(like, 1.0)
    rest = one - theta
    end = theta * theta * (rest + rest + one)
    by_start, by_end = length * theta * rest * rest, length * theta * theta * rest
    return one - end, by_start, end, -by_end


@compiled
def _interpolate(
    grid: Any,
    dt: Any,
    queries: Any,
    at_end: Any,
    z: Any,
    first: Any,
    n: Any,
) -> Any:
    """Answer the queries of ``n`` series, see `decode`."""
    left, theta = queries
    n_state = z.shape[2]
    for lane in range(n):
        series = first + lane
        for q in range(left.shape[1]):
            k = left[series, q]
            w0, w1, w2, w3 = _weights(theta[series, q], dt[series, k, 0], dt)
            start, end, out = grid[lane, k], grid[lane, k + 1], z[series, q]
            for r in range(n_state):
                out[r] = w0 * start[r] + w2 * end[r]
            if dt[series, k, 0] != 0:  # a step at rest has no derivatives
                for r in range(n_state):
                    out[r] += w1 * start[n_state + r] + w3 * end[at_end + r]


@compiled
def _interpolate_backward(
    grid: Any,
    dt: Any,
    queries: Any,
    at_end: Any,
    grad_z: Any,
    first: Any,
    n: Any,
) -> Any:
    """Set the gradients by the grid."""
    left, theta = queries
    n_state = grad_z.shape[2]
    for lane in range(n):
        grid[lane, :, :] = 0
        series = first + lane
        for q in range(left.shape[1]):
            k = left[series, q]
            w0, w1, w2, w3 = _weights(theta[series, q], dt[series, k, 0], dt)
            start, end, by = grid[lane, k], grid[lane, k + 1], grad_z[series, q]
            for r in range(n_state):
                start[r] += w0 * by[r]
            for r in range(n_state):
                start[n_state + r] += w1 * by[r]
            for r in range(n_state):
                end[r] += w2 * by[r]
            for r in range(n_state):
                end[at_end + r] += w3 * by[r]


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
    the states in the order of the blocks, for `decode_backward`. ``grid`` is room for
    what a block's queries read, (lane, step + 1, 2 or 3 states): z, dz/dt of the step
    that starts there and, where controls are added, of the step that ends there.
    """
    arena, top = pointer(arena_array), np.zeros(1, np.int64)
    n_lanes = lanes_of(layout, arena)
    f = packed_field(layout, weights, how, True, arena, top)
    s = room_for_stages(layout, f, 1, arena, top)
    bias = allocate(arena, top, f.n_hidden * n_lanes)
    control = allocate(arena, top, f.n_hidden * n_lanes)
    step = allocate(arena, top, n_lanes)
    rate = allocate(arena, top, f.n_state * n_lanes)
    states = pointer(kept)
    n_steps, n = dt.shape[1], f.n_state
    controlled = added.shape[2] > 0
    at_end = 2 * n if controlled else n
    set_bias(layout, f, control, 0, bias)
    for first in range(low, high, n_lanes):
        count = min(n_lanes, high - first)
        at = first // n_lanes * (n_steps + 1) * n
        gather(z0, first, count, 0, n_lanes, states, at, 0, n)
        scatter(states, at, grid, 0, count, 0, n_lanes, 0, n)
        for k in range(n_steps):
            if gather_one(dt, first, count, k, n_lanes, step):
                if controlled:
                    gather(added, first, count, k, n_lanes, control, 0, 0, f.n_hidden)
                    set_bias(layout, f, control, f.n_hidden, bias)
                length = load(layout, step, 0)
                flow(layout, f, states, at, length, bias, s, 0, states, at + n)
                derivative(layout, f, s, 0, rate)
                scatter(rate, 0, grid, 0, count, k, n_lanes, n, n)
                if controlled or not _flows(dt, first, count, k + 1):
                    enter(layout, f, states, at + n, bias, s, 0)
                    evaluate(layout, f, bias, s, 0, 0)
                    derivative(layout, f, s, 0, rate)
                    scatter(rate, 0, grid, 0, count, k + 1, n_lanes, at_end, n)
            else:
                copy_rows(layout, states, at, states, at + n, n)
            at += n
            scatter(states, at, grid, 0, count, k + 1, n_lanes, 0, n)
        _interpolate(grid, dt, queries, at_end, z, first, count)


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
    f = packed_field(layout, weights, how, True, arena, top)
    ft = transposed(layout, weights, 0, arena, top)
    s = room_for_stages(layout, f, CHUNK, arena, top)
    d = room_for_adjoints(layout, f, arena, top)
    bias = allocate(arena, top, f.n_hidden * n_lanes)
    control = allocate(arena, top, f.n_hidden * n_lanes)
    step = allocate(arena, top, n_lanes)
    rate = allocate(arena, top, f.n_state * n_lanes)
    g = allocate(arena, top, f.n_state * n_lanes)
    end = allocate(arena, top, f.n_state * n_lanes)
    states = pointer(kept)
    n_steps, n, width = dt.shape[1], f.n_state, f.n_hidden
    controlled = added.shape[2] > 0
    at_end = 2 * n if controlled else n
    set_bias(layout, f, control, 0, bias)
    for first in range(low, high, n_lanes):
        count = min(n_lanes, high - first)
        _interpolate_backward(grid, dt, queries, at_end, grad_z, first, count)
        at = (first // n_lanes * (n_steps + 1) + n_steps) * n
        gather(grid, 0, count, n_steps, n_lanes, g, 0, 0, n)
        used = 0  # places of the chunk
        for k in range(n_steps - 1, -1, -1):
            at -= n
            if gather_one(dt, first, count, k, n_lanes, step):
                if controlled:
                    gather(added, first, count, k, n_lanes, control, 0, 0, f.n_hidden)
                    set_bias(layout, f, control, width, bias)
                    zero_rows(layout, control, 0, width)
                if controlled or not _flows(dt, first, count, k + 1):
                    points_per_place = len(f.b)
                    y0 = used * points_per_place * f.n_solved
                    enter(layout, f, states, at + n, bias, s, y0)
                    evaluate(layout, f, bias, s, y0, used * points_per_place * width)
                    copy_rows(layout, states, at + n, d.start, used * n, n)
                    gather(grid, 0, count, k + 1, n_lanes, rate, 0, at_end, n)
                    derivative_backward(layout, f, ft, rate, g, s, d, used)
                    add_rows(layout, d.first_sum, used * width, control, 0, width)
                    used = next_place(layout, f, s, d, used)
                length = load(layout, step, 0)
                flow(layout, f, states, at, length, bias, s, used, end, 0)
                copy_rows(layout, states, at, d.start, used * n, n)
                gather(grid, 0, count, k, n_lanes, rate, 0, n, n)
                flow_backward(layout, f, ft, g, rate, length, s, d, used)
                if controlled:
                    add_rows(layout, d.first_sum, used * width, control, 0, width)
                    scatter(control, 0, grad_added, first, count, k, n_lanes, 0, width)
                used = next_place(layout, f, s, d, used)
            gather(grid, 0, count, k, n_lanes, rate, 0, 0, n)
            add_rows(layout, rate, 0, g, 0, n)
        sum_flow_gradients(layout, f, s, d, used)
        scatter(g, 0, grad_z0, first, count, 0, n_lanes, 0, n)
    write_flow_gradients(f, d, n_lanes, grads)
