"""Phase portraits show the decoder's own path and field."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot as plt
from matplotlib.quiver import Quiver
from sklearn.exceptions import NotFittedError

from sklode.plotting import plot_latent
from sklode.prediction.calibration import Calibration
from sklode.prediction.predictor import Queries
from tests.networks import amplified
from tests.plotting.drawn import legend, line
from tests.series import panel, tiny, uneven_stamps, waves

FH = list(range(1, 7))


def fitted(**settings: Any) -> Any:
    """Return a forecaster whose field is far from zero, as after a long training."""
    forecaster = tiny(**settings).fit(waves(uneven_stamps(30)))
    amplified(forecaster.network_.decoder.vector_field, 3.0)
    return forecaster


def with_controls(**settings: Any) -> tuple[Any, pd.DataFrame]:
    y = waves(uneven_stamps(30))
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.standard_normal((30, 2)), y.index, ["u", "v"])
    forecaster = tiny(**settings).fit(y[:-4], X=X[:-4])
    amplified(forecaster.network_.decoder.vector_field, 3.0)
    return forecaster, X


def arrows(axes: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return where arrows stand and how they point, (arrow, 2) each."""
    (drawn,) = (one for one in axes.collections if isinstance(one, Quiver))
    return np.asarray(drawn.get_offsets()), np.stack([drawn.U, drawn.V], axis=1)


def curve(axes: Any, label: str) -> np.ndarray:
    return np.asarray(line(axes, label).get_xydata(), dtype=float)


def field_at(forecaster: Any, z: np.ndarray, u: Any = None) -> np.ndarray:
    """Return the decoder's field at states (row, latent)."""
    state = torch.as_tensor(z.copy(), dtype=torch.float32)
    if u is not None:
        u = torch.as_tensor(u, dtype=torch.float32).expand(len(z), -1)
    with torch.no_grad():
        slope = forecaster.network_.decoder.vector_field(state, u)
    return np.asarray(slope)


def latent(forecaster: Any, times: np.ndarray, n_draws: int = 0) -> Any:
    """Return latent paths of the first series at times since its first stamp."""
    predictor = forecaster._model.predictor(forecaster._history.observations)
    queries = Queries(np.zeros(len(times), np.int64), times, None)
    return predictor.latent_paths(queries, n_draws, forecaster._predict_seed)


def test_latent_paths_decode_to_the_forecast_and_to_the_sample_paths() -> None:
    y = waves(uneven_stamps(30))
    forecaster = tiny(normalize="series", latent_size=3).fit(y)
    predictor = forecaster._model.predictor(forecaster._history.observations)
    predictor.calibration = Calibration.none(1)
    asked = forecaster._queries(forecaster._history.rows_ahead(pd.Index(FH)), None)
    paths = predictor.latent_paths(asked, 5, forecaster._predict_seed)
    emission = forecaster.network_.emission
    with torch.no_grad():
        mean, draws = (emission(torch.from_numpy(z)).numpy() for z in paths[:2])
    np.testing.assert_allclose(mean, predictor.means(asked), rtol=1e-4, atol=1e-6)
    ((_, expected),) = predictor.draws(asked, 5, forecaster._predict_seed, noise=False)
    np.testing.assert_allclose(draws, expected, rtol=1e-4, atol=1e-6)


def test_the_field_of_two_coordinates_is_the_networks_own() -> None:
    forecaster = fitted(latent_size=2)
    axes = plot_latent(forecaster, FH, coordinates=(1, 0), n_arrows=5)
    places, pointing = arrows(axes)
    assert places.shape == (25, 2)
    expected = field_at(forecaster, places[:, ::-1])[:, ::-1]
    np.testing.assert_allclose(pointing, expected, rtol=1e-4, atol=1e-6)
    assert np.ptp(expected) > 0.01


