"""Forecast more series than one fit should hold: in parts, one core each.

A fit of a whole panel shares all it finds. Parts share nothing with each other, unless
what a sample of the series shares is found first: `pretrain` finds it, and a `fit`
after it keeps it, and finds where each new series stands. All three are asked for the
next rows of the same made-up shops, which have a week, promotions and levels of their
own:

    python examples/benchmarks/panel_in_parts.py [--series 10000] [--parts 10]
        [--jobs 2] [--sample 1000] [--dask]

Each part is a job of joblib; ``--dask`` gives them to as many workers of dask. Prints
seconds on the clock and of CPU, the largest memory of a process, and the mean absolute
error against what was to be expected; of the last way the sample's seconds are on the
clock alone.
"""

from __future__ import annotations

import argparse
import contextlib
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import joblib
import measuring
import numpy as np
import pandas as pd

from sklode import StructuralForecaster

_N_ROWS, _N_AHEAD = 50, 7


def shops(n_series: int, seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    """Return sales and promotions of shops by day, and what was to be expected."""
    rng = np.random.default_rng(seed)
    days = pd.date_range("2026-01-01", periods=_N_ROWS + _N_AHEAD)
    index = pd.MultiIndex.from_product([range(n_series), days], names=["shop", "day"])
    shape = n_series, len(days)
    week = np.array([0.0, 0.0, 0.5, 1.0, 2.0, 4.0, -3.0])[days.dayofweek]
    promotion = rng.random(shape) < 0.02  # in half of the shops one at most
    effect = 5 + rng.normal(size=(n_series, 1))
    level = 10 + 3 * rng.normal(size=(n_series, 1))
    expected = level + week + effect * promotion
    sold = expected + rng.normal(size=shape)
    table = {"sold": sold.ravel(), "promotion": promotion.ravel().astype(float)}
    return pd.DataFrame(table, index), pd.Series(expected.ravel(), index)


def _past_and_ahead(panel: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the first rows of each shop, and the others."""
    day = panel.index.get_level_values("day")
    is_past = day < day.unique()[_N_ROWS]
    return panel[is_past], panel[~is_past]


def family(panel: pd.DataFrame, n_series: int) -> StructuralForecaster:
    """Return a forecaster that was pretrained on some series, spread over all."""
    past, _ = _past_and_ahead(panel)
    keys = panel.index.unique("shop")
    some = keys[np.linspace(0, len(keys) - 1, n_series).astype(int)]
    sample = past.loc[some]
    return StructuralForecaster().pretrain(sample[["sold"]], X=sample[["promotion"]])


def forecast(forecaster: StructuralForecaster, panel: pd.DataFrame) -> Forecast:
    """Fit a clone to some series, and forecast them."""
    started = time.process_time()
    past, ahead = _past_and_ahead(panel)
    with warnings.catch_warnings():
        # of a shop without a promotion so far, by a part that shares no effect
        warnings.filterwarnings("ignore", "effects of X that series do not share")
        fitted = forecaster.clone().fit(past[["sold"]], X=past[["promotion"]])
        found = fitted.predict_at(ahead.index, X=ahead[["promotion"]])
    cpu = time.process_time() - started
    return Forecast(found["sold"], cpu, measuring.largest_megabytes() / 1000)


class Forecast(NamedTuple):
    """Forecasts of a part, with seconds of CPU and the GB of its process."""

    sold: pd.Series
    cpu: float
    memory: float


def in_parts(
    forecaster: StructuralForecaster, panel: pd.DataFrame, n_parts: int, n_jobs: int
) -> list[Forecast]:
    """Forecast parts of the series, each in a process."""
    keys = panel.index.unique("shop")
    parts = [panel.loc[some] for some in np.array_split(keys, n_parts)]
    jobs = (joblib.delayed(forecast)(forecaster, part) for part in parts)
    return list(joblib.Parallel(n_jobs)(jobs))


def show(name: str, run: Callable[[], list[Forecast]], expected: pd.Series) -> float:
    """Print what a way to forecast costs, and how good it is; return its error."""
    started = time.perf_counter()
    found = run()
    seconds = time.perf_counter() - started
    sold = pd.concat([one.sold for one in found])
    error = (sold - expected[sold.index]).abs().mean()
    cpu, memory = sum(one.cpu for one in found), max(one.memory for one in found)
    print(f"{name:<22}{seconds:8.1f}{cpu:8.1f}{memory:8.2f}{error:8.3f}", flush=True)
    return float(error)


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Compare the three ways; return the error of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=10_000)
    parser.add_argument("--parts", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--sample", type=int, default=1000, help="series to pretrain on"
    )
    parser.add_argument("--dask", action="store_true", help="on workers of dask")
    given = parser.parse_args(arguments)
    panel, expected = shops(given.series)
    print(f"{'':<22}{'seconds':>8}{'CPU':>8}{'GB':>8}{'MAE':>8}")
    plain, parts = StructuralForecaster(), (given.parts, given.jobs)
    ways: dict[str, Callable[[], list[Forecast]]] = {
        "whole": lambda: in_parts(plain, panel, 1, 1),
        "parts": lambda: in_parts(plain, panel, *parts),
        "parts, pretrained": lambda: in_parts(
            family(panel, given.sample), panel, *parts
        ),
    }
    with _workers(given.jobs) if given.dask else contextlib.nullcontext():
        return {name: show(name, run, expected) for name, run in ways.items()}


@contextlib.contextmanager
def _workers(n: int) -> Iterator[None]:
    """Let jobs run on workers of dask, a process each."""
    from dask.distributed import Client, LocalCluster

    options = {"threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(n_workers=n, **options) as cluster, Client(cluster):
        with joblib.parallel_config("dask"):
            yield


if __name__ == "__main__":
    main()
