"""A SIMD vector for numba, and sums of products that stay in registers.

A vector is as wide as a register of the machine: 4, 8 or 16 numbers of float32. Plain
loops of numba keep intermediate results in memory, with a vector they stay in
registers (docs/engine.md has the figures).

Memory is a one-dimensional array of floats, read from and written to at a number's
index. With ``NUMBA_BOUNDSCHECK=1`` every index is checked.
"""

from __future__ import annotations

import contextlib
import operator
from typing import Any

import numba
import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils, config
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
    "HIGHEST",
    "TALLEST",
    "WIDEST",
    "add_outer_products",
    "add_products",
    "at_least",
    "at_most",
    "compiled",
    "constant",
    "decay",
    "inlined",
    "lanes_of",
    "load",
    "log_one_plus",
    "n_lanes",
    "number_at",
    "operands",
    "set_number_at",
    "splat",
    "store",
    "tanh",
    "within",
]


def _register_bytes() -> int:
    """Return the size of this machine's vector registers."""
    try:
        features = binding.get_host_cpu_features()
    except RuntimeError:  # a system that LLVM cannot ask
        features = {}
    if features.get("avx512f"):
        return 64
    return 32 if features.get("avx") else 16


_BYTES = _register_bytes()


def n_lanes(itemsize: int) -> int:
    """Return how many numbers of so many bytes a vector holds."""
    return _BYTES // itemsize


# Sums may be reordered and fused; infinities and what is no number stay what they are.
_FAST = ("reassoc", "nsz", "arcp", "contract", "afn")

_COMPILE = {"fastmath": set(_FAST), "nogil": True, "error_model": "numpy"}


def compiled(function: Any) -> Any:
    """Compile a function, once a machine; once a process where nothing can be kept."""
    dispatcher = numba.njit(**_COMPILE)(function)
    with contextlib.suppress(RuntimeError):  # no folder to write to
        dispatcher._cache = Cache(function)
    return dispatcher


def inlined(function: Any) -> Any:
    """Compile a function into those that call it.

    A call that is left could run another copy than the caller's own, which rounds
    otherwise: that of the process that compiled it.
    """
    return numba.njit(inline="always", **_COMPILE)(function)


class Vector(types.Type):
    """Type of a vector of floats."""

    def __init__(self, dtype: types.Float) -> None:
        self.dtype = dtype
        self.count = _BYTES * 8 // dtype.bitwidth
        self.number = ir.FloatType() if dtype == types.float32 else ir.DoubleType()
        self.llvm = ir.VectorType(self.number, self.count)
        super().__init__(name=f"Vector({dtype}, {self.count})")


_VECTORS = {dtype: Vector(dtype) for dtype in (types.float32, types.float64)}


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: Vector) -> None:
        super().__init__(manager, vector, vector.llvm)


# Arithmetic -------------------------------------------------------------------------


def _broadcast(builder: Any, number: Any, vector: Vector) -> Any:
    undefined = ir.Constant(vector.llvm, ir.Undefined)
    one = builder.insert_element(undefined, number, ir.Constant(ir.IntType(32), 0))
    places = ir.VectorType(ir.IntType(32), vector.count)
    zeros = ir.Constant(places, [0] * vector.count)
    return builder.shuffle_vector(one, undefined, zeros)


def _as_vector(context: Any, builder: Any, value: Any, kind: Any, like: Vector) -> Any:
    if isinstance(kind, Vector):
        return value
    number = context.cast(builder, value, kind, like.dtype)
    return _broadcast(builder, number, like)


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
        both = [
            _as_vector(context, builder, value, kind, sig.return_type)
            for value, kind in zip(args, sig.args, strict=True)
        ]
        return getattr(builder, instruction)(*both, flags=_FAST)

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
            other = _as_vector(context, builder, args[1], sig.args[1], vector)
            # what is not a number lies beyond no bound, and stays
            outside = builder.fcmp_ordered(beyond, args[0], other)
            return builder.select(outside, other, args[0])

        return vector(vector, bound), codegen

    return limited


at_most, at_least = _limit(">"), _limit("<")
"""The smaller, and the larger one of each number of a vector and a bound."""


