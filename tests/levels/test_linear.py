"""Forecasters that work relative to the linear level: in every use of them."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit

from tests.controls import at
from tests.series import FORECASTERS, panel, tiny, uneven_stamps

LINEAR: dict[str, Any] = {
    "normalize": "linear",
    "window_length": 10,
    "horizon": 4,
    "lr": 1e-9,  # the level alone, and nothing that is learned
}
STEPS = [1, 2, 5]


def walk(n: int = 300, seed: int = 0) -> pd.Series:
    steps = np.random.default_rng(seed).standard_normal(n)
    return pd.Series(100 + np.cumsum(steps), uneven_stamps(n, seed), name="y")


def reverting(n: int = 300, seed: int = 0) -> pd.Series:
    """Return a process that keeps 0.7 of what it is away from 7 at each row."""
    y = np.random.default_rng(seed).standard_normal(n)
    for k in range(1, n):
        y[k] += 0.7 * y[k - 1]
    return pd.Series(7 + y, uneven_stamps(n, seed), name="y")


def seasons(n: int = 300) -> tuple[pd.Series, pd.DataFrame]:
    """Return a series that follows its control, with noise."""
    index = uneven_stamps(n)
    rows = np.arange(n)
    X = pd.DataFrame({"u": np.sin(rows), "v": np.cos(rows / 3)}, index)
    noise = np.random.default_rng(0).standard_normal(n)
    return (40 + 10 * X["u"] + noise).rename("y"), X


def many(kind: Any = walk, n_series: int = 6, n: int = 60) -> pd.DataFrame:
    """Return a panel of series at stamps of their own."""
    parts = {f"s{k}": kind(n, k).to_frame() for k in range(n_series)}
    return pd.concat(parts, names=["series", "when"])


@pytest.mark.parametrize("kind", FORECASTERS)
def test_an_untrained_model_forecasts_the_level_of_a_walk(kind: type) -> None:
    y = walk()
    forecaster = tiny(kind, **LINEAR).fit(y)
    anchor = forecaster.network_.anchor
    assert anchor.walking
    assert not anchor.weights[1:].any()
    moves = (forecaster.predict(STEPS) - y.iloc[-1]).abs()
    assert 0 < moves.max() < 0.2 * y.diff().std()  # half of its drift
    assert moves.is_monotonic_increasing


def test_before_the_first_stamp_a_walk_is_held_and_a_process_fades() -> None:
    first = walk()
    before = pd.DatetimeIndex([first.index[0] - pd.Timedelta(d, "h") for d in (9, 1)])
    held = tiny(**LINEAR).fit(first).predict_at(before)["y"]
    # by the last value of the first window
    np.testing.assert_allclose(held, first.iloc[9], rtol=1e-5)
    y = reverting()
    far = pd.DatetimeIndex([y.index[0] - pd.Timedelta("90D")])
    fades = tiny(**LINEAR).fit(y).predict_at(far)["y"]
    assert float(fades.iloc[0]) == pytest.approx(y.mean(), abs=1e-3)


def test_what_is_learned_is_added_to_the_level() -> None:
    y = reverting()
    level = tiny(**LINEAR).fit(y)
    trained = tiny(**{**LINEAR, "lr": 0.03, "max_epochs": 5}).fit(y)
    for name, fitted in level.network_.anchor.state_dict().items():
        assert torch.equal(fitted, trained.network_.anchor.state_dict()[name])
    assert (trained.predict(STEPS) - level.predict(STEPS)).abs().min() > 1e-4


def test_a_panel_is_forecast_by_one_regression() -> None:
    y = many(reverting, n=150)
    forecaster = tiny(**LINEAR).fit(y)
    ahead = forecaster.predict(STEPS)["y"].groupby(level=0)
    away = y["y"].groupby(level=0).last() - y["y"].mean()
    for forecast, kept in ((ahead.first(), 0.7), (ahead.last(), 0.7**5)):
        np.testing.assert_allclose(
            forecast - y["y"].mean(), kept * away, rtol=0, atol=0.4
        )
    # a series is forecast alike with other series beside it
    alone = y.loc[["s3"]]
    both = forecaster.predict_residuals()
    one = forecaster.predict_residuals(alone)
    pd.testing.assert_frame_equal(one, both.loc[["s3"]], atol=1e-5)


def test_controls_are_followed_into_the_future() -> None:
    y, X = seasons()
    past, future = slice(280), slice(280, None)
    asked = at(y.index[future])
    plain = tiny(**LINEAR).fit(y[past]).predict(asked)
    forecaster = tiny(**LINEAR).fit(y[past], X[past])
    forecast = forecaster.predict(asked, X[future])
    assert (forecast - y[future]).std() < 1.3 < 0.3 * (plain - y[future]).std()
    by_control = forecaster.network_.anchor.by_control[:, 0]
    x_scale = X[past].std(ddof=0).to_numpy()
    slope = by_control.numpy() * forecaster.scale_[0] / x_scale
    np.testing.assert_allclose(slope, [10, 0], rtol=0, atol=0.3)
    other = X[future].assign(u=X["u"] + 1.0)
    moved = forecaster.predict(asked, other) - forecast
    np.testing.assert_allclose(moved, slope[0], rtol=1e-2)


def test_missing_values_are_left_out() -> None:
    y = pd.DataFrame({"a": reverting(), "b": 50 + walk().to_numpy()})
    y.iloc[::3, 0] = np.nan
    y.iloc[-4:, 1] = np.nan
    forecaster = tiny(**LINEAR).fit(y)
    forecast = forecaster.predict(STEPS)
    assert np.isfinite(forecast).all(axis=None)
    last = y["b"].dropna().iloc[-1]
    assert (forecast["b"] - last).abs().max() < 2 * y["b"].diff().std()
    residuals = forecaster.predict_residuals(y)
    pd.testing.assert_frame_equal(residuals.isna(), y.isna())


def test_quantiles_surround_the_level_and_paths_are_of_its_size() -> None:
    y = walk()
    forecaster = tiny(**{**LINEAR, "lr": 0.005, "max_epochs": 10}, n_samples=300).fit(y)
    forecast = forecaster.predict(STEPS)
    quantiles = forecaster.predict_quantiles(STEPS, alpha=[0.05, 0.5, 0.95])["y"]
    assert (quantiles[0.05] < forecast).all()
    assert (quantiles[0.95] > forecast).all()
    paths = forecaster.sample(STEPS, n_samples=300)["y"].unstack(level=0)
    spread = paths.std(axis=1) / np.sqrt(forecaster.predict_var(STEPS)["y"])
    np.testing.assert_allclose(spread, 1.0, rtol=0.2)
    np.testing.assert_allclose(paths.mean(axis=1), forecast, atol=0.3 * y.std())


def test_prior_samples_start_at_levels_of_the_history() -> None:
    y = walk()
    forecaster = tiny(**LINEAR).fit(y)
    paths = forecaster.sample_prior(y.index[:5], n_samples=40, random_state=0)
    assert paths["y"].between(y.min() - 20, y.max() + 20).all()
    assert paths["y"].groupby(level=0).mean().std() > 1


def test_a_pickled_level_gives_the_same_answers() -> None:
    y, X = seasons()
    forecaster = tiny(**LINEAR).fit(y[:280], X[:280])
    restored = pickle.loads(pickle.dumps(forecaster))
    asked = at(y.index[280:])
    expected = forecaster.predict_quantiles(asked, X[280:])
    answer = restored.predict_quantiles(asked, X[280:])
    pd.testing.assert_frame_equal(answer, expected, check_exact=True)


@pytest.mark.parametrize("update_params", [False, True])
def test_an_update_moves_the_level_to_the_new_rows(update_params: bool) -> None:
    y = walk()
    forecaster = tiny(**LINEAR, finetune_epochs=1).fit(y[:280])
    before = {k: v.clone() for k, v in forecaster.network_.anchor.state_dict().items()}
    forecaster.update(y[280:], update_params=update_params)
    assert (forecaster.predict(STEPS) - y.iloc[-1]).abs().max() < 0.1
    for name, now in forecaster.network_.anchor.state_dict().items():
        assert torch.equal(now, before[name])  # its weights are those of fit


def test_a_pretrained_level_serves_other_series() -> None:
    forecaster = tiny(**LINEAR, finetune_epochs=0).pretrain(many(walk))
    y = walk(40, seed=9)
    assert forecaster.pretrained_.network.anchor.walking
    assert (forecaster.fit(y).predict(STEPS) - y.iloc[-1]).abs().max() < 0.3


def test_a_level_of_another_kind_is_refused_by_earlier_weights() -> None:
    forecaster = tiny(**LINEAR, warm_start=True).fit(walk())
    with pytest.raises(ValueError, match="needs the same normalize, 'linear'; got"):
        forecaster.set_params(normalize="last").fit(walk())


def test_searches_and_clones_choose_a_level() -> None:
    y = walk(120)
    grid = {"normalize": ["series", "linear"]}
    forecaster = tiny(**{**LINEAR, "normalize": "series"})
    search = GridSearchCV(forecaster, grid, cv=TimeSeriesSplit(2)).fit(y.to_frame())
    assert search.best_params_ == {"normalize": "linear"}
    for copied in (clone(search.best_estimator_), tiny(**LINEAR).clone()):
        assert copied.normalize == "linear"
        assert not hasattr(copied, "network_")


def test_short_series_of_a_panel_have_a_level_too() -> None:
    y = panel((7,) * 9)
    forecaster = tiny(normalize="linear").fit(y)
    assert np.isfinite(forecaster.predict([1, 3])).all(axis=None)
    assert not forecaster.network_.anchor.weights.any()  # nine windows tell nothing
