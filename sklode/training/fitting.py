"""From observations to a trained network: what is held out, batches, stages."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sklode import engine, nn
from sklode.data.observations import Observations
from sklode.data.windows import (
    WindowSet,
    constants_of,
)
from sklode.engine.threads import n_threads, one_torch_thread
from sklode.nn.modes import own_modes
from sklode.prediction.interval_scales import measured_calibration
from sklode.prediction.model import (
    ARCHITECTURE,
    FittedModel,
    fresh_model,
)
from sklode.training import guard
from sklode.training.batches import (
    first_held_out_row,
    hidden_rows,
    training_windows,
    validation_batches,
)
from sklode.training.further import Further
from sklode.training.loop import Trainer
from sklode.training.parallel import ALONE, Processes, current
from sklode.training.parameters import resolve_device
from sklode.training.report import Reporter
from sklode.training.resuming import FitTerms, StoppedFit, TrainingState, signature

__all__ = [
    "Underway",
    "fit_model",
]

_BATCHES_PER_EPOCH = 32
"""An epoch draws every window once, but no more than this many batches of them."""

_UPDATES = 1500
"""Optimiser steps that max_epochs=None aims at."""

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

_WARM_UP_KL = 0.02
"""Share of kl_weight during the warm-up, where kl_annealing_epochs is None.

