"""The Latent ODE: encoder, translator, decoder and emission in one VAE.

Paper, section "Method", Algorithm 2.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import Normal
from torch.nn import functional

from sklode.nn.accelerated import Accelerated
from sklode.nn.batches import Batch
from sklode.nn.decoders import ControlPath, Decoder
from sklode.nn.objectives import kl_to_standard_normal, log_likelihood
from sklode.nn.shapes import Controls, Mask, State, Times, Values

_LEAST_NOISE = 1e-3
"""Least standard deviation of the learned emission, in normalised units."""


class Posterior(NamedTuple):
    """q(z0), with the time t0, (batch,), that z0 belongs to."""

    q_z0: Normal
    t0: Tensor


class Bound(NamedTuple):
    """The parts of the evidence lower bound, each of shape (batch,)."""

    log_likelihood: Tensor
    kl: Tensor
    n_observed: Tensor


class Translator(nn.Module):
    r"""The network g: h_1 to :math:`\mu, \log \sigma^2` of q(z0).

    Parameters
    ----------
    hidden_size, latent_size : int
        Sizes of h and z.
    """

    def __init__(self, hidden_size: int, latent_size: int) -> None:
        super().__init__()
        self.latent_size = latent_size
        self.network = nn.Sequential(
            nn.Linear(hidden_size, hidden_size),
            nn.Tanh(),
            nn.Linear(hidden_size, 2 * latent_size),
        )

    def forward(self, h: State) -> Normal:
        """Return q(z0), of batch shape (batch, latent)."""
        mean, log_variance = self.network(h).chunk(2, dim=-1)
        return Normal(mean, torch.exp(0.5 * log_variance), validate_args=False)


class Emission(nn.Module):
    r"""The output network with Gaussian noise: p(x | z, u) = N(x^(z, u), s).

    Parameters
    ----------
    latent_size, n_channels : int
        Sizes of z and x.
    width : int, default=64
        Neurons in the one hidden layer.
    control_size : int, default=0
        Number of controls u.
    """

    def __init__(
        self,
        latent_size: int,
        n_channels: int,
        width: int = 64,
        control_size: int = 0,
    ) -> None:
        super().__init__()
        self.n_channels = n_channels
        self.network = nn.Sequential(
            nn.Linear(latent_size + control_size, width),
            nn.Tanh(),
            nn.Linear(width, n_channels),
        )
        # softplus(-1.5) = 0.2: a large one would excuse what z has not learned
        self.raw_noise = nn.Parameter(torch.full((n_channels,), -1.5))

    @property
    def noise_scale(self) -> Tensor:
        """The standard deviation s, (channel,), in normalised units."""
        return functional.softplus(self.raw_noise) + _LEAST_NOISE

    @torch.no_grad()
    def hold(self, channels: Tensor, values: Tensor) -> None:
        """Let x^ be ``values`` in some channels, whatever z, with the least noise.

        Both are of shape (channel,); values in normalised units.
        """
        last: Any = self.network[-1]
        last.weight[channels] = 0.0
        last.bias[channels] = values[channels].to(last.bias)
        # the inverse of softplus
        self.raw_noise[channels] = _LEAST_NOISE + math.log(-math.expm1(-_LEAST_NOISE))

    def forward(self, z: Tensor, controls: Controls | None = None) -> Tensor:
        """Return x^ of shape (..., channel) for z of shape (..., latent)."""
        read = z if controls is None else torch.cat([z, controls], dim=-1)
        x: Tensor = self.network(read)
        return x


class LatentODE(Accelerated):
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
        `ODELSTM`, `ODERNN` or `RNN`, over [x, mask, u].
    translator : nn.Module
        g.
    decoder : Decoder
        With a vector field of its own.
    emission : nn.Module
        From z(t), and u(t), to the observation.
    """

    def __init__(
        self,
        encoder: nn.Module,
        translator: nn.Module,
        decoder: Decoder,
        emission: Emission,
    ) -> None:
        super().__init__()
        self.encoder: Any = encoder
        self.translator: Any = translator
        self.decoder: Any = decoder
        self.emission = emission

    @property
    def latent_size(self) -> int:
        """Size of z."""
        return int(self.translator.latent_size)

    def posterior(
        self,
        times: Times,
        values: Values,
        mask: Mask,
        controls: Controls | None = None,
    ) -> Posterior:
        """Encode observations, backward in time, see `sklode.nn.shapes`.

        Values may be anything, NaN included, where the mask is False. The t0 of a
        series is its first stamp with an observation.
        """
        observed = mask.any(-1)
        values = torch.where(mask, values, torch.zeros_like(values))
        parts = [values, mask.to(values.dtype)]
        if controls is not None:
            parts.append(controls)
        inputs = torch.cat(parts, dim=-1)
        h = self._encoded(times, inputs, observed)
        first = observed.to(torch.uint8).argmax(1, keepdim=True)
        t0 = torch.gather(times, 1, first).squeeze(1)
        return Posterior(self.translator(h), t0)

    def encode(self, batch: Batch) -> Posterior:
        """Return `posterior` of what a batch shows the encoder."""
        seen = slice(batch.n_seen)
        mask = batch.mask[:, seen]
        if batch.hidden is not None:
            mask = mask & ~batch.hidden.unsqueeze(-1)
        controls = None if batch.controls is None else batch.controls[:, seen]
        return self.posterior(
            batch.times[:, seen], batch.values[:, seen], mask, controls
        )

    def decode_draws(
        self,
        z0: Tensor,
        posterior: Posterior,
        times: Times,
        controls: ControlPath | None = None,
    ) -> Tensor:
        """Return the means of p(x | z(t)) of several draws of z0 a series.

        Of ``z0``, (sample, batch, latent), they are (sample, batch, query, channel).
        """
        n = len(z0)
        copies = Posterior(posterior.q_z0, posterior.t0.repeat(n))
        if controls is not None:
            path_times, values = controls
            controls = ControlPath(path_times.repeat(n, 1), values.repeat(n, 1, 1))
        p_x = self.decode(z0.flatten(0, 1), copies, times.repeat(n, 1), controls)
        return p_x.mean.unflatten(0, (n, -1))

    def decode(
        self,
        z0: State,
        posterior: Posterior,
        times: Times,
        controls: ControlPath | None = None,
    ) -> Normal:
        """Return p(x | z(t)), (batch, query, channel), for z0 at the posterior's t0.

        Parameters
        ----------
        z0 : Tensor of shape (batch, latent)
            A draw from, or the mean of, ``posterior.q_z0``.
        posterior : Posterior
            Gives t0.
        times : Tensor of shape (batch, query)
            In any order, before or after t0.
        controls : ControlPath, optional
            u(t), where the model takes controls.
        """
        mean = self._mean(z0, posterior, times, controls)
        scale = self.emission.noise_scale.expand_as(mean)
        return Normal(mean, scale, validate_args=False)

    def forward(self, batch: Batch, noise: Tensor | None = None) -> Bound:
        """Return the parts of the evidence lower bound of windows.

        The encoder sees the first ``batch.n_seen`` stamps, without those hidden from
        it; the likelihood counts all. z0 is reparametrised by ``noise``, standard
        normal draws of shape (batch, latent); without them it is the mean of q(z0).
        """
        posterior = self.encode(batch)
        z0 = posterior.q_z0.mean
        if noise is not None:
            z0 = z0 + posterior.q_z0.stddev * noise
        times = batch.times
        if batch.hidden is None:  # nothing was observed before t0: no need to go back
            times = torch.maximum(times, posterior.t0.unsqueeze(-1))
        mean = self._mean(z0, posterior, times, batch.path)
        scored = batch.mask if batch.scored is None else batch.scored
        return Bound(
            log_likelihood(mean, self.emission.noise_scale, batch.values, scored),
            kl_to_standard_normal(posterior.q_z0),
            scored.sum(dim=(-2, -1)),
        )

    def _mean(
        self,
        z0: State,
        posterior: Posterior,
        times: Times,
        controls: ControlPath | None,
    ) -> Tensor:
        """Return the mean of p(x | z(t)), through the engine."""
        z = self._decoded(z0, posterior.t0, times, controls)
        u = None if controls is None else controls.at(times)
        x: Tensor = self.emission(z, u)
        return x
