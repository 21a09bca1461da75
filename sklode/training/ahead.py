"""Training a network that looks ahead from any row, beside the level.

Where the rows could validate one: it is trained without the held-out rows, given up
where it has no prospects, and trained on with all rows as far as it adds to the level.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from sklode import nn
from sklode.data.history import History
from sklode.data.observations import Observations
from sklode.data.windows import Origins, Units
from sklode.levels.components import least_of
from sklode.levels.level import Level
from sklode.nn.ahead import FEW
from sklode.nn.modes import own_modes
from sklode.prediction.ahead import AheadModel, Stacking, batch_of
from sklode.prediction.model import ARCHITECTURE, build_network
from sklode.training.parameters import Settings, resolve_device
from sklode.training.plan import (
    BATCHES_PER_EPOCH,
    Material,
    Purpose,
    Run,
    columns_of,
    drawing_weights,
    periods_between,
    seed_from,
)
from sklode.training.report import Reporter
from sklode.training.validation import Validation, can_validate, held_out_rows

_UPDATES = 900  # optimiser steps that max_epochs=None aims at
_TRIED = 1 / 3  # of the epochs, after which a network without prospects is given up
_FURTHER, _FURTHER_RATE = (1 / 3, 1), 0.5
"""Of the epochs, of few series and of many short ones, and of ``lr``: what a validated
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


