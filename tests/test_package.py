"""The package as an installer and a type checker see it, and its models' short text."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import sklode

ROOT = Path(sklode.__file__).parents[1]


def test_the_version_is_that_of_the_metadata() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    written = re.search(r'^version = "(.*)"$', text, re.MULTILINE)
    assert written is not None
    assert sklode.__version__ == importlib.metadata.version("sklode") == written[1]


def test_the_changelog_and_the_citation_have_the_version_and_its_date() -> None:
    released = r"^## (\d+\.\d+\.\d+) - (\d{4}-\d{2}-\d{2})$"
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    (version, date), *_ = re.findall(released, changelog, re.MULTILINE)
    assert version == sklode.__version__
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    assert {f"version: {version}", f"date-released: {date}"} <= {*citation}


def test_the_readme_s_first_command_brings_what_its_first_pages_show() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    command = re.search(r'^pip install .*"\.\[(.*)\]"', readme, re.MULTILINE)
    assert command is not None
    assert {"plot", "progress", "examples", "calendars"} <= {*command[1].split(",")}


TYPED = """
import numpy as np
import pandas as pd
from sklode import AbsoluteHorizon, LatentODELSTMForecaster, calendar_features
from sklode.data import load_co2

y: pd.Series = load_co2()
forecaster: LatentODELSTMForecaster = LatentODELSTMForecaster(
    hidden_size=8, model="paper", clip_norm=None, random_state=0
)
forecaster.fit(y)
index: pd.DatetimeIndex = pd.date_range("2020", periods=3)
at: pd.Series = forecaster.predict_at(index)
paths: pd.DataFrame = forecaster.sample([1, 2], n_samples=3)
gain: float = forecaster.score(y)
forecaster.save_weights("file")
weights = LatentODELSTMForecaster.load_weights("file")
X: pd.DataFrame = calendar_features(index, "week")
"""

MISTYPED = """
from sklode import LatentODELSTMForecaster

LatentODELSTMForecaster(hidden_size="8")
LatentODELSTMForecaster(hiden_size=8)
LatentODELSTMForecaster().sample([1], n_samples="3")
"""


@pytest.mark.slow
def test_a_typed_program_of_a_user_is_checked(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is of the extra dev")
    for name, program in {"right": TYPED, "wrong": MISTYPED}.items():
        path = tmp_path / f"{name}.py"
        path.write_text(textwrap.dedent(program), encoding="utf-8")
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\nignore_missing_imports = true\n", encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file"]
    done = subprocess.run(
        [*command, str(config), "right.py", "wrong.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT)},
    )
    assert "right.py" not in done.stdout
    found = re.findall(r"wrong\.py:(\d+): error", done.stdout)
    assert sorted(set(found)) == ["4", "5", "6"]
