"""What the report on gradient clipping says of a training."""

from __future__ import annotations

import copy
import math
from typing import Any

import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from sklode.training import clipping_report
from tests.series import FORECASTERS, tiny, uneven_stamps, waves


@pytest.fixture(scope="module")
def fitted() -> Any:
    return tiny(max_epochs=3, clip_norm=1e-6).fit(waves(uneven_stamps()))


def with_history(forecaster: Any, history: pd.DataFrame) -> Any:
    """Return a copy of a fitted forecaster with another history."""
    forecaster = copy.copy(forecaster)
    forecaster.history_ = history
    return forecaster


def test_report_tells_when_gradients_exploded(fitted: Any) -> None:
    columns = {
        "grad_norm": [1.0, 3.0, 31.0, 2.0, math.nan, 29.0, 4.0],
        "clipped_fraction": [0.25, 1.0, 1.0, 0.5, math.nan, 1.0, 0.75],
        "skipped_steps": [0, 0, 0, 2, 5, 0, 0],
    }
    history = pd.DataFrame(columns, pd.RangeIndex(1, 8, name="epoch"))
    report = clipping_report(with_history(fitted, history))
    assert report.clip_norm == 1e-6
    assert report[1:5] == pytest.approx((0.75, 3.5, 31.0, 7))
    assert report.exploded.index.tolist() == [4, 5]
    report = clipping_report(with_history(fitted, history), factor=8)
    pd.testing.assert_frame_equal(report.exploded, history.loc[[3, 4, 5, 6]])


def test_report_of_a_fit_is_that_of_its_history(fitted: Any) -> None:
    report = clipping_report(fitted)
    norms = fitted.history_["grad_norm"]
    assert report[:5] == (1e-6, 1.0, norms.median(), norms.max(), 0)
    assert report.exploded.empty


def test_what_has_no_report_is_refused(fitted: Any) -> None:
    for kind in FORECASTERS:
        with pytest.raises(NotFittedError, match=rf"got a {kind.__name__} that is not"):
            clipping_report(kind())
    with pytest.raises(TypeError, match=r"got a Series\. Pass the fitted forecaster"):
        clipping_report(waves())
    with pytest.raises(ValueError, match=r"got one without an epoch .*was trained"):
        clipping_report(with_history(fitted, fitted.history_[:0]))
    for factor in (1.0, math.nan):
        with pytest.raises(ValueError, match=rf"factor must be above 1; got {factor}"):
            clipping_report(fitted, factor=factor)
