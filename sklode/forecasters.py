"""The three forecasters: sktime's contract over the Latent ODE."""

from __future__ import annotations

import copy
import functools
import math
import os
import warnings
from collections.abc import Callable
from inspect import cleandoc
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
import pandas as pd
import torch
from sklearn.utils import InputTags, Tags, TargetTags, check_random_state
from sktime.datatypes import convert_to
from sktime.forecasting.base import BaseForecaster, ForecastingHorizon
from sktime.forecasting.base._base import _format_moving_cutoff_predictions

from sklode.data import checks
from sklode.data.history import History, as_channels, in_order
from sklode.data.horizons import as_horizon, steps_ahead
from sklode.data.ticks import TIMELIKE
from sklode.prediction import saving
from sklode.prediction.answers import Answers
from sklode.prediction.calibration import Calibration
from sklode.prediction.model import FittedModel
from sklode.prediction.prior import STARTS
from sklode.training.loop import HISTORY_COLUMNS
from sklode.training.parallel import in_common
from sklode.training.parameters import (
    ATTRIBUTES,
    PARAMETERS,
    Settings,
    check_parameters,
    resolve_device,
)
from sklode.training.plan import Purpose, Run, plan
from sklode.training.report import Reporter

__all__ = [
    "LatentODEForecaster",
    "LatentODELSTMForecaster",
    "LatentODERNNForecaster",
]

_MTYPES = ["pd.DataFrame", "pd-multiindex", "pd_multiindex_hier"]


_Method = TypeVar("_Method", bound=Callable[..., Any])


def _on_a_copy(method: _Method, writes: tuple[str, ...] | None = None) -> _Method:
    """Return a method that changes its object only where it ends well.

    sktime's own methods write what they read of the input, such as the cutoff, before
    the forecaster has seen whether it can be used. So they work on a copy, which then
    takes the object's place; a model is never changed in place. A method that several
    threads may call at once takes over only the attributes that it names in ``writes``.
    """

    @functools.wraps(method)
    def whole(self: Any, *args: Any, **kwargs: Any) -> Any:
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        for name in _CHANGED_IN_PLACE & vars(self).keys():
            vars(twin)[name] = copy.copy(vars(self)[name])
        try:
            result = method(twin, *args, **kwargs)
        except BaseException:
            if twin.warm_start and twin._run is not None:
                self._broken_off = twin._run.so_far() or self._broken_off
            raise
        changed = vars(twin)
        if writes is None:
            self.__dict__ = changed.copy()  # at once: nothing can come between
        else:
            vars(self).update({n: changed[n] for n in writes if n in changed})
        return self if result is twin else result

    return cast(_Method, whole)


_keeping_horizon = functools.partial(_on_a_copy, writes=("_fh",))
"""Of methods that only ask: a refused horizon is not that of the next call."""

_CHANGED_IN_PLACE = {"_converter_store_y", "_pretrained_attrs"}
"""What sktime changes so: how to give answers in y's type, what was pretrained."""


