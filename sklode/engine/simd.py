"""A SIMD vector for numba, raw memory, and the two layouts of a batch.

Plain numba loops keep intermediate results in memory; with a vector type they stay in
registers. A vector holds 64 bytes: 16 numbers of float32 or 8 of float64, which LLVM
splits on machines with shorter registers.

A kernel is written once and compiled in two layouts, chosen by the type of the argument
``layout``:

- ``None``: lanes. Row i of a block holds element i of 16 (or 8) series, side by side;
  its unit is a vector.
- an int: a single series. Row i is element i; its unit is a number, and products run
  over neighbouring neurons instead.
"""

from __future__ import annotations

import contextlib
import operator
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import (
    intrinsic,
    lower_builtin,
    models,
    overload,
    register_model,
)

from sklode.engine.cache import Cache

__all__ = [
    "at_least",
    "at_most",
    "compiled",
    "constant",
    "decay",
    "lanes_of",
    "load",
    "load_number",
    "load_vector",
    "log_one_plus",
    "pointer",
    "shifted",
    "splat",
    "store",
    "store_number",
    "store_vector",
    "tanh",
    "tile_of_outer",
    "tile_of_product",
]

VECTOR_BYTES = 64

# Sums may be reordered and fused; infinities and what is no number stay what they are.
_FAST = ("reassoc", "nsz", "arcp", "contract", "afn")

_COMPILE = {
    "fastmath": set(_FAST),
    "nogil": True,
    "boundscheck": False,
    "error_model": "numpy",
}


def compiled(function: Any) -> Any:
    """Compile a function, once a machine; once a process where nothing can be kept."""
    dispatcher = numba.njit(**_COMPILE)(function)
    with contextlib.suppress(RuntimeError):  # no folder to write to
        dispatcher._cache = Cache(function)
    return _for_any_number(dispatcher)


def _for_any_number(dispatcher: Any) -> Any:
    """Keep numba from compiling a function anew for each constant argument."""
    template = dispatcher.get_call_template

    def without_constants(args: Any, kws: Any) -> Any:
        plain = {name: types.unliteral(kind) for name, kind in kws.items()}
        return template(tuple(types.unliteral(kind) for kind in args), plain)

    dispatcher.get_call_template = without_constants
    return dispatcher


class Vector(types.Type):
    """Type of a vector of floats."""

    def __init__(self, dtype: types.Float) -> None:
        self.dtype = dtype
        self.count = VECTOR_BYTES * 8 // dtype.bitwidth
        super().__init__(name=f"Vector({dtype}, {self.count})")


_VECTORS = {dtype: Vector(dtype) for dtype in (types.float32, types.float64)}


def _llvm(vector: Vector) -> ir.VectorType:
    number = ir.FloatType() if vector.dtype == types.float32 else ir.DoubleType()
    return ir.VectorType(number, vector.count)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: Vector) -> None:
        super().__init__(manager, vector, _llvm(vector))


# Arithmetic -------------------------------------------------------------------------


def _broadcast(builder: Any, number: Any, kind: ir.VectorType) -> Any:
    zero = ir.Constant(ir.IntType(32), 0)
    undefined = ir.Constant(kind, ir.Undefined)
    one = builder.insert_element(undefined, number, zero)
    places = ir.Constant(ir.VectorType(ir.IntType(32), kind.count), [0] * kind.count)
    return builder.shuffle_vector(one, undefined, places)


def _as_vector(context: Any, builder: Any, value: Any, kind: Any, like: Vector) -> Any:
    if isinstance(kind, Vector):
        return value
    number = context.cast(builder, value, kind, like.dtype)
    return _broadcast(builder, number, _llvm(like))


