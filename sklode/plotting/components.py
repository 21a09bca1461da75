"""The components of a structural model, over real time."""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from sklode.data.checks import check_fitted
from sklode.data.history import History
from sklode.data.links import Link
from sklode.data.ticks import stamps_of
from sklode.plotting import canvas
from sklode.plotting.series import Panels

_N_PLACES = 1000  # of a line between first and last stamp, beside the stamps
# observations so many times the distance of the first and last decile beyond these are
# marked at the edge: drawn in full they would leave nothing else to see
_FAR = 4.0


def plot_components(
    forecaster: Any,
    fh: Any = None,
    *,
    X: Any = None,
    series: Any = None,
    channel: Any = None,
    ax: Any = None,
) -> Any:
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
    needs = "_parts", "that has a structural model"
    check_fitted(forecaster, "plot_components", *needs)
    history = forecaster._history
    keys, names = list(history.observations.keys), history.channels
    key = keys[0] if series is None else series
    key = key if isinstance(key, tuple) else (key,)
    channel = names[0] if channel is None else channel
    canvas.check_held(keys, [key], "what fit has seen")
    canvas.check_held(names, [channel], "y in fit")
    number = keys.index(key)
    ahead = None
    if fh is not None:
        asked, X = copy(forecaster), forecaster._check_X(X)  # a copy remembers fh
        ahead = asked._asked(asked._check_fh(fh), X)[1].index
    rows = _rows_of(history, number, ahead)
    found = forecaster._parts(rows, X)[channel]
    curves = forecaster._answers.curves(names.index(channel), number)
    if used := [curve.part for curve in curves]:
        found = found.drop(columns=used).assign(X=found[used].sum(axis=1))
    found = found.set_axis(rows.get_level_values(-1))
    y = history.frame()[channel]
    y = (y.xs(key, level=list(range(len(key)))) if key else y).dropna()
    link = forecaster._answers.link(names.index(channel), number)
    level, points = _tables(y, found, link)
    low, high = y.quantile([0.1, 0.9])
    reach = _FAR * (high - low) or np.inf
    is_usual = y.between(low - reach, high + reach)
    usual = points[is_usual]
    edges = points[~is_usual].clip(usual.min(), usual.max(), axis=1)
    future, past = ({**one, "zorder": 2.5} for one in canvas.styles_of("ab"))
    past["linestyle"] = "-"
    seen = level.loc[: y.index[-1]]
    panels = Panels(seen, ax)
    panels.add(seen, "y", partial(canvas.line, style=past, label="level"))
    panels.add(usual, "y", partial(canvas.points, label="observed", filled=True))
    panels.add(edges, "y", partial(canvas.points, label="far outside", filled=False))
    later = level.loc[y.index[-1] :]
    if fh is not None and len(later) > 1:
        panels.add(later, "y", partial(canvas.line, style=future, label="forecast"))
    axes = panels.draw(n_more=len(curves))
    fill = future["color"], 0.25
    for curve, one in zip(curves, axes.flat[level.shape[1] :], strict=True):
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
    least = 0.03 * (drawn.max() - drawn.min())
    for one in axes.flat:  # what hardly varies looks so
        low, high = one.get_ylim()
        short = max(least - (high - low), 0.0) / 2
        one.set_ylim(low - short, high + short)
    return canvas.explained(axes, ax is None)


def _tables(
    y: pd.Series, found: pd.DataFrame, link: Link
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return what is drawn of each component, and what of the observations."""
    is_used, trend = (found != 0).any(), link.inverse(found["trend"])
    left = link.of(y) - found["signal"].reindex(y.index)
    if link.is_logarithm:
        found, left = np.exp(found), np.exp(left)
    found = found.assign(trend=trend)
    parts = [part for part in found if part not in ("signal", "deviation", "X")]
    parts += [part for part in ("deviation", "X") if is_used.get(part, False)]
    parts.append("remainder")
    points = pd.DataFrame({"trend": y, "remainder": left})
    unit = "factor" if link.is_logarithm else link.name
    units = {part: f"{part}\n({unit})" for part in parts[1:]}
    units = {} if link.is_identity else units
    tables = [one.reindex(columns=parts) for one in (found, points)]
    return tables[0].rename(columns=units), tables[1].rename(columns=units)


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
