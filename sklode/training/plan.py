"""From observations to a fitted model: what is settled before training, and then it.

`plan` settles sizes, units, what is held out, how long to train; the
`Run` that it returns trains, and calibrates.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from sklode import nn
from sklode.data.observations import Observations
from sklode.data.scaling import constants_of
from sklode.data.windows import WindowSet
from sklode.engine.threads import n_threads
from sklode.nn.modes import own_modes
from sklode.prediction.calibration import measured_calibration
from sklode.prediction.model import FittedModel
from sklode.training.batches import (
    first_held_out_row,
    hidden_rows,
    training_windows,
    validation_batches,
)
from sklode.training.fresh import fresh_model
from sklode.training.parameters import Settings, resolve_device
from sklode.training.report import Reporter
from sklode.training.run import (
    BATCHES_PER_EPOCH,
    Material,
    Purpose,
    Run,
    length,
)

_UPDATES = 1500  # optimiser steps that max_epochs=None aims at
_HELD_OUT = 0.1  # share of rows, by early stopping

_STAGES = ((0.125, 0.0), (0.25, 0.47), (0.5, 0.82), (1.0, 1.0))
"""Windows grow during the warm-up: (share of their length, share of the warm-up).

Short windows show the local dynamics, which a long solve hides from the gradient
behind many periods; and they are cheap.
"""

_WARM_UP_UPDATES, _WARM_UP_SHARE = 1250, 0.84  # no more than that share of all


def plan(
    observations: Observations,
    settings: Settings,
    rng: np.random.RandomState,
    n_ahead: int | None = None,
    start: FittedModel | None = None,
    purpose: Purpose = "fit",
) -> WindowRun:
    """Settle all that comes before a training on all series together.

    ``n_ahead`` is the farthest step of the horizon that will be asked for. The training
    begins from new weights, or from a copy of ``start``, with its units and lengths.
    """
    n_threads()  # a thread's first; it could else take another fit's limit for its own
    with own_modes(gradients=True):
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
        _, n_batches = _epoch_size(windows, cut, settings)
        return WindowRun(
            model,
            settings,
            generator,
            *length(settings, model.whole_epochs, n_batches, purpose, _UPDATES),
            start is None,
            int(rng.randint(2**31 - 1)),
            cut,
            windows,
        )


@dataclass
class WindowRun(Run):
    """A training on windows whose first rows the decoder starts from."""

    windows: WindowSet

    def train(self, reporter: Reporter) -> FittedModel:
        """Train, calibrate the spreads, and return the model."""
        model: FittedModel = self.model
        with own_modes(gradients=True):
            self.learn(self.material(), reporter)
            model.network.eval()
            with self.torch_threads():
                model.calibration = measured_calibration(
                    model, self.windows, self.cut, self.n_epochs, self.settings.thinning
                )
        return model

    def material(self) -> Material:
        """Return the windows before the first held-out rows."""
        settings, cut = self.settings, self.cut
        n_drawn, n_batches = _epoch_size(self.windows, cut, settings)
        warm_up = 0  # none, with weights that were trained before
        if self.from_scratch:
            warm_up = math.ceil(_WARM_UP_UPDATES / n_batches)
            warm_up = min(warm_up, int(_WARM_UP_SHARE * self.n_epochs))
        stages = [
            (begin * warm_up, self.windows.shortened(share)) for share, begin in _STAGES
        ]
        device = next(self.model.network.parameters()).device

        def draw(epoch: int) -> Iterator[nn.Batch]:
            part = [windows for begin, windows in stages if epoch > begin][-1]
            usable = training_windows(part, cut)
            order = torch.randperm(len(usable), generator=self.generator).numpy()
            shuffled = usable[order[:n_drawn]]
            for low in range(0, len(shuffled), settings.batch_size):
                which = shuffled[low : low + settings.batch_size]
                hidden = hidden_rows(part, which, settings.thinning, self.generator)
                yield nn.make_batch(part, which, device, hidden=hidden)

        validation = []
        if settings.early_stopping:
            validation = validation_batches(self.windows, cut, device)
        return Material(draw, n_batches, warm_up, validation)


def _epoch_size(
    windows: WindowSet, cut: NDArray[np.int64], settings: Settings
) -> tuple[int, int]:
    """Return how many windows an epoch draws, and in how many batches."""
    n_windows = len(training_windows(windows, cut))
    n_drawn = min(n_windows, BATCHES_PER_EPOCH * settings.batch_size)
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
    return held if from_scratch else np.where(np.abs(held) < 1e-9, held, np.nan)
