"""Products of small matrices, for compiled functions.

With small matrices a call of BLAS takes longer to begin than to multiply.
Here the sums of a tile stay in registers: `_tile` writes LLVM's instructions.

Matrices are one-dimensional arrays, row after row.

Tested in tests/engine/test_against_torch.py.
"""

from __future__ import annotations

import contextlib
import functools

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.caching import FunctionCache
from numba.extending import intrinsic

# Sums may be reordered and fused; infinities and NaN stay what they are.
_FAST = ("reassoc", "nsz", "arcp", "contract", "afn")

_OPTIONS = {"fastmath": set(_FAST), "nogil": True, "error_model": "numpy"}

# of what allocates no array: its views need not be counted
_INSIDE = {"_nrt": False, **_OPTIONS}


class _Cache(FunctionCache):
    """A function's compiled code on disk."""

    def load_overload(self, sig, target_context):
        code = super().load_overload(sig, target_context)
        # processes that compile at once may give two signatures one file
        return code if code is None or code.signature.args == sig else None


def compiled(function, **options):
    """Compile a function, once a machine or, without a cache, a process."""
    dispatcher = numba.njit(**_OPTIONS, **options)(function)
    with contextlib.suppress(RuntimeError):  # no folder to write to
        dispatcher._cache = _Cache(function)
    return dispatcher


entry = functools.partial(compiled, _nrt=False)
"""Compile a function as `compiled` does, if it allocates no array."""

_UNCALLED = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
inner = functools.partial(numba.njit, **_UNCALLED, **_INSIDE)
"""Compile a function that only compiled functions call."""

inlined = functools.partial(numba.njit, inline="always", **_INSIDE)
"""Compile a function into its callers, where that compiles faster."""


@intrinsic
def apart(typing):
    """Keep the function that begins with this apart from its callers.

    LLVM would copy its loops to every call, which takes long to compile.
    """

    def codegen(context, builder, sig, args):
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.none(), codegen


# columns side by side, in one or two registers; rows; and times so many columns;
# sums of the largest tile fill twelve registers
_TILES = [(lanes, rows, 1) for lanes in (1, 4) for rows in (1, 4)]
_TILES += [(8, rows, n) for rows in (1, 4) for n in (1, 2, 3)]


def _int(value):
    return ir.Constant(ir.IntType(64), value)


def _write(b, number, lanes, n_rows, x, to_row, to_next, w, out, width, n, *columns):
    """Write how a tile's rows of x W are set.

    Entry i of row r of x is at ``r * to_row + i * to_next``; W and the result are
    ``width`` wide, and each of the tile's ``columns`` is the first of so many lanes.
    """
    vector = ir.VectorType(number, lanes)
    undefined = ir.Constant(vector, ir.Undefined)
    first = ir.Constant(ir.VectorType(ir.IntType(32), lanes), None)

    align = 4 if isinstance(number, ir.FloatType) else 8

    def place(base, index):
        return b.bitcast(b.gep(base, [index]), vector.as_pointer())

    sums = [
        [cgutils.alloca_once_value(b, ir.Constant(vector, None)) for _ in columns]
        for _ in range(n_rows)
    ]
    with cgutils.for_range(b, n) as loop:
        line = b.mul(loop.index, width)
        weights = [b.load(place(w, b.add(line, k)), align=align) for k in columns]
        for r, totals in enumerate(sums):
            at = b.add(b.mul(loop.index, to_next), b.mul(_int(r), to_row))
            factor = b.load(b.gep(x, [at]))
            factor = b.insert_element(undefined, factor, ir.IntType(32)(0))
            factor = b.shuffle_vector(factor, undefined, first)
            for total, weight in zip(totals, weights, strict=True):
                term = b.fmul(factor, weight, flags=_FAST)
                b.store(b.fadd(b.load(total), term, flags=_FAST), total)
    for r, totals in enumerate(sums):
        for total, k in zip(totals, columns, strict=True):
            at = b.add(b.mul(_int(r), width), k)
            b.store(b.load(total), place(out, at), align=align)


