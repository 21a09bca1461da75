"""How much wider than the model's own spread that of forecasts must be.

A model rarely knows all of its error: its spread is multiplied by a scale per
channel that depends on the time since the last observation, estimated from the
errors of forecasts of windows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from sklearn.isotonic import isotonic_regression

from sklode.data.arrays import Array, Numbers
from sklode.data.errors import SolverError
from sklode.data.scaled_rows import spread
from sklode.data.scaling import normal_scale
from sklode.latent_ode.network import Batch, LatentODE
from sklode.latent_ode.randomness import normals
from sklode.latent_ode.windows import SCORED_WINDOWS, WindowSet
from sklode.structural.predictive.scale_by_lead import interpolated, parts_of

_N_DRAWS = 32  # of z0, that the model's own spread is measured from
_FEWEST = 10  # rows that say anything of a channel
_ROWS_ALIKE = 5  # so many neighbouring rows tell as much as one alone
_MANY = 200  # so many held-out rows suffice alone
_LEAST = 0.5  # scale, however good the forecasts of the training rows are

_DRIFT, _OPTIMISM = 1.25, 1.3
"""How much larger errors are than those measured: held-out, trained on.

Held-out rows chose the epoch. Rows trained on need no factor if thinned by half.
Set on series of two noisy sines.
"""


class Residuals(NamedTuple):
    """Errors of forecasts of windows, in the model's own deviations."""

    errors: Array  # (window, time, channel); NaN for what does not count
    lags: Array  # (window, time): times since the last stamp seen, else at most 0


def scales_at(table: Array, lags: Array) -> Array:
    """Return the scales at times since the last observation, (lag, channel).

    They are linear between the rows of a ``table``, (knot, 1 + channel), whose first
    column are lags; 0, the first, stands for every stamp that the window covers.
    """
    return interpolated(lags, table[:, 0], table[:, 1:])


def residuals_of(network: LatentODE, batch: Batch) -> Residuals:
    """Return errors of a network's forecasts of windows."""
    with torch.no_grad():
        posterior = network.encode(batch)
        q_z0 = posterior.q_z0
        # the same draws whenever it is measured: a place is a window's number
        place = np.arange(len(batch.times))
        white = normals(
            seed=0,
            kind=2,
            series=place,
            times=np.zeros(len(place)),
            n_draws=_N_DRAWS,
            width=network.latent_size,
        )
        z0 = q_z0.mean + q_z0.stddev * torch.from_numpy(white).to(q_z0.mean)
        drawn = network.decode(z0, posterior, times=batch.times, controls=batch.path)
        paths, noise = drawn.double(), network.noise_scale.double()
        # of what is observed: of x^ over draws, and the noise's beside it
        deviation = torch.sqrt(paths.var(0, correction=0) + noise**2)
        errors = (batch.values.double() - paths.mean(0)) / deviation
        # rows that the encoder saw count wherever they are; those after, if held out
        counts = batch.mask.clone()
        if batch.scored is not None:
            counts[:, batch.n_seen :] = batch.scored[:, batch.n_seen :]
        errors = torch.where(counts & errors.isfinite(), errors, torch.nan)
        # padding repeats the last stamp: it is no later than what was seen
        last = batch.times[:, : batch.n_seen].amax(dim=1, keepdim=True)
        lags = (batch.times - last).double()
    return Residuals(errors=errors.cpu().numpy(), lags=lags.cpu().numpy())


