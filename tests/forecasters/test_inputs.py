"""Questions and data that cannot be answered are refused at the first offender."""

from __future__ import annotations

import datetime
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sktime.forecasting.base import ForecastingHorizon
from sktime.forecasting.model_evaluation import evaluate
from sktime.split import ExpandingWindowSplitter

from sklode import AbsoluteHorizon, LatentODELSTMForecaster, StructuralForecaster
from sklode.data.clock import calendar_features
from sklode.data.errors import WeightsFileError
from tests.remedies import mended
from tests.series import panel, waves

DAYS = pd.date_range("2024-01-01", periods=40, freq="D")
Y = pd.Series(np.arange(40.0), DAYS)


def fitted(y: Any = None, **given: Any) -> StructuralForecaster:
    y = waves() if y is None else y
    return StructuralForecaster(seasons=None, n_samples=5, random_state=0).fit(
        y, **given
    )


@pytest.mark.parametrize("question", ["predict", "predict_interval", "sample"])
def test_a_missing_horizon_is_told_with_what_to_pass(question: str) -> None:
    with pytest.raises(
        ValueError, match=r"fh must say .* predict\(fh=range\(1, 13\)\)"
    ):
        getattr(fitted(), question)()


def test_counts_are_whole_numbers_above_zero() -> None:
    for wrong in (True, 0, 2.5):
        with pytest.raises(ValueError, match=f"n_samples must be .* got {wrong}"):
            fitted().sample([1], n_samples=wrong)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=f"harmonics must be .* got {wrong}"):
            calendar_features(DAYS, ["week"], harmonics=wrong)  # type: ignore[arg-type]


def test_a_table_of_probabilities_is_refused() -> None:
    with pytest.raises(ValueError, match="alpha must be a number between 0 and 1"):
        fitted().predict_quantiles([1], alpha=np.array([[0.1, 0.5], [0.2, 0.9]]))


def test_an_empty_list_is_no_table() -> None:
    with pytest.raises(TypeError, match="X must be of type Series or Data"):
        fitted(X=[])


def test_rows_that_a_list_of_frames_lacks_are_named() -> None:
    y = [pd.DataFrame({"v": np.arange(9.0)}) for _ in range(2)]
    X = [pd.DataFrame({"u": np.arange(9.0)}), pd.DataFrame({"u": np.arange(7.0)})]
    with pytest.raises(ValueError, match="X must have a row at every stamp"):
        fitted(y, X=X)


@pytest.mark.parametrize("question", ["predict_interval", "predict_var", "sample"])
def test_controls_of_a_panel_come_in_any_order(question: str) -> None:
    y = panel()
    X = pd.DataFrame({"u": np.sin(np.arange(len(y)))}, y.index)
    forecaster = fitted(y, X=X)
    rows = pd.MultiIndex.from_arrays(
        [["s0", "s1"], y.index.levels[1][[-1, -1]] + pd.Timedelta("9h")]
    )
    later = pd.DataFrame({"u": [0.5, -0.5]}, rows)
    ask = getattr(forecaster, question)
    expected = ask(rows, X=later)
    pd.testing.assert_frame_equal(ask(rows, X=later[::-1]), expected)
    pd.testing.assert_frame_equal(ask(rows, X=later["u"]), expected)


def test_a_horizon_with_the_step_of_the_series_is_taken_in_fit_and_others_not() -> None:
    hours = pd.Series(np.arange(30.0), pd.timedelta_range("0h", periods=30, freq="h"))
    days = pd.Series(np.arange(40.0), DAYS).drop(DAYS[[7, 8, 20]])
    for y, freq in ((hours, "h"), (days, "D")):
        fh = ForecastingHorizon([1, 2], freq=freq)
        expected = fitted(y).predict([1, 2])
        pd.testing.assert_series_equal(
            fitted(y, fh=fh).predict(), expected, check_freq=False
        )
    with pytest.raises(ValueError, match="a step of fh must be as long"):
        fitted(days, fh=ForecastingHorizon([1], freq="2D"))


def test_a_median_gap_of_days_is_a_length_of_time_over_a_change_of_clocks() -> None:
    hours = np.cumsum([24, 24, 23, 25, 24, 24, 26, 24, 22, 24])
    start = pd.Timestamp("2024-03-20 00:30", tz="Europe/Berlin")
    y = pd.Series(np.arange(10.0), start + pd.to_timedelta(hours, unit="h"))
    ahead = fitted(y).predict([10]).index
    assert ahead[0] - y.index[-1] == pd.Timedelta("240h")


