"""A training that is planned, underway or done: what all kinds of it share."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from sklode.engine.threads import one_torch_thread
from sklode.training.loop import Trainer
from sklode.training.parameters import Settings
from sklode.training.report import Reporter

BATCHES_PER_EPOCH = 32  # at most; else an epoch draws every window once

_FINETUNE_SHARE = 0.2  # of the epochs, which finetune_epochs=None takes

_FINETUNE_UPDATES, _FINETUNE_RATE = 100, 0.3
"""What it takes at least after pretraining, and the share of lr at which.

A few new series make one batch an epoch where the family made many. Adam's first steps
have the size of the rate, whatever the gradient: after only a handful of them the model
is worse than without. The lower rate keeps what the family has taught.
"""

Purpose: TypeAlias = Literal["pretrain", "fit", "fine-tune", "update"]
"""What a training is for; to fine-tune is to `fit` what was pretrained."""


class Material(NamedTuple):
    """What a training draws its batches from."""

    draw: Callable[[int], Iterator[Any]]  # of an epoch, from 1 on
    n_batches: int  # of an epoch
    warm_up: int  # epochs
    validation: Sequence[Any]


@dataclass
class Run:
    """A training, planned or underway, of its own copy of a model."""

    model: Any
    settings: Settings
    generator: torch.Generator
    n_epochs: int
    rate: float  # share of ``lr``
    from_scratch: bool  # not from weights that were trained before
    predict_seed: int
    cut: NDArray[np.int64]  # the first held-out row of each series

    def goes_on(self, epoch: int) -> bool:
        """Return whether another epoch is worth it, asked after each."""
        return True

    def learn(self, material: Material, reporter: Reporter) -> Trainer:
        """Train the network, let the model know how that went, and return how."""
        model = self.model
        trainer = self._fit(material, reporter, self.n_epochs, self.rate)
        model.best_epoch, model.rows = trainer.best_epoch, trainer.rows
        if self.from_scratch:
            model.whole_epochs = len(model.rows)
        return trainer

    def _fit(
        self, material: Material, reporter: Reporter, n_epochs: int, rate: float
    ) -> Trainer:
        """Fit the network, and return how."""
        trainer = Trainer(
            self.model.network,
            self.settings,
            self.generator,
            n_epochs,
            material.n_batches,
            material.warm_up,
            rate,
            self.goes_on,
        )
        try:
            reporter.begin(n_epochs)
            with self.torch_threads():
                trainer.fit(material.draw, material.validation, reporter)
        finally:
            reporter.close()
        return trainer

    def torch_threads(self) -> contextlib.AbstractContextManager[None]:
        """Leave the cores to the engine where that runs the network."""
        # torch's threads wait for work by spinning, on the cores that the engine needs
        is_fused = "eager" not in self.model.network.engines()
        return one_torch_thread() if is_fused else contextlib.nullcontext()


def length(
    settings: Settings,
    whole_epochs: int,
    n_batches: int,
    purpose: Purpose,
    updates: int,
) -> tuple[int, float]:
    """Return how many epochs a training takes, and which share of ``lr``.

    ``updates`` are the optimiser's steps that max_epochs=None aims at.
    """
    if purpose in ("pretrain", "fit"):
        return settings.max_epochs or max(updates // n_batches, 1), 1.0
    if settings.finetune_epochs is not None:
        return settings.finetune_epochs, 1.0
    share = _FINETUNE_SHARE * (settings.max_epochs or whole_epochs)
    n_epochs = max(round(share), 1)
    if purpose == "update":
        return n_epochs, 1.0
    return max(n_epochs, math.ceil(_FINETUNE_UPDATES / n_batches)), _FINETUNE_RATE
