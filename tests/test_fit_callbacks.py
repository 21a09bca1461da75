"""scikit-learn's own callbacks follow a fit, alone and in a search."""

from __future__ import annotations

import copy
import importlib.util
import pickle
import sys
import types
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit

from sklode.training import fit_callbacks, guard
from tests.series import panel, tiny, uneven_stamps, waves

since_1_9 = pytest.mark.skipif(
    importlib.util.find_spec("sklearn.callback") is None,
    reason="scikit-learn has callbacks from 1.9 on",
)


class Listener:
    """Writes down what it hears."""

    def __init__(
        self,
        stop_at: int | None = None,
        raise_at: int | None = None,
        forecasts: bool = False,
    ) -> None:
        self.heard: list[str] = []
        self.stop_at, self.raise_at = stop_at, raise_at
        self.forecasts: list[Any] | None = [] if forecasts else None
        self.sizes: list[int] = []
        self.data: list[tuple[Any, Any]] = []

    def setup(self, estimator: Any, context: Any) -> None:
        self.heard.append("setup")
        self.sizes.append(context.max_subtasks)

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        self.heard.append(f"begin {context.task_name}")

    def on_fit_task_end(
        self,
        estimator: Any,
        context: Any,
        *,
        X: Any = None,
        y: Any = None,
        fitted_estimator: Any = None,
    ) -> bool:
        self.heard.append(f"end {context.task_name}")
        if self.forecasts is not None:
            self.forecasts.append(fitted_estimator.predict([1, 2]))
        self.data.append((X, y))
        if context.task_name == "epoch" and context.task_id == self.raise_at:
            raise ZeroDivisionError
        return context.task_name == "epoch" and context.task_id == self.stop_at

    def teardown(self, estimator: Any, context: Any) -> None:
        self.heard.append("teardown")


class Propagated(Listener):
    """Goes from a search to what it fits."""

    max_propagation_depth = None


EPOCH = ["begin epoch", "end epoch"]
ONE_FIT = ["setup", "begin fit", *EPOCH, *EPOCH, "end fit", "teardown"]


def context_of(forecaster: Any) -> list[str]:
    return [name for name in vars(forecaster) if "ctx" in name or "teardown" in name]


@since_1_9
def test_callbacks_hear_of_a_fit_and_of_each_of_its_epochs() -> None:
    listener = Listener()
    forecaster = tiny(max_epochs=2).set_callbacks(listener)
    forecaster.fit(waves())
    assert listener.heard == ONE_FIT
    assert listener.sizes == [2]
    assert context_of(forecaster) == []
    forecaster.set_params(max_epochs=1).fit(waves())  # sktime resets it twice
    assert listener.sizes == [2, 1]
    forecaster.set_callbacks().fit(waves())
    assert listener.sizes == [2, 1]


@since_1_9
def test_a_callback_gets_a_forecaster_fitted_so_far() -> None:
    class Keeper:
        copies: list[Any] = []  # noqa: RUF012

        def on_epoch_end(self, forecaster: Any, row: dict[str, float]) -> None:
            self.copies.append(copy.deepcopy(forecaster))

    y, listener = waves(uneven_stamps()), Listener(forecasts=True)
    settings: dict[str, Any] = {"max_epochs": 3, "lr": 0.05}
    forecaster = tiny(**settings, callbacks=[Keeper()]).set_callbacks(listener).fit(y)
    expected = [c.predict([1, 2]) for c in Keeper.copies]
    for found, wanted in zip(
        listener.forecasts or [], [*expected, forecaster.predict([1, 2])], strict=True
    ):
        pd.testing.assert_series_equal(found, wanted, check_exact=True)
    assert (expected[0] != expected[1]).all()
    assert all(context_of(c) == [] for c in Keeper.copies)


@since_1_9
def test_a_callback_that_returns_true_stops_the_training() -> None:
    forecaster = tiny(max_epochs=5).set_callbacks(Listener(stop_at=1)).fit(waves())
    assert forecaster.n_epochs_ == 2


@since_1_9
def test_the_data_told_are_those_of_the_fit_and_can_be_scored() -> None:
    y = waves(uneven_stamps())
    for X in (None, pd.DataFrame({"u": np.arange(24.0)}, y.index)):
        listener = Listener()
        forecaster = tiny().set_callbacks(listener).fit(y, X)
        series, controls = listener.data[-1]
        np.testing.assert_array_equal(series.iloc[:, 0], y)
        assert list(controls.columns) == ([] if X is None else ["u"])
        assert forecaster.score(series, controls) == forecaster.score(y, X)


