"""A training that was stopped goes on as if it had not been."""

from __future__ import annotations

import copy
import functools
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
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
from tests.pages import python_of
from tests.series import FORECASTERS, panel, tiny, uneven_stamps, waves

STEPS = [-3, 1, 2]
N, HALF = 10, 5
"""Epochs, of three batches each, and those before the training stops."""


@pytest.fixture(autouse=True)
def _windows_grow_in_both_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_WARM_UP_UPDATES", 24)


def small(kind: Any = LatentODERNNForecaster, **settings: Any) -> Any:
    settings = {"max_epochs": N, "batch_size": 16, "warm_start": True} | settings
    return tiny(kind, **settings)


def series() -> pd.Series:
    return waves(uneven_stamps(40))


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


def whole(y: Any = None, X: Any = None, **settings: Any) -> Any:
    y = series() if y is None else y
    return small(**{"warm_start": False} | settings).fit(y, X=X)


@functools.cache
def default_whole(**settings: Any) -> Any:
    return whole(**settings)


def stopped(y: Any = None, X: Any = None, **settings: Any) -> Any:
    """Fit; the training is stopped after half of the epochs."""
    forecaster = small(callbacks=[At()], **settings)
    forecaster.fit(series() if y is None else y, X=X)
    assert forecaster.n_epochs_ == HALF
    forecaster.callbacks = None
    return forecaster


def resumed(
    forecaster: Any, y: Any = None, X: Any = None, first: int = HALF + 1
) -> Any:
    """Fit again, which has to go on at an epoch: one begun anew may be equal, too."""
    heard = At(0)
    forecaster.callbacks = [heard]
    forecaster.fit(series() if y is None else y, X=X)
    assert heard.epochs == list(range(first, forecaster.n_epochs_ + 1))
    return forecaster


def assert_kept(forecaster: Any, before: dict[str, Any]) -> None:
    """Check that weights are those they were, but for steps of no length."""
    for name, weights in forecaster.network_.state_dict().items():
        torch.testing.assert_close(weights, before[name], rtol=0, atol=1e-6)


def assert_equal(one: Any, other: Any, asked: Any = STEPS, X: Any = None) -> None:
    """Check that trainings and forecasts are the same, bit for bit."""
    histories = [f.history_.drop(columns="seconds") for f in (one, other)]
    pd.testing.assert_frame_equal(*histories, check_exact=True)
    assert one.best_epoch_ == other.best_epoch_
    networks = one.network_.state_dict(), other.network_.state_dict()
    for name, weights in networks[0].items():
        assert torch.equal(weights, networks[1][name]), name
    for ask in ("predict", "predict_interval", "sample"):
        answers = (np.asarray(getattr(f, ask)(asked, X=X)) for f in (one, other))
        np.testing.assert_array_equal(*answers, err_msg=ask)


CASES: dict[str, dict[str, Any]] = {
    **{kind.__name__: {"kind": kind} for kind in FORECASTERS},
    "decayed": {"weight_decay": 0.5, "clip_norm": "auto"},
    "validated": {"early_stopping": True, "thinning": 0.0},
    "line": {"normalize": "linear", "random_state": 3},
}


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_a_stopped_training_goes_on_as_if_it_had_not_been(
    settings: dict[str, Any],
) -> None:
    assert_equal(resumed(stopped(**settings)), whole(**settings))


@pytest.mark.parametrize("given", ["X", "seed", "state"])
def test_data_of_any_kind_go_on_and_nothing_is_drawn_again(given: str) -> None:
    if given == "X":
        y = series()
        X = pd.DataFrame({"u": np.cos(np.arange(40.0))}, y.index)
        data, ask = (y[:-3], X[:-3]), {"asked": y.index[-3:], "X": X[-3:]}
    else:
        y = panel((8,) * 7)  # a window each: which of them are held out is drawn
        data, ask = (y, None), {}

    def settings() -> dict[str, Any]:
        drawn = np.random.RandomState(5) if given == "state" else 0
        return {"random_state": drawn, "early_stopping": given != "X"}

    states = [settings(), settings()]
    found = resumed(stopped(*data, **states[0]), *data)
    assert_equal(found, whole(*data, **states[1]), **ask)
    if given == "state":
        left = [s["random_state"].randint(10**9) for s in states]
        assert left[0] == left[1]


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
        "in its first step": (Trainer, "_step", fail),
        "within": (Trainer, "_step", within),
        "at its end": (Trainer, "_judge", at_its_end),  # its row is written already
        "resuming": (Descent, "load", fail),
        "finishing": (plan, "measured_calibration", fail),
    }
    patched.setattr(*places[when])


@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("when", ["after", "within", "at its end"])
def test_an_interrupted_training_goes_on_from_the_last_whole_epoch(
    monkeypatch: pytest.MonkeyPatch, when: str, early_stopping: bool
) -> None:
    forecaster = small(early_stopping=early_stopping)
    told = r"interrupted in epoch [67] of 10.*Fit again on the same data to go on"
    with monkeypatch.context() as patched:
        if when == "after":
            forecaster.callbacks = [At(act=KeyboardInterrupt)]
        else:
            failing(when, patched)
        with pytest.warns(ConvergenceWarning, match=told):
            forecaster.fit(series())
    assert forecaster.n_epochs_ == HALF + (when == "at its end")
    assert np.isfinite(forecaster.predict(STEPS)).all()
    assert_equal(resumed(forecaster), default_whole(early_stopping=early_stopping))


