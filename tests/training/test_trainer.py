"""Epochs and steps: what is maximised, clipped, skipped, stopped for and kept."""

import math
import time
from typing import Any

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

from sklode.data.errors import SolverError
from sklode.training import trainer as loop
from sklode.training.trainer import HISTORY_COLUMNS
from tests.training.trainees import (
    Recording,
    Trainee,
    batch,
    bowl,
    column,
    linear,
    root,
    train,
)


def test_loss_is_the_negative_elbo_per_observed_value() -> None:
    network = Trainee(
        lambda w, number: -6.0 * number + 0.0 * w, kl=lambda w, number: 4.0 + w
    )
    # log-likelihoods -6 and -12, a KL of 5, over 2 and 4 values
    batches = [batch(1.0, n_observed=2), batch(2.0, n_observed=4)]
    started = time.perf_counter()
    settings: dict[str, Any] = {"kl_weight": 0.5, "lr": 1e-9, "warm_up_epochs": 2}
    trainer = train(network, batches, n_epochs=3, **settings)
    assert all(tuple(row) == HISTORY_COLUMNS for row in trainer.records)
    assert column(trainer, "epoch") == [1, 2, 3]
    assert 0 < sum(column(trainer, "seconds")) < time.perf_counter() - started
    assert column(trainer, "log_likelihood") == pytest.approx([-3.0] * 3)
    assert column(trainer, "kl") == pytest.approx([(2.5 + 1.25) / 2] * 3)
    # a fiftieth of the weight in the warm-up
    assert column(trainer, "kl_weight") == pytest.approx([0.01, 0.01, 0.5])
    losses = [3 + 0.01 * 1.875, 3 + 0.01 * 1.875, 3 + 0.5 * 1.875]
    assert column(trainer, "loss") == pytest.approx(losses)
    norms = [0.01 * 0.375, 0.01 * 0.375, 0.5 * 0.375]
    assert column(trainer, "grad_norm") == pytest.approx(norms)
    # without validation the last weights are the best
    assert all(math.isnan(loss) for loss in column(trainer, "validation_loss"))
    assert trainer.best_epoch == 3


def test_gradients_are_clipped_at_the_threshold_and_told_as_before(
    sgd: type[Recording],
) -> None:
    batches = [batch(0.5), batch(8.0), batch(1.0), batch(3.5)]
    (row,) = train(Trainee(linear), batches, clip_norm=1.0).records
    assert row["grad_norm"] == pytest.approx((0.5 + 8 + 1 + 3.5) / 4)
    assert row["clipped_fraction"] == 3 / 4  # a norm at the threshold is clipped
    assert sgd.gradients == pytest.approx([0.5, 1.0, 1.0, 1.0], rel=1e-5)
    (row,) = train(Trainee(linear), batches, clip_norm=None).records
    assert row["clipped_fraction"] == 0.0
    assert sgd.gradients == pytest.approx([0.5, 8.0, 1.0, 3.5])  # and do not pile up


def test_matrices_decay_by_the_rate_and_nothing_else_does() -> None:
    class Layers(Trainee):
        def __init__(self) -> None:
            super().__init__(lambda w, number: 0.0 * w)
            self.layer = nn.Linear(2, 2)

    plain, decayed = Layers(), Layers()
    decayed.load_state_dict(plain.state_dict())
    before = plain.layer.weight.detach().clone()
    for network, decay in ((plain, 0.0), (decayed, 0.5)):
        given: Any = {"weight_decay": decay, "lr": 0.5, "n_epochs": 5}
        rates = column(train(network, [batch(1.0)], **given), "lr")
    torch.testing.assert_close(plain.layer.weight, before)
    left = math.prod(1 - 0.5 * rate for rate in rates)
    assert left < 0.7
    torch.testing.assert_close(decayed.layer.weight, left * before)
    torch.testing.assert_close(decayed.layer.bias, plain.layer.bias)
    assert decayed.weight == plain.weight


# Validation and early stopping


