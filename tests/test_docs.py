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

from sklode import StructuralForecaster, calendar_features
from tests.pages import PAGES, ROOT, parts, python_of

Names = dict[str, Any]
CHECKS: dict[str, list[Callable[[Names], None]]] = {}

# Pages whose blocks train for long, each with what makes that necessary.
SLOW = {
    "README.md": "its example trains by the defaults",
    "calendar.md": "a season is forecast a year ahead, well",
    "plotting.md": "two fits on a record of forty years",
    "scaling.md": "the workers of a cluster import all libraries",
    **dict.fromkeys(
        (
            "exogenous.md",
            "imputation.md",
            "sampling.md",
            "speed.md",
            "stopping.md",
            "tour.md",
            "tuning.md",
            "uncertainty.md",
            "windows.md",
        ),
        "what it shows takes several fits",
    ),
}
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
    "progress.md": ("optuna",),
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
    marks: list[Any] = [pytest.mark.slow] if page in SLOW else []
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


@says("exogenous.md")
def categories_and_static_attributes_are_encoded(shown: Names) -> None:
    future, forecast = shown["future"], shown["y_pred"]
    pd.testing.assert_index_equal(forecast.index, future)
    X = shown["controls"](future)
    one_hot = ["place_city", "place_coast", "sale_half price", "sale_none"]
    waves = calendar_features(future, "week")
    assert list(X.columns) == [*one_hot, *waves.columns]
    stamps = future.get_level_values("day")
    assert X["place_coast"].to_numpy().tolist() == (
        (future.get_level_values("shop") == "s2").astype(float).tolist()
    )
    assert X["sale_half price"].to_numpy().tolist() == (
        (stamps.day <= 7).astype(float).tolist()
    )
    dummies = pd.get_dummies(shown["categories"], dtype=float)
    np.testing.assert_array_equal(X[one_hot], dummies.loc[future])
    y, past, raw = shown["y"], shown["past"], shown["categories"]
    with pytest.raises(TypeError, match="X must be numeric, not categorical; got col"):
        shown["forecaster"].fit(y.loc[past], X=raw.loc[past])


@says("errors.md")
def an_update_that_contradicts_is_refused(shown: Names) -> None:
    assert "2 of them, the first at 2026-01-29 00:00:00" in shown["message"]
    seen = shown["forecaster"].predict_residuals()
    residuals = shown["forecaster"].predict_residuals(shown["y"])
    pd.testing.assert_series_equal(seen, residuals, check_freq=False)


@says("calendar.md")
def the_season_is_forecast_a_year_ahead(shown: Names) -> None:
    y, forecast = shown["y"], shown["y_pred"]
    test = y["2025":]
    pd.testing.assert_index_equal(forecast.index, test.index)
    assert ((forecast - test) ** 2).mean() < 0.1 * test.var()


@says("sampling.md")
def averages_over_intervals_are_those_of_the_paths(shown: Names) -> None:
    starts, table, forecaster = (shown[k] for k in ("starts", "table", "forecaster"))
    assert (table["5 %"] < table["mean"]).all()
    assert (table["mean"] < table["95 %"]).all()
    fine = pd.to_timedelta((np.arange(300) + 0.5) * 3 / 300, unit="h")
    paths = forecaster.sample(starts[1] + fine, n_samples=200, noise=False)
    average = paths.iloc[:, 0].unstack(0).mean().to_numpy()
    np.testing.assert_allclose(average, shown["averages"][:, 1], atol=1e-4)


@says("levels.md")
def the_level_of_the_airline_series_is_what_the_picture_shows(shown: Names) -> None:
    level = StructuralForecaster().fit(shown["y"]).level_
    assert level.index.get_level_values("part").tolist() == [
        *("trend", "deviation", "season of 12 periods", "noise")
    ]
    assert level["logarithm"].all()


@says("levels.md")
def what_the_network_adds_is_a_share(shown: Names) -> None:
    assert 0 <= shown["forecaster"].network_share_ <= 1


@says("structural.md")
def the_year_is_found_in_forty_points(shown: Names) -> None:
    assert len(shown["y"]) == 40
    error = (shown["y_pred"] - shown["y_test"]).abs().mean()
    assert error == pytest.approx(0.39, abs=0.03)
    parts = shown["forecaster"].level_.index.get_level_values("part")
    assert "season of 365.2 d" in parts


@says("levels.md")
def seeds_are_averaged(shown: Names) -> None:
    each = [
        f.predict(fh=[1, 5]).to_numpy().ravel()
        for _, f in shown["average"].forecasters_
    ]
    mean = shown["average"].predict(fh=[1, 5])
    np.testing.assert_allclose(mean, np.mean(each, axis=0), rtol=1e-6)
    assert np.ptp(each, axis=0).min() > 0


@says("saving.md")
def a_forecaster_is_saved_and_shared(shown: Names) -> None:
    expected = shown["forecaster"].predict(fh=[1, 2])
    for name in ("again", "loaded", "shared"):
        found = shown[name].predict(fh=[1, 2])
        pd.testing.assert_series_equal(found, expected, check_exact=True)
    weights = shown["shared"].network_.translator.network[0].weight
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


@says("gradients.md")
def reach_and_steps_of_a_model_are_measured(shown: Names) -> None:
    reach = shown["reach"]
    assert reach.columns.tolist() == ["c", "h"]
    assert reach.index.tolist() == list(range(24))
    assert reach.loc[0, "h"] == 1
    assert reach.loc[23].max() < reach.loc[5].max() < 1
    assert len(shown["steps"]) == 16 * 23 * 4
    assert shown["norms"]["count"] == 5
    assert len(shown["axes"].lines) == 1 + 16


