"""Tables of any kind are read, or refused with a line that makes them readable."""

from __future__ import annotations

import warnings
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import StructuralForecaster
from sklode.data.tables import read_table
from tests.cases import mostly_slow, slow
from tests.remedies import mended
from tests.series import tiny

DAYS = pd.date_range("2024-01-01", periods=40, freq="D")
Y = pd.Series(10 + np.sin(np.arange(40) / 3), DAYS, name="v").round(4)
RNG = np.random.default_rng(0)
X = pd.DataFrame({"a": RNG.normal(size=40), "b": RNG.normal(size=40)}, DAYS).round(4)
AHEAD = pd.date_range("2024-02-10", periods=2, freq="D")
X_AHEAD = pd.DataFrame({"a": [0.5, -0.5], "b": [1.0, 0.25]}, AHEAD)
LATER = pd.Series([10.5, 10.25], AHEAD, name="v")


def structural(y: Any, X: Any = None) -> StructuralForecaster:
    return StructuralForecaster(seasons=None, n_samples=5, random_state=0).fit(y, X)


def network(y: Any, X: Any = None) -> Any:
    return tiny().fit(y, X)


def shops(table: Any) -> pd.DataFrame:
    """Return a panel of two series that are alike."""
    names = ["shop", "when"]
    return pd.concat({key: pd.DataFrame(table) for key in "pq"}, names=names)


FITS = pytest.mark.parametrize("fit", [structural, slow(network)])
SHAPES: dict[str, Any] = {"single": lambda table: table, "panel": shops}
SHAPED = pytest.mark.parametrize("shape", mostly_slow(SHAPES))


def with_second(column: pd.Series, value: Any) -> pd.Series:
    column = column.astype(object)
    column.iloc[1] = value
    return column


OBJECTS: dict[str, Any] = {
    "floats": lambda v: v.astype(object),
    "decimals": lambda v: v.map(lambda x: Decimal(str(x))).astype(object),
    "fractions": lambda v: v.map(Fraction).astype(object),
    "None": lambda v: with_second(v, None),
    "NA": lambda v: with_second(v, pd.NA),
    "no decimal": lambda v: with_second(v, Decimal("nan")),
}


def floats(objects: pd.Series) -> pd.Series:
    values = [np.nan if pd.isna(value) else float(value) for value in objects]
    return pd.Series(values, objects.index, name=objects.name)


@pytest.mark.parametrize("kind", OBJECTS)
def test_numbers_of_dtype_object_become_floats(kind: str) -> None:
    column = OBJECTS[kind](Y)
    table = X.assign(a=OBJECTS[kind](X["a"]))
    before = table.copy()
    expected = X.assign(a=floats(table["a"]))
    pd.testing.assert_series_equal(read_table(column), floats(column))
    pd.testing.assert_frame_equal(read_table(table, "X"), expected)
    (found,) = read_table([table])
    pd.testing.assert_frame_equal(found, expected)
    pd.testing.assert_frame_equal(table, before)
    assert read_table(expected) is expected


@FITS
@SHAPED
def test_forecasts_of_objects_are_those_of_floats(shape: str, fit: Any) -> None:
    make, decimals = SHAPES[shape], OBJECTS["decimals"]
    y, later = OBJECTS["None"](Y), OBJECTS["None"](LATER)
    controls, ahead = X.apply(decimals), X_AHEAD.apply(decimals)
    answers = []
    for tables in (
        (y, controls, ahead, later),
        (floats(y), controls.apply(floats), ahead.apply(floats), floats(later)),
    ):
        y, controls, ahead, later = (make(table) for table in tables)
        forecaster = fit(y, controls)
        found = [
            forecaster.predict([1, 2], X=ahead),
            forecaster.predict_at(ahead.index, X=ahead),
            forecaster.predict_residuals(later, X=ahead),
        ]
        forecaster.update(later, ahead, update_params=False)
        answers.append([*found, forecaster.predict_residuals()])
    for found, expected in zip(*answers, strict=True):
        assert expected.notna().to_numpy().any()
        np.testing.assert_array_equal(found, expected)


