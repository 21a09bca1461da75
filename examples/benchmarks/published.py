"""Score public sets beside ETS, Theta and the best of the results published of them.

Of each series the last rows are forecast once, by the protocol of the Monash repository
(Godahewa et al. 2021). The error is MASE: the mean absolute error over that of the
seasonal naive inside the rows before; where these are too few for the season, over
that of the last value; a series that is constant there is left out. A set's error is
the mean over its series. All methods have their defaults; ours is told no season, ETS
and Theta (AutoETS, AutoTheta of statsforecast) are told theirs, and see gaps as
straight lines. Seconds are the processor's, of a fit and forecast of ours.

    pip install -c constraints.txt ".[rivals]"
    OMP_NUM_THREADS=1 python examples/benchmarks/published.py --data FOLDER
        [--sets m1_yearly tourism_monthly ...] [--most 100]

FOLDER holds files of the Monash repository (https://forecastingdata.org), under their
own names; those that it lacks are left out. ``--data`` may also be one file
``.json.gz`` of records: a list with set, id, freq, start, y and z (what came then) of
each series. ``--most``: so many series of a set, evenly spread.

Protocols and published figures are in ``published.csv`` beside this script, with their
sources. They are of whole sets: only these are set in proportion to the best of them.
What else differs is told below the table.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from sktime.datasets import load_tsf_to_dataframe

from sklode import StructuralForecaster

SETS = pd.read_csv(Path(__file__).with_name("published.csv"), comment="#", index_col=0)
# what records name otherwise
_OF_RECORDS = {
    "tourism_yearly": "tourism_yearly_2011",
    "hospital_monthly": "hospital",
    "cif_2016_monthly": "cif_2016",
    "nn5_daily": "nn5_daily_gaps",
}
_STEPS = {"W": "7D", "D": "D", "h": "h"}  # others are periods of the calendar
_NO_START = "2000-01-03"  # a Monday


class Task(NamedTuple):
    """A series to forecast."""

    past: pd.Series
    future: pd.Series

    def scale(self, season: int) -> float:
        """Return the error of a naive forecast in the past; NaN: it never moves."""
        values = self.past.to_numpy()
        for lag in (season, 1):
            if len(values) > lag:
                scale = float(np.nanmean(np.abs(values[lag:] - values[:-lag])))
                return scale or float("nan")
        return float("nan")


def ours(task: Task) -> np.ndarray:
    """Forecast by `StructuralForecaster`, with its defaults."""
    forecaster = StructuralForecaster().fit(task.past)
    return forecaster.predict(fh=task.future.index).to_numpy().ravel()


def of_statsforecast(name: str, task: Task, period: int) -> np.ndarray:
    """Forecast by a model of statsforecast."""
    import statsforecast.models

    values = task.past.interpolate(limit_direction="both").to_numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of searches that do not converge
        model = getattr(statsforecast.models, name)(season_length=period)
        return model.forecast(y=values, h=len(task.future))["mean"]


def task_of(values: np.ndarray, horizon: int, start: str, freq: str) -> Task:
    """Return a series, its last rows apart."""
    if freq in _STEPS:
        index = pd.date_range(start, periods=len(values), freq=_STEPS[freq])
    else:
        index = pd.period_range(start, periods=len(values), freq=freq)
    y = pd.Series(values, index, name="y")
    return Task(y.iloc[:-horizon], y.iloc[-horizon:])


def of_folder(folder: Path) -> Iterator[tuple[str, list[Task]]]:
    """Yield the sets of which a folder has files."""
    for name, form in SETS.dropna(subset="file").iterrows():
        path = folder / f"{form['file']}.tsf"
        if not path.exists():
            continue
        table, _ = load_tsf_to_dataframe(str(path), return_type="default_tsf")
        # the file of CIF 2016 says how many rows of each series are to be forecast
        horizons = table.get("horizon", pd.Series(form["horizon"], table.index))
        starts = table.get("start_timestamp", pd.Series(_NO_START, table.index))
        rows = zip(table["series_value"], horizons, starts, strict=True)
        yield (
            name,
            [
                task_of(np.asarray(values, float), int(horizon), start, form["freq"])
                for values, horizon, start in rows
            ],
        )


def of_records(path: Path) -> Iterator[tuple[str, list[Task]]]:
    """Yield the sets of a file of records."""
    found: dict[str, list[Task]] = {}
    with gzip.open(path, "rt") as file:
        records = json.load(file)
    for record in records:
        name = _OF_RECORDS.get(record["set"], record["set"])
        values = np.array([*record["y"], *record["z"]], float)
        task = task_of(values, len(record["z"]), record["start"], record["freq"])
        found.setdefault(name, []).append(task)
    yield from found.items()


def score(tasks: Sequence[Task], season: int, period: int) -> pd.DataFrame:
    """Return a row for each series: the MASE of each method, and seconds of ours."""
    rows = []
    for task in tasks:
        scale = task.scale(season)
        if np.isnan(scale):
            continue
        start = time.process_time()
        forecasts = {"sklode": ours(task)}
        seconds = time.process_time() - start
        for name in ("ETS", "Theta"):
            forecasts[name] = of_statsforecast(f"Auto{name}", task, period)
        errors = {
            name: float(np.nanmean(np.abs(found - task.future.to_numpy()))) / scale
            for name, found in forecasts.items()
        }
        rows.append({**errors, "seconds": seconds})
    return pd.DataFrame(rows)


def summary(name: str, scores: pd.DataFrame, n_series: int) -> dict[str, object]:
    """Return a set's row of the table; so many of its series were read."""
    form, means = SETS.loc[name], scores.mean()
    best = np.nanmin([form["monash"], form["fev"]])
    # a part of a set may be easier or harder than the whole that was published
    whole = n_series == form["series"]
    return {
        "series": f"{len(scores)} of {form['series']}",
        "sklode": means["sklode"],
        "ETS": means["ETS"],
        "Theta": means["Theta"],
        "over the better": means["sklode"] / min(means["ETS"], means["Theta"]),
        "Monash's best": form["monash"],
        "by": form["monash_method"],
        "its ETS": form["monash_ets"],
        "its Theta": form["monash_theta"],
        "fev's best": form["fev"],
        "by ": form["fev_method"],
        "over the best": means["sklode"] / best if whole else np.nan,
        "seconds": means["seconds"],
    }


