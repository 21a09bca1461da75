"""What columns of X do: lines, curves, and effects that build up and fade."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import solve_ivp
from scipy.stats import norm

from sklode import StructuralForecaster
from sklode.structural.components.space import Form
from sklode.structural.design import Design
from sklode.structural.effects import inputs as effect_inputs
from sklode.structural.effects.basis import Constant, Levels, Line, Logarithm, Spline
from sklode.structural.effects.effect import Effect, places, pooled
from sklode.structural.effects.inputs import ColumnUnits, Estimate, Inputs
from sklode.structural.effects.lags import Memory, Queries, Read
from sklode.structural.effects.modulation import (
    CalendarFeatures,
    Day,
    Month,
    NamedDays,
    Steps,
    TradingDays,
    Weeks,
    edges_of,
)
from sklode.structural.effects.selection import EffectJudge, centred
from sklode.structural.filtered_model import FilteredModel
from tests.cases import mostly_slow, slow
from tests.structural.processes import SPAN, candidate, table_of

KNOTS = (-1.5, -0.7, -0.2, 0.3, 0.8, 1.9)
STAMPS = pd.date_range("2024-01-01", periods=400, freq="h")


def structural(**settings: Any) -> StructuralForecaster:
    return StructuralForecaster(**{"seasons": None, "logarithm": False, **settings})


def wandering(seed: int, n: int = 400, memory: float = 10.0) -> Any:
    rng = np.random.default_rng(seed)
    values = np.zeros(n)
    kept = np.exp(-1 / memory)
    for k in range(1, n):
        values[k] = kept * values[k - 1] + np.sqrt(1 - kept**2) * rng.normal()
    return values


def late(u: Any, hours: Any, memory: float) -> Any:
    """Return the exact first-order response to X that is linear between rows."""

    def slope(t: float, x: Any) -> Any:
        return (np.interp(t, hours, u) - x) / memory

    ends = hours[0], hours[-1]
    return solve_ivp(slope, ends, u[:1], t_eval=hours, max_step=0.2, rtol=1e-8).y[0]


def found_effects(forecaster: Any) -> list[str]:
    parts = forecaster.components_.index.get_level_values("part")
    return [part for part in parts if re.search(r"\((line|curve)(, late)?\)$", part)]


def features(n: int, **known: Any) -> CalendarFeatures:
    """Return those of rows: where cycles begin and no week is known, but for some."""
    names = "share_of_day", "day_of_week", "share_of_month", "week_of_year"
    each = dict.fromkeys(names, np.zeros(n))
    more = {"named": np.zeros((n, 0, 0)), "weekdays": np.zeros((n, 7))}
    return CalendarFeatures(**{**each, **more, **known})


# Columns


def test_a_curve_is_a_natural_cubic_spline_that_goes_on_straight() -> None:
    effect = Effect(Spline(0, KNOTS))
    x = np.linspace(-9, 9, 1801)
    columns = effect.at(x[:, None])
    assert columns.shape == (len(x), effect.n_columns) == (len(x), len(KNOTS) - 1)
    np.testing.assert_array_equal(columns[:, 0], x)
    bends = np.diff(columns[:, 1:], n=2, axis=0) / 0.01**2
    outside = (x[1:-1] < KNOTS[0] - 0.02) | (x[1:-1] > KNOTS[-1] + 0.02)
    np.testing.assert_allclose(bends[outside], 0, atol=1e-6)
    inside = (x[1:-1] > KNOTS[0]) & (x[1:-1] < KNOTS[-1])
    # second derivatives of different columns have nothing in common
    products = bends[inside].T @ bends[inside]
    np.testing.assert_allclose(products / products[0, 0], np.eye(4), atol=0.03)
    at_knots = effect.at(np.array(KNOTS)[:, None])[:, 1:]
    assert 0.1 < (at_knots**2).sum(1).mean() < 10


@pytest.mark.parametrize("memory", [0.01, 0.5, 3.0, 1e5])
def test_an_effect_with_a_memory_is_a_first_order_response(memory: float) -> None:
    hours = np.array([0.0, 0.4, 0.5, 2.0, 2.1, 7.0, 7.0001, 12.0])
    u = np.array([1.0, 2.0, -1.0, 0.5, 0.5, 3.0, -2.0, 0.0])
    bounds = np.array([0, len(hours), 2 * len(hours)])
    columns = np.append(u, -u)[:, None]
    times = np.tile(hours, 2)
    read = Read(bounds, times, columns, begins=np.zeros(2), starts=np.zeros(2))
    every = np.arange(len(times))
    series = np.repeat([0, 1], len(hours))
    queries = Queries(known=read, place=every, seen=read, series=series, times=times)
    found = Effect(Line(0), Memory(memory)).lagged(queries)[:, 0]
    np.testing.assert_allclose(found[: len(hours)], -found[len(hours) :])
    if memory == 0.01:
        np.testing.assert_allclose(found[[0, 3, 5]], u[[0, 3, 5]], atol=0.03)
    elif memory == 1e5:
        np.testing.assert_allclose(found[: len(hours)], 1.0, atol=1e-3)
    else:
        expected = late(u, hours, memory)
        np.testing.assert_allclose(found[: len(hours)], expected, atol=2e-4)


def test_a_logarithm_is_that_of_the_column_in_its_own_units() -> None:
    prices = np.exp(np.random.default_rng(0).normal(2.0, 0.5, 200))
    centre, unit = prices.mean(), prices.std()
    basis = Logarithm.of(0, prices, centre=centre, unit=unit)
    found = basis.columns((prices[:, None] - centre) / unit)
    logs = np.log(prices)
    expected = (logs - logs.mean()) / logs.std()
    np.testing.assert_allclose(found[:, 0], expected, atol=1e-12)
    # a cut by half is as much wherever a price was
    cuts = basis.columns((np.array([[8.0], [4.0], [2.0]]) - centre) / unit)
    assert np.diff(cuts[:, 0]) == pytest.approx([np.log(0.5) / logs.std()] * 2)
    assert Effect(basis).name(["price"], ("day", [])) == "price (logarithm)"


def test_an_effect_is_a_basis_times_a_modulation() -> None:
    share = np.array([0.0, 0.25, 0.5, 0.25])
    known = features(4, share_of_day=share, day_of_week=np.array([5.0, 6, 6, 0]))
    columns = np.array([[1.0], [2.0], [3.0], [4.0]])
    along = Effect(Line(0), modulation=Day(days=(5, 6), harmonics=1), size=0.5)
    expected = columns * np.column_stack([[1, 0, -1, 0], [0, 1, 0, 0]])
    np.testing.assert_allclose(
        along.modulated(columns, known), 0.5 * expected, atol=1e-12
    )
    assert along.n_columns == 2
    shape = Effect(Constant(), modulation=Day(harmonics=2, has_mean=True))
    found = shape.modulated(np.ones((4, 1)), known)
    assert found.shape == (4, shape.n_columns) == (4, 5)
    # of the harmonics the variance is one at any time
    np.testing.assert_allclose((found[:, :4] ** 2).sum(1), 1.0)
    # the day of several days is the sum of that of each
    each = [part.modulated(columns, known) for part in along.parts]
    whole = along.modulated(columns, known)
    np.testing.assert_allclose(np.sum(each, axis=0), whole)


def test_named_days_have_something_in_common_and_something_of_each_kind() -> None:
    # of the second kind, the day before one, and three days after one of the first
    named = np.zeros((3, 7, 2))
    named[0, 0, 1] = named[1, [1, 3, 5], 1] = named[2, [4, 6], 0] = 1
    known, one = features(3, named=named), np.ones((3, 1))
    effect = Effect(Constant(), modulation=NamedDays(2), size=2.0)
    found = effect.modulated(one, known)
    np.testing.assert_allclose(found, np.array([[2.0, 0, 0.6], [0, 0, 0], [0, 0, 0]]))
    sides = Effect(Constant(), modulation=NamedDays(2, sides=True))
    found = sides.modulated(one, known)
    assert found.shape == (3, sides.n_columns) == (3, 9)
    np.testing.assert_allclose(found[1], [0, 0, 0, 1, 0, 0.3, 0, 0, 0])
    assert not found[2].any()
    # days near are in wider windows too
    wider = Effect(Constant(), modulation=NamedDays(2, sides=True, window=1))
    found = wider.modulated(one, known)
    assert found.shape == (3, wider.n_columns) == (3, 15)
    np.testing.assert_allclose(found[1, [3, 9]], 1)
    np.testing.assert_allclose(found[2, 12:], [1, 0.3, 0])


def test_trading_days_are_the_number_of_days_and_which_they_are() -> None:
    # a month of 31 days with five Mondays to Wednesdays, less the usual number
    days = np.array([[5.0, 5, 5, 4, 4, 4, 4]]) - 30.44 / 7
    known, one = features(1, weekdays=days), np.ones((1, 1))
    found = Effect(Constant(), modulation=TradingDays(), size=2.0).modulated(one, known)
    np.testing.assert_allclose(found, [[2 * 0.56, 2 * (23 - 5 * 31 / 7)]])
    by_day = Effect(Constant(), modulation=TradingDays(by_day=True))
    found = by_day.modulated(one, known)
    assert found.shape == (1, by_day.n_columns) == (1, 9)
    assert by_day.must_be_proved
    expected = 0.3 * (np.array([5, 5, 5, 4, 4, 4, 4]) - 31 / 7)
    np.testing.assert_allclose(found[0, 2:], expected)


NAMES = ["u", "kind = a", "kind = b"]
CYCLE = "day", ["Mon", "Tue"]
CALLED = {
    "u (line)": Effect(Line(0)),
    "u (curve, late)": Effect(Spline(0, KNOTS), Memory(3.0)),
    "u (line along the day)": Effect(Line(0), modulation=Day(harmonics=3)),
    "kind (levels)": Effect(Levels(1, 2)),
    "month": Effect(Constant(), modulation=Month(4)),
    "weeks of the year": Effect(Constant(), modulation=Weeks()),
    "day, in steps": Effect(Constant(), modulation=Steps((0.4, 0.7))),
    "holidays": Effect(Constant(), modulation=NamedDays(3)),
    "trading days": Effect(Constant(), modulation=TradingDays()),
    "day of Mon, Tue": Effect(Constant(), modulation=Day((0, 1), 4, has_mean=True)),
}


@pytest.mark.parametrize("name", CALLED)
def test_an_effect_is_called_by_its_parts(name: str) -> None:
    assert CALLED[name].name(NAMES, CYCLE) == name


def test_the_more_parts_an_effect_has_the_less_probable_it_is() -> None:
    plain, both = Effect(Line(0)), Effect(Spline(0, KNOTS), Memory(2.0))
    assert plain.log_odds == 0
    assert both.log_odds == pytest.approx(1.0 + np.log(8))
    shape = Effect(Line(0), modulation=Day(harmonics=3))
    assert shape.log_odds == 5.0
    assert [e.must_be_proved for e in (plain, both, shape)] == [False, False, True]


@dataclass(frozen=True)
class Square:
    """The square of a column: a basis that the package does not have."""

    first: int
    n_read = 1
    n_columns = 1
    log_odds = 0.0
    is_curved = True

    def columns(self, values: Any) -> Any:
        return values**2 - 1

    def name(self, names: Any) -> tuple[str, str]:
        return str(names[self.first]), "square"

    def grid(self, seen: Any) -> Any:
        values = np.linspace(seen.min(), seen.max(), 5)
        return values, values[:, None]


def test_a_new_basis_is_one_class_and_its_registration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        effect_inputs, "bases_of", lambda column, *_: [Line(column), Square(column)]
    )
    u = wandering(3)
    y = pd.Series(3 * u**2 + 0.1 * wandering(4), STAMPS)
    X = pd.DataFrame({"u": u}, STAMPS)
    forecaster = structural().fit(y[:350], X=X[:350])
    parts = forecaster.components_.index.get_level_values("part")
    assert "u (square)" in parts
    found = forecaster.predict(fh=STAMPS[350:], X=X[350:])
    assert np.abs(found - y[350:]).mean() < 0.3


# Probability


def test_the_more_columns_the_less_is_expected_of_each() -> None:
    table, controls = table_of((40,)), np.ones((40, 60))
    inputs = Inputs(
        Read(
            table.bounds, table.times, controls, begins=np.zeros(1), starts=np.zeros(1)
        ),
        n_controls=60,
        units=ColumnUnits(np.zeros(60), np.ones(60)),
        features=features(40),
        n_days=7,
        rows=np.arange(40),
    )
    line = Effect(Line(3))
    shape = Effect(Constant(), modulation=Day(harmonics=12, has_mean=True))
    assert inputs.log_odds(line) == pytest.approx(np.log(60))
    assert inputs.log_odds(shape) == shape.log_odds


@pytest.mark.slow
def test_a_column_may_act_at_once_and_late() -> None:
    rng = np.random.default_rng(0)
    t = pd.date_range("2024-01-01", periods=1500, freq="h")
    u = pd.Series(rng.normal(size=1500)).ewm(halflife=6).mean().to_numpy() * 4
    slow = late(u, np.arange(1500.0), 24.0)
    y = pd.Series(2 * u + 6 * slow + 0.3 * rng.normal(size=1500), t)
    X = pd.DataFrame({"u": u}, t)
    forecaster = StructuralForecaster(random_state=0).fit(y[:1400], X=X[:1400])
    parts = forecaster.components_.index.get_level_values("part")
    assert [part for part in parts if part.startswith("u (")] == [
        "u (line)",
        "u (line, late)",
    ]
    error = (forecaster.predict(t[1400:], X=X[1400:]) - y[1400:]).abs().mean()
    assert error < 0.35


def test_the_gain_of_an_effect_is_that_of_the_filter_that_has_it() -> None:
    rng = np.random.default_rng(0)
    plain = candidate(Form((7.0,)))
    table = table_of((40, 25), plain, n_controls=2)
    bounds, controls = table.bounds, rng.normal(size=(65, 2))
    controls[:, 1] += 0.5 * np.abs(controls[:, 0])
    table.values[:] += 2 * np.abs(controls[:, 0]) + controls[:, 1]
    read = Read(bounds, table.times, controls, begins=np.zeros(2), starts=np.zeros(2))
    every = np.arange(65)
    n_controls = controls.shape[1]
    inputs = Inputs(
        read,
        n_controls,
        units=ColumnUnits(np.zeros(2), np.ones(2)),
        features=features(65),
        n_days=0,
        rows=every,
    )
    judge = EffectJudge(
        plain,
        SPAN,
        table=table,
        left=table,
        inputs=inputs,
        start=Estimate(),
        scaling=plain.scaling,
    )
    effects = [Effect(Spline(0, KNOTS)), Effect(Line(1), Memory(2.0))]
    queries = Queries(
        known=read, place=every, seen=read, series=table.series, times=table.times
    )

    def loss(chosen: list[Effect]) -> float:
        columns = np.hstack(
            [
                np.zeros((65, 0)),
                *(own.size * own.lagged(queries) for own in chosen),
            ]
        )
        # of a panel, those within each series
        columns = centred(columns, table, pooled(chosen))
        rows = table._replace(inputs=np.column_stack([table.inputs[:, 0], columns]))
        form = plain.model.form._replace(effects=tuple(places(chosen).values()))
        model = plain.model._replace(form=form)
        return model.filtered(model.space(SPAN), rows).loss

    for effect, others in zip(effects, ([], effects[:1]), strict=True):
        gain, best = judge.best([effect], others)
        assert best == effect
        expected = loss(others) - loss([*others, effect]) - inputs.log_odds(effect)
        assert gain == pytest.approx(expected, abs=1e-6)
        # several sizes at once: the best of them, by what each gains
        sizes = [replace(effect, size=size) for size in (0.1, 1.0, 3.0)]
        gains = [
            loss(others) - loss([*others, own]) - inputs.log_odds(own) for own in sizes
        ]
        gain, best = judge.best(sizes, others)
        assert best == sizes[int(np.argmax(gains))]
        assert gain == pytest.approx(max(gains), abs=1e-6)


# Forecasts


@pytest.mark.parametrize("seed", mostly_slow(range(2)))
@pytest.mark.parametrize(
    ("name", "effect"),
    [
        ("T (line)", lambda u: 2 * u),
        ("T (curve)", lambda u: 3 * np.abs(u)),
        ("T (curve)", lambda u: 3 * np.tanh(2 * u)),
    ],
    ids=["line", "kink", "saturation"],
)
def test_the_form_of_an_effect_is_found(name: str, effect: Any, seed: int) -> None:
    u = wandering(seed)
    truth = 5 + effect(u)
    y = pd.Series(
        truth + 0.3 * np.random.default_rng(seed + 1000).normal(size=400), STAMPS
    )
    X = pd.DataFrame({"T": 18 + 7 * u, "other": wandering(seed + 50)}, STAMPS)
    forecaster = structural().fit(y[:350], X=X[:350])
    assert found_effects(forecaster) == [name]
    found = forecaster.predict(fh=STAMPS[350:], X=X[350:])
    assert np.abs(found - truth[350:]).mean() < 0.3
    inside = forecaster.predict_interval(STAMPS[350:], X[350:], coverage=0.9).to_numpy()
    covered = (y[350:].to_numpy() > inside[:, 0]) & (y[350:].to_numpy() < inside[:, 1])
    assert covered.mean() > 0.75


@pytest.mark.parametrize("seed", mostly_slow(range(2)))
@pytest.mark.parametrize("effect", [slow(lambda u: u), np.tanh], ids=["line", "curve"])
def test_an_effect_that_builds_up_and_fades_is_found(effect: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    hours = np.sort(rng.uniform(0, 400, 400))
    index = pd.Timestamp("2024-01-01") + pd.to_timedelta(hours, unit="h")
    u = 2 * wandering(seed + 9, memory=4.0)
    truth = late(effect(u), hours, 5.0)
    y = pd.Series(truth + 0.1 * rng.normal(size=400), index)
    X = pd.DataFrame({"u": u}, index)
    forecaster = structural().fit(y[:350], X=X[:350])
    (part,) = found_effects(forecaster)
    memory = pd.Timedelta(forecaster.components_.loc[(0, part), "memory"])
    assert 3.5 < memory / pd.Timedelta("1h") < 7
    found = forecaster.predict(fh=index[350:], X=X[350:])
    assert np.abs(found - truth[350:]).mean() < 0.35 * truth.std()


def test_x_of_rows_without_y_counts_where_effects_are_late() -> None:
    u = wandering(1, memory=3.0)
    y = pd.Series(late(u, np.arange(400.0), 6.0), STAMPS)
    y += 0.02 * np.random.default_rng(0).normal(size=400)
    gappy = y.copy()
    gappy[330:350] = np.nan
    X = pd.DataFrame({"u": u}, STAMPS)
    forecaster = structural().fit(gappy[:350], X=X[:350])
    found = forecaster.predict(fh=STAMPS[350:360], X=X[350:])
    assert np.abs(found - y[350:360]).mean() < 0.1
    inside = forecaster.predict(fh=STAMPS[330:350])
    assert np.abs(inside - y[330:350]).mean() < 0.1


@pytest.mark.parametrize("n_seeds", [3, slow(8)])
def test_noise_has_no_effect(n_seeds: int) -> None:
    names = []
    for seed in range(n_seeds):
        y = pd.Series(np.cumsum(wandering(seed, 200)), STAMPS[:200])
        noise = np.random.default_rng(seed + 1000).normal(size=(200, 3))
        X = pd.DataFrame(noise, STAMPS[:200], list("abc"))
        names += found_effects(structural().fit(y, X=X))
    assert len(names) <= 1


@pytest.mark.parametrize("memory", [0.0, 8.0])
def test_an_update_goes_on_with_effects(
    memory: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    u = wandering(3)
    effect = late(np.abs(u), np.arange(400.0), memory) if memory else np.abs(u)
    y = pd.Series(3 * effect, STAMPS) + 0.1 * wandering(4)
    X = pd.DataFrame({"u": u}, STAMPS)
    forecaster = structural().fit(y[:300], X=X[:300])
    level, n_rows = forecaster._model.structural, []
    assert any(e.lag.time for e in level.design.effects) == bool(memory)
    read = Design.inputs_at

    def recorded(self: Design, ticks: Any, *others: Any) -> Any:
        n_rows.append(len(ticks))
        return read(self, ticks, *others)

    monkeypatch.setattr(Design, "inputs_at", recorded)
    forecaster.update(y[300:350], X=X[300:350], update_params=False)
    assert n_rows == [50]  # only what is new
    found = forecaster.predict(fh=STAMPS[350:], X=X[350:])
    assert np.abs(found - y[350:]).mean() < 0.4
    at_once = FilteredModel.filter(level, forecaster._history.rows)
    for one, other in zip(
        at_once.columns[0].states,
        forecaster._answers.states.columns[0].states,
        strict=True,
    ):
        np.testing.assert_allclose(other.means, one.means, atol=1e-9)


# Bad input


@pytest.mark.parametrize("factor", [1.0, 10.0])
def test_x_far_from_what_was_seen_is_told_once_and_forecast(factor: float) -> None:
    u = wandering(0)
    y = pd.Series(2 * u, STAMPS) + 0.1 * wandering(1)
    X = pd.DataFrame({"T": u, "none": wandering(2)}, STAMPS)
    forecaster = structural().fit(y[:390], X=X[:390])
    future = X[390:] * [factor, 100.0]  # of the second nothing depends
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = forecaster.predict(fh=STAMPS[390:], X=future)
    assert np.isfinite(found).all()
    texts = [str(one.message) for one in told]
    is_far = np.abs(future["T"]).max() > 3 * np.abs(u[:390]).max()
    assert len(texts) == int(is_far)
    assert all("in column 'T' at 2024-01-17" in text for text in texts)


def test_a_value_that_a_constant_column_never_took_is_told_once() -> None:
    days = pd.date_range("2024-01-01", periods=63)
    X = pd.DataFrame({"heat": np.sin(np.arange(63.0)), "sale": 0.0, "rain": 0.0}, days)
    X.iloc[61:, 1:] = 1.0
    y = 5 + X["heat"] + 0.1 * np.random.default_rng(0).standard_normal(63)
    for column in (["heat", "sale", "rain"], ["sale", "rain"]):
        forecaster = StructuralForecaster().fit(y[:60], X=X.iloc[:60][column])
        with pytest.warns(UserWarning, match="learned where it varies") as told:
            forecaster.predict([1, 2], X=X.iloc[60:][column])
        (message,) = (str(one.message) for one in told)
        assert "got 1 in column 'sale' at 2024-03-02 00:00:00, where all" in message
        assert "all that was seen is 0. Its effect is unknown." in message
        forecaster.predict([1], X=X.iloc[60:61][column])  # as it was


def test_a_band_of_an_effect_holds_the_truth() -> None:
    inside = []
    for seed in range(6):
        u = wandering(seed)
        y = pd.Series(
            np.tanh(u) + 0.5 * np.random.default_rng(seed + 1000).normal(size=400)
        )
        forecaster = structural().fit(y, X=pd.DataFrame({"u": u}))
        for curve in forecaster._answers.curves(0, 0):
            truth = np.tanh(curve.values)
            truth = truth - truth[100] + curve.effect[100]
            low, high = curve.bounds.T
            inside.append(((truth > low) & (truth < high))[20:-20].mean())
    assert len(inside) == 6
    assert np.mean(inside) > norm.cdf(0.5)


def test_steps_of_the_day_are_one_between_edges() -> None:
    share = np.array([0.0, 0.3, 0.4, 0.7, 0.8])
    columns = Steps((0.35, 0.5, 0.75)).times(
        np.ones((5, 1)), features(5, share_of_day=share), size=2.0
    )
    expected = [[0, 0], [0, 0], [2, 0], [0, 2], [0, 0]]
    np.testing.assert_array_equal(columns, expected)


@pytest.mark.parametrize("kind", ["on and off", "one day", "ramp", "wave"])
def test_edges_of_the_day_are_where_most_days_step(kind: str) -> None:
    times = np.arange(5 * 96.0)
    share = times % 96 / 96
    y = 0.5 * np.random.default_rng(0).standard_normal(len(times))
    if kind == "wave":
        y += 20 * np.sin(2 * np.pi * share)
    elif kind == "ramp":
        y += 20 * np.clip(96 * share - 36, 0, 3) - 20 * np.clip(96 * share - 72, 0, 3)
    else:
        on = (share >= 9 / 24) & (share < 18 / 24)
        y += 20 * (on if kind == "on and off" else on & (times < 96))
    found = edges_of(share, times, y, day=96.0)
    expected = (35.5 / 96, 71.5 / 96) if kind == "on and off" else ()
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize(
    ("freq", "days", "zone"), [("15min", 6, None), slow("5min", 8, "Europe/Berlin")]
)
@pytest.mark.parametrize("noise", [0.0, slow(1.0)])
def test_what_is_on_and_off_at_the_same_clock_is_no_outlier(
    freq: str, days: int, zone: str | None, noise: float
) -> None:
    # with a zone, the clocks change on the way
    begin = pd.Timestamp("2026-03-24", tz=zone)
    t = pd.date_range(begin, begin + pd.Timedelta(days=days + 1), freq=freq)
    on = (t.hour >= 9) & (t.hour < 18)
    errors = noise * np.random.default_rng(0).standard_normal(len(t))
    y = pd.Series(20 + 60.0 * on + errors, t)
    past = t < begin + pd.Timedelta(days=days)
    forecaster = StructuralForecaster().fit(y[past])
    ahead = forecaster.predict(fh=t[~past])
    assert (ahead - y[~past]).abs().mean() < 0.01 + 0.9 * noise
    shares = forecaster.components_["share"].xs("day, in steps", level="part")
    assert shares.item() > 0.95


@pytest.mark.slow
def test_steps_of_the_day_are_of_working_days_alone_where_these_differ() -> None:
    t = pd.date_range("2026-01-05", periods=17 * 96, freq="15min")
    on = (t.hour >= 9) & (t.hour < 18) & (t.dayofweek < 5)
    errors = np.random.default_rng(0).standard_normal(len(t))
    y = pd.Series(60.0 * on + errors, t)
    ahead = StructuralForecaster().fit(y[:-192]).predict(fh=t[-192:])
    assert (ahead - y[-192:]).abs().mean() < 1.0


@pytest.mark.slow
def test_days_of_fine_rows_that_differ_are_found_on_means() -> None:
    t = pd.date_range("2026-01-05", periods=15 * 288, freq="5min")
    share = np.arange(len(t)) % 288 / 288
    clean = 10 + 3 * np.sin(2 * np.pi * share) - 4 * (t.dayofweek >= 5)
    errors = 0.3 * np.random.default_rng(0).standard_normal(len(t))
    y = pd.Series(clean + errors, t)
    ahead = StructuralForecaster().fit(y[:-288]).predict(fh=t[-288:])
    assert (ahead - clean[-288:]).abs().mean() < 0.3
