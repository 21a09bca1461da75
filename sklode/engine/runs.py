"""Runs of encoder and decoder over a batch, both ways, block by block.

What is kept of each step is a part of an array (step, series * feature).
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
    TERMS,
    VISITS,
    Cell,
    Field,
    Grads,
    Kept,
    Room,
    Steps,
    Weights,
    answer,
    answer_back,
    walk,
    walk_back,
)

# Most series of a block: a step's work stays in the caches.
_BLOCK = 64

# Most series of a block of like ones, which rests while those of other blocks go on.
_ALIKE = 16

# Multiplications of all steps, from which threads are worth waking.
_WORTH_A_THREAD = 30_000_000


def _each_block(n_series, cost, work, *kept, most):
    """Return ``work(low, high, ...)`` of each block, in threads if it pays.

    ``cost`` are the multiplications of a series, ``most`` the series of a block.
    Blocks, and the order of sums, do not depend on threads: results repeat bit by bit.
    """
    n = max(math.ceil(n_series / most), 1)
    # sizes that differ by one at most, so that no thread waits long for another
    cuts = [k * n_series // n for k in range(n + 1)]
    pays = n_series * cost >= _WORTH_A_THREAD
    n_workers = min(n_threads(), n) if pays else 1
    run = _threads_of(os.getpid(), n_workers).map if n_workers > 1 else map
    return list(run(work, cuts[:-1], cuts[1:], *kept))


@functools.cache
def _threads_of(process, n):
    """Return threads that wait for work; a forked process has its own."""
    # a fork copies what is cached, but no threads: by its number it asks anew
    return ThreadPoolExecutor(n)


def _sums(parts):
    """Return the sums of blocks' arrays, always in the order of the blocks."""
    return [sum(others, start=first) for first, *others in zip(*parts, strict=True)]


def _by_step(part):
    """Return (series, step, ...) as (step, series * ...)."""
    n_series, n_steps, *sizes = part.shape
    by_step = np.ascontiguousarray(part.swapaxes(0, 1))
    return by_step.reshape(n_steps, n_series * math.prod(sizes))


def _repeated(vector, n):
    """Return a vector n times, end to end."""
    # numpy's tile takes several times as long, which small batches feel
    return vector[None].repeat(n, axis=0).ravel()


class _Layers:
    """A vector field's weights, by layer, for compiled functions."""

    @np.errstate(over="ignore", invalid="ignore")  # as in torch: who calls looks
    def __init__(self, method, *layers):
        w1, b1, *second, wo, bo = layers
        # compiled code tells by its size that there is no second hidden layer
        w2, b2 = second or (w1[:0, :0], b1[:0])
        self.layers = layers
        self.width, self.n_state = w1.shape
        self.n_hidden = self.width, len(w2)
        self.weights = Weights(
            w1=w1, w2=w2, m=w1 @ wo, wo=wo, b1=b1, b2=b2, c=w1 @ bo, bo=bo
        )
        tableau = TABLEAUS[method]
        self.n_stages, self.b = len(tableau.b), np.array(tableau.b, w1.dtype)
        # stages that there are not have weights 0
        n = TERMS * math.ceil(self.n_stages / TERMS)
        self.a = np.zeros((n, n), w1.dtype)
        for i, weights in enumerate(tableau.a):
            self.a[i, : len(weights)] = weights
        # multiplications of a step
        self.cost = self.n_stages * (self.width**2 + w2.size) + 2 * w1.size

    def forward(self, n_series):
        """Return what a walk forward takes of them."""
        weights = Weights._make(
            part.T.ravel() if part.ndim == 2 else _repeated(part, n_series)
            for part in self.weights
        )
        return Field(self.a, self.b, weights, self.n_state, self.width)

    def back(self):
        """Return what a walk back takes of them."""
        weights = Weights._make(part.ravel() for part in self.weights)
        return Field(self.a.T.copy(), self.b, weights, self.n_state, self.width)

    @np.errstate(over="ignore", invalid="ignore")
    def by_layers(self, by):
        """Return gradients by the layers, also through M = W_1 W_o, c = W_1 b_o."""
        own_w1, _, *second, own_wo, own_bo = self.layers
        m = by.m.reshape(self.width, self.width)
        # of a product A B with gradient G, A has G B^T and B has A^T G
        w1 = by.w1.reshape(own_w1.shape)
        w1 = w1 + m @ own_wo.T + np.outer(by.c, own_bo)
        wo = by.wo.reshape(own_wo.shape) + own_w1.T @ m
        bo = by.bo + own_w1.T @ by.c
        of_second = [by.w2.reshape(m.shape), by.b2] if second else []
        return [w1, by.b1, *of_second, wo, bo]


