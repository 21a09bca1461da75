"""What cannot be used is refused before training, by name and with a remedy."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from sklode.data.checks import check_index
from tests.controls import controls
from tests.series import channels, panel, tiny, uneven_stamps, waves

NAN = float("nan")
REFUSAL = (TypeError, ValueError)
STAMPS = uneven_stamps()
LATER = STAMPS[-1] + pd.to_timedelta([5, 9], unit="min")
UTC = STAMPS.tz_localize("UTC")
BERLIN = UTC.tz_convert("Europe/Berlin")
Y = waves(STAMPS)
TWO = channels(STAMPS)
ONE = pd.Series(1.0, STAMPS, name="y")


@pytest.fixture(scope="module")
def fitted() -> Any:
    """A forecaster that no test may change."""
    return tiny().fit(Y)


def with_value(y: Any, rows: Any, value: float) -> Any:
    y = y.copy()
    y.loc[rows] = value
    return y


def swapped(index: pd.Index) -> pd.Index:
    return index[[0, 1, 3, 2, *range(4, len(index))]]


def holding(index: pd.Index, item: Any) -> pd.Index:
    return index.insert(2, item)[:24]


DAYS = pd.date_range("2021-03-01", periods=24, freq="D")
MONTHS = pd.period_range("2020-01", periods=24, freq="M")
WHOLE = pd.Index(np.arange(24.0))
TABLES: dict[str, tuple[Any, str]] = {
    "words": (
        ONE.astype(str),
        r"'y' of dtype .*, such as '1\.0' at 2021.* y = pd\.to_num",
    ),
    "a category": (
        ONE.astype("category"),
        r"dtype category, such as 1\.0 at .* y = pd\.to_numeric\(y\)",
    ),
    "complex": (ONE * 1j, r"'y' of dtype complex128.* two columns, .*real and \.imag"),
    "an array of words": (np.array(["1"]), r"got <U1 in .*array\.astype\(float\)"),
    "four axes": (np.zeros((2,) * 4), r"in the shape .* shape \(2, 2, 2, 2\)"),
    "a number": (3.0, r"got float\. Pass numbers as pd\.Series\(y, index=stamps\)"),
    "a tensor": (torch.ones(9), r"got Tensor\. .*y\.numpy\(\)"),
    "a list of complex": ([TWO, TWO * 1j], r"y\[1\] must be numeric.*'a'.*complex"),
    "no rows": (ONE[:0], r"y must hold at least one row; got none"),
    "no columns": (pd.DataFrame(index=STAMPS), r"at least one column; got an index al"),
    "one name": (TWO.set_axis(["a", "a"], axis=1), r"names; got 'a' more than once"),
    "a panel as a Series": (panel()["y"], r"\['series', 'when'\]\. Pass y\.to_frame"),
    "infinity": (with_value(TWO, STAMPS[7], np.inf), r"got inf in column 'a' at 2021"),
    "all missing": (Y * NAN, r"one observed value.* got 24 rows that are all missing"),
    "a missing series": (with_value(panel(), "s1", NAN), r"13 rows of series \('s1',"),
    "a stamp twice": (
        pd.concat([panel(), panel().loc[["s1"]].tail(1)]),
        r"strictly increasing; .* at row 49 of series \('s1',\)\. Keep one row",
    ),
    "a missing column": (TWO.assign(b=NAN), r"in every column; got none in column 'b'"),
}
BAD_STAMPS: dict[str, tuple[pd.Index, str]] = {
    "unsorted days": (
        swapped(DAYS),
        r"times of y must be strictly increasing; got 2021-03-03 .* after 2021-03-04 "
        r".* at row 3\. Sort y by its index first: y\.sort_index\(\)",
    ),
    "twice": (DAYS[[0, 1, 2, 2, *range(4, 24)]], r"at row 3\. Keep .*~y\.index\.dupli"),
    "no date": (holding(STAMPS, pd.NaT), r"must hold finite times; got NaT at row 2"),
    "NaN": (holding(WHOLE, NAN), r"finite times; got nan at row 2"),
    "fractions": (WHOLE / 2, r"got float64, such as 0\.0\. .*to_timedelta\(y\.index, "),
    "two zones": (
        pd.Index([*UTC[:12], *BERLIN[12:]], dtype=object),
        r"one time zone or none; .* and 2021-03-01 01:55:00\+01:00\. .*, utc=True\)",
    ),
    "huge integers": (
        pd.Index(np.arange(24, dtype=np.uint64) + 2**63),
        r"lie below 2\*\*63; got 9223372036854775831\. Subtract the first",
    ),
    "beyond nanoseconds": (
        pd.date_range("0900", periods=24, freq="YS", unit="s"),
        r"from 1677 to 2262; got 0900-01-01 .* to 0923-01-01 .*Use a PeriodIndex",
    ),
}
AT_STAMPS = {
    case: (waves(pd.RangeIndex(24)).set_axis(index), message)
    for case, (index, message) in BAD_STAMPS.items()
}


@pytest.mark.parametrize("case", [*TABLES, *AT_STAMPS])
def test_what_is_no_table_of_numbers_over_times_is_refused(case: str) -> None:
    y, message = {**TABLES, **AT_STAMPS}[case]
    with pytest.raises(REFUSAL, match=f"(?s){message}"):
        tiny().fit(y)


QUESTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "update": lambda forecaster, y: forecaster.update(y, update_params=False),
    "score": lambda forecaster, y: forecaster.score(y),
    "predict_residuals": lambda forecaster, y: forecaster.predict_residuals(y),
}


@pytest.mark.parametrize("case", ["words", "a number", "unsorted days"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_every_question_refuses_it(fitted: Any, question: str, case: str) -> None:
    y, message = {**TABLES, **AT_STAMPS}[case]
    with pytest.raises(REFUSAL, match=f"(?s){message}"):
        QUESTIONS[question](fitted, y)


def keyed(y: pd.DataFrame, keys: Any) -> pd.DataFrame:
    times = y.index.get_level_values(1)
    return y.set_axis(pd.MultiIndex.from_arrays([keys, times]))


def test_offending_rows_of_a_panel_are_named() -> None:
    y = panel((6, 5))
    with pytest.raises(ValueError, match=r"strictly increasing; got .* row 8"):
        tiny().fit(y.iloc[[0, 1, 2, 3, 4, 5, 6, 8, 7, 9, 10]])
    with pytest.raises(ValueError, match=r"y must have keys; got none at row 6\. Drop"):
        tiny().fit(keyed(y, [*"aaaaaa", *[None] * 5]))


@pytest.mark.parametrize("dates", [DAYS, MONTHS, DAYS - DAYS[0]])
def test_times_before_integer_keys_are_refused(dates: pd.Index) -> None:
    names = ["region", "shop", "when"]
    index = pd.MultiIndex.from_product([["n", "s"], [3, 7], dates], names=names)
    y = pd.DataFrame({"y": np.arange(len(index)) / 7.0}, index)
    turned = y.reorder_levels([0, 2, 1]).sort_index()
    kind = type(dates).__name__
    message = rf"last index level of y; got .*: {kind} in level 1, integers in the last"
    with pytest.raises(
        ValueError, match=rf"{message}\. .*reorder_levels\(\[0, 2, 1\]\)"
    ):
        tiny().fit(turned)
    pd.testing.assert_frame_equal(turned.reorder_levels([0, 2, 1]).sort_index(), y)
    with pytest.raises(ValueError, match="last index level of X; got"):
        tiny().fit(y, X=turned)
    check_index(y.index)  # keys may be dates where time is last
    check_index(pd.MultiIndex.from_product([DAYS[:2], DAYS]))


KINDS: dict[str, tuple[pd.Index, pd.Index, str]] = {
    "a zone too many": (STAMPS, UTC, r"got datetimes with a time zone\. .*tz_convert"),
    "no zone": (UTC, STAMPS, r"got datetimes without a time zone\. .*tz_local"),
    "dates for periods": (MONTHS, STAMPS, r"frequency M; got datetimes.*to_period"),
}


@pytest.mark.parametrize("case", KINDS)
def test_stamps_of_another_kind_are_refused_wherever_they_come(case: str) -> None:
    index, other, message = KINDS[case]
    y, X = waves(index), controls(index)
    forecaster = tiny().fit(y, X)
    asked = waves(other)
    for question in (
        lambda: tiny().fit(y, controls(other).set_axis(other)),
        lambda: forecaster.update(asked, controls(other), update_params=False),
        lambda: forecaster.predict_at(other),
        lambda: forecaster.predict_at(index, X=controls(other)),
        lambda: forecaster.score(asked, controls(other)),
    ):
        with pytest.raises(TypeError, match=f"(?s)of the kind of y's .*{message}"):
            question()


def last_u(X: pd.DataFrame, value: float) -> pd.DataFrame:
    return X.assign(u=X["u"].where(X.index != X.index[-1], value))


AT_LAST = re.escape(str(STAMPS[-1]))
SPOILT: dict[str, tuple[Callable[[pd.DataFrame], Any], str]] = {
    "no row": (lambda X: X[:-1], rf"X must .*(none at|first) {AT_LAST}\."),
    "NaN": (
        lambda X: last_u(X, NAN),
        rf"X must .* NaN in column 'u' at 1 .*first {AT_LAST}",
    ),
    "infinity": (lambda X: last_u(X, np.inf), rf"be finite.*; got inf .*{AT_LAST}"),
    "a row twice": (lambda X: pd.concat([X, X[-1:]]), r"times of X must be strictly"),
}
OTHERS: dict[str, tuple[Callable[[pd.DataFrame], Any], str]] = {
    "one column": (lambda X: X[["u"]], r"had, \['u', 'v'\]; got \['u'\]\. .*reindex"),
    "one more": (
        lambda X: X.assign(w=1.0),
        r"Leave out \['w'\]: X = X\[\['u', 'v'\]\]",
    ),
    "numbers": (lambda X: X.set_axis([0, 1], axis=1), r"got \[0, 1\]\. .*set_axis"),
}
LAST = STAMPS[-2:]
ANSWERS: dict[str, Callable[[Any, Any], Any]] = {
    "update": lambda f, X: f.update(Y[-2:], X),
    "predict": lambda f, X: f.predict(LAST, X=X),
    "predict_at": lambda f, X: f.predict_at(LAST, X=X),
    "sample": lambda f, X: f.sample(LAST, X=X),
    "score": lambda f, X: f.score(Y[-2:], X=X),
}


@pytest.fixture(scope="module")
def early() -> Any:
    """A forecaster that has seen all rows but the last two."""
    return tiny().fit(Y[:-2], controls(STAMPS)[:-2])


@pytest.mark.parametrize("case", [*SPOILT, *OTHERS])
def test_x_that_cannot_be_read_is_refused(early: Any, case: str) -> None:
    spoil, message = {**SPOILT, **OTHERS}[case]
    for question in ANSWERS.values():
        with pytest.raises(REFUSAL, match=f"(?s){message}"):
            question(early, spoil(controls(STAMPS)[-2:]))
    if case in SPOILT:
        with pytest.raises(REFUSAL, match=f"(?s){message}"):
            tiny().fit(Y, spoil(controls(STAMPS)))


def test_x_belongs_to_fit_and_to_every_question_or_to_none(
    early: Any, fitted: Any
) -> None:
    X = controls(LATER)
    for question in (
        lambda f, X: f.predict(LATER, X=X),
        lambda f, X: f.predict_quantiles(LATER, X=X),
        lambda f, X: f.score(waves(LATER), X),
    ):
        with pytest.raises(ValueError, match=r"X must .*got none.*the first 2021"):
            question(early, None)
        with pytest.raises(ValueError, match=r"not given to fit; got X .*'u', 'v'"):
            question(fitted, X)


def test_of_a_past_value_that_is_nan_counts_what_fit_had(early: Any) -> None:
    X = controls(STAMPS)
    known = early.predict_at(STAMPS[3:6], X=X.drop(STAMPS[4]))  # known from fit
    X.loc[STAMPS[4], "u"] = NAN
    pd.testing.assert_series_equal(early.predict_at(STAMPS[3:6], X=X), known)


def test_x_of_a_panel_has_its_levels() -> None:
    y, alone = panel(), controls(STAMPS)
    message = r"X must have the index levels of y, \['series', 'when'\]; got \[None\]"
    with pytest.raises(ValueError, match=message):
        tiny().fit(y, alone)
    with pytest.raises(ValueError, match=message):
        tiny().fit(y, controls(y.index)).predict([1], X=alone)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0, r"between 0 and 1, both left out, or a list of .*; got 0\. Use for exa"),
        ([0.5, 1.5], r"got 1\.5\. Use for example {}=0\.9"),
        ([0.5, NAN], r"got nan"),
        ("0.9", r"got '0\.9'"),
        ([], r"{} must be .*; got none"),
        ([0.5, 0.9, 0.5], r"a list of different ones; got 0\.5\."),
    ],
)
def test_probabilities_are_numbers_between_0_and_1(
    fitted: Any, value: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message.format("coverage")):
        fitted.predict_interval([1], coverage=value)
    with pytest.raises(ValueError, match=message.format("alpha")):
        fitted.predict_quantiles([1], alpha=value)


@pytest.mark.parametrize("n", [0, -1, 2.5, "3", NAN])
def test_a_number_of_samples_below_one_is_refused(fitted: Any, n: Any) -> None:
    with pytest.raises(REFUSAL, match=r"n_samples must be a whole number of"):
        fitted.sample([1], n_samples=n)
