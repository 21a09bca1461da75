"""Which engine runs: the user's choice, what is compiled, and the work ahead."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

from sklode import engine
from sklode.engine import choice
from tests.series import FORECASTERS, tiny, waves


def compiled(monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    monkeypatch.setattr(choice, "is_compiled", lambda dtype, layout: answer)


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
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert engine.choose("auto", 10**9, 60, "lanes") == "unrolled"
    with pytest.raises(ImportError, match=r"needs numba.*pip install .sklode\[fast\]"):
        tiny(engine="fused").fit(waves())


@pytest.mark.parametrize(
    "settings",
    [{"method": "dopri5"}, {"adjoint": True}, {"field_depth": 3}],
    ids=["adaptive", "adjoint", "three layers"],
)
def test_what_the_fused_engine_cannot_serve_is_refused(settings: Any) -> None:
    pytest.importorskip("numba")
    with pytest.raises(ValueError, match="engine='fused' serves fixed-step methods"):
        tiny(engine="fused", **settings).fit(waves())


@pytest.mark.parametrize("kind", FORECASTERS)
def test_a_fused_fit_forecasts_as_an_eager_one(kind: type) -> None:
    pytest.importorskip("numba")
    y = waves()
    fused, eager = (
        tiny(kind, engine=name, max_epochs=20, lr=0.02).fit(y)
        for name in ("fused", "eager")
    )
    assert fused.engine_ == ("fused", "fused")
    assert eager.engine_ == ("eager", "eager")
    steps = [-3, 1, 2, 8]
    np.testing.assert_allclose(fused.predict(steps), eager.predict(steps), atol=1e-3)
    np.testing.assert_array_equal(
        tiny(kind, engine="fused", max_epochs=20, lr=0.02).fit(y).predict(steps),
        fused.predict(steps),
    )


def test_few_windows_run_over_neurons() -> None:
    pytest.importorskip("numba")
    y = waves()
    assert tiny(engine="fused", batch_size=3).fit(y).network_.layout == "single"
    assert tiny(engine="fused", batch_size=4).fit(y).network_.layout == "lanes"


def test_what_is_compiled_is_known_of_this_process_and_the_disk() -> None:
    pytest.importorskip("numba")
    tiny(engine="fused").fit(waves())
    asked = choice.is_compiled.__wrapped__
    assert asked(np.dtype("float32"), "lanes")
    assert not asked(np.dtype("float16"), "lanes")