class _LatentODEForecaster(BaseForecaster):
    """What the three forecasters share: all but the encoder.

    Attributes of every subclass: ``encoder`` names the module of `sklode.nn`.
    """

    encoder: ClassVar[str]

    _tags: ClassVar[dict[str, Any]] = {
        "authors": ["the sklode developers"],
        "maintainers": ["the sklode developers"],
        "y_inner_mtype": _MTYPES,
        "X_inner_mtype": _MTYPES,
        "capability:multivariate": True,
        "capability:missing_values": True,
        "capability:pred_int": True,
        "capability:update": True,
        "capability:categorical_in_X": False,
        "capability:pretrain": True,
        "pretrain:fitted_params": ["pretrained_"],
        "capability:random_state": True,
        "property:randomness": "derandomized",
        "requires-fh-in-fit": False,
    }
    _config: ClassVar[dict[str, Any]] = {"remember_data": False}
    _y = None
    _X = None
    _parent_callback_ctx = None  # scikit-learn's searches look for it
    _run: Run | None = None  # while `fit` trains
    _broken_off: FittedModel | None = None  # what a fit that raised was at
    _is_trained = False  # while `load_weights` lets sktime fit it

    def __init__(
        self,
        hidden_size: int = 32,
        latent_size: int = 8,
        field_width: int = 32,
        field_depth: int = 1,
        emission_width: int = 64,
        activation: str = "tanh",
        window_length: int | None = None,
        horizon: int | None = None,
        thinning: float = 0.5,
        normalize: str | None = "auto",
        method: str = "rk4",
        step_size: float = 1.0,
        rtol: float = 1e-3,
        atol: float = 1e-4,
        adjoint: bool = False,
        clip_norm: float | str | None = 1.0,
        kl_weight: float = 1.0,
        observation_noise: float | None = None,
        max_epochs: int | None = None,
        batch_size: int = 64,
        lr: float = 0.005,
        weight_decay: float = 0.0,
        guard: bool = False,
        early_stopping: bool = False,
        n_iter_no_change: int = 50,
        finetune_epochs: int | None = None,
        n_samples: int = 100,
        freq: str | pd.DateOffset | pd.Timedelta | None = None,
        engine: str = "auto",
        device: str | torch.device = "auto",
        random_state: int | np.random.RandomState | None = None,
        warm_start: bool = False,
        verbose: int = 0,
        callbacks: list[Any] | tuple[Any, ...] | None = None,
    ) -> None:
        self.hidden_size = hidden_size
        self.latent_size = latent_size
        self.field_width = field_width
        self.field_depth = field_depth
        self.emission_width = emission_width
        self.activation = activation
        self.window_length = window_length
        self.horizon = horizon
        self.thinning = thinning
        self.normalize = normalize
        self.method = method
        self.step_size = step_size
        self.rtol = rtol
        self.atol = atol
        self.adjoint = adjoint
        self.clip_norm = clip_norm
        self.kl_weight = kl_weight
        self.observation_noise = observation_noise
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.guard = guard
        self.early_stopping = early_stopping
        self.n_iter_no_change = n_iter_no_change
        self.finetune_epochs = finetune_epochs
        self.n_samples = n_samples
        self.freq = freq
        self.engine = engine
        self.device = device
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.callbacks = callbacks
        super().__init__()

    def _check_X_y(
        self, X: Any = None, y: Any = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Check input before sktime does, whose messages name no row and no remedy."""
        for data, name in ((y, "y"), (X, "X")):
            if data is not None:
                checks.check_table(data, name)
            if isinstance(data, pd.Series | pd.DataFrame):
                checks.check_index(data.index, name)
        checks.check_rows(y)
        if self._state != "fitted":
            checks.warn_of_times_in_values(y)
        index = y.index if isinstance(y, pd.Series | pd.DataFrame) else None
        if isinstance(y, np.ndarray) and y.ndim < 3:
            index = pd.RangeIndex(len(y))
        if index is not None and isinstance(X, pd.Series | pd.DataFrame):
            checks.check_controls(X, index)
        elif index is not None and isinstance(X, np.ndarray):
            if not index.isin(pd.RangeIndex(len(X))).all():
                raise TypeError(
                    "X must have the time stamps of y; got an array. Use "
                    "pd.DataFrame(X, index=y.index), or pass arrays for both."
                )
        X_inner, y_inner = super()._check_X_y(X=X, y=y, **kwargs)
        if isinstance(X_inner, pd.DataFrame) and not X_inner.shape[1]:
            X_inner = None  # sktime's pipelines pass an index alone
        return X_inner, y_inner

    def _check_fh(self, fh: Any, pred_int: bool = False) -> Any:
        """Take offsets too, and leave the caller's horizon as it is."""
        if fh is None and self._fh is None and self._state == "fitted":
            raise ValueError(
                "fh must say what to forecast; got none, here or in fit. Pass it, for "
                "example predict(fh=range(1, 13)) for the next 12 steps, or ask at "
                "time stamps by predict_at(index)."
            )
        return super()._check_fh(as_horizon(fh, self._cutoff), pred_int)

    fit = _on_a_copy(BaseForecaster.fit)
    pretrain = _on_a_copy(BaseForecaster.pretrain)
    update = _on_a_copy(BaseForecaster.update)
    update_predict = _on_a_copy(BaseForecaster.update_predict)
    predict = _keeping_horizon(BaseForecaster.predict)
    predict_var = _keeping_horizon(BaseForecaster.predict_var)
    predict_proba = _keeping_horizon(BaseForecaster.predict_proba)

    def reset(self) -> Any:
        """Return to the state after construction; ``warm_start`` keeps the model."""
        # what a fit was broken off at is later than the model that it began from
        latest = self._broken_off or getattr(self, "_model", None)
        super().reset()
        self._broken_off = latest if self.warm_start else None
        return self

    def set_params(self, **params: Any) -> Any:
        """Set parameters and forget what `fit` has learned, not what `pretrain` has."""
        return self._set_params_at("pretrained", params)

    def checkpoint(self) -> Any:
        """Return a fitted copy: in a callback, of the `fit` that is underway.

        It has the best weights so far and calibrated spreads, and under ``warm_start``
        its `fit` goes on from there. Elsewhere it is a plain copy.

        Raises
        ------
        sktime.exceptions.NotFittedError
            Before the first epoch of a first fit has ended, or without any.
        """
        run = self._run
        model = None if run is None else run.so_far()
        if run is None or model is None:
            self.check_is_fitted("checkpoint")
            return copy.deepcopy(self)
        run.calibrate(model)
        fitted = copy.copy(self)
        fitted._broken_off = None
        fitted._set_model(model)
        fitted._state = "fitted"
        return fitted

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled and copied: not a training that is underway."""
        return {name: value for name, value in vars(self).items() if name != "_run"}

    def _pretrain(
        self, y: pd.DataFrame, X: pd.DataFrame | None = None, fh: Any = None
    ) -> _LatentODEForecaster:
        """Train on a panel, from the pretrained weights on where there are any."""
        settings = Settings.of(self)
        if y is None:
            raise TypeError("pretrain needs a panel y; got None. Pass a DataFrame.")
        rng = in_common(check_random_state(self.random_state))
        start = getattr(self, "pretrained_", None)
        history = self._read(y, X, start)
        history.observations.check_channels(history.channels)
        ahead = steps_ahead(fh)
        run = plan(history.observations, settings, rng, ahead, start, "pretrain")
        run.model.columns = history.channels, history.controls
        self.pretrained_ = run.train(self._reporter())
        self._broken_off = None  # of a fit before
        return self

    _pretrain_update = _pretrain

    def _fit(
        self, y: pd.DataFrame, X: pd.DataFrame | None, fh: ForecastingHorizon | None
    ) -> _LatentODEForecaster:
        """Train on y, or fine-tune a copy of the pretrained model on it."""
        if self._is_trained:
            return self
        settings = Settings.of(self)
        rng = in_common(check_random_state(self.random_state))
        start = self._broken_off if self.warm_start else None
        purpose: Purpose = "fit"
        pretrained = getattr(self, "pretrained_", None)
        if pretrained is not None and (start is None or start.fine_tunes):
            start, purpose = start or pretrained, "fine-tune"
        self._history = self._read(y, X, start)
        observations = self._history.observations
        if start is None:
            observations.check_channels(self._history.channels)
        run = plan(observations, settings, rng, steps_ahead(fh), start, purpose)
        run.model.columns = self._history.channels, self._history.controls
        self._run, self._predict_seed = run, run.terms.predict_seed
        self._set_model(run.train(self._reporter()))
        self._run = self._broken_off = None
        return self

    def _read(
        self, y: pd.DataFrame, X: pd.DataFrame | None, start: FittedModel | None
    ) -> History:
        """Return the series; in the columns of a model that a training starts from."""
        if start is not None:
            y, X = in_order(y, start.columns[0]), in_order(X, start.columns[1])
        channels = list(y.columns if y.shape[1] > 1 else self._get_varnames())
        of_array = self._y_metadata["mtype"] == "np.ndarray"
        history = History.of(y, X, self.freq, channels, of_array)
        if start is not None:
            start.check_accepts(history.observations, self)
        return history

    def _set_model(self, model: FittedModel) -> None:
        self._model = model
        self.network_ = model.network
        history = pd.DataFrame(model.rows, columns=list(HISTORY_COLUMNS))
        self.history_ = history.set_index("epoch")
        self.n_epochs_ = len(model.rows)
        self.best_epoch_ = model.best_epoch
        self.window_length_ = model.window_length
        self.horizon_ = model.horizon
        self.location_ = model.normalisation.location
        self.scale_ = model.normalisation.scale
        unit = model.time_unit
        timelike = model.clock == TIMELIKE
        self.time_unit_ = pd.Timedelta(round(unit), unit="ns") if timelike else unit
        self.longest_gap_ = model.longest_gap
        self.engine_ = model.network.engines()
        self._answers = Answers(model, self._history, self._predict_seed)
        channels = self._history.channels
        spreads = model.calibration or Calibration.none(len(channels))
        lags = pd.Index(spreads.lags, name="time since the last observation")
        self.interval_scale_ = pd.DataFrame(spreads.scales, lags, channels)

    def _update(
        self, y: pd.DataFrame, X: pd.DataFrame | None = None, update_params: bool = True
    ) -> _LatentODEForecaster:
        """Take up observations; with ``update_params`` continue training on all."""
        rows = self._continued(y)
        if X is not None and rows is not y:
            X = self._at_rows(X.to_numpy(), rows.index)
        self._history = self._history.extended(rows, X, self.freq)
        self._set_cutoff(self._history.cutoff(self.cutoff))
        observations, model = self._history.observations, self._model
        # a guard that kept the level is not undone by a training without one
        is_kept = self.guard and model.network.emission.is_silent
        if update_params and not is_kept:
            settings = Settings.of(self)
            rng = in_common(check_random_state(self.random_state))
            run = plan(observations, settings, rng, None, model, "update")
            model = run.train(self._reporter())
        self._set_model(model)
        return self

    def _predict(
        self, fh: ForecastingHorizon, X: pd.DataFrame | None = None
    ) -> pd.DataFrame:
        """Forecast at the horizon: the emission at the mean of q(z0)."""
        rows, known = self._asked(fh, X)
        return self._answers.means(rows[known], X).reindex(rows)

    @_on_a_copy
    def update_predict_single(
        self, y: Any = None, fh: Any = None, X: Any = None, update_params: bool = True
    ) -> Any:
        """Update and forecast; sktime's own would forget the type of ``y``."""
        self.check_is_fitted()
        self._check_fh(fh)  # before a training
        return self.update(y, X, update_params).predict(X=X)

    def _predict_moving_cutoff(
        self,
        y: pd.DataFrame,
        cv: Any,
        X: pd.DataFrame | None = None,
        update_params: bool = True,
        reset_forecaster: bool = True,
    ) -> Any:
        """Update and forecast in turn; sktime's own loop needs a frequency.

        A splitter without ``fh`` asks at the rows of each fold's second part.
        """
        forecaster = copy.deepcopy(self) if reset_forecaster else self
        y = self._like_y(self._continued(y))
        forecasts, cutoffs = [], []
        for seen, ahead in cv.split(y):
            forecaster.update(y.iloc[seen], X, update_params)
            if cv.fh is None:
                forecast = self._like_y(forecaster.predict_at(y.index[ahead], X))
            else:
                forecast = forecaster.predict(cv.fh, X)
            forecasts.append(forecast)
            cutoffs.append(forecaster.cutoff)
        return _format_moving_cutoff_predictions(forecasts, cutoffs)

    def _like_y(self, frame: pd.DataFrame) -> Any:
        """Return a Series where the y that was passed last was one."""
        if self._y_metadata["mtype"] != "pd.Series":
            return frame
        return convert_to(
            frame, "pd.Series", store=self._converter_store_y, store_behaviour="freeze"
        )

    def _continued(self, y: pd.DataFrame) -> pd.DataFrame:
        """Return y with the rows after the last one seen, where it was an array."""
        if self._y_metadata["mtype"] != "np.ndarray":
            return y
        if not self._history.of_array:
            raise TypeError(
                "update takes an array only where fit got one; got an array, and y had "
                f"stamps such as {self._history.last[0]}. Pass a Series or DataFrame "
                "with its stamps."
            )
        return y.set_axis(self._history.rows_ahead(pd.RangeIndex(1, len(y) + 1)))

    def _at_rows(self, X: np.ndarray, index: pd.Index) -> pd.DataFrame:
        """Return an array of controls with the rows that it was given for."""
        if len(X) != len(index):
            raise ValueError(
                "X must have a row for each row of y where both are arrays; got "
                f"{len(X)} and {len(index)}. Pass the rows of X that belong to y."
            )
        return pd.DataFrame(X, index, self._history.controls)

    def _residuals(self, y: Any, X: Any) -> pd.DataFrame:
        """Return observations, in any container of sktime, minus their forecasts."""
        _, frame = self._check_X_y(y=y)
        X_inner = self._check_X(X=X)
        if self._y_metadata["mtype"] == "np.ndarray":
            frame = frame.set_axis(self._history.rows_of(frame.to_numpy()))
            if isinstance(X, np.ndarray):
                X_inner = self._at_rows(X_inner.to_numpy(), frame.index)
        truth = as_channels(frame, self._history.channels)
        checks.check_values(truth)
        residuals = truth - self._answers.means(truth.index, X_inner)
        is_lone = truth.shape[1] == 1  # which may have another name than in fit
        return residuals.set_axis(frame.columns, axis=1) if is_lone else residuals

    @_keeping_horizon
    def predict_residuals(self, y: Any = None, X: Any = None) -> Any:
        """Return observations minus their forecasts.

        Parameters
        ----------
        y : Series, DataFrame or other sktime container, optional
            Observations at any stamps; None: all that fit and update have seen. An
            array has the rows that `score` says.
        X : DataFrame, optional
            Controls at ``y``'s stamps that the history does not hold, where the model
            has any.

        Returns
        -------
        object like ``y``
            Residuals; NaN where nothing was observed.
        """
        self.check_is_fitted()
        if y is None:
            y = self._like_y(self._history.frame())
        residuals = self._residuals(y, X)
        container = self._y_metadata["mtype"]
        if container == "np.ndarray":
            return residuals.to_numpy().reshape(np.shape(y))
        return convert_to(
            residuals,
            container,
            store=self._converter_store_y,
            store_behaviour="freeze",
        )

    def predict_at(
        self, index: pd.Index, X: pd.DataFrame | None = None
    ) -> pd.DataFrame:
        """Forecast at exactly the rows of an index.

        Parameters
        ----------
        index : Index
            Time stamps; for a panel a MultiIndex (instance levels..., time), each
            series at its own stamps. In any order, past, present or future.
        X : DataFrame or Series, optional
            Controls with a row at every row of ``index``, in any order, where the model
            has any.

        Returns
        -------
        DataFrame
            Forecasts, with ``index`` and y's columns.
        """
        self.check_is_fitted()
        if not isinstance(index, pd.Index):
            raise TypeError(
                f"index must be a pandas Index of time stamps; got {index!r}. Use for "
                "example pd.DatetimeIndex([...])."
            )
        # sktime's check of a table would walk through every series
        is_table = isinstance(X, pd.Series | pd.DataFrame)
        X = pd.DataFrame(X) if is_table else self._check_X(X=X)
        return self._answers.means(index, X)

    @_keeping_horizon
    def predict_quantiles(
        self, fh: Any = None, X: Any = None, alpha: Any = None
    ) -> pd.DataFrame:
        """Forecast quantiles, see `sktime.forecasting.base.BaseForecaster`."""
        if alpha is not None:
            checks.check_probabilities("alpha", alpha)
        return super().predict_quantiles(fh, X, alpha)

    @_keeping_horizon
    def predict_interval(
        self, fh: Any = None, X: Any = None, coverage: Any = 0.90
    ) -> pd.DataFrame:
        """Forecast intervals, see `sktime.forecasting.base.BaseForecaster`."""
        checks.check_probabilities("coverage", coverage)
        return super().predict_interval(fh, X, coverage)

    @_keeping_horizon
    def sample(
        self,
        fh: Any = None,
        n_samples: int | None = None,
        X: pd.DataFrame | None = None,
        noise: bool = True,
    ) -> pd.DataFrame:
        """Draw joint sample paths of the forecast.

        Parameters
        ----------
        fh : int, sequence, Index or ForecastingHorizon, optional
            As in `predict`.
        n_samples : int, optional
            Number of paths; None: the parameter ``n_samples``.
        X : DataFrame, optional
            Controls at the horizon, where the model has any.
        noise : bool, default=True
            Whether the observation noise is added to the smooth trajectories.

        Returns
        -------
        DataFrame
            With index ``(sample, *row of the forecast)`` and y's columns.

        Notes
        -----
        Deviations of the trajectories from their mean, and the noise, are multiplied by
        ``interval_scale_``. Paths are drawn together, so that each part of equal
        probability holds one: those of another ``n_samples`` are others.
        """
        self.check_is_fitted()
        X_inner = self._check_X(X=X)
        rows, known = self._asked(self._check_fh(fh), X_inner)
        n = self.n_samples if n_samples is None else n_samples
        checks.check_count("n_samples", n, 1)
        columns = self._history.channels
        paths = np.full((n, len(rows), len(columns)), np.nan)
        paths[:, known] = self._answers.paths(rows[known], X_inner, n, noise)
        return _as_paths(paths, rows, columns)

    def sample_prior(
        self,
        index: pd.Index,
        n_samples: int | None = None,
        X: pd.DataFrame | None = None,
        noise: bool = True,
        start: str = "windows",
        random_state: int | np.random.RandomState | None = None,
    ) -> pd.DataFrame:
        """Draw new series that look like those that fit and update have seen.

        They continue none of them: each begins, at the first stamp, as a training
        window does that is chosen at random, with that window's level.

        Parameters
        ----------
        index : Index
            Increasing time stamps of the kind of y's, without series' keys. Only the
            time since the first one counts.
        n_samples, noise
            As in `sample`.
        X : DataFrame, optional
            Controls of the new series, with a row at every stamp of ``index``, where
            the model has any.
        start : {"windows", "normal"}, default="windows"
            Where z0 is drawn from. "windows": the chosen window's q(z0), so that all
            draws together are from the aggregate posterior, what the decoder was
            trained on; "normal": the prior N(0, I) of the objective, which these
            posteriors need not cover, nor keep to.
        random_state : int, RandomState or None, default=None
            None: the same series at every call, as in `sample`.

        Returns
        -------
        DataFrame
            With index (sample, time) and y's columns, in y's units.
        """
        self.check_is_fitted()
        checks.check_choice("start", start, STARTS)
        n = self.n_samples if n_samples is None else n_samples
        checks.check_count("n_samples", n, 1)
        seed = None
        if random_state is not None:
            seed = int(check_random_state(random_state).randint(2**31 - 1))
        paths = self._answers.new_series(index, X, n, noise, start, seed)
        return _as_paths(paths, index, self._history.channels)

    @functools.partial(_on_a_copy, writes=())
    def _latent_paths(self, fh: Any, X: Any, series: int, n: int) -> Any:
        """Return what `sklode.plotting.plot_latent` draws."""
        X_inner = self._check_X(X=X)
        rows, _ = self._asked(self._check_fh(fh), X_inner)
        return self._answers.latent_paths(rows, X_inner, series, n)

    def _predict_quantiles(
        self, fh: ForecastingHorizon, X: pd.DataFrame | None, alpha: list[float]
    ) -> pd.DataFrame:
        """Quantiles over draws of z0 and the observation noise."""
        rows, known = self._asked(fh, X)
        found = self._answers.quantiles(rows[known], X, self.n_samples, alpha)
        columns = pd.MultiIndex.from_product([self._history.channels, alpha])
        table = found.reshape(len(found), len(columns))
        return pd.DataFrame(table, rows[known], columns).reindex(rows)

    def _predict_var(
        self, fh: ForecastingHorizon, X: pd.DataFrame | None = None, cov: bool = False
    ) -> pd.DataFrame:
        """Variance over draws of z0, plus that of the observation noise."""
        if cov:
            raise ValueError(
                "predict_var gives variances only; got cov=True. For covariances, take "
                "those of draws: sample(fh)."
            )
        rows, known = self._asked(fh, X)
        table = self._answers.variances(rows[known], X, self.n_samples)
        return pd.DataFrame(table, rows[known], self._history.channels).reindex(rows)

    def _predict_proba(
        self,
        fh: ForecastingHorizon,
        X: pd.DataFrame | None = None,
        marginal: bool = True,
    ) -> Any:
        """Return skpro's distribution of the sample paths; without skpro, sktime's.

        Also of a panel: what skpro takes out of an Empirical by position fails there.
        """
        try:
            from skpro.distributions import Empirical
        except ImportError:
            Empirical = None
        if Empirical is None or len(self._history.levels) > 1:
            return super()._predict_proba(fh=fh, X=X, marginal=marginal)
        paths = self.sample(fh, X=X)
        index = paths.loc[0].index  # its order; skpro's own would be that of first use
        return Empirical(paths, time_indep=marginal, index=index, columns=paths.columns)

    @_keeping_horizon
    def score(self, y: Any, X: Any = None, fh: Any = None) -> float:
        """Return minus the root mean squared error of the forecasts of ``y``.

        Greater is better, as scikit-learn's searches ask.

        Parameters
        ----------
        y : Series, DataFrame or array
            Truth; asked at its own stamps. An array has none: it is asked at the steps
            after the last one seen, and refused where it holds the very values that
            were seen. Missing values do not count.
        X : DataFrame, optional
            Controls at ``y``'s stamps, where the model has any.
        fh : optional
            Given, sktime's own score is returned, with a warning: the mean absolute
            percentage error, of which smaller is better.
        """
        if fh is not None:
            warnings.warn(
                "score with fh is sktime's: the mean absolute percentage error, of "
                "which smaller is better. Without fh greater is better, as "
                "scikit-learn's searches ask.",
                stacklevel=3,
            )
            return float(super().score(y, X=X, fh=fh))
        self.check_is_fitted()
        residuals = self._residuals(y, X).to_numpy(dtype=float, na_value=np.nan)
        errors = residuals[~np.isnan(residuals)]
        if not len(errors):
            raise ValueError(
                "score needs at least one observed value in y; got none in "
                f"{len(residuals)} rows. Pass the truth of the forecasts."
            )
        return -math.hypot(*errors) / math.sqrt(len(errors))  # no square overflows

    def _asked(
        self, fh: ForecastingHorizon, X: pd.DataFrame | None
    ) -> tuple[pd.Index, np.ndarray]:
        """Return the rows that a horizon asks for, and which are answered.

        An absolute horizon asks every series of a panel at every stamp, but X need not
        know them all: sktime's evaluation asks at the union of the series' stamps. The
        forecast is NaN where a series has no X.
        """
        asked, history = fh.to_pandas(), self._history
        rows = history.rows_ahead(asked) if fh.is_relative else history.rows_at(asked)
        if fh.is_relative or X is None or len(history.levels) == 1:
            return rows, np.full(len(rows), True)
        known = rows.isin(X.index) | history.rows.holds(rows)
        stamps = rows.get_level_values(-1)
        return rows, known | ~stamps.isin(stamps[known])

    def save_weights(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted or pretrained forecaster to a file without executable parts.

        Its parameters, its weights and the series that it forecasts from; no callbacks.
        The layout is that of safetensors, which is needed: the extra ``save``.

        Parameters
        ----------
        path : path-like
            The file; one that is there is replaced once the new one is complete.

        Raises
        ------
        sktime.exceptions.NotFittedError
            If it is neither fitted nor pretrained.
        sklode.WeightsFileError
            If a key, a column's name or a parameter is of a kind that is not stored.
        FileNotFoundError
            If the folder of the file is not there.
        ImportError
            If safetensors is not installed.
        """
        if self.state == "new":
            self.check_is_fitted("save_weights")
        saving.save(path, self)

    @classmethod
    def load_weights(cls, path: str | os.PathLike[str]) -> Any:
        """Return the forecaster that `save_weights` wrote, as it was.

        Nothing in the file is executed, whoever wrote it.

        Parameters
        ----------
        path : path-like
            A file that a forecaster of this class wrote.

        Raises
        ------
        sklode.WeightsFileError
            If the file is no such file, is damaged, or of another class or version of
            the format, or holds what no forecaster could have stored.
        OSError
            If it cannot be read; FileNotFoundError if there is none.
        ImportError
            If safetensors is not installed.
        """
        forecaster = saving.load(path, cls)
        forecaster._warn_without_device()
        return forecaster

    @classmethod
    def _of_settings(cls, settings: dict[str, Any]) -> Any:
        """Return a forecaster of checked parameters; its device may be elsewhere."""
        check_parameters(cls(**{**settings, "device": "cpu"}))
        forecaster = cls(**settings)
        torch.device("cpu" if forecaster.device == "auto" else forecaster.device)
        return forecaster

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._warn_without_device()

    def _warn_without_device(self) -> None:
        """Warn if there is no device of the name that was asked for."""
        model = getattr(self, "_model", None) or getattr(self, "pretrained_", None)
        if model is None or self.device == "auto":
            return
        try:
            resolve_device(self.device)
        except ValueError:
            found = next(model.network.parameters()).device
            warnings.warn(
                f"device={str(self.device)!r} is not on this machine: forecasts are "
                f"made on {str(found)!r}. To train on here, set forecaster.device = "
                "'auto'; set_params would forget the fit.",
                stacklevel=3,
            )

    def _reporter(self) -> Reporter:
        return Reporter(self.verbose, self.callbacks or (), self)

    def __sklearn_tags__(self) -> Any:
        """Describe the forecaster to scikit-learn's searches."""
        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            input_tags=InputTags(two_d_array=True, allow_nan=True),
        )

    def __sklearn_clone__(self) -> Any:
        """Clone as sktime does: with its configuration and pretrained state."""
        return self.clone()

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Return small settings that sktime's checks run with."""
        small = {
            "hidden_size": 3,
            "latent_size": 2,
            "field_width": 3,
            "emission_width": 3,
            "max_epochs": 1,
            "n_samples": 5,
            "random_state": 0,
        }
        return [
            {**small, "window_length": 4, "horizon": 2, "method": "euler"},
            {**small, "normalize": "last", "early_stopping": True, "clip_norm": None},
        ]


def _as_paths(paths: np.ndarray, index: pd.Index, columns: list[Any]) -> pd.DataFrame:
    """Return paths (sample, row, channel) as a frame with index (sample, *row)."""
    n = len(paths)
    rows = index[np.tile(np.arange(len(index)), n)]
    levels = [rows.get_level_values(k) for k in range(rows.nlevels)]
    number = np.repeat(np.arange(n), len(index))
    rows = pd.MultiIndex.from_arrays([number, *levels], names=["sample", *index.names])
    return pd.DataFrame(paths.reshape(-1, len(columns)), rows, columns)


_EXAMPLE = """Examples
--------
>>> from sktime.datasets import load_airline
>>> from sklode import {name}
>>> y = load_airline()
>>> forecaster = {name}(max_epochs=2, random_state=0)
>>> forecaster = forecaster.fit(y)
>>> y_pred = forecaster.predict(fh=[1, 2, 3])
"""

_Forecaster = TypeVar("_Forecaster", bound=type[_LatentODEForecaster])


def _documented(cls: _Forecaster) -> _Forecaster:
    """Write what all three share into a class's docstring."""
    # without indentation, which Python takes away by itself from 3.13 on
    own, heading, references = cleandoc(cls.__doc__ or "").partition("References\n")
    shared = [cleandoc(part) for part in (PARAMETERS, ATTRIBUTES)]
    example = _EXAMPLE.format(name=cls.__name__)
    parts = own.rstrip(), *shared, (heading + references).rstrip(), example
    cls.__doc__ = "\n\n".join(parts)
    return cls


@_documented
class LatentODEForecaster(_LatentODEForecaster):
    """Latent ODE with an RNN encoder (Chen et al. 2018), in continuous time.

    A variational autoencoder: an RNN reads a window of observations, and the gaps
    between them, backward in time; a neural ODE carries the latent state to any other
    time stamp. Nothing flows between the encoder's visits.

    References
    ----------
    R. T. Q. Chen, Y. Rubanova, J. Bettencourt, D. Duvenaud, "Neural Ordinary
    Differential Equations", NeurIPS 2018.
    """

    encoder = "rnn"


@_documented
class LatentODERNNForecaster(_LatentODEForecaster):
    """Latent ODE with an ODE-RNN encoder (Rubanova et al. 2019), in continuous time.

    A variational autoencoder: an RNN whose state flows along a neural ODE between
    observations reads a window of them backward in time; a second neural ODE carries
    the latent state to any other time stamp.

    References
    ----------
    Y. Rubanova, R. T. Q. Chen, D. Duvenaud, "Latent Ordinary Differential Equations for
    Irregularly-Sampled Time Series", NeurIPS 2019.
    """

    encoder = "ode-rnn"


@_documented
class LatentODELSTMForecaster(_LatentODEForecaster):
    """Latent ODE with an ODE-LSTM encoder (Coelho et al.), in continuous time.

    A variational autoencoder: an LSTM whose hidden state flows along a neural ODE
    between observations reads a window of them backward in time; a second neural ODE
    carries the latent state to any other time stamp. With ``clip_norm`` it is the
    paper's "Latent ODE-LSTM + gradient clipping".

    References
    ----------
    C. Coelho, M. F. P. Costa, L. L. Ferras, "Enhancing Continuous Time Series Modelling
    with a Latent ODE-LSTM Approach".
    """

    encoder = "ode-lstm"
