"""A SIMD vector for numba, and sums of products that stay in registers.

A vector is as wide as a register of the machine: 4, 8 or 16 numbers of float32. Plain
loops of numba keep intermediate results in memory, with a vector they stay in
registers (docs/engine.md has the figures).

A row is a vector of a one-dimensional array: row k begins at number k times the size
of a vector. With ``NUMBA_BOUNDSCHECK=1`` every index is checked.
"""

from __future__ import annotations

import contextlib
import operator

import numba
import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils, config
from numba.core.caching import FunctionCache
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model


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


class _Cache(FunctionCache):
    """A function's compiled code on disk."""

    def load_overload(self, sig, target_context):
        code = super().load_overload(sig, target_context)
        # processes that compile at once may have given two signatures the same file
        return code if code is None or code.signature.args == sig else None


def compiled(function):
    """Compile a function, once a machine; once a process where nothing can be kept."""
    dispatcher = numba.njit(**_OPTIONS)(function)
    with contextlib.suppress(RuntimeError):  # no folder to write to
        dispatcher._cache = _Cache(function)
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


class _Value:
    """A vector in the code that is being written; operators write more."""

    def __init__(self, builder, vector, value):
        self.builder, self.vector, self.value = builder, vector, value

    def _other(self, number):
        if isinstance(number, _Value):
            return number.value
        return ir.Constant(self.vector.llvm, [number] * self.vector.count)

    def _by(self, instruction, left, right):
        write = getattr(self.builder, instruction)
        result = write(self._other(left), self._other(right), flags=_FAST)
        return _Value(self.builder, self.vector, result)

    def __add__(self, other):
        return self._by("fadd", self, other)

    def __sub__(self, other):
        return self._by("fsub", self, other)

    def __rsub__(self, other):
        return self._by("fsub", other, self)

    def __mul__(self, other):
        return self._by("fmul", self, other)

    def __truediv__(self, other):
        return self._by("fdiv", self, other)

    def within(self, beyond, bound):
        """Return the bound for numbers beyond it (">": above, "<": below).

        What is not a number lies beyond no bound, and stays.
        """
        bound = self._other(bound)
        outside = self.builder.fcmp_ordered(beyond, self.value, bound)
        result = self.builder.select(outside, bound, self.value)
        return _Value(self.builder, self.vector, result)

    def llvm(self, name):
        """Return LLVM's function of that name: "exp" or "log"."""
        kind = ir.FunctionType(self.vector.llvm, [self.vector.llvm])
        full = f"llvm.{name}.v{self.vector.count}f{self.vector.dtype.bitwidth}"
        module = self.builder.module
        function = cgutils.get_or_insert_function(module, kind, full)
        result = self.builder.call(function, [self.value])
        return _Value(self.builder, self.vector, result)


def _teach(operation):
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
        vector, values = sig.return_type, []
        for value, kind in zip(args, sig.args, strict=True):
            if not isinstance(kind, Vector):
                number = context.cast(builder, value, kind, vector.dtype)
                value = _broadcast(builder, number, vector)
            values.append(_Value(builder, vector, value))
        return operation(*values).value

    for kinds in ((Vector, Vector), (Vector, types.Number), (types.Number, Vector)):
        lower_builtin(operation, *kinds)(lower)


for _operation in (operator.add, operator.sub, operator.mul):
    _teach(_operation)


# Functions --------------------------------------------------------------------------


def _function(write):
    """Return a function for kernels of one that writes its code."""

    @intrinsic
    def function(typing, vector):
        def codegen(context, builder, sig, args):
            return write(_Value(builder, vector, args[0])).value

        return vector(vector), codegen

    return function


_SATURATED = 7.90531110763549805
"""From here on tanh is 1 in float32."""


def _is_double(x):
    return x.vector.dtype == types.float64


def _tanh(x):
    if _is_double(x):
        e = (x.within(">", 20.0).within("<", -20.0) * 2.0).llvm("exp")
        return (e - 1.0) / (e + 1.0)
    # the minimax approximation that Eigen and XLA use
    x = x.within(">", _SATURATED).within("<", -_SATURATED)
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


def _sigmoid(x):
    return _tanh(x * 0.5) * 0.5 + 0.5


def _decay(x):
    """exp(x) of what is not positive; of float32 to 1e-7 absolute."""
    if _is_double(x):
        return x.llvm("exp")
    t = _tanh(x * 0.5)
    return (t + 1.0) / (1.0 - t)


def _log_one_plus(x):
    """log(1 + x) of what lies in [0, 1]; of float32 to 1e-7 absolute."""
    if _is_double(x):
        return (x + 1.0).llvm("log")
    z = x / (x + 2.0)  # 2 artanh(x / (2 + x))
    s = z * z
    total = s * (1 / 13) + 1 / 11
    total = total * s + 1 / 9
    total = total * s + 1 / 7
    total = total * s + 1 / 5
    total = total * s + 1 / 3
    total = total * s + 1.0
    return z * total * 2.0


def _elu(x):
    return x.within("<", 0.0) + (_decay(x.within(">", 0.0)) - 1.0)


def _softplus(x):
    return x.within("<", 0.0) + _log_one_plus(_decay(x.within(">", 0.0 - x)))


tanh, sigmoid, elu, softplus = map(_function, (_tanh, _sigmoid, _elu, _softplus))
"""Of a vector; tanh of float32 to 4 units in the last place."""

