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
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from sklode.data.errors import SolverError
from sklode.nn import Batch, elbo
from sklode.training.descent import Descent, flat_parameters
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


class Draw(Protocol):
    """A source of batches."""

    def __call__(self, epoch: int, generator: torch.Generator) -> Iterable[Batch]:
        """Return the batches of an epoch, which counts from 1."""


@dataclass
class TrainState:
    """What a training is between two epochs: plain numbers and tensors.

    Attributes
    ----------
    recovery : Recovery
        What the training may go back to.
    rows : list of dict
        The history, a row per epoch.
    best_epoch : int
        The epoch, from 1, whose weights are the best; 0: those before training.
    best : dict of str to Tensor
        These weights.
    candidate : tuple of int and dict, or None
        An epoch and weights that are better still, if the loss under them is finite.
    best_score : float
        The least validation loss.
    waited : int
        Epochs since it last improved.
    norms : list of float
        Of the first epochs' gradients, for ``clip_norm="auto"``.
    skipped : int
        Steps in a row that were not finite.
    last_batch : Batch or None
        That of the last step.
    descent, generator : dict, Tensor
        States of the `Descent` and of the random numbers; set in checkpoints.
    """

    recovery: Recovery
    rows: list[dict[str, float]] = field(default_factory=list)
    best_epoch: int = 0
    best: dict[str, Tensor] = field(default_factory=dict)
    candidate: tuple[int, dict[str, Tensor]] | None = None
    best_score: float = math.inf
    waited: int = 0
    norms: list[float] = field(default_factory=list)
    skipped: int = 0
    last_batch: Batch | None = None
    descent: dict[str, Any] = field(default_factory=dict)
    generator: Any = None


