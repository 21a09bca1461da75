"""From observations to a fitted model: what is settled before training, and then it.

`plan` settles sizes, units, what is held out, the engine and how long to train; the
`Run` that it returns trains, tries the training where it is guarded, and calibrates.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from sklode import nn
from sklode.data.observations import Observations
from sklode.data.scaling import constants_of
from sklode.data.windows import WindowSet
from sklode.engine import functions as engine
from sklode.engine.choice import choose
from sklode.engine.threads import n_threads, one_torch_thread
from sklode.nn.modes import own_modes
from sklode.prediction.calibration import Calibration, measured_calibration
from sklode.prediction.model import FittedModel
from sklode.training import guard
from sklode.training.batches import (
    first_held_out_row,
    hidden_rows,
    training_windows,
    validation_batches,
)
from sklode.training.fresh import fresh_model
from sklode.training.loop import Trainer, TrainState
from sklode.training.parallel import Processes, current, digest
from sklode.training.parameters import Settings, resolve_device
from sklode.training.report import Reporter

__all__ = ["Purpose", "Run", "plan"]

_BATCHES_PER_EPOCH = 32  # at most; else an epoch draws every window once
_UPDATES = 1500  # optimiser steps that max_epochs=None aims at
_HELD_OUT, _TRIED_ON = 0.1, 0.2  # shares of rows, by early stopping and a guard's trial

_FURTHER = 0.2
"""Of the epochs, at the lower rate, that a proved training goes on with on all rows."""

_STAGES = ((0.125, 0.0), (0.25, 0.47), (0.5, 0.82), (1.0, 1.0))
"""Windows grow during the warm-up: (share of their length, share of the warm-up).

Short windows show the local dynamics, which a long solve hides from the gradient
behind many periods; and they are cheap.
"""

_WARM_UP_UPDATES, _WARM_UP_SHARE = 1250, 0.84  # no more than that share of all
_FINETUNE_SHARE = 0.2  # of the epochs, which finetune_epochs=None takes

_FINETUNE_UPDATES, _FINETUNE_RATE = 100, 0.3
"""What it takes at least after pretraining, and the share of lr at which.

