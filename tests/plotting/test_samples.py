"""Sample paths are drawn as they are, and their band is that of their quantiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.collections import LineCollection

from sklode.plotting import plot_samples
from tests.plotting.drawn import band, dates, legend, points
from tests.series import channels, panel, tiny, uneven_stamps, waves


def segments(axes: Any) -> list[np.ndarray]:
    """Return the paths drawn on axes."""
    (drawn,) = (one for one in axes.collections if isinstance(one, LineCollection))
    return [np.asarray(one) for one in drawn.get_segments()]


def test_each_path_is_a_thin_line_with_the_median_and_the_quantiles() -> None:
    y = waves(uneven_stamps(30))
    samples = tiny().fit(y).sample(fh=range(1, 9), n_samples=40)
    axes = plot_samples(samples, y, coverage=0.8)
    drawn = segments(axes)
    assert len(drawn) == 40
    table = samples["y"].unstack(0)
    for k, path in enumerate(drawn):
        np.testing.assert_allclose(path[:, 0], dates(table.index))
        np.testing.assert_array_equal(path[:, 1], table[k])
    np.testing.assert_allclose(points(axes, "median")[:, 1], table.median(axis=1))
    edges = band(axes, "80 % of 40 paths")
    for side, level in (("lower", 0.1), ("upper", 0.9)):
        np.testing.assert_allclose(edges[side][:, 1], table.quantile(level, axis=1))
    np.testing.assert_array_equal(points(axes, "observed")[:, 1], y)
    assert legend(axes) == [
        *("median", "observed", "40 sample paths", "80 % of 40 paths")
    ]


def test_at_most_max_paths_are_drawn_but_all_count() -> None:
    y = waves(uneven_stamps(30))
    samples = tiny().fit(y).sample(fh=range(1, 9), n_samples=40)
    axes = plot_samples(samples, max_paths=7)
    assert len(segments(axes)) == 7
    assert legend(axes) == ["median", "7 sample paths", "90 % of 40 paths"]
    expected = samples["y"].unstack(0).median(axis=1)
    np.testing.assert_allclose(points(axes, "median")[:, 1], expected)


def test_without_coverage_there_is_no_band() -> None:
    y = waves(uneven_stamps(30))
    axes = plot_samples(tiny().fit(y).sample(fh=[1, 2, 3]), y, coverage=None)
    assert len(axes.collections) == 1


def test_new_series_are_drawn_without_any_observation() -> None:
    forecaster = tiny().fit(channels(uneven_stamps()))
    index = pd.date_range("2030-01-01", periods=12, freq="h", name="when")
    samples = forecaster.sample_prior(index, 5)
    axes = plot_samples(samples)
    assert axes.shape == (2,)
    for name, one in zip("ab", axes, strict=True):
        paths = np.stack([path[:, 1] for path in segments(one)])
        expected = samples[name].unstack().to_numpy()
        np.testing.assert_array_equal(paths, expected)
        assert one.get_ylabel() == name
    assert axes[-1].get_xlabel() == "when"


def test_paths_of_a_panel_are_drawn_series_by_series() -> None:
    y = panel()
    samples = tiny().fit(y).sample(fh=[1, 2, 3], n_samples=6)
    axes = plot_samples(samples, y)
    for key, one in zip(["s0", "s1", "s2"], axes, strict=True):
        paths = np.stack([path[:, 1] for path in segments(one)])
        mine = samples.xs(key, level="series")["y"].unstack("sample").T
        np.testing.assert_array_equal(paths, mine)
        assert one.get_title() == key


def test_the_end_of_the_observations_is_marked_where_there_are_any() -> None:
    y = waves(uneven_stamps(30))
    samples = tiny().fit(y).sample(fh=[1, 2, 3], n_samples=5)
    unnamed = [
        [one for one in axes.lines if str(one.get_label()).startswith("_")]
        for axes in (plot_samples(samples, y), plot_samples(samples))
    ]
    (end,), none = unnamed
    np.testing.assert_allclose(np.asarray(end.get_xdata(), float), dates(y.index)[-1])
    assert not none


def test_titles_labels_and_the_most_panels_are_the_callers() -> None:
    y = panel()
    samples = tiny().fit(y).sample(fh=[1, 2, 3], n_samples=2)
    axes = plot_samples(samples, y, title="Paths", x_label="hour", y_label="level")
    assert axes[0].figure.get_suptitle() == "Paths"
    assert "hour" in [one.get_xlabel() for one in axes]
    assert "level" in [one.get_ylabel() for one in axes]
    with pytest.raises(ValueError, match="at most max_panels=2 axes are drawn"):
        plot_samples(samples, y, max_panels=2)


def test_missing_parts_of_paths_are_absent() -> None:
    y = waves(uneven_stamps(30))
    samples = tiny().fit(y).sample(fh=range(1, 9), n_samples=5)
    samples.loc[(slice(None), samples.loc[0].index[2]), "y"] = np.nan
    axes = plot_samples(samples)
    assert len(points(axes, "median")) == 7


def test_values_that_are_not_finite_are_absent() -> None:
    y = waves(uneven_stamps(30))
    samples = tiny().fit(y).sample(fh=range(1, 9), n_samples=5)
    stamp = samples.loc[0].index[2]
    samples.loc[(0, stamp), "y"] = np.inf
    axes = plot_samples(samples)
    others = samples["y"].unstack(0).loc[stamp, 1:]
    middle = dict(points(axes, "median"))[dates(samples.loc[0].index)[2]]
    assert middle == pytest.approx(others.median())
    edges = band(axes, "90 % of 5 paths")["upper"]
    assert edges[2, 1] == pytest.approx(others.quantile(0.95))


def test_a_channel_of_which_nothing_is_known_has_an_empty_axes() -> None:
    samples = tiny().fit(channels()).sample(fh=[1, 2, 3], n_samples=5)
    samples["a"] = np.nan
    empty, full = plot_samples(samples)
    assert not [*empty.lines, *empty.collections]
    assert len(segments(full)) == 5


def test_a_series_that_was_not_forecast_shows_its_observations_alone() -> None:
    y = panel((20, 13))
    samples = tiny().fit(y).sample(fh=[1, 2, 3], n_samples=5)
    samples.loc[pd.IndexSlice[:, "s1"], :] = np.nan  # as where X lacks a series
    first, second = plot_samples(samples, y)
    assert len(segments(first)) == 5
    assert not second.collections
    np.testing.assert_array_equal(points(second, "observed")[:, 1], y.loc["s1", "y"])


def test_given_axes_are_drawn_on_and_input_is_left_alone() -> None:
    y = waves(uneven_stamps(30))
    samples = tiny().fit(y).sample(fh=range(1, 9), n_samples=5)
    before = samples.copy(deep=True)
    _, axes = plt.subplots()
    assert plot_samples(samples, y, ax=axes) is axes
    assert plt.get_fignums() == [1]
    pd.testing.assert_frame_equal(samples, before)


@pytest.mark.parametrize("coverage", [0, 1, 90, "0.9"])
def test_a_coverage_that_is_no_share_is_refused(coverage: Any) -> None:
    samples = tiny().fit(waves()).sample(fh=[1, 2])
    with pytest.raises(ValueError, match="coverage must be a share between 0 and 1"):
        plot_samples(samples, coverage=coverage)


@pytest.mark.parametrize("max_paths", [0, 2.5, True])
def test_a_number_of_paths_that_is_none_is_refused(max_paths: Any) -> None:
    samples = tiny().fit(waves()).sample(fh=[1, 2])
    with pytest.raises(ValueError, match="max_paths must be a whole number of at lea"):
        plot_samples(samples, max_paths=max_paths)


def test_what_has_no_samples_is_refused() -> None:
    forecaster = tiny().fit(waves())
    message = r"samples must have the index \(sample, \*row of the forecast\); got"
    with pytest.raises(ValueError, match=message):
        plot_samples(forecaster.predict(fh=[1, 2]))
    with pytest.raises(ValueError, match=message):
        plot_samples(tiny().fit(panel()).predict(fh=[1, 2]))
    with pytest.raises(ValueError, match=message):
        plot_samples(pd.Series([0.5], pd.Index([0], name="sample")))
    with pytest.raises(ValueError, match="samples must hold at least one path"):
        plot_samples(forecaster.sample(fh=[1]).iloc[:0])


@pytest.mark.parametrize("y", [None, waves()])
def test_two_rows_of_a_path_at_a_stamp_are_refused(y: Any) -> None:
    samples = tiny().fit(waves()).sample(fh=[1, 2], n_samples=3)
    message = r"one row for each stamp; got 0, \d+ again at row 6\. Number"
    with pytest.raises(ValueError, match=message):
        plot_samples(pd.concat([samples, samples]), y)


def test_paths_of_other_channels_are_refused() -> None:
    samples = tiny().fit(waves()).sample(fh=[1, 2])
    with pytest.raises(ValueError, match="samples must have the channels of y"):
        plot_samples(samples, channels())
