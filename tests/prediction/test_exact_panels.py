"""On straight lines of its own level, each series of a panel is answered with its own.

Levels lie a thousand apart: a value of another series is no near miss.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sktime.datatypes import convert_to
from sktime.forecasting.base import ForecastingHorizon
from sktime.split import ExpandingWindowSplitter

from sklode import AbsoluteHorizon
from sklode.data.errors import HistoryWarning
from tests.lines import (
    BERLIN,
    KINDS,
    NOISE,
    SLOPE,
    SPREAD,
    TOLERANCE,
    assert_on_line,
    learned,
    line,
    of_kinds,
    on_line,
)
from tests.series import FORECASTERS

HOUR = pd.Timedelta("1h")
APART = 1000


def dates(start: str, n: int, freq: Any = "h", **options: Any) -> pd.DatetimeIndex:
    return pd.date_range(start, periods=n, freq=freq, **options)


def minutes(start: str, *gaps: int) -> pd.DatetimeIndex:
    since = pd.to_timedelta(np.cumsum([0, *gaps]), unit="min")
    return pd.DatetimeIndex(pd.Timestamp(start) + since)


STAMPS = {
    "long": dates("2021-03-01", 30),
    "short": dates("2021-02-20 07:30", 13),
    "uneven": minutes("2021-03-03", 60, 40, 95, 60, 60, 20, 130, 60, 45, 60, 60, 75),
    "slow": dates("2021-02-01", 9, "6h"),
}

NEXT = {
    "long": dates("2021-03-02 06:00", 6),
    "short": dates("2021-02-20 20:30", 6),
    "uneven": minutes("2021-03-03 13:45", *[60] * 5),
    "slow": dates("2021-02-03 06:00", 6, "6h"),
}
"""What the steps 1 to 6 stand for: each from its own end, of its own length."""


def rows(stamps: dict[Any, pd.Index], names: Any = ("series", "time")) -> pd.MultiIndex:
    """Return the index of a panel, series by series."""
    tuples = [
        (*(key if isinstance(key, tuple) else (key,)), stamp)
        for key, index in stamps.items()
        for stamp in index
    ]
    return pd.MultiIndex.from_tuples(tuples, names=names)


def lines(index: pd.MultiIndex, keys: Any, step: Any = HOUR) -> pd.DataFrame:
    """Return each series' own line; ``keys`` are the series in order of their level."""
    level = {key: APART * k for k, key in enumerate(keys)}
    own = [level[row[:-1] if len(row) > 2 else row[0]] for row in index]
    values = line(index.get_level_values(-1), step) + own
    return pd.DataFrame({"y": values}, index)


def panel(stamps: dict[Any, pd.Index] = STAMPS) -> pd.DataFrame:
    return lines(rows(stamps), STAMPS)


def assert_on_lines(
    answer: Any, stamps: dict[Any, pd.Index], keys: Any = STAMPS, step: Any = HOUR
) -> None:
    """Assert that a panel has these stamps, and each series' own line there."""
    expected = lines(rows(stamps, answer.index.names), keys, step)
    pd.testing.assert_index_equal(answer.index, expected.index, exact="equiv")
    values = np.asarray(answer, dtype=float).reshape(len(expected), -1)
    for column in values.T:
        np.testing.assert_allclose(column, expected["y"], rtol=0, atol=TOLERANCE)


def take(stamps: dict[Any, pd.Index], *places: int) -> dict[Any, pd.Index]:
    return {key: index[list(places)] for key, index in stamps.items()}


def fitted(kind: Any = FORECASTERS[1], **settings: Any) -> Any:
    return learned(panel(), kind, **settings).fit(panel())


def test_the_value_of_another_series_is_noticed() -> None:
    answer = fitted().predict([1])
    assert_on_lines(answer, take(NEXT, 0))
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_on_lines(answer.set_axis(answer.index), take(NEXT, 0), [*STAMPS][::-1])
    with pytest.raises(AssertionError, match="different"):
        assert_on_lines(answer, take(NEXT, 1))


@pytest.mark.parametrize("kind", FORECASTERS)
def test_steps_count_from_each_series_own_end(kind: type) -> None:
    forecaster = fitted(kind)
    assert forecaster.time_unit_ == HOUR
    assert_on_lines(forecaster.predict([1, 2, 6]), take(NEXT, 0, 1, 5))
    forecast = forecaster.predict([0, 1])
    own = {key: index[-1:].append(NEXT[key][:1]) for key, index in STAMPS.items()}
    assert_on_lines(forecast, own)