def _llvm_function(name: str) -> Any:
    @intrinsic
    def function(typing: Any, vector: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            kind = ir.FunctionType(vector.llvm, [vector.llvm])
            full = f"llvm.{name}.v{vector.count}f{vector.dtype.bitwidth}"
            declared = cgutils.get_or_insert_function(builder.module, kind, full)
            return builder.call(declared, args)

        return vector(vector), codegen

    return function


_exp, _log = _llvm_function("exp"), _llvm_function("log")


# Functions --------------------------------------------------------------------------


def tanh(x: Any) -> Any:
    """Return tanh of a vector; of float32 to 4 units in the last place."""


def decay(x: Any) -> Any:
    """Return exp(x) of a vector without positives; of float32 to 1e-7 absolute."""


def log_one_plus(x: Any) -> Any:
    """Return log(1 + x) of a vector in [0, 1]; of float32 to 1e-7 absolute."""


def _constants(*numbers: float) -> tuple[np.float32, ...]:
    return tuple(np.float32(number) for number in numbers)


_SATURATED = np.float32(7.90531110763549805)
"""From here on tanh is 1 in float32."""

# The numerator's and the denominator's coefficients in x^2, highest first: the rational
# minimax approximation that Eigen and XLA use.
_P = _constants(
    -2.76076847742355e-16,
    2.00018790482477e-13,
    -8.60467152213735e-11,
    5.12229709037114e-08,
    1.48572235717979e-05,
    6.37261928875436e-04,
    4.89352455891786e-03,
)
_Q = _constants(
    1.19825839466702e-06,
    1.18534705686654e-04,
    2.26843463243900e-03,
    4.89352518554385e-03,
)
_ARTANH = _constants(1 / 13, 1 / 11, 1 / 9, 1 / 7, 1 / 5, 1 / 3, 1.0)

_OPTIONS = {"strict": False, "jit_options": {"forceinline": True, **_COMPILE}}


@overload(tanh, **_OPTIONS)
def _tanh(x: Any) -> Any:
    def rational(x: Any) -> Any:
        x = at_least(at_most(x, _SATURATED), -_SATURATED)
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

    def through_exp(x: Any) -> Any:
        e = _exp(at_least(at_most(x, 20.0), -20.0) * 2.0)
        return (e - 1.0) / (e + 1.0)

    return rational if x.dtype == types.float32 else through_exp


@overload(decay, **_OPTIONS)
def _decay(x: Any) -> Any:
    def through_tanh(x: Any) -> Any:
        t = tanh(x * np.float32(0.5))
        return (t + np.float32(1)) / (np.float32(1) - t)

    return through_tanh if x.dtype == types.float32 else lambda x: _exp(x)


@overload(log_one_plus, **_OPTIONS)
def _log_one_plus(x: Any) -> Any:
    def series(x: Any) -> Any:  # 2 artanh(x / (2 + x))
        z = x / (x + np.float32(2))
        s = z * z
        total = s * _ARTANH[0] + _ARTANH[1]
        total = total * s + _ARTANH[2]
        total = total * s + _ARTANH[3]
        total = total * s + _ARTANH[4]
        total = total * s + _ARTANH[5]
        total = total * s + _ARTANH[6]
        return z * total * np.float32(2)

    return series if x.dtype == types.float32 else lambda x: _log(x + 1.0)


# Memory -----------------------------------------------------------------------------


class _Memory:
    """An array in generated code: the address of a number, checked where asked for."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        self.context, self.builder = context, builder
        self.array = context.make_array(kind)(context, builder, value)

    def check(self, index: Any, n_numbers: Any) -> None:
        """Have code raise IndexError where numbers lie outside."""
        if not config.BOUNDSCHECK:
            return
        last = self.builder.sub(self.builder.add(index, n_numbers), _int(1))
        for place in (index, last):
            cgutils.do_boundscheck(
                self.context, self.builder, place, self.array.nitems
            )

    def at(self, index: Any, n_numbers: int) -> Any:
        self.check(index, _int(n_numbers))
        return self.builder.gep(self.array.data, [index])


def _int(value: int) -> ir.Constant:
    return ir.Constant(ir.IntType(64), value)


def _load(builder: Any, place: Any, vector: Vector) -> Any:
    value = builder.load(builder.bitcast(place, vector.llvm.as_pointer()))
    value.align = _BYTES
    return value


def _store(builder: Any, value: Any, place: Any, vector: Vector) -> None:
    stored = builder.store(value, builder.bitcast(place, vector.llvm.as_pointer()))
    stored.align = _BYTES


@intrinsic
def load(typing: Any, memory: Any, index: Any) -> Any:
    """Return the vector that begins at a number."""
    vector = _VECTORS[memory.dtype]

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        place = _Memory(context, builder, memory, args[0]).at(args[1], vector.count)
        return _load(builder, place, vector)

    return vector(memory, types.int64), codegen


@intrinsic
def store(typing: Any, memory: Any, index: Any, value: Any) -> Any:
    """Set the vector that begins at a number."""
    vector = _VECTORS[memory.dtype]

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        place = _Memory(context, builder, memory, args[0]).at(args[1], vector.count)
        _store(builder, args[2], place, vector)
        return context.get_dummy_value()

    return types.void(memory, types.int64, vector), codegen


@intrinsic
def splat(typing: Any, memory: Any, number: Any) -> Any:
    """Return a vector of one number, in the precision of an array."""
    vector = _VECTORS[memory.dtype]

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _as_vector(context, builder, args[1], sig.args[1], vector)

    return vector(memory, number), codegen


@intrinsic
def within(typing: Any, memory: Any, index: Any, n_numbers: Any) -> Any:
    """Check that numbers lie in memory, under ``NUMBA_BOUNDSCHECK`` only."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        _Memory(context, builder, memory, args[0]).check(args[1], args[2])
        return context.get_dummy_value()

    return types.void(memory, types.int64, types.int64), codegen


def _number(builder: Any, address: Any, index: Any, dtype: Any) -> Any:
    kind = _VECTORS[dtype].number.as_pointer()
    return builder.gep(builder.inttoptr(address, kind), [index])


@intrinsic
def number_at(typing: Any, like: Any, address: Any, index: Any) -> Any:
    """Return a number of the array whose data begin at an address."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load(_number(builder, args[1], args[2], like.dtype))

    return like.dtype(like, types.int64, types.int64), codegen


@intrinsic
def set_number_at(typing: Any, like: Any, address: Any, index: Any, value: Any) -> Any:
    """Set a number of the array whose data begin at an address."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store(args[3], _number(builder, args[1], args[2], like.dtype))
        return context.get_dummy_value()

    return types.void(like, types.int64, types.int64, like.dtype), codegen


@intrinsic(prefer_literal=True)
def operands(typing: Any, code: Any, pc: Any, registers: Any, n: Any) -> Any:
    """Return the n operands of the instruction at ``pc``, see `sklode.engine.kernel`.

    Each is a register's content plus a number.
    """
    n_operands = n.literal_value

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        words = _Memory(context, builder, code, args[0])
        kept = _Memory(context, builder, registers, args[2])
        values = []
        for i in range(n_operands):
            word = builder.load(words.at(builder.add(args[1], _int(1 + i)), 1))
            register = builder.and_(word, _int(15))
            content = builder.load(kept.at(register, 1))
            values.append(builder.add(content, builder.ashr(word, _int(4))))
        return context.make_tuple(builder, sig.return_type, values)

    several = types.UniTuple(types.int64, n_operands)
    return several(code, types.int64, registers, n), codegen


def lanes_of(memory: Any) -> int:
    """Return how many numbers of an array's precision a vector holds."""


def constant(memory: Any, number: float) -> Any:
    """Return a number in the precision of an array."""


@overload(lanes_of, strict=False)
def _lanes_of(memory: Any) -> Any:
    n_lanes = _VECTORS[memory.dtype].count
    return lambda memory: n_lanes


@overload(constant, strict=False)
def _constant(memory: Any, number: Any) -> Any:
    if memory.dtype == types.float32:
        return lambda memory, number: np.float32(number)
    return lambda memory, number: np.float64(number)


# Sums of products -------------------------------------------------------------------
#
# Each variant is a function of its own within the kernel: there it has all registers.

TALLEST = 12
"""Vectors of a product's result: with a weight and an input 14 of 16 registers."""

HIGHEST, WIDEST = 4, 3
"""Of a tile of outer products; with its factors at most 16 registers."""


def _variants(name: str, n_integers: int, build: Any, *choices: int) -> Any:
    """Return a function for kernels, which runs one of many variants.

    Called with memory, a tuple of integers, and the number of the variant. ``build``
    writes a variant's code; it is called with the vector type and a number from 1 to
    each of ``choices``, the last of which counts fastest.
    """

    @intrinsic
    def function(typing: Any, memory: Any, integers: Any, which: Any) -> Any:
        vector = _VECTORS[memory.dtype]
        long = ir.IntType(64)
        parameters = [vector.number.as_pointer(), *[long] * n_integers]

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            data = _Memory(context, builder, memory, args[0]).array.data
            numbers = cgutils.unpack_tuple(builder, args[1])
            done = builder.append_basic_block()
            switch = builder.switch(args[2], done)
            for n, sizes in enumerate(np.ndindex(*choices)):
                kind = ir.FunctionType(ir.VoidType(), parameters)
                made = ir.Function(builder.module, kind, f"{name}_{n}_{vector.dtype}")
                made.linkage = "internal"
                made.attributes.add("noinline")
                inside = ir.IRBuilder(made.append_basic_block())
                build(inside, vector, *(size + 1 for size in sizes), *made.args)
                inside.ret_void()
                switch.add_case(n, builder.append_basic_block())
                with builder.goto_block(switch.cases[-1][1]):
                    builder.call(made, [data, *numbers])
                    builder.branch(done)
            builder.position_at_end(done)
            return context.get_dummy_value()

        return types.void(memory, integers, types.int64), codegen

    return function


class _Sums:
    """Vectors that stay in registers while products are added to them."""

    def __init__(self, builder: Any, vector: Vector, n: int) -> None:
        self.builder, self.vector = builder, vector
        self.totals = [cgutils.alloca_once(builder, vector.llvm) for _ in range(n)]

    def set(self, k: int, value: Any) -> None:
        self.builder.store(value, self.totals[k])

    def get(self, k: int) -> Any:
        return self.builder.load(self.totals[k])

    def add(self, k: int, left: Any, right: Any) -> None:
        product = self.builder.fmul(left, right, flags=_FAST)
        self.set(k, self.builder.fadd(self.get(k), product, flags=_FAST))


def _product(
    builder: Any,
    vector: Vector,
    height: int,
    layout: int,
    data: Any,
    w: Any,
    x: Any,
    n_in: Any,
    start: Any,
    is_rows: Any,
    out: Any,
) -> None:
    """Set ``height`` vectors of ``out`` to W x + start.

    ``w`` holds for each input its weights. In lanes (layout 1) a vector of inputs is
    multiplied by a weight each, and where not ``is_rows`` the start is a number each;
    of a single series (2) vectors of weights are multiplied by an input.
    """
    count, lanes = vector.count, layout == 1

    def at(index: Any, offset: int = 0) -> Any:
        return builder.gep(data, [builder.add(index, _int(offset))])

    def number(place: Any) -> Any:
        return _broadcast(builder, builder.load(place), vector)

    sums = _Sums(builder, vector, height)
    with builder.if_else(builder.trunc(is_rows, ir.IntType(1))) as (rows, numbers):
        with rows:
            for r in range(height):
                sums.set(r, _load(builder, at(start, r * count), vector))
        with numbers:
            for r in range(height):
                sums.set(r, number(at(start, r)))
    with cgutils.for_range(builder, n_in) as loop:
        moved = builder.mul(loop.index, _int(count if lanes else 1))
        place = at(builder.add(x, moved))
        read = _load(builder, place, vector) if lanes else number(place)
        width = height if lanes else height * count
        first = builder.add(w, builder.mul(loop.index, _int(width)))
        for r in range(height):
            if lanes:
                weight = number(at(first, r))
            else:
                weight = _load(builder, at(first, r * count), vector)
            sums.add(r, weight, read)
    for r in range(height):
        _store(builder, sums.get(r), at(out, r * count), vector)


add_products = _variants("product", 6, _product, TALLEST, 2)
"""Variants by height and layout."""


def _outer(
    builder: Any,
    vector: Vector,
    height: int,
    width: int,
    layout: int,
    data: Any,
    left: Any,
    right: Any,
    total: Any,
    n_left: Any,
    n_right: Any,
    n_terms: Any,
    n_places: Any,
    place: Any,
) -> None:
    """Add outer products to a tile of a matrix of vectors.

    ``left`` and ``right`` are where the tile's factors begin, ``n_left`` and
    ``n_right`` the vectors of a term, ``place`` the numbers from one place to the next.
    In lanes (layout 1) both factors are vectors; of a single series (2) the left ones
    are numbers, one behind the other.
    """
    count, lanes = vector.count, layout == 1

    def times_count(value: Any) -> Any:
        return builder.mul(value, _int(count))

    def at(index: Any, offset: Any = 0) -> Any:
        if isinstance(offset, int):
            offset = _int(offset)
        return builder.gep(data, [builder.add(index, offset)])

    sums = _Sums(builder, vector, height * width)
    places = [
        at(total, builder.add(builder.mul(times_count(n_right), _int(j)), _int(k)))
        for j in range(height)
        for k in range(0, width * count, count)
    ]
    for t, kept in enumerate(places):
        sums.set(t, _load(builder, kept, vector))
    with cgutils.for_range(builder, n_places) as outer:
        moved = builder.mul(outer.index, place)
        lefts, rights = builder.add(left, moved), builder.add(right, moved)
        with cgutils.for_range(builder, n_terms) as loop:
            from_left = builder.add(lefts, builder.mul(loop.index, times_count(n_left)))
            from_right = builder.add(
                rights, builder.mul(loop.index, times_count(n_right))
            )
            factors = [
                _load(builder, at(from_right, k * count), vector) for k in range(width)
            ]
            for j in range(height):
                if lanes:
                    factor = _load(builder, at(from_left, j * count), vector)
                else:
                    number = builder.load(at(from_left, j))
                    factor = _broadcast(builder, number, vector)
                for k in range(width):
                    sums.add(j * width + k, factor, factors[k])
    for t, kept in enumerate(places):
        _store(builder, sums.get(t), kept, vector)


add_outer_products = _variants("outer", 8, _outer, HIGHEST, WIDEST, 2)
"""Variants by height, width and layout."""
