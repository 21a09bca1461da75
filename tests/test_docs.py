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
WARNS = {
    "levels.md": REMEMBER,
    "scaling.md": REMEMBER,
    "sktime.md": REMEMBER,
    "tuning.md": REMEMBER,
    "windows.md": REMEMBER,
}

# What a page shows that not every installation has.
NEEDS = {
    "optuna.md": ("optuna",),
    "saving.md": ("safetensors",),
    "scaling.md": ("distributed",),
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


@says("calendar.md")
def the_season_is_forecast_a_year_ahead(shown: Names) -> None:
    y, forecast = shown["y"], shown["y_pred"]
    test = y["2025":]
    pd.testing.assert_index_equal(forecast.index, test.index)
    assert ((forecast - test) ** 2).mean() < 0.1 * test.var()


@says("structural.md")
def the_year_is_found_in_forty_points(shown: Names) -> None:
    assert len(shown["y"]) == 40
    error = (shown["y_pred"] - shown["y_test"]).abs().mean()
    assert error == pytest.approx(0.39, abs=0.03)
    parts = shown["forecaster"].level_.index.get_level_values("part")
    assert "season of 365.2 d" in parts


@says("saving.md")
def a_forecaster_is_saved_and_shared(shown: Names) -> None:
    expected = shown["forecaster"].predict(fh=[1, 2])
    for name in ("again", "loaded", "shared"):
        found = shown[name].predict(fh=[1, 2])
        pd.testing.assert_series_equal(found, expected, check_exact=True)
    weights = shown["shared"].network_.posterior_head[0].weight
    np.testing.assert_array_equal(shown["weights"], weights.detach().numpy())
    assert shown["state"]["parameters"]["window_length"] == 24


@says("imputation.md")
def a_gap_is_filled_from_both_sides_and_the_past_from_its_future(shown: Names) -> None:
    def signal(stamps: pd.DatetimeIndex) -> np.ndarray:
        hours = (stamps - pd.Timestamp("2026-01-01")) / pd.Timedelta("1h")
        return np.sin(2 * np.pi * hours.to_numpy() / 20)

    gap, backcast = shown["filled"].iloc[120:140], shown["backcast"]
    assert ((gap - signal(gap.index)) ** 2).mean() < 0.01
    observed = shown["y"].dropna()
    pd.testing.assert_series_equal(shown["filled"][observed.index], observed)
    assert backcast.index.is_monotonic_increasing
    np.testing.assert_allclose(backcast, signal(backcast.index), atol=0.2)


@says("tour.md")
def the_tour_forecasts_down_to_the_noise(shown: Names) -> None:
    assert shown["error"] < 0.4
    assert shown["naive"] == pytest.approx(2.1, abs=0.05)
    assert 0.8 < shown["inside"] <= 1
    assert 0 < shown["chance"] < 1
    assert len(shown["filled"]) == 10
    # ten missing stamps of a sine in noise
    hours = (shown["filled"].index - pd.Timestamp("2026-03-01")) / pd.Timedelta("1h")
    truth = 20 + 3 * np.sin(2 * np.pi * hours.to_numpy() / 24)
    assert np.sqrt(((shown["filled"] - truth) ** 2).mean()) < 0.6
    assert shown["search"].best_params_["hidden_size"] in (8, 32)


@says("index.md")
def a_year_is_found_in_forty_weeks(shown: Names) -> None:
    assert len(shown["y"]) == 40
    assert shown["error"] == pytest.approx(0.39, abs=0.03)
    assert shown["naive"] == pytest.approx(1.94, abs=0.01)
    parts = shown["forecaster"].level_.index.get_level_values("part")
    assert "season of 365.2 d" in parts


@says("troubleshooting.md")
def each_symptom_comes_and_goes(shown: Names) -> None:
    errors = shown["results"]["MAE"].groupby("method").mean()
    assert errors["forecaster"] < 0.5 * errors.drop("forecaster").min()
    assert shown["flat"] == pytest.approx(1.5, abs=0.1)
    assert shown["seasonal"] == pytest.approx(0.4, abs=0.05)
    first = shown["first"]
    assert first["spike"] == pytest.approx(first["calm"], abs=0.1)
    assert first["shift"] > first["calm"] + 5
    assert shown["below"] < 0 == shown["above"]


@says("from_prophet.md")
@says("from_darts.md")
def irregular_weeks_are_forecast_to_0_4_ppm(shown: Names) -> None:
    assert shown["error"] == pytest.approx(0.4, abs=0.03)


@says("from_nixtla.md")
def a_long_table_is_forecast_and_given_back(shown: Names) -> None:
    assert shown["error"] == pytest.approx(23, abs=1)
    assert [*shown["back"].columns] == ["ds", "sklode"]
    assert shown["back"]["ds"].iloc[-1] == pd.Timestamp("1960-12-01")


@says("optuna.md")
def the_defaults_win(shown: Names) -> None:
    assert shown["study"].best_params == {"logarithm": "auto", "seasons": "auto"}
    assert shown["final"] == pytest.approx(25, abs=1)


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
