"""A structural model with the states of series after their rows.

Tested in tests/structural/test_exactness.py and coupling/test_same_time.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from sklode.data.arrays import Array, Flags, Numbers
from sklode.data.history import QueryRows
from sklode.data.links import margins, steps_of
from sklode.data.observations import Observations
from sklode.structural.effects.effect import places
from sklode.structural.filtered_column import FilteredColumn
from sklode.structural.model import StructuralModel
from sklode.structural.predictive.calibration import Calibration
from sklode.structural.predictive.closed import closed
from sklode.structural.predictive.limits import Limits
from sklode.structural.predictive.recalibration import NORMAL, Recalibration
from sklode.structural.predictive.steps import (
    Adjustment,
    Bounded,
    Inflated,
    MeansWithin,
    Prediction,
    Recalibrated,
    Step,
    WithinMoves,
)
from sklode.structural.rows import ChannelRows

# the largest float that is a whole number of 64 bits
_FARTHEST = 2.0**63 - 2.0**10

N_PATHS = 40
"""Of columns that are not known yet, which tell how wide answers are."""


@dataclass(frozen=True)
class FilteredModel:
    """A structural model with the states of series after their rows."""

    model: StructuralModel
    observations: Observations
    columns: list[FilteredColumn]

    @classmethod
    def filter(
        cls, model: StructuralModel, observations: Observations
    ) -> FilteredModel:
        """Filter the rows of series, those that the model was found on or others."""
        tables = model.design.tables(observations)
        numbers = {key: k for k, key in enumerate(model.members)}
        members = np.array([numbers.get(key, -1) for key in observations.keys])
        columns = [
            FilteredColumn.filter(
                column.candidates, table, column.span, members, model.design.periods
            )
            for column, table in zip(model.columns, tables, strict=True)
        ]
        return cls(model, observations, columns)

    def updated(self, observations: Observations) -> FilteredModel:
        """Return the same after more rows, filtering only those if it can."""
        fresh = _rows_after(self.observations, observations)
        # more rows change what is known of a series' scale, and whom it is like
        may_change = any(
            one.scaling.random_effects
            or one.coefficients
            or one.is_drawn
            or one.group != column.candidates[0].group
            for column in self.model.columns
            for one in column.candidates
        )
        # and where a column acts late, between its rows, what was between old ones
        if fresh is None or may_change or self.model.design.is_delayed:
            return FilteredModel.filter(self.model, observations)
        tables = self.model.design.tables(observations, fresh)
        pairs = zip(self.columns, tables, strict=True)
        columns = [column.continued(table) for column, table in pairs]
        return FilteredModel(self.model, observations, columns)

    @cached_property
    def quanta(self) -> Array:
        """1 of counts, 0 of what is not below zero, NaN of others, (column,).

        A column is what both the rows of the fit and these say; NaN if either is.
        """
        columns = self.model.columns
        bounds = np.stack([column.bounds for column in columns])
        found = np.array([column.quantum for column in columns])
        return np.minimum(found, steps_of(margins(self.observations.values, bounds)))

    def queries(
        self,
        asked: QueryRows,
        known: Observations,
        changes: Array | None = None,
        n: int = 0,
        seed: int | None = None,
    ) -> tuple[ChannelRows, Numbers]:
        """Return rows that are asked for, sorted, and their places among these.

        ``known`` are rows of X without gaps, ``changes`` how paths of X change inputs;
        ``n`` and ``seed`` are those of `inputs`.
        """
        series, ticks = asked.series, asked.ticks
        place = known.at_or_before(series, ticks)
        inputs, late = self.inputs(
            series, ticks, known=known, place=place, n=n, seed=seed
        )
        if late is not None:
            changes = late if changes is None else changes + late
        times = self.model.design.times(self.observations, series, ticks)
        order = np.lexsort((times, series))
        rows = ChannelRows.from_series(
            series=series[order],
            times=times[order],
            values=np.nan,
            inputs=inputs[order],
            n_series=len(known.keys),
            changes=None if changes is None else changes[:, order],
        )
        return rows, order

    def prediction(
        self,
        column: int,
        queries: ChannelRows,
        adjustment: Adjustment | None = None,
        is_limited: bool = True,
    ) -> Prediction:
        """Return a column's predictive distribution, and the steps that lead to it.

        Not ``is_limited``: before a network, bounds and the moves seen limit it.
        """
        own, model = self.columns[column], self.model.columns[column]
        mixture, steps = own.mixture(queries), list[Step]()
        combined = own.combined(queries, mixture)
        if combined is not None:
            steps.append(combined)
        conditioned = self.model.coupling.conditioned(self.columns, column, queries)
        if conditioned is not None:
            steps.append(conditioned)
        steps.append(Inflated(partial(self._factor, column, queries, adjustment)))
        if queries.changes is not None:
            steps.append(own.uncertain_X(queries, queries.changes))
        if is_limited:
            steps.append(
                Recalibrated(partial(self._recalibration, column, queries, adjustment))
            )
            limits = self.limits(column, queries, adjustment)
            if adjustment is not None:
                steps += [MeansWithin(limits), adjustment]
            quantum = float(self.quanta[column])
            steps += [Bounded(quantum, model.bounds), WithinMoves(limits)]
        return Prediction(mixture, steps)

    def inputs(
        self,
        series: Numbers,
        ticks: Numbers,
        known: Observations,
        place: Numbers,
        n: int = 0,
        seed: int | None = None,
    ) -> tuple[Array, Array | None]:
        """Return `Design.inputs` at stamps of series.

        X is that of ``known`` rows at ``place``. Columns of y that act late are those
        of the rows that were filtered, or where these end earlier, forecasts. How ``n``
        paths of them change all columns but the first is second, (path, row, column),
        or None; without a ``seed`` each path is a quantile everywhere.
        """
        design, rows, changes = self.model.design, self.observations, None
        inputs = design.inputs_of(ticks, known, place, seen=rows, series=series)
        for effect, columns in places(design.effects).items():
            if not effect.is_delayed:
                continue
            channel = effect.basis.first - known.controls.shape[1]
            before = ticks - round(effect.lag.time * design.unit)
            times, own = design.times(rows, series, before), np.array(columns)
            is_late = times > self.columns[channel].table.ends[series]
            # by series, then by time, as tables of rows are
            late = np.flatnonzero(is_late)
            late = late[np.lexsort((times[late], series[late]))]
            if not len(late):
                continue
            # what acts late on that column stays as it was
            held = known.at_or_before(known.series[place[late]], before[late])
            read = design.inputs_of(
                before[late], known, held, seen=rows, series=series[late]
            )
            queries = ChannelRows.from_series(
                series=series[late],
                times=times[late],
                values=np.nan,
                inputs=read,
                n_series=len(rows.keys),
            )
            values = self._ahead(channel, queries, n, seed)
            first = effect.basis.first
            raw, columns_read = values.reshape(-1, 1), slice(first, first + 1)
            made = effect.at(design.standard(raw, columns_read))
            made = made.reshape(*values.shape, -1)
            # the first column of inputs is the clock; the first path is the forecast
            inputs[np.ix_(late, 1 + own)] = made[0]
            if n:
                if changes is None:
                    changes = np.zeros((n, len(ticks), inputs.shape[1] - 1))
                changes[np.ix_(np.arange(n), late, own)] = made[1:] - made[0]
        return inputs, changes

    def _ahead(
        self, channel: int, queries: ChannelRows, n: int, seed: int | None
    ) -> Array:
        """Return forecasts of a channel, and paths or else quantiles, (1 + n, row)."""
        values = np.empty((1 + n, len(queries.times)))
        found = self.prediction(channel, queries, is_limited=False)
        values[0] = found.points()
        if n and seed is not None:
            drawn = self.columns[channel].drawn(
                queries, n=n, seed=seed + channel, has_noise=False
            )
            values[1:] = found.paths(drawn)
        elif n:
            # in the middle of n parts of equal chance
            levels = (np.arange(n) + 0.5) / n
            of_model = found.without(Inflated).distribution()
            values[1:] = of_model.quantiles(levels).T
        return values

    def limits(
        self, channel: int, queries: ChannelRows, adjustment: Adjustment | None
    ) -> Limits:
        """Return what a channel's answers stay within.

        A network knows other series: where it moves answers, theirs moves count too.
        """
        model = self.model.columns[channel]
        shared = None if adjustment is None else adjustment.weight > 0
        found = self.columns[channel].limits(
            queries, model.moves, step=model.quantum, shared=shared
        )
        if np.isfinite(model.bounds).all():
            # two bounds suffice: no move is too far
            found = found._replace(reach=np.full_like(found.reach, np.inf))
        ahead = queries.times > self.columns[channel].table.ends[queries.series]
        return found.closed(ahead & self._closed(channel, queries))

    def _closed(self, channel: int, queries: ChannelRows) -> Flags:
        """Return at which rows a channel was always zero at that time of the day."""
        design = self.model.design
        if design.cycle is None or np.isnan(self.quanta[channel]):
            return np.full(len(queries.times), False)
        table, cycle = self.columns[channel].table, design.cycle[0] / design.unit
        return closed(table, queries, cycle)

    @cached_property
    def _calibrations(self) -> list[dict[int, Calibration]]:
        """What errors ahead tell of widths, by column and heaviest candidate."""
        return [
            column.calibrations(
                self._clock_at(column.table), self._closed(k, column.table)
            )
            for k, column in enumerate(self.columns)
        ]

    def dispersion(self, channel: int, queries: ChannelRows) -> Array:
        """Return how much wider errors are than usual, by the clock at rows, (row,)."""
        found, passed = np.ones(len(queries.times)), self._clock_at(queries)
        each = self._calibrations[channel]
        for k, mine in self.columns[channel].by_heaviest(queries):
            if k in each:  # else of series without rows
                found[mine] = each[k].dispersion.at(passed[mine])
        return found

    def _recalibration(
        self, channel: int, queries: ChannelRows, adjustment: Adjustment | None
    ) -> Recalibration:
        """Return which quantiles errors have at queries.

        Between rows, and of a network, forecasts are as they are.
        """
        column, each = self.columns[channel], self._calibrations[channel]
        quantiles, kind = [NORMAL], np.zeros(len(queries.times), np.int64)
        for k, mine in column.by_heaviest(queries):
            if k in each:  # else of series without rows
                kind[mine] = len(quantiles)
                quantiles.append(each[k].quantiles)
        is_moved = queries.times > column.table.ends[queries.series]
        if adjustment is not None:
            is_moved &= adjustment.weight == 0
        return Recalibration(np.stack(quantiles), np.where(is_moved, kind, 0))

    def _clock_at(self, rows: ChannelRows) -> Array:
        """Return what `Design.clock` says at rows, (row, 2)."""
        seen, unit = self.observations, self.model.design.unit
        # whole numbers may lie farther apart than there are any
        since = np.clip(np.round(rows.times * unit), -_FARTHEST, _FARTHEST)
        ticks = seen.ticks[seen.bounds[rows.series]] + since.astype(np.int64)
        return self.model.design.clock(ticks, seen.like)

    def _factor(
        self, channel: int, queries: ChannelRows, adjustment: Adjustment | None
    ) -> Array:
        """Return how many times as wide answers are as a channel expects."""
        factor = self.columns[channel].inflation(queries)
        factor *= self.dispersion(channel, queries)
        if adjustment is None:
            return factor
        # a network's are as wide as its own errors were
        return np.where(adjustment.weight > 0, 1.0, factor)


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
