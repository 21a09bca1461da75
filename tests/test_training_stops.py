"""When training stops, what it skips, and which weights it leaves."""

import math
import signal
from typing import Any

import pandas as pd
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from sklode.data.errors import SolverError
from sklode.training.loop import Trainer, validation_loss
from tests.networks import latent_ode, windows
from tests.series import tiny, waves
from tests.trainees import Trainee, batch, column, linear, train


def weights_of_epochs(
    held_out: list[float], **settings: Any
) -> tuple[list[float], float, list[float], int]:
    """Train against scripted validation losses.

    Returns the weight after each epoch, the one left, the recorded losses and the best
    epoch.
    """
    network, seen = Trainee(linear, held_out=held_out), []

    def keep(row: dict[str, float]) -> bool:
        seen.append(float(network.w.detach()))
        return False

    trainer = train(
        network,
        [batch()],
        validation=[batch()],
        on_epoch_end=keep,
        max_epochs=len(held_out),
        lr=0.1,
        **settings,
    )
    left = float(network.w.detach())
    return seen, left, column(trainer, "validation_loss"), trainer.best_epoch


def test_early_stopping_restores_the_best_weights() -> None:
    losses = [5.0, 3.0, 1.0, 2.0, 1.5, 4.0, 0.1]
    seen, left, recorded, best = weights_of_epochs(losses, n_iter_no_change=3)
    assert recorded == pytest.approx(losses[:6])  # three epochs without a better one
    assert best == 3
    assert left == seen[2] != seen[-1]


def test_without_patience_all_epochs_are_run_and_the_best_weights_kept() -> None:
    losses = [5.0, 1.0, *[2.0] * 8]
    seen, left, recorded, best = weights_of_epochs(losses, n_iter_no_change=None)
    assert len(recorded) == 10
    assert (best, left) == (2, seen[1])


def test_improvement_below_tol_does_not_count_but_its_weights_are_kept() -> None:
    losses = [5.0, 4.95, 4.9, 4.85, 0.0]
    seen, left, recorded, best = weights_of_epochs(losses, n_iter_no_change=2, tol=0.1)
    assert recorded == pytest.approx(losses[:3])
    assert (best, left) == (3, seen[2])
    seen, left, recorded, best = weights_of_epochs(losses, n_iter_no_change=2, tol=0.01)
    assert len(recorded) == 5
    assert (best, left) == (5, seen[4])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_validation_loss_that_is_not_finite_is_never_the_best(bad: float) -> None:
    seen, left, _, best = weights_of_epochs(
        [bad, 3.0, bad, 4.0, bad], n_iter_no_change=None
    )
    assert (best, left) == (2, seen[1])


def test_warm_up_is_neither_counted_nor_kept() -> None:
    # the losses of the warm-up are better, but of another objective
    losses = [0.3, 0.1, 0.2, 3.0, 2.0, 4.0, 5.0, 0.0]
    seen, left, recorded, best = weights_of_epochs(
        losses, n_iter_no_change=2, warm_up_epochs=3
    )
    assert recorded == pytest.approx(losses[:7])
    assert (best, left) == (5, seen[4])


def test_without_validation_the_last_weights_are_kept() -> None:
    network = Trainee(linear)
    trainer = train(network, [batch()], max_epochs=5, n_iter_no_change=1, lr=0.1)
    assert len(trainer.history) == 5
    assert trainer.best_epoch == 5
    assert float(network.w.detach()) < 0.9


def test_callback_that_returns_true_stops_the_training() -> None:
    rows = []

    def stop_after_two(row: dict[str, float]) -> bool:
        rows.append(row)
        return len(rows) == 2

    trainer = train(
        Trainee(linear), [batch()], on_epoch_end=stop_after_two, max_epochs=9
    )
    assert len(trainer.history) == 2
    assert rows == trainer.history


def test_no_epochs_leave_the_network_as_it_was() -> None:
    network = Trainee(linear, weight=0.5)
    trainer = train(network, [batch()], max_epochs=0)
    assert float(network.w.detach()) == 0.5
    assert (trainer.history, trainer.best_epoch) == ([], 0)


SKIPPED = r"without a finite loss and gradient in any of the \d steps of its last epoch"


