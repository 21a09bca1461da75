"""What a network has to prove, and against which forecasts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from sklode import StructuralForecaster
from sklode.data.history import History
from sklode.data.observations import Observations
from sklode.data.scaling import Units
from sklode.hybrid.controls import ControlForms
from sklode.hybrid.guard import (
    Evidence,
    Validation,
    _usual,
    best_weight,
    has_prospects,
    network_weights_of,
    width_of,
)
from sklode.hybrid.model import HybridModel, NetworkWeights
from sklode.hybrid.network import build_network
from sklode.hybrid.restarts import stage
from sklode.structural import fit as levels
from sklode.structural.candidates import links_of
from sklode.structural.fit import fit_model
from sklode.structural.model import StructuralModel
from sklode.structural.predictive import limits
from sklode.training.preparation import held_out_rows
from tests.cases import mostly_slow, slow
from tests.series import channels, led, tiny, tiny_network, two_sines, uneven_stamps


def test_series_of_two_rows_prove_no_network() -> None:
    index = pd.MultiIndex.from_product([range(40), pd.date_range("2024", periods=2)])
    y = pd.DataFrame({"y": np.random.default_rng(0).normal(size=80)}, index)
    forecaster = tiny(model="hybrid", window_length=None).fit(y)
    assert forecaster.network_ is None
    expected = StructuralForecaster().fit(y).predict([1])
    pd.testing.assert_frame_equal(forecaster.predict([1]), expected)


@pytest.mark.parametrize(
    ("products", "squares", "best", "doubt"),
    [
        ([1.0] * 4, [1.0] * 4, 1.0, 0.0),
        ([1.0] * 4, [2.0] * 4, 0.5, 0.0),
        ([-1.0] * 4, [1.0] * 4, -1.0, 0.0),
        # the 90 % quantile of Student's t of 3 degrees, and the mean's error
        ([0.8, 0.6] * 2, [1.0] * 4, 0.7, 1.6377 * 0.1 / 3**0.5),
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


def held_out(rows: Observations) -> tuple[Any, StructuralModel, Units]:
    """Return the first held-out rows, and the level and the units of those before."""
    rng = np.random.RandomState(0)
    cut = held_out_rows(rows.bounds, share=0.2, of_series=False, rng=rng)
    level = fit_model(rows.until(cut))
    units = Units.robust(
        rows.until(cut),
        level.design.unit,
        links_of([c.candidates for c in level.columns]),
    )
    return cut, level, units


def proof_of(
    rows: Observations, n: int, cut: Any, level: StructuralModel, units: Units
) -> Any:
    """Return what a network of windows of ``n`` rows has to prove."""
    model = HybridModel(
        network=network_of(rows),
        units=units,
        clock=rows.clock,
        window_length=n,
        architecture={},
        structural=level,
        forms=ControlForms.of_columns(rows.sizes[1]),
    )
    return Validation.of(rows, every=rows, cut=cut, structural=level, model=model)


@pytest.fixture(scope="module")
def proof() -> tuple[Any, Observations, Any]:
    y, _ = two_sines(0, 400)
    rows = Observations.from_frame(y.to_frame())
    given = held_out(rows)
    return proof_of(rows, 24, *given), rows, given


def test_the_level_forecasts_as_it_would_for_who_has_seen_the_rows_up_to_an_origin(
    proof: tuple[Any, Observations, Any],
) -> None:
    made, _, (_, level, _) = proof
    y, _ = two_sines(0, 400)
    queries = made.queries
    forecaster: Any = StructuralForecaster().fit(y[:20])
    for window in (0, 7):
        mine = queries.window == window
        rows = queries.row[mine]
        # the first of them follows the origin
        seen = y.iloc[: rows.min()]
        forecaster._history = History.of(seen.to_frame(), None)
        forecaster._set_model(replace(forecaster._model, structural=level))
        expected = forecaster.predict_at(y.index[rows])
        np.testing.assert_allclose(made.median[mine], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("of", "low", "high"),
    [
        (lambda e, rng: e, 0.99, 1.0),
        (lambda e, rng: 2 * e, 0.2, 0.25),
        (lambda e, rng: rng.normal(size=len(e)), 0.0, 0.15),
        (lambda e, rng: -e, 0.0, 0.0),
    ],
)
def test_a_network_counts_as_far_as_it_is_right(
    proof: tuple[Any, Observations, Any],
    of: Any,
    low: float,
    high: float,
) -> None:
    made = proof[0]
    evidence = made.evidence()
    change = of(evidence.error, np.random.default_rng(0))
    evidence = evidence._replace(change=change)
    found = network_weights_of([evidence], 1, of_blocks=True)
    share = 0.0 if found is None else float(found.weights.mean())
    assert low <= share <= high
    assert has_prospects(evidence, 1) is (low > 0)
    if found is not None and low > 0.9:  # nothing is left
        assert (found.factors < 0.01).all()
        assert not found.at(np.array([found.reach + 1]))[0].any()
        assert found.most.max() == np.abs(change).max()


def evidence(gain: float, spread: float = 1.0) -> Evidence:
    """Return that of a fold of time where a network is right by a share."""
    rng = np.random.default_rng(0)
    place = np.arange(600)
    change = spread * rng.normal(size=600)
    error = gain * change + 0.3 * rng.normal(size=600)
    lead = 1.0 + place % 20
    return Evidence(place // 100, 0 * place, lead, error, change, np.ones(600))


@pytest.mark.parametrize(
    ("gains", "weight"),
    [((0.8,), 0.8), ((0.8, 0.8), 0.8), ((0.8, 0.3), 0.3), ((0.8, -0.2), 0.0)],
)
def test_a_network_counts_as_far_as_on_every_fold_of_time(
    gains: tuple[float, ...], weight: float
) -> None:
    each = [evidence(gain) for gain in gains]
    found = network_weights_of(each, 1, of_blocks=True)
    share = 0.0 if found is None else float(found.weights.mean())
    n = 6 * len(gains)  # clusters, which are shrunk by eight without a gain
    assert share == pytest.approx(weight * n / (n + 8), abs=0.03)


def of_series(gains: list[float], lengths: list[int]) -> Evidence:
    """Return that of channels in so many series, where a network is right by a share.

    Five answers each.
    """
    rng = np.random.default_rng(0)
    parts = []
    for channel, (gain, n) in enumerate(zip(gains, lengths, strict=True)):
        series = np.repeat(np.arange(n), 5)
        change = rng.normal(size=5 * n)
        error = gain * change + 0.3 * rng.normal(size=5 * n)
        lead = 1.0 + np.arange(5 * n) % 5
        columns = np.full(5 * n, channel), lead, error, change, np.ones(5 * n)
        parts.append(Evidence(series, *columns))
    both = zip(*parts, strict=True)
    return Evidence._make(np.concatenate(column) for column in both)


@pytest.mark.parametrize(
    ("gains", "lengths", "expected"),
    [
        ([0.8], [300], [0.8]),
        ([0.8, 0.2], [300, 300], [0.8, 0.2]),
        # what three series tell is next to nothing: they count as all do
        ([0.7, 0.7, -1.0], [300, 300, 3], [0.7, 0.7, 0.5]),
        # a channel that is never seen is not known to gain anything
        ([0.8, 0.8], [300, 0], [0.8, 0.0]),
        # of all together nothing is sure, of one there is
        ([0.0, 0.0, 0.9], [300, 300, 300], [0.03, 0.03, 0.9]),
    ],
)
def test_weights_of_many_series_shrink_towards_what_channels_share(
    gains: list[float], lengths: list[int], expected: list[float]
) -> None:
    found = network_weights_of([of_series(gains, lengths)], len(gains), of_blocks=False)
    assert found is not None
    np.testing.assert_allclose(found.weights.mean(0), expected, atol=0.08)


def test_where_many_series_tell_of_no_gain_nothing_counts() -> None:
    lost = [of_series([-0.3, -0.1], [100, 100])]
    assert network_weights_of(lost, 2, of_blocks=False) is None


def test_what_is_nearly_exact_mostly_sets_no_usual_width() -> None:
    """Of a channel that is sure of most values errors are no multiples of nothing."""
    sure = np.where(np.arange(100) % 4 < 3, 1e-12, 1.0)
    deviation = np.append(sure, 1e-5 + 0.0 * sure)
    found = _usual(deviation, channel=np.repeat([0, 1], 100))
    np.testing.assert_array_equal(np.unique(found), [1e-5, 0.01, 1.0])


def test_a_level_that_is_nearly_exact_is_not_moved() -> None:
    # errors of a deviation, and changes of a thousand, on one side by chance
    exact = evidence(0.0, spread=1000.0)
    found = network_weights_of(
        [exact._replace(change=np.abs(exact.change) + 2.0)], 1, True
    )
    assert found is None or found.weights.max() < 1e-3


@pytest.mark.slow
def test_what_acts_late_is_forecast_as_it_would_be_at_an_origin() -> None:
    """Also where another column's rows after the origin would tell it."""
    y = led(180)
    rows = Observations.from_frame(y)
    cut, level, units = held_out(rows)
    assert any(effect.is_delayed for effect in level.design.effects)
    made = proof_of(rows, 24, cut, level, units)
    queries, before = made.queries, made.before
    forecaster: Any = StructuralForecaster(seasons=None, logarithm=False).fit(y[:20])
    ahead = set()
    for window in np.unique(queries.window)[::4]:
        mine = queries.window == window
        n_seen = before.lengths[window]
        forecaster._history = History.of(y.iloc[:n_seen], None)
        forecaster._set_model(replace(forecaster._model, structural=level))
        steps = queries.lead[mine].round().astype(int)
        found = forecaster.predict_at(y.index[n_seen - 1 + np.unique(steps)]).to_numpy()
        found = found[np.searchsorted(np.unique(steps), steps), queries.channel[mine]]
        # medians of what is uncertain twice; forecasts take a line at its mean
        apart = np.abs(made.median[mine] - found) / made.deviation[mine]
        assert apart.max() < 0.02
        ahead |= set(steps)
    assert max(ahead) > 3


