r"""The emission network of many latent states at once, forward and backward.

x = W_2 v + b_2 with v = tanh(W_1 z + b_1). Backward, with g the gradient by x:
dv = W_2^T g and da = (1 - v^2) dv, so that z receives W_1^T da, and the layers the
outer products of g with v and of da with z, summed over the states.

The states of all series and stamps stand side by side, as lanes; v is computed again in
the backward pass.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sklode.engine.fused import CHUNK
from sklode.engine.products import add_outer, allocate, collect, pack, set_product
from sklode.engine.rows import activate, gather, scatter, times_slope
from sklode.engine.simd import compiled, lanes_of, pointer

__all__ = ["emit", "emit_backward"]


@compiled
def emit(
    low: Any,
    high: Any,
    weights: Any,
    z: Any,
    x: Any,
    arena_array: Any,
) -> Any:
    """Fill ``x`` (state, 1, channel) from ``z`` (state, 1, feature) in a range."""
    arena, top = pointer(arena_array), np.zeros(1, np.int64)
    n_lanes = lanes_of(None, arena)
    w1, b1, w2, b2 = weights
    (width, n_in), n_out = w1.shape, len(w2)
    first_layer = pack(None, w1, False, arena, top)
    output = pack(None, w2, False, arena, top)
    read = allocate(arena, top, n_in * n_lanes)
    hidden = allocate(arena, top, width * n_lanes)
    out = allocate(arena, top, n_out * n_lanes)
    for first in range(low, high, n_lanes):
        count = min(n_lanes, high - first)
        gather(z, first, count, 0, n_lanes, read, 0, 0, n_in)
        set_product(None, first_layer, pointer(b1), read, 0, hidden, 0, width, n_in)
        activate(None, 0, hidden, 0, width)
        set_product(None, output, pointer(b2), hidden, 0, out, 0, n_out, width)
        scatter(out, 0, x, first, count, 0, n_lanes, 0, n_out)


@compiled
def emit_backward(
    low: Any,
    high: Any,
    weights: Any,
    z: Any,
    grad_x: Any,
    grad_z: Any,
    grads: Any,
    arena_array: Any,
) -> Any:
    """Fill the gradients by ``z`` and by the weights."""
    arena, top = pointer(arena_array), np.zeros(1, np.int64)
    n_lanes = lanes_of(None, arena)
    w1, b1, w2, _ = weights
    (width, n_in), n_out = w1.shape, len(w2)
    first_layer = pack(None, w1, False, arena, top)
    by_first = pack(None, w1, True, arena, top)
    by_output = pack(None, w2, True, arena, top)
    read = allocate(arena, top, CHUNK * n_in * n_lanes)
    hidden = allocate(arena, top, CHUNK * width * n_lanes)
    by_hidden = allocate(arena, top, CHUNK * width * n_lanes)
    by_out = allocate(arena, top, CHUNK * n_out * n_lanes)
    by_read = allocate(arena, top, n_in * n_lanes)
    zeros = allocate(arena, top, max(width, n_in))
    total_w1 = allocate(arena, top, width * n_in * n_lanes)
    total_b1 = allocate(arena, top, width * n_lanes)
    total_w2 = allocate(arena, top, n_out * width * n_lanes)
    total_b2 = allocate(arena, top, n_out * n_lanes)
    used = 0
    for first in range(low, high, n_lanes):
        count = min(n_lanes, high - first)
        i, h, o = used * n_in, used * width, used * n_out
        gather(z, first, count, 0, n_lanes, read, i, 0, n_in)
        set_product(None, first_layer, pointer(b1), read, i, hidden, h, width, n_in)
        activate(None, 0, hidden, h, width)
        gather(grad_x, first, count, 0, n_lanes, by_out, o, 0, n_out)
        set_product(None, by_output, zeros, by_out, o, by_hidden, h, width, n_out)
        times_slope(None, 0, by_hidden, hidden, h, width)
        set_product(None, by_first, zeros, by_hidden, h, by_read, 0, n_in, width)
        scatter(by_read, 0, grad_z, first, count, 0, n_lanes, 0, n_in)
        used += 1
        if used == CHUNK or first + n_lanes >= high:
            add_outer(None, by_hidden, read, total_w1, total_b1, used, width, n_in)
            add_outer(None, by_out, hidden, total_w2, total_b2, used, n_out, width)
            used = 0
    grad_w1, grad_b1, grad_w2, grad_b2 = grads
    collect(total_w1, n_lanes, grad_w1)
    collect(total_b1, n_lanes, grad_b1)
    collect(total_w2, n_lanes, grad_w2)
    collect(total_b2, n_lanes, grad_b2)
