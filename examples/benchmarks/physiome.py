"""Run Physiome-ODE, panels of biological laws, beside its published table.

Kloetergens et al., "Physiome-ODE: A Benchmark for Irregularly Sampled Multivariate Time
Series Forecasting based on ODEs" (ICLR 2025). Of each law 2,000 series of 100 steps are
simulated, with noise of 0.05 deviations; 80 % of the values are dropped. The second
half of a series is forecast from its first. Seven in ten series are trained on whole,
two validate, one tests; ours trains on the first nine and is updated with the first
halves of the test series, without more training. All settings are defaults.

    git clone https://github.com/kloetergensc/Physiome-ODE FOLDER
    python examples/benchmarks/physiome.py --repo FOLDER [--sets wodarz_hamer_2007_b]
        [--folds 0 1 2 3 4] [--epochs N] [--rival]

FOLDER is a checkout with the laws, in Python, and the scripts that make the data, which
are run where ``data/final`` lacks a set: a law takes minutes, once. ``--rival``: trains
the repository's own GraFITi on the same files too; it may need packages of its own.

Not comparable: the published errors are of the authors' draws of the same recipe, over
the same number of folds.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import torch

from sklode import LatentODELSTMForecaster
from sklode.model_selection import quantile_crps

SETS = [
    "lenbury_ruktamatakul_amornsamarnkul_2001_a",
    "purvis_smith_koizumi_butera_2007",
    "wodarz_hamer_2007_b",
    "butera_rinzel_smith_1999",
]
LEVELS = (np.arange(10) + 0.5) / 10  # of quantiles
_N_STEPS = 100
_NOT_COMPARABLE = (
    "not comparable: published errors are of other draws of the same recipe"
)


class IMTS_dataset(torch.utils.data.Dataset):
    """What the repository's files hold: T, X, TY and Y, padded with zeros."""


def make(repo: Path, name: str) -> None:
    """Make a set's files by the repository's scripts, where it has none."""
    if (repo / "data" / "final" / name).exists():
        return
    laws = pd.read_csv(repo / "resources" / "Top50_final.csv").set_index("model")
    law = laws.loc[name]
    for folder in ("raw_data", "benchmark_datasets", "final"):
        (repo / "data" / folder).mkdir(parents=True, exist_ok=True)
    simulate = ["generate_benchmark.py", "--domain", law["domain"]]
    simulate += ["--T", law["T"], "--dc", law["d_constants"], "--ds", law["d_states"]]
    for script, *options in (simulate, ["generate_imts.py"]):
        print(f"{name}: {script}", flush=True)
        command = [sys.executable, f"data_creation/{script}", "--model", name]
        subprocess.run([*command, *map(str, options)], cwd=repo, check=True)


def read(path: Path) -> SimpleNamespace:
    """Return a part of a fold: times and values, seen and asked, (series, row, ...)."""
    # files name the class of a script
    vars(sys.modules["__main__"]).setdefault("IMTS_dataset", IMTS_dataset)
    subset = torch.load(path, weights_only=False)
    parts = {name: getattr(subset.dataset, name) for name in ("T", "X", "TY", "Y")}
    chosen = np.asarray(subset.indices)
    return SimpleNamespace(**{n: part.numpy()[chosen] for n, part in parts.items()})


def panel(times: np.ndarray, values: np.ndarray, first: int) -> pd.DataFrame:
    """Return observed values as a panel; series are numbered from ``first``."""
    n, _, n_columns = values.shape
    steps = np.round(times * (_N_STEPS - 1)).astype(np.int64)
    key = np.repeat(first + np.arange(n), steps.shape[1])
    index = pd.MultiIndex.from_arrays([key, steps.ravel()], names=["series", "step"])
    columns = [f"c{k}" for k in range(n_columns)]
    table = pd.DataFrame(values.reshape(-1, n_columns).astype(float), index, columns)
    return table.dropna(how="all")


