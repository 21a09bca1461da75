"""What the pages of docs and the README show can be run, and gives what they say."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.pages import PAGES, ROOT, parts, python_of

Names = dict[str, Any]
CHECKS: dict[str, list[Callable[[Names], None]]] = {}

# sktime's own forecasters warn of a default of theirs.
REMEMBER = "ignore:The default of config ``remember_data``:FutureWarning"
UNKNOWN = "ignore:X is not known:UserWarning"
WARNS = {"tuning.md": REMEMBER, "gaps.md": REMEMBER, "scenarios.md": UNKNOWN}

# What a page shows that not every installation has.
NEEDS = {
    "benchmarks.md": ("pmdarima",),
    "from_pmdarima.md": ("pmdarima",),
    "gaps.md": ("statsmodels",),
    "optuna.md": ("optuna",),
    "saving.md": ("safetensors",),
    "speed.md": ("distributed",),
}


def says(page: str) -> Callable[[Callable[[Names], None]], Callable[[Names], None]]:
    """Let a function check what the blocks of a page have defined."""

    def register(check: Callable[[Names], None]) -> Callable[[Names], None]:
        CHECKS.setdefault(page, []).append(check)
        return check

    return register


def marked(page: str) -> Any:
    marks: list[Any] = []
    for module in NEEDS.get(page, ()):
        absent = importlib.util.find_spec(module) is None
        reason = f"the page shows {module}, which is not installed"
        marks.append(pytest.mark.skipif(absent, reason=reason))
    if page in WARNS:
        marks.append(pytest.mark.filterwarnings(WARNS[page]))
    return pytest.param(page, marks=marks)


WITH_PYTHON = [page for page in PAGES if python_of(page)]


@pytest.fixture
def names(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Names]:
    """Run a page's blocks, in order, in one namespace and an empty folder."""
    plt = pytest.importorskip("matplotlib.pyplot")
    page = request.param
    module = ModuleType("page_" + page.removesuffix(".md"))
    # what a block defines can be pickled, as from a program or a notebook
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.syspath_prepend(ROOT / "examples" / "paper")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    plt.switch_backend("Agg")
    monkeypatch.chdir(tmp_path)
    names = module.__dict__
    try:
        for block in python_of(page):
            # lines are those of the page, in tracebacks too
            code = compile("\n" * block.line + block.text, str(PAGES[page]), "exec")
            exec(code, names)  # our own page
        names["page"] = page
        yield names
    finally:
        plt.close("all")


@pytest.mark.slow
@pytest.mark.parametrize("names", [marked(p) for p in WITH_PYTHON], indirect=True)
def test_page_runs_and_gives_what_it_says(names: Names) -> None:
    for check in CHECKS.get(names["page"], []):
        check(names)


@says("tour.md")
def the_tour_beats_two_simple_methods(shown: Names) -> None:
    assert shown["error"] == pytest.approx(0.29, abs=0.03)
    assert shown["last_value"] == pytest.approx(2.64, abs=0.01)
    assert shown["last_year"] == pytest.approx(1.95, abs=0.01)
    assert 0.8 < shown["inside"] <= 1
    assert 0.3 < shown["chance"] < 0.8
    assert "season of 365.2 d" in str(shown["forecaster"].summary())
    assert shown["network"].network_share_ == 0


@says("which.md")
def a_network_learns_the_law_of_many_series(shown: Names) -> None:
    errors = shown["errors"]
    assert errors["network"] == pytest.approx(0.10, abs=0.03)
    assert errors["zero"] == pytest.approx(0.63, abs=0.01)
    assert errors["structural"] == pytest.approx(0.70, abs=0.03)
    assert errors["last value"] == pytest.approx(0.83, abs=0.01)
    assert shown["network"].network_share_ > 0.8


@says("panels.md")
def series_learn_from_each_other(shown: Names) -> None:
    assert shown["error"] == pytest.approx(10.3, abs=0.5)
    assert shown["last_value"] == pytest.approx(67, abs=0.5)
    family, alone = shown["family_error"], shown["alone_error"]
    assert family == pytest.approx(21, abs=3)
    assert family < 0.6 * min(alone, shown["last_error"])
    assert len(shown["total"]) == 7
    assert shown["first_promotions"] < 1.2
    assert shown["new_shops"] < 2.5
    parts = shown["chain"].components_.index.get_level_values("part")
    assert {"promo (line)", "size (line)"} <= {*parts}
    assert "age (curve)" in shown["young"].components_.index.get_level_values("part")
    assert shown["far"] < 0.1
    assert shown["kinds"] == 2
    assert shown["narrow"] == pytest.approx(0.3, abs=0.1)
    assert shown["gap"] < 1e-9
    pd.testing.assert_index_equal(shown["y_pred"].index, shown["ahead"].index)


