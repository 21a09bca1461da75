"""X where it is not known: each column is forecast as a series of its own."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np

from sklode.data.arrays import Array, Flags
from sklode.data.history import Asked, History
from sklode.data.observations import Observations
from sklode.data.ticks import rows_before
from sklode.structural.answers import StructuralAnswers
from sklode.structural.filtered_model import FilteredModel
from sklode.structural.model import StructuralModel

_PATHS, _FEWEST = 200, 20  # of X, that tell how wide answers are
_MOST_ROWS = (
    2_000_000  # of all paths, which may cross all that was seen: 16 MB a column
)


class Unknown:
    """What X may be where it is NaN among the rows of a history.

    A number is forecast, or smoothed, by a model of its column, which is found when
    it is first needed. A category has its usual frequencies, and in a path the levels
    of other rows that follow each other.
    """

    def __init__(self, history: History, seed: int) -> None:
        self._history, self._seed = history, seed
        self._levels: dict[int, StructuralModel] = {}

    def filled(self, known: Observations) -> Observations:
        """Return rows with the mean of what X may be."""
        missing = np.isnan(known.controls)
        if not missing.any():
            return known
        controls = known.controls.copy()
        for first, n in self._history.columns.blocks:
            own, where = slice(first, first + n), missing[:, first]
            if where.any() and n == 1:
                answers, asked = self._column(first, known, where)
                controls[where, own] = answers.means(asked)
            elif where.any():
                seen = self._history.given.controls[:, own]
                usual = np.nan_to_num(seen).sum(0)
                controls[where, own] = usual / max(usual.sum(), 1.0)
        return replace(known, controls=controls)

    @functools.cached_property
    def seen(self) -> History:
        """The history with X filled."""
        return replace(self._history, fills=self.filled(self._history.given).controls)

    def learned(self, model: StructuralModel) -> History:
        """Return what is `seen`, with y as uncertain as X makes it, says a model."""
        given, history = self._history.given, self.seen
        like = given.like[:0]
        answers = StructuralAnswers(
            FilteredModel.of(model, history.rows), history, 0, None, self
        )
        where = np.isnan(given.controls).any(axis=1)

        def variances(rows: Observations) -> Array:
            asked = Asked(like, given.series[where], given.ticks[where], rows, {})
            return answers.variances(asked, 0)

        wide, narrow = variances(given), variances(history.rows)
        blurs = np.zeros(given.values.shape)
        blurs[where] = np.sqrt(np.maximum(wide - narrow, 0.0))
        return replace(history, blurs=blurs)

    def changes(
        self, model: StructuralModel, asked: Asked, n: int | None
    ) -> Array | None:
        """Return how paths of X change `StructuralModel.inputs`, (path, row, column).

        None where X is known, or nothing that it does is.
        """
        known = asked.known
        if n is None:
            n = int(np.clip(_MOST_ROWS // len(known.ticks), _FEWEST, _PATHS))
        since = np.full(len(known.keys), np.iinfo(np.int64).max)
        np.minimum.at(since, asked.series, asked.ticks)
        drawn = np.isnan(known.controls) & (known.ticks >= since[known.series])[:, None]
        acts = any(effect.is_of_X for effect in model.effects)
        if not (acts and drawn.any()):
            return None
        late, paths = self._paths(known, drawn, n)
        place = rows_before(late.bounds, late.ticks, asked.series, asked.ticks)
        is_late = place >= late.bounds[asked.series]
        place = np.maximum(place, 0)
        mean, *found = (
            model.inputs_of(asked.ticks, replace(late, controls=one), place)[:, 1:]
            for one in (late.controls, *paths)
        )
        return np.where(is_late[:, None], np.stack(found) - mean, 0.0)

    def _paths(
        self, known: Observations, drawn: Flags, n: int
    ) -> tuple[Observations, Array]:
        """Return last rows, filled, and paths of X about them, (path, row, control).

        They differ where ``drawn`` (row, control) says; rows begin with one before.
        """
        first = known.bounds[1:].copy()
        some = np.flatnonzero(drawn.any(axis=1))
        np.minimum.at(first, known.series[some], some - 1)
        late = np.arange(len(known.ticks)) >= first[known.series]
        lengths = np.bincount(known.series[late], minlength=len(known.keys))
        bounds = np.append(0, np.cumsum(lengths))
        rows = self.filled(known).rows(late, bounds, known.keys)
        paths = np.repeat(rows.controls[None], n, axis=0)
        for k, size in self._history.columns.blocks:
            own, where = slice(k, k + size), np.asarray(drawn[:, k])
            if not size or not where.any():
                continue
            if size == 1:
                answers, asked = self._column(k, known, where)
                found = answers.paths(asked, n, noise=True)
            else:
                found = self._followed(own, int(where.sum()), n)
            paths[:, where[late], own] += found - found.mean(axis=0)
        return rows, paths

    def _column(
        self, column: int, known: Observations, where: Flags
    ) -> tuple[StructuralAnswers, Asked]:
        """Return what a column's model answers, given all that is known of it."""
        history = self._history
        if column not in self._levels:
            self._levels[column] = StructuralModel.fit(_alone(history.given, column))
        model, rows = self._levels[column], _alone(known, column)
        own = History(rows, history.steps, history.levels, [column], [])
        states = FilteredModel.of(model, rows)
        answers = StructuralAnswers(states, own, self._seed + 1 + column)
        series, ticks = known.series[where], known.ticks[where]
        return answers, Asked(known.like[:0], series, ticks, rows, {})

    def _followed(self, columns: slice, n_rows: int, n: int) -> Array:
        """Return levels of rows that follow each other, (path, row, level)."""
        seen = self._history.given.controls[:, columns]
        seen = seen[~np.isnan(seen).any(axis=1)]
        if not len(seen):  # only other series, in pretraining, had any
            return np.zeros((n, n_rows, seen.shape[1]))
        begin = np.random.default_rng(self._seed).permutation(n) * len(seen) // n
        found: Array = seen[(begin[:, None] + np.arange(n_rows)) % len(seen)]
        return found


def _alone(rows: Observations, column: int) -> Observations:
    """Return a column of X as series; one without any value has the usual one."""
    values = rows.controls[:, [column]].copy()
    some = np.bincount(rows.series[~np.isnan(values[:, 0])], minlength=len(rows.keys))
    usual = np.nanmean(values) if some.any() else 0.0
    values[rows.bounds[:-1][some == 0]] = usual
    errors, none = np.where(np.isnan(values), np.nan, 0.0), rows.controls[:, :0]
    return replace(rows, values=values, controls=none, errors=errors)
