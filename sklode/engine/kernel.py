"""The compiled kernel: it carries out programs.

A program (`sklode.engine.program`) is a list of instructions on vectors in working
memory. An instruction is a word that holds its code and its length, and a word for each
operand, which is a number plus the content of a register. What comes before
`EACH_BLOCK` is carried out once, what follows for each block of series, with a loop
over the steps inside, and what comes after `NEXT_BLOCK` at the end.

One kernel serves all networks and methods, so that little is compiled. All of
it is compiled into `run`: see `sklode.engine.simd.inlined`.
"""

from __future__ import annotations

import numpy as np

from sklode.engine.simd import (
    HIGHEST,
    TALLEST,
    WIDEST,
    add_outer_products,
    at_least,
    at_most,
    compiled,
    decay,
    inlined,
    lanes_of,
    load,
    log_one_plus,
    operands,
    set_products,
    splat,
    store,
    tanh,
    within,
)

__all__ = ["run"]

# Instructions: of order, of memory, of arithmetic.
STOP, EACH_BLOCK, NEXT_BLOCK, EACH_STEP, NEXT_STEP, WHERE, FULL, EMPTY = range(8)
ZERO, COPY, KEEP, RECALL, GATHER, SCATTER = range(8, 14)
PRODUCT, ACTIVATE, SLOPE, COMBINE, OUTER, LSTM, LSTM_BACKWARD = range(14, 21)
ANSWER = 21

# Registers. The first four are where regions of memory begin: rows, those of the
# current place of each of two chunks, and numbers.
ROWS, CHUNK_1, CHUNK_2, NUMBERS = range(4)
BEGIN, USED, SIZE = 3, 5, 7  # plus a chunk: its first place, its places, their length
STEP, N_STEPS, NOTHING = 10, 11, 12

CHUNK = 8
"""Places of a chunk: the steps whose outer products are summed at once."""

GRID, N_ARRAYS = 0, 7
"""Arrays; that of the grid holds one block."""

TANH, ELU, SOFTPLUS, SIGMOID = range(4)
"""Activations."""


@inlined
def _activate(m, kind, source, out, n):
    """Apply an activation to ``n`` vectors."""
    n_lanes = lanes_of(m)
    if kind == TANH:
        for i in range(0, n * n_lanes, n_lanes):
            store(m, out + i, tanh(load(m, source + i)))
    elif kind == SIGMOID:  # (1 + tanh(x / 2)) / 2
        for i in range(0, n * n_lanes, n_lanes):
            store(m, out + i, tanh(load(m, source + i) * 0.5) * 0.5 + 0.5)
    else:
        for i in range(0, n * n_lanes, n_lanes):
            x = load(m, source + i)
            if kind == ELU:
                y = decay(at_most(x, 0.0)) - 1.0
            else:
                y = log_one_plus(decay(at_most(x, 0.0 - x)))
            store(m, out + i, at_least(x, 0.0) + y)


@inlined
def _slope(m, kind, grads, values, n):
    """Multiply gradients by the activation's derivative, which its value gives."""
    n_lanes = lanes_of(m)
    if kind == TANH:
        for i in range(0, n * n_lanes, n_lanes):
            y = load(m, values + i)
            store(m, grads + i, load(m, grads + i) * (1.0 - y * y))
    else:
        for i in range(0, n * n_lanes, n_lanes):
            y = load(m, values + i)
            slope = at_most(y, 0.0) + 1.0 if kind == ELU else 1.0 - decay(0.0 - y)
            store(m, grads + i, load(m, grads + i) * slope)


@inlined
def _product(m, w, x, start, is_rows, out, n_out, n_in):
    """Set ``n_out`` vectors to W x + start, in tiles of even height."""
    n_lanes = lanes_of(m)
    within(m, x, n_in * n_lanes)
    within(m, start, n_out * n_lanes if is_rows else n_out)
    within(m, out, n_out * n_lanes)
    n_tiles = (n_out + TALLEST - 1) // TALLEST
    first = 0
    for tile in range(n_tiles):
        height = (n_out - first + n_tiles - tile - 1) // (n_tiles - tile)
        begin = start + (first * n_lanes if is_rows else first)
        where = (w + first * n_in, x, n_in, begin, out + first * n_lanes)
        set_products(m, where, (height - 1) * 2 + is_rows)
        first += height


