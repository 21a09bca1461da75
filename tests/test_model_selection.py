"""Searches and evaluations of scikit-learn and sktime."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit, cross_val_score
from sktime.forecasting.model_evaluation import evaluate
from sktime.forecasting.model_selection import ForecastingGridSearchCV
from sktime.performance_metrics.forecasting import MeanAbsoluteError
from sktime.split import ExpandingWindowSplitter

from sklode import AbsoluteHorizon
from tests.series import FORECASTERS, tiny, uneven_stamps, waves

CV = ExpandingWindowSplitter(fh=[1, 2, 3], initial_window=14, step_length=4)


@pytest.mark.parametrize("kind", FORECASTERS)
def test_grid_search_of_scikit_learn_picks_by_score(kind: type) -> None:
    y = waves(uneven_stamps())
    cv = TimeSeriesSplit(3)
    grid = {"hidden_size": [2, 5], "max_epochs": [1, 15]}
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
    forecast = search.predict(range(1, 4))
    expected = tiny(kind, lr=0.05, **best).fit(y).predict(range(1, 4))
    pd.testing.assert_series_equal(forecast, expected)


def test_cross_val_score_is_the_score_of_each_fold() -> None:
    y = waves(uneven_stamps())
    cv = TimeSeriesSplit(2)
    scores = cross_val_score(tiny(), y, cv=cv)
    expected = [
        tiny().fit(y.iloc[train]).score(y.iloc[test]) for train, test in cv.split(y)
    ]
    np.testing.assert_allclose(scores, expected)
    assert (scores < 0).all()


def test_a_search_leaves_pretrained_weights_to_every_candidate() -> None:
    y = waves(uneven_stamps())
    family = pd.concat({"a": y.to_frame(), "b": -y.to_frame()}, names=["k", "t"])
    forecaster = tiny(finetune_epochs=0, max_epochs=10).pretrain(family)
    cv = [(np.arange(18), np.arange(18, 24))]
    score = cross_val_score(forecaster, y, cv=cv)
    expected = forecaster.clone().fit(y[:18]).score(y[18:])
    np.testing.assert_allclose(score, [expected])


def test_an_absolute_horizon_splits_as_the_splitter_it_wraps() -> None:
    y = waves(uneven_stamps())
    splitter = AbsoluteHorizon(CV)
    assert splitter.fh is None
    assert splitter.get_n_splits(y) == CV.get_n_splits(y) == 2
    np.testing.assert_array_equal(splitter.get_cutoffs(y), CV.get_cutoffs(y))
    for own, wrapped in zip(splitter.split(y), CV.split(y), strict=True):
        np.testing.assert_array_equal(own[0], wrapped[0])
        np.testing.assert_array_equal(own[1], wrapped[1])


def test_evaluate_with_an_absolute_horizon_asks_at_the_test_stamps() -> None:
    y = waves(uneven_stamps())
    metric = MeanAbsoluteError()
    results = evaluate(
        tiny(max_epochs=10), AbsoluteHorizon(CV), y, scoring=metric, return_data=True
    )
    assert len(results) == 2
    for row, (train, test) in zip(results.itertuples(), CV.split(y), strict=True):
        truth = y.iloc[test]
        forecast = tiny(max_epochs=10).fit(y.iloc[train]).predict(truth.index)
        pd.testing.assert_series_equal(row.y_pred, forecast, check_freq=False)
        assert row.test_MeanAbsoluteError == pytest.approx(
            np.abs(forecast - truth).mean()
        )


@pytest.mark.parametrize("strategy", ["update", "no-update_params"])
def test_evaluate_may_update_instead_of_refitting(strategy: str) -> None:
    y = waves(uneven_stamps())
    results = evaluate(
        tiny(), AbsoluteHorizon(CV), y, strategy=strategy, return_data=True
    )
    stamps = [list(y_pred.index) for y_pred in results["y_pred"]]
    assert stamps == [list(y.index[test]) for _, test in CV.split(y)]


@pytest.mark.filterwarnings("ignore:The default of config:FutureWarning")
def test_grid_search_of_sktime_picks_the_least_error() -> None:
    y = waves(uneven_stamps())
    errors = {}
    for epochs in (1, 15):
        forecaster = tiny(max_epochs=epochs, lr=0.05)
        results = evaluate(
            forecaster, AbsoluteHorizon(CV), y, scoring=MeanAbsoluteError()
        )
        errors[epochs] = results["test_MeanAbsoluteError"].mean()
    search = ForecastingGridSearchCV(
        tiny(lr=0.05),
        AbsoluteHorizon(CV),
        {"max_epochs": [1, 15]},
        scoring=MeanAbsoluteError(),
        backend="None",
        error_score="raise",
    )
    search.fit(y)
    assert search.best_params_ == {"max_epochs": min(errors, key=lambda k: errors[k])}
    assert search.best_score_ == pytest.approx(min(errors.values()))
