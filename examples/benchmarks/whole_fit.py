"""Time whole fits through the forecaster, and an iteration inside of them.

1. What compiling the fused engine takes, with an empty cache and from the cache.
2. ``LatentODELSTMForecaster(model="paper").fit(y)``, of an irregular series of 1500
   points and, with the sizes of W1, of a panel of 1000 series of 100. The fused engine
   also trains to the end; all engines take turns over a few epochs, which grow the
   windows by the same stages, and the seconds are scaled to all epochs.
3. Seconds per iteration of ``fit``, by ``history_``: drawing the batch, the bound and
   its gradients, clipping, optimiser and schedule, over whole epochs of windows of full
   length. The straightforward loop of `plain_torch`, loss, gradients and Adam, takes
   turns with it.

    python examples/benchmarks/whole_fit.py [--parts iterations] [--workloads W2]
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import measuring
import numpy as np
import pandas as pd
import plain_torch
import torch
from workloads import (
    EMISSION_WIDTH,
    LONGEST_GAP,
    SHORTEST_GAP,
    WORKLOADS,
    Workload,
)

from sklode import LatentODELSTMForecaster, nn

ENGINES = ("fused", "eager")

PARTS = ("compile", "series", "panel", "iterations")

REQUIRED = {"W1": 3.5, "W2": 18.0, "W3": 25.0, "W4": 30.0}
"""How many times the straightforward loop's speed an iteration of ``fit`` should have.

The loop has to do with two hidden layers in the fields.
"""

TICKS = 1000
"""Of an integer index, in a solver step of `workloads`."""


def irregular_panel(
    n_series: int, n_stamps: int, n_channels: int
) -> tuple[pd.DataFrame, float]:
    """Return noisy sines at random times, and the longest gap over the median one.

    All is observed: ``fit`` drops stamps without any value.
    """
    rng = np.random.default_rng(0)
    shape = (n_series, n_stamps)
    gaps = rng.uniform(SHORTEST_GAP, LONGEST_GAP, shape) * TICKS
    ticks = gaps.round().astype(np.int64).cumsum(axis=1)
    phase = rng.uniform(0, 2 * np.pi, (n_series, 1, n_channels))
    values = np.sin(2 * np.pi * ticks[..., None] / (20 * TICKS) + phase)
    values += 0.1 * rng.standard_normal(values.shape)
    index = pd.MultiIndex.from_arrays(
        [np.repeat(np.arange(n_series), n_stamps), ticks.ravel()],
        names=["series", "tick"],
    )
    columns = [f"channel {k}" for k in range(n_channels)]
    between = np.diff(ticks, axis=1)
    longest = float(between.max() / np.median(between))
    return pd.DataFrame(values.reshape(-1, n_channels), index, columns), longest


def sizes_of(load: Workload) -> dict[str, Any]:
    """Return a workload's network as parameters of the forecaster."""
    return {
        "hidden_size": load.hidden_size,
        "latent_size": load.latent_size,
        "field_width": load.field_width,
        "field_depth": load.field_depth,
        "emission_width": EMISSION_WIDTH,
    }


class Fit(NamedTuple):
    """A call of fit."""

    seconds: float
    trained: float  # of them, in epochs
    n_epochs: int


def fit(y: pd.Series | pd.DataFrame, parameters: Mapping[str, Any]) -> Fit:
    """Fit a fresh forecaster."""
    forecaster = LatentODELSTMForecaster(
        **{"model": "paper", "random_state": 0, **parameters}
    )
    start = time.perf_counter()
    forecaster.fit(y)
    took = time.perf_counter() - start
    trained = float(forecaster.history_["seconds"].sum())
    return Fit(took, trained, forecaster.n_epochs_)


def first_seconds() -> float:
    """Return how much longer a process's first fit takes; called in a fresh one."""
    y, _ = irregular_panel(4, 20, 1)
    parameters = {"max_epochs": 1, "window_length": 20, "horizon": 0}
    return fit(y, parameters).seconds - fit(y, parameters).seconds


def compile_seconds() -> dict[str, float]:
    """Return what the first fit takes beyond others, without and with a cache."""
    before = os.environ.get("NUMBA_CACHE_DIR")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["NUMBA_CACHE_DIR"] = folder
        try:
            seconds = {
                cache: measuring.in_own_process(first_seconds)
                for cache in ("cold", "warm")
            }
        finally:
            del os.environ["NUMBA_CACHE_DIR"]
            if before is not None:
                os.environ["NUMBA_CACHE_DIR"] = before
    print(f"compiling: {seconds['cold']:.1f} s, from the cache {seconds['warm']:.1f} s")
    return seconds


