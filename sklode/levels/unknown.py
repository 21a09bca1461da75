"""X where it is not known: each column is forecast as a series of its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sklode.data.arrays import Array, Flags
from sklode.data.history import Asked, History
from sklode.data.observations import Observations
from sklode.data.ticks import rows_before, ticks_between
from sklode.levels.effects import ALWAYS
from sklode.levels.level import Level
from sklode.levels.level_predictor import LevelPredictor


class Unknown:
    """What columns of X may be, where they are NaN among the rows of a history.

    A number is forecast, or smoothed, by a `Level` of its column, which is found when
    it is first needed. A category has its usual frequencies, and in a path the levels
    of another stretch of its past.
    """

    def __init__(self, history: History, seed: int) -> None:
        self._history, self._seed = history, seed
        self._levels: dict[int, Level] = {}
        self._blocks = history.columns.blocks

    def filled(self, known: Observations) -> Observations:
        """Return rows with the mean of what X may be."""
        missing = np.isnan(known.controls)
        if not missing.any():
            return known
        controls = known.controls.copy()
        seen = self._history.given.controls
        for first, n in self._blocks:
            where = missing[:, first : first + n].any(axis=1)
            if where.any() and n == 1:
                answers, asked = self._column(first, known, where)
                controls[where, first] = answers.means(asked)[:, 0]
            elif where.any():
                usual = np.nan_to_num(seen[:, first : first + n]).sum(0)
                controls[where, first : first + n] = usual / max(usual.sum(), 1.0)
        return replace(known, controls=controls)

    def changes(self, level: Level, asked: Asked, n: int) -> Array | None:
        """Return how paths of X change `Level.inputs`, (path, row asked, column).

        None where X is known, or nothing that it does is.
        """
        rows = asked.known
        since = np.full(len(rows.keys), np.iinfo(np.int64).max)
        np.minimum.at(since, asked.series, asked.ticks)
        missing = np.isnan(rows.controls) & (rows.ticks >= since[rows.series])[:, None]
        if all(effect.column == ALWAYS for effect in level.effects) or not missing.any():
            return None
        late, paths = self._paths(rows, missing, n)
        place = rows_before(late.bounds, late.ticks, asked.series, asked.ticks)
        is_late = place >= late.bounds[asked.series]
        place = np.maximum(place, 0)
        mean, *found = (
            level.inputs_of(asked.ticks, replace(late, controls=one), place)[:, 1:]
            for one in (late.controls, *paths)
        )
        return np.where(is_late[:, None], np.stack(found) - mean, 0.0)

    def _paths(
        self, known: Observations, drawn: Flags, n: int
    ) -> tuple[Observations, Array]:
        """Return last rows, filled, and ``n`` paths of X, (path, row, control).

        They are drawn about the mean where ``drawn`` (row, control) says; the rows
        begin with one before these.
        """
        series = known.series[drawn.any(axis=1)]
        first = known.bounds[1:].copy()
        np.minimum.at(first, series, np.flatnonzero(drawn.any(axis=1)) - 1)
        late = np.arange(len(known.ticks)) >= first[known.series]
        lengths = np.bincount(known.series[late], minlength=len(known.keys))
        bounds = np.append(0, np.cumsum(lengths))
        rows = self.filled(known).rows(late, bounds, known.keys)
        paths = np.repeat(rows.controls[None], n, axis=0)
        for k, size in self._blocks:
            where = drawn[:, k : k + size].any(axis=1)
            if not where.any():
                continue
            if size == 1:
                answers, asked = self._column(k, known, where)
                found = answers.paths(asked, n, noise=True)
            else:
                found = self._stretches(known, where, slice(k, k + size), n)
            place = where[late]
            paths[:, place, k : k + size] += found - found.mean(axis=0)
        return rows, paths

    def _column(
        self, column: int, known: Observations, where: Flags
    ) -> tuple[LevelPredictor, Asked]:
        """Return what a column's level answers, given all that is known of it."""
        history = self._history
        if column not in self._levels:
            self._levels[column] = Level.fit(_alone(history.given, column))
        level, rows = self._levels[column], _alone(known, column)
        own = History(rows, history.steps, history.levels, [column], [])
        answers = LevelPredictor(level.filtered(rows), own, self._seed + 1 + column)
        index = known.like[:0]  # which no answer reads
        asked = Asked(index, known.series[where], known.ticks[where], rows, {})
        return answers, asked

    def _stretches(
        self, known: Observations, where: Flags, columns: slice, n: int
    ) -> Array:
        """Return the levels of another stretch, (path, row, level)."""
        seen, rng = self._history.given, np.random.default_rng(self._seed + 1)
        is_seen = ~np.isnan(seen.controls[:, columns]).any(axis=1)
        found = np.zeros((n, int(where.sum()), columns.stop - columns.start))
        share = (rng.permutation(n) + 0.5) / n
        series = known.series[where]
        for k in np.unique(series).tolist():
            rows = np.flatnonzero(is_seen & (seen.series == k))
            if not len(rows):
                continue  # nothing tells how it varies there
            first = seen.ticks[rows[0]]
            times = ticks_between(first, seen.ticks[rows])
            span = times[-1] * (1 + 1 / max(len(rows) - 1, 1)) + 1.0
            passed = ticks_between(first, known.ticks[where][series == k])
            at = np.mod(passed + span * share[:, None], span)
            row = rows[np.searchsorted(times, at, side="right") - 1]
            found[:, series == k] = seen.controls[row][..., columns]
        return found


def _alone(rows: Observations, column: int) -> Observations:
    """Return a column of X as series; one without any value has the usual one."""
    values = rows.controls[:, [column]].copy()
    some = np.bincount(rows.series[~np.isnan(values[:, 0])], minlength=len(rows.keys))
    usual = np.nanmean(values) if some.any() else 0.0
    values[rows.bounds[:-1][some == 0]] = usual
    errors = np.where(np.isnan(values), np.nan, 0.0)
    return replace(
        rows, values=values, controls=rows.controls[:, :0], errors=errors
    )
