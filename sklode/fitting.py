"""From observations to a trained network: sizes, windows, what is held out, batches."""

from __future__ import annotations

import contextlib
import copy
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sklode import engine, guard, nn
from sklode._threads import n_threads, one_torch_thread
from sklode._torch_modes import default_float32, own_modes
from sklode.batches import (
    SCORED_WINDOWS,
    first_held_out_row,
    hidden_rows,
    make_batch,
    spread,
    training_windows,
    validation_batches,
)
from sklode.calibration import FEWEST, Calibration, calibrate, residuals_of
from sklode.compiling import compile_apart
from sklode.exceptions import SolverError
from sklode.levels import fit_linear
from sklode.observations import Observations, median_gap
from sklode.prediction import Predictor
from sklode.resuming import FitTerms, StoppedFit, TrainingState, signature
from sklode.timelines import Timeline
from sklode.training import Reporter, Trainer
from sklode.windows import (
    Normalisation,
    WindowSet,
    choose_anchor,
    constants_of,
    deviation_scale,
)

__all__ = [
    "FittedModel",
    "Underway",
    "build_network",
    "default_lengths",
    "finetune_epochs",
    "fit_model",
    "resolve_device",
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

_WARM_UP_KL = 0.02
"""Share of kl_weight during the warm-up, where kl_annealing_epochs is None.

A short window has few values to pay for what z0 must say of it: under the full weight
z0 says too little, and what it leaves out is taken for noise.
"""

_SHORTEST_PERIOD = 4.0
"""In time units: faster oscillations are hardly seen at stamps one unit apart."""

_FOLLOWED = {"rk4": math.pi / 2, "midpoint": 0.5, "euler": 0.1, "dopri5": math.pi / 2}
"""Radians per step that a method follows without changing the amplitude much."""

_GLOBAL_GENERATOR = threading.Lock()
"""Held while initial weights are drawn, which torch does from its global generator.

Fits in several threads would draw from each other's seeds. They are drawn in float32,
which is then the default dtype.
"""

_ARCHITECTURE = (
    "hidden_size",
    "latent_size",
    "field_width",
    "field_depth",
    "emission_width",
    "activation",
    "window_length",
    "horizon",
    "normalize",
    "method",
    "step_size",
    "rtol",
    "atol",
    "adjoint",
    "observation_noise",
    "engine",
)
"""Settings that a network is built with; they cannot change as training goes on."""

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

_FINETUNE_SHARE = 0.2
"""Share of the epochs that finetune_epochs=None takes."""

_MANY_SERIES = 8
"""From this many series on, a window need not leave room for others beside it."""


@dataclass
class FittedModel:
    """A trained network with all that is needed to apply it to new series.

    Attributes
    ----------
    network : LatentODE
        Trained.
    normalisation : Normalisation
        Of the training rows.
    time_unit : float
        Ticks of one time unit: the training stamps' median positive gap.
    longest_gap : float
        In time units: as much a longer gap counts, see `sklode.timelines`.
    clock : str
        Kind of the index, see `sklode.stamps.clock_of`.
    window_length, horizon : int
        Rows that the encoder sees, and rows after them in a training window.
    architecture : dict
        The settings that the network was built with.
    rows : list of dict
        The training history.
    best_epoch : int
        The epoch whose weights the network has; 0: those it started from.
    columns : tuple of two sequences
        The names of y's columns and of X's that it was trained on.
    calibration : Calibration or None
        Of the spread of its forecasts; None: the model's own.
    stopped : StoppedFit or None
        From where its training may go on; None where it is over, or is not to.
    held : ndarray of shape (channel,) or None
        What channels that never varied in training are forecast by, in normalised
        units; NaN for the others.
    """

    network: nn.LatentODE
    normalisation: Normalisation
    time_unit: float
    longest_gap: float
    clock: str
    window_length: int
    horizon: int
    architecture: dict[str, Any]
    rows: list[dict[str, float]] = field(default_factory=list)
    best_epoch: int = 0
    columns: tuple[Sequence[Any], Sequence[Any]] = ((), ())
    calibration: Calibration | None = None
    stopped: StoppedFit | None = None
    held: NDArray[np.floating] | None = None

    def check_accepts(self, observations: Observations, settings: Any) -> None:
        """Check that training can continue on ``observations`` under ``settings``.

        Raises
        ------
        ValueError
            If the network would have to be another one.
        """
        remedy = "Fit a fresh clone instead, after reset() if it was pretrained."
        for name, value in self.architecture.items():
            now = getattr(settings, name)
            if now != value:
                raise ValueError(
                    f"a fit that continues from earlier weights needs the same {name}, "
                    f"{value!r}; got {now!r}. {remedy}"
                )
        if self.clock != observations.clock:
            raise ValueError(
                "a fit that continues from earlier weights needs an index of "
                f"{self.clock}, as before; got one of {observations.clock}. Convert "
                "y's index, or fit a fresh clone instead."
            )
        normalisation, controls = self.normalisation, observations.controls
        expected = (
            len(normalisation.location),
            len(normalisation.control_location),
        )
        got = (
            observations.values.shape[1],
            0 if controls is None else controls.shape[1],
        )
        if expected != got:
            raise ValueError(
                f"y and X must have as many columns as before, {expected[0]} and "
                f"{expected[1]}; got {got[0]} and {got[1]}. {remedy}"
            )

    @property
    def timeline(self) -> Timeline:
        """How ticks become the model's time."""
        return Timeline(self.time_unit, self.longest_gap)

    def predictor(self, observations: Observations) -> Predictor:
        """Return the model with the history that it forecasts from."""
        n_threads()  # as in fit_model
        arrays = _arrays(observations, self.normalisation, self.timeline)
        return Predictor(self.network, *arrays, self.window_length, self.calibration)

    def windows(self, observations: Observations) -> WindowSet:
        """Return the training windows."""
        arrays = _arrays(observations, self.normalisation, self.timeline)
        windows = WindowSet(*arrays, self.window_length, self.horizon)
        return windows if self.held is None else windows.without(~np.isnan(self.held))

    def hold(self) -> None:
        """Let the network forecast what is `held`."""
        if self.held is not None and not np.isnan(self.held).all():
            device = next(self.network.parameters()).device
            constants = torch.from_numpy(self.held).to(device)
            self.network.emission.hold(~constants.isnan(), constants)


def _arrays(
    observations: Observations, normalisation: Normalisation, timeline: Timeline
) -> tuple[NDArray, NDArray, NDArray | None, NDArray[np.int64]]:
    """Return times, values and controls in the model's units, and the bounds."""
    controls = observations.controls
    return (
        timeline.of_rows(observations),
        normalisation.values(observations.values),
        None if controls is None else normalisation.controls(controls),
        observations.bounds,
    )


def fit_model(
    observations: Observations,
    settings: Any,
    rng: np.random.RandomState,
    n_ahead: int | None = None,
    start: FittedModel | None = None,
    epochs: int | None = None,
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
    epochs : int, optional
        None: ``settings.max_epochs``; 0: no training at all.
    reporter : Reporter, optional
        Told of each epoch; may stop the training.
    begin : callable, optional
        Told of the fit before its training, when all that it needs of ``rng`` is drawn.
        With it the training goes on where that of ``start`` was stopped, if data and
        settings are the same, and may, under ``settings.warm_start``, go on later.
    """
    n_threads()  # a thread's first; it could else take another fit's limit for its own
    if start is not None and begin is None:
        start = replace(start, stopped=None)
    with own_modes(gradients=True):
        fit = _planned(observations, settings, rng, n_ahead, start, epochs)
        fit.course.reporter = reporter or Reporter()
        fit.course.is_resumable = begin is not None and settings.warm_start
        rng = copy.deepcopy(rng)  # as it is before `begin` may draw from it
        if begin is not None:
            begin(fit)
        if settings.guard and start is None and fit.course.epochs:
            _guarded(fit.model, fit.windows, fit.terms.cut, fit.course, rng)
        else:
            _train(fit.model, fit.windows, fit.terms.cut, fit.course)
        return fit.calibrated(fit.model)


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
    state : TrainingState or None
        From where the training goes on; None: it begins.
    reporter : Reporter
    is_resumable, is_trial : bool
        Whether it may go on later; whether nothing is kept where it is broken off.
    trainer : Trainer or None
        None before training.
    """

    settings: Any
    generator: torch.Generator
    epochs: int
    from_scratch: bool
    state: TrainingState | None = None
    reporter: Reporter = field(default_factory=Reporter)
    is_resumable: bool = False
    is_trial: bool = False
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
        with _torch_threads(model, self.windows, settings):
            model.calibration = _calibration(
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
    epochs: int | None,
) -> Underway:
    """Settle all that comes before training, see `fit_model`."""
    device = resolve_device(settings.device)
    signed = ""
    if settings.warm_start:
        signed = _signature(observations, settings, device, epochs)
    if start is not None and start.stopped is not None:
        if start.stopped.terms.signature == signed:
            return _continued(observations, settings, start, start.stopped, epochs)
        start = replace(start, stopped=None)
    generator = torch.Generator().manual_seed(int(rng.randint(2**31 - 1)))
    if start is None:
        model = _fresh_model(observations, settings, rng, n_ahead)
    else:
        model = copy.deepcopy(start)
    model.network.to(device)
    model.held = _held(model, observations, start is None)
    model.hold()
    windows = model.windows(observations)
    fraction = settings.validation_fraction if settings.early_stopping else 0.0
    cut = first_held_out_row(windows, fraction, rng)
    n_drawn, n_batches = _epoch_size(windows, cut, settings)
    epochs = _n_epochs(settings, n_batches) if epochs is None else epochs
    ahead = epochs * n_batches if settings.lr_schedule == "one-cycle" else _UPDATES
    _choose_engine(model, settings, ahead, n_drawn)
    course = _Course(settings, generator, epochs, start is None)
    terms = FitTerms(
        signed, cut, start is None, start is not None, model.calibration, last=epochs
    )
    return Underway(model, windows, course, terms)


def _continued(
    observations: Observations,
    settings: Any,
    start: FittedModel,
    stopped: StoppedFit,
    epochs: int | None,
) -> Underway:
    """Return the fit that goes on where ``start`` was stopped; its engine stays."""
    terms = stopped.terms
    model = copy.deepcopy(replace(start, stopped=None, calibration=terms.calibration))
    windows = model.windows(observations)
    if epochs is None:
        _, n_batches = _epoch_size(windows, terms.cut, settings)
        epochs = _n_epochs(settings, n_batches)
    terms = stopped.terms_of(epochs)
    course = _Course(
        settings, torch.Generator(), terms.last, terms.from_scratch, stopped.training
    )
    return Underway(model, windows, course, terms)


def _signature(
    observations: Observations,
    settings: Any,
    device: torch.device,
    epochs: int | None,
) -> str:
    """Return what is the same only for a fit that may go on from a stopped one."""
    trained = {name: getattr(settings, name) for name in _TRAINING}
    if settings.lr_schedule == "one-cycle":
        trained["epochs"] = settings.max_epochs if epochs is None else epochs
    arrays = (
        observations.ticks,
        observations.values,
        observations.controls,
        observations.bounds,
    )
    return signature(arrays, {**trained, "device": device})


def _n_epochs(settings: Any, n_batches: int) -> int:
    return int(settings.max_epochs or max(_UPDATES // n_batches, 1))


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
    settings, epochs, reporter = course.settings, course.epochs, course.reporter
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
        part = [stage for begin, stage in stages if epoch > begin][-1]
        usable = training_windows(part, cut)
        order = torch.randperm(len(usable), generator=generator).numpy()
        shuffled = usable[order[:n_drawn]]
        for low in range(0, len(shuffled), settings.batch_size):
            which = shuffled[low : low + settings.batch_size]
            hidden = hidden_rows(part, which, settings, generator)
            yield make_batch(part, which, device, hidden=hidden)

    annealing = settings.kl_annealing_epochs
    trainer = course.trainer = Trainer(
        model.network,
        max_epochs=epochs,
        warm_up_epochs=warm_up,
        lr=settings.lr,
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
    )
    validation = []
    if settings.early_stopping:
        validation = validation_batches(windows, cut, device)
    reporter.begin(epochs, course.state.n_epochs if course.state is not None else 0)
    if epochs and not _is_ready(model.network):
        reporter.compiling()
        compile_apart(model.network.layout)
    try:
        with _torch_threads(model, windows, settings):
            trainer.fit(
                draw, n_batches, course.generator, validation, reporter, course.state
            )
    finally:
        reporter.end()
    model.rows = trainer.history
    model.best_epoch = trainer.best_epoch


def _torch_threads(
    model: FittedModel, windows: WindowSet, settings: Any
) -> contextlib.AbstractContextManager:
    """Return the context in which the network runs: on one torch thread, or as is."""
    n_stamps = min(len(windows), settings.batch_size) * windows.span
    alone = _wants_one_torch_thread(model.network.engines(), n_stamps)
    return one_torch_thread() if alone else contextlib.nullcontext()


def _guarded(
    model: FittedModel,
    windows: WindowSet,
    cut: NDArray[np.int64],
    course: _Course,
    rng: np.random.RandomState,
) -> None:
    """Train, if training on the first rows forecasts the following ones better.

    Better than the level alone does, see `sklode.guard`. Else the network stays silent:
    its forecast is the level.
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
    unseen = replace(course, reporter=Reporter(), is_resumable=False, is_trial=True)
    _train(trial, windows, before, unseen)
    course.generator.set_state(state)
    with _torch_threads(model, windows, course.settings):
        gain = guard.gains(model.network, trial.network, windows, before)
    if guard.is_proved(gain):
        _train(model, windows, cut, course)
        return
    guard.silence(model.network, windows, cut)
    model.rows, model.best_epoch = trial.rows, 0


def _calibration(
    model: FittedModel,
    windows: WindowSet,
    cut: NDArray[np.int64],
    epochs: int,
    thinning: float,
) -> Calibration | None:
    """Measure how far forecasts are off, on held-out rows and on those trained on.

    The larger of the two scales counts, since held-out rows are few and may happen to
    be easy ones; where they are many, theirs does. All are held out from a model that
    was not trained here. Where there are too few to tell, what the model had is kept.
    """
    reaching = windows.reaching(max(2 * model.horizon, model.window_length))
    first = reaching.bounds[:-1]
    if not epochs:
        found, _ = _measured(model, reaching, first, 1.0, 1.0)
        return found or model.calibration
    # a noise that was given is never doubted to be as large
    least = _LEAST if model.network.emission.noise is None else 1.0
    held_out, n_rows = _measured(model, reaching, cut, _DRIFT, least)
    if held_out is not None and n_rows >= _MANY_HELD_OUT:
        return held_out
    trained, _ = _measured(model, reaching, first, _optimism(thinning), least)
    if held_out is not None and trained is not None:
        return held_out.or_wider(trained)
    return held_out or trained or model.calibration


def _measured(
    model: FittedModel,
    reaching: WindowSet,
    from_row: NDArray[np.int64],
    optimism: float,
    least: float,
) -> tuple[Calibration | None, int]:
    """Measure forecasts of the rows of each series from one on; None for too few.

    Returns
    -------
    Calibration or None
    int
        The number of rows.
    """
    first, end = reaching.bounds[:-1], reaching.bounds[1:]
    start = np.maximum(from_row, first + model.window_length)
    n_rows = int(np.maximum(end - start, 0).sum())
    which = np.flatnonzero(reaching.end > start[reaching.series])
    which = which[reaching.end[which] > reaching.start[which] + model.window_length]
    if n_rows < FEWEST or not len(which):
        return None, n_rows
    which = spread(which, SCORED_WINDOWS)
    device = next(model.network.parameters()).device
    batch = make_batch(reaching, which, device, from_row[reaching.series[which]])
    try:
        residuals = residuals_of(model.network, batch)
    except SolverError:
        return None, n_rows
    return calibrate(residuals, n_rows, optimism, least), n_rows


_MANY_HELD_OUT = 200
"""From this many held-out rows on, errors on the others need not be looked at."""

_LEAST = 0.5
"""Scales are no smaller, however good the forecasts of the training rows are."""

_DRIFT, _OPTIMISM = 1.25, 1.3
"""How much larger errors of forecasts are than those measured: held-out, trained on.

Held-out rows chose the epoch, follow the others at once and are few. Rows trained on
need no factor where windows are thinned by a half: forecasts of them see more than
training showed. The factors were set on series of two sines, see docs/uncertainty.md.
"""


def _optimism(thinning: float) -> float:
    """Return the factor of rows trained on: from a half on, thinning takes it away."""
    return max(_OPTIMISM + (1 - _OPTIMISM) * thinning / 0.5, 1.0)


_MANY_STAMPS = 30_000
"""From this many stamps a batch, what the unrolled engine leaves to torch is not small.

Below, threads that wait for each other make it several times slower on a busy machine.
"""


def _wants_one_torch_thread(engines: tuple[str, str], n_stamps: int) -> bool:
    """Return whether torch should not share out what is left to it.

    Its threads wait for more work by spinning, on the cores that the fused engine's own
    threads need.
    """
    if engines == ("fused", "fused"):
        return True
    return engines != ("eager", "eager") and n_stamps < _MANY_STAMPS


_FEW = 3
"""Up to this many windows a batch, the fused engine's products run over neurons."""


def _choose_engine(
    model: FittedModel, settings: Any, n_iterations: int, n_drawn: int
) -> None:
    """Set which engine trains the network, and forecasts with it afterwards.

    Raises
    ------
    ValueError
        If the fused engine is asked for, and does not serve encoder or decoder.
    """
    network = model.network
    few = min(n_drawn, settings.batch_size) <= _FEW
    network.layout = "single" if few else "lanes"
    n_stamps = model.window_length + model.horizon
    network.engine = engine.choose(
        settings.engine, n_iterations, n_stamps, network.layout
    )
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
    if "fused" not in network.engines():
        return True
    return engine.is_compiled(np.dtype("float32"), network.layout)


def default_lengths(
    lengths: NDArray[np.int64],
    window_length: int | None,
    horizon: int | None,
    n_ahead: int | None,
) -> tuple[int, int]:
    """Choose ``window_length`` and ``horizon`` where they are None.

    The horizon is the farthest step that will be asked for, where known, else as long
    as a window that is given, else 20 rows. The window is twice the horizon, between 24
    and 60 rows. Both leave room for other windows: a horizon of at most a third of the
    longest series, a window of at most half of what then remains (all of it, where
    there are many series).
    """
    longest = int(lengths.max())
    room = 1 if len(lengths) >= _MANY_SERIES else 2
    if horizon is None and n_ahead is not None:
        horizon = min(n_ahead, longest // 3) if window_length is None else n_ahead
    if window_length is not None:
        return window_length, window_length if horizon is None else horizon
    if horizon is None:
        horizon = min(20, longest // 3)
    wanted = min(60, max(24, 2 * horizon))
    return max(min(wanted, (longest - horizon) // room), 1), horizon


def _fresh_model(
    observations: Observations,
    settings: Any,
    rng: np.random.RandomState,
    n_ahead: int | None,
) -> FittedModel:
    window_length, horizon = default_lengths(
        observations.lengths, settings.window_length, settings.horizon, n_ahead
    )
    normalisation = Normalisation.of(observations, settings.normalize is not None)
    timeline = Timeline.of(observations, median_gap(observations))
    arrays = _arrays(observations, normalisation, timeline)
    windows = WindowSet(*arrays, window_length, horizon)
    sample = windows.gather(spread(np.arange(len(windows)), 4 * SCORED_WINDOWS))
    sampled = sample.values, sample.mask, window_length
    anchor = settings.normalize or "series"
    if anchor == "auto":
        anchor = choose_anchor(*sampled)
    if anchor != "series":
        normalisation = normalisation.rescaled(deviation_scale(*sampled))
    n_controls = 0 if observations.controls is None else observations.controls.shape[1]
    with _GLOBAL_GENERATOR, torch.random.fork_rng(devices=[]), default_float32():
        # torch.manual_seed would seed the generators of the GPUs as well
        torch.default_generator.manual_seed(int(rng.randint(2**31 - 1)))
        n_channels = observations.values.shape[1]
        network = build_network(settings, n_channels, n_controls, anchor)
        span = float(np.median(sample.times[:, -1]))
        network.decoder.vector_field.start_rotating(_periods(settings, span))
        if anchor in ("last", "linear"):  # what is added to it has to be learned
            network.emission.start_silent()
    architecture = {name: getattr(settings, name) for name in _ARCHITECTURE}
    model = FittedModel(
        network,
        normalisation,
        timeline.unit,
        timeline.longest_gap,
        observations.clock,
        window_length,
        horizon,
        architecture,
    )
    if isinstance(network.anchor, nn.LinearAnchor):
        fit_linear(network.anchor, model.windows(observations))
    return model


def _periods(settings: Any, span: float) -> list[float]:
    """Draw periods that the decoder starts with, in time units.

    Evenly spread on a logarithmic scale, from what observations can show, and the
    solver follow, to the span of a window.
    """
    followed = 2 * math.pi * settings.step_size / _FOLLOWED[settings.method]
    shortest = max(_SHORTEST_PERIOD, followed)
    longest = max(span, 2 * shortest)
    n = settings.latent_size // 2
    places = (torch.arange(n) + torch.rand(n)) / max(n, 1)
    periods: list[float] = (shortest * (longest / shortest) ** places).tolist()
    return periods


def build_network(
    settings: Any, n_channels: int, n_controls: int, anchor: str
) -> nn.LatentODE:
    """Return an untrained network of the sizes and the solver that settings name."""
    solver: nn.FixedStepSolver | nn.AdaptiveSolver
    if settings.method == "dopri5":
        solver = nn.AdaptiveSolver(
            settings.rtol, settings.atol, settings.step_size, settings.adjoint
        )
    else:
        solver = nn.FixedStepSolver(
            settings.method, settings.step_size, settings.adjoint
        )
    shape = (settings.field_width, settings.field_depth, settings.activation)
    input_size = 2 * n_channels + n_controls
    hidden_size, latent_size = settings.hidden_size, settings.latent_size
    encoder: torch.nn.Module
    if settings.encoder == "rnn":
        encoder = nn.RNN(input_size, hidden_size)
    else:
        kind = {"ode-rnn": nn.ODERNN, "ode-lstm": nn.ODELSTM}[settings.encoder]
        flow = nn.VectorField(hidden_size, *shape)
        encoder = kind(input_size, hidden_size, flow, solver)
    return nn.LatentODE(
        encoder,
        nn.Translator(hidden_size, latent_size),
        nn.Decoder(nn.VectorField(latent_size, *shape, n_controls), solver),
        nn.Emission(
            latent_size,
            n_channels,
            settings.emission_width,
            n_controls,
            settings.observation_noise,
        ),
        nn.LinearAnchor(n_channels, n_controls)
        if anchor == "linear"
        else nn.Anchor(anchor, n_channels),
    )


def finetune_epochs(settings: Any, start: FittedModel) -> int:
    """Epochs of a fit that follows ``pretrain``."""
    if settings.finetune_epochs is not None:
        return int(settings.finetune_epochs)
    return max(round(_FINETUNE_SHARE * (settings.max_epochs or len(start.rows))), 1)


def resolve_device(name: str | torch.device) -> torch.device:
    """Return the device named; "auto" is the GPU where there is one, else the CPU.

    Raises
    ------
    ValueError
        If there is no such device.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f'device must be "auto" or a device that torch has here; got {name!r}. Use '
            '"auto" or "cpu".'
        ) from error
    return device
