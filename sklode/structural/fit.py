"""The fit: what each column of y is, and what columns tell of each other.

Tested in tests/structural/test_decisions.py and test_more.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from sklode.data.arrays import Array
from sklode.data.calendars import (
    RowPeriod,
    shows_months,
    shows_weeks,
    years_to_last,
)
from sklode.data.known import Known
from sklode.data.links import margins, steps_of
from sklode.data.observations import Observations
from sklode.data.scaling import location_and_scale, time_unit
from sklode.data.ticks import day_and_week
from sklode.structural.candidates import Candidate, heaviest_of_each
from sklode.structural.coupling.coupling import Coupling
from sklode.structural.coupling.delays import MOST_COLUMNS, likely_delays
from sklode.structural.design import Design
from sklode.structural.effects.effect import Effect, places
from sklode.structural.effects.inputs import ColumnUnits, Inputs, grows_old
from sklode.structural.effects.modulation import MOST_EDGES, edges_of
from sklode.structural.effects.selection import MOST_ASKED, random_coefficients
from sklode.structural.filtered_column import FilteredColumn
from sklode.structural.model import ColumnModel, StructuralModel
from sklode.structural.predictive.limits import LargestMoves
from sklode.structural.predictive.seasonal_naive import naive_periods
from sklode.structural.rows import ChannelRows
from sklode.structural.search.attributes import (
    Attributes,
    attributes_in,
    attributes_of,
    levels_of,
)
from sklode.structural.search.forms import SearchResult, fit_candidates
from sklode.structural.search.groups import fit_groups, weights_of
from sklode.structural.search.periods import (
    Seasons,
    calendar_periods,
    cycle_of,
    seasons_of,
)
from sklode.structural.search.rows import SearchRows

# of a day, where its observations are more than a search reads: a quarter of an hour
_MEANS = 96
_SEEN = 0.1  # of a panel's series, that show an edge of the day


def fit_model(
    observations: Observations,
    seasons: str | tuple[float, ...] = "auto",
    logarithm: str | bool = "auto",
    known: Known | None = None,
) -> StructuralModel:
    """Find each column's hyperparameters; ``seasons`` are in ticks."""
    n = observations.values.shape[1]
    known = Known.nothing(n) if known is None else known
    design = _design_without_effects(observations, known)
    tables = design.tables(observations)
    longest = max(float(table.spans.max(initial=0)) for table in tables)
    named = None if isinstance(seasons, str) else seasons
    lengths = named
    if lengths is None:
        longest_in_ticks = longest * design.unit
        lengths = tuple(calendar_periods(observations, design.unit, longest_in_ticks))
    cycle = cycle_of(lengths, day_and_week(observations.like))
    design = replace(design, cycle=cycle)
    if named is None:
        design = replace(design, periods=naive_periods(design.unit, observations.like))
    spans = [_usual_span(table, longest) for table in tables]
    # a column may be seen more rarely than others: its own usual gap, in ticks
    gaps = [time_unit(_alone(observations, column)) for column in range(n)]
    delays = likely_delays(tables, [gap / design.unit for gap in gaps])
    found = [
        _ColumnSearch(
            column=column,
            observations=observations,
            table=table,
            design=design,
            span=spans[column],
            seasons=named,
            logarithm=logarithm,
            known=known,
            delays=delays[column],
        ).candidates(gaps[column])
        for column, table in enumerate(tables)
    ]
    attributes = _attributes(found, tables, design, observations, known)
    found = [
        [(one, (*effects, *more.effects)) for one, effects in each]
        for each, more in zip(found, attributes, strict=True)
    ]
    several = {effect for each in found for _, own in each for effect in own}
    effects = sorted(several, key=lambda effect: effect.order)
    if effects:
        # which the tables then have columns for
        design = replace(design, effects=tuple(effects))
        tables = design.tables(observations)
    quanta = steps_of(margins(observations.values, known.bounds))
    columns = [
        ColumnModel(
            candidates=_with_smearing(
                _with_coefficients(
                    _with_effects(each, places(effects), known),
                    effects=[own for _, own in each],
                    table=table,
                    span=span,
                    deviation=more.deviation,
                ),
                table=table,
                span=span,
            ),
            span=span,
            bounds=known.bounds[column],
            quantum=float(quanta[column]),
            moves=LargestMoves.measured(table),
        )
        for column, (each, more, table, span) in enumerate(
            zip(found, attributes, tables, spans, strict=True)
        )
    ]
    coupling = Coupling.none(n)
    if n > 1:
        # what columns tell of each other is asked of the heaviest candidates alone
        likely = [
            FilteredColumn.filter(
                heaviest_of_each(column.candidates),
                table=table,
                span=column.span,
                members=np.arange(len(table.lengths)),
            )
            for column, table in zip(columns, tables, strict=True)
        ]
        coupling = Coupling.fit(likely)
    is_shared = any(one.coefficients for column in columns for one in column.candidates)
    return StructuralModel(
        design=design,
        columns=columns,
        coupling=coupling,
        members=observations.keys if is_shared else (),
    )