def test_decimals_of_arrow_are_numbers() -> None:
    arrow = pytest.importorskip("pyarrow")
    dtype = pd.ArrowDtype(arrow.decimal128(20, 4))
    decimals = Y.map(lambda x: Decimal(str(x))).astype(dtype)
    expected = structural(Y).predict([1])
    pd.testing.assert_series_equal(structural(decimals).predict([1]), expected)


TEXTS: dict[str, tuple[Any, str]] = {
    "numbers": (lambda v: v.map(str), r"such as '10\.0' at .*2024-01-01"),
    "decimal commas": (lambda v: v.map(str).str.replace(".", ","), r"such as '10,0'"),
    "thousands": (lambda v: v.map(lambda x: f"{1000 * x:,.0f}"), r"such as '10,000'"),
    "commas among numbers": (lambda v: with_second(v, "10,5"), r"such as '10,5' at"),
    "a text among them": (lambda v: with_second(v, "n/a"), r"'n/a' at .*2024-01-02"),
    "a text among texts": (lambda v: with_second(v.map(str), "?"), "such as '10"),
    "a category": (lambda v: v.astype("category"), r"dtype category, such as 10\.0"),
    "lengths of time": (lambda v: pd.to_timedelta(v, unit="h"), "such as Timedelta"),
}


@FITS
@SHAPED
@pytest.mark.parametrize("case", TEXTS)
def test_y_that_is_no_number_is_named_and_mended(
    case: str, shape: str, fit: Any
) -> None:
    change, message = TEXTS[case]
    y = SHAPES[shape](change(Y))
    forecaster = fit(SHAPES[shape](Y))
    for refused in (fit, lambda y: forecaster.update(y, update_params=False)):
        with pytest.raises(TypeError, match=rf"got column 'v' of .*{message}") as info:
            refused(y)
    y = mended(info.value, y=y.copy())["y"]
    assert np.asarray(y).dtype.kind in "fi"
    factor = 1000 if case == "thousands" else 1
    assert abs(np.nanmean(y) / factor - Y.mean()) < 0.01
    assert fit(y).predict([1]).notna().to_numpy().all()


@pytest.mark.parametrize(
    ("texts", "readings"),
    [
        (["10,013", "9,500"], [10013, 10.013]),
        (["10,013", "950"], [10013, 10.013]),
        (["10,013", "0,950"], [10.013]),
        (["10,013", "9,5"], [10.013]),
        (["10,013", "9500,250"], [10.013]),
        (["1.010,013", "9,500"], [1010.013]),
        (["10,013", "9.5"], [10013]),
        (["10,013", "1,009,500"], [10013]),
        ([" 10,013", "+0,5"], [10.013]),
        (["10,013", 9.5, "9,5"], [10.013]),
        (["10", "9.5"], [10]),
    ],
)
def test_a_comma_is_read_as_values_show_or_both_readings_are_told(
    texts: list[Any], readings: list[float]
) -> None:
    y = pd.Series(texts, DAYS[: len(texts)], dtype=object)
    with pytest.raises(TypeError, match="Convert it") as info:
        structural(y)
    for place, expected in enumerate(readings):
        found = mended(info.value, place=place, y=y)["y"]
        assert found.iloc[0] == expected
        assert found.notna().all()
    with pytest.raises(IndexError):
        mended(info.value, place=len(readings), y=y)


def test_texts_of_numbers_in_x_are_told() -> None:
    rng = np.random.default_rng(1)
    size = pd.Series(rng.integers(3, size=40), DAYS)
    texts = pd.DataFrame({"size": size.map({0: "1", 1: "2.5", 2: "10"})})
    message = r"of column 'size' are all numbers, such as '1'"
    with pytest.warns(UserWarning, match=message) as told:
        forecaster = structural(Y, texts)
    first, second = str(told[0].message).split("; if it is")
    number = mended(first, X=texts.copy())["X"]
    category = mended(f"; {second.partition(': ')[2]}", X=texts.copy())["X"]
    assert number["size"].dtype == np.float64
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        structural(Y, number)
        expected = structural(Y, category).predict([1], X=texts[:1].shift(40, "D"))
        found = forecaster.predict([1], X=texts[:1].shift(40, "D"))
        # of two levels a number says the same
        structural(Y, texts.where(texts == "1", "10"))
    pd.testing.assert_series_equal(found, expected)


