"""Runs of encoder and decoder over a batch, forward and backward, block by block.

What is kept of each step is a row of an array (step, series * feature).
"""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

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

Array: TypeAlias = NDArray[np.floating]

_BLOCK = 64
"""Most series of a block: what a step works on stays in the caches."""

_WORTH_A_THREAD = 30_000_000
"""Multiplications, over all steps, from which threads are worth waking."""

_MOST_STAGES = 4


class _Blocks:
    """The blocks of a batch; ``cost`` are the multiplications of a series.

    They do not depend on the number of threads, and sums over them are added in their
    order, so that results repeat bit by bit.
    """

    def __init__(self, n_series: int, cost: int) -> None:
        n = max(-(-n_series // _BLOCK), 1)
        cuts = [k * n_series // n for k in range(n + 1)]
        self.ranges = list(itertools.pairwise(cuts))
        self.is_large = n_series * cost >= _WORTH_A_THREAD

    def each(self, work: Callable[..., Any], *given: list[Any]) -> list[Any]:
        """Return ``work(low, high, ...)`` of each block, in threads where it pays."""
        parts = (*zip(*self.ranges, strict=True), *given)
        n = min(n_threads(), len(self.ranges)) if self.is_large else 1
        if n <= 1:
            return list(map(work, *parts))
        return list(_threads_of(os.getpid(), n).map(work, *parts))


@functools.cache
def _threads_of(process: int, n: int) -> ThreadPoolExecutor:
    """Return so many threads that wait for work; a forked process has its own."""
    return ThreadPoolExecutor(n)


def _sums(parts: Iterable[Sequence[Array]]) -> Sequence[Array]:
    first, *others = parts
    for other in others:
        for total, part in zip(first, other, strict=True):
            total += part
    return first


def _by_step(part: Array) -> Array:
    """Return (series, step, ...) as (step, series * ...)."""
    n_series, n_steps, *sizes = part.shape
    by_step = np.ascontiguousarray(part.swapaxes(0, 1))
    return by_step.reshape(n_steps, n_series * math.prod(sizes))


class _Field:
    """A vector field's weights, as compiled functions take them, and its gradients."""

    @np.errstate(over="ignore", invalid="ignore")  # as in torch: who calls looks
    def __init__(self, method: str, *layers: Array) -> None:
        w1, b1, *second, wo, bo = layers
        w2, b2 = second or (w1[:0, :0], b1[:0])
        weights, self.biases = (w1, w2, w1 @ wo, wo), (b1, b2, w1 @ bo, bo)
        (self.width, self.n_state), self.dtype = w1.shape, w1.dtype
        self.layers, self.sizes = layers, (self.n_state, self.width)
        tableau = TABLEAUS[method]
        a = np.zeros((_MOST_STAGES, _MOST_STAGES), self.dtype)
        for i, row in enumerate(tableau.a):
            a[i, : len(row)] = row
        b = np.array(tableau.b, self.dtype)
        self.method, self.n_stages = (a, np.ascontiguousarray(a.T), b), len(b)
        self.forward = tuple(np.ascontiguousarray(w.T).ravel() for w in weights)
        self.back = tuple(w.ravel() for w in weights)
        square, thin = self.width**2, self.width * self.n_state
        self.cost = self.n_stages * (square + w2.size) + 2 * thin  # of a step

    def to_step(self, n_series: int) -> tuple[Any, ...]:
        """Return what `step` takes: biases stand once a series."""
        biases = tuple(np.tile(bias, n_series) for bias in self.biases)
        return self.method, self.forward, biases, self.sizes

    def to_step_back(self) -> tuple[Any, ...]:
        """Return what `step_back` takes."""
        return self.method, self.back, self.biases, self.sizes

    def values(self, n_steps: int, n_series: int) -> tuple[Array, Array]:
        """Return room for what the hidden layers give at so many steps."""
        shape = n_steps, self.n_stages, n_series * self.width
        second = (*shape[:2], 0) if len(self.layers) == 4 else shape
        return np.empty(shape, self.dtype), np.empty(second, self.dtype)

    def room(self, n_series: int, n_gates: int = 0) -> tuple[Array, ...]:
        """Return room for a step: of (series, width), (series, state), and gates."""
        wide = np.zeros((14, n_series * self.width), self.dtype)
        narrow = np.zeros((3, n_series * self.n_state), self.dtype)
        return wide, narrow, np.empty(n_series * n_gates, self.dtype)

    def zero_gradients(self) -> tuple[Array, ...]:
        """Return sums to come, by W_1, W_2, M, W_o and b_1, b_2, c, b_o; and room."""
        zeros = [np.zeros_like(part) for part in (*self.back, *self.biases)]
        return (*zeros, np.empty(max(w.size for w in self.back), self.dtype))

    @np.errstate(over="ignore", invalid="ignore")
    def by_layers(self, grads: Sequence[Array]) -> list[Array]:
        """Return gradients by the layers; M = W_1 W_o and c = W_1 b_o pass theirs on.

        ``grads`` are those of `zero_gradients`.
        """
        own_w1, _, *second, own_wo, own_bo = self.layers
        w1, w2, m, wo, b1, b2, c, bo = grads
        m = m.reshape(self.width, self.width)
        w1 = w1.reshape(own_w1.shape) + m @ own_wo.T + np.outer(c, own_bo)
        wo, bo = wo.reshape(own_wo.shape) + own_w1.T @ m, bo + own_w1.T @ c
        return [w1, b1, *([w2.reshape(m.shape), b2] if second else []), wo, bo]


class Encoding:
    """One run of the encoder: flows and cell updates along all steps.

    ``seen`` is 1 where the cell is updated at a step's end, else 0; ``cell`` is
    [W_h, W_x, b], (gates * state, state + input + 1). ``result`` is the last h,
    (series, state).
    """

    def __init__(
        self,
        method: str,
        keeps: bool,
        dt: Array,
        seen: Array,
        x: Array,
        cell: Array,
        *layers: Array,
    ) -> None:
        self.field, self.x, self.cell = _Field(method, *layers), x, cell
        self.dt, self.seen, n_state = dt, seen, self.field.n_state
        cost = dt.shape[1] * (self.field.cost + cell.size)
        self.blocks = _Blocks(len(dt), cost)
        self.result = np.empty((len(dt), n_state), x.dtype)

        def work(low: int, high: int) -> Any:
            run = self._run(low, high)
            self.result[low:high] = run[-1][0][-1].reshape(-1, n_state)
            return run if keeps else None

        self.kept = self.blocks.each(work)

    def _run(self, low: int, high: int) -> tuple[Any, ...]:
        """Encode a block; return what the backward pass needs."""
        dt, seen = _by_step(self.dt[low:high]), _by_step(self.seen[low:high])
        flags = FLOWS * (dt != 0).any(1) + VISITS * (seen != 0).any(1)
        (n_steps, n), dtype = dt.shape, dt.dtype
        (n_out, n_read), n_state = self.cell.shape, self.field.n_state
        scale = np.full((n, n_out // n_state, n_state), 0.5, dtype)
        scale[:, min(2, scale.shape[1] - 1)] = 1.0  # the gate that is a tanh
        h = np.zeros((n_steps + 1, n * n_state), dtype)
        c = np.zeros((n_steps + 1, h.shape[1] if n_out > n_state else 0), dtype)
        read, gates = (np.empty((n_steps, n * k), dtype) for k in (n_read, n_out))
        none = np.empty((1, 0), dtype)
        kept = h, c, read, gates, *self.field.values(n_steps, n), none
        field, weights = self.field.to_step(n), np.ascontiguousarray(self.cell.T)
        given = seen, _by_step(self.x[low:high]), field[2][0][None]
        room, cell = self.field.room(n, n_out), (weights.ravel(), scale.ravel())
        walk(dt, flags, given, cell, field, kept, room)
        return dt, seen, flags, kept

    def backward(self, grad: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradients by all tensors that the run was made of."""
        (n_out, _), n_state, n_x = self.cell.shape, self.field.n_state, self.x.shape[2]
        by_x = np.zeros(self.x.shape, grad.dtype) if wanted[2] else None
        w_h, w_x, _ = np.split(self.cell, [n_state, n_state + n_x], axis=1)

        def work(low: int, high: int, run: tuple[Any, ...]) -> tuple[Array, ...]:
            dt, seen, flags, kept = run
            n_steps, n = dt.shape
            none = np.empty((n_steps, 0), grad.dtype)
            by_steps = none
            if by_x is not None:
                by_steps = np.zeros((n_steps, n * n_x), grad.dtype)
            by_bias = np.zeros((1, n * self.field.width), grad.dtype)
            given = seen, none, none, by_steps, by_bias
            g = np.zeros((2, n * n_state), grad.dtype)
            g[0] = grad[low:high].ravel()
            sums = np.zeros((2, self.cell.size), grad.dtype)
            cell = w_h.ravel(), w_x.ravel(), *sums
            field, grads = self.field.to_step_back(), self.field.zero_gradients()
            room = self.field.room(n, n_out)
            walk_back(g, dt, flags, given, cell, field, kept, grads, room)
            if by_x is not None:
                by_x[low:high] = by_steps.reshape(-1, n, n_x).swapaxes(0, 1)
            return sums[0], *grads[:-1]

        by_cell, *found = _sums(self.blocks.each(work, self.kept))
        by_cell = by_cell.reshape(self.cell.shape)
        return [None, None, by_x, by_cell, *self.field.by_layers(found)]


class Decoding:
    """One run of the decoder: all steps of its grid, and answers between them.

    Between grid points the answer is the cubic Hermite interpolant of z and dz/dt at
    both ends of a step. With a control held over each step dz/dt jumps at the grid
    points, and a step's end has a derivative of its own; otherwise it is that of the
    next start. ``added``, (series, step, width), is what is added to the first layer's
    bias, or None. ``result`` are the states, (series, query, state).
    """

    def __init__(
        self,
        method: str,
        keeps: bool,
        dt: Array,
        left: NDArray[np.int64],
        theta: Array,
        z0: Array,
        added: Array | None,
        *layers: Array,
    ) -> None:
        self.field, self.asked = _Field(method, *layers), (left, theta)
        self.dt, self.z0, self.added = dt, z0, added
        self.stride = 1 if added is None else 2  # steps of the walk from z to z
        self.blocks = _Blocks(len(dt), dt.shape[1] * self.field.cost)
        self.result = np.empty((*left.shape, z0.shape[1]), dt.dtype)

        def work(low: int, high: int) -> Any:
            run, part = self._run(low, high), slice(low, high)
            dt, *_, kept = run
            grid = dt, kept[0], kept[-1]
            answer(self.stride, *grid, left[part], theta[part], self.result[part])
            return run if keeps else None

        self.kept = self.blocks.each(work)

    def _run(self, low: int, high: int) -> tuple[Any, ...]:
        """Solve a block; return what the backward pass needs.

        Steps that do not flow give dz/dt where another ends: after each step that has a
        bias of its own, else after the last one.
        """
        dt, b1, n = _by_step(self.dt[low:high]), self.field.biases[0], high - low
        if self.added is None:
            dt, bias = np.pad(dt, [(0, 1), (0, 0)]), np.tile(b1, n)[None]
            flags = np.full(len(dt), FLOWS | DENSE)
            flags[-1] = DENSE
        else:
            bias = np.repeat(_by_step(self.added[low:high] + b1), 2, axis=0)
            flags = np.tile(np.array([FLOWS | DENSE, DENSE]), len(dt))
            dt = np.stack([dt, np.zeros_like(dt)], axis=1).reshape(-1, n)
        z = np.empty((len(dt) + 1, n * self.field.n_state), dt.dtype)
        z[0] = self.z0[low:high].ravel()
        none, rates = np.empty((len(z), 0), dt.dtype), np.empty_like(z[1:])
        kept = z, none, none, none, *self.field.values(len(dt), n), rates
        given, field = (none, none, bias), self.field.to_step(n)
        walk(dt, flags, given, (none[0], none[0]), field, kept, self.field.room(n))
        return dt, flags, bias, kept

    def backward(self, grad: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradients by all tensors that the run was made of."""
        by_z0 = np.empty_like(self.z0)
        by_added = None if self.added is None else np.empty_like(self.added)

        def work(low: int, high: int, run: tuple[Any, ...]) -> tuple[Array, ...]:
            dt, flags, bias, kept = run
            n, none = high - low, np.empty((len(dt) + 1, 0), grad.dtype)
            by_z, by_rates = np.zeros_like(kept[0]), np.zeros_like(kept[-1])
            asked = (part[low:high] for part in self.asked)
            answer_back(self.stride, dt, by_z, by_rates, *asked, grad[low:high])
            g, by_bias = np.zeros((2, by_z.shape[1]), grad.dtype), np.zeros_like(bias)
            given = none, by_z, by_rates, none, by_bias
            field, grads = self.field.to_step_back(), self.field.zero_gradients()
            cell, room = (none[0],) * 4, self.field.room(n)
            walk_back(g, dt, flags, given, cell, field, kept, grads, room)
            by_z0[low:high] = (g[0] + by_z[0]).reshape(n, -1)
            if by_added is not None:
                by_steps = by_bias.reshape(-1, 2, n, bias.shape[1] // n).sum(1)
                by_added[low:high] = by_steps.swapaxes(0, 1)
            return grads[:-1]

        found = _sums(self.blocks.each(work, self.kept))
        return [None, None, None, by_z0, by_added, *self.field.by_layers(found)]
