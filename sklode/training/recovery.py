"""Notice that a training has diverged, and go back to before it did."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from sklode.training.descent import Descent, Snapshot

_KNOWS_NOTHING = 0.5 * (1 + math.log(2 * math.pi))
"""Loss per value of a constant, for values of a spread of 1: normalised ones."""

_RISE = 0.5  # a divergence raises the loss per value by more than this
_REMEMBERED = 8  # epochs that can be gone back to, beside the best of all
_MOST = 6  # recoveries, after which training is given up
_JUDGED_STEPS = 20
"""Epochs of fewer steps are judged together: the loss of a few batches is chance."""

_Loss: TypeAlias = Callable[[], float]
"""Gives the loss per value of the last batch, under the present weights."""


class _Epoch(NamedTuple):
    number: int
    loss: float
    begun: Snapshot  # what was trained when it began


_loss_of = attrgetter("loss")


class Recovery:
    """Return a diverged training to an epoch before, at half the rate.

    It has diverged where the loss per value is above that of a constant, and far above
    that of an earlier epoch, the best of the last eight or else of all. Windows that
    grow, or chance, may do that too: so the last batch, too, has to be as much better
    under the weights with which that epoch began. Too many steps in a row that are not
    finite are a divergence in any case.
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
        """Return the epoch to whose beginning training goes back, 0 for none.

        The loss is NaN if no step was taken; ``finite`` is False after too many steps
        in a row that were not.
        """
        known = min(self._recent, key=_loss_of, default=None), self._best
        stepped = not math.isnan(loss)
        if stepped:
            now = self._now._replace(loss=loss)
            self._lowest = min(self._lowest or now, now, key=_loss_of)
            self._losses.append(loss)
            loss = sum(self._losses) / self._n_judged
        if finite and len(self._losses) < self._n_judged:
            return 0
        for epoch in filter(None, known):
            if not finite or self._was_better(epoch, loss, descent, last_loss):
                self._losses.clear()
                descent.restore(epoch.begun)
                descent.slow_down()
                self._taken += 1
                self.given_up = self._taken > _MOST
                return epoch.number
        self.given_up = not finite
        if stepped:
            judged = self._now._replace(loss=loss)
            self._recent.append(judged)
            self._best = min(self._best or judged, judged, key=_loss_of)
        return 0

    def end(
        self, descent: Descent, last_loss: _Loss, trust: bool = False
    ) -> tuple[int, float, float] | None:
        """Go back where the last batch was far better described before.

        When the first epoch began, or that of the lowest loss; the latter not where
        validation has chosen the weights (``trust``). Returns its number, the loss at
        the end and that of then; None where the weights have stayed.
        """
        present, loss = descent.snapshot(), last_loss()
        if math.isfinite(loss) and self._now.number < self._n_judged:
            return None  # after few steps one loss above another is chance
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
        """Return whether it was better then, in sum and on the last batch."""
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
