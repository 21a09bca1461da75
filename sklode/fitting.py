"""From observations to a trained network: sizes, windows, what is held out, batches."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sklode import nn
from sklode.observations import (
    Normalisation,
    Observations,
    WindowSet,
    choose_anchor,
    median_gap,
)
from sklode.prediction import Predictor
from sklode.training import Trainer

__all__ = ["FittedModel", "default_lengths", "fit_model"]

_BATCHES_PER_EPOCH = 32
"""An epoch draws every window once, but no more than this many batches of them."""

_UPDATES = 1000
"""Optimiser steps that max_epochs=None aims at."""

_SCORED_WINDOWS = 64
"""Held-out windows that are scored after each epoch, and that choose the anchor."""

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
    time_unit : int
        Ticks of one time unit: the training stamps' median positive gap.
    window_length, horizon : int
        Rows that the encoder sees, and rows after them in a training window.
    rows : list of dict
        The training history.
    best_epoch : int
        The epoch whose weights the network has; 0: those it started from.
    """

    network: nn.LatentODE
    normalisation: Normalisation
    time_unit: int
    window_length: int
    horizon: int
    rows: list[dict[str, float]] = field(default_factory=list)
    best_epoch: int = 0

    def predictor(self, observations: Observations) -> Predictor:
        """Return the model with the history that it forecasts from."""
        return Predictor(self.network, *self._arrays(observations), self.window_length)

    def windows(self, observations: Observations) -> WindowSet:
        """Return the training windows of ``observations``."""
        arrays = self._arrays(observations)
        return WindowSet(*arrays, self.window_length, self.horizon)

    def _arrays(
        self, observations: Observations
    ) -> tuple[NDArray, NDArray, NDArray | None, NDArray[np.int64]]:
        controls = observations.controls
        return (
            observations.times(self.time_unit),
            self.normalisation.values(observations.values),
            None if controls is None else self.normalisation.controls(controls),
            observations.bounds,
        )


