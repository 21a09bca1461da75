r"""The value a day, a week or 364 days before beside a forecast.

.. math:: f + w \, (y(t - p) + c - f)

with f a forecast, p a period, and c what has changed since a period before, on average
of its last quarter: a seasonal naive forecast with a level. A year of weeks has sharp
days that no smooth wave has, and keeps to weekdays; days and weeks change their shapes.
The weight w, by lead, is the slope of a model's errors ahead on what the other says
more (Bates and Granger, "The Combination of Forecasts", 1969), less its standard error.
The longest period moves a forecast first, the next one what that has become. What was
so far from a forecast as outliers are does not come back.

Tested in tests/structural/predictive/test_seasonal_naive.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from sklode.data.arrays import Array, Flags, Numbers
from sklode.data.links import LEAST
from sklode.data.ticks import DAY, WEEK, rows_before, tick_length
from sklode.structural.filter.system import THRESHOLD
from sklode.structural.predictive.dispersion import ALIKE
from sklode.structural.predictive.limits import usual_gaps
from sklode.structural.predictive.scale_by_lead import (
    CLIPPED,
    Ahead,
    interpolated,
    parts_of,
)
from sklode.structural.rows import ChannelRows
from sklode.structural.scaling import usual_deviation

PERIODS = {"year_before": 52 * WEEK, "week_before": WEEK, "day_before": DAY}
"""Nanoseconds of each, by the name of its weight in ``components_``."""

# part of a period that tells what has changed, and of its rows that have one before
_CHANGES, _SEEN = 0.25, 0.5
# rows of a period that can be told: a week of minutes has the most
_ROWS_A_PERIOD = 3.5, 7 * 1440.0
# errors that a weight of zero is worth
_DOUBT = 10.0


@dataclass(frozen=True)
class SeasonalNaive:
    """The seasonal naive forecasts of series."""

    table: ChannelRows  # in states' units
    added: Array  # (row,), what effects add, which no year before tells
    period: float  # in units of time
    farthest: float  # ahead, likewise

    @cached_property
    def _values(self) -> Array:
        return self.table.values - self.added

    @cached_property
    def _clock(self) -> Array:
        return self.table.clock

    @cached_property
    def _near(self) -> Array:
        """Half of each series' usual gap."""
        return usual_gaps(self.table) / 2

    @cached_property
    def _changes(self) -> Array:
        """What has changed since a period before, (row,); NaN where nothing tells."""
        table, clock, series = self.table, self._clock, self.table.series
        all_changes = self._values - self._before(series, clock - self.period)
        changes = _without_outliers(all_changes, table.bounds)
        is_known = np.isfinite(changes)
        sums = np.append(0.0, np.cumsum(np.where(is_known, changes, 0.0)))
        counts = np.append(0, np.cumsum(is_known))
        ends = np.arange(1, len(clock) + 1)
        before = clock - _CHANGES * self.period
        begins = 1 + rows_before(table.bounds, clock, series, before)
        n = counts[ends] - counts[begins]
        is_seen = n >= np.maximum(_SEEN * (ends - begins), 1)
        means = (sums[ends] - sums[begins]) / np.maximum(n, 1)
        return np.where(is_seen, means, np.nan)

    def _before(self, series: Numbers, clock: Array) -> Array:
        """Return values at times on the wall; NaN where no row is near."""
        bounds, near = self.table.bounds, self._near[series]
        row = rows_before(bounds, self._clock, series, clock + near)
        is_own = row >= bounds[series]
        row = np.maximum(row, 0)
        is_near = is_own & (clock - self._clock[row] < near)
        return np.where(is_near, self._values[row], np.nan)

    def _at(self, last: Numbers, series: Numbers, clock: Array) -> Array:
        """Return forecasts of times on the wall after ``last`` rows of their series."""
        ahead = clock - self._clock[last]
        n_periods = np.maximum(np.ceil(ahead / self.period - LEAST), 1.0)
        found = self._before(series, clock - n_periods * self.period)
        # of what is far ahead nothing tells how much more changes
        is_near = ahead <= self.farthest
        return np.where(is_near, found + self._changes[last], np.nan)

    def ahead(self, queries: ChannelRows) -> Array:
        """Return forecasts after the last rows, (query,), without what effects add.

        NaN where there is none, and farther than that.
        """
        series, found = queries.series, np.full(len(queries.times), np.nan)
        mine = queries.times > self.table.ends[series]
        mine &= (self.table.lengths > 0)[series]
        last = self.table.bounds[1:][series[mine]] - 1
        found[mine] = self._at(last, series[mine], queries.clock[mine])
        return found

    def rows(self, series: int, found: Ahead) -> Numbers:
        """Return which rows of the table other forecasts are of."""
        rows: Numbers = self.table.bounds[series] + found.rows
        return rows

    def more(self, series: int, found: Ahead) -> Array:
        """Return how much more it says than other forecasts, see `_believed`."""
        rows = self.rows(series, found)
        origins = np.broadcast_to(rows[:, :1] - 1, rows.shape)
        says = self._at(origins, np.full(rows.shape, series), self._clock[rows])
        says += self.added[rows]
        return _believed((says - found.signals) / found.deviations)


