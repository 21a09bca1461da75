"""A training that was stopped goes on as if it had not been."""

from __future__ import annotations

import contextlib
import copy
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from sklode import (
    LatentODERNNForecaster,
    fitting,
    guard,
    interval_scales,
    models,
    reporting,
    training,
)
from sklode.data.observations import Observations
from sklode.prediction.model import FittedModel
from sklode.training import recovery as recovery_module
from sklode.training.loop import Trainer
from sklode.training.recovery import Recovery
from tests.pages import python_of
from tests.series import FORECASTERS, panel, tiny, uneven_stamps, waves

STEPS = [-3, 1, 2]
N, HALF = 10, 5
"""Epochs, of three batches each, and those before the training stops."""

SKIPPED = pytest.mark.filterwarnings(
    "ignore:training (ended without a finite|has made the model worse)"
)
"""What a training says whose last epoch takes no step."""


def series() -> pd.Series:
    return waves(uneven_stamps(40))


def small(kind: Any = LatentODERNNForecaster, **settings: Any) -> Any:
    settings = {"max_epochs": N, "batch_size": 16, "warm_start": True} | settings
    return tiny(kind, **settings)


@pytest.fixture(autouse=True)
def windows_grow_in_both_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "_WARM_UP_UPDATES", 24)


def assert_equal(one: Any, other: Any) -> None:
    """Check that trainings and forecasts are the same, bit for bit."""
    histories = [f.history_.drop(columns="seconds") for f in (one, other)]
    pd.testing.assert_frame_equal(*histories, check_exact=True)
    assert one.best_epoch_ == other.best_epoch_
    networks = one.network_.state_dict(), other.network_.state_dict()
    for name, weights in networks[0].items():
        assert torch.equal(weights, networks[1][name]), name
    for ask in ("predict", "predict_interval", "sample"):
        first, second = (np.asarray(getattr(f, ask)(STEPS)) for f in (one, other))
        np.testing.assert_array_equal(first, second, err_msg=ask)


class StopAt:
    """Stop the training after an epoch."""

    def __init__(self, epoch: int = HALF) -> None:
        self.epoch = epoch

    def on_epoch_end(self, forecaster: Any, row: dict[str, float]) -> bool:
        return row["epoch"] == self.epoch


class InterruptAt(StopAt):
    """Press Ctrl-C after an epoch."""

    def on_epoch_end(self, forecaster: Any, row: dict[str, float]) -> bool:
        if row["epoch"] == self.epoch:
            raise KeyboardInterrupt
        return False


class BrokenError(Exception):
    """Something went wrong in a callback."""


class BreakAt(StopAt):
    """Fail after an epoch."""

    def on_epoch_end(self, forecaster: Any, row: dict[str, float]) -> bool:
        if row["epoch"] == self.epoch:
            raise BrokenError
        return False


def stopped_and_resumed(y: Any = None, X: Any = None, **settings: Any) -> Any:
    """Fit twice: the first is stopped after half of the epochs."""
    y = series() if y is None else y
    forecaster = small(callbacks=[StopAt()], **settings).fit(y, X=X)
    assert forecaster.n_epochs_ == HALF
    return resumed(forecaster, y, X)


class Hear:
    """Note the epochs that are trained."""

    def __init__(self) -> None:
        self.epochs: list[int] = []

    def on_epoch_end(self, forecaster: Any, row: dict[str, float]) -> None:
        self.epochs.append(int(row["epoch"]))


def resumed(
    forecaster: Any, y: Any = None, X: Any = None, first: int = HALF + 1
) -> Any:
    """Fit again, which has to go on at an epoch: one begun anew may be equal, too."""
    heard = Hear()
    forecaster.set_params(callbacks=[heard])
    forecaster.fit(series() if y is None else y, X=X)
    assert heard.epochs == list(range(first, forecaster.n_epochs_ + 1))
    return forecaster


def halves(y: Any = None, X: Any = None, **settings: Any) -> Any:
    """Fit twice under a constant rate: each is half of the epochs."""
    y = series() if y is None else y
    settings = {"lr_schedule": "constant", "max_epochs": HALF} | settings
    return resumed(small(**settings).fit(y, X=X), y, X)


def whole(y: Any = None, X: Any = None, **settings: Any) -> Any:
    y = series() if y is None else y
    return small(**{"warm_start": False} | settings).fit(y, X=X)


