import math

import pytest
import torch
from torch import nn
from torch.distributions import Normal

from sklode.nn import clip_gradient_norm, elbo, log_likelihood
from sklode.nn.objectives import huber_log_likelihood, kl_to_standard_normal

pytestmark = pytest.mark.usefixtures("float64")

LOG_ROOT_TWO_PI = 0.5 * math.log(2 * math.pi)


def parameters(*grads: list[float]) -> list[nn.Parameter]:
    made = [nn.Parameter(torch.zeros(len(grad))) for grad in grads]
    for parameter, grad in zip(made, grads, strict=True):
        parameter.grad = torch.tensor(grad)
    return made


def grads_of(given: list[nn.Parameter]) -> list[list[float]]:
    return [p.grad.tolist() for p in given if p.grad is not None]


def test_log_likelihood_is_summed_over_observed_entries_of_each_series() -> None:
    mean, scale = torch.ones(2, 2, 1), torch.tensor([2.0])
    values = torch.tensor([[[3.0], [0.0]], [[1.0], [torch.nan]]])
    mask = torch.tensor([[[True], [True]], [[True], [False]]])
    one = -LOG_ROOT_TWO_PI - math.log(2)  # of a value at the mean
    expected = torch.tensor([2 * one - (4 + 1) / 8, one])
    torch.testing.assert_close(log_likelihood(mean, scale, values, mask), expected)


def test_log_likelihood_is_that_of_torch_per_channel() -> None:
    torch.manual_seed(0)
    mean, values, scale = torch.randn(3, 4, 2), torch.randn(3, 4, 2), torch.rand(2)
    mask = torch.rand(3, 4, 2) < 0.5
    expected = (Normal(mean, scale).log_prob(values) * mask).sum((1, 2))
    torch.testing.assert_close(log_likelihood(mean, scale, values, mask), expected)


def test_masked_entries_give_no_gradient_even_if_nan() -> None:
    mean = torch.zeros(1, 2, 1, requires_grad=True)
    scale = torch.ones(1, requires_grad=True)
    values = torch.tensor([[[2.0], [torch.nan]]])
    mask = torch.tensor([[[True], [False]]])
    log_likelihood(mean, scale, values, mask).sum().backward()
    assert mean.grad is not None
    assert mean.grad.flatten().tolist() == [2.0, 0.0]
    assert scale.grad is not None
    assert scale.grad.item() == pytest.approx(2.0**2 - 1)


def test_kl_is_summed_over_latent() -> None:
    q = Normal(
        torch.tensor([[1.0, -2.0, 0.0], [0.0, 0.0, 0.0]]),
        torch.tensor([[0.5, 3.0, 1.0], [1.0, 1.0, 1.0]]),
    )
    first = 0.5 * (0.25 + 1 - 1) - math.log(0.5)
    second = 0.5 * (9 + 4 - 1) - math.log(3.0)
    torch.testing.assert_close(
        kl_to_standard_normal(q), torch.tensor([first + second, 0.0])
    )


def test_elbo_averages_samples_and_weighs_the_kl() -> None:
    under_draws = torch.tensor([[-1.0, -2.0], [-3.0, -8.0]])
    kl = torch.tensor([2.0, 10.0])
    torch.testing.assert_close(elbo(under_draws, kl), torch.tensor([-4.0, -15.0]))
    torch.testing.assert_close(
        elbo(under_draws, kl, kl_weight=0.1), torch.tensor([-2.2, -6.0])
    )
    torch.testing.assert_close(elbo(under_draws[0], kl, kl_weight=0.0), under_draws[0])


def test_gradient_norm_is_clipped_once_over_all_parameters() -> None:
    given = parameters([3.0, 0.0], [0.0, 4.0])
    norm = clip_gradient_norm(given, 1.0)
    assert norm == pytest.approx(5.0, abs=1e-12)  # before clipping
    # one factor for all: the direction stays
    (first, second) = grads_of(given)
    assert first == pytest.approx([0.6, 0.0], rel=1e-5)
    assert second == pytest.approx([0.0, 0.8], rel=1e-5)
    assert clip_gradient_norm(given, None) == pytest.approx(1.0, rel=1e-5)


def test_tied_parameter_counts_once_in_the_gradient_norm() -> None:
    given = parameters([3.0], [4.0])
    listed = [given[0], given[1], given[1]]
    assert clip_gradient_norm(listed, 2.5) == pytest.approx(5.0, abs=1e-12)
    assert [g[0] for g in grads_of(given)] == pytest.approx([1.5, 2.0], rel=1e-5)


@pytest.mark.parametrize("clip_norm", [5.0001, 100.0, None])
def test_gradient_below_the_threshold_is_left_alone(clip_norm: float | None) -> None:
    given = parameters([3.0], [4.0])
    assert clip_gradient_norm(given, clip_norm) == pytest.approx(5.0, abs=1e-12)
    assert grads_of(given) == [[3.0], [4.0]]


def test_gradient_exactly_at_the_threshold_keeps_its_norm() -> None:
    given = parameters([3.0], [4.0])
    assert clip_gradient_norm(given, 5.0) == pytest.approx(5.0, abs=1e-12)
    assert [g[0] for g in grads_of(given)] == pytest.approx([3.0, 4.0], rel=1e-5)


def test_parameter_without_gradient_is_no_part_of_the_norm() -> None:
    given = [*parameters([3.0], [4.0]), nn.Parameter(torch.full((1,), 99.0))]
    assert clip_gradient_norm(given, 1.0) == pytest.approx(5.0, abs=1e-12)


def test_parameters_may_come_from_a_generator() -> None:
    layer = nn.Linear(2, 1)
    layer(torch.ones(2)).sum().backward()
    assert clip_gradient_norm(layer.parameters(), 1.0) == pytest.approx(3**0.5)
    total = sum(
        float(p.grad.square().sum()) for p in layer.parameters() if p.grad is not None
    )
    assert total == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize("scale", [0.3, 1.0, 7.0])
def test_hubers_density_integrates_to_one(scale: float) -> None:
    errors = torch.linspace(-30 * scale, 30 * scale, 200_001)
    density = huber_log_likelihood(errors, torch.tensor(scale)).exp()
    assert float(torch.trapezoid(density, errors)) == pytest.approx(1, rel=1e-7)


def test_hubers_density_is_normal_up_to_two_scales_and_exponential_beyond() -> None:
    scale = torch.tensor(0.5)
    at_zero = huber_log_likelihood(torch.tensor(0.0), scale)
    sizes = torch.tensor([0.4, 1.0, 2.0, 2.5, 40.0])  # in scales
    loss = at_zero - huber_log_likelihood(sizes * scale, scale)
    expected = [0.08, 0.5, 2.0, 2 * 2.5 - 2, 2 * 40.0 - 2]
    torch.testing.assert_close(loss, torch.tensor(expected))
    mirrored = huber_log_likelihood(-sizes * scale, scale)
    torch.testing.assert_close(mirrored, at_zero - loss)


def test_hubers_gradient_is_bounded_however_large_an_error() -> None:
    errors = torch.tensor([0.0, 1e30, -1e30], requires_grad=True)
    huber_log_likelihood(errors, torch.tensor(0.5)).sum().backward()
    assert errors.grad is not None
    assert errors.grad.tolist() == pytest.approx([0.0, -4.0, 4.0])
