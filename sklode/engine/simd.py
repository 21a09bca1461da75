"""A SIMD vector for numba, and sums of products that stay in registers.

A vector is as wide as a register of the machine: 4, 8 or 16 numbers of float32. Plain
loops of numba keep intermediate results in memory, with a vector they stay in
registers (docs/engine.md has the figures).

Vectors are read from and written to a one-dimensional array, at the index of their
first number. With ``NUMBA_BOUNDSCHECK=1`` every index is checked.
"""

from __future__ import annotations

import contextlib
import operator

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
    "at_least",
    "at_most",
    "compiled",
    "decay",
    "inlined",
    "lanes_of",
    "load",
    "log_one_plus",
    "n_lanes",
    "operands",
    "set_products",
    "splat",
    "store",
    "tanh",
    "within",
]


def _register_bytes():
    """Return the size of this machine's vector registers."""
    try:
        features = binding.get_host_cpu_features()
    except RuntimeError:  # a system that LLVM cannot ask
        features = {}
    if features.get("avx512f"):
        return 64
    return 32 if features.get("avx") else 16


_BYTES = _register_bytes()


def n_lanes(itemsize):
    """Return how many numbers of so many bytes a vector holds."""
    return _BYTES // itemsize


# Sums may be reordered and fused; infinities and what is no number stay what they are.
_FAST = ("reassoc", "nsz", "arcp", "contract", "afn")

_OPTIONS = {"fastmath": set(_FAST), "nogil": True, "error_model": "numpy"}


def compiled(function):
    """Compile a function, once a machine; once a process where nothing can be kept."""
    dispatcher = numba.njit(**_OPTIONS)(function)
    with contextlib.suppress(RuntimeError):  # no folder to write to
        dispatcher._cache = Cache(function)
    return dispatcher


def inlined(function):
    """Compile a function into those that call it.

    A call could run the copy of another function that was compiled in this process,
    which rounds otherwise.
    """
    return numba.njit(inline="always", **_OPTIONS)(function)


class Vector(types.Type):
    """Type of a vector of floats."""

    def __init__(self, dtype):
        self.dtype = dtype
        self.count = n_lanes(dtype.bitwidth // 8)
        self.number = ir.FloatType() if dtype == types.float32 else ir.DoubleType()
        self.llvm = ir.VectorType(self.number, self.count)
        super().__init__(name=f"Vector({dtype}, {self.count})")


_VECTORS = {dtype: Vector(dtype) for dtype in (types.float32, types.float64)}


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, vector):
        super().__init__(manager, vector, vector.llvm)


# Arithmetic -------------------------------------------------------------------------


def _broadcast(builder, number, vector):
    undefined = ir.Constant(vector.llvm, ir.Undefined)
    one = builder.insert_element(undefined, number, ir.Constant(ir.IntType(32), 0))
    places = ir.VectorType(ir.IntType(32), vector.count)
    zeros = ir.Constant(places, [0] * vector.count)
    return builder.shuffle_vector(one, undefined, zeros)


def _as_vector(context, builder, value, kind, vector):
    if isinstance(kind, Vector):
        return value
    number = context.cast(builder, value, kind, vector.dtype)
    return _broadcast(builder, number, vector)


def _teach(operation, instruction):
    """Make an operator work on vectors, and on a vector and a number."""

    @infer_global(operation)
    class _Typing(AbstractTemplate):
        def generic(self, args, kws):
            vectors = [a for a in args if isinstance(a, Vector)]
            known = all(isinstance(a, Vector | types.Number) for a in args)
            if len(args) == 2 and vectors and known:
                return signature(vectors[0], *args)
            return None

    def lower(context, builder, sig, args):
        both = [
            _as_vector(context, builder, value, kind, sig.return_type)
            for value, kind in zip(args, sig.args, strict=True)
        ]
        return getattr(builder, instruction)(*both, flags=_FAST)

    for kinds in ((Vector, Vector), (Vector, types.Number), (types.Number, Vector)):
        lower_builtin(operation, *kinds)(lower)


_teach(operator.add, "fadd")
_teach(operator.sub, "fsub")
_teach(operator.mul, "fmul")
_teach(operator.truediv, "fdiv")


