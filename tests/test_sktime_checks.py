"""sktime's own suite of checks, all of it, on every forecaster."""

from __future__ import annotations

import pytest
from sktime.utils.estimator_checks import check_estimator

from sklode import (
    AbsoluteHorizon,
    AlignedMetric,
    LatentODEForecaster,
    LatentODELSTMForecaster,
    LatentODERNNForecaster,
    StructuralDetector,
    StructuralForecaster,
    StructuralImputer,
    StructuralResampler,
)

ALL = [LatentODELSTMForecaster, StructuralForecaster]
"""Those whose code differs; the others differ from the first in one class attribute."""

# minutes each
BESIDE = [StructuralDetector, StructuralImputer, StructuralResampler]
SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in ALL + BESIDE]


@pytest.mark.filterwarnings("ignore")  # sktime's checks warn of their own doing
@pytest.mark.parametrize("kind", [*SLOW, AbsoluteHorizon, AlignedMetric])
def test_every_check_of_sktime_passes(kind: type) -> None:
    results = check_estimator(kind, raise_exceptions=False, verbose=False)
    # A misspelt or empty selection of checks passes too; so count them.
    assert len(results) >= (600 if kind in ALL else 40)
    failed = {name: why for name, why in results.items() if why != "PASSED"}
    assert failed == {}


OF_A_CLASS = [
    "test_constructor",
    "test_clone",
    "test_get_params",
    "test_set_params",
    "test_create_test_instance",
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [LatentODEForecaster, LatentODERNNForecaster])
def test_checks_of_what_a_class_says_of_itself_pass(kind: type) -> None:
    results = check_estimator(
        kind, raise_exceptions=False, tests_to_run=OF_A_CLASS, verbose=False
    )
    assert {name.partition("[")[0] for name in results} == set(OF_A_CLASS)
    assert set(results.values()) == {"PASSED"}
