"""What is drawn is what was given, where and when it was; what cannot be is refused."""

from __future__ import annotations

import itertools
import sys
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from sklode.plotting import plot_forecast
from tests.series import channels, panel, tiny, uneven_stamps, uneven_ticks, waves


def dates(index: pd.Index) -> np.ndarray:
    """Return where matplotlib draws datetimes: days since 1970, in UTC."""
    if index.tz is not None:
        index = index.tz_convert("UTC").tz_localize(None)
    return np.asarray((index - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1))


def intervals(y_pred: Any, coverages: tuple[float, ...] = (0.9,)) -> pd.DataFrame:
    """Return intervals around a forecast in the layout of predict_interval."""
    frame = y_pred.to_frame() if isinstance(y_pred, pd.Series) else y_pred
    parts = {}
    for name, coverage in itertools.product(frame.columns, coverages):
        parts[name, coverage, "upper"] = frame[name] + 2 * coverage
        parts[name, coverage, "lower"] = frame[name] - coverage
    return pd.DataFrame(parts)


def line(axes: Any, label: str) -> Any:
    return next(one for one in axes.lines if one.get_label() == label)


def points(axes: Any, label: str) -> np.ndarray:
    """Return the points of a line, (point, 2), without the gaps between its parts."""
    xy = np.asarray(line(axes, label).get_xydata(), dtype=float)
    return xy[~np.isnan(xy).any(axis=1)]


def n_parts(axes: Any, label: str) -> int:
    return int(np.isnan(line(axes, label).get_ydata()).sum()) + 1


def band(axes: Any, label: str) -> np.ndarray:
    """Return places and both edges of a filled band, (point, 3)."""
    (filled,) = (one for one in axes.collections if one.get_label() == label)
    vertices = pd.DataFrame(np.concatenate([p.vertices for p in filled.get_paths()]))
    edges = vertices.groupby(0)[1].agg(["min", "max"])
    return edges.reset_index().to_numpy()


def legend(axes: Any) -> list[str]:
    found = axes.get_legend() or axes.figure.legends[0]
    return [text.get_text() for text in found.get_texts()]


Y = waves(uneven_stamps(30))
SEEN, AHEAD = Y[:-8], Y[-8:]

DAYS = pd.date_range("2021-03-20", periods=24, freq="D", tz="Europe/Berlin")
INDEXES = {
    "datetimes": (uneven_stamps(), dates(uneven_stamps())),
    "days in Berlin": (DAYS, dates(DAYS)),
    "months": (
        pd.period_range("2020-01", periods=24, freq="M"),
        dates(pd.date_range("2020-01-01", periods=24, freq="MS")),
    ),
    "years long ago": (
        pd.period_range("1500", periods=24, freq="Y"),
        np.arange("1500", "1524", dtype="M8[Y]").astype("M8[D]").astype(float),
    ),
    "durations": (
        pd.to_timedelta(uneven_ticks(24, unit=30), unit="min"),
        uneven_ticks(24, unit=30) / 60,
    ),
    "integers": (pd.Index(uneven_ticks()), uneven_ticks().astype(float)),
    "range": (pd.RangeIndex(5, 77, 3), np.arange(5.0, 77.0, 3.0)),
}


@pytest.mark.parametrize("kind", INDEXES)
def test_everything_lies_at_its_stamp(kind: str) -> None:
    index, places = INDEXES[kind]
    y = waves(index)
    y_pred, y_test = y[-6:] + 1, y[-6:]
    given = [y[:-6], y_pred[::-1], intervals(y_pred), y_test]
    before = [one.copy(deep=True) for one in given]
    axes = plot_forecast(*given[:3], y_test=given[3])
    axes.figure.canvas.draw()  # the ticks as well
    for label, values in (("observed", y[:-6]), ("held out", y_test)):
        drawn = points(axes, label)
        expected = places[: len(values)] if label == "observed" else places[-6:]
        np.testing.assert_allclose(drawn[:, 0], expected, rtol=1e-12, atol=1e-9)
        np.testing.assert_array_equal(drawn[:, 1], values)
    np.testing.assert_array_equal(points(axes, "forecast")[:, 1], y_pred)
    expected = np.stack([places[-6:], y_pred - 0.9, y_pred + 1.8], axis=1)
    np.testing.assert_allclose(band(axes, "90 % interval"), expected, atol=1e-9)
    end = [one for one in axes.lines if one.get_label().startswith("_")]
    assert [one.get_xdata()[0] for one in end] == pytest.approx([places[-7]])
    for one, other in zip(given, before, strict=True):  # input is left as it is
        assert one.equals(other)
        assert one.index.equals(other.index)


