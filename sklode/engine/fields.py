"""A vector field's weights, as compiled functions take them, and its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sklode.engine.tableaus import TABLEAUS

Array: TypeAlias = NDArray[np.floating]

_MOST_STAGES = 4


class Field:
    """A vector field's weights as compiled functions take them.

    The layers are W_1, b_1, W_o, b_o and the
    inner layer's, if there is one.
    """

    @np.errstate(over="ignore", invalid="ignore")  # as in torch: who calls looks
    def __init__(self, method: str, *layers: Array) -> None:
        w1, b1, wo, bo, *second = layers
        width, n_state = w1.shape
        w2, b2 = second or (w1[:0, :0], b1[:0])
        weights = w1, w2, w1 @ wo, wo
        tableau = TABLEAUS[method]
        n = len(tableau.b)
        a = np.zeros((_MOST_STAGES, _MOST_STAGES), w1.dtype)
        for i, row in enumerate(tableau.a):
            a[i, : len(row)] = row
        b = np.array(tableau.b, w1.dtype)
        steps = a, np.ascontiguousarray(a.T), b
        self.layers, self.n_stages, self.n_layers = layers, n, 1 + len(second) // 2
        self.width, self.n_state, self.dtype = width, n_state, w1.dtype
        self.biases, sizes = (b1, b2, w1 @ bo, bo), (n_state, width)
        ahead = tuple(np.ascontiguousarray(w.T).ravel() for w in weights)
        self.back = tuple(np.ascontiguousarray(w).ravel() for w in weights)
        self._given: tuple[Any, ...] = steps, ahead, sizes
        # multiplications of a step
        self.cost = n * width * width * self.n_layers + 2 * width * n_state

    def ahead(self, n_series: int) -> tuple[Any, ...]:
        """Return what `step` takes: biases stand once a series."""
        method, weights, sizes = self._given
        biases = tuple(np.tile(bias, n_series) for bias in self.biases)
        return method, weights, biases, sizes

    def backward(self) -> tuple[Any, ...]:
        """Return what `step_back` takes."""
        method, _, sizes = self._given
        return method, self.back, self.biases, sizes

    def values(self, n_steps: int, n_series: int) -> tuple[Array, Array]:
        """Return room for the activations of so many steps."""
        shape = n_steps, self.n_stages, n_series * self.width
        second = shape if self.n_layers == 2 else (*shape[:2], 0)
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
        own_w1, _, own_wo, own_bo, *second = self.layers
        w1, w2, m, wo, b1, b2, c, bo = grads
        w1, wo = w1.reshape(own_w1.shape), wo.reshape(own_wo.shape)
        m = m.reshape(self.width, self.width)
        w1 = w1 + m @ own_wo.T + np.outer(c, own_bo)
        found: list[Any] = [w1, b1, wo + own_w1.T @ m, bo + own_w1.T @ c]
        return found + ([w2.reshape(m.shape), b2] if second else [])
