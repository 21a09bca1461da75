"""A misspelt choice is answered with the one that was meant."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from sklode import calendar_features, nn
from sklode.data.choices import check_choice, did_you_mean
from sklode.levels.anchors import Anchor
from tests.series import tiny, waves


@pytest.mark.parametrize(
    ("parameter", "misspelt", "meant"),
    [
        ("activation", "tahn", "tanh"),
        ("activation", "Soft-Plus", "softplus"),
        ("method", "RK4", "rk4"),
        ("method", "dopri_5", "dopri5"),
        ("method", "mid point", "midpoint"),
        ("normalize", "Last", "last"),
        ("normalize", "windows", "window"),
        ("clip_norm", "automatic", "auto"),
        ("engine", "unroled", "unrolled"),
    ],
)
def test_a_misspelt_choice_is_answered_with_the_nearest(
    parameter: str, misspelt: str, meant: str
) -> None:
    message = rf"'{parameter}' .*Got '{misspelt}' instead\. Did you mean \"{meant}\"\?$"
    with pytest.raises(ValueError, match=message):
        tiny(**{parameter: misspelt}).fit(waves())


@pytest.mark.parametrize(
    ("parameter", "value"),
    [("activation", "sigmoid"), ("engine", "gpu"), ("activation", 1), ("lr", "tanh")],
)
def test_nothing_is_suggested_where_nothing_is_near(parameter: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"'{parameter}' .* instead\.$"):
        tiny(**{parameter: value}).fit(waves())


def test_a_number_is_not_taken_for_a_choice() -> None:
    assert did_you_mean(4, ["rk4"]) == ""
    assert did_you_mean(None, ["none"]) == ""


def test_a_choice_that_is_right_passes() -> None:
    check_choice("start", "normal", ("windows", "normal"))
    with pytest.raises(
        ValueError, match=r'^start must be one of "a", "b"; got None\.$'
    ):
        check_choice("start", None, ("a", "b"))


def test_misspelt_arguments_of_methods_and_functions_are_answered_too() -> None:
    forecaster = tiny().fit(waves())
    message = r'start must be one of "windows", "normal"; got \'window\'\. Did you mean'
    with pytest.raises(ValueError, match=message + r' "windows"\?$'):
        forecaster.sample_prior(waves().index, start="window")
    days = pd.date_range("2026-01-01", periods=3)
    with pytest.raises(ValueError, match=r'got \'Weak\'\..* Did you mean "week"\?$'):
        calendar_features(days, "Weak")


@pytest.mark.parametrize(
    ("build", "meant"),
    [
        (lambda: nn.FixedStepSolver("midpiont"), "midpoint"),
        (lambda: nn.VectorField(3, activation="Tanh"), "tanh"),
        (lambda: Anchor("blended", 1), "blend"),
    ],
)
def test_parts_of_a_network_refuse_a_misspelt_choice(build: Any, meant: str) -> None:
    with pytest.raises(ValueError, match=rf'must be one of .* Did you mean "{meant}"'):
        build()