@pytest.mark.slow
def test_rows_after_an_origin_are_not_seen_there(
    proof: tuple[Any, Observations, Any],
) -> None:
    made, rows, given = proof
    changed = rows.values.copy()
    changed[360:] += 50 * np.random.default_rng(0).normal(size=(40, 1))
    other_rows = replace(rows, values=changed)
    other = proof_of(other_rows, 24, *given)
    origin = made.before.lengths - 1
    is_before = origin[made.queries.window] < 360
    assert 0 < is_before.sum() < len(is_before)
    lead, reach = made.queries.lead, made.model.reach
    for which, of in (
        (lead > 0, lambda p: p.median),
        (lead > 0, lambda p: p.deviation),
        (lead <= reach, lambda p: p.evidence().change),
        (lead > stage(reach), lambda p: p.evidence(restarts=True).change),
    ):
        before = is_before[which]
        np.testing.assert_array_equal(of(made)[before], of(other)[before])
        assert not (of(made)[~before] == of(other)[~before]).all()


def network_of(rows: Observations) -> Any:
    """Return an untrained network whose answers differ from one origin to another."""
    n_controls = 0 if rows.controls is None else rows.controls.shape[1]
    torch.manual_seed(0)
    made = build_network(tiny_network(), rows.values.shape[1], n_controls, 30.0)
    with torch.no_grad():
        made.own_lines.normal_()
        out: Any = made.out
        out[2].weight.mul_(20)
    return made.eval()


