"""Compare with ARIMA, ETS and Theta, by sktime's own benchmark.

Four regular series that ship with sktime, forecast 12 steps ahead from growing windows,
and an irregular one: weekly CO2 at Mauna Loa, of which three weeks in five are dropped.
There the other methods get what a user would give them, a monthly grid with the values
between observations interpolated. Ours have their defaults and are told no season; the
others are told theirs. Two tables are printed, of MASE and of the continuous ranked
probability score (CRPS) in the unit of each series, and a picture is saved.

    python examples/benchmarks/against_arima.py [--output picture.png] [--quick]
        [--tasks airline lynx ...]
"""

from __future__ import annotations

import argparse
import contextlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.dates import ConciseDateFormatter
from sktime.benchmarking.forecasting import ForecastingBenchmark
from sktime.datasets import (
    load_airline,
    load_lynx,
    load_shampoo_sales,
    load_uschange,
)
from sktime.forecasting.arima import AutoARIMA
from sktime.forecasting.base import BaseForecaster, ForecastingHorizon
from sktime.forecasting.ets import AutoETS
from sktime.forecasting.naive import NaiveForecaster
from sktime.forecasting.theta import ThetaForecaster
from sktime.performance_metrics.forecasting import MeanAbsoluteScaledError
from sktime.performance_metrics.forecasting.probabilistic import PinballLoss
from sktime.split import ExpandingWindowSplitter
from statsmodels.tools.sm_exceptions import ConvergenceWarning

from sklode import AbsoluteHorizon, LatentODELSTMForecaster, StructuralForecaster
from sklode.data import load_co2

NETWORK, STRUCTURAL = "Latent ODE-LSTM", "StructuralForecaster"
ARIMA, SEASONAL_ARIMA = "AutoARIMA", "AutoARIMA, seasonal"

MONTH = pd.Timedelta(days=365.25) / 12

ERROR, LOSS = "MeanAbsoluteScaledError_mean", "PinballLoss_mean"
LEVELS = [(k + 0.5) / 10 for k in range(10)]  # of quantiles
N_PATHS = 1000


class Task(NamedTuple):
    """A series, how many steps its season has (1: none), and the test folds."""

    y: pd.Series
    season: int
    n_folds: int
    n_ahead: int = 12
    irregular: bool = False

    def splitter(self) -> ExpandingWindowSplitter | AbsoluteHorizon:
        """Return the folds: one behind the other, the last up to the series' end."""
        splitter = ExpandingWindowSplitter(
            fh=np.arange(1, self.n_ahead + 1),
            initial_window=len(self.y) - self.n_folds * self.n_ahead,
            step_length=self.n_ahead,
        )
        return AbsoluteHorizon(splitter) if self.irregular else splitter


