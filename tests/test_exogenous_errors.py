"""Exogenous X that cannot be read is refused, with the rule and the remedy."""

from __future__ import annotations

import copy
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.controls import (
    INDEX,
    LATER,
    at,
    controls,
    forecaster_with_controls,
    largest,
    moved,
)
from tests.series import panel, tiny, waves


@pytest.fixture(scope="module")
def trained() -> Any:
    return forecaster_with_controls()


WITHOUT_ROW = r"X must have a row at every stamp of y .* got none at {}\. Extend X"
WITHOUT_VALUE = r"X must not have missing values; got NaN in column 'u' at {}\. Fill"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda X, row: X.drop(row), WITHOUT_ROW),
        (lambda X, row: moved(X, row, by=np.nan), WITHOUT_VALUE),
        (lambda X, row: moved(X, row, by=np.inf), r"X must be finite; got inf.*\({}\)"),
    ],
    ids=["row", "NaN", "infinity"],
)
def test_a_row_or_value_that_x_lacks_is_asked_for(
    trained: Any, spoil: Any, message: str
) -> None:
    y, X = waves(INDEX), controls(INDEX)
    for row, question in (
        (3, lambda X: tiny().fit(y[:24], X)),
        (25, lambda X: copy.deepcopy(trained).update(y[24:], X[24:])),
        (26, lambda X: trained.predict(at(LATER), X=X)),
        (27, lambda X: trained.predict_at(LATER, X=X)),
        (28, lambda X: trained.predict_interval(at(LATER), X=X)),
        (29, lambda X: trained.sample(at(LATER), X=X)),
        (24, lambda X: trained.score(y[24:], X=X)),
        (28, lambda X: trained.predict_residuals(y, X=X)),
    ):
        stamp = INDEX[row]
        expected = message.format(re.escape(str(stamp)))
        with pytest.raises(ValueError, match=expected):
            question(spoil(X, stamp))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_that_is_given_must_be_one_though_fit_had_one(
    trained: Any, value: float
) -> None:
    X = controls(INDEX)
    trained.predict_at(INDEX[3:6], X=X.drop(INDEX[4]))  # known from fit
    X.loc[INDEX[4], "u"] = value
    with pytest.raises(ValueError, match=r"^(X must not have|values of X must be)"):
        trained.predict_at(INDEX[3:6], X=X)
    trained.predict_at(INDEX[6:9], X=X)  # not asked


def test_x_at_stamps_where_nothing_was_observed_is_remembered() -> None:
    y, X = waves(INDEX), controls(INDEX)
    y.iloc[[10, 23]] = np.nan
    forecaster = tiny().fit(y[:24], X[:24])
    assert np.isfinite(forecaster.score(y[:24]))
    known = forecaster.predict(at(INDEX[[10]]))
    pd.testing.assert_series_equal(known, forecaster.predict(at(INDEX[[10]]), X=X))
    later = forecaster.predict(at(LATER), X=X[24:])
    pd.testing.assert_series_equal(later, forecaster.predict(at(LATER), X=X))
    changed = moved(X, INDEX[23])
    other = tiny().fit(y[:24], changed[:24]).predict(at(LATER), X=X[24:])
    assert largest(other - later) > 0
    forecaster.update(y[24:26] * np.nan, X[24:26], update_params=False)
    pd.testing.assert_series_equal(
        forecaster.predict(at(LATER), X=X[26:]), later, check_freq=False
    )


def test_x_belongs_to_fit_and_to_every_question_or_to_none(trained: Any) -> None:
    y, X = waves(INDEX), controls(INDEX)
    without = tiny().fit(y[:24])
    for question in (
        lambda f, X: f.predict(at(LATER), X=X),
        lambda f, X: f.predict_at(LATER, X=X),
        lambda f, X: f.predict_quantiles(at(LATER), X=X),
        lambda f, X: f.sample(at(LATER), X=X),
        lambda f, X: f.score(y[24:], X),
    ):
        with pytest.raises(ValueError, match=r"got None\. Pass X with a row at"):
            question(trained, None)
        with pytest.raises(ValueError, match=r"not given to fit; got X .*'u', 'v'"):
            question(without, X)
    with pytest.raises(ValueError, match="fit had X, update got no X"):
        copy.deepcopy(trained).update(y[24:])
    with pytest.raises(ValueError, match="fit had no X, update got X"):
        without.update(y[24:], X[24:])


