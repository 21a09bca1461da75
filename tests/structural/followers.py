"""Columns of which one follows another, and how well that is forecast."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from sklode import StructuralForecaster
from sklode.data.history import History
from sklode.structural.fit import fit_model
from sklode.structural.model import StructuralModel
from tests.series import led


def level(y: pd.DataFrame) -> StructuralModel:
    return fit_model(History.of(y, None).observations, (), False)


def plain(logarithm: bool = False) -> StructuralForecaster:
    return StructuralForecaster(seasons=None, logarithm=logarithm, random_state=0)


def gain_of_the_leader() -> float:
    """Return the mean squared error ahead over that of the follower alone."""
    y = led()
    errors = {}
    for names in (["follower"], ["leader", "follower"]):
        forecaster = plain().fit(y[names][:-11])
        squares = []
        for row in range(len(y) - 11, len(y) - 3):
            truth = y["follower"].to_numpy()[row : row + 3]
            ahead = forecaster.predict(fh=[1, 2, 3])["follower"]
            squares.append((ahead - truth) ** 2)
            forecaster.update(y[names][row : row + 1], update_params=False)
        errors[len(names)] = np.mean(squares)
    return float(errors[2] / errors[1])


def unrelated(n: int) -> Iterator[pd.DataFrame]:
    """Yield n pairs of columns, by turns noise and walks."""
    for seed in range(n):
        values = np.random.default_rng(seed).standard_normal((250, 2))
        values = np.cumsum(values, axis=0) if seed % 2 else values
        yield pd.DataFrame(values, columns=["a", "b"])
