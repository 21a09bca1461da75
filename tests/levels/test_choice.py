"""Which level windows stand on, and how far they move from it."""

from __future__ import annotations

import numpy as np
import pytest

from sklode.levels.choice import deviation_scale, drifts


def runs(series: np.ndarray, n: int = 16) -> tuple[np.ndarray, np.ndarray]:
    every = np.lib.stride_tricks.sliding_window_view(series, n)[::10, :, None]
    return every, ~np.isnan(every)


@pytest.mark.parametrize("seed", range(5))
def test_windows_of_a_random_walk_drift(seed: int) -> None:
    walk = np.cumsum(np.random.default_rng(seed).standard_normal(3000))
    assert drifts(*runs(walk - walk.mean()), 12)


@pytest.mark.parametrize("seed", range(5))
def test_windows_of_noise_and_of_whole_waves_do_not_drift(seed: int) -> None:
    noise = np.random.default_rng(seed).standard_normal(2000)
    for series in (noise, np.sin(np.arange(2000) / 2 + seed)):
        assert not drifts(*runs(series - series.mean()), 12)


def test_windows_with_levels_of_their_own_drift() -> None:
    rng = np.random.default_rng(0)
    levels = rng.standard_normal((200, 1, 1))
    values = rng.standard_normal((200, 16, 1))
    mask = np.ones(values.shape, dtype=bool)
    assert drifts(1.5 * levels + values, mask, 12)
    assert not drifts(0.5 * levels + values, mask, 12)


def test_what_is_missing_or_not_seen_does_not_count_for_drift() -> None:
    noise = np.random.default_rng(0).standard_normal(2000)
    values, mask = runs(noise - noise.mean())
    values, mask = values.copy(), mask.copy()
    mask[:, 1::3] = False
    assert not drifts(np.where(mask, values, 1e6), mask, 12)
    values[:, 12:] = 1e6
    assert not drifts(values, mask, 12)
    mask[::2] = False
    assert not drifts(values, mask, 12)


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
