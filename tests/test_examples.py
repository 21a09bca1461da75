"""The gallery's scripts run, and their figures are those that their texts tell."""

from __future__ import annotations

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

EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPTS = sorted(path.stem for path in EXAMPLES.glob("*.py"))

Names = dict[str, Any]
Claim = Callable[[Names], None]
CLAIMS: dict[str, Claim] = {}


def told_by(script: str) -> Callable[[Claim], Claim]:
    """Let a function check what a script has found."""

    def register(check: Claim) -> Claim:
        CLAIMS[script] = check
        return check

    return register


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
    CLAIMS[name](names)


# --- what they tell -------------------------------------------------------------------


def test_every_script_tells_something() -> None:
    assert sorted(CLAIMS) == SCRIPTS


@told_by("quickstart")
def two_years_are_forecast_better_than_by_simple_methods(run: Names) -> None:
    table, train, test = run["table"], run["train"], run["test"]
    assert (len(train), len(test)) == (2094, 131)
    mse = table["MSE"]
    assert mse["last value"] == pytest.approx(((test - train.iloc[-1]) ** 2).mean())
    assert mse["last year + drift"] == pytest.approx(0.734, abs=2e-3)
    assert mse["StructuralForecaster"] == pytest.approx(0.169, abs=0.02)
    assert (run["interval"].iloc[:, 0] < run["interval"].iloc[:, 1]).all()


@told_by("trust")
def no_simple_method_is_better_on_any_record(run: Names) -> None:
    table = run["table"]
    assert (table["ratio"] < 1).all()
    assert table["ratio"].iloc[-1] < 0.3
    assert (table["inside 90 %"] > 0.5).all()


@told_by("irregular_against_arima")
def readings_as_they_are_are_better_than_lines_between_them(run: Names) -> None:
    errors = run["errors"]["mean"]
    ours, empty, *interpolated = errors
    assert ours < empty
    assert 2 * ours < min(interpolated)


@told_by("intervals")
def intervals_hold_what_they_promise_on_average(run: Names) -> None:
    table = run["table"].xs("sklode", level="method")
    for coverage in run["COVERAGES"]:
        assert table[coverage].mean() == pytest.approx(coverage, abs=0.1)
    score = run["table"]["score"].unstack("method")
    assert (score["sklode"] < score["last season"]).sum() == 3


@told_by("load")
def a_day_of_load_is_forecast_better_than_by_boosting(run: Names) -> None:
    errors, test = run["errors"], run["test"]
    week_before = run["y"].shift(freq="7D")[test.index]
    assert errors["week before"] == pytest.approx((week_before - test).abs().mean())
    assert errors["sklode"] < 0.8 * errors["boosting"] < errors["week before"]
    parts = run["forecaster"].components_.index.get_level_values("part")
    assert {"season of 1 d", "season of 7 d", "day of Sat, Sun"} <= {*parts}
    assert run["inside"] == pytest.approx(0.9, abs=0.06)


@told_by("solar")
def nights_and_the_next_day_are_known_from_a_seventh(run: Names) -> None:
    between, ahead = run["table"].T.to_dict("records")
    for errors in (between, ahead):
        assert errors["sklode"] < 0.7 * errors["straight lines"]
        assert errors["sklode"] < errors["Gaussian process"]
    assert ahead["sklode"] < 0.95 * ahead["sklode without bounds"]
    assert run["interval"].min(axis=None) >= 0
    midnight = run["forecast"][lambda power: power.index.hour == 0]
    assert midnight.max() < 1


@told_by("retail")
def shops_show_each_other_what_a_price_brings(run: Names) -> None:
    table = run["table"]
    ours = table.loc["sklode"]
    assert (ours < 0.95 * table.drop("sklode").min()).all()
    assert run["gain"].mean() == pytest.approx(run["truth"].mean(), rel=0.05)
    assert np.corrcoef(run["gain"][run["old"]], run["truth"][run["old"]])[0, 1] > 0.8
    assert run["inside"] == pytest.approx(0.9, abs=0.05)


