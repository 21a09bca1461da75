"""A guarded training: what is learned is shipped only where it beats the level."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from sklode.training import fitting, guard
from tests.series import channels, panel, tiny, uneven_stamps, waves

LEVELS = pytest.mark.parametrize("normalize", ["series", "window", "last", "linear"])
STEPS = [1, 2, 5]
LEARNS: dict[str, Any] = {
    "normalize": "series",
    "window_length": 12,
    "horizon": 4,
    "hidden_size": 8,
    "latent_size": 4,
    "field_width": 8,
    "max_epochs": 70,
    "lr": 0.03,
}


def noise(n: int = 300, seed: int = 0) -> pd.Series:
    """Return noise around 5 with a standard deviation of 2."""
    values = 5 + 2 * np.random.default_rng(seed).standard_normal(n)
    return pd.Series(values, uneven_stamps(n), name="y")


def sine(n: int = 240) -> pd.Series:
    rng = np.random.default_rng(0)
    values = np.sin(np.arange(n) / 2) + 0.05 * rng.standard_normal(n)
    return pd.Series(values, name="y")


def level_ahead(forecaster: Any, y: pd.Series, steps: list[int]) -> np.ndarray:
    """Return what the anchor alone says of the steps after the last window."""
    window = y.iloc[-forecaster.window_length :]
    times = (window.index - window.index[0]) / forecaster.time_unit_
    values = (window.to_numpy() - forecaster.location_) / forecaster.scale_
    seen, x = torch.tensor([times]).float(), torch.tensor(values).float()
    x = x.view(1, -1, 1)
    with torch.no_grad():
        level = forecaster.network_.anchor(seen, x, torch.ones_like(x).bool())
        asked = seen[:, -1:] + torch.tensor([steps])
        ahead = level.at(asked).numpy()[0, :, 0]
    return ahead * forecaster.scale_ + forecaster.location_


@LEVELS
def test_of_noise_the_forecast_is_the_level(normalize: str) -> None:
    y = noise()
    settings: dict[str, Any] = {"normalize": normalize, "max_epochs": 8, "lr": 0.02}
    forecaster = tiny(guard=True, **settings).fit(y)
    assert forecaster.best_epoch_ == 0
    assert forecaster.n_epochs_ == len(forecaster.history_) == 8  # of the trial
    forecast = forecaster.predict(STEPS)
    expected = level_ahead(forecaster, y, STEPS)
    np.testing.assert_allclose(forecast, expected, rtol=0, atol=1e-4)
    paths = forecaster.sample(STEPS, n_samples=3, noise=False)
    spread = paths.groupby(level=-1).agg(np.ptp).max(axis=None)
    assert spread < 1e-5  # z0 says nothing
    trained = tiny(**settings).fit(y).predict(STEPS)
    assert (trained - forecast).abs().max() > 0.01


def test_the_level_has_the_noise_of_its_errors_in_each_channel() -> None:
    y = pd.DataFrame({"a": noise(), "b": 100 * noise(seed=1)})
    settings: dict[str, Any] = {"normalize": "series", "max_epochs": 4}
    forecaster = tiny(guard=True, n_samples=400, **settings).fit(y)
    assert forecaster.best_epoch_ == 0
    scale = (
        forecaster.network_.emission.noise_scale.detach().numpy() * forecaster.scale_
    )
    np.testing.assert_allclose(scale, y.std(), rtol=0.05)
    interval = forecaster.predict_interval([1, 20], coverage=0.9)
    widths = interval.to_numpy().reshape(2, 2, 2) @ [-1, 1]
    np.testing.assert_allclose(widths, [2 * 1.645 * y.std()] * 2, rtol=0.2)
    given = tiny(guard=True, observation_noise=0.7, **settings).fit(y)
    assert given.best_epoch_ == 0
    assert given.network_.emission.noise_scale.tolist() == pytest.approx([0.7, 0.7])


def assert_same_fit(first: Any, second: Any) -> None:
    histories = [f.history_.drop(columns="seconds") for f in (first, second)]
    pd.testing.assert_frame_equal(*histories, check_exact=True)
    answers = [f.predict_quantiles(STEPS, alpha=[0.1, 0.9]) for f in (first, second)]
    pd.testing.assert_frame_equal(*answers, check_exact=True)


def test_what_can_be_learned_is_learned_as_without_a_guard() -> None:
    guarded = tiny(guard=True, **LEARNS).fit(sine())
    assert guarded.best_epoch_ == LEARNS["max_epochs"]
    assert_same_fit(guarded, tiny(**LEARNS).fit(sine()))


@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("y", [waves(), panel(), panel((8,) * 9)], ids=[1, 3, 9])
def test_a_trial_leaves_no_trace_in_what_is_drawn_afterwards(
    monkeypatch: pytest.MonkeyPatch, y: Any, early_stopping: bool
) -> None:
    monkeypatch.setattr(guard, "gains", lambda *_: np.ones(4))
    settings: dict[str, Any] = {"max_epochs": 3, "early_stopping": early_stopping}
    guarded = tiny(guard=True, **settings).fit(y)
    assert guarded.best_epoch_ > 0
    assert_same_fit(guarded, tiny(**settings).fit(y))


@pytest.mark.parametrize(
    ("fraction", "trial", "ends"),
    [
        (None, [16, 20 + 32], [20, 20 + 40]),
        (0.1, [16, 20 + 32], [18, 20 + 36]),
        (0.5, [10, 20 + 20], [10, 20 + 20]),
    ],
)
def test_the_trial_is_held_out_from_training_and_no_longer_than_that(
    monkeypatch: pytest.MonkeyPatch,
    fraction: float | None,
    trial: list[int],
    ends: list[int],
) -> None:
    cuts: list[list[int]] = []
    train = fitting._train

    def recorded(model: Any, windows: Any, cut: np.ndarray, *others: Any) -> None:
        cuts.append(cut.tolist())
        train(model, windows, cut, *others)

    monkeypatch.setattr(fitting, "_train", recorded)
    monkeypatch.setattr(guard, "gains", lambda *_: np.ones(4))
    settings: dict[str, Any] = {"early_stopping": fraction is not None}
    if fraction is not None:
        settings["validation_fraction"] = fraction
    tiny(guard=True, **settings).fit(panel((20, 40)))
    assert cuts == [trial, ends]


@pytest.mark.parametrize(
    ("gains", "is_trained"),
    [
        ([1.0, 1.0, 1.0, 1.0], True),
        ([3.0, -1.0, 3.0, -1.0], False),  # 1, give or take 1.15
        ([4.6, 2.6, 4.6, 2.6], True),  # 3.6, give or take 0.58: 6.2 of them
        ([2.6, 0.6, 2.6, 0.6], False),  # 2.8 of them; of four, 3.2 are needed
        ([3.0, 1.0, 3.0, 1.0], True),  # 3.5
        ([3.0, -1.0] * 9, False),  # 2.06 of 18 blocks: 2.11 are needed
        ([3.0, -1.0] * 10, True),  # 2.18 of 20: 2.09
        ([1.0, 1.0, 1.0], False),
        ([0.0] * 9, False),
        ([-1.0] * 9, False),
        ([], False),
    ],
    ids=str,
)
def test_the_gain_must_be_significant_over_four_blocks_at_least(
    monkeypatch: pytest.MonkeyPatch, gains: list[float], is_trained: bool
) -> None:
    monkeypatch.setattr(guard, "gains", lambda *_: np.array(gains))
    forecaster = tiny(guard=True, max_epochs=2).fit(waves())
    assert forecaster.best_epoch_ == (2 if is_trained else 0)


def test_gains_are_of_squared_errors_in_blocks_after_the_first_rows() -> None:
    y = channels(pd.RangeIndex(40))
    y.iloc[31, 0] = y.iloc[33, 1] = np.nan
    forecaster = tiny(normalize="series", horizon=3, lr=1e-9).fit(y)
    model = forecaster._model
    model.network.emission.start_silent()
    with torch.no_grad():
        model.network.emission.network[2].bias.copy_(torch.tensor([0.5, -1.0]))
    windows = model.windows(forecaster._history.observations)
    found = guard.gains(model.network, model.network, windows, np.array([30]))
    x = (y.to_numpy() - forecaster.location_) / forecaster.scale_
    better = x**2 - (x - [0.5, -1.0]) ** 2
    # the tenth row after the cut has no block of three
    expected = [np.nanmean(better[k : k + 3]) for k in (30, 33, 36)]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_blocks_of_series_held_out_as_a_whole_follow_what_is_seen() -> None:
    y = panel((11,) * 9)
    forecaster = tiny(window_length=6, horizon=5).fit(y)
    windows = forecaster._model.windows(forecaster._history.observations)
    cut = windows.bounds[1:].copy()
    cut[[2, 7]] = windows.bounds[:-1][[2, 7]]
    network = forecaster.network_
    assert len(guard.gains(network, network, windows, cut)) == 2


def test_gains_are_over_the_level_before_training() -> None:
    forecaster = tiny(normalize="last", max_epochs=1).fit(waves())
    model = forecaster._model
    windows = model.windows(forecaster._history.observations)
    model.network.emission.start_silent()
    trial = copy.deepcopy(model)
    with torch.no_grad():  # a trial that has learned to go to the window's mean at once
        trial.network.anchor.raw_damping.fill_(9.0)
    cut = np.array([16])
    assert (guard.gains(model.network, model.network, windows, cut) == 0).all()
    gains = guard.gains(model.network, trial.network, windows, cut)
    np.testing.assert_allclose(
        gains, -guard.gains(trial.network, model.network, windows, cut)
    )
    assert np.abs(gains).min() > 1e-3


def test_a_network_that_fails_gains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    forecaster = tiny().fit(waves())
    model = forecaster._model
    windows = model.windows(forecaster._history.observations)
    cut = np.array([16])
    assert len(guard.gains(model.network, model.network, windows, cut)) == 4
    with torch.no_grad():
        model.network.emission.network[2].bias.fill_(torch.nan)
    assert len(guard.gains(model.network, model.network, windows, cut)) == 0


def test_too_few_blocks_ship_the_level() -> None:
    settings: dict[str, Any] = {**LEARNS, "horizon": 13}
    forecaster = tiny(guard=True, **settings).fit(sine())  # 48 rows: three blocks
    assert forecaster.best_epoch_ == 0
    assert forecaster.predict(STEPS).tolist() == pytest.approx([sine().mean()] * 3)


def test_a_guard_without_a_horizon_names_the_remedy() -> None:
    message = r"guard=True tries .* got horizon=0. Raise horizon, or use guard=False"
    with pytest.raises(ValueError, match=message):
        tiny(guard=True, horizon=0).fit(waves())


def test_a_series_within_one_window_is_forecast_by_the_level() -> None:
    y = noise(30)
    settings: dict[str, Any] = {"normalize": "series", "n_samples": 400}
    forecaster = tiny(guard=True, window_length=50, horizon=7, **settings).fit(y)
    assert forecaster.best_epoch_ == 0
    assert forecaster.predict(STEPS).tolist() == pytest.approx([y.mean()] * 3)
    # nothing is known of its errors but the spread of y
    assert forecaster.network_.emission.noise_scale.item() == pytest.approx(1.0)


def test_a_channel_without_errors_has_the_spread_of_what_was_seen() -> None:
    y = channels(pd.RangeIndex(60))
    y.iloc[6:, 1] = np.nan
    forecaster = tiny(guard=True, normalize="series", horizon=7).fit(y)
    assert forecaster.best_epoch_ == 0
    assert forecaster.network_.emission.noise_scale[1].item() == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(4))
def test_few_series_leave_some_to_the_trial(seed: int) -> None:
    # both the trial and early stopping hold out whole series
    settings: dict[str, Any] = {"early_stopping": True, "validation_fraction": 0.5}
    forecaster = tiny(guard=True, random_state=seed, **settings).fit(panel((8,) * 3))
    assert forecaster.best_epoch_ == 0
    assert np.isfinite(forecaster.predict([1])).all(axis=None)


def test_earlier_weights_are_trained_on_without_a_trial() -> None:
    y, more = noise(60)[:50], noise(60)[50:]
    settings: dict[str, Any] = {"max_epochs": 3, "horizon": 15}  # too long to trust
    forecaster = tiny(guard=True, finetune_epochs=2, **settings).fit(y)
    assert forecaster.best_epoch_ == 0
    assert forecaster.update(more).best_epoch_ == 2
    again = tiny(guard=True, warm_start=True, **settings).fit(y)
    assert again.best_epoch_ == 0
    assert again.fit(y).best_epoch_ == 3
    pretrained = tiny(guard=True, finetune_epochs=2, **settings)
    pretrained.pretrain(pd.concat({"a": y.to_frame()}, names=["series", "when"]))
    assert pretrained.pretrained_.best_epoch == 0
    assert pretrained.fit(y).best_epoch_ == 2


def test_an_update_of_the_history_alone_keeps_the_level() -> None:
    y = noise(80)
    forecaster = tiny(guard=True, normalize="last", horizon=15).fit(y[:60])
    assert forecaster.best_epoch_ == 0
    forecaster.update(y[60:], update_params=False)
    expected = level_ahead(forecaster, y, STEPS)
    np.testing.assert_allclose(forecaster.predict(STEPS), expected, rtol=0, atol=1e-4)


def test_callbacks_hear_of_the_training_that_counts() -> None:
    heard: list[int] = []

    class Listener:
        def on_epoch_end(self, forecaster: Any, row: dict[str, float]) -> None:
            heard.append(int(row["epoch"]))

    settings: dict[str, Any] = {"guard": True, "callbacks": [Listener()]}
    tiny(horizon=15, **settings).fit(noise(60))
    assert heard == []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guard, "gains", lambda *_: np.ones(4))
        tiny(max_epochs=2, **settings).fit(noise(60))
    assert heard == [1, 2]


def test_a_guard_is_a_parameter_like_any_other() -> None:
    forecaster = tiny(guard=True)
    assert forecaster.get_params()["guard"] is True
    assert clone(forecaster).guard is True
    assert forecaster.clone().set_params(guard=False).guard is False
    assert type(forecaster)().guard is False
    y = noise(60)
    twice = [tiny(guard=True).fit(y).predict_interval(STEPS) for _ in range(2)]
    pd.testing.assert_frame_equal(*twice, check_exact=True)
