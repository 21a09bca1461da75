"""What columns tell of each other at the same time: in gaps, and where one ends."""

import numpy as np
import pandas as pd
import pytest

from sklode import StructuralForecaster
from sklode.data.history import History
from sklode.structural.filtered_model import FilteredModel
from sklode.structural.fit import fit_model
from sklode.structural.model import StructuralModel
from tests.cases import slow

N_ROWS = 300
END, GAP = slice(N_ROWS - 12, N_ROWS), slice(200, 220)


def twins(seed: int = 0, noise: float = 0.3) -> pd.DataFrame:
    """Return a daily walk, and a column that follows it on the same day."""
    rng = np.random.default_rng(seed)
    walk = np.cumsum(0.3 * rng.standard_normal(N_ROWS))
    late = 50 + 5 * walk + noise * rng.standard_normal(N_ROWS)
    days = pd.date_range("2021-01-01", periods=N_ROWS)
    return pd.DataFrame({"late": late, "live": walk}, days)


def without(y: pd.DataFrame, rows: slice) -> pd.DataFrame:
    """Return y whose first column misses some rows."""
    hidden = y.copy()
    hidden.iloc[rows, 0] = np.nan
    return hidden


def plain() -> StructuralForecaster:
    return StructuralForecaster(seasons=None, random_state=0)


def error(found: pd.Series, truth: pd.Series) -> float:
    return float((found - truth).abs().mean())


def level(y: pd.DataFrame) -> StructuralModel:
    return fit_model(History.of(y, None).observations, (), False)


@pytest.fixture(scope="module")
def fitted() -> StructuralForecaster:
    return plain().fit(without(twins(), END))


@pytest.mark.parametrize("rows", [END, GAP])
def test_a_column_is_filled_by_its_twin(rows: slice) -> None:
    y = twins()
    found = plain().fit(without(y, rows)).predict_at(y.index[rows])["late"]
    truth, known = y["late"].iloc[rows], without(y, rows)["late"].notna()
    line = np.polyval(np.polyfit(y["live"][known], y["late"][known], 1), y["live"])
    assert error(found, truth) < 1.6 * error(pd.Series(line, y.index).iloc[rows], truth)


def test_stamps_need_not_be_the_same() -> None:
    y = twins()
    end = y.index[END.start]
    live = y["live"].set_axis(y.index + pd.Timedelta("5h"))
    late = y["late"][y.index < end]
    both = pd.concat([late, live], axis=1, sort=True)
    truth = y["late"].iloc[END]
    alone = plain().fit(late.to_frame()).predict_at(truth.index)["late"]
    found = plain().fit(both).predict_at(truth.index)["late"]
    assert error(found, truth) < 0.5 * error(alone, truth)


def test_twins_of_a_logarithm_stay_positive() -> None:
    y = np.exp(0.1 * twins())
    forecaster = StructuralForecaster(seasons=None, logarithm=True, random_state=0)
    forecaster.fit(without(y, END))
    truth = y["late"].iloc[END]
    assert error(forecaster.predict_at(truth.index)["late"] / truth, truth**0) < 0.1
    assert (forecaster.sample(truth.index).to_numpy() > 0).all()


def interval(forecaster: StructuralForecaster, stamps: pd.Index) -> pd.DataFrame:
    """Return the bounds of a column that its twin tells, as wide as paths spread.

    The noise's own 90 % are 0.99 wide; alone they would be 5 after 12 days.
    """
    given = forecaster.predict_interval(stamps, coverage=0.9)["late"][0.9]
    width = (given["upper"] - given["lower"]).to_numpy()
    assert np.median(width) < 3.0
    paths = forecaster.sample(stamps, n_samples=500)["late"].unstack()
    drawn = (paths.quantile(0.95) - paths.quantile(0.05)).to_numpy()
    np.testing.assert_allclose(drawn, width, rtol=0.25)
    return given


def test_intervals_and_paths_are_as_narrow_as_the_twin_allows(
    fitted: StructuralForecaster,
) -> None:
    interval(fitted, twins().index[END])


