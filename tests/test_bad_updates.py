"""A refused call changes nothing, and an update that contradicts the history warns."""

from __future__ import annotations

import copy
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sktime.forecasting.base import ForecastingHorizon
from sktime.split import ExpandingWindowSplitter

from sklode import LatentODELSTMForecaster
from sklode.data.errors import HistoryWarning
from tests.controls import controls
from tests.series import channels, panel, tiny, uneven_stamps, waves

STAMPS = uneven_stamps(30)
OLD, NEW = STAMPS[:24], STAMPS[24:]
AHEAD = STAMPS[-1] + pd.to_timedelta([5, 9], unit="min")


@pytest.fixture(scope="module")
def fitted() -> dict[str, Any]:
    """Forecasters that no test may change."""
    y, X = waves(STAMPS)[:24], controls(STAMPS)
    by_hour = uneven_stamps(24).tz_localize("UTC")
    return {
        "series": tiny().fit(y),
        "channels": tiny().fit(channels(OLD)),
        "panel": tiny().fit(panel()),
        "X": tiny().fit(y, X[:24]),
        "zone": tiny().fit(waves(by_hour)),
        "array": tiny().fit(y.to_numpy()),
    }


def new(name: str = "y") -> pd.Series:
    return waves(STAMPS, name=name)[24:]


def keyed(key: Any) -> pd.DataFrame:
    later = new().to_frame().set_axis(NEW + pd.Timedelta("90D"))
    return pd.concat({key: later}, names=["series", "when"])


def state(forecaster: Any) -> dict[str, Any]:
    return vars(forecaster).copy()


def assert_unchanged(forecaster: Any, before: dict[str, Any], untouched: Any) -> None:
    """Compare all attributes by identity, containers and forecasts by value."""
    after = vars(forecaster)
    assert after.keys() == before.keys()
    changed = {name for name in before if after[name] is not before[name]}
    assert changed <= {"_converter_store_y", "_pretrained_attrs"}
    for name in changed:
        assert after[name].keys() == vars(untouched)[name].keys()
    forecaster, X = copy.deepcopy(forecaster), None
    if forecaster._history.controls:
        X = controls(AHEAD)
    fh = [1] if X is None else ForecastingHorizon(AHEAD, is_relative=False)
    found, expected = forecaster.predict(fh, X=X), untouched.predict(fh, X=X)
    assert type(found) is type(expected)
    if isinstance(found, np.ndarray):
        np.testing.assert_array_equal(found, expected)
    elif isinstance(found, pd.Series):
        pd.testing.assert_series_equal(found, expected, check_exact=True)
    else:
        pd.testing.assert_frame_equal(found, expected, check_exact=True)


