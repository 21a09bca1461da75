"""What all forecasters share: sktime's contract in continuous time.

What changes a forecaster comes first, then what asks it, which changes nothing.
"""

from __future__ import annotations

import copy
import datetime
import math
import os
import time
import warnings
from collections.abc import Hashable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from sklearn.utils import InputTags, Tags, TargetTags
from sktime.datatypes import convert_to
from sktime.forecasting.base import BaseForecaster
from sktime.forecasting.base._base import _format_moving_cutoff_predictions

from sklode import persistence as saving
from sklode.data import checks
from sklode.data.arrays import Array
from sklode.data.categories import Levels
from sklode.data.history import History, Places, QueryRows, in_order, with_columns
from sklode.data.horizons import as_horizon, check_step
from sklode.data.known import Known, bounds_of
from sklode.data.tables import read_table
from sklode.forecasters.inputs import (
    check_continues,
    read_tables,
    tell_unknown,
    warn_of_steps_between_rows,
)
from sklode.forecasters.protocols import Answers, Container, FittedModel, Horizon
from sklode.forecasters.searched import Searched
from sklode.forecasters.summary import Summary, summary_of
from sklode.forecasters.transaction import asking, changing
from sklode.structural.fit import fit_model
from sklode.structural.model import StructuralModel
from sklode.structural.unknown_x import Unknown

_MTYPES = ["pd.DataFrame", "pd-multiindex", "pd_multiindex_hier"]