@pytest.mark.parametrize(
    ("losses", "given", "n_epochs", "best"),
    [
        ([5.0, 3.0, 1.0, 2.0, 1.5, 4.0, 0.1], {"patience": 3}, 6, 3),
        # what improves by less than 1e-4 does not count, but is kept
        ([5.0, 4.99995, 4.9999, 0.0], {"patience": 2}, 3, 3),
        ([5.0, 4.9997, 4.9994, 0.0], {"patience": 2}, 4, 4),
        ([math.inf, 3.0, math.inf, 4.0, math.inf], {}, 5, 2),
        # losses of the warm-up are better, but of another objective
        (
            [0.3, 0.1, 0.2, 3.0, 2.0, 4.0, 5.0, 0.0],
            {"patience": 2, "warm_up_epochs": 3},
            7,
            5,
        ),
    ],
)
def test_early_stopping_restores_the_best_weights(
    losses: list[float],
    given: dict[str, int],
    n_epochs: int,
    best: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = given.copy()
    monkeypatch.setattr(loop, "_PATIENCE", given.pop("patience", 50))
    network, seen = Trainee(linear, held_out=losses), [1.0]
    trainer = train(
        network,
        [batch()],
        batch(n_observed=3),
        lambda _: seen.append(network.weight),
        n_epochs=len(losses),
        lr=0.1,
        **given,
    )
    assert column(trainer, "validation_loss") == pytest.approx(losses[:n_epochs])
    assert trainer.best_epoch == best
    assert network.weight == seen[best]


def test_a_validation_batch_that_cannot_be_solved_is_infinitely_bad() -> None:
    class Unsolvable(Trainee):
        def forward(self, batch: Any, noise: Any = None) -> Any:
            if not self.training:
                raise SolverError("no step is small enough")
            return super().forward(batch, noise)

    trainer = train(Unsolvable(linear), [batch()], batch())
    assert column(trainer, "validation_loss") == [math.inf]


# Steps that are not finite


class FailsBackward(torch.autograd.Function):
    """What an adjoint equation does that cannot be solved."""

    @staticmethod
    def forward(ctx: Any, w: Tensor) -> Tensor:
        return w.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        raise AssertionError("max_num_steps exceeded")


def unsolvable_at_zero(w: Tensor, number: Tensor) -> Tensor:
    if number == 0:
        raise SolverError("no step is small enough")
    if number == -1:
        w = FailsBackward.apply(w)
    return linear(w, number)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0])
def test_a_step_that_is_not_finite_is_skipped_and_counted(bad: float) -> None:
    network = Trainee(unsolvable_at_zero)
    batches = [batch(bad), batch(2.0), batch(bad), batch(bad), batch(3.0)]
    (row,) = train(network, batches, lr=0.1).records
    assert row["skipped_steps"] == 3
    # means are over the steps that were taken
    assert row["grad_norm"] == pytest.approx(2.5)
    assert math.isfinite(row["loss"] + network.weight)


@pytest.mark.parametrize(
    ("log_likelihood", "weight", "number"),
    [
        (linear, 0.5, math.nan),
        (root, 0.0, 1.0),  # whose slope is infinite there
        (lambda w, number: -w - number, 0.5, math.inf),  # whose slope is finite
        (unsolvable_at_zero, 0.5, 0.0),
    ],
)
def test_skipped_steps_do_not_move_the_weights(
    log_likelihood: Any, weight: float, number: float
) -> None:
    network = Trainee(log_likelihood, weight=weight)
    with pytest.warns(ConvergenceWarning, match="from before are kept"):
        trainer = train(network, [batch(number)] * 3, lr=0.1, clip_norm=None)
    assert column(trainer, "skipped_steps") == [3]
    assert (trainer.best_epoch, network.weight) == (0, weight)


def test_only_ten_skipped_steps_in_a_row_are_a_divergence() -> None:
    bad = [batch(math.nan)] * 9
    mixed = [*bad, batch(), *bad, batch()]
    trainer = train(Trainee(linear), mixed, n_epochs=3, lr=1e-3)
    assert column(trainer, "skipped_steps") == [18] * 3
    network = Trainee(linear, weight=0.5)
    with pytest.warns(ConvergenceWarning, match=r"went back 2 times.*clip_norm"):
        trainer = train(network, bad[:4], n_epochs=6, clip_norm=None)
    # the tenth in a row is the second of the third epoch
    assert column(trainer, "skipped_steps") == [4, 4, 2] * 2
    assert (trainer.best_epoch, network.weight) == (0, 0.5)


# Interruptions: Ctrl-C


def interrupted_at(n: int, **given: Any) -> Trainee:
    """Return a network whose n-th step is interrupted, and no other."""
    calls = iter(range(1, 10**6))

    def interrupted(w: Tensor, number: Tensor) -> Tensor:
        if next(calls) == n:
            raise KeyboardInterrupt
        return bowl(w, number)

    return Trainee(interrupted, **given)


@pytest.mark.parametrize(("losses", "best"), [([], 3), ([3.0, 1.0, 2.0, 0.5], 2)])
def test_an_interruption_keeps_the_best_weights_of_the_epochs_before(
    losses: list[float], best: int
) -> None:
    # in the middle of the fourth epoch
    network, seen = interrupted_at(8, held_out=losses), [1.0]
    batches, held_out = [batch(3.0)] * 2, batch() if losses else None
    message = r"interrupted after 3 of 9 .* kept\."
    with pytest.warns(ConvergenceWarning, match=message):
        trainer = train(
            network, batches, held_out, lambda _: seen.append(network.weight), 9
        )
    assert len(trainer.records) == 3
    assert trainer.best_epoch == best
    assert network.weight == seen[best]
    assert len({*seen}) == 4


def test_an_interruption_of_the_first_epoch_is_passed_on() -> None:
    with pytest.raises(KeyboardInterrupt):
        train(interrupted_at(2), [batch()] * 2, n_epochs=9)
