"""A process that compiles gives the numbers of those that load what it compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FIT = """
import sys
from sklode import LatentODELSTMForecaster
from sklode.engine import fused
from tests.series import waves

for precision in sys.argv[1:]:
    fused.compile_kernel(precision)
print(fused.is_compiled())
forecaster = LatentODELSTMForecaster(level="series", max_epochs=5, random_state=0)
print(forecaster.fit(waves()).predict([1, 2, 9]).to_numpy().tobytes().hex())
"""


def fitted_elsewhere(cache: Path, *precisions: str) -> list[str]:
    """Return whether another process found the engine compiled, and its forecast."""
    done = subprocess.run(
        [sys.executable, "-c", FIT, *precisions],
        capture_output=True,
        text=True,
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
        cwd=Path(__file__).parents[1],
        timeout=600,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.slow
def test_what_was_compiled_before_changes_no_bit(tmp_path: Path) -> None:
    compiles, forecast = fitted_elsewhere(tmp_path)
    assert compiles == "False"
    assert fitted_elsewhere(tmp_path) == ["True", forecast]
    both = fitted_elsewhere(tmp_path / "other", "float64", "float32")
    assert both == ["True", forecast]
