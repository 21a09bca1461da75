"""The fused engine: one compiled call for a whole batch of sequences.

The batch is shared over torch's threads; each has working memory of its own. Gradients
of the parts are added in a fixed order, so that results repeat bit by bit at an equal
number of threads.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import math
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklode.engine.flows import TABLEAUS
from sklode.engine.threads import n_threads

__all__ = [
    "Field",
    "decode",
    "decode_backward",
    "emit",
    "emit_backward",
    "encode",
    "encode_backward",
]

Array = NDArray[np.floating]
Queries = tuple[NDArray[np.int64], Array]

CHUNK = 8
"""Steps whose outer products the backward pass sums at once."""

_WORTH_A_THREAD = 30_000_000
"""Multiplications of a stage, over all steps, from which threads are worth waking."""

_KINDS = {"tanh": 0, "elu": 1, "softplus": 2}
"""Activations as the kernels number them."""


@functools.cache
def _kernels(name: str) -> Any:
    """Return a module of compiled functions; numba is an optional dependency."""
    return importlib.import_module(f"sklode.engine.{name}")


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """Return an array whose data begins at a multiple of 64 bytes."""
    n = math.prod(shape)
    room = np.empty(n + 32, dtype)
    start = (-room.ctypes.data % 64) // room.itemsize
    return room[start : start + n].reshape(shape)


class _Rooms:
    """Large memory that nobody reads any more, for arrays of the same size.

    A system clears large memory before it hands it out, which takes a twentieth of a
    training step where every step asks anew.
    """

    least_bytes, most_bytes = 2**20, 2**26

    def __init__(self) -> None:
        self._free: list[Array] = []
        self._lock = threading.RLock()  # memory may come back during a search

    def take(self, shape: tuple[int, ...], dtype: np.dtype) -> Array:
        """Return an array with anything in it; once it is gone its memory is free.

        Views must hold on to the array itself, as torch's tensors do.
        """
        n = math.prod(shape)
        if n * dtype.itemsize < self.least_bytes:
            return aligned(shape, dtype)
        with self._lock:
            fits = [r for r in self._free if len(r) == n and r.dtype == dtype]
            room = fits[0] if fits else aligned((n,), dtype)
            self._free = [r for r in self._free if r is not room]
        array = room.reshape(shape)
        weakref.finalize(array, self._give_back, room).atexit = False
        return array

    def _give_back(self, room: Array) -> None:
        with self._lock:
            held = [room, *self._free]
            while sum(r.nbytes for r in held) > self.most_bytes:
                held.pop()
            self._free = held


@functools.cache
def _rooms_of(process: int) -> _Rooms:
    return _Rooms()


def _room(shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """Return an array with anything in it; a forked process has memory of its own."""
    return _rooms_of(os.getpid()).take(shape, dtype)


def _room_like(arrays: tuple[Array, ...]) -> tuple[Array, ...]:
    return tuple(np.zeros(array.shape, array.dtype) for array in arrays)


@functools.cache
def _tableau(method: str) -> tuple[Array, Array]:
    """Return a_ij and b_i of a method."""
    tableau = TABLEAUS[method]
    n_stages = len(tableau.b)
    a = np.zeros((n_stages, max(n_stages, 3)))
    for i, row in enumerate(tableau.a):
        a[i, : len(row)] = row
    return a, np.array(tableau.b)


class Field:
    """A vector field's weights as kernels take them.

    Parameters
    ----------
    w1, b1, inner, wo, bo : ndarray
        As in `sklode.engine.FieldWeights`; ``inner`` holds at most one layer.
    method, activation : str
        Keys of `TABLEAUS` and `ACTIVATIONS`.
    layout : {"lanes", "single"}
        Whether products run over series or, of one after the other, over neurons.
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
        layout: str,
    ) -> None:
        self.layout = layout
        self.n_hidden, self.n_state = w1.shape
        none = np.zeros((1, 1), w1.dtype), np.zeros(1, w1.dtype)
        self.deep = bool(inner)
        w2, b2 = inner or none
        a, b = _tableau(method)
        # worth it where a product of (width, width) costs less than the two it replaces
        self.in_hidden_space = len(b) > 1 and self.n_hidden < 1.5 * self.n_state
        m, c = (w1 @ wo, w1 @ bo) if self.in_hidden_space else none
        self.weights = (w1, b1, w2, b2, wo, bo, m, c)
        kind = _KINDS[activation]
        self.how = (self.deep, self.in_hidden_space, kind, a, b)

    @property
    def cost(self) -> int:
        """Multiplications of a stage."""
        return self.n_hidden * (self.n_hidden + self.n_state)

    def room(self) -> tuple[int, int]:
        """Return numbers of working memory per lane, and beside the lanes."""
        width, n = self.n_hidden, self.n_state
        n_stages, solved = len(self.how[4]), max(width, n)
        points = (CHUNK + 1) * n_stages * (2 * solved + 4 * width)
        steps = (CHUNK + 1) * (3 * width + 3 * n)
        weights = 2 * width * (n + width) + 2 * n
        rest = 12 * (width + n) + 2 * n_stages * solved
        return points + steps + weights + rest, 4 * width * (n + width) + width + n

    def gradients(self) -> tuple[Array, ...]:
        """Return room for the gradients by the weights."""
        return _room_like(self.weights)

    @np.errstate(over="ignore", invalid="ignore")
    def by_layers(self, grads: tuple[Array, ...]) -> tuple[Array, ...]:
        """Return the gradients by W_1, b_1, W_o, b_o and the inner layer, if any.

        In hidden space M = W_1 W_o and c = W_1 b_o pass theirs on.
        """
        w1, b1, w2, b2, wo, bo, m, c = grads
        if self.in_hidden_space:
            own_w1, own_wo, own_bo = (self.weights[k] for k in (0, 4, 5))
            w1 = w1 + m @ own_wo.T + np.outer(c, own_bo)
            wo, bo = wo + own_w1.T @ m, bo + own_w1.T @ c
        return (w1, b1, wo, bo, w2, b2) if self.deep else (w1, b1, wo, bo)


