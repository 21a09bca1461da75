"""What `summary` tells of a fitted forecaster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import LatentODELSTMForecaster, StructuralForecaster
from sklode.data.ticks import DAY
from sklode.forecasters.summary import _as_given, _remedy
from tests.series import tiny

HOURS = np.sort(np.random.default_rng(0).choice(24 * 30, 300, replace=False))
STAMPS = pd.Timestamp("2024-01-01") + pd.to_timedelta(HOURS, unit="h")
DAILY = pd.Series(10 + np.sin(HOURS * np.pi / 12), STAMPS, name="load")


def test_a_summary_tells_what_was_seen_chosen_and_reached() -> None:
    y = DAILY + 0.1 * np.random.default_rng(1).normal(size=300)
    y.iloc[[30, 31]] = np.nan
    y.iloc[7] = 1e9
    with pytest.warns(UserWarning, match="far beyond all others"):
        forecaster = StructuralForecaster().fit(y)
    text = repr(forecaster.summary())
    assert text.startswith("model     StructuralForecaster")
    seen = "1 series, 300 rows", f"to {STAMPS[-1]}", "0.7% of values missing"
    for said in (*seen, "1 value(s)", "season of 1 d"):
        assert said in text
    topics = forecaster.summary(origins=2)
    told = ["model", "seen", "left out", "structure", "time", "held out", "to try"]
    assert list(topics) == told
    assert "season of 1 d" in topics["structure"]
    assert "from 2 origins, in units of y" in topics["held out"]
    errors = {
        line[:22].strip(): float(line[22:].split()[0])
        for line in topics["held out"].splitlines()[2:]
    }
    own, last, seasonal, before, mean = errors.values()
    names = "seasonal naive (1 d)", "7 d before", "hour of the week"
    assert tuple(errors) == ("forecaster", "last value", *names)
    assert own < min(mean, seasonal) < max(mean, seasonal, before) < last
    assert "held out" not in forecaster.summary(origins=0)


@pytest.mark.parametrize(
    ("y", "n_fits"),
    [
        (DAILY.iloc[:60], 2),
        (pd.Series(np.arange(1000.0) % 7, name="y"), 1),
        (pd.concat({k: DAILY[k : k + 40] for k in range(3)}).to_frame("y"), 2),
    ],
    ids=["short", "long", "panel"],
)
def test_a_summary_fits_at_most_twice_and_takes_up_the_rows_between(
    y: Any, n_fits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = []
    whole = StructuralForecaster._fit

    def counted(self: Any, y: Any, X: Any = None, fh: Any = None) -> Any:
        lengths.append(len(y))
        return whole(self, y, X, fh)

    X = pd.DataFrame({"u": np.arange(len(y)) % 5.0}, y.index)
    forecaster = StructuralForecaster().fit(y, X)
    monkeypatch.setattr(StructuralForecaster, "_fit", counted)
    held_out = forecaster.summary()["held out"]
    assert "from 3 origins" in held_out
    assert len(lengths) == n_fits
    assert lengths[-1] >= 1.5 * lengths[0] or n_fits == 1


def test_a_summary_is_a_table_in_a_notebook() -> None:
    html = StructuralForecaster().fit(DAILY.rename("a<b")).summary(0)._repr_html_()
    assert "<th>structure</th>" in html
    assert "a&lt;b" in html


def test_a_poor_forecast_is_told_with_what_to_try() -> None:
    rng = np.random.default_rng(0)
    steps = pd.Series(np.where(rng.random(200) < 0.5, 5.0, -5.0), name="y")
    y = pd.concat([steps, pd.Series(np.arange(60.0))], ignore_index=True)
    topics = StructuralForecaster(seasons=None).fit(y).summary()
    assert topics["to try"] != "nothing stands out"


HOURLY = pd.date_range("2024-03-04", periods=5 * 168, freq="h")
WEEKDAY = np.sin(2 * np.pi * HOURLY.hour / 24) * np.where(HOURLY.dayofweek < 5, 5, 1)
WEEKLY = pd.Series(
    20 + WEEKDAY + 0.1 * np.random.default_rng(0).normal(size=len(HOURLY)), HOURLY
)


@pytest.mark.parametrize(
    ("y", "told"),
    [
        (WEEKLY, "['1D', '7D']"),
        (WEEKLY.tz_localize("Asia/Tokyo"), "['1D', '7D']"),
        (WEEKLY.to_period(), "[24, 168]"),
        (pd.concat({k: WEEKLY.to_frame("y") for k in "ab"}), "['1D', '7D']"),
    ],
)
def test_a_week_that_was_missed_is_told_with_its_seasons(y: Any, told: str) -> None:
    topics = StructuralForecaster(seasons=None).fit(y).summary(2)
    assert topics["to try"].startswith(
        "hour of the week was better on these rows: try StructuralForecaster("
        f"seasons={told}), which keeps them"
    )


CLOCK = {
    "seasonal naive (1 d)": 1.0 * DAY,
    "7 d before": 7.0 * DAY,
    "365.2 d before": 365.2425 * DAY,
}


@pytest.mark.parametrize(
    ("best", "found", "told"),
    [
        ("7 d before", ["1 d"], "try StructuralForecaster(seasons=['1D', '7D']), wh"),
        ("hour of the week", ["7 d"], "try StructuralForecaster(seasons=['1D', '7D'])"),
        ("7 d before", [], "try StructuralForecaster(seasons=['1D', '7D']), which ke"),
        ("365.2 d before", ["7 d"], "try StructuralForecaster(seasons=['7D', '365.24"),
        ("7 d before", ["1 d", "7 d"], "more history, X for what drives y, or seas"),
        ("7 d before", ["day"], "try StructuralForecaster(seasons=['1D', '7D']), whi"),
        ("hour of the week", ["day", "day of Sat, Sun"], "more history, X for what"),
        ("last value", ["1 d"], "seasons=None leaves out what was found"),
        ("last value", [], "more history, X for what drives y, or seasons=[...]"),
    ],
)
def test_the_remedy_is_of_what_was_better(
    best: str, found: list[str], told: str
) -> None:
    names = (x if x.startswith("day") else f"season of {x}" for x in found)
    parts = {"trend", *names}
    assert _remedy(best, CLOCK, parts, STAMPS).startswith(told)


@pytest.mark.parametrize(
    ("period", "like", "told"),
    [
        (12.4206 * 3600e9, STAMPS, "'44714.16s'"),
        (365.25 * DAY, STAMPS - STAMPS[0], "'365.25D'"),
        (12.0, pd.period_range("2020", periods=3, freq="3M"), "4"),
        (7.5, pd.RangeIndex(9), "7.5"),
    ],
)
def test_a_season_is_told_as_it_can_be_passed(
    period: float, like: pd.Index, told: str
) -> None:
    assert _as_given(period, like) == told


@pytest.mark.parametrize(("seconds", "told"), [(0.0123, "0.012"), (124.4, "124")])
def test_seconds_are_told_without_an_exponent(seconds: float, told: str) -> None:
    forecaster = StructuralForecaster(seasons=None).fit(DAILY[:50])
    forecaster._fit_seconds = seconds
    assert forecaster.summary(0)["time"] == f"fit took {told} s"


def test_growth_that_has_ended_is_told() -> None:
    growth = pd.Series(2.0 * np.arange(150).clip(max=140))
    growth += 6 * np.random.default_rng(1).standard_normal(150)
    for y, is_told in ((growth, True), (growth[:140], False)):
        advice = StructuralForecaster().fit(y).summary()["to try"]
        assert ("rows lie on one side" in advice) is is_told
    with pytest.raises(ValueError, match=r"origins must be a whole number.* got 'all'"):
        StructuralForecaster().fit(y).summary("all")


def test_what_the_network_adds_is_told() -> None:
    few = LatentODELSTMForecaster(random_state=0).fit(DAILY[:100])
    assert "the structural model alone" in few.summary(0)["network"]
    assert "seasonal naive" in few.summary(2)["held out"]
    whole = tiny(LatentODELSTMForecaster, model="paper").fit(DAILY[:60])
    assert whole.summary(0)["network"] == (
        "is the whole forecast; it learned to look 5 h ahead of a series' last row,\n"
        "and 5 h back from its first"
    )


def test_a_forecaster_that_was_loaded_has_a_summary(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    StructuralForecaster().fit(DAILY).save_weights(tmp_path / "file")
    loaded = StructuralForecaster.load_weights(tmp_path / "file")
    topics = loaded.summary(origins=1)
    assert "time" not in topics
    assert "held out" in topics


def test_a_short_series_says_that_nothing_was_held_out() -> None:
    topics = StructuralForecaster().fit(pd.Series([1.0, 2.0, 4.0])).summary()
    assert topics["held out"] == "3 rows are too few to hold some out"
