"""The evidence lower bound (paper, eq. loss), and norm gradient clipping."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Bound(NamedTuple):
    """The parts of the evidence lower bound, each (batch,)."""

    log_likelihood: Tensor
    kl: Tensor
    n_observed: Tensor


def log_likelihood(mean: Tensor, scale: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    r"""Sum of :math:`\log N(x \mid \hat x, s)` over observed entries, (batch,).

    ``mean`` is :math:`\hat x`, ``values`` and ``mask`` as in `Batch`: anything, NaN
    included, where the mask is False; ``scale`` is s, (channel,).
    """
    # -log N = (x - x^)^2 / (2 s^2) + log s + log(2 pi) / 2; s is one of a channel, so
    # that squares and counts are summed over time first
    squares = torch.where(mask, values - mean, 0.0).square().sum(1)
    of_one = scale.log() + 0.5 * math.log(2 * math.pi)
    constants = mask.sum(1) * of_one
    return -(squares / (2 * scale.square()) + constants).sum(-1)


def elbo(log_likelihood: Tensor, kl: Tensor, kl_weight: float = 1.0) -> Tensor:
    r"""Evidence lower bound (eq:loss of the paper), estimated by one draw of z0.

    .. math:: E_q[\log p(x \mid z)] - \beta \, KL(q(z_0) \,\|\, N(0, I))

    with :math:`\beta` = ``kl_weight``, below 1 during the warm-up.
    """
    return log_likelihood - kl_weight * kl


def clip_gradient_norm(
    parameters: Iterable[nn.Parameter], clip_norm: float | None
) -> float:
    r"""Clip the norm of all gradients together; return the one before clipping.

    .. math:: g \leftarrow \frac{c}{\|g\|} g \quad \text{if } \|g\| \ge c

    (paper, section "Norm Gradient Clipping"; Pascanu et al. 2013), with g the gradients
    of ``parameters``, each counted once, and c the ``clip_norm``; None: leave them.
    """
    grads = [p.grad for p in dict.fromkeys(parameters) if p.grad is not None]
    if not grads:
        return 0.0
    # the norm of the norms of parts is the norm of the whole
    norms = [torch.linalg.vector_norm(grad) for grad in grads]
    norm = float(torch.linalg.vector_norm(torch.stack(norms)))
    if clip_norm is not None and norm >= clip_norm:
        for grad in grads:
            grad.mul_(clip_norm / norm)
    return norm
