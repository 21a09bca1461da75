r"""The emission network's program: x of many latent states at once.

x = W_2 v + b_2 with v = tanh(W_1 z + b_1). Backward, with g the gradient by x:
dv = W_2^T g and da = (1 - v^2) dv, so that z receives W_1^T da, and the layers the
outer products of g with v and of da with z, summed over the states.

The states of all series and stamps stand side by side, as series of no step; v is
computed again in the backward pass.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from sklode.engine import kernel
from sklode.engine.program import FIRST, STEPS, Layout, Program

__all__ = ["EmissionSizes", "emission", "emission_backward"]

Z, X, BY_Z = range(1, 4)
"""Arrays (state, 1, feature); the backward pass reads the gradient by x."""

FIRST_LAYER, OUTPUT = 0, 2
"""Weights, each with its bias behind it."""


class EmissionSizes(NamedTuple):
    """All that the emission's instructions depend on."""

    n_inputs: int
    width: int
    n_channels: int
    layout: Layout

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of W_1, b_1, W_2 and b_2."""
        first = [(self.width, self.n_inputs), (self.width,)]
        return [*first, (self.n_channels, self.width), (self.n_channels,)]


@functools.cache
def emission(sizes: EmissionSizes) -> Program:
    """Write how x comes from z."""
    p = Program(sizes.shapes, sizes.layout)
    w1, w2 = p.weight(FIRST_LAYER), p.weight(OUTPUT)
    b1, b2 = p.vector(FIRST_LAYER + 1), p.vector(OUTPUT + 1)
    z, v, x = (p.rows(n) for n in sizes[:3])
    with p.each_block():
        p.gather(Z, z, FIRST)
        p.product(w1, z, v, b1)
        p.activate(kernel.TANH, v, v)
        p.product(w2, v, x, b2)
        p.scatter(x, X, FIRST)
    return p.finish()


@functools.cache
def emission_backward(sizes: EmissionSizes) -> Program:
    """Write the gradients by z and by the weights."""
    p = Program(sizes.shapes, sizes.layout)
    w1, b1 = p.weight(FIRST_LAYER), p.vector(FIRST_LAYER + 1)
    by_w1, by_w2 = (p.weight(k, transpose=True) for k in (FIRST_LAYER, OUTPUT))
    z, v, g = (p.rows(n, 1, STEPS) for n in sizes[:3])
    by_v, by_z = p.rows(sizes.width, 1, STEPS), p.rows(sizes.n_inputs)
    p.gradient(FIRST_LAYER, by_v, z)
    p.gradient(OUTPUT, g, v)

    def sum_gradients() -> None:
        p.outer(FIRST_LAYER, by_v, z)
        p.outer(OUTPUT, g, v)

    with p.each_block():
        p.gather(Z, z, FIRST)
        p.product(w1, z, v, b1)
        p.activate(kernel.TANH, v, v)
        p.gather(X, g, FIRST)
        p.product(by_w2, g, by_v)
        p.times_slope(kernel.TANH, by_v, v)
        p.product(by_w1, by_v, by_z)
        p.scatter(by_z, BY_Z, FIRST)
        with p.when_full(STEPS):
            sum_gradients()
    sum_gradients()
    return p.finish()
