"""Time `StructuralForecaster` on ever longer series, hourly with a day and a week.

python examples/benchmarks/rows_a_second.py [--rows 1000 10000 100000 1000000]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np
import pandas as pd

from sklode import StructuralForecaster


def series(n_rows: int) -> pd.Series:
    """Return an irregular series, whose gaps are an hour on average."""
    rng = np.random.default_rng(0)
    hours = np.cumsum(rng.exponential(1.0, n_rows) + 0.01)
    stamps = pd.Timestamp("1900-01-01") + pd.to_timedelta(hours.round(6), unit="h")
    waves = np.sin(2 * np.pi * hours / 24) + 0.5 * np.sin(2 * np.pi * hours / 168)
    return pd.Series(10 + waves + 0.3 * rng.normal(size=n_rows), stamps, name="load")


def main(arguments: Sequence[str] | None = None) -> pd.DataFrame:
    """Print seconds of a fit with the forecast of a day, and rows a second."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sizes = [1000, 10_000, 100_000, 1_000_000]
    parser.add_argument("--rows", type=int, nargs="+", default=sizes)
    StructuralForecaster().fit(series(100)).predict(range(1, 25))  # compiles
    rows = []
    for n_rows in parser.parse_args(arguments).rows:
        y = series(n_rows)
        start = time.perf_counter()
        StructuralForecaster().fit(y).predict(range(1, 25))
        rows.append((n_rows, time.perf_counter() - start))
    table = pd.DataFrame(rows, columns=["rows", "seconds"])
    table["rows a second"] = (table["rows"] / table["seconds"]).round(-2).astype(int)
    print(table.round({"seconds": 2}).to_string(index=False))
    return table


if __name__ == "__main__":
    main()
