"""The model's units: time units, what long gaps count, locations and scales."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sklode.data.observations import Observations
from sklode.data.scaling import Normalisation, Timeline
from tests.series import tiny, uneven_stamps, waves

NAN = float("nan")


def read(y: pd.Series | pd.DataFrame, X: pd.DataFrame | None = None) -> Observations:
    return Observations.from_frame(pd.DataFrame(y), X)


def at_stamps(*series: list[int]) -> Observations:
    """Return observations at these ticks, of one series or more."""
    parts = {k: pd.DataFrame({"y": 1.0}, index=ticks) for k, ticks in enumerate(series)}
    return read(parts[0] if len(series) == 1 else pd.concat(parts))


def times_at(timeline: Timeline, seen: Observations, *ticks: int) -> list[float]:
    asked = np.array(ticks)
    return timeline.at(seen, np.zeros(len(asked), np.int64), asked).tolist()


def test_a_long_gap_counts_as_the_longest_one() -> None:
    seen = at_stamps([0, 10, 20, 20_000, 20_010, 10**18, 10**18 + 5])
    expected = [0, 1, 2, 102, 103, 203, 203.5]
    assert Timeline(10.0, 100.0).of_rows(seen).tolist() == expected


def test_each_series_has_its_own_time() -> None:
    seen = at_stamps([0, 1, 5000, 5001], [700, 702, 10**15], [3])
    expected = [0, 1, 101, 102, 0, 2, 102, 0]
    assert Timeline(1.0, 100.0).of_rows(seen).tolist() == expected
    stamps = np.array([5001 + 7, 10**15 + 9, 699, 10])
    found = Timeline(1.0, 100.0).at(seen, np.array([0, 1, 1, 2]), stamps)
    assert found.tolist() == [102 + 7, 102 + 9, -1, 7]


def test_near_both_ends_of_a_long_gap_time_passes_as_elsewhere() -> None:
    seen, timeline = at_stamps([0, 1, 10_001, 10_002]), Timeline(1.0, 100.0)
    assert times_at(timeline, seen, 1, 2, 41) == [1, 2, 41]
    assert times_at(timeline, seen, 9_961, 10_000, 10_001) == [61, 100, 101]
    assert times_at(timeline, seen, 5_001) == [51]  # in the middle


def test_before_the_first_and_after_the_last_stamp_time_is_not_shortened() -> None:
    seen, timeline = at_stamps([0, 1, 10_001]), Timeline(1.0, 100.0)
    assert times_at(timeline, seen, -5_000, 10_002, 90_001) == [-5_000, 102, 80_101]


@given(
    gaps=st.lists(st.integers(1, 10**6), min_size=1, max_size=8),
    asked=st.lists(st.integers(-100, 10**7), min_size=2, max_size=20),
)
def test_time_increases_with_the_stamps_and_agrees_at_rows(
    gaps: list[int], asked: list[int]
) -> None:
    ticks = np.concatenate([[0], np.cumsum(gaps)])
    seen, timeline = at_stamps(ticks.tolist()), Timeline(2.0, 50.0)
    rows = timeline.of_rows(seen)
    assert times_at(timeline, seen, *ticks) == pytest.approx(rows.tolist())
    assert (np.diff(rows) <= 50).all()
    found = times_at(timeline, seen, *sorted(set(asked)))
    assert (np.diff(found) > 0).all()


def test_gaps_up_to_a_thousand_units_are_left_alone() -> None:
    seen = at_stamps([*range(20), 1019])
    assert Timeline.of(seen).of_rows(seen).tolist() == [*range(20), 1019]


def test_the_mean_gap_stays_below_ten_units_where_long_gaps_are_many() -> None:
    ticks = np.cumsum(np.tile([1, 1, 1, 10**6], 25))
    timeline = Timeline.of(at_stamps(ticks.tolist()))
    gaps = np.diff(timeline.of_rows(at_stamps(ticks.tolist())))
    assert gaps.mean() == pytest.approx(10)
    assert gaps.max() == pytest.approx(timeline.longest_gap)
    assert sorted(set(gaps.round(6))) == [1, gaps.max().round(6)]


def test_what_follows_a_long_gap_does_not_depend_on_how_long_it_is() -> None:
    stamps = pd.date_range("2010-01-01", periods=60, freq="h")
    forecasts = []
    for days in (3652, 36520):
        later = stamps[40:] + pd.Timedelta(days=days)
        y = waves(stamps[:40].append(later))
        forecasts.append(tiny().fit(y).predict(range(1, 4)).to_numpy())
    np.testing.assert_array_equal(forecasts[0], forecasts[1])


def test_centuries_of_nanoseconds_are_forecast() -> None:
    early = pd.Timestamp("1700-01-01").as_unit("ns") + pd.to_timedelta(range(20))
    late = pd.Timestamp("2200-01-01").as_unit("ns") + pd.to_timedelta(range(20))
    y = waves(early.append(late))
    forecast = tiny().fit(y).predict([1, 2])
    assert (forecast.index - y.index[-1]).tolist() == [pd.Timedelta(1), pd.Timedelta(2)]
    assert np.isfinite(forecast).all()


def test_the_time_unit_is_the_median_gap_pooled_over_series() -> None:
    # gaps of 1, 3 and of 9: the gap between the series is none
    assert Timeline.of(at_stamps([0, 1, 4], [100, 109])).unit == 3
    assert Timeline.of(at_stamps([7])).unit == 1
    day = waves(pd.date_range("2021", periods=1, freq="D"))
    assert Timeline.of(read(day)).unit == 86_400 * 10**9


def test_the_time_unit_counts_only_stamps_with_an_observation() -> None:
    y = pd.Series(np.arange(8.0))
    y[y.index % 2 == 1] = NAN
    assert tiny().fit(y).time_unit_ == 2
    y.index = pd.date_range("2021", periods=8, freq="90s")
    assert tiny().fit(y).time_unit_ == pd.Timedelta("180s")


def test_location_and_scale_are_the_mean_and_deviation_of_what_was_observed() -> None:
    y = pd.DataFrame({"a": [1.0, 3.0, NAN, 0.0], "b": [NAN, 7.0, 7.0, 7.0]})
    measured = Normalisation.of(read(y))
    np.testing.assert_allclose(measured.location, [4 / 3, 7])
    np.testing.assert_allclose(measured.scale, [np.sqrt(14) / 3, 7])
    normalised = measured.values(read(y).values)
    np.testing.assert_allclose(np.nanmean(normalised, axis=0), 0, atol=1e-15)
    np.testing.assert_allclose(measured.original(normalised), read(y).values)


@given(exponent=st.integers(-290, 300), seed=st.integers(0, 99))
def test_values_of_any_size_are_normalised_alike(exponent: int, seed: int) -> None:
    y = waves(seed=seed)
    scaled = y * 10.0**exponent
    expected = Normalisation.of(read(y)).values(read(y).values)
    measured = Normalisation.of(read(scaled))
    np.testing.assert_allclose(measured.values(read(scaled).values), expected, 1e-9)


@pytest.mark.parametrize("level", [0.1, -1e30, 1e-30, 123456.789])
def test_the_scale_of_a_constant_channel_is_its_size(level: float) -> None:
    y = pd.Series(np.full(1000, level))
    measured = Normalisation.of(read(y))
    assert measured.location == pytest.approx(level, rel=1e-12)
    assert measured.scale == pytest.approx(abs(level), rel=1e-12)
    assert Normalisation.of(read(0 * y)).scale.tolist() == [1]


def test_controls_are_normalised_on_their_own() -> None:
    y = waves(uneven_stamps())
    X = pd.DataFrame({"u": np.arange(24.0), "v": 5.0}, y.index)
    measured = Normalisation.of(read(y, X))
    np.testing.assert_allclose(measured.control_location, [11.5, 5])
    np.testing.assert_allclose(measured.control_scale, [np.sqrt(575 / 12), 5])
    assert measured.controls(X.to_numpy())[:, 1].tolist() == [0] * 24