def calibrate(
    residuals: Residuals, n_rows: int, optimism: float, least: float = 1.0
) -> Array:
    r"""Return the table that `residuals_of` ``n_rows`` different rows ask for.

    .. math::
        c(\tau) = \max\Big(c_0, \; o \, (1 + 1 / \nu) \, \tfrac{1}{2} \sum_{p}
        \frac{Q_p(|r|)}{\Phi^{-1}((1 + p) / 2)}\Big), \quad p = 0.5, 0.9

    with r the residuals at a lag near :math:`\tau`, o the ``optimism`` (errors on new
    data, relative to these), :math:`c_0` the ``least`` scale and :math:`1 + 1/\nu`
    about the ratio of Student's 95 % quantile to the normal one. It does not fall with
    :math:`\tau`. For stamps that the window covers it is :math:`c(0)`, without factors.
    """
    errors, lags = residuals
    knots: Array = np.zeros(0)
    ahead = lags > 0
    counts = ahead & ~np.isnan(errors).all(-1)
    # 0 for what the window covers or does not count, else the lag's part, from 1 on
    part = np.zeros(lags.shape, np.int64)
    if counts.sum() >= _FEWEST:
        number, knots = parts_of(lags[counts], method="linear")
        part[counts] = number + 1
        knots[0] = min(knots[0], 1.0)  # the first step is a forecast
    # of n degrees of freedom Student's 95 % quantile is about 1 + 1 / n normal ones
    factor = optimism * (1 + 1 / max(n_rows / _ROWS_ALIKE, 2))
    scales = np.ones((len(knots) + 1, errors.shape[-1]))
    # columns of the transpose are views: scales are filled in place
    for channel, scale in enumerate(scales.T):
        own = errors[..., channel]
        # too few of a channel: those of all
        if np.isfinite(own[ahead]).sum() < _FEWEST:
            own = errors
        n_errors = np.ones(len(scale))
        for k in range(len(scale)):
            sizes = np.abs(own[part == k])
            sizes = sizes[np.isfinite(sizes)]
            n_errors[k] = max(len(sizes), 1)
            if len(sizes) >= _FEWEST:
                scale[k] = normal_scale(sizes)
        # the nearest variances that never fall, each by how many errors tell it
        if len(knots):
            variances = scale[1:] ** 2
            rising = isotonic_regression(variances, sample_weight=n_errors[1:])
            scale[1:] = factor * np.sqrt(rising)
    knots = np.append(0.0, knots)
    return np.column_stack([knots, np.maximum(scales, least)])


def measured_calibration(
    network: LatentODE,
    windows: WindowSet,
    cut: Numbers,
    epochs: int,
    thinning: float,
) -> Array | None:
    """Measure how far forecasts are off, on rows held out and trained on.

    The larger scale counts, since rows held out, each series' from ``cut`` on,
    may be easy ones; where they are many, theirs does. A model that was not trained
    here, of no ``epochs``, has seen none of them: all count as held out. None where
    there are too few.
    """
    window_length = windows.window_length
    reaching = windows.reaching(max(2 * windows.horizon, window_length))
    first = reaching.bounds[:-1]
    # from a half on, thinning takes the doubt away
    optimism = max(_OPTIMISM + (1 - _OPTIMISM) * thinning / 0.5, 1.0)
    # rows that forecasts are tried on, each series' from one on; how much larger
    # errors are on new data; and the least scale
    measures = [(cut, _DRIFT, _LEAST), (first, optimism, _LEAST)]
    if not epochs:
        measures = [(first, 1.0, 1.0)]
    found: list[Array] = []
    for from_row, optimism, least in measures:
        # rows that a whole window stands before, so that a forecast may be of them
        start = np.maximum(from_row, first + window_length)
        n_rows = int(np.maximum(reaching.bounds[1:] - start, 0).sum())
        if n_rows < _FEWEST:
            continue
        seen = reaching.start + window_length
        reaches = reaching.end > np.maximum(start[reaching.series], seen)
        which = spread(np.flatnonzero(reaches), SCORED_WINDOWS)
        if not len(which):
            continue
        batch = reaching.gather(
            which,
            scored_from=from_row[reaching.series[which]],
            device=next(network.parameters()).device,
        )
        try:
            residuals = residuals_of(network, batch)
        # of an equation that cannot be solved there are none
        except SolverError:
            continue
        found.append(calibrate(residuals, n_rows, optimism=optimism, least=least))
        if n_rows >= _MANY:
            break
    if not found:
        return None
    # tables have knots of their own: at those of all the larger scale counts
    lags = np.unique(np.concatenate([table[:, 0] for table in found]))
    scales = np.max([scales_at(table, lags) for table in found], axis=0)
    return np.column_stack([lags, scales])
