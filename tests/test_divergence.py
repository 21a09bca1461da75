"""What cannot be computed is an error that says where; no answer is ever NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from sklode.data.errors import SolverError
from tests.cases import mostly_slow
from tests.series import tiny, uneven_stamps, waves

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


@pytest.mark.parametrize("engine", mostly_slow(["eager", "fused"], "fused"))
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


def test_adaptive_solve_that_fails_names_the_stamps_asked() -> None:
    told = (
        r"method='dopri5' could not .*rk4.*Asked were stamps from 2021-\d.* to 2021-\d"
    )
    with pytest.raises(SolverError, match=told):
        exploding(method="dopri5").predict([1, 2000])
