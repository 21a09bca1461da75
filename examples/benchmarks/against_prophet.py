"""Compare with Prophet, ARIMA, ETS, Theta and UnobservedComponents on irregular series.

Of each series 40 % of the rows are dropped, and what follows its end is forecast. Our
forecaster and Prophet get the rows that are left, at their true stamps;
UnobservedComponents gets them on a regular grid with NaN between; the others, which
need every row, get the holes filled by straight lines. Ours is told no season, the
others are told theirs. Ranks, errors (MASE), scores of distributions (CRPS; energy of
joint paths, of those that draw some) in the same unit, and seconds are printed.

    pip install -c constraints.txt ".[examples,rivals]"
    python examples/benchmarks/against_prophet.py [--data m3_monthly_dataset.tsf ...]
        [--every 10] [--methods sklode Prophet ...]

``--data``: files of the Monash Time Series Forecasting Repository, such as those of
the M3 and M4 competitions (https://forecastingdata.org). Without, five series that ship
with sktime and statsmodels.
"""

from __future__ import annotations

import argparse
import logging
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import norm
from sktime.datasets import (
    load_airline,
    load_lynx,
    load_shampoo_sales,
    load_tsf_to_dataframe,
    load_uschange,
)

from sklode import StructuralForecaster
from sklode.data import load_co2
from sklode.model_selection import energy_score, quantile_crps

SEASONS = {"Y": 1, "Q": 4, "M": 12, "W": 52, "h": 24}
_FREQS = {"yearly": "Y", "quarterly": "Q", "monthly": "M", "weekly": "W"}
_FREQS |= {"hourly": "h", "other": "D"}
_AHEAD = {"Y": 6, "Q": 8, "M": 18, "W": 13, "h": 48, "D": 8}  # of the competitions
_MOST_ROWS = 1000  # the last ones of a series
_MOST_HARMONICS = 6
_LONGEST = 24  # season that ARIMA is told: longer ones take it minutes
_N_PATHS = 200
LEVELS = (np.arange(10) + 0.5) / 10  # of quantiles


class Forecast(NamedTuple):
    """What is forecast: points, quantiles (row, level), paths (path, row)."""

    points: Any
    quantiles: np.ndarray
    paths: np.ndarray | None = None  # of the methods that draw some


class Task(NamedTuple):
    """A series, the rows of its past that are kept, and its season in rows."""

    past: pd.Series
    kept: np.ndarray
    future: pd.Series
    season: int

    @property
    def filled(self) -> np.ndarray:
        """The past with straight lines in place of what was dropped."""
        rows = np.arange(len(self.past))
        return np.interp(rows, rows[self.kept], self.past.to_numpy()[self.kept])

    def scores(self, forecast: Forecast) -> dict[str, float]:
        """Return errors in units of the seasonal naive's inside the past."""
        past, m = self.past.to_numpy(), self.season
        scale = np.abs(past[m:] - past[:-m]).mean() if len(past) > m else 0.0
        scale = scale or np.abs(np.diff(past)).mean() or 1.0
        truth = self.future.to_numpy()
        found = {
            "MASE": np.abs(truth - np.asarray(forecast.points, float)).mean(),
            "CRPS": quantile_crps(truth, forecast.quantiles, LEVELS).mean(),
        }
        if forecast.paths is not None:
            # as large as the others, however many rows there are
            found["energy"] = energy_score(truth, forecast.paths) / len(truth) ** 0.5
        return {name: float(np.clip(x / scale, 1e-3, 100)) for name, x in found.items()}


def ours(task: Task) -> Forecast:
    """Forecast by `StructuralForecaster`, with its defaults."""
    forecaster = StructuralForecaster(random_state=0).fit(task.past[task.kept])
    ahead = task.future.index
    quantiles = forecaster.predict_quantiles(fh=ahead, alpha=[*LEVELS])
    paths = forecaster.sample(ahead, _N_PATHS).to_numpy().reshape(_N_PATHS, -1)
    return Forecast(forecaster.predict(fh=ahead), quantiles.to_numpy(), paths)


def prophet(task: Task) -> Forecast:
    """Forecast by Prophet, with its defaults."""
    from prophet import Prophet

    logging.getLogger("cmdstanpy").setLevel(logging.ERROR)
    table = pd.DataFrame({"ds": _dates(task.past.index), "y": task.past.to_numpy()})
    model = Prophet().fit(table[task.kept])
    ahead = pd.DataFrame({"ds": _dates(task.future.index)})
    paths = model.predictive_samples(ahead)["yhat"]
    quantiles = np.quantile(paths, LEVELS, axis=1).T
    return Forecast(model.predict(ahead)["yhat"], quantiles, paths.T)


