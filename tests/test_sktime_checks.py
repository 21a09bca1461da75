"""sktime's own suite of checks, all of it, on every forecaster."""

from __future__ import annotations

import pytest
from sktime.utils.estimator_checks import check_estimator

from sklode import AbsoluteHorizon, AlignedMetric, StructuralForecaster
from tests.series import FORECASTERS

ALL = [*FORECASTERS, StructuralForecaster]

# minutes each
SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in ALL]


@pytest.mark.filterwarnings("ignore")  # sktime's checks warn of their own doing
@pytest.mark.parametrize("kind", [*SLOW, AbsoluteHorizon, AlignedMetric])
def test_every_check_of_sktime_passes(kind: type) -> None:
    results = check_estimator(kind, raise_exceptions=False, verbose=False)
    # A misspelt or empty selection of checks passes too; so count them.
    assert len(results) >= (600 if kind in ALL else 40)
    failed = {name: why for name, why in results.items() if why != "PASSED"}
    assert failed == {}