def _design_without_effects(observations: Observations, known: Known) -> Design:
    """Return the design before a search has found effects, or a cycle."""
    n, controls = observations.values.shape[1], observations.controls
    if 2 <= n <= MOST_COLUMNS:
        # each column of y may follow another: all are read as those of X are
        controls = np.hstack([controls, observations.values])
    location, scale = location_and_scale(controls)
    for first, size in known.blocks:
        # indicators of one category: their effects are of one size, be it rare or
        # common
        scale[first : first + size] = 1.0
    return Design(
        unit=time_unit(observations.observed()),
        location=location,
        scale=scale,
        calendar=known.calendar,
        period=RowPeriod.at(observations.ticks, observations.like),
    )


@dataclass(frozen=True)
class _ColumnSearch:
    """The search for what a column's forecasts average over."""

    column: int
    observations: Observations
    table: ChannelRows  # the column's observed rows
    design: Design
    span: float
    seasons: tuple[float, ...] | None  # named by the user, in ticks
    logarithm: str | bool
    known: Known
    delays: list[tuple[int, Array]]

    def candidates(self, gap: float) -> list[tuple[Candidate, tuple[Effect, ...]]]:
        """Return candidates and their effects; ``gap``, the usual one, is in ticks."""
        rows, unit, lengths = self.observations, self.design.unit, self.seasons
        if lengths is None:
            most = float(self.table.spans.max(initial=0)) * unit
            lengths = tuple(calendar_periods(rows, gap, most))
        is_lone, fine = len(rows.keys) == 1, None
        coarse = self._search_rows(rows, self.table, lengths)
        if is_lone and min(lengths, default=0.0) > 2 * _MEANS * gap:
            # the last observations, which a search reads, show too little of a day
            gap = min(lengths) / _MEANS
            means = rows.means(round(gap))
            table = self.design.tables(means)[self.column]
            fine, coarse = coarse, self._search_rows(means, table, lengths)
        periods = [period / unit for period in lengths]

        def fit(rows: SearchRows) -> SearchResult:
            if self.seasons is None:
                seasons = seasons_of(rows.table, periods, gap / unit)
            else:
                seasons = Seasons(named=tuple(periods), calendar={}, others={})
            return fit_candidates(
                rows,
                fine,
                span=self.span,
                gap=gap / unit,
                seasons=seasons,
                logarithm=self.logarithm,
                bounds=self.known.bounds[self.column],
            )

        return fit_groups(coarse, fit)

    def _search_rows(
        self, rows: Observations, table: ChannelRows, seasons: tuple[float, ...]
    ) -> SearchRows:
        """Return the column's rows, and what effects may read there."""
        design, cycle = self.design, self.design.cycle
        seen = np.flatnonzero(~np.isnan(rows.values[:, self.column]))
        passed = design.clock(rows.ticks[seen], rows.like)
        days = cycle if cycle and {*cycle} <= {*seasons} else None
        is_named = self.seasons is not None
        has_month = not is_named and shows_months(rows.ticks, rows.bounds, rows.like)
        years = np.zeros(0, dtype=np.int64)
        if not is_named and shows_weeks(rows.ticks, rows.bounds, rows.like):
            years = years_to_last(rows.ticks, rows.like)
        n_controls, calendar = rows.controls.shape[1], design.calendar
        is_of_family = self.known.is_of_family
        has_age = grows_old(table, is_of_family)
        has_weekdays = not is_named and design.period.has_weekdays
        is_seen = has_month or has_weekdays or len(years) > 0
        has_calendar = is_seen or bool(calendar) or bool(self._edges)
        if not (n_controls or days or has_calendar or self.delays or has_age):
            return SearchRows(table, None, passed)
        inputs = Inputs(
            read=design.read(rows),
            n_controls=n_controls,
            units=ColumnUnits(design.location, design.scale),
            features=design.features(rows.ticks, rows.like),
            n_days=round(days[1] / days[0]) if days else 0,
            rows=seen,
            has_month=has_month,
            has_weekdays=has_weekdays,
            years=years,
            n_kinds=len(calendar.names) + 1 if calendar else 0,
            blocks=self.known.blocks,
            is_of_family=is_of_family,
            edges=self._edges,
            delays=tuple((n_controls + j, own) for j, own in self.delays),
        )
        return SearchRows(table, inputs, passed)

    @cached_property
    def _edges(self) -> tuple[float, ...]:
        """Return the shares of the day at which series step, if most of them do."""
        rows, design = _alone(self.observations, self.column), self.design
        if design.cycle is None:
            return ()
        gap, n = time_unit(rows), len(rows.keys)
        share_of_day = design.features(rows.ticks, rows.like).share_of_day
        asked = np.unique(np.linspace(0, n - 1, MOST_ASKED).round().astype(int))
        each = [
            edges_of(
                share_of_day[own],
                times=rows.ticks[own] / gap,
                values=rows.values[own, self.column],
                day=design.cycle[0] / gap,
            )
            for own in map(slice, rows.bounds[asked], rows.bounds[asked + 1])
        ]
        counts = Counter(edge for own in each for edge in own)
        several = sorted(edge for edge, k in counts.items() if k >= _SEEN * len(each))
        has_some = sum(map(bool, each)) > len(each) / 2
        return tuple(several) if has_some and len(several) <= MOST_EDGES else ()


