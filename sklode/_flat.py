"""A network's parameters side by side, for what treats them as one vector."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

__all__ = ["flat_parameters"]


@contextmanager
def flat_parameters(network: nn.Module) -> Iterator[list[nn.Parameter]]:
    """Let all trainable parameters, and their gradients, be views of a vector.

    Optimisers and clipping take some operations for each tensor; a network has dozens
    of small ones.

    Yields
    ------
    list of Parameter
        The vectors, one for each data type and device, with their gradients, which are
        to be set to zero in place.
    """
    trained = [p for p in network.parameters() if p.requires_grad]

    def kind(parameter: nn.Parameter) -> str:
        return f"{parameter.dtype} {parameter.device}"

    vectors = []
    for _, group in itertools.groupby(sorted(trained, key=kind), kind):
        parts = list(group)
        vector = nn.Parameter(torch.cat([p.detach().flatten() for p in parts]))
        vector.grad = torch.zeros_like(vector)
        sizes = [p.numel() for p in parts]
        values, grads = vector.detach().split(sizes), vector.grad.split(sizes)
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
