"""Maximise the evidence lower bound: epochs, steps, clipping, early stopping.

All that later epochs depend on stands in `TrainState`, which is copied whole: a copy is
a checkpoint from which another trainer goes on, bit for bit.
"""

from __future__ import annotations

import copy
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from sklode.data.errors import SolverError
from sklode.nn import Batch, elbo
from sklode.training.descent import Descent
from sklode.training.parallel import ALONE, Processes
from sklode.training.recovery import Recovery
from sklode.training.report import Reporter

__all__ = ["HISTORY_COLUMNS", "TrainState", "Trainer"]

HISTORY_COLUMNS = (
    "epoch",
    "loss",
    "log_likelihood",
    "kl",
    "kl_weight",
    "grad_norm",
    "clipped_fraction",
    "validation_loss",
    "skipped_steps",
    "restored_epoch",
    "lr",
    "seconds",
)
"""Of the history, a row per epoch; the losses are per observed value.

``restored_epoch`` is 0, but after an epoch that diverged: training then goes on from
where that earlier epoch began, at half the rate, see `Recovery`.
"""

_MEANS = ("loss", "log_likelihood", "kl", "grad_norm", "clipped_fraction")
"""Of them those that are means over an epoch's steps."""

_PATIENCE_WITH_NON_FINITE = 10
"""Consecutive skipped steps after which training stops."""

_AUTO_CLIP_EPOCHS = 3
"""Epochs whose gradient norms set the threshold of clip_norm="auto"."""

_IMPROVEMENT = 1e-4
"""By so much a validation loss has to fall for early stopping to go on."""

_WARM_UP_KL = 0.02
"""Share of kl_weight while windows grow, in the warm-up epochs.

A short window has few values to pay for what z0 must say of it: under the full weight
z0 says too little, and what it leaves out is taken for noise.
"""


Draw: TypeAlias = Callable[[int, torch.Generator], Iterable[Batch]]
"""Gives the batches of an epoch, which counts from 1."""


@dataclass
class TrainState:
    """What a training is between two epochs: plain numbers and tensors."""

    recovery: Recovery
    rows: list[dict[str, float]] = field(default_factory=list)
    best_epoch: int = 0  # 0: before training
    best: dict[str, Tensor] = field(default_factory=dict)
    # an epoch and weights that are better still, if the loss under them is finite
    candidate: tuple[int, dict[str, Tensor]] | None = None
    best_score: float = math.inf  # the least validation loss
    waited: int = 0  # epochs since it last improved
    norms: list[float] = field(default_factory=list)  # for clip_norm="auto"
    skipped: int = 0  # steps in a row that were not finite
    last_batch: Batch | None = None
    # set in what another training goes on from: states of the `Descent` and of the
    # random numbers, and what its plan had settled
    descent: dict[str, Any] = field(default_factory=dict)
    generator: Any = None
    terms: Any = None


