"""Find spikes, steps and turns of the slope, and what a broken sensor wrote."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from sktime.detection.base import BaseDetector

from sklode.forecasters.structural import StructuralForecaster
from sklode.levels import shocks
from sklode.transformers.prototype import check_prototype

_KINDS = ("spike", "step", "slope")


class StructuralDetector(BaseDetector):
    """Find rows at which something happened that a structural model does not expect.

    One that is far off alone ("spike"), from which the level is another ("step"), or
    its slope ("slope"), and what a broken sensor wrote ("sensor"), at irregular stamps
    and beside seasons. The most probable shock of all is taken out, then the next, and
    the model is fitted anew without them, until chance would have one as large in every
    twentieth series.

    Parameters
    ----------
    forecaster : StructuralForecaster, optional
        Whose settings are used. With ``clean=True`` it tells what a sensor wrote. None:
        the defaults.

    Notes
    -----
    ``predict`` returns a row each event: ``ilocs``, its place in X; ``labels``, 1 to 4
    in the order above; ``kind``; ``time``; ``column``; ``size``, in units of X, of a
    slope by usual gap; ``score``, in standard deviations. ``transform_scores`` has the
    largest score of each row, 0 of those without an event. ``fit`` learns nothing: each
    series is judged by its own rows.

    References
    ----------
    P. de Jong, J. Penzer, "Diagnosing Shocks in Time Series", Journal of the American
    Statistical Association 1998.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from sklode.transformers import StructuralDetector
    >>> noise = np.random.default_rng(0).standard_normal(100)
    >>> y = pd.Series(noise + 9 * (np.arange(100) >= 60))
    >>> StructuralDetector().fit_predict(y)[["ilocs", "kind"]].values.tolist()
    [[60, 'step']]
    """

    _tags: ClassVar[dict[str, Any]] = {
        "authors": ["the sklode developers"],
        "maintainers": ["the sklode developers"],
        "task": "anomaly_detection",
        "learning_type": "unsupervised",
        "capability:multivariate": True,
        "capability:missing_values": True,
        "capability:update": True,
        "X_inner_mtype": "pd.DataFrame",
        "fit_is_empty": True,
    }

    def __init__(self, forecaster: StructuralForecaster | None = None) -> None:
        self.forecaster = forecaster
        super().__init__()

    def _predict(self, X: pd.DataFrame) -> pd.DataFrame:
        check_prototype(self.forecaster)
        X = pd.DataFrame(X)
        parts = [self._events(X[[column]]) for column in X.columns]
        found = pd.concat(parts, ignore_index=True)
        return found.sort_values(["ilocs", "score"], ignore_index=True)

    def _predict_scores(self, X: pd.DataFrame) -> pd.DataFrame:
        return self._predict(X)[["score"]]

    def _transform_scores(self, X: pd.DataFrame) -> pd.DataFrame:
        events, scores = self._predict(X), np.zeros(len(X))
        np.maximum.at(scores, events["ilocs"].to_numpy(int), events["score"])
        return pd.DataFrame({"score": scores}, X.index)

    def _events(self, y: pd.DataFrame) -> pd.DataFrame:
        """Return the events of one column."""
        forecaster = self.forecaster or StructuralForecaster()
        column = y.columns[0]
        rows = np.flatnonzero(y.notna().to_numpy()[:, 0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a sensor wrote is in the table
            first = forecaster.clone().fit(y)
        history, events = first._history, []
        wrong = np.zeros(len(y), bool)
        if history.left_out is not None:
            wrong = history.left_out[:, 0]
        left = y[~wrong]
        place = np.setdiff1d(rows, np.flatnonzero(wrong))
        table = first._answers.states.channels[0].groups[0].table
        prototype = forecaster.clone().set_params(clean=False)

        def fit(now: Any) -> Any:
            if now is table:
                one = first
            else:
                kept = left.dropna()
                one = prototype.clone().fit(kept.assign(**{str(column): now.values}))
            return shocks.told_of(one._answers.states.channels[0].groups[0])

        found, component = shocks.find_shocks(table, fit)
        for shock in found:
            size = shocks.size_of(component, table, shock)
            events.append((place[shock.row], shock.kind + 1, size, shock.score))
        if wrong.any():
            expected = first.predict_at(y.index[wrong])
            apart = y[wrong].to_numpy()[:, 0] - np.asarray(expected).ravel()
            spread = np.sqrt(first.predict_var(fh=y.index[wrong]).to_numpy()[:, 0])
            for k, row in enumerate(np.flatnonzero(wrong).tolist()):
                is_lone = (y[wrong].to_numpy()[:, 0] == y.iloc[row, 0]).sum() == 1
                kind = 1 if is_lone else 4
                events.append((row, kind, apart[k], abs(apart[k]) / spread[k]))
        names = ["ilocs", "labels", "size", "score"]
        frame = pd.DataFrame(events, columns=names)
        frame = frame.astype({"ilocs": int, "labels": int})
        kinds = (*_KINDS, "sensor")
        frame.insert(2, "kind", [kinds[k - 1] for k in frame["labels"]])
        frame.insert(3, "time", y.index[frame["ilocs"].to_numpy()])
        frame.insert(4, "column", column)
        return frame

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Return small settings that sktime's checks run with."""
        forecaster = StructuralForecaster(seasons=None, random_state=0)
        return [{"forecaster": forecaster}, {}]
