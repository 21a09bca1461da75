"""Programs for the kernel: what to compute, and where in working memory.

The encoder and the decoder are written once for each size of a network, by functions
that read like the computation: they take rows from a `Program` and have it do something
with them. What is taken is counted, so that working memory is as large as the program
needs, and sizes are compared, so that nothing is read or written beside its rows.

A row holds one vector of numbers: a feature of several series, which are computed side
by side.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sklode.engine import kernel

Array: TypeAlias = NDArray[np.floating]
Index: TypeAlias = NDArray[np.int64]

REST, STEPS, ENDS = kernel.ROWS, kernel.CHUNK_1, kernel.CHUNK_2
"""Regions of memory: of the whole run, and of a place of each of the two chunks."""


class Operand(NamedTuple):
    """What the kernel reads as a number plus the content of a register."""

    number: int
    register: int = kernel.NOTHING


FIRST, LAST = Operand(0), Operand(0, kernel.N_STEPS)
THIS, NEXT = Operand(0, kernel.STEP), Operand(1, kernel.STEP)
"""Steps of arrays, and of what is kept."""

GRID = kernel.GRID
"""The array of the block that is being worked on; the others follow."""


class Rows(NamedTuple):
    """Rows of working memory: blocks of equally many features."""

    first: int
    n_features: int  # of a block
    n_blocks: int
    region: int

    @property
    def n_rows(self) -> int:
        """Rows of all blocks."""
        return self.n_blocks * self.n_features

    def block(self, k: int) -> Rows:
        """Return one block's rows."""
        if not 0 <= k < self.n_blocks:
            raise ValueError(f"there are {self.n_blocks} blocks; got block {k}.")
        return self._replace(first=self.first + k * self.n_features, n_blocks=1)


class Vector(NamedTuple):
    """Numbers of a weight of one axis, or a constant's."""

    first: int  # row
    n: int


class Weight(NamedTuple):
    """A matrix in the order in which products read it."""

    first: int  # row
    n_out: int
    n_in: int


class _Gradient(NamedTuple):
    """Where a weight's gradient is summed, and its bias's; factors of one term."""

    total: Rows
    total_bias: Rows | None
    left: Rows
    right: Rows


