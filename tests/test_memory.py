"""Memory stays where it was: nothing leaks, and no more is held than is worked on."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode.latent_ode import answers as prediction
from tests.cases import mostly_slow
from tests.series import FORECASTERS, on_engine, panel, tiny, waves

ENGINES = ["fused", "eager"]
MEBIBYTE = 2**20


@contextmanager
def without_collector() -> Iterator[None]:
    tiny().fit(panel())  # libraries' first use leaves frames behind
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize("engine", mostly_slow(ENGINES))
@pytest.mark.parametrize("kind", FORECASTERS[1:2])
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
    forecaster = tiny(FORECASTERS[0], window_length=30, horizon=5, batch_size=4)
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
    decode = network.decode

    def recording(z0: Any, posterior: Any, times: Any, controls: Any) -> Any:
        paths = decode(z0, posterior, times, controls)
        sizes.append(z0.shape[0] * z0.shape[1] * int(times.max()))
        return paths

    expected = forecaster.sample([1, 150])
    monkeypatch.setattr(network, "decode", recording)
    monkeypatch.setattr(prediction, "_STATES_AT_ONCE", 4000)
    found = forecaster.sample([1, 150])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    # a window's own last stamp is at most as far away as the horizon
    assert 1000 < max(sizes) <= 4000
    assert sum(sizes) > 4 * 4000