def test_numbers_in_place_of_their_texts_are_told_how_to_become_texts() -> None:
    grade = pd.Series(np.arange(40) % 3, DAYS).astype(str).astype("category")
    forecaster = structural(Y, pd.DataFrame({"grade": grade}))
    ahead = pd.DataFrame({"grade": [1, 2]}, AHEAD)
    with pytest.warns(UserWarning, match="got 1 in column 'grade'") as told:
        forecaster.predict(AHEAD, X=ahead)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        forecaster.predict(AHEAD, X=mended(told[0].message, X=ahead)["X"])


def test_texts_where_numbers_were_are_mended() -> None:
    forecaster = structural(Y, X)
    texts = X_AHEAD.assign(a=["0.5", "-0.5"])
    with pytest.raises(TypeError, match=r"'a' of X must hold numbers.*'0\.5'") as info:
        forecaster.predict(AHEAD, X=texts)
    found = forecaster.predict(AHEAD, X=mended(info.value, X=texts)["X"])
    pd.testing.assert_series_equal(found, forecaster.predict(AHEAD, X=X_AHEAD))


QUESTIONS: dict[str, Any] = {
    "predict": lambda f, X: f.predict([1, 2], X=X),
    "predict_at": lambda f, X: f.predict_at(X_AHEAD.index, X=X),
    "interval": lambda f, X: f.predict_interval(AHEAD, X=X),
    "sample": lambda f, X: f.sample(AHEAD, X=X),
    "update": lambda f, X: f.update(LATER, X, update_params=False),
}
COLUMNS: dict[str, tuple[Any, str]] = {
    "more": (lambda X: X.assign(c=1.0), r"had, \['a', 'b'\]; got .*Leave out \['c'\]"),
    "fewer": (lambda X: X[["a"]], r"got \['a'\]\. It lacks \['b'\]"),
    "others": (lambda X: X.set_axis([0, 1], axis=1), r"got \[0, 1\]\. If they are"),
    "capitals": (lambda X: X.rename(columns={"a": "A"}), r"columns=\{'A': 'a'\}\)\."),
    "a space": (
        lambda X: X.rename(columns={"b": "b "}).assign(c=1.0),
        r"columns=\{'b ': 'b'\}\)\[\['a', 'b'\]\]\.",
    ),
    "one other": (
        lambda X: X.rename(columns={"a": "x"}),
        r"\{'x': 'a'\}\); where it is not known, .*reindex",
    ),
    "too many others": (
        lambda X: X.assign(c=1.0).set_axis(["x", "y", "z"], axis=1),
        r"columns=\{'x': 'a', 'y': 'b'\}\)\[",
    ),
}


@FITS
@pytest.mark.parametrize("case", COLUMNS)
def test_columns_of_x_are_those_of_fit(case: str, fit: Any) -> None:
    change, message = COLUMNS[case]
    forecaster, others = fit(Y, X), change(X_AHEAD)
    for ask in QUESTIONS.values():
        with pytest.raises(ValueError, match=message) as info:
            ask(forecaster, others)
    same = mended(info.value, X=others)["X"]
    assert [*same] == ["a", "b"]
    if case != "fewer":
        pd.testing.assert_frame_equal(same, X_AHEAD)


def test_rows_of_keys_of_numbers_are_named_plainly() -> None:
    y, controls = (shops(table).rename({"p": 1, "q": 2}) for table in (Y, X))
    forecaster = structural(y, controls)
    message = r"first \(1, 2024-02-10\): it is forecast"
    with pytest.warns(UserWarning, match=message):
        forecaster.predict([1, 2])
    spoilt = y.astype(object)
    spoilt.iloc[50] = "?"
    rows: dict[str, Any] = {
        r"'\?' at \(2, 2024-01-11\)\.": lambda: structural(spoilt),
        r"got none at \(1, 2024-01-04\)\.": lambda: structural(
            y, controls.drop(index=y.index[3])
        ),
        r"inf in column .* at \(1, 2024-01-01\)\.": lambda: structural(
            y.replace(0.0, np.inf).replace(Y.iloc[0], np.inf)
        ),
        r"after 2024-01-02 .* at row 2 of series \(1,\)\.": lambda: structural(
            y.iloc[[0, 1, 1, 2]]
        ),
        r"missing\. ": lambda: structural(y.assign(v=np.nan)),
        r"got \(3,\), seen were \(1,\), \(2,\)\.\.\.": lambda: forecaster.score(
            y.rename({1: 3})
        ),
    }
    for message, ask in rows.items():
        with pytest.raises((TypeError, ValueError), match=message):
            ask()
    # as a row of the history
    with pytest.raises(ValueError, match=r"at 2024-01-01 .* of series \(1,\)"):
        StructuralForecaster(bounds=(1e6, None)).fit(y)


