"""Origins: which rows they show and ask for, in which units."""

from __future__ import annotations

import numpy as np
import pytest

from sklode.data.links import IDENTITY, Link
from sklode.data.observations import Observations
from sklode.data.scaling import Units, plain
from sklode.hybrid.origins import Origins
from tests.latent_ode.test_windows import observed

NAN = float("nan")
NONE = (IDENTITY,)


def steady(*series: list[float]) -> Observations:
    return observed([list(range(0, 10 * len(s), 10)) for s in series], [*series])


def origins_of(*series: list[float]) -> Origins:
    return Origins(steady(*series), Units.robust(steady(*series), 10.0, NONE))


def test_a_window_shows_its_latest_rows_first_and_no_other_series() -> None:
    origins = origins_of([1, 2, 3], [4, NAN, 6, 7])
    ages, values, mask, controls = origins.seen(np.array([2, 5]), 4)
    assert ages.tolist() == [[0, 1, 2, 2], [0, 1, 2, 2]]
    shown = values[..., 0] * origins.scale[0] + origins.location[0]
    assert mask[..., 0].tolist() == [[True] * 3 + [False], [True, False, True, False]]
    np.testing.assert_allclose(shown[mask[..., 0]], [3, 2, 1, 6, 4], rtol=1e-5)
    assert controls is None


def test_after_an_origin_come_the_values_within_reach_of_the_same_series() -> None:
    origins = origins_of([1, 2, 3, 4, 5], [6, NAN, 8, 9])
    queries = origins.after(np.array([1, 4, 5]), 2.0)
    assert queries.window.tolist() == [0, 0, 2]
    assert queries.row.tolist() == [2, 3, 7]
    assert queries.lead.tolist() == [1, 2, 2]


def test_usable_origins_have_rows_before_and_after() -> None:
    origins = origins_of([1, 2, 3, 4], [1, 2], [1, 2, 3])
    assert origins.usable(3).tolist() == [2]
    assert origins.usable(2).tolist() == [1, 2, 7]


def test_units_do_not_follow_an_absurd_value() -> None:
    values = np.random.default_rng(0).normal(50.0, 2.0, 400).tolist()
    units = [Units.robust(steady(v), 1.0, NONE) for v in (values, [*values, 1e9])]
    assert units[0].location[0] == pytest.approx(50, abs=0.5)
    assert units[0].scale[0] == pytest.approx(2, rel=0.1)
    assert units[1].scale[0] == pytest.approx(units[0].scale[0], rel=0.05)


def test_series_of_very_unequal_spread_have_units_of_their_own() -> None:
    rng = np.random.default_rng(0)
    small = rng.normal(0.5, 0.1, 40).tolist()
    large = rng.normal(2000.0, 60.0, 40).tolist()
    values = origins_of(small, large).values[:, 0].reshape(2, 40)
    np.testing.assert_allclose(values.mean(1), 0, atol=1e-4)
    np.testing.assert_allclose(values.std(1), 1, rtol=1e-4)
    assert not Units.robust(steady(small, [0.3] * 40), 10.0, NONE).of_series


def test_logarithms_are_read_where_the_level_has_them() -> None:
    values = np.array([[1.0, -2.0], [100.0, 3.0], [0.0, NAN]])
    expected = [[0.0, -2.0], [np.log(100.0), 3.0], [np.log(1e-3), NAN]]
    found = plain(values, (Link(low=0.0, least=1e-3), IDENTITY))
    np.testing.assert_allclose(found, expected)
