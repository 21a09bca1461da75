"""The compiled kernel: it carries out programs.

A program (`sklode.engine.program`) is a list of instructions on vectors in working
memory. Its first part is carried out once, the next one for each block of series, the
last one at the end; a loop over the steps lies within the second. An instruction is a
word that holds its code and its length, and one word for each operand, which is a
number plus a register: see `operands`.

One kernel serves all networks, methods and layouts, so that little has to be compiled.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sklode.engine.simd import (
    HIGHEST,
    TALLEST,
    WIDEST,
    add_outer_products,
    add_products,
    at_least,
    at_most,
    compiled,
    constant,
    decay,
    inlined,
    lanes_of,
    load,
    log_one_plus,
    number_at,
    operands,
    set_number_at,
    splat,
    store,
    tanh,
    within,
)

__all__ = ["run"]

# Instructions.
(
    STOP,
    EACH_BLOCK,
    NEXT_BLOCK,
    EACH_STEP,
    NEXT_STEP,
    WHERE,
    FULL,
    EMPTY,
    ZERO,
    COPY,
    KEEP,
    RECALL,
    GATHER,
    SPREAD,
    SCATTER,
    PRODUCT,
    ACTIVATE,
    SLOPE,
    COMBINE,
    OUTER,
    LSTM,
    LSTM_BACKWARD,
    ANSWER,
    ANSWER_BACKWARD,
) = range(24)

# Registers. Those of the first line are where a region of memory begins: rows, rows of
# a place of each of two chunks, and numbers.
ROWS, CHUNK_1, CHUNK_2, NUMBERS = range(4)
BEGIN, USED, SIZE = 3, 5, 7  # plus a chunk: its first place, its places, their length
STEP, N_STEPS, NOTHING = 10, 11, 12

CHUNK = 8
"""Places of a chunk: the steps whose outer products are summed at once."""

GRID = 0

# Activations.
TANH, ELU, SOFTPLUS, SIGMOID = range(4)


@inlined
def _activate(m: Any, kind: Any, source: Any, out: Any, n: Any) -> Any:
    """Apply an activation to ``n`` vectors."""
    n_lanes = lanes_of(m)
    zero, half, one = constant(m, 0.0), constant(m, 0.5), constant(m, 1.0)
    for i in range(0, n * n_lanes, n_lanes):
        x = load(m, source + i)
        if kind == TANH:
            y = tanh(x)
        elif kind == ELU:
            y = at_least(x, zero) + (decay(at_most(x, zero)) - one)
        elif kind == SOFTPLUS:
            y = at_least(x, zero) + log_one_plus(decay(at_most(x, zero - x)))
        else:  # sigmoid(x) = (1 + tanh(x / 2)) / 2
            y = tanh(x * half) * half + half
        store(m, out + i, y)


@inlined
def _slope(m: Any, kind: Any, grads: Any, values: Any, n: Any) -> Any:
    """Multiply gradients by the activation's derivative, which its value gives."""
    n_lanes = lanes_of(m)
    zero, one = constant(m, 0.0), constant(m, 1.0)
    for i in range(0, n * n_lanes, n_lanes):
        y = load(m, values + i)
        if kind == TANH:
            slope = one - y * y
        elif kind == ELU:
            slope = at_most(y, zero) + one
        else:
            slope = one - decay(zero - y)
        store(m, grads + i, load(m, grads + i) * slope)


@inlined
def _product(
    m: Any,
    single: Any,
    w: Any,
    x: Any,
    start: Any,
    is_rows: Any,
    out: Any,
    n_out: Any,
    n_in: Any,
) -> Any:
    """Set ``n_out`` vectors to W x + start, in tiles of even height."""
    n_lanes = lanes_of(m)
    within(m, x, n_in if single else n_in * n_lanes)
    within(m, start, n_out * n_lanes if is_rows else n_out)
    within(m, out, n_out * n_lanes)
    n_tiles = (n_out + TALLEST - 1) // TALLEST
    per_row = n_in * n_lanes if single else n_in
    first = 0
    for tile in range(n_tiles):
        height = (n_out - first + n_tiles - tile - 1) // (n_tiles - tile)
        begin = start + (first * n_lanes if is_rows else first)
        where = (w + first * per_row, x, n_in, begin, is_rows, out + first * n_lanes)
        add_products(m, where, (height - 1) * 2 + single)
        first += height


