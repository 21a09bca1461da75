"""Absurd values change a forecast little; a level that has moved is followed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import StructuralForecaster
from sklode.data.observations import Observations
from sklode.structural.filter.system import STEP, THRESHOLD
from sklode.structural.fit import fit_model
from tests.cases import mostly_slow
from tests.structural.search.test_periods import stamps

N, AHEAD = 200, 48


def waves(seed: int = 0) -> tuple[pd.Series, np.ndarray]:
    """Return a noisy daily wave at irregular stamps, and the signal after it."""
    rng = np.random.default_rng(seed)
    minutes = np.round(40 * stamps(N, seed))
    index = pd.Timestamp("2021-03-01") + pd.to_timedelta(minutes, unit="min")
    later = minutes[-1] + 30 * np.arange(1, AHEAD + 1)

    def wave(t: Any) -> Any:
        return 20 + 5 * np.sin(2 * np.pi * t / 1440)

    y = pd.Series(wave(minutes) + 0.5 * rng.standard_normal(N), index, name="y")
    return y, wave(later)


def error_and_width(y: pd.Series, truth: np.ndarray) -> tuple[float, float]:
    forecaster = StructuralForecaster(random_state=0, freq="30min").fit(y)
    steps = np.arange(1, AHEAD + 1)
    error = np.abs(forecaster.predict(steps).to_numpy() - truth).mean()
    width = forecaster.predict_interval(steps, coverage=0.9).to_numpy() @ [-1, 1]
    return float(error), float(width.mean())


@pytest.fixture(scope="module", params=[0])
def clean(request: pytest.FixtureRequest) -> tuple[Any, Any, float, float]:
    y, truth = waves(request.param)
    error, width = error_and_width(y, truth)
    assert error < 0.5
    assert 1.5 < width < 3.0  # 1.64 for the noise alone
    return y, truth, error, width


SPOILED: dict[str, tuple[list[int], float]] = {
    "two codes": ([60, 150], -999.0),
    "one huge": ([120], 400.0),
    "five huge": ([20, 70, 111, 140, 180], 400.0),
    "one late": ([-3], 200.0),
    "two in a row": ([100, 101], 90.0),
    "last one": ([-1], -999.0),
}


@pytest.mark.parametrize("name", mostly_slow(SPOILED))
def test_absurd_values_change_forecast_and_interval_little(
    name: str, clean: tuple[Any, Any, float, float]
) -> None:
    y, truth, error, width = clean
    values = y.to_numpy().copy()
    rows, value = SPOILED[name]
    values[rows] = value
    found = error_and_width(pd.Series(values, y.index, name="y"), truth)
    assert found[0] < 1.5 * error + 0.2
    assert 0.7 * width < found[1] < 1.7 * width


def test_a_level_that_moves_is_followed_after_three_rows() -> None:
    y, truth = waves(2)
    forecaster = StructuralForecaster(random_state=0, freq="30min").fit(y[:150])
    moved = y + 30 * (np.arange(N) >= 150)
    middles = []
    for k in range(150, 155):
        forecaster.update(moved[k : k + 1], update_params=False)
        middles.append(float(forecaster.predict(np.arange(1, 49)).mean()))
    # a day's mean is 20; two rows alone are taken for errors
    assert max(middles[:2]) < 27
    assert min(middles[2:]) > 47
    assert max(middles[2:]) < 53
    error, width = error_and_width(moved, truth + 30)
    assert error < 1.5
    assert width < 8


@pytest.mark.parametrize("n", [200, 2000])
def test_a_small_step_is_followed_however_long_the_past(n: int) -> None:
    y = pd.Series(50 + np.random.default_rng(1).standard_normal(n))
    y.iloc[-15:] += 3
    assert StructuralForecaster().fit(y).predict([1]).iloc[0] > 52


@pytest.mark.parametrize("seed", mostly_slow(range(6)))
def test_one_chance_innovation_is_no_proof_that_large_ones_are_true(seed: int) -> None:
    y, _ = waves(seed)
    found = fit_model(Observations.from_frame(y[:150].to_frame()))
    assert {one.model.rule.threshold for one in found.columns[0].candidates} == {
        THRESHOLD
    }


@pytest.mark.parametrize("kind", ["jumps", "spikes"])
def test_jumps_are_believed_and_spikes_are_not(kind: str) -> None:
    rng = np.random.default_rng(0)
    large = 20 * rng.standard_normal(400) * (rng.random(400) < 0.05)
    y = np.cumsum(rng.standard_normal(400) * 0.3)
    y += np.cumsum(large) if kind == "jumps" else large
    rows = Observations.from_frame(pd.DataFrame({"y": y}))
    candidates = fit_model(rows, (), False).columns[0].candidates
    expected = np.inf if kind == "jumps" else THRESHOLD
    assert {candidate.model.rule.threshold for candidate in candidates} == {expected}


@pytest.mark.slow
def test_what_wanders_smoothly_and_comes_back_is_forecast_to_do_so() -> None:
    rng, n = np.random.default_rng(0), 700
    velocity, y = np.zeros(n), np.zeros(n)
    for k in range(1, n):
        velocity[k] = 0.7 * velocity[k - 1] + rng.standard_normal()
        y[k] = 0.9 * y[k - 1] + velocity[k]
    rows = pd.Series(y, pd.RangeIndex(n))
    errors, naive = [], []
    for end in range(400, 680, 20):
        p = StructuralForecaster().fit(rows[:end]).predict(range(1, 21))
        errors.append((p - rows[end : end + 20]).abs().mean())
        naive.append((rows[end - 1] - rows[end : end + 20]).abs().mean())
    candidates = (
        StructuralForecaster().fit(rows)._model.structural.columns[0].candidates
    )
    assert max(candidates, key=lambda c: c.weight).model.form.returning
    assert np.mean(errors) < 0.85 * np.mean(naive)


@pytest.mark.parametrize("seed", mostly_slow(range(3), 1))
def test_a_rate_that_rose_in_steps_is_not_forecast_to_fall(seed: int) -> None:
    # a policy rate: it fell, lay near zero, and rose; it returned nowhere
    rng = np.random.default_rng(seed)
    low = 0.08 + 0.01 * rng.integers(-1, 2, 90)
    high = np.repeat(0.08 + np.cumsum(rng.choice([0.25, 0.5, 0.75], 10)), 5)
    y = np.r_[np.full(8, 1.55), np.linspace(1.5, 0.1, 6), low, high].round(2)
    rows = pd.Series(y, pd.date_range("2020-01-01", periods=len(y), freq="7D"))
    ahead = StructuralForecaster().fit(rows).predict(fh=range(1, 14))
    assert ahead.min() > 0.9 * y[-1]
    assert ahead.max() < 1.3 * y[-1]


@pytest.mark.parametrize("is_broken", [True, False])
def test_a_trend_steps_only_where_that_is_more_probable(is_broken: bool) -> None:
    y = np.random.default_rng(0).standard_normal(2000)
    if is_broken:
        y[1000:] += 30
    else:  # no wave of the season is as short as its edges: each looks like a step
        y = 0.1 * y + 5.0 * (np.arange(2000) % 240 > 120)
    seasons = () if is_broken else (240.0,)
    rows = Observations.from_frame(pd.DataFrame({"y": y}))
    candidates = fit_model(rows, seasons, False).columns[0].candidates
    assert {one.model.rule.step for one in candidates} == {
        STEP if is_broken else np.inf
    }
