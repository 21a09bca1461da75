"""Compare forecasts that are told what is known with the best simple method.

A case each: values between bounds beside a logit taken by hand; errors of measurement
beside weighted least squares that is told the true period; the turn of the month beside
means by hand; hours of holidays beside gradient boosting. Made-up series, one a seed;
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


CASES: dict[str, Callable[[int, Path | None], Figures]] = {
    "growth": growth,
    "humidity": humidity,
    "light curves": light_curve,
    "month": month,
    "holidays": hours_of_holidays,
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
            print(f"{case:14}{name:40}{shown}", flush=True)
    return pd.DataFrame(rows).set_index(["case", "figure"])


if __name__ == "__main__":
    main()
