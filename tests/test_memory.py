"""Memory stays where it was: nothing leaks, and no more is held than is worked on."""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import os
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch

from sklode.prediction import predictor as prediction
from tests.series import FORECASTERS, on_engine, panel, tiny, uneven_stamps, waves

FOLDER = Path(__file__).parents[1] / "examples" / "benchmarks"
ENGINES = ["fused", "eager"]
MEBIBYTE = 2**20

on_linux = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="reads what Linux tells of a process"
)


class State(NamedTuple):
    """What a process holds."""

    mebibytes: float
    objects: int
    tensors: int
    threads: int
    files: int


def state() -> State:
    gc.collect()
    status = Path("/proc/self/status").read_text().splitlines()
    resident = next(line for line in status if line.startswith("VmRSS:"))
    held = gc.get_objects()
    return State(
        int(resident.split()[1]) / 1024,
        len(held),
        sum(issubclass(type(one), torch.Tensor) for one in held),
        len(os.listdir("/proc/self/task")),
        len(os.listdir("/proc/self/fd")),
    )


def in_fresh_process(function: Callable[..., Any], *arguments: object) -> Any:
    """Call a function where no other test has left anything."""
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=fresh) as process:
        return process.submit(function, *arguments).result()


def states_of_fits(engine: str) -> tuple[State, State]:
    """Fit 60 models, of other series and sizes each; after 20, and after all."""
    with on_engine(engine):
        return _states_of_fits()


def _states_of_fits() -> tuple[State, State]:
    states = []
    for k in range(60):
        y = waves(uneven_stamps(30 + k, seed=k), seed=k)
        forecaster = tiny(
            FORECASTERS[k % 3],
            hidden_size=3 + k % 4,
            window_length=6 + k % 5,
            early_stopping=bool(k % 2),
            random_state=k,
        )
        forecaster.fit(y).predict([1, 2])
        del forecaster
        if k + 1 in (20, 60):
            states.append(state())
    return states[0], states[1]


def states_of_calls(name: str) -> tuple[State, State]:
    """Ask a model 500 times; after 100 times, and after all."""
    forecaster = tiny().fit(panel())
    again = panel().groupby("series").tail(1)
    call = {
        "predict": lambda k: forecaster.predict([1 + k % 7, 9]),
        "sample": lambda k: forecaster.sample([1 + k % 7], n_samples=3),
        "update": lambda _: forecaster.update(again, update_params=False),
    }[name]
    states = []
    for k in range(500):
        call(k)
        if k + 1 in (100, 500):
            states.append(state())
    return states[0], states[1]


def check_flat(before: State, after: State, n_objects: int) -> None:
    assert after.mebibytes < before.mebibytes + 10
    assert after.objects < before.objects + n_objects
    assert after.tensors <= before.tensors + 5
    assert after.threads <= before.threads
    assert after.files <= before.files


@pytest.mark.slow
@on_linux
@pytest.mark.parametrize("engine", ENGINES)
def test_many_fits_leave_nothing_behind(engine: str) -> None:
    before, after = in_fresh_process(states_of_fits, engine)
    check_flat(before, after, 5 * 40)  # a model has hundreds


@pytest.mark.slow
@on_linux
@pytest.mark.parametrize("name", ["predict", "sample", "update"])
def test_many_calls_leave_nothing_behind(name: str) -> None:
    before, after = in_fresh_process(states_of_calls, name)
    check_flat(before, after, 400)  # less than one a call


@contextmanager
def without_collector() -> Iterator[None]:
    tiny().fit(panel())  # libraries' first use leaves frames behind
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", FORECASTERS)
def test_a_forecaster_goes_with_its_last_reference(kind: Any, engine: str) -> None:
    with on_engine(engine), without_collector():
        forecaster = tiny(kind, early_stopping=True).fit(panel())
        forecaster.predict([1, 2])
        forecaster.predict_interval([1])
        forecaster.sample([1])
        forecaster.update(panel((22, 15, 18)), update_params=True)
        parts = [forecaster, forecaster.network_, forecaster._history.observations]
        alive = [weakref.ref(part) for part in parts]
        alive.append(weakref.ref(next(forecaster.network_.parameters())))
        parts.clear()
        del forecaster
        assert [ref() for ref in alive] == [None] * 4


@contextmanager
def traced() -> Iterator[list[float]]:
    """Give the mebibytes that numpy and Python added at the peak of a block."""
    rise: list[float] = []
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        yield rise
        _, peak = tracemalloc.get_traced_memory()
        rise.append((peak - before) / MEBIBYTE)
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize("n_series", [1, 200])
def test_memory_of_a_fit_and_a_forecast_is_that_of_its_rows(n_series: int) -> None:
    n_each = 50_000 // n_series
    index: pd.Index = pd.RangeIndex(n_each)
    if n_series > 1:
        index = pd.MultiIndex.from_product([range(n_series), index])
    y = waves(index).to_frame()
    forecaster = tiny(
        FORECASTERS[0],
        window_length=30,
        horizon=5,
        batch_size=4,
    )
    forecaster.fit(y[: 10 * n_each][:100])  # libraries' first use
    with traced() as rise:
        forecaster.fit(y)
        forecaster.predict([1, 2, 3])
    # values, times and masks of all windows would be as much again, or far more
    assert rise[0] * MEBIBYTE / len(y) < 450


def test_draws_of_a_far_horizon_are_solved_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forecaster = tiny(n_samples=40).fit(panel())
    network, sizes = forecaster.network_, []
    decode = network.decode_draws

    def recording(z0: Any, posterior: Any, times: Any, path: Any) -> Any:
        paths = decode(z0, posterior, times, path)
        sizes.append(z0.shape[0] * z0.shape[1] * int(times.max()))
        return paths

    expected = forecaster.sample([1, 150])
    monkeypatch.setattr(network, "decode_draws", recording)
    monkeypatch.setattr(prediction, "_STATES_AT_ONCE", 4000)
    found = forecaster.sample([1, 150])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    # a window's own last stamp is at most as far away as the horizon
    assert 1000 < max(sizes) <= 4000
    assert sum(sizes) > 4 * 4000


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("memory")


@pytest.mark.slow
@on_linux
def test_a_workload_is_measured_in_all_it_is_asked(memory: ModuleType) -> None:
    table = memory.main(["--share", "0.01", "--workloads", "panel", "series, X"])
    for name, n_rows in (("panel", 5000), ("series, X", 10_000)):
        measured = table[name]
        assert measured.rows == n_rows
        assert measured.error is None
        asked = ["fit", *memory.WORKLOADS[name].operations]
        assert [step.operation for step in measured.steps] == asked
        assert measured.imports < measured.peak < 2
        assert all(step.seconds > 0 for step in measured.steps)
