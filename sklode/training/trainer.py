"""Maximise the evidence lower bound: epochs, steps, clipping, early stopping."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from sklode.data.errors import SolverError
from sklode.nn import clip_gradient_norm, elbo
from sklode.nn.autoencoder import Autoencoder, TrainingBatch
from sklode.nn.encoders import advice_on
from sklode.training.parameters import TrainingSettings
from sklode.training.report import Reporter

HISTORY_COLUMNS = tuple(
    "epoch loss log_likelihood kl kl_weight grad_norm clipped_fraction validation_loss "
    "skipped_steps restored_epoch lr seconds".split()
)
"""Of the history, a row per epoch; see the forecasters' ``history_``."""

# epochs without improvement, after which early stopping stops
_PATIENCE = 50
_IMPROVEMENT = 1e-4  # of the validation loss

_WARM_UP_KL = 0.02
"""Share of kl_weight while windows grow: few values cannot pay for z0."""

_MOST_SKIPPED = 10  # steps in a row that are not finite
_CONSTANT = 0.5 * (1 + math.log(2 * math.pi))
"""Loss per normalised value, of a constant."""

_RISE = 0.5  # a divergence raises the loss per value by more than this
_MOST_RESTORED = 6  # times, after which training is given up
_JUDGED_STEPS = 20  # epochs of fewer are judged together

Record: TypeAlias = dict[str, float]
"""What the history tells of an epoch."""

Draw: TypeAlias = Callable[[int], Iterable[TrainingBatch]]
"""Batches of an epoch, from 1 on."""


class Material(NamedTuple):
    """What a training draws its batches from."""

    draw: Draw
    n_batches: int  # of an epoch
    validation: TrainingBatch | None
    warm_up_epochs: int = 0


class Schedule(NamedTuple):
    """How long a training takes, and how large its steps are."""

    n_epochs: int = 0
    rate: float = 1.0  # the peak, as a share of ``lr``


class Step(NamedTuple):
    """What a step finds; the history has means over those of an epoch."""

    loss: float
    log_likelihood: float
    kl: float
    grad_norm: float  # before clipping
    clipped_fraction: float  # 1 where it was clipped


class _Kept(NamedTuple):
    """Weights, the epoch that left them (0: before training), and their loss."""

    loss: float
    epoch: int
    weights: Tensor  # all, as one vector


