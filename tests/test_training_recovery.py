"""A training that diverges goes on from before it did, at half the rate."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from sklode.training import recovery as recovery_module
from sklode.training.loop import Trainer
from sklode.training.recovery import Recovery
from tests.series import tiny, waves
from tests.trainees import Trainee, batch, column, train


@pytest.fixture(autouse=True)
def single(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge each epoch by itself, however few its steps are."""
    monkeypatch.setattr(recovery_module, "_JUDGED_STEPS", 1)


def bowl(w: Tensor, number: Tensor) -> Tensor:
    """A log-likelihood whose best weight is the batch's number."""
    return -0.5 * (w - number) ** 2


def thrown(
    at: dict[int, float], held_out: list[float] | None = None, averaging: float = 0.0
) -> Any:
    """Train on one batch of number 2, and overwrite the weight in some epochs.

    Returns the trainer, the weight at the end of each epoch and the one left.
    """
    network = Trainee(bowl, weight=3.0, held_out=held_out or [])
    seen, step = [], Trainer.train_step

    class Thrown(Trainer):
        def train_step(self, batch: Any, kl: float, gen: Any, epoch: int) -> Any:
            if epoch in at:
                with torch.no_grad():
                    network.w.fill_(at.pop(epoch))
            return step(self, batch, kl, gen, epoch)

    settings: dict[str, Any] = {"max_epochs": 9, "lr": 0.05, "clip_norm": None}
    trainer = Thrown(network, averaging=averaging, **settings)

    def draw(epoch: int, generator: torch.Generator) -> Any:
        if epoch > 1:
            seen.append(float(network.w.detach()))
        return [batch(2.0)] * 3

    validation = [batch()] if held_out else []
    trainer.fit(draw, 3, torch.Generator(), validation)
    return trainer, seen, float(network.w.detach())


def test_a_diverged_epoch_is_undone() -> None:
    trainer, seen, left = thrown({5: 50.0})
    assert column(trainer, "restored_epoch") == [0, 0, 0, 0, 4, 0, 0, 0, 0]
    assert trainer.history[4]["loss"] > 100  # of the epoch as it was
    assert seen[4] == seen[2]  # after the fifth epoch: the beginning of the fourth
    assert abs(left - 2) < abs(seen[4] - 2)
    assert trainer.best_epoch == 9


def test_the_rate_is_half_after_a_divergence() -> None:
    steady, _, _ = thrown({})
    trainer, _, _ = thrown({5: 50.0})
    ratio = np.divide(column(trainer, "lr"), column(steady, "lr"))
    np.testing.assert_allclose(ratio, [1] * 5 + [0.5] * 4, rtol=1e-6)


def test_moments_are_taken_back_with_the_weights() -> None:
    w = torch.nn.Parameter(torch.tensor([1.0]))
    optimizer = torch.optim.Adam([w], lr=0.1)
    recovery = Recovery([w], optimizer, lambda: float(w.detach()) ** 2, 1)

    def take(gradient: float) -> None:
        w.grad = torch.tensor([gradient])
        optimizer.step()

    def state() -> dict[str, float]:
        return {name: float(value) for name, value in optimizer.state[w].items()}

    take(1.0)
    recovery.epoch_begins(1)
    before, weight = state(), float(w.detach())
    take(2.0)
    assert recovery.epoch_ends(0.5, True) == 0
    recovery.epoch_begins(2)
    take(-1e4)
    with torch.no_grad():
        w.fill_(100.0)
    assert state() != before
    assert recovery.epoch_ends(20.0, True) == 1
    assert (state(), float(w.detach())) == (before, weight)


def test_averages_begin_anew_where_training_goes_back() -> None:
    trainer, _, left = thrown({5: 50.0}, averaging=0.99)
    assert column(trainer, "restored_epoch") == [0, 0, 0, 0, 4, 0, 0, 0, 0]
    assert 2 < left < 3  # nothing of the weight of 50 is in it
    trainer, seen, left = thrown({9: 50.0}, averaging=0.99)
    assert column(trainer, "restored_epoch")[-1] == 8
    assert left == seen[6]


def test_the_diverged_end_of_a_training_is_not_kept() -> None:
    trainer, seen, left = thrown({9: 50.0})
    assert column(trainer, "restored_epoch")[-1] == 8
    assert left == seen[6]  # the beginning of the eighth epoch
    assert trainer.best_epoch == 7


def test_validated_weights_are_restored_ones_after_a_divergence() -> None:
    losses = [9.0, 8.0, 7.0, 6.0, 1.0, 9.0, 9.0, 9.0, 9.0]
    trainer, seen, left = thrown({5: 50.0}, losses)
    assert left == seen[4] == seen[2]
    assert trainer.best_epoch == 3  # whose weights they are


