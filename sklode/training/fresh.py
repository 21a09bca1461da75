"""An untrained model: sizes, units and initial weights, as the data call for."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sklode.data.observations import Observations
from sklode.data.scaling import Normalisation, split_at_gaps, time_unit
from sklode.data.ticks import ticks_between
from sklode.data.windows import SCORED_WINDOWS, Layout, spread
from sklode.nn.modes import default_float32
from sklode.nn.solvers import FOLLOWED
from sklode.prediction.model import (
    ARCHITECTURE,
    FittedModel,
    build_network,
)
from sklode.training.batches import first_held_out_row

_GLOBAL_GENERATOR = threading.Lock()
"""Held while initial weights are drawn, which torch does from its global generator.

Fits in several threads would draw from each other's seeds. They are drawn in float32,
which is then the default dtype.
"""


_MEAN_GAP = 10.0
"""Time units that a solver walks from one row to the next, on average, at most."""


@contextlib.contextmanager
def drawing_weights(seed: int) -> Iterator[None]:
    """Draw initial weights in this context."""
    with _GLOBAL_GENERATOR, torch.random.fork_rng(devices=[]), default_float32():
        # torch.manual_seed would seed the generators of the GPUs as well
        torch.default_generator.manual_seed(seed)
        yield


def default_lengths(
    lengths: NDArray[np.int64],
    window_length: int | None,
    horizon: int | None,
    n_ahead: int | None,
) -> tuple[int, int]:
    """Choose ``window_length`` and ``horizon`` where they are None, see `PARAMETERS`.

    ``n_ahead`` is the farthest step of the horizon that will be asked for, if known.
    """
    longest = int(lengths.max())
    # of many series a window need not leave room for others beside it
    room = 1 if len(lengths) >= 8 else 2
    if window_length is not None:
        wanted = window_length if n_ahead is None else n_ahead
        return window_length, wanted if horizon is None else horizon
    if horizon is None:
        horizon = min(20 if n_ahead is None else n_ahead, longest // 3)
    wanted = min(60, max(24, 2 * horizon))
    return max(min(wanted, (longest - horizon) // room), 1), horizon


def fresh_model(
    observations: Observations,
    settings: Any,
    rng: np.random.RandomState,
    n_ahead: int | None,
    held_out: float = 0.0,
) -> tuple[FittedModel, NDArray[np.int64]]:
    """Return an untrained model, and the first held-out row of each series.

    Units are those of the rows before.
    """
    window_length, horizon = default_lengths(
        observations.lengths, settings.window_length, settings.horizon, n_ahead
    )
    unit = time_unit(observations, _MEAN_GAP)
    observations = split_at_gaps(observations, unit)
    layout = Layout(observations.bounds, window_length, horizon)
    cut = first_held_out_row(layout, held_out, rng)
    learned = observations.until(cut)
    windows = Layout(learned.bounds, window_length, horizon)
    which = spread(np.arange(len(windows)), 4 * SCORED_WINDOWS)
    first, last = windows.start[which], windows.end[which] - 1
    spans = ticks_between(learned.ticks[first], learned.ticks[last]) / unit
    n_controls = 0 if observations.controls is None else observations.controls.shape[1]
    with drawing_weights(int(rng.randint(2**31 - 1))):
        n_channels = observations.values.shape[1]
        network = build_network(settings, n_channels, n_controls)
        span = float(np.median(spans))
        network.decoder.vector_field.start_rotating(_periods(settings, span))
    model = FittedModel(
        network,
        Normalisation.of(learned),
        unit,
        observations.clock,
        window_length,
        horizon,
        {name: getattr(settings, name) for name in ARCHITECTURE},
    )
    return model, cut


def _periods(settings: Any, span: float) -> list[float]:
    """Draw periods that the decoder starts with, in time units, evenly in their log."""
    followed = 2 * math.pi * settings.step_size / FOLLOWED[settings.method]
    # faster oscillations are hardly seen at stamps one unit apart
    shortest = max(4.0, followed)
    longest = max(span, 2 * shortest)
    n = settings.latent_size // 2
    places = (torch.arange(n) + torch.rand(n)) / max(n, 1)
    periods: list[float] = (shortest * (longest / shortest) ** places).tolist()
    return periods
