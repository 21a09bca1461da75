"""Measure memory and seconds of what a forecaster does with large series and panels.

Each workload runs in a fresh process: fit, forecasts of all kinds, updates, pickling;
of the network alone, ``model="paper"``, where it names no other.
Peaks are of resident memory, beyond what the process holds once libraries are imported
and a small model was fitted. What is over 8 GiB, libraries included, is told.

"adjoint": a gradient through a neural ODE whose solver takes ever more steps between
the same stamps, by "dopri5" and by "dopri5_adjoint".

    python examples/benchmarks/memory.py [--workloads panel series] [--share 0.01]
"""

from __future__ import annotations

import argparse
import pickle
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import measuring
import numpy as np
import pandas as pd
import torch

from sklode import LatentODELSTMForecaster, nn

GIB = 2**30
BOUND = 8.0
"""GiB that no workload may reach."""

LIMIT = 9.0
"""GiB of its own that a workload's process is granted; beyond, it is stopped."""

N_NEW = 5
"""Rows of each series that come with an update."""


def gib(megabytes: float) -> float:
    """Return megabytes of a million bytes in GiB."""
    return megabytes * 1e6 / GIB


class Data(NamedTuple):
    """Series to learn, and the rows that follow them."""

    past: pd.DataFrame
    future: pd.DataFrame
    past_X: pd.DataFrame | None
    future_X: pd.DataFrame | None


class Workload(NamedTuple):
    """Series, a forecaster for them, and what is asked of it."""

    make: Callable[[float], Data]
    n_ahead: int = 20
    parameters: Mapping[str, Any] = {}
    operations: tuple[str, ...] = (
        "predict",
        "predict_interval",
        "sample",
        "predict_at",
        "predict_residuals",
        "score",
        "save",
        "update",
        "update and train",
    )


def stamps(n_series: int, n_stamps: int, kind: str) -> pd.Index:
    """Return the stamps of all series, one series after the other."""
    if kind == "regular":
        return pd.Index(np.tile(np.arange(n_stamps), n_series), name="time")
    minutes = np.random.default_rng(0).integers(1, 120, (n_series, n_stamps))
    elapsed = pd.to_timedelta(minutes.cumsum(axis=1).ravel(), unit="min")
    return (pd.Timestamp("2000-01-01") + elapsed).rename("time")