def test_a_file_that_could_not_be_read_replaces_none(tmp_path: Path) -> None:
    path = tmp_path / "forecaster"
    fitted().save_weights(path)
    zone = datetime.timezone(datetime.timedelta(hours=5), "XYZ")
    with pytest.raises(WeightsFileError):
        fitted(pd.Series(np.arange(40.0), DAYS.tz_localize(zone))).save_weights(path)
    assert StructuralForecaster.load_weights(path).predict([1]).shape == (1,)


def test_a_refused_fit_predict_leaves_the_forecaster_as_it_was() -> None:
    forecaster = fitted()
    before = forecaster.predict([1])
    with pytest.raises(TypeError):
        forecaster.fit_predict("words", fh=[1])
    pd.testing.assert_series_equal(forecaster.predict([1]), before)


def test_an_unknown_parameter_is_refused_with_the_nearest_one() -> None:
    said = "LatentODELSTMForecaster has no parameter 'hiden_size'. .* 'hidden_size'"
    with pytest.raises(TypeError, match=said):
        LatentODELSTMForecaster(hiden_size=8)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"no parameter 'xyz'\. It has .*'seasons'"):
        StructuralForecaster().set_params(xyz=1)


def test_arguments_in_the_order_of_scikit_learn_are_told() -> None:
    X = pd.DataFrame({"a": np.arange(40.0), "b": 1.0}, DAYS)
    with pytest.raises(TypeError, match=r"y comes first.* 2 columns.* a DataFrame"):
        StructuralForecaster().fit(X, X["a"])
    with pytest.raises(TypeError, match=r"y comes first.* 2 columns, then one"):
        StructuralForecaster().fit(X.to_numpy(), X["a"].to_numpy())
    with pytest.raises(TypeError, match=r"stamps of y; got an array.*\(X, y\.index\)"):
        StructuralForecaster().fit(X["a"], X.to_numpy())
    with pytest.raises(TypeError, match=r"dtype object, such as '\?'"):
        StructuralForecaster().fit(pd.Series([1.0, None, "?"], DAYS[:3], dtype=object))
    one = X[["a"]] * 2.0
    assert fitted(one, X=X["b"]).predict([1], X=X["b"].shift(1, "D")).shape == (1, 1)


LONG = pd.DataFrame({"unique_id": "a", "ds": DAYS, "y": np.arange(40.0)})


@pytest.mark.parametrize("long", [LONG, LONG[["ds", "y"]], LONG.set_index("ds")])
def test_the_long_format_is_told_how_to_become_an_index(long: pd.DataFrame) -> None:
    with pytest.raises(TypeError, match="series and times of y are its index") as info:
        fitted(long)
    lines = str(info.value).rpartition("These two lines make it: ")[2]
    names = {"pd": pd, "df": long}
    exec(lines, names)  # what the message says works
    assert fitted(names["y"]).predict([1]).shape == (1, 1)


def test_fractions_of_a_float_index_are_kept_apart_by_the_remedy() -> None:
    y = pd.Series(np.arange(9.0), np.arange(9) / 2)
    with pytest.raises(TypeError, match=r"y\.index = pd\.to_timedelta") as info:
        fitted(y)
    y = mended(info.value, y=y)["y"]
    assert fitted(y).predict([1]).index[0] == pd.Timedelta("4.5s")


def test_a_stamp_or_a_date_as_text_is_a_horizon() -> None:
    y, months = pd.Series(np.arange(40.0), DAYS), pd.period_range("2020-01", periods=40)
    ahead = pd.Timestamp("2024-02-20")
    forecaster = fitted(y)
    expected = forecaster.predict(pd.DatetimeIndex([ahead]))
    for fh in (ahead, "2024-02-20", ahead.date(), ["2024-02-20"], (ahead,)):
        found = forecaster.predict(fh)
        assert list(found.index) == [ahead]
        assert found.iloc[0] == expected.iloc[0]
    zoned = fitted(y.tz_localize("Asia/Tokyo")).predict("2024-02-20")
    assert zoned.index[0] == ahead.tz_localize("Asia/Tokyo")
    of_month = fitted(y.set_axis(months)).predict("2023-07")
    assert of_month.index[0] == pd.Period("2023-07", months.freq)
    with pytest.raises(ValueError, match=r"must be a date; got '30D'.* pd\.Timedelta"):
        fitted(y).predict("30D")
    with pytest.raises(TypeError, match="must be of the kind of y's index, integers"):
        fitted(pd.Series(np.arange(9.0))).predict("2024-02-20")