class OnRegularGrid(BaseForecaster):
    """Forecast an irregular series by a method that needs a regular one.

    The series is interpolated to a regular grid that ends at its last stamp, forecast
    there, and the forecast interpolated to the later stamps that are asked for.

    Parameters
    ----------
    forecaster : BaseForecaster
        For regular series.
    step : Timedelta
        Of the grid.
    """

    _tags: ClassVar[dict[str, Any]] = {
        "y_inner_mtype": "pd.Series",
        "capability:exogenous": False,
        "capability:pred_int": True,
        "requires-fh-in-fit": False,
    }
    _config: ClassVar[dict[str, Any]] = {"remember_data": False}

    def __init__(self, forecaster: BaseForecaster, step: pd.Timedelta) -> None:
        self.forecaster = forecaster
        self.step = step
        super().__init__()

    def _fit(self, y: pd.Series, X: None, fh: ForecastingHorizon | None) -> Any:
        self._last, self._name = y.index[-1], y.name
        position = self._steps_after_last(y.index)
        grid = np.arange(np.ceil(position[0]), 1)
        self._last_value = y.iloc[-1]
        on_grid = pd.Series(np.interp(grid, position, y.to_numpy()))
        self.forecaster_ = self.forecaster.clone().fit(on_grid)
        return self

    def _predict(self, fh: ForecastingHorizon, X: None) -> pd.Series:
        stamps = fh.to_pandas()
        on_grid = self.forecaster_.predict(fh=self._steps_ahead(stamps))
        return pd.Series(self._at(stamps, on_grid), stamps, name=self._name)

    def _predict_quantiles(
        self, fh: ForecastingHorizon, X: None, alpha: list[float]
    ) -> pd.DataFrame:
        stamps = fh.to_pandas()
        steps = self._steps_ahead(stamps)
        on_grid = self.forecaster_.predict_quantiles(fh=steps, alpha=alpha)
        values = [self._at(stamps, column) for _, column in on_grid.items()]
        names = self._get_varnames()
        columns = pd.MultiIndex.from_product([names, alpha])
        return pd.DataFrame(np.transpose(values), stamps, columns)

    def _steps_ahead(self, stamps: pd.DatetimeIndex) -> np.ndarray:
        return np.arange(1, int(np.ceil(self._steps_after_last(stamps)[-1])) + 1)

    def _at(self, stamps: pd.DatetimeIndex, on_grid: pd.Series) -> np.ndarray:
        values = [self._last_value, *on_grid.to_numpy()]
        return np.interp(self._steps_after_last(stamps), np.arange(len(values)), values)

    def _steps_after_last(self, index: pd.DatetimeIndex) -> np.ndarray:
        return np.asarray((index - self._last) / self.step)


class ETS(AutoETS):
    """AutoETS, with quantiles of simulated paths: sktime's own ask for less or fail."""

    def _predict_quantiles(
        self, fh: ForecastingHorizon, X: None, alpha: list[float]
    ) -> pd.DataFrame:
        steps = fh.to_relative(self.cutoff).to_numpy().astype(int)
        paths = self._fitted_forecaster.simulate(
            nsimulations=steps[-1], anchor="end", repetitions=N_PATHS
        )
        quantiles = np.quantile(np.asarray(paths)[steps - 1], alpha, axis=1).T
        columns = pd.MultiIndex.from_product([self._get_varnames(), alpha])
        stamps = fh.to_absolute_index(self.cutoff)
        return pd.DataFrame(quantiles, stamps, columns)


def load_tasks(quick: bool = False) -> dict[str, Task]:
    """Return the tasks by name; ``quick``: two of them, short and with one fold."""
    co2 = load_co2()["1985":]
    kept = np.random.default_rng(0).random(len(co2)) < 0.4
    # Lynx comes and goes in about ten years, which is not a season of the calendar.
    tasks = {
        "airline": Task(load_airline(), 12, 5),
        "lynx": Task(load_lynx(), 1, 4),
        "shampoo": Task(load_shampoo_sales(), 12, 1),
        "uschange": Task(load_uschange()[0], 4, 5),
        "CO2, irregular": Task(co2[kept], 12, 3, n_ahead=24, irregular=True),
    }
    if quick:
        tasks = {name: tasks[name] for name in ("shampoo", "CO2, irregular")}
        tasks = {
            name: task._replace(y=task.y[-100:], n_folds=1)
            for name, task in tasks.items()
        }
    return tasks


def forecasters(task: Task, quick: bool) -> dict[str, BaseForecaster]:
    """Return what is compared; without a season, the seasonal ones are plain."""
    season = task.season
    positive = bool((task.y > 0).all())  # only then a season can be a factor
    search: dict[str, Any] = {"suppress_warnings": True}
    if quick:
        search["maxiter"] = 2
    others = {
        ARIMA: AutoARIMA(seasonal=False, **search),
        SEASONAL_ARIMA: AutoARIMA(sp=season, seasonal=season > 1, **search),
        "ETS": ETS(auto=True, sp=season, additive_only=not positive),
        "Theta": ThetaForecaster(sp=season if positive else 1, deseasonalize=positive),
        "naive": NaiveForecaster(),
        "seasonal naive": NaiveForecaster(sp=season),
    }
    if task.irregular:
        others = {name: OnRegularGrid(other, MONTH) for name, other in others.items()}
    epochs = 2 if quick else None
    ours = {
        NETWORK: LatentODELSTMForecaster(max_epochs=epochs, random_state=0),
        STRUCTURAL: StructuralForecaster(random_state=0),
    }
    return {**ours, **others}


