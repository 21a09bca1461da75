"""Runs of encoder and decoder over a batch, both ways, block by block.

What is kept of each step is a row of an array (step, series * feature).
"""

from __future__ import annotations

import functools
import math
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from sklode.engine.tableaus import TABLEAUS
from sklode.engine.threads import n_threads
from sklode.engine.walk import (
    DENSE,
    FLOWS,
    VISITS,
    answer,
    answer_back,
    walk,
    walk_back,
)

_BLOCK, _ALIKE = 64, 16
"""Most series of a block: a step's work stays in the caches; and of one that are
alike, which rests while series of other blocks go on."""

_WORTH_A_THREAD = 30_000_000
"""Multiplications of all steps, from which threads are worth waking."""


def _each_block(n_series, cost, work, *given, most=None):
    """Return ``work(low, high, ...)`` of each block, in threads if it pays.

    ``cost`` are the multiplications of a series, ``most`` the series of a block.
    Blocks, and the order of sums, do not depend on threads: results repeat bit by bit.
    """
    n = max(-(-n_series // (most or _BLOCK)), 1)
    cuts = [k * n_series // n for k in range(n + 1)]
    n_workers = min(n_threads(), n) if n_series * cost >= _WORTH_A_THREAD else 1
    run = map if n_workers <= 1 else _threads_of(os.getpid(), n_workers).map
    return list(run(work, cuts[:-1], cuts[1:], *given))


@functools.cache
def _threads_of(process, n):
    """Return threads that wait for work; a forked process has its own."""
    return ThreadPoolExecutor(n)


def _sums(parts):
    return [sum(others, start=first) for first, *others in zip(*parts, strict=True)]


def _by_step(part):
    """Return (series, step, ...) as (step, series * ...)."""
    n_series, n_steps, *sizes = part.shape
    by_step = np.ascontiguousarray(part.swapaxes(0, 1))
    return by_step.reshape(n_steps, n_series * math.prod(sizes))


class _Field:
    """A vector field's weights, by layer, for compiled functions."""

    @np.errstate(over="ignore", invalid="ignore")  # as in torch: who calls looks
    def __init__(self, method, *layers):
        w1, b1, *second, wo, bo = layers
        w2, b2 = second or (w1[:0, :0], b1[:0])
        weights, self.biases = (w1, w2, w1 @ wo, wo), (b1, b2, w1 @ bo, bo)
        self.width, self.n_state = w1.shape
        self.layers, sizes = layers, (self.n_state, self.width)
        (rows, b), self.n_widths = TABLEAUS[method], (self.width, len(w2))
        a = np.zeros((4, 4), w1.dtype)  # for the most stages
        for i, row in enumerate(rows):
            a[i, : len(row)] = row
        self.n_stages = len(b)
        steps = a, a.T.copy(), np.array(b, w1.dtype)
        self.forward = steps, tuple(w.T.ravel() for w in weights), self.biases, sizes
        self.back = steps, tuple(w.ravel() for w in weights), self.biases, sizes
        self.cost = self.n_stages * (self.width**2 + w2.size) + 2 * w1.size  # of a step

    @np.errstate(over="ignore", invalid="ignore")
    def by_layers(self, w1, w2, m, wo, b1, b2, c, bo):
        """Return gradients by the layers, also through M = W_1 W_o, c = W_1 b_o."""
        own_w1, _, *second, own_wo, own_bo = self.layers
        m = m.reshape(self.width, self.width)
        w1 = w1.reshape(own_w1.shape) + m @ own_wo.T + np.outer(c, own_bo)
        wo, bo = wo.reshape(own_wo.shape) + own_w1.T @ m, bo + own_w1.T @ c
        return [w1, b1, *([w2.reshape(m.shape), b2] if second else []), wo, bo]


class _Walk:
    """The walk of a block, both ways; a decoder's cell has no gates."""

    def __init__(self, field, cell, dt, given, start):
        n_state, n_out, seen = field.n_state, len(cell), given[0]
        (n_steps, n), n_gates = dt.shape, n_out // n_state
        flags = FLOWS * (dt != 0).any(1) + VISITS * (seen != 0).any(1)
        flags += 0 if n_gates else DENSE
        self.field, self.cell, self.seen, self.steps = field, cell, seen, (dt, flags)

        def rows(n_rows, *sizes):
            return np.empty((n_rows, *sizes[:-1], n * sizes[-1]), dt.dtype)

        h = rows(n_steps + 1, n_state)
        c = rows(n_steps + 1, n_state if n_gates > 1 else 0)
        h[0], c[0] = start, 0.0
        visits = rows(n_steps, cell.shape[1]), rows(n_steps, n_out)
        values = (rows(n_steps, field.n_stages, width) for width in field.n_widths)
        self.kept = h, c, *visits, *values, rows(n_steps, 0 if n_gates else n_state)
        self.room = rows(14, field.width), rows(3, n_state), rows(1, n_out)[0]
        # `_combine` sums four stages: 0 times what was never written is NaN
        self.room[0][:] = 0.0
        scale = np.full((n, n_gates, n_state), 0.5, dt.dtype)
        scale[:, n_gates // 2 : n_gates // 2 + 1] = 1.0  # the gate that is a tanh
        method, weights, biases, sizes = field.forward
        biases = tuple(np.tile(bias, n) for bias in biases)  # stand once a series
        of_field = method, weights, biases, sizes
        of_cell = cell.T.ravel(), scale.ravel()
        walk(dt, flags, given, of_cell, of_field, self.kept, self.room)

    def back(self, by_last, by_states, by_rates, by_bias):
        """Return gradients by the start and the weights; add to ``by_bias``."""
        (dt, flags), field = self.steps, self.field
        g, sums = (np.zeros((2, k), dt.dtype) for k in (by_last.size, self.cell.size))
        g[0] = by_last
        grads = [np.zeros_like(part) for part in (*field.back[1], *field.biases)]
        scratch = np.empty(max(grad.size for grad in grads), dt.dtype)
        cell = self.cell[:, : field.n_state].ravel(), *sums
        given, grads = (self.seen, by_states, by_rates, by_bias), (*grads, scratch)
        of_field, kept, room = field.back, self.kept, self.room
        walk_back(g, dt, flags, given, cell, of_field, kept, grads, room)
        return g[0], (sums[0], *grads[:-1])


class Encoding:
    """One run of the encoder: flows and cell updates along all steps.

    ``dt``, ``seen`` and ``x`` are (series, step, ...); seen is 1 where the cell is
    updated at a step's end, else 0. ``cell`` is [W_h, W_x, b], (gates * state, state +
    input + 1). ``result`` is the last h, (series, state).
    """

    def __init__(self, method, keeps, dt, seen, x, cell, *layers):
        self.field, self.cell = _Field(method, *layers), cell
        self.size = len(dt), dt.shape[1] * (self.field.cost + cell.size)
        self.result = np.empty((len(dt), self.field.n_state), x.dtype)
        # blocks of series with as many steps: those of few rest at once
        taken = ((dt != 0) | (seen != 0)).sum(1)
        self.order = np.argsort(taken, kind="stable")
        parts = [part[self.order] for part in (dt, seen, x)]

        def work(low, high):
            lengths, visits, read = (_by_step(part[low:high]) for part in parts)
            given = visits, read, np.tile(self.field.biases[0], high - low)[None]
            run = _Walk(self.field, cell, lengths, given, 0.0)
            found = run.kept[0][-1].reshape(high - low, -1)
            self.result[self.order[low:high]] = found
            return run if keeps else None

        self.kept = _each_block(*self.size, work, most=_ALIKE)

    def backward(self, grad):
        """Return gradients by all arrays of the run but x."""

        def work(low, high, run):
            none = np.empty((len(run.seen), 0), grad.dtype)
            by_bias = np.zeros((1, (high - low) * self.field.width), grad.dtype)
            own = grad[self.order[low:high]].ravel()
            return run.back(own, none, none, by_bias)[1]

        each = _each_block(*self.size, work, self.kept, most=_ALIKE)
        by_cell, *found = _sums(each)
        by_cell = by_cell.reshape(self.cell.shape)
        return [None, None, None, by_cell, *self.field.by_layers(*found)]


class Decoding:
    """One run of the decoder: steps of its grid, and answers between them.

    With a control held over each step dz/dt jumps at the grid points, and a step's end
    has a derivative of its own. ``added``, (series, step, width), is added to the first
    layer's bias, or None; the others are those of `sklode.engine.autograd.decode_at`.
    ``result`` are the states, (series, query, state).
    """

    def __init__(self, method, keeps, dt, left, theta, z0, added, *layers):
        self.field, self.asked = _Field(method, *layers), (left, theta)
        self.z0, self.added = z0, added
        self.stride = 1 if added is None else 2  # of the walk, for each of the grid
        self.size = len(dt), dt.shape[1] * self.field.cost
        self.result = np.empty((*left.shape, z0.shape[1]), dt.dtype)
        cell = np.empty((0, 0), dt.dtype)

        def work(low, high):
            part, b1 = slice(low, high), self.field.biases[0]
            lengths, n = _by_step(dt[part]), high - low
            # dz/dt where the last step ends is that of one that does not flow; where
            # steps have biases of their own, each is followed by such a one
            if added is None:
                lengths, bias = np.pad(lengths, [(0, 1), (0, 0)]), np.tile(b1, n)[None]
            else:
                bias = np.repeat(_by_step(added[part] + b1), 2, axis=0)
                rests = np.zeros_like(lengths)
                lengths = np.stack([lengths, rests], axis=1).reshape(-1, n)
            none = np.empty((len(lengths), 0), dt.dtype)
            given, start = (none, none, bias), z0[part].ravel()
            run = _Walk(self.field, cell, lengths, given, start)
            grid = lengths, run.kept[0], run.kept[-1]
            queries = left[part], theta[part], self.result[part]
            answer(self.stride, *grid, *queries)
            return run if keeps else None

        self.kept = _each_block(*self.size, work)

    def backward(self, grad):
        """Return gradients by all arrays of the run."""
        by_z0 = np.empty_like(self.z0)
        by_added = None if self.added is None else np.empty_like(self.added)

        def work(low, high, run):
            part, (dt, _), n = slice(low, high), run.steps, high - low
            by_z, by_rates = np.zeros_like(run.kept[0]), np.zeros_like(run.kept[-1])
            asked = (of_query[part] for of_query in self.asked)
            answer_back(self.stride, dt, by_z, by_rates, *asked, grad[part])
            n_biases = 1 if by_added is None else len(dt)
            by_bias = np.zeros((n_biases, n * self.field.width), grad.dtype)
            none = np.zeros(by_z.shape[1], grad.dtype)
            by_start, found = run.back(none, by_z, by_rates, by_bias)
            by_z0[part] = (by_start + by_z[0]).reshape(n, -1)
            if by_added is not None:
                by_steps = by_bias.reshape(-1, 2, n, self.field.width).sum(1)
                by_added[part] = by_steps.swapaxes(0, 1)
            return found

        _, *found = _sums(_each_block(*self.size, work, self.kept))
        return [None, None, None, by_z0, by_added, *self.field.by_layers(*found)]
