"""One step of a flow, forward and backward, as instructions.

What a step computes on its way is not kept: the backward pass starts each step from the
state before it and computes it again, which is cheaper than the memory. The gradients
by weights are outer products, summed over a chunk of steps at a time.

One step of a Runge-Kutta method with weights a and b, from h over dt, is solved for y:

- in the state's own space y = h, and the field is f(y) = W_o v(y) + b_o;
- in the hidden space y = W_1 h + b_1, and it is f(y) = M v(y) + c with M = W_1 W_o and
  c = W_1 b_o. Runge-Kutta steps commute with linear maps, so this is the same step; it
  takes one product a stage in place of two, of (width, width).

v(y) are the activations of the last hidden layer. docs/engine.md has the recurrences of
both, forward and backward.
"""

from __future__ import annotations

from typing import NamedTuple

from sklode.engine import kernel
from sklode.engine.program import STEPS, Program, Rows
from sklode.engine.tableaus import TABLEAUS

ACTIVATIONS = {"tanh": kernel.TANH, "elu": kernel.ELU, "softplus": kernel.SOFTPLUS}


class FieldSizes(NamedTuple):
    """All that the instructions for a vector field depend on."""

    n_state: int
    width: int
    depth: int  # hidden layers
    method: str
    activation: str

    @property
    def in_hidden_space(self) -> bool:
        """Whether steps are solved there: one product is cheaper than the other two."""
        several_stages = len(TABLEAUS[self.method].b) > 1
        return several_stages and self.width < 1.5 * self.n_state

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of W_1, b_1, W_o, b_o, the inner layers, and in hidden space M, c."""
        inner = [(self.width, self.width), (self.width,)]
        ends = [(self.width, self.n_state), (self.width,)]
        ends += [(self.n_state, self.width), (self.n_state,)]
        return ends + inner * (self.depth - 1 + self.in_hidden_space)


class Points(NamedTuple):
    """Activations of each hidden layer at points, and gradients by what they enter."""

    values: list[Rows]
    grads: list[Rows]

    def at(self, k: int) -> Points:
        """Return one of the points."""
        return Points(*([rows.block(k) for rows in part] for part in self))


class Field:
    """A vector field's layers, of which ``first`` is the first weight of a program."""

    def __init__(
        self, program: Program, sizes: FieldSizes, first: int, backward: bool
    ) -> None:
        self.program, self.sizes = program, sizes
        self.first, self.output = first, first + 2
        self.inner = range(first + 4, first + 2 + 2 * sizes.depth, 2)
        self.hidden = first + 2 + 2 * sizes.depth  # M, in hidden space
        self.activation = ACTIVATIONS[sizes.activation]
        layers = [self.first, self.output, *self.inner]
        if sizes.in_hidden_space:
            layers.append(self.hidden)
        self.weights = {k: program.weight(k) for k in layers}
        self.biases = {k: program.vector(k + 1) for k in layers}
        if not backward:
            return
        self.transposed = {k: program.weight(k, transpose=True) for k in layers}
        state, hidden = program.rows(sizes.n_state), program.rows(sizes.width)
        for k in layers:
            left = state if k == self.output else hidden
            right = state if k == self.first else hidden
            program.gradient(k, left, right)

    def points(self, n: int, region: int) -> Points:
        """Take rows for so many points, in a place of a chunk."""
        width, depth = self.sizes.width, self.sizes.depth
        values, grads = (
            [self.program.rows(width, n, region) for _ in range(depth)]
            for _ in range(2)
        )
        return Points(values, grads)

    def enter(self, state: Rows, out: Rows, bias: Rows | None) -> None:
        """Set rows to what enters the first activation; None: its own bias."""
        start = self.biases[self.first] if bias is None else bias
        self.program.product(self.weights[self.first], state, out, start)

    def evaluate(self, entered: Rows, point: Points) -> None:
        """Set the activations of all hidden layers from what enters the first."""
        program, (before, *others) = self.program, point.values
        program.activate(self.activation, entered, before)
        for k, value in zip(self.inner, others, strict=True):
            program.product(self.weights[k], before, value, self.biases[k])
            program.activate(self.activation, value, value)
            before = value

    def leave(self, value: Rows, out: Rows) -> None:
        """Set rows to W_o v + b_o."""
        k = self.output
        self.program.product(self.weights[k], value, out, self.biases[k])

    def backward(self, point: Points) -> None:
        """Turn the gradient by the last activations into those by all that enters."""
        program, (values, grads) = self.program, point
        program.times_slope(self.activation, grads[-1], values[-1])
        for k, layer in zip(
            self.inner[::-1], range(len(values) - 1, 0, -1), strict=True
        ):
            program.product(self.transposed[k], grads[layer], grads[layer - 1])
            program.times_slope(self.activation, grads[layer - 1], values[layer - 1])

    def sum_inner(self, points: Points, n: int) -> None:
        """Add the outer products of so many points to the inner layers' gradients."""
        for layer, k in enumerate(self.inner):
            self.program.outer(k, points.grads[layer + 1], points.values[layer], n)


