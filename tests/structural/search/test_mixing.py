"""Series of a panel draw their hyperparameters from a few that some have shown."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from sklode import StructuralForecaster
from sklode.data.links import IDENTITY
from sklode.data.observations import Observations
from sklode.structural.components.space import Form
from sklode.structural.design import Design
from sklode.structural.filtered_model import FilteredModel
from sklode.structural.fit import fit_model
from sklode.structural.search.estimate import Estimator
from sklode.structural.search.mixing import chosen, log_density, mixing_weights, mixture
from sklode.structural.search.periods import Seasons
from sklode.structural.search.rows import SearchRows
from tests.cases import slow

N, AHEAD = 120, 14
DAYS = pd.date_range("2024-01-01", periods=N + AHEAD)
UNBOUNDED = np.array([-math.inf, math.inf])


def unlike(seed: int = 0) -> pd.DataFrame:
    """Return five series that wander, and five that stay where they are."""
    rng = np.random.default_rng(seed)
    series = {}
    for k in range(5):
        series[f"wanders {k}"] = 50 + np.cumsum(rng.normal(size=N + AHEAD))
        series[f"stays {k}"] = 50 + 3 * rng.normal(size=N + AHEAD)
    each = {key: pd.Series(values, DAYS) for key, values in series.items()}
    return pd.concat(each, names=["key", "day"]).to_frame("y")


def past(y: pd.DataFrame) -> pd.DataFrame:
    return y[y.index.get_level_values("day") < DAYS[N]]


def estimator(y: pd.DataFrame) -> Estimator:
    rows = Observations.from_frame(y)
    nothing = np.zeros(0)
    day = pd.Timedelta("1D").value
    (table,) = Design(unit=day, location=nothing, scale=nothing).tables(rows)
    seasons = Seasons(named=(), calendar={}, others={})
    span = float(table.spans.max())
    return Estimator(
        SearchRows(table, None, np.zeros((len(table.times), 2))),
        span,
        seasons,
        IDENTITY,
        UNBOUNDED,
    )


def test_hyperparameters_are_drawn_as_often_as_series_show_them() -> None:
    logs = np.zeros((2, 10))
    logs[1, :3], logs[1, 3:] = 50, -50
    assert mixing_weights(logs) == pytest.approx([0.7, 0.3])
    expected = 3 * (50 + math.log(0.3)) + 7 * math.log(0.7)
    assert log_density(logs, np.array([0.7, 0.3])) == pytest.approx(expected)


def test_those_that_add_less_than_they_cost_are_not_drawn() -> None:
    logs = np.zeros((4, 10))
    logs[1] = logs[0]  # the same adds nothing
    logs[2, :3], logs[2, 3:] = 50, -50
    logs[3, :3], logs[3, 3:] = 20, -50  # a worse one of the same series neither
    places, weights = chosen(logs, cost=10.0)
    assert places == [0, 2]
    assert weights == pytest.approx([0.7, 0.3])
    assert chosen(logs, cost=1000.0)[0] == [0]


def test_losses_of_series_add_up_to_the_loss_in_units_of_y() -> None:
    y = past(unlike())
    found = estimator(y)
    best = found.most_probable(Form())
    each = np.arange(10)
    own = found.losses_by_series([best.candidate], best.estimate, each)[0]
    candidate, table = best.candidate, found.judged
    scaling = candidate.own(table, table.spans.max()).scaling
    space = candidate.model.space(table.spans.max())
    whole = candidate.model.filtered(space, scaling.rows(table)).loss
    lacks = scaling.log_jacobian(table) - scaling.cost
    assert own.sum() == pytest.approx(whole + lacks)
    some = found.losses_by_series([best.candidate], best.estimate, np.array([2, 7]))[0]
    assert some == pytest.approx(own[[2, 7]])


def test_series_that_differ_draw_hyperparameters_of_their_own() -> None:
    found = estimator(past(unlike()))
    best = found.most_probable(Form())
    drawn, gain = mixture(found, best)
    assert len(drawn) > 1
    assert gain > 20
    assert sum(one.weight for one, _ in drawn) == pytest.approx(1)
    assert all(one.is_drawn for one, _ in drawn)


def test_series_of_one_kind_share_all_hyperparameters() -> None:
    rng = np.random.default_rng(1)
    rows = pd.MultiIndex.from_product([range(10), DAYS[:N]], names=["key", "day"])
    walks = rng.normal(size=(10, N)).cumsum(axis=1) + rng.normal(size=(10, N))
    found = estimator(pd.DataFrame({"y": walks.ravel()}, rows))
    assert mixture(found, found.most_probable(Form())) == ([], 0.0)


def test_rows_of_a_series_tell_which_hyperparameters_are_its_own() -> None:
    rows = Observations.from_frame(past(unlike()))
    model = fit_model(rows)
    weights = FilteredModel.filter(model, rows).columns[0].weights
    names = [key[0] for key in rows.keys]
    own = dict(zip(names, weights.argmax(axis=0).tolist(), strict=True))
    assert len({own[f"wanders {k}"] for k in range(5)}) == 1
    assert len({own[f"stays {k}"] for k in range(5)}) == 1
    assert own["wanders 0"] != own["stays 0"]
    np.testing.assert_allclose(weights.sum(axis=0), 1)
    # one that has no rows may be of either kind
    values = np.where((rows.series == 3)[:, None], np.nan, rows.values)
    nothing = FilteredModel.filter(model, replace(rows, values=values))
    shares = [one.weight for one in model.columns[0].candidates]
    assert nothing.columns[0].weights[:, 3] == pytest.approx(shares)


@pytest.mark.parametrize("value", [20.0, slow(80.0)])
def test_a_lone_row_tells_nothing_of_what_a_series_draws(value: float) -> None:
    seen = past(unlike())
    model = fit_model(Observations.from_frame(seen))
    one = pd.concat({"one": seen.loc["stays 0"].iloc[:1]}, names=["key", "day"])
    rows = Observations.from_frame(one * 0 + value)
    found = FilteredModel.filter(model, rows).columns[0].weights[:, 0]
    shares = [one.weight for one in model.columns[0].candidates]
    assert len(shares) == 2
    assert found == pytest.approx(shares)


@pytest.mark.slow
def test_unlike_series_are_forecast_as_well_in_company_as_alone() -> None:
    ratios = []
    for seed in range(3):
        y = unlike(seed)
        seen, later = past(y), y.drop(past(y).index)
        together = StructuralForecaster().fit(seen).predict_at(later.index)
        for key, own in seen.groupby(level=0):
            alone = StructuralForecaster().fit(own.droplevel(0))
            expected = later.loc[key]
            one = (alone.predict(fh=expected.index) - expected).abs().mean()
            ratios.append((together.loc[key] - expected).abs().mean() / one)
    assert np.exp(np.log(ratios).mean()) < 1.02


def test_an_update_tells_what_a_series_draws() -> None:
    y = unlike()
    seen = past(y)
    rng = np.random.default_rng(3)
    newcomer = pd.DataFrame({"y": 50 + 3 * rng.normal(size=40)}, DAYS[:40])
    newcomer = pd.concat({"new": newcomer}, names=["key", "day"])
    found = StructuralForecaster().fit(seen)
    found.update(newcomer, update_params=False)
    # a stamp that is as far from the last row of each
    intervals = found.predict_interval(fh=[60], coverage=0.9)
    widths = (intervals.iloc[:, 1] - intervals.iloc[:, 0]).groupby(level=0).last()
    assert widths["new"] == pytest.approx(widths["stays 0"], rel=0.3)
    assert widths["new"] < 0.65 * widths["wanders 0"]


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_errors_of_forms_are_in_units_of_y(scale: float) -> None:
    y = past(unlike()) * [scale]
    found = estimator(y)
    best = found.most_probable(Form())
    errors = found.errors(best.candidate, best.estimate)
    # one row ahead a walk misses by its step, and noise by itself
    assert errors.mean() / scale == pytest.approx(1.7, rel=0.2)


@pytest.mark.slow
def test_a_sharp_season_has_more_harmonics_in_a_panel_too() -> None:
    rng = np.random.default_rng(0)
    weeks = pd.date_range("2020-01-05", periods=150, freq="W")
    rows = pd.MultiIndex.from_product([range(8), weeks], names=["shop", "week"])
    is_christmas = weeks.isocalendar().week.to_numpy() == 51
    level = np.exp(rng.normal(3, 0.5, 8))[:, None]
    noise = np.exp(0.03 * rng.normal(size=(8, 150)))
    values = level * (1 + is_christmas) * noise
    panel = pd.DataFrame({"y": values.ravel()}, rows)
    year = float(pd.Timedelta("365.25D").value)
    model = fit_model(Observations.from_frame(panel), seasons=(year,))
    assert {one.model.harmonics for one in model.columns[0].candidates} == {24}


def test_a_user_is_told_how_many_kinds_of_series_there_are() -> None:
    seen = past(unlike())
    found = StructuralForecaster().fit(seen)
    assert (found.components_["kinds"] == 2).all()
    assert "2 kinds of series" in str(found.summary(origins=0)["structure"])
    lone = StructuralForecaster().fit(seen.loc["stays 0"])
    assert (lone.components_["kinds"] == 1).all()


def newcomers(seed: int = 1) -> pd.DataFrame:
    """Return short series that tell little of what they draw, and two without y."""
    rng = np.random.default_rng(seed)
    series = {}
    for k in range(2):
        series[f"far {k}"] = 50 + 3 * rng.normal(size=5).cumsum()
        series[f"near {k}"] = 50 + 3 * rng.normal(size=5)
        series[f"unseen {k}"] = np.full(5, np.nan)
    each = {key: pd.Series(values, DAYS[N - 5 : N]) for key, values in series.items()}
    return pd.concat(each, names=["key", "day"]).to_frame("y")


@pytest.mark.slow
def test_paths_draw_each_series_hyperparameters_as_often_as_it_may_have_them() -> None:
    found = StructuralForecaster(random_state=0).fit(past(unlike()))
    found.update(newcomers(), update_params=False)
    quantiles = found.predict_quantiles(fh=[40], alpha=[0.05, 0.95])["y"]
    paths = found.sample(fh=[40], n_samples=4000)["y"].unstack(level=["key", "day"])
    drawn = paths.quantile([0.05, 0.95]).T
    width = quantiles[0.95] - quantiles[0.05]
    error = drawn.sub(quantiles.loc[drawn.index]).abs().max(axis=1) / width
    assert error.max() < 0.06
    # nothing that happens to one series happens to another
    shared = paths.corr().to_numpy() - np.eye(paths.shape[1])
    assert np.abs(shared).max() < 0.1


@pytest.mark.parametrize("key", [slow("stays 0"), "wanders 0"])
def test_a_lone_series_is_described_by_what_it_draws(key: str) -> None:
    seen = past(unlike())
    found = StructuralForecaster().pretrain(seen).fit(seen.loc[key])
    size = found.components_.xs("trend", level="part")["size"].item()
    assert (size > 1) == key.startswith("wanders")


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_a_panel_of_extreme_values_is_forecast_in_its_units(scale: float) -> None:
    seen = past(unlike())
    usual = StructuralForecaster().fit(seen).predict(fh=[1])
    found = StructuralForecaster().fit(seen * [scale]).predict(fh=[1])
    np.testing.assert_allclose(found / scale, usual, rtol=1e-6)


def test_rows_that_are_no_floats_in_units_of_others_are_refused() -> None:
    found = StructuralForecaster(clean=False).fit(past(unlike()))
    rng = np.random.default_rng(0)
    huge = pd.DataFrame({"y": 1e155 * rng.normal(size=30)}, DAYS[:30])
    huge = pd.concat({"huge": huge}, names=["key", "day"])
    found.update(huge, update_params=False)
    with pytest.raises(ValueError, match="no float holds"):
        found.predict(fh=[1])


@pytest.mark.parametrize("n_seeds", [1, slow(3)])
def test_sums_of_skewed_series_are_right_beside_those_that_wander(n_seeds: int) -> None:
    errors = []
    for seed in range(n_seeds):
        rng = np.random.default_rng(seed)
        walks = 3 + 0.1 * rng.normal(size=(7, 150)).cumsum(axis=1)
        skewed = 3 + 0.8 * rng.normal(size=(5, 150))
        days = pd.date_range("2024-01-01", periods=150)
        rows = pd.MultiIndex.from_product([range(12), days], names=["key", "day"])
        y = pd.DataFrame({"y": np.exp(np.vstack([walks, skewed])).ravel()}, rows)
        found = StructuralForecaster().fit(y)
        means = found.predict(fh=[14]).groupby(level="key").mean().loc[7:, "y"]
        errors.append(means.mean() / y.loc[7:, "y"].mean() - 1)
    assert np.abs(errors).max() < 0.05
