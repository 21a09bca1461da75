"""What a network has to prove, and against which forecasts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import StructuralForecaster
from sklode.data.observations import Observations
from sklode.data.origins import Units
from sklode.levels.components import least_of
from sklode.levels.structural import StructuralLevel
from sklode.training import validation
from sklode.training.validation import Proof, held_out_rows, proved_share
from tests.series import two_sines


@pytest.mark.parametrize(
    ("products", "squares", "low", "high"),
    [
        ([1.0] * 4, [1.0] * 4, 1.0, 1.0),
        ([1.0] * 4, [2.0] * 4, 0.5, 0.5),
        ([-1.0] * 4, [1.0] * 4, 0.0, 0.0),
        ([3.0, -1.0] * 2, [1.0] * 4, 0.0, 1.0),
        ([1.1, 0.9] * 2, [1.0] * 4, 1.0, 1.0),  # one, and no less than 0.9
        ([0.8] * 4, [1.0] * 4, 0.8, 0.8),
        # 0.7, give or take 2.35 * 0.058
        ([0.8, 0.6] * 2, [1.0] * 4, 0.7, 0.7 + 2.3534 * 0.1 / 3**0.5),
        ([1.0] * 3, [1.0] * 3, 0.0, 1.0),
        ([0.0] * 4, [0.0] * 4, 0.0, 1.0),
        ([np.nan] * 4, [1.0] * 4, 0.0, 1.0),
    ],
)
def test_a_share_is_what_clusters_prove(
    products: list[float], squares: list[float], low: float, high: float
) -> None:
    found = proved_share(np.array(products), np.array(squares))
    assert found == pytest.approx((low, high), abs=1e-4)


def many(n_series: int, n: int) -> Observations:
    rng = np.random.default_rng(0)
    parts = {k: pd.DataFrame({"y": rng.normal(size=n)}) for k in range(n_series)}
    return Observations.from_frame(pd.concat(parts, names=["series", "t"]))


def test_ends_of_few_series_and_every_fifth_of_many_short_ones_are_held_out() -> None:
    rng = np.random.RandomState(0)
    cut, whole = held_out_rows(many(3, 50), rng)
    assert (cut.tolist(), whole) == ([40, 90, 140], False)
    cut, whole = held_out_rows(many(30, 20), rng)
    first, end = np.arange(30) * 20, np.arange(1, 31) * 20
    assert whole
    assert ((cut == end) | (cut == first)).all()
    assert (cut == first).sum() == 6


@pytest.fixture(scope="module")
def proof() -> tuple[Any, Observations, StructuralLevel]:
    y, _ = two_sines(0, 400)
    rows = Observations.from_frame(y.to_frame())
    cut, whole = held_out_rows(rows, np.random.RandomState(0))
    level = StructuralLevel.fit(rows.until(cut))
    units = Units.of(rows.until(cut), level.unit, least_of(level.channels))
    return Proof(rows, cut, whole, level, units, 24, 30.0), rows, level


def test_the_level_forecasts_as_it_would_for_who_has_seen_the_rows_up_to_an_origin(
    proof: tuple[Any, Observations, StructuralLevel],
) -> None:
    made, _, level = proof
    y, _ = two_sines(0, 400)
    asked = made._asked
    for window in (0, 7):
        mine = asked.questions.window == window
        rows = asked.questions.row[mine]
        # the first of them follows the origin
        seen = y.iloc[: rows.min()]
        forecaster = StructuralForecaster().fit(seen)
        forecaster._set_model(
            type(forecaster._model)(**{**vars(forecaster._model), "level": level})
        )
        expected = forecaster.predict_at(y.index[rows]).to_numpy()[:, 0]
        np.testing.assert_allclose(asked.median[mine], expected, rtol=1e-6)


class Says:
    """A network that says what a function of the truth and the level's median says."""

    def __init__(self, made: Any, of: Any) -> None:
        asked = made._asked
        truth = asked.median + asked.error * asked.deviation
        self.change = of(asked.error, np.random.default_rng(0))
        self.truth = truth


@pytest.mark.parametrize(
    ("of", "low", "high"),
    [
        (lambda e, rng: e, 0.99, 1.0),
        (lambda e, rng: 2 * e, 0.4, 0.55),
        (lambda e, rng: rng.normal(size=len(e)), 0.0, 0.15),
        (lambda e, rng: -e, 0.0, 0.0),
    ],
)
def test_a_network_counts_as_far_as_it_is_right(
    proof: tuple[Any, Observations, StructuralLevel],
    monkeypatch: pytest.MonkeyPatch,
    of: Any,
    low: float,
    high: float,
) -> None:
    made = proof[0]
    says = Says(made, of)
    monkeypatch.setattr(made, "change", lambda network: says.change)
    found = made.stacking(None)
    share = 0.0 if found is None else float(found.weights.mean())
    assert low <= share <= high
    assert made.has_prospects(None) is (low > 0)
    if found is not None and low > 0.9:  # nothing is left
        assert (found.factors < 0.01).all()
        assert found.at(0, np.array([found.reach + 1]))[0] == 0.0


def test_too_few_rows_prove_nothing() -> None:
    assert not validation.can_prove(many(1, 200))
    assert validation.can_prove(many(60, 30))
