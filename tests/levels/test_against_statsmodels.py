"""Where statsmodels has the same model, at stamps one apart, its numbers are ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sklode.levels.components import Component
from sklode.levels.forms import Form
from sklode.levels.table import Table
from tests.levels.processes import ABSENT, LEAST, SPAN, answer, asked, component, level

tsa: Any = pytest.importorskip("statsmodels.api", reason="compares with it").tsa

N = 60


def series(season: bool = False) -> np.ndarray:
    rng, rows = np.random.default_rng(0), np.arange(N)
    y = np.cumsum(rng.standard_normal(N)) / 3 + 0.1 * rows
    y += season * np.sin(2 * np.pi * rows / 6)
    y[[5, 20, 21, 22]] = np.nan
    return y


def assert_same(
    one: Component, y: np.ndarray, results: Any, noise: float, error: float = 1e-7
) -> None:
    """Check forecasts, the smoothed signal and their variances."""
    seen = ~np.isnan(y)
    rows = np.arange(N)[seen] * 1.0
    table = Table(rows, y[seen], np.zeros((len(rows), 1)), np.array([0, len(rows)]))
    channel = level(table, one)
    mean, variance = answer(channel, asked(N + np.arange(12)))
    forecast = results.get_forecast(12)
    np.testing.assert_allclose(mean, forecast.predicted_mean, rtol=error, atol=error)
    np.testing.assert_allclose(
        variance + noise, forecast.var_pred_mean, rtol=10 * error
    )
    mean, variance = answer(channel, asked(np.arange(N)))
    design = results.model.ssm["design"][0]
    states, spreads = results.smoothed_state, results.smoothed_state_cov
    np.testing.assert_allclose(mean, design @ states, rtol=error, atol=error)
    expected = np.einsum("i,ijt,j->t", design, spreads, design)
    np.testing.assert_allclose(variance, expected, rtol=30 * error, atol=1e-9)


@pytest.mark.parametrize("slope", [0.0, 4.0])
def test_a_walk_with_noise_and_a_drift_is_its_local_level(slope: float) -> None:
    sizes = ABSENT | {"walk": 1.5, "slope": max(slope, 1e-9)}
    one, y = component(**sizes, noise=0.4, constant=3.0), series()
    noise, walk = 0.4**2 + LEAST**2, 1.5**2 / SPAN
    kind = "local linear deterministic trend" if slope else "local level"
    model = tsa.UnobservedComponents(y, kind)
    start = one.space(SPAN).start[:2, :2] if slope else one.space(SPAN).start[:1, :1]
    model.ssm.initialize_known(np.zeros(len(start)), start)
    results = model.smooth([noise, walk])
    assert_same(one, y, results, noise)


def test_a_velocity_that_lasts_is_its_smooth_trend() -> None:
    velocity, memory, noise = 3e3, 1e6, 0.2**2 + LEAST**2
    sizes = ABSENT | {"velocity": velocity, "velocity_memory": memory}
    one, y = component(**sizes, noise=0.2, constant=3.0), series()
    rate = 2 * (velocity / SPAN) ** 2 / memory  # of a white acceleration
    trend = tsa.statespace.MLEModel(y, k_states=2, k_posdef=2)
    trend["design"] = [[1.0, 0.0]]
    trend["transition"] = [[1.0, 1.0], [0.0, 1.0]]
    trend["selection"] = np.eye(2)
    trend["state_cov"] = rate * np.array([[1 / 3, 1 / 2], [1 / 2, 1]])
    trend["obs_cov"] = [[noise]]
    start = one.space(SPAN).start[np.ix_([0, 2], [0, 2])]
    trend.ssm.initialize_known(np.zeros(2), start)
    assert_same(one, y, trend.smooth([]), noise, 1e-4)


def test_a_season_that_lasts_is_its_fixed_season() -> None:
    form, kept, noise = Form((6.0,)), 1e12, 0.3**2 + LEAST**2
    sizes = ABSENT | {"walk": 0.8, "season": 1.2, "kept": kept}
    one, y = (
        component(form, **sizes, noise=0.3, constant=3.0, harmonics=2),
        series(True),
    )
    season = [{"period": 6, "harmonics": 2}]
    model = tsa.UnobservedComponents(
        y,
        "local level",
        freq_seasonal=season,
        stochastic_freq_seasonal=[False],
    )
    shares = np.repeat([2 / 3, 1 / 3], 2)
    start = np.diag(np.append(one.space(SPAN).start[0, 0], 1.2**2 * shares))
    model.ssm.initialize_known(np.zeros(5), start)
    results = model.smooth([noise, 0.8**2 / SPAN])
    assert_same(one, y, results, noise)
