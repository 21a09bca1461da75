"""How well a candidate forecasts y some rows ahead, in y's units.

Tested in tests/structural/search/test_ahead.py.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from sklode.data.arrays import Array
from sklode.data.scores import quantile_crps
from sklode.structural.candidates import Candidate
from sklode.structural.predictive.dispersion import Clock, Dispersion, spread_ahead
from sklode.structural.predictive.scale_by_lead import LEADS
from sklode.structural.rows import ChannelRows

# of quantiles that are scored: the middles of ten parts
_LEVELS = np.arange(0.05, 1, 0.1)


def scores_ahead(
    candidate: Candidate,
    table: ChannelRows,
    left: ChannelRows,
    span: float,
    passed: Array,
) -> Array:
    """Return the summed CRPS of forecasts up to `LEADS` ahead, by as many rows.

    Those of the same age, of all series, go together: they err as one. Scores are in
    units of each series' own, with errors as wide as they are at each time of day and
    week; ``candidate`` has each series' scale. ``table`` is in y's units, ``left`` in
    those of the states and without what effects add; ``passed`` (row, 2) is what
    `Design.clock` says.
    """
    several = list(spread_ahead(candidate, left, span))
    dispersion = Dispersion.of(several, Clock.shown(passed), passed)
    added = candidate.scaling.rows(table).values - left.values
    sums = np.zeros(1 + int(table.lengths.max()) // LEADS)
    for first, found in several:
        known = np.isfinite(found.errors)
        rows = first + found.rows[known]
        width = found.deviations[known] * dispersion.at(passed[rows])
        middle = found.signals[known] + added[rows]
        k = int(table.series[first])
        own = slice(*table.bounds[k : k + 2].tolist())
        quantiles = candidate.scaling.alone(k).original(
            middle[:, None] + width[:, None] * ndtri(_LEVELS)
        )
        scores = quantile_crps(table.values[rows], quantiles, _LEVELS)
        unit = np.abs(table.values[own] - np.median(table.values[own])).mean() or 1.0
        sums += np.bincount((own.stop - 1 - rows) // LEADS, scores / unit, len(sums))
    return sums
