import math
import time
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sklode.nn import Batch
from sklode.training.loop import OPTIMIZERS, validation_loss
from tests.networks import assert_same, latent_ode, windows
from tests.trainees import Recording, Trainee, batch, column, linear, train


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name under which an optimiser records."""
    monkeypatch.setitem(OPTIMIZERS, "recording", Recording)
    return "recording"


def constants(w: Tensor, number: Tensor) -> Tensor:
    return -6.0 * number + 0.0 * w


def test_loss_is_the_negative_elbo_per_observed_value() -> None:
    network = Trainee(constants, kl=lambda w, number: 4.0 + 0.0 * w)
    # log-likelihoods -6 and -12, a KL of 4, over 2 and 4 values
    batches = [batch(1.0, n_observed=2), batch(2.0, n_observed=4)]
    (row,) = train(network, batches, kl_weight=0.5).history
    assert row["log_likelihood"] == pytest.approx(-3.0)
    assert row["kl"] == pytest.approx((2.0 + 1.0) / 2)
    assert row["loss"] == pytest.approx(3.0 + 0.5 * 1.5)


def test_kl_weight_rises_over_the_annealing_epochs() -> None:
    # the gradient is that of the weighted KL alone
    network = Trainee(constants, kl=lambda w, number: w)
    settings: dict[str, Any] = {"max_epochs": 6, "clip_norm": None, "lr": 1e-6}
    trainer = train(
        network, [batch()], kl_weight=0.8, kl_annealing_epochs=4, **settings
    )
    expected = pytest.approx([0.2, 0.4, 0.6, 0.8, 0.8, 0.8])
    assert column(trainer, "kl_weight") == expected
    assert column(trainer, "grad_norm") == expected
    at_once = train(network, [batch()], kl_weight=0.8, **settings)
    assert column(at_once, "kl_weight") == pytest.approx([0.8] * 6)


def test_the_kl_weight_is_a_share_during_the_warm_up() -> None:
    trainer = train(
        Trainee(constants, kl=lambda w, number: w),
        [batch()],
        kl_weight=0.8,
        warm_up_epochs=2,
        warm_up_kl=0.25,
        max_epochs=4,
    )
    assert column(trainer, "kl_weight") == pytest.approx([0.2, 0.2, 0.8, 0.8])


def test_history_has_a_row_per_epoch() -> None:
    started = time.perf_counter()
    trainer = train(Trainee(linear), [batch()] * 3, max_epochs=4)
    assert column(trainer, "epoch") == [1, 2, 3, 4]
    assert set(trainer.history[0]) == {
        "epoch",
        "loss",
        "log_likelihood",
        "kl",
        "kl_weight",
        "grad_norm",
        "clipped_fraction",
        "skipped_steps",
        "restored_epoch",
        "lr",
        "seconds",
        "validation_loss",
    }
    assert 0 < sum(column(trainer, "seconds")) < time.perf_counter() - started
    assert all(math.isnan(loss) for loss in column(trainer, "validation_loss"))


def test_gradient_norm_of_the_history_is_that_before_clipping(recording: str) -> None:
    batches = [batch(0.5), batch(8.0), batch(1.0), batch(3.5)]
    trainer = train(Trainee(linear), batches, clip_norm=1.0, optimizer=recording)
    (row,) = trainer.history
    assert row["grad_norm"] == pytest.approx((0.5 + 8 + 1 + 3.5) / 4)
    assert row["clipped_fraction"] == 3 / 4  # a norm at the threshold is clipped
    assert Recording.gradients == pytest.approx([0.5, 1.0, 1.0, 1.0], rel=1e-5)


def test_without_clip_norm_nothing_is_clipped(recording: str) -> None:
    batches = [batch(0.5), batch(8000.0)]
    trainer = train(Trainee(linear), batches, clip_norm=None, optimizer=recording)
    assert trainer.history[0]["clipped_fraction"] == 0.0
    assert Recording.gradients == pytest.approx([0.5, 8000.0])


def test_automatic_threshold_is_the_median_norm_of_the_first_epochs(
    recording: str,
) -> None:
    # the last one serves the check of the final weights
    norms = iter([1.0, 9.0, 3.0, 100.0, 2.0, 5.0, *[50.0, 3.0, 60.0] * 2])
    network = Trainee(lambda w, number: -next(norms, 0.0) * w)
    trainer = train(
        network, [batch()] * 2, max_epochs=6, clip_norm="auto", optimizer=recording
    )
    # the median of 1, 9, 3, 100, 2, 5 is 4, and later norms do not move it
    assert Recording.gradients[6:] == pytest.approx([4.0, 3.0, 4.0] * 2, rel=1e-5)
    assert column(trainer, "clipped_fraction")[3:] == [0.5, 1.0, 0.5]
    assert column(trainer, "grad_norm")[3:] == pytest.approx([26.5, 55.0, 31.5])


def test_gradients_do_not_pile_up(recording: str) -> None:
    train(
        Trainee(linear),
        [batch(2.0)] * 3,
        max_epochs=2,
        clip_norm=None,
        optimizer=recording,
    )
    assert Recording.gradients == pytest.approx([2.0] * 6)


def test_no_parameter_is_optimised_twice(recording: str) -> None:
    network: Any = latent_ode()
    # tied: the flow's and the emission's first layer
    network.emission.network[0].weight = network.decoder.vector_field.hidden[0].weight
    network.emission.network[0].bias = network.decoder.vector_field.hidden[0].bias
    network.emission.network[2] = torch.nn.Linear(7, 2)
    train(network, [windows()], optimizer=recording)
    once = {id(p): p.numel() for p in network.parameters(recurse=True)}
    assert sum(p.numel() for p in Recording.parameters) == sum(once.values())


def test_learning_rate_goes_up_to_its_peak_and_down_within_the_training(
    recording: str,
) -> None:
    trainer = train(
        Trainee(linear), [batch()] * 4, max_epochs=10, lr=0.3, optimizer=recording
    )
    rates = Recording.lr
    assert len(rates) == 40
    peak = rates.index(max(rates))
    assert rates[peak] == pytest.approx(0.3, rel=0.02)
    assert rates[: peak + 1] == sorted(rates[: peak + 1])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert rates[0] < 0.1 * 0.3
    assert rates[-1] < 0.01 * 0.3
    assert rates[20] > 0.3 * 0.3  # not all in the first epochs
    # the history has the rate that each epoch starts with
    assert column(trainer, "lr") == pytest.approx(rates[::4])


def test_weight_decay_and_rate_reach_the_optimizer(recording: str) -> None:
    network = Trainee(linear)
    network.matrix = nn.Parameter(torch.ones(1, 2))  # in vain: the loss has none of it
    train(network, [batch()], optimizer=recording, weight_decay=0.125, lr=0.5)
    assert Recording.settings["lr"] == 0.5
    decays = {group["weight_decay"]: group["params"] for group in Recording.parameters}
    assert {
        decay: [v.numel() for v in vectors] for decay, vectors in decays.items()
    } == {
        0.0: [1],
        0.125: [2],
    }


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_matrices_decay_and_nothing_else(optimizer: str) -> None:
    network = Trainee(linear)  # the loss has none of these
    network.matrix = nn.Parameter(torch.ones(2, 3))
    network.bias = nn.Parameter(torch.ones(3))
    settings: dict[str, Any] = {"optimizer": optimizer, "lr": 0.01, "max_epochs": 5}
    train(network, [batch()], weight_decay=0.5, **settings)
    assert float(network.matrix.detach().max()) < 1 - 1e-4
    assert torch.equal(network.bias, torch.ones(3))
    network.matrix = nn.Parameter(torch.ones(2, 3))
    train(network, [batch()], **settings)
    assert torch.equal(network.matrix, torch.ones(2, 3))


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_every_optimizer_climbs_the_bound(optimizer: str) -> None:
    network = Trainee(lambda w, number: -0.5 * (w - number) ** 2, weight=3.0)
    trainer = train(
        network, [batch(2.0)] * 10, max_epochs=10, lr=0.1, optimizer=optimizer
    )
    assert float(network.w.detach()) == pytest.approx(2.0, abs=0.02)
    assert trainer.history[-1]["loss"] < 1e-3 < trainer.history[0]["loss"]


def test_validation_loss_is_per_scored_value_over_all_batches() -> None:
    # scripted losses per value, 1 over 2 values and 4 over 6 values
    network = Trainee(linear, held_out=[1.0, 4.0])
    held_out = [batch(n_observed=2), batch(n_observed=6)]
    assert validation_loss(network, held_out) == pytest.approx((2 * 1 + 6 * 4) / 8)
    assert math.isnan(validation_loss(network, []))


def test_training_is_repeated_by_its_generator() -> None:
    before = latent_ode().state_dict()

    def trained(seed: int) -> dict[str, Tensor]:
        network = latent_ode()
        network.load_state_dict(before)
        train(network, [windows_of_seed(1)] * 3, seed=seed, max_epochs=2)
        return dict(network.state_dict())

    def windows_of_seed(seed: int) -> Batch:
        torch.manual_seed(seed)
        return windows()

    first = trained(3)
    assert_same(trained(3), first, 0.0)
    with pytest.raises(AssertionError):
        assert_same(trained(4), first, 1e-6)


def test_training_draws_from_its_own_generator_only() -> None:
    network, data = latent_ode(), [windows()]
    before = torch.get_rng_state()
    train(network, data, validation=data, max_epochs=2)
    assert torch.equal(torch.get_rng_state(), before)


def test_training_learns_irregular_decay() -> None:
    times = (0.2 + 0.6 * torch.rand(24, 20)).cumsum(1)
    start = torch.linspace(-2, 2, 24).unsqueeze(-1)
    values = (start * torch.exp(-times / 8)).unsqueeze(-1)
    mask = torch.rand(values.shape) < 0.8
    data, seen = Batch(times, values, mask, n_seen=12), slice(12)
    network = latent_ode(n_channels=1)
    train(network, [data] * 5, max_epochs=40, lr=0.03, kl_annealing_epochs=10)
    with torch.no_grad():
        p = network.posterior(times[:, seen], values[:, seen], mask[:, seen])
        forecast = network.decode(p.q_z0.mean, p, times[:, 12:]).mean
    error, size = (forecast - values[:, 12:]).norm(), values[:, 12:].norm()
    assert float(error / size) < 0.25
