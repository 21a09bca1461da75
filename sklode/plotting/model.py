"""What a fitted model shows: its training and its latent path."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sklode.data.checks import check_count, check_fitted
from sklode.plotting import canvas
from sklode.plotting.canvas import Canvas

Array = NDArray[np.floating]

_HISTORY = {
    "loss": (0, "training loss"),
    "validation_loss": (0, "validation loss"),
    "log_likelihood": (1, "log-likelihood"),
    "kl": (1, "KL divergence"),
    "grad_norm": (2, "gradient norm"),
}
"""In which axes a column is drawn, and how it is called there."""


def plot_history(forecaster: Any, *, title: str | None = None, ax: Any = None) -> Any:
    """Plot a training epoch by epoch: losses, parts of the bound, gradient norms.

    Parameters
    ----------
    forecaster : forecaster of this package, or DataFrame
        Fitted; or its ``history_``, which knows neither the best epoch nor the
        threshold of clipping: then they are not marked.
    title, ax
        As in `plot_forecast`; three axes.

    Returns
    -------
    ndarray of Axes
        Three: the loss and, where there is one, the validation loss; log-likelihood and
        KL divergence, per observed value; the mean norm of the gradients before
        clipping, on a logarithmic axis, with the threshold ``clip_norm`` where that is
        a number. A vertical line marks the epoch whose weights are kept, crosses those
        that diverged and were restored.

    Raises
    ------
    TypeError, NotFittedError, ValueError
        If ``forecaster`` is neither, not fitted, or trained for no epoch.
    """
    history, best, threshold = forecaster, None, None
    if not isinstance(forecaster, pd.DataFrame):
        check_fitted(forecaster, "plot_history")
        history, best = forecaster.history_, forecaster.best_epoch_
        threshold = forecaster.clip_norm
    needed = [*_HISTORY, "restored_epoch"]
    canvas.check_held(history.columns, needed, "a history")
    if not len(history):
        raise ValueError(
            "plot_history needs the history of a training; got one without an epoch "
            "(finetune_epochs=0 trains for none). Pass a forecaster that was trained."
        )
    sheet = Canvas.of(ax, (3,), (3.8, 3.6), n_columns=3)
    losses, parts, norms = sheet.axes
    epochs = history.index.to_numpy()
    styles = canvas.styles_of(_HISTORY)
    for (column, (place, label)), style in zip(_HISTORY.items(), styles, strict=True):
        values = history[column].to_numpy(dtype=float)
        if np.isfinite(values).any():
            canvas.line(sheet.axes[place], epochs, values, style, label)
    restored = epochs[history["restored_epoch"].to_numpy() > 0]
    for axes in sheet.axes:
        axes.set_xlabel("epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
        if best is not None:
            guide = {"color": canvas.GUIDE, "linewidth": 1.2, "linestyle": ":"}
            axes.axvline(best, label=f"best epoch, {best}", **guide)
        if len(restored):
            cross = {"marker": "x", "linestyle": "", "color": canvas.INK}
            low = {"transform": axes.get_xaxis_transform(), **cross}
            axes.plot(restored, 0 * restored + 0.03, label="diverged, restored", **low)
    losses.set_ylabel("loss per observed value")
    parts.set_ylabel("nats per observed value")
    norms.set_ylabel("gradient norm before clipping")
    norms.margins(y=0.15)
    if (history["grad_norm"] > 0).any():
        norms.set_yscale("log")
    if isinstance(threshold, Real):  # those of numpy too
        dashes = {"color": canvas.INK, "linewidth": 1.0, "linestyle": "--"}
        norms.axhline(float(threshold), label=f"clip_norm = {threshold:g}", **dashes)
    return sheet.explained(title)


def plot_latent(
    forecaster: Any,
    fh: Any = None,
    *,
    X: Any = None,
    series: Any = None,
    coordinates: Sequence[int] | None = None,
    n_samples: int = 20,
    title: str | None = None,
    ax: Any = None,
) -> Any:
    r"""Plot the phase portrait of a forecast: the path of z(t), and its vector field.

    The path starts at z0, where the last window does, passes the last observation and
    ends with the horizon. The plane goes through its mean :math:`\bar z` and is spanned
    by :math:`e_1, e_2`. Arrows show the decoder's vector field f at the plane's points
    :math:`\bar z + a e_1 + b e_2`, as far as it lies in it: :math:`(e_1 \cdot f, e_2
    \cdot f)`. A path far from the plane need not follow them.

    Parameters
    ----------
    forecaster : LatentODEForecaster, LatentODERNNForecaster or LatentODELSTMForecaster
        Fitted.
    fh : int, sequence, Index or ForecastingHorizon, optional
        As in ``predict``; the path goes to its last stamp. None: that of ``fit``.
    X : DataFrame, optional
        Controls at the horizon, where the model has any. The arrows are those of the
        controls at the last observation, held everywhere.
    series : optional
        Key of a series of a panel; None: the first one.
    coordinates : pair of int, optional
        Latent coordinates, counted from 0, that span the plane; the others are those of
        :math:`\bar z`. None: the two principal directions of the path.
    n_samples : int, default=20
        Thin paths from draws of z0, the first of those that intervals are made of; they
        are not scaled by ``interval_scale_``.
    title, ax
        As in `plot_forecast`.

    Returns
    -------
    Axes

    Raises
    ------
    TypeError, NotFittedError, ValueError
        If ``forecaster`` is none of the three or not fitted, there is no such series or
        plane, or ``X`` is missing.
    """
    check_fitted(forecaster, "plot_latent")
    check_count("n_samples", n_samples, 0)
    forecaster._answers_of_windows("plot_latent")
    _check_plane(coordinates, forecaster.network_.latent_size)
    number = canvas.series_number(forecaster._history.observations.keys, series)
    paths = forecaster._latent_paths(fh, X, number, n_samples)

    origin, directions, names = _plane(paths.mean, coordinates)
    mean, draws = ((z - origin) @ directions.T for z in (paths.mean, paths.draws))
    seen, ahead = mean[: paths.n_seen], mean[paths.n_seen - 1 :]
    everything = np.concatenate([mean, *draws])
    margin = np.maximum(0.12 * np.ptp(everything, axis=0), 1e-6)
    sides = everything.min(axis=0) - margin, everything.max(axis=0) + margin
    grid = np.meshgrid(*np.linspace(*sides, 17).T)  # arrows along each side
    places = np.stack(grid, axis=-1).reshape(-1, 2)
    arrows = paths.velocities(origin + places @ directions)

    sheet = Canvas.of(ax)
    (axes,) = sheet.axes
    grey = {"color": "0.72", "zorder": 0.5}
    speed = arrows @ directions.T
    axes.quiver(*places.T, *speed.T, angles="xy", width=0.0028, **grey)
    grey |= {"linestyle": "", "marker": r"$\rightarrow$", "markersize": 12}
    axes.plot([], [], label="vector field", **grey)  # for the legend
    canvas.threads(axes, draws[..., 0].T, draws[..., 1].T)
    first, second = canvas.styles_of("ab")
    canvas.line(axes, seen[:, 0], seen[:, 1], first, "window")
    if len(ahead) > 1:
        canvas.line(axes, ahead[:, 0], ahead[:, 1], second, "forecast")
    dot = {"linestyle": "", "markeredgecolor": "white", "markersize": 8, "zorder": 3}
    axes.plot(*mean[:1].T, marker="o", color=canvas.INK, label="$z_0$", **dot)
    last = {"marker": "D", "color": canvas.GREY, "label": "last observation"}
    axes.plot(*ahead[:1].T, **last, **dot)
    axes.set(xlabel=names[0], ylabel=names[1])
    return sheet.explained(title)


def _plane(
    path: Array, coordinates: Sequence[int] | None
) -> tuple[Array, Array, Sequence[str]]:
    """Return the point at (0, 0) of a plane, its two directions and their names."""
    origin = path.mean(axis=0)
    if coordinates is not None:
        origin[list(coordinates)] = 0.0  # the axes count from zero
        names = [f"latent coordinate {c}" for c in coordinates]
        return origin, np.eye(path.shape[1])[list(coordinates)], names
    _, sizes, directions = np.linalg.svd(path - origin, full_matrices=False)
    shares = 100 * sizes**2 / max(float((sizes**2).sum()), np.finfo(float).tiny)
    names = [
        f"{which} principal direction ({share:.0f} % of variance)"
        for which, share in zip(("first", "second"), shares, strict=False)
    ]
    return origin, directions[:2], names


def _check_plane(coordinates: Any, size: int) -> None:
    """Check that two latent coordinates can be, and are, chosen."""
    if size < 2:
        raise ValueError(
            "a phase portrait needs two latent coordinates; got a forecaster of "
            f"latent_size={size}. Fit one with latent_size=2 or more."
        )
    pair = np.ravel([0, 1] if coordinates is None else coordinates)
    whole = pair.dtype.kind in "iu" and ((pair >= 0) & (pair < size)).all()
    if not whole or len(pair) != 2 or pair[0] == pair[1]:
        raise ValueError(
            f"coordinates must be two different numbers from 0 to {size - 1}; got "
            f"{coordinates!r}. Pass for example (0, 1)."
        )
