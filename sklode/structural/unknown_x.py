"""X where it is not known: each column is forecast as a series of its own."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np

from sklode.data.arrays import Array, Flags, Numbers
from sklode.data.checks import finite
from sklode.data.history import History, QueryRows
from sklode.data.observations import Observations
from sklode.data.scaling import time_unit
from sklode.data.ticks import rows_before
from sklode.structural.filtered_model import N_PATHS, FilteredModel
from sklode.structural.fit import fit_model
from sklode.structural.model import StructuralModel
from sklode.structural.rows import ChannelRows

_PATHS, _FEWEST = 200, 20  # of X, that tell how wide answers are
# of all paths, which may cross all that was seen: 16 MB a column
_MOST_ROWS = 2_000_000


class Unknown:
    """What X may be where it is NaN among the rows of a history.

    A number is forecast, or smoothed, by a model of its column, which is found when
    it is first needed. A category has its usual frequencies, and in a path the levels
    of other rows that follow each other. What no series changes stays as it is.

    Columns of ``impulses`` add up, so that they must not depend on how many rows are
    asked for: they go on at rows a usual gap apart, and others bring none.
    """

    def __init__(
        self, history: History, seed: int, impulses: frozenset[int] = frozenset()
    ) -> None:
        self._history, self._seed, self._impulses = history, seed, impulses
        self._models: dict[int, StructuralModel] = {}

    def filled(self, known: Observations) -> Observations:
        """Return rows with the mean of what X may be."""
        missing = np.isnan(known.controls)
        if not missing.any():
            return known
        controls = known.controls.copy()
        for first, n in self._history.columns.blocks:
            own = slice(first, first + n)
            # the levels of a category are missing together
            where = missing[:, first]
            if not where.any():
                continue
            if self._is_constant[own].all():
                controls[where, own] = _usual(known, own)[known.series[where]]
            elif n == 1:
                controls[where, first] = self._means(first, known, where)
            else:
                seen = self._history.given.controls[:, own]
                # of indicators, sums are counts
                counts = np.nan_to_num(seen).sum(0)
                controls[where, own] = counts / max(counts.sum(), 1.0)
        return replace(known, controls=controls)

    @functools.cached_property
    def _is_constant(self) -> Flags:
        """Whether each column is constant in every series, (control,)."""
        rows = self._history.given
        most, least = (
            most_of.reduceat(rows.controls, rows.bounds[:-1])
            for most_of in (np.fmax, np.fmin)
        )
        # of a series without any value both are NaN, which is not more
        return ~np.asarray((most > least).any(axis=0))

    @functools.cached_property
    def seen(self) -> History:
        """The history with X filled."""
        filled = self.filled(self._history.given)
        return replace(self._history, imputations=filled.controls)

    def learned(self, model: StructuralModel) -> History:
        """Return what is `seen`, with y as uncertain as X makes it, says a model."""
        given, history = self._history.given, self.seen
        filtered = FilteredModel.filter(model, history.rows)
        is_missing = np.isnan(given.controls)
        where: Flags = np.asarray(is_missing.any(axis=1))

        def variances(rows: Observations) -> Array:
            asked, table = _asked(rows, where), np.empty((where.sum(), n_columns))
            queries, order, _ = queries_of(filtered, asked, self, n=None, seed=0)
            for k in range(n_columns):
                distribution = filtered.prediction(k, queries).distribution()
                table[order, k] = distribution.variance()
            return finite(table)

        n_columns = given.values.shape[1]
        # what unknown X adds to a variance is that of an error of measurement
        wide, narrow = variances(given), variances(history.rows)
        deviations = np.zeros(given.values.shape)
        deviations[where] = np.sqrt(np.maximum(wide - narrow, 0.0))
        return replace(history, input_deviations=deviations)

    def changes(
        self, model: StructuralModel, asked: QueryRows, n: int | None
    ) -> Array | None:
        """Return how paths of X change `Design.inputs`, (path, row, column).

        None where X is known, or nothing that it does is.
        """
        known = asked.known
        # known rows before the first one
        # asked are filled with their means
        since = np.full(len(known.keys), np.iinfo(np.int64).max)
        np.minimum.at(since, asked.series, asked.ticks)
        is_late = known.ticks >= since[known.series]
        drawn = np.isnan(known.controls) & is_late[:, None]
        # where y was seen, what is constant is a part of its level
        drawn &= ~self._is_constant | _is_new(known)[known.series]
        acts = any(effect.is_of_X for effect in model.design.effects)
        if not (acts and drawn.any()):
            return None
        if n is None:
            most = _MOST_ROWS // len(known.ticks)
            n = int(np.clip(most, _FEWEST, _PATHS))
        late, paths = self._paths(known, drawn, n)
        place = rows_before(late.bounds, late.ticks, asked.series, asked.ticks)
        has_row = place >= late.bounds[asked.series]
        place = np.maximum(place, 0)

        def inputs(controls: Array) -> Array:
            rows = replace(late, controls=controls)
            # without the first, the local clock, which X does not change
            return model.design.inputs_of(asked.ticks, rows, place)[:, 1:]

        found = np.stack([inputs(path) for path in paths])
        moved = found - inputs(late.controls)
        return np.where(has_row[:, None], moved, 0.0)

    def _paths(
        self, known: Observations, drawn: Flags, n: int
    ) -> tuple[Observations, Array]:
        """Return last rows, filled, and paths of X about them, (path, row, control).

        They differ where ``drawn`` (row, control) says; rows begin with one before.
        """
        # from the row before, as X is linear between rows; of
        # series that nothing is drawn of, from their end on: none
        first = known.bounds[1:].copy()
        some = np.flatnonzero(drawn.any(axis=1))
        np.minimum.at(first, known.series[some], some - 1)
        is_late = np.arange(len(known.ticks)) >= first[known.series]
        series = known.series[is_late]
        lengths = np.bincount(series, minlength=len(known.keys))
        bounds = np.append(0, np.cumsum(lengths))
        rows = self.filled(known).rows(is_late, bounds, known.keys)
        paths = np.repeat(rows.controls[None], n, axis=0)
        for column, size in self._history.columns.blocks:
            where = np.asarray(drawn[:, column])
            if not size or not where.any():
                continue
            own = slice(column, column + size)
            if size == 1:
                found = self._levels(column, known, where, n=n)
                if not self._is_constant[column]:
                    found += self._draws(column, known, where, n=n)
            else:
                found = self._followed(own, int(where.sum()), n)
            # about the mean that is filled, so
            # that paths do not move answers
            paths[:, where[is_late], own] += found - found.mean(axis=0)
        return rows, paths

    def _means(self, column: int, known: Observations, where: Flags) -> Array:
        """Return a column's forecasts at the rows ``where`` it is asked, (row,)."""
        filtered, queries, order = self._column(column, known, where)
        found = np.empty(len(order))
        found[order] = filtered.prediction(0, queries).points()
        return finite(np.where(self._may_act(column, known, where), found, 0.0))

    def _draws(self, column: int, known: Observations, where: Flags, n: int) -> Array:
        """Return paths of a column there, (path, row, 1)."""
        filtered, queries, order = self._column(column, known, where)
        # columns must not draw the same errors
        seed = self._seed + 1 + column
        draws = filtered.columns[0].drawn(queries, n=n, seed=seed, has_noise=True)
        found = np.empty((n, len(order), 1))
        found[:, order, 0] = filtered.prediction(0, queries).paths(draws)
        may_act = self._may_act(column, known, where)[:, None]
        return finite(np.where(may_act, found, 0.0))

    def with_usual_rows(self, known: Observations) -> Observations:
        """Return rows, with those a usual gap apart at which impulses go on."""
        if not self._impulses or not np.isnan(known.controls).any():
            return known
        last, ends = self._last_known(known), known.bounds[1:] - 1
        begins = known.ticks[np.maximum(last, 0)]
        n = np.where(last < 0, 0, (known.ticks[ends] - begins) // self._unit)
        series = np.repeat(np.arange(len(n)), n)
        steps = 1 + np.arange(len(series)) - np.repeat(np.cumsum(n) - n, n)
        ticks = begins[series] + steps * self._unit
        is_new = ~known.holds(series, ticks)
        series, ticks = series[is_new], ticks[is_new]
        nothing = np.full((len(ticks), known.controls.shape[1]), np.nan)
        unseen = np.full((len(ticks), known.values.shape[1]), np.nan)
        counts = np.bincount(series, minlength=len(known.keys))
        bounds = np.append(0, np.cumsum(counts))
        return known.merged(
            replace(
                known,
                ticks=ticks,
                values=unseen,
                controls=nothing,
                errors=unseen,
                bounds=bounds,
            ),
            warns=False,
        )

    def _may_act(self, column: int, known: Observations, where: Flags) -> Flags:
        """Return at which rows a column may be more than nothing: at all, in general.

        Impulses go on at usual rows, and at such as y was seen at.
        """
        if column not in self._impulses:
            return np.ones(int(where.sum()), dtype=bool)
        last = self._last_known(known)[known.series]
        after = known.ticks - known.ticks[np.maximum(last, 0)]
        is_usual = (last < 0) | ((after > 0) & (after % self._unit == 0))
        has_y = ~np.isnan(known.values).all(axis=1)
        found: Flags = (is_usual | has_y)[where]
        return found

    def _last_known(self, known: Observations) -> Numbers:
        """Return each series' last row at which impulses are known; -1: none."""
        own = known.controls[:, sorted(self._impulses)]
        rows = np.flatnonzero(~np.isnan(own).any(axis=1))
        last = np.full(len(known.keys), -1)
        np.maximum.at(last, known.series[rows], rows)
        return last

    @functools.cached_property
    def _unit(self) -> int:
        """The usual gap, in ticks."""
        return max(round(time_unit(self._history.given)), 1)

    def _levels(self, column: int, known: Observations, where: Flags, n: int) -> Array:
        """Return how far a column may be from its usual value there, as `_draws` does.

        Of series without y or a value of it that is as far as others are.
        """
        series = known.series[where]
        means = _means_of(known, slice(column, column + 1))[:, 0]
        means = means[~np.isnan(means)]
        is_new = _is_new(known)[series, column]
        if not (len(means) and is_new.any()):
            return np.zeros((n, len(series), 1))
        # series spread evenly, in random order: the same ones in each column
        order = np.random.default_rng(self._seed).permutation(n)
        place = (order[:, None] * len(means) // n + series) % len(means)
        far = np.where(is_new, means[place] - means.mean(), 0.0)
        found: Array = far[..., None]
        return found

    def _column(
        self, column: int, known: Observations, where: Flags
    ) -> tuple[FilteredModel, ChannelRows, Numbers]:
        """Return a column's model, given all that is known of it, and queries.

        These are the rows ``where`` it is asked, sorted; their places are third.
        """
        if column not in self._models:
            self._models[column] = fit_model(_alone(self._history.given, column))
        rows = _alone(known, column)
        filtered = FilteredModel.filter(self._models[column], rows)
        queries, order = filtered.queries(_asked(rows, where), rows)
        return filtered, queries, order

    def _followed(self, columns: slice, n_rows: int, n: int) -> Array:
        """Return levels of rows that follow each other, (path, row, level)."""
        seen = self._history.given.controls[:, columns]
        seen = seen[~np.isnan(seen).any(axis=1)]
        if not len(seen):  # only other series, in pretraining, had any
            return np.zeros((n, n_rows, seen.shape[1]))
        # paths begin at rows spread evenly, in
        # random order, and go around the end
        order = np.random.default_rng(self._seed).permutation(n)
        begin = order * len(seen) // n
        place = (begin[:, None] + np.arange(n_rows)) % len(seen)
        found: Array = seen[place]
        return found


def _means_of(rows: Observations, columns: slice) -> Array:
    """Return the means of columns of X, (series, column); NaN of no value."""
    values = rows.controls[:, columns]
    counts = np.add.reduceat(~np.isnan(values), rows.bounds[:-1], dtype=np.int64)
    sums = np.add.reduceat(np.nan_to_num(values), rows.bounds[:-1])
    means: Array = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return means


def _usual(rows: Observations, columns: slice) -> Array:
    """Return the same; of a series without any value, that of the others."""
    means = _means_of(rows, columns)
    is_known = ~np.isnan(means).any(axis=1)
    usual = means[is_known].mean(axis=0) if is_known.any() else 0.0
    return np.where(np.isnan(means), usual, means)


def _is_new(rows: Observations) -> Flags:
    """Return whether nothing is known of a series in a column, (series, control)."""
    starts = rows.bounds[:-1]
    has_y = np.logical_or.reduceat(~np.isnan(rows.values).all(axis=1), starts)
    has_X = np.logical_or.reduceat(~np.isnan(rows.controls), starts)
    return ~(has_y[:, None] | has_X)


def queries_of(
    filtered: FilteredModel,
    asked: QueryRows,
    unknown: Unknown | None,
    n: int | None,
    seed: int,
) -> tuple[ChannelRows, Numbers, Observations]:
    """Return sorted rows that are asked for, their places, and rows of X, filled.

    Of columns that are not known the rows have ``n`` paths; None: enough to tell a
    spread.
    """
    known, changes = asked.known, None
    if unknown is not None:
        asked = replace(asked, known=unknown.with_usual_rows(known))
        known = unknown.filled(asked.known)
        if known is not asked.known and n != 0:
            changes = unknown.changes(filtered.model, asked, n)
    draws: int | None = seed
    if n is None:
        n, draws = N_PATHS if changes is None else len(changes), None
    rows, order = filtered.queries(asked, known, changes=changes, n=n, seed=draws)
    return rows, order, known


def _asked(rows: Observations, where: Flags) -> QueryRows:
    """Return some of the rows as what is asked; their index is not read."""
    return QueryRows(
        index=rows.like[:0],
        series=rows.series[where],
        ticks=rows.ticks[where],
        known=rows,
        unknown={},
    )


def _alone(rows: Observations, column: int) -> Observations:
    """Return a column of X as series; one without any value has the usual one."""
    values = rows.controls[:, [column]].copy()
    is_known = ~np.isnan(values[:, 0])
    n_known = np.bincount(rows.series[is_known], minlength=len(rows.keys))
    usual = np.nanmean(values) if is_known.any() else 0.0
    first = rows.bounds[:-1]
    values[first[n_known == 0]] = usual
    return replace(
        rows,
        values=values,
        controls=rows.controls[:, :0],
        errors=np.where(np.isnan(values), np.nan, 0.0),
    )
