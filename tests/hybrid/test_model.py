"""Level and network together: one distribution, at every weight."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import StructuralForecaster
from sklode.hybrid import model as prediction
from sklode.hybrid import training as ahead
from sklode.hybrid.model import NetworkWeights
from sklode.structural.predictive import limits
from sklode.structural.predictive.scale_by_lead import VarianceInflation
from sklode.structural.predictive.steps import TO_DEVIATION
from sklode.structural.search import forms
from tests.cases import slow
from tests.series import tiny, uneven_stamps, waves

STEPS = [1, 2, 5, 9]
REACH = 30.0


def series(log: bool = False) -> pd.Series:
    y = waves(uneven_stamps(60))
    if log:
        return np.exp(0.3 * y + np.linspace(0, 3, 60))
    return y + np.linspace(20, 28, 60)  # so far above zero that nothing is cut off


def weights(weight: float, n_channels: int = 1, most: float = np.inf) -> NetworkWeights:
    leads, one = np.array([1.0, 10.0]), np.ones((2, n_channels))
    factors = 0.8 * one if weight else one
    most_of_each, own = np.full(n_channels, most), np.nan * one
    return NetworkWeights(leads, weight * one, factors, own, most_of_each, REACH)


def fitted(
    weight: float, y: Any, X: Any = None, most: float = np.inf, **settings: Any
) -> Any:
    """Return a forecaster whose network counts by a weight, whatever it proves.

    It moves forecasts by ``most`` deviations of these.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ahead, "_PROVING_ROWS", 0)
        patch.setattr(ahead, "has_prospects", lambda *_: True)
        found = weights(weight, most=most) if weight else None
        patch.setattr(ahead, "network_weights_of", lambda *_, **__: found)
        chosen = {"model": "hybrid", "max_epochs": 2, "lr": 0.05, **settings}
        return tiny(**chosen).fit(y, X=X)


