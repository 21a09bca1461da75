"""Histories and gradient flows are drawn as they were recorded and measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from sklearn.exceptions import NotFittedError

from sklode import LatentODERNNForecaster
from sklode.diagnostics import gradient_flow
from sklode.plotting import plot_gradient_flow, plot_history
from tests.plotting.drawn import legend, line, points
from tests.series import tiny, waves


def fitted(**settings: Any) -> Any:
    return tiny(max_epochs=6, **settings).fit(waves())


def labels(axes: Any) -> list[str]:
    return [one.get_label() for one in axes.lines]


def test_each_epoch_is_drawn_as_it_was_recorded() -> None:
    forecaster = fitted(early_stopping=True)
    axes = plot_history(forecaster)
    assert axes.shape == (3,)
    shown = {
        "training loss": (axes[0], "loss"),
        "validation loss": (axes[0], "validation_loss"),
        "log-likelihood": (axes[1], "log_likelihood"),
        "KL divergence": (axes[1], "kl"),
        "gradient norm": (axes[2], "grad_norm"),
    }
    for label, (one, column) in shown.items():
        drawn = points(one, label)
        known = forecaster.history_[column].dropna()
        assert len(known)
        np.testing.assert_array_equal(drawn[:, 0], known.index)
        np.testing.assert_array_equal(drawn[:, 1], known)
    assert axes[2].get_yscale() == "log"
    assert [one.get_xlabel() for one in axes] == ["epoch"] * 3


def test_curves_that_share_an_axes_differ_without_colour() -> None:
    axes = plot_history(fitted(early_stopping=True))
    for pair in (axes[0].lines[:2], axes[1].lines[:2]):
        assert pair[0].get_linestyle() != pair[1].get_linestyle()
        assert pair[0].get_marker() != pair[1].get_marker()


def test_without_early_stopping_there_is_no_validation_loss() -> None:
    axes = plot_history(fitted())
    assert "validation loss" not in labels(axes[0])


def test_the_threshold_of_clipping_is_marked_where_it_is_known() -> None:
    axes = plot_history(fitted(clip_norm=2.5))
    drawn = line(axes[2], "clip_norm = 2.5")
    np.testing.assert_array_equal(drawn.get_ydata(), [2.5, 2.5])
    axes = plot_history(fitted(clip_norm=np.float32(0.5)))  # as of np.geomspace
    np.testing.assert_array_equal(line(axes[2], "clip_norm = 0.5").get_ydata(), 0.5)
    for unknown in (None, "auto"):
        axes = plot_history(fitted(clip_norm=unknown))
        assert not any("clip_norm" in label for label in labels(axes[2]))


def test_the_epoch_whose_weights_are_kept_is_marked() -> None:
    forecaster = fitted()
    forecaster.best_epoch_ = 4
    for one in plot_history(forecaster):
        np.testing.assert_array_equal(line(one, "best epoch, 4").get_xdata(), [4, 4])
        assert "best epoch, 4" in legend(one)


def test_epochs_that_were_restored_are_marked() -> None:
    history = fitted().history_
    history.loc[[3, 5], "restored_epoch"] = [2, 1]
    history.loc[3, "loss"] = np.nan
    axes = plot_history(history)
    for one in axes:
        marked = line(one, "diverged, restored")
        np.testing.assert_array_equal(marked.get_xdata(), [3, 5])
        assert not any("best" in label for label in labels(one))
    np.testing.assert_array_equal(
        points(axes[0], "training loss")[:, 0], [1, 2, 4, 5, 6]
    )


def test_epochs_are_whole_and_of_many_only_some_have_markers() -> None:
    history = fitted().history_
    for one in plot_history(history[:2]):
        ticks = one.get_xticks()
        np.testing.assert_array_equal(ticks, ticks.round())
    many = pd.concat([history] * 20, ignore_index=True)
    drawn = line(plot_history(many)[0], "training loss")
    assert drawn.get_markevery() == 3  # 40 of 120
    assert np.shape(drawn.get_xdata()) == (120,)


def test_gradients_that_are_all_zero_have_a_linear_axis() -> None:
    axes = plot_history(fitted().history_.assign(grad_norm=0.0))
    assert axes[2].get_yscale() == "linear"


def test_axes_say_what_they_show() -> None:
    axes = plot_history(fitted())
    assert [one.get_ylabel() for one in axes] == [
        "loss per observed value",
        "nats per observed value",
        "gradient norm before clipping",
    ]


def test_histories_are_drawn_on_given_axes() -> None:
    _, axes = plt.subplots(3)
    history = fitted().history_
    before = history.copy(deep=True)
    assert plot_history(history, ax=axes, title="Training") is axes
    assert plt.get_fignums() == [1]
    assert axes[0].figure.get_suptitle() == "Training"
    pd.testing.assert_frame_equal(history, before)


def test_what_has_no_history_is_refused() -> None:
    with pytest.raises(NotFittedError, match="plot_history needs a fitted forecaster"):
        plot_history(tiny())
    with pytest.raises(TypeError, match="plot_history is of a forecaster of this pack"):
        plot_history(waves())
    history = fitted().history_
    with pytest.raises(ValueError, match="got none called 'kl' among"):
        plot_history(history.drop(columns="kl"))
    with pytest.raises(ValueError, match="got one without an epoch"):
        plot_history(history[:0])
    with pytest.raises(
        ValueError, match="ax must hold 3 Axes, one for each part of th"
    ):
        plot_history(history, ax=plt.subplots()[1])


def test_the_flow_is_the_geometric_mean_over_series() -> None:
    forecaster = fitted()
    flow = gradient_flow(forecaster)
    axes = plot_gradient_flow(flow)
    finite = flow[np.isfinite(flow["log10_norm"])]
    names = {
        "h": r"$\|\partial h_1 / \partial h_k\|$",
        "c": r"$\|\partial h_1 / \partial C_k\|$",
    }
    for by, label in names.items():
        expected = finite[finite["by"] == by].groupby("visits")["log10_norm"].mean()
        drawn = points(axes, label)
        np.testing.assert_array_equal(drawn[:, 0], expected.index)
        np.testing.assert_allclose(drawn[:, 1], expected)
    assert legend(axes) == list(names.values())
    assert points(axes, names["c"])[0, 0] == 1  # h_1 does not depend on C_1
    thin = [one for one in axes.lines if one.get_linewidth() == 0.5]
    assert len(thin) == 2 * flow["series"].nunique()
    first = flow[(flow["series"] == 0) & (flow["by"] == "h")]
    np.testing.assert_array_equal(thin[0].get_ydata(), first["log10_norm"])


def test_the_flow_of_a_forecaster_is_that_of_what_it_has_seen() -> None:
    forecaster = fitted()
    one, other = (
        plot_gradient_flow(forecaster),
        plot_gradient_flow(gradient_flow(forecaster)),
    )
    for a, b in zip(one.lines, other.lines, strict=True):
        np.testing.assert_array_equal(a.get_xydata(), b.get_xydata())


def test_the_flow_is_drawn_against_time() -> None:
    forecaster = fitted(kind=LatentODERNNForecaster)
    flow = gradient_flow(forecaster)
    axes = plot_gradient_flow(flow, x="time")
    drawn = points(axes, r"$\|\partial h_1 / \partial h_k\|$")
    expected = flow.groupby("visits")["time"].mean()
    np.testing.assert_allclose(drawn[:, 0], expected)
    assert axes.get_xlabel() == "time between, in time units"


def test_several_flows_are_compared_by_their_larger_part() -> None:
    lstm, rnn = fitted(), fitted(kind=LatentODERNNForecaster)
    flow = gradient_flow(lstm)
    axes = plot_gradient_flow({"LSTM": flow, "RNN": rnn})
    assert legend(axes) == ["LSTM", "RNN"]
    larger = flow.groupby(["series", "visits"])["log10_norm"].max()
    expected = larger.groupby("visits").mean()
    np.testing.assert_allclose(points(axes, "LSTM")[:, 1], expected)
    styles = {one.get_linestyle() for one in (line(axes, "LSTM"), line(axes, "RNN"))}
    assert len(styles) == 2


def test_flows_are_drawn_on_given_axes() -> None:
    _, axes = plt.subplots()
    flow = gradient_flow(fitted())
    before = flow.copy(deep=True)
    assert plot_gradient_flow(flow, ax=axes, title="Flow") is axes
    assert axes.get_title() == "Flow"
    pd.testing.assert_frame_equal(flow, before)


def test_what_has_no_flow_is_refused() -> None:
    with pytest.raises(ValueError, match="got no column 'visits' among"):
        plot_gradient_flow(fitted().history_.assign(series=0))
    with pytest.raises(TypeError, match="the gradient flow is that of a fitted foreca"):
        plot_gradient_flow(3)
    with pytest.raises(NotFittedError, match="needs a fitted forecaster"):
        plot_gradient_flow(tiny())
    flow = gradient_flow(fitted())
    with pytest.raises(ValueError, match="a line to draw; got an empty mapping"):
        plot_gradient_flow({})
    with pytest.raises(ValueError, match="at most 6 lines can be told apart; got 7"):
        plot_gradient_flow(dict.fromkeys(range(7), flow))
    with pytest.raises(
        ValueError, match=r'must be one of "visits", "time"; got .visit.'
    ):
        plot_gradient_flow(flow, x="visit")
