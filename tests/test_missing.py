"""NaN anywhere in y: what is observed counts, what is missing does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sklode import LatentODELSTMForecaster
from sklode.data.errors import HistoryWarning
from sklode.data.observations import Observations
from sklode.data.timelines import Timeline
from sklode.data.windows import WindowSet
from tests.series import FORECASTERS, channels, panel, tiny, uneven_stamps, waves

STEPS = [-30, -5, 1, 4]


def wide_panel() -> pd.DataFrame:
    """Return three series with the columns "a" and "b"."""
    y = panel((20, 13, 16)).rename(columns={"y": "a"})
    return y.assign(b=10 - 2 * y["a"])


@given(
    rows=st.lists(
        st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=14),
        min_size=1,
        max_size=3,
    ),
    window_length=st.integers(1, 6),
    horizon=st.integers(0, 5),
    share=st.sampled_from([0.125, 0.5, 1.0]),
)
def test_no_window_is_empty_whatever_is_missing(
    rows: list[list[tuple[bool, bool]]], window_length: int, horizon: int, share: float
) -> None:
    parts = {
        k: pd.DataFrame(np.where(part, 1.0, np.nan), columns=["a", "b"])
        for k, part in enumerate(rows)
        if np.any(part)
    }
    if not parts:
        return
    seen = Observations.from_frame(pd.concat(parts), None)
    times = Timeline(1.0, 1000.0).of_rows(seen)
    arrays = times, seen.values, None, seen.bounds
    windows = WindowSet(*arrays, window_length, horizon).shortened(share)
    batch = windows.gather(np.arange(len(windows)), windows.start)
    n = windows.window_length
    assert batch.mask[:, :n].any((1, 2)).all()
    assert batch.scored is not None
    reaches = windows.end - windows.start > n
    assert (batch.scored.any((1, 2)) == reaches).all()


@pytest.mark.parametrize("kind", FORECASTERS)
@pytest.mark.parametrize(
    "normalize", ["series", "window", "last", "blend", "linear", "auto"]
)
def test_a_channel_that_is_observed_once_is_forecast_near_that_value(
    kind: type, normalize: str
) -> None:
    y = channels()
    y["b"] = np.nan
    y.iloc[9, 1] = 70.0
    forecaster = tiny(kind, normalize=normalize, max_epochs=40, lr=0.03).fit(y)
    assert forecaster.location_[1] == 70
    forecast = forecaster.predict(STEPS)
    # far from the other channel's wave, which lies within -1.3 and 1.3
    np.testing.assert_allclose(forecast["b"], 70, rtol=0.4)
    assert np.abs(forecast["a"]).max() < 10


def test_a_value_that_is_missing_has_no_value() -> None:
    y = channels(uneven_stamps()).astype("Float64")
    y.iloc[3:9, 0] = pd.NA
    y.iloc[-4:, 1] = pd.NA
    forecast = tiny().fit(y).predict(STEPS)
    pd.testing.assert_frame_equal(tiny().fit(y.astype(float)).predict(STEPS), forecast)


def test_a_series_of_a_panel_may_lack_a_channel() -> None:
    y = wide_panel()
    y.loc["s1", "b"] = np.nan
    forecaster = tiny(normalize="series", max_epochs=30, lr=0.03).fit(y)
    np.testing.assert_allclose(forecaster.location_, y.mean())
    forecast = forecaster.predict([1, 2])
    # of a channel never seen there: what other series say of it
    assert forecast.loc["s1", "b"].between(y["b"].min(), y["b"].max()).all()
    changed = y.copy()
    changed["a"] += 0.5
    with pytest.warns(HistoryWarning, match=r"first at .* of series \('s1',\)"):
        forecaster.update(changed.loc[["s1"]], update_params=False)
    moved = np.abs(forecaster.predict([1, 2]) - forecast)
    assert moved.loc["s1"].to_numpy().min() > 1e-4
    assert moved.drop(index="s1", level=0).to_numpy().max() == 0


def test_a_pretrained_model_forecasts_a_channel_that_a_new_series_lacks() -> None:
    y = wide_panel()
    new = y.loc["s2"].copy()
    new["b"] = np.nan
    settings = {"normalize": "series", "max_epochs": 30, "lr": 0.03}
    forecaster = tiny(**settings, finetune_epochs=0).pretrain(y).fit(new)
    forecast = forecaster.predict([-3, 1])
    assert forecast["b"].between(y["b"].min(), y["b"].max()).all()
    with pytest.raises(ValueError, match="got none in column 'b'"):
        tiny().fit(new)


@pytest.mark.parametrize("normalize", ["series", "last"])
def test_the_last_rows_may_lack_a_channel(normalize: str) -> None:
    y = channels()
    fitted = tiny(normalize=normalize, max_epochs=30, lr=0.03).fit(y[:12])
    for n_lacking in (2, 6, 9):  # a window has 6 rows
        later = y[12:].copy()
        later.iloc[-n_lacking:, 1] = np.nan
        forecaster = fitted.clone().fit(y[:12]).update(later, update_params=False)
        forecast = forecaster.predict([1, 5])
        assert forecast["b"].between(-17, 23).all()  # waves from -7 to 13
        # what was observed before the gap counts as long as the window holds it
        other = y[12:].copy()
        other.iloc[-n_lacking:, 1] = np.nan
        other.iloc[-n_lacking - 1, 1] += 3
        twin = fitted.clone().fit(y[:12]).update(other, update_params=False)
        moved = np.abs(twin.predict([1, 5]) - forecast)["b"].max()
        assert (moved > 1e-5) == (n_lacking < 6)


def test_a_missing_value_of_an_update_replaces_nothing() -> None:
    y = channels()
    forecaster = tiny(finetune_epochs=0).fit(y[:18])
    expected = forecaster.predict([1, 3])
    again = y[12:18].copy()
    again.iloc[:4, 0] = np.nan
    again.iloc[2:, 1] = np.nan
    forecaster.update(again, update_params=False)
    pd.testing.assert_frame_equal(forecaster.predict([1, 3]), expected)


@pytest.mark.parametrize("update_params", [True, False])
def test_an_update_may_observe_each_channel_at_its_own_stamps(
    update_params: bool,
) -> None:
    y = channels()
    y.iloc[18::2, 0] = np.nan
    y.iloc[19::2, 1] = np.nan
    settings: dict[str, Any] = {"normalize": "series", "finetune_epochs": 1}
    updated = tiny(**settings).fit(y[:18]).update(y[18:], update_params=update_params)
    changed = y[18:].copy()
    changed.iloc[-1, 0] += 1
    other = tiny(**settings).fit(y[:18]).update(changed, update_params=update_params)
    moved = np.abs(other.predict([1]) - updated.predict([1]))
    assert moved.to_numpy().min() > 1e-5


def test_a_channel_that_is_missing_where_it_is_held_out_is_not_scored() -> None:
    y = channels(pd.RangeIndex(60))
    y.iloc[-12:, 1] = np.nan
    settings = {"early_stopping": True, "max_epochs": 3}
    losses = tiny(**settings).fit(y).history_["validation_loss"]
    assert np.isfinite(losses).all()


@pytest.mark.parametrize("kind", FORECASTERS)
def test_a_stretch_without_any_observation_counts_as_time_only(kind: type) -> None:
    y = waves(pd.Index(10 * np.arange(40)))
    gap = y.copy()
    gap.iloc[20:32] = np.nan
    dropped = gap.dropna()
    asked = pd.Index([205, 255, 315, 400, 460])
    settings = {"max_epochs": 3}
    forecast = tiny(kind, **settings).fit(gap).predict_at(asked)
    expected = tiny(kind, **settings).fit(dropped).predict_at(asked)
    pd.testing.assert_frame_equal(forecast, expected, check_exact=True)


def two_channels(n: int = 240, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return two sines of period 20 at exponential gaps, with noise and without."""
    rng = np.random.default_rng(seed)
    hours = np.cumsum(np.maximum(rng.exponential(1.0, n), 1e-3))
    stamps = pd.Timestamp("2021-01-01") + pd.to_timedelta(hours, unit="h").round("s")
    phase = 2 * np.pi * hours / 20 + rng.uniform(0, 2 * np.pi)
    exact = pd.DataFrame({"a": np.sin(phase), "b": 3 + np.cos(phase)}, stamps)
    return exact + 0.1 * rng.standard_normal(exact.shape), exact


def relative_error(y: pd.DataFrame, exact: pd.DataFrame, **settings: Any) -> pd.Series:
    """Return the MSE over the 30 stamps after y over the signal's variance."""
    forecast = LatentODELSTMForecaster(random_state=0, **settings).fit(y)
    later = exact[len(y) : len(y) + 30]
    return ((forecast.predict_at(later.index) - later) ** 2).mean() / exact.var(ddof=0)


SMALL = {
    **{"hidden_size": 12, "latent_size": 4, "field_width": 12, "emission_width": 16},
    **{"normalize": "series", "horizon": 20},
}


@pytest.mark.slow
def test_channels_with_disjoint_stamps_are_forecast_like_joint_ones() -> None:
    y, exact = two_channels()
    y = y[:-30]
    first = np.random.default_rng(0).random(len(y)) < 0.5
    apart = y.copy()
    apart.loc[first, "b"] = np.nan
    apart.loc[~first, "a"] = np.nan
    joint_error = relative_error(y, exact, **SMALL)
    error = relative_error(apart, exact, **SMALL)
    assert (error < 5 * joint_error + 0.02).all(), (error, joint_error)
