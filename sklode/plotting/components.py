"""What a structural level consists of, over real time."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from sklode.data.checks import check_fitted
from sklode.data.history import History
from sklode.data.ticks import stamps_of
from sklode.plotting import canvas
from sklode.plotting.series import Panels

_N_PLACES = 1000
"""Places between first and last stamp at which a line is drawn, beside the stamps."""

_LEAST_HEIGHT = 0.03
"""Of the range of y: a part that varies less is drawn as flat as it is."""

_FAR = 4.0
"""Observations so many times the distance of the first and last decile beyond these
are marked at the edge: drawn in full they would leave nothing else to see."""


def plot_components(
    forecaster: Any,
    fh: Any = None,
    *,
    X: Any = None,
    series: Any = None,
    channel: Any = None,
    start: Any = None,
    title: str | None = None,
    x_label: str | None = None,
    ax: Any = None,
) -> Any:
    r"""Plot the parts that a structural level has found in a series.

    One axes each, in y's units: the trend, with the observations behind it; each
    season; the deviation; the effects of X, where it is used; and the remainder, which
    is the observations minus the sum of all parts. Observations far outside are
    triangles at an edge. The parts of a logarithm multiply: the trend is in y's units,
    all others are factors. Below is the effect of each column of X that is used, over
    its values, with a band of 90 %: where it acts late, what it comes to.

    Parameters
    ----------
    forecaster : forecaster of this package
        Fitted, with a structural level.
    fh : int, sequence, Index or ForecastingHorizon, optional
        As in ``predict``; the parts go on to its last stamp. None: they end with the
        last observation.
    X : DataFrame, optional
        Controls at the horizon, where the model has any.
    series : optional
        Key of a series of a panel; None: the first one.
    channel : optional
        A column of y; None: the first one.
    start : stamp, optional
        The first stamp that is drawn, as pandas reads it: short seasons of a long
        series are seen only in a part of it. None: all.
    title, x_label, ax
        As in `plot_forecast`; an axes for each part, and each column of X.

    Returns
    -------
    ndarray of Axes
        In the order above. The parts are those of the most probable form, given all
        observations.

    Raises
    ------
    TypeError, NotFittedError, ValueError
        If ``forecaster`` has no such level or is not fitted, there is no such series,
        channel or stamp, or ``X`` is missing.
    """
    needs = "_level_parts", "that has a structural level"
    check_fitted(forecaster, "plot_components", *needs)
    history = forecaster._history
    names = history.channels
    number = canvas.series_number(history.observations.keys, series)
    key = history.observations.keys[number]
    channel = names[0] if channel is None else channel
    canvas.check_held(names, [channel], "y in fit")
    ahead, X = (None, X) if fh is None else forecaster._rows_for(fh, X)
    rows, n_seen = _rows_of(history, number, ahead)
    found = forecaster._level_parts(rows, X)[channel]
    curves = forecaster._answers.curves(names.index(channel), number)
    if used := [curve.part for curve in curves]:
        found = found.drop(columns=used).assign(X=found[used].sum(axis=1))
    found = found.set_axis(rows.get_level_values(-1))
    y = history.frame()[channel]
    y = y if key == () else y.xs(key, level=list(range(len(key))))
    y = y.dropna().loc[start:]
    if not len(y):
        raise ValueError(
            f"start must not be after the last observation; got {start!r}. Leave it "
            "out to draw all."
        )
    is_factor = bool(forecaster.level_.loc[[channel], "logarithm"].any())
    seen, points, absurd, later = _tables(y, found, n_seen, start, is_factor)
    past, future = ({**one, "zorder": 2.5} for one in canvas.styles_of("ab"))
    panels = Panels(seen, "y", ax)
    panels.add(seen, "y", partial(canvas.line, style=past, label="level"))
    panels.add(points, "y", partial(canvas.points, label="observed", filled=True))
    panels.add(absurd, "y", partial(_at_edges, label="far outside"))
    if len(later) > 1:
        panels.add(later, "y", partial(canvas.line, style=future, label="forecast"))
    apart = [partial(_effect, curve=curve, style=past) for curve in curves]
    axes = panels.draw(title, x_label, None, n_columns=1, apart=apart)
    shown = points["trend"]
    spread = float(np.ptp(np.log(shown) if is_factor else shown))
    for one in np.ravel(axes):
        low, high = one.get_ylim()
        short = _LEAST_HEIGHT * spread - (high - low)
        if short > 0:
            one.set_ylim(low - short / 2, high + short / 2)
    return axes


def _effect(axes: Any, curve: Any, style: dict[str, Any]) -> None:
    """Draw what a column of X adds, or multiplies by, over its values."""
    fill = canvas.tint(style["color"], 0.25)
    canvas.band(axes, curve.values, curve.bounds, fill, "90 % interval of an effect")
    canvas.line(axes, curve.values, curve.effect[:, None], style, "level")
    axes.set(xlabel=str(curve.column), ylabel=f"effect of\n{curve.part}")


def _tables(
    y: pd.Series, found: pd.DataFrame, n_seen: int, start: Any, is_factor: bool
) -> list[pd.DataFrame]:
    """Return what is drawn of each part: seen, observed, far outside, and later."""
    found = np.exp(found) if is_factor else found
    left = y / found["signal"] if is_factor else y - found["signal"]
    parts = [part for part in found if part not in ("signal", "deviation", "X")]
    is_used = (found != float(is_factor)).any()
    parts += [part for part in ("deviation", "X") if is_used.get(part, False)]
    parts.append("remainder")
    points = pd.DataFrame({"trend": y, "remainder": left.reindex(y.index)})
    usual, absurd = _told_apart(points, y)
    seen, later = found.iloc[:n_seen].loc[start:], found.iloc[n_seen - 1 :]
    tables = [one.reindex(columns=parts) for one in (seen, usual, absurd, later)]
    if is_factor:
        units = {part: f"{part}\n(factor)" for part in parts if part != "trend"}
        tables = [table.rename(columns=units) for table in tables]
    return tables


def _told_apart(points: pd.DataFrame, y: pd.Series) -> tuple[pd.DataFrame, Any]:
    """Return points, and of those far from all others on which side they lie."""
    low, high = y.quantile([0.1, 0.9])
    reach = _FAR * (high - low) or np.inf
    is_usual = y.between(low - reach, high + reach)
    sides = points.mul(0).add(np.sign(y - low), axis=0)
    return points[is_usual], sides[~is_usual]


def _at_edges(axes: Any, x: Any, sides: Any, label: str) -> None:
    """Draw triangles at the lower and upper edge of axes."""
    look = {"linestyle": "", "color": canvas.INK, "markersize": 5}
    for side, marker, height in ((-1, "v", 0.03), (1, "^", 0.97)):
        places = x[sides[:, 0] == side]
        if len(places):
            at = {"transform": axes.get_xaxis_transform(), "label": label}
            axes.plot(places, 0 * places + height, marker=marker, **at, **look)


def _rows_of(
    history: History, number: int, ahead: pd.Index | None
) -> tuple[pd.Index, int]:
    """Return rows of a series at which its parts are drawn, and how many are no later.

    They are its stamps, those asked for, and without X, which nobody knows there, so
    many between them that waves look like waves.
    """
    rows = history.rows
    key = rows.keys[number]
    ticks = rows.ticks[rows.bounds[number] : rows.bounds[number + 1]]
    last = history.observations.ticks[history.observations.bounds[number + 1] - 1]
    if ahead is not None:
        own, asked = history.rows.locate(ahead)
        ticks = np.append(ticks, asked[own == number])
    if not history.controls:
        between = np.linspace(ticks.min(), ticks.max(), _N_PLACES)
        ticks = np.append(ticks, between.round().astype(np.int64))
    ticks = np.unique(ticks)
    index = stamps_of(ticks, rows.like).rename(history.levels[-1])
    if key:
        levels = [*([one] for one in key), index]
        index = pd.MultiIndex.from_product(levels, names=history.levels)
    return index, int((ticks <= last).sum())
