"""Maximise the evidence lower bound: batches, annealing, clipping, early stopping.

A training that diverges goes on from before it did (`recovery`); one that was stopped
may go on later as if it had not been (`resuming`).
"""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Protocol

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

from sklode.data.errors import SolverError
from sklode.nn.objectives import clip_gradient_norm, elbo
from sklode.training.flat import flat_parameters
from sklode.training.parallel import ALONE, Processes
from sklode.training.recovery import Recovery
from sklode.training.report import Reporter
from sklode.training.resuming import TrainingState, copied

__all__ = [
    "HISTORY_COLUMNS",
    "LR_SCHEDULES",
    "OPTIMIZERS",
    "Trainer",
    "validation_loss",
]

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
where that earlier epoch began, at half the rate, see `sklode.training.recovery`.
"""

OPTIMIZERS: dict[str, Any] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
}

LR_SCHEDULES = ("one-cycle", "constant")

_PATIENCE_WITH_NON_FINITE = 10
"""Consecutive skipped steps after which training stops."""

_AUTO_CLIP_EPOCHS = 3
"""Epochs whose gradient norms set the threshold of clip_norm="auto"."""


_GOES_ON = (
    "history",
    "best_epoch",
    "_best",
    "_candidate",
    "_best_score",
    "_waited",
    "_auto_norms",
    "_skipped_in_a_row",
    "_averages",
    "_n_averaged",
    "_last_batch",
)
"""A trainer's own attributes that the epochs to come depend on."""


class Draw(Protocol):
    """A source of batches."""

    def __call__(self, epoch: int, generator: torch.Generator) -> Iterable[Any]:
        """Return the batches of an epoch, which counts from 1."""


