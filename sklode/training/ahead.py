"""A level, and a network beside it that looks ahead from the last seen row.

`plan_ahead` asks first whether the rows could prove a network. The `AheadRun` that it
returns trains one without the held-out rows, gives it up where it has no prospects, and
trains it on with all rows as far as it has proved that it adds to the level.
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
from sklode.data.windows import Origins, Units
from sklode.engine.threads import n_threads
from sklode.levels.components import least_of
from sklode.levels.structural import StructuralLevel
from sklode.nn.ahead import FEW
from sklode.nn.modes import own_modes
from sklode.prediction.ahead import AheadModel, Stacking, batch_of, build_ahead
from sklode.prediction.model import ARCHITECTURE
from sklode.training.fresh import drawing_weights
from sklode.training.parameters import Settings, resolve_device
from sklode.training.report import Reporter
from sklode.training.run import (
    BATCHES_PER_EPOCH,
    Material,
    Purpose,
    Run,
    length,
)
from sklode.training.validation import Proof, can_prove, held_out_rows

_UPDATES = 900  # optimiser steps that max_epochs=None aims at
_TRIED = 1 / 3  # of the epochs, after which a network without prospects is given up
_FURTHER, _FURTHER_RATE = (1 / 3, 1), 0.5
"""Of the epochs, of few series and of many short ones, and of ``lr``: what a proved
network trains on for, with all rows."""

_VALIDATED = 0.1  # of the rows, by early stopping

_ROWS_READ = 48
_LONG = 200
"""Series of so many rows show delays, which answers then look back for."""

_REACH, _SHARE_OF_SPAN = 64.0, 0.7
"""The longest lead in units of time, and in usual series' spans."""

_SHORTEST, _BEND = 0.1, 2.0
"""How far ahead a step asks, in shares of the reach: the least, and how it is drawn."""

_FEWEST_SEEN = 3
_ANSWERS = 4096, 1024
"""Values that a batch asks for at most; where answers look back."""

_FULL_KL = 300
"""With more observed rows than this the KL term counts for less, by the square."""


def plan_ahead(
    observations: Observations,
    settings: Settings,
    rng: np.random.RandomState,
    start: AheadModel | None = None,
    purpose: Purpose = "fit",
) -> AheadRun:
    """Settle all that comes before a training on all series together.

    It begins from new weights, or from a copy of ``start``, with its level and units.
    """
    n_threads()  # a thread's first; it could else take another fit's limit for its own
    with own_modes(gradients=True):
        generator = torch.Generator().manual_seed(int(rng.randint(2**31 - 1)))
        seed, predict_seed = (int(rng.randint(2**31 - 1)) for _ in range(2))
        cut, whole = held_out_rows(observations, rng)
        if start is not None and start.network is not None:
            model, from_scratch = copy.deepcopy(start), False
        else:
            keeps = start is not None and purpose in ("fine-tune", "update")
            level = start.level if keeps else StructuralLevel.fit(observations)  # type: ignore[union-attr]
            learned = observations.until(cut)
            proves = settings.guard is not False and can_prove(observations)
            proves &= bool((~np.isnan(learned.values)).any(0).all())
            learned = learned if proves else observations
            model = _fresh(learned, settings, level, seed)
            from_scratch = True
            # nor what pretraining could not prove, nor where nothing can be learned
            keeps |= not len(_usable(learned, model)[1])
            if keeps or not (proves or settings.guard is False):
                model.network = None
        n_epochs, rate = 0, 1.0
        if model.network is not None:
            model.network.to(resolve_device(settings.device))
            n_batches = _n_batches(observations, settings)
            n_epochs, rate = length(
                settings, model.whole_epochs, n_batches, purpose, _UPDATES
            )
            if not len(_usable(observations, model)[1]):
                n_epochs = 0
        return AheadRun(
            model,
            settings,
            generator,
            n_epochs,
            rate,
            from_scratch,
            predict_seed,
            cut,
            observations,
            whole,
        )


