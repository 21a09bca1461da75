"""The fused engine's own: precision, sizes, threads, memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("numba", reason="the fused engine needs numba")

from sklode.engine import fused
from sklode.engine.flows import TABLEAUS


def problem(
    seed: int,
    *,
    n_series: int,
    n_steps: int,
    width: int,
    n_state: int,
    n_inputs: int,
    deep: bool,
    n_gates: int = 4,
    dtype: type = np.float64,
) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)

    def random(*shape: int) -> np.ndarray:
        return (rng.uniform(-1, 1, shape) / max(shape[-1], 1) ** 0.5).astype(dtype)

    dt = -rng.random((n_series, n_steps))
    dt[rng.random(dt.shape) < 0.2] = 0.0
    seen = rng.random((n_series, n_steps)) < 0.6
    inner = {"w2": random(width, width), "b2": random(width)} if deep else {}
    return {
        "w1": random(width, n_state),
        "b1": random(width),
        "wo": random(n_state, width),
        "bo": random(n_state),
        **inner,
        "w": random(n_gates * n_state, n_state + n_inputs),
        "bias": random(n_gates * n_state),
        "x": random(n_series, n_steps, n_inputs),
        "z0": random(n_series, n_state),
        "dt": dt.astype(dtype),
        "seen": seen.astype(dtype),
        "grad_h": random(n_series, n_state),
        "left": rng.integers(0, n_steps, (n_series, n_steps + 1)),
        "theta": rng.random((n_series, n_steps + 1)).astype(dtype),
        "grad_z": random(n_series, n_steps + 1, n_state),
    }


def run(p: dict[str, np.ndarray], method: str, layout: str) -> list[np.ndarray]:
    """Return states and all gradients of the encoder and the decoder."""
    inner = (p["w2"], p["b2"]) if "w2" in p else ()
    field = fused.Field(
        p["w1"], p["b1"], inner, p["wo"], p["bo"], method, "tanh", layout
    )
    cell = p["w"], p["bias"]
    walk = p["x"], p["dt"], p["seen"]
    none = np.zeros((*p["dt"].shape, 0), p["dt"].dtype)
    h, kept = fused.encode(field, cell, *walk)
    by_encoder = fused.encode_backward(field, cell, *walk, kept, p["grad_h"], True)
    queries = p["left"], p["theta"]
    z, kept = fused.decode(field, p["z0"], -p["dt"], none, queries)
    by_decoder = fused.decode_backward(
        field, -p["dt"], none, queries, kept, p["grad_z"]
    )
    emission = p["wo"].T.copy(), p["b1"], p["w1"].T.copy(), p["bo"]
    states = z.reshape(-1, z.shape[-1])
    by_emission = fused.emit_backward(emission, states, states[::-1].copy())
    return [h, *by_encoder, z, *by_decoder, fused.emit(emission, states), *by_emission]


def assert_close(left: list, right: list, tolerance: float) -> None:
    for a, b in zip(left, right, strict=True):
        scale = max(float(np.abs(b).max(initial=0)), 1e-3)
        assert np.abs(a - b).max(initial=0) <= tolerance * scale


@given(
    seed=st.integers(0, 10**6),
    n_series=st.sampled_from([1, 2, 3, 7, 8, 9, 16, 17, 40]),
    n_steps=st.integers(1, 20),
    width=st.integers(1, 30),
    n_state=st.integers(1, 30),
    n_inputs=st.integers(1, 5),
    deep=st.booleans(),
    n_gates=st.sampled_from([1, 4]),
    method=st.sampled_from(sorted(TABLEAUS)),
)
def test_both_layouts_agree_at_every_size(
    method: str, seed: int, n_series: int, **sizes: int
) -> None:
    p = problem(seed, n_series=n_series, **sizes)  # type: ignore[arg-type]
    lanes, single = (run(p, method, layout) for layout in ("lanes", "single"))
    assert_close(single, lanes, 1e-11)


@pytest.mark.parametrize(("n_steps", "tolerance"), [(100, 1e-5), (1000, 1e-4)])
@pytest.mark.parametrize("layout", ["lanes", "single"])
def test_single_precision_keeps_its_digits(
    n_steps: int, tolerance: float, layout: str
) -> None:
    sizes = {"n_series": 4, "width": 20, "n_state": 25, "n_inputs": 2, "deep": True}
    p = problem(0, n_steps=n_steps, **sizes)  # type: ignore[arg-type]
    p["dt"] *= 0.2
    single = {
        name: value if name == "left" else value.astype(np.float32)
        for name, value in p.items()
    }
    assert_close(run(single, "rk4", layout), run(p, "rk4", layout), tolerance)


def test_threads_change_nothing_but_the_order_of_sums(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fused, "_WORTH_A_THREAD", 0)
    sizes = {"n_series": 50, "n_steps": 9, "width": 6, "n_state": 5, "n_inputs": 2}
    p = problem(1, deep=True, **sizes)  # type: ignore[arg-type]
    before = torch.get_num_threads()
    results = []
    try:
        for n_threads in (1, 2, 3, 2):
            torch.set_num_threads(n_threads)
            results.append(run(p, "rk4", "lanes"))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert_close(other, results[0], 1e-12)
    for a, b in zip(results[1], results[3], strict=True):
        np.testing.assert_array_equal(a, b)


def test_working_memory_is_never_overrun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guard numbers behind the room that is asked for must survive."""
    guards = []

    def guarded(room: tuple[int, int], n_lanes: int, dtype: np.dtype) -> np.ndarray:
        n = room[0] * n_lanes + room[1] + 64 * 48
        arena = fused.aligned((n + 4096,), dtype)
        arena[n:] = 12345.0
        guards.append(arena[n:])
        return arena

    monkeypatch.setattr(fused, "_arena", guarded)
    for width, n_state, n_inputs in ((1, 1, 1), (64, 3, 1), (3, 64, 2), (33, 17, 30)):
        for deep in (False, True):
            p = problem(
                2,
                n_series=5,
                n_steps=20,
                width=width,
                n_state=n_state,
                n_inputs=n_inputs,
                deep=deep,
            )
            for layout in ("lanes", "single"):
                run(p, "rk4", layout)
    assert guards
    assert all((guard == 12345.0).all() for guard in guards)


