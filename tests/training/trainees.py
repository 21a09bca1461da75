"""Stand-ins for a network, its batches and its optimiser, to watch the training."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest import mock

import torch
from torch import Tensor, nn

from sklode.hybrid.training import HybridTraining
from sklode.latent_ode.network import Batch, Bound
from sklode.latent_ode.training import LatentODETraining
from sklode.training.preparation import Training
from sklode.training.report import Reporter
from sklode.training.trainer import Material, Schedule, Trainer
from tests.epochs import after_each_epoch

Part = Callable[[Tensor, Tensor], Tensor]


class Trainee(nn.Module):
    """A bound of one weight w, by formulas of w and of the batch's number."""

    latent_size = 1

    def __init__(
        self,
        log_likelihood: Part,
        kl: Part = lambda w, number: 0.0 * w,
        weight: float = 1.0,
        held_out: Iterable[float] = (),
    ) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(weight))
        self.log_likelihood, self.kl, self.held_out = log_likelihood, kl, iter(held_out)

    def forward(self, batch: Batch, noise: Tensor | None = None) -> Bound:
        number = batch.values[0, 0, 0]
        count = batch.mask.sum().unsqueeze(0)
        if not self.training:  # the validation losses are a script
            assert noise is None
            assert not torch.is_grad_enabled()
            return Bound(-count * next(self.held_out), torch.zeros(1), count)
        log_likelihood = self.log_likelihood(self.w, number).reshape(1)
        return Bound(log_likelihood, self.kl(self.w, number).reshape(1), count)

    @property
    def weight(self) -> float:
        return float(self.w.detach())

    def throw(self, weight: float) -> None:
        """Overwrite the weight."""
        with torch.no_grad():
            self.w.fill_(weight)


def linear(w: Tensor, number: Tensor) -> Tensor:
    """A log-likelihood whose gradient has the batch's number as its norm."""
    return -number * w


def bowl(w: Tensor, number: Tensor) -> Tensor:
    """A log-likelihood whose best weight is the batch's number."""
    return -0.5 * (w - number) ** 2


def root(w: Tensor, number: Tensor) -> Tensor:
    """A log-likelihood that is best at the edge of where there is one."""
    return -torch.sqrt(w)


def batch(number: float = 1.0, n_observed: int = 1) -> Batch:
    """Return a batch of one window that carries a number."""
    values = torch.full((1, n_observed, 1), number)
    mask = torch.ones(values.shape, dtype=torch.bool)
    return Batch(torch.arange(n_observed)[None], values, mask, n_observed)


class Recording(torch.optim.SGD):
    """An optimiser that keeps what it was given; its steps are the gradient's."""

    lr: ClassVar[list[float]] = []
    gradients: ClassVar[list[float]] = []
    vectors: ClassVar[list[Any]] = []

    def __init__(self, vectors: list[Any], **settings: Any) -> None:
        super().__init__(vectors, **settings)
        type(self).lr, type(self).gradients, type(self).vectors = [], [], vectors

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.lr.append(float(self.param_groups[0]["lr"]))
        parameters = [p for group in self.param_groups for p in group["params"]]
        norms = [p.grad.norm() for p in parameters if p.grad is not None]
        self.gradients.append(float(torch.stack(norms).norm()))
        super().step(closure)


def trained(
    network: Any,
    draw: Callable[[int], Any],
    n_epochs: int,
    n_batches: int,
    validation: Batch | None = None,
    seed: int = 0,
    warm_up_epochs: int = 0,
    **given: Any,
) -> Trainer:
    """Return a trainer that has trained, on what is drawn in each epoch."""
    settings = {"lr": 0.01, "clip_norm": 1.0, "kl_weight": 1.0, "weight_decay": 0.0}
    settings |= given
    generator = torch.Generator().manual_seed(seed)
    named = SimpleNamespace(**settings)
    trainer = Trainer(
        network=network,
        settings=named,
        generator=generator,
        schedule=Schedule(n_epochs),
        material=Material(draw, n_batches, validation, warm_up_epochs),
    )
    trainer.fit(Reporter())
    return trainer


def train(
    network: nn.Module,
    batches: Sequence[Batch],
    validation: Batch | None = None,
    after: Callable[[dict[str, float]], Any] = lambda row: None,
    n_epochs: int = 1,
    **given: Any,
) -> Trainer:
    """Train on the same batches in every epoch."""
    with after_each_epoch(after):
        return trained(
            network,
            draw=lambda epoch: batches,
            n_epochs=n_epochs,
            n_batches=len(batches),
            validation=validation,
            **given,
        )


def assert_kept(found: nn.Module, before: nn.Module, atol: float = 1e-6) -> None:
    """Check that weights are those they were, but for steps of no length."""
    for one, other in zip(found.parameters(), before.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=atol)


def column(trainer: Trainer, name: str) -> list[float]:
    """Return a column of the history."""
    return [row[name] for row in trainer.records]


def planned(forecaster: Any, y: Any, **given: Any) -> Any:
    """Return what a fit has planned, just before its training."""
    runs: list[Training[Any]] = []

    class SeenError(Exception):
        """Enough was seen: nothing need be trained."""

    def look(run: Training[Any], reporter: Reporter) -> None:
        run.begin()
        runs.append(run)
        raise SeenError

    with (
        mock.patch.object(LatentODETraining, "train", look),
        mock.patch.object(HybridTraining, "train", look),
        contextlib.suppress(SeenError),
    ):
        forecaster.fit(y, **given)
    return runs[0]
