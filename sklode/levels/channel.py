"""The level of one channel: its rows, the states after them, and what they answer."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sklode.levels.components import (
    Component,
    Filtered,
    States,
    begun,
    heaviest,
    kernel,
    run,
)
from sklode.levels.forms import StateSpace
from sklode.levels.mixture import Mixture
from sklode.levels.tables import Queries, Table, joined, merged, table_of

__all__ = ["MEMORIES", "ChannelLevel", "filtered_rows"]

Array = NDArray[np.floating]
Numbers = NDArray[np.int64]


MEMORIES = 1e-6, 2.0, 10.0
"""How long innovations are remembered, in usual gaps; the first: the last row alone."""


@dataclass(frozen=True)
class ChannelLevel:
    """One channel's components, its rows, and the states after them."""

    components: list[Component]
    table: Table
    span: float
    states: list[States]
    sums: Array  # (series, memory), decayed, of the heaviest component's innovations

    @classmethod
    def of(cls, components: list[Component], table: Table, span: float) -> ChannelLevel:
        """Filter the rows of a channel."""
        components = [component.own(table, span) for component in components]
        states, summed = [], heaviest(components)
        for component in components:
            space = component.space(span)
            states.append(begun([space] * (len(table.bounds) - 1)))
            one = component.at(table.series)
            found = run(one, space, table, space.nothing, states[-1])
            if component is summed:
                sums = _summed(found, table)
        return cls(components, table, span, states, sums)

    def continued(self, new: Table) -> ChannelLevel:
        """Return the level after more rows of its series, which follow those it has."""
        states, since, summed = [], self._since(new), heaviest(self.components)
        since[np.diff(self.table.bounds) == 0] = 0.0  # their first rows are these
        for component, after in zip(self.components, self.states, strict=True):
            space = component.space(self.span)
            more = States(*(x.copy() for x in after))
            found = run(component, space, new, space.nothing, more, since)
            states.append(more)
            if component is summed:
                passed, later = np.zeros(len(self.sums)), new.ends > self.table.ends
                passed[later] = new.ends[later] - self.table.ends[later]
                sums = self.sums * _faded(passed) + _summed(found, new)
        table = joined(self.table, new)
        return replace(self, table=table, states=states, sums=sums)

    def sums_at(self, times: Array) -> Array:
        """Return sums of innovations at times after each series' last row."""
        return self.sums * _faded(times - self.table.ends)

    def answered(self, queries: Queries) -> Mixture:
        """Return the distribution of the noise-free signal at queries."""
        n, n_series = len(queries.times), len(self.table.bounds) - 1
        means = np.empty((len(self.components), n))
        variances = np.empty_like(means)
        inside = self._asked_inside(queries)
        later = ~inside[queries.series]
        ahead = table_of(queries, later, n_series)
        since = self._since(ahead)
        for k, component in enumerate(self.components):
            space = component.space(self.span)
            if later.any():
                after = States(*(x.copy() for x in self.states[k]))
                found = run(component.at(0), space, ahead, space.whole, after, since)
                means[k, later] = found.signal[:, 0]
                variances[k, later] = found.variance[:, 0]
            if inside.any():
                smoothed = self._smoothed(component, queries, inside, space.whole)
                signal, variance, place = smoothed
                means[k, place] = signal[:, 0]
                variances[k, place] = variance[:, 0]
        each = [component.at(queries.series) for component in self.components]
        return Mixture.of(each, means, variances)

    def described(self, most: int) -> tuple[Component, Array]:
        """Return the parts at its last rows, given these alone, see `parts`."""
        last = self.table.last(most)
        queries = Queries(last.series, last.times, last.inputs)
        return replace(self, table=last).parts(queries)

    def parts(self, queries: Queries) -> tuple[Component, Array]:
        """Return the heaviest component and its parts, see `StateSpace.parts`.

        Parts are (query, part), in units of the states, given all rows.
        """
        component = heaviest(self.components)
        inside = np.full(len(self.table.bounds) - 1, False)
        inside[queries.series] = True
        space = component.space(self.span)
        signal, _, place = self._smoothed(component, queries, inside, space.parts)
        return component.at(queries.series), signal[np.argsort(place)]

    def drawn(self, queries: Queries, n: int, seed: int, noise: bool) -> Array:
        """Return ``n`` joint draws of each series' values at queries, (draw, query).

        Each comes from one component, as many from each as its weight says.
        """
        rng = np.random.default_rng(seed)
        weights = np.cumsum([component.weight for component in self.components])
        places = (rng.permutation(n) + 0.5) / n
        chosen = np.minimum(np.searchsorted(weights, places), len(weights) - 1)
        inside = self._asked_inside(queries)
        draws = np.empty((n, len(queries.times)))
        for k in np.unique(chosen):
            mine, component = np.flatnonzero(chosen == k), self.components[k]
            for series in np.unique(queries.series):
                own = np.flatnonzero(queries.series == series)
                asked = Queries(
                    queries.series[own], queries.times[own], queries.inputs[own]
                )
                draw = self._paths_inside if inside[series] else self._paths_ahead
                paths = draw(int(k), int(series), asked, len(mine), rng)
                if noise:
                    spread = component.noise**0.5
                    paths = paths + spread * rng.standard_normal(paths.shape)
                draws[np.ix_(mine, own)] = component.at(series).original(paths).T
        return draws

    def _paths_ahead(
        self, k: int, series: int, asked: Queries, n: int, rng: np.random.Generator
    ) -> Array:
        """Return draws of one series after its last row, (query, draw)."""
        component, (means, covariances, _) = self.components[k], self.states[k]
        space = component.space(self.span)
        rows = table_of(asked, np.full(len(asked.times), True), series + 1)
        since = self._since(rows)[series]
        states = means[series][:, None] + _root(covariances[series]) @ (
            rng.standard_normal((len(means[series]), n))
        )
        normals = rng.standard_normal((len(rows.times), *states.shape))
        given, still = component.read(space, rows), np.zeros(len(rows.times))
        paths: Array = kernel().simulate_rows(*given, since, states, still, normals)
        return paths

    def _paths_inside(
        self, k: int, series: int, asked: Queries, n: int, rng: np.random.Generator
    ) -> Array:
        """Return draws of one series at any stamps, (query, draw).

        By simulation smoothing: Durbin and Koopman (2012), section 4.9.
        """
        component = self.components[k].at(series)
        inside = np.arange(len(self.table.bounds) - 1) == series
        rows, query = merged(self.table, asked, inside)
        space = component.space(self.span, self._lead(rows, inside)[0])
        found = run(component, space, rows, space.whole)
        given = component.read(space, rows)
        past = found.scaled, found.precision, found.kept
        more, _ = kernel().smooth_rows(*given, rows.bounds, *past)
        states = _root(space.start) @ rng.standard_normal((len(space.start), n))
        normals = rng.standard_normal((len(rows.times), *states.shape))
        paths = kernel().simulate_rows(*given, 0.0, states, found.jumps, normals)
        known = found.precision > 0
        spread = np.zeros(len(known))
        spread[known] = 1 / found.precision[known] - found.variance[known, 0]
        spread = np.sqrt(np.maximum(spread, 0.0))[:, None]
        values = paths + spread * rng.standard_normal(paths.shape)
        kept = np.ascontiguousarray(found.kept[:, 0])
        expected = kernel().condition_rows(*given, found.precision, kept, values)
        paths += found.signal + more - expected
        place = np.flatnonzero(query >= 0)
        result: Array = paths[place[np.argsort(query[place])]]
        return result

    def _smoothed(
        self,
        component: Component,
        queries: Queries,
        inside: NDArray[np.bool_],
        parts: Array,
    ) -> tuple[Array, Array, Numbers]:
        """Return parts and their variances, (query, part), given all rows; and where.

        ``parts`` as in `kernel.filter_rows`; of the series ``inside``.
        """
        rows, query = merged(self.table, queries, inside)
        leads = self._lead(rows, inside)
        spaces = {lead: component.space(self.span, lead) for lead in set(leads)}
        space = spaces[leads[0]]
        states = begun([spaces[lead] for lead in leads])
        one = component.at(np.flatnonzero(inside)[rows.series])
        found = run(one, space, rows, parts, states)
        given = component.read(space, rows)
        past = found.scaled, found.precision, found.kept
        more, less = kernel().smooth_rows(*given, rows.bounds, *past)
        asked = query >= 0
        signal, variance = found.signal + more, found.variance - less
        return signal[asked], variance[asked], query[asked]

    def _lead(self, rows: Table, inside: NDArray[np.bool_]) -> list[float]:
        """Return by how much rows begin before those of the series ``inside``."""
        bounds, own = self.table.bounds, np.flatnonzero(inside)
        first = np.zeros(len(own))
        filled = bounds[own + 1] > bounds[own]
        first[filled] = self.table.times[bounds[own[filled]]]
        leads = np.maximum(first - rows.times[rows.bounds[:-1]], 0.0)
        result: list[float] = leads.tolist()
        return result

    def _since(self, new: Table) -> Array:
        """Return the time from each series' last row to its first new one."""
        n = len(new.bounds) - 1
        since = np.zeros(n)
        filled = np.diff(new.bounds) > 0
        first = new.times[new.bounds[:-1][filled]]
        since[filled] = first - self._last()[:n][filled]
        return since

    def _last(self) -> Array:
        """Return the time of each series' last row; 0 without one."""
        ends = self.table.ends
        return np.where(np.isfinite(ends), ends, 0.0)

    def _asked_inside(self, queries: Queries) -> NDArray[np.bool_]:
        """Return which series are asked at, or before, their last row."""
        last = self._last()
        inside = np.zeros(len(last), bool)
        inside[queries.series[queries.times <= last[queries.series]]] = True
        return inside