def test_other_coordinates_are_held_at_the_paths_mean() -> None:
    forecaster = fitted(latent_size=3)
    third = plot_latent(forecaster, FH, coordinates=(2, 0))
    path = np.concatenate([curve(third, "window"), curve(third, "forecast")[1:]])
    axes = plot_latent(forecaster, FH, coordinates=(0, 1))
    places, pointing = arrows(axes)
    held = np.full((len(places), 1), path[:, 0].mean())
    expected = field_at(forecaster, np.concatenate([places, held], axis=1))[:, :2]
    np.testing.assert_allclose(pointing, expected, rtol=1e-4, atol=1e-6)
    assert abs(held[0, 0]) > 1e-3


def test_the_path_follows_the_arrows() -> None:
    forecaster = fitted(latent_size=2, step_size=0.02)
    axes = plot_latent(forecaster, FH, coordinates=(0, 1))
    path = curve(axes, "forecast")
    middle, slopes = (path[1:] + path[:-1]) / 2, np.diff(path, axis=0)
    field = field_at(forecaster, middle)
    cosine = (slopes * field).sum(1) / (
        np.linalg.norm(slopes, axis=1) * np.linalg.norm(field, axis=1)
    )
    assert cosine.min() > 0.99


def test_the_path_goes_from_z0_over_the_last_observation_to_the_horizon() -> None:
    forecaster = fitted(latent_size=2)
    axes = plot_latent(forecaster, FH, coordinates=(0, 1), n_samples=4)
    predictor = forecaster._model.predictor(forecaster._history.observations)
    last = predictor.last_window(0)
    asked = forecaster._queries(forecaster._history.rows_ahead(pd.Index(FH)), None)
    ends = np.array([*last, asked.times.max()])
    assert last == (predictor.times[-6], predictor.times[-1])
    found = latent(forecaster, ends, 4)
    window, forecast = curve(axes, "window"), curve(axes, "forecast")
    shown = [window[0], window[-1], forecast[-1]]
    np.testing.assert_allclose(shown, found.mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(window[-1], forecast[0])
    np.testing.assert_array_equal(curve(axes, "$z_0$"), window[:1])
    np.testing.assert_array_equal(curve(axes, "last observation"), window[-1:])
    thin = [one for one in axes.lines if one.get_linewidth() == 0.5]
    starts = [np.asarray(one.get_xydata())[[0, -1]] for one in thin]
    np.testing.assert_allclose(starts, found.draws[:, [0, 2]], rtol=1e-4, atol=1e-6)
    assert (
        line(axes, "window").get_linestyle() != line(axes, "forecast").get_linestyle()
    )
    assert legend(axes) == [
        *("vector field", "window", "forecast", "$z_0$", "last observation")
    ]


def test_the_plane_is_by_default_that_of_the_principal_directions() -> None:
    forecaster = fitted(latent_size=3)
    axes = plot_latent(forecaster, FH)
    path = np.concatenate([curve(axes, "window"), curve(axes, "forecast")[1:]])
    np.testing.assert_allclose(path.mean(axis=0), 0, atol=1e-5)
    covariance = path.T @ path
    assert covariance[0, 0] > covariance[1, 1] > 0
    assert abs(covariance[0, 1]) < 1e-4 * covariance[0, 0]
    pairs = [plot_latent(forecaster, FH, coordinates=p) for p in ((0, 1), (2, 0))]
    (first, second), (third, _) = (
        np.concatenate([curve(a, "window"), curve(a, "forecast")[1:]]).T for a in pairs
    )
    full = np.stack([first, second, third])
    total = np.cov(full, bias=True).trace() * full.shape[1]
    assert f"({100 * covariance[0, 0] / total:.0f} % of" in axes.get_xlabel()
    assert f"({100 * covariance[1, 1] / total:.0f} %)" in axes.get_ylabel()


def test_the_field_of_a_model_with_controls_is_that_of_the_last_observation() -> None:
    forecaster, X = with_controls(latent_size=2)
    axes = plot_latent(forecaster, X.index[-4:], X=X, coordinates=(0, 1))
    places, pointing = arrows(axes)
    normalise = forecaster._model.normalisation.controls
    held = normalise(X.to_numpy()[[-5]])
    expected = field_at(forecaster, places, held)
    np.testing.assert_allclose(pointing, expected, rtol=1e-4, atol=1e-6)
    other = field_at(forecaster, places, normalise(X.to_numpy()[[-4]]))
    assert np.abs(other - expected).max() > 1e-2


def test_without_controls_of_the_future_the_path_ends_with_the_observations() -> None:
    forecaster, _ = with_controls(latent_size=2)
    assert "forecast" not in legend(plot_latent(forecaster))
    with pytest.raises(ValueError, match="the forecast needs X at every stamp"):
        plot_latent(forecaster, FH)


def test_without_a_horizon_the_path_goes_as_far_as_windows_do() -> None:
    forecaster = fitted(latent_size=2, horizon=5)
    found = curve(plot_latent(forecaster, coordinates=(0, 1)), "forecast")[-1:]
    predictor = forecaster._model.predictor(forecaster._history.observations)
    end = np.array([predictor.last_window(0)[1] + 5])
    np.testing.assert_allclose(found, latent(forecaster, end).mean, rtol=1e-4)


def test_the_horizon_of_fit_is_taken_and_none_is_left_behind() -> None:
    y = waves(uneven_stamps(30))
    forecaster = tiny().fit(y, fh=[1, 4])
    before = forecaster._fh
    one, other = plot_latent(forecaster), plot_latent(forecaster, [4])
    np.testing.assert_array_equal(curve(one, "forecast"), curve(other, "forecast"))
    assert forecaster._fh is before
    without = tiny().fit(y)
    plot_latent(without, [4])
    assert without._fh is None


def test_a_horizon_in_the_past_adds_no_path() -> None:
    forecaster = fitted()
    axes = plot_latent(forecaster, forecaster._history.index()[-3:])
    assert "forecast" not in legend(axes)


def test_the_series_of_a_panel_is_the_one_asked_for() -> None:
    forecaster = tiny(latent_size=2).fit(panel())
    drawn = [
        curve(plot_latent(forecaster, FH, series=key, coordinates=(0, 1)), "window")
        for key in (None, "s0", ("s2",))
    ]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert np.abs(drawn[0][0] - drawn[2][0]).max() > 1e-5
    predictor = forecaster._model.predictor(forecaster._history.observations)
    first = np.array([predictor.last_window(2)[0]])
    z0 = predictor.latent_paths(Queries(np.array([2]), first, None), 0, 0).mean
    np.testing.assert_allclose(drawn[2][:1], z0, rtol=1e-4, atol=1e-6)


def test_portraits_are_drawn_on_given_axes() -> None:
    _, axes = plt.subplots()
    assert plot_latent(fitted(), FH, ax=axes, title="z") is axes
    assert plt.get_fignums() == [1]
    assert axes.get_title() == "z"


def test_the_same_portrait_is_drawn_again() -> None:
    forecaster = fitted()
    one, other = plot_latent(forecaster, FH), plot_latent(forecaster, FH)
    for a, b in zip(one.lines, other.lines, strict=True):
        np.testing.assert_array_equal(a.get_xydata(), b.get_xydata())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"coordinates": (0, 0)}, "two different numbers from 0 to 1; got"),
        ({"coordinates": (0, 2)}, r"from 0 to 1; got \(0, 2\). Pass for example"),
        ({"coordinates": 1}, "from 0 to 1; got 1"),
        ({"coordinates": (False, True)}, r"got \(False, True\)"),
        ({"series": "s9"}, r"got 's9', seen were \[\(\)\]"),
        ({"n_samples": True}, "whole number of at least 0; got True"),
        ({"n_samples": -1}, "n_samples must be a whole number of at least 0; got -1"),
        ({"n_arrows": 1}, "n_arrows must be a whole number of at least 2; got 1"),
    ],
)
def test_what_is_no_portrait_is_refused(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        plot_latent(fitted(), FH, **arguments)


def test_what_has_no_latent_plane_is_refused() -> None:
    with pytest.raises(
        ValueError, match="needs two latent coordinates; got a forecast"
    ):
        plot_latent(fitted(latent_size=1), FH)
    with pytest.raises(NotFittedError, match="plot_latent needs a fitted forecaster"):
        plot_latent(tiny())
    with pytest.raises(TypeError, match="plot_latent is of a forecaster of this packa"):
        plot_latent(waves())