@dataclass(eq=False)
class Trainer:
    """Fit a network in place by stochastic gradient ascent on the ELBO, by AdamW.

    The loss is the negative ELBO (paper, eq. loss) per observed value. The rate makes
    one cycle (Smith and Topin 2019). A step whose loss or gradient is not finite is
    skipped; a training that diverges goes back to its best weights, at half the rate.
    """

    network: Autoencoder
    settings: TrainingSettings
    generator: torch.Generator
    schedule: Schedule
    material: Material
    # whether another is worth it
    goes_on: Callable[[int], bool] = lambda epoch: True

    def __post_init__(self) -> None:
        self.records: list[Record] = []  # of the history
        # whose weights the network has; 0: before training
        self.best_epoch = 0
        self.interrupted = False
        self._vector = self._as_one_vector()
        lr = self.schedule.rate * self.settings.lr
        self._optimizer = torch.optim.AdamW(
            [self._vector], lr=lr, weight_decay=0.0, fused=True
        )
        self._group = self._optimizer.param_groups[0]
        # Matrices decay, biases and scales do not. The optimiser sees one vector, so
        # that each weight's share is kept here and taken off in `_step`, apart from
        # the gradient (Loshchilov and Hutter 2019).
        is_matrix = [torch.full_like(p, p.ndim > 1) for p in self._trained]
        decays = torch.cat([part.flatten() for part in is_matrix])
        self._decay = self.settings.weight_decay * decays
        n_steps = max(self.schedule.n_epochs * self.material.n_batches, 1)
        self._cycle = torch.optim.lr_scheduler.OneCycleLR(
            self._optimizer, max_lr=lr, total_steps=n_steps
        )
        self._n_judged = math.ceil(_JUDGED_STEPS / self.material.n_batches)
        self._losses: list[float] = []  # of epochs that are judged together
        # what training and these epochs began with, and what the last one left
        self._first = self._begun = self._ended = self._keep()
        self._best: _Kept | None = None  # of those judged
        self._validated: _Kept | None = None  # the best by validation
        self._waited = 0  # epochs since its loss improved
        self._skipped = 0  # steps in a row that were not finite
        self.n_restored = 0
        self._given_up = False

    def _as_one_vector(self) -> torch.nn.Parameter:
        """Make weights and gradients views of one vector each, for speed."""
        # Backward adds to a gradient that is there, in place: into the vector. Steps,
        # clipping and copies of all weights are one operation each.
        parameters = self.network.parameters()
        self._trained = [p for p in parameters if p.requires_grad]
        weights = parameters_to_vector(self._trained).detach()
        vector = torch.nn.Parameter(weights)
        vector_to_parameters(vector.data, self._trained)
        vector.grad = torch.zeros_like(vector)
        parts = vector.grad.split([p.numel() for p in self._trained])
        for parameter, grad in zip(self._trained, parts, strict=True):
            parameter.grad = grad.view_as(parameter)
        return vector

    def fit(self, reporter: Reporter) -> None:
        """Train, or until Ctrl-C; leave the best weights in the network."""
        n_epochs = self.schedule.n_epochs
        try:
            # the bar is closed before a warning is written
            with closing(reporter):
                reporter.begin(n_epochs)
                for epoch in range(1, n_epochs + 1):
                    reporter.epoch_end(self.run_epoch(epoch))
                    is_over = self._given_up or self._waited >= _PATIENCE
                    is_last = is_over or epoch == n_epochs
                    if is_last or not self.goes_on(epoch):
                        break
        except KeyboardInterrupt:
            if not self.records:  # nothing to keep
                raise
            self.interrupted = True
            self._load(self._ended)
            _warn(
                f"training was interrupted after {len(self.records)} of "
                f"{n_epochs} epochs; the best weights of these are kept."
            )
        if self.records:
            self._end()
        # memory of their own: a copy of a view would hold the whole vector
        for parameter in self._trained:
            parameter.data, parameter.grad = parameter.data.clone(), None

    def run_epoch(self, epoch: int) -> Record:
        """Take a step on every batch, judge them; return the history's record."""
        batches, validation = self.material.draw(epoch), self.material.validation
        started = time.perf_counter()
        is_warm_up = epoch <= self.material.warm_up_epochs
        kl_weight = self.settings.kl_weight * (_WARM_UP_KL if is_warm_up else 1.0)
        if not self._losses:
            self._begun = self._ended
        self.network.train()
        lr = float(self._group["lr"])  # or a numpy number
        steps = []
        for batch in batches:
            self._last = batch
            steps.append(self._step(batch, kl_weight))
            self._skipped = self._skipped + 1 if steps[-1] is None else 0
            if self._skipped >= _MOST_SKIPPED:
                break
        taken = [step for step in steps if step is not None]
        if taken:  # else the weights are those of before
            self.best_epoch = epoch
        nothing = Step._make([math.nan] * len(Step._fields))
        mean = Step._make(np.mean(taken or [nothing], axis=0).tolist())
        record = {
            **mean._asdict(),
            "epoch": epoch,
            "kl_weight": kl_weight,
            "skipped_steps": len(steps) - len(taken),
            "lr": lr,
            "seconds": time.perf_counter() - started,
            # by the likelihood alone: the KL term's weight changes as epochs go
            "restored_epoch": self._restored_epoch(epoch, -mean.log_likelihood),
            "validation_loss": math.nan,
        }
        if validation is not None:
            record["validation_loss"] = _loss_on(validation, self.network.eval())
            if not is_warm_up:  # whose objective is another
                self._validate(record["validation_loss"], bool(taken))
        self.records.append({name: record[name] for name in HISTORY_COLUMNS})
        self._ended = self._keep()
        return self.records[-1]

    def _step(self, batch: TrainingBatch, kl_weight: float) -> Step | None:
        """Take a step; return None if it is not finite."""
        # gradients are views of the vector's, which thus stays what it is
        self._optimizer.zero_grad(set_to_none=False)
        shape = len(batch.times), self.network.latent_size
        # the process' default dtype may be another than the network's
        dtype = batch.values.dtype
        noise = torch.randn(shape, generator=self.generator, dtype=dtype)
        try:
            bound = self.network(batch, noise.to(batch.values))
            n_observed = bound.n_observed.sum().clamp(min=1)
            likelihood = bound.log_likelihood.sum() / n_observed
            kl = bound.kl.sum() / n_observed
            loss = -elbo(likelihood, kl, kl_weight)
            loss.backward()
        # the latter from an adjoint equation
        except (SolverError, AssertionError):
            return None
        threshold = self.settings.clip_norm
        # all gradients are one vector: its norm is that of all together
        norm = clip_gradient_norm([self._vector], threshold)
        if not (math.isfinite(norm) and torch.isfinite(loss)):
            return None
        if self.settings.weight_decay:
            self._vector.detach().mul_(1 - self._group["lr"] * self._decay)
        self._optimizer.step()
        self._cycle.step()
        is_clipped = threshold is not None and norm >= threshold
        return Step(
            loss=loss.item(),
            log_likelihood=likelihood.item(),
            kl=kl.item(),
            grad_norm=norm,
            clipped_fraction=float(is_clipped),
        )

    def _restored_epoch(self, epoch: int, loss: float) -> int:
        """Go back where training diverged; return the epoch begun there, or 0."""
        if not math.isnan(loss):
            self._losses.append(loss)
        is_finite = self._skipped < _MOST_SKIPPED
        if is_finite and len(self._losses) < self._n_judged:
            return 0
        # the loss of steps tells most of the weights that they began with
        begun = self._begun._replace(loss=fmean(self._losses or [math.inf]))
        self._losses, best = [], self._best or self._begun
        # windows that grow, and data that are hard, raise the loss under any weights
        is_above = best.loss < _CONSTANT and _is_worse(begun.loss, best.loss)
        # a batch that is hard is so under both weights
        is_worse = not is_finite or (
            is_above and _is_worse(self._last_loss(), self._last_loss(best))
        )
        if not is_worse:
            # while windows grow, losses of ever harder tasks cannot be compared
            if begun.loss < best.loss or epoch <= self.material.warm_up_epochs + 1:
                self._best = begun
            return 0
        if self.n_restored == _MOST_RESTORED:
            self._given_up = True
            return 0
        self._load(best)
        self.n_restored += 1
        self._skipped = 0
        # Adam's means are those of gradients on the way that went wrong
        self._optimizer.state.clear()
        # the cycle's rates are worked out from these, at every step anew
        for name in ("lr", "initial_lr", "max_lr", "min_lr"):
            self._group[name] *= 0.5
        return best.epoch + 1

    def _last_loss(self, kept: _Kept | None = None) -> float:
        """Return the loss on the last batch, of these weights or of some that are kept.

        The former stay in the network.
        """
        present = self._keep()
        if kept is not None:
            self._load(kept)
        loss = _loss_on(self._last, self.network.train())
        self._load(present)
        return loss

    def _validate(self, loss: float, is_trained: bool) -> None:
        """Keep weights that validate best; count epochs without better."""
        least = math.inf if self._validated is None else self._validated.loss
        is_better = loss < least - _IMPROVEMENT
        self._waited = 0 if is_better else self._waited + 1
        # steps that were all skipped: no good weights
        if loss < least and is_trained:
            self._validated = self._keep()._replace(loss=loss)

    def _keep(self) -> _Kept:
        return _Kept(
            loss=math.inf,
            epoch=self.best_epoch,
            weights=self._vector.detach().clone(),
        )

    def _load(self, kept: _Kept) -> None:
        self._vector.data.copy_(kept.weights)
        self.best_epoch = kept.epoch

    def _end(self) -> None:
        """Load the best or the last weights; warn if training diverged."""
        earlier = [self._first]
        if self._validated is not None:
            self._load(self._validated)
        # which may have learned a batch by heart
        elif self._best is not None:
            earlier.insert(0, self._best)
        now = self._last_loss()
        losses = [self._last_loss(kept) for kept in earlier]
        before = min(losses)
        best = earlier[losses.index(before)]
        # of fewer epochs a loss is chance
        is_judged = len(self.records) >= self._n_judged
        is_worse = is_judged and _is_worse(now, before)
        diverged = is_worse or not math.isfinite(now)
        if diverged or (self._given_up and self._validated is None):
            self._load(best)
        diverged |= self._given_up or not self.best_epoch
        if diverged or math.isnan(self.records[-1]["loss"]):
            lr, clip_norm = self.settings.lr, self.settings.clip_norm
            kept = f"of epoch {self.best_epoch}" if self.best_epoch else "from before"
            _warn(
                f"training has diverged: on its last batch the loss per value is "
                f"{now:.3g}, and {before:.3g} with the weights of epoch "
                f"{best.epoch}; it went back {self.n_restored} times. The weights "
                f"{kept} are kept. Lower lr (lr={lr:g}), or set clip_norm lower, for "
                f"example to 1.0 (clip_norm={clip_norm}), or use a smaller step_size."
                f"{advice_on(self.network)} model='hybrid' keeps what does not "
                "prove itself out of the forecasts."
            )


def _warn(text: str) -> None:
    warnings.warn(text, ConvergenceWarning, stacklevel=3)


def _is_worse(loss: float, than: float) -> bool:
    """Return whether a divergence, or NaN, lies between the losses."""
    # every comparison with NaN is false
    return not loss <= max(_CONSTANT, than + _RISE)


@torch.no_grad()
def _loss_on(batch: TrainingBatch, network: Autoencoder) -> float:
    """Return minus log-likelihood per scored value at the mean z0, or inf."""
    try:
        bound = network(batch)
    except SolverError:
        return math.inf
    n_observed = max(int(bound.n_observed.sum()), 1)
    loss = -float(bound.log_likelihood.sum()) / n_observed
    is_finite = math.isfinite(loss) and bool(torch.isfinite(bound.kl).all())
    return loss if is_finite else math.inf
