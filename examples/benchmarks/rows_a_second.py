"""Time a fit and a forecast of `StructuralForecaster`: real rows, and ever longer ones.

Seconds are the processor's, of a fit and the forecast of a day (of a year of months)
in a process that has compiled before.

    pip install -c constraints.txt ".[examples]"
    OMP_NUM_THREADS=1 python examples/benchmarks/rows_a_second.py
        [--load vic_electricity.csv] [--panel FOLDER] [--rows 1000 1000000]

Without files: half-hourly load of England and Wales, which ships with pmdarima.
``--load``: half-hourly load of Victoria, Australia, with temperature and holidays, as a
csv file with the columns Time, Demand, Temperature and Holiday
(https://github.com/skforecast/skforecast-datasets, data/vic_electricity.csv).
``--panel``: monthly series of the Monash repository, as one panel: what
``published.py`` takes as ``--data``. ``--rows``: made-up rows too, irregular, hourly on
average, with waves of a day and a week.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import published
from pmdarima.datasets import load_taylor

from sklode import StructuralForecaster

_DAY = {"half hours": 48, "hours": 24}
_MONTHLY = ("m1_monthly", "hospital", "tourism_monthly", "cif_2016", "m3_monthly")
_N_SERIES = 1000
_YEAR = 8760  # hours


class Case(NamedTuple):
    """What is fitted and forecast."""

    name: str
    y: pd.Series | pd.DataFrame
    n_ahead: int
    X: pd.DataFrame | None = None  # of the rows of y and those ahead

    def seconds(self) -> float:
        """Return processor seconds of a fit and a forecast."""
        start = time.process_time()
        known = None if self.X is None else self.X.iloc[: len(self.y)]
        ahead = None if self.X is None else self.X.iloc[len(self.y) :]
        forecaster = StructuralForecaster().fit(self.y, X=known)
        forecaster.predict(range(1, self.n_ahead + 1), X=ahead)
        return time.process_time() - start


def of_taylor() -> Case:
    """Return twelve weeks of load, by the half hour, of England and Wales."""
    load = load_taylor()
    stamps = pd.date_range("2000-06-05", periods=len(load), freq="30min")
    return Case("half hours", pd.Series(load, stamps), _DAY["half hours"])


def of_victoria(path: Path) -> Iterator[Case]:
    """Yield load of Victoria: by the half hour, and a year of hours with X."""
    table = pd.read_csv(path, parse_dates=["Time"], index_col="Time")
    table = table[["Demand", "Temperature", "Holiday"]].astype(float)
    table.index = table.index.tz_convert("Australia/Melbourne")
    table = table.asfreq("30min")
    for n_rows in (7000, 17_520, len(table)):
        y = table["Demand"].iloc[-n_rows:]
        yield Case("half hours", y, _DAY["half hours"])
    hours = table.resample("h").mean().iloc[-_YEAR - _DAY["hours"] :]
    y, X = hours.pop("Demand").iloc[:_YEAR], hours
    yield Case("hours, two columns of X", y, _DAY["hours"], X)


def of_months(data: Path) -> Case:
    """Return a panel of monthly series, each of which ends in its own month."""
    read = published.of_folder if data.is_dir() else published.of_records
    sets = dict(read(data))
    series = [task.past for name in _MONTHLY for task in sets.get(name, [])]
    series = series[:_N_SERIES]
    y = pd.concat(dict(enumerate(series)), names=["series", "month"]).to_frame("y")
    return Case(f"{len(series):,} series of months", y, 12)


def made_up(n_rows: int) -> Case:
    """Return an irregular series, whose gaps are an hour on average."""
    rng = np.random.default_rng(0)
    hours = np.cumsum(rng.exponential(1.0, n_rows) + 0.01)
    stamps = pd.Timestamp("1900-01-01") + pd.to_timedelta(hours.round(6), unit="h")
    waves = np.sin(2 * np.pi * hours / 24) + 0.5 * np.sin(2 * np.pi * hours / 168)
    y = pd.Series(10 + waves + 0.3 * rng.normal(size=n_rows), stamps, name="load")
    return Case("made up", y, _DAY["hours"])


def main(arguments: Sequence[str] | None = None) -> pd.DataFrame:
    """Print seconds of a fit with a forecast, and rows a second."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--load", type=Path, help="csv file")
    parser.add_argument("--panel", type=Path, help="folder of tsf files")
    parser.add_argument("--rows", type=int, nargs="+", default=[], help="made up")
    given = parser.parse_args(arguments)
    cases = [of_taylor()]
    if given.load:
        cases += of_victoria(given.load)
    if given.panel:
        cases.append(of_months(given.panel))
    cases += map(made_up, given.rows)
    made_up(100).seconds()  # compiles
    rows = [(case.name, len(case.y), case.seconds()) for case in cases]
    table = pd.DataFrame(rows, columns=["case", "rows", "seconds"])
    table["rows a second"] = (table["rows"] / table["seconds"]).round(-2).astype(int)
    print(table.round({"seconds": 2}).to_string(index=False))
    return table


if __name__ == "__main__":
    main()
