"""The evidence lower bound, in closed form of linear Gaussian models; clipping."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal

from sklode.hybrid.network import huber_log_likelihood
from sklode.latent_ode.network import Batch, LatentODE
from sklode.nn import RNN, Decoder, Solver, clip_gradient_norm, elbo, log_likelihood
from tests.networks import windows
from tests.problems import LinearField

pytestmark = pytest.mark.usefixtures("float64")

NOISE = 0.3


def head(mean: list[float], stddev: list[float]) -> nn.Sequential:
    """Return a posterior head that gives the same q(z0) whatever it reads."""
    last = nn.Linear(2, 2 * len(mean))
    last.weight.data.zero_()
    last.bias.data.copy_(torch.tensor([*mean, *(2 * math.log(s) for s in stddev)]))
    return nn.Sequential(last)


def linear_gaussian(f: nn.Module, given: nn.Sequential, n_channels: int) -> LatentODE:
    """x = A z(t) + b + noise, with z(t) linear in z0."""
    last: Any = given[-1]
    n_latent = last.out_features // 2
    emission = nn.Sequential(nn.Linear(n_latent, n_channels))
    encoder = RNN(2 * n_channels, 2)
    network = LatentODE(encoder, given, Decoder(f, Solver()), emission)
    network.emission.raw_noise.data.fill_(math.log(math.expm1(NOISE - 1e-3)))
    return network


def bound(network: LatentODE, batch: Batch) -> Tensor:
    """Return the ELBO of each series, the expectation taken exactly.

    The log-likelihood is quadratic in z0: its mean over the 2 L points that lie
    sqrt(L) standard deviations from the centre is its expectation.
    """
    size = network.latent_size
    points = math.sqrt(size) * torch.eye(size)
    bounds = []
    for point in (*points, *-points):
        part = network(batch, point.expand(len(batch.times), -1))
        bounds.append(elbo(part.log_likelihood, part.kl))
    return torch.stack(bounds).mean(0)


def test_elbo_equals_closed_form_for_linear_gaussian() -> None:
    centre, spread = [0.4, -1.1], [0.7, 1.6]
    # z0 is a position and a velocity: z(t) = (p + v (t - t0), v)
    f = LinearField([[0.0, 1.0], [0.0, 0.0]])
    network = linear_gaussian(f, head(centre, spread), 3)
    batch = windows(n_channels=3)
    a, b = (p.detach() for p in network.emission[0].parameters())
    mean, variance = torch.tensor(centre), torch.tensor(spread).square()
    expected = torch.zeros(4)
    for k in range(4):
        observed = batch.mask[k, :6].any(-1)
        t0 = batch.times[k][:6][observed][0]
        for i, t in enumerate(batch.times[k]):
            flow = torch.tensor([[1.0, float(t - t0)], [0.0, 1.0]])
            for c in torch.nonzero(batch.mask[k, i]).flatten():
                by_z0 = a[c] @ flow
                residual = batch.values[k, i, c] - by_z0 @ mean - b[c]
                doubt = (by_z0.square() * variance).sum()
                expected[k] -= 0.5 * math.log(2 * math.pi * NOISE**2)
                expected[k] -= (residual**2 + doubt) / (2 * NOISE**2)
    kl = 0.5 * (variance + mean**2 - 1 - variance.log()).sum()
    torch.testing.assert_close(bound(network, batch), expected - kl)


def test_log_likelihood_is_torchs_and_masked_entries_give_no_gradient() -> None:
    mean = torch.randn(3, 4, 2, requires_grad=True)
    values, scale = torch.randn(3, 4, 2), torch.rand(2, requires_grad=True)
    mask = torch.rand(3, 4, 2) < 0.5
    expected = (Normal(mean, scale).log_prob(values) * mask).sum((1, 2))
    found = log_likelihood(mean, scale, torch.where(mask, values, torch.nan), mask)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(x.sum(), [mean, scale]) for x in (found, expected)]
    torch.testing.assert_close(*gradients)


def parameters(*grads: list[float]) -> list[nn.Parameter]:
    made = [nn.Parameter(torch.zeros(len(grad))) for grad in grads]
    for parameter, grad in zip(made, grads, strict=True):
        parameter.grad = torch.tensor(grad)
    return made


def test_gradient_norm_is_clipped_once_over_all_parameters() -> None:
    # of a tied one, and one without a gradient
    first, second = parameters([3.0, 0.0], [0.0, 4.0])
    listed = iter([first, second, second, nn.Parameter(torch.ones(1))])
    assert clip_gradient_norm(listed, 1.0) == pytest.approx(5.0)  # before clipping
    # one factor for all: the direction stays
    assert first.grad is not None
    assert second.grad is not None
    torch.testing.assert_close(first.grad, torch.tensor([0.6, 0.0]))
    torch.testing.assert_close(second.grad, torch.tensor([0.0, 0.8]))


@pytest.mark.parametrize("clip_norm", [5.0, 5.0001, 100.0, None])
def test_gradient_up_to_the_threshold_keeps_its_norm(clip_norm: float | None) -> None:
    (given,) = parameters([3.0, 4.0])
    assert clip_gradient_norm([given], clip_norm) == pytest.approx(5.0)
    assert given.grad is not None
    torch.testing.assert_close(given.grad, torch.tensor([3.0, 4.0]))


@pytest.mark.parametrize("scale", [0.3, 7.0])
def test_hubers_density_integrates_to_one(scale: float) -> None:
    errors = torch.linspace(-30 * scale, 30 * scale, 200_001)
    density = huber_log_likelihood(errors, torch.tensor(scale)).exp()
    assert float(torch.trapezoid(density, errors)) == pytest.approx(1, rel=1e-7)


def test_hubers_density_is_normal_up_to_two_scales_and_exponential_beyond() -> None:
    scale = torch.tensor(0.5)
    at_zero = huber_log_likelihood(torch.tensor(0.0), scale)
    sizes = torch.tensor([0.4, 1.0, 2.0, 2.5, 1e30])  # in scales
    errors = (sizes * scale).requires_grad_()
    loss = at_zero - huber_log_likelihood(errors, scale)
    expected = [0.08, 0.5, 2.0, 2 * 2.5 - 2, 2 * 1e30]
    torch.testing.assert_close(loss, torch.tensor(expected))
    torch.testing.assert_close(loss, at_zero - huber_log_likelihood(-errors, scale))
    (slopes,) = torch.autograd.grad(loss.sum(), errors)
    assert slopes[-1] == pytest.approx(4.0)  # bounded
