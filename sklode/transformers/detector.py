"""Find spikes, steps and turns of the slope, and what a broken sensor wrote.

Tested in tests/test_transformers.py.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from sktime.detection.base import BaseDetector

from sklode.data.arrays import Flags, Frame
from sklode.data.checks import check_last
from sklode.forecasters.protocols import Container
from sklode.forecasters.structural import StructuralForecaster
from sklode.structural import interventions as shocks
from sklode.transformers.prototype import at, check_prototype, check_values, read

if TYPE_CHECKING:
    from sklode.structural.filtered_column import FilteredColumn
    from sklode.structural.rows import ChannelRows

# By label: sktime keeps 0 for rows at which nothing happened.
_KINDS = {1: "spike", 2: "step", 3: "slope", 4: "sensor"}
_SPIKE, _SENSOR = 1, 4


class _Event(NamedTuple):
    """Something that happened; its fields are columns of what `predict` returns."""

    ilocs: int
    labels: int
    size: float
    score: float


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

    _tags: ClassVar[dict[str, object]] = {
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

    def _check_X(self, X: Container) -> pd.DataFrame:
        is_panel = isinstance(X, list) or np.ndim(X) > 2
        if isinstance(X, pd.Series | pd.DataFrame) and X.index.nlevels > 1:
            check_last(X.index, "y")
            is_panel = True
        if is_panel:
            raise TypeError(
                "a detector takes one series; got a panel, as a "
                f"{type(X).__name__}. Pass its series one by one: y.xs(key), or y[0] "
                "of a list or an array."
            )
        return super()._check_X(read(X))

    def _predict(self, X: pd.DataFrame) -> pd.DataFrame:
        check_prototype(self)
        check_values(X)
        parts = [self._events(X[[column]]) for column in X.columns]
        found = pd.concat(parts, ignore_index=True)
        return found.sort_values(["ilocs", "score"], ignore_index=True)

    def transform(self, X: Frame) -> pd.DataFrame:
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
        labels = np.zeros(len(X), np.int64)
        events = self.predict(X).sort_values("score")
        # of several events at a row the last one written stays: the largest
        labels[events["ilocs"]] = events["labels"]
        return pd.DataFrame({"labels": labels})

    def fit_transform(self, X: Frame, y: Frame | None = None) -> pd.DataFrame:
        """Return what `transform` returns; ``fit`` learns nothing.

        Parameters
        ----------
        X : Series or DataFrame
            One series.
        y : DataFrame, optional
            Not read.

        Returns
        -------
        DataFrame
            The column ``labels``, (row, 1), by place in X.
        """
        return self.fit(X, y).transform(X)

    def _predict_points(self, X: pd.DataFrame) -> pd.DataFrame:
        # sktime leaves X as it is here, which `predict` reads; a row may have several
        # events, of one column or of more
        return self.predict(X)[["ilocs"]].drop_duplicates()

    def _predict_scores(self, X: pd.DataFrame) -> pd.DataFrame:
        return self._predict(X)[["score"]]

    def _transform_scores(self, X: pd.DataFrame) -> pd.DataFrame:
        events = self._predict(X)
        scores = np.zeros(len(X))
        # unlike an assignment it takes every event of a row into account
        np.maximum.at(scores, events["ilocs"].to_numpy(int), events["score"])
        return pd.DataFrame({"score": scores}, X.index)

    def _events(self, y: pd.DataFrame) -> pd.DataFrame:
        """Return the events of one column."""
        forecaster = self.forecaster or StructuralForecaster()
        with warnings.catch_warnings():
            # what a sensor wrote is in the table that is returned
            warnings.simplefilter("ignore")
            first = forecaster.clone().fit(y)
        is_wrong = np.zeros(len(y), bool)
        if first._history.left_out is not None:
            is_wrong = first._history.left_out[:, 0]
        rest = y.where(~is_wrong[:, None])
        events = self._shocks(forecaster, first, rest)
        if is_wrong.any():
            events += _left_out(first, y, is_wrong)
        frame = pd.DataFrame(events, columns=_Event._fields)
        # without an event pandas would take all columns for objects
        frame = frame.astype({"ilocs": int, "labels": int})
        frame.insert(2, "kind", [_KINDS[label] for label in frame["labels"]])
        frame.insert(3, "time", y.index[frame["ilocs"].to_numpy()])
        frame.insert(4, "column", y.columns[0])
        return frame

    def _shocks(
        self,
        forecaster: StructuralForecaster,
        first: StructuralForecaster,
        y: pd.DataFrame,
    ) -> list[_Event]:
        """Return what the model does not expect."""
        known = y.dropna()
        link = _column(first).best.scaling.link
        # sizes are of what y is linked to, which stays the same
        is_linked = not (link.is_identity or link.past)
        prototype = forecaster.clone().set_params(
            clean=False,
            logarithm=is_linked,
        )
        # where a logarithm has zeros y itself is judged, by another model than first
        if link.past:
            first = prototype.clone().fit(known)
        table = _column(first).table

        def fit(rows: ChannelRows) -> FilteredColumn:
            # of all rows the model is fitted already
            if rows is table:
                return _column(first)
            values = pd.DataFrame(rows.values, known.index, known.columns)
            return _column(prototype.clone().fit(values))

        # shocks are numbered by known rows, events by all
        place = np.flatnonzero(y.notna().to_numpy()[:, 0])
        found, candidate = shocks.find_shocks(table, fit)
        return [
            _Event(
                ilocs=int(place[one.row]),
                labels=one.kind + 1,  # spike, step, slope: 0, 1, 2 there
                size=shocks.size_of(candidate, table, one),
                score=one.score,
            )
            for one in found
        ]

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, object]]:
        """Return small settings that sktime's checks run with."""
        forecaster = StructuralForecaster(seasons=None, logarithm=False, random_state=0)
        return [{"forecaster": forecaster}, {}]


def _column(forecaster: StructuralForecaster) -> FilteredColumn:
    """Return the lone column's filtered rows."""
    answers: Any = forecaster._answers
    column: FilteredColumn = answers.states.columns[0]
    return column


def _left_out(
    forecaster: StructuralForecaster,
    y: pd.DataFrame,
    is_wrong: Flags,
) -> list[_Event]:
    """Return what a sensor wrote: lone values are spikes."""
    values = y.to_numpy(np.float64)[is_wrong, 0]
    index = y.index[is_wrong]
    sizes = values - np.asarray(forecaster.predict_at(index)).ravel()
    # deviations of an observation at the same stamps, with its noise
    variances = forecaster.predict_var(fh=at(index)).to_numpy()[:, 0]
    scores = np.abs(sizes) / np.sqrt(variances)
    # a broken sensor repeats itself: it writes its mark, or is stuck
    _, number, counts = np.unique(values, return_inverse=True, return_counts=True)
    is_lone = counts[number] == 1
    return [
        _Event(
            ilocs=int(place),
            labels=_SPIKE if is_lone[k] else _SENSOR,
            size=sizes[k],
            score=scores[k],
        )
        for k, place in enumerate(np.flatnonzero(is_wrong))
    ]
