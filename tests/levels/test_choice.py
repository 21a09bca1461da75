"""Whether windows drift, and how far they move from a level."""

from __future__ import annotations

import numpy as np
import pytest

from sklode.levels.choice import deviation_scale, drifts, spread_of


def runs(series: np.ndarray, n: int = 16) -> tuple[np.ndarray, np.ndarray]:
    every = np.lib.stride_tricks.sliding_window_view(series, n)[:, :, None]
    return every, ~np.isnan(every)


@pytest.mark.parametrize("seed", range(5))
def test_windows_of_a_walk_drift_and_those_of_noise_or_a_short_wave_do_not(
    seed: int,
) -> None:
    noise = np.random.default_rng(seed).standard_normal(3000)
    walk, wave = np.cumsum(noise), np.sin(np.arange(3000) / 2) + 0.1 * noise
    for series, expected in ((walk, True), (noise, False), (wave, False)):
        values, mask = runs(series - series.mean())
        assert drifts(values[::10], mask[::10], 12) is expected


def test_missing_values_do_not_count_for_a_drift() -> None:
    values, mask = runs(np.random.default_rng(0).standard_normal(3000))
    mask = np.array(mask)
    mask[:, 1::3] = False
    garbage = np.where(mask, values, 1e6)
    assert not drifts(garbage, mask, 12)
    mask[::3, :12] = False  # of which nothing was seen
    assert not drifts(np.where(mask, values, 1e6), mask, 12)


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
