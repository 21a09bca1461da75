"""Runs of the engine: precision, threads, blocks, and what memory is read."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sklode.engine import runs

SIZES: dict[str, Any] = {"width": 6, "n_state": 5, "n_inputs": 2}
KINDS: list[dict[str, Any]] = [
    {"n_gates": n_gates, "method": method, "depth": depth, "controlled": controlled}
    for n_gates, (method, depth), controlled in itertools.product(
        (1, 4), (("rk4", 2), ("midpoint", 1), ("euler", 2)), (False, True)
    )
]


def problem(
    seed: int = 0,
    *,
    n_series: int,
    n_steps: int,
    width: int,
    n_state: int,
    n_inputs: int,
    n_gates: int = 4,
    method: str = "rk4",
    depth: int = 1,
    controlled: bool = False,
    dtype: str = "float64",
) -> list[Any]:
    """Return what runs of the encoder and the decoder are made of."""
    rng = np.random.default_rng(seed)

    def random(*shape: int) -> np.ndarray:
        return (rng.uniform(-1, 1, shape) / max(shape[-1], 1) ** 0.5).astype(dtype)

    dt = -rng.random((n_series, n_steps)).astype(dtype)
    dt[rng.random(dt.shape) < 0.2] = 0.0
    seen = (rng.random((n_series, n_steps)) < 0.6).astype(dtype)
    inner = [random(width, width), random(width)] * (depth - 1)
    outer = random(n_state, width), random(n_state)
    layers = [random(width, n_state), random(width), *inner, *outer]
    x = random(n_series, n_steps, n_inputs)
    cell = random(n_gates * n_state, n_state + n_inputs + 1)
    left = rng.integers(0, max(n_steps, 1), (n_series, n_steps + 2))
    theta, z0 = random(*left.shape) ** 2, random(n_series, n_state)
    added = random(n_series, n_steps, width) if controlled else None
    encoder = method, True, dt, seen, x, cell, *layers
    decoder = method, True, -dt, left, theta, z0, added, *layers
    return [(runs.Encoding, encoder), (runs.Decoding, decoder)]


def run(problem: list[Any]) -> list[np.ndarray]:
    """Return states and all gradients of the encoder and the decoder."""
    found = []
    for kind, made_of in problem:
        made = kind(*made_of)
        grads = made.backward(np.cos(made.result))
        found += [made.result, *(grad for grad in grads if grad is not None)]
    return found


def assert_close(left: list, right: list, tolerance: float) -> None:
    for a, b in zip(left, right, strict=True):
        scale = max(float(np.abs(b).max(initial=0)), 1e-3)
        assert np.abs(a - b).max(initial=0) <= tolerance * scale


def as_single(part: Any) -> Any:
    is_double = isinstance(part, np.ndarray) and part.dtype == np.float64
    return part.astype(np.float32) if is_double else part


@pytest.mark.parametrize(("n_steps", "tolerance"), [(30, 1e-5), (1000, 1e-4)])
def test_single_precision_keeps_its_digits(n_steps: int, tolerance: float) -> None:
    sizes: Any = {"n_series": 4, "n_steps": n_steps, "width": 20, "n_state": 25}
    double = problem(**sizes, n_inputs=2, depth=2)
    for _, (_, _, dt, *_) in double:
        dt *= 0.2
    single = [(kind, tuple(map(as_single, made_of))) for kind, made_of in double]
    assert all(found.dtype == np.float32 for found in run(single))
    assert_close(run(single), run(double), tolerance)


def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_WORTH_A_THREAD", 0)
    monkeypatch.setattr(runs, "_BLOCK", 9)
    monkeypatch.setattr(runs, "_ALIKE", 9)
    made = problem(1, n_series=50, n_steps=9, depth=2, **SIZES)
    before, results = torch.get_num_threads(), []
    try:
        for n_threads in (1, 2, 3):
            torch.set_num_threads(n_threads)
            results.append(run(made))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        for a, b in zip(other, results[0], strict=True):
            np.testing.assert_array_equal(a, b)


def test_blocks_change_nothing_but_the_order_of_sums(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = problem(1, n_series=50, n_steps=9, depth=2, controlled=True, **SIZES)
    whole = run(made)
    for size in (1, 7, 20):
        monkeypatch.setattr(runs, "_BLOCK", size)
        monkeypatch.setattr(runs, "_ALIKE", size)
        assert_close(run(made), whole, 1e-12)


def test_gradients_that_fade_leave_no_subnormal_numbers() -> None:
    sizes: Any = {"n_series": 2, "n_steps": 400, "width": 5, "n_state": 5}
    _, (kind, made_of) = problem(2, **sizes, n_inputs=1, controlled=True)
    method, keeps, dt, left, theta, z0, added, *_ = made_of
    one, none = np.eye(5), np.zeros(5)
    layers = one, none, -one, none  # dz/dt = -tanh(z + what is added)
    queries = np.full_like(left, 399), np.ones_like(theta)
    run_of = 0.0 * dt + 0.5, *queries, 0.1 * z0, 0.0 * added, *layers
    made = kind(method, keeps, *map(as_single, run_of))
    found = np.abs(made.backward(np.ones_like(made.result))[4])
    assert found[:, -1].max() > 1e-3
    assert found[:, 0].max() == 0
    assert found[found > 0].min() > 1e-37


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.values()))
def test_what_memory_held_before_does_not_matter(
    monkeypatch: pytest.MonkeyPatch, kind: dict
) -> None:
    """Where a fresh array is read before it is written, results depend on luck."""
    made = problem(4, n_series=17, n_steps=9, **SIZES, **kind)
    expected = run(made)

    class Filled:
        """numpy, whose fresh arrays hold what is no number."""

        def __getattr__(self, name: str) -> Any:
            return getattr(np, name)

        def empty(self, *given: Any) -> np.ndarray:
            return np.full(given[0], np.nan, given[1])

        def empty_like(self, like: np.ndarray) -> np.ndarray:
            return np.full_like(like, np.nan)

    monkeypatch.setattr(runs, "np", Filled())
    for found, before in zip(run(made), expected, strict=True):
        assert np.isfinite(before).all()
        np.testing.assert_array_equal(found, before)


CHECKED = """
from tests.engine import test_runs as tests

sizes = [(1, 1, 1, 1, 1), (5, 20, 13, 3, 30), (17, 9, 3, 26, 2)]
names = "n_series", "n_steps", "width", "n_state", "n_inputs"
for size in sizes:
    for kind in tests.KINDS:
        named = dict(zip(names, size), **kind)
        tests.run(tests.problem(dtype="float32", **named))
named = dict(zip(names, sizes[1]), **kind)
(kind, made_of), _ = tests.problem(dtype="float32", **named)
try:
    made = kind(*made_of)
    made.kept[0].kept[0].resize((1, 1), refcheck=False)
    made.backward(made.result)
except IndexError:
    print("noticed")
"""


@pytest.mark.slow
def test_nothing_beside_an_array_is_read_or_written(tmp_path: Path) -> None:
    checks = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", CHECKED],
        capture_output=True,
        text=True,
        env=os.environ | checks,
        cwd=Path(__file__).parents[2],
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["noticed"]
