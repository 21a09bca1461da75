"""What the forecasters ask of a model: two protocols, whichever model it is.

Tested in tests/latent_ode/test_answers.py and tests/hybrid/test_model.py.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Protocol, TypeAlias

import pandas as pd

from sklode.data.arrays import Array, Columns
from sklode.data.history import History, QueryRows

Container: TypeAlias = Any
"""A table as sktime knows them: Series, DataFrame, array, or one of others."""

Horizon: TypeAlias = Any
"""What to forecast: steps, stamps, an index of rows or a `ForecastingHorizon`."""


class Answers(Protocol):
    """A fitted model with the series that it forecasts: rows in, tables out.

    ``n`` is the number of draws, where a model draws.
    """

    @property
    def description(self) -> pd.DataFrame | None:
        """What was found of each part; None of a model that has no parts."""

    @property
    def leaves_weeks_open(self) -> bool:
        """Whether nothing tells where the weeks begin that holidays are named for."""

    @property
    def drift(self) -> float:
        """By how many deviations the last rows lie to one side, at the most."""

    def means(self, queries: QueryRows) -> Array:
        """Return point forecasts, (row, channel)."""

    def variances(self, queries: QueryRows, n: int) -> Array:
        """Return variances of observations, (row, channel)."""

    def quantiles(self, queries: QueryRows, n: int, alpha: list[float]) -> Array:
        """Return quantiles of observations, (row, channel, alpha)."""

    def paths(self, queries: QueryRows, n: int, noise: bool) -> Array:
        """Return ``n`` joint sample paths, (sample, row, channel)."""

    def parts(self, queries: QueryRows) -> pd.DataFrame:
        """Return what each part adds, a column for each (channel, part)."""


class FittedModel(Protocol):
    """What a fit leaves, apart from the series that are forecast."""

    @property
    def architecture(self) -> dict[str, Any]:
        """Settings that a later fit must share."""

    @property
    def clock(self) -> str:
        """Kind of the index, see `sklode.data.ticks.clock_of`."""

    @property
    def columns(self) -> Columns:
        """Names of columns of y and of X, and categories."""

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of columns of y and of X."""

    def answers(self, history: History, seed: int, before: Answers | None) -> Answers:
        """Return what it answers of series; ``before`` are its answers until now."""

    def attributes(self, channels: list[Hashable]) -> dict[str, object]:
        """Return the fitted attributes that it has."""
