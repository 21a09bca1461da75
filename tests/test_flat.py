"""Parameters that are views of one vector while they are trained."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from sklode.training.flat import flat_parameters


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def loss(model: nn.Module) -> torch.Tensor:
    return model(torch.arange(6.0).view(2, 3)).square().sum()


def test_steps_are_those_of_the_parameters_apart() -> None:
    together, apart = network(), network()
    with flat_parameters(together) as vectors:
        assert [v.numel() for v in vectors] == [3 * 4 + 4 + 4 * 2 + 2]
        optimizers = [torch.optim.Adam(v, lr=0.1) for v in (vectors,)]
        optimizers.append(torch.optim.Adam(apart.parameters(), lr=0.1))
        for _ in range(3):
            for model, optimizer in zip((together, apart), optimizers, strict=True):
                optimizer.zero_grad(set_to_none=False)
                loss(model).backward()
                optimizer.step()
        grads = [p.grad for p in together.parameters()]
        for mine, other in zip(grads, apart.parameters(), strict=True):
            torch.testing.assert_close(mine, other.grad)
    for mine, other in zip(together.parameters(), apart.parameters(), strict=True):
        torch.testing.assert_close(mine, other)
    first, before = next(together.parameters()), next(network().parameters())
    assert not torch.equal(first, before)


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
        assert {v.dtype: v.numel() for v in vectors} == {
            torch.float32: 6,
            torch.float64: 6,
        }
    assert model["b"].weight.dtype == torch.float64
    assert model.frozen is frozen


def test_matrices_have_a_vector_of_their_own_where_they_are_to_decay() -> None:
    together, apart = network(), network()
    with flat_parameters(together, matrices_apart=True) as vectors:
        assert {tuple(v.shape) for v in vectors} == {(4 + 2,), (1, 3 * 4 + 4 * 2)}
        loss(together).backward()
        loss(apart).backward()
        for mine, other in zip(together.parameters(), apart.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, other.grad)
        with torch.no_grad():
            for vector in vectors:
                if vector.ndim > 1:
                    vector.mul_(3)
                else:
                    vector.add_(1)
    for mine, other in zip(together.parameters(), apart.parameters(), strict=True):
        moved = 3 * other if other.ndim > 1 else other + 1
        torch.testing.assert_close(mine, moved)
        assert mine.shape == other.shape
        assert mine.grad is None
    shared = {p.untyped_storage().data_ptr() for p in together.parameters()}
    assert len(shared) == 4
