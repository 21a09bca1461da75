"""The model's time: what long gaps count, and that nothing else is changed."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sklode.data.observations import Observations
from sklode.data.ticks import ticks_between
from sklode.data.scaling import Timeline
from tests.series import panel, tiny, waves

INT64 = st.integers(-(2**63), 2**63 - 1)


def at_stamps(*series: list[int]) -> Observations:
    """Return observations at these ticks, of one series or more."""
    parts = {k: pd.DataFrame({"y": 1.0}, index=ticks) for k, ticks in enumerate(series)}
    y = parts[0] if len(series) == 1 else pd.concat(parts)
    return Observations.from_frame(y, None)


def times_at(timeline: Timeline, seen: Observations, *ticks: int) -> list[float]:
    asked = np.array(ticks)
    return timeline.at(seen, np.zeros(len(asked), np.int64), asked).tolist()


@given(start=INT64, stop=INT64)
@example(start=-(2**63), stop=2**63 - 1)
@example(start=3 * 2**61, stop=-(2**62))
def test_any_two_ticks_are_as_far_apart_as_they_are(start: int, stop: int) -> None:
    found = ticks_between(np.array([start]), np.array([stop]))
    assert found.tolist() == [float(stop - start)]


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
    timeline = Timeline.of(seen, 1.0)
    assert timeline.of_rows(seen).tolist() == [*range(20), 1019]


def test_one_long_gap_of_many_counts_a_thousand_units() -> None:
    assert Timeline.of(at_stamps([*range(200), 10**6]), 1.0).longest_gap == 1000


def test_the_mean_gap_stays_below_ten_units_where_long_gaps_are_many() -> None:
    ticks = np.cumsum(np.tile([1, 1, 1, 10**6], 25))
    timeline = Timeline.of(at_stamps(ticks.tolist()), 1.0)
    gaps = np.diff(timeline.of_rows(at_stamps(ticks.tolist())))
    assert gaps.mean() == pytest.approx(10)
    assert gaps.max() == pytest.approx(timeline.longest_gap)
    assert sorted(set(gaps.round(6))) == [1, gaps.max().round(6)]


def test_ten_years_between_hours_cost_no_more_than_a_thousand_steps() -> None:
    hours = pd.date_range("2010-01-01", periods=40, freq="h")
    stamps = hours[:30].append(hours[30:] + pd.Timedelta(days=3652))
    forecaster = tiny().fit(waves(stamps))
    assert forecaster.longest_gap_ == pytest.approx(10 * 39 - 38)
    after = forecaster.predict(range(1, 4))
    assert after.index[0] == stamps[-1] + pd.Timedelta("1h")
    assert np.isfinite(after).all()
    within = forecaster.predict_at(pd.DatetimeIndex(["2015-06-01", "2018-06-01"]))
    assert np.isfinite(within.to_numpy()).all()


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


def test_a_longest_gap_learned_before_is_kept() -> None:
    pretrained = tiny().pretrain(panel())
    hours = pd.date_range("2010-01-01", periods=12, freq="h")
    stamps = hours[:8].append(hours[8:] + pd.Timedelta(days=3652))
    forecaster = pretrained.fit(waves(stamps, name="y"))
    assert forecaster.longest_gap_ == 1000
