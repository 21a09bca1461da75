"""The evidence lower bound (paper, eq. loss) and norm gradient clipping."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.distributions import Normal

from sklode.nn.shapes import Mask, Values

_HUBER = 2.0
"""From so many scales on an error counts in proportion, not by its square."""

_LOG_HUBER_MASS = math.log(
    math.sqrt(2 * math.pi) * math.erf(_HUBER / math.sqrt(2))
    + 2 / _HUBER * math.exp(-(_HUBER**2) / 2)
)


def log_likelihood(mean: Values, scale: Tensor, values: Values, mask: Mask) -> Tensor:
    r"""Sum of :math:`\log N(x \mid \hat x, s)` over observed entries, (batch,).

    Parameters
    ----------
    mean : Tensor of shape (batch, time, channel)
        :math:`\hat x`, given the latent trajectory.
    scale : Tensor of shape (channel,)
        s.
    values, mask : Tensor of shape (batch, time, channel)
        x; anything, NaN included, where the mask is False.
    """
    squares = torch.where(mask, values - mean, 0.0).square().sum(1)
    constants = mask.sum(1) * (scale.log() + 0.5 * math.log(2 * math.pi))
    return -(squares / (2 * scale.square()) + constants).sum(-1)


def huber_log_likelihood(errors: Tensor, scale: Tensor) -> Tensor:
    r"""Logarithm of Huber's density (1964) of errors: normal, with exponential tails.

    .. math::
        \log p(e) = -\rho(e / s) - \log s - \log c, \quad
        \rho(z) = z^2 / 2 \text{ up to } |z| = k, \; k |z| - k^2 / 2 \text{ beyond}

    with k = 2; shape and broadcasting as of ``errors`` / ``scale``.
    """
    size = (errors / scale).abs()
    inner = size.clamp(max=_HUBER)
    return -(inner * (size - inner / 2)) - scale.log() - _LOG_HUBER_MASS


def kl_to_standard_normal(q_z0: Normal) -> Tensor:
    """KL(q(z0) || N(0, I)), summed over latent dimensions; shape (batch,)."""
    mean, scale = q_z0.mean, q_z0.stddev
    return (0.5 * (mean.square() + scale.square() - 1) - scale.log()).sum(-1)


def elbo(log_likelihoods: Tensor, kl: Tensor, kl_weight: float = 1.0) -> Tensor:
    r"""Evidence lower bound of each series, (batch,).

    .. math::
        E_q\Big[\sum_{\text{observed}} \log N(x \mid \hat x, s)\Big]
        - \beta \, KL(q(z_0) \,\|\, N(0, I))

    Parameters
    ----------
    log_likelihoods : Tensor of shape (..., batch)
        `log_likelihood` under draws of z0; samples, if any, in front are averaged.
    kl : Tensor of shape (batch,)
        `kl_to_standard_normal`.
    kl_weight : float, default=1.0
        beta, below 1 during the warm-up.
    """
    samples = tuple(range(log_likelihoods.ndim - 1))
    expected = log_likelihoods.mean(samples) if samples else log_likelihoods
    return expected - kl_weight * kl


def clip_gradient_norm(
    parameters: Iterable[nn.Parameter], clip_norm: float | None
) -> float:
    r"""Clip the norm of all gradients together; return the one before clipping.

    .. math::
        g \leftarrow \frac{c}{\|g\|} g \quad \text{if } \|g\| \ge c

    (paper, section "Norm Gradient Clipping"; Pascanu et al. 2013), after the backward
    pass and before the optimiser's step. g are the gradients of ``parameters``, each
    counted once; c is ``clip_norm``, of which None leaves the gradients alone.
    """
    unique = {id(p): p.grad for p in parameters if p.grad is not None}
    grads = list(unique.values())
    if not grads:
        return 0.0
    norms = [torch.linalg.vector_norm(grad) for grad in grads]
    norm = float(torch.linalg.vector_norm(torch.stack(norms)))
    if clip_norm is not None and norm >= clip_norm:
        for grad in grads:
            grad.mul_(clip_norm / norm)
    return norm
