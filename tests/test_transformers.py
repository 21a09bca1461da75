"""Gaps are filled, grids answered and shocks found, as sktime's pipelines ask."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sktime.forecasting.naive import NaiveForecaster

from sklode import (
    StructuralDetector,
    StructuralForecaster,
    StructuralImputer,
    StructuralResampler,
)
from tests.cases import slow
from tests.series import channels, panel, waves

PLAIN = StructuralForecaster(random_state=0)


def hourly(n: int = 300, seed: int = 0) -> pd.Series:
    """Return a day's wave at uneven stamps."""
    rng = np.random.default_rng(seed)
    hours = np.cumsum(rng.exponential(1.0, n)).round(3)
    stamps = pd.Timestamp("2026-01-01") + pd.to_timedelta(hours, "h")
    wave = 10 + 3 * np.sin(2 * np.pi * hours / 24)
    return pd.Series(wave + 0.1 * rng.standard_normal(n), stamps, name="v")


@pytest.mark.parametrize("method", ["mean", "path"])
def test_gaps_are_filled_and_observed_values_stay(method: str) -> None:
    y = hourly()
    seen = y.copy()
    seen.iloc[100:130] = np.nan
    imputer = StructuralImputer(method=method, forecaster=PLAIN)
    filled = imputer.fit_transform(seen)
    assert filled.name == "v"
    pd.testing.assert_series_equal(filled.dropna()[seen.notna()], seen.dropna())
    error = (filled - y)[seen.isna()]
    assert error.abs().mean() < 0.4
    times = y.index.to_numpy().astype(float)
    line = np.interp(times[100:130], times[seen.notna()], seen.dropna())
    assert error.abs().mean() < 0.3 * np.abs(line - y.iloc[100:130]).mean()


def test_a_path_is_as_rough_as_the_series_and_a_mean_is_not() -> None:
    rng = np.random.default_rng(0)
    y = pd.Series(rng.standard_normal(400))
    seen = y.where((y.index < 150) | (y.index > 250))
    mean, path = (
        StructuralImputer(method=method, forecaster=PLAIN).fit_transform(seen)[150:251]
        for method in ("mean", "path")
    )
    assert mean.std() < 0.2
    assert 0.8 < path.std() < 1.2


def test_other_rows_are_filled_by_what_was_found_in_fit() -> None:
    y = hourly(600)
    few = y[480:].copy()
    few.iloc[10:20] = np.nan
    imputer = StructuralImputer(forecaster=PLAIN).fit(y[:450])
    error = (imputer.transform(few) - y[480:])[few.isna()]
    assert error.abs().mean() < 0.5


@pytest.mark.parametrize("y", [channels(), panel()])
def test_tables_and_panels_are_filled(y: Any) -> None:
    seen = y.copy()
    seen.iloc[[4, 9], 0] = np.nan
    filled = StructuralImputer(forecaster=PLAIN).fit_transform(seen)
    assert filled.notna().all(axis=None)
    pd.testing.assert_frame_equal(filled.where(seen.notna()), seen, check_freq=False)


def test_a_grid_lies_between_first_and_last_row_and_knows_its_step() -> None:
    y = hourly()
    grid = StructuralResampler("h", forecaster=PLAIN).fit_transform(y)
    assert grid.index.freq == pd.offsets.Hour()
    assert grid.index[0] == y.index[0].ceil("h")
    assert grid.index[-1] == y.index[-1].floor("h")
    hours = (grid.index - pd.Timestamp("2026-01-01")) / pd.Timedelta("1h")
    wave = 10 + 3 * np.sin(2 * np.pi * np.asarray(hours) / 24)
    assert np.abs(grid - wave).mean() < 0.15


def test_deviations_are_those_of_observations() -> None:
    y = hourly()
    table = StructuralResampler("h", std=True, forecaster=PLAIN).fit_transform(y)
    assert list(table.columns) == ["v", "v_std"]
    variance = PLAIN.clone().fit(y).predict_var(fh=table.index)
    np.testing.assert_allclose(table["v_std"] ** 2, variance.iloc[:, 0], rtol=1e-6)


@pytest.mark.parametrize(
    ("index", "freq", "expected"),
    [
        (pd.Index([3, 4, 8, 9]), None, [3, 4, 5, 6, 7, 8, 9]),
        (pd.Index([3, 4, 8, 9]), 2, [3, 5, 7, 9]),
        (pd.PeriodIndex(["2026-01", "2026-04"], freq="M"), None, 4),
        (pd.to_datetime(["2026-01-15", "2026-04-02"]), "MS", 3),
        (
            pd.to_datetime(["2026-01-01", "2026-02-01", "2026-03-01", "2026-05-01"]),
            None,
            5,
        ),
    ],
)
def test_grids_of_other_indexes(index: pd.Index, freq: Any, expected: Any) -> None:
    y = pd.Series(np.arange(len(index), dtype=float), index)
    found = StructuralResampler(freq).fit_transform(y).index
    if isinstance(expected, int):
        assert len(found) == expected
    else:
        assert found.tolist() == expected


