"""How well a candidate forecasts y some rows ahead, in y's units.

Tested in tests/structural/search/test_ahead.py.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from sklode.data.arrays import Array
from sklode.data.scores import quantile_crps
from sklode.structural.candidates import Candidate
from sklode.structural.predictive.calibration import errors_of, spread_ahead
from sklode.structural.predictive.dispersion import Clock, Dispersion
from sklode.structural.predictive.scale_by_lead import LEADS
from sklode.structural.rows import ChannelRows

# of quantiles that are scored: the middles of ten parts
_LEVELS = np.arange(0.05, 1, 0.1)
# usual deviations of a series: worse forecasts count as these
_MOST = 10.0


def scores_ahead(
    candidate: Candidate,
    table: ChannelRows,
    left: ChannelRows,
    span: float,
    passed: Array,
) -> Array:
    """Return sums of the CRPS of forecasts up to `LEADS` rows ahead, (block,).

    A block has as many rows, counted from each series' end: what all series err by at
    once is one error. Scores are in each series' usual deviation; widths are those of
    the time of day and week. ``candidate`` has each series' scale. ``table`` is in y's
    units, ``left`` in those of the states and without what effects add; ``passed``
    (row, 2) is what `Design.clock` says.
    """
    several = list(spread_ahead(candidate, left, span))
    clock = Clock.shown(passed)
    errors, rows = errors_of(several, table.bounds)
    dispersion = Dispersion.of(errors, rows, clock, passed)
    added = candidate.scaling.rows(table).values - left.values
    sums = np.zeros(1 + int(table.lengths.max()) // LEADS)
    for k, found in several:
        first, end = table.bounds[k : k + 2].tolist()
        known = np.isfinite(found.leads)
        rows = first + found.rows[known]
        # what a row's own error of measurement is, no forecast knows
        variances = found.deviations[known] ** 2 - left.errors[rows] ** 2
        width = np.sqrt(variances + candidate.scaling.error**2)
        width *= dispersion.at(passed[rows])
        middle = found.signals[known] + added[rows]
        own = table.values[first:end]
        unit = np.abs(own - np.median(own)).mean() or 1.0
        with np.errstate(over="ignore", invalid="ignore"):
            quantiles = candidate.scaling.alone(k).original(
                middle[:, None] + width[:, None] * ndtri(_LEVELS)
            )
            scores = quantile_crps(table.values[rows], quantiles, _LEVELS) / unit
        # what is no number is as bad as can be
        scores = np.where(np.isfinite(scores), np.minimum(scores, _MOST), _MOST)
        sums += np.bincount((end - 1 - rows) // LEADS, scores, len(sums))
    return sums