def _limit(beyond):
    @intrinsic
    def limited(typing, vector, bound):
        def codegen(context, builder, sig, args):
            other = _as_vector(context, builder, args[1], sig.args[1], vector)
            # what is not a number lies beyond no bound, and stays
            outside = builder.fcmp_ordered(beyond, args[0], other)
            return builder.select(outside, other, args[0])

        return vector(vector, bound), codegen

    return limited


at_most, at_least = _limit(">"), _limit("<")
"""The smaller, and the larger one of each number of a vector and a bound."""


def _llvm_function(name):
    @intrinsic
    def function(typing, vector):
        def codegen(context, builder, sig, args):
            kind = ir.FunctionType(vector.llvm, [vector.llvm])
            full = f"llvm.{name}.v{vector.count}f{vector.dtype.bitwidth}"
            declared = cgutils.get_or_insert_function(builder.module, kind, full)
            return builder.call(declared, args)

        return vector(vector), codegen

    return function


_exp, _log = _llvm_function("exp"), _llvm_function("log")


# Functions --------------------------------------------------------------------------


def _by_precision(name, of_float32, of_float64):
    """Return a function of vectors that has a body for each precision."""

    def function(x):
        raise NotImplementedError(name)

    @overload(function, strict=False, inline="always", jit_options=_OPTIONS)
    def body(x):
        return of_float32 if x.dtype == types.float32 else of_float64

    return function


_SATURATED = 7.90531110763549805
"""From here on tanh is 1 in float32."""


def _rational_tanh(x):
    # the minimax approximation that Eigen and XLA use
    x = at_least(at_most(x, _SATURATED), -_SATURATED)
    s = x * x
    p = s * -2.76076847742355e-16 + 2.00018790482477e-13
    p = p * s + -8.60467152213735e-11
    p = p * s + 5.12229709037114e-08
    p = p * s + 1.48572235717979e-05
    p = p * s + 6.37261928875436e-04
    p = p * s + 4.89352455891786e-03
    q = s * 1.19825839466702e-06 + 1.18534705686654e-04
    q = q * s + 2.26843463243900e-03
    q = q * s + 4.89352518554385e-03
    return x * p / q


def _tanh_through_exp(x):
    e = _exp(at_least(at_most(x, 20.0), -20.0) * 2.0)
    return (e - 1.0) / (e + 1.0)


tanh = _by_precision("tanh", _rational_tanh, _tanh_through_exp)
"""tanh of a vector; of float32 to 4 units in the last place."""


def _exp_through_tanh(x):
    t = tanh(x * 0.5)
    return (t + 1.0) / (1.0 - t)


decay = _by_precision("decay", _exp_through_tanh, lambda x: _exp(x))
"""exp(x) of a vector without positives; of float32 to 1e-7 absolute."""


def _log_series(x):
    z = x / (x + 2.0)  # 2 artanh(x / (2 + x))
    s = z * z
    total = s * (1 / 13) + 1 / 11
    total = total * s + 1 / 9
    total = total * s + 1 / 7
    total = total * s + 1 / 5
    total = total * s + 1 / 3
    total = total * s + 1.0
    return z * total * 2.0


log_one_plus = _by_precision("log_one_plus", _log_series, lambda x: _log(x + 1.0))
"""log(1 + x) of a vector in [0, 1]; of float32 to 1e-7 absolute."""


# Memory -----------------------------------------------------------------------------


def _int(value):
    return ir.Constant(ir.IntType(64), value)


class _Data:
    """The numbers of an array, in generated code.

    Parameters
    ----------
    builder : IRBuilder
        What the code is written with.
    vector : Vector
        The type of its vectors.
    pointer : pointer to a number
        Where its data begin.
    """

    def __init__(self, builder, vector, pointer):
        self.builder, self.vector, self.pointer = builder, vector, pointer

    def _at(self, index, offset, kind):
        place = self.builder.add(index, _int(offset)) if offset else index
        place = self.builder.gep(self.pointer, [place])
        return self.builder.bitcast(place, kind.as_pointer())

    def load(self, index, offset=0):
        """Return the vector that begins at a number."""
        place = self._at(index, offset, self.vector.llvm)
        value = self.builder.load(place)
        value.align = _BYTES
        return value

    def store(self, value, index, offset=0):
        """Set the vector that begins at a number."""
        place = self._at(index, offset, self.vector.llvm)
        self.builder.store(value, place).align = _BYTES

    def spread(self, index, offset=0):
        """Return a vector of one number."""
        number = self.builder.load(self._at(index, offset, self.vector.number))
        return _broadcast(self.builder, number, self.vector)


