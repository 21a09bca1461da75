"""What `summary` tells of a fitted forecaster."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import LatentODELSTMForecaster, StructuralForecaster
from sklode.data.ticks import DAY
from sklode.forecasters.advice import _as_given, _changes, is_better, remedy_of
from sklode.forecasters.summary import _of_intervals
from sklode.hybrid.model import NetworkWeights
from tests.cases import slow
from tests.series import tiny

HOURS = np.sort(np.random.default_rng(0).choice(24 * 30, 300, replace=False))
YEARS = range(2021, 2024)
STAMPS = pd.Timestamp("2024-01-01") + pd.to_timedelta(HOURS, unit="h")
WAVE = pd.Series(
    10 + 4 * np.random.default_rng(2).normal(size=300).cumsum() / 12, STAMPS
)
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
        found[1].strip(): float(found[2])
        for line in topics["held out"].splitlines()[2:]
        if (found := re.match(r"(.*?) +([\d.]+)[ ;]", line))
    }
    names = "seasonal naive (1 d)", "7 d before", "hour of the week"
    simple = "last value", "drift", *names
    assert tuple(errors) == ("forecaster", *simple, "interval score")
    own, last, _, seasonal, before, mean, _ = errors.values()
    assert own < min(mean, seasonal) < max(mean, seasonal, before) < last
    assert "held out" not in forecaster.summary(origins=0)


RIVALS = "forecaster", "last value", "drift"


def test_columns_of_X_that_do_nothing_are_told() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(120, 2)), columns=["price", "rain"])
    X.index = pd.date_range("2024-01-01", periods=120)
    X["open"] = rng.choice(["no", "yes"], 120)
    y = 10 + 3 * X["price"] + 4 * (X["open"] == "yes") + rng.normal(size=120)
    structure = StructuralForecaster().fit(y, X).summary(origins=0)["structure"]
    assert structure.endswith("\nno effect was found of rain")


@pytest.mark.parametrize(
    ("y", "make", "n_fits"),
    [
        (DAILY.iloc[:60], StructuralForecaster, 3),
        (DAILY.iloc[:60], tiny, 2),
        slow(pd.Series(np.arange(1300.0) % 7, name="y"), StructuralForecaster, 2),
        (pd.Series(np.arange(4000.0) % 7, name="y"), StructuralForecaster, 1),
        slow(
            pd.concat({k: DAILY[k : k + 40] for k in range(3)}).to_frame("y"),
            StructuralForecaster,
            3,
        ),
    ],
    ids=["short", "a network", "long", "longest", "panel"],
)
def test_a_summary_fits_at_each_origin_of_few_rows_and_else_takes_up_those_between(
    y: Any, make: Any, n_fits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = pd.DataFrame({"u": np.arange(len(y)) % 5.0}, y.index)
    forecaster = make().fit(y, X)
    lengths, whole = [], type(forecaster)._fit

    def counted(self: Any, y: Any, X: Any = None, fh: Any = None) -> Any:
        lengths.append(len(y))
        return whole(self, y, X, fh)

    monkeypatch.setattr(type(forecaster), "_fit", counted)
    held_out = forecaster.summary(origins=3)["held out"]
    assert "from 3 origins" in held_out
    assert len(lengths) == n_fits
    assert sorted({*lengths}) == lengths


@pytest.mark.slow
def test_values_without_a_logarithm_between_origins_have_the_form_found_anew() -> None:
    rng, n = np.random.default_rng(0), 1500  # so many rows are fitted at some origins
    y = pd.Series(np.exp(np.arange(n) / 300 + 0.1 * rng.normal(size=n)), name="y")
    y.iloc[-40:-37] = 0
    held_out = StructuralForecaster().fit(y).summary(horizon=7)["held out"]
    errors = {
        name: float(re.findall(rf"{name} +(\S+)", held_out)[0]) for name in RIVALS
    }
    assert errors["forecaster"] < min(errors["last value"], errors["drift"])


def test_a_summary_is_a_table_in_a_notebook() -> None:
    html = (
        StructuralForecaster().fit(DAILY[:100].rename("a<b")).summary(0)._repr_html_()
    )
    assert "<th>structure</th>" in html
    assert "a&lt;b" in html


@pytest.mark.slow
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
        slow(WEEKLY.tz_localize("Asia/Tokyo"), "['1D', '7D']"),
        slow(WEEKLY.to_period(), "[24.0, 168.0]"),
        slow(pd.concat({k: WEEKLY.to_frame("y") for k in "ab"}), "['1D', '7D']"),
    ],
)
def test_a_week_that_was_missed_is_told_with_its_seasons(y: Any, told: str) -> None:
    topics = StructuralForecaster(seasons=None).fit(y).summary(2)
    assert re.match(
        r"(hour of the week|mean of 4 weeks) was better on these rows: "
        rf"StructuralForecaster\(seasons={re.escape(told)}\) had an MAE of 0\.\d",
        topics["to try"],
    )


CLOCK = {
    "seasonal naive": 1.0 * DAY,
    "7 d before": 7.0 * DAY,
    "365.2 d before": 365.2425 * DAY,
    "mean of 4 weeks": 7.0 * DAY,
    "hour of the week": 7.0 * DAY,
}
WEEK, YEAR = ("seasons", ["1D", "7D"]), ("seasons", ["7D", "365.2425D"])
NONE = ("seasons", None)


@pytest.mark.parametrize(
    ("best", "found", "told"),
    [
        ("7 d before", ["1 d"], [WEEK]),
        ("hour of the week", ["7 d"], [WEEK]),
        ("mean of 4 weeks", [], [WEEK]),
        ("365.2 d before", ["7 d"], [YEAR]),
        ("7 d before", ["1 d", "7 d"], []),
        ("7 d before", ["day"], [WEEK]),
        ("hour of the week", ["day", "day of Sat, Sun"], []),
        ("last value", ["1 d"], [NONE]),
        ("drift", [], []),
    ],
)
def test_what_is_tried_is_of_what_was_better(
    best: str, found: list[str], told: list[tuple[str, Any]]
) -> None:
    names = [x if x.startswith("day") else f"season of {x}" for x in found]
    parts = pd.DataFrame(
        {"link": "identity"},
        pd.MultiIndex.from_product([["y"], ["trend", *names]]),
    ).rename_axis(["channel", "part"])
    settings = StructuralForecaster().get_params()
    history = StructuralForecaster(seasons=None).fit(DAILY[:50])._history
    assert _changes(best, CLOCK, settings, history, parts) == told
    # a logarithm may have been wrong, whatever was better, unless it was asked for
    logarithms = parts.assign(link="logarithm")
    tried = _changes(best, CLOCK, settings, history, logarithms)
    assert ("logarithm", False) in tried
    tried = _changes(best, CLOCK, {**settings, "logarithm": True}, history, logarithms)
    assert ("logarithm", False) not in tried
    # a network has none of these parameters
    assert not _changes(best, CLOCK, {"lr": 0.01}, history, parts)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (WAVE.clip(7.5), (7.5, None)),
        (WAVE.clip(None, 11), (None, 11.0)),
        (WAVE.clip(7.5, 11), (7.5, 11.0)),
        ((WAVE - 9).clip(0, 2), (0.0, 2.0)),
        ((WAVE - 9).clip(0), None),
        (WAVE, None),
        (WAVE.round(), None),
        (WAVE.round() * 0 + 3, None),
    ],
    ids=["low", "high", "both", "zero and high", "zero", "none", "whole", "constant"],
)
def test_an_end_at_which_many_values_lie_is_tried_as_a_bound(
    values: pd.Series, told: Any
) -> None:
    forecaster = StructuralForecaster(seasons=None).fit(values)
    parts, settings = forecaster.components_, StructuralForecaster().get_params()
    tried = dict(_changes("drift", {}, settings, forecaster._history, parts))
    assert tried.get("bounds") == told
    settings["bounds"] = (0, 100)
    tried = dict(_changes("drift", {}, settings, forecaster._history, parts))
    assert "bounds" not in tried


def remedy(judged: StructuralForecaster, y: pd.Series, gains: list[float]) -> str:
    """Return what is told of a forecaster where others gain so much each."""
    forecaster, own = judged.clone().fit(y), pd.Series([2.0, 2.1])
    each = iter(gains)
    return remedy_of(
        "7 d before",
        CLOCK,
        judged,
        own=own,
        history=forecaster._history,
        parts=forecaster.components_,
        errors_by=lambda other: own - next(each),
    )


def test_the_first_setting_that_helps_is_told_or_that_none_does() -> None:
    y, plain = DAILY[:60], StructuralForecaster(seasons=None)
    assert remedy(plain, y, [0.5]) == (
        "StructuralForecaster(seasons=['1D', '7D']) had an MAE of 1.55"
    )
    text = "more history, or X for what drives y, may help"
    assert remedy(plain, y, [-0.1]) == f"seasons=['1D', '7D'] did not help; {text}"
    clipped = y.clip(None, 10.8)
    tried = "seasons=['1D', '7D'] or bounds=(None, 10.8) did not help; "
    assert remedy(plain, clipped, [-0.1, -0.1]) == tried + text
    assert "bounds=(None, 10.8)) had an MAE of" in remedy(plain, clipped, [-0.1, 0.1])


@pytest.mark.slow
def test_holidays_that_stand_out_are_told_with_their_country() -> None:
    holidays = pytest.importorskip("holidays")
    days = pd.date_range("2021-01-04", periods=900)
    is_free = days.isin(pd.to_datetime([*holidays.country_holidays("AT", years=YEARS)]))
    noise = np.random.default_rng(0).standard_normal(900)
    y = pd.Series(100 + 10 * (days.dayofweek < 5) + noise - 40 * is_free, days)
    plain = StructuralForecaster(seasons=["7D"])
    told = "days of holidays stand out, as those of 'AT' do: holidays='AT' of Struct"
    assert told in remedy(plain, y, [0.0])
    assert "stand out" not in remedy(plain, y + 40 * is_free, [0.0])
    # they are not told of who knows them
    assert "stand out" not in remedy(plain.set_params(holidays="AT"), y, [0.0])


def test_a_rival_is_better_beyond_the_standard_error_of_the_difference() -> None:
    own = pd.Series([2.0, 3.0, 4.0, 3.0])
    gains = np.array([0.5, 0.1, 0.3, 0.3])  # 0.3, with an error of 0.08
    assert is_better(own - gains, own)
    assert not is_better(own - gains + 0.25, own)
    assert is_better(own[:1] - 0.1, own[:1])


@pytest.mark.parametrize(
    ("width", "empirical", "coverage", "told"),
    [
        (0.5, 7.0, 1.0, "too wide: 0.5 of their width would have held 90 %"),
        (2.0, 7.0, 0.7, "too narrow: 2 of their width would have held 90 %"),
        (0.9, 7.0, 0.95, ""),
        (0.5, 10.5, 1.0, ""),
        (np.nan, np.nan, 0.6, "too narrow: plot_backtest"),
    ],
)
def test_intervals_of_another_width_than_errors_had_are_told(
    width: float, empirical: float, coverage: float, told: str
) -> None:
    columns = {
        "interval": [10.0, 11.0, 9.0],
        "empirical": empirical + np.array([0.1, 1.0, -0.9]),
        "width": width,
        "coverage": coverage,
    }
    assert told in "".join(_of_intervals(pd.DataFrame(columns)))
    assert bool(told) == bool(_of_intervals(pd.DataFrame(columns)))


@pytest.mark.parametrize(
    ("period", "like", "told"),
    [
        (12.4206 * 3600e9, STAMPS, "44714.16s"),
        (365.25 * DAY, STAMPS - STAMPS[0], "365.25D"),
        (12.0, pd.period_range("2020", periods=3, freq="3M"), 4.0),
        (7.5, pd.RangeIndex(9), 7.5),
    ],
)
def test_a_season_is_told_as_it_can_be_passed(
    period: float, like: pd.Index, told: str | float
) -> None:
    assert _as_given(period, like) == told


@pytest.mark.parametrize(("seconds", "told"), [(0.0123, "0.012"), (124.4, "124")])
def test_seconds_are_told_without_an_exponent(seconds: float, told: str) -> None:
    forecaster = StructuralForecaster(seasons=None).fit(DAILY[:50])
    forecaster._fit_seconds = seconds
    assert forecaster.summary(0)["time"] == f"fit took {told} s"


@pytest.mark.slow
def test_growth_that_has_ended_is_told() -> None:
    growth = pd.Series(2.0 * np.arange(150).clip(max=140))
    growth += 6 * np.random.default_rng(1).standard_normal(150)
    for y, is_told in ((growth, True), (growth[:140], False)):
        advice = StructuralForecaster().fit(y).summary()["to try"]
        assert ("rows lie on one side" in advice) is is_told


@pytest.mark.parametrize("origins", ["all", -1, DAILY])
def test_a_number_of_origins_is_none_or_more(origins: Any) -> None:
    told = "origins must be a whole number of at least 0; got "
    with pytest.raises(ValueError, match=told):
        StructuralForecaster().fit(DAILY[:20]).summary(origins)


def test_what_the_network_adds_is_told() -> None:
    few = LatentODELSTMForecaster(random_state=0).fit(DAILY[:100])
    assert "the structural model alone" in few.summary(0)["network"]
    assert "seasonal naive" in few.summary(2)["held out"]
    whole = tiny(LatentODELSTMForecaster, model="paper").fit(DAILY[:60])
    assert whole.summary(0)["network"] == (
        "is the whole forecast; it learned to look 5 h ahead of a series' last row,\n"
        "and 5 h back from its first"
    )


@pytest.mark.parametrize(
    ("shares", "told"),
    [
        ([0.25, 0.75], "0.5 on average (0.25 of y0, 0.75 of y1)"),
        slow(np.linspace(0, 1, 11), "0.5 on average (0 of y0 to 1 of y10)"),
        ([0.5], "0.5 on average,"),
    ],
    ids=["few", "many", "one"],
)
def test_what_the_network_adds_is_told_by_column(shares: Any, told: str) -> None:
    columns = [f"y{k}" for k in range(len(shares))]
    y = pd.DataFrame({name: DAILY[:60].to_numpy() for name in columns}, STAMPS[:60])
    forecaster = tiny(LatentODELSTMForecaster, model="hybrid", guard=False).fit(y)
    even = NetworkWeights.even(1.0, len(shares), 5.0)
    weights = replace(even, weights=np.array(shares)[None])
    forecaster._model = replace(forecaster._model, weights=weights)
    assert told in forecaster.summary(0)["network"]
    assert "up to 10 h after a series' last row" in forecaster.summary(0)["network"]


def test_a_forecaster_that_was_loaded_has_a_summary(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    StructuralForecaster().fit(DAILY[:100]).save_weights(tmp_path / "file")
    loaded = StructuralForecaster.load_weights(tmp_path / "file")
    topics = loaded.summary(origins=1)
    assert "time" not in topics
    assert "held out" in topics


def test_a_short_series_says_that_nothing_was_held_out() -> None:
    topics = StructuralForecaster().fit(pd.Series([1.0, 2.0, 4.0])).summary()
    assert topics["held out"] == "3 rows are too few to hold some out"
