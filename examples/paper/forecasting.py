"""What `climate.py` and `stocks.py` share: options, runs, the table, the picture.

Not a script.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from protocol import TASKS, Experiment, arima_forecasts, baselines, forecast_origins
from settings import MODELS

__all__ = [
    "PUBLISHED_MODELS",
    "add_options",
    "draw_origins",
    "print_table",
    "run",
    "run_task",
]

Array = NDArray[np.floating]
Features = Callable[[pd.Index], pd.DataFrame]

PUBLISHED_MODELS = ("Latent ODE-RNN", "Latent ODE-LSTM", "Latent ODE-LSTM+GC")
"""Of which the paper prints figures, in the order of its tables."""

LINES = ("-", "#0072B2"), ("--", "#E69F00"), (":", "#009E73")
"""Dashes and colours of methods in a picture."""


def add_options(parser: argparse.ArgumentParser, output: str) -> None:
    """Add the options of both scripts."""
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    models = list(MODELS)
    parser.add_argument("--models", nargs="*", default=models, choices=models)
    whose = ["ours", "unguarded", "paper", "default"]
    text = "ours, ours without the guard, the paper's, the forecasters' defaults"
    usual = {"default": whose[:3], "choices": whose, "help": text}
    parser.add_argument("--settings", nargs="+", **usual)
    parser.add_argument("--arima", action="store_true", help="also ARIMA, in minutes")
    parser.add_argument("--epochs", type=int, help="in place of the settings'")
    solvers = ["rk4", "dopri5"]
    text = "of the paper's settings; dopri5, which it states, takes hours"
    parser.add_argument("--solver", default="rk4", choices=solvers, help=text)
    parser.add_argument("--output", type=Path, default=Path(output), help="a folder")


def run_task(
    experiment: Experiment,
    task: str,
    settings: dict[str, Any] | None,
    model: str,
    seed: int,
    features: Features | None = None,
) -> tuple[Array, int]:
    """Train a model once and forecast from every origin.

    Without settings only its seed is set: it chooses window and horizon itself.

    Returns
    -------
    ndarray of shape (origin, ahead, channel)
        Scaled.
    int
        The epoch whose weights forecast; 0 where the guard refused them.
    """
    seen, ahead = TASKS[task]
    forecaster_class, threshold = MODELS[model]
    arguments = {"finetune_epochs": 0, "random_state": seed, **threshold}
    if settings is not None:
        arguments = {**settings, **arguments, "window_length": seen, "horizon": ahead}
    forecaster = forecaster_class(**arguments)
    found = forecast_origins(forecaster, experiment, seen, ahead, features)
    return found, forecaster.pretrained_.best_epoch


def run(
    experiment: Experiment,
    options: argparse.Namespace,
    settings: dict[str, tuple[dict[str, dict[str, Any]], Features | None]],
    seasonal: bool,
) -> tuple[pd.DataFrame, dict[str, dict[str, Array]]]:
    """Run every baseline and model of the chosen tasks.

    Parameters
    ----------
    experiment : Experiment
    options : Namespace
        Of `add_options`.
    settings : dict
        By whose they are: settings per task, and what gives X from the stamps.
    seasonal : bool
        Whether baselines that know the calendar take part.

    Returns
    -------
    table : DataFrame
        A row for every fit, with task, method, seed, mse, seconds and best epoch (NaN
        of a baseline).
    forecasts : dict of dict
        By task and method, scaled; of the first seed.
    """
    rows: list[dict[str, Any]] = []
    kept: dict[str, dict[str, Array]] = {}

    def add(
        task: str,
        method: str,
        seed: int,
        found: Array,
        seconds: float = np.nan,
        best_epoch: float = np.nan,
    ) -> None:
        mse = experiment.mse(found)
        row = {"task": task, "method": method, "seed": seed, "mse": mse}
        rows.append({**row, "seconds": seconds, "best_epoch": best_epoch})
        kept[task].setdefault(method, found)
        took = "" if np.isnan(seconds) else f"seed {seed}{seconds:8.1f} s"
        level = ", the structural model alone" if best_epoch == 0 else ""
        print(f"{task:7} {method:34}{mse:9.4f} {took}{level}", flush=True)

    for task in options.tasks:
        seen, ahead = TASKS[task]
        kept[task] = {}
        for method, found in baselines(experiment, seen, ahead, seasonal).items():
            add(task, method, 0, found)
        if options.arima:
            add(task, "ARIMA by AIC", 0, arima_forecasts(experiment, ahead))
        for whose in options.settings:
            per_task, features = settings["paper" if whose == "paper" else "ours"]
            changes: dict[str, Any] = {
                "unguarded": {"guard": False},
                "paper": {"method": options.solver},
            }.get(whose, {})
            if options.epochs:
                changes["max_epochs"] = options.epochs
            chosen = None if whose == "default" else {**per_task[task], **changes}
            for model, seed in product(options.models, options.seeds):
                started = time.perf_counter()
                found, epoch = run_task(experiment, task, chosen, model, seed, features)
                seconds = time.perf_counter() - started
                add(task, f"{model}, {whose}", seed, found, seconds, epoch)
    return pd.DataFrame(rows), kept


def print_table(
    table: pd.DataFrame, published: dict[str, tuple[float, ...]], digits: int
) -> pd.DataFrame:
    """Print mean and standard deviation over seeds, and the paper's own figures.

    Parameters
    ----------
    table : DataFrame
        Of `run`.
    published : dict of tuple
        By task, the figures of `PUBLISHED_MODELS`.
    digits : int
        After the point.

    Returns
    -------
    DataFrame
        The means, (method, task).
    """
    groups = table.groupby(["method", "task"], sort=False)["mse"]
    means = groups.mean().unstack(sort=False)
    spread = groups.std(ddof=0).unstack(sort=False)
    counts = groups.count().unstack(sort=False)
    refused = table["best_epoch"].eq(0).groupby([table["method"], table["task"]]).all()
    tasks = list(means.columns)
    titles = [title for task in tasks for title in (task, "published")]
    print(f"\n{'mean squared error':34}" + "".join(f"{title:>19}" for title in titles))
    for method in means.index:
        cells = []
        for task in tasks:
            cell = f"{means.loc[method, task]:.{digits}f}"
            if counts.loc[method, task] > 1:
                cell += f" ({spread.loc[method, task]:.{digits}f})"
            if refused[method, task]:
                cell += " *"
            model = method.split(",")[0]
            figures = dict(zip(PUBLISHED_MODELS, published[task], strict=True))
            figure = figures.get(model) if "," in method else None
            cells += [cell, "" if figure is None else f"{figure:.3f}"]
        print(f"{method:34}" + "".join(f"{cell:>19}" for cell in cells))
    print(
        "Published: the paper's figures, whose scaling is not stated: for orientation, "
        "not for comparison. In brackets: standard deviation over seeds. *: in every "
        "seed the guard kept the structural model alone."
    )
    return means


def draw_origins(
    experiment: Experiment,
    forecasts: dict[str, dict[str, Array]],
    best: str,
    others: Sequence[str],
    path: Path,
    units: Mapping[str, str] | None = None,
) -> None:
    """Save two channels' forecasts from a typical origin of up to three tasks.

    Parameters
    ----------
    experiment : Experiment
    forecasts : dict of dict of ndarray
        By task and method, scaled.
    best : str
        A method.
    others : sequence of str
        Methods to show beside it. Typical is the origin whose error, minus that of
        the last one, is the median.
    path : Path
    units : dict of str, optional
        Of channels.
    """
    channels = list(experiment.data.columns)[:2]
    tasks = list(forecasts)
    tasks = tasks if len(tasks) < 4 else [tasks[0], tasks[-2], tasks[-1]]
    figure, axes = plt.subplots(
        len(channels),
        len(tasks),
        figsize=(2.7 * len(tasks), 2.2 * len(channels) + 0.8),
        layout="constrained",
        squeeze=False,
    )
    deviation, mean = experiment.train.std(), experiment.train.mean()
    for j, task in enumerate(tasks):
        ahead = TASKS[task][1]
        origins = experiment.origins(ahead)
        ours, baseline = (
            np.nanmean(experiment.errors(forecasts[task][name]), axis=(1, 2))
            for name in (best, others[-1])
        )
        k = np.argsort(ours - baseline)[len(origins) // 2]
        start = origins[k]
        shown = min(TASKS[task][0], ahead)
        past = experiment.data.iloc[start - shown : start]
        future = experiment.data.iloc[start : start + ahead]
        for i, channel in enumerate(channels):
            ax = axes[i, j]
            ax.plot(past[channel], "o", color="0.45", ms=3, label="seen")
            ring = {"mfc": "white", "mec": "0.15", "mew": 0.7}
            ax.plot(future[channel], "o", ms=3.5, label="truth", **ring)
            styles = zip((best, *others), LINES, strict=False)
            for method, (dashes, color) in styles:
                line = forecasts[task][method][k, :, i]
                line = line * deviation[channel] + mean[channel]
                label = method.removesuffix(", ours")
                ax.plot(future.index, line, dashes, color=color, lw=1.7, label=label)
            ax.axvline(future.index[0], color="0.65", lw=0.8, ls=":")
            ax.spines[["top", "right"]].set_visible(False)
            ticks = [past.index[0], future.index[-1]]
            ax.set_xticks(ticks, [f"{tick:%d %b %Y}" for tick in ticks])
            ax.tick_params(labelsize=8)
            if i == 0:
                ax.set_title(f"{ahead} days ahead", fontsize=10)
            if j == 0:
                unit = (units or {}).get(channel)
                ax.set_ylabel(f"{channel} ({unit})" if unit else channel)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)