@says("intervals.md")
def intervals_hold_the_truth_and_counts_are_whole(shown: Names) -> None:
    assert 0.8 < shown["inside"] <= 1
    assert shown["covered"].mean() == pytest.approx(0.82, abs=0.03)
    assert shown["covered"].min() == pytest.approx(0.21, abs=0.05)
    assert shown["bills"].predict(fh=shown["month"]).sum() == pytest.approx(835, abs=20)
    assert shown["medians"].item() == pytest.approx(621, abs=20)
    counts = shown["week"].to_numpy()
    np.testing.assert_array_equal(counts, np.round(counts))
    assert counts.min() >= 0
    assert len(shown["paths"].groupby("sample")) == 500


@says("regressors.md")
def regressors_beat_the_series_alone(shown: Names) -> None:
    assert pd.Timedelta(shown["lasts"].replace(" d", " D")).days == 1
    assert shown["dose_error"] < 0.15
    assert shown["error"] == pytest.approx(0.11, abs=0.01)
    assert shown["without"] == pytest.approx(0.24, abs=0.01)
    assert shown["mean"] == pytest.approx(0.18, abs=0.01)
    assert ("warmth", "warmth (curve)") in shown["model"].components_.index
    assert shown["load_error"] == pytest.approx(4.9, abs=0.3)
    assert shown["last_load"] == pytest.approx(9.9, abs=0.1)
    river = shown["gauges"].components_.loc["downstream", "memory"]
    assert river["upstream (line, late)"] == "5.985 h"
    assert shown["river_error"] == pytest.approx(0.16, abs=0.02)
    assert shown["alone_error"] == pytest.approx(0.45, abs=0.05)
    assert shown["sale_error"] == pytest.approx(0.27, abs=0.03)
    assert 1 < shown["wider"] < 30
    names = {*shown["hall"].components_.index.get_level_values("part")}
    assert {"holiday (line along the day)", "day of Sat, Sun"} <= names
    assert shown["told_error"] == pytest.approx(1.9, abs=0.2)
    assert shown["untold_error"] == pytest.approx(10.9, abs=0.5)


@says("scenarios.md")
def scenarios_are_told_apart_and_an_effect_is_found(shown: Names) -> None:
    assert shown["bounds"].tolist() == pytest.approx([602, 625, 650], abs=10)
    assert shown["gained"].tolist() == pytest.approx([958, 1174, 1373], abs=40)
    low, high = shown["no_gain"]
    assert low < 0 < high


@says("gaps.md")
def a_gap_is_filled_from_both_sides(shown: Names) -> None:
    assert shown["error"] == pytest.approx(0.34, abs=0.03)
    assert shown["line_error"] == pytest.approx(2.26, abs=0.01)
    observed = shown["y"].dropna()
    pd.testing.assert_series_equal(shown["filled"][observed.index], observed)
    assert shown["message"].startswith("y has 29 value(s)")


@says("tuning.md")
def true_stamps_are_asked_and_the_season_is_found(shown: Names) -> None:
    errors = shown["results"]["MAE"].groupby("method").mean()
    assert errors["forecaster"] == pytest.approx(0.57, abs=0.05)
    assert errors.drop("forecaster").min() > 1.8
    right = shown["right"]["test_MeanAbsoluteError"].mean()
    assert right == pytest.approx(0.42, abs=0.03)
    best = shown["search"].best_params_
    assert best == {"StructuralForecaster__seasons": "auto"}
    assert shown["structural"] == pytest.approx([-1.60], abs=0.05)
    size_2, size_32 = shown["scores"].reshape(2, 2)
    assert max(size_2[0], size_32[0]) < -0.35 < min(size_2[1], size_32[1])
    assert min(*size_2, *size_32) > shown["structural"][0] / 2


@says("saving.md")
def a_forecaster_is_saved_and_shared(shown: Names) -> None:
    expected = shown["forecaster"].predict(fh=[1, 2])
    for name in ("again", "loaded", "shared"):
        found = shown[name].predict(fh=[1, 2])
        pd.testing.assert_series_equal(found, expected, check_exact=True)
    assert shown["text"]["class"] == "StructuralForecaster"
    assert shown["text"]["state"]["parameters"]["random_state"] == 0


@says("stamps.md")
def stamps_and_steps_are_those_that_were_asked_for(shown: Names) -> None:
    train, forecaster = shown["train"], shown["forecaster"]
    step = forecaster.predict(fh=[1]).index[0] - train.index[-1]
    assert step == train.index.to_series().diff().median()
    assert step.floor("min") == pd.Timedelta("46min")
    assert shown["ahead"].tolist() == [pd.Timedelta("1h"), pd.Timedelta("2h")]
    assert shown["error"] == pytest.approx(0.24, abs=0.02)
    assert shown["last_value"] == pytest.approx(2.5, abs=0.1)
    pd.testing.assert_index_equal(shown["y_pred"].index, shown["test"].index)
    months = shown["monthly"].predict(fh=[1, 2]).index
    assert months.tolist() == [pd.Timestamp("2024-01-31"), pd.Timestamp("2024-02-29")]


