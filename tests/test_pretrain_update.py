"""What is kept of an earlier fit: pretraining, updates, warm starts."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit
from sktime.forecasting.model_selection import ForecastingGridSearchCV
from sktime.split import ExpandingWindowSplitter

from sklode.data.errors import HistoryWarning
from sklode.model_selection import AbsoluteHorizon
from sklode.training.loop import Trainer
from tests.series import FORECASTERS, channels, panel, tiny, uneven_stamps, waves

STEPS = [-3, 1, 4]


def weights(network: torch.nn.Module) -> np.ndarray:
    parts = [p.detach().flatten() for p in network.parameters()]
    return torch.cat(parts).numpy().copy()


def long_series() -> pd.Series:
    return waves(uneven_stamps(24, seed=9))


def panel_with(y: pd.Series) -> pd.DataFrame:
    parts = {**{key: part.droplevel(0) for key, part in panel().groupby(level=0)}}
    return pd.concat({**parts, "own": y.to_frame()}, names=["series", "when"])


@pytest.mark.parametrize("kind", FORECASTERS)
def test_a_series_is_forecast_alike_alone_and_in_a_panel(kind: type) -> None:
    y = long_series()
    together = panel_with(y)
    forecaster = tiny(kind, finetune_epochs=0, max_epochs=5).pretrain(together)
    in_panel = forecaster.clone().fit(together)
    alone = forecaster.clone().fit(y)
    asked = [y.index[0], y.index[9], y.index[-1] + pd.Timedelta("7min")]
    rows = pd.MultiIndex.from_tuples([("own", t) for t in asked])
    expected = alone.predict_at(pd.DatetimeIndex(asked))
    np.testing.assert_allclose(in_panel.predict_at(rows), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", FORECASTERS)
def test_fit_fine_tunes_a_copy_of_the_pretrained_model(kind: type) -> None:
    forecaster = tiny(kind, finetune_epochs=2, lr=0.05).pretrain(panel())
    before = weights(forecaster.pretrained_.network)
    first = forecaster.fit(long_series()).predict(STEPS)
    assert np.array_equal(weights(forecaster.pretrained_.network), before)
    assert not np.array_equal(weights(forecaster.network_), before)
    assert forecaster.n_epochs_ == 2
    again = forecaster.fit(long_series()).predict(STEPS)
    pd.testing.assert_series_equal(again, first, check_exact=True)


@pytest.mark.parametrize(
    ("given", "fh", "expected"),
    [
        ({}, None, (13, 13)),
        ({}, [1, 4], (18, 4)),
        ({"window_length": 5}, None, (5, 5)),
        ({"window_length": 5, "horizon": 3}, [1, 9], (5, 3)),
    ],
)
def test_a_fit_tells_the_lengths_it_took(
    given: dict[str, int], fh: list[int] | None, expected: tuple[int, int]
) -> None:
    settings = {"window_length": None, "horizon": None, "max_epochs": 1, **given}
    forecaster = tiny(**settings).fit(waves(uneven_stamps(40)), fh=fh)
    assert (forecaster.window_length_, forecaster.horizon_) == expected


def test_lengths_are_kept_from_pretraining() -> None:
    forecaster = tiny(window_length=None, horizon=None, finetune_epochs=0)
    forecaster.pretrain(panel((40, 31, 28)))
    first = forecaster.clone().fit(waves(uneven_stamps(12)))
    assert (first.window_length_, first.horizon_) == (
        forecaster.pretrained_.window_length,
        forecaster.pretrained_.horizon,
    )


def test_fine_tuning_starts_from_the_pretrained_weights() -> None:
    settings = {"finetune_epochs": 1, "max_epochs": 10, "lr": 0.05}
    forecaster = tiny(**settings).pretrain(panel())
    before = weights(forecaster.pretrained_.network)
    forecaster.lr = 1e-9
    tuned = weights(forecaster.fit(long_series()).network_)
    np.testing.assert_allclose(tuned, before, rtol=0, atol=1e-6)


@pytest.mark.parametrize("max_epochs", [2, 300])
def test_fine_tuning_takes_a_fifth_but_a_hundred_steps_at_less_than_lr(
    max_epochs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_batches = 0
    fit = Trainer.fit

    def spy(trainer: Trainer, draw: Any, n: int, *others: Any) -> Trainer:
        nonlocal n_batches
        n_batches = n
        return fit(trainer, draw, n, *others)

    monkeypatch.setattr(Trainer, "fit", spy)
    forecaster = tiny(max_epochs=2, lr=0.01, batch_size=2).pretrain(panel())
    y = long_series()
    forecaster.set_params(max_epochs=max_epochs).fit(y)
    assert n_batches > 1
    expected = max(np.ceil(100 / n_batches), 0.2 * max_epochs)
    assert forecaster.n_epochs_ == expected
    assert forecaster.history_["lr"].max() == pytest.approx(0.003, rel=0.1)
    asked = forecaster.clone().set_params(finetune_epochs=int(expected)).fit(y)
    assert asked.n_epochs_ == expected
    assert asked.history_["lr"].max() == pytest.approx(0.01, rel=0.1)


def test_an_update_after_fine_tuning_takes_a_fifth_at_lr_itself() -> None:
    forecaster = tiny(max_epochs=10, lr=0.01).pretrain(panel())
    y = long_series()
    forecaster.fit(y[:-2]).update(y[-2:])
    assert forecaster.n_epochs_ == 2
    assert forecaster.history_["lr"].max() == pytest.approx(0.01, rel=0.3)


class Stop:
    """Stop the training after three epochs."""

    def on_epoch_end(self, owner: Any, row: dict[str, float]) -> bool:
        return row["epoch"] == 3


def test_a_fine_tuning_that_stopped_does_not_go_on_at_another_rate() -> None:
    settings = {"max_epochs": 2, "lr": 0.01, "lr_schedule": "constant"}
    forecaster = tiny(**settings, warm_start=True).pretrain(panel())
    y = long_series()
    forecaster.set_params(callbacks=[Stop()]).fit(y)
    assert forecaster.history_["lr"].tolist() == pytest.approx(3 * [0.003])
    forecaster.callbacks, forecaster.finetune_epochs = None, 5
    forecaster.fit(y)
    assert forecaster.history_["lr"].tolist() == pytest.approx(5 * [0.01])


@pytest.mark.parametrize("schedule", ["one-cycle", "constant"])
def test_a_stopped_fine_tuning_goes_on_as_if_it_had_not_been(schedule: str) -> None:
    y = long_series()
    common = {"max_epochs": 2, "lr": 0.01, "lr_schedule": schedule}
    family = tiny(**common, warm_start=True).pretrain(panel())
    whole = family.clone().fit(y)
    stopped = family.clone().set_params(callbacks=[Stop()]).fit(y)
    assert stopped.n_epochs_ == 3
    stopped.callbacks = None
    stopped.fit(y)
    pd.testing.assert_frame_equal(
        stopped.history_.drop(columns="seconds"),
        whole.history_.drop(columns="seconds"),
        check_exact=True,
    )


def test_a_second_pretrain_continues_from_the_first() -> None:
    forecaster = tiny(max_epochs=10, lr=0.05).pretrain(panel())
    first = forecaster.pretrained_
    before = weights(first.network)
    forecaster.lr = 1e-9
    again = weights(forecaster.pretrain(panel((12, 14))).pretrained_.network)
    np.testing.assert_allclose(again, before, rtol=0, atol=1e-6)
    assert not np.array_equal(again, before)
    assert np.array_equal(weights(first.network), before)
    assert forecaster.pretrained_.time_unit == first.time_unit


def test_set_params_keeps_what_was_pretrained() -> None:
    forecaster = tiny(max_epochs=10, lr=0.05).pretrain(panel())
    before = weights(forecaster.pretrained_.network)
    forecaster.set_params(lr=1e-9, finetune_epochs=1)
    assert forecaster.state == "pretrained"
    tuned = weights(forecaster.fit(long_series()).network_)
    np.testing.assert_allclose(tuned, before, rtol=0, atol=1e-6)
    assert not forecaster.set_params(lr=1e-8).is_fitted
    assert np.array_equal(weights(forecaster.pretrained_.network), before)
    assert not hasattr(forecaster.reset(), "pretrained_")


@pytest.mark.filterwarnings(
    "ignore:The default of config ``remember_data``:FutureWarning"
)
@pytest.mark.parametrize("kind", ["scikit-learn", "sktime"])
def test_a_search_fine_tunes_what_was_pretrained(kind: str) -> None:
    pretrained = tiny(max_epochs=10, lr=0.05).pretrain(panel())
    before = weights(pretrained.pretrained_.network)
    grid, y = {"lr": [1e-9, 1e-8]}, long_series()
    search: Any
    if kind == "sktime":
        cv = AbsoluteHorizon(ExpandingWindowSplitter(initial_window=16, step_length=4))
        search = ForecastingGridSearchCV(
            pretrained, cv, grid, backend="None", error_score="raise"
        )
    else:
        cv = TimeSeriesSplit(2)
        search = GridSearchCV(pretrained, grid, cv=cv, error_score="raise")
    search.fit(y)
    best = search.best_forecaster_ if kind == "sktime" else search.best_estimator_
    np.testing.assert_allclose(weights(best.network_), before, rtol=0, atol=1e-6)


def test_another_architecture_than_the_pretrained_is_refused() -> None:
    forecaster = tiny(hidden_size=3).pretrain(panel()).set_params(hidden_size=5)
    told = r"same hidden_size, 3; got 5.*fresh clone instead, after reset\(\)"
    with pytest.raises(ValueError, match=told):
        forecaster.fit(long_series())
    assert forecaster.reset().fit(long_series()).network_.encoder.cell.hidden_size == 5


def test_a_fit_may_be_followed_by_pretrain() -> None:
    expected = tiny().pretrain(panel()).fit(long_series()).predict(STEPS)
    forecaster = tiny().fit(waves()).pretrain(panel()).fit(long_series())
    pd.testing.assert_series_equal(forecaster.predict(STEPS), expected)


def test_a_pretrained_model_refuses_an_index_of_another_kind() -> None:
    forecaster = tiny().pretrain(panel())
    with pytest.raises(ValueError, match=r"an index of datetimes.*got one of integers"):
        forecaster.fit(waves())
    months = waves(pd.period_range("2020-01", periods=20, freq="M"))
    with pytest.raises(ValueError, match="got one of periods of frequency M"):
        forecaster.fit(months)


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


def test_an_array_does_not_continue_stamps() -> None:
    y = long_series()
    forecaster = tiny().fit(y[:18])
    with pytest.raises(TypeError, match="only where fit got one; got an array, and y"):
        forecaster.update(y[18:].to_numpy(), update_params=False)


def test_rows_of_two_arrays_belong_together() -> None:
    values, X = waves().to_numpy(), np.ones((24, 1))
    forecaster = tiny().fit(values[:18], X[:18])
    forecaster.update(values[18:], X[:6])
    with pytest.raises(ValueError, match=r"a row for each row of y.*got 3 and 6"):
        forecaster.score(values[:6], X[:3])


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_rows_of_an_array_continue_after_the_last_one(shape: tuple[int, ...]) -> None:
    y = waves(pd.RangeIndex(24))
    X = pd.DataFrame({"u": np.cos(y.index)})
    expected = tiny().fit(y[:18], X[:18]).update(y[18:], X[18:], update_params=False)
    array, controls = y.to_numpy().reshape(shape), X.to_numpy()
    forecaster = tiny().fit(array[:18], controls[:18])
    forecaster.update(array[18:], controls[18:], update_params=False)
    assert forecaster.cutoff[0] == 23
    future = pd.DataFrame({"u": [0.5]}, [24])
    forecast = forecaster.predict([1], X=future.set_axis([0], axis=1))
    np.testing.assert_array_equal(np.ravel(forecast), expected.predict([1], X=future))
    alone = tiny().fit(array[:18])
    moved = alone.update_predict(array[18:], update_params=False)
    of_series = tiny().fit(y[:18]).update_predict(y[18:], update_params=False)
    np.testing.assert_array_equal(np.ravel(moved), np.ravel(of_series))


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


def test_without_fine_tuning_only_the_history_is_new() -> None:
    forecaster = tiny(finetune_epochs=0, max_epochs=3).pretrain(panel())
    before = weights(forecaster.pretrained_.network)
    y = long_series()
    forecast = forecaster.fit(y).predict(STEPS)
    assert np.array_equal(weights(forecaster.network_), before)
    assert forecaster.n_epochs_ == 0
    assert len(forecaster.history_) == 0
    assert "loss" in forecaster.history_.columns
    changed = y.copy()
    changed.iloc[-1] += 1
    assert (forecaster.fit(changed).predict(STEPS) != forecast).all()


def test_the_pretrained_units_are_kept() -> None:
    y = panel()
    forecaster = tiny(normalize="series", finetune_epochs=1).pretrain(y)
    slow = waves(pd.date_range("2021", periods=20, freq="D")) + 100
    forecaster.fit(slow)
    unit = tiny(normalize="series").fit(y)
    assert forecaster.time_unit_ == unit.time_unit_
    np.testing.assert_array_equal(forecaster.location_, unit.location_)
    np.testing.assert_array_equal(forecaster.scale_, unit.scale_)


def test_other_columns_than_in_pretrain_are_refused() -> None:
    forecaster = tiny().pretrain(panel())
    with pytest.raises(ValueError, match="as many columns as before, 1 and 0; got 2"):
        forecaster.fit(channels(uneven_stamps()))


@pytest.mark.parametrize("kind", FORECASTERS)
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


def test_update_moves_the_relative_horizon() -> None:
    y = waves(pd.date_range("2021-01-01", periods=24, freq="D"))
    forecaster = tiny().fit(y[:15])
    assert forecaster.predict([1]).index[0] == y.index[15]
    forecaster.update(y[15:18], update_params=False)
    assert forecaster.predict([1]).index[0] == y.index[18]
    forecaster.update(y[18:19], update_params=True)
    assert forecaster.predict([1]).index[0] == y.index[19]


def test_update_with_training_continues_from_the_current_weights() -> None:
    y = long_series()
    forecaster = tiny(max_epochs=20, lr=0.05).fit(y[:18])
    before, unit = weights(forecaster.network_), forecaster.time_unit_
    slow = copy.deepcopy(forecaster)
    slow.lr = 1e-9
    slow.update(y[18:])
    np.testing.assert_allclose(weights(slow.network_), before, rtol=0, atol=1e-6)
    forecaster.update(y[18:])
    assert np.abs(weights(forecaster.network_) - before).max() > 1e-3
    assert forecaster.time_unit_ == unit


def test_update_trains_on_the_new_rows_too() -> None:
    y = long_series()
    other = y.copy()
    other.iloc[18:] += 2
    settings = {"normalize": "series", "lr": 0.05, "finetune_epochs": 2}
    networks = [
        weights(tiny(**settings).fit(y[:18]).update(data[18:]).network_)
        for data in (y, other)
    ]
    assert np.abs(networks[0] - networks[1]).max() > 1e-4


def test_an_update_of_missing_values_moves_only_the_cutoff() -> None:
    y = long_series()
    forecaster = tiny().fit(y[:18])
    asked = y.index[[20]]
    forecast = forecaster.predict(asked)
    forecaster.update(y[18:20] * np.nan, update_params=False)
    assert np.array_equal(forecaster.predict(asked), forecast)
    assert forecaster.cutoff[0] == y.index[19]
    assert forecaster.predict([1]).index[0] > y.index[19]


def test_rows_seen_before_do_not_count_twice_in_an_update() -> None:
    y = long_series()
    asked = y.index[[3, 20]]
    forecaster = tiny().fit(y[:15])
    expected = copy.deepcopy(forecaster).update(y[15:18], update_params=False)
    overlapping = forecaster.update(y[12:18], update_params=False)
    np.testing.assert_array_equal(overlapping.predict(asked), expected.predict(asked))


def test_update_appends_to_the_series_of_a_panel_that_it_names() -> None:
    y = panel()
    asked = pd.MultiIndex.from_tuples(
        [(key, pd.Timestamp("2021-04-01")) for key in ("s0", "s1", "s2")],
        names=y.index.names,
    )
    forecaster = tiny().fit(y.drop(y.loc[["s1"]].index[-4:]))
    before = forecaster.predict_at(asked)
    forecaster.update(y.loc[["s1"]].iloc[-4:], update_params=False)
    after = forecaster.predict_at(asked)
    changed = (np.abs(after - before) > 1e-7)["y"]
    assert changed.tolist() == [False, True, False]
    steps = forecaster.predict([1]).index.get_level_values(-1)
    assert steps[0] > y.loc["s0"].index[-1]
    assert steps[1] > y.loc["s1"].index[-1]


def test_update_reads_the_controls_of_the_new_rows() -> None:
    y = long_series()
    X = pd.DataFrame({"u": np.arange(24.0)}, y.index)
    asked = y.index[-1:] + pd.Timedelta("9min")
    future = pd.DataFrame({"u": [3.0]}, asked)
    expected = tiny(finetune_epochs=0).fit(y[:18], X[:18])
    other = copy.deepcopy(expected)
    expected.update(y[18:], X[18:], update_params=False)
    other.update(y[18:], 2 * X[18:], update_params=False)
    forecast = expected.predict(asked, X=future)
    assert np.abs(other.predict(asked, X=future) - forecast).iloc[0] > 1e-7


def test_an_update_without_the_controls_that_fit_had_is_refused() -> None:
    y = long_series()
    X = pd.DataFrame({"u": np.arange(24.0)}, y.index)
    forecaster = tiny().fit(y[:18], X[:18])
    with pytest.raises(ValueError, match="X"):
        forecaster.update(y[18:], update_params=False)


@pytest.mark.parametrize("by", ["attribute", "set_params"])
def test_a_warm_start_continues_from_the_current_weights(by: str) -> None:
    y = long_series()

    def slowed(forecaster: Any) -> Any:
        if by == "attribute":
            forecaster.lr = 1e-9
            return forecaster
        return forecaster.set_params(lr=1e-9)

    forecaster = tiny(warm_start=True, max_epochs=20, lr=0.05).fit(y)
    before = weights(forecaster.network_)
    slowed(forecaster).fit(y)
    np.testing.assert_allclose(weights(forecaster.network_), before, rtol=0, atol=1e-6)
    cold = tiny(max_epochs=20, lr=0.05).fit(y)
    slowed(cold).fit(y)
    assert np.abs(weights(cold.network_) - before).max() > 1e-2


def test_a_warm_start_before_any_fit_is_a_fit() -> None:
    y = long_series()
    warm = tiny(warm_start=True).fit(y).predict(STEPS)
    pd.testing.assert_series_equal(warm, tiny().fit(y).predict(STEPS))


def test_columns_of_an_update_are_read_by_name_or_refused() -> None:
    y = channels()
    expected = tiny().fit(y[:18]).update(y[18:], update_params=False).predict(STEPS)
    swapped = tiny().fit(y[:18]).update(y.loc[y.index[18:], ["b", "a"]], None, False)
    pd.testing.assert_frame_equal(swapped.predict(STEPS)[["a", "b"]], expected)
    with pytest.raises(ValueError, match="columns"):
        tiny().fit(y[:18]).update(y[["a"]][18:], update_params=False)


@pytest.mark.parametrize(
    "index",
    [
        uneven_stamps(4, start="2022-01-01").tz_localize("UTC"),
        pd.RangeIndex(10**6, 10**6 + 4),
    ],
    ids=["with a time zone", "integers"],
)
def test_an_update_at_stamps_of_another_kind_is_refused(index: pd.Index) -> None:
    forecaster = tiny().fit(long_series())
    with pytest.raises(TypeError, match="must be of the kind of y's"):
        forecaster.update(waves(index), update_params=False)


def test_an_update_may_lack_a_channel() -> None:
    y = channels()
    forecaster = tiny().fit(y[:-2])
    later = y[-2:].copy()
    later.iloc[:, 1] = np.nan
    asked = y.index[-1:] + (y.index[-1:] - y.index[-2:-1])
    before = forecaster.predict_at(asked)
    after = forecaster.update(later, update_params=False).predict_at(asked)
    assert np.isfinite(after).all(axis=None)
    assert np.abs(after - before).to_numpy().max() > 1e-7


def test_a_column_without_any_value_is_refused_by_name() -> None:
    y = channels().copy()
    name = y.columns[1]
    y[name] = np.nan
    with pytest.raises(ValueError, match=rf"every column; got none in column '{name}'"):
        tiny().fit(y)


def test_a_warm_start_with_another_architecture_is_refused() -> None:
    forecaster = tiny(warm_start=True, hidden_size=3).fit(long_series())
    with pytest.raises(ValueError, match=r"same hidden_size, 3; got 5.*fresh clone"):
        forecaster.set_params(hidden_size=5).fit(long_series())
