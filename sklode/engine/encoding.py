"""The encoder of a batch: flows and cell updates along all steps.

Kernels take arrays as in `sklode.engine.decoding`.
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
    set_product,
)
from sklode.engine.rows import (
    activate,
    copy_rows,
    gather,
    gather_one,
    scatter,
    zero_rows,
)
from sklode.engine.simd import compiled, constant, lanes_of, load, pointer, store, tanh
from sklode.engine.steps import (
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

__all__ = ["encode", "encode_backward"]


class Cell(NamedTuple):
    """A recurrent cell's weights, packed."""

    w: Any  # [W_hh, W_ih]
    bias: Any
    n: Any  # state
    n_in: Any  # state and input
    n_gates: Any  # 4: an LSTM cell, 1: a tanh cell
    n_kept: Any  # h, and C of an LSTM


class Visit(NamedTuple):
    """What an arrival at a stamp needs and computes, in rows."""

    step: Any  # the step's length
    seen: Any  # 1 where the stamp is observed
    hx: Any  # h after the flow, and x
    gates: Any
    squashed: Any  # tanh C


@compiled
def _gates(layout: Any, cell: Any, v: Any, hx0: Any) -> Any:
    """Set the gates of a visit: i, f, g, o of an LSTM cell, or a tanh cell's one."""
    n, gates = cell.n, v.gates
    n_out = cell.n_gates * n
    set_product(layout, cell.w, cell.bias, v.hx, hx0, gates, 0, n_out, cell.n_in)
    if cell.n_gates == 1:
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
    v: Any,
    hx0: Any,
    before: Any,
    before0: Any,
    after: Any,
    after0: Any,
) -> Any:
    """Update h, and C of an LSTM, where the stamp is seen; elsewhere they stay."""
    n, hx, gates, squashed = cell.n, v.hx, v.gates, v.squashed
    _gates(layout, cell, v, hx0)
    seen_here = load(layout, v.seen, 0)
    if cell.n_gates == 1:
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
    v: Any,
    before: Any,
    before0: Any,
    g: Any,
    grad_gates: Any,
    at: Any,
) -> Any:
    """Fill the gradient by what enters the gates; leave in g what passes them by."""
    n, gates, squashed = cell.n, v.gates, v.squashed
    one = constant(g, 1.0)
    seen_here = load(layout, v.seen, 0)
    if cell.n_gates == 1:
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
def _cell(layout: Any, weights: Any, n: Any, n_x: Any, arena: Any, top: Any) -> Any:
    w, bias = weights
    n_gates = w.shape[0] // n
    n_kept = 2 * n if n_gates == 4 else n
    packed = pack(layout, w, False, arena, top)
    return Cell(packed, pointer(bias), n, n + n_x, n_gates, n_kept)


@compiled
def _room(layout: Any, cell: Any, n_steps: Any, arena: Any, top: Any) -> Any:
    n_lanes = lanes_of(layout, arena)
    return Visit(
        allocate(arena, top, n_lanes),
        allocate(arena, top, n_lanes),
        allocate(arena, top, n_steps * cell.n_in * n_lanes),
        allocate(arena, top, cell.n_gates * cell.n * n_lanes),
        allocate(arena, top, cell.n * n_lanes),
    )


@compiled
def _arrive(
    layout: Any,
    f: Any,
    walk: Any,
    first: Any,
    n: Any,
    k: Any,
    states: Any,
    at: Any,
    bias: Any,
    s: Any,
    place: Any,
    v: Any,
    hx0: Any,
) -> Any:
    """Flow to the end of step ``k``, and read x there.

    Return whether anything flowed, and whether anything is seen.
    """
    x, dt, seen = walk
    n_lanes = lanes_of(layout, states)
    flows = gather_one(dt, first, n, k, n_lanes, v.step)
    if flows:
        length = load(layout, v.step, 0)
        flow(layout, f, states, at, length, bias, s, place, v.hx, hx0)
    else:
        copy_rows(layout, states, at, v.hx, hx0, f.n_state)
    visits = gather_one(seen, first, n, k, n_lanes, v.seen)
    if visits:
        gather(x, first, n, k, n_lanes, v.hx, hx0 + f.n_state, 0, x.shape[2])
    return flows, visits


