"""A model: a network, and all that is needed to apply it to new series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sklode import nn
from sklode.data.observations import Observations
from sklode.data.scaling import Normalisation, Timeline
from sklode.data.windows import WindowSet
from sklode.engine.threads import n_threads
from sklode.levels import Anchor, LinearAnchor
from sklode.prediction.calibration import Calibration
from sklode.prediction.predictor import Predictor

__all__ = ["ARCHITECTURE", "FittedModel", "arrays_of", "build_network"]

ARCHITECTURE = (
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


@dataclass(repr=False)
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
        In time units: as much a longer gap counts, see `sklode.data.scaling`.
    clock : str
        Kind of the index, see `sklode.data.ticks.clock_of`.
    window_length, horizon : int
        Rows that the encoder sees, and rows after them in a training window.
    architecture : dict
        The settings that the network was built with.
    rows : list of dict
        The training history.
    whole_epochs : int
        Epochs of the training from scratch; later ones take a share of them.
    best_epoch : int
        The epoch whose weights the network has; 0: those it started from.
    columns : tuple of two sequences
        The names of y's columns and of X's that it was trained on.
    calibration : Calibration or None
        Of the spread of its forecasts; None: the model's own.
    stopped : sklode.training.plan.Checkpoint or None
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
    whole_epochs: int = 0
    best_epoch: int = 0
    columns: tuple[Sequence[Any], Sequence[Any]] = ((), ())
    calibration: Calibration | None = None
    stopped: Any = None
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
    def fine_tunes(self) -> bool:
        """Whether it was stopped while it trained on from a pretrained model."""
        return self.stopped is not None and self.stopped.terms.fine_tunes

    @property
    def timeline(self) -> Timeline:
        """How ticks become the model's time."""
        return Timeline(self.time_unit, self.longest_gap)

    def predictor(self, observations: Observations) -> Predictor:
        """Return the model with the history that it forecasts from."""
        n_threads()  # a thread's first, as in a training
        arrays = arrays_of(observations, self.normalisation, self.timeline)
        return Predictor(self.network, *arrays, self.window_length, self.calibration)

    def windows(self, observations: Observations) -> WindowSet:
        """Return the training windows."""
        arrays = arrays_of(observations, self.normalisation, self.timeline)
        windows = WindowSet(*arrays, self.window_length, self.horizon)
        return windows if self.held is None else windows.without(~np.isnan(self.held))

    def hold(self) -> None:
        """Let the network forecast what is `held`."""
        if self.held is not None and not np.isnan(self.held).all():
            device = next(self.network.parameters()).device
            constants = torch.from_numpy(self.held).to(device)
            self.network.emission.hold(~constants.isnan(), constants)


def arrays_of(
    observations: Observations, normalisation: Normalisation, timeline: Timeline
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None, NDArray[np.int64]]:
    """Return times, values and controls in the model's units, and the bounds."""
    controls = observations.controls
    return (
        timeline.of_rows(observations),
        normalisation.values(observations.values),
        None if controls is None else normalisation.controls(controls),
        observations.bounds,
    )


def build_network(
    settings: Any, n_channels: int, n_controls: int, anchor: str
) -> nn.LatentODE:
    """Return an untrained network of the sizes and the solver that settings name."""
    solver = nn.Solver(
        settings.method,
        settings.step_size,
        settings.rtol,
        settings.atol,
        settings.adjoint,
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
        LinearAnchor(n_channels, n_controls)
        if anchor == "linear"
        else Anchor(anchor, n_channels),
    )
