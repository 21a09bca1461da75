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
    compiled,
    elu,
    elu_slope,
    inlined,
    lanes_of,
    load,
    operands,
    set_products,
    sigmoid,
    softplus,
    softplus_slope,
    store,
    tanh,
    tanh_slope,
    within,
    zeros,
)

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
    """Apply an activation to ``n`` rows."""
    for i in range(n):
        x = load(m, source + i)
        if kind == TANH:
            y = tanh(x)
        elif kind == SIGMOID:
            y = sigmoid(x)
        elif kind == ELU:
            y = elu(x)
        else:
            y = softplus(x)
        store(m, out + i, y)


@inlined
def _times_slope(m, kind, grads, values, n):
    """Multiply gradients by the activation's derivative, which its value gives."""
    for i in range(n):
        y = load(m, values + i)
        if kind == TANH:
            slope = tanh_slope(y)
        elif kind == ELU:
            slope = elu_slope(y)
        else:
            slope = softplus_slope(y)
        store(m, grads + i, load(m, grads + i) * slope)


@inlined
def _product(m, w, x, start, is_rows, out, n_out, n_in):
    """Set ``n_out`` rows to W x + start, in tiles of even height."""
    n_lanes = lanes_of(m)
    within(m, x, n_in)
    within(m, start, n_out if is_rows else (n_out + n_lanes - 1) // n_lanes)
    within(m, out, n_out)
    n_tiles = (n_out + TALLEST - 1) // TALLEST
    first = 0
    for tile in range(n_tiles):
        height = (n_out - first + n_tiles - tile - 1) // (n_tiles - tile)
        weights = w * n_lanes + first * n_in
        begin = (start if is_rows else start * n_lanes) + first
        where = (weights, x, n_in, begin, out + first)
        set_products(m, where, (height - 1) * 2 + is_rows)
        first += height


@inlined
def _outer(m, left, right, total, total_bias, sizes):
    """Add the outer products of all terms of all places: a weight's, and a bias's.

    ``sizes`` are the rows of a left and of a right term, the terms, the places, and the
    rows from one place to the next. The sums stay apart lane by lane.
    """
    n_left, n_right, n_terms, n_places, far = sizes
    within(m, total, n_left * n_right)
    if n_places > 0:
        within(m, left, (n_places - 1) * far + n_terms * n_left)
        within(m, right, (n_places - 1) * far + n_terms * n_right)
    n_high, n_wide = (n_left + HIGHEST - 1) // HIGHEST, (n_right + WIDEST - 1) // WIDEST
    j = 0
    for high in range(n_high):
        height = (n_left - j + n_high - high - 1) // (n_high - high)
        k = 0
        for wide in range(n_wide):
            width = (n_right - k + n_wide - wide - 1) // (n_wide - wide)
            where = (left + j, right + k, total + j * n_right + k, *sizes)
            add_outer_products(m, where, (height - 1) * WIDEST + width - 1)
            k += width
        j += height
    if total_bias < 0:
        return
    for j in range(n_left):
        kept = load(m, total_bias + j)
        for p in range(n_places):
            for t in range(n_terms):
                kept = kept + load(m, left + p * far + t * n_left + j)
        store(m, total_bias + j, kept)


@inlined
def _combine(m, out, n, base, to_next, scale, n_terms, terms, weights):
    """Set ``n`` rows to base + scale * the weighted sum of one to four terms."""
    length = load(m, scale)
    w0, w1 = length * load(m, weights[0]), length * load(m, weights[1])
    w2, w3 = length * load(m, weights[2]), length * load(m, weights[3])
    for i in range(n):
        total = w0 * load(m, terms[0] + i)
        if n_terms > 1:
            total = total + w1 * load(m, terms[1] + i)
        if n_terms > 2:
            total = total + w2 * load(m, terms[2] + i)
        if n_terms > 3:
            total = total + w3 * load(m, terms[3] + i)
        store(m, out + i, load(m, base + i * to_next) + total)


@inlined
def _lstm(m, gates, h, c, seen, n):
    """Update h and C of an LSTM cell of gates i, f, g, o where the stamp is seen."""
    here = load(m, seen)
    for r in range(n):
        old_c, old_h = load(m, c + r), load(m, h + r)
        written = load(m, gates + r) * load(m, gates + 2 * n + r)
        new_c = load(m, gates + n + r) * old_c + written
        store(m, c + r, old_c + here * (new_c - old_c))
        new_h = load(m, gates + 3 * n + r) * tanh(new_c)
        store(m, h + r, old_h + here * (new_h - old_h))


@inlined
def _lstm_backward(m, gates, c, by_h, by_c, grads, seen, n):
    """Set the gradients by what enters the gates; leave what passes them by."""
    here = load(m, seen)
    for r in range(n):
        g_h, g_c = load(m, by_h + r), load(m, by_c + r)
        i, f = load(m, gates + r), load(m, gates + n + r)
        new, o = load(m, gates + 2 * n + r), load(m, gates + 3 * n + r)
        old_c = load(m, c + r)
        t = tanh(f * old_c + i * new)
        by_new_h, by_new_c = here * g_h, here * g_c
        store(m, grads + 3 * n + r, by_new_h * t * o * (1.0 - o))
        by_new_c = by_new_c + by_new_h * o * (1.0 - t * t)
        store(m, grads + r, by_new_c * new * i * (1.0 - i))
        store(m, grads + n + r, by_new_c * old_c * f * (1.0 - f))
        store(m, grads + 2 * n + r, by_new_c * i * (1.0 - new * new))
        store(m, by_c + r, g_c - here * g_c + by_new_c * f)
        store(m, by_h + r, g_h - by_new_h)


@inlined
def _gather(m, source, rows, first, count, step, feature, n):
    """Read features of a step of ``count`` series; in the lanes beyond them is zero."""
    n_lanes = lanes_of(m)
    if count < n_lanes:
        for i in range(n):
            store(m, rows + i, zeros(m))
    for lane in range(count):
        for i in range(n):
            m[(rows + i) * n_lanes + lane] = source[first + lane, step, feature + i]


@inlined
def _answer(grid, where, z, first, count, at_end, backward):
    """Answer the queries of ``count`` series from the grid, or set its gradients."""
    dt, theta, left = where
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
            length, place = dt[series, k, 0], theta[series, q, 0]
            end = grid[lane, k + 1]
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
def run(code, begin, arrays, flags, left, memory, kept, low, high, n_steps, backward):
    """Carry out a program for the series from ``low`` to ``high``.

    ``begin`` is what the registers hold at first. `N_ARRAYS` ``arrays`` are (series,
    step, feature), ``flags``, (block, step), are what `WHERE` asks, ``left``, (series,
    query), the step in which a query lies. The backward pass, 1, takes steps from the
    last to the first, and reads what the forward pass, 0, has ``kept``.
    """
    m, r = memory, np.zeros(16, np.int64)
    n_lanes = lanes_of(m)
    for i in range(len(begin)):  # a slice would take longer to compile
        r[i] = begin[i]
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
            _times_slope(m, kind, grads, values, n)
        elif op == COMBINE:
            out, n, base, to_next, scale, n_terms = operands(code, at, r, 6)
            terms = operands(code, at + 6, r, 4)
            weights = operands(code, at + 10, r, 4)
            _combine(m, out, n, base, to_next, scale, n_terms, terms, weights)
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
            for i in range(n):
                store(m, out + i, load(m, source + i))
        elif op == ZERO:
            out, n = operands(code, at, r, 2)
            for i in range(n):
                store(m, out + i, zeros(m))
        elif op == KEEP:
            source, n, step = operands(code, at, r, 3)
            at = (block * (n_steps + 1) + step) * n
            for i in range(n):
                store(kept, at + i, load(m, source + i))
        elif op == RECALL:
            out, n, step = operands(code, at, r, 3)
            at = (block * (n_steps + 1) + step) * n
            for i in range(n):
                store(m, out + i, load(kept, at + i))
        elif op == GATHER:
            array, rows, step, feature, n = operands(code, at, r, 5)
            series = 0 if array == GRID else first
            _gather(m, arrays[array], rows, series, count, step, feature, n)
        elif op == SCATTER:
            array, rows, step, feature, n = operands(code, at, r, 5)
            target, series = arrays[array], 0 if array == GRID else first
            for lane in range(count):
                for i in range(n):
                    number = m[(rows + i) * n_lanes + lane]
                    target[series + lane, step, feature + i] = number
        elif op == LSTM:
            gates, h, c, seen, n = operands(code, at, r, 5)
            _lstm(m, gates, h, c, seen, n)
        elif op == LSTM_BACKWARD:
            gates, c, by_h, by_c, grads, seen, n = operands(code, at, r, 7)
            _lstm_backward(m, gates, c, by_h, by_c, grads, seen, n)
        elif op == ANSWER:
            dt, theta, z, at_end, back = operands(code, at, r, 5)
            where = arrays[dt], arrays[theta], left
            _answer(arrays[GRID], where, arrays[z], first, count, at_end, back)
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
