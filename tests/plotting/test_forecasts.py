"""What is drawn is what was given, where and when it was."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from sklode.plotting import plot_forecast
from tests.plotting.drawn import band, dates, legend, line, luminance, n_parts, points
from tests.series import channels, panel, uneven_stamps, uneven_ticks, waves


def intervals(y_pred: Any, coverages: tuple[float, ...] = (0.5, 0.9)) -> pd.DataFrame:
    """Return intervals around a forecast in the layout of predict_interval."""
    frame = y_pred.to_frame() if isinstance(y_pred, pd.Series) else y_pred
    parts = {}
    for name in frame.columns:
        for coverage in coverages:
            parts[name, coverage, "lower"] = frame[name] - coverage
            parts[name, coverage, "upper"] = frame[name] + 2 * coverage
    return pd.DataFrame(parts)


def one_split(n: int = 30) -> tuple[pd.Series, pd.Series]:
    y = waves(uneven_stamps(n))
    return y[:-8], y[-8:]


INDEXES: dict[str, tuple[pd.Index, np.ndarray]] = {
    "datetimes": (uneven_stamps(), dates(uneven_stamps())),
    "days in Berlin": (
        pd.date_range("2021-03-20", periods=24, freq="D", tz="Europe/Berlin"),
        dates(pd.date_range("2021-03-20", periods=24, freq="D", tz="Europe/Berlin")),
    ),
    "months": (
        pd.period_range("2020-01", periods=24, freq="M"),
        dates(pd.date_range("2020-01-01", periods=24, freq="MS")),
    ),
    "hours as periods": (
        pd.period_range("2020-01-01 05:00", periods=24, freq="h"),
        dates(pd.date_range("2020-01-01 05:00", periods=24, freq="h")),
    ),
    "durations": (
        pd.to_timedelta(uneven_ticks(24, unit=30), unit="min"),
        uneven_ticks(24, unit=30) / 60,
    ),
    "integers": (pd.Index(uneven_ticks()), uneven_ticks().astype(float)),
    "range": (pd.RangeIndex(5, 77, 3), np.arange(5.0, 77.0, 3.0)),
    "floats": (pd.Index(uneven_ticks() / 7), uneven_ticks() / 7),
}


@pytest.mark.parametrize("kind", INDEXES)
def test_everything_lies_at_its_stamp(kind: str) -> None:
    index, expected = INDEXES[kind]
    y = waves(index)
    y_pred, y_test = y[-6:] + 1, y[-6:]
    axes = plot_forecast(y[:-6], y_pred, intervals(y_pred), y_test=y_test)
    assert axes.figure.canvas is not None
    axes.figure.canvas.draw()  # the ticks as well
    for label, values, places in (
        ("observed", y[:-6], expected[:-6]),
        ("held out", y_test, expected[-6:]),
        ("forecast", y_pred, expected[-6:]),
    ):
        drawn = points(axes, label)
        np.testing.assert_allclose(drawn[:, 0], places, rtol=1e-12, atol=1e-9)
        np.testing.assert_array_equal(drawn[:, 1], values)
    edges = band(axes, "90 % interval")
    np.testing.assert_allclose(edges["lower"][:, 0], expected[-6:], atol=1e-9)


def test_periods_before_any_datetime_are_drawn() -> None:
    axes = plot_forecast(waves(pd.period_range("1500", periods=6, freq="Y")))
    drawn = np.asarray(axes.lines[0].get_xdata(), dtype=float)
    np.testing.assert_array_equal(np.diff(drawn), [365, 365, 365, 365, 366])


def test_ticks_show_the_time_of_the_zone_that_y_is_in() -> None:
    noon = pd.date_range("2021-07-01 12:00", periods=3, freq="h", tz="Asia/Tokyo")
    axes = plot_forecast(waves(noon))
    place = dates(noon)[0]
    assert axes.xaxis.get_major_formatter().format_ticks([place, place + 0.1])[0] == (
        "12:00"
    )


def test_ticks_without_a_zone_are_the_stamps_whatever_the_zone_of_matplotlib() -> None:
    noon = pd.date_range("2021-07-01 12:00", periods=3, freq="h")
    with plt.rc_context({"timezone": "Asia/Tokyo"}):
        axes = plot_forecast(waves(noon))
        formatter = axes.xaxis.get_major_formatter()
        place = dates(noon)[0]
        assert formatter.format_ticks([place, place + 0.1])[0] == "12:00"


@pytest.mark.parametrize("hours", [12, 24, 36, 60, 96, 24 * 365, 24 * 365 * 9])
def test_dates_below_small_axes_do_not_touch(hours: int) -> None:
    stamps = pd.Timestamp("2026-01-01") + pd.to_timedelta(np.linspace(0, hours, 9), "h")
    series = pd.DataFrame({"y": np.arange(9.0)}, stamps)
    axes = plot_forecast(pd.concat({key: series for key in "abcd"}, names=["key", "t"]))
    figure = axes[0].figure
    figure.canvas.draw()
    boxes = [
        label.get_window_extent()
        for label in axes[-1].get_xticklabels()
        if label.get_text()
    ]
    assert len(boxes) >= 2
    gaps = [right.x0 - left.x1 for left, right in itertools.pairwise(boxes)]
    assert min(gaps) > 0.1 * figure.dpi  # inches


def test_parts_of_a_figure_have_as_many_dates_as_their_width_takes() -> None:
    figure = plt.figure(figsize=(12, 3))
    y = pd.Series(0.0, pd.date_range("2026-01-01", periods=8, freq="h"))
    parts: Any = figure.subfigures(1, 2, width_ratios=[3, 1])
    wide, narrow = (plot_forecast(y, ax=one.subplots()) for one in parts)
    figure.canvas.draw()
    assert len(wide.get_xticks()) > len(narrow.get_xticks()) >= 2


def test_durations_have_their_unit_on_the_ticks() -> None:
    axes = plot_forecast(waves(pd.to_timedelta(np.arange(24), unit="h")))
    assert axes.xaxis.get_major_formatter()(12.0) == "12 h"
    seconds = plot_forecast(waves(pd.to_timedelta(np.arange(24), unit="s")))
    assert seconds.xaxis.get_major_formatter()(12.0) == "12 s"


def test_what_is_added_to_an_axes_of_durations_keeps_its_unit() -> None:
    axes = plot_forecast(waves(pd.to_timedelta(np.arange(24), unit="h")))
    days = pd.to_timedelta(np.arange(24.0), unit="D")
    plot_forecast(waves(days), labels=["later"], ax=axes)
    np.testing.assert_allclose(points(axes, "later")[:, 0], 24 * np.arange(24))


def test_axes_that_already_show_dates_keep_their_ticks() -> None:
    y = waves(uneven_stamps())
    _, axes = plt.subplots()
    axes.plot(y.index.to_numpy(), y)
    formatter = axes.xaxis.get_major_formatter()
    plot_forecast(y, ax=axes)
    assert axes.xaxis.get_major_formatter() is formatter


def test_missing_values_are_absent() -> None:
    y = waves(pd.date_range("2021-01-01", periods=24, freq="h"))
    y.iloc[[3, 4, 11]] = np.nan
    axes = plot_forecast(y)
    drawn = points(axes, "observed")
    np.testing.assert_array_equal(drawn[:, 1], y.dropna())
    np.testing.assert_allclose(drawn[:, 0], dates(y.dropna().index))
    x = np.asarray(line(axes, "observed").get_xdata())
    assert len(x) == len(drawn)  # nor do they break the line


def test_a_line_ends_at_a_long_gap_and_bridges_weekends() -> None:
    days = pd.bdate_range("2021-01-04", periods=60)
    assert n_parts(plot_forecast(waves(days)), "observed") == 1
    closed = days[(days < "2021-02-01") | (days > "2021-02-12")]
    axes = plot_forecast(waves(closed))
    assert n_parts(axes, "observed") == 2
    x, values = (np.asarray(a, dtype=float) for a in line(axes, "observed").get_data())
    (gap,) = np.flatnonzero(np.isnan(values))
    assert x[gap - 1] == dates(closed[closed < "2021-02-01"])[-1]
    assert x[gap + 1] == dates(closed[closed > "2021-02-12"])[0]


def test_gaps_of_random_length_hardly_break_a_line() -> None:
    gaps = np.random.default_rng(0).exponential(1.0, 300)
    axes = plot_forecast(waves(pd.Index(np.cumsum(gaps))))
    assert n_parts(axes, "observed") <= 2


def test_a_forecast_of_two_gaps_is_two_lines_with_two_bands() -> None:
    stamps = pd.Index([*range(10, 30), *range(100, 120)])
    y, y_pred = waves(pd.RangeIndex(130)), waves(stamps)
    axes = plot_forecast(y.drop(stamps), y_pred, intervals(y_pred, (0.9,)))
    assert n_parts(axes, "forecast") == 2
    (filled,) = axes.collections
    assert len(filled.get_paths()) == 2
    np.testing.assert_array_equal(
        band(axes, "90 % interval")["upper"][:, 0], stamps.to_numpy()
    )


def test_a_single_step_is_a_marker_and_a_bar() -> None:
    y, y_pred = one_split()
    axes = plot_forecast(y, y_pred[:1], intervals(y_pred[:1], (0.9,)))
    drawn = line(axes, "forecast")
    assert drawn.get_marker() == "o"
    assert drawn.get_markevery() == [0]
    bars = axes.collections[-1].get_segments()
    (x,) = dates(y_pred.index[:1])
    value = y_pred.iloc[0]
    np.testing.assert_allclose(bars, [[[x, value - 0.9], [x, value + 1.8]]])


def test_bands_have_the_bounds_of_the_intervals_and_the_widest_lies_below() -> None:
    y, y_pred = one_split()
    table = intervals(y_pred, (0.5, 0.95, 0.8))
    axes = plot_forecast(y, y_pred, table)
    labels = [one.get_label() for one in axes.collections]
    assert labels == ["95 % interval", "80 % interval", "50 % interval"]
    for coverage in (0.5, 0.8, 0.95):
        edges = band(axes, f"{100 * coverage:g} % interval")
        for side in ("lower", "upper"):
            expected = table["y", coverage, side]
            np.testing.assert_allclose(edges[side][:, 1], expected)
    lightness = [luminance(one.get_facecolor()[0][:3]) for one in axes.collections]
    assert (np.diff(lightness) < -0.05).all()


def test_intervals_are_drawn_without_a_forecast() -> None:
    y, y_pred = one_split()
    axes = plot_forecast(y, y_interval=intervals(y_pred, (0.8,)))
    assert legend(axes) == ["observed", "80 % interval"]
    np.testing.assert_allclose(band(axes, "80 % interval")["lower"][:, 1], y_pred - 0.8)


def test_several_forecasts_differ_without_colour() -> None:
    y, y_pred = one_split()
    several = {name: y_pred + k for k, name in enumerate("abcdef")}
    bands = {name: intervals(one, (0.9,)) for name, one in several.items()}
    axes = plot_forecast(y, several, bands)
    lines = [line(axes, name) for name in several]
    assert len({str(vars(one)["_unscaled_dash_pattern"]) for one in lines}) == 6
    assert len({one.get_marker() for one in lines}) == 6
    edges = {str(one.get_linestyle()) for one in axes.collections}
    assert len(edges) == 6
    lightness = [luminance(one.get_color()) for one in lines]
    assert (np.abs(np.diff(lightness)) > 0.05).all()
    for name, one in several.items():
        np.testing.assert_array_equal(points(axes, name)[:, 1], one)
        edge = band(axes, f"90 % interval, {name}")["upper"]
        np.testing.assert_allclose(edge[:, 1], one + 1.8)


def test_the_only_band_of_several_forecasts_has_the_name_of_its_own() -> None:
    y, y_pred = one_split()
    bands = {"b": intervals(y_pred, (0.9,))}
    axes = plot_forecast(y, {"a": y_pred, "b": y_pred}, bands)
    assert legend(axes) == ["observed", "a", "b", "90 % interval, b"]


def test_truth_is_told_from_observations_without_colour() -> None:
    y, y_test = one_split()
    axes = plot_forecast(y, y_test=y_test)
    seen, held_out = line(axes, "observed"), line(axes, "held out")
    assert luminance(held_out.get_markerfacecolor()) > 0.99
    assert luminance(seen.get_markerfacecolor()) < 0.6
    assert held_out.get_linestyle() == "None"


def test_the_end_of_the_observations_is_marked_if_anything_follows() -> None:
    y, y_pred = one_split()

    def marked(axes: Any) -> list[float]:
        upright = [one for one in axes.lines if one.get_label()[0] == "_"]
        return [float(np.asarray(one.get_xdata())[0]) for one in upright]

    (end,) = dates(y.index[-1:])
    assert marked(plot_forecast(y, y_pred)) == [end]
    assert marked(plot_forecast(y, y_test=y_pred)) == [end]
    assert marked(plot_forecast(y, y_interval=intervals(y_pred))) == [end]
    assert marked(plot_forecast(y, y[3:7] + 1)) == []


def test_a_series_of_channels_has_an_axes_for_each_over_one_time() -> None:
    y = channels(uneven_stamps())
    y.iloc[2:9, 0] = np.nan
    y_pred = y[-6:][["b", "a"]] + 1  # in another order
    axes = plot_forecast(y[:-6], y_pred, intervals(y_pred, (0.9,)))
    assert axes.shape == (2,)
    for one, name in zip(axes, "ab", strict=True):
        assert one.get_ylabel() == name
        known = y[:-6][name].dropna()
        np.testing.assert_array_equal(points(one, "observed")[:, 1], known)
        np.testing.assert_allclose(points(one, "observed")[:, 0], dates(known.index))
        np.testing.assert_array_equal(points(one, "forecast")[:, 1], y_pred[name])
        edge = band(one, "90 % interval")["lower"]
        np.testing.assert_allclose(edge[:, 1], y_pred[name] - 0.9)
    assert axes[0].get_shared_x_axes().joined(*axes)
    assert legend(axes[0]) == ["observed", "forecast", "90 % interval"]


def test_a_panel_has_an_axes_for_each_series() -> None:
    y = panel()
    late = y.groupby(level=0).cumcount(ascending=False) < 4
    y_pred = y[late].iloc[::-1] + 1  # in any order
    axes = plot_forecast(y[~late], y_pred, intervals(y_pred), y_test=y[late])
    assert axes.shape == (3,)
    for key, one in zip(["s0", "s1", "s2"], axes, strict=True):
        assert one.get_title() == key
        seen, after = y[~late].loc[key, "y"], y_pred.loc[key, "y"].sort_index()
        np.testing.assert_array_equal(points(one, "observed")[:, 1], seen)
        np.testing.assert_allclose(points(one, "held out")[:, 1], after - 1)
        drawn = points(one, "forecast")
        np.testing.assert_array_equal(drawn[:, 1], after)
        np.testing.assert_allclose(drawn[:, 0], dates(after.index))
    assert not axes[0].get_shared_x_axes().joined(axes[0], axes[1])  # months apart


def test_series_of_one_time_share_their_axis() -> None:
    parts = {key: waves(uneven_stamps(20, k)) for k, key in enumerate("ab")}
    y = pd.concat(parts, names=["series", "when"]).to_frame()
    one, other = plot_forecast(y)
    assert one.get_shared_x_axes().joined(one, other)


def test_a_panel_of_channels_is_a_table_of_axes() -> None:
    y = pd.concat({("n", k): channels() for k in (1, 2, 3)}, names=["where", "k", "t"])
    axes = plot_forecast(y)
    assert axes.shape == (3, 2)
    assert [one.get_title() for one in axes[:, 0]] == ["n, 1", "n, 2", "n, 3"]
    assert [one.get_ylabel() for one in axes[1]] == ["a", "b"]
    for k, row in zip((1, 2, 3), axes, strict=True):
        for name, one in zip("ab", row, strict=True):
            drawn = points(one, "observed")[:, 1]
            np.testing.assert_array_equal(drawn, y.loc["n", k][name])


def test_a_series_of_which_nothing_is_known_has_an_empty_axes() -> None:
    y = channels()
    y["b"] = np.nan
    first, second = plot_forecast(y)
    assert len(points(first, "observed")) == len(y)
    assert len(points(second, "observed")) == 0


def test_a_panel_may_have_forecasts_of_some_series_only() -> None:
    y = panel()
    axes = plot_forecast(y, y.loc[["s1"]])
    drawn = [any(a.get_label() == "forecast" for a in one.lines) for one in axes]
    assert drawn == [False, True, False]


def test_names_are_those_given() -> None:
    y, y_pred = one_split()
    labels = ["past", "guess", "truth"]
    axes = plot_forecast(
        *(y, y_pred),
        y_test=y_pred,
        labels=labels,
        title="Waves",
        x_label="when",
        y_label="height",
    )
    assert legend(axes) == ["past", "truth", "guess"]
    assert axes.get_title() == "Waves"
    assert axes.get_xlabel() == "when"
    assert axes.get_ylabel() == "height"


def test_names_are_by_default_those_of_the_data() -> None:
    axes = plot_forecast(waves(uneven_stamps().rename("when"), name="level"))
    assert axes.get_xlabel() == "when"
    assert axes.get_ylabel() == "level"
    assert axes.get_legend() is None  # of a single thing
    nameless = plot_forecast(waves().rename(None))
    assert nameless.get_ylabel() == ""


def test_the_title_of_several_axes_stands_over_all() -> None:
    axes = plot_forecast(channels(), title="Both")
    assert axes[0].figure.get_suptitle() == "Both"


def test_a_nameless_series_has_the_forecast_of_any_name() -> None:
    y, y_pred = one_split()
    y_pred = y_pred.rename("other")
    axes = plot_forecast(y.rename(None), y_pred, intervals(y_pred))
    np.testing.assert_array_equal(points(axes, "forecast")[:, 1], y_pred)


def test_given_axes_are_drawn_on_and_returned() -> None:
    y, y_pred = one_split()
    figure, axes = plt.subplots()
    assert plot_forecast(y, y_pred, ax=axes) is axes
    assert len(points(axes, "forecast")) == len(y_pred)
    _, several = plt.subplots(1, 2)
    assert plot_forecast(channels(), ax=several) is several
    assert [one.get_ylabel() for one in several] == ["a", "b"]
    listed = plot_forecast(channels(), ax=list(several))
    assert listed.tolist() == several.tolist()
    assert plt.get_fignums() == [1, 2]
    assert figure.axes == [axes]


def test_input_is_left_as_it_is() -> None:
    y, y_pred = one_split()
    y.iloc[4] = np.nan
    table = intervals(y_pred)
    given = [y, y_pred[::-1], table, y_pred]
    before = [one.copy(deep=True) for one in given]
    plot_forecast(*given[:3], y_test=given[3])
    for one, other in zip(given, before, strict=True):
        assert one.equals(other)
        assert one.index.equals(other.index)


def test_numbers_of_any_dtype_are_drawn() -> None:
    y = pd.Series([1, 2, None, 4], dtype="Int64", name="y")
    np.testing.assert_array_equal(
        points(plot_forecast(y), "observed"), [[0, 1], [1, 2], [3, 4]]
    )
