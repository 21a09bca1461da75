"""A model: a network, and all that is needed to apply it to new series."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sklode import nn
from sklode.data.observations import Observations
from sklode.data.scaling import Normalisation, Timeline
from sklode.data.windows import SCORED_WINDOWS, WindowSet, spread
from sklode.engine.threads import n_threads
from sklode.levels import Anchor, LinearAnchor
from sklode.levels.choice import choose_anchor, deviation_scale
from sklode.levels.fitting import fit_linear
from sklode.nn.modes import default_float32
from sklode.prediction.calibration import Calibration
from sklode.prediction.predictor import Predictor

__all__ = [
    "ARCHITECTURE",
    "FittedModel",
    "build_network",
    "default_lengths",
    "fresh_model",
]

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


_GLOBAL_GENERATOR = threading.Lock()
"""Held while initial weights are drawn, which torch does from its global generator.

Fits in several threads would draw from each other's seeds. They are drawn in float32,
which is then the default dtype.
"""


_SHORTEST_PERIOD = 4.0
"""In time units: faster oscillations are hardly seen at stamps one unit apart."""


_FOLLOWED = {"rk4": math.pi / 2, "midpoint": 0.5, "euler": 0.1, "dopri5": math.pi / 2}
"""Radians per step that a method follows without changing the amplitude much."""


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
        In time units: as much a longer gap counts, see `sklode.data.scaling`.
    clock : str
        Kind of the index, see `sklode.data.ticks.clock_of`.
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
    stopped: Any = None
    held: NDArray[np.floating] | None = None

    def __repr__(self) -> str:
        """Return what it is, without its numbers."""
        n_channels = len(self.normalisation.location)
        return (
            f"FittedModel(encoder={type(self.network.encoder).__name__}, "
            f"channels={n_channels}, window_length={self.window_length}, "
            f"horizon={self.horizon}, epochs={len(self.rows)}, "
            f"best_epoch={self.best_epoch})"
        )

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
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None, NDArray[np.int64]]:
    """Return times, values and controls in the model's units, and the bounds."""
    controls = observations.controls
    return (
        timeline.of_rows(observations),
        normalisation.values(observations.values),
        None if controls is None else normalisation.controls(controls),
        observations.bounds,
    )


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


def fresh_model(
    observations: Observations,
    settings: Any,
    rng: np.random.RandomState,
    n_ahead: int | None,
) -> FittedModel:
    """Return an untrained model of the sizes that data and settings call for."""
    window_length, horizon = default_lengths(
        observations.lengths, settings.window_length, settings.horizon, n_ahead
    )
    normalisation = Normalisation.of(observations, settings.normalize is not None)
    timeline = Timeline.of(observations)
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
    architecture = {name: getattr(settings, name) for name in ARCHITECTURE}
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
    if isinstance(network.anchor, LinearAnchor):
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
        LinearAnchor(n_channels, n_controls)
        if anchor == "linear"
        else Anchor(anchor, n_channels),
    )
