"""What a fitted model answers is finite, or it is an error that names the stamp."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sklode.data.errors import SolverError
from sklode.nn.solvers import AdaptiveSolver, Solver

__all__ = ["answering", "check_finite"]


@contextmanager
def answering(index: pd.Index) -> Iterator[None]:
    """Name the stamps that were asked where an equation cannot be solved.

    Parameters
    ----------
    index : Index
        The rows that were asked; their last level is time.

    Raises
    ------
    SolverError
    """
    try:
        yield
    except SolverError as error:
        stamps = index.get_level_values(-1)
        raise SolverError(
            f"{error} Asked were stamps from {stamps.min()} to {stamps.max()}."
        ) from error


def check_finite(
    values: NDArray[np.floating], index: pd.Index, solver: Solver, activation: str
) -> None:
    """Check that every value of an answer is finite.

    Parameters
    ----------
    values : ndarray of shape (..., row, channel)
        Forecasts, variances or draws.
    index : Index
        The rows.
    solver : FixedStepSolver or AdaptiveSolver
        What solved the decoder's equation.
    activation : str
        Of its vector field.

    Raises
    ------
    SolverError
        Naming the first row that is not, the method, and what to change.
    """
    is_finite = np.isfinite(values).all(axis=-1)
    good = is_finite.all(axis=tuple(range(is_finite.ndim - 1)))
    if good.all():
        return
    first, n_bad = index[np.argmin(good)], int((~good).sum())
    accuracy = f"step_size={solver.step_size:g}"
    if isinstance(solver, AdaptiveSolver):
        accuracy = f"rtol={solver.rtol:g}, atol={solver.atol:g}"
    raise SolverError(
        f"a forecast must be finite; got {n_bad} of {len(good)} rows that are not, "
        f"the first at {_written(first)}: the latent trajectory overflows "
        f"(method={solver.method!r}, {accuracy}, activation={activation!r}). Ask for "
        'stamps nearer to the observations, or fit again with activation="tanh", a '
        "lower lr, a lower clip_norm or a smaller step_size."
    )


def _written(row: object) -> str:
    return ", ".join(map(str, row)) if isinstance(row, tuple) else str(row)
