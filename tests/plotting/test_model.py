"""Histories, gradient flows and phase portraits show what was recorded or solved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot as plt
from matplotlib.quiver import Quiver
from sklearn.exceptions import NotFittedError

from sklode.plotting import plot_history, plot_latent
from tests.networks import amplified
from tests.plotting.test_series import legend, line, points
from tests.series import panel, tiny, uneven_stamps, waves

FH = list(range(1, 7))


@pytest.fixture(scope="module")
def trained() -> Any:
    return tiny(max_epochs=6, early_stopping=True).fit(waves())


def labels(axes: Any) -> list[str]:
    return [one.get_label() for one in axes.lines]


def test_each_epoch_is_drawn_as_it_was_recorded(trained: Any) -> None:
    axes = plot_history(trained, title="Training")
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
    assert axes[0].figure.get_suptitle() == "Training"
    (below,) = axes[0].figure.legends
    assert {text.get_text() for text in below.get_texts()} >= {*shown}


def test_a_table_tells_of_divergences_but_of_no_threshold(trained: Any) -> None:
    history = trained.history_.assign(grad_norm=0.0, validation_loss=np.nan)
    history.loc[[3, 5], "restored_epoch"] = [2, 1]
    history.loc[3, "loss"] = np.nan
    before = history.copy(deep=True)
    _, axes = plt.subplots(3)
    assert plot_history(history, ax=axes) is axes
    for one in axes:
        crosses = line(one, "diverged, restored").get_xdata()
        np.testing.assert_array_equal(crosses, [3, 5])
        assert not [
            label for label in labels(one) if "best" in label or "clip" in label
        ]
    np.testing.assert_array_equal(
        points(axes[0], "training loss")[:, 0], [1, 2, 4, 5, 6]
    )
    assert "validation loss" not in labels(axes[0])
    assert axes[2].get_yscale() == "linear"
    pd.testing.assert_frame_equal(history, before)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: plot_history(tiny()), NotFittedError, "plot_history needs a fitted"),
        (lambda: plot_history(waves()), TypeError, "plot_history is of a forecaster"),
        (
            lambda: plot_history(pd.DataFrame()),
            ValueError,
            "a history must hold 'loss'",
        ),
        (lambda: plot_latent(tiny(), FH), NotFittedError, "plot_latent needs a fitted"),
        (lambda: plot_latent(waves(), FH), TypeError, "plot_latent is of a forecaster"),
    ],
)
def test_what_shows_nothing_is_refused(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_a_history_without_an_epoch_is_refused(trained: Any) -> None:
    with pytest.raises(ValueError, match="got one without an epoch"):
        plot_history(trained.history_[:0])
    with pytest.raises(ValueError, match="ax must hold 3 Axes"):
        plot_history(trained, ax=plt.subplots()[1])


@pytest.fixture(scope="module")
def portrayed() -> Any:
    """Return a forecaster whose field is far from zero, as after a long training."""
    forecaster = tiny(latent_size=3).fit(waves(uneven_stamps(30)))
    amplified(forecaster.network_.decoder.vector_field, 3.0)
    return forecaster


def path(axes: Any) -> np.ndarray:
    return np.concatenate([points(axes, "window"), points(axes, "forecast")[1:]])


def arrows(axes: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return where arrows stand and how they point, (arrow, 2) each."""
    (drawn,) = (one for one in axes.collections if isinstance(one, Quiver))
    return np.asarray(drawn.get_offsets()), np.stack([drawn.U, drawn.V], axis=1)


def field_at(forecaster: Any, z: np.ndarray, u: Any = None) -> np.ndarray:
    """Return the decoder's field at states (row, latent)."""
    held = None if u is None else torch.as_tensor(u).float().expand(len(z), -1)
    with torch.no_grad():
        state = torch.as_tensor(z.copy()).float()
        return np.asarray(forecaster.network_.decoder.vector_field(state, held))


def test_the_path_ends_where_the_forecast_does() -> None:
    forecaster = tiny(level="series", latent_size=2).fit(waves(uneven_stamps(30)))
    axes = plot_latent(forecaster, FH, coordinates=(0, 1))
    with torch.no_grad():
        end = forecaster.network_.emission(torch.tensor(path(axes)[-1:]).float())
    expected = end.item() * forecaster.scale_ + forecaster.location_
    np.testing.assert_allclose(forecaster.predict(FH[-1:]), expected, rtol=1e-2)


