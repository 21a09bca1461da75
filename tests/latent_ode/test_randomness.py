"""Sample paths of the forecast: joint over stamps and channels, and smooth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sktime.forecasting.base import ForecastingHorizon

from tests.series import MOSTLY_ONE, channels, tiny

TRAINED: dict[str, Any] = {"max_epochs": 20, "lr": 0.05, "model": "paper"}


def smooth_paths(forecaster: Any, times: np.ndarray, n: int = 200) -> np.ndarray:
    """Return paths without noise, (sample, stamp, channel)."""
    fh = ForecastingHorizon(pd.Index(times), is_relative=False)
    frame = forecaster.sample(fh, n_samples=n, noise=False)
    paths: np.ndarray = frame.to_numpy().reshape(n, len(times), -1)
    return paths


@pytest.mark.parametrize("kind", MOSTLY_ONE)
def test_a_path_bends_little_also_at_the_joints_of_the_solvers_grid(kind: type) -> None:
    y = channels()
    forecaster = tiny(kind, **TRAINED).fit(y)
    # what the last window answers: its later stamps, and several grid steps beyond
    # its scale has corners
    forecaster._set_model(replace(forecaster._model, calibration=None))
    coarse = np.arange(y.index[-3], y.index[-1] + 200, 2)
    fine = np.arange(y.index[-3], y.index[-1] + 200, 1)
    bend = [
        np.abs(np.diff(smooth_paths(forecaster, times), 2, axis=1)).max((0, 1))
        for times in (coarse, fine)
    ]
    # a kink's second difference halves with the step, a smooth curve's is quartered
    assert (bend[1] < 0.3 * bend[0]).all()
    assert (bend[0] < 0.01 * forecaster.scale_).all()