@pytest.mark.parametrize(
    "change",
    [
        lambda X: X[["u"]],
        lambda X: X.assign(w=1.0),
        lambda X: X.rename(columns={"v": "w"}),
        lambda X: X.set_axis([0, "0"], axis=1),
    ],
    ids=["fewer", "more", "other", "numbered"],
)
def test_other_columns_than_in_fit_are_refused(trained: Any, change: Any) -> None:
    X = controls(INDEX)
    given = change(X)
    message = r"X must have the columns that fit had, \['u', 'v'\]; got {}\. Pass"
    message = message.format(re.escape(str(list(given.columns))))
    with pytest.raises(ValueError, match=message):
        trained.predict(at(LATER), X=given)
    with pytest.raises(ValueError, match=message):
        trained.predict_at(LATER, X=given)
    with pytest.raises(ValueError, match=message):
        copy.deepcopy(trained).update(waves(INDEX)[24:], given)


def test_a_number_is_not_the_name_that_it_spells() -> None:
    y, X = waves(INDEX), controls(INDEX)
    forecaster = tiny().fit(y[:24], X[:24].set_axis([0, 1], axis=1))
    with pytest.raises(ValueError, match=r"\[0, 1\]; got \['0', '1'\]"):
        forecaster.predict(at(LATER), X=X.set_axis(["0", "1"], axis=1))


@pytest.mark.parametrize("values", ["text", "category", "object", "dates"])
def test_a_control_that_is_no_number_is_refused(trained: Any, values: str) -> None:
    y, X = waves(INDEX), controls(INDEX)
    column = {
        "text": pd.Series("a", INDEX),
        "category": pd.Series(["a", "b"] * 15, INDEX, dtype="category"),
        "object": X["v"].astype(object),
        "dates": pd.Series(INDEX, INDEX),
    }[values]
    given = X.assign(v=column)
    message = (
        rf"X must be numeric, .* got column 'v' of dtype {column.dtype}\. Encode it "
        r"first: a category one-hot, .* pd\.get_dummies\(X, dtype=float\) or "
        r"scikit-learn's OneHotEncoder; numbers by X\.astype\(float\)\."
    )
    message = message.replace("[", r"\[").replace("]", r"\]")
    with pytest.raises(TypeError, match=message):
        tiny().fit(y[:24], given[:24])
    with pytest.raises(TypeError, match=message):
        trained.predict(at(LATER), X=given)
    with pytest.raises(TypeError, match=message):
        trained.predict_at(LATER, X=given)


def test_one_x_for_all_series_of_a_panel_is_refused() -> None:
    y = panel()
    alone = controls(INDEX)
    message = r"X must have the index levels of y, \['series', 'when'\]; got \[None\]"
    with pytest.raises(ValueError, match=message):
        tiny().fit(y, alone)
    forecaster = tiny().fit(y, controls(y.index))
    with pytest.raises(ValueError, match=r"X must have the index levels .* 2; got 1"):
        forecaster.predict([1], X=alone)


def test_a_stamp_of_x_that_comes_twice_is_refused_by_every_question(
    trained: Any,
) -> None:
    X = controls(LATER)
    twice = pd.concat([X, X[-1:]])
    for question in (
        lambda: trained.predict(at(LATER), X=twice),
        lambda: trained.predict_at(LATER, X=twice),
    ):
        with pytest.raises(ValueError, match=r"times of X .*Keep one row per stamp"):
            question()
