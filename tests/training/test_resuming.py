"""A training that was stopped goes on as if it had not been."""

from __future__ import annotations

import copy
import functools
import pickle
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sktime.exceptions import NotFittedError

from sklode import LatentODERNNForecaster
from sklode.training import guard, plan
from sklode.training.descent import Descent
from sklode.training.loop import Trainer
from tests.series import FORECASTERS, panel, tiny, uneven_stamps, waves
from tests.training.trainees import assert_kept

N, HALF = 6, 3
"""Epochs, of three batches each, and those before the training stops."""


@pytest.fixture(autouse=True)
def _windows_grow_in_both_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_WARM_UP_UPDATES", 13)


def small(kind: Any = LatentODERNNForecaster, **settings: Any) -> Any:
    settings = {"max_epochs": N, "batch_size": 16, "warm_start": True} | settings
    return tiny(kind, **settings)


Y = waves(uneven_stamps(40))
U = pd.DataFrame({"u": np.cos(np.arange(40.0))}, Y.index)


class At:
    """Note the epochs that are trained; do something after one of them."""

    def __init__(self, epoch: int = HALF, act: Any = lambda _: True) -> None:
        self.epoch, self.act = epoch, act
        self.epochs: list[int] = []
        self.found: Any = None

    def on_epoch_end(self, forecaster: Any, row: dict[str, float]) -> bool:
        self.epochs.append(int(row["epoch"]))
        if row["epoch"] != self.epoch:
            return False
        if isinstance(self.act, type):
            raise self.act
        self.found = self.act(forecaster)
        return self.found is True


@functools.cache
def default_whole(**settings: Any) -> Any:
    return small(**settings).fit(Y)


def stopped(y: Any = Y, X: Any = None, **settings: Any) -> Any:
    """Fit; the training is stopped after half of the epochs."""
    forecaster = small(callbacks=[At()], **settings).fit(y, X=X)
    assert forecaster.n_epochs_ == HALF
    forecaster.callbacks = None
    return forecaster


def resumed(forecaster: Any, y: Any = Y, X: Any = None, first: int = HALF + 1) -> Any:
    """Fit again, which has to go on at an epoch: one begun anew may be equal, too."""
    heard = At(0)
    forecaster.callbacks = [heard]
    forecaster.fit(y, X=X)
    assert heard.epochs == list(range(first, forecaster.n_epochs_ + 1))
    return forecaster


def assert_equal(one: Any, other: Any, fh: Any = (-3, 1, 2), X: Any = None) -> None:
    """Check that trainings and forecasts are the same, bit for bit."""
    histories = [f.history_.drop(columns="seconds") for f in (one, other)]
    pd.testing.assert_frame_equal(*histories, check_exact=True)
    assert one.best_epoch_ == other.best_epoch_
    networks = one.network_.state_dict(), other.network_.state_dict()
    for name, weights in networks[0].items():
        assert torch.equal(weights, networks[1][name]), name
    for ask in ("predict", "predict_interval", "sample"):
        found, expected = (np.asarray(getattr(f, ask)(fh, X=X)) for f in (one, other))
        np.testing.assert_array_equal(found, expected, err_msg=ask)


@pytest.mark.parametrize(
    "settings",
    [
        *({"kind": kind} for kind in FORECASTERS),
        {"weight_decay": 0.5, "clip_norm": "auto"},
        {"early_stopping": True, "thinning": 0.0},
        {"level": "last", "random_state": 3},
    ],
    ids=str,
)
def test_a_stopped_training_goes_on_as_if_it_had_not_been(
    settings: dict[str, Any],
) -> None:
    assert_equal(resumed(stopped(**settings)), small(**settings).fit(Y))


def test_controls_and_panels_go_on_and_nothing_is_drawn_again() -> None:
    found = resumed(stopped(Y[:-3], U[:-3]), Y[:-3], U[:-3])
    assert_equal(found, small().fit(Y[:-3], X=U[:-3]), Y.index[-3:], U[-3:])
    y = panel((8,) * 7)  # a window each: which of them are held out is drawn
    states = [np.random.RandomState(5) for _ in range(2)]
    one, other = ({"random_state": s, "early_stopping": True} for s in states)
    assert_equal(resumed(stopped(y, **one), y), small(**other).fit(y))
    assert states[0].randint(10**9) == states[1].randint(10**9)


