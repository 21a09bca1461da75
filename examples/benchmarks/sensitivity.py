"""Halve and double each constant, and see what becomes of the forecasts.

`constants_page.py` lists the numbers that decide forecasts. Each is halved and doubled
while all others stay, and series with a known future are forecast again: made-up ones,
one kind for each thing that the structural model looks for, and with ``--data`` those
of competitions and of practice. Of shares above one half the odds are halved and
doubled; of several numbers in one constant, all. Printed is the change of the error,
the mean absolute error as a geometric mean over series, how many series are forecast
otherwise, and the largest change of one series' error. A constant that changes nothing
decides cases that are not here, such as a search that stops late, or intervals alone.

    python examples/benchmarks/sensitivity.py [--data PATH] [--panels]
        [--folders structural data] [--constants _MANY] [--kinds growth] [--every 12]
        [--seeds 0] [--jobs 1] [--out TABLE.csv]

``--data`` is a folder with ``competition_dev.json.gz`` and a folder ``practice`` of
tables; of the competition's series every so many are taken. With ``--panels`` panels
are forecast in place of single series. What ``--out`` wrote goes into the page by
``constants_page.py --measured TABLE.csv``, of panels by ``--panels TABLE.csv``.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import importlib
import json
import math
import multiprocessing
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from constants_page import Constant, constants_of

from sklode import StructuralForecaster

if __name__ == "sensitivity":  # numba looks for the package, from a script beside this
    raise ImportError("examples/benchmarks/sensitivity.py is a script, no package")

COMPILED = "sklode.structural.filter."
"""Modules whose constants are part of compiled code, where none can be changed."""


class Task(NamedTuple):
    """What is seen, what follows, and what is known of both."""

    seen: pd.DataFrame
    truth: pd.DataFrame
    X: pd.DataFrame | None = None
    X_ahead: pd.DataFrame | None = None


def split(frame: pd.DataFrame, n_ahead: int, X: pd.DataFrame | None = None) -> Task:
    """Return the task to forecast the last rows."""
    seen, truth = frame.iloc[:-n_ahead], frame.iloc[-n_ahead:]
    if X is None:
        return Task(seen, truth)
    return Task(seen, truth, X.iloc[:-n_ahead], X.iloc[-n_ahead:])


def parted(panel: pd.DataFrame, is_late: np.ndarray | pd.Series) -> Task:
    """Return the task to forecast the late rows of a panel."""
    return Task(panel[~is_late], panel[is_late])


def stamps(n: int, freq: str) -> pd.DatetimeIndex:
    """Return stamps of equal distance."""
    return pd.date_range("2021-03-01", periods=n, freq=freq)


def made_up(seed: int) -> Iterator[tuple[str, Task]]:
    """Yield made-up series by kind."""
    rng = np.random.default_rng(seed)
    t = np.arange(156.0)
    growth = np.exp(0.01 * t + 0.2 * np.sin(2 * np.pi * t / 12))
    y = 50 * growth * np.exp(0.05 * rng.normal(size=t.size))
    index = pd.period_range("2010-01", periods=t.size, freq="M")
    yield "growth", split(pd.DataFrame({"y": y}, index), 12)

    t = np.arange(400.0)
    walk = np.cumsum(rng.normal(0, 0.3, t.size)) + rng.normal(0, 0.5, t.size)
    kept = np.sort(rng.choice(400, 260, replace=False))
    y = pd.DataFrame({"y": walk + 2 * np.sin(2 * np.pi * t / 7)}, stamps(400, "D"))
    yield "irregular days", split(y.iloc[kept], 20)

    y = pd.DataFrame({"y": walk}, stamps(400, "D"))
    y.iloc[300:] += 12.0
    y.iloc[rng.choice(280, 6)] += rng.choice([-15.0, 15.0], (6, 1))
    yield "step and outliers", split(y, 20)

    t = np.arange(168 * 7)
    hour, is_rest = t % 24, t // 24 % 7 > 4
    peaks = [300 * np.exp(-0.5 * ((hour - at) / 1.5) ** 2) for at in (8, 18)]
    mean = np.where(is_rest, 40.0, 20.0 + sum(peaks))
    y = pd.DataFrame({"y": rng.poisson(mean).astype(float)}, stamps(t.size, "h"))
    yield "week of hours", split(y, 48)

    t = np.arange(900.0)
    waves = zip((1.2, 0.4, 0.3), (12.42, 24.0, 25.82), strict=True)
    tide = sum(a * np.cos(2 * np.pi * t / p + rng.uniform(0, 6)) for a, p in waves)
    y = pd.DataFrame({"y": tide + 0.05 * rng.normal(size=t.size)}, stamps(900, "h"))
    yield "tides", split(y, 72)

    n = 500
    heat = 10 + 12 * np.sin(2 * np.pi * np.arange(n) / 365) + rng.normal(0, 3, n)
    offer = (rng.random(n) < 0.1).astype(float)
    slow = 2 * pd.Series(rng.normal(size=n)).ewm(halflife=10).mean().to_numpy()
    load = 50 + 0.05 * (heat - 14) ** 2 + 8 * offer + slow + rng.normal(0, 1, n)
    X = pd.DataFrame({"heat": heat, "offer": offer}, stamps(n, "D"))
    yield "effects of X", split(pd.DataFrame({"load": load}, X.index), 21, X)

    common = np.cumsum(rng.normal(0, 0.3, 400))
    pair = {"late": 5 * common + rng.normal(0, 0.3, 400), "live": common}
    y = pd.DataFrame(pair, stamps(400, "D"))
    truth = y.iloc[-14:].copy()
    y.iloc[-14:, 0] = np.nan
    yield "a column that ends", Task(y, truth[["late"]])

    x = np.zeros((400, 2))
    for k in range(1, 400):
        x[k] = 0.95 * x[k - 1] + rng.normal(0, 0.5, 2)
        x[k, 1] += 0.5 * x[k - 1, 0]
    y = pd.DataFrame({"a": x[8:, 0], "b": x[:-8, 0] + x[8:, 1]}, stamps(392, "h"))
    yield "columns that follow", split(y, 12)
    yield "panel of counts", counts(rng)


def counts(rng: np.random.Generator) -> Task:
    """Return the task of 25 series of counts, of which half are zero."""
    rate = rng.gamma(1.0, 1.0, 25)
    series = {
        f"part {k}": pd.DataFrame(
            {"y": rng.poisson(rate[k], 48) * (rng.random(48) < 0.5)},
            pd.period_range("2018-01", periods=48, freq="M"),
        ).astype(float)
        for k in range(25)
    }
    parts = pd.concat(series, names=["part", "month"])
    return parted(parts, parts.index.get_level_values(1) >= pd.Period("2021-07", "M"))


def panels(seed: int) -> Iterator[tuple[str, Task]]:
    """Yield made-up panels by kind."""
    rng = np.random.default_rng(seed)
    days = stamps(84, "D")
    shop = {}
    for k in range(16):
        offer = (rng.random(84) < 0.08).astype(float)
        week = np.array([0, 0, 1, 2, 4, 8, -6.0])[days.dayofweek]
        effect = (8 + rng.normal(0, 2)) * offer
        level = rng.normal(40, 15) + np.cumsum(rng.normal(0, 0.5, 84))
        sold = level + week + effect + rng.normal(0, 2, 84)
        shop[k] = pd.DataFrame({"sold": sold, "offer": offer}, days)
    panel = pd.concat(shop, names=["shop", "day"])
    is_late = panel.index.get_level_values("day") >= days[70]
    X, X_ahead = panel.loc[~is_late, ["offer"]], panel.loc[is_late, ["offer"]]
    shops = parted(panel[["sold"]], is_late)
    yield "shops", shops._replace(X=X, X_ahead=X_ahead)

    grown = {}
    for k in range(14):
        age = np.arange(1, 25)
        most, slow = rng.normal(60, 6), rng.normal(8, 0.5)
        height = most * (1 - np.exp(-age / slow)) + rng.normal(0, 0.5, 24)
        grown[k] = pd.DataFrame({"height": height}, pd.Index(age))
    panel = pd.concat(grown, names=["tree", "age"])
    tree, age = (panel.index.get_level_values(k) for k in range(2))
    is_late = (tree < 4) & (age > 6) & (age <= 18)
    yield "ages", Task(panel[~is_late & ((tree > 3) | (age < 7))], panel[is_late])

    moves = rng.normal(size=(12, 104))
    moves[:6] = moves[:6].cumsum(1)
    index = pd.MultiIndex.from_product([range(12), stamps(104, "D")])
    panel = pd.DataFrame({"y": 50 + moves.ravel()}, index)
    is_late = index.get_level_values(1) >= index.levels[1][90]
    yield "kinds", parted(panel, is_late)
    yield "counts", counts(rng)


def of_competitions(path: Path, every: int) -> Iterator[tuple[str, Task]]:
    """Yield a part of a file of competition series."""
    for record in json.loads(gzip.open(path, "rt").read())[::every]:
        past, future = record["past"], record["future"]
        n, freq = len(past) + len(future), record["freq"]
        index: pd.Index
        if freq in ("Y", "Q", "M"):
            index = pd.period_range("1975-01-01", periods=n, freq=freq)
        elif freq in ("h", "W"):
            index = stamps(n, "7D" if freq == "W" else "h")
        else:
            index = pd.RangeIndex(n)
        task = split(pd.DataFrame({"y": past + future}, index), len(future))
        yield record["kind"], task


def of_practice(folder: Path) -> Iterator[tuple[str, Task]]:
    """Yield series that people forecast."""
    load = pd.read_csv(folder / "load.csv.gz", index_col=0)
    load.index = pd.to_datetime(load.index, utc=True).tz_convert("Australia/Melbourne")
    for end in (12500,):
        part = load.iloc[end - 1500 : end]
        X = part[["Temperature", "Holiday"]]
        yield "load", split(part[["Demand"]], 168, X)
    bikes = pd.read_csv(folder / "bikes.csv.gz", parse_dates=["time"], index_col="time")
    yield "bikes", split(bikes[["users"]].iloc[2000:4184].dropna(), 60)
    air = pd.read_csv(
        folder / "air_dallas.csv.gz", parse_dates=["time"], index_col="time"
    ).iloc[-700:]
    kept = [name for name in air if air[name].notna().sum() > 200]
    yield "air", split(air[kept], 24)


def panels_of_practice(folder: Path) -> Iterator[tuple[str, Task]]:
    """Yield panels that people forecast: monthly prescriptions, and blood sugar."""
    scripts = pd.read_csv(
        folder / "scripts.csv.gz", parse_dates=["month"], index_col="month"
    )
    scripts = scripts.set_axis(scripts.index.to_period("M")).iloc[:, ::4]
    parts = {name: scripts[[name]].set_axis(["y"], axis=1) for name in scripts}
    panel = pd.concat(parts, names=["drug", "month"])
    is_late = panel.index.get_level_values("month") >= scripts.index[-6]
    yield "prescriptions", parted(panel, is_late)

    sugar = pd.read_csv(folder / "glucose.csv.gz", parse_dates=["time"])
    sugar = sugar.groupby("id").head(400).set_index(["id", "time"])[["gl"]]
    is_late = sugar.groupby("id").cumcount(ascending=False) < 12
    yield "blood sugar", parted(sugar, is_late)


def errors_of(tasks: list[tuple[str, Task]]) -> list[float]:
    """Return the mean absolute error of each task; NaN of one that fails."""
    found = []
    for _, task in tasks:
        try:
            forecaster = StructuralForecaster(random_state=0)
            forecaster.fit(task.seen, X=task.X)
            forecast = forecaster.predict_at(task.truth.index, X=task.X_ahead)
        except Exception:  # a constant may have no such value
            found.append(math.nan)
            continue
        wrong = (forecast[list(task.truth)] - task.truth).abs()
        spread = task.seen[list(task.truth)].std()  # of all series of a panel
        found.append(float(np.nanmean((wrong / spread).to_numpy())))
    return found


def is_changeable(constant: Constant) -> bool:
    """Whether no compiled code holds a constant."""
    return not constant.module.startswith(COMPILED)


def scaled(value: Any, factor: float) -> Any:
    """Return a constant that is so much larger; None of what is no number."""
    if isinstance(value, bool | str) or value is None:
        return None
    if isinstance(value, tuple | list):
        return type(value)(scaled(part, factor) for part in value)
    if isinstance(value, dict):
        return {key: scaled(part, factor) for key, part in value.items()}
    if isinstance(value, np.ndarray):
        larger = value * factor
        return np.unique(larger.astype(value.dtype))
    if isinstance(value, int):
        return max(round(value * factor), 1)
    if 0.5 < value < 1:
        odds = factor * value / (1 - value)
        return odds / (1 + odds)
    return value * factor


def change(constant: Constant, factor: float) -> bool:
    """Change a constant wherever it was imported; return whether it could be.

    What was made of it at import, such as the default of a field, keeps its value.
    """
    home = importlib.import_module(constant.module)
    whole = getattr(home, constant.name)
    value = whole if constant.key is None else whole[constant.key]
    changed = scaled(value, factor)
    if changed is None:
        return False
    for name, module in list(sys.modules.items()):
        if not name.startswith("sklode"):
            continue
        if constant.key is None:
            if vars(module).get(constant.name) is whole:
                setattr(module, constant.name, changed)
            continue
        for other in vars(module).values():  # tables that were joined of such ones too
            if isinstance(other, dict) and other.get(constant.key) is value:
                other[constant.key] = changed
    return True


def errors_with(
    question: tuple[Constant | None, float], tasks: list[tuple[str, Task]]
) -> list[float] | None:
    """Return the errors with a constant that is so much larger; None: it cannot be.

    It changes the package: to be called in a process of its own.
    """
    warnings.simplefilter("ignore")
    constant, factor = question
    if constant is not None and not change(constant, factor):
        return None
    return errors_of(tasks)


def compared(before: list[float], after: list[float]) -> dict[str, object]:
    """Return how errors changed."""
    ratio = np.array(after) / np.maximum(np.array(before), 1e-12)
    failed = int(np.isnan(ratio).sum())
    ratio = ratio[~np.isnan(ratio)]
    logs = np.log(np.maximum(ratio, 1e-12))
    return {
        "change": f"{100 * math.expm1(logs.mean()):+.1f} %",
        "otherwise": int((np.abs(logs) > 1e-6).sum()),
        "of": len(before),
        "worst": round(float(ratio.max()), 3),
        "failed": failed,
    }


def main(arguments: Sequence[str] | None = None) -> pd.DataFrame:
    """Try each constant, and print what becomes of the errors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of the tables")
    parser.add_argument("--folders", nargs="+", default=["structural", "data"])
    parser.add_argument("--constants", nargs="+", help="by name; else all")
    parser.add_argument("--panels", action="store_true", help="in place of series")
    parser.add_argument("--kinds", nargs="+", help="of made-up ones; else all")
    parser.add_argument("--every", type=int, default=12, help="of competition series")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    make = panels if given.panels else made_up
    made = [task for seed in given.seeds for task in make(seed)]
    tasks = [(kind, task) for kind, task in made if kind in (given.kinds or [kind])]
    if given.data is not None and given.panels:
        tasks += panels_of_practice(given.data / "practice")
    elif given.data is not None:
        tasks += of_competitions(given.data / "competition_dev.json.gz", given.every)
        tasks += of_practice(given.data / "practice")
    constants = [
        one
        for one in constants_of()
        if one.package in given.folders
        and is_changeable(one)
        and one.title in (given.constants or [one.title])
    ]
    changes = [(one, factor) for one in constants for factor in (0.5, 2.0)]
    errors_of(tasks[:1])  # compiled once, for all processes
    rows: list[dict[str, object]] = []
    # a process each: what is changed, or kept in a cache, ends with it
    context = multiprocessing.get_context("fork")
    with context.Pool(given.jobs, maxtasksperchild=1) as pool:
        ask = functools.partial(errors_with, tasks=tasks)
        results = pool.imap(ask, [(None, 1.0), *changes])
        before = next(results)
        what = "panel(s)" if given.panels else "series"
        print(f"{len(tasks)} {what}", flush=True)
        for (constant, factor), after in zip(changes, results, strict=True):
            if before is None or after is None:
                continue
            row = {"constant": constant.title, "in": constant.module}
            rows.append({**row, "factor": factor, **compared(before, after)})
            print(*rows[-1].values(), sep="  ", flush=True)
            if given.out is not None:
                pd.DataFrame(rows).to_csv(given.out, index=False)
    return pd.DataFrame(rows)


if __name__ == "__main__":
    main()
