"""The slope of the filter's loss in hyperparameters: exact, at the cost of a few."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sklode.data.arrays import Array, Numbers
from sklode.structural.candidates import Model, backward, forward
from sklode.structural.components.space import LEVEL, StateSpace
from sklode.structural.filter.system import (
    LossSlopes,
    States,
    System,
    Wanted,
    distinct_gaps,
)
from sklode.structural.rows import ChannelRows

# of covariances kept at once, 16 MB: what a cache may hold
_MOST_NUMBERS = 2**21


class _Part(NamedTuple):
    """Rows of some series, whose covariances are kept at once."""

    bounds: Numbers
    design: Array
    values: Array
    errors: Array  # variances of measurement
    gaps: Array  # all that there are, once
    gap: Numbers  # (row,), which one each has


class Slopes:
    """The loss of rows, in the units of the states, and its slope in ``theta``."""

    def __init__(self, model: Model, space: StateSpace, table: ChannelRows) -> None:
        # the design depends on times alone, and need not be worked out again
        design = model.system(space, table).design
        bounds, d = table.bounds, design.shape[1]
        # a part has one series at least
        longest = int(np.diff(bounds).max())
        most = max(_MOST_NUMBERS // d**2, longest)
        self._parts: list[_Part] = []
        for first, end in _parts(bounds, most):
            own = slice(bounds[first], bounds[end])
            own_bounds = bounds[first : end + 1] - own.start
            gaps, gap = distinct_gaps(table.times[own], own_bounds)
            part = _Part(
                bounds=own_bounds,
                design=design[own],
                values=table.values[own],
                errors=table.errors[own] ** 2,
                gaps=gaps,
                gap=gap,
            )
            self._parts.append(part)
        n_rows = max(len(part.values) for part in self._parts)
        # memory that every pass writes anew
        self._wanted = Wanted(
            parts=np.zeros((0, d)),
            after=np.empty((n_rows, d)),
            predicted=np.empty((n_rows, d, d)),
        )

    def __call__(self, model: Model, space: StateSpace) -> tuple[float, Array]:
        """Return both for hyperparameters of the same form."""
        loss, slope = 0.0, np.zeros(len(model.theta))
        for part in self._parts:
            system = System(
                bounds=part.bounds,
                design=part.design,
                noise=space.noise + part.errors,
                gap=part.gap,
                transition=space.transition(part.gaps),
                level=LEVEL,
            )
            found = forward().filter_rows(
                system,
                values=part.values,
                states=States.first(space.start, len(part.bounds) - 1),
                rule=model.rule,
                wanted=self._wanted,
            )
            loss += found.loss
            slopes = LossSlopes.zero(system.transition, len(part.values))
            backward().slope_back(
                system,
                threshold=model.rule.threshold,
                v_F=found.v_F,
                inverse_F=found.inverse_F,
                jumps=found.jumps,
                wanted=self._wanted,
                slopes=slopes,
            )
            slope += space.slopes(part.gaps, slopes)
        return loss, slope


def _parts(bounds: Numbers, most: int) -> Iterator[tuple[int, int]]:
    """Yield the first series of each part, and the one after its last."""
    first = 0
    for k in range(1, len(bounds)):
        # with one series more it would be too long
        if k + 1 == len(bounds) or bounds[k + 1] - bounds[first] > most:
            yield first, k
            first = k