class Trainer:
    """Fit a `LatentODE` in place by stochastic gradient ascent on the ELBO.

    The loss is the negative ELBO per observed value,
    ``-(log_likelihood - kl_weight * kl)``, all three divided by the number of observed
    entries: the paper's eq. loss, and of the same size for any window.

    A step whose loss or gradient is not finite is skipped. An epoch that diverges, or
    that ends in ten skipped steps, is undone, see `Recovery`.

    In the warm-up the KL weight is smaller, and early stopping does not look at it. The
    peak rate is a share (``rate``) of ``lr``. Ctrl-C after the first epoch ends the
    training with the best weights and a warning, if it ``is_interruptible``. If it
    ``is_resumable``, ``stopped_at`` is the state at the end of the last whole epoch,
    from which a training goes on; None where it is at its end. A step is that of the
    whole batch, however many processes share it.
    """

    def __init__(
        self,
        network: Any,
        settings: Any,
        n_epochs: int,
        n_batches: int,
        warm_up_epochs: int = 0,
        rate: float = 1.0,
        is_resumable: bool = False,
        is_interruptible: bool = True,
        processes: Processes = ALONE,
    ) -> None:
        self.network: Any = network
        self.settings = settings
        self.n_epochs = n_epochs
        self.n_batches = n_batches
        self.warm_up_epochs = warm_up_epochs
        self.rate = rate
        self.is_resumable = is_resumable
        self.is_interruptible = is_interruptible
        self.processes = processes
        self.state = TrainState(Recovery(n_batches))
        self.stopped_at: TrainState | None = None

    def fit(
        self,
        draw: Draw,
        generator: torch.Generator,
        validation: Sequence[Batch] = (),
        reporter: Reporter | None = None,
        start: TrainState | None = None,
    ) -> None:
        """Train, and leave the best weights in the network.

        Without validation the last finite weights are the best. With a start, go on
        from there, as another trainer with the same settings would have.
        """
        decay, lr = self.settings.weight_decay, self.settings.lr * self.rate
        descent = Descent(self.network, lr, decay, self.n_epochs * self.n_batches)
        with closing(descent) as self._descent:
            self.state.best = self._weights()
            if start is not None:
                self.state, self.stopped_at = copy.deepcopy(start), start
                descent.load(start.descent)
                generator.set_state(start.generator)
            is_over = False
            try:
                with closing(reporter or Reporter()) as told:  # its bar, before words
                    is_over = self._take_epochs(draw, generator, validation, told)
            except KeyboardInterrupt:
                if not (self.is_interruptible and self.state.rows):  # nothing to keep
                    raise
                remedy = "Fit again with warm_start=True to go on."
                if self.is_resumable:
                    remedy = "Fit again on the same data to go on from there."
                epoch = min(len(self.state.rows) + 1, self.n_epochs)
                _warn(
                    f"training was interrupted in epoch {epoch} of {self.n_epochs}; "
                    f"the best weights of the epochs before are kept. {remedy}"
                )
            if is_over or len(self.state.rows) >= self.n_epochs:
                self.stopped_at = None
            self.state.best_epoch = self.load_best(self.network, self.processes)
            if self.state.rows:
                self._judge_the_end(bool(validation))

    def _take_epochs(
        self,
        draw: Draw,
        generator: torch.Generator,
        validation: Sequence[Batch],
        reporter: Reporter,
    ) -> bool:
        """Take the epochs ahead; return whether they ended the training early."""
        state = self.state
        patience = self.settings.n_iter_no_change if validation else math.inf
        for epoch in range(len(state.rows) + 1, self.n_epochs + 1):
            if state.recovery.given_up or state.waited >= patience:
                break  # before an epoch: so it also ends one that goes on
            state.recovery.epoch_begins(epoch, self._descent)
            row = self.run_epoch(epoch, draw(epoch, generator), generator)
            finite = state.skipped < _PATIENCE_WITH_NON_FINITE
            row["restored_epoch"] = state.recovery.epoch_ends(
                -row["log_likelihood"], finite, self._descent, self._last_loss
            )
            if row["restored_epoch"]:
                state.candidate, state.skipped = None, 0
            row["validation_loss"] = self._validation_loss(validation)
            row = {name: row[name] for name in HISTORY_COLUMNS}
            state.rows.append(row)
            self._judge(row, bool(validation))
            if self.is_resumable:
                self.stopped_at = replace(
                    copy.deepcopy(state),
                    descent=self._descent.state(),
                    generator=generator.get_state(),
                )
            stop = False
            with self.processes.together():
                stop = reporter.epoch_end(row)
            if any(self.processes.everyones(stop)):
                break
        return state.recovery.given_up or state.waited >= patience

    def run_epoch(
        self, epoch: int, batches: Iterable[Batch], generator: torch.Generator
    ) -> dict[str, float]:
        """Take a step on every batch and return the history's row."""
        started = time.perf_counter()
        state = self.state
        kl_weight = self.settings.kl_weight
        if epoch <= self.warm_up_epochs:
            kl_weight *= _WARM_UP_KL
        taken, skipped = [], 0
        self.network.train()
        lr = self._descent.rate
        for batch in batches:
            step = self._step(batch, kl_weight, generator, epoch)
            if step is not None:
                taken.append(step)
                state.skipped = 0
                continue
            skipped += 1
            state.skipped += 1
            if state.skipped >= _PATIENCE_WITH_NON_FINITE:
                break
        means = np.mean(taken or [[math.nan] * len(_MEANS)], axis=0).tolist()
        return {
            **dict(zip(_MEANS, means, strict=True)),
            "epoch": epoch,
            "kl_weight": kl_weight,
            "skipped_steps": skipped,
            "lr": lr,
            "seconds": time.perf_counter() - started,
        }

    def _step(
        self, batch: Batch, kl_weight: float, generator: torch.Generator, epoch: int
    ) -> list[float] | None:
        """Take one step; return what is told of it, see `_MEANS`.

        None where the loss or its gradient is not finite.
        """
        self.state.last_batch = batch
        self._descent.zero()
        parts, failure = [0.0, 0.0, 0.0], None
        try:
            parts = self._differentiate(batch, kl_weight, generator)
        except BaseException as error:  # every process has to know of it
            failure = error
        parts = self.processes.add(parts, self._descent.gradient, failure)
        if not math.isfinite(parts[0]):
            return None
        threshold = self.settings.clip_norm
        if threshold == "auto":
            norms = self.state.norms
            threshold = statistics.median(norms) if norms else None
        norm = self._descent.clip(threshold)
        if not math.isfinite(norm):
            return None
        self._confirm()
        if epoch <= _AUTO_CLIP_EPOCHS:
            self.state.norms.append(norm)
        self._descent.step()
        return [*parts, norm, float(threshold is not None and norm >= threshold)]

    def _differentiate(
        self, batch: Batch, kl_weight: float, generator: torch.Generator
    ) -> list[float]:
        """Take this process' part of the gradient.

        Return its parts of loss, log-likelihood and KL per observed value of the whole
        batch; NaN where an equation cannot be solved.
        """
        unsolved: tuple[type[Exception], ...] = (SolverError,)
        if self.settings.adjoint:  # torchdiffeq solves backward, out of our sight
            unsolved = SolverError, AssertionError
        mine = self.processes.share(len(batch.times))
        shape = len(batch.times), self.network.latent_size
        # the process' default dtype may be another than the network's
        dtype = batch.values.dtype
        noise = torch.randn(shape, generator=generator, dtype=dtype)
        n_observed = max(batch.n_scored, 1)
        batch = batch.part(mine)
        if not len(batch.times):
            return [0.0, 0.0, 0.0]
        try:
            bound = self.network(batch, noise[mine].to(batch.values))
            likelihood = bound.log_likelihood.sum() / n_observed
            kl = bound.kl.sum() / n_observed
            loss = -elbo(likelihood, kl, kl_weight)
            if bool(torch.isfinite(loss)):
                loss.backward()
        except unsolved:
            return [math.nan, math.nan, math.nan]
        return [loss.item(), likelihood.item(), kl.item()]

    def _judge(self, row: dict[str, float], is_validated: bool) -> None:
        """Propose the weights if they may be the best; count epochs without better.

        The warm-up's validation losses are of another objective.
        """
        state, score = self.state, row["validation_loss"]
        if row["epoch"] <= self.warm_up_epochs + 1:
            state.best_score, state.waited = math.inf, -1
        improved = score < state.best_score - _IMPROVEMENT
        state.waited = 0 if improved else state.waited + 1
        weights_of = int(row["restored_epoch"] or row["epoch"] + 1) - 1
        # steps that were all skipped say that these are no good weights
        if score < state.best_score and not math.isnan(row["loss"]):
            state.best_score = score
            state.candidate = weights_of, self._weights()
            self._confirm()
        elif not is_validated and not state.skipped:
            state.candidate = weights_of, self._weights()

    def _confirm(self) -> None:
        """Keep the weights last proposed: a finite loss was seen under them."""
        state = self.state
        if state.candidate is not None:
            state.best_epoch, state.best = state.candidate
            state.candidate = None

    def _weights(self) -> dict[str, Tensor]:
        weights = self.network.state_dict()
        return {name: value.clone() for name, value in weights.items()}

    def load_best(self, network: Any, processes: Processes = ALONE) -> int:
        """Load the best weights so far into a network, and return their epoch.

        The last ones proposed count if the loss is finite under them: on the last batch
        of the processes that do this together.
        """
        state = self.state
        if state.candidate is not None:
            epoch, weights = state.candidate
            network.load_state_dict(weights)
            if math.isfinite(self._last_loss(network, processes)):
                return epoch
        network.load_state_dict(state.best)
        return state.best_epoch

    def _last_loss(
        self, network: Any = None, processes: Processes | None = None
    ) -> float:
        """Return the loss per value of the last batch, of this or another network."""
        network = self.network if network is None else network
        network.train()
        last = self.state.last_batch
        batches = [] if last is None else [last]
        return _loss_on(batches, network, processes or self.processes)

    def _validation_loss(self, batches: Sequence[Batch]) -> float:
        """Return the negative log-likelihood per scored value; NaN without batches."""
        if not batches:
            return math.nan
        self.network.eval()
        return _loss_on(batches, self.network, self.processes)

    def _judge_the_end(self, validated: bool) -> None:
        """Say that a training has ended in a bad place, and leave no useless weights.

        Weights that were good for the short windows of the first epochs, or for other
        batches, need not be so for the last one.
        """
        state, settings, row = self.state, self.settings, self.state.rows[-1]
        gone_back = state.recovery.end(self._descent, self._last_loss, validated)
        if gone_back is not None:
            state.best_epoch = gone_back[0] - 1
        if state.recovery.given_up and state.skipped >= _PATIENCE_WITH_NON_FINITE:
            what = (
                f"training stopped after {state.skipped} steps in a row whose loss or "
                "gradient was not finite"
            )
        elif state.recovery.given_up:
            what = (
                "training stopped after it had diverged again and again, down to a "
                f"rate of {self._descent.rate:.3g}"
            )
        elif math.isnan(row["loss"]):
            what = (
                "training ended without a finite loss and gradient in any of the "
                f"{row['skipped_steps']:g} steps of its last epoch"
            )
        elif gone_back is not None:
            number, loss, before = gone_back
            what = (
                "training has made the model worse: on its last batch the loss per "
                f"value is {loss:.3g}, and was {before:.3g} when epoch {number} began"
            )
        else:
            return
        kept = f"the last good weights, of epoch {state.best_epoch}, are kept"
        if not state.best_epoch:
            kept = "no epoch left good weights; those before training are kept"
        clipping = "lower clip_norm"
        if settings.clip_norm is None:
            clipping = "set clip_norm (for example 1.0)"
        _warn(
            f"{what}; {kept}. Lower lr (lr={settings.lr:g}), or {clipping} "
            f'(clip_norm={settings.clip_norm}), or use activation="tanh", a smaller '
            'step_size or, for method="dopri5", larger rtol and atol. guard=True '
            "forecasts the level alone where training does not prove itself."
        )


def _warn(text: str) -> None:
    warnings.warn(text, ConvergenceWarning, stacklevel=3)


@torch.no_grad()
def _loss_on(batches: Sequence[Batch], network: Any, processes: Processes) -> float:
    """Return the negative log-likelihood per scored value, at the mean z0.

    Infinite where it is not finite; 0 without values. Of several processes each has its
    share of every batch.
    """
    loss = 0.0
    with processes.together():
        try:
            for batch in batches:
                part = batch.part(processes.share(len(batch.times)))
                if len(part.times):
                    bound = network(part)
                    is_finite = bool(torch.isfinite(bound.kl).all())
                    loss -= float(bound.log_likelihood.sum()) if is_finite else math.inf
        except SolverError:
            loss = math.inf
    (total,) = processes.add([loss])
    total /= max(sum(batch.n_scored for batch in batches), 1)
    return total if math.isfinite(total) else math.inf