@pytest.mark.filterwarnings("ignore:The default of config:FutureWarning")
def test_any_forecaster_runs_on_irregular_data_and_goes_on() -> None:
    y = hourly()
    pipeline = StructuralResampler("h", forecaster=PLAIN) * NaiveForecaster(sp=24)
    pipeline.fit(y[:260])
    found = pipeline.predict(fh=range(1, 25))
    hours = (found.index - pd.Timestamp("2026-01-01")) / pd.Timedelta("1h")
    wave = 10 + 3 * np.sin(2 * np.pi * np.asarray(hours) / 24)
    assert np.abs(found - wave).mean() < 0.3
    pipeline.update(y[260:270])
    later = pipeline.predict(fh=[1])
    assert later.index[0] == y.index[269].floor("h") + pd.Timedelta("1h")


def test_a_grid_of_what_tells_no_time_is_refused() -> None:
    y = pd.Series(np.arange(5.0))
    with pytest.raises(TypeError, match=r"needs an index of dates.*freq='h'"):
        StructuralResampler("h").fit_transform(y)


def test_a_grid_without_steps_is_refused() -> None:
    y = pd.Series(np.arange(5.0))
    with pytest.raises(ValueError, match=r"freq must be 1 or more .*; got 0\. Pass"):
        StructuralResampler(0, forecaster=PLAIN).fit_transform(y)


def shocked() -> pd.Series:
    y = hourly(240, seed=1)
    hours = np.asarray((y.index - y.index[0]) / pd.Timedelta("1h"))
    y.iloc[40] += 2
    y.iloc[100:] -= 1.5
    return y + 0.2 * np.maximum(hours - hours[170], 0)


def test_spikes_steps_and_turns_are_found_with_place_and_size() -> None:
    y = shocked()
    events = StructuralDetector().fit_predict(y)
    found = events.set_index("kind")
    assert sorted(events["kind"]) == ["slope", "spike", "step"]
    assert found.loc["spike", "ilocs"] == 40
    assert abs(found.loc["step", "ilocs"] - 100) <= 1
    assert abs(found.loc["slope", "ilocs"] - 170) <= 6
    assert found.loc["spike", "size"] == pytest.approx(2, abs=0.4)
    assert found.loc["step", "size"] == pytest.approx(-1.5, abs=0.4)
    assert (events["score"] > 3).all()
    assert (events["time"] == y.index[events["ilocs"]]).all()


@pytest.mark.parametrize("n_seeds", [1, slow(5)])
def test_noise_and_seasons_are_no_events(n_seeds: int) -> None:
    for seed in range(n_seeds):
        assert len(StructuralDetector().fit_predict(hourly(150, seed))) == 0
        noise = pd.Series(np.random.default_rng(seed).standard_normal(150))
        assert len(StructuralDetector().fit_predict(noise)) == 0


def test_what_a_sensor_wrote_is_told_from_a_spike() -> None:
    y = hourly()
    y.iloc[[50, 51, 120]] = -999.0
    events = StructuralDetector().fit_predict(y)
    sensor = events[events["kind"] == "sensor"]
    assert sensor["ilocs"].tolist() == [50, 51, 120]
    assert (sensor["size"] < -900).all()


@pytest.fixture(scope="module")
def judged() -> tuple[pd.DataFrame, StructuralDetector, pd.DataFrame]:
    """Return noise with a spike in one column and a step in both, and its events."""
    noise = np.random.default_rng(0).standard_normal((120, 2))
    table = pd.DataFrame(noise, columns=["a", "b"])
    table.iloc[60:] += 12
    table.iloc[30, 0] += 15
    detector = StructuralDetector().fit(table)
    return table, detector, detector.predict(table)


def test_columns_are_judged_one_by_one_and_scores_are_those_of_rows(
    judged: tuple[pd.DataFrame, StructuralDetector, pd.DataFrame],
) -> None:
    table, detector, events = judged
    assert events[events["column"] == "a"]["ilocs"].tolist() == [30, 60]
    assert events[events["column"] == "b"]["ilocs"].tolist() == [60]
    scores = detector.transform_scores(table)["score"]
    assert (scores > 0).sum() == events["ilocs"].nunique() == 2
    for row in (30, 60):
        assert scores.iloc[row] == events[events["ilocs"] == row]["score"].max()


def test_rows_have_labels_and_segments_lie_between_events(
    judged: tuple[pd.DataFrame, StructuralDetector, pd.DataFrame],
) -> None:
    table, detector, events = judged
    assert events["ilocs"].to_list() == [30, 60, 60]
    labels = detector.transform(table)["labels"]
    assert labels[labels > 0].to_dict() == {30: 1, 60: 2}
    segments = detector.predict_segments(table)["ilocs"]
    assert [(one.left, one.right) for one in segments] == [(0, 30), (30, 60), (60, 120)]


@pytest.mark.filterwarnings("ignore:The default of config:FutureWarning")
@pytest.mark.parametrize(
    "one", [StructuralImputer, StructuralResampler, StructuralDetector]
)
def test_another_prototype_is_refused(one: Any) -> None:
    made = one(forecaster=NaiveForecaster())
    ask = "fit_predict" if one is StructuralDetector else "fit_transform"
    with pytest.raises(TypeError, match=r"must be a StructuralForecaster.*Naive"):
        getattr(made, ask)(waves())


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(ValueError, match=r"method must be one of .*got 'median'"):
        StructuralImputer(method="median").fit(waves())