@contextlib.contextmanager
def without_noise() -> Iterator[None]:
    """Drop the known warnings of the libraries that are compared.

    What sktime 1.2 announces for 1.3, whenever a forecaster is built, needs more than a
    filter: as it goes, sktime resets those of FutureWarning.
    """
    topic = "The default of config ``remember_data``"
    with warnings.catch_warnings():
        # sktime takes a standard deviation over the folds, also over a single one.
        warnings.filterwarnings("ignore", "Degrees of freedom <= 0", RuntimeWarning)
        warnings.filterwarnings("ignore", "invalid value .* divide", RuntimeWarning)
        # Theta's smoothing does not converge on all folds of uschange.
        warnings.filterwarnings("ignore", "Optimization failed to", ConvergenceWarning)
        warnings.filterwarnings("ignore", topic, FutureWarning)
        show = warnings.showwarning

        def show_others(message: Warning | str, *args: Any, **kwargs: Any) -> None:
            if not str(message).startswith(topic):
                show(message, *args, **kwargs)

        warnings.showwarning = show_others
        yield


def run(task: Task, name: str, quick: bool) -> pd.DataFrame:
    """Return the benchmark's result: a row per forecaster."""
    benchmark = ForecastingBenchmark(return_data=True)
    for key, forecaster in forecasters(task, quick).items():
        benchmark.add_estimator(forecaster, key)
    metrics = [MeanAbsoluteScaledError(), PinballLoss(alpha=LEVELS)]
    benchmark.add_task(task.y, task.splitter(), metrics, task_id=name)
    result = benchmark.run(force_rerun="all").set_index("model_id")
    if benchmark.failed_experiments:
        raise RuntimeError(str(benchmark.failed_experiments))
    return result


