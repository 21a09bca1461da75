"""The gallery's scripts run, and their figures are those that their texts tell."""

from __future__ import annotations

import functools
import importlib
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib.image
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from sktime.forecasting.naive import NaiveForecaster

from sklode import (
    LatentODEForecaster,
    LatentODELSTMForecaster,
    LatentODERNNForecaster,
)

EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPTS = sorted(path.stem for path in EXAMPLES.glob("*.py"))

LATENT_ODES: list[Any] = [
    LatentODEForecaster,
    LatentODELSTMForecaster,
    LatentODERNNForecaster,
]

Names = dict[str, Any]
Claim = Callable[[Names], None]
CLAIMS: dict[str, Claim] = {}


def told_by(script: str) -> Callable[[Claim], Claim]:
    """Let a function check what a script has found; it then trains in full."""

    def register(check: Claim) -> Claim:
        CLAIMS[script] = check
        return check

    return register


def of_few_epochs(method: Any) -> Any:
    """Return a method of a forecaster that trains for two epochs at most."""

    @functools.wraps(method)
    def learn(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.max_epochs = min(self.max_epochs or 2, 2)
        return method(self, *args, **kwargs)

    return learn


def script_run(name: str, monkeypatch: pytest.MonkeyPatch, *options: str) -> Names:
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *options])
    monkeypatch.syspath_prepend(EXAMPLES)  # as where it is run
    return runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")


