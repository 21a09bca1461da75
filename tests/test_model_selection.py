"""Evaluations, searches and benchmarks of sktime, on irregular stamps."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.model_selection import GridSearchCV
from sktime.forecasting.base import BaseForecaster
from sktime.forecasting.model_evaluation import evaluate
from sktime.forecasting.model_selection import ForecastingGridSearchCV
from sktime.forecasting.naive import NaiveForecaster
from sktime.performance_metrics.forecasting import (
    MeanAbsoluteError,
    MeanRelativeAbsoluteError,
)
from sktime.performance_metrics.forecasting.probabilistic import (
    CRPS,
    EmpiricalCoverage,
    PinballLoss,
)
from sktime.split import (
    ExpandingGreedySplitter,
    ExpandingWindowSplitter,
    SlidingWindowSplitter,
)

from sklode import AbsoluteHorizon, AlignedMetric, StructuralForecaster
from sklode.model_selection import backtest, energy_score, quantile_crps
from sklode.model_selection.backtesting import backtested
from tests.cases import slow
from tests.series import tiny, uneven_stamps, waves

CV = ExpandingWindowSplitter(fh=[1, 2, 3], initial_window=14, step_length=4)
PANEL_CV = ExpandingWindowSplitter(fh=[1, 2, 3], initial_window=8, step_length=2)
MAE = MeanAbsoluteError()
MONTHS = pd.period_range("2020-01", periods=27, freq="M")


def panel_apart() -> pd.DataFrame:
    """Return three series of different lengths, each at stamps of its own."""
    parts = {
        f"s{k}": waves(uneven_stamps(n, k), k).to_frame()
        for k, n in enumerate((20, 13, 16))
    }
    return pd.concat(parts, names=["series", "when"])


SERIES = {
    "datetimes": waves(uneven_stamps()),
    "uneven months": waves(MONTHS.delete([4, 9, 20])),
    "panel apart": panel_apart(),
}


def by_hand(y: Any, cv: Any, **settings: Any) -> list[tuple[Any, Any, Any]]:
    """Return (training rows, truth, forecast) of each fold, at the truth's own rows."""
    folds = []
    for train, test in cv.split(y):
        truth = y.iloc[test]
        forecast = tiny(**settings).fit(y.iloc[train]).predict_at(truth.index)
        folds.append((y.iloc[train], truth, forecast))
    return folds


def mean_error(truth: Any, forecast: Any) -> float:
    """Return the mean over channels and series of mean absolute errors."""
    error = pd.DataFrame((forecast - truth).abs())
    if isinstance(error.index, pd.MultiIndex):
        error = error.groupby(level=list(range(error.index.nlevels - 1))).mean()
    return float(error.mean().mean())


def test_an_absolute_horizon_splits_as_the_splitter_it_wraps() -> None:
    y = waves(uneven_stamps())
    splitter = AbsoluteHorizon(CV)
    assert splitter.fh is None
    assert splitter.get_n_splits(y) == CV.get_n_splits(y) == 2
    np.testing.assert_array_equal(splitter.get_cutoffs(y), CV.get_cutoffs(y))
    for own, wrapped in zip(splitter.split(y), CV.split(y), strict=True):
        np.testing.assert_array_equal(own[0], wrapped[0])
        np.testing.assert_array_equal(own[1], wrapped[1])


@pytest.mark.parametrize(
    "cv",
    [
        SlidingWindowSplitter(fh=[1, 3], window_length=12, step_length=5),
        ExpandingGreedySplitter(test_size=3, folds=2),
    ],
)
def test_an_absolute_horizon_wraps_any_splitter_by_position(cv: Any) -> None:
    y = waves(uneven_stamps())
    results = evaluate(tiny(), AbsoluteHorizon(cv), y, scoring=MAE, error_score="raise")
    errors = [mean_error(truth, forecast) for _, truth, forecast in by_hand(y, cv)]
    np.testing.assert_allclose(results["test_MeanAbsoluteError"], errors)


