"""With the defaults a forecaster learns more than a straight line."""

from __future__ import annotations

import numpy as np
import pytest

from sklode import LatentODELSTMForecaster, LatentODERNNForecaster
from tests.series import two_sines

N_AHEAD = 20


def relative_errors(kind: type, seeds: range) -> list[float]:
    """Return the MSE at the next stamps over the signal's variance, per series."""
    errors = []
    for seed in seeds:
        y, variance = two_sines(seed, 300 + N_AHEAD)
        train, test = y[:-N_AHEAD], y[-N_AHEAD:]
        forecast = kind(random_state=0).fit(train).predict(test.index)
        errors.append(float(((forecast - test) ** 2).mean() / variance))
    return errors


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "n_series"), [(LatentODELSTMForecaster, 5), (LatentODERNNForecaster, 2)]
)
def test_two_sines_at_exponential_gaps_are_forecast(kind: type, n_series: int) -> None:
    errors = relative_errors(kind, range(n_series))
    assert np.median(errors) <= 0.35, errors
    assert max(errors) <= 1.2, errors
