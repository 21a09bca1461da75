"""What a training that was stopped needs to go on as if it had not been.

Everything here is plain numbers and tensors, so that it can be pickled and copied.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["FitTerms", "StoppedFit", "TrainingState", "copied", "signature"]


@dataclass(frozen=True)
class TrainingState:
    """What a training is between two epochs: all that later ones depend on.

    Nothing in it changes as the training goes on.

    Attributes
    ----------
    trainer : dict
        Attributes of the `Trainer`: the history, the best weights, counters, averages.
    recovery : dict
        See `Recovery.state`; with the present weights and the optimiser's moments.
    groups : list of dict
        The optimiser's settings, which schedule and recovery change.
    schedule : dict or None
        State of the learning-rate schedule.
    generator : Tensor
        State of the torch generator.
    """

    trainer: dict[str, Any]
    recovery: dict[str, Any]
    groups: list[dict[str, Any]]
    schedule: dict[str, Any] | None
    generator: Tensor

    @property
    def n_epochs(self) -> int:
        """Epochs done."""
        return len(self.trainer["history"])


@dataclass
class FitTerms:
    """What a fit has settled before its training, and a later one has to take over.

    Attributes
    ----------
    signature : str
        Of the data and settings, see `signature`.
    cut : ndarray of shape (series,)
        The first held-out row of each series.
    from_scratch : bool
        Whether windows grow.
    fine_tunes : bool
        Whether it began from pretrained weights.
    calibration : Calibration or None
        What spreads are scaled by where they cannot be measured.
    n_before, last : int
        Epochs trained by earlier calls of ``fit``, and the number of this one's last.
    predict_seed : int
        Of the forecasts' random numbers.
    """

    signature: str
    cut: NDArray[np.int64]
    from_scratch: bool
    fine_tunes: bool
    calibration: Any
    n_before: int = 0
    last: int = 0
    predict_seed: int = 0


@dataclass(frozen=True)
class StoppedFit:
    """A fit whose training may go on.

    Attributes
    ----------
    training : TrainingState
        Where it stopped.
    terms : FitTerms
    """

    training: TrainingState
    terms: FitTerms

    def terms_of(self, n_epochs: int) -> FitTerms:
        """Return the terms of a fit of that many epochs which goes on from here.

        It is the fit that stopped, or, where that was through, the next one. Under a
        schedule there is no next one.
        """
        n_before, done = self.terms.n_before, self.training.n_epochs
        is_through = done >= min(self.terms.last, n_before + n_epochs)
        if is_through and self.training.schedule is None:
            n_before = done
        return replace(self.terms, n_before=n_before, last=n_before + n_epochs)


def signature(
    arrays: Iterable[NDArray[Any] | None], settings: Mapping[str, Any]
) -> str:
    """Return a digest that other arrays, or settings, do not share."""
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        if array is None:
            digest.update(b"none")
            continue
        digest.update(f"{array.dtype} {array.shape}".encode())
        if np.issubdtype(array.dtype, np.floating):  # a NaN has many bit patterns
            array = np.where(np.isnan(array), np.nan, array)
        digest.update(array.tobytes())
    for name in sorted(settings):
        digest.update(f"{name}={settings[name]!s};".encode())
    return digest.hexdigest()


def copied(value: Any) -> Any:
    """Return a copy of what a training changes in place: lists, and tensors in them."""
    if isinstance(value, list):
        return [copied(part) for part in value]
    return value.clone() if isinstance(value, Tensor) else value
