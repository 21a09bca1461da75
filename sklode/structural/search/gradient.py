"""The slope of the filter's loss in hyperparameters: exact, at the cost of a few."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sklode.data.arrays import Array, Numbers
from sklode.structural.candidates import Model, backward, forward
from sklode.structural.components.space import StateSpace, layout_of
from sklode.structural.filter.system import LossSlopes, States, Wanted
from sklode.structural.rows import ChannelRows

# of covariances kept at once, 16 MB: what a cache may hold
_MOST_NUMBERS = 2**21


class Slopes:
    """The loss of rows, in the units of the states, and its slope in ``theta``."""

    def __init__(self, model: Model, table: ChannelRows) -> None:
        bounds, d = table.bounds, layout_of(model.form, model.harmonics).n_states
        # a part, whose covariances are kept at once, has one series at least
        longest = int(table.lengths.max())
        most = max(_MOST_NUMBERS // d**2, longest)
        several = [table.part(first, end) for first, end in _parts(bounds, most)]
        self._parts = [(part.values, model.schedule(part)) for part in several]
        n_rows = max(len(part.values) for part in several)
        # memory that every pass writes anew
        self._wanted = Wanted(
            parts=np.zeros((0, d)),
            after=np.empty((n_rows, d)),
            predicted=np.empty((n_rows, d, d)),
        )

    def loss(self, model: Model, space: StateSpace) -> float:
        """Return the loss for hyperparameters of the same form."""
        return sum(
            model.run(space.system(rows), space, values).loss
            for values, rows in self._parts
        )

    def __call__(self, model: Model, space: StateSpace) -> tuple[float, Array]:
        """Return the loss and its slope."""
        loss, slope = 0.0, np.zeros(len(model.theta))
        for values, rows in self._parts:
            system = space.system(rows)
            found = forward().filter_rows(
                system,
                values=values,
                states=States.first(space.start, len(rows.bounds) - 1),
                rule=model.rule,
                wanted=self._wanted,
            )
            loss += found.loss
            slopes = LossSlopes.zero(system.transition, len(values))
            backward().slope_back(
                system,
                threshold=model.rule.threshold,
                v_F=found.v_F,
                inverse_F=found.inverse_F,
                jumps=found.jumps,
                wanted=self._wanted,
                slopes=slopes,
            )
            slope += space.slopes(rows.gaps, system.transition, slopes)
        return loss, slope


def _parts(bounds: Numbers, most: int) -> Iterator[tuple[int, int]]:
    """Yield the first series of each part, and the one after its last."""
    first = 0
    for k in range(1, len(bounds)):
        # with one series more it would be too long
        if k + 1 == len(bounds) or bounds[k + 1] - bounds[first] > most:
            yield first, k
            first = k
