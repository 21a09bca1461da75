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
    return modules_after("import sklode; sklode.LatentODEForecaster")


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


STRUCTURAL = """
import pickle
import numpy as np
import pandas as pd
from sklode import StructuralForecaster
y = pd.Series(np.sin(np.arange(40.0)), pd.date_range("2020", periods=40))
forecaster = StructuralForecaster(seasons=["7D"]).fit(y[:30]).update(y[30:])
forecaster.predict([1, 2]), forecaster.predict_interval([1, 2]), forecaster.sample([1])
pickle.loads(pickle.dumps(forecaster)).predict([1])
"""

# sktime itself imports torch where that is installed
REFUSE_TORCH = """
import builtins
given = builtins.__import__

def refusing(name, globals=None, *others, **options):
    importer = (globals or {}).get("__name__", "")
    is_torch = name.partition(".")[0] in ("torch", "torchdiffeq")
    if is_torch and importer.partition(".")[0] == "sklode":
        raise ModuleNotFoundError(f"{importer} imports {name}")
    return given(name, globals, *others, **options)

builtins.__import__ = refusing
"""


@pytest.mark.parametrize(
    "statement",
    [
        "import sklode; dir(sklode)",
        "import sklode.data, sklode.model_selection, sklode.plotting",
        "import sklode.forecasters.base",
        STRUCTURAL,
    ],
)
def test_only_the_latent_odes_need_torch(statement: str) -> None:
    found = modules_after(f"{REFUSE_TORCH}\n{statement}")
    assert "sklode.data.clock" in found
    assert not {name for name in found if name.startswith("sklode.nn")}


def test_a_latent_ode_without_torch_says_what_is_missing() -> None:
    message = r"ModuleNotFoundError: sklode\.\S+ imports torch"
    with pytest.raises(AssertionError, match=message):
        modules_after(f"{REFUSE_TORCH}\nimport sklode; sklode.LatentODEForecaster")


def test_plots_are_imported_without_matplotlib() -> None:
    assert "matplotlib" not in modules_after("import sklode.plotting")
