"""Steps along the gradient: weights as one vector, clipping, AdamW, the rate."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sklode.nn import clip_gradient_norm

__all__ = ["Descent", "Snapshot", "flat_parameters"]


class Snapshot(NamedTuple):
    """Weights and the optimiser's moments; nothing in it is ever changed."""

    weights: list[Tensor]
    moments: list[Any]

    def __deepcopy__(self, memo: dict[int, Any]) -> Snapshot:
        return self


class Descent:
    """AdamW at a rate that makes one cycle over all steps (Smith and Topin 2019).

    Parameters
    ----------
    vectors : list of Parameter
        All that is trained, see `flat_parameters`.
    lr : float
        The peak of the rate.
    weight_decay : float
        Of matrices; biases and scales do not decay.
    n_steps : int
        Of the whole cycle.
    """

    def __init__(
        self,
        vectors: list[nn.Parameter],
        lr: float,
        weight_decay: float,
        n_steps: int,
    ) -> None:
        self._vectors = vectors
        self.grads = [v.grad for v in vectors if v.grad is not None]
        groups = [
            {"params": [v], "weight_decay": weight_decay * (v.ndim > 1)}
            for v in vectors
        ]
        self._optimizer = torch.optim.AdamW(groups, lr=lr, fused=True)
        self._schedule = torch.optim.lr_scheduler.OneCycleLR(
            self._optimizer, lr, total_steps=max(n_steps, 1)
        )

    @property
    def rate(self) -> float:
        """The rate of the next step."""
        return float(self._optimizer.param_groups[0]["lr"])

    def zero(self) -> None:
        """Forget the last gradient."""
        for grad in self.grads:
            grad.zero_()  # in place: the parameters' gradients are views of it

    def clip(self, threshold: float | None) -> float:
        """Clip the gradient, see `clip_gradient_norm`; return its norm before."""
        return clip_gradient_norm(self._vectors, threshold)

    def step(self) -> None:
        """Take a step."""
        self._optimizer.step()
        if self._schedule.last_epoch < self._schedule.total_steps - 1:
            self._schedule.step()

    def slow_down(self) -> None:
        """Halve the rate of all steps ahead."""
        for group in self._optimizer.param_groups:
            for name in {"lr", "initial_lr", "max_lr", "min_lr"} & set(group):
                group[name] *= 0.5

    def snapshot(self) -> Snapshot:
        """Return weights and moments as they are now."""
        moments = self._optimizer.state
        return Snapshot(
            [v.detach().clone() for v in self._vectors],
            [copy.deepcopy(moments.get(v)) for v in self._vectors],
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to weights and moments."""
        self._optimizer.state.clear()
        for vector, weights, moments in zip(
            self._vectors, snapshot.weights, snapshot.moments, strict=True
        ):
            vector.detach().copy_(weights)  # in place: the parameters are views of it
            if moments is not None:
                self._optimizer.state[vector] = copy.deepcopy(moments)

    def state(self) -> dict[str, Any]:
        """Return all that later steps depend on; `load` takes it."""
        groups = self._optimizer.param_groups
        return {
            "now": self.snapshot(),
            "groups": [
                {k: v for k, v in group.items() if k != "params"} for group in groups
            ],
            "schedule": self._schedule.state_dict(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Become what another descent was."""
        self.restore(state["now"])
        groups = self._optimizer.param_groups
        for group, kept in zip(groups, state["groups"], strict=True):
            group.update(kept)
        self._schedule.load_state_dict(state["schedule"])


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
        The vectors, with their gradients, which are to be set to zero in place.
    """
    trained = [p for p in network.parameters() if p.requires_grad]
    groups = [trained]
    if matrices_apart:
        groups = [[p for p in trained if (p.ndim > 1) is m] for m in (False, True)]
    vectors = []
    for parts in filter(None, groups):
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
