"""Input that cannot be used is refused before training, by name and with a remedy."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sktime.forecasting.base import ForecastingHorizon

from sklode import LatentODELSTMForecaster
from sklode.training.loop import Trainer
from tests.series import FORECASTERS, channels, panel, tiny, uneven_stamps, waves


class TrainedError(Exception):
    """Training began, although the input cannot be used."""


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a test whose error comes only after training has begun."""

    def fit(*args: Any, **kwargs: Any) -> None:
        raise TrainedError

    monkeypatch.setattr(Trainer, "fit", fit)


NAN = float("nan")
NOT_A_SIZE: list[Any] = [0, -1, 2.5, "8", None, NAN]
NOT_A_POSITIVE: list[Any] = [0, -0.5, "1", None, NAN, float("inf")]
NOT_A_BOOL: list[Any] = ["yes", None, 2]

BAD_PARAMETERS: dict[str, list[Any]] = {
    "hidden_size": NOT_A_SIZE,
    "latent_size": NOT_A_SIZE,
    "field_width": NOT_A_SIZE,
    "field_depth": NOT_A_SIZE,
    "emission_width": NOT_A_SIZE,
    "activation": ["relu6", 1, None],
    "window_length": [0, -1, 2.5, "8", NAN],
    "horizon": [-1, 2.5, "8", NAN],
    "thinning": [-0.1, 1, "0.5", None, NAN],
    "normalize": ["minmax", 1, True],
    "method": ["rk5", 4, None],
    "step_size": NOT_A_POSITIVE,
    "rtol": NOT_A_POSITIVE,
    "atol": NOT_A_POSITIVE,
    "adjoint": NOT_A_BOOL,
    "clip_norm": [0, -1.0, "median", NAN],
    "kl_weight": [-0.5, "1", None, NAN],
    "observation_noise": [0, -0.5, "1", NAN],
    "max_epochs": [0, -1, 2.5, "8"],
    "batch_size": NOT_A_SIZE,
    "lr": NOT_A_POSITIVE,
    "weight_decay": [-0.5, "1", None, NAN],
    "guard": NOT_A_BOOL,
    "early_stopping": NOT_A_BOOL,
    "n_iter_no_change": NOT_A_SIZE,
    "finetune_epochs": [-1, 2.5, "8"],
    "n_samples": NOT_A_SIZE,
    "freq": ["fortnightish", "-1h", "0h", 5, pd.Timedelta(0)],
    "engine": ["gpu", None, 1],
    "device": ["abacus", None, 1],
    "random_state": ["seed", -1, 0.5],
    "warm_start": NOT_A_BOOL,
    "verbose": [-1, 3, "loud", None],
    "callbacks": [[object()], print, "all"],
}


def test_every_parameter_has_bad_values_here() -> None:
    assert set(BAD_PARAMETERS) == set(LatentODELSTMForecaster().get_params())


@pytest.mark.usefixtures("untrained")
@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, values in BAD_PARAMETERS.items() for value in values],
)
def test_a_bad_parameter_is_refused_by_name(name: str, value: Any) -> None:
    forecaster = tiny(**{name: value})
    received = value[0] if isinstance(value, list) else value
    message = f"(?s){name}.*{re.escape(str(received))}"
    with pytest.raises((ValueError, TypeError), match=message):
        forecaster.fit(waves(uneven_stamps()))


@pytest.mark.usefixtures("untrained")
@pytest.mark.parametrize("kind", FORECASTERS)
def test_pretrain_refuses_a_bad_parameter_too(kind: type) -> None:
    with pytest.raises(ValueError, match=r"'lr'.*Got -1"):
        tiny(kind, lr=-1).pretrain(panel())


def swapped(index: pd.Index, i: int, j: int) -> pd.Index:
    order = np.arange(len(index))
    order[[i, j]] = order[[j, i]]
    return index[order]


@pytest.mark.usefixtures("untrained")
@pytest.mark.parametrize("kind", FORECASTERS)
def test_unsorted_stamps_are_refused_at_the_first_offender(kind: type) -> None:
    index = pd.date_range("2021-03-01", periods=9, freq="D")
    message = (
        r"times of y must be strictly increasing; got 2021-03-04 00:00:00 after "
        r"2021-03-05 00:00:00 at row 4\..*sort_index\(\)"
    )
    with pytest.raises(ValueError, match=message):
        tiny(kind).fit(waves(swapped(index, 3, 4)))


@pytest.mark.usefixtures("untrained")
@pytest.mark.parametrize(
    "index",
    [
        pd.Index([0, 1, 5, 3, 7, 8]),
        pd.PeriodIndex(["2020-01", "2020-02", "2020-05", "2020-04"], freq="M"),
        pd.to_timedelta([0, 1, 3, 2], unit="h"),
        swapped(pd.date_range("2021-03-01", periods=5, tz="Asia/Tokyo"), 2, 3),
    ],
    ids=["integers", "periods", "timedeltas", "with time zone"],
)
def test_unsorted_stamps_of_every_kind_are_refused(index: pd.Index) -> None:
    offender = re.escape(str(index[3]))
    with pytest.raises(ValueError, match=f"increasing; got {offender} after .* row 3"):
        tiny().fit(waves(index))


