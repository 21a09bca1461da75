"""``import sklode`` loads little beside what a forecaster of sktime's needs anyway."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow  # fresh processes that import torch


def packages_after(statement: str) -> set[str]:
    """Return the packages that a statement loads in a fresh process."""
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return {name.partition(".")[0] for name in ran.stdout.split()}


def test_import_adds_no_package_but_torchdiffeq() -> None:
    known = packages_after("import torch, sktime.forecasting.base")
    added = packages_after("import sklode, sklode.plotting") - known
    assert added - sys.stdlib_module_names == {"sklode", "torchdiffeq"}