@pytest.mark.parametrize("zone", [None, "Asia/Tokyo"])
def test_ticks_show_the_time_of_y_whatever_the_zone_of_matplotlib(zone: Any) -> None:
    noon = pd.date_range("2021-07-01 12:00", periods=3, freq="h", tz=zone)
    with plt.rc_context({"timezone": "America/New_York"}):
        formatter = plot_forecast(waves(noon)).xaxis.get_major_formatter()
        place = dates(noon)[0]
        assert formatter.format_ticks([place, place + 0.1])[0] == "12:00"


def test_durations_keep_the_unit_of_the_axes() -> None:
    axes = plot_forecast(waves(pd.to_timedelta(np.arange(24), unit="h")))
    assert axes.xaxis.get_major_formatter()(12.0) == "12 h"
    days = waves(pd.to_timedelta(np.arange(24.0), unit="D"))
    plot_forecast(days, {"later": days}, ax=axes)
    np.testing.assert_allclose(points(axes, "later")[:, 0], 24 * np.arange(24))


def test_lines_and_bands_end_at_long_gaps_and_bridge_weekends() -> None:
    days = pd.bdate_range("2021-01-04", periods=60)
    assert n_parts(plot_forecast(waves(days)), "observed") == 1
    closed = days[(days < "2021-02-01") | (days > "2021-02-12")]
    axes = plot_forecast(waves(closed))
    assert n_parts(axes, "observed") == 2
    assert len(points(axes, "observed")) == len(closed)
    stamps = pd.Index([*range(10, 30), *range(100, 120)])
    y_pred = waves(stamps)
    axes = plot_forecast(waves(pd.RangeIndex(130)), y_pred, intervals(y_pred))
    ends = np.isnan(line(axes, "forecast").get_ydata())
    np.testing.assert_array_equal(np.flatnonzero(ends), [20])
    assert len(axes.collections[0].get_paths()) == 2


def test_missing_and_infinite_values_are_absent() -> None:
    y = pd.Series([1, 2, None, 4, 5], dtype="Int64", name="y")
    expected = [[0, 1], [1, 2], [3, 4], [4, 5]]
    np.testing.assert_array_equal(points(plot_forecast(y), "observed"), expected)
    y = waves(pd.date_range("2021-01-01", periods=24, freq="h"))
    y.iloc[[3, 11]] = np.nan, np.inf
    axes = plot_forecast(y)
    assert len(axes.lines) == 1  # no end is marked where nothing follows
    np.testing.assert_array_equal(
        points(axes, "observed")[:, 1], y.drop(y.index[[3, 11]])
    )
    assert n_parts(axes, "observed") == 1  # nor do they break the line
    both = channels().assign(b=np.nan)
    assert not plot_forecast(both)[1].lines


def test_numbers_of_dtype_object_are_drawn() -> None:
    y = waves(uneven_stamps()).round(3)
    decimals = y.map(lambda value: Decimal(str(value))).astype(object)
    found = line(plot_forecast(decimals), "observed")
    np.testing.assert_array_equal(found.get_ydata(), y)


def test_a_single_step_is_a_marker_and_a_bar() -> None:
    axes = plot_forecast(SEEN, AHEAD[:1], intervals(AHEAD[:1]))
    assert line(axes, "forecast").get_marker() == "o"
    assert line(axes, "forecast").get_markevery() == [0]
    (x,), value = dates(AHEAD.index[:1]), AHEAD.iloc[0]
    bars = axes.collections[-1].get_segments()
    np.testing.assert_allclose(bars, [[[x, value - 0.9], [x, value + 1.8]]])


@pytest.mark.parametrize("y_pred", [None, AHEAD])
def test_the_widest_band_is_the_lightest_and_lies_below(y_pred: Any) -> None:
    table = intervals(AHEAD, (0.5, 0.95, 0.8))
    axes = plot_forecast(SEEN, y_pred, table)
    labels = [one.get_label() for one in axes.collections]
    assert labels == ["95 % interval", "80 % interval", "50 % interval"]
    assert legend(axes) == ["observed", *["forecast"] * (y_pred is not None), *labels]
    for coverage in (0.5, 0.8, 0.95):
        edges = band(axes, f"{100 * coverage:g} % interval")[:, 1:]
        np.testing.assert_allclose(edges[:, 0], table["y", coverage, "lower"])
        np.testing.assert_allclose(edges[:, 1], table["y", coverage, "upper"])
    opacity = [one.get_facecolor()[0][3] for one in axes.collections]
    assert (np.diff(opacity) > 0.1).all()


