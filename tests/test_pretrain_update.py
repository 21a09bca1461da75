"""What an update does to the history, and so to the forecasts."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from sklode import StructuralForecaster
from sklode.data.errors import HistoryWarning
from sklode.data.observations import Observations
from sklode.structural.design import Design
from sklode.structural.filtered_column import FilteredColumn
from sklode.structural.filtered_model import FilteredModel
from tests.series import MOSTLY_ONE, channels, panel, tiny, uneven_stamps, waves

STEPS = [-3, 1, 4]


def weights(network: torch.nn.Module) -> np.ndarray:
    parts = [p.detach().flatten() for p in network.parameters()]
    return torch.cat(parts).numpy().copy()


def long_series() -> pd.Series:
    return waves(uneven_stamps(24, seed=9))


def panel_with(y: pd.Series) -> pd.DataFrame:
    parts = {**{key: part.droplevel(0) for key, part in panel().groupby(level=0)}}
    return pd.concat({**parts, "own": y.to_frame()}, names=["series", "when"])


@pytest.mark.parametrize("kind", MOSTLY_ONE)
def test_a_series_is_forecast_alike_alone_and_in_a_panel(kind: type) -> None:
    y = long_series()
    together = panel_with(y)
    forecaster = tiny(kind, finetune_epochs=0, max_epochs=5).pretrain(together)
    in_panel = forecaster.clone().fit(together)
    alone = forecaster.clone().fit(y)
    asked = [y.index[0], y.index[9], y.index[-1] + pd.Timedelta("7min")]
    rows = pd.MultiIndex.from_tuples([("own", t) for t in asked])
    expected = alone.predict_at(pd.DatetimeIndex(asked))
    answer = in_panel.predict_at(rows).iloc[:, 0]
    np.testing.assert_allclose(answer, expected, rtol=0, atol=1e-6)


def test_late_rows_of_an_update_take_their_place_in_time() -> None:
    y = long_series()
    asked = y.index[[0, 12, 20]].append(y.index[-1:] + pd.Timedelta("9min"))
    forecaster = tiny(finetune_epochs=0, max_epochs=3).pretrain(panel())
    expected = forecaster.clone().fit(y).predict(asked)
    late = y.index[[0, 12, 13, 23]]
    updated = forecaster.clone().fit(y.drop(late)).update(y[late], update_params=False)
    np.testing.assert_array_equal(updated.predict(asked), expected)
    early = forecaster.clone().fit(y.drop(late[:2]))
    early.update(y[late[:2]], update_params=False)
    assert early.cutoff[0] == y.index[-1]
    assert early.predict([1]).index[0] > y.index[-1]


def test_a_value_of_an_update_replaces_the_one_seen_before() -> None:
    y = channels(uneven_stamps())
    forecaster = tiny().fit(y)
    revised = y.copy()
    revised.iloc[-2, 0] += 1
    asked = y.index[-1:] + pd.Timedelta("9min")
    block = revised.iloc[[-2]].assign(b=np.nan)  # what is missing takes nothing away
    with pytest.warns(HistoryWarning, match="values of y .* 1 of them"):
        expected = forecaster.clone().fit(y).update(revised, update_params=False)
    with pytest.warns(HistoryWarning, match="values of y .* 1 of them"):
        forecaster.update(block, update_params=False)
    pd.testing.assert_frame_equal(
        forecaster.predict(asked), expected.predict(asked), check_exact=True
    )
    before = tiny().fit(y).predict(asked)
    assert np.abs(forecaster.predict(asked) - before).to_numpy().max() > 1e-6


def test_an_update_may_bring_a_new_series() -> None:
    y = panel()
    forecaster = tiny(finetune_epochs=0, freq="1h").pretrain(y)
    expected = forecaster.clone().fit(y)
    updated = forecaster.clone().fit(y.drop("s1", level=0))
    updated.update(y.loc[["s1"]], update_params=False)
    forecast = updated.predict([1, 3])
    assert list(forecast.index.unique(0)) == ["s0", "s2", "s1"]
    np.testing.assert_allclose(
        forecast.loc[expected.predict([1, 3]).index], expected.predict([1, 3]), 1e-5
    )
    empty = y.loc[["s1"]].rename({"s1": "s7"}) * np.nan
    with pytest.raises(
        ValueError, match=r"got 13 rows of series \('s7',\) that are all"
    ):
        updated.update(empty, update_params=False)


@pytest.mark.parametrize("kind", MOSTLY_ONE)
def test_update_without_training_only_appends(kind: type) -> None:
    y = long_series()
    forecaster = tiny(kind, finetune_epochs=0).pretrain(panel())
    expected = forecaster.clone().fit(y)
    updated = forecaster.clone().fit(y[:15])
    before = weights(updated.network_)
    updated.update(y[15:19], update_params=False)
    updated.update(y[19:], update_params=False)
    assert np.array_equal(weights(updated.network_), before)
    asked = y.index[[0, 14, 20]].append(y.index[-1:] + pd.Timedelta("9min"))
    np.testing.assert_array_equal(updated.predict(asked), expected.predict(asked))
    assert updated.cutoff[0] == y.index[-1]


def test_an_update_of_missing_values_moves_only_the_cutoff() -> None:
    y = long_series()
    forecaster = tiny().fit(y[:18])
    asked = y.index[[20]]
    forecast = forecaster.predict(asked)
    forecaster.update(y[18:20] * np.nan, update_params=False)
    assert np.array_equal(forecaster.predict(asked), forecast)
    assert forecaster.cutoff[0] == y.index[19]
    assert forecaster.predict([1]).index[0] > y.index[19]


def test_an_update_reads_only_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    y = waves(uneven_stamps(60))
    X = pd.DataFrame({"a": np.sin(np.arange(60.0))}, y.index)
    forecaster = StructuralForecaster(random_state=0).fit(y[:50], X=X[:50])
    read, n_rows = Design.inputs, []

    def recorded(self: Design, rows: Observations) -> np.ndarray:
        n_rows.append(len(rows.ticks))
        return read(self, rows)

    monkeypatch.setattr(Design, "inputs", recorded)
    forecaster.update(y[50:53], X=X[50:53], update_params=False)
    assert n_rows == [3]
    at_once = FilteredModel.filter(forecaster._answers.model, forecaster._history.rows)
    for one, other in zip(
        forecaster._answers.states.columns, at_once.columns, strict=True
    ):
        pair = one.states, other.states
        for found, expected in zip(*pair, strict=True):
            np.testing.assert_allclose(found.means, expected.means, rtol=1e-9)


def test_what_was_found_is_worked_out_when_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    y = waves(uneven_stamps(60))
    forecaster = StructuralForecaster(random_state=0).fit(y[:50])
    described = forecaster.components_
    assert forecaster.components_ is described
    monkeypatch.setattr(FilteredColumn, "described", None)  # it takes a while
    forecaster.update(y[50:], update_params=False)
    monkeypatch.undo()
    assert not forecaster.components_.equals(described)


def test_what_was_found_is_there_after_fit() -> None:
    with pytest.raises(AttributeError, match="components_ after fit"):
        _ = StructuralForecaster().components_
