"""Measure what a second process brings: to a search of many models, to one model.

- ``models``: scikit-learn's GridSearchCV, serial, and on a dask cluster of two worker
  processes; each fit on one thread.
- ``large``, ``small``: one model on a panel, trained by one process with one thread, by
  one with two threads, and by two processes with one thread each (torchrun, gloo).
  Large: 512 windows of 200 stamps a batch; small: 64 windows of 60.

All contenders take turns, and medians are compared. On a machine that others use, two
processes also get twice the share of one: so the seconds of CPU are told beside those
on the clock. Were the second process free of cost, all of them together would need as
many as one alone.

    python examples/benchmarks/scaling_out.py [--parts models large] [--repeats 5]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
import pandas as pd
import torch
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit

from sklode import LatentODELSTMForecaster
from sklode.training.parallel import data_parallel

PANELS = {"large": (512, 200, 20), "small": (64, 60, 60)}
"""Series, of one window each, stamps of each, and steps of a training."""

PARTS = ("models", *PANELS)


class Cost(NamedTuple):
    """Seconds that something took, on the clock and of all processes' CPU."""

    seconds: float
    cpu: float


def panel(n_series: int, n_stamps: int) -> pd.DataFrame:
    """Return noisy waves at irregular stamps."""
    rng = np.random.default_rng(0)
    hours = rng.uniform(0.6, 1.0, (n_series, n_stamps)).cumsum(1)
    values = np.sin(hours / 5 + rng.uniform(0, 6, (n_series, 1)))
    values += 0.1 * rng.standard_normal(values.shape)
    stamps = pd.Timestamp("2024-01-01") + pd.to_timedelta(hours.ravel(), unit="h")
    keys = np.repeat(np.arange(n_series), n_stamps)
    index = pd.MultiIndex.from_arrays([keys, stamps], names=["series", "time"])
    return pd.DataFrame({"y": values.ravel()}, index)


def cost_of(call: Callable[[], object]) -> Cost:
    """Return what a call costs this process."""
    started = time.perf_counter(), time.process_time()
    call()
    return Cost(time.perf_counter() - started[0], time.process_time() - started[1])


# One model


def forecaster_of(part: str) -> tuple[LatentODELSTMForecaster, pd.DataFrame]:
    """Return a forecaster, and a panel of which each series is one window."""
    n_series, n_stamps, n_steps = PANELS[part]
    seen = 3 * n_stamps // 4
    forecaster = LatentODELSTMForecaster(
        window_length=seen,
        horizon=n_stamps - seen,
        batch_size=n_series,
        max_epochs=n_steps,
        random_state=0,
    )
    return forecaster, panel(n_series, n_stamps)


def take_part(part: str, repeats: int) -> dict[str, Any] | None:
    """Train in turns, alone and shared; the first process returns the costs.

    The second one waits, without using a core, while the first one trains alone.
    """
    forecaster, y = forecaster_of(part)
    costs: dict[str, list[Cost]] = {"1 process": [], "2 threads": [], "2 processes": []}
    weights: dict[str, torch.Tensor] = {}

    def fit() -> None:
        forecaster.fit(y)

    def kept() -> torch.Tensor:
        tensors = forecaster.network_.state_dict().values()
        return torch.cat([tensor.flatten() for tensor in tensors])

    with data_parallel() as processes:
        fit()  # what is loaded once is not counted
    for _ in range(repeats):
        for name, n_threads in (("1 process", 1), ("2 threads", 2)):
            if processes.is_first:
                torch.set_num_threads(n_threads)
                costs[name].append(cost_of(fit))
                weights[name] = kept()
                torch.set_num_threads(1)
            wait()
        with data_parallel() as together:
            mine = cost_of(fit)
            cpu = together.add(numbers=[mine.cpu])[0]
        costs["2 processes"].append(Cost(mine.seconds, cpu))
    difference = (kept() - weights.get("1 process", kept())).abs().max().item()
    return {"costs": costs, "difference": difference} if processes.is_first else None


def wait() -> None:
    """Let all processes arrive here."""
    with data_parallel() as together:
        together.any(True)


def by_torchrun(part: str, repeats: int) -> dict[str, Any]:
    """Start two processes of this script, and return what the first one returns."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "costs.json"
        launcher = ["torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        options = ["--parts", part, "--repeats", str(repeats), "--write", str(path)]
        sizes = ["--sizes", json.dumps(PANELS[part])]
        subprocess.run(
            [sys.executable, "-m", *launcher, __file__, *options, *sizes],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=True,
        )
        found: dict[str, Any] = json.loads(path.read_text())
    return found


# Many models


def search_costs(n_fits: int, n_epochs: int, repeats: int) -> dict[str, list[Cost]]:
    """Search in turns, serially and on a cluster; the CPU is that of all workers."""
    from dask.distributed import Client, LocalCluster

    y = panel(1, 400).droplevel(0)
    forecaster = LatentODELSTMForecaster(level="series", max_epochs=n_epochs)
    grid = {"random_state": range(n_fits // 2)}  # all take as long
    costs: dict[str, list[Cost]] = {"serial": [], "2 workers": []}

    def search() -> None:
        GridSearchCV(forecaster, grid, cv=TimeSeriesSplit(2), refit=False).fit(y)

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as two,
        Client(two) as client,
    ):
        for count in range(repeats + 1):
            serial = cost_of(search)
            before = sum(client.run(time.process_time).values())
            with joblib.parallel_config("dask"):
                shared = cost_of(search)
            used = sum(client.run(time.process_time).values()) - before
            if count:  # the first turn loads libraries
                costs["serial"].append(serial)
                costs["2 workers"].append(Cost(shared.seconds, shared.cpu + used))
    return costs


def tell(part: str, costs: dict[str, list[Any]]) -> dict[str, Cost]:
    """Print the medians of all contenders, and return their ratios to the first."""
    medians = {
        name: Cost(*(statistics.median(each) for each in zip(*turns, strict=True)))
        for name, turns in costs.items()
    }
    first, ratios = next(iter(medians.values())), {}
    print(f"\n{part}: medians of {len(next(iter(costs.values())))} turns")
    for name, (seconds, cpu) in medians.items():
        ratios[name] = Cost(first.seconds / seconds, cpu / first.cpu)
        print(
            f"{name:12} {seconds:7.2f} s, {ratios[name].seconds:5.2f} times as fast; "
            f"CPU {cpu:7.2f} s, {ratios[name].cpu:5.2f} times as much"
        )
    return ratios


def main(arguments: Sequence[str] | None = None) -> dict[str, dict[str, Cost]]:
    """Print a table per part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--fits", type=int, default=12, help="of a search")
    parser.add_argument("--epochs", type=int, default=60, help="of each of these fits")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--sizes", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if options.write:  # one of the processes that torchrun has started
        PANELS[options.parts[0]] = tuple(options.sizes)
        found = take_part(options.parts[0], options.repeats)
        if found is not None:
            options.write.write_text(json.dumps(found))
        return {}
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    ratios = {}
    for part in options.parts:
        if part == "models":
            costs = search_costs(options.fits, options.epochs, options.repeats)
            ratios[part] = tell(f"{options.fits} fits", costs)
            continue
        found = by_torchrun(part, options.repeats)
        n_series, n_stamps, _ = PANELS[part]
        ratios[part] = tell(f"{n_series} windows of {n_stamps}", found["costs"])
        print(f"largest difference of a weight: {found['difference']:.1e}")
    print(f"load at the end: {os.getloadavg()[0]:.1f}")
    return ratios


if __name__ == "__main__":
    main()
