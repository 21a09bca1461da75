"""Products of small matrices with the units of a layout (see `sklode.engine.simd`).

Weights are packed once a call into the order in which a product reads them. In lanes
every product keeps up to 12 rows of its result in registers; of a single series it
keeps four vectors of neighbouring neurons.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import overload

from sklode.engine.simd import (
    compiled,
    constant,
    lanes_of,
    load,
    load_number,
    load_vector,
    shifted,
    store,
    store_number,
    store_vector,
    tile_of_outer,
    tile_of_product,
)

__all__ = [
    "add_outer",
    "add_product",
    "allocate",
    "collect",
    "pack",
    "set_product",
]

TALLEST = 12
"""Rows of a register tile: with a weight and an input they fill the 16 of AVX2."""


@compiled
def allocate(arena: Any, top: Any, n_numbers: Any) -> Any:
    """Take numbers from the arena, set them to zero and return their address.

    ``top`` is an array of one int: how much of the arena is taken.
    """
    start = top[0]
    top[0] = start + ((n_numbers + 47) // 16) * 16  # whole vectors, and one to spare
    memory = shifted(arena, start)
    for i in range(n_numbers):
        store_number(memory, i, constant(memory, 0.0))  # no sum: it may hold anything
    return memory


def pack(layout: Any, w: Any, transpose: Any, arena: Any, top: Any) -> Any:
    """Return a copy of a matrix, or of its transpose, in the order of `add_product`."""


@overload(pack, strict=False)
def _pack(layout: Any, w: Any, transpose: Any, arena: Any, top: Any) -> Any:
    def in_tiles(layout: Any, w: Any, transpose: Any, arena: Any, top: Any) -> Any:
        n_out, n_in = w.shape
        if transpose:
            n_out, n_in = n_in, n_out
        packed = allocate(arena, top, n_out * n_in)
        n_tiles = (n_out + TALLEST - 1) // TALLEST
        first = position = 0
        for tile in range(n_tiles):
            height = (n_out - first + n_tiles - tile - 1) // (n_tiles - tile)
            for k in range(n_in):
                for j in range(first, first + height):
                    value = w[k, j] if transpose else w[j, k]
                    store_number(packed, position, value)
                    position += 1
            first += height
        return packed

    def by_input(layout: Any, w: Any, transpose: Any, arena: Any, top: Any) -> Any:
        n_out, n_in = w.shape
        if transpose:
            n_out, n_in = n_in, n_out
        packed = allocate(arena, top, n_out * n_in)
        for k in range(n_in):
            for j in range(n_out):
                value = w[k, j] if transpose else w[j, k]
                store_number(packed, k * n_out + j, value)
        return packed

    return in_tiles if isinstance(layout, types.NoneType) else by_input


def add_product(
    layout: Any, w: Any, x: Any, x0: Any, out: Any, out0: Any, n_out: Any, n_in: Any
) -> Any:
    """Add W x to rows of ``out``; ``w`` comes from `pack`."""


@overload(add_product, strict=False)
def _add_product(
    layout: Any, w: Any, x: Any, x0: Any, out: Any, out0: Any, n_out: Any, n_in: Any
) -> Any:
    lanes = isinstance(layout, types.NoneType)
    return _add_product_in_lanes if lanes else _add_product_of_one


@compiled
def _tile(
    w: Any,
    w0: Any,
    x: Any,
    x0: Any,
    n_in: Any,
    out: Any,
    o: Any,
    h: Any,
    anew: Any,
    bias: Any,
) -> Any:
    # a register tile has a fixed height
    if h == 1:
        tile_of_product(w, w0, x, x0, n_in, out, o, 1, anew, bias)
    elif h == 2:
        tile_of_product(w, w0, x, x0, n_in, out, o, 2, anew, bias)
    elif h == 3:
        tile_of_product(w, w0, x, x0, n_in, out, o, 3, anew, bias)
    elif h == 4:
        tile_of_product(w, w0, x, x0, n_in, out, o, 4, anew, bias)
    elif h == 5:
        tile_of_product(w, w0, x, x0, n_in, out, o, 5, anew, bias)
    elif h == 6:
        tile_of_product(w, w0, x, x0, n_in, out, o, 6, anew, bias)
    elif h == 7:
        tile_of_product(w, w0, x, x0, n_in, out, o, 7, anew, bias)
    elif h == 8:
        tile_of_product(w, w0, x, x0, n_in, out, o, 8, anew, bias)
    elif h == 9:
        tile_of_product(w, w0, x, x0, n_in, out, o, 9, anew, bias)
    elif h == 10:
        tile_of_product(w, w0, x, x0, n_in, out, o, 10, anew, bias)
    elif h == 11:
        tile_of_product(w, w0, x, x0, n_in, out, o, 11, anew, bias)
    else:
        tile_of_product(w, w0, x, x0, n_in, out, o, 12, anew, bias)


def _add_product_in_lanes(
    layout: Any, w: Any, x: Any, x0: Any, out: Any, out0: Any, n_out: Any, n_in: Any
) -> Any:
    _product_in_lanes(w, x, x0, out, out0, n_out, n_in, False, w)


@compiled
def _product_in_lanes(
    w: Any,
    x: Any,
    x0: Any,
    out: Any,
    out0: Any,
    n_out: Any,
    n_in: Any,
    anew: Any,
    bias: Any,
) -> Any:
    n_tiles = (n_out + TALLEST - 1) // TALLEST
    first = 0
    for tile in range(n_tiles):
        height = (n_out - first + n_tiles - tile - 1) // (n_tiles - tile)
        o, b = out0 + first, shifted(bias, first)
        _tile(w, first * n_in, x, x0, n_in, out, o, height, anew, b)
        first += height


def set_product(
    layout: Any,
    w: Any,
    bias: Any,
    x: Any,
    x0: Any,
    out: Any,
    out0: Any,
    n_out: Any,
    n_in: Any,
) -> Any:
    """Set rows of ``out`` to W x + b; ``w`` comes from `pack`."""


@overload(set_product, strict=False)
def _set_product(
    layout: Any,
    w: Any,
    bias: Any,
    x: Any,
    x0: Any,
    out: Any,
    out0: Any,
    n_out: Any,
    n_in: Any,
) -> Any:
    if isinstance(layout, types.NoneType):
        return _set_product_in_lanes
    return _set_product_of_one


def _set_product_in_lanes(
    layout: Any,
    w: Any,
    bias: Any,
    x: Any,
    x0: Any,
    out: Any,
    out0: Any,
    n_out: Any,
    n_in: Any,
) -> Any:
    _product_in_lanes(w, x, x0, out, out0, n_out, n_in, True, bias)


def _set_product_of_one(
    layout: Any,
    w: Any,
    bias: Any,
    x: Any,
    x0: Any,
    out: Any,
    out0: Any,
    n_out: Any,
    n_in: Any,
) -> Any:
    for j in range(n_out):
        store_number(out, out0 + j, load_number(bias, j))
    add_product(layout, w, x, x0, out, out0, n_out, n_in)


def _add_product_of_one(
    layout: Any, w: Any, x: Any, x0: Any, out: Any, out0: Any, n_out: Any, n_in: Any
) -> Any:
    width = lanes_of(None, out)
    j = 0
    while j + 4 * width <= n_out:  # four vectors of sums, over even and odd inputs
        o = out0 + j
        a0, a1 = load_vector(out, o), load_vector(out, o + width)
        a2, a3 = load_vector(out, o + 2 * width), load_vector(out, o + 3 * width)
        b0 = a0 * 0.0
        b1, b2, b3 = b0, b0, b0
        k, p = 0, j
        while k + 1 < n_in:
            s, t = load_number(x, x0 + k), load_number(x, x0 + k + 1)
            q = p + n_out
            a0 = a0 + s * load_vector(w, p)
            a1 = a1 + s * load_vector(w, p + width)
            a2 = a2 + s * load_vector(w, p + 2 * width)
            a3 = a3 + s * load_vector(w, p + 3 * width)
            b0 = b0 + t * load_vector(w, q)
            b1 = b1 + t * load_vector(w, q + width)
            b2 = b2 + t * load_vector(w, q + 2 * width)
            b3 = b3 + t * load_vector(w, q + 3 * width)
            p += 2 * n_out
            k += 2
        if k < n_in:
            s = load_number(x, x0 + k)
            a0 = a0 + s * load_vector(w, p)
            a1 = a1 + s * load_vector(w, p + width)
            a2 = a2 + s * load_vector(w, p + 2 * width)
            a3 = a3 + s * load_vector(w, p + 3 * width)
        store_vector(out, o, a0 + b0)
        store_vector(out, o + width, a1 + b1)
        store_vector(out, o + 2 * width, a2 + b2)
        store_vector(out, o + 3 * width, a3 + b3)
        j += 4 * width
    while j + width <= n_out:  # one vector, four sums of every fourth input
        a0 = load_vector(out, out0 + j)
        b0 = a0 * 0.0
        c0, d0 = b0, b0
        k, p = 0, j
        while k + 3 < n_in:
            a0 = a0 + load_number(x, x0 + k) * load_vector(w, p)
            b0 = b0 + load_number(x, x0 + k + 1) * load_vector(w, p + n_out)
            c0 = c0 + load_number(x, x0 + k + 2) * load_vector(w, p + 2 * n_out)
            d0 = d0 + load_number(x, x0 + k + 3) * load_vector(w, p + 3 * n_out)
            p += 4 * n_out
            k += 4
        while k < n_in:
            a0 = a0 + load_number(x, x0 + k) * load_vector(w, p)
            p += n_out
            k += 1
        store_vector(out, out0 + j, (a0 + b0) + (c0 + d0))
        j += width
    while j < n_out:
        total = load_number(out, out0 + j)
        for k in range(n_in):
            total += load_number(x, x0 + k) * load_number(w, k * n_out + j)
        store_number(out, out0 + j, total)
        j += 1


def add_outer(
    layout: Any,
    left: Any,
    right: Any,
    total: Any,
    total_bias: Any,
    n_terms: Any,
    n_left: Any,
    n_right: Any,
) -> Any:
    """Add the outer products of many terms: a weight's gradient, and its bias's.

    Term t is ``left`` from row t n_left on, and ``right`` from row t n_right on. In
    lanes the sums stay apart lane by lane until `collect`.
    """


@overload(add_outer, strict=False)
def _add_outer(
    layout: Any,
    left: Any,
    right: Any,
    total: Any,
    total_bias: Any,
    n_terms: Any,
    n_left: Any,
    n_right: Any,
) -> Any:
    lanes = isinstance(layout, types.NoneType)
    return _add_outer_in_lanes if lanes else _add_outer_of_one


def _add_outer_in_lanes(
    layout: Any,
    left: Any,
    right: Any,
    total: Any,
    total_bias: Any,
    n_terms: Any,
    n_left: Any,
    n_right: Any,
) -> Any:
    for j in range(0, n_left - 3, 4):
        whole = n_right // 4 * 4
        for k in range(0, whole, 4):
            at = j * n_right + k
            tile_of_outer(left, j, right, k, total, at, n_terms, n_left, n_right, 4, 4)
        for k in range(whole, n_right):
            at = j * n_right + k
            tile_of_outer(left, j, right, k, total, at, n_terms, n_left, n_right, 4, 1)
    for j in range(n_left // 4 * 4, n_left):
        whole = n_right // 4 * 4
        for k in range(0, whole, 4):
            at = j * n_right + k
            tile_of_outer(left, j, right, k, total, at, n_terms, n_left, n_right, 1, 4)
        for k in range(whole, n_right):
            at = j * n_right + k
            tile_of_outer(left, j, right, k, total, at, n_terms, n_left, n_right, 1, 1)
    for j in range(n_left):
        kept = load(None, total_bias, j)
        for t in range(n_terms):
            kept = kept + load(None, left, t * n_left + j)
        store(None, total_bias, j, kept)


def _add_outer_of_one(
    layout: Any,
    left: Any,
    right: Any,
    total: Any,
    total_bias: Any,
    n_terms: Any,
    n_left: Any,
    n_right: Any,
) -> Any:
    width = lanes_of(None, left)
    for j in range(n_left):
        k, row = 0, j * n_right
        while k + 4 * width <= n_right:
            o = row + k
            a0, a1 = load_vector(total, o), load_vector(total, o + width)
            a2 = load_vector(total, o + 2 * width)
            a3 = load_vector(total, o + 3 * width)
            for t in range(n_terms):
                d, p = load_number(left, t * n_left + j), t * n_right + k
                a0 = a0 + d * load_vector(right, p)
                a1 = a1 + d * load_vector(right, p + width)
                a2 = a2 + d * load_vector(right, p + 2 * width)
                a3 = a3 + d * load_vector(right, p + 3 * width)
            store_vector(total, o, a0)
            store_vector(total, o + width, a1)
            store_vector(total, o + 2 * width, a2)
            store_vector(total, o + 3 * width, a3)
            k += 4 * width
        while k + width <= n_right:
            a0 = load_vector(total, row + k)
            for t in range(n_terms):
                d = load_number(left, t * n_left + j)
                a0 = a0 + d * load_vector(right, t * n_right + k)
            store_vector(total, row + k, a0)
            k += width
        while k < n_right:
            kept = load_number(total, row + k)
            for t in range(n_terms):
                d = load_number(left, t * n_left + j)
                kept += d * load_number(right, t * n_right + k)
            store_number(total, row + k, kept)
            k += 1
        kept = load_number(total_bias, j)
        for t in range(n_terms):
            kept += load_number(left, t * n_left + j)
        store_number(total_bias, j, kept)


@compiled
def collect(total: Any, n_lanes: Any, out: Any) -> Any:
    """Write sums that were kept lane by lane into an array."""
    flat = out.reshape(-1)
    for i in range(flat.size):
        kept = flat[i] * 0
        for lane in range(n_lanes):
            kept += load_number(total, i * n_lanes + lane)
        flat[i] = kept
