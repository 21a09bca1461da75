"""Fill what is missing from all rows before and after.

Tested in tests/test_transformers.py.
"""

from __future__ import annotations

from typing import ClassVar, Self

import pandas as pd

from sklode.data.arrays import Frame
from sklode.data.checks import check_choice
from sklode.forecasters.structural import StructuralForecaster
from sklode.transformers.prototype import (
    PrototypeTransformer,
    at,
    check_prototype,
    named_as,
)


class StructuralImputer(PrototypeTransformer):
    """Fill missing values by a structural model in continuous time.

    Observed values stay as they are, as floats. ``fit`` finds how series behave;
    ``transform`` fills those that it gets, from their own rows before and after, at any
    stamps.

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

    Notes
    -----
    What a broken sensor wrote counts as missing and is filled too, and rows before a
    change of unit are rescaled, each with a warning. With
    ``forecaster=StructuralForecaster(clean=False)`` all values stay. Regressors, which
    a pipeline passes as a second argument, are not read.

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
        check_prototype(self)
        check_choice("method", self.method, ["mean", "path"])
        self._learn(X)
        return self

    def _transform(self, X: pd.DataFrame, y: Frame | None = None) -> pd.DataFrame:
        forecaster = self._fitted(X)
        # as the forecaster reads it: what a sensor wrote is missing, units are one
        seen = named_as(X, forecaster._history.frame()).reindex(X.index)
        missing = seen.isna()
        if not missing.to_numpy().any():
            return seen
        # any stamps may be asked for, those that were fitted as well
        rows = X.index[missing.any(axis=1)]
        if self.method == "mean":
            found = pd.DataFrame(forecaster.predict_at(rows))
        else:
            found = forecaster.sample(at(rows), n_samples=1).droplevel("sample")
        return seen.where(~missing, named_as(X, found).reindex(X.index))

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, object]]:
        """Return small settings that sktime's checks run with."""
        forecaster = StructuralForecaster(seasons=None, logarithm=False, random_state=0)
        return [
            {"forecaster": forecaster},
            {"method": "path", "forecaster": forecaster},
        ]
