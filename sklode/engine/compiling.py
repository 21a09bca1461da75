"""How functions are compiled: all that is private to numba, in one file.

pyproject.toml allows numba 0.60 to 0.69: these are the versions that have all of

- ``_nrt``, ``no_cpython_wrapper``, ``no_cfunc_wrapper``, options of ``njit``. Without
  them views are counted, and each function has two wrappers that nobody calls;
- ``FunctionCache`` and ``dispatcher._cache``, which ``cache=True`` sets. That fails if
  no folder can be written to, and runs code of another signature, see `_Cache`;
- ``cgutils`` and ``make_array``, of which numba's page on its low-level API promises
  nothing, and llvmlite. LLVM does not find by itself the loop that `set_tile` writes.

Tested in tests/engine/test_cache.py and tests/engine/test_against_torch.py.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils, event
from numba.core.caching import FunctionCache
from numba.extending import intrinsic

# Sums may be reordered and fused; infinities and NaN stay what they are.
_FAST = ("reassoc", "nsz", "arcp", "contract", "afn")

# Blocks of series run in threads, which need not hold Python's lock; a division by zero
# is an infinity, as in torch, and no error.
_OPTIONS = {"fastmath": set(_FAST), "nogil": True, "error_model": "numpy"}

# Of what allocates no array: a view of an argument cannot outlive it, so that views
# need not be counted. An atomic count each would take longer than a small product.
_INSIDE = {"_nrt": False, **_OPTIONS}


class _Cache(FunctionCache):
    """A function's compiled code on disk."""

    def load_overload(self, sig, target_context):
        code = super().load_overload(sig, target_context)
        # processes that compile at once may give two signatures one file
        return code if code is None or code.signature.args == sig else None


class _Notice(event.Listener):
    """Says once what takes so long, where our functions compile for some seconds.

    Numba compiles one at a time, and what it calls within it.
    """

    def __init__(self):
        self.spent, self.depth, self.is_told = 0.0, 0, False

    def on_start(self, event):
        """Begin to count, or go on."""
        module = event.data["dispatcher"].py_func.__module__
        if self.is_told or not (self.depth or module.startswith("sklode.")):
            return
        if not self.depth:
            self.started = time.perf_counter()
            self.timer = threading.Timer(max(_SILENT - self.spent, 0), self.tell)
            self.timer.daemon = True
            self.timer.start()
        self.depth += 1

    def on_end(self, event):
        """Stop to count, where all has ended that has begun."""
        if not self.depth:
            return
        self.depth -= 1
        if not self.depth:
            self.timer.cancel()
            self.spent += time.perf_counter() - self.started

    def tell(self):
        """Say it."""
        self.is_told = True
        sys.stderr.write(
            "sklode compiles for this machine, once after an installation, which takes "
            "some fifteen seconds, or a minute where it is busy\n"
        )
        sys.stderr.flush()


_SILENT = 3.0  # seconds that nothing is said
event.register("numba:compile", _Notice())


def compiled(function, **options):
    """Compile a function, once a machine or, without a cache, a process."""
    dispatcher = numba.njit(**_OPTIONS, **options)(function)
    with contextlib.suppress(RuntimeError):  # no folder to write to
        dispatcher._cache = _Cache(function)
    return dispatcher


entry = functools.partial(compiled, _nrt=False)
"""Compile a function as `compiled` does, if it allocates no array."""

inner = functools.partial(
    numba.njit,
    no_cpython_wrapper=True,
    no_cfunc_wrapper=True,
    **_INSIDE,
)
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


# Shapes of tiles by their numbers: columns side by side in a vector; rows; vectors.
# Eight columns are one register of float32 with AVX, two of float64; the largest tile
# keeps 4 * 3 sums in registers, of the sixteen that there are.
_TILES = [(lanes, rows, 1) for lanes in (1, 4) for rows in (1, 4)]
_TILES += [(8, rows, n_vectors) for rows in (1, 4) for n_vectors in (1, 2, 3)]


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
    # rows begin at any number: what is sure of a vector is the alignment of one
    align = 4 if isinstance(number, ir.FloatType) else 8

    def place(base, index):
        return b.bitcast(b.gep(base, [index]), vector.as_pointer())

    # LLVM turns variables whose address nobody takes into registers
    sums = [
        [cgutils.alloca_once_value(b, ir.Constant(vector, None)) for _ in columns]
        for _ in range(n_rows)
    ]
    # out[r, columns] = sum over i of x[r, i] * W[i, columns]: an outer product each i
    with cgutils.for_range(b, n) as loop:
        line = b.mul(loop.index, width)
        weights = [b.load(place(w, b.add(line, k)), align=align) for k in columns]
        for r, totals in enumerate(sums):
            at = b.add(b.mul(loop.index, to_next), b.mul(_int(r), to_row))
            # the number in every lane: LLVM's idiom is a shuffle that takes lane 0
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
def set_tile(
    typing, which, x, x_at, to_row, to_next, w, out, out_at, width, n, columns
):
    """Set a tile of a product, by its number in `_TILES`."""
    number = ir.FloatType() if out.dtype == types.float32 else ir.DoubleType()
    pointer, integer = number.as_pointer(), ir.IntType(64)

    def function_of(module, tile):
        lanes, n_rows, n_vectors = _TILES[tile]
        sizes = [integer] * (2 + n_vectors)
        given = [pointer, integer, integer, pointer, pointer, *sizes]
        made = ir.Function(
            module,
            ir.FunctionType(ir.VoidType(), given),
            name=f"tile_{tile}_{number}",
        )
        made.linkage = "internal"
        made.attributes.add("noinline")  # there it has all registers
        inside = ir.IRBuilder(made.append_basic_block())
        _write(inside, number, lanes, n_rows, *made.args)
        inside.ret_void()
        return made

    def codegen(context, builder, sig, args):
        def data(k):
            array = context.make_array(sig.args[k])(context, builder, args[k])
            return array.data

        # in the order of the arguments, each array and offset as one pointer
        tile, to_row, to_next, width, n = (args[k] for k in (0, 3, 4, 8, 9))
        x = builder.gep(data(1), [args[2]])
        w, out = data(5), builder.gep(data(6), [args[7]])
        firsts = cgutils.unpack_tuple(builder, args[10])
        # a switch, as which tile it is is known only when the code runs
        done = builder.append_basic_block()
        switch = builder.switch(tile, done)
        for k, (_, _, n_vectors) in enumerate(_TILES):
            made = function_of(builder.module, k)
            block = builder.append_basic_block()
            switch.add_case(_int(k), block)
            with builder.goto_block(block):
                used = firsts[:n_vectors]
                builder.call(made, [x, to_row, to_next, w, out, width, n, *used])
                builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    sizes, three = [types.int64] * 3, types.UniTuple(types.int64, 3)
    return types.void(types.int64, x, *sizes, w, out, *sizes, three), codegen
