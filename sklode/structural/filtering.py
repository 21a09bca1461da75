"""A structural model with the states of series after their rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from sklode.data.arrays import Array, Flags, Numbers
from sklode.data.observations import Observations
from sklode.structural.candidates import Candidate, States, kalman
from sklode.structural.channel_rows import ChannelRows
from sklode.structural.concurrent import Told
from sklode.structural.cross_channel import MEMORIES
from sklode.structural.effects import places
from sklode.structural.groups import groups_of
from sklode.structural.limits import BOUNDS, Limits
from sklode.structural.mixture import Adjustment, Mixture
from sklode.structural.state_space import StateSpace
from sklode.structural.widening import Widening

if TYPE_CHECKING:
    from sklode.structural.model import StructuralModel


N_PATHS = 40
"""Of columns that are not known yet, which tell how wide answers are."""

NO_SHOCKS = np.zeros((0, 3, 2))  # none are asked for, see `kalman.smooth_rows`


@dataclass(frozen=True)
class FilteredModel:
    """A structural model with the states of series after their rows."""

    model: StructuralModel
    observations: Observations
    channels: list[GroupedChannel]

    def updated(self, observations: Observations) -> FilteredModel:
        """Return the same after more rows, filtering only those if it can."""
        fresh = _rows_after(self.observations, observations)
        # more rows change what is known of a series' scale, and whom it is like
        apart = any(
            one.apart or one.group != each[0].group
            for each in self.model.channels
            for one in each
        )
        # and where a column acts late, between its rows, what was between old ones
        if fresh is None or apart or self.model.is_delayed:
            return self.model.filtered(observations)
        tables = self.model.tables(observations, fresh)
        pairs = zip(self.channels, tables, strict=True)
        channels = [channel.continued(table) for channel, table in pairs]
        return FilteredModel(self.model, observations, channels)

    def answered(
        self,
        channel: int,
        asked: ChannelRows,
        adjustment: Adjustment | None = None,
        limits: Limits | None = None,
        is_widened: bool = False,
    ) -> Mixture:
        """Return the distribution of a channel, as wide as errors were if asked.

        What a move begins at stays within ``limits``, if they are given.
        Rows are of one group's series here and below, see `GroupedChannel.split`.
        """
        own = self.channels[channel].of_rows(asked)
        mixture = own.answered(asked, self._told(channel, asked))
        if is_widened:
            mixture = mixture.widened(self._factor(channel, asked, adjustment))
        mixture = own.blurred(mixture, asked)
        if adjustment is None:
            return mixture
        if limits is not None:
            # a logarithm may have run away, to where no move leads back from
            mixture = mixture.within(*limits.ends(BOUNDS))
        return mixture.adjusted(adjustment)

    def inputs(
        self,
        series: Numbers,
        ticks: Numbers,
        known: Observations,
        place: Numbers,
        n: int = 0,
        seed: int | None = None,
    ) -> tuple[Array, Array | None]:
        """Return `StructuralModel.inputs` at stamps of series.

        X is that of ``known`` rows at ``place``. Columns of y that act late are those
        of the rows that were filtered, or where these end earlier, forecasts. How ``n``
        paths of them change all columns but the first is second, (path, row, column),
        or None; without a ``seed`` each path is a quantile everywhere.
        """
        model, rows, changes = self.model, self.observations, None
        inputs = model.inputs_of(ticks, known, place, rows, series)
        for effect, columns in places(model.effects).items():
            if not effect.delay:
                continue
            channel = effect.column - known.controls.shape[1]
            before = ticks - round(effect.delay * model.unit)
            times, own = model.times(rows, series, before), np.array(columns)
            late = times > self.channels[channel].table.ends[series]
            late = np.flatnonzero(late)[np.lexsort((times[late], series[late]))]
            if not len(late):
                continue
            # what acts late on that column stays as it was
            held = known.at_or_before(known.series[place[late]], before[late])
            read = model.inputs_of(before[late], known, held, rows, series[late])
            given = series[late], times[late], np.nan, read
            asked = ChannelRows.of(*given, len(rows.keys))
            values = self._ahead(channel, asked, n, seed)
            made = effect.at(model.standard(values.ravel(), effect.column))
            made = made.reshape(*values.shape, -1)
            inputs[np.ix_(late, 1 + own)] = made[0]
            if n:
                if changes is None:
                    changes = np.zeros((n, len(ticks), inputs.shape[1] - 1))
                changes[np.ix_(np.arange(n), late, own)] = made[1:] - made[0]
        return inputs, changes

    def _ahead(
        self, channel: int, asked: ChannelRows, n: int, seed: int | None
    ) -> Array:
        """Return forecasts of a channel, and paths or else quantiles, (1 + n, row)."""
        values = np.empty((1 + n, len(asked.times)))
        for _, place in self.channels[channel].split(asked):
            own = asked.where(place)
            found = self.answered(channel, own)
            values[0, place] = found.points()
            if n and seed is not None:
                values[1:, place] = self.drawn(
                    channel, own, n, seed + channel, noise=False, adjustment=None
                )
            elif n:
                values[1:, place] = found.quantiles((np.arange(n) + 0.5) / n).T
        return values

    def limits(
        self, channel: int, asked: ChannelRows, adjustment: Adjustment | None
    ) -> Limits:
        """Return what a channel's answers stay within.

        A network knows other series: where it moves answers, theirs moves count too.
        """
        one, model = self.channels[channel].of_rows(asked), self.model
        known, step = model.moves[channel], model.steps[channel]
        shared = None if adjustment is None else adjustment.weight > 0
        found = Limits.of(one.table, asked, known, one.heaviest, step, shared)
        if np.isfinite(model.bounds[channel]).all():  # which suffice
            return found._replace(reach=np.full_like(found.reach, np.inf))
        return found

    def drawn(
        self,
        channel: int,
        asked: ChannelRows,
        n: int,
        seed: int,
        noise: bool,
        adjustment: Any,
    ) -> Array:
        """Return draws of a channel, see `FilteredChannel.drawn`."""
        mixture = self.answered(channel, asked)
        draws = (
            self.channels[channel]
            .of_rows(asked)
            .drawn(
                asked,
                n,
                seed,
                noise,
                told=self._told(channel, asked),
                factor=self._factor(channel, asked, adjustment),
                centre=mixture.medians(),
            )
        )
        if adjustment is None:
            return draws
        adjustment, middle = mixture.limited(adjustment)
        adjusted: Array = adjustment.of(draws, middle)
        return adjusted

    def _factor(
        self, channel: int, asked: ChannelRows, adjustment: Adjustment | None
    ) -> Array:
        """Return how many times as wide answers are as a channel expects."""
        factor = self.channels[channel].of_rows(asked).widened(asked)
        if adjustment is None:
            return factor
        # a network's are as wide as its own errors were
        return np.where(adjustment.weight > 0, 1.0, factor)

    def _told(self, channel: int, asked: ChannelRows) -> Told | None:
        """Return what other channels add, in gaps and at ends or else later."""
        told = self.model.concurrent.told(self.channels, channel, asked)
        if told is not None or not self.model.cross.weights[:, :, channel].any():
            return told
        ends = np.max([one.table.ends for one in self.channels], axis=0)
        ends = np.maximum(ends, 0.0)
        sums = np.stack([one.sums_at(ends) for one in self.channels], axis=1)
        ahead = asked.times - ends[asked.series]
        shift = self.model.cross.shift(channel, sums[asked.series], ahead)
        return Told(shift, np.zeros_like(shift), np.ones_like(shift))


@dataclass(frozen=True)
class GroupedChannel:
    """One channel: its rows, and groups of series that have components of their own."""

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
        for group in dict.fromkeys(candidate.group for candidate in candidates):
            mine = numbers == group
            place[mine] = len(groups)
            own = [candidate for candidate in candidates if candidate.group == group]
            rows = table if mine.all() else table.where(mine[table.series])
            groups.append(FilteredChannel.of(own, rows, span))
        return cls(table, place, groups)

    def split(self, rows: ChannelRows) -> list[tuple[FilteredChannel, Any]]:
        """Return groups with those rows, of some, that are of their series."""
        place = self.place[rows.series]
        some = np.unique(place).tolist()
        if len(some) < 2:
            return [(self.groups[max(some, default=0)], slice(None))]
        return [(self.groups[k], np.flatnonzero(place == k)) for k in some]

    def of_rows(self, rows: ChannelRows) -> FilteredChannel:
        """Return the group that rows are of, whose series are all alike."""
        return self.groups[self.place[rows.series[0]] if len(rows.times) else 0]

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
        noises = np.array([group.heaviest[0].noise for group in self.groups])
        return np.asarray(noises[self.place[rows.series]] + rows.errors**2)

    def smoothed(self, rows: ChannelRows, asked: ChannelRows) -> tuple[Array, Array]:
        """Return its signal and variance, had it these rows, in those units."""
        signal, variance = np.zeros((2, len(asked.times)))
        for group, mine in self.split(asked):
            found = group.smoothed(rows, asked.where(mine))
            signal[mine], variance[mine] = found
        return signal, variance


@dataclass(frozen=True)
class FilteredChannel:
    """A group's components, rows, and the states after them."""

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
        states = [States.of([space] * n) for space in spaces]
        empty, sums = table.where(slice(0)), np.zeros((n, len(MEMORIES)))
        return cls(own, empty, span, spaces, states, sums).continued(table)

    @property
    def heaviest(self) -> tuple[Candidate, States]:
        """The component of most weight, and its states."""
        pairs = zip(self.candidates, self.states, strict=True)
        return max(pairs, key=lambda pair: pair[0].weight)

    @property
    def drift(self) -> Array:
        """Sum of last innovations, in standard deviations, (series,)."""
        left = 1 - math.exp(-2 / MEMORIES[-1])  # of squares, by row
        drift: Array = self.sums[:, -1] * math.sqrt(left)
        return drift

    def continued(self, new: ChannelRows) -> FilteredChannel:
        """Return the states after more rows, which follow those it has."""
        # first rows have the states at the start
        since = np.where(self.table.lengths > 0, self._since(new), 0.0)
        states, heaviest = [], self.heaviest[0]
        each = zip(self.candidates, self.spaces, self.states, strict=True)
        for candidate, space, before in each:
            rows = candidate.in_units(new)
            found = candidate.filtered(space, rows, None, before, since)
            states.append(found.states)
            if candidate is heaviest:
                innovations = found.innovations
        ends = np.maximum(self.table.ends, new.ends)
        sums = self.sums_at(ends)
        left = _faded(ends[new.series] - new.times)
        np.add.at(sums, new.series, innovations[:, None] * left)
        table = self.table.merged(new)[0] if len(self.table.times) else new
        return replace(self, table=table, states=states, sums=sums)

    def sums_at(self, times: Array) -> Array:
        """Return sums of innovations at times after each last row."""
        return self.sums * _faded(np.maximum(times - np.maximum(self.table.ends, 0), 0))

    def answered(self, asked: ChannelRows, told: Told | None = None) -> Mixture:
        """Return the distribution of the signal, given what other channels tell."""
        means, variances, passing = self.signals(asked)
        if told is not None:
            means, narrower = told.moved(means), told.narrower**2
            variances, passing = variances * narrower, passing * narrower
        each = [candidate.at(asked.series) for candidate in self.candidates]
        return Mixture.of(each, means, variances, passing)

    def smoothed(self, rows: ChannelRows, asked: ChannelRows) -> tuple[Array, Array]:
        """Return its signal and variance, had it these rows, in states' units."""
        candidate, _ = self.heaviest
        form = candidate.form._replace(linked=False)
        plain = candidate._replace(form=form, location=0.0, scale=1.0, apart=0.0)
        whole, given = plain.space(self.span).whole, replace(self, table=rows)
        signal, variance = given._smoothed(plain, asked, whole)
        return signal[:, 0], variance[:, 0]

    def signals(self, asked: ChannelRows) -> Array:
        """Return means, variances, and those of what fades, (3, component, row).

        They are in states' units.
        """
        found = np.empty((3, len(self.candidates), len(asked.times)))
        inside = (self._since(asked) <= 0)[asked.series]
        ahead, past = asked.where(~inside), asked.where(inside)
        since = self._since(ahead)
        for k, candidate in enumerate(self.candidates):
            space, states = self.spaces[k], self.states[k]
            parts = space.parts[[1, -1]]  # the OU process, and all
            parts[0] *= candidate.fades(self.span)
            if len(ahead.times):
                run = candidate.filtered(space, ahead, parts, states, since)
                found[:, k, ~inside] = _stacked(run.signal, run.variance)
            if len(past.times):
                found[:, k, inside] = _stacked(*self._smoothed(candidate, past, parts))
        return found

    def _added(self, k: int, rows: ChannelRows, changes: Array) -> Array:
        """Return what changes of inputs add to a component's signal, (path, row)."""
        effects = self.candidates[k].form.effects
        columns = [column for effect in effects for column in effect]
        means = self.states[k].means
        own = means[rows.series, means.shape[1] - len(columns) :]
        added: Array = (changes[..., columns] * own).sum(-1)
        return added

    def blurred(self, mixture: Mixture, asked: ChannelRows) -> Mixture:
        """Return answers over what unknown X may be."""
        if asked.changes is None:
            return mixture
        added = np.stack(
            [
                one.at(asked.series).scale * self._added(k, asked, asked.changes)
                for k, one in enumerate(self.candidates)
            ]
        )
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
        """Return the heaviest component and its parts, (row, part)."""
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
        factor, centre = (
            np.broadcast_to(x, len(asked.times)) for x in (factor, centre)
        )
        rng = np.random.default_rng(seed)
        weights = np.cumsum([candidate.weight for candidate in self.candidates])
        places = (rng.permutation(n) + 0.5) / n
        chosen = np.minimum(np.searchsorted(weights, places), len(weights) - 1)
        since = self._since(asked)
        draws = np.empty((n, len(asked.times)))
        for k in np.unique(chosen):
            mine = np.flatnonzero(chosen == k)
            space = self.spaces[k]
            for series in np.flatnonzero(asked.lengths).tolist():
                candidate = self.candidates[k].at(series)._replace(apart=0.0)
                known, own = self.table.alone(series), asked.alone(series)
                if since[series] <= 0:
                    alone = replace(self, candidates=[candidate], table=known)
                    paths = alone._paths_inside(own, len(mine), rng)
                else:
                    a, P, _ = (each[series] for each in self.states[k])
                    white = rng.standard_normal((len(a), len(mine)))
                    states = a[:, None] + _root(P) @ white
                    normals = rng.standard_normal((len(own.times), *states.shape))
                    given = *candidate.given(space, own), since[series], states
                    still = np.zeros(len(own.times))
                    paths = kalman().simulate_rows(*given, still, normals)
                place = np.arange(*asked.bounds[series : series + 2])
                if told is not None:
                    paths = told.at(place).moved(paths.T).T
                if noise:
                    spread = candidate.observed_noise**0.5
                    paths = paths + spread * rng.standard_normal(paths.shape)
                if (factor[place] != 1).any():
                    middle = candidate.scaled(centre[place])[:, None]
                    paths = middle + factor[place, None] * (paths - middle)
                if own.changes is not None:
                    paths = paths + self._added(k, own, own.changes[mine]).T
                values = candidate.original(paths)
                draws[np.ix_(mine, place)] = values.T
        return draws

    def _paths_inside(
        self, asked: ChannelRows, n: int, rng: np.random.Generator
    ) -> Array:
        """Return draws by simulation smoothing, (row, draw): section 4.9."""
        (candidate,) = self.candidates
        rows, is_asked = candidate.in_units(self.table).merged(asked)
        space = candidate.space(self.span, self._leads(rows)[0])
        found = candidate.filtered(space, rows, space.whole)
        given = candidate.given(space, rows)
        states = _root(space.start) @ rng.standard_normal((len(space.start), n))
        normals = rng.standard_normal((len(rows.times), *states.shape))
        paths = kalman().simulate_rows(*given, 0.0, states, found.jumps, normals)
        known = found.inverse_F > 0
        spread = np.zeros(len(known))
        spread[known] = 1 / found.inverse_F[known] - found.variance[known, 0]
        spread = np.sqrt(np.maximum(spread, 0.0))[:, None]
        values = paths + spread * rng.standard_normal(paths.shape)
        # of what is linear, the difference tells the difference
        gains, left = np.ascontiguousarray(found.gains[:, 0]), rows.values[:, None]
        left = np.where(known[:, None], left - values, 0.0)
        expected = kalman().filter_columns(*given, found.inverse_F, gains, left)
        v_F = (left - expected) * found.inverse_F[:, None]
        more, _ = kalman().smooth_rows(
            *given, v_F, found.inverse_F, found.gains, NO_SHOCKS
        )
        paths += expected + more[:, 0]
        return paths[is_asked]

    def _smoothed(
        self, candidate: Candidate, asked: ChannelRows, parts: Array
    ) -> tuple[Array, Array]:
        """Return parts and their variances, (row, part), given all rows."""
        known = self.table.where((asked.lengths > 0)[self.table.series])
        rows, is_asked = candidate.in_units(known).merged(asked)
        leads = self._leads(rows)
        rows = rows.without_empty()
        spaces = {lead: candidate.space(self.span, lead) for lead in set(leads)}
        space, states = spaces[leads[0]], States.of([spaces[lead] for lead in leads])
        found = candidate.filtered(space, rows, parts, states)
        past = found.v_F[:, None], found.inverse_F, found.gains, NO_SHOCKS
        given = candidate.given(space, rows)
        more, less = kalman().smooth_rows(*given, *past)
        signal, variance = found.signal + more[..., 0], found.variance - less
        return signal[is_asked], variance[is_asked]

    def _leads(self, rows: ChannelRows) -> list[float]:
        """Return how much earlier rows begin than those of their series."""
        first = np.where(self.table.lengths > 0, self.table.starts, 0.0)
        return np.maximum(first - rows.starts, 0.0)[rows.lengths > 0].tolist()

    def _since(self, new: ChannelRows) -> Array:
        """Return the time from each last row, or 0, to the first new one."""
        return np.where(new.lengths > 0, new.starts - np.maximum(self.table.ends, 0), 0)


def _rows_after(seen: Observations, now: Observations) -> Flags | None:
    """Return the rows after those seen; None if those have changed."""
    if seen.keys != now.keys:
        return None
    last = seen.ticks[seen.bounds[1:] - 1]
    fresh = now.ticks > last[now.series]
    before = now.where(~fresh)
    same = all(
        np.array_equal(getattr(before, name), getattr(seen, name), equal_nan=True)
        for name in ("ticks", "values", "controls")
    )
    return fresh if same else None


def _stacked(signal: Array, variance: Array) -> Array:
    """Return all's mean and variance, and the variance of the part before."""
    return np.stack([signal[:, 1], variance[:, 1], variance[:, 0]])


def _faded(passed: Array) -> Any:
    """Return what is left after some time, (time, memory)."""
    return np.exp(-passed[:, None] / np.array(MEMORIES))


def _root(covariance: Array) -> Any:
    """Return a square root of a covariance, which may be singular."""
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0))
