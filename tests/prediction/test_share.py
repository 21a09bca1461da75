"""Forecasts of level and network together, by the share that is proved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import StructuralForecaster
from sklode.training import guard
from tests.series import tiny, uneven_stamps, waves

STEPS = [1, 2, 5]


def fitted(share: float, y: Any, X: Any = None, **settings: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guard, "share_of", lambda *_: share)
        chosen = {"level": "auto", "lr": 0.05, "n_samples": 400, **settings}
        return tiny(**chosen).fit(y, X=X)


def series() -> pd.Series:
    y = waves(uneven_stamps(60))
    return y + np.linspace(0, 8, 60)


@pytest.fixture(scope="module")
def by_share() -> dict[float, Any]:
    return {share: fitted(share, series()) for share in (0.0, 0.25, 1.0)}


def test_forecasts_are_weighed_quantile_by_quantile(by_share: dict[float, Any]) -> None:
    level, part, whole = (by_share[share] for share in (0.0, 0.25, 1.0))
    assert [f.network_share_ for f in by_share.values()] == [0.0, 0.25, 1.0]
    assert (level.predict(STEPS) - whole.predict(STEPS)).abs().min() > 1e-4
    for answer in (
        lambda f: f.predict(STEPS),
        lambda f: f.predict_at(series().index[:1] - pd.Timedelta("1D")),
        lambda f: f.predict_quantiles(STEPS, alpha=[0.05, 0.5, 0.9]),
        lambda f: np.sqrt(f.predict_var(STEPS)),
    ):
        expected = 0.75 * answer(level) + 0.25 * answer(whole)
        np.testing.assert_allclose(answer(part), expected, rtol=1e-5)


def test_between_observations_the_level_answers(by_share: dict[float, Any]) -> None:
    asked = series().index[3:50:7] + pd.Timedelta("7min")
    expected = by_share[0.0].predict_at(asked)
    for forecaster in by_share.values():
        pd.testing.assert_series_equal(
            forecaster.predict_at(asked).squeeze(), expected.squeeze()
        )


def test_without_a_share_it_is_the_structural_forecaster(
    by_share: dict[float, Any],
) -> None:
    structural = StructuralForecaster().fit(series())
    for answer in (
        lambda f: f.predict([-3, 1, 9]),
        lambda f: f.predict_interval(STEPS),
        lambda f: f.predict_var(STEPS),
        lambda f: f.level_,
    ):
        left, right = answer(by_share[0.0]), answer(structural)
        pd.testing.assert_frame_equal(pd.DataFrame(left), pd.DataFrame(right))


def test_paths_have_the_spread_of_the_quantiles(by_share: dict[float, Any]) -> None:
    part = by_share[0.25]
    paths = part.sample(STEPS, n_samples=2000)
    quantiles = part.predict_quantiles(STEPS, alpha=[0.1, 0.9]).to_numpy()
    drawn = paths.groupby(level=-1).quantile([0.1, 0.9]).unstack().to_numpy()
    width = np.ptp(quantiles, axis=1, keepdims=True)
    np.testing.assert_allclose(drawn / width, quantiles / width, atol=0.12)
    wide = paths.to_numpy().reshape(2000, 3).std(0)
    alone = by_share[1.0].sample(STEPS, n_samples=2000).to_numpy().reshape(2000, 3)
    level = by_share[0.0].sample(STEPS, n_samples=2000).to_numpy().reshape(2000, 3)
    # nearly as wide as if both were wrong together, which they may be
    together = 0.75 * level.std(0) + 0.25 * alone.std(0)
    assert (wide > 0.8 * together).all()
    assert (wide < 1.05 * together).all()


@pytest.mark.parametrize("is_drifting", [False, True])
def test_a_network_learns_what_the_level_leaves_where_windows_drift(
    is_drifting: bool,
) -> None:
    y = waves(uneven_stamps(60))
    if is_drifting:
        y = y + np.linspace(0, 40, 60)
    forecaster = fitted(1.0, y, max_epochs=1, lr=1e-9)
    assert forecaster._model.is_relative is is_drifting
    # one that has learned nothing: the level, or the mean of the series
    level = StructuralForecaster().fit(y).predict(STEPS)
    expected = level if is_drifting else np.full(3, y.mean())
    near = 0.2 * np.ptp(y)
    np.testing.assert_allclose(forecaster.predict(STEPS), expected, atol=near)


def test_a_guard_that_is_off_takes_the_network_as_it_is() -> None:
    y = series()
    free = tiny(level="auto", guard=False).fit(y)
    assert free.network_share_ == 1.0
    unproved = tiny(level="auto").fit(y[:20])  # no four blocks of a horizon
    assert unproved.network_share_ == 0.0
    assert unproved.n_epochs_ == tiny().max_epochs
    expected = StructuralForecaster().fit(y[:20]).predict(STEPS)
    pd.testing.assert_series_equal(unproved.predict(STEPS), expected)
