"""Forecast a noisy sum of two sines at random times, with calibrated intervals.

The picture shows 50 % and 90 % intervals, those of the model's own spread, and a few
sample paths; the table says how much of the truth they cover.

    python examples/intervals.py [--output intervals.png]
"""

from __future__ import annotations

import argparse

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from sklode import LatentODELSTMForecaster

N_SEEN, N_AHEAD = 400, 30


def two_sines(seed: int) -> pd.Series:
    """Return a series at exponential gaps of an hour in the mean, noise 0.1."""
    rng = np.random.default_rng(seed)
    hours = np.cumsum(np.maximum(rng.exponential(1.0, N_SEEN + N_AHEAD), 1e-3))
    phases = rng.uniform(0, 2 * np.pi, 2)
    slow = np.sin(2 * np.pi * hours / 20 + phases[0])
    fast = 0.5 * np.sin(2 * np.pi * hours / 7 + phases[1])
    stamps = pd.Timestamp("2021-01-01") + pd.to_timedelta(hours, unit="h").round("s")
    return pd.Series(slow + fast + 0.1 * rng.standard_normal(len(hours)), stamps)


def main() -> None:
    """Fit, print how much is covered, save the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default="intervals.png", help="the picture's path")
    parser.add_argument("--epochs", type=int, help="fewer make a quick try")
    arguments = parser.parse_args()

    y = two_sines(seed=102)
    train, test = y[:N_SEEN], y[N_SEEN:]
    forecaster = LatentODELSTMForecaster(max_epochs=arguments.epochs, random_state=0)
    forecaster.fit(train)
    stamps = pd.date_range(train.index[-40], test.index[-1], periods=400)
    forecast = forecaster.predict(stamps)
    bands = forecaster.predict_interval(stamps, coverage=[0.5, 0.9]).droplevel(
        0, axis=1
    )
    asked = forecaster.predict_interval(test.index, coverage=[0.5, 0.9])
    asked = asked.droplevel(0, axis=1)
    for coverage in (0.5, 0.9):
        inside = test.between(asked[coverage]["lower"], asked[coverage]["upper"])
        print(
            f"{coverage:.0%} intervals cover {inside.mean():.0%} of the next {N_AHEAD}"
        )
    print(forecaster.interval_scale_.round(2).to_string())

    figure, axes = plt.subplots(figsize=(10, 4.5), layout="constrained")
    for coverage, alpha in ((0.9, 0.15), (0.5, 0.25)):
        low, high = bands[coverage]["lower"], bands[coverage]["upper"]
        band = axes.fill_between(
            stamps, low, high, color="tab:green", alpha=alpha, lw=0
        )
        band.set_label(f"{coverage:.0%} interval")
    paths = forecaster.sample(stamps, n_samples=5, noise=False).iloc[:, 0].unstack(0)
    axes.plot(stamps, paths, color="tab:blue", lw=0.7, alpha=0.6)
    axes.plot(stamps, forecast, color="tab:green", lw=1.6, label="forecast")
    axes.plot(train[-40:], ".", color="0.5", label="seen")
    axes.plot(test, ".", color="black", label="held out")
    axes.axvline(train.index[-1], color="0.7", lw=0.8)
    axes.set_title(
        "Intervals inside the history and 30 stamps ahead; five paths in blue"
    )
    axes.legend(loc="lower left", ncols=3, frameon=False)
    figure.savefig(arguments.output, dpi=120)
    print(f"The picture is in {arguments.output}")


if __name__ == "__main__":
    main()