def test_a_score_of_other_columns_says_how_to_name_them() -> None:
    two = pd.DataFrame({"x": LATER, "y": LATER})
    for y in (Y, pd.DataFrame({"p": Y}), pd.DataFrame({"p": Y, "q": -Y, "r": Y})):
        forecaster = structural(y)
        with pytest.raises(ValueError, match="rename") as info:
            forecaster.score(two)
        named = mended(info.value, y=two)["y"]
        if pd.DataFrame(y).shape[1] < 3:
            assert forecaster.score(named) == forecaster.score(LATER)


STAMPS: dict[str, tuple[pd.Index, Any]] = {
    "days": (DAYS, [1, 2, 3, 4, 5]),
    "a few days": (DAYS, [1, 2]),
    "days that miss some": (DAYS, [1, 2, 4]),
    "zoned": (DAYS.tz_localize("Europe/Berlin"), range(1, 90)),
    "ends of months": (pd.date_range("2020-01", periods=40, freq="ME"), range(1, 9)),
    "periods": (pd.period_range("2024-01", periods=40, freq="M"), [1, 2, 3, 4]),
    "a period": (pd.period_range("2024-01", periods=40, freq="M"), [1]),
    "lengths of time": (pd.timedelta_range("0h", periods=40, freq="h"), range(1, 9)),
}


@pytest.mark.parametrize("case", STAMPS)
def test_x_without_stamps_gets_those_that_are_asked_for(case: str) -> None:
    index, fh = STAMPS[case]
    forecaster = structural(Y.set_axis(index), X.set_axis(index))
    ahead = pd.DataFrame({"a": np.arange(float(len(fh))), "b": 1.0})
    with pytest.raises(TypeError, match="stamps that are asked for") as e:
        forecaster.predict(fh, X=ahead)
    named = mended(e.value, X=ahead)["X"]
    found = forecaster.predict(fh, X=named)
    assert (found.index == named.index).all()


class DataFrame:
    """Looks as a table of polars does, as far as a message looks at it."""

    __module__ = "polars.dataframe.frame"
    columns = ("time", "v")

    def __init__(self, table: pd.Series) -> None:
        self._table = table.rename_axis("time").reset_index()

    def to_pandas(self) -> pd.DataFrame:
        return self._table


class LazyFrame(DataFrame):
    __module__ = "polars.lazyframe.frame"

    def collect(self) -> DataFrame:
        return self


class Array:
    """Looks as a column of pyarrow does."""

    __module__ = "pyarrow.lib"

    def __init__(self, column: pd.Series) -> None:
        self._column = column

    def to_numpy(self) -> np.ndarray:
        return self._column.to_numpy()


CONTAINERS: dict[str, tuple[Any, str]] = {
    "polars": (DataFrame, "got DataFrame of polars"),
    "a query of polars": (LazyFrame, "got LazyFrame of polars"),
    "pyarrow": (Array, "got Array of pyarrow"),
    "a dict": (lambda v: {"v": v.tolist()}, "got dict"),
}


