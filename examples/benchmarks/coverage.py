"""Count how often 90 % intervals hold, in each kind of data.

From several origins of each series, values ahead are compared with the bounds of
`StructuralForecaster`. Made-up series have a break before the origin: a step, a kink, a
crisis with its recovery, or more noise than before. The others are read from a folder
of compressed tables (``--data``); those that are not there are left out, with a line
that says so. Beside coverage stand the continuous ranked probability score over the
mean absolute error of the last value, and the energy score of joint paths over that
value's distance from the truth: medians. Neighbouring errors of one series are alike:
judge a kind by many origins.

    python examples/benchmarks/coverage.py [--data PATH] [--cases NAME ...]
        [--origins 8] [--seeds 0 1 2 3]
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from sklode import StructuralForecaster
from sklode.model_selection import energy_score, quantile_crps

if __name__ == "coverage":  # numba looks for the package, from any script beside this
    raise ImportError("examples/benchmarks/coverage.py is a script, no package")

LEVELS = np.arange(0.05, 1, 0.1)  # of quantiles
N_ROWS, N_AHEAD, SINCE = 160, 12, 4
"""Rows of made-up series before the origin, after it, and since a break."""

Task = tuple[pd.Series, pd.Series]
"""What is seen, and what follows."""


def broken(kind: str, seed: int, since: int) -> Task:
    """Return a made-up series that broke so many rows before its origin."""
    rng = np.random.default_rng(seed)
    n = N_ROWS + N_AHEAD
    passed = np.maximum(np.arange(n) - (N_ROWS - since) + 1.0, 0.0)
    noise = rng.normal(size=n)
    y = 100 + 0.1 * np.arange(n) + np.cumsum(0.3 * rng.normal(size=n))
    y += 3 * np.sin(2 * np.pi * np.arange(n) / 7)
    if kind == "step":
        y += 25.0 * (passed > 0)
    elif kind == "kink":
        y += 0.5 * passed
    elif kind == "crisis":  # it falls for some rows, then recovers slowly
        y -= 20 * np.minimum(passed / 4, 1) * np.exp(-np.maximum(passed - 4, 0) / 20)
    elif kind == "noise":
        noise *= np.where(passed > 0, 2.5, 1.0)
    whole = pd.Series(y + noise, pd.date_range("2024-01-01", periods=n))
    return whole[:N_ROWS], whole[N_ROWS:]


def of_breaks(kind: str) -> Callable[..., Iterator[Task]]:
    """Return tasks whose break is ever longer ago."""

    def tasks(folder: Path | None, n_origins: int, seed: int) -> Iterator[Task]:
        for k in range(n_origins):
            yield broken(kind, 1000 * seed + k, SINCE * (k + 1))

    return tasks


def of_file(
    name: str, time: str, column: str, n_rows: int, n_ahead: int
) -> Callable[..., Iterator[Task]]:
    """Return tasks at random origins of one column of a table."""

    def tasks(folder: Path | None, n_origins: int, seed: int) -> Iterator[Task]:
        if folder is None:
            raise FileNotFoundError("it is read from --data")
        table = pd.read_csv(folder / f"{name}.csv.gz")
        if "id" in table:  # of a panel one person
            person = table["id"].unique()[seed % table["id"].nunique()]
            table = table[table["id"] == person]
        stamps = pd.to_datetime(table[time], utc=True)
        values = table[column].to_numpy(dtype=float)
        y = pd.Series(values, pd.DatetimeIndex(stamps).tz_localize(None)).dropna()
        y = y[~y.index.duplicated()].sort_index()
        rng = np.random.default_rng(seed)
        first = min(n_rows, len(y) // 2)
        for origin in rng.integers(first, len(y) - n_ahead, n_origins):
            yield y.iloc[max(origin - n_rows, 0) : origin], y.iloc[origin:][:n_ahead]

    return tasks


def of_months(name: str, n_ahead: int) -> Callable[..., Iterator[Task]]:
    """Return tasks of a table with a column for each of many monthly series."""

    def tasks(folder: Path | None, n_origins: int, seed: int) -> Iterator[Task]:
        if folder is None:
            raise FileNotFoundError("it is read from --data")
        table = pd.read_csv(folder / f"{name}.csv.gz", index_col=0, parse_dates=[0])
        rng = np.random.default_rng(seed)
        for place in rng.permutation(table.shape[1])[:n_origins]:
            y = table.iloc[:, place].astype(float)
            # one origin for all would ask about the same months, and what befell them
            origin = rng.integers(2 * len(y) // 3, len(y) - n_ahead + 1)
            yield y[:origin], y[origin:][:n_ahead]

    return tasks


CASES: dict[str, Callable[..., Iterator[Task]]] = {
    "step": of_breaks("step"),
    "kink": of_breaks("kink"),
    "crisis": of_breaks("crisis"),
    "more noise": of_breaks("noise"),
    "no break": of_breaks("none"),
    "load": of_file("load", "utc", "Demand", n_rows=1464, n_ahead=168),
    "bikes": of_file("bikes", "time", "users", n_rows=2184, n_ahead=60),
    "minutes": of_file("minutes", "ds", "y", n_rows=4320, n_ahead=240),
    "glucose": of_file("glucose", "time", "gl", n_rows=1000, n_ahead=12),
    "mountain": of_file("mountain", "time", "temp", n_rows=1000, n_ahead=12),
    "parts": of_months("parts", n_ahead=6),
    "scripts": of_months("scripts", n_ahead=6),
    "air of Dallas": of_file("air_dallas", "time", "pm2_5", n_rows=900, n_ahead=24),
    "air of Denver": of_file("air_denver", "time", "pm2_5", n_rows=900, n_ahead=24),
}


class Scores(NamedTuple):
    """What a forecast of one task is worth."""

    held: np.ndarray  # (row,), whether a value lies in its interval
    crps: float  # over the mean absolute error of the last value
    energy: float  # of joint paths, over the last value's distance from the truth


def scores(task: Task) -> Scores:
    """Forecast what is ahead, and score points, intervals and paths."""
    past, ahead = task
    forecaster = StructuralForecaster(random_state=0).fit(past)
    low, high = forecaster.predict_interval(ahead.index, coverage=0.9).to_numpy().T
    quantiles = forecaster.predict_quantiles(ahead.index, alpha=[*LEVELS]).to_numpy()
    paths = forecaster.sample(ahead.index).to_numpy().reshape(-1, len(ahead))
    truth = ahead.to_numpy()
    missed = truth - past.iloc[-1]
    return Scores(
        held=(truth >= low) & (truth <= high),
        crps=quantile_crps(truth, quantiles, LEVELS).mean() / np.abs(missed).mean(),
        energy=energy_score(truth, paths) / np.linalg.norm(missed),
    )


def main(arguments: Sequence[str] | None = None) -> pd.DataFrame:
    """Count in each case, and print the shares."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of the tables")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--origins", type=int, default=8)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3])
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    rows = {}
    for case in given.cases:
        try:
            each = [
                scores(task)
                for seed in given.seeds
                for task in CASES[case](given.data, given.origins, seed)
            ]
        except FileNotFoundError as error:
            print(f"{case}: left out, {error}")
            continue
        shares = np.array([one.held.mean() for one in each])
        rows[case] = {
            "coverage": np.concatenate([one.held for one in each]).mean(),
            "least of an origin": shares.min(),
            "origins below 0.5": (shares < 0.5).mean(),
            "origins": len(shares),
            "CRPS": np.median([one.crps for one in each]),
            "energy": np.median([one.energy for one in each]),
        }
        line = ", ".join(f"{name} {x:.3g}" for name, x in rows[case].items())
        print(f"{case:16}{line}", flush=True)
    return pd.DataFrame.from_dict(rows, orient="index")


if __name__ == "__main__":
    main()
