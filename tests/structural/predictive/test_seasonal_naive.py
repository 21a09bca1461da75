"""The value 52 weeks before counts as far as it would have made errors smaller."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import StructuralForecaster
from sklode.structural.predictive.scale_by_lead import Ahead
from sklode.structural.predictive.seasonal_naive import (
    PERIODS,
    Combination,
    SeasonalNaive,
    naive_periods,
)
from sklode.structural.rows import ChannelRows
from tests.cases import slow

YEAR = 40.0  # rows; what has changed is told by the last ten


def table(*series: np.ndarray, ahead: np.ndarray | float = 0.0) -> ChannelRows:
    """Return rows at times 0, 1, 2, ..., with clocks so far ahead."""
    lengths = [len(own) for own in series]
    times = np.concatenate([np.arange(n, dtype=float) for n in lengths])
    return ChannelRows.from_series(
        series=np.repeat(np.arange(len(series)), lengths),
        times=times,
        values=np.concatenate(series),
        inputs=np.broadcast_to(ahead, times.shape)[:, None].copy(),
        n_series=len(series),
    )


def asked(*times: list[float], ahead: float = 0.0) -> ChannelRows:
    several = [np.asarray(own, dtype=float) for own in times]
    flat = np.concatenate(several)
    return ChannelRows.from_series(
        series=np.repeat(np.arange(len(times)), [len(own) for own in several]),
        times=flat,
        values=np.nan,
        inputs=np.full((len(flat), 1), ahead),
        n_series=len(times),
    )


def naive(
    rows: ChannelRows, added: np.ndarray | float = 0.0, farthest: float = YEAR
) -> SeasonalNaive:
    added = np.broadcast_to(added, rows.times.shape)
    return SeasonalNaive(rows, added, period=YEAR, farthest=farthest)


def measured(
    naive: SeasonalNaive, ahead: list[tuple[int, Ahead]], members: Any = True
) -> Combination:
    is_member = np.broadcast_to(members, len(naive.table.lengths))
    return Combination.measured(naive, ahead, is_member)


def values(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(n)


def test_it_is_the_value_a_year_before_and_the_mean_change_of_a_quarter() -> None:
    y = values(90)
    change = (y[80:] - y[40:50]).mean()
    found = naive(table(y)).ahead(asked([90.0, 95.2, 129.0, 60.0]))
    expected = [y[50] + change, y[55] + change, y[89] + change, np.nan]
    np.testing.assert_allclose(found, expected)


def test_farther_ahead_than_allowed_nothing_is_said() -> None:
    y = values(90)
    found = naive(table(y)).ahead(asked([129.0, 130.0, 175.0]))
    assert np.isnan(found).tolist() == [False, True, True]
    # and else the last value that was seen whole periods before
    far = asked([129.0, 130.0, 169.0, 175.0])
    found = naive(table(y), farthest=2 * YEAR).ahead(far)
    change = (y[80:] - y[40:50]).mean()
    expected = [y[89] + change, y[50] + change, y[89] + change, np.nan]
    np.testing.assert_allclose(found, expected)


def test_rows_are_found_by_the_clock_on_the_wall() -> None:
    y = values(90)
    # from row 45 on the clock is two rows ahead, as in summer
    rows = table(y, ahead=2.0 * (np.arange(90) >= 45))
    found = naive(rows).ahead(asked([91.0], ahead=2.0))
    # the clock never said 45 and 46
    change = np.append(y[80:83] - y[42:45], y[85:] - y[45:50]).mean()
    np.testing.assert_allclose(found, y[51] + change)


def test_each_series_has_its_own_rows() -> None:
    one, other, short = values(90), values(100, seed=1), values(30, seed=2)
    both = naive(table(one, short, other)).ahead(asked([90.0, 99.0], [30.0], [104.0]))
    alone = naive(table(one)).ahead(asked([90.0, 99.0]))
    last = naive(table(other)).ahead(asked([104.0]))
    np.testing.assert_allclose(both, [*alone, np.nan, *last])


def test_where_a_year_before_nothing_was_seen_nothing_is_said() -> None:
    y = values(90)
    kept = np.ones(90, bool)
    kept[50:53] = False
    found = naive(table(y).where(kept)).ahead(asked([90.0, 92.0, 93.0]))
    assert np.isnan(found).tolist() == [True, True, False]
    # less than half of the last quarter has a row a year before
    kept[41:48] = False
    assert np.isnan(naive(table(y).where(kept)).ahead(asked([93.0]))).all()
    assert np.isnan(naive(table(y[:40])).ahead(asked([41.0]))).all()


def test_effects_are_not_those_of_a_year_before() -> None:
    y, added = values(90), np.zeros(90)
    added[50] = 7.0
    expected = naive(table(y)).ahead(asked([90.0, 91.0]))
    found = naive(table(y + added), added).ahead(asked([90.0, 91.0]))
    np.testing.assert_allclose(found, expected)


def test_a_spike_in_what_has_changed_counts_little() -> None:
    y, spiked = values(90), values(90)
    spiked[85] += 1000.0
    expected = naive(table(y)).ahead(asked([91.0]))
    found = naive(table(spiked)).ahead(asked([91.0]))
    # one change of ten is cut to three deviations from the median, of sqrt(2) each
    assert abs(found - expected)[0] < 0.7


def looked_ahead(rows: ChannelRows, series: int, share: Any) -> Ahead:
    """Return forecasts that lack a share, by lead, of what the naive ones say more."""
    first, end = rows.bounds[series : series + 2]
    origins = np.arange(60, end - first - 1)
    leads = np.arange(1, 9)
    own = origins[:, None] + leads
    is_there = own < end - first
    own = np.minimum(own, end - first - 1)
    nothing = Ahead(
        signals=np.zeros(own.shape),
        deviations=np.full(own.shape, 2.0),
        errors=np.zeros(own.shape),
        rows=own,
        leads=np.where(is_there, leads, np.nan),
    )
    errors = share * naive(rows).more(series, nothing)
    return nothing._replace(errors=np.where(is_there, errors, np.nan))


def test_no_forecast_is_compared_with_rows_after_its_origin() -> None:
    rows = table(values(200))
    leads = np.arange(1, 51)
    far = Ahead(
        signals=np.zeros((1, 50)),
        deviations=np.full((1, 50), 10.0),
        errors=np.zeros((1, 50)),
        rows=100 + leads[None],
        leads=leads[None].astype(float),
    )
    assert np.isfinite(naive(rows).more(0, far)).tolist() == [[*(leads <= YEAR)]]


def test_the_weight_is_the_slope_of_errors_shrunk_by_how_few_rows_tell() -> None:
    rows = table(values(200))
    found = measured(naive(rows), [(0, looked_ahead(rows, 0, 0.5))])
    # rows 61 to 199 were asked, of which four count as one
    n = 139 / 4
    np.testing.assert_allclose(found.weights, 0.5 * n / (n + 10))
    # of errors that are of the other sign, and of larger ones
    for share, weight in ((-0.5, 0.0), (2.0, 1.0)):
        ahead = [(0, looked_ahead(rows, 0, share))]
        found = measured(naive(rows), ahead)
        np.testing.assert_allclose(found.weights, weight)


def test_a_weight_that_is_not_sure_counts_less_by_its_standard_error() -> None:
    rows = table(values(200))
    ahead = looked_ahead(rows, 0, 0.8)
    noise = np.random.default_rng(3).standard_normal(ahead.errors.shape)
    ahead = ahead._replace(errors=ahead.errors + 0.3 * noise)
    more, n = naive(rows).more(0, ahead), 139 / 4
    found = measured(naive(rows), [(0, ahead)])
    for lead, weight in zip(found.leads, found.weights[0], strict=True):
        mine = (ahead.leads == lead) & np.isfinite(more)
        if not np.isin(lead, [1.0]):  # other parts have several leads
            continue
        e, m = ahead.errors[mine], more[mine]
        slope = (e * m).sum() / (m**2).sum()
        error = np.sqrt(((e - slope * m) ** 2).sum() / (m**2).sum() / n)
        assert weight == pytest.approx((slope - error) * n / (n + 10))
    assert found.weights.max() < 0.8 * n / (n + 10)
    # of chance alone next to nothing counts
    chance = [(0, ahead._replace(errors=noise))]
    assert measured(naive(rows), chance).weights.max() < 0.1


def test_weights_differ_by_lead() -> None:
    rows = table(values(200))
    share = np.repeat([0.0, 0.2, 0.4, 0.6], [1, 2, 2, 3])
    found = measured(naive(rows), [(0, looked_ahead(rows, 0, share))])
    n = 139 / 4
    expected = np.array([0.0, 0.2, 0.4, 0.6]) * n / (n + 10)
    np.testing.assert_allclose(found.leads, [1.0, 2.5, 4.5, 7.0], atol=0.5)
    np.testing.assert_allclose(found.weights, expected[None], atol=1e-12)


def test_a_series_is_shrunk_to_others_and_one_that_does_not_tell_is_as_these() -> None:
    rows = table(values(200), values(200, 1), values(70, 2), values(30, 3))
    shares = 0.2, 0.4, 0.9
    ahead = [(k, looked_ahead(rows, k, share)) for k, share in enumerate(shares)]
    found = measured(naive(rows), ahead).weights
    n = np.array([139, 139, 9]) / 4
    trust = n / (n + 10)
    own = np.array(shares) * trust
    others = (own.sum() - own) / 3
    for k, expected in enumerate(own + (1 - trust) * others):
        np.testing.assert_allclose(found[k], expected)
    np.testing.assert_allclose(found[3], own.mean())


def test_what_is_no_member_tells_others_nothing() -> None:
    rows = table(values(200), values(200, 1), values(30, 2))
    ahead = [(k, looked_ahead(rows, k, share)) for k, share in enumerate((0.2, 0.8))]
    members = np.array([True, False, False])
    first, second, third = measured(naive(rows), ahead, members).weights
    trust = (139 / 4) / (139 / 4 + 10)
    np.testing.assert_allclose(first, 0.2 * trust)
    # but it is told by members
    np.testing.assert_allclose(second, 0.8 * trust + (1 - trust) * 0.2 * trust)
    np.testing.assert_allclose(third, 0.2 * trust)


def test_errors_that_are_left_are_those_of_the_combination() -> None:
    rows = table(values(200))
    ahead = looked_ahead(rows, 0, 0.5)
    found = measured(naive(rows), [(0, ahead)])
    left = found.left(0, ahead)
    weight = found.weights[0, 0]
    expected = ahead.errors * (1 - weight / 0.5)
    np.testing.assert_allclose(left.errors, expected, atol=1e-12)
    # and what comes next moves the forecasts that these have moved
    moved = left.signals + left.errors * left.deviations
    np.testing.assert_allclose(moved, ahead.signals + ahead.errors * ahead.deviations)


@pytest.mark.parametrize(
    ("index", "unit", "expected"),
    [
        (pd.date_range("2024-01-01", periods=2), 86_400e9, [364.0, 7.0]),
        (pd.date_range("2024", periods=2, tz="Europe/Rome"), 3600e9, [8736, 168, 24]),
        (pd.period_range("2024-01-01", periods=2, freq="W"), 1, [52.0]),
        (pd.period_range("2024-01-01", periods=2, freq="D"), 1, [364.0, 7.0]),
        (pd.period_range("2024-01-01", periods=2, freq="6h"), 6, [1456.0, 28.0, 4.0]),
        (pd.period_range("2024-01-01", periods=2, freq="M"), 1, []),
        (pd.date_range("2024-01-01", periods=2), 60e9, [10_080.0, 1440.0]),
        (pd.date_range("2024-01-01", periods=2), 1e9, []),
        (pd.date_range("2024-01-01", periods=2), 8 * 86_400e9, []),
        (pd.RangeIndex(2), 1, []),
    ],
    ids=str,
)
def test_periods_are_those_that_rows_may_show(
    index: pd.Index, unit: float, expected: list[float]
) -> None:
    found = naive_periods(unit, index)
    assert [*found.values()] == pytest.approx(expected)
    assert [*found] == [name for name in PERIODS if name in found]


def park(n: int, seed: int = 0) -> pd.Series:
    """Return visits: each day of 52 weeks has its own, in each year."""
    days = pd.date_range("2023-01-02", periods=n)
    rng = np.random.default_rng(seed)
    year = 100 + 12 * rng.standard_normal(364)
    return pd.Series(year[np.arange(n) % 364] + 3 * rng.standard_normal(n), days)


def weight(forecaster: StructuralForecaster) -> float:
    (found,) = forecaster.components_["year_before"].unique()
    return float(found)


def fitted(y: Any, **settings: Any) -> StructuralForecaster:
    return StructuralForecaster(random_state=0, **settings).fit(y)


@pytest.fixture(scope="module")
def forecaster() -> StructuralForecaster:
    return fitted(park(560))


def test_what_recurs_in_a_year_without_a_rule_is_forecast(
    forecaster: StructuralForecaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = park(588)[560:]
    error = (forecaster.predict(fh=ahead.index) - ahead).abs().mean()
    path = "sklode.structural.fit.naive_periods"
    monkeypatch.setattr(path, lambda unit, like: {})
    other = fitted(park(560))
    usual = (other.predict(fh=ahead.index) - ahead).abs().mean()
    assert error < 0.8 * usual
    assert weight(forecaster) > 0.3
    assert weight(other) == 0.0
    told, untold = (
        " ".join(str(own.summary(0)).split()) for own in (forecaster, other)
    )
    assert "values 52 weeks before count up to" in told
    assert "52 weeks" not in untold


@pytest.mark.slow
@pytest.mark.parametrize(
    ("period", "name"), [("1D", "day_before"), ("7D", "week_before")]
)
def test_what_changes_from_day_to_day_or_week_to_week_is_forecast(
    period: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hours of a day, or of a week, of a size that wanders."""
    hours = pd.date_range("2024-01-01", periods=24 * 7 * 5, freq="h")
    rng = np.random.default_rng(0)
    length = int(pd.Timedelta(period) / pd.Timedelta("1h"))
    number = np.arange(len(hours)) // length
    size = 2 + rng.standard_normal(number.max() + 1).cumsum().clip(-1.5)
    shape = rng.standard_normal(length)
    y = pd.Series(20 + size[number] * np.tile(shape, number.max() + 1), hours)
    past, ahead = y[:-24], y[-24:]
    found = fitted(past)
    error = (found.predict(fh=ahead.index) - ahead).abs().mean()
    monkeypatch.setattr("sklode.structural.fit.naive_periods", lambda unit, like: {})
    usual = (fitted(past).predict(fh=ahead.index) - ahead).abs().mean()
    assert error < 0.8 * usual
    assert found.components_[name].iloc[0] > 0.3


