"""The search that chose the settings: validation inside the training part only.

One parameter after the other is tried with a few values, and the best is kept where it
is better by more than `GAIN`. Forecasts are validated on blocks at the training part's
end, each by a model that was trained on the rows before it; spirals on sets of other
seeds than those that are reported. The start is what `settings.py` holds.

    python examples/paper/tune.py climate --data FOLDER --tasks 30/30
    python examples/paper/tune.py stocks --data FOLDER --stock IBM --tasks 7/7
    python examples/paper/tune.py spirals
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import climate
import numpy as np
import spirals
import stocks
from forecasting import run_task
from protocol import TASKS, Experiment, last_value
from settings import CLIMATE, SPIRALS, STOCKS, features

MODEL = "Latent ODE-LSTM+GC"
GAIN = 0.005
"""Smaller improvements, as a share of the score, are within the noise of the seeds."""

Settings = dict[str, Any]

CANDIDATES: dict[str, dict[str, Sequence[Any]]] = {
    "climate": {
        "lr": (0.005, 0.01, 0.02),
        "normalize": ("series", "blend", "window"),
        "max_epochs": (5, 10, 20),
        "weight_decay": (0.0, 0.3),  # of "adamw"
        "hidden_size": (16, 32),
        "latent_size": (4, 8),
        "kl_annealing_epochs": (None, 0),
        "backcast_fraction": (0.0, 0.5),
    },
    "stocks": {
        "max_epochs": (1, 5, 10, 20),
        "weight_decay": (0.0, 1.0, 10.0),
        "lr": (1e-4, 0.001, 0.005),
        "field_width": (8, 32),
    },
    "spirals": {
        "step_size": (2.0, 8.0),
        "field_depth": (1, 2),
        "lr": (0.005, 0.01),
        "backcast_fraction": (0.0, 0.5),
    },
}
VALIDATION_YEARS = (2015, 2016)
VALIDATION_ROWS = (750, 375)
"""Of the stocks, from the training part's end; each block has half of the first."""

VALIDATION_SEEDS = (100, 101)


def climate_folds(experiment: Experiment) -> list[Experiment]:
    """Return a year of the training part after the other, with what lies before it."""
    years = experiment.train.index.year
    return [
        Experiment(experiment.train[years <= year], int((years < year).sum()), every=5)
        for year in VALIDATION_YEARS
    ]


def stock_folds(experiment: Experiment) -> list[Experiment]:
    """Return blocks at the training part's end, with what lies before them."""
    n_train, length = experiment.n_train, VALIDATION_ROWS[-1]
    return [
        Experiment(experiment.data.iloc[: n_train - rows + length], n_train - rows, 5)
        for rows in VALIDATION_ROWS
    ]


def forecast_score(
    folds: Sequence[Experiment],
    task: str,
    settings: Settings,
    seeds: Sequence[int],
    relative: bool,
    features: Any = None,
) -> float:
    """Return the mean error over folds and seeds.

    Parameters
    ----------
    folds : sequence of Experiment
    task : str
    settings : dict
    seeds : sequence of int
    relative : bool
        Whether in multiples of the last value's; the mean is then geometric.
    features : callable, optional
        Gives X from the stamps alone.
    """
    found = []
    for fold in folds:
        errors = [
            fold.mse(run_task(fold, task, settings, MODEL, seed, features))
            for seed in seeds
        ]
        found.append(np.mean(errors))
        if relative:
            found[-1] /= fold.mse(last_value(fold, *TASKS[task]))
    return float(np.exp(np.mean(np.log(found))) if relative else np.mean(found))


def spiral_score(settings: Settings, n_series: int) -> float:
    """Return the geometric mean error of the parts that a model can know, N = 100."""
    parts = ("reconstruction", "forward covered", "backward covered")
    found = []
    for seed in VALIDATION_SEEDS:
        observed, truth = spirals.make_set(100, seed, n_series, per_series=False)
        forecaster = spirals.fit(MODEL, settings, observed, seed)
        scores = spirals.scores(forecaster.predict_at(truth.index), truth)
        found += [scores[part] for part in parts]
    return float(np.exp(np.mean(np.log(found))))


def search(
    start: Settings,
    candidates: dict[str, Sequence[Any]],
    score: Callable[[Settings], float],
) -> tuple[Settings, float]:
    """Try one parameter after the other, and keep the value that scores lowest."""
    best, lowest = dict(start), score(start)
    print(f"{'start':40}{lowest:10.4f}", flush=True)
    for name, values in candidates.items():
        tried = best
        for value in values:
            if value == tried.get(name):
                continue
            found = score({**tried, name: value})
            print(f"{name + ' = ' + repr(value):40}{found:10.4f}", flush=True)
            if found < (1 - GAIN) * lowest:
                best, lowest = {**tried, name: value}, found
    return best, lowest


def main(arguments: Sequence[str] | None = None) -> dict[str, Settings]:
    """Search, print every trial; return the settings found, by task."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiment", choices=list(CANDIDATES))
    parser.add_argument("--data", type=Path, help="folder of the climate or the stocks")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--stock", nargs="+", default=["IBM", "MSFT", "JPM"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[10, 11])
    parser.add_argument("--only", nargs="+", help="parameters to search; all without")
    parser.add_argument("--series", type=int, default=1000, help="number of spirals")
    parser.add_argument("--epochs", type=int, help="start from so many")
    options = parser.parse_args(arguments)
    if options.data is None and options.experiment != "spirals":
        parser.error(
            f"{options.experiment} needs --data, a folder of files from Kaggle; see "
            f"{options.experiment}.py."
        )
    candidates = CANDIDATES[options.experiment]
    unknown = set(options.only or ()) - set(candidates)
    if unknown:
        parser.error(f"--only takes {', '.join(candidates)}; got {sorted(unknown)}")
    if options.only:
        candidates = {name: candidates[name] for name in options.only}
    changes = {"max_epochs": options.epochs} if options.epochs else {}

    if options.experiment == "spirals":
        found, score = search(
            {**SPIRALS, **changes},
            candidates,
            lambda settings: spiral_score(settings, options.series),
        )
        print(f"\nN = 100: {score:.4f} {found}")
        return {"N = 100": found}
    if options.experiment == "climate":
        folds, start = climate_folds(climate.load(options.data)), CLIMATE
    else:
        start, folds = STOCKS, []
        for name in options.stock:
            folds += stock_folds(stocks.load(options.data / f"{name}.csv"))
    relative = options.experiment == "stocks"
    x_of = None if relative else features
    chosen = {}
    for task in options.tasks:
        print(f"\n{task}")
        chosen[task], score = search(
            {**start[task], **changes},
            candidates,
            lambda settings, task=task: forecast_score(
                folds, task, settings, options.seeds, relative, x_of
            ),
        )
        print(f"{task}: {score:.4f} {chosen[task]}")
    return chosen


if __name__ == "__main__":
    main()
