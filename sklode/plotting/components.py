"""The components of a structural model, over real time."""

from __future__ import annotations

from collections.abc import Hashable
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sklode.data.arrays import Frame
from sklode.data.checks import check_fitted
from sklode.data.history import History
from sklode.data.links import Link
from sklode.data.ticks import stamps_of
from sklode.plotting import canvas
from sklode.plotting.series import Panels

if TYPE_CHECKING:
    from sktime.forecasting.base import BaseForecaster

_N_PLACES = 1000  # of a line between first and last stamp, beside the stamps
# observations so many times the distance of the first and last decile beyond these are
# marked at the edge: drawn in full they would leave nothing else to see
_FAR = 4.0
_LEAST_HEIGHT = 0.03  # of an axes, in ranges of the trend


def plot_components(
    forecaster: BaseForecaster,
    fh: Any = None,
    *,
    X: Frame | None = None,
    series: Hashable = None,
    channel: Hashable = None,
    ax: canvas.Given = None,
) -> canvas.AxesArray:
    r"""Plot the components that a structural model has found in a series.

    One axes each, in y's units: the trend, with the observations; each season; the
    deviation; the effects of X; and the remainder, which is the observations minus all
    parts. Observations far outside are rings at an edge. Parts of a logarithm multiply:
    all but the trend are factors. Between two bounds they add up to a logit. Below is
    the effect of each column of X that is used, over its values, with a band of 90 %:
    where it acts late, what it comes to if the column stays so, as the axis says.

    Parameters
    ----------
    forecaster : forecaster of this package
        Fitted, with a structural model.
    fh : int, sequence, Index or ForecastingHorizon, optional
        As in ``predict``; the parts go on to its last stamp.
    X : DataFrame, optional
        Controls at the horizon, where the model has any.
    series : optional
        Key of a series of a panel; None: the first one.
    channel : optional
        A column of y; None: the first one.
    ax : array of Axes, optional
        One for each part, and for each column of X; None: a new figure.

    Returns
    -------
    ndarray of Axes
        In the order above, of the most probable form, given all observations.

    Raises
    ------
    TypeError, NotFittedError, ValueError
        If ``forecaster`` has no such model or is not fitted, there is no such series
        or channel, or ``X`` is missing.
    """
    check_fitted(
        forecaster,
        asked="plot_components",
        has="_parts",
        kind="that has a structural model",
    )
    history = forecaster._history
    keys, names = list(history.observations.keys), history.channels
    key = keys[0] if series is None else series
    key = key if isinstance(key, tuple) else (key,)  # of a panel of one level
    channel = names[0] if channel is None else channel
    canvas.check_held(keys, [key], "what fit has seen")
    canvas.check_held(names, [channel], "y in fit")
    number = keys.index(key)
    ahead = None
    if fh is not None:
        X = forecaster._check_X(X)
        asking = copy(forecaster)  # which remembers fh in place of the user's
        _, asked = asking._asked(asking._check_fh(fh), X)
        ahead = asked.index
    rows = _rows_of(history, number, ahead)
    found = forecaster._parts(rows, X)[channel]
    curves = forecaster._answers.curves(names.index(channel), number)
    # in one axes over time: each has one over its own column
    if used := [curve.part for curve in curves]:
        found = found.drop(columns=used).assign(X=found[used].sum(axis=1))
    found = found.set_axis(rows.get_level_values(-1))
    y = history.frame()[channel]
    y = (y.xs(key, level=list(range(len(key)))) if key else y).dropna()
    link = forecaster._answers.link(names.index(channel), number)
    level, points = _tables(y, found, link)
    low, high = y.quantile([0.1, 0.9])
    reach = _FAR * (high - low) or np.inf  # of mostly equal values none is far
    is_usual = y.between(low - reach, high + reach)
    usual = points[is_usual]
    edges = points[~is_usual].clip(usual.min(), usual.max(), axis=1)
    future_style, past_style = canvas.styles_of(["forecast", "level"])
    # above the dots, which have an order of 2
    future: canvas.Style = {**future_style, "zorder": 2.5}
    past: canvas.Style = {**past_style, "zorder": 2.5, "linestyle": "-"}
    seen = level.loc[: y.index[-1]]
    panels = Panels(seen, ax)
    panels.add(seen, "y", partial(canvas.line, style=past, label="level"))
    panels.add(usual, "y", partial(canvas.points, label="observed", filled=True))
    panels.add(edges, "y", partial(canvas.points, label="far outside", filled=False))
    later = level.loc[y.index[-1] :]
    if fh is not None and len(later) > 1:
        panels.add(later, "y", partial(canvas.line, style=future, label="forecast"))
    axes = panels.draw(n_more=len(curves))
    fill = (future["color"], 0.25)
    for curve, one in zip(curves, axes.ravel()[level.shape[1] :], strict=True):
        canvas.band(one, curve.values, curve.bounds, fill, "90 % interval of an effect")
        canvas.line(one, curve.values, curve.effect[:, None], future, "effect")
        if curve.levels:
            one.set_xticks(range(len(curve.levels)), curve.levels)
        late = f", if it stays so (memory {curve.memory})" if curve.memory else ""
        late = f", {curve.delay} before" if curve.delay else late
        one.set(xlabel=f"{curve.column}{late}", ylabel=f"effect of\n{curve.part}")
    drawn = usual["trend"]
    if not link.is_identity:
        drawn = link.of(drawn.dropna())
    least = _LEAST_HEIGHT * (drawn.max() - drawn.min())
    for one in axes.ravel():  # what hardly varies looks so
        low, high = one.get_ylim()
        short = max(least - (high - low), 0.0) / 2
        one.set_ylim(low - short, high + short)
    canvas.add_legend(axes, is_new=ax is None)
    return axes


def _tables(
    y: pd.Series, found: pd.DataFrame, link: Link
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return what is drawn of each component, and what of the observations."""
    is_used = (found != 0).any()
    trend = link.inverse(found["trend"])
    left = link.of(y) - found["signal"].reindex(y.index)
    if link.is_logarithm:  # what is added to a logarithm are factors
        found, left = np.exp(found), np.exp(left)
    found = found.assign(trend=trend)
    parts = [part for part in found if part not in ("signal", "deviation", "X")]
    parts += [part for part in ("deviation", "X") if is_used.get(part, False)]
    parts.append("remainder")
    points = pd.DataFrame({"trend": y, "remainder": left})
    unit = "factor" if link.is_logarithm else link.name
    units = {}
    if not link.is_identity:
        units = {part: f"{part}\n({unit})" for part in parts[1:]}
    drawn = found.reindex(columns=parts).rename(columns=units)
    return drawn, points.reindex(columns=parts).rename(columns=units)


def _rows_of(history: History, number: int, ahead: pd.Index | None) -> pd.Index:
    """Return rows of a series at which its parts are drawn.

    Between its stamps and those ahead are many more, unless X is unknown there.
    """
    rows = history.rows
    key = rows.keys[number]
    ticks = rows.ticks[rows.bounds[number] : rows.bounds[number + 1]]
    if ahead is not None:
        own, asked = history.rows.locate(ahead)
        ticks = np.append(ticks, asked[own == number])
    if not history.controls:
        between = np.linspace(ticks.min(), ticks.max(), _N_PLACES)
        ticks = np.append(ticks, between.round().astype(np.int64))
    index = stamps_of(np.unique(ticks), rows.like).rename(history.levels[-1])
    if not key:
        return index
    levels = [*([one] for one in key), index]
    return pd.MultiIndex.from_product(levels, names=history.levels)