@pytest.mark.parametrize(
    "fh",
    [pd.to_timedelta(["2h"]), 2 * HOUR],
    ids=["durations", "duration"],
)
def test_durations_count_from_each_series_own_end(fh: Any) -> None:
    own = {key: index[-1:] + 2 * HOUR for key, index in STAMPS.items()}
    assert_on_lines(fitted().predict(fh), own)


def test_stamps_are_asked_of_every_series() -> None:
    forecaster = fitted()
    asked = minutes("2021-01-31 23:45", 45 * 24 * 60 // 3, 30 * 60, 11 * 24 * 60)
    every = dict.fromkeys(STAMPS, asked)
    assert_on_lines(forecaster.predict(asked), every)
    absolute = ForecastingHorizon(asked, is_relative=False)
    assert_on_lines(forecaster.predict(absolute), every)


def test_every_stamp_of_the_series_is_answered() -> None:
    forecaster = fitted()
    assert_on_lines(forecaster.predict_at(rows(STAMPS)), STAMPS)
    before = {key: index[:1] - HOUR for key, index in STAMPS.items()}
    assert_on_lines(forecaster.predict_at(rows(before)), before)
    backward = rows(STAMPS)[::-1]
    answer = forecaster.predict_at(backward)
    pd.testing.assert_index_equal(answer.index, backward)
    assert_on_lines(answer[::-1], STAMPS)


def test_a_horizon_given_to_fit_counts_from_each_series_own_end() -> None:
    forecaster = learned(panel())
    assert_on_lines(forecaster.fit(panel(), fh=[2]).predict(), take(NEXT, 1))
    assert_on_lines(forecaster.fit_predict(panel(), fh=[1, 3]), take(NEXT, 0, 2))


def test_intervals_and_sample_paths_lie_around_each_series_own_line() -> None:
    forecaster = fitted(n_samples=400)
    own = take(NEXT, 0, 3)
    assert_on_lines(forecaster.predict_quantiles([1, 4], alpha=[0.5]), own)
    interval = forecaster.predict_interval([1, 4], coverage=0.8)["y"][0.8]
    assert_on_lines(interval.mean(axis=1), own)
    assert_on_lines(forecaster.predict_proba([1, 4]).mean(), own)
    variance = forecaster.predict_var([1, 4])
    pd.testing.assert_index_equal(variance.index, rows(own), exact="equiv")
    np.testing.assert_allclose(variance, SLOPE**2 * (SPREAD**2 + NOISE**2), rtol=0.2)
    paths = forecaster.sample([1, 4], n_samples=300)
    centre = paths.groupby(level=[1, 2], sort=False).mean()
    assert_on_lines(centre, own)


def test_residuals_and_scores_are_what_the_observations_are_off_by() -> None:
    forecaster = fitted()
    for stamps in (STAMPS, take(NEXT, 0, 4), {"slow": NEXT["slow"]}):
        y = panel(stamps) + 5
        residuals = forecaster.predict_residuals(y)
        pd.testing.assert_index_equal(residuals.index, y.index)
        np.testing.assert_allclose(residuals, 5, atol=TOLERANCE)
        assert forecaster.score(y) == pytest.approx(-5, abs=TOLERANCE)
    residuals = forecaster.predict_residuals()
    pd.testing.assert_index_equal(residuals.index, panel().index, exact="equiv")
    np.testing.assert_allclose(residuals, 0, atol=TOLERANCE)


@pytest.mark.parametrize("mtype", ["df-list", "nested_univ"])
def test_residuals_of_a_panel_in_another_format_keep_the_format(mtype: str) -> None:
    index = rows(dict.fromkeys(range(3), pd.RangeIndex(20)))
    y = lines(index, range(3), 1)
    given = convert_to(y, mtype, as_scitype="Panel")
    more = convert_to(y + 5, mtype, as_scitype="Panel")
    residuals = learned(y).fit(given).predict_residuals(more)
    assert type(residuals) is type(more)
    values = convert_to(residuals, "pd-multiindex", as_scitype="Panel")
    np.testing.assert_allclose(values, 5, atol=TOLERANCE)


def test_rows_may_be_interleaved() -> None:
    by_time = panel().sort_index(level="time", sort_remaining=False)
    forecaster = learned(panel()).fit(by_time)
    answer = forecaster.predict([1, 2])
    order = list(dict.fromkeys(by_time.index.get_level_values(0)))
    assert order != list(STAMPS)
    assert_on_lines(answer, {key: NEXT[key][:2] for key in order})
    residuals = forecaster.predict_residuals(by_time + 5)
    pd.testing.assert_index_equal(residuals.index, by_time.index)
    np.testing.assert_allclose(residuals, 5, atol=TOLERANCE)
    new = panel(take(NEXT, 0, 1)).sort_index(level="time", sort_remaining=False)
    forecaster.update(new, update_params=False)
    assert_on_lines(forecaster.predict([1]), {key: NEXT[key][2:3] for key in order})


def test_a_series_of_one_or_two_stamps_takes_the_step_of_the_longest() -> None:
    few = {
        "long": STAMPS["long"],
        "short": STAMPS["short"][:1],
        "uneven": minutes("2021-03-05", 300),
    }
    y = panel(few)
    forecaster = learned(panel()).fit(y)
    hourly = {key: index[-1] + HOUR * np.arange(1, 4) for key, index in few.items()}
    own = {key: pd.DatetimeIndex(index) for key, index in hourly.items()}
    assert_on_lines(forecaster.predict([1, 2, 3]), own)


def test_every_series_of_a_hierarchy_is_answered_with_its_own() -> None:
    keys = [("north", 1), ("north", 2), ("south", 1), ("south", 2)]
    names = ["region", "site", "time"]
    stamps = dict(zip(keys, STAMPS.values(), strict=True))
    ahead = dict(zip(keys, NEXT.values(), strict=True))
    y = lines(rows(stamps, names), keys)
    forecaster = learned(y).fit(
        y[y.index.get_level_values("time") < "2021-03-03 08:00"]
    )
    forecaster.update(y.loc[["south"]].tail(30), update_params=False)
    assert_on_lines(forecaster.predict([1, 2]), take(ahead, 0, 1), keys)
    assert_on_lines(forecaster.predict_at(y.index), stamps, keys)
    residuals = forecaster.predict_residuals(y + 5)
    np.testing.assert_allclose(residuals, 5, atol=TOLERANCE)
    assert forecaster.predict([1]).index.names == names


@pytest.mark.slow
@of_kinds()
def test_series_on_any_kind_of_index_step_from_their_own_end(name: str) -> None:
    kind = KINDS[name]
    keys, levels = ["late", "early"], ["series", "time"]
    y = lines(rows(dict.fromkeys(keys, kind.index), levels), keys, kind.step)
    forecaster = learned(on_line(kind.index, kind.step)).fit(y[:-2])
    answer = forecaster.predict([-1, 1, 2])
    own = {"late": kind.steps(-1, 1, 2)}
    assert_on_lines(answer.loc[["late"]], own, keys, kind.step)
    of_early = answer.loc["early"]["y"] - APART
    assert_on_line(of_early, of_early.index, kind.step)
    assert of_early.index[0] < kind.index[-3] < of_early.index[1]
    forecaster.update(y[-2:], update_params=False)
    both = dict.fromkeys(keys, kind.steps(-1, 1, 3))
    assert_on_lines(forecaster.predict([-1, 1, 3]), both, keys, kind.step)
    both = dict.fromkeys(keys, kind.before.append(kind.index).append(kind.steps(1)))
    answer = forecaster.predict_at(rows(both, levels))
    assert_on_lines(answer, both, keys, kind.step)


@pytest.mark.parametrize("update_params", [True, False])
def test_an_update_of_some_series_moves_only_their_ends(update_params: bool) -> None:
    forecaster = fitted()
    new = {"uneven": NEXT["uneven"][:2], "long": NEXT["long"][:3]}
    forecaster.update(panel(new), update_params=update_params)
    ends = {"long": 3, "short": 0, "uneven": 2, "slow": 0}
    own = {key: NEXT[key][k : k + 2] for key, k in ends.items()}
    assert_on_lines(forecaster.predict([1, 2]), own)
    assert_on_lines(forecaster.predict_at(rows(STAMPS)), STAMPS)


def test_late_and_revised_rows_of_a_panel_take_their_place() -> None:
    y = panel()
    late = y.index[[3, 20, 33, 40, 50, 60]]
    wrong = y.drop(late)
    revised = y.index[[29, 42, 55, 63]]
    wrong.loc[revised] += 10 * SLOPE
    forecaster = learned(y).fit(wrong)
    assert np.abs(forecaster.predict_residuals(y)).to_numpy().max() > SLOPE
    with pytest.warns(HistoryWarning, match="values of y .* 4 of them"):
        forecaster.update(y.loc[late.union(revised)], update_params=False)
    assert_on_lines(forecaster.predict([1, 2]), take(NEXT, 0, 1))
    residuals = forecaster.predict_residuals()
    pd.testing.assert_index_equal(residuals.index, y.index, exact="equiv")
    np.testing.assert_allclose(residuals, 0, atol=TOLERANCE)
    with pytest.warns(HistoryWarning, match="values of y .* 6 of them"):
        forecaster.update(y.loc[late] + 4 * SLOPE, update_params=False)
    bent = y.copy()
    bent.loc[late] += 4 * SLOPE
    expected = learned(y).fit(bent).predict([1, 2])
    pd.testing.assert_frame_equal(forecaster.predict([1, 2]), expected)


def test_a_new_series_of_an_update_is_answered_with_its_own() -> None:
    known = ["long", "short"]
    forecaster = learned(panel()).fit(panel({key: STAMPS[key] for key in known}))
    forecaster.update(panel({"slow": STAMPS["slow"]}), update_params=False)
    order = [*known, "slow"]
    assert_on_lines(forecaster.predict([1, 2]), {key: NEXT[key][:2] for key in order})
    # further rows of a new series, with another new series before it
    mixed = {"uneven": STAMPS["uneven"], "slow": NEXT["slow"][:1]}
    forecaster.update(panel(mixed), update_params=False)
    ends = {"long": 0, "short": 0, "slow": 1, "uneven": 0}
    own = {key: NEXT[key][k : k + 1] for key, k in ends.items()}
    assert_on_lines(forecaster.predict([1]), own)
    assert_on_lines(forecaster.predict_at(rows(STAMPS)), STAMPS)


def test_an_update_and_a_forecast_of_a_panel_count_from_the_new_ends() -> None:
    forecaster = fitted()
    new = panel(take(NEXT, 0, 1))
    answer = forecaster.update_predict_single(new, fh=[1, 3], update_params=False)
    assert_on_lines(answer, take(NEXT, 2, 4))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("hours into summer time", lambda stamps: stamps.tz_convert("UTC")),
        ("uneven, unit us", lambda stamps: stamps.as_unit("s")),
        ("uneven, unit s", lambda stamps: stamps.as_unit("ns")),
    ],
    ids=["time zone", "coarser unit", "finer unit"],
)
def test_a_new_series_may_have_another_time_zone_or_unit(
    name: str, change: Any
) -> None:
    kind, keys = KINDS[name], ["old", "new"]
    y = lines(rows(dict.fromkeys(keys, kind.index)), keys, kind.step)
    forecaster = learned(y).fit(y.loc[["old"]])
    later = lines(rows({"new": change(kind.index)}), keys, kind.step)
    forecaster.update(later, update_params=False)
    answer = forecaster.predict([-1, 1, 2])
    assert_on_lines(answer, dict.fromkeys(keys, kind.steps(-1, 1, 2)), keys, kind.step)
    # the old series' rows, in the other zone or unit
    more = lines(rows({"old": change(kind.steps(1, 2))}), keys, kind.step)
    forecaster.update(more, update_params=False)
    own = {"old": kind.steps(3), "new": kind.steps(1)}
    assert_on_lines(forecaster.predict([1]), own, keys, kind.step)


