"""Compiled code on disk: kept where it can be, and no fit fails where it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from numba import config
from numba.core import event

from sklode.engine import compiling

FIT = """
from numba.core import caching

if {refused}:
    def refuse(self):
        raise PermissionError(13, "Permission denied")
    caching._CacheLocator.ensure_cache_path = refuse

from sklode.engine import walk
from tests.series import tiny, waves

forecaster = tiny(max_epochs=2).fit(waves())
print(sum(walk.walk.stats.cache_hits.values()))
print(forecaster.network_.engines(), forecaster.predict([1]).to_numpy())
"""


def fit_elsewhere(cache: Path, refused: bool = False) -> tuple[int, str, str]:
    """Return how often another process found code on disk; a forecast; what it said."""
    root = str(Path(compiling.__file__).parents[2])
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": root}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FIT.format(refused=refused)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    hits, answer = done.stdout.splitlines()
    assert answer.startswith("('fused', 'fused')")
    return int(hits), answer, done.stderr


TWICE = """
from sklode.engine.compiling import compiled

@compiled
def twice(x):
    return 2 * x
"""


def test_code_of_another_signature_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes that compile at once may both take the first free name of a file."""
    monkeypatch.setattr(config, "CACHE_DIR", "")  # where NUMBA_CACHE_DIR is set
    path = tmp_path / "twice.py"
    path.write_text(TWICE)

    def begun() -> Any:  # as by a process that just began
        names: dict[str, Any] = {"__name__": "twice"}
        exec(compile(TWICE, str(path), "exec"), names)
        return names["twice"]

    first = begun()
    assert (first(2), first(2.5)) == (4, 5.0)
    of_int, of_float = sorted((tmp_path / "__pycache__").glob("*.nbc"))
    of_float.write_bytes(of_int.read_bytes())
    for hits in (0, 1):
        again = begun()
        assert again(2.5) == 5.0
        assert sum(again.stats.cache_hits.values()) == hits


@pytest.mark.slow
def test_the_engine_is_compiled_once_a_machine(tmp_path: Path) -> None:
    hits, answer, told = fit_elsewhere(tmp_path / "cache")
    assert hits == 0
    assert told.startswith("sklode compiles for this machine, once after an install")
    assert told.count("\n") == 1
    assert fit_elsewhere(tmp_path / "cache") == (1, answer, "")


@pytest.mark.parametrize(
    ("module", "seconds", "is_told"),
    [
        ("sklode.engine.walk", [0.3], True),
        ("sklode.engine.walk", [0.0], False),
        ("sklode.engine.walk", [0.08, 0.08, 0.08], True),
        ("others", [0.3], False),
    ],
    ids=["long", "short", "together", "of others"],
)
def test_compiling_is_told_once_when_it_takes_long(
    module: str,
    seconds: list[float],
    is_told: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(compiling, "_SILENT", 0.15)
    function = SimpleNamespace(py_func=SimpleNamespace(__module__=module))
    inner = SimpleNamespace(py_func=SimpleNamespace(__module__="math"))
    notice = compiling._Notice()
    for wait in (*seconds, *seconds):
        for called in (function, inner):  # which compiles within it
            notice.on_start(
                event.Event("numba:compile", "START", {"dispatcher": called})
            )
        time.sleep(wait)
        for called in (inner, function):
            notice.on_end(event.Event("numba:compile", "END", {"dispatcher": called}))
    assert capsys.readouterr().err.count("sklode compiles") == is_told


@pytest.mark.slow
def test_a_fit_needs_no_folder_to_write_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")  # in the way
    assert fit_elsewhere(tmp_path / "file" / "cache", refused=True)[0] == 0
