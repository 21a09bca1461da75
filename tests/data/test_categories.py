"""Categories in X: indicators of their levels, and what is no category."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import StructuralForecaster
from sklode.data.categories import ControlColumns
from tests.cases import slow
from tests.series import tiny

NAN = float("nan")
HOURS = pd.date_range("2024-01-01", periods=300, freq="h")
ADDS = {"sun": 0.0, "rain": -3.0, "snow": -6.0, "fog": 1.0}
WEATHER = pd.Series(np.random.default_rng(0).choice([*ADDS], 300), HOURS)
NOISE = np.random.default_rng(1).normal(size=300)
Y = 20 + WEATHER.map(ADDS).astype(float) + NOISE
SEEN, AHEAD = HOURS[:260], HOURS[260:]


def structural(**settings: Any) -> StructuralForecaster:
    return StructuralForecaster(seasons=None, random_state=0, **settings)


def table(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame(columns, HOURS[: len(next(iter(columns.values())))])


def test_a_category_is_an_indicator_of_each_level_and_two_levels_are_one() -> None:
    X = table(kind=["b", "a", "c", None], on=[True, False, True, True], u=[1, 2, 3, 4])
    X["sale"] = pd.Categorical(["no", "yes", "no", "no"], ["no", "yes", "never"])
    columns = ControlColumns.of(X)
    assert columns.levels == {"kind": ("a", "b", "c"), "sale": ("no", "yes")}
    assert columns.blocks == [(0, 3), (3, 1), (4, 1), (5, 1)]
    found = columns.read(X)
    assert [*found] == ["kind = a", "kind = b", "kind = c", "on", "u", "sale = yes"]
    expected = [[0, 1, 0, 1, 1, 0], [1, 0, 0, 0, 2, 1], [0, 0, 1, 1, 3, 0]]
    np.testing.assert_array_equal(found[:3], expected)
    np.testing.assert_array_equal(found[3:], [[NAN, NAN, NAN, 1, 4, 0]])


@pytest.mark.parametrize("dtype", ["object", "category", slow("string"), slow("str")])
def test_a_category_is_found_in_any_dtype(dtype: str) -> None:
    X = table(weather=WEATHER).astype(dtype)
    forecaster = structural().fit(Y[SEEN], X.loc[SEEN])
    assert "weather (levels)" in forecaster.components_.index.get_level_values("part")
    error = (forecaster.predict(AHEAD, X=X.loc[AHEAD]) - Y[AHEAD]).abs().mean()
    assert error < 0.9  # the noise alone has 0.8; without X it is 2.3


def test_a_level_never_seen_is_told_once_and_counts_as_average() -> None:
    X = table(weather=WEATHER)
    forecaster = structural().fit(Y[SEEN], X.loc[SEEN])
    ahead = X.loc[AHEAD].copy()
    ahead.iloc[[3, 7], 0] = "hail"
    message = rf"got 'hail' in column 'weather' at {AHEAD[3]}\. It counts as average"
    with pytest.warns(UserWarning, match=message) as told:
        found = forecaster.predict(AHEAD, X=ahead)
    assert len(told) == 1
    assert abs(found.iloc[3] - Y[SEEN].mean()) < 0.6
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        width = forecaster.predict_interval(AHEAD, X=ahead).diff(axis=1).iloc[:, -1]
    assert width.iloc[3] > 2 * width.iloc[4]


def test_a_category_of_many_weak_levels_is_found_as_one_effect() -> None:
    rng = np.random.default_rng(0)
    level = rng.integers(30, size=400)
    stamps = pd.date_range("2024-01-01", periods=400, freq="h")
    effects = 0.7 * rng.normal(size=30)
    y = pd.Series(effects[level] + rng.normal(size=400), stamps)
    X = pd.DataFrame({"kind": level}, stamps).astype("category")
    parts = structural().fit(y, X).components_.index.get_level_values("part")
    assert "kind (levels)" in parts
    y = pd.Series(rng.normal(size=400), stamps)
    parts = structural().fit(y, X).components_.index.get_level_values("part")
    assert "kind (levels)" not in parts


REFUSED: dict[str, tuple[Any, Any, str]] = {
    "texts of numbers": (Y, table(u=Y.astype(str)), "at most 100 levels; got .* in"),
    "times": (Y, table(u=HOURS), "X must be numeric, or categorical; got column 'u'"),
    "a category in y": (table(y=WEATHER), None, "y must be numeric, not categorical"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_category_is_refused(case: str) -> None:
    y, X, message = REFUSED[case]
    with pytest.raises((TypeError, ValueError), match=message):
        structural().fit(y, X)


def test_a_column_of_numbers_takes_no_texts_later() -> None:
    X = table(u=np.arange(300.0))
    forecaster = structural().fit(Y[SEEN], X.loc[SEEN])
    later = X.loc[AHEAD].astype(str)
    with pytest.raises(
        TypeError, match=r"'u' of X must hold numbers, as it did .* '26"
    ):
        forecaster.predict(AHEAD, X=later)


@pytest.mark.slow
def test_the_paper_s_model_reads_categories() -> None:
    X = table(weather=WEATHER)
    forecaster = tiny().fit(Y[:40], X[:40])
    found = forecaster.predict(HOURS[40:42], X=X[40:42])
    X.iloc[40, 0] = "snow" if X.iloc[40, 0] == "sun" else "sun"
    other = forecaster.predict(HOURS[40:42], X=X[40:42])
    assert (np.abs(other - found) > 1e-6).any()


def test_levels_survive_a_file_an_update_and_pretraining(tmp_path: Any) -> None:
    X = table(weather=WEATHER)
    first = structural().fit(Y[SEEN], X.loc[SEEN])
    expected = first.predict(AHEAD[10:], X=X.loc[AHEAD[10:]])
    first.save_weights(tmp_path / "one")
    again = StructuralForecaster.load_weights(tmp_path / "one")
    found = again.predict(AHEAD[10:], X=X.loc[AHEAD[10:]])
    pd.testing.assert_series_equal(found, expected)
    few = AHEAD[:2]  # without two of the levels
    updated = again.update(Y[few], X.loc[few], update_params=False)
    change = updated.predict(AHEAD[10:], X=X.loc[AHEAD[10:]]) - expected
    assert change.abs().max() < 1
    names = ["key", "time"]
    panel = pd.concat({"a": Y[SEEN].to_frame("y")}, names=names)
    controls = pd.concat({"a": X.loc[SEEN]}, names=names)
    taught = structural().pretrain(panel, controls)
    tuned = taught.fit(Y[few].rename("y"), X.loc[few])
    ahead = X.loc[AHEAD].assign(weather=["sun", "snow"] * 20)
    assert tuned.predict(AHEAD, X=ahead).diff().abs().mean() > 1
