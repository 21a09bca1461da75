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
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from sklode import engine, nn
from sklode.data.observations import Observations
from sklode.data.scaling import constants_of
from sklode.data.windows import WindowSet
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

__all__ = ["Checkpoint", "Extent", "Run", "plan"]

_BATCHES_PER_EPOCH = 32
"""An epoch draws every window once, but no more than this many batches of them."""

_UPDATES = 1500
"""Optimiser steps that max_epochs=None aims at."""

_HELD_OUT = 0.1
"""Share of the rows that early stopping holds out."""

_STAGES = ((0.125, 0.0), (0.25, 0.47), (0.5, 0.82), (1.0, 1.0))
"""Windows grow during the warm-up: (share of their length, share of the warm-up).

Short windows show the local dynamics, which a long solve hides from the gradient
behind many periods; and they are cheap.
"""

_WARM_UP_UPDATES = 1250
_WARM_UP_SHARE = 0.84
"""The warm-up takes that many updates, but no more than this share of all."""

_COST_OF_NO_STAMPS = 0.1
"""What an epoch takes beside its solves, as a share of these for whole windows."""

_FINETUNE_SHARE = 0.2
"""Share of the epochs that finetune_epochs=None takes."""

_FINETUNE_UPDATES = 100
"""What it takes at least, after pretraining.

A few new series make one batch an epoch where the family made many. Adam's first steps
have the size of the rate, whatever the gradient: after only a handful of them the model
is worse than without.
"""

_FINETUNE_RATE = 0.3
"""The share of lr at which it then trains, to keep what the family has taught."""


class Extent(NamedTuple):
    """How long, and at which rate, a model trains that was trained before.

    Attributes
    ----------
    epochs, updates : int
        At least so many of both, in whole epochs.
    rate : float
        As a share of ``lr``.
    """

    epochs: int
    updates: int = 0
    rate: float = 1.0

    @classmethod
    def of_update(cls, settings: Settings, model: FittedModel) -> Extent:
        """Return how an ``update`` trains."""
        if settings.finetune_epochs is not None:
            return cls(settings.finetune_epochs)
        whole = settings.max_epochs or model.whole_epochs
        return cls(max(round(_FINETUNE_SHARE * whole), 1))

    @classmethod
    def of_fine_tuning(cls, settings: Settings, model: FittedModel) -> Extent:
        """Return how a ``fit`` that follows ``pretrain`` trains."""
        extent = cls.of_update(settings, model)
        if settings.finetune_epochs is not None:
            return extent
        return extent._replace(updates=_FINETUNE_UPDATES, rate=_FINETUNE_RATE)


@dataclass(frozen=True)
class Checkpoint:
    """A training that was stopped, for one that goes on as if it had not been.

    Attributes
    ----------
    state : TrainState
        Of the training, after its last whole epoch.
    terms : _Terms
        What was settled before it.
    """

    state: TrainState
    terms: _Terms


@dataclass(frozen=True)
class _Terms:
    """What a plan has settled beside the model.

    Attributes
    ----------
    signature : str
        Of data and settings; a training goes on only under the same.
    cut : ndarray of shape (series,)
        The first held-out row of each series.
    n_epochs : int
    rate : float
        Share of ``lr``.
    from_scratch, fine_tunes : bool
        Whether the weights are new, so that windows grow; whether they were pretrained.
    calibration : Calibration or None
        What spreads are scaled by where they cannot be measured.
    predict_seed : int
        Of the forecasts' random numbers.
    """

    signature: str
    cut: NDArray[np.int64]
    n_epochs: int
    rate: float
    from_scratch: bool
    fine_tunes: bool
    calibration: Calibration | None
    predict_seed: int