IGNORE_SEARCH = pytest.mark.filterwarnings(
    "ignore:The default of config ``remember_data``:FutureWarning"
)
GRID = {"hidden_size": [2, 4], "lr": [0.01, 0.1]}


@IGNORE_SEARCH
@pytest.mark.parametrize("name", ["uneven months", slow("panel apart")])
def test_searches_of_sktime_score_at_the_test_stamps(name: str) -> None:
    y, cv = SERIES[name], PANEL_CV if name == "panel apart" else CV
    tuner = ForecastingGridSearchCV(
        tiny(),
        AbsoluteHorizon(cv),
        GRID,
        scoring=AlignedMetric(MAE),
        backend=None,
        error_score="raise",
    ).fit(y)
    results = tuner.cv_results_
    assert len(results) == 4
    errors = [
        np.mean([mean_error(t, f) for _, t, f in by_hand(y, cv, **settings)])
        for settings in results["params"]
    ]
    np.testing.assert_allclose(results["mean_test_MeanAbsoluteError"], errors)
    best = int(np.argmin(errors))
    assert tuner.best_params_ == results["params"][best]
    assert tuner.best_score_ == pytest.approx(errors[best])
    expected = tiny(**tuner.best_params_).fit(y).predict([1, 2])
    np.testing.assert_allclose(tuner.predict([1, 2]), expected)


FEW = pd.MultiIndex.from_tuples([("a", 0), ("a", 5), ("b", 3)], names=["series", "t"])
ALL = pd.MultiIndex.from_product([["b", "a"], [5, 0, 3]], names=["series", "t"])
TRUTH = pd.DataFrame({"y": [1.0, 2.0, 3.0], "z": [0.0, 0.0, 0.0]}, FEW)
FORECAST = pd.DataFrame(
    {"y": [9.0, 9.0, 4.0, 4.0, 2.0, 9.0], "z": [9.0, 9.0, 7.0, 5.0, 3.0, 9.0]}, ALL
)  # errors at the truth's rows: of a, y 1 and 2, z 3 and 5; of b, y 1 and z 7


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (MAE, ((1.5 + 4) / 2 + (1 + 7) / 2) / 2),
        (MeanAbsoluteError(multilevel="uniform_average_time"), (4 / 3 + 15 / 3) / 2),
        (MeanAbsoluteError(multioutput="raw_values"), [(1.5 + 1) / 2, (4 + 7) / 2]),
        (MeanAbsoluteError(multilevel="raw_values"), [[2.75], [4.0]]),
    ],
)
def test_an_aligned_metric_keeps_the_settings_of_its_metric(
    metric: Any, expected: Any
) -> None:
    aligned = AlignedMetric(metric)
    np.testing.assert_allclose(aligned(TRUTH, FORECAST), expected)
    np.testing.assert_allclose(aligned.evaluate(TRUTH, FORECAST), expected)
    settings = metric.get_params()
    reset = AlignedMetric(MeanAbsoluteError()).set_params(**settings)
    np.testing.assert_allclose(reset(TRUTH, FORECAST), expected)
    np.testing.assert_allclose(aligned.clone()(TRUTH, FORECAST), expected)


@pytest.mark.parametrize("index", [uneven_stamps(6), pd.Index([0, 2, 3, 8, 20, 21])])
def test_an_aligned_metric_takes_the_truths_rows_by_label(index: pd.Index) -> None:
    forecast = pd.Series(np.array([5.0, 1.0, 9.0, 2.0, 0.0, 4.0]), index)[::-1]
    truth = pd.Series(np.array([1.5, 3.0, 4.0]), index[[1, 3, 5]])
    assert AlignedMetric(MAE)(truth, forecast) == pytest.approx(0.5)
    by_row = AlignedMetric(MAE).evaluate_by_index(truth, forecast)
    assert by_row.tolist() == [0.5, 1.0, 0.0]
    assert by_row.index.equals(truth.index)
    weights = np.array([0.0, 3.0, 0.0])
    weighted = AlignedMetric(MAE)(truth, forecast, sample_weight=weights)
    assert weighted == MAE(truth, forecast.loc[truth.index], sample_weight=weights)
    assert weighted == pytest.approx(1.0)