@pytest.fixture(autouse=True)
def _no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let networks that have learned nothing move forecasts as far as they will."""
    for name in ("POINTS", "BOUNDS"):
        monkeypatch.setattr(limits, name, np.inf)


def medians(forecaster: Any, steps: list[int]) -> Any:
    return forecaster.predict_quantiles(steps, alpha=[0.5]).to_numpy()[:, 0]


@pytest.fixture(scope="module", params=[False, slow(True)], ids=["plain", "logarithm"])
def by_weight(request: pytest.FixtureRequest) -> dict[float, Any]:
    with pytest.MonkeyPatch.context() as patch:
        # no walk with drift: candidates are all of y, or all of its logarithm
        patch.setattr(forms, "_FEW", 0.01)
        return {w: fitted(w, series(request.param)) for w in (0.0, 0.3, 1.0)}


@pytest.mark.usefixtures("as_a_normal")
def test_forecasts_move_from_level_to_network(by_weight: dict[float, Any]) -> None:
    level, part, whole = by_weight.values()
    assert [f.network_share_ for f in by_weight.values()] == [0.0, 0.3, 1.0]
    assert part.network_weights_.to_numpy().tolist() == [[0.3], [0.3]]
    low, middle, high = (medians(f, STEPS) for f in (level, part, whole))
    is_log = bool(level.components_["logarithm"].iloc[0])
    if is_log:
        low, middle, high = map(np.log, (low, middle, high))
    assert np.abs(low - high).min() > 1e-3
    np.testing.assert_allclose(middle, 0.7 * low + 0.3 * high, rtol=1e-6)


@pytest.mark.usefixtures("as_a_normal")
def test_point_and_median_agree(by_weight: dict[float, Any]) -> None:
    for forecaster in by_weight.values():
        if not forecaster.components_["logarithm"].iloc[0]:  # whose forecasts are means
            point = forecaster.predict(STEPS)
            np.testing.assert_allclose(medians(forecaster, STEPS), point, rtol=1e-9)


def test_quantiles_variance_and_paths_agree(by_weight: dict[float, Any]) -> None:
    for forecaster in by_weight.values():
        alpha = [0.05, 0.5, 0.95]
        found = forecaster.predict_quantiles(STEPS, alpha=alpha).to_numpy()
        paths = forecaster.sample(STEPS, n_samples=3000).to_numpy().reshape(3000, -1)
        below = (paths[:, :, None] < found).mean(0)
        np.testing.assert_allclose(below, [alpha] * len(STEPS), atol=0.02)
        variance = forecaster.predict_var(STEPS).to_numpy()[:, 0]
        ratio = paths.std(0) / np.sqrt(variance)
        assert np.median(ratio) == pytest.approx(1.0, abs=0.04)


def test_before_and_between_observations_and_beyond_the_reach_the_structural_answers(
    by_weight: dict[float, Any],
) -> None:
    stamps = series().index
    unit = by_weight[0.0].time_unit_
    queries = stamps[3:50:7] + pd.Timedelta("7min")
    far = stamps[-1:] + (REACH + 0.1) * unit
    near = stamps[-1:] + (REACH - 0.1) * unit
    queries = queries.append([stamps[:1] - pd.Timedelta("1D"), far])
    expected = by_weight[0.0].predict_at(queries)
    for weight, forecaster in by_weight.items():
        pd.testing.assert_series_equal(forecaster.predict_at(queries), expected)
        adjusted = forecaster.predict_at(near) - by_weight[0.0].predict_at(near)
        assert bool((adjusted.abs() > 1e-6).all()) is (weight > 0)


@pytest.fixture(scope="module")
def structural() -> StructuralForecaster:
    return StructuralForecaster().fit(series())


@pytest.fixture(scope="module")
def network() -> Any:
    """Return a forecaster whose network counts whole."""
    return fitted(1.0, series())


def test_without_a_weight_it_is_the_structural_forecaster(
    structural: StructuralForecaster,
) -> None:
    forecaster = fitted(0.0, series())
    assert forecaster.network_ is None
    for answer in (
        lambda f: f.predict([-3, 1, 9]),
        lambda f: f.predict_interval(STEPS),
        lambda f: f.predict_var(STEPS),
        lambda f: f.components_,
    ):
        left, right = answer(forecaster), answer(structural)
        pd.testing.assert_frame_equal(pd.DataFrame(left), pd.DataFrame(right))


def test_it_is_the_structural_forecaster_where_rows_have_X_alone() -> None:
    rng = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", periods=220)
    X = pd.DataFrame({"u": rng.normal(size=220)}, days)
    X.iloc[50:90] += 30  # where y is missing: the scale of X is that of all rows
    y = pd.Series(10 + 2 * X["u"].to_numpy() + rng.normal(size=220), days)
    y.iloc[50:90] = np.nan
    seen, ahead = slice(None, 200), X.iloc[200:]
    structural = StructuralForecaster().fit(y.iloc[seen], X=X.iloc[seen])
    hybrid = tiny(model="hybrid").fit(y.iloc[seen], X=X.iloc[seen])
    assert not hybrid.network_share_
    assert hybrid._model.units.time == hybrid._model.structural.design.unit
    expected = structural.predict(range(1, 21), X=ahead)
    pd.testing.assert_series_equal(hybrid.predict(range(1, 21), X=ahead), expected)


def test_weights_and_factors_are_linear_between_leads() -> None:
    weights, factors = np.array([[0.2], [0.6]]), np.array([[2.0], [1.0]])
    made = NetworkWeights(
        np.array([2.0, 4.0]), weights, factors, factors, np.ones(1), 6.0
    )
    weight, factor, _ = made.at(np.array([-1.0, 1.0, 3.0, 6.0, 6.1]))
    np.testing.assert_allclose(weight[:, 0], [0, 0.2, 0.4, 0.6, 0])
    np.testing.assert_allclose(factor[:, 0], [1, 2.0, 1.5, 1.0, 1])


@pytest.mark.usefixtures("as_a_normal")
def test_a_network_moves_forecasts_no_farther_than_it_was_proved(
    structural: StructuralForecaster, network: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # deviations are those before errors of late make a level's intervals wider
    monkeypatch.setattr(
        VarianceInflation, "at", lambda self, ahead: np.ones(len(ahead))
    )
    stamps = [1, 3, 9]
    low, high = structural.predict_interval(stamps, coverage=0.9).to_numpy().T
    free, limited = (
        one.predict(stamps) - structural.predict(stamps)
        for one in (network, fitted(1.0, series(), most=0.5))
    )
    most = 0.5 * (high - low) / TO_DEVIATION
    np.testing.assert_allclose(limited, np.clip(free, -most, most), rtol=1e-6)
    assert (np.abs(free) > most).any()


class OnAnotherDevice:
    """What a network on a graphics card answers with: not a thing numpy can read."""

    def __init__(self, tensor: Any) -> None:
        self.cpu = lambda: tensor.double()

    def double(self) -> Any:
        return self


def test_a_network_is_judged_on_the_device_where_it_trains(
    by_weight: dict[float, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    forecaster = by_weight[1.0]
    before, network = forecaster.predict([1, 3]), forecaster.network_
    answer = network.predict
    monkeypatch.setattr(network, "predict", lambda x: OnAnotherDevice(answer(x)))
    np.testing.assert_array_equal(forecaster.predict([1, 3]), before)


def test_where_a_network_overflows_the_structural_answers(
    structural: StructuralForecaster, network: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamps = [1, 3, 9]
    level = structural.predict(stamps)
    whole = network.predict(stamps)
    forecasts = prediction.HybridModel.forecasts

    def overflowing(*given: Any, **named: Any) -> Any:
        table = forecasts(*given, **named)
        table[1] = np.inf
        return table

    monkeypatch.setattr(prediction.HybridModel, "forecasts", overflowing)
    with pytest.warns(RuntimeWarning, match=r"got 1 of 3 rows .*structural model answ"):
        found = network.predict(stamps)
    assert found.iloc[1] == pytest.approx(level.iloc[1])
    np.testing.assert_allclose(found.iloc[[0, 2]], whole.iloc[[0, 2]])


def test_controls_that_are_given_ahead_move_the_networks_forecast() -> None:
    y = series()
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"u": rng.standard_normal(60)}, y.index)
    forecaster = fitted(1.0, y[:50], X[:50], max_epochs=5)
    one, other = (
        forecaster.predict(y.index[50:], X=X[50:] * sign) for sign in (1.0, -1.0)
    )
    assert bool(((one - other).abs() > 1e-4).all(axis=None))


def family(unequal: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return five series with controls; ``unequal``: of very different spreads."""
    sizes = [1.0, 1.0, 1.0, 500.0, 500.0] if unequal else [1.0] * 5
    parts = {
        f"s{k}": size * waves(uneven_stamps(14 + k, k), k).to_frame("y")
        for k, size in enumerate(sizes)
    }
    y = pd.concat(parts, names=["series", "when"])
    u = np.random.default_rng(0).standard_normal(len(y))
    return y, pd.DataFrame({"u": u}, y.index)