def fit_model(
    observations: Observations,
    settings: Any,
    rng: np.random.RandomState,
    n_ahead: int | None = None,
    start: FittedModel | None = None,
    epochs: int | None = None,
    on_epoch_end: Callable[[dict[str, float]], bool] | None = None,
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
    on_epoch_end : callable, optional
        Called with the history's new row; True stops the training.
    """
    generator = torch.Generator().manual_seed(int(rng.randint(2**31 - 1)))
    model = copy.deepcopy(start) if start is not None else None
    if model is None:
        model = _fresh_model(observations, settings, rng, n_ahead)
    device = _device(settings.device)
    model.network.to(device)
    windows = model.windows(observations)
    training, held_out, scored_from = _split(
        windows, observations.bounds, settings, rng
    )
    n_drawn = min(len(training), _BATCHES_PER_EPOCH * settings.batch_size)
    n_batches = math.ceil(n_drawn / settings.batch_size)
    if epochs is None:
        epochs = settings.max_epochs or max(_UPDATES // n_batches, 1)
    trainer = Trainer(
        model.network,
        max_epochs=epochs,
        lr=settings.lr,
        optimizer=settings.optimizer,
        weight_decay=settings.weight_decay,
        clip_norm=settings.clip_norm,
        kl_weight=settings.kl_weight,
        kl_annealing_epochs=settings.kl_annealing_epochs,
        n_iter_no_change=settings.n_iter_no_change,
        tol=settings.tol,
    )

    def draw(generator: torch.Generator) -> Iterator[nn.Batch]:
        order = torch.randperm(len(training), generator=generator).numpy()
        shuffled = training[order[:n_drawn]]
        for low in range(0, n_drawn, settings.batch_size):
            which = shuffled[low : low + settings.batch_size]
            yield _batch(windows, which, device)

    validation = []
    if len(held_out):
        validation = [_batch(windows, held_out, device, scored_from)]
    trainer.fit(draw, n_batches, generator, validation, on_epoch_end)
    model.rows = trainer.history
    model.best_epoch = trainer.best_epoch
    model.network.eval()
    return model


def default_lengths(
    lengths: NDArray[np.int64],
    window_length: int | None,
    horizon: int | None,
    n_ahead: int | None,
) -> tuple[int, int]:
    """Choose ``window_length`` and ``horizon`` where they are None.

    The horizon is the farthest step that will be asked for, where known, else as long
    as the window. The window is twice the horizon, between 24 and 60 rows. Both leave
    room for other windows: a horizon of at most a third of the longest series, a window
    of at most half of what then remains (all of it, where there are many series).
    """
    longest = int(lengths.max())
    room = 1 if len(lengths) >= _MANY_SERIES else 2
    if horizon is None and n_ahead is not None and n_ahead > 0:
        horizon = min(n_ahead, longest // 3) if window_length is None else n_ahead
    if window_length is None and horizon is None:
        window_length = max(min(40, longest // (room + 1)), 1)
    elif window_length is None and horizon is not None:
        wanted = min(60, max(24, 2 * horizon))
        window_length = max(min(wanted, (longest - horizon) // room), 1)
    assert window_length is not None  # noqa: S101
    return window_length, window_length if horizon is None else horizon


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
    anchor = settings.normalize or "series"
    model = FittedModel(
        None,  # type: ignore[arg-type]  # built below, once the anchor is known
        normalisation,
        median_gap(observations),
        window_length,
        horizon,
    )
    if anchor == "auto":
        windows = model.windows(observations)
        sample = windows.gather(_spread(np.arange(len(windows)), 4 * _SCORED_WINDOWS))
        anchor = choose_anchor(sample["values"], sample["mask"], window_length)
    n_controls = 0
    if observations.controls is not None:
        n_controls = observations.controls.shape[1]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.randint(2**31 - 1)))
        model.network = _network(
            settings, observations.values.shape[1], n_controls, anchor
        )
    return model


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
        nn.Anchor(anchor, n_channels),
        unrolled=settings.engine != "eager",
    )


def _split(
    windows: WindowSet,
    bounds: NDArray[np.int64],
    settings: Any,
    rng: np.random.RandomState,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64] | None]:
    """Return the training windows, the held-out ones, and the first row scored of each.

    The end of every series is held out; of many series that are one window each, whole
    series are. Nothing is held out without early stopping, or where nothing would be
    left to train on.
    """
    every = np.arange(len(windows))
    nothing = every[:0]
    if not settings.early_stopping:
        return every, nothing, None
    n_series = len(bounds) - 1
    if len(windows) == n_series:
        n_held = round(settings.validation_fraction * n_series)
        if n_held == 0:
            return every, nothing, None
        order = rng.permutation(every)
        held_out = np.sort(order[:n_held])
        after_seen = windows.start[held_out] + windows.window_length
        reaches = (windows.end[held_out] > after_seen).any()
        return np.sort(order[n_held:]), held_out, after_seen if reaches else None
    lengths = np.diff(bounds)
    n_rows = np.maximum(np.round(settings.validation_fraction * lengths), 1)
    cut = (bounds[1:] - n_rows.astype(np.int64))[windows.series]
    training = np.flatnonzero(windows.end <= cut)
    later = windows.start + windows.window_length < windows.end
    held_out = np.flatnonzero((windows.end > cut) & later)
    if not len(training) or not len(held_out):
        return every, nothing, None
    held_out = _spread(held_out, _SCORED_WINDOWS)
    return training, held_out, cut[held_out]


def _spread(items: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return at most that many items, evenly spaced, the last one among them."""
    if len(items) <= most:
        return items
    return items[np.linspace(0, len(items) - 1, most).round().astype(np.int64)]


def _batch(
    windows: WindowSet,
    which: NDArray[np.int64],
    device: torch.device,
    scored_from: NDArray[np.int64] | None = None,
) -> nn.Batch:
    arrays = windows.gather(which, scored_from)
    tensors = {
        name: None if array is None else torch.from_numpy(array).to(device)
        for name, array in arrays.items()
    }
    return nn.Batch(n_seen=windows.window_length, **tensors)  # type: ignore[arg-type]


def finetune_epochs(settings: Any, start: FittedModel) -> int:
    """Epochs of a fit that follows ``pretrain``."""
    if settings.finetune_epochs is not None:
        return int(settings.finetune_epochs)
    return max(round(_FINETUNE_SHARE * (settings.max_epochs or len(start.rows))), 1)


def _device(name: str | torch.device) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)
