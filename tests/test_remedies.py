"""Lines of code in messages are those for what was passed; the messages run elsewhere.

``test_first_mistakes`` runs the lines as `fit` shows them.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode.data.errors import TimesInValuesWarning
from sklode.data.remedies import (
    of_column,
    of_container,
    of_index,
    warn_of_times_in_values,
)

DAYS = pd.date_range("1973-06-01", periods=9, freq="D")
INCREASING = np.array([0.0, 1.0, 2.5, 3.0, 7.0, 8.0, 9.0, 11.0])


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("year", ["1973-06-01", "2200-01-01"])
def test_floats_since_1970_are_converted_by_their_unit(unit: str, year: str) -> None:
    stamps = pd.date_range(year, periods=9, freq="D")
    count = (stamps - pd.Timestamp("1970-01-01")) / pd.Timedelta(1, unit)
    remedy = of_index(pd.Index(count), "y")
    assert remedy.startswith("It may count from 1970: y.index = ")
    line = remedy.partition("= ")[2].removesuffix(".")
    y = pd.Series(0.0, count)
    np.testing.assert_array_equal(eval(line, {"pd": pd, "y": y}), stamps)


@pytest.mark.parametrize("numbers", [[1e7, 2e7], [5e10, 6e10], [1e9, 1e12]])
def test_whole_floats_that_fit_no_unit_become_integers(numbers: list[float]) -> None:
    assert of_index(pd.Index(numbers), "y") == (
        "Convert it: y.index = y.index.astype(int)."
    )


@pytest.mark.parametrize(
    ("name", "owner"),
    [("y", "y.index"), ("X", "X.index"), ("the horizon", "index")],
)
def test_the_index_is_called_as_the_caller_calls_it(name: str, owner: str) -> None:
    expected = f"Convert it: {owner} = pd.to_datetime({owner})."
    assert of_index(DAYS.astype(str), name) == expected
    expected = f"Say its unit: {owner} = pd.to_timedelta({owner}, unit='s')."
    assert of_index(pd.Index([0.5, 1.0]), name) == expected


def test_a_column_is_spoken_of_only_where_there_may_be_one() -> None:
    words = pd.Index(["one", "two"])
    in_a_column = "if they stand in a column: y = y.set_index(column)."
    assert of_index(words, "y").endswith(in_a_column)
    as_by = "Take times for the index, as by pd.to_datetime(index)."
    assert of_index(words, "the horizon") == as_by
    panel = pd.MultiIndex.from_product([["a", "b"], words])
    assert of_index(panel, "y") == as_by


@pytest.mark.parametrize("missing", ["", "NaT"])
def test_dates_of_which_one_is_missing_are_no_index(missing: str) -> None:
    dates = [*DAYS.astype(str), missing]
    assert of_column(pd.Series(dates, name="when"), "y") is None
    assert "to_datetime" not in of_index(pd.Index(dates), "y")


def test_a_list_of_other_things_is_not_said_to_be_a_series() -> None:
    assert of_container(["one", 2.0], "y") == (
        "Pass a Series or DataFrame over its time stamps, or a numpy array."
    )
    assert of_container([1, 2.0], "y").startswith("Pass pd.Series(y), ")


def framed(first: Any, index: Any = None) -> pd.DataFrame:
    return pd.DataFrame({"when": first, "level": 0.0}, index)


@pytest.mark.parametrize(
    "y",
    [framed(INCREASING), framed(np.array([0, 1, 3, 4, 5, 9, 11, 12]))],
    ids=["eight rows", "whole numbers"],
)
def test_a_column_that_increases_by_unequal_steps_is_warned_of(y: Any) -> None:
    with pytest.warns(TimesInValuesWarning, match=r"the first column of y, y\['when'"):
        warn_of_times_in_values(y)


@pytest.mark.parametrize(
    "y",
    [
        framed(INCREASING[:7]),
        framed(np.maximum(INCREASING, 1.0)),
        framed(np.arange(40) * 0.1),
        framed(INCREASING, range(5, 13)),
        framed(INCREASING, list(range(8))),
    ],
    ids=["seven rows", "a repeat", "equal but for rounding", "from five", "own index"],
)
def test_other_first_columns_are_not_warned_of(y: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_times_in_values(y)