def filtered_rows(
    component: Component, space: StateSpace, table: Table
) -> tuple[Array, Array]:
    """Return each row's innovation, in standard deviations, and the states after it.

    The states are what is expected of them given the rows up to each, (row, state).
    """
    states = np.empty((len(table.times), len(space.start)))
    found = run(component, space, table, space.nothing, after=states)
    return _innovations(found), states


def _innovations(found: Filtered) -> Array:
    """Return innovations in standard deviations; smaller ones of errors."""
    known = found.precision > 0
    return found.scaled / np.sqrt(np.where(known, found.precision, 1.0))


def _summed(found: Filtered, table: Table) -> Array:
    """Return sums of innovations, (series, memory), as remembered at last rows."""
    series = table.series
    each = _innovations(found)[:, None] * _faded(table.ends[series] - table.times)
    sums = np.zeros((len(table.bounds) - 1, len(MEMORIES)))
    np.add.at(sums, series, each)
    return sums


def _faded(passed: Array) -> Array:
    """Return what is left after some time, (time, memory)."""
    faded: Array = np.exp(-passed[:, None] / np.array(MEMORIES))
    return faded


def _root(covariance: Array) -> Array:
    """Return a square root of a covariance, which may be singular."""
    values, vectors = np.linalg.eigh(covariance)
    root: Array = vectors * np.sqrt(np.maximum(values, 0.0))
    return root
