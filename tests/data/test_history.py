"""What a forecaster remembers: updates, revisions, arrays, and calls that are refused.

A refused call changes nothing, and an update that contradicts the history warns.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import HistoryWarning
from tests.controls import at, controls, largest, moved
from tests.epochs import interrupt
from tests.series import channels, panel, tiny, uneven_stamps, waves

STAMPS = uneven_stamps(30)
OLD, NEW = STAMPS[:24], STAMPS[24:]
AHEAD = STAMPS[-1] + pd.to_timedelta([5, 9], unit="min")


@pytest.fixture(scope="module")
def fitted() -> dict[str, Any]:
    """Forecasters that no test may change."""
    y = waves(STAMPS)[:24]
    return {
        "series": tiny().fit(y),
        "channels": tiny().fit(channels(OLD)),
        "panel": tiny().fit(panel()),
        "X": tiny().fit(y, controls(STAMPS)[:24]),
        "zone": tiny().fit(waves(OLD.tz_localize("UTC"))),
        "array": tiny().fit(y.to_numpy()),
    }


def new() -> pd.Series:
    return waves(STAMPS)[24:]


def keyed(key: Any) -> pd.DataFrame:
    later = new().to_frame().set_axis(NEW + pd.Timedelta("90D"))
    return pd.concat({key: later}, names=["series", "when"])


def answers(forecaster: Any) -> Any:
    """Return forecasts of a copy: what is asked is remembered."""
    forecaster = copy.deepcopy(forecaster)
    if not forecaster._history.controls:
        return forecaster.predict([1])
    return forecaster.predict(at(AHEAD), X=controls(AHEAD))


def seen_by(forecaster: Any) -> Any:
    """Return all rows of y that were seen: what residuals are of."""
    residuals = forecaster.predict_residuals()
    return residuals + forecaster.predict_at(residuals.index)


def assert_unchanged(forecaster: Any, before: dict[str, Any], untouched: Any) -> None:
    """Compare attributes by identity, but for what sktime changes in place."""
    after = vars(forecaster)
    assert after.keys() == before.keys()
    changed = {name for name in before if after[name] is not before[name]}
    assert changed <= {"_converter_store_y", "_pretrained_attrs"}
    found, expected = answers(forecaster), answers(untouched)
    assert type(found) is type(expected)
    np.testing.assert_array_equal(found, expected)


REFUSED: dict[str, tuple[str, Callable[[], tuple[Any, ...]], str]] = {
    "infinity": ("series", lambda: (new() * np.inf,), r"must be finite.*got -?inf"),
    "more channels": ("series", lambda: (channels(NEW),), r"\['y'\]; got \['a', 'b'\]"),
    "an array": (
        "array",
        lambda: (new().to_numpy(),),
        r"after fit y must have time stamps, .* array of the shape \(6,\)\. Pass a Se",
    ),
    "a panel": ("series", lambda: (panel(),), r"levels of y in fit, 1; got 2"),
    "a new series of nothing": (
        "panel",
        lambda: (keyed("s9") * np.nan,),
        r"in every series; got 6 rows of series \('s9',\) that are all missing",
    ),
    "no X": ("X", lambda: (new(),), r"fit had X, update got no X"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_update_changes_nothing(fitted: dict[str, Any], case: str) -> None:
    name, arguments, message = REFUSED[case]
    forecaster = copy.deepcopy(fitted[name])
    before = vars(forecaster).copy()
    with pytest.raises((ValueError, TypeError), match=f"(?s){message}"):
        forecaster.update(*arguments(), update_params=False)
    assert_unchanged(forecaster, before, fitted[name])


class Interrupted(Exception):
    """Raised in the middle of a training."""


BROKEN_OFF: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "a horizon of an update": (
        lambda f: f.update_predict_single(new(), fh=[1.5], update_params=False),
        TypeError,
    ),
    "a revision, made an error": (
        lambda f: f.update(waves(STAMPS)[20:] + 1),
        HistoryWarning,
    ),
    "fit": (lambda f: f.fit(new() * np.inf), ValueError),
    "training": (lambda f: f.fit(new()), Interrupted),
    "training of an update": (
        lambda f: f.update(new(), update_params=True),
        MemoryError,
    ),
}


@pytest.mark.parametrize("case", BROKEN_OFF)  # warnings are errors in these tests
def test_whatever_breaks_a_call_off_leaves_the_model_before(
    fitted: dict[str, Any], case: str
) -> None:
    call, error = BROKEN_OFF[case]
    forecaster = copy.deepcopy(fitted["series"])
    breaks = error in (Interrupted, MemoryError)
    before = vars(forecaster).copy()
    with interrupt(error()) if breaks else nullcontext(), pytest.raises(error):
        call(forecaster)
    assert_unchanged(forecaster, before, fitted["series"])


def test_a_refused_horizon_is_not_the_next_ones_default(fitted: dict[str, Any]) -> None:
    forecaster, X = copy.deepcopy(fitted["X"]), controls(AHEAD)
    expected = forecaster.predict(at(AHEAD[:1]), X=X)
    for name in ("", "_interval", "_quantiles", "_var", "_proba"):
        with pytest.raises(ValueError, match="X must be known at every stamp"):
            getattr(forecaster, f"predict{name}")(at(AHEAD), X=X[:1])
        pd.testing.assert_series_equal(forecaster.predict(X=X), expected)
    with pytest.raises(ValueError, match="X must be known at every stamp"):
        forecaster.sample(at(AHEAD), X=X[:1])
    pd.testing.assert_series_equal(forecaster.predict(X=X), expected)


def test_a_revised_value_is_taken_up_with_a_warning(fitted: dict[str, Any]) -> None:
    forecaster = copy.deepcopy(fitted["channels"])
    revised = channels(STAMPS)[20:]
    revised.iloc[1:3, 0] += 1.0
    revised.iloc[2, 1] += 1.0
    message = (
        "an update replaces values of y that were seen before: 3 of them, the first "
        f"at {re.escape(str(STAMPS[21]))}. Where that is no revision, look for"
    )
    with pytest.warns(HistoryWarning, match=message):
        forecaster.update(revised, update_params=False)
    pd.testing.assert_frame_equal(seen_by(forecaster).loc[revised.index], revised)


def test_rows_given_again_or_missing_are_no_revision(fitted: dict[str, Any]) -> None:
    forecaster = copy.deepcopy(fitted["channels"])
    again = channels(STAMPS)[18:]
    again.iloc[2] = np.nan
    again.iloc[3, 1] = np.nan
    forecaster.update(again, update_params=False)  # warnings are errors here
    pd.testing.assert_frame_equal(seen_by(forecaster), channels(STAMPS))
    filled = tiny().fit(channels(OLD).mask(channels(OLD) > 8))
    filled.update(channels(OLD), update_params=False)  # late, and no contradiction


X_LATER = controls(STAMPS)
X_REVISED = moved(X_LATER, STAMPS[22])


@pytest.mark.parametrize("in_fit", [True, False], ids=["observed", "missing"])
def test_x_that_is_revised_warns_and_counts_everywhere(in_fit: bool) -> None:
    y = waves(STAMPS)
    after = y.drop(STAMPS[22]).reindex(y.index)
    before = y if in_fit else after
    forecaster = tiny(max_epochs=3, lr=0.1).fit(before[:24], X_LATER[:24])
    with pytest.warns(HistoryWarning, match=r"replaces values of X .*, the first at 2"):
        forecaster.update(after[22:], X_REVISED[22:], update_params=False)
    asked = at([STAMPS[22], STAMPS[22] + pd.Timedelta("1s"), *AHEAD])
    X = pd.concat([X_REVISED[22:], controls(asked.to_pandas()[1:])]).sort_index()
    forecast = forecaster.predict(asked, X=X.drop(STAMPS[22]))
    told = forecaster.predict(asked, X=X)
    pd.testing.assert_series_equal(forecast, told)
    stale = forecaster.predict(asked, X=moved(X, STAMPS[22], by=-2.0))
    assert largest(stale - told) > 0
    again = copy.deepcopy(forecaster)
    again.update(after[22:], X_REVISED[22:], update_params=False)  # and no revision


def test_x_at_stamps_where_nothing_was_observed_is_remembered() -> None:
    y, X = waves(STAMPS), controls(STAMPS)
    y.iloc[[10, 23]] = np.nan
    forecaster = tiny().fit(y[:24], X[:24])
    assert np.isfinite(forecaster.score(y[:24]))
    known = forecaster.predict(at(STAMPS[[10]]))
    pd.testing.assert_series_equal(known, forecaster.predict(at(STAMPS[[10]]), X=X))
    later = forecaster.predict(at(NEW), X=X[24:])
    pd.testing.assert_series_equal(later, forecaster.predict(at(NEW), X=X))
    other = tiny().fit(y[:24], moved(X, STAMPS[23])[:24]).predict(at(NEW), X=X[24:])
    assert largest(other - later) > 0
    forecaster.update(y[24:26] * np.nan, X[24:26], update_params=False)
    found = forecaster.predict(at(NEW), X=X[26:])
    pd.testing.assert_series_equal(found, later, check_freq=False)


def test_an_update_before_all_history_warns_that_the_cutoff_stays(
    fitted: dict[str, Any],
) -> None:
    forecaster = copy.deepcopy(fitted["panel"])
    early = keyed("s1").rename(index=lambda t: t - pd.Timedelta("3650D"), level=1)
    first, last = panel().loc["s1"].index[0], early.index[-1][1]
    cutoff, ahead = forecaster.cutoff, forecaster.predict([1]).index
    message = (
        f"comes before the first stamp .*{re.escape(str(first))}.*; its last is "
        f"{re.escape(str(last))}.*The cutoff stays"
    )
    with pytest.warns(HistoryWarning, match=message):
        forecaster.update(early, update_params=False)
    pd.testing.assert_index_equal(forecaster.cutoff, cutoff)
    pd.testing.assert_index_equal(forecaster.predict([1]).index, ahead)
    assert last in seen_by(forecaster).index.get_level_values(-1)


def test_a_key_of_another_type_is_no_new_series() -> None:
    y = panel().rename({"s0": 1, "s1": 2, "s2": 3}, level=0)
    forecaster = tiny().fit(y)
    message = r"known one in another type; got \('2',\), known is \(2,\)\. Convert"
    with pytest.raises(ValueError, match=message):
        forecaster.update(keyed("2"), update_params=False)
    forecaster.update(keyed(4), update_params=False)
    assert list(forecaster.predict([1]).index.unique(0)) == [1, 2, 3, 4]


def test_a_series_that_fit_has_not_seen_is_named(fitted: dict[str, Any]) -> None:
    asked = pd.MultiIndex.from_tuples([("s0", AHEAD[0]), ("s9", AHEAD[0])])
    with pytest.raises(ValueError, match=r"series that fit has seen; got .*'s9'"):
        fitted["panel"].predict_at(asked)


@pytest.mark.parametrize("y", [waves(), channels(), panel()], ids=["1", "2", "panel"])
def test_an_array_after_fit_is_refused_by_every_question(y: Any) -> None:
    values = np.ones((3, 1, 20)) if y.index.nlevels > 1 else y.to_numpy()
    for forecaster in (tiny().fit(y), tiny().fit(values)):
        for question in ("score", "predict_residuals", "update", "update_predict"):
            with pytest.raises(TypeError, match=r"got an array of the shape"):
                getattr(forecaster, question)(values)


def test_an_array_given_to_fit_has_rows_from_zero() -> None:
    y = channels(pd.RangeIndex(24)).set_axis([0, 1], axis=1)
    forecaster = tiny().fit(y.to_numpy())
    expected = tiny().fit(y).predict([1, 2])
    np.testing.assert_array_equal(forecaster.predict([1, 2]), expected)
    assert forecaster.score(y) == tiny().fit(y).score(y)
    pd.testing.assert_index_equal(forecaster.predict_residuals().index, y.index)