REFUSED: dict[str, tuple[str, Any, str]] = {
    "infinity": ("series", lambda: (new() * np.inf,), r"must be finite.*got -?inf"),
    "zone too many": (
        "series",
        lambda: (new().tz_localize("UTC"),),
        r"an update must be of the kind of y's index.*index\.tz_convert\(zone\)",
    ),
    "zone missing": (
        "zone",
        lambda: (new(),),
        r"got datetimes without a time zone\. Say which .*tz_localize\('UTC'\)",
    ),
    "integers": (
        "series",
        lambda: (new().reset_index(drop=True),),
        r"got integers\. Convert it first, for example by pd\.to_datetime",
    ),
    "periods": (
        "series",
        lambda: (new().set_axis(pd.period_range("2022", periods=6, freq="M")),),
        r"got periods of frequency M\. Convert it first: index\.to_timestamp",
    ),
    "stamps after an array": (
        "array",
        lambda: (new().to_frame("name"),),
        r"kind of y's index, integers; got datetimes",
    ),
    "more channels": ("series", lambda: (channels(NEW),), r"\['y'\]; got \['a', 'b'\]"),
    "fewer channels": ("channels", lambda: (new(),), r"\['a', 'b'\]; got \['y'\]"),
    "other channels": (
        "channels",
        lambda: (channels(NEW).rename(columns={"b": "c"}),),
        r"\['a', 'b'\]; got \['a', 'c'\]",
    ),
    "a channel twice": (
        "channels",
        lambda: (channels(NEW).set_axis(["a", "a"], axis=1),),
        r"columns of y must have different names; got 'a' more than once",
    ),
    "an array": ("series", lambda: (new().to_numpy(),), r"only where fit got one"),
    "a list": (
        "series",
        lambda: (new().tolist(),),
        r"y of type list must hold a DataFrame .* got float at place 0",
    ),
    "a panel": ("series", lambda: (panel(),), r"levels of y in fit, 1; got 2"),
    "no panel": ("panel", lambda: (new(),), r"levels of y in fit, 2; got 1"),
    "a nameless series": (
        "panel",
        lambda: (keyed(np.nan),),
        r"the series of y must have keys; got none at row 0",
    ),
    "a new series of nothing": (
        "panel",
        lambda: (keyed("s9") * np.nan,),
        r"a new series of an update must have an observed value; got none for",
    ),
    "no X": ("X", lambda: (new(),), r"fit had X, update got no X"),
    "needless X": (
        "series",
        lambda: (new(), controls(NEW)),
        r"fit had no X, update got X",
    ),
    "X of another zone": (
        "X",
        lambda: (new(), controls(NEW).tz_localize("UTC")),
        r"X must be of the kind of y's index, datetimes without a time zone; got",
    ),
    "X as an array": (
        "X",
        lambda: (new(), controls(NEW).to_numpy()),
        r"X must have the time stamps of y; got an array\. Use pd\.DataFrame\(X, index",
    ),
    "X that ends early": (
        "X",
        lambda: (new(), controls(NEW[:-1])),
        rf"X must have a row at every stamp .* got none at {re.escape(str(NEW[-1]))}",
    ),
    "X with a hole": (
        "X",
        lambda: (new(), controls(NEW) * np.nan),
        rf"got NaN in column 'u' at {re.escape(str(NEW[0]))}\. Fill it first",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_update_changes_nothing(fitted: dict[str, Any], case: str) -> None:
    name, arguments, message = REFUSED[case]
    untouched = fitted[name]
    forecaster = copy.deepcopy(untouched)
    before = state(forecaster)
    with pytest.raises((ValueError, TypeError), match=f"(?s){message}"):
        forecaster.update(*arguments(), update_params=False)
    assert_unchanged(forecaster, before, untouched)


@pytest.mark.parametrize("method", ["update_predict_single", "update_predict"])
def test_updates_that_also_predict_are_undone_as_well(
    fitted: dict[str, Any], method: str
) -> None:
    forecaster = copy.deepcopy(fitted["series"])
    before = state(forecaster)
    if method == "update_predict_single":
        with pytest.raises(TypeError, match=r"fh must hold whole .* got 1\.5"):
            forecaster.update_predict_single(new(), fh=[1.5], update_params=False)
    else:  # the second block is refused, after the first was taken up
        y = new()
        y.iloc[3] = np.inf
        cv = ExpandingWindowSplitter(initial_window=2, step_length=2, fh=[1])
        with pytest.raises(ValueError, match="must be finite"):
            forecaster.update_predict(y, cv, reset_forecaster=False)
    assert_unchanged(forecaster, before, fitted["series"])


class Interrupted(Exception):
    """Raised by a callback in the middle of a training."""


class Interrupting:
    def __init__(self, error: type[BaseException], epoch: int = 1) -> None:
        self.error, self.epoch = error, epoch

    def on_epoch_end(self, forecaster: Any, row: dict[str, float]) -> bool:
        if row["epoch"] == self.epoch:
            raise self.error
        return False


@pytest.mark.parametrize("error", [Interrupted, MemoryError])
def test_an_update_whose_training_fails_changes_nothing(
    fitted: dict[str, Any], error: type[BaseException]
) -> None:
    forecaster = copy.deepcopy(fitted["series"])
    forecaster.callbacks = [Interrupting(error)]
    before = state(forecaster)
    with pytest.raises(error):
        forecaster.update(new(), update_params=True)
    assert_unchanged(forecaster, before, fitted["series"])


def test_a_refused_fit_leaves_the_fitted_model(fitted: dict[str, Any]) -> None:
    forecaster = copy.deepcopy(fitted["series"])
    before = state(forecaster)
    with pytest.raises(ValueError, match="must be finite"):
        forecaster.fit(new() * np.inf)
    assert_unchanged(forecaster, before, fitted["series"])
    with pytest.raises(TypeError, match=r"fh must hold .* got 'tomorrow'"):
        forecaster.fit(new(), fh="tomorrow")
    assert_unchanged(forecaster, before, fitted["series"])
    forecaster.callbacks = [Interrupting(Interrupted)]
    before = state(forecaster)
    with pytest.raises(Interrupted):
        forecaster.fit(new())
    assert_unchanged(forecaster, before, fitted["series"])


def test_a_refused_first_fit_leaves_an_unfitted_forecaster() -> None:
    forecaster = tiny()
    before = state(forecaster)
    with pytest.raises(ValueError, match="must be finite"):
        forecaster.fit(new() * np.inf)
    assert vars(forecaster).keys() == before.keys()
    assert not forecaster.is_fitted
    assert forecaster.cutoff is None
    expected = tiny().fit(new()).predict([1])
    pd.testing.assert_series_equal(forecaster.fit(new()).predict([1]), expected)


def test_a_refused_pretrain_leaves_what_was_pretrained() -> None:
    forecaster = tiny().pretrain(panel())
    before = state(forecaster)
    with pytest.raises(ValueError, match="must be finite"):
        forecaster.pretrain(panel() * np.inf)
    assert vars(forecaster).keys() == before.keys()
    assert forecaster.pretrained_ is before["pretrained_"]
    forecaster.fit(new())
    assert forecaster.time_unit_ == tiny().pretrain(panel()).fit(new()).time_unit_


def test_a_refused_horizon_is_not_the_next_ones_default(
    fitted: dict[str, Any],
) -> None:
    forecaster = copy.deepcopy(fitted["X"])
    X = controls(AHEAD)
    fh = ForecastingHorizon(AHEAD[:1], is_relative=False)
    expected = forecaster.predict(fh, X=X)
    further = ForecastingHorizon(AHEAD, is_relative=False)
    for question in (
        lambda: forecaster.predict(further, X=X[:1]),
        lambda: forecaster.predict_interval(further, X=X[:1]),
        lambda: forecaster.predict_quantiles(further, X=X[:1]),
        lambda: forecaster.predict_var(further, X=X[:1]),
        lambda: forecaster.predict_proba(further, X=X[:1]),
        lambda: forecaster.sample(further, X=X[:1]),
    ):
        with pytest.raises(ValueError, match="X must have a row at every stamp"):
            question()
        pd.testing.assert_series_equal(forecaster.predict(X=X), expected)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_whatever_stops_a_first_epoch_leaves_the_model_before(
    fitted: dict[str, Any], error: type[BaseException], monkeypatch: Any
) -> None:
    from sklode.training.loop import Trainer

    def stop(*args: Any) -> None:
        raise error

    forecaster = copy.deepcopy(fitted["series"])
    before = state(forecaster)
    monkeypatch.setattr(Trainer, "_step", stop)
    with pytest.raises(error):
        forecaster.fit(new())
    assert_unchanged(forecaster, before, fitted["series"])


def test_a_revised_value_is_taken_up_with_a_warning(fitted: dict[str, Any]) -> None:
    forecaster = copy.deepcopy(fitted["channels"])
    revised = channels(STAMPS)[20:]
    revised.iloc[1:3, 0] += 1.0
    revised.iloc[2, 1] += 1.0
    message = (
        "an update replaces values of y that were observed before: 3 of them, the "
        f"first at {re.escape(str(STAMPS[21]))}. Where that is no revision, look for"
    )
    with pytest.warns(HistoryWarning, match=message):
        forecaster.update(revised, update_params=False)
    again = forecaster.predict_residuals() + 0
    seen = forecaster.predict_at(again.index) + again
    np.testing.assert_allclose(seen.loc[revised.index], revised, rtol=1e-12)


def test_rows_given_again_or_missing_are_no_revision(fitted: dict[str, Any]) -> None:
    forecaster = copy.deepcopy(fitted["channels"])
    again = channels(STAMPS)[18:]
    again.iloc[2] = np.nan
    forecaster.update(again, update_params=False)  # warnings are errors here
    filled = tiny().fit(channels(OLD).mask(channels(OLD) > 8))
    filled.update(channels(OLD), update_params=False)  # late, and no contradiction


def test_revisions_of_a_panel_name_the_series(fitted: dict[str, Any]) -> None:
    forecaster = copy.deepcopy(fitted["panel"])
    revised = panel().loc[["s2", "s1"]]
    revised.loc["s1"] = revised.loc["s1"].to_numpy() + 1
    first = revised.loc["s1"].index[0]
    message = rf"13 of them, the first at {re.escape(str(first))} of series \('s1',\)"
    with pytest.warns(HistoryWarning, match=message):
        forecaster.update(revised, update_params=False)


def test_a_stamp_is_revised_in_whatever_zone_it_is_given(
    fitted: dict[str, Any],
) -> None:
    forecaster = copy.deepcopy(fitted["zone"])
    utc = uneven_stamps(24).tz_localize("UTC")
    berlin = waves(utc)[-2:].tz_convert("Europe/Berlin")
    forecaster.update(berlin, update_params=False)  # the same instants, no revision
    assert len(forecaster._history.index()) == 24
    assert str(forecaster.cutoff.tz) == "UTC"
    with pytest.warns(
        HistoryWarning, match=r"2 of them, the first at .*\+00:00\. Where"
    ):
        forecaster.update(berlin + 1, update_params=False)


def test_x_that_contradicts_what_was_given_before_warns(
    fitted: dict[str, Any],
) -> None:
    forecaster = copy.deepcopy(fitted["X"])
    X = controls(STAMPS)[20:]
    X.iloc[:, 0] += [0, 0, 5, 5, 5, 5, 5, 5, 5, 5]
    y = waves(STAMPS)[20:]
    message = f"values of X .* 2 of them, the first at {re.escape(str(STAMPS[22]))}"
    with pytest.warns(HistoryWarning, match=message):
        forecaster.update(y, X, update_params=False)


@pytest.mark.parametrize("kind", ["series", "panel"])
def test_an_update_before_all_history_warns_that_the_cutoff_stays(
    fitted: dict[str, Any], kind: str
) -> None:
    forecaster = copy.deepcopy(fitted[kind])
    if kind == "series":
        first, early = STAMPS[0], new().set_axis(NEW - pd.Timedelta("2D"))
        last = early.index[-1]
    else:
        early = keyed("s1").rename(index=lambda t: t - pd.Timedelta("3650D"), level=1)
        first, last = panel().loc["s1"].index[0], early.index[-1][1]
    cutoff = forecaster.cutoff
    ahead = forecaster.predict([1]).index
    message = (
        f"comes before the first stamp .*{re.escape(str(first))}.*; its last is "
        f"{re.escape(str(last))}.*The cutoff stays"
    )
    with pytest.warns(HistoryWarning, match=message):
        forecaster.update(early, update_params=False)
    pd.testing.assert_index_equal(forecaster.cutoff, cutoff)
    pd.testing.assert_index_equal(forecaster.predict([1]).index, ahead)
    assert last in forecaster._history.index().get_level_values(-1)


@pytest.mark.filterwarnings("error::sklode.data.errors.HistoryWarning")
def test_a_warning_made_an_error_refuses_the_update(fitted: dict[str, Any]) -> None:
    forecaster = copy.deepcopy(fitted["series"])
    before = state(forecaster)
    with pytest.raises(HistoryWarning):
        forecaster.update(waves(STAMPS)[20:] + 1)
    assert_unchanged(forecaster, before, fitted["series"])


def test_a_key_of_another_type_is_no_new_series() -> None:
    y = panel().rename({"s0": 1, "s1": 2, "s2": 3}, level=0)
    forecaster = tiny().fit(y)
    message = r"known one in another type; got \('2',\), known is \(2,\)\. Convert"
    with pytest.raises(ValueError, match=message):
        forecaster.update(keyed("2"), update_params=False)
    forecaster.update(keyed(4), update_params=False)
    assert list(forecaster.predict([1]).index.unique(0)) == [1, 2, 3, 4]


def test_an_update_in_other_columns_order_is_sorted_by_name(
    fitted: dict[str, Any],
) -> None:
    ordered, swapped = (copy.deepcopy(fitted["channels"]) for _ in range(2))
    ordered.update(channels(NEW), update_params=False)
    swapped.update(channels(NEW)[["b", "a"]], update_params=False)
    forecasts = [f.predict_at(AHEAD) for f in (ordered, swapped)]
    pd.testing.assert_frame_equal(*forecasts, check_exact=True)


@pytest.mark.parametrize("dtype", ["Float64", "float32", "Sparse[float]", "Int64"])
def test_other_dtypes_of_numbers_are_updated_alike(
    fitted: dict[str, Any], dtype: str
) -> None:
    y = (10 * new()).round()
    plain, other = (copy.deepcopy(fitted["series"]) for _ in range(2))
    plain.update(y, update_params=False)
    other.update(y.astype(dtype), update_params=False)
    pd.testing.assert_series_equal(other.predict([1]), plain.predict([1]))


def test_every_misuse_of_the_class_leaves_it_usable() -> None:
    forecaster = LatentODELSTMForecaster(max_epochs=1, hidden_size=0)
    with pytest.raises(ValueError, match="hidden_size"):
        forecaster.fit(new())
    forecaster.set_params(hidden_size=3)
    assert np.isfinite(forecaster.fit(new()).predict([1])).all()
