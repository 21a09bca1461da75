"""What a fitted model answers about the series that it knows, in y's own units."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sklode.data.errors import SolverError
from sklode.data.history import History
from sklode.data.scaling import split_at_gaps
from sklode.data.ticks import rows_before, ticks_between
from sklode.engine.threads import n_threads
from sklode.prediction.calibration import Calibration
from sklode.prediction.model import FittedModel
from sklode.prediction.predictor import (
    KnownControls,
    Predictor,
    Queries,
)

Array = NDArray[np.floating]
Numbers = NDArray[np.int64]


class Answers:
    """A fitted model with its history: rows of an index in, finite tables out.

    Every method raises `SolverError` where an equation cannot be solved or an answer is
    not finite; it names the stamps, the method, and what to change. ``seed`` is that of
    all draws.
    """

    def __init__(self, model: FittedModel, history: History, seed: int) -> None:
        n_threads()  # a thread's first, as in a training
        self._model = model
        self._history = history
        self._seed = seed
        self._pieces = split_at_gaps(history.observations, model.time_unit)
        windows = model.windows(history.observations)
        calibration = model.calibration or Calibration.none(len(history.channels))
        self._predictor = Predictor(model.network, windows.reaching(0), calibration)

    def means(self, index: pd.Index, X: pd.DataFrame | None) -> pd.DataFrame:
        """Return forecasts at the rows of an index."""
        table = np.empty((len(index), len(self._history.channels)))
        parts = self._predictor.means(self._queries(index, X))
        for which, means in self._finite(parts, index):
            table[which] = self._model.normalisation.original(means)
        return pd.DataFrame(table, index, self._history.channels)

    def variances(self, index: pd.Index, X: pd.DataFrame | None, n: int) -> Array:
        """Return variances over ``n`` draws and of the noise, (row, channel)."""
        spread = np.empty((len(index), len(self._history.channels)))
        parts = self._predictor.draws(self._queries(index, X), n, self._seed, False)
        for which, paths, deviation in self._finite(parts, index):
            spread[which] = np.sqrt(paths.var(axis=0) + deviation**2)
        spread *= self._model.normalisation.scale
        with np.errstate(over="ignore"):
            squared = spread**2
        if np.isinf(squared).any():
            raise ValueError(
                "a variance must be a finite number; got squares of values of up to "
                f"{spread.max():.2g}, which no float holds. Fit on y in larger units, "
                "or ask for predict_interval."
            )
        return squared

    def quantiles(
        self, index: pd.Index, X: pd.DataFrame | None, n: int, alpha: list[float]
    ) -> Array:
        """Return quantiles of ``n`` draws with noise, (row, channel, alpha)."""
        table = np.empty((len(index), len(self._history.channels), len(alpha)))
        for which, drawn in self._draws(index, X, n, noise=True):
            found = np.quantile(drawn, alpha, axis=0)
            table[which] = np.moveaxis(found, 0, -1)
        return table

    def paths(
        self, index: pd.Index, X: pd.DataFrame | None, n: int, noise: bool
    ) -> Array:
        """Return ``n`` joint sample paths, (sample, row, channel)."""
        paths = np.empty((n, len(index), len(self._history.channels)))
        for which, drawn in self._draws(index, X, n, noise):
            paths[:, which] = drawn
        return paths

    def _draws(
        self, index: pd.Index, X: pd.DataFrame | None, n: int, noise: bool
    ) -> Iterator[tuple[NDArray[np.int64], Array]]:
        """Yield numbers of rows and their draws (sample, row, channel)."""
        queries = self._queries(index, X)
        parts = self._predictor.draws(queries, n, self._seed, noise)
        for rows, drawn, _ in self._finite(parts, index):
            yield rows, self._model.normalisation.original(drawn)

    def _queries(self, index: pd.Index, X: pd.DataFrame | None) -> Queries:
        """Translate rows of an index for the predictor."""
        history = self._history
        series, times = self._placed(*history.located(index))
        given = history.controls_for(index, X)
        known = None
        if given is not None:
            of, when = self._placed(given.series, given.ticks)
            values = self._model.normalisation.controls(given.values)
            order = np.lexsort((when, of))
            known = KnownControls(of[order], when[order], values[order])
        return Queries(series, times, known)

    def _placed(self, series: Numbers, ticks: Numbers) -> tuple[Numbers, Array]:
        """Return the pieces that stamps are nearest to, and their times there.

        A piece is a series, or what `split_at_gaps` makes of it.
        """
        known, bounds = self._history.observations.ticks, self._pieces.bounds
        ends = self._history.observations.bounds
        before = np.maximum(rows_before(ends, known, series, ticks), ends[:-1][series])
        after = np.minimum(before + 1, ends[1:][series] - 1)
        until = ticks_between(ticks, known[after])
        row = np.where(until < ticks_between(known[before], ticks), after, before)
        piece = np.searchsorted(bounds, row, side="right") - 1
        first = known[bounds[:-1][piece]]
        return piece, ticks_between(first, ticks) / self._model.time_unit

    def _finite(
        self, parts: Iterator[tuple[Any, ...]], index: pd.Index
    ) -> Iterator[tuple[Any, ...]]:
        """Yield numbers of rows with values that are finite, (..., row, channel)."""
        try:
            for rows, values, *others in parts:
                self._check_finite(values, index[rows])
                yield rows, values, *others
        except SolverError as error:
            stamps = index.get_level_values(-1)
            asked = f"Asked were stamps from {stamps.min()} to {stamps.max()}."
            raise SolverError(f"{error} {asked}") from error

    def _check_finite(self, values: Array, index: pd.Index) -> None:
        good = np.all(np.isfinite(values), axis=-1)
        if good.ndim == 2:  # of draws
            good = np.all(good, axis=0)
        if good.all():
            return
        first, n_bad = index[np.argmin(good)], int((~good).sum())
        if isinstance(first, tuple):
            first = ", ".join(map(str, first))
        decoder = self._model.network.decoder
        solver, activation = decoder.solver, decoder.vector_field.activation
        accuracy = f"step_size={solver.step_size:g}"
        if solver.is_adaptive:
            accuracy = f"rtol={solver.rtol:g}, atol={solver.atol:g}"
        raise SolverError(
            f"a forecast must be finite; got {n_bad} of {len(good)} rows that are not, "
            f"the first at {first}: the latent trajectory overflows "
            f"(method={solver.method!r}, {accuracy}, activation={activation!r}). Ask "
            "for stamps nearer to the observations, or fit again with "
            'activation="tanh", a lower lr, a lower clip_norm or a smaller step_size.'
        )