class Program:
    """A list of instructions, and the memory that it needs.

    ``shapes`` are those of the weights that a run is given; a row has ``n_lanes``
    numbers, one for each of the series that are computed side by side.
    """

    def __init__(self, shapes: Sequence[tuple[int, ...]], n_lanes: int) -> None:
        self.n_lanes = n_lanes
        sizes = [math.prod(shape) for shape in shapes]
        ends = np.cumsum([0, *sizes])
        self._weights = [
            np.arange(end - size, end).reshape(shape)
            for end, size, shape in zip(ends[1:], sizes, shapes, strict=True)
        ]
        self._n_weights = int(ends[-1])
        self.constants: list[float] = [0.0]
        self._filled: dict[tuple[float, int], Vector] = {}
        self._code: list[int] = []
        self._taken = [0, 0, 0]
        self._numbers: list[Index] = []
        self._gradients: dict[int, _Gradient] = {}
        self.n_kept = 0

    # Memory ---------------------------------------------------------------------------

    def rows(self, n_features: int, n_blocks: int = 1, region: int = REST) -> Rows:
        """Take rows; those of a chunk are there once for each of its places."""
        rows = Rows(self._taken[region], n_features, n_blocks, region)
        self._taken[region] += rows.n_rows
        return rows

    def _placed(self, index: Index) -> int:
        """Take rows of numbers, which come from the weights and constants of a run."""
        first = sum(map(len, self._numbers)) // self.n_lanes
        padding = np.full(-index.size % self.n_lanes, self._n_weights)
        self._numbers.append(np.concatenate([index.ravel(), padding]))
        return first

    def filled(self, value: float, n: int = 1) -> Vector:
        """Take rows of a constant."""
        if (value, n) not in self._filled:
            if value not in self.constants:
                self.constants.append(value)
            constant = self._n_weights + self.constants.index(value)
            first = self._placed(np.full(n * self.n_lanes, constant))
            self._filled[value, n] = Vector(first, n)
        return self._filled[value, n]

    def vector(self, k: int) -> Vector:
        """Take a weight of one axis, from which products start."""
        index = self._weights[k]
        return Vector(self._placed(index), len(index))

    def weight(self, k: int, transpose: bool = False) -> Weight:
        """Take a matrix, or its transpose."""
        index = self._weights[k].T if transpose else self._weights[k]
        n_out, n_in = index.shape
        tiles = np.array_split(index, -(-n_out // kernel.TALLEST))
        numbers = np.concatenate([tile.T.ravel() for tile in tiles])
        return Weight(self._placed(numbers), n_out, n_in)

    def gradient(self, k: int, left: Rows, right: Rows, bias: bool = True) -> None:
        """Take rows for the gradient of weight k, and of its bias, weight k + 1.

        ``left`` and ``right`` are rows like those of a factor's term.
        """
        total = self.rows(left.n_rows * right.n_rows)
        total_bias = self.rows(left.n_rows) if bias else None
        self._gradients[k] = _Gradient(total, total_bias, left, right)
        self.zero(total)
        if total_bias is not None:
            self.zero(total_bias)

    def read_gradients(self, memory: Array) -> dict[int, Array]:
        """Return the gradients that a run has left in its memory."""
        found = {}
        for k, (total, total_bias, left, right) in self._gradients.items():
            sums = self._sums(total, memory)
            found[k] = sums.reshape(left.n_rows, right.n_rows)
            if total_bias is not None:
                found[k + 1] = self._sums(total_bias, memory)
        return found

    def _sums(self, rows: Rows, memory: Array) -> Array:
        first = rows.first * self.n_lanes
        numbers = memory[first : first + rows.n_rows * self.n_lanes]
        return numbers.reshape(-1, self.n_lanes).sum(1)

    # Instructions ---------------------------------------------------------------------

    def _emit(self, instruction: int, *operands: Rows | Vector | Operand | int) -> None:
        words = [self._word(operand) for operand in operands]
        self._code += [instruction << 8 | 1 + len(words), *words]

    def _word(self, operand: Rows | Vector | Operand | int) -> int:
        if isinstance(operand, Rows):
            operand = Operand(operand.first, operand.region)
        elif isinstance(operand, Vector):
            operand = Operand(operand.first, kernel.NUMBERS)
        elif not isinstance(operand, Operand):
            operand = Operand(int(operand))
        return operand.number << 4 | operand.register

    def product(
        self, w: Weight, x: Rows, out: Rows, start: Rows | Vector | None = None
    ) -> None:
        """Set rows to W x + start: other rows, a vector, or zero."""
        start = self.filled(0.0, out.n_rows) if start is None else start
        is_rows = isinstance(start, Rows)
        n_start = start.n_rows if isinstance(start, Rows) else start.n
        _same(w.n_in, x.n_rows)
        _same(w.n_out, out.n_rows, n_start)
        weights = Operand(w.first, kernel.NUMBERS)
        self._emit(kernel.PRODUCT, weights, x, start, is_rows, out, w.n_out, w.n_in)

    def activate(self, activation: int, source: Rows, out: Rows) -> None:
        """Set rows to an activation of others."""
        _same(source.n_rows, out.n_rows)
        self._emit(kernel.ACTIVATE, activation, source, out, out.n_rows)

    def times_slope(self, activation: int, grads: Rows, values: Rows) -> None:
        """Multiply gradients by the slopes where an activation took its values."""
        _same(grads.n_rows, values.n_rows)
        self._emit(kernel.SLOPE, activation, grads, values, grads.n_rows)

    def combine(
        self,
        out: Rows,
        terms: Sequence[tuple[float, Rows]],
        base: Rows | None = None,
        scale: Rows | None = None,
    ) -> None:
        """Set rows to base + scale * (a weighted sum of one to four others).

        ``base`` is zero by default, ``scale``, a row, one.
        """
        terms = [(weight, rows) for weight, rows in terms if weight]
        _same(out.n_rows, *(rows.n_rows for _, rows in terms))
        if base is not None:
            _same(out.n_rows, base.n_rows)
        if not 0 < len(terms) <= 4:
            raise ValueError(f"one to four terms can be combined; got {len(terms)}.")
        nothing, to_next = self.filled(0.0), int(base is not None)
        spare = [nothing] * (4 - len(terms))
        start = nothing if base is None else base
        length = self.filled(1.0) if scale is None else scale
        sizes = start, to_next, length, len(terms)
        summed = [rows for _, rows in terms] + spare
        weights = [self.filled(weight) for weight, _ in terms] + spare
        self._emit(kernel.COMBINE, out, out.n_rows, *sizes, *summed, *weights)

    def outer(self, k: int, left: Rows, right: Rows, n_terms: int = 1) -> None:
        """Add outer products of the used places of a chunk to a gradient.

        Rows hold so many terms.
        """
        total, total_bias, *factors = self._gradients[k]
        _same(left.region, right.region)
        for rows, factor in zip((left, right), factors, strict=True):
            _same(rows.n_rows, n_terms * factor.n_rows)
        places = [
            rows._replace(region=kernel.BEGIN + rows.region) for rows in (left, right)
        ]
        bias = -1 if total_bias is None else total_bias
        sizes = *(factor.n_rows for factor in factors), n_terms
        used = [Operand(0, kernel.USED + left.region)]
        used += [Operand(0, kernel.SIZE + left.region)]
        self._emit(kernel.OUTER, *places, total, bias, *sizes, *used)

    def copy(self, source: Rows, out: Rows) -> None:
        """Copy rows."""
        _same(source.n_rows, out.n_rows)
        self._emit(kernel.COPY, source, out, out.n_rows)

    def zero(self, out: Rows) -> None:
        """Set rows to zero."""
        self._emit(kernel.ZERO, out, out.n_rows)

    def keep(self, rows: Rows, step: Operand) -> None:
        """Keep a step's rows for the backward pass."""
        self.n_kept = rows.n_rows
        self._emit(kernel.KEEP, rows, rows.n_rows, step)

    def recall(self, rows: Rows, step: Operand) -> None:
        """Read all rows that were kept of a step."""
        self._emit(kernel.RECALL, rows, rows.n_rows, step)

    def gather(self, array: int, rows: Rows, step: Operand, feature: int = 0) -> None:
        """Read features of an array's step."""
        self._emit(kernel.GATHER, array, rows, step, feature, rows.n_rows)

    def scatter(self, rows: Rows, array: int, step: Operand, feature: int = 0) -> None:
        """Write features of an array's step."""
        self._emit(kernel.SCATTER, array, rows, step, feature, rows.n_rows)

    def lstm(self, gates: Rows, h: Rows, c: Rows, seen: Rows) -> None:
        """Update h and C of an LSTM cell, whose gates are open, where a stamp is seen.

        ``gates`` are the blocks i, f, g and o.
        """
        _same(gates.n_rows, 4 * h.n_rows, 4 * c.n_rows)
        self._emit(kernel.LSTM, gates, h, c, seen, h.n_rows)

    def lstm_backward(
        self, gates: Rows, c: Rows, by_h: Rows, by_c: Rows, grads: Rows, seen: Rows
    ) -> None:
        """Set the gradients by what enters the gates; leave what passes them by.

        ``c`` is C before the update.
        """
        n = c.n_rows
        _same(n, by_h.n_rows, by_c.n_rows)
        _same(4 * n, gates.n_rows, grads.n_rows)
        self._emit(kernel.LSTM_BACKWARD, gates, c, by_h, by_c, grads, seen, n)

    def answer(self, dt: int, theta: int, z: int, at_end: int, backward: bool) -> None:
        """Answer queries from the grid, or set the gradients by it.

        The grid holds z, then dz/dt of the step that starts there, and from feature
        ``at_end`` on of that which ends there.
        """
        self._emit(kernel.ANSWER, dt, theta, z, at_end, backward)

    # Order ----------------------------------------------------------------------------

    @contextlib.contextmanager
    def _skipping(self, instruction: int, *operands: int) -> Iterator[None]:
        """Have an instruction leave out what follows in the block."""
        self._emit(instruction, *operands, 0)
        begin = len(self._code)
        yield
        self._code[begin - 1] = self._word(len(self._code) - begin)

    @contextlib.contextmanager
    def _loop(self, instruction: int, again: int) -> Iterator[None]:
        begin = len(self._code)
        with self._skipping(instruction):
            yield
            self._emit(again, len(self._code) + 2 - begin)

    def each_block(self) -> contextlib.AbstractContextManager[None]:
        """Do what follows for each block of series."""
        return self._loop(kernel.EACH_BLOCK, kernel.NEXT_BLOCK)

    def each_step(self) -> contextlib.AbstractContextManager[None]:
        """Do what follows for each step, in the order of the run."""
        return self._loop(kernel.EACH_STEP, kernel.NEXT_STEP)

    def where(self, flag: int) -> contextlib.AbstractContextManager[None]:
        """Do what follows where a block's step has a flag."""
        return self._skipping(kernel.WHERE, flag)

    @contextlib.contextmanager
    def when_full(self, chunk: int) -> Iterator[None]:
        """Go to the next place of a chunk; after the last, do what follows first."""
        with self._skipping(kernel.FULL, chunk):
            yield
            self._emit(kernel.EMPTY, chunk)

    def finish(self) -> Program:
        """End the program, and lay its memory out."""
        self._emit(kernel.STOP)
        rest, *places = self._taken
        begins = np.cumsum([0, rest, *(kernel.CHUNK * size for size in places)])
        first_places = begins[STEPS : ENDS + 1]
        self.registers = np.array([*begins, *first_places, 0, 0, *places], np.int64)
        self.code = np.array(self._code, np.int64)
        self.first_number = int(begins[-1]) * self.n_lanes
        self.numbers = np.concatenate([*self._numbers, np.zeros(0)]).astype(np.int64)
        self.n_numbers = self.first_number + len(self.numbers)
        return self


def _same(*sizes: int) -> None:
    if len(set(sizes)) > 1:
        raise ValueError(f"rows must have equal sizes; got {sizes}.")
