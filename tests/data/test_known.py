"""Forecasts of bounded series stay inside, bend towards a cap, and are as sure."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import LatentODELSTMForecaster, StructuralForecaster
from tests.cases import mostly_slow, slow
from tests.series import channels, waves

N, AHEAD = 90, 60


def structural(**given: Any) -> StructuralForecaster:
    return StructuralForecaster(random_state=0, n_samples=40, **given)


def growth(seed: int = 0, low: float = 0.0, high: float = 100.0) -> pd.Series:
    """Return what grows towards a cap, at uneven stamps; it has passed a fifth."""
    rng = np.random.default_rng(seed)
    days = np.cumsum(rng.exponential(1.0, N + AHEAD))
    # a logistic curve, half way at 1.2 of the days that are fitted: at the last
    # of these u = -1, which is 1 / (1 + e) = 0.27 of the way
    u = (days - 1.2 * days[N]) / (0.2 * days[N])
    u = u + 0.1 * rng.standard_normal(N + AHEAD)
    share = 1 / (1 + np.exp(-u))
    stamps = pd.Timestamp("2024-01-01") + pd.to_timedelta(days, "D").round("ms")
    return pd.Series(low + (high - low) * share, stamps, name="y")


def humidity(seed: int = 0) -> pd.Series:
    """Return hours of percentages, of which many are 100."""
    rng = np.random.default_rng(seed)
    hours = pd.date_range("2024-06-01", periods=N + AHEAD + 150, freq="h")
    day = 25 * np.cos(2 * np.pi * hours.hour / 24)
    drift = np.cumsum(rng.standard_normal(len(hours)))
    y = np.clip(85 + day + 2 * drift - 2 * drift.mean(), 5, 100).round()
    return pd.Series(y, hours, name="y")


def answers(forecaster: Any, index: pd.Index) -> list[np.ndarray]:
    return [
        forecaster.predict(fh=index).to_numpy(),
        forecaster.predict_interval(fh=index, coverage=0.99).to_numpy(),
        forecaster.predict_quantiles(fh=index, alpha=[0.001, 0.5]).to_numpy(),
        forecaster.sample(fh=index).to_numpy(),
        forecaster.sample(fh=index, noise=False).to_numpy(),
    ]


@pytest.mark.parametrize(
    ("y", "bounds", "low", "high"),
    [
        slow(growth(), (0, 100), 0.0, 100.0),
        slow(growth(), (None, 100), 0.0, 100.0),  # below zero it never was
        (growth(low=-3.0, high=-1.0), (None, -1), -np.inf, -1.0),
        slow(-growth(), (-100, None), -100.0, np.inf),
        slow(humidity(), (0, 100), 0.0, 100.0),
        (humidity() - 40, {"y": (-40, 60)}, -40.0, 60.0),
    ],
)
@pytest.mark.parametrize("logarithm", mostly_slow(["auto", False, True]))
def test_no_answer_is_beyond_the_bounds(
    y: pd.Series, bounds: Any, low: float, high: float, logarithm: Any
) -> None:
    forecaster = structural(bounds=bounds, logarithm=logarithm).fit(y[:-AHEAD])
    for found in answers(forecaster, y.index[-AHEAD:]):
        assert found.min() >= low
        assert found.max() <= high
    variance = forecaster.predict_var(fh=y.index[-AHEAD:]).to_numpy()
    assert (variance >= 0).all()
    # no variance is larger within bounds: half of the values at each of them
    if np.isfinite(high - low):
        assert (variance <= (high - low) ** 2 / 4).all()


@pytest.mark.parametrize("n_seeds", [2, slow(6)])
def test_growth_bends_towards_its_cap(n_seeds: int) -> None:
    ratios = []
    for seed in range(n_seeds):
        y = growth(seed)
        past, ahead = y[:N], y[N:]
        # a logit, there and back
        by_hand = StructuralForecaster().fit(np.log(past / (100 - past)))
        expected = 100 / (1 + np.exp(-by_hand.predict(fh=ahead.index)))
        found = structural(bounds=(0, 100)).fit(past).predict(fh=ahead.index)
        error = (found - ahead).abs().mean()
        ratios.append(error / (expected - ahead).abs().mean())
    # the geometric mean, which treats a half and twice alike
    assert np.exp(np.mean(np.log(ratios))) < 1.05


@pytest.mark.parametrize("n_seeds", [2, slow(8)])
def test_intervals_hold_near_the_bound(n_seeds: int) -> None:
    held = []
    for seed in range(n_seeds):
        y = humidity(seed)
        past, ahead = y[:-24], y[-24:]
        forecaster = structural(bounds=(0, 100)).fit(past)
        low, high = forecaster.predict_interval(fh=ahead.index).to_numpy().T
        held.append((low <= ahead) & (ahead <= high))
    assert 0.8 < np.mean(held) <= 1


@pytest.mark.parametrize("logarithm", [slow(False), True])
def test_variances_are_those_of_paths(logarithm: bool) -> None:
    y = humidity()
    past, asked = y[:-24], y.index[-24:]
    forecaster = structural(bounds=(0, 100), logarithm=logarithm).fit(past)
    variance = forecaster.predict_var(fh=asked).to_numpy()[:, 0]
    # a variance of n normal draws has an error of sqrt(2 / n), 2 %; near a bound,
    # where tails are longer, several times that
    paths = forecaster.sample(fh=asked, n_samples=5_000)["y"]
    drawn = paths.groupby(level=1).var().to_numpy()
    np.testing.assert_allclose(variance, drawn, rtol=0.1)


def test_each_column_may_have_bounds_of_its_own() -> None:
    y = channels()
    low = y.iloc[:, 0].min()
    forecaster = structural(bounds={y.columns[0]: (low, None)}).fit(y)
    found = forecaster.sample(fh=range(1, 30))
    assert found.iloc[:, 0].min() >= low
    assert found.iloc[:, 1].min() < y.iloc[:, 1].min()


def test_bounds_survive_a_pickle_and_a_file(tmp_path: Path) -> None:
    y = growth()
    forecaster = structural(bounds={"y": (0, None)}).fit(y[:N])
    found = forecaster.predict(fh=y.index[N:])
    forecaster.save_weights(tmp_path / "saved")
    loaded = StructuralForecaster.load_weights(tmp_path / "saved")
    for other in (pickle.loads(pickle.dumps(forecaster)), loaded):
        pd.testing.assert_series_equal(other.predict(fh=y.index[N:]), found)
        assert other.get_params() == forecaster.get_params()
        assert list(other.components_["link"].unique()) == ["logarithm"]


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ((100, 0), "first below the second"),
        ((0, 0), "first below the second"),
        ((0, 1, 2), r"got \(0, 1, 2\)"),
        (("a", None), r"such as \(0, 100\)"),
        ({"other": (0, 1)}, "must name columns of y, .*got 'other'"),
        ({"y": 3}, r"got 3"),
        (
            (-1, 0.9),
            "lie within their bounds, -1 to 0.9; got 0.91.* in column 'y' at 210",
        ),
    ],
)
def test_bounds_that_cannot_be_are_refused(bounds: Any, message: str) -> None:
    y = waves().rename("y")
    with pytest.raises(ValueError, match=message):
        structural(bounds=bounds).fit(y / y.abs().max())


def test_an_update_beyond_the_bounds_is_refused_and_changes_nothing() -> None:
    y = growth()
    forecaster = structural(bounds=(0, 100)).fit(y[:N])
    before = forecaster.predict(fh=[1])
    with pytest.raises(ValueError, match="0 to 100; got 130 in column 'y' at 2024"):
        forecaster.update(y[N : N + 1] * 0 + 130)
    pd.testing.assert_series_equal(forecaster.predict(fh=[1]), before)


def test_a_fit_that_keeps_what_pretrain_found_is_checked_too() -> None:
    y = growth()
    keyed = pd.concat({k: y[:N].to_frame() for k in "ab"}, names=["key", "when"])
    forecaster = structural(bounds=(0, 100)).pretrain(keyed)
    with pytest.raises(ValueError, match="0 to 100; got 250"):
        forecaster.fit(y[:N] * 0 + 250)


@pytest.mark.slow
def test_a_network_stays_within_bounds() -> None:
    parts = [growth(seed)[: N - 10] for seed in range(6)]
    keyed = dict(enumerate(part.to_frame() for part in parts))
    y = pd.concat(keyed, names=["key", "when"])
    forecaster = LatentODELSTMForecaster(
        bounds=(0, 100), guard=False, max_epochs=2, n_samples=20, random_state=0
    ).fit(y)
    assert forecaster.network_share_ == 1
    found = [forecaster.predict(fh=range(1, 40)), forecaster.sample(fh=range(1, 40))]
    assert min(x.to_numpy().min() for x in found) >= 0
    assert max(x.to_numpy().max() for x in found) <= 100
    paper = LatentODELSTMForecaster(bounds=(0, 100), model="paper")
    with pytest.raises(ValueError, match=r"bounds belongs to model=.hybrid"):
        paper.fit(y)
