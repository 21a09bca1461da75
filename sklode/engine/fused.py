"""The fused engine: one compiled call for a whole batch of sequences.

The batch is shared over torch's threads; each has working memory of its own. Gradients
of the parts are added in a fixed order, so that results repeat bit by bit at an equal
number of threads. Arrays are C-contiguous, and of one precision.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from sklode.engine import decoding, encoding, kernel
from sklode.engine.program import Array, Index, Program
from sklode.engine.simd import n_lanes
from sklode.engine.steps import FieldSizes
from sklode.engine.threads import n_threads

_WORTH_A_THREAD = 30_000_000
"""Multiplications of a stage, over all steps, from which threads are worth waking."""

_NOTHING = np.zeros((0, 0), np.int64)


class Field:
    """A vector field's weights as the kernel takes them.

    ``how`` are the method and the activation, and the layers those of
    `sklode.engine.FieldWeights.layers`.
    """

    @np.errstate(over="ignore", invalid="ignore")  # as in torch: who calls looks
    def __init__(self, how: tuple[str, str], *layers: Array) -> None:
        w1, _, wo, bo, *inner = layers
        width, n_state = w1.shape
        self.sizes = FieldSizes(n_state, width, 1 + len(inner) // 2, *how)
        hidden = (w1 @ wo, w1 @ bo) if self.sizes.in_hidden_space else ()
        self.weights = [*layers, *hidden]
        self.cost = width * (width + n_state)  # multiplications of a stage

    @np.errstate(over="ignore", invalid="ignore")
    def by_layers(self, grads: Sequence[Array]) -> list[Array]:
        """Return the gradients by the layers.

        In hidden space M = W_1 W_o and c = W_1 b_o pass theirs on.
        """
        if not self.sizes.in_hidden_space:
            return list(grads)
        w1, b1, wo, bo, *inner, m, c = grads
        own_w1, _, own_wo, own_bo, *_ = self.weights
        w1 = w1 + m @ own_wo.T + np.outer(c, own_bo)
        return [w1, b1, wo + own_w1.T @ m, bo + own_w1.T @ c, *inner]


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """Return a fresh array that begins at a multiple of 64 bytes."""
    n = math.prod(shape)
    room = np.empty(n + 32, dtype)
    start = (-room.ctypes.data % 64) // room.itemsize
    return room[start : start + n].reshape(shape)


_WORKSPACE = threading.local()


def _memory(n: int, dtype: np.dtype) -> Array:
    """Return working memory of the calling thread, for one call at a time."""
    kept: Array | None = getattr(_WORKSPACE, dtype.char, None)
    if kept is None or len(kept) < n:
        kept = aligned((n,), dtype)
        setattr(_WORKSPACE, dtype.char, kept)
    return kept[:n]


class _Batch(NamedTuple):
    """What a run is about."""

    n_series: int
    n_steps: int
    cost: int  # multiplications of a series
    flags: Index = _NOTHING
    left: Index = _NOTHING
    n_grid: int = 0
    backward: bool = False

    def room(self, program: Program, dtype: np.dtype) -> Array:
        """Return room for what a program keeps of each step."""
        n_blocks = -(-self.n_series // program.n_lanes)
        n = n_blocks * (self.n_steps + 1) * program.n_kept * program.n_lanes
        return aligned((n,), dtype)


def _run(
    program: Program,
    batch: _Batch,
    weights: Sequence[Array],
    arrays: Sequence[Array],
    kept: Array,
) -> dict[int, Array]:
    """Carry out a program, in parts; return the gradients by its weights.

    ``arrays`` are (series, step, feature).
    """
    dtype = kept.dtype
    constants = np.array(program.constants, dtype)
    numbers = np.concatenate([*map(np.ravel, weights), constants])[program.numbers]
    spare = [np.zeros((0, 0, 0), dtype)] * (kernel.N_ARRAYS - 1 - len(arrays))

    def work(low: int, high: int) -> dict[int, Array]:
        memory = _memory(program.n_numbers, dtype)
        memory[program.first_number :] = numbers
        grid = aligned((program.n_lanes, batch.n_steps + 1, batch.n_grid), dtype)
        given = (grid, *arrays, *spare), batch.flags, batch.left, memory, kept
        which = low, high, batch.n_steps, int(batch.backward)
        kernel.run(program.code, program.registers, *given, *which)
        return program.read_gradients(memory)

    parts = _in_parts(batch, program.n_lanes, work)
    total = parts[0]
    for part, (k, grad) in itertools.product(parts[1:], total.items()):
        grad += part[k]
    return total


def _in_parts(
    batch: _Batch, per_block: int, work: Callable[[int, int], Any]
) -> list[Any]:
    """Call ``work(low, high)`` for parts of the batch, one a thread, in their order."""
    n_blocks = -(-batch.n_series // per_block)
    n_parts = min(n_threads(), n_blocks)
    if n_parts <= 1 or n_blocks * per_block * batch.cost < _WORTH_A_THREAD:
        return [work(0, batch.n_series)]
    cuts = [k * n_blocks // n_parts * per_block for k in range(n_parts)]
    first, *others = itertools.pairwise([*cuts, batch.n_series])
    running = [_threads_of(os.getpid()).submit(work, *part) for part in others]
    return [work(*first), *(other.result() for other in running)]


@functools.cache
def _threads_of(process: int) -> ThreadPoolExecutor:
    """Return threads that wait for parts; a forked process has its own."""
    return ThreadPoolExecutor(os.cpu_count())


def _any_of_block(condition: Array, n_lanes: int) -> Index:
    """Return what is so for any series of a block, from (series, step)."""
    firsts = np.arange(0, len(condition), n_lanes)
    return np.logical_or.reduceat(condition, firsts).astype(np.int64)


class Encoding:
    """One run of the encoder: flows and cell updates along all steps.

    ``how`` is None where nothing flows; ``seen`` is 1 where the cell is updated at a
    step's end, else 0. ``result`` is the last h, (series, state).
    """

    def __init__(
        self,
        how: tuple[str, str] | None,
        dt: Array,
        seen: Array,
        x: Array,
        w_hh: Array,
        bias: Array,
        w_ih: Array,
        *layers: Array,
    ) -> None:
        (n_series, n_steps), (n_out, n_state) = dt.shape, w_hh.shape
        self.field = None if how is None else Field(how, *layers)
        flowing = self.field.sizes if self.field else None
        self.weights = [w_hh, bias, w_ih, *(self.field.weights if self.field else [])]
        lanes = n_lanes(x.dtype.itemsize)
        n_gates = n_out // n_state
        sizes = encoding.EncoderSizes(n_state, x.shape[2], n_gates, flowing, lanes)
        flags = encoding.VISITS * _any_of_block(seen != 0, lanes)
        flags += encoding.FLOWS * _any_of_block(dt != 0, lanes)
        cost = n_steps * (self.field.cost if self.field else w_hh.size)
        self.sizes, self.batch = sizes, _Batch(n_series, n_steps, cost, flags)
        self.walk = x, dt[..., None], seen[..., None]
        h = aligned((n_series, 1, n_state), x.dtype)
        program = encoding.encoder(sizes)
        self.kept = self.batch.room(program, x.dtype)
        _run(program, self.batch, self.weights, [*self.walk, h], self.kept)
        self.result = h[:, 0]

    def backward(self, grad: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradients by all that the run was made of, but for ``how``."""
        wants_x = wanted[2]
        by_x = np.zeros(self.walk[0].shape if wants_x else (0, 0, 0), grad.dtype)
        found = _run(
            encoding.encoder_backward(self.sizes, wants_x),
            self.batch._replace(backward=True),
            self.weights,
            [*self.walk, grad[:, None], by_x],
            self.kept,
        )
        grads = [found[k] for k in range(len(self.weights))]
        layers = self.field.by_layers(grads[3:]) if self.field else []
        return [None, None, by_x if wants_x else None, *grads[:3], *layers]