def _fresh(
    learned: Observations, settings: Settings, level: StructuralLevel, seed: int
) -> AheadModel:
    """Return an untrained model: sizes and units as the data call for."""
    units = Units.of(learned, level.unit, least_of(level.channels))
    origins = Origins(learned, units)
    longest = int(learned.lengths.max())
    rows = settings.window_length or min(_ROWS_READ, max(longest - 1, 1))
    spans = origins.times[learned.bounds[1:] - 1]
    usual = float(np.median(np.repeat(spans, learned.lengths)))  # of rows' series
    reach = min(_REACH, _SHARE_OF_SPAN * usual)
    reach = max(reach, 1.0)
    n_channels = learned.values.shape[1]
    n_controls = 0 if learned.controls is None else learned.controls.shape[1]
    looks_back = 1 < n_channels <= FEW and np.median(learned.lengths) >= _LONG
    with drawing_weights(seed):
        network = build_ahead(settings, n_channels, n_controls, reach, bool(looks_back))
        decoder = network.decoder
        if decoder is not None:
            n = network.latent_size // 2
            places = (torch.arange(n) + torch.rand(n)) / max(n, 1)
            periods = (4.0 * (max(reach, 8.0) / 4.0) ** places).tolist()
            decoder.vector_field.start_rotating(periods)
    counts = origins.mask.sum(0)
    seen = zip(origins.values.T, origins.mask.T, strict=True)
    varies = np.array([len(np.unique(v[m])) > 1 for v, m in seen])
    weights = np.where(varies, np.maximum(counts, 30.0) ** -0.5, 0.0)
    total = (weights * counts).sum()
    weights = weights * (counts[varies].sum() / total if total > 0 else 1.0)
    network.weights.copy_(torch.from_numpy(weights))
    return AheadModel(
        network,
        level,
        units,
        learned.clock,
        rows,
        {name: getattr(settings, name) for name in ARCHITECTURE},
    )


def _usable(
    observations: Observations, model: AheadModel
) -> tuple[Origins, NDArray[np.int64]]:
    """Return rows in a model's units, and those that windows may end at."""
    origins = Origins(observations, model.units)
    return origins, origins.usable(min(_FEWEST_SEEN, model.window_length))


def _n_batches(observations: Observations, settings: Settings) -> int:
    n_rows = max(len(observations.ticks), 1)
    return min(BATCHES_PER_EPOCH, math.ceil(n_rows / settings.batch_size))