A short window has few values to pay for what z0 must say of it: under the full weight
z0 says too little, and what it leaves out is taken for noise.
"""


_TRAINING = (
    "backcast_fraction",
    "thinning",
    "clip_norm",
    "kl_weight",
    "kl_annealing_epochs",
    "batch_size",
    "lr",
    "lr_schedule",
    "optimizer",
    "weight_decay",
    "averaging",
    "early_stopping",
    "validation_fraction",
    "n_iter_no_change",
    "tol",
)
"""Settings under which a stopped training goes on only if they are as they were."""


def fit_model(
    observations: Observations,
    settings: Any,
    rng: np.random.RandomState,
    n_ahead: int | None = None,
    start: FittedModel | None = None,
    further: Further | None = None,
    reporter: Reporter | None = None,
    begin: Callable[[Underway], None] | None = None,
) -> FittedModel:
    """Train a network on all series together.

    Parameters
    ----------
    observations : Observations
        The series.
    settings : object
        With the forecasters' parameters as attributes, and ``encoder``.
    rng : RandomState
        Of every random number.
    n_ahead : int, optional
        The farthest step of the horizon that will be asked for.
    start : FittedModel, optional
        Continue from a copy of this one, with its units and lengths.
    further : Further, optional
        How long; None: ``settings.max_epochs``.
    reporter : Reporter, optional
        Told of each epoch; may stop the training. Of processes that share it, that of
        the first is told.
    begin : callable, optional
        Told of the fit before its training, when all that it needs of ``rng`` is drawn.
        With it the training goes on where that of ``start`` was stopped, if data and
        settings are the same, and may, under ``settings.warm_start``, go on later.
    """
    n_threads()  # a thread's first; it could else take another fit's limit for its own
    processes = current()
    if processes.size > 1:
        processes.check_same(*_in_common(observations, settings, rng, start))
    if start is not None and begin is None:
        start = replace(start, stopped=None)
    with own_modes(gradients=True), processes.deferring_interrupts():
        with processes.together():
            fit = _planned(observations, settings, rng, n_ahead, start, further)
            if reporter is not None and processes.is_first:  # it speaks for all
                fit.course.reporter = reporter
            fit.course.is_resumable = begin is not None and settings.warm_start
            fit.course.processes = processes
            rng = copy.deepcopy(rng)  # as it is before `begin` may draw from it
            if begin is not None:
                begin(fit)
        processes.share_weights(fit.model.network)
        if settings.guard and start is None and fit.course.epochs:
            _guarded(fit.model, fit.windows, fit.terms.cut, fit.course, rng)
        else:
            _train(fit.model, fit.windows, fit.terms.cut, fit.course)
        processes.share_weights(fit.model.network)
        with processes.together():
            model = fit.calibrated(fit.model)
        model.calibration = processes.from_first(model.calibration)
        return model


@dataclass
class _Course:
    """How a model is trained: under which settings, from where on, and how far.

    Attributes
    ----------
    settings : object
        As in `fit_model`.
    generator : torch.Generator
        Of every random number.
    epochs : int
        Number of the last epoch.
    from_scratch : bool
        Whether windows grow, as they do not where weights were trained before.
    rate : float
        The share of ``settings.lr`` at which it trains.
    state : TrainingState or None
        From where the training goes on; None: it begins.
    reporter : Reporter
    is_resumable, is_trial : bool
        Whether it may go on later; whether nothing is kept where it is broken off.
    processes : Processes
        Those that share the training.
    trainer : Trainer or None
        None before training.
    """

    settings: Any
    generator: torch.Generator
    epochs: int
    from_scratch: bool
    rate: float = 1.0
    state: TrainingState | None = None
    reporter: Reporter = field(default_factory=Reporter)
    is_resumable: bool = False
    is_trial: bool = False
    processes: Processes = ALONE
    trainer: Trainer | None = None


@dataclass
class Underway:
    """A fit that is underway, for whoever looks at it between epochs.

    Attributes
    ----------
    model : FittedModel
        In training.
    windows : WindowSet
        What it is trained on.
    course : _Course
    terms : FitTerms
    """

    model: FittedModel
    windows: WindowSet
    course: _Course
    terms: FitTerms

    @property
    def n_epochs(self) -> int:
        """Epochs that are ahead."""
        state = self.course.state
        return self.course.epochs - (0 if state is None else state.n_epochs)

    def so_far(self) -> FittedModel | None:
        """Return a copy of the model with the best weights so far.

        None before the first epoch has ended. Its spreads are not calibrated.
        """
        trainer = self.course.trainer
        if trainer is None or not trainer.history:
            return None
        model = copy.deepcopy(self.model)
        model.best_epoch = trainer.load_best(model.network)
        model.rows = list(trainer.history)
        return self._stoppable(model)

    def calibrated(self, model: FittedModel) -> FittedModel:
        """Calibrate the model, or a copy of it."""
        model.hold()  # a guard may have let it go
        model.network.eval()
        settings, epochs = self.course.settings, self.course.epochs
        with _torch_threads(model):
            model.calibration = measured_calibration(
                model, self.windows, self.terms.cut, epochs, settings.thinning
            )
        return self._stoppable(model)

    def _stoppable(self, model: FittedModel) -> FittedModel:
        """Let a model know from where its training may go on."""
        trainer = self.course.trainer
        if trainer is not None and trainer.stopped_at is not None:
            model.stopped = StoppedFit(trainer.stopped_at, replace(self.terms))
        return model


def _planned(
    observations: Observations,
    settings: Any,
    rng: np.random.RandomState,
    n_ahead: int | None,
    start: FittedModel | None,
    further: Further | None,
) -> Underway:
    """Settle all that comes before training, see `fit_model`."""
    device = resolve_device(settings.device)
    signed = ""
    if settings.warm_start:
        signed = _signature(observations, settings, device, further)
    if start is not None and start.stopped is not None:
        if start.stopped.terms.signature == signed:
            return _continued(observations, settings, start, start.stopped, further)
        start = replace(start, stopped=None)
    generator = torch.Generator().manual_seed(int(rng.randint(2**31 - 1)))
    if start is None:
        model = fresh_model(observations, settings, rng, n_ahead)
    else:
        model = copy.deepcopy(start)
    model.network.to(device)
    model.held = _held(model, observations, start is None)
    model.hold()
    windows = model.windows(observations)
    fraction = settings.validation_fraction if settings.early_stopping else 0.0
    cut = first_held_out_row(windows, fraction, rng)
    _, n_batches = _epoch_size(windows, cut, settings)
    epochs = _n_epochs(settings, n_batches, further)
    _choose_engine(model, settings)
    course = _Course(settings, generator, epochs, start is None, _rate(further))
    terms = FitTerms(
        signed, cut, start is None, start is not None, model.calibration, last=epochs
    )
    return Underway(model, windows, course, terms)


def _continued(
    observations: Observations,
    settings: Any,
    start: FittedModel,
    stopped: StoppedFit,
    further: Further | None,
) -> Underway:
    """Return the fit that goes on where ``start`` was stopped; its engine stays."""
    terms = stopped.terms
    model = copy.deepcopy(replace(start, stopped=None, calibration=terms.calibration))
    windows = model.windows(observations)
    _, n_batches = _epoch_size(windows, terms.cut, settings)
    terms = stopped.terms_of(_n_epochs(settings, n_batches, further))
    course = _Course(
        settings,
        torch.Generator(),
        terms.last,
        terms.from_scratch,
        _rate(further),
        stopped.training,
    )
    return Underway(model, windows, course, terms)


def _signature(
    observations: Observations,
    settings: Any,
    device: torch.device,
    further: Further | None,
) -> str:
    """Return what is the same only for a fit that may go on from a stopped one."""
    trained = {name: getattr(settings, name) for name in _TRAINING}
    if further is not None:
        trained["rate"] = further.rate
    if settings.lr_schedule == "one-cycle":
        trained["epochs"] = settings.max_epochs if further is None else further
    arrays = (
        observations.ticks,
        observations.values,
        observations.controls,
        observations.bounds,
    )
    return signature(arrays, {**trained, "device": device})


def _in_common(
    observations: Observations,
    settings: Any,
    rng: np.random.RandomState,
    start: FittedModel | None,
) -> tuple[dict[str, str], dict[str, str]]:
    """Return parameters and digests that processes which share a training have."""
    others = ("encoder", "max_epochs", "finetune_epochs", "guard", "warm_start")
    names = (*ARCHITECTURE, *_TRAINING, *others)
    parameters = {name: str(getattr(settings, name)) for name in names}
    _, keys, position, *_ = rng.get_state()
    arrays: dict[str, tuple[NDArray[Any] | None, ...]] = {
        "stamps": (observations.ticks, observations.bounds),
        "y": (observations.values,),
        "X": (observations.controls,),
        "random_state": (np.asarray(keys), np.asarray(position)),
    }
    if start is not None:
        weights = start.network.state_dict().values()
        arrays["earlier weights"] = tuple(w.cpu().numpy() for w in weights)
    digests = {name: signature(parts, {}) for name, parts in arrays.items()}
    return parameters, digests


def _n_epochs(settings: Any, n_batches: int, further: Further | None) -> int:
    if further is not None:
        return further.n_epochs(n_batches)
    return int(settings.max_epochs or max(_UPDATES // n_batches, 1))


def _rate(further: Further | None) -> float:
    return 1.0 if further is None else further.rate


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


def _epoch_size(
    windows: WindowSet, cut: NDArray[np.int64], settings: Any
) -> tuple[int, int]:
    """Return how many windows an epoch draws, and in how many batches."""
    n_windows = len(training_windows(windows, cut))
    n_drawn = min(n_windows, _BATCHES_PER_EPOCH * settings.batch_size)
    return n_drawn, math.ceil(n_drawn / settings.batch_size)


def _train(
    model: FittedModel,
    windows: WindowSet,
    cut: NDArray[np.int64],
    course: _Course,
) -> None:
    """Train a model's network on the windows before the first held-out rows.

    Parameters
    ----------
    model : FittedModel
        Gets the trained weights, the history and the best epoch.
    windows : WindowSet
    cut : ndarray of shape (series,)
        See `first_held_out_row`.
    course : _Course
        Gets the trainer.
    """
    settings, epochs, processes = course.settings, course.epochs, course.processes
    reporter = course.reporter
    device = next(model.network.parameters()).device
    n_drawn, n_batches = _epoch_size(windows, cut, settings)
    warm_up = 0
    if course.from_scratch:
        warm_up = math.ceil(_WARM_UP_UPDATES / n_batches)
        if settings.lr_schedule == "one-cycle":
            warm_up = min(warm_up, int(_WARM_UP_SHARE * epochs))
    stages = [
        (begin * warm_up, windows.shortened(share))
        for share, begin in _STAGES[:-1]
        if warm_up
    ]
    stages.append((warm_up, windows))

    def draw(epoch: int, generator: torch.Generator) -> Iterator[nn.Batch]:
        part = _stage(stages, epoch)
        usable = training_windows(part, cut)
        order = torch.randperm(len(usable), generator=generator).numpy()
        shuffled = usable[order[:n_drawn]]
        for low in range(0, len(shuffled), settings.batch_size):
            which = shuffled[low : low + settings.batch_size]
            hidden = hidden_rows(part, which, settings, generator)
            rows = processes.rows(len(which))
            hidden = None if hidden is None else hidden[rows]
            batch = nn.make_batch(part, which[rows], device, hidden=hidden)
            yield batch._replace(n_elsewhere=(rows.start, len(which) - rows.stop))

    annealing = settings.kl_annealing_epochs
    trainer = course.trainer = Trainer(
        model.network,
        max_epochs=epochs,
        warm_up_epochs=warm_up,
        lr=settings.lr,
        lr_share=course.rate,
        optimizer=settings.optimizer,
        weight_decay=settings.weight_decay,
        averaging=settings.averaging,
        clip_norm=settings.clip_norm,
        kl_weight=settings.kl_weight,
        kl_annealing_epochs=annealing or 0,
        warm_up_kl=_WARM_UP_KL if annealing is None else 1.0,
        n_iter_no_change=settings.n_iter_no_change,
        tol=settings.tol,
        lr_schedule=settings.lr_schedule,
        is_resumable=course.is_resumable,
        is_interruptible=not course.is_trial,
        processes=processes,
    )
    validation = []
    with processes.together():
        if settings.early_stopping:
            validation = validation_batches(windows, cut, device, processes)
    n_before = course.state.n_epochs if course.state is not None else 0
    try:
        costs = [_cost(_stage(stages, n), windows) for n in range(1, epochs + 1)]
        with processes.together():
            reporter.begin(costs, n_before)
        if epochs:
            _make_ready(model.network, processes, reporter)
        with _torch_threads(model):
            trainer.fit(
                draw, n_batches, course.generator, validation, reporter, course.state
            )
    except BaseException:
        reporter.end()
        raise
    with processes.together():
        reporter.end()
    model.rows = trainer.history
    model.best_epoch = trainer.best_epoch


def _stage(stages: Sequence[tuple[float, WindowSet]], epoch: int) -> WindowSet:
    """Return the windows that an epoch draws from: the latest that have begun."""
    return [windows for begin, windows in stages if epoch > begin][-1]


def _cost(part: WindowSet, windows: WindowSet) -> float:
    """Return about what an epoch takes, beside others: a little, and per stamp."""
    return _COST_OF_NO_STAMPS + part.span / windows.span


def _make_ready(
    network: nn.LatentODE, processes: Processes, reporter: Reporter
) -> None:
    """Compile what has to be; one process on each machine does it for the others."""
    for is_first_turn in (True, False) if processes.size > 1 else (True,):
        with processes.together():
            is_mine = processes.is_first_here == is_first_turn
            if is_mine and not _is_ready(network):
                with reporter.compiling():
                    engine.compile_kernel()


def _torch_threads(model: FittedModel) -> contextlib.AbstractContextManager[None]:
    """Return the context in which the network runs: on one torch thread, or as is.

    Torch's threads wait for more work by spinning, on the cores that the fused engine's
    own threads need.
    """
    alone = model.network.engines() == ("fused", "fused")
    return one_torch_thread() if alone else contextlib.nullcontext()


def _guarded(
    model: FittedModel,
    windows: WindowSet,
    cut: NDArray[np.int64],
    course: _Course,
    rng: np.random.RandomState,
) -> None:
    """Train, if training on the first rows forecasts the following ones better.

    Better than the level alone does, see `guard`. Else the network stays
    silent: its forecast is the level.
    """
    if not windows.horizon:
        raise ValueError(
            "guard=True tries a training on forecasts of horizon rows; got horizon=0. "
            "Raise horizon, or use guard=False."
        )
    # what the trial draws is drawn again: then the fit is that without a guard
    state = course.generator.get_state()
    before = first_held_out_row(windows, guard.TRIAL_FRACTION, rng)
    before = np.minimum(before, cut)
    if not len(training_windows(windows, before)):
        before = cut
    trial = copy.deepcopy(model)
    reporter = course.reporter
    apart = replace(
        course, reporter=reporter.of_trial(), is_resumable=False, is_trial=True
    )
    _train(trial, windows, before, apart)
    course.generator.set_state(state)
    processes = course.processes
    with processes.together(), _torch_threads(model):
        gain = guard.gains(model.network, trial.network, windows, before)
    if processes.from_first(guard.is_proved(gain)):
        _train(model, windows, cut, course)
        return
    reporter.say("The trial has not proved itself: the level alone is the forecast.")
    guard.silence(model.network, windows, cut)
    model.rows, model.best_epoch = trial.rows, 0


def _choose_engine(model: FittedModel, settings: Any) -> None:
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


def _beyond_fused(network: nn.LatentODE, settings: Any) -> str:
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


def _is_ready(network: nn.LatentODE) -> bool:
    """Return whether no engine has to be compiled first."""
    return "fused" not in network.engines() or engine.is_compiled()