class Decoding:
    """One run of the decoder: all steps, and answers between them.

    ``added``, (series, step, width), is what is added to the first layer's bias, or
    None. ``result`` are the states, (series, query, state).
    """

    def __init__(
        self,
        how: tuple[str, str],
        dt: Array,
        left: Index,
        theta: Array,
        z0: Array,
        added: Array | None,
        *layers: Array,
    ) -> None:
        (n_series, n_steps), dtype = dt.shape, dt.dtype
        self.field = Field(how, *layers)
        lanes = n_lanes(dtype.itemsize)
        sizes = decoding.DecoderSizes(self.field.sizes, added is not None, lanes)
        flows = _any_of_block(dt != 0, lanes)
        followed = np.pad(flows[:, 1:], [(0, 0), (0, min(n_steps, 1))])
        flags = decoding.FLOWS * flows + decoding.ENDING * (1 - followed)
        self.sizes, cost = sizes, n_steps * self.field.cost
        self.batch = _Batch(n_series, n_steps, cost, flags, left, sizes.n_grid)
        none = np.zeros((0, 0, 0), dtype)
        bias = none if added is None else added + self.field.weights[1]
        self.steps = dt[..., None], bias, theta[..., None]
        self.result = aligned((*left.shape, z0.shape[1]), dtype)
        program = decoding.decoder(sizes)
        self.kept = self.batch.room(program, dtype)
        arrays = [z0[:, None], *self.steps, self.result]
        _run(program, self.batch, self.field.weights, arrays, self.kept)

    def backward(self, grad: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradients by all that the run was made of, but for ``how``."""
        by_z0 = aligned((self.batch.n_series, 1, grad.shape[2]), grad.dtype)
        by_added = np.zeros_like(self.steps[1])
        found = _run(
            decoding.decoder_backward(self.sizes),
            self.batch._replace(backward=True),
            self.field.weights,
            [by_z0, *self.steps, grad, by_added],
            self.kept,
        )
        layers = self.field.by_layers([found[k] for k in range(len(found))])
        added = by_added if self.sizes.controlled else None
        return [None, None, None, by_z0[:, 0], added, *layers]