@inlined
def _outer(
    m: Any,
    single: Any,
    left: Any,
    right: Any,
    total: Any,
    total_bias: Any,
    sizes: Any,
) -> Any:
    """Add the outer products of all terms of all places: a weight's, and a bias's.

    ``n_left`` and ``n_right`` are the vectors of a term. In lanes the sums stay apart
    lane by lane.
    """
    n_left, n_right, n_terms, n_places, place = sizes
    n_lanes = lanes_of(m)
    wide = 1 if single else n_lanes  # from one left factor to the next
    n_rows = n_left * n_lanes if single else n_left
    within(m, total, n_rows * n_right * n_lanes)
    if n_places > 0:
        within(m, left, (n_places - 1) * place + n_terms * n_left * n_lanes)
        within(m, right, (n_places - 1) * place + n_terms * n_right * n_lanes)
    n_high, n_wide = (n_rows + HIGHEST - 1) // HIGHEST, (n_right + WIDEST - 1) // WIDEST
    j = 0
    for tile in range(n_high):
        height = (n_rows - j + n_high - tile - 1) // (n_high - tile)
        k = 0
        for part in range(n_wide):
            width = (n_right - k + n_wide - part - 1) // (n_wide - part)
            at = total + (j * n_right + k) * n_lanes
            where = (left + j * wide, right + k * n_lanes, at) + sizes
            which = ((height - 1) * WIDEST + width - 1) * 2 + single
            add_outer_products(m, where, which)
            k += width
        j += height
    if total_bias < 0:
        return
    for j in range(0, n_left * n_lanes, n_lanes):
        kept = load(m, total_bias + j)
        for p in range(n_places):
            for t in range(n_terms):
                kept = kept + load(m, left + p * place + t * n_left * n_lanes + j)
        store(m, total_bias + j, kept)


@inlined
def _combine(
    m: Any,
    out: Any,
    n: Any,
    base: Any,
    base_step: Any,
    scale: Any,
    n_terms: Any,
    weights: Any,
    terms: Any,
) -> Any:
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
def _lstm(m: Any, gates: Any, h: Any, c: Any, seen: Any, n: Any) -> Any:
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
def _lstm_backward(
    m: Any, gates: Any, c: Any, by_h: Any, by_c: Any, grads: Any, seen: Any, n: Any
) -> Any:
    """Set the gradients by what enters the gates; leave what passes them by."""
    n_lanes = lanes_of(m)
    size = n * n_lanes
    one, here = constant(m, 1.0), load(m, seen)
    for r in range(0, size, n_lanes):
        g_h, g_c = load(m, by_h + r), load(m, by_c + r)
        i, f = load(m, gates + r), load(m, gates + size + r)
        new, o = load(m, gates + 2 * size + r), load(m, gates + 3 * size + r)
        old_c = load(m, c + r)
        t = tanh(f * old_c + i * new)
        by_new_h, by_new_c = here * g_h, here * g_c
        store(m, grads + 3 * size + r, by_new_h * t * o * (one - o))
        by_new_c = by_new_c + by_new_h * o * (one - t * t)
        store(m, grads + r, by_new_c * new * i * (one - i))
        store(m, grads + size + r, by_new_c * old_c * f * (one - f))
        store(m, grads + 2 * size + r, by_new_c * i * (one - new * new))
        store(m, by_c + r, g_c - here * g_c + by_new_c * f)
        store(m, by_h + r, g_h - by_new_h)


@inlined
def _hermite(m: Any, theta: Any, length: Any) -> Any:
    """Return the weights of z and of dz/dt at a step's start, then at its end."""
    one = constant(m, 1.0)
    rest = one - theta
    end = theta * theta * (rest + rest + one)
    by_start, by_end = length * theta * rest * rest, length * theta * theta * rest
    return one - end, by_start, end, -by_end


@inlined
def _answer(
    m: Any, n: Any, at_end: Any, weights: Any, start: Any, end: Any, out: Any
) -> Any:
    """Interpolate between a step's start and end, rows of the grid."""
    w0, w1, w2, w3 = weights
    for i in range(n):
        z = w0 * number_at(m, start, i) + w2 * number_at(m, end, i)
        by_start = w1 * number_at(m, start, n + i)
        by_end = w3 * number_at(m, end, at_end + i)
        set_number_at(m, out, i, z + (by_start + by_end))


@inlined
def _add(m: Any, out: Any, first: Any, weight: Any, by: Any, n: Any) -> Any:
    """Add numbers times a weight to others."""
    for i in range(n):
        total = number_at(m, out, first + i) + weight * number_at(m, by, i)
        set_number_at(m, out, first + i, total)


@inlined
def _row(m: Any, table: Any, array: Any, series: Any, step: Any) -> Any:
    """Return the address of a series' features at a step."""
    numbers = series * table[array, 1] + step * table[array, 2]
    return table[array, 0] + numbers * m.itemsize


