"""Series of a panel that are unlike: none costs another what it knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import StructuralForecaster
from sklode.structural.rows import ChannelRows
from sklode.structural.search.groups import (
    ABOVE,
    BELOW,
    SOME_ZEROS,
    ZEROS,
    kinds_of,
    nearest,
)
from tests.cases import slow

N, AHEAD = 84, 28
DAYS = pd.date_range("2024-01-01", periods=N + AHEAD, freq="D")


def weekly(rng: np.random.Generator) -> Any:
    """Return a season of a week that drifts, around 40."""
    wave = np.sin(2 * np.pi * np.arange(len(DAYS)) / 7 + rng.uniform(0, 6))
    return 40 + 12 * wave + np.cumsum(rng.normal(0, 0.4, len(DAYS)))


def noisy(rng: np.random.Generator) -> Any:
    return weekly(rng) + 3 * rng.standard_normal(len(DAYS))


def counts(rng: np.random.Generator) -> Any:
    return rng.poisson(weekly(rng) / 40).astype(float)


def unlike(rng: np.random.Generator) -> dict[str, Any]:
    """Return ten series: with zeros, larger, without a season, shorter."""
    found: dict[str, Any] = {
        f"zeros {k}": rng.poisson(0.3 * k, len(DAYS)) for k in (1, 2, 3)
    }
    found |= {f"larger {k}": 1000.0 * 10**k * (3 + noisy(rng) / 40) for k in range(3)}
    found |= {f"flat {k}": 20 + 3 * rng.standard_normal(len(DAYS)) for k in range(2)}
    series = {key: pd.Series(values, DAYS)[:N] for key, values in found.items()}
    for k in range(2):
        series[f"short {k}"] = pd.Series(noisy(rng), DAYS)[N - 20 : N]
    return series


def joined(series: dict[str, Any]) -> pd.DataFrame:
    floats = {key: one.astype(float) for key, one in series.items()}
    return pd.concat(floats, names=["key", "day"]).to_frame("y")


@pytest.mark.parametrize("n_seeds", [1, slow(10)])
@pytest.mark.parametrize(("kind", "most"), [(noisy, 1.2), slow(counts, 1.25)])
def test_a_series_is_forecast_as_well_in_company_as_alone(
    kind: Any, most: float, n_seeds: int
) -> None:
    ratios = []
    for seed in range(n_seeds):
        rng = np.random.default_rng(seed)
        y = pd.Series(kind(rng), DAYS, name="y")
        both = StructuralForecaster().fit(joined({"own": y[:N], **unlike(rng)}))
        alone = StructuralForecaster().fit(y[:N]).predict(fh=range(1, AHEAD + 1))
        concurrent = both.predict(fh=range(1, AHEAD + 1)).loc["own", "y"]
        errors = [(y[N:] - one).abs().mean() for one in (concurrent, alone)]
        ratios.append(errors[0] / errors[1])
    assert np.exp(np.mean(np.log(ratios))) <= 1.03
    assert max(ratios) <= most


@pytest.mark.slow
def test_series_with_zeros_leave_others_their_season() -> None:
    rng = np.random.default_rng(0)
    seasonal = {f"own {k}": pd.Series(noisy(rng), DAYS)[:N] for k in range(4)}
    rare = {f"rare {k}": pd.Series(rng.random(N) < 0.1, DAYS[:N]) for k in range(6)}
    ahead = range(1, 8)
    alone = StructuralForecaster().fit(joined(seasonal)).predict(fh=ahead)
    both = StructuralForecaster(random_state=0).fit(joined(seasonal | rare))
    found = both.predict(fh=ahead)
    np.testing.assert_allclose(found.loc[alone.index], alone, rtol=1e-6)
    # each answer is that of its own group, whatever is asked with it
    drawn = both.sample(fh=ahead, n_samples=50).iloc[:, 0]
    keys = drawn.index.get_level_values("key")
    assert drawn[keys.str.startswith("own")].min() > 5
    assert 0 <= drawn[keys.str.startswith("rare")].min()
    assert drawn[keys.str.startswith("rare")].max() < 5
    parts = both._parts(found.index, None)["y"]
    whole = parts.drop(columns="signal").sum(axis=1)
    np.testing.assert_allclose(whole, parts["signal"], atol=1e-6)


@pytest.mark.slow
def test_like_series_stay_together_though_some_have_zeros() -> None:
    rng = np.random.default_rng(1)
    rows = {str(k): pd.Series(rng.poisson(3, 24), DAYS[:24]) for k in range(12)}
    found = StructuralForecaster().fit(joined(rows))._answers.states.columns[0]
    assert (found.weights > 0).all()


def test_a_new_series_is_taken_for_what_it_is_like() -> None:
    rng = np.random.default_rng(0)
    seasonal = {f"own {k}": pd.Series(noisy(rng), DAYS)[:N] for k in range(4)}
    rare = {f"rare {k}": pd.Series(rng.random(N) < 0.1, DAYS[:N]) for k in range(6)}
    pretrained = StructuralForecaster().pretrain(joined(seasonal | rare))
    new = pd.Series(noisy(rng), DAYS, name="y")
    found = pretrained.fit(new[:N]).predict(fh=range(1, AHEAD + 1))
    assert (found - new[N:]).abs().mean() < 4.5  # of a noise of three


@pytest.mark.parametrize("n", [45, slow(90)])
def test_what_is_rarely_sold_is_forecast_by_its_mean(n: int) -> None:
    """Sums over a panel of parts are what was sold."""
    rng = np.random.default_rng(0)
    months = pd.date_range("2015-01-01", periods=n, freq="MS")
    rates = rng.gamma(2.0, 0.05, 60)
    rows = {str(k): pd.Series(rng.poisson(r, n), months) for k, r in enumerate(rates)}
    y = joined(rows)
    found = StructuralForecaster().fit(y).predict(fh=range(1, 7))["y"]
    assert 0.9 < found.mean() / y["y"].mean() < 1.1


def test_kinds_tell_zeros_and_what_is_below() -> None:
    each = [[1.0] * 20, [0.0] + [1.0] * 19, [0.0] * 10 + [1.0] * 10, [-1.0, 0.0], []]
    series = np.repeat(np.arange(5), [len(values) for values in each])
    times, values = np.arange(len(series)) * 1.0, np.concatenate(each)
    table = ChannelRows.from_series(
        series, times, values, np.zeros((len(series), 1)), 5
    )
    found = kinds_of(table)
    assert found.tolist() == [ABOVE, SOME_ZEROS, ZEROS, BELOW, -1]
    assert nearest([ZEROS, ABOVE], found).tolist() == [0, 2, 2, 2, 2]
