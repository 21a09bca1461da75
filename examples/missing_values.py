"""Forecast two channels that are never observed together, with a stretch missing.

Two sensors see two oscillations that belong together, each at stamps of its own; one of
them falls silent for a while. Nothing is filled in or put on a grid: a missing value is
NaN. A picture is saved, and both channels' errors against the truth without noise are
printed, in the silent stretch and ahead.

    python examples/missing_values.py [--output missing.png] [--quick]
"""

from __future__ import annotations

import argparse

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from sklode import LatentODELSTMForecaster

START = pd.Timestamp("2026-03-01")
END, AHEAD = 200.0, 30.0  # hours
SILENT = (118.0, 142.0)  # hours without "flow"
COLOURS = {"level": "tab:blue", "flow": "tab:orange"}


def truth(hours: np.ndarray) -> pd.DataFrame:
    """Return both channels without noise."""
    phase = 2 * np.pi * hours / 20
    stamps = START + pd.to_timedelta(hours, unit="h").round("s")
    level = 40 + 6 * np.sin(phase) + 2 * np.sin(3 * phase)
    flow = 3 + np.cos(phase)
    return pd.DataFrame({"level": level, "flow": flow}, stamps)


def observations(seed: int = 0) -> pd.DataFrame:
    """Return what the sensors saw: at each stamp one of them."""
    rng = np.random.default_rng(seed)
    hours = np.cumsum(rng.exponential(0.7, 400))
    hours = hours[hours < END]
    y = truth(hours)
    y += rng.standard_normal(y.shape) * [0.5, 0.1]
    sees_level = rng.random(len(y)) < 0.5
    silent = (hours > SILENT[0]) & (hours < SILENT[1])
    y.loc[~sees_level, "level"] = np.nan
    y.loc[sees_level | silent, "flow"] = np.nan
    return y


def draw(y: pd.DataFrame, forecaster: LatentODELSTMForecaster, output: str) -> None:
    """Save the picture: a row per channel, its data, the model and the truth."""
    hours = np.arange(60, END + AHEAD, 0.25)
    exact = truth(hours)
    model = forecaster.predict(fh=exact.index)
    interval = forecaster.predict_interval(fh=exact.index, coverage=0.9)
    figure, rows = plt.subplots(
        2, 1, figsize=(10, 5.5), sharex=True, layout="constrained"
    )
    for axes, (name, colour) in zip(rows, COLOURS.items(), strict=True):
        seen = y[name].dropna()[exact.index[0] :]
        low, high = (interval[name][0.9][side] for side in ("lower", "upper"))
        axes.fill_between(exact.index, low, high, color=colour, alpha=0.18, lw=0)
        axes.plot(exact.index, exact[name], color="0.6", lw=1, label="truth")
        axes.plot(model.index, model[name], color=colour, lw=1.8, label="model")
        axes.plot(seen.index, seen, ".", color="0.15", ms=4.5, label="observed")
        axes.axvline(y.index[-1], color="0.4", lw=0.8, ls="--")
        axes.set_ylabel(name)
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0)
    silent = [START + pd.Timedelta(hours=h) for h in SILENT]
    rows[1].axvspan(*silent, color="0.93", zorder=0)
    middle = silent[0] + (silent[1] - silent[0]) / 2
    place = {"ha": "center", "va": "bottom", "color": "0.35", "fontsize": 9}
    across = rows[1].get_xaxis_transform()
    rows[1].text(middle, 0.02, "no flow observed", transform=across, **place)
    ahead = y.index[-1] + pd.Timedelta(hours=AHEAD / 2)
    across = rows[0].get_xaxis_transform()
    rows[0].text(ahead, 1.0, "forecast", transform=across, **place)
    rows[0].set_title("Two channels, never observed together", loc="left")
    rows[0].legend(
        loc="upper left", ncols=3, frameon=False, bbox_to_anchor=(0.42, 1.17)
    )
    rows[1].xaxis.set_major_formatter(
        mpl.dates.ConciseDateFormatter(rows[1].xaxis.get_major_locator())
    )
    figure.savefig(output, dpi=120)


def main(arguments: list[str] | None = None) -> pd.DataFrame:
    """Fit, print the errors, save the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default="missing.png", help="the picture's path")
    parser.add_argument("--quick", action="store_true", help="hardly train")
    options = parser.parse_args(arguments)

    y = observations()
    print(
        f"{len(y)} stamps; level is observed at {y['level'].count()} of them, flow at "
        f"{y['flow'].count()}, both at {int(y.notna().all(axis=1).sum())}"
    )
    forecaster = LatentODELSTMForecaster(
        window_length=60,
        horizon=30,
        max_epochs=1 if options.quick else None,
        random_state=0,
    ).fit(y)
    spans = {"in the silent stretch": SILENT, "ahead": (END, END + AHEAD)}
    errors = {}
    for name, (begin, end) in spans.items():
        exact = truth(np.arange(begin, end, 0.25))
        squares = (forecaster.predict(fh=exact.index) - exact) ** 2
        errors[name] = np.sqrt(squares.mean()) / truth(np.arange(0, 20, 0.25)).std()
    table = pd.DataFrame(errors)
    print("\nRMSE over the signal's standard deviation\n", table.round(2), sep="")
    draw(y, forecaster, options.output)
    print(f"\nThe picture is in {options.output}")
    return table


if __name__ == "__main__":
    main()
