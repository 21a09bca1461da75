"""Exogenous X for tests: two controls, and forecasters that were fitted with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sktime.forecasting.base import ForecastingHorizon

from tests.series import panel, tiny, uneven_stamps, waves

TRAINED: dict[str, Any] = {"max_epochs": 10, "lr": 0.05}
STEPS = [-40, -2, 1, 2, 5]
INDEX = uneven_stamps(30)
PAST, LATER = INDEX[:24], INDEX[24:]


def controls(index: pd.Index, shift: float = 0.0) -> pd.DataFrame:
    """Return two different controls as the columns "u" and "v"."""
    row = np.arange(len(index)) + shift
    return pd.DataFrame({"u": np.sin(row), "v": 5 * np.cos(row / 3) + 2}, index)


def at(stamps: Any) -> ForecastingHorizon:
    return ForecastingHorizon(pd.Index(stamps), is_relative=False)


def moved(X: pd.DataFrame, rows: Any, by: float = 2.0) -> pd.DataFrame:
    """Return X with the control "u" changed in some rows."""
    other = X.copy()
    other.loc[rows, "u"] += by
    return other


def largest(difference: Any) -> float:
    return float(np.abs(np.asarray(difference)).max())


def forecaster_with_controls() -> Any:
    """Return a forecaster fitted to the first 24 stamps of INDEX."""
    return tiny(**TRAINED).fit(waves(INDEX)[:24], controls(INDEX)[:24])


def pretrained_with_controls() -> Any:
    """Return a pretrained forecaster, whose fit changes the history only."""
    y = panel()
    return tiny(**TRAINED, finetune_epochs=0).pretrain(y, controls(y.index))
