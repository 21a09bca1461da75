"""From pandas to observations: rows, their order, what is dropped and merged."""

from __future__ import annotations

import numpy as np
import pandas as pd

from sklode.data.history import History
from sklode.data.observations import Observations
from tests.series import panel

NAN = float("nan")


def read(y: pd.Series | pd.DataFrame, X: pd.DataFrame | None = None) -> Observations:
    return Observations.from_frame(pd.DataFrame(y), X)


def test_rows_of_a_panel_are_gathered_by_series_and_time() -> None:
    rows = [("b", 3), ("a", 14), ("b", 5), ("a", 10), ("b", 9)]
    index = pd.MultiIndex.from_tuples(rows)
    y = pd.DataFrame({"y": [1.0, 4.0, NAN, 2.0, 5.0]}, index)
    X = pd.DataFrame({"u": np.arange(5.0)}, index[::-1])
    every = read(y, X)
    assert every.keys == (("b",), ("a",))
    assert every.ticks.tolist() == [3, 5, 9, 10, 14]
    assert every.series.tolist() == [0, 0, 0, 1, 1]
    assert every.gaps.tolist() == [2, 4, 0, 4]
    assert every.controls is not None
    assert every.controls[:, 0].tolist() == [4, 2, 0, 1, 3]
    seen = every.observed()
    assert seen.ticks.tolist() == [3, 9, 10, 14]
    assert seen.values[:, 0].tolist() == [1.0, 5.0, 2.0, 4.0]
    assert seen.bounds.tolist() == [0, 2, 4]
    assert seen.lengths.tolist() == [2, 2]
    assert every.holds(*every.locate(index[::-1])).all()
    others = [("b", 10), ("a", 9), ("c", 3), ("b", 2), ("b", 5)]
    held = every.holds(*every.locate(pd.MultiIndex.from_tuples(others)))
    assert held.tolist() == [False, False, False, False, True]


def test_a_row_is_observed_unless_every_channel_is_missing() -> None:
    y = pd.DataFrame({"a": [0.0, NAN, NAN, 4.0], "b": [1.0, 2.0, NAN, NAN]})
    seen = read(y).observed()
    assert seen.ticks.tolist() == [0, 1, 3]
    np.testing.assert_array_equal(seen.values, [[0, 1], [NAN, 2], [4, NAN]])


def test_a_series_ends_with_its_last_row_observed_or_not() -> None:
    y = pd.DataFrame({"y": [1.0, 2.0, NAN]}, index=[3, 5, 9])
    history = History.of(y, None)
    assert history.rows_ahead(pd.Index([1])).index.tolist() == [10]
    assert history.frame().index.tolist() == [3, 5]
    longer = history.extended(y.set_axis([9, 11, 20]), None, None)
    assert longer.rows_ahead(pd.Index([1])).index.tolist() == [21]
    assert history.rows_ahead(pd.Index([1])).index.tolist() == [10]


def test_rows_are_merged_by_key_and_stamp() -> None:
    y = panel((4, 3))
    # a row of s1 without a value, two of a new series, and a later one of s1
    late = pd.concat({"s1": y.loc["s1"][1:2] + NAN, "s2": y.loc["s0"][:2]})
    fresh = y.loc[["s1"]][-1:].rename(lambda t: t + pd.Timedelta("1D"), level=1)
    both = read(y.drop(y.index[5])).merged(read(pd.concat([fresh + 1, late])))
    assert both.keys == (("s0",), ("s1",), ("s2",))
    assert both.bounds.tolist() == [0, 4, 8, 10]
    s1 = y.loc["s1"]["y"].tolist()
    expected = [*y.loc["s0"]["y"], s1[0], NAN, s1[2], s1[2] + 1, *y.loc["s0"]["y"][:2]]
    np.testing.assert_array_equal(both.values[:, 0], expected)
    assert (np.diff(both.ticks)[both.gaps > 0] == both.gaps[both.gaps > 0]).all()
