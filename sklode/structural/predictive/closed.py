"""Times of the day, or of the week, at which values were always zero of late.

Nights of solar power and closed hours: what is asked there is zero. The chance of an
exception is about one in the rows that were seen there.

Tested in tests/structural/predictive/test_closed.py.
"""

from __future__ import annotations

import numpy as np

from sklode.data.arrays import Array, Flags, Numbers
from sklode.structural.predictive.limits import usual_gaps
from sklode.structural.rows import ChannelRows

_CYCLES = 28  # the last ones tell
# values other than zero that would be expected there, were all times alike: by chance
# there is none once in e^5
_EXPECTED = 5.0
# of the time to rows that tell, by which edges may have moved: dawn by five minutes a
# day
_DRIFT = 1 / 288


def closed(table: ChannelRows, queries: ChannelRows, cycle: float) -> Flags:
    """Return at which queries a series is closed at their time of the day, (query,).

    ``cycle`` is the length of a day, or of what stands for it, in usual gaps.
    """
    found = np.full(len(queries.times), False)
    clock, asked = table.clock, queries.clock
    is_zero = table.values == 0
    if not is_zero.any():
        return found
    gaps, first_asked = usual_gaps(table), queries.bounds
    n_zeros = np.bincount(table.series[is_zero], minlength=len(table.lengths))
    for k in np.flatnonzero((queries.lengths > 0) & (n_zeros > 0)).tolist():
        own = slice(*table.bounds[k : k + 2].tolist())
        is_open, end = ~is_zero[own], clock[own][-1]
        recent = clock[own] > end - _CYCLES * cycle
        n, n_open = int(recent.sum()), int((recent & is_open).sum())
        if n_open in (0, n):
            continue
        mine = slice(*first_asked[k : k + 2].tolist())
        ahead = asked[mine] - end
        beyond = np.maximum(ahead, -ahead - _CYCLES * cycle)
        margin = gaps[k] / 2 + _DRIFT * np.maximum(beyond, 0.0)
        phases = clock[own] % cycle
        n_near = _near(phases[recent], asked[mine] % cycle, margin, cycle)
        open_near = _near(phases[recent & is_open], asked[mine] % cycle, margin, cycle)
        is_told = n_open * n_near >= _EXPECTED * n
        found[mine] = (open_near == 0) & is_told
    return found


def _near(phases: Array, asked: Array, margin: Array, cycle: float) -> Numbers:
    """Return how many phases of a cycle are within a margin of those asked."""
    several = np.sort(phases)
    several = np.concatenate([several - cycle, several, several + cycle])
    low = np.searchsorted(several, asked - margin, side="left")
    return np.searchsorted(several, asked + margin, side="right") - low