def main(arguments: Sequence[str] | None = None) -> pd.DataFrame:
    """Run all sets and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder, or .json.gz")
    parser.add_argument("--sets", nargs="+", choices=list(SETS.index))
    parser.add_argument("--most", type=int, help="series of a set")
    given = parser.parse_args(arguments)
    sets = of_folder(given.data) if given.data.is_dir() else of_records(given.data)
    rows = {}
    for name, tasks in sets:
        if given.sets and name not in given.sets:
            continue
        if given.most and given.most < len(tasks):
            spread = np.linspace(0, len(tasks) - 1, given.most).round().astype(int)
            tasks = [tasks[k] for k in spread]
        form = SETS.loc[name]
        ours(tasks[0])  # compiles
        scores = score(tasks, form["season"], form["period"])
        rows[name] = summary(name, scores, len(tasks))
        print(f"{name}: {rows[name]['sklode']:.3f}", flush=True)
    if not rows:
        raise FileNotFoundError(
            f"--data must hold sets that are asked for; got {given.data}. Use a folder "
            "with files of https://forecastingdata.org under their own names."
        )
    table = pd.DataFrame.from_dict(rows, orient="index")
    print(f"\nMean MASE\n{table.round(3).to_string(na_rep='')}")
    for column in ("over the better", "over the best"):
        ratios = table[column].dropna()
        mean = np.exp(np.log(ratios.astype(float)).mean())
        ahead = f"below 1 in {(ratios < 1).sum()} of {len(ratios)} sets"
        print(f"{column}, geometric mean: {mean:.3f}, {ahead}")
    print("\nNot the same: published figures are of whole sets")
    for name, differs in SETS.loc[list(rows), "differs"].dropna().items():
        print(f"{name}: {differs}")
    return table


if __name__ == "__main__":
    main()
