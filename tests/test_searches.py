"""Searches and validation of scikit-learn, directly on the forecasters."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    TimeSeriesSplit,
    cross_val_score,
)
from sktime.split import ExpandingWindowSplitter

from tests.series import MOSTLY_ONE, panel, tiny, uneven_stamps, waves

CV = TimeSeriesSplit(2)


def part(y: Any, rows: np.ndarray) -> Any:
    return y.iloc[rows] if hasattr(y, "iloc") else y[rows]


def minus_rmse(forecast: Any, truth: Any) -> float:
    error = np.asarray(forecast, float) - np.asarray(truth, float)
    return -float(np.sqrt(np.nanmean(error**2)))


@pytest.mark.parametrize("kind", MOSTLY_ONE)
def test_grid_search_of_scikit_learn_picks_by_score(kind: type) -> None:
    y = waves(uneven_stamps())
    cv = TimeSeriesSplit(2)
    grid = {"hidden_size": [2, 5], "max_epochs": [1, 4]}
    search = GridSearchCV(tiny(kind, lr=0.05), grid, cv=cv).fit(y)
    by_hand = []
    for settings in search.cv_results_["params"]:
        scores = [
            tiny(kind, lr=0.05, **settings).fit(y.iloc[train]).score(y.iloc[test])
            for train, test in cv.split(y)
        ]
        by_hand.append(np.mean(scores))
    assert len(set(by_hand)) == 4
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], by_hand)
    best = search.cv_results_["params"][int(np.argmax(by_hand))]
    assert search.best_params_ == best
    forecast = search.predict(range(1, 61))
    expected = tiny(kind, lr=0.05, **best).fit(y).predict(range(1, 61))
    pd.testing.assert_series_equal(forecast, expected)


def test_a_search_leaves_pretrained_weights_to_every_candidate() -> None:
    y = waves(uneven_stamps())
    family = pd.concat({"a": y.to_frame(), "b": -y.to_frame()}, names=["k", "t"])
    forecaster = tiny(finetune_epochs=0, max_epochs=10).pretrain(family)
    cv = [(np.arange(18), np.arange(18, 24))]
    score = cross_val_score(forecaster, y, cv=cv)
    expected = forecaster.clone().fit(y[:18]).score(y[18:])
    np.testing.assert_allclose(score, [expected])


def test_rows_left_out_of_the_middle_are_asked_at_their_own_stamps() -> None:
    y = waves(uneven_stamps())
    with pytest.warns(UserWarning, match="come after those of fit") as told:
        scores = cross_val_score(tiny(), y, cv=KFold(3))
    said = ["come after those of fit" in str(one.message) for one in told]
    assert sum(said) == 2  # the last third comes after
    for score, (train, test) in zip(scores, KFold(3).split(y), strict=True):
        forecast = tiny().fit(y.iloc[train]).predict(y.index[test])
        assert score == pytest.approx(minus_rmse(forecast, y.iloc[test]))


def test_the_second_argument_of_a_search_is_the_controls() -> None:
    y = waves(uneven_stamps())
    X = pd.DataFrame({"x": np.cos(np.arange(24))}, y.index)
    search = GridSearchCV(tiny(), {"hidden_size": [3]}, cv=CV).fit(y, X)
    expected = [
        tiny().fit(y.iloc[a], X=X.iloc[a]).predict(y.index[b], X=X.iloc[b])
        for a, b in CV.split(y)
    ]
    scores = [
        minus_rmse(forecast, y.iloc[b])
        for forecast, (_, b) in zip(expected, CV.split(y), strict=True)
    ]
    assert search.best_score_ == pytest.approx(np.mean(scores))
    assert search.best_score_ != pytest.approx(cross_val_score(tiny(), y, cv=CV).mean())


def test_the_rows_of_a_panel_are_split_within_each_series() -> None:
    y = panel()
    splits = list(
        ExpandingWindowSplitter([1, 2, 3], initial_window=8, step_length=2).split(y)
    )
    scores = cross_val_score(tiny(), y, cv=splits)
    assert len(scores) == 2
    for score, (train, test) in zip(scores, splits, strict=True):
        forecast = tiny().fit(y.iloc[train]).predict_at(y.index[test])
        assert score == pytest.approx(minus_rmse(forecast, y.iloc[test]))


@pytest.mark.slow
def test_a_search_over_a_network_that_does_not_count_says_so() -> None:
    y = waves(uneven_stamps())
    search = GridSearchCV(tiny(model="hybrid"), {"hidden_size": [2, 5]}, cv=CV)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        search.fit(y)
    (said,) = (str(one.message) for one in told if "candidate" in str(one.message))
    assert "no network of this candidate counts" in said
    assert "search with model='paper', the paper's model" in said
    assert tiny(model="hybrid").fit(y[:-4]).score(y[-4:]) < 0  # which is no search
