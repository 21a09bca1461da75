"""What forecasters answer, whichever model they have; asking changes nothing.

Tested in tests/forecasters/test_base.py and tests/latent_ode/test_answers.py.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
from sktime.datatypes import convert_to
from sktime.forecasting.base import BaseForecaster

from sklode.data import checks
from sklode.data.arrays import Array
from sklode.data.history import Asked, History, Places, with_columns
from sklode.forecasters.inputs import tell_unknown
from sklode.forecasters.protocols import Answers, Container, Horizon
from sklode.forecasters.summary import Summary, summary_of
from sklode.forecasters.transaction import asking


class AskingForecaster(BaseForecaster):
    """Forecasts, distributions, paths, residuals and scores at any stamps."""

    _history: History
    _answers: Answers

    @property
    def _model_name(self) -> str:
        """The model that is asked for: "structural", "hybrid" or "paper"."""
        return "structural"

    def _scored(self) -> None:
        """Say what a score does not tell: nothing."""

    def _read(self, places: Places, X: Container) -> Asked:
        """Read rows that are asked for, and X."""
        asked = self._history.asked(places, X)
        may_be = self._model_name != "paper"
        tell_unknown(asked.unknown, len(places.index), may_be=may_be)
        return asked

    @property
    def components_(self) -> pd.DataFrame:
        """What was found of each part, read when it is asked for: it takes a while."""
        answers: Any = vars(self).get("_answers")
        if answers is None or self._model_name == "paper":
            raise AttributeError
        found: pd.DataFrame = answers.description
        return found

    def _parts(self, index: pd.Index, X: Container) -> pd.DataFrame:
        """Return what `sklode.plotting.plot_components` draws, (channel, part)."""
        answers: Any = self._answers
        if self._model_name == "paper":
            raise ValueError(
                'components need model="hybrid"; got '
                f"model={self._model_name!r}, which has none. Fit with "
                'model="hybrid", or a StructuralForecaster.'
            )
        history = self._history
        found: pd.DataFrame = answers.parts(history.asked(history.rows_of(index), X))
        return found

    def _predict(self, fh: Horizon, X: Container = None) -> pd.DataFrame:
        """Forecast at the horizon: the emission at the mean of q(z0)."""
        rows, asked = self._asked(fh, X)
        return self._framed(rows, asked, self._answers.means(asked))

    def _like_y(self, frame: pd.DataFrame) -> Container:
        """Return a Series where the y that was passed last was one."""
        if self._y_metadata["mtype"] != "pd.Series":
            return frame
        return frame.iloc[:, 0].rename(self._converter_store_y["name"])

    def _as_y(self, frame: pd.DataFrame) -> Container:
        """Return a table in the container of the y that was passed last."""
        mtype, store = self._y_metadata["mtype"], self._converter_store_y
        return convert_to(frame, mtype, store=store, store_behaviour="freeze")

    def _residuals(self, y: Container, X: Container) -> pd.DataFrame:
        """Return observations, in any container of sktime, minus their forecasts."""
        _, frame = self._check_X_y(y=y)
        X_inner = self._check_X(X=X)
        truth = with_columns(frame, self._history.channels)
        checks.finite_values(truth)
        asked = self._read(self._history.rows_of(truth.index), X_inner)
        residuals = truth - self._answers.means(asked)
        is_lone = truth.shape[1] == 1  # which may have another name than in fit
        return residuals.set_axis(frame.columns, axis=1) if is_lone else residuals

    @asking
    def predict_residuals(self, y: Container = None, X: Container = None) -> Container:
        """Return observations minus their forecasts.

        Rows that were seen are forecast from all others, before and after: their
        residuals show what the model cannot explain, and are smaller than errors ahead,
        which `sklode.model_selection.backtest` measures.

        Parameters
        ----------
        y : Series, DataFrame or other sktime container, optional
            Observations at any stamps; None: all that fit and update have seen.
        X : DataFrame, optional
            Controls at those of ``y``'s stamps that the history does not hold.

        Returns
        -------
        object like ``y``
            Residuals; NaN where nothing was observed.
        """
        self.check_is_fitted()
        if y is None:
            y = self._like_y(self._history.frame())
        return self._as_y(self._residuals(y, X))

    def _twin(self) -> AskingForecaster:
        """Return a forecaster whose forecasts are as good, and come soon."""
        return self

    def summary(self, origins: int = 3) -> Summary:
        """Return what was seen and chosen, and how good forecasts are, as text.

        Parameters
        ----------
        origins : int, default=3
            Number of origins at the end of the series from which a clone, fitted on the
            rows before, forecasts: each takes as long as ``fit``; where no network
            counts, only the structural model is fitted. 0: none.

        Returns
        -------
        Summary
            A dict of text by topic, printed as lines and in a notebook as a table.

        See Also
        --------
        sklode.model_selection.backtest : all errors, origin by origin.
        """
        self.check_is_fitted()
        if origins != 0:
            checks.check_count("origins", origins)
        return summary_of(self, self._twin(), origins)

    def predict_at(self, index: pd.Index, X: Container = None) -> Container:
        """Forecast at exactly the rows of an index.

        Parameters
        ----------
        index : Index
            Time stamps; for a panel a MultiIndex (instance levels..., time), each
            series at its own stamps. In any order, past, present or future.
        X : DataFrame or Series, optional
            Controls with a row at every row of ``index``, in any order.

        Returns
        -------
        Series or DataFrame
            Forecasts, with ``index``; a Series where y was one.
        """
        self.check_is_fitted()
        if not isinstance(index, pd.Index):
            raise TypeError(
                f"index must be a pandas Index of time stamps; got {index!r}. Use for "
                "example pd.DatetimeIndex([...])."
            )
        if not isinstance(X, pd.Series | pd.DataFrame):  # whose rows need no order
            X = self._check_X(X=X)
        asked = self._read(self._history.rows_of(index), X)
        return self._like_y(self._framed(index, asked, self._answers.means(asked)))

    @asking
    def predict_quantiles(
        self,
        fh: Horizon = None,
        X: Container = None,
        alpha: float | Sequence[float] | Array | None = None,
    ) -> pd.DataFrame:
        """Forecast quantiles, see `sktime.forecasting.base.BaseForecaster`."""
        if alpha is not None:
            checks.check_probabilities("alpha", alpha)
        return super().predict_quantiles(fh, X, alpha)

    @asking
    def predict_interval(
        self,
        fh: Horizon = None,
        X: Container = None,
        coverage: float | Sequence[float] | Array = 0.90,
    ) -> pd.DataFrame:
        """Forecast intervals, see `sktime.forecasting.base.BaseForecaster`."""
        checks.check_probabilities("coverage", coverage)
        return super().predict_interval(fh, X, coverage)

    @asking
    def sample(
        self,
        fh: Horizon = None,
        n_samples: int | None = None,
        X: pd.DataFrame | None = None,
        noise: bool = True,
    ) -> pd.DataFrame:
        """Draw joint sample paths of the forecast.

        Parameters
        ----------
        fh : int, sequence, Index or ForecastingHorizon, optional
            As in `predict`; or, for a panel, a MultiIndex as in `predict_at`.
        n_samples : int, optional
            Number of paths; None: the parameter ``n_samples``.
        X : DataFrame, optional
            Controls at the horizon, where the model has any.
        noise : bool, default=True
            Whether the observation noise is added.

        Returns
        -------
        DataFrame
            With index ``(sample, *row of the forecast)`` and y's columns.

        Notes
        -----
        Each part of equal probability holds one path: those of another ``n_samples``
        are others.
        """
        self.check_is_fitted()
        X_inner = self._check_X(X=X)
        rows, asked = self._asked(self._check_fh(fh), X_inner)
        n = self.n_samples if n_samples is None else n_samples
        checks.check_count("n_samples", n)
        paths = self._answers.paths(asked, n, noise)
        drawn = {k: self._framed(rows, asked, path) for k, path in enumerate(paths)}
        return pd.concat(drawn, names=["sample", *rows.names])

    def _predict_quantiles(
        self, fh: Horizon, X: Container, alpha: list[float]
    ) -> pd.DataFrame:
        """Quantiles over draws of z0 and the observation noise."""
        rows, asked = self._asked(fh, X)
        table = self._answers.quantiles(asked, self.n_samples, alpha)
        columns = pd.MultiIndex.from_product([self._history.channels, alpha])
        return self._framed(rows, asked, table, columns)

    def _predict_var(
        self, fh: Horizon, X: Container = None, cov: bool = False
    ) -> pd.DataFrame:
        """Variance over draws of z0, plus that of the observation noise."""
        if cov:
            raise ValueError(
                "predict_var gives variances only; got cov=True. For covariances, take "
                "those of draws: sample(fh)."
            )
        rows, asked = self._asked(fh, X)
        return self._framed(rows, asked, self._answers.variances(asked, self.n_samples))

    def _predict_proba(
        self, fh: Horizon, X: Container = None, marginal: bool = True
    ) -> Any:
        """Return skpro's distribution; without skpro, or of a panel, sktime's."""
        if len(self._history.levels) > 1 or find_spec("skpro") is None:
            return super()._predict_proba(fh=fh, X=X, marginal=marginal)
        from skpro.distributions import Empirical

        paths = self.sample(fh, X=X)
        index = paths.loc[0].index  # its order; skpro's own would be that of first use
        return Empirical(paths, time_indep=marginal, index=index, columns=paths.columns)

    @asking
    def score(self, y: Container, X: Container = None, fh: Horizon = None) -> float:
        """Return minus the root mean squared error of the forecasts of ``y``.

        Parameters
        ----------
        y : Series or DataFrame
            Truth; asked at its own stamps. Missing values do not count.
        X : DataFrame, optional
            Controls at ``y``'s stamps, where the model has any.
        fh : optional
            Given, sktime's own score is returned, with a warning: smaller is better.
        """
        if fh is not None:
            warnings.warn(
                "score with fh is sktime's: the mean absolute percentage error, of "
                "which smaller is better. Without fh greater is better.",
                stacklevel=3,
            )
            return float(super().score(y, X=X, fh=fh))
        self.check_is_fitted()
        self._scored()
        residuals = self._residuals(y, X).to_numpy(dtype=float, na_value=np.nan)
        errors = residuals[~np.isnan(residuals)]
        if not len(errors):
            raise ValueError(
                "score needs at least one observed value in y; got none in "
                f"{len(residuals)} rows. Pass the truth of the forecasts."
            )
        return -math.hypot(*errors) / math.sqrt(len(errors))  # no square overflows

    def _asked(self, fh: Horizon, X: Container) -> tuple[pd.Index, Asked]:
        """Return the rows that a horizon asks for, and those that are answered.

        These are fewer where X lacks stamps: sktime's evaluation asks every series of a
        panel at the stamps of all. A MultiIndex is the rows themselves.
        """
        history = self._history
        if isinstance(fh, pd.MultiIndex):
            return fh, self._read(history.rows_of(fh), X)
        steps_or_stamps = fh.to_pandas()
        if fh.is_relative:
            places = history.rows_ahead(steps_or_stamps)
        else:
            places = history.rows_at(steps_or_stamps)
        rows = places.index
        if fh.is_relative or X is None or len(history.levels) == 1:
            return rows, self._read(places, X)
        known = rows.isin(X.index) | history.rows.holds(places.series, places.ticks)
        stamps = rows.get_level_values(-1)
        # a stamp that X has of no series stays: it is said to be unknown
        return rows, self._read(places.where(known | ~stamps.isin(stamps[known])), X)

    def _framed(
        self,
        rows: pd.Index,
        asked: Asked,
        table: Array,
        columns: pd.Index | list[Hashable] | None = None,
    ) -> pd.DataFrame:
        """Return answers as a frame; NaN where a series has no X."""
        columns = self._history.channels if columns is None else columns
        table = table.reshape(len(table), len(columns))
        found = pd.DataFrame(table, asked.index, columns)
        return found if asked.index is rows else found.reindex(rows)
