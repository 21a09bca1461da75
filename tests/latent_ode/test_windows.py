"""Windows: which rows they show, and default lengths."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sklode.data.links import IDENTITY
from sklode.data.observations import Observations
from sklode.data.scaled_rows import ScaledRows
from sklode.data.scaling import Units
from sklode.latent_ode.windows import WindowSet

NAN = float("nan")
EVERY = np.array([True])
TIMES: list[list[int]] = [[0, 1, 3, 6, 10], [0, 2]]
VALUES: list[list[float]] = [[1, 0, NAN, 4, 5], [6, 7]]


def observed(times: list[list[int]], values: list[list[float]]) -> Observations:
    parts = {
        k: pd.DataFrame({"y": given}, pd.Index(stamps, dtype=int))
        for k, (stamps, given) in enumerate(zip(times, values, strict=True))
    }
    return Observations.from_frame(pd.concat(parts, names=["series", "t"]))


def one_to_one(n_channels: int, n_controls: int = 0) -> Units:
    nothing, one = np.zeros(n_channels), np.ones(n_channels)
    unchanged = np.zeros(n_controls), np.ones(n_controls)
    return Units(1.0, nothing, one, *unchanged, (IDENTITY,) * n_channels)


def windows(window_length: int = 3, horizon: int = 1, n_channels: int = 1) -> WindowSet:
    seen = observed(TIMES, VALUES)
    values = np.repeat(seen.values, n_channels, axis=1)
    seen = replace(seen, values=values, controls=10 * np.nan_to_num(seen.values))
    rows = ScaledRows(seen, one_to_one(n_channels, 1))
    counted = np.arange(n_channels) == 0
    return WindowSet(rows, window_length, horizon, counted)


def test_windows_are_gathered_as_written_here() -> None:
    every = windows()
    assert every.series.tolist() == [0, 0, 1]
    assert every.start.tolist() == [0, 1, 5]
    assert every.end.tolist() == [4, 5, 7]
    batch = every.gather(np.array([1, 2]))
    assert batch.times.tolist() == [[0, 2, 5, 9], [0, 2, 2, 2]]
    assert batch.values[..., 0].tolist() == [[0, 0, 4, 5], [6, 7, 7, 7]]
    assert batch.mask[..., 0].tolist() == [
        [True, False, True, True],
        [True, True, False, False],
    ]
    assert batch.controls is not None
    assert batch.controls[1, :2, 0].tolist() == [60, 70]
    np.testing.assert_array_equal(batch.scored, batch.mask)


def test_times_after_years_keep_their_digits() -> None:
    # the origin is taken off before single precision cuts digits off
    late = observed([[0, *(t + 10**8 for t in TIMES[0])]], [[NAN, *VALUES[0]]])
    rows = ScaledRows(late, one_to_one(1))
    found = WindowSet(rows, 3, 1, EVERY)
    assert found.gather(np.array([2])).times.tolist() == [[0, 2, 5, 9]]


def test_windows_reach_as_far_as_the_rows_after_those_seen() -> None:
    every = windows()
    # ahead 3 and 4, back 1 and 2; of the second series 0 and 2
    assert every.reach(np.array([0])) == (3, 1)
    assert every.reach(np.arange(3)) == (3.5, 2)
    assert every.reach(np.array([2])) == (0, 2)
    # two rows ahead take 7, and the first two 3
    assert windows(3, 2).reach(np.array([0])) == (7, 3)


def test_one_long_hole_stretches_no_reach() -> None:
    times = np.r_[np.arange(30), 500 + np.arange(30)].tolist()
    rows = ScaledRows(observed([times], [times]), one_to_one(1))
    every = WindowSet(rows, 6, 3, EVERY)
    assert every.reach(np.arange(len(every))) == (3, 3)


def test_windows_may_be_shortened_or_reach_on() -> None:
    part = windows(4, 2).shortened(0.5)
    assert (part.window_length, part.horizon) == (2, 1)
    assert part.end.tolist() == [3, 4, 5, 7]
    further = windows(2, 0).reaching(9)
    assert further.start.tolist() == [0, 1, 2, 5]
    assert further.end.tolist() == [5, 5, 5, 7]


def test_scored_are_the_observed_rows_after_the_seen_part_from_a_row_on() -> None:
    batch = windows(window_length=1, horizon=3).gather(
        np.arange(3), np.array([2, 4, 0])
    )
    assert batch.scored is not None
    assert batch.scored[..., 0].tolist() == [
        [False, False, False, True],
        [False, False, False, True],
        [False, True, False, False],
    ]


@pytest.mark.parametrize("scored_from", [None, np.array([2, 4, 0])])
def test_a_channel_left_out_is_seen_but_never_scored(scored_from: np.ndarray) -> None:
    batch = windows(1, 3, n_channels=2).gather(np.arange(3), scored_from)
    expected = windows(1, 3).gather(np.arange(3), scored_from)
    assert batch.scored is not None
    assert expected.scored is not None
    np.testing.assert_array_equal(batch.mask[..., 1], expected.mask[..., 0])
    np.testing.assert_array_equal(batch.scored[..., 0], expected.scored[..., 0])
    assert not batch.scored[..., 1].any()


@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    window_length=st.integers(1, 9),
    horizon=st.integers(0, 5),
)
def test_no_window_reaches_into_another_series(
    lengths: list[int], window_length: int, horizon: int
) -> None:
    times = [list(range(n)) for n in lengths]
    seen = observed(times, [[k + 1.0] * n for k, n in enumerate(lengths)])
    rows = ScaledRows(seen, one_to_one(1))
    every = WindowSet(rows, window_length, horizon, EVERY)
    batch = every.gather(np.arange(len(every)))
    expected = [max(n - window_length - horizon + 1, 1) for n in lengths]
    assert np.bincount(every.series).tolist() == expected
    for k, values, mask in zip(
        every.series, batch.values[..., 0], batch.mask[..., 0], strict=True
    ):
        assert values[mask].tolist() == [k + 1] * min(
            lengths[k], window_length + horizon
        )
