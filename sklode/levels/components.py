"""Models of a channel that are averaged over, and the filter's run of one of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklode.levels.forms import BASE, LEAST_NOISE, Form, StateSpace, state_space
from sklode.levels.tables import Table

__all__ = [
    "CUT",
    "FEWEST_HARMONICS",
    "Component",
    "Filtered",
    "States",
    "begun",
    "heaviest",
    "kernel",
    "least_of",
    "run",
]

Array = NDArray[np.floating]

FEWEST_HARMONICS = 6
"""That a season of longer periods has; fitting may find that it needs more."""

CUT = 3.0
"""Innovations beyond so many standard deviations weigh less, see `kernel`."""

_PASSES = 2  # of the filter, that find the scale of each series

_LOWEST = 1e-9
"""Of the usual value: what a model of logarithms takes zero and less for."""


class Component(NamedTuple):
    """One of the models that a forecast averages over."""

    form: Form
    logs: Array  # hyperparameters
    weight: float
    location: Any  # a number, or each series' own, see `own`
    scale: Any
    harmonics: int = FEWEST_HARMONICS
    cut: float = CUT  # infinite where large innovations are true
    apart: float = 0.0  # how far the logarithms of series' own scales are apart
    centred: bool = False  # each series has a location of its own
    offset: float = 0.0  # added to values before a logarithm

    def space(self, span: float, before: float = 0.0) -> StateSpace:
        """Return its state space, of first rows so long before those of the series."""
        return state_space(self.form, self.logs, span, self.harmonics, before)

    @property
    def noise(self) -> float:
        """Variance of the observation noise, in units of the states."""
        return float(np.exp(2 * self.logs[BASE.index("noise")])) + LEAST_NOISE**2

    def reading(self, effects: list[tuple[int, ...]]) -> Component:
        """Return it with effects of X, of each the columns that it reads."""
        return self._replace(form=self.form._replace(effects=tuple(effects)))

    def own(self, table: Table, span: float) -> Component:
        """Return it with the location and scale of each series, (series,).

        Scales are the most probable ones; the fewer rows, the nearer to the usual one.
        """
        if not self.apart:
            return self
        series, counts = table.series, np.diff(table.bounds)
        location, scale = np.full((2, len(counts)), [[self.location], [self.scale]])
        values = self.scaled(table.values)
        for k in np.flatnonzero(counts):
            own = values[table.bounds[k] : table.bounds[k + 1]]
            middle = np.median(own)
            location[k] += self.scale * middle * self.centred
            scale[k] *= np.abs(own - middle).mean() or 1.0
        space = self.space(span)
        for _ in range(_PASSES):
            one = self._replace(location=location, scale=scale).at(series)
            found = run(one, space, table, space.nothing)
            sums = np.bincount(series, found.scaled**2 / found.precision, len(counts))
            scale = scale * np.sqrt((sums + 1) / np.maximum(counts, 1))
        weight = self.apart**2 / (self.apart**2 + 0.5 / np.maximum(counts, 0.1))
        scale = self.scale * (scale / self.scale) ** weight
        return self._replace(location=location, scale=scale)

    def at(self, series: Any) -> Component:
        """Return it with the location and scale that some series have."""
        if not self.apart:
            return self
        return self._replace(location=self.location[series], scale=self.scale[series])

    def scaled(self, values: Array) -> Array:
        """Return values in the units of the states.

        Without a logarithm a value is as far off as the filter does not believe.
        """
        if self.form.logarithm:
            least = np.exp(self.location) * _LOWEST
            values = np.log(np.maximum(values + self.offset, least))
        return (values - self.location) / self.scale

    def original(self, values: Array) -> Array:
        """Return the inverse of `scaled`."""
        values = self.location + self.scale * values
        if self.form.logarithm:
            return np.exp(np.minimum(values, 709.0)) - self.offset
        return values

    def read(self, space: StateSpace, table: Table) -> tuple[Array, ...]:
        """Return what all functions of `kernel` begin with: rows, and how states move.

        That is times, the clock and the columns of X that it reads, rates and waves.
        """
        columns = [1 + column for effect in self.form.effects for column in effect]
        inputs = np.ascontiguousarray(table.inputs[:, [0, *columns]])
        return table.times, inputs, space.rates, space.waves


def heaviest(components: Sequence[Component]) -> Component:
    """Return the component of most weight."""
    return max(components, key=lambda component: component.weight)


def least_of(channels: Sequence[Sequence[Component]]) -> Array:
    """Return what each channel's logarithm takes smaller values for; NaN: none.

    None where there are zeros, of which it needs an offset.
    """
    best = [heaviest(components) for components in channels]
    found = [
        math.exp(c.location) * _LOWEST if c.form.logarithm and not c.offset else np.nan
        for c in best
    ]
    return np.array(found)


class States(NamedTuple):
    """Of one component: of each series its states after its last row."""

    means: Array  # (series, state)
    covariances: Array
    runs: Array  # (series, 2), see `kernel.filter_rows`


class Filtered(NamedTuple):
    """What `kernel.filter_rows` returns."""

    loss: float
    scaled: Array
    precision: Array
    jumps: Array
    signal: Array
    variance: Array
    kept: Array


def kernel() -> Any:
    """Return what runs the filter; an import of sklode need not wait for numba."""
    from sklode.levels import kernel as compiled

    return compiled


def begun(spaces: list[StateSpace]) -> States:
    """Return the states at the first rows of series."""
    covariances = np.stack([space.start for space in spaces])
    n, d = covariances.shape[:2]
    return States(np.zeros((n, d)), covariances, np.zeros((n, 2)))


def run(
    component: Component,
    space: StateSpace,
    table: Table,
    parts: Array,
    states: States | None = None,
    since: Array | None = None,
    after: Array | None = None,
) -> Filtered:
    """Filter rows; the states, ``since`` before the first ones, change in place.

    None: all rows of series are filtered, from their first ones on. For ``parts`` and
    ``after`` see `kernel.filter_rows`.
    """
    n = len(table.bounds) - 1
    states = begun([space] * n) if states is None else states
    since = np.zeros(n) if since is None else since
    after = space.nothing if after is None else after
    given, values = component.read(space, table), component.scaled(table.values)
    found = kernel().filter_rows(
        *given, table.bounds, values, since, *states, component.cut, parts, after
    )
    return Filtered(*found)
