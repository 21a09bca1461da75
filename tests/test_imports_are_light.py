"""``import sklode`` loads little beside what a forecaster of sktime's needs anyway."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow  # fresh processes that import torch


def modules_after(statement: str) -> set[str]:
    """Return the modules that a statement loads in a fresh process."""
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return set(ran.stdout.split())


@pytest.fixture(scope="module")
def ours() -> set[str]:
    return modules_after("import sklode")


@pytest.mark.parametrize(
    "package",
    [
        "numba",
        "llvmlite",
        "matplotlib",
        "skpro",
        "dask",
        "distributed",
        "pmdarima",
        "statsmodels",
        "torch._dynamo",
    ],
)
def test_import_leaves_alone_what_only_some_need(ours: set[str], package: str) -> None:
    assert package not in ours


def test_import_adds_no_package_but_torchdiffeq(ours: set[str]) -> None:
    known = modules_after("import torch, sktime.forecasting.base")
    added = {name.partition(".")[0] for name in ours - known}
    known = {name.partition(".")[0] for name in known}
    assert added - known - sys.stdlib_module_names == {"sklode", "torchdiffeq"}


def test_plots_are_imported_without_matplotlib() -> None:
    assert "matplotlib" not in modules_after("import sklode.plotting")
