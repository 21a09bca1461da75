"""NaN anywhere in y: what is observed counts, what is missing does not."""

from __future__ import annotations

import copy

import numpy as np
import pandas as pd
import pytest

from sklode import HistoryWarning
from tests.cases import mostly_slow
from tests.series import FORECASTERS, MOSTLY_ONE, channels, panel, tiny, waves


@pytest.mark.parametrize("kind", mostly_slow(FORECASTERS, FORECASTERS[-1]))
@pytest.mark.parametrize("model", ["hybrid", "paper"])
def test_a_channel_that_is_observed_once_is_forecast_by_that_value(
    kind: type, model: str
) -> None:
    y = channels()
    y["b"] = np.nan
    y.iloc[9, 1] = 70.0
    forecast = tiny(kind, model=model).fit(y).predict([-30, -5, 1, 4])
    np.testing.assert_allclose(forecast["b"], 70, rtol=1e-15)
    assert np.abs(forecast["a"]).max() < 10


@pytest.mark.parametrize(("n_lacking", "counts"), [(2, True), (6, False)])
def test_the_last_rows_may_lack_a_channel(n_lacking: int, counts: bool) -> None:
    y = channels()
    fitted = tiny(max_epochs=3, lr=0.1).fit(y[:12])  # its windows have 6 rows
    later = y[12:].copy()
    later.iloc[-n_lacking:, 1] = np.nan
    other = later.copy()
    other.iloc[-n_lacking - 1, 1] += 3
    forecasts = [
        copy.deepcopy(fitted).update(part, update_params=False).predict([1, 5])
        for part in (later, other)
    ]
    moved = np.abs(forecasts[1] - forecasts[0])["b"].max()
    assert (moved > 1e-5) == counts


def test_a_series_of_a_panel_may_lack_a_channel() -> None:
    y = panel().rename(columns={"y": "a"})
    y["b"] = 10 - 2 * y["a"]
    y.loc["s1", "b"] = np.nan
    forecaster = tiny(model="paper", max_epochs=10, lr=0.1).fit(y)
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


@pytest.mark.parametrize("kind", MOSTLY_ONE)
def test_a_stretch_without_any_observation_counts_as_time_only(kind: type) -> None:
    y = waves(pd.Index(10 * np.arange(40)))
    gap = y.copy()
    gap.iloc[20:32] = np.nan
    dropped = gap.dropna()
    asked = pd.Index([205, 255, 315, 400, 460])
    settings = {"max_epochs": 3}
    forecast = tiny(kind, **settings).fit(gap).predict_at(asked)
    expected = tiny(kind, **settings).fit(dropped).predict_at(asked)
    pd.testing.assert_series_equal(forecast, expected, check_exact=True)
