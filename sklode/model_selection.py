"""Splitters for evaluation on irregular time stamps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from sktime.split.base import BaseSplitter

__all__ = ["AbsoluteHorizon"]


class AbsoluteHorizon(BaseSplitter):
    """Make sktime's evaluation ask at the test fold's own time stamps.

    sktime's ``evaluate``, searches and benchmarks ask for the relative steps of a
    splitter's ``fh``. On irregular stamps these are other times than those of the test
    fold, and the metric silently relabels the forecasts. This wrapper has no ``fh``, so
    that they ask at the fold's stamps.

    Parameters
    ----------
    cv : BaseSplitter
        Splits by position, for example ``ExpandingWindowSplitter``.

    Examples
    --------
    >>> from sklode import AbsoluteHorizon
    >>> from sktime.split import ExpandingWindowSplitter
    >>> cv = ExpandingWindowSplitter(fh=[1, 2, 3], initial_window=10, step_length=5)
    >>> splitter = AbsoluteHorizon(cv)
    """

    _tags: ClassVar[dict[str, Any]] = {
        "authors": ["the sklode developers"],
        "split_hierarchical": True,
        "split_type": "temporal",
    }

    def __init__(self, cv: BaseSplitter) -> None:
        self.cv = cv
        super().__init__()

    def _fh(self) -> None:
        return None

    def _split(self, y: pd.Index) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        yield from self.cv.split(y)

    def get_n_splits(self, y: Any = None) -> int:
        """Return the number of splits of ``y``."""
        return self.cv.get_n_splits(y)

    def get_cutoffs(self, y: Any = None) -> np.ndarray:
        """Return the cutoffs of the splits of ``y``."""
        return self.cv.get_cutoffs(y)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Return settings that sktime's checks run with."""
        from sktime.split import ExpandingWindowSplitter, SlidingWindowSplitter

        return [
            {"cv": ExpandingWindowSplitter(fh=[1, 2], initial_window=5)},
            {"cv": SlidingWindowSplitter(fh=[1], window_length=4)},
        ]
