"""Series to forecast, and settings so small that a fit takes a moment."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import (
    LatentODEForecaster,
    LatentODELSTMForecaster,
    LatentODERNNForecaster,
    nn,
)
from sklode.nn.settings import NetworkSettings
from sklode.training.model import architecture_of

FORECASTERS = [LatentODEForecaster, LatentODERNNForecaster, LatentODELSTMForecaster]

MOSTLY_ONE = [
    LatentODELSTMForecaster,
    pytest.param(LatentODEForecaster, marks=pytest.mark.slow),
    pytest.param(LatentODERNNForecaster, marks=pytest.mark.slow),
]
"""Of tests that take seconds: classes differ in the encoder only."""

TINY: dict[str, Any] = {
    "hidden_size": 3,
    "latent_size": 2,
    "field_width": 4,
    "emission_width": 4,
    "model": "paper",
    "max_epochs": 1,
    "window_length": 6,
    "horizon": 2,
    "n_samples": 7,
    "random_state": 0,
}


def tiny(kind: Any = LatentODELSTMForecaster, **settings: Any) -> Any:
    """Return a forecaster that fits in a moment: the network alone."""
    return kind(**{**TINY, **settings})


def tiny_network(**settings: Any) -> NetworkSettings:
    """Return what its network is built by."""
    return NetworkSettings.of(architecture_of(tiny(**settings)))


@contextlib.contextmanager
def on_engine(name: str) -> Iterator[None]:
    """Let networks run "fused", where the compiled engine serves, or "eager"."""
    before, nn.Solver.engine = nn.Solver.engine, name
    try:
        yield
    finally:
        nn.Solver.engine = before


def uneven_ticks(n: int = 24, seed: int = 0, unit: int = 10) -> np.ndarray:
    """Return increasing integers whose gaps differ: multiples of ``unit``."""
    gaps = np.random.default_rng(seed).integers(1, 9, n)
    return unit * np.cumsum(gaps)


def uneven_stamps(n: int = 24, seed: int = 0, start: str = "2021-03-01") -> Any:
    """Return datetimes whose gaps are different multiples of a minute."""
    minutes = pd.to_timedelta(uneven_ticks(n, seed, unit=1), unit="min")
    return pd.Timestamp(start) + minutes


def waves(index: pd.Index | None = None, seed: int = 0, name: str = "y") -> pd.Series:
    """Return a noisy wave over ``index``, by default 24 uneven integers."""
    index = pd.Index(uneven_ticks()) if index is None else index
    rng = np.random.default_rng(seed)
    phase = np.arange(len(index)) / 2 + seed
    values = np.sin(phase) + 0.1 * rng.standard_normal(len(index))
    return pd.Series(values, index, name=name)


def channels(index: pd.Index | None = None) -> pd.DataFrame:
    """Return two waves as the columns "a" and "b"."""
    a, b = waves(index, 0), waves(index, 1)
    return pd.DataFrame({"a": a, "b": 10 * b + 3})


def panel(lengths: tuple[int, ...] = (20, 13, 16)) -> pd.DataFrame:
    """Return one series per length, each at stamps of its own, keyed "s0", "s1"..."""
    parts = {
        f"s{k}": waves(uneven_stamps(n, k, f"2021-{k + 1:02d}-01"), k).to_frame()
        for k, n in enumerate(lengths)
    }
    return pd.concat(parts, names=["series", "when"])


def two_sines(seed: int, n: int = 300) -> tuple[pd.Series, float]:
    """Return a noisy sum of two sines at exponential gaps, and its signal's variance.

    Periods of 20 and 7 mean gaps, amplitudes of 1 and 0.5, noise of 0.1.
    """
    rng = np.random.default_rng(seed)
    hours = np.cumsum(np.maximum(rng.exponential(1.0, n), 1e-3))
    phases = rng.uniform(0, 2 * np.pi, 2)
    slow = np.sin(2 * np.pi * hours / 20 + phases[0])
    fast = 0.5 * np.sin(2 * np.pi * hours / 7 + phases[1])
    stamps = pd.Timestamp("2021-01-01") + pd.to_timedelta(hours, unit="h").round("s")
    values = slow + fast + 0.1 * rng.standard_normal(n)
    return pd.Series(values, stamps, name="signal"), float(np.var(slow + fast))


def two_channels_of_sines(seed: int, n: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return two series as in `two_sines` at the same stamps, and without noise."""
    rng = np.random.default_rng(seed)
    hours = np.cumsum(np.maximum(rng.exponential(1.0, n), 1e-3))
    stamps = pd.Timestamp("2021-01-01") + pd.to_timedelta(hours, unit="h").round("s")
    exact = pd.DataFrame(index=stamps)
    for name in ("a", "b"):
        slow, fast = rng.uniform(0, 2 * np.pi, 2)
        exact[name] = np.sin(2 * np.pi * hours / 20 + slow)
        exact[name] += 0.5 * np.sin(2 * np.pi * hours / 7 + fast)
    return exact + 0.1 * rng.standard_normal(exact.shape), exact


def led(n: int = 600, seed: int = 0, gaps: bool = False) -> pd.DataFrame:
    """Return a walk, "leader", and what follows it three rows later, with noise."""
    rng = np.random.default_rng(seed)
    walk = np.cumsum(rng.standard_normal(n + 3))
    stamps = np.arange(n)
    if gaps:
        stamps = np.cumsum(rng.integers(1, 4, n))
    values = np.column_stack([walk[3:], walk[:-3]])
    values += 0.05 * rng.standard_normal(values.shape)
    return pd.DataFrame(values, stamps, ["leader", "follower"])


def with_rows(series: pd.Series, extra: dict[Any, float]) -> pd.Series:
    """Return ``series`` with rows added, sorted by stamp."""
    added = pd.Series(extra, name=series.name)
    both = pd.concat([series, added]).sort_index()
    both.index.name = series.index.name
    return both
