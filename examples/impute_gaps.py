"""Fill a gap of 20 stamps, and ten before the first, in two noisy sines.

The stamps are irregular: gaps are exponential, of an hour on average. A forecaster that
has learned the rest of the series answers inside the gap from the observations on both
sides of it, and before the first observation backward in time, next to what is usual:
the line between the neighbours, and the cubic spline through all observations. Before
the first observation there is a forecast of the mirrored series as well. A table of
mean squared errors is printed and a picture of the first series saved.

    python examples/impute_gaps.py [--output impute.png] [--quick]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.dates import ConciseDateFormatter
from scipy.interpolate import CubicSpline

from sklode import LatentODELSTMForecaster

N_SERIES, N_STAMPS, N_GAP, N_EARLY = 2, 300, 20, 10
START = pd.Timestamp("2026-01-01")
SETTINGS: dict[str, Any] = {"random_state": 0}
QUICK: dict[str, Any] = {
    "hidden_size": 3,
    "latent_size": 2,
    "field_width": 4,
    "emission_width": 4,
    "window_length": 12,
    "horizon": 2,
    "max_epochs": 1,
    "n_samples": 10,
}
OURS, LINE, SPLINE = "Latent ODE-LSTM", "line", "cubic spline"
MIRRORED = "Latent ODE-LSTM, mirrored"
STYLES = {
    OURS: ("tab:green", "-"),
    MIRRORED: ("tab:purple", "-."),
    LINE: ("tab:orange", "--"),
    SPLINE: ("tab:blue", ":"),
}


class Problem(NamedTuple):
    """A series with a gap, what was cut out of it, and the signal without noise."""

    kept: pd.Series
    gap: pd.Series
    early: pd.Series
    signal: Callable[[pd.DatetimeIndex], np.ndarray]


def hours(index: pd.DatetimeIndex) -> np.ndarray:
    """Return the time since the start."""
    return ((index - START) / pd.Timedelta("1h")).to_numpy()


def make_problem(seed: int) -> Problem:
    """Draw two sines with noise of 0.1, and cut out the gap and the first stamps."""
    rng = np.random.default_rng(seed)
    gaps = np.maximum(rng.exponential(1.0, N_STAMPS), 1e-3)
    stamps = START + pd.to_timedelta(np.cumsum(gaps), unit="h").round("s")
    phases = rng.uniform(0, 2 * np.pi, 2)

    def signal(index: pd.DatetimeIndex) -> np.ndarray:
        t = 2 * np.pi * hours(index)
        return np.sin(t / 20 + phases[0]) + 0.5 * np.sin(t / 7 + phases[1])

    noise = 0.1 * rng.standard_normal(N_STAMPS)
    y = pd.Series(signal(stamps) + noise, stamps, name="signal")
    begin = int(rng.integers(N_STAMPS // 4, N_STAMPS // 2))
    gap, early = y[begin : begin + N_GAP], y[:N_EARLY]
    return Problem(y[N_EARLY:].drop(gap.index), gap, early, signal)


def line(kept: pd.Series, index: pd.DatetimeIndex) -> np.ndarray:
    """Return the line between neighbours; beyond the ends, the nearest value."""
    return np.interp(hours(index), hours(kept.index), kept)


def spline(kept: pd.Series, index: pd.DatetimeIndex) -> np.ndarray:
    """Return the cubic spline through all observations."""
    return CubicSpline(hours(kept.index), kept)(hours(index))


def mirrored(index: pd.DatetimeIndex) -> pd.DatetimeIndex:
    """Return the stamps with time running backward."""
    return (START + (START - index))[::-1]


class Fitted:
    """Both forecasters of a problem: of the series, and of the mirrored one."""

    def __init__(self, problem: Problem, settings: dict[str, Any]) -> None:
        self.problem = problem
        kept = problem.kept
        self.forecaster = LatentODELSTMForecaster(**settings).fit(kept)
        mirror = pd.Series(kept.to_numpy()[::-1], mirrored(kept.index))
        self.backward = LatentODELSTMForecaster(**settings).fit(mirror)

    def answers(self, index: pd.DatetimeIndex) -> dict[str, np.ndarray]:
        """Return every method's values; the mirrored one's before the first stamp."""
        kept = self.problem.kept
        result = {
            SPLINE: spline(kept, index),
            LINE: line(kept, index),
            OURS: self.forecaster.predict(fh=index).to_numpy(),
        }
        before = index[index < kept.index[0]]
        if len(before):
            forecast = self.backward.predict(fh=mirrored(before)).to_numpy()
            result[MIRRORED] = np.full(len(index), np.nan)
            result[MIRRORED][: len(before)] = forecast[::-1]
        return result

    def errors(self) -> dict[tuple[str, str], float]:
        """Return the mean squared errors at the observations that were cut out."""
        parts = {"gap": self.problem.gap, "before": self.problem.early}
        return {
            (part, name): float(np.mean((answer - truth.to_numpy()) ** 2))
            for part, truth in parts.items()
            for name, answer in self.answers(truth.index).items()
        }


def draw(axes: Axes, fitted: Fitted, hidden: pd.Series, margin: str) -> None:
    """Draw a part that was cut out, and what is around it."""
    problem, width = fitted.problem, pd.Timedelta(margin)
    around = problem.kept[hidden.index[0] - width : hidden.index[-1] + width]
    begin = min(hidden.index[0], around.index[0])
    fine = pd.date_range(begin, around.index[-1], periods=300)
    before = around.index[around.index < hidden.index[0]]
    after = around.index[around.index > hidden.index[-1]]
    unseen = (before[-1] if len(before) else begin), after[0]
    axes.axvspan(*unseen, color="0.95", lw=0, zorder=0)
    interval = fitted.forecaster.predict_interval(fh=fine, coverage=0.9)
    low, high = (interval.iloc[:, k].to_numpy() for k in (0, 1))
    axes.fill_between(fine, low, high, color=STYLES[OURS][0], alpha=0.15, lw=0)
    axes.plot(fine, problem.signal(fine), color="0.6", lw=1.2, label="truth")
    for name, answer in fitted.answers(fine).items():
        color, style = STYLES[name]
        shown = (fine >= unseen[0]) & (fine <= unseen[1])
        if name == OURS:
            shown[:] = True
        axes.plot(fine[shown], answer[shown], style, color=color, lw=1.8, label=name)
    axes.plot(around.index, around, "k.", markersize=7, label="observed")
    cut_out = {"mfc": "white", "markersize": 5, "label": "cut out"}
    axes.plot(hidden.index, hidden, "ko", **cut_out)
    axes.set_xlim(begin, around.index[-1])
    axes.set_ylim(-2.4, 2.4)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(axes.xaxis.get_major_locator()))


def main(arguments: Sequence[str] | None = None) -> pd.DataFrame:
    """Fit each series, print the table, save the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default="impute.png", help="the picture's path")
    parser.add_argument(
        "--quick", action="store_true", help="one series, hardly any training"
    )
    options = parser.parse_args(arguments)
    settings = {**SETTINGS, **(QUICK if options.quick else {})}
    rows: dict[str, dict[tuple[str, str], float]] = {}
    drawn = []
    for seed in range(1 if options.quick else N_SERIES):
        started = time.perf_counter()
        fitted = Fitted(make_problem(seed), settings)
        seconds = time.perf_counter() - started
        rows[f"series {seed}"] = fitted.errors()
        print(f"series {seed}: both forecasters learned in {seconds:.1f} seconds")
        drawn.append(fitted)
    table = pd.DataFrame(rows).T
    table.loc["mean"] = table.mean()
    print("\nMean squared error at the observations cut out; the noise has 0.01")
    print(table.to_string(float_format="{:.3g}".format))

    figure, axes = plt.subplots(
        1, 2, figsize=(12, 4.8), layout="constrained", sharey=True, width_ratios=(3, 2)
    )
    draw(axes[0], drawn[0], drawn[0].problem.gap, "16h")
    draw(axes[1], drawn[0], drawn[0].problem.early, "16h")
    axes[0].set_title(f"A gap of {N_GAP} stamps")
    axes[1].set_title(f"{N_EARLY} stamps before the first")
    handles, labels = axes[1].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=len(labels), frameon=False
    )
    figure.savefig(options.output, dpi=120)
    plt.close(figure)
    print(f"\nThe picture is in {options.output}")
    return table


if __name__ == "__main__":
    main()
