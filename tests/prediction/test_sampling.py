"""Sample paths of the forecast: joint over stamps and channels, and smooth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sktime.forecasting.base import ForecastingHorizon

from tests.series import FORECASTERS, channels, tiny

TRAINED: dict[str, Any] = {"max_epochs": 20, "lr": 0.05, "level": "series"}


def smooth_paths(forecaster: Any, times: np.ndarray, n: int = 200) -> np.ndarray:
    """Return paths without noise, (sample, stamp, channel)."""
    fh = ForecastingHorizon(pd.Index(times), is_relative=False)
    frame = forecaster.sample(fh, n_samples=n, noise=False)
    paths: np.ndarray = frame.to_numpy().reshape(n, len(times), -1)
    return paths


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORECASTERS)
@pytest.mark.parametrize("method", ["rk4", "euler"])
def test_neighbouring_stamps_of_a_path_belong_together(kind: type, method: str) -> None:
    y = channels()
    forecaster = tiny(kind, method=method, **TRAINED).fit(y)
    times = np.arange(y.index[-3], y.index[-1] + 100)  # a median gap is 45
    deviations = smooth_paths(forecaster, times)
    deviations = deviations - deviations.mean(0)
    size = deviations.std(0)
    for channel in range(2):
        now, then = deviations[:, :-1, channel], deviations[:, 1:, channel]
        both = size[:-1, channel] * size[1:, channel]
        assert ((now * then).mean(0) / both).min() > 0.99


@pytest.mark.parametrize("kind", FORECASTERS)
def test_a_path_bends_little_also_at_the_joints_of_the_solvers_grid(kind: type) -> None:
    y = channels()
    forecaster = tiny(kind, **TRAINED).fit(y)
    # what the last window answers: its later stamps, and several grid steps beyond
    forecaster._model.calibration = None  # its scale has corners
    forecaster._set_model(forecaster._model)
    coarse = np.arange(y.index[-3], y.index[-1] + 200, 2)
    fine = np.arange(y.index[-3], y.index[-1] + 200, 1)
    bend = [
        np.abs(np.diff(smooth_paths(forecaster, times), 2, axis=1)).max((0, 1))
        for times in (coarse, fine)
    ]
    # a kink's second difference halves with the step, a smooth curve's is quartered
    assert (bend[1] < 0.3 * bend[0]).all()
    assert (bend[0] < 0.01 * forecaster.scale_).all()


def test_paths_inside_the_history_jump_from_window_to_window_only() -> None:
    y = channels()
    forecaster = tiny(**TRAINED).fit(y)
    times = np.arange(y.index[3], y.index[-1])
    predictor = forecaster._answers
    joints = np.diff(predictor._placed(np.zeros_like(times), times)[0]) != 0
    assert joints.sum() >= 2
    step = np.abs(np.diff(smooth_paths(forecaster, times), axis=1)).mean((0, 2))
    assert step[joints].min() > step[~joints].max()