@pytest.mark.parametrize("epoch", [HALF, N])
def test_a_training_that_an_error_of_a_callback_ended_goes_on(epoch: int) -> None:
    forecaster = small(callbacks=[At(epoch, ZeroDivisionError)])
    with pytest.raises(ZeroDivisionError):
        forecaster.fit(series())
    assert not forecaster.is_fitted
    assert_equal(resumed(forecaster, first=epoch + 1), default_whole())


def test_interruptions_of_what_follows_lose_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    y, forecaster = series(), small(callbacks=[At(act=KeyboardInterrupt)])
    told = pytest.warns(ConvergenceWarning, match="interrupted in epoch 6")
    with monkeypatch.context() as patched, told:
        failing("finishing", patched)
        with pytest.raises(KeyboardInterrupt):
            forecaster.fit(y)
    with monkeypatch.context() as patched:
        failing("resuming", patched)
        with pytest.raises(KeyboardInterrupt):
            forecaster.fit(y)
    with pytest.raises(ValueError, match="finite"):
        forecaster.fit(y.where(y.index != y.index[3], np.inf))
    assert not forecaster.is_fitted
    assert_equal(resumed(forecaster), default_whole())


def test_a_fit_that_fails_in_its_first_epoch_keeps_the_earlier_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    y, forecaster = series(), small(max_epochs=2)
    before = forecaster.fit(y).network_.state_dict()
    with monkeypatch.context() as patched:
        failing("in its first step", patched)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                forecaster.fit(y)
    assert forecaster.is_fitted
    assert_kept(forecaster.set_params(lr=1e-9).fit(y), before)


def scripted(monkeypatch: pytest.MonkeyPatch, losses: list[float]) -> None:
    """Let validation losses be these, from the first epoch on."""
    monkeypatch.setattr(plan, "_WARM_UP_UPDATES", 0)
    loss = lambda self, _: losses[len(self.state.rows)]  # noqa: E731
    monkeypatch.setattr(Trainer, "_validation_loss", loss)


@pytest.mark.parametrize("stop", [HALF, 7])
def test_early_stopping_counts_on(monkeypatch: pytest.MonkeyPatch, stop: int) -> None:
    scripted(monkeypatch, [5.0, 4.0, 1.0, 3.0, 3.5, 2.0, 2.5, 0.0, 0.0, 0.0])
    settings = {"early_stopping": True, "n_iter_no_change": 4}
    saver = At(stop, lambda f: f.checkpoint())
    expected = small(**settings, callbacks=[saver]).fit(series())
    assert (expected.n_epochs_, expected.best_epoch_) == (7, 3)
    assert expected._model.stopped is None
    assert_equal(resumed(saver.found, first=stop + 1), expected)


# What does not go on


def test_a_training_that_is_through_is_over_and_without_warm_start_all_are() -> None:
    forecaster = small(max_epochs=2).fit(series())
    assert forecaster._model.stopped is None
    resumed(forecaster, first=1)
    cold = stopped(warm_start=False)
    assert cold._model.stopped is None
    assert_equal(cold.fit(series()), default_whole())


@functools.cache
def stopped_with_controls() -> Any:
    y = series()
    X = pd.DataFrame({"u": np.cos(np.arange(40.0))}, y.index)
    return stopped(y, X), y, X


@pytest.mark.parametrize(
    ("changed", "first"),
    [
        ({"n_samples": 20, "verbose": 2, "random_state": 5}, HALF + 1),
        ({"lr": 1e-9}, 1),
        ({"max_epochs": 12}, 1),
        ({"thinning": 0.1}, 1),
        ({"early_stopping": True}, 1),
    ],
    ids=str,
)
def test_other_settings_of_the_training_begin_one_from_the_best_weights(
    changed: dict[str, Any], first: int
) -> None:
    forecaster, y, X = copy.deepcopy(stopped_with_controls())
    before = forecaster.network_.state_dict()
    resumed(forecaster.set_params(**changed), y, X, first)
    if "lr" in changed:
        assert_kept(forecaster, before)


@pytest.mark.parametrize("changed", ["value", "stamp", "row", "control"])
def test_other_data_begin_a_training(changed: str) -> None:
    forecaster, y, X = copy.deepcopy(stopped_with_controls())
    if changed == "row":
        y, X = y[:-1], X[:-1]
    elif changed == "stamp":
        index = y.index.to_numpy().copy()
        index[-1] += 1
        y.index = X.index = pd.DatetimeIndex(index)
    else:
        (y if changed == "value" else X).iloc[3] += 1e-9
    resumed(forecaster, y, X, 1)


def test_an_update_is_a_training_of_its_own() -> None:
    forecaster, heard = stopped(finetune_epochs=2), At(0)
    forecaster.callbacks = [heard]
    forecaster.update(series()[-1:])  # nothing that was not there
    assert heard.epochs == [1, 2]
    assert forecaster._model.stopped is None


