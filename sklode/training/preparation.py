"""What is settled before a training: seeds, initial weights, what is held out, epochs.

Both trainings share it, and how a network then learns.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar, Generic, TypeVar

import numpy as np
import torch

from sklode.data.arrays import Numbers
from sklode.data.history import History
from sklode.data.known import Known
from sklode.engine.threads import one_torch_thread
from sklode.nn.autoencoder import Autoencoder
from sklode.training.model import TrainedModel, architecture_of
from sklode.training.parameters import TrainingSettings
from sklode.training.report import Reporter
from sklode.training.trainer import Material, Record, Schedule, Trainer

_BATCHES_PER_EPOCH = 32  # at most; else an epoch draws every window once

_FINETUNE_SHARE = 0.2  # of the epochs, which finetune_epochs=None takes

_FINETUNE_UPDATES, _FINETUNE_RATE = 100, 0.3
"""What it takes at least after pretraining, and the share of lr at which.

A few of Adam's steps, of the rate's size whatever the gradient, do harm.
"""

# of torch, which fits in threads share
_GLOBAL_GENERATOR = threading.Lock()

Network = TypeVar("Network", bound=Autoencoder)
Model = TypeVar("Model", bound=TrainedModel)


class Training(ABC, Generic[Model]):
    """A training on all series, from new weights or those of ``start``.

    ``settings`` are a forecaster's parameters; its ``purpose`` is to "pretrain", "fit",
    "fine-tune" (fit what was pretrained) or "update"; ``n_ahead`` is the farthest step
    of the horizon that will be forecast, if that is known. The weights of the network
    of ``model`` change as it learns; all else that is found makes a new model, at the
    end.
    """

    fills_X: ClassVar[bool]  # whether X that is not known is forecast itself
    model: Model
    network: Autoencoder  # of the model, where it has one
    predict_seed: int  # of all draws of forecasts
    schedule = Schedule()

    def __init__(
        self,
        history: History,
        settings: TrainingSettings,
        rng: np.random.RandomState,
        start: Model | None,
        purpose: str,
        n_ahead: int | None,
    ) -> None:
        self.settings, self.purpose, self.n_ahead = settings, purpose, n_ahead
        self.rows, self._history = history.observations, history
        self.rng, self.start = rng, start
        self._phases: list[tuple[list[Record], int]] = []  # see `note`
        self.generator = torch.Generator().manual_seed(seed_from(rng))
        self.from_scratch = start is None or start.network is None
        self.architecture = architecture_of(settings)
        self.columns = history.channels, history.controls, history.categories

    @abstractmethod
    def begin(self) -> None:
        """Find the model that is trained, and how long that takes."""

    @abstractmethod
    def train(self, reporter: Reporter) -> Model:
        """Begin, train, and return the model."""

    def continued(self, start: Model) -> Model:
        """Return a model to train on: a copy, as its network changes in place."""
        return replace(copy.deepcopy(start), columns=self.columns)

    @functools.cached_property
    def known(self) -> Known:
        """What the user knows: read where a model is found, not of one that is kept."""
        return Known.of(self.settings, self._history)

    def n_batches(self, n_windows: int) -> int:
        """Return the batches of an epoch."""
        n = math.ceil(max(n_windows, 1) / self.settings.batch_size)
        return min(_BATCHES_PER_EPOCH, n)

    def schedule_of(self, n_windows: int, updates: int) -> Schedule:
        """Return the epochs, by ``updates`` if they are not given, and the rate."""
        given = self.settings.max_epochs
        n_batches = self.n_batches(n_windows)
        if self.purpose in ("pretrain", "fit"):
            return Schedule(given or max(updates // n_batches, 1))
        if self.settings.finetune_epochs is not None:
            return Schedule(self.settings.finetune_epochs)
        whole = given or self.model.whole_epochs
        share = max(round(_FINETUNE_SHARE * whole), 1)
        if self.purpose == "update":
            return Schedule(share)
        least = math.ceil(_FINETUNE_UPDATES / n_batches)
        return Schedule(max(share, least), rate=_FINETUNE_RATE)

    def learn(
        self,
        material: Material,
        schedule: Schedule,
        reporter: Reporter,
        goes_on: Callable[[int], bool] = lambda epoch: True,
    ) -> Trainer:
        """Train the network, as long as it ``goes_on``; return how that went."""
        trainer = Trainer(
            network=self.network,
            settings=self.settings,
            generator=self.generator,
            schedule=schedule,
            material=material,
            goes_on=goes_on,
        )
        with torch_threads(self.network):
            trainer.fit(reporter)
        return trainer

    def note(self, trainers: Sequence[Trainer]) -> None:
        """Keep of trainings, in their order, what the history will tell.

        No trainer is kept: its batches are drawn by this training, and would hold it.
        """
        self._phases += [(one.records, one.best_epoch) for one in trainers]

    def trained(self, model: Model) -> Model:
        """Return a model that tells how its network has learned, phase by phase."""
        rows: list[Record] = []
        best = 0
        for number, (records, best_epoch) in enumerate(self._phases, start=1):
            before = len(rows)
            if best_epoch:  # else the weights are those of before
                best = before + best_epoch
            for record in records:
                named = {"epoch": before + record["epoch"], "phase": number}
                if record["restored_epoch"]:
                    named["restored_epoch"] = before + record["restored_epoch"]
                rows.append(record | named)
        # later trainings take a share of the first one, not of each other
        whole = self.model.whole_epochs
        if self.from_scratch:
            whole = len(self._phases[0][0])
        return replace(model, rows=rows, best_epoch=best, whole_epochs=whole)


def torch_threads(network: Autoencoder) -> contextlib.AbstractContextManager[None]:
    """Leave the cores to the engine where it runs the network."""
    is_fused = "eager" not in network.engines()
    return one_torch_thread() if is_fused else contextlib.nullcontext()


def seed_from(rng: np.random.RandomState) -> int:
    """Draw a seed."""
    return int(rng.randint(2**31 - 1))


def held_out_rows(
    bounds: Numbers,
    share: float,
    of_series: bool,
    rng: np.random.RandomState | np.random.Generator,
) -> Numbers:
    """Return series' first held-out rows: ends of each, or some series whole."""
    first, end = bounds[:-1], bounds[1:]
    if not of_series:
        n_rows = np.maximum(np.round(share * (end - first)), 1)
        return end - n_rows.astype(np.int64)
    chosen = rng.permutation(len(end))[: round(share * len(end))]
    cut = end.copy()
    cut[chosen] = first[chosen]
    return cut


def drawn_network(
    build: Callable[[], Network], seed: int, shortest: float, longest: float
) -> Network:
    """Return an untrained network, which ``build`` makes of random weights.

    Its latent state rotates with periods between the two, evenly drawn in their log.
    """
    # torch's modules draw from its global generator, which fits in other threads
    # share, and users: it is given back as it was
    with _GLOBAL_GENERATOR, torch.random.fork_rng(devices=[]):
        # torch.manual_seed would seed the GPUs as well
        torch.default_generator.manual_seed(seed)
        before = torch.get_default_dtype()
        # the engine is compiled for it
        torch.set_default_dtype(torch.float32)
        try:
            network = build()
            if network.decoder is not None:
                # stratified: the logarithm's range in n parts, a period in each
                n = network.latent_size // 2
                places = (torch.arange(n) + torch.rand(n)) / max(n, 1)
                periods = shortest * (longest / shortest) ** places
                field = network.decoder.vector_field
                field.start_rotating(periods.tolist())
        finally:
            torch.set_default_dtype(before)
    return network