class Combination(NamedTuple):
    """Forecasts of a candidate, and how much seasonal naive ones count beside these."""

    naive: SeasonalNaive
    leads: Array  # (part,), in units of time, increasing
    weights: Array  # (series, part), from 0 to 1

    @classmethod
    def measured(
        cls,
        naive: SeasonalNaive,
        several: list[tuple[int, Ahead]],
        is_member: Flags,
    ) -> Combination:
        """Weigh it by the errors ahead that `spread_ahead` found at rows of series.

        Of each series the slope is shrunk to what others of the panel have that a model
        was fitted on, ``is_member`` (series,), and this to zero. What is no member may
        be rows of one, up to an earlier origin.
        """
        n_series = len(naive.table.lengths)
        nothing = cls(naive, np.zeros(1), np.zeros((n_series, 1)))
        if not several:
            return nothing
        each = [
            (own.errors, own.leads, naive.rows(k, own), naive.more(k, own))
            for k, own in several
        ]
        errors, leads, rows, more = map(np.concatenate, zip(*each, strict=True))
        has_come, is_known = np.isfinite(errors), np.isfinite(more)
        if not (has_come & is_known).any():
            return nothing
        # by what was asked, and not by what is known: values decide no lead
        part, medians = parts_of(leads[has_come], method="lower")
        part, is_known = part[is_known[has_come]], has_come & is_known
        errors, more = np.clip(errors[is_known], -CLIPPED, CLIPPED), more[is_known]
        rows, series = rows[is_known], naive.table.series
        products, squares = np.zeros((2, n_series, len(medians)))
        np.add.at(products, (series[rows], part), errors * more)
        np.add.at(squares, (series[rows], part), more**2)
        # rows are asked many times, and neighbours err alike
        n = np.bincount(series[np.unique(rows)], minlength=n_series) / ALIKE
        trust = (n / (n + _DOUBT))[:, None]
        squares = np.maximum(squares, LEAST)
        slope = products / squares
        # less its standard error: of what is not sure nothing counts
        left = np.zeros_like(squares)
        rest = errors - slope[series[rows], part] * more
        np.add.at(left, (series[rows], part), rest**2)
        error = np.sqrt(left / squares / np.maximum(n, 1.0)[:, None])
        slope = np.maximum(slope - error, 0.0)
        own = trust * slope
        of_members = own * is_member[:, None]
        n_members = max((is_member & (n > 0)).sum(), 1)
        others = (of_members.sum(axis=0) - of_members) / n_members
        return cls(naive, medians, np.clip(own + (1 - trust) * others, 0.0, 1.0))

    def _weight(self, series: Numbers | int, ahead: Array) -> Array:
        """Return how much naive forecasts of series count at times ahead."""
        share = interpolated(ahead, self.leads, np.eye(len(self.leads)))
        weight: Array = (share * self.weights[series]).sum(axis=-1)
        return weight

    def left(self, series: int, found: Ahead) -> Ahead:
        """Return forecasts of a series that naive ones have moved."""
        moved = self._weight(series, found.leads) * self.naive.more(series, found)
        moved = np.where(np.isnan(moved), 0.0, moved)
        return found._replace(
            signals=found.signals + moved * found.deviations,
            errors=found.errors - moved,
        )

    def shift(self, queries: ChannelRows, means: Array, deviations: Array) -> Array:
        """Return how far forecasts move, (query,), whose ``means`` lack effects.

        Nothing moves before the last rows, and where a period before there was none.
        """
        series = queries.series
        weight = self._weight(series, queries.times - self.naive.table.ends[series])
        more = _believed((self.naive.ahead(queries) - means) / deviations)
        return np.where(np.isnan(more), 0.0, weight * deviations * more)


def _believed(more: Array) -> Array:
    """Return differences in deviations; NaN of those that are as far as outliers."""
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(more) <= THRESHOLD, more, np.nan)


def _without_outliers(changes: Array, bounds: Numbers) -> Array:
    """Return changes, those of each series that are as far as outliers less far."""
    found = changes.copy()
    for first, end in pairwise(bounds.tolist()):
        own = changes[first:end]
        if np.isfinite(own).any():
            median = np.nanmedian(own)
            most = THRESHOLD * usual_deviation(own - median)
            found[first:end] = np.clip(own, median - most, median + most)
    return found


def naive_periods(unit: float, like: pd.Index) -> dict[str, float]:
    """Return periods in units of time by name, longest first, that rows may show.

    ``unit`` is in ticks of an index like this one.
    """
    tick = tick_length(like)
    if tick is None or unit * tick > WEEK:
        return {}
    fewest, most = _ROWS_A_PERIOD
    periods = {name: period / (unit * tick) for name, period in PERIODS.items()}
    return {name: p for name, p in periods.items() if fewest <= p <= most}
