"""The Latent ODE: encoder, posterior head, decoder and emission.

Paper, section "Method", Algorithm 2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import Normal
from torch.nn import functional

from sklode.nn.autoencoder import Autoencoder, perceptron
from sklode.nn.decoders import ControlPath, Decoder
from sklode.nn.encoders import Encoder, build_encoder
from sklode.nn.objective import Bound, log_likelihood
from sklode.nn.settings import NetworkSettings
from sklode.nn.solvers import Solver
from sklode.nn.vector_fields import VectorField


class Batch(NamedTuple):
    """Windows of series; padded stamps repeat the last one, unobserved.

    The encoder sees the first ``n_seen`` stamps, but for those ``hidden`` from it.
    ``scored`` entries are those that the likelihood counts, by default all observed.
    """

    times: Tensor  # (batch, time)
    values: Tensor  # (batch, time, channel)
    mask: Tensor  # (batch, time, channel), bool
    n_seen: int
    controls: Tensor | None = None  # (batch, time, control)
    scored: Tensor | None = None  # (batch, time, channel), bool
    hidden: Tensor | None = None  # (batch, n_seen), bool

    @property
    def path(self) -> ControlPath | None:
        """The controls at their stamps, if the model takes any."""
        if self.controls is None:
            return None
        return ControlPath(times=self.times, values=self.controls)


class Posterior(NamedTuple):
    """q(z0), with the time t0, (batch,), that z0 belongs to."""

    q_z0: Normal
    t0: Tensor


class LatentODE(Autoencoder):
    r"""Variational autoencoder with a recurrent encoder and a neural-ODE decoder.

    .. math::
        h_1 = \mathrm{Encoder}(\{x_i, m_i, t_i\}), \quad
        q(z_0) = N(g(h_1)), \quad
        z(t) = \mathrm{ODESolve}(f, z_0, t_0 \to t), \quad
        p(x \mid z(t)) = N(\hat x(z(t)), s)

    (paper, Algorithm 2).

    Parameters
    ----------
    encoder : nn.Module
        `ODELSTM`, `ODERNN`, `RNN` or `CustomEncoder`, over [x, mask, u].
    posterior_head : nn.Sequential
        g, such as a `perceptron`: from h_1 to the mean and log variance of q(z0).
    decoder : Decoder
        With a vector field of its own.
    emission : nn.Sequential
        The output network: from [z(t), u(t)] to :math:`\hat x`.
    """

    decoder: Decoder

    def __init__(
        self,
        encoder: Encoder,
        posterior_head: nn.Sequential,
        decoder: Decoder,
        emission: nn.Sequential,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.posterior_head: Any = posterior_head
        self.decoder = decoder
        self.emission: Any = emission
        # softplus(-1.5) = 0.2: a large one excuses what z has not learned
        last: Any = emission[-1]
        raw_noise = torch.full((last.out_features,), -1.5)
        self.emission.raw_noise = nn.Parameter(raw_noise)

    @property
    def latent_size(self) -> int:
        """Size of z."""
        # its output are mean and log variance
        return int(self.posterior_head[-1].out_features) // 2

    @property
    def noise_scale(self) -> Tensor:
        """The standard deviation s, (channel,), in normalised units."""
        return functional.softplus(self.emission.raw_noise) + 1e-3

    @torch.no_grad()
    def hold(self, values: Tensor) -> None:
        """Let x^ be ``values``, (channel,), unless NaN, with the least noise."""
        # without weights the last layer is its bias; softplus(-20) adds nothing to
        # the floor of the noise
        last, channels = self.emission[-1], ~values.isnan()
        last.weight[channels] = 0.0
        last.bias[channels] = values[channels].to(last.bias)
        self.emission.raw_noise[channels] = -20.0

    def encode(self, batch: Batch) -> Posterior:
        """Encode what a batch shows the encoder, backward in time.

        The t0 of a series is its first stamp with an observation that is shown.
        """
        times = batch.times[:, : batch.n_seen]
        values = batch.values[:, : batch.n_seen]
        mask = batch.mask[:, : batch.n_seen]
        if batch.hidden is not None:
            mask = mask & ~batch.hidden.unsqueeze(-1)
        # 0 times NaN is NaN: what is not observed is replaced, not multiplied by 0
        parts = [torch.where(mask, values, 0.0), mask.to(values.dtype)]
        if batch.controls is not None:
            parts.append(batch.controls[:, : batch.n_seen])
        observed = mask.any(-1)
        h = self.encoder(times, torch.cat(parts, dim=-1), observed)
        mean, log_variance = self.posterior_head(h).chunk(2, dim=-1)
        deviation = torch.exp(0.5 * log_variance)
        # weights that diverge are dealt with as training goes, not by torch's check
        q_z0 = Normal(mean, deviation, validate_args=False)
        # argmax finds the first 1
        first = observed.to(torch.uint8).argmax(1, keepdim=True)
        return Posterior(q_z0=q_z0, t0=times.gather(1, first).squeeze(1))

    def decode(
        self,
        z0: Tensor,
        posterior: Posterior,
        times: Tensor,
        controls: ControlPath | None = None,
    ) -> Tensor:
        """Return x^, the mean of p(x | z(t)), (..., batch, query, channel).

        Of ``z0``, (..., batch, latent), at the posterior's t0, at ``times``, (batch,
        query), in any order, before or after t0, under the ``controls`` u(t).
        """
        z = self.trajectory(z0, posterior, times=times, controls=controls)
        if controls is not None:
            u = controls.at(times)
            z = torch.cat([z, u.expand(*z.shape[:-3], *u.shape)], dim=-1)
        x: Tensor = self.emission(z)
        return x

    def trajectory(
        self,
        z0: Tensor,
        posterior: Posterior,
        times: Tensor,
        controls: ControlPath | None = None,
    ) -> Tensor:
        """Return z(t), (..., batch, query, latent), see `decode`."""
        # draws become series of one batch: each repeats all windows
        n = z0.shape[:-2].numel()
        times, t0 = times.repeat(n, 1), posterior.t0.repeat(n)
        if controls is not None:
            controls = ControlPath(
                times=controls.times.repeat(n, 1),
                values=controls.values.repeat(n, 1, 1),
            )
        every_z0 = z0.flatten(0, -2)
        z: Tensor = self.decoder(every_z0, t0=t0, times=times, controls=controls)
        return z.view(*z0.shape[:-1], *z.shape[1:])

    def forward(self, batch: Batch, noise: Tensor | None = None) -> Bound:
        """Return the parts of the evidence lower bound of windows.

        The encoder sees the first ``batch.n_seen`` stamps that are not hidden. z0 is
        reparametrised by ``noise``, standard normal draws (batch, latent); without
        them it is the mean of q(z0).
        """
        posterior = self.encode(batch)
        z0 = posterior.q_z0.mean
        if noise is not None:
            z0 = z0 + posterior.q_z0.stddev * noise
        times = batch.times
        if batch.hidden is None:  # nothing was observed before t0
            times = torch.maximum(times, posterior.t0.unsqueeze(-1))
        x = self.decode(z0, posterior, times=times, controls=batch.path)
        scored = batch.mask if batch.scored is None else batch.scored
        mean, scale = posterior.q_z0.mean, posterior.q_z0.stddev
        # KL(N(m, s) || N(0, 1)) of each component
        kl = 0.5 * (mean.square() + scale.square() - 1) - scale.log()
        likelihood = log_likelihood(
            mean=x, scale=self.noise_scale, values=batch.values, mask=scored
        )
        return Bound(
            log_likelihood=likelihood,
            kl=kl.sum(-1),
            n_observed=scored.sum(dim=(-2, -1)),
        )


def build_network(
    settings: NetworkSettings, n_channels: int, n_controls: int
) -> LatentODE:
    """Return an untrained network, as a forecaster's ``settings`` say."""
    solver = Solver(settings.method, settings.step_size)
    hidden_size, latent_size = settings.hidden_size, settings.latent_size
    # random weights are drawn in the order of the paper's Algorithm 2; the encoder
    # reads values, their mask and controls
    n_inputs = 2 * n_channels + n_controls
    encoder = build_encoder(settings, n_inputs, solver)
    head = perceptron(hidden_size, width=hidden_size, outputs=2 * latent_size)
    field = VectorField(
        latent_size,
        width=settings.field_width,
        depth=settings.field_depth,
        control_size=n_controls,
    )
    emission = perceptron(
        latent_size + n_controls,
        width=settings.emission_width,
        outputs=n_channels,
    )
    return LatentODE(
        encoder=encoder,
        posterior_head=head,
        decoder=Decoder(field, solver),
        emission=emission,
    )
