"""Notice that a training has diverged, and go back to before it did."""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

__all__ = ["Recovery"]

_KNOWS_NOTHING = 0.5 * (1 + math.log(2 * math.pi))
"""Loss per value of a constant, for values of a spread of 1: normalised ones."""

_RISE = 0.5
"""A divergence raises the loss per value by more than this."""

_JUDGED_STEPS = 20
"""Epochs of fewer steps are judged together: the loss of a few batches is chance."""

_REMEMBERED = 8
"""Epochs that can be gone back to, beside the best of all."""

_SLOWER = 0.5
"""The rate is multiplied by this each time."""

_MOST = 6
"""Recoveries after which there is no other."""


class _Epoch(NamedTuple):
    """What a training was when an epoch began, and the loss of that epoch."""

    epoch: int
    loss: float
    weights: list[torch.Tensor]
    moments: list[Any]


class Recovery:
    """Return a diverged training to an epoch before, at half the rate.

    An epoch may have diverged if its negative log-likelihood per value is above that of
    a constant, and more than 0.5 above that of an earlier epoch, which was below the
    constant's: the best of the last eight or else the best of all. Windows that grow,
    or chance, may do that too: so the last batch is looked at again, and unless it,
    too, is as much better under the weights with which that epoch began, nothing is
    done. The loss of an epoch of fewer than 20 steps is the mean with the epochs before
    it that make them 20. Too many steps in a row that are not finite are a divergence
    in any case. Weights and the optimiser's moments then become what they were when
    that epoch began.

    Parameters
    ----------
    vectors : sequence of Parameter
        All that is trained.
    optimizer : Optimizer
        Of these.
    loss : callable
        Returns the last batch's negative log-likelihood per value under the present
        weights.
    n_batches : int
        Steps of an epoch.

    Attributes
    ----------
    given_up : bool
        Whether training has diverged once too often, or from its first epoch on.
    """

    def __init__(
        self,
        vectors: Sequence[nn.Parameter],
        optimizer: torch.optim.Optimizer,
        loss: Callable[[], float],
        n_batches: int,
    ) -> None:
        self._n_judged = math.ceil(_JUDGED_STEPS / n_batches)
        self._losses: deque[float] = deque(maxlen=self._n_judged)
        self._vectors = vectors
        self._optimizer = optimizer
        self._loss = loss
        # so that some are of before those that are judged
        self._recent: deque[_Epoch] = deque(maxlen=_REMEMBERED + self._n_judged - 1)
        self._best: list[_Epoch] = []
        self._first: _Epoch | None = None
        self._lowest: _Epoch | None = None
        self._n_ended = 0
        self._taken = 0
        self.given_up = False

    def state(self) -> dict[str, Any]:
        """Return what `resume` takes: what the training is now, and was before.

        Nothing in it changes as training goes on.
        """
        return {
            "now": self._present(0),
            "losses": list(self._losses),
            "recent": list(self._recent),
            "best": list(self._best),
            "first": self._first,
            "lowest": self._lowest,
            "n_ended": self._n_ended,
            "taken": self._taken,
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Become what the recovery of another training was, which it continues."""
        self._restore(state["now"])
        self._losses.extend(state["losses"])
        self._recent.extend(state["recent"])
        self._best = list(state["best"])
        self._first = state["first"]
        self._lowest = state["lowest"]
        self._n_ended = state["n_ended"]
        self._taken = state["taken"]

    def epoch_begins(self, epoch: int) -> None:
        """Remember what the training is now."""
        self._now = self._present(epoch)
        self._first = self._first or self._now

    def epoch_ends(self, loss: float, finite: bool) -> int:
        """Go back if the epoch has diverged.

        Parameters
        ----------
        loss : float
            The epoch's negative log-likelihood per value; NaN if no step was taken.
        finite : bool
            False after too many steps in a row that were not.

        Returns
        -------
        int
            The epoch to whose beginning the training has gone back; 0 for none.
        """
        self._n_ended += 1
        if not math.isnan(loss):
            self._losses.append(loss)
            if self._lowest is None or loss < self._lowest.loss:
                self._lowest = self._now._replace(loss=loss)
        if finite and len(self._losses) < self._n_judged:
            return 0
        loss = math.nan if math.isnan(loss) else sum(self._losses) / self._n_judged
        recent = sorted(self._recent, key=lambda e: e.loss)[:1]
        known = [*recent, *self._best]
        better = [e for e in known if not finite or self._is_better(e, loss)][:1]
        if finite and not better:
            if not math.isnan(loss):
                self._keep(self._now._replace(loss=loss))
            return 0
        self._taken += 1
        self.given_up = not better or self._taken > _MOST
        for epoch in better:
            self._losses.clear()
            self._restore(epoch)
            self._slow_down()
        return better[0].epoch if better else 0

    def end(self, trust: bool = False) -> tuple[int, float, float] | None:
        """Go back where the last batch was described far better before.

        Before training, or when the epoch of the lowest loss began. The weights at the
        end are worse if a divergence lies between the two losses of that batch; in
        fewer than 20 steps one loss above another is chance, unless it is not finite.

        Parameters
        ----------
        trust : bool, default=False
            Whether validation chose the weights at the end: they are compared with
            those before training only.

        Returns
        -------
        tuple of int and two floats, or None
            The epoch to whose beginning the weights have gone back, the loss at the end
            and that of then; None where they have stayed.
        """
        known = {e.epoch: e for e in (self._first, self._lowest) if e is not None}
        if trust and self._first is not None:
            known = {self._first.epoch: self._first}
        present, loss = self._present(0), self._loss()
        if math.isfinite(loss) and self._n_ended < self._n_judged:
            return None
        found = []
        for epoch in known.values():
            self._restore(epoch)
            found.append((self._loss(), epoch.epoch))
        before, number = min(found, default=(math.inf, 0))
        if _is_worse(loss, before) and before < loss:
            self._restore(known[number])
            return number, loss, before
        self._restore(present)
        return None

    def _keep(self, epoch: _Epoch) -> None:
        self._recent.append(epoch)
        self._best = sorted([*self._best, epoch], key=lambda e: e.loss)[:1]

    def _slow_down(self) -> None:
        for group in self._optimizer.param_groups:
            for name in {"lr", "initial_lr", "max_lr", "min_lr"} & set(group):
                group[name] *= _SLOWER

    def _is_better(self, epoch: _Epoch, loss: float) -> bool:
        """Return whether the training was better then, in sum and on the last batch."""
        if epoch.loss >= _KNOWS_NOTHING or not _is_worse(loss, epoch.loss):
            return False
        present, loss = self._present(0), self._loss()
        self._restore(epoch)
        is_better = _is_worse(loss, self._loss())
        self._restore(present)
        return is_better

    def _present(self, epoch: int) -> _Epoch:
        weights = [v.detach().clone() for v in self._vectors]
        state = self._optimizer.state
        moments = [
            copy.deepcopy(state[v]) if v in state else None for v in self._vectors
        ]
        return _Epoch(epoch, math.inf, weights, moments)

    def _restore(self, epoch: _Epoch) -> None:
        with torch.no_grad():
            for vector, weights in zip(self._vectors, epoch.weights, strict=True):
                vector.copy_(weights)  # in place: the parameters are views of it
        self._optimizer.state.clear()
        for vector, moments in zip(self._vectors, epoch.moments, strict=True):
            if moments is not None:
                self._optimizer.state[vector] = copy.deepcopy(moments)


def _is_worse(loss: float, than: float) -> bool:
    """Return whether a divergence lies between the losses; one not finite is worse."""
    return not loss <= max(_KNOWS_NOTHING, than + _RISE)
