"""Attributes: columns of X that are constant in each series of a panel.

Within a series they say nothing. Between series they tell of levels: Mundlak, "On the
Pooling of Time Series and Cross Section Data" (1978). Tested in
tests/structural/test_shared.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sklode.data.arrays import Array
from sklode.structural.candidates import Candidate
from sklode.structural.coefficients import BETWEEN
from sklode.structural.effects.basis import Levels, Line
from sklode.structural.effects.effect import Effect
from sklode.structural.effects.lags import Read
from sklode.structural.rows import ChannelRows

_SAME = 1e-3  # standard deviations, in which a column is constant
_FEWEST = 6  # series that tell how levels differ


class Attributes(NamedTuple):
    """What tells of levels of series, and how far these are from what it tells."""

    effects: tuple[Effect, ...] = ()
    deviation: float = math.nan  # in units of a usual series' states


def levels_of(candidate: Candidate, table: ChannelRows) -> Array:
    """Return each series' mean, in units of a usual series' states; NaN of no rows."""
    scaling = candidate.scaling._replace(of_series=None)
    means = table.means(scaling.scaled(table.values)[:, None])[:, 0]
    return np.where(table.lengths > 0, means, np.nan)


def attributes_of(
    candidate: Candidate,
    table: ChannelRows,
    read: Read,
    options: Sequence[Effect],
) -> Attributes:
    """Return which attributes tell of a column's levels, the best first.

    Forward selection by Schwarz's criterion: of n series, k coefficients must gain
    k log(n) / 2.
    """
    levels = levels_of(candidate, table)
    known = np.isfinite(levels)
    n = int(known.sum())
    if n < _FEWEST:
        return Attributes()
    levels = levels[known] - levels[known].mean()
    options = [*options]
    chosen: list[Effect] = []
    columns, best = np.zeros((n, 0)), math.log(levels @ levels / n + 1e-12)
    while options:
        tried = {}
        for effect in options:
            own = _of_series(effect, read)[known]
            more = np.hstack([columns, own - own.mean(axis=0)])
            left = levels - more @ np.linalg.lstsq(more, levels, rcond=None)[0]
            loss = math.log(left @ left / n + 1e-12)
            gain = n * (best - loss) - effect.n_columns * math.log(n)
            tried[effect] = gain / 2 - math.log(len(options)), loss, more
        effect = max(tried, key=lambda one: tried[one][0])
        gain, loss, more = tried[effect]
        if gain <= 0:
            break
        chosen.append(effect)
        options.remove(effect)
        columns, best = more, loss
    if not chosen:
        return Attributes()
    free = max(n - 1 - columns.shape[1], 1)
    # levels may differ by far more than rows of one series do
    size = float(levels.std())
    return Attributes(
        effects=tuple(replace(effect, size=size) for effect in chosen),
        deviation=math.sqrt(math.exp(best) * n / free),
    )


def attributes_in(
    read: Read, n_controls: int, blocks: Sequence[tuple[int, int]]
) -> list[Effect]:
    """Return the effects of columns that are constant in each series, and differ."""
    columns = read.columns[:, :n_controls]
    starts = read.bounds[:-1]
    least = np.fmin.reduceat(columns, starts)
    most = np.fmax.reduceat(columns, starts)
    # columns are standardised; of series where one is not known it is filled
    is_constant = (most - least < _SAME).all(axis=0) & (np.ptp(least, axis=0) > _SAME)
    in_blocks = {first + k for first, n in blocks for k in range(n)}
    numbers = [k for k in np.flatnonzero(is_constant).tolist() if k not in in_blocks]
    found: list[Line | Levels] = [Line(k) for k in numbers]
    found += [Levels(k, n) for k, n in blocks if is_constant[k : k + n].all()]
    return [Effect(basis, pooling=BETWEEN) for basis in found]


def _of_series(effect: Effect, read: Read) -> Array:
    """Return an attribute's columns, (series, coefficient), at first rows."""
    basis = effect.basis
    own = slice(basis.first, basis.first + basis.n_read)
    columns: Array = effect.at(read.columns[read.bounds[:-1], own])
    return columns