def test_all_answers_move_alike(forecaster: StructuralForecaster) -> None:
    fh = range(1, 29)
    points = forecaster.predict(fh=fh)
    paths = forecaster.sample(fh=fh, n_samples=400).to_numpy().reshape(400, -1)
    middle = forecaster.predict_quantiles(fh=fh, alpha=[0.5]).iloc[:, 0]
    spread = forecaster.predict_var(fh=fh).iloc[:, 0] ** 0.5
    assert (np.abs(paths.mean(axis=0) - points) < 0.25 * spread).all()
    assert (np.abs(middle - points) < 0.25 * spread).all()


@pytest.mark.slow
def test_rows_between_others_do_not_look_back() -> None:
    y = park(560)
    gap = y.index[500:510]
    found = fitted(y.drop(gap))
    before = found.predict_at(gap)
    column: Any = found._answers
    (several,) = column.states.columns[0].combinations.values()
    assert several["year_before"].weights.max() > 0.2
    for one in several.values():
        one.weights[:] = 0.0
    pd.testing.assert_series_equal(found.predict_at(gap), before)


@pytest.mark.parametrize(
    ("y", "settings"),
    [
        (park(560), {"seasons": None}),
        slow(park(560), {"seasons": ["7D"]}),
        (park(350), {}),
        slow(park(560).reset_index(drop=True), {}),
        (park(2000).resample("MS").mean(), {}),
    ],
    ids=["no season", "named", "less than a year", "no dates", "months"],
)
def test_nothing_looks_back_where_nothing_could(y: pd.Series, settings: Any) -> None:
    assert weight(fitted(y, **settings)) == 0.0


