"""Epochs and steps: what is maximised, clipped, skipped, stopped for and kept."""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from sklode.data.errors import SolverError
from sklode.nn import AdaptiveSolver
from sklode.training.loop import HISTORY_COLUMNS, Trainer
from tests.networks import assert_same, latent_ode, windows
from tests.training.trainees import (
    Recording,
    Telling,
    Trainee,
    batch,
    bowl,
    column,
    linear,
    root,
    train,
    trainer_of,
)


def constants(w: Tensor, number: Tensor) -> Tensor:
    return -6.0 * number + 0.0 * w


def test_loss_is_the_negative_elbo_per_observed_value() -> None:
    network = Trainee(constants, kl=lambda w, number: 4.0 + 0.0 * w)
    # log-likelihoods -6 and -12, a KL of 4, over 2 and 4 values
    batches = [batch(1.0, n_observed=2), batch(2.0, n_observed=4)]
    (row,) = train(network, batches, kl_weight=0.5).state.rows
    assert row["log_likelihood"] == pytest.approx(-3.0)
    assert row["kl"] == pytest.approx((2.0 + 1.0) / 2)
    assert row["loss"] == pytest.approx(3.0 + 0.5 * 1.5)


def test_the_kl_weight_is_a_fiftieth_during_the_warm_up() -> None:
    network = Trainee(constants, kl=lambda w, number: w)  # the gradient is the KL's
    trainer = train(network, [batch()], n_epochs=4, warm_up_epochs=2, kl_weight=0.8)
    expected = pytest.approx([0.016, 0.016, 0.8, 0.8])
    assert column(trainer, "kl_weight") == expected
    assert column(trainer, "grad_norm") == expected


def test_history_has_a_row_per_epoch() -> None:
    started = time.perf_counter()
    trainer = train(Trainee(linear), [batch()] * 3, n_epochs=4)
    assert column(trainer, "epoch") == [1, 2, 3, 4]
    assert all(tuple(row) == HISTORY_COLUMNS for row in trainer.state.rows)
    assert 0 < sum(column(trainer, "seconds")) < time.perf_counter() - started
    assert all(math.isnan(loss) for loss in column(trainer, "validation_loss"))
    # without validation the last weights are the best
    assert trainer.state.best_epoch == 4


def test_gradients_are_clipped_at_the_threshold_and_told_as_before(
    sgd: type[Recording],
) -> None:
    batches = [batch(0.5), batch(8.0), batch(1.0), batch(3.5)]
    (row,) = train(Trainee(linear), batches, clip_norm=1.0).state.rows
    assert row["grad_norm"] == pytest.approx((0.5 + 8 + 1 + 3.5) / 4)
    assert row["clipped_fraction"] == 3 / 4  # a norm at the threshold is clipped
    assert sgd.gradients == pytest.approx([0.5, 1.0, 1.0, 1.0], rel=1e-5)
    (row,) = train(Trainee(linear), batches, clip_norm=None).state.rows
    assert row["clipped_fraction"] == 0.0
    assert sgd.gradients == pytest.approx([0.5, 8.0, 1.0, 3.5])  # and do not pile up


def test_automatic_threshold_is_the_median_norm_of_the_first_epochs(
    sgd: type[Recording],
) -> None:
    # the last one serves the check of the final weights
    norms = iter([1.0, 9.0, 3.0, 100.0, 2.0, 5.0, *[50.0, 3.0, 60.0] * 2])
    network = Trainee(lambda w, number: -next(norms, 0.0) * w)
    trainer = train(network, [batch()] * 2, n_epochs=6, clip_norm="auto")
    # the median of 1, 9, 3, 100, 2, 5 is 4, and later norms do not move it
    assert sgd.gradients[6:] == pytest.approx([4.0, 3.0, 4.0] * 2, rel=1e-5)
    assert column(trainer, "clipped_fraction")[3:] == [0.5, 1.0, 0.5]
    assert column(trainer, "grad_norm")[3:] == pytest.approx([26.5, 55.0, 31.5])


def test_training_draws_from_its_own_generator_only() -> None:
    torch.manual_seed(1)
    data, weights = [windows()] * 3, latent_ode().state_dict()

    def trained(seed: int) -> dict[str, Tensor]:
        network = latent_ode()
        network.load_state_dict(weights)
        before = torch.get_rng_state()
        train(network, data, data[:1], seed=seed, n_epochs=2)
        assert torch.equal(torch.get_rng_state(), before)
        return dict(network.state_dict())

    first = trained(3)
    assert_same(trained(3), first, 0.0)
    with pytest.raises(AssertionError):
        assert_same(trained(4), first, 1e-6)