def _usual_span(table: ChannelRows, longest: float) -> float:
    """Return the median time from first to last observation, of those that have one."""
    some = table.spans[table.spans > 0]
    return float(np.median(some)) if len(some) else max(longest, 1.0)


def _with_effects(
    found: Sequence[tuple[Candidate, tuple[Effect, ...]]],
    columns: dict[Effect, tuple[int, ...]],
    known: Known,
) -> list[Candidate]:
    """Return candidates whose forms say which columns their effects read."""
    candidates = []
    for one, effects in found:
        form = one.model.form._replace(effects=tuple(columns[e] for e in effects))
        # errors of measurement come ahead too, other errors of the rows do not
        error = one.scaling.error if known.is_measured else 0.0
        candidates.append(
            one._replace(
                model=one.model._replace(form=form),
                scaling=one.scaling._replace(error=error),
            )
        )
    return candidates


def _attributes(
    found: Sequence[Sequence[tuple[Candidate, tuple[Effect, ...]]]],
    tables: list[ChannelRows],
    design: Design,
    rows: Observations,
    known: Known,
) -> list[Attributes]:
    """Return what columns of X that are constant in each series tell, by column."""
    n_controls = rows.controls.shape[1]
    if len(rows.keys) < 2 or not n_controls:
        return [Attributes()] * len(tables)
    read = design.read(rows)
    options = attributes_in(read, n_controls, known.blocks)
    best = [heaviest_of_each([one for one, _ in each])[0] for each in found]
    pairs = zip(best, tables, strict=True)
    return [attributes_of(one, table, read, options) for one, table in pairs]


def _with_coefficients(
    candidates: list[Candidate],
    effects: Sequence[tuple[Effect, ...]],
    table: ChannelRows,
    span: float,
    deviation: float,
) -> list[Candidate]:
    """Return candidates that know what series of a panel share of their effects.

    Levels are so far from what attributes of series tell of them.
    """
    weights = weights_of(candidates, table)
    found = []
    for k, (one, own) in enumerate(zip(candidates, effects, strict=True)):
        if any(effect.pooling.has_mean for effect in own):
            mine = (weights[k] > 0)[table.series]
            rows = table.where(mine)
            has_attributes = any(effect.pooling.is_between for effect in own)
            coefficients = random_coefficients(
                one,
                rows,
                span,
                own,
                levels=levels_of(one, rows) if has_attributes else None,
                deviation=deviation,
            )
            one = one._replace(coefficients=coefficients)
        found.append(one)
    return found


def _alone(rows: Observations, channel: int) -> Observations:
    """Return the rows of a channel: it is found as it is alone."""
    seen = ~np.isnan(rows.values[:, channel])
    return rows.where(seen) if seen.any() else rows


def _with_smearing(
    candidates: list[Candidate], table: ChannelRows, span: float
) -> list[Candidate]:
    """Return candidates that know how far sums lie from medians.

    The heaviest of a group tells; of those that series draw each, where it is drawn.
    """
    is_for = weights_of(candidates, table) > 0
    if any(one.is_drawn for one in candidates):
        members = np.arange(len(table.lengths))
        own = FilteredColumn.filter(candidates, table, span, members).heaviest
        is_drawn = np.array([[one.is_drawn] for one in candidates])
        is_for &= ~is_drawn | (own == np.arange(len(candidates))[:, None])
    # the heaviest comes last, and so stays
    by_weight = sorted(range(len(candidates)), key=lambda k: candidates[k].weight)
    of_group = {candidates[k].group: k for k in by_weight}
    telling = [
        k if one.is_drawn else of_group[one.group] for k, one in enumerate(candidates)
    ]
    factors = {
        k: candidates[k].smearing_factor(table.where(is_for[k][table.series]), span)
        for k in {*telling}
    }
    return [
        one._replace(scaling=one.scaling._replace(smearing=factors[k]))
        for one, k in zip(candidates, telling, strict=True)
    ]
