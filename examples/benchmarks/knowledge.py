"""Compare forecasts that are told what is known with the best simple method.

A case each: values between bounds beside a logit taken by hand; errors of measurement
beside weighted least squares that is told the true period; the turn of the month beside
means by hand; hours of holidays beside gradient boosting; X that ends beside none, and
a category beside indicators; gaps that are filled beside straight lines; spikes, steps
and turns that are found. Made-up series, unless a table is read, one or more a seed;
figures are geometric means over seeds, but for shares and coverage, which are means.

    python examples/benchmarks/knowledge.py [--data PATH] [--cases NAME ...]
        [--seeds 0 1 2 3]

``--data`` is a folder of compressed tables; cases that need one that is not there are
left out, with a line that says so.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor

from sklode import StructuralForecaster
from sklode.transformers import StructuralDetector, StructuralImputer

if __name__ == "knowledge":  # numba looks for the package, from any script beside this
    raise ImportError("examples/benchmarks/knowledge.py is a script, no package")

Figures = dict[str, float]
"""What a case measures, by name: ratios, or shares if it has "share" in its name."""

N_ROWS, N_AHEAD = 120, 30
START = pd.Timestamp("2026-01-01")


def stamped(values: np.ndarray, days: np.ndarray) -> pd.Series:
    """Return values at days since the start."""
    return pd.Series(values, START + pd.to_timedelta(days, "D").round("ms"))


def error(forecast: Any, truth: Any) -> float:
    """Return the mean absolute error."""
    return float(np.abs(np.asarray(forecast) - np.asarray(truth)).mean())


def told(
    past: pd.Series, ahead: pd.Series, **given: Any
) -> tuple[pd.Series, np.ndarray]:
    """Return what a forecaster says ahead, and its bounds of 90 %, (row, 2)."""
    forecaster = StructuralForecaster(random_state=0, **given).fit(past)
    bounds = forecaster.predict_interval(ahead.index, coverage=0.9)
    return forecaster.predict(ahead.index), bounds.to_numpy()


def of_bounds(y: pd.Series) -> Figures:
    """Forecast percentages that are told their bounds, and by a logit by hand."""
    past, ahead = y[:-N_AHEAD], y[-N_AHEAD:]
    found, bounds = told(past, ahead, bounds=(0, 100))
    inside = past.clip(0.5, 99.5)
    by_hand, _ = told(np.log(inside / (100 - inside)), ahead)
    plain, _ = told(past, ahead)
    every = np.append(bounds, found.to_numpy())
    return {
        "over the logit by hand": error(found, ahead)
        / error(100 / (1 + np.exp(-by_hand)), ahead),
        "over no bounds": error(found, ahead) / error(plain, ahead),
        "share outside": float(((every < 0) | (every > 100)).mean()),
        "share in 90 %": float(
            ((bounds[:, 0] <= ahead) & (ahead <= bounds[:, 1])).mean()
        ),
    }


def growth(seed: int, data: Path | None) -> Figures:
    """Measure what grows towards 100 %, at uneven stamps."""
    rng = np.random.default_rng(seed)
    n = N_ROWS + N_AHEAD
    days = np.cumsum(rng.exponential(1.0, n))
    middle, width = rng.uniform(0.6, 1.2) * days[N_ROWS], rng.uniform(0.1, 0.25)
    u = (days - middle) / (width * days[N_ROWS]) + 0.15 * rng.standard_normal(n)
    u += np.cumsum(0.05 * rng.standard_normal(n))
    return of_bounds(stamped(100 / (1 + np.exp(-u)), days))


def humidity(seed: int, data: Path | None) -> Figures:
    """Measure hours of percentages that are 100 in many nights."""
    rng = np.random.default_rng(seed)
    n = 4 * N_ROWS
    fading = 0.97 ** np.arange(200)
    drift = np.convolve(3 * rng.standard_normal(n + 200), fading)[200 : n + 200]
    day = 25 * np.cos(2 * np.pi * np.arange(n) / 24)
    values = np.clip(np.round(70 + day + drift), 3, 100)
    return of_bounds(stamped(values, np.arange(n) / 24))


def light_curve(seed: int, data: Path | None) -> Figures:
    """Measure a periodic star whose errors of measurement vary ten times."""
    rng = np.random.default_rng(seed)
    n, period = 250, rng.uniform(3, 9)
    days = np.sort(rng.uniform(0, 120, n + N_AHEAD))
    sigma = np.exp(rng.uniform(np.log(0.03), np.log(0.3), n + N_AHEAD))
    angle = 2 * np.pi * days[:, None] / period * np.arange(1, 4)
    true = 12 + np.cos(angle - [0, 0.7, 0.1]) @ [0.3, 0.12, 0.05]
    y = stamped(true + sigma * rng.standard_normal(len(days)), days)
    past, ahead, X = y[:n], y[n:], pd.DataFrame({"sigma": sigma}, y.index)
    forecaster = StructuralForecaster(error="sigma", random_state=0).fit(past, X=X[:n])
    found = forecaster.predict(ahead.index)
    low, high = forecaster.predict_interval(ahead.index, coverage=0.9).to_numpy().T
    untold, _ = told(past, ahead)
    design = np.column_stack([np.ones(len(days)), np.cos(angle), np.sin(angle)])
    weighted = (design / sigma[:, None])[:n], (y / sigma)[:n]
    squares = design @ np.linalg.lstsq(*weighted, rcond=None)[0]
    return {
        "over least squares with the period": error(found, ahead)
        / error(squares[n:], ahead),
        "the same, against the truth": error(found, true[n:])
        / error(squares[n:], true[n:]),
        "over no errors told, against the truth": error(found, true[n:])
        / error(untold, true[n:]),
        "share in 90 %": float(((low <= ahead) & (ahead <= high)).mean()),
    }


def month(seed: int, data: Path | None) -> Figures:
    """Measure days of a week whose values rise at the turn of the month."""
    rng = np.random.default_rng(seed)
    n, n_ahead = 400 * (1 + seed % 2), 62
    days = pd.date_range("2023-01-01", periods=n + n_ahead)
    turn = (days.day <= 2) | (days.day >= days.days_in_month - 1)
    week = np.array([0, 0, 2, 2, 4, 8, 6])[days.dayofweek]
    drift = np.cumsum(0.15 * rng.standard_normal(len(days)))
    noise = 1.5 * rng.standard_normal(len(days))
    y = pd.Series(50 + week + 10 * turn + drift + noise, days)
    past, ahead = y[:n], y[n:]
    found, _ = told(past, ahead)
    groups = pd.MultiIndex.from_arrays([days.dayofweek, turn])
    means = past.groupby(groups[:n]).mean()
    last = (past - means.loc[groups[:n]].to_numpy())[-30:].mean()
    by_hand = means.loc[groups[n:]].to_numpy()
    return {
        "over means of weekday and turn": error(found, ahead) / error(by_hand, ahead),
        "over these at the last month's level": error(found, ahead)
        / error(by_hand + last, ahead),
    }


def hours_of_holidays(seed: int, data: Path | None) -> Figures:
    """Measure weeks of hours with a holiday, after some fifteen others."""
    rng = np.random.default_rng(seed)
    hours = pd.date_range("2023-01-02", periods=24 * 7 * 62, freq="h")
    dates = pd.date_range(hours[0], hours[-1])
    chosen = np.sort(rng.choice(len(dates) - 14, 16, replace=False))
    chosen = np.append(chosen, len(dates) - 5)
    holidays = pd.Series([f"day {k % 4}" for k in range(17)], dates[chosen])
    is_free = hours.normalize().isin(holidays.index) | (hours.dayofweek == 6)
    hour = hours.hour.to_numpy() + hours.minute.to_numpy() / 60
    work = np.exp(-(((hour - 8.5) / 2) ** 2)) + np.exp(-(((hour - 18) / 3) ** 2))
    rest = 0.8 * np.exp(-(((hour - 14) / 4) ** 2))
    fading = 0.95 ** np.arange(100)
    drift = np.convolve(rng.standard_normal(len(hours) + 100), fading)[100:][
        : len(hours)
    ]
    values = 100 + 60 * np.where(is_free, rest, work) + 2 * drift
    y = pd.Series(values + 3 * rng.standard_normal(len(hours)), hours)
    past, ahead = y[:-168], y[-168:]
    found, _ = told(past, ahead, holidays=holidays)
    flags = is_free & (hours.dayofweek != 6)
    features = np.column_stack([hour, hours.dayofweek, flags])
    week_ago = y.shift(168).to_numpy()
    features = np.column_stack([features, week_ago])
    boosting = HistGradientBoostingRegressor(random_state=0)
    boosting.fit(features[:-168], past)
    rival = boosting.predict(features[-168:])
    on_day = ahead.index.normalize().isin(holidays.index)
    return {
        "over boosting told the holiday": error(found, ahead) / error(rival, ahead),
        "on the holiday": error(found[on_day], ahead[on_day])
        / error(rival[on_day], ahead[on_day]),
    }


def driven(kind: str, strength: float, seed: int) -> tuple[pd.Series, pd.DataFrame]:
    """Return hours that a column of X drives, some of them missing."""
    rng = np.random.default_rng(seed)
    n = 3 * N_ROWS + N_AHEAD
    steps = rng.standard_normal(n)
    values = 0.03 * np.arange(n) + np.cumsum(0.2 * steps)  # trending
    if kind == "wandering":
        values = np.convolve(steps, 0.98 ** np.arange(n))[:n]
    elif kind == "seasonal":
        values = 3 * np.sin(2 * np.pi * np.arange(n) / 24) + steps
    y = 20 + strength * (values - values.mean()) / values.std()
    y += np.cumsum(0.1 * rng.standard_normal(n)) + rng.standard_normal(n)
    kept = (rng.random(n) > 0.1) | (np.arange(n) >= n - N_AHEAD)
    hours = pd.date_range("2026-01-01", periods=n, freq="h")
    return pd.Series(y, hours)[kept], pd.DataFrame({"u": values}, hours)[kept]


def without_x(y: pd.Series, X: pd.DataFrame, n_ahead: int) -> tuple[float, float]:
    """Return the share in 90 % where X ends, and the error over that without any."""
    past, ahead = y[:-n_ahead], y[-n_ahead:]
    forecaster = StructuralForecaster(random_state=0).fit(past, X=X[:-n_ahead])
    low, high = forecaster.predict_interval(ahead.index, coverage=0.9).to_numpy().T
    alone, _ = told(past, ahead)
    ratio = error(forecaster.predict(ahead.index), ahead) / error(alone, ahead)
    return float(((low <= ahead) & (ahead <= high)).mean()), ratio


def unknown_x(seed: int, data: Path | None) -> Figures:
    """Measure what X drives, where X ends as y does."""
    found: Figures = {}
    ratios = []
    for kind in ("wandering", "seasonal", "trending"):
        each = [without_x(*driven(kind, s, seed), N_AHEAD) for s in (0.5, 2.0, 5.0)]
        found[f"share in 90 %, {kind}"] = float(np.mean([share for share, _ in each]))
        ratios += [ratio for _, ratio in each]
    return {**found, "error over no X": float(np.exp(np.log(ratios).mean()))}


def load_without_x(seed: int, data: Path | None) -> Figures:
    """Measure the demand for electricity, whose warmth is not told ahead."""
    if data is None:
        raise FileNotFoundError("it is read from --data")
    table = pd.read_csv(data / "load.csv.gz")
    stamps = pd.DatetimeIndex(pd.to_datetime(table["utc"], utc=True)).tz_localize(None)
    table = table.set_index(stamps)[["Demand", "Temperature"]].dropna()
    end = int(np.random.default_rng(seed).integers(1464, len(table) - 168)) + 168
    rows = table.iloc[end - 1632 : end]
    share, ratio = without_x(rows["Demand"], rows[["Temperature"]], 168)
    return {"share in 90 %": share, "error over no X": ratio}


def categories(seed: int, data: Path | None) -> Figures:
    """Measure a category of 5 or 30 levels beside indicators by hand, and none."""
    found: Figures = {}
    for n_levels in (5, 30):
        rng = np.random.default_rng(seed)
        n = 3 * N_ROWS + N_AHEAD
        level = rng.integers(n_levels, size=n)
        size = 0.7 if seed % 2 else 2.0  # weak and strong effects by turns
        values = 20 + size * rng.standard_normal(n_levels)[level]
        values += np.cumsum(0.1 * rng.standard_normal(n)) + rng.standard_normal(n)
        y = stamped(values, np.arange(n) / 24)
        X = pd.DataFrame({"kind": level}, y.index).astype(str)
        errors = []
        for one in (X, pd.get_dummies(X, dtype=float)):
            forecaster = StructuralForecaster(random_state=0)
            forecaster.fit(y[:-N_AHEAD], X=one[:-N_AHEAD])
            ahead = forecaster.predict(y.index[-N_AHEAD:], X=one[-N_AHEAD:])
            errors.append(error(ahead, y[-N_AHEAD:]))
        none, _ = told(y[:-N_AHEAD], y[-N_AHEAD:])
        found[f"{n_levels} levels, over indicators"] = errors[0] / errors[1]
        found[f"{n_levels} levels, over none"] = errors[0] / error(none, y[-N_AHEAD:])
    return found


def gaps(seed: int, data: Path | None) -> Figures:
    """Measure hidden gaps of warmth and glucose, filled, beside straight lines."""
    if data is None:
        raise FileNotFoundError("it is read from --data")
    rng = np.random.default_rng(seed)
    air = pd.read_csv(data / "air_denver.csv.gz", parse_dates=["time"])
    glucose = pd.read_csv(data / "glucose.csv.gz", parse_dates=["time"])
    person = glucose["id"].unique()[seed % glucose["id"].nunique()]
    tables = {"air": air.set_index("time")["temp"]}
    tables["glucose"] = glucose[glucose["id"] == person].set_index("time")["gl"]
    found: Figures = {}
    for name, y in tables.items():
        y = y[~y.index.duplicated()].dropna().sort_index().astype(float)[:800]
        ratios = []
        for length in (1, 4, 12, 30):
            hidden = np.zeros(len(y), bool)
            starts = rng.choice(
                len(y) - 3 * length, max(80 // length, 1), replace=False
            )
            for start in length + starts:
                hidden[start : start + length] = True
            filled = StructuralImputer().fit_transform(y.where(~hidden))
            times = y.index.to_numpy().astype(np.int64)
            line = np.interp(times[hidden], times[~hidden], y[~hidden])
            missed = [np.square(x - y[hidden]).mean() for x in (filled[hidden], line)]
            ratios.append(np.sqrt(missed[0] / missed[1]))
        found[f"{name}, over a straight line"] = float(np.exp(np.log(ratios).mean()))
    return found


def shocked(seed: int) -> tuple[pd.Series, list[tuple[int, str]]]:
    """Return a series with spikes, a step and a turn of its slope, and their places."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(120, 300))
    days = np.cumsum(rng.exponential(1.0, n) if seed % 2 else np.ones(n))
    y = rng.standard_normal(n) + 0.02 * days * rng.standard_normal()
    if seed % 3 == 1:
        y += 4 * np.sin(2 * np.pi * days / 7)
    elif seed % 3 == 2:
        y += np.cumsum(0.2 * rng.standard_normal(n))
    places = np.sort(rng.choice(np.arange(15, n - 15, 18), 4, replace=False)).tolist()
    kinds = rng.permutation(["spike", "step", "slope", "spike"]).tolist()
    for place, kind in zip(places, kinds, strict=True):
        sign = rng.choice([-1, 1])
        if kind == "spike":
            y[place] += sign * rng.uniform(6, 12)
        elif kind == "step":
            y[place:] += sign * rng.uniform(5, 12)
        else:
            y += sign * rng.uniform(0.3, 0.8) * np.maximum(days - days[place], 0)
    return stamped(y, days), [*zip(places, kinds, strict=True)]


