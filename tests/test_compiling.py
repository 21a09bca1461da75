"""The first fit of a machine gives the numbers of all later ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba", reason="the fused engine needs numba")

from sklode.engine import choice
from sklode.training import compiling
from tests.series import tiny, waves

FIT = """
import time
from sklode import LatentODELSTMForecaster
from tests.series import waves
from sklode.engine import cache

saved = []
save = cache.Cache.save_overload
cache.Cache.save_overload = lambda self, *code: saved.append(1) or save(self, *code)
forecaster = LatentODELSTMForecaster(max_epochs=5, engine="fused", random_state=0)
print(forecaster.fit(waves()).predict([1, 2, 9]).to_numpy().tobytes().hex())
print(len(saved))
"""


def fitted_elsewhere(cache: Path) -> list[str]:
    """Return the forecast of another process, and how much that has compiled."""
    done = subprocess.run(
        [sys.executable, "-c", FIT],
        capture_output=True,
        text=True,
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
        cwd=Path(__file__).parents[1],
        timeout=600,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.slow
def test_the_fit_that_finds_nothing_compiled_gives_the_bits_of_the_next(
    tmp_path: Path,
) -> None:
    first, second = (fitted_elsewhere(tmp_path) for _ in range(2))
    assert first == second
    assert first[1] == "0"  # another process has compiled all that it needed


def test_every_kernel_is_run() -> None:
    tiny(engine="fused").fit(waves())  # what is on disk already is not compiled
    compiling.compile_here("lanes")
    assert choice.is_compiled(np.dtype("float32"), "lanes")


def test_nothing_is_started_where_nothing_can_be_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(subprocess, "run", lambda *args, **_: started.append(args))
    compiling.compile_apart("lanes")
    ((command, *_),) = started
    assert "compile_here('lanes')" in command[-1]
    monkeypatch.setattr("sklode.engine.keeps_compiled", lambda: False)
    compiling.compile_apart("lanes")
    assert len(started) == 1


def test_a_fit_goes_on_where_no_process_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise OSError("no more processes")

    expected = tiny(engine="fused").fit(waves()).predict([1, 2])
    monkeypatch.setattr(subprocess, "run", refused)
    monkeypatch.setattr("sklode.engine.is_compiled", lambda *_: False)
    forecast = tiny(engine="fused").fit(waves()).predict([1, 2])
    np.testing.assert_array_equal(forecast, expected)