@FITS
@pytest.mark.parametrize("case", CONTAINERS)
def test_other_containers_are_told_how_to_become_a_table(case: str, fit: Any) -> None:
    make, message = CONTAINERS[case]
    alone, controlled = fit(Y), fit(Y, X)
    for ask in (fit, alone.update, alone.score, alone.predict_residuals):
        with pytest.raises(
            TypeError, match=f"y must be of type Series or .*{message}"
        ) as y:
            ask(make(Y))
    for question in QUESTIONS.values():
        with pytest.raises(TypeError, match=f"X must be of type Series or .*{message}"):
            question(controlled, make(X_AHEAD["a"]))
    found = mended(y.value, y=make(Y), stamps=DAYS)["y"]
    forecast = fit(found).predict([1]).iloc[0]
    assert forecast.item() == alone.predict([1]).iloc[0]


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (DAYS, r"got DatetimeIndex\. .*pd\.Series\(y, index=stamps\)"),
        (Y.tolist(), r"got list\. .*pd\.Series\(y, index=stamps\)"),
        (Y.groupby(level=0), r"got SeriesGroupBy\."),
        ([Y, Y], r"y = \[part\.to_frame\(\) for part in y\]"),
        ({"p": Y, "q": Y}, r"y = pd\.concat\(y\)"),
    ],
)
def test_what_is_no_table_says_what_to_pass(y: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        structural(y)


def test_a_horizon_in_the_place_of_x_is_told() -> None:
    for horizon in (3, [1, 2], range(1, 3), AHEAD):
        with pytest.raises(TypeError, match=r"horizon by its name, fit\(y, fh=\[1"):
            structural(Y, horizon)


def test_an_array_has_no_stamps_ahead() -> None:
    forecaster = structural(Y, X)
    message = r"pd\.DataFrame\(X, index=stamps, columns=\['a', 'b'\]\)"
    for question in ("predict", "interval", "sample", "predict_at"):
        with pytest.raises(TypeError, match=message):
            QUESTIONS[question](forecaster, X_AHEAD.to_numpy())


DATES = pd.DataFrame({"date": DAYS, "sales": Y.to_numpy()})
OF_SHOPS = pd.concat([DATES.assign(shop="p"), DATES.assign(shop="q")])
OF_SHOPS = OF_SHOPS.reset_index(drop=True)
IN_COLUMNS: dict[str, tuple[pd.DataFrame, str]] = {
    "dates": (DATES, r"got column 'date' .*y = y\.set_index\('date'\)"),
    "texts": (
        DATES.assign(date=DATES["date"].dt.strftime("%d.%m.%Y")),
        r"pd\.to_datetime\(y\['date'\], dayfirst=True\); y = y\.set_index\('date'\)",
    ),
    "shops": (OF_SHOPS, r"y = y\.set_index\(\['shop', 'date'\]\)"),
    "numbers of shops": (
        OF_SHOPS.assign(shop=OF_SHOPS["shop"].map({"p": 3, "q": 7})),
        r"y = y\.set_index\(\['shop', 'date'\]\)",
    ),
    "a shop beside its dates": (
        OF_SHOPS.set_index("date"),
        r"column 'shop' .*set_index\('shop', append=True\)\.swaplevel\(\)",
    ),
}


@pytest.mark.parametrize("case", IN_COLUMNS)
def test_times_and_keys_in_columns_become_the_index(case: str) -> None:
    y, message = IN_COLUMNS[case]
    with pytest.raises(TypeError, match=message) as info:
        structural(y)
    lines = str(info.value).rpartition("index: ")[2].rstrip(".")
    names = {"pd": pd, "y": y.copy()}
    exec(lines, names)  # what the message says works
    found = structural(names["y"]).predict([1])
    expected = structural(Y).predict([1]).iloc[0]
    assert [*found.index.get_level_values(-1).unique()] == [AHEAD[0]]
    if len(found) == 1:
        assert found.iloc[0].item() == expected
    else:
        assert [*map(str, found.index.get_level_values("shop"))] in (
            ["p", "q"],
            ["3", "7"],
        )


def test_categories_of_x_are_no_keys() -> None:
    weather = X.assign(weather=["sun", "rain"] * 20, date=DAYS)
    with pytest.raises(TypeError, match="got column 'date'") as info:
        structural(Y, weather.reset_index(drop=True))
    names = mended(info.value, X=weather.reset_index(drop=True))
    assert [*names["X"].columns] == ["a", "b", "weather"]
    of_shops = shops(weather.drop(columns="date")).reset_index()
    with pytest.raises(TypeError, match=r"set_index\(\['shop', 'when'\]\)"):
        structural(shops(Y), of_shops)


def test_a_table_without_rows_has_no_first_offender() -> None:
    empty = pd.DataFrame({"v": pd.to_datetime([])}, index=DAYS[:0])
    with pytest.raises(ValueError, match="y must hold at least one row"):
        structural(empty)
    with pytest.raises(ValueError, match="X must have a row at every stamp"):
        structural(Y, empty)


def test_rows_of_several_series_are_told_apart_by_keys() -> None:
    y = OF_SHOPS.assign(shop=OF_SHOPS["shop"].map({"p": 3, "q": 7})).set_index("date")
    message = r"at row 40\. Keep one row .* Rows of several series need their keys"
    for rows in (y, y.sort_index()):
        with pytest.raises(ValueError, match="Rows of several series need their keys"):
            structural(rows)
    with pytest.raises(ValueError, match=message):
        structural(y)
    y = y.set_index("shop", append=True).swaplevel().sort_index()
    assert structural(y).predict([1]).shape == (2, 1)


TURNED: dict[str, tuple[list[str], str]] = {
    "two levels": (["shop", "when"], r"y = y\.swaplevel\(\)\.sort_index\(\)"),
    "three levels": (["region", "shop", "when"], r"reorder_levels\(\[1, 2, 0\]\)"),
}


@FITS
@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize("case", TURNED)
def test_times_before_keys_are_turned(case: str, integers: bool, fit: Any) -> None:
    names, message = TURNED[case]
    y = shops(Y.reset_index(drop=True) if integers else Y)
    y.index.names = names[-2:]
    if case == "three levels":
        y = pd.concat({"n": y}, names=names[:1])
    times = y.index.get_level_values(-1)[:1]
    forecaster = fit(y)
    turned = y.reorder_levels([-1, *range(y.index.nlevels - 1)]).sort_index()
    for ask in (fit, lambda y: forecaster.update(y, update_params=False)):
        with pytest.raises(
            ValueError, match=f"last index level of y; .*{message}"
        ) as y_info:
            ask(turned)
    pd.testing.assert_frame_equal(mended(y_info.value, y=turned)["y"], y)
    rows = turned.index[:2]
    with pytest.raises(ValueError, match="last index level of the horizon") as info:
        forecaster.predict_at(rows)
    rows = mended(info.value, index=rows)["index"]
    assert forecaster.predict_at(rows).shape == (2, 1)
    assert rows.get_level_values(-1)[0] == times[0]


def test_dates_of_python_before_keys_are_turned_and_as_keys_are_keys() -> None:
    dates = shops(Y.set_axis(DAYS.date))
    with pytest.raises(ValueError, match="dates in level 0, texts in the last") as info:
        structural(dates.swaplevel())
    pd.testing.assert_frame_equal(mended(info.value, y=dates.swaplevel())["y"], dates)
    keys = {"p": "2020-01-01", "q": "2020-02-01"}
    of_dates = shops(Y.reset_index(drop=True)).rename(index=keys, level=0)
    assert structural(of_dates).predict([1]).index[0] == ("2020-01-01", 40)


def test_x_with_times_before_keys_is_turned() -> None:
    y, controls, ahead = shops(Y), shops(X), shops(X_AHEAD)
    forecaster = structural(y, controls)
    asked: list[Any] = [
        lambda X: structural(y, controls.swaplevel()),
        lambda X: forecaster.predict([1, 2], X=X),
        lambda X: forecaster.predict_at(ahead.index, X=X),
    ]
    for ask in asked:
        with pytest.raises(ValueError, match=r"last index level of X; .*swaplevel"):
            ask(ahead.swaplevel())


INDEXES: dict[str, tuple[Any, str]] = {
    "texts": (DAYS.strftime("%Y-%m-%d"), r"pd\.to_datetime\(y\.index\)"),
    "days first": (DAYS.strftime("%d/%m/%Y"), r"\(y\.index, dayfirst=True\)"),
    "months first": (DAYS.strftime("%m/%d/%Y"), r"\(y\.index, dayfirst=False\)"),
    "names of months": (DAYS.strftime("%b %d, %Y"), r"pd\.to_datetime\(y\.index\)"),
    "dates of Python": (pd.Index(DAYS.date), r"pd\.to_datetime\(y\.index\)"),
    "eight digits": (DAYS.strftime("%Y%m%d"), r"pd\.to_datetime\(y\.index\)"),
    "eight digits as integers": (
        DAYS.strftime("%Y%m%d").astype(int),
        r"got 20240101 to 20240209, .*format='%Y%m%d'\)",
    ),
    "a category": (pd.CategoricalIndex(DAYS), r"pd\.to_datetime\(y\.index\)"),
    "zones": (
        pd.Index([*DAYS[:9].tz_localize("UTC"), *DAYS[9:].tz_localize("Asia/Tokyo")]),
        r"pd\.to_datetime\(y\.index, utc=True\)",
    ),
    "offsets of texts": (
        pd.Index([f"{day}+{9 + k // 30:02}:00" for k, day in enumerate(DAYS)]),
        r"pd\.to_datetime\(y\.index, utc=True\)",
    ),
    "texts of two forms": (
        pd.Index([str(day if k % 2 else day.date()) for k, day in enumerate(DAYS)]),
        r"pd\.to_datetime\(y\.index, format='mixed'\)",
    ),
}


@pytest.mark.parametrize("case", INDEXES)
def test_stamps_of_another_kind_become_dates(case: str) -> None:
    index, message = INDEXES[case]
    y = Y.set_axis(index)
    with pytest.raises((TypeError, ValueError), match=message) as info:
        structural(y)
    y = mended(info.value, y=y)["y"]
    if y.index.tz is None:
        assert (y.index == DAYS).all()
    assert structural(y).predict([1]).notna().all()


def test_texts_in_the_last_level_of_a_panel_become_dates() -> None:
    y = shops(Y.set_axis(DAYS.strftime("%Y-%m-%d")))
    with pytest.raises(TypeError, match="such as 2024-01-01") as info:
        structural(y)
    y = mended(info.value, y=y)["y"]
    assert structural(y).predict([1]).index[0] == ("p", AHEAD[0])


def test_integers_as_texts_become_integers_and_names_a_column_of_times() -> None:
    y = Y.set_axis([str(k) for k in range(40)])
    with pytest.raises(TypeError, match="such as 0") as info:
        structural(y)
    assert structural(mended(info.value, y=y)["y"]).predict([1]).index[0] == 40
    with pytest.raises(TypeError, match=r"y = y\.set_index\(column\)"):
        structural(Y.set_axis([f"row {k}" for k in range(40)]))


ZONE = "Europe/Berlin"
MONTHS = pd.period_range("2024-01", periods=40, freq="M")
ASKED: dict[str, tuple[pd.Index, pd.Index, Any]] = {
    "a zone too many": (DAYS, AHEAD.tz_localize(ZONE), AHEAD),
    "no zone": (DAYS.tz_localize(ZONE), AHEAD, AHEAD.tz_localize(ZONE)),
    "periods": (DAYS, AHEAD.to_period("D"), AHEAD),
    "periods for zoned": (
        DAYS.tz_localize(ZONE),
        AHEAD.to_period("D"),
        AHEAD.tz_localize(ZONE),
    ),
    "dates": (MONTHS, AHEAD, AHEAD.to_period("M")),
    "other periods": (MONTHS, AHEAD.to_period("D"), AHEAD.to_period("M")),
    "texts": (DAYS, pd.Index(["2024-02-10", "2024-02-11"]), AHEAD),
}


@pytest.mark.parametrize("case", ASKED)
def test_stamps_that_are_asked_become_those_of_y(case: str) -> None:
    seen, asked, expected = ASKED[case]
    forecaster = structural(Y.set_axis(seen))
    with pytest.raises(TypeError, match="must be of the kind of y's index") as info:
        forecaster.predict_at(asked)
    found = mended(info.value, index=asked)["index"]
    assert [*found] == [*expected]


def test_rows_of_another_number_of_levels_are_told() -> None:
    with pytest.raises(ValueError, match=r"in fit, 1; got 2\. .*y\.xs\(key\)"):
        structural(Y).update(shops(LATER), update_params=False)
    with pytest.raises(ValueError, match=r"in fit, 2; got 1\. .*pd\.concat\(\{'p': pd"):
        structural(shops(Y)).predict_at(AHEAD)
