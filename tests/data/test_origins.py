"""Origins: what a window shows, what comes after, and in which units."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sklode.data.observations import Observations
from sklode.data.origins import Origins, Units

NONE = np.array([np.nan])


def observed(*series: list[float], gap: int = 10) -> Observations:
    parts = {
        k: pd.DataFrame({"y": values}, pd.RangeIndex(0, gap * len(values), gap))
        for k, values in enumerate(series)
    }
    return Observations.from_frame(pd.concat(parts, names=["series", "t"]))


def test_a_window_shows_its_latest_rows_first_and_no_other_series() -> None:
    rows = observed([1, 2, 3], [4, np.nan, 6, 7])
    origins = Origins(rows, Units.of(rows, 10.0, NONE))
    ages, values, mask, controls = origins.seen(np.array([2, 5]), 4)
    assert ages.tolist() == [[0, 1, 2, 2], [0, 1, 2, 2]]
    shown = values[..., 0] * origins.scale[0] + origins.location[0]
    assert mask[..., 0].tolist() == [[True] * 3 + [False], [True, False, True, False]]
    np.testing.assert_allclose(shown[mask[..., 0]], [3, 2, 1, 6, 4], rtol=1e-5)
    assert controls is None


def test_after_an_origin_come_the_values_within_reach_of_the_same_series() -> None:
    rows = observed([1, 2, 3, 4, 5], [6, np.nan, 8, 9])
    origins = Origins(rows, Units.of(rows, 10.0, NONE))
    asked = origins.after(np.array([1, 4, 5]), 2.0)
    assert asked.window.tolist() == [0, 0, 2]
    assert asked.row.tolist() == [2, 3, 7]
    assert asked.lead.tolist() == [1, 2, 2]


def test_usable_origins_have_rows_before_and_after() -> None:
    rows = observed([1, 2, 3, 4], [1, 2], [1, 2, 3])
    origins = Origins(rows, Units.of(rows, 10.0, NONE))
    assert origins.usable(3).tolist() == [2]
    assert origins.usable(2).tolist() == [1, 2, 7]


def test_units_do_not_follow_an_absurd_value() -> None:
    values = np.random.default_rng(0).normal(50.0, 2.0, 400).tolist()
    units = [Units.of(observed(v), 1.0, NONE) for v in (values, [*values, 1e9])]
    assert units[0].location[0] == pytest.approx(50, abs=0.5)
    assert units[0].scale[0] == pytest.approx(2, rel=0.1)
    assert units[1].scale[0] == pytest.approx(units[0].scale[0], rel=0.05)


def test_series_of_very_unequal_spread_have_units_of_their_own() -> None:
    rng = np.random.default_rng(0)
    small = rng.normal(0.5, 0.1, 40).tolist()
    large = rng.normal(2000.0, 60.0, 40).tolist()
    rows = observed(small, large)
    units = Units.of(rows, 10.0, NONE)
    assert units.of_series
    values = Origins(rows, units).values[:, 0].reshape(2, 40)
    np.testing.assert_allclose(values.mean(1), 0, atol=1e-4)
    np.testing.assert_allclose(values.std(1), 1, rtol=1e-4)
    constant = observed(small, [0.3] * 40)
    assert not Units.of(constant, 10.0, NONE).of_series


def test_logarithms_are_read_where_the_level_has_them() -> None:
    rows = observed([1.0, 10.0, 100.0, 0.0])
    units = Units.of(rows, 10.0, np.array([1e-3]))
    expected = np.log([1.0, 10.0, 100.0, 1e-3])
    np.testing.assert_allclose(units.plain(rows.values)[:, 0], expected)
