"""A column with the states of series after their rows: what these answer.

Durbin and Koopman (2012): filtering and smoothing, chapter 4; draws of the signal given
all rows by the simulation smoother, section 4.9.

Tested in tests/structural/test_exactness.py.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from sklode.data.arrays import Array, Flags, Numbers
from sklode.data.links import LEAST, Link
from sklode.structural.candidates import (
    LEAST_WEIGHT,
    Candidate,
    MergedRows,
    Model,
    backward,
    forward,
)
from sklode.structural.components.space import StateSpace
from sklode.structural.filter.system import Schedule, States
from sklode.structural.predictive.calibration import Calibration, spread_ahead
from sklode.structural.predictive.dispersion import Clock
from sklode.structural.predictive.limits import LargestMoves, Limits
from sklode.structural.predictive.mixture import Mixture, Paths
from sklode.structural.predictive.scale_by_lead import Ahead, VarianceInflation
from sklode.structural.predictive.seasonal_naive import (
    PERIODS,
    Combination,
    SeasonalNaive,
)
from sklode.structural.predictive.steps import Conditioned, UncertainX
from sklode.structural.rows import ChannelRows, Rows
from sklode.structural.scaling import Scaling
from sklode.structural.search.groups import weights_of

# how long innovations last that are added up, in usual gaps; the first: the last row
MEMORIES = 1e-6, 2.0, 10.0
# none are asked for, see `filter.backward.smooth_rows`
NO_SHOCKS, NO_STATES = np.zeros((0, 0, 2)), np.zeros(0, np.int64)


@dataclass(frozen=True)
class FilteredColumn:
    """A column's candidates, its rows, and the states of series after these."""

    usual: list[Candidate]  # of a usual series
    candidates: list[Candidate]  # of each series
    weights: Array  # (candidate, series), zero of series that one is not for
    table: ChannelRows
    span: float
    periods: dict[str, float]  # of `Design`
    members: Numbers  # (series,), see `Candidate.own`
    spaces: list[StateSpace]
    states: list[States]
    sums: Array  # (series, memory), decayed innovations of each one's heaviest

    @classmethod
    def filter(
        cls,
        candidates: list[Candidate],
        table: ChannelRows,
        span: float,
        members: Numbers | None = None,
        periods: dict[str, float] | None = None,
    ) -> FilteredColumn:
        """Filter the rows of a column.

        ``members`` are those of `Candidate.own`, ``periods`` are those of `Design`.
        """
        weights, n = weights_of(candidates, table), len(table.lengths)
        own = [
            candidate.own(_of_series(table, mine), span, members)
            for candidate, mine in zip(candidates, weights > 0, strict=True)
        ]
        spaces = [candidate.model.space(span) for candidate in own]
        nothing = cls(
            usual=candidates,
            candidates=own,
            weights=weights,
            table=table.where(slice(0)),
            span=span,
            periods=periods or {},
            members=np.full(n, -1) if members is None else members,
            spaces=spaces,
            states=[
                one.first(space, n) for one, space in zip(own, spaces, strict=True)
            ],
            sums=np.zeros((n, len(MEMORIES))),
        )
        return nothing.continued(table)

    @cached_property
    def heaviest(self) -> Numbers:
        """The number of the candidate of most weight, (series,)."""
        return self.weights.argmax(axis=0)

    @property
    def best(self) -> Candidate:
        """The heaviest candidate of most series' kind: the first that has series."""
        return self.candidates[self._best]

    @property
    def _best(self) -> int:
        """The number of `best`."""
        # what the series at hand draw may be rare where the model was found
        weights = self.weights.sum(axis=1)
        kind = self.candidates[int((weights > 0).argmax())].group
        is_own = [one.group == kind for one in self.candidates]
        return int(np.where(is_own, weights, 0.0).argmax())

    def by_heaviest(self, rows: ChannelRows) -> Iterator[tuple[int, Rows]]:
        """Yield candidates with those of some rows whose series' heaviest they are."""
        own = self.heaviest[rows.series]
        some = np.unique(own).tolist()
        for k in some:
            yield k, slice(None) if len(some) == 1 else np.flatnonzero(own == k)

    @property
    def drift(self) -> Array:
        """Sum of last innovations, in standard deviations, (series,)."""
        # rows' innovations of variance one, each of which counts exp(-1 / memory) as
        # much as the next, have a sum of variance 1 / (1 - exp(-2 / memory))
        left = 1 - math.exp(-2 / MEMORIES[-1])
        drift: Array = self.sums[:, -1] * math.sqrt(left)
        return drift

    def continued(self, new: ChannelRows) -> FilteredColumn:
        """Return the states after more rows, which follow those it has."""
        # the states at the start are those at first rows: no time has passed since
        since = np.where(self.table.lengths > 0, self._since(new), 0.0)
        passes, innovations = [], np.zeros((len(self.candidates), len(new.times)))
        losses = np.zeros(self.weights.shape)
        schedules: dict[Hashable, Schedule] = {}
        for k, candidate in enumerate(self.candidates):
            model, space = candidate.model, self.spaces[k]
            mine = self._rows_of(k, new)
            rows = new if mine.all() else new.where(mine)
            key = self._reading(k)
            if key not in schedules:
                schedules[key] = model.schedule(rows, since)
            own = candidate.scaling.rows(rows)
            schedule = schedules[key]._replace(errors=own.errors**2)
            found = model.run(
                space.system(schedule), space, own.values, states=self.states[k]
            )
            passes.append(found)
            innovations[k, mine] = found.innovations
            if candidate.is_drawn:
                losses[k] = found.losses + candidate.scaling.log_jacobians(rows)
        # a lone row is where its series' location is: it tells nothing of the rest
        losses[:, new.lengths < 2] = 0.0
        weights = self.weights
        if losses.any():
            weights = _given(weights, losses)
        chosen = weights.argmax(axis=0)[new.series]
        innovations = innovations[chosen, np.arange(len(chosen))]
        # each innovation counts less by the time from it to the new last row
        ends = np.maximum(self.table.ends, new.ends)
        sums = self.sums_at(ends)
        left = _faded(ends[new.series] - new.times)
        # `add.at` adds up what rows of one series have; += would keep one of them
        np.add.at(sums, new.series, innovations[:, None] * left)
        table = new
        if len(self.table.times):
            table, _ = self.table.merged(new)
        states = [found.states for found in passes]
        return replace(self, weights=weights, table=table, states=states, sums=sums)

    def _rows_of(self, k: int, rows: ChannelRows) -> Flags:
        """Return those of some rows whose series a candidate is for."""
        mine = self.weights[k] > 0
        if mine.all():
            return np.full(len(rows.times), True)
        return np.asarray(mine[rows.series])

    def _reading(self, k: int) -> Hashable:
        """Return what candidates share that read rows alike: there are a few."""
        model = self.candidates[k].model
        return model.form, model.harmonics, (self.weights[k] > 0).tobytes()

    def in_units(self, rows: ChannelRows) -> ChannelRows:
        """Return rows in the units of the states of their series."""
        values = rows.values.copy()
        for k, mine in self.by_heaviest(rows):
            values[mine] = self.candidates[k].scaling.rows(rows.where(mine)).values
        return rows._replace(values=values)

    def noises(self, rows: ChannelRows) -> Array:
        """Return variances of the noise at rows, in those units."""
        each = np.array([candidate.model.noise for candidate in self.candidates])
        noises = each[self.heaviest[rows.series]]
        return np.asarray(noises + rows.errors**2)

    def smoothed(self, rows: ChannelRows, queries: ChannelRows) -> tuple[Array, Array]:
        """Return its signal and variance, had it these rows, in those units."""
        signal, variance = np.zeros((2, len(queries.times)))
        had = replace(self, table=rows)
        for k, mine in self.by_heaviest(queries):
            candidate = self.candidates[k]
            # rows are in states' units already: as a candidate that leaves them so
            plain = candidate._replace(scaling=Scaling())
            whole = plain.model.space(self.span).whole
            merged = had._merged(plain.model, queries.where(mine))
            found = had._smoothed(plain, merged, whole)
            signal[mine], variance[mine] = found[0][:, 0], found[1][:, 0]
        return signal, variance

    def sums_at(self, times: Array) -> Array:
        """Return sums of innovations at times after each last row."""
        # of a series without rows, which ends at minus infinity, sums are zero
        ends = np.maximum(self.table.ends, 0)
        return self.sums * _faded(np.maximum(times - ends, 0))

    def mixture(self, queries: ChannelRows) -> Mixture:
        """Return the distribution of the column by itself, in units of links."""
        means, variances, fading = self.signals(queries)
        location, scale = self._units(queries)
        noises = [[candidate.observed_noise] for candidate in self.candidates]
        # plain scales may overflow when squared; there nothing fades
        is_linked = np.array([[not link.is_identity] for link in self.links])
        squares = np.where(is_linked, scale, 0.0) ** 2
        # no other squares: a float that holds y need not hold them
        with np.errstate(over="ignore"):
            return Mixture(
                weights=self.weights[:, queries.series],
                means=location + scale * means,
                spreads=scale * np.sqrt(np.maximum(variances, 0.0)),
                noises=scale * np.sqrt(noises),
                links=self.links,
                fading=squares * np.maximum(fading, 0.0),
                smearing=np.array([[one.scaling.smearing] for one in self.candidates]),
            )

    @property
    def links(self) -> tuple[Link, ...]:
        """What each candidate is of."""
        return tuple(one.scaling.link for one in self.candidates)

    def _units(self, queries: ChannelRows) -> tuple[Array, Array]:
        """Return candidates' locations and scales at rows, (candidate, row)."""
        units = [one.scaling.at(queries.series).units for one in self.candidates]
        location = [np.broadcast_to(own.location, queries.times.shape) for own in units]
        scale = [np.broadcast_to(own.scale, queries.times.shape) for own in units]
        return np.stack(location), np.stack(scale)

    def signals(self, queries: ChannelRows) -> Array:
        """Return means, variances, and those of what fades, (3, candidate, row).

        They are in states' units, and zero in series that a candidate is not for.
        """
        found = np.zeros((3, len(self.candidates), len(queries.times)))
        # a series of which a row at or before its last one is asked is smoothed whole;
        # the others go on from the states after their rows
        inside = (self._since(queries) <= 0)[queries.series]
        ahead = queries.where(~inside)
        since = self._since(ahead)
        schedules: dict[Hashable, Schedule] = {}
        merged: dict[Hashable, MergedRows] = {}
        for k, candidate in enumerate(self.candidates):
            model, space = candidate.model, self.spaces[k]
            parts = space.deviation_and_all
            # an OU process that lasts is no part that fades: none of its states count
            parts[0] *= model.fades(self.span)
            mine = self._rows_of(k, queries)
            is_ahead, is_past = ~inside & mine, inside & mine
            key = self._reading(k)
            if is_ahead.any():
                if key not in schedules:
                    schedules[key] = model.schedule(queries.where(is_ahead), since)
                rows = schedules[key]
                run = model.run(
                    space.system(rows),
                    space,
                    values=np.full(len(rows.gap), np.nan),
                    parts=parts,
                    states=self.states[k],
                )
                found[:, k, is_ahead] = _stacked(run.signal, run.variance)
            if is_past.any():
                if key not in merged:
                    merged[key] = self._merged(model, queries.where(is_past))
                signal, variance = self._smoothed(candidate, merged[key], parts)
                found[:, k, is_past] = _stacked(signal, variance)
        return found

    def conditioned(
        self,
        queries: ChannelRows,
        shift: Array,
        middle: Array | float = 0.0,
        factor: Array | float = 1.0,
    ) -> Conditioned:
        """Return the step by which others ``shift`` its signals.

        These have ``factor`` of their distance from a ``middle``. All are (row,), shift
        and middle in units of the states. By default nothing is narrowed.
        """
        location, scale = self._units(queries)
        return Conditioned(
            shift=scale * shift, middle=location + scale * middle, factor=factor
        )

    def _added(self, k: int, rows: ChannelRows, changes: Array) -> Array:
        """Return what changes of inputs add to a candidate's signal, (path, row)."""
        columns = self.candidates[k].model.form.columns
        means = self.states[k].means
        # coefficients are the last states, in the order of the form's effects
        first = means.shape[1] - len(columns)
        coefficients = means[rows.series, first:]
        added: Array = (changes[..., columns] * coefficients).sum(-1)
        return added

    def uncertain_X(self, queries: ChannelRows, changes: Array) -> UncertainX:
        """Return the step by which paths of X, ``changes`` of inputs, move it."""
        _, scale = self._units(queries)
        each = range(len(self.candidates))
        added = [scale[k] * self._added(k, queries, changes) for k in each]
        return UncertainX(np.stack(added))

    @cached_property
    def _ahead(self) -> dict[int, list[tuple[int, Ahead]]]:
        """Forecasts of rows from some before them, by heaviest candidate."""
        found = {}
        for k, mine in self.by_heaviest(self.table):
            candidate = self.candidates[k]
            rows = candidate.scaling.rows(self.table.where(mine))
            found[k] = list(spread_ahead(candidate, rows, self.span))
        return found

    @cached_property
    def combinations(self) -> dict[int, dict[str, Combination]]:
        """How seasonal naive forecasts count, one by one, by heaviest candidate."""
        found: dict[int, dict[str, Combination]] = {}
        longest = self.table.spans.max(initial=0.0)
        shown = {name: p for name, p in self.periods.items() if p <= longest}
        if not shown:
            return found
        farthest = max(self.periods.values())
        for k, mine in self.by_heaviest(self.table):
            rows = self.candidates[k].scaling.rows(self.table.where(mine))
            added = self._added(k, rows, rows.inputs[:, 1:])
            ahead, found[k] = self._ahead[k], {}
            for name, period in shown.items():
                naive = SeasonalNaive(rows, added, period, farthest)
                one = Combination.measured(naive, ahead, self.members >= 0)
                found[k][name] = one
                ahead = [(j, one.left(j, own)) for j, own in ahead]
        return found

    @property
    def naive_weights(self) -> dict[str, float]:
        """How much values a period before count for the best one, where most."""
        found = self.combinations.get(self._best, {})
        most = {k: one.weights.mean(axis=0).max() for k, one in found.items()}
        return {name: float(most.get(name, 0.0)) for name in PERIODS}

    def combined(self, queries: ChannelRows, mixture: Mixture) -> Conditioned | None:
        """Return the step by which seasonal naive forecasts move it; None: they do not.

        All candidates move as the heaviest does, in states' units.
        """
        is_ahead = queries.times > self.table.ends[queries.series]
        if not is_ahead.any() or not self.combinations:
            return None
        shift = np.zeros(len(queries.times))
        location, scale = self._units(queries)
        deviations = np.hypot(mixture.spreads, mixture.noises) / scale
        for k, mine in self.by_heaviest(queries):
            if k in self.combinations:  # else of series without rows
                own = queries.where(mine)
                means = ((mixture.means[k] - location[k]) / scale[k])[mine]
                means -= self._added(k, own, own.inputs[:, 1:])
                spread = np.maximum(deviations[k][mine], LEAST)
                for one in self.combinations[k].values():
                    shift[mine] += one.shift(own, means + shift[mine], spread)
        return self.conditioned(queries, shift)

    def _left(self, k: int, series: int, found: Ahead) -> Ahead:
        """Return a candidate's forecasts of a series with the errors that are left."""
        for one in self.combinations.get(k, {}).values():
            found = one.left(series, found)
        return found

    @cached_property
    def inflations(self) -> dict[int, VarianceInflation]:
        """How much wider than expected errors ahead were, by heaviest candidate."""
        return {
            k: VarianceInflation.measured(
                self.candidates[k],
                self.table.where(mine),
                self.span,
                left=partial(self._left, k),
            )
            for k, mine in self.by_heaviest(self.table)
        }

    def calibrations(self, passed: Array, closed: Flags) -> dict[int, Calibration]:
        """Return what errors ahead tell of widths, by heaviest candidate.

        ``passed`` (row, 2) and ``closed`` (row,) are those of `Calibration.measured`.
        """
        clock = Clock.shown(passed)
        return {
            k: Calibration.measured(
                [(j, self._left(k, j, found)) for j, found in self._ahead[k]],
                self.table.where(mine).bounds,
                clock=clock,
                passed=passed[mine],
                closed=closed[mine],
                inflation=self.inflations[k],
            )
            for k, mine in self.by_heaviest(self.table)
        }

    def inflation(self, queries: ChannelRows) -> Array:
        """Return the factor of each row's standard deviation, by the time ahead."""
        factors = np.ones(len(queries.times))
        ahead = queries.times - self.table.ends[queries.series]
        for k, mine in self.by_heaviest(queries):
            if k in self.inflations:  # else of series without rows
                factors[mine] = self.inflations[k].at(ahead[mine])
        return factors

    def limits(
        self,
        queries: ChannelRows,
        moves: LargestMoves,
        step: float,
        shared: Flags | None,
    ) -> Limits:
        """Return what answers stay within, see `Limits.of`."""
        heaviest = [
            (self.candidates[k], self.states[k], mine)
            for k, mine in self.by_heaviest(queries)
        ]
        return Limits.of(
            self.table,
            queries,
            moves,
            heaviest=heaviest,
            step=step,
            shared=shared,
        )

    def described(self, most: int) -> tuple[Candidate, Array]:
        """Return the best candidate's parts at its last rows, given these alone."""
        k, best = self._best, self.best
        own = self.table.where(self._rows_of(k, self.table))
        last = own.where(slice(-most, None))
        queries = last._replace(values=np.full(len(last.times), np.nan))
        parts = best.model.space(self.span).parts
        merged = replace(self, table=last)._merged(best.model, queries)
        signal, _ = self._smoothed(best, merged, parts)
        return best, signal

    def parts(self, queries: ChannelRows) -> Iterator[tuple[Candidate, Rows, Array]]:
        """Yield heaviest candidates, their rows, and parts there, (row, part)."""
        for k, mine in self.by_heaviest(queries):
            candidate = self.candidates[k]
            parts = candidate.model.space(self.span).parts
            merged = self._merged(candidate.model, queries.where(mine))
            signal, _ = self._smoothed(candidate, merged, parts)
            yield candidate, mine, signal

    def drawn(self, queries: ChannelRows, n: int, seed: int, has_noise: bool) -> Paths:
        """Return ``n`` joint draws of each series' values."""
        shape = n, len(queries.times)
        component = np.zeros(shape, np.int64)
        signal, noise = np.zeros((2, *shape))
        rng = np.random.default_rng(seed)
        for rows in self._averaged_alike(queries):
            places = np.arange(len(queries.times))[rows]
            own = queries.where(rows)
            weights = self.weights[:, own.series[0]]
            members = np.flatnonzero(weights)
            ends = np.cumsum(weights[members])
            # stratified: candidates are drawn as often as they weigh, in random order
            levels = (rng.permutation(n) + 0.5) / n
            chosen = np.minimum(np.searchsorted(ends, levels), len(ends) - 1)
            for k in np.unique(chosen):
                mine = np.flatnonzero(chosen == k)
                for series in np.flatnonzero(own.lengths).tolist():
                    candidate = self.candidates[members[k]].alone(series)
                    scaling = candidate.scaling
                    first, end = own.bounds[series], own.bounds[series + 1]
                    place = np.ix_(mine, places[first:end])
                    alone = own.alone(series)
                    paths = self._paths(members[k], series, alone, len(mine), rng)
                    component[place] = members[k]
                    signal[place] = (scaling.location + scaling.scale * paths).T
                    if has_noise:
                        spread = scaling.scale * candidate.observed_noise**0.5
                        noise[place] = spread * rng.standard_normal(paths.shape).T
        return Paths(
            component=component,
            signal=signal,
            noise=noise,
            links=self.links,
            has_noise=has_noise,
        )

    def _averaged_alike(self, queries: ChannelRows) -> Iterator[Rows]:
        """Yield rows of series that have the same candidate in each joint draw."""
        for k, rows in self.by_heaviest(queries):
            if not self.candidates[k].is_drawn:
                # series of one kind average over the same candidates
                yield rows
                continue
            for series in np.unique(queries.series[rows]).tolist():
                yield slice(*queries.bounds[series : series + 2].tolist())

    def _paths(
        self,
        k: int,
        series: int,
        queries: ChannelRows,
        n: int,
        rng: np.random.Generator,
    ) -> Array:
        """Return draws of the signal of one series, by one candidate, (row, draw)."""
        candidate = self.candidates[k].alone(series)
        known = self.table.alone(series)
        since = float(queries.starts[0] - max(known.ends[0], 0.0))
        if since <= 0:
            alone = replace(self, table=known)
            return alone._paths_inside(candidate, queries, n=n, rng=rng)
        a = self.states[k].means[series]
        P = self.states[k].covariances[series]
        white = rng.standard_normal((len(a), n))
        states = a[:, None] + _root(P) @ white
        normals = rng.standard_normal((len(queries.times), *states.shape))
        paths: Array = forward().simulate_rows(
            self.spaces[k].system(candidate.model.schedule(queries, since)),
            states=states,
            jumps=np.zeros(len(queries.times)),
            normals=normals,
            mixed=self.spaces[k].mixed,
        )
        return paths

    def _paths_inside(
        self,
        candidate: Candidate,
        queries: ChannelRows,
        n: int,
        rng: np.random.Generator,
    ) -> Array:
        """Return draws by simulation smoothing, (row, draw).

        Durbin and Koopman (2012), section 4.9.1: rows y+ and a signal s+ are drawn from
        the model; s+ + E(s | y - y+) is then a draw of the signal given y.
        """
        rows, is_asked = candidate.scaling.rows(self.table).merged(queries)
        model = candidate.model
        space = model.space(self.span, self._leads(rows)[0])
        first = candidate.first(space, 1)
        found = model.filtered(space, rows, space.whole, states=first)
        system = space.system(model.schedule(rows))
        white = rng.standard_normal((len(space.start), n))
        states = first.means.T + _root(first.covariances[0]) @ white
        normals = rng.standard_normal((len(rows.times), *states.shape))
        paths = forward().simulate_rows(
            system,
            states=states,
            jumps=found.jumps,
            normals=normals,
            mixed=space.mixed,
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
        expected = forward().filter_columns(
            system,
            inverse_F=found.inverse_F,
            gains=np.ascontiguousarray(found.gains[:, 0]),
            values=left,
        )
        more, _ = backward().smooth_rows(
            system,
            v_F=(left - expected) * found.inverse_F[:, None],
            inverse_F=found.inverse_F,
            gains=found.gains,
            shocks=NO_SHOCKS,
            shocked=NO_STATES,
        )
        paths += expected + more[:, 0]
        return paths[is_asked]

    def _merged(self, model: Model, queries: ChannelRows) -> MergedRows:
        """Return rows that are asked among those known, as a model reads them."""
        # series that are not asked need no filtering: they are left out
        is_needed = (queries.lengths > 0)[self.table.series]
        rows, is_asked = self.table.where(is_needed).merged(queries)
        return MergedRows(
            rows=rows,
            is_asked=is_asked,
            leads=np.array(self._leads(rows)),
            schedule=model.schedule(rows.without_empty()),
        )

    def _smoothed(
        self, candidate: Candidate, merged: MergedRows, parts: Array
    ) -> tuple[Array, Array]:
        """Return parts and their variances, (row, part), given all rows."""
        model, rows = candidate.model, candidate.scaling.rows(merged.rows)
        candidate = candidate.of(np.flatnonzero(rows.lengths))
        # spaces differ by the covariance at the start alone
        space, states = self._space_before(candidate, merged.leads)
        system = space.system(merged.schedule._replace(errors=rows.errors**2))
        found = model.run(system, space, rows.values, parts, states=states)
        more, less = backward().smooth_rows(
            system,
            v_F=found.v_F[:, None],
            inverse_F=found.inverse_F,
            gains=found.gains,
            shocks=NO_SHOCKS,
            shocked=NO_STATES,
        )
        asked = merged.is_asked
        return (found.signal + more[..., 0])[asked], (found.variance - less)[asked]

    def _space_before(
        self, candidate: Candidate, leads: Array
    ) -> tuple[StateSpace, States]:
        """Return a space, and the states of series so long before their first rows."""
        # mostly there is one
        lead, *others = np.unique(leads).tolist() or [0.0]
        space = candidate.model.space(self.span, lead)
        states = candidate.first(space, len(leads))
        for lead in others:
            space = candidate.model.space(self.span, lead)
            mine = leads == lead
            before = candidate.first(space, len(leads))
            states.means[mine] = before.means[mine]
            states.covariances[mine] = before.covariances[mine]
        return space, states

    def _leads(self, rows: ChannelRows) -> list[float]:
        """Return how much earlier rows begin than those of their series."""
        first = np.where(self.table.lengths > 0, self.table.starts, 0.0)
        return np.maximum(first - rows.starts, 0.0)[rows.lengths > 0].tolist()

    def _since(self, new: ChannelRows) -> Array:
        """Return the time from each last row, or 0, to the first new one."""
        ends = np.maximum(self.table.ends, 0)
        return np.where(new.lengths > 0, new.starts - ends, 0)


def _given(weights: Array, losses: Array) -> Array:
    """Return weights, (candidate, series), given what rows lose by each."""
    with np.errstate(divide="ignore"):
        before = np.log(weights)
    logs = before - np.where(np.isfinite(losses), losses, np.inf)
    # rows that no candidate can have, as they are no floats in its units, tell nothing
    logs = np.where(np.isfinite(logs).any(axis=0), logs, before)
    found = np.exp(logs - logs.max(axis=0))
    found /= found.sum(axis=0)
    # what hardly counts need not be asked
    found[found < LEAST_WEIGHT] = 0.0
    return found / found.sum(axis=0)


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


def _of_series(table: ChannelRows, series: Flags) -> ChannelRows:
    """Return the rows of some series; the others stay, without rows."""
    return table if series.all() else table.where(series[table.series])
