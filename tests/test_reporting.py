"""What a training writes while it runs, and what its callbacks are told."""

from __future__ import annotations

import io
import logging
import os
import re
import sys
import threading
import types
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode.training import fitting, guard
from sklode.training import report as reporting
from sklode.training.loop import Trainer
from sklode.training.report import Reporter
from tests.series import panel, tiny, uneven_stamps, waves

COLUMNS = 80


class Screen:
    """What was written so far to standard error (a terminal, or a file) and output."""

    def __init__(self, capsys: pytest.CaptureFixture) -> None:
        self._capsys = capsys
        self._err = self._out = ""

    def _read(self) -> None:
        out, err = self._capsys.readouterr()
        self._out, self._err = self._out + out, self._err + err

    @property
    def text(self) -> str:
        self._read()
        return self._err

    @property
    def output(self) -> str:
        self._read()
        return self._out

    def frames(self) -> list[str]:
        """Return all that was ever shown, a line at a time."""
        return [part for part in re.split(r"[\r\n]", self.text) if part.strip()]

    def clear(self) -> None:
        self._read()
        self._err = self._out = ""


@pytest.fixture
def log_file(capsys: pytest.CaptureFixture) -> Screen:
    return Screen(capsys)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, log_file: Screen) -> Screen:
    monkeypatch.setattr("_pytest.capture.CaptureIO.isatty", lambda self: True)
    monkeypatch.setattr("_pytest.capture.CaptureIO.fileno", lambda self: 2)
    size = os.terminal_size((COLUMNS, 24))
    monkeypatch.setattr("os.get_terminal_size", lambda *_: size)
    return log_file


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each fit believe that its engine has to be compiled."""
    monkeypatch.setattr(fitting, "_is_ready", lambda network: False)
    monkeypatch.setattr(fitting, "compile_apart", lambda layout: None)


def row(epoch: int, **values: float) -> dict[str, float]:
    nothing = {"validation_loss": np.nan, "seconds": 1.0}
    return {"epoch": epoch, "loss": 0.5, "grad_norm": 0.25, **nothing, **values}


@pytest.mark.parametrize(
    "settings",
    [{}, {"guard": True}, {"early_stopping": True}, {"warm_start": True}],
    ids=str,
)
@pytest.mark.usefixtures("uncompiled")
def test_nothing_at_all_is_written_by_default(
    settings: dict[str, Any],
    capfd: pytest.CaptureFixture,
    caplog: pytest.LogCaptureFixture,
    recwarn: pytest.WarningsRecorder,
) -> None:
    caplog.set_level(logging.DEBUG)
    y = waves(uneven_stamps(40))
    forecaster = tiny(max_epochs=2, **settings).fit(y[:35])
    forecaster.update(y[35:])
    forecaster.predict_interval([1, 2])
    tiny(max_epochs=2, **settings).pretrain(panel()).fit(y)
    written = capfd.readouterr()
    assert (written.out, written.err, caplog.records, list(recwarn)) == ("", "", [], [])


def test_a_terminal_shows_one_bar_on_one_line(terminal: Screen) -> None:
    settings = {"max_epochs": 3, "early_stopping": True}
    forecaster = tiny(verbose=1, **settings).fit(waves(uneven_stamps(40)))
    text, last = terminal.text, forecaster.history_.loc[3]
    assert text.count("\n") == 1
    assert text.endswith("\n")
    assert max(map(len, terminal.frames())) < COLUMNS
    final = terminal.frames()[-1]
    assert re.search(r"epoch 3/3 \|█+\| \d\d:\d\d<00:00, ", final)
    assert f"loss={last['loss']:.4g}" in final
    assert f"val={last['validation_loss']:.4g}" in final
    assert f"grad={last['grad_norm']:.4g}" in final


def test_a_bar_of_large_numbers_and_hours_stays_on_its_line(
    terminal: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    reporter = Reporter(1)
    reporter.begin([1.0] * 10_000)
    monkeypatch.setattr("time.monotonic", lambda: 1e9)
    worst = {"loss": -1.2345e-5, "validation_loss": -1.2345e5, "grad_norm": 1.2345e-5}
    reporter.epoch_end(row(1, **worst, seconds=70.0))
    reporter.end()
    assert max(map(len, terminal.frames())) < COLUMNS
    assert "grad=1.23" in terminal.frames()[-1]


def test_a_bar_fits_a_terminal_that_is_made_narrower(
    terminal: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    reporter = Reporter(1)
    reporter.begin([1.0] * 10)
    monkeypatch.setattr("os.get_terminal_size", lambda *_: os.terminal_size((60, 9)))
    reporter.epoch_end(row(1))
    reporter.end()
    # what follows are the blanks that clear the line of before
    assert max(len(frame.rstrip()) for frame in terminal.frames()[1:]) < 60


def test_the_time_left_knows_that_later_epochs_take_longer(
    terminal: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(reporting.time, "monotonic", lambda: now)
    reporter = Reporter(1)
    reporter.begin([1.0, 1.0, 2.0, 6.0])
    now += 50.0  # imports; the epoch itself takes a second
    reporter.epoch_end(row(1, seconds=1.0))
    reporter._display._bar.refresh()  # type: ignore[attr-defined]
    assert "<00:09," in terminal.frames()[-1]
    now += 2.0
    reporter.epoch_end(row(2))
    reporter._display._bar.refresh()  # type: ignore[attr-defined]
    assert "<00:16," in terminal.frames()[-1]
    reporter.end()


def test_a_resumed_training_goes_on_where_its_bar_was(terminal: Screen) -> None:
    reporter = Reporter(1)
    reporter.begin([1.0] * 10, n_before=7)
    reporter.epoch_end(row(8, seconds=2.0))
    reporter.end()
    assert "epoch 7/10" in terminal.frames()[0]
    assert re.search(r"epoch 8/10 .*<00:04,", terminal.frames()[-1])


def test_the_costs_of_epochs_grow_with_the_windows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(Reporter, "begin", lambda self, *args: told.append(args))
    tiny(max_epochs=20, window_length=30, horizon=10).fit(waves(uneven_stamps(90)))
    costs, n_before = told[0]
    assert n_before == 0
    assert len(costs) == 20
    assert costs == sorted(costs)
    assert costs[0] == pytest.approx(0.1 + 6 / 40)
    assert costs[-1] == pytest.approx(1.1)


def test_a_log_file_gets_a_line_per_fit_not_one_per_refresh(
    log_file: Screen,
) -> None:
    forecaster = tiny(max_epochs=20, verbose=1).fit(waves())
    loss, norm = forecaster.history_.loc[20, ["loss", "grad_norm"]]
    assert re.fullmatch(
        r"LatentODELSTMForecaster epoch 20/20: \d\d:\d\d<00:00, "
        rf"loss={loss:.4g}, grad={norm:.4g}\n",
        log_file.text,
    )


def test_a_log_file_gets_ever_fewer_lines_of_a_long_training(
    log_file: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(reporting.time, "monotonic", lambda: now)
    reporter = Reporter(1)
    reporter.begin([1.0] * 36_000)
    numbers = []
    for epoch in range(1, 36_001):  # a second each: ten hours
        now += 1.0
        reporter.epoch_end(row(epoch))
        numbers.append(log_file.text.count("\n"))
    reporter.end()
    assert numbers[28] == 0
    assert numbers[30] == 1
    assert numbers[599] == 20
    assert 80 < log_file.text.count("\n") < 150
    assert log_file.text.splitlines()[-1].startswith("NoneType epoch 36000/36000")


@pytest.mark.parametrize("place", ["a thread", "a process"])
def test_fits_beside_others_write_lines_although_there_is_a_terminal(
    place: str, terminal: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fit() -> None:
        tiny(max_epochs=3, verbose=1).fit(waves())

    if place == "a thread":
        threads = [threading.Thread(target=fit) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:
        monkeypatch.setattr("multiprocessing.parent_process", lambda: object())
        fit()
        fit()
    assert "\r" not in terminal.text
    lines = terminal.text.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("LatentODELSTMForecaster epoch 3/3") for line in lines)


def test_a_notebook_without_widgets_keeps_one_line_of_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[str] = []

    class Handle:
        def update(self, data: dict[str, str], raw: bool) -> None:
            assert raw
            shown[-1] = data["text/plain"]

    def display(data: dict[str, str], raw: bool, display_id: bool) -> Handle:
        shown.append(data["text/plain"])
        return Handle()

    module = types.SimpleNamespace(display=display)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr(reporting, "_is_notebook", lambda: True)
    tiny(max_epochs=3, verbose=1).fit(waves())
    assert len(shown) == 1
    assert re.search(r"epoch 3/3 \|█+\| .*loss=.*grad=", shown[0])


def test_the_trial_of_a_guard_is_seen_and_its_verdict_told(
    terminal: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    y = waves(uneven_stamps(60))
    settings = {"guard": True, "max_epochs": 2, "verbose": 1}
    verdict = "The trial has not proved itself: the level alone is the forecast."
    monkeypatch.setattr(guard, "gains", lambda *_: np.zeros(4))
    tiny(**settings).fit(y)
    assert terminal.frames()[0].startswith("trial epoch 0/2 |")
    assert terminal.text.endswith(f"\r{verdict}\n")
    monkeypatch.setattr(guard, "gains", lambda *_: np.ones(4))
    terminal.clear()
    tiny(**settings).fit(y)
    assert verdict not in terminal.text
    assert re.match(r"epoch 2/2 .*loss=", terminal.frames()[-1])


@pytest.mark.usefixtures("uncompiled")
def test_compiling_is_told_by_bar_by_line_and_by_log(
    terminal: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny(verbose=1).fit(waves())
    assert re.search("compiling the fused engine, once a mach", terminal.text)
    assert re.match("epoch 1/1", terminal.frames()[-1])
    monkeypatch.setattr("_pytest.capture.CaptureIO.isatty", lambda self: False)
    tiny(verbose=1).fit(waves())
    assert "Forecaster compiling the fused engine, once a machine\n" in terminal.text
    assert terminal.output == ""
    tiny(verbose=2).fit(waves())
    assert "Compiling the fused engine: once a machine" in terminal.output


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
@pytest.mark.parametrize("where", ["on_fit_begin", "on_epoch_end"])
def test_a_bar_is_closed_where_training_is_broken_off(
    where: str, error: type[BaseException], terminal: Screen
) -> None:
    from tqdm.auto import tqdm

    ended: list[object] = []

    def breaks(*_: object) -> None:
        raise error

    callback = types.SimpleNamespace(on_fit_end=ended.append, **{where: breaks})
    forecaster = tiny(max_epochs=3, verbose=1, callbacks=[callback])
    if (where, error) == ("on_epoch_end", KeyboardInterrupt):
        with pytest.warns(UserWarning, match="training was interrupted"):
            forecaster.fit(waves())
    else:
        with pytest.raises(error):
            forecaster.fit(waves())
    assert not tqdm._instances
    assert terminal.text.endswith("\n")
    assert ended == [forecaster]


def test_warnings_come_after_the_bar_not_into_it(
    terminal: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    for name in ("_warn_of_interruption", "_judge_the_end"):
        monkeypatch.setattr(Trainer, name, lambda *_: seen.append(terminal.text[-1]))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    callback = types.SimpleNamespace(on_epoch_end=interrupt)
    tiny(verbose=1, callbacks=[callback]).fit(waves())
    assert seen == ["\n", "\n"]


def test_the_log_has_a_line_of_one_form_per_epoch(capsys: Any) -> None:
    settings = {"max_epochs": 2, "early_stopping": True, "verbose": 2}
    forecaster = tiny(**settings).fit(waves(uneven_stamps(40)))
    expected = [
        f"epoch {epoch}/2, loss {r['loss']:.4g}, validation_loss "
        f"{r['validation_loss']:.4g}, grad_norm {r['grad_norm']:.4g}, "
        f"{r['seconds']:.3g} s"
        for epoch, r in forecaster.history_.iterrows()
    ]
    assert capsys.readouterr().out.splitlines() == expected


def test_an_epoch_without_a_finite_loss_keeps_the_form(capsys: Any) -> None:
    reporter = Reporter(2)
    reporter.begin([1.0])
    reporter.epoch_end(row(1, loss=np.nan, grad_norm=np.nan))
    assert capsys.readouterr().out == "epoch 1/1, loss nan, grad_norm nan, 1 s\n"


def test_the_log_can_be_followed_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Buffered(io.StringIO):
        flushed = ""

        def flush(self) -> None:
            self.flushed = self.getvalue()

    stream = Buffered()
    monkeypatch.setattr(sys, "stdout", stream)
    seen = []
    callback = types.SimpleNamespace(
        on_epoch_end=lambda *_: seen.append(stream.flushed.count("\n"))
    )
    tiny(max_epochs=3, verbose=2, callbacks=[callback]).fit(waves())
    assert seen == [1, 2, 3]


@pytest.mark.parametrize("verbose", [1, 2])
def test_a_fit_without_epochs_shows_nothing(verbose: int, terminal: Screen) -> None:
    forecaster = tiny(finetune_epochs=0).pretrain(panel())
    forecaster.set_params(verbose=verbose).fit(waves(uneven_stamps()))
    assert (terminal.text, terminal.output) == ("", "")


def test_update_and_pretrain_show_their_epochs_too(terminal: Screen) -> None:
    forecaster = tiny(max_epochs=5, finetune_epochs=2, verbose=1).pretrain(panel())
    assert "epoch 5/5" in terminal.frames()[-1]
    y = waves(uneven_stamps())
    forecaster.fit(y[:20])
    assert "epoch 2/2" in terminal.frames()[-1]
    terminal.clear()
    forecaster.update(y[20:], update_params=False)
    assert terminal.text == ""
    forecaster.update(y[20:])
    assert "epoch 2/2" in terminal.frames()[-1]


def test_what_a_callback_does_to_its_row_changes_nothing_else() -> None:
    rows: list[dict[str, float]] = []

    class Greedy:
        def on_epoch_end(self, forecaster: Any, row: dict[str, float]) -> None:
            row.clear()

    class Keeper:
        def on_epoch_end(self, forecaster: Any, row: dict[str, float]) -> None:
            rows.append(row)

    forecaster = tiny(max_epochs=3, callbacks=[Greedy(), Keeper()]).fit(waves())
    history = pd.DataFrame(rows).set_index("epoch")
    pd.testing.assert_frame_equal(history, forecaster.history_)
    assert history["loss"].notna().all()


def test_every_callback_hears_of_the_end_even_if_another_raises() -> None:
    ended: list[int] = []

    def breaks(_: object) -> None:
        ended.append(0)
        raise ZeroDivisionError

    first = types.SimpleNamespace(on_fit_end=breaks)
    second = types.SimpleNamespace(on_fit_end=lambda _: ended.append(1))
    forecaster = tiny(callbacks=[first, second])
    with pytest.raises(ZeroDivisionError):
        forecaster.fit(waves())
    assert ended == [0, 1]
    assert not forecaster.is_fitted


def test_a_clone_has_callbacks_of_its_own() -> None:
    class Counter:
        n = 0

        def on_epoch_end(self, forecaster: Any, row: dict[str, float]) -> None:
            self.n += 1

    forecaster = tiny(callbacks=[Counter()])
    copies = [forecaster.clone().fit(waves()) for _ in range(2)]
    assert [c.callbacks[0].n for c in (forecaster, *copies)] == [0, 1, 1]
