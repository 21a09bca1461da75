"""A guarded training: what is learned is shipped only where it beats the level."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from sklode.training import guard
from sklode.training.plan import Run
from tests.series import channels, panel, tiny, uneven_stamps, waves

STEPS = [1, 2, 5]


def noise(n: int = 300, seed: int = 0) -> pd.Series:
    """Return noise around 5 with a standard deviation of 2."""
    values = 5 + 2 * np.random.default_rng(seed).standard_normal(n)
    return pd.Series(values, uneven_stamps(n), name="y")


def level_ahead(forecaster: Any, y: pd.Series) -> np.ndarray:
    """Return what the anchor alone says of the steps after the last window."""
    window = y.iloc[-forecaster.window_length :]
    times = (window.index - window.index[0]) / forecaster.time_unit_
    values = (window.to_numpy() - forecaster.location_) / forecaster.scale_
    seen, x = torch.tensor([times]).float(), torch.tensor(values).float()
    x = x.view(1, -1, 1)
    with torch.no_grad():
        level = forecaster.network_.anchor(seen, x, torch.ones_like(x).bool())
        ahead = level.at(seen[:, -1:] + torch.tensor([STEPS])).numpy()[0, :, 0]
    return ahead * forecaster.scale_ + forecaster.location_


@pytest.mark.slow
@pytest.mark.parametrize("level", ["series", "window", "last"])
def test_of_noise_the_forecast_is_the_level(level: str) -> None:
    y = noise(120)
    settings: dict[str, Any] = {"level": level, "max_epochs": 4, "lr": 0.05}
    forecaster = tiny(guard=True, **settings).fit(y)
    assert forecaster.best_epoch_ == 0
    assert forecaster.n_epochs_ == len(forecaster.history_) == 4  # of the trial
    forecast, expected = forecaster.predict(STEPS), level_ahead(forecaster, y)
    np.testing.assert_allclose(forecast, expected, rtol=0, atol=1e-4)
    paths = forecaster.sample(STEPS, n_samples=3, noise=False)
    spread = paths.groupby(level=-1).agg(np.ptp).max(axis=None)
    assert spread < 1e-5  # z0 says nothing
    trained = tiny(**settings).fit(y).predict(STEPS)
    assert (trained - forecast).abs().max() > 0.01


def test_the_level_has_the_noise_of_its_errors_in_each_channel() -> None:
    y = pd.DataFrame({"a": noise(), "b": 100 * noise(seed=1), "c": noise()})
    y.iloc[6:, 2] = np.nan  # which has no errors
    settings: dict[str, Any] = {"level": "series", "guard": True}
    forecaster = tiny(n_samples=400, **settings).fit(y)
    assert forecaster.best_epoch_ == 0
    scale = forecaster.network_.emission.noise_scale.detach().numpy()
    assert scale[2] == pytest.approx(1.0)  # the spread of what was seen
    scale = (scale * forecaster.scale_)[:2]
    np.testing.assert_allclose(scale, y.std()[:2], rtol=0.05)
    interval = forecaster.predict_interval([1, 20], coverage=0.9)
    widths = interval.to_numpy().reshape(2, 3, 2)[:, :2] @ [-1, 1]
    np.testing.assert_allclose(widths, [2 * 1.645 * y.std()[:2]] * 2, rtol=0.2)
    given = tiny(observation_noise=0.7, **settings).fit(y)
    assert given.network_.emission.noise_scale.tolist() == pytest.approx([0.7] * 3)


def assert_same_fit(first: Any, second: Any) -> None:
    assert first.best_epoch_ == second.best_epoch_ > 0
    histories = [f.history_.drop(columns="seconds") for f in (first, second)]
    pd.testing.assert_frame_equal(*histories, check_exact=True)
    answers = [f.predict_quantiles(STEPS, alpha=[0.1, 0.9]) for f in (first, second)]
    pd.testing.assert_frame_equal(*answers, check_exact=True)


@pytest.mark.slow
def test_what_can_be_learned_is_learned_as_without_a_guard() -> None:
    rng, rows = np.random.default_rng(0), np.arange(120)
    y = pd.Series(np.sin(rows / 2) + 0.05 * rng.standard_normal(120), name="y")
    sizes = {"window_length": 12, "horizon": 4, "hidden_size": 8, "latent_size": 4}
    sizes |= {"field_width": 8, "emission_width": 16, "batch_size": 16}
    settings: dict[str, Any] = {"lr": 0.02, "max_epochs": 100, "level": "series"}
    settings |= sizes
    assert_same_fit(tiny(guard=True, **settings).fit(y), tiny(**settings).fit(y))


@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("lengths", [(24,), (20, 40), (8,) * 9])
def test_a_trial_is_held_out_from_and_leaves_no_trace(
    monkeypatch: pytest.MonkeyPatch, lengths: tuple[int, ...], early_stopping: bool
) -> None:
    cuts: list[np.ndarray] = []
    trained = Run._trained

    def recorded(self: Run, model: Any, cut: np.ndarray, *others: Any, **k: Any) -> Any:
        cuts.append(cut - self.windows.bounds[:-1])
        return trained(self, model, cut, *others, **k)

    y = panel(lengths) if len(lengths) > 1 else waves()
    settings: dict[str, Any] = {"max_epochs": 2, "early_stopping": early_stopping}
    expected = tiny(**settings).fit(y)
    monkeypatch.setattr(Run, "_trained", recorded)
    monkeypatch.setattr(guard, "gains", lambda *_: np.ones(4))
    heard: list[int] = []

    class Listener:
        def on_epoch_end(self, forecaster: Any, row: dict[str, float]) -> None:
            heard.append(int(row["epoch"]))

    guarded = tiny(guard=True, callbacks=[Listener()], **settings).fit(y)
    assert_same_fit(guarded, expected)
    assert heard == [1, 2]  # of the training that counts
    trial, whole = cuts
    share = 0.1 if early_stopping else 0.0
    if len(lengths) == 9:  # whole series are held out
        assert sorted(whole) == [0] * early_stopping + [8] * (9 - early_stopping)
        assert sorted(trial)[:2] == [0, 0]
    else:
        assert trial.tolist() == [n - round(0.2 * n) for n in lengths]
        assert whole.tolist() == [n - round(share * n) for n in lengths]


@pytest.mark.parametrize(
    ("gains", "is_proved"),
    [
        ([1.0] * 4, True),
        ([3.0, -1.0] * 2, False),  # 1, give or take 1.15
        ([4.6, 2.6] * 2, True),  # 3.6, give or take 0.58: 6.2 of them
        ([2.6, 0.6] * 2, False),  # 2.8 of them; of four, 3.2 are needed
        ([3.0, 1.0] * 2, True),  # 3.5
        ([3.0, -1.0] * 9, False),  # 2.06 of 18 blocks: 2.11 are needed
        ([3.0, -1.0] * 10, True),  # 2.18 of 20: 2.09
        ([1.0] * 3, False),
        ([0.0] * 9, False),
        ([-1.0] * 9, False),
        ([], False),
    ],
    ids=str,
)
def test_the_gain_must_be_significant_over_four_blocks_at_least(
    gains: list[float], is_proved: bool
) -> None:
    assert guard.is_proved(np.array(gains)) is is_proved


def test_gains_are_of_squared_errors_in_blocks_after_the_first_rows() -> None:
    y = channels(pd.RangeIndex(40))
    y.iloc[31, 0] = y.iloc[33, 1] = np.nan
    forecaster = tiny(level="series", horizon=3, lr=1e-9).fit(y)
    network, trial = forecaster.network_, copy.deepcopy(forecaster.network_)
    trial.emission.start_silent()
    bias: Any = trial.emission.network[2].bias
    bias.data[:] = torch.tensor([0.5, -1.0])
    windows = forecaster._model.windows(forecaster._history.observations)
    cut = np.array([30])
    found = guard.gains(network, trial, windows, cut)
    x = (y.to_numpy() - forecaster.location_) / forecaster.scale_
    better = x**2 - (x - [0.5, -1.0]) ** 2
    # the tenth row after the cut has no block of three
    expected = [np.nanmean(better[k : k + 3]) for k in (30, 33, 36)]
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    bias.data[:] = torch.nan  # a network that fails gains nothing
    assert len(guard.gains(network, trial, windows, cut)) == 0
    # of series held out as a whole, blocks follow what is seen
    forecaster = tiny(horizon=5).fit(panel((11,) * 9))
    windows = forecaster._model.windows(forecaster._history.observations)
    cut = windows.bounds[1:].copy()
    cut[[2, 7]] = windows.bounds[:-1][[2, 7]]
    network = forecaster.network_
    assert len(guard.gains(network, network, windows, cut)) == 2


def test_a_guard_without_a_horizon_names_the_remedy() -> None:
    message = r"guard=True tries .* got horizon=0. Raise horizon, or use guard=False"
    with pytest.raises(ValueError, match=message):
        tiny(guard=True, horizon=0).fit(waves())


def test_earlier_weights_are_trained_on_without_a_trial() -> None:
    y = noise(60)
    settings: dict[str, Any] = {"max_epochs": 2, "horizon": 15}  # too long to trust
    again = tiny(guard=True, warm_start=True, **settings).fit(y)
    assert again.best_epoch_ == 0
    assert again.fit(y).best_epoch_ == 2
    family = pd.concat({"a": y.to_frame()}, names=["series", "when"])
    pretrained = tiny(guard=True, finetune_epochs=3, **settings).pretrain(family)
    assert pretrained.pretrained_.best_epoch == 0
    assert pretrained.fit(y).best_epoch_ == 3
