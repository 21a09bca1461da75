"""Find spikes, steps and turns of the slope, and what a broken sensor wrote."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from sktime.detection.base import BaseDetector

from sklode.forecasters.structural import StructuralForecaster
from sklode.structural import interventions as shocks
from sklode.transformers.prototype import at, check_prototype

_KINDS = ("spike", "step", "slope", "sensor")


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
    >>> from sklode import StructuralDetector
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

    def transform(self, X: Any) -> pd.DataFrame:
        """Return each row's label, that of its largest score; 0 where nothing is.

        Parameters
        ----------
        X : Series or DataFrame
            One series.

        Returns
        -------
        DataFrame
            The column ``labels``, (row, 1), by place in X.
        """
        events, labels = self.predict(X), np.zeros(len(X), np.int64)
        events = events.sort_values("score")
        labels[events["ilocs"]] = events["labels"]
        return pd.DataFrame({"labels": labels})

    def _predict_points(self, X: pd.DataFrame) -> pd.DataFrame:
        return self._predict(X)[["ilocs"]].drop_duplicates()

    def _predict_scores(self, X: pd.DataFrame) -> pd.DataFrame:
        return self._predict(X)[["score"]]

    def _transform_scores(self, X: pd.DataFrame) -> pd.DataFrame:
        events, scores = self._predict(X), np.zeros(len(X))
        np.maximum.at(scores, events["ilocs"].to_numpy(int), events["score"])
        return pd.DataFrame({"score": scores}, X.index)

    def _events(self, y: pd.DataFrame) -> pd.DataFrame:
        """Return the events of one column."""
        forecaster = self.forecaster or StructuralForecaster()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a sensor wrote is in the table
            first = forecaster.clone().fit(y)
        wrong = np.zeros(len(y), bool)
        if first._history.left_out is not None:
            wrong = first._history.left_out[:, 0]
        events = self._shocks(forecaster, first, y.where(~wrong[:, None]))
        if wrong.any():
            events += _left_out(first, y, wrong)
        frame = pd.DataFrame(events, columns=["ilocs", "labels", "size", "score"])
        frame = frame.astype({"ilocs": int, "labels": int})
        frame.insert(2, "kind", [_KINDS[k - 1] for k in frame["labels"]])
        frame.insert(3, "time", y.index[frame["ilocs"].to_numpy()])
        frame.insert(4, "column", y.columns[0])
        return frame

    def _shocks(
        self, forecaster: StructuralForecaster, first: Any, y: pd.DataFrame
    ) -> list[tuple[int, int, float, float]]:
        """Return place, label, size and score of what the model does not expect."""
        known, heaviest = y.dropna(), _group(first).heaviest[0]
        # sizes are of what y is linked to, which stays the same
        linked = heaviest.form.linked and not heaviest.link.past
        prototype = forecaster.clone().set_params(clean=False, logarithm=linked)
        if heaviest.form.linked and not linked:
            first = prototype.clone().fit(known)
        table = _group(first).table

        def fit(rows: Any) -> Any:
            if rows is table:
                return _group(first)
            values = pd.DataFrame(rows.values, known.index, known.columns)
            return _group(prototype.clone().fit(values))

        place = np.flatnonzero(y.notna().to_numpy()[:, 0])
        found, candidate = shocks.find_shocks(table, fit)
        return [
            (
                int(place[one.row]),
                one.kind + 1,
                shocks.size_of(candidate, table, one),
                one.score,
            )
            for one in found
        ]

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Return small settings that sktime's checks run with."""
        forecaster = StructuralForecaster(seasons=None, random_state=0)
        return [{"forecaster": forecaster}, {}]


def _group(forecaster: StructuralForecaster) -> Any:
    """Return the lone column's filtered rows."""
    answers: Any = forecaster._answers
    return answers.states.channels[0].groups[0]


def _left_out(
    forecaster: StructuralForecaster, y: pd.DataFrame, wrong: np.ndarray
) -> list[tuple[int, int, float, float]]:
    """Return what a sensor wrote: lone values are spikes."""
    values, index = y.to_numpy(np.float64)[wrong, 0], y.index[wrong]
    apart = values - np.asarray(forecaster.predict_at(index)).ravel()
    spread = np.sqrt(forecaster.predict_var(fh=at(index)).to_numpy()[:, 0])
    return [
        (int(row), 1 if (values == value).sum() == 1 else 4, size, abs(size) / width)
        for row, value, size, width in zip(
            np.flatnonzero(wrong), values, apart, spread, strict=True
        )
    ]
