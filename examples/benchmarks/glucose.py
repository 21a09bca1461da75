"""Score glucose an hour ahead by GlucoBench's protocol, beside its published table.

Sergazinov et al., "GlucoBench: Curated List of Continuous Glucose Monitoring Datasets
with Prediction Benchmarks" (ICLR 2024), on its set iglu, of five persons. A person's
readings are cut at gaps of more than 45 minutes; pieces of 240 readings or more are put
on a grid of five minutes by straight lines. Of the last piece, its last 432 rows are
tested on (all, where it has fewer than 672): 192 rows are seen, 12 forecast, from every
sixth row. Errors, in (mg/dL)^2 and mg/dL, are of a window; then of all windows the mean
or the median; then the mean over ten seeds, each of which leaves a person out.

    pip install -c constraints.txt ".[rivals]"
    OMP_NUM_THREADS=1 python examples/benchmarks/glucose.py --data iglu.csv [--arima]

The file has the columns id, time and gl: ``example_data_5_subject`` of the R package
iglu, or ``iglu.csv`` of https://github.com/IrinaStatsLab/GlucoBench. Ours is fitted to
the 192 rows of each window alone, with its defaults. ``--arima``: AutoARIMA of
statsforecast too, as there: chosen and estimated on the first 192 rows of a piece.

Not the same: the published models but ARIMA learned from all five persons before, and
their windows were sampled otherwise.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from sklode import StructuralForecaster

N_SEEN, N_AHEAD, STRIDE = 192, 12, 6
_N_TEST = 240  # rows a person that are forecast, after those that are seen
_LONGEST_GAP = pd.Timedelta("45min")
_FEWEST = 240  # readings of a piece
_SEEDS = range(10, 20)
_LEFT_OUT = 0.1  # of the persons, rounded up
COLUMNS = ["mean MSE", "mean MAE", "median MSE", "median MAE"]
# output/*_iglu.txt of the repository, in distribution, without covariates
PUBLISHED = {
    "ARIMA": (415.327, 12.828, 110.897, 8.668),
    "linear regression": (377.718, 12.918, 136.491, 9.706),
    "XGBoost": (421.282, 14.477, 163.829, 11.501),
    "Transformer": (474.434, 15.976, 228.615, 13.198),
    "NHiTS": (485.504, 15.402, 190.204, 12.070),
    "TFT": (593.041, 15.583, 188.639, 11.075),
    "Gluformer": (493.313, 16.103, 201.474, 12.549),
    "Latent ODE": (540.927, 16.152, 206.546, 12.318),
}

Forecast = Callable[[pd.Series], np.ndarray]


def read(path: Path) -> pd.DataFrame:
    """Return readings: id, time, gl."""
    table = pd.read_csv(path)
    missing = {"id", "time", "gl"} - set(table)
    if missing:
        raise ValueError(
            f"--data must have the columns id, time and gl; got {list(table)}. Use "
            "example_data_5_subject of the R package iglu."
        )
    table["time"] = pd.to_datetime(table["time"]).dt.round("1min")
    return table.dropna(subset=["id", "time", "gl"]).sort_values(["id", "time"])


def pieces(readings: pd.Series) -> Iterator[pd.Series]:
    """Yield pieces of a person on a grid of five minutes, from readings by time."""
    number = (readings.index.to_series().diff() > _LONGEST_GAP).cumsum().to_numpy()
    for _, piece in readings.groupby(number):
        if len(piece) < _FEWEST:
            continue
        grid = pd.date_range(piece.index[0], piece.index[-1], freq="5min")
        both = piece.reindex(grid.union(piece.index))
        yield both.interpolate(method="index").reindex(grid)


def tested(readings: pd.Series) -> pd.Series:
    """Return the rows of a person that are tested on."""
    found = list(pieces(readings))
    if found and len(found[-1]) >= N_SEEN + 2 * _N_TEST:
        return found[-1].iloc[-N_SEEN - _N_TEST :]
    # one short piece is for those that learn from it
    return found[-1] if len(found) > 1 else readings.iloc[:0]


def ours(seen: pd.Series) -> np.ndarray:
    """Forecast by `StructuralForecaster`, with its defaults."""
    forecaster = StructuralForecaster().fit(seen)
    return forecaster.predict(fh=range(1, N_AHEAD + 1)).to_numpy().ravel()


def arima(rows: pd.Series) -> Forecast:
    """Return what forecasts by the ARIMA of a piece's first rows."""
    from statsforecast.models import AutoARIMA

    orders = dict.fromkeys(["start_p", "start_q", "start_P", "start_Q"], 0)
    orders |= dict.fromkeys(["max_p", "max_q", "max_P", "max_Q"], 10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of searches that do not converge
        model = AutoARIMA(**orders, allowdrift=True, allowmean=True)
        model.fit(rows.iloc[:N_SEEN].to_numpy())
    return lambda seen: model.forward(seen.to_numpy(), h=N_AHEAD)["mean"]


def errors(rows: pd.Series, forecast: Forecast) -> np.ndarray:
    """Return squared and absolute error of each window, (window, 2)."""
    found = []
    for start in range(STRIDE, len(rows) - N_SEEN - N_AHEAD + 1, STRIDE):
        window = rows.iloc[start : start + N_SEEN + N_AHEAD]
        missed = window.iloc[N_SEEN:].to_numpy() - forecast(window.iloc[:N_SEEN])
        found.append([np.mean(missed**2), np.mean(np.abs(missed))])
    return np.reshape(found, (-1, 2))


def over_seeds(by_person: Sequence[np.ndarray]) -> dict[str, float]:
    """Return mean and median over windows, averaged over who is left out."""
    n_persons = len(by_person)
    n_left_out = int(np.ceil(n_persons * _LEFT_OUT))
    rows = []
    for seed in _SEEDS:
        # the legacy generator, as GlucoBench draws by it
        drawn = np.random.RandomState(seed).choice(n_persons, n_left_out, replace=False)
        kept = [by_person[k] for k in range(n_persons) if k not in drawn]
        windows = np.concatenate(kept)
        rows.append([*windows.mean(axis=0), *np.median(windows, axis=0)])
    return dict(zip(COLUMNS, np.mean(rows, axis=0), strict=True))


def main(arguments: Sequence[str] | None = None) -> pd.DataFrame:
    """Run the protocol and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a csv file")
    parser.add_argument("--arima", action="store_true", help="run AutoARIMA too")
    given = parser.parse_args(arguments)
    table = read(given.data)
    parts = [
        tested(person.set_index("time")["gl"].astype(float))
        for _, person in table.groupby("id")
    ]
    print(f"{len(table):,} readings; rows tested on: {[len(part) for part in parts]}")
    rows = {"StructuralForecaster": over_seeds([errors(part, ours) for part in parts])}
    if given.arima:
        rows["ARIMA, run"] = over_seeds([errors(part, arima(part)) for part in parts])
    for name, published in PUBLISHED.items():
        rows[f"{name}, published"] = dict(zip(COLUMNS, published, strict=True))
    found = pd.DataFrame.from_dict(rows, orient="index")
    print(found.round(2).to_string())
    print("Not the same: published models but ARIMA learned from all persons before")
    return found


if __name__ == "__main__":
    main()
