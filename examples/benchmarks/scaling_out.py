"""Measure what a second process brings to a search of many models.

It is scikit-learn's GridSearchCV, serial, and on a dask cluster of two workers, each
fit on one thread. Both take turns, and medians are compared. On a machine that others
use, two processes also get twice the share of one: so the seconds of CPU are told
beside those on the clock. Were the second process free of cost, both together would
need as many as one alone.

    python examples/benchmarks/scaling_out.py [--fits 12] [--repeats 5]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import joblib
import numpy as np
import pandas as pd
import torch
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit

from sklode import LatentODELSTMForecaster


class Cost(NamedTuple):
    """Seconds that something took, on the clock and of all processes' CPU."""

    seconds: float
    cpu: float


def waves(n_stamps: int) -> pd.DataFrame:
    """Return noisy waves at irregular stamps."""
    rng = np.random.default_rng(0)
    hours = rng.uniform(0.6, 1.0, n_stamps).cumsum()
    values = np.sin(hours / 5 + rng.uniform(0, 6))
    values += 0.1 * rng.standard_normal(values.shape)
    stamps = pd.Timestamp("2024-01-01") + pd.to_timedelta(hours, unit="h")
    return pd.DataFrame({"y": values}, stamps)


def cost_of(call: Callable[[], object]) -> Cost:
    """Return what a call costs this process."""
    started = time.perf_counter(), time.process_time()
    call()
    return Cost(time.perf_counter() - started[0], time.process_time() - started[1])


def search_costs(n_fits: int, n_epochs: int, repeats: int) -> dict[str, list[Cost]]:
    """Search in turns, serially and on a cluster; the CPU is that of all workers."""
    from dask.distributed import Client, LocalCluster

    y = waves(400)
    forecaster = LatentODELSTMForecaster(model="paper", max_epochs=n_epochs)
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


def tell(costs: dict[str, list[Cost]]) -> dict[str, Cost]:
    """Print the medians of both contenders, and return their ratios to the first."""
    medians = {
        name: Cost(*(statistics.median(each) for each in zip(*turns, strict=True)))
        for name, turns in costs.items()
    }
    first, ratios = medians["serial"], {}
    print(f"medians of {len(costs['serial'])} turns")
    for name, (seconds, cpu) in medians.items():
        ratios[name] = Cost(first.seconds / seconds, cpu / first.cpu)
        print(
            f"{name:12} {seconds:7.2f} s, {ratios[name].seconds:5.2f} times as fast; "
            f"CPU {cpu:7.2f} s, {ratios[name].cpu:5.2f} times as much"
        )
    return ratios


def main(arguments: Sequence[str] | None = None) -> dict[str, Cost]:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--fits", type=int, default=12, help="of a search")
    parser.add_argument("--epochs", type=int, default=60, help="of each of these fits")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {options.fits} fits")
    ratios = tell(search_costs(options.fits, options.epochs, options.repeats))
    print(f"load at the end: {os.getloadavg()[0]:.1f}")
    return ratios


if __name__ == "__main__":
    main()
