"""A phase portrait: two states, or two columns of y, one against the other."""

from __future__ import annotations

from collections.abc import Hashable
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sklode.data.arrays import Array, Numbers
from sklode.data.history import History
from sklode.data.ticks import series_of, stamps_of, ticks_of
from sklode.plotting import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from sktime.forecasting.base import BaseForecaster

# cells of the picture to either side; each has at most one arrow
_CELLS = 16
_STAMPS = 500  # of each path

_OF_STATES = (
    "that has latent states (LatentODEForecaster, LatentODERNNForecaster or "
    "LatentODELSTMForecaster), or, with two columns of y as columns, of any of sklode"
)


def plot_phase(
    forecaster: BaseForecaster,
    states: tuple[int, int] = (0, 1),
    columns: tuple[Hashable, Hashable] | None = None,
    *,
    index: pd.Index | None = None,
    X: Any = None,
    series: Hashable = None,
    ax: canvas.Given = None,
) -> Axes:
    """Plot one latent state against another, or one column of y against another.

    Each series is a path, which ends in a dot. Arrows are the field along the paths:
    where these go on average, from each cell of a grid that they cross.

    Parameters
    ----------
    forecaster : forecaster of this package
        Fitted; without ``columns`` a Latent ODE forecaster whose network counts.
    states : pair of int, default=(0, 1)
        Numbers of the states, as in `encode`; the first is drawn along x.
    columns : pair of names, optional
        Columns of y in place of states: their forecasts.
    index : Index, optional
        Stamps, as in `predict_at`, or of one ``series`` alone; None: from each series'
        last row with a value on, as long again as it was seen.
    X : DataFrame or Series, optional
        As in `predict_at`.
    series : optional
        Key of a series of a panel; None: all of them, in one picture.
    ax : Axes, optional
        To draw on; None: a new figure.

    Returns
    -------
    Axes

    Raises
    ------
    TypeError, NotFittedError, ValueError
        If ``forecaster`` is none or not fitted, has no network, or lacks a state, a
        column or a series.
    """
    canvas.check_fitted(
        forecaster,
        method="plot_phase",
        has="trajectory" if columns is None else "predict_at",
        kind=_OF_STATES if columns is None else "of this package",
    )
    pair = states if columns is None else columns
    # a text has a length too
    if not pd.api.types.is_list_like(pair) or len(pair) != 2:
        raise ValueError(
            f"a phase portrait has two axes; got {pair!r}. Name two states, as "
            "states=(0, 1), or two columns of y, as columns=('a', 'b')."
        )
    if columns is None and not all(isinstance(state, Integral) for state in states):
        raise ValueError(
            f"states are whole numbers; got {states!r}. Columns of y are drawn with "
            f"columns={states!r}."
        )
    if index is None:
        index = _ahead(forecaster._history)
    if not isinstance(index, pd.Index) or not len(index):
        raise TypeError(
            "index must be a pandas Index of one time stamp or more; got "
            f"{type(index).__name__} of the shape {np.shape(index)}. Pass for example "
            "index=y.index."
        )
    if series is not None:
        index = _of_series(index, series, list(forecaster._history.levels))
    if columns is None:
        table = forecaster.trajectory(index, X).xs("mean", axis=1, level="statistic")
        owner, labels = "the latent state", [f"state {k}" for k in pair]
    else:
        table = pd.DataFrame(forecaster.predict_at(index, X))
        owner, labels = "y", [str(name) for name in pair]
    canvas.check_held(list(table.columns), pair, owner=owner)
    table = table[list(pair)].sort_index()
    sheet = canvas.axes_of(ax, shape=(1,), size=(5.0, 4.6), n_columns=1)
    axes = sheet[0]
    numbers, keys = series_of(table.index)
    points = table.to_numpy(float)
    has_styles = 1 < len(keys) <= canvas.MOST_LINES
    styles = canvas.styles_of(keys) if has_styles else ()
    for k, key in enumerate(keys):
        own = points[numbers == k]
        (path,) = axes.plot(*own.T, color=canvas.GREY, lw=1.0, alpha=0.8)
        if has_styles:
            path.set(color=styles[k]["color"], linestyle=styles[k]["linestyle"])
            path.set_label("/".join(map(str, key)))
        axes.plot(*own[-1], marker="o", ms=4, color=path.get_color())
    _add_arrows(axes, points, _speeds(points, table.index, numbers))
    axes.set(xlabel=labels[0], ylabel=labels[1])
    canvas.add_legend(sheet, is_new=ax is None)
    return axes


def _of_series(index: pd.Index, series: Hashable, levels: list[Hashable]) -> pd.Index:
    """Return the stamps of one series of a panel; those without a key are its own."""
    key = series if isinstance(series, tuple) else (series,)
    if index.nlevels == 1 and len(levels) == len(key) + 1:
        return pd.MultiIndex.from_product(
            [*([one] for one in key), index], names=levels
        )
    numbers, keys = series_of(index)
    canvas.check_held(keys, [key], "the series at these stamps")
    return index[numbers == keys.index(key)]


def _ahead(history: History) -> pd.Index:
    """Return even stamps from each series' last row on, as long as it was seen."""
    seen = history.observations
    first, last = seen.ticks[seen.bounds[:-1]], seen.ticks[seen.bounds[1:] - 1]
    shares = np.linspace(0.0, 1.0, _STAMPS)
    # of few periods, say, several share one tick
    each = [
        np.unique(end + np.round(shares * span).astype(np.int64))
        for end, span in zip(last, last - first, strict=True)
    ]
    stamps = stamps_of(np.concatenate(each), seen.like)
    return history.keyed(stamps, np.array([len(own) for own in each]))


def _speeds(points: Array, index: pd.Index, series: Numbers) -> Array:
    """Return by how much points move in a unit of time until the next, (point, 2)."""
    ticks = ticks_of(index.get_level_values(-1))
    passed = np.diff(ticks).astype(float)
    is_next = (np.diff(series) == 0) & (passed > 0)
    found = np.full(points.shape, np.nan)
    found[:-1][is_next] = np.diff(points, axis=0)[is_next] / passed[is_next, None]
    return found


def _add_arrows(axes: Axes, points: Array, speeds: Array) -> None:
    """Draw the mean direction in each cell, from the mean of its points."""
    known = np.isfinite(speeds).all(axis=1)
    # of a single stamp there is no speed
    if not known.any():
        return
    points, speeds = points[known], speeds[known]
    low, width = points.min(axis=0), np.ptp(points, axis=0)
    if not (width > 0).all():
        return
    cells = np.minimum((_CELLS * (points - low) / width).astype(int), _CELLS - 1)
    _, place = np.unique(cells, axis=0, return_inverse=True)
    place = place.ravel()
    n = np.bincount(place)

    def means(table: Array) -> Array:
        return np.stack([np.bincount(place, column) / n for column in table.T], axis=1)

    # all as long, half a cell: a field's speeds may differ by powers of ten
    to = means(speeds / width)
    lengths = np.linalg.norm(to, axis=1, keepdims=True)
    to = 0.5 / _CELLS * to / np.where(lengths > 0, lengths, 1.0) * width
    axes.quiver(
        *means(points).T,
        *to.T,
        color=canvas.INK,
        angles="xy",
        scale_units="xy",
        scale=1.0,
        width=0.004,
        zorder=3,
    )