tanh_slope = _function(lambda y: 1.0 - y * y)
elu_slope = _function(lambda y: y.within(">", 0.0) + 1.0)
softplus_slope = _function(lambda y: 1.0 - _decay(0.0 - y))
"""Slopes of activations, where they take the value y."""


# Memory -----------------------------------------------------------------------------


def _int(value):
    return ir.Constant(ir.IntType(64), value)


class _Data:
    """The numbers of an array, in the code that is being written.

    A row is a vector, and has an index of its own.
    """

    def __init__(self, builder, vector, pointer):
        self.builder, self.vector, self.pointer = builder, vector, pointer
        self.rows = builder.bitcast(pointer, vector.llvm.as_pointer())

    def _place(self, pointer, index, offset):
        index = self.builder.add(index, _int(offset))
        return self.builder.gep(pointer, [index])

    def load(self, row, offset=0):
        value = self.builder.load(self._place(self.rows, row, offset))
        value.align = _BYTES
        return value

    def store(self, value, row, offset=0):
        place = self._place(self.rows, row, offset)
        self.builder.store(value, place).align = _BYTES

    def spread(self, number, offset=0):
        """Return a vector of one number."""
        value = self.builder.load(self._place(self.pointer, number, offset))
        return _broadcast(self.builder, value, self.vector)


def _checked(context, builder, kind, value, row, n):
    """Return an array's data; where it is asked for, rows outside raise IndexError."""
    vector = _VECTORS[kind.dtype]
    array = context.make_array(kind)(context, builder, value)
    if config.BOUNDSCHECK:
        last = builder.sub(builder.add(row, n), _int(1))
        n_rows = builder.sdiv(array.nitems, _int(vector.count))
        for place in (row, last):
            cgutils.do_boundscheck(context, builder, place, n_rows)
    return _Data(builder, vector, array.data)


@intrinsic
def within(typing, memory, row, n_rows):
    """Check that rows lie in memory, under ``NUMBA_BOUNDSCHECK`` only."""

    def codegen(context, builder, sig, args):
        _checked(context, builder, memory, *args)
        return context.get_dummy_value()

    return types.void(memory, types.int64, types.int64), codegen


@intrinsic
def load(typing, memory, row):
    """Return a row."""

    def codegen(context, builder, sig, args):
        return _checked(context, builder, memory, *args, _int(1)).load(args[1])

    return _VECTORS[memory.dtype](memory, types.int64), codegen


@intrinsic
def store(typing, memory, row, value):
    """Set a row."""

    def codegen(context, builder, sig, args):
        data = _checked(context, builder, memory, *args[:2], _int(1))
        data.store(args[2], args[1])
        return context.get_dummy_value()

    return types.void(memory, types.int64, _VECTORS[memory.dtype]), codegen


@intrinsic
def zeros(typing, memory):
    """Return a row of zeros, in the precision of an array."""
    vector = _VECTORS[memory.dtype]
    return vector(memory), lambda *_: ir.Constant(vector.llvm, None)


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
        words = context.make_array(code)(context, builder, args[0])
        kept = context.make_array(registers)(context, builder, args[2])
        values = []
        for i in range(several.count):
            place = builder.add(args[1], _int(1 + i))
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

    def store(self, row):
        for k, total in enumerate(self.totals):
            self.data.store(self.builder.load(total), row, k)


def _write_products(data, height, is_rows, w, x, n_in, start, out):
    """Set ``height + 1`` rows from ``out`` on to W x + start.

    ``w`` is the place of the weights of each input, one input after the other. The
    start is a row each, or a number.
    """
    builder, rows = data.builder, range(height + 1)
    read = data.load if is_rows else data.spread
    sums = _Sums(data, [read(start, r) for r in rows])
    with cgutils.for_range(builder, n_in) as loop:
        value = data.load(builder.add(x, loop.index))
        weights = builder.add(w, builder.mul(loop.index, _int(len(rows))))
        for r in rows:
            sums.add(r, data.spread(weights, r), value)
    sums.store(out)


set_products = _variants("products", 5, _write_products, TALLEST, 2)
"""Variants by height less one, and whether the start is rows."""


def _write_outer(
    data, height, width, left, right, total, n_left, n_right, terms, places, far
):
    """Add outer products to a tile of (height + 1, width + 1) rows of a matrix.

    ``left`` and ``right`` are where the tile's factors begin, ``n_left`` and
    ``n_right`` the rows of a term, ``far`` those from one place to the next.
    """
    builder = data.builder
    lines = [
        builder.add(total, builder.mul(_int(j), n_right)) for j in range(height + 1)
    ]
    columns = range(width + 1)
    sums = [_Sums(data, [data.load(line, k) for k in columns]) for line in lines]
    with cgutils.for_range(builder, places) as place:
        away = builder.mul(place.index, far)
        with cgutils.for_range(builder, terms) as term:
            left_at, right_at = (
                builder.add(builder.add(first, away), builder.mul(term.index, n))
                for first, n in ((left, n_left), (right, n_right))
            )
            values = [data.load(right_at, k) for k in columns]
            for j, line_sums in enumerate(sums):
                factor = data.load(left_at, j)
                for k, value in enumerate(values):
                    line_sums.add(k, factor, value)
    for line, line_sums in zip(lines, sums, strict=True):
        line_sums.store(line)


add_outer_products = _variants("outer", 8, _write_outer, HIGHEST, WIDEST)
"""Variants by height and width less one."""