@pytest.mark.slow
def test_an_evaluation_at_other_times_than_the_fold_says_what_to_wrap() -> None:
    cv = ExpandingWindowSplitter(fh=[1, 2], initial_window=30, step_length=9)
    forecaster = StructuralForecaster(seasons=None)
    ends = pd.date_range("2024-01-31", periods=40, freq="ME")
    whole = [pd.DataFrame({"y": np.arange(40.0)}, index) for index in (DAYS, ends)]
    for y in (*whole, pd.concat(dict(enumerate(whole)))):  # steps of their own
        evaluate(forecaster, cv, y)
        y = y.drop(y.index[[7, 8, 20]])
        with pytest.warns(UserWarning, match=r"splitter: AbsoluteHorizon\(cv\)"):
            evaluate(forecaster, cv, y)
    y = whole[0].drop(DAYS[[7, 8, 20]])["y"]
    evaluate(forecaster, AbsoluteHorizon(cv), y)
    fitted(y, fh=[1, 2]).predict()
    fitted(y).predict([1, 2])
    fitted(y, fh=[1, 2]).predict([1, 3])
    fitted(y, fh=[1, 2]).predict_proba()
    fitted(pd.concat({0: y.to_frame(), 1: y.to_frame()}), fh=[1, 2]).predict_proba()
    with pytest.warns(UserWarning, match="forecasts come at other times than rows"):
        fitted(y, fh=[1, 2]).predict([1, 2])
    # as in a program that has no name
    names = {"forecaster": forecaster, "y": y}
    exec("found = forecaster.fit(y, fh=[1, 2]).predict()", names)
    assert len(names["found"]) == 2


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda f: f.predict(steps=3),
            r"has no parameter 'steps'\. It has \['fh",
        ),
        (lambda f: f.predict(fhh=[1]), "no parameter 'fhh'. Did you mean 'fh'"),
        (lambda f: f.fit(Y, x=Y), "fit has no parameter 'x'. It has .*'X'"),
        (lambda f: f.update(df=Y), "update has no parameter 'df'"),
        (
            lambda f: f.sample([1], n=3),
            "no parameter 'n'. It has .*n_samples",
        ),
        (lambda f: type(f).fit(Y, Y), r"got a Series in its place\. Make one first"),
        (lambda f: f.predict_at(["2024-02-10"]), r"got list\. .*DatetimeIndex\(stamps"),
        (lambda f: f.predict_at(Y), r"got Series\. .*index=table\.index"),
        (lambda f: f.predict_at("2024-02-10"), r"got str\. .*index=.*\(\[stamp\]\)"),
        (lambda f: f.predict_interval([1], 0.9), r"by its name, such as coverage=0\.9"),
        (lambda f: f.update(Y, False), r"or update_params=False"),
    ],
)
def test_arguments_of_other_packages_are_told(ask: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        ask(fitted())


@pytest.mark.parametrize(
    ("name", "value", "example"),
    [
        ("seasons", 7, r"seasons=\['1D', '7D'\], or \[12\]"),
        ("seasons", "7D", r"seasons=\['1D', '7D'\], or \[12\]"),
        ("bounds", 0, r"bounds=\(0, 100\)"),
        ("holidays", DAYS[:2], r"holidays='DE', or pd\.Series\('closed', index=dates"),
        ("freq", 7, "freq='1h'"),
        ("freq", "H", "got 'H'. Use for example freq='1h', 'D', 'MS'"),
        ("freq", "1H", "got '1H'. Use freq='h'."),
        ("freq", "90 minutes", "got '90 minutes'. Use freq='90min'."),
        ("random_state", "zero", "random_state=0"),
        ("logarithm", "yes", "logarithm=True, False or 'auto'"),
        ("logarithm", None, "logarithm=True, False or 'auto'"),
        ("clean", "no", "clean=True"),
        ("n_samples", 0, "n_samples=100"),
    ],
)
def test_a_parameter_of_another_kind_is_told_with_an_example(
    name: str, value: Any, example: str
) -> None:
    message = example if example.startswith("got") else f"Use for example {example}"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises((TypeError, ValueError), match=message) as info:
            StructuralForecaster(**{name: value}).fit(Y)
    assert repr(value) in str(info.value)
    assert "instance of" not in str(info.value)
