"""The evidence lower bound of linear Gaussian models, known in closed form."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal, Normal

from sklode.nn import RNN, Batch, Decoder, Emission, LatentODE, Solver
from sklode.nn.objectives import elbo
from tests.networks import windows
from tests.problems import LinearField, Zero

pytestmark = pytest.mark.usefixtures("float64")

NOISE = 0.3


class Given(nn.Module):
    """A translator that gives the same q(z0) whatever it reads."""

    def __init__(self, mean: list[float], stddev: list[float]) -> None:
        super().__init__()
        self.latent_size = len(mean)
        self.mean, self.stddev = torch.tensor(mean), torch.tensor(stddev)

    def forward(self, h: Tensor) -> Normal:
        shape = (len(h), self.latent_size)
        return Normal(self.mean.expand(shape), self.stddev.expand(shape))


def linear_gaussian(field: nn.Module, translator: Given, n_channels: int) -> LatentODE:
    """x = A z(t) + b + noise, with z(t) linear in z0."""
    latent_size = translator.latent_size
    emission = Emission(latent_size, n_channels)
    emission.raw_noise.data.fill_(math.log(math.expm1(NOISE - 1e-3)))
    emission.network = nn.Sequential(nn.Linear(latent_size, n_channels))
    return LatentODE(
        RNN(2 * n_channels, 2),
        translator,
        Decoder(field, Solver()),
        emission,
    )


def bound(network: LatentODE, batch: Batch) -> Tensor:
    """Return the ELBO of each series, the expectation taken exactly.

    The log-likelihood is quadratic in z0: its mean over the 2 L points that lie
    sqrt(L) standard deviations from the centre is its expectation.
    """
    size = network.latent_size
    points = math.sqrt(size) * torch.eye(size)
    parts = [
        network(batch, point.expand(len(batch.times), -1))
        for point in (*points, *-points)
    ]
    return elbo(torch.stack([part.log_likelihood for part in parts]), parts[0].kl)


def test_elbo_equals_closed_form_for_linear_gaussian() -> None:
    translator = Given([0.4, -1.1], [0.7, 1.6])
    # z0 is a position and a velocity: z(t) = (p + v (t - t0), v)
    network = linear_gaussian(LinearField([[0.0, 1.0], [0.0, 0.0]]), translator, 3)
    batch = windows(n_channels=3)
    a, b = (p.detach() for p in network.emission.network.parameters())
    variance = translator.stddev.square()

    expected = torch.zeros(4)
    for k in range(4):
        observed = batch.mask[k, :6].any(-1)
        t0 = batch.times[k][:6][observed][0]
        for i, t in enumerate(batch.times[k]):
            flow = torch.tensor([[1.0, float(t - t0)], [0.0, 1.0]])
            for c in torch.nonzero(batch.mask[k, i]).flatten():
                by_z0 = a[c] @ flow
                residual = batch.values[k, i, c] - by_z0 @ translator.mean - b[c]
                spread = (by_z0.square() * variance).sum()
                expected[k] -= 0.5 * math.log(2 * math.pi * NOISE**2)
                expected[k] -= (residual**2 + spread) / (2 * NOISE**2)
    kl = 0.5 * (variance + translator.mean**2 - 1 - variance.log()).sum()
    torch.testing.assert_close(bound(network, batch), expected - kl)


def test_elbo_of_the_true_posterior_is_the_evidence() -> None:
    # z does not move, so that the posterior of its one number is Gaussian
    x = torch.tensor([0.8, 1.3, -0.2, 0.9])
    times = torch.tensor([[0.0, 0.5, 2.0, 2.1]])
    batch = Batch(
        times, x.view(1, 4, 1), torch.ones(1, 4, 1, dtype=torch.bool), n_seen=4
    )
    network = linear_gaussian(Zero(), Given([0.0], [1.0]), 1)
    a, b = (float(p.detach()) for p in network.emission.network.parameters())
    precision = 1 + 4 * a**2 / NOISE**2
    mean = float((a * (x - b) / NOISE**2).sum()) / precision
    covariance = a * a * torch.ones(4, 4) + NOISE**2 * torch.eye(4)
    evidence = MultivariateNormal(torch.full((4,), b), covariance).log_prob(x)

    network.translator = Given([mean], [precision**-0.5])
    torch.testing.assert_close(bound(network, batch)[0], evidence)
    for shift, widen in ((0.1, 1.0), (-0.1, 1.0), (0.0, 1.5), (0.0, 0.5)):
        network.translator = Given([mean + shift], [widen * precision**-0.5])
        assert bound(network, batch)[0] < evidence - 1e-3
