"""The model's units: time units, series split at long gaps, locations and scales."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sklode.data.observations import Observations
from sklode.data.scaled_rows import ScaledRows
from sklode.data.scaling import Units, split_at_gaps, time_unit
from tests.series import tiny, uneven_stamps, waves

NAN = float("nan")


def read(y: pd.Series | pd.DataFrame, X: pd.DataFrame | None = None) -> Observations:
    return Observations.from_frame(pd.DataFrame(y), X)


def at_stamps(*series: list[int]) -> Observations:
    """Return observations at these ticks, of one series or more."""
    parts = {k: pd.DataFrame({"y": 1.0}, index=ticks) for k, ticks in enumerate(series)}
    return read(parts[0] if len(series) == 1 else pd.concat(parts))


def test_a_series_is_split_where_a_gap_is_longer_than_a_thousand_units() -> None:
    seen = at_stamps([0, 10, 10_010, 20_011, 20_012], [7, 9], [3])
    pieces = split_at_gaps(seen, 10.0)
    assert pieces.bounds.tolist() == [0, 3, 5, 7, 8]
    assert pieces.keys == ((0,), (0,), (1,), (2,))
    assert split_at_gaps(seen, 11.0).bounds.tolist() == seen.bounds.tolist()


def test_a_stamp_in_a_long_gap_is_forecast_from_the_side_it_is_nearer_to() -> None:
    y = waves(pd.RangeIndex(40))
    before, after = y[:20], y[20:].set_axis(y.index[20:] + 10**4)
    both = pd.concat([before, after])
    pretrained = tiny(finetune_epochs=0).pretrain(
        pd.concat({"a": before, "b": after}).to_frame()
    )
    asked = pd.Index([25, 10**4 + 15])
    found = pretrained.clone().fit(both).predict_at(asked).to_numpy()
    for k, side in enumerate((before, after)):
        alone = pretrained.clone().fit(side).predict_at(asked[[k]])
        np.testing.assert_allclose(alone.to_numpy(), found[[k]], rtol=1e-5)


def test_the_mean_gap_is_ten_units_at_most_where_that_is_asked() -> None:
    seen = at_stamps(np.cumsum([0, *[1, 1, 90] * 10, 10**6]).tolist())
    assert time_unit(seen) == 1
    # gaps of 1, 1 and 90 have the mean 92 / 3; the one of a million is split
    assert time_unit(seen, 10.0) == pytest.approx(92 / 30)
    assert time_unit(at_stamps([0, 1, 3, 9]), 10.0) == 2


def test_the_time_unit_is_the_median_gap_pooled_over_series() -> None:
    # gaps of 1, 3 and of 9: the gap between the series is none
    assert time_unit(at_stamps([0, 1, 4], [100, 109])) == 3
    assert time_unit(at_stamps([7])) == 1
    day = waves(pd.date_range("2021", periods=1, freq="D"))
    assert time_unit(read(day)) == 86_400 * 10**9


def read_in_units(y: Any, X: pd.DataFrame | None = None) -> tuple[Units, ScaledRows]:
    seen = read(y, X)
    return Units.of(seen, 1.0), ScaledRows(seen, Units.of(seen, 1.0))


def test_location_and_scale_are_the_mean_and_deviation_of_what_was_observed() -> None:
    y = pd.DataFrame({"a": [1.0, 3.0, NAN, 0.0], "b": [NAN, 7.0, 7.0, 7.0]})
    units, rows = read_in_units(y)
    # squares of 1, 3 and 0 have the mean 10 / 3, less 16 / 9 it is 14 / 9;
    # a constant has its size as scale
    np.testing.assert_allclose(units.location, [4 / 3, 7])
    np.testing.assert_allclose(units.scale, [np.sqrt(14) / 3, 7])
    np.testing.assert_allclose(rows.values.sum(0), 0, atol=1e-6)
    found = np.where(rows.mask, units.original(rows.values), NAN)
    np.testing.assert_allclose(found, y, atol=1e-6)


@given(exponent=st.integers(-290, 300), seed=st.integers(0, 99))
def test_values_of_any_size_are_normalised_alike(exponent: int, seed: int) -> None:
    y = waves(seed=seed)
    expected, found = read_in_units(y)[1], read_in_units(y * 10.0**exponent)[1]
    np.testing.assert_allclose(found.values, expected.values, 1e-5)


def test_controls_are_normalised_on_their_own() -> None:
    y = waves(uneven_stamps())
    X = pd.DataFrame({"u": np.arange(24.0), "v": 5.0}, y.index)
    units, rows = read_in_units(y, X)
    # n whole numbers in turn have the variance (n^2 - 1) / 12
    np.testing.assert_allclose(units.control_location, [11.5, 5])
    np.testing.assert_allclose(units.control_scale, [np.sqrt(575 / 12), 5])
    assert rows.controls is not None
    assert rows.controls[:, 1].tolist() == [0] * 24