@dataclass
class AheadRun(Run):
    """A training that looks ahead from rows anywhere in the series."""

    observations: Observations
    whole: bool  # whether whole series are held out for a proof
    given_up: bool = False

    def train(self, reporter: Reporter) -> AheadModel:
        """Train, prove, and return the model."""
        model: AheadModel = self.model
        if model.network is None:
            reporter.say(
                "The rows are too few to prove a network beside the level: the level "
                "alone is the forecast."
            )
            return model
        with own_modes(gradients=True):
            trainer = self.learn(self.material(), reporter)
            if self.from_scratch:
                self._prove_and_go_on(reporter, trainer.interrupted)
        return model

    def _prove_and_go_on(self, reporter: Reporter, interrupted: bool) -> None:
        """Find what counts of the network, and train that on with all rows."""
        model = self.model
        self._prove()
        if model.stacking is None:
            model.network = None
            reporter.say(
                "What the network adds to the level has not proved itself: the level "
                "alone is the forecast."
            )
            return
        reporter.say(
            f"The network has proved itself: {model.share:.0%} of its forecasts count, "
            f"up to {model.stacking.reach:.3g} times the usual gap ahead."
        )
        if self.settings.guard is not False and not interrupted:
            told = Reporter(reporter.verbose, prefix="on all rows: ")
            n_epochs = math.ceil(_FURTHER[self.whole] * self.n_epochs)
            self._fit(self.material(further=True), told, n_epochs, _FURTHER_RATE)

    def _prove(self) -> None:
        """Set how much of the network's forecasts counts."""
        model, network = self.model, self.model.network
        if self.settings.guard is False:
            ones = np.ones((1, model.sizes[0]))
            model.stacking = Stacking(np.zeros(1), ones, ones, network.reach)
            return
        model.stacking = None
        if not self.given_up:
            network.eval()
            with self.torch_threads():
                model.stacking = self._proof().stacking(network)

    def goes_on(self, epoch: int) -> bool:
        """Return whether the network has prospects, asked after a third."""
        tried = math.ceil(_TRIED * self.n_epochs)
        is_asked = self.from_scratch and self.settings.guard is not False
        is_asked &= self.model.stacking is None  # nothing is proved yet
        if not is_asked or epoch != tried or epoch == self.n_epochs:
            return True
        network = self.model.network
        network.eval()
        self.given_up = not self._proof().has_prospects(network)
        network.train()
        return not self.given_up

    def _proof(self) -> Proof:
        """Return the held-out origins; a level that has not seen them forecasts."""
        if self._found is None:
            learned = self.observations.until(self.cut)
            model = self.model
            self._found = Proof(
                self.observations,
                self.cut,
                self.whole,
                StructuralLevel.fit(learned),
                model.units,
                model.window_length,
                model.network.reach,
            )
        return self._found

    _found: Proof | None = None

    def material(self, further: bool = False) -> Material:
        """Return windows that end anywhere before the first held-out rows.

        All rows count where nothing has to be proved, or is.
        """
        model, settings = self.model, self.settings
        network = model.network
        seen = self.observations
        if self.from_scratch and settings.guard is not False and not further:
            seen = seen.until(self.cut)
        origins, usable = _usable(seen, model)
        validation = []
        if settings.early_stopping:
            rng = np.random.RandomState(self.predict_seed)
            cut, _ = held_out_rows(seen, rng, _VALIDATED)
            before = seen.until(cut)
            spared = _usable(before, model)
            ends = usable[usable + 1 >= cut[origins.series[usable]]]
            if len(spared[1]) and len(ends):
                validation = [self._validation(origins, ends)]
                seen, (origins, usable) = before, spared
        n_batches = _n_batches(seen, settings)
        network.kl_scale = min(1.0, _FULL_KL / max(len(seen.ticks), 1)) ** 2

        def draw(epoch: int) -> Iterator[nn.AheadBatch]:
            seed = int(torch.randint(2**31 - 1, (1,), generator=self.generator))
            rng = np.random.default_rng(seed)
            for _ in range(n_batches if len(usable) else 0):
                rows = rng.choice(usable, settings.batch_size)
                share = _SHORTEST + (1 - _SHORTEST) * rng.random() ** _BEND
                yield self._batch(origins, rows, share * network.reach, rng)

        return Material(draw, n_batches, 0, validation)

    def _batch(
        self,
        origins: Origins,
        rows: NDArray[np.int64],
        ahead: float,
        rng: np.random.Generator,
    ) -> nn.AheadBatch:
        """Return windows with what comes up to so long after them."""
        model = self.model
        asked = origins.after(rows, ahead)
        most = _ANSWERS[model.network.looks_back]
        if len(asked.window) > most:
            kept = np.sort(rng.choice(len(asked.window), most, replace=False))
            asked = asked.part(kept)
        hidden = None
        if self.settings.thinning:
            rate = self.settings.thinning * rng.random((len(rows), 1)) ** 2
            hidden = rng.random((len(rows), model.window_length)) < rate
            hidden[:, 0] = False
        return batch_of(
            origins,
            rows,
            model.window_length,
            asked,
            origins.path(rows, ahead),
            model.network,
            hidden,
            origins.values[asked.row, asked.channel],
        )

    def _validation(self, origins: Origins, ends: NDArray[np.int64]) -> nn.AheadBatch:
        """Return windows that end at some of the held-out rows."""
        rng = np.random.default_rng(self.predict_seed)
        rows = np.sort(rng.permutation(ends)[:64])
        return self._batch(origins, rows, self.model.network.reach, rng)