def test_an_aligned_metric_aligns_the_benchmark_too() -> None:
    truth = pd.Series([1.0, 2.0], [0, 5])
    forecast = pd.Series([3.0, 9.0, 2.0], [5, 3, 0])
    benchmark = pd.Series([9.0, 0.0, 4.0], [3, 5, 0])
    metric = AlignedMetric(MeanRelativeAbsoluteError())
    score = metric(truth, forecast, y_pred_benchmark=benchmark)
    assert score == pytest.approx((1 / 3 + 1 / 2) / 2)


@pytest.mark.parametrize("name", ["y_pred", "y_pred_benchmark"])
def test_a_row_that_was_not_forecast_is_named(name: str) -> None:
    truth = pd.Series([1.0, 2.0, 3.0], [0, 4, 7])
    forecasts = {"y_pred": truth, "y_pred_benchmark": truth, name: truth[[0, 7]]}
    with pytest.raises(ValueError, match=rf"^{name} must have .* none at 4.*Absolute"):
        AlignedMetric(MeanRelativeAbsoluteError())(truth, **forecasts)


def test_an_aligned_metric_asks_for_a_metric_of_sktime() -> None:
    with pytest.raises(TypeError, match=r"metric must be one of sktime's.*got 'mae'"):
        AlignedMetric("mae")


def test_an_absolute_horizon_asks_for_a_splitter_of_sktime() -> None:
    with pytest.raises(TypeError, match=r"cv must be one of sktime's splitters; got 5"):
        AbsoluteHorizon(5)


@pytest.mark.parametrize("name", ["datetimes", "panel apart"])
def test_searches_of_scikit_learn_take_an_absolute_horizon(name: str) -> None:
    y, cv = SERIES[name] + 5, PANEL_CV if name == "panel apart" else CV
    grid = {"logarithm": [False, True]}
    tables = y, pd.DataFrame({"x": np.arange(len(y)) % 3.0}, y.index)
    search = GridSearchCV(StructuralForecaster(), grid, cv=AbsoluteHorizon(cv))
    folds = GridSearchCV(StructuralForecaster(), grid, cv=list(cv.split(y)))
    scores = [each.fit(*tables).cv_results_ for each in (search, folds)]
    np.testing.assert_array_equal(*(each["mean_test_score"] for each in scores))


@pytest.mark.parametrize("name", ["datetimes", slow("panel apart")])
def test_probabilistic_metrics_score_at_the_test_stamps(name: str) -> None:
    y, cv = SERIES[name], PANEL_CV if name == "panel apart" else CV
    metrics = [PinballLoss(alpha=[0.1, 0.9]), EmpiricalCoverage(coverage=0.8), CRPS()]
    results = evaluate(
        tiny(),
        AbsoluteHorizon(cv),
        y,
        scoring=[AlignedMetric(metric) for metric in metrics],
        error_score="raise",
    )
    for row, (train, test) in zip(results.itertuples(), cv.split(y), strict=True):
        asked = y.index[test].get_level_values(-1).unique()
        forecaster = tiny().fit(y.iloc[train], fh=asked)
        quantiles = forecaster.predict_quantiles(alpha=[0.1, 0.9]).loc[y.index[test]]
        truth = y.iloc[test].to_numpy().ravel()
        low, high = quantiles.to_numpy().T
        loss = [
            np.maximum(alpha * (truth - q), (alpha - 1) * (truth - q)).mean()
            for alpha, q in ((0.1, low), (0.9, high))
        ]
        assert row.test_PinballLoss == pytest.approx(np.mean(loss))
        inside = (low <= truth) & (truth <= high)
        assert row.test_EmpiricalCoverage == pytest.approx(inside.mean())
        if y.index.nlevels == 1:
            continue
        mean = forecaster.predict_at(y.index[test])["y"].to_numpy()
        scale = np.sqrt(forecaster.predict_var().loc[y.index[test], "y"].to_numpy())
        z = (truth - mean) / scale  # the CRPS of a normal distribution
        crps = z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi)
        assert row.test_CRPS == pytest.approx((scale * crps).mean())