def plan(
    observations: Observations,
    settings: Settings,
    rng: np.random.RandomState,
    n_ahead: int | None = None,
    start: FittedModel | None = None,
    extent: Extent | None = None,
    goes_on: bool = False,
) -> Run:
    """Settle all that comes before a training on all series together.

    Parameters
    ----------
    observations : Observations
        The series.
    settings : Settings
    rng : RandomState
        Of every random number.
    n_ahead : int, optional
        The farthest step of the horizon that will be asked for.
    start : FittedModel, optional
        Continue from a copy of this one, with its units and lengths.
    extent : Extent, optional
        How long; None: ``settings.max_epochs``.
    goes_on : bool, default=False
        Whether the training goes on where that of ``start`` was stopped, if data and
        settings are the same, and may, under ``settings.warm_start``, itself go on.
    """
    n_threads()  # a thread's first; it could else take another fit's limit for its own
    processes = current()
    if processes.size > 1:
        processes.check_same(*_in_common(observations, settings, rng, start))
    with own_modes(gradients=True), processes.together():
        is_resumable = goes_on and settings.warm_start
        signature = _signature(observations, settings, extent) if is_resumable else ""
        stopped = None if start is None else start.stopped
        if start is not None and stopped is not None:
            start = replace(start, stopped=None)
            if goes_on and stopped.terms.signature == signature:
                model = copy.deepcopy(start)
                model.calibration = stopped.terms.calibration
                windows = model.windows(observations)
                return Run(
                    model,
                    windows,
                    settings,
                    stopped.terms,
                    torch.Generator(),
                    rng,
                    is_resumable,
                    stopped.state,
                )
        return _new_run(
            observations, settings, rng, n_ahead, start, extent, signature, is_resumable
        )


