"""The three forecasters: sktime's contract over the Latent ODE."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import (
    Interval,
    StrOptions,
    validate_parameter_constraints,
)
from sktime.forecasting.base import BaseForecaster, ForecastingHorizon

from sklode.fitting import (
    FittedModel,
    finetune_epochs,
    fit_model,
    resolve_device,
)
from sklode.nn.anchors import ANCHORS
from sklode.nn.solvers import FIXED_STEP_METHODS
from sklode.nn.vector_fields import ACTIVATIONS
from sklode.observations import (
    Observations,
    check_index,
    check_same_kind,
    controls_at,
    default_step,
    future_stamps,
    series_of,
    ticks_of,
)
from sklode.prediction import Queries
from sklode.training import OPTIMIZERS, Reporter

__all__ = [
    "LatentODEForecaster",
    "LatentODELSTMForecaster",
    "LatentODERNNForecaster",
]

_MTYPES = ["pd.DataFrame", "pd-multiindex", "pd_multiindex_hier"]


def _real(low: float, closed: str) -> Interval:
    return Interval(Real, low, None, closed=closed)


def _integer(low: int) -> Interval:
    return Interval(Integral, low, None, closed="left")


_CONSTRAINTS: dict[str, list[Any]] = {
    "hidden_size": [_integer(1)],
    "latent_size": [_integer(1)],
    "field_width": [_integer(1)],
    "field_depth": [_integer(1)],
    "emission_width": [_integer(1)],
    "activation": [StrOptions(set(ACTIVATIONS))],
    "window_length": [_integer(1), None],
    "horizon": [_integer(0), None],
    "normalize": [StrOptions({*ANCHORS, "auto"}), None],
    "method": [StrOptions({*FIXED_STEP_METHODS, "dopri5"})],
    "step_size": [_real(0, "neither")],
    "rtol": [_real(0, "neither")],
    "atol": [_real(0, "neither")],
    "adjoint": ["boolean"],
    "clip_norm": [_real(0, "neither"), StrOptions({"auto"}), None],
    "kl_weight": [_real(0, "left")],
    "kl_annealing_epochs": [_integer(0), None],
    "observation_noise": [_real(0, "neither"), None],
    "max_epochs": [_integer(1), None],
    "batch_size": [_integer(1)],
    "lr": [_real(0, "neither")],
    "optimizer": [StrOptions(set(OPTIMIZERS))],
    "weight_decay": [_real(0, "left")],
    "early_stopping": ["boolean"],
    "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
    "n_iter_no_change": [_integer(1)],
    "tol": [_real(0, "left")],
    "finetune_epochs": [_integer(0), None],
    "n_samples": [_integer(1)],
    "freq": [str, pd.DateOffset, pd.Timedelta, None],
    "engine": [StrOptions({"auto", "eager", "unrolled"})],
    "device": [str, torch.device],
    "random_state": ["random_state"],
    "warm_start": ["boolean"],
    "verbose": [Interval(Integral, 0, 2, closed="both")],
    "callbacks": [list, tuple, None],
}


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
        "capability:exogenous": True,
        "capability:missing_values": True,
        "capability:insample": True,
        "capability:pred_int": True,
        "capability:pred_int:insample": True,
        "capability:update": True,
        "capability:unequal_length": True,
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
    _parent_callback_ctx = None  # scikit-learn's search sets it before fit

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
        normalize: str | None = "auto",
        method: str = "rk4",
        step_size: float = 1.0,
        rtol: float = 1e-3,
        atol: float = 1e-4,
        adjoint: bool = False,
        clip_norm: float | str | None = 1.0,
        kl_weight: float = 1.0,
        kl_annealing_epochs: int | None = None,
        observation_noise: float | None = None,
        max_epochs: int | None = None,
        batch_size: int = 64,
        lr: float = 0.01,
        optimizer: str = "adam",
        weight_decay: float = 0.0,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 50,
        tol: float = 1e-4,
        finetune_epochs: int | None = None,
        n_samples: int = 100,
        freq: str | pd.DateOffset | pd.Timedelta | None = None,
        engine: str = "auto",
        device: str | torch.device = "auto",
        random_state: int | np.random.RandomState | None = None,
        warm_start: bool = False,
        verbose: int = 0,
        callbacks: list | tuple | None = None,
    ) -> None:
        self.hidden_size = hidden_size
        self.latent_size = latent_size
        self.field_width = field_width
        self.field_depth = field_depth
        self.emission_width = emission_width
        self.activation = activation
        self.window_length = window_length
        self.horizon = horizon
        self.normalize = normalize
        self.method = method
        self.step_size = step_size
        self.rtol = rtol
        self.atol = atol
        self.adjoint = adjoint
        self.clip_norm = clip_norm
        self.kl_weight = kl_weight
        self.kl_annealing_epochs = kl_annealing_epochs
        self.observation_noise = observation_noise
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.lr = lr
        self.optimizer = optimizer
        self.weight_decay = weight_decay
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
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

    def _check_X_y(self, X: Any = None, y: Any = None, **kwargs: Any) -> tuple:
        """Check the stamps first: sktime's own messages name no row."""
        for data, name in ((y, "y"), (X, "X")):
            if isinstance(data, pd.Series | pd.DataFrame):
                check_index(data.index, name)
        return super()._check_X_y(X=X, y=y, **kwargs)

    def _reset_at(self, state: str) -> Any:
        """Keep the model over a refit with ``warm_start``; the rest is dropped."""
        model = getattr(self, "_model", None) if self.warm_start else None
        result = super()._reset_at(state)
        self._warm_model = model
        return result

    def _pretrain(
        self, y: pd.DataFrame, X: pd.DataFrame | None = None, fh: Any = None
    ) -> _LatentODEForecaster:
        """Train on a panel; `fit` then fine-tunes a copy."""
        self._validate_parameters()
        rng = check_random_state(self.random_state)
        observations = Observations.from_frame(y, X)
        self.pretrained_ = fit_model(
            observations, self, rng, _n_ahead(fh), reporter=self._reporter()
        )
        return self

    def _fit(
        self, y: pd.DataFrame, X: pd.DataFrame | None, fh: ForecastingHorizon | None
    ) -> _LatentODEForecaster:
        """Train on y, or fine-tune a copy of the pretrained model on it."""
        self._validate_parameters()
        rng = check_random_state(self.random_state)
        observations = Observations.from_frame(y, X)
        start, epochs = getattr(self, "_warm_model", None), None
        if start is None and getattr(self, "pretrained_", None) is not None:
            start = self.pretrained_
            epochs = finetune_epochs(self, start)
        if start is not None:
            _check_alike(start, observations)
        self._set_ends(y.index)
        model = fit_model(
            observations, self, rng, _n_ahead(fh), start, epochs, self._reporter()
        )
        self._set_model(model)
        self._observations = observations
        self._predict_seed = int(rng.randint(2**31 - 1))
        return self

    def _set_model(self, model: FittedModel) -> None:
        self._model = model
        self.network_ = model.network
        self.history_ = (
            pd.DataFrame(model.rows).set_index("epoch")
            if model.rows
            else (pd.DataFrame())
        )
        self.n_epochs_ = len(model.rows)
        self.best_epoch_ = model.best_epoch
        self.location_ = model.normalisation.location
        self.scale_ = model.normalisation.scale
        last = next(iter(self._last.values()))
        timelike = isinstance(last, pd.DatetimeIndex | pd.TimedeltaIndex)
        unit = model.time_unit
        self.time_unit_ = pd.Timedelta(unit, unit="ns") if timelike else unit
        self.engine_ = model.network.engines()

    def _set_ends(self, index: pd.Index) -> None:
        """Remember each series' last stamp and the length of its relative steps."""
        series, keys = series_of(index)
        times = index.get_level_values(-1)
        order = np.argsort(series, kind="stable")
        bounds = np.searchsorted(series[order], np.arange(len(keys) + 1))
        self._last, self._step = {}, {}
        for k, key in enumerate(keys):
            mine = times[order[bounds[k] : bounds[k + 1]]]
            self._last[key] = mine[-1:]
            self._step[key] = default_step(mine, self.freq)
        self._index_names = list(index.names)

    def _update(
        self, y: pd.DataFrame, X: pd.DataFrame | None = None, update_params: bool = True
    ) -> _LatentODEForecaster:
        """Append observations; with ``update_params`` continue training on all."""
        self._check_follows(y.index)
        if y.notna().any(axis=None):
            y_observed = y[y.notna().any(axis=1)]
            new = Observations.from_frame(y_observed, X)
            self._observations = self._observations.extended(new)
        series, keys = series_of(y.index)
        times = y.index.get_level_values(-1)
        for k, key in enumerate(keys):
            self._last[key] = times[series == k][-1:]
        if update_params:
            rng = check_random_state(self.random_state)
            epochs = finetune_epochs(self, self._model)
            model = fit_model(
                self._observations,
                self,
                rng,
                None,
                self._model,
                epochs,
                self._reporter(),
            )
            self._set_model(model)
        return self

    def _check_follows(self, index: pd.Index) -> None:
        series, keys = series_of(index)
        times = index.get_level_values(-1)
        for k, key in enumerate(keys):
            if key not in self._last:
                raise ValueError(
                    f"update takes the series that fit has seen; got a new one, {key}. "
                    "Fit again to add series."
                )
            first, last = times[series == k][0], self._last[key][0]
            if first <= last:
                raise ValueError(
                    f"update takes stamps after the last one seen, {last}; got "
                    f"{first}. Pass only the new rows."
                )

    def _predict(
        self, fh: ForecastingHorizon, X: pd.DataFrame | None = None
    ) -> pd.DataFrame:
        """Forecast at the horizon: the emission at the mean of q(z0)."""
        return self._means(self._horizon_index(fh), X)

    def predict_at(
        self, index: pd.Index, X: pd.DataFrame | None = None
    ) -> pd.DataFrame:
        """Forecast at exactly the rows of an index.

        Parameters
        ----------
        index : Index
            Time stamps; for a panel a MultiIndex (instance levels..., time), each
            series at its own stamps. In any order, past, present or future.
        X : DataFrame, optional
            Controls with a row at every row of ``index``, where the model has any.

        Returns
        -------
        DataFrame
            Forecasts, with ``index`` and y's columns.
        """
        self.check_is_fitted()
        return self._means(index, X)

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
            With index (sample, *row of the forecast) and y's columns.
        """
        self.check_is_fitted()
        X_inner = self._check_X(X=X)
        index = self._horizon_index(self._check_fh(fh))
        n = self.n_samples if n_samples is None else n_samples
        paths = self._draws(index, X_inner, n, noise)
        rows = pd.MultiIndex.from_tuples(
            [
                (k, *(row if isinstance(row, tuple) else (row,)))
                for k in range(n)
                for row in index
            ],
            names=["sample", *index.names],
        )
        columns = self._get_varnames()
        return pd.DataFrame(paths.reshape(-1, len(columns)), rows, columns)

    def _predict_quantiles(
        self, fh: ForecastingHorizon, X: pd.DataFrame | None, alpha: list[float]
    ) -> pd.DataFrame:
        """Quantiles over draws of z0 and the observation noise."""
        index = self._horizon_index(fh)
        paths = self._draws(index, X, self.n_samples, noise=True)
        quantiles = np.quantile(paths, alpha, axis=0)  # (alpha, row, channel)
        columns = self._get_columns("predict_quantiles", alpha=alpha)
        flat = quantiles.transpose(1, 2, 0).reshape(len(index), -1)
        return pd.DataFrame(flat, index, columns)

    def _predict_var(
        self, fh: ForecastingHorizon, X: pd.DataFrame | None = None, cov: bool = False
    ) -> pd.DataFrame:
        """Variance over draws of z0, plus that of the observation noise."""
        index = self._horizon_index(fh)
        paths = self._draws(index, X, self.n_samples, noise=False)
        scale = self.network_.emission.noise_scale.detach().cpu().numpy() * self.scale_
        return pd.DataFrame(paths.var(axis=0) + scale**2, index, self._get_varnames())

    def score(self, y: Any, X: Any = None, fh: Any = None) -> float:
        """Return minus the root mean squared error of the forecasts of ``y``.

        Greater is better, as scikit-learn's searches ask. With ``fh``, sktime's score:
        the mean absolute percentage error, of which smaller is better.

        Parameters
        ----------
        y : Series, DataFrame or array
            Truth; asked at its own stamps, or, for an array, at the steps after the
            last one seen. Missing values do not count.
        X : DataFrame, optional
            Controls at ``y``'s stamps, where the model has any.
        fh : optional
            Given, sktime's own score is returned.
        """
        if fh is not None:
            return float(super().score(y, X=X, fh=fh))
        self.check_is_fitted()
        X_inner = self._check_X(X=X)
        if isinstance(y, pd.Series | pd.DataFrame):
            truth = y.to_numpy(dtype=float, na_value=np.nan)
            index = y.index
        else:
            truth = np.asarray(y, dtype=float)
            steps = ForecastingHorizon(np.arange(1, len(truth) + 1), is_relative=True)
            index = self._horizon_index(steps)
        forecast = self._means(index, X_inner).to_numpy()
        error = forecast - truth.reshape(forecast.shape)
        return -float(np.sqrt(np.nanmean(error**2)))

    def _horizon_index(self, fh: ForecastingHorizon) -> pd.Index:
        """Return the rows that a horizon asks for."""
        steps = fh.to_pandas()
        keys = list(self._last)

        def stamps(key: tuple) -> pd.Index:
            last = self._last[key]
            if fh.is_relative:
                return future_stamps(steps, last, self._step[key])
            return steps

        if keys == [()]:
            return stamps(()).rename(self._index_names[0])
        each = [stamps(key) for key in keys]
        rows = [
            (*key, stamp)
            for key, mine in zip(keys, each, strict=True)
            for stamp in mine
        ]
        return pd.MultiIndex.from_tuples(rows, names=self._index_names)

    def _queries(self, index: pd.Index, X: pd.DataFrame | None) -> Queries:
        """Translate rows of an index for the predictor."""
        observations, model = self._observations, self._model
        times = index.get_level_values(-1)
        check_same_kind(times, next(iter(self._last.values())))
        series, keys = series_of(index)
        known = {key: k for k, key in enumerate(observations.keys)}
        unknown = [key for key in keys if key not in known]
        if unknown:
            raise ValueError(
                f"forecasts are for the series that fit has seen; got {unknown[0]}, "
                f"seen were {list(known)[:3]}... Fit on a panel that holds it."
            )
        series = np.array([known[key] for key in keys], dtype=np.int64)[series]
        origin = observations.ticks[observations.bounds[:-1]][series]
        controls = None
        if observations.controls is not None:
            if X is None:
                raise ValueError(
                    "X was given to fit, so the forecast needs X at every stamp of the "
                    "horizon; got None. Pass X with those rows."
                )
            controls = model.normalisation.controls(controls_at(X, index))
        return Queries(series, (ticks_of(times) - origin) / model.time_unit, controls)

    def _means(self, index: pd.Index, X: pd.DataFrame | None) -> pd.DataFrame:
        predictor = self._model.predictor(self._observations)
        means = predictor.means(self._queries(index, X))
        original = self._model.normalisation.original(means)
        return pd.DataFrame(original, index, self._get_varnames())

    def _draws(
        self, index: pd.Index, X: pd.DataFrame | None, n: int, noise: bool
    ) -> np.ndarray:
        generator = torch.Generator().manual_seed(self._predict_seed)
        predictor = self._model.predictor(self._observations)
        draws = predictor.draws(self._queries(index, X), n, generator, noise)
        return self._model.normalisation.original(draws)

    def _validate_parameters(self) -> None:
        name = type(self).__name__
        validate_parameter_constraints(_CONSTRAINTS, self.get_params(deep=False), name)
        resolve_device(self.device)
        if isinstance(self.freq, str):
            try:
                pd.tseries.frequencies.to_offset(self.freq)
            except ValueError as error:
                raise ValueError(
                    "freq must be a frequency that pandas knows, such as '1h' or 'MS'; "
                    f"got {self.freq!r}."
                ) from error

    def _reporter(self) -> Reporter:
        return Reporter(self.verbose, self.callbacks or (), self)

    def __sklearn_tags__(self) -> Any:
        """Describe the forecaster to scikit-learn's searches."""
        from sklearn.utils import InputTags, Tags, TargetTags

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


def _n_ahead(fh: ForecastingHorizon | None) -> int | None:
    """Return the farthest step of a horizon that counts steps."""
    if fh is None or not fh.is_relative:
        return None
    steps = fh.to_pandas()
    if not pd.api.types.is_integer_dtype(steps.dtype):
        return None
    return int(steps.max()) if steps.max() > 0 else None


def _check_alike(model: FittedModel, observations: Observations) -> None:
    """Check that a pretrained model fits the columns of new data."""
    normalisation = model.normalisation
    expected = (len(normalisation.location), len(normalisation.control_location))
    controls = observations.controls
    got = (observations.values.shape[1], 0 if controls is None else controls.shape[1])
    if expected != got:
        raise ValueError(
            f"y and X must have as many columns as before, {expected[0]} and "
            f"{expected[1]}; got {got[0]} and {got[1]}. Fit a fresh clone instead."
        )


class LatentODEForecaster(_LatentODEForecaster):
    """RNN encoder"""

    encoder = "rnn"


class LatentODERNNForecaster(_LatentODEForecaster):
    """ODE-RNN encoder"""

    encoder = "ode-rnn"


class LatentODELSTMForecaster(_LatentODEForecaster):
    """ODE-LSTM encoder"""

    encoder = "ode-lstm"