@pytest.mark.usefixtures("untrained")
@pytest.mark.parametrize("index", [pd.Index([0, 1, 2, 2, 3]), uneven_stamps(5)])
def test_duplicate_stamps_are_refused(index: pd.Index) -> None:
    index = index[[0, 1, 2, 2, 3]]
    offender = re.escape(str(index[3]))
    with pytest.raises(ValueError, match=f"got {offender} after .*row 3.*duplicated"):
        tiny().fit(waves(index))


@pytest.mark.usefixtures("untrained")
@pytest.mark.parametrize(
    "index",
    [
        uneven_stamps(6).insert(2, pd.NaT),
        pd.period_range("2020-01", periods=6, freq="M").insert(2, pd.NaT),
        pd.to_timedelta(np.arange(6), unit="h").insert(2, pd.NaT),
        pd.Index([0.0, 1.0, np.nan, 3.0]),
        pd.Index([0.0, 1.0, np.inf, 3.0]),
    ],
    ids=["datetimes", "periods", "timedeltas", "NaN", "infinite"],
)
def test_a_stamp_that_is_no_time_is_refused(index: pd.Index) -> None:
    received = re.escape(str(index[2]))
    with pytest.raises(ValueError, match=f"finite times; got {received} at row 2"):
        tiny().fit(waves(index))


@pytest.mark.usefixtures("untrained")
@pytest.mark.parametrize("index", [np.arange(5) / 2, list("abcde")])
def test_other_kinds_of_index_are_refused(index: Any) -> None:
    with pytest.raises(TypeError, match="index"):
        tiny().fit(waves(pd.Index(index)))


@pytest.mark.usefixtures("untrained")
def test_offending_stamps_in_a_panel_are_named_by_row() -> None:
    y = panel((6, 5))
    order = [0, 1, 2, 3, 4, 5, 6, 8, 7, 9, 10]
    with pytest.raises(ValueError, match=r"strictly increasing; got .* row 8"):
        tiny().fit(y.iloc[order])


@pytest.mark.usefixtures("untrained")
@pytest.mark.parametrize("value", [np.inf, -np.inf])
@pytest.mark.parametrize("kind", FORECASTERS)
def test_infinite_values_are_refused(kind: type, value: float) -> None:
    y = channels(uneven_stamps())
    y.iloc[7:9, 1] = value
    stamp = re.escape(str(y.index[7]))
    message = f"got {value} in column 'b' at row 7 .{stamp}.*NaN"
    with pytest.raises(ValueError, match=message):
        tiny(kind).fit(y)


@pytest.mark.usefixtures("untrained")
def test_y_without_any_value_is_refused() -> None:
    message = "at least one observed value.* got 24 rows .*all missing"
    with pytest.raises(ValueError, match=message):
        tiny().fit(waves() * np.nan)


@pytest.mark.usefixtures("untrained")
def test_empty_y_is_refused() -> None:
    with pytest.raises((ValueError, TypeError), match="y "):
        tiny().fit(waves()[:0])


@pytest.mark.usefixtures("untrained")
def test_a_series_of_a_panel_without_any_value_is_named() -> None:
    y = panel()
    y.loc["s1"] = np.nan
    with pytest.raises(ValueError, match=r"got 13 rows of series .*s1.* missing"):
        tiny().fit(y)


@pytest.mark.usefixtures("untrained")
def test_a_column_without_any_value_is_refused_by_name_or_used_without() -> None:
    y = channels()
    y["b"] = np.nan
    with pytest.raises((ValueError, TrainedError)):
        tiny().fit(y)


@pytest.mark.parametrize(
    ("index", "asked", "received"),
    [
        (uneven_stamps(), uneven_stamps().tz_localize("UTC"), "with a time zone"),
        (uneven_stamps().tz_localize("UTC"), uneven_stamps(), "without a time zone"),
        (pd.RangeIndex(20), uneven_stamps(), "datetimes"),
        (uneven_stamps(), pd.Index([30, 31]), "integers"),
        (
            pd.period_range("2020-01", periods=20, freq="M"),
            pd.period_range("2020", periods=2, freq="Y"),
            "periods",
        ),
    ],
    ids=["zone too many", "zone missing", "datetimes", "integers", "other periods"],
)
def test_stamps_of_another_kind_than_y_are_refused(
    index: pd.Index, asked: pd.Index, received: str
) -> None:
    forecaster = tiny().fit(waves(index))
    with pytest.raises(TypeError, match=f"must be of the kind of y's.*{received}"):
        forecaster.predict_at(asked)
    with pytest.raises((TypeError, ValueError), match=r"index|horizon|Frequencies"):
        forecaster.predict(ForecastingHorizon(asked, is_relative=False))