# A guard, and pretraining


def test_the_trial_of_a_guard_is_neither_repeated_nor_cut_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trials: list[int] = []
    monkeypatch.setattr(guard, "gains", lambda *_: trials.append(1) or np.ones(4))
    expected = whole(guard=True)
    assert_equal(resumed(stopped(guard=True)), expected)
    assert len(trials) == 2
    forecaster = small(guard=True)
    with monkeypatch.context() as patched:
        failing("within", patched)
        with pytest.raises(KeyboardInterrupt):
            forecaster.fit(series())
    assert_equal(forecaster.fit(series()), expected)


def test_fine_tuning_goes_on_unless_there_is_a_new_pretraining() -> None:
    y, settings = waves(uneven_stamps(24, seed=9)), {"finetune_epochs": N}
    forecaster = small(**settings, max_epochs=3).pretrain(panel())
    expected, failed = (copy.deepcopy(forecaster) for _ in range(2))
    expected.fit(y)
    forecaster.callbacks, failed.callbacks = [At()], [At(act=ZeroDivisionError)]
    assert forecaster.fit(y).n_epochs_ == HALF
    with pytest.raises(ZeroDivisionError):
        failed.fit(y)
    again = copy.deepcopy(failed)
    for one in (forecaster, failed):
        assert_equal(resumed(one, y), expected)
    again.callbacks, again.finetune_epochs = None, 1
    before = again.pretrain(panel((12, 14))).pretrained_.network.state_dict()
    again.lr = 1e-9
    assert_kept(again.fit(y), before)


# Checkpoints


@pytest.mark.parametrize("through", [pickle.dumps, copy.deepcopy])
def test_a_checkpoint_is_what_a_stop_would_leave(through: Any) -> None:
    def saved(forecaster: Any) -> Any:
        checkpoint = forecaster.checkpoint()
        checkpoint.callbacks = None
        copied = through(checkpoint)
        return pickle.loads(copied) if isinstance(copied, bytes) else copied

    saver, again = At(act=saved), At(8, saved)
    trained = small(callbacks=[saver]).fit(series())
    assert_equal(trained, default_whole())  # saving has changed nothing
    found = saver.found
    assert found._run is None
    assert_equal(found, stopped())
    found.callbacks = [again]
    for forecaster in (found.fit(series()), resumed(again.found, first=9)):
        assert_equal(forecaster, default_whole())
    assert_equal(found.checkpoint(), found)


def test_a_checkpoint_has_the_best_weights_so_far(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scripted(monkeypatch, [5.0, 1.0, *[3.0] * 8])
    early, late = At(2, lambda f: f.checkpoint()), At(act=lambda f: f.checkpoint())
    settings = {"early_stopping": True, "warm_start": False}
    small(**settings, callbacks=[early, late]).fit(series())
    assert (late.found.best_epoch_, late.found.n_epochs_) == (2, HALF)
    assert late.found._model.stopped is None
    forecasts = [at.found.predict(STEPS) for at in (early, late)]
    pd.testing.assert_series_equal(*forecasts)


def test_without_a_whole_epoch_or_a_fit_there_is_no_checkpoint() -> None:
    class AtBegin:
        def on_fit_begin(self, forecaster: Any) -> None:
            with pytest.raises(NotFittedError, match="checkpoint"):
                forecaster.checkpoint()
            self.copy = copy.deepcopy(forecaster)

    keeper = AtBegin()
    small(max_epochs=1, callbacks=[keeper]).fit(series())
    assert not keeper.copy.is_fitted
    with pytest.raises(NotFittedError, match="checkpoint"):
        small().checkpoint()


KILLED = """
import os, runpy
from sklode.training.report import Reporter

tell = Reporter.epoch_end

def killed(self, row):
    tell(self, row)
    if row["epoch"] == 25:
        os._exit(9)

Reporter.epoch_end = killed
runpy.run_path("train.py", run_name="__main__")
"""

TOLD = """
long.history_.drop(columns="seconds").to_csv("epochs.csv")
long.predict_interval(fh=[1, 9]).to_csv("interval.csv")
"""


@pytest.mark.slow
def test_a_program_that_is_killed_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    blocks = [block.text for block in python_of("resuming.md")]
    (program,) = [text for text in blocks if "class Checkpoint" in text]
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.py").write_text(program + TOLD, encoding="utf-8")
    (tmp_path / "killed" / "killed.py").write_text(KILLED, encoding="utf-8")

    def run(where: str, script: str = "train.py") -> int:
        command = [sys.executable, script]
        return subprocess.run(command, cwd=tmp_path / where, check=False).returncode

    assert run("whole") == 0
    assert run("killed", "killed.py") == 9
    assert (tmp_path / "killed" / "forecaster.pkl").exists()
    assert not (tmp_path / "killed" / "epochs.csv").exists()
    assert run("killed") == 0
    for name in ("epochs.csv", "interval.csv"):
        one, other = ((tmp_path / d / name).read_text() for d in ("whole", "killed"))
        assert one == other
        assert len(one.splitlines()) >= 3
