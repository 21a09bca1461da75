"""Histories show what was recorded."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from sktime.exceptions import NotFittedError

from sklode.plotting import plot_components, plot_history, plot_phase
from tests.plotting.test_series import line, points
from tests.series import tiny, uneven_stamps, waves


@pytest.fixture(scope="module")
def trained() -> Any:
    return tiny(max_epochs=6, early_stopping=True).fit(waves())


def labels(axes: Any) -> list[str]:
    return [one.get_label() for one in axes.lines]


def test_each_epoch_is_drawn_as_it_was_recorded(trained: Any) -> None:
    axes = plot_history(trained)
    assert axes.shape == (3,)
    shown = {
        "training loss": (0, "loss"),
        "validation loss": (0, "validation_loss"),
        "log-likelihood": (1, "log_likelihood"),
        "KL divergence": (1, "kl"),
        "gradient norm": (2, "grad_norm"),
    }
    for label, (place, column) in shown.items():
        known = trained.history_[column].dropna()
        drawn = points(axes[place], label)
        np.testing.assert_array_equal(drawn, np.stack([known.index, known], axis=1))
    np.testing.assert_array_equal(line(axes[2], "clip_norm = 1").get_ydata(), [1, 1])
    best = trained.best_epoch_
    for one in axes:
        assert set(line(one, f"best epoch, {best}").get_xdata()) == {best}
        np.testing.assert_array_equal(one.get_xticks(), one.get_xticks().round())
    assert axes[2].get_yscale() == "log"
    (below,) = axes[0].figure.legends
    assert {text.get_text() for text in below.get_texts()} >= {*shown}


def test_divergences_are_marked(trained: Any) -> None:
    other = copy(trained)
    history = trained.history_.assign(grad_norm=0.0, validation_loss=np.nan)
    history.loc[[3, 5], "restored_epoch"] = [2, 1]
    history.loc[3, "loss"] = np.nan
    other.history_, other.clip_norm = history, None
    before = history.copy(deep=True)
    _, axes = plt.subplots(3)
    assert plot_history(other, ax=axes) is axes
    for one in axes:
        crosses = line(one, "diverged, restored").get_xdata()
        np.testing.assert_array_equal(crosses, [3, 5])
        assert not [label for label in labels(one) if "clip" in label]
    np.testing.assert_array_equal(
        points(axes[0], "training loss")[:, 0], [1, 2, 4, 5, 6]
    )
    assert "validation loss" not in labels(axes[0])
    assert axes[2].get_yscale() == "linear"
    pd.testing.assert_frame_equal(history, before)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: plot_history(tiny()), NotFittedError, "not been fitted"),
        (lambda: plot_history(waves()), TypeError, "plot_history is of a forecaster"),
        (
            lambda: plot_history(tiny(model="hybrid").fit(waves(uneven_stamps(20)))),
            ValueError,
            "an epoch: no network was tried. Fit with guard=False or model='paper', or",
        ),
    ],
)
def test_what_shows_nothing_is_refused(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("plot", [plot_components, plot_history, plot_phase])
def test_a_class_is_no_fitted_forecaster(plot: Any) -> None:
    kind = type(tiny())
    remedy = rf"fit it: {kind.__name__}\(\)\.fit\(y\)"
    with pytest.raises(TypeError, match=f"got the class {kind.__name__}.*{remedy}"):
        plot(kind)


def test_a_history_without_an_epoch_is_refused(trained: Any) -> None:
    with pytest.raises(ValueError, match="ax must hold 3 Axes"):
        plot_history(trained, ax=plt.subplots()[1])
    other = copy(trained)
    other.history_ = trained.history_[:0]
    with pytest.raises(ValueError, match="without an epoch: finetune_epochs=0"):
        plot_history(other)
