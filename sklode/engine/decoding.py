"""The decoder's program: all steps of its grid, and answers between them.

A block of series goes through all its steps. Between grid points the answer is the
cubic Hermite interpolant of z and dz/dt at both ends of a step. With a control held
over each step dz/dt jumps at the grid points, and a step's end has a derivative of its
own; otherwise it is that of the next start.

The grid is an array (series of a block, step + 1, 2 or 3 states): z, dz/dt of the step
that starts there and, where controls are added, of the step that ends there.
"""

from __future__ import annotations

import contextlib
import functools
from typing import NamedTuple

from sklode.engine.program import (
    ENDS,
    FIRST,
    GRID,
    LAST,
    NEXT,
    STEPS,
    THIS,
    Program,
)
from sklode.engine.steps import Field, FieldSizes, Flow

__all__ = ["ENDING", "FLOWS", "DecoderSizes", "decoder", "decoder_backward"]

FLOWS, ENDING = 1, 2
"""Flags of a block's step: whether any series flows, and whether none does next."""

Z0, DT, BIAS, THETA, Z, BY_BIAS = range(1, 7)
"""Arrays; the backward pass writes gradients in place of z0, and reads those by z."""


class DecoderSizes(NamedTuple):
    """All that the decoder's instructions depend on."""

    field: FieldSizes
    controlled: bool  # whether the first layer's bias changes from step to step
    n_lanes: int

    @property
    def n_grid(self) -> int:
        """Features of the grid."""
        return (3 if self.controlled else 2) * self.field.n_state


class _Decoder:
    """What forward and backward pass have in common."""

    def __init__(self, sizes: DecoderSizes, backward: bool) -> None:
        self.p = p = Program(sizes.field.shapes, sizes.n_lanes)
        self.n, self.controlled = sizes.field.n_state, sizes.controlled
        self.at_end = sizes.n_grid - self.n
        self.field = Field(p, sizes.field, 0, backward)
        self.flow = Flow(self.field, backward, backward)
        self.dt = p.rows(1)
        self.bias = p.rows(sizes.field.width) if sizes.controlled else None
        self.end = p.rows(self.n, 1, ENDS)
        self.end_point = self.field.points(1, ENDS)

    def read_step(self) -> None:
        """Read a step's length, and its bias."""
        self.p.gather(DT, self.dt, THIS)
        if self.bias:
            self.p.gather(BIAS, self.bias, THIS)

    def evaluate_end(self) -> None:
        """Evaluate the field where a step ends."""
        entered = self.end_point.values[0]
        self.field.enter(self.end, entered, self.bias)
        self.field.evaluate(entered, self.end_point)

    def where_end_is_asked(self) -> contextlib.AbstractContextManager[None]:
        """Do what follows where the next step does not give dz/dt at this one's end."""
        return contextlib.nullcontext() if self.controlled else self.p.where(ENDING)

    def answer(self, backward: bool) -> None:
        self.p.answer(DT, THETA, Z, self.at_end, backward)


@functools.cache
def decoder(sizes: DecoderSizes) -> Program:
    """Write how z (series, query, state) comes from z0 (series, 1, state).

    The states before, between and after the steps are kept.
    """
    d = _Decoder(sizes, False)
    p, n = d.p, d.n
    z, rate = p.rows(n), p.rows(n)
    with p.each_block():
        p.gather(Z0, z, FIRST)
        p.scatter(z, GRID, FIRST)
        p.keep(z, FIRST)
        with p.each_step():
            with p.where(FLOWS):
                d.read_step()
                d.flow.step(z, d.dt, z, d.bias)
                d.field.leave(d.flow.last, rate)
                p.scatter(rate, GRID, THIS, n)
                with d.where_end_is_asked():
                    p.copy(z, d.end)
                    d.evaluate_end()
                    d.field.leave(d.end_point.values[-1], rate)
                    p.scatter(rate, GRID, NEXT, d.at_end)
            p.scatter(z, GRID, NEXT)
            p.keep(z, NEXT)
        d.answer(backward=False)
    return p.finish()


@functools.cache
def decoder_backward(sizes: DecoderSizes) -> Program:
    """Write the gradients by z0, by the bias of each step, and by the weights."""
    d = _Decoder(sizes, True)
    p, n, field, flow = d.p, d.n, d.field, d.flow
    g, by_rate, after = p.rows(n), p.rows(n), p.rows(n)
    by_end = p.rows(n, 1, ENDS)
    by_bias = p.rows(sizes.field.width)
    first, output = field.transposed[field.first], field.transposed[field.output]

    def sum_ends() -> None:
        field.sum_inner(d.end_point, 1)
        p.outer(field.first, d.end_point.grads[0], d.end)
        p.outer(field.output, by_end, d.end_point.values[-1])

    with p.each_block():
        d.answer(backward=True)
        p.gather(GRID, g, LAST)
        with p.each_step():
            with p.where(FLOWS):
                d.read_step()
                with d.where_end_is_asked():
                    p.recall(d.end, NEXT)
                    d.evaluate_end()
                    p.gather(GRID, by_end, NEXT, d.at_end)
                    p.product(output, by_end, d.end_point.grads[-1])
                    field.backward(d.end_point)
                    p.product(first, d.end_point.grads[0], g, g)
                    p.copy(d.end_point.grads[0], by_bias)
                    with p.when_full(ENDS):
                        sum_ends()
                p.recall(flow.start, THIS)
                flow.step(flow.start, d.dt, after, d.bias)
                p.gather(GRID, by_rate, THIS, n)
                flow.backward(g, d.dt, by_rate)
                if sizes.controlled:
                    p.combine(by_bias, [(1.0, flow.by_bias)], by_bias)
                    p.scatter(by_bias, BY_BIAS, THIS)
                with p.when_full(STEPS):
                    flow.sum_gradients()
            p.gather(GRID, by_rate, THIS)
            p.combine(g, [(1.0, by_rate)], g)
        p.scatter(g, Z0, FIRST)
    sum_ends()
    flow.sum_gradients()
    return p.finish()