CASES: dict[str, dict[str, Any]] = {
    "default": {},
    "average": {"averaging": 0.9},
    "adamw": {"optimizer": "adamw", "weight_decay": 0.5},
    "sgd": {"optimizer": "sgd", "clip_norm": None},
    "annealed": {"kl_annealing_epochs": 8},
    "whole windows": {"backcast_fraction": 0.0, "thinning": 0.0},
    "validated": {"early_stopping": True, "validation_fraction": 0.3},
    "validated average": {"early_stopping": True, "averaging": 0.9},
    "line": {"normalize": "linear"},
}


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_a_stopped_training_goes_on_as_if_it_had_not_been(
    settings: dict[str, Any],
) -> None:
    assert_equal(stopped_and_resumed(**settings), whole(**settings))


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_two_halves_at_a_constant_rate_are_the_whole(settings: dict[str, Any]) -> None:
    assert_equal(halves(**settings), whole(**settings, lr_schedule="constant"))


@pytest.mark.parametrize("kind", FORECASTERS)
def test_every_forecaster_goes_on(kind: Any) -> None:
    assert_equal(halves(kind=kind), whole(kind=kind, lr_schedule="constant"))


@pytest.mark.parametrize("split", [stopped_and_resumed, halves])
def test_panels_and_controls_go_on(split: Callable[..., Any]) -> None:
    settings = {"lr_schedule": "constant"} if split is halves else {}
    y = panel((20, 13, 26))
    X = pd.DataFrame({"u": np.cos(np.arange(len(y)))}, y.index)
    later = pd.DataFrame({"u": np.ones(3)})
    later.index = pd.MultiIndex.from_tuples(
        [(key, y.loc[key].index[-1] + pd.Timedelta("1h")) for key in ("s0", "s1", "s2")]
    )
    one, other = split(y, X, **settings), whole(y, X, **settings)
    pd.testing.assert_frame_equal(
        one.predict_at(later.index, later),
        other.predict_at(later.index, later),
        check_exact=True,
    )
    assert one.history_["loss"].tolist() == other.history_["loss"].tolist()


@pytest.mark.parametrize("seed", [0, "state"])
def test_series_held_out_and_seeds_are_not_drawn_again(seed: Any) -> None:
    y = panel((8,) * 7)  # a window each: which of them are held out is drawn

    def settings() -> dict[str, Any]:
        drawn = np.random.RandomState(5) if seed == "state" else seed
        return {"random_state": drawn, "early_stopping": True, "averaging": 0.5}

    assert_equal(stopped_and_resumed(y, **settings()), whole(y, **settings()))
    states = [settings(), settings()]
    stopped_and_resumed(y, **states[0])
    whole(y, **states[1])
    if seed == "state":
        left = [s["random_state"].randint(10**9) for s in states]
        assert left[0] == left[1]


def test_norms_for_the_automatic_clipping_are_remembered() -> None:
    settings: dict[str, Any] = {"lr_schedule": "constant", "clip_norm": "auto"}
    y = series()
    forecaster = small(**settings, max_epochs=2).fit(y)
    forecaster.set_params(max_epochs=4).fit(y)  # the third epoch's norms still count
    assert_equal(forecaster, whole(**settings, max_epochs=6))


def test_the_number_of_epochs_may_change_at_a_constant_rate() -> None:
    y = series()
    forecaster = small(lr_schedule="constant", max_epochs=3).fit(y)
    forecaster.set_params(max_epochs=7).fit(y)
    assert_equal(forecaster, whole(lr_schedule="constant"))


def test_a_fit_that_stopped_is_brought_to_its_end_first() -> None:
    y, settings = series(), {"lr_schedule": "constant", "max_epochs": 4}
    forecaster = small(**settings, callbacks=[StopAt(6)]).fit(y).fit(y)
    assert forecaster.n_epochs_ == 6
    assert forecaster.fit(y).n_epochs_ == 8
    assert forecaster.fit(y).n_epochs_ == 12
    assert_equal(forecaster, whole(lr_schedule="constant", max_epochs=12))


def test_a_constant_rate_is_the_given_one_from_the_first_step() -> None:
    forecaster = whole(lr_schedule="constant", lr=0.01)
    assert forecaster.history_["lr"].tolist() == [0.01] * N
    assert whole(lr=0.01).history_["lr"].nunique() == N


