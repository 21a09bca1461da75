"""Training on windows that the decoder describes from the first row on.

Of the paper's model: z0 stands at the first row, and all is reconstructed,
with rows after it that the encoder does not see. Here is what it trains on,
and how long; the loop of epochs is `sklode.training.trainer.Trainer.fit`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from sklode.data.arrays import Array, Numbers
from sklode.data.scaled_rows import ScaledRows, spread
from sklode.data.scaling import Units, constants_of, split_at_gaps, time_unit
from sklode.latent_ode.calibration import measured_calibration
from sklode.latent_ode.model import LatentODEModel
from sklode.latent_ode.network import Batch, LatentODE, build_network
from sklode.latent_ode.windows import SCORED_WINDOWS, WindowSet
from sklode.nn.settings import NetworkSettings
from sklode.nn.solvers import Solver
from sklode.training.parameters import resolve_device
from sklode.training.preparation import (
    Training,
    drawn_network,
    held_out_rows,
    seed_from,
    torch_threads,
)
from sklode.training.report import Reporter
from sklode.training.trainer import Material

_UPDATES = 1500  # optimiser steps that max_epochs=None aims at
_HELD_OUT = 0.1  # share of rows, by early stopping
_MEAN_GAP = 10.0
"""Time units from one row to the next, on average, at most."""

_ENOUGH = 0.5
"""Share of the windows to be left where ends of series are held out."""

_STAGES = ((0.125, 0.0), (0.25, 0.47), (0.5, 0.82), (1.0, 1.0))
"""Windows grow during the warm-up: (share of their length, share of the warm-up).