@pytest.mark.parametrize("n_seeds", [2, slow(4)])
def test_of_noise_it_hardly_counts(n_seeds: int) -> None:
    days = pd.date_range("2023-01-02", periods=560)
    weights = [
        weight(fitted(pd.Series(values(560, seed), days))) for seed in range(n_seeds)
    ]
    assert max(weights) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("spike", [60.0, 300.0, 10_000.0])
def test_a_spike_of_a_year_before_does_not_come_back(spike: float) -> None:
    y = park(560)
    fh = range(1, 15)
    usual = fitted(y).predict(fh=fh)
    # 364 days before the tenth day ahead
    y.iloc[205] += spike
    forecaster = fitted(y)
    assert (forecaster.predict(fh=fh) - usual).abs().max() < 15
    assert weight(forecaster) > 0.3


def test_a_day_told_does_not_come_back_a_year_later() -> None:
    y = park(560)
    days = pd.date_range(y.index[0], periods=588)
    told = pd.DataFrame({"event": np.zeros(588)}, days)
    # row 570 is 364 days after row 206
    told.iloc[[20, 90, 200, 206, 300, 400, 470]] = 1.0
    shown = y + 300 * told.event[:560]
    forecaster = StructuralForecaster(random_state=0).fit(shown, X=told[:560])
    ahead = forecaster.predict(fh=days[560:], X=told[560:])
    error = (ahead - park(588)[560:]).abs()
    assert weight(forecaster) > 0.3
    assert error.iloc[10] < 30