# --- every script ---------------------------------------------------------------------


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_is_a_page_with_a_title_and_its_own_command(name: str) -> None:
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    title, line = text.split("\n")[1:3]
    assert line == "=" * len(title)
    assert f"python examples/{name}.py [--output {name}.png]" in text
    assert f'"{name}.png"' in text  # the default is what the text says
    assert text.count("\n# %%\n") >= 3


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_script_runs_and_leaves_its_picture(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    if name not in CLAIMS:
        for kind in LATENT_ODES:
            monkeypatch.setattr(kind, "fit", of_few_epochs(kind.fit))
            monkeypatch.setattr(kind, "pretrain", of_few_epochs(kind.pretrain))
    monkeypatch.chdir(tmp_path)
    plt.switch_backend("agg")
    names = script_run(name, monkeypatch, "--output", "picture.png")
    assert len(plt.get_fignums()) == 1
    plt.close("all")
    printed = capfd.readouterr()
    assert printed.err == ""
    assert printed.out.rstrip().endswith("The picture is in picture.png")
    assert [path.name for path in tmp_path.iterdir()] == ["picture.png"]
    is_ink = matplotlib.image.imread("picture.png")[..., :3].min(axis=2) < 0.9
    assert 0.01 < is_ink.mean() < 0.7
    if name in CLAIMS:
        CLAIMS[name](names)


# --- what they tell -------------------------------------------------------------------


@told_by("quickstart")
def the_level_and_a_network_on_it_beat_a_line(run: Names) -> None:
    table, train, test = run["table"], run["train"], run["test"]
    assert (len(train), len(test)) == (2094, 131)
    mse = table["MSE"]
    assert mse["last value"] == pytest.approx(((test - train.iloc[-1]) ** 2).mean())
    assert mse["last year + drift"] == pytest.approx(0.734, abs=2e-3)
    assert mse["structural level"] == pytest.approx(0.169, abs=0.02)
    assert mse["Latent ODE-LSTM"] < 0.3  # 0.16 here; rounding alone moves it
    assert (run["interval"].iloc[:, 0] < run["interval"].iloc[:, 1]).all()


@told_by("calendar_season")
def the_calendar_brings_the_season_that_the_window_does_not_show(run: Names) -> None:
    errors, train, test = run["errors"], run["train"], run["test"]
    mean = ((test - train.mean()) ** 2).mean()
    assert errors["training mean"] == pytest.approx(mean)
    regression = errors["regression on the waves"]
    assert errors["Latent ODE-LSTM, calendar"] < 1.3 * regression
    assert errors["Latent ODE-LSTM"] > 0.7 * mean


@told_by("impute_gaps")
def a_gap_is_filled_better_than_by_line_or_spline(run: Names) -> None:
    kept, gap, early, errors = run["kept"], run["gap"], run["early"], run["errors"]
    assert (len(kept), len(gap), len(early)) == (270, 20, 10)
    nearest = ((early - kept.iloc[0]) ** 2).mean()
    assert errors.loc["line", "before"] == pytest.approx(nearest)
    for part in ("gap", "before"):
        others = errors.loc[["line", "cubic spline"], part]
        assert errors.loc["Latent ODE-LSTM", part] < 0.2 * others.min()
    assert errors.loc["mirrored", "before"] < 0.2 * nearest
    mirrored, index = run["mirrored"], kept.index[:12]  # time runs backward
    pd.testing.assert_index_equal(mirrored(mirrored(index)), index)


@told_by("missing_values")
def a_silent_sensor_is_taken_to_go_on_as_it_did(run: Names) -> None:
    y, (begin, end) = run["y"], run["SILENT"]
    assert not y.notna().all(axis=1).any()
    hours = (y["flow"].dropna().index - run["START"]) / pd.Timedelta("1h")
    assert not ((hours > begin) & (hours < end)).any()
    assert (run["table"] < 0.25).all(axis=None)  # the mean has 1


@told_by("sample_paths")
def futures_follow_what_was_held_out(run: Names) -> None:
    later, futures = run["later"], run["futures"]
    assert 0 not in run["train"].index.unique("series")
    middle = futures["y"].groupby(level=1).median()
    answers = np.interp(later.index.asi8, middle.index.asi8, middle)
    assert ((answers - later) ** 2).mean() < 0.5 * later.var()


@told_by("irregular_against_arima")
def arma_comes_near_unless_holes_are_filled(run: Names) -> None:
    table, tasks = run["table"], run["tasks"]
    ours, empty, filled, automatic = (table.loc[name] for name in table.index)
    assert (ours[list(tasks)] < 0.03).all()
    assert (automatic[list(tasks)] > 3 * ours[list(tasks)]).all()
    assert ours["once an hour"] < empty["once an hour"] < 4 * ours["once an hour"]
    assert filled["at random times"] > 5 * ours["at random times"]
    assert empty["at random times"] < 0.2 * filled["at random times"]


# --- the benchmark against ARIMA ------------------------------------------------------


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(EXAMPLES / "benchmarks")
    return importlib.import_module("against_arima")


@pytest.mark.slow
def test_benchmark_prints_its_table_and_saves_a_picture(
    benchmark: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "picture.png"
    table = benchmark.main(["--quick", "--output", str(picture)])
    assert list(table.columns) == ["shampoo", "CO2, irregular", "mean rank", "seconds"]
    assert list(table.index) == list(benchmark.STYLES)
    assert (table > 0).all(axis=None)
    assert all(name in capsys.readouterr().out for name in table.index[:1])
    assert matplotlib.image.imread(picture).std() > 0.05
    y = benchmark.load_shampoo_sales().to_numpy()
    step = np.abs(np.diff(y[:24])).mean()
    naive = np.abs(y[24:] - y[23]).mean() / step
    assert table.loc["naive", "shampoo"] == pytest.approx(naive)


@pytest.mark.filterwarnings("ignore:The default of config:FutureWarning")
def test_grid_forecast_of_a_straight_line_is_read_at_the_stamps(
    benchmark: ModuleType,
) -> None:
    days = np.array([0, 3, 4, 9, 10, 17, 21, 22, 30, 31, 33, 40])
    index = pd.Timestamp("2020-01-01") + pd.to_timedelta(days, unit="D")
    y = pd.Series(2.0 * days + 1, index, name="line")
    drift = NaiveForecaster("drift")
    forecaster = benchmark.OnRegularGrid(drift, pd.Timedelta("3D"))
    stamps = index[-1] + pd.to_timedelta([1, 5, 20], unit="D")
    forecast = forecaster.fit(y[:-2]).predict(fh=stamps)
    expected = pd.Series(2.0 * (days[-1] + np.array([1, 5, 20])) + 1, stamps)
    pd.testing.assert_series_equal(forecast, expected, check_names=False)
