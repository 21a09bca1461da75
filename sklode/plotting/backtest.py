"""Errors of a backtest, origin by origin."""

from __future__ import annotations

from typing import Any

import pandas as pd

from sklode.plotting import canvas

_METHODS = {"forecaster": 0, "last value": 4, "seasonal naive": 1}
"""Which of the common styles each has."""


def plot_backtest(results: pd.DataFrame, *, ax: Any = None) -> Any:
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
        The mean absolute error of each method at each origin, in units of y, with its
        mean in the legend; and the share of values inside the interval, with the one
        that was asked for as a line.

    Raises
    ------
    TypeError
        If ``results`` is no such table.
    """
    index, wanted = getattr(results, "index", None), {"MAE", "coverage"}
    names = list(getattr(index, "names", []))
    if names != ["origin", "method"] or not wanted <= set(results.columns):
        raise TypeError(
            "plot_backtest draws what sklode.model_selection.backtest returns; got a "
            f"{type(results).__name__} with the index levels {names}. Pass that table."
        )
    sheet = canvas.axes_of(ax, (2,), (4.5, 3.4), n_columns=2)
    errors = results["MAE"].unstack("method")
    origins = errors.index.astype(str)
    styles = canvas.styles_of(range(6))
    for method, style in _METHODS.items():
        if method in errors:
            values = errors[method].to_numpy()
            label = f"{method}, {values.mean():.3g} on average"
            canvas.line(sheet.flat[0], origins, values, styles[style], label)
    inside = results["coverage"].xs("forecaster", level="method").to_numpy()
    canvas.line(sheet.flat[1], origins, inside, styles[0], "_")
    asked = results.attrs.get("coverage", 0.9)
    label = f"asked for, {asked:g}"
    sheet.flat[1].axhline(asked, color=canvas.INK, lw=1, ls="--", label=label)
    sheet.flat[0].set(ylabel="mean absolute error", ylim=(0, None))
    sheet.flat[1].set(ylabel="share inside the interval", ylim=(0, 1.05))
    for axes in sheet.flat:
        axes.set_xlabel("forecast from")
        axes.tick_params("x", labelrotation=30)
    return canvas.explained(sheet, ax is None)
