r"""The value 364 days before beside a forecast: on the same weekday, a year ago.

.. math:: f + w \, (y(t - 52 \mathrm{\ weeks}) + c - f)

with f a forecast, and c what has changed since a year before, on average of the last
quarter of a year: a seasonal naive forecast with a level. A year has sharp days that no
smooth wave has, and keeps to weekdays. The weight w, by lead, is the slope of a model's
errors ahead on what the other says more (Bates and Granger, "The Combination of
Forecasts", 1969). What was so far from a forecast as outliers are does not come back.

Tested in tests/structural/predictive/test_seasonal_naive.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from sklode.data.arrays import Array, Numbers
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

# part of a year that tells what has changed, and of its rows that have one before
_CHANGES, _SEEN = 0.25, 0.5
# errors that a weight of zero is worth
_DOUBT = 10.0


@dataclass(frozen=True)
class SeasonalNaive:
    """The seasonal naive forecasts of series."""

    table: ChannelRows  # in states' units
    added: Array  # (row,), what effects add, which no year before tells
    year: float  # 52 weeks, in units of time

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
        """What has changed since a year before, (row,); NaN where nothing tells."""
        table, clock, series = self.table, self._clock, self.table.series
        all_changes = self._values - self._before(series, clock - self.year)
        changes = _without_outliers(all_changes, table.bounds)
        is_known = np.isfinite(changes)
        sums = np.append(0.0, np.cumsum(np.where(is_known, changes, 0.0)))
        counts = np.append(0, np.cumsum(is_known))
        ends = np.arange(1, len(clock) + 1)
        before = clock - _CHANGES * self.year
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
        found = self._before(series, clock - self.year) + self._changes[last]
        # of more than a year ahead nothing tells how much more changes
        is_near = clock - self._clock[last] <= self.year
        return np.where(is_near, found, np.nan)

    def ahead(self, queries: ChannelRows) -> Array:
        """Return forecasts after the last rows, (query,), without what effects add.

        NaN where there is none, and more than a year ahead.
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
        cls, naive: SeasonalNaive, several: list[tuple[int, Ahead]]
    ) -> Combination:
        """Weigh it by the errors ahead that `spread_ahead` found at rows of series.

        Of each series the slope is shrunk to what others have, and this to zero.
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
        is_known = np.isfinite(errors) & np.isfinite(more)
        if not is_known.any():
            return nothing
        errors, more = np.clip(errors[is_known], -CLIPPED, CLIPPED), more[is_known]
        rows, series = rows[is_known], naive.table.series
        part, medians = parts_of(leads[is_known], method="lower")
        products, squares = np.zeros((2, n_series, len(medians)))
        np.add.at(products, (series[rows], part), errors * more)
        np.add.at(squares, (series[rows], part), more**2)
        # rows are asked many times, and neighbours err alike
        n = np.bincount(series[np.unique(rows)], minlength=n_series) / ALIKE
        trust = (n / (n + _DOUBT))[:, None]
        own = trust * products / np.maximum(squares, LEAST)
        others = (own.sum(axis=0) - own) / (n > 0).sum()
        return cls(naive, medians, np.clip(own + (1 - trust) * others, 0.0, 1.0))

    def _weight(self, series: Numbers | int, ahead: Array) -> Array:
        """Return how much naive forecasts of series count at times ahead."""
        share = interpolated(ahead, self.leads, np.eye(len(self.leads)))
        weight: Array = (share * self.weights[series]).sum(axis=-1)
        return weight

    def left(self, series: int, found: Ahead) -> Ahead:
        """Return forecasts of a series with the errors that naive ones leave."""
        moved = self._weight(series, found.leads) * self.naive.more(series, found)
        errors = found.errors - np.where(np.isnan(moved), 0.0, moved)
        return found._replace(errors=errors)

    def shift(self, queries: ChannelRows, means: Array, deviations: Array) -> Array:
        """Return how far forecasts move, (query,), whose ``means`` lack effects.

        Nothing moves before the last rows, and where a year before there was none.
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


def units_of_year(unit: float, like: pd.Index) -> float | None:
    """Return how many units of time 52 weeks have.

    None where rows do not lie an hour to a week apart. ``unit`` is in ticks of an index
    like this one.
    """
    tick = tick_length(like)
    if tick is None or not DAY / 24 <= unit * tick <= WEEK:
        return None
    return 52 * WEEK / (unit * tick)
