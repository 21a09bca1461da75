"""What norm gradient clipping did in a fit."""

from __future__ import annotations

from typing import Any, NamedTuple

import pandas as pd

from sklode.data.checks import check_fitted, check_trained

__all__ = ["ClippingReport", "clipping_report"]


class ClippingReport(NamedTuple):
    """What `clipping_report` returns.

    Attributes
    ----------
    clip_norm : float, "auto" or None
        The forecaster's parameter: the threshold. That of "auto", a median over the
        first epochs' steps, is not recorded.
    clipped_fraction : float
        Share of the steps whose gradient was clipped, the mean over epochs; 0 without
        clipping.
    median_norm, max_norm : float
        Of the epochs' mean gradient norms before clipping.
    skipped_steps : int
        Steps that were left out because loss or gradient was not finite.
    exploded : DataFrame
        Rows of ``history_`` of the epochs in which gradients exploded.
    """

    clip_norm: float | str | None
    clipped_fraction: float
    median_norm: float
    max_norm: float
    skipped_steps: int
    exploded: pd.DataFrame


def clipping_report(forecaster: Any, factor: float = 10.0) -> ClippingReport:
    """Report on the gradient norms of the last fit or update, and their clipping.

    Paper, section "Norm Gradient Clipping": the threshold "can be tuned by looking at
    the average norm of the gradients during training".

    Parameters
    ----------
    forecaster : LatentODEForecaster, LatentODERNNForecaster or LatentODELSTMForecaster
        Fitted.
    factor : float, default=10.0
        Gradients exploded in an epoch whose mean norm is more than this many times the
        median epoch's, or that skipped a step.

    Returns
    -------
    ClippingReport

    Raises
    ------
    TypeError
        If ``forecaster`` is none of the three.
    NotFittedError
        If it is not fitted.
    ValueError
        If its last fit trained for no epoch, or ``factor`` is not above 1.

    Notes
    -----
    ``history_`` has a row per epoch: a single large step shows by its share in the mean
    over the epoch's steps.
    """
    check_fitted(forecaster, "clipping_report")
    if not factor > 1:
        raise ValueError(f"factor must be above 1; got {factor!r}.")
    history = forecaster.history_
    check_trained(history, "clipping_report")
    norms = history["grad_norm"]
    exploded = (norms > factor * norms.median()) | (history["skipped_steps"] > 0)
    return ClippingReport(
        forecaster.clip_norm,
        float(history["clipped_fraction"].mean()),
        float(norms.median()),
        float(norms.max()),
        int(history["skipped_steps"].sum()),
        history[exploded],
    )