Short ones show local dynamics, which a long solve hides from the gradient.
"""

# steps, and no more than that share of all
_WARM_UP_UPDATES, _WARM_UP_SHARE = 1250, 0.84


class LatentODETraining(Training[LatentODEModel]):
    """A training on windows whose first rows the decoder starts from."""

    fills_X = False
    network: LatentODE

    def begin(self) -> None:
        """Settle sizes of windows, units and what is held out; draw a network."""
        settings, start = self.settings, self.start
        unit = time_unit(self.rows, _MEAN_GAP) if start is None else start.units.time
        pieces = split_at_gaps(self.rows, unit)
        if start is None:
            window_length, horizon = default_lengths(
                pieces.lengths,
                window_length=settings.window_length,
                horizon=settings.horizon,
                n_ahead=self.n_ahead,
            )
        else:
            window_length, horizon = start.window_length, start.horizon
        self.cut = self._cut(pieces.bounds, span=window_length + horizon)
        # a network goes on in the units that it has learned
        units = Units.of(pieces.until(self.cut), unit) if start is None else start.units
        held = self._held(units)
        self.windows = WindowSet(
            ScaledRows(pieces, units),
            window_length=window_length,
            horizon=horizon,
            counted=np.isnan(held),
        )
        if start is None:
            self.model = LatentODEModel(
                network=self._drawn(seed_from(self.rng)),
                units=units,
                clock=self.rows.clock,
                window_length=window_length,
                architecture=self.architecture,
                columns=self.columns,
                horizon=horizon,
                held=held,
            )
        else:
            self.model = replace(self.continued(start), held=held)
        self.network = self.model.network
        self.network.to(resolve_device(settings.device))
        self.network.hold(torch.from_numpy(held))
        n_windows = len(self._trained_on(self.windows))
        self.schedule = self.schedule_of(n_windows, _UPDATES)
        self.predict_seed = seed_from(self.rng)

    def _held(self, units: Units) -> Array:
        """Return what constant channels are forecast by; NaN for all others.

        The ever smaller noise that they ask for would leave no other gradient. A model
        trained before knows more, unless its location is that constant.
        """
        constants = constants_of(self.rows.values)
        held: Array = (constants - units.location) / units.scale
        # NaN, of a channel that varies, is not less than anything
        is_known = self.from_scratch | (np.abs(held) < 1e-9)
        return np.where(is_known, held, np.nan)

    def _cut(self, bounds: Numbers, span: int) -> Numbers:
        """Return the row of each series from which on nothing is trained on.

        With early stopping ends are held out, or whole series where else few windows of
        ``span`` rows would be left; nothing, where none would.
        """
        end = bounds[1:]
        n_windows = np.maximum(np.diff(bounds) - span + 1, 1)

        def n_left(cut: Numbers) -> int:
            # each row that is held out takes the window that ends with it
            return int(np.maximum(n_windows - (end - cut), 0).sum())

        if not self.settings.early_stopping:
            return end
        cut = held_out_rows(bounds, share=_HELD_OUT, of_series=False, rng=self.rng)
        is_several = round(_HELD_OUT * len(end)) > 0
        if is_several and n_left(cut) < _ENOUGH * n_windows.sum():
            cut = held_out_rows(bounds, share=_HELD_OUT, of_series=True, rng=self.rng)
        return cut if n_left(cut) else end

    def _drawn(self, seed: int) -> LatentODE:
        """Return an untrained network that turns as fast as windows can show."""
        architecture = NetworkSettings.of(self.architecture)
        n_channels = self.rows.values.shape[1]
        n_controls = self.rows.controls.shape[1]
        # a median of some windows, of which a long series has very many
        which = spread(self._trained_on(self.windows), 4 * SCORED_WINDOWS)
        span = float(np.median(self.windows.gather(which).times[:, -1].numpy()))
        solver = Solver(architecture.method, architecture.step_size)
        # faster oscillations are hardly seen one unit apart
        shortest = max(4.0, solver.shortest_period)
        return drawn_network(
            lambda: build_network(architecture, n_channels, n_controls),
            seed=seed,
            shortest=shortest,
            longest=max(span, 2 * shortest),
        )

    def train(self, reporter: Reporter) -> LatentODEModel:
        """Begin, train, calibrate the spreads, and return the model."""
        self.begin()
        self.note([self.learn(self.material(), self.schedule, reporter)])
        self.network.eval()
        with torch_threads(self.network):
            found = measured_calibration(
                self.network,
                windows=self.windows,
                cut=self.cut,
                epochs=self.schedule.n_epochs,
                thinning=self.settings.thinning,
            )
        calibration = self.model.calibration if found is None else found
        ahead, back = self._reach()
        return self.trained(
            replace(
                self.model,
                calibration=calibration,
                reach_ahead=ahead,
                reach_back=back,
            )
        )

    def _reach(self) -> tuple[float, float]:
        """Return how far the network has learned to look ahead, and back.

        What it learned before, of other series, counts too.
        """
        ahead, back = self.windows.reach(self._trained_on(self.windows))
        if not self.settings.thinning:  # no first rows were hidden
            back = 0.0
        if self.start is None:
            return ahead, back
        if not self.schedule.n_epochs:
            ahead, back = 0.0, 0.0
        return max(ahead, self.start.reach_ahead), max(back, self.start.reach_back)

    def _trained_on(self, windows: WindowSet) -> Numbers:
        return np.flatnonzero(windows.end <= self.cut[windows.series])

    def material(self) -> Material:
        """Return batches of the windows before the held-out rows."""
        settings, generator = self.settings, self.generator
        n_windows = len(self._trained_on(self.windows))
        n_batches = self.n_batches(n_windows)
        warm_up = 0  # none, with weights that were trained before
        if self.from_scratch:
            wanted = math.ceil(_WARM_UP_UPDATES / n_batches)
            most = int(_WARM_UP_SHARE * self.schedule.n_epochs)
            warm_up = min(wanted, most)
        stages = [
            (begin * warm_up, self.windows.shortened(share)) for share, begin in _STAGES
        ]
        device = next(self.network.parameters()).device

        def draw(epoch: int) -> Iterator[Batch]:
            begun = [windows for begin, windows in stages if epoch > begin]
            part = begun[-1]
            usable = self._trained_on(part)
            order = torch.randperm(len(usable), generator=generator).numpy()
            # short windows are more than whole ones: an epoch takes as many
            shuffled = usable[order[:n_windows]]
            for k in range(n_batches):
                first = k * settings.batch_size
                which = shuffled[first : first + settings.batch_size]
                hidden = hidden_rows(
                    part,
                    which=which,
                    thinning=settings.thinning,
                    generator=generator,
                )
                yield part.gather(which, hidden=hidden, device=device)

        return Material(
            draw=draw,
            n_batches=n_batches,
            validation=self._validation(device),
            warm_up_epochs=warm_up,
        )

    def _validation(self, device: torch.device) -> Batch | None:
        """Return held-out windows, scored at held-out rows not seen."""
        if not self.settings.early_stopping:
            return None
        windows, cut = self.windows, self.cut
        after_seen = windows.start + windows.window_length
        held_out = windows.end > cut[windows.series]
        # series too short for rows after those seen: all that is held out counts
        reaching = np.flatnonzero(held_out & (windows.end > after_seen))
        found = reaching if len(reaching) else np.flatnonzero(held_out)
        if not len(found):
            return None
        which = spread(found, SCORED_WINDOWS)
        scored_from = cut[windows.series[which]] if len(reaching) else None
        batch = windows.gather(which, scored_from, device=device)
        scores = batch.scored is not None and bool(batch.scored.any())
        return batch if scores else None


def default_lengths(
    lengths: Numbers,
    window_length: int | None,
    horizon: int | None,
    n_ahead: int | None,
) -> tuple[int, int]:
    """Return ``window_length`` and ``horizon``; of None see `LatentODEForecaster`."""
    longest = int(lengths.max())
    # as many rows ahead as will be forecast; if that is open, as many as are seen
    if horizon is None:
        wanted = (window_length or 20) if n_ahead is None else n_ahead
        horizon = wanted if window_length else min(wanted, longest // 3)
    if window_length is None:
        # of many series windows need no others beside them
        room = 1 if len(lengths) >= 8 else 2
        wanted = min(60, max(24, 2 * horizon), (longest - horizon) // room)
        window_length = max(wanted, 1)
    return window_length, horizon


def hidden_rows(
    windows: WindowSet,
    which: Numbers,
    thinning: float,
    generator: torch.Generator,
) -> torch.Tensor | None:
    """Return which rows of windows the encoder does not see, (batch, row).

    Each row with a probability of up to ``thinning``; and in that share of the windows
    the first rows too, at most ``horizon`` of them. Each window keeps one row at least.
    """
    if not thinning:
        return None
    n_seen = min(windows.window_length, windows.span)
    lengths = torch.from_numpy(windows.end[which] - windows.start[which])
    n_rows = lengths.clamp(max=n_seen).unsqueeze(-1)
    row = torch.arange(n_seen)
    single = torch.float32  # the process' default dtype may be another
    shape = (4, len(which), 1)
    chosen, share, rate, left = torch.rand(shape, generator=generator, dtype=single)
    # first rows, at most as many as come after those seen: as far to forecast back
    n_first = torch.ceil(share * (n_rows - 1).clamp(max=windows.horizon))
    n_first = torch.where(chosen < thinning, n_first, 0)
    thinned = torch.rand(len(which), n_seen, generator=generator, dtype=single)
    hidden = (row < n_first) | (thinned < thinning * rate)
    # any of the rows after the first ones, drawn evenly
    remains = n_first + (left * (n_rows - n_first)).floor()
    return hidden & (row != remains)
