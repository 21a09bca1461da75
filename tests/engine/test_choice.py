"""Which engine runs: the user's choice, what is compiled, and the work ahead."""

from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import LatentODEForecaster, engine, nn
from sklode.engine import choice
from sklode.training import fitting
from sklode.training import report as reporting
from tests.series import FORECASTERS, panel, tiny, uneven_stamps, waves


def compiled(monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    """Have the engine be compiled, or not, before and after the fit."""
    for module, name in ((choice, "_was_compiled"), (engine, "is_compiled")):
        monkeypatch.setattr(module, name, lambda dtype, layout: answer)
    monkeypatch.setattr(fitting, "compile_apart", lambda layout: None)


def test_a_long_training_repays_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    compiled(monkeypatch, False)
    assert engine.choose("auto", 100, 60, "lanes") == "unrolled"
    assert engine.choose("auto", 100_000, 60, "lanes") == "fused"
    compiled(monkeypatch, True)
    assert engine.choose("auto", 1, 6, "lanes") == "fused"


@pytest.mark.parametrize("wanted", ["unrolled", "eager"])
def test_the_users_choice_is_kept(wanted: str) -> None:
    assert engine.choose(wanted, 10**9, 60, "lanes") == wanted


def test_without_numba_there_is_no_fused_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    assert engine.choose("auto", 10**9, 60, "lanes") == "unrolled"
    with pytest.raises(ImportError, match=r"needs numba.*pip install .sklode\[fast\]"):
        tiny(engine="fused").fit(waves())


def test_numba_that_compiles_nothing_is_as_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numba = pytest.importorskip("numba")
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    assert engine.choose("auto", 10**9, 60, "lanes") == "unrolled"
    with pytest.raises(ImportError, match="not usable: NUMBA_DISABLE_JIT is set"):
        engine.choose("fused", 10**9, 60, "lanes")


def test_a_process_keeps_its_first_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    answers = iter([False, True])
    monkeypatch.setattr(choice, "is_compiled", lambda dtype, layout: next(answers))
    choice._was_compiled.cache_clear()
    try:
        chosen = [engine.choose("auto", 1, 6, "lanes") for _ in range(2)]
    finally:
        choice._was_compiled.cache_clear()
    assert chosen == ["unrolled", "unrolled"]


@pytest.mark.parametrize(
    ("settings", "got"),
    [
        ({"method": "dopri5"}, "method='dopri5'"),
        ({"adjoint": True}, "adjoint=True"),
        ({"field_depth": 3}, "field_depth=3"),
        ({"device": "meta"}, "device='meta'"),
        (
            {"method": "dopri5", "adjoint": True, "field_depth": 3},
            "method='dopri5', adjoint=True, field_depth=3",
        ),
    ],
    ids=["adaptive", "adjoint", "three layers", "device", "all of it"],
)
@pytest.mark.parametrize("kind", FORECASTERS)
def test_what_the_fused_engine_cannot_serve_is_refused(
    kind: type, settings: Any, got: str
) -> None:
    pytest.importorskip("numba")
    message = (
        "engine='fused' serves fixed-step methods without adjoint, one or two hidden "
        "layers, sklode's own modules, and the CPU; got "
        f"{got}. Change that, or use engine='auto'."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        tiny(kind, engine="fused", **settings).fit(waves())


def test_a_module_of_the_users_own_is_refused_by_name() -> None:
    pytest.importorskip("numba")

    class Habit(nn.VectorField):
        """A field that the engine cannot know."""

    class Listener(nn.ODELSTM):
        """An encoder that the engine cannot know."""

    forecaster = tiny(engine="fused", warm_start=True).fit(waves())
    network = forecaster.network_
    network.decoder.vector_field.__class__ = Habit
    with pytest.raises(ValueError, match="got other modules in Decoder"):
        forecaster.fit(waves())
    network.encoder.__class__ = Listener
    with pytest.raises(ValueError, match="other modules in Listener and Decoder"):
        forecaster.fit(waves())


def test_an_activation_that_no_engine_has_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'activation' parameter.*'tanh'.*'relu'"):
        tiny(engine="fused", activation="relu").fit(waves())


@pytest.mark.parametrize("chosen", ["fused", "auto"])
def test_verbose_2_says_that_the_engine_is_being_compiled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, chosen: str
) -> None:
    pytest.importorskip("numba")
    monkeypatch.setattr(choice, "_COMPILE_SECONDS", 0.0)
    compiled(monkeypatch, False)
    tiny(engine=chosen, verbose=2).fit(waves())
    first, second = capsys.readouterr().out.splitlines()
    assert first == (
        "Compiling the fused engine: once a machine, for about half a minute."
    )
    assert second.startswith("epoch 1/1, ")


def test_verbose_1_says_so_before_the_bar_until_the_first_epoch_is_over(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    pytest.importorskip("numba")
    monkeypatch.setattr(reporting, "_draws_bars", lambda: True)  # as on a terminal
    compiled(monkeypatch, False)
    tiny(engine="fused", verbose=1, max_epochs=3).fit(waves())
    output = capfd.readouterr()
    assert "compiling the fused engine, once a machine: 0/3" in output.err
    last = output.err.replace("\r", "\n").splitlines()[-1]
    assert "3/3" in last
    assert "compiling" not in last
    assert output.out == ""


def test_verbose_1_says_so_in_a_line_where_no_bar_is_drawn(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    pytest.importorskip("numba")
    compiled(monkeypatch, False)
    tiny(engine="fused", verbose=1, max_epochs=3).fit(waves())
    first, last = capfd.readouterr().err.splitlines()
    assert first.endswith("compiling the fused engine, once a machine")
    assert "epoch 3/3: " in last


@pytest.mark.parametrize(
    ("is_compiled", "settings"),
    [
        (False, {"verbose": 0, "engine": "fused"}),
        (True, {"verbose": 1, "engine": "fused"}),
        (True, {"verbose": 2, "engine": "fused"}),
        (False, {"verbose": 2, "engine": "unrolled"}),
        (False, {"verbose": 2, "engine": "eager"}),
    ],
)
def test_nothing_is_said_where_nothing_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture,
    is_compiled: bool,
    settings: Any,
) -> None:
    pytest.importorskip("numba")
    compiled(monkeypatch, is_compiled)
    tiny(**settings).fit(waves())
    assert "ompiling" not in "".join(capfd.readouterr())


def test_nothing_is_said_where_nothing_is_trained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    pytest.importorskip("numba")
    compiled(monkeypatch, False)
    forecaster = tiny(engine="fused", verbose=2, finetune_epochs=0).pretrain(panel())
    assert "Compiling" in capsys.readouterr().out
    forecaster.fit(waves(uneven_stamps()))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("kind", FORECASTERS)
def test_every_engine_trains_to_the_same_forecasts(kind: type) -> None:
    pytest.importorskip("numba")
    y, steps = waves(pd.RangeIndex(40)), [-3, 1, 2, 8]
    # where one rounding more leads training elsewhere, engines cannot agree
    calm = {"batch_size": 8, "lr": 0.02, "window_length": 12, "horizon": 6}
    sizes = {"hidden_size": 6, "latent_size": 3, "field_width": 6}

    def fit(engine: str, max_epochs: int = 20) -> Any:
        return tiny(kind, engine=engine, max_epochs=max_epochs, **calm, **sizes).fit(y)

    eager, unrolled, fused = map(fit, ("eager", "unrolled", "fused"))
    assert eager.engine_ == ("eager", "eager")
    of_encoder = "eager" if kind is LatentODEForecaster else "unrolled"  # has no flow
    assert unrolled.engine_ == (of_encoder, "unrolled")
    assert fused.engine_ == ("fused", "fused")
    expected = eager.predict(steps)
    untrained = fit("eager", max_epochs=1).predict(steps)
    assert np.abs(expected - untrained).max() > 0.2 * np.std(y)
    for other in (unrolled, fused):
        np.testing.assert_allclose(
            other.predict(steps), expected, rtol=0, atol=1e-3 * np.std(y)
        )
        np.testing.assert_allclose(
            other.history_["loss"], eager.history_["loss"], rtol=1e-3
        )
    np.testing.assert_array_equal(fit("fused").predict(steps), fused.predict(steps))


def test_few_windows_run_over_neurons() -> None:
    pytest.importorskip("numba")
    y = waves()
    assert tiny(engine="fused", batch_size=3).fit(y).network_.layout == "single"
    assert tiny(engine="fused", batch_size=4).fit(y).network_.layout == "lanes"


def test_what_is_compiled_is_known_of_this_process_and_the_disk() -> None:
    pytest.importorskip("numba")
    tiny(engine="fused").fit(waves())
    assert choice.is_compiled(np.dtype("float32"), "lanes")
    assert not choice.is_compiled(np.dtype("float16"), "lanes")
