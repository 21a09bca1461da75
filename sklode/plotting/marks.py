"""Dots of observations, lines of forecasts and bands, none over long gaps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sklode.plotting.canvas import Canvas, canvas, given_axes, overlap, pyplot
from sklode.plotting.counts import check_count
from sklode.plotting.panels import Pair, Panels
from sklode.plotting.styles import GREY, GUIDE, INK, PALE, Curve, Shade, dot_size
from sklode.plotting.time_axis import Places, TimeAxis, pieces

__all__ = [
    "band",
    "line",
    "mark_end",
    "observations",
    "sheet",
    "threads",
    "truth",
    "write",
]

_FEW = 30
"""A line through so many stamps at most shows each of them."""


def sheet(
    panels: Panels, drawn: list[dict[Pair, Any]], ax: Any, max_panels: int
) -> tuple[TimeAxis, Canvas]:
    """Return the time axis of what is to be drawn, and an axes for each panel.

    Parameters
    ----------
    panels : Panels
        Series and channels.
    drawn : list of dict
        Tables over times, by panel.
    ax, max_panels
        As the caller gave them.

    Raises
    ------
    ValueError
        If ``max_panels`` is no whole number, or too small for the panels.
    """
    check_count("max_panels", max_panels, 1)
    pyplot()  # says how to install matplotlib, which dates are reckoned by as well
    n_series, n_channels = len(panels.series), len(panels.channels)
    shape: tuple[int, ...] = tuple(n for n in (n_series, n_channels) if n > 1)
    stamps = [table.index for tables in drawn for table in tables.values()]
    stamps = [index for index in stamps if len(index)]
    first = None if ax is None else next(iter(given_axes(ax)), None)
    times = TimeAxis.of(panels.times, stamps, first)
    spans: dict[int, Places] = {}
    for tables in drawn:
        for (s, _), table in tables.items():
            places = times.places(table.index)
            spans[s] = np.append(spans.get(s, np.empty(0)), places)
    canvas_ = canvas(
        ax,
        shape,
        "series and channel",
        max_panels,
        share_x=overlap(list(spans.values())),
        n_columns=(1 if n_channels <= 6 else 2) if n_series == 1 else None,
    )
    for axes in canvas_.axes:
        times.dress(axes)
    return times, canvas_


def observations(axes: Any, times: TimeAxis, known: pd.Series, label: str) -> None:
    """Draw what was observed: dots, and a thin line between those that are near."""
    x, values, _ = _broken(times.places(known.index), known.to_numpy())
    axes.plot(
        x,
        values,
        color=PALE,
        linewidth=0.8,
        marker="o",
        markersize=dot_size(len(known)),
        markerfacecolor=GREY,
        markeredgecolor="none",
        label=label,
    )


def truth(axes: Any, times: TimeAxis, known: pd.Series, label: str) -> None:
    """Draw what was held out: rings."""
    axes.plot(
        times.places(known.index),
        known.to_numpy(),
        linestyle="none",
        marker="o",
        markersize=dot_size(len(known)) + 0.5,
        markerfacecolor="white",
        markeredgecolor=INK,
        markeredgewidth=0.7,
        label=label,
    )


def line(
    axes: Any, times: TimeAxis, known: pd.Series, curve: Curve, label: str
) -> None:
    """Draw a line; single stamps have markers, and all where they are few."""
    x, values, alone = _broken(times.places(known.index), known.to_numpy())
    few = len(known) <= _FEW
    shown = np.flatnonzero(np.isfinite(x) & (few | alone))
    axes.plot(
        x,
        values,
        **curve.line,
        marker=curve.marker if len(shown) else None,
        markersize=4,
        markevery=shown.tolist() if len(shown) else None,
        label=label,
    )


def threads(axes: Any, times: TimeAxis, paths: pd.DataFrame, label: str) -> None:
    """Draw paths, the columns of a table, as thin lines."""
    from matplotlib.collections import LineCollection

    x = times.places(paths.index)
    lines = []
    for _, path in paths.items():
        places, values, _ = _broken(x, path.to_numpy())
        lines.append(np.column_stack([places, values]))
    colors = [(INK, min(0.5, max(0.15, 8 / len(lines))))]
    collection = LineCollection(
        lines, colors=colors, linewidths=0.6, zorder=1.5, label=label
    )
    axes.add_collection(collection)
    axes.autoscale_view()


def band(
    axes: Any,
    times: TimeAxis,
    bounds: pd.DataFrame,
    curve: Curve,
    label: str,
    shade: Shade,
    edged: bool = False,
) -> None:
    """Fill between "lower" and "upper"; at single stamps draw a bar.

    Parameters
    ----------
    axes, times, curve, label
        As in `line`.
    bounds : DataFrame
        With the columns "lower" and "upper".
    shade : Shade
        Of the filling.
    edged : bool, default=False
        Whether edges have the dashes of the curve, which tell bands apart in grey.
    """
    low, high = bounds["lower"].to_numpy(), bounds["upper"].to_numpy()
    x, low, alone = _broken(times.places(bounds.index), low)
    _, high, _ = _broken(times.places(bounds.index), high)
    edge = {"linewidth": 0.8, "edgecolor": curve.color} if edged else {"linewidth": 0}
    filled = axes.fill_between(
        x, low, high, facecolor=shade.of(curve.color), zorder=1, **edge
    )
    if edged:
        filled.set_linestyle(curve.linestyle)
    filled.set_label(label)
    if alone.any():
        bars = x[alone], low[alone], high[alone]
        axes.vlines(*bars, colors=[shade.of(curve.color)], linewidth=5, zorder=1)


def mark_end(
    axes: Any, times: TimeAxis, known: pd.Series | None, later: list[pd.Series]
) -> None:
    """Draw a thin line where the observations end, if anything follows them."""
    if known is None or not len(known):
        return
    end = times.places(known.index)[-1]
    if any(len(t) and times.places(t.index)[-1] > end for t in later):
        axes.axvline(end, color=GUIDE, linewidth=0.8, linestyle=(0, (1, 2)), zorder=0)


def write(
    canvas_: Canvas,
    panels: Panels,
    title: str | None,
    x_label: str | None,
    y_label: str | None,
) -> None:
    """Write titles and the names of axes, and the legend."""
    n_channels = len(panels.channels)
    alone = len(canvas_.axes) == 1
    for (s, c), axes in zip(panels.pairs(), canvas_.axes, strict=True):
        channel = panels.channels[c]
        name = y_label
        if name is None and not (panels.is_nameless):
            name = str(channel)
        if name is not None and (
            n_channels > 1 or _starts_row(axes) or not canvas_.is_ours
        ):
            axes.set_ylabel(name)
        label = panels.levels[-1] if x_label is None else x_label
        if label is not None and (_ends_column(axes) or not canvas_.is_ours):
            axes.set_xlabel(str(label))
        if panels.title(s) and not (alone and title is not None):
            axes.set_title(panels.title(s), fontsize="medium")
    canvas_.head(title)
    canvas_.explain()


def _starts_row(axes: Any) -> bool:
    place = axes.get_subplotspec()
    return place is None or place.is_first_col()


def _ends_column(axes: Any) -> bool:
    return bool(axes.xaxis.get_tick_params()["labelbottom"])


def _broken(
    x: NDArray[np.float64], values: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Return a line with NaN in long gaps, and which of its points stand alone."""
    parts = pieces(x)
    after = [part.stop for part in parts[:-1]]
    alone = np.zeros(len(x), dtype=bool)
    alone[[part.start for part in parts if part.stop - part.start == 1]] = True
    nan = np.full(len(after), np.nan)
    return (
        np.insert(x, after, nan),
        np.insert(values.astype(float), after, nan),
        np.insert(alone, after, False),
    )
