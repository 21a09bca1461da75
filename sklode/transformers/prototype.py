"""What all of them share: a structural forecaster that is fitted beside them.

Tested in tests/test_transformers.py.
"""

from __future__ import annotations

import pandas as pd
from sktime.forecasting.base import ForecastingHorizon

from sklode.forecasters.structural import StructuralForecaster

# Of the transformers.
TAGS: dict[str, object] = {
    "authors": ["the sklode developers"],
    "maintainers": ["the sklode developers"],
    "scitype:transform-input": "Series",
    "scitype:transform-output": "Series",
    "scitype:instancewise": True,
    "y_inner_mtype": "None",
    "fit_is_empty": False,
    "capability:multivariate": True,
    "capability:missing_values": True,
    "capability:missing_values:removes": True,
    "capability:inverse_transform": False,
    # in a pipeline a forecast stays as it is
    "skip-inverse-transform": True,
}


def check_prototype(forecaster: object) -> None:
    """Check that a parameter is a structural forecaster, or None."""
    if not isinstance(forecaster, StructuralForecaster | None):
        raise TypeError(
            "forecaster must be a StructuralForecaster, whose settings are used, or "
            f"None; got a {type(forecaster).__name__}. Use for example "
            'forecaster=StructuralForecaster(seasons=["1D"]).'
        )


def fitted(
    forecaster: StructuralForecaster | None, y: pd.DataFrame
) -> StructuralForecaster:
    """Return a clone that has found its hyperparameters on y, or the defaults' one.

    It is pretrained, so that a fit on other rows keeps them.
    """
    check_prototype(forecaster)
    one = StructuralForecaster() if forecaster is None else forecaster.clone()
    # pretrain, whose hyperparameters a later fit keeps, takes a panel: a lone series
    # is one of one
    panel = y if y.index.nlevels > 1 else pd.concat({0: y}, names=["key"])
    return one.pretrain(panel)


def at(index: pd.Index) -> pd.Index | ForecastingHorizon:
    """Return a horizon of stamps: integers are else steps."""
    if index.nlevels > 1:
        return index
    if isinstance(index, pd.DatetimeIndex):
        # whose freq may be another than that of the rows
        index = index.copy()
        index.freq = None
    return ForecastingHorizon(index, is_relative=False)
