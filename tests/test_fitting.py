"""Training as a user sees it: history, callbacks, engines, solvers."""

from __future__ import annotations

import copy
import math
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from sklode import LatentODELSTMForecaster, nn
from sklode.prediction import model as models
from tests.series import FORECASTERS, channels, panel, tiny, uneven_stamps, waves

STEPS = [-3, 1, 4]
COLUMNS = [
    "loss",
    "log_likelihood",
    "kl",
    "grad_norm",
    "clipped_fraction",
    "validation_loss",
    "seconds",
]


class Recorder:
    """A callback that keeps every row and the weights, and may stop the training."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.stop_at = stop_at
        self.forecasters: list[Any] = []
        self.rows: list[dict[str, float]] = []

    def on_epoch_end(self, forecaster: Any, row: dict[str, float]) -> bool:
        self.forecasters.append(forecaster)
        self.rows.append(dict(row))
        return row["epoch"] == self.stop_at


@pytest.mark.parametrize("kind", FORECASTERS)
def test_history_has_a_row_per_epoch_with_every_column(kind: type) -> None:
    forecaster = tiny(kind, max_epochs=3).fit(waves())
    history = forecaster.history_
    assert isinstance(history, pd.DataFrame)
    assert set(COLUMNS) <= set(history.columns)
    assert history.index.tolist() == [1, 2, 3]
    assert forecaster.n_epochs_ == 3
    measured = history[[name for name in COLUMNS if name != "validation_loss"]]
    assert np.isfinite(measured).all(axis=None)
    assert (history["kl"] >= 0).all()
    assert (history["grad_norm"] > 0).all()


def test_the_loss_is_what_the_elbo_says() -> None:
    history = (
        tiny(max_epochs=4, kl_weight=0.5, kl_annealing_epochs=0).fit(waves()).history_
    )
    expected = -(history["log_likelihood"] - 0.5 * history["kl"])
    np.testing.assert_allclose(history["loss"], expected, rtol=1e-5)


def test_the_kl_term_is_whole_once_windows_are() -> None:
    history = tiny(max_epochs=50, kl_weight=0.5).fit(waves()).history_
    warm_up = 42  # 84 of 100 updates
    expected = [0.01] * warm_up + [0.5] * (50 - warm_up)
    assert history["kl_weight"].tolist() == pytest.approx(expected)
    given = tiny(max_epochs=4, kl_weight=0.5, kl_annealing_epochs=2).fit(waves())
    assert given.history_["kl_weight"].tolist() == pytest.approx([0.25, 0.5, 0.5, 0.5])


@pytest.mark.parametrize(
    ("method", "step_size", "shortest"),
    [
        ("rk4", 2.0, 8),
        ("dopri5", 2.0, 8),
        ("midpoint", 2.0, 8 * math.pi),
        ("euler", 2.0, 40 * math.pi),
        ("rk4", 0.5, 4),
    ],
)
def test_the_decoder_starts_with_periods_between_steps_and_window(
    method: str, step_size: float, shortest: float
) -> None:
    parameters: dict[str, Any] = {"method": method, "step_size": step_size}
    settings = LatentODELSTMForecaster(latent_size=9, **parameters)
    torch.manual_seed(0)
    periods = models._periods(settings, span=1000.0)
    places = np.log(np.array(periods) / shortest) / np.log(1000 / shortest)
    assert (np.floor(4 * places) == range(4)).all()
    assert max(models._periods(settings, span=1.0)) <= 2 * shortest
    assert models._periods(settings.set_params(latent_size=1), 1000.0) == []


def hidden_rows(monkeypatch: pytest.MonkeyPatch, y: Any, **settings: Any) -> np.ndarray:
    """Return which rows of windows were hidden in training, (window, row)."""
    found: list[Any] = []
    forward = nn.LatentODE.forward

    def recorded(self: Any, batch: nn.Batch, *others: Any) -> Any:
        found.append(batch.hidden)
        return forward(self, batch, *others)

    with monkeypatch.context() as patch:
        patch.setattr(nn.LatentODE, "forward", recorded)
        sizes = {"window_length": 6, "horizon": 4, "max_epochs": 40, "batch_size": 4}
        tiny(**{**sizes, **settings}).fit(y)
    last = found[-len(found) // 8 :]  # of windows of full length
    return np.array([]) if last[0] is None else torch.cat(last).numpy()


def test_a_fraction_of_windows_hide_first_rows_at_most_a_horizon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    y = waves(pd.Index(range(60)))
    hidden = hidden_rows(monkeypatch, y, backcast_fraction=0.3, thinning=0.0)
    n_first = hidden.argmin(1)
    assert (hidden == (np.arange(6) < n_first[:, None])).all()
    assert set(n_first) == {0, 1, 2, 3, 4}
    assert 0.2 < (n_first > 0).mean() < 0.4
    shares = np.bincount(n_first[n_first > 0], minlength=5)[1:] / (n_first > 0).sum()
    assert (abs(shares - 0.25) < 0.12).all()
    always = hidden_rows(monkeypatch, y, backcast_fraction=1.0, thinning=0.0)
    assert always[:, 0].all()


def test_windows_are_thinned_by_shares_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    y = waves(pd.Index(range(160)))
    parameters: dict[str, Any] = {"window_length": 60, "max_epochs": 30}
    parameters |= {"backcast_fraction": 0.0, "thinning": 0.6}
    shares = hidden_rows(monkeypatch, y, **parameters).mean(axis=1)
    assert 0.25 < shares.mean() < 0.35
    assert shares.max() < 0.75
    for low, high in ((0, 0.2), (0.2, 0.4), (0.4, 0.75)):
        assert 0.2 < ((shares >= low) & (shares < high)).mean() < 0.5


def test_nothing_is_hidden_where_nothing_shall_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    y = waves(pd.Index(range(60)))
    for settings in (
        {"backcast_fraction": 0.0, "thinning": 0.0},
        {"horizon": 0, "thinning": 0.0},
        {"window_length": 1},
    ):
        assert not hidden_rows(monkeypatch, y, **settings).any()


@pytest.mark.parametrize("length", [1, 3])
def test_no_window_hides_all_of_its_rows(
    monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    short = {k: waves(pd.Index(range(length)), k).to_frame() for k in range(9)}
    short[9] = waves(pd.Index(range(6))).to_frame()  # the others are padded
    y = pd.concat(short, names=["k", "t"])
    parameters: dict[str, Any] = {"backcast_fraction": 0.5, "thinning": 0.99}
    hidden = hidden_rows(monkeypatch, y, batch_size=10, **parameters)
    assert hidden[:, length:].any()
    assert (~hidden[:, :length].all(1)).mean() > 0.9 - 1e-9  # but of the longer one
    if length > 1:
        assert hidden[:, :length].mean() > 0.3


def test_an_untrained_decoder_rotates_within_the_span_of_a_window() -> None:
    y = waves(pd.Index(np.arange(100) * 3))
    sizes = {"latent_size": 6, "field_width": 12, "window_length": 20, "horizon": 5}
    field = tiny(max_epochs=1, lr=1e-9, **sizes).fit(y).network_.decoder.vector_field
    slopes: Any = torch.autograd.functional.jacobian(field, torch.zeros(6))
    periods = 2 * math.pi / slopes[[1, 3, 5], [0, 2, 4]]
    assert 4 <= periods[0] < periods[1] < periods[2] <= 24  # of gaps of 3


def test_under_the_last_value_an_untrained_model_forecasts_it() -> None:
    y = channels(uneven_stamps()).cumsum()
    settings: dict[str, Any] = {"normalize": "last", "max_epochs": 1, "lr": 1e-9}
    forecast = tiny(**settings).fit(y).predict([1, 30])
    moves = (y.iloc[-1] - y.iloc[-tiny().window_length :].mean()).abs()
    assert ((forecast - y.iloc[-1]).abs() <= 0.02 * moves).all(axis=None)
    assert ((forecast - y.iloc[-1]).abs() > 0).all(axis=None)  # damped a little


def test_the_clipped_fraction_counts_gradients_over_the_threshold() -> None:
    y = waves()
    all_clipped = tiny(clip_norm=1e-6).fit(y).history_
    none_clipped = tiny(clip_norm=1e6).fit(y).history_
    without = tiny(clip_norm=None).fit(y).history_
    assert all_clipped["clipped_fraction"].tolist() == [1]
    assert none_clipped["clipped_fraction"].tolist() == [0]
    assert without["clipped_fraction"].tolist() == [0]
    np.testing.assert_allclose(without["grad_norm"], all_clipped["grad_norm"])


def test_without_early_stopping_nothing_is_held_out() -> None:
    forecaster = tiny(max_epochs=3).fit(waves())
    assert forecaster.history_["validation_loss"].isna().all()
    assert forecaster.best_epoch_ == 3


@pytest.mark.parametrize("data", [waves(), panel(), panel((5,) * 9)])
def test_early_stopping_restores_the_weights_of_the_best_epoch(data: Any) -> None:
    states = []

    class KeepWeights(Recorder):
        def on_epoch_end(self, forecaster: Any, row: dict[str, float]) -> bool:
            states.append(copy.deepcopy(networks[-1].state_dict()))
            return super().on_epoch_end(forecaster, row)

    networks: list[torch.nn.Module] = []
    recorder = KeepWeights()
    settings = {"max_epochs": 30, "lr": 0.3, "normalize": "series"}
    forecaster = tiny(
        callbacks=[recorder], early_stopping=True, n_iter_no_change=30, **settings
    )
    with pytest.MonkeyPatch.context() as patch:
        from sklode.training.loop import Trainer

        fit = Trainer.fit

        def spy(self: Trainer, *args: Any, **kwargs: Any) -> Trainer:
            networks.append(self.network)
            return fit(self, *args, **kwargs)

        patch.setattr(Trainer, "fit", spy)
        forecaster.fit(data)
    losses = forecaster.history_["validation_loss"]
    assert np.isfinite(losses).all()
    restored = forecaster.network_.state_dict()
    best = states[forecaster.best_epoch_ - 1]
    assert all(torch.equal(restored[name], best[name]) for name in best)
    late = losses.loc[forecaster.best_epoch_ :]
    assert losses[forecaster.best_epoch_] == late.min()


def test_early_stopping_stops_when_nothing_improves() -> None:
    y = pd.Series(np.random.default_rng(0).standard_normal(80))
    settings = {"early_stopping": True, "n_iter_no_change": 2, "tol": 10.0}
    forecaster = tiny(max_epochs=60, kl_annealing_epochs=0, **settings).fit(y)
    assert forecaster.n_epochs_ < 60
    assert len(forecaster.history_) == forecaster.n_epochs_


def test_rows_that_are_held_out_do_not_train_the_network() -> None:
    y = waves(pd.RangeIndex(60))
    other = y.copy()
    other.iloc[-5:] = 9.0
    histories = []
    for data in (y, other):
        settings = {"normalize": None, "early_stopping": True, "max_epochs": 2}
        forecaster = tiny(**settings, validation_fraction=0.1).fit(data)
        histories.append(forecaster.history_.drop(columns="seconds"))
    trained = [h.drop(columns="validation_loss") for h in histories]
    pd.testing.assert_frame_equal(trained[0], trained[1])
    assert (histories[0]["validation_loss"] != histories[1]["validation_loss"]).all()


def test_a_callback_is_called_with_every_row_of_the_history() -> None:
    recorder = Recorder()
    forecaster = tiny(max_epochs=3, callbacks=[recorder]).fit(waves())
    rows = pd.DataFrame(recorder.rows).set_index("epoch")
    pd.testing.assert_frame_equal(rows, forecaster.history_, check_like=True)
    assert all(caller is forecaster for caller in recorder.forecasters)


def test_a_callback_that_returns_true_stops_the_training() -> None:
    first, second = Recorder(stop_at=2), Recorder()
    forecaster = tiny(max_epochs=9, callbacks=(first, second)).fit(waves())
    assert forecaster.n_epochs_ == 2
    assert len(first.rows) == len(second.rows) == 2
    assert np.isfinite(forecaster.predict(STEPS)).all()


def test_callbacks_hear_of_pretrain_and_update_too() -> None:
    recorder = Recorder()
    settings = {"max_epochs": 2, "finetune_epochs": 1, "callbacks": [recorder]}
    forecaster = tiny(**settings).pretrain(panel())
    assert len(recorder.rows) == 2
    y = waves(uneven_stamps())
    forecaster.fit(y[:18])
    assert len(recorder.rows) == 3
    forecaster.update(y[18:])
    assert len(recorder.rows) == 4


def test_verbose_2_prints_a_line_per_epoch(capsys: pytest.CaptureFixture) -> None:
    forecaster = tiny(max_epochs=3, verbose=2).fit(waves())
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    for epoch, line in enumerate(lines, start=1):
        assert f"epoch {epoch}" in line
        assert f"loss {forecaster.history_.loc[epoch, 'loss']:.4g}" in line


def test_verbose_0_prints_nothing(capfd: pytest.CaptureFixture) -> None:
    tiny(max_epochs=2).fit(waves()).predict(STEPS)
    output = capfd.readouterr()
    assert output.out == ""
    assert output.err == ""


def test_verbose_1_shows_the_progress(capfd: pytest.CaptureFixture) -> None:
    tiny(max_epochs=3, verbose=1).fit(waves())
    output = capfd.readouterr()
    shown = output.out + output.err
    assert "3/3" in shown
    assert "loss" in shown


@pytest.mark.parametrize("kind", FORECASTERS)
def test_every_engine_gives_the_same_forecast(kind: type) -> None:
    y = channels()
    y.iloc[4, 0] = np.nan
    eager, auto = (
        tiny(kind, engine=engine, max_epochs=3).fit(y) for engine in ("eager", "auto")
    )
    np.testing.assert_allclose(
        auto.predict(STEPS), eager.predict(STEPS), rtol=0, atol=1e-3
    )
    np.testing.assert_allclose(auto.history_["loss"], eager.history_["loss"], rtol=1e-3)


@pytest.mark.parametrize("kind", FORECASTERS)
@pytest.mark.parametrize("method", ["euler", "midpoint", "rk4", "dopri5"])
def test_solvers_agree_to_their_order(kind: type, method: str) -> None:
    y = waves()
    step = 1 / 16 if method == "euler" else 1 / 4  # all start with the same periods
    fine = tiny(kind, step_size=step).fit(y).predict(STEPS)
    settings = {"method": method, "step_size": step, "rtol": 1e-5, "atol": 1e-6}
    forecast = tiny(kind, **settings).fit(y).predict(STEPS)
    # of one epoch's training and the forecast together
    atol = {"euler": 0.05, "midpoint": 5e-3, "rk4": 1e-9, "dopri5": 5e-3}[method]
    np.testing.assert_allclose(forecast, fine, rtol=0, atol=atol)
    if method != "rk4":
        assert (forecast != fine).any()


@pytest.mark.parametrize("kind", FORECASTERS)
@pytest.mark.parametrize("method", ["rk4", "dopri5"])
def test_the_adjoint_gives_the_forecast_of_backpropagation(
    kind: type, method: str
) -> None:
    y = waves(pd.Index(np.arange(12) ** 2))
    settings = {"method": method, "step_size": 0.25, "rtol": 1e-6, "atol": 1e-7}
    forecasts = [
        tiny(kind, adjoint=adjoint, max_epochs=2, **settings).fit(y).predict(STEPS)
        for adjoint in (False, True)
    ]
    np.testing.assert_allclose(forecasts[1], forecasts[0], rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    "settings",
    [
        {"activation": "elu"},
        {"activation": "softplus"},
        {"field_depth": 3},
        {"optimizer": "sgd"},
        {"optimizer": "adamw", "weight_decay": 0.5},
        {"kl_weight": 0.0},
        {"observation_noise": 2.0},
        {"clip_norm": 1e-3},
        {"clip_norm": "auto"},
        {"batch_size": 3},
        {"horizon": 0},
        {"window_length": 4},
        {"method": "euler"},
        {"lr": 0.05},
        {"normalize": "last"},
    ],
    ids=str,
)
def test_this_parameter_changes_the_forecast(settings: dict[str, Any]) -> None:
    y = waves()
    common = {"normalize": "series", "max_epochs": 8}
    expected = tiny(**common).fit(y).predict(STEPS)
    forecast = tiny(**{**common, **settings}).fit(y).predict(STEPS)
    assert np.abs(forecast - expected).min() > 1e-7


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu")])
def test_a_device_is_a_name_or_a_torch_device(device: Any) -> None:
    y = waves()
    forecast = tiny(device=device).fit(y).predict(STEPS)
    pd.testing.assert_series_equal(forecast, tiny(device="cpu").fit(y).predict(STEPS))


def test_fit_leaves_the_number_of_threads_alone_even_when_it_raises() -> None:
    before = torch.get_num_threads()
    tiny().fit(waves())
    assert torch.get_num_threads() == before

    class Stopped(Exception):
        pass

    class Raising:
        def on_epoch_end(self, forecaster: object, row: object) -> None:
            raise Stopped

    with pytest.raises(Stopped):
        tiny(callbacks=[Raising()]).fit(waves())
    assert torch.get_num_threads() == before


def test_a_progress_bar_without_tqdm_names_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(ImportError, match=r"tqdm.*pip install 'sklode\[progress\]'"):
        tiny(verbose=1).fit(waves())
