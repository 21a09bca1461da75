"""What cannot be computed is an error that says where; no answer is ever NaN."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from sklode.data.errors import SolverError
from tests.series import FORECASTERS, panel, tiny, uneven_stamps, waves

ANSWERS: dict[str, Callable[[Any, Any], Any]] = {
    "predict": lambda f, fh: f.predict(fh),
    "interval": lambda f, fh: f.predict_interval(fh),
    "quantiles": lambda f, fh: f.predict_quantiles(fh, alpha=[0.1, 0.9]),
    "variance": lambda f, fh: f.predict_var(fh),
    "sample": lambda f, fh: f.sample(fh),
    "smooth sample": lambda f, fh: f.sample(fh, noise=False),
}


def exploding(y: Any = None, sign: float = 1.0, **settings: Any) -> Any:
    """Return a fitted forecaster whose latent state overflows after some time units.

    With a sign of -1 it does so backward in time.
    """
    forecaster = tiny(**settings).fit(waves(uneven_stamps()) if y is None else y)
    field = forecaster.network_.decoder.vector_field
    with torch.no_grad():
        field.output.weight.fill_(0.0)
        field.output.bias.fill_(2e36 * sign)
    return forecaster


@pytest.mark.parametrize("engine", ["eager", "fused"])
@pytest.mark.parametrize("answer", ANSWERS)
def test_answer_that_overflows_is_an_error_that_names_stamp_and_remedy(
    answer: str, engine: str
) -> None:
    forecaster = exploding()
    forecaster.network_.encoder.solver.engine = engine
    assert np.isfinite(np.asarray(ANSWERS[answer](forecaster, [1, 2]), float)).all()
    told = (
        r"must be finite; got 1 of 2 rows that are not, the first at 2021-\d.*"
        r"method='rk4', step_size=1\).*Ask for.*lower lr"
    )
    with pytest.raises(SolverError, match=told):
        ANSWERS[answer](forecaster, [1, 900])


@pytest.mark.slow
def test_stamps_of_series_of_the_past_are_named_too() -> None:
    with pytest.raises(SolverError, match=r"first at s0, 2021-"):
        exploding(panel()).predict([900])
    with pytest.raises(SolverError, match="2020-"):
        exploding(sign=-1.0).predict(pd.DatetimeIndex(["2020-12-01"]))


def test_adaptive_solve_that_fails_names_the_stamps_asked() -> None:
    told = (
        r"method='dopri5' could not .*rk4.*Asked were stamps from 2021-\d.* to 2021-\d"
    )
    with pytest.raises(SolverError, match=told):
        exploding(method="dopri5").predict([1, 2000])


HARD: list[dict[str, Any]] = [
    {"method": "dopri5", "max_epochs": 3},
    {"early_stopping": True},
]


def is_finite_or_told(answer: Callable[[Any, Any], Any], *asked: Any) -> bool:
    """Return whether an answer is finite, or is an error that names the method."""
    try:
        found = np.asarray(answer(*asked), dtype=float)
    except SolverError as error:
        return "method=" in str(error)
    return bool(np.isfinite(found).all())


@pytest.mark.slow
@pytest.mark.parametrize("k", range(len(HARD)))
def test_hopeless_training_ends_in_finite_answers_or_readable_errors(k: int) -> None:
    settings = {"max_epochs": 8, "batch_size": 8, "horizon": 3, **HARD[k]}
    forecaster = tiny(FORECASTERS[k % 3], lr=5.0, clip_norm=None, **settings)
    y = panel((30, 25)) if k % 2 else waves(uneven_stamps(40))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        forecaster.fit(y)
        for answer in ANSWERS.values():
            for fh in ([1, 3], [30 if "dopri5" in HARD[k].values() else 300]):
                assert is_finite_or_told(answer, forecaster, fh)
