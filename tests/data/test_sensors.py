"""Lone values that would hide all others are taken for missing, and said to be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode.data.history import History
from tests.series import channels, panel, tiny, uneven_stamps, waves

MESSAGE = r"1 value\(s\) more than 10000 times .*first is {}.*Taken for missing"
WAVE = np.sin(np.arange(50.0))


def missing_in(y: Any) -> list[int]:
    """Return the rows that are read as missing."""
    values = History.of(pd.DataFrame({"y": y}), None).rows.values
    return np.flatnonzero(np.isnan(values)).tolist()


def with_value(row: int, value: float) -> pd.Series:
    y = waves(uneven_stamps())
    y.iloc[row] = value
    return y


@pytest.mark.parametrize("row", [0, 11, -1])
@pytest.mark.parametrize("value", [1e8, -1e30])
def test_an_outlier_changes_no_forecast_more_than_a_missing_value(
    row: int, value: float
) -> None:
    missing = tiny().fit(with_value(row, np.nan))
    with pytest.warns(UserWarning, match=MESSAGE.format("-?1e")):
        forecaster = tiny().fit(with_value(row, value))
    asked = pd.DatetimeIndex(["2021-03-05", "2021-03-01 00:30"])
    expected = missing.predict_at(asked)
    pd.testing.assert_frame_equal(forecaster.predict_at(asked), expected)


def test_the_warning_names_the_first_outlier() -> None:
    y = channels(uneven_stamps())
    y.iloc[7, 1] = -2e9
    match = rf"first is -2e\+09 in column 'b' at {y.index[7]}\. Taken"
    with pytest.warns(UserWarning, match=match):
        found = History.of(y, None).rows.values
    np.testing.assert_array_equal(found, y.mask(y < -1e9))
    family = panel((20, 20, 20)) * np.repeat([1.0, 1e8, 1e-8], 20)[:, None]
    assert missing_in(family["y"]) == []  # each series has a scale of its own
    family.iloc[45] = 1.0
    with pytest.warns(
        UserWarning, match=r"1 value.* at 2021-03-01 .* of series .'s2',"
    ):
        assert missing_in(family["y"]) == [45]


ORDINARY: dict[str, Any] = {
    "a value 1000 times as far": [*WAVE, 1e3],
    "a spike among zeros": [*np.zeros(50), 1e8],
    "growth over 30 powers of ten": [10.0**k for k in range(31)],
    "a constant that jumps": [*np.full(50, 0.3), 0.1 + 0.2, 1.0],
    "a large offset": [*(1e9 + WAVE), 1e9 + 100],
    "few values": [1.0, 2.0, 3.0, 1e9],
    "many of the large": [*WAVE, *[1e8] * 3],
    "the largest floats": [*WAVE * 1e308, -1.7e308],
}


@pytest.mark.parametrize("name", ORDINARY)
def test_what_a_scale_can_hold_is_no_outlier(name: str) -> None:
    assert missing_in(ORDINARY[name]) == []  # warnings are errors in these tests


def test_two_of_two_hundred_are_outliers_three_are_not() -> None:
    values = np.sin(np.arange(200.0))
    values[[20, 130]] = 1e7, 3e11
    with pytest.warns(UserWarning, match=r"2 value\(s\).*1e\+07 .* at 20\."):
        assert missing_in(values) == [20, 130]
    values[7] = 1e9
    assert missing_in(values) == []


def test_an_outlier_of_an_update_is_told_by_the_history() -> None:
    y = waves(uneven_stamps(30))
    new = y[24:26].copy()
    missing = tiny().fit(y[:24]).update(new.mask([True, False]), update_params=False)
    new.iloc[0] = 1e9
    forecaster = tiny().fit(y[:24])
    with pytest.warns(UserWarning, match=MESSAGE.format("1e")):
        forecaster.update(new, update_params=False)
    expected = missing.predict([1, 5])
    pd.testing.assert_series_equal(forecaster.predict([1, 5]), expected)


def test_pretrain_takes_outliers_for_missing_too() -> None:
    y = panel()
    y.iloc[3] = -1e12
    with pytest.warns(UserWarning, match=MESSAGE.format("-1e")):
        pretrained = tiny().pretrain(y)
    assert np.abs(pretrained.pretrained_.normalisation.location).max() < 1
