"""Columns that follow others later are told by them; others are as if alone."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sklode import StructuralForecaster
from sklode.data.history import History
from sklode.plotting import plot_components
from sklode.structural.coupling.delays import earlier
from sklode.structural.filtered_model import FilteredModel
from sklode.structural.model import StructuralModel
from tests.cases import mostly_slow, slow
from tests.series import led
from tests.structural.followers import gain_of_the_leader, level, plain, unrelated

START = pd.Timestamp("2025-01-01")
Function = Callable[[np.ndarray], np.ndarray]


def waves(
    effect: Function, delay: float, seed: int = 0
) -> tuple[pd.DataFrame, Function]:
    """Return uneven rows of "cause" and "effect", each at its own, and the truth.

    Times are hours; the cause wanders with a memory of eight.
    """
    rng = np.random.default_rng(seed)
    fine = np.arange(0, 460, 0.05)
    cause = np.zeros(len(fine))
    kicks = 0.75 * np.sqrt(0.05) * rng.standard_normal(len(fine))
    for k in range(1, len(fine)):
        cause[k] = cause[k - 1] * (1 - 0.05 / 8) + kicks[k]

    def truth(hours: np.ndarray) -> np.ndarray:
        return effect(np.interp(hours - delay, fine, cause))

    columns = {}
    for name, n in (("cause", 700), ("effect", 500)):
        hours = np.unique(rng.uniform(10, 400, n).round(3))
        values = np.interp(hours, fine, cause) if name == "cause" else truth(hours)
        values = values + 0.05 * rng.standard_normal(len(hours))
        columns[name] = pd.Series(values, stamps(hours))
    return pd.concat(columns, axis=1, sort=True), truth


def stamps(hours: np.ndarray) -> pd.DatetimeIndex:
    return START + pd.to_timedelta(np.asarray(hours) * 3600.0, unit="s")


def delays(found: StructuralModel) -> list[float]:
    return [e.lag.time for e in found.design.effects if e.is_delayed]


@pytest.fixture(scope="module")
def fitted() -> StructuralForecaster:
    return plain().fit(led()[:-20])


def test_a_channel_that_follows_is_forecast_by_the_one_it_follows() -> None:
    assert gain_of_the_leader() < 0.1


@pytest.mark.parametrize("delay", mostly_slow([2.0, 3.5, 7.0], 3.5))
@pytest.mark.parametrize(
    "effect", [slow(np.tanh), np.abs, slow(lambda a: np.sin(1.5 * a))]
)
def test_the_delay_of_a_curve_is_found(effect: Function, delay: float) -> None:
    found = level(waves(effect, delay)[0])
    (hours,) = np.array(delays(found)) * found.design.unit / pd.Timedelta("1h").value
    assert hours == pytest.approx(delay, abs=0.3)


@pytest.mark.parametrize("delay", [3.5, slow(7.0)])
def test_a_curve_of_what_came_before_is_forecast(delay: float) -> None:
    y, truth = waves(np.tanh, delay)
    forecaster = plain().fit(y)
    ahead = 400 + np.linspace(0.2, 0.9 * delay, 8)
    want = truth(ahead)
    error = np.abs(forecaster.predict(stamps(ahead))["effect"] - want).mean()
    alone = plain().fit(y[["effect"]].dropna()).predict(stamps(ahead))["effect"]
    assert error < 0.6 * np.abs(alone - want).mean()


@pytest.mark.parametrize(("n", "most"), [(2, 0), slow(8, 1)])
def test_chance_is_not_taken_for_what_columns_tell(n: int, most: int) -> None:
    # of two a pair
    assert sum(len(delays(level(y))) for y in unrelated(n)) <= most


def test_what_moves_at_the_same_time_has_no_delay() -> None:
    y = led()
    y["follower"] = y["leader"] + 0.1 * np.random.default_rng(1).standard_normal(len(y))
    assert delays(level(y)) == []


def test_components_say_which_columns_are_told(fitted: StructuralForecaster) -> None:
    told = fitted.components_["cross"].groupby(level="channel").all()
    assert told.to_dict() == {"leader": False, "follower": True}
    part = fitted.components_.loc["follower"].filter(like="leader", axis=0)
    assert part.index.str.endswith(", late)").all()
    assert part["memory"].to_list() == ["3"]


def test_the_curve_is_drawn_with_its_delay(fitted: StructuralForecaster) -> None:
    axes = plot_components(fitted, channel="follower")
    assert axes.flat[-1].get_xlabel() == "leader, 3 before"


def test_a_gap_is_filled_by_what_came_before_elsewhere() -> None:
    y = led()
    hidden = slice(300, 330)
    truth = y["follower"].iloc[hidden].to_numpy(copy=True)
    y.iloc[hidden, 1] = np.nan
    filled = plain().fit(y).predict_at(y.index[hidden])["follower"]
    assert np.abs(filled - truth).mean() < 0.15  # noise of 0.05; a step of it is 1


def test_quantiles_and_paths_go_with_the_median(fitted: StructuralForecaster) -> None:
    fh = [1, 2, 3, 20]
    median = fitted.predict(fh)["follower"]
    quantiles = fitted.predict_quantiles(fh, alpha=[0.05, 0.5, 0.95])["follower"]
    width = (quantiles[0.95] - quantiles[0.05]).to_numpy()
    assert (np.abs(quantiles[0.5] - median) < 0.1 * width).all()
    paths = fitted.sample(fh, n_samples=2000)["follower"].groupby(level=-1)
    assert (np.abs(paths.median() - median) < 0.1 * width).all()
    inner = (paths.quantile(0.95) - paths.quantile(0.05)).to_numpy()
    np.testing.assert_allclose(inner, width, rtol=0.15)


def test_later_than_the_delay_intervals_are_as_wide_as_the_leader_is_uncertain(
    fitted: StructuralForecaster,
) -> None:
    spread = np.sqrt(fitted.predict_var([3, 13]))
    assert spread["follower"].iloc[0] < 0.3
    # ten steps of a walk
    assert spread["follower"].iloc[1] == pytest.approx(10**0.5, rel=0.3)


@pytest.mark.parametrize("gaps", [slow(False), True])
def test_an_update_gives_what_all_rows_at_once_give(gaps: bool) -> None:
    """However the rows come, and where a channel misses the last ones."""
    y = led(300, gaps=gaps)
    y.iloc[250::7, 0] = np.nan
    y.iloc[-1, 1] = np.nan
    found = level(y[:200])
    assert delays(found)
    whole = FilteredModel.filter(found, History.of(y, None).observations)
    grown = FilteredModel.filter(found, History.of(y[:200], None).observations)
    for end in (201, 230, 231, 299, 300):
        grown = grown.updated(History.of(y[:end], None).observations)
    for one, other in zip(grown.columns, whole.columns, strict=True):
        states = one.states[0].means, other.states[0].means
        np.testing.assert_allclose(*states, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_a_panel_is_pooled() -> None:
    """Series too short to prove anything prove it together."""
    parts = {k: led(40, seed=k) for k in range(30)}
    assert delays(level(pd.concat(parts)))


def test_a_logarithm_stays_positive() -> None:
    y = np.exp(0.1 * led(400))
    forecaster = plain(logarithm=True).fit(y)
    assert delays(forecaster._model.structural)
    paths = forecaster.sample(fh=[1, 30])
    assert (paths.to_numpy() > 0).all()


def test_columns_that_swing_to_and_fro_have_no_delays() -> None:
    """What each will do is told by the other, which would have to be forecast."""
    rng = np.random.default_rng(0)
    place = np.zeros((500, 2))
    turn = 0.98 * np.array([[np.cos(0.4), -np.sin(0.4)], [np.sin(0.4), np.cos(0.4)]])
    for k in range(1, 500):
        place[k] = turn @ place[k - 1] + rng.standard_normal(2)
    assert delays(level(pd.DataFrame(place, columns=["prey", "hunters"]))) == []


@pytest.mark.slow
def test_more_columns_than_are_looked_at_have_no_delays() -> None:
    y = led()
    noise = np.random.default_rng(0).standard_normal((len(y), 7))
    wide = pd.concat([y, pd.DataFrame(noise, y.index).add_prefix("n")], axis=1)
    assert delays(level(wide)) == []


def test_a_file_holds_delays(fitted: StructuralForecaster, tmp_path: Path) -> None:
    path = tmp_path / "weights"
    fitted.save_weights(path)
    again = StructuralForecaster.load_weights(path)
    pd.testing.assert_frame_equal(again.predict([1, 9]), fitted.predict([1, 9]))


def test_earlier_values_are_linear_between_rows() -> None:
    bounds, times = np.array([0, 4, 6, 7]), np.array([0.0, 1, 3, 4, 0, 2, 0])
    column = np.array([0.0, np.nan, 6, 2, 1, 3, np.nan])
    series = np.array([0, 0, 0, 0, 1, 1, 2])
    asked = np.array([-1.0, 1.5, 3.5, 9.0, 1.0, 5.0, 0.0])
    found = earlier(bounds, times, column, series, asked)
    np.testing.assert_allclose(found, [0, 3, 4, 2, 2, 3, np.nan])
