"""How far windows move from a level."""

from __future__ import annotations

import numpy as np
import pytest

from sklode.levels.choice import deviation_scale, spread_of


def runs(series: np.ndarray, n: int = 16) -> tuple[np.ndarray, np.ndarray]:
    every = np.lib.stride_tricks.sliding_window_view(series, n)[:, :, None]
    return every, ~np.isnan(every)


def test_the_spread_is_that_of_what_was_observed() -> None:
    values = np.array([[[3.0, 0.0], [1e9, 0.0]], [[-4.0, 0.0], [0.0, 0.0]]])
    mask = np.abs(values) < 1e8
    expected = np.sqrt(25 / 3), 1.0
    np.testing.assert_allclose(spread_of(values, mask), expected)


def test_deviation_scale_is_measured_from_the_mean_of_the_seen_part() -> None:
    values = np.array([[[1.0], [3.0], [5.0]], [[0.0], [9.0], [4.0]]])
    mask = np.ones(values.shape, dtype=bool)
    mask[1, 1] = False
    # means 2 and 0; deviations -1, 1, 3 and 0, 4
    expected = np.sqrt((1 + 1 + 9 + 0 + 16) / 5)
    np.testing.assert_allclose(deviation_scale(values, mask, 2), [expected])


def test_deviation_scale_of_a_channel_that_does_not_move_is_one() -> None:
    values = np.stack([np.full((4, 6), 3.0), np.tile(np.arange(6.0), (4, 1))], axis=2)
    scale = deviation_scale(values, np.ones(values.shape, dtype=bool), 4)
    assert scale[0] == 1
    assert scale[1] == pytest.approx(
        np.sqrt((np.arange(6) - 1.5) @ (np.arange(6) - 1.5) / 6)
    )


def test_a_channel_that_a_window_has_not_seen_has_no_deviation_there() -> None:
    rng = np.random.default_rng(0)
    level = 100 * rng.standard_normal((40, 1, 2))
    values = level + rng.standard_normal((40, 16, 2))
    mask = np.ones(values.shape, dtype=bool)
    expected = deviation_scale(values, mask, 12)[1]
    mask[::2, :12, 1] = False
    scale = deviation_scale(values, mask, 12)
    assert scale[1] == pytest.approx(expected, rel=0.1)
