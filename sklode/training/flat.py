"""A network's parameters side by side, for what treats them as one vector."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

__all__ = ["flat_parameters"]


@contextmanager
def flat_parameters(
    network: nn.Module, matrices_apart: bool = False
) -> Iterator[list[nn.Parameter]]:
    """Let all trainable parameters, and their gradients, be views of a vector.

    Optimisers and clipping take some operations for each tensor; a network has dozens
    of small ones.

    Parameters
    ----------
    network : nn.Module
    matrices_apart : bool, default=False
        Whether weight matrices have vectors of their own, whose shape is then (1, n):
        only they should decay.

    Yields
    ------
    list of Parameter
        The vectors, one for each data type and device, with their gradients, which are
        to be set to zero in place.
    """
    trained = [p for p in network.parameters() if p.requires_grad]

    def kind(parameter: nn.Parameter) -> str:
        apart = matrices_apart and parameter.ndim > 1
        return f"{parameter.dtype} {parameter.device} {apart}"

    vectors = []
    for _, group in itertools.groupby(sorted(trained, key=kind), kind):
        parts = list(group)
        flat = torch.cat([p.detach().flatten() for p in parts])
        if matrices_apart and parts[0].ndim > 1:
            flat = flat.unsqueeze(0)
        vector = nn.Parameter(flat)
        vector.grad = torch.zeros_like(vector)
        sizes = [p.numel() for p in parts]
        values, grads = vector.detach().split(sizes, -1), vector.grad.split(sizes, -1)
        for parameter, value, grad in zip(parts, values, grads, strict=True):
            parameter.data = value.view_as(parameter)
            parameter.grad = grad.view_as(parameter)
        vectors.append(vector)
    try:
        yield vectors
    finally:
        for parameter in trained:
            parameter.data = parameter.data.clone()
            parameter.grad = None