class _Walk:
    """The walk of a block, both ways; a decoder's cell has no gates."""

    def __init__(self, layers, cell, dt, seen, x, bias, start):
        self.layers, self.cell = layers, cell
        n_steps, self.n_series = dt.shape
        n_state, n_out = layers.n_state, len(cell)
        n_gates = n_out // n_state
        # a series that rests or sees nothing in a step takes part with dt or seen 0
        flags = FLOWS * (dt != 0).any(1) + VISITS * (seen != 0).any(1)
        flags += 0 if n_gates else DENSE
        self.steps = Steps(dt, flags, seen)

        def of_steps(n, *sizes):
            return np.empty((n, *sizes[:-1], self.n_series * sizes[-1]), dt.dtype)

        v1, v2 = (of_steps(n_steps, layers.n_stages, n) for n in layers.n_hidden)
        self.kept = Kept(
            h=of_steps(n_steps + 1, n_state),
            c=of_steps(n_steps + 1, n_state if n_gates > 1 else 0),
            read=of_steps(n_steps, cell.shape[1]),
            gates=of_steps(n_steps, n_out),
            v1=v1,
            v2=v2,
            rates=of_steps(n_steps, 0 if n_gates else n_state),
        )
        self.kept.h[0], self.kept.c[0] = start, 0.0
        self.room = self._room(n_out)
        scale = np.full((self.n_series, n_gates, n_state), 0.5, dt.dtype)
        # the gate that is a tanh: of torch's i, f, g, o the third; of an RNN the one
        scale[:, n_gates // 2 : n_gates // 2 + 1] = 1.0
        walk(
            steps=self.steps,
            x=x,
            bias=bias,
            cell=Cell(cell.T.ravel(), scale.ravel()),
            field=layers.forward(self.n_series),
            kept=self.kept,
            room=self.room,
        )

    def _room(self, n_out):
        n_wide = self.n_series * self.layers.width
        n_narrow = self.n_series * self.layers.n_state

        # stages have weights 0, and 0 times what was never written may be NaN
        def zeros(*shape):
            return np.zeros(shape, self.steps.dt.dtype)

        return Room(
            zeros=zeros(n_wide),
            entered=zeros(n_wide),
            mean=zeros(n_wide),
            by_mean=zeros(n_wide),
            lengths=zeros(n_wide),
            second=zeros(n_wide),
            total=zeros(n_wide),
            slopes=zeros(len(self.layers.a), n_wide),
            by_entered=zeros(len(self.layers.a), n_wide),
            rise=zeros(n_narrow),
            moved=zeros(n_narrow),
            cells=zeros(n_narrow),
            by_gates=zeros(self.n_series * n_out),
        )

    def back(self, by_h, by_states, by_rates, by_bias):
        """Return gradients by start, field and cell; add to ``by_bias``.

        ``by_h`` is the gradient by the last h; the others are those of `walk_back`.
        """
        field = self.layers.back()
        # nobody asks for the last C: the gradient by it is 0
        g = np.zeros((2, by_h.size), by_h.dtype)
        g[0] = by_h
        by_weights = Weights._make(map(np.zeros_like, field.weights))
        by_cell = np.zeros(self.cell.size, by_h.dtype)
        largest = max(part.size for part in (*by_weights, by_cell))
        scratch = np.empty(largest, by_h.dtype)
        walk_back(
            g=g,
            steps=self.steps,
            by_states=by_states,
            by_rates=by_rates,
            by_h=self.cell[:, : field.n_state].ravel(),
            field=field,
            kept=self.kept,
            grads=Grads(by_weights, by_bias, by_cell, scratch),
            room=self.room,
        )
        return g[0], by_weights, by_cell


class Encoding:
    """One run of the encoder: flows and cell updates along all steps.

    ``dt``, ``seen`` and ``x`` are (series, step, ...); seen is 1 where the cell is
    updated at a step's end, else 0. ``cell`` is [W_h, W_x, b], (gates * state, state +
    input + 1). ``result`` is the last h, (series, state).
    """

    def __init__(self, method, keeps, dt, seen, x, cell, *layers):
        self.layers, self.cell = _Layers(method, *layers), cell
        n_series, n_steps = dt.shape
        self.size = n_series, n_steps * (self.layers.cost + cell.size)
        self.result = np.empty((n_series, self.layers.n_state), x.dtype)
        # blocks of series with as many steps: those of few rest at once
        taken = ((dt != 0) | (seen != 0)).sum(1)
        self.order = np.argsort(taken, kind="stable")
        dt, seen, x = (part[self.order] for part in (dt, seen, x))

        def work(low, high):
            run = _Walk(
                layers=self.layers,
                cell=cell,
                dt=_by_step(dt[low:high]),
                seen=_by_step(seen[low:high]),
                x=_by_step(x[low:high]),
                bias=_repeated(self.layers.weights.b1, high - low)[None],
                start=0.0,
            )
            found = run.kept.h[-1].reshape(high - low, -1)
            self.result[self.order[low:high]] = found
            return run if keeps else None

        self.kept = _each_block(*self.size, work, most=_ALIKE)

    def backward(self, grad):
        """Return gradients by all arrays of the run but x."""

        def work(low, high, run):
            none = np.empty((len(run.steps.dt), 0), grad.dtype)
            by_bias = np.zeros((1, (high - low) * self.layers.width), grad.dtype)
            by_h = grad[self.order[low:high]].ravel()
            _, by_weights, by_cell = run.back(by_h, none, none, by_bias)
            return by_cell, *by_weights

        each = _each_block(*self.size, work, self.kept, most=_ALIKE)
        by_cell, *by_weights = _sums(each)
        by_layers = self.layers.by_layers(Weights._make(by_weights))
        return [None, None, None, by_cell.reshape(self.cell.shape), *by_layers]


class Decoding:
    """One run of the decoder: steps of its grid, and answers between them.

    With a control held over each step dz/dt jumps at the grid points, and a step's end
    has a derivative of its own. ``added``, (series, step, width), is added to the first
    layer's bias, or None; the others are those of `sklode.engine.autograd.decode_at`.
    ``result`` are the states, (series, query, state).
    """

    def __init__(self, method, keeps, dt, left, theta, z0, added, *layers):
        self.layers, self.left, self.theta = _Layers(method, *layers), left, theta
        self.z0, self.added = z0, added
        self.stride = 1 if added is None else 2  # of the walk, for each of the grid
        n_series, n_steps = dt.shape
        self.size = n_series, n_steps * self.layers.cost
        self.result = np.empty((*left.shape, z0.shape[1]), dt.dtype)

        def work(low, high):
            lengths, bias = self._steps(dt, low, high)
            none = np.empty((len(lengths), 0), dt.dtype)
            run = _Walk(
                layers=self.layers,
                cell=np.empty((0, 0), dt.dtype),
                dt=lengths,
                seen=none,
                x=none,
                bias=bias,
                start=z0[low:high].ravel(),
            )
            answer(
                stride=self.stride,
                dt=lengths,
                z=run.kept.h,
                rates=run.kept.rates,
                left=left[low:high],
                theta=theta[low:high],
                out=self.result[low:high],
            )
            return run if keeps else None

        self.kept = _each_block(*self.size, work, most=_BLOCK)

    def _steps(self, dt, low, high):
        """Return a block's steps, some of which rest, and the bias of each or of all.

        dz/dt where the last step ends is that of one that does not flow. Where steps
        have biases of their own, each is followed by such a one with its bias.
        """
        lengths, b1 = _by_step(dt[low:high]), self.layers.weights.b1
        if self.added is None:
            rest = np.zeros_like(lengths, shape=(1, high - low))
            return np.concatenate([lengths, rest]), _repeated(b1, high - low)[None]
        pairs = np.stack([lengths, np.zeros_like(lengths)], axis=1)
        bias = np.repeat(_by_step(self.added[low:high] + b1), 2, axis=0)
        return pairs.reshape(-1, high - low), bias

    def backward(self, grad):
        """Return gradients by all arrays of the run."""
        by_z0 = np.empty_like(self.z0)
        by_added = None if self.added is None else np.empty_like(self.added)

        def work(low, high, run):
            n, width, dt = high - low, self.layers.width, run.steps.dt
            by_z, by_rates = np.zeros_like(run.kept.h), np.zeros_like(run.kept.rates)
            answer_back(
                stride=self.stride,
                dt=dt,
                by_z=by_z,
                by_rates=by_rates,
                left=self.left[low:high],
                theta=self.theta[low:high],
                grad=grad[low:high],
            )
            n_biases = 1 if by_added is None else len(dt)
            by_bias = np.zeros((n_biases, n * width), grad.dtype)
            none = np.zeros(by_z.shape[1], grad.dtype)
            by_start, by_weights, _ = run.back(none, by_z, by_rates, by_bias)
            # a walk back adds what comes of a step's end: of the first state it is left
            by_z0[low:high] = (by_start + by_z[0]).reshape(n, -1)
            if by_added is not None:
                # a step and the rest that follows it have one bias
                by_pairs = by_bias.reshape(-1, 2, n, width).sum(1)
                by_added[low:high] = by_pairs.swapaxes(0, 1)
            return by_weights

        each = _each_block(*self.size, work, self.kept, most=_BLOCK)
        by_layers = self.layers.by_layers(Weights._make(_sums(each)))
        return [None, None, None, by_z0, by_added, *by_layers]
