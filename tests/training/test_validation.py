"""What a network has to prove, and against which forecasts."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from sklode import StructuralForecaster
from sklode.data.history import History
from sklode.data.observations import Observations
from sklode.data.scaling import Units
from sklode.levels.components import least_of
from sklode.levels.level import Level
from sklode.prediction.ahead import AheadModel, Stacking
from sklode.prediction.model import build_network
from sklode.training import validation
from sklode.training.parameters import Settings
from sklode.training.validation import Validation, best_weight, held_out_rows
from tests.series import channels, tiny, two_sines, uneven_stamps


@pytest.mark.parametrize(
    ("products", "squares", "best", "doubt"),
    [
        ([1.0] * 4, [1.0] * 4, 1.0, 0.0),
        ([1.0] * 4, [2.0] * 4, 0.5, 0.0),
        ([-1.0] * 4, [1.0] * 4, -1.0, 0.0),
        # the 95 % quantile of Student's t of 3 degrees, and the mean's error
        ([0.8, 0.6] * 2, [1.0] * 4, 0.7, 2.3534 * 0.1 / 3**0.5),
        ([1.0] * 3, [1.0] * 3, 0.0, np.inf),
        ([0.0] * 4, [0.0] * 4, 0.0, np.inf),
        ([np.nan] * 4, [1.0] * 4, 0.0, np.inf),
    ],
)
def test_the_best_weight_is_known_as_well_as_clusters_agree(
    products: list[float], squares: list[float], best: float, doubt: float
) -> None:
    found = best_weight(np.array(products), np.array(squares))
    assert found == pytest.approx((best - doubt, best, best + doubt), abs=1e-4)


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
def proof() -> tuple[Any, Observations, Level]:
    y, _ = two_sines(0, 400)
    rows = Observations.from_frame(y.to_frame())
    cut, whole = held_out_rows(rows, np.random.RandomState(0))
    level = Level.fit(rows.until(cut))
    units = Units.robust(rows.until(cut), level.unit, least_of(level.channels))
    return Validation(rows, cut, whole, level, units, 24, 30.0), rows, level


def test_the_level_forecasts_as_it_would_for_who_has_seen_the_rows_up_to_an_origin(
    proof: tuple[Any, Observations, Level],
) -> None:
    made, _, level = proof
    y, _ = two_sines(0, 400)
    asked = made.asked
    for window in (0, 7):
        mine = asked.window == window
        rows = asked.row[mine]
        # the first of them follows the origin
        seen = y.iloc[: rows.min()]
        forecaster = StructuralForecaster().fit(seen)
        forecaster._set_model(
            type(forecaster._model)(**{**vars(forecaster._model), "level": level})
        )
        expected = forecaster.predict_at(y.index[rows]).to_numpy()[:, 0]
        np.testing.assert_allclose(made.median[mine], expected, rtol=1e-6)


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
    proof: tuple[Any, Observations, Level],
    monkeypatch: pytest.MonkeyPatch,
    of: Any,
    low: float,
    high: float,
) -> None:
    made = proof[0]
    change = of(made.error, np.random.default_rng(0))
    monkeypatch.setattr(made, "change", lambda network: change)
    found = made.stacking(None)
    share = 0.0 if found is None else float(found.weights.mean())
    assert low <= share <= high
    assert made.has_prospects(None) is (low > 0)
    if found is not None and low > 0.9:  # nothing is left
        assert (found.factors < 0.01).all()
        assert found.at(0, np.array([found.reach + 1]))[0] == 0.0


def test_too_few_rows_prove_nothing() -> None:
    assert not validation.can_validate(many(1, 200))
    assert validation.can_validate(many(60, 30))


def test_rows_after_an_origin_are_not_seen_there(
    proof: tuple[Any, Observations, Level],
) -> None:
    made, rows, level = proof
    changed = rows.values.copy()
    changed[360:] += 50 * np.random.default_rng(0).normal(size=(40, 1))
    other_rows = replace(rows, values=changed)
    cut, whole = held_out_rows(rows, np.random.RandomState(0))
    units = Units.robust(rows.until(cut), level.unit, least_of(level.channels))
    other = Validation(other_rows, cut, whole, level, units, 24, 30.0)
    network = network_of(rows, units)
    origin = made.last - made.origins.bounds[:-1]
    before = origin[made.asked.window] < 360
    assert 0 < before.sum() < len(before)
    for of in (
        lambda p: p.median,
        lambda p: p.deviation,
        lambda p: p.change(network),
    ):
        np.testing.assert_array_equal(of(made)[before], of(other)[before])
        assert not (of(made)[~before] == of(other)[~before]).all()


def network_of(rows: Observations, units: Units) -> Any:
    """Return an untrained network whose answers differ from one origin to another."""
    n_controls = 0 if rows.controls is None else rows.controls.shape[1]
    settings = SimpleNamespace(**vars(Settings.of(tiny(level="auto"))))
    settings.encoder = "ode-lstm"
    torch.manual_seed(0)
    made = build_network(settings, rows.values.shape[1], n_controls, 30.0, False)
    with torch.no_grad():
        made.own_lines.normal_()
        made.out[2].weight.mul_(20)
    return made.eval()


@pytest.mark.parametrize("kind", ["alike", "of unequal scale", "logarithms"])
def test_what_is_proved_of_a_network_is_what_it_forecasts_afterwards(kind: str) -> None:
    parts = {k: channels(uneven_stamps(n, k)) for k, n in enumerate((60, 80))}
    y = pd.concat(parts, names=["series", "when"])
    if kind == "of unequal scale":
        y.iloc[:60] *= 1e4
    if kind == "logarithms":
        y = np.exp(y / 3 + np.append(np.arange(60), np.arange(80))[:, None] / 15)
    y.iloc[[10, 58, 70], 0] = np.nan
    noise = np.random.default_rng(0).normal(size=140)
    X = pd.DataFrame({"u": noise}, y.index)
    rows = Observations.from_frame(y, X)
    cut, whole = held_out_rows(rows, np.random.RandomState(0))
    level = Level.fit(rows.until(cut))
    units = Units.robust(rows.until(cut), level.unit, least_of(level.channels))
    assert units.of_series is (kind == "of unequal scale")
    assert np.isfinite(units.least).all() == (kind == "logarithms")
    network = network_of(rows, units)
    proof = Validation(rows, cut, whole, level, units, 12, 30.0)
    asked, change = proof.asked, proof.change(network)
    proved = proof.median + change * proof.deviation
    ones = np.ones((1, 2))
    stacking = Stacking(np.zeros(1), ones, ones, 30.0)
    model = AheadModel(
        *(network, units, rows.clock, 12, {}), level=level, stacking=stacking
    )
    forecaster, places = tiny(level="auto").fit(y, X=X), y.index
    lengths = np.diff(proof.origins.bounds)
    for window in np.unique(asked.window)[::5]:
        mine = (asked.window == window) & (np.abs(change) < 6)  # which is clipped there
        if not mine.any():
            continue
        key = rows.series[asked.row[mine][0]]
        parts = {0: y.loc[[0]], 1: y.loc[[1]]}
        parts[key] = parts[key].iloc[: lengths[window]]
        seen = pd.concat(parts.values())
        forecaster._history = History.of(seen, X.loc[seen.index])
        stamps = places[asked.row[mine]]
        # of the level and the network, and of the level alone
        for chosen, expected in (
            (model, proved),
            (replace(model, stacking=None), proof.median),
        ):
            forecaster._set_model(chosen)
            table = forecaster.predict_at(stamps.unique(), X=X.loc[[key]])
            row = table.index.get_indexer(stamps)
            found = table.to_numpy()[row, asked.channel[mine]]
            if kind == "logarithms":
                found = np.log(found)
            np.testing.assert_allclose(expected[mine], found, rtol=1e-4, atol=1e-4)
