"""The encoder's program: flows and cell updates along all steps."""

from __future__ import annotations

import functools
from typing import NamedTuple

from sklode.engine import kernel
from sklode.engine.program import ENDS, FIRST, STEPS, THIS, Program, Rows
from sklode.engine.steps import Field, FieldSizes, Flow

__all__ = ["FLOWS", "VISITS", "EncoderSizes", "encoder", "encoder_backward"]

FLOWS, VISITS = 1, 2
"""Flags of a block's step: whether any series flows, and whether any stamp is seen."""

X, DT, SEEN, H, BY_X = range(1, 6)
"""Arrays; the backward pass reads the gradient by h in place of h."""

W_HH, W_IH, BIAS, LAYERS = 0, 2, 1, 3
"""Weights: those of the cell, then the field's."""


class EncoderSizes(NamedTuple):
    """All that the encoder's instructions depend on."""

    n_state: int
    n_inputs: int
    n_gates: int  # 4: an LSTM cell, 1: a tanh cell
    field: FieldSizes | None  # None: nothing flows
    n_lanes: int

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of W_hh, the bias, W_ih, and the field's."""
        n_out = self.n_gates * self.n_state
        cell = [(n_out, self.n_state), (n_out,), (n_out, self.n_inputs)]
        return cell + (self.field.shapes if self.field else [])

    @property
    def n_kept(self) -> int:
        """Blocks of the state: h, and C of an LSTM."""
        return 2 if self.n_gates == 4 else 1


class _Cell:
    """A recurrent cell, as weights of a program."""

    def __init__(self, program: Program, sizes: EncoderSizes) -> None:
        self.program, self.n_gates = program, sizes.n_gates
        self.w_hh = program.weight(W_HH)
        self.w_ih = program.weight(W_IH)
        self.bias = program.vector(BIAS)
        self.gates = program.rows(sizes.n_state, sizes.n_gates)
        self.seen = program.rows(1)

    def open(self, h: Rows, x: Rows) -> None:
        """Read x, and set the gates: i, f, g, o, or a tanh cell's one."""
        program, gates = self.program, self.gates
        program.gather(SEEN, self.seen, THIS)
        program.gather(X, x, THIS)
        program.product(self.w_hh, h, gates, self.bias)
        program.product(self.w_ih, x, gates, gates)
        if self.n_gates == 1:
            program.activate(kernel.TANH, gates, gates)
            return
        for k in range(4):
            kind = kernel.TANH if k == 2 else kernel.SIGMOID
            program.activate(kind, gates.block(k), gates.block(k))


@functools.cache
def encoder(sizes: EncoderSizes) -> Program:
    """Write how the last h (series, 1, state) comes from x, dt and what is seen.

    The state before each step is kept: h, and C behind it.
    """
    p = Program(sizes.shapes, sizes.n_lanes)
    cell = _Cell(p, sizes)
    state, x, dt = (
        p.rows(sizes.n_state, sizes.n_kept),
        p.rows(sizes.n_inputs),
        p.rows(1),
    )
    h = state.block(0)
    flow = None
    if sizes.field:
        flow = Flow(Field(p, sizes.field, LAYERS, False), False, False)
    with p.each_block():
        p.zero(state)
        with p.each_step():
            p.keep(state, THIS)
            if flow:
                with p.where(FLOWS):
                    p.gather(DT, dt, THIS)
                    flow.step(h, dt, h)
            with p.where(VISITS):
                cell.open(h, x)
                if sizes.n_gates == 4:
                    p.lstm(cell.gates, h, state.block(1), cell.seen)
                else:
                    p.combine(h, [(1.0, cell.gates), (-1.0, h)], h, cell.seen)
        p.scatter(h, H, FIRST)
    return p.finish()


@functools.cache
def encoder_backward(sizes: EncoderSizes, wants_x: bool) -> Program:
    """Write the gradients by x, if wanted, and by the weights."""
    p = Program(sizes.shapes, sizes.n_lanes)
    cell = _Cell(p, sizes)
    by_h, by_x = (p.weight(k, transpose=True) for k in (W_HH, W_IH))
    state, dt = p.rows(sizes.n_state, sizes.n_kept), p.rows(1)
    h = p.rows(sizes.n_state, 1, ENDS)
    x = p.rows(sizes.n_inputs, 1, ENDS)
    by_gates = p.rows(sizes.n_state, sizes.n_gates, ENDS)
    g = p.rows(sizes.n_state, sizes.n_kept)
    g_h, g_x = g.block(0), p.rows(sizes.n_inputs)
    p.gradient(W_HH, by_gates, h)
    p.gradient(W_IH, by_gates, x, bias=False)
    flow = None
    if sizes.field:
        flow = Flow(Field(p, sizes.field, LAYERS, True), True, False)

    def sum_cell() -> None:
        p.outer(W_HH, by_gates, h)
        p.outer(W_IH, by_gates, x)

    with p.each_block():
        p.zero(g)
        p.gather(H, g_h, FIRST)
        with p.each_step():
            p.recall(state, THIS)
            p.copy(state.block(0), h)
            if flow:
                p.copy(state.block(0), flow.start)
                with p.where(FLOWS):
                    p.gather(DT, dt, THIS)
                    flow.step(flow.start, dt, h)
            with p.where(VISITS):
                cell.open(h, x)
                gates, seen = cell.gates, cell.seen
                if sizes.n_gates == 4:
                    c, g_c = state.block(1), g.block(1)
                    p.lstm_backward(gates, c, g_h, g_c, by_gates, seen)
                else:
                    p.combine(by_gates, [(1.0, g_h)], scale=seen)
                    p.combine(g_h, [(-1.0, by_gates)], g_h)
                    p.times_slope(kernel.TANH, by_gates, gates)
                p.product(by_h, by_gates, g_h, g_h)
                if wants_x:
                    p.product(by_x, by_gates, g_x)
                    p.scatter(g_x, BY_X, THIS)
                with p.when_full(ENDS):
                    sum_cell()
            if flow:
                with p.where(FLOWS):
                    flow.backward(g_h, dt)
                    with p.when_full(STEPS):
                        flow.sum_gradients()
    sum_cell()
    if flow:
        flow.sum_gradients()
    return p.finish()
