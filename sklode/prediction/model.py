"""A model: a network, and all that applies it to new series."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sklode import nn
from sklode.data.arrays import Array
from sklode.data.observations import Observations
from sklode.data.scaling import Units, split_at_gaps
from sklode.data.windows import Rows, WindowSet
from sklode.nn.ahead import FEW

ARCHITECTURE = (
    *("encoder", "hidden_size", "latent_size", "field_width", "field_depth"),
    *("emission_width", "window_length", "horizon", "level", "method", "step_size"),
)
"""Settings of a network, which cannot change as training goes on."""


@dataclass(repr=False)
class TrainedModel:
    """A network with all that applies it to new series."""

    network: Any
    units: Units
    clock: str  # of the index, see `sklode.data.ticks.clock_of`
    window_length: int  # rows that the encoder sees
    architecture: dict[str, Any]  # the settings that the network was built with
    columns: tuple[Any, Any, Any] = ((), (), {})  # of y, of X, and its categories
    rows: list[dict[str, float]] = field(default_factory=list)  # of the training
    whole_epochs: int = 0  # from scratch; later trainings take a share
    best_epoch: int = 0  # whose weights it has; 0: those it started from

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of columns of y and of X."""
        return len(self.units.location), len(self.units.control_location)


@dataclass(repr=False, kw_only=True)
class FittedModel(TrainedModel):
    """A network of whole windows."""

    horizon: int  # rows after those seen, in a training window
    calibration: Array | None = None  # of spreads, see `scales_at`
    held: Any = None  # (channel,): forecasts of constant channels; else NaN

    def windows(self, observations: Observations) -> WindowSet:
        """Return the training windows; none spans a long gap."""
        rows = Rows(split_at_gaps(observations, self.units.time), self.units)
        counts = np.isnan(self.held)
        return WindowSet(rows, self.window_length, self.horizon, counts)


def build_network(
    settings: Any,
    n_channels: int,
    n_controls: int,
    reach: float | None = None,
) -> Any:
    """Return an untrained network, as settings say.

    Of whole windows; with a ``reach`` one that looks ahead.
    """
    solver = nn.Solver(settings.method, settings.step_size)
    hidden_size, latent_size = settings.hidden_size, settings.latent_size
    width, depth, n = settings.field_width, settings.field_depth, n_controls
    sizes = 2 * n_channels + n, hidden_size
    encoder: Any
    if settings.encoder == "rnn":
        encoder = nn.RNN(*sizes)
    else:
        kind = {"ode-rnn": nn.ODERNN, "ode-lstm": nn.ODELSTM}[settings.encoder]
        encoder = kind(*sizes, nn.VectorField(hidden_size, width, depth), solver)
    if reach is None:
        head = nn.perceptron(hidden_size, hidden_size, 2 * latent_size)
        decoder = nn.Decoder(nn.VectorField(latent_size, width, depth, n), solver)
        emission = nn.perceptron(latent_size + n, settings.emission_width, n_channels)
        return nn.LatentODE(encoder, head, decoder, emission)
    flow = None
    if n_channels <= FEW:
        # of each channel, and of what they share
        together, wide = n_channels * latent_size, width * (n_channels + 1)
        flow = nn.Decoder(nn.VectorField(together, wide, depth, n), solver)
    own = n_channels, n, latent_size, settings.emission_width
    return nn.AheadODE(encoder, flow, *own, reach)