class Flow:
    """One step of a field's flow; ``dense``: dz/dt at its start is an answer too.

    The backward pass wants the state before the step in ``start``. ``last`` are the
    last hidden layer's activations there, and ``by_bias`` the gradient by what is added
    to the first layer's bias.
    """

    def __init__(self, field: Field, backward: bool, dense: bool) -> None:
        self.field, self.dense = field, dense
        self.a, self.b = TABLEAUS[field.sizes.method]
        n_state, width = field.sizes.n_state, field.sizes.width
        self.in_hidden_space = field.sizes.in_hidden_space
        solved = width if self.in_hidden_space else n_state
        n, take = len(self.b), field.program.rows
        self.y = take(solved, n, STEPS)
        self.points = field.points(n, STEPS)
        self.slopes = take(solved, n)
        self.mean, self.rise = take(width, 1, STEPS), take(n_state)
        self.start = (
            take(n_state, 1, STEPS) if self.in_hidden_space else self.y.block(0)
        )
        self.last = self.points.values[-1].block(0)
        if not backward:
            return
        self.by_slopes = take(solved, n, STEPS)
        self.by_y = take(solved, n)
        self.by_mean = take(width)
        self.by_bias = take(width, 1, STEPS)
        self.by_rise = take(n_state, 1, STEPS)
        self.by_rate = take(n_state, 1, STEPS)
        self.entry = take(width, 1, STEPS)

    def step(self, h: Rows, dt: Rows, out: Rows, bias: Rows | None = None) -> None:
        """Take one step from h; ``bias`` replaces the first layer's."""
        field, program = self.field, self.field.program
        y0 = self.y.block(0)
        if self.in_hidden_space:
            field.enter(h, y0, bias)
        elif h != y0:
            program.copy(h, y0)
        values, slopes = self.points.values[-1], self.slopes
        for i in range(len(self.b)):
            y, point, slope = self.y.block(i), self.points.at(i), slopes.block(i)
            if i > 0:
                before = [(a, slopes.block(j)) for j, a in enumerate(self.a[i])]
                program.combine(y, before, y0, dt)
            if self.in_hidden_space:
                field.evaluate(y, point)
                k = field.hidden
                if i + 1 < len(self.b):
                    program.product(
                        field.weights[k], point.values[-1], slope, field.biases[k]
                    )
            else:
                field.enter(y, point.values[0], bias)
                field.evaluate(point.values[0], point)
                field.leave(point.values[-1], slope)
        if self.in_hidden_space:
            mean = [(b, values.block(i)) for i, b in enumerate(self.b)]
            program.combine(self.mean, mean)
            field.leave(self.mean, self.rise)
            program.combine(out, [(1.0, self.rise)], h, dt)
        else:
            rise = [(b, slopes.block(i)) for i, b in enumerate(self.b)]
            program.combine(out, rise, h, dt)

    def backward(self, g: Rows, dt: Rows, by_rate: Rows | None = None) -> None:
        """Turn g, the gradient by the step's end, into that by its start.

        ``by_rate`` is the gradient by dz/dt at the start, where that is an answer too.
        """
        field, program = self.field, self.field.program
        output, first = field.transposed[field.output], field.transposed[field.first]
        if self.in_hidden_space:
            program.combine(self.by_rise, [(1.0, g)], scale=dt)
            program.product(output, self.by_rise, self.by_mean)
        by_y = self.points.grads[0] if self.in_hidden_space else self.by_y
        n = len(self.b)
        for i in reversed(range(n)):
            point, by_slope = self.points.at(i), self.by_slopes.block(i)
            by_last = point.grads[-1]
            later = [(self.a[j][i], by_y.block(j)) for j in range(i + 1, n)]
            if self.in_hidden_space:
                if self.b[i]:
                    program.combine(by_last, [(self.b[i], self.by_mean)])
                else:
                    program.zero(by_last)
                if later:
                    program.combine(by_slope, later, scale=dt)
                    hidden = field.transposed[field.hidden]
                    program.product(hidden, by_slope, by_last, by_last)
                if i == 0 and by_rate is not None:
                    program.product(output, by_rate, by_last, by_last)
                    program.copy(by_rate, self.by_rate)
                    program.copy(self.last, self.entry)
            else:
                base = by_rate if i == 0 else None
                program.combine(by_slope, [*later, (self.b[i], g)], base, dt)
                program.product(output, by_slope, by_last)
            field.backward(point)
            if not self.in_hidden_space:
                program.product(first, point.grads[0], by_y.block(i))
        grads = [self.points.grads[0].block(i) for i in range(n)]
        program.combine(self.by_bias, [(1.0, rows) for rows in grads])
        if self.in_hidden_space:
            program.product(first, self.by_bias, g, g)
        else:
            program.combine(g, [(1.0, by_y.block(i)) for i in range(n)], g)

    def sum_gradients(self) -> None:
        """Add the outer products of a chunk of steps to the weights' gradients."""
        field, program, points = self.field, self.field.program, self.points
        n = len(self.b)
        field.sum_inner(points, n)
        if self.in_hidden_space:
            inside = self.by_slopes._replace(n_blocks=n - 1)
            values = points.values[-1]._replace(n_blocks=n - 1)
            program.outer(field.hidden, inside, values, n - 1)
            program.outer(field.first, self.by_bias, self.start)
            program.outer(field.output, self.by_rise, self.mean)
            if self.dense:
                program.outer(field.output, self.by_rate, self.entry)
        else:
            program.outer(field.first, points.grads[0], self.y, n)
            program.outer(field.output, self.by_slopes, points.values[-1], n)
