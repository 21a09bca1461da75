"""What cannot be drawn is refused: the rule, what was received, the remedy."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from sklode.plotting import plot_forecast
from tests.plotting.test_forecasts import intervals, one_split
from tests.series import channels, panel, uneven_stamps, waves

Y, Y_PRED = one_split()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((np.zeros(4),), TypeError, "y must be a Series or DataFrame .*got ndarray"),
        ((Y, Y_PRED.to_numpy()), TypeError, "y_pred must be a Series .*got ndarray"),
        ((Y.iloc[:0],), ValueError, r"y must have at least one row .*\(0, 1\)"),
        ((Y.set_axis(list("ab" * 11)),), TypeError, "time index of y must hold"),
        (
            (Y.astype(str),),
            TypeError,
            "y must be numeric, not categorical; got column 'y'",
        ),
        (
            (Y, Y_PRED.reset_index(drop=True)),
            TypeError,
            "the index of y_pred must be of the kind of y's index, datetimes without",
        ),
        (
            (Y, Y_PRED.tz_localize("UTC")),
            TypeError,
            "datetimes with a time zone. Convert it to the zone",
        ),
        (
            (channels(), channels()[["a"]]),
            ValueError,
            r"y_pred must have the channels of y, \['a', 'b'\]; got \['a'\]",
        ),
        (
            (channels(), channels().rename(columns={"b": "c"})),
            ValueError,
            r"got \['a', 'c'\]. Select the same columns",
        ),
        (
            (panel(), Y_PRED),
            ValueError,
            r"y_pred must have the index levels of y, \['series', 'when'\]; got \[None",
        ),
        (
            (panel(), panel().rename(index={"s1": "s7"})),
            ValueError,
            "series of y_pred must be series of y; got s7, which is none of the 3",
        ),
        (
            (Y, Y_PRED, Y_PRED.to_frame()),
            TypeError,
            "y_interval must be what predict_interval returns.*got a DataFrame with",
        ),
        ((Y, Y_PRED, Y_PRED), TypeError, "got a Series. Pass forecaster.predict_int"),
        (
            (Y, Y_PRED, intervals(Y_PRED).iloc[:, [0, 3]]),
            TypeError,
            "y_interval must be what predict_interval returns.*got a DataFrame with",
        ),
        (
            (Y, Y_PRED, intervals(Y_PRED).rename(columns=str, level=1)),
            TypeError,
            r"got a DataFrame with the columns \[\('y', '0.",
        ),
        (
            (Y, {"a": Y_PRED, "b": Y_PRED}, intervals(Y_PRED)),
            TypeError,
            r"must be a dict with their names, \['a', 'b'\]; got a DataFrame",
        ),
        (
            (Y, {"a": Y_PRED}, {"b": intervals(Y_PRED)}),
            ValueError,
            r"names of forecasts, \['a'\]; got 'b'",
        ),
        (
            (Y, {k: Y_PRED for k in range(7)}),
            ValueError,
            "at most 6 forecasts can be told apart; got 7",
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    arguments: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        plot_forecast(*arguments)
    assert not plt.get_fignums()  # no empty figure is left


@pytest.mark.parametrize("labels", [["one"], ["one", "two", "three", "four"], "abc"])
def test_labels_of_another_number_are_refused(labels: Any) -> None:
    with pytest.raises(ValueError, match="what is drawn, y, y_pred, y_test; got"):
        plot_forecast(Y, Y_PRED, y_test=Y_PRED, labels=labels)


def test_a_missing_time_is_refused() -> None:
    y_pred = Y_PRED.set_axis([*Y_PRED.index[:-1], pd.NaT])
    with pytest.raises(ValueError, match="time index of y_pred must hold finite times"):
        plot_forecast(Y, y_pred)


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ([0.5, 2.5, 1.5], "got 1.5 after 2.5 at row 2. Sort y by its index first"),
        ([0.5, 1.5, 1.5], "got 1.5 after 1.5 at row 2. Keep one row per stamp"),
        ([3, 1, 2], "got 1 after 3 at row 1. Sort y"),
    ],
)
def test_numbers_out_of_order_are_refused_as_dates_are(
    places: list[float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        plot_forecast(pd.Series([1.0, 2.0, 3.0], pd.Index(places)))
    keys = [("a", places[0]), ("b", places[1]), ("c", places[2])]
    of_their_own = pd.MultiIndex.from_tuples(keys, names=["series", "place"])
    y = pd.DataFrame({"y": [1.0, 2.0, 3.0]}, of_their_own)
    assert plot_forecast(y).shape == (3,)


@pytest.mark.parametrize("max_panels", ["3", 0, 2.5, True])
def test_a_number_of_axes_that_is_none_is_refused(max_panels: Any) -> None:
    message = f"max_panels must be a whole number of at least 1; got {max_panels!r}"
    with pytest.raises(ValueError, match=message):
        plot_forecast(Y, max_panels=max_panels)


def test_too_many_axes_are_refused_unless_asked_for() -> None:
    many = {k: waves(uneven_stamps(6)).to_frame() for k in range(13)}
    y = pd.concat(many, names=["series", "when"])
    message = "at most max_panels=12 axes are drawn, one for each series and channel; "
    with pytest.raises(ValueError, match=f"{message}got 13"):
        plot_forecast(y)
    assert plot_forecast(y, max_panels=13).shape == (13,)


def test_axes_of_another_number_are_refused() -> None:
    _, axes = plt.subplots(3)
    with pytest.raises(
        ValueError, match="ax must hold 2 Axes, one for each series and"
    ):
        plot_forecast(channels(), ax=axes)


def test_something_else_than_axes_is_refused() -> None:
    figure, _ = plt.subplots()
    with pytest.raises(TypeError, match="ax must be a matplotlib Axes or an array"):
        plot_forecast(Y, ax=figure)


@pytest.mark.parametrize("index", [Y.index, pd.to_timedelta(np.arange(22), unit="h")])
@pytest.mark.parametrize(
    ("ax", "error", "message"),
    [
        ([], ValueError, "ax must hold 1 Axes, one for each series and channel; got 0"),
        ("axes", TypeError, "ax must be a matplotlib Axes or an array .*; got str"),
    ],
)
def test_no_axes_at_all_are_refused_whatever_the_index(
    index: pd.Index, ax: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        plot_forecast(Y.set_axis(index), ax=ax)


def test_axes_on_which_pandas_counts_periods_are_refused() -> None:
    y = waves(pd.date_range("2021-01-01", periods=20, freq="D"))
    axes = y.plot()
    with pytest.raises(ValueError, match="on which pandas has drawn periods"):
        plot_forecast(y, ax=axes)


def test_without_matplotlib_the_message_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r'pip install "sklode\[plot\]"'):
        plot_forecast(Y)