@pytest.mark.parametrize("unequal", [slow(False), True], ids=["pooled", "own units"])
@pytest.mark.parametrize("controlled", [slow(False), True], ids=["alone", "with X"])
def test_a_series_is_answered_alike_whatever_others_are_asked(
    monkeypatch: pytest.MonkeyPatch, unequal: bool, controlled: bool
) -> None:
    y, X = family(unequal)
    late = y.groupby(level=0).cumcount(ascending=False).to_numpy() < 3
    forecaster = fitted(1.0, y[~late], X[~late] if controlled else None)
    assert forecaster._model.units.of_series is unequal
    queries = y.index[late]
    given = X[late] if controlled else None
    together = forecaster.predict_at(queries, X=given)
    level = StructuralForecaster().fit(y[~late], X[~late] if controlled else None)
    assert (together - level.predict_at(queries, X=given)).abs().min(axis=None) > 1e-6
    # float32, whose sums some processors round by how many are asked at once
    near: dict[str, Any] = {"rtol": 1e-5, "atol": 4e-6}
    for key in ("s0", "s4"):
        own = queries[queries.get_level_values(0) == key]
        alone = forecaster.predict_at(own, X=None if given is None else given.loc[own])
        pd.testing.assert_frame_equal(alone, together.loc[own], **near)
    backward = forecaster.predict_at(queries[::-1], X=given)
    pd.testing.assert_frame_equal(backward, together[::-1], **near)
    monkeypatch.setattr(prediction, "_ANSWERS_AT_ONCE", 4)
    pd.testing.assert_frame_equal(
        forecaster.predict_at(queries, X=given), together, **near
    )


