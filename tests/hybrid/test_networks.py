"""Several networks, of whose forecasts the mean counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest

from sklode import LatentODELSTMForecaster
from sklode.hybrid import training as ahead
from sklode.hybrid.model import HybridModel
from tests.hybrid.test_training import auto
from tests.series import panel, waves

STEPS = [1, 2, 5]


@pytest.fixture(scope="module")
def forecaster() -> Any:
    return auto(guard=False, n_networks=3).fit(waves())


def parameters(forecaster: Any) -> list[np.ndarray]:
    """Return the weights of each network, as one vector."""
    return [
        np.concatenate([p.detach().numpy().ravel() for p in network.parameters()])
        for network in forecaster.networks_
    ]


def test_the_first_is_the_lone_one_and_the_others_differ(forecaster: Any) -> None:
    first, *others = parameters(forecaster)
    (lone,) = parameters(auto(guard=False).fit(waves()))
    np.testing.assert_array_equal(first, lone)
    assert len(others) == 2
    assert np.abs(others[0] - others[1]).max() > 0.1
    assert np.abs(others[0] - first).max() > 0.1
    assert forecaster.networks_[0] is forecaster.network_
    phases = forecaster.history_.groupby("phase").size().to_dict()
    assert phases == {1: 3, 2: 3, 3: 3}


def test_the_mean_of_their_forecasts_counts(
    forecaster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets: list[np.ndarray] = []
    forecasts = HybridModel.forecasts

    def noted(self: Any, *args: Any, **how: Any) -> Any:
        found = forecasts(self, *args, **how)
        targets.append(found)
        return found

    monkeypatch.setattr(HybridModel, "forecasts", noted)
    model, history = forecaster._model, forecaster._history
    queries = history.queries(history.rows_ahead(pd.Index(STEPS)), None)
    for network in model.networks:
        only = replace(model, network=network, others=())
        only.answers(history, 0, None).means(queries)
    forecaster.predict(STEPS)
    *each, mean = targets
    np.testing.assert_allclose(mean, np.mean(each, axis=0), rtol=1e-6)
    assert np.ptp(each, axis=0).min() > 1e-4


def test_they_train_in_threads_as_one_after_another(forecaster: Any) -> None:
    with joblib.parallel_config(n_jobs=2):
        found = auto(guard=False, n_networks=3).fit(waves())
    for one, other in zip(parameters(found), parameters(forecaster), strict=True):
        np.testing.assert_array_equal(one, other)
    pd.testing.assert_frame_equal(
        found.history_.drop(columns="seconds"),
        forecaster.history_.drop(columns="seconds"),
    )


def test_they_are_stored_and_updated_as_one(forecaster: Any, tmp_path: Path) -> None:
    forecaster.save_weights(tmp_path / "three")
    found = LatentODELSTMForecaster.load_weights(tmp_path / "three")
    for one, other in zip(parameters(found), parameters(forecaster), strict=True):
        np.testing.assert_array_equal(one, other)
    expected = forecaster.predict_quantiles(STEPS, alpha=[0.1, 0.9])
    pd.testing.assert_frame_equal(
        found.predict_quantiles(STEPS, alpha=[0.1, 0.9]), expected
    )
    later = waves(pd.RangeIndex(1000, 1004))
    before = parameters(found)
    found.finetune_epochs = 4
    found.update(later)
    for one, other in zip(parameters(found), before, strict=True):
        assert np.abs(one - other).max() > 1e-4


@pytest.mark.parametrize("is_promising", [True, False])
def test_one_proof_is_that_of_all(
    is_promising: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[int] = []
    evidence = ahead.HybridTraining._evidence

    def noted(self: Any, number: int, model: Any, restarts: bool = False) -> Any:
        judged.append(len(model.networks))
        return evidence(self, number, model, restarts)

    monkeypatch.setattr(ahead.HybridTraining, "_evidence", noted)
    monkeypatch.setattr(ahead, "_PROVING_ROWS", 0)
    monkeypatch.setattr(ahead, "has_prospects", lambda *_: is_promising)
    found = auto(n_networks=2, max_epochs=3).fit(panel((20, 30, 25)))
    # after a third the first one alone; then both, on each fold, near and far
    assert judged == ([1, 2, 2, 2, 2] if is_promising else [1])
    assert found.history_["phase"].max() == (2 if is_promising else 1) + 4 * bool(
        found.network_share_
    )


@pytest.mark.parametrize("n", [0, -1, 1.5, 1000, None])
def test_numbers_of_networks_that_are_none_are_refused(n: Any) -> None:
    with pytest.raises(ValueError, match="n_networks"):
        auto(n_networks=n).fit(waves())


def test_the_papers_model_is_one_network() -> None:
    with pytest.raises(ValueError, match=r"n_networks=2 and model=\"paper\""):
        auto(model="paper", n_networks=2).fit(waves())