def score(repo: Path, name: str, fold: int, epochs: int | None) -> dict[str, float]:
    """Return what ours misses on a fold, of all observed values."""
    parts = [
        read(repo / "data" / "final" / name / str(fold) / f"{part}.pt")
        for part in ("train", "valid", "test")
    ]
    tables, first = [], 0
    for part in parts:
        tables.append((panel(part.T, part.X, first), panel(part.TY, part.Y, first)))
        first += len(part.T)
    (seen, ahead), known = tables[-1], [one for pair in tables[:-1] for one in pair]
    start = time.perf_counter()
    forecaster = LatentODELSTMForecaster(max_epochs=epochs, random_state=fold)
    forecaster.fit(pd.concat(known).sort_index())
    seconds = time.perf_counter() - start
    ahead = ahead[ahead.index.get_level_values(0).isin(seen.index.get_level_values(0))]
    forecaster.update(seen, update_params=False)
    truth = ahead.to_numpy()
    missed = forecaster.predict_at(ahead.index).to_numpy() - truth
    quantiles = forecaster.predict_quantiles(ahead.index, alpha=[*LEVELS])
    by_level = quantiles.to_numpy().reshape(*truth.shape, len(LEVELS))
    asked = ~np.isnan(truth)
    within = (by_level[..., 0] <= truth) & (truth <= by_level[..., -1])
    return {
        "MSE": float(np.nanmean(missed**2)),
        "MAE": float(np.nanmean(np.abs(missed))),
        "CRPS": float(quantile_crps(truth[asked], by_level[asked], LEVELS).mean()),
        "in 90 %": float(within[asked].mean()),
        "share": forecaster.network_share_,
        "seconds": seconds,
    }


def published(repo: Path, name: str) -> dict[str, float]:
    """Return a set's errors in the README's table, found by its difficulty."""
    laws = pd.read_csv(repo / "resources" / "Top50_final.csv").set_index("model")
    lines = [
        [cell.strip(" *") for cell in line.strip("| \n").split("|")]
        for line in (repo / "README.md").read_text().splitlines()
        if line.startswith("|")
    ]
    names = next(line[2:] for line in lines if line[0] == "Dataset")
    numbered = re.compile(r"\d")
    rows = [
        row for row in lines if len(row) == len(names) + 2 and numbered.match(row[1])
    ]
    own = min(rows, key=lambda row: abs(float(row[1]) - laws["high_score"][name]))
    errors = [float(cell.split("±")[0].strip(" *")) for cell in own[2:]]
    return dict(zip(names, errors, strict=True))


def rival(repo: Path, name: str, fold: int) -> float:
    """Return the error of the repository's GraFITi, trained by its own script."""
    folder = repo / "experiments" / "training"
    (folder / "saved_models").mkdir(exist_ok=True)
    command = [sys.executable, "train_grafiti.py", "-dset", name, "-f", str(fold)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    found = re.search(r"test_loss: ([\d.e-]+)", done.stdout)
    if found is None:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        print(f"GraFITi could not be run: {' '.join(last)}", flush=True)
        return float("nan")
    return float(found[1])


def main(arguments: Sequence[str] | None = None) -> pd.DataFrame:
    """Print a line for each fold, and the table of means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repo", type=Path, required=True, help="the checkout")
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--folds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--epochs", type=int, help="of a training; else its default")
    parser.add_argument("--rival", action="store_true", help="train GraFITi too")
    given = parser.parse_args(arguments)
    rows = {}
    for name in given.sets:
        make(given.repo, name)
        folds = []
        for fold in given.folds:
            found: dict[str, Any] = score(given.repo, name, fold, given.epochs)
            if given.rival:
                found["GraFITi, run"] = rival(given.repo, name, fold)
            told = ", ".join(f"{key} {value:.3g}" for key, value in found.items())
            print(f"{name}, fold {fold}: {told}", flush=True)
            folds.append(found)
        rows[name] = pd.DataFrame(folds).mean().to_dict()
        rows[name] |= {
            f"{key}, published": e for key, e in published(given.repo, name).items()
        }
    table = pd.DataFrame.from_dict(rows, orient="index")
    best = table.filter(like=", published").min(axis=1)
    table["over the best"] = table["MSE"] / best
    print(f"\nMeans over {len(given.folds)} fold(s); {_NOT_COMPARABLE}")
    print(table.T.round(3).to_string())
    mean = float(np.exp(np.log(table["over the best"]).mean()))
    print(f"geometric mean over the best published: {mean:.3f}")
    return table


if __name__ == "__main__":
    main()
