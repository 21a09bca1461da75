"""Quantiles, variances, distributions and paths lie around the line."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sktime.forecasting.base import ForecastingHorizon

from tests.lines import (
    KINDS,
    NOISE,
    SLOPE,
    SPREAD,
    TOLERANCE,
    assert_on_line,
    fitted_on,
    learned,
    line,
    of_kinds,
    two_columns,
)

ALL = of_kinds()
WITH_ABSOLUTE_HORIZONS = of_kinds(
    lambda kind: not isinstance(kind.index, pd.TimedeltaIndex)
)


@ALL
def test_quantiles_lie_around_the_line(name: str) -> None:
    kind = KINDS[name]
    forecaster = fitted_on(name)
    forecaster.n_samples = 400
    steps = [-1, 1, 4]
    width = SLOPE * np.hypot(SPREAD, NOISE)
    quantiles = forecaster.predict_quantiles(steps, alpha=[0.1, 0.5, 0.9])
    assert_on_line(quantiles["y"][0.5], kind.steps(*steps), kind.step)
    spread = quantiles["y"][0.9] - quantiles["y"][0.1]
    np.testing.assert_allclose(spread, 2 * 1.2816 * width, rtol=0.2)
    interval = forecaster.predict_interval(steps, coverage=0.8)["y"][0.8]
    assert_on_line(interval.mean(axis=1), kind.steps(*steps), kind.step)
    variance = forecaster.predict_var(steps)
    pd.testing.assert_index_equal(variance.index, kind.steps(*steps), exact="equiv")
    np.testing.assert_allclose(variance, width**2, rtol=0.2)
    distribution = forecaster.predict_proba(steps)
    assert_on_line(distribution.mean(), kind.steps(*steps), kind.step)


@WITH_ABSOLUTE_HORIZONS
def test_quantiles_at_stamps_lie_around_the_line(name: str) -> None:
    kind, forecaster = KINDS[name], fitted_on(name)
    forecaster.n_samples = 400
    asked = kind.before[-1:].append(kind.index[-2:]).append(kind.steps(2))
    fh = ForecastingHorizon(asked, is_relative=False)
    quantiles = forecaster.predict_quantiles(fh, alpha=[0.5])
    assert_on_line(quantiles, asked, kind.step)
    assert_on_line(forecaster.predict_proba(fh).mean(), asked, kind.step)
    variance = forecaster.predict_var(fh)
    pd.testing.assert_index_equal(variance.index, asked, exact="equiv")


def test_quantiles_of_columns_lie_around_their_own_lines() -> None:
    kind = KINDS["hours with gaps"]
    y = two_columns(kind.index, kind.step)
    forecaster = learned(y, n_samples=400).fit(y)
    stamps = kind.steps(1, 3)
    forecasts = forecaster.predict([1, 3])
    intervals = forecaster.predict_interval([1, 3], coverage=[0.5, 0.9])
    for name, off in (("low", 0), ("high", 50)):
        for coverage in (0.5, 0.9):
            centre = intervals[name][coverage].mean(axis=1)
            assert_on_line(centre, stamps, kind.step, off)
        assert_on_line(forecasts[name], stamps, kind.step, off)


@ALL
def test_sample_paths_run_along_the_line(name: str) -> None:
    kind, forecaster = KINDS[name], fitted_on(name)
    paths = forecaster.sample([-1, 2, 5], n_samples=300)
    centre = paths["y"].groupby(level=-1).mean()
    assert_on_line(centre, kind.steps(-1, 2, 5), kind.step)
    smooth = forecaster.sample([1, 2, 5], n_samples=50, noise=False)["y"]
    off = smooth.to_numpy().reshape(50, 3) - line(kind.steps(1, 2, 5), kind.step)
    np.testing.assert_allclose(off - off[:, :1], 0, atol=TOLERANCE / 10)
    assert off[:, 0].std() == pytest.approx(SPREAD * SLOPE, rel=0.3)