def test_at_a_constant_rate_no_epoch_depends_on_how_many_there_are() -> None:
    few, many = (
        whole(lr_schedule="constant", max_epochs=n).history_.drop(columns="seconds")
        for n in (3, 8)
    )
    pd.testing.assert_frame_equal(few, many[:3], check_exact=True)
    few, many = (whole(max_epochs=n).history_.drop(columns="seconds") for n in (3, 8))
    assert (few["loss"] != many["loss"][:3]).all()


def test_with_auto_the_engine_does_not_depend_on_how_many_epochs_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def choose(wanted: str, n_iterations: int, *others: Any) -> str:
        asked.append(n_iterations)
        return "unrolled"

    monkeypatch.setattr(fitting.engine, "choose", choose)
    whole(lr_schedule="constant", max_epochs=1)
    whole(lr_schedule="constant", max_epochs=2)
    whole(max_epochs=1)
    whole(max_epochs=2)
    assert asked[0] == asked[1]
    assert asked[2] < asked[3]


def test_a_resumed_training_keeps_its_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    forecaster = small(callbacks=[StopAt()]).fit(series())
    before = forecaster.network_.engine

    def choose(*_: Any) -> str:
        raise AssertionError

    monkeypatch.setattr(fitting.engine, "choose", choose)
    forecaster.callbacks = None
    assert forecaster.fit(series()).network_.engine == before
    assert forecaster.n_epochs_ == N


@pytest.mark.parametrize("when", ["after an epoch", "within an epoch", "at its end"])
@pytest.mark.parametrize("early_stopping", [False, True])
def test_an_interrupted_training_goes_on_from_the_last_whole_epoch(
    monkeypatch: pytest.MonkeyPatch, when: str, early_stopping: bool
) -> None:
    y, settings = series(), {"early_stopping": early_stopping, "averaging": 0.9}
    expected = whole(**settings)
    forecaster = small(**settings)
    if when == "after an epoch":
        forecaster.callbacks = [InterruptAt()]
    with monkeypatch.context() as patched:
        if when == "within an epoch":
            interrupt(patched, HALF + 1, 2)
        if when == "at its end":  # its row is in the history already
            patched.setattr(Trainer, "_judge", judged_until(HALF))
        told = r"interrupted in epoch [67] of 10.*Fit again on the same data to go on"
        with pytest.warns(ConvergenceWarning, match=told):
            forecaster.fit(y)
    assert forecaster.n_epochs_ == HALF + (when == "at its end")
    assert np.isfinite(forecaster.predict(STEPS)).all()
    assert_equal(resumed(forecaster), expected)


def judged_until(last: int) -> Callable[..., None]:
    """Return what presses Ctrl-C before weights of later epochs are judged."""
    judge = Trainer._judge

    def interrupted(self: Trainer, row: dict[str, float], is_validated: bool) -> None:
        if row["epoch"] > last:
            raise KeyboardInterrupt
        judge(self, row, is_validated)

    return interrupted


def interrupt(patched: pytest.MonkeyPatch, at_epoch: int, at_step: int = 1) -> None:
    """Press Ctrl-C before a step of an epoch is taken."""
    step, taken = Trainer.train_step, []

    def interrupted(self: Trainer, batch: Any, kl: float, gen: Any, epoch: int) -> Any:
        taken.append(epoch)
        if taken.count(at_epoch) == at_step:
            raise KeyboardInterrupt
        return step(self, batch, kl, gen, epoch)

    patched.setattr(Trainer, "train_step", interrupted)


def test_a_resumed_training_may_be_interrupted_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    y, expected = series(), whole()
    forecaster = small(callbacks=[StopAt()]).fit(y)
    forecaster.callbacks = None
    before = forecaster.predict(STEPS)
    with monkeypatch.context() as patched:
        interrupt(patched, HALF + 1)
        with pytest.warns(ConvergenceWarning, match="interrupted in epoch 6 of 10"):
            forecaster.fit(y)
    pd.testing.assert_series_equal(forecaster.predict(STEPS), before)
    assert_equal(resumed(forecaster), expected)


def test_an_interruption_while_a_training_is_resumed_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    y, expected = series(), whole()
    forecaster = small(callbacks=[StopAt()]).fit(y)
    forecaster.callbacks = None

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(recovery_module.Recovery, "resume", interrupted)
        with pytest.raises(KeyboardInterrupt):
            forecaster.fit(y)
    assert_equal(resumed(forecaster), expected)


