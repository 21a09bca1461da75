"""What a fitted model answers about the series that it knows, in y's own units."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sklode.data.errors import SolverError
from sklode.data.history import History
from sklode.prediction.model import FittedModel
from sklode.prediction.predictor import KnownControls, LatentPaths, Queries
from sklode.prediction.prior import new_series

__all__ = ["Answers"]

Array = NDArray[np.floating]


class Answers:
    """A fitted model with its history: rows of an index in, finite tables out.

    Parameters
    ----------
    model : FittedModel
    history : History
        Of the series that it forecasts.
    seed : int
        Of all draws.

    Raises
    ------
    sklode.SolverError
        By every method, where an equation cannot be solved or an answer is not finite;
        it names the stamps, the method, and what to change.
    """

    def __init__(self, model: FittedModel, history: History, seed: int) -> None:
        self._model = model
        self._history = history
        self._seed = seed
        self._predictor = model.predictor(history.observations)

    def means(self, index: pd.Index, X: pd.DataFrame | None) -> pd.DataFrame:
        """Return forecasts at the rows of an index: x^ at the mean of q(z0)."""
        channels = self._history.channels
        if not len(index):
            return pd.DataFrame(np.zeros((0, len(channels))), index, channels)
        queries = self._queries(index, X)
        with _named(index):
            means = self._predictor.means(queries)
        self._check_finite(means, index)
        original = self._model.normalisation.original(means)
        return pd.DataFrame(original, index, channels)

    def variances(self, index: pd.Index, X: pd.DataFrame | None, n: int) -> Array:
        """Return variances over ``n`` draws and of the noise, (row, channel)."""
        queries = self._queries(index, X)
        with _named(index):
            table = self._predictor.variances(queries, n, self._seed)
        self._check_finite(table, index)
        scale = self._model.normalisation.scale
        with np.errstate(over="ignore"):
            squared: Array = table * scale * scale
        if np.isinf(squared).any():
            raise ValueError(
                "a variance must be a finite number; got squares of values of up to "
                f"{scale.max():.2g}, which no float holds. Fit on y in larger units, "
                "or ask for predict_interval."
            )
        return squared

    def quantiles(
        self, index: pd.Index, X: pd.DataFrame | None, n: int, alpha: list[float]
    ) -> Array:
        """Return quantiles of ``n`` draws with noise, (row, channel, alpha)."""
        table = np.empty((len(index), len(self._history.channels), len(alpha)))
        for rows, drawn in self._draws(index, X, n, noise=True):
            table[rows] = np.moveaxis(np.quantile(drawn, alpha, axis=0), 0, -1)
        return table

    def paths(
        self, index: pd.Index, X: pd.DataFrame | None, n: int, noise: bool
    ) -> Array:
        """Return ``n`` joint sample paths, (sample, row, channel)."""
        paths = np.empty((n, len(index), len(self._history.channels)))
        for rows, drawn in self._draws(index, X, n, noise):
            paths[:, rows] = drawn
        return paths

    def latent_paths(
        self, index: pd.Index, X: pd.DataFrame | None, series: int, n: int
    ) -> LatentPaths:
        """Return z(t) from a series' last window on to its last row of an index."""
        rows = index[self._history.located(index)[0] == series]
        queries = self._queries(rows, X)
        end = queries.times.max(initial=-np.inf)
        return self._predictor.latent_paths(series, end, queries.known, n, self._seed)

    def new_series(
        self,
        index: pd.Index,
        X: pd.DataFrame | None,
        n: int,
        noise: bool,
        start: str,
        seed: int | None,
    ) -> Array:
        """Return series that continue none, (sample, row, channel); see `prior`.

        Parameters
        ----------
        index, X, n, noise
            Increasing stamps of a new series, and as in `paths`.
        start : {"windows", "normal"}
            Where z0 is drawn from.
        seed : int or None
            None: that of all draws.
        """
        model, history = self._model, self._history
        elapsed, controls = history.new_series(index, X)
        if controls is not None:
            since, values = controls
            values = model.normalisation.controls(values)
            controls = since / model.time_unit, values
        seed = self._seed if seed is None else seed
        windows = model.windows(history.observations)
        with _named(index):
            paths = new_series(
                model.network,
                windows,
                elapsed / model.time_unit,
                controls,
                n,
                seed,
                start,
                noise,
            )
        self._check_finite(paths, index)
        return model.normalisation.original(paths)

    def _draws(
        self, index: pd.Index, X: pd.DataFrame | None, n: int, noise: bool
    ) -> Iterator[tuple[NDArray[np.int64], Array]]:
        """Yield numbers of rows and their draws (sample, row, channel)."""
        queries = self._queries(index, X)
        original = self._model.normalisation.original
        with _named(index):
            for rows, drawn in self._predictor.draws(queries, n, self._seed, noise):
                self._check_finite(drawn, index[rows])
                yield rows, original(drawn)

    def _queries(self, index: pd.Index, X: pd.DataFrame | None) -> Queries:
        """Translate rows of an index for the predictor."""
        timeline = self._model.timeline
        observations = self._history.observations
        series, ticks = self._history.located(index)
        given = self._history.controls_for(index, X)
        known = None
        if given is not None:
            values = self._model.normalisation.controls(given.values)
            times = timeline.at(observations, given.series, given.ticks)
            known = KnownControls(given.series, times, values)
        return Queries(series, timeline.at(observations, series, ticks), known)

    def _check_finite(self, values: Array, index: pd.Index) -> None:
        is_finite = np.isfinite(values).all(axis=-1)
        good = is_finite.all(axis=tuple(range(is_finite.ndim - 1)))
        if good.all():
            return
        first, n_bad = index[np.argmin(good)], int((~good).sum())
        decoder = self._model.network.decoder
        solver, activation = decoder.solver, decoder.vector_field.activation
        accuracy = f"step_size={solver.step_size:g}"
        if solver.is_adaptive:
            accuracy = f"rtol={solver.rtol:g}, atol={solver.atol:g}"
        raise SolverError(
            f"a forecast must be finite; got {n_bad} of {len(good)} rows that are not, "
            f"the first at {_written(first)}: the latent trajectory overflows "
            f"(method={solver.method!r}, {accuracy}, activation={activation!r}). Ask "
            "for stamps nearer to the observations, or fit again with "
            'activation="tanh", a lower lr, a lower clip_norm or a smaller step_size.'
        )


@contextmanager
def _named(index: pd.Index) -> Iterator[None]:
    """Name the stamps that were asked where an equation cannot be solved."""
    try:
        yield
    except SolverError as error:
        stamps = index.get_level_values(-1)
        asked = f"Asked were stamps from {stamps.min()} to {stamps.max()}."
        raise SolverError(f"{error} {asked}") from error


def _written(row: object) -> str:
    return ", ".join(map(str, row)) if isinstance(row, tuple) else str(row)
