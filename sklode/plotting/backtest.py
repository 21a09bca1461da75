"""Errors of a backtest, origin by origin."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from sklode.plotting import canvas

_MOST_LABELS = 12  # of origins, on one axis


def plot_backtest(
    results: pd.DataFrame, *, ax: canvas.Given = None
) -> canvas.AxesArray:
    """Plot what `sklode.model_selection.backtest` found: errors and coverage.

    Parameters
    ----------
    results : DataFrame
        What ``backtest`` returns.
    ax : array of Axes, optional
        Two to draw on; None: a new figure.

    Returns
    -------
    ndarray of Axes
        The mean absolute error at each origin of the forecaster and of the simple
        methods that are best, five at most, with its mean in the legend; and the share
        of values inside the interval, beside what was asked for.

    Raises
    ------
    TypeError
        If ``results`` is no such table.
    """
    names = list(getattr(getattr(results, "index", None), "names", []))
    columns = list(getattr(results, "columns", []))
    is_whole = names == ["origin", "method"] and {"MAE", "coverage"} <= {*columns}
    if not (is_whole and "forecaster" in results.index.unique("method")):
        raise TypeError(
            "plot_backtest takes the whole table of backtest, with the rows of "
            f"'forecaster'; got a {type(results).__name__} of the shape "
            f"{np.shape(results)}, with the index levels {names} and the columns "
            f"{columns[:9]}. Pass what sklode.model_selection.backtest returns."
        )
    sheet = canvas.axes_of(ax, shape=(2,), size=(4.5, 3.8), n_columns=2)
    errors, coverage = sheet
    # as texts, for origins are as far apart as their rows, but each is one forecast
    origins = _labels_of(results.index.unique("origin"))
    blue, orange, green, pink, black, sky = canvas.styles_of(range(6))
    # as many as styles that can be told apart, in their own order
    means = results["MAE"].groupby("method", sort=False).mean()
    shown = {"forecaster", *means.drop("forecaster").nsmallest(5).index}
    # black, the most unlike blue, for the method that comes second
    looks = iter([blue, black, orange, green, pink, sky])
    for method, own in results.groupby("method", sort=False):
        if method not in shown:
            continue
        values = own["MAE"].to_numpy()
        label = f"{method}, {values.mean():.3g} on average"
        canvas.line(errors, x=origins, values=values, style=next(looks), label=label)
        if method == "forecaster":
            # matplotlib leaves a label that begins with "_" out of the legend
            shares = own["coverage"].to_numpy()
            canvas.line(coverage, x=origins, values=shares, style=blue, label="_")
    # pandas drops attrs where tables are put together: then backtest's default
    asked = results.attrs.get("coverage", 0.9)
    label = f"asked for, {asked:g}"
    coverage.axhline(asked, color=canvas.INK, lw=1, ls="--", label=label)
    errors.set(ylabel="mean absolute error", ylim=(0, None))
    coverage.set(ylabel="share inside the interval", ylim=(0, 1.05))
    for axes in sheet:
        axes.set_xlabel("forecast from")
        axes.set_xticks(origins[:: math.ceil(len(origins) / _MOST_LABELS)])
        # each ends at its tick, or the last one would lie beyond the figure
        axes.tick_params("x", labelrotation=30)
        for label in axes.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")
    canvas.add_legend(sheet, is_new=ax is None)
    return sheet


def _labels_of(origins: pd.Index) -> pd.Index:
    """Return a text for each origin: of stamps the date, and what else differs."""
    if not isinstance(origins, pd.DatetimeIndex):
        return origins.astype(str)
    local = origins.tz_localize(None)
    # where clocks are set back, offsets alone tell an hour from the next
    if not local.is_unique:
        return origins.astype(str)
    passed = local - local.normalize()
    if passed.nunique() == 1:
        return local.strftime("%Y-%m-%d")
    if (passed == passed.floor("min")).all():
        return local.strftime("%Y-%m-%d %H:%M")
    return local.astype(str)