# --- backtest -------------------------------------------------------------------------


class Recorder(BaseForecaster):
    """Forecasts the sum of X, or nought, and remembers what it was given."""

    _tags: ClassVar[Any] = {"capability:exogenous": True, "requires-fh-in-fit": False}
    _config: ClassVar[Any] = {"remember_data": False}
    seen: ClassVar[list[tuple[pd.Index, pd.Index]]] = []

    def _fit(self, y: Any, X: Any, fh: Any) -> Any:
        self._stamps = y.index
        assert X is None or X.index.equals(y.index)
        return self

    def _predict(self, fh: Any, X: Any) -> Any:
        asked = fh.to_absolute_index(self.cutoff)
        self.seen.append((self._stamps, asked))
        values = 0.0 if X is None else X.sum(axis=1).to_numpy()
        return pd.Series(values, asked)


def test_a_backtest_asks_at_true_stamps_for_the_rows_after_each_origin() -> None:
    y = waves(uneven_stamps())
    y.iloc[5] = np.nan
    y = y.rename(None)
    known = y.dropna()
    X = known.rename("x").to_frame().reindex(y.index).fillna(0.0)
    Recorder.seen.clear()
    results = backtest(Recorder(), y, X, horizon=3, origins=2)
    assert [list(asked) for _, asked in Recorder.seen] == [
        list(known.index[-6:-3]),
        list(known.index[-3:]),
    ]
    assert [len(before) for before, _ in Recorder.seen] == [
        len(known) - 6,
        len(known) - 3,
    ]
    own = results.xs("forecaster", level="method")
    assert list(own.index) == [known.index[-7], known.index[-4]]
    assert own["MAE"].tolist() == [0.0, 0.0]  # X is the truth
    assert own["coverage"].isna().all()
    last = results["MAE"].xs("last value", level="method")
    for origin, first in results["first"].xs("last value", level="method").items():
        place = y.index.get_loc(origin)
        assert first == pytest.approx(abs(y.iloc[place + 1] - y.iloc[place]))
    expected = (known.iloc[-3:] - known.iloc[-4]).abs().mean()
    assert last.iloc[-1] == pytest.approx(expected)


def test_the_seasonal_naive_repeats_the_season_between_uneven_stamps() -> None:
    hours = np.sort(np.random.default_rng(0).choice(24 * 20, 300, replace=False))
    stamps = pd.Timestamp("2024-01-01") + pd.to_timedelta(hours, unit="h")
    y = pd.Series(np.abs(hours % 24 - 12.0), stamps)
    results = backtest(Recorder(), y, origins=2, horizon=20)
    errors = results["MAE"].groupby("method").mean()
    assert errors["seasonal naive"] < 0.5 < 2 < errors["last value"]
    walk = pd.Series(np.random.default_rng(0).normal(size=60).cumsum())
    methods = backtest(Recorder(), walk, origins=1).index.get_level_values("method")
    assert list(methods) == ["forecaster", "last value", "drift"]


def test_a_drift_goes_on_as_from_the_first_to_the_last_value() -> None:
    stamps = uneven_stamps()
    hours = (stamps - stamps[0]) / pd.Timedelta("1h")
    line = pd.Series(3.0 + 0.25 * hours, stamps)
    errors = backtest(Recorder(), line, origins=2, horizon=5)["MAE"]
    errors = errors.groupby("method").mean()
    assert errors["drift"] < 1e-9 < 0.05 < errors["last value"]
    # a lone value has none
    y = pd.DataFrame({"a": 3 * [np.nan] + [3.0, 4.0, 5.0], "b": 7.0})
    results = backtest(StructuralForecaster(), y, origins=1, horizon=2)
    assert results["MAE"].droplevel("origin")[["last value", "drift"]].nunique() == 1


