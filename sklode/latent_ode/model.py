"""The paper's model, fitted: its network, and what its answers need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sklode.data.arrays import Array
from sklode.data.observations import Observations
from sklode.data.scaled_rows import ScaledRows
from sklode.data.scaling import split_at_gaps
from sklode.latent_ode.windows import WindowSet
from sklode.training.model import TrainedModel


@dataclass(repr=False, kw_only=True)
class LatentODEModel(TrainedModel):
    """A network of whole windows."""

    horizon: int  # rows after those seen, in a training window
    calibration: Array | None = None  # of spreads, see `scales_at`
    held: Any = None  # (channel,): forecasts of constant channels; else NaN

    def windows(self, observations: Observations) -> WindowSet:
        """Return the training windows; none spans a long gap."""
        rows = ScaledRows(split_at_gaps(observations, self.units.time), self.units)
        counts = np.isnan(self.held)
        return WindowSet(rows, self.window_length, self.horizon, counts)
