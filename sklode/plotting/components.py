"""The components of a structural model, over real time."""

from __future__ import annotations

from collections.abc import Hashable
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sklode.data.arrays import Frame
from sklode.data.history import History
from sklode.data.links import Link
from sklode.data.ticks import stamps_of
from sklode.plotting import canvas
from sklode.plotting.series import Panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from sktime.forecasting.base import BaseForecaster

    from sklode.structural.answers import Curve

_BLUE, _ORANGE = canvas.styles_of(range(2))
# above the dots, which have an order of 2
_FUTURE: canvas.Style = {**_BLUE, "zorder": 2.5}
_PAST: canvas.Style = {**_ORANGE, "zorder": 2.5, "linestyle": "-"}

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
    canvas.check_fitted(
        forecaster,
        method="plot_components",
        has="_parts",
        kind="that has a structural model",
    )
    history = forecaster._history
    _check_asked(fh, X, history)
    number, channel = _place(history, series, channel)
    place = history.channels.index(channel)
    ahead = None
    if fh is not None:
        X = forecaster._check_X(X)
        asking = copy(forecaster)  # which remembers fh in place of the user's
        _, queries, _ = asking._queries(asking._check_fh(fh), X)
        ahead = queries.index
    rows = _rows_of(history, number, ahead)
    found = forecaster._parts(rows, X)[channel]
    curves = forecaster._answers.curves(place, number)
    # in one axes over time: each has one over its own column
    if used := [curve.part for curve in curves]:
        found = found.drop(columns=used).assign(X=found[used].sum(axis=1))
    found = found.set_axis(rows.get_level_values(-1))
    y = _observed(history, number, channel)
    link = forecaster._answers.link(place, number)
    level, points = _tables(y, found, link)
    is_usual = _is_usual(y)
    panels = _over_time(level, points, is_usual, fh is not None, ax)
    axes = panels.draw(n_more=len(curves))
    for curve, one in zip(curves, axes.ravel()[level.shape[1] :], strict=True):
        _draw_curve(one, curve)
    trend = points.loc[is_usual, "trend"]
    # most axes show parts behind the link: what is little is judged there
    if not link.is_identity:
        trend = link.of(trend.dropna())
    _flatten(axes, _LEAST_HEIGHT * (trend.max() - trend.min()))
    canvas.add_legend(axes, is_new=ax is None)
    return axes


def _check_asked(fh: Any, X: Frame | None, history: History) -> None:
    """Check that fh is no table or key of a series, and that X comes with it."""
    if fh is None and X is not None:
        raise ValueError(
            "X holds controls at the stamps that fh asks for; got X without fh. Pass "
            "fh, for example fh=X.index, or leave X out: that of fit is known."
        )
    if isinstance(fh, pd.Series | pd.DataFrame):
        raise TypeError(
            f"fh must hold steps or time stamps; got a {type(fh).__name__}. Pass the "
            "index of a table: fh=table.index."
        )
    if isinstance(fh, str) and (fh,) in history.observations.keys:
        raise TypeError(
            f"fh must hold steps or time stamps; got the key {fh!r}. Pass it as "
            f"series={fh!r}."
        )


def _place(
    history: History, series: Hashable, channel: Hashable
) -> tuple[int, Hashable]:
    """Return the number of a series and the name of a channel; by default the first."""
    keys, names = list(history.observations.keys), history.channels
    key = keys[0] if series is None else series
    key = key if isinstance(key, tuple) else (key,)  # of a panel of one level
    channel = names[0] if channel is None else channel
    canvas.check_held(keys, [key], "what fit has seen")
    canvas.check_held(names, [channel], "y in fit")
    return keys.index(key), channel


def _observed(history: History, number: int, channel: Hashable) -> pd.Series:
    """Return the known values of a channel in a series, by stamp."""
    y, key = history.frame()[channel], history.observations.keys[number]
    if key:
        y = y.xs(key, level=list(range(len(key))))
    return y.dropna()


def _is_usual(y: pd.Series) -> pd.Series:
    """Return which observations are not far outside."""
    low, high = y.quantile([0.1, 0.9])
    reach = _FAR * (high - low) or np.inf  # of mostly equal values none is far
    return y.between(low - reach, high + reach)


def _over_time(
    level: pd.DataFrame,
    points: pd.DataFrame,
    is_usual: pd.Series,
    is_ahead: bool,
    ax: canvas.Given,
) -> Panels:
    """Return the picture of what lies over time, with a forecast if it ``is_ahead``."""
    end, usual = points.index[-1], points[is_usual]
    # the others at the highest or lowest place that a usual one has
    edges = points[~is_usual].clip(usual.min(), usual.max(), axis=1)
    seen = level.loc[:end]
    panels = Panels(seen, ax)
    dots = canvas.points
    past = partial(canvas.line, style=_PAST)
    panels.add(seen, name="y", draw=past, label="level")
    panels.add(usual, name="y", draw=dots, label="observed", filled=True)
    panels.add(edges, name="y", draw=dots, label="far outside", filled=False)
    # from the last observation on, so that the line goes on where the level ends
    later = level.loc[end:]
    if is_ahead and len(later) > 1:
        future = partial(canvas.line, style=_FUTURE)
        panels.add(later, name="y", draw=future, label="forecast")
    return panels


def _draw_curve(axes: Axes, curve: Curve) -> None:
    """Draw the effect of a column over its values."""
    fill = (_FUTURE["color"], 0.25)
    canvas.band(
        axes,
        x=curve.values,
        bounds=curve.bounds,
        fill=fill,
        label="90 % interval of an effect",
    )
    canvas.line(
        axes,
        x=curve.values,
        values=curve.effect[:, None],
        style=_FUTURE,
        label="effect",
    )
    # a category's levels stand at whole numbers
    if curve.levels:
        axes.set_xticks(range(len(curve.levels)), curve.levels)
    late = f", if it stays so (memory {curve.memory})" if curve.memory else ""
    late = f", {curve.delay} before" if curve.delay else late
    axes.set(xlabel=f"{curve.column}{late}", ylabel=f"effect of\n{curve.part}")


def _flatten(axes: canvas.AxesArray, least: float) -> None:
    """Give all axes a height, so that what hardly varies looks so."""
    for one in axes.ravel():
        low, high = one.get_ylim()
        short = max(least - (high - low), 0.0) / 2
        one.set_ylim(low - short, high + short)


def _tables(
    y: pd.Series, found: pd.DataFrame, link: Link
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return what is drawn of each component, and what of the observations."""
    # what a model does not have is 0 at all stamps
    is_used = (found != 0).any()
    trend = link.inverse(found["trend"])
    left = link.of(y) - found["signal"].reindex(y.index)
    # exp(a + b) = exp(a) exp(b): what is added to a logarithm are factors
    if link.is_logarithm:
        found, left = np.exp(found), np.exp(left)
    found = found.assign(trend=trend)
    last = ("deviation", "X")
    parts = [part for part in found if part not in ("signal", *last)]
    parts += [part for part in last if is_used.get(part, False)]
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
    # the effect of X is known at the rows of X alone
    if not history.controls:
        between = np.linspace(ticks.min(), ticks.max(), _N_PLACES)
        ticks = np.append(ticks, between.round().astype(np.int64))
    index = stamps_of(np.unique(ticks), rows.like).rename(history.levels[-1])
    if not key:
        return index
    levels = [*([one] for one in key), index]
    return pd.MultiIndex.from_product(levels, names=history.levels)
