"""sktime's contract in continuous time, over whatever answers."""

from __future__ import annotations

import copy
import os
import time
import warnings
from collections.abc import Hashable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from sklearn.utils import InputTags, Tags, TargetTags
from sktime.forecasting.base import BaseForecaster
from sktime.forecasting.base._base import _format_moving_cutoff_predictions

from sklode import persistence as saving
from sklode.data import checks
from sklode.data.history import History, in_order
from sklode.data.horizons import as_horizon, check_step
from sklode.data.known import Known, bounds_of, told
from sklode.data.observations import Observations
from sklode.forecasters.asking import AskingForecaster
from sklode.forecasters.inputs import (
    check_continues,
    check_tables,
    tell_unknown,
    warn_of_steps_between_rows,
)
from sklode.forecasters.protocols import Container, FittedModel, Horizon
from sklode.forecasters.transaction import asking, changing
from sklode.structural.fit import fit_model
from sklode.structural.model import StructuralModel
from sklode.structural.unknown_x import Unknown

_MTYPES = ["pd.DataFrame", "pd-multiindex", "pd_multiindex_hier"]


class ContinuousForecaster(AskingForecaster):
    """What all forecasters share: they read series, and answer at any time.

    A subclass has the parameters of `check_constraints`; ``_check_parameters``; and
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
    _steps_in_fit: pd.Index | None = None  # the horizon that fit was told, of steps
    _parent_callback_ctx = None  # scikit-learn's searches look for it
    _model: FittedModel

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
        is_compared = check_tables(y, X, has_errors=self.error is not None)
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
        """Leave X of a panel to `History.asked`: sktime would walk through series."""
        if isinstance(X, pd.Series | pd.DataFrame) and X.index.nlevels > 1:
            return pd.DataFrame(X) if pd.DataFrame(X).shape[1] else None
        return super()._check_X(X)

    def _check_fh(self, fh: Horizon, pred_int: bool = False) -> Horizon:
        """Check more than sktime does, and leave the caller's horizon as it is."""
        if isinstance(fh, pd.MultiIndex) and self._state == "fitted":
            if len(self._history.levels) > 1:
                return fh  # each series' own stamps, see `_asked`
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
        # told twice: sktime's evaluation tells fit and predict the same steps
        if is_given and self._steps_in_fit is not None and checked.is_relative:
            is_told_twice = checked.to_pandas().equals(self._steps_in_fit)
            if is_told_twice and self._history.is_irregular:
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
        return self

    def _begun(
        self, y: Container, X: Container, fh: Horizon, purpose: str
    ) -> tuple[History, FittedModel, int]:
        """Return new series, the model that is learned from them, and its seed."""
        self._check_parameters()
        start, categories = getattr(self, "pretrained_", None), None
        if start is not None:
            names_of_y, names_of_X, categories = start.columns
            y, X = in_order(y, names_of_y), in_order(X, names_of_X)
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
        history = self._filled(history, getattr(start, "structural", None), {})
        if start is not None:
            self._check_continues(start, history.observations)
        check_step(fh, self._cutoff, history.steps)
        if purpose != "fine-tune":
            history.observations.check_channels(channels)
        return history, *self._learned(history, fh, start, purpose)

    def _update(
        self, y: Container, X: Container = None, update_params: bool = True
    ) -> Self:
        """Take up observations; with ``update_params`` learn from all once more."""
        history = self._history.extended(y, X, self.freq)
        structural = getattr(self._model, "structural", None)
        told = self._history.unknown
        history = self._filled(history, structural, told)
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
        told: Mapping[Hashable, object] | None,
    ) -> History:
        """Return a history with what X may have been; ``structural`` says its effect.

        What is not known is said, unless it was ``told`` before.
        """
        missing = history.unknown
        if not missing:
            return history
        if missing != told:
            may_be = self._model_name != "paper"
            tell_unknown(missing, len(history.given.ticks), may_be=may_be)
        unknown = Unknown(history, 0)
        if structural is None:  # of all rows as they are
            structural = fit_model(unknown.seen.rows, known=Known.of(self, history))
        return unknown.learned(structural)

    def _check_continues(self, start: FittedModel, observations: Observations) -> None:
        """Check that a fit can go on from an earlier model."""
        n_columns = observations.values.shape[1], observations.controls.shape[1]
        got = {name: getattr(self, name) for name in start.architecture} | told(self)
        got["model"] = self._model_name
        got |= {"kind of index": observations.clock, "columns of y and X": n_columns}
        before = {"kind of index": start.clock, "columns of y and X": start.sizes}
        check_continues(start.architecture | before, got)

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
                "level_ is now called components_; the next release does not know the "
                "earlier name.",
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
        loaded: Self = saving.load(path, cls)
        return loaded

    def __sklearn_tags__(self) -> Tags:
        """Describe the forecaster to scikit-learn's searches."""
        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            input_tags=InputTags(two_d_array=True, allow_nan=True),
        )

    def __sklearn_clone__(self) -> Self:
        """Clone as sktime does: with its configuration and pretrained state."""
        cloned: Self = self.clone()
        return cloned