@pytest.mark.parametrize("number", [50.0, math.nan])
def test_data_that_were_hard_are_no_divergence(number: float) -> None:
    # the second epoch's loss is large, and as large under the weights of before
    epochs = {1: 2.0, 2: number, 3: 2.0, 4: 2.0}
    network = Trainee(bowl, weight=2.5)
    trainer = Trainer(network, max_epochs=4, lr=0.01)
    trainer.fit(lambda epoch, _: [batch(epochs[epoch])], 1, torch.Generator())
    assert column(trainer, "restored_epoch") == [0] * 4


def test_a_training_that_knows_nothing_yet_has_nothing_to_go_back_to() -> None:
    # the loss never was below that of a constant, 1.42
    network = Trainee(lambda w, number: -number - 5 + 0.0 * w)
    numbers = iter([0.0, 1.0, 9.0, 30.0])
    trainer = Trainer(network, max_epochs=4, lr=0.01)
    trainer.fit(lambda *_: [batch(next(numbers))], 1, torch.Generator())
    assert column(trainer, "restored_epoch") == [0] * 4


def test_an_epoch_without_a_finite_step_is_undone() -> None:
    trainer, seen, left = thrown({5: math.nan})
    assert column(trainer, "skipped_steps") == [0, 0, 0, 0, 3, 0, 0, 0, 0]
    assert column(trainer, "restored_epoch") == [0, 0, 0, 0, 4, 0, 0, 0, 0]
    assert seen[4] == seen[2]
    assert abs(left - 2) < abs(seen[4] - 2)


def test_old_epochs_are_gone_back_to_when_recent_ones_are_no_better() -> None:
    w = torch.nn.Parameter(torch.tensor([0.0]))
    optimizer = torch.optim.SGD([w], lr=0.1)
    recovery = Recovery([w], optimizer, lambda: float(w.detach()), 1)
    # it creeps upward: each epoch is hardly worse than the one before
    for epoch, loss in enumerate(np.arange(0.0, 1.95, 0.05), start=1):
        with torch.no_grad():
            w.fill_(loss)
        recovery.epoch_begins(epoch)
        restored = recovery.epoch_ends(loss, True)
        if restored:
            break
    assert restored == 1
    assert loss == pytest.approx(1.45)  # the first above that of a constant
    assert float(w.detach()) == 0.0


def ends_of(losses: list[float], n_batches: int) -> list[int]:
    """Return what epochs of these losses go back to; the weights are the losses."""
    w = torch.nn.Parameter(torch.tensor([0.0]))
    optimizer = torch.optim.SGD([w], lr=0.1)
    recovery = Recovery([w], optimizer, lambda: float(w.detach()), n_batches)
    found = []
    for epoch, loss in enumerate(losses, start=1):
        with torch.no_grad():
            w.fill_(loss)
        recovery.epoch_begins(epoch)
        found.append(recovery.epoch_ends(loss, True))
    return found


@pytest.mark.parametrize(("n_batches", "n_judged"), [(20, 1), (7, 3), (5, 4), (2, 10)])
def test_epochs_of_few_steps_are_judged_together(
    monkeypatch: pytest.MonkeyPatch, n_batches: int, n_judged: int
) -> None:
    monkeypatch.setattr(recovery_module, "_JUDGED_STEPS", 20)
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


def test_training_is_given_up_when_it_diverges_again_and_again() -> None:
    network, good = Trainee(bowl, weight=2.1), []

    def push(row: dict[str, float]) -> bool:
        good.append(float(network.w.detach()))
        with torch.no_grad():
            network.w.fill_(50.0)
        return False

    with pytest.warns(ConvergenceWarning, match=r"diverged again and again.*Lower lr"):
        trainer = train(
            network, [batch(2.0)] * 3, on_epoch_end=push, max_epochs=30, lr=1e-3
        )
    restored = column(trainer, "restored_epoch")
    assert restored == [0] + [1] * 7
    assert float(network.w.detach()) == pytest.approx(2.1)


def steep(w: Tensor, number: Tensor) -> Tensor:
    return bowl(w, number) * 10


def test_a_rate_that_is_too_high_ends_in_a_good_fit() -> None:
    settings: dict[str, Any] = {"clip_norm": None, "optimizer": "sgd"}
    network = Trainee(steep, weight=2.3)
    trainer = train(network, [batch(2.0)] * 5, max_epochs=60, lr=2.0, **settings)
    # steps of a parabola grow from a rate of 2 (1 + momentum) / curvature on
    restored = [r for r in trainer.history if r["restored_epoch"]]
    assert len(restored) >= 2
    assert all(row["lr"] > 0.3 for row in restored)
    assert float(network.w.detach()) == pytest.approx(2.0, abs=1e-3)


def test_what_does_not_diverge_is_trained_as_without_recovery(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def weights() -> list[float]:
        return [float(v) for v in tiny().fit(waves()).history_["loss"]]

    with_recovery = weights()
    monkeypatch.setattr(Recovery, "epoch_begins", lambda *_: None)
    monkeypatch.setattr(Recovery, "epoch_ends", lambda *_: 0)
    assert weights() == with_recovery
