"""Measure what it is worth to tell a forecaster what is known of a series.

Each case is made up from seeds, or reads a table from a folder (``--data``); one that
is not there is left out, with a line that says so.

    python examples/benchmarks/knowledge.py [--data PATH] [--cases NAME ...]
        [--seeds 0 1 2 3 4 5 6 7 8 9]
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from sklode import StructuralForecaster

if __name__ == "knowledge":  # numba looks for the package, from any script beside this
    raise ImportError("examples/benchmarks/knowledge.py is a script, no package")

Figures = dict[str, float]
N_ROWS, N_AHEAD = 360, 48
STRENGTHS = 0.5, 2.0, 5.0
"""Deviations of what X adds to y, where the noise has one."""


def column(kind: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return a column of X that wanders, repeats itself, or grows."""
    steps = rng.normal(size=n)
    if kind == "wandering":  # half of a deviation is left after some 30 rows
        values = np.zeros(n)
        for k in range(1, n):
            values[k] = 0.98 * values[k - 1] + steps[k]
        return values
    if kind == "seasonal":
        return 3 * np.sin(2 * np.pi * np.arange(n) / 24) + steps
    return 0.03 * np.arange(n) + np.cumsum(0.2 * steps)


def driven(kind: str, strength: float, seed: int) -> tuple[pd.Series, pd.DataFrame]:
    """Return a series that X drives, at stamps that are now and then missing."""
    rng = np.random.default_rng(seed)
    n = N_ROWS + N_AHEAD
    values = column(kind, n, rng)
    y = 20 + strength * (values - values.mean()) / values.std()
    y += np.cumsum(0.1 * rng.normal(size=n)) + rng.normal(size=n)
    stamps = pd.date_range("2024-01-01", periods=n, freq="h")
    kept = (rng.random(n) > 0.1) | (np.arange(n) >= N_ROWS)
    return pd.Series(y, stamps)[kept], pd.DataFrame({"u": values}, stamps)[kept]


def held(forecaster: StructuralForecaster, ahead: pd.Series) -> np.ndarray:
    """Return, of each value ahead, whether it lies in its 90 % interval."""
    low, high = forecaster.predict_interval(ahead.index, coverage=0.9).to_numpy().T
    return (ahead.to_numpy() >= low) & (ahead.to_numpy() <= high)


def error(
    forecaster: StructuralForecaster, ahead: pd.Series, X: object = None
) -> float:
    """Return the mean absolute error ahead."""
    return float((forecaster.predict(ahead.index, X=X) - ahead).abs().mean())


def unknown_x(folder: Path | None, seeds: Sequence[int]) -> Figures:
    """End X where y does: coverage, and errors over those without any X."""
    found: dict[str, list[float]] = {}
    every: list[np.ndarray] = []
    ratios = []
    for kind in ("wandering", "seasonal", "trending"):
        own = []
        for strength in STRENGTHS:
            for seed in seeds:
                y, X = driven(kind, strength, seed)
                past, ahead = y[:-N_AHEAD], y[-N_AHEAD:]
                told = StructuralForecaster(random_state=0).fit(past, X[:-N_AHEAD])
                alone = StructuralForecaster(random_state=0).fit(past)
                own.append(held(told, ahead))
                ratios.append(error(told, ahead) / error(alone, ahead))
        found[f"coverage, {kind}"] = [np.mean(own)]
        every += own
    figures = {name: float(values[0]) for name, values in found.items()}
    figures["coverage"] = float(np.mean(every))
    return figures | {"error over none": float(np.exp(np.log(ratios).mean()))}


def load_without_x(folder: Path | None, seeds: Sequence[int]) -> Figures:
    """Forecast demand for electricity, whose warmth is not told ahead."""
    if folder is None:
        raise FileNotFoundError("it is read from --data")
    table = pd.read_csv(folder / "load.csv.gz")
    stamps = pd.DatetimeIndex(pd.to_datetime(table["utc"], utc=True)).tz_localize(None)
    table = table.set_index(stamps)[["Demand", "Temperature"]].dropna()
    inside, ratios = [], []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        origin = int(rng.integers(1464, len(table) - 168))
        seen, later = table.iloc[origin - 1464 : origin], table.iloc[origin:][:168]
        y, ahead, X = seen["Demand"], later["Demand"], seen[["Temperature"]]
        told = StructuralForecaster(random_state=0).fit(y, X)
        alone = StructuralForecaster(random_state=0).fit(y)
        inside.append(held(told, ahead))
        ratios.append(error(told, ahead) / error(alone, ahead))
    ratio = float(np.exp(np.log(ratios).mean()))
    return {"coverage": float(np.mean(inside)), "error over none": ratio}


def categories(folder: Path | None, seeds: Sequence[int]) -> Figures:
    """Compare a category of 5 or 30 levels with indicators by hand, and with none."""
    figures: Figures = {}
    for n_levels in (5, 30):
        ratios = []
        for seed in seeds:
            rng = np.random.default_rng(seed)
            n = N_ROWS + N_AHEAD
            stamps = pd.date_range("2024-01-01", periods=n, freq="h")
            level = rng.integers(n_levels, size=n)
            size = 0.7 if seed % 2 else 2.0  # weak and strong effects by turns
            y = 20 + size * rng.normal(size=n_levels)[level] + rng.normal(size=n)
            y = pd.Series(y + np.cumsum(0.1 * rng.normal(size=n)), stamps)
            X = pd.DataFrame({"kind": level}, stamps).astype(str)
            by_hand = pd.get_dummies(X, dtype=float)
            errors = []
            for one in (X, by_hand, None):
                given = (
                    (None, None) if one is None else (one[:-N_AHEAD], one[-N_AHEAD:])
                )
                told = StructuralForecaster(random_state=0).fit(y[:-N_AHEAD], given[0])
                errors.append(error(told, y[-N_AHEAD:], given[1]))
            ratios.append([errors[0] / errors[1], errors[0] / errors[2]])
        by_hand_ratio, none_ratio = np.exp(np.log(ratios).mean(0)).tolist()
        figures[f"{n_levels} levels, over indicators"] = by_hand_ratio
        figures[f"{n_levels} levels, over none"] = none_ratio
    return figures


CASES: dict[str, Callable[[Path | None, Sequence[int]], Figures]] = {
    "unknown X": unknown_x,
    "load without X": load_without_x,
    "categories": categories,
}


def main(arguments: Sequence[str] | None = None) -> pd.DataFrame:
    """Run the cases, and print their figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of the tables")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10)))
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    rows = {}
    for case in given.cases:
        try:
            rows[case] = CASES[case](given.data, given.seeds)
        except FileNotFoundError as missing:
            print(f"{case}: left out, {missing}")
            continue
        line = ", ".join(f"{name} {x:.3g}" for name, x in rows[case].items())
        print(f"{case:16}{line}", flush=True)
    return pd.DataFrame.from_dict(rows, orient="index")


if __name__ == "__main__":
    main()