class Trainer:
    """Fit a `LatentODE` by stochastic gradient ascent on the ELBO.

    The loss is the negative ELBO per observed value,
    ``-(log_likelihood - kl_weight * kl)``, all three divided by the number of observed
    entries: the paper's eq. loss, and of the same size for any window.

    A step whose loss or gradient is not finite is skipped. An epoch that describes the
    values worse than a constant would, after one that did not, or that ends in ten
    skipped steps, has diverged: weights and moments are taken back to before, and the
    rate is halved for all steps ahead, see `Recovery`.

    Parameters
    ----------
    network : LatentODE
        Trained in place.
    max_epochs : int
        Passes over the batches.
    warm_up_epochs : int
        Epochs that early stopping does not count; best weights are from later ones.
    lr : float
        Peak of the one-cycle learning-rate schedule, or the constant rate.
    lr_share : float, default=1.0
        The share of ``lr`` that is taken.
    lr_schedule : {"one-cycle", "constant"}, default="one-cycle"
        "one-cycle": Smith and Topin's, over all ``max_epochs``; "constant": none, so
        that no step depends on ``max_epochs``.
    optimizer : {"adam", "adamw", "sgd"}
        Of torch.
    weight_decay : float
        Of the optimiser, on matrices; biases and scales are not decayed.
    averaging : float, default=0.0
        Decay per step of an exponential moving average of the weights, which is what
        is validated and kept (Polyak and Juditsky 1992). Over the first steps the mean
        is shorter, as of (1 + n) / (10 + n) after n. 0: the weights themselves.
    clip_norm : float, "auto" or None
        Threshold of norm gradient clipping; "auto": the median of the norms seen in the
        first epochs.
    kl_weight : float
        Weight of the KL term after its warm-up.
    kl_annealing_epochs : int
        Epochs over which that weight rises from 0.
    warm_up_kl : float, default=1.0
        The weight is multiplied by this during the warm-up epochs.
    n_iter_no_change : int or None
        Stop after this many epochs without an improvement of the validation loss by
        ``tol``; None: never.
    tol : float
        See ``n_iter_no_change``.
    is_resumable : bool, default=False
        Whether ``stopped_at`` is kept, which takes a copy of all that is trained after
        each epoch.
    is_interruptible : bool, default=True
        Whether Ctrl-C after the first epoch ends the training with the best weights
        and a warning; else it is passed on.
    processes : Processes, default=ALONE
        Those that share the training: each gets its share of every batch, with its
        place in ``n_elsewhere``. A step is that of the whole batch.

    Attributes
    ----------
    stopped_at : TrainingState or None
        What the training was between its last whole epoch and the next one, for a
        training that goes on; None where it is at its end. Early stopping and
        divergence end it, and the last epoch under "one-cycle".
    history : list of dict
        A row per epoch.
    best_epoch : int
        The epoch, from 1, whose weights the network has after training.
    """

    def __init__(
        self,
        network: Any,
        *,
        max_epochs: int,
        lr: float,
        lr_share: float = 1.0,
        warm_up_epochs: int = 0,
        optimizer: str = "adam",
        weight_decay: float = 0.0,
        averaging: float = 0.0,
        clip_norm: float | str | None = 1.0,
        kl_weight: float = 1.0,
        kl_annealing_epochs: int = 0,
        warm_up_kl: float = 1.0,
        n_iter_no_change: int | None = None,
        tol: float = 1e-4,
        lr_schedule: str = "one-cycle",
        is_resumable: bool = False,
        is_interruptible: bool = True,
        processes: Processes = ALONE,
    ) -> None:
        self.network: Any = network
        self.max_epochs = max_epochs
        self.lr = lr
        self.lr_share = lr_share
        self.warm_up_epochs = warm_up_epochs
        self.optimizer = optimizer
        self.weight_decay = weight_decay
        self.averaging = averaging
        self.clip_norm = clip_norm
        self.kl_weight = kl_weight
        self.kl_annealing_epochs = kl_annealing_epochs
        self.warm_up_kl = warm_up_kl
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.lr_schedule = lr_schedule
        self.is_resumable = is_resumable
        self.is_interruptible = is_interruptible
        self.processes = processes
        self.stopped_at: TrainingState | None = None
        self.history: list[dict[str, float]] = []
        self.best_epoch = 0
        self._auto_norms: list[float] = []
        self._skipped_in_a_row = 0
        self._best_score, self._waited = math.inf, 0
        self._best: dict[str, Tensor] = {}
        self._candidate: tuple[int, dict[str, Tensor]] | None = None
        self._last_batch: Any = None

    def fit(
        self,
        draw: Draw,
        n_batches: int,
        generator: torch.Generator,
        validation: Sequence[Any] = (),
        reporter: Reporter | None = None,
        state: TrainingState | None = None,
    ) -> Trainer:
        """Train, and leave the best weights in the network.

        Parameters
        ----------
        draw : callable
            Gives each epoch's batches, see `Draw`.
        n_batches : int
            Batches per epoch, for the learning-rate schedule.
        generator : torch.Generator
            Of every random number drawn.
        validation : sequence of batches, optional
            Held-out windows; without any the last finite weights are the best.
        reporter : Reporter, optional
            Told of each epoch; may stop the training.
        state : TrainingState, optional
            Go on from there, as another trainer with the same settings would have.

        Returns
        -------
        Trainer
        """
        with flat_parameters(self.network, bool(self.weight_decay)) as self._vectors:
            self._grads = [v.grad for v in self._vectors if v.grad is not None]
            self._prepare(n_batches)
            if state is not None:
                self._resume(state, generator)
            self._train(draw, generator, validation, reporter)
            self.best_epoch = self.load_best(self.network, self.processes)
            if self.history:
                self._judge_the_end(bool(validation))
        del self._recovery  # it knows the trainer: both would wait for the collector
        return self

    def _prepare(self, n_batches: int) -> None:
        """Be at the beginning of the first epoch."""
        parameters: list[Any] = self._vectors
        if self.weight_decay:
            parameters = [
                {"params": [v], "weight_decay": self.weight_decay * (v.ndim > 1)}
                for v in self._vectors
            ]
        rate = self.lr * self.lr_share
        self._optimizer = OPTIMIZERS[self.optimizer](
            parameters, lr=rate, weight_decay=0.0, fused=True
        )
        self._start_averages()
        self._schedule: Any = None
        if self.lr_schedule == "one-cycle":
            n_steps = max(self.max_epochs * n_batches, 1)
            self._schedule = torch.optim.lr_scheduler.OneCycleLR(
                self._optimizer, rate, total_steps=n_steps
            )
        self._recovery = Recovery(
            self._vectors, self._optimizer, self._last_loss, n_batches
        )
        self._best = self._weights()
        self._candidate = None

    def _train(
        self,
        draw: Draw,
        generator: torch.Generator,
        validation: Sequence[Any],
        reporter: Reporter | None,
    ) -> None:
        is_over = False
        reporter = reporter or Reporter()
        try:
            with closing(reporter):  # warnings are not to be written into the bar
                is_over = self._take_epochs(draw, generator, validation, reporter)
        except KeyboardInterrupt:
            if not (self.is_interruptible and self.history):  # nothing to keep yet
                raise
            self._warn_of_interruption()
        at_last = len(self.history) >= self.max_epochs
        if is_over or (at_last and self._schedule is not None):
            self.stopped_at = None

    def load_best(self, network: Any, processes: Processes = ALONE) -> int:
        """Load the best weights so far into a network, and return their epoch.

        The last ones proposed count if the loss is finite under them: on the last batch
        of the processes that do this together.
        """
        if self._candidate is not None:
            epoch, weights = self._candidate
            network.load_state_dict(weights)
            if math.isfinite(self._loss_of(network, processes)):
                return epoch
        network.load_state_dict(self._best)
        return self.best_epoch

    def _keep_state(self, generator: torch.Generator) -> None:
        """Keep what the training is now, at the end of an epoch."""
        if not self.is_resumable:
            return
        groups = self._optimizer.param_groups
        self.stopped_at = TrainingState(
            {name: copied(getattr(self, name)) for name in _GOES_ON},
            self._recovery.state(),
            [{k: v for k, v in group.items() if k != "params"} for group in groups],
            None if self._schedule is None else self._schedule.state_dict(),
            generator.get_state(),
        )

    def _resume(self, state: TrainingState, generator: torch.Generator) -> None:
        """Become what another trainer was when it kept its state."""
        self.stopped_at = state
        for name in _GOES_ON:
            setattr(self, name, copied(state.trainer[name]))
        self._recovery.resume(state.recovery)
        for group, settings in zip(
            self._optimizer.param_groups, state.groups, strict=True
        ):
            group.update(settings)
        if self._schedule is not None:
            self._schedule.load_state_dict(state.schedule)
        generator.set_state(state.generator)

    def _take_epochs(
        self,
        draw: Draw,
        generator: torch.Generator,
        validation: Sequence[Any],
        reporter: Reporter,
    ) -> bool:
        """Take the epochs ahead; return whether they ended the training early."""
        patience = self.n_iter_no_change if validation else None
        for epoch in range(len(self.history) + 1, self.max_epochs + 1):
            self._recovery.epoch_begins(epoch)
            row = self.train_epoch(epoch, draw(epoch, generator), generator)
            row["restored_epoch"] = self._recover(row)
            with self._averaged():
                row["validation_loss"] = validation_loss(
                    self.network, validation, self.processes
                )
            row = {name: row[name] for name in HISTORY_COLUMNS}
            self.history.append(row)
            self._judge(row, bool(validation))
            self._keep_state(generator)
            stop = self._tell(reporter, row)
            if self._recovery.given_up:
                return True
            if patience is not None and self._waited >= patience:
                return True
            if stop:
                return False
        return False

    def _tell(self, reporter: Reporter, row: dict[str, float]) -> bool:
        """Tell the reporter of an epoch; return whether to stop."""
        stop = False
        with self.processes.together():
            stop = reporter.epoch_end(row)
        return self.processes.any(stop)

    def _judge(self, row: dict[str, float], is_validated: bool) -> None:
        """Propose the weights if they may be the best; count epochs without better.

        The warm-up's validation losses are of another objective.
        """
        epoch, score = int(row["epoch"]), row["validation_loss"]
        if epoch <= self.warm_up_epochs + 1:
            self._best_score, self._waited = math.inf, -1
        improved = score < self._best_score - self.tol
        self._waited = 0 if improved else self._waited + 1
        weights_of = int(row["restored_epoch"] or epoch + 1) - 1
        # steps that were all skipped say that these are no good weights
        if score < self._best_score and not math.isnan(row["loss"]):
            self._best_score = score
            self._propose(weights_of)
            self._confirm()
        elif not is_validated and not self._skipped_in_a_row:
            self._propose(weights_of)

    def _recover(self, row: dict[str, float]) -> int:
        """Go back if the epoch has diverged; return to which one's beginning, or 0."""
        finite = self._skipped_in_a_row < _PATIENCE_WITH_NON_FINITE
        restored = self._recovery.epoch_ends(-row["log_likelihood"], finite)
        if restored:
            self._candidate, self._skipped_in_a_row = None, 0
            self._start_averages()
        return restored

    def _propose(self, epoch: int) -> None:
        """Take the weights for the best, subject to a finite loss under them."""
        with self._averaged():
            self._candidate = (epoch, self._weights())

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """Have the averaged weights in the network for a while."""
        if not self.averaging:
            yield
            return
        latest = [v.detach().clone() for v in self._vectors]
        self._set_weights(self._averages)
        try:
            yield
        finally:
            self._set_weights(latest)

    def _start_averages(self) -> None:
        self._averages = [v.detach().clone() for v in self._vectors]
        self._n_averaged = 0

    def _set_weights(self, values: Sequence[Tensor]) -> None:
        for vector, value in zip(self._vectors, values, strict=True):
            vector.detach().copy_(value)

    def _average(self) -> None:
        """Take the present weights into the averages."""
        if not self.averaging:
            return
        decay = min(self.averaging, (1 + self._n_averaged) / (10 + self._n_averaged))
        self._n_averaged += 1
        for average, vector in zip(self._averages, self._vectors, strict=True):
            average.lerp_(vector.detach(), 1 - decay)

    def _weights(self) -> dict[str, Tensor]:
        state = self.network.state_dict()
        return {name: value.clone() for name, value in state.items()}

    def _confirm(self) -> None:
        """Keep the weights last proposed: a finite loss was seen under them."""
        if self._candidate is not None:
            self.best_epoch, self._best = self._candidate
            self._candidate = None

    def _last_loss(self) -> float:
        """Negative log-likelihood of the last batch, under the present weights."""
        return self._loss_of(self.network, self.processes)

    def _loss_of(self, network: Any, processes: Processes) -> float:
        network.train()
        loss, n_observed = 0.0, 0
        try:
            if len(self._last_batch.times):
                with torch.no_grad():
                    bound = network(self._last_batch)
                finite = bool(torch.isfinite(bound.log_likelihood + bound.kl).all())
                n_observed = int(bound.n_observed.sum())
                loss = -float(bound.log_likelihood.sum()) if finite else math.inf
        except SolverError:
            loss = math.inf
        total, count = processes.add(numbers=[loss, n_observed])
        return total / max(count, 1)

    def train_epoch(
        self, epoch: int, batches: Iterable[Any], generator: torch.Generator
    ) -> dict[str, float]:
        """Take a step on every batch and return the history's row."""
        started = time.perf_counter()
        rise = (
            min(epoch / self.kl_annealing_epochs, 1.0)
            if self.kl_annealing_epochs
            else 1
        )
        kl_weight = self.kl_weight * rise
        if epoch <= self.warm_up_epochs:
            kl_weight *= self.warm_up_kl
        sums = dict.fromkeys(
            ("loss", "log_likelihood", "kl", "grad_norm", "clipped"), 0.0
        )
        taken = skipped = 0
        self.network.train()
        lr = self._optimizer.param_groups[0]["lr"]
        for batch in batches:
            step = self.train_step(batch, kl_weight, generator, epoch)
            if step is None:
                skipped += 1
                self._skipped_in_a_row += 1
                if self._skipped_in_a_row >= _PATIENCE_WITH_NON_FINITE:
                    break
                continue
            self._skipped_in_a_row = 0
            taken += 1
            for name, value in step.items():
                sums[name] += value
        mean = {
            name: value / taken if taken else float("nan")
            for name, value in sums.items()
        }
        return {
            "epoch": epoch,
            "loss": mean["loss"],
            "log_likelihood": mean["log_likelihood"],
            "kl": mean["kl"],
            "kl_weight": kl_weight,
            "grad_norm": mean["grad_norm"],
            "clipped_fraction": mean["clipped"],
            "skipped_steps": skipped,
            "lr": float(lr),
            "seconds": time.perf_counter() - started,
        }

    def train_step(
        self, batch: Any, kl_weight: float, generator: torch.Generator, epoch: int
    ) -> dict[str, float] | None:
        """Take one step; None where the loss or its gradient is not finite."""
        self._last_batch = batch
        for grad in self._grads:
            grad.zero_()  # in place: the parameters' gradients are views of it
        alone = self.processes.size == 1
        differentiate = self._differentiate if alone else self._differentiate_together
        parts = differentiate(batch, kl_weight, generator)
        if parts is None:
            return None
        threshold = self._threshold(epoch)
        norm = clip_gradient_norm(self._vectors, threshold)
        if not math.isfinite(norm):
            return None
        self._confirm()
        if epoch <= _AUTO_CLIP_EPOCHS:
            self._auto_norms.append(norm)
        self._optimizer.step()
        self._schedule_step()
        self._average()
        loss, likelihood, kl = parts
        return {
            "loss": loss,
            "log_likelihood": likelihood,
            "kl": kl,
            "grad_norm": norm,
            "clipped": float(threshold is not None and norm >= threshold),
        }

    def _differentiate(
        self, batch: Any, kl_weight: float, generator: torch.Generator
    ) -> tuple[float, float, float] | None:
        """Take the gradient; return loss, log-likelihood and KL per observed value.

        None where the loss is not finite.
        """
        try:
            bound = self.network(batch, self._noise(batch, generator))
            n_observed = bound.n_observed.sum().clamp(min=1)
            likelihood = bound.log_likelihood.sum() / n_observed
            kl = bound.kl.sum() / n_observed
            loss = -elbo(likelihood, kl, kl_weight)
            if not bool(torch.isfinite(loss)):
                return None
            loss.backward()
        except SolverError:
            return None
        return loss.item(), likelihood.item(), kl.item()

    def _differentiate_together(
        self, batch: Any, kl_weight: float, generator: torch.Generator
    ) -> tuple[float, float, float] | None:
        """Do the same for a batch of which this process has a share.

        How many values are observed in all is known once the shares are added up: till
        then the gradient is per entry, observed or not, so that it does not overflow.
        """
        before, after = batch.n_elsewhere
        n_windows = before + len(batch.times) + after
        n_entries = n_windows * batch.values.shape[1] * batch.values.shape[2]
        sums, failure = [0.0, 0.0, 0.0], None
        try:
            noise = self._noise(batch, generator)
            if len(batch.times):
                bound = self.network(batch, noise)
                likelihood, kl = bound.log_likelihood.sum(), bound.kl.sum()
                loss = -elbo(likelihood, kl, kl_weight)
                n_observed = float(bound.n_observed.sum())
                sums = [likelihood.item(), kl.item(), n_observed]
                if bool(torch.isfinite(loss)):
                    (loss / n_entries).backward()
        except SolverError:
            sums[0] = math.nan
        except BaseException as error:
            failure = error
        *totals, count = self.processes.add(self._grads, sums, failure)
        mean_likelihood, mean_kl = (total / max(count, 1) for total in totals)
        mean_loss = kl_weight * mean_kl - mean_likelihood
        if not math.isfinite(mean_loss):
            return None
        for grad in self._grads:
            grad.mul_(n_entries / max(count, 1))
        return mean_loss, mean_likelihood, mean_kl

    def _noise(self, batch: Any, generator: torch.Generator) -> Tensor:
        """Draw noise for z0: for the whole batch, of which these windows' is kept."""
        before, after = batch.n_elsewhere
        n, latent_size = len(batch.times), self.network.latent_size
        dtype = batch.values.dtype  # the process' default may be another
        shape = (before + n + after, latent_size)
        noise = torch.randn(shape, generator=generator, dtype=dtype)
        return noise[before : before + n].to(batch.values)

    def _threshold(self, epoch: int) -> float | None:
        if self.clip_norm != "auto":
            return self.clip_norm  # type: ignore[return-value]
        return statistics.median(self._auto_norms) if self._auto_norms else None

    def _schedule_step(self) -> None:
        schedule = self._schedule
        if schedule is not None and schedule.last_epoch < schedule.total_steps - 1:
            schedule.step()

    def _warn_of_interruption(self) -> None:
        remedy = "Fit again with warm_start=True to go on."
        if self.is_resumable:
            remedy = "Fit again on the same data to go on from there."
        epoch = min(len(self.history) + 1, self.max_epochs)
        warnings.warn(
            f"training was interrupted in epoch {epoch} of {self.max_epochs}; the best "
            f"weights of the epochs before are kept. {remedy}",
            ConvergenceWarning,
            stacklevel=2,
        )

    def _judge_the_end(self, validated: bool) -> None:
        """Say that a training has ended in a bad place, and leave no useless weights.

        Weights that were good for the short windows of the first epochs, or for other
        batches, need not be so for the last one.
        """
        gone_back = self._recovery.end(validated)
        if gone_back is not None:
            self.best_epoch = gone_back[0] - 1
        kept = f"the last good weights, of epoch {self.best_epoch}, are kept"
        if not self.best_epoch:
            kept = "no epoch left good weights; those before training are kept"
        row = self.history[-1]
        if self._recovery.given_up:
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
        if self._skipped_in_a_row < _PATIENCE_WITH_NON_FINITE:
            rate = self._optimizer.param_groups[0]["lr"]
            return f"it had diverged again and again, down to a rate of {rate:.3g}"
        return (
            f"{_PATIENCE_WITH_NON_FINITE} steps in a row whose loss or gradient was "
            "not finite"
        )

    def _warn(self, what: str) -> None:
        clipping = (
            "set clip_norm (for example 1.0)"
            if self.clip_norm is None
            else "lower clip_norm"
        )
        warnings.warn(
            f"{what} Lower lr (lr={self.lr:g}), or {clipping} "
            f'(clip_norm={self.clip_norm}), or use activation="tanh", a smaller '
            'step_size or, for method="dopri5", larger rtol and atol. guard=True '
            "forecasts the level alone where training does not prove itself.",
            ConvergenceWarning,
            stacklevel=2,
        )


def validation_loss(
    network: nn.Module, batches: Sequence[Any], processes: Processes = ALONE
) -> float:
    """Negative log-likelihood per scored value, at the mean z0; NaN without batches.

    Of several processes each has its share of every batch.
    """
    sums = [0.0, 0.0]
    network.eval()
    with processes.together(), torch.no_grad():
        for batch in batches:
            if not len(batch.times):
                continue
            try:
                bound = network(batch)
            except SolverError:
                sums[0] = math.inf
                break
            sums[0] -= float(bound.log_likelihood.sum())
            sums[1] += int(bound.n_observed.sum())
    total, count = processes.add(numbers=sums)
    if math.isinf(total):
        return total
    return total / count if count else math.nan