@pytest.mark.usefixtures("as_a_normal")
@pytest.mark.parametrize("every", [15, slow(5)])
@pytest.mark.parametrize(
    "kind", mostly_slow(["alike", "of unequal scale", "logarithms"])
)
def test_what_is_proved_of_a_network_is_what_it_forecasts_afterwards(
    kind: str, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    # what is widened and uncertain by another column too has another median
    monkeypatch.setattr(levels, "likely_delays", lambda tables, gaps: [[]] * 2)
    cut, level, units = held_out(rows)
    assert units.of_series is (kind == "of unequal scale")
    assert all(x.is_logarithm for x in units.links) == (kind == "logarithms")
    # networks that have learned nothing may move forecasts as far as they will
    monkeypatch.setattr(limits, "BOUNDS", np.inf)
    proof = proof_of(rows, 12, cut, level, units)
    queries, change = proof.queries, proof.evidence().change
    proved = proof.median + change * proof.deviation
    model = replace(proof.model, weights=NetworkWeights.even(1.0, 2, 30.0))
    forecaster, places = tiny(model="hybrid").fit(y, X=X), y.index
    lengths = proof.before.lengths
    for window in np.unique(queries.window)[::every]:
        mine = queries.window == window
        key = rows.series[queries.row[mine][0]]
        parts = {0: y.loc[[0]], 1: y.loc[[1]]}
        parts[key] = parts[key].iloc[: lengths[window]]
        seen = pd.concat(parts.values())
        forecaster._history = History.of(seen, X.loc[seen.index])
        stamps = places[queries.row[mine]]
        # of both, and of the structural model alone
        for chosen, expected in (
            (model, proved),
            (replace(model, weights=None), proof.median),
        ):
            forecaster._set_model(chosen)
            # of a logarithm forecasts are means, and what is proved are medians
            table = forecaster.predict_quantiles(
                stamps.unique(), X=X.loc[[key]], alpha=[0.5]
            )
            row = table.index.get_indexer(stamps)
            found = table.to_numpy()[row, queries.channel[mine]]
            if kind == "logarithms":
                found = np.log(found)
            np.testing.assert_allclose(expected[mine], found, rtol=1e-4, atol=1e-4)


# How wide what is left of errors is


def test_many_errors_have_the_scale_of_a_normal() -> None:
    errors = 3.0 * np.random.default_rng(0).standard_normal(4000)
    found = width_of(np.abs(errors), np.arange(4000))
    assert found == pytest.approx(3.0, rel=0.03)


def test_few_clusters_tell_less_than_as_many_errors() -> None:
    rng = np.random.default_rng(0)
    covered: dict[str, list[bool]] = {"series": [], "rows": []}
    for _ in range(400):
        # series of errors of a size of their own, and one that is not known yet
        sizes = np.exp(rng.standard_normal(11))
        errors = np.abs(rng.standard_normal((11, 20)) * sizes[:, None])
        series = np.repeat(np.arange(10), 20)
        for name, cluster in (("series", series), ("rows", np.arange(200))):
            width = width_of(errors[:10].ravel(), cluster)
            covered[name] += (errors[10] < 1.6449 * width).tolist()
    shares = {name: np.mean(inside) for name, inside in covered.items()}
    assert 0.86 < shares["series"] < 0.95
    assert shares["rows"] < shares["series"] - 0.02


def test_a_lone_cluster_is_as_wide_as_its_largest_error() -> None:
    sizes = np.abs(np.random.default_rng(0).standard_normal(100))
    found = width_of(sizes, np.zeros(100, dtype=np.int64))
    growth = found / width_of(sizes, np.arange(100))
    assert growth == pytest.approx(sizes.max() / np.quantile(sizes, 0.9), rel=0.05)


def test_no_error_at_all_has_no_width() -> None:
    assert width_of(np.zeros(50), np.arange(50) % 5) == 0.0
