"""How long, and at which rate, a model trains that was trained before."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from sklode.prediction.model import FittedModel

__all__ = ["Further"]

_FINETUNE_SHARE = 0.2
"""Share of the epochs that finetune_epochs=None takes."""

_FINETUNE_UPDATES = 100
"""What it takes at least, after pretraining.

A few new series make one batch an epoch where the family made many. Adam's first steps
have the size of the rate, whatever the gradient: after only a handful of them the model
is worse than without.
"""

_FINETUNE_RATE = 0.3
"""The share of lr at which it then trains, to keep what the family has taught."""


class Further(NamedTuple):
    """How a model is trained that was trained before.

    Attributes
    ----------
    epochs : int
        At least.
    updates : int
        At least, in whole epochs.
    rate : float
        As a share of ``lr``.
    """

    epochs: int
    updates: int = 0
    rate: float = 1.0

    @classmethod
    def update(cls, settings: Any, start: FittedModel) -> Further:
        """Return how an ``update`` trains."""
        if settings.finetune_epochs is not None:
            return cls(int(settings.finetune_epochs))
        before = settings.max_epochs or len(start.rows)
        return cls(max(round(_FINETUNE_SHARE * before), 1))

    @classmethod
    def fine_tuning(cls, settings: Any, start: FittedModel) -> Further:
        """Return how a ``fit`` that follows ``pretrain`` trains."""
        further = cls.update(settings, start)
        if settings.finetune_epochs is not None:
            return further
        return further._replace(updates=_FINETUNE_UPDATES, rate=_FINETUNE_RATE)

    def n_epochs(self, n_batches: int) -> int:
        """Return the number of epochs of so many batches."""
        return max(self.epochs, math.ceil(self.updates / n_batches))
