"""The evidence lower bound (paper, eq. loss) and norm gradient clipping."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

from sklode._shapes import Mask, Values

__all__ = [
    "clip_gradient_norm",
    "elbo",
    "gaussian_log_likelihood",
    "kl_to_standard_normal",
    "log_likelihood",
]

_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


def log_likelihood(p_x: Normal, values: Values, mask: Mask) -> Tensor:
    r"""Sum of :math:`\log N(x \mid \hat x, s)` over each series' observed entries.

    Parameters
    ----------
    p_x : Normal, of batch shape (batch, time, channel)
        Distribution of the observations given the latent trajectory.
    values : Tensor of shape (batch, time, channel)
        Observations; anything, NaN included, where ``mask`` is False.
    mask : Tensor of shape (batch, time, channel), bool
        True where observed.

    Returns
    -------
    Tensor of shape (batch,)
    """
    return gaussian_log_likelihood(p_x.mean, p_x.stddev, values, mask)


def gaussian_log_likelihood(
    mean: Tensor, scale: Tensor, values: Values, mask: Mask
) -> Tensor:
    r"""Return the same as `log_likelihood`, of a scale that need not be expanded.

    Parameters
    ----------
    mean : Tensor of shape (batch, time, channel)
        :math:`\hat x`.
    scale : Tensor of shape (channel,) or (batch, time, channel)
        s.
    values, mask
        As in `log_likelihood`.

    Returns
    -------
    Tensor of shape (batch,)
    """
    deviation = torch.where(mask, values - mean, 0.0) / scale
    constant = mask * (scale.log() + _HALF_LOG_TWO_PI)
    return -(0.5 * deviation.square() + constant).sum(dim=(-2, -1))


def kl_to_standard_normal(q_z0: Normal) -> Tensor:
    r"""KL(q(z0) || N(0, I)), summed over latent dimensions; shape (batch,)."""
    prior = Normal(torch.zeros_like(q_z0.mean), torch.ones_like(q_z0.stddev))
    return kl_divergence(q_z0, prior).sum(-1)


def elbo(log_likelihoods: Tensor, kl: Tensor, kl_weight: float = 1.0) -> Tensor:
    r"""Evidence lower bound of each series.

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

    Returns
    -------
    Tensor of shape (batch,)
    """
    samples = tuple(range(log_likelihoods.ndim - 1))
    expected = log_likelihoods.mean(samples) if samples else log_likelihoods
    return expected - kl_weight * kl


def clip_gradient_norm(
    parameters: Iterable[nn.Parameter], clip_norm: float | None
) -> float:
    r"""Norm gradient clipping over all parameters together, each counted once.

    .. math::
        g \leftarrow \frac{c}{\|g\|} g \quad \text{if } \|g\| \ge c

    (paper, section "Norm Gradient Clipping"; Pascanu et al. 2013), after the backward
    pass and before the optimiser's step.

    Parameters
    ----------
    parameters : iterable of nn.Parameter
        Whose gradients form g.
    clip_norm : float or None
        The threshold c; None leaves the gradients alone.

    Returns
    -------
    float
        The norm before clipping.
    """
    limit = math.inf if clip_norm is None else clip_norm
    unique = list({id(p): p for p in parameters}.values())
    return float(nn.utils.clip_grad_norm_(unique, limit))