def test_a_training_that_an_error_of_a_callback_ended_goes_on() -> None:
    y, expected = series(), whole()
    forecaster = small(callbacks=[BreakAt()])
    with pytest.raises(BrokenError):
        forecaster.fit(y)
    assert not forecaster.is_fitted
    assert_equal(resumed(forecaster), expected)


def test_an_error_after_the_last_epoch_leaves_nothing_to_train() -> None:
    y, expected = series(), whole()
    forecaster = small(callbacks=[BreakAt(N)])
    with pytest.raises(BrokenError):
        forecaster.fit(y)
    assert_equal(resumed(forecaster, first=N + 1), expected)


def test_without_a_warm_start_nothing_is_kept_to_go_on_from() -> None:
    forecaster = small(warm_start=False, callbacks=[StopAt()]).fit(series())
    assert forecaster._model.stopped is None
    forecaster.callbacks = None
    assert_equal(forecaster.fit(series()), whole())


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))]
)
def test_a_copy_of_a_stopped_forecaster_goes_on_alike(copied: Any) -> None:
    y, expected = series(), whole(averaging=0.5)
    forecaster = small(averaging=0.5, callbacks=[StopAt()]).fit(y)
    forecaster.callbacks = None
    other = copied(forecaster)
    assert_equal(resumed(other), expected)
    assert_equal(resumed(forecaster), expected)


def test_the_bar_of_a_resumed_training_begins_where_it_stopped(
    capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporting, "_draws_bars", lambda: True)  # as on a terminal
    forecaster = small(callbacks=[StopAt()]).fit(series())
    forecaster.callbacks, forecaster.verbose = None, 1
    forecaster.fit(series())
    output = capfd.readouterr()
    assert "5/10" in output.out + output.err
    assert "10/10" in output.out + output.err


# what is easily forgotten


def test_a_divergence_before_the_stop_counts_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recovery_module, "_JUDGED_STEPS", 6)  # two epochs
    monkeypatch.setattr(recovery_module, "_KNOWS_NOTHING", 3.0)
    settings: dict[str, Any] = {"lr_schedule": "constant", "lr": 0.01}
    with thrown(monkeypatch, [4, 6]):
        expected = whole(**settings)
    restored = expected.history_["restored_epoch"]
    assert restored[4] > 0  # before the stop
    assert 0 < restored[6] <= HALF  # to what was remembered before it
    assert expected.history_["lr"].tolist() == [0.01] * 4 + [0.005] * 2 + [0.0025] * 4
    with thrown(monkeypatch, [4, 6]):
        assert_equal(halves(**settings), expected)
    with thrown(monkeypatch, [4, 6]):
        expected = whole(lr=0.01)
    assert (expected.history_["restored_epoch"] > 0).sum() == 2
    with thrown(monkeypatch, [4, 6]):
        assert_equal(stopped_and_resumed(lr=0.01), expected)


def test_divergences_before_the_stop_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recovery_module, "_JUDGED_STEPS", 1)
    monkeypatch.setattr(recovery_module, "_KNOWS_NOTHING", 3.0)
    monkeypatch.setattr(recovery_module, "_MOST", 1)
    results = []
    for split in (whole, stopped_and_resumed):
        with (
            thrown(monkeypatch, [4, 8]),
            pytest.warns(ConvergenceWarning, match="again and again"),
        ):
            results.append(split())
    assert results[0].n_epochs_ == 8
    assert_equal(*results)


@contextlib.contextmanager
def thrown(monkeypatch: pytest.MonkeyPatch, epochs: list[int]) -> Iterator[None]:
    """Overwrite the weights at the beginning of some epochs."""
    step, left = Trainer.train_step, list(epochs)

    def throwing(self: Trainer, batch: Any, kl: float, gen: Any, epoch: int) -> Any:
        if epoch in left:
            left.remove(epoch)
            with torch.no_grad():
                for vector in self._vectors:
                    vector.mul_(30.0)
        return step(self, batch, kl, gen, epoch)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "train_step", throwing)
        yield


def test_a_resumed_recovery_remembers_the_best_epoch_of_all() -> None:
    w = torch.nn.Parameter(torch.zeros(1))

    def ended(recovery: Recovery, epoch: int, loss: float) -> int:
        w.data.fill_(loss)
        recovery.epoch_begins(epoch)
        return recovery.epoch_ends(loss, True)

    def of_an_epoch_of_20_steps() -> Recovery:
        optimizer = torch.optim.SGD([w], lr=0.1)
        return Recovery([w], optimizer, lambda: float(w.detach()), 20)

    first, second = of_an_epoch_of_20_steps(), of_an_epoch_of_20_steps()
    for epoch, loss in enumerate([-1.0, *[1.3] * 9], 1):
        assert ended(first, epoch, loss) == 0
    second.resume(first.state())
    assert float(w.detach()) == pytest.approx(1.3)
    assert ended(second, 11, 1.6) == 1  # no recent one is much better
    assert float(w.detach()) == -1.0