# Validation and early stopping


def validated(
    losses: list[float], **given: Any
) -> tuple[Trainer, list[float], list[float]]:
    """Train against scripted validation losses.

    Returns the trainer, the weight after each epoch and at last that which is left,
    and the losses that were told.
    """
    network, seen = Trainee(linear, held_out=losses), []
    trainer = train(
        network,
        [batch()],
        [batch()],
        lambda _: seen.append(network.weight),
        n_epochs=len(losses),
        lr=0.1,
        **given,
    )
    return trainer, [*seen, network.weight], column(trainer, "validation_loss")


@pytest.mark.parametrize(
    ("losses", "given", "n_epochs", "best"),
    [
        # three epochs without a better one
        ([5.0, 3.0, 1.0, 2.0, 1.5, 4.0, 0.1], {"n_iter_no_change": 3}, 6, 3),
        ([5.0, 1.0, *[2.0] * 8], {}, 10, 2),
        # what improves by less than 1e-4 does not count, but is kept
        ([5.0, 4.99995, 4.9999, 0.0], {"n_iter_no_change": 2}, 3, 3),
        ([5.0, 4.9997, 4.9994, 0.0], {"n_iter_no_change": 2}, 4, 4),
        ([math.nan, 3.0, math.inf, 4.0, math.nan], {}, 5, 2),
        # losses of the warm-up are better, but of another objective
        (
            [0.3, 0.1, 0.2, 3.0, 2.0, 4.0, 5.0, 0.0],
            {"n_iter_no_change": 2, "warm_up_epochs": 3},
            7,
            5,
        ),
    ],
)
def test_early_stopping_restores_the_best_weights(
    losses: list[float], given: dict[str, int], n_epochs: int, best: int
) -> None:
    trainer, weights, told = validated(losses, **given)
    told = [math.inf if math.isnan(loss) else loss for loss in told]
    asked = [math.inf if math.isnan(loss) else loss for loss in losses[:n_epochs]]
    assert told == pytest.approx(asked)
    assert trainer.state.best_epoch == best
    assert weights[-1] == weights[best - 1]


def test_validation_loss_is_per_scored_value_over_all_batches() -> None:
    # scripted losses per value, 1 over 2 values and 4 over 6 values
    network = Trainee(linear, held_out=[1.0, 4.0])
    held_out = [batch(n_observed=2), batch(n_observed=6)]
    trainer = train(network, [batch()], held_out)
    assert column(trainer, "validation_loss") == [pytest.approx((2 * 1 + 6 * 4) / 8)]


def test_held_out_window_that_cannot_be_solved_has_an_infinite_loss() -> None:
    class Unsolvable(Trainee):
        def forward(self, batch: Any, noise: Any = None) -> Any:
            if not self.training:
                raise SolverError("no step is small enough")
            return super().forward(batch, noise)

    trainer = train(Unsolvable(linear), [batch()], [batch()])
    assert column(trainer, "validation_loss") == [math.inf]


def test_a_reporter_that_says_so_stops_the_training() -> None:
    rows: list[dict[str, float]] = []

    def told(row: dict[str, float]) -> bool:
        rows.append(row)
        return len(rows) == 2

    trainer = train(Trainee(linear), [batch()], told=told, n_epochs=9)
    assert rows == trainer.state.rows
    assert len(rows) == 2


def test_no_epochs_leave_the_network_as_it_was() -> None:
    network = Trainee(linear, weight=0.5)
    trainer = train(network, [batch()], n_epochs=0)
    assert network.weight == 0.5
    assert (trainer.state.rows, trainer.state.best_epoch) == ([], 0)


# Steps that are not finite

NO_STEP = r"without a finite loss and gradient in any of the \d steps of its last epoch"


def unsolvable_at_zero(w: Tensor, number: Tensor) -> Tensor:
    if number == 0:
        raise SolverError("no step is small enough")
    return linear(w, number)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0])
def test_a_step_that_is_not_finite_is_skipped_and_counted(bad: float) -> None:
    network = Trainee(unsolvable_at_zero)
    batches = [batch(bad), batch(2.0), batch(bad), batch(bad), batch(3.0)]
    (row,) = train(network, batches, lr=0.1).state.rows
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
    with pytest.warns(ConvergenceWarning, match=NO_STEP):
        trainer = train(network, [batch(number)] * 3, lr=0.1, clip_norm=None)
    assert column(trainer, "skipped_steps") == [3]
    assert trainer.state.best_epoch == 0
    assert network.weight == weight


