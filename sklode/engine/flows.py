r"""Runge-Kutta steps in the hidden space of a vector field, forward and backward.

A field f(z) = W_o a(... a(W_1 z + b_1)) + b_o is solved for p = W_1 z + b_1: with
M = W_1 W_o and c = W_1 b_o,

.. math:: dp/dt = M \, a(p) + c,

and because Runge-Kutta steps commute with linear maps, this is the same solution, with
one product a stage in place of two. Arrays are (batch, width), C-contiguous.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ACTIVATIONS",
    "TABLEAUS",
    "Activation",
    "HiddenField",
    "StepTape",
    "Tableau",
]

Array = NDArray[np.floating]


class Tableau(NamedTuple):
    """Butcher tableau of an explicit method: stage weights and final weights."""

    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]


TABLEAUS = {
    "euler": Tableau(((),), (1.0,)),
    "midpoint": Tableau(((), (1 / 2,)), (0.0, 1.0)),
    "rk4": Tableau(
        ((), (1 / 3,), (-1 / 3, 1.0), (1.0, -1.0, 1.0)), (1 / 8, 3 / 8, 3 / 8, 1 / 8)
    ),
}


class Activation(NamedTuple):
    """An activation, in place, and its derivative as a function of its value."""

    apply: Callable[[Array], object]
    slope: Callable[[Array], Array]


def _elu(y: Array) -> None:
    np.copyto(y, np.where(y > 0, y, np.expm1(np.minimum(y, 0))))


ACTIVATIONS = {
    "tanh": Activation(lambda y: np.tanh(y, out=y), lambda q: 1 - q * q),
    "elu": Activation(_elu, lambda q: np.minimum(q, 0) + 1),
    "softplus": Activation(
        lambda y: np.logaddexp(y, y.dtype.type(0), out=y), lambda q: -np.expm1(-q)
    ),
}


class StepTape(NamedTuple):
    """What the backward pass of many steps needs; axes (step, stage, batch, width).

    One array a hidden layer: the layer's activations, or the gradients by what enters
    it (the first layer's, which nothing needs, stays zero).
    """

    layers: tuple[Array, ...]

    @classmethod
    def zeros(cls, n_layers: int, shape: tuple[int, ...], dtype: np.dtype) -> StepTape:
        """Return a tape of zeros with ``n_layers`` arrays of ``shape``."""
        return cls(tuple(np.zeros(shape, dtype) for _ in range(n_layers)))


class HiddenField:
    """One vector field with one method, ready to take steps in its hidden space.

    Parameters
    ----------
    m, c : ndarray of shape (width, width) and (width,)
        W_1 W_o and W_1 b_o.
    inner : sequence of (weight, bias)
        The layers between the first and the output layer, if any.
    method, activation : str
        Keys of `TABLEAUS` and `ACTIVATIONS`.
    """

    def __init__(
        self,
        m: Array,
        c: Array,
        inner: tuple[tuple[Array, Array], ...],
        method: str,
        activation: str,
    ) -> None:
        self.m = m
        self.c = c
        self.inner = inner
        self.m_t = np.ascontiguousarray(m.T)
        self.inner_t = [np.ascontiguousarray(weight.T) for weight, _ in inner]
        self.tableau = TABLEAUS[method]
        self.activation = ACTIVATIONS[activation]

    def tape(self, n_steps: int, n_series: int) -> StepTape:
        """Return an empty tape for that many steps."""
        shape = (n_steps, len(self.tableau.b), n_series, len(self.c))
        return StepTape.zeros(1 + len(self.inner), shape, self.m.dtype)

    def step(self, p: Array, dt: Array, tape: StepTape, k: int) -> Array:
        """Run step k from p; keep its activations; return sum_i b_i a(p_i).

        ``dt`` has the shape of p. The step ends at p + dt * (M mean + c).
        """
        slopes: list[Array] = []
        outermost = tape.layers[-1][k]
        for i, row in enumerate(self.tableau.a):
            first = tape.layers[0][k, i]
            if i:
                slope = outermost[i - 1] @ self.m_t
                slope += self.c
                slopes.append(slope)
                np.multiply(_combine(row, slopes), dt, out=first)
                first += p
            else:
                np.copyto(first, p)
            self.activation.apply(first)
            for j, (weight_t, (_, bias)) in enumerate(
                zip(self.inner_t, self.inner, strict=True)
            ):
                deeper = tape.layers[j + 1][k, i]
                np.matmul(tape.layers[j][k, i], weight_t, out=deeper)
                deeper += bias
                self.activation.apply(deeper)
        return _combine(self.tableau.b, list(outermost))

    def step_backward(
        self,
        grad: Array,
        dt: Array,
        tape: StepTape,
        grads: StepTape,
        gamma: Array,
        k: int,
    ) -> Array:
        """Return dL/dp of step k from dL/d(sum_i b_i a(p_i)).

        ``grads`` receives the gradients by what enters each inner layer, ``gamma[k,
        i]`` that by stage i's M a(p_i) + c.
        """
        a, b = self.tableau
        # step by step: the derivatives of all steps at once would not fit the cache
        slopes = [self.activation.slope(layer[k]) for layer in tape.layers]
        upsilon: list[Array] = []  # dL/dp_i, last stage first
        for i in reversed(range(len(b))):
            delta = grad * b[i]
            if upsilon:
                weights = tuple(a[j][i] for j in reversed(range(i + 1, len(b))))
                np.multiply(_combine(weights, upsilon), dt, out=gamma[k, i])
                delta += gamma[k, i] @ self.m
            for j in reversed(range(len(self.inner))):
                out = grads.layers[j + 1][k, i]
                np.multiply(slopes[j + 1][i], delta, out=out)
                delta = out @ self.inner[j][0]
            delta *= slopes[0][i]
            upsilon.append(delta)
        return sum(upsilon[1:], start=upsilon[0])

    def weight_gradients(
        self, tape: StepTape, grads: StepTape, gamma: Array
    ) -> tuple[Array, Array, list[tuple[Array, Array]]]:
        """Return the gradients by M, c and the inner layers, of all steps at once."""
        inner = [
            (outer(grad, inputs), total(grad))
            for grad, inputs in zip(grads.layers[1:], tape.layers[:-1], strict=True)
        ]
        return outer(gamma, tape.layers[-1]), total(gamma), inner


def outer(left: Array, right: Array) -> Array:
    """Sum the outer products over all leading axes: the gradient by a weight."""
    return left.reshape(-1, left.shape[-1]).T @ right.reshape(-1, right.shape[-1])


def total(grad: Array) -> Array:
    """Sum over all leading axes: the gradient by a bias."""
    flat = grad.reshape(-1, grad.shape[-1])
    return np.ones(len(flat), grad.dtype) @ flat


def _combine(weights: tuple[float, ...], terms: list[Array]) -> Array:
    """Return the weighted sum of ``terms``; zero and unit weights cost nothing."""
    result: Array | None = None
    for weight, term in zip(weights, terms, strict=True):
        if weight == 0.0:
            continue
        if result is None:
            result = term * weight
        elif weight == 1.0:
            result += term
        elif weight == -1.0:
            result -= term
        else:
            result += term * weight
    return terms[0] * 0.0 if result is None else result