@inlined
def _outer(m, left, right, total, total_bias, sizes):
    """Add the outer products of all terms of all places: a weight's, and a bias's.

    ``sizes`` are the vectors of a left and of a right term, the terms, the places, and
    the numbers from one place to the next. The sums stay apart lane by lane.
    """
    n_left, n_right, n_terms, n_places, far = sizes
    n_lanes = lanes_of(m)
    within(m, total, n_left * n_right * n_lanes)
    if n_places > 0:
        within(m, left, (n_places - 1) * far + n_terms * n_left * n_lanes)
        within(m, right, (n_places - 1) * far + n_terms * n_right * n_lanes)
    n_high, n_wide = (n_left + HIGHEST - 1) // HIGHEST, (n_right + WIDEST - 1) // WIDEST
    j = 0
    for high in range(n_high):
        height = (n_left - j + n_high - high - 1) // (n_high - high)
        k = 0
        for wide in range(n_wide):
            width = (n_right - k + n_wide - wide - 1) // (n_wide - wide)
            tile = total + (j * n_right + k) * n_lanes
            where = (left + j * n_lanes, right + k * n_lanes, tile, *sizes)
            add_outer_products(m, where, (height - 1) * WIDEST + width - 1)
            k += width
        j += height
    if total_bias < 0:
        return
    for j in range(0, n_left * n_lanes, n_lanes):
        kept = load(m, total_bias + j)
        for p in range(n_places):
            for t in range(n_terms):
                kept = kept + load(m, left + p * far + t * n_left * n_lanes + j)
        store(m, total_bias + j, kept)


@inlined
def _combine(m, out, n, base, base_step, scale, n_terms, terms, weights):
    """Set ``n`` vectors to base + scale * the weighted sum of one to four terms."""
    n_lanes = lanes_of(m)
    length = load(m, scale)
    w0, w1 = length * m[weights[0]], length * m[weights[1]]
    w2, w3 = length * m[weights[2]], length * m[weights[3]]
    for i in range(n):
        at = i * n_lanes
        total = w0 * load(m, terms[0] + at)
        if n_terms > 1:
            total = total + w1 * load(m, terms[1] + at)
        if n_terms > 2:
            total = total + w2 * load(m, terms[2] + at)
        if n_terms > 3:
            total = total + w3 * load(m, terms[3] + at)
        store(m, out + at, load(m, base + i * base_step) + total)


@inlined
def _lstm(m, gates, h, c, seen, n):
    """Update h and C of an LSTM cell of gates i, f, g, o where the stamp is seen."""
    n_lanes = lanes_of(m)
    size = n * n_lanes
    here = load(m, seen)
    for r in range(0, size, n_lanes):
        old_c, old_h = load(m, c + r), load(m, h + r)
        written = load(m, gates + r) * load(m, gates + 2 * size + r)
        new_c = load(m, gates + size + r) * old_c + written
        store(m, c + r, old_c + here * (new_c - old_c))
        new_h = load(m, gates + 3 * size + r) * tanh(new_c)
        store(m, h + r, old_h + here * (new_h - old_h))


