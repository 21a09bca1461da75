"""Parameters that cannot be used are refused before training, by name."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd
import pytest

from sklode import LatentODELSTMForecaster
from sklode.training.trainer import Trainer
from tests.series import tiny, uneven_stamps, waves


class TrainedError(Exception):
    """Training began, although the input cannot be used."""


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a test whose error comes only after training has begun."""

    def fit(*args: Any, **kwargs: Any) -> None:
        raise TrainedError

    monkeypatch.setattr(Trainer, "fit", fit)


NAN = float("nan")
NOT_A_SIZE: list[Any] = [0, -1, 2.5, "8", None, NAN]
NOT_A_POSITIVE: list[Any] = [0, -0.5, "1", None, NAN, float("inf")]
NOT_A_BOOL: list[Any] = ["yes", None, 2]

BAD_PARAMETERS: dict[str, list[Any]] = {
    "encoder": ["gru", 5, dict],
    "n_networks": [0, 1.5, 101, None],
    "hidden_size": NOT_A_SIZE,
    "latent_size": NOT_A_SIZE,
    "field_width": NOT_A_SIZE,
    "field_depth": NOT_A_SIZE,
    "emission_width": NOT_A_SIZE,
    "window_length": [0, -1, 2.5, "8", NAN],
    "horizon": [-1, 2.5, "8", NAN],
    "thinning": [-0.1, 1, "0.5", None, NAN],
    "model": ["minmax", "window", "auto", 1, True, None],
    "bounds": [5, "0 to 100", 1.5],
    "error": [["sigma"], {"sigma"}],
    "holidays": [5, 1.5],
    "method": ["rk5", 4, None],
    "step_size": NOT_A_POSITIVE,
    "clip_norm": [0, -1.0, "auto", NAN],
    "kl_weight": [-0.5, "1", None, NAN],
    "max_epochs": [0, -1, 2.5, "8"],
    "batch_size": NOT_A_SIZE,
    "lr": NOT_A_POSITIVE,
    "weight_decay": [-0.5, "1", None, NAN],
    "guard": NOT_A_BOOL,
    "early_stopping": NOT_A_BOOL,
    "finetune_epochs": [-1, 2.5, "8"],
    "n_samples": NOT_A_SIZE,
    "clean": NOT_A_BOOL,
    "freq": ["fortnightish", "-1h", "0h", 5, pd.Timedelta(0)],
    "device": ["abacus", None, 1],
    "random_state": ["seed", -1, 0.5],
    "verbose": [-1, 3, "loud", None],
    "level": ["minmax", "hybrid", 1, True, None],
}


def test_every_parameter_has_bad_values_here() -> None:
    assert set(BAD_PARAMETERS) == set(LatentODELSTMForecaster().get_params())


@pytest.mark.usefixtures("untrained")
@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, values in BAD_PARAMETERS.items() for value in values],
)
def test_a_bad_parameter_is_refused_by_name(name: str, value: Any) -> None:
    forecaster = tiny(**{name: value})
    received = value[0] if isinstance(value, list) else value
    message = f"(?s){name}.*{re.escape(str(received))}"
    with pytest.raises((ValueError, TypeError), match=message):
        forecaster.fit(waves(uneven_stamps()))


@pytest.mark.usefixtures("untrained")
def test_a_guard_has_nothing_to_prove_without_a_level() -> None:
    message = (
        r"guard=True belongs to model=.hybrid.*; got model=.paper.\. Use model=.hybrid"
    )
    with pytest.raises(ValueError, match=message):
        tiny(model="paper", guard=True).fit(waves(uneven_stamps()))