def test_moving_forward_asks_each_series_at_the_rows_of_the_folds() -> None:
    forecaster = fitted()
    cv = AbsoluteHorizon(
        ExpandingWindowSplitter(fh=[1, 2], initial_window=2, step_length=2)
    )
    forecasts = forecaster.update_predict(panel(NEXT), cv, update_params=False)
    for k, seen in enumerate([2, 4]):
        answer = forecasts.iloc[:, [k]].dropna().loc[[*STAMPS]]
        assert_on_lines(answer, take(NEXT, seen, seen + 1))


@pytest.mark.parametrize("absolute", [False, True])
def test_moving_forward_through_a_panel_asks_after_each_cut(absolute: bool) -> None:
    same = dict.fromkeys(["long", "short"], STAMPS["long"])
    ahead = dict.fromkeys(["long", "short"], NEXT["long"])
    forecaster = learned(panel()).fit(panel(same))
    cv: Any = ExpandingWindowSplitter(fh=[1, 2], initial_window=2, step_length=2)
    cv = AbsoluteHorizon(cv) if absolute else cv
    for reset, end in ((True, 0), (False, 4)):
        forecasts = forecaster.update_predict(panel(ahead), cv, None, False, reset)
        for k, seen in enumerate([2, 4]):
            answer = forecasts.iloc[:, [k]].dropna()
            assert_on_lines(answer, take(ahead, seen, seen + 1))
        assert_on_lines(forecaster.predict([1]), take(ahead, end))


def test_local_days_of_a_panel_step_over_a_change_of_clocks() -> None:
    spring, autumn = "2021-03-18 12:00", "2021-10-21 12:00"
    whole = {
        "spring": dates(spring, 14, "D", tz=BERLIN),
        "autumn": dates(autumn, 14, "D", tz=BERLIN),
    }
    day = pd.Timedelta("1D")
    y = lines(rows({key: index[:10] for key, index in whole.items()}), whole, day)
    forecaster = learned(y).fit(y)
    answer = forecaster.predict([-1, 1, 3])
    assert_on_lines(answer, take(whole, 8, 10, 12), whole, day)