class Trainer:
    """Fit a `LatentODE` by stochastic gradient ascent on the ELBO.

    The loss is the negative ELBO per observed value,
    ``-(log_likelihood - kl_weight * kl)``, all three divided by the number of observed
    entries: the paper's eq. loss, and of the same size for any window. AdamW takes the
    steps, at a rate that makes one cycle (Smith and Topin 2019) over all of them.

    A step whose loss or gradient is not finite is skipped. An epoch that describes the
    values worse than a constant would, after one that did not, or that ends in ten
    skipped steps, has diverged: weights and moments are taken back to before, and the
    rate is halved for all steps ahead, see `Recovery`.

    Parameters
    ----------
    network : LatentODE
        Trained in place.
    settings : Settings
        Of which ``lr``, ``weight_decay`` (on matrices only), ``clip_norm``,
        ``kl_weight`` and ``n_iter_no_change`` are read.
    n_epochs, n_batches : int
        Passes, and steps in each.
    warm_up_epochs : int, default=0
        Epochs of a smaller KL weight, which early stopping does not count; the best
        weights are from later ones.
    rate : float, default=1.0
        The share of ``lr`` that is taken.
    is_resumable : bool, default=False
        Whether ``stopped_at`` is kept.
    is_interruptible : bool, default=True
        Whether Ctrl-C after the first epoch ends the training with the best weights
        and a warning; else it is passed on.
    processes : Processes, default=ALONE
        Those that share the training: a step is that of the whole batch.

    Attributes
    ----------
    state : TrainState
    stopped_at : TrainState or None
        The state at the end of the last whole epoch, for a training that goes on; None
        where it is at its end.
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

        Parameters
        ----------
        draw : callable
            Gives each epoch's batches, see `Draw`.
        generator : torch.Generator
            Of every random number drawn.
        validation : sequence of Batch, optional
            Held-out windows; without any the last finite weights are the best.
        reporter : Reporter, optional
            Told of each epoch; may stop the training.
        start : TrainState, optional
            Go on from there, as another trainer with the same settings would have.
        """
        decay, lr = self.settings.weight_decay, self.settings.lr * self.rate
        with flat_parameters(self.network, bool(decay)) as vectors:
            n_steps = self.n_epochs * self.n_batches
            self._descent = Descent(vectors, lr, decay, n_steps)
            self.state.best = self._weights()
            if start is not None:
                self._go_on(start, generator)
            is_over = False
            try:
                with closing(reporter or Reporter()) as told:  # its bar, before words
                    is_over = self._take_epochs(draw, generator, validation, told)
            except KeyboardInterrupt:
                if not (self.is_interruptible and self.state.rows):  # nothing to keep
                    raise
                self._warn_of_interruption()
            if is_over or len(self.state.rows) >= self.n_epochs:
                self.stopped_at = None
            self.state.best_epoch = self.load_best(self.network, self.processes)
            if self.state.rows:
                self._judge_the_end(bool(validation))

    def checkpoint(self, generator: torch.Generator) -> TrainState:
        """Return a copy of the state from which another trainer can go on."""
        state = copy.deepcopy(self.state)
        state.descent = self._descent.state()
        state.generator = generator.get_state()
        return state

    def _go_on(self, start: TrainState, generator: torch.Generator) -> None:
        """Become what another trainer was when it made a checkpoint."""
        self.stopped_at = start
        self.state = copy.deepcopy(start)
        self._descent.load(start.descent)
        generator.set_state(start.generator)

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
            row["restored_epoch"] = self._recover(row)
            row["validation_loss"] = self._validation_loss(validation)
            row = {name: row[name] for name in HISTORY_COLUMNS}
            state.rows.append(row)
            self._judge(row, bool(validation))
            if self.is_resumable:
                self.stopped_at = self.checkpoint(generator)
            stop = False
            with self.processes.together():
                stop = reporter.epoch_end(row)
            if self.processes.any(stop):
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
        sums = dict.fromkeys(
            ("loss", "log_likelihood", "kl", "grad_norm", "clipped_fraction"), 0.0
        )
        taken = skipped = 0
        self.network.train()
        lr = self._descent.rate
        for batch in batches:
            step = self._step(batch, kl_weight, generator, epoch)
            if step is None:
                skipped += 1
                state.skipped += 1
                if state.skipped >= _PATIENCE_WITH_NON_FINITE:
                    break
                continue
            state.skipped = 0
            taken += 1
            for name, value in step.items():
                sums[name] += value
        means = {
            name: total / taken if taken else math.nan for name, total in sums.items()
        }
        return {
            **means,
            "epoch": epoch,
            "kl_weight": kl_weight,
            "skipped_steps": skipped,
            "lr": lr,
            "seconds": time.perf_counter() - started,
        }

    def _step(
        self, batch: Batch, kl_weight: float, generator: torch.Generator, epoch: int
    ) -> dict[str, float] | None:
        """Take one step; None where the loss or its gradient is not finite."""
        self.state.last_batch = batch
        self._descent.zero()
        parts, failure = [0.0, 0.0, 0.0], None
        try:
            parts = self._differentiate(batch, kl_weight, generator)
        except BaseException as error:  # every process has to know of it
            failure = error
        loss, likelihood, kl = self.processes.add(self._descent.grads, parts, failure)
        if not math.isfinite(loss):
            return None
        threshold = self._threshold()
        norm = self._descent.clip(threshold)
        if not math.isfinite(norm):
            return None
        self._confirm()
        if epoch <= _AUTO_CLIP_EPOCHS:
            self.state.norms.append(norm)
        self._descent.step()
        return {
            "loss": loss,
            "log_likelihood": likelihood,
            "kl": kl,
            "grad_norm": norm,
            "clipped_fraction": float(threshold is not None and norm >= threshold),
        }

    def _differentiate(
        self, batch: Batch, kl_weight: float, generator: torch.Generator
    ) -> list[float]:
        """Take this process' part of the gradient.

        Returns
        -------
        list of float
            Its parts of loss, log-likelihood and KL per observed value of the whole
            batch; NaN where an equation cannot be solved.
        """
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
        except SolverError:
            return [math.nan, math.nan, math.nan]
        return [loss.item(), likelihood.item(), kl.item()]

    def _threshold(self) -> float | None:
        threshold, norms = self.settings.clip_norm, self.state.norms
        if threshold == "auto":
            return statistics.median(norms) if norms else None
        return None if threshold is None else float(threshold)

    # What becomes of an epoch ---------------------------------------------------------

    def _recover(self, row: dict[str, float]) -> int:
        """Go back if the epoch has diverged; return to which one's beginning, or 0."""
        state = self.state
        finite = state.skipped < _PATIENCE_WITH_NON_FINITE
        restored = state.recovery.epoch_ends(
            -row["log_likelihood"], finite, self._descent, self._last_loss
        )
        if restored:
            state.candidate, state.skipped = None, 0
        return restored

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
            if math.isfinite(self._loss_of(network, processes)):
                return epoch
        network.load_state_dict(state.best)
        return state.best_epoch

    def _last_loss(self) -> float:
        """Return the negative log-likelihood per value of the last batch, as of now."""
        return self._loss_of(self.network, self.processes)

    def _loss_of(self, network: Any, processes: Processes) -> float:
        network.train()
        last = self.state.last_batch
        return _loss_on([] if last is None else [last], network, processes)

    def _validation_loss(self, batches: Sequence[Batch]) -> float:
        """Return the negative log-likelihood per scored value; NaN without batches."""
        if not batches:
            return math.nan
        self.network.eval()
        return _loss_on(batches, self.network, self.processes)

    # What is said ---------------------------------------------------------------------

    def _warn_of_interruption(self) -> None:
        remedy = "Fit again with warm_start=True to go on."
        if self.is_resumable:
            remedy = "Fit again on the same data to go on from there."
        epoch = min(len(self.state.rows) + 1, self.n_epochs)
        warnings.warn(
            f"training was interrupted in epoch {epoch} of {self.n_epochs}; the best "
            f"weights of the epochs before are kept. {remedy}",
            ConvergenceWarning,
            stacklevel=2,
        )

    def _judge_the_end(self, validated: bool) -> None:
        """Say that a training has ended in a bad place, and leave no useless weights.

        Weights that were good for the short windows of the first epochs, or for other
        batches, need not be so for the last one.
        """
        state = self.state
        gone_back = state.recovery.end(self._descent, self._last_loss, validated)
        if gone_back is not None:
            state.best_epoch = gone_back[0] - 1
        kept = f"the last good weights, of epoch {state.best_epoch}, are kept"
        if not state.best_epoch:
            kept = "no epoch left good weights; those before training are kept"
        row = state.rows[-1]
        if state.recovery.given_up:
            self._warn(f"training stopped after {self._why_given_up()}; {kept}.")
        elif math.isnan(row["loss"]):
            self._warn(
                "training ended without a finite loss and gradient in any of the "
                f"{row['skipped_steps']:g} steps of its last epoch; {kept}."
            )
        elif gone_back is not None:
            number, loss, before = gone_back
            self._warn(
                "training has made the model worse: on its last batch the loss per "
                f"value is {loss:.3g}, and was {before:.3g} when epoch {number} began; "
                f"{kept}."
            )

    def _why_given_up(self) -> str:
        if self.state.skipped < _PATIENCE_WITH_NON_FINITE:
            rate = self._descent.rate
            return f"it had diverged again and again, down to a rate of {rate:.3g}"
        return (
            f"{_PATIENCE_WITH_NON_FINITE} steps in a row whose loss or gradient was "
            "not finite"
        )

    def _warn(self, what: str) -> None:
        settings = self.settings
        clipping = "lower clip_norm"
        if settings.clip_norm is None:
            clipping = "set clip_norm (for example 1.0)"
        warnings.warn(
            f"{what} Lower lr (lr={settings.lr:g}), or {clipping} "
            f'(clip_norm={settings.clip_norm}), or use activation="tanh", a smaller '
            'step_size or, for method="dopri5", larger rtol and atol. guard=True '
            "forecasts the level alone where training does not prove itself.",
            ConvergenceWarning,
            stacklevel=2,
        )


@torch.no_grad()
def _loss_on(batches: Sequence[Batch], network: Any, processes: Processes) -> float:
    """Return the negative log-likelihood per scored value, at the mean z0.

    Infinite where it is not finite; 0 without values. Of several processes each has its
    share of every batch.
    """
    loss = 0.0
    with processes.together():
        for batch in batches:
            part = batch.part(processes.share(len(batch.times)))
            if not len(part.times):
                continue
            try:
                bound = network(part)
            except SolverError:
                loss = math.inf
                break
            if not bool(torch.isfinite(bound.log_likelihood + bound.kl).all()):
                loss = math.inf
                break
            loss -= float(bound.log_likelihood.sum())
    (total,) = processes.add(numbers=[loss])
    return total / max(sum(batch.n_scored for batch in batches), 1)