@pytest.mark.parametrize("layout", ["lanes", "single"])
def test_what_memory_held_before_does_not_matter(
    monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    sizes = {"n_series": 17, "n_steps": 9, "width": 6, "n_state": 5, "n_inputs": 2}
    problems = [problem(4, deep=deep, **sizes) for deep in (False, True)]  # type: ignore[arg-type]
    expected = [run(p, "rk4", layout) for p in problems]
    filled = []

    def full_of_nothing(allocate: Callable[..., np.ndarray]) -> Callable[..., Any]:
        def filling(*arguments: Any) -> np.ndarray:
            room = allocate(*arguments)
            room[...] = np.nan
            filled.append(allocate.__name__)
            return room

        return filling

    for name in ("aligned", "_arena"):  # what is allocated, and what is kept for long
        monkeypatch.setattr(fused, name, full_of_nothing(getattr(fused, name)))
    for p, before in zip(problems, expected, strict=True):
        for a, b in zip(run(p, "rk4", layout), before, strict=True):
            np.testing.assert_array_equal(a, b)
    assert set(filled) == {"aligned", "_arena"}


def test_compiled_code_is_as_old_as_its_sources() -> None:
    from sklode.engine import cache, decoding

    stamp = decoding.decode._cache._cache_file._source_stamp
    assert stamp[1] == cache._SOURCES


def test_what_is_no_number_stays_none() -> None:
    sizes = {"n_series": 2, "n_steps": 4, "width": 5, "n_state": 3, "n_inputs": 2}
    p = problem(3, deep=False, **sizes)  # type: ignore[arg-type]
    p["z0"][1, 0] = np.nan
    for layout in ("lanes", "single"):
        states = run(p, "rk4", layout)[8]
        assert states.shape == (2, 5, 3)
        assert np.isfinite(states[0]).all()
        assert np.isnan(states[1, -1]).any()


def test_large_memory_is_used_again_once_nothing_reads_it() -> None:
    rooms = fused._Rooms()
    shape, dtype = (2**19, 1), np.dtype("float32")
    first = rooms.take(shape, dtype)
    place = first.ctypes.data
    tensor = torch.from_numpy(first)
    del first
    other = rooms.take(shape, dtype)
    assert other.ctypes.data != place  # the tensor still reads it
    tensor.fill_(1.0)
    part = tensor[3:]
    del tensor
    assert rooms.take(shape, dtype).ctypes.data != place
    del part
    assert rooms.take(shape, dtype).ctypes.data == place


def test_no_more_memory_is_held_than_a_bound() -> None:
    rooms = fused._Rooms()
    dtype = np.dtype("float32")
    arrays = [rooms.take((2**20 + n,), dtype) for n in range(40)]  # 160 MiB
    del arrays
    assert 0 < sum(room.nbytes for room in rooms._free) <= rooms.most_bytes
