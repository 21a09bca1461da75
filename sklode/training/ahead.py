"""Training a network that looks ahead from any row, beside the level.

Where the rows could validate one: it is trained without the held-out rows, given up
where it has no prospects, and trained on with all rows as far as it adds to the level.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from functools import cached_property

import numpy as np
import torch

from sklode import nn
from sklode.data.arrays import Numbers
from sklode.data.history import History
from sklode.data.observations import Observations
from sklode.data.scaling import Units
from sklode.data.windows import Rows
from sklode.levels.components import least_of
from sklode.levels.level import Level
from sklode.nn.ahead import FEW
from sklode.nn.modes import own_modes
from sklode.prediction.ahead import AheadModel, Stacking, batch_of
from sklode.training.parameters import Settings, resolve_device
from sklode.training.plan import (
    BATCHES_PER_EPOCH,
    Material,
    Purpose,
    Run,
    drawn_network,
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

    @own_modes(gradients=True)
    def __init__(
        self,
        history: History,
        settings: Settings,
        rng: np.random.RandomState,
        start: AheadModel | None = None,
        purpose: Purpose = "fit",
    ) -> None:
        super().__init__(settings, rng)
        self.learned = self.rows = rows = history.observations
        weights_seed, self.predict_seed = seed_from(rng), seed_from(rng)
        self._cut, self._whole = held_out_rows(rows, rng)
        self._given_up = False
        self.from_scratch = start is None or start.network is None
        self.is_guarded = self.from_scratch and settings.guard is not False
        if start is not None and start.network is not None:
            self.model = copy.deepcopy(start)
        else:
            self._begin(start if purpose in ("fine-tune", "update") else None)
        model = self.model
        model.columns = history.channels, history.controls
        origins, usable = self._usable(self.learned)
        if self.from_scratch and self._may_have_network and len(usable):
            model.network = self._network(origins, weights_seed)
        if model.network is not None:
            model.network.to(resolve_device(settings.device))
            if len(usable):
                self.set_length(purpose, self._n_batches(rows), _UPDATES)

    def _begin(self, start: AheadModel | None) -> None:
        """Set a model without a network, whose units are of the rows it learns.

        ``start`` is one that pretraining has left without: it stays so, and its level.
        """
        rows = self.rows
        level = Level.fit(rows) if start is None else start.level
        before = rows.until(self._cut)
        can = can_validate(rows) and bool(np.isfinite(before.values).any(0).all())
        if self.is_guarded and can:
            self.learned = before
        self._may_have_network = start is None and (can or not self.is_guarded)
        units = Units.robust(self.learned, level.unit, least_of(level.channels))
        n_rows = min(_ROWS_READ, max(int(self.learned.lengths.max()) - 1, 1))
        n_rows = self.settings.window_length or n_rows
        self.model = AheadModel(
            None, units, rows.clock, n_rows, self.architecture, level=level
        )

    def _network(self, origins: Rows, seed: int) -> nn.AheadODE:
        """Return an untrained network of the sizes that the data call for."""
        rows, sizes = self.learned, self.model.sizes
        spans = origins.times[rows.bounds[1:] - 1]
        usual = float(np.median(np.repeat(spans, rows.lengths)))  # of rows' series
        reach = max(min(_REACH, _SHARE_OF_SPAN * usual), 1.0)
        looks_back = 1 < sizes[0] <= FEW and bool(np.median(rows.lengths) >= _LONG)
        network: nn.AheadODE = drawn_network(
            self.settings, (*sizes, reach, looks_back), seed, 4.0, max(reach, 8.0)
        )
        counts = origins.mask.sum(0)
        seen = zip(origins.values.T, origins.mask.T, strict=True)
        varies = np.array([len(np.unique(v[m])) > 1 for v, m in seen])
        weights = np.where(varies, np.maximum(counts, 30.0) ** -0.5, 0.0)
        total = (weights * counts).sum()
        weights = weights * (counts[varies].sum() / total if total > 0 else 1.0)
        network.weights.copy_(torch.from_numpy(weights))
        return network

    def _usable(self, rows: Observations) -> tuple[Rows, Numbers]:
        """Return rows in the model's units, and those that windows may end at."""
        origins = Rows(rows, self.model.units)
        return origins, origins.usable(min(_FEWEST_SEEN, self.model.window_length))

    def _n_batches(self, rows: Observations) -> int:
        n = math.ceil(max(len(rows.ticks), 1) / self.settings.batch_size)
        return min(BATCHES_PER_EPOCH, n)

    @own_modes(gradients=True)
    def train(self, reporter: Reporter) -> AheadModel:
        """Train, validate, and return the model."""
        model: AheadModel = self.model
        alone = "the level alone is the forecast."
        if model.network is None:
            reporter.say(f"The rows are too few to prove a network: {alone}")
            return model
        trainer = self.learn(self.material(self.learned), reporter)
        if not self.from_scratch:
            return model
        model.stacking = self._stacking(model.network)
        if model.stacking is None:
            model.network = None
            reporter.say(f"What the network adds has not proved itself: {alone}")
            return model
        reporter.say(
            f"The network has proved itself: {model.share:.0%} of its forecasts count, "
            f"up to {model.stacking.reach:.3g} times the usual gap ahead."
        )
        if self.is_guarded and not trainer.interrupted:
            told = Reporter(reporter.verbose, prefix="on all rows: ")
            n_epochs = math.ceil(_FURTHER[self._whole] * self.n_epochs)
            self.learn(self.material(self.rows), told, n_epochs, _FURTHER_RATE)
        return model

    def _stacking(self, network: nn.AheadODE) -> Stacking | None:
        """Return how much of the network's forecasts counts; None for nothing."""
        if not self.is_guarded:
            ones = np.ones((1, self.model.sizes[0]))
            return Stacking(np.zeros(1), ones, ones, network.reach)
        if self._given_up:
            return None
        with self.torch_threads():
            return self._validation.stacking(network.eval())

    def goes_on(self, epoch: int) -> bool:
        """Return whether the network has prospects, asked after a third."""
        tried = math.ceil(_TRIED * self.n_epochs)
        is_asked = self.is_guarded and self.model.stacking is None
        if is_asked and epoch == tried:
            network = self.model.network.eval()
            self._given_up = not self._validation.has_prospects(network)
        return not self._given_up

    @cached_property
    def _validation(self) -> Validation:
        """The held-out origins, and a level that has not seen what follows."""
        rows, model = self.rows, self.model
        level = Level.fit(rows.until(self._cut))
        window = model.window_length, model.network.reach
        return Validation(rows, self._cut, self._whole, level, model.units, *window)

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
        origins: Rows,
        ends: Numbers,
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
