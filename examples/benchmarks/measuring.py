"""How the benchmarks measure: in turns, by medians, memory in a process of its own."""

from __future__ import annotations

import multiprocessing
import resource
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

__all__ = [
    "PRODUCT_OPERATIONS",
    "in_own_process",
    "largest_megabytes",
    "peak_megabytes",
    "product_seconds",
    "resident_megabytes",
    "seconds_and_peak",
    "take_turns",
    "turn",
    "within",
]

_LEFT, _RIGHT = torch.ones(2, 512, 512).unbind()

PRODUCT_OPERATIONS = 2 * 512**3
"""What `product_seconds` times; a multiplication and an addition are two."""


def take_turns(
    steps: Mapping[str, Callable[[], object]], repeats: int
) -> dict[str, float]:
    """Return the median seconds of each step; a busy machine slows all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeats):
        for name, step in steps.items():
            seconds[name].append(turn(step))
    return {name: statistics.median(turns) for name, turns in seconds.items()}


def turn(step: Callable[[], object], least: float = 0.1) -> float:
    """Return the seconds of a step, repeated for so many seconds at least.

    In training a step finds its own data in the caches, not those of the one that had
    its turn before.
    """
    step()
    start, n_steps = time.perf_counter(), 0
    while (took := time.perf_counter() - start) < least:
        step()
        n_steps += 1
    return took / n_steps


def product_seconds() -> float:
    """Return what `PRODUCT_OPERATIONS` take where nothing disturbs them.

    The fastest of many, where steps are compared by medians: the floor is what the
    machine can do, and a product is short enough to run between two disturbances.
    """
    seconds = []
    for _ in range(50):
        start = time.perf_counter()
        torch.mm(_LEFT, _RIGHT)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the block after that long; Unix only, else without end."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def stop(*_: object) -> None:
        raise TimeoutError(f"not ready after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def in_own_process(function: Callable[..., Any], *arguments: object) -> Any:
    """Call a function in a fresh process, and return what it returns."""
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=fresh) as process:
        return process.submit(function, *arguments).result()


def peak_megabytes(
    small: Callable[[], object], make: Callable[[], Callable[[], object]]
) -> float:
    """Return how much resident memory a step adds at its peak; in a fresh process.

    Libraries, and what they set up once, are charged to nobody: ``small``, a step of a
    tiny workload, comes first. Data, weights and code compiled for the sizes of the
    step that ``make`` returns count, the memory of compiling it does not.
    """
    small()
    before = resident_megabytes()
    step = make()
    step()
    _, peak = seconds_and_peak(step)
    return max(peak - before, 0.0)


def seconds_and_peak(step: Callable[[], object]) -> tuple[float, float]:
    """Return what a call takes, and the megabytes that are resident at its peak."""
    _forget_peak()
    start = time.perf_counter()
    step()
    return time.perf_counter() - start, largest_megabytes()


def _forget_peak() -> None:
    """Linux can let the high-water mark start again from what is resident now."""
    mark = Path("/proc/self/clear_refs")
    if mark.exists():
        mark.write_text("5")


def resident_megabytes() -> float:
    """Return what the process holds now; where only its peak is known, that."""
    return _status("VmRSS:") or _largest()


def largest_megabytes() -> float:
    """Return what the process has held at most."""
    return _status("VmHWM:") or _largest()


def _largest() -> float:
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def _status(name: str) -> float | None:
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    line = next(x for x in status.read_text().splitlines() if x.startswith(name))
    return int(line.split()[1]) * 1024 / 1e6
