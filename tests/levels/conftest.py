from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sklode.levels import channel, fitting
from tests.levels.processes import ENGINES


@pytest.fixture(params=ENGINES, ids=["kernel", "matrices"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have either module run the filter; return it."""
    for room in (channel, fitting):
        monkeypatch.setattr(room, "kernel", lambda: request.param)
    return request.param


@pytest.fixture
def gaussian(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the filter take every innovation as it is."""
    monkeypatch.setattr(channel, "CUT", np.inf)
    monkeypatch.setattr(fitting, "CUT", np.inf)