def table_of(results: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Return MASE per forecaster and task, the mean rank, and seconds in all."""
    scores = {name: result[ERROR] for name, result in results.items()}
    table = pd.DataFrame(scores).rename_axis(None)
    regular = [name for name in table if "irregular" not in name]
    ranks = table[regular].round(6).rank()  # equal methods share a rank
    table["mean rank"] = ranks.mean(axis=1)
    table["seconds"] = sum(_seconds(result) for result in results.values())
    return table.sort_values("mean rank", kind="stable")


def _seconds(result: pd.DataFrame) -> pd.Series:
    spent = result.filter(regex=r"^(fit|pred)_time_fold_\d+_test$")
    return spent.sum(axis=1)


STYLES = {
    NETWORK: ("#009E73", "D"),
    STRUCTURAL: ("#0072B2", "o"),
    ARIMA: ("#D55E00", "s"),
    SEASONAL_ARIMA: ("#E69F00", "s"),
    "ETS": ("#CC79A7", "^"),
    "Theta": ("#56B4E9", "v"),
    "naive": ("0.6", "x"),
    "seasonal naive": ("0.3", "+"),
}


def draw_scores(axes: Axes, table: pd.DataFrame) -> None:
    """Draw a line of marks per task."""
    tasks = [name for name in table if name not in ("mean rank", "seconds")]
    heights = np.arange(len(tasks))
    is_equal = np.allclose(table.loc[NETWORK, tasks], table.loc[STRUCTURAL, tasks])
    shown = [name for name in STYLES if not (is_equal and name == NETWORK)]
    for k, name in enumerate(shown):
        color, marker = STYLES[name]
        label = f"{name} ({table.loc[name, 'mean rank']:.2f})"
        if is_equal and name == STRUCTURAL:
            label += f", {NETWORK} (equal)"
        axes.plot(
            table.loc[name, tasks],
            heights + 0.09 * (k - (len(shown) - 1) / 2),  # no mark hides another
            marker,
            color=color,
            markersize=8 if name in (NETWORK, STRUCTURAL) else 6,
            label=label,
        )
    axes.set_yticks(heights, tasks)
    axes.set_ylim(len(tasks) - 0.5, -0.5)
    for height in heights[1:]:
        axes.axhline(height - 0.5, color="0.85", lw=0.8)
    axes.set_xlim(left=0)
    axes.set(xlabel="MASE, mean over the test folds; less is better")


def draw_forecasts(axes: Axes, task: Task, result: pd.DataFrame, title: str) -> None:
    """Draw a series and the forecasts of its last fold."""
    task = task._replace(y=with_dates(task.y))
    fold = f"predictions_fold_{task.n_folds - 1}"
    test = task.y[-task.n_ahead :]
    history = task.y[: -task.n_ahead][-2 * task.n_ahead :]
    axes.plot(history.index, history, "o", color="0.45", ms=3, label="observed")
    ring = {"mfc": "white", "mec": "0.15", "mew": 0.7}
    axes.plot(test.index, test, "o", ms=4.5, zorder=3, label="held out", **ring)
    # the first one is wide, so that it is seen below one that is alike
    looks = (SEASONAL_ARIMA, "-", 5), ("ETS", "--", 1.8), (STRUCTURAL, "-", 1.8)
    for name, dashes, width in looks:
        forecast = with_dates(result.loc[name, fold].squeeze())
        look = {"color": STYLES[name][0], "lw": width, "label": name}
        axes.plot(forecast.index, forecast, dashes, **look)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(axes.xaxis.get_major_locator()))
    axes.set(title=f"{title}, the last fold", ylabel=task.y.name)
    axes.legend(frameon=False, fontsize="small")


def with_dates(y: pd.Series) -> pd.Series:
    """Return a series whose periods are the dates that they begin at."""
    return y.to_timestamp() if isinstance(y.index, pd.PeriodIndex) else y


def main(arguments: Sequence[str] | None = None) -> pd.DataFrame:
    """Run all tasks, print the table, save the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default="benchmark.png", help="the picture's path")
    parser.add_argument(
        "--quick", action="store_true", help="two tasks, one fold, hardly any training"
    )
    parser.add_argument("--tasks", nargs="+", choices=load_tasks(), help="some only")
    options = parser.parse_args(arguments)
    tasks = load_tasks(options.quick)
    if options.tasks:
        tasks = {name: task for name, task in tasks.items() if name in options.tasks}
    results = {}
    with without_noise():
        for name, task in tasks.items():
            print(f"{name}: {len(task.y)} observations, {task.n_folds} folds")
            results[name] = run(task, name, options.quick)
    table = table_of(results)
    print("\nMASE, and the mean rank over the regular series")
    print(table.round({"mean rank": 2, "seconds": 1}).round(3).to_string())
    # twice the mean pinball loss of levels in the middles of equal parts
    crps = pd.DataFrame({name: 2 * result[LOSS] for name, result in results.items()})
    print("\nCRPS, in the unit of each series")
    print(crps.loc[table.index].rename_axis(None).map("{:.3g}".format).to_string())

    figure, axes = plt.subplots(2, 1, figsize=(7.8, 8.5), layout="constrained")
    draw_scores(axes[0], table)
    title = "method (mean rank over the regular series)"
    look = {"frameon": False, "fontsize": "small", "title": title, "ncols": 2}
    axes[0].legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), **look)
    shown = [name for name, task in tasks.items() if task.irregular] or list(tasks)
    draw_forecasts(axes[1], tasks[shown[0]], results[shown[0]], shown[0])
    figure.savefig(options.output, dpi=120)
    plt.close(figure)
    print(f"\nThe picture is in {options.output}")
    return table


if __name__ == "__main__":
    main()