@says("known.md")
def named_days_are_told_of_days_and_of_weeks(shown: Names) -> None:
    assert shown["error_told"] == pytest.approx(0.9, abs=0.3)
    assert shown["error_untold"] == pytest.approx(15.6, abs=0.5)
    assert shown["sale_told"] == pytest.approx(4.4, abs=0.5)
    assert shown["sale_untold"] == pytest.approx(63, abs=1)


@says("how.md")
def a_year_of_passengers_is_known_from_its_parts(shown: Names) -> None:
    assert shown["error"] == pytest.approx(24, abs=1)
    assert shown["naive"] == pytest.approx(71, abs=0.5)
    parts = shown["forecaster"].components_.index.get_level_values("part")
    assert [*parts] == [
        "trend",
        "deviation",
        "season of 12 periods",
        "trading days",
        "noise",
    ]


@says("clipping.md")
def the_history_shows_what_was_clipped(shown: Names) -> None:
    history = shown["history"]
    assert len(history) == 5
    assert (history["clipped_fraction"] > 0).any()
    assert len(shown["exploded"]) == 0


@says("index.md")
def a_year_is_found_in_forty_weeks(shown: Names) -> None:
    assert len(shown["y"]) == 40
    assert shown["error"] == pytest.approx(0.33, abs=0.03)
    assert shown["naive"] == pytest.approx(1.94, abs=0.01)
    parts = shown["forecaster"].components_.index.get_level_values("part")
    assert "season of 365.2 d" in parts


@says("troubleshooting.md")
def each_symptom_comes_and_goes(shown: Names) -> None:
    errors = shown["results"]["MAE"].groupby("method").mean()
    assert errors["forecaster"] < 0.5 * errors.drop("forecaster").min()
    assert shown["flat"] == pytest.approx(1.56, abs=0.1)
    assert shown["seasonal"] == pytest.approx(0.24, abs=0.04)
    first = shown["first"]
    assert first["spike"] == pytest.approx(first["calm"], abs=0.1)
    assert first["shift"] > first["calm"] + 5
    assert shown["below"] < 0 == shown["above"]
    told = "hour of the week was better on these rows: StructuralForecaster(seasons="
    assert shown["advice"].startswith(f"{told}['1D', '7D']) had an MAE of 0.8")


@says("from_prophet.md")
def weeks_are_forecast_better_than_by_prophet(shown: Names) -> None:
    assert shown["error"] == pytest.approx(0.36, abs=0.03)


@says("from_darts.md")
def weeks_are_forecast_better_than_by_darts(shown: Names) -> None:
    assert shown["error"] == pytest.approx(0.43, abs=0.03)


@says("from_pmdarima.md")
def months_are_forecast_though_some_are_missing(shown: Names) -> None:
    assert len(shown["y"]) == 106
    assert shown["error"] == pytest.approx(1768, abs=60)


@says("from_nixtla.md")
def a_long_table_is_forecast_and_given_back(shown: Names) -> None:
    assert shown["error"] == pytest.approx(22, abs=1)
    assert [*shown["back"].columns] == ["ds", "sklode"]
    assert shown["back"]["ds"].iloc[-1] == pd.Timestamp("1960-12-01")
    assert [*shown["all_back"].columns] == ["unique_id", "ds", "sklode"]
    assert len(shown["all_back"]) == 24


@says("benchmarks.md")
def days_differ_over_the_week(shown: Names) -> None:
    errors = shown["results"]["MAE"].groupby("method").mean()
    assert errors["forecaster"] == pytest.approx(510, abs=20)
    assert errors["seasonal naive"] == pytest.approx(633, abs=1)
    assert errors["hour of the week"] == pytest.approx(861, abs=1)


@says("optuna.md")
def the_defaults_win(shown: Names) -> None:
    assert shown["study"].best_params == {"logarithm": "auto", "seasons": "auto"}
    assert shown["final"] == pytest.approx(24, abs=1)


def test_every_check_has_its_page() -> None:
    assert {*CHECKS, *WARNS} <= set(WITH_PYTHON)


@pytest.mark.parametrize("page", PAGES)
def test_code_is_fenced_so_that_it_runs_or_says_what_it_is(page: str) -> None:
    # anything else that shows Python would be run by nobody
    known = {"bibtex", "python", "bash", "text", "toml", "yaml"}
    for fence in parts(page).fences:
        place = f"{page}:{fence.line}"
        directive = fence.info.startswith("{") and "code" not in fence.info
        assert fence.info in known or directive, f"{place}: {fence.info!r}"
        # a block is no main program: what that guards would not be run
        assert fence.info != "python" or "__main__" not in fence.text, place
    before = ""
    for number, line in parts(page).prose:
        indented = line.startswith("    ") and not before.strip()
        assert not indented, f"{page}:{number}: code without a fence"
        before = line


@says("README.md")
def the_first_lines_see_the_season(shown: Names) -> None:
    ahead, results = shown["ahead"], shown["results"]
    assert (shown["y_pred"] - ahead).abs().mean() < 0.5
    assert shown["y_interval"].shape == (len(ahead), 2)
    errors = results["MAE"].groupby("method").mean()
    assert errors["forecaster"] < 0.5 * errors.drop("forecaster").min()