def hours_of(tz: Any) -> pd.DatetimeIndex:
    """Return the hours of seven weeks around a change to summer time."""
    return pd.date_range("2024-02-26", periods=7 * 168, freq="h", tz=tz)


OF_WEEK = {
    "no zone": hours_of(None),
    "a zone": hours_of("Europe/Berlin"),
    "periods": hours_of(None).to_period(),
    "uneven": hours_of("Europe/Berlin")[
        np.sort(np.random.default_rng(0).choice(1176, 700, replace=False))
    ],
}


@pytest.mark.parametrize("name", OF_WEEK)
def test_simple_methods_follow_the_clock_on_the_wall(name: str) -> None:
    index = OF_WEEK[name]
    y = pd.Series(10.0 + index.hour + 20.0 * (index.dayofweek > 4), index)
    results = backtest(Recorder(), y, origins=2, horizon=150)
    errors = results["MAE"].groupby("method", sort=False).mean()
    day = "24 periods before" if name == "periods" else "1 d before"
    four = "672 periods before" if name == "periods" else "28 d before"
    names = "seasonal naive", day, four, "mean of 4 weeks", "hour of the week"
    assert tuple(errors.index) == ("forecaster", "last value", "drift", *names)
    exact = ["hour of the week"]
    if name != "uneven":
        exact += ["seasonal naive", four, "mean of 4 weeks"]
    # an hour that the week of the change to summer time did not have
    assert (errors[exact] < 0.1).all()
    assert errors[day] > 2
    assert list(results.attrs["seasons"]) == list(names)
    assert results.attrs["horizon"] == 150