@pytest.mark.parametrize("fh", [[1.5], "tomorrow", [1, 1], []])
def test_a_horizon_that_counts_nothing_is_refused(fh: Any) -> None:
    forecaster = tiny().fit(waves())
    with pytest.raises((TypeError, ValueError), match="fh"):
        forecaster.predict(fh)


def test_a_series_that_fit_has_not_seen_is_named() -> None:
    forecaster = tiny().fit(panel())
    asked = pd.MultiIndex.from_tuples([("s9", pd.Timestamp("2021-06-01"))])
    with pytest.raises(ValueError, match=r"series that fit has seen; got .*s9"):
        forecaster.predict_at(asked)


@pytest.mark.parametrize("n", [0, -1, 2.5])
def test_a_number_of_samples_below_one_is_refused(n: Any) -> None:
    forecaster = tiny().fit(waves())
    with pytest.raises((ValueError, TypeError), match=r"n_samples.*got"):
        forecaster.sample([1], n_samples=n)


def test_controls_missing_at_predict_are_asked_for() -> None:
    y = waves()
    X = pd.DataFrame({"u": np.arange(24.0)}, y.index)
    forecaster = tiny().fit(y, X)
    with pytest.raises(ValueError, match=r"needs X at every stamp.*got None\. Pass X"):
        forecaster.predict([1])
    absent = y.index[-1] + 2
    later = pd.DataFrame({"u": [1.0]}, [y.index[-1] + 1])
    with pytest.raises(ValueError, match=f"row at every stamp.*got none at {absent}"):
        forecaster.predict([1, 2], X=later)
    with pytest.raises(ValueError, match="got NaN in column 'u'"):
        forecaster.predict([1], X=later * np.nan)
    with pytest.raises(ValueError, match="values of X must be finite; got inf"):
        forecaster.predict([1], X=later * np.inf)
    with pytest.raises(ValueError, match="X"):
        forecaster.predict([1], X=later.assign(v=1.0))


@pytest.mark.usefixtures("untrained")
def test_controls_with_missing_or_infinite_values_are_refused() -> None:
    y = waves(uneven_stamps())
    X = pd.DataFrame({"u": np.arange(24.0), "v": 1.0}, y.index)
    X.iloc[5, 1] = np.nan
    stamp = re.escape(str(y.index[5]))
    with pytest.raises(ValueError, match=f"got NaN in column 'v' at {stamp}.*Fill"):
        tiny().fit(y, X)
    X.iloc[5, 1] = np.inf
    with pytest.raises(ValueError, match=r"values of X .* got inf in column 'v'"):
        tiny().fit(y, X)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("kind", FORECASTERS)
@pytest.mark.parametrize("window_length", [None, 6])
def test_a_series_of_few_rows_is_forecast(
    kind: type, n: int, window_length: int | None
) -> None:
    for index in (pd.RangeIndex(n), uneven_stamps(n)):
        settings = {"window_length": window_length, "early_stopping": n == 3}
        forecaster = tiny(kind, **settings).fit(waves(index))
        forecast = forecaster.predict([-1, 0, 1, 5])
        assert np.isfinite(forecast).all()
        assert np.isfinite(forecaster.predict_quantiles([2])).all(axis=None)


@pytest.mark.parametrize(
    "normalize", ["auto", "series", "window", "last", "blend", "linear"]
)
@pytest.mark.parametrize("level", [0.0, 7.5, -1e12, 1e-12])
def test_a_constant_series_is_forecast_near_its_constant(
    normalize: str, level: float
) -> None:
    y = waves() * 0 + level
    forecaster = tiny(normalize=normalize, max_epochs=60, lr=0.03).fit(y)
    forecast = forecaster.predict([-40, 1, 10])
    np.testing.assert_allclose(forecast, level, rtol=0.05, atol=0.05 * (level == 0))


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (pd.Index(np.arange(24) / 7), "must hold integers, .*got float64, such as 0.0"),
        (pd.Index(list("abcdefghijklmnopqrstuvwx")), "must hold integers, .*such as"),
    ],
    ids=["floats", "words"],
)
def test_an_index_that_is_no_time_is_refused(index: pd.Index, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        tiny().fit(waves().set_axis(index))


def test_a_series_of_a_panel_must_have_a_key() -> None:
    y = panel()
    keys = [None if key == "s1" else key for key in y.index.get_level_values(0)]
    times = y.index.get_level_values(1)
    nameless = y.set_axis(pd.MultiIndex.from_arrays([keys, times]))
    with pytest.raises(ValueError, match="series of y must have keys; got none at row"):
        tiny().fit(nameless)


def test_covariances_are_not_given_in_silence() -> None:
    with pytest.raises(ValueError, match="gives variances only; got cov=True"):
        tiny().fit(waves()).predict_var([1], cov=True)
