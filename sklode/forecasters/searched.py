"""What a search of scikit-learn clones and scores: it is told once, not by each clone.

Tested in tests/test_searches.py.
"""

from __future__ import annotations

import warnings
from typing import Self

import pandas as pd
from sktime.forecasting.base import BaseForecaster

from sklode.data.history import History


class Searched(BaseForecaster):
    """A forecaster that knows whether it was cloned by a search."""

    _history: History
    # what was said by all that it cloned; None: no search asks
    _said_in_search: set[str] | None = None

    def __sklearn_clone__(self) -> Self:
        """Clone as sktime does: with its configuration and pretrained state."""
        cloned: Self = self.clone()
        said = self._said_in_search
        cloned._said_in_search = set() if said is None else said
        return cloned

    def reset(self) -> Self:
        """Forget what was learned, but not what was said in a search."""
        said = self._said_in_search
        super().reset()
        self._said_in_search = said
        return self

    def _scored(self, index: pd.Index) -> None:
        """Say what a score of rows does not tell a search."""
        rows, asked = self._history.rows, self._history.rows_of(index)
        is_new = ~rows.holds(asked.series, asked.ticks)
        last = rows.ticks[rows.bounds[1:] - 1]
        if (is_new & (asked.ticks < last[asked.series])).any():
            self._say_in_search(
                "a search should score rows that come after those of fit; got some "
                "before the last one, which were filled from both sides. Pass "
                "cv=TimeSeriesSplit(5), or a splitter of sktime for a panel."
            )

    def _say_in_search(self, text: str) -> None:
        """Warn, once in a search."""
        said = self._said_in_search
        if said is not None and text not in said:
            said.add(text)
            warnings.warn(text, UserWarning, stacklevel=6)
