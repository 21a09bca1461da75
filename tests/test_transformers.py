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
ALL = [StructuralImputer, StructuralResampler, StructuralDetector]


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


def swapped(y: pd.DataFrame) -> pd.DataFrame:
    """Return columns in another order."""
    return y[[*y.columns[::-1]]]


@pytest.mark.parametrize(
    "transformer",
    [
        StructuralImputer(forecaster=PLAIN),
        StructuralImputer("path", forecaster=PLAIN),
        StructuralResampler(2, std=True, forecaster=PLAIN),
    ],
)
def test_columns_are_matched_by_name_and_others_are_refused(transformer: Any) -> None:
    y = channels()
    y.iloc[[4, 9], 0] = np.nan
    transformer.fit(y)
    found = transformer.transform(swapped(y))
    assert [*found.columns[:2]] == [*y.columns[::-1]]
    pd.testing.assert_frame_equal(
        found[[*y.columns]], transformer.transform(y)[y.columns]
    )
    with pytest.raises(ValueError, match=r"columns that fit .* had.*; got .*'c'.*y = "):
        transformer.transform(y.assign(c=1.0))


@pytest.mark.parametrize("std", [False, True])
def test_a_grid_goes_on_whatever_the_order_and_a_lone_name(std: bool) -> None:
    y = channels()
    resampler = StructuralResampler(2, std=std, forecaster=PLAIN)
    expected = resampler.fit(y[:12]).update(y[12:16]).transform(y[16:])
    found = resampler.fit(y[:12]).update(swapped(y[12:16])).transform(swapped(y[16:]))
    pd.testing.assert_frame_equal(found[expected.columns], expected)
    lone = y.iloc[:, 0]
    renamed = resampler.fit(lone[:12]).transform(lone[12:].rename("other"))
    assert pd.DataFrame(renamed).columns[0] == "other"
    assert pd.DataFrame(renamed).notna().all(axis=None)


def broken(y: Any) -> Any:
    """Return a series in which a sensor wrote its mark."""
    y = y.copy()
    y.iloc[[50, 51, 120]] = -999.0
    return y


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("one", [StructuralImputer, StructuralResampler])
def test_what_a_sensor_wrote_is_replaced_and_told_once(one: Any, several: bool) -> None:
    y: Any = hourly(150)
    if several:
        y = pd.concat({key: y.to_frame() for key in "ab"}, names=["key"])
    with pytest.warns(UserWarning, match="Taken for missing") as told:
        found = one(forecaster=PLAIN).fit_transform(broken(y))
    assert len(told) == 1
    # a lone series has no key
    assert several or "of series" not in str(told[0].message)
    remedy = "true, forecaster=StructuralForecaster(clean=False) keeps"
    assert remedy in str(told[0].message)
    assert np.min(found) > 0
    # the remedy works, without a warning
    kept = one(forecaster=StructuralForecaster(clean=False)).fit_transform(broken(y))
    if one is StructuralImputer:
        is_mark = broken(y) == -999
        assert np.max(np.abs((found - y)[is_mark])) < 1
        pd.testing.assert_frame_equal(*(pd.DataFrame(s[~is_mark]) for s in (found, y)))
        pd.testing.assert_frame_equal(pd.DataFrame(kept), pd.DataFrame(broken(y)))


def test_what_a_sensor_wrote_later_is_told_too() -> None:
    y = hourly()
    imputer = StructuralImputer(forecaster=PLAIN).fit(y[:200])
    with pytest.warns(UserWarning, match="has 3 value"):
        found = imputer.transform(broken(y))
    assert found.min() > 0


def test_a_filled_series_has_one_unit() -> None:
    y = hourly().iloc[:150]
    mixed = y.copy()
    mixed.iloc[80:] *= 1000
    mixed.iloc[30:40] = np.nan
    with pytest.warns(UserWarning, match="Rows before are rescaled") as told:
        filled = StructuralImputer(forecaster=PLAIN).fit_transform(mixed)
    assert len(told) == 1
    assert np.abs(filled / 1000 - y).max() < 1


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


@pytest.mark.parametrize("freq", [0, -1, 2.0, True])
def test_a_grid_without_steps_is_refused(freq: Any) -> None:
    y = pd.Series(np.arange(5.0))
    rule = rf"freq must be 1 or more .*; got {freq}\. Pass .*freq=2"
    with pytest.raises(ValueError, match=rule):
        StructuralResampler(freq, forecaster=PLAIN).fit(y)


