"""Which level windows stand on, and how far they move from it."""

from __future__ import annotations

import numpy as np
import pytest

from sklode.levels.choice import choose_anchor, deviation_scale


def runs(series: np.ndarray, n: int = 16) -> tuple[np.ndarray, np.ndarray]:
    every = np.lib.stride_tricks.sliding_window_view(series, n)[:, :, None]
    return every, ~np.isnan(every)


@pytest.mark.parametrize("seed", range(5))
def test_a_random_walk_stands_on_its_last_value(seed: int) -> None:
    walk = np.cumsum(np.random.default_rng(seed).standard_normal(3000))
    values, mask = runs(walk - walk.mean())
    assert choose_anchor(values[::10], mask[::10], 12) == "last"


@pytest.mark.parametrize("seed", range(5))
def test_noise_stands_on_the_mean_of_the_series(seed: int) -> None:
    noise = np.random.default_rng(seed).standard_normal(2000)
    values, mask = runs(noise - noise.mean())
    assert choose_anchor(values[::10], mask[::10], 12) == "series"


def test_noise_around_a_level_of_each_window_stands_on_the_windows_mean() -> None:
    rng = np.random.default_rng(0)
    values = 10 * rng.standard_normal((200, 1, 1)) + rng.standard_normal((200, 16, 1))
    mask = np.ones(values.shape, dtype=bool)
    assert choose_anchor(values, mask, 12) == "window"


def test_missing_values_do_not_count_for_the_choice_of_a_level() -> None:
    walk = np.cumsum(np.random.default_rng(0).standard_normal(3000))
    values, mask = runs(walk - walk.mean())
    values, mask = values[::10], np.array(mask[::10])
    mask[:, 1::3] = False
    garbage = np.where(mask, values, 1e6)
    assert choose_anchor(garbage, mask, 12) == "last"


def test_few_windows_stand_on_the_mean_of_the_series() -> None:
    values = np.arange(48.0).reshape(3, 16, 1)
    assert choose_anchor(values, np.ones(values.shape, dtype=bool), 12) == "series"


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


def test_a_channel_that_a_window_has_not_seen_has_no_last_value() -> None:
    walk = np.cumsum(np.random.default_rng(0).standard_normal(3000))
    values, mask = runs(walk - walk.mean())
    values, mask = values[::10].repeat(2, axis=2), mask[::10].repeat(2, axis=2)
    mask[::3, :12, 1] = False
    garbage = np.where(mask, values, 1e6)
    assert choose_anchor(garbage, mask, 12) == "last"
