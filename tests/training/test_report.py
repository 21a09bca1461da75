"""What a training writes while it runs, and what its callbacks are told."""

from __future__ import annotations

import logging
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

from sklode.training import ahead
from sklode.training import report as report_module
from sklode.training.report import Reporter
from sklode.training.validation import Proof
from tests.prediction.test_ahead import stacking
from tests.series import panel, tiny, uneven_stamps, waves


class Screen:
    """What was written so far to standard error, a terminal or a file."""

    def __init__(self, capsys: pytest.CaptureFixture) -> None:
        self._capsys, self._text = capsys, ""

    @property
    def text(self) -> str:
        out, err = self._capsys.readouterr()
        assert out == ""
        self._text += err
        return self._text

    def frames(self) -> list[str]:
        """Return all that was ever shown, a line at a time."""
        return [part for part in re.split(r"[\r\n]", self.text) if part.strip()]


@pytest.fixture
def log_file(capsys: pytest.CaptureFixture) -> Screen:
    return Screen(capsys)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, log_file: Screen) -> Screen:
    monkeypatch.setattr("_pytest.capture.CaptureIO.isatty", lambda self: True)
    monkeypatch.setattr("_pytest.capture.CaptureIO.fileno", lambda self: 2)
    size = os.terminal_size((80, 24))
    monkeypatch.setattr("os.get_terminal_size", lambda *_: size)
    return log_file


@pytest.mark.parametrize("settings", [{"early_stopping": True}, {"warm_start": True}])
def test_nothing_at_all_is_written_by_default(
    settings: dict[str, Any],
    capfd: pytest.CaptureFixture,
    caplog: pytest.LogCaptureFixture,
    recwarn: pytest.WarningsRecorder,
) -> None:
    caplog.set_level(logging.DEBUG)
    y = waves(uneven_stamps(40))
    forecaster = tiny(max_epochs=2, **settings).fit(y[:35])
    forecaster.update(y[35:]).predict_interval([1, 2])
    tiny(**settings, finetune_epochs=1).pretrain(panel()).fit(y)
    written = capfd.readouterr()
    assert (written.out, written.err, caplog.records, list(recwarn)) == ("", "", [], [])


def test_a_terminal_shows_one_bar_on_one_line(terminal: Screen) -> None:
    settings = {"max_epochs": 3, "early_stopping": True}
    forecaster = tiny(verbose=1, **settings).fit(waves(uneven_stamps(40)))
    last = forecaster.history_.loc[3]
    assert terminal.text.count("\n") == 1
    assert terminal.text.endswith("\n")
    assert max(map(len, terminal.frames())) < 80
    final = terminal.frames()[-1]
    assert re.search(r"epoch 3/3 \|█+\| \d\d:\d\d<00:00, ", final)
    shown = {"loss": "loss", "val": "validation_loss", "grad": "grad_norm"}
    assert all(f"{short}={last[name]:.4g}" in final for short, name in shown.items())


