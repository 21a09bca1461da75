"""Modulations: along what an effect changes: day, month, year, or named days.

Tested in tests/structural/effects/test_effect.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from sklode.data.arrays import Array, Flags, Numbers
from sklode.data.calendars import WINDOWS
from sklode.structural.scaling import usual_deviation

# in natural logarithms, what a form must gain to pay for a shape: of some 130 options,
# days in a row, sizes, harmonics
_ODDS_OF_SHAPE = 5.0
# of the size of named days, what part each name has of its own
_OWN = 0.3
# of a period: in it, and in windows before and after
_N_PLACES = 1 + 2 * len(WINDOWS)

_DAYS_OF_WORK = 5  # of a week, from Monday on
# in natural logarithms, of some ten options of trading days
_ODDS_OF_TRADING = 2.5
_WEEKS = 52  # of a year

_EDGE = 5.0  # deviations of two rows' difference that an edge of the day has
_FEWEST_DAYS = 3  # that show it
MOST_EDGES = 8  # more are no steps
_RAMP = 2.5  # usual gaps, within which three edges are one rise or fall
_NEXT = 1.5  # usual gaps, up to which two rows are next to each other

Cycle: TypeAlias = tuple[str, Sequence[str]]
"""Names of the day, or what stands for it, and of the days of the week."""


class CalendarFeatures(NamedTuple):
    """Where in day, week, month and year rows lie, and which named days are near."""

    share_of_day: Array  # (row,), that has passed
    day_of_week: Array  # (row,)
    share_of_month: Array  # (row,)
    week_of_year: Array  # (row,), from 1 to 53; 0 without dates
    named: Array | Flags  # (row, place, kind), see `Calendar.at`
    weekdays: Array  # (row, 7), see `RowPeriod.weekdays`

    def at(self, rows: Numbers) -> CalendarFeatures:
        """Return those of some rows."""
        return CalendarFeatures._make(column[rows] for column in self)

    @property
    def of_periods(self) -> bool:
        """Whether rows stand for more than a day, of which shares are named."""
        return self.named.dtype != np.bool_

    @property
    def may_begin(self) -> bool:
        """Whether rows stand for weeks that may begin on their stamps, or end there."""
        return self.named.shape[1] > _N_PLACES


@dataclass(frozen=True)
class Always:
    """The same at any time."""

    rank = -1
    log_odds = 0.0
    n_columns = 1
    is_shape = False

    def times(self, columns: Array, features: CalendarFeatures, size: float) -> Array:
        """Return columns of a size, which do not change."""
        return size * columns

    def name(self, cycle: Cycle) -> str:
        """Return the name of an effect of the calendar alone."""
        return "constant"

    def suffix(self, cycle: Cycle) -> str:
        """Return what it adds to the name of an effect of a column."""
        return ""


@dataclass(frozen=True)
class Day:
    """Along the day, or along some days of the week alone."""

    days: tuple[int, ...] = ()  # of the week: it is of these alone; none: of all
    harmonics: int = 1
    has_mean: bool = False  # where there is no column, the shape has a mean
    rank = 2
    log_odds = _ODDS_OF_SHAPE
    is_shape = True

    @property
    def n_columns(self) -> int:
        """Number of its columns: a cosine and a sine of each harmonic, and a mean."""
        return 2 * self.harmonics + self.has_mean

    def times(self, columns: Array, features: CalendarFeatures, size: float) -> Array:
        """Return each column times each of the shape's."""
        passed, is_own = features.share_of_day, np.full(len(columns), True)
        if self.days:
            is_own = np.isin(features.day_of_week, self.days)
        shape = harmonics_of(
            passed[is_own], self.harmonics, size=size, has_mean=self.has_mean
        )
        own = _product(columns[is_own], shape)
        found = np.zeros((len(columns), own.shape[1]))
        found[is_own] = own
        return found

    def name(self, cycle: Cycle) -> str:
        """Return the name of an effect of the calendar alone."""
        day, days_of_week = cycle
        which = ", ".join(days_of_week[k] for k in self.days)
        return f"{day} of {which}" if self.days else day

    def suffix(self, cycle: Cycle) -> str:
        """Return what it adds to the name of an effect of a column."""
        return f" along the {cycle[0]}"


