"""Phase portraits: a latent path in a plane, and the vector field that moves it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from sklode.diagnostics import check_forecaster
from sklode.nn.modes import own_modes
from sklode.plotting.canvas import canvas
from sklode.plotting.counts import check_count, is_whole
from sklode.plotting.styles import CURVES, GREY, INK
from sklode.prediction.predictor import Queries

__all__ = ["plot_latent"]

Array = NDArray[np.floating]

_N_POINTS = 400
"""Of a drawn path."""

_MARGIN = 0.12
"""Of the field around the paths, as a share of their extent."""


def plot_latent(
    forecaster: Any,
    fh: Any = None,
    *,
    X: Any = None,
    series: Any = None,
    coordinates: Sequence[int] | None = None,
    n_samples: int = 20,
    n_arrows: int = 17,
    title: str | None = None,
    ax: Any = None,
) -> Any:
    r"""Plot the phase portrait of a forecast: the path of z(t), and its vector field.

    The path starts at z0, where the last window does, passes the last observation and
    goes on to the end of the horizon. It is drawn in a plane through its own mean
    :math:`\bar z`, spanned by two directions :math:`e_1, e_2`. Arrows show the vector
    field f of the decoder at the plane's points :math:`\bar z + a e_1 + b e_2`, as far
    as it lies in the plane: :math:`(e_1 \cdot f, e_2 \cdot f)`. With more than two
    latent coordinates a path leaves the plane, and where it is far from it need not
    follow the arrows.

    Parameters
    ----------
    forecaster : LatentODEForecaster, LatentODERNNForecaster or LatentODELSTMForecaster
        Fitted.
    fh : int, sequence, Index or ForecastingHorizon, optional
        As in ``predict``; the path goes to its last stamp. None: that of ``fit``; else
        as many time units as the forecaster's windows reach ahead, or, where the model
        has controls, no farther than the last observation.
    X : DataFrame, optional
        Controls at the horizon, where the model has any. The arrows are those of the
        controls at the last observation, held everywhere.
    series : optional
        Key of a series of a panel; None: the first one.
    coordinates : pair of int, optional
        Latent coordinates, counted from 0, that span the plane; the others are those of
        :math:`\bar z`. None: the two principal directions of the path, counted from
        :math:`\bar z`.
    n_samples : int, default=20
        Thin paths from draws of z0, the first of those that intervals are made of; they
        are not scaled by ``interval_scale_``.
    n_arrows : int, default=17
        Along each side.
    title : str, optional
        Of the picture.
    ax : Axes, optional
        Where to draw. None: a new figure.

    Returns
    -------
    Axes

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    TypeError
        If ``forecaster`` is none of the three.
    NotFittedError
        If it is not fitted.
    ValueError
        If there is no such series or plane, or ``X`` is missing.

    Examples
    --------
    >>> from sktime.datasets import load_airline
    >>> from sklode import LatentODELSTMForecaster
    >>> from sklode.plotting import plot_latent
    >>> forecaster = LatentODELSTMForecaster(max_epochs=2).fit(load_airline())
    >>> ax = plot_latent(forecaster, fh=range(1, 25))
    """
    check_forecaster(forecaster, "plot_latent")
    check_count("n_samples", n_samples, 0)
    check_count("n_arrows", n_arrows, 2)
    size = forecaster.network_.latent_size
    _check_coordinates(coordinates, size)
    portrait = _portrait(forecaster, fh, X, series, n_samples)
    plane = _Plane.of(portrait.mean, coordinates)
    sheet = canvas(ax, (), "picture", size=(6.4, 5.2))
    (axes,) = sheet.axes
    paths = plane.places(portrait.draws)
    mean = plane.places(portrait.mean)
    corners = _corners(np.concatenate([mean[None], paths]))
    _draw_field(axes, forecaster.network_, plane, portrait.control, corners, n_arrows)
    _draw_paths(axes, mean, paths, portrait.n_seen)
    axes.set_xlabel(plane.names[0])
    axes.set_ylabel(plane.names[1])
    sheet.head(title)
    sheet.explain(outside=True)
    return sheet.returned


class _Portrait(NamedTuple):
    """Latent paths of a series, and what acts at its last observation."""

    mean: Array  # (stamp, latent)
    draws: Array  # (sample, stamp, latent)
    n_seen: int  # stamps up to the last observation
    control: Array | None  # (control,)


class _Plane(NamedTuple):
    """A plane of the latent space."""

    origin: Array  # (latent,): its point at (0, 0)
    directions: Array  # (2, latent), orthonormal
    names: tuple[str, str]

    @classmethod
    def of(cls, path: Array, coordinates: Sequence[int] | None) -> _Plane:
        """Return the plane of two coordinates, or of the principal directions."""
        origin = path.mean(axis=0)
        if coordinates is not None:
            origin[list(coordinates)] = 0.0  # the axes count from zero
            directions = np.eye(path.shape[1])[list(coordinates)]
            first, second = (f"latent coordinate {c}" for c in coordinates)
            return cls(origin, directions, (first, second))
        _, sizes, rows = np.linalg.svd(path - origin, full_matrices=False)
        directions = rows[:2]
        largest = np.abs(directions).argmax(axis=1)
        directions = directions * np.sign(directions[[0, 1], largest])[:, None]
        total = max(float((sizes**2).sum()), np.finfo(float).tiny)
        share = [f"{100 * x:.0f} %" for x in sizes[:2] ** 2 / total]
        names = (
            f"first principal direction ({share[0]} of the variance)",
            f"second principal direction ({share[1]})",
        )
        return cls(origin, directions, names)

    def places(self, z: Array) -> Array:
        """Return coordinates in the plane, (..., 2), of its nearest points."""
        result: Array = (z - self.origin) @ self.directions.T
        return result

    def points(self, places: Array) -> Array:
        """Return the latent states, (..., latent), at places of the plane."""
        result: Array = self.origin + places @ self.directions
        return result


def _portrait(
    forecaster: Any, fh: Any, X: Any, series: Any, n_samples: int
) -> _Portrait:
    """Decode the last window of a series up to the end of a horizon."""
    history, model = forecaster._history, forecaster._model
    X = forecaster._check_X(X=X)
    number = _number_of(history.observations.keys, series)
    predictor = model.predictor(history.observations)
    first, last = predictor.last_window(number)
    has_controls = bool(history.controls)
    if fh is None and forecaster._fh is None:
        queries = forecaster._queries(history.index()[:0], X)
        end = last + (0.0 if has_controls else model.horizon)
    else:
        rows = _rows(forecaster, fh)
        which, _ = history.located(rows)
        queries = forecaster._queries(rows[which == number], X)
        end = queries.times.max(initial=last)
    times, n_seen = _times(first, last, float(max(end, last)))
    asked = Queries(np.full(len(times), number), times, queries.known)
    paths = predictor.latent_paths(asked, n_samples, forecaster._predict_seed)
    control = None if paths.controls is None else paths.controls[n_seen - 1]
    return _Portrait(paths.mean, paths.draws, n_seen, control)


def _rows(forecaster: Any, fh: Any) -> Any:
    """Return the rows of a horizon, which is not that of the next call."""
    before = forecaster._fh
    try:
        return forecaster._horizon_index(forecaster._check_fh(fh))
    finally:
        forecaster._fh = before


def _times(first: float, last: float, end: float) -> tuple[Array, int]:
    """Return even times up to the last observation and on, and how many are seen."""
    span = max(end - first, 1e-9)
    n_seen = max(2, round(_N_POINTS * (last - first) / span))
    seen = np.linspace(first, last, n_seen)
    if end <= last:
        return seen, n_seen
    ahead = np.linspace(last, end, max(2, _N_POINTS - n_seen) + 1)[1:]
    return np.concatenate([seen, ahead]), n_seen


def _number_of(keys: Sequence[tuple[Any, ...]], series: Any) -> int:
    if series is None:
        return 0
    key = series if isinstance(series, tuple) else (series,)
    if key not in keys:
        raise ValueError(
            "series must be the key of a series that fit has seen; got "
            f"{series!r}, seen were {list(keys)[:3]}... Leave it out for the first."
        )
    return list(keys).index(key)


def _check_coordinates(coordinates: Any, size: int) -> None:
    if size < 2:
        raise ValueError(
            "a phase portrait needs two latent coordinates; got a forecaster of "
            f"latent_size={size}. Fit one with latent_size=2 or more."
        )
    if coordinates is None:
        return
    pair = list(coordinates) if isinstance(coordinates, Sequence) else [coordinates]
    whole = all(is_whole(c) and 0 <= int(c) < size for c in pair)
    if len(pair) != 2 or not whole or pair[0] == pair[1]:
        raise ValueError(
            f"coordinates must be two different numbers from 0 to {size - 1}; got "
            f"{coordinates!r}. Pass for example (0, 1)."
        )


def _corners(paths: Array) -> Array:
    """Return the lowest and highest place, (2, 2), of paths with a margin."""
    low, high = paths.min(axis=(0, 1)), paths.max(axis=(0, 1))
    margin = np.maximum(_MARGIN * (high - low), 1e-6)
    return np.stack([low - margin, high + margin])


def _draw_field(
    axes: Any,
    network: Any,
    plane: _Plane,
    control: Array | None,
    corners: Array,
    n_arrows: int,
) -> None:
    """Draw the field's arrows on an even grid of the plane."""
    (left, bottom), (right, top) = corners
    grid = np.meshgrid(
        np.linspace(left, right, n_arrows), np.linspace(bottom, top, n_arrows)
    )
    places = np.stack(grid, axis=-1).reshape(-1, 2)
    parameter = next(network.parameters())
    states = torch.as_tensor(plane.points(places)).to(parameter)
    held = None
    if control is not None:
        held = torch.as_tensor(control).to(parameter).expand(len(states), -1)
    with own_modes(gradients=False):
        speed = network.decoder.vector_field(states, held).cpu().numpy()
    u, v = (speed @ plane.directions.T).T
    arrows = axes.quiver(
        places[:, 0], places[:, 1], u, v, angles="xy", color="0.72", width=0.0028
    )
    arrows.set_zorder(0.5)
    arrow = {"linestyle": "none", "marker": r"$\rightarrow$", "ms": 12, "color": "0.6"}
    axes.plot([], [], label="vector field", **arrow)  # for the legend


def _draw_paths(axes: Any, mean: Array, paths: Array, n_seen: int) -> None:
    """Draw paths up to the last observation and beyond it, and mark both ends."""
    seen, ahead = CURVES[0], CURVES[1]
    for path in paths:
        axes.plot(*path.T, color=INK, linewidth=0.5, alpha=0.3, zorder=1)
    axes.plot(*mean[:n_seen].T, **{**seen.line, "linewidth": 2.2}, label="window")
    if n_seen < len(mean):
        axes.plot(
            *mean[n_seen - 1 :].T, **{**ahead.line, "linewidth": 2.2}, label="forecast"
        )
    dot = {"linestyle": "none", "markeredgecolor": "white", "zorder": 3}
    axes.plot(*mean[:1].T, marker="o", ms=9, color=INK, label="$z_0$", **dot)
    axes.plot(
        *mean[n_seen - 1 : n_seen].T,
        marker="D",
        ms=8,
        color=GREY,
        label="last observation",
        **dot,
    )
