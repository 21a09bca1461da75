"""The paper's model, fitted: its network, and what its answers need.

Tested in tests/test_persistence.py and tests/latent_ode/test_answers.py.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sklode.data.arrays import Array
from sklode.data.history import History, QueryRows
from sklode.data.observations import Observations
from sklode.data.scaled_rows import ScaledRows
from sklode.data.scaling import split_at_gaps
from sklode.latent_ode.answers import LatentODEAnswers
from sklode.latent_ode.network import LatentODE
from sklode.latent_ode.windows import WindowSet
from sklode.training.model import TrainedModel, by_lead


@dataclass(frozen=True, repr=False, kw_only=True)
class LatentODEModel(TrainedModel):
    """A network of whole windows."""

    network: LatentODE
    horizon: int  # rows after those seen, in a training window
    calibration: Array | None = None  # of spreads, see `scales_at`
    held: Array  # (channel,): forecasts of constant channels, else NaN
    # how far training looked after the rows seen, and before them, in units of time;
    # not known of files that were written before it was measured
    reach_ahead: float = math.inf
    reach_back: float = math.inf

    @property
    def scales(self) -> Array:
        """The calibration, or ones where none was measured; see `scales_at`."""
        if self.calibration is not None:
            return self.calibration
        # one knot, at lag 0: beyond the last knot its scale is held
        ones = np.ones(self.sizes[0])
        return np.append(0.0, ones)[None]

    def answers(self, history: History, seed: int, before: object) -> LatentODEAnswers:
        """Return what it answers of series, by draws of a seed."""
        return LatentODEAnswers(
            network=self.network,
            history=history,
            windows=self.windows(history.observations).reaching(0),
            units=self.units,
            scales=self.scales,
            seed=seed,
            reach_ahead=self.reach_ahead,
            reach_back=self.reach_back,
        )

    def states(self, history: History, queries: QueryRows) -> tuple[Array, Array]:
        """Return its latent state and that one's deviation, (row, state).

        Each is that of the window that answers a stamp.
        """
        return self.answers(history, 0, None).states(queries)

    def contribution(self, like: pd.Index) -> str:
        """How much of a forecast is the network's, in words."""
        text = "is the whole forecast"
        if math.isinf(self.reach_ahead):
            return text
        return (
            f"{text}; it learned to look {self.length(self.reach_ahead, like)} ahead "
            f"of a series' last row,\nand {self.length(self.reach_back, like)} back "
            "from its first"
        )

    def attributes(self, channels: list[Hashable]) -> dict[str, object]:
        """Return the fitted attributes of a forecaster."""
        leads, scales = self.scales[:, 0], self.scales[:, 1:]
        return super().attributes(channels) | {
            "network_share_": 1.0,
            "horizon_": self.horizon,
            "interval_scale_": by_lead(leads, scales, channels),
        }

    def windows(self, observations: Observations) -> WindowSet:
        """Return the training windows; none spans a long gap."""
        pieces = split_at_gaps(observations, self.units.time)
        return WindowSet(
            ScaledRows(pieces, self.units),
            window_length=self.window_length,
            horizon=self.horizon,
            # what is held is forecast right, whatever is learned
            counted=np.isnan(self.held),
        )
