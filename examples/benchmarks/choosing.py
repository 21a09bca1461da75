"""Measure what cell, solver, step and sizes do to error and time.

Series are noisy sums of two sines, of 20 and 7 mean gaps, at exponential gaps: 300
observations to fit, the next 20 stamps to forecast. Each setting changes one parameter
of ``LatentODELSTMForecaster`` on the training mean, ``model="paper"``; the others are
the defaults. The settings take turns on each series. A row has the mean squared error
over the signal's variance, by series and as their median, and the processor's seconds
of a fit on one thread.

    python examples/benchmarks/choosing.py [--settings default euler] [--epochs 6]

With few ``--epochs`` errors say nothing, but fits are compared quickly: the way to
time those that are left out unless named, whose whole fits take up to an hour.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from sklode import (
    LatentODEForecaster,
    LatentODELSTMForecaster,
    LatentODERNNForecaster,
)

N_SEEN, N_AHEAD = 300, 20

SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "cell: ODE-RNN": {"kind": LatentODERNNForecaster},
    "cell: RNN": {"kind": LatentODEForecaster},
    "midpoint": {"method": "midpoint"},
    "euler": {"method": "euler"},
    "step 0.5": {"step_size": 0.5},
    "step 2": {"step_size": 2.0},
    "latent 4": {"latent_size": 4},
    "latent 16": {"latent_size": 16},
    "lr 0.002": {"lr": 0.002},
    "lr 0.01": {"lr": 0.01},
    "clip None": {"clip_norm": None},
    "clip None, slow": {"clip_norm": None, "lr": 0.001},
    "clip 10": {"clip_norm": 10.0},
    "dopri5": {"method": "dopri5"},
}

SLOW = ("dopri5",)
"""Left out unless named: plain torch, dozens of times as long."""


class Row(NamedTuple):
    """What a setting did."""

    errors: list[float]  # of each series
    seconds: list[float]  # of the processor, of each fit


def two_sines(seed: int) -> tuple[pd.Series, float]:
    """Return a noisy sum of two sines, and the variance of the sum."""
    rng = np.random.default_rng(seed)
    hours = np.cumsum(np.maximum(rng.exponential(1.0, N_SEEN + N_AHEAD), 1e-3))
    phases = rng.uniform(0, 2 * np.pi, 2)
    signal = np.sin(2 * np.pi * hours / 20 + phases[0])
    signal += 0.5 * np.sin(2 * np.pi * hours / 7 + phases[1])
    stamps = pd.Timestamp("2021-01-01") + pd.to_timedelta(hours, unit="h").round("s")
    noise = 0.1 * rng.standard_normal(len(signal))
    return pd.Series(signal + noise, stamps), float(np.var(signal))


def measure(
    setting: dict[str, Any], seed: int, epochs: int | None
) -> tuple[float, float]:
    """Return the relative error of a forecast, and the seconds of its fit."""
    y, variance = two_sines(seed)
    kind = setting.get("kind", LatentODELSTMForecaster)
    parameters = {name: value for name, value in setting.items() if name != "kind"}
    forecaster = kind(model="paper", max_epochs=epochs, random_state=0, **parameters)
    start = time.process_time()
    forecaster.fit(y[:N_SEEN])
    seconds = time.process_time() - start
    truth = y[N_SEEN:]
    error = float(((forecaster.predict(truth.index) - truth) ** 2).mean() / variance)
    return error, seconds


def main(arguments: Sequence[str] | None = None) -> dict[str, Row]:
    """Print a row for each setting."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    usual = [name for name in SETTINGS if name not in SLOW]
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=usual)
    parser.add_argument("--series", type=int, default=3)
    parser.add_argument("--epochs", type=int, help="of a fit; by default all")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if set(options.settings) - set(SLOW):
        # compiles, or the first setting would be charged with it
        LatentODELSTMForecaster(max_epochs=1).fit(two_sines(0)[0])
    rows = {name: Row([], []) for name in options.settings}
    for seed in range(options.series):
        for name, row in rows.items():
            error, seconds = measure(SETTINGS[name], seed, options.epochs)
            row.errors.append(error)
            row.seconds.append(seconds)
            print(f"series {seed}, {name}: {error:.3f}, {seconds:.1f} s", flush=True)
    print(f"{'':16}{'median':>8}{'worst':>8}{'seconds':>9}  by series")
    for name, row in rows.items():
        by_series = " ".join(f"{error:.3f}" for error in row.errors)
        print(
            f"{name:16}{statistics.median(row.errors):8.3f}{max(row.errors):8.3f}"
            f"{statistics.median(row.seconds):9.1f}  {by_series}",
            flush=True,
        )
    return rows


if __name__ == "__main__":
    main()
