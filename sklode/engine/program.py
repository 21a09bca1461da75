"""Programs for the kernel: what to compute, and where in working memory.

The encoder, the decoder and the emission are written once for each size of a network,
by functions that read like the computation: they take rows from a `Program` and have it
do something with them. What is taken is counted, so that working memory is as large as
the program needs, and sizes are compared, so that nothing is read or written beside its
rows.

A row holds one vector of numbers. In lanes it is a feature of several series; of a
single series it is several neighbouring features, with zeros behind the last.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklode.engine import kernel

__all__ = ["Array", "Layout", "Program", "Rows", "Weight"]

Array = NDArray[np.floating]
Index = NDArray[np.int64]

REST, STEPS, ENDS = kernel.ROWS, kernel.CHUNK_1, kernel.CHUNK_2
"""Regions of memory: of the whole run, and of a place of each of the two chunks."""


class Layout(NamedTuple):
    """What a vector holds.

    Parameters
    ----------
    n_lanes : int
        Numbers of a vector.
    single : bool
        Whether they are of one series.
    """

    n_lanes: int
    single: bool

    @property
    def series_per_block(self) -> int:
        return 1 if self.single else self.n_lanes


class Rows(NamedTuple):
    """Rows of working memory: blocks of equally many features."""

    first: int
    n_features: int  # of a block
    n_blocks: int
    per_block: int  # rows
    region: int

    @property
    def n_rows(self) -> int:
        return self.n_blocks * self.per_block

    def block(self, k: int) -> Rows:
        if not 0 <= k < self.n_blocks:
            raise ValueError(f"there are {self.n_blocks} blocks; got block {k}.")
        first = self.first + k * self.per_block
        return self._replace(first=first, n_blocks=1)


class Weight(NamedTuple):
    """A matrix in the order in which products read it."""

    start: int
    n_out: int  # rows of the result
    n_in: int  # rows of the input in lanes, else its numbers


class _Gradient(NamedTuple):
    """Where a weight's gradient is summed, and its bias's, as blocks of features."""

    total: Rows
    total_bias: Rows | None
    left: Rows
    right: Rows


class Program:
    """A list of instructions, and the memory that it needs.

    Parameters
    ----------
    shapes : sequence of tuple of int
        Of the weights that a run is given.
    layout : Layout
        What its vectors hold.
    """

    def __init__(self, shapes: Sequence[tuple[int, ...]], layout: Layout) -> None:
        self.layout, (self.n_lanes, single) = layout, layout
        self._padding = self.n_lanes if single else 1  # blocks have a multiple of it
        sizes = [math.prod(shape) for shape in shapes]
        ends = np.cumsum([0, *sizes])
        self._weights = [
            np.arange(end - size, end).reshape(shape)
            for end, size, shape in zip(ends[1:], sizes, shapes, strict=True)
        ]
        self._n_weights = int(ends[-1])
        self.constants: list[float] = [0.0]
        self._filled: dict[tuple[float, int], int] = {}
        self._code: list[int] = []
        self._taken = [0, 0, 0]
        self._numbers: list[Index] = []
        self._gradients: dict[int, _Gradient] = {}
        self.n_kept = 0

    # Memory ---------------------------------------------------------------------------

    def rows(self, n_features: int, n_blocks: int = 1, region: int = REST) -> Rows:
        """Take rows; those of a chunk are there once for each of its places."""
        per_block = -(-n_features // self._padding)
        rows = Rows(self._taken[region], n_features, n_blocks, per_block, region)
        self._taken[region] += rows.n_rows
        return rows

    def _placed(self, index: Index) -> int:
        """Take numbers, which come from the weights and constants of a run."""
        start = sum(map(len, self._numbers))
        padding = np.full(-index.size % self.n_lanes, self._n_weights)
        self._numbers.append(np.concatenate([index.ravel(), padding]))
        return start

    def filled(self, value: float, n: int = 1) -> int:
        """Take ``n`` vectors of a constant."""
        if (value, n) not in self._filled:
            if value not in self.constants:
                self.constants.append(value)
            constant = self._n_weights + self.constants.index(value)
            self._filled[value, n] = self._placed(np.full(n * self.n_lanes, constant))
        return self._filled[value, n]

    def vector(self, k: int, n_blocks: int = 1) -> int:
        """Take a weight of one axis, from which products start."""
        return self._placed(self._padded(self._weights[k], n_blocks))

    def weight(self, k: int, n_blocks: int = 1, transpose: bool = False) -> Weight:
        """Take a matrix, whose rows are those of blocks, or its transpose."""
        index = self._padded(self._padded(self._weights[k], n_blocks).T)
        index = index if transpose else index.T
        per_row = index.reshape(-1, self._padding, index.shape[1])
        n_tiles = -(-len(per_row) // kernel.TALLEST)
        tiles = [tile.transpose(2, 0, 1) for tile in np.array_split(per_row, n_tiles)]
        numbers = np.concatenate([tile.ravel() for tile in tiles])
        return Weight(self._placed(numbers), len(per_row), index.shape[1])

    def _padded(self, index: Index, n_blocks: int = 1) -> Index:
        """Put zeros behind each block, up to whole vectors of a single series."""
        blocks = index.reshape(n_blocks, -1, *index.shape[1:])
        behind = [(0, 0), (0, -blocks.shape[1] % self._padding), (0, 0)][: blocks.ndim]
        padded = np.pad(blocks, behind, constant_values=self._n_weights)
        return padded.reshape(-1, *index.shape[1:])

    def gradient(self, k: int, left: Rows, right: Rows, bias: bool = True) -> None:
        """Take rows for the gradient of weight k, and of its bias, weight k + 1.

        ``left`` and ``right`` are rows like those of a factor's term.
        """
        total = self.rows(left.n_rows * self._padding * right.n_rows * self._padding)
        total_bias = self.rows(left.n_features, left.n_blocks) if bias else None
        self._gradients[k] = _Gradient(total, total_bias, left, right)
        for rows in (total, total_bias):
            if rows is not None:
                self.zero(rows)

    def read_gradients(self, memory: Array) -> dict[int, Array]:
        """Return the gradients that a run has left in its memory."""
        found = {}
        for k, (total, total_bias, left, right) in self._gradients.items():
            n_blocks, n_left, n_right = left.n_blocks, left.n_features, right.n_features
            sums = self._sums(total, memory)
            blocks = sums.reshape(n_blocks, left.per_block * self._padding, -1)
            found[k] = blocks[:, :n_left, :n_right].reshape(-1, n_right)
            if total_bias is not None:
                blocks = self._sums(total_bias, memory).reshape(n_blocks, -1)
                found[k + 1] = blocks[:, :n_left].ravel()
        return found

    def _sums(self, rows: Rows, memory: Array) -> Array:
        first = rows.first * self.n_lanes
        numbers = memory[first : first + rows.n_rows * self.n_lanes]
        apart = numbers.reshape(-1, self.n_lanes)
        return numbers.copy() if self.layout.single else apart.sum(1)

    # Instructions ---------------------------------------------------------------------

    def _at(self, rows: Rows) -> int:
        return _operand(rows.first * self.n_lanes, rows.region)

    def _emit(self, instruction: int, *operands: int) -> None:
        self._code += [instruction << 8 | 1 + len(operands), *operands]

    def product(
        self, w: Weight, x: Rows, out: Rows, start: Rows | int | None = None
    ) -> None:
        """Set rows to W x + start: rows, a vector, or zero."""
        _same(w.n_in, x.n_rows * self._padding)
        _same(w.n_out, out.n_rows)
        if start is None:
            start = self.filled(0.0, out.n_rows)
        if isinstance(start, Rows):
            _same(start.n_rows, out.n_rows)
            begin, is_rows = self._at(start), True
        else:
            begin, is_rows = _operand(start, kernel.NUMBERS), self.layout.single
        weights = _operand(w.start, kernel.NUMBERS)
        sizes = (_operand(n) for n in (w.n_out, w.n_in))
        where = (weights, self._at(x), begin, _operand(is_rows), self._at(out))
        self._emit(kernel.PRODUCT, *where, *sizes)

    def activate(self, activation: int, source: Rows, out: Rows) -> None:
        """Set rows to an activation of others."""
        _same(source.n_rows, out.n_rows)
        where = self._at(source), self._at(out)
        n = _operand(out.n_rows)
        self._emit(kernel.ACTIVATE, _operand(activation), *where, n)

    def times_slope(self, activation: int, grads: Rows, values: Rows) -> None:
        """Multiply gradients by the slopes where an activation took its values."""
        _same(grads.n_rows, values.n_rows)
        where = self._at(grads), self._at(values)
        n = _operand(grads.n_rows)
        self._emit(kernel.SLOPE, _operand(activation), *where, n)

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
        if not 0 < len(terms) <= 4:
            raise ValueError(f"one to four terms can be combined; got {len(terms)}.")
        for _, rows in terms:
            _same(rows.n_rows, out.n_rows)
        nothing = _operand(self.filled(0.0), kernel.NUMBERS)
        one = _operand(self.filled(1.0), kernel.NUMBERS)
        numbers = [_operand(self.filled(w), kernel.NUMBERS) for w, _ in terms]
        spare = [nothing] * (4 - len(terms))
        self._emit(
            kernel.COMBINE,
            *(self._at(out), _operand(out.n_rows)),
            nothing if base is None else self._at(base),
            _operand(0 if base is None else self.n_lanes),
            one if scale is None else self._at(scale),
            _operand(len(terms)),
            *[self._at(rows) for _, rows in terms],
            *spare,
            *numbers,
            *spare,
        )

    def outer(self, k: int, left: Rows, right: Rows, n_terms: int = 1) -> None:
        """Add outer products of the used places of a chunk to a gradient.

        Rows hold so many terms.
        """
        total, total_bias, *factors = self._gradients[k]
        for rows, factor in zip((left, right), factors, strict=True):
            _same(rows.n_rows, n_terms * factor.n_rows)
        region = left.region
        _same(region, right.region)
        begin = kernel.BEGIN + region
        self._emit(
            kernel.OUTER,
            *(_operand(rows.first * self.n_lanes, begin) for rows in (left, right)),
            self._at(total),
            _operand(-1) if total_bias is None else self._at(total_bias),
            *(_operand(factor.n_rows) for factor in factors),
            _operand(n_terms),
            _operand(0, kernel.USED + region),
            _operand(0, kernel.SIZE + region),
        )

    def copy(self, source: Rows, out: Rows) -> None:
        """Copy rows."""
        _same(source.n_rows, out.n_rows)
        where = self._at(source), self._at(out)
        self._emit(kernel.COPY, *where, _operand(out.n_rows))

    def zero(self, out: Rows) -> None:
        """Set rows to zero."""
        self._emit(kernel.ZERO, self._at(out), _operand(out.n_rows))

    def keep(self, rows: Rows, step: int) -> None:
        """Keep a step's rows for the backward pass; all of what is kept of a step."""
        self.n_kept = rows.n_rows
        self._emit(kernel.KEEP, self._at(rows), _operand(rows.n_rows), step)

    def recall(self, rows: Rows, step: int, n_kept: int, first: int = 0) -> None:
        """Read rows of those that were kept of a step."""
        _same(True, first + rows.n_rows <= n_kept)
        sizes = _operand(n_kept), _operand(first)
        self._emit(
            kernel.RECALL, self._at(rows), _operand(rows.n_rows), step, *sizes
        )

    def gather(self, array: int, rows: Rows, step: int, feature: int = 0) -> None:
        """Read features of an array's step."""
        where = _operand(array), step, _operand(feature), _operand(rows.n_features)
        self._emit(kernel.GATHER, *where, self._at(rows), _operand(rows.n_rows))

    def spread(self, array: int, row: Rows, step: int) -> None:
        """Read the only feature of an array's step, for all numbers of its series."""
        self._emit(kernel.SPREAD, _operand(array), step, self._at(row))

    def scatter(self, rows: Rows, array: int, step: int, feature: int = 0) -> None:
        """Write features of an array's step."""
        where = _operand(array), step, _operand(feature), _operand(rows.n_features)
        self._emit(kernel.SCATTER, *where, self._at(rows))

    def lstm(self, gates: Rows, h: Rows, c: Rows, seen: Rows) -> None:
        """Update h and C of an LSTM cell, whose gates are open, where a stamp is seen.

        ``gates`` are the blocks i, f, g and o.
        """
        _same(gates.n_rows, 4 * h.n_rows)
        _same(c.n_rows, h.n_rows)
        where = (self._at(rows) for rows in (gates, h, c, seen))
        self._emit(kernel.LSTM, *where, _operand(h.n_rows))

    def lstm_backward(
        self, gates: Rows, c: Rows, by_h: Rows, by_c: Rows, grads: Rows, seen: Rows
    ) -> None:
        """Set the gradients by what enters the gates; leave what passes them by.

        ``c`` is C before the update.
        """
        for rows in (c, by_h, by_c):
            _same(gates.n_rows, 4 * rows.n_rows)
        _same(gates.n_rows, grads.n_rows)
        where = (self._at(rows) for rows in (gates, c, by_h, by_c, grads, seen))
        self._emit(kernel.LSTM_BACKWARD, *where, _operand(c.n_rows))

    def answer(self, arrays: Sequence[int], n: int, at_end: int, backward: bool) -> None:
        """Answer queries from the grid, or set the gradients by it.

        ``arrays`` are dt, theta and z. The grid holds z, then dz/dt of the
        step that starts there, and from feature ``at_end`` on of that which ends there.
        """
        code = kernel.ANSWER_BACKWARD if backward else kernel.ANSWER
        self._emit(code, *map(_operand, (GRID, *arrays, n, at_end)))

    # Order ----------------------------------------------------------------------------

    @contextlib.contextmanager
    def _skipping(self, instruction: int, *operands: int) -> Iterator[None]:
        """Have an instruction leave out what follows in the block."""
        self._emit(instruction, *operands, 0)
        begin = len(self._code)
        yield
        self._code[begin - 1] = _operand(len(self._code) - begin)

    @contextlib.contextmanager
    def _loop(self, instruction: int, again: int) -> Iterator[None]:
        begin = len(self._code)
        with self._skipping(instruction):
            yield
            self._emit(again, _operand(len(self._code) + 2 - begin))

    def each_block(self) -> contextlib.AbstractContextManager[None]:
        """Do what follows for each block of series."""
        return self._loop(kernel.EACH_BLOCK, kernel.NEXT_BLOCK)

    def each_step(self) -> contextlib.AbstractContextManager[None]:
        """Do what follows for each step, in the order of the run."""
        return self._loop(kernel.EACH_STEP, kernel.NEXT_STEP)

    def where(self, flag: int) -> contextlib.AbstractContextManager[None]:
        """Do what follows where a block's step has a flag."""
        return self._skipping(kernel.WHERE, _operand(flag))

    @contextlib.contextmanager
    def when_full(self, region: int) -> Iterator[None]:
        """Go to the next place of a chunk; after the last, do what follows first."""
        with self._skipping(kernel.FULL, _operand(region)):
            yield
            self._emit(kernel.EMPTY, _operand(region))

    def finish(self) -> Program:
        """End the program, and lay its memory out."""
        self._emit(kernel.STOP)
        rest, *places = (n * self.n_lanes for n in self._taken)
        begins = np.cumsum([0, rest, *(kernel.CHUNK * size for size in places)])
        first_places = begins[STEPS : ENDS + 1]
        self.registers = np.array([*begins, *first_places, 0, 0, *places], np.int64)
        self.code = np.array(self._code, np.int64)
        self.first_number = int(begins[-1])
        self.numbers = np.concatenate([*self._numbers, np.zeros(0)]).astype(np.int64)
        self.n_numbers = self.first_number + len(self.numbers)
        return self


def _operand(number: int, register: int = kernel.NOTHING) -> int:
    """Return what the kernel reads as a number plus a register."""
    return int(number) << 4 | register


THIS = _operand(0, kernel.STEP)
NEXT = _operand(1, kernel.STEP)
FIRST = _operand(0)
LAST = _operand(0, kernel.N_STEPS)
"""Steps of an array."""

GRID = kernel.GRID
"""An array of the block that is being worked on; the others follow."""


def _same(n: int, m: int) -> None:
    if n != m:
        raise ValueError(f"rows must have equal sizes; got {n} and {m}.")
