"""sktime's own suite of checks, all of it, on every forecaster."""

from __future__ import annotations

from typing import Any

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

FORECASTERS = [
    (LatentODELSTMForecaster, 0),
    (LatentODELSTMForecaster, 1),
    # the other test settings differ in what is fitted, not in what is asked
    (StructuralForecaster, 0),
]
"""Those whose code differs, with which of their test settings; other networks differ
from the first in one class attribute."""

TRANSFORMERS = [
    (kind, which)
    for kind in (StructuralDetector, StructuralImputer, StructuralResampler)
    for which in (0, 1)
]


def failed_of(checked: Any, n_least: int, **chosen: Any) -> dict[str, Any]:
    results = check_estimator(checked, raise_exceptions=False, verbose=False, **chosen)
    # A misspelt or empty selection of checks passes too; so count them.
    assert len(results) >= n_least
    return {name: why for name, why in results.items() if why != "PASSED"}


@pytest.mark.slow  # up to minutes each
@pytest.mark.filterwarnings("ignore")  # sktime's checks warn of their own doing
@pytest.mark.parametrize(("kind", "which"), [*FORECASTERS, *TRANSFORMERS])
def test_every_check_of_sktime_passes(kind: Any, which: int) -> None:
    instances, _ = kind.create_test_instances_and_names()
    n_least = 300 if (kind, which) in FORECASTERS else 40
    assert failed_of(instances[which], n_least) == {}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [AbsoluteHorizon, AlignedMetric])
def test_every_check_of_a_part_of_an_evaluation_passes(kind: type) -> None:
    assert failed_of(kind, n_least=40) == {}


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