@compiled
def encode(
    layout: Any,
    low: Any,
    high: Any,
    weights: Any,
    how: Any,
    cell_weights: Any,
    walk: Any,
    h: Any,
    kept: Any,
    arena_array: Any,
) -> Any:
    """Fill ``h`` (series, 1, state), the last state of the encoder's walk.

    ``walk`` is x (series, step, input), dt and what is seen, both (series, step, 1);
    ``cell_weights`` are [W_hh, W_ih] and the bias. ``kept`` receives the states after
    each step (C behind h), in the order of the blocks.
    """
    arena, top = pointer(arena_array), np.zeros(1, np.int64)
    n_lanes = lanes_of(layout, arena)
    f = packed_field(layout, weights, how, False, arena, top)
    s = room_for_stages(layout, f, 1, arena, top)
    n, n_steps = f.n_state, walk[1].shape[1]
    cell = _cell(layout, cell_weights, n, walk[0].shape[2], arena, top)
    v = _room(layout, cell, 1, arena, top)
    bias = allocate(arena, top, f.n_hidden * n_lanes)
    n_kept = cell.n_kept
    states = pointer(kept)
    set_bias(layout, f, bias, 0, bias)
    for first in range(low, high, n_lanes):
        count = min(n_lanes, high - first)
        at = first // n_lanes * (n_steps + 1) * n_kept
        zero_rows(layout, states, at, n_kept)
        for k in range(n_steps):
            after = at + n_kept
            where = (first, count, k, states, at)
            if _arrive(layout, f, walk, *where, bias, s, 0, v, 0)[1]:
                _visit(layout, cell, v, 0, states, at, states, after)
            else:
                copy_rows(layout, v.hx, 0, states, after, n)
                copy_rows(layout, states, at + n, states, after + n, n_kept - n)
            at = after
        scatter(states, at, h, first, count, 0, n_lanes, 0, n)


@compiled
def encode_backward(
    layout: Any,
    low: Any,
    high: Any,
    weights: Any,
    how: Any,
    cell_weights: Any,
    walk: Any,
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
    f = packed_field(layout, weights, how, False, arena, top)
    ft = transposed(layout, weights, walk[0].shape[2], arena, top)
    s = room_for_stages(layout, f, CHUNK, arena, top)
    d = room_for_adjoints(layout, f, arena, top)
    w, _ = cell_weights
    n, n_x, n_steps = f.n_state, walk[0].shape[2], walk[1].shape[1]
    cell = _cell(layout, cell_weights, n, n_x, arena, top)
    n_in, n_out, n_kept = cell.n_in, cell.n_gates * n, cell.n_kept
    by_h = pack(layout, w[:, :n], True, arena, top)
    by_x = pack(layout, w[:, n:], True, arena, top)
    bias = allocate(arena, top, f.n_hidden * n_lanes)
    v = _room(layout, cell, CHUNK, arena, top)
    after = allocate(arena, top, n_kept * n_lanes)
    grad_gates = allocate(arena, top, CHUNK * n_out * n_lanes)
    g = allocate(arena, top, n_kept * n_lanes)
    g_x = allocate(arena, top, n_x * n_lanes)
    total_w = allocate(arena, top, n_out * n_in * n_lanes)
    total_bias = allocate(arena, top, n_out * n_lanes)
    states = pointer(kept)
    set_bias(layout, f, bias, 0, bias)
    for first in range(low, high, n_lanes):
        count = min(n_lanes, high - first)
        at = (first // n_lanes * (n_steps + 1) + n_steps) * n_kept
        zero_rows(layout, g, 0, n_kept)
        gather(grad_h, first, count, 0, n_lanes, g, 0, 0, n)
        n_flows = n_visits = 0
        for k in range(n_steps - 1, -1, -1):
            at -= n_kept
            hx0 = n_visits * n_in
            where = (first, count, k, states, at)
            flows, visits = _arrive(layout, f, walk, *where, bias, s, n_flows, v, hx0)
            if visits:
                _visit(layout, cell, v, hx0, states, at, after, 0)
                row = n_visits * n_out
                _visit_backward(layout, cell, v, states, at, g, grad_gates, row)
                add_product(layout, by_h, grad_gates, row, g, 0, n, n_out)
                if grad_x.shape[1] > 0:
                    set_product(
                        layout, by_x, ft.zeros, grad_gates, row, g_x, 0, n_x, n_out
                    )
                    scatter(g_x, 0, grad_x, first, count, k, n_lanes, 0, n_x)
                n_visits += 1
            if flows:
                copy_rows(layout, states, at, d.start, n_flows * n, n)
                length = load(layout, v.step, 0)
                flow_backward(layout, f, ft, g, g, length, s, d, n_flows)
                n_flows = next_place(layout, f, s, d, n_flows)
            if n_visits == CHUNK:
                add_outer(
                    layout, grad_gates, v.hx, total_w, total_bias, n_visits, n_out, n_in
                )
                n_visits = 0
        sum_flow_gradients(layout, f, s, d, n_flows)
        add_outer(layout, grad_gates, v.hx, total_w, total_bias, n_visits, n_out, n_in)
    write_flow_gradients(f, d, n_lanes, grads)
    grad_w, grad_bias = grad_cell
    collect(total_w, n_lanes, grad_w)
    collect(total_bias, n_lanes, grad_bias)
