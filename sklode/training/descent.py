"""Steps along the gradient: weights as one vector, clipping, AdamW, the rate."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sklode.nn import clip_gradient_norm


class Snapshot(NamedTuple):
    """Weights and the optimiser's moments."""

    weights: Tensor
    moments: dict[str, Any]


class Descent:
    """AdamW at a rate that makes one cycle over ``n_steps`` (Smith and Topin 2019).

    Until `close` all trainable weights of the network, and their gradients, are views
    of one vector: optimisers and clipping take some operations for each tensor, and a
    network has dozens of small ones.
    """

    def __init__(self, network: nn.Module, lr: float, n_steps: int) -> None:
        self._trained = [p for p in network.parameters() if p.requires_grad]
        sizes = [p.numel() for p in self._trained]
        values = torch.cat([p.detach().flatten() for p in self._trained])
        self.gradient = torch.zeros_like(values)
        parts = zip(values.split(sizes), self.gradient.split(sizes), strict=True)
        for parameter, (value, grad) in zip(self._trained, parts, strict=True):
            parameter.data = value.view_as(parameter)
            parameter.grad = grad.view_as(parameter)
        self._vector = nn.Parameter(values)
        self._vector.grad = self.gradient
        self._optimizer = torch.optim.AdamW(
            [self._vector], lr=lr, weight_decay=0.0, fused=True
        )
        self._group = self._optimizer.param_groups[0]
        self._schedule = torch.optim.lr_scheduler.OneCycleLR(
            self._optimizer, lr, total_steps=max(n_steps, 1)
        )

    def close(self) -> None:
        """Make the weights tensors of their own again."""
        for parameter in self._trained:
            parameter.data = parameter.data.clone()
            parameter.grad = None

    @property
    def rate(self) -> float:
        """The rate of the next step."""
        return float(self._group["lr"])

    def zero(self) -> None:
        """Forget the last gradient."""
        self.gradient.zero_()  # in place: the parameters' gradients are views of it

    def clip(self, threshold: float | None) -> float:
        """Clip the gradient, see `clip_gradient_norm`; return its norm before."""
        return clip_gradient_norm([self._vector], threshold)

    def step(self) -> None:
        """Take a step."""
        self._optimizer.step()
        if self._schedule.last_epoch < self._schedule.total_steps - 1:
            self._schedule.step()

    def slow_down(self) -> None:
        """Halve the rate of all steps ahead."""
        for name in {"lr", "initial_lr", "max_lr", "min_lr"} & set(self._group):
            self._group[name] *= 0.5

    def snapshot(self) -> Snapshot:
        """Return weights and moments as they are now."""
        moments = copy.deepcopy(self._optimizer.state[self._vector])
        return Snapshot(self._vector.detach().clone(), moments)

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to weights and moments."""
        self._vector.detach().copy_(snapshot.weights)
        self._optimizer.state[self._vector] = copy.deepcopy(snapshot.moments)