def unobserved_components(task: Task) -> Forecast:
    """Forecast by statsmodels: a local linear trend, and waves of the season."""
    from statsmodels.tsa.statespace.structural import UnobservedComponents

    values = np.where(task.kept, task.past.to_numpy(), np.nan)
    waves = {"period": task.season, "harmonics": min(task.season // 2, _MOST_HARMONICS)}
    seasons = [waves] if task.season > 1 and len(values) > 2 * task.season else None
    model = UnobservedComponents(values, "lltrend", freq_seasonal=seasons)
    ahead = model.fit(disp=False).get_forecast(len(task.future))
    means = ahead.predicted_mean[:, None]
    quantiles = means + ahead.se_mean[:, None] * norm.ppf(LEVELS)
    return Forecast(means[:, 0], quantiles)


def of_statsforecast(name: str) -> Callable[[Task], Forecast]:
    """Return what forecasts by a model of statsforecast."""

    def forecast(task: Task) -> Forecast:
        import statsforecast.models

        values, h = task.filled, len(task.future)
        season = task.season if len(values) > 2 * task.season else 1
        if name == "AutoARIMA" and season > _LONGEST:
            season = 1
        model = getattr(statsforecast.models, name)(season_length=season)
        widths = [10, 30, 50, 70, 90]  # percent: the bounds are at LEVELS
        found = model.forecast(y=values, h=h, level=widths)
        below = [found[f"lo-{width}"] for width in reversed(widths)]
        above = [found[f"hi-{width}"] for width in widths]
        return Forecast(found["mean"], np.stack([*below, *above], axis=1))

    return forecast


METHODS: dict[str, Callable[[Task], Forecast]] = {
    "sklode": ours,
    "Prophet": prophet,
    "UnobservedComponents": unobserved_components,
    "ARIMA": of_statsforecast("AutoARIMA"),
    "ETS": of_statsforecast("AutoETS"),
    "Theta": of_statsforecast("AutoTheta"),
    "seasonal naive": of_statsforecast("SeasonalNaive"),
}


def _dates(index: pd.Index) -> pd.Index:
    return index.to_timestamp() if isinstance(index, pd.PeriodIndex) else index


def shipped() -> Iterator[tuple[pd.Series, int, int]]:
    """Yield series that ship with libraries, their season, and rows to forecast."""
    yield load_airline(), 12, 18
    yield load_shampoo_sales(), 12, 8
    change = load_uschange()[0]
    quarters = pd.period_range("1970Q1", periods=len(change), freq="Q")
    yield change.set_axis(quarters), 4, 8
    yield load_co2().asfreq("7D")["1990":].interpolate(), 52, 52
    lynx = load_lynx()
    yield lynx.set_axis(lynx.index.asfreq("Y")), 1, 12


def of_file(path: Path, every: int) -> Iterator[tuple[pd.Series, int, int]]:
    """Yield the series of a file of the Monash repository."""
    table, metadata = load_tsf_to_dataframe(str(path), return_type="default_tsf")
    freq = _FREQS[metadata["frequency"] or "other"]
    start = "2000-01-03"  # a Monday; most files give none that a day of the week has
    for values in table["series_value"].iloc[::every]:
        values = np.asarray(values, dtype=float)[-_MOST_ROWS:]
        if freq in ("Y", "Q", "M"):
            index: pd.Index = pd.period_range(start, periods=len(values), freq=freq)
        else:
            step = "7D" if freq == "W" else freq
            index = pd.date_range(start, periods=len(values), freq=step)
        yield pd.Series(values, index), SEASONS.get(freq, 1), _AHEAD[freq]


def tasks(series: Iterator[tuple[pd.Series, int, int]]) -> list[Task]:
    """Return series cut at their horizon, with 60 % of the rows before it kept."""
    found = []
    rng = np.random.default_rng(0)
    for y, season, n_ahead in series:
        past, future = y.iloc[:-n_ahead], y.iloc[-n_ahead:]
        kept = rng.random(len(past)) < 0.6
        kept[[0, -1]] = True
        found.append(Task(past, kept, future, season))
    return found


def main(arguments: Sequence[str] | None = None) -> pd.DataFrame:
    """Run all methods on all series and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", type=Path, help="tsf files")
    parser.add_argument("--every", type=int, default=1, help="every so many series")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    options = parser.parse_args(arguments)
    if options.data:
        series = (one for path in options.data for one in of_file(path, options.every))
    else:
        series = shipped()
    ours(tasks(shipped())[1])  # compiles
    rows = []
    for task in tasks(series):
        for name in options.methods:
            start = time.perf_counter()
            with warnings.catch_warnings():
                if name != "sklode":  # rivals warn of searches that do not converge
                    warnings.simplefilter("ignore")
                scores = task.scores(METHODS[name](task))
            spent = time.perf_counter() - start
            rows.append({"method": name, "seconds": spent, **scores})
    found = pd.DataFrame(rows).assign(
        task=np.repeat(
            np.arange(len(rows) // len(options.methods)), len(options.methods)
        )
    )
    errors = found.pivot(index="task", columns="method", values="MASE")
    each = found.groupby("method")
    scored = [name for name in ("MASE", "CRPS", "energy") if name in found]
    table = np.exp(np.log(found[scored]).groupby(found["method"]).mean())
    table["mean rank"] = errors.rank(axis=1).mean()
    table["seconds, median"] = each["seconds"].median()
    table["seconds, most"] = each["seconds"].max()
    table = table.sort_values("MASE")
    print(f"{len(errors)} series, 40 % of their rows dropped")
    print(table.round(dict.fromkeys(scored, 3)).round(2).to_string())
    return table


if __name__ == "__main__":
    main()