class ContinuousForecaster(Searched):
    """What all forecasters share: they read series, and answer at any time.

    A subclass has the parameters of `check_constraints`; ``_check_parameters``;
    ``_architecture``, the settings that a fit which goes on must share; and
    ``_learned``, which returns a model, see `FittedModel`, and the seed of all draws.
    """

    _tags: ClassVar[dict[str, object]] = {
        "authors": ["the sklode developers"],
        "maintainers": ["the sklode developers"],
        "y_inner_mtype": _MTYPES,
        "X_inner_mtype": _MTYPES,
        "capability:multivariate": True,
        "capability:missing_values": True,
        "capability:pred_int": True,
        "capability:update": True,
        "capability:categorical_in_X": True,
        "capability:pretrain": True,
        "pretrain:fitted_params": ["pretrained_"],
        "capability:random_state": True,
        "property:randomness": "derandomized",
        "requires-fh-in-fit": False,
    }
    _config: ClassVar[dict[str, object]] = {"remember_data": False}
    _y = None
    _X = None
    _fit_seconds: float | None = None
    _steps_in_fit: pd.Index | None = None  # the horizon given to fit, of steps
    _parent_callback_ctx = None  # scikit-learn's searches look for it
    _history: History
    _model: FittedModel
    _answers: Answers

    # sktime's own methods; what they do is done wholly or not at all
    fit = changing(BaseForecaster.fit)
    fit_predict = changing(BaseForecaster.fit_predict)
    pretrain = changing(BaseForecaster.pretrain)
    update = changing(BaseForecaster.update)
    update_predict = changing(BaseForecaster.update_predict)
    update_predict_single = changing(BaseForecaster.update_predict_single)
    predict = asking(BaseForecaster.predict)
    predict_var = asking(BaseForecaster.predict_var)
    predict_proba = asking(BaseForecaster.predict_proba)

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        """Refuse names of parameters that there are not."""
        checks.check_names(cls.__name__, kwargs, cls.get_param_names())
        made: Self = super().__new__(cls)
        return made

    def _check_X_y(
        self, X: Container = None, y: Container = None, **kwargs: object
    ) -> tuple[Container, Container]:
        """Check input before sktime does, whose messages name no row and no remedy."""
        y, X, is_compared = read_tables(y, X, has_errors=self.error is not None)
        if self._state == "fitted" and isinstance(y, np.ndarray):
            raise TypeError(
                "after fit y must have time stamps, which an array has not; got an "
                f"array of the shape {y.shape}. Pass a Series or DataFrame whose index "
                f"holds them, as y had {self._history.last[0]} last."
            )
        if isinstance(X, np.ndarray) and X.ndim < 3:
            X = pd.DataFrame(X)  # with the rows that sktime gives an array y
        X_inner, y_inner = super()._check_X_y(X=X, y=y, **kwargs)
        if isinstance(X_inner, pd.DataFrame) and not X_inner.shape[1]:
            X_inner = None  # sktime's pipelines pass an index alone
        if not is_compared and X_inner is not None and y_inner is not None:
            checks.check_controls(X_inner, y_inner.index)  # of other containers
        return X_inner, y_inner

    def _check_X(self, X: Container = None) -> Container:
        """Leave X of a panel to `History.queries`: sktime would walk through series."""
        X = read_table(X, "X")
        if isinstance(X, np.ndarray) and X.ndim < 3 and self._state == "fitted":
            names = self._history.controls
            raise TypeError(
                "X must have the stamps of what is asked, which an array has not; got "
                f"an array of the shape {X.shape}. Pass pd.DataFrame(X, index=stamps, "
                f"columns={names})."
            )
        if isinstance(X, pd.Series | pd.DataFrame) and X.index.nlevels > 1:
            return pd.DataFrame(X) if pd.DataFrame(X).shape[1] else None
        return super()._check_X(X)

    def _check_fh(self, fh: Horizon, pred_int: bool = False) -> Horizon:
        """Check more than sktime does, and leave the caller's horizon as it is."""
        if isinstance(fh, pd.MultiIndex) and self._state == "fitted":
            if len(self._history.levels) > 1:
                return fh  # each series' own stamps, see `_queries`
        if fh is None and self._fh is None and self._state == "fitted":
            raise ValueError(
                "fh must say what to forecast; got none, here or in fit. Pass it, for "
                "example predict(fh=range(1, 13)) for the next 12 steps, or ask at "
                "time stamps by predict_at(index)."
            )
        steps = self._history.steps if self._state == "fitted" else []
        # a method of sktime that asks others passes on the horizon that is kept
        is_given = fh is not None and fh is not self._fh and self._state == "fitted"
        checked = super()._check_fh(as_horizon(fh, self._cutoff, steps), pred_int)
        # sktime's evaluation gives fit and predict the same steps
        if is_given and self._steps_in_fit is not None and checked.is_relative:
            is_given_twice = checked.to_pandas().equals(self._steps_in_fit)
            if is_given_twice and self._history.is_irregular:
                warn_of_steps_between_rows()
        return checked

    def set_params(self, **params: object) -> Self:
        """Set parameters and forget what `fit` has learned, not what `pretrain` has."""
        checks.check_names(type(self).__name__, params, self.get_param_names())
        changed: Self = self._set_params_at("pretrained", params)
        return changed

    def _pretrain(self, y: Container, X: Container = None, fh: Horizon = None) -> Self:
        """Learn from a panel, from what was pretrained on where there is any."""
        if y is None:
            raise TypeError("pretrain needs a panel y; got None. Pass a DataFrame.")
        _, self.pretrained_, _ = self._begun(y, X, fh, "pretrain")
        return self

    def _fit(self, y: Container, X: Container, fh: Horizon) -> Self:
        """Learn from y, beginning from what was pretrained."""
        purpose = "fine-tune" if hasattr(self, "pretrained_") else "fit"
        start = time.perf_counter()
        self._history, model, self._predict_seed = self._begun(y, X, fh, purpose)
        if fh is not None and fh.is_relative:
            self._steps_in_fit = fh.to_pandas()
        self._set_model(model)
        self._fit_seconds = time.perf_counter() - start
        if self._answers.leaves_weeks_open:
            warnings.warn(
                "holidays of weeks should tell whether a week ends on its stamp or "
                f"begins there; got weekly stamps, {self._history.rows.named(0)} the "
                "first, which show neither. Weeks that end there are taken. Use a "
                "PeriodIndex: y.index = y.index.to_period('W-SUN') of weeks that end "
                "on Sundays.",
                UserWarning,
                stacklevel=2,
            )
        return self

    def _begun(
        self, y: Container, X: Container, fh: Horizon, purpose: str
    ) -> tuple[History, FittedModel, int]:
        """Return new series, the model that is learned from them, and its seed."""
        self._check_parameters()
        start = getattr(self, "pretrained_", None)
        history = self._history_of(y, X, start)
        if start is not None:
            self._check_continues(start, history)
        check_step(fh, self._cutoff, history.steps)
        if not self._fills_X:
            history.check_all_seen()
        if purpose != "fine-tune":
            history.observations.check_channels(history.channels)
        return history, *self._learned(history, fh, start, purpose)

    def _history_of(
        self, y: Container, X: Container, start: FittedModel | None
    ) -> History:
        """Return series as a model reads them, that of ``start`` if it goes on."""
        categories: dict[Hashable, Levels] | None = None
        if start is not None:
            names_of_y, names_of_X, levels = start.columns
            categories = dict(levels)
            y, X = in_order(y, names_of_y, "y"), in_order(X, names_of_X, "X")
        channels = list(y.columns if y.shape[1] > 1 else self._get_varnames())
        history = History.of(
            y,
            X,
            freq=self.freq,
            channels=channels,
            clean=self.clean,
            error=self.error,
            categories=categories,
        )
        bounds_of(self.bounds, history)  # also where bounds are those of a kept model
        return self._filled(history, getattr(start, "structural", None), {})

    def _update(
        self, y: Container, X: Container = None, update_params: bool = True
    ) -> Self:
        """Take up observations; with ``update_params`` learn from all once more."""
        history = self._history.extended(y, X, self.freq)
        if not self._fills_X:
            history.check_all_seen()
        structural = getattr(self._model, "structural", None)
        said = self._history.unknown
        history = self._filled(history, structural, said)
        bounds_of(self.bounds, history)  # new values too lie within them
        self._history = history
        self._set_cutoff(history.cutoff(self.cutoff))
        model = self._model
        if update_params:
            self._check_parameters()
            model, _ = self._learned(history, None, model, "update")
        self._set_model(model)
        return self

    def _filled(
        self,
        history: History,
        structural: StructuralModel | None,
        said: Mapping[Hashable, object] | None,
    ) -> History:
        """Return a history with what X may have been; ``structural`` says its effect.

        What is not known is said, unless it was ``said`` before.
        """
        missing = history.unknown
        if not missing:
            return history
        if missing != said:
            n_rows = len(history.given.ticks)
            tell_unknown(missing, n_rows, may_be=self._fills_X)
        unknown = Unknown(history, 0)
        if structural is None:  # of all rows as they are
            structural = fit_model(unknown.seen.rows, known=Known.of(self, history))
        return unknown.learned(structural)

    def _check_continues(self, start: FittedModel, history: History) -> None:
        """Check that a fit can go on from an earlier model."""
        before = {
            "kind of index": start.clock,
            "number of columns of y": start.sizes[0],
            "columns of X": start.columns[1],
        }
        now = {
            "kind of index": history.observations.clock,
            "number of columns of y": history.observations.sizes[0],
            "columns of X": history.controls,
        }
        check_continues(start.architecture | before, self._architecture | now)

    def _set_model(self, model: FittedModel) -> None:
        """Take over a model, and have it answer for the series of `_history`."""
        before = vars(self).get("_answers")
        self._model = model
        self._answers = model.answers(self._history, self._predict_seed, before)
        for name, value in model.attributes(self._history.channels).items():
            setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        """Answer to ``level_``, the earlier name of `components_`, with a warning."""
        if name == "level_":
            warnings.warn(
                "level_ is now called components_: the earlier name goes in 0.5.",
                FutureWarning,
                stacklevel=2,
            )
            return self.components_
        if name == "components_":  # whose own error Python forgets
            raise AttributeError(
                f"{type(self).__name__} has components_ after fit with a structural "
                "model; call fit."
            )
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def _update_predict_single(
        self, y: Container, fh: Horizon, X: Container = None, update_params: bool = True
    ) -> Any:
        """Update and forecast; sktime's own would forget the type of ``y``."""
        self._update(y, X, update_params)
        return self._predict(fh, X)

    def _predict_moving_cutoff(
        self,
        y: Container,
        cv: Any,
        X: Container,
        update_params: bool,
        reset_forecaster: bool,
    ) -> Any:
        """Update and forecast in turn; sktime's own loop needs a frequency."""
        forecaster = copy.deepcopy(self) if reset_forecaster else self
        y = self._like_y(y)
        forecasts, cutoffs = [], []
        for seen, ahead in cv.split(y):
            forecaster.update(y.iloc[seen], X, update_params)
            if cv.fh is None:  # it asks at the rows of the fold's second part
                forecast = forecaster.predict_at(y.index[ahead], X)
            else:
                forecast = forecaster.predict(cv.fh, X)
            forecasts.append(forecast)
            cutoffs.append(forecaster.cutoff)
        return _format_moving_cutoff_predictions(forecasts, cutoffs)

    def _reaching(self, index: Horizon, X: Container) -> tuple[History, Answers]:
        """Return the history and what answers, of series without y as well.

        These are series of X, or of an index, that fit has not seen.
        """
        if not self._fills_X:
            return self._history, self._answers
        index = index if isinstance(index, pd.MultiIndex) else None
        history = self._history.with_series(index, X)
        if history is self._history:
            return history, self._answers
        return history, self._model.answers(history, self._predict_seed, None)

    def _read(self, history: History, places: Places, X: Container) -> QueryRows:
        """Read rows that are asked for, and X."""
        queries = history.queries(places, X)
        tell_unknown(queries.unknown, len(places.index), may_be=self._fills_X)
        return queries

    @property
    def _fills_X(self) -> bool:
        """Whether X that is not known is forecast itself; else it is refused."""
        return True

    @property
    def components_(self) -> pd.DataFrame:
        """What was found of each part, read when it is asked for: it takes a while."""
        answers: Answers | None = vars(self).get("_answers")
        found = None if answers is None else answers.description
        if found is None:
            raise AttributeError
        return found

    def _parts(self, index: pd.Index, X: Container) -> pd.DataFrame:
        """Return what `sklode.plotting.plot_components` draws, (channel, part)."""
        history = self._history
        return self._answers.parts(history.queries(history.rows_of(index), X))

    def _predict(self, fh: Horizon, X: Container = None) -> pd.DataFrame:
        """Forecast at the horizon: the emission at the mean of q(z0)."""
        rows, queries, answers = self._queries(fh, X)
        return self._framed(rows, queries, answers.means(queries))

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
        queries = self._read(self._history, self._history.rows_of(truth.index), X_inner)
        residuals = truth - self._answers.means(queries)
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

    def _twin(self) -> ContinuousForecaster:
        """Return a forecaster whose forecasts are as good, and come soon."""
        return self

    def summary(self, origins: int = 10, horizon: int | None = None) -> Summary:
        """Return what was seen and chosen, and how good forecasts are, as text.

        Parameters
        ----------
        origins : int, default=10
            Number of origins at the end of the series from which a clone, fitted on the
            rows before, forecasts. The more rows there are, from some six hundred on,
            the fewer origins it is fitted at, and updated in between; of thousands, or
            where a network counts, at one or two. Where no network counts, only the
            structural model is fitted. Where a simple method was better by more than
            the standard error of the difference, up to two other settings are tried.
            0: none.
        horizon : int, optional
            Number of rows that are forecast from an origin. None: as `backtest` has it.

        Returns
        -------
        Summary
            A dict of text by topic, printed as lines and in a notebook as a table.

        See Also
        --------
        sklode.model_selection.backtest : all errors, origin by origin.
        """
        self.check_is_fitted()
        checks.check_count("origins", origins, least=0)
        return summary_of(self, self._twin(), origins, horizon)

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
        X = self._check_stamps(index, X)
        history, answers = self._reaching(index, X)
        queries = self._read(history, history.rows_of(index), X)
        return self._like_y(self._framed(index, queries, answers.means(queries)))

    def _check_stamps(self, index: pd.Index, X: Container) -> Container:
        """Check an index of stamps; return X there, as it is read."""
        if not isinstance(index, pd.Index):
            stamps = "pd.DatetimeIndex(stamps)"
            if isinstance(index, pd.Series | pd.DataFrame):
                stamps = "table.index"
            elif isinstance(index, str | datetime.date | np.datetime64):
                stamps = "pd.DatetimeIndex([stamp])"
            raise TypeError(
                "index must be a pandas Index of time stamps; got "
                f"{type(index).__name__}. Use index={stamps}; for steps "
                "predict(fh=[1, 2, 3])."
            )
        if isinstance(X, pd.Series | pd.DataFrame):  # whose rows need no order
            return read_table(X, "X")
        return self._check_X(X=X)

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
        rows, queries, answers = self._queries(self._check_fh(fh), X_inner)
        n = self.n_samples if n_samples is None else n_samples
        checks.check_count("n_samples", n)
        paths = answers.paths(queries, n, noise)
        drawn = {k: self._framed(rows, queries, path) for k, path in enumerate(paths)}
        return pd.concat(drawn, names=["sample", *rows.names])

    def _predict_quantiles(
        self, fh: Horizon, X: Container, alpha: list[float]
    ) -> pd.DataFrame:
        """Quantiles over draws of z0 and the observation noise."""
        rows, queries, answers = self._queries(fh, X)
        table = answers.quantiles(queries, self.n_samples, alpha)
        columns = pd.MultiIndex.from_product([self._history.channels, alpha])
        return self._framed(rows, queries, table, columns)

    def _predict_var(
        self, fh: Horizon, X: Container = None, cov: bool = False
    ) -> pd.DataFrame:
        """Variance over draws of z0, plus that of the observation noise."""
        if cov:
            raise ValueError(
                "predict_var gives variances only; got cov=True. For covariances, take "
                "those of draws: sample(fh)."
            )
        rows, queries, answers = self._queries(fh, X)
        return self._framed(rows, queries, answers.variances(queries, self.n_samples))

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
        found = self._residuals(y, X)
        self._scored(found.index)
        residuals = found.to_numpy(dtype=float, na_value=np.nan)
        errors = residuals[~np.isnan(residuals)]
        if not len(errors):
            raise ValueError(
                "score needs at least one observed value in y; got none in "
                f"{len(residuals)} rows. Pass the truth of the forecasts."
            )
        return -math.hypot(*errors) / math.sqrt(len(errors))  # no square overflows

    def _queries(
        self, fh: Horizon, X: Container
    ) -> tuple[pd.Index, QueryRows, Answers]:
        """Return the rows that a horizon asks for, those answered, and what answers.

        These are fewer where X lacks stamps: sktime's evaluation asks every series of a
        panel at the stamps of all. A MultiIndex is the rows themselves.
        """
        history, answers = self._reaching(fh, X)
        if isinstance(fh, pd.MultiIndex):
            return fh, self._read(history, history.rows_of(fh), X), answers
        steps_or_stamps = fh.to_pandas()
        if fh.is_relative:
            places = history.rows_ahead(steps_or_stamps)
        else:
            places = history.rows_at(steps_or_stamps)
        rows = places.index
        if fh.is_relative or X is None or len(history.levels) == 1:
            return rows, self._read(history, places, X), answers
        known = rows.isin(X.index) | history.rows.holds(places.series, places.ticks)
        stamps = rows.get_level_values(-1)
        # a stamp that X has of no series stays: it is said to be unknown
        places = places.where(known | ~stamps.isin(stamps[known]))
        return rows, self._read(history, places, X), answers

    def _framed(
        self,
        rows: pd.Index,
        queries: QueryRows,
        table: Array,
        columns: pd.Index | list[Hashable] | None = None,
    ) -> pd.DataFrame:
        """Return answers as a frame; NaN where a series has no X."""
        columns = self._history.channels if columns is None else columns
        table = table.reshape(len(table), len(columns))
        found = pd.DataFrame(table, queries.index, columns)
        return found if queries.index is rows else found.reindex(rows)

    def save_weights(self, path: str | os.PathLike[str]) -> None:
        """Write the forecaster to a file without executable parts.

        Parameters, weights and the series that it forecasts from, in the layout of
        safetensors (the extra ``save``). A file that is there is replaced once the new
        one is complete.

        Raises
        ------
        sktime.exceptions.NotFittedError
            If there is nothing to write.
        sklode.WeightsFileError
            If a key, a column's name or a parameter is of a kind that is not stored.
        """
        if self.state == "new":
            self.check_is_fitted("save_weights")
        saving.save(path, self)

    @classmethod
    def load_weights(cls, path: str | os.PathLike[str]) -> Self:
        """Return the forecaster that `save_weights` wrote; nothing in it is executed.

        Raises
        ------
        sklode.WeightsFileError
            If the file is none of these, damaged, or of another class or version.
        """
        return saving.load(path, cls)

    def __sklearn_tags__(self) -> Tags:
        """Describe the forecaster to scikit-learn's searches."""
        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            input_tags=InputTags(two_d_array=True, allow_nan=True),
        )
