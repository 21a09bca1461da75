"""The level of one channel: its rows, the states after them, and what they answer."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sklode.levels.components import Component, States, heaviest, kalman
from sklode.levels.mixture import Mixture
from sklode.levels.table import Table

__all__ = ["MEMORIES", "FilteredChannel"]

Array = NDArray[np.floating]

MEMORIES = 1e-6, 2.0, 10.0
"""How long innovations are remembered, in usual gaps; the first: the last row alone."""


@dataclass(frozen=True)
class FilteredChannel:
    """One channel's components, its rows, and the states after them.

    What is asked of it is a `Table` of the same series.
    """

    components: list[Component]
    table: Table
    span: float
    states: list[States]
    sums: Array  # (series, memory), decayed, of the heaviest component's innovations

    @classmethod
    def of(
        cls, components: list[Component], table: Table, span: float
    ) -> FilteredChannel:
        """Filter the rows of a channel."""
        n = len(table.bounds) - 1
        own = [component.own(table, span) for component in components]
        states = [States.of([component.space(span)] * n) for component in own]
        sums = np.zeros((n, len(MEMORIES)))
        return cls(own, table.where(slice(0)), span, states, sums).continued(table)

    def continued(self, new: Table) -> FilteredChannel:
        """Return the level after more rows of its series, which follow those it has."""
        states = [states.copy() for states in self.states]
        # first rows have the states at the start
        since = np.where(self.table.lengths > 0, self._since(new), 0.0)
        for component, own in zip(self.components, states, strict=True):
            space, rows = component.space(self.span), component.in_units(new)
            found = component.filtered(space, rows, None, own, since)
            if component is heaviest(self.components):
                innovations = found.innovations
        ends = np.maximum(self.table.ends, new.ends)
        sums = self.sums_at(ends)
        left = _faded(ends[new.series] - new.times)
        np.add.at(sums, new.series, innovations[:, None] * left)
        table = self.table.merged(new)[0] if len(self.table.times) else new
        return replace(self, table=table, states=states, sums=sums)

    def sums_at(self, times: Array) -> Array:
        """Return sums of innovations at times after each series' last row."""
        return self.sums * _faded(np.maximum(times - self._last, 0.0))

    def answered(self, asked: Table) -> Mixture:
        """Return the distribution of the noise-free signal."""
        means, variances = np.empty((2, len(self.components), len(asked.times)))
        inside = self._asked_inside(asked)[asked.series]
        ahead, past = asked.where(~inside), asked.where(inside)
        since = self._since(ahead)
        for k, component in enumerate(self.components):
            space, states = component.space(self.span), self.states[k].copy()
            if len(ahead.times):
                found = component.filtered(space, ahead, space.whole, states, since)
                means[k, ~inside] = found.signal[:, 0]
                variances[k, ~inside] = found.variance[:, 0]
            if len(past.times):
                signal, variance = self._smoothed(component, past, space.whole)
                means[k, inside], variances[k, inside] = signal[:, 0], variance[:, 0]
        each = [component.at(asked.series) for component in self.components]
        return Mixture.of(each, means, variances)

    def described(self, most: int) -> tuple[Component, Array]:
        """Return the parts at its last rows, given these alone, see `parts`."""
        last = self.table.where(slice(max(len(self.table.times) - most, 0), None))
        asked = last._replace(values=np.full(len(last.times), np.nan))
        return replace(self, table=last).parts(asked)

    def parts(self, asked: Table) -> tuple[Component, Array]:
        """Return the heaviest component and its parts, see `StateSpace.parts`.

        Parts are (row, part), in units of the states, given all rows.
        """
        component = heaviest(self.components)
        parts = component.space(self.span).parts
        signal, _ = self._smoothed(component, asked, parts)
        return component.at(asked.series), signal

    def drawn(self, asked: Table, n: int, seed: int, noise: bool) -> Array:
        """Return ``n`` joint draws of each series' values, (draw, row).

        Each comes from one component, as many from each as its weight says.
        """
        rng = np.random.default_rng(seed)
        weights = np.cumsum([component.weight for component in self.components])
        places = (rng.permutation(n) + 0.5) / n
        chosen = np.minimum(np.searchsorted(weights, places), len(weights) - 1)
        inside = self._asked_inside(asked)
        draws = np.empty((n, len(asked.times)))
        for k in np.unique(chosen):
            mine = np.flatnonzero(chosen == k)
            for series in np.flatnonzero(asked.lengths).tolist():
                component = self.components[k].at(series)._replace(apart=0.0)
                known, own = self.table.alone(series), asked.alone(series)
                alone = replace(self, components=[component], table=known)
                if inside[series]:
                    paths = alone._paths_inside(own, len(mine), rng)
                else:
                    a, P, _ = (each[series] for each in self.states[k])
                    start = _root(P) @ rng.standard_normal((len(a), len(mine)))
                    paths = alone._paths_ahead(own, a[:, None] + start, rng)
                if noise:
                    spread = component.noise**0.5
                    paths = paths + spread * rng.standard_normal(paths.shape)
                place = np.arange(*asked.bounds[series : series + 2])
                draws[np.ix_(mine, place)] = component.original(paths).T
        return draws

    def _paths_ahead(
        self, asked: Table, states: Array, rng: np.random.Generator
    ) -> Array:
        """Return draws of a lone series after its last row, (row, draw).

        ``states`` (state, draw) are those after the last row.
        """
        (component,), n = self.components, len(asked.times)
        given = component.given(component.space(self.span), asked)
        normals = rng.standard_normal((n, *states.shape))
        since, still = self._since(asked)[0], np.zeros(n)
        paths: Array = kalman().simulate_rows(*given, since, states, still, normals)
        return paths

    def _paths_inside(self, asked: Table, n: int, rng: np.random.Generator) -> Array:
        """Return draws of a lone series at any stamps, (row, draw).

        By simulation smoothing: Durbin and Koopman (2012), section 4.9.
        """
        (component,) = self.components
        rows, is_asked = component.in_units(self.table).merged(asked)
        space = component.space(self.span, self._leads(rows)[0])
        found = component.filtered(space, rows, space.whole)
        given = component.given(space, rows)
        states = _root(space.start) @ rng.standard_normal((len(space.start), n))
        normals = rng.standard_normal((len(rows.times), *states.shape))
        paths = kalman().simulate_rows(*given, 0.0, states, found.jumps, normals)
        known = found.inverse_F > 0
        spread = np.zeros(len(known))
        spread[known] = 1 / found.inverse_F[known] - found.variance[known, 0]
        spread = np.sqrt(np.maximum(spread, 0.0))[:, None]
        values = paths + spread * rng.standard_normal(paths.shape)
        # of what is linear, the difference tells the difference
        gains = np.ascontiguousarray(found.gains[:, 0])
        differ = found.inverse_F, gains, rows.values[:, None] - values
        paths += kalman().filter_columns(*given, *differ, True)
        result: Array = paths[is_asked]
        return result

    def _smoothed(
        self, component: Component, asked: Table, parts: Array
    ) -> tuple[Array, Array]:
        """Return parts and their variances, (row, part), given all rows."""
        known = self.table.where((asked.lengths > 0)[self.table.series])
        rows, is_asked = component.in_units(known).merged(asked)
        leads = self._leads(rows)
        rows = rows.without_empty()
        spaces = {lead: component.space(self.span, lead) for lead in set(leads)}
        space, states = spaces[leads[0]], States.of([spaces[lead] for lead in leads])
        found = component.filtered(space, rows, parts, states)
        past = found.v_F, found.inverse_F, found.gains
        given = component.given(space, rows)
        more, less = kalman().smooth_rows(*given, *past)
        return (found.signal + more)[is_asked], (found.variance - less)[is_asked]

    def _leads(self, rows: Table) -> list[float]:
        """Return by how much rows begin before those of its series; of no empty one."""
        first = np.where(self.table.lengths > 0, self.table.starts, 0.0)
        leads: Array = np.maximum(first - rows.starts, 0.0)[rows.lengths > 0]
        return leads.tolist()

    @property
    def _last(self) -> Array:
        """Time of each series' last row; 0 without one."""
        return np.maximum(self.table.ends, 0.0)

    def _since(self, new: Table) -> Array:
        """Return the time from each series' last row, or 0, to its first new one."""
        return np.where(new.lengths > 0, new.starts - self._last, 0.0)

    def _asked_inside(self, asked: Table) -> NDArray[np.bool_]:
        """Return which series are asked at, or before, their last row."""
        return asked.starts <= self._last


def _faded(passed: Array) -> Array:
    """Return what is left after some time, (time, memory)."""
    faded: Array = np.exp(-passed[:, None] / np.array(MEMORIES))
    return faded


def _root(covariance: Array) -> Array:
    """Return a square root of a covariance, which may be singular."""
    values, vectors = np.linalg.eigh(covariance)
    root: Array = vectors * np.sqrt(np.maximum(values, 0.0))
    return root
