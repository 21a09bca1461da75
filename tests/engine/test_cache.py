"""Compiled code on disk: kept where it can be, and no fit fails where it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from numba import config, types

from sklode.engine import cache, simd

CODE = """
from sklode.engine.simd import compiled

@compiled
def twice(x):
    return 2 * x
"""


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Return a maker of one function, each time as a process would that just began."""
    monkeypatch.setattr(config, "CACHE_DIR", "")  # where NUMBA_CACHE_DIR is set
    path = tmp_path / "twice.py"
    path.write_text(CODE)

    def make() -> Any:
        names: dict[str, Any] = {"__name__": "twice"}
        exec(compile(CODE, str(path), "exec"), names)
        return names["twice"]

    return make


def files(tmp_path: Path, ending: str) -> list[Path]:
    return sorted((tmp_path / "__pycache__").glob(f"*.{ending}"))


def holds(function: Any, context: Any = None) -> bool:
    return function._cache.holds((types.int64,), context or function.targetctx)


def hits(function: Any) -> int:
    return sum(function.stats.cache_hits.values())


def test_code_is_kept_for_the_next_process(fresh: Any, tmp_path: Path) -> None:
    first = fresh()
    assert not holds(first)
    assert first(2) == 4
    second = fresh()
    assert holds(second)
    assert second(2) == 4
    assert hits(first) == 0
    assert hits(second) == 1
    assert len(files(tmp_path, "nbc")) == 1


def test_other_sources_or_another_processor_do_not_count(
    fresh: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fresh()(2) == 4
    function = fresh()

    class Elsewhere:
        def codegen(self) -> Any:
            return self

        def magic_tuple(self) -> tuple[str]:
            return ("another processor",)

    assert holds(function)
    assert not holds(function, Elsewhere())
    monkeypatch.setattr(cache, "_SOURCES", "other sources")
    function = fresh()
    assert not holds(function)
    assert function(2) == 4
    assert hits(function) == 0


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
@pytest.mark.parametrize("content", [b"", b"no pickle", None], ids=repr)
def test_a_broken_file_is_written_anew(
    fresh: Any, tmp_path: Path, ending: str, content: bytes | None
) -> None:
    assert fresh()(2) == 4
    (path,) = files(tmp_path, ending)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if content is None else content)
    second = fresh()
    holds(second)  # does not raise
    assert second(2) == 4
    assert hits(second) == 0
    third = fresh()
    assert third(2) == 4
    assert hits(third) == 1


def test_a_file_that_is_gone_is_not_counted_and_written_anew(
    fresh: Any, tmp_path: Path
) -> None:
    assert fresh()(2) == 4
    (path,) = files(tmp_path, "nbc")
    path.unlink()
    second = fresh()
    assert not holds(second)
    assert second(2) == 4
    assert path.exists()


def test_code_of_another_signature_is_not_run(fresh: Any, tmp_path: Path) -> None:
    """Processes that compile at once may both take the first free name of a file."""
    first = fresh()
    assert first(2) == 4
    assert first(2.5) == 5.0
    of_int, of_float = files(tmp_path, "nbc")
    of_float.write_bytes(of_int.read_bytes())
    second = fresh()
    assert second(2.5) == 5.0
    assert hits(second) == 0
    third = fresh()
    assert third(2.5) == 5.0
    assert hits(third) == 1


def test_a_disk_that_is_full_keeps_nothing(
    fresh: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    function = fresh()
    monkeypatch.setattr(function._cache._cache_file, "_save_data", full)
    assert function(2) == 4
    other = fresh()
    assert not holds(other)
    monkeypatch.setattr(other._cache._cache_file, "_open_for_write", full)
    (index,) = files(tmp_path, "nbi")
    index.write_bytes(b"")
    assert other(2) == 4


def test_a_folder_that_went_away_keeps_nothing(fresh: Any, tmp_path: Path) -> None:
    function = fresh()
    folder = tmp_path / "__pycache__"
    folder.rmdir()
    folder.write_text("a file where the folder was")
    assert function(2) == 4


def test_where_no_folder_can_be_written_code_lives_in_the_process(
    fresh: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise PermissionError(13, "Permission denied")

    from numba.core import caching

    monkeypatch.setattr(caching._CacheLocator, "ensure_cache_path", refuse)
    function = fresh()
    assert function(2) == 4
    assert not isinstance(function._cache, cache.Cache)
    assert files(tmp_path, "nbc") == []


FIT = """
import sys
from pathlib import Path
from numba.core import caching
from sklode.engine import functions as engine
from tests.series import tiny, waves

refused = {refused}
if refused:
    def refuse(self):
        raise PermissionError(13, "Permission denied")
    caching._CacheLocator.ensure_cache_path = refuse
forecaster = tiny(engine="fused", max_epochs=2, verbose=2).fit(waves())
print(forecaster.engine_, *forecaster.predict([1, 2]).to_numpy().ravel())
"""


def fit_elsewhere(cache_dir: Path, refused: bool = False) -> list[str]:
    """Return the lines that a fit in a process of its own prints."""
    root = str(Path(simd.__file__).parents[2])
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache_dir), "PYTHONPATH": root}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FIT.format(refused=refused)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_the_engine_is_compiled_once_a_machine(tmp_path: Path) -> None:
    first, second = (fit_elsewhere(tmp_path / "cache") for _ in range(2))
    assert first[0].startswith("Compiling the fused engine")
    assert [line.split(",")[0] for line in second[:2]] == ["epoch 1/2", "epoch 2/2"]
    assert first[-1] == second[-1]
    assert first[-1].startswith("('fused', 'fused')")


@pytest.mark.slow
def test_a_fit_needs_no_folder_to_write_to(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    lines = fit_elsewhere(in_the_way / "cache", refused=True)
    assert lines[0].startswith("Compiling the fused engine")
    assert lines[-1].startswith("('fused', 'fused')")
