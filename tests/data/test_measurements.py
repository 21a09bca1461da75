"""Errors of measurement that are known: rows count by them, and stamps may repeat."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import LatentODELSTMForecaster, StructuralForecaster
from tests.cases import slow
from tests.series import channels

N = 150


def structural(**given: Any) -> StructuralForecaster:
    usual = {"error": "sigma", "seasons": None, "random_state": 0}
    return StructuralForecaster(**usual | given)


def measured(seed: int = 0) -> tuple[pd.Series, pd.DataFrame, pd.Series]:
    """Return a wandering series, ten times more exact now than then, and the truth."""
    rng = np.random.default_rng(seed)
    days = np.cumsum(rng.exponential(1.0, N + 10)).round(6)
    stamps = pd.Timestamp("2024-01-01") + pd.to_timedelta(days, "D")
    truth = pd.Series(50 + np.cumsum(0.3 * rng.standard_normal(N + 10)), stamps)
    sigma = np.exp(rng.uniform(np.log(0.3), np.log(3), N + 10))
    y = truth + sigma * rng.standard_normal(N + 10)
    return y.rename("y"), pd.DataFrame({"sigma": sigma}, stamps), truth


@pytest.mark.parametrize("n_seeds", [2, slow(6)])
def test_rows_count_by_their_errors(n_seeds: int) -> None:
    ratios, held = [], []
    for seed in range(n_seeds):
        y, X, truth = measured(seed)
        told = structural().fit(y[:N], X=X[:N])
        plain = structural(error=None).fit(y[:N])
        past, ahead = truth[20:N], y[N:]
        of_told = (told.predict_at(past.index) - past).std()
        of_plain = (plain.predict_at(past.index) - past).std()
        ratios.append(of_told / of_plain)
        low, high = told.predict_interval(fh=ahead.index).to_numpy().T
        held.append((low <= ahead) & (ahead <= high))
    # the geometric mean, which treats a half and twice alike
    assert np.exp(np.mean(np.log(ratios))) < 0.8
    assert 0.8 < np.mean(held) <= 1


def test_a_period_is_found_by_the_rows_that_are_exact() -> None:
    rng = np.random.default_rng(3)
    days = np.sort(rng.uniform(0, 100, 200)).round(6)
    stamps = pd.Timestamp("2024-01-01") + pd.to_timedelta(days, "D")
    sigma = np.where(rng.random(200) < 0.5, 0.1, 3.0)
    wave = np.cos(2 * np.pi * days / 5.3)
    y = pd.Series(wave + sigma * rng.standard_normal(200), stamps)
    X = pd.DataFrame({"sigma": sigma}, stamps)
    forecaster = structural(seasons="auto").fit(y, X=X)
    ahead = np.arange(101.0, 110.0, 0.5)
    asked = pd.Timestamp("2024-01-01") + pd.to_timedelta(ahead, "D")
    error = forecaster.predict(fh=asked) - np.cos(2 * np.pi * ahead / 5.3)
    assert error.abs().mean() < 0.15
    untold = structural(error=None, seasons="auto").fit(y)
    assert not any("season of 5" in part for _, part in untold.components_.index)


def test_an_exact_row_is_met_and_a_row_of_no_weight_is_none() -> None:
    y, X, _ = measured()
    X.iloc[40], X.iloc[60:62, 0] = 0.0, [np.inf, np.nan]
    without = y.copy()
    without.iloc[60:62] = np.nan
    y.iloc[60:62] += 40.0
    forecaster = structural().fit(y, X=X)
    noise = forecaster.components_["size"].xs("noise", level="part").iloc[0]
    near = forecaster.predict_at(y.index[[40]]).iloc[0] - y.iloc[40]
    assert abs(near) < max(noise, 0.3)
    again = structural().fit(without, X=X.fillna(1.0))
    ahead = range(1, 6)
    pd.testing.assert_series_equal(forecaster.predict(ahead), again.predict(ahead))


@pytest.mark.parametrize("logarithm", [False, slow(True)])
@pytest.mark.parametrize("factor", [slow(1.0), 1e3])
def test_errors_are_in_the_unit_of_y(factor: float, logarithm: bool) -> None:
    y, X, _ = measured()
    plain = structural(logarithm=logarithm).fit(y, X=X)
    other = structural(logarithm=logarithm).fit(factor * y, X=factor * X)
    found = other.predict_interval(fh=[1, 4]) / factor
    np.testing.assert_allclose(found, plain.predict_interval(fh=[1, 4]), rtol=2e-3)


def twice(y: pd.Series, X: pd.DataFrame) -> tuple[pd.Series, pd.DataFrame]:
    """Return every row as two measurements, of half the weight each."""
    # their mean is y, and its error that of one: sqrt(2) / sqrt(2)
    y = pd.concat([y + 0.1, y - 0.1]).sort_index(kind="stable")
    X = pd.concat([X, X]).sort_index(kind="stable") * np.sqrt(2)
    return y, X


def test_a_stamp_measured_twice_is_answered_once_and_counts_by_both() -> None:
    y, X, _ = measured()
    plain = structural().fit(y, X=X)
    double = structural().fit(*twice(y[:N], X[:N]))
    double.update(*twice(y[N:], X[N:]), update_params=False)
    once = structural().fit(y[:N], X=X[:N]).update(y[N:], X[N:], update_params=False)
    ahead = [1, 2, 7]
    found = double.predict(fh=ahead)
    assert list(found.index) == list(plain.predict(fh=ahead).index)
    np.testing.assert_allclose(found, once.predict(fh=ahead), rtol=1e-9)
    inside = double.predict(fh=y.index[40:43])
    assert len(inside) == 3
    with pytest.raises(ValueError, match=r"strictly increasing.* by error="):
        structural(error=None).fit(twice(y, X)[0])


def test_an_update_of_a_known_stamp_is_a_second_measurement() -> None:
    y, X, _ = measured()
    both = structural().fit(*twice(y, X))
    halves = [part.iloc[k::2] for k in range(2) for part in twice(y, X)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        forecaster = structural().fit(*halves[:2])
        forecaster.update(*halves[2:], update_params=False)
        values = forecaster._history.observations
    np.testing.assert_allclose(values.values, both._history.observations.values)
    np.testing.assert_allclose(values.errors, both._history.observations.errors)
    forecaster.update(*halves[2:], update_params=False)  # of the same value: once
    assert forecaster._history.observations.errors[0] < values.errors[0] * 1.01


def test_columns_have_errors_of_their_own_and_X_has_other_columns() -> None:
    y = channels()
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform(0.1, 1, (len(y), 2)), y.index, ["s", "u"])
    forecaster = structural(error={y.columns[0]: "s"}).fit(y, X=X)
    observations = forecaster._history.observations
    np.testing.assert_array_equal(observations.errors[:, 0], X["s"])
    np.testing.assert_array_equal(observations.errors[:, 1], 0.0)
    with pytest.warns(UserWarning, match="'u' at 1 of 1 rows"):
        forecaster.predict(fh=[1])
    later = pd.DataFrame({"u": [0.5]}, [y.index[-1] + 1])
    assert forecaster.predict(fh=[1], X=later).notna().all(axis=None)


@pytest.mark.slow
def test_errors_of_panels_survive_a_file(tmp_path: Path) -> None:
    parts = {k: measured(k)[:2] for k in range(3)}
    y = pd.concat({k: part[0].to_frame() for k, part in parts.items()})
    X = pd.concat({k: part[1] for k, part in parts.items()})
    forecaster = structural().fit(y, X=X)
    forecaster.save_weights(tmp_path / "saved")
    loaded = StructuralForecaster.load_weights(tmp_path / "saved")
    pd.testing.assert_frame_equal(loaded.predict([1, 2]), forecaster.predict([1, 2]))
    assert "held out" in structural().fit(*parts[0]).summary(origins=1)


def test_a_network_is_trained_beside_a_level_that_knows_errors() -> None:
    y, X, _ = measured()
    settings: dict[str, Any] = {"error": "sigma", "random_state": 0}
    forecaster = LatentODELSTMForecaster(**settings, max_epochs=1).fit(y, X=X)
    found = forecaster.predict(fh=[1, 2])
    same = structural(seasons="auto").fit(y, X=X).predict(fh=[1, 2])
    np.testing.assert_allclose(found, same, rtol=1e-6)  # too few rows for a network
    with pytest.raises(ValueError, match=r"error belongs to model=.hybrid"):
        LatentODELSTMForecaster(**settings, model="paper").fit(y, X=X)


@pytest.mark.parametrize(
    ("error", "change", "message"),
    [
        ("other", None, r"must name a column of X; got 'other' and columns \['sigma'"),
        ({"z": "sigma"}, None, "must name columns of y, .*got 'z'"),
        ("sigma", -1.0, "must be zero or more; got -1 in column 'sigma' of X at 2024"),
    ],
)
def test_errors_that_cannot_be_are_refused(
    error: Any, change: float | None, message: str
) -> None:
    y, X, _ = measured()
    if change is not None:
        X.iloc[7] = change
    with pytest.raises(ValueError, match=message):
        structural(error=error).fit(y, X=X)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_column_without_a_finite_error_is_named(value: float) -> None:
    y, X, _ = measured()
    with pytest.raises(ValueError, match=r"no finite one in column 'sigma' of X"):
        structural().fit(y, X=X.assign(sigma=value))


def test_errors_without_X_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must name a column of X; .* no X"):
        structural().fit(measured()[0])
