"""Compiled code on disk: kept where it can be, and no fit fails where it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from numba import config

from sklode.engine import products

FIT = """
from numba.core import caching

if {refused}:
    def refuse(self):
        raise PermissionError(13, "Permission denied")
    caching._CacheLocator.ensure_cache_path = refuse

import sys
from sklode.engine import walk
from tests.engine.test_runs import SIZES, problem, run
from tests.series import tiny, waves

for precision in {precisions}:  # compiled before the fit
    run(problem(n_series=2, n_steps=3, dtype=precision, **SIZES))
forecaster = tiny(max_epochs=2).fit(waves())
print(sum(walk.walk.stats.cache_hits.values()))
answer = forecaster.predict([1, 2]).to_numpy().tobytes().hex()
print(forecaster.network_.engines(), answer)
"""


def fit_elsewhere(
    cache: Path, *precisions: str, refused: bool = False
) -> tuple[int, str]:
    """Return how often another process found code on disk, engine and forecast."""
    root = str(Path(products.__file__).parents[2])
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": root}
    code = FIT.format(refused=refused, precisions=precisions)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        env=environment,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    hits, answer = done.stdout.splitlines()
    return int(hits), answer


TWICE = """
from sklode.engine.products import compiled

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
    hits, answer = fit_elsewhere(tmp_path / "cache")
    assert hits == 0
    assert answer.startswith("('fused', 'fused')")
    assert fit_elsewhere(tmp_path / "cache") == (1, answer)


@pytest.mark.slow
def test_what_was_compiled_before_changes_no_bit(tmp_path: Path) -> None:
    _, answer = fit_elsewhere(tmp_path / "alone")
    _, other = fit_elsewhere(tmp_path / "both", "float64", "float32")
    assert other == answer


@pytest.mark.slow
def test_a_fit_needs_no_folder_to_write_to(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    hits, answer = fit_elsewhere(in_the_way / "cache", refused=True)
    assert hits == 0
    assert answer.startswith("('fused', 'fused')")
