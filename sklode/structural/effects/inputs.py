"""What effects may read at rows of series, and the forms that they may have.

Tested in tests/structural/effects/test_effect.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sklode.data.arrays import Array, Flags, Numbers
from sklode.data.calendars import WINDOWS
from sklode.structural.effects.basis import (
    Basis,
    Constant,
    Levels,
    Line,
    Logarithm,
    Spline,
)
from sklode.structural.effects.effect import Effect, modulated
from sklode.structural.effects.lags import (
    FADES,
    MEMORIES,
    NOW,
    Age,
    Clock,
    Delay,
    Impulse,
    Lag,
    Memory,
    Queries,
    Read,
)
from sklode.structural.effects.modulation import (
    CalendarFeatures,
    Day,
    Month,
    NamedDays,
    Steps,
    TradingDays,
    Weeks,
)
from sklode.structural.rows import ChannelRows
from sklode.structural.scaling import Scaling

# of a curve, at quantiles of the column;
# of one that changes along the day
_KNOTS, _FEW_KNOTS = 8, 5
_FEWEST_VALUES = 6  # different ones, of a column that may have a curve
_LEAST_WITHIN = 1e-6  # of a column's deviations, within series: else it is constant
_OLD, _YOUNG = 0.75, 0.5
"""Of the oldest series' age: one that shows a curve of age, one that needs it."""
_MANY_YOUNG = 0.25  # share of young ones, for whom a curve may be the clock's
_KNOTS_OF_AGE = 12  # of a curve of age, at quantiles of the ages
_SIZES_OF_AGE = 1.0, 3.0, 10.0  # of such a curve, that are tried, in spreads
_FEWEST_AGES = 4  # different ones: a natural spline through three has one bend
_MOST_GIVEN = 0.5  # share of observed rows, of a column whose rows are impulses
_SPANS = 10.0  # in the longest series, of the longest memory
# of a month: smooth; as sharp as two or three days at its turn
_HARMONICS_OF_MONTH = 4, 12
# of a day's shape: those that rows of
# an hour show, and of a quarter of one
_HARMONICS = 12, 48
_FEW_HARMONICS = 3  # of the day, along which a curve changes
_MOST_KINDS = 3  # of days, beside the usual one
# standard deviations, in spreads, of a day's shape: a factor of three
# tells little more; of a named day; of a month's day more or less;
# of what a category's level adds
_SIZES = 1.0, 0.3, 0.1
_SIZES_OF_DAYS = 3.0, 1.0, 0.3
_SIZES_OF_TRADING = 1.0, 0.3, 0.1, 0.03  # of trading days' effects
_SIZES_OF_LEVELS = 2.0, 0.7, 0.25, 0.08
_MOST_DAYS = 3  # in a row that are of one kind, as a long weekend
# of a kind: two weeks of it suffice, as the proof by folds decides;
# that was chosen on the electricity load and a series of minutes
_FEWEST_DAYS = 2
_MOST_FOLDS = 5  # of each series, see `effect_selection`


class Estimate(NamedTuple):
    """Effects, and their coefficients given a form's hyperparameters."""

    effects: tuple[Effect, ...] = ()
    coefficients: Array = np.zeros((0, 0))  # (series, coefficient)
    means: Array = np.zeros((0, 0))  # as others of the panel tell, likewise
    loss: float = 0.0  # what they add to minus the log probability
    response: Array = np.zeros(0)  # (row,), what they add to y, in states' units
    usual: Array = np.zeros(0)  # likewise, by what others of the panel tell
    scaling: Scaling | None = None  # to these, of a panel

    @property
    def is_shared(self) -> bool:
        """Whether series share an effect."""
        return any(effect.pooling.has_mean for effect in self.effects)


class ColumnUnits(NamedTuple):
    """What standardised columns were: location plus scale times these."""

    location: Array  # (column,)
    scale: Array

    def at(self, column: int) -> tuple[float, float]:
        """Return those of one column."""
        return float(self.location[column]), float(self.scale[column])


