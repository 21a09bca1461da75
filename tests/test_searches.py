"""Searches and validation of scikit-learn, directly on the forecasters."""

from __future__ import annotations

import os
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    KFold,
    RandomizedSearchCV,
    TimeSeriesSplit,
    cross_val_score,
    cross_validate,
    learning_curve,
    validation_curve,
)
from sktime.split import ExpandingWindowSplitter

from tests.series import (
    FORECASTERS,
    MOSTLY_ONE,
    channels,
    panel,
    tiny,
    uneven_stamps,
    waves,
)

CV = TimeSeriesSplit(2)
PATH = os.pathsep.join(
    [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
)
SETTINGS: dict[str, list[Any]] = {
    "hidden_size": [2, 5],
    "clip_norm": [None, 0.01, "auto"],
    "lr": [0.01, 0.1],
    "method": ["euler", "rk4"],
}


def learner(kind: Any = FORECASTERS[-1], **settings: Any) -> Any:
    """Return a forecaster that learns enough for every setting to tell."""
    return tiny(kind, **{"max_epochs": 4, "lr": 0.05, "step_size": 4.0, **settings})


def part(y: Any, rows: np.ndarray) -> Any:
    return y.iloc[rows] if hasattr(y, "iloc") else y[rows]


def minus_rmse(forecast: Any, truth: Any) -> float:
    error = np.asarray(forecast, float) - np.asarray(truth, float)
    return -float(np.sqrt(np.nanmean(error**2)))


def missing(y: pd.Series) -> pd.Series:
    y = y.copy()
    y.iloc[[3, 13, 20]] = np.nan
    return y


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


@pytest.mark.slow
@pytest.mark.parametrize("kind", MOSTLY_ONE)
@pytest.mark.parametrize("name", SETTINGS)
def test_a_search_tries_every_value_of_a_setting(kind: type, name: str) -> None:
    y = waves(uneven_stamps())
    search = GridSearchCV(learner(kind), {name: SETTINGS[name]}, cv=CV).fit(y)
    by_hand = {
        value: np.mean(
            [
                minus_rmse(
                    learner(kind, **{name: value}).fit(y.iloc[a]).predict(y.index[b]),
                    y.iloc[b],
                )
                for a, b in CV.split(y)
            ]
        )
        for value in SETTINGS[name]
    }
    assert len(set(by_hand.values())) == len(by_hand)  # each of them tells
    best = max(by_hand, key=lambda value: by_hand[value])
    assert search.best_params_ == {name: best}
    assert search.best_score_ == pytest.approx(by_hand[best])


@pytest.mark.slow
def test_a_randomized_search_scores_the_settings_it_drew() -> None:
    y = waves(uneven_stamps())
    search = RandomizedSearchCV(
        learner(), SETTINGS, n_iter=3, cv=CV, random_state=0, error_score="raise"
    ).fit(y)
    for settings, score in zip(
        search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True
    ):
        expected = cross_val_score(learner(**settings), y, cv=CV).mean()
        assert score == pytest.approx(expected)
    assert search.best_score_ == search.cv_results_["mean_test_score"].max()
    assert search.best_estimator_.get_params() == (
        learner(**search.best_params_).get_params()
    )


PANDAS = {
    "series": waves(uneven_stamps()),
    "frame": waves(uneven_stamps()).to_frame(),
    "channels": channels(uneven_stamps()),
    "missing": missing(waves(uneven_stamps())),
    "zone": waves(uneven_stamps().tz_localize("Europe/Paris")),
    "months": waves(pd.period_range("2020-01", periods=24, freq="M")),
    "uneven months": waves(
        pd.PeriodIndex(
            np.delete(pd.period_range("2020-01", periods=27, freq="M"), [4, 9, 20])
        )
    ),
    "integers": waves(),
    "range": waves(pd.RangeIndex(24)),
}
ARRAYS = {
    "1-D array": waves().to_numpy(),
    "2-D array": waves().to_frame().to_numpy(),
    "channels": channels().to_numpy(),
    "missing": missing(waves()).to_numpy(),
}


@pytest.mark.slow
@pytest.mark.parametrize("y", PANDAS.values(), ids=PANDAS.keys())
def test_scores_are_at_the_stamps_of_the_rows_left_out_or_trained_on(y: Any) -> None:
    search = GridSearchCV(tiny(), {"hidden_size": [3]}, cv=CV, return_train_score=True)
    results = search.fit(y).cv_results_
    for k, (train, test) in enumerate(CV.split(y)):
        forecaster = tiny().fit(y.iloc[train])
        for rows, which in ((train, "train"), (test, "test")):
            forecast = forecaster.predict_at(y.index[rows])
            truth = y.iloc[rows]
            expected = minus_rmse(forecast, truth.to_numpy().reshape(forecast.shape))
            assert results[f"split{k}_{which}_score"][0] == pytest.approx(expected)
    assert search.score(y) == pytest.approx(
        minus_rmse(
            tiny().fit(y).predict_at(y.index),
            y.to_numpy().reshape(len(y), -1),
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("y", ARRAYS.values(), ids=ARRAYS.keys())
def test_the_rows_of_an_array_are_the_steps_after_the_training_rows(y: Any) -> None:
    search = GridSearchCV(tiny(), {"hidden_size": [3]}, cv=CV).fit(y)
    for k, (train, test) in enumerate(CV.split(y)):
        forecast = tiny().fit(y[train]).predict(np.arange(1, len(test) + 1))
        expected = minus_rmse(forecast, y[test].reshape(forecast.shape))
        assert search.cv_results_[f"split{k}_test_score"][0] == pytest.approx(expected)
    expected = tiny().fit(pd.DataFrame(y.reshape(24, -1))).predict(range(1, 61))
    np.testing.assert_allclose(search.predict(range(1, 61)), expected)


@pytest.mark.slow
@pytest.mark.parametrize("y", ARRAYS.values(), ids=ARRAYS.keys())
def test_an_array_has_no_train_score_but_the_scores_of_its_folds(y: Any) -> None:
    with pytest.warns(UserWarning, match="got the very values that were seen"):
        found = cross_validate(tiny(), y, cv=CV, return_train_score=True)
    assert np.isnan(found["train_score"]).all()
    np.testing.assert_array_equal(
        found["test_score"], cross_val_score(tiny(), y, cv=CV)
    )


def test_rows_left_out_of_the_middle_are_asked_at_their_own_stamps() -> None:
    y = waves(uneven_stamps())
    scores = cross_val_score(tiny(), y, cv=KFold(3))
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


def test_a_halving_search_may_spend_epochs() -> None:
    y = waves(uneven_stamps())
    search = HalvingGridSearchCV(
        learner(),
        {"hidden_size": [2, 3, 5]},
        resource="max_epochs",
        min_resources=1,
        max_resources=3,
        cv=CV,
        random_state=0,
        error_score="raise",
    ).fit(y)
    assert search.n_resources_ == [1, 3]
    assert search.best_params_["max_epochs"] == 3
    again = cross_val_score(learner(**search.best_params_), y, cv=CV).mean()
    assert search.best_score_ == pytest.approx(again)
    assert search.best_estimator_.n_epochs_ == 3


def test_curves_score_each_length_and_each_setting() -> None:
    y = waves(uneven_stamps())
    cv = [(np.arange(18), np.arange(18, 24))]
    lengths, _, scores = learning_curve(
        tiny(), y, None, cv=cv, train_sizes=[9, 18], error_score="raise"
    )
    expected = [tiny().fit(y[:n]).score(y[18:]) for n in lengths]
    np.testing.assert_allclose(scores[:, 0], expected)
    _, scores = validation_curve(
        tiny(), y, None, param_name="hidden_size", param_range=[2, 4], cv=cv
    )
    expected = [tiny(hidden_size=n).fit(y[:18]).score(y[18:]) for n in (2, 4)]
    np.testing.assert_allclose(scores[:, 0], expected)


def test_a_search_clones_and_pickles_with_its_forecasts() -> None:
    y = waves(uneven_stamps())
    search = GridSearchCV(tiny(), {"hidden_size": [2, 4]}, cv=CV).fit(y[:20])
    forecast = search.predict(y.index[20:])
    restored = pickle.loads(pickle.dumps(search))
    pd.testing.assert_series_equal(restored.predict(y.index[20:]), forecast)
    assert restored.score(y[20:]) == search.score(y[20:])
    assert search.score(y[20:]) == pytest.approx(minus_rmse(forecast, y[20:]))
    again = clone(search).fit(y[:20])
    pd.testing.assert_series_equal(again.predict(y.index[20:]), forecast)


@pytest.mark.slow
def test_sizes_of_the_readme_may_be_searched_with_default_settings() -> None:
    y = waves(uneven_stamps())
    forecaster = FORECASTERS[-1](max_epochs=1, level="series", random_state=0)
    grid = {"hidden_size": [8, 16, 32]}
    search = GridSearchCV(forecaster, grid, cv=TimeSeriesSplit(3)).fit(y)
    forecast = search.predict(range(1, 61))
    best = forecaster.clone().set_params(**search.best_params_).fit(y)
    pd.testing.assert_series_equal(forecast, best.predict(fh=range(1, 61)))
    assert len(set(search.cv_results_["mean_test_score"])) == 3


def test_fits_in_two_threads_start_from_their_own_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    y = waves(uneven_stamps())
    expected = tiny().fit(y).predict([1, 2])
    seed = torch.manual_seed

    def seed_slowly(number: int) -> torch.Generator:
        generator = seed(number)
        time.sleep(0.05)  # so that the other thread seeds before this one draws
        return generator

    monkeypatch.setattr(torch, "manual_seed", seed_slowly)
    with ThreadPoolExecutor(2) as pool:
        forecasts = list(pool.map(lambda _: tiny().fit(y).predict([1, 2]), range(2)))
    for forecast in forecasts:
        pd.testing.assert_series_equal(forecast, expected)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_a_parallel_search_scores_as_a_serial_one(backend: str) -> None:
    y = waves(uneven_stamps())
    grid = {"hidden_size": [2, 4], "lr": [0.01, 0.1]}
    serial = GridSearchCV(tiny(), grid, cv=CV).fit(y)
    with joblib.parallel_config(backend):
        parallel = GridSearchCV(tiny(), grid, cv=CV, n_jobs=2).fit(y)
    np.testing.assert_array_equal(
        parallel.cv_results_["mean_test_score"], serial.cv_results_["mean_test_score"]
    )
    pd.testing.assert_series_equal(parallel.predict([1, 2]), serial.predict([1, 2]))


@pytest.mark.slow
def test_a_search_on_a_cluster_is_the_serial_one_bit_for_bit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)  # dask itself sets it
    monkeypatch.setenv("PYTHONPATH", PATH)
    y, grid = waves(pd.RangeIndex(40)), {"hidden_size": [2, 3], "lr": [0.01, 0.05]}
    options: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1}
    found = []
    with (
        distributed.LocalCluster(**options, dashboard_address=":0") as workers,
        distributed.Client(workers) as client,
    ):
        assert set(client.run(torch.get_num_threads).values()) == {1}
        for backend in ("dask", "sequential"):
            search = GridSearchCV(tiny(max_epochs=3), grid, cv=TimeSeriesSplit(2))
            with joblib.parallel_config(backend):
                found.append(search.fit(y))
    scores = [search.cv_results_["mean_test_score"] for search in found]
    np.testing.assert_array_equal(*scores)
    assert len(set(scores[0])) == 4
    forecasts = [search.predict([1, 2]) for search in found]
    pd.testing.assert_series_equal(*forecasts, check_exact=True)
