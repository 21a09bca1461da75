"""Rows of a layout's units: filled, moved, activated (see `sklode.engine.simd`)."""

from __future__ import annotations

from typing import Any

from sklode.engine.simd import (
    at_least,
    at_most,
    compiled,
    constant,
    decay,
    load,
    load_number,
    log_one_plus,
    splat,
    store,
    store_number,
    tanh,
)

__all__ = [
    "activate",
    "add_rows",
    "copy_rows",
    "gather",
    "gather_one",
    "scatter",
    "set_rows",
    "times_slope",
    "zero_rows",
]


@compiled
def set_rows(layout: Any, out: Any, out0: Any, numbers: Any, n: Any) -> Any:
    """Set rows to numbers that all series share."""
    for i in range(n):
        store(layout, out, out0 + i, splat(layout, out, load_number(numbers, i)))


@compiled
def copy_rows(layout: Any, source: Any, s0: Any, target: Any, t0: Any, n: Any) -> Any:
    """Copy rows."""
    for i in range(n):
        store(layout, target, t0 + i, load(layout, source, s0 + i))


@compiled
def zero_rows(layout: Any, rows: Any, first: Any, n: Any) -> Any:
    """Set rows to zero."""
    for i in range(first, first + n):
        store(layout, rows, i, splat(layout, rows, constant(rows, 0.0)))


@compiled
def add_rows(layout: Any, source: Any, s0: Any, target: Any, t0: Any, n: Any) -> Any:
    """Add rows to others."""
    for i in range(n):
        total = load(layout, target, t0 + i) + load(layout, source, s0 + i)
        store(layout, target, t0 + i, total)


@compiled
def gather(
    source: Any,
    first: Any,
    n: Any,
    step: Any,
    n_lanes: Any,
    rows: Any,
    row: Any,
    feature: Any,
    n_features: Any,
) -> Any:
    """Read features of a step of ``n`` series into rows.

    Lanes without a series are zero.
    """
    for lane in range(n):
        for i in range(n_features):
            place = (row + i) * n_lanes + lane
            store_number(rows, place, source[first + lane, step, feature + i])
    for lane in range(n, n_lanes):
        for i in range(n_features):
            store_number(rows, (row + i) * n_lanes + lane, constant(rows, 0.0))


@compiled
def gather_one(
    source: Any, first: Any, n: Any, step: Any, n_lanes: Any, rows: Any
) -> Any:
    """Read a step's only feature into a row; return whether any is not zero."""
    gather(source, first, n, step, n_lanes, rows, 0, 0, 1)
    anything = False
    for lane in range(n):
        anything |= load_number(rows, lane) != 0
    return anything


@compiled
def scatter(
    rows: Any,
    row: Any,
    target: Any,
    first: Any,
    n: Any,
    step: Any,
    n_lanes: Any,
    feature: Any,
    n_features: Any,
) -> Any:
    """Write rows of ``n`` series into features of a step."""
    for lane in range(n):
        for i in range(n_features):
            place = (row + i) * n_lanes + lane
            target[first + lane, step, feature + i] = load_number(rows, place)


@compiled
def activate(layout: Any, kind: Any, rows: Any, first: Any, n: Any) -> Any:
    """Apply an activation, numbered as in `sklode.engine.fused`."""
    zero, one = constant(rows, 0.0), constant(rows, 1.0)
    if kind == 0:
        for i in range(first, first + n):
            store(layout, rows, i, tanh(load(layout, rows, i)))
    elif kind == 1:
        for i in range(first, first + n):
            x = load(layout, rows, i)
            negative = decay(at_most(x, zero)) - one
            store(layout, rows, i, at_least(x, zero) + negative)
    else:
        for i in range(first, first + n):
            x = load(layout, rows, i)
            tail = log_one_plus(decay(at_most(x, zero - x)))
            store(layout, rows, i, at_least(x, zero) + tail)


@compiled
def times_slope(
    layout: Any, kind: Any, grads: Any, values: Any, first: Any, n: Any
) -> Any:
    """Multiply gradients by the activation's derivative, which its value gives."""
    zero, one = constant(grads, 0.0), constant(grads, 1.0)
    if kind == 0:
        for i in range(first, first + n):
            q = load(layout, values, i)
            store(layout, grads, i, load(layout, grads, i) * (one - q * q))
    elif kind == 1:
        for i in range(first, first + n):
            slope = at_most(load(layout, values, i), zero) + one
            store(layout, grads, i, load(layout, grads, i) * slope)
    else:
        for i in range(first, first + n):
            slope = one - decay(zero - load(layout, values, i))
            store(layout, grads, i, load(layout, grads, i) * slope)
