from __future__ import annotations

from typing import Any

import pytest

from sklode.levels import channel, components, fitting
from tests.levels.processes import ENGINES


@pytest.fixture(params=ENGINES, ids=["kernel", "matrices"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have either module run the filter; return it."""
    for room in (channel, components, fitting):
        monkeypatch.setattr(room, "kernel", lambda: request.param)
    return request.param
