"""Let sktime and scikit-learn evaluate at the test rows' own stamps.

Tested in tests/test_model_selection.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from sktime.performance_metrics.forecasting import (
    MeanAbsoluteError,
    MeanAbsoluteScaledError,
)
from sktime.performance_metrics.forecasting._base import BaseForecastingErrorMetric
from sktime.split import ExpandingWindowSplitter
from sktime.split.base import BaseSplitter


class AbsoluteHorizon(BaseSplitter):
    """Make sktime's evaluation ask at the test fold's own time stamps.

    They ask for the relative steps of a splitter's ``fh``: on irregular stamps other
    times than the fold's, and the metric silently relabels the forecasts. This wrapper
    has no ``fh``, so that they ask at the fold's stamps. scikit-learn's searches, which
    always do, take it as well.

    Parameters
    ----------
    cv : BaseSplitter
        Splits by position, for example ``ExpandingWindowSplitter``.

    Examples
    --------
    >>> from sklode import AbsoluteHorizon
    >>> from sktime.split import ExpandingWindowSplitter
    >>> cv = ExpandingWindowSplitter(fh=[1, 2, 3], initial_window=10, step_length=5)
    >>> splitter = AbsoluteHorizon(cv)
    """

    _tags: ClassVar[dict[str, object]] = {
        "authors": ["the sklode developers"],
        "split_hierarchical": True,
        "split_type": "temporal",
    }

    def __init__(self, cv: BaseSplitter) -> None:
        self.cv = cv
        if not isinstance(cv, BaseSplitter):
            raise TypeError(
                f"cv must be one of sktime's splitters; got {cv!r}. Use for example "
                "AbsoluteHorizon(ExpandingWindowSplitter(fh=[1, 2, 3]))."
            )
        super().__init__()

    def _fh(self) -> None:
        return None

    # scikit-learn's searches pass y first too, then X and groups
    def split(
        self, y: Any, X: object = None, groups: object = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the rows of each fold, to learn from and to test on."""
        yield from super().split(y)

    def get_n_splits(
        self, y: Any = None, X: object = None, groups: object = None
    ) -> int:
        """Return the number of folds of ``y``."""
        return int(super().get_n_splits(y))

    def _split(self, y: pd.Index) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        yield from self.cv.split(y)

    def get_cutoffs(self, y: Any = None) -> np.ndarray:
        """Return the cutoffs of the splits of ``y``."""
        return self.cv.get_cutoffs(y)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, object]]:
        """Return settings that sktime's checks run with."""
        return [{"cv": ExpandingWindowSplitter([1, 2], n)} for n in (4, 5)]


class AlignedMetric(BaseForecastingErrorMetric):
    """Score the forecasts at the truth's own rows, whatever else was forecast.

    sktime's ``evaluate`` and searches ask every series of a panel at the stamps of all:
    more rows than the truth has, which its metrics refuse. This wrapper takes the rows
    of the truth from the forecast, and from ``y_pred_benchmark``, by their labels.
    Arrays are handed on.

    Parameters
    ----------
    metric : BaseForecastingErrorMetric
        A metric of sktime, of points, quantiles, intervals or distributions.

    See Also
    --------
    AbsoluteHorizon : has the forecasts asked at the test fold's own stamps.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklode import AlignedMetric
    >>> from sktime.performance_metrics.forecasting import MeanAbsoluteError
    >>> y_true = pd.Series([1.0, 2.0, 3.0], index=[0, 3, 5])
    >>> y_pred = pd.Series([3.5, 9.0, 2.5, 1.5], index=[5, 4, 3, 0])
    >>> float(AlignedMetric(MeanAbsoluteError())(y_true, y_pred))
    0.5
    """

    _tags: ClassVar[dict[str, object]] = {"authors": ["the sklode developers"]}

    def __init__(self, metric: BaseForecastingErrorMetric) -> None:
        self.metric = metric
        if not isinstance(metric, BaseForecastingErrorMetric):
            raise TypeError(
                f"metric must be one of sktime's forecasting metrics; got {metric!r}. "
                "Use for example AlignedMetric(MeanAbsoluteError())."
            )
        # under the metric's own name, as columns of sktime's results have it
        self.name = metric.name
        # quantiles or coverages that the metric asks for; None: it asks for none
        self.alpha = getattr(metric, "alpha", None)
        self.coverage = getattr(metric, "coverage", None)
        super().__init__(metric.multioutput, metric.multilevel, metric.by_index)
        # what sktime asks of a metric before it calls it
        tags = [
            "scitype:y_pred",
            "requires-y-train",
            "requires-y-pred-benchmark",
            "capability:multivariate",
            "lower_is_better",
        ]
        self.clone_tags(metric, tags)

    def __call__(self, y_true: Any, y_pred: Any, **kwargs: Any) -> Any:
        """Return the metric at the rows of ``y_true``, as the metric returns it."""
        return self.metric(**_aligned(y_true, y_pred, kwargs))

    evaluate = __call__

    def evaluate_by_index(self, y_true: Any, y_pred: Any, **kwargs: Any) -> Any:
        """Return the metric at each row of ``y_true``."""
        return self.metric.evaluate_by_index(**_aligned(y_true, y_pred, kwargs))

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, object]]:
        """Return settings that sktime's checks run with."""
        # the second needs y_train as well
        return [
            {"metric": MeanAbsoluteError()},
            {"metric": MeanAbsoluteScaledError()},
        ]


def _aligned(y_true: Any, y_pred: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return a metric's arguments with the forecasts at the rows of ``y_true``."""
    aligned = {**kwargs, "y_true": y_true, "y_pred": y_pred}
    # arrays have no labels: they come in the order of the truth
    wanted = getattr(y_true, "index", None)
    for name in ("y_pred", "y_pred_benchmark"):
        asked = getattr(aligned.get(name), "index", None)
        if not (isinstance(wanted, pd.Index) and isinstance(asked, pd.Index)):
            continue
        # the place of each label; -1 of one that is not there
        rows = asked.get_indexer(wanted)
        if (rows < 0).any():
            raise ValueError(
                f"{name} must have every row of y_true; it has none at "
                f"{wanted[int(np.argmin(rows))]}. Ask for forecasts at the truth's own "
                "stamps: wrap the splitter, AbsoluteHorizon(cv)."
            )
        aligned[name] = aligned[name].iloc[rows]
    pred = aligned["y_pred"]
    if isinstance(wanted, pd.MultiIndex) and hasattr(pred, "ppf"):
        # skpro finds no column of a distribution whose rows have several levels
        numbers = pd.RangeIndex(len(wanted))
        aligned["y_pred"] = pred.clone().set_params(index=numbers)
        aligned["y_true"] = y_true.set_axis(numbers)
    return aligned
