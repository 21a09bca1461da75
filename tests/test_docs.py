"""What the pages of docs show can be run, and gives what they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import calendar_features

DOCS = Path(__file__).parents[1] / "docs"


def run_section(
    page: str, heading: str, names: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Run the Python of a section of a page, and return the names it defines."""
    text = (DOCS / page).read_text(encoding="utf-8")
    _, _, after = f"\n{text}".partition(f"\n{heading}\n")
    section = re.split(r"^#+ ", after, flags=re.MULTILINE)[0]
    code = re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    assert code, f"no Python under {heading!r} of {page}"
    names = {} if names is None else names
    exec("\n".join(code), names)  # our own page
    return names


def test_categories_and_static_attributes_are_encoded_as_the_page_says() -> None:
    heading = "### Categories and static attributes are not taken"
    shown = run_section("sktime.md", heading)
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


def test_an_update_that_contradicts_is_refused_as_the_page_says() -> None:
    shown = run_section("errors.md", "## What warns")
    assert "2 of them, the first at 2026-01-29 00:00:00" in shown["message"]
    seen = shown["forecaster"].predict_residuals()
    residuals = shown["forecaster"].predict_residuals(shown["y"])
    pd.testing.assert_series_equal(seen, residuals, check_freq=False)


@pytest.mark.slow
def test_the_page_of_the_calendar_forecasts_the_season_a_year_ahead() -> None:
    shown = run_section("calendar.md", "# Seasons longer than the window")
    y, forecast = shown["y"], shown["y_pred"]
    test = y["2025":]
    pd.testing.assert_index_equal(forecast.index, test.index)
    assert ((forecast - test) ** 2).mean() < 0.1 * test.var()


def test_averages_over_intervals_are_those_of_the_page() -> None:
    shown = run_section("sampling.md", "## Averages over an interval")
    starts, table, forecaster = (shown[k] for k in ("starts", "table", "forecaster"))
    assert (table["5 %"] < table["mean"]).all()
    assert (table["mean"] < table["95 %"]).all()
    fine = pd.to_timedelta((np.arange(300) + 0.5) * 3 / 300, unit="h")
    paths = forecaster.sample(starts[1] + fine, n_samples=200, noise=False)
    average = paths.iloc[:, 0].unstack(0).mean().to_numpy()
    np.testing.assert_allclose(average, shown["averages"][:, 1], atol=1e-4)


def test_the_guard_keeps_the_level_of_a_walk_as_the_page_says() -> None:
    shown = run_section("levels.md", "## The guard")
    forecaster = shown["forecaster"]
    assert forecaster.best_epoch_ == 0
    assert bool(forecaster.network_.anchor.walking)
    # a random walk of steps of size 1, at gaps of half a day: after five of them
    forecast, last = forecaster.predict(fh=[1, 5]), shown["price"].iloc[-1]
    assert (forecast - last).abs().max() < 1.0
    table = forecaster.predict_interval(fh=[1, 5], coverage=0.9)
    width = np.ptp(table.to_numpy(), axis=1)
    assert 1.5 < width[0] < 7
    assert 4 < width[1] < 14


@pytest.mark.filterwarnings(
    "ignore:The default of config ``remember_data``:FutureWarning"
)
def test_seeds_are_averaged_as_the_page_says() -> None:
    shown = run_section("levels.md", "## The guard")
    names = run_section("levels.md", "## What to choose", shown)
    each = [
        f.predict(fh=[1, 5]).to_numpy().ravel()
        for _, f in names["average"].forecasters_
    ]
    mean = names["average"].predict(fh=[1, 5])
    np.testing.assert_allclose(mean, np.mean(each, axis=0), rtol=1e-6)
    assert np.ptp(each, axis=0).min() > 0


def test_a_forecaster_is_saved_and_shared_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = run_section("saving.md", "# Saving and sharing")
    shown = run_section("saving.md", "## To share: a file without code", shown)
    expected = shown["forecaster"].predict(fh=[1, 2])
    for name in ("again", "loaded", "shared"):
        found = shown[name].predict(fh=[1, 2])
        pd.testing.assert_series_equal(found, expected, check_exact=True)
    names = run_section("saving.md", "## The format", shown)
    weights = shown["shared"].network_.translator.network[0].weight
    np.testing.assert_array_equal(names["weights"], weights.detach().numpy())
    assert names["state"]["parameters"]["window_length"] == 24