# How it may stop


def failing(when: str, patched: pytest.MonkeyPatch) -> None:
    """Press Ctrl-C at a call: of the trainer, or of the calibration."""
    epochs: list[int] = []
    step, judge = Trainer._step, Trainer._judge

    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    def within(self: Trainer, *others: Any) -> Any:
        epochs.append(others[-1])
        return fail() if epochs.count(HALF + 1) == 2 else step(self, *others)

    def at_its_end(self: Trainer, row: Any, *others: Any) -> None:
        return fail() if row["epoch"] > HALF else judge(self, row, *others)

    places: dict[str, tuple[Any, str, Callable[..., Any]]] = {
        "within": (Trainer, "_step", within),
        "at its end": (Trainer, "_judge", at_its_end),  # its row is written already
        "resuming": (Descent, "load", fail),
        "finishing": (plan, "measured_calibration", fail),
    }
    patched.setattr(*places[when])


@pytest.mark.slow
@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("when", ["after", "within", "at its end"])
def test_an_interrupted_training_goes_on_from_the_last_whole_epoch(
    monkeypatch: pytest.MonkeyPatch, when: str, early_stopping: bool
) -> None:
    forecaster = small(early_stopping=early_stopping)
    told = r"interrupted in epoch [45] of 6.*Fit again with .* the same data, to go on"
    with monkeypatch.context() as patched:
        if when == "after":
            forecaster.callbacks = [At(act=KeyboardInterrupt)]
        else:
            failing(when, patched)
        with pytest.warns(ConvergenceWarning, match=told):
            forecaster.fit(Y)
    assert forecaster.n_epochs_ == HALF + (when == "at its end")
    assert np.isfinite(forecaster.predict([1])).all()
    assert_equal(resumed(forecaster), default_whole(early_stopping=early_stopping))


@pytest.mark.parametrize("epoch", [HALF, N])
def test_a_training_that_an_error_ended_goes_on(epoch: int) -> None:
    forecaster = small(callbacks=[At(epoch, ZeroDivisionError)])
    with pytest.raises(ZeroDivisionError):
        forecaster.fit(Y)
    assert not forecaster.is_fitted
    assert_equal(resumed(forecaster, first=epoch + 1), default_whole())


def test_interruptions_and_refusals_of_what_follows_lose_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forecaster = small(callbacks=[At(act=KeyboardInterrupt)])
    told = pytest.warns(ConvergenceWarning, match="interrupted in epoch 4")
    for when, context in (("finishing", told), ("resuming", nullcontext())):
        with monkeypatch.context() as patched, context:
            failing(when, patched)
            with pytest.raises(KeyboardInterrupt):
                forecaster.fit(Y)
    with pytest.raises(ValueError, match="finite"):
        forecaster.fit(Y * np.inf)
    assert not forecaster.is_fitted
    assert_equal(resumed(forecaster), default_whole())


# What goes on, and what does not


@pytest.mark.parametrize("stop", [5, 7])
def test_early_stopping_counts_on(monkeypatch: pytest.MonkeyPatch, stop: int) -> None:
    monkeypatch.setattr(plan, "_WARM_UP_UPDATES", 0)
    losses = [5.0, 4.0, 1.0, 3.0, 3.5, 2.0, 2.5, 0.0, 0.0, 0.0]

    def loss(trainer: Trainer, _: Any) -> float:
        return losses[len(trainer.state.rows)]

    monkeypatch.setattr(Trainer, "_validation_loss", loss)
    settings = {"early_stopping": True, "n_iter_no_change": 4, "max_epochs": 10}
    early, saver = (At(epoch, lambda f: f.checkpoint()) for epoch in (3, stop))
    expected = small(**settings, callbacks=[early, saver]).fit(Y)
    assert (expected.n_epochs_, expected.best_epoch_) == (7, 3)
    assert expected._model.stopped is None
    # the checkpoint has the best weights so far
    assert (saver.found.n_epochs_, saver.found.best_epoch_) == (stop, 3)
    assert_kept(saver.found.network_, early.found.network_, 0.0)
    assert_equal(resumed(saver.found, first=stop + 1), expected)


