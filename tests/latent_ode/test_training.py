"""What is settled before a training: sizes, what is held out and hidden, how long."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from sklode.data.observations import Observations
from sklode.data.scaled_rows import ScaledRows
from sklode.data.scaling import Units
from sklode.latent_ode.network import Batch, LatentODE
from sklode.latent_ode.training import default_lengths, hidden_rows
from sklode.latent_ode.windows import WindowSet
from tests.series import channels, panel, tiny, uneven_stamps, waves
from tests.training.trainees import planned

# Sizes


def test_windows_grow_over_84_percent_of_the_epochs_and_hide_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches: list[Batch] = []
    forward = LatentODE.forward

    def recorded(self: Any, batch: Batch, *others: Any) -> Any:
        if others:  # a step, which has noise
            batches.append(batch)
        return forward(self, batch, *others)

    monkeypatch.setattr(LatentODE, "forward", recorded)
    sizes = {"window_length": 8, "horizon": 4, "max_epochs": 25}
    history = tiny(**sizes, kl_weight=0.5).fit(waves()).history_
    spans = [batch.times.shape[1] for batch in batches[:25]]
    assert spans == [2] * 9 + [3] * 8 + [6] * 4 + [12] * 4
    assert history["kl_weight"].tolist() == pytest.approx([0.01] * 21 + [0.5] * 4)
    hidden = [batch.hidden for batch in batches[:25]]
    assert sum(int(part.sum()) for part in hidden if part is not None) > 100
    batches.clear()
    tiny(thinning=0.0).fit(waves())
    assert all(batch.hidden is None for batch in batches)


@pytest.mark.parametrize(
    ("method", "step_size", "shortest"),
    [("dopri5", 2.0, 8), ("euler", 0.2, 4 * math.pi), ("rk4", 0.5, 4)],
)
def test_an_untrained_decoder_rotates_with_periods_between_steps_and_window(
    method: str, step_size: float, shortest: float
) -> None:
    y = waves(pd.Index(np.arange(200) * 3))  # of gaps of 3
    sizes = {"latent_size": 6, "field_width": 12, "window_length": 80, "horizon": 5}
    forecaster = tiny(**sizes, method=method, step_size=step_size)
    field = planned(forecaster, y).model.network.decoder.vector_field
    slopes: Any = torch.autograd.functional.jacobian(field, torch.zeros(6))
    periods = 2 * math.pi / slopes[[1, 3, 5], [0, 2, 4]].numpy()
    places = np.log(periods / shortest) / np.log(84 / shortest)
    assert (np.floor(3 * places + 1e-6) == range(3)).all()


def test_lengths_that_are_given_are_kept() -> None:
    lengths = np.array([30])
    assert default_lengths(lengths, 50, 7, None) == (50, 7)
    assert default_lengths(lengths, 8, 0, 12) == (8, 0)
    assert default_lengths(lengths, 8, None, 12) == (8, 12)
    assert default_lengths(lengths, None, 3, 12)[1] == 3


# What is hidden from the encoder


def hidden(n_rows: int, thinning: float, window_length: int = 6) -> np.ndarray:
    """Return which rows are hidden of 4000 windows with a horizon of 4."""
    y = waves(pd.RangeIndex(n_rows))
    seen = Observations.from_frame(y.to_frame())
    rows = ScaledRows(seen, Units.of(seen, 1.0))
    windows = WindowSet(rows, window_length, 4, np.array([True]))
    which, generator = np.arange(4000) % len(windows), torch.Generator().manual_seed(0)
    found = hidden_rows(windows, which, thinning, generator)
    assert found is not None
    return found.numpy()


def test_thinning_hides_a_share_of_each_window_and_first_rows_of_some() -> None:
    shares = hidden(60, 0.3).mean(axis=0)
    random = shares[4:].mean()
    first = (shares - random) / (1 - random)
    expected = [0.3, 0.225, 0.15, 0.075, 0, 0]  # one to four rows, alike often
    np.testing.assert_allclose(first, expected, rtol=0, atol=0.03)
    shares = hidden(160, 0.6, window_length=60)[:, 4:].mean(axis=1)
    assert 0.28 < shares.mean() < 0.32
    for low, high in ((0, 0.2), (0.2, 0.4), (0.4, 0.85)):
        assert 0.25 < ((shares >= low) & (shares < high)).mean() < 0.42
    for n_rows, share in ((1, 0.0), (3, 0.5)):  # a row is always left
        found = hidden(n_rows, 0.99)[:, :n_rows]
        assert not found.all(1).any()
        assert found.mean() == pytest.approx(share, abs=0.1)


# What is held out


@pytest.mark.parametrize("y", [waves(), panel(), panel((5,) * 9)], ids=[1, 3, 9])
def test_early_stopping_keeps_the_best_epoch_after_the_warm_up(y: Any) -> None:
    settings = {"max_epochs": 12, "lr": 0.3, "model": "paper"}
    stopped = tiny(early_stopping=True, **settings).fit(y)
    losses = stopped.history_["validation_loss"]
    assert np.isfinite(losses).all()
    assert stopped.best_epoch_ == losses[10:].idxmin()


@pytest.mark.parametrize(
    ("y", "n_held_out"),
    [(waves(uneven_stamps(60)).to_frame(), 6), (panel((8,) * 9), 8)],
    ids=["its end", "one of many"],
)
def test_rows_that_are_held_out_teach_neither_network_nor_units(
    y: pd.DataFrame, n_held_out: int
) -> None:
    X = pd.DataFrame({"u": np.cos(np.arange(len(y)))}, y.index)
    settings: dict[str, Any] = {"early_stopping": True, "model": "paper"}
    run = planned(tiny(**settings), y, X=X)
    lengths = np.diff(run.windows.bounds)
    held_out = np.arange(len(y)) >= np.repeat(run.cut, lengths)
    assert held_out.sum() == n_held_out
    other, other_X = y.copy(), X.copy()
    other.loc[held_out] = 10 * other.loc[held_out] + 5
    other_X.loc[held_out] = 7.0
    one, moved = (
        tiny(max_epochs=2, **settings).fit(data, X=controls)
        for data, controls in ((y, X), (other, other_X))
    )
    for name in ("location_", "scale_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(moved, name))
    apart = ["validation_loss", "seconds"]
    pd.testing.assert_frame_equal(
        one.history_.drop(columns=apart), moved.history_.drop(columns=apart)
    )
    assert (one.history_[apart[0]] != moved.history_[apart[0]]).all()
    # without early stopping they are rows like any other
    settings["early_stopping"] = False
    scales = [tiny(**settings).fit(data, X=X).scale_ for data in (y, other)]
    assert scales[0] != scales[1]


@pytest.mark.parametrize(
    ("lengths", "cuts"),
    [
        ((20,) * 10, [18] * 10),
        ((8,) * 10, [0] + [8] * 9),  # one series in ten
        ((9,) * 2, [8] * 2),  # too few to hold out one
        ((8,) * 2, [8] * 2),
    ],
    ids=str,
)
def test_series_are_held_out_where_their_ends_would_take_most_windows(
    lengths: tuple[int, ...], cuts: list[int]
) -> None:
    parts = {k: waves(pd.RangeIndex(n)).to_frame() for k, n in enumerate(lengths)}
    run = planned(tiny(early_stopping=True), pd.concat(parts, names=["k", "t"]))
    assert sorted(run.cut - run.windows.bounds[:-1]) == cuts


def test_held_out_rows_that_say_nothing_of_the_network_validate_nothing() -> None:
    y = channels(uneven_stamps(60))
    y["a"] = 4.0  # which is forecast as it is, whatever is learned
    y.loc[y.index[50:], "b"] = np.nan
    forecaster = tiny(early_stopping=True, max_epochs=3).fit(y)
    assert forecaster.history_["validation_loss"].isna().all()
    assert forecaster.best_epoch_ == 3