def test_days_have_a_mean_of_the_weekday_and_months_have_none() -> None:
    days = pd.date_range("2024-01-01", periods=60)
    y = pd.Series(np.arange(60) % 7 + np.arange(60) // 7 % 2.0, days)
    results = backtest(Recorder(), y, origins=1, horizon=14)
    errors = results["MAE"].droplevel("origin")
    assert errors["day of the week"] == pytest.approx(0.5, abs=0.1)
    index = pd.period_range("2020-01", periods=60, freq="M")
    months = pd.Series(np.arange(60) % 12.0, index)
    results = backtest(Recorder(), months, origins=1)
    methods = results.index.get_level_values("method")
    assert list(methods) == ["forecaster", "last value", "drift", "seasonal naive"]


@pytest.mark.parametrize(
    ("freq", "n_rows", "lags"),
    [
        ("D", 430, {"28 d before": 28, "364 d before": 364}),
        ("W", 70, {"seasonal naive": 52}),
        ("MS", 40, {}),
    ],
)
def test_rivals_know_the_same_weekday_weeks_and_a_year_ago(
    freq: str, n_rows: int, lags: dict[str, int]
) -> None:
    index = pd.date_range("2022-01-03", periods=n_rows, freq=freq)
    y = pd.Series(np.random.default_rng(0).standard_normal(n_rows).cumsum(), index)
    y += 5.0 * (index.dayofweek > 4)  # of days a week is the season
    errors = backtest(Recorder(), y, origins=2, horizon=6)["MAE"].groupby("method")
    for name, lag in lags.items():
        missed = (y - y.shift(lag)).abs()[-12:].mean()
        assert errors.mean()[name] == pytest.approx(missed)
    has_weeks = "mean of 4 weeks" in errors.groups
    assert has_weeks == (freq == "D")
    if has_weeks:
        mean = sum(y.shift(7 * k) for k in range(1, 5)) / 4
        missed = (y - mean).abs()[-12:].mean()
        assert errors.mean()["mean of 4 weeks"] == pytest.approx(missed)


def test_intervals_are_scored_beside_the_widths_that_errors_had() -> None:
    y = pd.Series(np.random.default_rng(0).standard_normal(220), name="y")
    given = {"origins": 4, "horizon": 20}

    def of_width(width: float) -> pd.DataFrame:
        quantile = 1.645 * width

        class Fixed(Recorder):
            _tags: ClassVar[Any] = {"capability:pred_int": True}

            def _update(self, y: Any, X: Any = None, update_params: Any = True) -> Any:
                return self

            def _predict_interval(self, fh: Any, X: Any, coverage: Any) -> Any:
                names = pd.MultiIndex.from_product(
                    [["y"], coverage, ["lower", "upper"]]
                )
                asked = fh.to_absolute_index(self.cutoff)
                values = np.tile([-quantile, quantile], (len(asked), 1))
                return pd.DataFrame(values, asked, names)

        results = backtested(Fixed(), y, None, coverage=0.9, is_scored=False, **given)
        return results.xs("forecaster", level="method")

    right, wide = of_width(1.0), of_width(4.0)
    misses = (y[-80:].abs() - 1.645).clip(0).to_numpy().reshape(4, 20).mean(axis=1)
    np.testing.assert_allclose(right["interval"], 2 * 1.645 + 20 * misses)
    # whatever their width, intervals as wide as errors were are the same
    np.testing.assert_allclose(right["empirical"], wide["empirical"])
    np.testing.assert_allclose(right["width"], 4 * wide["width"])
    assert right["width"].between(0.7, 1.3).all()
    assert (wide["interval"] > 2 * wide["empirical"]).all()
    assert backtest(Recorder(), y, **given)[["interval", "width"]].isna().all(axis=None)


def test_all_origins_have_the_methods_of_the_first() -> None:
    days = pd.date_range("2020-01-01", periods=500)
    y = pd.Series(np.sin(np.arange(500)), days)
    results = backtest(Recorder(), y, origins=3, horizon=60)
    assert (results.groupby("method").size() == 3).all()
    assert "364 d before" not in results.index.unique("method")  # not at the first


def test_a_backtest_of_a_panel_counts_origins_and_scales_errors() -> None:
    y = panel_apart()
    y["large"] = 1000 * y.iloc[:, 0]
    forecaster = StructuralForecaster(seasons=None)
    results = backtest(forecaster, y, horizon=3, origins=2)
    assert list(results.index.unique("origin")) == [1, 2]
    small = backtest(forecaster, y.iloc[:, :1], horizon=3, origins=2)
    column = "MAE"
    simple = results[column].xs("last value", level="method")
    alone = small[column].xs("last value", level="method")
    np.testing.assert_allclose(simple, alone)
    assert results["coverage"].xs("forecaster", level="method").between(0.3, 1).all()
    assert not forecaster.is_fitted


@pytest.mark.slow
def test_a_backtest_leaves_out_what_a_broken_sensor_wrote() -> None:
    hours = pd.date_range("2024-01-01", periods=200, freq="h")
    y = pd.Series(10 + np.sin(np.arange(200) / 4), hours)
    y.iloc[[50, 100, 140, 175]] = -999
    with pytest.warns(UserWarning, match="4 value") as told:
        results = backtest(StructuralForecaster(seasons=None), y, origins=1)
    assert len(told) == 1
    assert (results["MAE"] < 3).all()
    kept = backtest(StructuralForecaster(seasons=None, clean=False), y, origins=1)
    assert (kept["MAE"] > 3).all()


def test_a_backtest_that_cannot_be_made_says_why() -> None:
    y = waves(uneven_stamps())
    with pytest.raises(
        TypeError, match=r"takes a forecaster, then y .* got Series and"
    ):
        backtest(y, StructuralForecaster())
    with pytest.raises(ValueError, match=r"as many rows .* 2 origins of 9 rows each"):
        backtest(StructuralForecaster(), y, horizon=9, origins=2)
    with pytest.raises(ValueError, match="origins must be a whole number"):
        backtest(StructuralForecaster(), y, origins=0)


Y = waves(uneven_stamps())
CONTROLS = pd.DataFrame({"x": 1.0}, Y.index)
PANEL = panel_apart()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((Y, 12), r"after y comes X, .*got a number.*y, horizon=12\)"),
        ((Y, CONTROLS.to_numpy()), "X must have the stamps of y; got an array"),
        ((Y, CONTROLS[:9]), "X must have a row at every stamp of y; got none"),
        ((Y, CONTROLS.reset_index(drop=True)), "X must be of the kind of y's index"),
        ((PANEL, CONTROLS), r"X must have the index levels of y, \['series', 'when"),
        ((PANEL.reset_index(),), r"set_index\(\['series', 'when'\]\)"),
        ((PANEL.iloc[:, 0],), r"Pass y\.to_frame\(\)"),
        ((pd.concat([Y, Y[:1]]),), "times of y must be strictly increasing"),
        ((Y[::-1],), r"y\.sort_index\(\)"),
    ],
)
@pytest.mark.parametrize("forecaster", [StructuralForecaster(clean=False), Recorder()])
def test_a_backtest_refuses_tables_as_fit_does(
    forecaster: Any, arguments: Any, message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        backtest(forecaster, *arguments)


@pytest.mark.parametrize("coverage", [90, 1.0, True, "0.9", [0.5, 0.9], None])
def test_the_coverage_of_a_backtest_is_one_number(coverage: Any) -> None:
    with pytest.raises(ValueError, match=r"one number between .*Use .*coverage=0\.9\."):
        backtest(StructuralForecaster(), Y, coverage=coverage)


HOURLY = waves(pd.date_range("2024-01-01", periods=40, freq="h"))
UNEVEN = HOURLY.drop(HOURLY.index[[3, 20, 33]])
OF_HOURS = pd.concat({"s0": HOURLY.to_frame(), "s1": HOURLY.to_frame()})


class InSteps(NaiveForecaster):
    _config: ClassVar[Any] = {"remember_data": False}


@pytest.mark.parametrize(
    ("y", "message", "mended"),
    [
        (
            UNEVEN,
            r"y\.resample\('1h'\)\.mean\(\)\.interpolate\(\)",
            UNEVEN.resample("1h").mean().interpolate(),
        ),
        (OF_HOURS, r"Take one series, y\.xs\(key\)", OF_HOURS.xs("s0")),
    ],
)
def test_forecasters_that_count_steps_are_told_what_a_backtest_asks(
    y: Any, message: str, mended: Any
) -> None:
    said = f"which InSteps cannot answer; got its error '.*{message}"
    with pytest.raises(ValueError, match=said):
        backtest(InSteps(), y, origins=2)
    assert len(backtest(InSteps(), mended, origins=2))
    # another error is the forecaster's own
    with pytest.raises(TypeError, match="nought"):
        backtest(Failing(), mended, origins=2)


class Failing(Recorder):
    def _fit(self, y: Any, X: Any, fh: Any) -> Any:
        raise TypeError("nought")


def test_scores_of_normal_distributions_are_those_in_closed_form() -> None:
    alpha, truth = np.arange(0.0025, 1, 0.005), np.array([-1.0, 0.3, 4.0])
    quantiles = 1 + 2 * norm.ppf(np.tile(alpha, (3, 1)))
    z = (truth - 1) / 2
    density = 2 * norm.pdf(z) + z * (2 * norm.cdf(z) - 1) - 1 / np.sqrt(np.pi)
    np.testing.assert_allclose(
        quantile_crps(truth, quantiles, alpha), 2 * density, rtol=2e-3
    )
    paths = 1 + 2 * np.random.default_rng(0).standard_normal((3000, 1))
    for k in range(3):  # of one value both scores are the same
        found = energy_score(truth[[k]], paths)
        assert found == pytest.approx(2 * density[k], rel=0.05)


def test_points_are_scored_by_their_errors_and_distributions_below_them() -> None:
    results = backtest(StructuralForecaster(random_state=0), waves(), origins=2)
    own = results.xs("forecaster", level="method")
    simple = results.drop("forecaster", level="method")
    assert (simple["CRPS"] == simple["MAE"]).all()
    assert (simple["energy"] == simple["RMSE"]).all()
    assert (own["CRPS"] < own["MAE"]).all()
    assert (own["energy"] < own["RMSE"]).all()
