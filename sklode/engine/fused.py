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

import numba
import numpy as np

from sklode.engine import decoding, encoding, kernel
from sklode.engine.cache import Cache
from sklode.engine.emission import EmissionSizes, emission, emission_backward
from sklode.engine.program import Array, Index, Layout, Program
from sklode.engine.simd import n_lanes
from sklode.engine.steps import FieldSizes
from sklode.engine.threads import n_threads

__all__ = [
    "Field",
    "compile_kernel",
    "decode",
    "decode_backward",
    "emit",
    "emit_backward",
    "encode",
    "encode_backward",
    "is_compiled",
]

_WORTH_A_THREAD = 30_000_000
"""Multiplications of a stage, over all steps, from which threads are worth waking."""

_FEW = 3
"""Up to so many series vectors are better filled with the numbers of one."""

_NOTHING = np.zeros((0, 0), np.int64)


def is_compiled(dtype: str = "float32") -> bool:
    """Return whether the kernel need not be compiled any more, as of now."""
    signature = tuple(map(numba.typeof, _nothing_to_do(dtype)))
    if signature in kernel.run.overloads:
        return True
    cache = kernel.run._cache  # numba's own where nothing can be kept
    return isinstance(cache, Cache) and cache.holds(signature, kernel.run.targetctx)


def compile_kernel(dtype: str = "float32") -> None:
    """Have the kernel ready for a precision: from disk, or compile it."""
    kernel.run(*_nothing_to_do(dtype))


def _nothing_to_do(dtype: str) -> tuple[Any, ...]:
    program = Program((), Layout(n_lanes(np.dtype(dtype).itemsize), False)).finish()
    memory = np.zeros(0, dtype)
    arrays = (np.zeros((0, 0, 0), dtype),) * kernel.N_ARRAYS
    given = program.code, arrays, _NOTHING, _NOTHING, memory, memory
    return *given, program.registers, *[0] * 5


class Field:
    """A vector field's weights as the kernel takes them.

    Parameters
    ----------
    w1, b1, inner, wo, bo : ndarray
        As in `sklode.engine.FieldWeights`; ``inner`` weights and biases in turn.
    method, activation : str
        Keys of `TABLEAUS` and `ACTIVATIONS` of `sklode.engine.steps`.
    """

    @np.errstate(over="ignore", invalid="ignore")  # as in torch: who calls looks
    def __init__(
        self,
        w1: Array,
        b1: Array,
        inner: tuple[Array, ...],
        wo: Array,
        bo: Array,
        method: str,
        activation: str,
    ) -> None:
        width, n_state = w1.shape
        depth = 1 + len(inner) // 2
        self.sizes = FieldSizes(n_state, width, depth, method, activation)
        hidden = (w1 @ wo, w1 @ bo) if self.sizes.in_hidden_space else ()
        self.weights = [w1, b1, wo, bo, *inner, *hidden]
        self.cost = width * (width + n_state)  # multiplications of a stage

    @np.errstate(over="ignore", invalid="ignore")
    def by_layers(self, grads: Sequence[Array]) -> list[Array]:
        """Return the gradients by W_1, b_1, W_o, b_o and the inner layers.

        In hidden space M = W_1 W_o and c = W_1 b_o pass theirs on.
        """
        if not self.sizes.in_hidden_space:
            return list(grads)
        w1, b1, wo, bo, *inner, m, c = grads
        own_w1, _, own_wo, own_bo, *_ = self.weights
        w1 = w1 + m @ own_wo.T + np.outer(c, own_bo)
        return [w1, b1, wo + own_w1.T @ m, bo + own_w1.T @ c, *inner]


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """Return an array whose data begin at a multiple of 64 bytes."""
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

    def work(low: int, high: int) -> dict[int, Array]:
        memory = _memory(program.n_numbers, dtype)
        memory[program.first_number :] = numbers
        grid = np.empty((program.n_lanes, batch.n_steps + 1, batch.n_grid), dtype)
        spare = [np.zeros((0, 0, 0), dtype)] * (kernel.N_ARRAYS - 1 - len(arrays))
        kernel.run(
            *(program.code, (grid, *arrays, *spare), batch.flags, batch.left),
            *(memory, kept, program.registers, low, high, batch.n_steps),
            *(int(batch.backward), int(program.layout.single)),
        )
        return program.read_gradients(memory)

    parts = _in_parts(batch, program.layout.series_per_block, work)
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


def _layout(n_series: int, dtype: np.dtype) -> Layout:
    return Layout(n_lanes(dtype.itemsize), n_series <= _FEW)


