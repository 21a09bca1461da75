"""Fill what is missing from all rows before and after.

Tested in tests/test_transformers.py.
"""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
import pandas as pd
from sktime.transformations.base import BaseTransformer

from sklode.data.arrays import Frame
from sklode.data.checks import check_choice
from sklode.forecasters.structural import StructuralForecaster
from sklode.transformers.prototype import TAGS, at, fitted


class StructuralImputer(BaseTransformer):
    """Fill missing values by a structural model in continuous time.

    Observed values stay as they are. ``fit`` finds how series behave; ``transform``
    fills those that it gets, from their own rows before and after, at any stamps.

    Parameters
    ----------
    method : {"mean", "path"}, default="mean"
        "mean": what is expected given all rows. "path": one draw of what may have been,
        as rough as the series, whose gaps hang together.
    forecaster : StructuralForecaster, optional
        Whose settings are used, ``random_state`` for the draw. None: the defaults.

    Attributes
    ----------
    forecaster_ : StructuralForecaster
        What was found; ``components_`` after a fit of it.

    See Also
    --------
    StructuralResampler : values at the stamps of a grid.

    Examples
    --------
    >>> from sktime.datasets import load_airline
    >>> from sklode import StructuralImputer
    >>> y = load_airline()
    >>> y.iloc[60:72] = float("nan")
    >>> filled = StructuralImputer().fit_transform(y)
    >>> int(filled.isna().sum())
    0
    """

    _tags: ClassVar[dict[str, object]] = {
        **TAGS,
        "X_inner_mtype": ["pd.DataFrame", "pd-multiindex", "pd_multiindex_hier"],
        "transform-returns-same-time-index": True,
    }

    def __init__(
        self, method: str = "mean", forecaster: StructuralForecaster | None = None
    ) -> None:
        self.method = method
        self.forecaster = forecaster
        super().__init__()

    def _fit(self, X: pd.DataFrame, y: Frame | None = None) -> Self:
        check_choice("method", self.method, ["mean", "path"])
        self.forecaster_ = fitted(self.forecaster, X)
        return self

    def _transform(self, X: pd.DataFrame, y: Frame | None = None) -> pd.DataFrame:
        missing = X.isna()
        if not missing.to_numpy().any():
            return X
        # a clone of what was pretrained keeps the hyperparameters that fit has found
        forecaster = self.forecaster_.clone().fit(X)
        # any stamps may be asked for, those that were fitted as well
        rows = X.index[missing.any(axis=1)]
        if self.method == "mean":
            found = pd.DataFrame(forecaster.predict_at(rows))
        else:
            found = forecaster.sample(at(rows), n_samples=1).droplevel("sample")
        # whole numbers could not hold what is expected
        filled = X.astype(np.float64)
        values = found.set_axis(X.columns, axis=1).reindex(X.index)
        return filled.where(~missing, values)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, object]]:
        """Return small settings that sktime's checks run with."""
        forecaster = StructuralForecaster(seasons=None, logarithm=False, random_state=0)
        return [
            {"forecaster": forecaster},
            {"method": "path", "forecaster": forecaster},
        ]
