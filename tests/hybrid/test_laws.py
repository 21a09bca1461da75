"""What a law that a panel shares tells: before the first rows, in gaps, and after."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import solve_ivp

from sklode import LatentODELSTMForecaster, StructuralForecaster

# in minutes; rows are between 8 and 38, but not in the gap
BEFORE, GAP = np.linspace(2, 7.5, 9), np.linspace(20.5, 26.5, 9)
AFTER = np.linspace(60, 70, 10)


class Law(NamedTuple):
    """A network that was fitted, and what it is asked for."""

    y: pd.DataFrame
    forecaster: Any
    truth: dict[str, pd.DataFrame]

    def error(self, part: str, forecaster: Any) -> float:
        """Return the mean absolute error over that of zero."""
        truth = self.truth[part]
        missed = forecaster.predict_at(truth.index) - truth
        return float(missed.abs().mean().item() / truth.abs().mean().item())

    def held(self, part: str) -> float:
        """Return which share of true values is within 90 % intervals."""
        truth = self.truth[part]
        ends = self.forecaster.predict_interval(truth.index, coverage=0.9)
        inside = (truth.to_numpy() - ends.to_numpy()) * [1, -1] > 0
        return float(inside.all(axis=1).mean())


@pytest.fixture(scope="module")
def law() -> Law:
    """Return 40 pendulums that are let go at angles of their own."""
    rng, start = np.random.default_rng(0), pd.Timestamp("2026-01-01")
    asked = {"seen": np.zeros(0), "before": BEFORE, "gap": GAP, "after": AFTER}
    parts: dict[str, dict[int, pd.DataFrame]] = {name: {} for name in asked}
    for key in range(40):
        angle = solve_ivp(
            lambda _, s: [s[1], -np.sin(s[0]) - 0.02 * s[1]],
            (0, AFTER[-1]),
            (rng.uniform(0.5, 2.0), 0.0),
            dense_output=True,
            rtol=1e-7,
        ).sol
        minutes = np.sort(rng.uniform(8, 38, 40))
        in_gap = (minutes > GAP[0] - 0.5) & (minutes < GAP[-1] + 0.5)
        asked["seen"] = minutes[~in_gap]
        for name, at in asked.items():
            noise = 0.05 * (name == "seen") * rng.normal(size=len(at))
            stamps = (start + pd.to_timedelta(at, "min")).round("ms")
            parts[name][key] = pd.DataFrame({"angle": angle(at)[0] + noise}, stamps)
    tables = {name: pd.concat(part, names=["series"]) for name, part in parts.items()}
    y = tables.pop("seen")
    return Law(y, LatentODELSTMForecaster(random_state=0).fit(y), tables)


@pytest.mark.slow
def test_a_law_tells_what_came_before(law: Law) -> None:
    error = law.error("before", law.forecaster)
    assert error < 0.35
    assert error < 0.55 * law.error("before", StructuralForecaster().fit(law.y))


@pytest.mark.slow
def test_a_law_fills_gaps(law: Law) -> None:
    assert law.error("gap", law.forecaster) < 0.15
    assert law.held("gap") > 0.8
    assert "in gaps" in law.forecaster.summary(origins=0)["network"]


@pytest.mark.slow
def test_a_law_is_followed_a_span_past_the_longest_series(law: Law) -> None:
    assert law.error("after", law.forecaster) < 0.35
    assert law.held("after") > 0.75
    assert "after a series' last row" in law.forecaster.summary(origins=0)["network"]
