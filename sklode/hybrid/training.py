"""Training a network that looks ahead from any row, beside the structural model.

It is trained without the held-out rows, given up where it has no prospects, and trained
on with all rows as far as it adds to that.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator

import numpy as np
import torch

from sklode.data.arrays import Numbers
from sklode.data.history import History
from sklode.data.observations import Observations
from sklode.data.scaling import Units, constants_of
from sklode.hybrid.guard import (
    Evidence,
    Validation,
    has_prospects,
    network_weights_of,
)
from sklode.hybrid.model import HybridModel, NetworkWeights, batch_of
from sklode.hybrid.network import HybridBatch, HybridODE, build_network
from sklode.hybrid.origins import Origins
from sklode.nn.settings import NetworkSettings
from sklode.structural.candidates import links_of
from sklode.structural.model import StructuralModel
from sklode.training.parameters import TrainingSettings, resolve_device
from sklode.training.report import Reporter
from sklode.training.training import (
    Material,
    Training,
    drawn_network,
    held_out_rows,
    seed_from,
)

_UPDATES = 900  # optimiser steps that max_epochs=None aims at
_TRIED = 1 / 3  # of the epochs, after which it needs prospects
_FURTHER, _FURTHER_RATE = (1 / 3, 1), 0.5
"""Of the epochs (few series; many short ones), and ``lr``, to train on."""

_PROVING_ROWS = 300  # at least, of which a network can be trained and validated
_STRETCHES = 0.3, 0.15
"""Of each series' rows, what is held out: two stretches of time, one after another."""

_MANY_SERIES, _SHORT, _HELD_OUT = 20, 200, 0.2
"""Of so many series shorter than this, on average, a share of whole ones is."""

_VALIDATED = 0.1  # of the rows, by early stopping

_ROWS_READ = 48

_REACH, _SHARE_OF_SPAN = 64.0, 0.7
"""The longest lead in units of time, and in usual series' spans."""

_SHORTEST = 0.1
"""How far a step asks at least, in shares of the reach.

Of many short series of few channels it always asks as far as the reach: errors of
biological laws are 6 % smaller so, those of intensive care (of many channels) and of
weather (one series) 5 and 18 % larger.
"""

_FEWEST_SEEN = 3
_ANSWERS = 4096  # values that a batch asks for at most


