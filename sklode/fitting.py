"""From observations to a trained network: sizes, windows, what is held out, batches."""

from __future__ import annotations

import contextlib
import copy
import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
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
from sklode.exceptions import SolverError
from sklode.levels import fit_linear
from sklode.observations import Observations, median_gap
from sklode.prediction import Predictor
from sklode.training import Reporter, Trainer
from sklode.windows import Normalisation, WindowSet, choose_anchor, deviation_scale

__all__ = [
    "FittedModel",
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
    """

    network: nn.LatentODE
    normalisation: Normalisation
    time_unit: float
    clock: str
    window_length: int
    horizon: int
    architecture: dict[str, Any]
    rows: list[dict[str, float]] = field(default_factory=list)
    best_epoch: int = 0
    columns: tuple[Sequence[Any], Sequence[Any]] = ((), ())
    calibration: Calibration | None = None

    def check_accepts(self, observations: Observations, settings: Any) -> None:
        """Check that training can continue on ``observations`` under ``settings``.

        Raises
        ------
        ValueError
            If the network would have to be another one.
        """
        remedy = "Fit a fresh clone instead."
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

    def predictor(self, observations: Observations) -> Predictor:
        """Return the model with the history that it forecasts from."""
        n_threads()  # as in fit_model
        arrays = _arrays(observations, self.normalisation, self.time_unit)
        return Predictor(self.network, *arrays, self.window_length, self.calibration)

    def windows(self, observations: Observations) -> WindowSet:
        """Return the training windows."""
        arrays = _arrays(observations, self.normalisation, self.time_unit)
        return WindowSet(*arrays, self.window_length, self.horizon)


def _arrays(
    observations: Observations, normalisation: Normalisation, time_unit: float
) -> tuple[NDArray, NDArray, NDArray | None, NDArray[np.int64]]:
    """Return times, values and controls in the model's units, and the bounds."""
    controls = observations.controls
    return (
        observations.times(time_unit),
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
    """
    n_threads()  # a thread's first; it could else take another fit's limit for its own
    with own_modes(gradients=True):
        return _fit_model(observations, settings, rng, n_ahead, start, epochs, reporter)


def _fit_model(
    observations: Observations,
    settings: Any,
    rng: np.random.RandomState,
    n_ahead: int | None,
    start: FittedModel | None,
    epochs: int | None,
    reporter: Reporter | None,
) -> FittedModel:
    """Train as `fit_model` says, under modes of our own."""
    generator = torch.Generator().manual_seed(int(rng.randint(2**31 - 1)))
    model = copy.deepcopy(start) if start is not None else None
    if model is None:
        model = _fresh_model(observations, settings, rng, n_ahead)
    device = resolve_device(settings.device)
    model.network.to(device)
    windows = model.windows(observations)
    fraction = settings.validation_fraction if settings.early_stopping else 0.0
    cut = first_held_out_row(windows, fraction, rng)
    n_drawn, n_batches = _epoch_size(windows, cut, settings)
    if epochs is None:
        epochs = settings.max_epochs or max(_UPDATES // n_batches, 1)
    _choose_engine(model, settings, epochs * n_batches, n_drawn)
    reporter = reporter or Reporter()
    if settings.guard and start is None and epochs:
        _guarded(model, windows, cut, settings, rng, generator, epochs, reporter)
    else:
        _train(
            model, windows, cut, settings, generator, epochs, reporter, start is None
        )
    model.network.eval()
    with _torch_threads(model, windows, settings):
        model.calibration = _calibration(model, windows, cut, epochs, settings.thinning)
    return model


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
    settings: Any,
    generator: torch.Generator,
    epochs: int,
    reporter: Reporter,
    from_scratch: bool,
) -> None:
    """Train a model's network on the windows before the first held-out rows.

    Parameters
    ----------
    model : FittedModel
        Gets the trained weights, the history and the best epoch.
    windows : WindowSet
    cut : ndarray of shape (series,)
        See `first_held_out_row`.
    settings, epochs, reporter
        As in `fit_model`.
    generator : torch.Generator
        Of every random number.
    from_scratch : bool
        Whether windows grow, as they do not where weights were trained before.
    """
    device = next(model.network.parameters()).device
    n_drawn, n_batches = _epoch_size(windows, cut, settings)
    warm_up = 0
    if from_scratch:
        warm_up = math.ceil(_WARM_UP_UPDATES / n_batches)
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
    trainer = Trainer(
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
    )
    validation = []
    if settings.early_stopping:
        validation = validation_batches(windows, cut, device)
    reporter.begin(epochs)
    if epochs and not _is_ready(model.network):
        reporter.compiling()
    try:
        with _torch_threads(model, windows, settings):
            trainer.fit(draw, n_batches, generator, validation, reporter)
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
    settings: Any,
    rng: np.random.RandomState,
    generator: torch.Generator,
    epochs: int,
    reporter: Reporter,
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
    rng, state = copy.deepcopy(rng), generator.get_state()
    before = first_held_out_row(windows, guard.TRIAL_FRACTION, rng)
    before = np.minimum(before, cut)
    if not len(training_windows(windows, before)):
        before = cut
    trial = copy.deepcopy(model)
    _train(trial, windows, before, settings, generator, epochs, Reporter(), True)
    generator.set_state(state)
    with _torch_threads(model, windows, settings):
        gain = guard.gains(model.network, trial.network, windows, before)
    if guard.is_proved(gain):
        _train(model, windows, cut, settings, generator, epochs, reporter, True)
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
    time_unit = median_gap(observations)
    arrays = _arrays(observations, normalisation, time_unit)
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
        network = _network(settings, n_channels, n_controls, anchor)
        span = float(np.median(sample.times[:, -1]))
        network.decoder.vector_field.start_rotating(_periods(settings, span))
        if anchor in ("last", "linear"):  # what is added to it has to be learned
            network.emission.start_silent()
    architecture = {name: getattr(settings, name) for name in _ARCHITECTURE}
    model = FittedModel(
        network,
        normalisation,
        time_unit,
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


def _network(
    settings: Any, n_channels: int, n_controls: int, anchor: str
) -> nn.LatentODE:
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
