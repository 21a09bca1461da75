"""Maximise the evidence lower bound: epochs, steps, clipping, early stopping."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from sklode.data.errors import SolverError
from sklode.nn import Batch, elbo
from sklode.training.descent import Descent
from sklode.training.recovery import Recovery
from sklode.training.report import Reporter

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
"""Of the history, a row per epoch; the forecasters' ``history_`` documents them."""

_MEANS = ("loss", "log_likelihood", "kl", "grad_norm", "clipped_fraction")
"""Of them those that are means over an epoch's steps."""

_PATIENCE_WITH_NON_FINITE = 10  # skipped steps in a row, after which training stops
_PATIENCE = 50  # epochs without improvement, after which early stopping stops
_IMPROVEMENT = 1e-4  # of the validation loss, for which early stopping waits

_WARM_UP_KL = 0.02
"""Share of kl_weight while windows grow, in the warm-up epochs.

A short window has few values to pay for what z0 must say of it: under the full weight
z0 says too little, and what it leaves out is taken for noise.
"""

Draw: TypeAlias = Callable[[int], Iterable[Batch]]  # of an epoch, from 1 on


@dataclass(eq=False)
class Trainer:
    """Fit a `LatentODE` in place by stochastic gradient ascent on the ELBO.

    The loss is the negative ELBO per observed value: the paper's eq. loss, and of the
    same size for any window. A step whose loss or gradient is not finite is skipped. An
    epoch that diverges, or that ends in ten skipped steps, is undone, see `Recovery`.
    """

    network: Any
    settings: Any
    generator: torch.Generator
    n_epochs: int
    n_batches: int
    warm_up_epochs: int = 0
    rate: float = 1.0  # the peak, as a share of ``lr``
    goes_on: Callable[[int], bool] = lambda epoch: True  # whether another is worth it

    def __post_init__(self) -> None:
        self.rows: list[dict[str, float]] = []  # of the history
        self.best_epoch = 0  # 0: before training
        self.interrupted = False
        self._best: dict[str, Tensor] = {}
        # an epoch and weights that are better still, if the loss under them is finite
        self._candidate: tuple[int, dict[str, Tensor]] | None = None
        self._best_score = math.inf  # the least validation loss
        self._waited = 0  # epochs since it last improved
        self._skipped = 0  # steps in a row that were not finite
        self._last: list[Batch] = []  # the last batch
        self._recovery = Recovery(self.n_batches)

    def fit(
        self,
        draw: Draw,
        validation: Sequence[Batch] = (),
        reporter: Reporter | None = None,
    ) -> None:
        """Train; leave the best weights in the network.

        Ctrl-C keeps those of the epochs before, with a warning.
        """
        lr = self.settings.lr * self.rate
        descent = Descent(self.network, lr, self.n_epochs * self.n_batches)
        with closing(descent) as self._descent:
            self._best = self._weights()
            try:
                with closing(reporter or Reporter()) as told:  # its bar, before words
                    self._take_epochs(draw, validation, told)
            except KeyboardInterrupt:
                if not self.rows:  # nothing to keep
                    raise
                self.interrupted = True
                epoch = min(len(self.rows) + 1, self.n_epochs)
                _warn(
                    f"training was interrupted in epoch {epoch} of {self.n_epochs}; "
                    "the best weights of the epochs before are kept."
                )
            self.best_epoch = self._load_best()
            if self.rows:
                self._judge_the_end()

    def _is_over(self) -> bool:
        no_better = self._waited >= _PATIENCE
        return self._recovery.given_up or no_better or len(self.rows) >= self.n_epochs

    def _take_epochs(
        self, draw: Draw, validation: Sequence[Batch], reporter: Reporter
    ) -> None:
        while not self._is_over():
            epoch = len(self.rows) + 1
            self._recovery.epoch_begins(epoch, self._descent)
            row = self.run_epoch(epoch, draw(epoch))
            finite = self._skipped < _PATIENCE_WITH_NON_FINITE
            row["restored_epoch"] = self._recovery.epoch_ends(
                -row["log_likelihood"], finite, self._descent, self._last_loss
            )
            if row["restored_epoch"]:
                self._candidate, self._skipped = None, 0
            row["validation_loss"] = self._validation_loss(validation)
            row = {name: row[name] for name in HISTORY_COLUMNS}
            self.rows.append(row)
            self._judge(row)
            reporter.epoch_end(row)
            if not self.goes_on(epoch):
                break

    def run_epoch(self, epoch: int, batches: Iterable[Batch]) -> dict[str, float]:
        """Take a step on every batch and return the history's row."""
        started = time.perf_counter()
        kl_weight = self.settings.kl_weight
        if epoch <= self.warm_up_epochs:
            kl_weight *= _WARM_UP_KL
        self.network.train()
        lr = self._descent.rate
        steps = []
        for batch in batches:
            steps.append(self._step(batch, kl_weight))
            self._skipped = self._skipped + 1 if steps[-1] is None else 0
            if self._skipped >= _PATIENCE_WITH_NON_FINITE:
                break
        taken = [step for step in steps if step is not None]
        means = np.mean(taken or [[math.nan] * len(_MEANS)], axis=0).tolist()
        return {
            **dict(zip(_MEANS, means, strict=True)),
            "epoch": epoch,
            "kl_weight": kl_weight,
            "skipped_steps": len(steps) - len(taken),
            "lr": lr,
            "seconds": time.perf_counter() - started,
        }

    def _step(self, batch: Batch, kl_weight: float) -> list[float] | None:
        """Take a step; return its `_MEANS`, None if loss or gradient is not finite."""
        self._last = [batch]
        self._descent.zero()
        parts = self._differentiate(batch, kl_weight)
        if not math.isfinite(parts[0]):
            return None
        threshold = self.settings.clip_norm
        norm = self._descent.clip(threshold)
        if not math.isfinite(norm):
            return None
        if self._candidate is not None:  # a finite loss was seen under it
            self.best_epoch, self._best = self._candidate
            self._candidate = None
        self._descent.step()
        return [*parts, norm, float(threshold is not None and norm >= threshold)]

    def _differentiate(self, batch: Batch, kl_weight: float) -> list[float]:
        """Take the gradient; return loss, log-likelihood and KL.

        They are per observed value; NaN where nothing can be solved.
        """
        shape = len(batch.times), self.network.latent_size
        # the process' default dtype may be another than the network's
        dtype = batch.values.dtype
        noise = torch.randn(shape, generator=self.generator, dtype=dtype)
        n_observed = max(batch.n_scored, 1)
        try:
            bound = self.network(batch, noise.to(batch.values))
            likelihood = bound.log_likelihood.sum() / n_observed
            kl = bound.kl.sum() / n_observed
            loss = -elbo(likelihood, kl, kl_weight)
            if bool(torch.isfinite(loss)):
                loss.backward()
        except SolverError:
            return [math.nan, math.nan, math.nan]
        return [loss.item(), likelihood.item(), kl.item()]

    def _judge(self, row: dict[str, float]) -> None:
        """Keep the weights if they are the best; count epochs without better.

        The warm-up's validation losses are of another objective. Without validation
        the last weights are the best, if their loss will be finite.
        """
        score = row["validation_loss"]
        if row["epoch"] <= self.warm_up_epochs + 1:
            self._best_score, self._waited = math.inf, -1
        is_validated = not math.isnan(score)
        improved = score < self._best_score - _IMPROVEMENT
        self._waited = self._waited + 1 if is_validated and not improved else 0
        weights_of = int(row["restored_epoch"] or row["epoch"] + 1) - 1
        # steps that were all skipped say that these are no good weights
        if score < self._best_score and not math.isnan(row["loss"]):
            self._best_score = score
            self.best_epoch, self._best = weights_of, self._weights()
        elif not is_validated and not self._skipped:
            self._candidate = weights_of, self._weights()

    def _weights(self) -> dict[str, Tensor]:
        weights = self.network.state_dict()
        return {name: value.clone() for name, value in weights.items()}

    def _load_best(self) -> int:
        """Load the best weights so far into the network, and return their epoch."""
        if self._candidate is not None:
            epoch, weights = self._candidate
            self.network.load_state_dict(weights)
            if math.isfinite(self._last_loss()):
                return epoch
        self.network.load_state_dict(self._best)
        return self.best_epoch

    def _last_loss(self) -> float:
        self.network.train()
        return _loss_on(self._last, self.network)

    def _validation_loss(self, batches: Sequence[Batch]) -> float:
        if not batches:
            return math.nan
        self.network.eval()
        return _loss_on(batches, self.network)

    def _judge_the_end(self) -> None:
        """Say that a training has ended in a bad place; leave no useless weights."""
        settings, row = self.settings, self.rows[-1]
        is_validated = not math.isnan(row["validation_loss"])
        gone_back = self._recovery.end(self._descent, self._last_loss, is_validated)
        if gone_back is not None:
            self.best_epoch = gone_back[0] - 1
        not_finite = max(self._skipped, row["skipped_steps"])
        if self._recovery.given_up and self._skipped < _PATIENCE_WITH_NON_FINITE:
            what = (
                "training stopped after it had diverged again and again, down to a "
                f"rate of {self._descent.rate:.3g}"
            )
        elif self._recovery.given_up or math.isnan(row["loss"]):
            what = (
                f"training ended in {not_finite:g} steps in a row whose loss or "
                "gradient was not finite"
            )
        elif gone_back is not None:
            number, loss, before = gone_back
            what = (
                "training has made the model worse: on its last batch the loss per "
                f"value is {loss:.3g}, and was {before:.3g} when epoch {number} began"
            )
        else:
            return
        kept = f"the last good weights, of epoch {self.best_epoch}, are kept"
        if not self.best_epoch:
            kept = "no epoch left good weights; those before training are kept"
        _warn(
            f"{what}; {kept}. Lower lr (lr={settings.lr:g}), or set clip_norm lower, "
            f"for example to 1.0 (clip_norm={settings.clip_norm}), or use "
            "a smaller step_size. level='auto' has a guard that keeps what does not "
            "prove itself out of the forecasts."
        )


def _warn(text: str) -> None:
    warnings.warn(text, ConvergenceWarning, stacklevel=3)


@torch.no_grad()
def _loss_on(batches: Sequence[Batch], network: Any) -> float:
    """Return the negative log-likelihood per scored value, at the mean z0.

    Infinite where it is not finite; 0 without values.
    """
    loss = 0.0
    try:
        for batch in batches:
            bound = network(batch)
            is_finite = bool(torch.isfinite(bound.kl).all())
            loss -= float(bound.log_likelihood.sum()) if is_finite else math.inf
    except SolverError:
        loss = math.inf
    loss /= max(sum(batch.n_scored for batch in batches), 1)
    return loss if math.isfinite(loss) else math.inf
