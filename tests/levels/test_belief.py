"""Whether large innovations are believed; and series of which little is there."""

import math

import numpy as np
import pandas as pd
import pytest

from sklode.data.history import History
from sklode.levels.components import THRESHOLD
from sklode.levels.level import Level
from sklode.levels.periods import peaks


@pytest.mark.parametrize("kind", ["jumps", "spikes"])
def test_jumps_are_believed_and_spikes_are_not(kind: str) -> None:
    rng = np.random.default_rng(0)
    large = 20 * rng.standard_normal(400) * (rng.random(400) < 0.05)
    y = np.cumsum(rng.standard_normal(400) * 0.3)
    y += np.cumsum(large) if kind == "jumps" else large
    rows = History.of(pd.DataFrame({"y": y}), None).observations
    components = Level.fit(rows, (), False).channels[0]
    expected = math.inf if kind == "jumps" else THRESHOLD
    assert {component.threshold for component in components} == {expected}


@pytest.mark.parametrize("n", [1, 30])
def test_rows_at_one_time_have_no_peaks(n: int) -> None:
    assert peaks(np.zeros(n), np.arange(float(n)), 1.0) == []
