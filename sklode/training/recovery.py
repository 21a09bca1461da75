"""Notice that a training has diverged, and go back to before it did."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from sklode.training.descent import Descent, Snapshot

__all__ = ["Recovery"]

_KNOWS_NOTHING = 0.5 * (1 + math.log(2 * math.pi))
"""Loss per value of a constant, for values of a spread of 1: normalised ones."""

_RISE = 0.5
"""A divergence raises the loss per value by more than this."""

_JUDGED_STEPS = 20
"""Epochs of fewer steps are judged together: the loss of a few batches is chance."""

_REMEMBERED = 8
"""Epochs that can be gone back to, beside the best of all."""

_MOST = 6
"""Recoveries after which there is no other."""

_Loss: TypeAlias = Callable[[], float]
"""Gives the loss per value of the last batch, under the present weights."""


class _Epoch(NamedTuple):
    """What a training was when an epoch began, and the loss of that epoch."""

    number: int
    loss: float
    begun: Snapshot


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
    that epoch began; after six recoveries, or without such an epoch, it is given up.
    """

    def __init__(self, n_batches: int) -> None:
        self._n_judged = math.ceil(_JUDGED_STEPS / n_batches)
        self._losses: deque[float] = deque(maxlen=self._n_judged)
        # so that some are of before those that are judged
        self._recent: deque[_Epoch] = deque(maxlen=_REMEMBERED + self._n_judged - 1)
        self._first: _Epoch | None = None
        self._best: _Epoch | None = None  # by the mean with those before it
        self._lowest: _Epoch | None = None  # by its own loss
        self._taken = 0
        self.given_up = False

    def epoch_begins(self, number: int, descent: Descent) -> None:
        """Remember what is trained as it is now."""
        self._now = _Epoch(number, math.inf, descent.snapshot())
        self._first = self._first or self._now

    def epoch_ends(
        self, loss: float, finite: bool, descent: Descent, last_loss: _Loss
    ) -> int:
        """Go back if the epoch has diverged.

        Its loss is NaN if it took no step; ``finite`` is False after too many steps in
        a row that were not. Returns the epoch to whose beginning the training has gone
        back; 0 for none.
        """
        known = [min(self._recent, key=lambda e: e.loss)] if self._recent else []
        known += [self._best] if self._best is not None else []
        if not math.isnan(loss):
            self._losses.append(loss)
            if self._lowest is None or loss < self._lowest.loss:
                self._lowest = self._now._replace(loss=loss)
        if finite and len(self._losses) < self._n_judged:
            return 0
        if not math.isnan(loss):
            loss = sum(self._losses) / self._n_judged
        for epoch in known:
            if not finite or self._was_better(epoch, loss, descent, last_loss):
                self._losses.clear()
                descent.restore(epoch.begun)
                descent.slow_down()
                self._taken += 1
                self.given_up = self._taken > _MOST
                return epoch.number
        self.given_up = not finite
        if finite and not math.isnan(loss):
            judged = self._now._replace(loss=loss)
            self._recent.append(judged)
            self._best = min(self._best or judged, judged, key=lambda e: e.loss)
        return 0

    def end(
        self, descent: Descent, last_loss: _Loss, trust: bool = False
    ) -> tuple[int, float, float] | None:
        """Go back where the last batch was described far better before.

        Before training, or when the epoch of the lowest loss began; the latter not
        where validation has chosen the weights at the end (``trust``). They are worse
        if a divergence lies between the two losses of that batch; in fewer than 20
        steps one loss above another is chance, unless it is not finite.

        Returns the epoch to whose beginning the weights have gone back, the loss at the
        end and that of then; None where they have stayed.
        """
        present, loss = descent.snapshot(), last_loss()
        if math.isfinite(loss) and self._now.number < self._n_judged:
            return None
        earlier = [self._first] if trust else [self._first, self._lowest]
        found = []
        for epoch in filter(None, earlier):
            descent.restore(epoch.begun)
            found.append((last_loss(), epoch.number, epoch.begun))
        before, number, begun = min(found, key=lambda f: f[:2])
        if _is_worse(loss, before) and before < loss:
            descent.restore(begun)
            return number, loss, before
        descent.restore(present)
        return None

    def _was_better(
        self, epoch: _Epoch, loss: float, descent: Descent, last_loss: _Loss
    ) -> bool:
        """Return whether the training was better then, in sum and on the last batch."""
        if epoch.loss >= _KNOWS_NOTHING or not _is_worse(loss, epoch.loss):
            return False
        present, loss = descent.snapshot(), last_loss()
        descent.restore(epoch.begun)
        was_better = _is_worse(loss, last_loss())
        descent.restore(present)
        return was_better


def _is_worse(loss: float, than: float) -> bool:
    """Return whether a divergence lies between the losses; one not finite is worse."""
    return not loss <= max(_KNOWS_NOTHING, than + _RISE)
