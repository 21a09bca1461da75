"""The forecaster that is a level alone: linear, Gaussian, in closed form."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions
from sktime.forecasting.base import ForecastingHorizon

from sklode.data.history import History
from sklode.data.observations import Observations
from sklode.data.parameters import FREQ, SIZE, check_constraints, check_freq
from sklode.data.seasons import check_seasons, season_ticks
from sklode.forecasters.base import ContinuousForecaster
from sklode.levels.level import Level
from sklode.levels.level_predictor import LevelPredictor
from sklode.prediction.saving import ModelFormat, require

_CONSTRAINTS: dict[str, list[Any]] = {
    "seasons": [StrOptions({"auto"}), list, tuple, None],
    "logarithm": [StrOptions({"auto"}), "boolean"],
    "n_samples": [SIZE],
    "freq": FREQ,
    "clean": ["boolean"],
    "random_state": ["random_state"],
}


@dataclass(frozen=True, repr=False)
class FittedLevel:
    """Hyperparameters, with what is needed to apply them to new series."""

    level: Level
    n_rows: int  # that it was found on
    clock: str  # of the index, see `sklode.data.ticks.clock_of`
    columns: tuple[list[Any], list[Any]]  # of y, and of X
    architecture: dict[str, Any]  # settings that it was fitted with

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of columns of y and of X."""
        return len(self.columns[0]), len(self.columns[1])


def _together(kind: Any, model: Any) -> FittedLevel:
    """Return a model that a file holds, checked."""
    require(type(model) is FittedLevel, "no level")
    require(type(model.n_rows) is int and model.n_rows > 0, "a level of no rows")
    kind._of_settings(model.architecture)
    return model


def _check_positive(observations: Observations, channels: list[Any]) -> None:
    """Check that all values have a logarithm."""
    for row, channel in np.argwhere(observations.values <= 0):
        key = observations.keys[observations.series[row]]
        raise ValueError(
            "with logarithm=True all values of y must be above zero; got "
            f"{observations.values[row, channel]:g} in column {channels[channel]!r} at "
            f"{observations.named(observations.ticks[row], key)}. Add a constant to y, "
            'or use logarithm="auto".'
        )


