"""TEMPORARY: stands in for `sklode.levels.StructuralLevel`, by last values."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from sklode import levels
from sklode.data.history import History
from sklode.data.observations import Observations


@dataclass(frozen=True)
class NaiveLevel:
    seasons: Any
    logarithm: Any
    rate: Any  # (channel,): variance of a random walk per tick

    @classmethod
    def fit(
        cls,
        observations: Observations,
        seasons: Any = "auto",
        logarithm: Any = "auto",
        start: NaiveLevel | None = None,
    ) -> NaiveLevel:
        if start is not None:
            return start
        squared = np.nanvar(observations.values, axis=0) + 1e-6
        return cls(seasons, logarithm, squared / max(np.ptp(observations.ticks), 1.0))

    def updated(self, observations: Observations) -> NaiveLevel:
        return self

    def parts(self) -> dict[str, Any]:
        return vars(self)

    @classmethod
    def of_parts(cls, **parts: Any) -> NaiveLevel:
        level = cls(**parts)
        if not np.isfinite(level.rate).all():
            raise ValueError("a rate that is not finite")
        return level

    def description(self, channels: list[Any]) -> pd.DataFrame:
        return pd.DataFrame(
            {"rate": self.rate}, pd.Index(channels, tupleize_cols=False)
        )

    def answers(self, history: History, seed: int) -> NaiveAnswers:
        return NaiveAnswers(self, history, seed)


@dataclass
class NaiveAnswers:
    level: NaiveLevel
    history: History
    seed: int

    def _of(self, index: pd.Index, X: Any) -> tuple[Any, Any]:
        series, ticks = self.history.located(index)
        self.history.controls_for(index, X)
        seen = self.history.observations
        bounds = seen.bounds
        last = np.array(
            [
                pd.DataFrame(seen.values[a:b]).ffill().bfill().fillna(0.0).iloc[-1]
                for a, b in pairwise(bounds)
            ]
        )
        gaps = np.abs(ticks - seen.ticks[bounds[1:] - 1][series]).astype(float)
        return last[series], (1.0 + gaps)[:, None] * self.level.rate

    def means(self, index: pd.Index, X: Any) -> pd.DataFrame:
        return pd.DataFrame(self._of(index, X)[0], index, self.history.channels)

    def variances(self, index: pd.Index, X: Any, n: int) -> Any:
        return self._of(index, X)[1]

    def quantiles(self, index: pd.Index, X: Any, n: int, alpha: list[float]) -> Any:
        mean, variance = self._of(index, X)
        return mean[..., None] + np.sqrt(variance)[..., None] * norm.ppf(alpha)

    def paths(self, index: pd.Index, X: Any, n: int, noise: bool) -> Any:
        mean, variance = self._of(index, X)
        rng = np.random.default_rng(self.seed)
        return mean + np.sqrt(variance) * rng.standard_normal((n, *mean.shape))


if not hasattr(levels, "StructuralLevel"):
    levels.StructuralLevel = NaiveLevel  # type: ignore[attr-defined]
