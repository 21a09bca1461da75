"""How much wider than the model's own spread the forecasts' spread must be.

A model's draws of z0 and its noise tell what it knows of its own error, which is
rarely enough: their spread is multiplied by a scale per channel that depends on the
time since the last observation, estimated from the errors of forecasts of windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.isotonic import isotonic_regression
from torch import Tensor

from sklode.data.errors import SolverError
from sklode.data.windows import SCORED_WINDOWS, WindowSet, spread
from sklode.nn import Batch, LatentODE, make_batch
from sklode.prediction.randomness import normals

Array = NDArray[np.floating]

_N_DRAWS = 32
"""Draws of z0 that the model's own spread is measured from."""

_KNOTS = 4
"""Parts of the time since the last observation, with equally many errors in each."""

_FEWEST = 10
"""Errors of so many rows are needed to say anything of a channel."""

_ROWS_ALIKE = 5
"""So many neighbouring rows tell as much of a forecast's error as one alone would."""

_QUANTILES = (0.5, 0.9)
_NORMAL = (0.6745, 1.6449)
"""Quantiles of absolute errors that are to be met, and a standard normal's."""

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


@dataclass(frozen=True, repr=False)
class Calibration:
    """What the spread of forecasts is multiplied by, linear in time between knots.

    The first lag, 0, stands for every stamp that the window covers; beyond the last one
    the scale is constant.
    """

    lags: Array  # (knot,): times since the last observation, increasing
    scales: Array  # (knot, channel)

    @classmethod
    def none(cls, n_channels: int) -> Calibration:
        """Return the one that changes nothing."""
        return cls(np.zeros(1), np.ones((1, n_channels)))

    def at(self, lags: Array) -> Array:
        """Return the scales at ``lags``, (..., channel); negative ones are 0."""
        columns = [np.interp(lags, self.lags, scale) for scale in self.scales.T]
        return np.stack(columns, axis=-1)

    def or_wider(self, other: Calibration) -> Calibration:
        """Return the larger scale of the two at every time."""
        lags = np.union1d(self.lags, other.lags)
        return Calibration(lags, np.maximum(self.at(lags), other.at(lags)))


class Residuals(NamedTuple):
    """Errors of a model's forecasts, in units of its own standard deviation."""

    values: Array  # (window, time, channel), NaN for what is not to be counted
    lags: Array  # (window, time): since the last one that was seen; else at most 0


def residuals_of(network: LatentODE, batch: Batch) -> Residuals:
    """Return errors of forecasts of what windows show, and of what is scored later."""
    with torch.no_grad():
        posterior = network.encode(batch)
        place = np.arange(len(batch.times))
        white = normals(0, 2, place, 0.0 * place, _N_DRAWS, network.latent_size)
        q_z0 = posterior.q_z0
        z0 = q_z0.mean + q_z0.stddev * torch.from_numpy(white).to(q_z0.mean)
        paths = _array(network.decode_draws(z0, posterior, batch.times, batch.path))
    deviation = np.sqrt(paths.var(0) + _array(network.emission.noise_scale) ** 2)
    counts = _array(batch.mask).astype(bool)
    if batch.scored is not None:
        counts[:, batch.n_seen :] = _array(batch.scored)[:, batch.n_seen :] > 0
    with np.errstate(invalid="ignore", over="ignore"):
        errors = (_array(batch.values) - paths.mean(0)) / deviation
    errors = np.where(counts & np.isfinite(errors), errors, np.nan)
    # padding repeats the last stamp, so that it is no later than what was seen
    last = batch.times[:, : batch.n_seen].max(dim=1, keepdim=True).values
    return Residuals(errors, _array(batch.times - last))