@pytest.mark.parametrize(
    ("freq", "rule"),
    [
        ("-1h", r"goes forward; got '-1h'\. Use for example"),
        ("hourly", "a frequency that pandas knows"),
        ("90 minutes", "Use freq='90min'"),
        ("M", "'ME' for their ends"),
        (24, r"must be a str.* Got 24 instead\. Use for example freq='1h'"),
    ],
)
def test_a_grid_of_dates_has_a_frequency_of_pandas(freq: Any, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        StructuralResampler(freq, forecaster=PLAIN).fit(hourly())


@pytest.mark.parametrize("freq", ["2M", "monthly", 24])
def test_a_grid_of_periods_has_their_frequency(freq: Any) -> None:
    y = pd.Series(np.arange(5.0), pd.period_range("2026-01", periods=5, freq="M"))
    with pytest.raises(ValueError, match=r"periods, 'M', or None; got .*to_timestamp"):
        StructuralResampler(freq, forecaster=PLAIN).fit(y)
    assert len(StructuralResampler("M", forecaster=PLAIN).fit_transform(y)) == 5


def test_deviations_are_asked_for_by_a_bool() -> None:
    std: Any = "yes"
    with pytest.raises(
        ValueError, match=r"'std'.*must be a bool\. Got 'yes'.*std=False"
    ):
        StructuralResampler("h", std=std).fit(hourly())


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
    assert detector.clone().fit_transform(table)["labels"].equals(labels)
    segments = detector.predict_segments(table)["ilocs"]
    assert [(one.left, one.right) for one in segments] == [(0, 30), (30, 60), (60, 120)]


@pytest.mark.filterwarnings("ignore:The default of config:FutureWarning")
@pytest.mark.parametrize("one", ALL)
def test_another_prototype_is_refused(one: Any) -> None:
    made = one(forecaster=NaiveForecaster())
    ask = "fit_predict" if one is StructuralDetector else "fit_transform"
    with pytest.raises(TypeError, match=r"must be a StructuralForecaster.*Naive"):
        getattr(made, ask)(waves())


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(ValueError, match=r"method must be one of .*got 'median'"):
        StructuralImputer(method="median").fit(waves())


@pytest.mark.parametrize("make", [StructuralImputer, StructuralResampler])
@pytest.mark.parametrize("name", ["method", "std", "freq"])
def test_a_forecaster_is_passed_by_its_name(make: Any, name: str) -> None:
    if name not in make.get_param_names():
        return
    with pytest.raises(
        TypeError, match=rf"as {name}\. Use {make.__name__}\(forecaster="
    ):
        make(**{name: PLAIN}).fit(hourly())


def marked(y: Any) -> Any:
    """Return a series with a text for what is missing."""
    y = y.astype(object)
    y.iloc[3] = "n/a"
    return y


@pytest.mark.parametrize(
    ("y", "rule"),
    [
        (hourly()[::-1], r"strictly increasing.*y\.sort_index\(\)"),
        (hourly().set_axis(hourly().index.astype(str)), r"y\.index = pd\.to_datetime"),
        (panel().swaplevel(), r"last index level.*y = y\.swaplevel\(\)"),
        (marked(hourly()), r": y = pd\.to_numeric\(y, errors='coerce'\)"),
        (channels().assign(c=np.nan), "got none in column 'c'. Drop that column"),
        (hourly() * np.nan, "got 300 rows that are all missing"),
        (hourly() / 0, "got inf in column 'v' at 2026-01-01 "),
    ],
)
@pytest.mark.parametrize("one", ALL)
def test_rows_are_refused_as_the_forecasters_refuse_them(
    one: Any, y: Any, rule: str
) -> None:
    ask = "fit_predict" if one is StructuralDetector else "fit_transform"
    with pytest.raises((TypeError, ValueError), match=rule):
        getattr(one(), ask)(y)


@pytest.mark.parametrize(
    "y", [panel(), panel().iloc[:, 0], [channels(), channels()], np.zeros((2, 1, 9))]
)
def test_a_detector_takes_one_series(y: Any) -> None:
    with pytest.raises(TypeError, match=r"one series; got a panel.*y\.xs\(key\)"):
        StructuralDetector().fit_predict(y)