A few new series make one batch an epoch where the family made many. Adam's first steps
have the size of the rate, whatever the gradient: after only a handful of them the model
is worse than without. The lower rate keeps what the family has taught.
"""


Purpose: TypeAlias = Literal["pretrain", "fit", "fine-tune", "update"]
"""What a training is for; to fine-tune is to `fit` what was pretrained."""


@dataclass(frozen=True)
class _Terms:
    """What a plan has settled beside the model."""

    signature: str  # of data and settings; "": of a training that cannot go on later
    cut: NDArray[np.int64]  # the first held-out row of each series
    # and of those that a guard leaves out of the training, at first; None without one
    proved_from: NDArray[np.int64] | None
    n_epochs: int
    rate: float  # share of ``lr``
    from_scratch: bool  # not from weights that were trained before
    calibration: Calibration | None  # where spreads cannot be measured
    predict_seed: int


def plan(
    observations: Observations,
    settings: Settings,
    rng: np.random.RandomState,
    n_ahead: int | None = None,
    start: FittedModel | None = None,
    purpose: Purpose = "fit",
) -> Run:
    """Settle all that comes before a training on all series together.

    ``n_ahead`` is the farthest step of the horizon that will be asked for. The training
    begins from new weights, or from a copy of ``start``, with its units and lengths.

    A ``fit`` goes on where that of ``start`` was stopped, if data and settings are the
    same; and may, under ``warm_start``, itself go on later.
    """
    n_threads()  # a thread's first; it could else take another fit's limit for its own
    processes = current()
    if processes.size > 1:
        given = _given(observations, settings)
        weights = () if start is None else start.network.state_dict().values()
        given["digest of random_state"] = digest(*rng.get_state())
        given["digest of earlier weights"] = digest(*(w.cpu().numpy() for w in weights))
        processes.check_same(given)
    signature = ""
    if purpose in ("fit", "fine-tune") and settings.warm_start:
        signature = digest(_given(observations, settings), purpose)
    with own_modes(gradients=True), processes.together():
        if start is not None and start.stopped is not None:
            stopped, start = start.stopped, replace(start, stopped=None)
            if stopped.terms.signature == signature:
                model, terms = copy.deepcopy(start), stopped.terms
                model.calibration = terms.calibration
                windows = model.windows(observations)
                return Run(model, windows, settings, terms, stopped)
        generator = torch.Generator().manual_seed(int(rng.randint(2**31 - 1)))
        fraction = _HELD_OUT if settings.early_stopping else 0.0
        if start is None:
            model, cut = fresh_model(observations, settings, rng, n_ahead, fraction)
        else:
            model = copy.deepcopy(start)
            cut = first_held_out_row(model.windows(observations), fraction, rng)
        if settings.guard is False:
            model.share = 1.0
        model.network.to(resolve_device(settings.device))
        model.held = _held(model, observations, start is None)
        model.hold()
        windows = model.windows(observations)
        _, n_batches = _epoch_size(windows, cut, settings)
        _choose_engine(model, settings)
        proved_from = None
        if start is None and _is_guarded(settings, windows):
            tried_rng = copy.deepcopy(rng)  # what is drawn else is that without a guard
            proved_from = first_held_out_row(windows, _TRIED_ON, tried_rng)
            proved_from = np.minimum(proved_from, cut)
        terms = _Terms(
            signature,
            cut,
            proved_from,
            *_length(settings, model.whole_epochs, n_batches, purpose),
            start is None,
            model.calibration,
            int(rng.randint(2**31 - 1)),
        )
        return Run(model, windows, settings, terms, None, generator)


def _length(
    settings: Settings, whole_epochs: int, n_batches: int, purpose: Purpose
) -> tuple[int, float]:
    """Return how many epochs a training takes, and which share of ``lr``."""
    if purpose in ("pretrain", "fit"):
        return settings.max_epochs or max(_UPDATES // n_batches, 1), 1.0
    if settings.finetune_epochs is not None:
        return settings.finetune_epochs, 1.0
    share = _FINETUNE_SHARE * (settings.max_epochs or whole_epochs)
    n_epochs = max(round(share), 1)
    if purpose == "update":
        return n_epochs, 1.0
    return max(n_epochs, math.ceil(_FINETUNE_UPDATES / n_batches)), _FINETUNE_RATE


@dataclass
class Run:
    """A training that is planned, underway or done, of its own copy of a model."""

    model: FittedModel
    windows: WindowSet
    settings: Settings
    terms: _Terms
    start: TrainState | None = None  # from where it goes on
    generator: torch.Generator = field(default_factory=torch.Generator)
    reporter: Reporter = field(default_factory=Reporter)
    processes: Processes = field(default_factory=current)
    trainer: Trainer | None = None  # None before training

    def train(self, reporter: Reporter) -> FittedModel:
        """Train, calibrate, and return the model."""
        model, processes = self.model, self.processes
        if processes.is_first:
            self.reporter = reporter
        with own_modes(gradients=True), processes.deferring_interrupts():
            processes.share_weights(model.network)
            self._trained()
            if self.terms.proved_from is not None:
                self._go_on_if_proved()
            elif model.level is None:
                model.share = 1.0
            processes.share_weights(model.network)
            with processes.together():
                self.calibrate(model)
            model.calibration = processes.everyones(model.calibration)[0]
        return model

    def so_far(self) -> FittedModel | None:
        """Return a copy with the best weights so far; None in the first epoch."""
        if self.trainer is None or not self.trainer.state.rows:
            return None
        model = copy.deepcopy(self.model)
        model.best_epoch = self.trainer.load_best(model.network)
        self._describe(model, self.trainer)
        self._prove(model)
        return model

    def calibrate(self, model: FittedModel) -> None:
        """Calibrate the spreads of the model, or of a copy of it."""
        model.hold()  # a guard may have let it go
        model.network.eval()
        if model.level is not None and not model.share:
            return
        with self._torch_threads():
            terms, thinning = self.terms, self.settings.thinning
            model.calibration = measured_calibration(
                model, self.windows, terms.cut, terms.n_epochs, thinning
            )

    def _describe(self, model: FittedModel, trainer: Trainer) -> None:
        """Let a model know its training, and from where that may go on."""
        model.rows = list(trainer.state.rows)
        if self.terms.from_scratch:
            model.whole_epochs = len(model.rows)
        if trainer.stopped_at is not None:
            model.stopped = replace(trainer.stopped_at, terms=self.terms)

    def _trained(self, further: bool = False) -> None:
        """Train the network on the windows before the first held-out rows.

        Of a guard those count too, unless it has been proved and goes ``further``: then
        callbacks hear nothing of it.
        """
        model, settings, terms = self.model, self.settings, self.terms
        reporter, processes, start = self.reporter, self.processes, self.start
        cut, n_epochs, rate = terms.cut, terms.n_epochs, terms.rate
        if further:
            reporter, start = Reporter(reporter.verbose, prefix="on all rows: "), None
            n_epochs, rate = math.ceil(_FURTHER * n_epochs), _FINETUNE_RATE
        elif terms.proved_from is not None:
            cut = terms.proved_from
        n_drawn, n_batches = _epoch_size(self.windows, cut, settings)
        warm_up = 0  # none, with weights that were trained before
        if terms.from_scratch and not further:
            warm_up = math.ceil(_WARM_UP_UPDATES / n_batches)
            warm_up = min(warm_up, int(_WARM_UP_SHARE * n_epochs))
        stages = [
            (begin * warm_up, self.windows.shortened(share)) for share, begin in _STAGES
        ]
        device = next(model.network.parameters()).device

        def draw(epoch: int) -> Iterator[nn.Batch]:
            part = [windows for begin, windows in stages if epoch > begin][-1]
            usable = training_windows(part, cut)
            order = torch.randperm(len(usable), generator=self.generator).numpy()
            shuffled = usable[order[:n_drawn]]
            for low in range(0, len(shuffled), settings.batch_size):
                which = shuffled[low : low + settings.batch_size]
                hidden = hidden_rows(part, which, settings.thinning, self.generator)
                yield nn.make_batch(part, which, device, hidden=hidden)

        trainer = Trainer(
            model.network,
            settings,
            self.generator,
            n_epochs,
            n_batches,
            warm_up,
            rate,
            is_resumable=bool(terms.signature) and not further,
            processes=processes,
        )
        if not further:
            self.trainer = trainer  # callbacks look at it
        validation = []
        if settings.early_stopping:
            validation = validation_batches(self.windows, terms.cut, device)
        n_before = 0 if start is None else len(start.rows)
        try:
            with processes.together():
                reporter.begin(n_epochs, n_before)
            if n_epochs:
                _compile(model.network, processes, reporter)
            with self._torch_threads():
                trainer.fit(draw, validation, reporter, start)
        except BaseException:
            reporter.end()
            raise
        with processes.together():
            reporter.end()
        if not further:
            model.best_epoch = trainer.state.best_epoch
            self._describe(model, trainer)

    def _go_on_if_proved(self) -> None:
        """Train on with all rows if the network adds to forecasts of the level.

        As much of what it says counts as is proved. Else the forecast is the level.
        """
        model = self.model
        self._prove(model)
        model.share = self.processes.everyones(model.share)[0]
        if not model.share:
            self.reporter.say(
                "What the network adds to the level has not proved itself: the level "
                "alone is the forecast."
            )
        elif model.stopped is None:  # else the user stopped it
            self._trained(further=True)
        if model.level is not None:
            return
        if not model.share:
            guard.silence(model.network, self.windows, self.terms.cut)
            model.best_epoch = 0
        elif model.share < 1:
            model.network.emission.weaken(model.share)

    def _prove(self, model: FittedModel) -> None:
        """Set how large a share of what a network says is proved."""
        if self.terms.proved_from is None:
            return
        model.network.eval()
        blocks = guard.held_out_blocks(self.windows, self.terms.proved_from)
        with own_modes(gradients=False), self._torch_threads():
            model.share = guard.share_of(model.network, self.windows, blocks)

    def _torch_threads(self) -> contextlib.AbstractContextManager[None]:
        # torch's threads wait for work by spinning, on the cores that the engine needs
        is_fused = self.model.network.engines() == ("fused", "fused")
        return one_torch_thread() if is_fused else contextlib.nullcontext()


def _is_guarded(settings: Settings, windows: WindowSet) -> bool:
    """Return whether what the network adds has to be proved."""
    if settings.guard is True and not windows.horizon:
        raise ValueError(
            "guard=True tries a training on forecasts of horizon rows; got horizon=0. "
            "Raise horizon, or use guard=False."
        )
    if settings.guard == "auto":
        return windows.level is not None and windows.horizon > 0
    return bool(settings.guard)


def _epoch_size(
    windows: WindowSet, cut: NDArray[np.int64], settings: Settings
) -> tuple[int, int]:
    """Return how many windows an epoch draws, and in how many batches."""
    n_windows = len(training_windows(windows, cut))
    n_drawn = min(n_windows, _BATCHES_PER_EPOCH * settings.batch_size)
    return n_drawn, math.ceil(n_drawn / settings.batch_size)


def _held(
    model: FittedModel, observations: Observations, from_scratch: bool
) -> NDArray[np.floating]:
    """Return what channels that never varied are forecast by; NaN for all others.

    Nothing is to be learned of them, and the ever smaller noise that their likelihood
    asks for would leave no other gradient. A model that was trained on others before
    knows more than such a channel does, unless its location is that constant.
    """
    held = model.normalisation.values(constants_of(observations.values))
    if model.is_relative:
        held = 0.0 * held
    return held if from_scratch else np.where(np.abs(held) < 1e-9, held, np.nan)


def _given(observations: Observations, settings: Settings) -> dict[str, str]:
    """Return parameters, and digests of data, by their names."""
    return {
        **{name: str(value) for name, value in vars(settings).items()},
        "digest of stamps": digest(observations.ticks, observations.bounds),
        "digest of y": digest(observations.values),
        "digest of X": digest(observations.controls),
    }


def _compile(network: nn.LatentODE, processes: Processes, reporter: Reporter) -> None:
    """Compile what has to be; one process on each machine does it for the others."""
    if "fused" not in network.engines():
        return
    for is_first_turn in (True, False) if processes.size > 1 else (True,):
        with processes.together():
            is_mine = (processes.local_rank == 0) == is_first_turn
            if is_mine and not engine.is_compiled():
                reporter.compiling()
                engine.compile_kernel()


def _choose_engine(model: FittedModel, settings: Settings) -> None:
    """Set which engine trains the network, and forecasts with it afterwards.

    Raises
    ------
    ValueError
        If the fused engine is asked for, and does not serve encoder or decoder.
    """
    network = model.network
    network.engine = choose(settings.engine)
    if settings.engine == "fused" and network.engines() != ("fused", "fused"):
        raise ValueError(
            "engine='fused' serves fixed-step methods without adjoint, one or two "
            "hidden layers, sklode's own modules, and the CPU; got "
            f"{_beyond_fused(network, settings)}. Change that, or use engine='auto'."
        )


def _beyond_fused(network: nn.LatentODE, settings: Settings) -> str:
    """Return what the fused engine does not serve."""
    device = next(network.parameters()).device
    found = {
        f"device={device.type!r}": device.type != "cpu",
        f"method={settings.method!r}": settings.method == "dopri5",
        "adjoint=True": settings.adjoint,
        f"field_depth={settings.field_depth}": settings.field_depth > 2,
    }
    parts = zip(network.engines(), (network.encoder, network.decoder), strict=True)
    others = [type(part).__name__ for ran, part in parts if ran != "fused"]
    culprits = [text for text, is_so in found.items() if is_so]
    return ", ".join(culprits) or f"other modules in {' and '.join(others)}"