class StructuralForecaster(ContinuousForecaster):
    """Structural time series model in continuous time, solved in closed form.

    Each channel is a sum of linear-Gaussian parts: a level that wanders, a damped
    trend, deviations that fade, seasons on the clock of the index's time zone, and
    effects of X, straight or curved, at once or late. A Kalman filter crosses gaps of
    any length exactly, so that irregular stamps, missing values and times in the past
    are no special cases. There is no network to train.

    Parameters
    ----------
    seasons : "auto", list, tuple or None, default="auto"
        Lengths of seasons: lengths of time (strings such as "1D", timedeltas, offsets)
        or numbers of steps of the index. "auto": those of the calendar and of the data
        that the history shows. None: no season.
    logarithm : "auto" or bool, default="auto"
        Whether the logarithm of y is modelled: growth in per cent, spreads that grow
        with the level. "auto": where that explains y better.
    n_samples : int, default=100
        Number of sample paths.
    freq : str, offset or Timedelta, optional
        Length of one step of a relative horizon on a DatetimeIndex. None: the index's
        own or inferred frequency; else a calendar frequency that all stamps lie on;
        else the median gap.
    clean : bool, default=True
        Leave out what a broken sensor wrote: lone absurd values, a number such as -999
        for missing ones, runs of a stuck value; and rescale rows before a change of
        unit. Each with a warning. False: every value counts as it is.
    random_state : int, RandomState or None, default=None
        Of the sample paths; no global generator is touched.

    Attributes
    ----------
    level_ : DataFrame
        What was found, in the most probable form: a row per channel and part. ``share``
        of the variance of all parts over the last rows; ``size``, a standard deviation
        in units of y or of its logarithm; ``memory``, how long the part is remembered;
        whether the ``logarithm`` is modelled; ``probability`` of the form; ``values``:
        "counts", "not below zero" or "any"; and whether other columns of y move the
        forecasts of this one (``cross``).

    Notes
    -----
    ``pretrain`` finds the sizes of all parts on a panel; a ``fit`` after it keeps them,
    and finds where the new series stand, however short they are. A second ``pretrain``
    begins anew on its own panel.

    ``update`` takes up observations; with ``update_params`` the sizes of the parts are
    found again, on all rows, whenever these have doubled in number. Those of
    ``pretrain`` stay.

    References
    ----------
    A. C. Harvey, "Forecasting, Structural Time Series Models and the Kalman Filter",
    Cambridge University Press 1989.

    J. Hartikainen, S. Särkkä, "Kalman filtering and smoothing solutions to temporal
    Gaussian process regression models", MLSP 2010.

    Examples
    --------
    >>> from sktime.datasets import load_airline
    >>> from sklode import StructuralForecaster
    >>> y = load_airline()
    >>> forecaster = StructuralForecaster(random_state=0)
    >>> forecaster = forecaster.fit(y)
    >>> y_pred = forecaster.predict(fh=[1, 2, 3])
    """

    _model_format = ModelFormat(
        kinds={"FittedLevel": (FittedLevel, vars, FittedLevel)},
        apart=lambda model: model,
        together=_together,
    )
    _model: FittedLevel
    _answers: LevelPredictor

    def __init__(
        self,
        seasons: str | list[Any] | tuple[Any, ...] | None = "auto",
        logarithm: str | bool = "auto",
        n_samples: int = 100,
        freq: str | pd.DateOffset | pd.Timedelta | None = None,
        clean: bool = True,
        random_state: Any = None,
    ) -> None:
        self.seasons = seasons
        self.logarithm = logarithm
        self.n_samples = n_samples
        self.freq = freq
        self.clean = clean
        self.random_state = random_state
        super().__init__()

    def _pretrain(
        self, y: pd.DataFrame, X: pd.DataFrame | None = None, fh: Any = None
    ) -> StructuralForecaster:
        """Find hyperparameters on a panel."""
        self._check_parameters()
        if y is None:
            raise TypeError("pretrain needs a panel y; got None. Pass a DataFrame.")
        self.pretrained_ = self._found(self._read(y, X, None))
        return self

    _pretrain_update = _pretrain

    def _fit(
        self, y: pd.DataFrame, X: pd.DataFrame | None, fh: ForecastingHorizon | None
    ) -> StructuralForecaster:
        """Find hyperparameters and states; after `pretrain` only states."""
        if self._is_trained:
            return self
        self._check_parameters()
        start = getattr(self, "pretrained_", None)
        self._history = self._read(y, X, start)
        rng = check_random_state(self.random_state)
        self._predict_seed = int(rng.randint(2**31 - 1))
        self._set_model(self._found(self._history, start))
        return self

    def _update(
        self, y: pd.DataFrame, X: pd.DataFrame | None = None, update_params: bool = True
    ) -> StructuralForecaster:
        """Take up observations; find hyperparameters again once rows have doubled."""
        self._take_up(y, X)
        observations, model = self._history.observations, self._model
        has_doubled = len(observations.ticks) >= 2 * model.n_rows
        if update_params and has_doubled and not hasattr(self, "pretrained_"):
            self._check_parameters()
            self._set_model(self._found(self._history))
        else:
            self._answer_by(self._answers.updated(self._history))
        return self

    def _found(self, history: History, start: FittedLevel | None = None) -> FittedLevel:
        """Return a level of all that was observed."""
        observations = history.observations
        if start is not None:
            return replace(start, columns=(history.channels, history.controls))
        observations.check_channels(history.channels)
        if self.logarithm is True:
            _check_positive(observations, history.channels)
        seasons: Any = self.seasons
        if seasons != "auto":
            seasons = season_ticks(seasons or (), history)
        return FittedLevel(
            Level.fit(history.rows, seasons, self.logarithm),
            len(observations.ticks),
            observations.clock,
            (history.channels, history.controls),
            {"seasons": self.seasons, "logarithm": self.logarithm},
        )

    def _set_model(self, model: FittedLevel) -> None:
        self._model = model
        states = model.level.filtered(self._history.rows)
        self._answer_by(LevelPredictor(states, self._history, self._predict_seed))

    def _answer_by(self, answers: LevelPredictor) -> None:
        self._answers = answers
        self.level_ = answers.description()

    def _level_parts(self, index: pd.Index, X: pd.DataFrame | None) -> pd.DataFrame:
        """Return what `sklode.plotting.plot_components` draws, (channel, part)."""
        return self._answers.components(index, X)

    def _check_parameters(self) -> None:
        check_constraints(_CONSTRAINTS, self)
        if not isinstance(self.seasons, str):
            check_seasons(self.seasons or ())
        check_freq(self.freq)

    @classmethod
    def _of_settings(cls, settings: dict[str, Any]) -> StructuralForecaster:
        """Return a forecaster of checked parameters."""
        forecaster = cls(**settings)
        forecaster._check_parameters()
        return forecaster

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Return small settings that sktime's checks run with."""
        return [
            {"n_samples": 5, "random_state": 0},
            {"seasons": [4], "logarithm": False, "n_samples": 5, "random_state": 0},
        ]