@dataclass(frozen=True)
class Steps:
    """One value from each edge of the day to the next, as what is on and off has."""

    edges: tuple[float, ...]  # shares of the day, sorted
    rank = 3
    log_odds = _ODDS_OF_SHAPE
    is_shape = False  # most days have told of each edge

    @property
    def n_columns(self) -> int:
        """Number of its columns: between the last edge and the first there is none."""
        return len(self.edges) - 1

    def times(self, columns: Array, features: CalendarFeatures, size: float) -> Array:
        """Return each column times one between two edges."""
        passed = np.searchsorted(self.edges, features.share_of_day, side="right")
        between = passed[:, None] == np.arange(1, len(self.edges))
        return _product(columns, size * between)

    def name(self, cycle: Cycle) -> str:
        """Return the name of an effect of the calendar alone."""
        return f"{cycle[0]}, in steps"

    def suffix(self, cycle: Cycle) -> str:
        """Return what it adds to the name of an effect of a column."""
        return f" in steps of the {cycle[0]}"


@dataclass(frozen=True)
class Month:
    """Along the month."""

    harmonics: int = 1
    rank = 1
    log_odds = _ODDS_OF_SHAPE
    is_shape = True

    @property
    def n_columns(self) -> int:
        """Number of its columns: a cosine and a sine of each harmonic."""
        return 2 * self.harmonics

    def times(self, columns: Array, features: CalendarFeatures, size: float) -> Array:
        """Return each column times each of the shape's."""
        passed = features.share_of_month
        return _product(columns, harmonics_of(passed, self.harmonics, size=size))

    def name(self, cycle: Cycle) -> str:
        """Return the name of an effect of the calendar alone."""
        return "month"

    def suffix(self, cycle: Cycle) -> str:
        """Return what it adds to the name of an effect of a column."""
        return " along the month"


@dataclass(frozen=True)
class Weeks:
    """Each week of the year has a value of its own. Weeks keep to weekdays."""

    log_odds = _ODDS_OF_SHAPE
    n_columns = _WEEKS
    rank = 4
    is_shape = True

    def times(self, columns: Array, features: CalendarFeatures, size: float) -> Array:
        """Return each column times one in each week."""
        week = features.week_of_year[:, None]
        shares = (week == np.arange(1, _WEEKS + 1)).astype(np.float64)
        # few years have one more week: it lies between the last one and the first
        shares[week[:, 0] > _WEEKS, :: _WEEKS - 1] = 0.5
        return _product(columns, size * shares)

    def name(self, cycle: Cycle) -> str:
        """Return the name of an effect of the calendar alone."""
        return "weeks of the year"

    def suffix(self, cycle: Cycle) -> str:
        """Return what it adds to the name of an effect of a column."""
        return " in weeks of the year"


@dataclass(frozen=True)
class NamedDays:
    """On named days: something in common, and something of each kind."""

    kinds: int  # each of which adds to what all have in common
    sides: bool = False  # whether the days before and after named ones differ too
    begins: bool = False  # whether a week's stamp begins it; or ends it
    window: int = 0  # number of the widest that counts as beside them
    of_periods: bool = False  # whether rows stand for more than a day
    rank = 0
    log_odds = 0.0

    @property
    def is_shape(self) -> bool:
        """Whether it is of wide windows of days, that many days are in by chance."""
        return self.window > 0 and not self.of_periods

    @property
    def n_columns(self) -> int:
        """Number of its columns."""
        return (1 + self.kinds) * len(self._places)

    @property
    def _places(self) -> list[int]:
        """Numbers of what it reads, of each kind: named days, and windows of others."""
        first = _N_PLACES if self.begins else 0
        windows: Sequence[int] = []
        if self.sides and self.of_periods:
            windows = [self.window]  # shares of its days change smoothly
        elif self.sides:
            windows = range(self.window + 1)  # the nearest days are in all windows
        beside = [2 * k + side for k in windows for side in (1, 2)]
        return [first, *(first + place for place in beside)]

    def times(self, columns: Array, features: CalendarFeatures, size: float) -> Array:
        """Return each column times one of all named days, and one of each kind."""
        found = []
        for place in self._places:
            share = features.named[:, place]
            found += [share.sum(axis=1, keepdims=True), _OWN * share]
        return _product(columns, size * np.hstack(found))

    def name(self, cycle: Cycle) -> str:
        """Return the name of an effect of the calendar alone."""
        found = "holidays, days beside them" if self.sides else "holidays"
        return f"{found}, weeks begin on their stamps" if self.begins else found

    def suffix(self, cycle: Cycle) -> str:
        """Return what it adds to the name of an effect of a column."""
        return " on holidays"