@pytest.mark.slow
def test_intervals_hold_what_they_say() -> None:
    inside = []
    for seed in range(4):
        y = twins(seed)
        for rows in (END, GAP):
            given = interval(plain().fit(without(y, rows)), y.index[rows])
            truth = y["late"].iloc[rows]
            inside.append(
                ((given["lower"] <= truth) & (truth <= given["upper"])).mean()
            )
    assert 0.85 <= np.mean(inside) <= 0.99


def test_level_says_which_columns_are_told(fitted: StructuralForecaster) -> None:
    assert fitted.components_["cross"].groupby(level="channel").all()["late"]


def test_an_update_gives_what_all_rows_at_once_give() -> None:
    y = without(twins(), END)
    found = level(y[:270])
    assert found.coupling.same_time.weights.any()
    grown = FilteredModel.filter(found, History.of(y[:270], None).observations)
    for end in (271, 290, N_ROWS):
        grown = grown.updated(History.of(y[:end], None).observations)
    whole = FilteredModel.filter(found, History.of(y, None).observations)
    asked = found.design.tables(History.of(y.fillna(0.0), None).observations)[0]
    asked = asked._replace(values=np.full(len(asked.times), np.nan))
    one, other = (
        each.prediction(0, asked, is_limited=False).distribution()
        for each in (grown, whole)
    )
    np.testing.assert_allclose(one.means, other.means, rtol=1e-9)
    np.testing.assert_allclose(one.spreads, other.spreads, rtol=1e-6)


def test_a_panel_is_pooled() -> None:
    parts = {k: twins(k)[:30] for k in range(20)}
    assert level(pd.concat(parts)).coupling.same_time.weights[1, :, 0].any()


@pytest.mark.parametrize("n_seeds", [2, slow(8)])
def test_chance_is_not_taken_for_what_columns_tell(n_seeds: int) -> None:
    for seed in range(n_seeds):
        values = np.random.default_rng(seed).standard_normal((250, 2))
        values = np.cumsum(values, axis=0) if seed % 2 else values
        y = pd.DataFrame(values, columns=["a", "b"])
        assert not level(y).coupling.same_time.weights.any()


@pytest.mark.parametrize("n_seeds", [2, slow(10)])
@pytest.mark.parametrize("rows", [END, slow(GAP)])
def test_a_column_of_noise_costs_nothing(rows: slice, n_seeds: int) -> None:
    """More is never worse: over ten seeds 1.03 on average, never 1.2."""
    ratios = []
    for seed in range(n_seeds):
        y = twins(seed)[["late"]]
        y["noise"] = np.random.default_rng(100 + seed).standard_normal(N_ROWS)
        hidden, truth = without(y, rows), y["late"].iloc[rows]
        errors = [
            error(plain().fit(hidden[names]).predict_at(truth.index)["late"], truth)
            for names in (["late", "noise"], ["late"])
        ]
        ratios.append(errors[0] / errors[1])
    assert np.exp(np.mean(np.log(ratios))) <= 1.03
    assert max(ratios) <= 1.2


def test_a_column_seen_seldom_is_found_as_it_is_alone() -> None:
    """Another column's stamps say nothing of this one's memory."""
    rng = np.random.default_rng(0)
    hours = pd.date_range("2024-01-01", periods=1200, freq="h")
    slow = pd.Series(rng.standard_normal(1200)).ewm(halflife=30).mean().to_numpy()
    y = pd.DataFrame({"seldom": slow, "often": rng.standard_normal(1200)}, hours)
    y.loc[np.arange(1200) % 8 > 0, "seldom"] = np.nan
    asked = hours[-1] + pd.to_timedelta([8, 16, 48], "h")
    alone = plain().fit(y[["seldom"]].dropna()).predict_at(asked)["seldom"]
    found = plain().fit(y).predict_at(asked)["seldom"]
    np.testing.assert_allclose(found, alone, rtol=1e-3)
