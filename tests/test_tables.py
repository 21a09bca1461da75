"""What is no table of real numbers over time stamps is refused, by every method."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.controls import controls
from tests.series import channels, panel, tiny, uneven_stamps, waves

STAMPS = uneven_stamps()
ONE = pd.Series(1.0, STAMPS, name="y")
UTC = STAMPS.tz_localize("UTC")
BERLIN = UTC.tz_convert("Europe/Berlin")


@pytest.fixture(scope="module")
def fitted() -> dict[str, Any]:
    X = controls(STAMPS)
    return {"y": tiny().fit(waves(STAMPS)), "X": tiny().fit(waves(STAMPS), X)}


NO_NUMBERS: dict[str, tuple[Callable[[], Any], str]] = {
    "words": (
        lambda: ONE.astype(str),
        r"y must be numeric, not categorical; got column 'y' of dtype .*, such as '1\."
        r"0'\. Convert it, for example by y\.astype\(float\)",
    ),
    "objects": (lambda: ONE.astype(object), r"of dtype object, such as 1\.0\. Convert"),
    "decimals": (lambda: ONE.map(lambda v: Decimal(1)), r"such as Decimal\('1'\)"),
    "categories": (lambda: ONE.astype("category"), r"of dtype category.*Convert"),
    "complex": (lambda: ONE * 1j, r"complex128.*real and its imaginary part as two"),
    "dates": (
        lambda: channels(STAMPS).assign(when=STAMPS),
        r"got column 'when' of dtype datetime64.*index: y = y\.set_index\('when'\)",
    ),
    "durations": (
        lambda: pd.Series(pd.to_timedelta(np.arange(24), "h"), STAMPS, name="y"),
        r"dtype timedelta64.*column\.dt\.total_seconds\(\)",
    ),
    "an array of words": (
        lambda: np.array(["1", "2"]),
        r"y must be numeric; got an array of dtype <U1\. Convert it, for example by a",
    ),
    "a complex array": (lambda: np.ones(9) * 1j, r"an array of dtype complex128"),
    "an array of objects": (lambda: np.ones(9, object), r"an array of dtype object"),
    "a dict": (
        lambda: {"y": 1},
        r"y must be of type Series, DataFrame or array; got d",
    ),
    "a number": (lambda: 3.0, r"y must be of type .* got float\. Pass a Series"),
    "a tensor": (lambda: torch.ones(9), r"y must be of type .* got Tensor"),
    "four axes": (lambda: np.zeros((2,) * 4), r"shape .*; got \(2, 2, 2, 2\)"),
}


@pytest.mark.parametrize("case", NO_NUMBERS)
def test_what_is_no_table_of_numbers_is_refused(
    fitted: dict[str, Any], case: str
) -> None:
    make, message = NO_NUMBERS[case]
    for question in (
        lambda y: tiny().fit(y),
        lambda y: fitted["y"].update(y, update_params=False),
        lambda y: fitted["y"].score(y),
        lambda y: fitted["y"].predict_residuals(y),
    ):
        with pytest.raises(TypeError, match=f"(?s){message}"):
            question(make())


@pytest.mark.parametrize("case", ["words", "complex", "dates"])
def test_pretrain_refuses_it_too(case: str) -> None:
    make, message = NO_NUMBERS[case]
    y = pd.concat({"a": pd.DataFrame(make()), "b": pd.DataFrame(make())})
    with pytest.raises(TypeError, match=f"(?s){message}"):
        tiny().pretrain(y)
    with pytest.raises(TypeError, match=r"pretrain needs a panel y; got None"):
        tiny().pretrain(None)


@pytest.mark.parametrize("dtype", ["Float64", "Int64", "Sparse[float]", "float32"])
def test_numbers_of_any_dtype_are_fitted_alike(dtype: str) -> None:
    y = (10 * waves(STAMPS)).round()
    expected = tiny().fit(y).predict([1, 2])
    pd.testing.assert_series_equal(
        tiny().fit(y.astype(dtype)).predict([1, 2]), expected
    )


def test_missing_values_of_nullable_dtypes_are_missing() -> None:
    y = waves(STAMPS).round(1)
    y.iloc[[3, 8]] = np.nan
    expected = tiny().fit(y).predict([1])
    pd.testing.assert_series_equal(
        tiny().fit(y.astype("Float64")).predict([1]), expected
    )


def test_booleans_are_zero_and_one() -> None:
    y = waves(STAMPS) > 0
    expected = tiny().fit(y.astype(float)).predict([1])
    for given in (y, y.astype("boolean")):
        pd.testing.assert_series_equal(tiny().fit(given).predict([1]), expected)


EMPTY: list[tuple[Any, str]] = [
    (ONE[:0], r"y must hold at least one row; got none"),
    (channels(STAMPS)[:0], r"y must hold at least one row; got none"),
    (np.array([]), r"y must hold at least one row; got none"),
    (pd.DataFrame(index=STAMPS), r"y must have at least one column; got an index al"),
    (np.array(1.0), r"y as an array must have the shape \(time,\), .*; got \(\)\."),
]


@pytest.mark.parametrize(("y", "message"), EMPTY)
def test_a_table_of_nothing_is_refused(y: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        tiny().fit(y)


def test_columns_of_one_name_cannot_be_told_apart(fitted: dict[str, Any]) -> None:
    message = r"columns of {} must have different names; got '{}' more than once\. Ren"
    twice = channels(STAMPS).set_axis(["a", "a"], axis=1)
    with pytest.raises(ValueError, match=message.format("y", "a")):
        tiny().fit(twice)
    X = controls(STAMPS).set_axis(["u", "u"], axis=1)
    with pytest.raises(ValueError, match=message.format("X", "u")):
        tiny().fit(waves(STAMPS), X)
    with pytest.raises(ValueError, match=message.format("X", "u")):
        fitted["X"].predict([1], X=X)
    with pytest.raises(ValueError, match=r"\['u', 'v'\]; got \['u', 'u'\]"):
        fitted["X"].predict_at(STAMPS, X=X)


def test_a_panel_is_no_series_of_pandas() -> None:
    y = panel()["y"]
    with pytest.raises(TypeError, match=r"levels \['series', 'when'\]\. Pass y\.to_fr"):
        tiny().fit(y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (
            [1.0, 2.0],
            r"type list must hold a DataFrame for each .* got float at place 0",
        ),
        ([channels(), waves()], r"got Series at place 1\. Pass a Series or DataFrame"),
        ([], r"y must be of type Series, DataFrame or array; got list"),
        ([channels(), channels() * 1j], r"y\[1\] must be numeric.*column 'a'.*complex"),
    ],
    ids=["numbers", "mixed", "empty", "complex"],
)
def test_a_list_holds_the_series_of_a_panel(y: list, message: str) -> None:
    with pytest.raises(TypeError, match=f"(?s){message}"):
        tiny().fit(y)


BAD_STAMPS: dict[str, tuple[pd.Index, str]] = {
    "written dates": (
        STAMPS.astype(str),
        r"got (str|object), such as 2021-03-01.* Convert it: .*pd\.to_datetime\(y\.ind",
    ),
    "dates of Python": (
        pd.Index([stamp.date() for stamp in pd.date_range("2021", periods=24)]),
        r"got object, such as 2021-01-01\. Convert it: .*pd\.to_datetime\(y\.index",
    ),
    "whole floats": (pd.Index(np.arange(24.0)), r"\.index.*\.astype\(int\)"),
    "fractions": (pd.Index(np.arange(24) / 2), r"to_timedelta\(y\.index.*, unit='s'\)"),
    "booleans": (pd.Index([True, False] * 12), r"got bool, such as True"),
    "categories": (pd.CategoricalIndex(range(24)), r"got category, such as 0"),
    "two zones": (
        pd.Index([*UTC[:12], *BERLIN[12:]], dtype=object),
        rf"share one time zone, or have none; got {re.escape(str(BERLIN[12]))} \(zone "
        r"Europe/Berlin\) at row 12 after .* \(zone UTC\)\. Convert all: pd\.to_dateti",
    ),
    "zones and none": (
        pd.Index([*STAMPS[:12], *BERLIN[12:]], dtype=object),
        r"at row 12 after .* \(zone None\)\. Give those without a zone theirs, by tz_l",
    ),
    "huge integers": (
        pd.Index(np.arange(24, dtype=np.uint64) + 2**63),
        r"lie below 2\*\*63; got 9223372036854775831\. Subtract the first",
    ),
}


@pytest.mark.parametrize("case", BAD_STAMPS)
@pytest.mark.parametrize("of_panel", [False, True])
def test_stamps_that_are_none_are_refused_with_a_way_to_convert_them(
    case: str, of_panel: bool
) -> None:
    index, message = BAD_STAMPS[case]
    y = waves().set_axis(index)
    if of_panel:
        keyed = pd.MultiIndex.from_arrays([["a"] * 24, index])
        if keyed.get_level_values(1).dtype != index.dtype:
            pytest.skip("pandas keeps no such index in a MultiIndex")
        y = y.to_frame().set_axis(keyed)
    with pytest.raises((TypeError, ValueError), match=f"(?s)of y must .*{message}"):
        tiny().fit(y)


def test_a_panel_whose_first_level_is_time_is_told_so() -> None:
    with pytest.raises(
        TypeError, match=r"Time comes last; level 0 holds it: reorder_l"
    ):
        tiny().fit(panel().swaplevel().sort_index())


def test_a_panel_of_two_zones_is_refused_and_one_of_one_zone_is_not() -> None:
    parts = {
        "a": waves(UTC).to_frame(),
        "b": waves(BERLIN + pd.Timedelta("30s")).to_frame(),
    }
    with pytest.raises(TypeError, match=r"share one time zone, .*at row 24 after"):
        tiny().fit(pd.concat(parts))
    parts["b"] = parts["b"].tz_convert("UTC")
    tiny().fit(pd.concat(parts))


X_OF_ANOTHER_KIND: list[tuple[Any, str]] = [
    (UTC, r"got datetimes with a time zone\. Convert it .*tz_convert\(zone\)"),
    (pd.RangeIndex(24), r"got integers\. Convert it first, .*pd\.to_datetime\(index\)"),
]


@pytest.mark.parametrize(("index", "message"), X_OF_ANOTHER_KIND)
def test_x_over_other_stamps_than_y_is_not_just_missing(
    fitted: dict[str, Any], index: pd.Index, message: str
) -> None:
    message = f"X must be of the kind of y's index, .*{message}"
    with pytest.raises(TypeError, match=message):
        tiny().fit(waves(STAMPS), controls(index))
    for question in (
        lambda X: fitted["X"].predict([1], X=X),
        lambda X: fitted["X"].predict_at(STAMPS, X=X),
        lambda X: fitted["X"].score(waves(STAMPS), X),
    ):
        with pytest.raises(TypeError, match=message):
            question(controls(index))


def test_x_in_another_zone_is_read_at_the_same_instants() -> None:
    y, X = waves(UTC), controls(UTC)
    expected = tiny().fit(y, X).predict_at(UTC[3:6], X=X + 1)
    forecaster = tiny().fit(y, X.set_axis(BERLIN))
    forecast = forecaster.predict_at(UTC[3:6], X=X.set_axis(BERLIN) + 1)
    pd.testing.assert_frame_equal(forecast, expected, check_exact=True)


def test_an_array_of_controls_needs_rows_that_count_from_zero() -> None:
    X = controls(STAMPS).to_numpy()
    message = (
        r"X must have the time stamps of y; got an array\. Use pd\.DataFrame\(X, i"
    )
    with pytest.raises(TypeError, match=message):
        tiny().fit(waves(STAMPS), X)
    tiny().fit(waves(pd.RangeIndex(24)), X)
    with pytest.raises(ValueError, match=r"X must have a row .* got none at 20"):
        tiny().fit(waves().to_numpy(), controls(pd.RangeIndex(20)))


@pytest.mark.parametrize("X", [[1.0], {"u": 1}, 3.0])
def test_x_is_a_table_too(fitted: dict[str, Any], X: Any) -> None:
    message = rf"X (must be )?of type .*got (float|{type(X).__name__})"
    for question in (
        lambda: tiny().fit(waves(STAMPS), X),
        lambda: fitted["X"].predict([1], X=X),
        lambda: fitted["X"].predict_at(STAMPS, X=X),
        lambda: fitted["X"].score(waves(STAMPS), X),
    ):
        with pytest.raises(TypeError, match=message):
            question()


def test_complex_controls_are_refused_everywhere(fitted: dict[str, Any]) -> None:
    X = controls(STAMPS) * (1 + 1j)
    message = r"X must be numeric.*got column 'u' of dtype complex128.*as two columns"
    for question in (
        lambda: tiny().fit(waves(STAMPS), X),
        lambda: fitted["X"].predict([1], X=X),
        lambda: fitted["X"].predict_at(STAMPS, X=X),
    ):
        with pytest.raises(TypeError, match=message):
            question()