@dataclass(frozen=True)
class TradingDays:
    """By how many days a month or quarter has, and of which days of the week.

    Bell and Hillmer, "Modeling Time Series with Calendar Variation" (1983). What they
    leave out of seven days, as it follows from the others, a prior makes needless.
    """

    by_day: bool = False  # whether days of the week differ, or those of work alone
    rank = 4
    log_odds = _ODDS_OF_TRADING
    is_shape = True

    @property
    def n_columns(self) -> int:
        """Number of its columns: of all days, of days of work, of each of a week."""
        return 2 + 7 * self.by_day

    def times(self, columns: Array, features: CalendarFeatures, size: float) -> Array:
        """Return each column times numbers of days."""
        length = features.weekdays.sum(axis=1, keepdims=True)
        # which days they are, were there as many as usual
        each = features.weekdays - length / 7
        work = each[:, :_DAYS_OF_WORK].sum(axis=1, keepdims=True)
        found = [length, work]
        if self.by_day:
            found.append(_OWN * each)
        return _product(columns, size * np.hstack(found))

    def name(self, cycle: Cycle) -> str:
        """Return the name of an effect of the calendar alone."""
        return "trading days"

    def suffix(self, cycle: Cycle) -> str:
        """Return what it adds to the name of an effect of a column."""
        return " by trading days"


Modulation: TypeAlias = Always | Day | Steps | Month | Weeks | NamedDays | TradingDays
ALWAYS = Always()


def edges_of(
    share_of_day: Array, times: Array, values: Array, day: float
) -> tuple[float, ...]:
    """Return the shares of the day at which one series steps, day by day; few or none.

    ``times`` (row,) and ``day`` are in usual gaps. Where rows next to each other differ
    by far more than usual on most days, at one time of the day, is an edge.
    """
    is_next = np.diff(times) < _NEXT
    differences = np.diff(values)[is_next]
    stamps = np.round(share_of_day[1:][is_next] * day)
    by_stamp = pd.Series(differences).groupby(stamps).agg(["median", "size"])
    usual = usual_deviation(differences) if len(differences) else 0.0
    # the median of three days and more is no single day's
    is_edge = by_stamp["median"].abs() > _EDGE * usual
    is_edge &= by_stamp["size"] >= _FEWEST_DAYS
    found = np.sort(by_stamp.index[is_edge].to_numpy())
    # one row may lie amid a step, as a mean of both sides; more of them are a ramp
    is_ramp = bool((found[2:] - found[:-2] < _RAMP).any())
    if is_ramp or not 2 <= len(found) <= MOST_EDGES:
        return ()
    # between two rows
    return tuple(((found - 0.5) / day).tolist())


def _product(columns: Array, shape: Array) -> Array:
    """Return each column times each of a shape's, (row, coefficient)."""
    n, size = len(shape), columns.shape[1] * shape.shape[1]
    return (columns[:, :, None] * shape[:, None]).reshape(n, size)


def harmonics_of(
    passed: Array, harmonics: int, size: float, has_mean: bool = False
) -> Array:
    """Return the harmonics of a share of a day or month, (row, coefficient).

    The higher a harmonic, the less it is expected to add: its variance falls as 1 / k,
    as that of a season's does.
    """
    # most rows stand where others stand, on other days
    passed, place = np.unique(passed, return_inverse=True)
    k = np.arange(1, harmonics + 1)
    angles = 2 * math.pi * passed[:, None] * k
    share = np.sqrt(1 / k)
    found = [share * np.cos(angles), share * np.sin(angles)]
    if has_mean:
        found.append(np.ones((len(passed), 1)))
    # as cos^2 + sin^2 = 1, the harmonics have the variance sum 1 / k at any time
    deviation = math.sqrt((1 / k).sum())
    waves: Array = np.hstack(found) * (size / deviation)
    return waves[place]
