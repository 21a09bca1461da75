"""The decoder: all steps of its grid, and answers between them, forward and backward.

Between grid points the answer is the cubic Hermite interpolant of z and dz/dt at both
ends of a step. With a control held over each step dz/dt jumps at the grid points, and a
step's end has a derivative of its own; otherwise it is that of the next start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklode.engine.answers import answer, answer_back
from sklode.engine.blocks import Blocks, by_step
from sklode.engine.fields import Array, Field
from sklode.engine.walk import DENSE, FLOWS, walk, walk_back


class Decoding:
    """One run of the decoder.

    ``added``, (series, step, width), is what is added to the first layer's bias, or
    None. ``result`` are the states, (series, query, state).
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
        self.field, self.asked = Field(method, *layers), (left, theta)
        self.dt, self.z0, self.added = dt, z0, added
        self.stride = 1 if added is None else 2  # steps of the walk from z to z
        self.blocks = Blocks(len(dt), dt.shape[1], self.field.cost)
        self.result = np.empty((*left.shape, z0.shape[1]), dt.dtype)

        def work(low: int, high: int) -> tuple[Array, ...]:
            kept, part = self._run(low, high), slice(low, high)
            grid = self._given(low, high)[0], kept[0], kept[-1]
            answer(self.stride, *grid, left[part], theta[part], self.result[part])
            return kept

        self.kept = self.blocks.each(work, keeps)

    def _given(self, low: int, high: int) -> tuple[Any, ...]:
        """Return dt and flags of the walk's steps, and the first layer's biases.

        Steps that do not flow give dz/dt where another ends: after each step that has a
        bias of its own, else after the last one.
        """
        dt, b1, n = by_step(self.dt[low:high]), self.field.biases[0], high - low
        if self.added is None:
            dt, bias = np.pad(dt, [(0, 1), (0, 0)]), np.tile(b1, n)[None]
            flags = np.full(len(dt), FLOWS | DENSE, np.int64)
            flags[-1] = DENSE
            return dt, flags, bias
        bias = np.repeat(by_step(self.added[low:high] + b1), 2, axis=0)
        flags = np.tile(np.array([FLOWS | DENSE, DENSE], np.int64), len(dt))
        dt = np.stack([dt, np.zeros_like(dt)], axis=1).reshape(-1, n)
        return dt, flags, bias

    def _run(self, low: int, high: int) -> tuple[Array, ...]:
        """Solve a block; return what the backward pass needs."""
        dt, flags, bias = self._given(low, high)
        (n_steps, n), n_state = dt.shape, self.z0.shape[1]
        z = np.empty((n_steps + 1, n * n_state), dt.dtype)
        z[0] = self.z0[low:high].ravel()
        none, rates = np.empty((n_steps + 1, 0), dt.dtype), np.empty_like(z[1:])
        kept = z, none, none, none, *self.field.values(n_steps, n), rates
        given, field = (none, none, bias), self.field.ahead(n)
        walk(dt, flags, given, (none[0], none[0]), field, kept, self.field.room(n))
        return kept

    def backward(self, grad: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradients by all tensors that the run was made of."""
        by_z0 = np.empty_like(self.z0)
        by_added = None if self.added is None else np.empty_like(self.added)

        def work(low: int, high: int, kept: tuple[Array, ...]) -> tuple[Array, ...]:
            dt, flags, bias = self._given(low, high)
            n, none = high - low, np.empty((len(dt) + 1, 0), grad.dtype)
            by_z, by_rates = np.zeros_like(kept[0]), np.zeros_like(kept[-1])
            asked = (part[low:high] for part in self.asked)
            answer_back(self.stride, dt, by_z, by_rates, *asked, grad[low:high])
            g, by_bias = np.zeros((2, by_z.shape[1]), grad.dtype), np.zeros_like(bias)
            given = none, by_z, by_rates, none, by_bias
            field, grads = self.field.backward(), self.field.zero_gradients()
            cell, room = (none[0],) * 4, self.field.room(n)
            walk_back(g, dt, flags, given, cell, field, kept, grads, room)
            by_z0[low:high] = (g[0] + by_z[0]).reshape(n, -1)
            if by_added is not None:
                by_steps = by_bias.reshape(-1, 2, n, bias.shape[1] // n).sum(1)
                by_added[low:high] = by_steps.swapaxes(0, 1)
            return grads[:-1]

        found = self.blocks.sums(work, self.kept, self._run)
        return [None, None, None, by_z0, by_added, *self.field.by_layers(found)]