class AheadRun(Run):
    """A training that looks ahead from rows anywhere in the series.

    It begins from new weights, or from a copy of ``start``, with its level and units.
    """

    def __init__(
        self,
        history: History,
        settings: Settings,
        rng: np.random.RandomState,
        start: AheadModel | None = None,
        purpose: Purpose = "fit",
    ) -> None:
        super().__init__(settings, rng)
        self.rows = rows = history.observations
        weights_seed, self.predict_seed = seed_from(rng), seed_from(rng)
        self._cut, self._whole = held_out_rows(rows, rng)
        self._validation: Validation | None = None
        self._given_up = False
        with own_modes(gradients=True):
            self.from_scratch = start is None or start.network is None
            if start is not None and start.network is not None:
                self.model = copy.deepcopy(start)
                self.learned, usable = rows, self._usable(rows)[1]
            else:
                keeps = start is not None and purpose in ("fine-tune", "update")
                level = start.level if keeps else Level.fit(rows)  # type: ignore[union-attr]
                usable = self._begin(level, keeps, weights_seed)
            self.model.columns = history.channels, history.controls
            self.n_epochs = 0
            if self.model.network is not None:
                self.model.network.to(resolve_device(settings.device))
                self.set_length(purpose, self._n_batches(rows), _UPDATES)
                self.n_epochs *= bool(len(usable))

    @property
    def is_guarded(self) -> bool:
        """Whether the network has to be validated."""
        return self.from_scratch and self.settings.guard is not False

    def _begin(self, level: Level, keeps: bool, seed: int) -> NDArray[np.int64]:
        """Set the untrained model; return the rows that windows may end at.

        ``keeps``: no network where pretraining has validated none. Nor is there one
        where none could be validated, or where nothing can be learned.
        """
        rows, settings = self.rows, self.settings
        learned = rows.until(self._cut)
        can = can_validate(rows)
        can &= bool((~np.isnan(learned.values)).any(0).all())
        self.learned = learned if self.is_guarded and can else rows
        units = Units.of(self.learned, level.unit, least_of(level.channels))
        longest = int(self.learned.lengths.max())
        n_rows = settings.window_length or min(_ROWS_READ, max(longest - 1, 1))
        built_with = {name: getattr(settings, name) for name in ARCHITECTURE}
        self.model = AheadModel(None, level, units, rows.clock, n_rows, built_with)
        origins, usable = self._usable(self.learned)
        if len(usable) and not keeps and (can or not self.is_guarded):
            self.model.network = self._network(origins, seed)
        return usable

    def _network(self, origins: Origins, seed: int) -> nn.AheadODE:
        """Return an untrained network of the sizes that the data call for."""
        rows, settings = self.learned, self.settings
        spans = origins.times[rows.bounds[1:] - 1]
        usual = float(np.median(np.repeat(spans, rows.lengths)))  # of rows' series
        reach = max(min(_REACH, _SHARE_OF_SPAN * usual), 1.0)
        n_channels, n_controls = map(columns_of, (rows.values, rows.controls))
        looks_back = 1 < n_channels <= FEW and np.median(rows.lengths) >= _LONG
        with drawing_weights(seed):
            network = build_network(
                settings, n_channels, n_controls, reach, bool(looks_back)
            )
            if network.decoder is not None:
                n = network.latent_size // 2
                periods = periods_between(4.0, max(reach, 8.0), n)
                network.decoder.vector_field.start_rotating(periods)
        counts = origins.mask.sum(0)
        seen = zip(origins.values.T, origins.mask.T, strict=True)
        varies = np.array([len(np.unique(v[m])) > 1 for v, m in seen])
        weights = np.where(varies, np.maximum(counts, 30.0) ** -0.5, 0.0)
        total = (weights * counts).sum()
        weights = weights * (counts[varies].sum() / total if total > 0 else 1.0)
        network.weights.copy_(torch.from_numpy(weights))
        return network

    def _usable(self, rows: Observations) -> tuple[Origins, NDArray[np.int64]]:
        """Return rows in the model's units, and those that windows may end at."""
        origins = Origins(rows, self.model.units)
        return origins, origins.usable(min(_FEWEST_SEEN, self.model.window_length))

    def _n_batches(self, rows: Observations) -> int:
        n = math.ceil(max(len(rows.ticks), 1) / self.settings.batch_size)
        return min(BATCHES_PER_EPOCH, n)

    def train(self, reporter: Reporter) -> AheadModel:
        """Train, validate, and return the model."""
        model: AheadModel = self.model
        if model.network is None:
            reporter.say(
                "The rows are too few to prove a network beside the level: the level "
                "alone is the forecast."
            )
            return model
        with own_modes(gradients=True):
            trainer = self.learn(self.material(self.learned), reporter)
            if not self.from_scratch:
                return model
            model.stacking = self._stacking(model.network)
            if model.stacking is None:
                model.network = None
                reporter.say(
                    "What the network adds to the level has not proved itself: the "
                    "level alone is the forecast."
                )
                return model
            reporter.say(
                f"The network has proved itself: {model.share:.0%} of its forecasts "
                f"count, up to {model.stacking.reach:.3g} times the usual gap ahead."
            )
            if self.is_guarded and not trainer.interrupted:
                told = Reporter(reporter.verbose, prefix="on all rows: ")
                n_epochs = math.ceil(_FURTHER[self._whole] * self.n_epochs)
                self.fit(self.material(self.rows), told, n_epochs, _FURTHER_RATE)
        return model

    def _stacking(self, network: nn.AheadODE) -> Stacking | None:
        """Return how much of the network's forecasts counts; None for nothing."""
        if not self.is_guarded:
            ones = np.ones((1, self.model.sizes[0]))
            return Stacking(np.zeros(1), ones, ones, network.reach)
        if self._given_up:
            return None
        network.eval()
        with self.torch_threads():
            return self._validate().stacking(network)

    def goes_on(self, epoch: int) -> bool:
        """Return whether the network has prospects, asked after a third."""
        tried = math.ceil(_TRIED * self.n_epochs)
        is_asked = self.is_guarded and self.model.stacking is None
        if is_asked and epoch == tried:
            network = self.model.network
            network.eval()
            self._given_up = not self._validate().has_prospects(network)
        return not self._given_up

    def _validate(self) -> Validation:
        """Return the held-out origins; a level that has not seen them forecasts."""
        if self._validation is None:
            model = self.model
            self._validation = Validation(
                self.rows,
                self._cut,
                self._whole,
                Level.fit(self.rows.until(self._cut)),
                model.units,
                model.window_length,
                model.network.reach,
            )
        return self._validation

    def material(self, rows: Observations) -> Material:
        """Return windows that end at any of these rows."""
        settings, network = self.settings, self.model.network
        origins, usable = self._usable(rows)
        validation = []
        if settings.early_stopping:
            rng = np.random.RandomState(self.predict_seed)
            cut, _ = held_out_rows(rows, rng, _VALIDATED)
            before = rows.until(cut)
            spared = self._usable(before)
            ends = usable[usable + 1 >= cut[origins.series[usable]]]
            if len(spared[1]) and len(ends):
                chosen = np.random.default_rng(self.predict_seed)
                held_out = np.sort(chosen.permutation(ends)[:64])
                validation = [self._batch(origins, held_out, network.reach, chosen)]
                rows, (origins, usable) = before, spared
        network.kl_scale = min(1.0, _FULL_KL / max(len(rows.ticks), 1)) ** 2
        n_batches = self._n_batches(rows)

        def draw(epoch: int) -> Iterator[nn.AheadBatch]:
            seed = int(torch.randint(2**31 - 1, (1,), generator=self.generator))
            rng = np.random.default_rng(seed)
            for _ in range(n_batches if len(usable) else 0):
                ends = rng.choice(usable, settings.batch_size)
                share = _SHORTEST + (1 - _SHORTEST) * rng.random() ** _BEND
                yield self._batch(origins, ends, share * network.reach, rng)

        return Material(draw, n_batches, validation)

    def _batch(
        self,
        origins: Origins,
        ends: NDArray[np.int64],
        ahead: float,
        rng: np.random.Generator,
    ) -> nn.AheadBatch:
        """Return windows with what comes up to so long after their ends."""
        model = self.model
        asked = origins.after(ends, ahead)
        most = _ANSWERS[model.network.looks_back]
        if len(asked.window) > most:
            kept = np.sort(rng.choice(len(asked.window), most, replace=False))
            asked = asked.part(kept)
        hidden = None
        if self.settings.thinning:
            rate = self.settings.thinning * rng.random((len(ends), 1)) ** 2
            hidden = rng.random((len(ends), model.window_length)) < rate
            hidden[:, 0] = False
        return batch_of(
            origins,
            ends,
            model.window_length,
            asked,
            origins.path(ends, ahead),
            model.network,
            hidden,
            origins.values[asked.row, asked.channel],
        )
