"""How far a model's spreads are off, on held-out rows and on those trained on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sklode.data.errors import SolverError
from sklode.data.windows import SCORED_WINDOWS, WindowSet, spread
from sklode.nn import make_batch
from sklode.prediction.calibration import FEWEST, Calibration, calibrate, residuals_of
from sklode.prediction.model import FittedModel

__all__ = ["measured_calibration"]

_MANY_HELD_OUT = 200
"""From this many held-out rows on, errors on the others need not be looked at."""

_LEAST = 0.5
"""Scales are no smaller, however good the forecasts of the training rows are."""

_DRIFT, _OPTIMISM = 1.25, 1.3
"""How much larger errors of forecasts are than those measured: held-out, trained on.

Held-out rows chose the epoch, follow the others at once and are few. Rows trained on
need no factor where windows are thinned by a half: forecasts of them see more than
training showed. The factors were set on series of two sines, see docs/uncertainty.md.
"""


def measured_calibration(
    model: FittedModel,
    windows: WindowSet,
    cut: NDArray[np.int64],
    epochs: int,
    thinning: float,
) -> Calibration | None:
    """Measure how far forecasts are off, on held-out rows and on those trained on.

    The larger of the two scales counts, since held-out rows are few and may happen to
    be easy ones; where they are many, theirs does. All are held out from a model that
    was not trained here. Where there are too few to tell, what the model had is kept.
    """
    reaching = windows.reaching(max(2 * model.horizon, model.window_length))
    first = reaching.bounds[:-1]
    if not epochs:
        found, _ = _measured(model, reaching, first, 1.0, 1.0)
        return found or model.calibration
    # a noise that was given is never doubted to be as large
    least = _LEAST if model.network.emission.noise is None else 1.0
    held_out, n_rows = _measured(model, reaching, cut, _DRIFT, least)
    if held_out is not None and n_rows >= _MANY_HELD_OUT:
        return held_out
    trained, _ = _measured(model, reaching, first, _optimism(thinning), least)
    if held_out is not None and trained is not None:
        return held_out.or_wider(trained)
    return held_out or trained or model.calibration


def _measured(
    model: FittedModel,
    reaching: WindowSet,
    from_row: NDArray[np.int64],
    optimism: float,
    least: float,
) -> tuple[Calibration | None, int]:
    """Measure forecasts of the rows of each series from one on; None for too few.

    Returns
    -------
    Calibration or None
    int
        The number of rows.
    """
    first, end = reaching.bounds[:-1], reaching.bounds[1:]
    start = np.maximum(from_row, first + model.window_length)
    n_rows = int(np.maximum(end - start, 0).sum())
    which = np.flatnonzero(reaching.end > start[reaching.series])
    which = which[reaching.end[which] > reaching.start[which] + model.window_length]
    if n_rows < FEWEST or not len(which):
        return None, n_rows
    which = spread(which, SCORED_WINDOWS)
    device = next(model.network.parameters()).device
    batch = make_batch(reaching, which, device, from_row[reaching.series[which]])
    try:
        residuals = residuals_of(model.network, batch)
    except SolverError:
        return None, n_rows
    return calibrate(residuals, n_rows, optimism, least), n_rows


def _optimism(thinning: float) -> float:
    """Return the factor of rows trained on: from a half on, thinning takes it away."""
    return max(_OPTIMISM + (1 - _OPTIMISM) * thinning / 0.5, 1.0)
