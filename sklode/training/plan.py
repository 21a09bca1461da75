"""What both trainings share: from which weights, how long, on how many threads."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sklode.engine.threads import one_torch_thread
from sklode.training.loop import Draw, Trainer
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

_GLOBAL_GENERATOR = threading.Lock()
"""Held while initial weights are drawn, which torch does from its global generator.

Fits in several threads would draw from each other's seeds. They are drawn in float32,
which is then the default dtype.
"""

Purpose: TypeAlias = Literal["pretrain", "fit", "fine-tune", "update"]
"""What a training is for; to fine-tune is to `fit` what was pretrained."""


class Material(NamedTuple):
    """What a training draws its batches from."""

    draw: Draw
    n_batches: int  # of an epoch
    validation: Sequence[Any] = ()
    warm_up: int = 0  # epochs


class Run:
    """A training of its own copy of a model, on all series together."""

    model: Any
    from_scratch: bool  # not from weights that were trained before
    n_epochs: int
    rate: float  # share of ``lr``

    def __init__(self, settings: Settings, rng: np.random.RandomState) -> None:
        self.settings = settings
        self.generator = torch.Generator().manual_seed(seed_from(rng))

    def set_length(self, purpose: Purpose, n_batches: int, updates: int) -> None:
        """Settle how many epochs it takes, and at which rate.

        ``updates`` are the optimiser's steps that max_epochs=None aims at.
        """
        given, self.rate = self.settings.max_epochs, 1.0
        if purpose in ("pretrain", "fit"):
            self.n_epochs = given or max(updates // n_batches, 1)
            return
        if self.settings.finetune_epochs is not None:
            self.n_epochs = self.settings.finetune_epochs
            return
        whole = given or self.model.whole_epochs
        self.n_epochs = max(round(_FINETUNE_SHARE * whole), 1)
        if purpose == "fine-tune":
            least = math.ceil(_FINETUNE_UPDATES / n_batches)
            self.n_epochs, self.rate = max(self.n_epochs, least), _FINETUNE_RATE

    def goes_on(self, epoch: int) -> bool:
        """Return whether another epoch is worth it, asked after each."""
        return True

    def learn(self, material: Material, reporter: Reporter) -> Trainer:
        """Train the network, let the model know how that went, and return how."""
        model = self.model
        trainer = self.fit(material, reporter, self.n_epochs, self.rate)
        model.best_epoch, model.rows = trainer.best_epoch, trainer.rows
        if self.from_scratch:
            model.whole_epochs = len(model.rows)
        return trainer

    def fit(
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
        with self.torch_threads():
            trainer.fit(material.draw, material.validation, reporter)
        return trainer

    def torch_threads(self) -> contextlib.AbstractContextManager[None]:
        """Leave the cores to the engine where that runs the network."""
        # torch's threads wait for work by spinning, on the cores that the engine needs
        is_fused = "eager" not in self.model.network.engines()
        return one_torch_thread() if is_fused else contextlib.nullcontext()


def seed_from(rng: np.random.RandomState) -> int:
    """Draw a seed."""
    return int(rng.randint(2**31 - 1))


@contextlib.contextmanager
def drawing_weights(seed: int) -> Iterator[None]:
    """Draw initial weights in this context, in float32, which the engine takes."""
    with _GLOBAL_GENERATOR, torch.random.fork_rng(devices=[]):
        # torch.manual_seed would seed the generators of the GPUs as well
        torch.default_generator.manual_seed(seed)
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(before)


def periods_between(shortest: float, longest: float, n: int) -> list[float]:
    """Draw n periods that a decoder starts with, evenly in their log."""
    places = (torch.arange(n) + torch.rand(n)) / max(n, 1)
    periods: list[float] = (shortest * (longest / shortest) ** places).tolist()
    return periods


def columns_of(values: NDArray[Any] | Tensor | None) -> int:
    """Return the number of columns; 0 without any table."""
    return 0 if values is None else values.shape[1]