def _teach(operation: Any, instruction: str) -> None:
    """Make an operator work on vectors, and on a vector and a number."""

    @infer_global(operation)
    class _Typing(AbstractTemplate):
        def generic(self, args: Any, kws: Any) -> Any:
            vectors = [a for a in args if isinstance(a, Vector)]
            known = all(isinstance(a, Vector | types.Number) for a in args)
            if len(args) == 2 and vectors and known:
                return signature(vectors[0], *args)
            return None

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        operands = [
            _as_vector(context, builder, value, kind, sig.return_type)
            for value, kind in zip(args, sig.args, strict=True)
        ]
        return getattr(builder, instruction)(*operands, flags=_FAST)

    for kinds in ((Vector, Vector), (Vector, types.Number), (types.Number, Vector)):
        lower_builtin(operation, *kinds)(lower)


for _operation, _instruction in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _teach(_operation, _instruction)


def _limit(beyond: str) -> Any:
    @intrinsic
    def limited(typing: Any, vector: Any, bound: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            other = _as_vector(context, builder, args[1], sig.args[1], sig.args[0])
            # what is not a number lies beyond no bound, and stays
            outside = builder.fcmp_ordered(beyond, args[0], other)
            return builder.select(outside, other, args[0])

        return vector(vector, bound), codegen

    return limited


_at_most, _at_least = _limit(">"), _limit("<")


def _llvm_function(name: str) -> Any:
    @intrinsic
    def function(typing: Any, vector: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            kind = _llvm(sig.args[0])
            suffix = "f32" if kind.element == ir.FloatType() else "f64"
            full = f"llvm.{name}.v{kind.count}{suffix}"
            declared = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(kind, [kind]), full
            )
            return builder.call(declared, args)

        return vector(vector), codegen

    return function


_vector_exp, _vector_log = _llvm_function("exp"), _llvm_function("log")


# Memory -----------------------------------------------------------------------------


def _place(builder: Any, base: Any, index: Any, width: int) -> Any:
    offset = builder.mul(index, ir.Constant(ir.IntType(64), width))
    return builder.gep(base, [offset])


def _load(builder: Any, place: Any, vector: Vector, align: int) -> Any:
    value = builder.load(builder.bitcast(place, _llvm(vector).as_pointer()))
    value.align = align
    return value


def _store(builder: Any, value: Any, place: Any, vector: Vector, align: int) -> None:
    stored = builder.store(value, builder.bitcast(place, _llvm(vector).as_pointer()))
    stored.align = align


@intrinsic
def pointer(typing: Any, array: Any) -> Any:
    """Return the address of an array's data; the array must be kept alive."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return context.make_array(sig.args[0])(context, builder, args[0]).data

    return types.CPointer(array.dtype)(array), codegen


@intrinsic
def shifted(typing: Any, base: Any, n_numbers: Any) -> Any:
    """Return the address so many numbers further on."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.gep(args[0], [args[1]])

    return base(base, types.int64), codegen


@intrinsic
def load_number(typing: Any, base: Any, index: Any) -> Any:
    """Return number ``index``."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load(builder.gep(args[0], [args[1]]))

    return base.dtype(base, types.int64), codegen


@intrinsic
def store_number(typing: Any, base: Any, index: Any, value: Any) -> Any:
    """Set number ``index``."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store(args[2], builder.gep(args[0], [args[1]]))
        return context.get_dummy_value()

    return types.void(base, types.int64, base.dtype), codegen


def _loader(aligned: bool) -> Any:
    @intrinsic
    def read(typing: Any, base: Any, index: Any) -> Any:
        vector = _VECTORS[base.dtype]

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            width = vector.count if aligned else 1
            place = _place(builder, args[0], args[1], width)
            return _load(builder, place, vector, VECTOR_BYTES if aligned else 4)

        return vector(base, types.int64), codegen

    return read


def _storer(aligned: bool) -> Any:
    @intrinsic
    def write(typing: Any, base: Any, index: Any, value: Any) -> Any:
        vector = _VECTORS[base.dtype]

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            width = vector.count if aligned else 1
            place = _place(builder, args[0], args[1], width)
            _store(builder, args[2], place, vector, VECTOR_BYTES if aligned else 4)
            return context.get_dummy_value()

        return types.void(base, types.int64, vector), codegen

    return write


_load_row, _store_row = _loader(True), _storer(True)
load_vector, store_vector = _loader(False), _storer(False)
"""From number ``index`` on, at any address."""


@intrinsic
def _splat_row(typing: Any, base: Any, number: Any) -> Any:
    vector = _VECTORS[base.dtype]

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _as_vector(context, builder, args[1], sig.args[1], vector)

    return vector(base, number), codegen


# Layouts ----------------------------------------------------------------------------
#
# A function without a body is a name for kernels to call; what it does in each layout
# and precision stands in the overload of it.


def lanes_of(layout: Any, base: Any) -> int:
    """Return how many series a row holds."""


def load(layout: Any, base: Any, row: int) -> Any:
    """Return a row's unit."""


def store(layout: Any, base: Any, row: int, unit: Any) -> None:
    """Set a row's unit."""


def splat(layout: Any, base: Any, number: float) -> Any:
    """Return a unit that holds one number for every series."""


def constant(base: Any, number: float) -> Any:
    """Return a number in the precision of an array."""


def _in_lanes(layout: Any) -> bool:
    return isinstance(layout, types.NoneType)


@overload(lanes_of, strict=False)
def _lanes_of(layout: Any, base: Any) -> Any:
    n_lanes = _VECTORS[base.dtype].count if _in_lanes(layout) else 1
    return lambda layout, base: n_lanes


@overload(load, strict=False)
def _load_unit(layout: Any, base: Any, row: Any) -> Any:
    if _in_lanes(layout):
        return lambda layout, base, row: _load_row(base, row)
    return lambda layout, base, row: load_number(base, row)


@overload(store, strict=False)
def _store_unit(layout: Any, base: Any, row: Any, unit: Any) -> Any:
    if _in_lanes(layout):
        return lambda layout, base, row, unit: _store_row(base, row, unit)
    return lambda layout, base, row, unit: store_number(base, row, unit)


@overload(splat, strict=False)
def _splat_unit(layout: Any, base: Any, number: Any) -> Any:
    if _in_lanes(layout):
        return lambda layout, base, number: _splat_row(base, number)
    return lambda layout, base, number: number


@overload(constant, strict=False)
def _constant(base: Any, number: Any) -> Any:
    if base.dtype == types.float32:
        return lambda base, number: np.float32(number)
    return lambda base, number: np.float64(number)


# Functions --------------------------------------------------------------------------


def tanh(x: Any) -> Any:
    """Return tanh of a unit; of float32 to 4 units in the last place."""


def decay(x: Any) -> Any:
    """Return exp(x) of a unit that is not positive; of float32 to 1e-7 absolute."""


def log_one_plus(x: Any) -> Any:
    """Return log(1 + x) of a unit in [0, 1]; of float32 to 1e-7 absolute."""


_SATURATED = np.float32(7.90531110763549805)
"""From here on tanh is 1 in float32."""

# The numerator's and the denominator's coefficients in x^2, highest first: the rational
# minimax approximation that Eigen and XLA use.
_P = tuple(
    np.float32(p)
    for p in (
        -2.76076847742355e-16,
        2.00018790482477e-13,
        -8.60467152213735e-11,
        5.12229709037114e-08,
        1.48572235717979e-05,
        6.37261928875436e-04,
        4.89352455891786e-03,
    )
)
_Q = tuple(
    np.float32(q)
    for q in (
        1.19825839466702e-06,
        1.18534705686654e-04,
        2.26843463243900e-03,
        4.89352518554385e-03,
    )
)


@compiled
def _rational_tanh(x: Any) -> Any:
    s = x * x
    p = s * _P[0] + _P[1]
    p = p * s + _P[2]
    p = p * s + _P[3]
    p = p * s + _P[4]
    p = p * s + _P[5]
    p = p * s + _P[6]
    q = s * _Q[0] + _Q[1]
    q = q * s + _Q[2]
    q = q * s + _Q[3]
    return x * p / q


@overload(tanh, strict=False, jit_options={"fastmath": set(_FAST)})
def _tanh(x: Any) -> Any:
    if isinstance(x, Vector) and x.dtype == types.float32:
        return lambda x: _rational_tanh(_at_least(_at_most(x, _SATURATED), -_SATURATED))
    if isinstance(x, Vector):

        def through_exp(x: Any) -> Any:
            e = _vector_exp(_at_least(_at_most(x, 20.0), -20.0) * 2.0)
            return (e - 1.0) / (e + 1.0)

        return through_exp
    if x == types.float32:
        return lambda x: _rational_tanh(at_least(at_most(x, _SATURATED), -_SATURATED))
    return lambda x: np.tanh(x)


@overload(decay, strict=False, jit_options={"fastmath": set(_FAST)})
def _decay(x: Any) -> Any:
    if x.dtype == types.float32 if isinstance(x, Vector) else x == types.float32:

        def through_tanh(x: Any) -> Any:
            t = tanh(x * np.float32(0.5))
            return (t + np.float32(1)) / (np.float32(1) - t)

        return through_tanh
    if isinstance(x, Vector):
        return lambda x: _vector_exp(x)
    return lambda x: np.exp(x)


@overload(log_one_plus, strict=False, jit_options={"fastmath": set(_FAST)})
def _log_one_plus(x: Any) -> Any:
    if x.dtype == types.float32 if isinstance(x, Vector) else x == types.float32:

        def series(x: Any) -> Any:  # 2 artanh(x / (2 + x))
            z = x / (x + np.float32(2))
            s = z * z
            total = s * np.float32(1 / 13) + np.float32(1 / 11)
            total = total * s + np.float32(1 / 9)
            total = total * s + np.float32(1 / 7)
            total = total * s + np.float32(1 / 5)
            total = total * s + np.float32(1 / 3)
            total = total * s + np.float32(1)
            return z * total * np.float32(2)

        return series
    if isinstance(x, Vector):
        return lambda x: _vector_log(x + 1.0)
    return lambda x: np.log1p(x)


def at_least(x: Any, bound: float) -> Any:
    """Return the larger one, for each series."""


def at_most(x: Any, bound: float) -> Any:
    """Return the smaller one, for each series."""


@overload(at_least, strict=False)
def _unit_at_least(x: Any, bound: Any) -> Any:
    if isinstance(x, Vector):
        return lambda x, bound: _at_least(x, bound)
    return lambda x, bound: bound if x < bound else x


@overload(at_most, strict=False)
def _unit_at_most(x: Any, bound: Any) -> Any:
    if isinstance(x, Vector):
        return lambda x, bound: _at_most(x, bound)
    return lambda x, bound: bound if x > bound else x


# Register tiles of the products in lanes ----------------------------------------------


@intrinsic(prefer_literal=True)
def tile_of_product(
    typing: Any,
    weights: Any,
    w0: Any,
    x: Any,
    x0: Any,
    n_in: Any,
    out: Any,
    out0: Any,
    n_out: Any,
    anew: Any,
    bias: Any,
) -> Any:
    """Add W x to ``n_out`` rows, which stay in registers.

    ``weights`` holds for each input its ``n_out`` weights; ``n_out`` is a literal.
    Where ``anew`` the rows are set to W x + b; ``bias`` is the address of b's numbers.
    """
    vector, n_rows = _VECTORS[x.dtype], n_out.literal_value

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        w, w_from, xs, x_from, count, outs, out_from, _, start_anew, b = args
        integer = ir.IntType(64)
        width = vector.count
        sums = []
        for r in range(n_rows):
            row = builder.add(out_from, ir.Constant(integer, r))
            place = _place(builder, outs, row, width)
            sums.append((place, cgutils.alloca_once(builder, _llvm(vector))))
        with builder.if_else(start_anew) as (anew_block, added_block):
            with anew_block:
                for r, (_, total) in enumerate(sums):
                    number = builder.load(builder.gep(b, [ir.Constant(integer, r)]))
                    start = _broadcast(builder, number, _llvm(vector))
                    builder.store(start, total)
            with added_block:
                for place, total in sums:
                    kept = _load(builder, place, vector, VECTOR_BYTES)
                    builder.store(kept, total)
        with cgutils.for_range(builder, count) as loop:
            place = _place(builder, xs, builder.add(x_from, loop.index), width)
            value = _load(builder, place, vector, VECTOR_BYTES)
            first = builder.add(
                w_from, builder.mul(loop.index, ir.Constant(integer, n_rows))
            )
            for r, (_, total) in enumerate(sums):
                index = builder.add(first, ir.Constant(integer, r))
                weight = builder.load(builder.gep(w, [index]))
                product = builder.fmul(
                    _broadcast(builder, weight, _llvm(vector)), value, flags=_FAST
                )
                builder.store(
                    builder.fadd(builder.load(total), product, flags=_FAST), total
                )
        for place, total in sums:
            _store(builder, builder.load(total), place, vector, VECTOR_BYTES)
        return context.get_dummy_value()

    long = types.int64
    sig = types.void(
        weights, long, x, long, long, out, long, n_out, types.boolean, bias
    )
    return sig, codegen


@intrinsic(prefer_literal=True)
def tile_of_outer(
    typing: Any,
    left: Any,
    left0: Any,
    right: Any,
    right0: Any,
    total: Any,
    total0: Any,
    n_terms: Any,
    n_left: Any,
    n_right: Any,
    tile_left: Any,
    tile_right: Any,
) -> Any:
    """Add outer products to a tile of a matrix, lane by lane.

    Term t adds left[t, j] right[t, k] to total[j, k] for ``tile_left`` rows j from
    ``left0`` and ``tile_right`` columns k from ``right0``, both literals; ``n_left``
    and ``n_right`` are the lengths of a term.
    """
    vector = _VECTORS[left.dtype]
    n_j, n_k = tile_left.literal_value, tile_right.literal_value

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        lefts, j0, rights, k0, totals, first, terms, long_j, long_k = args[:9]
        integer, width = ir.IntType(64), vector.count

        def number(value: int) -> Any:
            return ir.Constant(integer, value)

        sums = {}
        for j in range(n_j):
            start = builder.add(first, builder.mul(number(j), long_k))
            for k in range(n_k):
                place = _place(builder, totals, builder.add(start, number(k)), width)
                kept = cgutils.alloca_once(builder, _llvm(vector))
                builder.store(_load(builder, place, vector, VECTOR_BYTES), kept)
                sums[j, k] = place, kept
        with cgutils.for_range(builder, terms) as loop:
            j_from = builder.add(j0, builder.mul(loop.index, long_j))
            k_from = builder.add(k0, builder.mul(loop.index, long_k))
            inputs = [
                _load(
                    builder,
                    _place(builder, rights, builder.add(k_from, number(k)), width),
                    vector,
                    VECTOR_BYTES,
                )
                for k in range(n_k)
            ]
            for j in range(n_j):
                place = _place(builder, lefts, builder.add(j_from, number(j)), width)
                gradient = _load(builder, place, vector, VECTOR_BYTES)
                for k in range(n_k):
                    kept = sums[j, k][1]
                    product = builder.fmul(gradient, inputs[k], flags=_FAST)
                    builder.store(
                        builder.fadd(builder.load(kept), product, flags=_FAST), kept
                    )
        for place, kept in sums.values():
            _store(builder, builder.load(kept), place, vector, VECTOR_BYTES)
        return context.get_dummy_value()

    long = types.int64
    sig = types.void(
        *(left, long, right, long, total, long, long, long, long),
        *(tile_left, tile_right),
    )
    return sig, codegen
