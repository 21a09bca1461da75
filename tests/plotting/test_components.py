"""The parts of a level are drawn as they are, and add up to the observations."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from sktime.exceptions import NotFittedError

from sklode import StructuralForecaster
from sklode.plotting import plot_components
from tests.plotting.test_series import dates, legend, line, points
from tests.series import channels, panel, tiny, uneven_stamps

DAYS = pd.date_range("2021-03-01", periods=84, freq="D", name="day")
WEEK = pd.Series(
    20 + 3.0 * (DAYS.dayofweek >= 5) + np.random.default_rng(0).normal(0, 0.2, 84),
    DAYS,
    name="sold",
)


def structural(**settings: Any) -> Any:
    return StructuralForecaster(**{"logarithm": False, "random_state": 0, **settings})


@pytest.fixture(scope="module")
def weekly() -> Any:
    return structural(seasons=["7D"]).fit(WEEK)


def at(axes: Any, label: str, stamps: pd.Index) -> np.ndarray:
    """Return what is drawn at some stamps."""
    drawn = pd.Series(dict(points(axes, label)))
    return drawn[dates(stamps)].to_numpy()


def named(axes: Any) -> dict[str, Any]:
    return {one.get_ylabel(): one for one in axes}


def test_parts_are_the_levels_and_add_up_to_the_observations(weekly: Any) -> None:
    axes = named(plot_components(weekly))
    assert list(axes) == ["trend", "season of 7 d", "deviation", "remainder"]
    expected = weekly._parts(DAYS, None)["sold"]
    total = at(axes["remainder"], "observed", DAYS)
    for name in ("trend", "season of 7 d", "deviation"):
        drawn = at(axes[name], "level", DAYS)
        np.testing.assert_allclose(drawn, expected[name])
        total = total + drawn
    np.testing.assert_allclose(total, WEEK)
    np.testing.assert_array_equal(at(axes["trend"], "observed", DAYS), WEEK)
    assert legend(axes["trend"]) == ["level", "observed"]


def test_a_forecast_goes_on_where_the_history_ends(weekly: Any) -> None:
    axes = named(plot_components(weekly, fh=[1, 2, 7]))
    ahead = DAYS[-1] + pd.to_timedelta([0, 1, 2, 7], unit="D")
    expected = weekly._parts(ahead, None)["sold"]
    for name in ("trend", "season of 7 d", "deviation"):
        drawn = points(axes[name], "forecast")
        assert drawn[0, 0] == dates(DAYS)[-1] == points(axes[name], "level")[-1, 0]
        np.testing.assert_allclose(at(axes[name], "forecast", ahead), expected[name])
    with pytest.raises(ValueError, match="got none, here or in fit"):
        weekly.predict()  # the horizon is not that of the next call


def test_of_a_logarithm_parts_are_factors() -> None:
    grown = np.exp(WEEK / 10)
    forecaster = structural(seasons=["7D"], logarithm=True).fit(grown)
    axes = plot_components(forecaster)
    names = ["trend", "season of 7 d\n(factor)", "deviation\n(factor)"]
    assert list(named(axes)) == [*names, "remainder\n(factor)"]
    total = at(axes[-1], "observed", DAYS)
    for one in axes[:-1]:
        total = total * at(one, "level", DAYS)
    np.testing.assert_allclose(total, grown)
    assert 0.5 < points(axes[0], "level")[:, 1].mean() / grown.mean() < 2


def test_x_has_an_axes_where_it_is_used_and_is_asked_for_ahead() -> None:
    on = np.random.default_rng(1).standard_normal(len(DAYS) + 3)
    days = DAYS.union(DAYS[-3:] + pd.Timedelta(days=3))
    X = pd.DataFrame({"u": on}, days)
    forecaster = structural(seasons=None).fit(WEEK + 5 * on[:-3], X=X[:-3])
    axes = named(plot_components(forecaster, [1, 2, 3], X=X))
    effect = points(axes["X"], "level")  # at the stamps whose X is known
    np.testing.assert_array_equal(effect[:, 0], dates(DAYS))
    assert np.corrcoef(effect[:, 1], on[:-3])[0, 1] > 0.99
    with pytest.warns(UserWarning, match="'u' at 3 of 3 rows, the first 2"):
        plot_components(forecaster, [1, 2, 3])


def test_the_effect_of_a_category_is_a_point_with_a_bar_for_each_level() -> None:
    kind = np.random.default_rng(1).choice(["a", "b", "c"], len(DAYS))
    adds = pd.Series(kind, DAYS).map({"a": 0.0, "b": 4.0, "c": 8.0}).astype(float)
    X = pd.DataFrame({"kind": kind}, DAYS)
    forecaster = structural(seasons=None).fit(WEEK + adds, X)
    axes = plot_components(forecaster)[-1]
    assert axes.get_xlabel() == "kind"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["a", "b", "c"]
    effect = points(axes, "effect")
    known = effect[np.isfinite(effect[:, 1])]
    np.testing.assert_array_equal(known[:, 0], [0, 1, 2])
    np.testing.assert_allclose(np.diff(known[:, 1]), 4, atol=1)


def test_counts_with_zeros_under_a_logarithm_are_drawn() -> None:
    rng = np.random.default_rng(1)
    signal = np.exp(2 + 2 * np.sin(2 * np.pi * np.arange(150) / 7))
    sold = rng.poisson(signal * np.exp(rng.normal(0, 0.5, 150)))
    y = pd.Series(sold, pd.date_range("2024", periods=150), name="sold")
    forecaster = StructuralForecaster().fit(y)
    assert (y == 0).any()
    assert forecaster.components_["logarithm"].all()
    axes = plot_components(forecaster)
    np.testing.assert_array_equal(points(axes[0], "observed")[:, 1], y)
    for one in axes:
        assert np.isfinite(one.get_ylim()).all()


def test_a_series_of_many_parts_has_an_axes_for_each() -> None:
    rng = np.random.default_rng(0)
    table = rng.standard_normal((len(DAYS), 10))
    X = pd.DataFrame(table, DAYS, [f"u{k}" for k in range(10)])
    forecaster = structural(seasons=["7D"]).fit(WEEK + 5 * table.sum(1), X)
    axes = plot_components(forecaster)
    assert axes.shape == (15,)
    assert [one.get_xlabel() for one in axes[5:]] == list(X)


def test_an_effect_that_builds_up_is_said_to_be_what_it_comes_to() -> None:
    rng = np.random.default_rng(0)
    u = pd.Series(rng.standard_normal(300)).ewm(halflife=3).mean().to_numpy()
    hours = pd.date_range("2024-01-01", periods=300, freq="h")
    late = pd.Series(u).ewm(halflife=6, adjust=False).mean().to_numpy()
    X = pd.DataFrame({"dose": u, "soon": rng.standard_normal(300)}, hours)
    y = pd.Series(50 * late + X["soon"] + 0.1 * rng.standard_normal(300), hours)
    axes = plot_components(structural(seasons=None).fit(y, X=X))
    dose = next(one for one in axes if one.get_xlabel().startswith("dose"))
    soon = axes[-1]
    assert re.fullmatch(r"dose, if it stays so \(memory .* h\)", dose.get_xlabel())
    assert soon.get_xlabel() == "soon"


@pytest.mark.slow
def test_series_and_channel_are_those_asked_for() -> None:
    y = panel()
    forecaster = structural(seasons=None).fit(y)
    for key, asked in (("s0", None), ("s1", "s1"), ("s2", ("s2",))):
        trend = plot_components(forecaster, [1, 2], series=asked)[0]
        own = y.loc[key, "y"]
        np.testing.assert_array_equal(at(trend, "observed", own.index), own)
    two = structural(seasons=None).fit(channels(uneven_stamps()))
    for name, asked in (("a", None), ("b", "b")):
        trend = plot_components(two, channel=asked)[0]
        drawn = points(trend, "observed")[:, 1]
        np.testing.assert_array_equal(drawn, channels(uneven_stamps())[name])
    with pytest.raises(ValueError, match=r"seen must hold \('s9',\)"):
        plot_components(forecaster, series="s9")
    with pytest.raises(ValueError, match="y in fit must hold 'c'"):
        plot_components(two, channel="c")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"series": "s0"}, "got one series, which has no key. Leave series out"),
        ({"fh": WEEK}, r"time stamps; got a Series.*fh=table\.index"),
        ({"X": WEEK.to_frame("x")}, r"got X without fh. Pass fh, for .*fh=X\.index"),
    ],
)
def test_what_is_asked_wrongly_is_refused(
    weekly: Any, arguments: Any, message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        plot_components(weekly, **arguments)
    assert len(plot_components(weekly, fh=WEEK.index)) == 4


def test_a_key_in_place_of_a_horizon_is_refused() -> None:
    y = pd.concat({key: WEEK.to_frame() for key in ("s0", "s1")})
    forecaster = structural(seasons=None).fit(y)
    with pytest.raises(TypeError, match=r"got the key 's1'\. Pass it as series='s1'"):
        plot_components(forecaster, "s1")
    assert plot_components(forecaster, series="s1") is not None


def test_absurd_observations_are_marked_at_the_edge() -> None:
    y = WEEK.copy()
    y.iloc[[20, -1]] = -999, 1e4
    trend, *_, remainder = plot_components(structural(seasons=["7D"]).fit(y), [1])
    for one in (trend, remainder):
        assert np.ptp(one.get_ylim()) < 100
        (low, high), seen = points(one, "far outside"), points(one, "observed")[:, 1]
        assert low.tolist() == [dates(DAYS)[20], seen.min()]
        assert high.tolist() == [dates(DAYS)[-1], seen.max()]
    assert len(points(trend, "observed")) == len(y) - 2


def test_a_part_that_hardly_varies_is_drawn_flat(weekly: Any) -> None:
    for one in plot_components(weekly):
        assert np.ptp(one.get_ylim()) >= 0.03 * np.ptp(WEEK)


def test_given_axes_are_drawn_on(weekly: Any) -> None:
    _, several = plt.subplots(4)
    assert plot_components(weekly, ax=several) is several
    assert line(several[0], "level") is not None
    with pytest.raises(ValueError, match="ax must hold 4 Axes"):
        plot_components(weekly, ax=several[:2])


def test_what_has_no_level_is_refused() -> None:
    with pytest.raises(NotFittedError, match="not been fitted"):
        plot_components(structural())
    with pytest.raises(TypeError, match=r"that has a structural model; got a Series"):
        plot_components(WEEK)


def test_the_level_that_a_network_stands_on_is_drawn() -> None:
    forecaster = tiny(model="hybrid", horizon=3).fit(WEEK)
    axes = named(plot_components(forecaster, [1, 2, 3]))
    assert "season of 7 d" in axes
    np.testing.assert_array_equal(at(axes["trend"], "observed", DAYS), WEEK)
    with pytest.raises(ValueError, match=r'need model="hybrid"; got model=.paper.'):
        plot_components(tiny(model="paper").fit(WEEK))
