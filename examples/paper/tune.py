"""The searches that chose the settings: validation inside the training part only.

Climate and stocks are searched by sktime's ForecastingGridSearchCV: a model is fitted
to the training part but its last rows, and forecasts them from every few rows while its
history advances. One rule is sought for all tasks, and for all stocks: the candidate
with the least geometric mean of its errors over them.

Spirals are scored on the truth without noise, which no splitter knows of: one parameter
after the other is tried, from `settings.py`, and the best value is kept where it is
better by more than `GAIN`, on sets of other seeds than those that are reported.

    python examples/paper/tune.py climate --data FOLDER
    python examples/paper/tune.py stocks --data FOLDER --stock IBM MSFT JPM
    python examples/paper/tune.py spirals
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import climate
import numpy as np
import pandas as pd
import spirals
import stocks
from protocol import TASKS, Experiment
from settings import CLIMATE, MODELS, SPIRALS, features
from sktime.forecasting.model_selection import ForecastingGridSearchCV
from sktime.performance_metrics.forecasting import MeanSquaredError
from sktime.split import ExpandingWindowSplitter

from sklode import AbsoluteHorizon, AlignedMetric

MODEL = "Latent ODE-LSTM+GC"
GAIN = 0.005
"""Smaller improvements, as a share of the score, are within the noise of the seeds."""

Settings = dict[str, Any]

GRID: list[dict[str, list[Any]]] = [
    {"model": ["paper", "hybrid"], "max_epochs": [7, 30]},
    {"model": ["hybrid"], "guard": [True], "max_epochs": [7]},
]
"""Of climate and stocks; without the guard but where it is named."""

FOLDS = {"climate": (730, 365), "stocks": (750, 375)}
"""Rows from the training part's end where a validation block begins."""

SPIRAL_CANDIDATES: dict[str, Sequence[Any]] = {
    "step_size": (2.0, 8.0),
    "field_depth": (1, 2),
    "lr": (0.005, 0.01),
    "thinning": (0.0, 0.5),
}
VALIDATION_SEEDS = (100, 101)


def folds(experiment: Experiment, begin: Sequence[int]) -> list[tuple[Experiment, int]]:
    """Return parts of the training part, each with the first row of its last block."""
    found = []
    for rows, following in zip(begin, (*begin[1:], 0), strict=True):
        part = experiment.data.iloc[: experiment.n_train - following]
        first = experiment.n_train - rows
        found.append((Experiment(part, first), first))
    return found


class _GridSearch(ForecastingGridSearchCV):
    """sktime's own, which need not keep the data, and so does not warn that it will."""

    _config: ClassVar[dict[str, Any]] = {"remember_data": False}


def grid_search(
    experiment: Experiment,
    first: int,
    task: str,
    every: int,
    seed: int,
    features: Callable[[pd.Index], pd.DataFrame] | None,
    grid: list[dict[str, list[Any]]],
) -> pd.Series:
    """Return each candidate's mean squared error on the rows from one on.

    Parameters
    ----------
    experiment : Experiment
        Ends with the rows to forecast; what is missing is filled in there.
    first : int
        The first row to forecast.
    task : str
    every : int
        Rows from one origin to the next.
    seed : int
    features : callable or None
        Gives X from the stamps alone.
    grid : list of dict
        Of parameters, as for ForecastingGridSearchCV.
    """
    seen, ahead = TASKS[task]
    y = experiment.data.copy()
    y.iloc[first:] = y.interpolate(limit_direction="both").iloc[first:]
    y = pd.DataFrame(experiment.scale(y), y.index, y.columns)
    model, threshold = MODELS[MODEL]
    lengths = {"window_length": seen, "horizon": ahead, "random_state": seed}
    settings = {**CLIMATE[task], "guard": False, **threshold, **lengths}
    cv = ExpandingWindowSplitter(
        fh=np.arange(1, ahead + 1), initial_window=first, step_length=every
    )
    search = _GridSearch(
        model(**settings),
        cv=AbsoluteHorizon(cv),
        param_grid=grid,
        strategy="no-update_params",
        scoring=AlignedMetric(MeanSquaredError()),
        refit=False,
        error_score="raise",
    )
    search.fit(y, X=None if features is None else features(y.index))
    results = search.cv_results_
    (score,) = [name for name in results if name.startswith("mean_test_")]
    return results.set_index(results["params"].map(_text))[score]


def _text(parameters: Settings) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in parameters.items())


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


def main(arguments: Sequence[str] | None = None) -> pd.Series:
    """Search, print every candidate; return their scores, the best one first."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiment", choices=["climate", "stocks", "spirals"])
    parser.add_argument("--data", type=Path, help="folder of the climate or the stocks")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--stock", nargs="+", default=["IBM", "MSFT", "JPM"])
    parser.add_argument("--seed", type=int, default=10)
    parser.add_argument("--every", type=int, default=15, help="rows between origins")
    parser.add_argument("--only", nargs="+", help="parameters to search; all without")
    parser.add_argument("--series", type=int, default=1000, help="number of spirals")
    parser.add_argument("--epochs", type=int, help="of the spirals, to start from")
    options = parser.parse_args(arguments)
    if options.data is None and options.experiment != "spirals":
        parser.error(
            f"{options.experiment} needs --data, a folder of files from Kaggle; see "
            f"{options.experiment}.py."
        )
    known = set(SPIRAL_CANDIDATES if options.experiment == "spirals" else GRID[0])
    unknown = set(options.only or ()) - known
    if unknown:
        parser.error(f"--only takes {', '.join(sorted(known))}; got {sorted(unknown)}")

    def wanted(candidates: dict[str, Any]) -> dict[str, Any]:
        only = options.only or list(candidates)
        return {name: values for name, values in candidates.items() if name in only}

    if options.experiment == "spirals":
        changes = {"max_epochs": options.epochs} if options.epochs else {}
        found, score = search(
            {**SPIRALS, **changes},
            wanted(SPIRAL_CANDIDATES),
            lambda settings: spiral_score(settings, options.series),
        )
        print(f"\nN = 100: {score:.4f} {found}")
        return pd.Series({_text(found): score})
    if options.experiment == "climate":
        x_of, experiments = features, {"Delhi": climate.load(options.data)}
    else:
        names = options.stock
        x_of = None
        experiments = {k: stocks.load(options.data / f"{k}.csv") for k in names}
    grid = [wanted(GRID[0])] if options.only else GRID
    columns = {}
    for name, experiment in experiments.items():
        for task in options.tasks:
            for part, first in folds(experiment, FOLDS[options.experiment]):
                end = f"{part.data.index[-1]:%Y-%m}"
                columns[name, task, end] = grid_search(
                    part, first, task, options.every, options.seed, x_of, grid
                )
                print(f"\n{name}, {task}, to {end}")
                print(columns[name, task, end].round(4).to_string(), flush=True)
    means = np.exp(np.log(pd.DataFrame(columns)).mean(axis=1)).sort_values()
    print("\nGeometric means over all")
    print(means.round(4).to_string())
    return means


if __name__ == "__main__":
    main()
