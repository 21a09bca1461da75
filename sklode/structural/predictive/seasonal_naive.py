r"""The value 364 days before beside a forecast: on the same weekday, a year ago.

.. math:: f + w \, (y(t - 52 \mathrm{\ weeks}) + c - f)

with f a forecast, and c what has changed since a year before, on average of the last
quarter of a year: a seasonal naive forecast with a level. A year has sharp days that no
smooth wave has, and keeps to weekdays. The weight w, by lead, is the slope of a model's
errors ahead on what the other says more (Bates and Granger, "The Combination of
Forecasts", 1969).

Tested in tests/structural/predictive/test_seasonal_naive.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from sklode.data.arrays import Array, Numbers
from sklode.data.links import LEAST
from sklode.data.ticks import DAY, rows_before, tick_length
from sklode.structural.predictive.dispersion import ALIKE
from sklode.structural.predictive.limits import usual_gaps
from sklode.structural.predictive.scale_by_lead import (
    CLIPPED,
    Ahead,
    interpolated,
    parts_of,
)
from sklode.structural.rows import ChannelRows

# of a year, that tells what has changed; so much of it must have a year before
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
    def _changes(self) -> Array:
        """What has changed since a year before, (row,); NaN where nothing tells."""
        table, clock, series = self.table, self.table.clock, self.table.series
        changes = self._values - self._before(series, clock - self.year)
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
        table, near = self.table, usual_gaps(self.table)[series] / 2
        row = rows_before(table.bounds, table.clock, series, clock + near)
        is_own = row >= table.bounds[series]
        row = np.maximum(row, 0)
        is_near = is_own & (clock - table.clock[row] < near)
        return np.where(is_near, self._values[row], np.nan)

    def _at(self, last: Numbers, series: Numbers, clock: Array) -> Array:
        """Return forecasts of times on the wall after ``last`` rows of their series."""
        # what is more than a year ahead is read more than a year before
        years = np.ceil((clock - self.table.clock[last]) / self.year)
        return self._before(series, clock - years * self.year) + self._changes[last]

    def ahead(self, queries: ChannelRows) -> Array:
        """Return forecasts after the last rows, (query,), without what effects add.

        NaN where there is none.
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
        """Return how much more it says than other forecasts, in deviations of these.

        NaN where it says nothing.
        """
        rows = self.rows(series, found)
        origins = np.broadcast_to(rows[:, :1] - 1, rows.shape)
        clock = self.table.clock[rows]
        says = self._at(origins, np.full(rows.shape, series), clock) + self.added[rows]
        more: Array = (says - found.signals) / found.deviations
        return more


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

        Of each series the slope is shrunk to those of others, and these to zero.
        """
        n_series = len(naive.table.lengths)
        nothing = cls(naive, np.zeros(1), np.zeros((n_series, 1)))
        if not several:
            return nothing
        errors = np.concatenate([own.errors.ravel() for _, own in several])
        leads = np.concatenate([own.leads.ravel() for _, own in several])
        rows = np.concatenate([naive.rows(k, own).ravel() for k, own in several])
        more = np.concatenate([naive.more(k, own).ravel() for k, own in several])
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
        return found._replace(errors=found.errors - np.nan_to_num(moved))

    def shift(self, queries: ChannelRows, forecasts: Array) -> Array:
        """Return how far ``forecasts`` move, (query,), without what effects add.

        Nothing moves before the last rows, and where a year before there was none.
        """
        series = queries.series
        weight = self._weight(series, queries.times - self.naive.table.ends[series])
        return np.nan_to_num(weight * (self.naive.ahead(queries) - forecasts))


def year_before(unit: float, like: pd.Index) -> float | None:
    """Return how many units of time 52 weeks have; None: rows show no weeks.

    ``unit`` is in ticks of an index like this one.
    """
    tick = tick_length(like)
    if tick is None or unit * tick > 7 * DAY:
        return None
    return 52 * 7 * DAY / (unit * tick)