def _checked(context, builder, kind, value, index, n):
    """Return an array; where it is asked for, have numbers outside raise IndexError."""
    array = context.make_array(kind)(context, builder, value)
    if config.BOUNDSCHECK:
        last = builder.sub(builder.add(index, n), _int(1))
        for place in (index, last):
            cgutils.do_boundscheck(context, builder, place, array.nitems)
    return array


@intrinsic
def within(typing, memory, index, n_numbers):
    """Check that numbers lie in memory, under ``NUMBA_BOUNDSCHECK`` only."""

    def codegen(context, builder, sig, args):
        _checked(context, builder, memory, *args)
        return context.get_dummy_value()

    return types.void(memory, types.int64, types.int64), codegen


@intrinsic
def load(typing, memory, index):
    """Return the vector that begins at a number."""
    vector = _VECTORS[memory.dtype]

    def codegen(context, builder, sig, args):
        array = _checked(context, builder, memory, *args, _int(vector.count))
        return _Data(builder, vector, array.data).load(args[1])

    return vector(memory, types.int64), codegen


@intrinsic
def store(typing, memory, index, value):
    """Set the vector that begins at a number."""
    vector = _VECTORS[memory.dtype]

    def codegen(context, builder, sig, args):
        array = _checked(context, builder, memory, *args[:2], _int(vector.count))
        _Data(builder, vector, array.data).store(args[2], args[1])
        return context.get_dummy_value()

    return types.void(memory, types.int64, vector), codegen


@intrinsic
def splat(typing, memory, number):
    """Return a vector of one number, in the precision of an array."""
    vector = _VECTORS[memory.dtype]

    def codegen(context, builder, sig, args):
        return _as_vector(context, builder, args[1], number, vector)

    return vector(memory, number), codegen


@intrinsic
def lanes_of(typing, memory):
    """Return how many numbers of an array's precision a vector holds."""
    count = _VECTORS[memory.dtype].count
    return types.int64(memory), lambda *_: _int(count)


@intrinsic(prefer_literal=True)
def operands(typing, code, pc, registers, n):
    """Return the n operands of the instruction at ``pc``, see `sklode.engine.kernel`.

    Each is a number plus the content of a register.
    """
    several = types.UniTuple(types.int64, n.literal_value)

    def codegen(context, builder, sig, args):
        first = builder.add(args[1], _int(1))
        words = _checked(context, builder, code, args[0], first, _int(several.count))
        kept = context.make_array(registers)(context, builder, args[2])
        values = []
        for i in range(several.count):
            place = builder.add(first, _int(i))
            word = builder.load(builder.gep(words.data, [place]))
            register = builder.gep(kept.data, [builder.and_(word, _int(15))])
            number = builder.ashr(word, _int(4))
            values.append(builder.add(builder.load(register), number))
        return context.make_tuple(builder, several, values)

    return several(code, types.int64, registers, n), codegen


# Sums of products -------------------------------------------------------------------
#
# Each variant is a function of its own within the kernel: there it has all registers.

TALLEST = 12
"""Vectors of a product's result: with a weight and an input 14 of 16 registers."""

HIGHEST, WIDEST = 4, 3
"""Of a tile of outer products; with its factors at most 16 registers."""


