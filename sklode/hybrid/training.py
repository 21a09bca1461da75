"""Training a network that looks ahead from any row, beside the structural model.

It is trained without the held-out rows, given up where it has no prospects, and trained
on with all rows as far as it adds to that.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from joblib import Parallel, delayed

from sklode.data.arrays import Numbers
from sklode.data.observations import Observations
from sklode.data.scaling import Units, constants_of
from sklode.hybrid.controls import ControlForms
from sklode.hybrid.guard import (
    Evidence,
    Validation,
    has_prospects,
    network_weights_of,
    proving_origins,
    weights_of,
)
from sklode.hybrid.model import HybridModel, NetworkWeights
from sklode.hybrid.network import HybridBatch, HybridODE, build_network
from sklode.hybrid.origins import Origins
from sklode.hybrid.restarts import farthest
from sklode.hybrid.windows import batch_of, control_path
from sklode.nn.settings import NetworkSettings
from sklode.structural.candidates import links_of
from sklode.structural.fit import fit_model
from sklode.structural.model import StructuralModel
from sklode.training.parameters import resolve_device
from sklode.training.preparation import (
    Training,
    drawn_network,
    held_out_rows,
    seed_from,
    torch_threads,
)
from sklode.training.report import Reporter
from sklode.training.trainer import Material, Schedule, Trainer

_UPDATES = 900  # optimiser steps that max_epochs=None aims at
_TRIED = 1 / 3  # of the epochs, after which it needs prospects
_FURTHER, _FURTHER_RATE = (1 / 3, 1), 0.5
"""Of the epochs (few series; many short ones), and ``lr``, to train on."""

_BACKWARD = 0.5  # of the epochs, that a network of reversed time takes

_PROVING_ROWS, _OF_SERIES, _SEVERAL = 300, 60, 10
"""Rows of which a network can be proved: in all, and where there are several series."""

_FOLDS = 0.3, 0.15
"""Of each series' rows, what is held out: two folds of time, one after another."""

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