def whole_fits(
    y: pd.Series | pd.DataFrame,
    parameters: Mapping[str, Any],
    options: argparse.Namespace,
) -> dict[str, float]:
    """Return seconds of a whole fit: measured for "whole", scaled for the engines."""
    few = {**parameters, "max_epochs": options.epochs}
    fit(y, {**few, "max_epochs": 1})  # compiles
    whole = fit(y, parameters)
    scaled: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    for _ in range(options.fits):
        for engine in ENGINES:
            nn.Solver.engine = engine
            took = fit(y, few)
            share = whole.n_epochs / took.n_epochs
            scaled[engine].append(took.seconds + (share - 1) * took.trained)
    nn.Solver.engine = "fused"
    seconds = {engine: statistics.median(turns) for engine, turns in scaled.items()}
    print(
        f"fused, {whole.n_epochs} epochs: {whole.seconds:.1f} s; scaled from "
        f"{options.epochs} epochs:"
    )
    for engine, took in seconds.items():
        ratio = seconds["eager"] / took
        print(f"  {engine:10}{took:8.1f} s{ratio:8.1f} times eager", flush=True)
    return {**seconds, "whole": whole.seconds}


class Iteration(NamedTuple):
    """Milliseconds of an iteration, inside fit and of the straightforward loop."""

    fit: float
    loop: float
    reached: float
    required: float


def iteration(name: str, load: Workload, options: argparse.Namespace) -> Iteration:
    """Return what an iteration of fit takes at a workload's sizes.

    Fine-tuning what was pretrained has no warm-up: all its windows have full length.
    """
    n_batches = min(4, max(1, 128 // load.n_series))
    y, longest_gap = irregular_panel(
        n_batches * load.n_series, load.n_stamps, load.n_channels
    )
    forecaster = LatentODELSTMForecaster(
        model="paper",
        **sizes_of(load),
        window_length=load.n_stamps,
        horizon=0,
        thinning=0.0,  # the loop reads all that it reconstructs
        batch_size=load.n_series,
        step_size=longest_gap,  # one step a gap
        max_epochs=1,
        finetune_epochs=3,
        lr=1e-3,
        random_state=0,
    ).pretrain(y)
    forecaster.fit(y)
    epoch = float(forecaster.history_["seconds"].min())
    forecaster.finetune_epochs = max(3, math.ceil(options.turn / epoch))

    def whole_epochs() -> float:
        history = forecaster.fit(y).history_
        if history["skipped_steps"].sum():
            raise RuntimeError("a step was not finite, and so not whole; lower lr.")
        return float(history["seconds"].mean()) / n_batches

    straightforward = plain_torch.loop(load)
    straightforward()
    inside, outside = [], []
    for _ in range(options.repeats):
        inside.append(1e3 * whole_epochs())
        outside.append(1e3 * measuring.turn(straightforward, options.turn))
    took, loop = statistics.median(inside), statistics.median(outside)
    measured = Iteration(took, loop, loop / took, REQUIRED[name])
    print(
        f"{name:4}{took:10.2f}{loop:17.1f}{measured.reached:9.1f}"
        f"{measured.required:10.1f}",
        flush=True,
    )
    return measured


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Print the tables of all parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = list(WORKLOADS)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=7, help="of an iteration")
    parser.add_argument("--turn", type=float, default=0.3, help="seconds of a turn")
    parser.add_argument("--fits", type=int, default=3, help="of each engine")
    parser.add_argument("--epochs", type=int, default=6, help="of a scaled fit")
    parser.add_argument("--workloads", nargs="+", choices=names, default=names)
    parser.add_argument("--depth", type=int, default=2, help="hidden layers of a field")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    results: dict[str, Any] = {}
    if "compile" in options.parts:
        results["compile"] = compile_seconds()
    if "series" in options.parts:
        print("\na series of 1500, defaults")
        y = irregular_panel(1, 1500, 1)[0].loc[0, "channel 0"]
        results["series"] = whole_fits(y, {}, options)
    if "panel" in options.parts:
        load = WORKLOADS["W1"]
        print(f"\na panel of {load.n_series} × {load.n_stamps}, the network of W1")
        y, _ = irregular_panel(load.n_series, load.n_stamps, load.n_channels)
        results["panel"] = whole_fits(y, sizes_of(load), options)
    if "iterations" in options.parts:
        print("\nms per iteration, medians; times the straightforward loop's speed")
        print(f"{'':4}{'fit':>10}{'straightforward':>17}{'times':>9}{'required':>10}")
        results["iterations"] = {
            name: iteration(
                name, WORKLOADS[name]._replace(field_depth=options.depth), options
            )
            for name in options.workloads
        }
    return results


if __name__ == "__main__":
    main()
