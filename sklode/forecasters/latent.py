"""The three forecasters that train a Latent ODE."""

from __future__ import annotations

import os
import warnings
from inspect import cleandoc
from typing import Any, ClassVar, TypeVar

import numpy as np
import pandas as pd
import torch
from sklearn.utils import check_random_state
from sktime.forecasting.base import ForecastingHorizon

from sklode.data.horizons import steps_ahead
from sklode.data.observations import Observations
from sklode.data.ticks import TIMELIKE
from sklode.forecasters.base import ContinuousForecaster
from sklode.levels.level_predictor import LevelPredictor
from sklode.prediction.ahead import AheadModel
from sklode.prediction.answers import Answers
from sklode.prediction.calibration import Calibration
from sklode.prediction.network_file import NETWORK_FORMAT
from sklode.training.ahead import AheadRun, plan_ahead
from sklode.training.loop import HISTORY_COLUMNS
from sklode.training.parameters import (
    ATTRIBUTES,
    PARAMETERS,
    Settings,
    check_parameters,
    resolve_device,
)
from sklode.training.plan import WindowRun, plan
from sklode.training.report import Reporter
from sklode.training.run import Purpose


class _LatentODEForecaster(ContinuousForecaster):
    """What the three forecasters share: all but the encoder.

    Attributes of every subclass: ``encoder`` names the module of `sklode.nn`.
    """

    encoder: ClassVar[str]
    _model_format = NETWORK_FORMAT
    _is_candidate = False  # whether scikit-learn cloned it, as its searches do

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
        level: str = "auto",
        method: str = "rk4",
        step_size: float = 1.0,
        rtol: float = 1e-3,
        atol: float = 1e-4,
        adjoint: bool = False,
        clip_norm: float | None = 1.0,
        kl_weight: float = 1.0,
        observation_noise: float | None = None,
        max_epochs: int | None = None,
        batch_size: int = 64,
        lr: float = 0.005,
        guard: bool | str = "auto",
        early_stopping: bool = False,
        finetune_epochs: int | None = None,
        n_samples: int = 100,
        freq: str | pd.DateOffset | pd.Timedelta | None = None,
        clean: bool = True,
        engine: str = "auto",
        device: str | torch.device = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
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
        self.level = level
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
        self.guard = guard
        self.early_stopping = early_stopping
        self.finetune_epochs = finetune_epochs
        self.n_samples = n_samples
        self.freq = freq
        self.clean = clean
        self.engine = engine
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        super().__init__()

    def reset(self) -> Any:
        """Return to the state after construction."""
        is_candidate = self._is_candidate
        super().reset()
        self._is_candidate = is_candidate
        return self

    def __sklearn_clone__(self) -> Any:
        """Clone as sktime does, and know that a search may compare the clone."""
        candidate = super().__sklearn_clone__()
        candidate._is_candidate = True
        return candidate

    def _scored(self) -> None:
        """Say where a score tells nothing of the network that a search looks for."""
        if self._is_candidate and self.level == "auto" and not self.network_share_:
            warnings.warn(
                "no network of this candidate counts, the level alone forecasts: what "
                "differs only in the network scores the same. Search with "
                'level="series", or with more rows.',
                stacklevel=4,
            )

    def _pretrain(
        self, y: pd.DataFrame, X: pd.DataFrame | None = None, fh: Any = None
    ) -> _LatentODEForecaster:
        """Train on a panel, from the pretrained weights on where there are any."""
        settings = Settings.of(self)
        if y is None:
            raise TypeError("pretrain needs a panel y; got None. Pass a DataFrame.")
        rng = check_random_state(self.random_state)
        start = getattr(self, "pretrained_", None)
        history = self._read(y, X, start)
        history.observations.check_channels(history.channels)
        observations = history.observations
        run = self._planned(observations, settings, rng, fh, start, "pretrain")
        run.model.columns = history.channels, history.controls
        self.pretrained_ = run.train(self._reporter())
        return self

    _pretrain_update = _pretrain

    def _fit(
        self, y: pd.DataFrame, X: pd.DataFrame | None, fh: ForecastingHorizon | None
    ) -> _LatentODEForecaster:
        """Train on y, or fine-tune a copy of the pretrained model on it."""
        if self._is_trained:
            return self
        settings = Settings.of(self)
        rng = check_random_state(self.random_state)
        start = getattr(self, "pretrained_", None)
        purpose: Purpose = "fit" if start is None else "fine-tune"
        self._history = self._read(y, X, start)
        observations = self._history.observations
        if start is None:
            observations.check_channels(self._history.channels)
        run = self._planned(observations, settings, rng, fh, start, purpose)
        run.model.columns = self._history.channels, self._history.controls
        self._predict_seed = run.predict_seed
        self._set_model(run.train(self._reporter()))
        return self

    def _planned(
        self,
        observations: Observations,
        settings: Settings,
        rng: Any,
        fh: Any,
        start: Any,
        purpose: Purpose,
    ) -> WindowRun | AheadRun:
        """Return the training that the parameter ``level`` asks for."""
        if self.level == "auto":
            return plan_ahead(observations, settings, rng, start, purpose)
        return plan(observations, settings, rng, steps_ahead(fh), start, purpose)

    def _set_model(self, model: Any) -> None:
        self._model = model
        self.network_ = model.network
        history = pd.DataFrame(model.rows, columns=list(HISTORY_COLUMNS))
        self.history_ = history.set_index("epoch")
        self.n_epochs_ = len(model.rows)
        self.best_epoch_ = model.best_epoch
        self.window_length_ = model.window_length
        self.engine_ = () if model.network is None else model.network.engines()
        if isinstance(model, AheadModel):
            self.network_share_ = model.share
            unit, found = self._set_ahead(model), model.weighed
            lags, scales = found.leads, found.factors
        else:
            self.network_share_ = 1.0
            self._answers = Answers(model, self._history, self._predict_seed)
            self.horizon_ = model.horizon
            self.location_ = model.normalisation.location
            self.scale_ = model.normalisation.scale
            unit = model.time_unit
            none = Calibration.none(len(self._history.channels))
            lags, scales = vars(model.calibration or none).values()
        timelike = model.clock == TIMELIKE
        self.time_unit_ = pd.Timedelta(round(unit), unit="ns") if timelike else unit
        leads = pd.Index(lags, name="time since the last observation")
        self.interval_scale_ = pd.DataFrame(scales, leads, self._history.channels)

    def _set_ahead(self, model: AheadModel) -> float:
        """Take over a model of a level; return its unit of time."""
        before = getattr(self, "_answers", None)
        known = self._history.rows
        if isinstance(before, LevelPredictor) and before.level is model.level:
            states = before.states.updated(known)  # only the new rows are filtered
        else:
            states = model.level.filtered(known)
        self._answers = LevelPredictor(states, self._history, self._predict_seed, model)
        self.level_ = self._answers.description()
        self.location_, self.scale_ = model.units.location, model.units.scale
        found = model.weighed
        index = pd.Index(found.leads, name="time since the last observation")
        columns = self._history.channels
        self.network_weights_ = pd.DataFrame(found.weights, index, columns)
        return model.units.time

    def _update(
        self, y: pd.DataFrame, X: pd.DataFrame | None = None, update_params: bool = True
    ) -> _LatentODEForecaster:
        """Take up observations; with ``update_params`` continue training on all."""
        self._take_up(y, X)
        observations, model = self._history.observations, self._model
        # a level that was kept is not undone by a training without a guard
        if update_params and (self.network_share_ or not self.guard):
            settings = Settings.of(self)
            rng = check_random_state(self.random_state)
            run = self._planned(observations, settings, rng, None, model, "update")
            model = run.train(self._reporter())
        self._set_model(model)
        return self

    def _level_parts(self, index: pd.Index, X: pd.DataFrame | None) -> pd.DataFrame:
        """Return what `sklode.plotting.plot_components` draws."""
        if not isinstance(self._answers, LevelPredictor):
            raise ValueError(
                'the parts of a level need level="auto"; got '
                f'level={self.level!r}, which has none. Fit with level="auto", or a '
                "StructuralForecaster."
            )
        return self._answers.components(index, X)

    @classmethod
    def _of_settings(cls, settings: dict[str, Any]) -> Any:
        """Return a forecaster of checked parameters; its device may be elsewhere."""
        check_parameters(cls(**{**settings, "device": "cpu"}))
        forecaster = cls(**settings)
        torch.device("cpu" if forecaster.device == "auto" else forecaster.device)
        return forecaster

    @classmethod
    def load_weights(cls, path: str | os.PathLike[str]) -> Any:
        forecaster = super().load_weights(path)
        forecaster._warn_without_device()
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
        return Reporter(self.verbose)

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
            {**small, "level": "series", "early_stopping": True, "clip_norm": None},
        ]


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
