"""The encoder: flows and cell updates along all steps, forward and backward.

A matrix (series, feature) is a one-dimensional array, row after row, as in
`sklode.engine.flow`; what is kept of each step is a row of an array (step, ...).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sklode.engine.blocks import Blocks, by_step
from sklode.engine.fields import Array, Field
from sklode.engine.walk import FLOWS, VISITS, walk, walk_back


class Encoding:
    """One run of the encoder.

    ``method`` is None where nothing flows; ``seen`` is 1 where the cell is updated at a
    step's end, else 0. ``result`` is the last h, (series, state).
    """

    def __init__(
        self,
        method: str | None,
        keeps: bool,
        dt: Array,
        seen: Array,
        x: Array,
        w_hh: Array,
        bias: Array,
        w_ih: Array,
        *layers: Array,
    ) -> None:
        n_state = w_hh.shape[1]
        self.flowing, self.x = method is not None, x
        self.steps = dt, seen
        if method is None:  # a field that is never asked
            method, one = "euler", np.zeros((1, n_state), x.dtype)
            layers = one, one[0, :1], one.T.copy(), one[0]
        self.field = Field(method, *layers)
        self.w_hh, self.w_ih, self.bias = w_hh, w_ih, bias
        cost = self.field.cost if self.flowing else 0
        self.blocks = Blocks(len(dt), dt.shape[1], cost + w_hh.size)
        self.result = np.empty((len(dt), n_state), x.dtype)

        def work(low: int, high: int) -> tuple[Array, ...]:
            kept = self._run(low, high)
            self.result[low:high] = kept[0][-1].reshape(-1, n_state)
            return kept

        self.kept = self.blocks.each(work, keeps)

    def _given(self, low: int, high: int) -> tuple[Array, ...]:
        """Return dt, what is seen and flags of a block, step by step."""
        dt, seen = (by_step(part[low:high]) for part in self.steps)
        flags = FLOWS * (dt != 0).any(1) * self.flowing + VISITS * (seen != 0).any(1)
        return dt, seen, flags.astype(np.int64)

    def _run(self, low: int, high: int) -> tuple[Array, ...]:
        """Encode a block; return what the backward pass needs."""
        dt, seen, flags = self._given(low, high)
        (n_steps, n), (n_out, n_state), dtype = dt.shape, self.w_hh.shape, dt.dtype
        # all that the cell reads in one product: h, x and a one
        cell = np.concatenate([self.w_hh, self.w_ih, self.bias[:, None]], axis=1)
        scale = np.full((n, n_out // n_state, n_state), 0.5, dtype)
        scale[:, min(2, scale.shape[1] - 1)] = 1.0  # the gate whose activation is tanh
        h = np.zeros((n_steps + 1, n * n_state), dtype)
        c = np.zeros((n_steps + 1, h.shape[1] if n_out > n_state else 0), dtype)
        read = np.empty((n_steps, n * cell.shape[1]), dtype)
        gates = np.empty((n_steps, n * n_out), dtype)
        none = np.empty((1, 0), dtype)
        kept = h, c, read, gates, *self.field.values(n_steps, n), none
        field, weights = self.field.ahead(n), np.ascontiguousarray(cell.T).ravel()
        given = seen, by_step(self.x[low:high]), field[2][0][None]
        room = self.field.room(n, n_out)
        walk(dt, flags, given, (weights, scale.ravel()), field, kept, room)
        return kept

    def backward(self, grad: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradients by all tensors that the run was made of."""
        (n_out, n_state), n_inputs = self.w_hh.shape, self.x.shape[2]
        by_x = np.zeros(self.x.shape, grad.dtype) if wanted[2] else None

        def work(low: int, high: int, kept: tuple[Array, ...]) -> tuple[Array, ...]:
            dt, seen, flags = self._given(low, high)
            n_steps, n = dt.shape
            none = np.empty((n_steps, 0), grad.dtype)
            by_steps = (
                none if by_x is None else np.zeros((n_steps, n * n_inputs), grad.dtype)
            )
            by_bias = np.zeros((1, n * self.field.width), grad.dtype)
            given = seen, none, none, by_steps, by_bias
            g = np.zeros((2, n * n_state), grad.dtype)
            g[0] = grad[low:high].ravel()
            sums = np.zeros((2, n_out * (n_state + n_inputs + 1)), grad.dtype)
            cell = self.w_hh.ravel(), self.w_ih.ravel(), *sums
            field, grads = self.field.backward(), self.field.zero_gradients()
            room = self.field.room(n, n_out)
            walk_back(g, dt, flags, given, cell, field, kept, grads, room)
            if by_x is not None:
                by_x[low:high] = by_steps.reshape(-1, n, n_inputs).swapaxes(0, 1)
            return sums[0], *grads[:-1]

        cell, *found = self.blocks.sums(work, self.kept, self._run)
        parts = np.split(cell.reshape(n_out, -1), [n_state, n_state + n_inputs], axis=1)
        w_hh, w_ih, bias = map(np.ascontiguousarray, parts)
        layers = self.field.by_layers(found) if self.flowing else []
        return [None, None, by_x, w_hh, bias[:, 0], w_ih, *layers]
