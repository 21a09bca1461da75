"""Averages of the weights: what they are, when they are looked at, and kept."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sklode.nn import Batch
from tests.series import tiny, waves
from tests.trainees import Trainee, batch, linear, train


class Watched(Trainee):
    """A trainee with a matrix that keeps its weights at each validation."""

    def __init__(self, held_out: list[float]) -> None:
        super().__init__(linear, held_out=held_out)
        self.matrix = nn.Parameter(torch.ones(1, 2))
        self.validated: list[list[float]] = []

    def weights(self) -> list[float]:
        return [float(self.w.detach()), *self.matrix[0].tolist()]

    def forward(self, batch: Batch, noise: Tensor | None = None) -> Any:
        if not self.training:
            self.validated.append(self.weights())
        bound = super().forward(batch, noise)
        drawn = self.matrix.sum() * batch.values[0, 0, 0]
        return bound._replace(log_likelihood=bound.log_likelihood + drawn)


def averages(weights: list[list[float]], averaging: float) -> list[Any]:
    """Return the means after each step by weights before and after the steps."""
    mean, found = torch.tensor(weights[0]), []
    for n, latest in enumerate(weights[1:]):
        decay = min(averaging, (1 + n) / (10 + n))
        mean = decay * mean + (1 - decay) * torch.tensor(latest)
        found.append(pytest.approx(mean.tolist(), rel=1e-5))
    return found


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_averages_of_the_weights_are_validated_and_kept(weight_decay: float) -> None:
    losses = [5.0, 4.0, 3.0, 2.0, 1.0, 2.0, 3.0]
    network = Watched(losses)
    latest = [network.weights()]

    def keep(row: dict[str, float]) -> bool:
        latest.append(network.weights())
        return False

    settings: dict[str, Any] = {"weight_decay": weight_decay, "lr": 0.1}
    trainer = train(
        network,
        [batch(math.nan), batch()],  # a step that is skipped does not count
        validation=[batch()],
        on_epoch_end=keep,
        max_epochs=7,
        averaging=0.3,
        **settings,
    )
    # what is trained are the latest weights: the same without averages
    plain = Watched(losses)
    train(plain, [batch(math.nan), batch()], [batch()], max_epochs=7, **settings)
    assert plain.validated == latest[1:]
    expected = averages(latest, 0.3)
    assert network.validated == expected
    assert trainer.best_epoch == 5
    assert network.weights() == expected[4]
    assert network.weights() != pytest.approx(latest[5], rel=0.01)


def test_without_validation_the_last_averages_are_kept() -> None:
    network = Watched([])
    latest = [network.weights()]

    def keep(row: dict[str, float]) -> bool:
        latest.append(network.weights())
        return False

    train(network, [batch()], (), keep, max_epochs=12, lr=0.1, averaging=0.999)
    # over so few steps the mean is over fewer still
    assert network.weights() == averages(latest, 0.999)[-1]


def test_without_averaging_the_last_weights_are_kept() -> None:
    network, seen = Watched([]), []

    def keep(row: dict[str, float]) -> bool:
        seen.append(network.weights())
        return False

    train(network, [batch()], (), keep, max_epochs=4, lr=0.1, averaging=0.0)
    assert network.weights() == seen[-1] != seen[-2]


def test_averages_that_have_no_finite_loss_are_not_kept() -> None:
    settings: dict[str, Any] = {"max_epochs": 1, "lr": 0.1}
    ends = []
    for averaging in (0.0, 0.9):
        network = Trainee(linear)
        train(network, [batch()] * 9, averaging=averaging, **settings)
        ends.append(float(network.w.detach()))
    between = sum(ends) / 2

    def beyond(w: Tensor, number: Tensor) -> Tensor:
        known = torch.tensor(torch.is_grad_enabled()) | (w < between)
        return torch.where(known, -w, torch.nan)

    latest, averaged = Trainee(beyond), Trainee(beyond)
    assert train(latest, [batch()] * 9, **settings).best_epoch == 1
    assert float(latest.w.detach()) == ends[0] < between < ends[1]
    trainer = train(averaged, [batch()] * 9, averaging=0.9, **settings)
    assert trainer.best_epoch == 0
    assert float(averaged.w.detach()) == 1.0


def test_a_forecaster_forecasts_with_averages() -> None:
    y, steps = waves(), [-3, 1, 4]
    settings: dict[str, Any] = {"max_epochs": 30, "lr": 0.05}
    latest = tiny(**settings).fit(y)
    averaged = tiny(averaging=0.9, **settings).fit(y)
    # they were trained alike
    assert averaged.history_["loss"].tolist() == latest.history_["loss"].tolist()
    assert averaged.best_epoch_ == 30
    moves = (averaged.predict(steps) - latest.predict(steps)).abs()
    assert moves.min() > 1e-6
    assert tiny().averaging == 0.0