def test_leads_count_from_each_series_own_end() -> None:
    y, _ = family(unequal=False)
    network, level = fitted(1.0, y), fitted(0.0, y)
    ends = y.groupby(level=0).tail(1).index
    for lead, counts in ((REACH - 0.1, True), (REACH + 0.1, False)):
        rows = [(key, end + lead * network.time_unit_) for key, end in ends]
        queries = pd.MultiIndex.from_tuples(rows, names=y.index.names)
        expected = level.predict_at(queries)
        told: Any = nullcontext()
        if not counts:
            told = pytest.warns(RuntimeWarning, match="up to 2 h after .* 5 of 5 rows")
        with told:
            adjusted = network.predict_at(queries) - expected
        np.testing.assert_array_equal(adjusted.abs() > 1e-6, counts)


@pytest.mark.slow
def test_rows_without_a_value_before_the_first_one_change_nothing() -> None:
    y = series()
    early = pd.Series(np.nan, y.index[:9] - pd.Timedelta("3D"))
    both = pd.concat([early, y]).rename(y.name)
    found = [fitted(1.0, one, freq="min").predict(STEPS) for one in (y, both)]
    pd.testing.assert_series_equal(*found)


@pytest.mark.slow
def test_rows_that_lay_ahead_are_the_levels_once_an_update_has_shown_them() -> None:
    y = series()
    forecaster = fitted(1.0, y[:50])
    level = StructuralForecaster().fit(y[:50])
    for known in (forecaster, level):
        known.update(y[50:], update_params=False)
    at = y.index[50:]  # which lay ahead
    expected = level.predict_at(at)
    pd.testing.assert_series_equal(forecaster.predict_at(at), expected)
    assert (forecaster.predict(STEPS) - level.predict(STEPS)).abs().min() > 1e-6


@pytest.mark.slow
def test_paths_and_quantiles_agree_while_a_network_counts_and_limits_bind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also of a logarithm that has run away, which the network starts from."""
    y = pd.Series(
        np.exp(np.r_[np.sin(np.arange(50) / 4), np.linspace(0, 9, 10)]),
        pd.date_range("2024-01-01", periods=60),
    )
    forecaster = fitted(0.5, y)
    assert forecaster.components_["logarithm"].iloc[0]
    # a fortieth of the largest move: the ends of most intervals lie there
    monkeypatch.setattr(limits, "BOUNDS", 0.025)
    steps, alpha = [1, 3, 8], [0.05, 0.3, 0.5, 0.7, 0.95]
    found = forecaster.predict_quantiles(steps, alpha=alpha).to_numpy()
    paths = forecaster.sample(steps, n_samples=4000).to_numpy().reshape(4000, -1)
    assert (found[:, 0] == paths.min(0)).any()
    assert (found[:, -1] == paths.max(0)).any()
    for k, level in enumerate(alpha):
        assert ((paths <= found[:, k] * (1 + 1e-9)).mean(0) > level - 0.02).all()
        assert ((paths < found[:, k] * (1 - 1e-9)).mean(0) < level + 0.02).all()