class HybridTraining(Training[HybridModel]):
    """A training that looks ahead from rows anywhere in the series."""

    fills_X = True
    network: HybridODE
    _is_given_up = _is_interrupted = False
    _scaled: tuple[Observations, Origins] | None = None

    def begin(self) -> None:
        """Fit the structural model, and draw a network where one can be proved."""
        weights_seed = seed_from(self.rng)
        self.predict_seed = seed_from(self.rng)
        self.every = self._history.rows
        # the network is proved on whole series, where many are short, else on each
        # one's end, fold by fold; cuts are every series' first held-out row
        is_short = bool(self.rows.lengths.mean() < _SHORT)
        self.of_series = len(self.rows.keys) >= _MANY_SERIES and is_short
        self.cuts = [
            held_out_rows(self.rows.bounds, share, self.of_series, rng=self.rng)
            for share in ((_HELD_OUT,) if self.of_series else _FOLDS)
        ]
        # what the network learns from until it is proved
        self.learned = self.rows
        self.is_guarded = self.from_scratch and self.settings.guard is not False
        self._validations: dict[int, Validation] = {}
        self._before: dict[int, StructuralModel] = {}  # of the rows before a fold
        if self.start is None or self.from_scratch:
            self.model = self._begun(weights_seed)
        else:
            self.model = self.continued(self.start)
        if self.model.network is not None:
            _, usable = self._usable(self.model, self.learned)
            if len(usable):
                self.schedule = self.schedule_of(len(self.rows.ticks), _UPDATES)
            device = resolve_device(self.settings.device)
            for network in self.model.networks:
                network.to(device)
            self.network = self.model.network
            self.generators = [
                # the first one's draws are those of a lone network
                self.generator if k == 0 else torch.Generator().manual_seed(seed)
                for k, seed in enumerate(self._seeds_of(weights_seed))
            ]

    def _begun(self, seed: int) -> HybridModel:
        """Return a model with an untrained network, or none if it cannot be proved."""
        # what pretraining left without a network stays so
        kept = self.start if self.purpose in ("fine-tune", "update") else None
        before = self.rows.until(self.cuts[0])
        # rows suffice, some of them have others after them that are held out, and all
        # channels have some before the cut
        are_several = len(self.rows.keys) >= _SEVERAL
        fewest = _OF_SERIES if are_several else _PROVING_ROWS
        is_enough = len(self.rows.ticks) >= fewest
        is_enough = is_enough and len(proving_origins(self.rows, self.cuts[0])) > 0
        can_prove = is_enough and np.isfinite(before.values).any(0).all()
        if self.is_guarded and can_prove:
            self.learned = before
        model = self._model_without_network(kept)
        if kept is not None or (self.is_guarded and not can_prove):
            return model
        origins, usable = self._usable(model, self.learned)
        if not len(usable):
            return model
        seeds = self._seeds_of(seed)
        network, *others = (self._drawn(model, origins, one) for one in seeds)
        return replace(model, network=network, others=tuple(others))

    def _seeds_of(self, seed: int) -> list[int]:
        """Return a seed for each network, of which the first is this one."""
        n_others = self.settings.n_networks - 1
        more = np.random.default_rng(seed).integers(2**31 - 1, size=n_others)
        return [seed, *more.tolist()]

    def _model_without_network(self, kept: HybridModel | None) -> HybridModel:
        """Return the structural model, or the one that is kept, with its units."""
        if kept is None:
            # on all rows, as `StructuralForecaster`: X counts where y is missing, too
            structural = fit_model(self._history.rows, known=self.known)
        else:
            structural = kept.structural
        links = links_of([column.candidates for column in structural.columns])
        longest = int(self.learned.lengths.max())
        usual = min(_ROWS_READ, max(longest - 1, 1))
        # the structural model's unit of time: leads of both are compared
        unit = structural.design.unit
        forms = ControlForms.of(self._history.rows, unit, longest=_REACH)
        _, learned = forms.read(self._every(self.learned), self.learned, unit)
        units = Units.robust(learned, time=unit, links=links)
        # what fades does so to zero
        location = np.where(forms.fades, 0.0, units.control_location)
        return HybridModel(
            network=None,
            forms=forms,
            units=replace(units, control_location=location),
            clock=self.rows.clock,
            window_length=self.settings.window_length or usual,
            architecture=self.architecture,
            columns=self.columns,
            structural=structural,
        )

    def _drawn(self, model: HybridModel, origins: Origins, seed: int) -> HybridODE:
        """Return an untrained network, with what each channel's values count."""
        rows, (n_channels, _) = self.learned, model.sizes
        spans = origins.times[rows.bounds[1:] - 1]
        # the median over rows: long series have more of them
        usual = float(np.median(np.repeat(spans, rows.lengths)))
        reach = max(min(_REACH, _SHARE_OF_SPAN * usual), 1.0)
        architecture = NetworkSettings.of(self.architecture)
        network = drawn_network(
            lambda: build_network(
                architecture,
                n_channels=n_channels,
                n_controls=len(model.forms.columns),
                reach=reach,
            ),
            seed=seed,
            shortest=4.0,
            longest=max(reach, 8.0),
        )
        # A channel of n values counts as sqrt(n), each of them as 1 / sqrt(n): what is
        # rare is heard, but not as much as what is known well. Scaled so that all
        # values together count as many as they are.
        counts = origins.mask.sum(0)
        varies = np.isnan(constants_of(rows.values))
        weights = np.where(varies, np.maximum(counts, 30.0) ** -0.5, 0.0)
        total = (weights * counts).sum()
        if total > 0:
            weights = weights * (counts[varies].sum() / total)
        network.weights.copy_(torch.from_numpy(weights))
        return network

    def train(self, reporter: Reporter) -> HybridModel:
        """Begin, train, validate, and return the model."""
        self.begin()
        if self.model.network is None:
            reporter.say("No network: its rows are too few, or pretraining left none.")
            return self.model
        trainers = self._learn_each(
            self.learned, self.schedule, reporter, goes_on=self._goes_on
        )
        self.note(trainers)
        # where one was interrupted those after it have learned nothing
        learned = self.model.networks[1 : len(trainers)]
        self.model = replace(self.model, others=learned)
        if not self.from_scratch:
            return self.trained(self.model)
        model = self._proved(reporter)
        if model is None:
            reporter.say(
                "The network has not proved itself: the structural model answers alone."
            )
            return self.trained(replace(self.model, network=None))
        reporter.say(f"Of the network's forecasts {model.share:.0%} count.")
        if not self.is_guarded or self._is_interrupted:
            return self.trained(model)
        # has not learned what is held out
        proved = copy.deepcopy(self.network) if self.of_series else None
        reporter.say("It trains on, on all rows.")
        self._train_on(self.rows, reporter)
        if proved is not None and not self._is_interrupted:
            model = self._with_backward(model, proved, reporter)
        return self.trained(model)

    def _proved(self, reporter: Reporter) -> HybridModel | None:
        """Return what counts of the networks, by every fold that was held out."""
        model, n_channels = self.model, self.model.sizes[0]
        most = farthest(self.network.reach)
        if not self.is_guarded:
            whole = NetworkWeights.even(1.0, n_channels, most)
            return replace(model, weights=whole)
        if self._is_given_up:
            return None
        found: dict[str, list[Evidence]] = {"near": [], "far": [], "gap": []}
        for number, cut in enumerate(self.cuts):
            if self._is_interrupted and number:
                break
            # what it forecasts next comes after the fold before: it may learn that
            if number:
                self._train_on(self.rows.until(cut), reporter)
            with torch_threads(self.network):
                near = self._evidence(number, model)
                found["near"].append(near)
                if not has_prospects(near, n_channels):
                    return None
                found["far"].append(self._evidence(number, model, restarts=True))
                if not self.model.forms.runs_back:
                    in_gaps = self._validation(number, in_gaps=True)
                    found["gap"].append(in_gaps.evidence())
        of_blocks = not self.of_series
        weights = network_weights_of(
            found["near"],
            n_channels,
            of_blocks=of_blocks,
            restarted=found["far"],
            farthest=most,
        )
        if weights is None:
            return None
        if found["gap"]:
            of_gaps = weights_of(found["gap"], n_channels, of_blocks=of_blocks)
            model = replace(model, gap_weights=of_gaps)
        return replace(model, weights=weights)

    def _with_backward(
        self, model: HybridModel, begun: HybridODE, reporter: Reporter
    ) -> HybridModel:
        """Return a model with a network of reversed time too, where it proves itself.

        It begins with the weights of one that has ``begun``, and has not learned what
        is held out.
        """
        twin = copy.copy(self)
        twin.rows, twin.every = self.rows.reversed(), self.every.reversed()
        twin.learned = self.learned.reversed()
        twin.network = begun
        twin.generators = [torch.Generator().manual_seed(self.predict_seed)]
        twin.model = replace(
            self.model, network=begun, others=(), forms=self.model.forms.reversed()
        )
        twin._validations, twin._scaled, twin._phases = {}, None, []
        n_epochs = math.ceil(_BACKWARD * self.schedule.n_epochs)
        twin.schedule = self.schedule._replace(n_epochs=n_epochs)
        reporter.say("A network of reversed time learns what came before.")
        trainers = twin._learn_each(
            twin.learned, twin.schedule, reporter, goes_on=twin._goes_on
        )
        twin.note(trainers)
        found = twin._proved(reporter)
        if found is not None and not twin._is_interrupted:
            twin._train_on(twin.rows, reporter)
        # the best epoch is one of the network that looks ahead
        self._phases += [(records, 0) for records, _ in twin._phases]
        if found is None:
            reporter.say("It has not proved itself: before first rows nothing counts.")
            return model
        reporter.say(f"Before first rows {found.share:.0%} of it count.")
        begun.to("cpu")  # it trains no more
        return replace(model, backward=begun, backward_weights=found.weights)

    def _learn_each(
        self,
        rows: Observations,
        schedule: Schedule,
        reporter: Reporter,
        goes_on: Callable[[int], bool] | None = None,
    ) -> list[Trainer]:
        """Train all networks: the first as long as it ``goes_on``, then the others."""

        def learn(
            number: int, reporter: Reporter, **how: Callable[[int], bool]
        ) -> Trainer:
            twin = copy.copy(self)
            twin.network = self.model.networks[number]
            twin.generator = self.generators[number]
            material = twin.material(rows)
            return twin.learn(material, schedule=schedule, reporter=reporter, **how)

        self._usable(self.model, rows)  # scaled once for all
        how = {} if goes_on is None else {"goes_on": goes_on}
        found = [learn(0, reporter, **how)]
        if not (found[0].interrupted or self._is_given_up):
            # bars of several threads are several
            found += Parallel(require="sharedmem")(
                delayed(learn)(number, Reporter(reporter.verbose))
                for number in range(1, len(self.model.networks))
            )
        self._is_interrupted |= any(trainer.interrupted for trainer in found)
        for network in self.model.networks:
            network.eval()
        return found

    def _train_on(self, rows: Observations, reporter: Reporter) -> None:
        """Train on; where that diverges, a network stays as it was proved."""
        share = _FURTHER[self.of_series]
        n_epochs = math.ceil(share * self.schedule.n_epochs)
        networks = self.model.networks
        proved = [copy.deepcopy(network.state_dict()) for network in networks]
        schedule = Schedule(n_epochs, rate=_FURTHER_RATE)
        trainers = self._learn_each(rows, schedule, reporter)
        for network, weights, trainer in zip(networks, proved, trainers, strict=False):
            if trainer.n_restored:
                network.load_state_dict(weights)
                trainer.best_epoch = 0
                reporter.say(
                    "Training on diverged: the network stays as it was proved."
                )
        self.note(trainers)

    def _goes_on(self, epoch: int) -> bool:
        """Return whether the first network has prospects, after a third."""
        tried = math.ceil(_TRIED * self.schedule.n_epochs)
        if self.is_guarded and epoch == tried:
            alone = replace(self.model, others=())
            evidence = self._evidence(0, alone)
            self._is_given_up = not has_prospects(evidence, self.model.sizes[0])
        return not self._is_given_up

    def _evidence(
        self, number: int, model: HybridModel, restarts: bool = False
    ) -> Evidence:
        """Return what networks do on a fold, beside a model of before it."""
        if number not in self._validations:
            self._validations[number] = self._validation(number)
        judged = replace(self._validations[number], model=model)
        return judged.evidence(restarts)

    def _validation(self, number: int, in_gaps: bool = False) -> Validation:
        """Forecast a fold, up to the next one, by a model of the rows before it."""
        rows, cuts = self.rows, self.cuts
        cut = cuts[number]
        # a fifth of many series hardly moves what all share
        structural = self.model.structural
        if not self.of_series:
            if number not in self._before:
                every = self._every(rows)
                # each series has a row there
                begin = every.at_or_before(np.arange(len(cut)), rows.ticks[cut])
                self._before[number] = fit_model(every.until(begin), known=self.known)
            structural = self._before[number]
        if number + 1 < len(cuts):
            # series without rows before the next fold are left out; of others the
            # cut stays as far from the first row
            first, end = rows.bounds[:-1], cuts[number + 1]
            n_before = (cut - first)[end > first]
            rows = rows.until(end)
            cut = rows.bounds[:-1] + n_before
        return Validation.of(
            rows,
            every=self._every(rows),
            cut=cut,
            structural=structural,
            model=self.model,
            in_gaps=in_gaps,
        )

    def material(self, rows: Observations) -> Material:
        """Return batches of windows that end at any of these rows."""
        settings, network, validation = self.settings, self.network, None
        origins, usable = self._usable(self.model, rows)
        if settings.early_stopping:
            rng = np.random.default_rng(self.predict_seed)
            of_series = self.of_series
            cut = held_out_rows(
                rows.bounds, share=_VALIDATED, of_series=of_series, rng=rng
            )
            # whose next row, the first that is forecast, is held out
            ends = usable[usable + 1 >= cut[origins.series[usable]]]
            before = rows.until(cut)
            spared_origins, spared = self._usable(self.model, before)
            if len(spared) and len(ends):
                held_out = np.sort(rng.permutation(ends)[:64])
                validation = self._batch(
                    origins, ends=held_out, ahead=network.reach, rng=rng
                )
                rows, origins, usable = before, spared_origins, spared
        n_rows, reach = len(rows.ticks), network.reach
        network.count_rows(n_rows)
        n_batches, chances = self.n_batches(n_rows), None
        if network.decoder is not None and self.of_series:
            # each pair of an origin and a later row is as likely
            n_after = np.maximum(origins.n_after(usable, reach), 1)
            chances = n_after / n_after.sum()

        def draw(epoch: int) -> Iterator[HybridBatch]:
            # what numpy draws follows torch's generator, the one of a training
            seed = torch.randint(2**31 - 1, (1,), generator=self.generator)
            rng = np.random.default_rng(int(seed))
            for _ in range(n_batches):
                ends = rng.choice(usable, settings.batch_size, p=chances)
                ahead = reach
                if chances is None:
                    ahead *= _SHORTEST + (1 - _SHORTEST) * rng.random()
                batch = self._batch(origins, ends=ends, ahead=ahead, rng=rng)
                if network.decoder is None:  # of many channels
                    batch = batch._replace(dropout=int(rng.integers(2**31 - 1)))
                yield batch

        return Material(draw=draw, n_batches=n_batches, validation=validation)

    def _batch(
        self,
        origins: Origins,
        ends: Numbers,
        ahead: float,
        rng: np.random.Generator,
    ) -> HybridBatch:
        """Return windows with what comes up to so long after them."""
        n_rows, queries = self.model.window_length, origins.after(ends, ahead)
        n_queries = len(queries.window)
        if n_queries > _ANSWERS:
            kept = rng.choice(n_queries, _ANSWERS, replace=False)
            queries = queries.part(np.sort(kept))
        hidden = None
        if self.settings.thinning:
            # a share of each window's own: squares of uniform numbers are mostly small
            share = self.settings.thinning * rng.random((len(ends), 1)) ** 2
            hidden = rng.random((len(ends), n_rows)) < share
            # the origin's own row, from which leads count, is seen
            hidden[:, 0] = False
        return batch_of(
            origins.seen(ends, n_rows),
            queries=queries,
            path=control_path(
                origins.known,
                series=origins.series[ends],
                start=origins.times[ends],
                length=ahead,
                network=self.network,
            ),
            network=self.network,
            hidden=hidden,
            target=origins.values[queries.row, queries.channel],
        )

    def _usable(
        self, model: HybridModel, rows: Observations
    ) -> tuple[Origins, Numbers]:
        """Return rows in the model's units, and where windows may end."""
        if self._scaled is None or self._scaled[0] is not rows:
            # of the rows that a network is drawn for, a training asks at once again
            every, seen = model.read(self._every(rows), rows)
            first = seen.ticks[seen.bounds[:-1]]
            known = model.forms.known(every, since=first, units=model.units)
            self._scaled = rows, Origins(seen, model.units, known=known)
        origins = self._scaled[1]
        fewest = min(_FEWEST_SEEN, model.window_length)
        return origins, origins.usable(fewest)

    def _every(self, rows: Observations) -> Observations:
        """Return all rows of the series that ``rows`` are of, also those without y."""
        every, keys = self.every, {*rows.keys}
        is_asked = np.array([key in keys for key in every.keys])
        return every.where(is_asked[every.series])