def calibrate(
    residuals: Residuals, n_rows: int, optimism: float, least: float = 1.0
) -> Calibration:
    r"""Return the scale that residuals ask for, of ``n_rows`` different rows.

    .. math::
        c(\tau) = \max\Big(c_0, \; o \, (1 + 1 / \nu) \, \tfrac{1}{2} \sum_{p}
        \frac{Q_p(|r|)}{\Phi^{-1}((1 + p) / 2)}\Big), \quad p = 0.5, 0.9

    with r the residuals at a lag near :math:`\tau`, o the ``optimism`` (what errors on
    new data are expected to be, relative to these), :math:`c_0` the ``least`` scale and
    :math:`1 + 1/\nu` about the ratio of Student's 95 % quantile to the normal one for
    as many errors as the rows amount to. It does not fall with :math:`\tau`. For
    stamps that the window covers it is :math:`c(0)`, without the two factors.
    """
    values, lags = residuals
    ahead = lags > 0
    counted = lags[ahead & ~np.isnan(values).all(-1)]
    edges, knots = np.zeros(0), np.zeros(0)
    if len(counted) >= _FEWEST:
        edges = np.unique(np.quantile(counted, np.arange(_KNOTS) / _KNOTS))
        place = np.searchsorted(edges, counted, side="right") - 1
        knots = np.array([np.median(counted[place == k]) for k in range(len(edges))])
        knots[0] = min(knots[0], 1.0)  # an error of the first step is one of forecasts
    part = np.where(ahead, np.searchsorted(edges, lags, side="right"), 0)
    factor = optimism * (1 + 1 / max(n_rows / _ROWS_ALIKE, 2))
    scales = np.ones((len(knots) + 1, values.shape[-1]))
    for channel in range(scales.shape[1]):
        errors = values[..., channel]
        if np.isfinite(errors[ahead]).sum() < _FEWEST:
            errors = values
        parts = [np.abs(errors[part == k]) for k in range(len(scales))]
        parts = [sizes[np.isfinite(sizes)] for sizes in parts]
        scales[:, channel] = [_spread_of(sizes) for sizes in parts]
        if len(knots):
            squares = isotonic_regression(
                scales[1:, channel] ** 2,
                sample_weight=[max(len(sizes), 1) for sizes in parts[1:]],
            )
            scales[1:, channel] = factor * np.sqrt(squares)
    return Calibration(np.append(0.0, knots), np.maximum(scales, least))


def _spread_of(sizes: Array) -> float:
    """Return the scale of a normal distribution with such quantiles; 1 for few."""
    if len(sizes) < _FEWEST:
        return 1.0
    return float(np.mean(np.quantile(sizes, _QUANTILES) / _NORMAL))


def _array(x: Tensor) -> Array:
    return x.detach().cpu().numpy().astype(np.float64)


def measured_calibration(
    model: Any,
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
    held_out, n_rows = _measured(model, reaching, cut, _DRIFT, _LEAST)
    if held_out is not None and n_rows >= _MANY_HELD_OUT:
        return held_out
    # from a half on, thinning takes the doubt of rows trained on away
    optimism = max(_OPTIMISM + (1 - _OPTIMISM) * thinning / 0.5, 1.0)
    trained, _ = _measured(model, reaching, first, optimism, _LEAST)
    if held_out is not None and trained is not None:
        return held_out.or_wider(trained)
    return held_out or trained or model.calibration


def _measured(
    model: Any,
    reaching: WindowSet,
    from_row: NDArray[np.int64],
    optimism: float,
    least: float,
) -> tuple[Calibration | None, int]:
    """Measure forecasts of the rows of each series from one on; None for too few.

    With it comes the number of rows.
    """
    first, end = reaching.bounds[:-1], reaching.bounds[1:]
    start = np.maximum(from_row, first + model.window_length)
    n_rows = int(np.maximum(end - start, 0).sum())
    seen = reaching.start + model.window_length
    which = np.flatnonzero(reaching.end > np.maximum(start[reaching.series], seen))
    if n_rows < _FEWEST or not len(which):
        return None, n_rows
    which = spread(which, SCORED_WINDOWS)
    device = next(model.network.parameters()).device
    batch = make_batch(reaching, which, device, from_row[reaching.series[which]])
    try:
        residuals = residuals_of(model.network, batch)
    except SolverError:
        return None, n_rows
    return calibrate(residuals, n_rows, optimism, _LEAST), n_rows