@SKIPPED
@pytest.mark.parametrize("first", [HALF + 1, HALF - 1])
def test_steps_skipped_before_the_stop_count_after_it(
    monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    # the last good weights are not confirmed by a step before the stop
    monkeypatch.setattr(recovery_module, "_JUDGED_STEPS", 1)
    skip_steps(monkeypatch, first)
    settings: dict[str, Any] = {"max_epochs": HALF + 2}
    expected = whole(**settings)
    if first > HALF:
        assert expected.best_epoch_ == HALF
    else:  # the tenth in a row is in the last epoch
        assert expected.history_["restored_epoch"].iloc[-1] > 0
    assert_equal(stopped_and_resumed(**settings), expected)


def skip_steps(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    """Take no step from an epoch on, as if no loss were finite."""
    step = Trainer.train_step

    def skipping(self: Trainer, batch: Any, kl: float, gen: Any, epoch: int) -> Any:
        if epoch < first:
            return step(self, batch, kl, gen, epoch)
        self._last_batch = batch
        return None

    monkeypatch.setattr(Trainer, "train_step", skipping)


@SKIPPED
def test_weights_confirmed_before_the_stop_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    y, settings = series(), {"max_epochs": HALF + 2}
    skip_steps(monkeypatch, HALF + 1)
    forecaster = small(**settings, callbacks=[StopAt()]).fit(y)
    assert forecaster.best_epoch_ == HALF
    # under the last weights the loss turns out not to be finite
    monkeypatch.setattr(Trainer, "_loss_of", lambda *_: np.inf)
    expected = whole(**settings)
    assert expected.best_epoch_ == HALF - 1
    assert_equal(resumed(forecaster), expected)


@pytest.mark.parametrize("averaging", [0.0, 0.9])
def test_early_stopping_counts_on(
    monkeypatch: pytest.MonkeyPatch, averaging: float
) -> None:
    monkeypatch.setattr(fitting, "_WARM_UP_UPDATES", 0)
    settings = {"early_stopping": True, "n_iter_no_change": 4, "averaging": averaging}
    best = 0.5 if averaging else 2.5
    results = []
    for split in (whole, stopped_and_resumed):
        losses = iter([5.0, 4.0, 1.0, 3.0, 3.5, 2.0, best, 0.0, 0.0, 0.0])
        with monkeypatch.context() as patched:
            patched.setattr(
                training, "validation_loss", lambda *_, left=losses: next(left)
            )
            results.append(split(**settings))
    assert (results[0].n_epochs_, results[0].best_epoch_) == (
        (10, 8) if averaging else (7, 3)
    )
    assert_equal(*results)


def test_spreads_that_cannot_be_measured_are_those_before_the_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    y = series()
    forecaster = small(callbacks=[StopAt()]).fit(y)
    assert forecaster._model.calibration is not None
    forecaster.callbacks = None
    monkeypatch.setattr(interval_scales, "_measured", lambda *_: (None, 0))
    assert_equal(forecaster.fit(y), whole())


# what does not go on


def began_anew(forecaster: Any, before: pd.DataFrame, n_epochs: int = N) -> bool:
    """Return whether the last fit was a training of its own."""
    rows = forecaster.history_
    assert rows.index.tolist() == list(range(1, n_epochs + 1))
    return bool(rows["seconds"].iloc[0] != before["seconds"].iloc[0])


def test_a_training_that_early_stopping_ended_is_over() -> None:
    y = series()
    settings: dict[str, Any] = {"lr_schedule": "constant", "early_stopping": True}
    forecaster = small(**settings, tol=1e9, n_iter_no_change=1, max_epochs=20).fit(y)
    ended = forecaster.n_epochs_
    assert ended < 20
    assert forecaster._model.stopped is None
    before = forecaster.history_
    assert began_anew(forecaster.fit(y), before, forecaster.n_epochs_)
    assert forecaster.n_epochs_ <= ended


def test_a_one_cycle_training_that_is_through_is_over() -> None:
    forecaster = small().fit(series())
    assert forecaster._model.stopped is None
    before = forecaster.history_
    assert began_anew(forecaster.fit(series()), before)


@pytest.mark.parametrize(
    "changed", [{"lr": 1e-9}, {"lr": 1e-9, "max_epochs": 12}], ids=str
)
def test_other_settings_begin_a_training_from_the_best_weights(
    changed: dict[str, Any],
) -> None:
    y = series()
    forecaster = small(callbacks=[StopAt()]).fit(y)
    weights, before = forecaster.network_.state_dict(), forecaster.history_
    forecaster.set_params(**changed, callbacks=None).fit(y)
    assert began_anew(forecaster, before, changed.get("max_epochs", N))
    for name, trained in forecaster.network_.state_dict().items():
        torch.testing.assert_close(trained, weights[name], rtol=0, atol=1e-6)


def test_another_number_of_epochs_begins_another_cycle() -> None:
    forecaster = small(callbacks=[StopAt()]).fit(series())
    before = forecaster.history_
    forecaster.set_params(max_epochs=12, callbacks=None).fit(series())
    assert began_anew(forecaster, before, 12)


FREE = {
    "guard",  # its trial is before the training
    "max_epochs",  # but for a cycle
    "finetune_epochs",
    "n_samples",
    "freq",
    "random_state",  # the generators' states go on
    "warm_start",
    "verbose",
    "callbacks",
}
"""Parameters that may change before a training goes on."""


def test_a_training_goes_on_under_the_same_parameters_only() -> None:
    forecaster = small(lr_schedule="constant")
    parameters = set(forecaster.get_params())
    training_of = set(fitting._TRAINING)
    assert parameters == {*models.ARCHITECTURE, *training_of, *FREE, "device"}
    observations = Observations.from_frame(series().to_frame(), None)

    def signed(device: str = "cpu") -> str:
        return fitting._signature(observations, forecaster, torch.device(device), None)

    before = signed()
    for name in sorted(parameters - set(models.ARCHITECTURE) - {"device"}):
        value = getattr(forecaster, name)
        setattr(forecaster, name, "another")
        assert (signed() != before) is (name in training_of), name
        setattr(forecaster, name, value)
    assert signed("meta") != before
    assert signed() == before


@pytest.mark.parametrize("change", ["value", "stamp", "row", "control"])
def test_other_data_begin_a_training(change: str) -> None:
    y = series()
    X = pd.DataFrame({"u": np.cos(np.arange(40.0))}, y.index)
    forecaster = small(callbacks=[StopAt()]).fit(y, X=X)
    forecaster.callbacks = None
    before = forecaster.history_
    y, X = y.copy(), X.copy()
    if change == "value":
        y.iloc[3] += 1e-9
    elif change == "control":
        X.iloc[3] += 1e-9
    elif change == "row":
        y, X = y[:-1], X[:-1]
    else:
        index = y.index.to_numpy().copy()
        index[-1] += 1
        y.index = X.index = pd.DatetimeIndex(index)
    assert began_anew(forecaster.fit(y, X=X), before)


def test_what_forecasts_only_need_may_change() -> None:
    y = series()
    forecaster = small(callbacks=[StopAt()]).fit(y)
    forecaster.set_params(n_samples=20, callbacks=[StopAt(N)], verbose=0).fit(y)
    assert_equal(forecaster, whole(n_samples=20))


def test_an_update_is_a_training_of_its_own() -> None:
    y = series()
    settings = {"finetune_epochs": 2, "lr_schedule": "constant"}
    forecaster = small(**settings, callbacks=[StopAt()]).fit(y)
    before = forecaster.history_
    forecaster.update(y[-1:])  # nothing that was not there
    assert began_anew(forecaster, before, 2)
    assert forecaster._model.stopped is None


# a guard, and pretraining


def test_the_trial_of_a_guard_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    trials: list[int] = []

    def gains(*_: Any) -> np.ndarray:
        trials.append(1)
        return np.ones(4)

    monkeypatch.setattr(guard, "gains", gains)
    assert_equal(stopped_and_resumed(guard=True), whole(guard=True))
    assert len(trials) == 2


def test_a_fit_is_tried_on_the_series_that_a_pretraining_is_tried_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # the seed of forecasts, which only a fit draws, comes after them
    cuts: list[list[int]] = []
    train = fitting._train

    def recorded(model: Any, windows: Any, cut: np.ndarray, *others: Any) -> None:
        cuts.append(cut.tolist())
        train(model, windows, cut, *others)

    monkeypatch.setattr(fitting, "_train", recorded)
    monkeypatch.setattr(guard, "gains", lambda *_: np.ones(4))
    y = panel((8,) * 9)
    small(guard=True, max_epochs=1).fit(y)
    small(guard=True, max_epochs=1).pretrain(y)
    assert cuts[:2] == cuts[2:]
    assert cuts[0] != cuts[1]


def test_a_trial_that_is_interrupted_decides_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forecaster = small(guard=True)
    with monkeypatch.context() as patched:
        interrupt(patched, 4)
        with pytest.raises(KeyboardInterrupt):
            forecaster.fit(series())
    assert_equal(forecaster.fit(series()), whole(guard=True))


def test_fine_tuning_goes_on() -> None:
    y, settings = waves(uneven_stamps(24, seed=9)), {"finetune_epochs": N}
    expected = small(warm_start=False, **settings).pretrain(panel()).fit(y)
    forecaster = small(**settings).pretrain(panel())
    failed = copy.deepcopy(forecaster)
    forecaster.callbacks, failed.callbacks = [StopAt()], [BreakAt()]
    assert forecaster.fit(y).n_epochs_ == HALF
    with pytest.raises(BrokenError):
        failed.fit(y)
    for one in (forecaster, failed):
        assert_equal(resumed(one, y), expected)


def test_fine_tuning_in_two_halves_at_a_constant_rate_is_the_whole() -> None:
    y = waves(uneven_stamps(24, seed=9))
    first = small(lr_schedule="constant").pretrain(panel())
    expected = copy.deepcopy(first)
    expected.finetune_epochs = 6
    first.finetune_epochs = 3
    assert_equal(resumed(first.fit(y), y, first=4), expected.fit(y))


def test_a_new_pretraining_counts_for_more_than_an_earlier_fit() -> None:
    y = waves(uneven_stamps(24, seed=9))
    forecaster = small(finetune_epochs=1, callbacks=[BreakAt(2)])
    with pytest.raises(BrokenError):
        forecaster.fit(y)
    forecaster.callbacks = None
    forecaster.pretrain(panel())
    expected = copy.deepcopy(forecaster.pretrained_.network)
    forecaster.lr = 1e-9
    for name, weights in forecaster.fit(y).network_.state_dict().items():
        torch.testing.assert_close(
            weights, expected.state_dict()[name], rtol=0, atol=1e-6
        )


# checkpoints


class SaveAt(StopAt):
    """Save the forecaster after an epoch."""

    def __init__(self, save: Callable[[Any], Any], epoch: int = HALF) -> None:
        super().__init__(epoch)
        self.save = save
        self.saved: list[Any] = []

    def on_epoch_end(self, forecaster: Any, row: dict[str, float]) -> bool:
        if row["epoch"] == self.epoch:
            self.saved.append(self.save(forecaster))
        return False


def by_pickle(forecaster: Any) -> Any:
    return pickle.loads(pickle.dumps(forecaster))


def by_save(forecaster: Any) -> Any:
    cls, saved = forecaster.save()
    return cls.load_from_serial(saved)


@pytest.mark.parametrize("save", [copy.deepcopy, by_pickle, by_save])
def test_a_callback_may_save_what_a_stop_would_leave(save: Any) -> None:
    y, settings = series(), {"averaging": 0.9, "weight_decay": 0.1}
    saver = SaveAt(save)
    trained = small(**settings, callbacks=[saver]).fit(y)
    expected = whole(**settings)
    assert_equal(trained, expected)  # saving has changed nothing
    (saved,) = saver.saved
    assert saved.is_fitted
    assert_equal(saved, whole(**settings, callbacks=[StopAt()]))
    assert_equal(resumed(saved), expected)


@pytest.mark.parametrize("warm_start", [False, True])
def test_what_a_callback_saves_is_the_best_so_far(
    monkeypatch: pytest.MonkeyPatch, warm_start: bool
) -> None:
    monkeypatch.setattr(fitting, "_WARM_UP_UPDATES", 0)
    losses = iter([5.0, 1.0, *[3.0] * 8])
    monkeypatch.setattr(training, "validation_loss", lambda *_: next(losses))
    saver, early = SaveAt(by_pickle), SaveAt(by_pickle, 2)
    settings = {"early_stopping": True, "warm_start": warm_start}
    small(**settings, callbacks=[saver, early]).fit(series())
    best = early.saved[0].predict(STEPS)
    pd.testing.assert_series_equal(saver.saved[0].predict(STEPS), best)
    assert saver.saved[0].best_epoch_ == 2
    assert saver.saved[0].n_epochs_ == HALF
    assert (saver.saved[0]._model.stopped is None) is not warm_start


def test_a_resumed_training_may_be_saved_again() -> None:
    y, expected = series(), whole()
    forecaster = small(callbacks=[StopAt()]).fit(y)
    saver = SaveAt(by_pickle, 8)
    forecaster.callbacks = [saver]
    forecaster.fit(y)
    (saved,) = saver.saved
    assert saved.n_epochs_ == 8
    assert_equal(resumed(saved, first=9), expected)


def test_a_checkpoint_carries_one_model_and_no_live_training() -> None:
    saver = SaveAt(copy.deepcopy)
    small(callbacks=[saver]).fit(series()).fit(series())
    for saved in saver.saved:
        models = [v for v in vars(saved).values() if isinstance(v, FittedModel)]
        assert models == [saved._model]
        assert saved._underway is None


def test_before_the_first_epoch_a_callback_saves_what_is_not_fitted() -> None:
    class AtBegin:
        def on_fit_begin(self, forecaster: Any) -> None:
            self.saved = copy.deepcopy(forecaster)

    keeper = AtBegin()
    assert small(callbacks=[keeper]).fit(series()).is_fitted
    assert not keeper.saved.is_fitted


# what is left where nothing was trained


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_fit_that_fails_in_its_first_epoch_keeps_the_earlier_model(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    y = series()
    forecaster = small().fit(y)
    before = forecaster.network_.state_dict()

    def broken(*_: Any) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "train_step", broken)
        for _ in range(2):
            with pytest.raises(error):
                forecaster.fit(y)
            assert forecaster.is_fitted  # with the model of before
    forecaster.set_params(lr=1e-9).fit(y)
    for name, weights in forecaster.network_.state_dict().items():
        torch.testing.assert_close(weights, before[name], rtol=0, atol=1e-6)


def test_a_failing_fit_of_other_data_keeps_the_stopped_training() -> None:
    y, expected = series(), whole()
    forecaster = small(callbacks=[StopAt()]).fit(y)
    forecaster.callbacks = [BreakAt(0)]
    with pytest.raises(ValueError, match="finite"):
        forecaster.fit(y.where(y.index != y.index[3], np.inf))
    assert_equal(resumed(forecaster), expected)


def test_a_second_interruption_ends_the_fit_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    y, expected = series(), whole()
    forecaster = small(callbacks=[InterruptAt()])

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(fitting, "measured_calibration", interrupted)
        with (
            pytest.warns(ConvergenceWarning, match="interrupted in epoch 6"),
            pytest.raises(KeyboardInterrupt),
        ):
            forecaster.fit(y)
    assert_equal(resumed(forecaster), expected)


KILLED = """
import os
import runpy

from sklode.training.report import Reporter

tell = Reporter.epoch_end


def killed(self, row):
    stop = tell(self, row)
    if row["epoch"] == 25:
        os._exit(9)
    return stop


Reporter.epoch_end = killed
runpy.run_path("train.py", run_name="__main__")
"""

TOLD = """
long.history_["seconds"].to_csv("seconds.csv")
long.history_.drop(columns="seconds").to_csv("epochs.csv")
long.predict(fh=[1, 9]).to_csv("forecast.csv")
long.predict_interval(fh=[1, 9]).to_csv("interval.csv")
"""


@pytest.mark.slow
def test_a_program_that_is_killed_goes_on_from_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert not (tmp_path / "killed" / "epochs.csv").exists()
    monkeypatch.setattr(sys.modules["__main__"], "Checkpoint", StopAt, raising=False)
    saved = pickle.loads((tmp_path / "killed" / "forecaster.pkl").read_bytes())
    assert saved.n_epochs_ == 20
    assert run("killed") == 0
    for name in ("epochs.csv", "forecast.csv", "interval.csv"):
        texts = [(tmp_path / d / name).read_text() for d in ("whole", "killed")]
        assert texts[0] == texts[1]
        assert len(texts[0].splitlines()) >= 3
    seconds = pd.read_csv(tmp_path / "killed" / "seconds.csv")["seconds"]
    assert len(seconds) == 30
    # they were not trained again
    np.testing.assert_allclose(seconds[:20], saved.history_["seconds"], rtol=1e-12)
