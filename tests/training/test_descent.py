"""Steps: parameters as one vector, AdamW, the rate's one cycle."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sklode.training.descent import Descent
from tests.networks import latent_ode, windows
from tests.training.trainees import Recording, Trainee, batch, column, linear, train


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def loss(model: nn.Module) -> Tensor:
    return model(torch.arange(6.0).view(2, 3)).square().sum()


def assert_equal(one: nn.Module, other: nn.Module, rtol: float = 0.0) -> None:
    for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=rtol, atol=0.0)


def test_steps_are_those_of_adam() -> None:
    together, apart = network(), network()
    optimizer: Any = torch.optim.Adam(apart.parameters(), fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=5)
    with closing(Descent(together, 0.1, 5)) as descent:
        for _ in range(3):
            assert descent.rate == optimizer.param_groups[0]["lr"]
            descent.zero()
            loss(together).backward()
            descent.step()
            optimizer.zero_grad()
            loss(apart).backward()
            optimizer.step()
            schedule.step()
    assert_equal(together, apart)
    with pytest.raises(AssertionError):
        assert_equal(together, network(), 1e-3)


def test_afterwards_parameters_are_apart_again_even_after_an_error() -> None:
    model = network()
    frozen = nn.Parameter(torch.ones(7), requires_grad=False)
    model.register_parameter("frozen", frozen)

    def places() -> int:
        return len({p.untyped_storage().data_ptr() for p in model.parameters()})

    def break_off() -> None:
        with closing(Descent(model, 0.1, 1)):
            assert places() == 2
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        break_off()
    assert places() == 5
    assert all(p.grad is None for p in model.parameters())


def test_no_parameter_is_optimised_twice(sgd: type[Recording]) -> None:
    network: Any = latent_ode()
    # tied: the flow's and the emission's first layer
    network.emission.network[0].weight = network.decoder.vector_field.hidden[0].weight
    network.emission.network[0].bias = network.decoder.vector_field.hidden[0].bias
    network.emission.network[2] = torch.nn.Linear(7, 2)
    train(network, [windows()])
    once = {id(p): p.numel() for p in network.parameters()}
    assert sum(v.numel() for v in sgd.vectors) == sum(once.values())


def test_the_gradient_is_clipped_once_over_all_parameters() -> None:
    model = network()
    with closing(Descent(model, 0.1, 1)) as descent:
        loss(model).backward()
        before = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        norm = float(torch.cat([g.flatten() for g in before]).norm())
        assert descent.clip(norm / 4) == pytest.approx(norm)
        for p, grad in zip(model.parameters(), before, strict=True):
            torch.testing.assert_close(p.grad, grad / 4)


def test_the_rate_makes_one_cycle_within_the_training(sgd: type[Recording]) -> None:
    trainer = train(Trainee(linear), [batch()] * 4, n_epochs=10, lr=0.6, rate=0.5)
    rates = sgd.lr
    assert len(rates) == 40
    peak = rates.index(max(rates))
    assert peak in (11, 12)  # 30 %
    assert rates[peak] == pytest.approx(0.3, rel=0.02)
    assert rates[: peak + 1] == sorted(rates[: peak + 1])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert rates[0] < 0.1 * 0.3
    assert rates[-1] < 0.01 * 0.3
    # the history has the rate that each epoch starts with
    assert column(trainer, "lr") == pytest.approx(rates[::4])
