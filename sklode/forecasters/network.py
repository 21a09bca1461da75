"""What the three forecasters that train a Latent ODE share: all but the encoder."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from sklearn.utils import check_random_state
from torch import nn

from sklode.data.history import History
from sklode.data.horizons import steps_ahead
from sklode.engine.threads import own_modes
from sklode.forecasters.base import ContinuousForecaster
from sklode.forecasters.protocols import Container, FittedModel, Horizon
from sklode.forecasters.structural import StructuralForecaster
from sklode.hybrid.training import HybridTraining
from sklode.latent_ode.training import LatentODETraining
from sklode.training.model import architecture_of
from sklode.training.parameters import check_parameters, model_of
from sklode.training.report import Reporter

_TRAININGS: dict[str, type[HybridTraining] | type[LatentODETraining]] = {
    "hybrid": HybridTraining,
    "paper": LatentODETraining,
}
"""By the parameter ``model``."""


class NetworkForecaster(ContinuousForecaster):
    """A forecaster that trains a network; a subclass names its encoder."""

    own_encoder: ClassVar[str]  # a key of `sklode.nn.encoders.ENCODERS`

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
        bounds: object = None,
        error: object = None,
        holidays: object = None,
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
        encoder: str | type[nn.Module] | None = None,
        n_networks: int = 1,
    ) -> None:
        self.hidden_size = hidden_size
        self.latent_size = latent_size
        self.field_width = field_width
        self.field_depth = field_depth
        self.emission_width = emission_width
        self.window_length = window_length
        self.horizon = horizon
        self.thinning = thinning
        self.model = model
        self.bounds = bounds
        self.error = error
        self.holidays = holidays
        self.method = method
        self.step_size = step_size
        self.clip_norm = clip_norm
        self.kl_weight = kl_weight
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.guard = guard
        self.early_stopping = early_stopping
        self.finetune_epochs = finetune_epochs
        self.n_samples = n_samples
        self.freq = freq
        self.clean = clean
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.level = level
        self.encoder = encoder
        self.n_networks = n_networks
        super().__init__()

    def encode(self, y: Container = None, X: Container = None) -> pd.DataFrame:
        """Return the latent state at each series' last row with a value.

        Parameters
        ----------
        y, X : as in `fit`, optional
            Series of the kind that was learned from, of any number and length; None:
            those that the forecaster holds. Nothing is learned from them.

        Returns
        -------
        DataFrame
            A row for each series, at its last stamp. Columns ``(state, "mean")`` and
            ``(state, "deviation")``: those of q(z0) with ``model="hybrid"``, whose
            columns of y have ``latent_size`` states each, one column after another;
            with ``model="paper"`` what z0, of the window's beginning, has become.

        See Also
        --------
        trajectory : the same at any stamps.
        """
        self._check_has_states()
        history = self._history
        if y is not None:
            twin = copy.copy(self)  # sktime notes on it what y is
            X_inner, y_inner = twin._check_X_y(X=X, y=y)
            history = self._history_of(y_inner, X_inner, self._model)
            rows = history.observations
            fitted = self._model.clock, *self._model.sizes
            given = rows.clock, *rows.sizes
            if given != fitted:
                raise ValueError(
                    "series to encode must have the kind of index, and as many columns "
                    f"of y and X, that fit had, {fitted}; got {given}. Pass the same."
                )
        seen = history.observations
        index = history.frame().index[seen.bounds[1:] - 1]
        return self._states(history, index, None)

    def trajectory(self, index: pd.Index, X: Container = None) -> pd.DataFrame:
        """Return the latent state at stamps.

        With ``model="hybrid"`` it is that of the last row before, which is carried on
        by the differential equation: what was known then. With ``model="paper"`` later
        values tell of it too.

        Parameters
        ----------
        index : Index
            As in `predict_at`; not before a series' first value, unless
            ``model="paper"``.
        X : DataFrame or Series, optional
            As in `predict_at`.

        Returns
        -------
        DataFrame
            With ``index``, and columns as in `encode`.
        """
        self._check_has_states()
        return self._states(self._history, index, self._check_stamps(index, X))

    def _check_has_states(self) -> None:
        """Check that there is a network."""
        self.check_is_fitted()
        if self.network_ is None:
            raise ValueError(
                "latent states are those of a network; got a forecaster without one: "
                "none was tried, or none was better than the structural model. Fit "
                'with guard=False or model="paper", or give more rows or series.'
            )

    def _states(self, history: History, index: pd.Index, X: Container) -> pd.DataFrame:
        """Return states of series at rows of an index."""
        queries = self._read(history, history.rows_of(index), X)
        model: Any = self._model
        tables = model.states(history, queries)
        names = range(tables[0].shape[1]), ("mean", "deviation")
        columns = pd.MultiIndex.from_product(names, names=("state", "statistic"))
        table = np.stack(tables, axis=-1).reshape(len(tables[0]), -1)
        found = pd.DataFrame(table, queries.index, columns)
        return found if queries.index is index else found.reindex(index)

    def _scored(self, index: pd.Index) -> None:
        """Say also where a score tells nothing of the network that is looked for."""
        super()._scored(index)
        if not self.network_share_:
            self._say_in_search(
                "no network of this candidate counts, so that settings of the network "
                "change no score: StructuralForecaster gives the same forecasts at "
                "once. To compare networks by themselves, search with model='paper', "
                "the paper's model; to have one count, give more rows, more series or "
                "another law."
            )

    @property
    def _fills_X(self) -> bool:
        return _TRAININGS[model_of(self)].fills_X

    @property
    def _architecture(self) -> dict[str, Any]:
        return architecture_of(self)

    def _check_parameters(self) -> None:
        check_parameters(self)

    def _twin(self) -> ContinuousForecaster:
        if self.network_share_:
            return self
        shared = {name: getattr(self, name) for name in ("freq", "clean")}
        return StructuralForecaster(**shared, random_state=self.random_state)

    @own_modes(gradients=True)
    def _learned(
        self, history: History, fh: Horizon, start: Any, purpose: str
    ) -> tuple[FittedModel, int]:
        """Return a trained model and the seed of all draws."""
        if purpose == "update" and self.guard and not self.network_share_:
            return start, 0  # a structural model that was kept is not undone
        rng = check_random_state(self.random_state)
        training = _TRAININGS[model_of(self)](
            history,
            settings=self,
            rng=rng,
            start=start,
            purpose=purpose,
            n_ahead=steps_ahead(fh),
        )
        model = training.train(Reporter(self.verbose))
        for network in model.networks:
            network.to("cpu")  # where forecasts are made, and every file is read
        return model, training.predict_seed

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, object]]:
        """Return small settings that sktime's checks run with."""
        small: dict[str, object] = dict.fromkeys(
            ("hidden_size", "field_width", "emission_width"), 3
        )
        small |= {"latent_size": 2, "max_epochs": 1, "n_samples": 5, "random_state": 0}
        return [
            {**small, "window_length": 4, "horizon": 2, "method": "euler"},
            {**small, "model": "paper", "early_stopping": True, "clip_norm": None},
        ]