def test_several_forecasts_differ_without_colour() -> None:
    several = {name: AHEAD + k for k, name in enumerate("abcdef")}
    bands = {name: intervals(one) for name, one in several.items()}
    axes = plot_forecast(SEEN, several, bands, y_test=AHEAD)
    lines = [line(axes, name) for name in several]
    assert len({str(one._unscaled_dash_pattern) for one in lines}) == 6
    assert len({one.get_marker() for one in lines}) == 6
    assert len({str(one.get_linestyle()) for one in axes.collections}) == 6
    for name, one in several.items():
        np.testing.assert_array_equal(points(axes, name)[:, 1], one)
        edges = band(axes, f"90 % interval, {name}")
        np.testing.assert_allclose(edges[:, 2], one + 1.8)
    one = plot_forecast(SEEN, {"a": AHEAD, "b": AHEAD}, {"b": intervals(AHEAD)})
    assert legend(one) == ["observed", "a", "b", "90 % interval, b"]


def test_channels_share_their_time_and_may_come_in_another_order() -> None:
    y = channels(uneven_stamps())
    y_pred = y[-6:][["b", "a"]] + 1
    axes = plot_forecast(y[:-6], y_pred, intervals(y_pred))
    assert axes.shape == (2,)
    assert axes[0].get_shared_x_axes().joined(*axes)
    assert legend(axes[0]) == ["observed", "forecast", "90 % interval"]
    for one, name in zip(axes, "ab", strict=True):
        assert one.get_ylabel() == name
        np.testing.assert_array_equal(points(one, "observed")[:, 1], y[:-6][name])
        np.testing.assert_array_equal(points(one, "forecast")[:, 1], y_pred[name])
        np.testing.assert_allclose(band(one, "90 % interval")[:, 1], y_pred[name] - 0.9)


def test_a_panel_has_an_axes_for_each_series() -> None:
    y = panel()
    late = y.groupby(level=0).cumcount(ascending=False) < 4
    y_pred = y[late].loc[["s2", "s0"]].iloc[::-1] + 1  # of some, in any order
    axes = plot_forecast(y[~late], y_pred, intervals(y_pred), y_test=y[late])
    assert axes.shape == (3,)
    assert not axes[0].get_shared_x_axes().joined(axes[0], axes[1])  # months apart
    for key, one in zip(["s0", "s1", "s2"], axes, strict=True):
        assert one.get_title() == key
        np.testing.assert_array_equal(
            points(one, "observed")[:, 1], y[~late].loc[key, "y"]
        )
        labels = [drawn.get_label() for drawn in one.lines]
        assert ("forecast" in labels) == (key != "s1")
        if key != "s1":
            expected = y_pred.loc[key, "y"].sort_index()
            np.testing.assert_array_equal(points(one, "forecast")[:, 1], expected)
            places = points(one, "forecast")[:, 0]
            np.testing.assert_allclose(places, dates(expected.index))
    parts = {key: waves(uneven_stamps(20, k)) for k, key in enumerate("ab")}
    same, time = plot_forecast(pd.concat(parts, names=["series", "when"]))
    assert same.get_shared_x_axes().joined(same, time)


@pytest.mark.parametrize("name", ["y_pred", "y_test", "y_interval"])
def test_a_series_without_history_is_drawn_after_the_others(name: str) -> None:
    y = panel()
    given = y.loc[["s0", "s2"]] if name != "y_interval" else intervals(y)
    axes = plot_forecast(y.loc[["s1", "s2"]], **{name: given})
    expected = ["s1", "s2", "s0"]
    assert [one.get_title() for one in axes] == expected
    assert legend(axes[0])[0] == "observed"
    new = axes[2]
    assert not [one for one in new.lines if one.get_label() == "observed"]
    if name == "y_interval":
        places = band(new, "90 % interval")[:, 0]
    else:
        label = {"y_pred": "forecast", "y_test": "held out"}[name]
        places = points(new, label)[:, 0]
        np.testing.assert_array_equal(points(new, label)[:, 1], y.loc["s0", "y"])
    np.testing.assert_allclose(places, dates(y.loc["s0"].index))
    new.figure.canvas.draw()


def test_names_are_those_of_the_data() -> None:
    axes = plot_forecast(waves(uneven_stamps().rename("when"), name="level"))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("when", "level")
    assert axes.get_legend() is None  # of a single thing
    nameless = plot_forecast(SEEN.rename(None), AHEAD.rename("other"), intervals(AHEAD))
    assert nameless.get_ylabel() == ""
    np.testing.assert_array_equal(points(nameless, "forecast")[:, 1], AHEAD)


