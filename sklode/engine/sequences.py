"""Whole sequences of flows and cell updates, forward and backward, in numpy.

Arrays are time-major, (step, batch, ...), and C-contiguous.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sklode.engine.flows import Array, HiddenField, StepTape, outer, total

__all__ = ["DecodePass", "EncodePass"]


class DecodePass:
    """Consecutive steps of one field: p0 -> sum_i b_i a(p_i) of every step.

    Parameters
    ----------
    field : HiddenField
        The decoder's.
    """

    def __init__(self, field: HiddenField) -> None:
        self.field = field

    def forward(self, p0: Array, dt: Array, bias: Array | None) -> Array:
        """Return the means, (step, batch, width).

        ``p0`` is (batch, width), ``dt`` (step, batch), ``bias``, if any, (step, batch,
        width): added to p during its step.
        """
        field = self.field
        self.dt = _widened(dt, p0.shape[-1])
        self.tape = field.tape(len(dt), len(p0))
        self.means = np.empty((len(dt), *p0.shape), p0.dtype)
        p = p0
        for k, length in enumerate(self.dt):
            start = p if bias is None else p + bias[k]
            self.means[k] = field.step(start, length, self.tape, k)
            rise = self.means[k] @ field.m_t
            rise += field.c
            rise *= length
            p = p + rise
        return self.means

    def backward(
        self, grad_means: Array
    ) -> tuple[Array, Array, Array, Array, list[tuple[Array, Array]]]:
        """Return the gradients by p0, bias, M, c and the inner layers."""
        field = self.field
        gamma = np.zeros_like(self.tape.layers[0])
        grads = field.tape(len(self.dt), grad_means.shape[1])
        grad_rise = np.empty_like(grad_means)
        grad_bias = np.empty_like(grad_means)
        grad_p = np.zeros(grad_means.shape[1:], grad_means.dtype)
        for k in reversed(range(len(self.dt))):
            np.multiply(self.dt[k], grad_p, out=grad_rise[k])
            grad = grad_rise[k] @ field.m
            grad += grad_means[k]
            grad_bias[k] = field.step_backward(
                grad, self.dt[k], self.tape, grads, gamma, k
            )
            grad_p += grad_bias[k]
        grad_m, grad_c, inner = field.weight_gradients(self.tape, grads, gamma)
        grad_m += outer(grad_rise, self.means)
        grad_c += total(grad_rise)
        return grad_p, grad_bias, grad_m, grad_c, inner


class FlowMaps(NamedTuple):
    """Into the hidden space of the field, and out of it: W_1, b_1, W_o, b_o."""

    w1: Array
    b1: Array
    wo: Array
    bo: Array


class EncodePass:
    """A flow, then a visit of the cell, step by step: -> the last h.

    Parameters
    ----------
    field : HiddenField
        The encoder's.
    maps : FlowMaps
        Its outer layers.
    w_hh : ndarray of shape (gates * state, state)
        The cell's recurrent weights; 4 gates (i, f, g, o) make an LSTM cell, 1 a tanh
        cell.
    """

    def __init__(self, field: HiddenField, maps: FlowMaps, w_hh: Array) -> None:
        self.field = field
        self.maps = maps
        self.size = w_hh.shape[1]
        self.cell = (_LSTMVisits if len(w_hh) == 4 * self.size else _RNNVisits)(w_hh)

    def forward(self, x: Array, dt: Array, visits: Array) -> Array:
        """Return the last h, (batch, state).

        ``x`` is (step, batch, gates * state), the projected inputs with all biases;
        ``dt`` and ``visits`` are (step, batch).
        """
        n_steps, n_series = dt.shape
        field, (_, b1, _, bo) = self.field, self.maps
        w1_t, wo_t = (np.ascontiguousarray(w.T) for w in (self.maps.w1, self.maps.wo))
        self.flows: list[bool] = [bool(moves.any()) for moves in dt]
        self.some: list[bool] = [bool(seen.any()) for seen in visits]
        self.dt_p = _widened(dt, len(b1))
        self.dt_h = _widened(dt, self.size)
        self.tape = field.tape(n_steps, n_series)
        self.means = np.zeros((n_steps, n_series, len(b1)), x.dtype)
        self.before = np.empty((n_steps, n_series, self.size), x.dtype)
        self.flown = np.empty_like(self.before)
        self.cell.prepare(x, visits)
        h = np.zeros((n_series, self.size), x.dtype)
        for k in range(n_steps):
            self.before[k] = h
            if self.flows[k]:
                p = h @ w1_t
                p += b1
                self.means[k] = field.step(p, self.dt_p[k], self.tape, k)
                rise = self.means[k] @ wo_t
                rise += bo
                rise *= self.dt_h[k]
                h = h + rise
            self.flown[k] = h
            h = self.cell.visit(k, h) if self.some[k] else self.cell.skip(k, h)
        return h

    def backward(self, grad_h: Array) -> tuple[Array, ...]:
        """Return the gradients by x, W_hh, W_1, b_1, W_o, b_o, M, c and inner layers.

        The inner layers' come last, flat: weight, bias, weight, bias, ...
        """
        field, maps = self.field, self.maps
        gamma = np.zeros_like(self.tape.layers[0])
        grads: StepTape = field.tape(len(self.before), len(grad_h))
        grad_p = np.zeros_like(self.means)
        grad_rise = np.zeros_like(self.before)
        self.cell.prepare_backward()
        for k in reversed(range(len(self.before))):
            if self.some[k]:
                grad_h = self.cell.visit_backward(k, grad_h)
            if self.flows[k]:
                np.multiply(self.dt_h[k], grad_h, out=grad_rise[k])
                grad_p[k] = field.step_backward(
                    grad_rise[k] @ maps.wo, self.dt_p[k], self.tape, grads, gamma, k
                )
                grad_h = grad_h + grad_p[k] @ maps.w1
        grad_m, grad_c, inner = field.weight_gradients(self.tape, grads, gamma)
        return (
            self.cell.grad_pre,
            outer(self.cell.grad_pre, self.flown),
            outer(grad_p, self.before),
            total(grad_p),
            outer(grad_rise, self.means),
            total(grad_rise),
            grad_m,
            grad_c,
            *(array for layer in inner for array in layer),
        )


class _RNNVisits:
    """h = tanh(x + W_hh h') where visited."""

    def __init__(self, w_hh: Array) -> None:
        self.w_hh = w_hh
        self.w_hh_t = np.ascontiguousarray(w_hh.T)

    def prepare(self, x: Array, visits: Array) -> None:
        """Take the projected inputs and the visits of a sequence."""
        self.x = x
        self.observed = _widened(visits.astype(x.dtype), self.w_hh.shape[1])
        self.every: list[bool] = [bool(seen.all()) for seen in visits]
        self.gates = np.zeros_like(x)

    def visit(self, k: int, h: Array) -> Array:
        """Return h after step k."""
        new = self.gates[k]
        np.matmul(h, self.w_hh_t, out=new)
        new += self.x[k]
        np.tanh(new, out=new)
        return new if self.every[k] else _blend(new, h, self.observed[k])

    def skip(self, k: int, h: Array) -> Array:
        """Return h after a step that no series visits at: as the flow brought it."""
        return h

    def prepare_backward(self) -> None:
        """Make room for the gradients by what enters the gates."""
        self.grad_pre = np.zeros_like(self.gates)

    def visit_backward(self, k: int, grad_h: Array) -> Array:
        """Fill ``grad_pre[k]``; return the gradient by h' of step k."""
        gates = self.gates[k]
        np.multiply(grad_h, 1 - gates * gates, out=self.grad_pre[k])
        if not self.every[k]:
            self.grad_pre[k] *= self.observed[k]
        return self._before_visit(k, grad_h)

    def _before_visit(self, k: int, grad_h: Array) -> Array:
        grad = self.grad_pre[k] @ self.w_hh
        if not self.every[k]:
            grad += (1 - self.observed[k]) * grad_h
        return grad


class _LSTMVisits(_RNNVisits):
    """The LSTM cell (paper, eq. lstmODE), gates in the order i, f, g, o."""

    def __init__(self, w_hh: Array) -> None:
        super().__init__(w_hh)
        # sigmoid(x) = (1 + tanh(x / 2)) / 2: one tanh serves all four gates
        size = w_hh.shape[1]
        self.scale = np.full(4 * size, 0.5, w_hh.dtype)
        self.scale[2 * size : 3 * size] = 1.0
        self.shift = 1 - self.scale

    def prepare(self, x: Array, visits: Array) -> None:
        """Take the projected inputs and the visits of a sequence."""
        super().prepare(x, visits)
        shape = (*visits.shape, self.w_hh.shape[1])
        self.memory = np.zeros((shape[0] + 1, *shape[1:]), x.dtype)
        self.squashed = np.zeros(shape, x.dtype)

    def visit(self, k: int, h: Array) -> Array:
        """Return h after step k; C goes into ``memory[k + 1]``."""
        gates = self.gates[k]
        np.matmul(h, self.w_hh_t, out=gates)
        gates += self.x[k]
        gates *= self.scale
        np.tanh(gates, out=gates)
        gates *= self.scale
        gates += self.shift
        i, f, g, o = self._blocks(gates)
        memory = self.memory[k + 1]
        np.multiply(f, self.memory[k], out=memory)
        memory += i * g
        if not self.every[k]:
            memory[...] = _blend(memory, self.memory[k], self.observed[k])
        np.tanh(memory, out=self.squashed[k])
        new = o * self.squashed[k]
        return new if self.every[k] else _blend(new, h, self.observed[k])

    def skip(self, k: int, h: Array) -> Array:
        """Return h after a step that no series visits at; C stays as well."""
        self.memory[k + 1] = self.memory[k]
        return h

    def prepare_backward(self) -> None:
        """Make room for the gradients by what enters the gates."""
        super().prepare_backward()
        self.grad_memory = np.zeros_like(self.squashed[0])

    def visit_backward(self, k: int, grad_h: Array) -> Array:
        """Fill ``grad_pre[k]``; return the gradient by h' of step k."""
        gates, squashed, memory = self.gates[k], self.squashed[k], self.memory[k]
        i, f, g, o = self._blocks(gates)
        grad_pre = np.subtract(1, gates, out=self.grad_pre[k])
        grad_pre *= gates
        by_i, by_f, by_g, by_o = self._blocks(grad_pre)
        by_memory = grad_h * o
        by_memory *= 1 - squashed * squashed
        every = self.every[k]
        if not every:
            by_memory *= self.observed[k]
        by_memory += self.grad_memory
        by_i *= by_memory * g
        by_f *= by_memory * memory
        np.multiply(by_memory * i, 1 - g * g, out=by_g)
        by_o *= grad_h * squashed
        if every:
            np.multiply(by_memory, f, out=self.grad_memory)
        else:
            observed = self.observed[k]
            for block in (by_i, by_f, by_g, by_o):
                block *= observed
            self.grad_memory = np.where(observed != 0, by_memory * f, by_memory)
        return self._before_visit(k, grad_h)

    def _blocks(self, gates: Array) -> list[Array]:
        size = self.w_hh.shape[1]
        return [gates[:, j * size : (j + 1) * size] for j in range(4)]


def _widened(x: Array, width: int) -> Array:
    """Repeat (step, batch) along a last axis: contiguous operands are faster."""
    return np.repeat(x[..., None], width, axis=-1)


def _blend(new: Array, old: Array, observed: Array) -> Array:
    """Return ``new`` where observed is 1, else ``old``."""
    return np.where(observed != 0, new, old)