@compiled
def run(
    code: Any,
    table: Any,
    flags: Any,
    left: Any,
    memory: Any,
    kept: Any,
    regions: Any,
    low: Any,
    high: Any,
    n_steps: Any,
    backward: Any,
    single: Any,
) -> Any:
    """Carry out a program for the series from ``low`` to ``high``.

    Parameters
    ----------
    code : ndarray of int
        The program.
    table : ndarray of int, shape (array, 3)
        Arrays (series, step, feature): where their data begin, and the numbers from one
        series and from one step to the next. That of `GRID` holds a block only.
    flags : ndarray of int, shape (block, step)
        What `WHERE` asks.
    left : ndarray of int, shape (series, query)
        The step in which each query lies.
    memory, kept : ndarray of float
        Working memory, and the states that the backward pass needs.
    regions : ndarray of int
        What the registers up to `SIZE` hold at first.
    low, high, n_steps : int
        Of the batch.
    backward : int
        1: steps are taken from the last to the first.
    single : int
        0: lanes, a vector holds a number each of several series; 1: neighbouring
        numbers of one series.
    """
    m = memory
    n_lanes = lanes_of(m)
    per_block = 1 if single else n_lanes
    r = np.zeros(16, np.int64)
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
            _product(m, single, w, x, start, is_rows, out, n_out, n_in)
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
            _combine(m, out, n, base, base_step, scale, n_terms, weights, terms)
        elif op == OUTER:
            lefts, rights, total, bias = operands(code, at, r, 4)
            n_left, n_right, n_terms, n_places, place = operands(code, at + 4, r, 5)
            sizes = (n_left, n_right, n_terms, n_places, place)
            _outer(m, single, lefts, rights, total, bias, sizes)
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
                store(m, out + i, splat(m, constant(m, 0.0)))
        elif op == KEEP:
            source, n, step = operands(code, at, r, 3)
            to = (block * (n_steps + 1) + step) * n * n_lanes
            for i in range(0, n * n_lanes, n_lanes):
                store(kept, to + i, load(m, source + i))
        elif op == RECALL:
            out, n, step, n_kept, skipped = operands(code, at, r, 5)
            begin = ((block * (n_steps + 1) + step) * n_kept + skipped) * n_lanes
            for i in range(0, n * n_lanes, n_lanes):
                store(m, out + i, load(kept, begin + i))
        elif op == GATHER:
            array, step, feature, n, rows, n_rows = operands(code, at, r, 6)
            if count < n_lanes:  # of lanes without a series, of features beyond n
                for i in range(0, n_rows * n_lanes, n_lanes):
                    store(m, rows + i, splat(m, constant(m, 0.0)))
            apart = 1 if single else n_lanes
            for lane in range(count):
                series = lane if array == GRID else first + lane
                source = _row(m, table, array, series, step)
                for i in range(n):
                    m[rows + i * apart + lane] = number_at(m, source, feature + i)
        elif op == SPREAD:
            array, step, row = operands(code, at, r, 3)
            store(m, row, splat(m, constant(m, 0.0)))
            for lane in range(count):
                source = _row(m, table, array, first + lane, step)
                m[row + lane] = number_at(m, source, 0)
            if single:
                store(m, row, splat(m, m[row]))
        elif op == SCATTER:
            array, step, feature, n, rows = operands(code, at, r, 5)
            apart = 1 if single else n_lanes
            for lane in range(count):
                series = lane if array == GRID else first + lane
                out = _row(m, table, array, series, step)
                for i in range(n):
                    set_number_at(m, out, feature + i, m[rows + i * apart + lane])
        elif op == LSTM:
            gates, h, c, seen, n = operands(code, at, r, 5)
            _lstm(m, gates, h, c, seen, n)
        elif op == LSTM_BACKWARD:
            gates, c, by_h, by_c, grads, seen, n = operands(code, at, r, 7)
            _lstm_backward(m, gates, c, by_h, by_c, grads, seen, n)
        elif op == ANSWER or op == ANSWER_BACKWARD:
            grid, dt, theta, z, n, at_end = operands(code, at, r, 6)
            for lane in range(count):
                series = first + lane
                if op == ANSWER_BACKWARD:
                    start = _row(m, table, grid, lane, 0)
                    for i in range(table[grid, 1]):
                        set_number_at(m, start, i, constant(m, 0.0))
                for q in range(left.shape[1]):
                    step = left[series, q]
                    length = constant(m, 0.0)
                    if step < n_steps:
                        length = number_at(m, _row(m, table, dt, series, step), 0)
                    place = number_at(m, _row(m, table, theta, series, q), 0)
                    start = _row(m, table, grid, lane, step)
                    end = start + table[grid, 2] * m.itemsize
                    by = _row(m, table, z, series, q)
                    if length == 0:  # at rest: no end, and no derivatives
                        if op == ANSWER:
                            for i in range(n):
                                set_number_at(m, by, i, number_at(m, start, i))
                        else:
                            _add(m, start, 0, constant(m, 1.0), by, n)
                        continue
                    weights = _hermite(m, place, length)
                    if op == ANSWER:
                        _answer(m, n, at_end, weights, start, end, by)
                    else:
                        _add(m, start, 0, weights[0], by, n)
                        _add(m, start, n, weights[1], by, n)
                        _add(m, end, 0, weights[2], by, n)
                        _add(m, end, at_end, weights[3], by, n)
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
            block, count = first // per_block, high - first
            if count > per_block:
                count = per_block
            r[STEP] = n_steps - 1 if backward else 0
        elif op == NEXT_BLOCK:
            (back,) = operands(code, at, r, 1)
            first += per_block
            pc -= back
        else:
            break