def test_step_with_a_loss_that_is_not_finite_is_skipped_and_counted() -> None:
    clean, mixed = Trainee(linear), Trainee(linear)
    train(clean, [batch(2.0), batch(3.0)], max_epochs=1, lr=0.1)
    bad = [batch(math.nan), batch(math.inf)]
    # the schedule has as many steps in both trainings
    trainer = train(
        mixed, [bad[0], batch(2.0), bad[1], bad[0], batch(3.0)], max_epochs=1, lr=0.1
    )
    (row,) = trainer.history
    assert row["skipped_steps"] == 3
    # means are over the steps that were taken
    assert row["grad_norm"] == pytest.approx(2.5)
    assert math.isfinite(row["loss"])
    assert math.isfinite(float(mixed.w.detach()))


def test_skipped_step_does_not_move_the_weights() -> None:
    network = Trainee(linear, weight=0.5)
    with pytest.warns(ConvergenceWarning, match=SKIPPED):
        train(network, [batch(math.nan)] * 3, lr=0.1)
    assert float(network.w.detach()) == 0.5


def test_step_with_a_gradient_that_is_not_finite_is_skipped_and_counted() -> None:
    # at w = 0 the root is 0 and its slope infinite
    network = Trainee(lambda w, number: -torch.sqrt(w), weight=0.0)
    with pytest.warns(ConvergenceWarning, match=SKIPPED):
        (row,) = train(network, [batch()] * 3, clip_norm=None).history
    assert row["skipped_steps"] == 3
    assert float(network.w.detach()) == 0.0


def test_infinite_loss_with_a_finite_gradient_is_skipped_and_counted() -> None:
    network = Trainee(lambda w, number: -w - number, weight=0.5)
    with pytest.warns(ConvergenceWarning, match=SKIPPED):
        (row,) = train(network, [batch(math.inf)] * 3).history
    assert row["skipped_steps"] == 3
    assert float(network.w.detach()) == 0.5


def test_step_whose_equation_cannot_be_solved_is_skipped_and_counted() -> None:
    def unsolvable(w: Tensor, number: Tensor) -> Tensor:
        if number == 0:
            raise SolverError("no step is small enough")
        return linear(w, number)

    trainer = train(Trainee(unsolvable), [batch(0.0), batch(1.0), batch(0.0)])
    assert trainer.history[0]["skipped_steps"] == 2


def test_held_out_window_that_cannot_be_solved_has_an_infinite_loss() -> None:
    class Unsolvable(Trainee):
        def forward(self, batch: object, noise: object = None) -> object:  # type: ignore[override]
            raise SolverError("no step is small enough")

    assert validation_loss(Unsolvable(linear), [batch()]) == math.inf


def test_skipped_steps_with_good_ones_between_stop_nothing() -> None:
    bad = [batch(math.nan)] * 9
    trainer = train(
        Trainee(linear), [*bad, batch(), *bad, batch()], max_epochs=3, lr=1e-3
    )
    assert column(trainer, "skipped_steps") == [18] * 3


def test_ten_bad_steps_in_a_row_stop_the_training_with_advice() -> None:
    network = Trainee(linear, weight=0.5)
    with pytest.warns(ConvergenceWarning, match=r"10 steps.*Lower lr.*clip_norm"):
        trainer = train(
            network, [batch(math.nan)] * 4, max_epochs=9, lr=0.1, clip_norm=None
        )
    # the tenth in a row is the second of the third epoch
    assert column(trainer, "skipped_steps") == [4, 4, 2]
    assert trainer.best_epoch == 0
    assert float(network.w.detach()) == 0.5


@pytest.mark.parametrize("n_batches", [20, 5, 1])
def test_divergence_restores_weights_whose_loss_is_finite(n_batches: int) -> None:
    # the first step leaves the domain of the root: no later loss is finite
    network = Trainee(lambda w, number: -torch.sqrt(w), weight=1.0)
    with pytest.warns(ConvergenceWarning, match="before training are kept"):
        train(
            network,
            [batch()] * n_batches,
            max_epochs=15,
            lr=1000.0,
            optimizer="sgd",
            clip_norm=None,
        )
    assert float(network.w.detach()) > 0


def test_divergence_restores_the_last_weights_before_it() -> None:
    # the step size outgrows what is left of the root's domain
    network, seen = Trainee(lambda w, number: -torch.sqrt(w), weight=4.0), []

    def keep(row: dict[str, float]) -> bool:
        seen.append(float(network.w.detach()))
        return False

    settings: dict[str, Any] = {"lr": 2.0, "optimizer": "sgd", "clip_norm": None}
    with pytest.warns(ConvergenceWarning, match="last good weights"):
        trainer = train(network, [batch()], (), keep, max_epochs=40, **settings)
    good = [w for w in seen if w > 0]
    assert len(good) > 3
    assert float(network.w.detach()) == good[-1]
    assert seen[trainer.best_epoch - 1] == good[-1]


