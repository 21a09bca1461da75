"""How forecasters show themselves, and which version they say they are of."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import textwrap
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import sklode
from sklode.prediction.calibration import Calibration
from tests.series import FORECASTERS, channels, panel, tiny, uneven_stamps, waves

ROOT = Path(sklode.__file__).parents[1]


class Tagged:
    """A callback whose text has to be escaped."""

    def on_epoch_end(self, forecaster: Any, row: dict[str, float]) -> None:
        pass


def text_of(html: str) -> str:
    """Return the text that a page shows, without its markup."""
    shown = re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)
    return unescape(re.sub(r"<[^>]+>", " ", shown))


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
    for shown in (repr(forecaster), text_of(forecaster._repr_html_())):
        assert "device(type=" in shown
        assert "Timedelta('0 days 01:30:00')" in shown
        assert "Tagged object at" in shown
        assert "RandomState(MT19937)" in shown
    html = forecaster._repr_html_()
    assert "<tests." not in html
    assert "&lt;tests." in html


def test_html_says_whether_it_is_fitted_and_on_what() -> None:
    forecaster = tiny(max_epochs=2)
    assert "not fitted" in text_of(forecaster._repr_html_())
    forecaster.fit(channels(uneven_stamps()))
    shown = text_of(forecaster._repr_html_())
    assert "not fitted" not in shown
    assert "fitted" in shown
    assert "24 rows, 2 channels; best epoch 2 of 2; time unit 0 days" in shown
    X = pd.DataFrame({"u": np.arange(24.0)}, waves().index)
    shown = text_of(tiny().fit(waves(), X)._repr_html_())
    assert "24 rows, 1 channel, 1 control; best epoch 1 of 1; time unit 50.0" in shown


def test_html_of_a_pretrained_one_and_of_a_panel() -> None:
    forecaster = tiny().pretrain(panel())
    shown = text_of(forecaster._repr_html_())
    assert "pretrained" in shown
    assert "rows" not in shown
    assert "49 rows, 3 series, 1 channel" in text_of(tiny().fit(panel())._repr_html_())


def test_html_separates_changed_parameters_from_the_others() -> None:
    html = sklode.LatentODEForecaster(hidden_size=8, lr=0.01)._repr_html_()
    changed = re.findall(r"<tr class='changed'><td>(\w+)</td><td>(.*?)</td>", html)
    assert changed == [("hidden_size", "8"), ("lr", "0.01")]
    others = re.findall(r"<tr class='default'><td>(\w+)</td>", html)
    names = sklode.LatentODEForecaster.get_param_names()
    assert sorted([*others, "hidden_size", "lr"]) == sorted(names)
    assert f"{len(others)} parameters at their defaults" in html


def test_long_values_are_cut() -> None:
    html = sklode.LatentODEForecaster(callbacks=[Tagged()] * 50)._repr_html_()
    assert max(map(len, text_of(html).split("  "))) < 200


def test_notebooks_get_text_and_html_unless_configured_otherwise() -> None:
    forecaster = tiny()
    bundle = forecaster._repr_mimebundle_()
    assert bundle["text/plain"] == repr(forecaster)
    assert bundle["text/html"] == forecaster._repr_html_()
    forecaster.set_config(display="text")
    assert set(forecaster._repr_mimebundle_()) == {"text/plain"}
    assert not hasattr(forecaster, "_repr_html_")


def test_html_refers_to_no_other_site() -> None:
    assert "http" not in tiny().fit(waves())._repr_html_()


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
