"""How forecasters show themselves, and which version they say they are of."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import sklode
from sklode.prediction.calibration import Calibration
from tests.series import FORECASTERS, panel, tiny

ROOT = Path(sklode.__file__).parents[1]


class Tagged:
    """A callback whose text has to be escaped."""

    def on_epoch_end(self, forecaster: Any, row: dict[str, float]) -> None:
        pass


@pytest.mark.parametrize("kind", FORECASTERS)
def test_only_parameters_that_were_changed_are_shown(kind: type) -> None:
    assert repr(kind()) == f"{kind.__name__}()"
    assert repr(kind(hidden_size=8)) == f"{kind.__name__}(hidden_size=8)"
    assert repr(kind(hidden_size=32, device="cpu", random_state=0)) == (
        f"{kind.__name__}(device='cpu', random_state=0)"
    )


def test_objects_as_parameters_are_shown_too() -> None:
    settings: dict[str, Any] = {
        "device": torch.device("cpu"),
        "freq": pd.Timedelta("90min"),
        "callbacks": [Tagged()],
        "random_state": np.random.RandomState(0),
    }
    forecaster = sklode.LatentODEForecaster(**settings)
    shown = repr(forecaster)
    assert "device(type=" in shown
    assert "Timedelta('0 days 01:30:00')" in shown
    assert "Tagged object at" in shown
    assert "RandomState(MT19937)" in shown


def test_models_do_not_write_out_their_numbers() -> None:
    forecaster = tiny(max_epochs=3).pretrain(panel())
    assert repr(forecaster.pretrained_) == (
        "FittedModel(encoder=ODELSTM, channels=1, window_length=6, horizon=2, "
        "epochs=3, best_epoch=3)"
    )
    calibration = Calibration(np.arange(3.0), np.array([[0.5, 1], [2, 3], [4, 5]]))
    expected = "Calibration(knots=3, channels=2, scales from 0.5 to 5)"
    assert repr(calibration) == expected


def test_the_version_is_that_of_the_metadata() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    written = re.search(r'^version = "(.*)"$', text, re.MULTILINE)
    assert written is not None
    assert sklode.__version__ == importlib.metadata.version("sklode") == written[1]


TYPED = """
import numpy as np
import pandas as pd
from sklode import AbsoluteHorizon, LatentODELSTMForecaster, calendar_features
from sklode.data import load_co2

y: pd.Series = load_co2()
forecaster: LatentODELSTMForecaster = LatentODELSTMForecaster(
    hidden_size=8, normalize=None, clip_norm="auto", random_state=0, callbacks=[print]
)
forecaster.fit(y)
index: pd.DatetimeIndex = pd.date_range("2020", periods=3)
at: pd.DataFrame = forecaster.predict_at(index)
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
    answers = {}
    for name, program in {"right": TYPED, "wrong": MISTYPED}.items():
        path = tmp_path / f"{name}.py"
        path.write_text(textwrap.dedent(program), encoding="utf-8")
        config = tmp_path / "mypy.ini"
        config.write_text("[mypy]\nignore_missing_imports = true\n", encoding="utf-8")
        command = [sys.executable, "-m", "mypy", "--strict", "--config-file"]
        done = subprocess.run(
            [*command, str(config), str(path)],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "MYPYPATH": str(ROOT)},
        )
        answers[name] = done.stdout
    own = [line for line in answers["right"].splitlines() if "right.py" in line]
    assert own == []
    found = re.findall(r"wrong\.py:(\d+): error", answers["wrong"])
    assert sorted(set(found)) == ["4", "5", "6"]
