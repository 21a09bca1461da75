"""In gaps a network counts as far as it has proved to, where both sides are known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode.data.observations import Observations
from sklode.hybrid.guard import Validation
from sklode.hybrid.model import NetworkWeights
from tests.hybrid.test_guard import held_out, proof_of
from tests.hybrid.test_training import auto
from tests.series import waves

HOLE = 100, 180  # of integer stamps


def with_hole() -> pd.Series:
    y = waves(pd.RangeIndex(0, 300))
    return y[(y.index < HOLE[0]) | (y.index > HOLE[1])]


@pytest.fixture(scope="module")
def forecaster() -> Any:
    return auto(guard=False, max_epochs=2).fit(with_hole())


def moved(forecaster: Any, index: pd.Index, **weights: Any) -> np.ndarray:
    """Return forecasts by a model of other weights."""
    model = replace(forecaster._model, **weights)
    history = forecaster._history
    queries = history.queries(history.rows_at(index), None)
    found: np.ndarray = model.answers(history, 0, None).means(queries)[:, 0]
    return found


def even(weight: float, reach: float) -> NetworkWeights:
    return NetworkWeights.even(weight, 1, reach)


def test_in_a_gap_it_counts_by_the_distance_of_the_nearest_row(forecaster: Any) -> None:
    index = pd.RangeIndex(HOLE[0], HOLE[1] + 1)
    unit, reach = forecaster.time_unit_, 10.0
    without = moved(forecaster, index, gap_weights=None)
    found = moved(forecaster, index, gap_weights=even(1.0, reach))
    left = index.to_numpy() - (HOLE[0] - 1)
    nearest = np.minimum(left, HOLE[1] + 1 - index.to_numpy()) / unit
    counts = (nearest <= reach) & (left / unit <= forecaster.network_.reach)
    np.testing.assert_array_equal(found != without, counts)
    assert 0 < counts.sum() < len(counts)
    half = moved(forecaster, index, gap_weights=even(0.5, reach))
    np.testing.assert_allclose(half, (found + without) / 2, rtol=1e-6)


def test_elsewhere_gap_weights_say_nothing(forecaster: Any) -> None:
    # rows that were seen, stamps before the first one and after the last one
    index = pd.Index([-20, -1, 5, 50, 299, 305])
    kept = {"weights": even(0.3, 50.0)}
    with_gaps = moved(forecaster, index, gap_weights=even(1.0, 50.0), **kept)
    np.testing.assert_array_equal(
        with_gaps, moved(forecaster, index, gap_weights=None, **kept)
    )


def test_what_lies_beyond_a_gap_is_not_shown_to_the_network(forecaster: Any) -> None:
    y = with_hole()
    other = y.copy()
    other[other.index > HOLE[1]] += 5.0
    targets = []
    for series in (y, other):
        own = auto(guard=False, max_epochs=2).fit(series)
        own._model = replace(forecaster._model, gap_weights=even(1.0, 50.0))
        seen = own._history.observations
        row = np.array([HOLE[0] - 1])
        found = own._model.forecasts(seen, own._history.rows, row, np.array([4.0]))
        targets.append(found)
    np.testing.assert_allclose(targets[0], targets[1], rtol=1e-6)


@pytest.fixture(scope="module")
def in_gaps() -> tuple[Validation, Observations]:
    walk = np.random.default_rng(0).normal(size=220).cumsum()
    y = pd.Series(walk, name="walk")
    rows = Observations.from_frame(y.to_frame())
    cut, level, units = held_out(rows)
    model = proof_of(rows, 24, cut, level, units).model
    made = Validation.of(
        rows, every=rows, cut=cut, structural=level, model=model, in_gaps=True
    )
    return made, rows


def test_gaps_are_judged_where_both_sides_are_known(
    in_gaps: tuple[Validation, Observations],
) -> None:
    made, rows = in_gaps
    unit = made.model.units.time
    windows = np.unique(made.queries.window)
    assert len(windows) > 20
    lengths = []
    for window in windows:
        mine = made.queries.window == window
        first, end = made.before.bounds[window : window + 2]
        seen = made.before.ticks[first:end]
        asked = rows.ticks[made.queries.row[mine]]
        assert not np.isin(asked, seen).any()
        left = seen[seen < asked.min()].max()
        right = seen[seen > asked.max()].min()
        # all that lies between is left out
        between = (rows.ticks > left) & (rows.ticks < right)
        assert between.sum() >= mine.sum()
        nearest = np.minimum(asked - left, right - asked) / unit
        np.testing.assert_allclose(made.distance[mine], nearest)
        lengths.append((right - left) / unit)
    assert max(lengths) > 3 * min(lengths)
    assert max(lengths) <= 1.5 * made.model.reach


def test_the_level_knows_both_sides(in_gaps: tuple[Validation, Observations]) -> None:
    made, rows = in_gaps
    cut, level, units = held_out(rows)
    ahead = proof_of(rows, 24, cut, level, units)
    # of the same rows, asked from the same origins
    errors = []
    keys = made.queries.window * len(rows.ticks) + made.queries.row
    others = ahead.queries.window * len(rows.ticks) + ahead.queries.row
    both, place, other = np.intersect1d(keys, others, return_indices=True)
    assert len(both) > 100
    for proof, which in ((made, place), (ahead, other)):
        errors.append(np.abs(proof.error * proof.deviation)[which].mean())
    assert errors[0] < 0.8 * errors[1]
