"""What a level is made of: parts, logarithm and X as far as the data ask for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import StructuralForecaster
from sklode.data.observations import Observations
from sklode.structural.components.space import PLACE, Form
from sklode.structural.effects.modulation import Day
from sklode.structural.fit import fit_model
from sklode.structural.model import StructuralModel
from sklode.structural.search import forms
from tests.cases import mostly_slow

ROWS = np.arange(60)


def level(y: Any, X: Any = None, **settings: Any) -> StructuralModel:
    return fit_model(Observations.from_frame(pd.DataFrame(y), X), **settings)


def share(
    found: StructuralModel, has: Callable[[Form], Any], channel: int = 0
) -> float:
    """Return how probable forms are that have something."""
    candidates = found.columns[channel].candidates
    return sum(one.weight for one in candidates if has(one.model.form))


def share_of_drift(found: StructuralModel) -> float:
    """Return how much random walks with drift, and nothing else, count."""
    names = ["slope", "velocity", "OU"]
    return sum(
        one.weight
        for one in found.columns[0].candidates
        if np.allclose(
            np.exp(one.model.theta[[PLACE[k] for k in names]]), [10, 0, 0], atol=1e-3
        )
    )


def is_log(form: Form) -> bool:
    return form.linked


def periods(form: Form) -> tuple[float, ...]:
    return form.periods


def noise(seed: int, n: int = 60) -> Any:
    return np.random.default_rng(seed).standard_normal(n)


@pytest.mark.parametrize("seed", mostly_slow(range(2)))
def test_growth_is_of_the_logarithm_and_a_sum_is_not(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forms, "_FEW", 0.01)  # no walk with drift, of y itself
    growth = 100 * np.exp(np.cumsum(0.02 + 0.05 * noise(seed)))
    assert share(level(growth), is_log) > 0.9
    assert share(level(-growth), is_log) == 0
    assert share(level(growth, logarithm=False), is_log) == 0
    line = 10 + 0.1 * ROWS + noise(seed)
    assert share(level(line), is_log) < 0.5
    assert share(level(line, logarithm=True), is_log) == pytest.approx(1)
    few = level(growth[:7])
    assert share(few, is_log) == 0


@pytest.mark.parametrize(("n", "least", "most"), [(12, 0.55, 0.6), (100, 0.2, 0.25)])
def test_of_few_rows_two_thirds_are_random_walks_with_drift(
    n: int, least: float, most: float
) -> None:
    assert least < share_of_drift(level(np.cumsum(noise(0, n)))) < most


def test_one_of_these_walks_has_noise_and_one_has_none() -> None:
    y = np.cumsum(1 + noise(0, 12))
    found = level(y)
    assert sum(one.weight for one in found.columns[0].candidates) == pytest.approx(1)
    noises = [
        np.exp(one.model.theta[PLACE["noise"]])
        for one in found.columns[0].candidates
        if np.isclose(np.exp(one.model.theta[PLACE["slope"]]), 10)
    ]
    assert min(noises) < 1e-3 < 0.01 < max(noises)


def share_of_any_slope(found: Any) -> float:
    """Return how much candidates count whose slope may be that of a line."""
    slopes = [
        (np.exp(one.model.theta[PLACE["slope"]]), one.weight)
        for one in found.columns[0].candidates
    ]
    return sum(w for slope, w in slopes if np.isclose(slope, np.sqrt(12)))


@pytest.mark.parametrize(("n", "expected"), [(12, 1 / 3), (60, 1 / 3), (36, 1 / 2)])
def test_of_few_rows_the_slope_may_be_any(n: int, expected: float) -> None:
    has_season = n == 36
    season = 10 * np.sin(np.pi * np.arange(n) / 6) if has_season else 0.0
    y = season + np.cumsum(noise(0, n))
    index = pd.period_range("2020-01", periods=n, freq="M" if has_season else "Y")
    found = level(pd.Series(y, index))
    assert any(one.model.form.periods for one in found.columns[0].candidates) is (
        has_season
    )
    shrunk = expected * np.exp(-n / 100)
    assert share_of_any_slope(found) == pytest.approx(shrunk, abs=0.02)


def test_few_years_of_growth_that_quickened_are_forecast_with_their_drift() -> None:
    rate = np.r_[np.full(10, 0.03), np.linspace(0.03, 0.12, 8)] + 0.01 * noise(0, 18)
    y = pd.Series(100 * np.exp(np.cumsum(rate)))
    found = StructuralForecaster(random_state=0).fit(y).predict([6]).iloc[0]
    drift = y.iloc[-1] + 6 * y.diff().mean()
    # at the last rate of growth y would be more than twice as large
    assert drift < found < 1.6 * y.iloc[-1]


@pytest.mark.parametrize(
    "y",
    [
        np.sin(np.arange(100) / 5),  # smooth
        np.tile(np.arange(6.0), 10) + 0.1 * noise(0),  # a season
        noise(0) > 1,  # rare counts
    ],
    ids=["smooth", "season", "counts"],
)
def test_what_is_more_than_a_level_has_no_share_of_drift(y: Any) -> None:
    assert share_of_drift(level(y.astype(float))) < 0.002


def test_where_X_acts_or_a_panel_shares_no_level_drifts_alone() -> None:
    X = pd.DataFrame({"u": noise(1)})
    assert share_of_drift(level(5 * noise(1) + noise(2), X)) == 0
    several = pd.concat({k: pd.Series(np.cumsum(noise(k))) for k in range(3)})
    assert share_of_drift(level(several)) == 0


@pytest.mark.parametrize("seed", mostly_slow(range(2)))
def test_noise_has_no_more_of_the_days_season_than_a_trace(seed: int) -> None:
    index = pd.date_range("2020", periods=240, freq="3h")
    forecaster = StructuralForecaster(random_state=0)
    forecaster.fit(pd.Series(noise(seed, 240), index))
    assert forecaster.predict(np.arange(1, 57)).std() < 0.25
    wave = np.sin(2 * np.pi * np.arange(240) / 8)
    forecaster.fit(pd.Series(wave + noise(seed, 240), index))
    error = forecaster.predict(np.arange(1, 57)) - wave[:56]
    assert error.std() < 0.35


@pytest.mark.parametrize("seed", mostly_slow(range(2)))
def test_x_is_taken_where_it_tells_something(seed: int) -> None:
    X = pd.DataFrame({"u": noise(seed), "v": noise(seed + 50)})
    e = noise(seed + 100)

    def has_x(form: Form) -> bool:
        return len(form.effects) == 2

    assert share(level(e + X["u"] - 0.5 * X["v"], X), has_x) > 0.9
    assert share(level(e, X), has_x) < 0.5


@pytest.mark.parametrize(("quiet", "differ"), [(0.4, True), (1.0, False)])
def test_days_differ_over_the_week_where_the_data_say_so(
    quiet: float, differ: bool
) -> None:
    hours = pd.date_range("2024-03-04", periods=16 * 24, freq="h")
    is_weekend = hours.dayofweek >= 5
    peaks = [np.exp(-(((hours.hour - peak) / 3) ** 2)) for peak in (9, 19)]
    load = 300 + 200 * np.sum(peaks, axis=0) * np.where(is_weekend, quiet, 1.0)
    y = pd.Series(load - 30 * is_weekend * differ + 8 * noise(0, len(hours)), hours)
    forecaster = StructuralForecaster().fit(y[:-48])
    effects = forecaster._model.structural.design.effects
    shapes = [e.modulation for e in effects if isinstance(e.modulation, Day)]
    kinds = {shape.days for shape in shapes}
    assert kinds - {()} == ({(5, 6)} if differ else set())
    error = (forecaster.predict(y.index[-48:]) - y[-48:]).abs().mean()
    assert error < 1.1 * (y - y.shift(168))[-48:].abs().mean()


@pytest.mark.parametrize("seasons", [(), (5.0,), (5.0, 17.0)])
def test_given_seasons_are_the_only_ones(seasons: tuple[float, ...]) -> None:
    y = np.sin(2 * np.pi * ROWS / 5) + np.sin(2 * np.pi * ROWS / 13) + 0.1 * noise(0)
    found = {
        p
        for one in level(y, seasons=seasons).columns[0].candidates
        for p in one.model.form.periods
    }
    assert found <= set(seasons)
    assert (5.0 in found) == (5.0 in seasons)


# Panels


def family(n: int = 12, length: int = 25) -> pd.DataFrame:
    """Return noisy walks around levels of their own, of a standard deviation of 4."""
    rng = np.random.default_rng(0)
    parts = {
        k: pd.DataFrame({"y": 50 + 4 * rng.standard_normal() + 0.3 * noise(k, length)})
        for k in range(n)
    }
    return pd.concat(parts)


def test_a_series_of_one_row_is_answered_by_the_population() -> None:
    y = family()
    first = pd.DataFrame({"y": [54.0]}, pd.MultiIndex.from_tuples([(99, 0)]))
    forecaster = StructuralForecaster(random_state=0).fit(pd.concat([y, first]))
    interval = forecaster.predict_interval([1, 10], coverage=0.9).loc[99]
    low, high = interval.to_numpy().T
    # levels differ by 4, rows of a series by 0.3 only: it is near its one row
    assert (abs(forecaster.predict([1, 10]).loc[99] - 54) < 0.5).all(axis=None)
    assert (high - low < 3).all()
    assert (high - low > 0.6).all()
    alone = StructuralForecaster(random_state=0).fit(first["y"].loc[99])
    wider = alone.predict_interval([10], coverage=0.9).to_numpy() @ [-1, 1]
    assert wider[0] > 3 * (high - low)[1]


def test_a_channel_that_a_series_never_saw_is_the_populations() -> None:
    # of other series, backward: the other channel tells nothing of it
    y = family().assign(z=lambda y: 2 * y["y"].to_numpy()[::-1])
    y.loc[(5, slice(None)), "z"] = np.nan
    forecaster = StructuralForecaster(random_state=0).fit(y)
    levels = y["z"].groupby(level=0).mean().dropna()
    forecast = forecaster.predict([1, 5]).loc[5, "z"]
    assert (abs(forecast - levels.median()) < 2).all()
    table = forecaster.predict_interval([1, 5], coverage=0.9)["z"].loc[5]
    width = table.to_numpy() @ [-1, 1]
    assert (width > 2 * 1.64 * 0.6 * levels.std()).all()
    assert (width < 2 * 1.64 * 2.0 * levels.std()).all()
    # whatever else is asked
    alone = forecaster.predict_interval([5], coverage=0.9)["z"].loc[5]
    np.testing.assert_allclose(alone, table[1:], rtol=1e-9)


def test_a_channel_that_a_series_never_saw_is_told_by_its_twin() -> None:
    y = family().assign(z=lambda y: 2 * y["y"])
    truth = y.loc[5, "z"].mean()
    y.loc[(5, slice(None)), "z"] = np.nan
    forecaster = StructuralForecaster(random_state=0).fit(y)
    assert (abs(forecaster.predict([1, 5]).loc[5, "z"] - truth) < 1).all()


def test_a_season_of_a_family_is_a_short_series_season_too() -> None:
    wave = np.sin(2 * np.pi * np.arange(48) / 12)
    parts = {
        k: pd.DataFrame({"y": np.roll(wave, 3 * k) + 0.1 * noise(k, 48)})
        for k in range(8)
    }
    forecaster = StructuralForecaster(random_state=0).pretrain(pd.concat(parts))
    new = pd.Series(np.roll(wave, 5) + 0.1 * noise(99, 48))
    forecast = forecaster.fit(new[:9]).predict(np.arange(1, 25))
    error = np.abs(forecast.to_numpy() - np.roll(wave, 5)[9:33]).mean()
    assert error < 0.3
