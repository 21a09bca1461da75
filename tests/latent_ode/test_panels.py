"""On straight lines of its own level, each series of a panel is answered with its own.

Levels lie a thousand apart: a value of another series is no near miss.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sktime.split import ExpandingWindowSplitter

from sklode import AbsoluteHorizon
from tests.lines import line, straight

HOUR = pd.Timedelta("1h")
APART = 1000


def dates(start: str, n: int, freq: Any = "h") -> pd.DatetimeIndex:
    return pd.date_range(start, periods=n, freq=freq)


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
    answer: Any,
    stamps: dict[Any, pd.Index],
    keys: Any = STAMPS,
    step: Any = HOUR,
    near: float = 0.2,
) -> None:
    """Assert that a panel has these stamps, and each series' own line there."""
    expected = lines(rows(stamps, answer.index.names), keys, step)
    pd.testing.assert_index_equal(answer.index, expected.index, exact="equiv")
    values = np.asarray(answer, dtype=float).reshape(len(expected), -1)
    for column in values.T:
        np.testing.assert_allclose(column, expected["y"], rtol=0, atol=near)


def take(stamps: dict[Any, pd.Index], *places: int) -> dict[Any, pd.Index]:
    return {key: index[list(places)] for key, index in stamps.items()}


def fitted() -> Any:
    return straight().fit(panel())


def test_steps_count_from_each_series_own_end() -> None:
    forecaster = fitted()
    assert_on_lines(forecaster.predict([1, 2, 6]), take(NEXT, 0, 1, 5))
    own = {key: index[-1:].append(NEXT[key][:1]) for key, index in STAMPS.items()}
    assert_on_lines(forecaster.predict([0, 1]), own)
    later = {key: index[-1:] + 2 * HOUR for key, index in STAMPS.items()}
    assert_on_lines(forecaster.predict(pd.to_timedelta(["2h"])), later)
    assert_on_lines(straight().fit(panel(), fh=[2]).predict(), take(NEXT, 1))


def test_stamps_are_asked_of_every_series() -> None:
    forecaster = fitted()
    queries = minutes("2021-01-31 23:45", 45 * 24 * 60 // 3, 30 * 60, 11 * 24 * 60)
    far = dict.fromkeys(STAMPS, queries)
    assert_on_lines(forecaster.predict(queries), far, near=10.0)
    before = {key: index[:1] - HOUR for key, index in STAMPS.items()}
    assert_on_lines(forecaster.predict_at(rows(before)), before)
    backward = rows(STAMPS)[::-1]
    answer = forecaster.predict_at(backward)
    pd.testing.assert_index_equal(answer.index, backward)
    assert_on_lines(answer[::-1], STAMPS)


def test_rows_may_be_interleaved() -> None:
    by_time = panel().sort_index(level="time", sort_remaining=False)
    forecaster = straight().fit(by_time)
    order = list(dict.fromkeys(by_time.index.get_level_values(0)))
    assert order != list(STAMPS)
    answer = forecaster.predict([1, 2])
    assert_on_lines(answer, {key: NEXT[key][:2] for key in order})
    new = panel(take(NEXT, 0, 1)).sort_index(level="time", sort_remaining=False)
    forecaster.update(new, update_params=False)
    assert_on_lines(forecaster.predict([1]), {key: NEXT[key][2:3] for key in order})


def test_a_series_of_one_or_two_stamps_takes_the_step_of_the_longest() -> None:
    few = {
        "long": STAMPS["long"],
        "short": STAMPS["short"][:1],
        "uneven": minutes("2021-03-05", 300),
    }
    answer = straight().fit(panel(few)).predict([1, 2, 3])
    own = {key: index[-1] + HOUR * np.arange(1, 4) for key, index in few.items()}
    expected = rows({key: pd.DatetimeIndex(index) for key, index in own.items()})
    pd.testing.assert_index_equal(answer.index, expected, exact="equiv")


def test_every_series_of_a_hierarchy_is_answered_with_its_own() -> None:
    keys = [("north", 1), ("north", 2), ("south", 1), ("south", 2)]
    names = ["region", "site", "time"]
    stamps = dict(zip(keys, STAMPS.values(), strict=True))
    ahead = dict(zip(keys, NEXT.values(), strict=True))
    y = lines(rows(stamps, names), keys)
    is_early = y.index.get_level_values("time") < "2021-03-03 08:00"
    forecaster = straight().fit(y[is_early])
    forecaster.update(y.loc[["south"]].tail(30), update_params=False)
    assert_on_lines(forecaster.predict([1, 2]), take(ahead, 0, 1), keys)
    assert_on_lines(forecaster.predict_at(y.index), stamps, keys)
    assert forecaster.predict([1]).index.names == names


@pytest.mark.parametrize("update_params", [True, False])
def test_an_update_of_some_series_moves_only_their_ends(update_params: bool) -> None:
    forecaster = fitted()
    new = {"uneven": NEXT["uneven"][:2], "long": NEXT["long"][:3]}
    forecaster.update(panel(new), update_params=update_params)
    ends = {"long": 3, "short": 0, "uneven": 2, "slow": 0}
    own = {key: NEXT[key][k : k + 2] for key, k in ends.items()}
    assert_on_lines(forecaster.predict([1, 2]), own)
    answer = forecaster.update_predict_single(panel({"slow": NEXT["slow"][:2]}), [1])
    own = {key: NEXT[key][k : k + 1] for key, k in {**ends, "slow": 2}.items()}
    assert_on_lines(answer, own)


def test_a_new_series_of_an_update_is_answered_with_its_own() -> None:
    known = ["long", "short"]
    forecaster = straight().fit(panel({key: STAMPS[key] for key in known}))
    forecaster.update(panel({"slow": STAMPS["slow"]}), update_params=False)
    own = {key: NEXT[key][:2] for key in [*known, "slow"]}
    assert_on_lines(forecaster.predict([1, 2]), own)
    # further rows of a new series, with another new series before it
    mixed = {"uneven": STAMPS["uneven"], "slow": NEXT["slow"][:1]}
    forecaster.update(panel(mixed), update_params=False)
    ends = {"long": 0, "short": 0, "slow": 1, "uneven": 0}
    own = {key: NEXT[key][k : k + 1] for key, k in ends.items()}
    assert_on_lines(forecaster.predict([1]), own)


def test_moving_forward_asks_each_series_after_each_cut() -> None:
    same = dict.fromkeys(["long", "short"], STAMPS["long"])
    ahead = dict.fromkeys(["long", "short"], NEXT["long"])
    steps: Any = ExpandingWindowSplitter(fh=[1, 2], initial_window=2, step_length=2)
    for cv in (steps, AbsoluteHorizon(steps)):
        forecaster = straight().fit(panel(same))
        for reset, end in ((True, 0), (False, 4)):
            forecasts = forecaster.update_predict(panel(ahead), cv, None, False, reset)
            for k, seen in enumerate([2, 4]):
                answer = forecasts.iloc[:, [k]].dropna()
                assert_on_lines(answer, take(ahead, seen, seen + 1))
            assert_on_lines(forecaster.predict([1]), take(ahead, end))