def test_a_log_file_gets_a_line_now_and_then_and_at_the_end(
    log_file: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(report_module.time, "monotonic", lambda: now)
    reporter, counts = Reporter(1), []
    reporter.begin(100)
    for epoch in range(1, 101):  # a second each
        now += 1.0
        row = {"loss": 0.5, "grad_norm": 0.25, "validation_loss": np.nan}
        reporter.epoch_end({"epoch": epoch, **row, "seconds": 1.0})
        counts.append(log_file.text.count("\n"))
    reporter.end()
    assert [counts.index(n) + 1 for n in (1, 2, 3)] == [30, 60, 90]
    last = log_file.text.splitlines()[-1]
    assert last == "epoch 100/100, loss=0.5, grad=0.25, 1 s"


@pytest.mark.parametrize("place", ["a thread", "a process"])
def test_fits_beside_others_write_lines_although_there_is_a_terminal(
    place: str, terminal: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    if place == "a process":
        monkeypatch.setattr("multiprocessing.parent_process", lambda: object())
        tiny(max_epochs=3, verbose=1).fit(waves())
    else:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(tiny(max_epochs=3, verbose=1).fit, waves()).result()
    (line,) = terminal.text.splitlines()
    assert "\r" not in terminal.text
    assert line.startswith("epoch 3/3, loss=")


def test_the_verdict_of_a_guard_is_told(
    terminal: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"level": "auto", "max_epochs": 5, "verbose": 1}
    forecaster, y = tiny(**settings), waves(uneven_stamps(60))
    verdict = (
        "What the network adds to the level has not proved itself: the level alone is "
        "the forecast."
    )
    monkeypatch.setattr(ahead, "can_prove", lambda rows: True)
    monkeypatch.setattr(Proof, "has_prospects", lambda *_: True)
    monkeypatch.setattr(Proof, "stacking", lambda *_: stacking(1.0))
    forecaster.fit(y)
    assert terminal.frames()[0].startswith("epoch 0/5 |")
    assert terminal.frames()[-1].startswith("on all rows: epoch")
    assert verdict not in terminal.text
    monkeypatch.setattr(Proof, "stacking", lambda *_: None)
    forecaster.fit(y)
    assert terminal.text.endswith(f"{verdict}\n")


def test_update_and_pretrain_tell_of_their_epochs_and_no_others(
    terminal: Screen,
) -> None:
    y = waves(uneven_stamps())
    log: list[str] = []
    settings = {"max_epochs": 2, "finetune_epochs": 1, "callbacks": [Heard(log)]}
    forecaster = tiny(verbose=1, **settings).pretrain(panel())
    assert "epoch 2/2" in terminal.frames()[-1]
    forecaster.fit(y[:18]).update(y[18:20])
    assert "epoch 1/1" in terminal.frames()[-1]
    one = ["begin", "1", "end"]  # which callbacks hear of too
    assert log == ["begin", "1", "2", "end", *one, *one]
    shown = terminal.text
    forecaster.update(y[20:], update_params=False)
    forecaster.finetune_epochs = 0
    for forecaster.verbose in (1, 2):
        forecaster.fit(y)
    assert terminal.text == shown


def test_a_progress_bar_without_tqdm_names_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(ImportError, match=r"tqdm.*pip install 'sklode\[progress\]'"):
        tiny(verbose=1).fit(waves())


def test_the_log_has_a_line_per_epoch_as_soon_as_it_ends(
    capsys: pytest.CaptureFixture,
) -> None:
    lines: list[str] = []
    callback = SimpleNamespace(
        on_epoch_end=lambda *_: lines.append(capsys.readouterr().out)
    )
    settings = {"max_epochs": 2, "early_stopping": True, "callbacks": [callback]}
    forecaster = tiny(verbose=2, **settings).fit(waves(uneven_stamps(40)))
    assert lines == [
        f"epoch {epoch}/2, loss={r['loss']:.4g}, val={r['validation_loss']:.4g}, "
        f"grad={r['grad_norm']:.4g}, {r['seconds']:.3g} s\n"
        for epoch, r in forecaster.history_.iterrows()
    ]


class Heard:
    """A callback that writes down what it is told, and fails or stops where asked."""

    def __init__(
        self, log: list[str], name: str = "", breaks: str = "", error: Any = None
    ) -> None:
        self.log, self.name, self.breaks, self.error = log, name, breaks, error
        self.rows: list[dict[str, float]] = []

    def told(self, what: str) -> bool:
        self.log.append(self.name + what)
        if what == self.breaks and self.error is not None:
            raise self.error
        return what == self.breaks

    def on_fit_begin(self, forecaster: Any) -> None:
        self.told("begin")

    def on_epoch_end(self, forecaster: Any, row: dict[str, float]) -> bool:
        self.rows.append(dict(row))
        row.clear()  # which nobody else minds
        return self.told(f"{self.rows[-1]['epoch']:g}")

    def on_fit_end(self, forecaster: Any) -> None:
        self.told("end")


def test_callbacks_are_told_of_every_epoch_in_turn_and_may_stop() -> None:
    log: list[str] = []
    one, other = Heard(log, "a", breaks="2"), Heard(log, "b")
    forecaster = tiny(max_epochs=9, callbacks=(one, other)).fit(waves())
    epochs = ["a1", "b1", "a2", "b2"]  # all of them, also if one stops
    assert log == ["abegin", "bbegin", *epochs, "aend", "bend"]
    for heard in (one, other):
        rows = pd.DataFrame(heard.rows).set_index("epoch")
        pd.testing.assert_frame_equal(rows, forecaster.history_)
    assert forecaster.n_epochs_ == forecaster.best_epoch_ == 2
    # a clone has its own
    copied = forecaster.clone().fit(waves())
    assert (len(one.rows), len(copied.callbacks[0].rows)) == (2, 4)


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
@pytest.mark.parametrize("where", ["begin", "2", "end"])
def test_where_a_callback_fails_the_bar_is_closed_and_all_hear_of_the_end(
    where: str, error: type[BaseException], terminal: Screen
) -> None:
    from tqdm.auto import tqdm

    log: list[str] = []
    callbacks = [Heard(log, "a", where, error), Heard(log, "b")]
    forecaster = tiny(max_epochs=3, verbose=1, callbacks=callbacks)
    if (where, error) == ("2", KeyboardInterrupt):
        with pytest.warns(ConvergenceWarning, match="training was interrupted"):
            forecaster.fit(waves())
    else:
        with pytest.raises(error):
            forecaster.fit(waves())
        assert not forecaster.is_fitted
    assert not tqdm._instances
    assert terminal.text.endswith("\n")
    assert log[-2:] == ["aend", "bend"]
