"""A training that diverges goes back to its best weights, or is given up."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

from sklode import LatentODELSTMForecaster
from sklode.training.trainer import Trainer
from tests.cases import slow
from tests.training.trainees import (
    Trainee,
    batch,
    bowl,
    column,
    linear,
    root,
    train,
    trained,
)

SGD = pytest.mark.usefixtures("sgd")


def thrown(
    at: dict[int, float], held_out: list[float] | None = None, **given: Any
) -> tuple[Trainer, list[float]]:
    """Train on batches of number 2, and overwrite the weight in some epochs.

    Returns the trainer and the weights at the beginning of each epoch and at the end.
    """
    network = Trainee(bowl, weight=3.0, held_out=held_out or [])
    seen: list[float] = []

    def draw(epoch: int) -> Any:
        seen.append(network.weight)
        if epoch in at:
            network.throw(at[epoch])
        return [batch(2.0)] * 20

    validation = batch() if held_out else None
    trainer = trained(
        network, draw, 9, 20, validation, lr=0.01, clip_norm=None, **given
    )
    return trainer, [*seen, network.weight]


@pytest.mark.parametrize("weight", [50.0, math.nan])
def test_a_diverged_epoch_is_undone_and_the_rate_halved(weight: float) -> None:
    trainer, seen = thrown({5: weight})
    assert column(trainer, "restored_epoch") == [0, 0, 0, 0, 4, 0, 0, 0, 0]
    # the sixth epoch begins where the fourth did
    assert seen[5] == seen[3] != seen[4]
    assert abs(seen[-1] - 2) < abs(seen[5] - 2)
    assert trainer.best_epoch == 9
    if math.isnan(weight):
        assert column(trainer, "skipped_steps") == [0, 0, 0, 0, 10, 0, 0, 0, 0]
        return
    assert trainer.records[4]["loss"] > 100  # of the epoch as it was
    steady, _ = thrown({})
    ratio = np.divide(column(trainer, "lr"), column(steady, "lr"))
    np.testing.assert_allclose(ratio, [1] * 5 + [0.5] * 4, rtol=1e-6)


def test_the_diverged_end_of_a_training_is_not_kept() -> None:
    trainer, seen = thrown({9: 50.0})
    assert column(trainer, "restored_epoch")[-1] == 8
    assert seen[-1] == seen[7]
    assert trainer.best_epoch == 7
    # nor is what was validated, but as that which it is after going back
    trainer, seen = thrown({5: 50.0}, [9.0, 8.0, 7.0, 6.0, 1.0, 9.0, 9.0, 9.0, 9.0])
    assert seen[-1] == seen[5] == seen[3]
    assert trainer.best_epoch == 3  # whose weights they are


def test_while_windows_grow_training_goes_back_to_the_last_epoch() -> None:
    numbers = {1: 3.0, 2: 2.5, 3: 2.0, 4: 2.0}  # windows that are ever harder
    network = Trainee(bowl, weight=3.0)

    def draw(epoch: int) -> Any:
        if epoch == 5:
            network.throw(50.0)
        return [batch(numbers.get(epoch, 2.0))] * 20

    trainer = trained(network, draw, 5, 20, lr=1e-3, clip_norm=None, warm_up_epochs=4)
    assert column(trainer, "restored_epoch") == [0, 0, 0, 0, 4]


@pytest.mark.parametrize(
    ("log_likelihood", "numbers"),
    [
        # as hard under the weights of before
        (bowl, [2.0, 50.0, 2.0, 2.0]),
        (bowl, [2.0, math.nan, 2.0, 2.0]),
        # the loss never was below that of a constant, 1.42
        (lambda w, number: -number - 5 + 0.0 * w, [0.0, 1.0, 9.0, 30.0]),
    ],
)
def test_data_that_were_hard_are_no_divergence(
    log_likelihood: Any, numbers: list[float]
) -> None:
    trainer = trained(
        Trainee(log_likelihood, weight=2.5),
        draw=lambda epoch: [batch(numbers[epoch - 1])] * 9,
        n_epochs=4,
        n_batches=9,
    )
    assert column(trainer, "restored_epoch") == [0] * 4


def test_training_is_given_up_when_it_diverges_again_and_again() -> None:
    network = Trainee(bowl, weight=2.1)
    with pytest.warns(ConvergenceWarning, match=r"went back 6 times.*Lower lr"):
        trainer = train(
            network,
            [batch(2.0)] * 20,
            after=lambda _: network.throw(50.0),
            n_epochs=30,
            lr=1e-3,
        )
    assert column(trainer, "restored_epoch") == [0] + [1] * 6 + [0]
    assert network.weight == pytest.approx(2.1)


@pytest.mark.parametrize(("n_batches", "n_judged"), [(7, 3), slow(20, 1), slow(2, 10)])
def test_epochs_of_few_steps_are_judged_together(n_batches: int, n_judged: int) -> None:
    network = Trainee(linear, weight=0.5)

    def draw(epoch: int) -> Any:
        network.throw(3.0 if 30 < epoch <= 30 + n_judged else 0.5)
        return [batch()] * n_batches

    trainer = trained(network, draw, 60, n_batches, lr=1e-9)
    restored = column(trainer, "restored_epoch")
    assert [k for k, epoch in enumerate(restored, 1) if epoch] == [30 + n_judged]
    assert max(restored) <= 30


# Ends of trainings


@SGD
@pytest.mark.parametrize("n_batches", [20, 3])
def test_weights_whose_loss_is_not_finite_are_not_kept(n_batches: int) -> None:
    # the first step leaves the domain of the root: no later loss is finite
    network, batches = Trainee(root, weight=1.0), [batch()] * n_batches
    with pytest.warns(ConvergenceWarning, match="from before are kept"):
        train(network, batches, n_epochs=9, lr=1000.0, clip_norm=None)
    assert network.weight == 1.0


@pytest.mark.parametrize(
    ("losses", "best"),
    [
        ([3.0, 2.0, *[4.0] * 7], 2),
        # of an epoch without a step, to which validation is blind
        ([3.0, 2.0, 1.0, 0.5, *[4.0] * 5], 2),
    ],
)
def test_a_divergence_restores_the_best_validated_weights(
    losses: list[float], best: int
) -> None:
    network, kept = Trainee(root, held_out=losses), [1.0]

    def broken(row: dict[str, float]) -> None:
        kept.append(network.weight)
        if len(kept) > 2:  # push it out of the root's domain
            network.throw(-1.0)

    with pytest.warns(ConvergenceWarning, match=f"weights of epoch {best} are kept"):
        train(network, [batch()] * 5, batch(), broken, n_epochs=9, lr=1e-3)
    assert network.weight == kept[best]


@SGD
def test_a_training_that_made_the_model_worse_says_so_and_what_to_change() -> None:
    message = (
        r"diverged: .* is [\d.e+]+, and 0\.5 with the weights of epoch 0; "
        r".*Lower lr \(lr=5\), or set clip_norm.*step_size.*'hybrid' keeps what"
    )
    network, batches = Trainee(bowl), [batch(0.0)] * 10
    with pytest.warns(ConvergenceWarning, match=message):
        trainer = train(network, batches, n_epochs=2, lr=5.0, clip_norm=None)
    assert (trainer.best_epoch, network.weight) == (0, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("early_stopping", [False, True])
def test_weights_far_worse_than_those_before_training_are_not_kept(
    early_stopping: bool,
) -> None:
    # epochs of one step: each block that is judged ends in steps that are not finite
    noise = np.random.RandomState(0).randn(120)
    y = pd.Series(np.sin(np.arange(120) / 4) + 0.1 * noise)
    forecaster = LatentODELSTMForecaster(
        model="paper",
        max_epochs=40,
        lr=1000.0,
        clip_norm=None,
        window_length=12,
        horizon=4,
        early_stopping=early_stopping,
        random_state=0,
    )
    with pytest.warns(ConvergenceWarning, match="from before are kept"):
        forecaster.fit(y)
    assert forecaster.best_epoch_ == 0
    assert forecaster.predict([1, 2, 3]).abs().max() < 1