def _kept(program: Program, n_series: int, n_steps: int, dtype: np.dtype) -> Array:
    """Return room for what a program keeps of each step."""
    n_blocks = -(-n_series // program.layout.series_per_block)
    n = n_blocks * (n_steps + 1) * program.n_kept * program.n_lanes
    return aligned((n,), dtype)


def _anywhere(condition: Array, layout: Layout) -> Array:
    """Return what is so for any series of a block, from (series, step)."""
    if layout.single or not len(condition):
        return condition
    firsts = np.arange(0, len(condition), layout.n_lanes)
    return np.logical_or.reduceat(condition, firsts)


class Encoding(NamedTuple):
    """What the encoder's backward pass needs of the forward one."""

    sizes: encoding.EncoderSizes
    batch: _Batch
    weights: list[Array]
    walk: tuple[Array, Array, Array]
    field: Field | None
    kept: Array


def encode(
    cell: tuple[Array, Array, Array],
    field: Field | None,
    x: Array,
    dt: Array,
    seen: Array,
) -> tuple[Array, Encoding]:
    """Return the last h (series, state), and what the backward pass needs.

    ``cell`` is W_hh, its bias and W_ih; ``x`` (series, step, input); ``dt`` and
    ``seen`` (series, step). Without a field nothing flows.
    """
    (n_series, n_steps), dtype = dt.shape, x.dtype
    n_out, n_state = cell[0].shape
    layout = _layout(n_series, dtype)
    sizes = encoding.EncoderSizes(
        *(n_state, x.shape[2], n_out // n_state, field and field.sizes, layout)
    )
    flags = encoding.VISITS * _anywhere(seen != 0, layout).astype(np.int64)
    flags += encoding.FLOWS * _anywhere(dt != 0, layout)
    cost = n_steps * (field.cost if field else cell[0].size)
    batch = _Batch(n_series, n_steps, cost, flags)
    weights = [*cell, *(field.weights if field else ())]
    walk = x, dt[..., None], seen[..., None]
    h = np.empty((n_series, 1, n_state), dtype)
    program = encoding.encoder(sizes)
    kept = _kept(program, n_series, n_steps, dtype)
    _run(program, batch, weights, [*walk, h], kept)
    return h[:, 0], Encoding(sizes, batch, weights, walk, field, kept)


def encode_backward(
    saved: Encoding, grad_h: Array, wants_x: bool
) -> tuple[Array | None, list[Array]]:
    """Return the gradients by x, if wanted, and by W_hh, its bias, W_ih, the layers."""
    sizes, batch, weights, walk, field, kept = saved
    batch = batch._replace(backward=True)
    grad_x = np.zeros(walk[0].shape if wants_x else (0, 0, 0), grad_h.dtype)
    program = encoding.encoder_backward(sizes, wants_x)
    arrays = [*walk, grad_h[:, None], grad_x]
    found = _run(program, batch, weights, arrays, kept)
    grads = [found[k] for k in range(len(weights))]
    by_layers = field.by_layers(grads[3:]) if field else []
    return grad_x if wants_x else None, [*grads[:3], *by_layers]


class Decoding(NamedTuple):
    """What the decoder's backward pass needs of the forward one."""

    sizes: decoding.DecoderSizes
    batch: _Batch
    field: Field
    steps: tuple[Array, Array, Array]
    kept: Array


def decode(
    field: Field,
    z0: Array,
    dt: Array,
    added: Array | None,
    left: Index,
    theta: Array,
) -> tuple[Array, Decoding]:
    """Return the states (series, query, state), and what the backward pass needs.

    ``dt`` is (series, step), ``added``, to the first layer's bias, (series, step,
    width). ``left`` is the step in which each query lies, ``theta`` its place there,
    from 0 to 1.
    """
    (n_series, n_steps), dtype = dt.shape, dt.dtype
    layout = _layout(n_series, dtype)
    sizes = decoding.DecoderSizes(field.sizes, added is not None, layout)
    flows = _anywhere(dt != 0, layout)
    ending = np.ones_like(flows)
    ending[:, :-1] = ~flows[:, 1:]
    flags = decoding.FLOWS * flows.astype(np.int64) + decoding.ENDING * ending
    cost = n_steps * field.cost
    batch = _Batch(n_series, n_steps, cost, flags, left, sizes.n_grid)
    none = np.zeros((0, 0, 0), dtype)
    bias = none if added is None else added + field.weights[1]
    steps = dt[..., None], bias, theta[..., None]
    z = np.empty((*left.shape, field.sizes.n_state), dtype)
    program = decoding.decoder(sizes)
    kept = _kept(program, n_series, n_steps, dtype)
    _run(program, batch, field.weights, [z0[:, None], *steps, z], kept)
    return z, Decoding(sizes, batch, field, steps, kept)


def decode_backward(
    saved: Decoding, grad_z: Array
) -> tuple[Array, Array | None, list[Array]]:
    """Return the gradients by z0, by ``added`` and by the layers."""
    sizes, batch, field, steps, kept = saved
    grad_z0 = np.empty((batch.n_series, 1, field.sizes.n_state), grad_z.dtype)
    grad_added = np.zeros_like(steps[1])
    batch = batch._replace(backward=True)
    program = decoding.decoder_backward(sizes)
    arrays = [grad_z0, *steps, grad_z, grad_added]
    found = _run(program, batch, field.weights, arrays, kept)
    by_layers = field.by_layers([found[k] for k in range(len(field.weights))])
    return grad_z0[:, 0], grad_added if sizes.controlled else None, by_layers


def _emission(weights: Sequence[Array], z: Array) -> tuple[EmissionSizes, _Batch]:
    width, n_inputs = weights[0].shape
    layout = Layout(n_lanes(z.itemsize), False)
    sizes = EmissionSizes(n_inputs, width, len(weights[2]), layout)
    return sizes, _Batch(len(z), 0, width * (n_inputs + sizes.n_channels))


def emit(weights: Sequence[Array], z: Array) -> Array:
    """Return x (state, channel) of the states z (state, feature).

    ``weights`` are W_1, b_1, W_2 and b_2, see `sklode.engine.emission`.
    """
    sizes, batch = _emission(weights, z)
    x = np.empty((len(z), 1, sizes.n_channels), z.dtype)
    _run(emission(sizes), batch, weights, [z[:, None], x], np.zeros(0, z.dtype))
    return x[:, 0]


def emit_backward(
    weights: Sequence[Array], z: Array, grad_x: Array
) -> tuple[Array, list[Array]]:
    """Return the gradients by z and by the weights."""
    sizes, batch = _emission(weights, z)
    grad_z = np.empty((len(z), 1, sizes.n_inputs), z.dtype)
    arrays = [z[:, None], grad_x[:, None], grad_z]
    kept = np.zeros(0, z.dtype)
    found = _run(emission_backward(sizes), batch, weights, arrays, kept)
    return grad_z[:, 0], [found[k] for k in range(len(weights))]