class HybridTraining(Training):
    """A training that looks ahead from rows anywhere in the series."""

    def __init__(
        self,
        history: History,
        settings: TrainingSettings,
        rng: np.random.RandomState,
        start: HybridModel | None,
        purpose: str,
    ) -> None:
        super().__init__(history, settings, rng, start, purpose)
        weights_seed, self.predict_seed = seed_from(rng), seed_from(rng)
        self._split(rng)
        self._given_up = self._is_tried = False
        self._validations: dict[int, Validation] = {}
        self.is_guarded = self.from_scratch and settings.guard is not False
        self.learned = self.rows
        may_have_network = not self.from_scratch
        if self.from_scratch:
            # what pretraining left without a network stays so
            kept = start if purpose in ("fine-tune", "update") else None
            before = self.rows.until(self._cuts[0])
            can_prove = self._can_prove(before)
            if self.is_guarded and can_prove:
                self.learned = before
            may_have_network = kept is None and (can_prove or not self.is_guarded)
            self.model = self._model_without_network(kept)
        self.model.columns = self.columns
        if may_have_network:
            self._set_network(weights_seed)
        if self.model.network is not None:
            self.model.network.to(resolve_device(settings.device))

    def _split(self, rng: np.random.RandomState) -> None:
        """Draw what the network is proved on: whole series, or stretches of time."""
        rows = self.rows
        is_short = rows.lengths.mean() < _SHORT
        self._whole = len(rows.keys) >= _MANY_SERIES and bool(is_short)
        shares = (_HELD_OUT,) if self._whole else _STRETCHES
        self._cuts = [held_out_rows(rows.bounds, s, self._whole, rng) for s in shares]

    def _can_prove(self, before: Observations) -> bool:
        """Return whether rows suffice, and all channels have some before the cut."""
        is_enough = len(self.rows.ticks) >= _PROVING_ROWS
        return is_enough and bool(np.isfinite(before.values).any(0).all())

    def _model_without_network(self, kept: HybridModel | None) -> HybridModel:
        """Return the structural model, or the one that is kept, with its units."""
        rows = self.rows
        if kept is None:
            # on all rows, as `StructuralForecaster`: X counts where y is missing, too
            structural = StructuralModel.fit(self._history.rows, known=self.known)
        else:
            structural = kept.structural
        usual = min(_ROWS_READ, max(int(self.learned.lengths.max()) - 1, 1))
        return HybridModel(
            network=None,
            units=Units.robust(
                self.learned, structural.unit, links_of(structural.channels)
            ),
            clock=rows.clock,
            window_length=self.settings.window_length or usual,
            architecture=self.architecture,
            structural=structural,
        )

    def _set_network(self, seed: int) -> None:
        """Draw an untrained network, unless there is one; settle the epochs."""
        origins, usable = self._usable(self.learned)
        if not len(usable):
            return
        if self.from_scratch:
            self.model.network = self._network(origins, seed)
        self.set_length(len(self.rows.ticks), _UPDATES)

    def _network(self, origins: Origins, seed: int) -> HybridODE:
        rows, (n_channels, n_controls) = self.learned, self.model.sizes
        spans = origins.times[rows.bounds[1:] - 1]
        usual = float(np.median(np.repeat(spans, rows.lengths)))  # of rows' series
        reach = max(min(_REACH, _SHARE_OF_SPAN * usual), 1.0)
        architecture = NetworkSettings.of(self.architecture)
        network: HybridODE = drawn_network(
            lambda: build_network(architecture, n_channels, n_controls, reach),
            seed,
            4.0,
            max(reach, 8.0),
        )
        counts, varies = origins.mask.sum(0), np.isnan(constants_of(rows.values))
        weights = np.where(varies, np.maximum(counts, 30.0) ** -0.5, 0.0)
        total = (weights * counts).sum()
        weights = weights * (counts[varies].sum() / total if total > 0 else 1.0)
        network.weights.copy_(torch.from_numpy(weights))
        return network

    def _usable(self, rows: Observations) -> tuple[Origins, Numbers]:
        """Return rows in the model's units, and where windows may end."""
        origins = Origins(rows, self.model.units)
        return origins, origins.usable(min(_FEWEST_SEEN, self.model.window_length))

    def train(self, reporter: Reporter) -> HybridModel:
        """Train, validate, and return the model."""
        model: HybridModel = self.model
        if model.network is None:
            reporter.say("No network: its rows are too few, or pretraining left none.")
            return model
        trainer = self.learn(reporter, self.material(self.learned))
        self._is_interrupted = trainer.interrupted
        self.keep_history(trainer)
        if not self.from_scratch:
            return model
        model.network.eval()
        if not self.is_guarded:
            model.weights = NetworkWeights.whole(model.sizes[0], model.network.reach)
        elif not self._given_up:
            model.weights = self._proved(reporter)
        if model.weights is None:
            model.network = None
            reporter.say(
                "The network has not proved itself: the structural model answers alone."
            )
            return model
        reporter.say(f"Of the network's forecasts {model.share:.0%} count.")
        if self.is_guarded and not self._is_interrupted:
            reporter.say("It trains on, on all rows.")
            self._train_on(self.rows, reporter)
        return model

    def _proved(self, reporter: Reporter) -> NetworkWeights | None:
        """Return what counts, by every stretch that was held out."""
        found: list[Evidence] = []
        n_channels = self.model.sizes[0]
        for number, cut in enumerate(self._cuts):
            if self._is_interrupted and found:
                break
            if number:  # it has seen the stretch before this one
                self._train_on(self.rows.until(cut), reporter)
            with self.torch_threads():
                found.append(self._evidence(number))
            if not has_prospects(found[-1], n_channels):
                return None
        return network_weights_of(found, n_channels, of_blocks=not self._whole)

    def _train_on(self, rows: Observations, reporter: Reporter) -> None:
        """Train on; where that diverges, the network stays as it was proved."""
        self._is_tried, whole = True, self.n_epochs
        self.n_epochs = math.ceil(_FURTHER[self._whole] * whole)
        self.rate = _FURTHER_RATE
        network = self.model.network
        proved = copy.deepcopy(network.state_dict())
        trainer = self.learn(reporter, self.material(rows))
        if trainer.n_restored:
            network.load_state_dict(proved)
            reporter.say("Training on diverged: the network stays as it was proved.")
        self._is_interrupted |= trainer.interrupted
        self.n_epochs = whole
        network.eval()

    def goes_on(self, epoch: int) -> bool:
        """Return whether the network has prospects, asked after a third."""
        tried = math.ceil(_TRIED * self.n_epochs)
        if self.is_guarded and not self._is_tried and epoch == tried:
            self.model.network.eval()
            evidence = self._evidence(0)
            self._given_up = not has_prospects(evidence, self.model.sizes[0])
        return not self._given_up

    def _evidence(self, number: int) -> Evidence:
        """Return what the network does on a stretch, beside a model of before it."""
        if number not in self._validations:
            rows, cut = self.rows, self._cuts[number]
            if self._whole:  # a fifth of many series hardly moves what all share
                structural = self.model.structural
            else:
                structural = StructuralModel.fit(rows.until(cut), known=self.known)
            if number + 1 < len(self._cuts):
                first, end = rows.bounds[:-1], self._cuts[number + 1]
                kept = (cut - first)[end > first]
                rows = rows.until(end)
                cut = rows.bounds[:-1] + kept
            self._validations[number] = Validation(rows, cut, structural, self.model)
        return self._validations[number].evidence()

    def material(self, rows: Observations) -> Material:
        """Return batches of windows that end at any of these rows."""
        settings, network = self.settings, self.model.network
        origins, usable = self._usable(rows)
        validation = None
        if settings.early_stopping:
            rng = np.random.default_rng(self.predict_seed)
            cut = held_out_rows(rows.bounds, _VALIDATED, self._whole, rng)
            before = rows.until(cut)
            spared = self._usable(before)
            ends = usable[usable + 1 >= cut[origins.series[usable]]]
            if len(spared[1]) and len(ends):
                held_out = np.sort(rng.permutation(ends)[:64])
                validation = self._batch(origins, held_out, network.reach, rng)
                rows, (origins, usable) = before, spared
        network.count_rows(len(rows.ticks))
        n_batches = self.n_batches(len(rows.ticks))
        reach, chances = network.reach, None
        if network.decoder is not None and self._whole:
            # each pair of an origin and a later row is as likely
            n_after = np.maximum(origins.n_after(usable, reach), 1)
            chances = n_after / n_after.sum()

        def draw(epoch: int) -> Iterator[HybridBatch]:
            seed = int(torch.randint(2**31 - 1, (1,), generator=self.generator))
            rng = np.random.default_rng(seed)
            for _ in range(n_batches):
                ends, ahead = rng.choice(usable, settings.batch_size, p=chances), reach
                if chances is None:
                    ahead *= _SHORTEST + (1 - _SHORTEST) * rng.random()
                yield self._batch(origins, ends, ahead, rng)

        return Material(draw, n_batches, validation)

    def _batch(
        self,
        origins: Origins,
        ends: Numbers,
        ahead: float,
        rng: np.random.Generator,
    ) -> HybridBatch:
        """Return windows with what comes up to so long after them."""
        model = self.model
        asked = origins.after(ends, ahead)
        if len(asked.window) > _ANSWERS:
            kept = np.sort(rng.choice(len(asked.window), _ANSWERS, replace=False))
            asked = asked.part(kept)
        hidden = None
        if self.settings.thinning:
            rate = self.settings.thinning * rng.random((len(ends), 1)) ** 2
            hidden = rng.random((len(ends), model.window_length)) < rate
            hidden[:, 0] = False
        given = origins, ends, model.window_length, asked, origins.path(ends, ahead)
        target = origins.values[asked.row, asked.channel]
        return batch_of(*given, model.network, hidden, target)
