"""A training that diverges goes on from before it did, at half the rate, or says so."""

from __future__ import annotations

import math
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from sklode.training import recovery as recovery_module
from sklode.training.descent import Descent
from sklode.training.loop import Trainer
from sklode.training.recovery import Recovery
from tests.training.trainees import (
    Trainee,
    batch,
    bowl,
    column,
    linear,
    root,
    train,
    trainer_of,
)


@pytest.fixture
def _single(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge each epoch by itself, however few its steps are."""
    monkeypatch.setattr(recovery_module, "_JUDGED_STEPS", 1)


SINGLE = pytest.mark.usefixtures("_single")
SGD = pytest.mark.usefixtures("sgd")


def thrown(
    at: dict[int, float], held_out: list[float] | None = None
) -> tuple[Trainer, list[float]]:
    """Train on one batch of number 2, and overwrite the weight in some epochs.

    Returns the trainer and the weights at the beginning of each epoch and at the end.
    """
    network = Trainee(bowl, weight=3.0, held_out=held_out or [])
    seen: list[float] = []

    def draw(epoch: int) -> Any:
        seen.append(network.weight)
        if epoch in at:
            network.throw(at[epoch])
        return [batch(2.0)] * 3

    trainer = trainer_of(network, 9, 3, lr=0.05, clip_norm=None)
    trainer.fit(draw, [batch()] if held_out else [])
    return trainer, [*seen, network.weight]


@SINGLE
@pytest.mark.parametrize("weight", [50.0, math.nan])
def test_a_diverged_epoch_is_undone_and_the_rate_halved(weight: float) -> None:
    trainer, seen = thrown({5: weight})
    assert column(trainer, "restored_epoch") == [0, 0, 0, 0, 4, 0, 0, 0, 0]
    # the sixth epoch begins where the fourth did
    assert seen[5] == seen[3] != seen[4]
    assert abs(seen[-1] - 2) < abs(seen[5] - 2)
    assert trainer.best_epoch == 9
    if math.isnan(weight):
        assert column(trainer, "skipped_steps") == [0, 0, 0, 0, 3, 0, 0, 0, 0]
        return
    assert trainer.rows[4]["loss"] > 100  # of the epoch as it was
    steady, _ = thrown({})
    ratio = np.divide(column(trainer, "lr"), column(steady, "lr"))
    np.testing.assert_allclose(ratio, [1] * 5 + [0.5] * 4, rtol=1e-6)


@SINGLE
def test_the_diverged_end_of_a_training_is_not_kept() -> None:
    trainer, seen = thrown({9: 50.0})
    assert column(trainer, "restored_epoch")[-1] == 8
    assert seen[-1] == seen[7]
    assert trainer.best_epoch == 7
    # nor is what was validated, but as that which it is after going back
    trainer, seen = thrown({5: 50.0}, [9.0, 8.0, 7.0, 6.0, 1.0, 9.0, 9.0, 9.0, 9.0])
    assert seen[-1] == seen[5] == seen[3]
    assert trainer.best_epoch == 3  # whose weights they are


@SINGLE
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
    trainer = trainer_of(Trainee(log_likelihood, weight=2.5), 4, 1)
    trainer.fit(lambda epoch: [batch(numbers[epoch - 1])])
    assert column(trainer, "restored_epoch") == [0] * 4


@SINGLE
def test_training_is_given_up_when_it_diverges_again_and_again() -> None:
    network = Trainee(bowl, weight=2.1)
    told = r"diverged again and again, down to a rate of 7\.\d+e-06; .*Lower lr"
    with pytest.warns(ConvergenceWarning, match=told):
        trainer = train(
            network,
            [batch(2.0)] * 3,
            told=lambda _: network.throw(50.0),
            n_epochs=30,
            lr=1e-3,
        )
    assert column(trainer, "restored_epoch") == [0] + [1] * 7
    assert network.weight == pytest.approx(2.1)


def ends_of(losses: list[float], n_batches: int) -> list[int]:
    """Return what epochs of these losses go back to; the weights are the losses."""
    network, found = Trainee(linear), []
    with closing(Descent(network, 0.1, 1)) as descent:
        recovery = Recovery(n_batches)
        for epoch, loss in enumerate(losses, start=1):
            network.throw(loss)
            recovery.epoch_begins(epoch, descent)
            found.append(
                recovery.epoch_ends(loss, True, descent, lambda: network.weight)
            )
            if found[-1]:
                assert network.weight == pytest.approx(losses[found[-1] - 1])
    return found


def test_the_best_epoch_of_all_is_remembered() -> None:
    # it creeps upward: each epoch is hardly worse than those just before
    losses = np.arange(0.0, 1.95, 0.05).tolist()
    found = ends_of(losses, 20)
    first = next(k for k, epoch in enumerate(found) if epoch)
    assert found[first] == 1
    assert losses[first] == pytest.approx(1.45)  # the first above that of a constant


@pytest.mark.parametrize(("n_batches", "n_judged"), [(20, 1), (7, 3), (5, 4), (2, 10)])
def test_epochs_of_few_steps_are_judged_together(n_batches: int, n_judged: int) -> None:
    quiet = [0.5] * 20
    one = ends_of([*quiet, 3.0, *quiet], n_batches)
    # 3 alone, or among two of 0.5: 1.33, below a constant's 1.42
    assert any(one) == (n_judged == 1)
    many = ends_of([*quiet, *[3.0] * 12], n_batches)
    # from 1.42 on: one of one, two of three, two of four, four of ten
    first = next(k for k, epoch in enumerate(many) if epoch) - 20
    assert first == {1: 0, 3: 1, 4: 1, 10: 3}[n_judged]
    assert many[20 + first] <= 20
    assert not any(many[20 + first + 1 : 20 + first + n_judged])


# Ends of trainings


@SGD
@pytest.mark.parametrize(
    ("n_batches", "n_epochs", "weight"), [(20, 15, 1.0), (1, 15, 1.0), (3, 2, 1.0)]
)
def test_weights_whose_loss_is_not_finite_are_not_kept(
    n_batches: int, n_epochs: int, weight: float
) -> None:
    # the first step leaves the domain of the root: no later loss is finite
    network, batches = Trainee(root, weight=weight), [batch()] * n_batches
    with pytest.warns(ConvergenceWarning, match="those before training are kept"):
        train(network, batches, n_epochs=n_epochs, lr=1000.0, clip_norm=None)
    assert network.weight == weight


@SGD
def test_a_divergence_at_the_end_restores_the_last_weights_before_it() -> None:
    # the step size outgrows what is left of the root's domain
    network, seen = Trainee(root, weight=4.0), [4.0]
    with pytest.warns(ConvergenceWarning, match="last good weights"):
        trainer = train(
            network,
            [batch()],
            told=lambda _: seen.append(network.weight),
            n_epochs=40,
            lr=2.0,
            clip_norm=None,
        )
    good = [w for w in seen if w > 0]
    assert len(good) > 4
    assert network.weight == good[-1] == seen[trainer.best_epoch]


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

    def told(row: dict[str, float]) -> None:
        kept.append(network.weight)
        if len(kept) > 2:  # push it out of the root's domain
            network.throw(-1.0)

    with pytest.warns(ConvergenceWarning, match=f"of epoch {best}, are kept"):
        train(network, [batch()] * 5, [batch()], told, n_epochs=9, lr=1e-3)
    assert network.weight == kept[best]


@SGD
def test_a_training_that_made_the_model_worse_says_so_and_what_to_change() -> None:
    told = (
        r"made the model worse: .* is [\d.e+]+, and was 0\.5 when epoch 1 began; "
        r".*Lower lr \(lr=5\), or set clip_norm.*smaller step_size.*'auto' has a guard"
    )
    network, batches = Trainee(bowl), [batch(0.0)] * 10
    with pytest.warns(ConvergenceWarning, match=told):
        trainer = train(network, batches, n_epochs=2, lr=5.0, clip_norm=None)
    assert (trainer.best_epoch, network.weight) == (0, 1.0)


def test_a_training_that_goes_wrong_late_goes_back_to_its_best_epoch() -> None:
    network, seen = Trainee(bowl, weight=3.0), [3.0]

    def told(row: dict[str, float]) -> None:
        seen.append(network.weight)
        if row["epoch"] == 4:
            network.throw(50.0)

    batches = [batch(0.0)] * 4
    settings: dict[str, Any] = {"lr": 0.1, "clip_norm": None}
    with pytest.warns(ConvergenceWarning, match=r"when epoch 4 began; .* of epoch 3"):
        trainer = train(network, batches, (), told, n_epochs=5, **settings)
    assert (trainer.best_epoch, network.weight) == (3, seen[3])


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_an_end_above_the_start_by_chance_is_no_divergence(weight: float) -> None:
    # at most 0.5 * 1.3 ** 2 from its optimum: less than a constant's loss
    train(Trainee(bowl, weight=weight), [batch(0.0)] * 3, lr=0.3, clip_norm=None)
