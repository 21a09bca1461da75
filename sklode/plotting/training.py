"""How a training went, epoch by epoch, and how far its gradients reach."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from sklode.data.checks import check_choice
from sklode.diagnostics import check_forecaster, gradient_flow
from sklode.plotting.canvas import canvas
from sklode.plotting.styles import CURVES, GUIDE, INK, Curve

__all__ = ["plot_gradient_flow", "plot_history"]

_MANY = 40
"""Of more epochs than these, or visits, not each one has a marker."""


def plot_history(forecaster: Any, *, title: str | None = None, ax: Any = None) -> Any:
    """Plot a training epoch by epoch: losses, parts of the bound, gradient norms.

    Parameters
    ----------
    forecaster : forecaster of this package, or DataFrame
        Fitted; or its ``history_``, which knows neither the best epoch nor the
        threshold of clipping: then they are not marked.
    title : str, optional
        Of the picture.
    ax : array of three Axes, optional
        Where to draw. None: a new figure.

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
    ImportError
        If matplotlib is not installed.
    TypeError
        If ``forecaster`` is neither.
    NotFittedError
        If it is not fitted.
    ValueError
        If it trained for no epoch, or ``ax`` does not hold three axes.

    Examples
    --------
    >>> from sktime.datasets import load_airline
    >>> from sklode import LatentODELSTMForecaster
    >>> from sklode.plotting import plot_history
    >>> forecaster = LatentODELSTMForecaster(max_epochs=2).fit(load_airline())
    >>> axes = plot_history(forecaster)
    """
    best = threshold = None
    history = forecaster
    if not isinstance(forecaster, pd.DataFrame):
        check_forecaster(forecaster, "plot_history")
        history, best = forecaster.history_, forecaster.best_epoch_
        if isinstance(forecaster.clip_norm, Real):  # those of numpy too
            threshold = float(forecaster.clip_norm)
    _check_history(history)
    sheet = canvas(ax, (3,), "part of the history", size=(3.8, 3.2), n_columns=3)
    losses, parts, norms = sheet.axes
    epochs = history.index.to_numpy()
    columns = {losses: ["loss", "validation_loss"], parts: ["log_likelihood", "kl"]}
    for axes, names in {**columns, norms: ["grad_norm"]}.items():
        for name, style in zip(names, CURVES, strict=False):
            _draw(axes, epochs, history[name].to_numpy(), style, _LABELS[name])
    losses.set_ylabel("loss per observed value")
    parts.set_ylabel("nats per observed value")
    norms.set_ylabel("gradient norm before clipping")
    if (history["grad_norm"] > 0).any():
        norms.set_yscale("log")
    norms.margins(y=0.15)
    if threshold is not None:
        label = f"clip_norm = {threshold:g}"
        norms.axhline(threshold, color=INK, linewidth=1, linestyle="--", label=label)
    diverged = epochs[history["restored_epoch"].to_numpy() > 0]
    for axes in sheet.axes:
        _mark(axes, best, diverged)
        axes.set_xlabel("epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
    sheet.head(title)
    sheet.explain_each()
    return sheet.returned


_LABELS = {
    "loss": "training loss",
    "validation_loss": "validation loss",
    "log_likelihood": "log-likelihood",
    "kl": "KL divergence",
    "grad_norm": "gradient norm",
}


def _check_history(history: pd.DataFrame) -> None:
    missing = [c for c in [*_LABELS, "restored_epoch"] if c not in history]
    if missing:
        raise ValueError(
            f"a history must have the columns of history_; got none called "
            f"{missing[0]!r} among {list(history.columns)}. Pass forecaster.history_."
        )
    if not len(history):
        raise ValueError(
            "plot_history needs the history of a training; got one without an epoch "
            "(finetune_epochs=0 trains for none). Pass a forecaster that was trained."
        )


def _draw(axes: Any, x: Any, values: Any, style: Curve, label: str) -> None:
    """Draw a line through finite values, with a marker now and then."""
    known = np.isfinite(values)
    if not known.any():
        return
    axes.plot(
        x[known],
        values[known],
        **style.line,
        marker=style.marker,
        markersize=3.5,
        markevery=max(1, -(-int(known.sum()) // _MANY)),
        label=label,
    )


def _mark(axes: Any, best: int | None, diverged: Any) -> None:
    """Mark the epoch whose weights are kept, and those that were restored."""
    if best is not None:
        label = f"best epoch, {best}"
        axes.axvline(best, color=GUIDE, linewidth=1.2, linestyle=":", label=label)
    if len(diverged):
        axes.plot(
            diverged,
            np.full(len(diverged), 0.03),
            "x",
            transform=axes.get_xaxis_transform(),
            color=INK,
            markersize=6,
            label="diverged, restored",
        )


def plot_gradient_flow(
    flow: Any,
    *,
    x: str = "visits",
    title: str | None = None,
    ax: Any = None,
) -> Any:
    r"""Plot how much of the error each visit of the encoder feels.

    The norms :math:`\|\partial h_1 / \partial h_k\|` of
    `sklode.diagnostics.gradient_flow`, as powers of ten: a straight line is a gradient
    that vanishes, or explodes, exponentially.

    Parameters
    ----------
    flow : DataFrame, forecaster of this package, or dict of them
        What ``gradient_flow`` returns; or a fitted forecaster, for that of the series
        that it has seen. Several by name are compared.
    x : {"visits", "time"}, default="visits"
        Visits between, or time between in ``time_unit_``.
    title : str, optional
        Of the picture.
    ax : Axes, optional
        Where to draw. None: a new figure.

    Returns
    -------
    Axes
        With a line for the derivative by h and, of an LSTM, one by C: the geometric
        mean over series, whose own lines are thin. Of several the larger of both parts.
        Norms of zero, as of h_1 by C_1, are absent.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    TypeError
        If ``flow`` is neither.
    NotFittedError
        If a forecaster is not fitted.
    ValueError
        If a table lacks a column, or there are none or more than six.

    Examples
    --------
    >>> from sktime.datasets import load_airline
    >>> from sklode import LatentODELSTMForecaster
    >>> from sklode.plotting import plot_gradient_flow
    >>> forecaster = LatentODELSTMForecaster(max_epochs=2).fit(load_airline())
    >>> ax = plot_gradient_flow(forecaster)
    """
    check_choice("x", x, ("visits", "time"))
    lines = _flows(flow)
    sheet = canvas(ax, (), "picture", size=(6.4, 4.2))
    (axes,) = sheet.axes
    axes.axhline(0.0, color=GUIDE, linewidth=0.8, zorder=0)
    for (label, table), style in zip(lines.items(), CURVES, strict=False):
        for _, one in table.groupby("series"):
            axes.plot(one[x], one["log10_norm"], color=style.color, lw=0.5, alpha=0.25)
        mean = table.groupby("visits")[["visits", "time", "log10_norm"]].mean()
        _draw(axes, mean[x].to_numpy(), mean["log10_norm"].to_numpy(), style, label)
    axes.set_xlabel(
        "visits between" if x == "visits" else "time between, in time units"
    )
    axes.set_ylabel(r"$\log_{10}$ of the norm")
    sheet.head(title)
    sheet.explain()
    return sheet.returned


def _flows(flow: Any) -> dict[str, pd.DataFrame]:
    """Return a table with ``series``, ``visits``, ``time``, ``log10_norm`` per line."""
    if not isinstance(flow, Mapping):
        table = _flow(flow)
        labels = {
            "h": r"$\|\partial h_1 / \partial h_k\|$",
            "c": r"$\|\partial h_1 / \partial C_k\|$",
        }
        parts = [by for by in labels if (table["by"] == by).any()]
        return {labels[by]: table[table["by"] == by] for by in parts}
    if not flow:
        raise ValueError(
            "there must be a line to draw; got an empty mapping. Pass "
            "{label: forecaster}."
        )
    if len(flow) > len(CURVES):
        raise ValueError(
            f"at most {len(CURVES)} lines can be told apart; got {len(flow)}. Draw "
            "them in several pictures."
        )
    keys = ["series", "visits", "time"]
    return {
        str(name): _flow(one).groupby(keys, as_index=False)["log10_norm"].max()
        for name, one in flow.items()
    }


def _flow(flow: Any) -> pd.DataFrame:
    """Return what `gradient_flow` says, where it is finite."""
    table = flow if isinstance(flow, pd.DataFrame) else gradient_flow(flow)
    missing = [
        c for c in ("series", "visits", "time", "by", "log10_norm") if c not in table
    ]
    if missing:
        raise ValueError(
            "a table must be what gradient_flow returns; got no column "
            f"{missing[0]!r} among {list(table.columns)}. Pass gradient_flow(model)."
        )
    return table[np.isfinite(table["log10_norm"])].sort_values(["series", "visits"])