_WORKSPACE = threading.local()


def _arena(room: tuple[int, int], n_lanes: int, dtype: np.dtype) -> Array:
    """Return working memory of the calling thread, for one call at a time."""
    per_lane, beside = room
    n = per_lane * n_lanes + beside + 64 * 48
    kept = getattr(_WORKSPACE, dtype.char, None)
    if kept is None or len(kept) < n:
        kept = aligned((n,), dtype)
        setattr(_WORKSPACE, dtype.char, kept)
    return kept


def _layout(name: str) -> int | None:
    """Return the argument by whose type the kernels know the layout."""
    return None if name == "lanes" else 0


def _n_lanes(layout: int | None, dtype: np.dtype) -> int:
    return 64 // dtype.itemsize if layout is None else 1


def _n_blocks(n_series: int, n_lanes: int) -> int:
    return -(-n_series // n_lanes)


def _in_parts(
    n_series: int, n_lanes: int, cost: int, work: Callable[[int, int], Any]
) -> list[Any]:
    """Call ``work(low, high)`` for parts of the batch, one a thread, in their order.

    ``cost`` is in multiplications a series.
    """
    n_blocks = _n_blocks(n_series, n_lanes)
    n_parts = min(n_threads(), n_blocks)
    if n_parts == 1 or n_blocks * n_lanes * cost < _WORTH_A_THREAD:
        return [work(0, n_series)]
    cuts = [k * n_blocks // n_parts * n_lanes for k in range(n_parts)] + [n_series]
    first, *others = itertools.pairwise(cuts)
    running = [_pool().submit(work, *part) for part in others]
    return [work(*first), *(other.result() for other in running)]


@functools.cache
def _threads_of(process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count())


def _pool() -> ThreadPoolExecutor:
    """Return threads that wait for parts; a forked process has its own."""
    return _threads_of(os.getpid())


def _summed(parts: list[tuple[Array, ...]]) -> tuple[Array, ...]:
    total = parts[0]
    for part in parts[1:]:
        for left, right in zip(total, part, strict=True):
            left += right
    return total


def _grid(n_lanes: int, added: Array, n_state: int) -> Array:
    """Return room for what queries read, see `sklode.engine.decoding`."""
    parts = 3 if added.shape[2] else 2
    return np.empty((n_lanes, added.shape[1] + 1, parts * n_state), added.dtype)


def decode(
    field: Field, z0: Array, dt: Array, added: Array, queries: Queries
) -> tuple[Array, Array]:
    """Return the states (series, query, state), and what the backward pass needs.

    ``dt`` is (series, step), ``added`` (series, step, width or 0). ``queries`` are the
    step in which each query lies and its place there, from 0 to 1.
    """
    n_series, n_steps = dt.shape
    layout, dtype = _layout(field.layout), z0.dtype
    n_lanes = _n_lanes(layout, dtype)
    z = _room((*queries[0].shape, field.n_state), dtype)
    blocks = _n_blocks(n_series, n_lanes)
    kept = _room((blocks * n_lanes * (n_steps + 1) * field.n_state,), dtype)

    def work(low: int, high: int) -> None:
        _kernels("decoding").decode(
            *(layout, low, high, field.weights, field.how, z0[:, None], dt[..., None]),
            *(added, queries, z, kept, _grid(n_lanes, added, field.n_state)),
            _arena(field.room(), n_lanes, dtype),
        )

    _in_parts(n_series, n_lanes, n_steps * field.cost, work)
    return z, kept


def decode_backward(
    field: Field,
    dt: Array,
    added: Array,
    queries: Queries,
    kept: Array,
    grad_z: Array,
) -> tuple[Array, ...]:
    """Return the gradients by z0, by ``added`` and by the layers."""
    n_series, n_steps = dt.shape
    layout, dtype = _layout(field.layout), grad_z.dtype
    n_lanes = _n_lanes(layout, dtype)
    grad_z0 = np.empty((n_series, 1, field.n_state), dtype)
    grad_added = np.zeros_like(added)

    def work(low: int, high: int) -> tuple[Array, ...]:
        grads = field.gradients()
        _kernels("decoding").decode_backward(
            *(layout, low, high, field.weights, field.how, dt[..., None], added),
            *(queries, kept, grad_z, grad_z0, grad_added, grads),
            *(
                _grid(n_lanes, added, field.n_state),
                _arena(field.room(), n_lanes, dtype),
            ),
        )
        return grads

    grads = _summed(_in_parts(n_series, n_lanes, n_steps * field.cost, work))
    return grad_z0[:, 0], grad_added, *field.by_layers(grads)


def _encoder_room(field: Field, w: Array) -> tuple[int, int]:
    per_lane, beside = field.room()
    n_out, n_in = w.shape
    cell = (CHUNK + 2) * (n_in + n_out) + n_out * (n_in + 1) + 8 * n_out
    return per_lane + cell, beside + (2 * n_out + 1) * n_in


def encode(
    field: Field, cell: tuple[Array, Array], x: Array, dt: Array, seen: Array
) -> tuple[Array, Array]:
    """Return the last h (series, state), and what the backward pass needs.

    ``cell`` is [W_hh, W_ih] and the bias; ``x`` (series, step, input); ``dt`` and
    ``seen`` (series, step).
    """
    n_series, n_steps = dt.shape
    layout, dtype = _layout(field.layout), x.dtype
    n_lanes = _n_lanes(layout, dtype)
    n = field.n_state
    n_kept = 2 * n if len(cell[0]) == 4 * n else n
    h = np.empty((n_series, 1, n), dtype)
    blocks = _n_blocks(n_series, n_lanes)
    kept = _room((blocks * n_lanes * (n_steps + 1) * n_kept,), dtype)
    room = _encoder_room(field, cell[0])

    def work(low: int, high: int) -> None:
        _kernels("encoding").encode(
            *(layout, low, high, field.weights, field.how, cell),
            *(
                (x, dt[..., None], seen[..., None]),
                h,
                kept,
                _arena(room, n_lanes, dtype),
            ),
        )

    _in_parts(n_series, n_lanes, n_steps * field.cost, work)
    return h[:, 0], kept


def encode_backward(
    field: Field,
    cell: tuple[Array, Array],
    x: Array,
    dt: Array,
    seen: Array,
    kept: Array,
    grad_h: Array,
    wants_x: bool,
) -> tuple[Any, ...]:
    """Return the gradients by x (or None), [W_hh, W_ih], the bias and the layers."""
    n_series, n_steps = dt.shape
    layout, dtype = _layout(field.layout), x.dtype
    n_lanes = _n_lanes(layout, dtype)
    grad_x = np.zeros(x.shape if wants_x else (n_series, 0, x.shape[2]), dtype)
    room = _encoder_room(field, cell[0])

    def work(low: int, high: int) -> tuple[Array, ...]:
        grads = field.gradients()
        grad_cell = _room_like(cell)
        _kernels("encoding").encode_backward(
            *(layout, low, high, field.weights, field.how, cell),
            *(
                (x, dt[..., None], seen[..., None]),
                kept,
                grad_h[:, None],
                grad_x,
                grads,
                grad_cell,
            ),
            _arena(room, n_lanes, dtype),
        )
        return *grads, *grad_cell

    *grads, grad_w, grad_bias = _summed(
        _in_parts(n_series, n_lanes, n_steps * field.cost, work)
    )
    by_layers = field.by_layers(tuple(grads))
    return grad_x if wants_x else None, grad_w, grad_bias, *by_layers


def emit(weights: tuple[Array, ...], z: Array) -> Array:
    """Return x (state, channel) of the states z (state, feature).

    ``weights`` are W_1, b_1, W_2 and b_2, see `sklode.engine.emission`.
    """
    n_states, dtype = len(z), z.dtype
    x = _room((n_states, len(weights[2])), dtype)
    n_lanes = _n_lanes(None, dtype)
    room, cost = _emission_room(weights)

    def work(low: int, high: int) -> None:
        arena = _arena(room, n_lanes, dtype)
        _kernels("emission").emit(low, high, weights, z[:, None], x[:, None], arena)

    _in_parts(n_states, n_lanes, cost, work)
    return x


def emit_backward(
    weights: tuple[Array, ...], z: Array, grad_x: Array
) -> tuple[Array, ...]:
    """Return the gradients by z and by the weights."""
    n_states, dtype = len(z), z.dtype
    grad_z = _room((n_states, z.shape[1]), dtype)
    n_lanes = _n_lanes(None, dtype)
    room, cost = _emission_room(weights)

    def work(low: int, high: int) -> tuple[Array, ...]:
        grads = _room_like(weights)
        _kernels("emission").emit_backward(
            *(low, high, weights, z[:, None], grad_x[:, None], grad_z[:, None], grads),
            _arena(room, n_lanes, dtype),
        )
        return grads

    grads = _summed(_in_parts(n_states, n_lanes, cost, work))
    return grad_z, *grads


def _emission_room(weights: tuple[Array, ...]) -> tuple[tuple[int, int], int]:
    (width, n_in), n_out = weights[0].shape, len(weights[2])
    states = (CHUNK + 1) * (2 * width + n_in + n_out)
    cost = width * (n_in + n_out)
    return (states + cost + width + n_out, 3 * cost + width + n_in), cost
