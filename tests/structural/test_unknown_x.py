"""X that is not known: forecast itself, with what that makes of y."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import LatentODELSTMForecaster, StructuralForecaster
from tests.cases import mostly_slow, slow
from tests.series import tiny

NAN = float("nan")
N = 400
HOURS = pd.date_range("2024-01-01", periods=N, freq="h")
SEEN, AHEAD = HOURS[:360], HOURS[360:]
RNG = np.random.default_rng(3)
WANDERS = np.cumsum(RNG.normal(size=N))
X = pd.DataFrame({"u": WANDERS, "v": RNG.normal(size=N)}, HOURS)
Y = pd.Series(50 + 2 * WANDERS + RNG.normal(size=N), HOURS)
UNKNOWN = pytest.mark.filterwarnings("ignore:X is not known")


def structural(**settings: Any) -> StructuralForecaster:
    return StructuralForecaster(seasons=None, random_state=0, **settings)


def holes_at(rows: Any) -> Any:
    return np.repeat(np.asarray(rows)[:, None], 2, axis=1)


def widths(forecaster: Any, index: pd.Index, X: Any = None) -> Any:
    bounds = forecaster.predict_interval(index, X=X, coverage=0.9).to_numpy()
    return bounds[:, 1] - bounds[:, 0]


@pytest.fixture(scope="module")
def fitted() -> StructuralForecaster:
    return structural().fit(Y[SEEN], X.loc[SEEN])


ENDS: dict[str, Any] = {
    "left out": None,
    "NaN": X.loc[AHEAD].assign(u=NAN),
    "no rows": X.loc[SEEN],
}


@UNKNOWN
@pytest.mark.parametrize("case", mostly_slow(ENDS))
def test_a_column_that_ends_is_forecast_itself(fitted: Any, case: str) -> None:
    alone = structural().fit(X.loc[SEEN, "u"])
    expected = 50 + 2 * alone.predict(AHEAD)
    found = fitted.predict(AHEAD, X=ENDS[case])
    np.testing.assert_allclose(found, expected, atol=2.0)
    # what y is uncertain by is X, twice, and its own noise
    both = np.hypot(2 * widths(alone, AHEAD), widths(fitted, AHEAD, X=X.loc[AHEAD]))
    np.testing.assert_allclose(widths(fitted, AHEAD, ENDS[case]), both, rtol=0.2)


@pytest.mark.slow
def test_one_warning_names_columns_and_how_many_rows(fitted: Any) -> None:
    ahead = X.loc[AHEAD].copy()
    ahead.iloc[30:, 0], ahead.iloc[35:, 1] = NAN, NAN
    first = f"'u' at 10 of 40 rows, the first {AHEAD[30]}, column 'v' at 5 of 40 rows"
    with pytest.warns(UserWarning, match=first) as told:
        fitted.predict(AHEAD, X=ahead)
    assert len(told) == 1
    few = X[["u"]][:60].copy()
    few.iloc[:3] = NAN
    with pytest.warns(UserWarning, match="'u' at 3 of 60 rows") as told:
        structural().fit(Y[:60], few)
    assert len(told) == 1


@UNKNOWN
def test_what_is_known_ahead_counts_to_its_end_and_from_it_on(fitted: Any) -> None:
    known = fitted.predict(AHEAD, X=X.loc[AHEAD])
    short = fitted.predict(AHEAD, X=X.loc[AHEAD[:20]])
    np.testing.assert_allclose(short[:20], known[:20], rtol=1e-12)
    last = X.loc[AHEAD[19], "u"]
    assert abs(short.iloc[20] - (50 + 2 * last)) < 3


@pytest.mark.slow
@UNKNOWN
def test_neighbours_of_a_path_share_the_path_of_x(fitted: Any) -> None:
    paths = fitted.sample(AHEAD, n_samples=400).unstack("sample")
    spread = widths(fitted, AHEAD) / 3.29
    np.testing.assert_allclose(paths.std(axis=1), spread, rtol=0.2)
    # of X that wanders, a sum is as uncertain as if all rows erred alike, nearly
    assert paths.sum().std() > 0.6 * spread.sum()
    one, again = (fitted.sample(AHEAD, n_samples=20) for _ in range(2))
    pd.testing.assert_frame_equal(one, again)


def test_paths_of_two_scenarios_are_paired(fitted: Any) -> None:
    one, other = X.loc[AHEAD], X.loc[AHEAD].assign(u=X.loc[AHEAD, "u"] + 1)
    difference = fitted.sample(AHEAD, X=other) - fitted.sample(AHEAD, X=one)
    np.testing.assert_allclose(difference, 2, atol=0.06)


@pytest.mark.slow
@UNKNOWN
def test_rows_of_the_past_are_learned_from_without_what_is_unknown() -> None:
    rng = np.random.default_rng(0)
    y = 50 + 3 * X["v"] + pd.Series(rng.normal(size=N), HOURS)
    own = X[["v"]]
    holes = own.mask(rng.random((N, 1)) < 0.5)
    last = SEEN[-120:]
    whole = structural().fit(y[last], own.loc[last])
    holed = structural().fit(y[last], holes.loc[last])
    found, expected = (one.predict(AHEAD, X=own.loc[AHEAD]) for one in (holed, whole))
    assert (found - expected).abs().mean() < 0.4
    ratio = widths(holed, AHEAD, own.loc[AHEAD]) / widths(whole, AHEAD, own.loc[AHEAD])
    assert 0.85 < ratio.mean() < 1.2
    rows = holes.loc[last]
    unknown = widths(holed, last)[rows["v"].isna()].mean()
    assert unknown > 2 * widths(holed, last)[rows["v"].notna()].mean()


@UNKNOWN
def test_the_mean_of_a_curve_is_over_what_x_may_be() -> None:
    rng = np.random.default_rng(0)
    u = rng.normal(size=N)
    y = pd.Series(u**2 + 0.3 * rng.normal(size=N), HOURS)
    bent = structural(logarithm=False).fit(y[SEEN], pd.DataFrame({"u": u}, HOURS)[:360])
    assert 0.6 < bent.predict(AHEAD).mean() < 1.4  # at the mean of u it is 0


@UNKNOWN
def test_a_category_that_ends_has_its_usual_frequencies() -> None:
    rng = np.random.default_rng(0)
    kind = rng.choice(["a", "b", "c"], N, p=[0.6, 0.3, 0.1])
    adds = pd.Series(kind, HOURS).map({"a": 0.0, "b": 5.0, "c": 9.0}).astype(float)
    y = 10 + adds + pd.Series(rng.normal(size=N), HOURS)
    forecaster = structural().fit(y[SEEN], pd.DataFrame({"kind": kind}, HOURS)[:360])
    np.testing.assert_allclose(forecaster.predict(AHEAD), y[SEEN].mean(), atol=0.7)
    spread = forecaster.predict_var(AHEAD).to_numpy() ** 0.5
    np.testing.assert_allclose(spread, y[SEEN].std(), rtol=0.2)
    paths = forecaster.sample(AHEAD, n_samples=400)
    np.testing.assert_allclose(paths.std(), y[SEEN].std(), rtol=0.15)


@pytest.mark.slow
@UNKNOWN
def test_each_series_of_a_panel_forecasts_its_own_x() -> None:
    X2 = X[["u"]].assign(u=-X["u"])
    names = {"names": ["key", "time"]}
    some, fewer = SEEN[180:], SEEN[180:300]
    panel_x = pd.concat({"a": X[["u"]].loc[some], "b": X2.loc[fewer]}, **names)
    y = pd.concat({"a": Y[some], "b": 100 - Y[fewer]}, **names).to_frame("y")
    panel_x.loc[("b", HOURS[250]) :, "u"] = NAN
    found = structural().fit(y, panel_x).predict([1, 5])["y"]
    assert abs(found["a"].iloc[0] - (50 + 2 * WANDERS[359])) < 8
    assert abs(found["b"].iloc[0] - y.loc["b", "y"].iloc[-1]) < 20


@pytest.mark.slow
@UNKNOWN
def test_a_file_forecasts_an_unknown_x_as_before(fitted: Any, tmp_path: Any) -> None:
    last, own = SEEN[-60:], X[["u"]]
    rng = np.random.default_rng(0)
    holed = structural().fit(Y[last], own.loc[last].mask(rng.random((60, 1)) < 0.1))
    holed.save_weights(tmp_path / "one")
    again = StructuralForecaster.load_weights(tmp_path / "one")
    few = AHEAD[:9]
    pd.testing.assert_series_equal(again.predict(few), holed.predict(few))
    updated = again.update(Y[AHEAD[:3]], own.loc[AHEAD[:3]] * NAN, False)
    assert np.isfinite(updated.predict(few[5:], X=own.loc[few[5:]])).all()


@UNKNOWN
@pytest.mark.parametrize("guard", [False, slow(True)])
def test_a_network_reads_finite_numbers(guard: bool) -> None:
    forecaster = tiny(LatentODELSTMForecaster, model="hybrid", guard=guard)
    # a guard needs 300 rows
    last = SEEN if guard else SEEN[-60:]
    own, rng = X[["u"]], np.random.default_rng(0)
    holes = own.loc[last].mask(rng.random((len(last), 1)) < 0.2)
    forecaster.fit(Y[last], holes)
    for known in (None, own.loc[AHEAD[:3]]):
        found = forecaster.predict(AHEAD[:6], X=known)
        assert (found - Y[SEEN[-1]]).abs().max() < 40


def test_the_paper_s_model_needs_all_of_x() -> None:
    holes = X[:40].mask(holes_at(HOURS[:40] == HOURS[7]))
    with pytest.raises(ValueError, match=f'model="paper" X must .*first {HOURS[7]}'):
        tiny().fit(Y[:40], holes)


@pytest.mark.slow
@UNKNOWN
def test_unknown_doses_do_not_depend_on_how_many_stamps_are_asked() -> None:
    hours = pd.date_range("2024-01-01", periods=200, freq="h")
    dose = pd.Series(0.0, hours)
    dose.iloc[::12] = 100.0
    amount = np.zeros(200)
    for k in range(1, 200):
        amount[k] = 0.88 * amount[k - 1] + 0.05 * dose.iloc[k - 1]
    y = pd.Series(amount + 0.1 * np.random.default_rng(0).normal(size=200), hours)
    forecaster = StructuralForecaster().fit(y, dose.to_frame("dose"))
    # ahead doses go on at usual rows; between known rows there are none
    for begin, end in ((hours[-1], "1D"), (hours[100], "1D")):
        found = [
            forecaster.predict(
                pd.date_range(begin, begin + pd.Timedelta(end), periods=n + 1)[1:]
            ).iloc[-1]
            for n in (2, 24, 480)
        ]
        np.testing.assert_allclose(found, found[0], rtol=0.05)
        assert 1.0 < found[0] < 4.5


@pytest.mark.parametrize("is_panel", [False, True])
def test_doses_between_rows_of_y_are_told_if_y_lacks_their_rows(is_panel: bool) -> None:
    hours = pd.date_range("2024-01-01", periods=60, freq="h")
    X = pd.DataFrame({"dose": 0.0, "rate": 1.0}, hours)
    X.iloc[7::10, 0] = 5.0
    y = pd.Series(RNG.normal(size=60), hours, name="y")
    is_seen = (np.arange(60) % 2 == 0) & (np.arange(60) < 40)
    first = "2024-01-01 07:00:00"
    if is_panel:
        y, X = (pd.concat({"a": x}, names=["patient", "t"]) for x in (y, X))
        y, first = y.to_frame(), f"('a', {first})"
    seen = y[is_seen]
    # those at rows of y are read, and those after its last one are ahead
    told = re.escape(f"X has 4 row(s) between those of y, the first {first}, in which")
    with pytest.warns(UserWarning, match=f"{told} column 'dose' is not zero"):
        StructuralForecaster().fit(seen, X)
    padded = seen.reindex(seen.index.union(X.index))
    StructuralForecaster().fit(padded, X)