def test_path_and_field_of_two_coordinates_are_the_decoders_own(portrayed: Any) -> None:
    predictor = portrayed._answers._predictor
    asked = portrayed._answers._queries(
        portrayed._history.rows_ahead(pd.Index(FH)), None
    )
    seed, end = portrayed._predict_seed, asked.times.max()
    found = predictor.latent_paths(0, end, None, 20, seed)
    _, axes = plt.subplots()
    drawn = plot_latent(portrayed, FH, coordinates=(2, 0), title="z", ax=axes)
    assert drawn is axes
    assert axes.get_title() == "z"
    np.testing.assert_array_equal(path(axes), found.mean[:, [2, 0]])
    last = found.mean[found.n_seen - 1, [2, 0]]
    np.testing.assert_array_equal(points(axes, "window")[-1], last)
    np.testing.assert_array_equal(points(axes, "last observation"), [last])
    np.testing.assert_array_equal(points(axes, "$z_0$"), found.mean[:1, [2, 0]])
    thin = [one.get_xydata() for one in axes.lines if one.get_linewidth() == 0.6]
    np.testing.assert_array_equal(thin, found.draws[..., [2, 0]])
    places, pointing = arrows(axes)
    states = np.tile(found.mean.mean(axis=0), (len(places), 1))
    states[:, [2, 0]] = places  # the other coordinate is held at the path's mean
    expected = field_at(portrayed, states)[:, [2, 0]]
    np.testing.assert_allclose(pointing, expected, rtol=1e-4, atol=1e-6)
    assert np.ptp(expected) > 0.01
    inside = (thin > places.min(0)) & (thin < places.max(0))
    assert inside.all()
    assert portrayed._fh is None  # the horizon is not that of the next call


def test_the_plane_is_by_default_that_of_the_principal_directions(
    portrayed: Any,
) -> None:
    axes = plot_latent(portrayed, FH, n_samples=0)
    found = path(axes)
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-5)
    covariance = found.T @ found
    assert covariance[0, 0] > covariance[1, 1] > 0
    assert abs(covariance[0, 1]) < 1e-4 * covariance[0, 0]
    pairs = [plot_latent(portrayed, FH, coordinates=p) for p in ((0, 1), (2, 0))]
    full = np.concatenate([path(pairs[0]), path(pairs[1])[:, :1]], axis=1)
    total = full.var(axis=0).sum() * len(full)
    assert f"({100 * covariance[0, 0] / total:.0f} % of" in axes.get_xlabel()
    assert f"({100 * covariance[1, 1] / total:.0f} % of" in axes.get_ylabel()


def test_the_field_of_a_model_with_controls_is_that_of_the_last_observation() -> None:
    y = waves(uneven_stamps(30))
    values = np.random.default_rng(0).standard_normal((30, 2))
    X = pd.DataFrame(values, y.index, ["u", "v"])
    forecaster = tiny(latent_size=2).fit(y[:-4], X=X[:-4], fh=y.index[-4:])
    amplified(forecaster.network_.decoder.vector_field, 3.0)
    axes = plot_latent(forecaster, X=X, coordinates=(0, 1))  # the horizon of fit
    places, pointing = arrows(axes)
    held = forecaster._model.normalisation.controls(X.to_numpy()[[-5]])
    expected = field_at(forecaster, places, held)
    np.testing.assert_allclose(pointing, expected, rtol=1e-4, atol=1e-6)
    assert "forecast" not in legend(plot_latent(forecaster, X.index[-6:-4]))
    with pytest.raises(ValueError, match="the forecast needs X at every stamp"):
        plot_latent(forecaster)


def test_the_series_of_a_panel_is_the_one_asked_for() -> None:
    forecaster = tiny(latent_size=2).fit(panel())
    predictor = forecaster._answers._predictor
    for number, key in enumerate([None, "s1", ("s2",)]):
        axes = plot_latent(forecaster, FH, series=key, coordinates=(0, 1))
        z0 = predictor.latent_paths(number, -np.inf, None, 0, 0).mean[:1]
        np.testing.assert_allclose(path(axes)[:1], z0, rtol=1e-5)
    with pytest.raises(ValueError, match=r"seen must hold \('s9',\); got \[\('s0',\)"):
        plot_latent(forecaster, FH, series="s9")


@pytest.mark.parametrize("pair", [(0, 0), (0, 3), 1, (False, True), (0.0, 1.0)])
def test_coordinates_that_span_no_plane_are_refused(portrayed: Any, pair: Any) -> None:
    with pytest.raises(ValueError, match="two different numbers from 0 to 2; got"):
        plot_latent(portrayed, FH, coordinates=pair)


def test_a_model_without_a_plane_and_draws_without_a_number_are_refused() -> None:
    forecaster = tiny(latent_size=1).fit(waves())
    with pytest.raises(ValueError, match="two latent coordinates; got a forecaster"):
        plot_latent(forecaster, FH)
    for n in (True, -1):
        with pytest.raises(ValueError, match=f"number of at least 0; got {n}"):
            plot_latent(forecaster, FH, n_samples=n)
