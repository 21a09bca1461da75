"""Series of a panel that are alike: each group has hyperparameters of its own.

A logarithm, its offset, outliers and how large a season is depend on whether values are
zero, now and then or often: those with zeros must not cost their neighbours the season.
A series is forecast by the candidates of its group, which have no weight in others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sklode.data.arrays import Array, Numbers
from sklode.structural.candidates import Candidate
from sklode.structural.effects.effect import Effect
from sklode.structural.rows import ChannelRows
from sklode.structural.scaling import RandomEffects
from sklode.structural.search.forms import MOST_ZEROS, SearchResult
from sklode.structural.search.rows import SearchRows

ABOVE, SOME_ZEROS, ZEROS, BELOW = range(4)
"""Of values: all above zero, a few zeros, many, some below; neighbours are alike."""

_FEWEST = 20  # rows of a group, as a series needs that is fitted alone
# spread of logarithms of scales, of new series that are like a lone one
_FOREIGN = 1.0


def kinds_of(table: ChannelRows) -> Numbers:
    """Return what each series' values are; -1 of a series without any."""
    found = np.full(len(table.lengths), -1)
    filled = np.flatnonzero(table.lengths)
    if not len(filled):
        return found
    # without the empty ones, each series ends where the next begins
    first = table.bounds[filled]
    n_zeros = np.add.reduceat(table.values == 0, first)
    share = n_zeros / table.lengths[filled]
    is_below = np.minimum.reduceat(table.values, first) < 0
    # the first that is true counts
    found[filled] = np.select(
        condlist=[is_below, share > MOST_ZEROS, share > 0],
        choicelist=[BELOW, ZEROS, SOME_ZEROS],
        default=ABOVE,
    )
    return found


def nearest(groups: Sequence[int], kinds: Numbers) -> Numbers:
    """Return the group of each kind that is most like it; of no rows the first."""
    known = np.array(groups)
    distances = np.abs(kinds[:, None] - known)
    found = known[distances.argmin(axis=1)]
    return np.where(kinds < 0, known[0], found)


def weights_of(candidates: Sequence[Candidate], table: ChannelRows) -> Array:
    """Return candidates' weights in each series, (candidate, series).

    They are zero in series that are most like those of another group.
    """
    groups = np.array([candidate.group for candidate in candidates])
    own = nearest([*dict.fromkeys(groups.tolist())], kinds_of(table))
    weights = np.array([candidate.weight for candidate in candidates])
    return np.where(groups[:, None] == own, weights[:, None], 0.0)


def fit_groups(
    rows: SearchRows, fit: Callable[[SearchRows], SearchResult]
) -> list[tuple[Candidate, tuple[Effect, ...]]]:
    """Return what a channel's forecasts average over; ``fit`` finds it for some rows.

    Series are told apart by kinds if that is more probable. The largest group is first.
    """
    whole, table = fit(rows), rows.table
    kinds = kinds_of(table)
    sizes = np.bincount(kinds[table.series], minlength=1)
    largest_first = np.argsort(-sizes).tolist()
    groups = [kind for kind in largest_first if sizes[kind] >= _FEWEST]
    if len(groups) < 2:
        return whole.candidates
    # rows of a kind that is too rare go to the group that is most like it
    group_of = nearest(groups, kinds)[table.series]
    parts = [np.flatnonzero(group_of == group) for group in groups]
    each = [fit(rows.at(part)) for part in parts]
    # losses pay for hyperparameters: apart, series have more of them
    if sum(found.loss for found in each) > whole.loss:
        return whole.candidates
    candidates = []
    for group, part, found in zip(groups, parts, each, strict=True):
        is_lone = len(np.unique(table.series[part])) == 1
        for one, effects in found.candidates:
            own = one._replace(group=group)
            if is_lone:
                # one series does not tell how others of the group differ
                foreign = RandomEffects(spread=_FOREIGN, has_location=True)
                scaling = own.scaling._replace(random_effects=foreign)
                own = own._replace(scaling=scaling)
            candidates.append((own, effects))
    return candidates
