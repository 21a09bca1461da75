"""Steps: parameters as one vector, AdamW, decay, the rate's one cycle."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sklode.training.descent import Descent, flat_parameters
from tests.networks import latent_ode, windows
from tests.training.trainees import Recording, Trainee, batch, column, linear, train


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def loss(model: nn.Module) -> Tensor:
    return model(torch.arange(6.0).view(2, 3)).square().sum()


def assert_equal(one: nn.Module, other: nn.Module) -> None:
    for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_steps_are_those_of_adam_and_matrices_alone_decay(decay: float) -> None:
    together, apart = network(), network()
    matrices = [p for p in apart.parameters() if p.ndim > 1]
    others = [p for p in apart.parameters() if p.ndim == 1]
    optimizer: Any = torch.optim.Adam(apart.parameters(), fused=True)
    if decay:
        groups = [{"params": matrices, "weight_decay": decay}, {"params": others}]
        optimizer = torch.optim.AdamW(groups, weight_decay=0.0, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=5)
    with flat_parameters(together, bool(decay)) as vectors:
        descent = Descent(vectors, 0.1, decay, 5)
        sizes = {tuple(v.shape) for v in vectors}
        assert sizes == ({(4 + 2,), (1, 3 * 4 + 4 * 2)} if decay else {(26,)})
        for _ in range(3):
            assert descent.rate == optimizer.param_groups[0]["lr"]
            for model in (together, apart):
                descent.zero()
                optimizer.zero_grad(set_to_none=False)
                loss(model).backward()
                if model is together:
                    descent.step()
            optimizer.step()
            schedule.step()
    assert_equal(together, apart)
    assert not torch.equal(together[0].weight, network()[0].weight)


def test_afterwards_parameters_are_apart_again_even_after_an_error() -> None:
    model = network()

    def break_off() -> None:
        with flat_parameters(model):
            shared = {p.untyped_storage().data_ptr() for p in model.parameters()}
            assert len(shared) == 1
            raise RuntimeError("broken off")

    with pytest.raises(RuntimeError, match="broken off"):
        break_off()
    apart = {p.untyped_storage().data_ptr() for p in model.parameters()}
    assert len(apart) == 4
    assert all(p.grad is None for p in model.parameters())
    assert copy.deepcopy(model)(torch.ones(1, 3)).shape == (1, 2)


def test_each_data_type_has_a_vector_and_what_is_not_trained_has_none() -> None:
    model = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2).double()})
    frozen = nn.Parameter(torch.ones(7), requires_grad=False)
    model.register_parameter("frozen", frozen)
    with flat_parameters(model) as vectors:
        sizes = {v.dtype: v.numel() for v in vectors}
    assert sizes == {torch.float32: 6, torch.float64: 6}
    assert model["b"].weight.dtype == torch.float64
    assert model.frozen is frozen


def test_no_parameter_is_optimised_twice(sgd: type[Recording]) -> None:
    network: Any = latent_ode()
    # tied: the flow's and the emission's first layer
    network.emission.network[0].weight = network.decoder.vector_field.hidden[0].weight
    network.emission.network[0].bias = network.decoder.vector_field.hidden[0].bias
    network.emission.network[2] = torch.nn.Linear(7, 2)
    train(network, [windows()])
    once = {id(p): p.numel() for p in network.parameters()}
    vectors = [vector for group in sgd.groups for vector in group["params"]]
    assert sum(v.numel() for v in vectors) == sum(once.values())


def test_the_gradient_is_clipped_once_over_all_parameters() -> None:
    model = network()
    with flat_parameters(model, True) as vectors:
        descent = Descent(vectors, 0.1, 0.5, 1)
        loss(model).backward()
        norms = [p.grad.norm() for p in model.parameters() if p.grad is not None]
        before = float(torch.stack(norms).norm())
        assert descent.clip(before / 4) == pytest.approx(before)
        after = torch.stack([p.grad.norm() for p in model.parameters()])  # type: ignore[union-attr]
    torch.testing.assert_close(after, torch.stack(norms) / 4)


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


def test_weights_and_moments_are_taken_back_as_often_as_asked() -> None:
    model = network()
    with flat_parameters(model) as vectors:
        descent = Descent(vectors, 0.1, 0.0, 50)

        def take() -> None:
            descent.zero()
            loss(model).backward()
            descent.step()

        take()
        snapshot, before = descent.snapshot(), copy.deepcopy(model)
        for _ in range(2):
            take()
            assert not torch.equal(model[0].weight, before[0].weight)
            descent.restore(snapshot)
            assert_equal(model, before)
            (found,) = descent.snapshot().moments
            (expected,) = snapshot.moments
            assert all(torch.equal(found[name], expected[name]) for name in expected)
            assert float(found["step"]) == 1


def test_a_loaded_descent_is_the_other_one() -> None:
    ends = []
    state: dict[str, Any] = {}
    for first in (0, 4):
        model = network()
        with flat_parameters(model, True) as vectors:
            descent = Descent(vectors, 0.1, 0.3, 8)
            if first:
                descent.load(state)
            for step in range(first, 7):
                if step == 4 and not first:
                    descent.slow_down()
                    state = descent.state()
                descent.zero()
                loss(model).backward()
                descent.step()
        ends.append(model)
    assert_equal(*ends)
