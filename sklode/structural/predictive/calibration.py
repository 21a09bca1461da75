"""What errors ahead tell of widths: by the clock, and by their own quantiles.

Tested in tests/structural/predictive/test_recalibration.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sklode.data.arrays import Array, Flags, Numbers
from sklode.structural.candidates import Candidate
from sklode.structural.predictive.dispersion import ALIKE, Clock, Dispersion
from sklode.structural.predictive.recalibration import NORMAL, quantiles_of
from sklode.structural.predictive.scale_by_lead import (
    CLIPPED,
    Ahead,
    VarianceInflation,
    burnt,
    forecasts_ahead,
    telling,
)
from sklode.structural.rows import ChannelRows

# that tell, of each series
_MOST_ROWS = 2016
# of all series, from which is looked ahead
_ORIGINS = 400


class Calibration(NamedTuple):
    """What the errors ahead of a candidate tell of how wide its forecasts should be."""

    dispersion: Dispersion = Dispersion()
    quantiles: Array = NORMAL  # of errors, see `Recalibration`

    @classmethod
    def measured(
        cls,
        several: list[tuple[int, Ahead]],
        bounds: Numbers,
        clock: Clock,
        passed: Array,
        closed: Flags,
        inflation: VarianceInflation,
    ) -> Calibration:
        """Measure it by the errors ahead that `spread_ahead` found at rows of series.

        Those of next rows alone would not do: far ahead all hours have the error of
        the level. ``passed`` (row, 2) is what `Design.clock` says, and ``closed``
        (row,) whether it was always zero at a row's time of the day.
        """
        errors, rows = errors_of(several, bounds)
        dispersion = Dispersion.of(errors, rows, clock, passed)
        errors, rows = errors[~closed[rows]], rows[~closed[rows]]
        if not len(rows):
            return cls(dispersion)
        errors = errors / dispersion.at(passed[rows])
        # what `VarianceInflation` widens needs no widening here
        errors = np.clip(errors, -CLIPPED, CLIPPED)
        wide = float(inflation.factors.mean())
        size = max(min(math.sqrt((errors**2).mean()), wide), 1.0)
        n = len(np.unique(rows)) / ALIKE
        return cls(dispersion, quantiles_of(errors / size, n))


def spread_ahead(
    candidate: Candidate, table: ChannelRows, span: float
) -> Iterator[tuple[int, Ahead]]:
    """Yield series, and forecasts from origins that are spread over their last rows.

    ``table`` is in the units of the states.
    """
    series = telling(candidate, table)
    for k in series:
        n = int(table.lengths[k])
        first = max(burnt(candidate, n), n - _MOST_ROWS)
        every = math.ceil((n - 1 - first) * len(series) / _ORIGINS)
        origins = np.arange(first, n - 1, every)
        alone, own = candidate.alone(k), table.alone(k)
        yield k, forecasts_ahead(alone, own, span, origins)


def errors_of(
    several: list[tuple[int, Ahead]], bounds: Numbers
) -> tuple[Array, Numbers]:
    """Return errors of `spread_ahead` that are known, in deviations, and their rows."""
    if not several:
        return np.zeros(0), np.zeros(0, np.int64)
    errors = np.concatenate([found.errors.ravel() for _, found in several])
    rows = np.concatenate([(bounds[k] + found.rows).ravel() for k, found in several])
    known = np.isfinite(errors)
    return errors[known], rows[known]