@says("stopping.md")
def a_training_that_was_stopped_is_trained_on(shown: Names) -> None:
    assert shown["stopped"] == 6  # the seventh was interrupted, and is not counted
    assert len(shown["forecaster"].history_) == 20


@says("time.md")
def stamps_and_steps_are_those_that_were_asked_for(shown: Names) -> None:
    y, forecaster = shown["y"], shown["forecaster"]
    assert forecaster.time_unit_ == y.index.to_series().diff().median()
    assert forecaster.time_unit_.floor("s") == pd.Timedelta("49min 2s")
    assert shown["ahead"].tolist() == [pd.Timedelta("1h"), pd.Timedelta("2h")]
    months = shown["monthly"].predict(fh=[1, 2]).index
    assert months.tolist() == [pd.Timestamp("2024-01-31"), pd.Timestamp("2024-02-29")]
    asked, own = shown["asked"], shown["own"]
    pd.testing.assert_index_equal(forecaster.predict(fh=asked).index, asked)
    pd.testing.assert_index_equal(shown["both"].predict_at(own).index, own)


@says("windows.md")
def a_logarithm_keeps_intervals_positive(shown: Names) -> None:
    assert shown["interval"].min().min() > 0


@says("clipping.md")
def the_history_shows_what_was_clipped(shown: Names) -> None:
    history = shown["history"]
    # three steps an epoch; the first one sets the threshold and is not clipped
    assert history.loc[1, "clipped_fraction"] < 1
    assert shown["norms"].equals(history["grad_norm"])
    assert history["grad_norm"].max() < 10 * history["grad_norm"].median()


@says("exogenous.md")
def scenarios_of_what_is_known_ahead_differ_by_its_effect(shown: Names) -> None:
    scenarios = shown["scenarios"]
    assert 2.5 < (scenarios["on"] - scenarios["off"]).mean() < 5.5


@says("panels.md")
def a_pretrained_model_takes_up_a_new_series_without_training(shown: Names) -> None:
    member, family, later = (shown[name] for name in ("member", "family", "later"))
    assert member.n_epochs_ == 0
    assert member.cutoff[0] == later.index[-1]
    taught = family.pretrained_.network.state_dict()
    for name, weights in member.network_.state_dict().items():
        np.testing.assert_array_equal(weights, taught[name])
    ends = shown["panel"].reset_index("time").groupby("sensor")["time"].max()
    first = shown["forecaster"].predict(fh=[1]).reset_index("time")["time"]
    assert (first > ends).all()


@says("tuning.md")
def a_wrapped_splitter_has_forecasts_asked_where_they_are_scored(shown: Names) -> None:
    right = shown["evaluated"]["test_MeanAbsoluteError"]
    with pytest.warns(UserWarning, match="y_true"):
        table = shown["evaluate"](
            shown["forecaster"],
            shown["cv"],
            shown["y"],
            scoring=shown["MeanAbsoluteError"](),
            strategy="no-update_params",
        )
    assert right.mean() < 0.5 * table["test_MeanAbsoluteError"].mean()
    assert set(shown["search"].best_params_) == {"LatentODELSTMForecaster__level"}


@says("solvers.md")
def smaller_steps_and_higher_orders_solve_better(shown: Names) -> None:
    error = shown["error"]
    for method, factor in {"rk4": 8, "midpoint": 2, "euler": 1.2}.items():
        assert error[method, 0.5] * factor < error[method, 1.0]
        assert error[method, 1.0] < error[method, 2.0]
    assert error["rk4", 1.0] < 0.1 < error["midpoint", 1.0] < error["euler", 1.0]


@says("speed.md")
def the_engine_that_was_asked_for_ran(shown: Names) -> None:
    assert shown["forecaster"].engine_ == ("eager", "eager")


@says("uncertainty.md")
def wider_intervals_hold_narrower_ones_and_paths_their_tops(shown: Names) -> None:
    interval = shown["interval"].droplevel(0, axis=1)
    assert (interval[0.9, "lower"] < interval[0.5, "lower"]).all()
    assert (interval[0.5, "upper"] < interval[0.9, "upper"]).all()
    quantiles = shown["quantiles"].droplevel(0, axis=1)
    np.testing.assert_allclose(quantiles[0.05], interval[0.9, "lower"])
    tops, paths = shown["tops"], shown["paths"]
    assert len(tops) == 200
    assert tops.iloc[7].item() == paths.loc[7].max().item()


@says("missing.md")
def channels_without_a_common_stamp_are_filled(shown: Names) -> None:
    y, filled = shown["y"], shown["filled"]
    assert not y.notna().all(axis=1).any()
    assert filled.notna().all(axis=None)
    assert filled["a"][y["a"].notna()].equals(y["a"].dropna())
    assert y.isna().mean().round(2).tolist() == [0.4, 0.6]


@says("sktime.md")
def a_pipeline_forecasts_at_a_stamp_in_the_units_of_y(shown: Names) -> None:
    y, forecast = shown["y"], shown["forecast"]
    assert forecast.index.tolist() == [pd.Timestamp("2026-01-06 12:00")]
    assert y.min() < forecast.item() < y.max()


def test_every_check_has_its_page() -> None:
    assert {*CHECKS, *SLOW, *WARNS} <= set(WITH_PYTHON)


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
def the_example_sees_the_season(names: Names) -> None:
    ahead = names["ahead"]
    error = ((names["y_pred"] - ahead) ** 2).mean()
    assert error < 0.2 * ahead.var()
    assert names["search"].best_params_["hidden_size"] in (8, 16)


@says("progress.md")
def a_bad_trial_is_pruned(shown: Names) -> None:
    assert shown["states"] == ["COMPLETE", "COMPLETE", "PRUNED"]
    pruned = shown["study"].trials[2]
    assert max(pruned.intermediate_values) < 12
