"""Training what was trained before: pretraining and updates."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.epochs import interrupt
from tests.series import channels, panel, tiny, uneven_stamps, waves
from tests.training.trainees import assert_kept

STEPS = [-3, 1, 4]


def weights(fitted: Any) -> np.ndarray:
    parts = [p.detach().flatten() for p in fitted.network_.parameters()]
    return torch.cat(parts).numpy()


def series() -> pd.Series:
    return waves(uneven_stamps(24, seed=9))


def pretrained(**settings: Any) -> Any:
    return tiny(**{"max_epochs": 10, "lr": 0.05} | settings).pretrain(panel())


# Pretraining


def test_fit_fine_tunes_a_copy_of_the_pretrained_model() -> None:
    forecaster = tiny(finetune_epochs=2, lr=0.05).fit(waves()).pretrain(panel())
    before = copy.deepcopy(forecaster.pretrained_.network)
    first = forecaster.fit(series()).predict(STEPS)
    assert_kept(forecaster.pretrained_.network, before, 0.0)
    with pytest.raises(AssertionError):
        assert_kept(forecaster.network_, before)
    assert forecaster.n_epochs_ == 2
    again = forecaster.fit(series()).predict(STEPS)
    pd.testing.assert_series_equal(again, first, check_exact=True)


@pytest.mark.slow
def test_weights_lengths_and_units_are_kept_from_the_first_pretraining() -> None:
    forecaster = pretrained(finetune_epochs=1, window_length=None, horizon=None)
    first = forecaster.pretrained_
    before = copy.deepcopy(first.network)
    forecaster.set_params(lr=1e-9)  # which keeps what was pretrained
    assert forecaster.state == "pretrained"
    slow = waves(pd.date_range("2021", periods=20, freq="D")) + 100
    for y in (series(), slow, series()):
        assert_kept(forecaster.fit(y).network_, before)
        lengths = forecaster.window_length_, forecaster.horizon_
        assert lengths == (first.window_length, first.horizon)
        assert forecaster.time_unit_ == pd.Timedelta(first.units.time, unit="ns")
        assert forecaster.location_ == first.units.location
        assert forecaster.scale_ == first.units.scale
        forecaster.pretrain(panel((12, 14)))  # goes on from the first
    assert_kept(first.network, before, 0.0)
    assert not hasattr(forecaster.reset(), "pretrained_")


@pytest.mark.parametrize(
    ("given", "y", "message"),
    [
        ({"hidden_size": 5}, series(), r"same hidden_size, 3; got 5.*fresh clone"),
        ({}, waves(), r"index, .datetimes.*got .integers"),
        ({}, waves(pd.period_range("2020-01", periods=20, freq="M")), "of frequency M"),
        ({}, channels(uneven_stamps()), "number of columns of y, 1; got 2"),
    ],
)
def test_what_the_trained_network_is_not_for_is_refused(
    given: dict[str, Any], y: Any, message: str
) -> None:
    forecaster = tiny().pretrain(panel())
    with pytest.raises(ValueError, match=message):
        forecaster.set_params(**given).fit(y)
    assert forecaster.clone().reset().fit(y).is_fitted


# Updates


def test_an_update_continues_from_the_current_weights_and_units() -> None:
    y = series()
    forecaster = tiny(finetune_epochs=4, lr=0.05, model="paper").fit(y[:18])
    slow, other = copy.deepcopy(forecaster), copy.deepcopy(forecaster)
    slow.lr = 1e-9
    assert_kept(slow.update(y[18:]).network_, forecaster.network_)
    before, unit = weights(forecaster), forecaster.time_unit_
    trained = weights(forecaster.update(y[18:]))
    assert np.abs(trained - before).max() > 1e-3
    assert np.abs(weights(other.update(y[18:] + 2)) - trained).max() > 1e-4
    assert forecaster.time_unit_ == unit


def test_repeated_updates_take_a_fifth_of_the_training_from_scratch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sklode.latent_ode.training._UPDATES", 47)
    y, forecaster = series(), tiny(max_epochs=None, lr=0.01)
    forecaster.pretrain(panel()).set_params(finetune_epochs=3).fit(y[:14])
    assert forecaster.n_epochs_ == 3
    forecaster.finetune_epochs = None
    for k in (14, 16):
        forecaster.update(y[k : k + 2])
        assert forecaster.n_epochs_ == 9
        assert forecaster.history_["lr"].max() == pytest.approx(0.01, rel=0.1)
    forecaster.max_epochs = 10
    assert forecaster.update(y[20:]).n_epochs_ == 2


# What ends early


def test_a_fit_that_an_error_ended_leaves_nothing() -> None:
    y = series()
    for forecaster in (tiny(), tiny(finetune_epochs=2).pretrain(panel())):
        expected = weights(copy.deepcopy(forecaster).fit(y))
        with interrupt(ZeroDivisionError()), pytest.raises(ZeroDivisionError):
            forecaster.fit(y)
        assert np.array_equal(weights(forecaster.fit(y)), expected)