def test_a_training_that_is_through_is_over_and_without_warm_start_all_are() -> None:
    forecaster = small(max_epochs=2).fit(Y)
    assert forecaster._model.stopped is None
    resumed(forecaster, first=1)
    cold = stopped(warm_start=False)
    assert cold._model.stopped is None
    assert_equal(cold.fit(Y), default_whole())
    # an update is a training of its own
    updated, heard = stopped(finetune_epochs=2), At(0)
    updated.callbacks = [heard]
    assert updated.update(Y[-1:])._model.stopped is None  # nothing that was not there
    assert heard.epochs == [1, 2]


@functools.cache
def stopped_with_controls() -> Any:
    return stopped(Y, U)


def with_value(data: Any) -> Any:
    data = data.copy()
    data.iloc[3] += 1e-9
    return data


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "y", "X"),
    [
        ({"n_samples": 20, "verbose": 2, "random_state": 5}, Y, U),  # which goes on
        ({"lr": 1e-9}, Y, U),
        ({"max_epochs": 8}, Y, U),
        ({"early_stopping": True}, Y, U),
        ({}, with_value(Y), U),
        ({}, Y, with_value(U)),
        ({}, Y[:-1], U[:-1]),
        (
            {},
            Y.set_axis(Y.index + pd.Timedelta(1)),
            U.set_axis(U.index + pd.Timedelta(1)),
        ),
    ],
    ids=["free", "lr", "epochs", "stopping", "value", "control", "row", "stamp"],
)
def test_other_settings_or_data_begin_a_training_from_the_best_weights(
    settings: dict[str, Any], y: Any, X: Any
) -> None:
    forecaster = copy.deepcopy(stopped_with_controls())
    before, first = forecaster.network_, HALF + 1 if "n_samples" in settings else 1
    resumed(forecaster.set_params(**settings), y, X, first)
    if "lr" in settings:
        assert_kept(forecaster.network_, before)


@pytest.mark.slow
def test_a_training_that_is_to_be_proved_goes_on_where_it_was_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guard, "share_of", lambda *_: 1.0)
    expected = small(guard=True).fit(Y)
    assert_equal(resumed(stopped(guard=True)), expected)


@pytest.mark.slow
def test_fine_tuning_goes_on_unless_there_is_a_new_pretraining() -> None:
    settings = {"finetune_epochs": N, "max_epochs": 2}
    forecaster = small(**settings).pretrain(panel())
    expected, failed = (copy.deepcopy(forecaster) for _ in range(2))
    expected.fit(Y)
    forecaster.callbacks, failed.callbacks = [At()], [At(act=ZeroDivisionError)]
    forecaster.fit(Y)
    with pytest.raises(ZeroDivisionError):
        failed.fit(Y)
    again = copy.deepcopy(failed)
    for one in (forecaster, failed):
        assert_equal(resumed(one), expected)
    again.callbacks, again.finetune_epochs = None, 1
    before = again.pretrain(panel((12, 14))).pretrained_.network
    again.lr = 1e-9
    assert_kept(again.fit(Y).network_, before)


# Checkpoints


@pytest.mark.slow
@pytest.mark.parametrize("through", [pickle.dumps, copy.deepcopy])
def test_a_checkpoint_is_what_a_stop_would_leave(through: Any) -> None:
    def saved(forecaster: Any) -> Any:
        checkpoint = forecaster.checkpoint()
        checkpoint.callbacks = None
        copied = through(checkpoint)
        return pickle.loads(copied) if isinstance(copied, bytes) else copied

    saver, again = At(act=saved), At(5, saved)
    assert_equal(small(callbacks=[saver]).fit(Y), default_whole())  # nothing changed
    found = saver.found
    assert found._run is None
    assert_equal(found, stopped())
    found.callbacks = [again]
    for forecaster in (found.fit(Y), resumed(again.found, first=6)):
        assert_equal(forecaster, default_whole())
    assert_equal(found.checkpoint(), found)
    with pytest.raises(NotFittedError, match="checkpoint"):
        small().checkpoint()
