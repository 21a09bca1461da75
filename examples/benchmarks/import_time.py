"""Measure how long ``import sklode`` takes beside what it stands on, torch and sktime.

Whole processes of ``python -c``, in turns, so that a busy machine slows all alike. A
forecaster needs sktime's base class; ``import sktime`` alone brings little of it.

    python examples/benchmarks/import_time.py [--repeats 15]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

STATEMENTS = {
    "sklode": "import sklode",
    "torch, sktime.forecasting.base": "import torch, sktime.forecasting.base",
    "torch, sktime": "import torch, sktime",
}

REQUIRED = 1.1
"""At most so many times the import of torch and of sktime's base class."""


def seconds(statement: str) -> float:
    """Return how long a fresh process takes to run a statement, its start included."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True)
    return time.perf_counter() - started


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Print medians, and the ratios of the first to the others.

    Returns
    -------
    dict
        The ratio of ``import sklode`` to each other import.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15, help="processes of each")
    repeats = parser.parse_args(arguments).repeats
    taken: dict[str, list[float]] = {name: [] for name in STATEMENTS}
    for statement in STATEMENTS.values():
        seconds(statement)  # fills the disk's cache
    for _ in range(repeats):
        for name, statement in STATEMENTS.items():
            taken[name].append(seconds(statement))
    medians = {name: statistics.median(turns) for name, turns in taken.items()}
    ratios = {}
    print(f"{'import':32} seconds   ours / it")
    for name, median in medians.items():
        ratios[name] = medians["sklode"] / median
        print(f"{name:32} {median:7.2f}   {ratios[name]:9.2f}")
    del ratios["sklode"]
    needed = ratios["torch, sktime.forecasting.base"]
    print(f"required: at most {REQUIRED}; reached: {needed:.2f}")
    return ratios


if __name__ == "__main__":
    main()