@pytest.mark.slow
def test_series_of_a_panel_look_back_each_on_its_own() -> None:
    one, other = park(560), park(560, seed=5) + 50
    panel = pd.concat({"a": one, "b": other}).rename_axis(["park", "day"]).to_frame("y")
    found = fitted(panel)
    fh = one.index[-1] + pd.to_timedelta(np.arange(1, 15), "D")
    rows = pd.MultiIndex.from_product([["a", "b"], fh], names=["park", "day"])
    error = found.predict_at(rows).y - np.concatenate(
        [park(574)[560:], park(574, seed=5)[560:] + 50]
    )
    assert error.abs().mean() < 9
    assert weight(found) > 0.2


def test_an_update_brings_the_year_before_up_to_date() -> None:
    y = park(600)
    updated = fitted(y[:560])
    updated.update(y[560:], update_params=False)
    error = (updated.predict(fh=range(1, 15)) - park(614)[600:]).abs().mean()
    assert error < 9


def test_a_file_keeps_it(forecaster: StructuralForecaster, tmp_path: Path) -> None:
    path = tmp_path / "park.safetensors"
    forecaster.save_weights(path)
    found = StructuralForecaster.load_weights(path)
    fh = range(1, 15)
    pd.testing.assert_series_equal(found.predict(fh=fh), forecaster.predict(fh=fh))
    assert weight(found) == weight(forecaster)