@inlined
def _lstm_backward(m, gates, c, by_h, by_c, grads, seen, n):
    """Set the gradients by what enters the gates; leave what passes them by."""
    n_lanes = lanes_of(m)
    size = n * n_lanes
    here = load(m, seen)
    for r in range(0, size, n_lanes):
        g_h, g_c = load(m, by_h + r), load(m, by_c + r)
        i, f = load(m, gates + r), load(m, gates + size + r)
        new, o = load(m, gates + 2 * size + r), load(m, gates + 3 * size + r)
        old_c = load(m, c + r)
        t = tanh(f * old_c + i * new)
        by_new_h, by_new_c = here * g_h, here * g_c
        store(m, grads + 3 * size + r, by_new_h * t * o * (1.0 - o))
        by_new_c = by_new_c + by_new_h * o * (1.0 - t * t)
        store(m, grads + r, by_new_c * new * i * (1.0 - i))
        store(m, grads + size + r, by_new_c * old_c * f * (1.0 - f))
        store(m, grads + 2 * size + r, by_new_c * i * (1.0 - new * new))
        store(m, by_c + r, g_c - here * g_c + by_new_c * f)
        store(m, by_h + r, g_h - by_new_h)


@inlined
def _gather(m, source, rows, first, count, step, feature, n):
    """Read features of a step of ``count`` series; in the lanes beyond them is zero."""
    n_lanes = lanes_of(m)
    if count < n_lanes:
        for i in range(0, n * n_lanes, n_lanes):
            store(m, rows + i, splat(m, 0.0))
    for lane in range(count):
        for i in range(n):
            m[rows + i * n_lanes + lane] = source[first + lane, step, feature + i]


@inlined
def _answer(grid, dt, theta, left, z, first, count, at_end, backward):
    """Answer the queries of ``count`` series from the grid, or set its gradients."""
    one = z.dtype.type(1.0)
    n, n_steps = z.shape[2], dt.shape[1]
    for lane in range(count):
        if backward:
            grid[lane] = 0.0
        series = first + lane
        for q in range(z.shape[1]):
            k, by = left[series, q], z[series, q]
            start = grid[lane, k]
            if k >= n_steps or dt[series, k, 0] == 0:  # at rest: no end, no derivatives
                for i in range(n):
                    if backward:
                        start[i] += by[i]
                    else:
                        by[i] = start[i]
                continue
            length, place, end = (
                dt[series, k, 0],
                theta[series, q, 0],
                grid[lane, k + 1],
            )
            rest = one - place
            w2 = place * place * (rest + rest + one)
            w0, w1 = one - w2, length * place * rest * rest
            w3 = -length * place * place * rest
            if backward:
                for i in range(n):
                    start[i] += w0 * by[i]
                    start[n + i] += w1 * by[i]
                    end[i] += w2 * by[i]
                    end[at_end + i] += w3 * by[i]
            else:
                for i in range(n):
                    z_here = w0 * start[i] + w2 * end[i]
                    by[i] = z_here + (w1 * start[n + i] + w3 * end[at_end + i])