def shocks(seed: int, data: Path | None) -> Figures:
    """Measure how many shocks of four series are found, each by kind and place."""
    n_right = n_found = n_true = 0
    for k in range(4):
        y, true = shocked(4 * seed + k)
        events = StructuralDetector().fit_predict(y)
        found = [*zip(events["ilocs"], events["kind"], strict=True)]
        for place, kind in true:
            near = [e for e in found if e[1] == kind and abs(e[0] - place) <= 2]
            n_right += bool(near)
        n_found, n_true = n_found + len(found), n_true + len(true)
    return {"share F1": 2 * n_right / (n_found + n_true)}


CASES: dict[str, Callable[[int, Path | None], Figures]] = {
    "growth": growth,
    "humidity": humidity,
    "light curves": light_curve,
    "month": month,
    "holidays": hours_of_holidays,
    "unknown X": unknown_x,
    "load without X": load_without_x,
    "categories": categories,
    "imputer": gaps,
    "detector": shocks,
}


def main(arguments: Sequence[str] | None = None) -> pd.DataFrame:
    """Measure each case, and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of the tables")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3])
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    rows = []
    for case in given.cases:
        try:
            found = pd.DataFrame(
                [CASES[case](seed, given.data) for seed in given.seeds]
            )
        except FileNotFoundError as missing:
            print(f"{case}: left out, {missing}")
            continue
        for name, values in found.items():
            is_share = "share" in str(name)
            mean = values.mean() if is_share else np.exp(np.log(values).mean())
            rows.append({"case": case, "figure": name, "mean": mean})
            rows[-1] |= {"least": values.min(), "most": values.max()}
            shown = f"{mean:.3g} ({values.min():.3g} to {values.max():.3g})"
            print(f"{case:16}{name:40}{shown}", flush=True)
    return pd.DataFrame(rows).set_index(["case", "figure"])


if __name__ == "__main__":
    main()