@told_by("avocados")
def what_is_sold_follows_the_price(run: Names) -> None:
    errors = run["errors"]
    assert len(run["sold"]) == len(run["X"]) == 169
    assert errors["sklode"] == pytest.approx(0.47, abs=0.03)
    assert errors["sklode"] < 0.95 * errors.drop("sklode").min()
    assert errors["sklode"] < 0.6 * errors["sklode without prices"]
    assert run["inside"] == pytest.approx(0.92, abs=0.06)
    assert run["curve"]["sold"].is_monotonic_decreasing
    assert (run["cheap"], run["dear"]) == pytest.approx((6.9, 5.7), abs=0.3)


@told_by("growth")
def young_trees_follow_the_curve_of_the_grown(run: Names) -> None:
    mean = run["table"]["mean"]
    assert mean["sklode"] == pytest.approx(0.96, abs=0.08)
    assert mean["sklode"] < 0.95 * mean["mean curve, moved"]
    assert mean["sklode"] < 1.05 * mean["mixed model, six levels"]
    assert mean["sklode"] < 0.8 * mean["mixed model, square"]
    parts = run["forecaster"].components_.index.get_level_values("part")
    assert "age (curve)" in parts
    assert len(run["found"]) == 14 * 4


@told_by("impute_gaps")
def gaps_are_filled_better_than_by_the_years_around(run: Names) -> None:
    mean = run["errors"]["mean"]
    assert mean["StructuralForecaster"] < mean["year before and after"] < mean["line"]
    assert mean["inside the 90 % interval"] == pytest.approx(0.9, abs=0.07)


@told_by("missing_values")
def a_silent_sensor_is_taken_to_go_on_as_it_did(run: Names) -> None:
    y, (begin, end) = run["y"], run["SILENT"]
    assert not y.notna().all(axis=1).any()
    hours = (y["flow"].dropna().index - run["START"]) / pd.Timedelta("1h")
    assert not ((hours > begin) & (hours < end)).any()
    errors = run["table"].unstack()
    assert (errors.xs("sklode", level=1, axis=1) < 0.15).all(axis=None)


@told_by("regressors")
def the_effect_of_the_temperature_is_found(run: Names) -> None:
    errors = run["errors"]
    assert errors["with X"] < 0.4 * errors.drop("with X").min()
    truth = run["effect"](run["degrees"])
    found = run["means"] - run["means"][run["degrees"] == 18]
    assert np.abs(found - truth).mean() < 1


@told_by("panel_transfer")
def a_law_is_learned_from_many(run: Names) -> None:
    errors = run["errors"]
    assert errors["network, pretrained"] < 0.7 * errors["boosting"]
    assert errors["boosting"] < errors["level, pretrained"] < 0.5
    assert errors["level, the six alone"] > 0.8
    assert run["network"].network_share_ > 0.9


@told_by("grid_search")
def the_defaults_are_the_best(run: Names) -> None:
    assert run["search"].best_params_ == {"logarithm": "auto", "seasons": "auto"}
    errors = run["errors"]
    assert errors["best"] < 0.5 * errors.drop("best").min()


@told_by("sample_paths")
def the_highest_reading_is_known_before(run: Names) -> None:
    errors, crossed, first = run["errors"], run["crossed"], run["first"]
    assert errors["median path"] < 0.7 * errors["baseline"]
    assert run["inside"].sum() >= 9
    assert crossed.is_monotonic_increasing
    assert crossed[:first].iloc[-1] > 0.5


@told_by("phase_portrait")
def populations_come_back_to_where_they_were(run: Names) -> None:
    forecaster = run["forecaster"]
    assert forecaster.network_share_ > 0.5
    path = forecaster.predict(fh=pd.timedelta_range("1D", "20D", freq="12h"))
    # what stays the same on a path of the law, and how it differs between them
    hares, lynxes = path["hares"], path["lynxes"]
    kept = 0.1 * hares - 0.4 * np.log(hares) + 0.4 * lynxes - np.log(lynxes)
    of_each = kept.groupby(level=0)
    assert of_each.std().median() < 0.5 * of_each.mean().std()


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
    assert set(table.index) == set(benchmark.STYLES)
    assert table["mean rank"].is_monotonic_increasing
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