class Inputs(NamedTuple):
    """What effects may read at rows of series, all of which memories need."""

    read: Read
    n_controls: int  # columns of X
    units: ColumnUnits  # of columns
    features: CalendarFeatures
    n_days: int  # of the week; 0: rows show no day's shape, or no week
    rows: Numbers  # those at which a channel was observed, sorted
    has_month: bool = False  # whether rows may show one
    years: Numbers = np.zeros(0, dtype=np.int64)
    """Which of the last years all rows are in; none: rows show no weeks of the year."""
    n_kinds: int = 0  # of named days; 0: none are known
    blocks: tuple[tuple[int, int], ...] = ()  # of controls, see `Known`
    is_of_family: bool = False  # likewise
    edges: tuple[float, ...] = ()
    """Shares of the day at which a channel steps."""
    has_weekdays: bool = False  # whether rows differ by their days of the week
    delays: tuple[tuple[int, Array], ...] = ()
    """Columns of y among controls that may act late, and after which delays."""

    def at(self, chosen: Numbers) -> Inputs:
        """Return those of some observed rows, from first ones on."""
        rows, bounds = self.rows[chosen], self.read.bounds
        series = self._series_of(rows)
        # all rows between the first and the
        # end of a series feed its memories
        own, first = np.unique(series, return_index=True)
        # and so do those before its first observed one
        is_first = rows[first] == self.rows[self._bounds[own]]
        starts = np.where(is_first, bounds[own], rows[first])
        pairs = zip(starts, bounds[own + 1], strict=True)
        kept = [np.arange(start, end) for start, end in pairs]
        lengths = [len(part) for part in kept]
        every = np.concatenate(kept)
        read = Read(
            bounds=np.append(0, np.cumsum(lengths)),
            times=self.read.times[every],
            columns=self.read.columns[every],
            begins=self.read.begins[own],
            starts=self.read.starts[own],
        )
        # both are sorted, so that a row's place
        # among those kept is its number there
        new_rows = np.searchsorted(every, rows)
        features = self.features.at(every)
        years = self.years[every] if self.has_weeks else self.years
        return self._replace(read=read, features=features, rows=new_rows, years=years)

    def _series_of(self, rows: Numbers) -> Numbers:
        """Return the series of rows."""
        return np.searchsorted(self.read.bounds, rows, side="right") - 1

    @property
    def _bounds(self) -> Numbers:
        """Where series begin among observed rows, (series + 1,)."""
        return np.searchsorted(self.rows, self.read.bounds)

    @property
    def _is_panel(self) -> bool:
        """Whether there are several series."""
        return len(self.read.bounds) > 2

    def columns(self, effects: Sequence[Effect]) -> Array:
        """Return the columns of effects at observed rows."""
        queries = Queries(
            known=self.read,
            place=self.rows,
            seen=self.read,
            series=self._series_of(self.rows),
            times=self.read.times[self.rows],
        )
        found = [effect.lagged(queries) for effect in effects]
        return modulated(effects, found, self.features.at(self.rows))

    def log_odds(self, effect: Effect) -> float:
        """Return what one takes off the log probability: of many columns, few act."""
        n_columns = 1
        if effect.is_delayed:
            n_columns = len(self.delays)
        elif effect.is_of_X and not effect.is_of_age:
            # a category is one column, not as many as it has levels
            n_columns = self.n_controls - sum(n - 1 for _, n in self.blocks)
        return effect.log_odds + math.log(n_columns)

    def options(self, span: float) -> list[list[Effect]]:
        """Return, of each effect that there may be, the forms it may have.

        A constant column has none; others may act at once and late. Where rows show a
        day's shape and a week's days, each column may act along the day, and some days
        may have a shape of their own.
        """
        late = [Memory(m) for m in MEMORIES[MEMORIES <= span / _SPANS].tolist()]
        lags: list[Lag] = [NOW, *late]
        harmonics = self._harmonics
        found: list[list[Effect]] = []
        for column in self._numbers:
            found += self._of_number(column, late, harmonics)
        found += self._of_calendar()
        for column, delays in self.delays:
            values = self.read.columns[:, column]
            curve = _spline(column, values[~np.isnan(values)], _KNOTS)
            of_column = [
                Effect(basis, Delay(delay))
                for basis in (Line(column), curve)
                for delay in delays.tolist()
            ]
            found.append(of_column)
        for first, n in self.blocks:
            of_category = [
                Effect(Levels(first, n), lag, size=size)
                for size in _SIZES_OF_LEVELS
                for lag in lags
            ]
            found.append(of_category)
        if harmonics:
            found += self._shapes_of_days(harmonics)
        return found + self._of_age()

    def _of_age(self) -> list[list[Effect]]:
        """Return the forms of a curve of age.

        That is the time since a series' first value, or what a column of X says.
        """
        rows, bounds, found = self.rows, self._bounds, []
        # where both are the same, what is told comes first: it holds for new series too
        for column in self._numbers:
            values = self.read.columns[rows, column]
            if _is_followed(values, bounds, self.is_of_family):
                curve = _spline(column, values, _KNOTS_OF_AGE)
                found += [Effect(curve, Age(), size=size) for size in _SIZES_OF_AGE]
        ages = self.read.ages(self._series_of(rows), self.read.times[rows])
        if _is_followed(ages, bounds, self.is_of_family):
            lag = Age(location=float(ages.mean()), scale=float(ages.std()))
            curve = _spline(-1, lag.standard(ages)[:, 0], _KNOTS_OF_AGE)
            found += [Effect(curve, lag, size=size) for size in _SIZES_OF_AGE]
        return [found] if found else []

    def of_clock(self, age: Effect) -> list[Effect]:
        """Return curves of what all series do at one time, else as that of an age."""
        curve = age.basis
        if not isinstance(curve, Spline):
            return []
        series, times = self._series_of(self.rows), self.read.times[self.rows]
        ages, passed = self.read.ages(series, times), self.read.starts[series] + times
        # where all series begin together both curves are the same
        values = self.columns([replace(age, size=1.0)])[:, 0]
        scale = float(np.ptp(ages) / np.ptp(values))
        lag = Clock(location=float(ages.min() - scale * values.min()), scale=scale)
        # both bend as often, unless ages are nothing beside the times of all
        n, first, last = len(curve.knots), curve.knots[0], curve.knots[-1]
        rest = lag.standard(passed).max() - last
        n_more = min(round((n - 1) * rest / (last - first)), 3 * n)
        more = np.linspace(last, last + rest, n_more + 1)[1:].tolist()
        basis, sizes = Spline(-1, (*curve.knots, *more)), {*_SIZES_OF_AGE, age.size}
        return [replace(age, basis=basis, lag=lag, size=size) for size in sizes]

    @property
    def may_be_of_age(self) -> bool:
        """Whether a curve is taken for one of age that may be one of the clock.

        An index without dates is an age itself; else many series must need the curve.
        """
        ages = self.read.ages(self._series_of(self.rows), self.read.times[self.rows])
        share = (_reached(ages, self._bounds) < _YOUNG).mean()
        return bool(share >= _MANY_YOUNG or not self.features.week_of_year.any())

    @property
    def _numbers(self) -> list[int]:
        """Columns of X that are no part of a category."""
        in_blocks = {first + k for first, n in self.blocks for k in range(n)}
        return [k for k in range(self.n_controls) if k not in in_blocks]

    def _of_number(
        self, column: int, late: list[Memory], harmonics: int
    ) -> list[list[Effect]]:
        """Return the forms of effects of a column that is a number."""
        values = self.read.columns[self.rows, column]
        found = self._of_impulses(column)
        if not np.ptp(values) > 0:
            return found
        bases = self._bases(column, values, _KNOTS)
        within = self._within(bases[0].columns(values[:, None])[:, 0])
        if not within:
            return found
        # a column may have two effects, of which the second is late
        lags: list[list[Lag]] = [[NOW, *late], [*late]]
        found += [
            [Effect(basis, lag, size=1 / within) for basis in bases for lag in own]
            for own in lags
        ]
        if not harmonics:
            return found
        # a curve takes more coefficients than a line, so it has fewer knots and
        # harmonics
        most = _HARMONICS[0]
        if len(bases) > 1:
            bases, most = bases_of(column, values, _FEW_KNOTS), _FEW_HARMONICS
        day = Day(harmonics=min(harmonics, most))
        along = [
            Effect(basis, modulation=day, size=size / within)
            for basis in bases
            for size in _SIZES
        ]
        return [*found, along]

    def _within(self, values: Array) -> float:
        """Return the standard deviation of observed rows within series.

        Of a lone series it is one: columns are standardised.
        """
        if not self._is_panel:
            return 1.0
        counts, series = np.diff(self._bounds), self._series_of(self.rows)
        means = np.bincount(series, values, len(counts)) / np.maximum(counts, 1)
        found = float((values - means[series]).std())
        return found if found > _LEAST_WITHIN * float(values.std()) else 0.0

    def _of_impulses(self, column: int) -> list[list[Effect]]:
        """Return the forms of what a column gives at lone rows, y seen there or not.

        The second is what is given before it is absorbed.
        """
        values = self.read.columns[:, column]
        location, scale = self.units.at(column)
        zero = -location / scale
        is_given = np.abs(values - zero) > _LEAST_WITHIN
        # what is given at rows of its own may be more often given than y is read
        if not is_given.any() or is_given[self.rows].mean() >= _MOST_GIVEN:
            return []
        times = FADES[FADES <= self.read.times.max()].tolist()
        found = [Effect(Line(column), Impulse(time, zero)) for time in times]
        return [found, found]

    def _bases(self, column: int, values: Array, n_knots: int) -> list[Basis]:
        """Return the bases that a column of numbers may have, the simplest first.

        Positive values whose level differs more between series of a panel than within
        them, such as prices, act by how many times as large they are as usual.
        """
        centre, unit = self.units.at(column)
        original = centre + unit * values
        if (
            self._is_panel
            and len(np.unique(values)) >= _FEWEST_VALUES
            and original.min() > 0
        ):
            basis = Logarithm.of(column, original, centre, unit)
            # standardised: what is not within series is between them
            within = self._within(basis.columns(values[:, None])[:, 0])
            if within**2 < 0.5:
                return [basis]
        return bases_of(column, values, n_knots)

    def _of_calendar(self) -> list[list[Effect]]:
        """Return the forms of what the calendar does."""
        found = []
        if self.edges:
            steps = Steps(self.edges)
            found.append(
                [Effect(Constant(), modulation=steps, size=n) for n in _SIZES_OF_DAYS]
            )
        if self.has_month:
            of_month = [
                Effect(Constant(), modulation=Month(harmonics), size=size)
                for harmonics in _HARMONICS_OF_MONTH
                for size in _SIZES
            ]
            found.append(of_month)
        if self.has_weekdays:
            of_trading = [
                Effect(Constant(), modulation=TradingDays(by_day), size=size)
                for by_day in (False, True)
                for size in _SIZES_OF_TRADING
            ]
            found.append(of_trading)
        if self.n_kinds:
            several = [
                NamedDays(self.n_kinds, sides, begins, window, self.features.of_periods)
                for begins in (False, True)[: 1 + self.features.may_begin]
                for sides in (False, True)
                for window in range(len(WINDOWS) if sides else 1)
            ]
            of_days = [
                Effect(Constant(), modulation=days, size=size)
                for days in several
                for size in _SIZES_OF_DAYS
            ]
            found.append(of_days)
        return found

    def _shapes_of_days(self, harmonics: int) -> list[list[Effect]]:
        """Return the forms of the shape of all days, and of those of some kinds."""
        several = sorted({min(harmonics, most) for most in _HARMONICS})

        def shapes(n: int, days: tuple[int, ...]) -> list[Effect]:
            day = Day(days=days, harmonics=n, has_mean=True)
            return [Effect(Constant(), modulation=day, size=size) for size in _SIZES]

        of_all = [shapes(n, ()) for n in several]
        of_kind = [
            effect
            for n in several
            for days in self._kinds()
            for effect in shapes(n, days)
        ]
        # each kind has the same forms to choose from
        return of_all + [of_kind] * _MOST_KINDS

    def _kinds(self) -> list[tuple[int, ...]]:
        """Return days in a row that may be of one kind, if they were seen often."""
        days = self.features.day_of_week[self.rows].astype(np.int64)
        seen = np.bincount(days[self._begins()], minlength=self.n_days + 1)
        # all days of the week are no kind; what
        # begins on Sunday goes on on Monday
        longest = min(_MOST_DAYS, self.n_days - 1)
        runs = {
            tuple(sorted((first + k) % self.n_days for k in range(n)))
            for n in range(1, longest + 1)
            for first in range(self.n_days)
        }
        if self.n_kinds:
            # named days are one more day, that may be of the same kind
            runs |= {(*run, self.n_days) for run in [*runs, ()]}
        return [run for run in sorted(runs) if seen[[*run]].sum() >= _FEWEST_DAYS]

    def folds(self, bounds: Numbers) -> Numbers:
        """Return the bounds of a few folds of each series.

        They are of whole weeks where rows have these. Where nothing has to be proved,
        each series is one.
        """
        pairs = itertools.pairwise(bounds.tolist())
        if self.n_days:
            begins = self._begins()
            n_days = self.n_days
            parts = [_weeks(first, end, begins, n_days) for first, end in pairs]
        elif self.has_month or self.has_weekdays or self.n_kinds or self.delays:
            # equal ones; a short series has
            # fewer, as some begin at one row
            starts = [
                np.linspace(first, end, _MOST_FOLDS + 1)[:-1].round()
                for first, end in pairs
            ]
            parts = [np.unique(np.concatenate(starts))]
        else:
            return bounds
        return np.append(np.concatenate(parts), bounds[-1]).astype(int)

    @property
    def has_weeks(self) -> bool:
        """Whether rows may show weeks of the year."""
        return len(self.years) > 0

    @property
    def weeks(self) -> list[Effect]:
        """The forms of what weeks of the year do."""
        return [Effect(Constant(), modulation=Weeks(), size=n) for n in _SIZES]

    def folds_of_years(self, bounds: Numbers) -> Numbers:
        """Return the bounds of the years of each series."""
        starts = np.flatnonzero(np.diff(self.years[self.rows])) + 1
        return np.union1d(bounds, starts)

    def _begins(self) -> Flags:
        """Return the rows at which a day begins, or the share of one falls."""
        share = self.features.share_of_day[self.rows]
        day = self.features.day_of_week[self.rows]
        return np.append(True, (np.diff(day) != 0) | (np.diff(share) < 0))

    @property
    def _harmonics(self) -> int:
        """Number of harmonics of a day that rows can show; 0: no shape."""
        if not self.n_days:
            return 0
        shares = self.features.share_of_day[self.rows]
        n_stamps = len(np.unique(shares.round(4)))
        # uneven stamps are all different: a
        # usual day's rows tell how fine they are
        a_day = len(shares) // self._begins().sum()
        n_rows = max(a_day, 2 * _HARMONICS[0])
        # a wave takes two stamps (Nyquist)
        return int(min(n_stamps // 2, n_rows // 2, _HARMONICS[-1]))


def grows_old(table: ChannelRows, is_of_family: bool) -> bool:
    """Return whether series of a panel may share a curve of their age."""
    ages = table.times - table.starts[table.series]
    return _is_followed(ages, table.bounds, is_of_family)


def _is_followed(ages: Array, bounds: Numbers, is_of_family: bool) -> bool:
    """Return whether series have lived what is ahead of others, by observed rows.

    What falls within a series is no age, nor what is constant in most.
    """
    if len(bounds) < 3 or len(np.unique(ages)) < _FEWEST_AGES:
        return False
    firsts, ends = bounds[:-1], bounds[1:]
    series = np.repeat(np.arange(len(firsts)), ends - firsts)
    if (np.diff(ages)[np.diff(series) == 0] < 0).any():
        return False
    some = ends > firsts
    if (ages[ends[some] - 1] > ages[firsts[some]]).mean() < 0.5:
        return False
    reached = _reached(ages, bounds)
    # where all are about as old, none has lived what is ahead of another
    has_young = is_of_family or bool((reached < _YOUNG).any())
    return has_young and int((reached > _OLD).sum()) > 1


def _reached(ages: Array, bounds: Numbers) -> Array:
    """Return which share of all ages each series has lived, of those with rows."""
    ends = bounds[1:][np.diff(bounds) > 0]
    shares: Array = (ages[ends - 1] - ages.min()) / np.ptp(ages)
    return shares


def _weeks(first: int, end: int, begins: Flags, n_days: int) -> Numbers:
    """Return the first rows of a series' folds of whole weeks."""
    if end == first:
        return np.array([first])
    # the number of days that began, in whole weeks
    week = (np.cumsum(begins[first:end]) - 1) // n_days
    n_weeks = int(week[-1]) + 1
    n = min(n_weeks, _MOST_FOLDS)
    # as many weeks in each fold as can be
    fold = week * n // n_weeks
    return first + np.searchsorted(fold, np.arange(n))


def bases_of(column: int, values: Array, n_knots: int) -> list[Basis]:
    """Return the bases that a column of numbers may have, the simplest first."""
    if len(np.unique(values)) < _FEWEST_VALUES:
        return [Line(column)]
    return [Line(column), _spline(column, values, n_knots)]


def _spline(column: int, values: Array, n: int) -> Spline:
    """Return a curve with knots at quantiles, but for those next to each other."""
    knots = np.unique(np.quantile(values, np.linspace(0, 1, n)))
    # from infinity on, so that the first one stays
    kept = np.diff(knots, prepend=-np.inf) > 1e-3 * np.ptp(knots)
    return Spline(column, tuple(knots[kept].tolist()))
