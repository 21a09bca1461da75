"""Windows gathered by hand, and their default lengths."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sklode.data.windows import WindowSet
from sklode.training.fresh import default_lengths

NAN = float("nan")
TIMES = np.array([0.0, 1.0, 3.0, 6.0, 10.0, 0.0, 2.0])  # a series of 5 rows, one of 2
VALUES = np.array([[1.0], [0.0], [NAN], [4.0], [5.0], [6.0], [7.0]])
BOUNDS = np.array([0, 5, 7])


def windows(window_length: int = 3, horizon: int = 1) -> WindowSet:
    return WindowSet(TIMES, VALUES, 10 * VALUES, BOUNDS, window_length, horizon)


def test_windows_are_every_run_of_rows_and_a_short_series_is_one() -> None:
    every = windows()
    assert len(every) == 3
    assert every.series.tolist() == [0, 0, 1]
    assert every.start.tolist() == [0, 1, 5]
    assert every.end.tolist() == [4, 5, 7]


def test_windows_are_gathered_as_written_here() -> None:
    batch = windows().gather(np.array([1, 2]))
    assert batch.times.tolist() == [[0, 2, 5, 9], [0, 2, 2, 2]]
    assert batch.values[..., 0].tolist() == [[0, 0, 4, 5], [6, 7, 7, 7]]
    assert batch.mask[..., 0].tolist() == [
        [True, False, True, True],
        [True, True, False, False],
    ]
    assert batch.controls is not None
    assert batch.controls.shape == (2, 4, 1)
    assert batch.controls[1, :2, 0].tolist() == [60, 70]
    assert batch.scored is None


def test_times_after_years_keep_their_digits() -> None:
    # the origin is taken off before single precision cuts digits off
    long_ago = WindowSet(TIMES + 1e8, VALUES, None, BOUNDS, 3, 1)
    np.testing.assert_array_equal(
        long_ago.gather(np.arange(3)).times, windows().gather(np.arange(3)).times
    )
    assert long_ago.gather(np.arange(3)).controls is None


def test_scored_are_the_observed_rows_after_the_seen_part_from_a_row_on() -> None:
    every = windows(window_length=1, horizon=3)
    batch = every.gather(np.array([0, 1, 2]), np.array([2, 4, 0]))
    assert batch.mask[..., 0].tolist() == [
        [True, True, False, True],
        [True, False, True, True],
        [True, True, False, False],
    ]
    assert batch.scored is not None
    assert batch.scored[..., 0].tolist() == [
        [False, False, False, True],
        [False, False, False, True],
        [False, True, False, False],
    ]


def test_a_channel_left_out_is_seen_but_never_scored() -> None:
    values = np.hstack([VALUES, VALUES])
    every = WindowSet(TIMES, values, None, BOUNDS, 1, 3)
    one = every.without(np.array([False, True])).shortened(1.0)
    which = np.array([0, 1, 2])
    for scored_from in (None, np.array([2, 4, 0])):
        batch = one.gather(which, scored_from)
        expected = every.gather(which, scored_from)
        np.testing.assert_array_equal(batch.mask, expected.mask)
        assert batch.scored is not None
        marks = expected.mask if expected.scored is None else expected.scored
        np.testing.assert_array_equal(batch.scored[..., 0], marks[..., 0])
        assert not batch.scored[..., 1].any()
    assert every.gather(which).scored is None


@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    window_length=st.integers(1, 9),
    horizon=st.integers(0, 5),
)
def test_no_window_reaches_into_another_series(
    lengths: list[int], window_length: int, horizon: int
) -> None:
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    series = np.repeat(np.arange(len(lengths)), lengths)
    times = np.concatenate([np.arange(n) for n in lengths]).astype(float)
    every = WindowSet(
        times, series[:, None] + 1.0, None, bounds, window_length, horizon
    )
    batch = every.gather(np.arange(len(every)))
    rows = np.minimum(np.array(lengths), window_length + horizon)
    expected = [max(n - window_length - horizon + 1, 1) for n in lengths]
    assert np.bincount(every.series).tolist() == expected
    for k, values, mask in zip(
        every.series, batch.values[..., 0], batch.mask[..., 0], strict=True
    ):
        assert values[mask].tolist() == [k + 1] * rows[k]


def test_lengths_that_are_given_are_kept() -> None:
    lengths = np.array([30])
    assert default_lengths(lengths, 50, 7, None) == (50, 7)
    assert default_lengths(lengths, 8, 0, 12) == (8, 0)
    assert default_lengths(lengths, 8, None, None) == (8, 8)
    assert default_lengths(lengths, 8, None, 12) == (8, 12)
    assert default_lengths(lengths, None, 3, 12)[1] == 3
