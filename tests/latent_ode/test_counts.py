"""Counts, rain and other series without a value below zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import StructuralForecaster
from tests.cases import mostly_slow, slow
from tests.hybrid.test_model import fitted

STEPS = range(1, 15)
SHAPE = 1 + 0.6 * np.array([-0.5, -0.4, -0.2, 0.0, 0.4, 1.2, -0.5])


def days(n: int) -> pd.DatetimeIndex:
    return pd.date_range("2024-01-01", periods=n, freq="D")


def poisson(rate: Any, seed: int = 0, n: int = 140) -> pd.Series:
    drawn = np.random.default_rng(seed).poisson(rate, n)
    return pd.Series(drawn.astype(float), days(n), name="y")


def rain(seed: int = 0, n: int = 140) -> pd.Series:
    rng = np.random.default_rng(seed)
    drawn = (rng.random(n) < 0.4) * rng.gamma(0.7, 6.0, n)
    return pd.Series(drawn.round(1), days(n), name="y")


def shops() -> pd.DataFrame:
    each = {f"s{k}": poisson(m, k).to_frame() for k, m in enumerate((0.2, 3.0, 80.0))}
    return pd.concat(each, names=["shop", "day"])


def structural(y: Any) -> Any:
    return StructuralForecaster(random_state=0).fit(y)


def all_of(forecaster: Any) -> dict[str, np.ndarray]:
    return {
        "quantiles": forecaster.predict_quantiles(
            STEPS, alpha=[0.001, 0.05, 0.5, 0.99]
        ).to_numpy(),
        "interval": forecaster.predict_interval(STEPS, coverage=0.9).to_numpy(),
        "paths": forecaster.sample(STEPS, n_samples=200).to_numpy(),
        "smooth": forecaster.sample(STEPS, n_samples=200, noise=False).to_numpy(),
        "point": forecaster.predict(STEPS).to_numpy(),
        "variance": forecaster.predict_var(STEPS).to_numpy(),
    }


SERIES = {
    "rare": poisson(0.05),
    "counts": poisson(0.3),
    "counts of a week": poisson(2 * np.tile(SHAPE, 20)),
    "counts far from zero": poisson(50.0),
    "an integer's type": poisson(0.5).astype("int64"),
    "missing values": poisson(1.0).mask(np.arange(140) % 5 == 0),
    "falling": poisson(np.linspace(9, 0.01, 140)),
    "rain": rain(),
    "no zeros": rain() + 0.1,
    "nothing but zeros": 0 * rain(),
    "two rows": poisson(3.0)[:2],
    "a panel": shops(),
}
FRACTIONS = {"rain", "no zeros"}


FAST = "counts", "rain", "nothing but zeros", "a panel"


@pytest.mark.parametrize("name", mostly_slow(SERIES, *FAST))
def test_nothing_is_below_zero_and_counts_are_whole(name: str) -> None:
    forecaster = structural(SERIES[name])
    found = all_of(forecaster)
    for answer, values in found.items():
        assert (values >= 0).all(), answer
    is_whole = [(found[k] % 1 == 0).all() for k in ("quantiles", "interval", "paths")]
    assert all(is_whole) is (name not in FRACTIONS)
    kind = "not below zero" if name in FRACTIONS else "counts"
    assert (forecaster.components_["values"] == kind).all()


def test_the_past_is_not_below_zero() -> None:
    y = poisson(0.4).drop(days(140)[60:75])
    forecaster = structural(y)
    queries = pd.date_range("2023-12-20", periods=160, freq="D")
    low, high = forecaster.predict_interval(fh=queries).to_numpy().T
    assert (forecaster.predict_at(queries) >= 0).all(axis=None)
    assert (low >= 0).all()
    np.testing.assert_array_equal(high % 1, 0)
    assert (forecaster.sample(queries, n_samples=50) >= 0).all(axis=None)


@pytest.mark.slow
@pytest.mark.parametrize("weight", [0.0, 0.6])
def test_level_and_network_agree_on_counts(weight: float) -> None:
    forecaster = fitted(weight, poisson(1.5, n=80))
    assert forecaster.network_share_ == weight
    alpha, n = [0.05, 0.5, 0.95], 4000
    quantiles = forecaster.predict_quantiles(STEPS, alpha=alpha).to_numpy()
    paths = forecaster.sample(STEPS, n_samples=n).to_numpy().reshape(n, -1)
    np.testing.assert_array_equal(paths % 1, 0)
    assert paths.min() == 0
    for k, level in enumerate(alpha):
        assert ((paths <= quantiles[:, k]).mean(0) > level - 0.03).all()
        assert ((paths < quantiles[:, k]).mean(0) < level + 0.03).all()
    ratio = paths.var(0) / forecaster.predict_var(STEPS).to_numpy().ravel()
    np.testing.assert_allclose(ratio, 1, atol=0.15)
    point = forecaster.predict(STEPS).to_numpy().ravel()
    np.testing.assert_allclose(paths.mean(0), point, rtol=0.1)


@pytest.mark.parametrize(
    ("rate", "most"),
    [slow(0.3, 0.1), (0.3 * np.tile(SHAPE, 60), 0.12)],
    ids=["flat", "week"],
)
def test_the_rate_of_rare_events_is_found(rate: Any, most: float) -> None:
    # a rare event is no error of a sensor: it counts in full
    errors = []
    for seed in range(3):
        y = poisson(rate, seed, 420)
        true = np.broadcast_to(rate, 420)[406:]
        found = structural(y[:406]).predict(STEPS).to_numpy().ravel()
        errors.append(np.abs(found - true).mean())
    assert np.mean(errors) < most


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["poisson", "rain"])
def test_intervals_cover(kind: str) -> None:
    covered = []
    for seed in range(6):
        y = poisson(1.5, seed) if kind == "poisson" else rain(seed)
        low, high = structural(y[:126]).predict_interval(STEPS).to_numpy().T
        covered.append((low <= y[126:]) & (y[126:] <= high))
    assert 0.86 < np.mean(covered) < 0.995


@pytest.mark.parametrize(
    ("value", "kind"), [slow(-1.0, "any"), (0.5, "not below zero")]
)
@pytest.mark.parametrize("update_params", [False, slow(True)])
def test_an_update_may_end_what_is_known_of_values(
    value: float, kind: str, update_params: bool
) -> None:
    forecaster = structural(poisson(0.4)[:100])
    assert (forecaster.components_["values"] == "counts").all()
    forecaster.update(
        pd.Series([value], days(140)[100:101]), update_params=update_params
    )
    assert (forecaster.components_["values"] == kind).all()
    found = all_of(forecaster)["quantiles"]
    assert (found < 0).any() == (kind == "any")
    assert (found % 1 != 0).any()