def test_a_network_that_is_not_finite_is_skipped_with_the_adaptive_solver() -> None:
    network: Any = latent_ode(solver=AdaptiveSolver())
    with torch.no_grad():
        network.encoder.cell.weight_hh.fill_(math.nan)
    with pytest.warns(ConvergenceWarning, match=NO_STEP):
        trainer = train(network, [windows()] * 2)
    assert column(trainer, "skipped_steps") == [2]


def test_only_ten_skipped_steps_in_a_row_stop_the_training_with_advice() -> None:
    bad = [batch(math.nan)] * 9
    mixed = [*bad, batch(), *bad, batch()]
    trainer = train(Trainee(linear), mixed, n_epochs=3, lr=1e-3)
    assert column(trainer, "skipped_steps") == [18] * 3
    network = Trainee(linear, weight=0.5)
    with pytest.warns(ConvergenceWarning, match=r"10 steps.*Lower lr.*clip_norm"):
        trainer = train(network, bad[:4], n_epochs=9, clip_norm=None)
    # the tenth in a row is the second of the third epoch
    assert column(trainer, "skipped_steps") == [4, 4, 2]
    assert (trainer.state.best_epoch, network.weight) == (0, 0.5)


# Interruptions: Ctrl-C


def interrupted_at(n: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a log-likelihood whose n-th step is interrupted, and no other."""
    calls: Iterator[int] = iter(range(1, 10**6))

    def interrupted(w: Tensor, number: Tensor) -> Tensor:
        if next(calls) == n:
            raise KeyboardInterrupt
        return bowl(w, number)

    return interrupted


@pytest.mark.parametrize("losses", [[], [3.0, 1.0, 2.0, 0.5]])
def test_an_interruption_keeps_the_best_weights_of_the_epochs_before(
    losses: list[float],
) -> None:
    # in the middle of the fourth epoch
    network, seen = Trainee(interrupted_at(8), held_out=losses), [1.0]
    told = r"interrupted in epoch 4 of 9; .* kept\. Fit again with warm_start=True"
    with pytest.warns(ConvergenceWarning, match=told):
        trainer = train(
            network,
            [batch(3.0)] * 2,
            [batch()] * bool(losses),
            lambda _: seen.append(network.weight),
            n_epochs=9,
        )
    best = 2 if losses else 3
    assert trainer.state.best_epoch == best
    assert len(trainer.state.rows) == 3
    assert network.weight == seen[best]
    assert len(set(seen)) == 4


def test_an_interruption_of_the_first_epoch_is_passed_on() -> None:
    with pytest.raises(KeyboardInterrupt):
        train(Trainee(interrupted_at(2)), [batch()] * 2, n_epochs=2)


def test_a_trial_passes_every_interruption_on() -> None:
    network = Trainee(interrupted_at(3))
    with pytest.raises(KeyboardInterrupt):
        train(network, [batch()], n_epochs=9, is_interruptible=False)


# Going on from a checkpoint


@pytest.mark.parametrize("stop", [1, 3, 5])
def test_another_trainer_goes_on_from_a_checkpoint_bit_for_bit(stop: int) -> None:
    torch.manual_seed(2)
    data, weights = [windows(), windows()], latent_ode().state_dict()
    settings: dict[str, Any] = {"clip_norm": "auto", "weight_decay": 0.1, "lr": 0.05}

    def trained(start: Any = None, until: int = 6) -> tuple[Trainer, Any]:
        network, generator = latent_ode(), torch.Generator().manual_seed(5)
        network.load_state_dict(weights)
        trainer = trainer_of(network, 6, 2, **settings, is_resumable=True)
        trainer.fit(
            lambda *_: data,
            generator,
            data[:1],
            Telling(lambda row: row["epoch"] == until),
            start,
        )
        return trainer, network.state_dict()

    whole, expected = trained()
    assert whole.stopped_at is None
    stopped, _ = trained(until=stop)
    for _ in range(2):  # the checkpoint is left as it was
        resumed, found = trained(stopped.stopped_at)
        assert_same(found, expected, 0.0)
        for name in set(HISTORY_COLUMNS) - {"seconds"}:
            assert column(resumed, name) == column(whole, name)