@compiled
def run(
    code,
    arrays,
    flags,
    left,
    memory,
    kept,
    regions,
    low,
    high,
    n_steps,
    backward,
):
    """Carry out a program for the series from ``low`` to ``high``.

    Parameters
    ----------
    code : ndarray of int
        The program.
    arrays : tuple of `N_ARRAYS` ndarrays
        Of (series, step, feature).
    flags : ndarray of int, shape (block, step)
        What `WHERE` asks.
    left : ndarray of int, shape (series, query)
        The step in which each query lies.
    memory, kept : ndarray of float
        Working memory, and the states that the backward pass needs.
    regions : ndarray of int
        What the registers hold at first.
    low, high, n_steps : int
        Of the batch.
    backward : int
        1: steps are taken from the last to the first.
    """
    m, r = memory, np.zeros(16, np.int64)
    n_lanes = lanes_of(m)
    for i in range(len(regions)):
        r[i] = regions[i]
    r[N_STEPS] = n_steps
    first, block, count, pc = low, 0, 0, 0
    while True:
        at, word = pc, code[pc]
        pc += word & 255
        op = word >> 8
        if op == PRODUCT:
            w, x, start, is_rows, out, n_out, n_in = operands(code, at, r, 7)
            _product(m, w, x, start, is_rows, out, n_out, n_in)
        elif op == ACTIVATE:
            kind, source, out, n = operands(code, at, r, 4)
            _activate(m, kind, source, out, n)
        elif op == SLOPE:
            kind, grads, values, n = operands(code, at, r, 4)
            _slope(m, kind, grads, values, n)
        elif op == COMBINE:
            out, n, base, base_step, scale, n_terms = operands(code, at, r, 6)
            terms = operands(code, at + 6, r, 4)
            weights = operands(code, at + 10, r, 4)
            _combine(m, out, n, base, base_step, scale, n_terms, terms, weights)
        elif op == OUTER:
            lefts, rights, total, bias = operands(code, at, r, 4)
            sizes = operands(code, at + 4, r, 5)
            _outer(m, lefts, rights, total, bias, sizes)
        elif op == WHERE:
            flag, skip = operands(code, at, r, 2)
            if flags[block, r[STEP]] & flag == 0:
                pc += skip
        elif op == FULL:
            chunk, skip = operands(code, at, r, 2)
            r[USED + chunk] += 1
            r[chunk] += r[SIZE + chunk]
            if r[USED + chunk] < CHUNK:
                pc += skip
        elif op == EMPTY:
            (chunk,) = operands(code, at, r, 1)
            r[USED + chunk] = 0
            r[chunk] = r[BEGIN + chunk]
        elif op == COPY:
            source, out, n = operands(code, at, r, 3)
            for i in range(0, n * n_lanes, n_lanes):
                store(m, out + i, load(m, source + i))
        elif op == ZERO:
            out, n = operands(code, at, r, 2)
            for i in range(0, n * n_lanes, n_lanes):
                store(m, out + i, splat(m, 0.0))
        elif op == KEEP:
            source, n, step = operands(code, at, r, 3)
            to = (block * (n_steps + 1) + step) * n * n_lanes
            for i in range(0, n * n_lanes, n_lanes):
                store(kept, to + i, load(m, source + i))
        elif op == RECALL:
            out, n, step = operands(code, at, r, 3)
            begin = (block * (n_steps + 1) + step) * n * n_lanes
            for i in range(0, n * n_lanes, n_lanes):
                store(m, out + i, load(kept, begin + i))
        elif op == GATHER:
            array, rows, step, feature, n = operands(code, at, r, 5)
            series = 0 if array == GRID else first
            _gather(m, arrays[array], rows, series, count, step, feature, n)
        elif op == SCATTER:
            array, rows, step, feature, n = operands(code, at, r, 5)
            target, series = arrays[array], 0 if array == GRID else first
            for lane in range(count):
                for i in range(n):
                    number = m[rows + i * n_lanes + lane]
                    target[series + lane, step, feature + i] = number
        elif op == LSTM:
            gates, h, c, seen, n = operands(code, at, r, 5)
            _lstm(m, gates, h, c, seen, n)
        elif op == LSTM_BACKWARD:
            gates, c, by_h, by_c, grads, seen, n = operands(code, at, r, 7)
            _lstm_backward(m, gates, c, by_h, by_c, grads, seen, n)
        elif op == ANSWER:
            dt, theta, z, at_end, back = operands(code, at, r, 5)
            grid = arrays[GRID]
            _answer(
                grid,
                arrays[dt],
                arrays[theta],
                left,
                arrays[z],
                first,
                count,
                at_end,
                back,
            )
        elif op == EACH_STEP:
            (skip,) = operands(code, at, r, 1)
            if r[STEP] < 0 or r[STEP] >= n_steps:
                pc += skip
        elif op == NEXT_STEP:
            (back,) = operands(code, at, r, 1)
            r[STEP] += -1 if backward else 1
            pc -= back
        elif op == EACH_BLOCK:
            (skip,) = operands(code, at, r, 1)
            if first >= high:
                pc += skip
            block, count = first // n_lanes, high - first
            if count > n_lanes:
                count = n_lanes
            r[STEP] = n_steps - 1 if backward else 0
        elif op == NEXT_BLOCK:
            (back,) = operands(code, at, r, 1)
            first += n_lanes
            pc -= back
        else:
            break
