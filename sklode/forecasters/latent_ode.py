"""The three forecasters that train a Latent ODE."""

from __future__ import annotations

import warnings
from inspect import cleandoc
from typing import Any, ClassVar, TypeVar

import numpy as np
import pandas as pd
import torch
from sklearn.utils import check_random_state

from sklode.data.history import History
from sklode.data.horizons import steps_ahead
from sklode.data.ticks import TIMELIKE
from sklode.engine.threads import own_modes
from sklode.forecasters.base import ContinuousForecaster
from sklode.forecasters.structural import StructuralForecaster
from sklode.hybrid.model import HybridModel
from sklode.hybrid.training import HybridTraining
from sklode.latent_ode.answers import LatentODEAnswers
from sklode.latent_ode.training import LatentODETraining
from sklode.training.parameters import (
    ATTRIBUTES,
    PARAMETERS,
    check_parameters,
    model_of,
)
from sklode.training.report import Reporter
from sklode.training.trainer import HISTORY_COLUMNS


class _LatentODEForecaster(ContinuousForecaster):
    """What the three forecasters share: all but the encoder."""

    encoder: ClassVar[str]  # see `build_network`
    # whether scikit-learn cloned it, as its searches do; `reset` keeps what has a "__"
    _is__candidate = False

    def __init__(
        self,
        hidden_size: int = 32,
        latent_size: int = 8,
        field_width: int = 32,
        field_depth: int = 1,
        emission_width: int = 64,
        window_length: int | None = None,
        horizon: int | None = None,
        thinning: float = 0.5,
        model: str = "hybrid",
        bounds: Any = None,
        error: Any = None,
        holidays: Any = None,
        method: str = "rk4",
        step_size: float = 1.0,
        clip_norm: float | None = 1.0,
        kl_weight: float = 1.0,
        max_epochs: int | None = None,
        batch_size: int = 64,
        lr: float = 0.005,
        weight_decay: float = 0.0,
        guard: bool | str = "auto",
        early_stopping: bool = False,
        finetune_epochs: int | None = None,
        n_samples: int = 100,
        freq: str | pd.DateOffset | pd.Timedelta | None = None,
        clean: bool = True,
        device: str | torch.device = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        level: str = "deprecated",
    ) -> None:
        given = locals().copy()
        del given["self"], given["__class__"]
        self.__dict__.update(given)
        super().__init__()

    def __sklearn_clone__(self) -> Any:
        candidate = super().__sklearn_clone__()
        candidate._is__candidate = True
        # all that a search clones from one share it: what one says, none repeats
        candidate._said__of_candidates = getattr(self, "_said__of_candidates", set())
        return candidate

    def _scored(self) -> None:
        """Say where a score tells nothing of the network that a search looks for."""
        is_searched = self._is__candidate and self._model_name == "hybrid"
        if is_searched and not (self.network_share_ or self._said__of_candidates):
            self._said__of_candidates.add("no network")
            warnings.warn(
                "no network of this candidate counts, so that settings of the network "
                "change no score: StructuralForecaster gives the same forecasts at "
                "once. To compare networks by themselves, search with model='paper', "
                "the paper's model; to have one count, give more rows, more series or "
                "another law.",
                stacklevel=5,
            )

    @property
    def _model_name(self) -> str:
        return model_of(self)

    def _check_parameters(self) -> None:
        check_parameters(self)

    def _twin(self) -> Any:
        if self.network_share_:
            return self
        shared = {name: getattr(self, name) for name in ("freq", "clean")}
        return StructuralForecaster(**shared, random_state=self.random_state)

    @own_modes(gradients=True)
    def _learned(
        self, history: History, fh: Any, start: Any, purpose: str
    ) -> tuple[Any, int]:
        """Return a trained model and the seed of all draws."""
        if purpose == "update" and self.guard and not self.network_share_:
            return start, 0  # a structural model that was kept is not undone
        given = history, self, check_random_state(self.random_state), start, purpose
        if self._model_name == "hybrid":
            run: Any = HybridTraining(*given)
        else:
            run = LatentODETraining(*given, n_ahead=steps_ahead(fh))
        model = run.train(Reporter(self.verbose))
        if model.network is not None:
            model.network.to("cpu")  # where forecasts are made, and every file is read
        return model, run.predict_seed

    def _set_model(self, model: Any) -> None:
        self._model, self.network_ = model, model.network
        history = pd.DataFrame(model.rows, columns=list(HISTORY_COLUMNS))
        self.history_ = history.set_index("epoch")
        self.n_epochs_, self.best_epoch_ = len(model.rows), model.best_epoch
        self.window_length_, units = model.window_length, model.units
        self.location_, self.scale_ = units.location, units.scale
        is_time = model.clock == TIMELIKE
        self.time_unit_ = pd.Timedelta(round(units.time)) if is_time else units.time
        channels, name = self._history.channels, "time since the last observation"
        if isinstance(model, HybridModel):
            self._answers = self._structural_answers(model.structural, model)
            self.network_share_ = model.share
            found = model.weighed
            index = pd.Index(found.leads, name=name)
            self.interval_scale_ = pd.DataFrame(found.factors, index, channels)
            self.network_weights_ = pd.DataFrame(found.weights, index, channels)
        else:
            self._answers = LatentODEAnswers(model, self._history, self._predict_seed)
            self.network_share_, self.horizon_ = 1.0, model.horizon
            table = self._answers.calibration
            index = pd.Index(table[:, 0], name=name)
            self.interval_scale_ = pd.DataFrame(table[:, 1:], index, channels)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Return small settings that sktime's checks run with."""
        small = dict.fromkeys(("hidden_size", "field_width", "emission_width"), 3)
        small |= {"latent_size": 2, "max_epochs": 1, "n_samples": 5, "random_state": 0}
        return [
            {**small, "window_length": 4, "horizon": 2, "method": "euler"},
            {**small, "model": "paper", "early_stopping": True, "clip_norm": None},
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

    An RNN reads a window of observations, and the gaps between them, backward in time;
    a neural ODE carries the latent state to any other time stamp.

    References
    ----------
    R. T. Q. Chen, Y. Rubanova, J. Bettencourt, D. Duvenaud, "Neural Ordinary
    Differential Equations", NeurIPS 2018.
    """

    encoder = "rnn"


@_documented
class LatentODERNNForecaster(_LatentODEForecaster):
    """Latent ODE with an ODE-RNN encoder (Rubanova et al. 2019), in continuous time.

    An RNN whose state flows along a neural ODE between observations reads a window of
    them backward in time; a second one carries the latent state to any other stamp.

    References
    ----------
    Y. Rubanova, R. T. Q. Chen, D. Duvenaud, "Latent Ordinary Differential Equations for
    Irregularly-Sampled Time Series", NeurIPS 2019.
    """

    encoder = "ode-rnn"


@_documented
class LatentODELSTMForecaster(_LatentODEForecaster):
    """Latent ODE with an ODE-LSTM encoder (Coelho et al.), in continuous time.

    An LSTM whose hidden state flows along a neural ODE between observations reads a
    window of them backward in time; a second one carries the latent state to any other
    stamp. With ``clip_norm`` it is the paper's "Latent ODE-LSTM + gradient clipping".

    References
    ----------
    C. Coelho, M. F. P. Costa, L. L. Ferras, "Enhancing Continuous Time Series Modelling
    with a Latent ODE-LSTM Approach".
    """

    encoder = "ode-lstm"