def data(
    share: float,
    n_series: int,
    n_stamps: int,
    n_channels: int = 1,
    kind: str = "regular",
    n_levels: int = 1,
    n_controls: int = 0,
    n_ahead: int = 20,
) -> Data:
    """Return noisy sines; ``share`` makes the panel smaller, or the lone series."""
    if n_series > 1:
        n_series = max(round(share * n_series), 2)
    else:
        n_stamps = max(round(share * n_stamps), 100)
    rng = np.random.default_rng(1)
    n_each = n_stamps + n_ahead
    place = np.arange(n_each)[None, :, None]
    phase = rng.uniform(0, 2 * np.pi, (n_series, 1, n_channels))
    values = np.sin(place / 3 + phase)
    values += 0.1 * rng.standard_normal(values.shape)
    index = stamps(n_series, n_each, kind)
    if n_series > 1:
        number = np.repeat(np.arange(n_series), n_each)
        keys = [number // 100, number][-n_levels:]
        names = ["region", "series"][-n_levels:]
        index = pd.MultiIndex.from_arrays([*keys, index], names=[*names, "time"])
    y = pd.DataFrame(values.reshape(-1, n_channels), index)
    y.columns = [f"channel {k}" for k in range(n_channels)]
    X = None
    if n_controls:
        X = pd.DataFrame(rng.standard_normal((len(y), n_controls)), index)
        X.columns = [f"control {k}" for k in range(n_controls)]
    is_past = np.tile(np.arange(n_each) < n_stamps, n_series)
    return Data(
        y[is_past],
        y[~is_past],
        None if X is None else X[is_past],
        None if X is None else X[~is_past],
    )


PANEL = partial(data, n_series=10_000, n_stamps=50)
SERIES = partial(data, n_series=1, n_stamps=1_000_000)
SMALL = partial(data, n_series=1_000, n_stamps=50)
FORECASTS = ("predict", "predict_interval")

WORKLOADS: dict[str, Workload] = {
    "panel": Workload(PANEL),
    "series": Workload(SERIES),
    "panel, irregular": Workload(partial(PANEL, kind="irregular")),
    "panel, 3 channels, X": Workload(partial(PANEL, n_channels=3, n_controls=2)),
    "panel of two levels": Workload(partial(PANEL, n_levels=2)),
    "series, irregular": Workload(partial(SERIES, kind="irregular")),
    "series, 5 channels": Workload(partial(SERIES, n_channels=5)),
    "series, X": Workload(partial(SERIES, n_controls=2)),
    "panel, 1000 ahead": Workload(PANEL, 1000, operations=("predict",)),
    "100,000 ahead": Workload(
        partial(data, n_series=1, n_stamps=1000), 100_000, operations=("predict",)
    ),
    **{
        f"{name}, hybrid": Workload(make, 20, {"model": "hybrid"}, ("predict",))
        for name, make in (("panel", PANEL), ("series", SERIES))
    },
    **{
        f"{name}, early stopping": Workload(
            make, 20, {"early_stopping": True}, FORECASTS
        )
        for name, make in (("panel", PANEL), ("series", SERIES))
    },
    **{
        f"small panel, {what}": Workload(SMALL, 20, parameters, FORECASTS)
        for what, parameters in (
            ("fused", {}),
            ("dopri5", {"method": "dopri5"}),
        )
    },
}


ADJOINT, METHODS, RATES = "adjoint", ("dopri5", "dopri5_adjoint"), (1.0, 5.0, 25.0)
"""Neural ODEs that turn so many times faster need more steps."""

WIDTH, N_SERIES, N_STAMPS = 512, 2000, 10


class Step(NamedTuple):
    """What one operation took."""

    operation: str
    seconds: float
    busy: float  # seconds of the processor: on a busy machine the others are more
    peak: float  # GiB beyond libraries


class Measured(NamedTuple):
    """What a workload took; its peak includes libraries."""

    rows: int
    imports: float
    peak: float
    steps: list[Step]
    error: str | None


def operations(forecaster: Any, given: Data, n_ahead: int) -> dict[str, Callable]:
    """Return what can be asked of a fitted forecaster, by name."""
    fh = np.arange(1, n_ahead + 1)
    future = given.future
    is_new = np.arange(len(future)) % n_ahead < N_NEW
    new_X = None if given.future_X is None else given.future_X[is_new]
    update = partial(forecaster.update, future[is_new], X=new_X)
    return {
        "predict": lambda: forecaster.predict(fh, X=given.future_X),
        "predict_interval": lambda: forecaster.predict_interval(fh, X=given.future_X),
        "sample": lambda: forecaster.sample(fh, X=given.future_X),
        "predict_at": lambda: forecaster.predict_at(given.past.index),
        "predict_residuals": lambda: forecaster.predict_residuals(),
        "score": lambda: forecaster.score(future, X=given.future_X),
        "save": lambda: pickle.dumps(forecaster),
        "update": lambda: update(update_params=False),
        "update and train": lambda: update(update_params=True),
    }


def measure(name: str, share: float, epochs: int, threads: int) -> Measured:
    """Run a workload in this process, which should be a fresh one."""
    limit = round(LIMIT * GIB)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    torch.set_num_threads(threads)
    load = WORKLOADS[name]
    parameters = {"model": "paper", "random_state": 0, **load.parameters}
    if epochs:
        parameters["max_epochs"] = epochs
    small = LatentODELSTMForecaster(**{**parameters, "max_epochs": 2})
    small.fit(data(1, 1, 100).past).predict(fh=[1])
    imports = gib(measuring.resident_megabytes())
    given = load.make(share, n_ahead=load.n_ahead)
    forecaster = LatentODELSTMForecaster(**parameters)
    steps: list[Step] = []
    error = None

    def take(operation: str, call: Callable[[], object]) -> None:
        busy = time.process_time()
        seconds, megabytes = measuring.seconds_and_peak(call)
        busy = time.process_time() - busy
        steps.append(Step(operation, seconds, busy, gib(megabytes) - imports))

    try:
        take("fit", lambda: forecaster.fit(given.past, X=given.past_X))
        asked = operations(forecaster, given, load.n_ahead)
        for operation in load.operations:
            take(operation, asked[operation])
    except (MemoryError, RuntimeError) as stopped:  # torch raises the latter
        error = f"{type(stopped).__name__}: {stopped}"
    peak = max((step.peak for step in steps), default=0.0) + imports
    return Measured(len(given.past), imports, peak, steps, error)


def measure_gradient(method: str, rate: float, threads: int) -> tuple[int, float]:
    """Return evaluations of a field and the peak in GiB of a gradient, see `RATES`."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    field, n_evaluations = nn.VectorField(2, WIDTH), 0
    field.start_rotating([2 * N_STAMPS / rate])

    def count(*_: object) -> None:
        nonlocal n_evaluations
        n_evaluations += 1

    field.register_forward_hook(count)
    z0 = torch.full((N_SERIES, 2), 0.1, requires_grad=True)

    def gradient(steps: torch.Tensor) -> None:
        nn.Solver(method).trajectory(field, z0, steps).square().mean().backward()

    gradient(torch.ones(N_SERIES, N_STAMPS)[:, :1])
    before, n_evaluations = measuring.resident_megabytes(), 0
    steps = torch.ones(N_SERIES, N_STAMPS)
    _, megabytes = measuring.seconds_and_peak(lambda: gradient(steps))
    return n_evaluations, gib(megabytes - before)


def show_gradients(threads: int) -> dict[tuple[str, float], tuple[int, float]]:
    """Print what gradients through more and more steps take."""
    print(f"\n{ADJOINT}: {N_SERIES:,} series, {N_STAMPS} stamps")
    table = {}
    for method in METHODS:
        for rate in RATES:
            given = measure_gradient, method, rate, threads
            table[method, rate] = n, peak = measuring.in_own_process(*given)
            told = f"  {method:18}rate {rate:5g}{n:8} evaluations{peak:9.2f} GiB"
            print(told, flush=True)
    return table


def verdict(measured: Measured) -> str:
    """Return whether a workload stayed below the bound."""
    if measured.error:
        return f"stopped: {measured.error}"
    return "OK" if measured.peak < BOUND else f"over {BOUND:g} GiB"


def show(name: str, measured: Measured) -> None:
    """Print a workload's table."""
    print(f"\n{name}: {measured.rows:,} rows")
    for step in measured.steps:
        print(
            f"  {step.operation:18}{step.seconds:10.2f}{step.busy:10.2f} s"
            f"{step.peak:9.2f} GiB"
        )
    print(
        f"  {'with libraries':40}{measured.peak:9.2f} GiB: {verdict(measured)}",
        flush=True,
    )


def main(arguments: Sequence[str] | None = None) -> dict[str, Measured]:
    """Print a table per workload."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [*WORKLOADS, ADJOINT]
    parser.add_argument("--workloads", nargs="+", choices=names, default=names)
    parser.add_argument("--share", type=float, default=1.0, help="of series or stamps")
    parser.add_argument(
        "--epochs", type=int, default=2, help="of a fit; 0: as many as the default"
    )
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    print("seconds, those of the processor, GiB beyond libraries at the peak")
    table = {}
    for name in options.workloads:
        if name == ADJOINT:
            show_gradients(options.threads)
            continue
        table[name] = measuring.in_own_process(
            measure, name, options.share, options.epochs, options.threads
        )
        show(name, table[name])
    return table


if __name__ == "__main__":
    main()
