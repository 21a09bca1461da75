"""What a training writes while it runs."""

from __future__ import annotations

import logging
import os
import re
import sys
from typing import Any

import pytest

from sklode.hybrid import training as ahead
from tests.epochs import after_each_epoch, interrupt
from tests.hybrid.test_model import weights
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
def terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> Screen:
    monkeypatch.setattr("_pytest.capture.CaptureIO.isatty", lambda self: True)
    monkeypatch.setattr("_pytest.capture.CaptureIO.fileno", lambda self: 2)
    size = os.terminal_size((80, 24))
    monkeypatch.setattr("os.get_terminal_size", lambda *_: size)
    return Screen(capsys)


@pytest.mark.parametrize("settings", [{}, {"early_stopping": True}])
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


@pytest.mark.slow
def test_the_verdict_of_a_guard_is_told(
    terminal: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"model": "hybrid", "max_epochs": 5, "verbose": 1}
    forecaster, y = tiny(**settings), waves(uneven_stamps(60))
    verdict = "has not proved itself: the structural model answers alone.\n"
    monkeypatch.setattr(ahead, "_PROVING_ROWS", 0)
    monkeypatch.setattr(ahead, "has_prospects", lambda *_: True)
    monkeypatch.setattr(ahead, "network_weights_of", lambda *_, **__: weights(1.0))
    forecaster.fit(y)
    assert terminal.frames()[0].startswith("epoch 0/5 |")
    assert terminal.frames()[-1].startswith("epoch 2/2 |")
    assert verdict not in terminal.text
    monkeypatch.setattr(ahead, "network_weights_of", lambda *_, **__: None)
    forecaster.fit(y)
    assert terminal.text.endswith(verdict)


def test_a_progress_bar_without_tqdm_names_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(ImportError, match=r"pip install tqdm"):
        tiny(verbose=1).fit(waves())


def test_the_log_has_a_line_per_epoch_as_soon_as_it_ends(
    capsys: pytest.CaptureFixture,
) -> None:
    lines: list[str] = []
    forecaster = tiny(verbose=2, max_epochs=2, early_stopping=True)
    with after_each_epoch(lambda _: lines.append(capsys.readouterr().out)):
        forecaster.fit(waves(uneven_stamps(40)))
    assert lines == [
        f"epoch {epoch}/2, loss={r['loss']:.4g}, val={r['validation_loss']:.4g}, "
        f"grad={r['grad_norm']:.4g}, {r['seconds']:.3g} s\n"
        for epoch, r in forecaster.history_.iterrows()
    ]


def test_the_bar_of_a_training_that_breaks_off_is_closed(terminal: Screen) -> None:
    from tqdm.auto import tqdm

    raised = pytest.raises(ZeroDivisionError)
    with interrupt(ZeroDivisionError(), 2), raised:
        tiny(max_epochs=3, verbose=1).fit(waves())
    assert not tqdm._instances
    assert terminal.text.endswith("\n")
