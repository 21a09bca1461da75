"""A channel with the states of series after their rows: what these answer.

Durbin and Koopman (2012): filtering and smoothing, chapter 4; draws of the signal given
all rows by the simulation smoother, section 4.9.

Tested in tests/structural/test_exactness.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from sklode.data.arrays import Array, Numbers
from sklode.structural.candidates import Candidate, kalman, kalman_back
from sklode.structural.components.space import StateSpace
from sklode.structural.coupling.contemporaneous import Told
from sklode.structural.coupling.next_rows import MEMORIES
from sklode.structural.filter.system import States
from sklode.structural.predictive.mixture import Mixture
from sklode.structural.predictive.scale_by_lead import Widening
from sklode.structural.rows import ChannelRows, Rows
from sklode.structural.search.groups import groups_of

# none are asked for, see `filter.backward.smooth_rows`
NO_SHOCKS = np.zeros((0, 3, 2))


@dataclass(frozen=True)
class GroupedChannel:
    """One channel: its rows, and groups of series that have candidates of their own."""

    table: ChannelRows
    place: Numbers  # (series,), of each one's group
    groups: list[FilteredChannel]  # the largest first

    @classmethod
    def of(
        cls, candidates: list[Candidate], table: ChannelRows, span: float
    ) -> GroupedChannel:
        """Filter the rows of a channel."""
        numbers = groups_of(candidates, table)
        place = np.zeros(len(numbers), np.int64)
        groups: list[FilteredChannel] = []
        # a dict keeps the order, in which the largest group is first
        for group in dict.fromkeys(c.group for c in candidates):
            mine = numbers == group
            place[mine] = len(groups)
            own = [c for c in candidates if c.group == group]
            # series of other groups stay, without rows: all count alike
            rows = table if mine.all() else table.where(mine[table.series])
            groups.append(FilteredChannel.of(own, rows, span))
        return cls(table, place, groups)

    def split(self, rows: ChannelRows) -> list[tuple[FilteredChannel, Rows]]:
        """Return groups with those rows, of some, that are of their series."""
        place = self.place[rows.series]
        some = np.unique(place).tolist()
        if len(some) < 2:  # the only one; the first where there are no rows
            return [(self.groups[max(some, default=0)], slice(None))]
        return [(self.groups[k], np.flatnonzero(place == k)) for k in some]

    def of_rows(self, rows: ChannelRows) -> FilteredChannel:
        """Return the group that rows are of, whose series are all alike."""
        first = self.place[rows.series[0]] if len(rows.times) else 0
        return self.groups[first]

    def continued(self, new: ChannelRows) -> GroupedChannel:
        """Return the states after more rows, which follow those it has."""
        # of several, series may go from one to another: they are filtered anew
        (group,) = (group.continued(new) for group in self.groups)
        return replace(self, table=group.table, groups=[group])

    @property
    def drift(self) -> Array:
        """Sum of last innovations, in standard deviations, (series,)."""
        return np.sum([group.drift for group in self.groups], axis=0)

    def sums_at(self, times: Array) -> Array:
        """Return sums of innovations at times after each last row."""
        return np.sum([group.sums_at(times) for group in self.groups], axis=0)

    def in_units(self, rows: ChannelRows) -> ChannelRows:
        """Return rows in the units of the states of their series."""
        values = rows.values.copy()
        for group, mine in self.split(rows):
            values[mine] = group.heaviest[0].in_units(rows.where(mine)).values
        return rows._replace(values=values)

    def noises(self, rows: ChannelRows) -> Array:
        """Return variances of the noise at rows, in those units."""
        each = np.array([group.heaviest[0].noise for group in self.groups])
        noises = each[self.place[rows.series]]
        return np.asarray(noises + rows.errors**2)

    def smoothed(self, rows: ChannelRows, asked: ChannelRows) -> tuple[Array, Array]:
        """Return its signal and variance, had it these rows, in those units."""
        signal, variance = np.zeros((2, len(asked.times)))
        for group, mine in self.split(asked):
            found = group.smoothed(rows, asked.where(mine))
            signal[mine], variance[mine] = found
        return signal, variance


@dataclass(frozen=True)
class FilteredChannel:
    """A group's candidates, rows, and the states after them."""

    candidates: list[Candidate]
    table: ChannelRows
    span: float
    spaces: list[StateSpace]
    states: list[States]
    sums: Array  # (series, memory), decayed innovations of the heaviest

    @classmethod
    def of(
        cls, candidates: list[Candidate], table: ChannelRows, span: float
    ) -> FilteredChannel:
        """Filter the rows of a channel."""
        n = len(table.bounds) - 1
        own = [candidate.own(table, span) for candidate in candidates]
        spaces = [candidate.space(span) for candidate in own]
        states = [States.first(space, n) for space in spaces]
        nothing = cls(
            candidates=own,
            table=table.where(slice(0)),
            span=span,
            spaces=spaces,
            states=states,
            sums=np.zeros((n, len(MEMORIES))),
        )
        return nothing.continued(table)

    @property
    def heaviest(self) -> tuple[Candidate, States]:
        """The candidate of most weight, and its states."""
        pairs = zip(self.candidates, self.states, strict=True)
        return max(pairs, key=lambda pair: pair[0].weight)

    @property
    def drift(self) -> Array:
        """Sum of last innovations, in standard deviations, (series,)."""
        # rows' innovations of variance one, each of which counts exp(-1 / memory) as
        # much as the next, have a sum of variance 1 / (1 - exp(-2 / memory))
        left = 1 - math.exp(-2 / MEMORIES[-1])
        drift: Array = self.sums[:, -1] * math.sqrt(left)
        return drift

    def continued(self, new: ChannelRows) -> FilteredChannel:
        """Return the states after more rows, which follow those it has."""
        # the states at the start are those at first rows: no time has passed since
        since = np.where(self.table.lengths > 0, self._since(new), 0.0)
        states, heaviest = [], self.heaviest[0]
        each = zip(self.candidates, self.spaces, self.states, strict=True)
        for candidate, space, before in each:
            rows = candidate.in_units(new)
            found = candidate.filtered(space, rows, states=before, since=since)
            states.append(found.states)
            if candidate is heaviest:
                innovations = found.innovations
        # each innovation counts less by the time from it to the new last row
        ends = np.maximum(self.table.ends, new.ends)
        sums = self.sums_at(ends)
        left = _faded(ends[new.series] - new.times)
        # `add.at` adds up what rows of one series have; += would keep one of them
        np.add.at(sums, new.series, innovations[:, None] * left)
        table = new
        if len(self.table.times):
            table, _ = self.table.merged(new)
        return replace(self, table=table, states=states, sums=sums)

    def sums_at(self, times: Array) -> Array:
        """Return sums of innovations at times after each last row."""
        # of a series without rows, which ends at minus infinity, sums are zero
        ends = np.maximum(self.table.ends, 0)
        return self.sums * _faded(np.maximum(times - ends, 0))

    def answered(self, asked: ChannelRows, told: Told | None = None) -> Mixture:
        """Return the distribution of the signal, given what other channels tell."""
        means, variances, passing = self.signals(asked)
        if told is not None:
            means = told.moved(means)
            # of deviations; variances go with the square
            narrower = told.narrower**2
            variances, passing = variances * narrower, passing * narrower
        each = [c.at(asked.series) for c in self.candidates]
        return Mixture.of(each, means=means, variances=variances, passing=passing)

    def smoothed(self, rows: ChannelRows, asked: ChannelRows) -> tuple[Array, Array]:
        """Return its signal and variance, had it these rows, in states' units."""
        candidate, _ = self.heaviest
        # rows are in states' units already: a candidate that leaves them as they are
        plain = candidate._replace(
            form=candidate.form._replace(linked=False),
            location=0.0,
            scale=1.0,
            units_of_series=None,
        )
        whole = plain.space(self.span).whole
        had = replace(self, table=rows)
        signal, variance = had._smoothed(plain, asked, whole)
        return signal[:, 0], variance[:, 0]

    def signals(self, asked: ChannelRows) -> Array:
        """Return means, variances, and those of what fades, (3, candidate, row).

        They are in states' units.
        """
        found = np.empty((3, len(self.candidates), len(asked.times)))
        # a series of which a row at or before its last one is asked is smoothed whole;
        # the others go on from the states after their rows
        inside = (self._since(asked) <= 0)[asked.series]
        ahead, past = asked.where(~inside), asked.where(inside)
        since = self._since(ahead)
        for k, candidate in enumerate(self.candidates):
            space, states = self.spaces[k], self.states[k]
            parts = space.deviation_and_all
            # an OU process that lasts is no part that fades: none of its states count
            parts[0] *= candidate.fades(self.span)
            if len(ahead.times):
                run = candidate.filtered(
                    space, ahead, parts=parts, states=states, since=since
                )
                found[:, k, ~inside] = _stacked(run.signal, run.variance)
            if len(past.times):
                signal, variance = self._smoothed(candidate, past, parts)
                found[:, k, inside] = _stacked(signal, variance)
        return found

    def _added(self, k: int, rows: ChannelRows, changes: Array) -> Array:
        """Return what changes of inputs add to a candidate's signal, (path, row)."""
        columns = self.candidates[k].form.columns
        means = self.states[k].means
        # coefficients are the last states, in the order of the form's effects
        first = means.shape[1] - len(columns)
        coefficients = means[rows.series, first:]
        added: Array = (changes[..., columns] * coefficients).sum(-1)
        return added

    def blurred(self, mixture: Mixture, asked: ChannelRows) -> Mixture:
        """Return answers over what unknown X may be."""
        if asked.changes is None:
            return mixture
        each = []
        for k, candidate in enumerate(self.candidates):
            scale = candidate.at(asked.series).units.scale
            each.append(scale * self._added(k, asked, asked.changes))
        added = np.stack(each)
        # what X adds varies beside the signal: means and variances add up
        means = mixture.means + added.mean(axis=1)
        spreads = np.hypot(mixture.spreads, added.std(axis=1))
        return replace(mixture, means=means, spreads=spreads)

    @cached_property
    def widening(self) -> Widening:
        """How much wider than expected errors ahead have been."""
        return Widening.of(self.heaviest[0], self.table, self.span)

    def widened(self, asked: ChannelRows) -> Array:
        """Return the factor of each row's standard deviation."""
        return self.widening.at(asked.times - self.table.ends[asked.series])

    def described(self, most: int) -> tuple[Candidate, Array]:
        """Return the parts at its last rows, given these alone."""
        last = self.table.where(slice(-most, None))
        asked = last._replace(values=np.full(len(last.times), np.nan))
        return replace(self, table=last).parts(asked)

    def parts(self, asked: ChannelRows) -> tuple[Candidate, Array]:
        """Return the heaviest candidate and its parts, (row, part)."""
        candidate, _ = self.heaviest
        parts = candidate.space(self.span).parts
        signal, _ = self._smoothed(candidate, asked, parts)
        return candidate.at(asked.series), signal

    def drawn(
        self,
        asked: ChannelRows,
        n: int,
        seed: int,
        noise: bool,
        told: Told | None = None,
        factor: Array | float = 1.0,
        centre: Array | float = 0.0,
    ) -> Array:
        """Return ``n`` joint draws of each series' values, (draw, row).

        They lie ``factor`` times as far from a ``centre`` (row,), in units of y, but
        for what paths of unknown X add.
        """
        factor = np.broadcast_to(factor, len(asked.times))
        centre = np.broadcast_to(centre, len(asked.times))
        rng = np.random.default_rng(seed)
        weights = np.cumsum([candidate.weight for candidate in self.candidates])
        # stratified: candidates are drawn as often as they weigh, in random order
        places = (rng.permutation(n) + 0.5) / n
        chosen = np.minimum(np.searchsorted(weights, places), len(weights) - 1)
        draws = np.empty((n, len(asked.times)))
        for k in np.unique(chosen):
            mine = np.flatnonzero(chosen == k)
            for series in np.flatnonzero(asked.lengths).tolist():
                candidate = self.candidates[k].alone(series)
                own = asked.alone(series)
                place = np.arange(asked.bounds[series], asked.bounds[series + 1])
                paths = self._paths(k, series, own, len(mine), rng)
                if told is not None:
                    paths = told.at(place).moved(paths.T).T
                if noise:
                    spread = candidate.observed_noise**0.5
                    paths = paths + spread * rng.standard_normal(paths.shape)
                # as `Mixture.widened` does with quantiles
                if (factor[place] != 1).any():
                    middle = candidate.scaled(centre[place])[:, None]
                    paths = middle + factor[place, None] * (paths - middle)
                if own.changes is not None:
                    paths = paths + self._added(k, own, own.changes[mine]).T
                draws[np.ix_(mine, place)] = candidate.original(paths).T
        return draws

    def _paths(
        self, k: int, series: int, asked: ChannelRows, n: int, rng: np.random.Generator
    ) -> Array:
        """Return draws of the signal of one series, by one candidate, (row, draw)."""
        candidate = self.candidates[k].alone(series)
        known = self.table.alone(series)
        since = float(asked.starts[0] - max(known.ends[0], 0.0))
        if since <= 0:
            alone = replace(self, candidates=[candidate], table=known)
            return alone._paths_inside(asked, n, rng)
        a = self.states[k].means[series]
        P = self.states[k].covariances[series]
        white = rng.standard_normal((len(a), n))
        states = a[:, None] + _root(P) @ white
        normals = rng.standard_normal((len(asked.times), *states.shape))
        paths: Array = kalman().simulate_rows(
            candidate.system(self.spaces[k], asked),
            since=since,
            states=states,
            jumps=np.zeros(len(asked.times)),
            normals=normals,
        )
        return paths

    def _paths_inside(
        self, asked: ChannelRows, n: int, rng: np.random.Generator
    ) -> Array:
        """Return draws by simulation smoothing, (row, draw).

        Durbin and Koopman (2012), section 4.9.1: rows y+ and a signal s+ are drawn from
        the model; s+ + E(s | y - y+) is then a draw of the signal given y.
        """
        (candidate,) = self.candidates
        rows, is_asked = candidate.in_units(self.table).merged(asked)
        space = candidate.space(self.span, self._leads(rows)[0])
        found = candidate.filtered(space, rows, space.whole)
        system = candidate.system(space, rows)
        states = _root(space.start) @ rng.standard_normal((len(space.start), n))
        normals = rng.standard_normal((len(rows.times), *states.shape))
        paths = kalman().simulate_rows(
            system, since=0.0, states=states, jumps=found.jumps, normals=normals
        )
        known = found.inverse_F > 0
        # F less the signal's variance is that of the noise, of outliers a larger one
        noise = np.zeros(len(known))
        noise[known] = 1 / found.inverse_F[known] - found.variance[known, 0]
        spread = np.sqrt(np.maximum(noise, 0.0))[:, None]
        values = paths + spread * rng.standard_normal(paths.shape)
        # y - y+, of each draw a column: given the weights that outliers have, all is
        # linear, and E(s | y - y+) is smoothed as a series y - y+ would be
        left = np.where(known[:, None], rows.values[:, None] - values, 0.0)
        # the only part is all states: its covariances with them are M
        expected = kalman().filter_columns(
            system,
            inverse_F=found.inverse_F,
            gains=np.ascontiguousarray(found.gains[:, 0]),
            values=left,
        )
        more, _ = kalman_back().smooth_rows(
            system,
            v_F=(left - expected) * found.inverse_F[:, None],
            inverse_F=found.inverse_F,
            gains=found.gains,
            shocks=NO_SHOCKS,
        )
        paths += expected + more[:, 0]
        return paths[is_asked]

    def _smoothed(
        self, candidate: Candidate, asked: ChannelRows, parts: Array
    ) -> tuple[Array, Array]:
        """Return parts and their variances, (row, part), given all rows."""
        # series that are not asked need no filtering: they are left out
        is_needed = (asked.lengths > 0)[self.table.series]
        known = candidate.in_units(self.table.where(is_needed))
        rows, is_asked = known.merged(asked)
        leads = self._leads(rows)
        rows = rows.without_empty()
        spaces = {lead: candidate.space(self.span, lead) for lead in set(leads)}
        # they differ by the covariance at the start alone
        space = spaces[leads[0]]
        states = States.of(np.stack([spaces[lead].start for lead in leads]))
        found = candidate.filtered(space, rows, parts=parts, states=states)
        more, less = kalman_back().smooth_rows(
            candidate.system(space, rows),
            v_F=found.v_F[:, None],
            inverse_F=found.inverse_F,
            gains=found.gains,
            shocks=NO_SHOCKS,
        )
        signal = found.signal + more[..., 0]
        variance = found.variance - less
        return signal[is_asked], variance[is_asked]

    def _leads(self, rows: ChannelRows) -> list[float]:
        """Return how much earlier rows begin than those of their series."""
        first = np.where(self.table.lengths > 0, self.table.starts, 0.0)
        return np.maximum(first - rows.starts, 0.0)[rows.lengths > 0].tolist()

    def _since(self, new: ChannelRows) -> Array:
        """Return the time from each last row, or 0, to the first new one."""
        ends = np.maximum(self.table.ends, 0)
        return np.where(new.lengths > 0, new.starts - ends, 0)


def _stacked(signal: Array, variance: Array) -> Array:
    """Return all's mean and variance, and the variance of the part before."""
    return np.stack([signal[:, 1], variance[:, 1], variance[:, 0]])


def _faded(passed: Array) -> Array:
    """Return what is left after some time, (time, memory)."""
    left: Array = np.exp(-passed[:, None] / np.array(MEMORIES))
    return left


def _root(covariance: Array) -> Array:
    """Return a square root of a covariance, which may be singular."""
    # P = V diag(w) V', so that V diag(w)^(1/2) is one; Cholesky's needs P > 0
    values, vectors = np.linalg.eigh(covariance)
    root: Array = vectors * np.sqrt(np.maximum(values, 0.0))
    return root