def _new_run(
    observations: Observations,
    settings: Settings,
    rng: np.random.RandomState,
    n_ahead: int | None,
    start: FittedModel | None,
    extent: Extent | None,
    signature: str,
    is_resumable: bool,
) -> Run:
    """Plan a training that does not go on where another one stopped."""
    generator = torch.Generator().manual_seed(int(rng.randint(2**31 - 1)))
    fraction = _HELD_OUT if settings.early_stopping else 0.0
    if start is None:
        model, cut = fresh_model(observations, settings, rng, n_ahead, fraction)
    else:
        model = copy.deepcopy(start)
        cut = first_held_out_row(model.windows(observations), fraction, rng)
    model.network.to(resolve_device(settings.device))
    model.held = _held(model, observations, start is None)
    model.hold()
    windows = model.windows(observations)
    _choose_engine(model, settings)
    _, n_batches = _epoch_size(windows, cut, settings)
    n_epochs = settings.max_epochs or max(_UPDATES // n_batches, 1)
    if extent is not None:
        n_epochs = max(extent.epochs, math.ceil(extent.updates / n_batches))
    trial_rng = copy.deepcopy(rng)
    terms = _Terms(
        signature,
        cut,
        n_epochs,
        1.0 if extent is None else extent.rate,
        start is None,
        start is not None,
        model.calibration,
        int(rng.randint(2**31 - 1)),
    )
    return Run(model, windows, settings, terms, generator, trial_rng, is_resumable)


@dataclass
class Run:
    """A training that is planned, underway or done.

    Attributes
    ----------
    model : FittedModel
        In training; a copy of the one that it starts from.
    windows : WindowSet
        What it is trained on.
    settings : Settings
    terms : _Terms
    generator : torch.Generator
        Of the training's random numbers.
    rng : RandomState
        Of those of a guarded trial.
    is_resumable : bool
        Whether the training may go on later.
    start : TrainState or None
        From where it goes on; None: it begins.
    reporter : Reporter
        Told of each epoch; may stop the training.
    trainer : Trainer or None
        None before training.
    """

    model: FittedModel
    windows: WindowSet
    settings: Settings
    terms: _Terms
    generator: torch.Generator
    rng: np.random.RandomState
    is_resumable: bool = False
    start: TrainState | None = None
    reporter: Reporter = field(default_factory=Reporter)
    processes: Processes = field(default_factory=current)
    trainer: Trainer | None = None

    def train(self, reporter: Reporter | None = None) -> FittedModel:
        """Train, calibrate, and return the model.

        Parameters
        ----------
        reporter : Reporter, optional
            Of processes that share the training, that of the first is told.
        """
        model, processes = self.model, self.processes
        if reporter is not None and processes.is_first:
            self.reporter = reporter
        with own_modes(gradients=True), processes.deferring_interrupts():
            processes.share_weights(model.network)
            if self.settings.guard and self.terms.from_scratch and self.start is None:
                self._train_if_proved()
            else:
                self._train()
            processes.share_weights(model.network)
            with processes.together():
                self.calibrate(model)
            model.calibration = processes.from_first(model.calibration)
        return model

    def so_far(self) -> FittedModel | None:
        """Return a copy of the model with the best weights so far.

        None before the first epoch has ended. Its spreads are not calibrated.
        """
        if self.trainer is None or not self.trainer.state.rows:
            return None
        model = copy.deepcopy(self.model)
        model.best_epoch = self.trainer.load_best(model.network)
        self._describe(model, self.trainer)
        return model

    def calibrate(self, model: FittedModel) -> None:
        """Calibrate the spreads of the model, or of a copy of it."""
        model.hold()  # a guard may have let it go
        model.network.eval()
        with self._torch_threads():
            model.calibration = measured_calibration(
                model,
                self.windows,
                self.terms.cut,
                self.terms.n_epochs,
                self.settings.thinning,
            )

    def _describe(self, model: FittedModel, trainer: Trainer) -> None:
        """Let a model know its training, and from where that may go on."""
        model.rows = list(trainer.state.rows)
        if self.terms.from_scratch:
            model.whole_epochs = len(model.rows)
        if trainer.stopped_at is not None:
            model.stopped = Checkpoint(trainer.stopped_at, self.terms)

    def _train(self) -> None:
        self.trainer = self._trained(
            self.model, self.terms.cut, self.reporter, self.is_resumable
        )

    def _trained(
        self,
        model: FittedModel,
        cut: NDArray[np.int64],
        reporter: Reporter,
        is_resumable: bool,
        is_trial: bool = False,
    ) -> Trainer:
        """Train a model's network on the windows before the first held-out rows.

        Parameters
        ----------
        model : FittedModel
            Gets the trained weights, the history and the best epoch.
        cut : ndarray of shape (series,)
            See `first_held_out_row`.
        reporter : Reporter
        is_resumable, is_trial : bool
            Whether it may go on later; whether nothing is kept where it is broken off.
        """
        settings, terms, processes = self.settings, self.terms, self.processes
        n_drawn, n_batches = _epoch_size(self.windows, cut, settings)
        stages = _stages(self.windows, terms, n_batches)
        device = next(model.network.parameters()).device

        def draw(epoch: int, generator: torch.Generator) -> Iterator[nn.Batch]:
            part = stages.at(epoch)
            usable = training_windows(part, cut)
            order = torch.randperm(len(usable), generator=generator).numpy()
            shuffled = usable[order[:n_drawn]]
            for low in range(0, len(shuffled), settings.batch_size):
                which = shuffled[low : low + settings.batch_size]
                hidden = hidden_rows(part, which, settings.thinning, generator)
                yield nn.make_batch(part, which, device, hidden=hidden)

        trainer = Trainer(
            model.network,
            settings,
            terms.n_epochs,
            n_batches,
            stages.warm_up,
            terms.rate,
            is_resumable,
            not is_trial,
            processes,
        )
        if not is_trial:
            self.trainer = trainer  # callbacks look at it
        validation = []
        with processes.together():
            if settings.early_stopping:
                validation = validation_batches(self.windows, cut, device)
        n_before = 0 if self.start is None else len(self.start.rows)
        try:
            with processes.together():
                reporter.begin(stages.costs(terms.n_epochs), n_before)
            if terms.n_epochs:
                _make_ready(model.network, processes, reporter)
            with self._torch_threads():
                trainer.fit(draw, self.generator, validation, reporter, self.start)
        except BaseException:
            reporter.end()
            raise
        with processes.together():
            reporter.end()
        model.best_epoch = trainer.state.best_epoch
        self._describe(model, trainer)
        return trainer

    def _train_if_proved(self) -> None:
        """Train, if training on the first rows forecasts the following ones better.

        Better than the level alone does, see `guard`. Else the network stays silent:
        its forecast is the level.
        """
        model, windows, cut = self.model, self.windows, self.terms.cut
        if not windows.horizon:
            raise ValueError(
                "guard=True tries a training on forecasts of horizon rows; got "
                "horizon=0. Raise horizon, or use guard=False."
            )
        # what the trial draws is drawn again: then the fit is that without a guard
        state = self.generator.get_state()
        before = first_held_out_row(windows, guard.TRIAL_FRACTION, self.rng)
        before = np.minimum(before, cut)
        trial = copy.deepcopy(model)
        self._trained(trial, before, self.reporter.of_trial(), False, is_trial=True)
        self.generator.set_state(state)
        with self.processes.together(), self._torch_threads():
            gain = guard.gains(model.network, trial.network, windows, before)
        if self.processes.from_first(guard.is_proved(gain)):
            self._train()
            return
        self.reporter.say(
            "The trial has not proved itself: the level alone is the forecast."
        )
        guard.silence(model.network, windows, cut)
        model.rows, model.best_epoch = trial.rows, 0
        model.whole_epochs = len(trial.rows)

    def _torch_threads(self) -> contextlib.AbstractContextManager[None]:
        """Return the context in which the network runs: on one torch thread, or as is.

        Torch's threads wait for more work by spinning, on the cores that the fused
        engine's own threads need.
        """
        is_fused = self.model.network.engines() == ("fused", "fused")
        return one_torch_thread() if is_fused else contextlib.nullcontext()


class _Stages(NamedTuple):
    """Windows that grow with the epochs."""

    parts: list[tuple[float, WindowSet]]  # the epochs before, and what then is drawn
    warm_up: int  # epochs

    def at(self, epoch: int) -> WindowSet:
        """Return the windows that an epoch draws from: the latest that have begun."""
        return [windows for begin, windows in self.parts if epoch > begin][-1]

    def costs(self, n_epochs: int) -> list[float]:
        """Return about what each epoch takes, beside others."""
        span = self.parts[-1][1].span
        spans = (self.at(n).span for n in range(1, n_epochs + 1))
        return [_COST_OF_NO_STAMPS + part / span for part in spans]


def _stages(windows: WindowSet, terms: _Terms, n_batches: int) -> _Stages:
    """Return the windows of every epoch; weights trained before see whole ones."""
    warm_up = 0
    if terms.from_scratch:
        warm_up = math.ceil(_WARM_UP_UPDATES / n_batches)
        warm_up = min(warm_up, int(_WARM_UP_SHARE * terms.n_epochs))
    parts = [
        (begin * warm_up, windows.shortened(share))
        for share, begin in _STAGES[:-1]
        if warm_up
    ]
    return _Stages([*parts, (warm_up, windows)], warm_up)


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
    asks for would leave no other gradient. A model that was trained on others before,
    of which its location tells, knows more than such a channel does.
    """
    held = model.normalisation.values(constants_of(observations.values))
    return held if from_scratch else np.where(np.abs(held) < 1e-9, held, np.nan)


def _signature(
    observations: Observations, settings: Settings, extent: Extent | None
) -> str:
    """Return what is the same only for a fit that may go on from a stopped one."""
    found = observations
    data = found.ticks, found.values, found.controls, found.bounds
    return digest(*data, settings, extent)


def _in_common(
    observations: Observations,
    settings: Settings,
    rng: np.random.RandomState,
    start: FittedModel | None,
) -> tuple[dict[str, str], dict[str, str]]:
    """Return parameters and digests that processes which share a training have."""
    found = observations
    _, keys, position, *_ = rng.get_state()
    hidden = {
        "stamps": digest(found.ticks, found.bounds),
        "y": digest(found.values),
        "X": digest(found.controls),
        "random_state": digest(np.asarray(keys), position),
    }
    if start is not None:
        weights = start.network.state_dict().values()
        hidden["earlier weights"] = digest(*(w.cpu().numpy() for w in weights))
    return {name: str(value) for name, value in vars(settings).items()}, hidden


def _make_ready(
    network: nn.LatentODE, processes: Processes, reporter: Reporter
) -> None:
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
    network.engine = engine.choose(settings.engine)
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