def test_training_that_ends_in_bad_steps_keeps_weights_whose_loss_is_finite() -> None:
    # too few bad steps to stop the training
    network = Trainee(lambda w, number: -torch.sqrt(w), weight=1.0)
    settings: dict[str, Any] = {"lr": 1e3, "optimizer": "sgd", "clip_norm": None}
    with pytest.warns(ConvergenceWarning, match=SKIPPED):
        train(network, [batch()] * 3, max_epochs=2, **settings)
    assert float(network.w.detach()) > 0


def test_divergence_restores_the_best_validated_weights() -> None:
    network = Trainee(lambda w, number: -torch.sqrt(w), held_out=[3.0, 2.0, *[4.0] * 7])
    kept = []

    def keep(row: dict[str, float]) -> bool:
        kept.append(float(network.w.detach()))
        if len(kept) >= 2:  # push it out of the root's domain
            with torch.no_grad():
                network.w.fill_(-1.0)
        return False

    with pytest.warns(ConvergenceWarning, match="of epoch 2, are kept"):
        train(
            network,
            [batch()] * 5,
            validation=[batch()],
            on_epoch_end=keep,
            max_epochs=9,
            lr=1e-3,
        )
    assert float(network.w.detach()) == kept[1]


def test_network_that_is_not_finite_is_skipped_with_the_adaptive_solver() -> None:
    network: Any = latent_ode(solver=Solver("dopri5"))
    with torch.no_grad():
        network.encoder.cell.weight_hh.fill_(math.nan)
    with pytest.warns(ConvergenceWarning, match=SKIPPED):
        (row,) = train(network, [windows()] * 2).history
    assert row["skipped_steps"] == 2


@pytest.mark.usefixtures("interruptible")
def test_an_interruption_keeps_the_weights_of_the_epochs_before() -> None:
    seen = []

    def interrupted(network: Trainee) -> Any:
        def keep(row: dict[str, float]) -> bool:
            seen.append(float(network.w.detach()))
            if row["epoch"] == 3:
                signal.raise_signal(signal.SIGINT)
            return False

        return keep

    network = Trainee(linear)
    told = r"interrupted in epoch 4 of 9; .* kept\. Fit again with warm_start=True"
    with pytest.warns(ConvergenceWarning, match=told):
        trainer = train(
            network, [batch()], max_epochs=9, on_epoch_end=interrupted(network)
        )
    assert trainer.best_epoch == len(trainer.history) == 3
    assert float(network.w.detach()) == seen[2] != seen[1]


def test_an_interruption_restores_the_best_validated_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step, taken = Trainer.train_step, []

    def interrupted(self: Trainer, *arguments: Any) -> Any:
        taken.append(float(self.network.w.detach()))
        if len(taken) == 8:  # in the middle of the fourth epoch
            raise KeyboardInterrupt
        return step(self, *arguments)

    monkeypatch.setattr(Trainer, "train_step", interrupted)
    network = Trainee(linear, held_out=[3.0, 1.0, 2.0, 0.5])
    with pytest.warns(ConvergenceWarning, match="interrupted in epoch 4"):
        trainer = train(
            network, [batch()] * 2, validation=[batch()], max_epochs=9, lr=0.1
        )
    assert trainer.best_epoch == 2
    assert float(network.w.detach()) == taken[4] != taken[7]


def test_an_interruption_of_the_first_epoch_is_passed_on() -> None:
    def interrupted(w: Tensor, number: Tensor) -> Tensor:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(Trainee(interrupted), [batch()], max_epochs=2)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_fit_forecasts_and_goes_on() -> None:
    class Interrupting:
        def on_epoch_end(self, forecaster: Any, row: dict[str, float]) -> None:
            if row["epoch"] == 2:
                signal.raise_signal(signal.SIGINT)

    y = waves()
    forecaster = tiny(max_epochs=5, callbacks=[Interrupting()])
    with pytest.warns(ConvergenceWarning, match="interrupted in epoch 3 of 5"):
        forecaster.fit(y)
    assert forecaster.n_epochs_ == forecaster.best_epoch_ == 2
    forecast = forecaster.predict([1, 2])
    assert forecast.notna().all()
    # from there on, as steps of no length show
    forecaster.set_params(warm_start=True, callbacks=None, lr=1e-9).fit(y)
    assert forecaster.n_epochs_ == 5
    pd.testing.assert_series_equal(forecaster.predict([1, 2]), forecast, rtol=1e-5)
