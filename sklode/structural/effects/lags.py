r"""Lags: whether what a basis makes acts now, builds up, fades, or acts later.

.. math:: \dot r = (b(u(t)) - r) / \tau

is the response r with a memory :math:`\tau`; u is linear between its rows. Tested in
tests/structural/effects/test_effect.py and coupling/test_delays.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np

from sklode.data.arrays import Array, Numbers
from sklode.data.ticks import rows_before
from sklode.structural.effects.basis import OfColumn

# in usual gaps, where a search begins: the most probable one lies near one of them
MEMORIES = 2.0 ** np.arange(0.0, 10.0, 1.25)
N_DELAYS = 64
"""Delays that are asked about, half a usual gap of the earlier column apart."""
FADES = 2.0 ** np.arange(-1.25, 10.0, 1.25)
"""Likewise, of impulses."""
# factors of a memory, from a half to twice, that are tried once it is chosen
_NEAR = 2.0 ** np.linspace(-1.0, 1.0, 17)


class Read(NamedTuple):
    """What effects may read, at observations of series: X, and y that may act late."""

    bounds: Numbers  # (series + 1,)
    times: Array  # (row,), in usual gaps since each series' first row
    columns: Array  # (row, control + channel), standardised; NaN where y is missing
    begins: Array  # (series,), times at which their ages are zero
    starts: Array  # (series,), of times, since the first row of all series

    def ages(self, series: Numbers, times: Array) -> Array:
        """Return ages at ``times`` of series."""
        ages: Array = times - self.begins[series]
        return ages


class Queries(NamedTuple):
    """Times of series at which effects are asked for."""

    known: Read  # rows of X
    place: Numbers  # (query,), of the row of X at or before each
    seen: Read  # rows of y, which acts late
    series: Numbers
    times: Array


@dataclass(frozen=True)
class Now:
    """At once."""

    time = 0.0
    log_odds = 0.0
    suffix = ""
    remembers = False
    near = ()

    def columns(self, basis: OfColumn, queries: Queries) -> Array:
        """Return columns of a basis at queries, (query, coefficient)."""
        return _made_of(basis, queries.known)[queries.place]


@dataclass(frozen=True)
class Memory:
    """As an exponential response, which builds up and fades."""

    time: float = 1.0  # in usual gaps
    # one out of so many costs the logarithm of their number
    log_odds = math.log(len(MEMORIES))
    suffix = ", late"
    remembers = True

    def columns(self, basis: OfColumn, queries: Queries) -> Array:
        """Return responses at queries, (query, coefficient)."""
        # imports need not wait for numba
        from sklode.structural.filter.forward import respond

        known = queries.known
        found: Array = respond(
            times=known.times,
            bounds=known.bounds,
            columns=_made_of(basis, known),
            memory=self.time,
        )
        return found[queries.place]

    @property
    def near(self) -> list[Memory]:
        """Memories near this one, which a search has not tried: they are 2.4 apart."""
        return [Memory(m) for m in np.maximum(self.time * _NEAR, _NEAR[0]).tolist()]


@dataclass(frozen=True)
class Impulse:
    """At its own row, from which it fades: rows add up, as doses do.

    Two of one column are of what must be absorbed before it acts: Bateman (1910).
    """

    time: float = 1.0  # in usual gaps, until a part exp(-1) is left
    zero: float = 0.0  # where nothing is given, of the standardised column
    log_odds = math.log(len(FADES))
    suffix = ", fading"
    remembers = True

    def columns(self, basis: OfColumn, queries: Queries) -> Array:
        """Return sums of what fades at queries, (query, coefficient)."""
        # imports need not wait for numba
        from sklode.structural.filter.forward import accumulate

        known = queries.known
        nothing = np.full((1, basis.n_read), self.zero)
        given = _made_of(basis, known) - basis.columns(nothing)
        found: Array = accumulate(
            times=known.times,
            bounds=known.bounds,
            columns=given,
            memory=self.time,
        )
        return found[queries.place]

    @property
    def near(self) -> list[Impulse]:
        """Times near this one, which a search has not tried: they are 2.4 apart."""
        # what fades sooner acts at its own row alone
        times = np.maximum(self.time * _NEAR, FADES[0]).tolist()
        return [replace(self, time=time) for time in times]


@dataclass(frozen=True)
class Delay:
    """After a delay, of a column of y."""

    time: float = 1.0  # in usual gaps
    log_odds = math.log(N_DELAYS)
    suffix = ", late"
    remembers = False
    near = ()

    def columns(self, basis: OfColumn, queries: Queries) -> Array:
        """Return columns of what was seen so long before queries."""
        seen = queries.seen
        found = earlier(
            bounds=seen.bounds,
            times=seen.times,
            column=seen.columns[:, basis.first],
            series=queries.series,
            asked=queries.times - self.time,
        )
        # columns are standardised: what was never seen is taken for the mean
        return basis.columns(np.nan_to_num(found)[:, None])


@dataclass(frozen=True)
class Age:
    """At once, of a column that says the age of what a series is of.

    Of no column: of the time since a series' first value, in standard units.
    """

    time = 0.0
    location: float = 0.0  # in usual gaps
    scale: float = 1.0
    log_odds = 0.0
    suffix = " of age"
    remembers = False
    near = ()

    def standard(self, ages: Array) -> Array:
        """Return times since first values as a basis reads them, (time, 1)."""
        return ((ages - self.location) / self.scale)[:, None]

    def columns(self, basis: OfColumn, queries: Queries) -> Array:
        """Return columns of a basis at queries, (query, coefficient)."""
        if basis.first >= 0:
            return NOW.columns(basis, queries)
        ages = queries.seen.ages(queries.series, queries.times)
        # before its first value it is as at the beginning
        return basis.columns(self.standard(np.maximum(ages, 0.0)))


@dataclass(frozen=True)
class Clock(Age):
    """At once, of the time since the first row of all: a placebo beside an age."""

    def columns(self, basis: OfColumn, queries: Queries) -> Array:
        """Return columns of a basis at queries, (query, coefficient)."""
        passed = queries.seen.starts[queries.series] + queries.times
        return basis.columns(self.standard(passed))


Lag: TypeAlias = Now | Memory | Impulse | Delay | Age
NOW = Now()


def _made_of(basis: OfColumn, read: Read) -> Array:
    """Return what a basis makes of all rows."""
    return basis.columns(read.columns[:, basis.first : basis.first + basis.n_read])


def earlier(
    bounds: Numbers,
    times: Array,
    column: Array,
    series: Numbers,
    asked: Array,
) -> Array:
    """Return a column (row,) at times of series; NaN of series without a value.

    It is linear between values, and before the first and after the last as they are.
    """
    known = ~np.isnan(column)
    # where series begin among the values that are known
    bounds = np.append(0, np.cumsum(known))[bounds]
    times, values = times[known], column[known]
    if not len(values):
        return np.full(len(asked), np.nan)
    first, last = bounds[series], bounds[series + 1] - 1
    is_known = last >= first
    # of no values any place will do: the answer is NaN
    first, last = np.where(is_known, (first, last), 0)
    place = rows_before(bounds, times, series, asked)
    # before the first value and after the last one both are the same
    low, high = np.clip(place, first, last), np.clip(place + 1, first, last)
    gap = times[high] - times[low]
    is_between = gap > 0
    share = (asked - times[low]) / np.where(is_between, gap, 1.0)
    share = np.where(is_between, share, 0.0)
    found: Array = values[low] + share * (values[high] - values[low])
    return np.where(is_known, found, np.nan)