@since_1_9
def test_a_monitor_of_scikit_learn_scores_every_epoch() -> None:
    from sklearn.callback import ScoringMonitor

    def score(forecaster: Any, y: Any, X: Any) -> float:
        return forecaster.score(y, X)

    monitor = ScoringMonitor(scoring={"score": score})
    y = waves(uneven_stamps())
    forecaster = tiny(max_epochs=3).set_callbacks(monitor).fit(y)
    scores = {
        (row["task_name"], row["task_id"]): row for row in monitor.get_logs().data
    }
    assert set(scores) == {("fit", 0), *(("epoch", k) for k in range(3))}
    assert scores["fit", 0]["score"] == forecaster.score(y)


@since_1_9
def test_a_search_hands_its_callbacks_on_and_takes_them_back() -> None:
    of_search, of_forecaster = Propagated(), Listener()
    forecaster = tiny(max_epochs=2).set_callbacks(of_forecaster)
    search = GridSearchCV(forecaster, {"hidden_size": [2, 3]}, cv=TimeSeriesSplit(2))
    search.set_callbacks(of_search).fit(waves(uneven_stamps(30)))
    assert of_search.heard.count("begin epoch") == 2 * (2 * 2 + 1)
    assert of_search.heard.count("end epoch") == 2 * (2 * 2 + 1)
    assert of_search.heard.count("setup") == of_search.heard.count("teardown") == 1
    assert of_forecaster.heard == 5 * ONE_FIT
    assert search.best_estimator_._skl_callbacks == [of_forecaster]
    assert context_of(search.best_estimator_) == []


@since_1_9
def test_callbacks_take_leave_of_a_fit_that_fails() -> None:
    listener = Listener(raise_at=1)
    forecaster = tiny(max_epochs=3).set_callbacks(listener)
    with pytest.raises(ZeroDivisionError):
        forecaster.fit(waves())
    assert listener.heard[-2:] == ["end epoch", "teardown"]
    assert not forecaster.is_fitted
    assert context_of(forecaster) == []
    assert forecaster._skl_callbacks == [listener]


@since_1_9
def test_a_clone_shares_them_and_a_pickle_has_copies() -> None:
    listener = Listener()
    forecaster = tiny().set_callbacks(listener)
    for other in (clone(forecaster), forecaster.clone()):
        assert other._skl_callbacks == [listener]
    copied = pickle.loads(pickle.dumps(forecaster))
    assert [type(c) for c in copied._skl_callbacks] == [Listener]
    assert copied._skl_callbacks[0] is not listener
    assert "_skl_callbacks" not in vars(tiny().clone())


@since_1_9
def test_a_guarded_fit_without_training_has_no_epochs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guard, "gains", lambda *_: np.zeros(4))
    listener = Listener()
    tiny(guard=True, max_epochs=2).set_callbacks(listener).fit(waves())
    assert listener.heard == ["setup", "begin fit", "end fit", "teardown"]


@since_1_9
def test_a_resumed_fit_tells_how_many_epochs_are_ahead() -> None:
    stopping = types.SimpleNamespace(on_epoch_end=lambda _, row: row["epoch"] == 3)
    listener = Listener()
    forecaster = tiny(max_epochs=5, warm_start=True, callbacks=[stopping])
    forecaster.set_callbacks(listener).fit(waves()).fit(waves())
    assert listener.sizes == [5, 2]


@since_1_9
def test_a_fit_after_pretrain_is_followed_and_pretrain_is_not() -> None:
    listener = Listener()
    forecaster = tiny(max_epochs=3, finetune_epochs=2).set_callbacks(listener)
    forecaster.pretrain(panel())
    assert listener.heard == []
    forecaster.fit(waves(uneven_stamps()))
    assert listener.heard == ONE_FIT


@since_1_9
def test_what_is_no_callback_is_refused() -> None:
    with pytest.raises(TypeError, match="FitCallback protocol"):
        tiny().set_callbacks(object())


def test_forecasters_of_equal_parameters_are_told_apart_in_a_dict() -> None:
    one, other = tiny(), tiny()
    assert one == other
    assert {one: 1, other: 2}[one] == 1


def test_an_older_scikit_learn_is_told_which_version_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.callback", None)
    path = fit_callbacks.__file__
    spec: Any = importlib.util.spec_from_file_location("fit_callbacks_of_old", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    class Estimator(module.SupportsFitCallbacks):  # type: ignore[name-defined]
        @module.with_callbacks
        def fit(self, y: Any) -> str:
            task = module.FitTask(self, y, None, 1)
            stops = task.on_epoch_end(self, {})
            task.end()
            return f"fitted, {stops}"

    with pytest.raises(ImportError, match=r"scikit-learn 1\.9 .* parameter callbacks"):
        Estimator().set_callbacks(Listener())
    assert Estimator().fit(waves()) == "fitted, False"