@intrinsic
def _tile(typing, which, x, x_at, to_row, to_next, w, out, out_at, width, n, columns):
    """Set a tile of a product, by its number in `_TILES`."""
    number = ir.FloatType() if out.dtype == types.float32 else ir.DoubleType()
    pointer, integer = number.as_pointer(), ir.IntType(64)

    def codegen(context, builder, sig, args):
        def begin(k, at=None):
            data = context.make_array(sig.args[k])(context, builder, args[k]).data
            return data if at is None else builder.gep(data, [at])

        where = [begin(1, args[2]), *args[3:5], begin(5), begin(6, args[7])]
        where += args[8:10]
        firsts = cgutils.unpack_tuple(builder, args[10])
        done = builder.append_basic_block()
        switch = builder.switch(args[0], done)
        for k, (lanes, rows, n_vectors) in enumerate(_TILES):
            given = [pointer, integer, integer, pointer, pointer]
            kind = ir.FunctionType(ir.VoidType(), given + [integer] * (2 + n_vectors))
            made = ir.Function(builder.module, kind, f"tile_{k}_{number}")
            made.linkage = "internal"
            made.attributes.add("noinline")  # there it has all registers
            inside = ir.IRBuilder(made.append_basic_block())
            _write(inside, number, lanes, rows, *made.args)
            inside.ret_void()
            switch.add_case(_int(k), builder.append_basic_block())
            with builder.goto_block(switch.cases[-1][1]):
                builder.call(made, [*where, *firsts[:n_vectors]])
                builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    sizes, three = [types.int64] * 3, types.UniTuple(types.int64, 3)
    return types.void(types.int64, x, *sizes, w, out, *sizes, three), codegen


@inner
def _multiply(x, n_rows, to_row, to_next, w, n_in, n_out, out):
    """Set out to x W, in tiles; some last columns are computed twice."""
    apart()
    lanes = 8 if n_out >= 8 else (4 if n_out >= 4 else 1)
    n_vectors = (n_out + lanes - 1) // lanes
    last, k = n_out - lanes, 0
    while k < n_vectors:
        n = 1
        if lanes == 8:  # four are two and two, not three and one
            left = n_vectors - k
            n = 2 if left == 2 or left == 4 else min(left, 3)
        columns = (
            min(k * lanes, last),
            min((k + 1) * lanes, last),
            min((k + 2) * lanes, last),
        )
        tile = 3 + n if lanes == 8 else (2 if lanes == 4 else 0)
        tall = tile + (3 if lanes == 8 else 1)
        r = 0
        while r < n_rows:
            at = r * to_row, r * n_out
            whole = r + 4 <= n_rows
            which = tall if whole else tile
            _tile(which, x, at[0], to_row, to_next, w, out, at[1], n_out, n_in, columns)
            r += 4 if whole else 1
        k += n


@inner
def product(x, w, n_out, bias, out):
    """Set out to x W, rows of ``n_out``, plus a bias if it is not empty."""
    apart()
    n_in, one = w.size // n_out, np.int64(1)
    _multiply(x, out.size // n_out, n_in, one, w, n_in, n_out, out)
    for i in range(bias.size):
        out[i] += bias[i]


@inner
def add_outer(left, right, n_left, n_right, total, total_bias, scratch):
    """Add left^T right, summed over their rows, and to a bias the rows of left.

    ``scratch`` holds as much as total. The bias may be empty.
    """
    apart()
    n_rows, one = left.size // n_left, np.int64(1)
    _multiply(left, n_left, one, n_left, right, n_rows, n_right, scratch)
    for i in range(total.size):
        total[i] += scratch[i]
    if total_bias.size > 0:
        for r in range(0, left.size, n_left):
            for j in range(n_left):
                total_bias[j] += left[r + j]