@pytest.mark.parametrize("y", [SEEN, channels()])
def test_the_legend_of_a_new_figure_covers_no_data(y: Any) -> None:
    first = np.ravel(plot_forecast(y, y_test=y))[0]
    first.figure.canvas.draw()
    shown = first.get_legend() or first.figure.legends[0]
    boxes = [one.get_window_extent() for one in first.figure.axes]
    assert shown.get_window_extent().y1 < min(box.y0 for box in boxes)
    assert shown.get_window_extent().y0 >= 0


def test_given_axes_are_drawn_on_and_returned() -> None:
    _, axes = plt.subplots()
    assert plot_forecast(SEEN, AHEAD, ax=axes) is axes
    assert len(points(axes, "forecast")) == len(AHEAD)
    formatter = axes.xaxis.get_major_formatter()
    assert plot_forecast(SEEN, ax=axes) is axes
    assert axes.xaxis.get_major_formatter() is formatter  # ticks stay
    _, several = plt.subplots(1, 2)
    assert plot_forecast(channels(), ax=several) is several
    assert plot_forecast(channels(), ax=list(several)).tolist() == several.tolist()
    assert plt.get_fignums() == [1, 2]


BOUNDS = intervals(AHEAD, (0.5, 0.9))
MANY = pd.concat({k: SEEN[:6].to_frame() for k in range(13)}, names=["k", "t"])
REFUSED: list[tuple[str, Any]] = [
    ("y must be a Series or DataFrame .*got ndarray", [np.zeros(4)]),
    ("y_pred must be a Series or DataFrame .*got ndarray", [Y, AHEAD.to_numpy()]),
    (r"y_pred must .*Use plot_forecast\(y, forecaster\.predict\(fh\)\)", [Y, tiny()]),
    (r"y must be .*Use plot_forecast\(y, forecaster\.predict\(fh\)\)", [tiny(), Y]),
    (r"got intervals.*plot_forecast\(y, y_interval=", [Y, intervals(AHEAD)]),
    ("y must hold at least one row", [Y.iloc[:0]]),
    ("time index of y must hold", [Y.set_axis(list("ab" * 15))]),
    ("y must be numeric, not categorical; got column 'y'", [Y.astype(str)]),
    ("times of y must be strictly increasing", [Y[::-1]]),
    ("y_pred must hold finite times", [Y, AHEAD.rename({AHEAD.index[3]: pd.NaT})]),
    ("y_pred must be of the kind of y's", [Y, AHEAD.reset_index(drop=True)]),
    ("a time zone. Convert it: index", [Y, AHEAD.tz_localize("UTC")]),
    (r"y_pred and y must hold 'b'; got \['a'\]", [channels(), channels()[["a"]]]),
    (
        r"y and y_pred must hold 'c'; got \['a', 'b'\]",
        [channels(), channels().rename(columns={"b": "c"})],
    ),
    (r"index levels of y, \['series', 'when'\]; got \[None", [panel(), AHEAD]),
    ("axes are drawn, .*; got 13", [MANY[:6], MANY]),
    ("what predict_interval returns.*a Series", [Y, AHEAD, AHEAD]),
    ("what predict_interval returns.*a DataF", [Y, AHEAD, BOUNDS.iloc[:, [0, 3]]]),
    (r"with \[\('y', '0.5'", [Y, AHEAD, BOUNDS.rename(columns=str, level=1)]),
    (r"names, \['a', 'b'\]; got a Da", [Y, {"a": AHEAD, "b": AHEAD}, BOUNDS]),
    (r"have intervals must hold 'b'; got \['a'\]", [Y, {"a": AHEAD}, {"b": BOUNDS}]),
    ("1 to 6 lines.*; got 7", [Y, dict.fromkeys("abcdefg", AHEAD)]),
    ("at most 12 axes are drawn, one for each .*; got 13", [MANY]),
]


@pytest.mark.parametrize(("message", "arguments"), REFUSED)
def test_what_does_not_fit_is_refused(message: str, arguments: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        plot_forecast(*arguments)
    assert not plt.get_fignums()  # no empty figure is left


def test_axes_on_which_pandas_counts_periods_are_refused() -> None:
    y = waves(pd.date_range("2021-01-01", periods=20, freq="D"))
    with pytest.raises(ValueError, match="on which pandas has drawn periods"):
        plot_forecast(y, ax=y.plot())
    with pytest.raises(TypeError, match=r"ax must be a matplotlib Axes .*got str"):
        plot_forecast(y, ax="axes")


def test_without_matplotlib_the_message_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        plot_forecast(Y)