def _variants(name, n_integers, write, *choices):
    """Return a function for kernels, which runs one of many variants.

    Called with memory, a tuple of integers, and the number of the variant. ``write``
    writes a variant's code; it is called with the data, a number below each of
    ``choices``, the last of which counts fastest, and the integers.
    """

    @intrinsic
    def function(typing, memory, integers, which):
        vector = _VECTORS[memory.dtype]
        parameters = [vector.number.as_pointer(), *[ir.IntType(64)] * n_integers]

        def codegen(context, builder, sig, args):
            pointer = context.make_array(memory)(context, builder, args[0]).data
            numbers = cgutils.unpack_tuple(builder, args[1])
            done = builder.append_basic_block()
            switch = builder.switch(args[2], done)
            for n, sizes in enumerate(np.ndindex(*choices)):
                kind = ir.FunctionType(ir.VoidType(), parameters)
                made = ir.Function(builder.module, kind, f"{name}_{n}_{vector.dtype}")
                made.linkage = "internal"
                made.attributes.add("noinline")
                inside = ir.IRBuilder(made.append_basic_block())
                write(_Data(inside, vector, made.args[0]), *sizes, *made.args[1:])
                inside.ret_void()
                switch.add_case(n, builder.append_basic_block())
                with builder.goto_block(switch.cases[-1][1]):
                    builder.call(made, [pointer, *numbers])
                    builder.branch(done)
            builder.position_at_end(done)
            return context.get_dummy_value()

        return types.void(memory, integers, types.int64), codegen

    return function


class _Sums:
    """Vectors that stay in registers while products are added to them."""

    def __init__(self, data, starts):
        self.data, self.builder = data, data.builder
        self.totals = [cgutils.alloca_once_value(data.builder, v) for v in starts]

    def add(self, k, left, right):
        product = self.builder.fmul(left, right, flags=_FAST)
        total = self.builder.load(self.totals[k])
        total = self.builder.fadd(total, product, flags=_FAST)
        self.builder.store(total, self.totals[k])

    def store(self, index, offsets):
        for total, offset in zip(self.totals, offsets, strict=True):
            self.data.store(self.builder.load(total), index, offset)


def _moved(builder, index, n, step):
    """Return an index moved by n steps."""
    return builder.add(index, builder.mul(n, step))


def _write_products(data, height, is_rows, w, x, n_in, start, out):
    """Set ``height + 1`` vectors from ``out`` on to W x + start.

    ``w`` holds for each input its weights. The start is a vector each, or a number.
    """
    builder, count = data.builder, data.vector.count
    rows = range(height + 1)
    if is_rows:
        sums = _Sums(data, [data.load(start, r * count) for r in rows])
    else:
        sums = _Sums(data, [data.spread(start, r) for r in rows])
    with cgutils.for_range(builder, n_in) as loop:
        value = data.load(_moved(builder, x, loop.index, _int(count)))
        first = _moved(builder, w, loop.index, _int(len(rows)))
        for r in rows:
            sums.add(r, data.spread(first, r), value)
    sums.store(out, [r * count for r in rows])


set_products = _variants("products", 5, _write_products, TALLEST, 2)
"""Variants by height less one, and whether the start is rows."""


def _write_outer(
    data, height, width, left, right, total, n_left, n_right, terms, places, far
):
    """Add outer products to a tile of (height + 1, width + 1) vectors of a matrix.

    ``left`` and ``right`` are where the tile's factors begin, ``n_left`` and
    ``n_right`` the vectors of a term, ``far`` the numbers from one place to the next.
    """
    builder, count = data.builder, _int(data.vector.count)
    to_left, to_right = builder.mul(n_left, count), builder.mul(n_right, count)
    rows = [_moved(builder, total, _int(j), to_right) for j in range(height + 1)]
    columns = [k * data.vector.count for k in range(width + 1)]
    sums = [_Sums(data, [data.load(row, k) for k in columns]) for row in rows]
    with cgutils.for_range(builder, places) as place:
        lefts = _moved(builder, left, place.index, far)
        rights = _moved(builder, right, place.index, far)
        with cgutils.for_range(builder, terms) as term:
            left_at = _moved(builder, lefts, term.index, to_left)
            right_at = _moved(builder, rights, term.index, to_right)
            values = [data.load(right_at, k) for k in columns]
            for j, row in enumerate(sums):
                factor = data.load(left_at, j * data.vector.count)
                for k, value in enumerate(values):
                    row.add(k, factor, value)
    for row, row_sums in zip(rows, sums, strict=True):
        row_sums.store(row, columns)


add_outer_products = _variants("outer", 8, _write_outer, HIGHEST, WIDEST)
"""Variants by height and width less one."""
