"""What both trainings share: initial weights, epochs, threads.

Tested in tests/latent_ode/test_training.py and tests/hybrid/test_training.py.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch

from sklode.data.arrays import Numbers
from sklode.data.history import History
from sklode.data.known import Known, told
from sklode.engine.threads import one_torch_thread
from sklode.nn.autoencoder import Autoencoder
from sklode.training.model import ARCHITECTURE, TrainedModel
from sklode.training.parameters import TrainingSettings, model_of
from sklode.training.report import Reporter
from sklode.training.trainer import Draw, Trainer

_BATCHES_PER_EPOCH = 32  # at most; else an epoch draws every window once

_FINETUNE_SHARE = 0.2  # of the epochs, which finetune_epochs=None takes

_FINETUNE_UPDATES, _FINETUNE_RATE = 100, 0.3
"""What it takes at least after pretraining, and the share of lr at which.

A few of Adam's steps, of the rate's size whatever the gradient, do harm.
"""

Drawer: TypeAlias = np.random.RandomState | np.random.Generator

_GLOBAL_GENERATOR = threading.Lock()  # of torch, which fits in threads share


_Network = TypeVar("_Network", bound=Autoencoder)


class Material(NamedTuple):
    """What a training draws its batches from."""

    draw: Draw
    n_batches: int  # of an epoch
    validation: object  # a batch, or None
    warm_up: int = 0  # epochs


class Training:
    """A training on all series, from new weights or those of ``start``.

    ``settings`` are a forecaster's parameters; its ``purpose`` is to "pretrain", "fit",
    "fine-tune" (fit what was pretrained) or "update".
    """

    n_epochs = 0
    rate = 1.0  # share of ``lr``

    def __init__(
        self,
        history: History,
        settings: TrainingSettings,
        rng: np.random.RandomState,
        start: TrainedModel | None,
        purpose: str,
    ) -> None:
        self.settings, self.rng = settings, rng
        self.start, self.purpose = start, purpose
        self.rows, self._history = history.observations, history
        self.generator = torch.Generator().manual_seed(seed_from(rng))
        self.from_scratch = start is None or start.network is None
        self.model: Any = None if self.from_scratch else copy.deepcopy(start)
        self.architecture = {name: getattr(settings, name) for name in ARCHITECTURE}
        self.architecture |= told(settings) | {"model": model_of(settings)}
        self.columns = history.channels, history.controls, history.categories

    @functools.cached_property
    def known(self) -> Known:
        """What the user knows: read where a model is found, not of one that is kept."""
        return Known.of(self.settings, self._history)

    def n_batches(self, n_windows: int) -> int:
        """Return the batches of an epoch."""
        n = math.ceil(max(n_windows, 1) / self.settings.batch_size)
        return min(_BATCHES_PER_EPOCH, n)

    def set_length(self, n_windows: int, updates: int) -> None:
        """Settle the epochs, by ``updates`` if not given, and the rate."""
        given, n_batches = self.settings.max_epochs, self.n_batches(n_windows)
        if self.purpose in ("pretrain", "fit"):
            self.n_epochs = given or max(updates // n_batches, 1)
        elif self.settings.finetune_epochs is not None:
            self.n_epochs = self.settings.finetune_epochs
        else:
            whole = given or self.model.whole_epochs
            self.n_epochs = max(round(_FINETUNE_SHARE * whole), 1)
            if self.purpose == "fine-tune":
                least = math.ceil(_FINETUNE_UPDATES / n_batches)
                self.n_epochs, self.rate = max(self.n_epochs, least), _FINETUNE_RATE

    def goes_on(self, epoch: int) -> bool:
        """Return whether another epoch is worth it."""
        return True

    def learn(self, reporter: Reporter, material: Material) -> Trainer:
        """Train the network; return how that went."""
        trainer = Trainer(
            self.model.network,
            self.settings,
            self.generator,
            self.n_epochs,
            material.n_batches,
            material.warm_up,
            self.rate,
            self.goes_on,
        )
        with self.torch_threads():
            trainer.fit(material.draw, material.validation, reporter)
        return trainer

    def keep_history(self, trainer: Trainer) -> None:
        """Have the model tell how it was trained."""
        self.model.best_epoch, self.model.rows = trainer.best_epoch, trainer.rows
        if self.from_scratch:
            self.model.whole_epochs = len(trainer.rows)

    def torch_threads(self) -> contextlib.AbstractContextManager[None]:
        """Leave the cores to the engine where it runs the network."""
        is_fused = "eager" not in self.model.network.engines()
        return one_torch_thread() if is_fused else contextlib.nullcontext()


def seed_from(rng: np.random.RandomState) -> int:
    """Draw a seed."""
    return int(rng.randint(2**31 - 1))


def held_out_rows(bounds: Numbers, share: float, whole: bool, rng: Drawer) -> Numbers:
    """Return series' first held-out rows, of each or of ``whole`` series."""
    first, end = bounds[:-1], bounds[1:]
    if not whole:
        return end - np.maximum(np.round(share * (end - first)), 1).astype(np.int64)
    chosen = rng.permutation(len(end))[: round(share * len(end))]
    cut = end.copy()
    cut[chosen] = first[chosen]
    return cut


def drawn_network(
    build: Callable[[], _Network], seed: int, shortest: float, longest: float
) -> _Network:
    """Return an untrained network, which ``build`` makes of random weights.

    Its latent state rotates with periods between the two, evenly drawn in their log.
    """
    with _GLOBAL_GENERATOR, torch.random.fork_rng(devices=[]):
        # torch.manual_seed would seed the GPUs as well
        torch.default_generator.manual_seed(seed)
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)  # which the engine is compiled for
        try:
            network = build()
            if network.decoder is not None:
                n = network.latent_size // 2
                places = (torch.arange(n) + torch.rand(n)) / max(n, 1)
                periods = shortest * (longest / shortest) ** places
                network.decoder.vector_field.start_rotating(periods.tolist())
        finally:
            torch.set_default_dtype(before)
    return network
